/*-------------------------------------------------------------------------
 *
 * worker_link.c
 *		The worker's side of what sessions want from it: wake-ups, requests
 *		for a flush, for space, for a new file.
 *
 * Guarantees: a request made before paq_worker_hibernate() returned true is
 * never slept through; see there.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "storage/ipc.h"

static void
worker_detach(int code, Datum arg)
{
	pg_atomic_write_u64(&paq_shared->worker_latch, 0);
}

/* Become the process that sessions wake; until exit. */
void
paq_worker_attach(void)
{
	pg_atomic_write_u32(&paq_shared->failing, 0);
	pg_atomic_write_u64(&paq_shared->worker_latch, (uintptr_t) MyLatch);
	on_shmem_exit(worker_detach, (Datum) 0);
}

/* Does a session wait for more than the reader has flushed? */
bool
paq_worker_flush_wanted(void)
{
	return pg_atomic_read_u64(&paq_shared->flush_request) >
		pg_atomic_read_u64(&paq_shared->flushed);
}

/* Does a session wait for more space than has been given back? */
bool
paq_worker_space_wanted(void)
{
	return pg_atomic_read_u64(&paq_shared->space_request) >
		pg_atomic_read_u64(&paq_live.live->released);
}

/*
 * May the worker, whose reader is given, sleep until somebody wakes it?  Only
 * if the live queue is empty and the trail tells of all that was dropped.  From
 * the moment this returns true, whoever puts a record into the queue or drops
 * one sets the worker's latch.
 */
bool
paq_worker_hibernate(PaqReader *reader)
{
	pg_atomic_write_u32(&paq_shared->hibernating, 1);

	/*
	 * Pairs with the compare-and-swap in try_reserve(): either we see the
	 * producer's reservation here, or it sees "hibernating" after it.  The
	 * same goes for the addition in paq_queue_note_drop().
	 */
	pg_memory_barrier();
	if (pg_atomic_read_u64(&paq_live.live->reserved) ==
			pg_atomic_read_u64(&paq_live.live->released) &&
		!paq_reader_has_drops(reader))
		return true;
	pg_atomic_write_u32(&paq_shared->hibernating, 0);
	return false;
}

/* The worker is awake, for whatever reason. */
void
paq_worker_wake(void)
{
	pg_atomic_write_u32(&paq_shared->hibernating, 0);
}

/* Number of the newest request for a new file; false if all are served. */
bool
paq_worker_rotate_wanted(uint32 *request)
{
	*request = pg_atomic_read_u32(&paq_shared->rotate_request);
	return *request != pg_atomic_read_u32(&paq_shared->rotate_done);
}

/*
 * All requests up to this one have been served; or, unless ok, cannot be for
 * now.
 */
void
paq_worker_rotate_done(uint32 request, bool ok)
{
	if (!ok)
		pg_atomic_write_u32(&paq_shared->rotate_failed, request);
	pg_write_barrier();			/* pairs with that in paq_queue_rotate() */
	pg_atomic_write_u32(&paq_shared->rotate_done, request);
	ConditionVariableBroadcast(&paq_shared->rotate_cv);
}

/*
 * Does the sink fail?  Sessions that do not wait for as long as that takes
 * shall learn of it at once.
 */
void
paq_worker_failing(bool failing)
{
	pg_atomic_write_u32(&paq_shared->failing, failing ? 1 : 0);
	if (failing)
		ConditionVariableBroadcast(&paq_shared->space_cv);
}

/* Backends that may still put records into the queue. */
uint32
paq_worker_attached_backends(void)
{
	return paq_writers_awaited();
}
