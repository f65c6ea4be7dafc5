/*-------------------------------------------------------------------------
 *
 * reader.c
 *		The consumer's side: records out of a queue file, in order.
 *
 * How the file is read that backends write to is in live.c; how backlog is read,
 * a file that an earlier run of the server left, in backlog.c.
 *
 * Guarantees: nothing is handed out twice between two calls of
 * paq_reader_rewind(), and nothing that is not a whole record with a good
 * checksum; space is given back only for what paq_reader_flushed() was told.
 *
 * Locking: none; the worker is the only reader.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "guc.h"
#include "miscadmin.h"
#include "queue/reader_internal.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 *		Reading the queue file that backends write to.
 *
 * The cursor stops at the first frame that is not committed, until it is, or
 * until all who could commit it are dead.
 *
 * Guarantees: nothing is handed out but whole records with a good checksum; room
 * that a living process may still write to is not stepped over.
 *
 * Locking: none; the worker is the only reader.
 */

/*
 * After that long, in ms, it is looked whether the process still lives that is
 * to commit the next frame.  It takes microseconds, but may have to wait for a
 * processor.
 */
#define ABANDONED_AFTER		1000

/* The first good frame behind pos and before to; or to. */
static uint64
next_good(PaqQueueFile *qf, uint64 pos, uint64 to)
{
	do
	{
		pos += PAQ_FRAME_ALIGN;
	} while (pos < to && !paq_frame_is_good(qf, pos, to));
	return pos;
}

/*
 * The frame at the cursor is not committed.  Steps over it and fills in *gap if
 * its process is dead.  What the slot has of its record is published by the next
 * start of the server.
 */
static PaqReadResult
next_is_busy(PaqReader *reader, PaqGap *gap)
{
	TimestampTz now = GetCurrentTimestamp();
	uint64		end;

	if (reader->busy_at != reader->cursor || now < reader->busy_since)
	{
		reader->busy_at = reader->cursor;
		reader->busy_since = now;
	}
	if (now < TimestampTzPlusMilliseconds(reader->busy_since, ABANDONED_AFTER))
		return PAQ_READ_BUSY;
	end = paq_writers_bound(reader->cursor);
	if (end == 0 ||
		paq_frame_is_committed(reader->qf, reader->cursor))
		return PAQ_READ_BUSY;
	end = next_good(reader->qf, reader->cursor, end);
	paq_slots_take_back(reader->qf, reader->cursor, end);

	/* The live file is read once, so the gap need not be the same each time. */
	gap->from = reader->last_time;
	gap->to = reader->busy_since;
	gap->count = -1;
	snprintf(gap->message, sizeof(gap->message),
			 "a process was killed while it was recording; %llu bytes of the audit queue remain empty",
			 (unsigned long long) (end - reader->cursor));
	reader->cursor = end;
	return PAQ_READ_GAP;
}

/*
 * Next record of the live file.  Nothing but this process or a fault of the
 * machine's memory can have damaged a frame that was committed; step over it.
 */
PaqReadResult
paq_live_next(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	PaqQueueFile *qf = reader->qf;
	uint64		limit = pg_atomic_read_u64(&qf->live->reserved);
	PaqFrame   *frame = paq_frame_at(qf, reader->cursor);
	uint64		start = reader->cursor;
	uint64		bound;

	if (reader->cursor >= limit)
		return PAQ_READ_END;
	if (!paq_frame_is_committed(qf, reader->cursor))
		return next_is_busy(reader, gap);
	if (paq_frame_is_whole(qf, reader->cursor, limit))
	{
		reader->cursor += frame->size;
		if (paq_reader_decode(reader, (char *) (frame + 1), frame->length, record))
			return PAQ_READ_RECORD;
	}
	else
	{
		/* Behind it there may be frames that are not committed yet. */
		bound = paq_writers_bound(reader->cursor);
		if (bound == 0)
			return PAQ_READ_BUSY;
		reader->cursor = next_good(qf, reader->cursor, bound);
	}
	gap->from = gap->to = reader->last_time;
	gap->count = -1;
	snprintf(gap->message, sizeof(gap->message),
			 "%llu bytes of the audit queue are damaged; the records in them are lost",
			 (unsigned long long) (reader->cursor - start));
	return PAQ_READ_GAP;
}

