/*-------------------------------------------------------------------------
 *
 * json_text.h
 *		JSON strings, for json.c.
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

extern void paq_json_text_begin(PaqJsonText *state, PaqBuffer *buf,
								int encoding);
extern void paq_json_text_string(PaqJsonText *state, const char *data,
								 Size len);
extern void paq_json_text_field(PaqJsonText *state, PaqText text);

#endif							/* PAQ_JSON_TEXT_H */
