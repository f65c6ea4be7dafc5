/*-------------------------------------------------------------------------
 *
 * pgaudit.c
 *		The pgaudit format: what the server log has when pgaudit writes it.
 *
 * A line is log_line_prefix, "LOG:  ", and
 *
 *	AUDIT: TYPE,STATEMENT_ID,SUBSTATEMENT_ID,CLASS,COMMAND,OBJECT_TYPE,
 *	OBJECT_NAME,STATEMENT,PARAMETER[,ROWS]
 *
 * A field is quoted as in CSV only if it has to be.  As in the server log, a
 * tab follows each newline within a record, so that a line that does not
 * start with a tab starts a record.  A GAP record has class GAP and says in
 * the place of the statement what is missing.
 *
 * In the classes that pgaudit lacks, a CONNECT record has the error message, if
 * the login failed, in the place of the statement, and a CONFIG record has
 * old value, new value and source in that of the parameters.
 *
 * The prefix has PostgreSQL's escapes and paddings and prints what PostgreSQL
 * would print, except that all values are the record's, not those of the process
 * that writes the line:
 *
 *	%t %m %n	when the statement ended
 *	%e			the statement's outcome
 *	%i			its command tag
 *	%l			number of the record in its session
 *	%P			nothing: parallel workers make no records
 *	%L			[local] for a Unix-domain socket, [none] without a client, else
 *				[unknown], as records do not have the server's address
 *
 * Guarantees: bounded memory; the parameter list, quoted within a quoted
 * field, is written as it is read.  Must not allocate or raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "format/format_internal.h"

/* pgaudit's word for an empty list of parameters */
#define NO_PARAMETERS	"<none>"

/* Widest padding in a prefix: keeps a mistyped number from filling the disk. */
#define MAX_PADDING		1000

/* Bytes that make quoting necessary */
static const bool needs_quotes[256] = {
	[','] = true, ['"'] = true, ['\r'] = true, ['\n'] = true
};

static bool
has_quotable(const char *data, Size len)
{
	for (Size i = 0; i < len; i++)
		if (needs_quotes[(unsigned char) data[i]])
			return true;
	return false;
}

/*
 * Append text, each double quote nquotes times, and, with tabs, a tab after
 * each newline.
 */
void
paq_put_escaped(PaqBuffer *buf, const char *data, Size len, int nquotes, bool tabs)
{
	const char *end = data + len;
	const char *run = data;

	for (const char *p = data; p < end; p++)
	{
		if (*p == '"')
		{
			paq_put(buf, run, p - run);
			paq_buffer_fill(buf, '"', nquotes);
			run = p + 1;
		}
		else if (*p == '\n' && tabs)
		{
			paq_put(buf, run, p + 1 - run);
			paq_buffer_putc(buf, '\t');
			run = p + 1;
		}
	}
	paq_put(buf, run, end - run);
}

/* Append a field. */
static void
put_pgaudit_field(PaqBuffer *buf, PaqText text, bool tabs)
{
	if (text.len == 0)
		return;
	if (!has_quotable(text.data, text.len))
	{
		paq_put(buf, text.data, text.len);
		return;
	}
	paq_buffer_putc(buf, '"');
	paq_put_escaped(buf, text.data, text.len, 2, tabs);
	paq_buffer_putc(buf, '"');
}

/*
 * The list of parameters is a line of CSV that is a field of the record's:
 * does the field need quotes?  It does if there are two, because of the
 * comma between them, and if the only one does.  *empty: there is none.
 */
static bool
params_need_quotes(PaqText params, bool *empty)
{
	PaqParamIter iter;
	const char *value;
	int32		len;

	paq_param_begin(&iter, params);
	*empty = !paq_param_next(&iter, &len, &value);
	if (*empty)
		return false;
	if (len > 0 && has_quotable(value, len))
		return true;
	return paq_param_next(&iter, &len, &value);
}

