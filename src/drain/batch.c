/*-------------------------------------------------------------------------
 *
 * batch.c
 *		Moving records from the queue to the sink, a batch at a time.
 *
 * A batch is read, formatted and written without any lock; then the
 * checkpoint in the queue file is advanced over it; then, once for all
 * batches of a cycle, the sink is flushed and the space given back.
 *
 * Guarantees: each record is in the trail exactly once, with the next
 * sequence number, whenever a PostgreSQL process dies: up to the checkpoint
 * the batch is not in the trail and is done again, from the checkpoint on it
 * is.  When the sink fails, nothing is lost: the reader goes back, and the
 * same records are tried again later.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "drain/drain_internal.h"
#include "fault.h"
#include "miscadmin.h"
#include "stats.h"
#include "utils/timestamp.h"

StaticAssertDecl(sizeof(PaqSinkState) == PAQ_TRAIL_STATE_SIZE,
				 "a checkpoint must have room for a sink's state");

/* Delays between attempts to use a failing sink, in ms */
#define MIN_RETRY_DELAY		100
#define MAX_RETRY_DELAY		5000

/*
 * How much of the queue, in bytes, is written before it is flushed and given
 * back: a part, so that sessions find space while the rest is written; but
 * not so little that flushes become the bulk of the work.
 */
#define MIN_FLUSH_BYTES		(1024 * 1024)
#define FLUSH_FRACTION		4

/* Find out where to begin. */
void
paq_drain_open(PaqDrain *drain)
{
	PaqCheckpoint checkpoint;

	drain->reader = paq_reader_open(&checkpoint, &drain->resume_cut);
	memcpy(&drain->resume_state, checkpoint.trail, sizeof(drain->resume_state));
	drain->resume_state.file[MAXPGPATH - 1] = '\0';
	drain->sequence = checkpoint.sequence;

	/* What a worker before us wrote and did not flush */
	drain->unflushed = pg_atomic_read_u64(&paq_stats->worker.drained) -
		pg_atomic_read_u64(&paq_stats->worker.flushed);
}

/*
 * The sink does not work.  Say so in the server's log if that is news, and
 * leave it alone for a while.
 */
void
paq_drain_failed(PaqDrain *drain, const char *message)
{
	if (drain->retry_at == 0)
	{
		drain->retry_delay = MIN_RETRY_DELAY;
		ereport(WARNING,
				(errmsg("audit trail cannot be written: %s", message),
				 errdetail("Audit records stay in the queue until it can be.")));
	}
	else
		drain->retry_delay = Min(drain->retry_delay * 2, MAX_RETRY_DELAY);
	paq_stats_worker_error(message);
	drain->retry_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
												  drain->retry_delay);
}

static void
sink_works(PaqDrain *drain)
{
	if (drain->retry_at != 0)
		ereport(LOG,
				(errmsg("audit trail can be written again")));
	drain->retry_at = 0;
}

/* Forget an unfinished batch; its records will be read again. */
void
paq_drain_abandon(PaqDrain *drain)
{
	if (drain->batch_open)
		drain->sink->abort_batch();
	drain->batch_open = false;
	paq_reader_rewind(drain->reader);
}

/* The batch's records are in the trail: make that permanent. */
static void
save_checkpoint(PaqDrain *drain)
{
	PaqSinkState state;

	memset(&state, 0, sizeof(state));
	drain->sink->get_state(&state);
	paq_reader_checkpoint(drain->reader, drain->sequence, &state);
}

/* A record that stands for bytes of the queue that could not be read. */
static void
make_gap(PaqRecord *record, uint64 damaged)
{
	static char message[128];
	PaqText    *text = &record->field[PAQ_FIELD_MESSAGE];

	memset(record, 0, sizeof(*record));
	paq_record_init_gap(&record->header, GetCurrentTimestamp(), MyProcPid);
	for (int i = 0; i < PAQ_NFIELDS; i++)
		record->header.field_len[i] = PAQ_NULL_LEN;
	snprintf(message, sizeof(message),
			 "%llu bytes of the audit queue are damaged; the records in them are lost",
			 (unsigned long long) damaged);
	text->data = message;
	text->len = strlen(message);
	record->header.field_len[PAQ_FIELD_MESSAGE] = text->len;
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("%s", message)));
}

/*
 * Read records and give them to the sink, until the sink has enough or there
 * are no more.  *count is their number; *more tells whether the sink's limit
 * was the reason.
 */
