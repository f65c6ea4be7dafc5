/*-------------------------------------------------------------------------
 *
 * csvlog.c
 *		Format csvlog, made of lines of format json.
 *
 * The 26 columns that the worker writes in this format; doc/formats.md has them.  As
 * there, texts are in the encoding of their database; and if one is not valid in
 * it, such bytes and all backslashes of the record are escaped.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include "mb/pg_wchar.h"

/* The row that is being written */
typedef struct Row
{
	Buffer	   *buf;
	Record	   *record;
	int			encoding;		/* that texts are checked against */
	bool		escape;			/* some text is not valid in it */
} Row;

static bool
is_valid(int encoding, Text text)
{
	while (text.len > 0)
	{
		/* the functions for strings take an int */
		const int	len = (int) Min(text.len, MAX_MULTIBYTE_CHAR_LEN);
		int			char_len = 1;

		if (*text.data == '\0')
			return false;
		if (IS_HIGHBIT_SET(*text.data))
			char_len = pg_encoding_verifymbchar(encoding, text.data, len);
		if (char_len < 1)
			return false;
		text.data += char_len;
		text.len -= char_len;
	}
	return true;
}

static bool
has_valid_params(const Row *row)
{
	const PaqValue *list = &row->record->line.value[PAQ_TRAIL_PARAM_LIST];
	const char *next = NULL;
	Buffer		scratch = {0};
	PaqValue	element;
	bool		result = true;

	while (result && paq_line_element(list, &next, &element))
		result = is_valid(row->encoding, record_part_text(row->record, &element, &scratch));
	free(scratch.data);
	return result;
}

static bool
has_valid_settings(const Row *row)
{
	const PaqValue *settings = &row->record->line.value[PAQ_TRAIL_SETTINGS];
	const char *next = NULL;
	Buffer		scratch = {0};
	PaqValue	name;
	PaqValue	value;
	bool		result = true;

	while (result && paq_line_member(settings, &next, &name, &value))
		result = is_valid(row->encoding, record_part_text(row->record, &name, &scratch)) &&
			is_valid(row->encoding, record_part_text(row->record, &value, &scratch));
	free(scratch.data);
	return result;
}

/* All texts of the record, whether this format has them or not */
static bool
has_valid_texts(const Row *row)
{
	static const PaqTrailField fields[] = {
		PAQ_TRAIL_COMMAND, PAQ_TRAIL_COMMAND_TEXT, PAQ_TRAIL_OBJECT_TYPE,
		PAQ_TRAIL_OBJECT_NAME, PAQ_TRAIL_OLD_VALUE, PAQ_TRAIL_NEW_VALUE,
		PAQ_TRAIL_VALUE_SOURCE, PAQ_TRAIL_ERROR_MESSAGE, PAQ_TRAIL_BACKEND_TYPE,
		PAQ_TRAIL_USER_NAME, PAQ_TRAIL_SESSION_USER_NAME, PAQ_TRAIL_CURRENT_USER_NAME,
		PAQ_TRAIL_DATABASE_NAME, PAQ_TRAIL_REMOTE_HOST, PAQ_TRAIL_REMOTE_PORT,
		PAQ_TRAIL_APPLICATION_NAME, PAQ_TRAIL_POLICY,

		/* ASCII, in lines that the server has written */
		PAQ_TRAIL_CLASS, PAQ_TRAIL_EXIT_CODE, PAQ_TRAIL_SESSION_ID,
		PAQ_TRAIL_VIRTUAL_TRANSACTION_ID, PAQ_TRAIL_COMMAND_TEXT_OMITTED,
		PAQ_TRAIL_PARAM_LIST_OMITTED
	};

	for (int i = 0; i < lengthof(fields); i++)
		if (!is_valid(row->encoding, record_text(row->record, fields[i])))
			return false;
	return has_valid_params(row) && has_valid_settings(row);
}

/* The encoding of the record's database, UTF-8 for those without */
static int
text_encoding(Record *record)
{
	const Text	name = record_text(record, PAQ_TRAIL_TEXT_ENCODING);
	char		copy[64];
	int			encoding;

	if (name.data == NULL || name.len >= sizeof(copy))
		return PG_UTF8;
	memcpy(copy, name.data, name.len);
	copy[name.len] = '\0';
	encoding = pg_char_to_encoding(copy);
	return encoding == PG_SQL_ASCII || encoding < 0 ? PG_UTF8 : encoding;
}