/* Append one parameter within the (quoted, if it has to be) field. */
static void
put_param(PaqBuffer *buf, const char *value, int32 len, bool tabs)
{
	if (len == PAQ_PARAM_SUPPRESSED)
		PAQ_PUT_LITERAL(buf, PAQ_LONG_PARAMETER);
	else if (len > 0 && has_quotable(value, len))
	{
		PAQ_PUT_LITERAL(buf, "\"\"");
		paq_put_escaped(buf, value, len, 4, tabs);
		PAQ_PUT_LITERAL(buf, "\"\"");
	}
	else if (len > 0)
		paq_put(buf, value, len);
}

static void
put_params(PaqBuffer *buf, const PaqRecord *record, bool tabs)
{
	PaqText		params = record->field[PAQ_FIELD_PARAMETER];
	PaqParamIter iter;
	const char *value;
	int32		len;
	bool		empty;
	bool		quotes = params_need_quotes(params, &empty);
	bool		first = true;

	if (empty)
	{
		/* Lost is not the same as none. */
		if (params.data != NULL || !(record->header.flags & PAQ_RECORD_CUT))
			PAQ_PUT_LITERAL(buf, NO_PARAMETERS);
		return;
	}

	if (quotes)
		paq_buffer_putc(buf, '"');
	paq_param_begin(&iter, params);
	while (paq_param_next(&iter, &len, &value))
	{
		if (!first)
			paq_buffer_putc(buf, ',');
		put_param(buf, value, len, tabs);
		first = false;
	}
	if (quotes)
		paq_buffer_putc(buf, '"');
}

/* The three values of a CONFIG record, as a list of parameters is written */
static void
put_values(PaqBuffer *buf, const PaqRecord *record, bool tabs)
{
	paq_buffer_putc(buf, '"');
	for (int field = PAQ_FIELD_OLD_VALUE; field <= PAQ_FIELD_VALUE_SOURCE; field++)
	{
		PaqText		value = record->field[field];

		if (field > PAQ_FIELD_OLD_VALUE)
			paq_buffer_putc(buf, ',');
		if (value.data != NULL)
			put_param(buf, value.data, value.len, tabs);
	}
	paq_buffer_putc(buf, '"');
}

/* STATEMENT,PARAMETER of a record that is not about a statement */
static void
put_event(PaqBuffer *buf, const PaqRecord *record, bool tabs)
{
	PaqText		statement = record->field[PAQ_FIELD_STATEMENT];

	if (record->header.audit_class == PAQ_CLASS_CONNECT)
		statement = record->field[PAQ_FIELD_MESSAGE];
	put_pgaudit_field(buf, statement, tabs);
	paq_buffer_putc(buf, ',');
	if (record->header.audit_class == PAQ_CLASS_CONFIG)
		put_values(buf, record, tabs);
	else
		PAQ_PUT_LITERAL(buf, NO_PARAMETERS);
}

/* In the place of what was left out */
static void
put_omitted(PaqBuffer *buf, const char *reason)
{
	paq_buffer_putc(buf, '<');
	paq_buffer_puts(buf, reason);
	paq_buffer_putc(buf, '>');
}

/* STATEMENT,PARAMETER */
static void
put_statement(PaqBuffer *buf, const PaqRecord *record, bool tabs)
{
	const char *no_statement = paq_omitted_statement(record->header.flags);
	const char *no_params = paq_omitted_params(record->header.flags);

	if (no_statement != NULL)
		put_omitted(buf, no_statement);
	else
		put_pgaudit_field(buf, record->field[PAQ_FIELD_STATEMENT], tabs);
	paq_buffer_putc(buf, ',');
	if (no_params != NULL)
		put_omitted(buf, no_params);
	else
		put_params(buf, record, tabs);
}

