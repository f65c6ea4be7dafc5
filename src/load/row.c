/*-------------------------------------------------------------------------
 *
 * row.c
 *		A line of a json file as a row of the table, in COPY's text format.
 *
 * record/fieldlist.h has the columns: json's fields, and three more.  A record
 * without a time, as a GAP record may be, is filed under the time at which it is
 * loaded.  A line that is not what the worker writes becomes no row.  What its texts
 * become is in read/text.c.
 *
 * Rows must be made in a transaction: the conversions are in a catalog.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "load/load_internal.h"
#include "read/read.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

/* A row being made: the fields' values as texts, NULL for null */
typedef struct Row
{
	const char *values[PAQ_TRAIL_NFIELDS];
} Row;

/* Take over what the line says; false if it is damaged. */
static bool
fill_row(Row *row, const PaqLoadLine *line)
{
	PaqLine		parsed;

	return paq_line_parse(line->data, line->len, &parsed) &&
		paq_line_has(&parsed, PAQ_TRAIL_TYPE) &&
		paq_line_texts(&parsed, line->shortened, row->values);
}

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
 * The day, UTC, under which the line's record is filed: that of its logTime,
 * "2026-11-20T10:11:12.123456+00:00".  False if the line has none; the record
 * then counts for the day on which it was loaded.
 */
bool
paq_row_day(const PaqLoadLine *line, int *day)
{
	const char *key = paq_trail_fields[PAQ_TRAIL_LOG_TIME].key;
	char		head[256];
	const Size	len = Min(line->len, sizeof(head) - 1);
	const char *time;
	int			year;
	int			month;
	int			mday;
	int			hour;
	int			minute;
	int			second;
	int			off_hour;
	int			off_minute;
	int			off_second = 0;
	char		sign;
	int64		seconds;

	/*
	 * Nothing before logTime is of any length, or a user's.  Not strlcpy(), which
	 * would go on to the end of the file to tell its length.
	 */
	memcpy(head, line->data, len);
	head[len] = '\0';
	time = strstr(head, key);
	if (time == NULL ||
		sscanf(time + strlen(key), "\"%d-%2d-%2dT%2d:%2d:%2d.%*6d%c%2d:%2d:%2d",
			   &year, &month, &mday, &hour, &minute, &second,
			   &sign, &off_hour, &off_minute, &off_second) < 9 ||
		(sign != '+' && sign != '-') ||
		month < 1 || month > 12 || mday < 1 || mday > 31)
		return false;
	seconds = (off_hour * 60 + off_minute) * 60 + off_second;
	seconds = (hour * 60 + minute) * 60 + second + (sign == '-' ? seconds : -seconds);
	*day = date2j(year, month, mday) - POSTGRES_EPOCH_JDATE +
		paq_day_of(seconds * USECS_PER_SEC);
	return true;
}

static void
add_day(PaqBatch *batch, int day)
{
	MemoryContext old_context;

	if (list_member_int(batch->days, day))
		return;
	old_context = MemoryContextSwitchTo(batch->context);
	batch->days = lappend_int(batch->days, day);
	MemoryContextSwitchTo(old_context);
}

/* Fill in what the line does not have; false if its time is damaged. */
static bool
complete_row(Row *row, const PaqLoadLine *line, PaqBatch *batch)
{
	int			day;

	if (row->values[PAQ_TRAIL_LOG_TIME] == NULL)
	{
		TimestampTz now = GetCurrentTimestamp();

		row->values[PAQ_TRAIL_LOG_TIME] = pstrdup(timestamptz_to_str(now));
		day = paq_day_of(now);
	}
	else if (!paq_row_day(line, &day))
		return false;
	add_day(batch, day);
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
		if (paq_trail_fields[i].type == PAQ_JSON_MARK && row->values[i] == NULL)
			row->values[i] = "false";
	row->values[PAQ_TRAIL_SERIES] = psprintf(INT64_FORMAT, (int64) line->series);
	row->values[PAQ_TRAIL_REMOTE_ADDRESS] =
		paq_host_address(row->values[PAQ_TRAIL_REMOTE_HOST]);
	if (line->shortened)
	{
		row->values[PAQ_TRAIL_CUT] = "true";
		row->values[PAQ_TRAIL_KEPT_FILE] = psprintf("%s" PAQ_KEPT_SUFFIX, line->path);
	}
	return true;
}

/* Append a value of a row in COPY's text format. */
static void
append_value(StringInfo dst, const char *value)
{
	const char *run = value;
	const char *p;

	if (value == NULL)
	{
		appendBinaryStringInfo(dst, "\\N", 2);
		return;
	}
	for (p = value; *p != '\0'; p++)
	{
		const char *escape;

		switch (*p)
		{
			case '\\':
				escape = "\\\\";
				break;
			case '\t':
				escape = "\\t";
				break;
			case '\n':
				escape = "\\n";
				break;
			case '\r':
				escape = "\\r";
				break;
			default:
				continue;
		}
		appendBinaryStringInfo(dst, run, p - run);
		appendBinaryStringInfo(dst, escape, 2);
		run = p + 1;
	}
	appendBinaryStringInfo(dst, run, p - run);
}

/*
 * Add the line to the batch; false if it is damaged.  Leaves garbage in the
 * current memory context.
 */
bool
paq_row_add(PaqBatch *batch, const PaqLoadLine *line)
{
	Row			row;
	ListCell   *lc;

	if (!fill_row(&row, line) || !complete_row(&row, line, batch))
		return false;
	foreach(lc, batch->columns)
	{
		append_value(&batch->rows, row.values[lfirst_int(lc)]);
		appendStringInfoChar(&batch->rows, '\t');
	}
	batch->rows.data[batch->rows.len - 1] = '\n';
	batch->count++;
	return true;
}