/* How many records are there from the cursor on? */
uint64
paq_live_ahead(PaqReader *reader)
{
	uint64		end = pg_atomic_read_u64(&paq_live.live->reserved);
	uint64		pos = reader->cursor;
	uint64		count = 0;

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

/*
 * How many bytes of records may become durable in the trail before the
 * checkpoint must, too: after a crash of the operating system, that much of
 * the trail has to be compared with the queue.
 */
#define SYNC_BYTES			(4 * 1024 * 1024)

/* A batch may have gaps besides records: drops, lost files, a damaged slot. */
#define MAX_BATCH_GAPS		(PAQ_NDROPS + 2)

/* There is one at a time. */
static PaqReader the_reader;

/* Copy or compare PAQ_NDROPS numbers of dropped records. */
static void
set_drops(uint64 *drops, const uint64 *from)
{
	memcpy(drops, from, PAQ_NDROPS * sizeof(uint64));
}

static bool
same_drops(const uint64 *drops, const uint64 *other)
{
	return memcmp(drops, other, PAQ_NDROPS * sizeof(uint64)) == 0;
}

/*
 * There is no valid checkpoint: everything in the file counts, or at least all
 * that has not been given back, if the positions are possible ones.  (Ones in
 * every bit would be PAQ_DRAINED_ALL.)
 */
static void
guess_checkpoint(PaqQueueFile *qf, PaqCheckpoint *checkpoint)
{
	uint64		released = pg_atomic_read_u64(&qf->live->released);
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);

	if (released <= reserved && reserved <= PG_INT64_MAX &&
		reserved - released <= qf->ring_size)
		checkpoint->drained = checkpoint->flushed = released;
}

/* Stand at the checkpoint of reader->qf, which goes to *checkpoint. */
static void
start_reading(PaqReader *reader, PaqCheckpoint *checkpoint)
{
	PaqQueueFile *qf = reader->qf;
	uint64		doubt;
	bool		valid;

	memset(checkpoint, 0, sizeof(*checkpoint));
	valid = paq_checkpoint_read(qf, checkpoint);
	if (!valid)
		guess_checkpoint(qf, checkpoint);
	doubt = checkpoint->doubtful & ~(uint64) PAQ_DOUBT_LOST;
	if (doubt != checkpoint->doubtful)
		reader->lost = true;
	if (paq_reader_is_live(reader))
		reader->trusted = valid;	/* in use by this run of the server */
	else if (valid && paq_file_is_trusted(qf, checkpoint))
	{
		reader->trusted = doubt == PAQ_DOUBT_NONE;
		reader->bounded = doubt != PAQ_DOUBT_ALL;
	}
	reader->intact = paq_reader_is_live(reader) ||
		paq_file_is_intact(qf, checkpoint);
	reader->reported = paq_reader_is_live(reader) && doubt != PAQ_DOUBT_NONE;
	reader->flushed = TYPEALIGN64(PAQ_FRAME_ALIGN,
								  Min(checkpoint->flushed, checkpoint->drained));
	reader->flushed_slots = Min(checkpoint->flushed_slots, checkpoint->drained_slots);
	set_drops(reader->drops_flushed, checkpoint->flushed_drops);
	if (!reader->trusted)
		paq_reader_go_back(reader);
	else
	{
		reader->cursor = reader->drained = checkpoint->drained;
		reader->slot_cursor = reader->drained_slots = checkpoint->drained_slots;
		set_drops(reader->drops_drained, checkpoint->drops);
		set_drops(reader->drops_read, reader->drops_drained);
	}
}

