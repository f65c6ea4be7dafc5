/*-------------------------------------------------------------------------
 *
 * recovery.c
 *		Reading backlog: a queue file that an earlier run of the server left.
 *
 * Nobody writes to it any more.  All good frames from the place on up to which
 * the trail is known to be complete are handed out in their order; then, from
 * the pending slots, what the crash interrupted.  A hole between frames held
 * records that are lost, and makes a gap, unless it was reserved by processes
 * that were killed.  So does a crash of the operating system, after which nobody
 * knows what there was.
 *
 * An entry of a slot that has no good frame in the ring and was not replaced by
 * another entry was interrupted by the crash.  If the operating system went down
 * with it, a slot's pages may be from any time: then nobody knows whether the
 * statement ended after all, and the record says so.
 *
 * Guarantees: whatever the content of the file, every good frame is found,
 * and nothing else is taken for one.
 *
 * Locking: none; the worker is the only reader.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "guc.h"
#include "queue/wal.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define UNCERTAIN_MESSAGE \
	"the operating system was restarted; the statement may have ended, and have a record of its own"

/* ----------
 * Files
 * ----------
 */

/* The file with reader's number cannot be used: remember to report it. */
static void
note_unusable(PaqReader *reader, const char *path, const char *reason)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	PaqUnusable *unusable = palloc(sizeof(PaqUnusable));
	struct stat st;

	unusable->number = reader->number;
	unusable->reason = pstrdup(reason);
	reader->unusable = lappend(reader->unusable, unusable);
	MemoryContextSwitchTo(oldcontext);
	reader->lost_bytes += lstat(path, &st) == 0 ? Max(st.st_size, 1) : 1;
	reader->lost = true;
	ereport(LOG,
			(errmsg("audit queue file \"%s\" cannot be used", path),
			 errdetail("%s", reason)));
}

/*
 * Set files aside that cannot be used.  Must not be called before the trail
 * reports them durably: if the worker died in between, only the server's log
 * would have told of them.
 */
void
paq_backlog_set_aside(PaqReader *reader)
{
	ListCell   *lc;

	foreach(lc, reader->unusable)
	{
		PaqUnusable *unusable = lfirst(lc);
		char		path[MAXPGPATH];

		paq_backlog_path(path, unusable->number);
		paq_file_set_aside(path, unusable->reason, LOG);
		pfree(unusable->reason);
	}
	list_free_deep(reader->unusable);
	reader->unusable = NIL;
}

/* Map the backlog file with reader's number; returns whether it can be used. */
bool
paq_backlog_open(PaqReader *reader)
{
	char		path[MAXPGPATH];
	char	   *reason;

	paq_backlog_path(path, reader->number);
	if (paq_file_open(path, &reader->backlog, &reason))
	{
		if (!reader->backlog.foreign)
			return true;
		paq_file_close(&reader->backlog);
		reason = "It belongs to another server, or was copied.";
	}
	if (reason == NULL)
		return false;			/* it is gone */
	note_unusable(reader, path, reason);
	return false;
}

void
paq_backlog_remove(uint32 number)
{
	char		path[MAXPGPATH];

	paq_backlog_path(path, number);
	(void) durable_unlink(path, LOG);
}

/* ----------
 * The ring
 * ----------
 */

/*
 * Position of the good frame at this offset of the ring, of whatever lap; 0
 * if there is none.  A frame's stamp has its position.
 */
uint64
paq_frame_at_offset(PaqQueueFile *qf, uint64 offset)
{
	PaqFrame   *frame = (PaqFrame *) (qf->ring + offset);
	uint64		stamp = pg_atomic_read_u64(&frame->stamp) ^ qf->salt;
	uint64		pos = stamp & ~UINT64CONST(7);

	if ((stamp & 7) != PAQ_FRAME_COMMITTED || pos % qf->ring_size != offset ||
		pos > PG_INT64_MAX ||
		!paq_frame_is_good(qf, pos, pos + qf->ring_size))
		return 0;
	return pos;
}

