/*-------------------------------------------------------------------------
 *
 * schema_ocsf.c
 *		Format ocsf: events of the Open Cybersecurity Schema Framework.
 *
 * Logins and logouts are of its class Authentication, all other records of Datastore
 * Activity.  Both require a client and a user or program, which records of the
 * server itself do not have: there the server and the extension stand in their places.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/schema.h"

#include "datatype/timestamp.h"

#define OCSF_VERSION	"1.8.0"

#define EXTENSION		"pg_audit_queue"
#define SERVER			"PostgreSQL"

typedef struct OcsfClass
{
	int			category;
	const char *category_name;
	int			uid;
	const char *name;
} OcsfClass;

static const OcsfClass datastore = {
	6, "Application Activity", 6005, "Datastore Activity"
};
static const OcsfClass authentication = {
	3, "Identity & Access Management", 3002, "Authentication"
};

/* The first that fits is the activity of a record; if none does, it is another one. */
#define OTHER_ACTIVITY	99

static const struct
{
	const char *class;
	const char *command;		/* how it begins */
	int			id;
	const char *name;
}			activities[] = {
	{"READ", "", 1, "Read"},
	{"WRITE", "INSERT", 6, "Create"},
	{"WRITE", "UPDATE", 2, "Update"},
	{"WRITE", "DELETE", 7, "Delete"},
	{"WRITE", "TRUNCATE", 7, "Delete"},
	{"WRITE", "", 5, "Write"},
	{"DDL", "CREATE", 6, "Create"},
	{"DDL", "ALTER", 2, "Update"},
	{"DDL", "DROP", 7, "Delete"},
	{"CONNECT", "LOGIN", 1, "Logon"},
	{"CONNECT", "LOGOUT", 2, "Logoff"},
	{"ERROR", "", 0, "Unknown"}
};

/* Types of objects that are a table for the schema */
static const char *const table_types[] = {
	"TABLE", "VIEW", "MATERIALIZED VIEW", "FOREIGN TABLE", "TOAST TABLE"
};

/* ----------
 * Classification and outcome
 * ----------
 */

static void
write_activity(SchemaLine *line, const OcsfClass *class)
{
	const PaqTrailField action = schema_action(line);
	int			id = OTHER_ACTIVITY;
	const char *name = "Other";

	for (int i = 0; i < lengthof(activities) && id == OTHER_ACTIVITY; i++)
		if (schema_is_class(line->record, activities[i].class, activities[i].command))
		{
			id = activities[i].id;
			name = activities[i].name;
		}
	schema_number(line, "activity_id", id);
	if (id == OTHER_ACTIVITY)
		schema_joined(line, "activity_name", &action, 1);
	else
		schema_string(line, "activity_name", name);
	schema_number(line, "category_uid", class->category);
	schema_string(line, "category_name", class->category_name);
	schema_number(line, "class_uid", class->uid);
	schema_string(line, "class_name", class->name);
	schema_number(line, "type_uid", class->uid * 100 + id);
	schema_key(line, "type_name");
	buffer_printf(line->buf, "\"%s: %s\"", class->name, name);
}

/* Missing records are worse than a statement that fails, which happens all the time. */
static void
write_outcome(SchemaLine *line)
{
	Record	   *record = line->record;
	const bool	gap = record_is_gap(record);
	const bool	failed = record_has_failed(record);
	const bool	known = paq_line_has(&record->line, PAQ_TRAIL_EXIT_CODE);

	schema_number(line, "severity_id", gap ? 4 : failed ? 2
														: 1);
	schema_string(line, "severity", gap ? "High" : failed ? "Low"
														  : "Informational");
	if (record_is(record, PAQ_TRAIL_TYPE, "record"))
	{
		schema_number(line, "status_id", !known ? 0 : failed ? 2
															 : 1);
		schema_string(line, "status", !known ? "Unknown" : failed ? "Failure"
																  : "Success");
	}
	schema_field(line, "status_code", PAQ_TRAIL_EXIT_CODE, SCHEMA_SAME);
	schema_field(line, "status_detail", PAQ_TRAIL_ERROR_MESSAGE, SCHEMA_SAME);
}

static void
write_times(SchemaLine *line)
{
	static const SchemaField fields[] = {
		{"time", PAQ_TRAIL_LOG_TIME, SCHEMA_EPOCH},
		{"time_dt", PAQ_TRAIL_LOG_TIME},
		{"start_time", PAQ_TRAIL_START_TIME, SCHEMA_EPOCH},
		{"start_time_dt", PAQ_TRAIL_START_TIME},
		{"end_time", PAQ_TRAIL_END_TIME, SCHEMA_EPOCH},
		{"end_time_dt", PAQ_TRAIL_END_TIME},
		{"duration", PAQ_TRAIL_DURATION_US, SCHEMA_MILLIS}
	};
	const Text	time = record_text(line->record, PAQ_TRAIL_LOG_TIME);
	int64		timestamp;
	int			offset;
	bool		has_offset;

	schema_fields(line, fields, lengthof(fields));
	if (time.data != NULL &&
		paq_time_parse(time.data, time.len, &timestamp, &offset, &has_offset) && has_offset)
		schema_number(line, "timezone_offset", offset / SECS_PER_MINUTE);
}

