/*-------------------------------------------------------------------------
 *
 * producer.c
 *		A session: puts records into the queue and keeps its account.
 *
 * Each step with a record is noted in the account before it is done.  So after
 * the producer's death at any moment the account tells which records may, and
 * which must, be in the trail.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "stress.h"

#include <sched.h>
#include <unistd.h>

#include "fault.h"

/* Deepest nesting of statements, and how much their messages may have */
#define MAX_DEPTH	6
#define MAX_MESSAGE	2000

/*
 * With that much free space in its slot, a record has a copy there; one that is
 * the first of what a client has sent always has.  Bytes
 */
#define ENOUGH_SPACE	(1200 + 1024)

/* A consumer that has not moved for that long sleeps too well; s */
#define SLEEP_LIMIT	20

static uint32 me;
static uint64 my_life;
static Account *account;
static bool have_slot;
static char direct_record[512 * 1024];

static void
set_state(uint64 id, RecordState state)
{
	volatile uint8 *where = &stress->state[me][id];

	pg_write_barrier();
	*where = state;
	pg_write_barrier();
}

/* Many short texts, few long ones, sometimes one for a spill file. */
static uint32
random_size(uint32 max)
{
	uint32		bits = stress_random(32);
	uint32		limit;

	if (bits < 20)
		limit = 200;
	else if (bits < 27)
		limit = max / 4;
	else
		limit = max;
	return stress_random(Min(limit, max) + 1);
}

/*
 * Sizes for a record that has at most max bytes in the ring.  With spill, its
 * texts may be longer, and it then names a spill file.
 */
static Sizes
random_sizes(uint32 max, bool spill)
{
	uint32		space = max - PAQ_RECORD_HEADER_SIZE;
	Sizes		sizes;

	if (stress->frame_size != 0)
	{
		sizes.session = -1;
		sizes.command = 0;
		sizes.parameter = PAQ_NULL_LEN;
		sizes.statement = stress->frame_size - sizeof(PaqFrame) - PAQ_RECORD_HEADER_SIZE;
		return sizes;
	}
	sizes.session = space > 1000 && stress_chance(80) ? (int) stress_random(9) : -1;
	sizes.command = space > 1000 ? stress_random(20) : stress_random(8);
	space -= sizes.command + (sizes.session < 0 ? 0 : 9 * PAQ_NSESSION_FIELDS);
	if (spill && stress_random(60) == 0)
		space *= 2;
	sizes.parameter = PAQ_NULL_LEN;
	if (stress_chance(30))
	{
		sizes.parameter = random_size(space / 2);
		space -= sizes.parameter;
	}
	sizes.statement = random_size(space);
	return sizes;
}

static PaqSlot *
my_slot(void)
{
	return (PaqSlot *) (paq_live.slots + (Size) me * PAQ_SLOT_SIZE);
}

/* Note how our slot has the record with this number. */
static void
note_copy(uint64 id)
{
	PaqSlot    *slot = my_slot();
	uint32		offset = 0;
	uint8		copy = 0;

	while (offset < slot->used)
	{
		PaqSlotEntry *entry = (PaqSlotEntry *) (slot->entries + offset);
		PaqRecordHeader *header = (PaqRecordHeader *) (entry + 1);

		if (entry->valid == 1 && header->statement_id == (int64) id)
			copy = COPY_IN_SLOT |
				(header->flags & PAQ_RECORD_CUT ? COPY_IS_CUT : 0);
		offset += entry->size;
	}
	stress->copy[me][id] = copy;
}

/* Other records that are pending; their copies may give way to a new one. */
typedef struct Others
{
	const uint64 *id;
	int			number;
} Others;

/* Before a record that is "first" is made: one of them may give way, any one. */
static void
forget_copies(const Others *others, bool first, uint8 *saved)
{
	for (int i = 0; i < others->number; i++)
	{
		saved[i] = stress->copy[me][others->id[i]];
		if (first)
			stress->copy[me][others->id[i]] &= ~COPY_IN_SLOT;
	}
}

static void
note_copies(const Others *others, bool first, const uint8 *saved)
{
	int			gone = 0;

	for (int i = 0; have_slot && i < others->number; i++)
	{
		note_copy(others->id[i]);
		if (saved[i] & ~stress->copy[me][others->id[i]] & COPY_IN_SLOT)
			gone++;
	}
	if (gone > (first ? 1 : 0))
		stress_fail("%d records of producer %u have left its slot for another", gone, me);
}

