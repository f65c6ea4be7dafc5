/*-------------------------------------------------------------------------
 *
 * pending.c
 *		Records of statements whose outcome is not known yet, and records of
 *		our own processes.
 *
 * A pending record is encoded once, into the backend's slot of the queue
 * file; there it gets its outcome, and from there it is copied into the ring.
 * If the server dies in between, recovery finds it in the slot.
 *
 * A record that does not fit into the slot - because of deep nesting, or a long
 * text - waits in local memory.  If the slot has space for it, an entry there
 * stands for the record: a shortened copy, or the record that it has replaced.
 * A record that is too large for the ring, or for what a session may have in its
 * memory, keeps its texts in a spill file; if that cannot be written, texts are
 * cut.
 *
 * Guarantees: an entry of the slot is valid only while it is complete and not in
 * the ring.  A crash never shows the change from one to the other half done: the
 * entry has the frame's position before the frame is committed, and recovery
 * takes the entry if and only if the frame is not committed.  The same goes for
 * a record that replaces another one: the old entry refers to the new one before
 * that becomes valid, and recovery takes the old one if and only if the new one
 * is not valid.
 *
 * Must not raise, except in paq_pending_publish() as documented there.
 *
 * Locking: none.  A slot belongs to the backend with that number.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>

#include "compat.h"
#include "fault.h"
#include "lib/ilist.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "replication/walsender.h"
#include "stats.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * How much of the slot, in bytes, is kept for the first record of what the client
 * has sent: a crash has to find it, however much of the slot open cursors, say,
 * have taken.
 */
#define KEPT_SPACE		1024

/*
 * If a session has more than MAX_LOCAL_BYTES of records in local memory, of open
 * cursors or of deeply nested statements, further records that are longer than
 * SHORT_RECORD have their texts in spill files, even if the ring would take them.
 */
#define MAX_LOCAL_BYTES		((Size) 4 * 1024 * 1024)
#define SHORT_RECORD		2048

PaqProducer paq_producer = {
	.entries = DLIST_STATIC_INIT(paq_producer.entries),
	.unused = DLIST_STATIC_INIT(paq_producer.unused)
};

int			paq_text_errno = 0;

/*
 * At exit, after everything has been published: the slot may soon belong to
 * another process.
 */
static void
detach(int code, Datum arg)
{
	PaqSlot    *slot = paq_producer.slot;

	slot->used = 0;
	paq_producer.slot = NULL;
	paq_producer.writer = NULL;
	paq_writer_reset(&slot->writer);
}

/*
 * Get this process a slot, if its kind has one, and let the worker know that
 * more records may come.  At a shutdown, the worker does not wait for walsenders,
 * which outlive it, nor for itself.  A client's process whose login fails early
 * has no PGPROC and hence no slot.
 */
static void
attach(void)
{
	int			number = paq_proc_number();
	bool		is_worker;

	if (number < 0)
		return;
	paq_producer.attached = true;
	paq_stats_attach(number);
	if (number >= (int) paq_live.header->nslots)
		return;
	is_worker = pg_atomic_read_u64(&paq_shared->worker_latch) ==
		(uintptr_t) MyLatch;
	paq_producer.slot = paq_slot(&paq_live, number);
	paq_producer.slot->used = 0;
	paq_writer_attach(paq_producer.slot, !am_walsender && !is_worker);
	paq_producer.writer = &paq_producer.slot->writer;
	on_shmem_exit(detach, (Datum) 0);
}

/*
 * The record would have size bytes, but may have max: shorten the text, and say
 * so in the header.
 */
static void
cut_text(PaqText *text, uint32 size, uint32 max, PaqRecordHeader *header)
{
	if (text->data == NULL || size <= max)
		return;
	text->len -= Min(size - max, text->len);
	header->flags |= PAQ_RECORD_CUT;
}

/*
 * Shorten the texts that can be long until the record has at most max bytes, or
 * nothing is left of them.
 */
