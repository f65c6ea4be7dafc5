/*-------------------------------------------------------------------------
 *
 * foreign.c
 *		The foreign table audit_queue.trail: the trail's files as rows.
 *
 * The function and the view audit_trail are SQL over it.  Conditions that compare
 * log_time or sequence with what does not depend on the row leave out files and
 * records before anything is made of them; PostgreSQL checks them once more, so they
 * need not be exact here.  Only columns that a query uses are made.
 *
 * Guarantees: rows are for users with the privileges of audit_queue_reader only, whatever
 * else they have on the table; as for any table, the owner of a view counts, not its
 * user; that somebody has been reading is recorded by the capture room.
 *
 * Works on standbys, too.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/stratnum.h"
#include "catalog/pg_type.h"
#include "commands/explain.h"
#include "compat.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "foreign/fdwapi.h"
#include "guc.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/clauses.h"
#include "optimizer/optimizer.h"
#include "optimizer/planmain.h"
#include "optimizer/restrictinfo.h"
#include "parser/parse_coerce.h"
#include "read/read.h"
#include "sink/extent.h"
#include "sqlfunc.h"
#include "utils/acl.h"
#include "utils/date.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

PG_FUNCTION_INFO_V1(audit_queue_trail_handler);

#define READER_ROLE		"audit_queue_reader"

/* What a record takes in a file, about, in bytes, and with compression */
#define RECORD_SIZE			700

/* Cost of a record, in units of cpu_tuple_cost */
#define RECORD_COST			10

/* Days from 2000-01-01 on, with any time zone, that a timestamp can have */
#define FIRST_DAY	((int64) (DATETIME_MIN_JULIAN - POSTGRES_EPOCH_JDATE + 1))
#define LAST_DAY	((int64) (TIMESTAMP_END_JULIAN - POSTGRES_EPOCH_JDATE - 2))

/* Lists in a plan's fdw_private */
enum
{
	PRIVATE_BOUNDS,				/* of Bounds, for each of fdw_exprs */
	PRIVATE_COLUMNS				/* members of a Bitmapset of attributes */
};

/* What a value bounds */
typedef enum Bound
{
	BOUND_FROM,
	BOUND_TO,
	BOUND_FIRST,
	BOUND_LAST
} Bound;

typedef struct TrailScanState
{
	PaqRowShape *shape;
	List	   *bounds;
	List	   *values;			/* ExprStates of bounds */
	PaqTrailReading *reading;
	bool		reported;		/* that new records go elsewhere, if they do */
	PaqTrailScan *scan;			/* NULL: not begun yet */
	PaqTrailCounts counts;		/* of all scans */
} TrailScanState;

/* ----------
 * Planning
 * ----------
 */

static void
get_rel_size(PlannerInfo *root, RelOptInfo *rel, Oid table)
{
	PaqTrailExtent extent;

	paq_require_preload();
	if (!paq_trail_extent(&extent))
		extent.bytes = 0;
	rel->tuples = Max(1, extent.bytes / RECORD_SIZE);
	rel->rows = clamp_row_est(rel->tuples *
							  clauselist_selectivity(root, rel->baserestrictinfo, 0,
													 JOIN_INNER, NULL));
}

static void
get_paths(PlannerInfo *root, RelOptInfo *rel, Oid table)
{
	const Cost	startup = rel->baserestrictcost.startup;
	const Cost	total = startup +
		rel->tuples * (RECORD_COST * cpu_tuple_cost + rel->baserestrictcost.per_tuple);

	add_path(rel, (Path *) paq_foreign_scan_path(root, rel, startup, total));
}