/*
 * More is known about a record than before.  Texts in a spill file leave with
 * it, and the new record has to find space of its own.
 */
static PaqPending *
replace(PaqPending *pending, uint64 id, const Others *others)
{
	const bool	spill = paq_live.ring_size >= 16384;
	Sizes		sizes = random_sizes(paq_ring_max_record(), spill);
	const bool	spilled =
		(paq_pending_header(pending)->flags & PAQ_RECORD_SPILLED) != 0;
	const bool	first = others->number == 0 || stress_chance(50);
	uint8		saved[MAX_DEPTH];
	const bool	was_kept = (stress->copy[me][id] & COPY_IN_SLOT) != 0;
	PaqRecordHeader header;
	PaqSessionBlock session;
	PaqText		statement[PAQ_NSTATEMENT_FIELDS];
	PaqPending *new;

	if (spilled && (!have_slot || my_slot()->used + ENOUGH_SPACE >= PAQ_SLOT_SIZE))
		return pending;
	forget_copies(others, first, saved);
	set_state(id, STATE_REPLACING);
	stress_make_record(me, id, my_life, &sizes, &header, &session, statement);
	stress_window(true);
	new = paq_pending_replace(pending, &header, &session, statement, first);
	stress_window(false);
	note_copies(others, first, saved);
	if (have_slot)
		note_copy(id);
	if (was_kept && (stress->copy[me][id] & COPY_IN_SLOT) == 0)
		stress_fail("record %llu of producer %u was replaced, and is not in its slot any more",
					(unsigned long long) id, me);
	set_state(id, STATE_PENDING);
	return new != NULL ? new : pending;
}

/* Begin a statement, beside those that have begun before. */
static PaqPending *
create(uint64 *id, const Others *others)
{
	bool		spill = paq_live.ring_size >= 16384;
	Sizes		sizes = random_sizes(paq_ring_max_record(), spill);
	PaqRecordHeader header;
	PaqSessionBlock session;
	PaqText		statement[PAQ_NSTATEMENT_FIELDS];
	PaqPending *pending;
	uint32		used = have_slot ? my_slot()->used : 0;
	const bool	first = others->number == 0 || stress_chance(50);
	uint8		saved[MAX_DEPTH];

	*id = account->next_id++;
	forget_copies(others, first, saved);
	set_state(*id, STATE_CREATING);
	stress_make_record(me, *id, my_life, &sizes, &header, &session, statement);
	stress_window(true);
	pending = paq_pending_create(&header, &session, statement, first);
	stress_window(false);
	note_copies(others, first, saved);
	if (pending == NULL)
	{
		set_state(*id, STATE_DROPPED);
		return NULL;
	}
	if (have_slot)
		note_copy(*id);
	if (have_slot && (stress->copy[me][*id] & COPY_IN_SLOT) == 0 &&
		(first || used + ENOUGH_SPACE < PAQ_SLOT_SIZE))
		stress_fail("record %llu of producer %u is not in its slot, where %u bytes are used",
					(unsigned long long) *id, me, used);
	set_state(*id, STATE_PENDING);
	if (stress_chance(10))
		pending = replace(pending, *id, others);
	(void) PAQ_FAULT("test-pending");
	return pending;
}

/* Its outcome is known. */
static void
set_outcome(PaqPending *pending, uint64 id)
{
	uint32		space = paq_ring_max_record() - paq_pending_header(pending)->length;
	PaqRecordHeader *header;

	if (stress_chance(20) && stress->frame_size == 0)
	{
		uint32		len = random_size(stress_chance(20) ? MAX_MESSAGE :
									  Min(space, MAX_MESSAGE));
		uint32		before = paq_pending_header(pending)->length;
		const char *message;

		if (len > space)
			stress->copy[me][id] |= MESSAGE_IS_CUT;
		message = stress_make_message(me, id, len);
		stress_window(true);
		paq_pending_add_message(pending, message, PG_UINT32_MAX);
		stress_window(false);
		header = paq_pending_header(pending);
		if (header->length != before || header->field_len[PAQ_FIELD_MESSAGE] == 0)
			header->vxid_lxid = len;
	}
	header = paq_pending_header(pending);
	header->session_line = ++account->next_order;
	if (stress_chance(20))
		header->sqlstate = ERRCODE_DIVISION_BY_ZERO;
}

