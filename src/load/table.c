/*-------------------------------------------------------------------------
 *
 * table.c
 *		The table: batches of rows, what it has already, its partitions, and the
 *		table itself.
 *
 * PostgreSQL's own COPY inserts the rows.  The same transaction notes the
 * sequence that the table has reached with them in load_state, which has a row
 * for each series.  That makes loading exactly once: whatever is interrupted, both
 * are there or neither is.
 *
 * A row of load_state that somebody has changed is recognized by its checksum; one
 * that is gone, or an older one, by records of the series in the table that the
 * row does not cover.  Then nothing is loaded.  A checksum is no secret: against
 * those who mean to deceive, files.c looks for the rows before it removes a file.
 *
 * There is a table only where a loader has written, or where a dump of one is
 * restored.  It is made as the extension's script would make it, as part of the extension.
 *
 * A partition is a day, UTC.  It is a table of its own first and is attached
 * then: that needs a lock on the table with which readers and writers go on.  It
 * has the indexes, because pg_restore could not make what partitions get from the
 * extension's table; a row security of its own, because that of the table counts
 * for those only who name the table; and privileges for nobody.  Of what is in the
 * records it has no statistics, because row security does not hide them in
 * pg_statistic.
 *
 * Dropping a partition stops readers; it is given up quickly if there are any, and
 * tried again later.  What somebody has made of it - a view, a column of its row
 * type - is dropped with it, or anybody could keep it.  Nothing is dropped before
 * the trail tells of it, see removal.c.
 *
 * Everything here must be called in a transaction with a snapshot, and may
 * raise an error, after which the caller knows only that it has to begin again
 * with paq_table_forget().
 *
 * Locking: what an INSERT takes; RowExclusiveLock on the row of the series.
 * Owners are checked under the lock that keeps them from changing, or else in each
 * transaction.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/copy.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "compat.h"
#include "executor/spi.h"
#include "file_util.h"
#include "guc.h"
#include "load/load.h"
#include "load/load_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_relation.h"
#include "port/pg_bswap.h"
#include "record/record.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#define SCHEMA		PAQ_TABLE_SCHEMA
#define PREFIX		"records_"

/* Partitions are made for today and so many days after. */
#define DAYS_AHEAD	2

/* What load_state has of a series */
static struct
{
	bool		valid;
	uint64		series;
	uint64		sequence;
	int32		checksum;
}			reached;

/* The rows that COPY is being given */
static const char *copy_data;
static Size copy_left;

/* Forget what is known of the table: a transaction has failed. */
void
paq_table_forget(void)
{
	reached.valid = false;
}

/* Run a query, or a command; returns the number of rows processed. */
static uint64
run(const char *query, int nargs, Oid *types, Datum *values, int expected)
{
	int			rc = SPI_execute_with_args(query, nargs, types, values, NULL,
								   false, 0);

	if (rc != expected)
		elog(ERROR, "SPI_execute_with_args failed: %s",
			 SPI_result_code_string(rc));
	return SPI_processed;
}

/* Run a utility command by SPI, which is connected; raises an error if that fails. */
void
paq_run_command(const char *command)
{
	(void) run(command, 0, NULL, NULL, SPI_OK_UTILITY);
}

/* Run the command that is the result of a query, unless that is null. */
static void
run_result(const char *query)
{
	char	   *command = NULL;

	if (run(query, 0, NULL, NULL, SPI_OK_SELECT) > 0)
		command = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (command != NULL)
		paq_run_command(command);
}

/* Owner of the object of that catalog; invalid if there is none */
static Oid
owner_of(Oid catalog, Oid object)
{
	const int	cache = get_object_catcache_oid(catalog);
	HeapTuple	tuple = SearchSysCache1(cache, ObjectIdGetDatum(object));
	Datum		owner;
	bool		isnull;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	owner = SysCacheGetAttr(cache, tuple, get_object_attnum_owner(catalog), &isnull);
	ReleaseSysCache(tuple);
	return DatumGetObjectId(owner);
}

