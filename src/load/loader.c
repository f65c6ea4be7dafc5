/*-------------------------------------------------------------------------
 *
 * loader.c
 *		The process that copies the trail's files into the table, and its start
 *		by the worker.
 *
 * The worker itself is connected to no database, so that nothing that has to
 * do with one can hold it up: it starts with the postmaster, on standbys too,
 * and DROP DATABASE does not wait for it.  What has to be in a database is done
 * by a process of its own, the loader.  It runs while sink = table; it leaves when
 * sink or database is changed, and when it is told to, and the worker starts
 * another one.  There is at most one, see paq_loading_attach().  One that cannot do
 * its work is started again ever less often.  A standby has none, nor a place for
 * one, until it is promoted.
 *
 * Whenever more of the files is durable, the loader loads that, in transactions of
 * bounded size.  Between these it sleeps; every hour it looks after the
 * partitions.
 *
 * Guarantees: each record is in the table once, in the order of the files
 * (table.c); nothing that happens to the table holds up anybody but the loader,
 * and those who wait for it within limits (queue/wait.c).  What fails is
 * tried again, and reported when it begins to fail and when it works again.
 *
 * What the loader does is never audited, but that it removes old partitions and
 * files is recorded (retention.c).  It is a superuser's process, so it uses no
 * search path but pg_catalog.
 *
 * Locking: an attempt fails if somebody holds a lock that the loader needs for
 * longer than LOCK_LIMIT.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_authid.h"
#include "fault.h"
#include "guc.h"
#include "libpq/pqsignal.h"
#include "load/load.h"
#include "load/load_internal.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "postmaster/interrupt.h"
#include "queue/loading.h"
#include "queue/queue.h"
#include "stats.h"
#include "storage/ipc.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/wait_event.h"

/* Delays between attempts to start a loader that fails, in ms */
#define MIN_START_DELAY	1000
#define MAX_START_DELAY	60000

/*
 * How long, in ms, until the worker looks again whether recovery is over: as long
 * as it has run, within these limits.  So the loader is there soon after
 * most starts, and a standby hardly notices.
 */
#define MIN_RECOVERY_DELAY	10
#define MAX_RECOVERY_DELAY	5000

/* Longest wait for a lock; a value of lock_timeout */
#define LOCK_LIMIT		"1s"

/* A transaction is not begun with more than so many bytes of rows. */
#define BATCH_SIZE		(2 * 1024 * 1024)

/*
 * If the table is so far behind, sessions do not wait for it, for so long; both
 * in ms
 */
#define LAG_LIMIT		1000
#define LAG_TIME		10000

/* Delays between attempts to load after a failure, in ms */
#define MIN_RETRY_DELAY	250
#define MAX_RETRY_DELAY	5000

/* How often the partitions are looked after, in ms */
#define MAINTENANCE_INTERVAL	(60 * 60 * 1000)
#define MAINTENANCE_RETRY		(60 * 1000)

/*
 * Longest time until the loader checks again whether the removal of a partition
 * is recorded, in ms; it checks whenever something is flushed
 */
#define RECORDING_DELAY			1000

extern PGDLLEXPORT void paq_load_main(Datum arg);

/* In the worker: the loader that it has started */
static struct
{
	BackgroundWorkerHandle *handle; /* NULL: none */
	TimestampTz next;			/* the next one not before then */
	int			delay;			/* between the two, in ms */
	char		database[NAMEDATALEN];	/* that was tried */
}			started = {.delay = MIN_START_DELAY};

/* All below: in the loader */
static emit_log_hook_type prev_emit_log_hook = NULL;

static char *database;			/* that we are connected to */
static MemoryContext line_context;
static PaqBatch batch;

static TimestampTz retry_at = 0;	/* 0: it works */
static int	retry_delay;
static TimestampTz late_until = 0;

/* What there was to do when load() looked last */
static struct
{
	uint64		pos;			/* durable before that position; */
	uint64		settled;		/* files up to that sequence can be removed */
}			seen;

/* Maintenance of partitions */
static struct
{
	TimestampTz due;
	bool		running;
	bool		is_done;		/* but for what is reported */
	bool		recording;		/* something will be removed when that is
								 * recorded */
}			maintenance;