static void
cut_texts(PaqText *statement, const PaqSessionBlock *session, uint32 max,
		  PaqRecordHeader *header)
{
	static const PaqField fields[] = {
		PAQ_FIELD_STATEMENT, PAQ_FIELD_OBJECT_NAME, PAQ_FIELD_OLD_VALUE,
		PAQ_FIELD_NEW_VALUE, PAQ_FIELD_SETTINGS
	};
	PaqText    *settings = &statement[PAQ_FIELD_SETTINGS - PAQ_NSESSION_FIELDS];

	/* The application must not be able to crowd the statement out. */
	if (paq_record_size(header->flags, session, statement) > max)
		cut_text(settings, settings->len, max / 4, header);

	for (int i = 0; i < lengthof(fields); i++)
	{
		/* The spill file has the statement. */
		if (fields[i] == PAQ_FIELD_STATEMENT &&
			(header->flags & PAQ_RECORD_SPILLED) != 0)
			continue;
		cut_text(&statement[fields[i] - PAQ_NSESSION_FIELDS],
				 paq_record_size(header->flags, session, statement), max,
				 header);
	}
}

/*
 * Shorten a record to at most max bytes, which are no more than the ring takes:
 * put its texts into a spill file, called name.  If that fails, cut them, and note
 * the reason in paq_text_errno.
 */
static void
shrink_texts(PaqRecordHeader *header, const PaqSessionBlock *session,
			 PaqText *statement, uint32 max, char *name)
{
	PaqText    *text = &statement[PAQ_FIELD_STATEMENT - PAQ_NSESSION_FIELDS];
	PaqText    *parameter = &statement[PAQ_FIELD_PARAMETER - PAQ_NSESSION_FIELDS];
	PaqText    *spill = &statement[PAQ_FIELD_SPILL - PAQ_NSESSION_FIELDS];

	if (text->data == NULL && parameter->data == NULL)
	{
		/* There is no text for a file. */
	}
	else if (paq_spill_write(name, PAQ_SPILL_NAME_LEN, text, parameter))
	{
		header->flags |= PAQ_RECORD_SPILLED;
		spill->data = name;
		spill->len = strlen(name);
	}
	else
	{
		paq_text_errno = errno;
		if (parameter->data != NULL)
		{
			paq_set_text(statement, PAQ_FIELD_PARAMETER, NULL);
			header->flags |= PAQ_RECORD_CUT;
		}
		cut_text(text, paq_record_size(header->flags, session, statement), max,
				 header);
	}
	cut_texts(statement, session, paq_ring_max_record(), header);
}

/* A struct for a pending record; NULL when out of memory. */
static PaqPending *
new_pending(void)
{
	PaqPending *pending;

	if (!dlist_is_empty(&paq_producer.unused))
		pending = dlist_container(PaqPending, slot_node,
								  dlist_pop_head_node(&paq_producer.unused));
	else
		pending = MemoryContextAllocExtended(TopMemoryContext, sizeof(PaqPending),
											 MCXT_ALLOC_NO_OOM);
	if (pending != NULL)
	{
		pending->entry = NULL;
		pending->record = NULL;
		pending->local = NULL;
		pending->done = false;
		pending->node.next = NULL;
		pending->choice = NULL;
		pending->mode = -1;
		pending->must_keep = false;
	}
	return pending;
}

/* How much of the slot is left, in bytes? */
static inline uint32
space_in_slot(void)
{
	PaqSlot    *slot = paq_producer.slot;

	return slot ? sizeof(slot->entries) - slot->used : 0;
}

/*
 * Give the record len bytes at the end of the slot, if there is that much space,
 * and "keep" bytes more.
 */
static bool
place_in_slot(PaqPending *pending, uint32 len, uint32 keep)
{
	uint32		size = TYPEALIGN(8, sizeof(PaqSlotEntry) + len);
	PaqSlot    *slot = paq_producer.slot;
	PaqSlotEntry *entry;

	if (size + keep > space_in_slot())
		return false;
	entry = (PaqSlotEntry *) (slot->entries + slot->used);
	entry->size = size;
	entry->valid = 0;
	entry->published_at = 0;
	entry->successor = 0;

	/*
	 * An entry must be seen to be invalid before "used" includes it.  That is
	 * for recovery only, which sees our stores in order.
	 */
	pg_write_barrier();
	slot->used += size;
	pending->entry = entry;
	dlist_push_tail(&paq_producer.entries, &pending->slot_node);
	return true;
}

