/*-------------------------------------------------------------------------
 *
 * guc_change.c
 *		The settings' values as text, and telling whoever wants to know that
 *		one is about to change.
 *
 * A check hook of GUC's knows where a value comes from, an assign hook that it
 * becomes the setting's.  What connects them is the "extra" that the former
 * makes and that GUC keeps with the value.  An assign hook is also called when
 * an earlier value comes back, and a value can become the one for RESET
 * without being assigned; both can be told from the extra.
 *
 * Guarantees: paq_setting_change_hook is called before the setting changes,
 * once for each change, in any process where it is set.
 *
 * Must not raise, and allocates only where it says so.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "catalog/pg_authid.h"
#include "compat.h"
#include "guc.h"
#include "miscadmin.h"
#include "utils/guc_tables.h"

void		(*paq_setting_change_hook) (const PaqSettingChange *change) = NULL;

/*
 * What GUC keeps with each value of each setting, from the check hook on.  It
 * follows the value into the reset value and the values that are restored
 * when a transaction or a function ends.
 */
typedef struct ValueExtra
{
	GucSource	source;			/* where the value came from */
	bool		used;			/* has been the setting's value */
	uint64		data[FLEXIBLE_ARRAY_MEMBER];	/* what the setting's own check
												 * hook has made of it */
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

#define VALUE_LEN	32			/* room for the text of a number */

/*
 * For check hooks: make the extra of a value, with room for size bytes of the
 * setting's own.  Returns false when out of memory.
 */
bool
paq_extra_make(void **extra, GucSource source, Size size)
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
void *
paq_extra_data(void *extra)
{
	return ((ValueExtra *) extra)->data;
}

static const char *
bool_text(bool value)
{
	return value ? "on" : "off";
}

/* Units of a setting, from its own on */
static const Unit *
units_of(const struct config_generic *setting)
{
	switch (setting->flags & GUC_UNIT)
	{
		case GUC_UNIT_BYTE:
			return byte_units;
		case GUC_UNIT_KB:
			return byte_units + 1;
		case GUC_UNIT_MS:
			return ms_units;
		case GUC_UNIT_MIN:
			return ms_units + 2;
		default:
			return no_units;
	}
}

static const char *
int_text(char *buf, const struct config_generic *setting, int value)
{
	const Unit *unit = value > 0 ? units_of(setting) : no_units;

	/* Only permissions are shown in another way. */
	if (strcmp(setting->name, "pg_audit_queue.log_file_mode") == 0)
	{
		snprintf(buf, VALUE_LEN, "%04o", value);
		return buf;
	}
	while (unit->next != 0 && value % unit->next == 0)
		value /= (unit++)->next;
	snprintf(buf, VALUE_LEN, "%d%s", value, unit->name);
	return buf;
}

/*
 * A value as SHOW shows it, which allocates, given as GetConfigOption() returns
 * it, which does not; buf has VALUE_LEN bytes.
 */
static const char *
value_text(char *buf, const struct config_generic *setting, const char *value)
{
	return setting->vartype == PGC_INT ?
		int_text(buf, setting, atoi(value)) : value;
}

/*
 * The value that a setting has without what the session has set; NULL if it
 * cannot be had.  GetConfigOptionResetString() refuses some to users who may not
 * see them, but the record is not for who makes it.
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

/*
 * Value of a setting of ours, as SHOW shows it, for whoever asks; palloc'ed.
 * With reset, the one that it has without what the session has set.
 * *name becomes the spelling of its definition.  NULL if there is no such
 * setting.
 */
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

/*
 * The setting is about to get the value that has this extra.  A value that
 * has been the setting's before is restored, and so is one that only became
 * the reset value when it was read, because the session had another one.
 */
static void
report_change(struct config_generic *setting, const char *new_value,
			  ValueExtra *extra, bool used)
{
	char		buf[VALUE_LEN];
	PaqSettingChange change;

	change.name = setting->name;
	change.old_value = value_text(buf, setting,
								  GetConfigOption(setting->name, false, false));
	change.new_value = new_value;
	change.source = extra->source;
	change.restored = used || paq_guc_reset_extra(setting) == extra;
	if (strcmp(change.old_value, new_value) != 0)
		paq_setting_change_hook(&change);
}

/*
 * The value with this extra is about to become a setting's: does anybody want
 * to know?  Nobody does while settings are defined, when GUC does not find
 * them.  A parallel worker starts with taking over those of its leader, after
 * it has freed its own, so that there are no values to be looked at.
 */
static bool
begin_assign(void *extra, bool *used)
{
	*used = ((ValueExtra *) extra)->used;
	((ValueExtra *) extra)->used = true;
	return paq_setting_change_hook != NULL && !InitializingParallelWorker;
}

/* For assign hooks: the setting called name gets the value with this extra. */
void
paq_assign_bool(const char *name, bool newval, void *extra)
{
	bool		used;

	if (begin_assign(extra, &used))
		report_change(paq_guc_find(name), bool_text(newval), extra, used);
}

void
paq_assign_int(const char *name, int newval, void *extra)
{
	char		buf[VALUE_LEN];
	bool		used;

	if (begin_assign(extra, &used))
	{
		struct config_generic *setting = paq_guc_find(name);

		report_change(setting, int_text(buf, setting, newval), extra, used);
	}
}

void
paq_assign_enum(const char *name, int newval, void *extra)
{
	bool		used;

	if (begin_assign(extra, &used))
	{
		struct config_generic *setting = paq_guc_find(name);

		report_change(setting, paq_guc_enum_name(setting, newval), extra, used);
	}
}

void
paq_assign_string(const char *name, const char *newval, void *extra)
{
	bool		used;

	if (begin_assign(extra, &used))
		report_change(paq_guc_find(name), newval, extra, used);
}
