/*-------------------------------------------------------------------------
 *
 * sqlfunc.c
 *		The functions of the extension.
 *
 * All of them are for those to whom the extension's scripts grant them only.
 * They raise OBJECT_NOT_IN_PREREQUISITE_STATE if the library was not preloaded.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "funcapi.h"
#include "queue/loading.h"
#include "queue/queue.h"
#include "stats.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(audit_flush);
PG_FUNCTION_INFO_V1(audit_rotate);
PG_FUNCTION_INFO_V1(audit_queue_stats);
PG_FUNCTION_INFO_V1(audit_queue_stats_reset);

static void
require_preload(void)
{
	if (!paq_queue_available())
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("pg_audit_queue must be loaded via \"shared_preload_libraries\""),
				 errhint("Add pg_audit_queue to \"shared_preload_libraries\" in postgresql.conf and restart the server.")));
}

/*
 * audit_flush() returns bigint
 *
 * Waits until every record published before the call is durable in the trail.
 * Returns the sequence of a record up to which, itself included, the trail is
 * durable; 0 if there has been none since the server started.
 */
Datum
audit_flush(PG_FUNCTION_ARGS)
{
	require_preload();
	paq_queue_wait_flushed(paq_queue_end());
	PG_RETURN_INT64((int64) paq_queue_flushed_sequence());
}

/* What the worker says of itself, as of one moment */
static PaqWorkerStats
worker_stats(void)
{
	PaqWorkerStats worker;

	SpinLockAcquire(&paq_stats->worker.mutex);
	memcpy(&worker, &paq_stats->worker, sizeof(worker));
	SpinLockRelease(&paq_stats->worker.mutex);
	return worker;
}

/*
 * audit_rotate() returns text
 *
 * Has the worker start a new trail file, unless the current one is empty, and
 * waits until it has.  Returns the name of the file that is then written.
 */
Datum
audit_rotate(PG_FUNCTION_ARGS)
{
	PaqWorkerStats worker;

	require_preload();
	paq_queue_rotate();
	worker = worker_stats();
	PG_RETURN_TEXT_P(cstring_to_text(worker.current_file));
}

/* Collects the columns of a row, in order. */
typedef struct Row
{
	Datum		values[32];
	bool		nulls[32];
	int			n;
} Row;

static void
add_datum(Row *row, Datum value, bool isnull)
{
	Assert(row->n < lengthof(row->values));
	row->values[row->n] = value;
	row->nulls[row->n] = isnull;
	row->n++;
}

static void
add_count(Row *row, uint64 value)
{
	add_datum(row, Int64GetDatum((int64) value), false);
}

/* Empty text is null. */
static void
add_text(Row *row, const char *value)
{
	add_datum(row, CStringGetTextDatum(value), value[0] == '\0');
}

/* Time 0 is null. */
static void
add_time(Row *row, TimestampTz value)
{
	add_datum(row, TimestampTzGetDatum(value), value == 0);
}

static void
add_queue_columns(Row *row, const PaqStatsCounters *counters)
{
	TimestampTz since = (TimestampTz) pg_atomic_read_u64(&paq_stats->worker.unflushed_since);
	Interval   *age = palloc0(sizeof(Interval));
	uint64		dropped = 0;

	add_count(row, counters->published);
	add_count(row, counters->drained);
	add_count(row, counters->flushed);
	add_count(row, counters->loaded);
	add_count(row, counters->bytes);
	add_count(row, paq_queue_capacity());
	add_count(row, paq_queue_used());
	add_count(row, pg_atomic_read_u64(&paq_stats->worker.high_water));
	add_count(row, counters->space_waits);
	add_count(row, counters->flush_waits);
	add_datum(row, Float8GetDatum(counters->waited_us / 1000.0), false);

	/* all that could not be kept, and by reason */
	for (int i = 0; i < PAQ_NDROPS; i++)
		dropped += counters->dropped[i];
	add_count(row, dropped);
	for (int i = 0; i < PAQ_NDROPS; i++)
		add_count(row, counters->dropped[i]);

	add_count(row, counters->incomplete);
	add_count(row, counters->batches);
	add_count(row, counters->fsyncs);
	add_count(row, counters->wakeups);

	/* age of the oldest record that is not durable; null if all are */
	if (since != 0)
		age->time = Max(GetCurrentTimestamp() - since, 0);
	add_datum(row, IntervalPGetDatum(age), since == 0 || paq_queue_used() == 0);
}

static void
add_worker_columns(Row *row)
{
	const PaqWorkerStats worker = worker_stats();
	const uint32 worker_pid = pg_atomic_read_u32(&paq_stats->worker.worker_pid);
	const int	loader_pid = paq_loading_loader_pid();

	add_text(row, worker.last_error);
	add_time(row, worker.last_error_time);
	add_text(row, worker.sink);
	add_text(row, worker.current_file);
	add_datum(row, Int32GetDatum(worker_pid), worker_pid == 0);
	add_datum(row, Int32GetDatum(loader_pid), loader_pid == 0);
}

/*
 * audit_queue_stats() returns record
 *
 * The one row of the view of the same name; the columns are described in the
 * README.
 */
Datum
audit_queue_stats(PG_FUNCTION_ARGS)
{
	TupleDesc	tupdesc;
	Row			row = {0};
	PaqStatsCounters counters;
	TimestampTz reset_time;

	require_preload();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	reset_time = paq_stats_since_reset(&counters);
	add_queue_columns(&row, &counters);
	add_worker_columns(&row);
	add_time(&row, reset_time);

	if (tupdesc->natts != row.n)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("extension \"pg_audit_queue\" has another version than its library"),
				 errhint("Run ALTER EXTENSION pg_audit_queue UPDATE.")));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(tupdesc),
													  row.values, row.nulls)));
}

/*
 * audit_queue_stats_reset() returns void
 *
 * Sets the counters of the view to zero, and its high-water mark.
 */
Datum
audit_queue_stats_reset(PG_FUNCTION_ARGS)
{
	require_preload();
	paq_stats_reset();
	PG_RETURN_VOID();
}
