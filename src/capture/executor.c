/*-------------------------------------------------------------------------
 *
 * executor.c
 *		Hooks of the executor.
 *
 * A statement becomes known in ExecutorStart, gets its records while
 * permissions are checked there, and its records are published, with the
 * outcome, in ExecutorEnd.  Those of a plain SELECT that has run to its end, and
 * changed nothing, are published at the end of ExecutorRun: in the extended
 * protocol, ExecutorEnd comes with the client's next command, long after the
 * client was told of the success.
 *
 * Guarantees: if an error leaves one of these functions, the statement's records
 * are published with its SQLSTATE, unless they have been published before.
 *
 * A recursion of queries is a recursion of these functions, so they leave little
 * on the stack.  The hooks of ExecutorStart, Run, Finish and End only decide, and
 * end in tail calls.  The functions that do the work are not inlined, and keep
 * their state in a frame.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "capture/capture_internal.h"
#include "compat.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "stats.h"
#include "tcop/tcopprot.h"

static ExecutorStart_hook_type prev_ExecutorStart = NULL;
static ExecutorRun_hook_type prev_ExecutorRun = NULL;
static ExecutorFinish_hook_type prev_ExecutorFinish = NULL;
static ExecutorEnd_hook_type prev_ExecutorEnd = NULL;
static ExecutorCheckPerms_hook_type prev_ExecutorCheckPerms = NULL;

/* What the session was excused from waiting for, if paq_excused; only compared */
static const QueryDesc *excused = NULL;

/*
 * An error leaves the executor's function.  PostgreSQL will not call the executor
 * for this query any more, so its statement ends here, if it is still known.
 */
pg_noreturn static void
fail_query(PaqCallFrame *frame)
{
	PaqError   *error;
	PaqStatement *statement;

	paq_frame_catch(frame);
	error = paq_error_catch(frame->query_desc ?
							frame->query_desc->sourceText : NULL);
	statement = paq_statement_find(frame->query_desc);
	if (statement != NULL)
	{
		if (statement->recorded && dlist_is_empty(&statement->records))
			paq_error_unrecorded();
		paq_record_denial(statement, error);
		paq_statement_fail(statement, error);
		paq_statement_close(statement);
	}
	paq_rethrow(frame);
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
	paq_trail_record(statement);
	statement->unfinished = false;
}

/*
 * Returns NULL when out of memory; permissions are then checked without a statement.
 * A parallel worker's part of a query is the leader's statement: its frame, for
 * what functions within it execute, leads to none, so it has no QueryDesc.
 */
static PaqCallFrame *
begin_start(QueryDesc *queryDesc)
{
	const bool	whole = paq_capture_possible();
	PaqCallFrame *frame;

	if (likely(whole))
	{
		const bool	looks = unlikely(IsA(queryDesc->plannedstmt->planTree, FunctionScan)) &&
			paq_stack.frame == NULL && paq_may_excuse() &&
			paq_only_looks(queryDesc->plannedstmt);

		paq_session_warm();
		paq_settle(looks ? PAQ_SPACE_NOWAIT : PAQ_SPACE_WAIT);
		if (unlikely(looks))
		{
			paq_excuse(true);
			excused = queryDesc;
		}
		paq_statement_forget(queryDesc);
		if (unlikely(paq_planned > 0))
			paq_planning_executed(queryDesc);
	}
	frame = paq_frame_push(NULL, whole ? queryDesc : NULL);
	if (likely(frame != NULL))
		frame->starting = true;
	return frame;
}

/* Before permissions are checked. */
static void
prepare_check(PlannedStmt *plan)
{
	PaqStatement *statement = paq_current_statement();

	if (likely(paq_settings_decide() && !paq_trail_may_be_used(plan->relationOids)))
		return;
	if (likely(statement != NULL))
		paq_prepare_statement(statement, plan);
}

static void
end_start(QueryDesc *queryDesc)
{
	PlannedStmt *plan = queryDesc->plannedstmt;
	PaqStatement *statement = paq_statement_find(queryDesc);

	if (unlikely(statement == NULL))
		return;
	if (unlikely(!statement->perms_checked))
	{
		/* Another library keeps the permission check from our hook. */
		statement->flags |= PAQ_RECORD_INCOMPLETE;
		record_relations(statement, plan->rtable, paq_stmt_perm_infos(plan));
	}
	if (unlikely(statement->granted != NIL))
		paq_forget_granted(statement);
	paq_statement_admit(statement);
}

pg_noreturn static void
fail_start(PaqCallFrame *frame)
{
	PaqStatement *statement;

	paq_frame_catch(frame);
	statement = paq_statement_find(frame->query_desc);
	if (statement != NULL)
	{
		paq_record_failed_start(statement, frame->query_desc->plannedstmt);
		paq_trail_fail(statement);
	}
	fail_query(frame);
}

