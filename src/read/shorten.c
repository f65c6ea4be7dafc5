/*-------------------------------------------------------------------------
 *
 * shorten.c
 *		Lines of the trail that are too long.
 *
 * Of a line longer than PAQ_MAX_LINE, each string is cut after MAX_TEXT bytes, and an
 * array behind the element that passes MAX_ARRAY; all other fields stay as they
 * are.  So all columns are filled, however long a text somebody sends.  The line is
 * taken in pieces of any size, and no more of it is in memory than the result.
 *
 * Guarantees: what is left is JSON if the line was; no character or escape is cut in two.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "read/read.h"

/* What is kept of the texts of a line that is too long, in bytes */
#define MAX_TEXT	(64 * 1024)
#define MAX_ARRAY	(1024 * 1024)

void
paq_shorten_begin(PaqShortener *shortener)
{
	StringInfoData kept = shortener->kept;

	if (kept.data == NULL)
		initStringInfo(&kept);
	memset(shortener, 0, sizeof(*shortener));
	resetStringInfo(&kept);
	shortener->kept = kept;
}

/* Is there still space for what is kept of the line? */
static bool
is_kept(const PaqShortener *shortener)
{
	return !shortener->skip_element && shortener->kept.len < PAQ_MAX_LINE;
}

static void
keep(PaqShortener *shortener, char c)
{
	if (!is_kept(shortener))
		return;
	appendStringInfoCharMacro(&shortener->kept, c);
	if (shortener->depth > 0)
		shortener->array_kept++;
}

static void
add_to_string(PaqShortener *shortener, char c)
{
	if (shortener->in_escape > 0)
	{
		shortener->in_escape--;
		if (c == 'u' && shortener->in_escape == 0)
			shortener->in_escape = 4;
	}
	else if (c == '"')
	{
		shortener->in_string = false;
		keep(shortener, c);
		return;
	}
	else
	{
		if (c == '\\')
			shortener->in_escape = 1;

		/* Another byte of a character goes with the first one. */
		if ((c & 0xC0) != 0x80)
			shortener->skip_character = shortener->string_kept >= MAX_TEXT;
	}
	if (shortener->skip_character)
		return;
	keep(shortener, c);
	shortener->string_kept++;
}

static void
add_outside_string(PaqShortener *shortener, char c)
{
	switch (c)
	{
		case '"':
			shortener->in_string = true;
			shortener->skip_character = false;
			shortener->string_kept = 0;
			break;
		case '[':
			shortener->depth++;
			break;
		case ']':
			if (--shortener->depth == 0)
			{
				shortener->skip_element = false;
				shortener->array_kept = 0;
			}
			break;
		case ',':
			if (shortener->depth > 0 && shortener->array_kept > MAX_ARRAY)
				shortener->skip_element = true;
			break;
	}
	keep(shortener, c);
}

void
paq_shorten_add(PaqShortener *shortener, const char *data, Size len)
{
	for (Size i = 0; i < len; i++)
	{
		if (shortener->in_string)
			add_to_string(shortener, data[i]);
		else
			add_outside_string(shortener, data[i]);
	}
}
