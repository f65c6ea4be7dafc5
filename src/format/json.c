/*-------------------------------------------------------------------------
 *
 * json.c
 *		The JSON format: one object a line.
 *
 * Names are those of Aurora's database activity streams where these have
 * one, so that their consumers can read the trail; the others are ours.
 * Every object has the same fields in the same order; what is not known, or
 * means nothing for the record, is null.  Only the three marks at the end are
 * there just when they are true.
 *
 * Times are strings as ISO 8601 has them, with microseconds and offset, in
 * log_timezone: "2026-11-20T10:11:12.123456+00:00".
 *
 *	field					type		what, unit
 *	type					string		"record"; "gap": records are missing
 *	formatVersion			number		1
 *	sequence				number		gap-free number in the trail
 *	logTime					time		end, or start if that is unknown
 *	startTime				time		when the statement began; since when records
 *										are missing in a gap
 *	endTime					time		when its outcome was known; until when
 *	durationUs				number		between the two, microseconds
 *	auditType				string		"SESSION", "OBJECT"; null in a gap
 *	class					string		"READ", "WRITE", ...; "GAP" in a gap
 *	command					string		command tag
 *	commandText				string		statement
 *	commandTextOmitted		string		"not logged", "previously logged"
 *	statementLocation		number		where it begins in a text of several, bytes
 *	statementLength			number		its length there, bytes
 *	paramList				array		strings, null for SQL's null
 *	paramListOmitted		string		"not logged", "previously logged"
 *	objectType				string		"TABLE", ...
 *	objectName				string		qualified name
 *	oldValue				string		of a setting, class CONFIG
 *	newValue				string		of a setting
 *	valueSource				string		where newValue comes from
 *	rowCount				number		rows processed; records missing in a gap
 *	exitCode				string		SQLSTATE, "00000" for success; null if
 *										the outcome is unknown
 *	errorMessage			string		null if it worked; what is missing in a gap
 *	statementId				number		counts statements of the session
 *	substatementId			number		counts within the statement
 *	sessionLine				number		counts records of the session
 *	sessionId				string		as log_line_prefix's %c
 *	sessionStart			time
 *	pid						number
 *	backendType				string		as in pg_stat_activity
 *	dbUserName				string		role that logged in
 *	sessionUser				string		SESSION_USER
 *	currentUser				string		CURRENT_USER
 *	databaseName			string
 *	remoteHost				string		address, "[local]" for a socket
 *	remotePort				string		null for a socket
 *	netProtocol				string		"TCP", "UNIX"; null without a client
 *	dbProtocol				string		"Postgres 3.0"; null without a client
 *	clientApplication		string		application_name
 *	serverHost				string		host name
 *	serverType				string		"PostgreSQL"
 *	serverVersion			string		as server_version, "15.20 (...)"
 *	serviceName				string		cluster_name
 *	transactionId			number		null if none was assigned
 *	virtualTransactionId	string		"3/1234"
 *	queryId					number		null if not computed
 *	textEncoding			string		see json_text.c; null: all is UTF-8
 *	interrupted				boolean		the server died first; only if true
 *	cut						boolean		text is incomplete; only if true
 *	incomplete				boolean		fields are missing; only if true
 *
 * doc/audit-record.schema.json says the same as a JSON Schema.  A change of a
 * field's meaning, type or name, or of the order, must raise FORMAT_VERSION; a
 * new field need not.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "format/format_internal.h"
#include "format/json_text.h"
#include "mb/pg_wchar.h"

#define FORMAT_VERSION	"1"

/* What stands for a parameter that was too long, as in the pgaudit format */
#define LONG_PARAMETER	"<long param suppressed>"

/* The times; that of the record is one of the other two. */
static void
put_times(PaqBuffer *buf, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	char		text[PAQ_TIME_TEXT];
	int			len;

	if (unlikely(header->end_time == 0))
	{
		PAQ_JSON_NAME(buf, "logTime");
		paq_json_time(buf, paq_record_log_time(record));
		PAQ_JSON_NAME(buf, "startTime");
		paq_json_time(buf, header->start_time);
		PAQ_PUT_LITERAL(buf, ",\"endTime\":null");
		return;
	}
	len = paq_time_iso(text, paq_time_split(header->end_time));
	PAQ_JSON_NAME(buf, "logTime");
	paq_json_plain(buf, text, len);
	PAQ_JSON_NAME(buf, "startTime");
	paq_json_time(buf, header->start_time);
	PAQ_JSON_NAME(buf, "endTime");
	paq_json_plain(buf, text, len);
}

/* Number, times and type of the record */
static void
put_head(PaqBuffer *buf, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;

	if (header->kind == PAQ_KIND_GAP)
		PAQ_PUT_LITERAL(buf, "{\"type\":\"gap\"");
	else
		PAQ_PUT_LITERAL(buf, "{\"type\":\"record\"");
	PAQ_PUT_LITERAL(buf, ",\"formatVersion\":" FORMAT_VERSION);
	PAQ_JSON_NAME(buf, "sequence");
	paq_buffer_uint(buf, record->sequence);
	put_times(buf, record);
	PAQ_JSON_NAME(buf, "durationUs");
	paq_json_number(buf, header->end_time - header->start_time,
					header->start_time != 0 && header->end_time != 0);
}

