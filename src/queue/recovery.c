/*-------------------------------------------------------------------------
 *
 * backlog.c
 *		Reading a queue file that an earlier run of the server left.
 *
 * Nobody writes to it any more.  All good frames from the place on up to which
 * the trail is known to be complete are handed out in their order; then, from
 * the pending slots, what the crash interrupted.  Room between frames that no
 * dying process explains held records that are lost, and makes a gap, as does
 * a crash of the operating system, after which nobody knows what there was.
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
#include "queue/reader_internal.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 *		Reading a queue file that an earlier run of the server left.
 *
 * Nobody writes to it any more.  All good frames from the place on up to which
 * the trail is known to be complete are handed out in their order; then, from
 * the pending slots, what the crash interrupted.  Room between frames that no
 * dying process explains held records that are lost, and makes a gap, as does
 * a crash of the operating system, after which nobody knows what there was.
 *
 * Guarantees: whatever the content of the file, every good frame is found,
 * and nothing else is taken for one.
 *
 * Locking: none; the worker is the only reader.
 */

/*
 * Number of the oldest backlog file that is newer than the one called after;
 * 0 if there is none.
 */
uint32
paq_backlog_find(uint32 after)
{
	DIR		   *dir = AllocateDir(paq_queue_directory);
	struct dirent *de;
	uint32		oldest = 0;

	while ((de = ReadDirExtended(dir, paq_queue_directory, LOG)) != NULL)
	{
		uint32		number = paq_backlog_number(de->d_name);

		if (number > after && (oldest == 0 || number < oldest))
			oldest = number;
	}
	if (dir != NULL)
		FreeDir(dir);
	return oldest;
}

/* The file with that number cannot be used: remember to say so. */
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
 * The trail says, durably, what cannot be used: set it aside.  Not before, or a
 * worker that died in between would leave nothing but the server's log to tell
 * of it.
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

/*
 * Map the backlog file that reader->number says.  One that cannot be used will
 * be set aside when the reader has reported that records are missing.
 */
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

/* Which room from the cursor on is that of processes which were killed? */
static void
explain_rooms(PaqReader *reader)
{
	uint64		reserved = pg_atomic_read_u64(&reader->qf->live->reserved);
	uint64		pos = reader->cursor;

	if (reader->rooms == NULL)
		reader->rooms = paq_reader_alloc((reader->nframes + 1) * sizeof(PaqRoom));
	for (uint32 i = reader->next_frame; i < reader->nframes; i++)
	{
		reader->rooms[i].from = pos;
		reader->rooms[i].to = reader->frames[i];
		pos = reader->frames[i] + paq_frame_at(reader->qf, reader->frames[i])->size;
	}
	reader->rooms[reader->nframes].from = pos;
	reader->rooms[reader->nframes].to = Max(pos, reserved);
	paq_writers_explain(reader->qf, &reader->rooms[reader->next_frame],
						reader->nframes - reader->next_frame + 1);
	reader->rooms_from = reader->cursor;
}

/* The cursor was moved. */
void
paq_backlog_seek(PaqReader *reader)
{
	reader->next_frame = 0;
	while (reader->next_frame < reader->nframes &&
		   reader->frames[reader->next_frame] < reader->cursor)
		reader->next_frame++;
	if (reader->bounded &&
		(reader->rooms == NULL || reader->cursor < reader->rooms_from))
		explain_rooms(reader);
}

/* Where the last good frame ends; 0 if there is none. */
uint64
paq_backlog_end(PaqReader *reader)
{
	uint64		last;

	if (reader->nframes == 0)
		return 0;
	last = reader->frames[reader->nframes - 1];
	return last + paq_frame_at(reader->qf, last)->size;
}

/* How many records will still come out of it? */
uint64
paq_backlog_ahead(PaqReader *reader)
{
	return reader->nframes - reader->next_frame + paq_slots_count(reader);
}

/* When did what the good frame at pos says happen? */
static TimestampTz
frame_time(PaqQueueFile *qf, uint64 pos)
{
	PaqFrame   *frame = paq_frame_at(qf, pos);
	const PaqRecordHeader *header = (PaqRecordHeader *) (frame + 1);

	if (frame->length < sizeof(PaqRecordHeader))
		return 0;
	return header->end_time != 0 ? header->end_time : header->start_time;
}

