/*-------------------------------------------------------------------------
 *
 * table.c
 *		The table: a batch of rows, and what it has already.
 *
 * PostgreSQL's own COPY inserts the rows.  In the same transaction the sequence
 * that the table has reached with them is noted in load_state, a row a
 * series.  That makes loading exactly once: whatever is interrupted, both are
 * there or neither is.
 *
 * A row of load_state that somebody has changed is recognized by its checksum; one
 * that is gone, or an older one, by records of the series in the table that it
 * does not cover.  Then nothing is loaded.  A checksum is no secret: against one
 * who means to deceive, files.c looks for the rows before it removes a file.
 *
 * Everything here must be called in a transaction with a snapshot, and may
 * raise an error, of which the caller knows nothing but that it has to begin
 * again after paq_table_forget().
 *
 * Locking: what an INSERT takes; RowExclusiveLock on the row of the series.
 * Owners are looked at when the lock is held that keeps them from changing, or
 * else in each transaction.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/partition.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "commands/copy.h"
#include "commands/defrem.h"
#include "commands/extension.h"
#include "compat.h"
#include "executor/spi.h"
#include "guc.h"
#include "load/load_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "parser/parse_relation.h"
#include "port/pg_bswap.h"
#include "port/pg_crc32c.h"
#include "storage/lmgr.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

/* What the table has of a series */
static bool reached_valid = false;
static uint64 reached_series;
static uint64 reached_sequence;
static int32 reached_checksum;

/* The rows that COPY is being given */
static const char *copy_data;
static Size copy_left;

/* Forget what is known of the table: a transaction has failed. */
void
paq_table_forget(void)
{
	reached_valid = false;
}

/* Run a query; returns the number of rows processed. */
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

/*
 * Is it a relation of this kind that a superuser owns?  Anybody else could have
 * functions of his executed, as a superuser, by what we do to it.
 */
static bool
is_superusers(Oid relid, char relkind)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relkind == relkind &&
		superuser_arg(((Form_pg_class) GETSTRUCT(tuple))->relowner);
	ReleaseSysCache(tuple);
	return result;
}

/*
 * Is that a superuser's schema, and part of the extension?  Then others cannot
 * have put something else in its place.
 */
static bool
is_our_schema(Oid schema)
{
	HeapTuple	tuple = SearchSysCache1(NAMESPACEOID, ObjectIdGetDatum(schema));
	Oid			extension = get_extension_oid("pg_audit_queue", true);
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	result = OidIsValid(extension) &&
		getExtensionOfObject(NamespaceRelationId, schema) == extension &&
		superuser_arg(((Form_pg_namespace) GETSTRUCT(tuple))->nspowner);
	ReleaseSysCache(tuple);
	return result;
}

/* Whoever owns the database may drop it, when no loader is connected to it. */
static void
check_database(void)
{
	HeapTuple	tuple = SearchSysCache1(DATABASEOID, ObjectIdGetDatum(MyDatabaseId));
	bool		ok;

	ok = HeapTupleIsValid(tuple) &&
		superuser_arg(((Form_pg_database) GETSTRUCT(tuple))->datdba);
	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	if (!ok)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("database \"%s\" of the audit table does not belong to a superuser",
						paq_database),
				 errhint("Its owner could drop it. Use ALTER DATABASE to change the owner.")));
}

/*
 * OID of the table.  Owners may change at any time, so each transaction has to
 * ask.
 */
Oid
paq_table_oid(void)
{
	Oid			schema = get_namespace_oid(PAQ_TABLE_SCHEMA, true);
	Oid			table = get_relname_relid("records", schema);

	check_database();
	if (!is_our_schema(schema) ||
		!is_superusers(table, RELKIND_PARTITIONED_TABLE) ||
		!is_superusers(get_relname_relid("load_state", schema), RELKIND_RELATION))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"pg_audit_queue\" does not exist in database \"%s\", or its tables do not belong to superusers",
						paq_database),
				 errhint("Use CREATE EXTENSION there.")));
	return table;
}

/*
 * Lock the table's partition of that name, so that rows can be inserted; false if
 * there is none.
 */
bool
paq_table_lock_partition(const char *name)
{
	Oid			table = paq_table_oid();
	Oid			partition = get_relname_relid(name, get_rel_namespace(table));

	if (!OidIsValid(partition))
		return false;
	LockRelationOid(partition, RowExclusiveLock);
	if (!get_rel_relispartition(partition) ||
		get_partition_parent(partition, false) != table)
		return false;
	if (!is_superusers(partition, RELKIND_RELATION))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("partition \"%s\" of the audit table does not belong to a superuser",
						name)));
	return true;
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

	(void) paq_table_oid();
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
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, words, sizeof(words));
	FIN_CRC32C(crc);
	return (int32) crc;
}