/* The record is in that local memory from now on, NULL for none. */
static void
set_local(PaqPending *pending, char *memory)
{
	if (pending->local != NULL)
	{
		paq_producer.local_bytes -= GetMemoryChunkSpace(pending->local);
		pfree(pending->local);
	}
	if (memory != NULL)
		paq_producer.local_bytes += GetMemoryChunkSpace(memory);
	pending->record = pending->local = memory;
}

/*
 * The entry's record is complete, with crc for its fields: from now on recovery
 * takes it instead of the one that is replaced, which may be NULL.
 */
static void
make_valid(PaqPending *pending, pg_crc32c crc, PaqPending *replaced)
{
	pending->entry->crc = crc;
	if (unlikely(replaced != NULL && replaced->entry != NULL))
		replaced->entry->successor = (char *) pending->entry - paq_producer.slot->entries;
	pg_write_barrier();			/* recovery sees our stores in order */
	pending->entry->valid = 1;
}

/*
 * Take back the last entry of the slot; its struct, too, if that is done.  If
 * not, its record is in local memory, and nothing stands for it any more.
 */
static inline void
take_back(PaqSlot *slot, PaqPending *last, bool done)
{
	slot->used -= last->entry->size;
	dlist_delete(&last->slot_node);
	if (done)
		dlist_push_head(&paq_producer.unused, &last->slot_node);
	else
		last->entry = NULL;
}

/*
 * The first record of what the client has sent needs a place: take back the
 * entries that reach into the space kept for it.  Only entries that stand for
 * records in local memory may do so.  These were first in a portal that is
 * suspended, or in an outer statement that has no record itself.
 */
static void
free_kept_space(PaqPending *replaced)
{
	while (space_in_slot() < KEPT_SPACE && !dlist_is_empty(&paq_producer.entries))
	{
		PaqPending *last = dlist_tail_element(PaqPending, slot_node,
											  &paq_producer.entries);

		if (last == replaced || (last->local == NULL && !last->done))
			break;
		/* analyzer: what is in the list has an entry */
		last->entry->valid = 0;
		take_back(paq_producer.slot, last, last->done);
	}
}

/*
 * Bytes that an entry with a short copy may have: half of the space that is left,
 * because others may come.
 */
static uint32
space_for_copy(bool first, PaqPending *replaced)
{
	uint32		space;

	if (first && paq_producer.slot != NULL)
		free_kept_space(replaced);
	space = space_in_slot();
	if (first && space <= 3 * KEPT_SPACE)
		return Min(space, KEPT_SPACE);
	return space <= KEPT_SPACE ? 0 : (space - KEPT_SPACE) / 2;
}

/*
 * The record is in local memory, which a crash loses: put a shortened copy into
 * the slot, if there is space.  It stands for the record until that is in the
 * ring.
 */
static void
place_short_copy(PaqPending *pending, const PaqRecordHeader *header,
				 const PaqSessionBlock *session, const PaqText *statement,
				 bool first, PaqPending *replaced)
{
	PaqText		short_statement[PAQ_NSTATEMENT_FIELDS];
	PaqRecordHeader short_header = *header;
	uint32		space = space_for_copy(first, replaced) & ~(uint32) 7;
	uint32		size;

	if (space < sizeof(PaqSlotEntry) + PAQ_RECORD_HEADER_SIZE)
		return;
	space -= sizeof(PaqSlotEntry);

	memcpy(short_statement, statement, sizeof(short_statement));
	paq_set_text(short_statement, PAQ_FIELD_PARAMETER, NULL);
	short_header.flags |= PAQ_RECORD_CUT;
	cut_texts(short_statement, session, space, &short_header);
	size = paq_record_size(short_header.flags, session, short_statement);
	if (size > space || !place_in_slot(pending, size, 0))
		return;
	paq_record_encode((char *) (pending->entry + 1), &short_header, session,
					  short_statement);
	make_valid(pending, paq_fields_crc((char *) (pending->entry + 1), size),
			   replaced);
}

