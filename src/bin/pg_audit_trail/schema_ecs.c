/*-------------------------------------------------------------------------
 *
 * schema_ecs.c
 *		Format ecs: documents of the Elastic Common Schema.
 *
 * What the schema has no field for is below postgresql.audit, under the names of the table's
 * columns: custom fields under a proper name will not meet a later field of the schema.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/schema.h"

#define ECS_VERSION		"8.17.0"

/* The first that fits a record; if none does, it is information about a database. */
static const struct
{
	const char *class;
	const char *command;		/* how it begins */
	const char *category;
	const char *type;
}			categories[] = {
	{"READ", "", "\"database\"", "\"access\""},
	{"WRITE", "", "\"database\"", "\"change\""},
	{"FUNCTION", "", "\"database\"", "\"access\""},
	{"DDL", "", "\"database\"", "\"change\""},
	{"ROLE", "CREATE ROLE", "\"database\",\"iam\"", "\"change\",\"creation\",\"user\""},
	{"ROLE", "ALTER ROLE", "\"database\",\"iam\"", "\"change\",\"user\""},
	{"ROLE", "DROP ROLE", "\"database\",\"iam\"", "\"change\",\"deletion\",\"user\""},
	{"ROLE", "", "\"database\",\"iam\"", "\"admin\",\"change\""},
	{"ERROR", "", "\"database\"", "\"error\""},
	{"GAP", "", "\"database\"", "\"error\""},
	{"CONNECT", "LOGIN", "\"authentication\",\"session\"", "\"start\""},
	{"CONNECT", "LOGOUT", "\"authentication\",\"session\"", "\"end\""},
	{"CONFIG", "RETENTION", "\"database\"", "\"change\""},
	{"CONFIG", "DISK SPACE", "\"database\"", "\"info\""},
	{"CONFIG", "WORKER", "\"database\"", "\"info\""},
	{"CONFIG", "", "\"configuration\"", "\"change\""}
};

static void
write_list(SchemaLine *line, const char *path, const char *values, const char *more)
{
	schema_key(line, path);
	buffer_printf(line->buf, "[%s%s]", values, more);
}

/* A login that fails begins no session; of databases only, failures have a type. */
static void
write_categories(SchemaLine *line)
{
	const bool	failed = record_has_failed(line->record);
	const char *category = "\"database\"";
	const char *type = "\"info\"";

	for (int i = 0; i < lengthof(categories); i++)
		if (schema_is_class(line->record, categories[i].class, categories[i].command))
		{
			category = categories[i].category;
			type = categories[i].type;
			break;
		}
	if (failed && schema_is_class(line->record, "CONNECT", "LOGIN"))
		category = "\"authentication\"";
	write_list(line, "event.category", category, "");
	write_list(line, "event.type", type,
			   failed && strstr(category, "database") != NULL && strstr(type, "error") == NULL ?
			   ",\"error\"" : "");
}

/* "create-table" */
static void
write_action(SchemaLine *line)
{
	const PaqValue *value = &line->record->line.value[schema_action(line)];

	schema_key(line, "event.action");
	buffer_putc(line->buf, '"');
	for (Size i = 0; i < value->len; i++)
		buffer_putc(line->buf, value->data[i] == ' ' ? '-' : pg_ascii_tolower(value->data[i]));
	buffer_putc(line->buf, '"');
}

static void
write_event(SchemaLine *line)
{
	static const SchemaField fields[] = {
		{"event.sequence", PAQ_TRAIL_SEQUENCE},
		{"event.code", PAQ_TRAIL_EXIT_CODE},
		{"event.start", PAQ_TRAIL_START_TIME},
		{"event.end", PAQ_TRAIL_END_TIME},
		{"event.duration", PAQ_TRAIL_DURATION_US, SCHEMA_NANOS}
	};
	Record	   *record = line->record;
	const bool	heartbeat = record_is(record, PAQ_TRAIL_TYPE, "heartbeat");

	schema_string(line, "event.kind", heartbeat ? "state" : "event");
	write_categories(line);
	write_action(line);
	if (record_is(record, PAQ_TRAIL_TYPE, "record"))
		schema_string(line, "event.outcome",
					  !paq_line_has(&record->line, PAQ_TRAIL_EXIT_CODE) ? "unknown" : record_has_failed(record) ? "failure"
																												: "success");
	schema_string(line, "event.module", "postgresql");
	schema_string(line, "event.dataset", "postgresql.audit");
	schema_string(line, "event.provider", "pg_audit_queue");
	schema_identity(line, "event.id");
	schema_fields(line, fields, lengthof(fields));
}

