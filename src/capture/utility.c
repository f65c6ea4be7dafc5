/*-------------------------------------------------------------------------
 *
 * utility.c
 *		Hook of the statements that the executor does not execute: DDL, SET,
 *		COPY, transactions, ...
 *
 * A statement that will be recorded has a provisional record while it runs.
 * Its true record is made when it has succeeded, or earlier, by an event
 * trigger that knows the names of its objects (ddl.c), by the permission
 * check of a COPY, or at once for those statements that run others and shall
 * be recorded before them.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "nodes/plannodes.h"

static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/* Is it recorded before it is executed, as pgaudit does it? */
static bool
is_recorded_first(NodeTag node)
{
	switch (node)
	{
		case T_DoStmt:
		case T_CreateExtensionStmt:
		case T_AlterExtensionStmt:
		case T_ClosePortalStmt:
			return true;
		default:
			return false;
	}
}

/*
 * How a success deals with a full queue.  Nothing keeps a session in its
 * transaction; but what it can repeat for ever, without doing anything else in
 * between, is no way out.
 */
static PaqSpaceWait
room_for(Node *parsetree)
{
	const TransactionStmt *stmt = (const TransactionStmt *) parsetree;

	if (IsA(parsetree, TransactionStmt) && stmt->kind == TRANS_STMT_ROLLBACK &&
		!stmt->chain && IsTransactionBlock())
		return paq_unrefused();
	return PAQ_SPACE_WAIT;
}

/* Note what there is to know; pstmt may be gone when the statement ends. */
static void
begin_statement(PaqStatement *statement, PlannedStmt *pstmt,
				const char *text, ProcessUtilityContext context,
				ParamListInfo params)
{
	PaqCommand	command;

	command.level = GetCommandLogLevel(pstmt->utilityStmt);
	command.node = nodeTag(pstmt->utilityStmt);
	command.tag = CreateCommandTag(pstmt->utilityStmt);
	paq_statement_init(statement, text, &command, pstmt,
					   paq_frame == NULL && !paq_is_committing());
	if (context == PROCESS_UTILITY_TOPLEVEL)
		statement->params = params;
	if (IsA(pstmt->utilityStmt, TransactionStmt))
	{
		TransactionStmt *stmt = (TransactionStmt *) pstmt->utilityStmt;

		statement->commits = stmt->kind == TRANS_STMT_COMMIT ||
			stmt->kind == TRANS_STMT_PREPARE;
	}
}

/* Before execution. */
static void
record_beginning(PaqStatement *statement)
{
	if (paq_statement_is_audited(statement))
	{
		paq_record_provisional(statement);
		if (is_recorded_first(statement->command.node))
			paq_record_statement(statement, &statement->command, NULL);
	}
	if (statement->room == PAQ_SPACE_WAIT &&
		(statement->provisional != NULL || statement->attempt != NULL ||
		 !slist_is_empty(&statement->entries)))
		paq_queue_admit();
}

/* After execution: settings may be others by now, and count as they are. */
static void
record_success(PaqStatement *statement, QueryCompletion *qc)
{
	if (qc != NULL && command_tag_display_rowcount(qc->commandTag))
		statement->rows = qc->nprocessed;
	if (paq_log_classes != PAQ_CLASSES_NONE &&
		statement->command.node != T_ClosePortalStmt &&
		!IsAbortedTransactionBlockState())
		paq_record_statement(statement, &statement->command, NULL);
	if (statement->provisional != NULL)
	{
		paq_pending_free(statement->provisional);
		statement->provisional = NULL;
	}
	paq_config_end(statement);
	paq_statement_succeed(statement);
}

/* What runs without being a statement of its own belongs to its caller's. */
static PaqStatement *
inherited_statement(void)
{
	return paq_frame ? paq_frame->statement : NULL;
}

static void
next_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
					bool readOnlyTree, ProcessUtilityContext context,
					ParamListInfo params, QueryEnvironment *queryEnv,
					DestReceiver *dest, QueryCompletion *qc)
{
	if (prev_ProcessUtility)
		prev_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
							queryEnv, dest, qc);
	else
		standard_ProcessUtility(pstmt, queryString, readOnlyTree, context,
								params, queryEnv, dest, qc);
}

static void
capture_ProcessUtility(PlannedStmt *pstmt, const char *queryString,
					   bool readOnlyTree, ProcessUtilityContext context,
					   ParamListInfo params, QueryEnvironment *queryEnv,
					   DestReceiver *dest, QueryCompletion *qc)
{
	/*
	 * Parts of a statement belong to it, and so does what runs in a procedure
	 * that could end the transaction.  In an aborted transaction nothing runs
	 * but what ends it.
	 */
	const bool	own = context <= PROCESS_UTILITY_QUERY &&
		paq_capture_possible() && !IsAbortedTransactionBlockState();
	const bool	config = own && paq_config_concerns(pstmt->utilityStmt);
	const PaqSpaceWait room = own ? room_for(pstmt->utilityStmt) : PAQ_SPACE_WAIT;
	PaqStatement own_statement;
	PaqStatement *const statement = own ? &own_statement : NULL;
	PaqCallFrame frame;

	if (!config && paq_capture_idle())
	{
		next_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
							queryEnv, dest, qc);
		return;
	}

	if (own)
	{
		paq_settle(room);
		begin_statement(statement, pstmt, queryString, context, params);
		statement->room = room;
	}
	paq_frame_push(&frame, own ? statement : inherited_statement(), NULL);
	PG_TRY();
	{
		if (config)
			paq_config_begin(statement, pstmt->utilityStmt);
		if (own)
			record_beginning(statement);
		next_ProcessUtility(pstmt, queryString, readOnlyTree, context, params,
							queryEnv, dest, qc);
		if (own)
			record_success(statement, qc);
	}
	PG_CATCH();
	{
		const PaqError *error = paq_error_catch(queryString);

		if (own)
		{
			paq_statement_fail(statement, error);
			paq_statement_close(statement);
		}
		paq_frame_pop(&frame);
		if (paq_frame == NULL)
			paq_request_waits();
		PG_RE_THROW();
	}
	PG_END_TRY();
	if (own)
		paq_statement_close(statement);
	paq_frame_pop(&frame);
	if (paq_frame == NULL)
		paq_wait_statement(room);
}

void
paq_utility_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = capture_ProcessUtility;
}