/* Does the record have its texts in a spill file?  Its name goes to *name. */
static bool
is_spilled(PaqPending *pending, PaqText *name)
{
	return paq_record_spill_name(pending->record,
								 paq_pending_header(pending)->length, name);
}

/*
 * Put the record into local memory, and see to what stands for it in the slot.
 * If it replaces another one that has an entry, that entry goes on standing for
 * it, unless that has a spill file, which is going to be removed.  Returns the
 * struct to go on with, that of *replaced then, which becomes NULL.  Returns NULL
 * if there is no memory.
 */
static PaqPending *
place_outside(PaqPending *pending, uint32 size, const PaqRecordHeader *header,
			  const PaqSessionBlock *session, const PaqText *statement,
			  bool first, PaqPending **replaced)
{
	char	   *memory = MemoryContextAllocExtended(TopMemoryContext, size,
											  MCXT_ALLOC_NO_OOM);
	PaqText		name;

	if (memory == NULL)
	{
		dlist_push_head(&paq_producer.unused, &pending->slot_node);
		return NULL;
	}
	if (*replaced != NULL && (*replaced)->entry != NULL &&
		!is_spilled(*replaced, &name))
	{
		dlist_push_head(&paq_producer.unused, &pending->slot_node);
		pending = *replaced;
		*replaced = NULL;
		set_local(pending, memory);
		return pending;
	}
	set_local(pending, memory);
	place_short_copy(pending, header, session, statement, first, *replaced);
	return pending;
}

/* There is no memory for a record.  It is lost, unless it was to replace another. */
static PaqPending *
out_of_memory(PaqPending *replaced)
{
	if (replaced == NULL)
		paq_queue_note_drop(PAQ_DROP_MEMORY, 1);
	return NULL;
}

/*
 * Encode a record into the pending area: header (everything but its lengths),
 * the session's block, and PAQ_NSTATEMENT_FIELDS texts.  first: it is the first
 * record of what the client has sent, and a crash has to find it whatever else is
 * in the slot.  Text that cannot be kept is cut, and the record says so.
 *
 * If replaced is not NULL, the record takes the place of that one, which is
 * forgotten: whenever this process is killed, recovery finds one of them.  (Only
 * if the old one has a spill file, and the slot has no space for the new one,
 * recovery may find none.)
 *
 * Returns NULL when out of memory; then the record to be replaced is still there,
 * or else the loss has been counted.
 */
PaqPending *
paq_pending_replace(PaqPending *replaced, const PaqRecordHeader *header,
					const PaqSessionBlock *session, const PaqText *statement,
					bool first)
{
	uint32		size = paq_record_size(header->flags, session, statement);
	PaqPending *pending;
	PaqRecordHeader large_header;
	PaqText		large_statement[PAQ_NSTATEMENT_FIELDS];
	char		name[PAQ_SPILL_NAME_LEN];
	uint32		max = paq_ring_max_record();

	if (unlikely(!paq_producer.attached))
		attach();
	paq_ring_prefetch_position();
	pending = new_pending();
	if (pending == NULL)
		return out_of_memory(replaced);

	if (unlikely(paq_producer.local_bytes > MAX_LOCAL_BYTES))
		max = Min(max, SHORT_RECORD);
	if (unlikely(size > max))
	{
		large_header = *header;
		memcpy(large_statement, statement, sizeof(large_statement));
		shrink_texts(&large_header, session, large_statement, max, name);
		header = &large_header;
		statement = large_statement;
		size = paq_record_size(header->flags, session, statement);
	}

	if (likely(place_in_slot(pending, size, KEPT_SPACE)))
		pending->record = (char *) (pending->entry + 1);
	else
		pending = place_outside(pending, size, header, session, statement,
								first, &replaced);
	if (unlikely(pending == NULL))
	{
		if (header->flags & PAQ_RECORD_SPILLED)
			paq_spill_remove(name, strlen(name));
		return out_of_memory(replaced);
	}
	paq_record_encode(pending->record, header, session, statement);
	pending->crc = paq_fields_crc(pending->record, size);
	if (pending->local == NULL)
		make_valid(pending, pending->crc, replaced);
	paq_ring_prefetch_frame(size);
	if (unlikely(replaced != NULL))
	{
		pg_write_barrier();		/* recovery sees our stores in order */
		(void) PAQ_FAULT("pending-replaced");
		paq_pending_free(replaced);
	}
	return pending;
}

