/*-------------------------------------------------------------------------
 *
 * mask_tree.c
 *		Secrets of statements, from their parse trees.
 *
 * The tree says what a statement is and where it has what; the tokens of the
 * text say where that ends.
 *
 * Guarantees: no error leaves this file.  The parser raises them, so this must
 * not be called while an error is being handled: catching one would forget the
 * other.  Nothing is asked of the catalogs, and nothing is reported to the
 * client or to the server log, which hear of the text when it is executed.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/mask_internal.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "parser/parser.h"
#include "utils/guc.h"
#include "utils/memutils.h"

/* One text and its tokens */
typedef struct Tree
{
	PaqMaskWork *work;
	const PaqView *view;
	PaqTokens  *tokens;
} Tree;

/* Settings that have other values while the parser runs */
typedef struct ParserSettings
{
	bool		conforming;
	bool		escape_warning;
	int			client_level;
	int			log_level;
	uint32		interrupt_holdoff;
	uint32		cancel_holdoff;
	ErrorContextCallback *context_stack;
} ParserSettings;

/* The first token at or behind a position of the text. */
static int
find_token(const Tree *tree, int location)
{
	int			low = 0;
	int			high = tree->tokens->count;

	while (low < high)
	{
		int			middle = low + (high - low) / 2;

		if (tree->tokens->items[middle].start < (uint32) location)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The first literal behind a position is secret. */
static void
mask_literal_behind(const Tree *tree, int location)
{
	if (location < 0)
		return;
	for (int i = find_token(tree, location); i < tree->tokens->count; i++)
	{
		PaqToken   *token = &tree->tokens->items[i];

		if (token->kind != PAQ_TOKEN_STRING)
			continue;
		paq_mask_token(tree->work, tree->view, token);
		return;
	}
}

/* Options of a role, or of anything that has to do with foreign data. */
static void
mask_options(const Tree *tree, List *options)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (option->arg != NULL &&
			paq_mask_name_is_secret(option->defname, strlen(option->defname)))
			mask_literal_behind(tree, option->location);
	}
}

/* Columns of a foreign table */
static void
mask_columns(const Tree *tree, List *columns)
{
	ListCell   *lc;

	foreach(lc, columns)
	{
		if (IsA(lfirst(lc), ColumnDef))
			mask_options(tree, ((ColumnDef *) lfirst(lc))->fdwoptions);
	}
}

static void
mask_alter_table(const Tree *tree, AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		AlterTableCmd *cmd = lfirst_node(AlterTableCmd, lc);

		switch (cmd->subtype)
		{
			case AT_GenericOptions:
			case AT_AlterColumnGenericOptions:
				mask_options(tree, (List *) cmd->def);
				break;
			case AT_AddColumn:
				mask_columns(tree, list_make1(cmd->def));
				break;
			default:
				break;
		}
	}
}

/* One value of a setting; a number can have a sign in front of it. */
static void
mask_setting_value(const Tree *tree, int location, PaqSettingKind kind)
{
	int			i = find_token(tree, location);
	PaqToken   *items = tree->tokens->items;

	if (location < 0 || i >= tree->tokens->count)
		return;
	if (items[i].kind == PAQ_TOKEN_PUNCT && i + 1 < tree->tokens->count)
		i++;
	if (kind == PAQ_SETTING_SECRET)
		paq_mask_token(tree->work, tree->view, &items[i]);
	else
		items[i].hint = PAQ_HINT_CONNINFO;
}

static void
mask_set(const Tree *tree, VariableSetStmt *stmt)
{
	PaqSettingKind kind;
	ListCell   *lc;

	if (stmt->kind != VAR_SET_VALUE || stmt->name == NULL)
		return;
	kind = paq_mask_setting_kind(stmt->name, strlen(stmt->name));
	if (kind == PAQ_SETTING_PLAIN)
		return;
	foreach(lc, stmt->args)
	{
		if (IsA(lfirst(lc), A_Const))
			mask_setting_value(tree, ((A_Const *) lfirst(lc))->location, kind);
	}
}

/* Settings of a function */
static void
mask_function_settings(const Tree *tree, List *options)
{
	ListCell   *lc;

	foreach(lc, options)
	{
		DefElem    *option = lfirst_node(DefElem, lc);

		if (option->arg != NULL && IsA(option->arg, VariableSetStmt))
			mask_set(tree, (VariableSetStmt *) option->arg);
	}
}

/* CONNECTION '...', somewhere in the statement */
static void
mark_connection(const Tree *tree, RawStmt *raw)
{
	PaqToken   *items = tree->tokens->items;
	uint32		end = raw->stmt_len > 0 ?
		raw->stmt_location + raw->stmt_len : tree->view->len;

	for (int i = find_token(tree, raw->stmt_location);
		 i + 1 < tree->tokens->count && items[i].start < end; i++)
	{
		if (paq_mask_is_word(tree->view, &items[i], "connection") &&
			items[i + 1].kind == PAQ_TOKEN_STRING)
			items[i + 1].hint = PAQ_HINT_CONNINFO;
	}
}

