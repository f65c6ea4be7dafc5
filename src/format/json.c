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
 *	statementLocation		number		where it began in a text of several, bytes
 *	statementLength			number		its length there, bytes
 *	paramList				array		strings, null for SQL's null
 *	paramListOmitted		string		"not logged", "previously logged", "masked"
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
 *	masked					boolean		not only secrets are; only if true
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

/* The times; that of the record is one of the other two, mostly the end. */
static char *
put_times(char *p, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	const char *log_time;
	Size		len;

	p = PAQ_JSON_NAME(p, "logTime");
	log_time = p;
	p = paq_json_time(p, paq_record_log_time(record));
	len = p - log_time;
	p = PAQ_JSON_NAME(p, "startTime");
	p = paq_json_time(p, header->start_time);
	p = PAQ_JSON_NAME(p, "endTime");
	if (unlikely(header->end_time == 0))
		return paq_json_null(p);
	memcpy(p, log_time, len);
	return p + len;
}

/* Number, times and type of the record */
static char *
put_head(char *p, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;

	if (header->kind == PAQ_KIND_GAP)
		p = paq_json_put(p, "{\"type\":\"gap\"");
	else
		p = paq_json_put(p, "{\"type\":\"record\"");
	p = paq_json_put(p, ",\"formatVersion\":" FORMAT_VERSION ",\"sequence\":");
	p += paq_uint_text(p, record->sequence);
	p = put_times(p, record);
	p = PAQ_JSON_NAME(p, "durationUs");
	return paq_json_number(p, header->end_time - header->start_time,
						   header->start_time != 0 && header->end_time != 0);
}

static char *
put_params(PaqJsonText *text, char *p, const PaqRecord *record, bool omitted)
{
	PaqText		params = record->field[PAQ_FIELD_PARAMETER];
	PaqParamIter iter;
	const char *value;
	int32		len;
	bool		first = true;

	if (omitted || params.data == NULL)
		return paq_json_null(p);
	*p++ = '[';
	paq_param_begin(&iter, params);
	while (paq_param_next(&iter, &len, &value))
	{
		if (!first)
			*p++ = ',';
		first = false;
		if (len == PAQ_PARAM_SUPPRESSED)
			p = paq_json_text_string(text, p, LONG_PARAMETER,
									 strlen(LONG_PARAMETER));
		else if (len < 0)
			p = paq_json_text_append(text, p, "null", 4);
		else
			p = paq_json_text_string(text, p, value, len);
	}
	*p++ = ']';
	return p;
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
	if (reason == NULL && (flags & PAQ_RECORD_CONSTANTS))
		reason = "masked";
	return reason;
}

static char *
put_class(char *p, const PaqRecordHeader *header)
{
	if (header->kind == PAQ_KIND_GAP)
		return paq_json_put(p, ",\"auditType\":null,\"class\":\"GAP\"");
	if (header->flags & PAQ_RECORD_OBJECT)
		p = paq_json_put(p, ",\"auditType\":\"OBJECT\"");
	else
		p = paq_json_put(p, ",\"auditType\":\"SESSION\"");
	p = PAQ_JSON_NAME(p, "class");
	return paq_json_word(p, paq_class_label(header->audit_class));
}

/* Values of a setting, which few records have */
static char *
put_values(PaqJsonText *text, char *p, const PaqRecord *record)
{
	if (likely(record->field[PAQ_FIELD_OLD_VALUE].data == NULL &&
			   record->field[PAQ_FIELD_NEW_VALUE].data == NULL &&
			   record->field[PAQ_FIELD_VALUE_SOURCE].data == NULL))
		return paq_json_put(p, ",\"oldValue\":null,\"newValue\":null,"
							"\"valueSource\":null");
	p = PAQ_JSON_NAME(p, "oldValue");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_OLD_VALUE]);
	p = PAQ_JSON_NAME(p, "newValue");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_NEW_VALUE]);
	p = PAQ_JSON_NAME(p, "valueSource");
	return paq_json_text_field(text, p, record->field[PAQ_FIELD_VALUE_SOURCE]);
}

