/*-------------------------------------------------------------------------
 *
 * ship.h
 *		pg_audit_trail ship: what its files share.
 *
 *	ship.c			the command
 *	ship_send.c		consumer, window, statistics
 *	walk.c			the records of a trail from a place on, as far as they are durable
 *	ship_command.c	to a program
 *	ship_kafka.c	to Kafka
 *
 * Records go from the walk through the window, where they wait for being acknowledged, to a
 * target.  What all records up to one are acknowledged, is the consumer's new place.  If a
 * target fails, what is in the window is forgotten, and the walk goes back to that place: each
 * record is shipped at least once, in order, and none twice as long as nothing fails.
 *
 * What is in the trail and cannot be read is not left out: nothing behind it is shipped, so that
 * nothing behind it is acknowledged.
 *
 * Memory is bounded by the window and the longest record that source.c hands out.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_SHIP_H
#define PAQ_SHIP_H

#include "bin/pg_audit_trail/program.h"

#include "trail/place.h"

/* walk.c */

typedef struct Walk Walk;

typedef enum WalkResult
{
	WALK_RECORD,
	WALK_END,					/* there is none that is durable, for now */
	WALK_STUCK					/* what comes next cannot be read, which has been
								 * said */
} WalkResult;

extern Walk *walk_begin(const char *directory, const PaqKeys *keys);
extern void walk_set_place(Walk *walk, const PaqConsumer *consumer);
extern WalkResult walk_next(Walk *walk, Record *record);
extern const PaqPlace *walk_place(const Walk *walk);
extern uint64 walk_last_sequence(const Walk *walk);
extern bool walk_has_end(const Walk *walk);
extern uint64 walk_missing(const Walk *walk);

/* ship_send.c: the window */

/* All that were sent up to that number, or that one, are acknowledged. */
extern void ship_acknowledged_to(uint64 number);
extern void ship_acknowledged(uint64 number);

/*
 * The number of the record in the window with that sequence; false if there is none.  For targets
 * that get sequences which go up from open() on, and so have no other series with the same ones.
 */
extern bool ship_find_sequence(uint64 sequence, uint64 *number);

/* Targets */

typedef enum SendResult
{
	SEND_TAKEN,
	SEND_FULL,					/* try again after wait() */
	SEND_ANEW,					/* try again after finish(), close() and open() */
	SEND_FAILED
} SendResult;

typedef struct Target
{
	const char *name;

	/* What returns bool is false on failure, which has been reported. */
	bool		(*open) (void);

	/* Numbers count up from 1 from open() on.  The record is valid during the call only. */
	SendResult	(*send) (uint64 number, Record *record);

	/* Work, for at most so many milliseconds if there is nothing to do. */
	bool		(*wait) (int timeout);

	/* There will be no more records.  Then wait() until all are acknowledged. */
	void		(*finish) (void);
	void		(*close) (void);
} Target;

/* ship_send.c */

typedef struct ShipOptions
{
	const char *directory;
	const char *name;			/* of the consumer */
	PaqKeys    *keys;
	bool		once;			/* end when all is sent and acknowledged */
	int			stats_time;		/* seconds; 0: no statistics are printed */
	const Target *target;
} ShipOptions;

extern void ship_trail(const ShipOptions *options);

/* ship_command.c */
extern const Target *command_target(const char *command);

/* ship_kafka.c */
extern const Target *kafka_target(const char *path);

#endif							/* PAQ_SHIP_H */