static bool
fill_batch(PaqDrain *drain, uint64 *count, bool *more)
{
	PaqRecord	record;
	uint64		damaged;

	*count = 0;
	*more = false;
	drain->gaps = 0;
	while (!*more)
	{
		switch (paq_reader_next(drain->reader, &record, &damaged))
		{
			case PAQ_READ_RECORD:
				break;
			case PAQ_READ_DAMAGED:
				make_gap(&record, damaged);
				drain->gaps++;
				break;
			case PAQ_READ_BUSY:
			case PAQ_READ_END:
				return true;
		}
		record.sequence = drain->sequence + *count + 1;
		switch (drain->sink->append(&record))
		{
			case PAQ_APPEND_OK:
				break;
			case PAQ_APPEND_FULL:
				*more = true;
				break;
			case PAQ_APPEND_FAILED:
				return false;
		}
		(*count)++;
	}
	return true;
}

static void
note_high_water(void)
{
	pg_atomic_uint64 *high_water = &paq_stats->worker.high_water;
	uint64		used = paq_queue_used();

	if (used > pg_atomic_read_u64(high_water))
		pg_atomic_write_u64(high_water, used);
}

/* One batch.  *more tells whether another one should follow at once. */
static bool
drain_batch(PaqDrain *drain, bool rotate, bool *more)
{
	PaqWorkerStats *stats = &paq_stats->worker;
	uint64		count;
	bool		rotated = false;

	*more = false;
	note_high_water();
	if (!drain->sink->rotate_if_due(rotate, &rotated))
		return false;
	if (rotated)
		save_checkpoint(drain);

	if (!drain->sink->begin_batch())
		return false;
	drain->batch_open = true;
	if (!fill_batch(drain, &count, more))
		return false;
	if (count > 0 && !drain->sink->end_batch())
		return false;
	if (count == 0)
		drain->sink->abort_batch();
	drain->batch_open = false;
	if (!paq_reader_unsaved(drain->reader))
		return true;
	(void) PAQ_FAULT("batch-written");

	drain->sequence += count;
	drain->unflushed += count;
	save_checkpoint(drain);
	paq_stats_add(&stats->recovered,
				  paq_reader_is_live(drain->reader) ? drain->gaps : count);
	paq_stats_add(&stats->drained, count);
	paq_stats_add(&stats->batches, 1);
	return true;
}

static bool
flush(PaqDrain *drain)
{
	if (paq_reader_unflushed(drain->reader) && !drain->sink->flush())
		return false;

	(void) PAQ_FAULT("flushed");

	/* Count first: those whom the next call wakes may look at it. */
	paq_stats_add(&paq_stats->worker.flushed, drain->unflushed);
	drain->unflushed = 0;
	paq_reader_flushed(drain->reader, drain->sequence);
	return true;
}

/* Put the sink where the checkpoint says that the trail ends. */
static bool
resume(PaqDrain *drain)
{
	if (drain->resumed)
		return true;
	if (!drain->sink->resume(&drain->resume_state, drain->resume_cut))
		return false;
	drain->resumed = true;

	/* Resuming may have moved the end of the trail, or started a new file. */
	save_checkpoint(drain);
	return true;
}

/*
 * A backlog file has been read to its end and flushed: go on with the next
 * file.  Returns false if there is no next one, because this is the live one.
 */
static bool
next_file(PaqDrain *drain)
{
	PaqSinkState state;

	if (paq_reader_is_live(drain->reader))
		return false;
	memset(&state, 0, sizeof(state));
	drain->sink->get_state(&state);
	drain->reader = paq_reader_advance(drain->reader, drain->sequence, &state);
	return true;
}

/*
 * Write what is in the queue, flush it, and give the space back; start a new
 * file first if rotate is set.  Returns false, after noting the failure, if
 * the sink failed.
 *
 * What comes into the queue meanwhile is left for the next cycle: those who
 * wait for this one's flush must not wait for what others keep adding.
 */
bool
paq_drain_cycle(PaqDrain *drain, bool rotate)
{
	uint64		flush_bytes = Max(paq_queue_capacity() / FLUSH_FRACTION,
							 MIN_FLUSH_BYTES);
	bool		ok = resume(drain);
	bool		more;

	do
	{
		uint64		limit = paq_reader_limit(drain->reader);

		do
		{
			ok = ok && drain_batch(drain, rotate, &more);
			rotate = false;
			if (ok && paq_reader_unflushed_bytes(drain->reader) >= flush_bytes)
				ok = flush(drain);
		} while (ok && more && paq_reader_position(drain->reader) < limit);
		ok = ok && flush(drain);
	} while (ok && !more && next_file(drain));

	if (!ok)
	{
		char	   *message = pstrdup(paq_sink_error());

		paq_drain_abandon(drain);
		paq_drain_failed(drain, message);
		pfree(message);
		return false;
	}
	sink_works(drain);
	return true;
}
