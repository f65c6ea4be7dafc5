/*-------------------------------------------------------------------------
 *
 * csvlog.c
 *		The csvlog format: PostgreSQL's own CSV log, with what pgaudit writes.
 *
 * The columns are those of PostgreSQL 14 and later, quoted as PostgreSQL
 * quotes them, so that whatever reads its log reads this.  They say of the
 * record, not of the process that writes it.  doc/formats.md has those that differ from
 * PostgreSQL's.  session_line_num is minus the sequence if the record has no number
 * in its session: it is unique together with session_id, as in the table of
 * PostgreSQL's documentation.
 *
 * Texts are in the encoding of their database, as in PostgreSQL's log.  In a
 * record with a text that is not valid there (for SQL_ASCII: not valid UTF-8),
 * each byte that is not, and each backslash, is written as "\x" and two
 * hexadecimal digits; the hint says "escaped".  So no byte is lost, and where
 * all databases are UTF8 or SQL_ASCII, the file is valid UTF-8.  (A client that has
 * not logged in yet counts as SQL_ASCII.)
 *
 * A record may have newlines within quotes; one outside of quotes ends it.
 *
 * Guarantees: bounded memory; the message, quoted within quotes, is written as
 * it is made.  Must not allocate or raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "format/format_internal.h"

#include <ctype.h>

#include "mb/pg_wchar.h"

#define NCOLUMNS	26

/* Columns that are looked for in a written record, counted from 0 */
#define COLUMN_SESSION_LINE	6
#define COLUMN_MESSAGE		13
#define COLUMN_HINT			15
#define COLUMN_LOCATION		21

/* What all hints begin with */
#define SERIES_START	"series="

/* What all messages begin with */
#define MESSAGE_START	"AUDIT: "

#define CHUNK_SIZE	512

/* The record that is being written */
typedef struct CsvRow
{
	PaqBuffer	message;		/* first, for drain_message(): what is still to
								 * be quoted */
	PaqBuffer  *out;
	const PaqRecord *record;
	int			encoding;		/* that texts are checked against */
	bool		escape;			/* some text is not valid in it */
	char		chunk[CHUNK_SIZE];	/* of message */
} CsvRow;

static bool
is_valid_text(int encoding, const char *data, Size len)
{
	return pg_encoding_verifymbstr(encoding, data, len) == len;
}

/* The same for all elements of a list */
static bool
is_valid_list(int encoding, PaqText list)
{
	PaqParamIter iter;
	const char *value;
	int32		len;

	paq_param_begin(&iter, list);
	while (paq_param_next(&iter, &len, &value))
		if (len > 0 && !is_valid_text(encoding, value, len))
			return false;
	return true;
}

static bool
has_valid_texts(int encoding, const PaqRecord *record)
{
	for (int field = 0; field < PAQ_NFIELDS; field++)
	{
		PaqText		text = record->field[field];

		if (text.data == NULL || field == PAQ_FIELD_SPILL)
			continue;
		if (field == PAQ_FIELD_PARAMETER || field == PAQ_FIELD_SETTINGS ?
			!is_valid_list(encoding, text) :
			!is_valid_text(encoding, text.data, text.len))
			return false;
	}
	return true;
}

static void
put_byte_escaped(PaqBuffer *buf, unsigned char c)
{
	char		text[8];

	paq_put(buf, text, snprintf(text, sizeof(text), "\\x%02x", c));
}

/*
 * Append text within quotes, each of its own quotes nquotes times.  With more,
 * there is more of it to come: then a character that may be incomplete is left
 * alone.  Returns how many bytes were taken.
 */
static Size
put_quoted_part(const CsvRow *row, const char *data, Size len, int nquotes, bool more)
{
	const char *p = data;
	const char *end = data + len;

	if (!row->escape)
	{
		paq_put_escaped(row->out, data, len, nquotes, false);
		return len;
	}
	while (p < end && !(more && end - p < MAX_MULTIBYTE_CHAR_LEN))
	{
		int			char_len = pg_encoding_verifymbchar(row->encoding, p, end - p);

		if (char_len < 1 || *p == '\\' || *p == '\0')
		{
			put_byte_escaped(row->out, *p);
			char_len = 1;
		}
		else
			paq_put_escaped(row->out, p, char_len, nquotes, false);
		p += char_len;
	}
	return p - data;
}

