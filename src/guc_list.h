/*-------------------------------------------------------------------------
 *
 * guc_list.h
 *		All settings, pg_audit_queue.*: a new one is an entry here, beside its
 *		row in doc/settings.md and its lines in the tests that go through all settings.
 *
 * This is included with the macros defined as they are needed: guc.h declares
 * the variables, guc.c defines them with the assign hooks, and gives them to
 * GUC.  There is one macro for each type:
 *
 *	PAQ_BOOL(name, variable, default, context, short, long)
 *	PAQ_INT(name, variable, default, min, max, context, unit, short, long)
 *	PAQ_AMOUNT(...)			the same, a string to GUC, so that a unit can be demanded:
 *							for what removes records, where one unit taken for
 *							another one is noticed too late
 *	PAQ_FILE_MODE(...)		as PAQ_INT, shown in octal
 *	PAQ_ENUM(name, variable, default, options, context, short, long)
 *	PAQ_STRING(name, variable, default, check, context, flags, short, long)
 *	PAQ_CLASSES(name, variable, default, check, context, short, long)
 *	PAQ_PATTERNS(name, variable, default, context, short, long)
 *	PAQ_NAMES(name, variable, default, context, short, long)
 *
 * Nothing here can be changed by an unprivileged user: what a session may
 * have its own value of is PGC_SUSET, what concerns the worker PGC_SIGHUP,
 * what fixes the queue's layout PGC_POSTMASTER.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */

/* there is deliberately no include guard here */

/* What is recorded; where pgaudit has the setting, meanings are pgaudit's */

PAQ_CLASSES(log, paq_log_classes, "none", check_log, PGC_SUSET,
			"Classes of statements and events that session auditing records.",
			"A list of connect, ddl, denied, error, function, misc, misc_set, read, role, set_role, write, all and none; a preceding \"-\" leaves a class out. \"denied\" is whatever is refused for want of a privilege.")
PAQ_BOOL(log_catalog, paq_log_catalog, true, PGC_SUSET,
		 "Records statements all of whose relations are in pg_catalog.",
		 NULL)
PAQ_BOOL(log_client, paq_log_client, false, PGC_SUSET,
		 "Shows each record to the client that caused it.",
		 NULL)
PAQ_ENUM(log_level, paq_log_level, LOG, level_options, PGC_SUSET,
		 "Message level at which log_client shows records.",
		 NULL)
PAQ_BOOL(log_parameter, paq_log_parameter, false, PGC_SUSET,
		 "Records the parameters of a statement.",
		 NULL)
PAQ_INT(log_parameter_max_size, paq_log_parameter_max_size, 0, 0, INT_MAX,
		PGC_SUSET, GUC_UNIT_BYTE,
		"Longest parameter value that is recorded.",
		"Longer values are replaced by a placeholder. 0 means no limit.")
PAQ_BOOL(log_relation, paq_log_relation, false, PGC_SUSET,
		 "Makes a record for each relation of a statement.",
		 NULL)
PAQ_BOOL(log_rows, paq_log_rows, false, PGC_SUSET,
		 "Shows the number of rows in the pgaudit and csvlog formats.",
		 NULL)
PAQ_NAMES(log_settings, paq_log_settings, "", PGC_SUSET,
		  "Settings whose values are part of each record.",
		  "A list of names; what is not set is null.")
PAQ_BOOL(log_statement, paq_log_statement, true, PGC_SUSET,
		 "Records the text of a statement.",
		 NULL)
PAQ_BOOL(log_statement_once, paq_log_statement_once, false, PGC_SUSET,
		 "Records text and parameters in the first record of a statement only.",
		 NULL)
PAQ_CLASSES(mask_literals, paq_mask_classes, "none", check_classes, PGC_SUSET,
			"Classes of statements whose constants and parameters are not recorded.",
			"Values as for pg_audit_queue.log; each constant is replaced by $1, $2 and so on.")
PAQ_PATTERNS(mask_patterns, paq_mask_patterns, "", PGC_SUSET,
			 "Regular expressions for what records must not show.",
			 "A list; of a pattern with a group in parentheses, only what that matches is masked.")
PAQ_BOOL(policy, paq_policy_enabled, true, PGC_SUSET,
		 "Applies the rules in policy_file that are not mandatory.",
		 "Mandatory rules always apply.")
