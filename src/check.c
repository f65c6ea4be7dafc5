/*-------------------------------------------------------------------------
 *
 * check.c
 *		What the view audit_records asks of the library.
 *
 * Locking: that of the relations that are looked at, while they are.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guc.h"
#include "miscadmin.h"
#include "queue/queue.h"
#include "sqlfunc.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(audit_records_elsewhere);

/* Has any partition of the table anything in it? */
static bool
table_has_rows(void)
{
	const Oid	schema = get_namespace_oid("audit_queue", true);
	const Oid	table = get_relname_relid("records", schema);
	bool		found = false;
	ListCell   *lc;

	if (!OidIsValid(table))
		return false;
	foreach(lc, find_inheritance_children(table, NoLock))
	{
		Relation	partition = try_relation_open(lfirst_oid(lc), AccessShareLock);

		if (partition == NULL)
			continue;
		found = RELKIND_HAS_STORAGE(partition->rd_rel->relkind) &&
			RelationGetNumberOfBlocks(partition) > 0;
		relation_close(partition, AccessShareLock);
		if (found)
			break;
	}
	return found;
}

/* Where the trail is instead, for who may know */
static int
hint_files(void)
{
	const PaqWorkerStats worker = paq_worker_stats();

	if (worker.current_file[0] == '\0' ||
		!has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_SETTINGS))
		return errhint("Read the files of \"%s\", or have \"%s\" set to \"table\".",
					   "pg_audit_queue.log_directory", "pg_audit_queue.sink");
	return errhint("Read file \"%s\" and those before it, or set \"%s\" to \"table\".",
				   worker.current_file, "pg_audit_queue.sink");
}

/*
 * audit_queue.records_elsewhere() returns setof audit_queue.records
 *
 * No rows, but not silently if new records do not go into the table of this
 * database: no rows, or old ones, would be taken for the whole trail.  A table
 * without rows is an error; one with rows of an earlier time can be read, with a
 * warning.
 */
Datum
audit_records_elsewhere(PG_FUNCTION_ARGS)
{
	const bool	loaded = paq_queue_available();
	const bool	in_files = loaded && paq_sink != PAQ_SINK_TABLE;
	bool		has_rows;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (loaded && !in_files &&
		strcmp(get_database_name(MyDatabaseId), paq_database) == 0)
		return (Datum) 0;

	has_rows = table_has_rows();
	ereport(has_rows ? WARNING : ERROR,
			(errcode(has_rows ? ERRCODE_WARNING :
					 ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 has_rows ?
			 errmsg("new audit records do not go into the table of this database") :
			 errmsg("the audit trail is not in the table of this database"),
			 !loaded ?
			 errhint("Add pg_audit_queue to \"shared_preload_libraries\" in postgresql.conf and restart the server.") :
			 in_files ? hint_files() :
			 errhint("Connect to database \"%s\".", paq_database)));
	return (Datum) 0;
}
