/*-------------------------------------------------------------------------
 *
 * planning.c
 *		Statements that are planned, and what becomes of them before they are executed.
 *
 * Planning a statement can tell what is in its tables.  The planner looks at statistics:
 * to guess how many rows an operator selects, it calls the operator's function with the
 * most common values of a column.  That function can be a user's, who has made the operator,
 * and can tell the values in messages.  So a statement whose planning fails has used its
 * relations, and has a record as one whose permissions do not suffice.  A statement that is
 * planned, but not executed, because something fails in between, has one, too, if it calls
 * code of users: PostgreSQL plans all statements that a rule or the body of an SQL function
 * is made of before it executes the first of them, and looks at some things, such as
 * whether a function may change anything, only when it has the plan.
 *
 * What rules and settings say of a statement is decided before it is planned, because
 * catalogs cannot be read while an error is being handled.  What an SQL function has that
 * the planner puts in the place of its call is not known by then.
 *
 * Guarantees: a statement of which planning has told anything to code of users has a
 * record if one of its relations would have it executed with one, whatever comes after
 * it.  Shown by t/153_planning.pl.
 *
 * Must not raise, except for what deciding may (choice.c), where a query is too deep to be
 * looked at, and to wait for space in the queue.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "capture/capture_internal.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "compat.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "tcop/tcopprot.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

/* Plans that wait for their execution at most; beyond that, the oldest one waits no longer. */
#define MAX_PLANNED		2000

/* A text that several plans have */
typedef struct SharedText
{
	int			users;
	char		text[FLEXIBLE_ARRAY_MEMBER];
} SharedText;

/* A statement that is being planned, or that is planned and not executed yet */
typedef struct Planning
{
	dlist_node	node;			/* of plannings */
	MemoryContext context;		/* of all of it, but the text */
	PaqStatement *statement;
	QueryDesc	query_desc;		/* what is asked of a statement of the executor, as far as it is */
	PlannedStmt plan;			/* known before it has a plan */
	TimestampTz message;		/* of the client, in which it is planned */
	bool		tells;			/* code of users may be called meanwhile */
	bool		unknown;		/* it may use relations that are not in plan */
	SharedText *planned;		/* its text, if it waits for its execution; else NULL */
	List	   *relations;		/* that its plan has then; plan has those of the query */
} Planning;

static planner_hook_type prev_planner = NULL;

/* All of them, newest first */
static dlist_head plannings = DLIST_STATIC_INIT(plannings);

/* How many of them wait for their execution */
int			paq_planned = 0;

/* Has a statement that is not executed left a record since the session was made to wait? */
static bool unsettled = false;

/* An unused memory context */
static MemoryContext spare_context = NULL;

/* ----------
 * What a query uses
 * ----------
 */

static bool
is_users_function(Oid function, void *context)
{
	return function >= FirstNormalObjectId;
}

/* Is one of the expressions of a type that is not PostgreSQL's own?  Ranges have functions. */
static bool
has_users_type(List *expressions)
{
	ListCell   *lc;

	foreach(lc, expressions)
		if (exprType(lfirst(lc)) >= FirstNormalObjectId)
			return true;
	return false;
}

/*
 * Returns true if the planner may call code of users for the expression: a function or an
 * operator that is not PostgreSQL's own, or an operator for a type that is not.  The function
 * of a user's operator can be.
 */
static bool
calls_users_code(Node *node)
{
	if (IsA(node, OpExpr) || IsA(node, DistinctExpr) || IsA(node, NullIfExpr))
		return ((OpExpr *) node)->opno >= FirstNormalObjectId ||
			((OpExpr *) node)->opfuncid >= FirstNormalObjectId ||
			has_users_type(((OpExpr *) node)->args);
	if (IsA(node, ScalarArrayOpExpr) &&
		(((ScalarArrayOpExpr *) node)->opno >= FirstNormalObjectId ||
		 has_users_type(((ScalarArrayOpExpr *) node)->args)))
		return true;
	return check_functions_in_node(node, is_users_function, NULL);
}

/* Returns true if the planner may put what is in the function in the place of its call. */
static bool
may_be_inlined(Oid function)
{
	HeapTuple	tuple;
	bool		result;

	if (function < FirstNormalObjectId)
		return false;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_proc) GETSTRUCT(tuple))->prolang == SQLlanguageId;
	ReleaseSysCache(tuple);
	return result;
}

