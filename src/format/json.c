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
 * A change of a field's meaning, type or name, or of the order, must raise
 * FORMAT_VERSION; a new field need not.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <unistd.h>

#include "format/format_internal.h"
#include "format/json_text.h"
#include "mb/pg_wchar.h"
#include "utils/guc.h"

#define FORMAT_VERSION	"1"

/* What stands for a parameter that was too long, as in the pgaudit format */
#define LONG_PARAMETER	"<long param suppressed>"

/* Append a field's name; every field but the first has a comma before it. */
#define PUT_NAME(buf, name)	PAQ_PUT_LITERAL(buf, ",\"" name "\":")

static void
put_null(PaqBuffer *buf)
{
	PAQ_PUT_LITERAL(buf, "null");
}

/* A string that needs no escaping */
static void
put_plain(PaqBuffer *buf, const char *data, Size len)
{
	paq_buffer_putc(buf, '"');
	paq_put(buf, data, len);
	paq_buffer_putc(buf, '"');
}

/* A string that needs no escaping, or null */
static void
put_word(PaqBuffer *buf, const char *word)
{
	if (word == NULL)
		put_null(buf);
	else
		put_plain(buf, word, strlen(word));
}

static void
put_number(PaqBuffer *buf, int64 value, bool known)
{
	if (known)
		paq_buffer_int(buf, value);
	else
		put_null(buf);
}