/* Returns true if there is the object of that catalog, and a superuser owns it. */
bool
paq_is_superusers(Oid catalog, Oid object)
{
	const Oid	owner = owner_of(catalog, object);

	return OidIsValid(owner) && superuser_arg(owner);
}

/*
 * Returns true if it is a relation of this kind that a superuser owns.  The loader is a
 * superuser's process, and would call other owners' functions.
 */
static bool
is_our_relation(Oid relation, char relkind)
{
	return get_rel_relkind(relation) == relkind &&
		paq_is_superusers(RelationRelationId, relation);
}

/*
 * Returns true if that is a superuser's schema, and part of the extension.  Then others
 * cannot have put something else in its place.
 */
static bool
is_our_schema(Oid schema)
{
	const Oid	extension = get_extension_oid("pg_audit_queue", true);

	return OidIsValid(extension) &&
		paq_is_superusers(NamespaceRelationId, schema) &&
		getExtensionOfObject(NamespaceRelationId, schema) == extension;
}

/* Returns true if the schema is ours and has the tables, which belong to superusers. */
static bool
has_tables(Oid schema)
{
	return is_our_schema(schema) &&
		is_our_relation(get_relname_relid("records", schema), RELKIND_PARTITIONED_TABLE) &&
		is_our_relation(get_relname_relid("load_state", schema), RELKIND_RELATION);
}

/* ----------
 * The table itself
 * ----------
 */

/*
 * Whatever default privileges there are, nobody has any on the table.  The
 * SQL script does the same for all objects of the extension.  They do not share
 * a function: the loader, a superuser's process, would have to check its owner,
 * too.
 */
static void
revoke_all(const char *name)
{
	run_result(psprintf("SELECT 'REVOKE ALL ON " SCHEMA ".%s FROM '"
						" || pg_catalog.string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC'"
						" ELSE a.grantee::pg_catalog.regrole::text END, ', ')"
						"  FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a"
						" WHERE c.oid = '" SCHEMA ".%s'::pg_catalog.regclass"
						"   AND a.grantee <> c.relowner", name, name));
}

/* Keep no statistics of its columns, but for those that identify a record. */
static void
forgo_statistics(const char *name)
{
	run_result(psprintf("SELECT 'ALTER TABLE " SCHEMA ".%s ' || pg_catalog.string_agg("
						"'ALTER COLUMN ' || pg_catalog.quote_ident(attname) || ' SET STATISTICS 0', ', ')"
						"  FROM pg_catalog.pg_attribute"
						" WHERE attrelid = '" SCHEMA ".%s'::pg_catalog.regclass"
						"   AND attnum > 0 AND NOT attisdropped"
						"   AND attname NOT IN ('series', 'sequence', 'log_time')", name, name));
}

/*
 * The tables, but for statistics and privileges: as the script of version 1.0 makes them,
 * with the columns of the foreign table.  The view stands in for load_state.
 */
static const char *const table_commands[] = {
	"DROP VIEW " SCHEMA ".load_state",
	"CREATE TABLE " SCHEMA ".load_state (series int8 PRIMARY KEY, sequence int8 NOT NULL,"
	" loaded timestamptz NOT NULL, checksum int4 NOT NULL)",
	"CREATE TABLE " SCHEMA ".records (LIKE " SCHEMA ".trail) PARTITION BY RANGE (log_time)",
	"ALTER TABLE " SCHEMA ".records"
	" ALTER COLUMN series SET NOT NULL, ALTER COLUMN sequence SET NOT NULL,"
	" ALTER COLUMN log_time SET NOT NULL, ALTER COLUMN interrupted SET NOT NULL,"
	" ALTER COLUMN cut SET NOT NULL, ALTER COLUMN incomplete SET NOT NULL,"
	" ALTER COLUMN masked SET NOT NULL, ALTER COLUMN type SET NOT NULL",
	"ALTER TABLE " SCHEMA ".load_state ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
	"ALTER TABLE " SCHEMA ".records ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
};

