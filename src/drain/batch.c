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
#include "queue/loading.h"
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
		drain->sink->abort_batch();
	drain->batch_open = false;
	paq_reader_rewind(drain->reader);
}

static void
get_state(PaqDrain *drain, PaqSinkState *state)
{
	memset(state, 0, sizeof(*state));
	drain->sink->get_state(state);
}

/* The batch's records are in the trail: make that permanent. */
static void
save_checkpoint(PaqDrain *drain)
{
	PaqSinkState state;

	get_state(drain, &state);
	paq_reader_checkpoint(drain->reader, drain->sequence, &state);
}

/*
 * Let the queue file know only of where the trail ends now, durably: there are
 * two checkpoints, and a crash may take away the last one.  Everything that has
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
 * The checkpoints are on disk: what is in earlier files than that which they
 * name will not be read again, unless they name an earlier one, too.
 */
static void
settle(PaqDrain *drain)
{
	PaqSinkState state;

	get_state(drain, &state);
	if (state.file[0] != '\0' && strcmp(state.known_file, state.file) == 0)
		paq_loading_settle(drain->sequence);
}

/*
 * The sink failed, perhaps in a way that puts in doubt what was written since
 * the last flush: then we go back to there, and true is returned.
 */
static bool
retreat_if_needed(PaqDrain *drain)
{
	pg_atomic_uint64 *drained = &paq_stats->worker.drained;

	if (!drain->sink->retreat(&drain->sequence))
		return false;
	paq_reader_retreat(drain->reader);
	save_checkpoint(drain);
	pg_atomic_write_u64(drained,
						pg_atomic_read_u64(drained) - drain->unflushed);
	drain->unflushed = 0;
	return true;
}

/*
 * A record that says what is missing.  Nothing in it depends on when it is
 * made, so that one which the trail has already is recognized.
 */
static void
make_gap(PaqRecord *record, const PaqGap *gap)
{
	PaqText    *text = &record->field[PAQ_FIELD_MESSAGE];

	memset(record, 0, sizeof(*record));
	paq_record_init_gap(&record->header, gap->from, gap->to, gap->count);
	for (int i = 0; i < PAQ_NFIELDS; i++)
		record->header.field_len[i] = PAQ_NULL_LEN;
	text->data = gap->message;
	text->len = strlen(gap->message);
	record->header.field_len[PAQ_FIELD_MESSAGE] = text->len;
}

/* Give the batch's next record to the sink. */
static bool
append(PaqDrain *drain, PaqRecord *record, bool *full)
{
	record->sequence = drain->sequence + drain->batch_records + 1;
	switch (drain->sink->append(record))
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
	return true;
}

