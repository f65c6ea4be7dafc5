/*-------------------------------------------------------------------------
 *
 * row.c
 *		A line of a json file as a row of the table, in COPY's text format.
 *
 * record/fieldlist.h has the columns: json's fields, and three more.
 *
 * A record without a time, as a GAP record may be, is filed under the time at
 * which it is loaded.
 *
 * A line that is not what the worker writes becomes no row.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "compat.h"
#include "load/load_internal.h"
#include "mb/pg_wchar.h"
#include "nodes/value.h"
#include "record/record.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

/* A row being made: the fields' values as texts, NULL for null */
typedef struct Row
{
	JsonLexContext *lex;
	const char *values[PAQ_TRAIL_NFIELDS];
	int			field;			/* that is being parsed, -1: none of ours */
	int			next;			/* the one that probably follows */
	int			depth;			/* of arrays */
	const char *array;			/* where the outermost one begins */
} Row;

/* Names of the columns in the order of a row, as COPY wants them. */
List *
paq_row_columns(void)
{
	List	   *names = NIL;

	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
		if (paq_trail_fields[i].column != NULL)
			names = lappend(names, makeString(pstrdup(paq_trail_fields[i].column)));
	return names;
}

/* A field begins: which one is it?  Lines have them in the order of the list. */
static PAQ_JSON_RESULT
field_start(void *state, char *name, bool isnull)
{
	Row		   *row = state;

	row->field = -1;
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
	{
		int			field = (row->next + i) % PAQ_TRAIL_NFIELDS;
		const char *json = paq_trail_fields[field].json;

		if (json != NULL && strcmp(json, name) == 0)
		{
			row->field = field;
			row->next = field + 1;
			break;
		}
	}
	pfree(name);
	return PAQ_JSON_DONE;
}

static PAQ_JSON_RESULT
scalar(void *state, char *token, JsonTokenType type)
{
	Row		   *row = state;

	if (row->depth == 0 && row->field >= 0 && type != JSON_TOKEN_NULL)
		row->values[row->field] = token;
	return PAQ_JSON_DONE;
}

/* An array is taken as it is written. */
static PAQ_JSON_RESULT
array_start(void *state)
{
	Row		   *row = state;

	if (row->depth++ == 0)
		row->array = row->lex->token_start;
	return PAQ_JSON_DONE;
}

static PAQ_JSON_RESULT
array_end(void *state)
{
	Row		   *row = state;

	if (--row->depth == 0 && row->field >= 0)
		row->values[row->field] =
			pnstrdup(row->array, row->lex->prev_token_terminator - row->array);
	return PAQ_JSON_DONE;
}

static bool
parse_line(Row *row, const char *line, Size len)
{
	JsonSemAction actions = {0};

	actions.semstate = row;
	actions.object_field_start = field_start;
	actions.scalar = scalar;
	actions.array_start = array_start;
	actions.array_end = array_end;
	row->lex = paq_json_lex(line, len);
	return pg_parse_json(row->lex, &actions) == JSON_SUCCESS;
}

/* Take over what the line says; false if it is damaged. */
static bool
fill_row(Row *row, const PaqLoadLine *line)
{
	Size		len = line->len;
	const char *text = paq_load_text(line->data, &len);

	return text != NULL && parse_line(row, text, len) &&
		row->values[PAQ_TRAIL_TYPE] != NULL;
}

/* The client's address, if that is what the host is. */
static const char *
address_of(const char *host)
{
	unsigned char address[sizeof(struct in6_addr)];
	char	   *zone;
	char	   *copy;

	if (host == NULL || host[0] == '[')
		return NULL;
	copy = pstrdup(host);
	zone = strchr(copy, '%');
	if (zone != NULL)
		*zone = '\0';
	return inet_pton(AF_INET, copy, address) == 1 ||
		inet_pton(AF_INET6, copy, address) == 1 ? copy : NULL;
}

/*
 * The day of a time as json has it, "2026-11-20T10:11:12.123456+00:00"; false if
 * it is none.
 */
static bool
day_of_text(const char *time, int *day)
{
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
	int			offset;
	int			seconds;

	if (sscanf(time, "%d-%2d-%2dT%2d:%2d:%2d.%*6d%c%2d:%2d:%2d",
			   &year, &month, &mday, &hour, &minute, &second,
			   &sign, &off_hour, &off_minute, &off_second) < 9 ||
		(sign != '+' && sign != '-') ||
		month < 1 || month > 12 || mday < 1 || mday > 31)
		return false;
	offset = (off_hour * 60 + off_minute) * 60 + off_second;
	seconds = (hour * 60 + minute) * 60 + second -
		(sign == '-' ? -offset : offset);
	*day = date2j(year, month, mday) - POSTGRES_EPOCH_JDATE;
	if (seconds < 0)
		(*day)--;
	else if (seconds >= SECS_PER_DAY)
		(*day)++;
	return true;
}

/*
 * The day under which the line's record is filed; false if that cannot be told,
 * for it is that on which the record was loaded.
 */
bool
paq_row_day(const PaqLoadLine *line, int *day)
{
	const char *key = paq_trail_fields[PAQ_TRAIL_LOG_TIME].key;
	char		head[256];
	const Size	len = Min(line->len, sizeof(head) - 1);
	const char *time;

	/*
	 * Nothing before it in a line is of any length, or a user's.  Not strlcpy(),
	 * which would go on to the end of the file to tell its length.
	 */
	memcpy(head, line->data, len);
	head[len] = '\0';
	time = strstr(head, key);
	if (time == NULL)
		return false;
	time += strlen(key);
	return *time == '"' && day_of_text(time + 1, day);
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

/* What does not come from the line, or is missing there; false if it is wrong. */
static bool
complete_row(Row *row, const PaqLoadLine *line, PaqBatch *batch)
{
	int			day;

	if (row->values[PAQ_TRAIL_LOG_TIME] != NULL)
	{
		if (!day_of_text(row->values[PAQ_TRAIL_LOG_TIME], &day))
			return false;
	}
	else
	{
		TimestampTz now = GetCurrentTimestamp();

		row->values[PAQ_TRAIL_LOG_TIME] = pstrdup(timestamptz_to_str(now));
		day = paq_day_of(now);
	}
	add_day(batch, day);
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
		if (paq_trail_fields[i].type == PAQ_JSON_BOOLEAN && row->values[i] == NULL)
			row->values[i] = "f";
	row->values[PAQ_TRAIL_SERIES] = psprintf(INT64_FORMAT, (int64) line->series);
	row->values[PAQ_TRAIL_REMOTE_ADDRESS] = address_of(row->values[PAQ_TRAIL_REMOTE_HOST]);
	if (line->shortened)
	{
		row->values[PAQ_TRAIL_CUT] = "t";
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

	memset(&row, 0, sizeof(row));
	if (!fill_row(&row, line) || !complete_row(&row, line, batch))
		return false;
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
	{
		if (paq_trail_fields[i].column == NULL)
			continue;
		append_value(&batch->rows, row.values[i]);
		appendStringInfoChar(&batch->rows, '\t');
	}
	batch->rows.data[batch->rows.len - 1] = '\n';
	batch->count++;
	return true;
}
