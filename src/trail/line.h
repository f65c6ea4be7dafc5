/*-------------------------------------------------------------------------
 *
 * line.h
 *		A line of a trail in format json becomes its fields.
 *
 * A line is one JSON object.  Whoever reads it gets for each field of
 * record/fieldlist.h the value as it is written there, and converts what is needed
 * of it by the other functions: most of a record is not looked at by most readers.
 *
 * Strict: what is no JSON, or not of the types that the list has, or has a field
 * twice, is not taken for a line of the trail.  Fields that the list does not have are
 * left out, for later versions may have more.
 *
 *	line.c			fields and their values
 *	line_time.c		times
 *
 * For anybody who has such lines, within a server or not.  Nothing here allocates or
 * raises.  One thread of a process may parse lines.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_LINE_H
#define PAQ_LINE_H

#include "c.h"

#include "record/record.h"

typedef enum PaqValueKind
{
	PAQ_VALUE_ABSENT,			/* the line does not have the field */
	PAQ_VALUE_NULL,
	PAQ_VALUE_STRING,
	PAQ_VALUE_NUMBER,
	PAQ_VALUE_ARRAY,			/* of strings and nulls */
	PAQ_VALUE_OBJECT,			/* of strings, numbers and nulls */
	PAQ_VALUE_BOOLEAN
} PaqValueKind;

/* Points into the line. */
typedef struct PaqValue
{
	const char *data;			/* of a string: what is between its quotes; of
								 * an array or object: between its brackets */
	Size		len;			/* bytes */
	PaqValueKind kind;
	bool		escaped;		/* a string that has a backslash */
} PaqValue;

typedef struct PaqLine
{
	PaqValue	value[PAQ_TRAIL_NFIELDS];	/* by PaqTrailField */
} PaqLine;

/* Does the line have a value for the field that is not null? */
static inline bool
paq_line_has(const PaqLine *line, PaqTrailField field)
{
	return line->value[field].kind > PAQ_VALUE_NULL;
}

/*
 * The fields of a line of len bytes, with or without a newline at its end.  False if
 * it is no line of a trail; *parsed is undefined then.
 */
extern bool paq_line_parse(const char *line, Size len, PaqLine *parsed);

/*
 * Decode a string's value into dst, which has space for len bytes; returns the length.
 * With bytes - the line has a textEncoding - escapes from \u0080 to \u00ff are single
 * bytes of the text, else all of it becomes UTF-8.
 */
extern Size paq_line_unescape(const char *raw, Size len, bool bytes, char *dst);

/* The next element of an array; *next is NULL at first.  False if there is none. */
extern bool paq_line_element(const PaqValue *array, const char **next,
							 PaqValue *element);

/* The same for an object */
extern bool paq_line_member(const PaqValue *object, const char **next,
							PaqValue *name, PaqValue *value);

/* A number; false if it is none, or no 64-bit integer. */
extern bool paq_line_number(const PaqValue *value, int64 *number);

/*
 * A time as ISO 8601 has it, with any number of digits of a second's fraction: microseconds
 * since 2000-01-01 UTC, and the offset from UTC in seconds, east is positive.
 * *has_offset: false if the text has none; then *timestamp is as if it were UTC.
 * What separates date and time may be a space; without a time it is midnight.
 */
extern bool paq_time_parse(const char *text, Size len, int64 *timestamp,
						   int *offset, bool *has_offset);

/* The time of a field of type TIME; false if it is null or no time. */
extern bool paq_line_time(const PaqValue *value, int64 *timestamp);

#endif							/* PAQ_LINE_H */
