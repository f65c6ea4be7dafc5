/*-------------------------------------------------------------------------
 *
 * pending.c
 *		Records of statements whose outcome is not known yet.
 *
 * A pending record is encoded once, into the backend's slot of the queue
 * file; there it gets its outcome, and from there it is copied into the ring.
 * If the server dies in between, recovery finds it in the slot.  What does
 * not fit into the slot - deep nesting, a long text - waits in local memory,
 * and something that stands for it in the slot, as long as there is room: a
 * shortened copy, or the record that it has replaced.  What is too large for the
 * ring, or for what a session may have in its memory, keeps its texts in a spill
 * file.
 *
 * Guarantees: an entry of the slot is valid only while it is complete and
 * not in the ring.  The step from one to the other cannot be seen half done,
 * because the entry knows the frame's position before the frame is committed:
 * recovery takes the entry if and only if the frame is not.  Nor can that from
 * one record to another that takes its place (paq_pending_replace()): the old
 * entry knows the new one before that is valid, and counts only as long as it is
 * not.
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

#include "compat.h"
#include "fault.h"
#include "lib/ilist.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "queue/queue.h"
#include "queue/queue_internal.h"
#include "replication/walsender.h"
#include "stats.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 *		Making records fit that are too large: for the ring, or for the room that
 *		is left in a slot.
 *
 * Texts go to a spill file, or are cut.  Works on what a record is going to be
 * encoded from.
 *
 * Must not raise.
 *
 * Locking: none.
 */

int			paq_text_errno = 0;

/* Shorten the text by what the record is longer than max, and say so. */
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
 * they are gone; header says so then.
 */
void
paq_texts_cut(PaqText *statement, const PaqSessionBlock *session, uint32 max,
			  PaqRecordHeader *header)
{
	static const PaqField fields[] = {
		PAQ_FIELD_STATEMENT, PAQ_FIELD_OBJECT_NAME, PAQ_FIELD_OLD_VALUE,
		PAQ_FIELD_NEW_VALUE
	};

	for (int i = 0; i < lengthof(fields); i++)
	{
		/* A spill file has that one. */
		if (fields[i] == PAQ_FIELD_STATEMENT &&
			(header->flags & PAQ_RECORD_SPILLED) != 0)
			continue;
		cut_text(&statement[fields[i] - PAQ_NSESSION_FIELDS],
				 paq_record_size(header->flags, session, statement), max,
				 header);
	}
}

/*
 * Make a record fit that has more than max bytes, which are no more than the ring
 * takes: texts go to a spill file, named by name; if that fails, they are cut, and
 * paq_text_errno says why.
 */
