/*-------------------------------------------------------------------------
 *
 * writers.c
 *		Which processes are putting a record into the ring, and where.
 *
 * Before each attempt to reserve space a process claims it: it notes size and
 * position, the value of "reserved" that its compare-and-swap expects.  When the
 * frame is committed, it resets the claim.  A process with a slot of the pending
 * area has its PaqWriter there; others borrow one for the time, and without one
 * they reserve nothing.  So whatever is reserved and not committed is claimed, at
 * any instant.  That tells a hole that processes left which were killed from
 * damage.
 *
 * A claim may be false: its process may have been killed before the
 * compare-and-swap, or after another process has won it.  But a claim always
 * begins where some frame does.  So of several claims of the same place, one may
 * be true, and the claims of a hole form a chain from its begin to its end.
 *
 * Recovery asks for that, and rarely the worker while the server runs: while the
 * postmaster recovers from one crash, it ignores that other processes are killed
 * (postmaster.c, FatalError), a background worker or a session that is being
 * refused.  Shared memory stays as it is, and nobody will ever commit what they
 * reserved.
 *
 * Guarantees: a hole is never given up while a living process may still write to
 * it; no claim is lost that recovery may need.
 *
 * If a process has the process id of one that was killed, that one is taken to
 * be alive: what it claimed is given up when the other has exited, too.
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

#include "fault.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "utils/memutils.h"

/* A process does not have this PaqWriter any more. */
void
paq_writer_reset(PaqWriter *writer)
{
	pg_atomic_write_u32(&writer->size, 0);
	pg_write_barrier();			/* whoever sees it free must not see our size */
	pg_atomic_write_u32(&writer->pid, 0);
}

/*
 * This process has that slot from now on.  If awaited, the worker exits after it
 * at a shutdown.
 */
void
paq_writer_attach(PaqSlot *slot, bool awaited)
{
	paq_writer_reset(&slot->writer);
	slot->awaited = awaited ? 1 : 0;
	pg_write_barrier();			/* pairs with that in
								 * paq_worker_attached_backends() */
	pg_atomic_write_u32(&slot->writer.pid, MyProcPid);
}

/* If we cannot find out, a process is taken to be alive. */
static bool
is_alive(uint32 pid)
{
	return kill((pid_t) pid, 0) == 0 || errno != ESRCH;
}

/*
 * Was the owner of a guest's PaqWriter killed, and is its claim, if there is one,
 * before everything that recovery looks at?
 */
static bool
is_abandoned(PaqWriter *writer, uint32 pid)
{
	return !is_alive(pid) &&
		(pg_atomic_read_u32(&writer->size) == 0 ||
		 pg_atomic_read_u64(&writer->position) <
			 pg_atomic_read_u64(&paq_live.live->released));
}

/*
 * Take a guest's PaqWriter that belongs to nobody or, if so asked, was abandoned.
 * If we are killed before we have a claim in it, it is abandoned again.
 */
static PaqWriter *
take_guest(bool abandoned)
{
	for (int i = 0; i < PAQ_NGUESTS; i++)
	{
		PaqWriter  *writer = &paq_live.live->guests[i];
		uint32		pid = pg_atomic_read_u32(&writer->pid);

		if (pid != 0 && (!abandoned || !is_abandoned(writer, pid)))
			continue;
		if (!pg_atomic_compare_exchange_u32(&writer->pid, &pid, MyProcPid))
			continue;
		pg_atomic_write_u32(&writer->size, 0);
		(void) PAQ_FAULT("writer-borrowed");
		return writer;
	}
	return NULL;
}

/*
 * Get a guest's PaqWriter for this process.  Returns NULL if there is none: others
 * are using them all, or were killed doing so and the worker has not yet released
 * the space that they claimed.
 */
PaqWriter *
paq_writer_borrow(void)
{
	PaqWriter  *writer = take_guest(false);

	return writer != NULL ? writer : take_guest(true);
}

/* How many processes does the worker have to wait for at a shutdown? */
uint32
paq_worker_attached_backends(void)
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
		paq_writer_reset(writer);
}

/*
 * Memory of TopMemoryContext.  Without it the worker cannot go on: it starts
 * again.
 */
