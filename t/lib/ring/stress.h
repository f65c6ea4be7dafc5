/*-------------------------------------------------------------------------
 *
 * stress.h
 *		Declarations that the files of the queue's stress program share.
 *
 * The program has no server: life.c plays the postmaster and forks producers,
 * which put records into the queue as sessions do, and a consumer, which takes
 * them off as the worker does.  All of it runs the project's own code of
 * src/queue and src/record; stubs.c has what this code needs of a server.
 *
 * The processes share Stress, which outlives each "server".  For each record,
 * Stress tells how far its producer got with it; in the end the consumer's
 * trail is compared with that.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef STRESS_H
#define STRESS_H

#include "postgres.h"

#include <setjmp.h>

#include "compat.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "queue/queue_internal.h"
#include "storage/latch.h"
#include "storage/proc.h"

#define MAX_PRODUCERS	8
#define MAX_IDS			(1 << 17)	/* records of a producer in a scenario */
#define MAX_POINTS		64
#define SERVER_MEMORY	(256 * 1024)

/* How far a producer got with a record; the next one is stored before acting */
typedef enum RecordState
{
	STATE_NONE,
	STATE_CREATING,				/* at most once, or counted as dropped */
	STATE_DROPPED,				/* not at all, but counted */
	STATE_PENDING,				/* exactly once, if the slot has it */
	STATE_REPLACING,			/* by one with other texts: the same */
	STATE_PUBLISHING,			/* the same */
	STATE_PUBLISHING_DIRECT,	/* past the pending area: at most once */
	STATE_PUBLISHED,			/* exactly once, from the ring */
	STATE_FREEING,				/* at most once */
	STATE_FREED,				/* not at all */
	STATE_UNNOTICED				/* its process died unnoticed: exactly once,
								 * if the slot has it */
} RecordState;

/* What may be said about a record beside its state */
#define COPY_IN_SLOT	0x01	/* recovery can find it in the pending slot */
#define COPY_IS_CUT		0x02	/* with a shortened text */
#define MESSAGE_IS_CUT	0x04	/* in the ring its message is shortened */

/* A point of fault.h, or one of the program's own */
typedef struct Point
{
	char		name[32];
	pg_atomic_uint32 ready;		/* the name is there */
	pg_atomic_uint64 passed;
	pg_atomic_uint64 kills;
} Point;

/* One producer's account, over all its lives in a scenario */
typedef struct Account
{
	uint64		next_id;
	uint64		next_order;		/* numbers records in order of publishing */
	uint64		publishing;		/* id of the record that is being published,
								 * 0 for none */

	/*
	 * Order number of the last record that the consumer has written (or is
	 * going to have in the next checkpoint), and flushed
	 */
	pg_atomic_uint64 written;
	pg_atomic_uint64 durable;
} Account;

typedef struct Stress
{
	pg_atomic_uint32 failed;	/* somebody found something wrong */
	pg_atomic_uint32 stop_producers;
	pg_atomic_uint32 stop_consumer;

	/* How this scenario is */
	uint64		seed;
	uint32		frame_size;		/* of all frames, 0: any */
	bool		sleepy;			/* the consumer sleeps after each record */
	bool		lazy;			/* it flushes only if somebody asks */
	bool		alone;			/* there is no consumer: do not wait for it */
	bool		unnoticed;		/* processes die, and the others go on */

	/* Who passes the armed point as the countdown gets to 0 is killed there. */
	char		armed[32];		/* "" for none, "*" for any */
	pg_atomic_uint32 countdown;
	Point		points[MAX_POINTS];
	pg_atomic_uint32 npoints;

	pg_atomic_uint64 records;	/* written to the trail, repetitions included */
	pg_atomic_uint64 bytes;
	pg_atomic_uint64 interrupted;
	pg_atomic_uint64 rewinds;
	pg_atomic_uint64 retreats;
	pg_atomic_uint64 hibernations;
	pg_atomic_uint64 cancels;
	pg_atomic_uint64 errors;
	pg_atomic_uint64 drops;
	pg_atomic_uint64 waits;
	pg_atomic_uint64 stepped_over;	/* holes of those who died unnoticed */
	pg_atomic_uint64 timeouts;	/* waits that nobody ended in time */

	bool		stepping;		/* a process is stepped */
	volatile bool in_window;	/* at the moment */
	uint64		stepped;		/* instructions */
	uint64		step_crashes;	/* states after them that were recovered */

	/* The server's shared memory, cleared when it restarts */
	Size		server_memory_used;
	char		server_memory[SERVER_MEMORY];
	Latch		latches[MAX_PRODUCERS + 1];
	PGPROC		procs[MAX_PRODUCERS + 1];

	/* Processes that died while they made or published a record */
	uint32		busy_deaths;

	Account		account[MAX_PRODUCERS];
	uint8		state[MAX_PRODUCERS][MAX_IDS];
	uint8		copy[MAX_PRODUCERS][MAX_IDS];
} Stress;

