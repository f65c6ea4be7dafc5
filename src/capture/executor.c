/*-------------------------------------------------------------------------
 *
 * executor.c
 *		Hooks of the executor.
 *
 * A statement becomes known in ExecutorStart, gets its records while
 * permissions are checked there, and is published, with its outcome, in
 * ExecutorEnd.  A plain SELECT that has run to its end is published at the
 * end of ExecutorRun already, because in the extended protocol ExecutorEnd
 * comes with the client's next command only, long after the client was told
 * of the success.
 *
 * Guarantees: whatever leaves one of these functions by an error has its
 * records published with the error's SQLSTATE, unless they had been before.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "compat.h"
#include "executor/executor.h"
#include "stats.h"
#include "tcop/tcopprot.h"

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ExecutorCheckPerms_hook_type prev_ExecutorCheckPerms = NULL;

/*
 * An error leaves a function of the executor, which frame is for.  PostgreSQL
 * will not call the executor for this query any more, so this is the end of
 * its statement, if it is still known.
 */
static void
fail_query(QueryDesc *queryDesc, PaqCallFrame *frame)
{
	const PaqError *error = paq_error_catch(queryDesc->sourceText);
	PaqStatement *statement = paq_statement_find(queryDesc);

	if (statement != NULL)
	{
		if (statement->recorded && slist_is_empty(&statement->entries))
			paq_error_unrecorded();
		paq_statement_fail(statement, error);
		paq_statement_close(statement);
	}
	paq_frame_pop(frame);
	if (paq_frame == NULL)
		paq_request_waits();
}

static void
next_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	if (prev_ExecutorStart)
		prev_ExecutorStart(queryDesc, eflags);
	else
		standard_ExecutorStart(queryDesc, eflags);
}

/* Permissions have been checked: make the statement's records. */
static void
record_relations(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	statement->perms_checked = statement->unfinished = true;
	paq_record_relations(statement, rangeTable, perminfos);
	statement->unfinished = false;
}

static void
capture_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	PlannedStmt *plan = queryDesc->plannedstmt;
	PaqStatement *statement;
	PaqCallFrame frame;

	if (!paq_capture_wanted())
	{
		next_ExecutorStart(queryDesc, eflags);
		return;
	}

	paq_session_warm();
	paq_settle(PAQ_SPACE_WAIT);
	paq_statement_forget(queryDesc);
	paq_frame_push(&frame, NULL, queryDesc);
	frame.starting = true;
	statement = paq_current_statement();
	PG_TRY();
	{
		if (statement != NULL)
		{
			statement->others_rights = paq_has_others_rights();
			if (paq_role[0] != '\0')
				paq_find_granted(statement, plan);
		}
		next_ExecutorStart(queryDesc, eflags);
		statement = paq_statement_find(queryDesc);
		if (unlikely(statement != NULL && !statement->perms_checked))
		{
			/* Somebody keeps the permission check from us. */
			statement->flags |= PAQ_RECORD_INCOMPLETE;
			record_relations(statement, plan->rtable, paq_stmt_perm_infos(plan));
		}
		if (unlikely(statement != NULL && statement->granted != NIL))
			paq_forget_granted(statement);
		if (statement != NULL && !slist_is_empty(&statement->entries))
			paq_queue_admit();
	}
	PG_CATCH();
	{
		statement = paq_statement_find(queryDesc);
		if (statement != NULL && !statement->perms_checked)
			paq_record_denied(statement, plan);
		else if (statement != NULL && statement->unfinished)
			paq_record_unfinished(statement, plan);
		fail_query(queryDesc, &frame);
		PG_RE_THROW();
	}
	PG_END_TRY();
	paq_frame_pop(&frame);
}

static void
next_ExecutorRun(PAQ_EXECUTOR_RUN_ARGS)
{
	if (prev_ExecutorRun)
		prev_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
	else
		standard_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
}

/* Has the query told its client everything that it has to tell? */
static bool
is_complete(QueryDesc *queryDesc, ScanDirection direction, uint64 count)
{
	return queryDesc->operation == CMD_SELECT &&
		!queryDesc->plannedstmt->hasModifyingCTE &&
		!ScanDirectionIsNoMovement(direction) &&
		(count == 0 || queryDesc->estate->es_processed < count);
}