/*
 * Add an error message to a pending record that has none.  It is cut to max bytes,
 * and to what the ring takes, and left out if there is no memory.  The record is
 * then in local memory; its entry in the slot, if there is one, stands for it.
 */
void
paq_pending_add_message(PaqPending *pending, const char *message, uint32 max)
{
	PaqRecordHeader *header = paq_pending_header(pending);
	uint32		space = Min(max, paq_ring_max_record() - header->length);
	uint32		len = strlen(message);
	bool		cut = len > space;
	char	   *copy;

	Assert(header->length <= paq_ring_max_record());
	Assert(header->field_len[PAQ_FIELD_MESSAGE] == PAQ_NULL_LEN);
	if (cut)
		len = pg_encoding_mbcliplen(header->encoding, message, len, space);
	copy = MemoryContextAllocExtended(TopMemoryContext, header->length + len,
									  MCXT_ALLOC_NO_OOM);
	if (copy == NULL)
		return;
	memcpy(copy, pending->record, header->length);
	paq_record_add_message(copy, message, len);
	COMP_CRC32C(pending->crc, message, len);
	if (cut)
		((PaqRecordHeader *) copy)->flags |= PAQ_RECORD_CUT;
	set_local(pending, copy);
}

/*
 * Read a pending record, to be changed; paq_pending_rewrite() must follow.  Returns
 * false if that cannot be done: without memory, or if its spill file cannot be read.
 */
bool
paq_pending_open(PaqPending *pending, PaqContents *contents)
{
	const uint32 len = paq_pending_header(pending)->length;
	PaqText		name;

	contents->spill = NULL;
	contents->spill_size = 0;
	if (is_spilled(pending, &name) &&
		!paq_spill_map(&name, &contents->spill, &contents->spill_size))
		return false;
	contents->copy = MemoryContextAllocExtended(TopMemoryContext, len, MCXT_ALLOC_NO_OOM);
	if (contents->copy != NULL)
	{
		memcpy(contents->copy, pending->record, len);
		if (paq_record_decode(contents->copy, len, contents->spill, contents->spill_size,
							  &contents->record))
			return true;
		pfree(contents->copy);
	}
	if (contents->spill != NULL)
		munmap(contents->spill, contents->spill_size);
	return false;
}

/* The session's block of a record whose fields are in that memory */
static void
get_session_block(const PaqContents *contents, PaqSessionBlock *session)
{
	session->length = 0;
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
	{
		session->field_len[i] = contents->record.header.field_len[i];
		if (session->field_len[i] != PAQ_NULL_LEN)
			session->length += session->field_len[i];
	}
	session->data = contents->copy + PAQ_RECORD_HEADER_SIZE;
}

/*
 * Put a record with these contents, whose flags and texts may have been changed, in the
 * place of the pending one, and in its list.  Returns it, or without memory the pending
 * one as it is, marked as incomplete.
 */
