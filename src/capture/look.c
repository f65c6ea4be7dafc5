/*-------------------------------------------------------------------------
 *
 * look.c
 *		Statements that only look at the statistics.
 *
 * Whoever wants to know why sessions wait for space in the queue, or for the
 * trail, must not wait himself.  So for members of pg_monitor, as superusers are, a
 * login does not wait for space, and a statement of the client that only looks at
 * the statistics waits for nothing (see publish.c for what becomes of its records).
 *
 * What must not be done that way is anything else, by somebody who has the queue
 * filled on purpose.  So nothing counts here that can be made to look like it, a
 * name least of all: the plan has to be a scan of a function of this library's, by its
 * address, which the views are, and expressions that call functions of PostgreSQL's own,
 * none of them volatile.  Those that execute queries begin another statement by that.
 *
 * Must not raise, except for what looking up a function may.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "capture/capture_internal.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "sqlfunc.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* May the user see the statistics in any state?  Reads catalogs. */
bool
paq_may_look(void)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
}

/* Is it said of the function that it is in a library of our name?  That one can be loaded. */
static bool
is_said_to_be_ours(Oid function)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Datum		library = (Datum) 0;
	bool		isnull = true;
	bool		result = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	if (((Form_pg_proc) GETSTRUCT(tuple))->prolang == ClanguageId)
		library = SysCacheGetAttr(PROCOID, tuple, Anum_pg_proc_probin, &isnull);
	if (!isnull)
	{
		const char *path = TextDatumGetCString(library);
		const char *slash = last_dir_separator(path);

		result = strcmp(slash != NULL ? slash + 1 : path, "pg_audit_queue") == 0;
	}
	ReleaseSysCache(tuple);
	return result;
}

/* The address of a function of ours, which cannot be wrong as what is said of it can */
static PGFunction
address_of(Oid function)
{
	FmgrInfo	info;

	if (!is_said_to_be_ours(function))
		return NULL;
	fmgr_info(function, &info);
	return info.fn_addr;
}

/*
 * Is the function one that only looks, for audit_check(), at what no record has to
 * tell of?
 */
bool
paq_is_own_look(Oid function)
{
	return paq_is_for_check(address_of(function));
}

static bool
is_forbidden_function(Oid function, void *context)
{
	/* which monitoring uses */
	if (function == F_CLOCK_TIMESTAMP || function == F_PG_IS_IN_RECOVERY)
		return false;
	return function >= FirstGenbkiObjectId ||
		func_volatile(function) == PROVOLATILE_VOLATILE;
}

static bool
has_forbidden(Node *node, void *context)
{
	if (node == NULL)
		return false;

	/* What makes a value of a user's type evaluates the CHECKs of domains in it. */
	if ((IsA(node, CoerceViaIO) || IsA(node, FuncExpr)) &&
		exprType(node) >= FirstNormalObjectId)
		return true;
	if (IsA(node, SubPlan) || IsA(node, AlternativeSubPlan) ||
		IsA(node, CoerceToDomain) ||
		check_functions_in_node(node, is_forbidden_function, NULL))
		return true;
	return expression_tree_walker(node, has_forbidden, context);
}

/*
 * Does a statement of the client only look at the statistics, for somebody who may?
 * The caller has seen that its plan is a scan of functions.
 */
bool
paq_only_looks(const PlannedStmt *plan)
{
	const FunctionScan *scan = castNode(FunctionScan, plan->planTree);
	const FuncExpr *call = (const FuncExpr *)
							   linitial_node(RangeTblFunction, scan->functions)
								   ->funcexpr;

	/* Most scans of functions are of PostgreSQL's own. */
	return IsA(call, FuncExpr) && call->funcid >= FirstNormalObjectId &&
		list_length(scan->functions) == 1 && call->args == NIL &&
		plan->commandType == CMD_SELECT && plan->subplans == NIL &&
		plan->rowMarks == NIL && scan->scan.plan.initPlan == NIL &&
		!has_forbidden((Node *) scan->scan.plan.targetlist, NULL) &&
		!has_forbidden((Node *) scan->scan.plan.qual, NULL) &&
		paq_may_look() && paq_is_statistics(address_of(call->funcid));
}
