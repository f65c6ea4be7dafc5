/*-------------------------------------------------------------------------
 *
 * message.c
 *		Format pgaudit, made of lines of format json.
 *
 * What the worker writes in this format, with the default of log_line_prefix.  doc/formats.md
 * has the layout.  Lines of format json do not tell whether log_rows was on: the number
 * of rows is left out.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <time.h>

#include "datatype/timestamp.h"

#define NO_PARAMETERS	"<none>"

/* ----------
 * Times
 * ----------
 */

/*
 * Abbreviation of the zone in which a time was written, of which the line has the offset
 * only: that of the local time zone, if that has the same offset then.
 */
static void
put_zone(Buffer *buf, int64 timestamp, int offset, const char *offset_text, Size len)
{
	const int64 epoch = (int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY;
	const time_t t = (time_t) (timestamp / USECS_PER_SEC + epoch);
	char		name[64];
	char		text[64];
	struct tm	tm;
	int			hour;
	int			minute;

	if (localtime_r(&t, &tm) != NULL && strftime(text, sizeof(text), "%z", &tm) == 5 &&
		sscanf(text + 1, "%2d%2d", &hour, &minute) == 2 &&
		(hour * MINS_PER_HOUR + minute) * SECS_PER_MINUTE * (text[0] == '-' ? -1 : 1) == offset &&
		strftime(name, sizeof(name), "%Z", &tm) > 0)
		buffer_puts(buf, name);
	else if (offset == 0)
		buffer_puts(buf, "UTC");
	else
		buffer_put(buf, offset_text, len);
}

/* A time of a line as the server's log has it: "2026-11-20 10:11:12.123 UTC" */
void
put_log_time(Buffer *buf, Text time, bool millis)
{
	const char *t;
	const char *p;
	const char *end = time.data + time.len;
	int64		timestamp;
	int			offset;
	bool		has_offset;

	if (time.data == NULL ||
		!paq_time_parse(time.data, time.len, &timestamp, &offset, &has_offset))
		return;
	t = memchr(time.data, 'T', time.len);
	if (t == NULL || end - t < 9)
		return;
	buffer_put(buf, time.data, t - time.data);
	buffer_putc(buf, ' ');
	buffer_put(buf, t + 1, 8);
	p = t + 9;
	if (p < end && *p == '.')
		do
			p++;
		while (p < end && *p >= '0' && *p <= '9');
	if (millis)
	{
		const int64 usec = timestamp % USECS_PER_SEC;

		buffer_printf(buf, ".%03d",
					  (int) ((usec < 0 ? usec + USECS_PER_SEC : usec) / 1000));
	}
	buffer_putc(buf, ' ');
	put_zone(buf, timestamp, offset, p, end - p);
}

/* ----------
 * The message
 * ----------
 */

static bool
has_quotable(Text text)
{
	for (Size i = 0; i < text.len; i++)
		if (strchr(",\"\r\n", text.data[i]) != NULL && text.data[i] != '\0')
			return true;
	return false;
}

/* Append text, each double quote nquotes times, and, with tabs, one behind each newline. */
void
put_quotes_escaped(Buffer *buf, const char *data, Size len, int nquotes, bool tabs)
{
	for (const char *p = data; p < data + len; p++)
	{
		if (*p == '"')
			buffer_fill(buf, '"', nquotes);
		else
			buffer_putc(buf, *p);
		if (*p == '\n' && tabs)
			buffer_putc(buf, '\t');
	}
}

static void
put_pgaudit_field(Buffer *buf, Text text, bool tabs)
{
	if (has_quotable(text))
	{
		buffer_putc(buf, '"');
		put_quotes_escaped(buf, text.data, text.len, 2, tabs);
		buffer_putc(buf, '"');
	}
	else
		buffer_put(buf, text.data, text.len);
}

/* One of several values that are one field of the message */
static void
put_part(Buffer *buf, Text text, bool tabs)
{
	if (has_quotable(text))
	{
		buffer_puts(buf, "\"\"");
		put_quotes_escaped(buf, text.data, text.len, 4, tabs);
		buffer_puts(buf, "\"\"");
	}
	else
		buffer_put(buf, text.data, text.len);
}

/* The field needs quotes if there is a comma in it, or one of its parts has them. */
static void
put_params(Buffer *buf, Record *record, bool tabs)
{
	static Buffer scratch;
	const PaqValue *list = &record->line.value[PAQ_TRAIL_PARAM_LIST];
	const char *next = NULL;
	PaqValue	element;
	Text		text;
	bool		quotes;

	if (list->kind != PAQ_VALUE_ARRAY || !paq_line_element(list, &next, &element))
	{
		/* lost is not the same as none */
		if (list->kind == PAQ_VALUE_ARRAY || !paq_line_has(&record->line, PAQ_TRAIL_CUT))
			buffer_puts(buf, NO_PARAMETERS);
		return;
	}
	text = record_part_text(record, &element, &scratch);
	quotes = next < list->data + list->len || has_quotable(text);
	if (quotes)
		buffer_putc(buf, '"');
	put_part(buf, text, tabs);
	while (paq_line_element(list, &next, &element))
	{
		buffer_putc(buf, ',');
		put_part(buf, record_part_text(record, &element, &scratch), tabs);
	}
	if (quotes)
		buffer_putc(buf, '"');
}

/* The values of a record of class CONFIG, in the place of parameters */
static void
put_values(Buffer *buf, Record *record, bool tabs)
{
	buffer_putc(buf, '"');
	put_part(buf, record_text(record, PAQ_TRAIL_OLD_VALUE), tabs);
	buffer_putc(buf, ',');
	put_part(buf, record_text(record, PAQ_TRAIL_NEW_VALUE), tabs);
	buffer_putc(buf, ',');
	put_part(buf, record_text(record, PAQ_TRAIL_VALUE_SOURCE), tabs);
	buffer_putc(buf, '"');
}

/* A reason, which in a line that somebody has made may be anything */
static void
put_omitted(Buffer *buf, Text reason, bool tabs)
{
	const bool	quotes = has_quotable(reason);

	buffer_puts(buf, quotes ? "\"<" : "<");
	put_quotes_escaped(buf, reason.data, reason.len, 2, tabs);
	buffer_puts(buf, quotes ? ">\"" : ">");
}

/* Statement and parameters, or what stands in their place */
static void
put_statement(Buffer *buf, Record *record, bool tabs)
{
	const bool	is_connect = record_is(record, PAQ_TRAIL_CLASS, "CONNECT");
	const bool	is_config = record_is(record, PAQ_TRAIL_CLASS, "CONFIG");
	const bool	is_event = is_connect || is_config;
	const Text	no_statement = record_text(record, PAQ_TRAIL_COMMAND_TEXT_OMITTED);
	const Text	no_params = record_text(record, PAQ_TRAIL_PARAM_LIST_OMITTED);

	if (is_connect)
		put_pgaudit_field(buf, record_text(record, PAQ_TRAIL_ERROR_MESSAGE), tabs);
	else if (no_statement.data != NULL && !is_event)
		put_omitted(buf, no_statement, tabs);
	else
		put_pgaudit_field(buf, record_text(record, PAQ_TRAIL_COMMAND_TEXT), tabs);
	buffer_putc(buf, ',');
	if (is_config)
		put_values(buf, record, tabs);
	else if (is_connect)
		buffer_puts(buf, NO_PARAMETERS);
	else if (no_params.data != NULL)
		put_omitted(buf, no_params, tabs);
	else
		put_params(buf, record, tabs);
}

/* "AUDIT: ...", with a tab behind each newline in texts, if wanted */
void
message_write(Buffer *buf, Record *record, bool tabs)
{
	static const PaqTrailField fields[] = {
		PAQ_TRAIL_CLASS, PAQ_TRAIL_COMMAND, PAQ_TRAIL_OBJECT_TYPE, PAQ_TRAIL_OBJECT_NAME
	};

	if (record_is_gap(record))
	{
		buffer_puts(buf, "AUDIT: GAP,0,0,GAP,,,,");
		put_pgaudit_field(buf, record_text(record, PAQ_TRAIL_ERROR_MESSAGE), tabs);
		buffer_puts(buf, "," NO_PARAMETERS);
		return;
	}
	buffer_puts(buf, record_is(record, PAQ_TRAIL_AUDIT_TYPE, "OBJECT") ?
				"AUDIT: OBJECT," : "AUDIT: SESSION,");
	buffer_printf(buf, INT64_FORMAT "," INT64_FORMAT,
				  record_number(record, PAQ_TRAIL_STATEMENT_ID),
				  record_number(record, PAQ_TRAIL_SUBSTATEMENT_ID));
	for (int i = 0; i < lengthof(fields); i++)
	{
		buffer_putc(buf, ',');
		put_pgaudit_field(buf, record_text(record, fields[i]), tabs);
	}
	buffer_putc(buf, ',');
	put_statement(buf, record, tabs);
}

/* ----------
 * Lines
 * ----------
 */

/* What may be anything, in the prefix of a line: control characters become question marks. */
static void
put_clean(Buffer *buf, Text text)
{
	for (Size i = 0; i < text.len; i++)
	{
		const unsigned char c = text.data[i];

		buffer_putc(buf, c < 0x20 || c == 0x7f ? '?' : text.data[i]);
	}
}

static void
put_name(Buffer *buf, Text name)
{
	if (name.len == 0)
		buffer_puts(buf, "[unknown]");
	put_clean(buf, name);
}

/* With the prefix '%m [%p] %e %q%u@%d %h ' */
void
pgaudit_write(Buffer *buf, Record *record)
{
	const Text	code = record_text(record, PAQ_TRAIL_EXIT_CODE);
	Text		host;

	record_decode_as(record, true);
	host = record_text(record, PAQ_TRAIL_REMOTE_HOST);
	put_log_time(buf, record_text(record, PAQ_TRAIL_LOG_TIME), true);
	buffer_printf(buf, " [" INT64_FORMAT "] ", record_number(record, PAQ_TRAIL_PID));
	put_clean(buf, code);
	buffer_putc(buf, ' ');
	if (host.data != NULL)
	{
		put_name(buf, record_text(record, PAQ_TRAIL_USER_NAME));
		buffer_putc(buf, '@');
		put_name(buf, record_text(record, PAQ_TRAIL_DATABASE_NAME));
		buffer_putc(buf, ' ');
		put_clean(buf, host);
		buffer_putc(buf, ' ');
	}
	buffer_puts(buf, "LOG:  ");
	message_write(buf, record, true);
	buffer_putc(buf, '\n');
}