/*
 * The trail may not end where the checkpoint says: whatever was written since
 * the last flush that it knows of is to be compared with the trail.
 */
void
paq_reader_go_back(PaqReader *reader)
{
	reader->trusted = false;
	reader->cursor = reader->drained = reader->flushed;
	reader->slot_cursor = reader->drained_slots = reader->flushed_slots;
	set_drops(reader->drops_drained, reader->drops_flushed);
	set_drops(reader->drops_read, reader->drops_drained);
	if (reader->frames != NULL)
		paq_backlog_seek(reader);
}

/*
 * The trail has turned out to be ahead of this file, which is an old copy
 * then.  In the live file there is nothing yet that the trail could have; all
 * that can be done is to report it.
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
 * How many records will at most still come out of this file, if nobody puts
 * any more into it?
 */
uint64
paq_reader_ahead(PaqReader *reader)
{
	return (paq_reader_is_live(reader) ?
			paq_live_ahead(reader) : paq_backlog_ahead(reader)) + MAX_BATCH_GAPS;
}

/*
 * The worker before us left the live file as at a shutdown, but the server goes
 * on: the disk has to know before anything is put into the file that this is not
 * all there is.
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
	if (reader->rooms != NULL)
		pfree(reader->rooms);
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

		/* Done, but it could not be removed at the time. */
		paq_file_close(&reader->backlog);
		paq_backlog_remove(reader->number);
	}

	reader->qf = &paq_live;
	start_reading(reader, checkpoint);
	end_closing(reader, checkpoint);
	paq_spilled_collect(reader);
	paq_spill_remove_older(paq_file_generation(&paq_live));
	return reader;
}

/*
 * Open the oldest queue file newer than the backlog file called after: more
 * backlog if there is any, else the live file.  What cannot be used before it is
 * reported by paq_reader_next(), and set aside then.  With half a reader the
 * worker cannot go on: an error, for want of memory, is its end.
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

/* Is this the file that backends write to? */
bool
paq_reader_is_live(PaqReader *reader)
{
	return reader->qf == &paq_live;
}

/* Decode a record, with its spill file if it has one. */
bool
paq_reader_decode(PaqReader *reader, const char *data, uint32 len,
				  PaqRecord *record)
{
	PaqText		name;

	if (!paq_record_decode(data, len, NULL, 0, record))
		return false;
	if (unlikely(record->header.flags & PAQ_RECORD_SPILLED))
	{
		if (paq_record_spill_name(data, len, &name))
			paq_spilled_open(reader, name);
		(void) paq_record_decode(data, len, reader->spill, reader->spill_size,
								 record);
		paq_spilled_check(reader, record);
	}
	reader->last_time = record->header.end_time != 0 ?
		record->header.end_time : record->header.start_time;
	return true;
}

/* Files that could not be used, or were not what they should be, as a gap */
static void
lost_files(PaqReader *reader, PaqGap *gap)
{
	gap->from = 0;
	gap->to = PgStartTime;
	gap->count = -1;
	if (reader->lost_bytes > 0)
		snprintf(gap->message, sizeof(gap->message),
				 "queue files of %llu bytes could not be used; the records in them may be lost",
				 (unsigned long long) reader->lost_bytes);
	else
		strlcpy(gap->message,
				"the queue file is new, or older than the trail; records that were in the queue may be lost",
				sizeof(gap->message));
	reader->lost_read = true;
}

/*
 * Have records been dropped that would be before pos, and of which nothing has
 * been said yet?  One report on each reason until the next checkpoint.
 */
static bool
find_drops(PaqReader *reader, uint64 pos, PaqGap *gap)
{
	bool		skip[PAQ_NDROPS];
	PaqDropReason reason;

	for (int i = 0; i < PAQ_NDROPS; i++)
		skip[i] = reader->drops_read[i] != reader->drops_drained[i];
	if (!paq_drops_find(reader->qf, reader->drops_drained, skip, pos, &reason,
						gap))
		return false;
	reader->drops_read[reason] += gap->count;
	return true;
}