/* Put a record that was never pending into the ring, waiting for space or not. */
static uint64
put_direct(const char *record, uint32 len, PaqSpaceWait wait)
{
	uint64		pos;

	do
	{
		pos = paq_ring_put(record, len, paq_fields_crc(record, len), wait, NULL);
	} while (pos == 0 && wait == PAQ_SPACE_WAIT &&
			 paq_make_space(PAQ_FRAME_SIZE(len) + paq_ring_reserve()));
	return pos == PAQ_POS_UNCLAIMED ? 0 : pos;
}

/*
 * Publish, waiting or not, through cancels and errors if there are any.
 * Returns PAQ_POS_DROPPED if the record was dropped, and counted.
 */
static uint64
publish(PaqPending *pending, const char *record, uint32 len)
{
	sigjmp_buf	raised;
	volatile bool nowait = stress_chance(20);
	uint64		pos;

	if (sigsetjmp(raised, 0) != 0)
	{
		/* The record of a statement that failed may use the reserve. */
		nowait = true;
	}
	for (;;)
	{
		PaqSpaceWait wait = nowait ? PAQ_SPACE_NOWAIT : PAQ_SPACE_WAIT;

		stress_error = stress_cancel = nowait ? NULL : &raised;
		stress_window(true);
		pos = pending != NULL ? paq_pending_publish(pending, wait) :
			put_direct(record, len, wait);
		stress_window(false);
		stress_error = stress_cancel = NULL;
		if (pos != 0)
			return pos;
		if (paq_overflow == PAQ_OVERFLOW_DROP)
		{
			if (pending != NULL)
				stress_fail("a record was neither published nor dropped");
			paq_queue_note_drop(PAQ_DROP_FULL, 1);
			return PAQ_POS_DROPPED;
		}
		if (!nowait)
			stress_fail("a record did not wait for space");
		pg_usleep(50);
		nowait = false;
	}
}

/* Somebody wants to know that the trail has it. */
static void
wait_for_trail(uint64 pos, uint64 order)
{
	paq_queue_wait_flushed(pos);
	if (!paq_queue_is_flushed(pos))
		stress_fail("waiting for a flush ended before it");
	if (pg_atomic_read_u64(&account->durable) < order)
		stress_fail("record %llu of producer %u is said to be flushed, and is not",
					(unsigned long long) order, me);
}

/*
 * Wait until the record is in the trail, without asking for it: if the
 * consumer sleeps, publishing has to have woken it.
 */
static void
wait_silently(uint64 pos)
{
	TimestampTz end = GetCurrentTimestamp() + SLEEP_LIMIT * USECS_PER_SEC;

	while (pg_atomic_read_u64(&paq_live.live->drained) < pos)
	{
		if (GetCurrentTimestamp() > end)
			stress_fail("position %llu has not been drained in %d s",
						(unsigned long long) pos, SLEEP_LIMIT);
		sched_yield();
	}

	/* come again at any moment of its going to sleep */
	for (uint32 i = stress_random(10000); i > 0; i--)
		pg_compiler_barrier();
}

/* The record was published, or dropped. */
static void
after_publishing(uint64 id, uint64 pos)
{
	set_state(id, pos == PAQ_POS_DROPPED ? STATE_DROPPED : STATE_PUBLISHED);
	account->publishing = 0;
	(void) PAQ_FAULT("test-published");
	if (stress->alone || pos == PAQ_POS_DROPPED)
		return;
	if (stress->sleepy || stress_random(200) == 0)
		wait_silently(pos);
	else if (MyProc != NULL && stress_random(40) == 0)
		wait_for_trail(pos, account->next_order);
}

static void
finish(PaqPending *pending, uint64 id)
{
	account->publishing = id;
	set_state(id, STATE_PUBLISHING);
	set_outcome(pending, id);
	after_publishing(id, publish(pending, NULL, 0));
}