/*
 * Find all good frames from "flushed" on, in order.  Looks at every place of the
 * ring, so that nothing depends on the positions in the file.  For lack of memory,
 * an error ends the worker: see open_after().
 */
static void
find_frames(PaqReader *reader)
{
	PaqQueueFile *qf = reader->qf;
	Size		allocated = 1024;
	uint64		offset = 0;

	reader->frames = paq_worker_alloc(allocated * sizeof(uint64));
	reader->nframes = 0;
	while (offset < qf->ring_size)
	{
		uint64		pos = paq_frame_at_offset(qf, offset);

		if (pos == 0)
		{
			offset += PAQ_FRAME_ALIGN;
			continue;
		}
		offset += paq_frame_step(paq_frame_at(qf, pos));
		if (pos < reader->flushed.pos)
			continue;
		if (reader->nframes == allocated)
		{
			allocated *= 2;
			reader->frames = repalloc_huge(reader->frames,
										   allocated * sizeof(uint64));
		}
		reader->frames[reader->nframes++] = pos;
	}
	qsort(reader->frames, reader->nframes, sizeof(uint64), paq_compare_positions);
}

/* Where a frame ends */
static uint64
frame_end(PaqReader *reader, uint64 pos)
{
	return pos + paq_frame_at(reader->qf, pos)->size;
}

/* Which holes from the cursor on were left by processes that were killed? */
static void
explain_holes(PaqReader *reader)
{
	uint64		reserved = pg_atomic_read_u64(&reader->qf->live->reserved);
	uint64		pos = reader->read.pos;
	PaqHole    *hole;

	if (reader->holes == NULL)
		reader->holes = paq_worker_alloc((reader->nframes + 1) * sizeof(PaqHole));
	hole = &reader->holes[reader->next_frame];
	for (uint32 i = reader->next_frame; i < reader->nframes; i++, hole++)
	{
		hole->from = pos;
		hole->to = reader->frames[i];
		pos = frame_end(reader, hole->to);
	}
	hole->from = pos;
	hole->to = Max(pos, reserved);
	paq_writers_explain(reader->qf, &reader->holes[reader->next_frame],
						reader->nframes - reader->next_frame + 1);
	reader->holes_from = reader->read.pos;
}

/* The cursor was moved. */
void
paq_backlog_seek(PaqReader *reader)
{
	reader->next_frame = 0;
	while (reader->next_frame < reader->nframes &&
		   reader->frames[reader->next_frame] < reader->read.pos)
		reader->next_frame++;
	if (reader->bounded &&
		(reader->holes == NULL || reader->read.pos < reader->holes_from))
		explain_holes(reader);
}

/*
 * The trail may not end where the checkpoint says: whatever was written since
 * the last flush that it knows of is to be compared with the trail.
 */
void
paq_reader_go_back(PaqReader *reader)
{
	reader->trusted = false;
	reader->read = reader->drained = reader->flushed;
	if (reader->frames != NULL)
		paq_backlog_seek(reader);
}

/* Time of the record in the good frame at pos; 0 if unknown */
static TimestampTz
frame_time(PaqQueueFile *qf, uint64 pos)
{
	PaqFrame   *frame = paq_frame_at(qf, pos);
	const PaqRecordHeader *header = (PaqRecordHeader *) (frame + 1);

	if (frame->kind != PAQ_FRAME_RECORD || frame->length < offsetof(PaqRecordHeader, field_len))
		return 0;
	return header->end_time != 0 ? header->end_time : header->start_time;
}

/* Are all records, with their spill files, there from the cursor on? */
static bool
is_whole(PaqReader *reader)
{
	for (uint32 i = reader->next_frame; i < reader->nframes; i++)
	{
		PaqFrame   *frame = paq_frame_at(reader->qf, reader->frames[i]);

		if (!reader->holes[i].explained ||
			(frame->kind == PAQ_FRAME_RECORD &&
			 !paq_spilled_is_there((char *) (frame + 1), frame->length)))
			return false;
	}
	return reader->holes[reader->nframes].explained;
}

