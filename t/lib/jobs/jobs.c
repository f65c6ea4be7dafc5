/*-------------------------------------------------------------------------
 *
 * jobs.c
 *		A library for tests whose background workers execute SQL for users.
 *
 * jobs_run(role oid, command text) returns integer: a background worker executes the
 * command with the role's rights, by SPI and in one transaction, as schedulers and the
 * workers of extensions do.  Returns the PID that it had, once it has ended.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(jobs_run);

extern PGDLLEXPORT void jobs_main(Datum arg);

/* In bgw_extra */
typedef struct Job
{
	Oid			database;
	Oid			role;
	char		command[BGW_EXTRALEN - 2 * sizeof(Oid)];
} Job;

void
jobs_main(Datum arg)
{
	static Job	job;			/* errors are reported when this function has been left */

	memcpy(&job, MyBgworkerEntry->bgw_extra, sizeof(job));
	BackgroundWorkerUnblockSignals();
	BackgroundWorkerInitializeConnectionByOid(job.database, job.role, 0);
	SetCurrentStatementStartTimestamp();
	StartTransactionCommand();
	debug_query_string = job.command;
	SPI_connect();
	PushActiveSnapshot(GetTransactionSnapshot());
	(void) SPI_execute(job.command, false, 0);
	SPI_finish();
	PopActiveSnapshot();
	CommitTransactionCommand();
	debug_query_string = NULL;
}

Datum
jobs_run(PG_FUNCTION_ARGS)
{
	const char *command = text_to_cstring(PG_GETARG_TEXT_PP(1));
	BackgroundWorker worker = {
		.bgw_name = "job",
		.bgw_type = "job",
		.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION,
		.bgw_start_time = BgWorkerStart_RecoveryFinished,
		.bgw_restart_time = BGW_NEVER_RESTART,
		.bgw_library_name = "jobs",
		.bgw_function_name = "jobs_main",
		.bgw_notify_pid = MyProcPid
	};
	Job			job = {.database = MyDatabaseId, .role = PG_GETARG_OID(0)};
	BackgroundWorkerHandle *handle;
	pid_t		pid = 0;

	if (strlcpy(job.command, command, sizeof(job.command)) >= sizeof(job.command))
		elog(ERROR, "the command is too long");
	memcpy(worker.bgw_extra, &job, sizeof(job));
	if (!RegisterDynamicBackgroundWorker(&worker, &handle))
		elog(ERROR, "could not register a background worker");
	(void) WaitForBackgroundWorkerStartup(handle, &pid);
	if (WaitForBackgroundWorkerShutdown(handle) == BGWH_POSTMASTER_DIED)
		elog(ERROR, "the postmaster has died");
	PG_RETURN_INT32(pid);
}