static void
put_params(PaqJsonText *text, const PaqRecord *record, bool omitted)
{
	PaqText		params = record->field[PAQ_FIELD_PARAMETER];
	PaqParamIter iter;
	const char *value;
	int32		len;
	bool		first = true;

	if (omitted || params.data == NULL)
	{
		paq_json_null(text->buf);
		return;
	}
	paq_buffer_putc(text->buf, '[');
	paq_param_begin(&iter, params);
	while (paq_param_next(&iter, &len, &value))
	{
		if (!first)
			paq_buffer_putc(text->buf, ',');
		first = false;
		if (len == PAQ_PARAM_SUPPRESSED)
			paq_json_word(text->buf, LONG_PARAMETER);
		else if (len < 0)
			paq_json_null(text->buf);
		else
			paq_json_text_string(text, value, len);
	}
	paq_buffer_putc(text->buf, ']');
}

/* Why the text is not there; NULL if nobody left it out. */
static const char *
omitted_statement(uint32 flags)
{
	if (flags & PAQ_RECORD_STMT_NOT_LOGGED)
		return "not logged";
	if (flags & PAQ_RECORD_STMT_PREVIOUS)
		return "previously logged";
	return NULL;
}

/* Parameters go with their statement, or are left out by themselves. */
static const char *
omitted_params(uint32 flags)
{
	const char *reason = omitted_statement(flags);

	if (reason == NULL && (flags & PAQ_RECORD_PARAM_NOT_LOGGED))
		reason = "not logged";
	return reason;
}

static const char *
audit_type(const PaqRecordHeader *header)
{
	if (header->kind == PAQ_KIND_GAP)
		return NULL;
	return (header->flags & PAQ_RECORD_OBJECT) ? "OBJECT" : "SESSION";
}

/*
 * Is it known which part of the text the statement is, and not all of it but
 * for what ends it?
 */
static bool
is_part_of_text(const PaqRecord *record)
{
	PaqText		text = record->field[PAQ_FIELD_STATEMENT];
	int			location = record->header.stmt_location;
	int			len = record->header.stmt_len;

	if (location > 0)
		return true;
	if (location < 0 || len <= 0)
		return false;
	for (uint32 i = len; i < text.len; i++)
		if (strchr("; \t\r\n\f", text.data[i]) == NULL)
			return true;
	return false;
}

/* Values of a setting, which few records have */
static void
put_values(PaqJsonText *text, const PaqRecord *record)
{
	PaqBuffer  *buf = text->buf;

	if (likely(record->field[PAQ_FIELD_OLD_VALUE].data == NULL &&
			   record->field[PAQ_FIELD_NEW_VALUE].data == NULL &&
			   record->field[PAQ_FIELD_VALUE_SOURCE].data == NULL))
	{
		PAQ_PUT_LITERAL(buf, ",\"oldValue\":null,\"newValue\":null,"
						"\"valueSource\":null");
		return;
	}
	PAQ_JSON_NAME(buf, "oldValue");
	paq_json_text_field(text, record->field[PAQ_FIELD_OLD_VALUE]);
	PAQ_JSON_NAME(buf, "newValue");
	paq_json_text_field(text, record->field[PAQ_FIELD_NEW_VALUE]);
	PAQ_JSON_NAME(buf, "valueSource");
	paq_json_text_field(text, record->field[PAQ_FIELD_VALUE_SOURCE]);
}

/* What was done, to what */
static void
put_statement(PaqJsonText *text, const PaqRecord *record)
{
	PaqBuffer  *buf = text->buf;
	const PaqRecordHeader *header = &record->header;
	const char *no_statement = omitted_statement(header->flags);
	const char *no_params = omitted_params(header->flags);
	bool		is_part = is_part_of_text(record);

	PAQ_JSON_NAME(buf, "auditType");
	paq_json_word(buf, audit_type(header));
	PAQ_JSON_NAME(buf, "class");
	paq_json_word(buf, header->kind == PAQ_KIND_GAP ?
			 "GAP" : paq_class_label(header->audit_class));
	PAQ_JSON_NAME(buf, "command");
	paq_json_text_field(text, record->field[PAQ_FIELD_COMMAND]);
	PAQ_JSON_NAME(buf, "commandText");
	if (no_statement != NULL)
		paq_json_null(buf);
	else
		paq_json_text_field(text, record->field[PAQ_FIELD_STATEMENT]);
	PAQ_JSON_NAME(buf, "commandTextOmitted");
	paq_json_word(buf, no_statement);
	PAQ_JSON_NAME(buf, "statementLocation");
	paq_json_number(buf, header->stmt_location, is_part);
	PAQ_JSON_NAME(buf, "statementLength");
	paq_json_number(buf, header->stmt_len, is_part && header->stmt_len > 0);
	PAQ_JSON_NAME(buf, "paramList");
	put_params(text, record, no_params != NULL);
	PAQ_JSON_NAME(buf, "paramListOmitted");
	paq_json_word(buf, no_params);
	PAQ_JSON_NAME(buf, "objectType");
	paq_json_text_field(text, record->field[PAQ_FIELD_OBJECT_TYPE]);
	PAQ_JSON_NAME(buf, "objectName");
	paq_json_text_field(text, record->field[PAQ_FIELD_OBJECT_NAME]);
	put_values(text, record);
}