/*
 * In a parallel worker: a frame below which functions are, and their
 * statements, but that has none of its own.
 */
static void
run_part(PAQ_EXECUTOR_RUN_ARGS)
{
	PaqCallFrame frame;

	paq_frame_push(&frame, NULL, NULL);
	PG_TRY();
	{
		next_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
	}
	PG_FINALLY();
	{
		paq_frame_pop(&frame);
	}
	PG_END_TRY();
	paq_wait_statement(PAQ_SPACE_WAIT);
}

/* Has the query processed rows without our having been told of it? */
static void
look_at_rows(PaqStatement *statement, QueryDesc *queryDesc)
{
	if (statement != NULL && queryDesc->estate != NULL &&
		unlikely(queryDesc->estate->es_processed != statement->processed))
		statement->flags |= PAQ_RECORD_INCOMPLETE;
}

static void
capture_ExecutorRun(PAQ_EXECUTOR_RUN_ARGS)
{
	PaqStatement *statement;
	PaqCallFrame frame;

	if (paq_capture_idle())
	{
		if (unlikely(IsParallelWorker() && paq_auditing_is_on()))
			run_part(PAQ_EXECUTOR_RUN_PASS);
		else
			next_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
		return;
	}

	statement = paq_statement_find(queryDesc);
	look_at_rows(statement, queryDesc);
	paq_frame_push(&frame, statement, queryDesc);
	PG_TRY();
	{
		next_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
		statement = paq_statement_find(queryDesc);
		if (statement != NULL)
		{
			statement->run = true;
			statement->processed = queryDesc->estate->es_processed;
			statement->rows = Max(statement->rows, 0) +
				queryDesc->estate->es_processed;
			if (frame.parent == NULL && is_complete(queryDesc, direction, count))
				paq_statement_publish(statement, NULL, PAQ_SPACE_WAIT);
		}
	}
	PG_CATCH();
	{
		fail_query(queryDesc, &frame);
		PG_RE_THROW();
	}
	PG_END_TRY();
	paq_frame_pop(&frame);
	if (paq_frame == NULL)
		paq_wait_statement(PAQ_SPACE_WAIT);
}

static void
next_ExecutorFinish(QueryDesc *queryDesc)
{
	if (prev_ExecutorFinish)
		prev_ExecutorFinish(queryDesc);
	else
		standard_ExecutorFinish(queryDesc);
}

/*
 * May something be executed in ExecutorFinish?  For a SELECT that changes
 * nothing the executor leaves out what it is for.
 */
static bool
has_work_to_finish(QueryDesc *queryDesc)
{
	return queryDesc->operation != CMD_SELECT || queryDesc->estate == NULL ||
		(queryDesc->estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) == 0;
}

static void
capture_ExecutorFinish(QueryDesc *queryDesc)
{
	PaqCallFrame frame;

	if (!has_work_to_finish(queryDesc) || paq_capture_idle())
	{
		next_ExecutorFinish(queryDesc);
		return;
	}

	paq_frame_push(&frame, paq_statement_find(queryDesc), queryDesc);
	PG_TRY();
	{
		next_ExecutorFinish(queryDesc);
	}
	PG_CATCH();
	{
		fail_query(queryDesc, &frame);
		PG_RE_THROW();
	}
	PG_END_TRY();
	paq_frame_pop(&frame);
}

static void
next_ExecutorEnd(QueryDesc *queryDesc)
{
	if (prev_ExecutorEnd)
		prev_ExecutorEnd(queryDesc);
	else
		standard_ExecutorEnd(queryDesc);
}

/*
 * Has the query been executed without our having been told of it?  Then make
 * do with what can still be known.
 */
static void
look_at_end(PaqStatement *statement, QueryDesc *queryDesc)
{
	EState	   *estate = queryDesc->estate;

	if (likely(statement->run) || estate == NULL ||
		(estate->es_processed == 0 && queryDesc->operation == CMD_SELECT) ||
		(estate->es_top_eflags & EXEC_FLAG_EXPLAIN_ONLY))
		return;
	statement->flags |= PAQ_RECORD_INCOMPLETE;
	statement->rows = estate->es_processed;
}

/*
 * A statement all of whose records have been published: there is nothing left
 * to be said about it.  An error from here on has a record of its own.
 */