PaqPending *
paq_pending_rewrite(PaqPending *pending, PaqContents *contents)
{
	PaqRecordHeader *header = &contents->record.header;
	const PaqPending old = *pending;
	PaqPending *result;
	PaqSessionBlock session;

	/* It gets another spill file if it needs one. */
	header->flags &= ~PAQ_RECORD_SPILLED;
	contents->record.field[PAQ_FIELD_SPILL].data = NULL;
	contents->record.field[PAQ_FIELD_SPILL].len = 0;
	get_session_block(contents, &session);
	result = paq_pending_replace(pending, header, &session,
								 &contents->record.field[PAQ_NSESSION_FIELDS], false);
	pfree(contents->copy);
	if (contents->spill != NULL)
		munmap(contents->spill, contents->spill_size);
	if (result == NULL)
	{
		paq_pending_header(pending)->flags |= PAQ_RECORD_INCOMPLETE;
		return pending;
	}
	if (result != pending)
	{
		result->late_ids = old.late_ids;
		result->has_rows = old.has_rows;
		result->is_call = old.is_call;
		result->choice = old.choice;
		result->mode = old.mode;
		result->must_keep = old.must_keep;
		if (old.node.next != NULL)
			dlist_insert_before(old.node.next, &result->node);
	}
	return result;
}

/*
 * The record's outcome, or more of it, is known, but the record may have to wait
 * for space in the queue: copy that to the entry that stands for it in the slot.
 */
void
paq_pending_keep(PaqPending *pending)
{
	const PaqRecordHeader *from = (PaqRecordHeader *) pending->record;
	const uint32 flags = PAQ_RECORD_INTERRUPTED | PAQ_RECORD_INCOMPLETE |
		PAQ_RECORD_NO_OUTCOME;
	PaqRecordHeader *to;

	if (likely(pending->local == NULL) || pending->entry == NULL ||
		paq_producer.slot == NULL)
		return;
	to = (PaqRecordHeader *) (pending->entry + 1);
	to->flags |= from->flags & flags;
	to->end_time = from->end_time;
	to->statement_id = from->statement_id;
	to->substatement_id = from->substatement_id;
	to->session_line = from->session_line;
	pg_write_barrier();			/* recovery sees our stores in order; the next
								 * one says that the outcome is known */
	to->sqlstate = from->sqlstate;
}

/* Give back the record's memory and its place in the slot. */
static void
release_pending(PaqPending *pending)
{
	PaqSlot    *slot;

	paq_pending_unlink(pending);
	if (unlikely(pending->local != NULL))
		set_local(pending, NULL);
	slot = paq_producer.slot;
	if (pending->entry == NULL)
	{
		dlist_push_head(&paq_producer.unused, &pending->slot_node);
		return;
	}
	pending->done = true;

	/* Late in this process's exit the slot is not ours any more. */
	if (slot == NULL)
		return;
	pending->entry->valid = 0;
	while (!dlist_is_empty(&paq_producer.entries))
	{
		PaqPending *last = dlist_tail_element(PaqPending, slot_node,
											  &paq_producer.entries);

		if (!last->done)
			break;
		take_back(slot, last, true);
	}
}

/*
 * Forget a pending record, which is not to be published.  Its spill file is
 * removed last: as long as the slot has the record, recovery may need the file.
 */
void
paq_pending_free(PaqPending *pending)
{
	char		copy[PAQ_SPILL_NAME_LEN];
	PaqText		name;
	bool		spilled;

	spilled = is_spilled(pending, &name);
	if (spilled)
	{
		Assert(name.len <= sizeof(copy));
		memcpy(copy, name.data, name.len);
	}
	release_pending(pending);
	if (spilled)
		paq_spill_remove(copy, name.len);
}

static inline uint64
put_into_ring(PaqPending *pending, PaqSpaceWait wait)
{
	PaqSlotEntry *entry = pending->entry;

	return paq_ring_put(pending->record, paq_pending_header(pending)->length,
						pending->crc, wait, entry ? &entry->published_at : NULL);
}

/*
 * The record could not be put into the ring, of which pos is what paq_ring_put() says.
 * If there is no space, PAQ_SPACE_WAIT makes some as long as the overflow setting says
 * so.  Returns the record's position, or 0.  May raise an error, with nothing reserved.
 */