/* A text within quotes, each of its own quotes nquotes times */
static void
put_quoted(const Row *row, Text text, int nquotes)
{
	const char *p = text.data;
	const char *end = p + text.len;

	if (!row->escape)
	{
		put_quotes_escaped(row->buf, p, text.len, nquotes, false);
		return;
	}
	while (p < end)
	{
		int			len = pg_encoding_verifymbchar(row->encoding, p,
										   (int) Min(end - p, MAX_MULTIBYTE_CHAR_LEN));

		if (len < 1 || *p == '\\' || *p == '\0')
		{
			buffer_printf(row->buf, "\\x%02x", (unsigned char) *p);
			len = 1;
		}
		else
			put_quotes_escaped(row->buf, p, len, nquotes, false);
		p += len;
	}
}

static void
put_content(const Row *row, Text text)
{
	put_quoted(row, text, 2);
}

/* A text and the comma behind it; null is nothing at all. */
static void
put_csv_text(const Row *row, Text text)
{
	if (text.data != NULL)
	{
		buffer_putc(row->buf, '"');
		put_content(row, text);
		buffer_putc(row->buf, '"');
	}
	buffer_putc(row->buf, ',');
}

static void
put_csv_field(const Row *row, PaqTrailField field)
{
	put_csv_text(row, record_text(row->record, field));
}

static bool
needs_quotes(Text text)
{
	for (Size i = 0; i < text.len; i++)
	{
		const unsigned char c = text.data[i];

		if (c <= 0x20 || c >= 0x7f || c == ',' || c == '"' || c == '\\')
			return true;
	}
	return false;
}

/*
 * As the line has it; otherwise, if it is null.  What the server writes there needs no quotes,
 * but what somebody has made of a line may.
 */
static void
put_plain(const Row *row, PaqTrailField field, const char *otherwise)
{
	const Text	text = record_text(row->record, field);

	if (text.data == NULL)
		buffer_puts(row->buf, otherwise);
	else if (needs_quotes(text))
	{
		put_csv_text(row, text);
		return;
	}
	else
		buffer_put(row->buf, text.data, text.len);
	buffer_putc(row->buf, ',');
}

static void
put_connection(const Row *row)
{
	const Text	host = record_text(row->record, PAQ_TRAIL_REMOTE_HOST);
	const Text	port = record_text(row->record, PAQ_TRAIL_REMOTE_PORT);

	if (host.data != NULL)
	{
		buffer_putc(row->buf, '"');
		put_content(row, host);
		if (port.len > 0)
		{
			buffer_putc(row->buf, ':');
			put_content(row, port);
		}
		buffer_putc(row->buf, '"');
	}
	buffer_putc(row->buf, ',');
}

/* session_id and session_line_num, which is minus the sequence if there is none */
static void
put_session(const Row *row)
{
	put_plain(row, PAQ_TRAIL_SESSION_ID, "0.0");
	if (!paq_line_has(&row->record->line, PAQ_TRAIL_SESSION_LINE))
	{
		buffer_putc(row->buf, '-');
		put_plain(row, PAQ_TRAIL_SEQUENCE, "0");
	}
	else
		put_plain(row, PAQ_TRAIL_SESSION_LINE, "");
}

/* Never null in a client's session, always without a client */
static void
put_command_tag(const Row *row)
{
	Text		command = record_text(row->record, PAQ_TRAIL_COMMAND);

	if (record_text(row->record, PAQ_TRAIL_REMOTE_HOST).data == NULL)
		command.data = NULL;
	else if (command.data == NULL)
		command.data = "";
	put_csv_text(row, command);
}

static void
put_csv_message(const Row *row)
{
	static Buffer scratch;
	Text		message;

	scratch.used = 0;
	message_write(&scratch, row->record, false);
	message.data = scratch.data;
	message.len = scratch.used;
	put_csv_text(row, message);
}

/* The next of several words in a quoted column begins. */
static void
begin_mark(const Row *row, bool *first)
{
	buffer_putc(row->buf, *first ? '"' : ',');
	*first = false;
}