/*
 * Without the tables.  A dump of version 1.0 has COPY for load_state, if without rows, so
 * there is something that takes it.
 */
static const char *const no_table_commands[] = {
	"ALTER EXTENSION pg_audit_queue DROP TABLE " SCHEMA ".load_state",
	"DROP TABLE " SCHEMA ".load_state, " SCHEMA ".records",
	"CREATE VIEW " SCHEMA ".load_state AS SELECT NULL::int8 AS series, NULL::int8 AS sequence,"
	" NULL::timestamptz AS loaded, NULL::int4 AS checksum WHERE false",
	"CREATE TRIGGER no_table INSTEAD OF INSERT ON " SCHEMA ".load_state"
	" FOR EACH ROW EXECUTE FUNCTION " SCHEMA ".no_table()"
};

/* Have the view audit_records, wherever it is (see extension.c), show that. */
static void
set_view(const char *query)
{
	const Oid	aside = get_relname_relid("audit_records", get_namespace_oid(SCHEMA, false));

	paq_run_command(psprintf("CREATE OR REPLACE VIEW %s.audit_records WITH (security_invoker = true) AS %s",
							 OidIsValid(aside) ? SCHEMA : "pg_catalog", query));
}

static bool
make_tables(void)
{
	for (int i = 0; i < lengthof(table_commands); i++)
		paq_run_command(table_commands[i]);
	(void) run("SELECT pg_extension_config_dump('" SCHEMA ".load_state', '')",
			   0, NULL, NULL, SPI_OK_SELECT);
	forgo_statistics("records");
	revoke_all("records");
	revoke_all("load_state");
	paq_run_command("GRANT SELECT ON " SCHEMA ".records TO audit_queue_reader");
	paq_run_command("CREATE POLICY audit_queue_reader ON " SCHEMA ".records"
					" FOR SELECT TO audit_queue_reader USING (true)");
	set_view("SELECT * FROM " SCHEMA ".records_elsewhere() UNION ALL SELECT * FROM " SCHEMA ".records");
	return true;
}

/*
 * Returns true if a loader has written to the tables, which are locked.  Partitions are
 * made before anything is, and what load_state has outlives them.  What counts is what
 * has been committed, whatever the transaction's snapshot shows.
 */
static bool
has_records(Oid records, Oid load_state)
{
	Relation	rel;
	Snapshot	snapshot;
	SysScanDesc scan;
	bool		result;

	if (find_inheritance_children(records, NoLock) != NIL)
		return true;
	rel = table_open(load_state, NoLock);
	snapshot = RegisterSnapshot(GetLatestSnapshot());
	scan = systable_beginscan(rel, InvalidOid, false, snapshot, 0, NULL);
	result = HeapTupleIsValid(systable_getnext(scan));
	systable_endscan(scan);
	UnregisterSnapshot(snapshot);
	table_close(rel, NoLock);
	return result;
}

/* Returns true if somebody has granted privileges on the tables. */
static bool
has_grants(void)
{
	return run("SELECT FROM pg_class c LEFT JOIN pg_init_privs i"
			   "    ON (i.classoid, i.objoid, i.objsubid) = (c.tableoid, c.oid, 0)"
			   " WHERE c.oid IN ('" SCHEMA ".records'::regclass, '" SCHEMA ".load_state'::regclass)"
			   "   AND (c.relacl IS DISTINCT FROM i.initprivs"
			   "        OR EXISTS (SELECT FROM pg_attribute a"
			   "                    WHERE a.attrelid = c.oid AND a.attacl IS NOT NULL))",
			   0, NULL, NULL, SPI_OK_SELECT) > 0;
}

