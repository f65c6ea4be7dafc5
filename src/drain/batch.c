/*-------------------------------------------------------------------------
 *
 * batch.c
 *		Moving records from the queue to the sink, a batch at a time.
 *
 * A batch is read, formatted and written without any lock; then the
 * checkpoint in the queue file is advanced over it; then, once for all
 * batches of a cycle, the sink is flushed and the space is released.
 *
 * Guarantees: each record is in the trail exactly once, with the next
 * sequence number, whenever a PostgreSQL process dies: until the checkpoint
 * is stored, the batch is not in the trail and will be done again; from then
 * on it is in the trail.  When the sink fails, nothing is lost: the reader goes
 * back, and the same records are tried again later.
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
#include "postmaster/interrupt.h"
#include "queue/loading.h"
#include "stats.h"
#include "utils/timestamp.h"

StaticAssertDecl(sizeof(PaqSinkState) == PAQ_TRAIL_STATE_SIZE,
				 "a checkpoint must have space for a sink's state");

/* Delays between attempts to use a failing sink, in ms */
#define MIN_RETRY_DELAY		100
#define MAX_RETRY_DELAY		5000

/*
 * How much of the queue, in bytes, is written before it is flushed and
 * released: a part, so that sessions find space while the rest is written; but
 * not so little that flushes become the bulk of the work.
 */
#define MIN_FLUSH_BYTES		(1024 * 1024)
#define FLUSH_FRACTION		4

/* At shutdown: how long to go on writing, in ms */
#define SHUTDOWN_LIMIT		5000

/* Find out where to begin. */
void
paq_drain_open(PaqDrain *drain)
{
	PaqCheckpoint checkpoint;

	drain->reader = paq_reader_open(&checkpoint, &drain->resume_exact);
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
		paq_worker_failing(true);
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
	if (drain->retry_at == 0)
		return;
	ereport(LOG,
			(errmsg("audit trail can be written again")));
	paq_worker_failing(false);
	drain->retry_at = 0;
}

/* Forget an unfinished batch; its records will be read again. */
void
paq_drain_abandon(PaqDrain *drain)
{
	if (drain->batch_open)
		paq_sink_abort_batch();
	drain->batch_open = false;
	paq_reader_rewind(drain->reader);
}

/* The batch's records are in the trail: make that permanent. */
static void
save_checkpoint(PaqDrain *drain)
{
	PaqSinkState state;

	paq_sink_get_state(&state);
	paq_reader_checkpoint(drain->reader, drain->sequence, &state);
}

/*
 * Make the queue file refer only to where the trail ends now, durably.  There
 * are two checkpoints, because a crash may damage one.  Everything that has
 * been read must have been flushed.
 */
void
paq_drain_secure(PaqDrain *drain)
{
	save_checkpoint(drain);
	save_checkpoint(drain);
	paq_reader_sync(drain->reader);
}

/*
 * The sink failed, perhaps in a way that puts in doubt what was written since
 * the last flush: then go back to that flush, and return true.
 */
static bool
retreat_if_needed(PaqDrain *drain)
{
	pg_atomic_uint64 *drained = &paq_stats->worker.drained;

	if (!paq_sink_retreat(&drain->sequence))
		return false;
	paq_reader_retreat(drain->reader);
	save_checkpoint(drain);
	pg_atomic_write_u64(drained,
						pg_atomic_read_u64(drained) - drain->unflushed);
	paq_stats_kinds_copy(paq_stats->worker.kinds_drained,
						 paq_stats->worker.kinds_flushed);
	drain->unflushed = 0;
	return true;
}

/* The sink failed in the middle of something, and has noted why. */
static void
sink_failed(PaqDrain *drain)
{
	char	   *message = pstrdup(paq_sink_error());

	paq_drain_abandon(drain);
	if (drain->resumed)
		(void) retreat_if_needed(drain);
	paq_drain_failed(drain, message);
	pfree(message);
}

