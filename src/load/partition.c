/*-------------------------------------------------------------------------
 *
 * partition.c
 *		Partitions of the table: one a day, UTC, made ahead, and dropped when
 *		they are old.
 *
 * A partition is a table of its own first and is attached then: that needs a
 * lock on the table with which readers and writers go on.  Dropping one does
 * not; it is given up quickly if somebody reads, and tried again later.  It is not
 * begun before the trail tells of it, see removal.c.
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

/* Days whose partitions are known to be there */
static List *known = NIL;

void
paq_partitions_forget(void)
{
	list_free(known);
	known = NIL;
}

/* The day of a time: so many after 2000-01-01, UTC. */
int
paq_day_of(TimestampTz time)
{
	int64		day = time / USECS_PER_DAY;

	return (int) (time % USECS_PER_DAY < 0 ? day - 1 : day);
}

static TimestampTz
start_of(int day)
{
	return (TimestampTz) day * USECS_PER_DAY;
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

static bool
exists(const char *name)
{
	run(psprintf("SELECT 1"
				 "  FROM pg_catalog.pg_inherits i"
				 "  JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid"
				 " WHERE i.inhparent = %u AND c.relname = %s",
				 paq_table_oid(), quote_literal_cstr(name)),
		SPI_OK_SELECT);
	return SPI_processed > 0;
}

/* Whatever default privileges there are, nobody has any on the partition. */
static void
revoke_all(const char *name)
{
	char	   *revoke = NULL;

	run(psprintf("SELECT 'REVOKE ALL ON " SCHEMA ".%s FROM '"
				 " || pg_catalog.string_agg(DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC'"
				 " ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END, ', ')"
				 "  FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a"
				 " WHERE c.oid = '" SCHEMA ".%s'::pg_catalog.regclass"
				 "   AND a.grantee <> c.relowner", name, name),
		SPI_OK_SELECT);
	if (SPI_processed > 0)
		revoke = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	if (revoke != NULL)
		run(revoke, SPI_OK_UTILITY);
}

static void
make(int day, const char *name)
{
	char	   *from = pstrdup(timestamptz_to_str(start_of(day)));
	char	   *to = pstrdup(timestamptz_to_str(start_of(day + 1)));

	run(psprintf("CREATE %s TABLE " SCHEMA ".%s (LIKE " SCHEMA ".records INCLUDING ALL)",
				 paq_table_logged ? "" : "UNLOGGED", name),
		SPI_OK_UTILITY);
	revoke_all(name);
	run(psprintf("ALTER TABLE " SCHEMA ".records ATTACH PARTITION " SCHEMA ".%s"
				 " FOR VALUES FROM ('%s') TO ('%s')", name, from, to),
		SPI_OK_UTILITY);
}

/* See to it that there is a partition for records of the day. */
void
paq_partition_need(int day)
{
	MemoryContext old_context;
	char	   *name;

	if (list_member_int(known, day))
		return;
	name = name_of(day);
	(void) paq_table_oid();
	SPI_connect();
	if (!exists(name))
		make(day, name);
	SPI_finish();
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	known = lappend_int(known, day);
	MemoryContextSwitchTo(old_context);
}

/* Make partitions for the days to come. */
void
paq_partitions_make_ahead(TimestampTz now)
{
	const int	today = paq_day_of(now);

	paq_partitions_forget();
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
	const TimestampTz limit = now -
		(TimestampTz) paq_table_retention * SECS_PER_MINUTE * USECS_PER_SEC;
	char	   *name;
	Oid			partition;
	int			day;
	bool		due;

	*recording = false;
	if (paq_table_retention == 0)
		return false;
	(void) paq_table_oid();
	SPI_connect();
	name = oldest(&partition);
	due = name != NULL && parse_name(name, &day) && start_of(day + 1) <= limit;
	if (due && !paq_removal_is_recorded(partition, name, size_of(partition)))
	{
		*recording = true;
		due = false;
	}
	if (due)
	{
		run(psprintf("DROP TABLE " SCHEMA ".%s", name), SPI_OK_UTILITY);
		ereport(LOG,
				(errmsg("dropping partition \"%s\" of the audit table, which is older than \"pg_audit_queue.table_retention\"",
						name)));
	}
	SPI_finish();
	if (due)
		paq_partitions_forget();
	return due;
}
