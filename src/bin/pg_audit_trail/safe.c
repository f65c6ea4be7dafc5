/*-------------------------------------------------------------------------
 *
 * safe.c
 *		Texts that do nothing to a terminal.
 *
 * Users decide what is in a record.  Control characters of their texts must not reach the
 * terminal of whoever reads the trail: those of ASCII, and those from U+0080 to
 * U+009F, as a character in UTF-8 or as a byte.  They are shown as \x and the two
 * hexadecimal digits of each byte.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include "mb/pg_wchar.h"

static void
put_bytes_escaped(Buffer *buf, const char *p, int len, int *width)
{
	for (int i = 0; i < len; i++)
		buffer_printf(buf, "\\x%02x", (unsigned char) p[i]);
	*width = 4 * len;
}

/* A control character of ASCII: newline and tab have names. */
static void
put_control(Buffer *buf, SafeStyle style, char c, int *width)
{
	const char *name = c == '\n' ? "\\n" : c == '\t' ? "\\t"
		: c == '\r'									 ? "\\r"
													 : NULL;

	if (style == SAFE_JSON)
		buffer_printf(buf, "\\u%04x", (unsigned char) c);
	else if (style == SAFE_LINE && name != NULL)
	{
		buffer_puts(buf, name);
		*width = 2;
	}
	else
		put_bytes_escaped(buf, &c, 1, width);
}

/*
 * Does the character change the direction of what follows, begin a line, or show nothing?
 * In a table a text must not make others look different from what they are.
 */
static bool
is_disguise(pg_wchar c)
{
	return c == 0xad || c == 0x61c || c == 0x180e || (c >= 0x200b && c <= 0x200f) ||
		(c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff ||
		(c >= 0xfff9 && c <= 0xfffb) || (c & 0xfffe) == 0xfffe ||
		(c >= 0xe0000 && c <= 0xe0fff);
}

/* The same for a character that is not ASCII; returns its length. */
static int
put_wide(Buffer *buf, SafeStyle style, const char *p, Size len, int *width)
{
	const unsigned char *s = (const unsigned char *) p;
	const int	char_len = pg_utf_mblen(s);
	pg_wchar	c;

	if (char_len < 2 || char_len > len || !pg_utf8_islegal(s, char_len))
	{
		/* a character of another encoding */
		if (style == SAFE_LINES && *s >= 0xa0)
			buffer_putc(buf, *p);
		else
			put_bytes_escaped(buf, p, 1, width);
		return 1;
	}
	c = utf8_to_unicode(s);
	if (style == SAFE_JSON && c <= 0x9f)
		buffer_printf(buf, "\\u%04x", (int) c);
	else if (c <= 0x9f || (style == SAFE_LINE && is_disguise(c)))
		put_bytes_escaped(buf, p, char_len, width);
	else
	{
		buffer_put(buf, p, char_len);
		*width = Max(pg_encoding_dsplen(PG_UTF8, p), 0);
	}
	return char_len;
}

/*
 * Append the character at p, where len bytes are.  Returns how many it has; *width: columns
 * that it takes.
 */
int
safe_put_char(Buffer *buf, SafeStyle style, const char *p, Size len, int *width)
{
	const unsigned char c = *p;

	*width = 1;
	if (c >= 0x80)
		return put_wide(buf, style, p, len, width);
	if (c >= 0x20 && c != 0x7f)
		buffer_putc(buf, *p);
	else if ((c == '\n' || c == '\t') && style != SAFE_LINE)
		buffer_putc(buf, *p);
	else
		put_control(buf, style, *p, width);
	return 1;
}

void
safe_put(Buffer *buf, SafeStyle style, const char *data, Size len)
{
	const char *end = data + len;
	int			width;

	while (data < end)
		data += safe_put_char(buf, style, data, end - data, &width);
}
