/*-------------------------------------------------------------------------
 *
 * sqlfunc.h
 *		What the files with functions of the extension share.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_SQLFUNC_H
#define PAQ_SQLFUNC_H

#include "postgres.h"

#include "executor/tuptable.h"
#include "stats.h"
#include "utils/builtins.h"

/* The columns of a row, in order */
typedef struct PaqRow
{
	Datum		values[48];
	bool		nulls[48];
	int			n;
} PaqRow;

/* sqlfunc.c: raises an error unless the library was preloaded */
extern void paq_require_preload(void);
extern PaqWorkerStats paq_worker_stats(void);
extern void paq_use_rows(Oid function, void (*use) (void *arg, TupleTableSlot *row),
						 void *arg);
extern Oid	paq_slot_oid(TupleTableSlot *slot, const char *column);

/* Is that the C function of a view of statistics?  Of one that audit_check() needs? */
extern bool paq_is_statistics(PGFunction function);
extern bool paq_is_for_check(PGFunction function);

/* Of the policy's; audit_check() calls them, too */
extern PGDLLEXPORT Datum audit_policy_rules(PG_FUNCTION_ARGS);
extern PGDLLEXPORT Datum audit_queue_policy_coverage(PG_FUNCTION_ARGS);

static inline void
paq_row_add(PaqRow *row, Datum value, bool isnull)
{
	Assert(row->n < lengthof(row->values));
	row->values[row->n] = value;
	row->nulls[row->n] = isnull;
	row->n++;
}

/* Empty text is null. */
static inline void
paq_row_add_text(PaqRow *row, const char *value)
{
	paq_row_add(row, CStringGetTextDatum(value), value[0] == '\0');
}

#endif							/* PAQ_SQLFUNC_H */
