/*-------------------------------------------------------------------------
 *
 * json_session.c
 *		The JSON format's fields that are the same in all records of a session.
 *
 * They are more than half of a record, so their text is kept: the next record
 * of the session gets a copy of it.  What it was made from is kept as well, and
 * compared.
 *
 * Must not allocate or raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "format/json_text.h"
#include "pgtime.h"
#include "utils/guc.h"

/* Sessions whose text is kept: a power of 2 */
#define NSESSIONS		256

/* Longest fields, and longest text, that are kept, in bytes */
#define MAX_KEPT_FIELDS	512
#define MAX_KEPT_TEXT	1536

/* Text that is kept, and what it depends on */
typedef struct SessionText
{
	int64		session_start;
	const pg_tz *zone;			/* NULL: nothing is kept */
	int32		pid;
	int32		encoding;
	uint32		field_len[PAQ_NSESSION_FIELDS];
	uint32		fields_len;
	uint32		text_len;
	bool		raw;			/* see PaqJsonText */
	char		fields[MAX_KEPT_FIELDS];
	char		text[MAX_KEPT_TEXT];
} SessionText;

static SessionText sessions[NSESSIONS];

/* Which session it is */
static char *
put_identity(char *p, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;

	p = PAQ_JSON_NAME(p, "sessionId");
	if (header->session_start == 0)
		p = paq_json_null(p);
	else
	{
		*p++ = '"';
		p += paq_session_id_text(p, record);
		*p++ = '"';
	}
	p = PAQ_JSON_NAME(p, "sessionStart");
	p = paq_json_time(p, header->session_start);
	p = PAQ_JSON_NAME(p, "pid");
	return paq_json_number(p, header->pid, header->pid != 0);
}

/* Who, and from where */
static char *
put_client(PaqJsonText *text, char *p, const PaqRecord *record)
{
	PaqText		port = record->field[PAQ_FIELD_REMOTE_PORT];
	bool		client = paq_record_has_client(record);
	const char *net = paq_record_is_local(record) ? "UNIX" : "TCP";

	p = PAQ_JSON_NAME(p, "backendType");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_BACKEND_TYPE]);
	p = PAQ_JSON_NAME(p, "dbUserName");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_USER]);
	p = PAQ_JSON_NAME(p, "sessionUser");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_SESSION_USER]);
	p = PAQ_JSON_NAME(p, "currentUser");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_CURRENT_USER]);
	p = PAQ_JSON_NAME(p, "databaseName");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_DATABASE]);
	p = PAQ_JSON_NAME(p, "remoteHost");
	p = paq_json_text_field(text, p, record->field[PAQ_FIELD_REMOTE_HOST]);
	p = PAQ_JSON_NAME(p, "remotePort");
	if (port.len == 0)
		port.data = NULL;
	p = paq_json_text_field(text, p, port);
	p = PAQ_JSON_NAME(p, "netProtocol");
	p = paq_json_word(p, client ? net : NULL);
	p = PAQ_JSON_NAME(p, "dbProtocol");
	p = paq_json_word(p, client ? "Postgres 3.0" : NULL);
	p = PAQ_JSON_NAME(p, "clientApplication");
	return paq_json_text_field(text, p, record->field[PAQ_FIELD_APPLICATION]);
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
static char *
put_setting(PaqJsonText *text, char *p, const char *value)
{
	if (value == NULL || value[0] == '\0')
		return paq_json_null(p);
	return paq_json_text_string(text, p, value, strlen(value));
}

/* The server; none of it changes while that runs. */
static char *
put_server(PaqJsonText *text, char *p)
{
	p = PAQ_JSON_NAME(p, "serverHost");
	p = put_setting(text, p, host_name());
	p = paq_json_put(p, ",\"serverType\":\"PostgreSQL\","
					 "\"serverVersion\":\"" PG_VERSION "\"");
	p = PAQ_JSON_NAME(p, "serviceName");
	return put_setting(text, p, cluster_name);
}

static char *
put_all(PaqJsonText *text, char *p, const PaqRecord *record)
{
	p = put_identity(p, record);
	p = put_client(text, p, record);
	return put_server(text, p);
}

/*
 * The session's fields as they are in the record, one behind the other: where
 * they begin.
 */
static inline const char *
session_fields(const PaqRecord *record)
{
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		if (record->field[i].data != NULL)
			return record->field[i].data;
	return "";
}

/* Make the text that is kept; false if it, or what it is made from, is too long. */
static pg_noinline bool
fill(SessionText *session, const PaqRecord *record)
{
	static char made[MAX_KEPT_TEXT + PAQ_FORMAT_ROOM];
	PaqBuffer	buf = {.data = made, .size = sizeof(made)};
	const PaqRecordHeader *header = &record->header;
	PaqJsonText text;
	uint64		fields_len = 0;
	char	   *p;

	session->zone = NULL;
	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		fields_len += record->field[i].len;
	if (fields_len > sizeof(session->fields))
		return false;
	p = paq_json_text_begin(&text, &buf, header->encoding);
	p = put_all(&text, p, record);
	paq_json_text_end(&text, p);
	if (buf.failed || buf.used > sizeof(session->text))
		return false;
	session->session_start = header->session_start;
	session->zone = log_timezone;
	session->pid = header->pid;
	session->encoding = header->encoding;
	memcpy(session->field_len, header->field_len, sizeof(session->field_len));
	session->fields_len = fields_len;
	memcpy(session->fields, session_fields(record), fields_len);
	session->text_len = buf.used;
	memcpy(session->text, made, buf.used);
	session->raw = text.raw;
	return true;
}

/* Fields of the same lengths are as long as the kept ones, taken together. */
static inline bool
is_kept(const SessionText *session, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;

	return session->zone == log_timezone &&
		session->session_start == header->session_start &&
		session->pid == header->pid &&
		session->encoding == header->encoding &&
		memcmp(session->field_len, header->field_len,
			   sizeof(session->field_len)) == 0 &&
		memcmp(session->fields, session_fields(record),
			   session->fields_len) == 0;
}

/* Append the fields from sessionId to serviceName. */
char *
paq_json_session(PaqJsonText *text, char *p, const PaqRecord *record)
{
	SessionText *session = &sessions[record->header.pid & (NSESSIONS - 1)];

	if (unlikely(!is_kept(session, record)) && !fill(session, record))
		return put_all(text, p, record);
	text->raw = text->raw || session->raw;
	return paq_json_text_append(text, p, session->text, session->text_len);
}