/*
 * Find the frames, and stand at the cursor.  paq_reader_retreat() may go back
 * from there as far as "flushed".
 *
 * If a record is damaged, the trail may have it: then the batch that was being
 * written to the trail must not be cut off.
 */
void
paq_backlog_start(PaqReader *reader)
{
	find_frames(reader);
	paq_backlog_seek(reader);
	if (reader->trusted && !is_whole(reader))
		paq_reader_go_back(reader);
}

/*
 * Step over the hole before the next frame, which is at "to", or behind the last
 * one.  Returns whether it has to be reported, with *gap filled in.
 */
static bool
skip_hole(PaqReader *reader, uint64 to, PaqGap *gap)
{
	uint64		bytes = to - reader->read.pos;

	reader->read.pos = to;
	if (reader->bounded && reader->holes[reader->next_frame].explained)
		return false;
	paq_gap_set(gap, reader->last_time,
				reader->next_frame < reader->nframes ?
				frame_time(reader->qf, to) : PgStartTime, -1,
				"%llu bytes of the audit queue are damaged or missing; the records in them are lost unless they are in the trail already",
				(unsigned long long) bytes);
	gap->hole = true;
	return true;
}

/* Next record of the ring, or a gap. */
static PaqReadResult
next_in_ring(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	PaqQueueFile *qf = reader->qf;

	while (reader->next_frame < reader->nframes)
	{
		uint64		pos = reader->frames[reader->next_frame];
		PaqFrame   *frame = paq_frame_at(qf, pos);

		/* All but "length" bytes before a skip were durable when it was made. */
		if (frame->kind == PAQ_FRAME_SKIP && frame->length < PG_UINT32_MAX &&
			frame->length < pos)
			reader->read.pos = Max(reader->read.pos, pos - frame->length);
		if (pos > reader->read.pos && skip_hole(reader, pos, gap))
			return PAQ_READ_GAP;
		reader->read.pos = pos + frame->size;
		reader->next_frame++;
		if (frame->kind == PAQ_FRAME_SKIP)
			continue;
		if (paq_reader_decode(reader, (char *) (frame + 1), frame->length, record))
			return PAQ_READ_RECORD;
		paq_gap_set(gap, reader->last_time, frame_time(qf, pos), 1,
					"a record of another version is lost");
		return PAQ_READ_GAP;
	}

	/* If the positions are wrong, the end of the records is not known. */
	if (reader->bounded)
	{
		uint64		end = pg_atomic_read_u64(&qf->live->reserved);

		if (end > reader->read.pos && skip_hole(reader, end, gap))
			return PAQ_READ_GAP;
	}
	return PAQ_READ_END;
}

/* ----------
 * Pending slots
 * ----------
 */

/*
 * Is this position in a detour, which leaves alone what an earlier lap has there?
 * Unlike it, what the worker skips ends with the lap.
 */
static bool
is_detoured(PaqReader *reader, uint64 pos)
{
	for (uint32 i = 0; i < reader->nframes && reader->frames[i] <= pos; i++)
	{
		uint64		end = frame_end(reader, reader->frames[i]);

		if (pos < end && end % reader->qf->ring_size != 0 &&
			paq_frame_at(reader->qf, reader->frames[i])->kind == PAQ_FRAME_SKIP)
			return true;
	}
	return false;
}

/*
 * Did the record of this entry get into the ring before the crash?  Then its
 * frame is there, or the trail has the record and its space was given back.  If
 * "released" cannot be trusted, the latter is certain only if a later lap has
 * overwritten the frame.
 */