static void
write_metadata(SchemaLine *line)
{
	static const SchemaField fields[] = {
		{"metadata.sequence", PAQ_TRAIL_SEQUENCE},
		{"metadata.event_code", PAQ_TRAIL_COMMAND},
		{"metadata.log_version", PAQ_TRAIL_FORMAT_VERSION, SCHEMA_STRING},
		{"metadata.is_truncated", PAQ_TRAIL_CUT}
	};

	schema_string(line, "metadata.version", OCSF_VERSION);
	schema_word(line, "metadata.profiles", "[\"datetime\"]");
	schema_string(line, "metadata.product.name", SERVER);
	schema_string(line, "metadata.product.vendor_name", "PostgreSQL Global Development Group");
	schema_field(line, "metadata.product.version", PAQ_TRAIL_SERVER_VERSION, SCHEMA_SAME);
	schema_string(line, "metadata.product.feature.name", EXTENSION);
	schema_string(line, "metadata.log_provider", EXTENSION);
	schema_identity(line, "metadata.uid");
	schema_fields(line, fields, lengthof(fields));
}

/* ----------
 * Who and where
 * ----------
 */

/* Does the session come over a network?  Nothing is known of those without a client. */
static void
write_is_remote(SchemaLine *line, const char *path)
{
	if (paq_line_has(&line->record->line, PAQ_TRAIL_NET_PROTOCOL))
		schema_word(line, path,
					record_is(line->record, PAQ_TRAIL_NET_PROTOCOL, "TCP") ? "true" : "false");
}

/* The session is the actor's, or, in a login, an object of its own. */
static void
write_actor(SchemaLine *line, bool with_session)
{
	static const SchemaField fields[] = {
		{"actor.user.name", PAQ_TRAIL_USER_NAME},
		{"actor.app_name", PAQ_TRAIL_APPLICATION_NAME},
		{"actor.process.pid", PAQ_TRAIL_PID},
		{"actor.process.name", PAQ_TRAIL_BACKEND_TYPE}
	};
	static const SchemaField session[] = {
		{"actor.session.uid", PAQ_TRAIL_SESSION_ID},
		{"actor.session.created_time", PAQ_TRAIL_SESSION_START, SCHEMA_EPOCH},
		{"actor.session.created_time_dt", PAQ_TRAIL_SESSION_START}
	};

	/* a process has to have a number */
	if (paq_line_has(&line->record->line, PAQ_TRAIL_PID))
		schema_fields(line, fields, lengthof(fields));
	else
		schema_fields(line, fields, 2);
	if (with_session)
	{
		schema_fields(line, session, lengthof(session));
		write_is_remote(line, "actor.session.is_remote");
	}
	/* the actor is what has been written last, if there is one */
	if (strncmp(line->path, "actor.", 6) != 0)
		schema_string(line, "actor.app_name", EXTENSION);
}

/* An address; a name for what is none, "[local]"; the server itself without a client */
static void
write_source(SchemaLine *line)
{
	Record	   *record = line->record;
	const bool	has_client = schema_has(line, PAQ_TRAIL_REMOTE_HOST);

	if (!has_client || record_is(record, PAQ_TRAIL_NET_PROTOCOL, "UNIX"))
		schema_field(line, "src_endpoint.hostname", PAQ_TRAIL_SERVER_HOST, SCHEMA_SAME);
	if (!has_client)
		schema_string(line, "src_endpoint.svc_name", SERVER);
	else if (schema_address_len(record) > 0)
		schema_field(line, "src_endpoint.ip", PAQ_TRAIL_REMOTE_HOST, SCHEMA_ADDRESS);
	else
		schema_field(line, "src_endpoint.name", PAQ_TRAIL_REMOTE_HOST, SCHEMA_SAME);
	schema_field(line, "src_endpoint.port", PAQ_TRAIL_REMOTE_PORT, SCHEMA_PORT);
}

static void
write_destination(SchemaLine *line)
{
	static const SchemaField fields[] = {
		{"dst_endpoint.hostname", PAQ_TRAIL_SERVER_HOST},
		{"dst_endpoint.svc_name", PAQ_TRAIL_CLUSTER_NAME}
	};

	schema_fields(line, fields, lengthof(fields));
}

/* ----------
 * The classes
 * ----------
 */

