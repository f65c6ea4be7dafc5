/*-------------------------------------------------------------------------
 *
 * guc.c
 *		Definition of the settings and checks of their values.
 *
 * Nothing here can be changed by an unprivileged user: what a session may
 * have its own value of is PGC_SUSET, what concerns the worker PGC_SIGHUP,
 * what fixes the queue's layout PGC_POSTMASTER.
 *
 * Guarantees: every setting has a check hook that keeps with a value where it
 * comes from, and an assign hook that reports the change (guc_change.c) before
 * it does anything else.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "guc.h"
#include "record/record.h"
#include "utils/guc.h"
#include "utils/varlena.h"

uint32		paq_log_classes = PAQ_CLASSES_NONE;
bool		paq_log_catalog = true;
bool		paq_log_client = false;
int			paq_log_level = LOG;
bool		paq_log_parameter = false;
int			paq_log_parameter_max_size = 0;
bool		paq_log_relation = false;
bool		paq_log_rows = false;
bool		paq_log_statement = true;
bool		paq_log_statement_once = false;
char	   *paq_role = NULL;
uint32		paq_mask_classes = PAQ_CLASSES_NONE;

int			paq_mode = PAQ_MODE_QUEUED;
uint32		paq_immediate_classes = PAQ_CLASSES_NONE;

int			paq_queue_size = 16 * 1024;
char	   *paq_queue_directory = NULL;
int			paq_flush_interval = 1000;
int			paq_flush_threshold = 50;
int			paq_overflow = PAQ_OVERFLOW_WAIT;

int			paq_format = PAQ_FORMAT_PGAUDIT;
bool		paq_fsync = true;
char	   *paq_log_directory = NULL;
char	   *paq_log_filename = NULL;
int			paq_log_file_mode = 0600;
char	   *paq_log_line_prefix = NULL;
int			paq_log_retention_age = 0;
int			paq_log_retention_size = 0;
int			paq_log_rotation_age = 24 * 60;
int			paq_log_rotation_size = 10 * 1024;

int			paq_sink = PAQ_SINK_FILE;
char	   *paq_database = NULL;
bool		paq_table_logged = true;
int			paq_table_retention = 0;
int			paq_table_synchronous_commit = SYNCHRONOUS_COMMIT_OFF;

/* The texts behind the class bitmaps */
static char *log_string = NULL;
static char *immediate_log_string = NULL;
static char *mask_literals_string = NULL;

/* The text behind the list of patterns */
static char *mask_patterns_string = NULL;

static const struct config_enum_entry level_options[] = {
	{"debug5", DEBUG5, false},
	{"debug4", DEBUG4, false},
	{"debug3", DEBUG3, false},
	{"debug2", DEBUG2, false},
	{"debug1", DEBUG1, false},
	{"debug", DEBUG2, true},
	{"info", INFO, false},
	{"notice", NOTICE, false},
	{"warning", WARNING, false},
	{"log", LOG, false},
	{NULL, 0, false}
};

static const struct config_enum_entry mode_options[] = {
	{"queued", PAQ_MODE_QUEUED, false},
	{"commit", PAQ_MODE_COMMIT, false},
	{"immediate", PAQ_MODE_IMMEDIATE, false},
	{NULL, 0, false}
};

static const struct config_enum_entry overflow_options[] = {
	{"wait", PAQ_OVERFLOW_WAIT, false},
	{"drop", PAQ_OVERFLOW_DROP, false},
	{"error", PAQ_OVERFLOW_ERROR, false},
	{"shutdown", PAQ_OVERFLOW_SHUTDOWN, false},
	{NULL, 0, false}
};

static const struct config_enum_entry format_options[] = {
	{"pgaudit", PAQ_FORMAT_PGAUDIT, false},
	{"csvlog", PAQ_FORMAT_CSVLOG, false},
	{"json", PAQ_FORMAT_JSON, false},
	{NULL, 0, false}
};

