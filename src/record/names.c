/*-------------------------------------------------------------------------
 *
 * names.c
 *		Names of statement classes, and of the fields of a record in the trail.
 *
 * No backend header is included, so that programs can use the names too.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "c.h"

#include "record/record.h"

/* By PaqClass: the name in settings, and the one in records. */
static const struct
{
	const char *name;
	const char *label;
}			classes[PAQ_NCLASSES] =
{
	[PAQ_CLASS_DDL] = {"DDL", "DDL"},
	[PAQ_CLASS_FUNCTION] = {"FUNCTION", "FUNCTION"},
	[PAQ_CLASS_MISC] = {"MISC", "MISC"},
	[PAQ_CLASS_READ] = {"READ", "READ"},
	[PAQ_CLASS_ROLE] = {"ROLE", "ROLE"},
	[PAQ_CLASS_WRITE] = {"WRITE", "WRITE"},
	[PAQ_CLASS_MISC_SET] = {"MISC_SET", "MISC"},
	[PAQ_CLASS_ERROR] = {"ERROR", "ERROR"},
	[PAQ_CLASS_CONNECT] = {"CONNECT", "CONNECT"},
	[PAQ_CLASS_CONFIG] = {"CONFIG", "CONFIG"},
	[PAQ_CLASS_SET_ROLE] = {"SET_ROLE", "MISC"},
};

/* Name by which settings select the class; "???" if there is no such class. */
const char *
paq_class_name(PaqClass c)
{
	return paq_is_class(c) ? classes[c].name : "???";
}

/* Name that records show for the class; "???" if there is no such class. */
const char *
paq_class_label(PaqClass c)
{
	return paq_is_class(c) ? classes[c].label : "???";
}

/*
 * Bits of the class, or group of classes (ALL, NONE), called name in any
 * case.  As in pgaudit, MISC stands for MISC_SET too, and both do for SET_ROLE.
 * Returns false, *bits untouched, if there is none.
 */
bool
paq_class_lookup(const char *name, uint32 *bits)
{
	if (pg_strcasecmp(name, "ALL") == 0)
	{
		*bits = PAQ_CLASSES_ALL;
		return true;
	}
	if (pg_strcasecmp(name, "NONE") == 0)
	{
		*bits = PAQ_CLASSES_NONE;
		return true;
	}
	for (int c = PAQ_FIRST_CLASS; c < PAQ_NCLASSES; c++)
	{
		if (pg_strcasecmp(name, classes[c].name) == 0)
		{
			*bits = PAQ_CLASS_BIT(c);
			if (c == PAQ_CLASS_MISC)
				*bits |= PAQ_CLASS_BIT(PAQ_CLASS_MISC_SET);
			if (c == PAQ_CLASS_MISC || c == PAQ_CLASS_MISC_SET)
				*bits |= PAQ_CLASS_BIT(PAQ_CLASS_SET_ROLE);
			return true;
		}
	}
	return false;
}

const PaqTrailFieldInfo paq_trail_fields[PAQ_TRAIL_NFIELDS] = {
#define PAQ_TRAIL_FIELD(part, id, json, column, type, sql_type, source, what) \
	[PAQ_TRAIL_##id] = {json, "\"" json "\":", column, PAQ_JSON_##type, sql_type, what},
#define PAQ_TRAIL_MARK(id, json, column, flag, what) \
	[PAQ_TRAIL_##id] = {json, "\"" json "\":", column, PAQ_JSON_MARK, "boolean", what},
#define PAQ_TRAIL_EXTRA(id, json, type, what) \
	[PAQ_TRAIL_##id] = {json, "\"" json "\":", NULL, PAQ_JSON_##type, NULL, what},
#define PAQ_TRAIL_COLUMN(id, column, sql_type, what) \
	[PAQ_TRAIL_##id] = {NULL, NULL, column, PAQ_JSON_NONE, sql_type, what},
#include "record/fieldlist.h"
};

/* A number above 0 that this process has not given before */
uint64
paq_new_generation(void)
{
	static uint64 last = 0;

	return ++last;
}