static void
put_mark(const Row *row, bool is_set, const char *name, bool *first)
{
	if (!is_set)
		return;
	begin_mark(row, first);
	buffer_puts(row->buf, name);
}

/* The value of what stands in front of it: ="value", or = for null */
static void
put_mark_value(const Row *row, Text value)
{
	buffer_putc(row->buf, '=');
	if (value.data == NULL)
		return;
	buffer_puts(row->buf, "\"\"");
	put_quoted(row, value, 4);
	buffer_puts(row->buf, "\"\"");
}

static void
put_policy(const Row *row, bool *first)
{
	const Text	policy = record_text(row->record, PAQ_TRAIL_POLICY);

	if (policy.data == NULL)
		return;
	put_mark(row, true, "policy", first);
	put_mark_value(row, policy);
}

static void
put_csv_settings(const Row *row, bool *first)
{
	const PaqValue *settings = &row->record->line.value[PAQ_TRAIL_SETTINGS];
	const char *next = NULL;
	Buffer		scratch = {0};
	PaqValue	name;
	PaqValue	value;

	while (paq_line_member(settings, &next, &name, &value))
	{
		begin_mark(row, first);
		put_content(row, record_part_text(row->record, &name, &scratch));
		put_mark_value(row, record_part_text(row->record, &value, &scratch));
	}
	free(scratch.data);
}

/* hint */
static void
put_csv_series(const Row *row, bool *first)
{
	const Text	series = record_text(row->record, PAQ_TRAIL_SERIES);

	if (series.data == NULL)
		return;
	put_mark(row, true, "series=", first);
	buffer_put(row->buf, series.data, series.len);
}

static void
put_csv_marks(const Row *row)
{
	bool		first = true;

	put_csv_series(row, &first);
#define PAQ_TRAIL_MARK(id, json, column, flag, what) \
	put_mark(row, record_is(row->record, PAQ_TRAIL_##id, "true"), json, &first);
#include "record/fieldlist.h"
	put_mark(row, row->escape, "escaped", &first);
	put_policy(row, &first);
	put_csv_settings(row, &first);
	if (!first)
		buffer_putc(row->buf, '"');
	buffer_putc(row->buf, ',');
}

/* From error_severity to hint */
static void
put_csv_outcome(const Row *row)
{
	const bool	gap = record_is_gap(row->record);

	buffer_puts(row->buf, gap ? "WARNING," : "LOG,");
	put_plain(row, PAQ_TRAIL_EXIT_CODE, "");
	put_csv_message(row);
	if (gap)
		buffer_putc(row->buf, ',');
	else
		put_csv_field(row, PAQ_TRAIL_ERROR_MESSAGE);
	put_csv_marks(row);
}

void
csvlog_write(Buffer *buf, Record *record)
{
	Row			row = {buf, record};

	record_decode_as(record, true);
	row.encoding = text_encoding(record);
	row.escape = !has_valid_texts(&row);

	put_log_time(buf, record_text(record, PAQ_TRAIL_LOG_TIME), true);
	buffer_putc(buf, ',');
	put_csv_field(&row, PAQ_TRAIL_USER_NAME);
	put_csv_field(&row, PAQ_TRAIL_DATABASE_NAME);
	put_plain(&row, PAQ_TRAIL_PID, "");
	put_connection(&row);
	put_session(&row);
	put_command_tag(&row);
	put_log_time(buf, record_text(record, PAQ_TRAIL_SESSION_START), false);
	buffer_putc(buf, ',');
	put_plain(&row, PAQ_TRAIL_VIRTUAL_TRANSACTION_ID, "");
	put_plain(&row, PAQ_TRAIL_TRANSACTION_ID, "0");
	put_csv_outcome(&row);
	/* internal_query to query_pos */
	buffer_puts(buf, ",,,,,");
	put_csv_field(&row, PAQ_TRAIL_SEQUENCE);
	put_csv_field(&row, PAQ_TRAIL_APPLICATION_NAME);
	put_csv_field(&row, PAQ_TRAIL_BACKEND_TYPE);
	/* leader_pid */
	buffer_putc(buf, ',');
	put_plain(&row, PAQ_TRAIL_QUERY_ID, "0");
	buf->data[buf->used - 1] = '\n';
}
