/*-------------------------------------------------------------------------
 *
 * guc.c
 *		The settings of guc_list.h: definition, checks of values, and telling
 *		whoever wants to know that one is about to change.
 *
 * A check hook of GUC's knows where a value comes from, an assign hook that it
 * becomes the setting's.  What connects them is the "extra" that the former
 * makes and that GUC keeps with the value.  An assign hook is also called when
 * an earlier value comes back, and a value can become the one for RESET
 * without being assigned; both can be told from the extra.
 *
 * Guarantees: paq_setting_change_hook is called before a setting changes, once
 * for each change, in any process where it is set.
 *
 * Assign hooks must not raise, nor allocate: they are also called while a
 * transaction is being aborted.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>

#include "access/parallel.h"
#include "access/xact.h"
#include "catalog/pg_authid.h"
#include "compat.h"
#include "guc.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "record/record.h"
#include "stats.h"
#include "trail/layer.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#define PREFIX		"pg_audit_queue."

#define VALUE_LEN	32			/* space for the text of a number */

/* How long retention waits that may be a mistake, see paq_retention_begins() */
#define NOTICE_MS	(SECS_PER_HOUR * 1000)

void		(*paq_setting_change_hook) (const PaqSettingChange *change) = NULL;

uint32		paq_mask_patterns_version = 0;

/*
 * Number of changes of our settings that the postmaster has made by reloads.  Another process has
 * the number as it was when the postmaster forked the process.
 */
static uint64 postmasters_changes = 0;

/* When something that removes records got another value in this process, or before it */
static TimestampTz amounts_changed = 0;

/*
 * What GUC keeps with each value of each setting, from the check hook on.  It
 * follows the value into the reset value and the values that are restored
 * when a transaction or a function ends.
 */
typedef struct ValueExtra
{
	GucSource	source;			/* where the value came from */
	bool		used;			/* has been the setting's value */
	uint64		data[FLEXIBLE_ARRAY_MEMBER];	/* what the check hook has made
												 * of it */
} ValueExtra;

/* How the units of integers go on: name, and how many of it are the next one */
typedef struct Unit
{
	const char *name;
	int			next;			/* 0: there is no larger one */
} Unit;

static const Unit byte_units[] = {
	{"B", 1024}, {"kB", 1024}, {"MB", 1024}, {"GB", 1024}, {"TB", 0}
};
static const Unit ms_units[] = {
	{"ms", 1000}, {"s", 60}, {"min", 60}, {"h", 24}, {"d", 0}
};
static const Unit no_units[] = {{"", 0}};

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

/* What the library was built without is no value, as in PostgreSQL. */
static const struct config_enum_entry compression_options[] = {
	{"none", PAQ_COMPRESSION_NONE, false},
#ifdef PAQ_WITH_LZ4
	{"lz4", PAQ_COMPRESSION_LZ4, false},
#endif
#ifdef PAQ_WITH_ZSTD
	{"zstd", PAQ_COMPRESSION_ZSTD, false},
#endif
	{NULL, 0, false}
};