static const struct config_enum_entry sink_options[] = {
	{"file", PAQ_SINK_FILE, false},
	{"table", PAQ_SINK_TABLE, false},
	{NULL, 0, false}
};

/* As for synchronous_commit, without its other words for on and off */
static const struct config_enum_entry synchronous_commit_options[] = {
	{"off", SYNCHRONOUS_COMMIT_OFF, false},
	{"local", SYNCHRONOUS_COMMIT_LOCAL_FLUSH, false},
	{"remote_write", SYNCHRONOUS_COMMIT_REMOTE_WRITE, false},
	{"on", SYNCHRONOUS_COMMIT_ON, false},
	{"remote_apply", SYNCHRONOUS_COMMIT_REMOTE_APPLY, false},
	{NULL, 0, false}
};

static bool
check_bool(bool *newval, void **extra, GucSource source)
{
	return paq_extra_make(extra, source, 0);
}

/* Of an integer or, which is one to hooks, an enum */
static bool
check_int(int *newval, void **extra, GucSource source)
{
	return paq_extra_make(extra, source, 0);
}

static bool
check_string(char **newval, void **extra, GucSource source)
{
	return paq_extra_make(extra, source, 0);
}

/* Assign hooks do not know whose they are, so that each setting has its own. */
#define ASSIGN_HOOK(kind, type, name) \
static void \
assign_##name(type newval, void *extra) \
{ \
	paq_assign_##kind("pg_audit_queue." #name, newval, extra); \
}

ASSIGN_HOOK(bool, bool, log_catalog)
ASSIGN_HOOK(bool, bool, log_client)
ASSIGN_HOOK(enum, int, log_level)
ASSIGN_HOOK(bool, bool, log_parameter)
ASSIGN_HOOK(int, int, log_parameter_max_size)
ASSIGN_HOOK(bool, bool, log_relation)
ASSIGN_HOOK(bool, bool, log_rows)
ASSIGN_HOOK(bool, bool, log_statement)
ASSIGN_HOOK(bool, bool, log_statement_once)
ASSIGN_HOOK(string, const char *, role)
ASSIGN_HOOK(enum, int, mode)
ASSIGN_HOOK(int, int, queue_size)
ASSIGN_HOOK(string, const char *, queue_directory)
ASSIGN_HOOK(int, int, flush_interval)
ASSIGN_HOOK(int, int, flush_threshold)
ASSIGN_HOOK(enum, int, overflow)
ASSIGN_HOOK(enum, int, format)
ASSIGN_HOOK(bool, bool, fsync)
ASSIGN_HOOK(string, const char *, log_directory)
ASSIGN_HOOK(string, const char *, log_filename)
ASSIGN_HOOK(int, int, log_file_mode)
ASSIGN_HOOK(string, const char *, log_line_prefix)
ASSIGN_HOOK(int, int, log_retention_age)
ASSIGN_HOOK(int, int, log_retention_size)
ASSIGN_HOOK(int, int, log_rotation_age)
ASSIGN_HOOK(int, int, log_rotation_size)
ASSIGN_HOOK(enum, int, sink)
ASSIGN_HOOK(string, const char *, database)
ASSIGN_HOOK(bool, bool, table_logged)
ASSIGN_HOOK(int, int, table_retention)
ASSIGN_HOOK(enum, int, table_synchronous_commit)

/*
 * Parse a list of classes, each optionally with a leading "-" that takes it
 * out again, from left to right.  The bitmap becomes part of *extra.
 */
