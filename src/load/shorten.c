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
 * long; no character or escape is cut in two.  A character of an encoding other than
 * UTF-8 is several escapes, and which encoding that is the end of the line tells: so
 * what is left of one at the end of a string goes when the line has been read.  Takes
 * the line in pieces of any size, and has no more of it in memory than the result.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "load/load_internal.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

#define MAX_TEXT	(64 * 1024)
#define MAX_ARRAY	(1024 * 1024)

/* More strings than that are not cut in any line that the worker writes. */
#define MAX_CUTS	64

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

/* Where in "kept" the strings are that have been cut */
static struct
{
	int			start;
	int			end;
}			cuts[MAX_CUTS];
static int	ncuts;

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
	ncuts = 0;
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

/* The string being read goes on, but not in what is kept. */
static void
note_cut(void)
{
	if (!keep_element || kept.len >= PAQ_MAX_LINE || ncuts == MAX_CUTS)
		return;
	cuts[ncuts].start = kept.len - string_kept;
	cuts[ncuts].end = kept.len;
	ncuts++;
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
		{
			const bool	fits = string_kept < MAX_TEXT;

			if (keep_character && !fits)
				note_cut();
			keep_character = fits;
		}
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
			in_string = keep_character = true;
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

/*
 * Size of the byte of a text at p, in a string of an encoding whose bytes beyond
 * ASCII are escapes.
 */
static int
byte_size(const char *p)
{
	if (*p != '\\')
		return 1;
	return p[1] == 'u' ? 6 : 2;
}

/*
 * Take from the string what is left of a character at its end.  start and end are
 * in "kept".
 */
static void
trim(int start, int end, int encoding)
{
	char	   *text = palloc(end - start + 1);
	int			len = 0;
	int			whole;
	int			p = start;

	for (; p < end; p += byte_size(kept.data + p))
	{
		const unsigned char byte = paq_escaped_byte(kept.data + p, kept.data + end);

		/* Which one it is does not matter if it is ASCII. */
		text[len++] = byte != 0 ? byte : 'x';
	}
	text[len] = '\0';
	whole = pg_encoding_mbcliplen(encoding, text, len, len);
	pfree(text);
	for (p = start; whole > 0; whole--)
		p += byte_size(kept.data + p);
	memmove(kept.data + p, kept.data + end, kept.len - end + 1);
	kept.len -= end - p;
}

/* The line; valid until the next one begins. */
const char *
paq_shorten_end(Size *len)
{
	Size		value;
	const int	encoding = paq_line_encoding(kept.data, kept.len, &value);

	if (encoding >= 0 && encoding != PG_UTF8 &&
		pg_encoding_max_length(encoding) > 1)
		while (ncuts > 0)
		{
			/* from the last one on, which moves none of the others */
			ncuts--;
			trim(cuts[ncuts].start, cuts[ncuts].end, encoding);
		}
	*len = kept.len;
	return kept.data;
}