/*
 * Somebody has changed load_state, or the rows that it tells of, so that nobody
 * knows which records the table has.  All that the files have is there for sure
 * if it is loaded once more.
 */
pg_noreturn static void
report_wrong_state(uint64 series)
{
	uint64		start = 0;

	(void) paq_files_have(series, &start);
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("what table \"audit_queue.load_state\" says of series %llu is not what was loaded",
					(unsigned long long) series),
			 errhint("To load what the files have again, delete that row of \"audit_queue.load_state\", if there is one, and from \"audit_queue.records\" the rows of the series with a sequence greater than %llu.",
					 (unsigned long long) start)));
}

/* Read what load_state has of the series. */
static void
read_state(uint64 series)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum((int64) series)};

	reached_sequence = 0;
	reached_checksum = 0;
	if (run("SELECT sequence, loaded, checksum::pg_catalog.int8"
			"  FROM audit_queue.load_state WHERE series = $1",
			1, types, values, SPI_OK_SELECT) == 0)
		return;
	reached_sequence = (uint64) get_int64(1);
	reached_checksum = (int32) get_int64(3);
	if (reached_checksum != checksum_of(series, reached_sequence, get_int64(2)))
		report_wrong_state(series);
}

/* Does the table have records that load_state does not know of? */
static bool
has_unknown_rows(uint64 series)
{
	Oid			types[] = {INT8OID, INT8OID};
	uint64		start = 0;
	Datum		values[2];

	(void) paq_files_have(series, &start);
	values[0] = Int64GetDatum((int64) series);
	values[1] = Int64GetDatum((int64) Max(reached_sequence, start));
	return run("SELECT FROM audit_queue.records"
			   " WHERE series = $1 AND sequence > $2 LIMIT 1",
			   2, types, values, SPI_OK_SELECT) > 0;
}

/* Sequence up to which the table has the records of the series; 0: none. */
uint64
paq_table_sequence(uint64 series)
{
	(void) paq_table_oid();
	if (reached_valid && reached_series == series)
		return reached_sequence;
	SPI_connect();
	read_state(series);
	if (has_unknown_rows(series))
		report_wrong_state(series);
	SPI_finish();
	reached_series = series;
	reached_valid = true;
	return reached_sequence;
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
	Relation	rel = table_open(paq_table_oid(), RowExclusiveLock);
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
						  paq_row_columns(), options);
	count = CopyFrom(state);
	EndCopyFrom(state);
	free_parsestate(pstate);
	table_close(rel, NoLock);

	/* A trigger or a rule of somebody's may have swallowed some. */
	if (count != batch->count)
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("only %llu of %llu audit records were inserted",
						(unsigned long long) count,
						(unsigned long long) batch->count)));
}

/*
 * Note how far the table gets with the batch.  That the row is what we have left
 * there is part of the condition.
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
		Int32GetDatum(reached_checksum)
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
	reached_series = batch->series;
	reached_sequence = batch->sequence;
	reached_checksum = checksum;
	reached_valid = true;
}

/*
 * Forget the series that had nothing loaded since that time, unless they have
 * files yet.
 */
void
paq_table_forget_series(TimestampTz since)
{
	Oid			types[] = {TIMESTAMPTZOID};
	Datum		values[] = {TimestampTzGetDatum(since)};
	SPITupleTable *old;
	uint64		count;

	(void) paq_table_oid();
	SPI_connect();
	count = run("SELECT series FROM audit_queue.load_state WHERE loaded < $1",
				1, types, values, SPI_OK_SELECT);
	old = SPI_tuptable;
	for (uint64 i = 0; i < count; i++)
	{
		bool		isnull;
		Datum		series = SPI_getbinval(old->vals[i], old->tupdesc, 1, &isnull);
		uint64		start;

		types[0] = INT8OID;
		if (!paq_files_have((uint64) DatumGetInt64(series), &start))
			(void) run("DELETE FROM audit_queue.load_state WHERE series = $1",
					   1, types, &series, SPI_OK_DELETE);
	}
	SPI_finish();
}

/*
 * Insert the batch, and note that.  What paq_table_sequence() returns is then
 * true once the transaction has committed.
 */
void
paq_table_load(PaqBatch *batch)
{
	ListCell   *lc;

	/* The table before its partitions, as everybody does. */
	LockRelationOid(paq_table_oid(), RowExclusiveLock);
	foreach(lc, batch->days)
		paq_partition_need(lfirst_int(lc));
	if (batch->count > 0)
		copy_rows(batch);
	save_sequence(batch);
}