static bool
check_classes(char **newval, void **extra, GucSource source)
{
	char	   *raw = pstrdup(*newval);
	List	   *names = NIL;
	ListCell   *lc;
	uint32		classes = PAQ_CLASSES_NONE;
	bool		ok;

	ok = SplitIdentifierString(raw, ',', &names);
	if (!ok)
		GUC_check_errdetail("List syntax is invalid.");

	foreach(lc, names)
	{
		const char *name = (const char *) lfirst(lc);
		bool		subtract = (name[0] == '-');
		uint32		bits;

		if (!paq_class_lookup(name + (subtract ? 1 : 0), &bits))
		{
			GUC_check_errdetail("Unrecognized statement class: \"%s\".", name);
			GUC_check_errhint("Available classes: connect, ddl, error, function, misc, misc_set, read, role, write, all, none; each can be preceded by \"-\" to leave it out.");
			ok = false;
			break;
		}
		classes = subtract ? classes & ~bits : classes | bits;
	}
	list_free(names);
	pfree(raw);
	if (!ok || !paq_extra_make(extra, source, sizeof(uint32)))
		return false;
	*(uint32 *) paq_extra_data(*extra) = classes;
	return true;
}

static void
assign_log(const char *newval, void *extra)
{
	paq_assign_string("pg_audit_queue.log", newval, extra);
	paq_log_classes = *(uint32 *) paq_extra_data(extra);
}

static void
assign_immediate_log(const char *newval, void *extra)
{
	paq_assign_string("pg_audit_queue.immediate_log", newval, extra);
	paq_immediate_classes = *(uint32 *) paq_extra_data(extra);
}

static void
assign_mask_literals(const char *newval, void *extra)
{
	paq_assign_string("pg_audit_queue.mask_literals", newval, extra);
	paq_mask_classes = *(uint32 *) paq_extra_data(extra);
}

/* Leave room behind a directory for the names of the files in it. */
static bool
check_directory(char **newval, void **extra, GucSource source)
{
	if (**newval == '\0')
	{
		GUC_check_errdetail("A directory name is required.");
		return false;
	}
	if (strlen(*newval) > MAXPGPATH / 2)
	{
		GUC_check_errdetail("The directory name is too long (maximum %d bytes).",
							MAXPGPATH / 2);
		return false;
	}
	return paq_extra_make(extra, source, 0);
}

static bool
check_filename(char **newval, void **extra, GucSource source)
{
	if (**newval == '\0')
	{
		GUC_check_errdetail("A file name pattern is required.");
		return false;
	}
	if (first_dir_separator(*newval) != NULL)
	{
		GUC_check_errdetail("The file name must not contain a directory separator.");
		GUC_check_errhint("Use \"pg_audit_queue.log_directory\" to choose the directory.");
		return false;
	}
	if (strlen(*newval) > NAME_MAX / 2)
	{
		GUC_check_errdetail("The file name pattern is too long (maximum %d bytes).",
							NAME_MAX / 2);
		return false;
	}
	return paq_extra_make(extra, source, 0);
}

/* Whether there is such a database turns out when it is connected to. */
static bool
check_database(char **newval, void **extra, GucSource source)
{
	if (**newval == '\0' || strlen(*newval) >= NAMEDATALEN)
	{
		GUC_check_errdetail("A database name of 1 to %d bytes is required.",
							NAMEDATALEN - 1);
		return false;
	}
	return paq_extra_make(extra, source, 0);
}

static const char *
show_file_mode(void)
{
	static char buf[12];

	snprintf(buf, sizeof(buf), "%04o", paq_log_file_mode);
	return buf;
}

