/*-------------------------------------------------------------------------
 *
 * text.c
 *		A line of a json file in the encoding of the audit database.
 *
 * The worker writes files without knowing how to convert between encodings: of
 * a text that is not UTF-8 it writes each byte beyond ASCII as \u00xx, and
 * names the encoding (format/json_text.c).  The loader is in a database, so it
 * can do better.  What cannot be converted stays as the worker wrote it; each
 * character that the database's encoding does not have is shown as an escape.
 *
 * Guarantees: the result is valid in the database's encoding, and JSON if the
 * line was.
 *
 * Must be called in a transaction, for the conversions are in a catalog.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "load/load_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "record/record.h"

/* As much is converted at once. */
#define PIECE_SIZE	4096

/*
 * The encoding that the line names; negative for none.  *value is where, in
 * the line, it does.
 */
int
paq_line_encoding(const char *line, Size len, Size *value)
{
	const char *key = paq_trail_fields[PAQ_TRAIL_TEXT_ENCODING].key;
	const Size	key_len = strlen(key);
	char		word[NAMEDATALEN];
	Size		start;
	Size		end;

	/* It is among the last fields, and the last text. */
	for (start = len; start >= key_len; start--)
		if (memcmp(line + start - key_len, key, key_len) == 0)
			break;
	if (start < key_len || start >= len || line[start] != '"')
		return -1;
	*value = start++;
	for (end = start; end < len && line[end] != '"'; end++)
		;
	if (end == len || end - start >= sizeof(word))
		return -1;
	memcpy(word, line + start, end - start);
	word[end - start] = '\0';
	return pg_char_to_encoding(word);
}

/* If an escape of a byte beyond ASCII begins at p, that byte; or else 0. */
unsigned char
paq_escaped_byte(const char *p, const char *end)
{
	static const char digits[] = "0123456789abcdef";
	const char *high;
	const char *low;

	if (end - p < 6 || memcmp(p, "\\u00", 4) != 0)
		return 0;
	high = memchr(digits + 8, p[4], 8);
	low = memchr(digits, p[5], 16);
	return high != NULL && low != NULL ?
		(high - digits) << 4 | (low - digits) : 0;
}

/*
 * Copy the line.  Escapes of bytes beyond ASCII become these bytes, or, where
 * JSON's parser would take them for characters, texts that look like escapes.
 */
static void
rewrite_escapes(StringInfo dst, const char *line, Size len, bool to_bytes)
{
	const char *end = line + len;
	const char *p = line;

	while (p < end)
	{
		unsigned char byte = paq_escaped_byte(p, end);

		if (byte == 0)
		{
			/* Whole escapes: the second backslash of two does not begin one. */
			Size		n = *p == '\\' ? Min(2, end - p) : 1;

			appendBinaryStringInfo(dst, p, n);
			p += n;
			continue;
		}
		if (to_bytes)
			appendStringInfoChar(dst, (char) byte);
		else
			appendStringInfo(dst, "\\\\u%04x", byte);
		p += 6;
	}
}

/* The text in UTF-8, *new_len bytes; NULL if that cannot be done. */
static const char *
to_utf8(const char *text, Size len, int encoding, Size *new_len)
{
	const Size	size = len * MAX_CONVERSION_GROWTH + 1;
	Oid			proc = FindDefaultConversionProc(encoding, PG_UTF8);
	char	   *dst;
	int			done;

	if (!OidIsValid(proc) || !pg_verify_mbstr(encoding, text, len, true))
		return NULL;
	dst = palloc(size);
	done = pg_do_encoding_conversion_buf(proc, encoding, PG_UTF8,
										 (unsigned char *) unconstify(char *, text),
										 len, (unsigned char *) dst, size, true);
	if (done != len)
		return NULL;
	*new_len = strlen(dst);
	return dst;
}

/* How many bytes of a text in UTF-8 to convert at once: whole characters */
static Size
piece_size(const char *text, Size len)
{
	if (len <= PIECE_SIZE)
		return len;
	for (len = PIECE_SIZE; (text[len] & 0xC0) == 0x80; len--)
		;
	return len;
}

/*
 * Append a piece of UTF-8 in the encoding, up to a character that this does not
 * have; returns how many bytes of the piece that is.
 */
static Size
convert_piece(StringInfo dst, const char *text, Size len, Oid proc, int encoding)
{
	unsigned char piece[PIECE_SIZE * MAX_CONVERSION_GROWTH + 1];
	Size		done = 0;

	if (OidIsValid(proc))
	{
		done = pg_do_encoding_conversion_buf(proc, PG_UTF8, encoding,
											 (unsigned char *) unconstify(char *, text),
											 len, piece, sizeof(piece), true);
		appendStringInfoString(dst, (char *) piece);
		return done;
	}
	while (done < len && (text[done] & 0x80) == 0)
		done++;
	appendBinaryStringInfo(dst, text, done);
	return done;
}

/*
 * If all texts of the line are in another encoding, convert them to UTF-8, and
 * say that no encoding need be named any more.  NULL if that cannot be done.
 */
static const char *
from_named(const char *line, Size *len)
{
	Size		value = 0;
	int			encoding = paq_line_encoding(line, *len, &value);
	StringInfoData raw;
	const char *end;
	const char *converted;
	Size		new_len;

	if (encoding < 0 || encoding == PG_UTF8 || encoding == PG_SQL_ASCII)
		return NULL;
	initStringInfo(&raw);
	rewrite_escapes(&raw, line, value, true);
	appendStringInfoString(&raw, "null");
	end = memchr(line + value + 1, '"', *len - value - 1);
	rewrite_escapes(&raw, end + 1, line + *len - end - 1, true);
	converted = to_utf8(raw.data, raw.len, encoding, &new_len);
	if (converted != NULL)
		*len = new_len;
	return converted;
}

/*
 * A line in UTF-8 in the database's encoding; *len is its length.  A character
 * that this does not have becomes text that looks like \uxxxx.
 */
static const char *
to_database(const char *line, Size *len)
{
	const int	encoding = GetDatabaseEncoding();
	Oid			proc = FindDefaultConversionProc(PG_UTF8, encoding);
	StringInfoData source;
	StringInfoData dst;
	const char *p;
	const char *end;

	initStringInfo(&source);
	rewrite_escapes(&source, line, *len, false);
	*len = source.len;
	if (encoding == PG_SQL_ASCII)
		return source.data;
	initStringInfo(&dst);
	p = source.data;
	end = p + source.len;
	while (p < end)
	{
		Size		piece = piece_size(p, end - p);
		Size		done = convert_piece(&dst, p, piece, proc, encoding);

		CHECK_FOR_INTERRUPTS();
		p += done;
		if (done < piece)
		{
			appendStringInfo(&dst, "\\\\u%04x",
							 utf8_to_unicode((const unsigned char *) p));
			p += pg_utf_mblen((const unsigned char *) p);
		}
	}
	*len = dst.len;
	return dst.data;
}

/*
 * The line, *len bytes, in the database's encoding, with its new length; what
 * is returned may be the line itself.  NULL if it cannot be what the worker
 * wrote.
 */
const char *
paq_load_text(const char *line, Size *len)
{
	const char *converted = from_named(line, len);

	if (converted == NULL)
	{
		if (!pg_verify_mbstr(PG_UTF8, line, *len, true))
			return NULL;
		converted = line;
	}
	if (GetDatabaseEncoding() == PG_UTF8)
		return converted;
	return to_database(converted, len);
}