static bool
was_published(PaqReader *reader, const PaqSlotEntry *entry)
{
	PaqQueueFile *qf = reader->qf;
	uint64		pos = entry->published_at;

	if (pos == 0 || pos % PAQ_FRAME_ALIGN != 0 || pos > PG_INT64_MAX)
		return false;
	if (paq_frame_is_good(qf, pos, pos + qf->ring_size))
		return true;
	if (reader->bounded)
		return pos < pg_atomic_read_u64(&qf->live->released);
	return reader->nframes > 0 &&
		pos + qf->ring_size <=
		frame_end(reader, reader->frames[reader->nframes - 1]) &&
		!is_detoured(reader, pos + qf->ring_size);
}

/* Entry at *offset in the slot, NULL if there is none; *offset moves behind it. */
static PaqSlotEntry *
entry_at(PaqSlot *slot, uint64 *offset)
{
	PaqSlotEntry *entry = (PaqSlotEntry *) (slot->entries + *offset);
	uint64		used = Min(slot->used, sizeof(slot->entries));

	if (*offset + sizeof(PaqSlotEntry) > used ||
		entry->size < sizeof(PaqSlotEntry) || entry->size % 8 != 0 ||
		entry->size > used - *offset)
		return NULL;
	*offset += entry->size;
	return entry;
}

/* The record of an entry, NULL if it has no valid one. */
static PaqRecordHeader *
entry_record(PaqSlotEntry *entry)
{
	PaqRecordHeader *header = (PaqRecordHeader *) (entry + 1);

	if (entry->valid != 1 ||
		entry->size < sizeof(PaqSlotEntry) + offsetof(PaqRecordHeader, field_len) ||
		header->length > entry->size - sizeof(PaqSlotEntry) ||
		entry->crc != paq_fields_crc((char *) header, header->length))
		return NULL;
	return header;
}

/* Has another entry of the slot, behind this one, replaced it? */
static bool
is_replaced(PaqReader *reader, PaqSlotEntry *entry)
{
	uint32		number = ((char *) entry - reader->qf->slots) / PAQ_SLOT_SIZE;
	PaqSlot    *slot = paq_slot(reader->qf, number);
	uint64		offset = entry->successor;
	PaqSlotEntry *successor;

	if (offset % 8 != 0 || slot->entries + offset <= (char *) entry)
		return false;
	successor = entry_at(slot, &offset);
	return successor != NULL && entry_record(successor) != NULL;
}

/* Is the valid record of this entry still pending? */
static bool
is_pending(PaqReader *reader, PaqSlotEntry *entry)
{
	return !was_published(reader, entry) && !is_replaced(reader, entry);
}

/* The slot cursor after the last slot */
static uint64
slots_end(PaqReader *reader)
{
	return (uint64) reader->qf->header->nslots * PAQ_SLOT_SIZE;
}

/*
 * Go to the next record that is still pending, from the slot cursor *pos on, which
 * moves behind it.  Returns NULL with *damaged false at the end; NULL with
 * *damaged true behind something that should be an entry with a record, and is
 * not.
 */
static PaqRecordHeader *
next_pending(PaqReader *reader, uint64 *pos, bool *damaged)
{
	*damaged = false;
	while (!*damaged && *pos < slots_end(reader))
	{
		uint32		number = *pos / PAQ_SLOT_SIZE;
		uint64		offset = *pos % PAQ_SLOT_SIZE;
		PaqSlot    *slot = paq_slot(reader->qf, number);
		PaqSlotEntry *entry = entry_at(slot, &offset);
		PaqRecordHeader *header;

		if (entry == NULL)
		{
			*damaged = offset != slot->used;
			*pos = (uint64) (number + 1) * PAQ_SLOT_SIZE;
			continue;
		}
		*pos = (uint64) number * PAQ_SLOT_SIZE + offset;
		header = entry_record(entry);
		if (header == NULL)
			*damaged = entry->valid != 0;
		else if (is_pending(reader, entry))
			return header;
	}
	return NULL;
}

/*
 * Mark a record that was found in a slot.  Some have an outcome, and only waited
 * for space.  If a statement had failed, that is the outcome; a success does not
 * count, because nobody was told of it.
 */
