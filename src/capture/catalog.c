/*-------------------------------------------------------------------------
 *
 * catalog.c
 *		What log_catalog = off leaves out: statements that only read what
 *		everybody's tools read all the time.
 *
 * Direct changes of a catalog are no such thing, nor is looking at the columns
 * that hold passwords, or at what is in users' tables and large objects.  That
 * concerns the relation that the statement names; what a view of PostgreSQL's reads
 * on behalf of everybody does not count.
 *
 * Nor is a statement that calls functions which do something else, be it as
 * "SELECT lo_get(1) FROM pg_class": anybody's own, and those of PostgreSQL's that
 * are VOLATILE, but for those that only look at the server.
 *
 * Must not raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "access/transam.h"
#include "capture/capture_internal.h"
#include "catalog/catalog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_user_mapping.h"
#include "nodes/bitmapset.h"
#include "utils/lsyscache.h"

/*
 * Columns with passwords, hashed or not, and what may contain some, and relations
 * with what users keep in their own.
 */
static const struct
{
	const char *relation;
	const char *column;			/* NULL: any */
}			secret_columns[] =
{
	{"pg_largeobject", NULL},
	{"pg_statistic", NULL},
	{"pg_statistic_ext_data", NULL},
	{"pg_stats", NULL},
	{"pg_stats_ext", NULL},
	{"pg_stats_ext_exprs", NULL},
	{"pg_authid", "rolpassword"},
	{"pg_shadow", "passwd"},
	{"pg_subscription", "subconninfo"},
	{"pg_user_mapping", "umoptions"},
	{"pg_user_mappings", "umoptions"},
};

/*
 * VOLATILE functions of PostgreSQL's that only look at the server: all whose names
 * begin so
 */
static const char *const harmless_functions[] = {
	"clock_timestamp", "current_query", "gen_random_uuid", "pg_blocking_pids",
	"pg_collation_", "pg_control_", "pg_current_", "pg_database_", "pg_get_",
	"pg_hba_file_rules", "pg_ident_file_mappings", "pg_indexes_size", "pg_is_",
	"pg_jit_", "pg_last_", "pg_lock_status", "pg_notification_queue_usage",
	"pg_partition_", "pg_prepared_xact", "pg_relation_size",
	"pg_safe_snapshot_blocking_pids", "pg_sequence_last_value", "pg_show_",
	"pg_stat_get_", "pg_table_size", "pg_tablespace_size",
	"pg_total_relation_size", "pg_xact_", "random", "timeofday", "txid_status"
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
			return secret_columns[i].column == NULL ||
				reads_column(columns, get_attnum(relid, secret_columns[i].column));
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

/*
 * Is that all that the function, which a statement calls that log_catalog leaves
 * out, can be for?
 */
bool
paq_catalog_allows(Oid function)
{
	char	   *name;

	if (function >= FirstNormalObjectId)
		return false;
	if (func_volatile(function) != PROVOLATILE_VOLATILE)
		return true;
	name = get_func_name(function);
	for (int i = 0; name != NULL && i < lengthof(harmless_functions); i++)
		if (strncmp(name, harmless_functions[i], strlen(harmless_functions[i])) == 0)
			return true;
	return false;
}
