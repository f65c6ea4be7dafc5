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
 *
 * A record without a time, as a GAP record may be, is filed under the time at
 * which it is loaded.  Of a line longer than PAQ_MAX_LINE only the beginning
 * is looked at: its row says in which file the record is, and the file stays.
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
	{NULL, "series"},
	{NULL, "remote_address"}
};

#define NCOLUMNS	lengthof(columns)

/* Columns that are needed by name; find_columns() */
static int	log_time_column = -1;
static int	remote_host_column;
static int	error_message_column;
static int	sequence_column;
static int	type_column;
static int	flag_columns[3];	/* false if the field is missing */

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
	error_message_column = find_column("error_message");
	sequence_column = find_column("sequence");
	type_column = find_column("type");
	flag_columns[0] = find_column("interrupted");
	flag_columns[1] = find_column("cut");
	flag_columns[2] = find_column("incomplete");
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

/*
 * The head of a record that is too long: its time, which comes before all that
 * can be long; and where to find the rest.
 */
static void
fill_stub(Row *row, const PaqLoadLine *line)
{
	static const char name[] = "\"logTime\":\"";
	const char *head = pnstrdup(line->data, 256);
	const char *time = strstr(head, name);
	const char *end;

	if (time != NULL)
	{
		time += sizeof(name) - 1;
		end = strchr(time, '"');
		if (end != NULL)
			row->values[log_time_column] = pnstrdup(time, end - time);
	}
	row->values[type_column] = "record";
	row->values[sequence_column] = psprintf(UINT64_FORMAT, line->sequence);
	row->values[flag_columns[1]] = "t";
	row->values[error_message_column] =
		psprintf("the record is too long for a row, it has %llu bytes: see file \"%s.kept\"",
				 (unsigned long long) line->len, line->path);
}

/* Take over what the line says; false if it is damaged. */
static bool
fill_row(Row *row, const PaqLoadLine *line)
{
	Size		len = line->len;
	const char *text;

	if (line->len > PAQ_MAX_LINE)
	{
		fill_stub(row, line);
		return true;
	}
	text = paq_load_text(line->data, &len);
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
	row->values[NCOLUMNS - 2] = psprintf(INT64_FORMAT, (int64) line->series);
	row->values[NCOLUMNS - 1] = address_of(row->values[remote_host_column]);
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
