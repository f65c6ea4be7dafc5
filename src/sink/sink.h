/*-------------------------------------------------------------------------
 *
 * sink.h
 *		The sink, where the trail is written, as the worker sees it.
 *
 * The trail is a series of files, from which the loader may fill a table
 * (load/).  Only the worker calls these functions.
 *
 * A batch is begin_batch(), any number of append(), then end_batch() or
 * abort_batch().  A function that fails says so by its result, and
 * paq_sink_error() has the reason.  After a failure of append() or end_batch()
 * the caller aborts the batch and starts the same batch again later.  A full
 * disk, a missing directory and the like never raise an error; lack of memory
 * may.
 *
 * Exactly once: when end_batch() has returned true, a crash of PostgreSQL
 * cannot undo the batch, and get_state() describes the end of the trail.  The
 * worker stores that state together with the queue position it has reached.
 * resume() with a state cuts off whatever was written behind it.
 *
 * After a crash of the operating system, or if the queue file was damaged, the
 * trail may be behind the state or ahead of it.  Then resume() keeps and mends
 * what is there behind the part that was durable, and is_known() tells which
 * records that is.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_SINK_H
#define PAQ_SINK_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "record/record.h"

/*
 * Records that may be lost because somebody else changed the current file, and
 * of which the trail does not tell yet.  An empty message stands for none.
 */
typedef struct PaqLoss
{
	int64		from;			/* TimestampTz: when the file was begun */
	int64		to;				/* when the change was noticed */
	char		message[MAXPGPATH + 256];
} PaqLoss;

/*
 * End of a trail, as stored in the queue file: fixed size, no pointers.
 * All zeros: the trail does not exist yet.
 */
typedef struct PaqSinkState
{
	uint64		offset;			/* bytes of the file that belong to the trail */
	uint64		flushed;		/* of them, those that are durable */
	uint64		flushed_sequence;	/* of the last durable record */
	uint64		known_from;		/* is_known() has to know the records of
								 * known_file from here on, */
	uint64		known_sequence; /* which follow this sequence */
	uint64		inode;			/* of file */
	int64		begun;			/* TimestampTz: when file was made, and */
	uint64		begun_sequence; /* the last record before it */
	uint64		closed;			/* 1: the worker has left the file with nothing
								 * behind offset */
	PaqLoss		loss;
	char		file[MAXPGPATH];	/* path, relative to the data directory or
									 * absolute; "" for none */
	char		known_file[MAXPGPATH];	/* the same file, or an older one */
} PaqSinkState;

typedef enum PaqAppendResult
{
	PAQ_APPEND_OK,				/* there is space for more */
	PAQ_APPEND_FULL,			/* taken, but end the batch now */
	PAQ_APPEND_FAILED			/* not taken */
} PaqAppendResult;

typedef enum PaqRotation
{
	PAQ_ROTATION_FAILED,
	PAQ_ROTATION_NONE,			/* not necessary */
	PAQ_ROTATION_DONE,			/* there is a new file */
	PAQ_ROTATION_PUT_OFF		/* impossible now, but the old file is usable */
} PaqRotation;

/* Files that retention removes, all for the same reason */
typedef struct PaqRemoval
{
	int			count;			/* of files */
	uint64		bytes;			/* in them */
	const char *path;			/* of the oldest */
	const char *names;			/* of all, without directory, ", " in between */
	const char *setting;		/* the reason */
	const char *consumers;		/* those that have not acknowledged them, or "" */
	int			error;			/* errno, if they could not be removed */
} PaqRemoval;

typedef enum PaqRetention
{
	PAQ_RETENTION_IDLE,			/* nothing more to do for now */
	PAQ_RETENTION_MORE,			/* call again soon */
	PAQ_RETENTION_PLANNED,		/* the next calls remove *removal */
	PAQ_RETENTION_FAILED		/* *removal could not be removed; call again */
} PaqRetention;

/*
 * directory.c: make sure, before the server starts, that the configured trail can
 * be written, and is no other server's; reports FATAL with the reason if not.
 */
extern void paq_sink_check(void);

/* trail.c: reason for the last failure; valid until the next one. */
extern const char *paq_sink_error(void);

/* file.c */

extern bool paq_sink_begin_batch(void);

