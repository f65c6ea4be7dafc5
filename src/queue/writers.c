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
 * Must not raise or allocate.
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
#include "queue/queue_internal.h"

/* Writers whose position is not known that are looked at together, at most */
#define MAX_UNPLACED	16

/* This process's, in its slot; NULL if it has none */
PaqWriter  *paq_my_writer = NULL;

/* This process has that slot from now on; NULL: none any more. */
void
paq_writer_attach(PaqSlot *slot)
{
	if (slot != NULL)
	{
		slot->writer.size = 0;
		slot->writer.position = 0;
		pg_write_barrier();
		pg_atomic_write_u32(&slot->writer.pid, MyProcPid);
	}
	paq_my_writer = slot ? &slot->writer : NULL;
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
	/* Whoever sees it free must not see our size any more. */
	pg_write_barrier();
	pg_atomic_write_u32(&writer->pid, 0);
}

/* A process that cannot be asked is taken to be alive. */
static bool
is_alive(uint32 pid)
{
	return kill((pid_t) pid, 0) == 0 || errno != ESRCH;
}

/*
 * Nothing in the ring is unfinished: give back what processes had borrowed that
 * were killed.  Only for the worker.
 */
void
paq_writers_tidy(void)
{
	for (int i = 0; i < PAQ_NGUESTS; i++)
	{
		PaqWriter  *writer = &paq_live.live->guests[i];
		uint32		pid = pg_atomic_read_u32(&writer->pid);

		if (pid == 0 || is_alive(pid))
			continue;
		writer->size = 0;
		paq_writer_return(writer);
	}
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

/*
 * Size of the frame, in bytes, that a process was going to write at pos, where
 * there is that much room; 0 if nobody has said so.
 */
static uint64
size_at(PaqQueueFile *qf, uint64 pos, uint64 room)
{
	PaqWriter  *writer;

	for (uint32 i = 0; (writer = get_writer(qf, i)) != NULL; i++)
		if (writer->position == pos && writer->size != 0 &&
			writer->size <= room && writer->size % PAQ_FRAME_ALIGN == 0)
			return writer->size;
	return 0;
}

/* The first place behind pos, and before to, of which something is known; or to. */
static uint64
next_known(PaqQueueFile *qf, uint64 pos, uint64 to)
{
	PaqWriter  *writer;

	for (uint32 i = 0; (writer = get_writer(qf, i)) != NULL; i++)
		if (writer->size != 0 && writer->position > pos &&
			writer->position % PAQ_FRAME_ALIGN == 0)
			to = Min(to, writer->position);
	for (pos += PAQ_FRAME_ALIGN; pos < to; pos += PAQ_FRAME_ALIGN)
		if (paq_frame_state(qf, pos) != PAQ_FRAME_IS_NONE)
			return pos;
	return to;
}

/* Can some of the n sizes be added up to just that room? */
static bool
add_up_to(const uint32 *sizes, int n, uint64 room)
{
	if (room == 0)
		return true;
	for (int i = 0; i < n; i++)
		if (sizes[i] <= room && add_up_to(sizes + i + 1, n - i - 1, room - sizes[i]))
			return true;
	return false;
}

/* Is it room that processes had reserved before they could say where? */
static bool
is_unplaced(PaqQueueFile *qf, uint64 room)
{
	uint32		sizes[MAX_UNPLACED];
	int			n = 0;
	PaqWriter  *writer;

	for (uint32 i = 0; n < MAX_UNPLACED && (writer = get_writer(qf, i)) != NULL; i++)
		if (writer->position == 0 && writer->size != 0)
			sizes[n++] = writer->size;
	return add_up_to(sizes, n, room);
}

/*
 * Was what lies between the two positions reserved by processes that were
 * killed before they could commit it, all of it?  For a file that nobody writes
 * to any more.
 */
bool
paq_writers_explain(PaqQueueFile *qf, uint64 from, uint64 to)
{
	while (from < to)
	{
		uint64		size = 0;

		if (paq_frame_state(qf, from) == PAQ_FRAME_IS_BUSY)
		{
			size = paq_frame_at(qf, from)->size;
			if (size % PAQ_FRAME_ALIGN != 0 || size > to - from)
				size = 0;
		}
		if (size == 0)
			size = size_at(qf, from, to - from);
		if (size == 0)
		{
			size = next_known(qf, from, to) - from;
			if (!is_unplaced(qf, size))
				return false;
		}
		from += size;
	}
	return true;
}

/*
 * A frame at pos of the live file is not being committed.  Returns where the
 * room ends that nobody will ever commit, because those who had reserved it
 * are dead; 0 if somebody who is alive may still do so, or has done so.  Only for
 * the worker.
 */
uint64
paq_writers_abandoned(uint64 pos)
{
	uint64		end = pg_atomic_read_u64(&paq_live.live->reserved);
	PaqWriter  *writer;

	/*
	 * Pairs with the compare-and-swap in try_reserve(): of those who have
	 * reserved anything before "end" we see the size, unless they have taken it
	 * back already.
	 */
	pg_memory_barrier();
	for (uint32 i = 0; (writer = get_writer(&paq_live, i)) != NULL; i++)
	{
		uint32		size = *(volatile uint32 *) &writer->size;
		uint64		position;

		if (size == 0)
			continue;
		pg_read_barrier();		/* pairs with that in paq_writer_begin() */
		position = *(volatile uint64 *) &writer->position;
		if ((position != 0 && position < pos) ||
			!is_alive(pg_atomic_read_u32(&writer->pid)))
			continue;
		if (position == 0 || position == pos)
			return 0;
		end = Min(end, position);
	}

	/* Pairs with the barrier in paq_writer_end(): then it is committed. */
	pg_read_barrier();
	if (paq_frame_state(&paq_live, pos) == PAQ_FRAME_IS_COMMITTED)
		return 0;
	for (pos += PAQ_FRAME_ALIGN; pos < end; pos += PAQ_FRAME_ALIGN)
		if (paq_frame_is_good(&paq_live, pos, end))
			return pos;
	return end;
}
