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

/* Does the byte need more than copying? */
static inline bool
is_special(unsigned char c)
{
	return c < 0x20 || c == '"' || c == '\\' || c >= 0x80;
}

/*
 * The same for eight bytes at once: most text has none for long.  The highest
 * bit of a byte that is ASCII becomes set by adding 0x7f unless it is zero, and
 * by adding 0x60 unless it is below 0x20; no sum goes over into the next byte.
 * If one that is not ASCII does, it is special itself.
 */
static inline bool
has_special(uint64 word)
{
	uint64		plain = ~word & (word + REPEAT(0x60)) &
		((word ^ REPEAT('"')) + REPEAT(0x7f)) &
		((word ^ REPEAT('\\')) + REPEAT(0x7f));

	return (plain & REPEAT(0x80)) != REPEAT(0x80);
}

static inline uint64
load_word(const char *p)
{
	uint64		word;

	memcpy(&word, p, sizeof(word));
	return word;
}

/* Copy eight bytes if none of them is special. */
static inline bool
copy_eight(char *dst, const char *src)
{
	uint64		word = load_word(src);

	if (unlikely(has_special(word)))
		return false;
	memcpy(dst, &word, sizeof(word));
	return true;
}

/* Copy four to seven bytes, some of them twice, if none of them is special. */
static inline bool
copy_few(char *dst, const char *src, Size len)
{
	uint32		first;
	uint32		last;

	memcpy(&first, src, sizeof(first));
	memcpy(&last, src + len - sizeof(last), sizeof(last));
	if (unlikely(has_special(first | (uint64) last << 32)))
		return false;
	memcpy(dst, &first, sizeof(first));
	memcpy(dst + len - sizeof(last), &last, sizeof(last));
	return true;
}

/*
 * Copy text up to the first special byte, or to a little before that; returns
 * how much.
 */
static inline Size
copy_plain(char *dst, const char *src, Size len)
{
	Size		done = 0;

	if (len >= 8)
	{
		for (; len - done >= 8; done += 8)
			if (!copy_eight(dst + done, src + done))
				return done;
		return copy_eight(dst + len - 8, src + len - 8) ? len : done;
	}
	if (len >= 4)
		return copy_few(dst, src, len) ? len : 0;
	for (; done < len && !is_special(src[done]); done++)
		dst[done] = src[done];
	return done;
}

/*
 * Start a record whose texts are in this encoding (pg_enc).  The buffer has to
 * be larger than PAQ_FORMAT_ROOM.
 */
char *
paq_json_text_begin(PaqJsonText *text, PaqBuffer *buf, int encoding)
{
	text->buf = buf;
	text->utf8 = (encoding == PG_UTF8 || encoding == PG_SQL_ASCII);
	text->raw = false;
	return paq_buffer_reserve(buf, PAQ_FORMAT_ROOM);
}

/* What has been written up to p belongs to the buffer. */
void
paq_json_text_end(PaqJsonText *text, char *p)
{
	text->buf->used = p - text->buf->data;
	Assert(text->buf->used <= text->buf->size);
}

/* Is there room at p for that many bytes, and PAQ_FORMAT_ROOM behind them? */
static inline bool
has_room(const PaqJsonText *text, const char *p, Size len)
{
	Size		room = text->buf->data + text->buf->size - p;

	return likely(room >= len + PAQ_FORMAT_ROOM);
}

/* Append what is JSON already, of any length. */
char *
paq_json_text_append(PaqJsonText *text, char *p, const char *data, Size len)
{
	if (has_room(text, p, len))
	{
		memcpy(p, data, len);
		return p + len;
	}
	paq_json_text_end(text, p);
	paq_put(text->buf, data, len);
	return paq_buffer_reserve(text->buf, PAQ_FORMAT_ROOM);
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
skip_plain(const PaqJsonText *text, const unsigned char *p,
		   const unsigned char *end)
{
	for (;;)
	{
		int			len;

		while (end - p >= 8 && !has_special(load_word((const char *) p)))
			p += 8;
		while (p < end && !is_special(*p))
			p++;
		if (p == end || *p < 0x80 || !text->utf8)
			return p;
		len = utf8_length(p, end);
		if (len == 0)
			return p;
		p += len;
	}
}

static void
put_special(PaqJsonText *text, unsigned char c)
{
	static const char short_form[0x20] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n', ['\f'] = 'f', ['\r'] = 'r'
	};
	char		escaped[6] = {'\\', 'u', '0', '0'};

	if (c == '"' || c == '\\' || (c < 0x20 && short_form[c] != 0))
	{
		escaped[1] = c < 0x20 ? short_form[c] : (char) c;
		paq_put(text->buf, escaped, 2);
		return;
	}
	if (c >= 0x80)
		text->raw = true;
	escaped[4] = "0123456789abcdef"[c >> 4];
	escaped[5] = "0123456789abcdef"[c & 15];
	paq_put(text->buf, escaped, 6);
}

/* The rest of a string, whatever is in it, and whether there is room or not */
static pg_noinline char *
put_rest(PaqJsonText *text, char *dst, const char *data, Size len)
{
	const unsigned char *p = (const unsigned char *) data;
	const unsigned char *end = p + len;

	paq_json_text_end(text, dst);
	while (p < end)
	{
		const unsigned char *stop = skip_plain(text, p, end);

		paq_put(text->buf, (const char *) p, stop - p);
		p = stop;
		if (p < end)
			put_special(text, *p++);
	}
	paq_buffer_putc(text->buf, '"');
	return paq_buffer_reserve(text->buf, PAQ_FORMAT_ROOM);
}

/* Append text as a JSON string. */
char *
paq_json_text_string(PaqJsonText *text, char *p, const char *data, Size len)
{
	Size		copied;

	*p++ = '"';
	if (!has_room(text, p, len + 1))
		return put_rest(text, p, data, len);
	copied = copy_plain(p, data, len);
	p += copied;
	if (unlikely(copied < len))
		return put_rest(text, p, data + copied, len - copied);
	*p++ = '"';
	return p;
}