static pg_noinline void
start_query(QueryDesc *queryDesc, int eflags)
{
	PaqCallFrame *const frame = begin_start(queryDesc);

	if (unlikely(frame == NULL))
	{
		next_ExecutorStart(queryDesc, eflags);
		return;
	}
	if (PAQ_FRAME_TRY(frame))
	{
		prepare_check(queryDesc->plannedstmt);
		next_ExecutorStart(queryDesc, eflags);
		end_start(queryDesc);
	}
	else
		fail_start(frame);
	paq_frame_pop(frame);
}

/* Nothing is audited, but the query may use the trail. */
static pg_noinline void
start_looking(QueryDesc *queryDesc, int eflags)
{
	if (paq_trail_is_used(queryDesc->plannedstmt->relationOids))
		start_query(queryDesc, eflags);
	else
		next_ExecutorStart(queryDesc, eflags);
}

static inline void
start(QueryDesc *queryDesc, int eflags)
{
	if (paq_auditing_is_on())
		start_query(queryDesc, eflags);
	else if (unlikely(paq_trail_may_be_used(queryDesc->plannedstmt->relationOids)))
		start_looking(queryDesc, eflags);
	else
		next_ExecutorStart(queryDesc, eflags);
}

/*
 * In a parallel worker: is the query a part of the leader's?  It is if the rows go
 * to the leader.  A worker that builds an index only executes what functions do.
 */
static pg_noinline void
start_in_worker(QueryDesc *queryDesc, int eflags)
{
	if (paq_stack.frame == NULL && queryDesc->dest != NULL &&
		queryDesc->dest->mydest == DestTupleQueue)
		paq_stack_begin_part();
	start(queryDesc, eflags);
}

static inline void
start_anywhere(QueryDesc *queryDesc, int eflags)
{
	if (unlikely(IsParallelWorker() && !paq_stack.in_part))
		start_in_worker(queryDesc, eflags);
	else
		start(queryDesc, eflags);
}

/* Other rules are in effect than before. */
static pg_noinline void
follow_policy(QueryDesc *queryDesc, int eflags)
{
	paq_policy_refresh(true);
	start_anywhere(queryDesc, eflags);
}

static void
capture_ExecutorStart(QueryDesc *queryDesc, int eflags)
{
	if (likely(paq_policy_is_current()))
		start_anywhere(queryDesc, eflags);
	else
		follow_policy(queryDesc, eflags);
}

static void
next_ExecutorRun(PAQ_EXECUTOR_RUN_ARGS)
{
	if (prev_ExecutorRun)
		prev_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
	else
		standard_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
}

/* Has the client been told everything that the query has to tell? */
static bool
is_complete(QueryDesc *queryDesc, ScanDirection direction, uint64 count)
{
	return queryDesc->operation == CMD_SELECT &&
		!queryDesc->plannedstmt->hasModifyingCTE &&
		!ScanDirectionIsNoMovement(direction) &&
		(count == 0 || queryDesc->estate->es_processed < count);
}

/* Has the query processed rows in runs that we have not seen? */
static void
look_at_rows(PaqStatement *statement, QueryDesc *queryDesc)
{
	if (statement != NULL && queryDesc->estate != NULL &&
		unlikely(queryDesc->estate->es_processed != statement->processed))
		statement->flags |= PAQ_RECORD_INCOMPLETE;
}

/*
 * NULL when out of memory; statements that the query executes have no caller then.
 * As for begin_start(), a part of a query has no QueryDesc.
 */
static PaqCallFrame *
begin_query(QueryDesc *queryDesc)
{
	PaqStatement *statement = paq_statement_find(queryDesc);

	/* Only what began last is excused, not a portal that was started before it. */
	if (unlikely(paq_excused) && paq_stack.frame == NULL && queryDesc != excused)
		paq_excuse(false);
	look_at_rows(statement, queryDesc);
	return paq_frame_push(statement, paq_capture_possible() ? queryDesc : NULL);
}

/*
 * Does the outcome of a SELECT depend on the commit that follows at once?  It does
 * if functions that it called have changed something.
 */
static bool
awaits_commit(const PaqStatement *statement)
{
	return statement->top_level && !IsTransactionBlock() &&
		TransactionIdIsValid(GetTopTransactionIdIfAny());
}