static const struct config_enum_entry encryption_options[] = {
	{"none", PAQ_ENCRYPTION_NONE, false},
#ifdef PAQ_WITH_OPENSSL
	{"aes-128-gcm", PAQ_ENCRYPTION_AES_128_GCM, false},
	{"aes-256-gcm", PAQ_ENCRYPTION_AES_256_GCM, false},
#endif
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

/* ---------------------------------------------------------------------------
 * What settings and rules want
 * ---------------------------------------------------------------------------
 */

uint32		paq_wanted_classes = PAQ_CLASSES_NONE;
bool		paq_no_rules_apply = false;

/* What rules do to the classes of log */
static uint32 recorded_by_rules = PAQ_CLASSES_NONE;
static uint32 ignored_by_rules = PAQ_CLASSES_NONE;

static void
update_wanted(void)
{
	const uint32 all = PAQ_CLASSES_ALL & ~PAQ_CLASS_BIT(PAQ_CLASS_CONFIG);

	paq_wanted_classes = (paq_log_classes & ~ignored_by_rules) | recorded_by_rules;
	if ((ignored_by_rules & all) == all)
		paq_wanted_classes &= ~PAQ_DENIED_BIT;
}

/*
 * In this process, rules may record something of the first classes, and record nothing
 * of the second ones, whatever the settings are.
 */
void
paq_set_rule_classes(uint32 recorded, uint32 ignored)
{
	recorded_by_rules = recorded;
	ignored_by_rules = ignored;
	update_wanted();
}

bool
paq_retention_is_short(int minutes)
{
	return minutes > 0 && minutes < HOURS_PER_DAY * MINS_PER_HOUR;
}

bool
paq_retention_is_small(int kilobytes)
{
	return kilobytes > 0 && kilobytes < paq_log_rotation_size;
}

TimestampTz
paq_retention_begins(bool may_be_mistake, TimestampTz now)
{
	return !may_be_mistake ? DT_NOBEGIN :
		TimestampTzPlusMilliseconds(Min(amounts_changed, now), NOTICE_MS);
}

/* ---------------------------------------------------------------------------
 * Values and their changes
 * ---------------------------------------------------------------------------
 */

/* The unit that is one of GUC's flags, and those above it */
static const Unit *
units_from(int flags)
{
	switch (flags & GUC_UNIT)
	{
		case GUC_UNIT_BYTE:
			return byte_units;
		case GUC_UNIT_KB:
			return byte_units + 1;
		case GUC_UNIT_MS:
			return ms_units;
		case GUC_UNIT_S:
			return ms_units + 1;
		case GUC_UNIT_MIN:
			return ms_units + 2;
		default:
			return no_units;
	}
}

/* A number in that unit, with the largest one in which it is whole; buf has VALUE_LEN bytes. */
static const char *
amount_text(char *buf, int flags, int value)
{
	const Unit *unit = units_from(flags);

	while (value > 0 && unit->next != 0 && value % unit->next == 0)
		value /= (unit++)->next;
	snprintf(buf, VALUE_LEN, "%d%s", value, value > 0 ? unit->name : "");
	return buf;
}

/* An integer as SHOW shows it.  GUC's own function for that allocates memory. */
static const char *
int_text(char *buf, const struct config_generic *setting, int value)
{
	/* only permissions are shown in a way of their own */
	if (paq_guc_int_has_show_hook(setting))
	{
		snprintf(buf, VALUE_LEN, "%04o", value);
		return buf;
	}
	return amount_text(buf, setting->flags, value);
}

/* A new value as SHOW will show it; buf has VALUE_LEN bytes. */
static const char *
new_value_text(char *buf, struct config_generic *setting,
			   union config_var_val value)
{
	switch (setting->vartype)
	{
		case PGC_BOOL:
			return value.boolval ? "on" : "off";
		case PGC_STRING:
			return value.stringval;
		case PGC_ENUM:
			return paq_guc_enum_word(setting, value.enumval);
		default:
			return int_text(buf, setting, value.intval);
	}
}

/* The same for a value that GetConfigOption() has returned. */
static const char *
value_text(char *buf, const struct config_generic *setting, const char *value)
{
	/* analyzer: never NULL, changes are told once settings are defined */
	return setting->vartype == PGC_INT ?
		int_text(buf, setting, atoi(value)) : value;
}

/*
 * The value that a setting has without what the session has set; NULL if it
 * is unknown.  GetConfigOptionResetString() refuses some settings to users who
 * may not see them.  But the value is for the trail, and not for the user.
 */
static const char *
reset_value(const char *name)
{
	Oid			user;
	int			context;
	const char *value;

	if (!superuser_arg(BOOTSTRAP_SUPERUSERID))
		return NULL;
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(BOOTSTRAP_SUPERUSERID,
						   context | SECURITY_LOCAL_USERID_CHANGE);
	value = GetConfigOptionResetString(name);
	SetUserIdAndSecContext(user, context);
	return value;
}

char *
paq_setting_value(const char **name, bool reset)
{
	struct config_generic *setting = paq_guc_find(*name);
	const char *value;
	char		buf[VALUE_LEN];

	if (setting == NULL)
		return NULL;
	*name = setting->name;
	value = reset ? reset_value(*name) : GetConfigOption(*name, false, false);
	return value ? pstrdup(value_text(buf, setting, value)) : NULL;
}

void
paq_settings_publish(void)
{
	PaqServerSettings settings = {
		.log_classes = paq_log_classes,
		.mask_classes = paq_mask_classes,
		.mask_patterns = paq_mask_patterns[0] != '\0',
		.log_statement = paq_log_statement,
		.log_parameter = paq_log_parameter,
		.log_catalog = paq_log_catalog,
		.policy = paq_policy_enabled
	};

	strlcpy(settings.role, paq_role, sizeof(settings.role));
	paq_stats_begin_write();
	paq_stats->worker.settings = settings;
	paq_stats_end_write();
}

bool
paq_settings_are_outdated(void)
{
	return pg_atomic_read_u64(&paq_stats->setting_changes) > postmasters_changes;
}

/*
 * A setting is about to get the value that has this extra: tell of it.  A value
 * that has been the setting's before is restored, and so is one that only became
 * the reset value when it was read, because the session had another one.
 *
 * Nothing is told while settings are defined, when GUC does not find them.
 * A parallel worker frees its own values before it takes over those of its
 * leader, so that there are no old values then.
 */
static void
report_change(const char *name, union config_var_val new_value, ValueExtra *extra)
{
	const bool	used = extra->used;
	struct config_generic *setting;
	char		old_buf[VALUE_LEN];
	char		new_buf[VALUE_LEN];
	PaqSettingChange change;

	extra->used = true;
	if (paq_setting_change_hook == NULL || InitializingParallelWorker)
		return;
	setting = paq_guc_find(name);
	change.name = name;
	change.old_value = value_text(old_buf, setting,
								  GetConfigOption(name, false, false));
	change.new_value = new_value_text(new_buf, setting, new_value);
	change.source = extra->source;
	change.restored = used || paq_guc_reset_extra(setting) == extra;
	if (strcmp(change.old_value, change.new_value) == 0)
		return;

	/* The postmaster counts the change before it sends SIGHUP to its children. */
	if (MyProcPid == PostmasterPid && paq_stats != NULL)
		pg_atomic_write_u64(&paq_stats->setting_changes, ++postmasters_changes);
	paq_setting_change_hook(&change);
}

/* ---------------------------------------------------------------------------
 * Checks
 * ---------------------------------------------------------------------------
 */

/*
 * Make the extra of a value, with space for size bytes of the setting's own.
 * Returns false when out of memory.
 */
static bool
make_extra(void **extra, GucSource source, Size size)
{
	ValueExtra *value = paq_guc_alloc(offsetof(ValueExtra, data) + size);

	if (value == NULL)
		return false;
	value->source = source;
	value->used = false;
	*extra = value;
	return true;
}

/* The setting's own part of a value's extra */
static void *
extra_data(void *extra)
{
	return ((ValueExtra *) extra)->data;
}

static bool
check_bool(bool *newval, void **extra, GucSource source)
{
	return make_extra(extra, source, 0);
}

/* An integer or, which is one to hooks, an enum */
static bool
check_int(int *newval, void **extra, GucSource source)
{
	return make_extra(extra, source, 0);
}

static bool
check_string(char **newval, void **extra, GucSource source)
{
	return make_extra(extra, source, 0);
}

/* Put another text in the place of a value; false when out of memory. */
static bool
replace_value(char **newval, const char *text)
{
	char	   *copy = paq_guc_alloc(strlen(text) + 1);

	if (copy == NULL)
		return false;
	strcpy(copy, text);
	paq_guc_free(*newval);
	*newval = copy;
	return true;
}

/*
 * A number whose unit has to be named, except for 0 and below, which are no limit;
 * unit is what it is counted in.  It becomes part of *extra, and its text that which
 * SHOW would show of an integer.
 */
static bool
check_amount(char **newval, void **extra, GucSource source, int unit, int min, int max)
{
	const char *hint = NULL;
	char		buf[VALUE_LEN];
	char		max_buf[VALUE_LEN];
	int			value;
	int			bare;

	if (!parse_int(*newval, &value, unit, &hint))
	{
		if (hint != NULL)
			GUC_check_errhint("%s", _(hint));
		return false;
	}
	if (value < min || value > max)
	{
		GUC_check_errdetail("It is outside the valid range (%d .. %s).",
							min, amount_text(max_buf, unit, max));
		return false;
	}
	amount_text(buf, unit, value);
	if (value > 0 && parse_int(*newval, &bare, 0, NULL))
	{
		GUC_check_errdetail("A unit is required, because what exceeds the value is removed; without one it would be \"%s\".",
							buf);
		GUC_check_errhint(unit == GUC_UNIT_MIN ?
						  "Units are \"min\", \"h\", and \"d\"." :
						  "Units are \"kB\", \"MB\", \"GB\", and \"TB\".");
		return false;
	}
	if (!replace_value(newval, buf) || !make_extra(extra, source, sizeof(int)))
		return false;
	*(int *) extra_data(*extra) = value;
	return true;
}

/*
 * Parse a list of classes, each optionally with a leading "-" that takes it
 * out again, from left to right.  of_log: "denied" is a word, too, and is implied
 * where all classes are.  Returns false if the list is wrong; *unknown is then the
 * word that is no class, palloc'd, or NULL if the syntax is wrong.
 */
bool
paq_parse_classes(const char *value, bool of_log, uint32 *classes, char **unknown)
{
	const uint32 all = PAQ_CLASSES_ALL & ~PAQ_CLASS_BIT(PAQ_CLASS_CONFIG);
	char	   *raw = pstrdup(value);
	List	   *names = NIL;
	ListCell   *lc;
	bool		ok = SplitIdentifierString(raw, ',', &names);

	*classes = PAQ_CLASSES_NONE;
	*unknown = NULL;
	foreach(lc, names)
	{
		const char *name = (const char *) lfirst(lc);
		bool		subtract = (name[0] == '-');
		uint32		bits;

		if (of_log && pg_strcasecmp(name + (subtract ? 1 : 0), "denied") == 0)
			bits = PAQ_DENIED_BIT;
		else if (!paq_class_lookup(name + (subtract ? 1 : 0), &bits))
		{
			*unknown = pstrdup(name);
			ok = false;
			break;
		}
		*classes = subtract ? *classes & ~bits : *classes | bits;
	}
	if (of_log && (*classes & all) == all)
		*classes |= PAQ_DENIED_BIT;
	list_free(names);
	pfree(raw);
	return ok;
}

/* The bitmap of a list of classes, or of those of "log", becomes part of *extra. */
static bool
check_words(char **newval, void **extra, GucSource source, bool of_log)
{
	uint32		classes;
	char	   *unknown;

	if (!paq_parse_classes(*newval, of_log, &classes, &unknown))
	{
		if (unknown == NULL)
			GUC_check_errdetail("List syntax is invalid.");
		else
		{
			GUC_check_errdetail("Unrecognized statement class: \"%s\".", unknown);
			GUC_check_errhint("Available classes: connect, ddl, %serror, function, misc, misc_set, read, role, set_role, write, all, none; each can be preceded by \"-\" to leave it out.",
							  of_log ? "denied, " : "");
		}
		return false;
	}
	if (!make_extra(extra, source, sizeof(uint32)))
		return false;
	*(uint32 *) extra_data(*extra) = classes;
	return true;
}

static bool
check_classes(char **newval, void **extra, GucSource source)
{
	return check_words(newval, extra, source, false);
}

static bool
check_log(char **newval, void **extra, GucSource source)
{
	return check_words(newval, extra, source, true);
}

static bool
check_file(char **newval, void **extra, GucSource source)
{
	if (**newval == '\0')
	{
		GUC_check_errdetail("A file name is required.");
		return false;
	}
	if (strlen(*newval) > MAXPGPATH / 2)
	{
		GUC_check_errdetail("The file name is too long (maximum %d bytes).",
							MAXPGPATH / 2);
		return false;
	}
	return make_extra(extra, source, 0);
}

/* Leave space behind a directory for the names of the files in it. */
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
	return make_extra(extra, source, 0);
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
	return make_extra(extra, source, 0);
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
	return make_extra(extra, source, 0);
}

