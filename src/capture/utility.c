/*-------------------------------------------------------------------------
 *
 * utility.c
 *		Hook of the statements that the executor does not execute: DDL, SET,
 *		COPY, transactions, ...
 *
 * A statement that will be recorded has a provisional record while it is
 * executed.  Its true record is made when it has succeeded, or earlier: by an
 * event trigger that knows the names of its objects (ddl.c), by the permission
 * check of a COPY, or at once for statements that execute others and precede
 * them in the trail.
 *
 * As in executor.c, the hook leaves little on the stack.
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
#include "nodes/plannodes.h"

#define UTILITY_ARGS \
	PlannedStmt *pstmt, const char *queryString, bool readOnlyTree, \
	ProcessUtilityContext context, ParamListInfo params, \
	QueryEnvironment *queryEnv, DestReceiver *dest, QueryCompletion *qc
#define UTILITY_PASS \
	pstmt, queryString, readOnlyTree, context, params, queryEnv, dest, qc

static ProcessUtility_hook_type prev_ProcessUtility = NULL;

/* Is the statement recorded before it is executed, as in pgaudit? */
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

/* Is it a ROLLBACK that ends a transaction? */
static bool
leaves_transaction(Node *parsetree)
{
	const TransactionStmt *stmt = (const TransactionStmt *) parsetree;

	return IsA(parsetree, TransactionStmt) && stmt->kind == TRANS_STMT_ROLLBACK &&
		!stmt->chain && IsTransactionBlock();
}

/*
 * The space policy of a statement's success.  A full queue must not keep a session
 * in its transaction.  That does not apply to a ROLLBACK that a client could
 * repeat for ever: outside of a transaction, or with AND CHAIN.
 */
static PaqSpaceWait
space_policy_for(Node *parsetree)
{
	return leaves_transaction(parsetree) ? paq_unrefused() : PAQ_SPACE_WAIT;
}

/* Does it change the session's role or user, to another one or back? */
static bool
sets_role(Node *parsetree)
{
	const VariableSetStmt *set = (const VariableSetStmt *) parsetree;

	return IsA(parsetree, VariableSetStmt) && set->name != NULL &&
		(pg_strcasecmp(set->name, "role") == 0 ||
		 pg_strcasecmp(set->name, "session_authorization") == 0);
}

/*
 * What a statement is recorded as.  The GRANTs in a CREATE SCHEMA have no records
 * of their own; if only they are audited, it is recorded as the first of them.
 */
static PaqCommand
command_of(Node *parsetree)
{
	PaqCommand	command;
	ListCell   *lc;

	command.level = GetCommandLogLevel(parsetree);
	command.node = nodeTag(parsetree);
	command.tag = CreateCommandTag(parsetree);
	command.sets_role = sets_role(parsetree);
	command.of_part = false;
	if (!IsA(parsetree, CreateSchemaStmt) ||
		paq_class_is_wanted(paq_classify(&command)))
		return command;
	foreach(lc, ((CreateSchemaStmt *) parsetree)->schemaElts)
		if (IsA(lfirst(lc), GrantStmt))
		{
			command = command_of(lfirst(lc));
			command.of_part = true;
			break;
		}
	return command;
}

/* pstmt may be gone when the statement ends.  NULL when out of memory. */
static PaqStatement *
new_statement(PlannedStmt *pstmt, const char *text,
			  ProcessUtilityContext context, ParamListInfo params,
			  PaqSpaceWait wait)
{
	const PaqCommand command = command_of(pstmt->utilityStmt);
	PaqStatement *statement;

	statement = paq_statement_new(text, &command, pstmt,
								  paq_stack.frame == NULL && paq_is_clients());
	if (unlikely(statement == NULL))
		return NULL;
	statement->space_policy = wait;
	if (context == PROCESS_UTILITY_TOPLEVEL)
		statement->params = params;
	if (IsA(pstmt->utilityStmt, TransactionStmt))
	{
		TransactionStmt *stmt = (TransactionStmt *) pstmt->utilityStmt;

		statement->commits = stmt->kind == TRANS_STMT_COMMIT ||
			stmt->kind == TRANS_STMT_PREPARE;
	}
	return statement;
}

/*
 * The frame of a statement that is about to be executed.  NULL when out of
 * memory, which loses its record.
 */
static PaqCallFrame *
begin_statement(PlannedStmt *pstmt, const char *text,
				ProcessUtilityContext context, ParamListInfo params)
{
	const PaqSpaceWait wait = space_policy_for(pstmt->utilityStmt);

	paq_settle(wait);
	return paq_statement_enter(new_statement(pstmt, text, context, params, wait));
}

/*
 * Record the statement without an object.  As a part of it, it has a record that pgaudit
 * lacks, unless event triggers have told of that part.
 */
static void
record_itself(PaqStatement *statement)
{
	const PaqChoice *choice = statement->choice.rules != NULL ? &statement->choice : NULL;

	if (unlikely(statement->command.of_part) && !statement->recorded)
		paq_record_unnumbered(statement, &statement->command, choice);
	else
		paq_record_statement(statement, &statement->command, NULL, choice);
}

/* Before execution. */
static void
record_beginning(PaqStatement *statement, Node *parsetree)
{
	statement->unfinished = true;
	if (paq_config_concerns(parsetree))
		paq_config_begin(statement, parsetree);
	if (unlikely(paq_policy.has_rules))
		paq_choose_utility(statement, parsetree);
	if (paq_statement_is_audited(statement))
	{
		paq_record_provisional(statement);
		if (is_recorded_first(statement->command.node))
			record_itself(statement);
	}
	if (IsA(parsetree, CopyStmt))
		paq_trail_begin_copy(statement, (CopyStmt *) parsetree);
	statement->unfinished = false;
	if (leaves_transaction(parsetree))
		paq_text_errno = 0;		/* it is not refused for a text that is cut */
	if (statement->space_policy == PAQ_SPACE_WAIT &&
		(statement->provisional != NULL || statement->attempt != NULL ||
		 !dlist_is_empty(&statement->records)))
		paq_queue_admit();
}

