/*-------------------------------------------------------------------------
 *
 * xact.c
 *		What the ends of transactions, and of the process, mean for
 *		statements that are still open.
 *
 * Most statements end in a hook.  Those that do not are executor statements of
 * a transaction that is rolled back - cursors, portals of the extended protocol -
 * and all statements, when the process exits in the middle of them.
 *
 * Must not raise, except to wait before a commit.
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
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

/* before_commit() waits, or was ended by an error; not for a login */
static bool before_commit_runs = false;

/*
 * Close what has begun in subtransaction from or later, InvalidSubTransactionId being all: plans
 * that will not be executed, and executor statements, with flags added to their records.
 */
static inline void
close_all(SubTransactionId from, PaqError *error, uint32 flags)
{
	if (unlikely(paq_planned > 0))
		paq_planning_close_all(from, error);
	if (unlikely(paq_statements_open()))
		paq_statement_close_all(from, error, flags);
}

/*
 * The transaction is about to commit.  PostgreSQL has stopped the timer of
 * statement_timeout by now; start it again, because a session must not wait for
 * the worker any longer, either.  A login is no statement.
 */
static void
before_commit(void)
{
	bool		timeout = StatementTimeout > 0 && paq_logged_in &&
		!get_timeout_active(STATEMENT_TIMEOUT);
	PaqSpaceWait wait = PAQ_SPACE_WAIT;
	bool		login;

	if (timeout)
		enable_timeout_after(STATEMENT_TIMEOUT, StatementTimeout);

	/* All portals are closed by now, so what is left was freed unnoticed. */
	close_all(InvalidSubTransactionId, NULL, PAQ_RECORD_INCOMPLETE);
	login = paq_connect_login();
	if (unlikely(MyProcPort == NULL))
		paq_connect_without_client();
	before_commit_runs = !login;
	if (login)
		wait = paq_may_look() ? PAQ_SPACE_NOWAIT : paq_unrefused();
	paq_prepare_held();

	/* The client has not begun a transaction yet when it logs in. */
	if (!login)
		paq_wait_commit(true);
	if (paq_stack.frame == NULL)
		paq_wait_statement(wait);

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
 * The transaction is rolled back, because of an error or on request.  Records
 * that are held were waiting for the commit.  That is what has failed, unless
 * another message has come from the client since, as in a pipeline.
 */
static void
at_abort(void)
{
	static PaqError unreported = {ERRCODE_TRANSACTION_ROLLBACK, NULL, false};
	PaqError   *error = paq_error();

	before_commit_runs = false;

	/* The log's settings may hide the error, but not that there was one. */
	if (error == NULL && paq_is_failing_commit())
		error = &unreported;
	close_all(InvalidSubTransactionId, error, 0);
	paq_publish_held(paq_is_committing() ? error : NULL, PAQ_SPACE_NOWAIT);
	paq_forget_commit(false);
	if (paq_stack.frame == NULL)
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
			paq_forget_commit(true);
			break;
		case XACT_EVENT_PARALLEL_PRE_COMMIT:
			paq_planning_close_all(InvalidSubTransactionId, NULL);
			paq_wait_commit(false);
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
	close_all(mySubid, paq_error(), 0);
	paq_error_handled();
}

/*
 * The process exits, before PostgreSQL aborts the transaction, and what is being
 * executed is interrupted.  Without an error that tells why, the postmaster has
 * died.
 */
static void
at_exit(int code, Datum arg)
{
	PaqError	crash = {.sqlstate = ERRCODE_CRASH_SHUTDOWN, .fatal = true};
	PaqError   *error = paq_error() ? paq_error() : &crash;

	for (PaqCallFrame *frame = paq_stack.frame; frame != NULL;
		 frame = frame->parent)
	{
		if (frame->statement == NULL)
			continue;
		if (error == &crash)
			frame->statement->flags |= PAQ_RECORD_INTERRUPTED;
		if (frame->query_desc != NULL && frame->query_desc->estate != NULL)
			paq_choice_note_rows(&frame->statement->records,
								 Max(frame->statement->rows, 0) +
									 (int64) frame->query_desc->estate->es_processed);
		paq_statement_fail(frame->statement, error);
	}

	/* What is being planned is interrupted, too. */
	paq_planning_close_all(InvalidSubTransactionId, paq_error());
	paq_statement_close_all(InvalidSubTransactionId, paq_error(), 0);

	paq_replication_end(error);

	/* Idle in a pipeline: what is held has succeeded, although it is undone. */
	paq_publish_held(paq_stack.frame != NULL ? error : paq_error(), PAQ_SPACE_NOWAIT);
	paq_connect_exit(paq_error());
	paq_publish_last();
	paq_request_waits();
}

void
paq_xact_init(void)
{
	paq_publish_init(at_exit);
	RegisterXactCallback(at_transaction_end, NULL);
	RegisterSubXactCallback(at_subtransaction_end, NULL);
}
