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
 * Everything here must be called in a transaction with a snapshot, and may
 * raise an error, of which the caller knows nothing but that it has to begin
 * again after paq_table_forget().
 *
 * Locking: what an INSERT takes; RowExclusiveLock on the row of the series.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/table.h"
#include "commands/copy.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "guc.h"
#include "load/load_internal.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "parser/parse_relation.h"

/* OID of the table; InvalidOid until looked up */
static Oid	table_oid = InvalidOid;

/* What the table has of a series */
static bool reached_valid = false;
static uint64 reached_series;
static uint64 reached_sequence;

/* The rows that COPY is being given */
static const char *copy_data;
static Size copy_left;

/* Forget what is known of the table: a transaction has failed. */
void
paq_table_forget(void)
{
	table_oid = InvalidOid;
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
 * Find the table.  That its schema belongs to the extension, and all of it to
 * superusers, is what keeps others from putting something else in its place.
 */
static void
find_table(void)
{
	bool		isnull;

	SPI_connect();
	if (run("SELECT c.oid"
			"  FROM pg_catalog.pg_extension e"
			"  JOIN pg_catalog.pg_depend d ON d.refobjid = e.oid AND d.deptype = 'e'"
			"   AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass"
			"   AND d.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass"
			"  JOIN pg_catalog.pg_namespace n ON n.oid = d.objid"
			"  JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid"
			"   AND c.relname = 'records' AND c.relkind = 'p'"
			"  JOIN pg_catalog.pg_class s ON s.relnamespace = n.oid"
			"   AND s.relname = 'load_state' AND s.relkind = 'r'"
			" WHERE e.extname = 'pg_audit_queue' AND n.nspname = 'audit_queue'"
			"   AND (SELECT pg_catalog.bool_and(rolsuper)"
			"          FROM pg_catalog.pg_roles"
			"         WHERE oid IN (e.extowner, n.nspowner, c.relowner, s.relowner))",
			0, NULL, NULL, SPI_OK_SELECT) != 1)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("extension \"pg_audit_queue\" does not exist in database \"%s\", or its tables do not belong to superusers",
						paq_database),
				 errhint("Use CREATE EXTENSION there.")));
	table_oid = DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0],
											   SPI_tuptable->tupdesc, 1,
											   &isnull));
	SPI_finish();
}

/* OID of the table. */
Oid
paq_table_oid(void)
{
	if (!OidIsValid(table_oid))
		find_table();
	return table_oid;
}

/* Sequence up to which the table has the records of the series; 0: none. */
uint64
paq_table_sequence(uint64 series)
{
	Oid			types[] = {INT8OID};
	Datum		values[] = {Int64GetDatum((int64) series)};
	bool		isnull;

	if (reached_valid && reached_series == series)
		return reached_sequence;
	(void) paq_table_oid();
	SPI_connect();
	reached_sequence = 0;
	if (run("SELECT sequence FROM audit_queue.load_state WHERE series = $1",
			1, types, values, SPI_OK_SELECT) > 0)
		reached_sequence = (uint64) DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0],
																SPI_tuptable->tupdesc, 1,
																&isnull));
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
 * Note how far the table gets with the batch.  That it was where we thought is
 * part of the condition.
 */
static void
save_sequence(const PaqBatch *batch)
{
	Oid			types[] = {INT8OID, INT8OID, INT8OID};
	Datum		values[] = {
		Int64GetDatum((int64) batch->series),
		Int64GetDatum((int64) batch->sequence),
		Int64GetDatum((int64) batch->before)
	};
	uint64		count;

	SPI_connect();
	if (batch->before == 0)
		count = run("INSERT INTO audit_queue.load_state (series, sequence)"
					" VALUES ($1, $2)",
					2, types, values, SPI_OK_INSERT);
	else
		count = run("UPDATE audit_queue.load_state SET sequence = $2"
					" WHERE series = $1 AND sequence = $3",
					3, types, values, SPI_OK_UPDATE);
	SPI_finish();
	if (count != 1)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("table \"audit_queue.load_state\" was changed by somebody else")));
	reached_series = batch->series;
	reached_sequence = batch->sequence;
	reached_valid = true;
}

/*
 * Insert the batch, and note that.  What paq_table_sequence() returns is then
 * true once the transaction has committed.
 */
void
paq_table_load(PaqBatch *batch)
{
	ListCell   *lc;

	foreach(lc, batch->days)
		paq_partition_need(lfirst_int(lc));
	if (batch->count > 0)
		copy_rows(batch);
	save_sequence(batch);
}
