/*-------------------------------------------------------------------------
 *
 * reader.c
 *		The consumer's side: records out of the queue files, in order.
 *
 * The reader stands on one file after the other: first on backlog, which an
 * earlier run of the server left (recovery.c), then on the live file.  In the
 * live file, it stops at the first frame that is not committed, until that is
 * committed, or until every process that could commit it is dead.
 *
 * Guarantees: nothing is handed out twice between two calls of
 * paq_reader_rewind(), and nothing that is not a whole record with a good
 * checksum.  Space that a living process may still write to is not stepped over.
 * Space is given back only for what paq_reader_flushed() was told, and for skips.
 *
 * Locking: none; the worker is the only reader.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fault.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "utils/timestamp.h"

/*
 * How many bytes of records may become durable in the trail before the
 * checkpoint must, too: after a crash of the operating system, that much of
 * the trail has to be compared with the queue.
 */
#define SYNC_BYTES			(4 * 1024 * 1024)

/* A batch may have gaps besides records: drops, lost files, a damaged slot. */
#define MAX_BATCH_GAPS		(PAQ_NDROPS + 2)

/*
 * If a frame is not committed for so long, in ms, find out whether the process
 * still lives that is to commit it.  That takes microseconds, but the process may
 * have to wait for a CPU.
 */
#define ABANDONED_AFTER		1000

/* There is one at a time. */
static PaqReader the_reader;

static bool
same_place(const PaqPlace *a, const PaqPlace *b)
{
	return memcmp(a, b, sizeof(PaqPlace)) == 0;
}

/* Is this the file that backends write to? */
bool
paq_reader_is_live(PaqReader *reader)
{
	return reader->qf == &paq_live;
}

/* ----------
 * Opening files
 * ----------
 */

/*
 * There is no valid checkpoint: everything in the file counts, or, if the
 * positions are possible ones, everything that has not been given back.
 * (Positions of all ones would be PAQ_DRAINED_ALL.)
 */
static void
guess_checkpoint(PaqQueueFile *qf, PaqCheckpoint *checkpoint)
{
	uint64		released = pg_atomic_read_u64(&qf->live->released);
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);

	if (released <= reserved && reserved <= PG_INT64_MAX &&
		reserved - released <= 2 * qf->ring_size)
		checkpoint->drained = checkpoint->flushed = released;
}

/* Tell sessions how many of the records dropped the durable trail reports. */
static void
publish_reported(PaqReader *reader)
{
	for (int i = 0; i < PAQ_NDROPS; i++)
		pg_atomic_write_u64(&paq_shared->reported[i], reader->flushed.drops[i]);
}

/* Stand at the checkpoint of reader->qf, which goes to *checkpoint. */
static void
start_reading(PaqReader *reader, PaqCheckpoint *checkpoint)
{
	PaqQueueFile *qf = reader->qf;
	const bool	live = paq_reader_is_live(reader);
	uint64		doubt;
	bool		valid;

	memset(checkpoint, 0, sizeof(*checkpoint));
	valid = paq_checkpoint_read(qf, checkpoint);
	if (!valid)
		guess_checkpoint(qf, checkpoint);
	doubt = checkpoint->doubtful & ~(uint64) PAQ_DOUBT_LOST;
	if (doubt != checkpoint->doubtful)
		reader->lost = true;
	if (live)
		reader->trusted = valid;	/* in use by this run of the server */
	else if (valid && paq_file_is_trusted(qf, checkpoint))
	{
		reader->trusted = doubt == PAQ_DOUBT_NONE;
		reader->bounded = doubt != PAQ_DOUBT_ALL;
	}
	reader->intact = live || paq_file_is_intact(qf, checkpoint);
	reader->reported = live && doubt != PAQ_DOUBT_NONE;

	reader->flushed.pos = TYPEALIGN64(PAQ_FRAME_ALIGN,
									  Min(checkpoint->flushed, checkpoint->drained));
	reader->flushed.slot_pos = Min(checkpoint->flushed_slots,
								   checkpoint->drained_slots);
	memcpy(reader->flushed.drops, checkpoint->flushed_drops,
		   sizeof(checkpoint->flushed_drops));
	if (live)
		publish_reported(reader);
	if (!reader->trusted)
	{
		paq_reader_go_back(reader);
		return;
	}
	reader->drained.pos = checkpoint->drained;
	reader->drained.slot_pos = checkpoint->drained_slots;
	memcpy(reader->drained.drops, checkpoint->drops, sizeof(checkpoint->drops));
	reader->read = reader->drained;
}