/*
 * Sets the record's series.  It may become several records of the trail, *nparts, the
 * first of which has its sequence, and the others those that follow.
 */
extern PaqAppendResult paq_sink_append(PaqRecord *record, uint32 *nparts);
extern bool paq_sink_end_batch(void);
extern void paq_sink_abort_batch(void);

/*
 * With no batch open: make everything up to get_state(), where the last
 * record has the given sequence, durable.
 */
extern bool paq_sink_flush(uint64 sequence);

/*
 * After a failure: if what was written since the last flush cannot be relied
 * on, go back to that flush, set *sequence to that of the last record then, and
 * return true.  Everything since has to be written again.
 */
extern bool paq_sink_retreat(uint64 *sequence);

/*
 * A loss has to be the next record of the trail.  After paq_sink_loss_told(),
 * to be called when that record is durable, the loss is no longer part of the
 * state.  NULL: there is none.
 */
extern const PaqLoss *paq_sink_loss(void);
extern void paq_sink_loss_told(void);

/* A heartbeat record; false if the trail's format has none. */
extern bool paq_sink_heartbeat_record(PaqRecord *record);

/* A GAP record; message and record are valid for the same time. */
extern void paq_sink_gap_record(PaqRecord *record, TimestampTz from,
								TimestampTz to, int64 count, PaqText message);

/*
 * resume.c: go on where the trail ends, which is where state says if that is
 * exact; then *sequence is that of the last record in the trail.  If it is not
 * exact, or nothing is known, *sequence is set to that of the last record found.
 *
 * At most "ahead" records are still to come.  If there are more than that
 * behind the state, or there is a newer file, the state comes from an old copy
 * of the queue: *exact becomes false.
 */
extern bool paq_sink_resume(const PaqSinkState *state, bool *exact,
							uint64 ahead, uint64 *sequence);

extern void paq_sink_get_state(PaqSinkState *state);

/* The worker leaves; *state is the last one. */
extern void paq_sink_close(PaqSinkState *state);

/*
 * salvage.c: is this record, with whatever sequence, in the part of the trail
 * that paq_sink_resume() found?  After forget_known(), none is.
 */
extern bool paq_sink_is_known(const PaqRecord *record);
extern void paq_sink_forget_known(void);

/*
 * rotate.c: before every batch and after settings were read again, with no
 * batch open: start a new file where age, size, a changed setting or force say
 * so, or where there is none (or it is gone).  After PAQ_ROTATION_DONE the
 * state has changed and must be stored before the next batch.  *flushed tells
 * whether, whatever came of the rest, everything up to sequence has been made
 * durable.
 */
extern PaqRotation paq_sink_rotate_if_due(bool force, uint64 sequence,
										  bool *flushed);

/* When paq_sink_rotate_if_due() will next have to act; DT_NOEND for never. */
extern TimestampTz paq_sink_next_rotation(void);

/*
 * retention.c: with no batch open, a piece of the work of removing files that are
 * older, or more, than the settings allow.  A plan must be in the trail, durably,
 * before the next call, and the state stored again: removed evidence must leave
 * evidence, and no stored state may refer to a file that has been removed.
 */
extern PaqRetention paq_sink_retain(PaqRemoval *removal);

/* When paq_sink_retain() will next have something to do; DT_NOEND for never. */
extern TimestampTz paq_sink_next_retention(void);

/* seal.c: why a seal is made */
typedef enum PaqSealReason
{
	PAQ_SEAL_DUE,
	PAQ_SEAL_REQUESTED,
	PAQ_SEAL_LEAVING			/* nothing more is written by this worker, or
								 * nothing is sealed any more */
} PaqSealReason;

/*
 * With no batch open, and everything flushed: seal the trail up to here, where the
 * last record has that sequence.  True as well if there is nothing to do it with:
 * paq_sink_is_sealed() tells.  *_file() does no more than what has to be before the next batch.
 */
extern bool paq_sink_seal(PaqSealReason reason, uint64 sequence);
extern bool paq_sink_seal_file(uint64 sequence);
extern bool paq_sink_is_sealed(void);
extern void paq_sink_close_seals(void);

extern void paq_sink_seal_clock(TimestampTz now);

/* When the next seal is due; DT_NOEND for never. */
extern TimestampTz paq_sink_next_seal(void);

#endif							/* PAQ_SINK_H */
