/*-------------------------------------------------------------------------
 *
 * row.c
 *		A line of a json file as a row of the table, in COPY's text format.
 *
 * The columns are those of json, named as columns are; what each means is
 * described in format/json.c.  Beyond these there are
 *
 *	series			with sequence, tells records apart; see sink/load_file.h
 *	remote_address	remote_host, if it is an address
 *	kept_file		where the whole record is, if the line was too long for a row
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
#include "utils/datetime.h"
#include "utils/timestamp.h"

typedef struct Column
{
	const char *field;			/* name in json; NULL: not from there */
	const char *column;
} Column;

/* In the order of json, so that the next field is found at once */
static const Column columns[] = {
	{"type", "type"},
	{"sequence", "sequence"},
	{"logTime", "log_time"},
	{"startTime", "start_time"},
	{"endTime", "end_time"},
	{"durationUs", "duration_us"},
	{"auditType", "audit_type"},
	{"class", "class"},
	{"command", "command"},
	{"commandText", "command_text"},
	{"commandTextOmitted", "command_text_omitted"},
	{"statementLocation", "statement_location"},
	{"statementLength", "statement_length"},
	{"paramList", "parameters"},
	{"paramListOmitted", "parameters_omitted"},
	{"objectType", "object_type"},
	{"objectName", "object_name"},
	{"oldValue", "old_value"},
	{"newValue", "new_value"},
	{"valueSource", "value_source"},
	{"rowCount", "row_count"},
	{"exitCode", "sqlstate"},
	{"errorMessage", "error_message"},
	{"statementId", "statement_id"},
	{"substatementId", "substatement_id"},
	{"sessionLine", "session_line"},
	{"sessionId", "session_id"},
	{"sessionStart", "session_start"},
	{"pid", "pid"},
	{"backendType", "backend_type"},
	{"dbUserName", "user_name"},
	{"sessionUser", "session_user_name"},
	{"currentUser", "current_user_name"},
	{"databaseName", "database_name"},
	{"remoteHost", "remote_host"},
	{"remotePort", "remote_port"},
	{"netProtocol", "net_protocol"},
	{"dbProtocol", "db_protocol"},
	{"clientApplication", "application_name"},
	{"serverHost", "server_host"},
	{"serverType", "server_type"},
	{"serverVersion", "server_version"},
	{"serviceName", "cluster_name"},
	{"transactionId", "transaction_id"},
	{"virtualTransactionId", "virtual_transaction_id"},
	{"queryId", "query_id"},
	{"textEncoding", "text_encoding"},
	{"interrupted", "interrupted"},
	{"cut", "cut"},
	{"incomplete", "incomplete"},
	{"masked", "masked"},
	{NULL, "series"},
	{NULL, "remote_address"},
	{NULL, "kept_file"}
};

#define NCOLUMNS	lengthof(columns)

/* Columns that are needed by name; find_columns() */
static int	log_time_column = -1;
static int	remote_host_column;
static int	type_column;
static int	cut_column;
static int	flag_columns[4];	/* false if the field is missing */

/* A row being made: the columns' values as texts, NULL for null */
typedef struct Row
{
	JsonLexContext *lex;
	const char *values[NCOLUMNS];
	int			column;			/* of the field being parsed, -1: none of ours */
	int			next;			/* column that the next field probably has */
	int			depth;			/* of arrays */
	const char *array;			/* where the outermost one begins */
} Row;

static int
find_column(const char *column)
{
	for (int i = 0; i < NCOLUMNS; i++)
		if (strcmp(columns[i].column, column) == 0)
			return i;
	elog(ERROR, "no column \"%s\"", column);
}

static void
find_columns(void)
{
	if (log_time_column >= 0)
		return;
	remote_host_column = find_column("remote_host");
	type_column = find_column("type");
	cut_column = find_column("cut");
	flag_columns[0] = find_column("interrupted");
	flag_columns[1] = cut_column;
	flag_columns[2] = find_column("incomplete");
	flag_columns[3] = find_column("masked");
	log_time_column = find_column("log_time");
}

/* Names of the columns in the order of a row, as COPY wants them. */
List *
paq_row_columns(void)
{
	List	   *names = NIL;

	for (int i = 0; i < NCOLUMNS; i++)
		names = lappend(names, makeString(pstrdup(columns[i].column)));
	return names;
}

/* A field begins: which column is it? */
static PAQ_JSON_RESULT
field_start(void *state, char *name, bool isnull)
{
	Row		   *row = state;

	row->column = -1;
	for (int i = 0; i < NCOLUMNS; i++)
	{
		int			column = (row->next + i) % NCOLUMNS;

		if (columns[column].field != NULL &&
			strcmp(columns[column].field, name) == 0)
		{
			row->column = column;
			row->next = column + 1;
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

	if (row->depth == 0 && row->column >= 0 && type != JSON_TOKEN_NULL)
		row->values[row->column] = token;
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

	if (--row->depth == 0 && row->column >= 0)
		row->values[row->column] =
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
		row->values[type_column] != NULL;
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
	static const char name[] = "\"logTime\":\"";

	char		head[256];
	const Size	len = Min(line->len, sizeof(head) - 1);
	const char *time;

	/*
	 * Nothing before it in a line is of any length, or a user's.  Not strlcpy(),
	 * which would go on to the end of the file to tell its length.
	 */
	memcpy(head, line->data, len);
	head[len] = '\0';
	time = strstr(head, name);
	return time != NULL && day_of_text(time + sizeof(name) - 1, day);
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

	if (row->values[log_time_column] != NULL)
	{
		if (!day_of_text(row->values[log_time_column], &day))
			return false;
	}
	else
	{
		TimestampTz now = GetCurrentTimestamp();

		row->values[log_time_column] = pstrdup(timestamptz_to_str(now));
		day = paq_day_of(now);
	}
	add_day(batch, day);
	for (int i = 0; i < lengthof(flag_columns); i++)
		if (row->values[flag_columns[i]] == NULL)
			row->values[flag_columns[i]] = "f";
	row->values[NCOLUMNS - 3] = psprintf(INT64_FORMAT, (int64) line->series);
	row->values[NCOLUMNS - 2] = address_of(row->values[remote_host_column]);
	if (line->shortened)
	{
		row->values[cut_column] = "t";
		row->values[NCOLUMNS - 1] = psprintf("%s" PAQ_KEPT_SUFFIX, line->path);
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

	find_columns();
	memset(&row, 0, sizeof(row));
	if (!fill_row(&row, line) || !complete_row(&row, line, batch))
		return false;
	for (int i = 0; i < NCOLUMNS; i++)
	{
		if (i > 0)
			appendStringInfoChar(&batch->rows, '\t');
		append_value(&batch->rows, row.values[i]);
	}
	appendStringInfoChar(&batch->rows, '\n');
	batch->count++;
	return true;
}
