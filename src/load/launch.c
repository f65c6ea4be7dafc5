/*-------------------------------------------------------------------------
 *
 * launch.c
 *		Starting the loader, from the worker.
 *
 * The worker itself is connected to no database, so that nothing that has to
 * do with one can hold it up: it starts with the postmaster, on standbys too,
 * and DROP DATABASE does not wait for it.  What has to be in a database is done
 * by a process of its own, the loader.  It lives while sink = table; it leaves
 * by itself when the settings change, and is started again here.
 *
 * Guarantees: there is at most one loader, see paq_loading_attach(); if it
 * cannot do its work, it is started again ever less often.  A standby has none,
 * nor a place for one, until it is promoted.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "guc.h"
#include "load/load.h"
#include "load/load_internal.h"
#include "miscadmin.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "queue/loading.h"
#include "stats.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Delays between attempts to start a loader that fails, in ms */
#define MIN_DELAY	1000
#define MAX_DELAY	60000

/*
 * How long, in ms, until it is looked again whether recovery is over: as long as
 * this process has run, within these limits.  So the loader is there soon after
 * most starts, and a standby hardly notices.
 */
#define MIN_RECOVERY_DELAY	10
#define MAX_RECOVERY_DELAY	5000

/* Where the loader stands that we have started; NULL: none */
static BackgroundWorkerHandle *handle = NULL;

static TimestampTz start_at = 0;	/* not before then */
static char tried_database[NAMEDATALEN];
static int	delay = MIN_DELAY;

static bool
register_loader(void)
{
	BackgroundWorker worker;
	MemoryContext old_context;
	bool		ok;

	memset(&worker, 0, sizeof(worker));
	worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker.bgw_restart_time = BGW_NEVER_RESTART;
	strlcpy(worker.bgw_library_name, "pg_audit_queue", BGW_MAXLEN);
	strlcpy(worker.bgw_function_name, "paq_load_main", BGW_MAXLEN);
	strlcpy(worker.bgw_name, PAQ_LOADER_NAME, BGW_MAXLEN);
	strlcpy(worker.bgw_type, PAQ_LOADER_NAME, BGW_MAXLEN);
	worker.bgw_notify_pid = MyProcPid;
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	ok = RegisterDynamicBackgroundWorker(&worker, &handle);
	MemoryContextSwitchTo(old_context);
	return ok;
}

/* Is there one, or one on its way? */
static bool
is_running(void)
{
	pid_t		pid;

	if (handle != NULL)
	{
		if (GetBackgroundWorkerPid(handle, &pid) != BGWH_STOPPED)
			return true;
		pfree(handle);
		handle = NULL;
	}

	/* The worker before us may have started it. */
	return paq_loading_loader_pid() != 0;
}

/*
 * When to look again whether recovery is over.  Nobody tells of its end: a loader
 * that is registered before is started then, but until then keeps one of
 * max_worker_processes, and so would that of each worker after us.
 */
static TimestampTz
recovery_check_at(TimestampTz now)
{
	long		running = TimestampDifferenceMilliseconds(MyStartTimestamp, now);

	return TimestampTzPlusMilliseconds(now,
									   Min(Max(running, MIN_RECOVERY_DELAY),
										   MAX_RECOVERY_DELAY));
}

/*
 * See to it that there is a loader if there should be one.  Called by the worker
 * whenever it is awake; returns when it wants to be called again, if nothing
 * happens before.
 */
TimestampTz
paq_load_tend(TimestampTz now)
{
	if (paq_sink != PAQ_SINK_TABLE || ShutdownRequestPending || IsBinaryUpgrade ||
		is_running())
		return DT_NOEND;
	if (RecoveryInProgress())
		return recovery_check_at(now);
	if (strcmp(tried_database, paq_database) != 0)
	{
		/* What failed before may work now. */
		strlcpy(tried_database, paq_database, sizeof(tried_database));
		start_at = now;
		delay = MIN_DELAY;
	}
	/* unless somebody has set the clock back */
	start_at = Min(start_at, TimestampTzPlusMilliseconds(now, delay));
	if (now < start_at)
		return start_at;
	delay = paq_loading_is_failing() ? Min(delay * 2, MAX_DELAY) : MIN_DELAY;
	start_at = TimestampTzPlusMilliseconds(now, delay);
	if (register_loader())
		return DT_NOEND;
	if (paq_loading_failed())
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("audit records cannot be loaded into the table: there is no room for a background worker"),
				 errdetail("They stay in files until there is."),
				 errhint("Increase the configuration parameter \"max_worker_processes\".")));
	paq_stats_worker_error("no room for a background worker, the loader");
	return start_at;
}
