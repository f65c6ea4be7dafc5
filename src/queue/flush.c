/*-------------------------------------------------------------------------
 *
 * flush.c
 *		A session's waiting for the worker: for space, for a flush, for a
 *		new file.
 *
 * As with synchronous replication, a session says which position it needs,
 * wakes the worker, and sleeps; one flush answers everybody whose position it
 * covers.  A request is the highest position that anybody wants, so a session
 * that gives up has nothing to take back.
 *
 * Guarantees: every wait here can be interrupted by a cancel or terminate
 * request.  Nobody waits for one particular worker process: the sleep ends
 * every second to wake whoever is the worker then, so a worker that died is
 * waited for until its successor has done the work.  Whoever waits for long is
 * told why, and what ends the wait says so in its context.
 *
 * Must not be called while holding an LWLock or a spinlock, nor with the
 * intention to wait in error recovery.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "stats.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/shmem.h"
#include "utils/wait_event.h"

/*
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
 */

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

/* How long a session sleeps before it looks after the worker again */
#define RECHECK_MS	1000

/*
 * How long the worker may make no progress before a queue that is full counts
 * as stuck, in ms, and how often that is looked at.  A busy disk's flush, and
 * the start of a new worker, which takes a second, must be shorter.
 */
#define STUCK_AFTER_MS	5000
#define STUCK_CHECK_MS	100

/* After how many of these sleeps a session is told why it waits; if the sink fails */
#define WARN_AFTER			10
#define WARN_OF_FAILURE		1

/*
 * Wake the worker, from hibernation or from its nap.  Without one this does
 * nothing: the next worker looks at all requests when it starts.  The latch is
 * part of a PGPROC, which stays valid memory; to set it for a worker that has
 * just left wakes, at worst, somebody else for nothing.
 */
void
paq_wake_worker(void)
{
	Latch	   *latch;

	pg_atomic_write_u32(&paq_shared->hibernating, 0);
	latch = (Latch *) (uintptr_t) pg_atomic_read_u64(&paq_shared->worker_latch);
	if (latch != NULL)
		SetLatch(latch);
}

/* Raise *request to at least pos. */
static void
raise_request(pg_atomic_uint64 *request, uint64 pos)
{
	uint64		current = pg_atomic_read_u64(request);

	while (current < pos &&
		   !pg_atomic_compare_exchange_u64(request, &current, pos))
		;
}

static const char *
wait_reason(void)
{
	if (pg_atomic_read_u32(&paq_shared->failing) != 0)
		return "waiting for the audit trail, which cannot be written";
	if (pg_atomic_read_u64(&paq_shared->worker_latch) == 0)
		return "waiting for the audit worker, which is not running";
	return "waiting for the audit trail";
}

/* For messages that are reported while waiting, first of all that of a cancel */
static void
wait_context(void *arg)
{
	errcontext("%s", wait_reason());
}

static void
begin_wait(ErrorContextCallback *callback)
{
	callback->callback = wait_context;
	callback->arg = NULL;
	callback->previous = error_context_stack;
	error_context_stack = callback;
}

static void
end_wait(ErrorContextCallback *callback)
{
	error_context_stack = callback->previous;
}

/*
 * The worker has not been heard of for another RECHECK_MS: *slept of them.  It
 * is back within seconds if it ended, and most waits do not take that long; if
 * this one does, tell the user why, once.  The names of files in the worker's
 * last error are for the server's log only.
 */
static void
warn_of_wait(int *slept)
{
	const bool	failing = pg_atomic_read_u32(&paq_shared->failing) != 0;
	PaqWorkerStats *worker = &paq_stats->worker;
	char		error[PAQ_ERROR_LEN];

	if (*slept < 0 || ++*slept < (failing ? WARN_OF_FAILURE : WARN_AFTER))
		return;
	*slept = -1;
	SpinLockAcquire(&worker->mutex);
	strlcpy(error, worker->last_error, sizeof(error));
	SpinLockRelease(&worker->mutex);
	ereport(WARNING,
			(errmsg("%s", wait_reason()),
			 failing ? errdetail_log("%s", error) : 0,
			 errhint("The server log and the view \"audit_queue_stats\" show what keeps the audit trail from being written.")));
}

