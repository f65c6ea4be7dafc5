/*-------------------------------------------------------------------------
 *
 * text.c
 *		Texts of a line of the trail in the database's encoding.
 *
 * Of a text that is not UTF-8 the worker writes each byte beyond ASCII as \u00xx,
 * and names the encoding (format/json.c).  In a database such a text can be
 * converted.  If one of a line cannot be, all stay as the worker wrote them.  A
 * character that the database's encoding does not have is shown as an escape.
 *
 * Guarantees: what is made of a line is valid in the database's encoding; no character
 * is cut in two.
 *
 * To be called in a transaction: the conversions are in a catalog.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "catalog/namespace.h"
#include "common/string.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "read/read.h"
#include "trail/hex.h"
#include "utils/json.h"

/* Space for a piece of text that has been converted, in bytes */
#define PIECE_SIZE	4096

/* The byte beyond ASCII whose escape begins at p; 0 if none does. */
static unsigned char
escaped_byte(const char *p, const char *end)
{
	int			high;
	int			low;

	if (end - p < 6 || memcmp(p, "\\u00", 4) != 0)
		return 0;
	high = paq_hex_digit(p[4]);
	low = paq_hex_digit(p[5]);
	return high >= 8 && low >= 0 ? high << 4 | low : 0;
}

/*
 * Copy what is between the quotes of a string; escapes of bytes beyond ASCII become texts
 * that look like escapes.
 */
static void
keep_escapes(StringInfo dst, const PaqValue *string)
{
	const char *p = string->data;
	const char *end = p + string->len;

	while (p < end)
	{
		const unsigned char byte = escaped_byte(p, end);

		if (byte == 0)
		{
			/* Whole escapes: the second backslash of two does not begin one. */
			const Size	n = *p == '\\' ? Min(2, end - p) : 1;

			appendBinaryStringInfo(dst, p, n);
			p += n;
			continue;
		}
		appendStringInfo(dst, "\\\\u%04x", byte);
		p += 6;
	}
}

/*
 * The text converted; NULL if that cannot be done.  But in place of a character
 * of UTF-8 that the other encoding does not have there is text that looks like
 * \uxxxx.
 */
static char *
convert(char *text, int from, int to)
{
	Oid			proc = FindDefaultConversionProc(from, to);
	const char *end = text + strlen(text);
	unsigned char piece[PIECE_SIZE];
	StringInfoData dst;

	initStringInfo(&dst);
	while (text < end)
	{
		int			n = 0;

		CHECK_FOR_INTERRUPTS();
		if (OidIsValid(proc))
		{
			n = pg_do_encoding_conversion_buf(proc, from, to, (unsigned char *) text,
											  end - text, piece, sizeof(piece), true);
			appendStringInfoString(&dst, (char *) piece);
		}
		if (n == 0 && from != PG_UTF8)
			return NULL;
		if (n == 0)
		{
			n = pg_utf_mblen((unsigned char *) text);
			if (n == 1)
				appendStringInfoChar(&dst, *text);
			else
				appendStringInfo(&dst, "\\u%04x", utf8_to_unicode((unsigned char *) text));
		}
		text += n;
	}
	return dst.data;
}

/* A text of that encoding in the database's; NULL if it cannot be. */
static char *
to_database(char *text, int encoding, bool shortened)
{
	const int	database = GetDatabaseEncoding();

	if (pg_is_ascii(text))
		return text;
	if (encoding != PG_UTF8)
	{
		int			len = strlen(text);

		/* An escape was a whole character when the line was shortened. */
		if (shortened)
			len = pg_encoding_mbcliplen(encoding, text, len, len);
		text[len] = '\0';
		text = pg_verify_mbstr(encoding, text, len, true) ?
			convert(text, encoding, PG_UTF8) : NULL;
	}
	if (text == NULL || database == PG_UTF8 || database == PG_SQL_ASCII)
		return text;
	return convert(text, PG_UTF8, database);
}

/* A string whose bytes beyond ASCII, where they are escapes, are of that encoding */
static char *
string_text(const PaqValue *value, int encoding, bool shortened)
{
	const char *raw = value->data;
	Size		len = value->len;
	char	   *text;

	if (value->escaped && encoding == PG_UTF8 && GetDatabaseEncoding() != PG_UTF8)
	{
		StringInfoData kept;

		initStringInfo(&kept);
		keep_escapes(&kept, value);
		raw = kept.data;
		len = kept.len;
	}
	text = palloc(len + 1);
	len = paq_line_unescape(raw, len, encoding != PG_UTF8, text);
	text[len] = '\0';

	/* No text of PostgreSQL's has a zero byte. */
	return strlen(text) == len ? to_database(text, encoding, shortened) : NULL;
}