/*
 * The trail has turned out to be ahead of this file, which is an old copy
 * then.  In the live file there is nothing yet that the trail could have; this
 * can only be reported.
 */
void
paq_reader_distrust(PaqReader *reader)
{
	reader->bounded = false;
	if (!paq_reader_is_live(reader))
		paq_reader_go_back(reader);
	else
	{
		reader->trusted = false;
		if (!reader->reported)
			reader->lost = true;
	}
}

/*
 * The worker before us left the live file as at a shutdown, but the server goes
 * on: before anything is put into the file, the disk must not say any more that
 * this is all there is.
 */
static void
end_closing(PaqReader *reader, PaqCheckpoint *checkpoint)
{
	if (checkpoint->synced_end == 0)
		return;
	checkpoint->synced_end = 0;
	paq_checkpoint_write(reader->qf, checkpoint);
	paq_reader_sync(reader);
}

/* See open_after(). */
static PaqReader *
open_next(uint32 after, PaqCheckpoint *checkpoint)
{
	PaqReader  *reader = &the_reader;

	if (reader->frames != NULL)
		pfree(reader->frames);
	if (reader->holes != NULL)
		pfree(reader->holes);
	memset(reader, 0, sizeof(*reader));
	for (; (reader->number = paq_backlog_find(after)) != 0; after = reader->number)
	{
		if (!paq_backlog_open(reader))
			continue;
		reader->qf = &reader->backlog;
		start_reading(reader, checkpoint);
		if (checkpoint->drained != PAQ_DRAINED_ALL)
		{
			paq_backlog_start(reader);
			return reader;
		}

		/* It is done, but could not be removed at the time. */
		paq_file_close(&reader->backlog);
		paq_backlog_remove(reader->number);
	}

	reader->qf = &paq_live;
	start_reading(reader, checkpoint);
	end_closing(reader, checkpoint);
	paq_spilled_collect(reader);
	paq_spilled_remove_older();
	return reader;
}

/*
 * Open the oldest queue file newer than the backlog file called after: more
 * backlog if there is any, else the live file.  Files before it that cannot be
 * used are reported by paq_reader_next(), and set aside then.  The worker cannot
 * go on with half a reader: an error, for lack of memory, ends it.
 */
static PaqReader *
open_after(uint32 after, PaqCheckpoint *checkpoint)
{
	bool		save_exit = ExitOnAnyError;
	PaqReader  *reader;

	ExitOnAnyError = true;
	reader = open_next(after, checkpoint);
	ExitOnAnyError = save_exit;
	return reader;
}

/*
 * Open the oldest queue file.  *checkpoint says how far the trail has got;
 * *trusted whether that is exact, see sink.h.
 */
PaqReader *
paq_reader_open(PaqCheckpoint *checkpoint, bool *trusted)
{
	PaqReader  *reader = open_after(0, checkpoint);

	*trusted = reader->trusted;
	return reader;
}

/* ----------
 * Reading
 * ----------
 */

/* Files that could not be used, or were not what they should be, as a gap */
static void
lost_files(PaqReader *reader, PaqGap *gap)
{
	if (reader->lost_bytes > 0)
		paq_gap_set(gap, 0, PgStartTime, -1,
					"queue files of %llu bytes could not be used; the records in them may be lost",
					(unsigned long long) reader->lost_bytes);
	else
		paq_gap_set(gap, 0, PgStartTime, -1,
					"the queue file is new, or older than the trail; records that were in the queue may be lost");
	reader->read.lost = 1;
}

/*
 * Find dropped records that would be before pos and have not been reported.
 * There is one report for each reason until the next checkpoint.
 */