/* The field of the table's column, if it is one that has bounds; -1 if not */
static int
bounded_field(Oid table, const Node *node, Index relid)
{
	const Var  *var = (const Var *) node;
	const char *name;

	if (!IsA(node, Var) || var->varno != relid || var->varlevelsup != 0 ||
		var->varattno <= 0)
		return -1;
	name = get_attname(table, var->varattno, false);
	if (strcmp(name, paq_trail_fields[PAQ_TRAIL_LOG_TIME].column) == 0)
		return PAQ_TRAIL_LOG_TIME;
	if (strcmp(name, paq_trail_fields[PAQ_TRAIL_SEQUENCE].column) == 0)
		return PAQ_TRAIL_SEQUENCE;
	return -1;
}

/* Is the value known before the first row? */
static bool
is_known_before(Node *node)
{
	return !contain_var_clause(node) && !contain_volatile_functions(node) &&
		!contain_subplans(node);
}

/* Which comparison of a type's default order the operator is; 0: none */
static int
strategy_of(Oid opno, Oid type)
{
	const TypeCacheEntry *entry = lookup_type_cache(type, TYPECACHE_BTREE_OPFAMILY);

	return OidIsValid(entry->btree_opf) ?
		get_op_opfamily_strategy(opno, entry->btree_opf) : 0;
}

/*
 * A type that can be compared with log_time, and has values that cannot be cast to its
 * type: see column_value().
 */
static bool
is_kind_of_time(Oid type)
{
	return type == DATEOID || type == TIMESTAMPOID;
}

/* A bound, with its value, in the lists */
static void
add_bound(List **bounds, List **values, Bound bound, Node *value)
{
	*bounds = lappend_int(*bounds, bound);
	*values = lappend(*values, value);
}

/*
 * If the condition bounds the rows that are wanted, add the bound.  "column > value" is one
 * for "column >= value", too.
 */
static void
find_bound(Oid table, Index relid, Expr *clause, List **bounds, List **values)
{
	OpExpr	   *op = (OpExpr *) clause;
	Oid			opno;
	Node	   *column;
	Node	   *value;
	int			field;
	int			strategy;
	Oid			type;

	if (!IsA(clause, OpExpr) || list_length(op->args) != 2)
		return;
	opno = op->opno;
	column = linitial(op->args);
	value = lsecond(op->args);
	if ((field = bounded_field(table, column, relid)) < 0)
	{
		field = bounded_field(table, value, relid);
		opno = get_commutator(opno);
		column = lsecond(op->args);
		value = linitial(op->args);
	}
	if (field < 0 || !OidIsValid(opno) || !is_known_before(value))
		return;
	type = exprType(column);
	strategy = strategy_of(opno, type);
	if (!is_kind_of_time(exprType(value)))
		value = coerce_to_target_type(NULL, value, exprType(value), type, -1,
									  COERCION_IMPLICIT, COERCE_IMPLICIT_CAST, -1);
	if (value == NULL)
		return;
	if (strategy >= BTEqualStrategyNumber)
		add_bound(bounds, values,
				  field == PAQ_TRAIL_LOG_TIME ? BOUND_FROM : BOUND_FIRST, value);
	if (strategy >= BTLessStrategyNumber && strategy <= BTEqualStrategyNumber)
		add_bound(bounds, values,
				  field == PAQ_TRAIL_LOG_TIME ? BOUND_TO : BOUND_LAST, value);
}

static ForeignScan *
get_plan(PlannerInfo *root, RelOptInfo *rel, Oid table, ForeignPath *path,
		 List *tlist, List *clauses, Plan *outer)
{
	List	   *conditions = extract_actual_clauses(clauses, false);
	List	   *bounds = NIL;
	List	   *values = NIL;
	List	   *columns = NIL;
	Bitmapset  *needed = NULL;
	ListCell   *lc;
	int			member = -1;

	foreach(lc, conditions)
		find_bound(table, rel->relid, lfirst(lc), &bounds, &values);
	pull_varattnos((Node *) rel->reltarget->exprs, rel->relid, &needed);
	pull_varattnos((Node *) conditions, rel->relid, &needed);
	while ((member = bms_next_member(needed, member)) >= 0)
		columns = lappend_int(columns, member);
	return make_foreignscan(tlist, conditions, rel->relid, values,
							list_make2(bounds, columns), NIL, NIL, outer);
}