/* What is recorded: pgaudit's settings. */
static void
define_capture_settings(void)
{
	DefineCustomStringVariable("pg_audit_queue.log",
							   "Classes of statements and events that session auditing records.",
							   "A list of connect, ddl, error, function, misc, misc_set, read, role, write, all and none; a preceding \"-\" leaves a class out.",
							   &log_string, "none", PGC_SUSET,
							   GUC_LIST_INPUT | GUC_NOT_IN_SAMPLE,
							   check_classes, assign_log, NULL);
	DefineCustomBoolVariable("pg_audit_queue.log_catalog",
							 "Records statements all of whose relations are in pg_catalog.",
							 NULL, &paq_log_catalog, true, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_bool, assign_log_catalog, NULL);
	DefineCustomBoolVariable("pg_audit_queue.log_client",
							 "Shows each record to the client that caused it.",
							 NULL, &paq_log_client, false, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_bool, assign_log_client, NULL);
	DefineCustomEnumVariable("pg_audit_queue.log_level",
							 "Message level at which log_client shows records.",
							 NULL, &paq_log_level, LOG, level_options, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_int, assign_log_level, NULL);
	DefineCustomBoolVariable("pg_audit_queue.log_parameter",
							 "Records the parameters of a statement.",
							 NULL, &paq_log_parameter, false, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_bool, assign_log_parameter, NULL);
	DefineCustomIntVariable("pg_audit_queue.log_parameter_max_size",
							"Longest parameter value that is recorded.",
							"Longer values are replaced by a placeholder. 0 means no limit.",
							&paq_log_parameter_max_size, 0, 0, INT_MAX, PGC_SUSET,
							GUC_UNIT_BYTE | GUC_NOT_IN_SAMPLE,
							check_int, assign_log_parameter_max_size, NULL);
	DefineCustomBoolVariable("pg_audit_queue.log_relation",
							 "Makes a record for each relation of a statement.",
							 NULL, &paq_log_relation, false, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_bool, assign_log_relation, NULL);
	DefineCustomBoolVariable("pg_audit_queue.log_rows",
							 "Shows the number of rows in the pgaudit and csvlog formats.",
							 NULL, &paq_log_rows, false, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_bool, assign_log_rows, NULL);
	DefineCustomBoolVariable("pg_audit_queue.log_statement",
							 "Records the text of a statement.",
							 NULL, &paq_log_statement, true, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_bool, assign_log_statement, NULL);
	DefineCustomBoolVariable("pg_audit_queue.log_statement_once",
							 "Records text and parameters in the first record of a statement only.",
							 NULL, &paq_log_statement_once, false, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_bool, assign_log_statement_once, NULL);
	DefineCustomStringVariable("pg_audit_queue.mask_literals",
							   "Classes of statements whose constants and parameters are not recorded.",
							   "Values as for pg_audit_queue.log; each constant is replaced by $1, $2 and so on.",
							   &mask_literals_string, "none", PGC_SUSET,
							   GUC_LIST_INPUT | GUC_NOT_IN_SAMPLE,
							   check_classes, assign_mask_literals, NULL);
	DefineCustomStringVariable("pg_audit_queue.mask_patterns",
							   "Regular expressions for what records must not show.",
							   "A list; of a pattern with a group in parentheses, only what that matches is masked.",
							   &mask_patterns_string, "", PGC_SUSET,
							   GUC_LIST_INPUT | GUC_NOT_IN_SAMPLE,
							   paq_check_mask_patterns,
							   paq_assign_mask_patterns, NULL);
	DefineCustomStringVariable("pg_audit_queue.role",
							   "Role whose grants select the objects that object auditing records.",
							   NULL, &paq_role, "", PGC_SUSET,
							   GUC_NOT_IN_SAMPLE,
							   check_string, assign_role, NULL);
}

