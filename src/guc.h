/*-------------------------------------------------------------------------
 *
 * guc.h
 *		The settings, pg_audit_queue.*.
 *
 * Variables are this process's current values, changed only by GUC
 * machinery; units are in their comments.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_GUC_H
#define PAQ_GUC_H

#include "postgres.h"

#include "utils/guc.h"

/* Values of pg_audit_queue.mode */
typedef enum PaqMode
{
	PAQ_MODE_QUEUED,			/* never wait for the trail */
	PAQ_MODE_COMMIT,			/* wait before the transaction commits */
	PAQ_MODE_IMMEDIATE			/* wait at the end of each statement */
} PaqMode;

/* Values of pg_audit_queue.overflow */
typedef enum PaqOverflow
{
	PAQ_OVERFLOW_WAIT,			/* wait for space, interruptibly */
	PAQ_OVERFLOW_DROP,			/* do without the record, and count it */
	PAQ_OVERFLOW_ERROR,			/* let the statement fail; from here on: if
								 * the queue stays full */
	PAQ_OVERFLOW_SHUTDOWN		/* stop the server */
} PaqOverflow;

/* Values of pg_audit_queue.format */
typedef enum PaqFormatKind
{
	PAQ_FORMAT_PGAUDIT,
	PAQ_FORMAT_CSVLOG,
	PAQ_FORMAT_JSON
} PaqFormatKind;

/* Values of pg_audit_queue.sink */
typedef enum PaqSinkKind
{
	PAQ_SINK_FILE,				/* files are the trail */
	PAQ_SINK_TABLE				/* they are on their way into a table */
} PaqSinkKind;

/* capture: meanings as in pgaudit */
extern uint32 paq_log_classes;	/* "log" as a class bitmap */
extern bool paq_log_catalog;
extern bool paq_log_client;
extern int	paq_log_level;		/* elevel */
extern bool paq_log_parameter;
extern int	paq_log_parameter_max_size; /* bytes, 0: no limit */
extern bool paq_log_relation;
extern bool paq_log_rows;
extern bool paq_log_statement;
extern bool paq_log_statement_once;
extern char *paq_role;			/* "" if none */

/*
 * mask_patterns: each pattern with its terminator, and one more at the end;
 * the version changes with it.
 */
extern const char *paq_mask_patterns;
extern uint32 paq_mask_patterns_version;
extern uint32 paq_mask_classes; /* "mask_literals" as a class bitmap */

/* durability */
extern int	paq_mode;			/* PaqMode */
extern uint32 paq_immediate_classes;	/* "immediate_log" as a class bitmap */

/* queue */
extern int	paq_queue_size;		/* kB */
extern char *paq_queue_directory;	/* relative to the data directory */
extern int	paq_flush_interval; /* ms */
extern int	paq_flush_threshold;	/* percent of the queue */
extern int	paq_overflow;		/* PaqOverflow */

/* trail */
extern int	paq_format;			/* PaqFormatKind */
extern bool paq_fsync;
extern char *paq_log_directory; /* relative to the data directory */
extern char *paq_log_filename;	/* strftime pattern */
extern int	paq_log_file_mode;	/* permission bits */
extern char *paq_log_line_prefix;
extern int	paq_log_retention_age;	/* minutes, 0: keep for ever */
extern int	paq_log_retention_size; /* kB, 0: no limit */
extern int	paq_log_rotation_age;	/* minutes, 0: never */
extern int	paq_log_rotation_size;	/* kB, 0: never */

/* table */
extern int	paq_sink;			/* PaqSinkKind */
extern char *paq_database;
extern bool paq_table_logged;
extern int	paq_table_retention;	/* minutes, 0: for ever */
extern int	paq_table_synchronous_commit;	/* SyncCommitLevel */

/* A setting is about to get another value in this process. */
typedef struct PaqSettingChange
{
	const char *name;			/* with prefix */
	const char *old_value;		/* both as SHOW shows them */
	const char *new_value;
	GucSource	source;			/* where the new value came from */
	bool		restored;		/* nobody sets it now: it is back because of a
								 * RESET, or the end of a transaction or
								 * function */
} PaqSettingChange;

/*
 * Called before each change, by whatever processes have set it.  Must neither
 * raise nor need memory.
 */
extern void (*paq_setting_change_hook) (const PaqSettingChange *change);

/* guc_change.c */
extern char *paq_setting_value(const char **name, bool reset);

/* guc_change.c, for the settings' hooks */
extern bool paq_extra_make(void **extra, GucSource source, Size size);
extern void *paq_extra_data(void *extra);
extern void paq_assign_bool(const char *name, bool newval, void *extra);
extern void paq_assign_int(const char *name, int newval, void *extra);
extern void paq_assign_enum(const char *name, int newval, void *extra);
extern void paq_assign_string(const char *name, const char *newval, void *extra);

/* Define all settings; only while shared_preload_libraries is processed. */
extern void paq_guc_init(void);

/* guc_patterns.c, for guc.c: hooks of mask_patterns */
extern bool paq_check_mask_patterns(char **newval, void **extra,
									GucSource source);
extern void paq_assign_mask_patterns(const char *newval, void *extra);

#endif							/* PAQ_GUC_H */
