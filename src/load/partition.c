/*-------------------------------------------------------------------------
 *
 * partition.c
 *		Partitions of the table: one a day, UTC, made ahead, and dropped when
 *		they are old.
 *
 * A partition is a table of its own first and is attached then: that needs a
 * lock on the table with which readers and writers go on.  It has the indexes,
 * because pg_restore could not make what partitions get from the extension's
 * table; a row security of its own, because that of the table counts for those
 * only who name the table; and privileges for nobody.  Of what is in the records
 * it has no statistics, because row security does not hide them in pg_statistic.
 *
 * Dropping one does not let readers go on; it is given up quickly if there are
 * any, and tried again later.  What somebody has made of it - a view, a column of
 * its row type - goes with it, or anybody could keep it.  It is not begun before
 * the trail tells of it, see removal.c.
 *
 * Must be called in a transaction with a snapshot, and may raise an error.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "executor/spi.h"
#include "guc.h"
#include "load/load_internal.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define SCHEMA		PAQ_TABLE_SCHEMA
#define PREFIX		"records_"

/* Partitions are made for today and so many days after. */
#define DAYS_AHEAD	2

/* The day of a time: so many after 2000-01-01, UTC. */
int
paq_day_of(TimestampTz time)
{
	int64		day = time / USECS_PER_DAY;

	return (int) (time % USECS_PER_DAY < 0 ? day - 1 : day);
}

TimestampTz
paq_start_of(int day)
{
	return day == INT_MIN ? DT_NOBEGIN : (TimestampTz) day * USECS_PER_DAY;
}

/*
 * The first day that table_retention says the table has; INT_MIN if it keeps
 * all.
 */
int
paq_first_day(TimestampTz now)
{
	if (paq_table_retention == 0)
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

/* The other way round; false if it is no such name. */
static bool
parse_name(const char *name, int *day)
{
	int			year;
	int			month;
	int			mday;

	if (sscanf(name, PREFIX "%4d%2d%2d", &year, &month, &mday) != 3)
		return false;
	*day = date2j(year, month, mday) - POSTGRES_EPOCH_JDATE;
	return strcmp(name_of(*day), name) == 0;
}

static void
run(const char *query, int expected)
{
	int			rc = SPI_execute(query, false, 0);

	if (rc != expected)
		elog(ERROR, "SPI_execute failed: %s", SPI_result_code_string(rc));
}

/* Run the command that is the result of a query, unless that is null. */
static void
run_result(const char *query)
{
	char	   *command = NULL;

	run(query, SPI_OK_SELECT);
	if (SPI_processed > 0)
		command = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (command != NULL)
		run(command, SPI_OK_UTILITY);
}

/* Whatever default privileges there are, nobody has any on the partition. */
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

/* Nor are there statistics of its columns, but for those that it is ordered by. */
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
 * Records come nearly in the order of the first index, which is all that such an
 * index needs.  The second one is for finding out which records there are.
 */
static void
make(int day, const char *name)
{
	char	   *from = pstrdup(timestamptz_to_str(paq_start_of(day)));
	char	   *to = pstrdup(timestamptz_to_str(paq_start_of(day + 1)));

	run(psprintf("CREATE %s TABLE " SCHEMA ".%s (LIKE " SCHEMA ".records INCLUDING ALL)",
				 paq_table_logged ? "" : "UNLOGGED", name),
		SPI_OK_UTILITY);
	run(psprintf("ALTER TABLE " SCHEMA ".%s ENABLE ROW LEVEL SECURITY,"
				 " FORCE ROW LEVEL SECURITY", name),
		SPI_OK_UTILITY);
	revoke_all(name);
	forgo_statistics(name);
	run(psprintf("CREATE INDEX %s_time ON " SCHEMA ".%s USING brin (log_time)",
				 name, name),
		SPI_OK_UTILITY);
	run(psprintf("CREATE UNIQUE INDEX %s_key ON " SCHEMA ".%s (series, sequence)",
				 name, name),
		SPI_OK_UTILITY);
	run(psprintf("ALTER TABLE " SCHEMA ".records ATTACH PARTITION " SCHEMA ".%s"
				 " FOR VALUES FROM ('%s') TO ('%s')", name, from, to),
		SPI_OK_UTILITY);
}

/* See to it that there is a partition for records of the day, and lock it. */
void
paq_partition_need(int day)
{
	char	   *name = name_of(day);

	if (paq_table_lock_partition(name))
		return;
	SPI_connect();
	make(day, name);
	SPI_finish();
}

/* Make partitions for the days to come. */
void
paq_partitions_make_ahead(TimestampTz now)
{
	const int	today = paq_day_of(now);

	for (int day = today; day <= today + DAYS_AHEAD; day++)
		paq_partition_need(day);
}

/* Name and OID of the oldest partition; NULL if there is none. */
static char *
oldest(Oid *partition)
{
	bool		isnull;

	run(psprintf("SELECT c.relname::pg_catalog.text, c.oid"
				 "  FROM pg_catalog.pg_inherits i"
				 "  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid"
				 " WHERE i.inhparent = %u AND c.relname ~ '^" PREFIX "[0-9]{8}$'"
				 " ORDER BY c.relname LIMIT 1",
				 paq_table_oid()),
		SPI_OK_SELECT);
	if (SPI_processed == 0)
		return NULL;
	*partition = DatumGetObjectId(SPI_getbinval(SPI_tuptable->vals[0],
												SPI_tuptable->tupdesc, 2, &isnull));
	return SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
}

/* What dropping the partition sets free, in bytes */
static uint64
size_of(Oid partition)
{
	Datum		size = DirectFunctionCall1(pg_total_relation_size,
									 ObjectIdGetDatum(partition));

	return (uint64) DatumGetInt64(size);
}

/*
 * Drop the oldest partition if table_retention has passed since the end of its
 * day, and if there is a record of that.  Returns whether that was done.
 * *recording is set to whether it has to be called again for it soon.
 */
bool
paq_partitions_drop_oldest(TimestampTz now, bool *recording)
{
	char	   *name;
	Oid			partition;
	int			day;
	bool		due;

	*recording = false;
	if (paq_table_retention == 0)
		return false;
	SPI_connect();
	name = oldest(&partition);
	due = name != NULL && parse_name(name, &day) && day < paq_first_day(now);
	if (due && !paq_removal_is_recorded("TABLE", psprintf(SCHEMA ".%s", name), name,
										size_of(partition)))
	{
		*recording = true;
		due = false;
	}
	if (due)
	{
		run(psprintf("DROP TABLE " SCHEMA ".%s CASCADE", name), SPI_OK_UTILITY);
		paq_removal_done();
		ereport(LOG,
				(errmsg("dropping partition \"%s\" of the audit table, which is older than \"pg_audit_queue.table_retention\"",
						name)));
	}
	SPI_finish();
	return due;
}
