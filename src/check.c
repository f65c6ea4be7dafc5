/*-------------------------------------------------------------------------
 *
 * check.c
 *		What audit_check() and the view audit_records ask of the library.
 *
 * The extension's script has the rules of audit_check().  Here is what SQL cannot
 * find out: settings as they are for the server rather than for the session,
 * where directories really are, and which classes the profiles want.
 *
 * Locking: that of the relations that are looked at, while they are.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <stdlib.h>

#include "access/htup_details.h"
#include "access/relation.h"
#include "catalog/namespace.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guc.h"
#include "miscadmin.h"
#include "policy/policy.h"
#include "queue/queue.h"
#include "record/record.h"
#include "sink/extent.h"
#include "sqlfunc.h"
#include "storage/bufmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/formatting.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(audit_queue_log_classes);
PG_FUNCTION_INFO_V1(audit_queue_policy_coverage);
PG_FUNCTION_INFO_V1(audit_queue_profile);
PG_FUNCTION_INFO_V1(audit_queue_server_settings);
PG_FUNCTION_INFO_V1(audit_queue_setting_is_valid);
PG_FUNCTION_INFO_V1(audit_records_elsewhere);

#define BIT(name)	PAQ_CLASS_BIT(PAQ_CLASS_##name)

/*
 * What rules for auditing want of the server's settings.  doc/settings.md has the
 * numbers of the rules.
 */
static const struct
{
	const char *name;
	uint32		classes;		/* that have to be recorded; */
	uint32		by_object;		/* of them, those for which object auditing will
								 * do */
	uint32		literals;		/* whose constants have to be there */
} profiles[] = {
	{ "cis",
	  BIT(CONNECT) | BIT(DDL) | BIT(ROLE) | BIT(WRITE) | PAQ_DENIED_BIT,
	  BIT(WRITE),
	  BIT(DDL) | BIT(ROLE) },
	{ "pci",
	  BIT(CONNECT) | BIT(DDL) | BIT(ERROR) | BIT(READ) | BIT(ROLE) | BIT(WRITE) |
		  PAQ_DENIED_BIT,
	  BIT(READ) | BIT(WRITE),
	  BIT(DDL) | BIT(ROLE) },
	{ "stig",
	  BIT(CONNECT) | BIT(DDL) | BIT(ERROR) | BIT(READ) | BIT(ROLE) | BIT(WRITE) |
		  PAQ_DENIED_BIT,
	  PAQ_CLASSES_NONE,
	  BIT(DDL) | BIT(ROLE) | BIT(WRITE) }
};

/* The names of classes, as "log" has them, as an array of text; "denied" comes last */
static Datum
class_names(uint32 classes)
{
	ArrayBuildState *names = initArrayResult(TEXTOID, CurrentMemoryContext, false);

	for (int c = PAQ_FIRST_CLASS; c < PAQ_NCLASSES; c++)
	{
		char	   *name;

		/* recorded always, and not to be set */
		if (c == PAQ_CLASS_CONFIG || !(classes & PAQ_CLASS_BIT(c)))
			continue;
		name = asc_tolower(paq_class_name(c), strlen(paq_class_name(c)));
		accumArrayResult(names, CStringGetTextDatum(name), false, TEXTOID,
						 CurrentMemoryContext);
	}
	if (classes & PAQ_DENIED_BIT)
		accumArrayResult(names, CStringGetTextDatum("denied"), false, TEXTOID,
						 CurrentMemoryContext);
	return makeArrayResult(names, CurrentMemoryContext);
}

static void
add_classes(PaqRow *row, uint32 classes)
{
	paq_row_add(row, class_names(classes), false);
}

static Datum
row_datum(FunctionCallInfo fcinfo, PaqRow *row)
{
	TupleDesc	tupdesc;

	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE ||
		tupdesc->natts != row->n)
		elog(ERROR, "return type must be a row type of %d columns", row->n);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
											 row->values, row->nulls));
}

/*
 * audit_queue.profile(name text) returns record
 *
 * What the profile wants; without a name, nothing.
 */
Datum
audit_queue_profile(PG_FUNCTION_ARGS)
{
	const char *name = PG_ARGISNULL(0) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(0));
	PaqRow		row = {0};

	for (int i = 0; i < lengthof(profiles) && name != NULL && row.n == 0; i++)
	{
		if (pg_strcasecmp(profiles[i].name, name) != 0)
			continue;
		add_classes(&row, profiles[i].classes);
		add_classes(&row, profiles[i].by_object);
		add_classes(&row, profiles[i].literals);
	}
	if (name != NULL && row.n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("unrecognized audit profile: \"%s\"", name),
				 errhint("Available profiles: cis, pci, stig.")));
	while (row.n < 3)
		add_classes(&row, PAQ_CLASSES_NONE);
	return row_datum(fcinfo, &row);
}

/* Is the directory in the data directory, whatever links lead there? */
static bool
is_in_data_directory(const char *directory, bool *unknown)
{
	char		data[PATH_MAX];
	char		path[PATH_MAX];
	Size		len;

	*unknown = realpath(DataDir, data) == NULL || realpath(directory, path) == NULL;
	if (*unknown)
		return false;
	len = strlen(data);
	return strncmp(path, data, len) == 0 && (path[len] == '\0' || path[len] == '/');
}

/*
 * audit_queue.server_settings() returns record
 *
 * Settings as the server has them, whatever those of the session, its role and
 * its database are; and whether the trail's files are in the data directory.
 */