/* An array is made anew, as its elements may be converted. */
static char *
array_text(const PaqValue *array, int encoding, bool shortened)
{
	const char *next = NULL;
	PaqValue	element;
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoChar(&text, '[');
	while (paq_line_element(array, &next, &element))
	{
		char	   *string = NULL;

		if (element.kind == PAQ_VALUE_STRING &&
			(string = string_text(&element, encoding, shortened)) == NULL)
			return NULL;
		if (text.len > 1)
			appendStringInfoChar(&text, ',');
		if (string == NULL)
			appendStringInfoString(&text, "null");
		else
			escape_json(&text, string);
	}
	appendStringInfoChar(&text, ']');
	return text.data;
}

/* So is an object. */
static char *
object_text(const PaqValue *object, int encoding, bool shortened)
{
	const char *next = NULL;
	PaqValue	name;
	PaqValue	value;
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoChar(&text, '{');
	while (paq_line_member(object, &next, &name, &value))
	{
		char	   *name_text = string_text(&name, encoding, shortened);
		char	   *string = NULL;

		if (name_text == NULL ||
			(value.kind == PAQ_VALUE_STRING &&
			 (string = string_text(&value, encoding, shortened)) == NULL))
			return NULL;
		if (text.len > 1)
			appendStringInfoChar(&text, ',');
		escape_json(&text, name_text);
		appendStringInfoChar(&text, ':');
		if (string == NULL)
			appendStringInfoString(&text, "null");
		else
			escape_json(&text, string);
	}
	appendStringInfoChar(&text, '}');
	return text.data;
}

/* A value's text; NULL if it is null, or cannot be had. */
static char *
value_text(const PaqValue *value, int encoding, bool shortened)
{
	switch (value->kind)
	{
		case PAQ_VALUE_ABSENT:
		case PAQ_VALUE_NULL:
			break;
		case PAQ_VALUE_STRING:
			return string_text(value, encoding, shortened);
		case PAQ_VALUE_ARRAY:
			return array_text(value, encoding, shortened);
		case PAQ_VALUE_OBJECT:
			return object_text(value, encoding, shortened);
		case PAQ_VALUE_NUMBER:
		case PAQ_VALUE_BOOLEAN:
			return pnstrdup(value->data, value->len);
	}
	return NULL;
}

const char *
paq_value_text(const PaqValue *value)
{
	return value_text(value, PG_UTF8, false);
}

/* The texts of all values, as they are of that encoding; false if one is not. */
static bool
texts_in(const PaqLine *line, int encoding, bool shortened, const char **texts)
{
	for (int i = 0; i < PAQ_TRAIL_NFIELDS; i++)
	{
		texts[i] = value_text(&line->value[i], encoding, shortened);
		if (texts[i] == NULL && paq_line_has(line, i))
			return false;
	}
	return true;
}

bool
paq_line_texts(const PaqLine *line, bool shortened, const char **texts)
{
	const char *name = value_text(&line->value[PAQ_TRAIL_TEXT_ENCODING], PG_UTF8, false);
	const int	encoding = name == NULL ? PG_UTF8 : pg_char_to_encoding(name);

	/* In UTF8 and SQL_ASCII some characters are not escapes, but themselves. */
	if (PG_VALID_BE_ENCODING(encoding) && encoding != PG_UTF8 &&
		encoding != PG_SQL_ASCII && texts_in(line, encoding, shortened, texts))
	{
		texts[PAQ_TRAIL_TEXT_ENCODING] = NULL;
		return true;
	}
	return texts_in(line, PG_UTF8, shortened, texts);
}

const char *
paq_host_address(const char *host)
{
	unsigned char address[sizeof(struct in6_addr)];
	char	   *zone;
	char	   *copy;

	if (host == NULL || host[0] == '[')
		return NULL;
	copy = pstrdup(host);
	zone = strchr(copy, '%');
	if (zone != NULL)
		*zone = '\0';
	return inet_pton(AF_INET, copy, address) == 1 ||
		inet_pton(AF_INET6, copy, address) == 1 ? copy : NULL;
}
