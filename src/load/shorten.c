/*-------------------------------------------------------------------------
 *
 * shorten.c
 *		A line of a json file that is too long for a row, without what makes it
 *		so.
 *
 * Of each string the first MAX_TEXT bytes stay, of an array the elements that
 * begin within MAX_ARRAY; all other fields stay as they are.  So all columns are
 * filled, however long a text somebody sends.
 *
 * Guarantees: the result is JSON if the line was, and at most PAQ_MAX_LINE bytes
 * long; no character or escape is cut in two, but a character of an encoding other
 * than UTF-8, which is several escapes, can be.  Takes the line in pieces of any
 * size, and has no more of it in memory than the result.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "load/load_internal.h"
#include "utils/memutils.h"

#define MAX_TEXT	(64 * 1024)
#define MAX_ARRAY	(1024 * 1024)

/* What is left of the line so far */
static StringInfoData kept;

/* Where in the line we are */
static bool in_string;
static int	in_escape;			/* bytes that an escape still has */
static int	depth;				/* of arrays */

/* Bytes of the string, and of the outermost array, that are kept */
static Size string_kept;
static Size array_kept;

/* Is the character being read kept, and the array's element? */
static bool keep_character;
static bool keep_element;

/* A new line begins. */
void
paq_shorten_begin(void)
{
	if (kept.data == NULL)
	{
		MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

		initStringInfo(&kept);
		MemoryContextSwitchTo(old_context);
	}
	resetStringInfo(&kept);
	in_string = false;
	in_escape = depth = 0;
	string_kept = array_kept = 0;
	keep_character = keep_element = true;
}

static void
keep(char c)
{
	if (!keep_element || kept.len >= PAQ_MAX_LINE)
		return;
	appendStringInfoCharMacro(&kept, c);
	if (depth > 0)
		array_kept++;
}

static void
add_to_string(char c)
{
	if (in_escape > 0)
	{
		in_escape--;
		if (c == 'u' && in_escape == 0)
			in_escape = 4;
	}
	else if (c == '"')
	{
		in_string = false;
		keep(c);
		return;
	}
	else
	{
		if (c == '\\')
			in_escape = 1;

		/* Another byte of a character goes with the first one. */
		if ((c & 0xC0) != 0x80)
			keep_character = string_kept < MAX_TEXT;
	}
	if (!keep_character)
		return;
	keep(c);
	string_kept++;
}

static void
add_outside_string(char c)
{
	switch (c)
	{
		case '"':
			in_string = true;
			string_kept = 0;
			break;
		case '[':
			depth++;
			break;
		case ']':
			if (--depth == 0)
			{
				keep_element = true;
				array_kept = 0;
			}
			break;
		case ',':
			if (depth > 0 && array_kept > MAX_ARRAY)
				keep_element = false;
			break;
	}
	keep(c);
}

/* The next piece of the line. */
void
paq_shorten_add(const char *data, Size len)
{
	for (Size i = 0; i < len; i++)
	{
		if (in_string)
			add_to_string(data[i]);
		else
			add_outside_string(data[i]);
	}
}

/* The line; valid until the next one begins. */
const char *
paq_shorten_end(Size *len)
{
	*len = kept.len;
	return kept.data;
}