/* Is everything there from the cursor on? */
static bool
is_whole(PaqReader *reader)
{
	for (uint32 i = reader->next_frame; i < reader->nframes; i++)
	{
		PaqFrame   *frame = paq_frame_at(reader->qf, reader->frames[i]);

		if (!reader->rooms[i].explained ||
			!paq_spilled_is_there((char *) (frame + 1), frame->length))
			return false;
	}
	return reader->rooms[reader->nframes].explained;
}

/*
 * Find what there is, and stand at the cursor.  paq_reader_retreat() may go
 * back from there as far as "flushed".
 *
 * If something is damaged, the trail may have it: what was being written to the
 * trail must not be cut off then.
 */
void
paq_backlog_start(PaqReader *reader)
{
	reader->frames = paq_frames_find(reader->qf, reader->flushed,
									 &reader->nframes);
	paq_backlog_seek(reader);
	if (reader->trusted && !is_whole(reader))
		paq_reader_go_back(reader);
}

/*
 * Step over the room before the next frame, which is at "to" or not there at
 * all.  Returns whether that has to be reported, with *gap filled in.
 */
static bool
skip_room(PaqReader *reader, uint64 to, PaqGap *gap)
{
	uint64		bytes = to - reader->cursor;

	reader->cursor = to;
	if (reader->bounded && reader->rooms[reader->next_frame].explained)
		return false;
	gap->room = true;
	gap->from = reader->last_time;
	gap->to = reader->next_frame < reader->nframes ?
		frame_time(reader->qf, to) : PgStartTime;
	gap->count = -1;
	snprintf(gap->message, sizeof(gap->message),
			 "%llu bytes of the audit queue are damaged or missing; the records in them are lost unless they are in the trail already",
			 (unsigned long long) bytes);
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

		if (pos > reader->cursor && skip_room(reader, pos, gap))
			return PAQ_READ_GAP;
		reader->cursor = pos + frame->size;
		reader->next_frame++;
		if (paq_reader_decode(reader, (char *) (frame + 1), frame->length, record))
			return PAQ_READ_RECORD;
		gap->from = reader->last_time;
		gap->to = frame_time(qf, pos);
		gap->count = 1;
		strlcpy(gap->message, "a record of another version is lost",
				sizeof(gap->message));
		return PAQ_READ_GAP;
	}

	/* Or else the end of the records is not known. */
	if (reader->bounded)
	{
		uint64		end = pg_atomic_read_u64(&qf->live->reserved);

		if (end > reader->cursor && skip_room(reader, end, gap))
			return PAQ_READ_GAP;
	}
	return PAQ_READ_END;
}

/*
 * If the end of the records is not known: what came after the last thing that
 * is left, nobody knows of.
 */
static PaqReadResult
last_gap(PaqReader *reader, PaqGap *gap)
{
	uint64		end = (uint64) reader->qf->header->nslots * PAQ_SLOT_SIZE;

	if ((reader->bounded && reader->intact) || reader->slot_cursor > end)
		return PAQ_READ_END;
	reader->slot_cursor = end + 1;
	gap->from = reader->last_time;
	gap->to = PgStartTime;
	gap->count = -1;
	strlcpy(gap->message, reader->intact ?
			"the positions in the queue file are damaged, or it is an old copy; records may be lost" :
			"the operating system was restarted while the server was running; records that were not yet durable may be lost",
			sizeof(gap->message));
	return PAQ_READ_GAP;
}

/* Next record of the file, or a gap. */
PaqReadResult
paq_backlog_next(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	PaqReadResult result = next_in_ring(reader, record, gap);

	if (result == PAQ_READ_END)
		result = paq_slots_next(reader, record, gap);
	if (result == PAQ_READ_END)
		result = last_gap(reader, gap);
	return result;
}

/*
 *		Reading the pending slots of a queue file that a crash left.
 *
 * What is in a slot, has no good frame in the ring and was not replaced by
 * another entry was interrupted by the crash.  If the operating system went down
 * with it, a slot's pages may be from any time: then nobody knows whether the
 * statement ended after all, and the record says so.
 *
 * Locking: none; the worker is the only reader, and all writers are gone.
 */

#define UNCERTAIN_MESSAGE \
	"the operating system was restarted; the statement may have ended, and have a record of its own"