static bool
drop_tables(void)
{
	const Oid	schema = get_namespace_oid(SCHEMA, false);
	const Oid	records = get_relname_relid("records", schema);
	const Oid	load_state = get_relname_relid("load_state", schema);

	/* The table before its partitions, and before load_state, as the loader does */
	LockRelationOid(records, AccessExclusiveLock);
	LockRelationOid(load_state, AccessExclusiveLock);
	if (!has_tables(schema) || get_relname_relid("records", schema) != records ||
		get_relname_relid("load_state", schema) != load_state ||
		has_records(records, load_state))
		return false;
	if (has_grants())
		ereport(ERROR,
				(errcode(ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST),
				 errmsg("cannot drop table %s because privileges on it were granted",
						SCHEMA ".records")));
	set_view("SELECT * FROM " SCHEMA ".records_elsewhere()");
	for (int i = 0; i < lengthof(no_table_commands); i++)
		paq_run_command(no_table_commands[i]);
	revoke_all("load_state");
	return true;
}

/* Have names be PostgreSQL's own until the end of the nest level of settings. */
void
paq_use_own_names(void)
{
	(void) set_config_option("search_path", "pg_catalog, pg_temp", PGC_USERSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Do something as the extension's script does it: what is made belongs to the extension,
 * and to the owner of its schema; names are PostgreSQL's own; tables are where they are
 * by default.  Returns what that returns.
 */
static bool
act_as_script(bool (*act) (void))
{
	static const char *const settings[][2] = {
		{"default_tablespace", ""},
		{"default_table_access_method", "heap"}
	};
	const bool	was_creating = creating_extension;
	const Oid	was_current = CurrentExtensionObject;
	const int	level = NewGUCNestLevel();
	volatile bool result = false;
	Oid			user;
	int			context;

	GetUserIdAndSecContext(&user, &context);
	PG_TRY();
	{
		SetUserIdAndSecContext(owner_of(NamespaceRelationId, get_namespace_oid(SCHEMA, false)),
							   context | SECURITY_LOCAL_USERID_CHANGE);
		creating_extension = true;
		CurrentExtensionObject = get_extension_oid("pg_audit_queue", false);
		paq_use_own_names();
		for (int i = 0; i < lengthof(settings); i++)
			(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET,
									 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		SPI_connect();
		result = act();
		SPI_finish();
	}
	PG_FINALLY();
	{
		creating_extension = was_creating;
		CurrentExtensionObject = was_current;
		SetUserIdAndSecContext(user, context);
	}
	PG_END_TRY();
	AtEOXact_GUC(true, level);
	return result;
}

/*
 * Make the tables in this database, if it has the extension, in a schema of a superuser's,
 * and neither table.  Returns whether they were made.  Version 1.0 has always had them,
 * and lacks the foreign table.
 *
 * For superusers.  Needs a transaction with a snapshot; raises an error if it fails.
 */
bool
paq_table_make(void)
{
	const Oid	schema = get_namespace_oid(SCHEMA, true);

	if (!is_our_schema(schema) ||
		OidIsValid(get_relname_relid("records", schema)) ||
		!is_our_relation(get_relname_relid("load_state", schema), RELKIND_VIEW) ||
		!is_our_relation(get_relname_relid("trail", schema), RELKIND_FOREIGN_TABLE))
		return false;
	return act_as_script(make_tables);
}

/*
 * Drop the tables of this database, if no loader has written to them.  Returns whether
 * they are gone.
 *
 * For superusers.  Raises ERRCODE_DEPENDENT_OBJECTS_STILL_EXIST if somebody has made
 * something of them, and other errors if it fails.
 */
bool
paq_table_drop(void)
{
	const Oid	schema = get_namespace_oid(SCHEMA, true);

	return has_tables(schema) && act_as_script(drop_tables);
}

/*
 * Names of the publications that carry any of the tables to subscribers, palloc'ed, in
 * order.  Needs a transaction with a snapshot, and a search path that has nothing but
 * what superusers have made.
 */
List *
paq_table_publications(void)
{
	const MemoryContext context = CurrentMemoryContext;
	List	   *names = NIL;
	uint64		count;

	SPI_connect();
	count = run("SELECT DISTINCT p.pubname"
				"  FROM pg_catalog.pg_publication_tables p"
				"  JOIN pg_catalog.pg_namespace n ON n.nspname = p.schemaname"
				"  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = p.tablename"
				" WHERE c.oid IN (pg_catalog.to_regclass('" SCHEMA ".records'),"
				"                 pg_catalog.to_regclass('" SCHEMA ".load_state'))"
				"    OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree("
				"                         pg_catalog.to_regclass('" SCHEMA ".records')) t)"
				" ORDER BY p.pubname",
				0, NULL, NULL, SPI_OK_SELECT);
	for (uint64 i = 0; i < count; i++)
	{
		char	   *name = SPI_getvalue(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1);
		MemoryContext spi_context = MemoryContextSwitchTo(context);

		names = lappend(names, pstrdup(name));
		MemoryContextSwitchTo(spi_context);
	}
	SPI_finish();
	return names;
}

/*
 * OID of the table, which is made if this database has none yet.  Owners may change at
 * any time, so each transaction has to ask.
 */
static Oid
table_oid(void)
{
	const Oid	schema = get_namespace_oid(SCHEMA, true);

	if (!paq_is_superusers(DatabaseRelationId, MyDatabaseId))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("database \"%s\" of the audit table does not belong to a superuser",
						paq_database),
				 errhint("Its owner could drop it. Use ALTER DATABASE to change the owner.")));
	if (paq_table_make())
		ereport(LOG,
				(errmsg("made table \"" SCHEMA ".records\" in database \"%s\"",
						paq_database)));
	if (!has_tables(schema))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"pg_audit_queue\" does not exist in database \"%s\", or its tables do not belong to superusers",
						paq_database),
				 errhint("Use CREATE EXTENSION there.")));
	return get_relname_relid("records", schema);
}

