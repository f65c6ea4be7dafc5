/*-------------------------------------------------------------------------
 *
 * wait.c
 *		Sessions that wait for the worker or the loader, and the requests
 *		between these processes.
 *
 * As with synchronous replication, a session says which position it needs,
 * wakes the worker, and sleeps; one flush answers everybody whose position it
 * covers.  A request is the highest position that anybody wants, so a session
 * that gives up has nothing to take back.  With sink = table, the worker writes
 * files, and the loader copies them into the table: a session waits for the
 * files first and then, if the table keeps up with them, for the table.
 *
 * Guarantees: every wait can be interrupted by a cancel or terminate request.
 * Nobody waits for one particular worker process: the sleep ends every second
 * to wake whoever is the worker then, so if a worker dies, sessions wait until
 * its successor has done the work.  A session that waits for long is told why,
 * and an error that ends the wait says so in its context.  A session waits for
 * the table only while the loader has it under control, and never for longer
 * than WAIT_LIMIT: whatever holds the table up - a lock, a missing database, a
 * stopped process - the records are on disk, and are loaded later.
 *
 * Waits must not be begun while holding an LWLock or a spinlock, nor in error
 * recovery.
 *
 * Locking: none; for PaqWaiter see wake.c.
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
#include "storage/latch.h"
#include "utils/wait_event.h"

/* How long a session sleeps before it looks after the worker again */
#define RECHECK_MS	1000

/*
 * How long the worker may make no progress before a queue that is full counts
 * as stuck, in ms, and how often that is looked at.  It must be longer than a
 * flush to a busy disk, and than the start of a new worker, which takes a second.
 */
#define STUCK_AFTER_MS	5000
#define STUCK_CHECK_MS	100

/* After how many sleeps a session is told why it waits; if the sink fails */
#define WARN_AFTER			10
#define WARN_OF_FAILURE		1

/* How long a session waits for the table before nobody does any more, in ms */
#define WAIT_LIMIT	5000

/* Information about wait events; set by the postmaster */
static uint32 wait_events[PAQ_NWAITS];

/* A wait of this process */
typedef struct Wait
{
	ErrorContextCallback callback;
	PaqWait		kind;
	instr_time	start;
	int			slept;			/* sleeps that nobody ended; -1: user is warned */
} Wait;

/* ----------
 * What all waits have in common
 * ----------
 */

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
	errcontext("%s", ((Wait *) arg)->kind == PAQ_WAIT_TABLE ?
			   "waiting for the audit table" : wait_reason());
}

/* How long ago that was, in ms */
static double
elapsed_ms(instr_time since)
{
	instr_time	duration;

	INSTR_TIME_SET_CURRENT(duration);
	INSTR_TIME_SUBTRACT(duration, since);
	return INSTR_TIME_GET_MILLISEC(duration);
}

/*
 * Give the waits of our processes names, where PostgreSQL has that.  For the
 * postmaster, when shared memory is made: later, it could fail, in the midst of
 * a wait.
 */
void
paq_wait_events_init(void)
{
	static const char *const names[] = {
		[PAQ_WAIT_FLUSH] = "AuditQueueFlush",
		[PAQ_WAIT_SPACE] = "AuditQueueSpace",
		[PAQ_WAIT_ROTATION] = "AuditQueueRotation",
		[PAQ_WAIT_SEAL] = "AuditQueueSeal",
		[PAQ_WAIT_TABLE] = "AuditQueueTable",
		[PAQ_WAIT_WORKER_MAIN] = "AuditQueueWorkerMain",
		[PAQ_WAIT_LOADER_MAIN] = "AuditQueueLoaderMain"
	};

	for (int i = 0; i < PAQ_NWAITS; i++)
		wait_events[i] = paq_new_wait_event(names[i]);
}

/* Information about a wait, for WaitLatch() and the like */
uint32
paq_wait_event(PaqWait wait)
{
	return wait_events[wait];
}