/* How long ago that was, in ms */
double
paq_elapsed_ms(instr_time since)
{
	instr_time	duration;

	INSTR_TIME_SET_CURRENT(duration);
	INSTR_TIME_SUBTRACT(duration, since);
	return INSTR_TIME_GET_MILLISEC(duration);
}

/*
 * Something that changes whenever the worker gets on, even if that does not
 * help us yet: it may have to drain backlog first, or be writing a record that
 * takes long.  What a failing sink has written is no progress, because it is
 * written again and again.
 */
static uint64
worker_progress(void)
{
	uint64		progress = pg_atomic_read_u64(&paq_shared->progress);

	if (pg_atomic_read_u32(&paq_shared->failing) == 0)
		progress += pg_atomic_read_u64(&paq_stats->worker.written);
	return progress;
}

/*
 * Is there no point in going on to wait?  *seen is the worker's progress at
 * the time *since.
 */
static bool
is_stuck(uint64 *seen, instr_time *since)
{
	uint64		now = worker_progress();

	if (now != *seen)
	{
		*seen = now;
		INSTR_TIME_SET_CURRENT(*since);
	}
	return (paq_overflow == PAQ_OVERFLOW_ERROR &&
			pg_atomic_read_u32(&paq_shared->failing) != 0) ||
		paq_elapsed_ms(*since) >= STUCK_AFTER_MS;
}

static void
count_time(instr_time start)
{
	paq_stats_add(&paq_my_stats->waited_us,
				  (uint64) (paq_elapsed_ms(start) * 1000.0));
}

/*
 * Sleep until "released" is at least pos.  Unless patient, returns false as soon
 * as the worker is stuck.  May raise the error of an interrupt.
 */
static bool
wait_released(uint64 pos, bool patient)
{
	ConditionVariable *cv = &paq_shared->space_cv;
	const long	timeout = patient ? RECHECK_MS : STUCK_CHECK_MS;
	static uint32 event = 0;
	uint64		seen = worker_progress();
	ErrorContextCallback callback;
	instr_time	start;
	instr_time	since;
	int			slept = 0;
	bool		stuck = false;

	if (event == 0)
		event = paq_wait_event("AuditQueueSpace");
	begin_wait(&callback);
	paq_stats_add(&paq_my_stats->space_waits, 1);
	INSTR_TIME_SET_CURRENT(start);
	since = start;
	raise_request(&paq_shared->space_request, pos);
	ConditionVariablePrepareToSleep(cv);
	while (pg_atomic_read_u64(&paq_live.live->released) < pos)
	{
		if (!patient && (stuck = is_stuck(&seen, &since)))
			break;
		paq_wake_worker();
		if (ConditionVariableTimedSleep(cv, timeout, event) && patient)
			warn_of_wait(&slept);
	}
	ConditionVariableCancelSleep();
	end_wait(&callback);
	count_time(start);
	return !stuck;
}

/*
 * Sleep until "flushed" is at least pos.  May raise the error of an interrupt.
 * The worker is woken once, and again if it is not heard of: it may be another
 * one by then.
 */
static void
wait_flushed(uint64 pos)
{
	static uint32 event = 0;
	ErrorContextCallback callback;
	int			rc = WL_TIMEOUT;
	int			slept = 0;
	instr_time	start;

	if (event == 0)
		event = paq_wait_event("AuditQueueFlush");
	begin_wait(&callback);
	paq_stats_add(&paq_my_stats->flush_waits, 1);
	INSTR_TIME_SET_CURRENT(start);
	paq_waiter_begin(pos);
	raise_request(&paq_shared->flush_request, pos);
	while (!paq_queue_is_flushed(pos))
	{
		if (rc & WL_TIMEOUT)
			paq_wake_worker();
		rc = WaitLatch(MyLatch,
					   WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   RECHECK_MS, event);
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (rc & WL_TIMEOUT)
			warn_of_wait(&slept);
	}
	paq_waiter_end();
	end_wait(&callback);
	count_time(start);
}

