/*-------------------------------------------------------------------------
 *
 * xact.c
 *		What the ends of transactions, and of the process, mean for
 *		statements that are still open.
 *
 * Most statements end in a hook.  Those that do not are the executor's in a
 * transaction that is given up - cursors, portals of the extended protocol -
 * and everything, when the process exits in the middle of it.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

static bool exit_registered = false;

/* before_commit() waits, or was ended by an error; not for a login */
static bool before_commit_runs = false;

/*
 * The transaction is about to commit.  PostgreSQL has stopped the clock for
 * statement_timeout by now, but a session shall not wait for the worker for
 * longer than that, either: start it anew.  A login is no statement.
 */
static void
before_commit(void)
{
	bool		timeout = StatementTimeout > 0 && paq_logged_in &&
		!get_timeout_active(STATEMENT_TIMEOUT);

	bool		login;

	if (timeout)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);

	/* All portals are closed by now; what is left was forgotten. */
	paq_statement_close_all(InvalidSubTransactionId, NULL,
							PAQ_RECORD_INCOMPLETE);
	login = paq_connect_login();
	before_commit_runs = !login;
	paq_prepare_held();

	/* The client has not begun a transaction yet when it logs in. */
	if (!login)
		paq_wait_commit();
	if (paq_frame == NULL)
		paq_wait_statement(login ? paq_unrefused() : PAQ_SPACE_WAIT);

	if (timeout)
		disable_timeout(STATEMENT_TIMEOUT, false);
	before_commit_runs = false;
}

/* Does the session wait for what it has to before it commits? */
bool
paq_is_before_commit(void)
{
	return before_commit_runs;
}

/*
 * The transaction is rolled back, because of an error or because somebody
 * asked for it.  What is held waited for the commit; unless another message
 * has come from the client since, as in a pipeline, that is what failed.
 */
static void
at_abort(void)
{
	static const PaqError unreported = {ERRCODE_TRANSACTION_ROLLBACK, NULL, false};
	const PaqError *error = paq_error();

	before_commit_runs = false;

	/* The log's settings may hide the error, but not that there was one. */
	if (error == NULL && paq_is_failing_commit())
		error = &unreported;
	paq_statement_close_all(InvalidSubTransactionId, error, 0);
	paq_publish_held(paq_is_committing() ? error : NULL, PAQ_SPACE_NOWAIT);
	paq_forget_commit();
	if (paq_frame == NULL)
		paq_request_waits();
}

static void
at_transaction_end(XactEvent event, void *arg)
{
	switch (event)
	{
		case XACT_EVENT_PRE_COMMIT:
		case XACT_EVENT_PRE_PREPARE:
			before_commit();
			break;
		case XACT_EVENT_COMMIT:
		case XACT_EVENT_PREPARE:
			paq_publish_held(NULL, PAQ_SPACE_NOWAIT);
			paq_forget_commit();
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			paq_wait_commit();
			break;
		case XACT_EVENT_ABORT:
		case XACT_EVENT_PARALLEL_ABORT:
			at_abort();
			break;
		default:
			break;
	}
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId mySubid,
					  SubTransactionId parentSubid, void *arg)
{
	if (event != SUBXACT_EVENT_ABORT_SUB)
		return;
	paq_statement_close_all(mySubid, paq_error(), 0);
	paq_forget_error();			/* whoever comes next meets another one */
}

/*
 * The process exits; its frames, if there are any, are still on the stack
 * below us.  Without an error that says why, the postmaster has died, and what
 * was being executed was interrupted.  Runs before PostgreSQL aborts the
 * transaction.
 */
static void
at_exit(int code, Datum arg)
{
	const PaqError crash = {ERRCODE_CRASH_SHUTDOWN, NULL, true};
	const PaqError *error = paq_error() ? paq_error() : &crash;

	for (PaqCallFrame *frame = paq_frame; frame != NULL; frame = frame->parent)
	{
		if (frame->statement == NULL)
			continue;
		if (error == &crash)
			frame->statement->flags |= PAQ_RECORD_INTERRUPTED;
		paq_statement_fail(frame->statement, error);
	}
	paq_statement_close_all(InvalidSubTransactionId, paq_error(), 0);

	paq_replication_exit(error);

	/* Idle in a pipeline: what is held succeeded, if in vain. */
	paq_publish_held(paq_frame != NULL ? error : paq_error(), PAQ_SPACE_NOWAIT);
	paq_connect_exit(paq_error());
	paq_publish_last();
	paq_request_waits();
}

/*
 * See to it that at_exit() is called.  Not before there is something for it
 * to do, so that it comes before the callbacks that a process starts with.
 */
void
paq_register_exit(void)
{
	if (exit_registered)
		return;
	exit_registered = true;
	before_shmem_exit(at_exit, (Datum) 0);
}

void
paq_xact_init(void)
{
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
}
