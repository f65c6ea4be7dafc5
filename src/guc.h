/*-------------------------------------------------------------------------
 *
 * guc.h
 *		The settings, pg_audit_queue.*; what there is, is in guc_list.h.
 *
 * The variables are this process's current values, and only GUC changes them.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_GUC_H
#define PAQ_GUC_H

#include "postgres.h"

#include "datatype/timestamp.h"
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

/* The variables; a list of classes is a class bitmap */
#define PAQ_BOOL(name, variable, ...)		extern bool variable;
#define PAQ_INT(name, variable, ...)		extern int variable;
#define PAQ_AMOUNT(name, variable, ...)		extern int variable;
#define PAQ_FILE_MODE(name, variable, ...)	extern int variable;
#define PAQ_ENUM(name, variable, ...)		extern int variable;
#define PAQ_STRING(name, variable, ...)		extern char *variable;
#define PAQ_CLASSES(name, variable, ...)	extern uint32 variable;
#define PAQ_PATTERNS(name, variable, ...)	extern const char *variable;
#define PAQ_NAMES(name, variable, ...)		extern const char *variable;
#include "guc_list.h"

/* Classes of which something may be recorded, by session auditing or by rules */
extern uint32 paq_wanted_classes;
extern void paq_set_rule_classes(uint32 recorded, uint32 ignored);

/* This process is the library's own, and no rules apply to it.  Set before it begins. */
extern bool paq_no_rules_apply;

/*
 * Retention of less than a day, or of less than a file, may be a mistake that removes
 * the trail.  It begins only an hour after the setting was made, or the server started,
 * so that what is said of it can be seen.  The last one returns when, -infinity for
 * other retention.
 */
extern bool paq_retention_is_short(int minutes);
extern bool paq_retention_is_small(int kilobytes);
extern TimestampTz paq_retention_begins(bool may_be_mistake, TimestampTz now);

/*
 * Patterns stand one behind the other, each with its terminator, and one more
 * at the end; the version changes whenever they do.
 */
extern uint32 paq_mask_patterns_version;

/*
 * Names, NULL if there are none, are as many as PAQ_MAX_NAMES, each shorter than
 * NAMEDATALEN.  They stand as patterns do.
 */
#define PAQ_MAX_NAMES	16

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

/*
 * The value of a setting of ours as SHOW shows it, palloc'ed; with reset, the
 * one that it has without what the session has set.  *name becomes the spelling
 * of its definition.  NULL if there is no such setting.
 */
extern bool paq_parse_classes(const char *value, bool of_log, uint32 *classes,
							  char **unknown);
extern char *paq_setting_value(const char **name, bool reset);

/* Would the server start with that value? */
extern bool paq_setting_is_valid(const char *name, const char *value);

/*
 * How many lines of the configuration files, as they are now, keep their values from
 * being used: those of our settings that are wrong, and what makes PostgreSQL use
 * nothing of a file.
 */
extern int	paq_settings_count_wrong(void);

/*
 * Show all processes the values that this one has: the server's, in the postmaster
 * and in the worker, who have no others.
 */
extern void paq_settings_publish(void);

/*
 * Returns true if the postmaster has changed settings of ours since it forked this process.  A
 * background worker asks when it has set its handler for SIGHUP: PostgreSQL drops a SIGHUP that
 * comes between the fork and the worker's first instructions.  A reload that is dropped, and
 * changes none of our settings, stays unnoticed.
 */
extern bool paq_settings_are_outdated(void);

/* Define all settings; only while shared_preload_libraries is processed. */
extern void paq_guc_init(void);

#endif							/* PAQ_GUC_H */