/* ----------
 * Starting it, in the worker
 * ----------
 */

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
	ok = RegisterDynamicBackgroundWorker(&worker, &started.handle);
	MemoryContextSwitchTo(old_context);
	return ok;
}

/* Is there one, or one on its way? */
static bool
is_running(void)
{
	pid_t		pid;

	if (started.handle != NULL)
	{
		if (GetBackgroundWorkerPid(started.handle, &pid) != BGWH_STOPPED)
			return true;
		pfree(started.handle);
		started.handle = NULL;
	}

	/* The worker before us may have started it. */
	return paq_loading_loader_pid() != 0;
}

/*
 * When to check again whether recovery is over.  Nobody announces its end.  A
 * loader that was registered before would start then, but keep one of
 * max_worker_processes until then, and so would the loader of each later
 * worker.
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
 * Start a loader if there should be one and there is none.  The worker calls
 * this whenever it is awake; the result is the time at which it should call
 * again, if nothing happens before.
 */
TimestampTz
paq_load_tend(TimestampTz now)
{
	if (paq_sink != PAQ_SINK_TABLE || ShutdownRequestPending || IsBinaryUpgrade ||
		is_running())
		return DT_NOEND;
	if (RecoveryInProgress())
		return recovery_check_at(now);
	if (strcmp(started.database, paq_database) != 0)
	{
		/* What failed before may work now. */
		strlcpy(started.database, paq_database, sizeof(started.database));
		started.next = now;
		started.delay = MIN_START_DELAY;
	}
	/* unless somebody has set the clock back */
	started.next = Min(started.next, TimestampTzPlusMilliseconds(now, started.delay));
	if (now < started.next)
		return started.next;
	started.delay = !paq_loading_is_failing() ? MIN_START_DELAY :
		Min(started.delay * 2, MAX_START_DELAY);
	started.next = TimestampTzPlusMilliseconds(now, started.delay);
	if (register_loader())
		return DT_NOEND;
	if (paq_loading_failed())
		ereport(WARNING,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("audit records cannot be loaded into the table: could not register a background worker"),
				 errdetail("They stay in files until that succeeds."),
				 errhint("Increase the configuration parameter \"max_worker_processes\".")));
	paq_stats_worker_error("could not register the loader");
	return started.next;
}

/* ----------
 * The process
 * ----------
 */

/*
 * An error that ends this process is shown in the statistics.  It is left out
 * of the server's log if the log has it already, or if it is a request to end.
 */
static void
note_fatal(ErrorData *edata)
{
	if (prev_emit_log_hook)
		prev_emit_log_hook(edata);
	if (edata->elevel != FATAL)
		return;
	if (edata->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN)
	{
		edata->output_to_server = false;
		return;
	}
	if (edata->message != NULL)
		paq_stats_worker_error(edata->message);
	if (!paq_loading_failed())
		edata->output_to_server = false;
}

static void
override(const char *name, const char *value)
{
	SetConfigOption(name, value, PGC_SUSET, PGC_S_OVERRIDE);
}

/* Settings that may change at a reload; the values have PostgreSQL's names. */
static void
use_settings(void)
{
	override("synchronous_commit",
			 GetConfigOption("pg_audit_queue.table_synchronous_commit", false, false));
}

/*
 * Settings of this process, whatever those of the server, the database or the
 * role are: it is not audited, only locks stop it, it reads times and names as
 * the worker writes them, and it runs no triggers, unless they are enabled as
 * ALWAYS.
 */
static void
fix_settings(void)
{
	paq_setting_change_hook = NULL;
	paq_no_rules_apply = true;
	override("pg_audit_queue.log", "none");
	override("pg_audit_queue.role", "");
	override("role", "none");
	override("session_replication_role", "replica");
	override("search_path", "pg_catalog, pg_temp");
	override("TimeZone", "UTC");
	override("DateStyle", "ISO");
	override("lock_timeout", LOCK_LIMIT);
	override("statement_timeout", "0");
	override("idle_in_transaction_session_timeout", "0");
	override("default_transaction_read_only", "off");
	override("default_transaction_isolation", "read committed");
	override("default_tablespace", "");
	override("default_table_access_method", "heap");
	override("row_security", "off");
	override("max_parallel_workers_per_gather", "0");
	if (GetConfigOption("transaction_timeout", true, false) != NULL)
		override("transaction_timeout", "0");
	use_settings();
}