static bool
is_same_value(const PaqValue *a, const PaqValue *b)
{
	return a->len == b->len && memcmp(a->data, b->data, a->len) == 0;
}

/* Each name once: whoever looks for somebody need not know in which part somebody was. */
static void
write_related_users(SchemaLine *line)
{
	static const PaqTrailField fields[] = {
		PAQ_TRAIL_USER_NAME, PAQ_TRAIL_SESSION_USER_NAME, PAQ_TRAIL_CURRENT_USER_NAME
	};
	const PaqValue *names[lengthof(fields)];
	int			count = 0;

	for (int i = 0; i < lengthof(fields); i++)
	{
		const PaqValue *value = &line->record->line.value[fields[i]];
		bool		is_new = schema_has(line, fields[i]);

		for (int j = 0; is_new && j < count; j++)
			is_new = !is_same_value(value, names[j]);
		if (is_new)
			names[count++] = value;
	}
	if (count == 0)
		return;
	schema_key(line, "related.user");
	for (int i = 0; i < count; i++)
	{
		buffer_puts(line->buf, i == 0 ? "[\"" : ",\"");
		buffer_put(line->buf, names[i]->data, names[i]->len);
		buffer_putc(line->buf, '"');
	}
	buffer_putc(line->buf, ']');
}

/* The schema has the number of a version like "TLSv1.3" apart from its protocol. */
static void
write_tls(SchemaLine *line)
{
	const Text	version = record_text(line->record, PAQ_TRAIL_TLS_VERSION);

	schema_field(line, "tls.cipher", PAQ_TRAIL_TLS_CIPHER, SCHEMA_SAME);
	if (version.len <= 4 || memcmp(version.data, "TLSv", 4) != 0)
		return;
	schema_key(line, "tls.version");
	buffer_putc(line->buf, '"');
	buffer_put(line->buf, version.data + 4, version.len - 4);
	buffer_putc(line->buf, '"');
	schema_string(line, "tls.version_protocol", "tls");
}

void
ecs_write(Buffer *buf, Record *record)
{
	static const SchemaField fields[] = {
		{"service.id", PAQ_TRAIL_SYSTEM_IDENTIFIER},
		{"service.name", PAQ_TRAIL_CLUSTER_NAME},
		{"service.version", PAQ_TRAIL_SERVER_VERSION},
		{"host.hostname", PAQ_TRAIL_SERVER_HOST},
		{"host.name", PAQ_TRAIL_SERVER_HOST},
		{"process.pid", PAQ_TRAIL_PID},
		{"rule.name", PAQ_TRAIL_POLICY},
		{"server.address", PAQ_TRAIL_SERVER_HOST},
		{"source.address", PAQ_TRAIL_REMOTE_HOST},
		{"source.ip", PAQ_TRAIL_REMOTE_HOST, SCHEMA_ADDRESS},
		{"source.port", PAQ_TRAIL_REMOTE_PORT, SCHEMA_PORT},
		{"user.name", PAQ_TRAIL_USER_NAME},
		{"user.effective.name", PAQ_TRAIL_CURRENT_USER_NAME},
		{"postgresql.audit.format_version", PAQ_TRAIL_FORMAT_VERSION}
	};
	SchemaLine	line;

	schema_begin(&line, buf, record);
	schema_field(&line, "@timestamp", PAQ_TRAIL_LOG_TIME, SCHEMA_SAME);
	schema_string(&line, "ecs.version", ECS_VERSION);
	schema_message(&line, "message");
	write_event(&line);
	if (record_is(record, PAQ_TRAIL_NET_PROTOCOL, "TCP"))
		schema_string(&line, "network.transport", "tcp");
	write_related_users(&line);
	write_tls(&line);
	if (record_has_failed(record))
		schema_field(&line, "error.code", PAQ_TRAIL_EXIT_CODE, SCHEMA_SAME);
	schema_field(&line, "error.message", PAQ_TRAIL_ERROR_MESSAGE, SCHEMA_SAME);
	schema_string(&line, "service.type", "postgresql");
	schema_fields(&line, fields, lengthof(fields));
	schema_rest(&line, "postgresql.audit", true);
	schema_end(&line);
}