/*
 * Quote what the message's buffer has, but for a character that may be
 * incomplete.
 */
static bool
drain_message(PaqBuffer *buf)
{
	CsvRow	   *row = (CsvRow *) buf;
	Size		done = put_quoted_part(row, buf->data, buf->used, 2, true);

	memmove(buf->data, buf->data + done, buf->used - done);
	buf->used -= done;
	return !row->out->failed;
}

static void
put_csv_message(CsvRow *row)
{
	row->message.data = row->chunk;
	row->message.used = 0;
	row->message.size = CHUNK_SIZE;
	row->message.failed = false;
	row->message.drain = drain_message;

	paq_buffer_putc(row->out, '"');
	paq_format_message(&row->message, row->record);
	put_quoted_part(row, row->message.data, row->message.used, 2, false);
	paq_buffer_putc(row->out, '"');
}

/* Append a text column and the comma behind it; null is nothing at all. */
static void
put_csv_text(const CsvRow *row, PaqText text)
{
	if (text.data != NULL)
	{
		paq_buffer_putc(row->out, '"');
		put_quoted_part(row, text.data, text.len, 2, false);
		paq_buffer_putc(row->out, '"');
	}
	paq_buffer_putc(row->out, ',');
}

static void
put_csv_field(const CsvRow *row, PaqField field)
{
	put_csv_text(row, row->record->field[field]);
}

static void
put_csv_time(const CsvRow *row, int64 timestamp, bool millis)
{
	char		text[PAQ_TIME_TEXT];

	if (timestamp != 0)
		paq_put(row->out, text, paq_time_log(text, row->record->server, timestamp, millis));
	paq_buffer_putc(row->out, ',');
}

static void
put_connection(const CsvRow *row)
{
	PaqText		host = row->record->field[PAQ_FIELD_REMOTE_HOST];
	PaqText		port = row->record->field[PAQ_FIELD_REMOTE_PORT];

	if (paq_record_has_client(row->record))
	{
		paq_buffer_putc(row->out, '"');
		put_quoted_part(row, host.data, host.len, 2, false);
		if (port.len > 0)
		{
			paq_buffer_putc(row->out, ':');
			put_quoted_part(row, port.data, port.len, 2, false);
		}
		paq_buffer_putc(row->out, '"');
	}
	paq_buffer_putc(row->out, ',');
}

/* session_id and session_line_num */
static void
put_session_line(const CsvRow *row)
{
	const PaqRecordHeader *header = &row->record->header;
	char		id[PAQ_SESSION_ID_TEXT];

	if (header->session_start == 0)
		PAQ_PUT_LITERAL(row->out, "0.0");
	else
		paq_put(row->out, id, paq_session_id_text(id, row->record));
	paq_buffer_putc(row->out, ',');
	if (header->session_line > 0)
		paq_buffer_int(row->out, header->session_line);
	else
	{
		paq_buffer_putc(row->out, '-');
		paq_buffer_int(row->out, (int64) row->record->sequence);
	}
	paq_buffer_putc(row->out, ',');
}

/* command_tag: never null in a client's session, as in PostgreSQL's log */
static void
put_command_tag(const CsvRow *row)
{
	PaqText		command = row->record->field[PAQ_FIELD_COMMAND];

	if (!paq_record_has_client(row->record))
		command.data = NULL;
	else if (command.data == NULL)
		command.data = "";
	put_csv_text(row, command);
}

/* error_severity and sql_state_code */
static void
put_csv_outcome(const CsvRow *row)
{
	const PaqRecordHeader *header = &row->record->header;

	if (header->kind == PAQ_KIND_GAP)
		PAQ_PUT_LITERAL(row->out, "WARNING,");
	else
		PAQ_PUT_LITERAL(row->out, "LOG,");
	if (paq_record_has_outcome(header))
		paq_buffer_puts(row->out, paq_sqlstate_text(header->sqlstate));
	paq_buffer_putc(row->out, ',');
}

/* detail; a GAP record's message is in the message column */
static void
put_detail(const CsvRow *row)
{
	PaqText		message = row->record->field[PAQ_FIELD_MESSAGE];

	if (row->record->header.kind == PAQ_KIND_GAP)
		message.data = NULL;
	put_csv_text(row, message);
}

