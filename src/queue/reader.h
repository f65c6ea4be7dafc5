/*-------------------------------------------------------------------------
 *
 * reader.h
 *		The queue as the worker sees it: records come out in order.
 *
 * A reader stands on one queue file: the live one, or the backlog, which is
 * what an earlier run of the server left.  The files are read oldest first.
 * paq_reader_next() moves a cursor over records; paq_reader_checkpoint() makes
 * the cursor's place permanent ("drained"), together with the state of the
 * trail; paq_reader_flushed() says that the trail is durable up to there, which
 * wakes those who wait and gives the space back.
 *
 * Only the worker uses this, and there is at most one.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_READER_H
#define PAQ_READER_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "port/pg_crc32c.h"
#include "record/record.h"
#include "stats.h"

/* Bytes of trail state that a checkpoint keeps for the sink. */
#define PAQ_TRAIL_STATE_SIZE	(11 * sizeof(uint64) + 3 * MAXPGPATH + 256)

/* How far the trail has got, stored in the queue file; see file.c. */
typedef struct PaqCheckpoint
{
	uint64		counter;		/* the larger of the two blocks is newer */
	uint64		drained;		/* position up to which the trail has it;
								 * PAQ_DRAINED_ALL for a file that is done */
	uint64		drained_slots;	/* pending slots the trail has; only used when
								 * the file is backlog */
	uint64		flushed;		/* position up to which the trail was durable */
	uint64		flushed_slots;	/* by then, and slots */
	uint64		drops[PAQ_NDROPS];	/* dropped records, since the file was made,
									 * that GAP records report; see overflow.c */
	uint64		flushed_drops[PAQ_NDROPS];	/* the same, durably */
	uint64		sequence;		/* of the last record in the trail; 0: what
								 * the file before this one says */
	uint64		doubtful;		/* PAQ_DOUBT_xxx: what was found wrong with the
								 * file; in a new file: that something was wrong
								 * with the one before is known */
	uint64		synced_end;		/* "reserved" when all of this file and of the
								 * trail was on disk; 0: it was not */
	char		trail[PAQ_TRAIL_STATE_SIZE];	/* sink's state */
	pg_crc32c	crc;			/* of all above */
} PaqCheckpoint;

StaticAssertDecl(sizeof(PaqCheckpoint) <= 4096,
				 "a checkpoint must fit into one page");

#define PAQ_DRAINED_ALL		PG_UINT64_MAX

#define PAQ_DOUBT_NONE		0
#define PAQ_DOUBT_TRAIL		1	/* it does not tell where the trail ends */
#define PAQ_DOUBT_ALL		2	/* nor where its records end */
#define PAQ_DOUBT_LOST		4	/* added to one of these: records of an earlier
								 * file may be lost, and the trail does not say
								 * so yet */

typedef enum PaqReadResult
{
	PAQ_READ_RECORD,			/* a record */
	PAQ_READ_GAP,				/* records are, or may be, missing here */
	PAQ_READ_DROPS,				/* records were dropped here */
	PAQ_READ_BUSY,				/* the next record is being written */
	PAQ_READ_END				/* no more records now (live) or ever */
} PaqReadResult;

/* What is known about missing records */
typedef struct PaqGap
{
	bool		hole;			/* a hole in the ring: no gap if the trail has
								 * the record that follows it */
	int64		from;			/* TimestampTz: of the last record before, or the
								 * first dropped; 0 if unknown */
	int64		to;				/* TimestampTz: of the first one after, or the
								 * last dropped */
	int64		count;			/* of records, -1 if unknown */
	char		message[MAXPGPATH + 256];	/* what happened to them */
} PaqGap;

typedef struct PaqReader PaqReader;

extern PaqReader *paq_reader_open(PaqCheckpoint *checkpoint, bool *trusted);
extern bool paq_reader_is_live(PaqReader *reader);
extern uint64 paq_reader_ahead(PaqReader *reader);
extern void paq_reader_distrust(PaqReader *reader);
extern PaqReadResult paq_reader_next(PaqReader *reader, PaqRecord *record,
									 PaqGap *gap);
extern bool paq_reader_has_drops(PaqReader *reader);
extern uint64 paq_reader_position(PaqReader *reader);
extern uint64 paq_reader_limit(PaqReader *reader);
extern void paq_reader_rewind(PaqReader *reader);
extern bool paq_reader_unsaved(PaqReader *reader);
extern void paq_reader_checkpoint(PaqReader *reader, uint64 sequence,
								  const void *trail);
extern bool paq_reader_unflushed(PaqReader *reader);
extern uint64 paq_reader_unflushed_bytes(PaqReader *reader);
extern void paq_reader_flushed(PaqReader *reader, uint64 sequence,
							   const void *trail);
extern void paq_reader_retreat(PaqReader *reader);
extern PaqReader *paq_reader_advance(PaqReader *reader, uint64 sequence,
									 const void *trail);
extern bool paq_reader_sync_due(PaqReader *reader);
extern void paq_reader_sync(PaqReader *reader);
extern void paq_reader_close(PaqReader *reader, uint64 sequence,
							 const void *trail);

/* reader.c: sleeping until somebody needs the worker */
extern bool paq_worker_hibernate(PaqReader *reader);
extern void paq_worker_wake(void);

/* sentinel.c */
extern TimestampTz paq_wal_tend(TimestampTz now);
extern void paq_wal_close(void);

/* wait.c, writers.c: the worker's side of waiting and asking */
extern void paq_worker_attach(void);
extern bool paq_worker_flush_wanted(void);
extern bool paq_worker_space_wanted(void);
extern bool paq_worker_is_asked(PaqRequest what, uint32 *number);
extern void paq_worker_has_done(PaqRequest what, uint32 number, bool ok);
extern uint32 paq_worker_attached_backends(void);
extern void paq_worker_failing(bool failing);

#endif							/* PAQ_READER_H */
