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
#include "utils/elog.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

static emit_log_hook_type prev_emit_log = NULL;

/*
 * SQLSTATE of the last error that was reported, 0 if none was since the last
 * top-level statement began.
 */
static int	noted_sqlstate = 0;

static bool exit_registered = false;

int
paq_noted_sqlstate(void)
{
	return noted_sqlstate;
}

void
paq_forget_error(void)
{
	noted_sqlstate = 0;
}

/*
 * When an error has got this far, the hooks that it came through have dealt
 * with it; what is left is what no hook sees the end of.
 */
static void
capture_emit_log(ErrorData *edata)
{
	if (edata->elevel >= ERROR)
		noted_sqlstate = edata->sqlerrcode;
	if (prev_emit_log)
		prev_emit_log(edata);
}

/*
 * The transaction is about to commit.  PostgreSQL has stopped the clock for
 * statement_timeout by now, but a session shall not wait for the worker for
 * longer than that: let it go on.
 */
static void
before_commit(void)
{
	bool		timeout = StatementTimeout > 0 && IsUnderPostmaster &&
		MyBackendType == B_BACKEND && !get_timeout_active(STATEMENT_TIMEOUT);

	if (timeout)
		enable_timeout_at(STATEMENT_TIMEOUT,
						  TimestampTzPlusMilliseconds(GetCurrentStatementStartTimestamp(),
													  StatementTimeout));

	/* All portals are closed by now; what is left was forgotten. */
	paq_statement_close_all(InvalidSubTransactionId, 0, PAQ_RECORD_INCOMPLETE);
	paq_publish_held(0, PAQ_SPACE_WAIT);
	paq_wait_commit();
	if (paq_frame == NULL)
		paq_wait_statement();

	if (timeout)
		disable_timeout(STATEMENT_TIMEOUT, false);
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
			paq_forget_commit();
			break;
		case XACT_EVENT_ABORT:
			paq_statement_close_all(InvalidSubTransactionId, noted_sqlstate, 0);
			paq_publish_held(noted_sqlstate, PAQ_SPACE_NOWAIT);
			paq_forget_commit();
			if (paq_frame == NULL)
				paq_request_waits();
			break;
		default:
			break;
	}
}

static void
at_subtransaction_end(SubXactEvent event, SubTransactionId mySubid,
					  SubTransactionId parentSubid, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		paq_statement_close_all(mySubid, noted_sqlstate, 0);
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
	for (PaqCallFrame *frame = paq_frame; frame != NULL; frame = frame->parent)
	{
		if (frame->statement == NULL)
			continue;
		if (noted_sqlstate == 0)
			frame->statement->flags |= PAQ_RECORD_INTERRUPTED;
		paq_statement_fail(frame->statement,
						   noted_sqlstate ? noted_sqlstate : ERRCODE_CRASH_SHUTDOWN);
	}
	paq_statement_close_all(InvalidSubTransactionId, noted_sqlstate, 0);
	paq_publish_held(noted_sqlstate ? noted_sqlstate : ERRCODE_CRASH_SHUTDOWN,
					 PAQ_SPACE_NOWAIT);
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
	prev_emit_log = emit_log_hook;
	emit_log_hook = capture_emit_log;
}