/* Report a gap, in the trail unless it is there already, and in the log. */
static bool
append_gap(PaqDrain *drain, const PaqGap *gap, bool *full)
{
	PaqRecord	record;

	make_gap(&record, gap);
	if (drain->sink->is_known(&record))
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
 * records already.  Room in the ring before one that it has is no gap: the
 * trail is complete up to there.
 */
static bool
fill_batch(PaqDrain *drain, bool *more)
{
	PaqRecord	record;
	PaqGap		gap;
	bool		in_gap = false;

	drain->batch_records = 0;
	*more = false;
	drain->gaps = 0;
	while (!*more)
	{
		PaqGap		new_gap;

		switch (paq_reader_next(drain->reader, &record, &new_gap))
		{
			case PAQ_READ_RECORD:
				if (drain->sink->is_known(&record))
				{
					in_gap = false;
					continue;
				}
				if (in_gap && !append_gap(drain, &gap, more))
					return false;
				in_gap = false;
				if (!append(drain, &record, more))
					return false;
				break;
			case PAQ_READ_GAP:
			case PAQ_READ_DROPS:
				if (in_gap && !append_gap(drain, &gap, more))
					return false;
				gap = new_gap;
				in_gap = gap.hole;
				if (!in_gap && !append_gap(drain, &gap, more))
					return false;
				break;
			case PAQ_READ_BUSY:
			case PAQ_READ_END:
				return !in_gap || append_gap(drain, &gap, more);
		}
	}

	/* The reader stands behind the gap: it belongs to this batch. */
	return !in_gap || append_gap(drain, &gap, more);
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
 * The trail is durable up to the last checkpoint.  That itself has to become
 * durable only once in a while.
 */
static void
note_flushed(PaqDrain *drain)
{
	PaqSinkState state;

	/* Count first: those whom the next call wakes may look at it. */
	paq_stats_add(&paq_stats->worker.flushed, drain->unflushed);
	drain->unflushed = 0;
	get_state(drain, &state);
	paq_reader_flushed(drain->reader, drain->sequence, &state);
	if (paq_reader_sync_due(drain->reader))
		paq_reader_sync(drain->reader);
}

static bool
flush(PaqDrain *drain)
{
	if (paq_reader_unflushed(drain->reader) &&
		!drain->sink->flush(drain->sequence))
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
	PaqRotation rotation;
	bool		flushed;
	bool		ok;

	ok = drain->sink->rotate_if_due(force, drain->sequence, &flushed, &rotation);
	if (flushed)
		note_flushed(drain);
	if (!ok)
		return false;
	if (force)
		drain->put_off = (rotation == PAQ_ROTATION_PUT_OFF);
	if (rotation != PAQ_ROTATION_DONE)
		return true;
	paq_drain_secure(drain);
	settle(drain);
	return true;
}

/*
 * If the trail has lost something, it tells of that before anything else comes:
 * in a batch of its own, which is durable before a checkpoint says that there is
 * nothing more to tell.
 */
static bool
tell_loss(PaqDrain *drain)
{
	const PaqLoss *loss = drain->sink->loss();
	PaqGap		gap = {.count = -1};
	bool		full;

	if (likely(loss == NULL))
		return true;
	gap.from = loss->from;
	gap.to = loss->to;
	strlcpy(gap.message, loss->message, sizeof(gap.message));
	drain->batch_records = drain->gaps = 0;
	if (!drain->sink->begin_batch())
		return false;
	drain->batch_open = true;
	if (!append_gap(drain, &gap, &full) || !drain->sink->end_batch())
		return false;
	drain->batch_open = false;
	(void) PAQ_FAULT("loss-written");
	if (!drain->sink->flush(drain->sequence + drain->batch_records))
		return false;
	(void) PAQ_FAULT("loss-flushed");
	drain->sink->loss_told();

	drain->sequence += drain->batch_records;
	drain->unflushed += drain->batch_records;
	save_checkpoint(drain);
	paq_stats_add(&paq_stats->worker.recovered, drain->batch_records);
	paq_stats_add(&paq_stats->worker.drained, drain->batch_records);
	note_flushed(drain);
	return true;
}

/* One batch.  *more tells whether another one should follow at once. */
static bool
drain_batch(PaqDrain *drain, bool rotate, bool *more)
{
	PaqWorkerStats *stats = &paq_stats->worker;
	uint64		count;

	*more = false;
	note_high_water();
	if (!rotate_if_due(drain, rotate) || !tell_loss(drain) ||
		!drain->sink->begin_batch())
		return false;
	drain->batch_open = true;
	if (!fill_batch(drain, more))
		return false;
	count = drain->batch_records;
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

/* Put the sink where the checkpoint says that the trail ends. */
static bool
resume(PaqDrain *drain)
{
	bool		exact = drain->resume_exact;

	if (drain->resumed)
		return true;
	if (!drain->sink->resume(&drain->resume_state, &exact,
							 paq_reader_ahead(drain->reader),
							 &drain->sequence))
		return false;
	drain->resumed = true;
	if (drain->resume_exact && !exact)
		paq_reader_distrust(drain->reader);
	if (paq_reader_is_live(drain->reader))
		drain->sink->forget_known();

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
 * file.  Returns false if there is no next one, because this is the live one.
 */
static bool
next_file(PaqDrain *drain)
{
	PaqSinkState state;

	if (paq_reader_is_live(drain->reader))
		return false;
	get_state(drain, &state);
	drain->reader = paq_reader_advance(drain->reader, drain->sequence, &state);
	if (paq_reader_is_live(drain->reader))
		drain->sink->forget_known();
	return true;
}

/*
 * The worker leaves.  Whatever is not in the trail stays in the queue file; the
 * checkpoint says so.
 */
void
paq_drain_close(PaqDrain *drain)
{
	PaqSinkState state;

	if (!drain->resumed)
		return;
	memset(&state, 0, sizeof(state));
	drain->sink->close(&state);
	paq_reader_close(drain->reader, drain->sequence, &state);
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
		} while (ok && more && paq_reader_position(drain->reader) < limit &&
				 !paq_drain_must_stop());
		ok = ok && flush(drain);
	} while (ok && !more && !paq_drain_must_stop() && next_file(drain));

	if (!ok)
	{
		char	   *message = pstrdup(paq_sink_error());

		paq_drain_abandon(drain);
		if (drain->resumed)
			(void) retreat_if_needed(drain);
		paq_drain_failed(drain, message);
		pfree(message);
		return false;
	}
	sink_works(drain);
	return true;
}
