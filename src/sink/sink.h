/*-------------------------------------------------------------------------
 *
 * sink.h
 *		What a sink - a place for the trail - offers to the worker.
 *
 * Only the worker calls these, one at a time.  A batch is begin_batch(), any
 * number of append(), then end_batch() or abort_batch().  Callbacks return
 * false on failure, with a message from paq_sink_error(); after a failure of
 * append() or end_batch() the caller calls abort_batch() and later starts the
 * same batch again.  They do not raise for what the world outside does to
 * them (full disk, missing directory); out of memory and the like may.
 *
 * Exactly once: end_batch() returning true means that a crash of PostgreSQL
 * processes cannot undo the batch, and get_state() then describes the end of
 * the trail.  The worker stores that state together with the queue position
 * it has reached.  resume() with a state cuts off whatever was written beyond
 * it.
 *
 * After a crash of the operating system, or if the queue file was damaged, the
 * trail may be behind the state or ahead of it.  Then resume() keeps what is
 * there beyond what was durable, mends it, and is_known() tells which records
 * it has already.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_SINK_H
#define PAQ_SINK_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "format/format.h"

/*
 * What the trail had and may have no more, because somebody else changed its
 * current file; message "" for nothing.
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
	uint64		flushed_sequence;	/* of the last record in these */
	uint64		known_from;		/* where in known_file the records begin that
								 * is_known() has to know */
	uint64		known_sequence; /* of the last record before */
	uint64		inode;			/* of file */
	int64		begun;			/* TimestampTz: when file was made, and */
	uint64		begun_sequence; /* the last record before it */
	uint64		closed;			/* 1: whatever file has behind offset is none
								 * of our writing */
	PaqLoss		loss;			/* that the trail has yet to tell of */
	char		file[MAXPGPATH];	/* path, relative to the data directory or
									 * absolute; "" for none */
	char		known_file[MAXPGPATH];	/* the same, or an older one */
} PaqSinkState;

typedef enum PaqAppendResult
{
	PAQ_APPEND_OK,				/* there is room for more */
	PAQ_APPEND_FULL,			/* taken, but end the batch now */
	PAQ_APPEND_FAILED			/* not taken */
} PaqAppendResult;

typedef enum PaqRotation
{
	PAQ_ROTATION_NONE,			/* not necessary */
	PAQ_ROTATION_DONE,			/* there is a new file */
	PAQ_ROTATION_PUT_OFF		/* impossible now, but the old file is usable */
} PaqRotation;

/* What retention does to files, all for the same reason */
typedef struct PaqRemoval
{
	int			count;			/* of files */
	uint64		bytes;			/* in them */
	const char *path;			/* of the oldest */
	const char *names;			/* of all, without directory, ", " in between */
	const char *setting;		/* because of which they go */
	int			error;			/* errno, if it could not be done */
} PaqRemoval;

typedef enum PaqRetention
{
	PAQ_RETENTION_IDLE,			/* nothing more to do for now */
	PAQ_RETENTION_MORE,			/* call again soon */
	PAQ_RETENTION_PLANNED,		/* *removal is what the next calls do */
	PAQ_RETENTION_FAILED		/* *removal could not be done; call again */
} PaqRetention;

typedef struct PaqSink
{
	/*
	 * Continue where the trail ends, which is where state says if that is
	 * exact; then *sequence is that of the last record in the trail.  If it
	 * is not exact, or nothing is known, *sequence is set to that of the last
	 * record found.
	 *
	 * ahead is the number of records that are still to come at most: what is
	 * cut off must be among them.  If it cannot be, or there is a newer file,
	 * the state is that of an old copy of the queue: *exact becomes false.
	 */
	bool		(*resume) (const PaqSinkState *state, bool *exact, uint64 ahead,
				   uint64 *sequence);

	/*
	 * Does the part of the trail that resume() found have this record, with
	 * whatever sequence?  forget_known() says that no more questions will come.
	 */
	bool		(*is_known) (const PaqRecord *record);
	void		(*forget_known) (void);

	/*
	 * Called with no batch open, after the settings were read again and
	 * before every batch: start a new file where age, size, a changed setting
	 * or force say so, or where there is none (or it is gone).  If that was
	 * done, the state has changed and must be stored before the next batch.
	 * *flushed tells whether, whatever came of the rest, all that was written
	 * before, up to sequence, has been made durable.
	 */
	bool		(*rotate_if_due) (bool force, uint64 sequence, bool *flushed,
						  PaqRotation *rotation);

	/* When rotate_if_due() will next have to act; DT_NOEND for never. */
	TimestampTz (*next_rotation) (void);

	/*
	 * With no batch open, between other work: a small piece of what has to be
	 * done to remove what is older, or more, than the settings allow.  What is
	 * planned must be in the trail, durably, before the next call, together
	 * with a state of now: removed evidence must leave evidence, and no state
	 * that may be resumed from may be one of a file that is removed.
	 */
	PaqRetention (*retain) (PaqRemoval *removal);

	/* When retain() will next have something to do by itself; DT_NOEND for never. */
	TimestampTz (*next_retention) (void);

	bool		(*begin_batch) (void);
	PaqAppendResult (*append) (const PaqRecord *record);
	bool		(*end_batch) (void);
	void		(*abort_batch) (void);

	/*
	 * With no batch open: make everything up to get_state(), where the last
	 * record has the given sequence, durable.
	 */
	bool		(*flush) (uint64 sequence);

	/*
	 * After a failure: if what was written since the last flush cannot be
	 * relied on, go back to there, set *sequence to that of the last record
	 * then, and return true; all of it has to be written again.
	 */
	bool		(*retreat) (uint64 *sequence);

	/*
	 * Has the trail lost anything of which it does not tell yet?  Then that has
	 * to be its next record.  loss_told() says that the record is there, durably;
	 * until then the loss is part of the state.
	 */
	const PaqLoss *(*loss) (void);
	void		(*loss_told) (void);

	void		(*get_state) (PaqSinkState *state);

	/* The worker leaves; *state is the last one. */
	void		(*close) (PaqSinkState *state);
} PaqSink;

/* The only sink: files, from which the loader may fill a table (load/). */
extern const PaqSink *paq_file_sink(void);

/* Message for the last failure of a callback; valid until the next failure. */
extern const char *paq_sink_error(void);

/*
 * Make sure, before the server starts, that the configured trail can be
 * written; reports FATAL with the reason if not.
 */
extern void paq_file_sink_check(void);

#endif							/* PAQ_SINK_H */