/* Give the batch's next record to the sink. */
static bool
append(PaqDrain *drain, PaqRecord *record, bool *full)
{
	uint32		nparts;

	record->sequence = drain->sequence + drain->batch_sequences + 1;
	switch (paq_sink_append(record, &nparts))
	{
		case PAQ_APPEND_OK:
			break;
		case PAQ_APPEND_FULL:
			*full = true;
			break;
		case PAQ_APPEND_FAILED:
			return false;
	}
	drain->batch_records++;
	drain->batch_sequences += nparts;
	drain->batch_kinds[record->header.kind == PAQ_KIND_GAP ? PAQ_KIND_OF_GAPS :
					   record->header.kind == PAQ_KIND_HEARTBEAT ? PAQ_KIND_OF_HEARTBEATS :
					   record->header.audit_class]++;
	return true;
}

/*
 * Report that records are missing, in the trail unless it says so already, and
 * in the log.  Nothing in the record may depend on when it is made, or it would
 * not be recognized.
 */
static bool
append_gap(PaqDrain *drain, const PaqGap *gap, bool *full)
{
	PaqText		message = {.data = gap->message, .len = strlen(gap->message)};
	PaqRecord	record;

	paq_sink_gap_record(&record, gap->from, gap->to, gap->count, message);
	if (paq_sink_is_known(&record))
		return true;
	ereport(WARNING,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("audit records are or may be missing: %s", gap->message)));
	drain->gaps++;
	return append(drain, &record, full);
}

/*
 * Read records and give them to the sink, until the sink has enough or there
 * are no more.  *more tells whether the sink's limit was the reason.
 *
 * If the end of the trail was not known exactly, it may have some of the
 * records already.  A hole in the ring before one of these is no gap: the trail
 * is complete up to there.
 */
static bool
fill_batch(PaqDrain *drain, bool *more)
{
	PaqGap		hole;
	bool		in_hole = false;

	while (!*more)
	{
		PaqRecord	record;
		PaqGap		gap;
		PaqReadResult result = paq_reader_next(drain->reader, &record, &gap);

		if (result == PAQ_READ_RECORD && paq_sink_is_known(&record))
		{
			in_hole = false;
			continue;
		}
		if (in_hole && !append_gap(drain, &hole, more))
			return false;
		in_hole = false;
		switch (result)
		{
			case PAQ_READ_RECORD:
				if (!append(drain, &record, more))
					return false;
				break;
			case PAQ_READ_GAP:
			case PAQ_READ_DROPS:
				in_hole = gap.hole;
				if (in_hole)
					hole = gap;
				else if (!append_gap(drain, &gap, more))
					return false;
				break;
			case PAQ_READ_BUSY:
			case PAQ_READ_END:
				return true;
		}
	}

	/* The reader stands behind the hole: it belongs to this batch. */
	return !in_hole || append_gap(drain, &hole, more);
}

static void
note_high_water(void)
{
	pg_atomic_uint64 *high_water = &paq_stats->worker.high_water;
	uint64		used = paq_queue_used();

	if (used > pg_atomic_read_u64(high_water))
		pg_atomic_write_u64(high_water, used);
}

/*
 * The trail is durable up to the last checkpoint.  The checkpoint itself has to
 * become durable only once in a while.
 */
static void
note_flushed(PaqDrain *drain)
{
	PaqSinkState state;

	/* Count first: the sessions that the next call wakes may look at it. */
	paq_stats_add(&paq_stats->worker.flushed, drain->unflushed);
	paq_stats_kinds_copy(paq_stats->worker.kinds_flushed,
						 paq_stats->worker.kinds_drained);
	drain->unflushed = 0;
	paq_sink_get_state(&state);
	paq_reader_flushed(drain->reader, drain->sequence, &state);
	if (paq_reader_sync_due(drain->reader))
		paq_reader_sync(drain->reader);
}