/* Begin a wait; an error may end it without end_wait(). */
static void
begin_wait(Wait *wait, PaqWait kind)
{
	wait->kind = kind;
	wait->slept = 0;
	INSTR_TIME_SET_CURRENT(wait->start);
	wait->callback.callback = wait_context;
	wait->callback.arg = wait;
	wait->callback.previous = error_context_stack;
	error_context_stack = &wait->callback;
}

static void
end_wait(Wait *wait)
{
	error_context_stack = wait->callback.previous;
	if (wait->kind != PAQ_WAIT_ROTATION && wait->kind != PAQ_WAIT_SEAL)
		paq_stats_add(&paq_my_stats->waited_us,
					  (uint64) (elapsed_ms(wait->start) * 1000.0));
}

/*
 * Nothing has happened for another RECHECK_MS.  If the worker ended, there is a
 * new one within seconds, and most waits do not take that long; if this one does,
 * tell the user why, once.  The worker's last error may have names of files, so
 * it goes to the server's log only.
 */
static void
warn_of_wait(Wait *wait)
{
	const bool	failing = pg_atomic_read_u32(&paq_shared->failing) != 0;
	char		error[PAQ_ERROR_LEN];

	if (wait->slept < 0 ||
		++wait->slept < (failing ? WARN_OF_FAILURE : WARN_AFTER))
		return;
	wait->slept = -1;
	paq_stats_read(error, paq_stats->worker.last_error, sizeof(error));
	ereport(WARNING,
			(errmsg("%s", wait_reason()),
			 failing ? errdetail_log("%s", error) : 0,
			 errhint("The server log and the view \"audit_queue_stats\" show what keeps the audit trail from being written.")));
}

/* ----------
 * Waiting for space
 * ----------
 */

/*
 * A number that changes whenever the worker makes progress, even if that does
 * not help us yet: it may have to drain backlog first, or to write a long
 * record.  What is written while the sink fails does not count, because it is
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
 * Is it useless to go on waiting?  *seen is the worker's progress at the time
 * *since.
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
		elapsed_ms(*since) >= STUCK_AFTER_MS;
}

/*
 * Wait until size bytes of the queue are free; others may take them before
 * the caller does.  Unless patient, returns false as soon as the worker makes no
 * progress, or the sink fails.  May raise the error of an interrupt.
 */
bool
paq_wait_for_space(uint64 size, bool patient)
{
	ConditionVariable *cv = &paq_shared->space_cv;
	uint64		end = paq_queue_end() + size + sizeof(PaqFrame);
	uint64		seen = worker_progress();
	instr_time	since;
	Wait		wait;
	bool		stuck = false;

	if (pg_atomic_read_u64(&paq_live.live->limit) >= end)
		return true;
	begin_wait(&wait, PAQ_WAIT_SPACE);
	paq_stats_add(&paq_my_stats->space_waits, 1);
	since = wait.start;
	raise_request(&paq_shared->space_request, end);
	ConditionVariablePrepareToSleep(cv);
	while (pg_atomic_read_u64(&paq_live.live->limit) < end && !paq_ring_detour())
	{
		if (!patient && (stuck = is_stuck(&seen, &since)))
			break;
		paq_wake_worker();
		if (ConditionVariableTimedSleep(cv, patient ? RECHECK_MS : STUCK_CHECK_MS,
										paq_wait_event(wait.kind)) && patient)
			warn_of_wait(&wait);
	}
	ConditionVariableCancelSleep();
	end_wait(&wait);
	return !stuck;
}

/* ----------
 * Waiting for a flush
 * ----------
 */

/*
 * Sleep until "flushed" is at least pos.  May raise the error of an interrupt.
 * The worker is woken once, and again whenever RECHECK_MS pass: it may be another
 * one by then.  A process that has no PaqWaiter only looks that often.
 */
