/*-------------------------------------------------------------------------
 *
 * place.h
 *		Places in a trail: how far it is durable, and how far consumers have
 *		acknowledged it.
 *
 * Both are in files beside the trail, so that programs need no connection to the
 * server, nor the server a running program:
 *
 *		pg_audit_queue.flushed			the worker says up to where the trail is
 *										durable; what is behind that may still be
 *										cut off and written again in another way
 *		pg_audit_queue.consumer.NAME	the consumer, or whoever ships for it, says
 *										what it has acknowledged
 *
 * A file of the trail may be removed when all consumers have acknowledged it: it is before that
 * of the place, or ends there, and was not written to after paq_place_until().
 *
 * The files have numbers in native order, with a checksum.  A consumer's has two slots, of
 * which the older one is overwritten, durably: whatever crashes, and when, leaves the old
 * place or the new one.  The other has one, which is not synced: it says no more than what
 * was durable before.  A reader may find it half written, and reads it again.
 *
 * Locking: who moves a consumer, or drops it, has a lock on its whole file, as fcntl() makes
 * them; the system releases it when the process ends.
 *
 * For the server and for programs.  Nothing here raises.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_PLACE_H
#define PAQ_PLACE_H

#include "c.h"

#include "datatype/timestamp.h"

#define PAQ_FLUSHED_FILE		"pg_audit_queue.flushed"
#define PAQ_CONSUMER_PREFIX		"pg_audit_queue.consumer."

/* A consumer's name, with its terminator */
#define PAQ_CONSUMER_NAME_LEN	64

/* A place in a trail, behind a record.  All zeros: before the first one */
typedef struct PaqPlace
{
	uint64		series;			/* of that record, */
	uint64		sequence;		/* and its sequence */
	uint64		begun;			/* sequence of the first record of file */
	uint64		offset;			/* of the file: the place, or one before it, that
								 * is between two units of the file's layers */
	char		file[256];		/* without directories; "": none */
} PaqPlace;

typedef struct PaqConsumer
{
	uint64		number;			/* of times that it was written */
	TimestampTz created;
	TimestampTz acknowledged;	/* when place was; before that, created */
	TimestampTz record_time;	/* of the record; 0: unknown */
	PaqPlace	place;
} PaqConsumer;

typedef enum PaqPlaceResult
{
	PAQ_PLACE_OK,
	PAQ_PLACE_BAD,				/* there is nothing valid in the file */
	PAQ_PLACE_FAILED			/* it cannot be read, see errno */
} PaqPlaceResult;

/* The name that follows the prefix; NULL if that is no consumer's file. */
extern const char *paq_consumer_of_file(const char *file);

/* Lower-case letters, digits and underscores, of which there are enough and not too many */
extern bool paq_consumer_name_is_valid(const char *name);

/* From and to files that are open as fd.  What returns bool is false, with errno, on failure. */
extern PaqPlaceResult paq_flushed_read(int fd, PaqPlace *place);
extern bool paq_flushed_write(int fd, const PaqPlace *place);
extern PaqPlaceResult paq_consumer_read(int fd, PaqConsumer *consumer);

/* Durably.  Raises consumer->number. */
extern bool paq_consumer_write(int fd, PaqConsumer *consumer);

/*
 * The same for a new file, which gets all the space that it will ever need: what is
 * acknowledged while the disk is full makes space on it.
 */
extern bool paq_consumer_write_first(int fd, PaqConsumer *consumer);

/* Lock a consumer's file; false with errno EAGAIN or EACCES if another process has. */
extern bool paq_consumer_lock(int fd);

/* The process that has the lock, 0 if there is none */
extern int	paq_consumer_owner(int fd);

/*
 * Returns how many records there are behind a consumer's place, up to the trail's end, of which
 * these are the sequences.  Where they have begun anew, it is not known with which one: all up to
 * the end count.
 */
static inline uint64
paq_place_lag(uint64 place, uint64 end)
{
	return end >= place ? end - place : end;
}

/*
 * Files that were last written to after this time may have something that the consumer has not
 * acknowledged.  file_written: when the file of its place was last written to, 0 if it is gone.
 *
 * Sequences alone do not tell.  In a directory they go on from file to file; but they begin anew
 * if all that was there has been lost, and a server restored from a backup may have used some
 * again before its newer files were put back, with their times.  Its files are newer than that
 * of the place, then.  (After a clock was set back, more files may count as newer.)
 */
static inline TimestampTz
paq_place_until(const PaqConsumer *consumer, TimestampTz file_written)
{
	TimestampTz until = file_written;

	/* Nothing is behind a consumer that has not begun. */
	if (consumer->place.begun == 0)
		return PG_INT64_MIN;
	if (until == 0)
		until = consumer->record_time;
	return until == 0 ? consumer->acknowledged : Min(until, consumer->acknowledged);
}

#endif							/* PAQ_PLACE_H */