Datum
audit_queue_server_settings(PG_FUNCTION_ARGS)
{
	PaqServerSettings settings;
	PaqRow		row = {0};
	bool		inside;
	bool		unknown;

	paq_require_preload();
	settings = paq_worker_stats().settings;
	add_classes(&row, settings.log_classes);
	paq_row_add(&row, CStringGetTextDatum(settings.role), false);
	paq_row_add(&row, BoolGetDatum(settings.log_statement), false);
	paq_row_add(&row, BoolGetDatum(settings.log_parameter), false);
	add_classes(&row, settings.mask_classes);
	paq_row_add(&row, BoolGetDatum(settings.mask_patterns), false);
	paq_row_add(&row, BoolGetDatum(settings.log_catalog), false);
	paq_row_add_text(&row, paq_log_directory);
	inside = is_in_data_directory(paq_log_directory, &unknown);
	paq_row_add(&row, BoolGetDatum(inside), unknown);
	return row_datum(fcinfo, &row);
}

static void
put_coverage(Tuplestorestate *store, TupleDesc desc, const char *outcome,
			 const PaqIgnoring *ignoring, uint32 classes)
{
	PaqRow		row = {0};

	paq_row_add_text(&row, outcome ? outcome : "");
	paq_row_add_text(&row, ignoring ? ignoring->file : "");
	paq_row_add(&row, Int32GetDatum(ignoring ? ignoring->line : 0), ignoring == NULL);
	add_classes(&row, classes);
	tuplestore_putvalues(store, desc, row.values, row.nulls);
}

/*
 * audit_queue.policy_coverage() returns setof record
 *
 * What the rules in effect do with statements that end as "outcome" says, whatever the
 * settings are: the classes of which all is recorded, of everybody (file and line null),
 * and those of which the rule there may ignore something.  outcome null: the classes of
 * which something may be recorded.
 */
Datum
audit_queue_policy_coverage(PG_FUNCTION_ARGS)
{
	static const struct
	{
		const char *name;
		uint32		bits;
	}			outcomes[] = {
		{"ok", PAQ_OUTCOME_OK},
		{"denied", PAQ_OUTCOME_FAILED | PAQ_OUTCOME_DENIED}
	};
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	uint32		possible = PAQ_CLASSES_NONE;
	bool		enabled;

	paq_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	enabled = paq_worker_stats().settings.policy;
	for (int i = 0; i < lengthof(outcomes); i++)
	{
		PaqCoverage coverage;
		ListCell   *lc;

		paq_policy_coverage(enabled, outcomes[i].bits, &coverage);
		possible |= coverage.possible;
		put_coverage(rsinfo->setResult, rsinfo->setDesc, outcomes[i].name, NULL,
					 coverage.recorded);
		foreach(lc, coverage.ignoring)
		{
			const PaqIgnoring *ignoring = lfirst(lc);

			put_coverage(rsinfo->setResult, rsinfo->setDesc, outcomes[i].name, ignoring,
						 ignoring->classes);
		}
	}
	put_coverage(rsinfo->setResult, rsinfo->setDesc, NULL, NULL, possible);
	return (Datum) 0;
}

/*
 * audit_queue.log_classes(value text) returns text[]
 *
 * The classes that such a value of "log" selects; NULL if it is none.
 */
Datum
audit_queue_log_classes(PG_FUNCTION_ARGS)
{
	uint32		classes;
	char	   *unknown;

	if (!paq_parse_classes(text_to_cstring(PG_GETARG_TEXT_PP(0)), true, &classes, &unknown))
		PG_RETURN_NULL();
	PG_RETURN_DATUM(class_names(classes));
}

/*
 * audit_queue.setting_is_valid(name text, value text) returns boolean
 *
 * Would the server start with that value of a setting of auditing?  Checked as at
 * the start, where it may be another one than now, and not set.
 */
Datum
audit_queue_setting_is_valid(PG_FUNCTION_ARGS)
{
	paq_require_preload();
	PG_RETURN_BOOL(paq_setting_is_valid(text_to_cstring(PG_GETARG_TEXT_PP(0)),
										text_to_cstring(PG_GETARG_TEXT_PP(1))));
}

bool
paq_is_for_check(PGFunction function)
{
	return function == audit_policy_rules || function == audit_queue_policy_coverage ||
		function == audit_queue_log_classes || function == audit_queue_profile ||
		function == audit_queue_server_settings ||
		function == audit_queue_setting_is_valid || paq_is_statistics(function);
}

/* The table in this database; invalid if there is none */
static Oid
table_of_records(void)
{
	return get_relname_relid("records", get_namespace_oid("audit_queue", true));
}

/* Has any partition of the table anything in it? */
static bool
table_has_rows(void)
{
	const Oid	table = table_of_records();
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
 * audit_queue.records_elsewhere() returns setof audit_queue.trail
 *
 * No rows, but not silently if new records do not go into the table of this
 * database: no rows, or old ones, would be taken for the whole trail.  No table, or one
 * without rows, is an error; one with rows of an earlier time can be read, with a
 * warning.  So can the database in which the loader is about to make the table.
 */
Datum
audit_records_elsewhere(PG_FUNCTION_ARGS)
{
	const bool	loaded = paq_queue_available();
	const bool	in_files = loaded && paq_sink != PAQ_SINK_TABLE;
	const bool	is_here = loaded && !in_files &&
		strcmp(get_database_name(MyDatabaseId), paq_database) == 0;
	bool		has_rows;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	if (is_here && !OidIsValid(table_of_records()))
		ereport(WARNING,
				(errmsg("no audit records have been loaded into this database yet"),
				 errhint("Column \"last_error\" of view \"pg_stat_audit_queue\" has what may keep the loader from it.")));
	if (is_here)
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