PAQ_STRING(policy_file, paq_policy_file, "audit_policy.conf", check_file,
		   PGC_POSTMASTER, GUC_SUPERUSER_ONLY | GUC_DISALLOW_IN_AUTO_FILE,
		   "File with the rules that say what is recorded.",
		   "A relative name is relative to the data directory.")
PAQ_STRING(role, paq_role, "", check_string, PGC_SUSET, 0,
		   "Role whose grants select the objects that object auditing records.",
		   NULL)

/* How long a session waits, and the queue */

PAQ_ENUM(mode, paq_mode, PAQ_MODE_QUEUED, mode_options, PGC_SUSET,
		 "When a session waits for its records to be durable.",
		 "\"queued\" is never, \"commit\" before its transaction commits, \"immediate\" at the end of each statement.")
PAQ_BOOL(commit_wal, paq_commit_wal, false, PGC_SIGHUP,
		 "Makes records durable with the WAL of the transaction, in mode \"commit\".",
		 "Transactions that write and flush no WAL wait for the audit trail.")
PAQ_CLASSES(immediate_log, paq_immediate_classes, "none", check_classes, PGC_SUSET,
			"Classes of statements that are immediate whatever the mode.",
			"Values as for pg_audit_queue.log.")
PAQ_INT(queue_size, paq_queue_size, 16 * 1024, 64, 16 * 1024 * 1024,
		PGC_POSTMASTER, GUC_UNIT_KB,
		"Size of the queue.",
		NULL)
PAQ_STRING(queue_directory, paq_queue_directory, "pg_audit_queue",
		   check_directory, PGC_POSTMASTER, GUC_SUPERUSER_ONLY,
		   "Directory of the queue file.",
		   "A relative name is relative to the data directory.")
PAQ_INT(flush_interval, paq_flush_interval, 1000, 1, 3600 * 1000,
		PGC_SIGHUP, GUC_UNIT_MS,
		"Longest time before a queued record is written and flushed.",
		NULL)
PAQ_INT(flush_threshold, paq_flush_threshold, 5, 1, 80,
		PGC_SIGHUP, 0,
		"Percentage of the queue in use at which it is written and flushed.",
		NULL)
PAQ_ENUM(overflow, paq_overflow, PAQ_OVERFLOW_WAIT, overflow_options, PGC_SIGHUP,
		 "What happens to a record when the queue is full.",
		 "\"wait\" lets the session wait for space, \"drop\" drops the record, \"error\" makes the statement fail, \"shutdown\" stops the server.")

/* The trail's files */

PAQ_ENUM(format, paq_format, PAQ_FORMAT_JSON, format_options, PGC_SIGHUP,
		 "Format of the audit trail files.",
		 NULL)
PAQ_BOOL(json_nulls, paq_json_nulls, true, PGC_SIGHUP,
		 "Shows fields that are null in the json format.",
		 NULL)
PAQ_BOOL(fsync, paq_fsync, true, PGC_SIGHUP,
		 "Forces the audit trail to disk.",
		 "If off, waiting sessions wait only until the operating system has their records.")
PAQ_ENUM(log_compression, paq_log_compression, PAQ_COMPRESSION_NONE,
		 compression_options, PGC_SIGHUP,
		 "Compression of the audit trail files.",
		 NULL)
PAQ_STRING(log_directory, paq_log_directory, "audit",
		   check_directory, PGC_SIGHUP, GUC_SUPERUSER_ONLY,
		   "Directory of the audit trail files.",
		   "A relative name is relative to the data directory.")
PAQ_ENUM(log_encryption, paq_log_encryption, PAQ_ENCRYPTION_NONE,
		 encryption_options, PGC_SIGHUP,
		 "Encryption of the audit trail files.",
		 NULL)
PAQ_STRING(log_encryption_key_command, paq_log_encryption_key_command, "",
		   check_string, PGC_SIGHUP, GUC_SUPERUSER_ONLY,
		   "Command that prints the key for pg_audit_queue.log_encryption.",
		   "32 or 64 hexadecimal digits; on more lines, keys of older files.")
PAQ_STRING(log_filename, paq_log_filename, "audit-%Y-%m-%d_%H%M%S",
		   check_filename, PGC_SIGHUP, GUC_SUPERUSER_ONLY,
		   "Name of audit trail files, as a pattern for strftime.",
		   "The ending, such as .json or .json.zst, is added.")