/* A column of the only row of a query's result, which must not be null */
static int64
get_int64(int column)
{
	bool		isnull;

	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
									   SPI_tuptable->tupdesc, column, &isnull));
}

/*
 * Number of rows of the series with sequences behind "after", up to and including
 * "last", of that day or a later one.
 */
uint64
paq_table_count(uint64 series, uint64 after, uint64 last, int first_day)
{
	Oid			types[] = {INT8OID, INT8OID, INT8OID, TIMESTAMPTZOID};
	Datum		values[] = {
		Int64GetDatum((int64) series),
		Int64GetDatum((int64) after),
		Int64GetDatum((int64) last),
		TimestampTzGetDatum(paq_start_of(first_day))
	};
	uint64		count;

	(void) table_oid();
	SPI_connect();
	(void) run("SELECT pg_catalog.count(*) FROM audit_queue.records"
			   " WHERE series = $1 AND sequence > $2 AND sequence <= $3"
			   "   AND log_time >= $4",
			   4, types, values, SPI_OK_SELECT);
	count = (uint64) get_int64(1);
	SPI_finish();
	return count;
}

/* The checksum that a row of load_state must have */
static int32
checksum_of(uint64 series, uint64 sequence, TimestampTz loaded)
{
	const uint64 words[] = {
		pg_hton64(series), pg_hton64(sequence), pg_hton64((uint64) loaded)
	};

	return (int32) paq_crc32c(words, sizeof(words));
}

/*
 * Somebody has changed load_state, or the rows that it describes, so it is not
 * known which records the table has.  The only safe way on is to load the files
 * once more, which begin behind "start".
 */
pg_noreturn static void
report_wrong_state(uint64 series, uint64 start)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("what table \"audit_queue.load_state\" says of series %llu is not what was loaded",
					(unsigned long long) series),
			 errhint("To load what the files have again, delete that row of \"audit_queue.load_state\", if there is one, and from \"audit_queue.records\" the rows of the series with a sequence greater than %llu.",
					 (unsigned long long) start)));
}