/*
 * The encoding in which to try a pattern out: before there is a database, when
 * the configuration file is read, whichever fits.
 */
static int
pattern_encoding(const char *pattern)
{
	if (GetDatabaseEncoding() == PG_SQL_ASCII &&
		pg_encoding_verifymbstr(PG_UTF8, pattern, strlen(pattern)) == strlen(pattern))
		return PG_UTF8;
	return GetDatabaseEncoding();
}

/* Is it a regular expression?  If not, say so. */
static bool
check_pattern(const char *pattern)
{
	regex_t		regex;
	char		message[100];
	int			code;

	if (*pattern == '\0')
	{
		GUC_check_errdetail("A regular expression is empty.");
		return false;
	}
	code = paq_regcomp(&regex, pattern, pattern_encoding(pattern));
	if (code != REG_OKAY)
	{
		pg_regerror(code, &regex, message, sizeof(message));
		GUC_check_errdetail("Regular expression \"%s\" is not valid: %s.",
							pattern, message);
		return false;
	}
	pg_regfree(&regex);
	return true;
}

/* Are the elements of a list what they should be?  If not, say so. */
typedef bool (*CheckElements) (const List *elements);

/*
 * Check a list.  Its elements, one behind the other, each with its terminator, and
 * another terminator at the end, become *extra.
 */