static bool
find_drops(PaqReader *reader, uint64 pos, PaqGap *gap)
{
	const uint64 *reported = reader->drained.drops;

	for (int i = 0; i < PAQ_NDROPS; i++)
	{
		uint64		count = paq_drops_count(reader->qf, reported, i);

		if (count == 0 || reader->read.drops[i] != reported[i] ||
			pg_atomic_read_u64(&reader->qf->live->drops[i].position) > pos)
			continue;
		paq_drops_describe(reader->qf, i, count, gap);
		reader->read.drops[i] += count;
		return true;
	}
	return false;
}

/* Have records been dropped that the trail does not report, or not durably? */
bool
paq_reader_has_drops(PaqReader *reader)
{
	return paq_drops_unreported(reader->qf, reader->flushed.drops);
}

/* The first good frame of the live file behind pos and before to; or to. */
static uint64
next_good(uint64 pos, uint64 to)
{
	do
	{
		pos += PAQ_FRAME_ALIGN;
	} while (pos < to && !paq_frame_is_good(&paq_live, pos, to));
	return pos;
}

/*
 * The frame at the cursor is not committed.  If its process is dead, steps over it
 * and fills in *gap.  What the slot has of its record is published by the next
 * start of the server.
 */
static PaqReadResult
next_is_busy(PaqReader *reader, PaqGap *gap)
{
	TimestampTz now = GetCurrentTimestamp();
	uint64		pos = reader->read.pos;
	uint64		end;

	if (reader->busy_at != pos || now < reader->busy_since)
	{
		reader->busy_at = pos;
		reader->busy_since = now;
	}
	if (now < TimestampTzPlusMilliseconds(reader->busy_since, ABANDONED_AFTER))
		return PAQ_READ_BUSY;
	end = paq_writers_bound(pos);
	if (end == 0 || paq_frame_is_committed(reader->qf, pos))
		return PAQ_READ_BUSY;
	end = next_good(pos, end);
	paq_slots_take_back(reader->qf, pos, end);

	/* The live file is read once, so the gap need not be the same each time. */
	paq_gap_set(gap, reader->last_time, reader->busy_since, -1,
				"a process was killed while it was recording; %llu bytes of the audit queue remain empty",
				(unsigned long long) (end - pos));
	reader->read.pos = end;
	return PAQ_READ_GAP;
}

/*
 * Next record of the live file.  A committed frame can be damaged only by this
 * process or by a fault of the machine's memory; step over it.
 */
static PaqReadResult
next_in_live(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	PaqQueueFile *qf = reader->qf;
	uint64		limit = pg_atomic_read_u64(&qf->live->reserved);
	uint64		start = reader->read.pos;
	PaqFrame   *frame = paq_frame_at(qf, start);
	uint64		bound;

	if (start >= limit)
		return PAQ_READ_END;
	if (!paq_frame_is_committed(qf, start))
		return next_is_busy(reader, gap);
	if (paq_frame_is_whole(qf, start, limit))
	{
		reader->read.pos += frame->size;

		/* Something was before it, or the worker before us did not release it. */
		if (unlikely(frame->kind == PAQ_FRAME_SKIP))
			return next_in_live(reader, record, gap);
		if (paq_reader_decode(reader, (char *) (frame + 1), frame->length, record))
			return PAQ_READ_RECORD;
	}
	else
	{
		/* Behind it there may be frames that are not committed yet. */
		bound = paq_writers_bound(start);
		if (bound == 0)
			return PAQ_READ_BUSY;
		reader->read.pos = next_good(start, bound);
	}
	paq_gap_set(gap, reader->last_time, reader->last_time, -1,
				"%llu bytes of the audit queue are damaged; the records in them are lost",
				(unsigned long long) (reader->read.pos - start));
	return PAQ_READ_GAP;
}

/*
 * Read the next record.  *record is valid until the next call of any function
 * here.  For PAQ_READ_GAP and PAQ_READ_DROPS, *gap says what is missing.
 */
