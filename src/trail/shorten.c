/*-------------------------------------------------------------------------
 *
 * shorten.c
 *		Records of a trail that are longer than a reader can hold, see shorten.h.
 *
 * Each string is cut after MAX_TEXT bytes, and an array or object that is a field of a line of
 * json behind the member that passes MAX_MEMBERS; all else stays as it is.  So all fields are
 * filled, however long a text somebody sends.  No more of a record is in memory than the result.
 *
 * Guarantees: what is left is a record if that was one; no character or escape is cut in two.
 * (In csvlog, which does not tell its encoding, that is so of UTF-8 and encodings of single
 * bytes.)
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "trail/line.h"
#include "trail/shorten.h"

/* What is kept of the texts of a record, in bytes */
#ifndef MAX_TEXT
#define MAX_TEXT	(64 * 1024)
#endif
#ifndef MAX_MEMBERS
#define MAX_MEMBERS	(1024 * 1024)
#endif

/* Bytes of the longest character of UTF-8 */
#define MAX_CHARACTER	4

/* The column of csvlog that has marks, from 0; and more of them than there are */
#define COLUMN_HINT	15
#define MAX_COLUMNS	64

#define JSON_MARK		",\"cut\":true"
#define CSVLOG_MARK		"cut"
#define PGAUDIT_MARK	" <cut>"

/* Space for the longest of them, and for the quotes of a column */
#define MARK_SPACE	16

void
paq_shorten_begin(PaqShortener *shortener, PaqShortFormat format)
{
	StringInfoData kept = shortener->kept;

	if (kept.data == NULL)
		initStringInfo(&kept);
	memset(shortener, 0, sizeof(*shortener));
	resetStringInfo(&kept);
	shortener->kept = kept;
	shortener->format = format;
}

static inline void
keep_byte(PaqShortener *shortener, char c)
{
	if (shortener->kept.len < PAQ_SHORT_MAX - MARK_SPACE)
		appendStringInfoCharMacro(&shortener->kept, c);
}

/*
 * Returns true if a text of which so many bytes are kept is long enough, and may be cut before
 * this byte: not within a character of UTF-8.  In other encodings, and in what is no record, any
 * number of bytes may look like the rest of one.
 */
static inline bool
may_cut_before(Size kept, char c)
{
	return kept >= MAX_TEXT && ((c & 0xC0) != 0x80 || kept >= MAX_TEXT + MAX_CHARACTER);
}

/* Insert a mark before the last "behind" bytes of what is kept. */
static void
insert_mark(PaqShortener *shortener, const char *mark, int behind)
{
	StringInfo	kept = &shortener->kept;
	const int	len = strlen(mark);

	appendStringInfoString(kept, mark);
	memmove(kept->data + kept->len - behind, kept->data + kept->len - len - behind, behind);
	memcpy(kept->data + kept->len - behind - len, mark, len);
}

/* ----------
 * json
 * ----------
 */

static void
keep_json(PaqShortener *shortener, char c)
{
	if (shortener->skip_member)
		return;
	keep_byte(shortener, c);
	if (shortener->depth > 1)
		shortener->member_kept++;
}

/*
 * Go on in an escape.  *surrogate counts how much of "\ud8" to "\udb" there was, which begins the
 * first half of a character: the second half is another escape.
 */
static void
add_to_escape(PaqShortener *shortener, char c)
{
	const int	digit = 5 - shortener->in_escape;

	shortener->in_escape--;
	if (c == 'u' && shortener->in_escape == 0)
	{
		shortener->in_escape = 4;
		shortener->surrogate = 0;
	}
	else if ((digit == 1 && (c == 'd' || c == 'D')) ||
			 (digit == 2 && shortener->surrogate == 1 && strchr("89abAB", c) != NULL && c != '\0'))
		shortener->surrogate = digit;
}

static void
add_to_json_string(PaqShortener *shortener, char c)
{
	if (shortener->in_escape > 0)
		add_to_escape(shortener, c);
	else if (c == '"')
	{
		shortener->in_string = false;
		keep_json(shortener, c);
		return;
	}
	else if (may_cut_before(shortener->string_kept, c) && shortener->surrogate != 2)
	{
		shortener->skipping = true;
		return;
	}
	else
	{
		shortener->surrogate = 0;
		if (c == '\\')
			shortener->in_escape = 1;
	}
	keep_json(shortener, c);
	shortener->string_kept++;
}

