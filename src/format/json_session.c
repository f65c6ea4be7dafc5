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

/* What the text depends on */
typedef struct SessionKey
{
	int64		session_start;
	const pg_tz *zone;			/* NULL: nothing is kept */
	int32		pid;
	int32		encoding;
	uint32		field_len[PAQ_NSESSION_FIELDS];
} SessionKey;

typedef struct SessionText
{
	SessionKey	key;
	Size		fields_len;
	Size		text_len;
	bool		raw;			/* see PaqJsonText */
	char		fields[MAX_KEPT_FIELDS];
	char		text[MAX_KEPT_TEXT];
} SessionText;

static SessionText sessions[NSESSIONS];

/* Which session it is */
static void
put_identity(PaqBuffer *buf, const PaqRecord *record)
{
	const PaqRecordHeader *header = &record->header;
	char		id[PAQ_SESSION_ID_TEXT];

	PAQ_JSON_NAME(buf, "sessionId");
	if (header->session_start == 0)
		paq_json_null(buf);
	else
		paq_json_plain(buf, id, paq_session_id_text(id, record));
	PAQ_JSON_NAME(buf, "sessionStart");
	paq_json_time(buf, header->session_start);
	PAQ_JSON_NAME(buf, "pid");
	paq_json_number(buf, header->pid, header->pid != 0);
}

/* Who, and from where */
static void
put_client(PaqJsonText *text, const PaqRecord *record)
{
	PaqBuffer  *buf = text->buf;
	PaqText		port = record->field[PAQ_FIELD_REMOTE_PORT];
	bool		client = paq_record_has_client(record);
	const char *net = paq_record_is_local(record) ? "UNIX" : "TCP";

	PAQ_JSON_NAME(buf, "backendType");
	paq_json_text_field(text, record->field[PAQ_FIELD_BACKEND_TYPE]);
	PAQ_JSON_NAME(buf, "dbUserName");
	paq_json_text_field(text, record->field[PAQ_FIELD_USER]);
	PAQ_JSON_NAME(buf, "sessionUser");
	paq_json_text_field(text, record->field[PAQ_FIELD_SESSION_USER]);
	PAQ_JSON_NAME(buf, "currentUser");
	paq_json_text_field(text, record->field[PAQ_FIELD_CURRENT_USER]);
	PAQ_JSON_NAME(buf, "databaseName");
	paq_json_text_field(text, record->field[PAQ_FIELD_DATABASE]);
	PAQ_JSON_NAME(buf, "remoteHost");
	paq_json_text_field(text, record->field[PAQ_FIELD_REMOTE_HOST]);
	PAQ_JSON_NAME(buf, "remotePort");
	if (port.len == 0)
		port.data = NULL;
	paq_json_text_field(text, port);
	PAQ_JSON_NAME(buf, "netProtocol");
	paq_json_word(buf, client ? net : NULL);
	PAQ_JSON_NAME(buf, "dbProtocol");
	paq_json_word(buf, client ? "Postgres 3.0" : NULL);
	PAQ_JSON_NAME(buf, "clientApplication");
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
		paq_json_null(text->buf);
	else
		paq_json_text_string(text, value, strlen(value));
}

/* The server; none of it changes while that runs. */
static void
put_server(PaqJsonText *text)
{
	PaqBuffer  *buf = text->buf;

	PAQ_JSON_NAME(buf, "serverHost");
	put_setting(text, host_name());
	PAQ_PUT_LITERAL(buf, ",\"serverType\":\"PostgreSQL\","
					"\"serverVersion\":\"" PG_VERSION "\"");
	PAQ_JSON_NAME(buf, "serviceName");
	put_setting(text, cluster_name);
}

static void
put_all(PaqJsonText *text, const PaqRecord *record)
{
	put_identity(text->buf, record);
	put_client(text, record);
	put_server(text);
}

/* The session's fields as they are in the record: one behind the other. */
static PaqText
session_fields(const PaqRecord *record)
{
	PaqText		fields = {NULL, 0};

	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
	{
		if (record->field[i].data == NULL)
			continue;
		if (fields.data == NULL)
			fields.data = record->field[i].data;
		fields.len += record->field[i].len;
	}
	return fields;
}

static void
make_key(SessionKey *key, const PaqRecord *record)
{
	memset(key, 0, sizeof(*key));
	key->session_start = record->header.session_start;
	key->zone = log_timezone;
	key->pid = record->header.pid;
	key->encoding = record->header.encoding;
	memcpy(key->field_len, record->header.field_len, sizeof(key->field_len));
}

/* Make the text that is kept; false if it is too long. */
static bool
fill(SessionText *session, const PaqJsonText *text, const PaqRecord *record,
	 const SessionKey *key, PaqText fields)
{
	PaqBuffer	buf = {.data = session->text, .size = sizeof(session->text)};
	PaqJsonText kept = *text;

	session->key.zone = NULL;
	if (fields.len > sizeof(session->fields))
		return false;
	kept.buf = &buf;
	kept.raw = false;
	put_all(&kept, record);
	if (buf.failed)
		return false;
	session->key = *key;
	session->fields_len = fields.len;
	if (fields.len > 0)
		memcpy(session->fields, fields.data, fields.len);
	session->text_len = buf.used;
	session->raw = kept.raw;
	return true;
}

static bool
is_kept(const SessionText *session, const SessionKey *key, PaqText fields)
{
	return memcmp(&session->key, key, sizeof(*key)) == 0 &&
		session->fields_len == fields.len &&
		(fields.len == 0 ||
		 memcmp(session->fields, fields.data, fields.len) == 0);
}

/* Append the fields from sessionId to serviceName. */
void
paq_json_session(PaqJsonText *text, const PaqRecord *record)
{
	SessionText *session = &sessions[record->header.pid & (NSESSIONS - 1)];
	PaqText		fields = session_fields(record);
	SessionKey	key;

	make_key(&key, record);
	if (unlikely(!is_kept(session, &key, fields)) &&
		!fill(session, text, record, &key, fields))
	{
		put_all(text, record);
		return;
	}
	paq_put(text->buf, session->text, session->text_len);
	text->raw = text->raw || session->raw;
}