PAQ_FILE_MODE(log_file_mode, paq_log_file_mode, 0600, 0, 0777,
			  PGC_SIGHUP, 0,
			  "File permissions of audit trail files.",
			  "A numeric mode as for chmod; write it in octal, with a leading 0.")
PAQ_STRING(log_line_prefix, paq_log_line_prefix, "%m [%p] %e %q%u@%d %h ",
		   check_string, PGC_SIGHUP, 0,
		   "Prefix of each line in the pgaudit format.",
		   "Escapes are those of log_line_prefix; %e is the outcome of the statement.")
PAQ_AMOUNT(consumer_keep_size, paq_consumer_keep_size, -1, -1, INT_MAX,
		   PGC_SIGHUP, GUC_UNIT_KB,
		   "Total size of audit trail files up to which they are kept for consumers that have not acknowledged them.",
		   "-1 means no limit.")
PAQ_INT(log_record_max_size, paq_log_record_max_size, 0, 0, 1024 * 1024,
		PGC_SIGHUP, GUC_UNIT_KB,
		"Length from which on a record of format json goes on in parts.",
		"Less than 8kB counts as that. 0 means no limit.")
PAQ_AMOUNT(log_retention_age, paq_log_retention_age, 0, 0, INT_MAX / 60,
		   PGC_SIGHUP, GUC_UNIT_MIN,
		   "Time after which a finished audit trail file is removed.",
		   "0 means never.")
PAQ_AMOUNT(log_retention_size, paq_log_retention_size, 0, 0, INT_MAX,
		   PGC_SIGHUP, GUC_UNIT_KB,
		   "Total size of audit trail files above which the oldest are removed.",
		   "0 means no limit.")
PAQ_INT(log_rotation_age, paq_log_rotation_age, 24 * 60, 0, INT_MAX / 60,
		PGC_SIGHUP, GUC_UNIT_MIN,
		"Time after which a new audit trail file is started.",
		"0 means never.")
PAQ_INT(log_rotation_size, paq_log_rotation_size, 10 * 1024, 0, INT_MAX,
		PGC_SIGHUP, GUC_UNIT_KB,
		"Size after which a new audit trail file is started.",
		"0 means no limit.")

/* Seals */

PAQ_BOOL(seal, paq_seal, false, PGC_SIGHUP,
		 "Seals the audit trail files, so that changes of them can be found.",
		 "The key is made with pg_audit_trail keygen.")
PAQ_INT(seal_interval, paq_seal_interval, 60, 1, 24 * 3600, PGC_SIGHUP, GUC_UNIT_S,
		"Time after which the audit trail is sealed again.",
		"A heartbeat record is written before.")

/* The table */

PAQ_ENUM(sink, paq_sink, PAQ_SINK_FILE, sink_options, PGC_SIGHUP,
		 "Where the audit trail goes.",
		 "\"file\" is files in pg_audit_queue.log_directory, \"table\" the table audit_records in pg_audit_queue.database.")
PAQ_STRING(database, paq_database, "postgres",
		   check_database, PGC_SIGHUP, 0,
		   "Database of the audit table.",
		   "The extension must have been created in it.")
PAQ_BOOL(table_logged, paq_table_logged, true, PGC_SIGHUP,
		 "Makes new partitions of the audit table crash-safe.",
		 "If off, they are unlogged, and a crash of the server empties them.")
PAQ_AMOUNT(table_retention, paq_table_retention, 0, 0, INT_MAX / 60,
		   PGC_SIGHUP, GUC_UNIT_MIN,
		   "Time after which a partition of the audit table is dropped.",
		   "Counted from the end of the partition's day. 0 means never.")
PAQ_ENUM(table_synchronous_commit, paq_table_synchronous_commit,
		 SYNCHRONOUS_COMMIT_OFF, synchronous_commit_options, PGC_SIGHUP,
		 "synchronous_commit of the transactions that write the audit table.",
		 "The records are on disk already, so that \"off\" loses none.")

#undef PAQ_BOOL
#undef PAQ_INT
#undef PAQ_AMOUNT
#undef PAQ_FILE_MODE
#undef PAQ_ENUM
#undef PAQ_STRING
#undef PAQ_CLASSES
#undef PAQ_PATTERNS
#undef PAQ_NAMES
