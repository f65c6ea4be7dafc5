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

typedef struct PaqJsonText
{
	PaqBuffer  *buf;
	bool		utf8;			/* pass valid UTF-8 through */
	bool		raw;			/* some byte that is not ASCII was written as
								 * \u00xx */
} PaqJsonText;

/* Append a field's name; every field but the first has a comma before it. */
#define PAQ_JSON_NAME(buf, name)	PAQ_PUT_LITERAL(buf, ",\"" name "\":")

static inline void
paq_json_null(PaqBuffer *buf)
{
	PAQ_PUT_LITERAL(buf, "null");
}

/* A string that needs no escaping */
static inline void
paq_json_plain(PaqBuffer *buf, const char *data, Size len)
{
	paq_buffer_putc(buf, '"');
	paq_put(buf, data, len);
	paq_buffer_putc(buf, '"');
}

/* The same, or null */
static inline void
paq_json_word(PaqBuffer *buf, const char *word)
{
	if (word == NULL)
		paq_json_null(buf);
	else
		paq_json_plain(buf, word, strlen(word));
}

static inline void
paq_json_number(PaqBuffer *buf, int64 value, bool known)
{
	if (known)
		paq_buffer_int(buf, value);
	else
		paq_json_null(buf);
}

static inline void
paq_json_time(PaqBuffer *buf, int64 timestamp)
{
	char		text[PAQ_TIME_TEXT];

	if (timestamp == 0)
		paq_json_null(buf);
	else
		paq_json_plain(buf, text, paq_time_iso(text, paq_time_split(timestamp)));
}

/* json_text.c */
extern void paq_json_text_begin(PaqJsonText *state, PaqBuffer *buf,
								int encoding);
extern void paq_json_text_string(PaqJsonText *state, const char *data,
								 Size len);
extern void paq_json_text_field(PaqJsonText *state, PaqText text);

/* json_session.c */
extern void paq_json_session(PaqJsonText *text, const PaqRecord *record);

#endif							/* PAQ_JSON_TEXT_H */