/* One record in the trail */
typedef struct TrailEntry
{
	uint64		sequence;
	uint64		id;
	uint64		order;
	uint64		life;
	uint32		producer;		/* DROPS: id is how many records were dropped */
	uint32		flags;			/* PAQ_RECORD_xxx */
	uint32		backlog;		/* was not in the live queue file */
	pg_crc32c	crc;			/* of all above */
} TrailEntry;

#define DROPS			PG_UINT32_MAX

/* What a checkpoint says about the trail; fills PaqCheckpoint.trail */
typedef union TrailState
{
	struct
	{
		uint64		written;	/* bytes */
		uint64		flushed;
	}			end;
	char		bytes[PAQ_TRAIL_STATE_SIZE];
} TrailState;

extern Stress *stress;
extern bool stress_verbose;
extern char *stress_context;	/* when it is, for messages; NULL: now */

/* shared.c */
extern void stress_init(void);
pg_noreturn extern void stress_fail(const char *fmt,...) pg_attribute_printf(1, 2);
extern void stress_seed(uint64 seed);
extern uint64 stress_random64(void);
extern uint32 stress_random(uint32 n);
extern bool stress_chance(uint32 percent);
extern uint64 stress_hash(uint64 a, uint64 b);
extern void stress_arm(const char *point, uint32 countdown);
extern Point *stress_point(const char *name);
extern void stress_window(bool open);
extern void stress_check_positions(void);

/* pattern.c */
typedef struct Sizes
{
	uint32		statement;
	uint32		parameter;		/* PAQ_NULL_LEN for none */
	uint32		command;
	int			session;		/* -1: all fields are null */
} Sizes;

extern void stress_make_record(uint32 producer, uint64 id, uint64 life,
							   const Sizes *sizes, PaqRecordHeader *header,
							   PaqSessionBlock *session, PaqText *statement);
extern const char *stress_make_message(uint32 producer, uint64 id, uint32 len);
extern const char *stress_check_record(const PaqRecord *record);

/* producer.c, consumer.c */
pg_noreturn extern void stress_producer(uint32 number, bool slotless, uint64 life,
										uint64 seed, uint32 records);
pg_noreturn extern void stress_filler(uint64 life, uint64 seed);
pg_noreturn extern void stress_consumer(uint64 seed);
extern void stress_consumer_open(void);
extern bool stress_consume(void);

/* check.c */
extern uint64 stress_check_trail(void);

/* life.c */
typedef enum Ending
{
	END_POINT,
	END_SIGNAL,
	END_ALL,
	END_STOP
} Ending;

extern pid_t stress_start_child(void);
extern void stress_startup(void);
extern void stress_note_deaths(bool forget);
pg_noreturn extern void stress_give_up(void);
extern void stress_live(Ending ending);
extern void stress_live_full(void);
extern void stress_live_sleepy(void);
extern void stress_live_unnoticed(void);
extern void stress_live_refused(void);
extern bool stress_has_seen_all(void);
extern void stress_lives_begin(uint32 n);
extern void stress_print_lives(void);

/* scenario.c */
extern uint64 stress_run_scenario(uint64 seed, uint32 n_lives);
extern void stress_run_steps(uint64 seed);

/* step.c */
typedef enum StepKind
{
	STEP_PRODUCER,
	STEP_DROPPER,
	STEP_CONSUMER
} StepKind;

extern bool stress_step(StepKind kind);

/* stubs.c: what a test does to the server's side */
extern sigjmp_buf *stress_cancel;	/* where a wait may be cancelled to */
extern sigjmp_buf *stress_error;	/* where an error is caught */
extern bool stress_no_memory;	/* allocations fail now and then */
extern void stress_become(int number, BackendType type);
pg_noreturn extern void stress_exit(void);
extern void stress_nap(long timeout);

#endif							/* STRESS_H */