PaqReadResult
paq_reader_next(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	PaqReadResult result;

	if (unlikely(reader->spill != NULL))
		paq_spilled_close(reader);
	if (unlikely(reader->lost && !reader->read.lost))
	{
		lost_files(reader, gap);
		return PAQ_READ_GAP;
	}
	if (unlikely(paq_drops_unreported(reader->qf, reader->drained.drops)) &&
		find_drops(reader, reader->read.pos, gap))
		return PAQ_READ_DROPS;
	result = paq_reader_is_live(reader) ?
		next_in_live(reader, record, gap) : paq_backlog_next(reader, record, gap);
	if (result == PAQ_READ_END && find_drops(reader, PG_UINT64_MAX, gap))
		return PAQ_READ_DROPS;
	return result;
}

/*
 * How many records and gaps will at most still come out of this file, if nobody
 * puts any more into it?
 */
uint64
paq_reader_ahead(PaqReader *reader)
{
	uint64		end = pg_atomic_read_u64(&paq_live.live->reserved);
	uint64		pos = reader->read.pos;
	uint64		count = MAX_BATCH_GAPS;

	if (!paq_reader_is_live(reader))
		return count + paq_backlog_ahead(reader);
	while (pos < end)
	{
		if (paq_frame_is_good(reader->qf, pos, end))
		{
			pos += paq_frame_at(reader->qf, pos)->size;
			count++;
		}
		else
			pos += PAQ_FRAME_ALIGN;
	}
	return count;
}

/* Position of the next record. */
uint64
paq_reader_position(PaqReader *reader)
{
	return reader->read.pos;
}

/* Position at which the records that there are now end. */
uint64
paq_reader_limit(PaqReader *reader)
{
	return paq_reader_is_live(reader) ?
		pg_atomic_read_u64(&reader->qf->live->reserved) : PG_UINT64_MAX;
}

/* Go back to the last checkpoint: the batch since then failed. */
void
paq_reader_rewind(PaqReader *reader)
{
	paq_spilled_close(reader);
	list_free_deep(reader->spills_read);
	reader->spills_read = NIL;
	reader->read = reader->drained;
	if (!paq_reader_is_live(reader))
		paq_backlog_seek(reader);
}

/*
 * Go back to the last flush: what was written since is not durable and will
 * not become so.  paq_reader_checkpoint() has to follow.
 */
void
paq_reader_retreat(PaqReader *reader)
{
	list_free_deep(reader->spills_drained);
	reader->spills_drained = NIL;
	reader->drained = reader->flushed;
	paq_reader_rewind(reader);
}

/* ----------
 * Checkpoints and flushes
 * ----------
 */

/* Has anything been read, or stepped over, since the last checkpoint? */
bool
paq_reader_unsaved(PaqReader *reader)
{
	return !same_place(&reader->read, &reader->drained);
}

/* For synced_end see PaqCheckpoint. */
static void
write_checkpoint(PaqReader *reader, uint64 sequence, const void *trail,
				 uint64 synced_end)
{
	PaqCheckpoint checkpoint = {0};

	checkpoint.drained = reader->read.pos;
	checkpoint.drained_slots = reader->read.slot_pos;
	checkpoint.flushed = reader->flushed.pos;
	checkpoint.flushed_slots = reader->flushed.slot_pos;
	memcpy(checkpoint.drops, reader->read.drops, sizeof(checkpoint.drops));
	memcpy(checkpoint.flushed_drops, reader->flushed.drops,
		   sizeof(checkpoint.flushed_drops));
	checkpoint.sequence = sequence;
	checkpoint.doubtful = reader->trusted || paq_reader_is_live(reader) ?
		PAQ_DOUBT_NONE :
		reader->bounded ? PAQ_DOUBT_TRAIL : PAQ_DOUBT_ALL;

	/* Files that still exist will be found again. */
	if (reader->lost && !reader->read.lost && reader->lost_bytes == 0)
		checkpoint.doubtful |= PAQ_DOUBT_LOST;
	checkpoint.synced_end = synced_end;
	memcpy(checkpoint.trail, trail, sizeof(checkpoint.trail));
	paq_checkpoint_write(reader->qf, &checkpoint);
}