/*
 * Wait until size bytes of the queue are free; others may take them before
 * the caller does.  Unless patient, returns false if it seems that they will
 * not be: the worker makes no progress, or the sink fails.
 */
bool
paq_wait_for_space(uint64 size, bool patient)
{
	uint64		end = pg_atomic_read_u64(&paq_live.live->reserved) + size;

	if (end <= paq_live.ring_size)
		return true;
	return wait_released(end - paq_live.ring_size, patient);
}

/* Position after everything that has been put into the queue so far. */
uint64
paq_queue_end(void)
{
	return pg_atomic_read_u64(&paq_live.live->reserved);
}

/* Bytes of the queue that are in use. */
uint64
paq_queue_used(void)
{
	/* "released" first: it never overtakes a "reserved" read later. */
	uint64		released = pg_atomic_read_u64(&paq_live.live->released);

	pg_read_barrier();
	return pg_atomic_read_u64(&paq_live.live->reserved) - released;
}

/* Size of the queue in bytes. */
uint64
paq_queue_capacity(void)
{
	return paq_live.ring_size;
}

/* Is everything before pos durable in the trail's files? */
bool
paq_queue_is_flushed(uint64 pos)
{
	return pg_atomic_read_u64(&paq_shared->flushed) >= pos;
}

/* Ask for a flush up to pos, without waiting for it. */
void
paq_queue_request_flush(uint64 pos)
{
	if (paq_queue_is_flushed(pos))
		return;
	raise_request(&paq_shared->flush_request, pos);
	paq_wake_worker();
}

/*
 * Wait until everything before pos is durable in the trail: in its files, and,
 * if that is where it goes and as long as it keeps up, in the table.  May raise
 * the error of an interrupt.  In single-user mode there is nobody to wait for;
 * what cannot be written to the trail then is in the queue file still.
 */
void
paq_queue_wait_flushed(uint64 pos)
{
	if (!IsUnderPostmaster)
	{
		(void) paq_queue_drain_alone();
		return;
	}
	if (!paq_queue_is_flushed(pos))
		wait_flushed(pos);
	if (!paq_is_loaded(pos))
		paq_wait_loaded(pos);
}

/*
 * Sequence of the last record known to be durable, 0 if none is.  After a
 * wait for a position it covers that position.
 */
uint64
paq_queue_flushed_sequence(void)
{
	/* Pairs with the barrier in paq_reader_flushed(). */
	pg_read_barrier();
	return pg_atomic_read_u64(&paq_shared->flushed_sequence);
}

/*
 * Have the worker start a new trail file, and wait until it has.  May raise
 * the error of an interrupt, and does raise one if there is no worker, or no
 * new file can be made.
 */
void
paq_queue_rotate(void)
{
	ErrorContextCallback callback;
	uint32		request;
	int			slept = 0;

	if (!IsUnderPostmaster)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("there is no audit worker in single-user mode")));
	begin_wait(&callback);
	request = pg_atomic_add_fetch_u32(&paq_shared->rotate_request, 1);
	ConditionVariablePrepareToSleep(&paq_shared->rotate_cv);
	while ((int32) (pg_atomic_read_u32(&paq_shared->rotate_done) - request) < 0)
	{
		paq_wake_worker();
		if (ConditionVariableTimedSleep(&paq_shared->rotate_cv, RECHECK_MS,
										PG_WAIT_EXTENSION))
			warn_of_wait(&slept);
	}
	ConditionVariableCancelSleep();
	end_wait(&callback);

	pg_read_barrier();			/* pairs with that in paq_worker_rotate_done() */
	if ((int32) (pg_atomic_read_u32(&paq_shared->rotate_failed) - request) >= 0)
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not start a new audit trail file"),
				 errdetail("The current file is written to until one can be made."),
				 errhint("The server log and the view \"audit_queue_stats\" show the reason.")));
}

/*
 *		The worker's side of what sessions want from it: wake-ups, requests
 *		for a flush, for space, for a new file.
 *
 * Guarantees: a request made before paq_worker_hibernate() returned true is
 * never slept through; see there.
 *
 * Locking: none.
 */

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