static void
wait_flushed(uint64 pos)
{
	const int	number = paq_proc_number();
	PaqWaiter  *waiter = number >= 0 && number < MaxBackends ?
		&paq_shared->waiters[number] : NULL;
	Wait		wait;
	int			rc = WL_TIMEOUT;

	begin_wait(&wait, PAQ_WAIT_FLUSH);
	paq_stats_add(&paq_my_stats->flush_waits, 1);
	if (waiter != NULL)
	{
		pg_atomic_write_u64(&waiter->latch, (uintptr_t) MyLatch);
		pg_write_barrier();		/* pairs with the exchange in
								 * paq_wake_waiters() */
		pg_atomic_write_u64(&waiter->pos, pos);

		/* Pairs with the barrier in paq_wake_waiters(). */
		pg_memory_barrier();
	}
	raise_request(&paq_shared->flush_request, pos);
	while (!paq_queue_is_flushed(pos))
	{
		if (rc & WL_TIMEOUT)
			paq_wake_worker();
		rc = WaitLatch(MyLatch,
					   WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					   RECHECK_MS, paq_wait_event(wait.kind));
		ResetLatch(MyLatch);
		CHECK_FOR_INTERRUPTS();
		if (rc & WL_TIMEOUT)
			warn_of_wait(&wait);
	}
	if (waiter != NULL)
		pg_atomic_write_u64(&waiter->pos, 0);
	end_wait(&wait);
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

/* ----------
 * Waiting for the table
 * ----------
 */

/* Is everything before pos in the table, or does nobody wait for the table? */
static bool
is_loaded(uint64 pos)
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
 * or until it turns out that this will take long.  May raise the error of an
 * interrupt.
 */
static void
wait_loaded(uint64 pos)
{
	Wait		wait;

	begin_wait(&wait, PAQ_WAIT_TABLE);
	ConditionVariablePrepareToSleep(&paq_shared->load_cv);
	while (!is_loaded(pos))
	{
		paq_wake_loader();
		if (ConditionVariableTimedSleep(&paq_shared->load_cv, RECHECK_MS,
										paq_wait_event(wait.kind)) &&
			elapsed_ms(wait.start) >= WAIT_LIMIT)
			stop_waiting();
	}
	ConditionVariableCancelSleep();
	end_wait(&wait);
}

/*
 * Wait until everything before pos is durable in the trail: in its files, and,
 * if that is where it goes and as long as it keeps up, in the table.  May raise
 * the error of an interrupt.  In single-user mode this process writes the trail
 * itself; what cannot be written is still in the queue file.
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
	if (!is_loaded(pos))
		wait_loaded(pos);
}

/* ----------
 * Waiting for what the worker is asked for
 * ----------
 */

/*
 * Have the worker do that, and wait until it has; false if it could not.  May raise the
 * error of an interrupt.  Raises an error in single-user mode.
 */
bool
paq_queue_request(PaqRequest what)
{
	static const PaqWait kinds[] = {
		[PAQ_REQUEST_ROTATE] = PAQ_WAIT_ROTATION,
		[PAQ_REQUEST_SEAL] = PAQ_WAIT_SEAL,
		[PAQ_REQUEST_REPORT] = PAQ_WAIT_FLUSH
	};
	Wait		wait;
	uint32		number;

	StaticAssertStmt(lengthof(kinds) == PAQ_NREQUESTS, "a kind of wait for each request");
	if (!IsUnderPostmaster)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("there is no audit worker in single-user mode")));
	begin_wait(&wait, kinds[what]);
	number = pg_atomic_add_fetch_u32(&paq_shared->requests[what].made, 1);
	ConditionVariablePrepareToSleep(&paq_shared->request_cv);
	while ((int32) (pg_atomic_read_u32(&paq_shared->requests[what].done) - number) < 0)
	{
		paq_wake_worker();
		if (ConditionVariableTimedSleep(&paq_shared->request_cv, RECHECK_MS,
										paq_wait_event(wait.kind)))
			warn_of_wait(&wait);
	}
	ConditionVariableCancelSleep();
	end_wait(&wait);

	pg_read_barrier();			/* pairs with that in paq_worker_has_done() */
	return (int32) (pg_atomic_read_u32(&paq_shared->requests[what].failed) - number) < 0;
}