static pg_noinline uint64
put_later(PaqPending *pending, PaqSpaceWait wait, uint64 pos)
{
	const uint64 size = PAQ_FRAME_SIZE(paq_pending_header(pending)->length);

	while (pos == 0 && wait == PAQ_SPACE_WAIT && paq_make_space(size + paq_ring_reserve()))
		pos = put_into_ring(pending, wait);
	return pos == PAQ_POS_UNCLAIMED ? 0 : pos;
}

/*
 * Put the record into the queue and forget it here.  Returns the position to
 * wait for if the record has to be durable, or PAQ_POS_DROPPED if the record
 * was dropped, and counted, as the overflow setting says.
 *
 * Returns 0, with the record still pending, if wait is not PAQ_SPACE_WAIT and the
 * queue and its reserve are full (or there is no worker to make space); and in the
 * rare case of a process without a slot that is described at paq_ring_put().  With
 * PAQ_SPACE_WAIT it may raise an error instead; the record is still pending then,
 * too.
 */
uint64
paq_pending_publish(PaqPending *pending, PaqSpaceWait wait)
{
	uint64		pos;

	paq_pending_keep(pending);
	paq_producer.must_keep = pending->must_keep;
	pos = put_into_ring(pending, wait);
	if (unlikely(pos <= PAQ_POS_UNCLAIMED))
		pos = put_later(pending, wait, pos);
	if (likely(pos != 0))
		release_pending(pending);
	else if (paq_overflow == PAQ_OVERFLOW_DROP && wait != PAQ_SPACE_KEEP &&
			 !pending->must_keep)
	{
		/* Count first: if we die in between, the record may be counted and kept. */
		paq_queue_note_drop(PAQ_DROP_FULL, 1);
		paq_pending_free(pending);
		pos = PAQ_POS_DROPPED;
	}
	if (unlikely(paq_producer.filling))
		paq_warn_of_filling();
	return pos;
}

/* Fill in what every record has; the rest is 0, except for lengths of fields. */
void
paq_pending_init_header(PaqRecordHeader *header, PaqClass class, uint32 flags,
						TimestampTz start_time)
{
	memset(header, 0, offsetof(PaqRecordHeader, field_len));
	header->kind = PAQ_KIND_AUDIT;
	header->audit_class = class;
	header->flags = flags;
	header->start_time = start_time;
	header->session_start = MyStartTimestamp;
	header->rows = -1;
	header->vxid_proc = paq_vxid_proc();
	header->vxid_lxid = paq_vxid_lxid();
	header->pid = MyProcPid;
	header->encoding = GetDatabaseEncoding();
	header->stmt_location = -1;
}

/* Append a field to a session's block, with space for it. */
static void
add_session_field(PaqSessionBlock *session, char *data, PaqField field,
				  const char *value)
{
	session->field_len[field] = strlen(value);
	memcpy(data + session->length, value, strlen(value));
	session->length += strlen(value);
}

/*
 * Make a record, of class CONFIG, of what a process of our own has done: the
 * worker and the loader are not audited, but the trail has to report some of
 * their actions.  The process's type is process, and it is connected to database,
 * NULL for none; both are shorter than NAMEDATALEN.  The caller publishes the
 * record.  Returns NULL, after counting the loss, when out of memory.
 */
PaqPending *
paq_own_record(const char *process, const char *database, const PaqText *texts,
			   int sqlstate, int64 rows)
{
	static int64 session_lines = 0;
	PaqRecordHeader header;
	PaqSessionBlock session = {.length = 0};
	char		data[2 * NAMEDATALEN];

	paq_pending_init_header(&header, PAQ_CLASS_CONFIG, 0, GetCurrentTimestamp());
	header.end_time = header.start_time;
	header.sqlstate = sqlstate;
	header.session_line = ++session_lines;
	header.rows = rows;
	header.vxid_proc = -1;
	header.vxid_lxid = 0;

	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		session.field_len[i] = PAQ_NULL_LEN;
	session.data = data;
	if (database != NULL)
		add_session_field(&session, data, PAQ_FIELD_DATABASE, database);
	add_session_field(&session, data, PAQ_FIELD_BACKEND_TYPE, process);
	return paq_pending_create(&header, &session, texts, false);
}
