/*-------------------------------------------------------------------------
 *
 * guard.c
 *		What row security hides of the table's texts, their TOAST tables do not
 *		show either.
 *
 * A text that is long is in the TOAST table of its partition.  PostgreSQL lets
 * members of pg_read_all_data read that like any table, and looks for row security
 * only in tables that one can create.  So we ask, for a TOAST table of ours, whether
 * row security of the table that it belongs to counts for the user: then it is
 * refused, as what he has no privilege for.
 *
 * This is for all databases and whatever the sink is: the table may be an old one.
 *
 * Raises the error of a privilege that is missing, and no other.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "compat.h"
#include "executor/executor.h"
#include "load/load.h"
#include "load/load_internal.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rls.h"

static ExecutorCheckPerms_hook_type prev_ExecutorCheckPerms = NULL;

/* The table that a TOAST table belongs to, as its name tells; invalid: unknown */
static Oid
table_of(Oid toast)
{
	char	   *name = get_rel_name(toast);
	Oid			table = InvalidOid;

	if (name == NULL || sscanf(name, "pg_toast_%u", &table) != 1)
		return InvalidOid;
	return table;
}

static bool
is_ours(Oid table)
{
	char	   *schema = get_namespace_name(get_rel_namespace(table));

	return schema != NULL && strcmp(schema, PAQ_TABLE_SCHEMA) == 0;
}

/* Is that a TOAST table of ours, of rows that the user must not see? */
static pg_noinline bool
is_hidden(RangeTblEntry *rte, List *perminfos)
{
	const PaqRtePerms perms = paq_rte_perms(rte, perminfos);
	const Oid	table = table_of(rte->relid);

	return OidIsValid(table) && is_ours(table) &&
		check_enable_rls(table, perms.checkAsUser, true) == RLS_ENABLED;
}

static bool
guard_ExecutorCheckPerms(PAQ_CHECK_PERMS_ARGS)
{
	ListCell   *lc;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (likely(rte->relkind != RELKIND_TOASTVALUE) ||
			!is_hidden(rte, PAQ_CHECK_PERMS_INFOS))
			continue;
		if (ereport_on_violation)
			aclcheck_error(ACLCHECK_NO_PRIV, OBJECT_TABLE,
						   get_rel_name(rte->relid));
		return false;
	}
	return prev_ExecutorCheckPerms == NULL ||
		prev_ExecutorCheckPerms(PAQ_CHECK_PERMS_PASS);
}

/* See to it; before whoever is to record what is refused. */
void
paq_load_init(void)
{
	prev_ExecutorCheckPerms = ExecutorCheckPerms_hook;
	ExecutorCheckPerms_hook = guard_ExecutorCheckPerms;
}
