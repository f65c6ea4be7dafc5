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
 * it.  Shown by t/capture/planning.pl.
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

/* A statement with no more relations than that can be opened late, see prepare_planning(). */
#define FEW_USES	8

/*
 * Size of the first block of a planning's context, in bytes.  It has room for copies of the entries
 * of few relations, so that opening a planning late allocates nothing.
 */
#define CONTEXT_SIZE	(4 * 1024)

StaticAssertDecl(FEW_USES * 2 * sizeof(RangeTblEntry) < CONTEXT_SIZE,
				 "few relations have room in a block");

/* A relation that a query uses, itself or in a query within it */
typedef struct Use
{
	const Query *query;
	RangeTblEntry *rte;			/* the query's */
} Use;

/*
 * A statement that is being planned, or that is planned and not executed yet.
 *
 * A planning is closed at first: it points to what PostgreSQL has handed to the planner, and costs
 * little.  When it is opened, a PaqStatement is made for it, with copies of the entries of its
 * relations.  If the settings alone decide about the statement, and no code of users is called,
 * that happens only if planning fails.
 */
typedef struct Planning
{
	dlist_node	node;			/* of plannings, or free_plannings */
	const Query *parse;			/* the planner's argument; the planner does not change the
								 * range table's entries for relations */
	const char *text;
	ParamListInfo params;
	TimestampTz start_time;
	TimestampTz message;		/* of the client, in which it is planned */
	SubTransactionId subxact;
	bool		top_level;		/* it is the client's */
	bool		tells;			/* code of users may be called meanwhile */
	bool		unknown;		/* it may use relations that are not in uses */
	int			nuses;
	int			max_uses;		/* room in uses */
	Use		   *uses;			/* = few, or in memory of the planner's caller */
	Use			few[FEW_USES];
	MemoryContext context;		/* for what an open planning has, except the text */
	bool		attempted;		/* opening it has been tried */
	PaqStatement *statement;	/* NULL: the planning is closed */

	/* Only of a planning that is open: */
	QueryDesc	query_desc;		/* what is asked of a statement of the executor, as far as it is */
	PlannedStmt plan;			/* known before it has a plan */
	SharedText *planned;		/* its text, if it waits for its execution; else NULL */
	List	   *relations;		/* that its plan has then; plan has those of the query */
} Planning;

static planner_hook_type prev_planner = NULL;

/* All of them, newest first */
static dlist_head plannings = DLIST_STATIC_INIT(plannings);

/* Structs that are not in use */
static dlist_head free_plannings = DLIST_STATIC_INIT(free_plannings);

/* How many of them wait for their execution */
int			paq_planned = 0;

/* True if a statement that was not executed has left a record since the session last waited */
static bool unsettled = false;

/* A memory context for the next planning; NULL: there is none */
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

/* The type of an expression */
static inline Oid
type_of(const Node *expr)
{
	switch (nodeTag(expr))
	{
		case T_Var:
			return ((const Var *) expr)->vartype;
		case T_Const:
			return ((const Const *) expr)->consttype;
		default:
			return exprType(expr);
	}
}

/*
 * Returns true if one of the expressions is of a type that is not PostgreSQL's own: a range type
 * has functions of the user who has made it.
 */
static bool
has_users_type(List *expressions)
{
	ListCell   *lc;

	foreach(lc, expressions)
		if (type_of(lfirst(lc)) >= FirstNormalObjectId)
			return true;
	return false;
}