/*
 * Be the bootstrap superuser again: the owner of a database may have given it a
 * session_authorization, which counts for a process without a login, too, and comes
 * with the connection.
 */
static void
fix_user(void)
{
	if (GetSessionUserId() != BOOTSTRAP_SUPERUSERID)
		SetSessionAuthorization(BOOTSTRAP_SUPERUSERID, true);
}

static void
begin_transaction(void)
{
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	PushActiveSnapshot(GetTransactionSnapshot());
}

static void
commit_transaction(void)
{
	PopActiveSnapshot();
	CommitTransactionCommand();
}

static void
reset_batch(void)
{
	MemoryContextReset(batch.context);
	batch.days = NIL;
	batch.columns = NIL;
	batch.count = 0;
}

static void
begin_batch(uint64 series)
{
	MemoryContext old_context;
	uint64		start = 0;

	begin_transaction();
	(void) paq_files_have(series, &start);
	batch.series = series;
	batch.before = batch.sequence = paq_table_sequence(series, start);
	old_context = MemoryContextSwitchTo(batch.context);
	initStringInfo(&batch.rows);
	batch.columns = paq_table_columns();
	MemoryContextSwitchTo(old_context);
}

/* Load what the batch has, if there is one. */
static void
end_batch(void)
{
	if (!IsTransactionState())
		return;
	if (batch.sequence > batch.before)
		paq_table_load(&batch);
	(void) PAQ_FAULT("load-done");
	commit_transaction();
	(void) PAQ_FAULT("load-committed");
	paq_stats_add(&paq_stats->loaded, batch.count);
	reset_batch();
}

/* Add a line to the batch, unless the table has it. */
static void
add_line(const PaqLoadLine *line)
{
	MemoryContext old_context;

	if (IsTransactionState() && batch.series != line->series)
		end_batch();
	if (!IsTransactionState())
		begin_batch(line->series);
	if (line->sequence <= batch.sequence && line->sequence > 0)
		return;
	old_context = MemoryContextSwitchTo(line_context);
	if (line->shortened)
		paq_files_keep();
	if (line->sequence == 0 || !paq_row_add(&batch, line))
	{
		paq_files_keep();
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("audit record %llu in file \"%s\" is damaged and is left out of the table",
						(unsigned long long) line->sequence, line->path),
				 errdetail("The file is kept as \"%s" PAQ_KEPT_SUFFIX "\".", line->path)));
	}
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(line_context);
	batch.sequence = Max(batch.sequence, line->sequence);
	if (batch.rows.len >= BATCH_SIZE)
		end_batch();
}

/*
 * Remove files whose records are in the table, once a crash cannot take the
 * records back.
 */
static void
remove_files(void)
{
	const uint64 settled = seen.settled;

	if (!paq_files_removable(settled) || XLogRecPtrIsInvalid(XactLastCommitEnd))
		return;
	XLogFlush(XactLastCommitEnd);
	begin_transaction();
	paq_files_loaded(settled, paq_first_day(GetCurrentTimestamp()));
	commit_transaction();
	(void) PAQ_FAULT("load-removed");
}

/*
 * If loading takes longer than LAG_LIMIT, let nobody wait for the table for
 * LAG_TIME.
 */
static void
look_if_late(TimestampTz start)
{
	TimestampTz now = GetCurrentTimestamp();

	if (!TimestampDifferenceExceeds(start, now, LAG_LIMIT))
		return;
	paq_loading_lags();
	late_until = TimestampTzPlusMilliseconds(now, LAG_TIME);
}