static bool
flush(PaqDrain *drain)
{
	if (paq_reader_unflushed(drain->reader) &&
		!paq_sink_flush(drain->sequence))
		return false;
	(void) PAQ_FAULT("flushed");
	note_flushed(drain);
	return true;
}

/*
 * Start a new file if it is time for one.  The checkpoint must say which it
 * is, durably.
 */
static bool
rotate_if_due(PaqDrain *drain, bool force)
{
	PaqSinkState state;
	PaqRotation rotation;
	bool		flushed;

	rotation = paq_sink_rotate_if_due(force, drain->sequence, &flushed);
	if (flushed)
		note_flushed(drain);
	if (rotation == PAQ_ROTATION_FAILED)
		return false;
	if (force)
		drain->put_off = (rotation == PAQ_ROTATION_PUT_OFF);
	if (rotation != PAQ_ROTATION_DONE)
		return true;
	paq_drain_secure(drain);

	/*
	 * Nothing in earlier files than those which the checkpoints name will be
	 * read again.
	 */
	paq_sink_get_state(&state);
	if (state.file[0] != '\0' && strcmp(state.known_file, state.file) == 0)
		paq_loading_settle(drain->sequence);
	return true;
}

static bool
begin_batch(PaqDrain *drain)
{
	drain->batch_records = drain->batch_sequences = drain->gaps = 0;
	memset(drain->batch_kinds, 0, sizeof(drain->batch_kinds));
	if (!paq_sink_begin_batch())
		return false;
	drain->batch_open = true;
	return true;
}

/* The batch has been written: advance the checkpoint over it. */
static void
finish_batch(PaqDrain *drain)
{
	PaqWorkerStats *stats = &paq_stats->worker;

	drain->sequence += drain->batch_sequences;
	drain->unflushed += drain->batch_records;
	save_checkpoint(drain);
	paq_stats_add(&stats->recovered, paq_reader_is_live(drain->reader) ?
				  drain->gaps : drain->batch_records);
	paq_stats_add(&stats->drained, drain->batch_records);
	for (int i = 0; i < PAQ_NKINDS; i++)
		paq_stats_add(&stats->kinds_drained[i], drain->batch_kinds[i]);
	paq_stats_add(&stats->batches, 1);
}

/*
 * One batch: the record of a loss, or else what comes from the queue.  *more
 * tells whether another batch should follow at once.
 *
 * The record of a loss is durable before a checkpoint says that there is
 * nothing more to tell.
 */
static bool
write_batch(PaqDrain *drain, const PaqLoss *loss, bool *more)
{
	*more = false;
	if (!begin_batch(drain))
		return false;
	if (loss != NULL)
	{
		PaqGap		gap = {.from = loss->from, .to = loss->to, .count = -1};

		strlcpy(gap.message, loss->message, sizeof(gap.message));
		if (!append_gap(drain, &gap, more))
			return false;
	}
	else if (!fill_batch(drain, more))
		return false;
	if (drain->batch_records == 0)
		paq_sink_abort_batch();
	else if (!paq_sink_end_batch())
		return false;
	drain->batch_open = false;

	if (loss != NULL)
	{
		(void) PAQ_FAULT("loss-written");
		if (!paq_sink_flush(drain->sequence + drain->batch_sequences))
			return false;
		(void) PAQ_FAULT("loss-flushed");
		paq_sink_loss_told();
	}
	else if (!paq_reader_unsaved(drain->reader))
		return true;
	else
		(void) PAQ_FAULT("batch-written");
	finish_batch(drain);
	return true;
}

/*
 * A batch of nothing but a heartbeat, if the trail's format has that.  Like a gap's, its record
 * has not come through the queue.
 */
static bool
write_heartbeat(PaqDrain *drain)
{
	PaqRecord	record;
	bool		full;

	if (!paq_sink_heartbeat_record(&record))
		return true;
	if (!begin_batch(drain) || !append(drain, &record, &full) || !paq_sink_end_batch())
		return false;
	drain->gaps++;
	drain->batch_open = false;
	(void) PAQ_FAULT("heartbeat-written");
	finish_batch(drain);
	return true;
}