/* The next of several words in a quoted column begins. */
static void
begin_mark(const CsvRow *row, bool *first)
{
	paq_buffer_putc(row->out, *first ? '"' : ',');
	*first = false;
}

static void
put_mark(const CsvRow *row, bool is_set, const char *name, bool *first)
{
	if (!is_set)
		return;
	begin_mark(row, first);
	paq_buffer_puts(row->out, name);
}

/* name="value", or name= for null */
static void
put_named_mark(const CsvRow *row, PaqText name, PaqText value, bool *first)
{
	begin_mark(row, first);
	put_quoted_part(row, name.data, name.len, 2, false);
	paq_buffer_putc(row->out, '=');
	if (value.data == NULL)
		return;
	PAQ_PUT_LITERAL(row->out, "\"\"");
	put_quoted_part(row, value.data, value.len, 4, false);
	PAQ_PUT_LITERAL(row->out, "\"\"");
}

static void
put_csv_settings(const CsvRow *row, bool *first)
{
	PaqParamIter iter;
	PaqText		name;
	PaqText		value;

	paq_param_begin(&iter, row->record->field[PAQ_FIELD_SETTINGS]);
	while (paq_setting_next(&iter, &name, &value))
		put_named_mark(row, name, value, first);
}

/* hint */
static void
put_csv_marks(const CsvRow *row)
{
	const uint32 flags = row->record->header.flags;
	const PaqText policy = row->record->field[PAQ_FIELD_POLICY];
	bool		first = true;

	/* Always: records are looked for by what is written without the number. */
	put_mark(row, true, SERIES_START, &first);
	paq_buffer_int(row->out, (int64) row->record->series);

#define PAQ_TRAIL_MARK(id, json, column, flag, what) \
	put_mark(row, (flags & flag) != 0, json, &first);
#include "record/fieldlist.h"
	put_mark(row, row->escape, "escaped", &first);
	if (policy.data != NULL)
		put_named_mark(row, (PaqText){ "policy", 6 }, policy, &first);
	put_csv_settings(row, &first);
	PAQ_PUT_LITERAL(row->out, "\",");
}

static void
write_row(PaqBuffer *buf, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	char		vxid[2 * PAQ_INT_TEXT];
	CsvRow		row;

	row.out = buf;
	row.record = record;
	row.encoding = header->encoding == PG_SQL_ASCII ? PG_UTF8 : header->encoding;
	row.escape = !has_valid_texts(row.encoding, record);

	put_csv_time(&row, paq_record_log_time(record), true);
	put_csv_field(&row, PAQ_FIELD_USER);
	put_csv_field(&row, PAQ_FIELD_DATABASE);
	if (header->pid != 0)
		paq_buffer_int(buf, header->pid);
	paq_buffer_putc(buf, ',');
	put_connection(&row);
	put_session_line(&row);
	put_command_tag(&row);
	put_csv_time(&row, header->session_start, false);
	paq_put(buf, vxid, paq_vxid_text(vxid, header));
	paq_buffer_putc(buf, ',');
	paq_buffer_int(buf, header->xid);
	paq_buffer_putc(buf, ',');
	put_csv_outcome(&row);
	put_csv_message(&row);
	paq_buffer_putc(buf, ',');
	put_detail(&row);
	put_csv_marks(&row);
	/* internal_query to query_pos */
	PAQ_PUT_LITERAL(buf, ",,,,,");
	paq_buffer_putc(buf, '"');
	paq_buffer_int(buf, (int64) record->sequence);
	PAQ_PUT_LITERAL(buf, "\",");
	put_csv_field(&row, PAQ_FIELD_APPLICATION);
	put_csv_field(&row, PAQ_FIELD_BACKEND_TYPE);
	/* leader_pid */
	paq_buffer_putc(buf, ',');
	paq_buffer_int(buf, header->query_id);
	paq_buffer_putc(buf, '\n');
}

/*
 * The end of the column at p, a comma or newline outside of quotes; NULL if
 * there is none before end.
 */