/* Read what load_state has of the series. */
static void
read_state(uint64 series, uint64 start)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum((int64) series)};

	reached.sequence = 0;
	reached.checksum = 0;
	if (run("SELECT sequence, loaded, checksum::pg_catalog.int8"
			"  FROM audit_queue.load_state WHERE series = $1",
			1, types, values, SPI_OK_SELECT) == 0)
		return;
	reached.sequence = (uint64) get_int64(1);
	reached.checksum = (int32) get_int64(3);
	if (reached.checksum != checksum_of(series, reached.sequence, get_int64(2)))
		report_wrong_state(series, start);
}

/* Does the table have records that load_state does not know of? */
static bool
has_unknown_rows(uint64 series, uint64 start)
{
	Oid			types[] = {INT8OID, INT8OID};
	Datum		values[] = {
		Int64GetDatum((int64) series),
		Int64GetDatum((int64) Max(reached.sequence, start))
	};

	return run("SELECT FROM audit_queue.records"
			   " WHERE series = $1 AND sequence > $2 LIMIT 1",
			   2, types, values, SPI_OK_SELECT) > 0;
}

/*
 * Sequence up to which the table has the records of the series, whose files begin
 * behind "start"; 0: none.
 */
uint64
paq_table_sequence(uint64 series, uint64 start)
{
	(void) table_oid();
	if (reached.valid && reached.series == series)
		return reached.sequence;
	SPI_connect();
	read_state(series, start);
	if (has_unknown_rows(series, start))
		report_wrong_state(series, start);
	SPI_finish();
	reached.series = series;
	reached.valid = true;
	return reached.sequence;
}

/*
 * The fields that the table has columns for, by PaqTrailField; ints.  It lacks those
 * of later versions than the extension has in the database.
 */
List *
paq_table_columns(void)
{
	const Oid	table = table_oid();
	List	   *fields = NIL;

	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
		if (paq_trail_fields[i].column != NULL &&
			get_attnum(table, paq_trail_fields[i].column) != InvalidAttrNumber)
			fields = lappend_int(fields, i);
	return fields;
}

/* Names of the columns, as COPY wants them */
static List *
column_names(const List *fields)
{
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, fields)
		names = lappend(names,
						makeString(pstrdup(paq_trail_fields[lfirst_int(lc)].column)));
	return names;
}

/* COPY's callback: hand out at most maxread bytes. */
static int
copy_source(void *outbuf, int minread, int maxread)
{
	Size		n = Min(copy_left, (Size) maxread);

	memcpy(outbuf, copy_data, n);
	copy_data += n;
	copy_left -= n;
	return (int) n;
}

static void
copy_rows(const PaqBatch *batch)
{
	Relation	rel = table_open(table_oid(), RowExclusiveLock);
	ParseState *pstate = make_parsestate(NULL);
	List	   *options;
	CopyFromState state;
	uint64		count;

	addRangeTableEntryForRelation(pstate, rel, RowExclusiveLock, NULL, false,
								  false);
	options = list_make1(makeDefElem("encoding",
									 (Node *) makeString(pstrdup(GetDatabaseEncodingName())),
									 -1));
	copy_data = batch->rows.data;
	copy_left = batch->rows.len;
	state = BeginCopyFrom(pstate, rel, NULL, NULL, false, copy_source,
						  column_names(batch->columns), options);
	count = CopyFrom(state);
	EndCopyFrom(state);
	free_parsestate(pstate);
	table_close(rel, NoLock);

	/* A trigger or a rule that somebody has added may have swallowed some. */
	if (count != batch->count)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("only %llu of %llu audit records were inserted",
						(unsigned long long) count,
						(unsigned long long) batch->count)));
}

/*
 * Note how far the table gets with the batch.  The condition of the UPDATE
 * makes sure that the row is as this process has left it.
 */
