/*-------------------------------------------------------------------------
 *
 * slots.c
 *		Reading the pending slots of a queue file that a crash left.
 *
 * What is in a slot, has no good frame in the ring and was not replaced by
 * another entry was interrupted by the crash.  If the operating system went down
 * with it, a slot's pages may be from any time: then nobody knows whether the
 * statement ended after all, and the record says so.
 *
 * Locking: none; the worker is the only reader, and all writers are gone.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "queue/reader_internal.h"
#include "utils/timestamp.h"

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