static void
mask_statement(const Tree *tree, RawStmt *raw)
{
	Node	   *stmt = raw->stmt;

	switch (nodeTag(stmt))
	{
		case T_CreateRoleStmt:
			mask_options(tree, ((CreateRoleStmt *) stmt)->options);
			break;
		case T_AlterRoleStmt:
			mask_options(tree, ((AlterRoleStmt *) stmt)->options);
			break;
		case T_CreateUserMappingStmt:
			mask_options(tree, ((CreateUserMappingStmt *) stmt)->options);
			break;
		case T_AlterUserMappingStmt:
			mask_options(tree, ((AlterUserMappingStmt *) stmt)->options);
			break;
		case T_CreateForeignServerStmt:
			mask_options(tree, ((CreateForeignServerStmt *) stmt)->options);
			break;
		case T_AlterForeignServerStmt:
			mask_options(tree, ((AlterForeignServerStmt *) stmt)->options);
			break;
		case T_CreateFdwStmt:
			mask_options(tree, ((CreateFdwStmt *) stmt)->options);
			break;
		case T_AlterFdwStmt:
			mask_options(tree, ((AlterFdwStmt *) stmt)->options);
			break;
		case T_ImportForeignSchemaStmt:
			mask_options(tree, ((ImportForeignSchemaStmt *) stmt)->options);
			break;
		case T_CreateForeignTableStmt:
			mask_options(tree, ((CreateForeignTableStmt *) stmt)->options);
			mask_columns(tree, ((CreateForeignTableStmt *) stmt)->base.tableElts);
			break;
		case T_AlterTableStmt:
			mask_alter_table(tree, (AlterTableStmt *) stmt);
			break;
		case T_CreateSubscriptionStmt:
		case T_AlterSubscriptionStmt:
			mark_connection(tree, raw);
			break;
		case T_VariableSetStmt:
			mask_set(tree, (VariableSetStmt *) stmt);
			break;
		case T_AlterSystemStmt:
			mask_set(tree, ((AlterSystemStmt *) stmt)->setstmt);
			break;
		case T_AlterRoleSetStmt:
			mask_set(tree, ((AlterRoleSetStmt *) stmt)->setstmt);
			break;
		case T_AlterDatabaseSetStmt:
			mask_set(tree, ((AlterDatabaseSetStmt *) stmt)->setstmt);
			break;
		case T_CreateFunctionStmt:
			mask_function_settings(tree, ((CreateFunctionStmt *) stmt)->options);
			break;
		case T_AlterFunctionStmt:
			mask_function_settings(tree, ((AlterFunctionStmt *) stmt)->actions);
			break;
		default:
			break;
	}
}

/*
 * Literals are to be read as the work wants; and nobody shall be warned a
 * second time, or hear of an error.  An error ends all holds on interrupts, so
 * they must be kept to be restored.
 */
static void
change_settings(PaqMaskWork *work, ParserSettings *saved)
{
	saved->conforming = standard_conforming_strings;
	saved->escape_warning = escape_string_warning;
	saved->client_level = client_min_messages;
	saved->log_level = log_min_messages;
	saved->interrupt_holdoff = InterruptHoldoffCount;
	saved->cancel_holdoff = QueryCancelHoldoffCount;
	saved->context_stack = error_context_stack;

	standard_conforming_strings = work->conforming;
	escape_string_warning = false;
	client_min_messages = ERROR;
	log_min_messages = FATAL;
	error_context_stack = NULL;
	HOLD_INTERRUPTS();
}

static void
restore_settings(const ParserSettings *saved)
{
	standard_conforming_strings = saved->conforming;
	escape_string_warning = saved->escape_warning;
	client_min_messages = saved->client_level;
	log_min_messages = saved->log_level;
	InterruptHoldoffCount = saved->interrupt_holdoff;
	QueryCancelHoldoffCount = saved->cancel_holdoff;
	error_context_stack = saved->context_stack;
}

/* Parse the text and mask what its statements say; may raise. */
static void
parse_and_mask(const Tree *tree)
{
	char	   *text;
	ListCell   *lc;

	text = palloc_extended(tree->view->len + (Size) 1, MCXT_ALLOC_HUGE);
	memcpy(text, tree->view->data, tree->view->len);
	text[tree->view->len] = '\0';
	foreach(lc, raw_parser(text, RAW_PARSE_DEFAULT))
		mask_statement(tree, lfirst_node(RawStmt, lc));
}

/*
 * Is it worth while to try and parse the text of a literal?  It must begin with
 * a statement that has something to say about secrets, or deals with data.
 */
bool
paq_mask_may_be_statement(const PaqView *view, const PaqTokens *tokens)
{
	static const char *const words[] = {
		"alter", "call", "copy", "create", "declare", "delete", "do",
		"execute", "explain", "import", "insert", "merge", "prepare",
		"select", "set", "update", "values", "with", NULL
	};
	const PaqToken *first = tokens->items;

	return tokens->count > 1 && first->kind == PAQ_TOKEN_WORD &&
		paq_mask_word_in(view->data + first->start, first->end - first->start,
						 words);
}

/*
 * Mask what the parse tree of the text says.  Returns false if it has none;
 * then nothing is masked.
 */
bool
paq_mask_tree(PaqMaskWork *work, const PaqView *view, PaqTokens *tokens)
{
	const Tree	tree = {work, view, tokens};
	MemoryContext old_context = CurrentMemoryContext;
	MemoryContext volatile context = NULL;
	volatile bool parsed = false;
	ParserSettings saved;

	/* In a critical section an error is the end of the server. */
	if (CritSectionCount > 0 || memchr(view->data, '\0', view->len) != NULL)
		return false;

	change_settings(work, &saved);
	PG_TRY();
	{
		context = AllocSetContextCreate(old_context, "pg_audit_queue parser",
										ALLOCSET_DEFAULT_SIZES);
		MemoryContextSwitchTo(context);
		parse_and_mask(&tree);
		parsed = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		FlushErrorState();
	}
	PG_END_TRY();
	restore_settings(&saved);
	MemoryContextSwitchTo(old_context);
	if (context != NULL)
		MemoryContextDelete(context);
	return parsed;
}
