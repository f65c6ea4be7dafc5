/*-------------------------------------------------------------------------
 *
 * outcome.c
 *		How statements end: their records get the outcome and are published.
 *
 * A top-level statement outside of a transaction block has the outcome of the
 * commit that follows at once, so its records are held for that (publish.c).
 * All others have their own.
 *
 * Must not raise, except to wait for space in the queue and for a flush, as the
 * arguments say, and as paq_record_finish() does.
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
#include "tcop/tcopprot.h"

/*
 * Publish all records of the statement with their outcome, NULL being success.
 * Errors as for paq_publish_list().
 */
void
paq_statement_publish(PaqStatement *statement, PaqError *error,
					  PaqSpaceWait wait)
{
	if (dlist_is_empty(&statement->records))
		return;
	paq_publish_deferred(wait);
	paq_record_finish(statement, wait == PAQ_SPACE_NOWAIT);
	paq_publish_list(&statement->records, error, wait);
}

/*
 * Does the commit of a statement outside of a transaction block follow at once?
 * It does not if the statement ends because the client's next message takes the
 * place of its portal.
 */
static bool
is_last_message(const PaqStatement *statement)
{
	return statement->query_desc == NULL || debug_query_string == NULL ||
		statement->run_message == GetCurrentStatementStartTimestamp();
}

/*
 * The statement has succeeded.  If the commit of its transaction follows at
 * once, the client learns of one outcome for both, and the commit may still
 * fail, because of a deferred constraint for instance.  Errors as for
 * paq_publish_list().
 */
void
paq_statement_succeed(PaqStatement *statement)
{
	if (statement->top_level && (statement->commits || !IsTransactionBlock()) &&
		is_last_message(statement) && (likely(MyProcPort != NULL) || !paq_in_job()))
	{
		paq_record_finish(statement, false);
		paq_hold(&statement->records, statement->command.tag == CMDTAG_ROLLBACK);
	}
	else
		paq_statement_publish(statement, NULL, statement->space_policy);
}

/*
 * The error, which is being handled, ends the statement.  If that is denied, and no
 * record says so, make one where the settings want whatever is denied.  An error
 * that ends several statements has one with the innermost of them: PostgreSQL's own
 * query for a foreign key does not count.
 */
void
paq_record_denial(PaqStatement *statement, const PaqError *error)
{
	const PaqChoice *choice = statement->choice.rules != NULL ? &statement->choice : NULL;

	if (!paq_denial_is_audited(error->sqlstate) || error->known || statement->recorded ||
		statement->of_key || statement->attempt != NULL ||
		statement->provisional != NULL || !dlist_is_empty(&statement->records))
		return;
	if (choice == NULL || choice->by_settings)
		paq_record_denied(statement, &statement->command, NULL, NULL);
}

/*
 * Publish the records of a statement that failed or, with error NULL, that
 * ended unnoticed.  For use also where nothing may wait or raise.
 */
void
paq_statement_fail(PaqStatement *statement, PaqError *error)
{
	PaqPending *pending = statement->attempt;

	if (pending != NULL)
	{
		statement->attempt = NULL;
		paq_record_add(statement, pending, false, false);
	}

	/* The only record of a utility statement that did not get far */
	pending = statement->provisional;
	if (pending != NULL)
	{
		statement->provisional = NULL;
		paq_known_ids(statement, pending);
		paq_record_add(statement, pending, false, true);
	}
	paq_statement_publish(statement, error, PAQ_SPACE_NOWAIT);
}

/*
 * An executor is being started: an open statement with the same address is one
 * of a query that was freed without being ended, and its outcome is unknown.
 */
void
paq_statement_forget(QueryDesc *queryDesc)
{
	PaqStatement *statement = paq_statement_find(queryDesc);

	if (likely(statement == NULL))
		return;
	statement->flags |= PAQ_RECORD_INCOMPLETE;
	paq_statement_fail(statement, NULL);
	paq_statement_close(statement);
}

/*
 * Close all executor statements that began in subtransaction from or later,
 * newest first, with flags added to their records.  Older statements have
 * begun in older subtransactions; InvalidSubTransactionId closes all.
 */
void
paq_statement_close_all(SubTransactionId from, PaqError *error, uint32 flags)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &paq_stack.statements)
	{
		PaqStatement *statement = dlist_container(PaqStatement, node, iter.cur);
		const bool	last = paq_statement_is_clients_last(statement);

		if (statement->subxact < from)
			break;
		statement->flags |= flags;
		if (statement->command.tag != CMDTAG_SELECT)
		{
			/* Only a SELECT may stop before its end without an error. */
			if (statement->run && (error == NULL || !last))
				statement->flags |= PAQ_RECORD_INCOMPLETE;
			if (error == NULL)
				statement->flags |= PAQ_RECORD_NO_OUTCOME;
		}

		/* In a pipeline, what the client was told to be complete is a success. */
		paq_statement_fail(statement, statement->complete && !last ? NULL : error);
		paq_statement_detach(statement);
		paq_statement_close(statement);
	}
}

/*
 * Leave a hook whose records, if it has any, are published.  At the end of a
 * top-level statement, wait for what has to be durable; may raise the error of
 * an interrupt then.
 */
void
paq_leave(PaqCallFrame *frame, PaqSpaceWait wait)
{
	paq_frame_pop(frame);
	if (paq_stack.frame == NULL)
		paq_wait_statement(wait);
}

/* Leave a hook by the error that is being handled. */
void
paq_rethrow(PaqCallFrame *frame)
{
	paq_frame_pop(frame);
	if (paq_stack.frame == NULL)
		paq_request_waits();
	PG_RE_THROW();
}