/*
 * The statement has failed before it was executed, while its records were being made, by an
 * interrupt for instance.  What is not known about it is no reason to leave it out.
 */
static void
record_unfinished(PaqStatement *statement)
{
	const bool	decided = statement->choice.rules != NULL && statement->chosen;

	if (statement->provisional != NULL || !dlist_is_empty(&statement->records))
		return;
	if (unlikely(paq_policy.has_rules) && !decided)
	{
		if (paq_class_is_wanted(paq_classify(&statement->command)))
			paq_record_denied(statement, &statement->command, NULL, NULL);
	}
	else if (paq_statement_is_audited(statement))
		paq_record_denied(statement, &statement->command, NULL,
						  decided ? &statement->choice : NULL);
}

/* After execution.  Settings may have changed, and count as they are now. */
static void
record_success(PaqStatement *statement, QueryCompletion *qc)
{
	if (qc != NULL && command_tag_display_rowcount(qc->commandTag))
		statement->rows = qc->nprocessed;
	if ((paq_log_classes != PAQ_CLASSES_NONE || statement->choice.rules != NULL) &&
		statement->command.node != T_ClosePortalStmt && !statement->objects_known &&
		!IsAbortedTransactionBlockState())
		record_itself(statement);
	if (statement->provisional != NULL)
	{
		paq_choice_detach(statement->provisional);
		paq_pending_free(statement->provisional);
		statement->provisional = NULL;
	}
	paq_config_end(statement);
	paq_statement_succeed(statement);
}

static void
end_statement(PaqCallFrame *frame)
{
	PaqStatement *statement = frame->statement;
	const PaqSpaceWait wait = statement->space_policy;

	paq_statement_close(statement);
	paq_leave(frame, wait);
}

/* An error leaves the statement. */
pg_noreturn static void
fail_statement(PaqCallFrame *frame)
{
	PaqStatement *statement = frame->statement;
	PaqError   *error;

	paq_frame_catch(frame);
	error = paq_error_catch(statement->text);
	if (unlikely(statement->unfinished))
		record_unfinished(statement);
	paq_trail_fail(statement);
	paq_record_denial(statement, error);
	paq_statement_fail(statement, error);
	paq_statement_close(statement);
	paq_rethrow(frame);
}

static void
next_ProcessUtility(UTILITY_ARGS)
{
	if (prev_ProcessUtility)
		prev_ProcessUtility(UTILITY_PASS);
	else
		standard_ProcessUtility(UTILITY_PASS);
}

static pg_noinline void
run_statement(UTILITY_ARGS)
{
	PaqCallFrame *const frame = begin_statement(pstmt, queryString, context,
												params);

	if (unlikely(frame == NULL))
	{
		next_ProcessUtility(UTILITY_PASS);
		return;
	}
	if (PAQ_FRAME_TRY(frame))
	{
		record_beginning(frame->statement, pstmt->utilityStmt);
		next_ProcessUtility(UTILITY_PASS);
		record_success(frame->statement, qc);
	}
	else
		fail_statement(frame);
	end_statement(frame);
}

/*
 * A part of a statement belongs to the statement of the caller.  Nevertheless it
 * has a frame: an error within it quotes the text of the part, a CALL in a procedure
 * for instance, and that tells which secrets to mask.  And a new frame proves that
 * the last error was handled, which counts for a ROLLBACK in an aborted transaction.
 */
static PaqCallFrame *
begin_part(void)
{
	return paq_frame_push(paq_stack.frame ? paq_stack.frame->statement : NULL,
						  NULL);
}

pg_noreturn static void
fail_part(PaqCallFrame *frame, const char *text)
{
	paq_frame_catch(frame);
	(void) paq_error_catch(text);
	paq_rethrow(frame);
}

static pg_noinline void
run_part(UTILITY_ARGS)
{
	PaqCallFrame *const frame = begin_part();

	if (unlikely(frame == NULL))
	{
		next_ProcessUtility(UTILITY_PASS);
		return;
	}
	if (PAQ_FRAME_TRY(frame))
		next_ProcessUtility(UTILITY_PASS);
	else
		fail_part(frame, queryString);
	paq_leave(frame, PAQ_SPACE_WAIT);
}

/*
 * Is it a statement of its own?  Not if it is a part of another one, nor in an
 * aborted transaction, where only the statements that end it are executed.
 */
static bool
is_own_statement(ProcessUtilityContext context)
{
	return context <= PROCESS_UTILITY_QUERY && paq_capture_possible() &&
		!IsAbortedTransactionBlockState();
}

static void
capture_ProcessUtility(UTILITY_ARGS)
{
	const bool	own = is_own_statement(context);

	paq_policy_follow();
	if (paq_capture_idle() &&
		!(own && (paq_config_concerns(pstmt->utilityStmt) ||
				  paq_trail_concerns(pstmt->utilityStmt))))
		next_ProcessUtility(UTILITY_PASS);
	else if (own)
		run_statement(UTILITY_PASS);
	else
		run_part(UTILITY_PASS);
}

void
paq_utility_init(void)
{
	prev_ProcessUtility = ProcessUtility_hook;
	ProcessUtility_hook = capture_ProcessUtility;
}