void *
paq_worker_alloc(Size size)
{
	const int	flags = MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM;
	void	   *memory = MemoryContextAllocExtended(TopMemoryContext, size, flags);

	if (memory == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Failed while reading the audit queue.")));
	return memory;
}

/* For qsort() of positions, or of structs that begin with one */
int
paq_compare_positions(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return (x > y) - (x < y);
}

/* The claim of a process that was killed */
typedef struct Claim
{
	uint64		position;
	uint64		end;
	bool		reached;		/* by a chain from the begin of the hole */
} Claim;

/* All claims in a file, sorted by position, to be freed by the caller */
static Claim *
collect_claims(PaqQueueFile *qf, uint32 *count)
{
	Claim	   *claims = paq_worker_alloc((qf->header->nslots + PAQ_NGUESTS) *
									 sizeof(Claim));
	PaqWriter  *writer;

	*count = 0;
	for (uint32 i = 0; (writer = get_writer(qf, i)) != NULL; i++)
	{
		Claim	   *claim = &claims[*count];
		uint32		size = pg_atomic_read_u32(&writer->size);

		if (size == 0)
			continue;
		claim->position = pg_atomic_read_u64(&writer->position);
		claim->end = claim->position + size;
		claim->reached = false;
		(*count)++;
	}
	qsort(claims, *count, sizeof(Claim), paq_compare_positions);
	return claims;
}

/*
 * Does a chain of claims fill the hole?  There are n of them, sorted, none of them
 * before the hole.
 */
static bool
explain_hole(Claim *claims, uint32 n, uint64 from, uint64 to)
{
	if (from == to)
		return true;
	for (uint32 i = 0; i < n && claims[i].position < to; i++)
	{
		const uint64 end = claims[i].end;

		if (claims[i].position != from && !claims[i].reached)
			continue;
		if (end == to)
			return true;
		if (end > to)
			continue;
		for (uint32 j = i + 1; j < n && claims[j].position <= end; j++)
			if (claims[j].position == end)
				claims[j].reached = true;
	}
	return false;
}

/*
 * Which of the n holes in a file, sorted, were reserved by processes that were
 * killed before they could commit?  For a file that nobody writes to any more.
 */
void
paq_writers_explain(PaqQueueFile *qf, PaqHole *holes, uint32 n)
{
	uint32		count;
	Claim	   *claims = collect_claims(qf, &count);
	uint32		next = 0;

	for (uint32 i = 0; i < n; i++)
	{
		while (next < count && claims[next].position < holes[i].from)
			next++;
		holes[i].explained = explain_hole(claims + next, count - next,
										  holes[i].from, holes[i].to);
	}
	pfree(claims);
}

/*
 * In the live file, no frame is committed at pos.  Returns up to where from there
 * on no living process is going to commit anything; frames that are committed
 * already may be before that.  Returns 0 if a process may still write at pos.
 * Only for the worker.
 *
 * A living process that will commit something before "bound", as read here,
 * claimed that before it reserved it, and its claims only go up: what it claims
 * now is that, or something behind it, and then that is committed.  So claims
 * before pos or from "bound" on do not matter, whether they are true or not.  A
 * claim in between counts even if another process has won the place: its owner is
 * alive and will soon claim another place.
 */
uint64
paq_writers_bound(uint64 pos)
{
	uint64		bound = pg_atomic_read_u64(&paq_live.live->reserved);
	PaqWriter  *writer;

	/*
	 * Pairs with the compare-and-swap in try_reserve(): we see the claims of all
	 * processes that have reserved anything before "bound", unless they have
	 * reset them already.
	 */
	pg_memory_barrier();
	for (uint32 i = 0; (writer = get_writer(&paq_live, i)) != NULL; i++)
	{
		uint64		position;

		if (pg_atomic_read_u32(&writer->size) == 0)
			continue;
		pg_read_barrier();		/* pairs with that in paq_writer_claim() */
		position = pg_atomic_read_u64(&writer->position);
		pg_read_barrier();		/* pairs with the exchange in take_guest() */
		if (position < pos || position >= bound ||
			!is_alive(pg_atomic_read_u32(&writer->pid)))
			continue;
		if (position == pos)
			return 0;
		bound = position;
	}

	/*
	 * Pairs with the barrier in paq_writer_end(): frames whose claims were reset
	 * are committed, and the caller sees that.
	 */
	pg_read_barrier();
	return bound;
}