/*
 * Have records been dropped of which nothing is in the trail, or not durably?
 */
bool
paq_reader_has_drops(PaqReader *reader)
{
	return paq_drops_unreported(reader->qf, reader->drops_flushed);
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
	gap->room = false;
	if (unlikely(reader->lost && !reader->lost_read))
	{
		lost_files(reader, gap);
		return PAQ_READ_GAP;
	}
	if (unlikely(paq_drops_unreported(reader->qf, reader->drops_drained)) &&
		find_drops(reader, reader->cursor, gap))
		return PAQ_READ_DROPS;
	result = paq_reader_is_live(reader) ?
		paq_live_next(reader, record, gap) : paq_backlog_next(reader, record, gap);
	if (result == PAQ_READ_END && find_drops(reader, PG_UINT64_MAX, gap))
		return PAQ_READ_DROPS;
	return result;
}

/* Position of the next record. */
uint64
paq_reader_position(PaqReader *reader)
{
	return reader->cursor;
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
	reader->cursor = reader->drained;
	reader->slot_cursor = reader->drained_slots;
	set_drops(reader->drops_read, reader->drops_drained);
	reader->lost_read = reader->lost_drained;
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
	reader->drained_slots = reader->flushed_slots;
	set_drops(reader->drops_drained, reader->drops_flushed);
	reader->lost_drained = false;
	paq_reader_rewind(reader);
}

/* Has anything been read, or stepped over, since the last checkpoint? */
bool
paq_reader_unsaved(PaqReader *reader)
{
	return reader->lost_read != reader->lost_drained ||
		!same_drops(reader->drops_read, reader->drops_drained) ||
		reader->cursor != reader->drained ||
		reader->slot_cursor != reader->drained_slots;
}

/* For synced_end see PaqCheckpoint. */
static void
write_checkpoint(PaqReader *reader, uint64 sequence, const void *trail,
				 uint64 synced_end)
{
	PaqCheckpoint checkpoint = {0};

	checkpoint.drained = reader->cursor;
	checkpoint.drained_slots = reader->slot_cursor;
	checkpoint.flushed = reader->flushed;
	checkpoint.flushed_slots = reader->flushed_slots;
	set_drops(checkpoint.drops, reader->drops_read);
	set_drops(checkpoint.flushed_drops, reader->drops_flushed);
	checkpoint.sequence = sequence;
	checkpoint.doubtful = reader->trusted || paq_reader_is_live(reader) ?
		PAQ_DOUBT_NONE :
		reader->bounded ? PAQ_DOUBT_TRAIL : PAQ_DOUBT_ALL;

	/* Files that are there still will be found again. */
	if (reader->lost && !reader->lost_read && reader->lost_bytes == 0)
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

	reader->lost_drained = reader->lost_read;
	reader->drained = reader->cursor;
	reader->drained_slots = reader->slot_cursor;
	set_drops(reader->drops_drained, reader->drops_read);
	reader->spills_drained = list_concat(reader->spills_drained,
										 reader->spills_read);
	list_free(reader->spills_read);
	reader->spills_read = NIL;
	pg_atomic_write_u64(&reader->qf->live->drained, reader->drained);
}

/* Is there anything between the last checkpoint and the last flush? */
bool
paq_reader_unflushed(PaqReader *reader)
{
	return reader->drained != reader->flushed ||
		reader->drained_slots != reader->flushed_slots ||
		!same_drops(reader->drops_drained, reader->drops_flushed) ||
		reader->lost_drained || reader->spills_drained != NIL;
}

/* Bytes of the ring between the two. */
uint64
paq_reader_unflushed_bytes(PaqReader *reader)
{
	return reader->drained - reader->flushed;
}