void
paq_texts_shrink(PaqRecordHeader *header, const PaqSessionBlock *session,
				 PaqText *statement, uint32 max, char *name)
{
	PaqText    *text = &statement[PAQ_FIELD_STATEMENT - PAQ_NSESSION_FIELDS];
	PaqText    *parameter = &statement[PAQ_FIELD_PARAMETER - PAQ_NSESSION_FIELDS];
	PaqText    *spill = &statement[PAQ_FIELD_SPILL - PAQ_NSESSION_FIELDS];

	if (text->data == NULL && parameter->data == NULL)
	{
		/* There is nothing that a file could have. */
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
	paq_texts_cut(statement, session, paq_ring_max_record(), header);
}

/*
 * How much of the slot, in bytes, is kept for the first record of what the
 * client has sent: open cursors, say, must not keep that from being there.
 */
#define KEPT_SPACE		1024

/*
 * With so many bytes of records in local memory, of open cursors or of statements
 * deep in each other, the texts of others go to spill files even if the ring would
 * take them: of records that are longer than this.
 */
#define MAX_LOCAL_BYTES		((Size) 4 * 1024 * 1024)
#define SHORT_RECORD		2048

struct PaqPending
{
	dlist_node	node;			/* in slot_list or free_list */
	PaqSlotEntry *entry;		/* in the slot, or NULL */
	char	   *record;			/* the encoded record */
	char	   *local;			/* its memory, if it does not fit into the slot,
								 * where "entry" then is a short copy, or a
								 * record that this one has replaced */
	pg_crc32c	crc;			/* paq_fields_crc() of record */
	bool		done;			/* in slot_list, but the entry is free */
};

/* Entries of the slot in their order there, and unused structs. */
static dlist_head slot_list = DLIST_STATIC_INIT(slot_list);
static dlist_head free_list = DLIST_STATIC_INIT(free_list);

static Size local_bytes = 0;	/* of local memory */

static PaqSlot *my_slot = NULL;
static bool attached = false;

/*
 * At exit, after everything has been published.  The slot may soon be another
 * process's.
 */
static void
detach(int code, Datum arg)
{
	my_slot->used = 0;
	paq_writer_detach(my_slot);
	my_slot = NULL;
}

/* Is this process the one that takes records off the queue? */
static bool
is_worker(void)
{
	return pg_atomic_read_u64(&paq_shared->worker_latch) == (uintptr_t) MyLatch;
}

/*
 * Get this process a slot, if its kind has one, and let the worker know that
 * more records may come.  The worker does not wait for walsenders at
 * shutdown, because they outlive it, nor for itself.  A client's process whose
 * login fails early has no PGPROC and hence no slot.
 */
void
paq_pending_attach(void)
{
	int			number;

	if (likely(attached))
		return;
	number = paq_proc_number();
	if (number < 0)
		return;
	attached = true;
	paq_stats_attach(number);
	if (number >= (int) paq_live.header->nslots)
		return;
	my_slot = (PaqSlot *) (paq_live.slots + (Size) number * PAQ_SLOT_SIZE);
	my_slot->used = 0;
	paq_writer_attach(my_slot, !am_walsender && !is_worker());
	on_shmem_exit(detach, (Datum) 0);
}

/* A struct for a pending record; NULL when out of memory. */
static PaqPending *
new_pending(void)
{
	PaqPending *pending;

	if (!dlist_is_empty(&free_list))
		pending = dlist_container(PaqPending, node, dlist_pop_head_node(&free_list));
	else
		pending = MemoryContextAllocExtended(TopMemoryContext, sizeof(PaqPending),
											 MCXT_ALLOC_NO_OOM);
	if (pending != NULL)
	{
		pending->entry = NULL;
		pending->record = NULL;
		pending->local = NULL;
		pending->done = false;
	}
	return pending;
}

/* How much of the slot is left, in bytes? */
static inline uint32
space_in_slot(void)
{
	return my_slot ? sizeof(my_slot->entries) - my_slot->used : 0;
}

/*
 * Give it len bytes at the end of the slot, if there is that much space, and
 * "keep" bytes beyond that.
 */
static bool
place_in_slot(PaqPending *pending, uint32 len, uint32 keep)
{
	uint32		size = TYPEALIGN(8, sizeof(PaqSlotEntry) + len);
	PaqSlotEntry *entry;

	if (size + keep > space_in_slot())
		return false;
	entry = (PaqSlotEntry *) (my_slot->entries + my_slot->used);
	entry->size = size;
	entry->valid = 0;
	entry->published_at = 0;
	entry->successor = 0;

	/*
	 * An entry must be recognizably invalid before "used" includes it.  For
	 * recovery only, which sees our stores in order.
	 */
	pg_write_barrier();
	my_slot->used += size;
	pending->entry = entry;
	dlist_push_tail(&slot_list, &pending->node);
	return true;
}

/* The record is in that memory from now on, NULL for none, and no other. */
static void
set_local(PaqPending *pending, char *memory)
{
	if (pending->local != NULL)
	{
		local_bytes -= GetMemoryChunkSpace(pending->local);
		pfree(pending->local);
	}
	if (memory != NULL)
		local_bytes += GetMemoryChunkSpace(memory);
	pending->record = pending->local = memory;
}

static bool
place_in_memory(PaqPending *pending, uint32 len)
{
	pending->record = NULL;
	set_local(pending, MemoryContextAllocExtended(TopMemoryContext, len,
												  MCXT_ALLOC_NO_OOM));
	return pending->local != NULL;
}

/*
 * The entry's record is complete, with crc for its fields: recovery may take it
 * from now on, and not that of replaced any more, which may be NULL.
 */
static void
make_valid(PaqPending *pending, pg_crc32c crc, PaqPending *replaced)
{
	pending->entry->crc = crc;
	if (unlikely(replaced != NULL && replaced->entry != NULL))
		replaced->entry->successor = (char *) pending->entry - my_slot->entries;
	pg_write_barrier();			/* recovery sees our stores in order */
	pending->entry->valid = 1;
}

/*
 * Only what stands for records in local memory reaches into the space that is
 * kept, if anything does: take that back.  It was the first of something that is
 * suspended, or of an outer statement that has no record itself.
 */
static void
free_kept_space(PaqPending *replaced)
{
	while (space_in_slot() < KEPT_SPACE && !dlist_is_empty(&slot_list))
	{
		PaqPending *last = dlist_tail_element(PaqPending, node, &slot_list);

		if (last == replaced || (last->local == NULL && !last->done))
			break;
		last->entry->valid = 0;
		my_slot->used -= last->entry->size;
		last->entry = NULL;
		dlist_delete(&last->node);
		if (last->done)
			dlist_push_head(&free_list, &last->node);
	}
}

/* Bytes that an entry with a short copy may have. */
static uint32
room_for_copy(bool first, PaqPending *replaced)
{
	uint32		space;

	if (first && my_slot != NULL)
		free_kept_space(replaced);
	space = space_in_slot();
	if (first)
		return space <= 3 * KEPT_SPACE ? Min(space, KEPT_SPACE) :
			(space - KEPT_SPACE) / 2;
	return space <= KEPT_SPACE ? 0 : (space - KEPT_SPACE) / 2;
}

/*
 * The record is kept in local memory, which a crash loses: put a copy into the
 * slot that is shortened to fit, in half of the space that is left, because
 * others may come.  It stands for the record until that is in the ring.
 */
static void
place_short_copy(PaqPending *pending, const PaqRecordHeader *header,
				 const PaqSessionBlock *session, const PaqText *statement,
				 bool first, PaqPending *replaced)
{
	PaqText		short_statement[PAQ_NSTATEMENT_FIELDS];
	PaqRecordHeader short_header = *header;
	uint32		room = room_for_copy(first, replaced);
	uint32		size;

	room &= ~(uint32) 7;
	if (room < sizeof(PaqSlotEntry) + sizeof(PaqRecordHeader))
		return;
	room -= sizeof(PaqSlotEntry);

	memcpy(short_statement, statement, sizeof(short_statement));
	paq_set_text(short_statement, PAQ_FIELD_PARAMETER, NULL);
	short_header.flags |= PAQ_RECORD_CUT;
	paq_texts_cut(short_statement, session, room, &short_header);
	size = paq_record_size(short_header.flags, session, short_statement);
	if (size > room || !place_in_slot(pending, size, 0))
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
 * The record is in local memory and takes the place of another, whose entry in
 * the slot goes on standing for it.  Returns the struct to go on with, or NULL
 * if there is no such entry; or if it has a spill file, which will go.
 */
static PaqPending *
inherit_entry(PaqPending *pending, PaqPending *replaced)
{
	PaqText		name;

	if (replaced == NULL || replaced->entry == NULL || is_spilled(replaced, &name))
		return NULL;
	set_local(replaced, NULL);
	replaced->record = replaced->local = pending->local;
	dlist_push_head(&free_list, &pending->node);
	return replaced;
}

/*
 * Find local memory for a record of that size, and see to what stands for it in
 * the slot.  Returns the struct to go on with, NULL if there is no memory;
 * *replaced is NULL if what stands for the record is what it was.
 */
static PaqPending *
place_outside(PaqPending *pending, uint32 size, const PaqRecordHeader *header,
			  const PaqSessionBlock *session, const PaqText *statement,
			  bool first, PaqPending **replaced)
{
	PaqPending *heir;

	if (!place_in_memory(pending, size))
	{
		dlist_push_head(&free_list, &pending->node);
		return NULL;
	}
	heir = inherit_entry(pending, *replaced);
	if (heir != NULL)
	{
		*replaced = NULL;
		return heir;
	}
	place_short_copy(pending, header, session, statement, first, *replaced);
	return pending;
}

/* There is no memory for a record, which is lost unless it was to replace one. */
static PaqPending *
out_of_memory(PaqPending *replaced)
{
	if (replaced == NULL)
		paq_queue_note_drop(PAQ_DROP_MEMORY, 1);
	return NULL;
}

/* See paq_pending_create() and paq_pending_replace(); replaced may be NULL. */
static PaqPending *
create_pending(const PaqRecordHeader *header, const PaqSessionBlock *session,
			   const PaqText *statement, bool first, PaqPending *replaced)
{
	uint32		size = paq_record_size(header->flags, session, statement);
	PaqPending *pending;
	PaqRecordHeader large_header;
	PaqText		large_statement[PAQ_NSTATEMENT_FIELDS];
	char		name[PAQ_SPILL_NAME_LEN];
	uint32		max = paq_ring_max_record();

	paq_pending_attach();
	paq_ring_prefetch_position();
	pending = new_pending();
	if (pending == NULL)
		return out_of_memory(replaced);

	if (unlikely(local_bytes > MAX_LOCAL_BYTES))
		max = Min(max, SHORT_RECORD);
	if (unlikely(size > max))
	{
		large_header = *header;
		memcpy(large_statement, statement, sizeof(large_statement));
		paq_texts_shrink(&large_header, session, large_statement, max, name);
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
 * Encode a record into the pending area: header (everything but its lengths),
 * the session's block, and PAQ_NSTATEMENT_FIELDS texts.  first: it is the first
 * of what the client has sent, and a crash is to find it whatever else is there.
 * Text that cannot be kept is cut, and the record says so.  Returns NULL, after
 * counting the loss, only if there is no memory at all.
 */
PaqPending *
paq_pending_create(const PaqRecordHeader *header,
				   const PaqSessionBlock *session, const PaqText *statement,
				   bool first)
{
	return create_pending(header, session, statement, first, NULL);
}

/*
 * The same, in place of a pending record, which is forgotten: whenever this
 * process is killed, recovery finds one of them.  (Only where that has a spill
 * file, and the slot has no room for what has not, it may find none.)  Returns
 * NULL when out of memory; then that one is still there, and nothing counts as
 * lost.
 */
PaqPending *
paq_pending_replace(PaqPending *pending, const PaqRecordHeader *header,
					const PaqSessionBlock *session, const PaqText *statement,
					bool first)
{
	return create_pending(header, session, statement, first, pending);
}

/* The header of a pending record, to note what has become known since. */
PaqRecordHeader *
paq_pending_header(PaqPending *pending)
{
	return (PaqRecordHeader *) pending->record;
}

/*
 * Add an error message to a pending record that has none; cut to max bytes, or
 * if the record would get too long for the ring; left out, if there is no memory.
 *
 * The longer record is put into local memory: what the slot has, if it has
 * anything, goes on standing for it there.
 */
void
paq_pending_add_message(PaqPending *pending, const char *message, uint32 max)
{
	PaqRecordHeader *header = paq_pending_header(pending);
	uint32		room = Min(max, paq_ring_max_record() - header->length);
	uint32		len = strlen(message);
	bool		cut = len > room;
	char	   *copy;

	Assert(header->length <= paq_ring_max_record());
	Assert(header->field_len[PAQ_FIELD_MESSAGE] == PAQ_NULL_LEN);
	if (cut)
		len = pg_encoding_mbcliplen(header->encoding, message, len, room);
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
 * The record's outcome is known, or more of it, but it may have to wait for room
 * in the queue: what stands for it in the slot learns that, too.
 */
void
paq_pending_keep(PaqPending *pending)
{
	const PaqRecordHeader *from = (PaqRecordHeader *) pending->record;
	const uint32 flags = PAQ_RECORD_INTERRUPTED | PAQ_RECORD_INCOMPLETE |
		PAQ_RECORD_NO_OUTCOME;
	PaqRecordHeader *to;

	if (likely(pending->local == NULL) || pending->entry == NULL ||
		my_slot == NULL)
		return;
	to = (PaqRecordHeader *) (pending->entry + 1);
	to->flags |= from->flags & flags;
	to->end_time = from->end_time;
	to->statement_id = from->statement_id;
	to->substatement_id = from->substatement_id;
	to->session_line = from->session_line;
	pg_write_barrier();			/* recovery sees our stores in order, and takes
								 * this one for the outcome */
	to->sqlstate = from->sqlstate;
}

/*
 * Take back the space of entries at the end of the slot that are done, and
 * their structs.
 */
static void
trim_slot(void)
{
	while (!dlist_is_empty(&slot_list))
	{
		PaqPending *last = dlist_tail_element(PaqPending, node, &slot_list);

		if (!last->done)
			break;
		my_slot->used -= last->entry->size;
		dlist_delete(&last->node);
		dlist_push_head(&free_list, &last->node);
	}
}

/* Give back the record's memory and, if in use, its place in the slot. */
static void
release_pending(PaqPending *pending)
{
	if (unlikely(pending->local != NULL))
		set_local(pending, NULL);
	if (pending->entry != NULL)
	{
		pending->done = true;

		/* Late in this process's exit the slot is not ours any more. */
		if (my_slot != NULL)
		{
			pending->entry->valid = 0;
			trim_slot();
		}
		return;
	}
	dlist_push_head(&free_list, &pending->node);
}

/*
 * Forget a pending record that shall not be published.  Its spill file goes
 * last: while the slot has the record, recovery may need it.
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

/*
 * Put the record into the queue and forget it here.  Returns the position to
 * wait for if the record has to be durable, or PAQ_POS_DROPPED if the record
 * was dropped, and counted, as the overflow setting says.  Returns 0, with the
 * record still pending, if wait is not PAQ_SPACE_WAIT and the queue and its
 * reserve are full (or there is no worker to make space); and, in a process
 * without slot, in the rare case described at paq_ring_put().  With
 * PAQ_SPACE_WAIT an error may be raised instead; the record then is still
 * pending, too.
 */
uint64
paq_pending_publish(PaqPending *pending, PaqSpaceWait wait)
{
	const uint32 len = paq_pending_header(pending)->length;
	PaqSlotEntry *entry = pending->entry;
	uint64		pos;

	paq_pending_keep(pending);
	pos = paq_ring_put(pending->record, len, pending->crc, wait,
					   entry ? &entry->published_at : NULL);
	if (likely(pos != 0))
		release_pending(pending);
	else if (paq_overflow == PAQ_OVERFLOW_DROP && wait != PAQ_SPACE_KEEP)
	{
		/* Should we die in between: rather counted and recorded than neither. */
		paq_queue_note_drop(PAQ_DROP_FULL, 1);
		paq_pending_free(pending);
		pos = PAQ_POS_DROPPED;
	}
	if (unlikely(paq_ring_filling))
		paq_warn_of_filling();
	return pos;
}

/*
 *		Records of what our own processes do, class CONFIG.
 *
 * The worker and the loader are not audited, but of some things that they do
 * the trail has to tell.  Of the session's fields they have hardly any.
 *
 * Must not raise.
 *
 * Locking: none.
 */

static int64 session_lines = 0;

static void
fill_header(PaqRecordHeader *header, int sqlstate, int64 rows)
{
	memset(header, 0, sizeof(*header));
	header->kind = PAQ_KIND_AUDIT;
	header->audit_class = PAQ_CLASS_CONFIG;
	header->sqlstate = sqlstate;
	header->start_time = header->end_time = GetCurrentTimestamp();
	header->session_line = ++session_lines;
	header->session_start = MyStartTimestamp;
	header->rows = rows;
	header->vxid_proc = -1;
	header->pid = MyProcPid;
	header->encoding = GetDatabaseEncoding();
	header->stmt_location = -1;
}

/* data must hold what is put there; database comes before process in a record. */
static void
fill_session(PaqSessionBlock *session, char *data, const char *process,
			 const char *database)
{
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		session->field_len[i] = PAQ_NULL_LEN;
	session->data = data;
	session->length = 0;
	if (database != NULL)
	{
		session->length = strlen(database);
		session->field_len[PAQ_FIELD_DATABASE] = session->length;
		memcpy(data, database, session->length);
	}
	session->field_len[PAQ_FIELD_BACKEND_TYPE] = strlen(process);
	memcpy(data + session->length, process, strlen(process));
	session->length += strlen(process);
}

/*
 * A record of this process, whose type is process, and which is connected to
 * database, NULL for none; both are shorter than NAMEDATALEN.  To be published by
 * the caller.  Returns NULL, after counting the loss, when out of memory.
 */
PaqPending *
paq_own_record(const char *process, const char *database, const PaqText *texts,
			   int sqlstate, int64 rows)
{
	PaqRecordHeader header;
	PaqSessionBlock session;
	char		data[2 * NAMEDATALEN];

	fill_header(&header, sqlstate, rows);
	fill_session(&session, data, process, database);
	return paq_pending_create(&header, &session, texts, false);
}