static bool
check_list(char **newval, void **extra, GucSource source,
		   CheckElements check, const char *hint)
{
	char	   *raw = pstrdup(*newval);
	List	   *elements = NIL;
	ListCell   *lc;
	char	   *packed;
	bool		ok;

	/* no element is longer than it is in the list, so this is enough */
	if (!make_extra(extra, source, strlen(raw) + 2))
		return false;
	packed = extra_data(*extra);

	ok = SplitGUCList(raw, ',', &elements);
	if (!ok)
	{
		GUC_check_errdetail("List syntax is invalid.");
		GUC_check_errhint("%s", hint);
	}
	ok = ok && check(elements);
	foreach(lc, elements)
	{
		strcpy(packed, (const char *) lfirst(lc));
		packed += strlen(packed) + 1;
	}
	*packed = '\0';
	list_free(elements);
	pfree(raw);
	if (!ok)
	{
		paq_guc_free(*extra);
		*extra = NULL;
	}
	return ok;
}

static bool
are_patterns(const List *elements)
{
	ListCell   *lc;

	foreach(lc, elements)
		if (!check_pattern((const char *) lfirst(lc)))
			return false;
	return true;
}

static bool
check_patterns(char **newval, void **extra, GucSource source)
{
	return check_list(newval, extra, source, are_patterns,
					  "Put each regular expression that contains commas or spaces in double quotes.");
}

