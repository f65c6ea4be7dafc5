/*-------------------------------------------------------------------------
 *
 * live.c
 *		Reading the queue file that backends write to.
 *
 * The cursor stops at the first frame that is not committed, until it is, or
 * until all who could commit it are dead.
 *
 * Guarantees: nothing is handed out but whole records with a good checksum; room
 * that a living process may still write to is not stepped over.
 *
 * Locking: none; the worker is the only reader.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "queue/reader_internal.h"
#include "utils/timestamp.h"

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
