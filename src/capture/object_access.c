/*-------------------------------------------------------------------------
 *
 * object_access.c
 *		Hook for accesses to objects: calls of functions, for the class
 *		FUNCTION, and truncated relations, for object auditing.
 *
 * PostgreSQL tells of a function when it prepares to call it, once for each
 * place in a statement.  Those of PostgreSQL itself, in pg_catalog, are not
 * recorded, nor is what happens outside of a statement's execution.  What a
 * client calls without a statement is fastpath.c's.
 *
 * Of a relation, PostgreSQL tells before it truncates it, whether a statement
 * names it or reaches it as a partition or by CASCADE.
 *
 * Must not raise, except for what fastpath.c does.
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

/* Qualified name of a function, palloc'ed; NULL if it cannot be had. */
static char *
function_name(Oid function, bool *in_catalog)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc proc;
	char	   *schema;
	char	   *name = NULL;

	*in_catalog = false;
	if (!HeapTupleIsValid(tuple))
		return NULL;
	proc = (Form_pg_proc) GETSTRUCT(tuple);
	*in_catalog = IsCatalogNamespace(proc->pronamespace);
	schema = get_namespace_name(proc->pronamespace);
	if (schema != NULL)
		name = quote_qualified_identifier(schema, NameStr(proc->proname));
	ReleaseSysCache(tuple);
	return name;
}

/* A statement is about to call the function. */
static void
record_call(Oid function)
{
	PaqStatement *statement = paq_current_statement();
	char	   *name;
	bool		in_catalog;

	if (statement == NULL || creating_extension || is_built_in(function))
		return;
	name = function_name(function, &in_catalog);
	if (!in_catalog)
		paq_record_function(statement, name);
}

/* Called, or about to be called, by a statement or by the client itself */
static void
note_call(Oid function)
{
	bool		in_catalog;

	if (paq_frame == NULL && paq_fastpath_begins())
		paq_fastpath_call(function, function_name(function, &in_catalog));
	else if (paq_class_is_audited(PAQ_CLASS_FUNCTION))
		record_call(function);
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
	else if (access == OAT_FUNCTION_EXECUTE && paq_capture_wanted() &&
			 !IsAbortedTransactionBlockState())
		note_call(objectId);
	if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);
}

void
paq_object_access_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = capture_object_access;
}