/* A statement in a statement in a statement */
static void
publish_nested(int depth)
{
	PaqPending *pending[MAX_DEPTH];
	uint64		id[MAX_DEPTH];

	for (int i = 0; i < depth; i++)
	{
		const Others others = {id, i};

		pending[i] = create(&id[i], &others);
	}
	while (depth > 0)
	{
		/* mostly the innermost first */
		int			i = stress_chance(80) ? depth - 1 : (int) stress_random(depth);

		if (pending[i] != NULL && stress_random(30) == 0)
		{
			set_state(id[i], STATE_FREEING);
			stress_window(true);
			paq_pending_free(pending[i]);
			stress_window(false);
			set_state(id[i], STATE_FREED);
		}
		else if (pending[i] != NULL)
			finish(pending[i], id[i]);
		depth--;
		pending[i] = pending[depth];
		id[i] = id[depth];
	}
}

/* Encode into direct_record; returns the length. */
static uint32
make_direct(uint64 id)
{
	Sizes		sizes = random_sizes(paq_ring_max_record(), false);
	PaqRecordHeader header;
	PaqSessionBlock session;
	PaqText		statement[PAQ_NSTATEMENT_FIELDS];

	stress_make_record(me, id, my_life, &sizes, &header, &session, statement);
	header.session_line = ++account->next_order;
	paq_record_encode(direct_record, &header, &session, statement);
	return paq_record_size(0, &session, statement);
}

/* Past the pending area, as recovery's own records go */
static void
publish_direct(void)
{
	uint64		id = account->next_id++;
	uint32		size;

	set_state(id, STATE_CREATING);
	size = make_direct(id);
	account->publishing = id;
	set_state(id, STATE_PUBLISHING_DIRECT);
	after_publishing(id, publish(NULL, direct_record, size));
}

/*
 * Publish until there is no space, of so many bytes all told, of which those of a
 * frame's header are not used.
 */
static void
fill_up(PaqSpaceWait wait, uint64 space)
{
	uint64		limit = space - sizeof(PaqFrame);
	uint64		id;
	uint32		size;

	do
	{
		id = account->next_id;
		size = make_direct(id);
		if (paq_ring_put(direct_record, size, paq_fields_crc(direct_record, size), wait, NULL) == 0)
			break;
		set_state(id, STATE_PUBLISHED);
		account->next_id++;
	} while (paq_queue_used() <= limit);

	if (paq_queue_used() > limit || paq_queue_used() + PAQ_FRAME_SIZE(size) <= limit)
		stress_fail("%llu bytes are used of %llu, and there was no space for %u more",
					(unsigned long long) paq_queue_used(),
					(unsigned long long) limit, (uint32) PAQ_FRAME_SIZE(size));
}

/*
 * A process that fills the queue and does not wait: an eighth of it is
 * left to those who do not wait, who fill it to its end.
 */
void
stress_filler(uint64 life, uint64 seed)
{
	stress_seed(seed);
	stress_become(0, B_BACKEND);
	paq_overflow = PAQ_OVERFLOW_DROP;
	account = &stress->account[0];
	my_life = life;
	fill_up(PAQ_SPACE_WAIT, paq_live.ring_size - paq_live.ring_size / 8);
	fill_up(PAQ_SPACE_NOWAIT, paq_live.ring_size);
	stress_exit();
}

/* A process; never returns. */
void
stress_producer(uint32 number, bool slotless, uint64 life, uint64 seed,
				uint32 records)
{
	uint64		last;

	stress_seed(seed);
	stress_become(slotless ? -1 : (int) number,
				  stress_chance(30) ? B_BG_WORKER : B_BACKEND);
	stress_no_memory = stress_chance(30);
	me = number;
	my_life = life;
	account = &stress->account[me];
	have_slot = !slotless && number < paq_live.header->nslots;
	last = account->next_id + records;

	while (pg_atomic_read_u32(&stress->stop_producers) == 0 &&
		   account->next_id < Min(last, MAX_IDS - MAX_DEPTH))
	{
		if (stress_chance(20))
			publish_direct();
		else
			publish_nested(stress_chance(70) ? 1 : 2 + stress_random(MAX_DEPTH - 1));
		if (stress_random(8) == 0)
			stress_check_positions();
		if (stress_random(64) == 0 && !stress->sleepy)
			pg_usleep(stress_random(300));
	}
	stress_window(true);
	stress_exit();
}