/* ----------
 * Execution
 * ----------
 */

static void
check_reader(ForeignScanState *node)
{
	if (has_privs_of_role(paq_scan_user(node), get_role_oid(READER_ROLE, true)))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied to read the audit trail"),
			 errdetail("Only members of role \"%s\" may read the audit trail.", READER_ROLE)));
}

static void
begin_scan(ForeignScanState *node, int eflags)
{
	const ForeignScan *plan = (ForeignScan *) node->ss.ps.plan;
	TrailScanState *state = palloc0(sizeof(TrailScanState));
	Bitmapset  *needed = NULL;
	ListCell   *lc;

	paq_require_preload();
	node->fdw_state = state;
	state->reading = paq_trail_reading_make();
	foreach(lc, (List *) list_nth(plan->fdw_private, PRIVATE_COLUMNS))
		needed = bms_add_member(needed, lfirst_int(lc));
	state->shape = paq_row_shape(RelationGetDescr(node->ss.ss_currentRelation), needed);
	state->bounds = list_nth(plan->fdw_private, PRIVATE_BOUNDS);
	state->values = ExecInitExprList(plan->fdw_exprs, &node->ss.ps);
	if ((eflags & EXEC_FLAG_EXPLAIN_ONLY) == 0)
		check_reader(node);
}

/*
 * What a value of that type is as that of a column.  False for a day that no timestamp can
 * have: it bounds nothing.  Comparing it with log_time is no error, so this is none.
 */
static bool
column_value(Oid type, Datum datum, int64 *value)
{
	if (type == DATEOID)
	{
		const DateADT date = DatumGetDateADT(datum);

		if (!DATE_NOT_FINITE(date) &&
			(date < FIRST_DAY || date > LAST_DAY))
			return false;
		datum = DirectFunctionCall1(date_timestamptz, datum);
	}
	else if (type == TIMESTAMPOID)
	{
		const Timestamp time = DatumGetTimestamp(datum);

		if (!TIMESTAMP_NOT_FINITE(time) &&
			(time < FIRST_DAY * USECS_PER_DAY || time > LAST_DAY * USECS_PER_DAY))
			return false;
		datum = DirectFunctionCall1(timestamp_timestamptz, datum);
	}
	*value = DatumGetInt64(datum);
	return true;
}

/* Narrow the range by a bound. */
static void
apply_bound(PaqTrailRange *range, Bound bound, int64 value)
{
	switch (bound)
	{
		case BOUND_FROM:
			range->from = Max(range->from, value);
			break;
		case BOUND_TO:
			range->to = Min(range->to, value);
			break;
		case BOUND_FIRST:
			range->first_sequence = Max(range->first_sequence, value);
			break;
		case BOUND_LAST:
			range->last_sequence = Min(range->last_sequence, value);
			break;
	}
}

/*
 * The range of the rows that are wanted, by the values that the bounds have now.  False if
 * there are none, for nothing is greater or less than null.
 */
static bool
find_range(ForeignScanState *node, PaqTrailRange *range)
{
	TrailScanState *state = node->fdw_state;
	ExprContext *context = node->ss.ps.ps_ExprContext;
	ListCell   *bound;
	ListCell   *value;

	range->from = DT_NOBEGIN;
	range->to = DT_NOEND;
	range->first_sequence = PG_INT64_MIN;
	range->last_sequence = PG_INT64_MAX;
	forboth(bound, state->bounds, value, state->values)
	{
		ExprState  *expr = lfirst(value);
		bool		isnull;
		Datum		datum = ExecEvalExprSwitchContext(expr, context, &isnull);
		int64		limit;

		if (isnull)
			return false;
		if (column_value(exprType((Node *) expr->expr), datum, &limit))
			apply_bound(range, lfirst_int(bound), limit);
	}
	return true;
}

/*
 * Do not let what is here be taken for the whole trail if new records go elsewhere: no
 * files are an error, older ones can be read, with a warning.
 */
