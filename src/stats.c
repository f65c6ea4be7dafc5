/*-------------------------------------------------------------------------
 *
 * stats.c
 *		Counters in shared memory (see stats.h for who writes what).
 *
 * Locking: counters are single-writer atomics.  One spinlock protects what stats.h
 * says; for the other one, see paq_stats_begin_write().
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"
#include "stats.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

PaqStatsShared *paq_stats = NULL;

/* Where a process without a slot counts: nowhere. */
static PaqBackendStats dummy_backend_stats;
PaqBackendStats *paq_my_stats = &dummy_backend_stats;

/* Bytes of shared memory for nbackends slots. */
Size
paq_stats_shmem_size(int nbackends)
{
	return add_size(offsetof(PaqStatsShared, backend),
					mul_size(nbackends, sizeof(PaqBackendStats)));
}

static void
init_worker_stats(PaqWorkerStats *worker)
{
	pg_atomic_init_u64(&worker->recovered, 0);
	pg_atomic_init_u64(&worker->drained, 0);
	pg_atomic_init_u64(&worker->flushed, 0);
	for (int i = 0; i < PAQ_NKINDS; i++)
	{
		pg_atomic_init_u64(&worker->kinds_drained[i], 0);
		pg_atomic_init_u64(&worker->kinds_flushed[i], 0);
	}
	pg_atomic_init_u64(&worker->bytes, 0);
	pg_atomic_init_u64(&worker->written, 0);
	pg_atomic_init_u64(&worker->batches, 0);
	pg_atomic_init_u64(&worker->fsyncs, 0);
	pg_atomic_init_u64(&worker->wakeups, 0);
	pg_atomic_init_u64(&worker->seals, 0);
	pg_atomic_init_u64(&worker->high_water, 0);
	pg_atomic_init_u64(&worker->unflushed_since, 0);
	pg_atomic_init_u64(&worker->setting_errors, 0);
	pg_atomic_init_u64(&worker->policy_errors, 0);
	pg_atomic_init_u32(&worker->worker_pid, 0);
	SpinLockInit(&worker->mutex);
}

static void
init_backend_stats(PaqBackendStats *backend)
{
	pg_atomic_init_u64(&backend->published, 0);
	pg_atomic_init_u64(&backend->space_waits, 0);
	pg_atomic_init_u64(&backend->flush_waits, 0);
	pg_atomic_init_u64(&backend->waited_us, 0);
	pg_atomic_init_u64(&backend->incomplete, 0);
	pg_atomic_init_u64(&backend->wal_commits, 0);
	pg_atomic_init_u64(&backend->wal_fallbacks, 0);
}

/*
 * Create the counters; the caller holds AddinShmemInitLock.  They start at
 * zero with the server, after a crash too.
 */
void
paq_stats_shmem_init(int nbackends)
{
	bool		found;

	paq_stats = ShmemInitStruct("pg_audit_queue statistics",
								paq_stats_shmem_size(nbackends), &found);
	if (found)
		return;
	memset(paq_stats, 0, paq_stats_shmem_size(nbackends));
	SpinLockInit(&paq_stats->mutex);
	paq_stats->reset_time = GetCurrentTimestamp();
	init_worker_stats(&paq_stats->worker);
	pg_atomic_init_u64(&paq_stats->setting_changes, 0);
	pg_atomic_init_u64(&paq_stats->loaded, 0);
	pg_atomic_init_u64(&paq_stats->slotless, 0);
	for (int i = 0; i < PAQ_NDROPS; i++)
		pg_atomic_init_u64(&paq_stats->dropped[i], 0);
	paq_stats->nbackends = nbackends;
	for (int i = 0; i < nbackends; i++)
		init_backend_stats(&paq_stats->backend[i]);
}

/* Count in this slot from now on, if there is one with that number. */
void
paq_stats_attach(int slot)
{
	if (slot < paq_stats->nbackends)
		paq_my_stats = &paq_stats->backend[slot];
}

/*
 * What is behind the mutex of the worker's statistics may be changed until
 * paq_stats_end_write().  Nothing but assignments and copies may be in between.
 */
void
paq_stats_begin_write(void)
{
	PaqWorkerStats *worker = &paq_stats->worker;

	SpinLockAcquire(&worker->mutex);
	worker->changes++;
	pg_write_barrier();
}

void
paq_stats_end_write(void)
{
	PaqWorkerStats *worker = &paq_stats->worker;

	pg_write_barrier();
	worker->changes++;
	SpinLockRelease(&worker->mutex);
}

/*
 * Copy some of that, as it was at one moment.  A reader keeps no writer waiting, but copies again
 * what was changed meanwhile, which is rare.
 */
