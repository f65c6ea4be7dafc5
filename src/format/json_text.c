/*-------------------------------------------------------------------------
 *
 * json_text.c
 *		Text of any encoding, or none, as JSON strings.
 *
 * JSON is UTF-8; the trail gets texts in the encodings of the databases they
 * come from, where SQL_ASCII promises nothing at all, and a text may have
 * been cut in the middle of a character.  The worker is connected to no
 * database and so cannot convert between encodings.  So: what is ASCII is
 * written as it is; what is valid UTF-8 in UTF8 or SQL_ASCII too; each other
 * byte xx is written as \u00xx, so that nothing is lost, and that this was
 * done is remembered.
 *
 * Guarantees: the output is valid JSON in valid UTF-8 whatever the input.
 * Must not allocate or raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format/json_text.h"

#include "mb/pg_wchar.h"

/* The same byte eight times */
#define REPEAT(byte)	(UINT64CONST(0x0101010101010101) * (byte))

/* Has the highest bit of a byte set where, at least, the lowest zero is. */
#define ZERO_BYTES(word)	(((word) - REPEAT(0x01)) & ~(word) & REPEAT(0x80))

/* Does the byte need more than copying? */
static inline bool
is_special(unsigned char c)
{
	return c < 0x20 || c == '"' || c == '\\' || c >= 0x80;
}

/* The same for any of eight bytes at once: most text has none for long. */
static inline bool
has_special(const unsigned char *p)
{
	uint64		word;

	memcpy(&word, p, sizeof(word));
	return ((word | ZERO_BYTES(word ^ REPEAT('"')) |
			 ZERO_BYTES(word ^ REPEAT('\\')) |
			 ((word - REPEAT(0x20)) & ~word)) & REPEAT(0x80)) != 0;
}

/* Start a record whose texts are in this encoding (pg_enc). */
void
paq_json_text_begin(PaqJsonText *state, PaqBuffer *buf, int encoding)
{
	state->buf = buf;
	state->utf8 = (encoding == PG_UTF8 || encoding == PG_SQL_ASCII);
	state->raw = false;
}

/* Length of the valid UTF-8 character at p, 0 if there is none. */
static int
utf8_length(const unsigned char *p, const unsigned char *end)
{
	int			len = pg_utf_mblen(p);

	if (len < 2 || len > end - p || !pg_utf8_islegal(p, len))
		return 0;
	return len;
}

/* End of what can be copied as it is. */
static const unsigned char *
skip_plain(const PaqJsonText *state, const unsigned char *p,
		   const unsigned char *end)
{
	for (;;)
	{
		int			len;

		while (end - p >= 8 && !has_special(p))
			p += 8;
		while (p < end && !is_special(*p))
			p++;
		if (p == end || *p < 0x80 || !state->utf8)
			return p;
		len = utf8_length(p, end);
		if (len == 0)
			return p;
		p += len;
	}
}

static void
put_special(PaqJsonText *state, unsigned char c)
{
	static const char short_form[0x20] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'
	};
	char		text[6] = {'\\', 'u', '0', '0'};

	if (c == '"' || c == '\\' || (c < 0x20 && short_form[c] != 0))
	{
		text[1] = c < 0x20 ? short_form[c] : (char) c;
		paq_put(state->buf, text, 2);
		return;
	}
	if (c >= 0x80)
		state->raw = true;
	text[4] = "0123456789abcdef"[c >> 4];
	text[5] = "0123456789abcdef"[c & 15];
	paq_put(state->buf, text, 6);
}

/* Append text as a JSON string. */
void
paq_json_text_string(PaqJsonText *state, const char *data, Size len)
{
	const unsigned char *p = (const unsigned char *) data;
	const unsigned char *end = p + len;

	paq_buffer_putc(state->buf, '"');
	while (p < end)
	{
		const unsigned char *stop = skip_plain(state, p, end);

		paq_put(state->buf, (const char *) p, stop - p);
		p = stop;
		if (p < end)
			put_special(state, *p++);
	}
	paq_buffer_putc(state->buf, '"');
}

/* Append a field: a string, or null. */
void
paq_json_text_field(PaqJsonText *state, PaqText text)
{
	if (text.data == NULL)
		PAQ_PUT_LITERAL(state->buf, "null");
	else
		paq_json_text_string(state, text.data, text.len);
}