static void
end_run(QueryDesc *queryDesc, ScanDirection direction, uint64 count)
{
	PaqStatement *statement = paq_statement_find(queryDesc);

	if (unlikely(statement == NULL))
		return;
	statement->run = true;
	statement->processed = queryDesc->estate->es_processed;
	statement->rows = Max(statement->rows, 0) + queryDesc->estate->es_processed;
	if (paq_stack.frame->parent != NULL)
		return;
	statement->run_message = GetCurrentStatementStartTimestamp();
	statement->complete = is_complete(queryDesc, direction, count);
	if (statement->complete && !awaits_commit(statement))
		paq_statement_publish(statement, NULL, PAQ_SPACE_WAIT);
}

/* The rows that the client may have been sent before the error count for rules. */
pg_noreturn static void
fail_run(PaqCallFrame *frame)
{
	QueryDesc  *queryDesc = frame->query_desc;
	PaqStatement *statement;

	paq_frame_catch(frame);
	statement = paq_statement_find(queryDesc);
	if (statement != NULL && queryDesc->estate != NULL)
		paq_choice_note_rows(&statement->records, Max(statement->rows, 0) +
							 (int64) queryDesc->estate->es_processed);
	fail_query(frame);
}

static pg_noinline void
run_query(PAQ_EXECUTOR_RUN_ARGS)
{
	PaqCallFrame *const frame = begin_query(queryDesc);

	if (unlikely(frame == NULL))
	{
		next_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
		return;
	}
	if (PAQ_FRAME_TRY(frame))
	{
		next_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
		end_run(queryDesc, direction, count);
	}
	else
		fail_run(frame);
	paq_leave(frame, PAQ_SPACE_WAIT);
}