/* Note what the query does with its range table. */
static void
note_range_table(Planning *planning, const Query *query)
{
	ListCell   *lc;
	ListCell   *lc2;

	foreach(lc, query->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (OidIsValid(rte->relid) &&
			paq_rte_perms(rte, paq_query_perm_infos(query)).requiredPerms != 0)
			paq_plan_add_rte(&planning->plan, query, rte);
		if (rte->rtekind != RTE_FUNCTION || planning->unknown)
			continue;
		foreach(lc2, rte->functions)
		{
			Node	   *expr = lfirst_node(RangeTblFunction, lc2)->funcexpr;

			if (IsA(expr, FuncExpr) && may_be_inlined(((FuncExpr *) expr)->funcid))
				planning->unknown = true;
		}
	}
}

/* Tree walker: note what a query, and those within it, use. */
static bool
note_uses(Node *node, void *planning)
{
	if (node == NULL)
		return false;
	if (IsA(node, Query))
	{
		note_range_table(planning, (Query *) node);
		return query_tree_walker((Query *) node, note_uses, planning, 0);
	}
	if (!((Planning *) planning)->tells)
		((Planning *) planning)->tells = calls_users_code(node);
	return expression_tree_walker(node, note_uses, planning);
}

/* ----------
 * Plannings
 * ----------
 */

/*
 * Before the permissions of a statement are checked, or it is planned: have rules decide, and
 * look up whatever may not be looked up while an error is being handled.
 */
void
paq_prepare_statement(PaqStatement *statement, PlannedStmt *plan)
{
	statement->others_rights = paq_has_others_rights();
	if (unlikely(statement->others_rights))
		paq_note_key_query(statement, plan->rtable, paq_stmt_perm_infos(plan));
	if (unlikely(paq_policy.has_rules))
		paq_choose_relations(statement, plan->rtable, paq_stmt_perm_infos(plan));
	if (unlikely(paq_trail_may_be_used(plan->relationOids)))
		paq_trail_begin(statement, plan->rtable, paq_stmt_perm_infos(plan));
	if (paq_role[0] != '\0' || unlikely(paq_policy.has_roles))
		paq_find_granted(statement, plan);
}

/* A memory context for a planning; it goes with the caller's if that is left by an error. */
static MemoryContext
new_context(void)
{
	MemoryContext context = spare_context;

	if (context == NULL)
		return AllocSetContextCreate(CurrentMemoryContext, "pg_audit_queue planning",
									 ALLOCSET_SMALL_SIZES);
	spare_context = NULL;
	MemoryContextSetParent(context, CurrentMemoryContext);
	return context;
}

static void
free_context(MemoryContext context)
{
	if (spare_context != NULL)
	{
		MemoryContextDelete(context);
		return;
	}
	MemoryContextReset(context);
	MemoryContextSetParent(context, TopMemoryContext);
	spare_context = context;
}

/* Free the planning, and close its statement, all of whose records are published. */
static void
end_planning(Planning *planning)
{
	dlist_delete(&planning->node);
	if (planning->planned == NULL)
		paq_stack_end_planning();
	paq_statement_detach(planning->statement);
	paq_statement_close(planning->statement);
	if (planning->planned != NULL)
	{
		paq_planned--;
		if (--planning->planned->users == 0)
			pfree(planning->planned);
	}
	free_context(planning->context);
}

/* Make the records of a statement that is not executed. */
static void
make_records(Planning *planning)
{
	paq_record_failed_start(planning->statement, &planning->plan);
	paq_trail_fail(planning->statement);
	unsettled |= !dlist_is_empty(&planning->statement->records);
}

/* Record a statement that is not executed, because of the error; NULL: nobody knows why. */
static void
give_up(Planning *planning, PaqError *error)
{
	make_records(planning);
	if (error == NULL)
		planning->statement->flags |= PAQ_RECORD_INCOMPLETE | PAQ_RECORD_NO_OUTCOME;
	paq_statement_fail(planning->statement, error);
	end_planning(planning);
}

/*
 * Begin to plan a statement.  Returns NULL if that is of no interest, because it uses no relation
 * that is known, and without memory.
 */