static void
put_pgaudit_message(PaqBuffer *buf, const PaqRecord *record, bool tabs)
{
	const PaqRecordHeader *header = &record->header;

	if (header->kind == PAQ_KIND_GAP)
	{
		PAQ_PUT_LITERAL(buf, "AUDIT: GAP,0,0,GAP,,,,");
		put_pgaudit_field(buf, record->field[PAQ_FIELD_MESSAGE], tabs);
		PAQ_PUT_LITERAL(buf, "," NO_PARAMETERS);
		return;
	}

	if (header->flags & PAQ_RECORD_OBJECT)
		PAQ_PUT_LITERAL(buf, "AUDIT: OBJECT,");
	else
		PAQ_PUT_LITERAL(buf, "AUDIT: SESSION,");
	paq_buffer_int(buf, header->statement_id);
	paq_buffer_putc(buf, ',');
	paq_buffer_int(buf, header->substatement_id);
	paq_buffer_putc(buf, ',');
	if (header->kind != PAQ_KIND_HEARTBEAT)
		paq_buffer_puts(buf, paq_class_label(header->audit_class));
	for (int field = PAQ_FIELD_COMMAND; field <= PAQ_FIELD_OBJECT_NAME; field++)
	{
		paq_buffer_putc(buf, ',');
		put_pgaudit_field(buf, record->field[field], tabs);
	}
	paq_buffer_putc(buf, ',');
	if (header->audit_class == PAQ_CLASS_CONNECT ||
		header->audit_class == PAQ_CLASS_CONFIG)
		put_event(buf, record, tabs);
	else
		put_statement(buf, record, tabs);
	if (header->flags & PAQ_RECORD_ROWS)
	{
		paq_buffer_putc(buf, ',');
		paq_buffer_int(buf, Max(header->rows, 0));
	}
}

/* The message alone, as a client gets it: newlines are left as they are. */
void
paq_format_message(PaqBuffer *buf, const PaqRecord *record)
{
	put_pgaudit_message(buf, record, false);
}

/* ----------
 * The prefix
 * ----------
 */

static const PaqText nothing = {NULL, 0};

/*
 * A field of the client's connection: nothing without a client, and
 * "[unknown]" if the client did not say.
 */
static PaqText
client_text(const PaqRecord *record, PaqField field)
{
	static const PaqText unknown = {"[unknown]", 9};

	if (!paq_record_has_client(record))
		return nothing;
	return record->field[field].len == 0 ? unknown : record->field[field];
}

static PaqText
local_address_text(const PaqRecord *record)
{
	static const PaqText none = {"[none]", 6};
	static const PaqText unknown = {"[unknown]", 9};

	if (!paq_record_has_client(record))
		return none;
	return paq_record_is_local(record) ?
		record->field[PAQ_FIELD_REMOTE_HOST] : unknown;
}

/*
 * Text of an escape: the record's own, or made in scratch, of PAQ_TIME_TEXT bytes.
 * False if there is no such escape.
 */
static bool
escape_text(char escape, const PaqRecord *record, char *scratch, PaqText *text)
{
	const PaqRecordHeader *header = &record->header;
	const int64 log_time = paq_record_log_time(record);
	PaqTime		time;

	text->data = scratch;
	text->len = 0;
	switch (escape)
	{
		case 'u':
			*text = client_text(record, PAQ_FIELD_USER);
			break;
		case 'd':
			*text = client_text(record, PAQ_FIELD_DATABASE);
			break;
		case 'a':
			*text = client_text(record, PAQ_FIELD_APPLICATION);
			break;
		case 'h':
		case 'r':
			*text = record->field[PAQ_FIELD_REMOTE_HOST];
			break;
		case 'b':
			*text = record->field[PAQ_FIELD_BACKEND_TYPE];
			break;
		case 'i':
			if (paq_record_has_client(record))
				*text = record->field[PAQ_FIELD_COMMAND];
			break;
		case 'L':
			*text = local_address_text(record);
			break;
		case 'm':
		case 't':
			text->len = paq_time_log(scratch, record->server, log_time, escape == 'm');
			break;
		case 'n':
			time = paq_time_split(log_time);
			text->len = snprintf(scratch, PAQ_TIME_TEXT, INT64_FORMAT ".%03d",
								 (int64) time.second, time.usec / 1000);
			break;
		case 's':
			if (header->session_start != 0)
				text->len = paq_time_log(scratch, record->server, header->session_start, false);
			break;
		case 'p':
			text->len = paq_int_text(scratch, header->pid);
			break;
		case 'c':
			text->len = paq_session_id_text(scratch, record);
			break;
		case 'l':
			text->len = paq_int_text(scratch, header->session_line);
			break;
		case 'v':
			text->len = paq_vxid_text(scratch, header);
			break;
		case 'x':
			text->len = paq_uint_text(scratch, header->xid);
			break;
		case 'Q':
			text->len = paq_int_text(scratch, header->query_id);
			break;
		case 'e':
			if (paq_record_has_outcome(header))
			{
				text->data = paq_sqlstate_text(header->sqlstate);
				text->len = 5;
			}
			break;
		case 'P':
			break;
		default:
			return false;
	}
	return true;
}

