/*-------------------------------------------------------------------------
 *
 * writers.c
 *		Which processes are putting a record into the ring.
 *
 * Before a process reserves space it says how much it needs, then where it
 * got it, and when the frame is committed it takes that back.  A process with
 * a slot of the pending area says so there; others borrow a PaqWriter for the
 * time.  So room in the ring without a committed frame can be told from
 * damage: it is that of processes which were killed.
 *
 * That is what recovery asks for, and, rarely, the worker while the server
 * runs: as long as the postmaster recovers from one crash, it ignores that
 * other processes are killed (postmaster.c, FatalError), a background worker
 * or a session that is being refused.  Shared memory stays as it is, and
 * nobody will ever commit what they reserved.
 *
 * Guarantees: room that a living process may still write to is never given up.
 *
 * What sessions call must not raise or allocate.
 *
 * Locking: none.  A PaqWriter belongs to the process whose id it has; guests
 * are claimed by compare-and-swap.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "queue/reader_internal.h"
#include "utils/memutils.h"

/*
 * Of the processes that were killed before they could say where their frame is,
 * so many are considered.  More than one or two there are only in tests.
 */
#define MAX_UNPLACED	16

/* This process's, in its slot; NULL if it has none */
PaqWriter  *paq_my_writer = NULL;

static void
reset_writer(PaqWriter *writer)
{
	pg_atomic_write_u32(&writer->size, 0);
	pg_atomic_write_u64(&writer->position, 0);
	pg_write_barrier();			/* whoever sees it free must not see our size */
	pg_atomic_write_u32(&writer->pid, 0);
}

/*
 * This process has that slot from now on.  The worker, at a shutdown, does not
 * leave before it if awaited is set.
 */
void
paq_writer_attach(PaqSlot *slot, bool awaited)
{
	reset_writer(&slot->writer);
	slot->awaited = awaited ? 1 : 0;
	pg_write_barrier();			/* pairs with that in paq_writers_awaited() */
	pg_atomic_write_u32(&slot->writer.pid, MyProcPid);
	paq_my_writer = &slot->writer;
}

/* And now not any more. */
void
paq_writer_detach(PaqSlot *slot)
{
	paq_my_writer = NULL;
	reset_writer(&slot->writer);
}

/* A guest's for this process; NULL if there is none free. */
PaqWriter *
paq_writer_borrow(void)
{
	for (int i = 0; i < PAQ_NGUESTS; i++)
	{
		PaqWriter  *writer = &paq_live.live->guests[i];
		uint32		nobody = 0;

		if (pg_atomic_compare_exchange_u32(&writer->pid, &nobody, MyProcPid))
			return writer;
	}
	return NULL;
}

void
paq_writer_return(PaqWriter *writer)
{
	reset_writer(writer);
}

/* A process that cannot be asked is taken to be alive. */
static bool
is_alive(uint32 pid)
{
	return kill((pid_t) pid, 0) == 0 || errno != ESRCH;
}

/* How many processes are there that the worker waits for at a shutdown? */
uint32
paq_writers_awaited(void)
{
	uint32		count = 0;

	for (uint32 i = 0; i < paq_live.header->nslots; i++)
	{
		PaqSlot    *slot = paq_slot(&paq_live, i);
		uint32		pid = pg_atomic_read_u32(&slot->writer.pid);

		pg_read_barrier();		/* pairs with that in paq_writer_attach() */
		if (pid != 0 && slot->awaited != 0 && is_alive(pid))
			count++;
	}
	return count;
}

/* Number i of all writers, guests last; NULL if there are not so many. */
static PaqWriter *
get_writer(PaqQueueFile *qf, uint32 i)
{
	uint32		nslots = qf->header->nslots;

	if (i < nslots)
		return &paq_slot(qf, i)->writer;
	return i - nslots < PAQ_NGUESTS ? &qf->live->guests[i - nslots] : NULL;
}

/* Nobody uses this file. */
void
paq_writers_reset(PaqQueueFile *qf)
{
	PaqWriter  *writer;

	for (uint32 i = 0; (writer = get_writer(qf, i)) != NULL; i++)
		reset_writer(writer);
}

/*
 * Whatever processes had reserved that were killed is behind us: forget them, so
 * that guests can be borrowed again, and before somebody else gets their process
 * ids.  Only for the worker.
 */
void
paq_writers_tidy(void)
{
	PaqWriter  *writer;

	for (uint32 i = 0; (writer = get_writer(&paq_live, i)) != NULL; i++)
	{
		uint32		pid = pg_atomic_read_u32(&writer->pid);

		if (pid != 0 && pg_atomic_read_u32(&writer->size) != 0 && !is_alive(pid))
			reset_writer(writer);
	}
}

/*
 * What the processes were doing that had a file in use which nobody uses any
 * more.  Nobody can say where those of "unplaced" are; each is in one place at
 * most.
 */
typedef struct Placed
{
	uint64		position;
	uint32		size;
} Placed;

typedef struct Unfinished
{
	Placed	   *placed;
	uint32		nplaced;
	uint32		unplaced[MAX_UNPLACED]; /* sizes of frames, largest first */
	uint32		nunplaced;
	uint64		total;			/* of these */
} Unfinished;

/* Add a frame's size, and keep them in order. */
static void
add_unplaced(Unfinished *unfinished, uint32 size)
{
	uint32		i = unfinished->nunplaced;

	if (i == MAX_UNPLACED)
		return;
	for (; i > 0 && unfinished->unplaced[i - 1] < size; i--)
		unfinished->unplaced[i] = unfinished->unplaced[i - 1];
	unfinished->unplaced[i] = size;
	unfinished->nunplaced++;
	unfinished->total += size;
}