static void
add_outside_json_string(PaqShortener *shortener, char c)
{
	switch (c)
	{
		case '"':
			shortener->in_string = true;
			shortener->skipping = false;
			shortener->string_kept = 0;
			shortener->surrogate = 0;
			break;
		case '[':
		case '{':
			shortener->depth++;
			break;
		case ']':
		case '}':
			if (--shortener->depth == 1)
			{
				shortener->skip_member = false;
				shortener->member_kept = 0;
			}
			break;
		case ',':
			if (shortener->depth == 2 && shortener->member_kept > MAX_MEMBERS)
				shortener->skip_member = true;
			break;
	}
	keep_json(shortener, c);
}

/*
 * Find the quote that ends the string, behind what is kept of it.  Returns how many bytes were
 * looked at; the backslash that ends them is looked at again with what comes next.
 */
static Size
skip_json_string(PaqShortener *shortener, const char *data, Size len)
{
	Size		i = 0;

	if (shortener->in_escape > 0)
	{
		shortener->in_escape = 0;
		i = 1;
	}
	while (i < len && data[i] != '"')
	{
		if (data[i] == '\\' && ++i == len)
		{
			shortener->in_escape = 1;
			return i;
		}
		i++;
	}
	if (i < len)
		shortener->skipping = false;
	return i;
}

static void
add_json(PaqShortener *shortener, const char *data, Size len)
{
	Size		i = 0;

	while (i < len)
	{
		if (shortener->skipping)
			i += skip_json_string(shortener, data + i, len - i);
		else if (shortener->in_string)
		{
			add_to_json_string(shortener, data[i]);

			/* the first byte that is skipped may be a backslash */
			if (!shortener->skipping)
				i++;
		}
		else
			add_outside_json_string(shortener, data[i++]);
	}
}

/* What is no line of a trail stays without a mark: it is no record anyway. */
static void
end_json(PaqShortener *shortener)
{
	StringInfo	kept = &shortener->kept;
	PaqLine		line;
	const char *brace;

	if (!paq_line_parse(kept->data, kept->len, &line) ||
		line.value[PAQ_TRAIL_CUT].kind != PAQ_VALUE_ABSENT)
		return;
	for (brace = kept->data + kept->len - 1; *brace != '}'; brace--)
		;
	insert_mark(shortener, JSON_MARK, kept->data + kept->len - brace);
}

/* ----------
 * csvlog
 * ----------
 */

/* A column has come to its end. */
static void
end_column(PaqShortener *shortener)
{
	const int	start = shortener->column_start;

	if (shortener->skipping)
		keep_byte(shortener, '"');
	shortener->skipping = false;
	if (shortener->column != COLUMN_HINT)
		return;
	if (shortener->kept.len == start)
		appendStringInfoString(&shortener->kept, "\"" CSVLOG_MARK "\"");
	else if (shortener->kept.data[shortener->kept.len - 1] == '"')
		insert_mark(shortener, "," CSVLOG_MARK, 1);
}

static void
add_csvlog_byte(PaqShortener *shortener, char c)
{
	const bool	in_string = shortener->in_string;
	const bool	is_full = shortener->string_kept >= MAX_TEXT;

	if (shortener->column == MAX_COLUMNS)
		return;
	if (c == '"')
		shortener->in_string = !in_string;
	if (c == ',' && !in_string)
	{
		end_column(shortener);
		keep_byte(shortener, c);
		shortener->column++;
		shortener->column_start = shortener->kept.len;
		shortener->string_kept = 0;
		return;
	}

	/* the second quote of two goes with the first one */
	if (in_string && may_cut_before(shortener->string_kept, c))
		shortener->skipping = true;
	if (shortener->skipping || (is_full && !in_string && c != '"'))
		return;
	keep_byte(shortener, c);
	shortener->string_kept++;
}

/* ----------
 * All formats
 * ----------
 */

void
paq_shorten_add(PaqShortener *shortener, const char *data, Size len)
{
	switch (shortener->format)
	{
		case PAQ_SHORT_JSON:
			add_json(shortener, data, len);
			break;
		case PAQ_SHORT_CSVLOG:
			for (Size i = 0; i < len; i++)
				add_csvlog_byte(shortener, data[i]);
			break;
		case PAQ_SHORT_PGAUDIT:
			for (Size i = 0; i < len && !shortener->skipping; i++)
			{
				shortener->skipping = may_cut_before(shortener->kept.len, data[i]);
				if (!shortener->skipping)
					keep_byte(shortener, data[i]);
			}
			break;
	}
}

void
paq_shorten_end(PaqShortener *shortener)
{
	switch (shortener->format)
	{
		case PAQ_SHORT_JSON:
			end_json(shortener);
			break;
		case PAQ_SHORT_CSVLOG:
			end_column(shortener);
			break;
		case PAQ_SHORT_PGAUDIT:
			appendStringInfoString(&shortener->kept, PGAUDIT_MARK);
			break;
	}
}