/* How long a session waits, and the queue. */
static void
define_queue_settings(void)
{
	DefineCustomEnumVariable("pg_audit_queue.mode",
							 "When a session waits for its records to be durable.",
							 "\"queued\" is never, \"commit\" before its transaction commits, \"immediate\" at the end of each statement.",
							 &paq_mode, PAQ_MODE_QUEUED, mode_options, PGC_SUSET,
							 GUC_NOT_IN_SAMPLE,
							 check_int, assign_mode, NULL);
	DefineCustomStringVariable("pg_audit_queue.immediate_log",
							   "Classes of statements that are immediate whatever the mode.",
							   "Values as for pg_audit_queue.log.",
							   &immediate_log_string, "none", PGC_SUSET,
							   GUC_LIST_INPUT | GUC_NOT_IN_SAMPLE,
							   check_classes, assign_immediate_log, NULL);
	DefineCustomIntVariable("pg_audit_queue.queue_size",
							"Size of the queue.",
							NULL, &paq_queue_size, 16 * 1024, 64, 16 * 1024 * 1024,
							PGC_POSTMASTER, GUC_UNIT_KB | GUC_NOT_IN_SAMPLE,
							check_int, assign_queue_size, NULL);
	DefineCustomStringVariable("pg_audit_queue.queue_directory",
							   "Directory of the queue file.",
							   "A relative name is relative to the data directory.",
							   &paq_queue_directory, "pg_audit_queue",
							   PGC_POSTMASTER,
							   GUC_SUPERUSER_ONLY | GUC_NOT_IN_SAMPLE,
							   check_directory, assign_queue_directory, NULL);
	DefineCustomIntVariable("pg_audit_queue.flush_interval",
							"Longest time before a queued record is written and flushed.",
							NULL, &paq_flush_interval, 1000, 1, 3600 * 1000,
							PGC_SIGHUP, GUC_UNIT_MS | GUC_NOT_IN_SAMPLE,
							check_int, assign_flush_interval, NULL);
	DefineCustomIntVariable("pg_audit_queue.flush_threshold",
							"Percentage of the queue in use at which it is written and flushed.",
							NULL, &paq_flush_threshold, 50, 1, 80,
							PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
							check_int, assign_flush_threshold, NULL);
	DefineCustomEnumVariable("pg_audit_queue.overflow",
							 "What happens to a record when the queue is full.",
							 "\"wait\" lets the session wait for space, \"drop\" drops the record, \"error\" makes the statement fail, \"shutdown\" stops the server.",
							 &paq_overflow, PAQ_OVERFLOW_WAIT, overflow_options,
							 PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
							 check_int, assign_overflow, NULL);
}

/* The trail. */
static void
define_trail_settings(void)
{
	DefineCustomEnumVariable("pg_audit_queue.format",
							 "Format of the audit trail files.",
							 NULL, &paq_format, PAQ_FORMAT_PGAUDIT, format_options,
							 PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
							 check_int, assign_format, NULL);
	DefineCustomBoolVariable("pg_audit_queue.fsync",
							 "Forces the audit trail to disk.",
							 "If off, waiting sessions wait only until the operating system has their records.",
							 &paq_fsync, true, PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
							 check_bool, assign_fsync, NULL);
	DefineCustomStringVariable("pg_audit_queue.log_directory",
							   "Directory of the audit trail files.",
							   "A relative name is relative to the data directory.",
							   &paq_log_directory, "audit", PGC_SIGHUP,
							   GUC_SUPERUSER_ONLY | GUC_NOT_IN_SAMPLE,
							   check_directory, assign_log_directory, NULL);
	DefineCustomStringVariable("pg_audit_queue.log_filename",
							   "Name of audit trail files, as a pattern for strftime.",
							   "The ending, .log, .csv or .json, is added by the format.",
							   &paq_log_filename, "audit-%Y-%m-%d_%H%M%S",
							   PGC_SIGHUP, GUC_SUPERUSER_ONLY | GUC_NOT_IN_SAMPLE,
							   check_filename, assign_log_filename, NULL);
	DefineCustomIntVariable("pg_audit_queue.log_file_mode",
							"File permissions of audit trail files.",
							"A numeric mode as for chmod; write it in octal, with a leading 0.",
							&paq_log_file_mode, 0600, 0, 0777, PGC_SIGHUP,
							GUC_NOT_IN_SAMPLE,
							check_int, assign_log_file_mode, show_file_mode);
	DefineCustomStringVariable("pg_audit_queue.log_line_prefix",
							   "Prefix of each line in the pgaudit format.",
							   "Escapes are those of log_line_prefix; %e is the outcome of the statement.",
							   &paq_log_line_prefix, "%m [%p] %q%u@%d ",
							   PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
							   check_string, assign_log_line_prefix, NULL);
	DefineCustomIntVariable("pg_audit_queue.log_retention_age",
							"Time after which a finished audit trail file is removed.",
							"0 means never.",
							&paq_log_retention_age, 0, 0, INT_MAX / 60,
							PGC_SIGHUP, GUC_UNIT_MIN | GUC_NOT_IN_SAMPLE,
							check_int, assign_log_retention_age, NULL);
	DefineCustomIntVariable("pg_audit_queue.log_retention_size",
							"Total size of audit trail files above which the oldest are removed.",
							"0 means no limit.",
							&paq_log_retention_size, 0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB | GUC_NOT_IN_SAMPLE,
							check_int, assign_log_retention_size, NULL);
	DefineCustomIntVariable("pg_audit_queue.log_rotation_age",
							"Time after which a new audit trail file is started.",
							"0 means never.",
							&paq_log_rotation_age, 24 * 60, 0, INT_MAX / 60,
							PGC_SIGHUP, GUC_UNIT_MIN | GUC_NOT_IN_SAMPLE,
							check_int, assign_log_rotation_age, NULL);
	DefineCustomIntVariable("pg_audit_queue.log_rotation_size",
							"Size after which a new audit trail file is started.",
							"0 means no limit.",
							&paq_log_rotation_size, 10 * 1024, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB | GUC_NOT_IN_SAMPLE,
							check_int, assign_log_rotation_size, NULL);
}

