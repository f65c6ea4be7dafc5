/*-------------------------------------------------------------------------
 *
 * object_access.c
 *		Hook for accesses to objects: calls of functions, for the class
 *		FUNCTION, and truncated relations, for object auditing.
 *
 * PostgreSQL tells of a function when it prepares to call it, once for each
 * place in a statement.  Those of PostgreSQL itself, in pg_catalog, are not
 * recorded, nor is what happens outside of a statement's execution.
 *
 * Of a relation, PostgreSQL tells before it truncates it, whether a statement
 * names it or reaches it as a partition or by CASCADE.
 *
 * Must not raise.
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
#include "catalog/catalog.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "commands/extension.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

static object_access_hook_type prev_object_access = NULL;

/*
 * Is it one of those that PostgreSQL's own sources give their OIDs?  They are in
 * pg_catalog, so that nobody need look up where: every operator calls one.
 */
static inline bool
is_built_in(Oid function)
{
	return function < FirstGenbkiObjectId;
}

static void
record_call(Oid function)
{
	PaqStatement *statement = paq_current_statement();
	HeapTuple	tuple;
	Form_pg_proc proc;
	char	   *schema;
	char	   *name = NULL;

	if (statement == NULL || creating_extension || is_built_in(function))
		return;
	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	if (HeapTupleIsValid(tuple))
	{
		proc = (Form_pg_proc) GETSTRUCT(tuple);
		if (IsCatalogNamespace(proc->pronamespace))
		{
			ReleaseSysCache(tuple);
			return;
		}
		schema = get_namespace_name(proc->pronamespace);
		if (schema != NULL)
			name = quote_qualified_identifier(schema, NameStr(proc->proname));
		ReleaseSysCache(tuple);
	}
	paq_record_function(statement, name);
}

static void
record_truncate(Oid relid)
{
	PaqStatement *statement;

	if (paq_role[0] == '\0' || !paq_capture_possible())
		return;
	statement = paq_current_statement();
	if (statement != NULL && statement->command.node == T_TruncateStmt)
		paq_record_truncate(statement, relid);
}

static void
capture_object_access(ObjectAccessType access, Oid classId, Oid objectId,
					  int subId, void *arg)
{
	if (access == OAT_TRUNCATE)
		record_truncate(objectId);
	else if (access == OAT_FUNCTION_EXECUTE &&
			 (paq_log_classes & PAQ_CLASS_BIT(PAQ_CLASS_FUNCTION)) &&
			 paq_capture_possible() && !IsAbortedTransactionBlockState())
		record_call(objectId);
	if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);
}

void
paq_object_access_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = capture_object_access;
}