static void
save_sequence(const PaqBatch *batch)
{
	TimestampTz now = GetCurrentTimestamp();
	int32		checksum = checksum_of(batch->series, batch->sequence, now);
	Oid			types[] = {INT8OID, INT8OID, TIMESTAMPTZOID, INT4OID, INT8OID, INT4OID};
	Datum		values[] = {
		Int64GetDatum((int64) batch->series),
		Int64GetDatum((int64) batch->sequence),
		TimestampTzGetDatum(now),
		Int32GetDatum(checksum),
		Int64GetDatum((int64) batch->before),
		Int32GetDatum(reached.checksum)
	};
	uint64		count;

	SPI_connect();
	if (batch->before == 0)
		count = run("INSERT INTO audit_queue.load_state"
					" (series, sequence, loaded, checksum) VALUES ($1, $2, $3, $4)",
					4, types, values, SPI_OK_INSERT);
	else
		count = run("UPDATE audit_queue.load_state"
					" SET sequence = $2, loaded = $3, checksum = $4"
					" WHERE series = $1 AND sequence = $5 AND checksum = $6",
					6, types, values, SPI_OK_UPDATE);
	SPI_finish();
	if (count != 1)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("table \"audit_queue.load_state\" was changed by somebody else")));
	reached.series = batch->series;
	reached.sequence = batch->sequence;
	reached.checksum = checksum;
	reached.valid = true;
}

/*
 * The series of load_state that had nothing loaded since that time, palloc'ed; *count
 * is how many.
 */
uint64 *
paq_table_old_series(TimestampTz since, uint64 *count)
{
	Oid			types[] = {TIMESTAMPTZOID};
	Datum		values[] = {TimestampTzGetDatum(since)};
	uint64	   *series;

	(void) table_oid();
	SPI_connect();
	*count = run("SELECT series FROM audit_queue.load_state WHERE loaded < $1",
				 1, types, values, SPI_OK_SELECT);
	series = SPI_palloc(*count * sizeof(uint64));
	for (uint64 i = 0; i < *count; i++)
	{
		bool		isnull;

		series[i] = (uint64) DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i],
														 SPI_tuptable->tupdesc, 1, &isnull));
	}
	SPI_finish();
	return series;
}

/* Remove the series from load_state. */
void
paq_table_forget_series(uint64 series)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum((int64) series)};

	SPI_connect();
	(void) run("DELETE FROM audit_queue.load_state WHERE series = $1",
			   1, types, values, SPI_OK_DELETE);
	SPI_finish();
}

/* ----------
 * Partitions
 * ----------
 */

/*
 * The first day that table_retention says the table has; INT_MIN if it keeps
 * all, or has not begun.
 */
int
paq_first_day(TimestampTz now)
{
	if (paq_table_retention == 0 ||
		now < paq_retention_begins(paq_retention_is_short(paq_table_retention), now))
		return INT_MIN;
	return paq_day_of(now - (TimestampTz) paq_table_retention *
					  SECS_PER_MINUTE * USECS_PER_SEC);
}

/* "records_20261122" */
static char *
name_of(int day)
{
	int			year;
	int			month;
	int			mday;

	j2date(day + POSTGRES_EPOCH_JDATE, &year, &month, &mday);
	return psprintf(PREFIX "%04d%02d%02d", year, month, mday);
}

/*
 * The records are nearly in the order of the first index, so that a small one
 * is enough.  The second one serves to find out which records there are.
 */
static void
make(int day, const char *name)
{
	char	   *from = pstrdup(timestamptz_to_str(paq_start_of(day)));
	char	   *to = pstrdup(timestamptz_to_str(paq_start_of(day + 1)));

	paq_run_command(psprintf("CREATE %s TABLE " SCHEMA ".%s (LIKE " SCHEMA ".records INCLUDING ALL)",
							 paq_table_logged ? "" : "UNLOGGED", name));
	paq_run_command(psprintf("ALTER TABLE " SCHEMA ".%s ENABLE ROW LEVEL SECURITY,"
							 " FORCE ROW LEVEL SECURITY", name));
	revoke_all(name);
	forgo_statistics(name);
	paq_run_command(psprintf("CREATE INDEX %s_time ON " SCHEMA ".%s USING brin (log_time)",
							 name, name));
	paq_run_command(psprintf("CREATE UNIQUE INDEX %s_key ON " SCHEMA ".%s (series, sequence)",
							 name, name));
	paq_run_command(psprintf("ALTER TABLE " SCHEMA ".records ATTACH PARTITION " SCHEMA ".%s"
							 " FOR VALUES FROM ('%s') TO ('%s')", name, from, to));
}