/* What was done, to what */
static char *
put_statement(PaqJsonText *text, char *p, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	const char *no_statement = omitted_statement(header->flags);
	const char *no_params = omitted_params(header->flags);
	const bool	is_part = header->stmt_location >= 0;

	p = put_class(p, header);
	p = PAQ_JSON_NAME(p, "command");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_COMMAND]);
	p = PAQ_JSON_NAME(p, "commandText");
	if (no_statement != NULL)
		p = paq_json_null(p);
	else
		p = paq_json_text_field(text, p, record->field[PAQ_FIELD_STATEMENT]);
	p = PAQ_JSON_NAME(p, "commandTextOmitted");
	p = paq_json_word(p, no_statement);
	p = PAQ_JSON_NAME(p, "statementLocation");
	p = paq_json_number(p, header->stmt_location, is_part);
	p = PAQ_JSON_NAME(p, "statementLength");
	p = paq_json_number(p, header->stmt_len, is_part && header->stmt_len > 0);
	p = PAQ_JSON_NAME(p, "paramList");
	p = put_params(text, p, record, no_params != NULL);
	p = PAQ_JSON_NAME(p, "paramListOmitted");
	p = paq_json_word(p, no_params);
	p = PAQ_JSON_NAME(p, "objectType");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_OBJECT_TYPE]);
	p = PAQ_JSON_NAME(p, "objectName");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_OBJECT_NAME]);
	return put_values(text, p, record);
}

static char *
put_outcome(PaqJsonText *text, char *p, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;

	p = PAQ_JSON_NAME(p, "rowCount");
	p = paq_json_number(p, header->rows, header->rows >= 0);
	p = PAQ_JSON_NAME(p, "exitCode");
	if (!paq_record_has_outcome(header))
		p = paq_json_null(p);
	else if (likely(header->sqlstate == 0))
		p = paq_json_put(p, "\"00000\"");
	else
	{
		*p++ = '"';
		paq_sqlstate_text(p, header->sqlstate);
		p += 5;
		*p++ = '"';
	}
	p = PAQ_JSON_NAME(p, "errorMessage");
	return paq_json_text_field(text, p, record->field[PAQ_FIELD_MESSAGE]);
}

/* Numbers of the record within its session */
static char *
put_numbers(char *p, const PaqRecordHeader *header)
{
	p = PAQ_JSON_NAME(p, "statementId");
	p = paq_json_number(p, header->statement_id, header->statement_id > 0);
	p = PAQ_JSON_NAME(p, "substatementId");
	p = paq_json_number(p, header->substatement_id, header->substatement_id > 0);
	p = PAQ_JSON_NAME(p, "sessionLine");
	return paq_json_number(p, header->session_line, header->session_line > 0);
}

/* "3/1234", or null for what is not a session */
static char *
put_vxid(char *p, const PaqRecordHeader *header)
{
	if (header->kind == PAQ_KIND_GAP || header->vxid_proc < 0)
		return paq_json_null(p);
	*p++ = '"';
	p += paq_int_text(p, header->vxid_proc);
	*p++ = '/';
	p += paq_uint_text(p, header->vxid_lxid);
	*p++ = '"';
	return p;
}

/* Everything else, and the end; after all texts, for textEncoding's sake */
static char *
put_tail(const PaqJsonText *text, char *p, const PaqRecordHeader *header)
{
	p = PAQ_JSON_NAME(p, "transactionId");
	p = paq_json_number(p, header->xid, header->xid != 0);
	p = PAQ_JSON_NAME(p, "virtualTransactionId");
	p = put_vxid(p, header);
	p = PAQ_JSON_NAME(p, "queryId");
	p = paq_json_number(p, header->query_id, header->query_id != 0);
	p = PAQ_JSON_NAME(p, "textEncoding");
	if (text->raw || !text->utf8)
		p = paq_json_word(p, pg_encoding_to_char(header->encoding));
	else
		p = paq_json_null(p);
	if (header->flags & PAQ_RECORD_INTERRUPTED)
		p = paq_json_put(p, ",\"interrupted\":true");
	if (header->flags & PAQ_RECORD_CUT)
		p = paq_json_put(p, ",\"cut\":true");
	if (header->flags & PAQ_RECORD_INCOMPLETE)
		p = paq_json_put(p, ",\"incomplete\":true");
	if (header->flags & PAQ_RECORD_MASKED)
		p = paq_json_put(p, ",\"masked\":true");
	return paq_json_put(p, "}\n");
}

static void
write_object(PaqBuffer *buf, const PaqRecord *record)
{
	PaqJsonText text;
	char	   *p = paq_json_text_begin(&text, buf, record->header.encoding);

	p = put_head(p, record);
	p = put_statement(&text, p, record);
	p = put_outcome(&text, p, record);
	p = put_numbers(p, &record->header);
	p = paq_json_session(&text, p, record);
	p = put_tail(&text, p, &record->header);
	paq_json_text_end(&text, p);
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