static void
put_time(PaqBuffer *buf, int64 timestamp)
{
	char		text[PAQ_TIME_TEXT];

	if (timestamp == 0)
		put_null(buf);
	else
		put_plain(buf, text, paq_time_iso(text, paq_time_split(timestamp)));
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
	PUT_NAME(buf, "sequence");
	paq_buffer_uint(buf, record->sequence);
	PUT_NAME(buf, "logTime");
	put_time(buf, paq_record_log_time(record));
	PUT_NAME(buf, "startTime");
	put_time(buf, header->start_time);
	PUT_NAME(buf, "endTime");
	put_time(buf, header->end_time);
	PUT_NAME(buf, "durationUs");
	put_number(buf, header->end_time - header->start_time,
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
		put_null(text->buf);
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
			put_word(text->buf, LONG_PARAMETER);
		else if (len < 0)
			put_null(text->buf);
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

/* What was done, to what */
static void
put_statement(PaqJsonText *text, const PaqRecord *record)
{
	PaqBuffer  *buf = text->buf;
	const PaqRecordHeader *header = &record->header;
	const char *no_statement = omitted_statement(header->flags);
	const char *no_params = omitted_params(header->flags);
	bool		is_part = is_part_of_text(record);

	PUT_NAME(buf, "auditType");
	put_word(buf, audit_type(header));
	PUT_NAME(buf, "class");
	put_word(buf, header->kind == PAQ_KIND_GAP ?
			 "GAP" : paq_class_label(header->audit_class));
	PUT_NAME(buf, "command");
	paq_json_text_field(text, record->field[PAQ_FIELD_COMMAND]);
	PUT_NAME(buf, "commandText");
	if (no_statement != NULL)
		put_null(buf);
	else
		paq_json_text_field(text, record->field[PAQ_FIELD_STATEMENT]);
	PUT_NAME(buf, "commandTextOmitted");
	put_word(buf, no_statement);
	PUT_NAME(buf, "statementLocation");
	put_number(buf, header->stmt_location, is_part);
	PUT_NAME(buf, "statementLength");
	put_number(buf, header->stmt_len, is_part && header->stmt_len > 0);
	PUT_NAME(buf, "paramList");
	put_params(text, record, no_params != NULL);
	PUT_NAME(buf, "paramListOmitted");
	put_word(buf, no_params);
	PUT_NAME(buf, "objectType");
	paq_json_text_field(text, record->field[PAQ_FIELD_OBJECT_TYPE]);
	PUT_NAME(buf, "objectName");
	paq_json_text_field(text, record->field[PAQ_FIELD_OBJECT_NAME]);
	PUT_NAME(buf, "oldValue");
	paq_json_text_field(text, record->field[PAQ_FIELD_OLD_VALUE]);
	PUT_NAME(buf, "newValue");
	paq_json_text_field(text, record->field[PAQ_FIELD_NEW_VALUE]);
	PUT_NAME(buf, "valueSource");
	paq_json_text_field(text, record->field[PAQ_FIELD_VALUE_SOURCE]);
}

static void
put_outcome(PaqJsonText *text, const PaqRecord *record)
{
	PaqBuffer  *buf = text->buf;
	const PaqRecordHeader *header = &record->header;
	char		sqlstate[5];

	PUT_NAME(buf, "rowCount");
	put_number(buf, header->rows,
			   header->rows >= 0);
	PUT_NAME(buf, "exitCode");
	if (!paq_record_has_outcome(header))
		put_null(buf);
	else
	{
		paq_sqlstate_text(sqlstate, header->sqlstate);
		put_plain(buf, sqlstate, sizeof(sqlstate));
	}
	PUT_NAME(buf, "errorMessage");
	paq_json_text_field(text, record->field[PAQ_FIELD_MESSAGE]);
}

/* The session's numbers */
static void
put_session(PaqBuffer *buf, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	char		id[PAQ_SESSION_ID_TEXT];

	PUT_NAME(buf, "statementId");
	put_number(buf, header->statement_id, header->statement_id > 0);
	PUT_NAME(buf, "substatementId");
	put_number(buf, header->substatement_id, header->substatement_id > 0);
	PUT_NAME(buf, "sessionLine");
	put_number(buf, header->session_line, header->session_line > 0);
	PUT_NAME(buf, "sessionId");
	if (header->session_start == 0)
		put_null(buf);
	else
		put_plain(buf, id, paq_session_id_text(id, record));
	PUT_NAME(buf, "sessionStart");
	put_time(buf, header->session_start);
	PUT_NAME(buf, "pid");
	put_number(buf, header->pid, header->pid != 0);
}

/* Who, and from where */
static void
put_client(PaqJsonText *text, const PaqRecord *record)
{
	PaqBuffer  *buf = text->buf;
	PaqText		port = record->field[PAQ_FIELD_REMOTE_PORT];
	bool		client = paq_record_has_client(record);
	const char *net = paq_record_is_local(record) ? "UNIX" : "TCP";

	PUT_NAME(buf, "backendType");
	paq_json_text_field(text, record->field[PAQ_FIELD_BACKEND_TYPE]);
	PUT_NAME(buf, "dbUserName");
	paq_json_text_field(text, record->field[PAQ_FIELD_USER]);
	PUT_NAME(buf, "sessionUser");
	paq_json_text_field(text, record->field[PAQ_FIELD_SESSION_USER]);
	PUT_NAME(buf, "currentUser");
	paq_json_text_field(text, record->field[PAQ_FIELD_CURRENT_USER]);
	PUT_NAME(buf, "databaseName");
	paq_json_text_field(text, record->field[PAQ_FIELD_DATABASE]);
	PUT_NAME(buf, "remoteHost");
	paq_json_text_field(text, record->field[PAQ_FIELD_REMOTE_HOST]);
	PUT_NAME(buf, "remotePort");
	if (port.len == 0)
		port.data = NULL;
	paq_json_text_field(text, port);
	PUT_NAME(buf, "netProtocol");
	put_word(buf, client ? net : NULL);
	PUT_NAME(buf, "dbProtocol");
	put_word(buf, client ? "Postgres 3.0" : NULL);
	PUT_NAME(buf, "clientApplication");
	paq_json_text_field(text, record->field[PAQ_FIELD_APPLICATION]);
}

/* Name of this machine, asked for once; empty if it has none. */
static const char *
host_name(void)
{
	static char name[256];
	static bool known = false;

	if (!known && gethostname(name, sizeof(name) - 1) != 0)
		name[0] = '\0';
	known = true;
	return name;
}

/* A C string of the server's own, null if empty */
static void
put_setting(PaqJsonText *text, const char *value)
{
	if (value == NULL || value[0] == '\0')
		put_null(text->buf);
	else
		paq_json_text_string(text, value, strlen(value));
}

static void
put_server(PaqJsonText *text)
{
	PaqBuffer  *buf = text->buf;

	PUT_NAME(buf, "serverHost");
	put_setting(text, host_name());
	PAQ_PUT_LITERAL(buf, ",\"serverType\":\"PostgreSQL\","
					"\"serverVersion\":\"" PG_VERSION "\"");
	PUT_NAME(buf, "serviceName");
	put_setting(text, cluster_name);
}

/* "3/1234", or null for what is not a session */
static void
put_vxid(PaqBuffer *buf, const PaqRecordHeader *header)
{
	if (header->kind == PAQ_KIND_GAP || header->vxid_proc < 0)
	{
		put_null(buf);
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

	PUT_NAME(buf, "transactionId");
	put_number(buf, header->xid, header->xid != 0);
	PUT_NAME(buf, "virtualTransactionId");
	put_vxid(buf, header);
	PUT_NAME(buf, "queryId");
	put_number(buf, header->query_id, header->query_id != 0);
	PUT_NAME(buf, "textEncoding");
	if (text->raw || !text->utf8)
		put_word(buf, pg_encoding_to_char(header->encoding));
	else
		put_null(buf);
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
	put_session(buf, record);
	put_client(&text, record);
	put_server(&text);
	put_tail(&text, &record->header);
}

/* A line, because newlines in texts are escaped */
static Size
line_length(const char *data, Size len)
{
	const char *newline = memchr(data, '\n', len);

	return newline ? newline + 1 - data : 0;
}

/* It comes before all text that could look like it. */
static bool
find_sequence(const char *line, Size len, Size *start, Size *digits)
{
	static const char name[] = "\"sequence\":";
	const Size	name_len = sizeof(name) - 1;

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
		.find_sequence = find_sequence
	};

	return &format;
}
