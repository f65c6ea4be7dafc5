/*-------------------------------------------------------------------------
 *
 * report.c
 *		Class ERROR: errors that ended nothing that was executed.
 *
 * PostgreSQL reports an error when it has come up to the client.  If no record
 * of a statement has the error as its outcome, it gets a record of its own.
 * A failed login is reported, too (connect.c).
 *
 * That holds for each process that executes SQL with the rights of a user, whether it has
 * a client or not: job schedulers, the workers of extensions, and autovacuum, which calls
 * functions in expressions of indexes.  An apply worker of logical replication rolls back
 * before it reports an error, and is not known to have executed anything then.
 *
 * A PANIC leaves nobody who could make a record, nor memory that may be
 * allocated, because it may come from a critical section.
 *
 * Must not raise.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/elog.h"

static emit_log_hook_type prev_emit_log = NULL;

/* Is the hook running?  What it calls may report something, too. */
static bool in_emit_log = false;

/*
 * Returns true if an error of this process may be one of SQL that it executes for a user.
 * The leader reports the errors of its parallel workers, and what the loader does is not
 * audited.
 */
static bool
is_of_sql(int sqlstate)
{
	if (MyProcPort != NULL || !IsUnderPostmaster)
		return true;
	if (!paq_is_for_users() || !IsTransactionState() || IsParallelWorker() || paq_is_loader())
		return false;

	/* Autovacuum is cancelled whenever somebody else wants its table. */
	return MyBackendType != B_AUTOVAC_WORKER ||
		ERRCODE_TO_CATEGORY(sqlstate) != ERRCODE_TO_CATEGORY(ERRCODE_QUERY_CANCELED);
}

/* Record the error, unless it is the outcome of something that is recorded. */
static void
record_error(PaqError *error)
{
	const PaqSubject subject = {.class = PAQ_CLASS_ERROR};
	PaqEvent	event = {.class = PAQ_CLASS_ERROR};

	if (paq_planning_fail(error))
		return;

	event.start_time = GetCurrentStatementStartTimestamp();
	event.known = error->known;
	if (!paq_capture_possible() || paq_error_has_owner() || paq_is_committing() ||
		!is_of_sql(error->sqlstate) ||
		(!paq_fastpath_refused(&event, error->sqlstate) &&
		 !paq_event_choose(&event, &subject, error->sqlstate)))
		return;

	/* What is still held has succeeded before, in the same pipeline. */
	paq_publish_held(NULL, PAQ_SPACE_NOWAIT);
	paq_error_record(&event, error);
	paq_request_waits();
}

/*
 * Is something going on that an end of the session ends, too?  A fast-path call
 * has no text, nor has a Sync, which commits and may fire triggers.
 */
static bool
is_busy(void)
{
	return debug_query_string != NULL || paq_stack.frame != NULL ||
		paq_is_before_commit() || paq_fastpath_ends() || paq_in_trigger();
}

static void
note_report(ErrorData *edata)
{
	PaqError   *error = paq_error_report(edata);

	if (edata->elevel == FATAL)
		paq_connect_failed(error);

	/*
	 * Without a client no message tells the failure of a commit from that of the statement
	 * after it.  A place in a text does.
	 */
	if (MyProcPort == NULL && (edata->cursorpos > 0 || edata->internalpos > 0))
		paq_publish_held(NULL, PAQ_SPACE_NOWAIT);
	if (edata->elevel == ERROR ||
		(paq_logged_in && !paq_replication_known() && is_busy()))
		record_error(error);
	paq_error_reported();
}

/* May there be a record?  Before the login, that depends on rules not yet known. */
static bool
error_is_wanted(void)
{
	return paq_wanted_classes != PAQ_CLASSES_NONE || paq_role[0] != '\0' ||
		(!paq_logged_in && !paq_policy_is_current());
}

static void
capture_emit_log(ErrorData *edata)
{
	if (edata->elevel >= ERROR && edata->elevel < PANIC && !in_emit_log && error_is_wanted())
	{
		in_emit_log = true;
		PG_TRY();
		{
			note_report(edata);
		}
		PG_FINALLY();
		{
			/* If that failed after all, later errors are recorded. */
			in_emit_log = false;
		}
		PG_END_TRY();
	}
	if (prev_emit_log)
		prev_emit_log(edata);
}

void
paq_report_init(void)
{
	prev_emit_log = emit_log_hook;
	emit_log_hook = capture_emit_log;
}