/* The table. */
static void
define_table_settings(void)
{
	DefineCustomEnumVariable("pg_audit_queue.sink",
							 "Where the audit trail goes.",
							 "\"file\" is files in pg_audit_queue.log_directory, \"table\" the table audit_records in pg_audit_queue.database.",
							 &paq_sink, PAQ_SINK_FILE, sink_options,
							 PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
							 check_int, assign_sink, NULL);
	DefineCustomStringVariable("pg_audit_queue.database",
							   "Database of the audit table.",
							   "The extension must have been created in it.",
							   &paq_database, "postgres", PGC_SIGHUP,
							   GUC_NOT_IN_SAMPLE,
							   check_database, assign_database, NULL);
	DefineCustomBoolVariable("pg_audit_queue.table_logged",
							 "Makes new partitions of the audit table crash-safe.",
							 "If off, they are unlogged, and a crash of the server empties them.",
							 &paq_table_logged, true, PGC_SIGHUP,
							 GUC_NOT_IN_SAMPLE,
							 check_bool, assign_table_logged, NULL);
	DefineCustomIntVariable("pg_audit_queue.table_retention",
							"Time after which a partition of the audit table is dropped.",
							"Counted from the end of the partition's day. 0 means never.",
							&paq_table_retention, 0, 0, INT_MAX / 60,
							PGC_SIGHUP, GUC_UNIT_MIN | GUC_NOT_IN_SAMPLE,
							check_int, assign_table_retention, NULL);
	DefineCustomEnumVariable("pg_audit_queue.table_synchronous_commit",
							 "synchronous_commit of the transactions that write the audit table.",
							 "The records are on disk already, so that \"off\" loses none.",
							 &paq_table_synchronous_commit,
							 SYNCHRONOUS_COMMIT_OFF, synchronous_commit_options,
							 PGC_SIGHUP, GUC_NOT_IN_SAMPLE,
							 check_int, assign_table_synchronous_commit, NULL);
}

/*
 * Define all settings and reserve the prefix, so that a misspelt name is an
 * error.  Call once, from _PG_init(), while shared_preload_libraries is being
 * processed.
 */
void
paq_guc_init(void)
{
	define_capture_settings();
	define_queue_settings();
	define_trail_settings();
	define_table_settings();
	MarkGUCPrefixReserved("pg_audit_queue");
}