/*
 * Wait until the durable trail reports every record that was dropped before the
 * call.  May raise the error of an interrupt.  Not for commit and immediate, which
 * promise something about their own records.
 *
 * A batch reports what has been dropped before it ends.  What is dropped behind it
 * waits for the next batch, which without more records is due only after
 * flush_interval; hence the request.
 */
void
paq_queue_wait_reported(void)
{
	if (!IsUnderPostmaster)
		return;
	for (int i = 0; i < PAQ_NDROPS; i++)
	{
		const uint64 dropped = pg_atomic_read_u64(&paq_live.live->drops[i].count);

		while (pg_atomic_read_u64(&paq_shared->reported[i]) < dropped)
			(void) paq_queue_request(PAQ_REQUEST_REPORT);
	}
}

/* ----------
 * The worker's side
 * ----------
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
		pg_atomic_read_u64(&paq_live.live->limit);
}

/* Number of the newest request for that; false if all are served. */
bool
paq_worker_is_asked(PaqRequest what, uint32 *number)
{
	*number = pg_atomic_read_u32(&paq_shared->requests[what].made);
	return *number != pg_atomic_read_u32(&paq_shared->requests[what].done);
}

/*
 * All requests up to this one have been served; or, unless ok, cannot be for
 * now.
 */
void
paq_worker_has_done(PaqRequest what, uint32 number, bool ok)
{
	if (!ok)
		pg_atomic_write_u32(&paq_shared->requests[what].failed, number);
	pg_write_barrier();			/* pairs with that in paq_queue_request() */
	pg_atomic_write_u32(&paq_shared->requests[what].done, number);
	ConditionVariableBroadcast(&paq_shared->request_cv);
}

/*
 * Does the sink fail?  Sessions that do not wait for as long as that takes
 * learn of it at once.
 */
void
paq_worker_failing(bool failing)
{
	pg_atomic_write_u32(&paq_shared->failing, failing ? 1 : 0);
	if (failing)
		ConditionVariableBroadcast(&paq_shared->space_cv);
}

/* ----------
 * The loader's side
 * ----------
 */

static void
loader_detach(int code, Datum arg)
{
	pg_atomic_write_u64(&paq_shared->loader_latch, 0);
	stop_waiting();
	pg_atomic_write_u32(&paq_shared->loader_pid, 0);

	/* The worker starts the next one. */
	paq_wake_worker();
}

/* Become the loader, until exit; false if there is one already. */
bool
paq_loading_attach(void)
{
	uint32		nobody = 0;

	if (!pg_atomic_compare_exchange_u32(&paq_shared->loader_pid, &nobody,
										(uint32) MyProcPid))
		return false;
	pg_atomic_write_u64(&paq_shared->loader_latch, (uintptr_t) MyLatch);
	on_shmem_exit(loader_detach, (Datum) 0);
	return true;
}

/*
 * Up to which sequence records may be loaded now: they are durable, and will
 * not be taken back.  *pos is a position all of whose records these include.
 */
uint64
paq_loading_limit(uint64 *pos)
{
	*pos = pg_atomic_read_u64(&paq_shared->flushed);
	pg_read_barrier();			/* pairs with that in paq_reader_flushed() */
	return pg_atomic_read_u64(&paq_shared->flushed_sequence);
}

/*
 * The table has everything before pos; if awaited, it keeps up, and sessions can
 * wait for it.  Returns whether writing it failed before.
 */
bool
paq_loading_reached(uint64 pos, bool awaited)
{
	pg_atomic_write_u64(&paq_shared->loaded, pos);
	pg_write_barrier();			/* a session that sees an older "loaded" only
								 * waits longer */
	pg_atomic_write_u32(&paq_shared->table_awaited, awaited ? 1 : 0);
	ConditionVariableBroadcast(&paq_shared->load_cv);
	return pg_atomic_exchange_u32(&paq_shared->table_failing, 0) != 0;
}

/* The table works, but there is much to load. */
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
 * A checkpoint beyond this sequence is on disk: records up to it will not be
 * looked for in files any more.
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
