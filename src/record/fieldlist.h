/*-------------------------------------------------------------------------
 *
 * fieldlist.h
 *		The fields of a record in the trail, in the order of format json.
 *
 * The format json, the marks of csvlog, the rows of the table and the numbers and
 * names in record.h are made from this list.  Whoever includes the file defines what is
 * to become of an entry; what is not defined becomes nothing.  For that reason
 * there is no #ifndef around the whole file.
 *
 *	PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what)
 *		A field of every json line, null if it is unknown.
 *	PAQ_TRAIL_MARK(id, json, column, flag, what)
 *		A boolean that json has only if it is true, and csvlog in its hint.
 *	PAQ_TRAIL_EXTRA(id, json, type, what)
 *		A field that json has only where it means something, and nothing else has.
 *	PAQ_TRAIL_COLUMN(id, column, sql_type, what)
 *		A column of the table that no field of json fills.
 *
 *	part		SESSION: the same in all records of a session.  HEAD and TAIL:
 *				of the record itself, before and after these
 *	id			the field's number is PAQ_TRAIL_<id>
 *	json		name in json: Aurora's database activity streams' where they
 *				have the field
 *	column		name of the column, NULL if the table does not have it
 *	type		in json: STRING, NUMBER, BOOLEAN, TIME (a string), ARRAY (of strings),
 *				OBJECT (of strings and numbers)
 *	sql_type	of the column
 *	source		where the value comes from: TEXT(PaqField), TIME(member of the
 *				record's header, 0 is null), NUMBER(likewise), or MADE(name):
 *				put_name() in format/json.c makes it
 *	flag		flag of the record that the mark shows
 *	what		what it is, in words.  doc/formats.md (where names and values are in
 *				back quotes) and doc/audit-record.schema.json say the same
 *
 * These two and the SQL script are no code, so they repeat the list.
 * t/trail/field_list.pl fails if they differ from it.
 *
 * A new field needs a line here, the column in the SQL script, the property in
 * the schema, the row in doc/formats.md, and, if it is MADE, a function.  A change of
 * a field's meaning, type, name or place must raise put_format_version()'s number.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_TRAIL_FIELD
#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what)
#endif
#ifndef PAQ_TRAIL_MARK
#define PAQ_TRAIL_MARK(id, json, column, flag, what)
#endif
#ifndef PAQ_TRAIL_EXTRA
#define PAQ_TRAIL_EXTRA(id, json, type, what)
#endif
#ifndef PAQ_TRAIL_COLUMN
#define PAQ_TRAIL_COLUMN(id, column, sql_type, what)
#endif

PAQ_TRAIL_FIELD(HEAD, TYPE, "type", "type", STRING, "text", MADE(type),
				"record; gap: records are, or may be, missing here, errorMessage says which; heartbeat: the worker was there (seal); part: the record before goes on (log_record_max_size)")
PAQ_TRAIL_FIELD(HEAD, FORMAT_VERSION, "formatVersion", NULL, NUMBER, NULL, MADE(format_version),
				"1; raised when a field's meaning, type, name or place changes, not for a new field")
PAQ_TRAIL_FIELD(HEAD, SEQUENCE, "sequence", "sequence", NUMBER, "bigint", MADE(sequence),
				"number of the record in the trail, without gaps")
PAQ_TRAIL_FIELD(HEAD, SERIES, "series", "series", NUMBER, "bigint", MADE(series),
				"number of the trail's series, below 2^53: a run of the worker has its own; with sequence it identifies the record")
PAQ_TRAIL_FIELD(HEAD, LOG_TIME, "logTime", "log_time", TIME, "timestamptz", MADE(log_time),
				"endTime, or startTime if that is unknown")
PAQ_TRAIL_FIELD(HEAD, START_TIME, "startTime", "start_time", TIME, "timestamptz", TIME(start_time),
				"when the statement began; in a gap, from when on records are missing")
PAQ_TRAIL_FIELD(HEAD, END_TIME, "endTime", "end_time", TIME, "timestamptz", MADE(end_time),
				"when the outcome was known; in a gap, until when records are missing")
PAQ_TRAIL_FIELD(HEAD, DURATION_US, "durationUs", "duration_us", NUMBER, "bigint", MADE(duration),
				"from startTime to endTime, microseconds; null unless both are known, negative if the clock was set back in between")
PAQ_TRAIL_FIELD(HEAD, AUDIT_TYPE, "auditType", "audit_type", STRING, "text", MADE(audit_type),
				"SESSION: selected by pg_audit_queue.log; OBJECT: selected by the grants of pg_audit_queue.role; null in a gap and a heartbeat")
PAQ_TRAIL_FIELD(HEAD, POLICY, "policy", "policy", STRING, "text", TEXT(POLICY),
				"name of the policy rule that decided that the record was made; null if none did")
PAQ_TRAIL_FIELD(HEAD, CLASS, "class", "class", STRING, "text", MADE(class),
				"READ, WRITE, FUNCTION, ROLE, DDL, MISC, ERROR, CONNECT, CONFIG; GAP in a gap; null in a heartbeat")
PAQ_TRAIL_FIELD(HEAD, COMMAND, "command", "command", STRING, "text", TEXT(COMMAND),
				"command tag, or what happened: LOGIN, LOGOUT, SET, RESET, RELOAD, ...")
PAQ_TRAIL_FIELD(HEAD, COMMAND_TEXT, "commandText", "command_text", STRING, "text", MADE(command_text),
				"text of the statement, with secrets masked: its part of what was sent, if that has several; from PostgreSQL 17 on, as in pgaudit, without white space and semicolons around it")
PAQ_TRAIL_FIELD(HEAD, COMMAND_TEXT_OMITTED, "commandTextOmitted", "command_text_omitted", STRING, "text", MADE(command_text_omitted),
				"why commandText is not there: not logged (log_statement), or previously logged: in another record of the statement (log_statement_once, or more than 1 MB of it already)")
PAQ_TRAIL_FIELD(HEAD, STATEMENT_LOCATION, "statementLocation", "statement_location", NUMBER, "integer", MADE(statement_location),
				"where the statement began in a text of several, bytes from 0, as it was sent; null if it was the whole text, but for white space and semicolons")
PAQ_TRAIL_FIELD(HEAD, STATEMENT_LENGTH, "statementLength", "statement_length", NUMBER, "integer", MADE(statement_length),
				"its length there, bytes; null if it went to the end")
PAQ_TRAIL_FIELD(HEAD, PARAM_LIST, "paramList", "parameters", ARRAY, "jsonb", MADE(param_list),
				"parameters as text, null for SQL's null, <long param suppressed> for one longer than log_parameter_max_size; [] if there are none")
PAQ_TRAIL_FIELD(HEAD, PARAM_LIST_OMITTED, "paramListOmitted", "parameters_omitted", STRING, "text", MADE(param_list_omitted),
				"why paramList is not there: not logged (log_statement or log_parameter), previously logged, or masked (mask_literals)")
PAQ_TRAIL_FIELD(HEAD, OBJECT_TYPE, "objectType", "object_type", STRING, "text", TEXT(OBJECT_TYPE),
				"TABLE, INDEX, FUNCTION, SETTING, ...")
PAQ_TRAIL_FIELD(HEAD, OBJECT_NAME, "objectName", "object_name", STRING, "text", TEXT(OBJECT_NAME),
				"qualified name of the object; in class CONFIG, name of the setting, file or directory")
PAQ_TRAIL_FIELD(HEAD, OLD_VALUE, "oldValue", "old_value", STRING, "text", TEXT(OLD_VALUE),
				"value of the setting before, class CONFIG; bytes of what retention removes")
PAQ_TRAIL_FIELD(HEAD, NEW_VALUE, "newValue", "new_value", STRING, "text", TEXT(NEW_VALUE),
				"value of the setting after, class CONFIG; how full the disk is, in percent")
PAQ_TRAIL_FIELD(HEAD, VALUE_SOURCE, "valueSource", "value_source", STRING, "text", TEXT(VALUE_SOURCE),
				"where newValue comes from, in the words of pg_settings.source where it has one")
PAQ_TRAIL_FIELD(HEAD, ROW_COUNT, "rowCount", "row_count", NUMBER, "bigint", MADE(row_count),
				"rows returned or changed; in a gap, how many records are missing; null if it is unknown or means nothing")
PAQ_TRAIL_FIELD(HEAD, EXIT_CODE, "exitCode", "sqlstate", STRING, "text", MADE(exit_code),
				"SQLSTATE of the outcome, five characters, 00000 for success; null if the outcome is unknown, and in a gap or heartbeat")
PAQ_TRAIL_FIELD(HEAD, ERROR_MESSAGE, "errorMessage", "error_message", STRING, "text", TEXT(MESSAGE),
				"error message of what failed, with secrets masked; in a gap, what is missing")
PAQ_TRAIL_FIELD(HEAD, STATEMENT_ID, "statementId", "statement_id", NUMBER, "bigint", NUMBER(statement_id),
				"counts statements of the session, from 1; null for what pgaudit does not number")
PAQ_TRAIL_FIELD(HEAD, SUBSTATEMENT_ID, "substatementId", "substatement_id", NUMBER, "bigint", NUMBER(substatement_id),
				"counts records within the statement, from 1; null if the record has none of its own")
PAQ_TRAIL_FIELD(HEAD, SESSION_LINE, "sessionLine", "session_line", NUMBER, "bigint", NUMBER(session_line),
				"counts records of the session, from 1; null if the server died before it was given")

PAQ_TRAIL_FIELD(SESSION, SESSION_ID, "sessionId", "session_id", STRING, "text", MADE(session_id),
				"start of the session in seconds since 1970 and process id, hexadecimal, as %c in log_line_prefix")
PAQ_TRAIL_FIELD(SESSION, SESSION_START, "sessionStart", "session_start", TIME, "timestamptz", TIME(session_start),
				"when the session began")
PAQ_TRAIL_FIELD(SESSION, PID, "pid", "pid", NUMBER, "integer", NUMBER(pid),
				"process id")
PAQ_TRAIL_FIELD(SESSION, BACKEND_TYPE, "backendType", "backend_type", STRING, "text", TEXT(BACKEND_TYPE),
				"as in pg_stat_activity")
PAQ_TRAIL_FIELD(SESSION, USER_NAME, "dbUserName", "user_name", STRING, "text", TEXT(USER),
				"role that logged in, or wanted to")
PAQ_TRAIL_FIELD(SESSION, SESSION_USER_NAME, "sessionUser", "session_user_name", STRING, "text", TEXT(SESSION_USER),
				"SESSION_USER")
PAQ_TRAIL_FIELD(SESSION, CURRENT_USER_NAME, "currentUser", "current_user_name", STRING, "text", TEXT(CURRENT_USER),
				"CURRENT_USER")
PAQ_TRAIL_FIELD(SESSION, SUPERUSER, "superuser", "superuser", BOOLEAN, "boolean", MADE(superuser),
				"whether currentUser was a superuser; null where that is not known, as in a login that failed, and for what is not a session's; lines of version 1.0 lack it")
PAQ_TRAIL_FIELD(SESSION, DATABASE_NAME, "databaseName", "database_name", STRING, "text", TEXT(DATABASE),
				"database of the session")
PAQ_TRAIL_FIELD(SESSION, REMOTE_HOST, "remoteHost", "remote_host", STRING, "text", TEXT(REMOTE_HOST),
				"the client's numeric address, [local] for a Unix-domain socket, null without a client")
PAQ_TRAIL_FIELD(SESSION, REMOTE_PORT, "remotePort", "remote_port", STRING, "integer", MADE(remote_port),
				"the client's port, null for a Unix-domain socket and without a client")
PAQ_TRAIL_FIELD(SESSION, NET_PROTOCOL, "netProtocol", "net_protocol", STRING, "text", MADE(net_protocol),
				"TCP or UNIX, null without a client")
PAQ_TRAIL_FIELD(SESSION, DB_PROTOCOL, "dbProtocol", "db_protocol", STRING, "text", MADE(db_protocol),
				"Postgres 3.0, null without a client")
PAQ_TRAIL_FIELD(SESSION, TLS_VERSION, "tlsVersion", "tls_version", STRING, "text", TEXT(TLS_VERSION),
				"protocol of the client's encrypted connection, as pg_stat_ssl.version; null without TLS")
PAQ_TRAIL_FIELD(SESSION, TLS_CIPHER, "tlsCipher", "tls_cipher", STRING, "text", TEXT(TLS_CIPHER),
				"its cipher, as pg_stat_ssl.cipher; null without TLS")
PAQ_TRAIL_FIELD(SESSION, AUTH_METHOD, "authMethod", "auth_method", STRING, "text", TEXT(AUTH_METHOD),
				"how the client was authenticated, or was to be, in the words of pg_hba.conf: trust, scram-sha-256, cert, ...; null without a client, and if no line there applied")
PAQ_TRAIL_FIELD(SESSION, APPLICATION_NAME, "clientApplication", "application_name", STRING, "text", TEXT(APPLICATION),
				"application_name")
PAQ_TRAIL_FIELD(SESSION, SERVER_HOST, "serverHost", "server_host", STRING, "text", MADE(server_host),
				"host name of the server, asked for when the worker starts to write")
PAQ_TRAIL_FIELD(SESSION, SERVER_TYPE, "serverType", "server_type", STRING, "text", MADE(server_type),
				"PostgreSQL")
PAQ_TRAIL_FIELD(SESSION, SERVER_VERSION, "serverVersion", "server_version", STRING, "text", MADE(server_version),
				"version of PostgreSQL that the extension was built for, as server_version shows it")
PAQ_TRAIL_FIELD(SESSION, CLUSTER_NAME, "serviceName", "cluster_name", STRING, "text", MADE(cluster_name),
				"cluster_name, null if it is not set")
PAQ_TRAIL_FIELD(SESSION, SYSTEM_IDENTIFIER, "systemIdentifier", "system_identifier", STRING, "text", MADE(system_identifier),
				"system identifier of the cluster, as pg_control_system() shows it; its standbys have the same; a string, because not every reader of JSON keeps 64 bits; lines of version 1.0 lack it")

PAQ_TRAIL_FIELD(TAIL, SETTINGS, "settings", "settings", OBJECT, "jsonb", MADE(settings),
				"values of the settings that log_settings names, null for one that does not exist; null if it names none, and for what is not a session's")
PAQ_TRAIL_FIELD(TAIL, TRANSACTION_ID, "transactionId", "transaction_id", NUMBER, "bigint", NUMBER(xid),
				"top-level transaction id, null if none was assigned")
PAQ_TRAIL_FIELD(TAIL, VIRTUAL_TRANSACTION_ID, "virtualTransactionId", "virtual_transaction_id", STRING, "text", MADE(vxid),
				"as %v in log_line_prefix; null for what is not a session")
PAQ_TRAIL_FIELD(TAIL, QUERY_ID, "queryId", "query_id", NUMBER, "bigint", NUMBER(query_id),
				"64 bits, signed; null if it was not computed (compute_query_id)")
PAQ_TRAIL_FIELD(TAIL, TEXT_ENCODING, "textEncoding", "text_encoding", STRING, "text", MADE(text_encoding),
				"null if all texts are UTF-8; otherwise the encoding of the database, and characters from U+0080 to U+00FF that are escaped in the line are bytes of the text")

PAQ_TRAIL_MARK(INTERRUPTED, "interrupted", "interrupted", PAQ_RECORD_INTERRUPTED,
			   "the server died before the outcome was known; only if true")
PAQ_TRAIL_MARK(CUT, "cut", "cut", PAQ_RECORD_CUT,
			   "a text is incomplete: that of the statement, a value or an error message; only if true")
PAQ_TRAIL_MARK(INCOMPLETE, "incomplete", "incomplete", PAQ_RECORD_INCOMPLETE,
			   "the record was built from what was at hand, fields are missing; only if true")
PAQ_TRAIL_MARK(MASKED, "masked", "masked", PAQ_RECORD_MASKED,
			   "it could not be told which literals are secrets, so not only secrets are masked; only if true")

PAQ_TRAIL_EXTRA(PART, "part", OBJECT,
				"the record is a part of one that is longer than log_record_max_size: number, count, length, sha256 and, from the second part on, text; only then")

PAQ_TRAIL_COLUMN(REMOTE_ADDRESS, "remote_address", "inet",
				 "remote_host, null if it is no address")
PAQ_TRAIL_COLUMN(KEPT_FILE, "kept_file", "text",
				 "file that has all of the record, if its texts were cut because it was longer than 32 MB")

#undef PAQ_TRAIL_FIELD
#undef PAQ_TRAIL_MARK
#undef PAQ_TRAIL_EXTRA
#undef PAQ_TRAIL_COLUMN