/*
 * All that has been read is in the trail, whose last record has the given
 * sequence and whose state is the PAQ_TRAIL_STATE_SIZE bytes at trail.
 */
void
paq_reader_checkpoint(PaqReader *reader, uint64 sequence, const void *trail)
{
	paq_spilled_close(reader);
	write_checkpoint(reader, sequence, trail, 0);

	reader->drained = reader->read;
	reader->spills_drained = list_concat(reader->spills_drained,
										 reader->spills_read);
	list_free(reader->spills_read);
	reader->spills_read = NIL;
	pg_atomic_write_u64(&reader->qf->live->drained, reader->drained.pos);
}

/* Is there anything between the last checkpoint and the last flush? */
bool
paq_reader_unflushed(PaqReader *reader)
{
	return !same_place(&reader->drained, &reader->flushed) ||
		reader->spills_drained != NIL;
}

/* Bytes of the ring between the two. */
uint64
paq_reader_unflushed_bytes(PaqReader *reader)
{
	return reader->drained.pos - reader->flushed.pos;
}

/* The checkpoint is durable: so are the trail's reports of drops and lost files. */
static void
flush_place(PaqReader *reader)
{
	for (int i = 0; i < PAQ_NDROPS; i++)
		if (reader->drained.drops[i] != reader->flushed.drops[i])
			paq_drops_reported(reader->qf, i, reader->drained.drops[i]);
	if (reader->drained.lost)
	{
		paq_backlog_set_aside(reader);
		reader->lost = false;
		reader->lost_bytes = 0;
		reader->read.lost = reader->drained.lost = 0;
	}
	reader->flushed = reader->drained;
}

/*
 * All that is durable has been released.  If that is nearly all there is, and the ring
 * is used far enough from its begin, skip what is left of the lap.  If there is nothing
 * before the skip, that is released, too; the checkpoint says so first, as for records.
 * Otherwise it is read like a record, which should be soon: see paq_queue_has_skip().
 */
static void
skip_rest_of_lap(PaqReader *reader, uint64 sequence, const void *trail)
{
	uint64		pos = reader->flushed.pos;
	uint64		end;

	while ((end = paq_ring_skip(pos)) != pos)
	{
		reader->read.pos = reader->drained.pos = reader->flushed.pos = end;
		write_checkpoint(reader, sequence, trail, 0);
		pg_atomic_write_u64(&paq_live.live->drained, end);
		(void) PAQ_FAULT("skip-noted");
		pg_memory_barrier();	/* as in paq_reader_flushed() */
		(void) paq_ring_release(end);
		reader->synced += end - pos;
		pg_atomic_write_u64(&paq_shared->flushed, end);
		paq_wake_waiters(end);	/* for "reserved", as audit_flush() does */
		pos = end;
	}
}

/*
 * The trail is durable up to the last checkpoint, with sequence and state as
 * for that: give the space back and wake those who wait for it.  The checkpoint
 * says so first, so that whoever has to go back to the last flush finds
 * everything from there on in the ring.
 */
void
paq_reader_flushed(PaqReader *reader, uint64 sequence, const void *trail)
{
	Assert(reader->flushed.pos <= reader->drained.pos);
	Assert(!paq_reader_unsaved(reader));
	if (paq_reader_unflushed(reader))
	{
		flush_place(reader);
		write_checkpoint(reader, sequence, trail, 0);
		paq_stats_add(&paq_shared->progress, 1);
	}
	paq_spilled_remove(reader);
	pg_atomic_write_u64(&paq_shared->flushed_sequence, sequence);
	if (!paq_reader_is_live(reader))
		return;

	Assert(pg_atomic_read_u64(&paq_live.live->reserved) >= reader->drained.pos);
	Assert(pg_atomic_read_u64(&paq_live.live->released) <= reader->flushed.pos);

	/*
	 * Our reading of the space must be over before it is given back (pairs
	 * with the compare-and-swap in try_reserve()), and the sequence must be
	 * there before "flushed" promises it (pairs with the barrier in
	 * paq_queue_flushed_sequence()).
	 */
	pg_memory_barrier();
	reader->synced += paq_ring_release(reader->flushed.pos);
	pg_atomic_write_u64(&paq_shared->flushed, reader->flushed.pos);
	paq_wake_waiters(reader->flushed.pos);
	skip_rest_of_lap(reader, sequence, trail);
	publish_reported(reader);
	ConditionVariableBroadcast(&paq_shared->space_cv);
	paq_wake_loader();
	paq_forget_warning();
}