/* What the trail tells of the drops is durable. */
static void
flush_drops(PaqReader *reader)
{
	for (int i = 0; i < PAQ_NDROPS; i++)
		if (reader->drops_drained[i] != reader->drops_flushed[i])
			paq_drops_reported(reader->qf, i, reader->drops_drained[i]);
	set_drops(reader->drops_flushed, reader->drops_drained);
}

/* What it tells of lost files is, too. */
static void
flush_lost(PaqReader *reader)
{
	if (!reader->lost_drained)
		return;
	paq_backlog_set_aside(reader);
	reader->lost = reader->lost_read = reader->lost_drained = false;
	reader->lost_bytes = 0;
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
	Assert(reader->flushed <= reader->drained);
	Assert(!paq_reader_unsaved(reader));
	if (paq_reader_unflushed(reader))
	{
		reader->flushed = reader->drained;
		reader->flushed_slots = reader->drained_slots;
		flush_drops(reader);
		flush_lost(reader);
		write_checkpoint(reader, sequence, trail, 0);
		paq_stats_add(&paq_shared->progress, 1);
	}
	paq_spilled_remove(reader);
	pg_atomic_write_u64(&paq_shared->flushed_sequence, sequence);
	if (!paq_reader_is_live(reader))
		return;

	Assert(pg_atomic_read_u64(&paq_live.live->reserved) >= reader->drained);
	Assert(pg_atomic_read_u64(&paq_live.live->released) <= reader->flushed);

	/*
	 * Our reading of the space must be over before it is given back (pairs
	 * with the compare-and-swap in try_reserve()), and the sequence must be
	 * there before "flushed" promises it (pairs with the barrier in
	 * paq_queue_flushed_sequence()).
	 */
	pg_memory_barrier();
	pg_atomic_write_u64(&paq_live.live->released, reader->flushed);
	pg_atomic_write_u64(&paq_shared->flushed, reader->flushed);
	paq_waiters_wake(reader->flushed);
	ConditionVariableBroadcast(&paq_shared->space_cv);
	paq_wake_loader();
	paq_forget_warning();
}

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
	 * First the next file learns how far the trail has got, then this one
	 * goes.  A crash in between finds this file drained and does it again.
	 * It is marked as done before, for the case that it cannot be removed: its
	 * checkpoint must never be taken for the trail's end again.
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

/* Write the first size bytes of the queue file to disk; failure is only logged. */
static void
sync_file(PaqReader *reader, Size size)
{
	if (enableFsync && msync(reader->qf->base, size, MS_SYNC) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not sync the audit queue file: %m")));
}

/* Has enough become durable since the last time to call paq_reader_sync()? */
bool
paq_reader_sync_due(PaqReader *reader)
{
	return reader->flushed - reader->synced >= SYNC_BYTES;
}

/* Write the last checkpoint to disk. */
void
paq_reader_sync(PaqReader *reader)
{
	reader->synced = reader->flushed;
	sync_file(reader, (char *) reader->qf->live - reader->qf->base);
}

/*
 * The worker leaves; the trail has the given sequence and state.  See to it that
 * the next one can rely on this file even if the operating system is restarted
 * in between: unless there are sessions still, because the postmaster is dead
 * or they do not end.  These may go on writing what is then not on disk.
 */
void
paq_reader_close(PaqReader *reader, uint64 sequence, const void *trail)
{
	PaqQueueFile *qf = reader->qf;
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);
	Size		size = qf->header->ring_offset;

	paq_reader_rewind(reader);
	if (reader->drained != reserved)
		size += qf->header->ring_size;
	sync_file(reader, size);
	if (!reader->intact || paq_writers_awaited() > 0 ||
		pg_atomic_read_u64(&qf->live->reserved) != reserved)
		return;
	write_checkpoint(reader, sequence, trail, reserved);
	paq_reader_sync(reader);
}