static void
capture_ExecutorRun(PAQ_EXECUTOR_RUN_ARGS)
{
	/* In a parallel worker a frame tells what functions execute from the part itself. */
	if (!paq_capture_idle() || unlikely(paq_stack.in_part))
		run_query(PAQ_EXECUTOR_RUN_PASS);
	else
		next_ExecutorRun(PAQ_EXECUTOR_RUN_PASS);
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
 * May ExecutorFinish execute anything?  It fires triggers, and has nothing to do
 * for a SELECT that changes nothing.
 */
static bool
has_work_to_finish(QueryDesc *queryDesc)
{
	return queryDesc->operation != CMD_SELECT || queryDesc->estate == NULL ||
		(queryDesc->estate->es_top_eflags & EXEC_FLAG_SKIP_TRIGGERS) == 0;
}

static pg_noinline void
finish_query(QueryDesc *queryDesc)
{
	PaqCallFrame *const frame =
		paq_frame_push(paq_statement_find(queryDesc), queryDesc);

	if (unlikely(frame == NULL))
	{
		next_ExecutorFinish(queryDesc);
		return;
	}
	if (PAQ_FRAME_TRY(frame))
		next_ExecutorFinish(queryDesc);
	else
		fail_query(frame);
	paq_frame_pop(frame);
}

static void
capture_ExecutorFinish(QueryDesc *queryDesc)
{
	if (has_work_to_finish(queryDesc) && !paq_capture_idle() &&
		paq_capture_possible())
		finish_query(queryDesc);
	else
		next_ExecutorFinish(queryDesc);
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
 * If the query has been executed without our hook being called, use what can
 * still be known.
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
 * All records of the statement have been published.  An error from here on gets a
 * record of its own.
 */
static void
end_published(PaqStatement *statement, QueryDesc *queryDesc)
{
	paq_statement_close(statement);
	next_ExecutorEnd(queryDesc);
	if (paq_stack.frame == NULL)
		paq_wait_statement(PAQ_SPACE_WAIT);
}

/* NULL when out of memory; PostgreSQL ends the statement at the end of its transaction. */
static PaqCallFrame *
begin_end(PaqStatement *statement, QueryDesc *queryDesc)
{
	look_at_rows(statement, queryDesc);
	look_at_end(statement, queryDesc);
	return paq_frame_push(statement, queryDesc);
}

static void
succeed(QueryDesc *queryDesc)
{
	PaqStatement *statement = paq_statement_find(queryDesc);

	if (likely(statement != NULL))
		paq_statement_succeed(statement);
}

static pg_noinline void
end_query(PaqStatement *statement, QueryDesc *queryDesc)
{
	PaqCallFrame *const frame = begin_end(statement, queryDesc);

	if (unlikely(frame == NULL))
	{
		next_ExecutorEnd(queryDesc);
		return;
	}
	if (PAQ_FRAME_TRY(frame))
	{
		next_ExecutorEnd(queryDesc);
		succeed(queryDesc);
	}
	else
		fail_query(frame);
	statement = paq_statement_find(queryDesc);
	if (statement != NULL)
		paq_statement_close(statement);
	paq_leave(frame, PAQ_SPACE_WAIT);
}

static pg_noinline void
end_known(QueryDesc *queryDesc)
{
	PaqStatement *statement = paq_statement_find(queryDesc);

	if (statement == NULL)
		next_ExecutorEnd(queryDesc);
	else if (statement->recorded && dlist_is_empty(&statement->records))
		end_published(statement, queryDesc);
	else
		end_query(statement, queryDesc);
}

static void
capture_ExecutorEnd(QueryDesc *queryDesc)
{
	if (paq_statements_open())
		end_known(queryDesc);
	else
		next_ExecutorEnd(queryDesc);
}

/*
 * Permissions are checked on behalf of an unknown statement: use what is at hand.
 */
static void
record_unknown(List *rangeTable, List *perminfos)
{
	PaqCommand	command = paq_operation_command(CMD_UNKNOWN);
	PaqStatement *statement;
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
	statement = paq_statement_new(debug_query_string ? debug_query_string : "",
								  &command, NULL, false);
	if (statement == NULL)
	{
		paq_queue_note_drop(PAQ_DROP_MEMORY, 1);
		return;
	}
	statement->flags = PAQ_RECORD_INCOMPLETE | PAQ_RECORD_NO_OUTCOME;
	PG_TRY();
	{
		paq_trail_begin(statement, rangeTable, perminfos);
		paq_record_relations(statement, rangeTable, perminfos);
		paq_trail_record(statement);
	}
	PG_FINALLY();
	{
		paq_statement_publish(statement, NULL, PAQ_SPACE_NOWAIT);
		paq_statement_close(statement);
	}
	PG_END_TRY();
}

/* Can it be a utility statement that adds a foreign key? */
static bool
may_add_key(const PaqStatement *statement)
{
	switch (statement->command.node)
	{
		case T_AlterTableStmt:
		case T_CreateStmt:
		case T_CreateForeignTableStmt:
		case T_CreateSchemaStmt:
		case T_GrantStmt:		/* as the former, see command_of() */
			return true;
		default:
			return false;
	}
}

/*
 * The statement whose permissions are being checked.  NULL if that is not the
 * one being executed, because another one has been started without our hook.
 * Of the utility statements, COPY checks its table, and those that can add a
 * foreign key check both tables.
 */
static PaqStatement *
checked_statement(void)
{
	PaqStatement *statement = paq_current_statement();

	if (statement == NULL || paq_stack.frame->starting)
		return statement;
	if (paq_stack.frame->query_desc == NULL &&
		(statement->command.node == T_CopyStmt || may_add_key(statement)))
		return statement;
	return NULL;
}

/*
 * Does a statement that adds a foreign key ask in which way to check the rows, where
 * that is no access?  An answer that it cannot do without would be an error.
 */
static bool
is_key_question(bool ereport_on_violation)
{
	PaqStatement *statement;

	if (PAQ_NEW_KEY_IS_ACCESS || ereport_on_violation ||
		paq_stack.frame == NULL || paq_stack.frame->starting ||
		paq_stack.frame->query_desc != NULL)
		return false;
	statement = paq_current_statement();
	return statement != NULL && may_add_key(statement);
}

/*
 * Does PostgreSQL look for the key of a foreign key?  From 19 on it does so without
 * a query, in the index, with the rights of the owner of the table referred to.
 * That is part of the statement that has changed the referring table, or of the
 * commit, and no statement that anybody could have recorded.
 *
 * Code of users can run while SECURITY_NOFORCE_RLS is set: operators, casts,
 * triggers.  But its statements begin in ExecutorStart and, as does everything
 * that the parser has seen, name their relations (eref).
 */
static bool
is_key_check(List *rangeTable)
{
	RangeTblEntry *rte;

	if ((paq_stack.frame != NULL && paq_stack.frame->starting) ||
		!InNoForceRLSOperation() || list_length(rangeTable) != 1)
		return false;
	rte = linitial_node(RangeTblEntry, rangeTable);
	return rte->rtekind == RTE_RELATION && rte->eref == NULL &&
		rte->rellockmode == RowShareLock;
}

/* Does a parallel worker check again what its leader has checked? */
static bool
is_checked_again(void)
{
	return paq_stack.in_part && paq_stack.frame->parent == NULL;
}

static bool
capture_ExecutorCheckPerms(PAQ_CHECK_PERMS_ARGS)
{
	if ((paq_capture_wanted() || paq_trail_awaits_check()) &&
		!IsAbortedTransactionBlockState() && !is_checked_again() && !is_key_check(rangeTable) &&
		!is_key_question(ereport_on_violation))
	{
		PaqStatement *statement = checked_statement();

		if (statement != NULL)
		{
			record_relations(statement, rangeTable, PAQ_CHECK_PERMS_INFOS);

			/* A query is admitted in end_start(). */
			if (!paq_stack.frame->starting)
				paq_statement_admit(statement);
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