static void
report_elsewhere(int files)
{
	const bool	in_table = paq_sink == PAQ_SINK_TABLE;

	if (!in_table && paq_format == PAQ_FORMAT_JSON)
		return;
	ereport(files > 0 ? WARNING : ERROR,
			(errcode(files > 0 ? ERRCODE_WARNING :
					 ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 files > 0 ?
			 errmsg("new audit records do not go into files of format json") :
			 errmsg("the audit trail is not in files of format json"),
			 in_table ?
			 errhint("Read view \"audit_records\" in database \"%s\".", paq_database) :
			 errhint("Read the files of \"%s\" otherwise, or set \"%s\" to \"json\".",
					 "pg_audit_queue.log_directory", "pg_audit_queue.format")));
}

/* Begin to read; false if no row is wanted. */
static bool
begin_reading(ForeignScanState *node)
{
	TrailScanState *state = node->fdw_state;
	PaqTrailRange range;

	if (!find_range(node, &range))
		return false;
	state->scan = paq_trail_scan_begin(state->reading, &range);
	if (!state->reported)
		report_elsewhere(paq_trail_scan_counts(state->scan)->files);
	state->reported = true;
	return true;
}

static TupleTableSlot *
iterate(ForeignScanState *node)
{
	TrailScanState *state = node->fdw_state;
	TupleTableSlot *slot = node->ss.ss_ScanTupleSlot;
	PaqTrailRecord record;

	ExecClearTuple(slot);
	if (state->scan == NULL && !begin_reading(node))
		return slot;
	while (paq_trail_scan_next(state->scan, &record))
	{
		if (paq_row_make(state->shape, &record, slot->tts_values, slot->tts_isnull))
			return ExecStoreVirtualTuple(slot);
		paq_trail_scan_report(state->scan);
		ResetExprContext(node->ss.ps.ps_ExprContext);
	}
	return slot;
}

static void
add_counts(PaqTrailCounts *sum, const PaqTrailCounts *counts)
{
	sum->files += counts->files;
	sum->opened += counts->opened;
	sum->old += counts->old;
	sum->gone += counts->gone;
}

static void
end_reading(TrailScanState *state)
{
	if (state->scan == NULL)
		return;
	add_counts(&state->counts, paq_trail_scan_counts(state->scan));
	paq_trail_scan_end(state->scan);
	state->scan = NULL;
}

static void
rescan(ForeignScanState *node)
{
	end_reading(node->fdw_state);
}

static void
end_scan(ForeignScanState *node)
{
	if (node->fdw_state != NULL)
		end_reading(node->fdw_state);
}

/* What was read */
static void
explain_scan(ForeignScanState *node, ExplainState *es)
{
	TrailScanState *state = node->fdw_state;
	PaqTrailCounts counts = state->counts;

	if (!es->analyze)
		return;
	if (state->scan != NULL)
		add_counts(&counts, paq_trail_scan_counts(state->scan));
	ExplainPropertyInteger("Trail Files", NULL, counts.files, es);
	ExplainPropertyInteger("Files Read", NULL, counts.opened, es);
	ExplainPropertyInteger("Files Too Old", NULL, counts.old, es);
	if (counts.gone > 0)
		ExplainPropertyInteger("Files Removed", NULL, counts.gone, es);
}

/*
 * audit_queue.trail_handler() returns fdw_handler
 */
Datum
audit_queue_trail_handler(PG_FUNCTION_ARGS)
{
	FdwRoutine *routine = makeNode(FdwRoutine);

	routine->GetForeignRelSize = get_rel_size;
	routine->GetForeignPaths = get_paths;
	routine->GetForeignPlan = get_plan;
	routine->BeginForeignScan = begin_scan;
	routine->IterateForeignScan = iterate;
	routine->ReScanForeignScan = rescan;
	routine->EndForeignScan = end_scan;
	routine->ExplainForeignScan = explain_scan;
	PG_RETURN_POINTER(routine);
}
