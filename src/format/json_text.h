/*-------------------------------------------------------------------------
 *
 * json_text.h
 *		The files of the JSON format among themselves: json.c,
 *		json_session.c, json_text.c.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_JSON_TEXT_H
#define PAQ_JSON_TEXT_H

#include "postgres.h"

#include "format/format_internal.h"

/*
 * A record is written through a plain pointer: the functions here get where to
 * write, and return where the next byte goes.  They need not look whether there
 * is room, because those which append what can be of any length - a text, or the
 * fields of the session - leave PAQ_FORMAT_ROOM bytes behind it.  Whatever is
 * written before the next one of these must fit in there.
 */

typedef struct PaqJsonText
{
	PaqBuffer  *buf;
	bool		utf8;			/* pass valid UTF-8 through */
	bool		raw;			/* some byte that is not ASCII was written as
								 * \u00xx */
} PaqJsonText;

/* Append a C string; the compiler knows how long a literal is. */
static inline char *
paq_json_put(char *p, const char *str)
{
	Size		len = strlen(str);

	memcpy(p, str, len);
	return p + len;
}

/* Append a field's name; every field but the first has a comma before it. */
#define PAQ_JSON_NAME(p, name)	paq_json_put(p, ",\"" name "\":")

static inline char *
paq_json_null(char *p)
{
	return paq_json_put(p, "null");
}

/* A string that needs no escaping, or null */
static inline char *
paq_json_word(char *p, const char *word)
{
	if (word == NULL)
		return paq_json_null(p);
	*p++ = '"';
	p = paq_json_put(p, word);
	*p++ = '"';
	return p;
}

static inline char *
paq_json_number(char *p, int64 value, bool known)
{
	return known ? p + paq_int_text(p, value) : paq_json_null(p);
}

static inline char *
paq_json_time(char *p, int64 timestamp)
{
	if (timestamp == 0)
		return paq_json_null(p);
	*p++ = '"';
	p += paq_time_iso(p, timestamp);
	*p++ = '"';
	return p;
}

/* json_text.c */
extern char *paq_json_text_begin(PaqJsonText *text, PaqBuffer *buf,
								 int encoding);
extern char *paq_json_text_append(PaqJsonText *text, char *p,
								  const char *data, Size len);
extern void paq_json_text_end(PaqJsonText *text, char *p);
extern char *paq_json_text_string(PaqJsonText *text, char *p,
								  const char *data, Size len);

/* Append a field: a string, or null. */
static inline char *
paq_json_text_field(PaqJsonText *text, char *p, PaqText field)
{
	if (field.data == NULL)
		return paq_json_null(p);
	return paq_json_text_string(text, p, field.data, field.len);
}

/* json_session.c */
extern char *paq_json_session(PaqJsonText *text, char *p,
							  const PaqRecord *record);

#endif							/* PAQ_JSON_TEXT_H */
