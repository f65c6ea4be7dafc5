/*-------------------------------------------------------------------------
 *
 * line.c
 *		Lines of format json become fields, parts become records, and records are
 *		shortened.
 *
 * An input's first byte is the format that it is shortened in, and how long the pieces
 * are in which it comes.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include "trail/line.h"
#include "trail/part.h"
#include "trail/shorten.h"

/* Longest record that parts are put together to, in bytes */
#define JOINED_MAX	4096

static void
read_value(const PaqValue *value, const char *line, Size len)
{
	const char *next = NULL;
	PaqValue	name;
	PaqValue	element;
	int64		number;

	/* Anything may be asked of a value of any kind. */
	if (value->kind <= PAQ_VALUE_NULL)
	{
		must(!paq_line_number(value, &number) && !paq_line_time(value, &number));
		must(!paq_line_element(value, &next, &element));
		must(!paq_line_member(value, &next, &name, &element));
		return;
	}
	must(value->data >= line && value->len <= len &&
		 (Size) (value->data - line) <= len - value->len);
	(void) paq_line_number(value, &number);
	(void) paq_line_time(value, &number);
	switch (value->kind)
	{
		case PAQ_VALUE_STRING:
			for (int bytes = 0; bytes < 2; bytes++)
			{
				char	   *text = malloc(value->len);

				must(paq_line_unescape(value->data, value->len, bytes, text) <= value->len);
				free(text);
			}
			break;
		case PAQ_VALUE_ARRAY:
			while (paq_line_element(value, &next, &element))
				read_value(&element, line, len);
			break;
		case PAQ_VALUE_OBJECT:
			while (paq_line_member(value, &next, &name, &element))
			{
				read_value(&name, line, len);
				read_value(&element, line, len);
			}
			break;
		default:
			break;
	}
}

static void
read_line(PaqJoiner *joiner, const char *data, Size len)
{
	char	   *line = exact_copy(data, len);
	PaqLine		parsed;
	PaqPartInfo info;
	PaqJoinResult joined;

	/* What a field that is absent has is left from something else: it points nowhere. */
	memset(&parsed, 0x3e, sizeof(parsed));
	if (paq_line_parse(line, len, &parsed))
	{
		for (int field = 0; field < PAQ_TRAIL_NFIELDS; field++)
			read_value(&parsed.value[field], line, len);
		if (paq_part_info(&parsed, &info))
			must(info.number >= 1 && info.number <= info.count);
		joined = paq_join_line(joiner, line, len, &parsed, JOINED_MAX);
		if (joined == PAQ_JOIN_BROKEN || joined == PAQ_JOIN_TOO_LONG)
		{
			/* A reader gives what is kept, and asks again. */
			paq_join_forget(joiner);
			joined = paq_join_line(joiner, line, len, &parsed, JOINED_MAX);
			must(joined == PAQ_JOIN_NONE || joined == PAQ_JOIN_MORE);
		}
		if (joined == PAQ_JOIN_DONE)
		{
			PaqLine		whole;

			(void) paq_line_parse(joiner->joined.data, joiner->joined.len, &whole);
			paq_join_forget(joiner);
		}
	}
	free(line);
}

static void
read_lines(const char *data, Size len)
{
	const char *end = data + len;
	PaqJoiner	joiner = {0};

	while (data < end)
	{
		const char *newline = memchr(data, '\n', end - data);

		/* a reader hands out lines with their newlines */
		newline = newline ? newline + 1 : end;
		read_line(&joiner, data, newline - data);
		data = newline;
	}
	paq_join_end(&joiner);
}

/* What is left does not depend on the pieces in which the record comes. */
static void
shorten(PaqShortFormat format, const char *data, Size len, Size piece)
{
	PaqShortener whole = {0};
	PaqShortener pieces = {0};

	paq_shorten_begin(&whole, format);
	paq_shorten_add(&whole, data, len);
	paq_shorten_end(&whole);
	paq_shorten_begin(&pieces, format);
	for (Size at = 0; at < len; at += piece)
	{
		char	   *copy = exact_copy(data + at, Min(piece, len - at));

		paq_shorten_add(&pieces, copy, Min(piece, len - at));
		free(copy);
	}
	paq_shorten_end(&pieces);
	must(whole.kept.len <= PAQ_SHORT_MAX);
	must(whole.kept.len == pieces.kept.len &&
		 memcmp(whole.kept.data, pieces.kept.data, whole.kept.len) == 0);
	if (format == PAQ_SHORT_JSON)
	{
		PaqLine		line;
		char	   *copy = exact_copy(data, len);

		/* what was a record still is one */
		if (paq_line_parse(copy, len, &line))
			must(paq_line_parse(whole.kept.data, whole.kept.len, &line));
		free(copy);
	}
	pfree(whole.kept.data);
	pfree(pieces.kept.data);
}

void
fuzz_line(const char *data, Size len)
{
	if (len < 1)
		return;
	read_lines(data + 1, len - 1);
	shorten((unsigned char) data[0] % 3, data + 1, len - 1, 1 + (unsigned char) data[0] / 3);
}
