/*-------------------------------------------------------------------------
 *
 * waiters.c
 *		Sessions that wait until a position is flushed, and their wake-up.
 *
 * As in synchronous replication, a flush wakes those whom it satisfies and
 * nobody else: while one is under way, other sessions go on and begin to wait
 * for the next.  (With a condition variable, which wakes all, each session
 * would wake up twice for a record.)  Each backend has an entry for the position
 * that it waits for; the worker looks at all of them after a flush, which costs
 * less than a hundredth of the flush with hundreds of backends.
 *
 * Guarantees: whoever has said what it waits for, and then finds that it is
 * not flushed yet, has its latch set when it is.
 *
 * Locking: none.  An entry is written by its backend, but the worker may clear
 * it.  One that a backend leaves behind, because of an error, costs whoever has
 * its PGPROC then one wake-up for nothing.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "storage/latch.h"
#include "storage/shmem.h"

typedef struct Waiter
{
	pg_atomic_uint64 pos;		/* waits for this to be flushed; 0: does not */
	pg_atomic_uint64 latch;		/* its Latch, as a number; valid if pos is not 0 */
} Waiter;

/* By number of the PGPROC, MaxBackends of them; in shared memory */
static Waiter *waiters = NULL;

/* Bytes of ordinary shared memory for the entries. */
Size
paq_waiters_shmem_size(void)
{
	return mul_size(MaxBackends, sizeof(Waiter));
}

/* Create the entries; the caller holds AddinShmemInitLock. */
void
paq_waiters_init(void)
{
	bool		found;

	waiters = ShmemInitStruct("pg_audit_queue waiters",
							  paq_waiters_shmem_size(), &found);
	Assert(!found);
	for (int i = 0; i < MaxBackends; i++)
	{
		pg_atomic_init_u64(&waiters[i].pos, 0);
		pg_atomic_init_u64(&waiters[i].latch, 0);
	}
}

/* This process's entry; NULL if its kind has none. */
static Waiter *
my_waiter(void)
{
	int			number = paq_proc_number();

	return number >= 0 && number < MaxBackends ? &waiters[number] : NULL;
}

/*
 * From now on a flush up to pos sets MyLatch.  The caller must look afterwards
 * whether it has happened already; and not rely on the latch alone, since not
 * every process has an entry.
 */
void
paq_waiter_begin(uint64 pos)
{
	Waiter	   *waiter = my_waiter();

	if (waiter == NULL)
		return;
	pg_atomic_write_u64(&waiter->latch, (uintptr_t) MyLatch);
	pg_write_barrier();			/* pairs with that of the exchange below */
	pg_atomic_write_u64(&waiter->pos, pos);

	/* Pairs with the barrier in paq_waiters_wake(). */
	pg_memory_barrier();
}

/* This process does not wait any more. */
void
paq_waiter_end(void)
{
	Waiter	   *waiter = my_waiter();

	if (waiter != NULL)
		pg_atomic_write_u64(&waiter->pos, 0);
}

/* "flushed" has been advanced to this position: wake those who wait for it. */
void
paq_waiters_wake(uint64 flushed)
{
	/*
	 * Either we see that somebody waits, or he sees "flushed" after he has
	 * said so: pairs with the barrier in paq_waiter_begin().
	 */
	pg_memory_barrier();
	for (int i = 0; i < MaxBackends; i++)
	{
		Waiter	   *waiter = &waiters[i];
		uint64		pos = pg_atomic_read_u64(&waiter->pos);

		if (pos != 0 && pos <= flushed &&
			pg_atomic_compare_exchange_u64(&waiter->pos, &pos, 0))
			SetLatch((Latch *) (uintptr_t) pg_atomic_read_u64(&waiter->latch));
	}
}