/* Without a database it is about the whole cluster. */
static void
write_database(SchemaLine *line)
{
	if (schema_has(line, PAQ_TRAIL_DATABASE_NAME))
		schema_field(line, "database.name", PAQ_TRAIL_DATABASE_NAME, SCHEMA_SAME);
	else if (schema_has(line, PAQ_TRAIL_CLUSTER_NAME))
		schema_field(line, "database.name", PAQ_TRAIL_CLUSTER_NAME, SCHEMA_SAME);
	else
		schema_string(line, "database.name", SERVER);
	schema_number(line, "database.type_id", 1);
	schema_string(line, "database.type", "Relational");
}

static bool
is_about_table(SchemaLine *line)
{
	if (!schema_has(line, PAQ_TRAIL_OBJECT_NAME))
		return false;
	for (int i = 0; i < lengthof(table_types); i++)
		if (record_is(line->record, PAQ_TRAIL_OBJECT_TYPE, table_types[i]))
			return true;
	return false;
}

/* All records of one statement have the same number; the schema wants one in any case. */
static void
write_query(SchemaLine *line)
{
	static const PaqTrailField statement[] = {PAQ_TRAIL_SESSION_ID, PAQ_TRAIL_STATEMENT_ID};
	static const PaqTrailField sequence = PAQ_TRAIL_SEQUENCE;

	if (!schema_has(line, PAQ_TRAIL_COMMAND_TEXT))
		return;
	schema_field(line, "query_info.query_string", PAQ_TRAIL_COMMAND_TEXT, SCHEMA_SAME);
	if (schema_has(line, PAQ_TRAIL_SESSION_ID) && schema_has(line, PAQ_TRAIL_STATEMENT_ID))
		schema_joined(line, "query_info.uid", statement, lengthof(statement));
	else
		schema_joined(line, "query_info.uid", &sequence, 1);
}

static void
write_datastore(SchemaLine *line)
{
	const bool	table = is_about_table(line);

	write_actor(line, true);
	write_database(line);
	if (table)
		schema_field(line, "table.name", PAQ_TRAIL_OBJECT_NAME, SCHEMA_SAME);
	schema_number(line, "type_id", table ? 3 : 1);
	schema_string(line, "type", table ? "Table" : "Database");
	write_query(line);
}

/* What the schema has no name for is another protocol, under PostgreSQL's name. */
static void
write_auth_protocol(SchemaLine *line)
{
	static const struct
	{
		const char *method;
		int			id;
		const char *name;
	}			protocols[] = {
		{"gss", 2, "Kerberos"},
		{"oauth", 6, "OAUTH 2.0"},
		{"radius", 10, "RADIUS"},
		{"ldap", 12, "LDAP"}
	};

	if (!schema_has(line, PAQ_TRAIL_AUTH_METHOD))
		return;
	for (int i = 0; i < lengthof(protocols); i++)
		if (record_is(line->record, PAQ_TRAIL_AUTH_METHOD, protocols[i].method))
		{
			schema_number(line, "auth_protocol_id", protocols[i].id);
			schema_string(line, "auth_protocol", protocols[i].name);
			return;
		}
	schema_number(line, "auth_protocol_id", 99);
	schema_field(line, "auth_protocol", PAQ_TRAIL_AUTH_METHOD, SCHEMA_SAME);
}

static void
write_authentication(SchemaLine *line)
{
	static const SchemaField session[] = {
		{"session.uid", PAQ_TRAIL_SESSION_ID},
		{"session.created_time", PAQ_TRAIL_SESSION_START, SCHEMA_EPOCH},
		{"session.created_time_dt", PAQ_TRAIL_SESSION_START}
	};

	/* as PostgreSQL's log shows the name of a user who has none yet */
	if (schema_has(line, PAQ_TRAIL_USER_NAME))
		schema_field(line, "user.name", PAQ_TRAIL_USER_NAME, SCHEMA_SAME);
	else
		schema_string(line, "user.name", "[unknown]");
	write_actor(line, false);
	schema_fields(line, session, lengthof(session));
	write_is_remote(line, "session.is_remote");
	schema_string(line, "service.name", SERVER);
	schema_field(line, "service.version", PAQ_TRAIL_SERVER_VERSION, SCHEMA_SAME);
	write_auth_protocol(line);
	write_is_remote(line, "is_remote");
	if (record_is(line->record, PAQ_TRAIL_NET_PROTOCOL, "TCP"))
	{
		schema_number(line, "logon_type_id", 3);
		schema_string(line, "logon_type", "Network");
	}
}

void
ocsf_write(Buffer *buf, Record *record)
{
	const bool	connect = record_is(record, PAQ_TRAIL_CLASS, "CONNECT");
	SchemaLine	line;

	schema_begin(&line, buf, record);
	write_metadata(&line);
	write_activity(&line, connect ? &authentication : &datastore);
	write_outcome(&line);
	write_times(&line);
	schema_message(&line, "message");
	if (connect)
		write_authentication(&line);
	else
		write_datastore(&line);
	write_source(&line);
	write_destination(&line);
	schema_rest(&line, "unmapped", false);
	schema_end(&line);
}