/* Load all that is durable now. */
static void
load(void)
{
	TimestampTz start = GetCurrentTimestamp();
	PaqLoadLine line;
	uint64		limit;

	/*
	 * The limit first: a file that is begun from here on has no record below it.
	 */
	limit = paq_loading_limit(&seen.pos);
	seen.settled = paq_loading_settled();
	if (!paq_files_scan())
		return;
	while (paq_files_next_line(&line, limit))
	{
		CHECK_FOR_INTERRUPTS();
		add_line(&line);
		paq_files_skip_line(&line);
		if (!IsTransactionState())
			look_if_late(start);
	}
	end_batch();
	look_if_late(start);
	if (paq_loading_reached(seen.pos, GetCurrentTimestamp() >= late_until))
		ereport(LOG,
				(errmsg("audit records can be loaded into the table again")));
	remove_files();
}

/* Name publications that carry the table, if they are not those that were named before. */
static void
report_publications(void)
{
	static char *reported = NULL;
	StringInfoData names;
	ListCell   *lc;

	initStringInfo(&names);
	foreach(lc, paq_table_publications())
		appendStringInfo(&names, "%s\"%s\"", names.len > 0 ? ", " : "",
						 (char *) lfirst(lc));
	if (names.len > 0 && (reported == NULL || strcmp(reported, names.data) != 0))
		ereport(WARNING,
				(errmsg("publications carry the audit table to subscribers: %s", names.data),
				 errdetail("Subscriptions fail where the table is missing, and show the audit trail where it is not."),
				 errhint("Have the audit table in a database of its own, or publish tables by name.")));
	if (reported != NULL)
		pfree(reported);
	reported = MemoryContextStrdup(TopMemoryContext, names.data);
}

/* Look after the partitions. */
static void
maintain(TimestampTz now)
{
	bool		dropped;

	if (now < maintenance.due && !maintenance.recording)
		return;
	maintenance.running = true;
	begin_transaction();
	paq_partitions_make_ahead(now);
	commit_transaction();
	do
	{
		begin_transaction();
		dropped = paq_partitions_drop_oldest(now, &maintenance.recording);
		commit_transaction();
	} while (dropped);
	if (!maintenance.recording)
	{
		begin_transaction();
		maintenance.recording = !paq_expire(now);
		commit_transaction();
	}
	/* last: whatever fails there takes nothing along */
	maintenance.is_done = true;
	begin_transaction();
	report_publications();
	commit_transaction();
	maintenance.is_done = false;
	maintenance.running = false;
	maintenance.due = TimestampTzPlusMilliseconds(now, maintenance.recording ? RECORDING_DELAY :
											  MAINTENANCE_INTERVAL);
}

/*
 * Wait before the next attempt.  A failure is reported if the next attempt
 * fails as well, and if it is news: the first one may be due to a table that
 * was dropped and made anew, or to a lock that is released in a moment.
 */
static void
failed(const ErrorData *edata)
{
	const char *message = edata->message ? edata->message : "unknown error";

	paq_stats_worker_error(message);
	if (maintenance.running)
	{
		const bool	is_done = maintenance.is_done;

		maintenance.running = maintenance.is_done = false;
		if (!is_done)
			maintenance.recording = false;
		maintenance.due = TimestampTzPlusMilliseconds(GetCurrentTimestamp(),
													  MAINTENANCE_RETRY);
		ereport(LOG,
				(is_done ?
				 errmsg("publications of the audit table could not be looked at: %s", message) :
				 errmsg("partitions of the audit table could not be maintained: %s", message),
				 errdetail("This is tried again in a minute.")));
		return;
	}
	paq_loading_lags();
	if (retry_at != 0 && paq_loading_failed())
		ereport(WARNING,
				(errmsg("audit records cannot be loaded into the table: %s",
						message),
				 errdetail("They stay in files until they can be."),
				 edata->hint ? errhint("%s", edata->hint) : 0));
	retry_delay = retry_at == 0 ? MIN_RETRY_DELAY :
		Min(retry_delay * 2, MAX_RETRY_DELAY);
	retry_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), retry_delay);
}

/* After an error: begin again from what the table has. */
static void
recover_from_error(void)
{
	ErrorData  *edata;

	HOLD_INTERRUPTS();
	MemoryContextSwitchTo(TopMemoryContext);
	disable_all_timeouts(false);
	QueryCancelPending = false;
	edata = CopyErrorData();
	FlushErrorState();
	AbortOutOfAnyTransaction();
	pgstat_report_activity(STATE_IDLE, NULL);
	paq_files_forget();
	paq_table_forget();
	reset_batch();
	MemoryContextReset(line_context);
	failed(edata);
	FreeErrorData(edata);
	RESUME_INTERRUPTS();
}