static void
end_published(PaqStatement *statement, QueryDesc *queryDesc)
{
	paq_statement_close(statement);
	next_ExecutorEnd(queryDesc);
	if (paq_frame == NULL)
		paq_wait_statement(PAQ_SPACE_WAIT);
}

static void
capture_ExecutorEnd(QueryDesc *queryDesc)
{
	PaqStatement *statement = paq_statement_find(queryDesc);
	PaqCallFrame frame;

	if (statement == NULL)
	{
		next_ExecutorEnd(queryDesc);
		return;
	}

	if (statement->recorded && slist_is_empty(&statement->entries))
	{
		end_published(statement, queryDesc);
		return;
	}

	look_at_rows(statement, queryDesc);
	look_at_end(statement, queryDesc);

	paq_frame_push(&frame, statement, queryDesc);
	PG_TRY();
	{
		next_ExecutorEnd(queryDesc);
		statement = paq_statement_find(queryDesc);
		if (statement != NULL)
			paq_statement_succeed(statement);
	}
	PG_CATCH();
	{
		fail_query(queryDesc, &frame);
		PG_RE_THROW();
	}
	PG_END_TRY();
	paq_frame_pop(&frame);
	statement = paq_statement_find(queryDesc);
	if (statement != NULL)
		paq_statement_close(statement);
	if (paq_frame == NULL)
		paq_wait_statement(PAQ_SPACE_WAIT);
}

/*
 * Somebody checks permissions, and we do not know on behalf of which
 * statement: make do with what is at hand.
 */
static void
record_unknown(List *rangeTable, List *perminfos)
{
	PaqStatement statement;
	PaqCommand	command = paq_operation_command(CMD_UNKNOWN);
	ListCell   *lc;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		AclMode		perms = paq_rte_perms(rte, perminfos).requiredPerms;

		if (perms == 0)
			continue;
		command = paq_perms_command(perms, rte->rellockmode, CMD_UNKNOWN);
		break;
	}
	paq_statement_init(&statement, debug_query_string ? debug_query_string : "",
					   &command, NULL, false);
	statement.flags = PAQ_RECORD_INCOMPLETE | PAQ_RECORD_NO_OUTCOME;
	PG_TRY();
	{
		paq_record_relations(&statement, rangeTable, perminfos);
	}
	PG_FINALLY();
	{
		paq_statement_publish(&statement, NULL, PAQ_SPACE_NOWAIT);
		paq_statement_close(&statement);
	}
	PG_END_TRY();
}

/*
 * The statement whose permissions are being checked; NULL if that is not the
 * one being executed, because somebody keeps from us that another one has been
 * started.  Of the utility statements, COPY checks its table, and those that
 * can add a foreign key check both tables.
 */
static PaqStatement *
checked_statement(void)
{
	PaqStatement *statement = paq_current_statement();

	if (statement == NULL || paq_frame->starting)
		return statement;
	if (paq_frame->query_desc != NULL)
		return NULL;
	switch (statement->command.node)
	{
		case T_CopyStmt:
		case T_AlterTableStmt:
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
		case T_CreateSchemaStmt:
			return statement;
		default:
			return NULL;
	}
}

static bool
capture_ExecutorCheckPerms(PAQ_CHECK_PERMS_ARGS)
{
	if (paq_capture_wanted() && !IsAbortedTransactionBlockState())
	{
		PaqStatement *statement = checked_statement();

		if (statement != NULL)
		{
			record_relations(statement, rangeTable, PAQ_CHECK_PERMS_INFOS);
		}
		else
			record_unknown(rangeTable, PAQ_CHECK_PERMS_INFOS);
	}
	return prev_ExecutorCheckPerms == NULL ||
		prev_ExecutorCheckPerms(PAQ_CHECK_PERMS_PASS);
}

void
paq_executor_init(void)
{
	prev_ExecutorStart = ExecutorStart_hook;
	ExecutorStart_hook = capture_ExecutorStart;
	prev_ExecutorRun = ExecutorRun_hook;
	ExecutorRun_hook = capture_ExecutorRun;
	prev_ExecutorFinish = ExecutorFinish_hook;
	ExecutorFinish_hook = capture_ExecutorFinish;
	prev_ExecutorEnd = ExecutorEnd_hook;
	ExecutorEnd_hook = capture_ExecutorEnd;
	prev_ExecutorCheckPerms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = capture_ExecutorCheckPerms;
}