static Planning *
begin_planning(Query *parse, const char *text, ParamListInfo params)
{
	MemoryContext context;
	MemoryContext old_context;
	Planning   *planning;

	if (parse->rtable == NIL && parse->cteList == NIL && !parse->hasSubLinks)
		return NULL;

	/* A query that is too deep to be looked at is an error. */
	context = new_context();
	old_context = MemoryContextSwitchTo(context);
	planning = palloc0(sizeof(Planning));
	planning->context = context;
	planning->tells = Debug_print_plan; /* a plan has the planner's guesses */
	NodeSetTag(&planning->plan, T_PlannedStmt);
	(void) note_uses((Node *) parse, planning);
	MemoryContextSwitchTo(old_context);

	planning->plan.commandType = parse->commandType;
	planning->plan.queryId = parse->queryId;
	planning->plan.hasModifyingCTE = parse->hasModifyingCTE;
	planning->plan.canSetTag = parse->canSetTag;
	planning->plan.stmt_location = parse->stmt_location;
	planning->plan.stmt_len = parse->stmt_len;
	planning->query_desc.operation = parse->commandType;
	planning->query_desc.plannedstmt = &planning->plan;
	planning->query_desc.sourceText = text;
	planning->query_desc.params = params;
	if (planning->plan.rtable != NIL || planning->unknown)
	{
		const bool	top_level = paq_stack.frame == NULL && text == debug_query_string;

		planning->statement = paq_statement_open(&planning->query_desc, top_level);
	}
	if (planning->statement == NULL)
	{
		free_context(context);
		return NULL;
	}
	planning->message = GetCurrentStatementStartTimestamp();
	planning->statement->being_planned = true;
	MemoryContextSetParent(context, TopMemoryContext);
	dlist_push_head(&plannings, &planning->node);
	paq_stack_begin_planning();
	return planning;
}

/* Decide about the statement, before it is planned. */
static void
prepare_planning(Planning *planning)
{
	MemoryContext old_context = MemoryContextSwitchTo(planning->context);
	PaqStatement *statement = planning->statement;

	paq_session_warm();
	paq_prepare_statement(statement, &planning->plan);
	if (unlikely(planning->unknown && statement->choice.rules != NULL))
	{
		const PaqSubject subject = {
			.class = paq_classify(&statement->command), .tag = statement->command.tag,
			.may_look_up = true, .object = PAQ_OBJECT_UNKNOWN
		};

		(void) paq_choose(&statement->choice, &subject);
	}
	MemoryContextSwitchTo(old_context);
}

/* Planning has failed. */
static void
fail_planning(Planning *planning)
{
	make_records(planning);
	if (!dlist_is_empty(&planning->statement->records))
	{
		PaqError   *error = paq_error_catch_unframed(planning->query_desc.sourceText);

		paq_statement_fail(planning->statement, error);
		if (error->known)
			paq_error_own();
	}
	end_planning(planning);
}

/* Returns a copy of the text, or one that a plan has already; NULL without memory. */
static SharedText *
share_text(const char *text)
{
	const Size	len = strlen(text);
	SharedText *shared;
	dlist_iter	iter;

	dlist_foreach(iter, &plannings)
	{
		shared = dlist_container(Planning, node, iter.cur)->planned;
		if (shared == NULL)
			continue;
		if (strcmp(shared->text, text) != 0)
			break;
		shared->users++;
		return shared;
	}
	shared = MemoryContextAllocExtended(TopMemoryContext, offsetof(SharedText, text) + len + 1,
										MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (shared == NULL)
		return NULL;
	shared->users = 1;
	memcpy(shared->text, text, len + 1);
	return shared;
}

/* The oldest plan that waits for its execution waits no longer. */
static void
give_up_oldest(void)
{
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &plannings)
	{
		Planning   *planning = dlist_container(Planning, node, iter.cur);

		if (planning->planned == NULL)
			continue;
		give_up(planning, NULL);
		return;
	}
}

/* Does what waits for its execution have this text, place and command? */
static bool
has_text_of(const Planning *planning, const PlannedStmt *plan, const char *text)
{
	return planning->planned != NULL && planning->plan.commandType == plan->commandType &&
		planning->plan.stmt_location == plan->stmt_location &&
		planning->plan.stmt_len == plan->stmt_len &&
		strcmp(planning->planned->text, text) == 0;
}

/*
 * The query is planned once more, as when PostgreSQL takes a plan for any parameters into
 * consideration: nothing but the new plan waits for the execution.
 */
static void
end_older_plans(const Planning *newest)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &plannings)
	{
		Planning   *planning = dlist_container(Planning, node, iter.cur);

		if (planning != newest &&
			has_text_of(planning, &newest->plan, newest->query_desc.sourceText) &&
			equal(planning->plan.relationOids, newest->plan.relationOids))
			end_planning(planning);
	}
}