/*
 * Append text that may be anything: a client that has not logged in says who
 * it wants to be.  Control characters could look like the end of the line.
 */
static void
put_foreign(PaqBuffer *buf, PaqText text)
{
	for (uint32 i = 0; i < text.len; i++)
	{
		const unsigned char c = text.data[i];

		paq_buffer_putc(buf, c < 0x20 || c == 0x7f ? '?' : c);
	}
}

/*
 * Append the escape at *pattern, and move *pattern behind it.  False if the
 * prefix ends here.
 */
static bool
put_escape(PaqBuffer *buf, const char **pattern, const PaqRecord *record)
{
	const char *p = *pattern + 1;
	const bool	to_left = *p == '-';
	char		scratch[PAQ_TIME_TEXT];
	PaqText		text;
	PaqText		port = nothing;
	int			padding = 0;

	if (to_left)
		p++;
	for (; *p >= '0' && *p <= '9'; p++)
		padding = Min(padding * 10 + (*p - '0'), MAX_PADDING);
	if (*p == '\0')
		return false;
	*pattern = p + 1;
	if (*p == 'q')
		return paq_record_has_client(record);
	if (!escape_text(*p, record, scratch, &text))
		return true;

	padding -= (int) Min(text.len, MAX_PADDING);
	if (*p == 'r' && paq_record_has_client(record))
		port = record->field[PAQ_FIELD_REMOTE_PORT];
	if (port.len > 0)
		padding -= (int) Min(port.len, MAX_PADDING) + 2;

	if (!to_left)
		paq_buffer_fill(buf, ' ', padding);
	put_foreign(buf, text);
	if (port.len > 0)
	{
		paq_buffer_putc(buf, '(');
		put_foreign(buf, port);
		paq_buffer_putc(buf, ')');
	}
	if (to_left)
		paq_buffer_fill(buf, ' ', padding);
	return true;
}

static void
put_prefix(PaqBuffer *buf, const char *prefix, const PaqRecord *record)
{
	const char *p = prefix;

	while (*p != '\0')
	{
		const char *literal = p;

		if (p[0] == '%' && p[1] != '%')
		{
			if (!put_escape(buf, &p, record))
				return;
			continue;
		}
		if (*p == '%')
			literal = ++p;		/* the second one is text */
		do
			p++;
		while (*p != '\0' && *p != '%');
		paq_put(buf, literal, p - literal);
	}
}

/* ----------
 * Lines
 * ----------
 */

/* Variable of the prefix, the caller's */
static char **line_prefix;

static void
write_line(PaqBuffer *buf, const PaqRecord *record)
{
	if (*line_prefix != NULL)
		put_prefix(buf, *line_prefix, record);
	PAQ_PUT_LITERAL(buf, "LOG:  ");
	put_pgaudit_message(buf, record, true);
	paq_buffer_putc(buf, '\n');
}

/* Up to the newline that no tab follows */
static Size
pgaudit_record_length(const char *data, Size len)
{
	const char *end = data + len;
	const char *newline;

	for (const char *p = data;
		 p < end && (newline = memchr(p, '\n', end - p)) != NULL;
		 p = newline + 1)
		if (newline + 1 == end || newline[1] != '\t')
			return newline + 1 - data;
	return 0;
}

static bool
find_pgaudit_number(const char *line, Size len, Size *start, Size *digits, bool *is_series)
{
	return false;
}

const PaqFormat *
paq_format_pgaudit(char **prefix)
{
	static const PaqFormat format = {
		.extension = ".log",
		.write = write_line,
		.record_length = pgaudit_record_length,
		.rest_length = pgaudit_record_length,
		.find_number = find_pgaudit_number
	};

	line_prefix = prefix;
	return &format;
}