static const char *
column_end(const char *p, const char *end)
{
	bool		quoted = false;

	for (; p < end; p++)
	{
		if (*p == '"')
			quoted = !quoted;
		else if (!quoted && (*p == ',' || *p == '\n'))
			return p;
	}
	return NULL;
}

/* Up to the newline outside of quotes */
static Size
csv_record_length(const char *data, Size len)
{
	const char *end = data + len;
	const char *p = data;

	while ((p = column_end(p, end)) != NULL)
		if (*p++ == '\n')
			return p - data;
	return 0;
}

/*
 * The same where a column may begin; NULL also if this format would not have
 * written the column.
 */
static const char *
written_column_end(const char *p, const char *end)
{
	if (p == end || *p != '"')
	{
		while (p < end && *p != ',' && *p != '\n')
			if (*p++ == '"')
				return NULL;
		return p < end ? p : NULL;
	}
	for (p++; (p = memchr(p, '"', end - p)) != NULL; p += 2)
	{
		if (p + 1 == end)
			return NULL;
		if (p[1] != '"')
			return p[1] == ',' || p[1] == '\n' ? p + 1 : NULL;
	}
	return NULL;
}

/*
 * Is there a whole record at data?  Nothing within a record's text looks like
 * one: a double quote is doubled there, so that the text of a message cannot
 * begin with a single one, and what is outside of quotes there cannot be quoted.
 */
static bool
is_record(const char *data, Size len)
{
	static const char start[] = "\"" MESSAGE_START;
	const Size	start_len = sizeof(start) - 1;
	const char *end = data + len;
	const char *p = data;

	for (int column = 0; column < NCOLUMNS; column++)
	{
		if (column == COLUMN_MESSAGE &&
			(end - p < start_len || memcmp(p, start, start_len) != 0))
			return false;
		p = written_column_end(p, end);
		if (p == NULL || *p++ != (column == NCOLUMNS - 1 ? '\n' : ','))
			return false;
	}
	return memchr(data, '\0', p - data) == NULL;
}

/*
 * The length of the rest of a record, from anywhere in it, perhaps within
 * quotes: up to the newline behind which there is a whole record.
 */
static Size
rest_length(const char *data, Size len)
{
	const char *end = data + len;
	const char *newline;

	for (const char *p = data;
		 p < end && (newline = memchr(p, '\n', end - p)) != NULL;
		 p = newline + 1)
		if (is_record(newline + 1, end - newline - 1))
			return newline + 1 - data;
	return 0;
}

/* The digits of the number in the column from p to end; NULL if it has none. */
static const char *
column_number(int column, const char *p, const char *end, Size *digits)
{
	static const char series[] = "\"" SERIES_START;
	const Size	series_len = sizeof(series) - 1;
	const char *first = p + 1;

	if (column == COLUMN_HINT && end - p > series_len && memcmp(p, series, series_len) == 0)
	{
		p = first = p + series_len;
		while (p < end && isdigit((unsigned char) *p))
			p++;
		end = p;
	}
	else if (column == COLUMN_LOCATION && end - p > 2 && *p == '"')
		end--;
	else if (column != COLUMN_SESSION_LINE || end - p < 2 || *p != '-')
		return NULL;
	for (p = first; p < end; p++)
		if (!isdigit((unsigned char) *p))
			return NULL;
	*digits = end - first;
	return *digits > 0 ? first : NULL;
}

/*
 * The sequence is in the location, and in place of the session's line if that
 * is unknown; the series is in the hint.
 */
static bool
find_csv_number(const char *line, Size len, Size *start, Size *digits, bool *is_series)
{
	const char *end = line + len;
	const char *p = line;
	const char *next;

	for (int column = 0;
		 column < NCOLUMNS && (next = column_end(p, end)) != NULL;
		 column++, p = next + 1)
	{
		const char *number = p < line + *start ? NULL :
			column_number(column, p, next, digits);

		if (number != NULL)
		{
			*start = number - line;
			*is_series = column == COLUMN_HINT;
			return true;
		}
	}
	return false;
}

const PaqFormat *
paq_format_csvlog(void)
{
	static const PaqFormat format = {
		.extension = ".csv",
		.write = write_row,
		.record_length = csv_record_length,
		.rest_length = rest_length,
		.find_number = find_csv_number
	};

	return &format;
}