/*
 * The statement is planned.  If that has told anything to code of users, it waits for its
 * execution.
 */
static void
succeed_planning(Planning *planning, const PlannedStmt *plan)
{
	MemoryContext old_context;

	if (likely(!planning->tells))
	{
		end_planning(planning);
		return;
	}
	if (unlikely(paq_planned > 0))
		end_older_plans(planning);
	planning->planned = share_text(planning->query_desc.sourceText);
	if (planning->planned == NULL)
	{
		give_up(planning, NULL);
		return;
	}
	paq_planned++;
	paq_stack_end_planning();
	planning->statement->text = planning->query_desc.sourceText = planning->planned->text;
	old_context = MemoryContextSwitchTo(planning->context);
	planning->relations = list_copy(plan->relationOids);
	MemoryContextSwitchTo(old_context);
	if (paq_planned > MAX_PLANNED)
		give_up_oldest();
}

/*
 * A query begins to be executed: its plan waits for that no more.  PostgreSQL leaves the text,
 * and the relations that a plan has, as they are when it copies a plan.
 */
void
paq_planning_executed(const QueryDesc *query_desc)
{
	const PlannedStmt *plan = query_desc->plannedstmt;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &plannings)
	{
		Planning   *planning = dlist_container(Planning, node, iter.cur);

		if (has_text_of(planning, plan, query_desc->sourceText) &&
			equal(planning->relations, plan->relationOids))
			end_planning(planning);
	}
}

/* Is it planned in the message of the client's that is being executed? */
static inline bool
is_of_message(const Planning *planning)
{
	return planning->message == GetCurrentStatementStartTimestamp();
}

/*
 * An error is reported.  If it has come between the planning of a statement and its execution,
 * that is not executed.  Returns true if the error is the outcome of a record then.
 */
bool
paq_planning_fail(PaqError *error)
{
	dlist_mutable_iter iter;

	if (likely(paq_planned == 0) || paq_stack.frame != NULL)
		return false;
	dlist_foreach_modify(iter, &plannings)
	{
		Planning   *planning = dlist_container(Planning, node, iter.cur);

		if (planning->planned != NULL && is_of_message(planning))
			give_up(planning, error);
	}
	return error->known;
}

/*
 * What was planned in subtransaction from or later will not be executed, because of the error if
 * that is of the same message; NULL: nobody knows why.  InvalidSubTransactionId stands for all.
 * When the process exits, neither will be what is being planned.
 */
void
paq_planning_close_all(SubTransactionId from, PaqError *error)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &plannings)
	{
		Planning   *planning = dlist_container(Planning, node, iter.cur);

		if (planning->statement->subxact < from)
			break;
		if (planning->planned != NULL || proc_exit_inprogress)
			give_up(planning, is_of_message(planning) ? error : NULL);
	}
}

/* ----------
 * The hook
 * ----------
 */

static PlannedStmt *
next_planner(PAQ_PLANNER_ARGS)
{
	if (prev_planner)
		return prev_planner(PAQ_PLANNER_PASS);
	return standard_planner(PAQ_PLANNER_PASS);
}

static pg_noinline PlannedStmt *
plan_audited(PAQ_PLANNER_ARGS)
{
	Planning   *planning;
	PlannedStmt *result;

	/* Whoever has statements fail again and again waits for space for their records. */
	if (unlikely(unsettled))
	{
		paq_settle(PAQ_SPACE_WAIT);
		unsettled = false;
	}
	planning = begin_planning(parse, query_string, boundParams);
	if (planning == NULL)
		return next_planner(PAQ_PLANNER_PASS);
	PG_TRY();
	{
		prepare_planning(planning);
		result = next_planner(PAQ_PLANNER_PASS);
	}
	PG_CATCH();
	{
		fail_planning(planning);
		PG_RE_THROW();
	}
	PG_END_TRY();
	succeed_planning(planning, result);
	return result;
}

static PlannedStmt *
capture_planner(PAQ_PLANNER_ARGS)
{
	paq_policy_follow();
	if (paq_capture_wanted() && !IsAbortedTransactionBlockState())
		return plan_audited(PAQ_PLANNER_PASS);
	return next_planner(PAQ_PLANNER_PASS);
}

void
paq_planning_init(void)
{
	prev_planner = planner_hook;
	planner_hook = capture_planner;
}