/*
 * Did the record of this entry get into the ring before the crash?  Then its
 * frame is there, or has been in the trail for so long that its place was given
 * back.  Where "released" is not to be trusted, the latter shows if a later lap
 * has come so far.
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
	return reader->bounded ? pos < pg_atomic_read_u64(&qf->live->released) :
		pos + qf->ring_size <= paq_backlog_end(reader);
}

/*
 * Entry at offset in the slot, NULL if there is none; *offset moves behind it.
 */
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

/* The record of an entry, NULL if it is none, or none any more. */
static PaqRecordHeader *
entry_record(PaqSlotEntry *entry)
{
	PaqRecordHeader *header = (PaqRecordHeader *) (entry + 1);

	if (entry->valid != 1 ||
		entry->size < sizeof(PaqSlotEntry) + sizeof(PaqRecordHeader) ||
		header->length > entry->size - sizeof(PaqSlotEntry) ||
		entry->crc != paq_fields_crc((char *) header, header->length))
		return NULL;
	return header;
}

/* Has another entry of the slot, behind this one, taken its place? */
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

/* Is the record of this entry, a valid one, pending still? */
static bool
is_pending(PaqReader *reader, PaqSlotEntry *entry)
{
	return !was_published(reader, entry) && !is_replaced(reader, entry);
}

/*
 * Entry at the slot cursor, NULL if there is none left in its slot; *damaged
 * tells whether there should be.  Moves the cursor behind it, or to the next
 * slot.
 */
static PaqSlotEntry *
next_entry(PaqReader *reader, bool *damaged)
{
	uint32		number = reader->slot_cursor / PAQ_SLOT_SIZE;
	uint64		offset = reader->slot_cursor % PAQ_SLOT_SIZE;
	PaqSlot    *slot = paq_slot(reader->qf, number);
	PaqSlotEntry *entry = entry_at(slot, &offset);

	*damaged = entry == NULL ?
		offset != slot->used :
		entry->valid > 1 || (entry->valid == 1 && entry_record(entry) == NULL);
	reader->slot_cursor = entry != NULL ?
		(uint64) number * PAQ_SLOT_SIZE + offset :
		(uint64) (number + 1) * PAQ_SLOT_SIZE;
	return entry;
}

/*
 * Some records only waited for space.  If one had failed, that is its outcome;
 * a success that nobody was told of is none.
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

static void
damaged_slot(PaqReader *reader, PaqGap *gap)
{
	gap->from = reader->last_time;
	gap->to = PgStartTime;
	gap->count = -1;
	strlcpy(gap->message,
			"a pending slot of the audit queue is damaged; a statement that was being executed may be missing",
			sizeof(gap->message));
}

/*
 * Next record of the pending slots, or a gap.  After a crash of the operating
 * system slots may be anything, which another gap is about.
 */
PaqReadResult
paq_slots_next(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	uint64		end = (uint64) reader->qf->header->nslots * PAQ_SLOT_SIZE;

	while (reader->slot_cursor < end)
	{
		bool		damaged;
		PaqSlotEntry *entry = next_entry(reader, &damaged);
		PaqRecordHeader *header = entry ? entry_record(entry) : NULL;

		if (header != NULL && !is_pending(reader, entry))
			continue;
		if (header != NULL &&
			paq_reader_decode(reader, (char *) header, header->length, record))
		{
			mark_interrupted(reader, record);
			return PAQ_READ_RECORD;
		}
		if (reader->intact && (damaged || header != NULL))
		{
			damaged_slot(reader, gap);
			return PAQ_READ_GAP;
		}
	}
	return PAQ_READ_END;
}

/*
 * Frames between the two positions of the live file will never be committed,
 * because their processes are dead: what these have in their slots is pending
 * still, for the next start of the server to publish.  Their slots stay as
 * they are until then; in no other is there anything between these positions.
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

/* How many records are there from the slot cursor on? */
uint64
paq_slots_count(PaqReader *reader)
{
	uint64		end = (uint64) reader->qf->header->nslots * PAQ_SLOT_SIZE;
	uint64		save_cursor = reader->slot_cursor;
	uint64		count = 0;

	while (reader->slot_cursor < end)
	{
		bool		damaged;
		PaqSlotEntry *entry = next_entry(reader, &damaged);

		if (entry != NULL && entry_record(entry) != NULL &&
			is_pending(reader, entry))
			count++;
	}
	reader->slot_cursor = save_cursor;
	return count;
}
