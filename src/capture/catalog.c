/*-------------------------------------------------------------------------
 *
 * catalog.c
 *		What log_catalog = off leaves out: statements that only read what
 *		everybody's tools read all the time.
 *
 * Direct changes of a catalog are no such thing, nor is looking at the columns
 * that hold passwords.  Both concern the relation that the statement names;
 * what a view of PostgreSQL's reads on behalf of everybody does not count.
 *
 * Must not raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "capture/capture_internal.h"
#include "catalog/catalog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_user_mapping.h"
#include "nodes/bitmapset.h"
#include "utils/lsyscache.h"

/* Columns with passwords, hashed or not, and what may contain some */
static const struct
{
	const char *relation;
	const char *column;
}			secret_columns[] =
{
	{"pg_authid", "rolpassword"},
	{"pg_shadow", "passwd"},
	{"pg_subscription", "subconninfo"},
	{"pg_user_mapping", "umoptions"},
	{"pg_user_mappings", "umoptions"},
};

/* Is the column, or the row as a whole, among those that are read? */
static bool
reads_column(Bitmapset *columns, AttrNumber attnum)
{
	return bms_is_member(attnum - FirstLowInvalidHeapAttributeNumber, columns) ||
		bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber,
					  columns);
}

static bool
reads_secret(Oid relid, Bitmapset *columns)
{
	char	   *relation = get_rel_name(relid);

	for (int i = 0; relation != NULL && i < lengthof(secret_columns); i++)
	{
		if (strcmp(relation, secret_columns[i].relation) == 0)
			return reads_column(columns, get_attnum(relid, secret_columns[i].column));
	}
	return false;
}

/* Is what the statement does with the relation left out by log_catalog? */
bool
paq_catalog_is_hidden(RangeTblEntry *rte, PaqRtePerms *perms)
{
	const AclMode writes = ACL_INSERT | ACL_DELETE | ACL_TRUNCATE;

	if (paq_log_catalog || !IsCatalogNamespace(get_rel_namespace(rte->relid)))
		return false;
	if (OidIsValid(perms->checkAsUser))
		return true;
	if ((perms->requiredPerms & writes) != 0 ||
		((perms->requiredPerms & ACL_UPDATE) != 0 &&
		 rte->rellockmode >= RowExclusiveLock))
		return false;
	return !reads_secret(rte->relid, perms->selectedCols);
}