/* Has enough become durable since the last time to call paq_reader_sync()? */
bool
paq_reader_sync_due(PaqReader *reader)
{
	return reader->flushed.pos - reader->synced >= SYNC_BYTES;
}

/* Write the last checkpoint to disk. */
void
paq_reader_sync(PaqReader *reader)
{
	reader->synced = reader->flushed.pos;
	(void) paq_file_sync(reader->qf, (char *) reader->qf->live - reader->qf->base);
}

/* ----------
 * Hibernating
 * ----------
 */

/*
 * May the worker, whose reader is given, sleep until somebody wakes it?  Only
 * if the live queue is empty and the trail reports all that was dropped.  From
 * the moment this returns true, whoever puts a record into the queue or drops
 * one sets the worker's latch: no request is slept through.
 */
bool
paq_worker_hibernate(PaqReader *reader)
{
	pg_atomic_write_u32(&paq_shared->hibernating, 1);

	/*
	 * Pairs with the compare-and-swap in try_reserve(): either we see the
	 * producer's reservation here, or it sees "hibernating" after it.  The
	 * same goes for the addition in paq_queue_note_drop().
	 */
	pg_memory_barrier();
	if (pg_atomic_read_u64(&paq_live.live->reserved) ==
			pg_atomic_read_u64(&paq_live.live->released) &&
		!paq_reader_has_drops(reader))
		return true;
	paq_worker_wake();
	return false;
}

/* The worker is awake, for whatever reason. */
void
paq_worker_wake(void)
{
	pg_atomic_write_u32(&paq_shared->hibernating, 0);
}

/* ----------
 * Leaving a file
 * ----------
 */

/*
 * A backlog file has been read to its end, and the trail is durable: carry
 * its checkpoint over to the next file, remove it, and stand on the next one.
 */
PaqReader *
paq_reader_advance(PaqReader *reader, uint64 sequence, const void *trail)
{
	PaqQueueFile done = reader->backlog;
	uint32		number = reader->number;
	PaqCheckpoint checkpoint;

	Assert(!paq_reader_is_live(reader));
	Assert(!paq_reader_unsaved(reader) && !paq_reader_unflushed(reader));
	paq_spilled_close(reader);

	/*
	 * The next file gets the checkpoint first.  A crash before this file is
	 * removed finds it drained, and does this again.  In case that it cannot be
	 * removed, it is marked as done before: its checkpoint must never be taken
	 * for the trail's end again.
	 */
	reader = open_after(number, &checkpoint);
	paq_reader_checkpoint(reader, sequence, trail);
	paq_reader_sync(reader);
	memset(&checkpoint, 0, sizeof(checkpoint));
	checkpoint.drained = PAQ_DRAINED_ALL;
	paq_checkpoint_write(&done, &checkpoint);
	paq_file_close(&done);
	paq_backlog_remove(number);
	return reader;
}

/*
 * The worker exits; the trail has the given sequence and state.  Make sure that
 * the next one can rely on this file even if the operating system is restarted
 * in between; unless there are still sessions, because the postmaster is dead or
 * they do not end.  What these write from now on is not on disk.
 */
void
paq_reader_close(PaqReader *reader, uint64 sequence, const void *trail)
{
	PaqQueueFile *qf = reader->qf;
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);
	Size		size = qf->header->ring_offset;

	paq_reader_rewind(reader);
	if (reader->drained.pos != reserved)
		size += qf->header->ring_size;
	(void) paq_file_sync(qf, size);
	if (!reader->intact || paq_worker_attached_backends() > 0 ||
		pg_atomic_read_u64(&qf->live->reserved) != reserved)
		return;
	write_checkpoint(reader, sequence, trail, reserved);
	paq_reader_sync(reader);
}
