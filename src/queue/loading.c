/*-------------------------------------------------------------------------
 *
 * loading.c
 *		How far the table has got.
 *
 * With sink = table, the worker writes files, and the loader copies them into
 * the table.  A session that waits for its records to be durable waits for the
 * files first, and then, if the table keeps up with them, for the table.
 *
 * Guarantees: a session waits for the table only while the loader has it under
 * control, and never for longer than a limit: whatever holds the table up - a
 * lock, a missing database, a stopped process - the records are on disk, and
 * will be loaded when that is over.  Every wait can be interrupted.
 *
 * Must not be called while holding an LWLock or a spinlock.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "queue/loading.h"
#include "queue/queue_internal.h"
#include "stats.h"
#include "storage/ipc.h"
#include "utils/wait_event.h"

/* How long a session waits for the table before nobody does any more, in ms */
#define WAIT_LIMIT	5000

/* How long it sleeps before it looks after the loader again */
#define RECHECK_MS	1000

void
paq_loading_init(void)
{
	pg_atomic_init_u32(&paq_shared->loader_pid, 0);
	pg_atomic_init_u64(&paq_shared->loader_latch, 0);
	pg_atomic_init_u64(&paq_shared->loaded, 0);
	pg_atomic_init_u32(&paq_shared->table_awaited, 0);
	pg_atomic_init_u32(&paq_shared->table_failing, 0);
	pg_atomic_init_u64(&paq_shared->settled_sequence, 0);
	ConditionVariableInit(&paq_shared->load_cv);
}

/* Wake the loader, if there is one; see paq_wake_worker(). */
void
paq_wake_loader(void)
{
	Latch	   *latch;

	latch = (Latch *) (uintptr_t) pg_atomic_read_u64(&paq_shared->loader_latch);
	if (latch != NULL)
		SetLatch(latch);
}

/* Is everything before pos in the table, or is nobody to wait for that? */
bool
paq_is_loaded(uint64 pos)
{
	return pg_atomic_read_u32(&paq_shared->table_awaited) == 0 ||
		pg_atomic_read_u64(&paq_shared->loaded) >= pos;
}

/* From now on nobody waits for the table. */
static void
stop_waiting(void)
{
	pg_atomic_write_u32(&paq_shared->table_awaited, 0);
	ConditionVariableBroadcast(&paq_shared->load_cv);
}

/*
 * Wait until everything before pos, which is flushed already, is in the table,
 * or until it turns out that this will not be soon.  May raise the error of an
 * interrupt.
 */
void
paq_wait_loaded(uint64 pos)
{
	static uint32 event = 0;
	instr_time	start;

	if (event == 0)
		event = paq_wait_event("AuditQueueTable");
	INSTR_TIME_SET_CURRENT(start);
	ConditionVariablePrepareToSleep(&paq_shared->load_cv);
	while (!paq_is_loaded(pos))
	{
		paq_wake_loader();
		if (ConditionVariableTimedSleep(&paq_shared->load_cv, RECHECK_MS, event) &&
			paq_elapsed_ms(start) >= WAIT_LIMIT)
			stop_waiting();
	}
	ConditionVariableCancelSleep();
	paq_stats_add(&paq_my_stats->waited_us,
				  (uint64) (paq_elapsed_ms(start) * 1000.0));
}

static void
detach(int code, Datum arg)
{
	pg_atomic_write_u64(&paq_shared->loader_latch, 0);
	stop_waiting();
	pg_atomic_write_u32(&paq_shared->loader_pid, 0);

	/* It is the worker that starts the next one. */
	paq_wake_worker();
}

/*
 * Become the loader, until exit; false if there is one already.
 */
bool
paq_loading_attach(void)
{
	uint32		nobody = 0;

	if (!pg_atomic_compare_exchange_u32(&paq_shared->loader_pid, &nobody,
										(uint32) MyProcPid))
		return false;
	pg_atomic_write_u64(&paq_shared->loader_latch, (uintptr_t) MyLatch);
	on_shmem_exit(detach, (Datum) 0);
	return true;
}

/*
 * Up to which sequence records may be loaded now: those before are durable, and
 * nothing will take them back.  *pos is a position all of whose records these
 * include.
 */
uint64
paq_loading_limit(uint64 *pos)
{
	*pos = pg_atomic_read_u64(&paq_shared->flushed);
	pg_read_barrier();			/* pairs with that in paq_reader_flushed() */
	return pg_atomic_read_u64(&paq_shared->flushed_sequence);
}

/*
 * The table has everything before pos; if awaited, it keeps up, and can be
 * waited for.  Returns whether it could not be written before.
 */
bool
paq_loading_reached(uint64 pos, bool awaited)
{
	pg_atomic_write_u64(&paq_shared->loaded, pos);
	pg_write_barrier();			/* an older "loaded" makes waiters too patient,
								 * no more */
	pg_atomic_write_u32(&paq_shared->table_awaited, awaited ? 1 : 0);
	ConditionVariableBroadcast(&paq_shared->load_cv);
	return pg_atomic_exchange_u32(&paq_shared->table_failing, 0) != 0;
}

/* The table works, but has a long way to go. */
void
paq_loading_lags(void)
{
	if (pg_atomic_read_u32(&paq_shared->table_awaited) != 0)
		stop_waiting();
}

/* The table cannot be written.  Returns whether that is news. */
bool
paq_loading_failed(void)
{
	stop_waiting();
	return pg_atomic_exchange_u32(&paq_shared->table_failing, 1) == 0;
}

/* Is that so? */
bool
paq_loading_is_failing(void)
{
	return pg_atomic_read_u32(&paq_shared->table_failing) != 0;
}

/* Process id of the loader, 0 if there is none. */
int
paq_loading_loader_pid(void)
{
	return (int) pg_atomic_read_u32(&paq_shared->loader_pid);
}

/*
 * A checkpoint that no crash takes back stands behind this sequence: what is
 * before it will not be looked for in files any more.
 */
void
paq_loading_settle(uint64 sequence)
{
	pg_atomic_write_u64(&paq_shared->settled_sequence, sequence);
	paq_wake_loader();
}

uint64
paq_loading_settled(void)
{
	return pg_atomic_read_u64(&paq_shared->settled_sequence);
}
