/*-------------------------------------------------------------------------
 *
 * wake.c
 *		Waking the worker, the loader, and the sessions that wait for a flush.
 *
 * See wait.c, which has what they are woken for.
 *
 * A flush wakes those whom it satisfies and nobody else.  While it is under way,
 * other sessions begin to wait for the next one; a condition variable would wake
 * them all, twice for a record.  Therefore each backend has a PaqWaiter, and the
 * worker looks at all of them after a flush, which costs less than a hundredth
 * of the flush with hundreds of backends.
 *
 * Must not raise or allocate.
 *
 * Locking: none.  A PaqWaiter is written by its backend, and reset by the
 * worker.  If an error makes a backend leave one behind, the next owner of its
 * PGPROC is woken once for nothing.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "storage/latch.h"

/*
 * Set a latch that is given as a number, 0 for none.  It is part of a PGPROC,
 * which stays valid memory.  If its process has just exited, another one may be
 * woken for nothing.
 */
static void
set_latch(pg_atomic_uint64 *latch)
{
	Latch	   *target = (Latch *) (uintptr_t) pg_atomic_read_u64(latch);

	if (target != NULL)
		SetLatch(target);
}

/*
 * Wake the worker, from hibernation or from its nap.  If there is none, the next
 * worker looks at all requests when it starts.
 */
void
paq_wake_worker(void)
{
	pg_atomic_write_u32(&paq_shared->hibernating, 0);
	set_latch(&paq_shared->worker_latch);
}

/* Wake the loader, if there is one. */
void
paq_wake_loader(void)
{
	set_latch(&paq_shared->loader_latch);
}

/* "flushed" has been advanced to this position: wake those who wait for it. */
void
paq_wake_waiters(uint64 flushed)
{
	/*
	 * Either we see that a session waits, or it sees "flushed" after it has
	 * said so: pairs with the barrier in wait_flushed().
	 */
	pg_memory_barrier();
	for (int i = 0; i < MaxBackends; i++)
	{
		PaqWaiter  *waiter = &paq_shared->waiters[i];
		uint64		pos = pg_atomic_read_u64(&waiter->pos);

		if (pos != 0 && pos <= flushed &&
			pg_atomic_compare_exchange_u64(&waiter->pos, &pos, 0))
			set_latch(&waiter->latch);
	}
}
