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
 * Guarantees: bounded memory; the parameter list, quoted within a quoted
 * field, is written as it is read.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format/format_internal.h"

/* pgaudit's words for what was left out */
#define NOT_LOGGED			"<not logged>"
#define PREVIOUSLY_LOGGED	"<previously logged>"
#define MASKED				"<masked>"
#define NO_PARAMETERS		"<none>"
#define LONG_PARAMETER		"<long param suppressed>"

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
put_field(PaqBuffer *buf, PaqText text, bool tabs)
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
		PAQ_PUT_LITERAL(buf, LONG_PARAMETER);
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
	put_field(buf, statement, tabs);
	paq_buffer_putc(buf, ',');
	if (record->header.audit_class == PAQ_CLASS_CONFIG)
		put_values(buf, record, tabs);
	else
		PAQ_PUT_LITERAL(buf, NO_PARAMETERS);
}

/* STATEMENT,PARAMETER */
static void
put_statement(PaqBuffer *buf, const PaqRecord *record, bool tabs)
{
	uint32		flags = record->header.flags;

	if (flags & PAQ_RECORD_STMT_NOT_LOGGED)
		PAQ_PUT_LITERAL(buf, NOT_LOGGED "," NOT_LOGGED);
	else if (flags & PAQ_RECORD_STMT_PREVIOUS)
		PAQ_PUT_LITERAL(buf, PREVIOUSLY_LOGGED "," PREVIOUSLY_LOGGED);
	else
	{
		put_field(buf, record->field[PAQ_FIELD_STATEMENT], tabs);
		paq_buffer_putc(buf, ',');
		if (flags & PAQ_RECORD_PARAM_NOT_LOGGED)
			PAQ_PUT_LITERAL(buf, NOT_LOGGED);
		else if (flags & PAQ_RECORD_CONSTANTS)
			PAQ_PUT_LITERAL(buf, MASKED);
		else
			put_params(buf, record, tabs);
	}
}

static void
put_message(PaqBuffer *buf, const PaqRecord *record, bool tabs)
{
	const PaqRecordHeader *header = &record->header;

	if (header->kind == PAQ_KIND_GAP)
	{
		PAQ_PUT_LITERAL(buf, "AUDIT: GAP,0,0,GAP,,,,");
		put_field(buf, record->field[PAQ_FIELD_MESSAGE], tabs);
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
	paq_buffer_puts(buf, paq_class_label(header->audit_class));
	for (int field = PAQ_FIELD_COMMAND; field <= PAQ_FIELD_OBJECT_NAME; field++)
	{
		paq_buffer_putc(buf, ',');
		put_field(buf, record->field[field], tabs);
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
	put_message(buf, record, false);
}

/* Variable of the prefix, the caller's */
static char **line_prefix;

static void
write_line(PaqBuffer *buf, const PaqRecord *record)
{
	paq_prefix_write(buf, *line_prefix, record);
	PAQ_PUT_LITERAL(buf, "LOG:  ");
	put_message(buf, record, true);
	paq_buffer_putc(buf, '\n');
}

/* Up to the newline that no tab follows */
static Size
record_length(const char *data, Size len)
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
find_sequence(const char *line, Size len, Size *start, Size *digits)
{
	return false;
}

const PaqFormat *
paq_format_pgaudit(char **prefix)
{
	static const PaqFormat format = {
		.name = "pgaudit",
		.extension = ".log",
		.write = write_line,
		.record_length = record_length,
		.rest_length = record_length,
		.find_sequence = find_sequence
	};

	line_prefix = prefix;
	return &format;
}