/*
 * Returns true if the planner may call code of users for the expression, because a function, an
 * operator or the type of an operand is not PostgreSQL's own.  An operator of a user's can have
 * a function of PostgreSQL's, which tells values in its errors.
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
	if (IsA(node, RowCompareExpr) && has_users_type(((RowCompareExpr *) node)->largs))
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

/* Note that the query uses the relation of an entry of its range table. */
static void
note_use(Planning *planning, const Query *query, RangeTblEntry *rte)
{
	if (unlikely(planning->nuses == planning->max_uses))
	{
		Use		   *more = palloc(sizeof(Use) * planning->max_uses * 2);

		memcpy(more, planning->uses, sizeof(Use) * planning->nuses);
		if (planning->uses != planning->few)
			pfree(planning->uses);
		planning->uses = more;
		planning->max_uses *= 2;
	}
	planning->uses[planning->nuses].query = query;
	planning->uses[planning->nuses++].rte = rte;
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
			note_use(planning, query, rte);
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

static bool note_uses(Node *node, void *context);

/* note_uses() for a node that may use something, or have others within it */
static pg_noinline bool
note_uses_of_node(Node *node, Planning *planning)
{
	ListCell   *lc;

	switch (nodeTag(node))
	{
		case T_TargetEntry:
			return note_uses((Node *) ((TargetEntry *) node)->expr, planning);
		case T_List:
			foreach(lc, (List *) node)
				(void) note_uses(lfirst(lc), planning);
			return false;
		case T_FromExpr:
			(void) note_uses((Node *) ((FromExpr *) node)->fromlist, planning);
			return note_uses(((FromExpr *) node)->quals, planning);
		case T_Query:
			note_range_table(planning, (Query *) node);
			return query_tree_walker((Query *) node, note_uses, planning, 0);
		default:
			if (!planning->tells)
				planning->tells = calls_users_code(node);
			return expression_tree_walker(node, note_uses, planning);
	}
}

/*
 * Tree walker: note what a query, and those within it, use.  Each statement that is planned is
 * walked through, so the nodes that most statements have most of, and that use nothing, are
 * recognized first.
 */
static bool
note_uses(Node *node, void *context)
{
	if (node == NULL || IsA(node, Var) || IsA(node, Const) || IsA(node, RangeTblRef))
		return false;
	return note_uses_of_node(node, context);
}

/* ----------
 * Plannings
 * ----------
 */

/*
 * Before the permissions of a statement are checked, or it is planned: have rules decide, and
 * look up whatever may not be looked up while an error is being handled.  There is nothing to do
 * if paq_settings_decide() about its relations.
 */
void
paq_prepare_statement(PaqStatement *statement, PlannedStmt *plan)
{
	statement->others_rights = paq_has_others_rights();
	if (statement->others_rights)
		paq_note_key_query(statement, plan->rtable, paq_stmt_perm_infos(plan));
	if (paq_policy.has_rules)
		paq_choose_relations(statement, plan->rtable, paq_stmt_perm_infos(plan));
	if (paq_trail_may_be_used(plan->relationOids))
		paq_trail_begin(statement, plan->rtable, paq_stmt_perm_infos(plan));
	if (paq_role[0] != '\0' || paq_policy.has_roles)
		paq_find_granted(statement, plan);
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
	spare_context = context;
}

/* End the planning, and close its statement, all of whose records are published. */
static void
end_planning(Planning *planning)
{
	dlist_delete(&planning->node);
	dlist_push_head(&free_plannings, &planning->node);
	if (planning->statement != NULL)
	{
		paq_statement_detach(planning->statement);
		paq_statement_close(planning->statement);
	}
	if (planning->planned == NULL)
		paq_stack_end_planning();
	else
	{
		paq_planned--;
		if (--planning->planned->users == 0)
			pfree(planning->planned);
	}
	free_context(planning->context);
}

/*
 * Open the planning, unless it is open.  Returns false if there is no memory for that, or if
 * an earlier attempt was left by an error.  Must not raise for a planning that prepare_planning()
 * has left closed: its context has room for copies of few relations.
 */
static bool
open_planning(Planning *planning)
{
	const Query *parse = planning->parse;
	MemoryContext old_context;

	if (planning->statement != NULL)
		return true;
	if (planning->attempted)
		return false;
	planning->attempted = true;
	memset(&planning->plan, 0, sizeof(planning->plan));
	memset(&planning->query_desc, 0, sizeof(planning->query_desc));
	NodeSetTag(&planning->plan, T_PlannedStmt);
	planning->plan.commandType = parse->commandType;
	planning->plan.queryId = parse->queryId;
	planning->plan.hasModifyingCTE = parse->hasModifyingCTE;
	planning->plan.canSetTag = parse->canSetTag;
	planning->plan.stmt_location = parse->stmt_location;
	planning->plan.stmt_len = parse->stmt_len;
	planning->query_desc.operation = parse->commandType;
	planning->query_desc.plannedstmt = &planning->plan;
	planning->query_desc.sourceText = planning->text;
	planning->query_desc.params = planning->params;
	old_context = MemoryContextSwitchTo(planning->context);
	for (int i = 0; i < planning->nuses; i++)
		paq_plan_add_rte(&planning->plan, planning->uses[i].query, planning->uses[i].rte);
	MemoryContextSwitchTo(old_context);
	Assert(planning->nuses > FEW_USES ||
		   MemoryContextMemAllocated(planning->context, false) == CONTEXT_SIZE);

	planning->statement = paq_statement_open(&planning->query_desc, planning->top_level);
	if (planning->statement == NULL)
		return false;
	planning->statement->start_time = planning->start_time;
	planning->statement->being_planned = true;
	return true;
}

/*
 * Open a planning whose statement is not executed.  Returns false, with the loss counted and the
 * planning ended, if that cannot be done.
 */
static bool
open_failed_planning(Planning *planning)
{
	if (open_planning(planning))
		return true;
	paq_queue_note_drop(PAQ_DROP_MEMORY, 1);
	end_planning(planning);
	return false;
}

/* Make the records of a statement that is not executed; the caller publishes them. */
static void
make_records(Planning *planning)
{
	paq_record_failed_start(planning->statement, &planning->plan);
	paq_trail_fail(planning->statement);
	unsettled |= !dlist_is_empty(&planning->statement->records);
}

/*
 * Record a statement that is not executed, because of the error; NULL: nobody knows why.
 * Returns true if a record was wanted.
 */
static bool
give_up_planning(Planning *planning, PaqError *error)
{
	bool		wanted;

	if (!open_failed_planning(planning))
		return false;
	make_records(planning);
	wanted = !dlist_is_empty(&planning->statement->records);
	if (error == NULL)
		planning->statement->flags |= PAQ_RECORD_INCOMPLETE | PAQ_RECORD_NO_OUTCOME;
	paq_statement_fail(planning->statement, error);
	end_planning(planning);
	return wanted;
}

/* Returns a struct that is not in use; NULL without memory. */
static Planning *
allocate_planning(void)
{
	if (likely(!dlist_is_empty(&free_plannings)))
		return dlist_container(Planning, node, dlist_pop_head_node(&free_plannings));
	return MemoryContextAllocExtended(TopMemoryContext, sizeof(Planning), MCXT_ALLOC_NO_OOM);
}

/*
 * Begin to plan a statement.  Returns NULL if that is of no interest, because it uses no relation
 * that is known, or if there is no memory.
 */
static Planning *
begin_planning(Query *parse, const char *text, ParamListInfo params)
{
	Planning   *planning;

	if (parse->rtable == NIL && parse->cteList == NIL && !parse->hasSubLinks)
		return NULL;
	planning = allocate_planning();
	if (planning == NULL)
		return NULL;
	dlist_push_head(&free_plannings, &planning->node);

	planning->parse = parse;
	planning->text = text;
	planning->params = params;
	planning->tells = Debug_print_plan; /* a plan has the planner's guesses */
	planning->unknown = false;
	planning->nuses = 0;
	planning->max_uses = FEW_USES;
	planning->uses = planning->few;
	planning->attempted = false;
	planning->statement = NULL;
	planning->planned = NULL;

	/* A query that is too deep to be looked at is an error. */
	(void) note_uses((Node *) parse, planning);
	if (planning->nuses == 0 && !planning->unknown)
		return NULL;

	/* It may have to be opened while an error is being handled, so its memory is taken now. */
	if (unlikely(spare_context == NULL))
		spare_context = AllocSetContextCreate(TopMemoryContext, "pg_audit_queue planning",
											  0, CONTEXT_SIZE, ALLOCSET_DEFAULT_MAXSIZE);
	planning->context = spare_context;
	spare_context = NULL;

	planning->top_level = paq_stack.frame == NULL && text == debug_query_string;
	planning->message = GetCurrentStatementStartTimestamp();
	planning->start_time = planning->top_level ? planning->message : GetCurrentTimestamp();
	planning->subxact = GetCurrentSubTransactionId();
	dlist_delete(&planning->node);
	dlist_push_head(&plannings, &planning->node);
	paq_stack_begin_planning();
	return planning;
}

/* Returns true if one of the planning's relations may be the trail's. */
static bool
may_use_trail(const Planning *planning)
{
	for (int i = 0; i < planning->nuses; i++)
		if (paq_relation_may_be_trail(planning->uses[i].rte->relid))
			return true;
	return false;
}

/*
 * Have rules and grants decide about the statement, before it is planned.  Where the settings alone
 * decide, the planning stays closed: they can be asked when it has failed.
 */
static void
prepare_planning(Planning *planning)
{
	MemoryContext old_context;
	PaqStatement *statement;

	paq_session_warm();
	if (likely(!planning->tells && !planning->unknown && planning->nuses <= FEW_USES &&
			   paq_settings_decide() && !may_use_trail(planning)))
		return;
	if (!open_planning(planning))
		return;
	statement = planning->statement;
	old_context = MemoryContextSwitchTo(planning->context);
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

/* Planning has failed: record the statement, if it is wanted, with the error that is caught. */
static void
fail_planning(Planning *planning)
{
	if (!open_failed_planning(planning))
		return;
	make_records(planning);
	if (!dlist_is_empty(&planning->statement->records))
	{
		PaqError   *error = paq_error_catch_unframed(planning->text);

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

/* Record the oldest plan that waits for its execution as one that is not executed. */
static void
give_up_oldest(void)
{
	dlist_iter	iter;

	dlist_reverse_foreach(iter, &plannings)
	{
		Planning   *planning = dlist_container(Planning, node, iter.cur);

		if (planning->planned == NULL)
			continue;
		(void) give_up_planning(planning, NULL);
		return;
	}
}

/* Returns true if the plan waits for its execution and has this text, place and command. */
static bool
has_text_of(const Planning *planning, const PlannedStmt *plan, const char *text)
{
	return planning->planned != NULL && planning->plan.commandType == plan->commandType &&
		planning->plan.stmt_location == plan->stmt_location &&
		planning->plan.stmt_len == plan->stmt_len &&
		strcmp(planning->planned->text, text) == 0;
}

/*
 * End the waiting of older plans of the same query.  PostgreSQL plans a prepared statement once
 * more to find out whether a plan for any parameters is good enough, and executes one of the two.
 */
static void
end_older_plans(const Planning *newest)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &plannings)
	{
		Planning   *planning = dlist_container(Planning, node, iter.cur);

		if (planning != newest &&
			has_text_of(planning, &newest->plan, newest->text) &&
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

	if (likely(!planning->tells || planning->statement == NULL))
	{
		end_planning(planning);
		return;
	}
	if (unlikely(paq_planned > 0))
		end_older_plans(planning);
	planning->planned = share_text(planning->text);
	if (planning->planned == NULL)
	{
		(void) give_up_planning(planning, NULL);
		return;
	}
	paq_planned++;
	paq_stack_end_planning();
	planning->statement->text = planning->query_desc.sourceText = planning->text =
		planning->planned->text;
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

/* Returns true if the plan was made for the message of the client's that is being executed. */
static inline bool
is_of_message(const Planning *planning)
{
	return planning->message == GetCurrentStatementStartTimestamp();
}

/*
 * An error is reported.  If it has come between the planning of a statement and its execution,
 * that is not executed; nor is a statement that is being planned, if the error ends the session.
 * Returns true if the error is the outcome of the client's statement then.
 */
bool
paq_planning_fail(PaqError *error)
{
	dlist_mutable_iter iter;
	bool		is_outcome = false;

	if (likely(!error->fatal && (paq_planned == 0 || paq_stack.frame != NULL)))
		return false;
	dlist_foreach_modify(iter, &plannings)
	{
		Planning   *planning = dlist_container(Planning, node, iter.cur);

		const bool	is_clients = paq_stack.frame == NULL || planning->top_level;

		if ((planning->planned != NULL || error->fatal) && is_of_message(planning) &&
			give_up_planning(planning, error) && is_clients)
			is_outcome = true;
	}
	return is_outcome;
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

		if (planning->subxact < from)
			break;
		if (planning->planned != NULL || proc_exit_inprogress)
			(void) give_up_planning(planning, is_of_message(planning) ? error : NULL);
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
	if (paq_capture_wanted())
		return plan_audited(PAQ_PLANNER_PASS);
	return next_planner(PAQ_PLANNER_PASS);
}

void
paq_planning_init(void)
{
	prev_planner = planner_hook;
	planner_hook = capture_planner;
}