/* Does anybody else have to be the loader now? */
static bool
settings_changed(void)
{
	return paq_sink != PAQ_SINK_TABLE || strcmp(database, paq_database) != 0;
}

static void
handle_signals(void)
{
	CHECK_FOR_INTERRUPTS();
	if (!ConfigReloadPending)
		return;
	ConfigReloadPending = false;
	ProcessConfigFile(PGC_SIGHUP);
	if (settings_changed())
		proc_exit(0);
	use_settings();
	retry_at = retry_at != 0 ? GetCurrentTimestamp() : 0;
	maintenance.due = 0;
}

/*
 * Is there something to do already?  The latch does not tell: what waits inside of
 * load() and maintain(), for a lock or for a read, resets it.  It does so before we
 * look here, and whoever sets it has said before what for.
 */
static bool
has_work(void)
{
	uint64		pos;

	if (ConfigReloadPending || InterruptPending)
		return true;
	if (retry_at != 0)
		return false;
	(void) paq_loading_limit(&pos);
	return pos != seen.pos || paq_loading_settled() != seen.settled;
}

/*
 * Sleep until there is something to do.  unreported is the time in ms until
 * statistics can be reported, 0 if there are none.
 */
static void
nap(long unreported)
{
	TimestampTz until = retry_at != 0 ? retry_at : maintenance.due;
	long		timeout;

	if (has_work())
		return;
	timeout = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), until);
	if (unreported > 0)
		timeout = Min(timeout, unreported);
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
					 timeout, paq_wait_event(PAQ_WAIT_LOADER_MAIN));
	ResetLatch(MyLatch);
}

/*
 * If somebody has set the clock back, do not wait until the old time comes
 * round again.
 */
static void
look_at_clock(TimestampTz now)
{
	retry_at = Min(retry_at, TimestampTzPlusMilliseconds(now, retry_delay));
	late_until = Min(late_until, TimestampTzPlusMilliseconds(now, LAG_TIME));
	maintenance.due = Min(maintenance.due,
						  TimestampTzPlusMilliseconds(now, MAINTENANCE_INTERVAL));
}

static void
main_loop(void)
{
	for (;;)
	{
		TimestampTz now;
		long		unreported = 0;

		handle_signals();
		now = GetCurrentTimestamp();
		look_at_clock(now);
		if (retry_at == 0 || now >= retry_at)
		{
			pgstat_report_activity(STATE_RUNNING, "loading audit records");
			load();
			retry_at = 0;
			maintain(now);
			pgstat_report_activity(STATE_IDLE, "waiting for audit records");
			unreported = pgstat_report_stat(false);
		}
		nap(unreported);
	}
}

/* Entry point of the process. */
void
paq_load_main(Datum arg)
{
	sigjmp_buf	local_sigjmp_buf;

	pqsignal(SIGHUP, SignalHandlerForConfigReload);
	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();

	/* A reload may have come before the handler was set. */
	if (paq_settings_are_outdated())
		ConfigReloadPending = true;

	if (paq_sink != PAQ_SINK_TABLE || !paq_loading_attach())
		proc_exit(0);
	prev_emit_log_hook = emit_log_hook;
	emit_log_hook = note_fatal;
	fix_settings();
	database = MemoryContextStrdup(TopMemoryContext, paq_database);
	BackgroundWorkerInitializeConnection(database, NULL, BGWORKER_BYPASS_ALLOWCONN);
	fix_user();
	batch.context = AllocSetContextCreate(TopMemoryContext, "audit rows",
										  ALLOCSET_DEFAULT_SIZES);
	line_context = AllocSetContextCreate(TopMemoryContext, "audit line",
										 ALLOCSET_DEFAULT_SIZES);

	if (sigsetjmp(local_sigjmp_buf, 1) != 0)
	{
		error_context_stack = NULL;
		recover_from_error();
	}
	PG_exception_stack = &local_sigjmp_buf;
	main_loop();
}