/*
 * Lock the table's partition of that name for inserting; false if there is
 * none.
 */
static bool
lock_partition(const char *name)
{
	Oid			table = table_oid();
	Oid			partition = get_relname_relid(name, get_rel_namespace(table));

	if (!OidIsValid(partition))
		return false;
	LockRelationOid(partition, RowExclusiveLock);
	if (!get_rel_relispartition(partition) ||
		get_partition_parent(partition, false) != table)
		return false;
	if (!is_our_relation(partition, RELKIND_RELATION))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("partition \"%s\" of the audit table does not belong to a superuser",
						name)));
	return true;
}

/* Lock the partition for records of the day; make it if there is none. */
static void
need_partition(int day)
{
	char	   *name = name_of(day);

	if (lock_partition(name))
		return;
	SPI_connect();
	make(day, name);
	SPI_finish();
}

/*
 * Insert the batch, and note how far the table gets with it.  What
 * paq_table_sequence() returns after this is true once the transaction has
 * committed.
 */
void
paq_table_load(PaqBatch *batch)
{
	ListCell   *lc;

	/* The table before its partitions, as everybody does. */
	LockRelationOid(table_oid(), RowExclusiveLock);
	foreach(lc, batch->days)
		need_partition(lfirst_int(lc));
	if (batch->count > 0)
		copy_rows(batch);
	save_sequence(batch);
}

/* Make partitions for the days to come. */
void
paq_partitions_make_ahead(TimestampTz now)
{
	const int	today = paq_day_of(now);

	for (int day = today; day <= today + DAYS_AHEAD; day++)
		need_partition(day);
}

/* Name of the oldest partition of the days before that one; NULL: there is none. */
static char *
oldest_partition(int day)
{
	char	   *query = psprintf("SELECT c.relname::pg_catalog.text"
								 "  FROM pg_catalog.pg_inherits i"
								 "  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid"
								 " WHERE i.inhparent = %u AND c.relname ~ '^" PREFIX "[0-9]{8}$'"
								 "   AND c.relname < '%s'"
								 " ORDER BY c.relname LIMIT 1", table_oid(), name_of(day));

	if (run(query, 0, NULL, NULL, SPI_OK_SELECT) == 0)
		return NULL;
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

/*
 * Drop the oldest partition if table_retention has passed since the end of its
 * day, and if there is a durable record of that.  Returns whether it was
 * dropped.  *recording is set if only the record is not durable yet.
 */
bool
paq_partitions_drop_oldest(TimestampTz now, bool *recording)
{
	const int	first_day = paq_first_day(now);
	char	   *name;
	bool		due;

	*recording = false;
	if (first_day == INT_MIN)
		return false;
	SPI_connect();
	name = oldest_partition(first_day);
	due = name != NULL;
	if (due)
	{
		Oid			partition = get_relname_relid(name, get_namespace_oid(SCHEMA, false));
		Datum		size = DirectFunctionCall1(pg_total_relation_size,
										 ObjectIdGetDatum(partition));

		*recording = !paq_removal_is_recorded("TABLE", psprintf(SCHEMA ".%s", name),
											  name, (uint64) DatumGetInt64(size));
		due = !*recording;
	}
	if (due)
	{
		paq_run_command(psprintf("DROP TABLE " SCHEMA ".%s CASCADE", name));
		paq_removal_done();
		ereport(LOG,
				(errmsg("dropping partition \"%s\" of the audit table, which is older than \"pg_audit_queue.table_retention\"",
						name)));
	}
	SPI_finish();
	return due;
}