/* One batch from the queue, and whatever has to come before it. */
static bool
drain_batch(PaqDrain *drain, bool rotate, bool *more)
{
	const PaqLoss *loss;

	note_high_water();
	if (!rotate_if_due(drain, rotate) || !paq_sink_seal_file(drain->sequence))
		return false;
	loss = paq_sink_loss();
	if (unlikely(loss != NULL))
	{
		if (!write_batch(drain, loss, more))
			return false;
		note_flushed(drain);
	}
	return write_batch(drain, NULL, more);
}

/* Put the sink where the checkpoint says that the trail ends. */
static bool
resume(PaqDrain *drain)
{
	bool		exact = drain->resume_exact;

	if (drain->resumed)
		return true;
	if (!paq_sink_resume(&drain->resume_state, &exact,
						 paq_reader_ahead(drain->reader),
						 &drain->sequence))
		return false;
	drain->resumed = true;
	if (drain->resume_exact && !exact)
		paq_reader_distrust(drain->reader);
	if (paq_reader_is_live(drain->reader))
		paq_sink_forget_known();

	/*
	 * Resuming may have moved the end of the trail.  If it did so because some
	 * of it is missing, no checkpoint may claim that before we have gone back.
	 */
	if (!retreat_if_needed(drain))
		save_checkpoint(drain);
	return true;
}

/*
 * A backlog file has been read to its end and flushed: go on with the next
 * file.  Returns false if this is the live file, which is the last one.
 */
static bool
next_file(PaqDrain *drain)
{
	PaqSinkState state;

	if (paq_reader_is_live(drain->reader))
		return false;
	paq_sink_get_state(&state);
	drain->reader = paq_reader_advance(drain->reader, drain->sequence, &state);
	if (paq_reader_is_live(drain->reader))
		paq_sink_forget_known();
	return true;
}

/*
 * The process leaves.  Whatever is not in the trail stays in the queue file; the
 * checkpoint says so.
 */
void
paq_drain_close(PaqDrain *drain)
{
	PaqSinkState state;

	if (!drain->resumed)
		return;
	paq_sink_close(&state);
	paq_reader_close(drain->reader, drain->sequence, &state);
}

/*
 * Has the time for writing at a shutdown passed?  A large backlog must not
 * hold the server up.
 */
bool
paq_drain_must_stop(PaqDrain *drain)
{
	if (!ShutdownRequestPending)
		return false;
	if (drain->shutdown_since == 0)
		drain->shutdown_since = GetCurrentTimestamp();
	return TimestampDifferenceExceeds(drain->shutdown_since, GetCurrentTimestamp(),
									  SHUTDOWN_LIMIT);
}

/*
 * Write what is in the queue, flush it, and release the space; start a new
 * file first if rotate is set.  Returns false, after noting the failure, if
 * the sink failed.
 *
 * What comes into the queue meanwhile is left for the next cycle: sessions that
 * wait for this flush must not wait for what others keep adding.
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
		} while (ok && more && paq_reader_position(drain->reader) < limit &&
				 !paq_drain_must_stop(drain));
		ok = ok && flush(drain);
	} while (ok && !more && !paq_drain_must_stop(drain) && next_file(drain));

	if (ok)
		sink_works(drain);
	else
		sink_failed(drain);
	return ok;
}

/*
 * After a cycle that has flushed everything: seal the trail up to here.  Returns false,
 * after noting the failure, if the sink failed.
 */
bool
paq_drain_seal(PaqDrain *drain, PaqSealReason reason)
{
	if ((reason != PAQ_SEAL_DUE || !paq_sink_is_sealed() || write_heartbeat(drain)) &&
		paq_sink_flush(drain->sequence))
	{
		note_flushed(drain);
		if (paq_sink_seal(reason, drain->sequence))
			return true;
	}
	sink_failed(drain);
	return false;
}