/*
 * Can a setting have that name?  PostgreSQL's rules for names of its own and of
 * others: words with dots between them.
 */
static bool
is_setting_name(const char *name)
{
	bool		begins = true;	/* a word */

	for (const char *p = name; *p != '\0'; p++)
	{
		if (*p == '.' && begins)
			return false;
		if (*p != '.' && *p != '_' && !IS_HIGHBIT_SET(*p) &&
			!isalpha((unsigned char) *p) &&
			(begins || (*p != '$' && !isdigit((unsigned char) *p))))
			return false;
		begins = *p == '.';
	}
	return !begins;
}

/* Is the name in the list more than once?  GUC ignores case. */
static bool
is_repeated(const List *names, const char *name)
{
	ListCell   *lc;
	int			times = 0;

	foreach(lc, names)
		if (pg_strcasecmp((const char *) lfirst(lc), name) == 0)
			times++;
	return times > 1;
}

static bool
are_setting_names(const List *elements)
{
	ListCell   *lc;

	if (list_length(elements) > PAQ_MAX_NAMES)
	{
		GUC_check_errdetail("The list has too many names (maximum %d).", PAQ_MAX_NAMES);
		return false;
	}
	foreach(lc, elements)
	{
		const char *name = (const char *) lfirst(lc);

		if (!is_setting_name(name))
		{
			GUC_check_errdetail("\"%s\" is not a valid name of a setting.", name);
			return false;
		}
		if (strlen(name) >= NAMEDATALEN)
		{
			GUC_check_errdetail("Name \"%s\" is too long (maximum %d bytes).",
								name, NAMEDATALEN - 1);
			return false;
		}
		if (is_repeated(elements, name))
		{
			GUC_check_errdetail("Name \"%s\" is there more than once.", name);
			return false;
		}
	}
	return true;
}

static bool
check_names(char **newval, void **extra, GucSource source)
{
	return check_list(newval, extra, source, are_setting_names,
					  "Separate the names with commas.");
}

/* ---------------------------------------------------------------------------
 * Definitions
 * ---------------------------------------------------------------------------
 */

static const char *
show_file_mode(void)
{
	static char buf[VALUE_LEN];

	snprintf(buf, sizeof(buf), "%04o", paq_log_file_mode);
	return buf;
}

static void
take_amount(int *variable, int value)
{
	if (*variable != value)
		amounts_changed = GetCurrentTimestamp();
	*variable = value;
}

/*
 * The variables, and the assign hooks: these are not told whose they are, so that
 * each setting has its own.
 */
