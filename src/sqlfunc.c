/*-------------------------------------------------------------------------
 *
 * sqlfunc.c
 *		The functions of the extension that do something, or show statistics;
 *		check.c has those that audit_check() needs, extension.c those that concern the
 *		extension's objects.
 *
 * All of them are for those to whom the extension's scripts grant them only.
 * They raise OBJECT_NOT_IN_PREREQUISITE_STATE if the library was not preloaded.
 *
 * A function's columns are those of the version of the extension that it is for:
 * an older version goes on working with this library.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "file_util.h"
#include "fmgr.h"
#include "funcapi.h"
#include "guc.h"
#include "queue/loading.h"
#include "queue/queue.h"
#include "sink/extent.h"
#include "sqlfunc.h"
#include "stats.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/tuplestore.h"

PG_FUNCTION_INFO_V1(audit_flush);
PG_FUNCTION_INFO_V1(audit_rotate);
PG_FUNCTION_INFO_V1(audit_seal);
PG_FUNCTION_INFO_V1(audit_queue_stats);
PG_FUNCTION_INFO_V1(audit_queue_stats_1_1);
PG_FUNCTION_INFO_V1(audit_queue_classes);
PG_FUNCTION_INFO_V1(audit_queue_stats_reset);

void
paq_require_preload(void)
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
 * Waits until every record published before the call is durable in the trail, and
 * so is the report of every record that was dropped before it.
 * Returns the sequence of a record up to which, itself included, the trail is
 * durable; 0 if there has been none since the server started.
 */
Datum
audit_flush(PG_FUNCTION_ARGS)
{
	paq_require_preload();
	paq_queue_wait_flushed(paq_queue_end());
	paq_queue_wait_reported();
	PG_RETURN_INT64((int64) paq_queue_flushed_sequence());
}

/*
 * Call a set-returning function of PostgreSQL without arguments, and use each of its
 * rows.  SPI would execute a query, which would be recorded.
 */
void
paq_use_rows(Oid function, void (*use) (void *arg, TupleTableSlot *row), void *arg)
{
	LOCAL_FCINFO(fcinfo, 0);
	FmgrInfo	flinfo;
	ReturnSetInfo rsinfo = {0};
	TupleTableSlot *slot;
	const bool	push = !ActiveSnapshotSet();

	/* A command with transactions of its own leaves none. */
	if (push)
		PushActiveSnapshot(GetTransactionSnapshot());
	fmgr_info(function, &flinfo);
	rsinfo.type = T_ReturnSetInfo;
	rsinfo.econtext = CreateStandaloneExprContext();
	rsinfo.allowedModes = SFRM_Materialize;
	rsinfo.returnMode = SFRM_Materialize;
	InitFunctionCallInfoData(*fcinfo, &flinfo, 0, InvalidOid, NULL,
							 (Node *) &rsinfo);
	FunctionCallInvoke(fcinfo);

	if (rsinfo.setResult != NULL)
	{
		slot = MakeSingleTupleTableSlot(rsinfo.setDesc, &TTSOpsMinimalTuple);
		while (tuplestore_gettupleslot(rsinfo.setResult, true, false, slot))
			use(arg, slot);
		ExecDropSingleTupleTableSlot(slot);
		tuplestore_end(rsinfo.setResult);
	}
	FreeExprContext(rsinfo.econtext, true);
	if (push)
		PopActiveSnapshot();
}

/* An OID column of a row by its name; invalid if it is null or missing. */
Oid
paq_slot_oid(TupleTableSlot *slot, const char *column)
{
	const int	number = SPI_fnumber(slot->tts_tupleDescriptor, column);
	Datum		value;
	bool		isnull;

	if (number <= 0)
		return InvalidOid;
	value = slot_getattr(slot, number, &isnull);
	return isnull ? InvalidOid : DatumGetObjectId(value);
}

/* What the worker says of itself, as of one moment */
PaqWorkerStats
paq_worker_stats(void)
{
	PaqWorkerStats worker;

	paq_stats_read(&worker, &paq_stats->worker, sizeof(worker));
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

	paq_require_preload();
	if (!paq_queue_request(PAQ_REQUEST_ROTATE))
		ereport(ERROR,
				(errcode(ERRCODE_IO_ERROR),
				 errmsg("could not start a new audit trail file"),
				 errdetail("The current file is written to until one can be made."),
				 errhint("The server log and the view \"audit_queue_stats\" show the reason.")));
	worker = paq_worker_stats();
	PG_RETURN_TEXT_P(cstring_to_text(worker.current_file));
}

/*
 * audit_seal() returns text
 *
 * Has the worker seal the trail, with all that was recorded before the call, and waits
 * until it has.  Returns the seal, to be kept where the server cannot change it.
 */
Datum
audit_seal(PG_FUNCTION_ARGS)
{
	PaqWorkerStats worker;

	paq_require_preload();
	paq_queue_wait_flushed(paq_queue_end());
	if (!paq_queue_request(PAQ_REQUEST_SEAL))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("audit trail is not sealed"),
				 paq_seal && paq_sink == PAQ_SINK_FILE ?
				 errhint("Make a key with \"pg_audit_trail keygen\", if there is none; or see \"last_error\" in \"pg_stat_audit_queue\".") :
				 errhint("Set \"pg_audit_queue.seal\" to on, with \"pg_audit_queue.sink\" at file, and make a key with \"pg_audit_trail keygen\".")));
	worker = paq_worker_stats();
	PG_RETURN_TEXT_P(cstring_to_text(worker.last_seal));
}

static void
add_count(PaqRow *row, uint64 value)
{
	paq_row_add(row, Int64GetDatum((int64) value), false);
}