void
paq_stats_read(void *dst, const void *src, Size len)
{
	const volatile uint32 *changes = &paq_stats->worker.changes;
	uint32		before;
	uint32		after;

	for (;;)
	{
		before = *changes;
		pg_read_barrier();
		memcpy(dst, src, len);
		pg_read_barrier();
		after = *changes;
		if (before == after && before % 2 == 0)
			return;
		CHECK_FOR_INTERRUPTS();
	}
}

/* Remember the worker's last error, cut to fit. */
void
paq_stats_worker_error(const char *message)
{
	PaqWorkerStats *worker = &paq_stats->worker;
	TimestampTz now = GetCurrentTimestamp();

	paq_stats_begin_write();
	strlcpy(worker->last_error, message, sizeof(worker->last_error));
	worker->last_error_time = now;
	paq_stats_end_write();
}

/* Both are counts by class that only this process writes. */
void
paq_stats_kinds_copy(pg_atomic_uint64 *to, pg_atomic_uint64 *from)
{
	for (int i = 0; i < PAQ_NKINDS; i++)
		pg_atomic_write_u64(&to[i], pg_atomic_read_u64(&from[i]));
}

/* Sum up all counters since the server started. */
static void
sum_counters(PaqStatsCounters *sum)
{
	PaqWorkerStats *worker = &paq_stats->worker;

	memset(sum, 0, sizeof(*sum));

	/*
	 * The loader's and the worker's first, so that a record can be seen as
	 * published and not yet drained, but not the other way round.
	 */
	sum->loaded = pg_atomic_read_u64(&paq_stats->loaded);
	sum->flushed = pg_atomic_read_u64(&worker->flushed);
	sum->drained = pg_atomic_read_u64(&worker->drained);
	for (int i = 0; i < PAQ_NKINDS; i++)
		sum->kinds[i] = pg_atomic_read_u64(&worker->kinds_flushed[i]);
	sum->bytes = pg_atomic_read_u64(&worker->bytes);
	sum->batches = pg_atomic_read_u64(&worker->batches);
	sum->fsyncs = pg_atomic_read_u64(&worker->fsyncs);
	sum->wakeups = pg_atomic_read_u64(&worker->wakeups);
	sum->seals = pg_atomic_read_u64(&worker->seals);
	pg_read_barrier();			/* pairs with the write barrier in
								 * commit_frame(): counted, then visible */
	sum->published = pg_atomic_read_u64(&worker->recovered) +
		pg_atomic_read_u64(&paq_stats->slotless);
	for (int i = 0; i < paq_stats->nbackends; i++)
	{
		PaqBackendStats *backend = &paq_stats->backend[i];

		sum->published += pg_atomic_read_u64(&backend->published);
		sum->space_waits += pg_atomic_read_u64(&backend->space_waits);
		sum->flush_waits += pg_atomic_read_u64(&backend->flush_waits);
		sum->waited_us += pg_atomic_read_u64(&backend->waited_us);
		sum->incomplete += pg_atomic_read_u64(&backend->incomplete);
		sum->wal_commits += pg_atomic_read_u64(&backend->wal_commits);
		sum->wal_fallbacks += pg_atomic_read_u64(&backend->wal_fallbacks);
	}
	for (int i = 0; i < PAQ_NDROPS; i++)
		sum->dropped[i] = pg_atomic_read_u64(&paq_stats->dropped[i]);
}

/*
 * Sum up all counters since the last reset, whose time is returned.
 *
 * What the worker has drained is less again after a failed flush, until it has
 * been drained once more.  If there was a reset in between, it was counted before
 * that, so there is nothing to be counted yet.
 */
TimestampTz
paq_stats_since_reset(PaqStatsCounters *counters)
{
	uint64	   *counter = (uint64 *) counters;
	PaqStatsCounters base;
	TimestampTz reset_time;

	/* first what is subtracted, so that there is no later reset in it */
	SpinLockAcquire(&paq_stats->mutex);
	base = paq_stats->base;
	reset_time = paq_stats->reset_time;
	SpinLockRelease(&paq_stats->mutex);
	sum_counters(counters);
	for (int i = 0; i < sizeof(base) / sizeof(uint64); i++)
		counter[i] -= Min(((uint64 *) &base)[i], counter[i]);
	return reset_time;
}

/* Start counting from zero, as far as readers can see. */
void
paq_stats_reset(void)
{
	PaqStatsCounters sum;
	TimestampTz now = GetCurrentTimestamp();

	sum_counters(&sum);
	SpinLockAcquire(&paq_stats->mutex);
	paq_stats->base = sum;
	paq_stats->reset_time = now;
	SpinLockRelease(&paq_stats->mutex);
	pg_atomic_write_u64(&paq_stats->worker.high_water, 0);
}