#define ASSIGN_HOOK(name, type, value, then) \
static void \
assign_##name(type newval, void *extra) \
{ \
	report_change(PREFIX #name, (union config_var_val){value}, extra); \
	then; \
}
#define PAQ_BOOL(name, variable, boot, ...) \
bool		variable = boot; \
ASSIGN_HOOK(name, bool, .boolval = newval, (void) 0)
#define PAQ_INT(name, variable, boot, ...) \
int			variable = boot; \
ASSIGN_HOOK(name, int, .intval = newval, (void) 0)
#define PAQ_FILE_MODE PAQ_INT
#define PAQ_AMOUNT(name, variable, boot, min, max, context, unit, ...) \
int			variable = boot; \
static char *name##_text = NULL; \
static bool \
check_##name(char **newval, void **extra, GucSource source) \
{ \
	return check_amount(newval, extra, source, unit, min, max); \
} \
ASSIGN_HOOK(name, const char *, .stringval = unconstify(char *, newval), \
			take_amount(&variable, *(int *) extra_data(extra)))
#define PAQ_ENUM(name, variable, boot, ...) \
int			variable = boot; \
ASSIGN_HOOK(name, int, .enumval = newval, (void) 0)
#define PAQ_STRING(name, variable, ...) \
char	   *variable = NULL; \
ASSIGN_HOOK(name, const char *, .stringval = unconstify(char *, newval), (void) 0)
/*
 * Of a list, the variable is what the check hook has made of the text.  That of log
 * decides together with rules.
 */
#define PAQ_CLASSES(name, variable, ...) \
uint32		variable = PAQ_CLASSES_NONE; \
static char *name##_text = NULL; \
ASSIGN_HOOK(name, const char *, .stringval = unconstify(char *, newval), \
			variable = *(uint32 *) extra_data(extra); update_wanted())
#define PAQ_PATTERNS(name, variable, ...) \
const char *variable = ""; \
static char *name##_text = NULL; \
ASSIGN_HOOK(name, const char *, .stringval = unconstify(char *, newval), \
			variable = extra_data(extra); variable##_version++)
#define PAQ_NAMES(name, variable, ...) \
const char *variable = NULL; \
static char *name##_text = NULL; \
ASSIGN_HOOK(name, const char *, .stringval = unconstify(char *, newval), \
			variable = paq_null_if_empty(extra_data(extra)))
#include "guc_list.h"

/*
 * Would the server start with that value of a setting of ours?  It need not be
 * possible to set it now.
 */
bool
paq_setting_is_valid(const char *name, const char *value)
{
	struct config_generic *setting = paq_guc_find(name);

	return setting != NULL && (setting->flags & GUC_CUSTOM_PLACEHOLDER) == 0 &&
		pg_strncasecmp(name, PREFIX, strlen(PREFIX)) == 0 &&
		set_config_option(name, value, PGC_POSTMASTER, PGC_S_FILE, GUC_ACTION_SET,
						  false, DEBUG3, false) != 0;
}

/*
 * Does a line of the configuration files keep PostgreSQL from using what it says of
 * auditing?  A later line with the same name takes its place, be that right or wrong.
 */
static bool
is_wrong(const ConfigVariable *line)
{
	if (line->errmsg != NULL)
		return true;
	for (const ConfigVariable *later = line->next; later != NULL; later = later->next)
		if (later->errmsg == NULL && pg_strcasecmp(later->name, line->name) == 0)
			return false;
	if (pg_strncasecmp(line->name, PREFIX, strlen(PREFIX)) == 0)
		return !paq_setting_is_valid(line->name, line->value);

	/* Of a file with a name that it does not know, PostgreSQL uses nothing. */
	return strchr(line->name, '.') == NULL && paq_guc_find(line->name) == NULL;
}

int
paq_settings_count_wrong(void)
{
	ConfigVariable *head = NULL;
	ConfigVariable *tail = NULL;
	int			wrong = 0;

	/* If they cannot be read, that is a line with an error. */
	(void) ParseConfigFile(ConfigFileName, true, NULL, 0, 0, DEBUG3, &head, &tail);
	(void) ParseConfigFile(PG_AUTOCONF_FILENAME, false, NULL, 0, 0, DEBUG3, &head, &tail);
	for (const ConfigVariable *line = head; line != NULL; line = line->next)
		if (is_wrong(line))
			wrong++;
	FreeConfigVariables(head);
	return wrong;
}

/* A setting as the configuration has it */
typedef struct ConfiguredSetting
{
	char	   *name;
	char	   *value;
} ConfiguredSetting;

/* What the configuration has with our prefix, before anything of it is defined */
static List *
read_before_definition(void)
{
	int			n;
	struct config_generic **variables = paq_guc_variables(&n);
	List	   *result = NIL;

	for (int i = 0; i < n; i++)
	{
		const char *name = variables[i]->name;
		ConfiguredSetting *setting;

		if (pg_strncasecmp(name, PREFIX, strlen(PREFIX)) != 0)
			continue;
		setting = palloc(sizeof(*setting));
		setting->name = pstrdup(name);
		setting->value = pstrdup(GetConfigOption(name, false, false));
		result = lappend(result, setting);
	}
	return result;
}

/*
 * PostgreSQL does not start with a wrong value of a setting of its own.  Of a
 * library's it warns, and uses the default; ours may record nothing, or leave it
 * for all to read.
 */
static void
require_valid(const List *configured)
{
	StringInfoData wrong;
	ListCell   *lc;

	initStringInfo(&wrong);
	foreach(lc, configured)
	{
		const ConfiguredSetting *setting = (const ConfiguredSetting *) lfirst(lc);

		if (!paq_setting_is_valid(setting->name, setting->value))
			appendStringInfo(&wrong, "%s\"%s\"", wrong.len > 0 ? ", " : "", setting->name);
	}
	if (wrong.len > 0)
		ereport(FATAL,
				(errcode(ERRCODE_CONFIG_FILE_ERROR),
				 errmsg("configuration has wrong settings of pg_audit_queue: %s", wrong.data),
				 errdetail("The server would record less than it is meant to, or show it to others."),
				 errhint("The warnings before this message say what is wrong.")));
}

/*
 * Define all settings and reserve the prefix, so that a misspelt name is an
 * error.  Call once, from _PG_init(), while shared_preload_libraries is being
 * processed.
 */
void
paq_guc_init(void)
{
	List	   *configured = read_before_definition();

#define PAQ_BOOL(name, variable, boot, context, brief, more) \
	DefineCustomBoolVariable(PREFIX #name, brief, more, &variable, boot, \
							 context, GUC_NOT_IN_SAMPLE, \
							 check_bool, assign_##name, NULL);
#define INT_VARIABLE(name, variable, boot, min, max, context, unit, brief, more, show) \
	DefineCustomIntVariable(PREFIX #name, brief, more, &variable, boot, min, max, \
							context, (unit) | GUC_NOT_IN_SAMPLE, \
							check_int, assign_##name, show);
#define PAQ_INT(...)		INT_VARIABLE(__VA_ARGS__, NULL)
#define PAQ_FILE_MODE(...)	INT_VARIABLE(__VA_ARGS__, show_file_mode)
#define PAQ_AMOUNT(name, variable, boot, min, max, context, unit, brief, more) \
	DefineCustomStringVariable(PREFIX #name, brief, more, &name##_text, #boot, \
							   context, GUC_NOT_IN_SAMPLE, \
							   check_##name, assign_##name, NULL);
#define PAQ_ENUM(name, variable, boot, options, context, brief, more) \
	DefineCustomEnumVariable(PREFIX #name, brief, more, &variable, boot, options, \
							 context, GUC_NOT_IN_SAMPLE, \
							 check_int, assign_##name, NULL);
#define PAQ_STRING(name, variable, boot, check, context, flags, brief, more) \
	DefineCustomStringVariable(PREFIX #name, brief, more, &variable, boot, \
							   context, (flags) | GUC_NOT_IN_SAMPLE, \
							   check, assign_##name, NULL);
#define LIST_VARIABLE(name, boot, context, brief, more, check) \
	DefineCustomStringVariable(PREFIX #name, brief, more, &name##_text, boot, \
							   context, GUC_LIST_INPUT | GUC_NOT_IN_SAMPLE, \
							   check, assign_##name, NULL);
#define PAQ_CLASSES(name, variable, boot, check, context, brief, more) \
	LIST_VARIABLE(name, boot, context, brief, more, check)
#define PAQ_PATTERNS(name, variable, ...)	LIST_VARIABLE(name, __VA_ARGS__, check_patterns)
#define PAQ_NAMES(name, variable, ...)		LIST_VARIABLE(name, __VA_ARGS__, check_names)
#include "guc_list.h"

	MarkGUCPrefixReserved("pg_audit_queue");
	require_valid(configured);
}