/* Time 0 is null. */
static void
add_time(PaqRow *row, TimestampTz value)
{
	paq_row_add(row, TimestampTzGetDatum(value), value == 0);
}

static void
add_queue_columns(PaqRow *row, const PaqStatsCounters *counters, bool all)
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
	paq_row_add(row, Float8GetDatum(counters->waited_us / 1000.0), false);
	if (all)
	{
		add_count(row, counters->wal_commits);
		add_count(row, counters->wal_fallbacks);
	}

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
	if (all)
	{
		add_count(row, counters->seals);
		add_time(row, paq_worker_stats().last_seal_time);
	}

	/* age of the oldest record that is not durable; null if all are */
	if (since != 0)
		age->time = Max(GetCurrentTimestamp() - since, 0);
	paq_row_add(row, IntervalPGetDatum(age), since == 0 || paq_queue_used() == 0);
}

static void
add_worker_columns(PaqRow *row, bool all)
{
	const PaqWorkerStats worker = paq_worker_stats();
	const uint32 worker_pid = pg_atomic_read_u32(&paq_stats->worker.worker_pid);
	const int	loader_pid = paq_loading_loader_pid();

	paq_row_add_text(row, worker.last_error);
	add_time(row, worker.last_error_time);
	paq_row_add_text(row, worker.sink);
	paq_row_add_text(row, worker.current_file);
	paq_row_add(row, Int32GetDatum(worker_pid), worker_pid == 0);
	paq_row_add(row, Int32GetDatum(loader_pid), loader_pid == 0);
	if (all)
	{
		add_count(row, pg_atomic_read_u64(&paq_stats->worker.setting_errors));
		add_count(row, pg_atomic_read_u64(&paq_stats->worker.policy_errors));
	}
}

/* Size of a file system, and what is free; null if that cannot be known. */
static void
add_space(PaqRow *row, bool known, uint64 size, uint64 available)
{
	paq_row_add(row, Int64GetDatum((int64) size), !known);
	paq_row_add(row, Int64GetDatum((int64) available), !known);
}

static void
add_disk_columns(PaqRow *row)
{
	PaqTrailExtent extent;
	uint64		size = 0;
	uint64		available = 0;
	bool		known = paq_trail_extent(&extent);

	paq_row_add(row, Int64GetDatum((int64) extent.bytes), !known);
	paq_row_add_text(row, extent.oldest);
	add_time(row, extent.oldest_time);
	known = paq_trail_space(&size, &available);
	add_space(row, known, size, available);
	known = paq_disk_space(paq_queue_directory, &size, &available);
	add_space(row, known, size, available);
}

/* The row of statistics, with the columns of 1.0, or those of 1.1, too. */
static Datum
stats_row(FunctionCallInfo fcinfo, bool all)
{
	TupleDesc	tupdesc;
	PaqRow		row = {0};
	PaqStatsCounters counters;
	TimestampTz reset_time;

	paq_require_preload();
	if (get_call_result_type(fcinfo, NULL, &tupdesc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");

	reset_time = paq_stats_since_reset(&counters);
	add_queue_columns(&row, &counters, all);
	add_worker_columns(&row, all);
	if (all)
	{
		add_disk_columns(&row);
		paq_row_add_text(&row, PAQ_VERSION);
	}
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
 * audit_queue_stats() returns record
 *
 * The one row of the view of the same name; doc/settings.md describes the
 * columns.
 */
Datum
audit_queue_stats(PG_FUNCTION_ARGS)
{
	return stats_row(fcinfo, false);
}

/*
 * pg_stat_get_audit_queue() returns record
 *
 * The one row of view pg_stat_audit_queue.
 */
Datum
audit_queue_stats_1_1(PG_FUNCTION_ARGS)
{
	return stats_row(fcinfo, true);
}

/* What records of that kind have as class, or instead of it */
static const char *
label_of_kind(int kind)
{
	switch (kind)
	{
		case PAQ_KIND_OF_GAPS:
			return "GAP";
		case PAQ_KIND_OF_HEARTBEATS:
			return "HEARTBEAT";
		default:
			return paq_class_label(kind);
	}
}

/*
 * pg_stat_get_audit_queue_classes() returns setof record
 *
 * The rows of view pg_stat_audit_queue_classes: how many records of each class,
 * as records show it, are durable in the trail.  What has been written only may
 * have to be written again, and a counter should not go down.
 */
Datum
audit_queue_classes(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PaqStatsCounters counters;

	paq_require_preload();
	InitMaterializedSRF(fcinfo, 0);
	paq_stats_since_reset(&counters);
	counters.kinds[PAQ_CLASS_MISC] += counters.kinds[PAQ_CLASS_MISC_SET] +
		counters.kinds[PAQ_CLASS_SET_ROLE];
	for (int kind = PAQ_FIRST_CLASS; kind < PAQ_NKINDS; kind++)
	{
		PaqRow		row = {0};

		if (kind == PAQ_CLASS_MISC_SET || kind == PAQ_CLASS_SET_ROLE)
			continue;
		paq_row_add_text(&row, label_of_kind(kind));
		add_count(&row, counters.kinds[kind]);
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
	}
	return (Datum) 0;
}

bool
paq_is_statistics(PGFunction function)
{
	return function == audit_queue_stats || function == audit_queue_stats_1_1 ||
		function == audit_queue_classes;
}

/*
 * audit_queue_stats_reset() returns void
 *
 * Sets the counters of the view to zero, and its high-water mark.
 */
Datum
audit_queue_stats_reset(PG_FUNCTION_ARGS)
{
	paq_require_preload();
	paq_stats_reset();
	PG_RETURN_VOID();
}