static void
mark_interrupted(PaqReader *reader, PaqRecord *record)
{
	PaqText    *message = &record->field[PAQ_FIELD_MESSAGE];

	if (record->header.sqlstate == 0)
	{
		record->header.flags |= PAQ_RECORD_INTERRUPTED;
		record->header.sqlstate = ERRCODE_CRASH_SHUTDOWN;
	}
	if (!reader->intact && message->data == NULL)
	{
		message->data = UNCERTAIN_MESSAGE;
		message->len = strlen(UNCERTAIN_MESSAGE);
		record->header.field_len[PAQ_FIELD_MESSAGE] = message->len;
	}
}

/*
 * Next record of the pending slots, or a gap.  After a crash of the operating
 * system slots may contain anything; last_gap() reports that.
 */
static PaqReadResult
next_in_slots(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	bool		damaged;
	PaqRecordHeader *header;

	do
	{
		header = next_pending(reader, &reader->read.slot_pos, &damaged);
		if (header != NULL &&
			paq_reader_decode(reader, (char *) header, header->length, record))
		{
			mark_interrupted(reader, record);
			return PAQ_READ_RECORD;
		}
		if (reader->intact && (damaged || header != NULL))
		{
			paq_gap_set(gap, reader->last_time, PgStartTime, -1,
						"a pending slot of the audit queue is damaged; a statement that was being executed may be missing");
			return PAQ_READ_GAP;
		}
	} while (damaged || header != NULL);
	return PAQ_READ_END;
}

/*
 * Frames between the two positions of the live file will never be committed,
 * because their processes are dead.  What these have in their slots is pending
 * again, and published by the next start of the server; until then their slots
 * stay as they are.  No other slot has anything between these positions.
 */
void
paq_slots_take_back(PaqQueueFile *qf, uint64 from, uint64 to)
{
	for (uint32 i = 0; i < qf->header->nslots; i++)
	{
		PaqSlot    *slot = paq_slot(qf, i);
		uint64		offset = 0;
		PaqSlotEntry *entry;

		while ((entry = entry_at(slot, &offset)) != NULL)
			if (entry->published_at >= from && entry->published_at < to)
				entry->published_at = 0;
	}
}

/* ----------
 * All of the file
 * ----------
 */

/*
 * If the end of the records is not known, a last gap says that more records may
 * have been there.
 */
static PaqReadResult
last_gap(PaqReader *reader, PaqGap *gap)
{
	uint64		end = slots_end(reader);
	const char *message;
	PaqWalNote	note;

	if ((reader->bounded && reader->intact) || reader->read.slot_pos > end)
		return PAQ_READ_END;
	reader->read.slot_pos = end + 1;
	(void) paq_wal_note_read(reader->qf, &note);
	if (reader->intact)
		message = "the positions in the queue file are damaged, or it is an old copy; records may be lost";
	else if (note.lost || note.lsn != InvalidXLogRecPtr)
		message = "the operating system was restarted while the server was running, and WAL that records of commits may be in is missing; records may be lost, also of transactions that have committed";
	else
		message = "the operating system was restarted while the server was running; records that were not yet durable may be lost";
	paq_gap_set(gap, reader->last_time, PgStartTime, -1, "%s", message);
	return PAQ_READ_GAP;
}

/* Next record of the file, or a gap. */
PaqReadResult
paq_backlog_next(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	PaqReadResult result = next_in_ring(reader, record, gap);

	if (result == PAQ_READ_END)
		result = next_in_slots(reader, record, gap);
	if (result == PAQ_READ_END)
		result = last_gap(reader, gap);
	return result;
}

/* How many records will still come out of it? */
uint64
paq_backlog_ahead(PaqReader *reader)
{
	uint64		count = reader->nframes - reader->next_frame;
	uint64		pos = reader->read.slot_pos;
	bool		damaged;
	PaqRecordHeader *header;

	do
	{
		header = next_pending(reader, &pos, &damaged);
		if (header != NULL)
			count++;
	} while (damaged || header != NULL);
	return count;
}