static void
collect_unfinished(PaqQueueFile *qf, Unfinished *unfinished)
{
	PaqWriter  *writer;
	uint32		count = qf->header->nslots + PAQ_NGUESTS;

	memset(unfinished, 0, sizeof(*unfinished));
	unfinished->placed = paq_reader_alloc(count * sizeof(Placed));
	for (uint32 i = 0; (writer = get_writer(qf, i)) != NULL; i++)
	{
		uint32		size = pg_atomic_read_u32(&writer->size);
		uint64		position = pg_atomic_read_u64(&writer->position);

		if (size == 0 || size % PAQ_FRAME_ALIGN != 0 ||
			position % PAQ_FRAME_ALIGN != 0)
			continue;
		if (position == 0)
			add_unplaced(unfinished, size);
		else
		{
			Placed	   *placed = &unfinished->placed[unfinished->nplaced++];

			placed->position = position;
			placed->size = size;
		}
	}
}

/*
 * Can some of the sizes from number first on be added up to just that room?
 * Then they are taken out.
 */
static bool
take_unplaced(Unfinished *unfinished, uint32 first, uint64 room)
{
	if (room == 0)
		return true;
	for (uint32 i = first; i < unfinished->nunplaced; i++)
	{
		uint32		size = unfinished->unplaced[i];

		/* of equal ones the first has been tried */
		if (size > room || (i > first && size == unfinished->unplaced[i - 1]) ||
			!take_unplaced(unfinished, i + 1, room - size))
			continue;

		/* Those behind it are out already. */
		unfinished->nunplaced--;
		unfinished->total -= size;
		memmove(&unfinished->unplaced[i], &unfinished->unplaced[i + 1],
				(unfinished->nunplaced - i) * sizeof(uint32));
		return true;
	}
	return false;
}

/* Size of the frame at pos, where there is that much room; 0 if nobody knows. */
static uint64
size_at(PaqQueueFile *qf, const Unfinished *unfinished, uint64 pos, uint64 room)
{
	if (paq_frame_state(qf, pos) == PAQ_FRAME_IS_BUSY)
	{
		uint32		size = paq_frame_at(qf, pos)->size;

		if (size % PAQ_FRAME_ALIGN == 0 && size != 0 && size <= room)
			return size;
	}
	for (uint32 i = 0; i < unfinished->nplaced; i++)
		if (unfinished->placed[i].position == pos &&
			unfinished->placed[i].size <= room)
			return unfinished->placed[i].size;
	return 0;
}

/* The first place behind pos, and before to, of which something is known; or to. */
static uint64
next_known(PaqQueueFile *qf, const Unfinished *unfinished, uint64 pos, uint64 to)
{
	for (uint32 i = 0; i < unfinished->nplaced; i++)
		if (unfinished->placed[i].position > pos)
			to = Min(to, unfinished->placed[i].position);
	for (pos += PAQ_FRAME_ALIGN; pos < to; pos += PAQ_FRAME_ALIGN)
		if (paq_frame_state(qf, pos) != PAQ_FRAME_IS_NONE)
			return pos;
	return to;
}

static bool
explain_room(PaqQueueFile *qf, Unfinished *unfinished, uint64 from, uint64 to)
{
	/* What the positions say may be anything. */
	if (to < from || to - from > qf->ring_size)
		return false;
	while (from < to)
	{
		uint64		size = size_at(qf, unfinished, from, to - from);

		if (size == 0)
		{
			size = next_known(qf, unfinished, from, to) - from;
			if (size > unfinished->total || !take_unplaced(unfinished, 0, size))
				return false;
		}
		from += size;
	}
	return true;
}

/*
 * Was what there is of room in a file, all n places of it in their order,
 * reserved by processes that were killed before they could commit it?  For a
 * file that nobody writes to any more.
 */
void
paq_writers_explain(PaqQueueFile *qf, PaqRoom *rooms, uint32 n)
{
	Unfinished	unfinished;

	collect_unfinished(qf, &unfinished);
	for (uint32 i = 0; i < n; i++)
		rooms[i].explained = explain_room(qf, &unfinished, rooms[i].from,
										  rooms[i].to);
	pfree(unfinished.placed);
}

/*
 * Up to where does nobody alive write in the live file, from pos on, where no
 * frame is being committed?  Frames that are committed may be among that.
 * Returns 0 if somebody may still write at pos.  Only for the worker.
 */
uint64
paq_writers_bound(uint64 pos)
{
	uint64		bound = pg_atomic_read_u64(&paq_live.live->reserved);
	PaqWriter  *writer;

	/*
	 * Pairs with the compare-and-swap in try_reserve(): of those who have
	 * reserved anything before "bound" we see the size, unless they have taken
	 * it back already.
	 */
	pg_memory_barrier();
	for (uint32 i = 0; (writer = get_writer(&paq_live, i)) != NULL; i++)
	{
		uint64		position;

		if (pg_atomic_read_u32(&writer->size) == 0)
			continue;
		pg_read_barrier();		/* pairs with that in paq_writer_begin() */
		position = pg_atomic_read_u64(&writer->position);
		if ((position != 0 && position < pos) ||
			!is_alive(pg_atomic_read_u32(&writer->pid)))
			continue;
		if (position == 0 || position == pos)
			return 0;
		bound = Min(bound, position);
	}

	/*
	 * Pairs with the barrier in paq_writer_end(): what was taken back is
	 * committed, as the caller will see.
	 */
	pg_read_barrier();
	return bound;
}