static void
put_outcome(PaqJsonText *text, const PaqRecord *record)
{
	PaqBuffer  *buf = text->buf;
	const PaqRecordHeader *header = &record->header;
	char		sqlstate[5];

	PAQ_JSON_NAME(buf, "rowCount");
	paq_json_number(buf, header->rows,
					header->rows >= 0);
	PAQ_JSON_NAME(buf, "exitCode");
	if (!paq_record_has_outcome(header))
		paq_json_null(buf);
	else
	{
		paq_sqlstate_text(sqlstate, header->sqlstate);
		paq_json_plain(buf, sqlstate, sizeof(sqlstate));
	}
	PAQ_JSON_NAME(buf, "errorMessage");
	paq_json_text_field(text, record->field[PAQ_FIELD_MESSAGE]);
}

/* Numbers of the record within its session */
static void
put_numbers(PaqBuffer *buf, const PaqRecordHeader *header)
{
	PAQ_JSON_NAME(buf, "statementId");
	paq_json_number(buf, header->statement_id, header->statement_id > 0);
	PAQ_JSON_NAME(buf, "substatementId");
	paq_json_number(buf, header->substatement_id, header->substatement_id > 0);
	PAQ_JSON_NAME(buf, "sessionLine");
	paq_json_number(buf, header->session_line, header->session_line > 0);
}

/* "3/1234", or null for what is not a session */
static void
put_vxid(PaqBuffer *buf, const PaqRecordHeader *header)
{
	if (header->kind == PAQ_KIND_GAP || header->vxid_proc < 0)
	{
		paq_json_null(buf);
		return;
	}
	paq_buffer_putc(buf, '"');
	paq_buffer_int(buf, header->vxid_proc);
	paq_buffer_putc(buf, '/');
	paq_buffer_uint(buf, header->vxid_lxid);
	paq_buffer_putc(buf, '"');
}

/* Everything else, and the end; after all texts, for textEncoding's sake */
static void
put_tail(PaqJsonText *text, const PaqRecordHeader *header)
{
	PaqBuffer  *buf = text->buf;

	PAQ_JSON_NAME(buf, "transactionId");
	paq_json_number(buf, header->xid, header->xid != 0);
	PAQ_JSON_NAME(buf, "virtualTransactionId");
	put_vxid(buf, header);
	PAQ_JSON_NAME(buf, "queryId");
	paq_json_number(buf, header->query_id, header->query_id != 0);
	PAQ_JSON_NAME(buf, "textEncoding");
	if (text->raw || !text->utf8)
		paq_json_word(buf, pg_encoding_to_char(header->encoding));
	else
		paq_json_null(buf);
	if (header->flags & PAQ_RECORD_INTERRUPTED)
		PAQ_PUT_LITERAL(buf, ",\"interrupted\":true");
	if (header->flags & PAQ_RECORD_CUT)
		PAQ_PUT_LITERAL(buf, ",\"cut\":true");
	if (header->flags & PAQ_RECORD_INCOMPLETE)
		PAQ_PUT_LITERAL(buf, ",\"incomplete\":true");
	PAQ_PUT_LITERAL(buf, "}\n");
}

static void
write_object(PaqBuffer *buf, const PaqRecord *record)
{
	PaqJsonText text;

	paq_json_text_begin(&text, buf, record->header.encoding);
	put_head(buf, record);
	put_statement(&text, record);
	put_outcome(&text, record);
	put_numbers(buf, &record->header);
	paq_json_session(&text, record);
	put_tail(&text, &record->header);
}

/* A line, because newlines in texts are escaped */
static Size
line_length(const char *data, Size len)
{
	const char *newline = memchr(data, '\n', len);

	return newline ? newline + 1 - data : 0;
}

/* It comes before all text that could look like it, and only there. */
static bool
find_sequence(const char *line, Size len, Size *start, Size *digits)
{
	static const char name[] = "\"sequence\":";
	const Size	name_len = sizeof(name) - 1;

	if (*start > 0)
		return false;
	for (Size i = 0; i + name_len < Min(len, 128); i++)
	{
		if (memcmp(line + i, name, name_len) != 0)
			continue;
		*start = i + name_len;
		*digits = 0;
		while (*start + *digits < len &&
			   isdigit((unsigned char) line[*start + *digits]))
			(*digits)++;
		return *digits > 0;
	}
	return false;
}

const PaqFormat *
paq_format_json(void)
{
	static const PaqFormat format = {
		.name = "json",
		.extension = ".json",
		.write = write_object,
		.record_length = line_length,
		.rest_length = line_length,
		.find_sequence = find_sequence
	};

	return &format;
}
