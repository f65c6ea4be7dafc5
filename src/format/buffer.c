/*-------------------------------------------------------------------------
 *
 * buffer.c
 *		Appending to a PaqBuffer, and numbers as text.
 *
 * Guarantees: never writes outside of the buffer; bytes arrive in order, or,
 * from the first failure of the drain callback on, not at all.  A buffer
 * without a drain callback fails when it is full.
 * Must not allocate or raise; these run several times for every record.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "format/format_internal.h"

const char	paq_digit_pairs[] =
"00010203040506070809" "10111213141516171819"
"20212223242526272829" "30313233343536373839"
"40414243444546474849" "50515253545556575859"
"60616263646566676869" "70717273747576777879"
"80818283848586878889" "90919293949596979899";

/* Let the owner make room; false if there is none. */
static bool
make_room(PaqBuffer *buf)
{
	if (buf->failed)
		return false;
	if (buf->drain == NULL || !buf->drain(buf) || buf->used >= buf->size)
	{
		buf->failed = true;
		return false;
	}
	return true;
}

/*
 * Where the next len bytes can be written in a row; the caller adds to "used"
 * what it has written.  The buffer's size must not be less than len: after a
 * failure the place is there as well, but what is in the buffer is lost.
 */
char *
paq_buffer_reserve(PaqBuffer *buf, Size len)
{
	Assert(len <= buf->size);
	while (unlikely(len > buf->size - buf->used))
		if (!make_room(buf))
			buf->used = 0;
	return buf->data + buf->used;
}

/* Append len bytes. */
void
paq_buffer_write(PaqBuffer *buf, const char *data, Size len)
{
	if (buf->failed)
		return;
	while (len > buf->size - buf->used)
	{
		Size		room = buf->size - buf->used;

		memcpy(buf->data + buf->used, data, room);
		buf->used += room;
		data += room;
		len -= room;
		if (!make_room(buf))
			return;
	}
	memcpy(buf->data + buf->used, data, len);
	buf->used += len;
}

/* Append a C string. */
void
paq_buffer_puts(PaqBuffer *buf, const char *str)
{
	paq_put(buf, str, strlen(str));
}

/* Append the same byte count times. */
void
paq_buffer_fill(PaqBuffer *buf, char c, int count)
{
	while (count-- > 0)
		paq_buffer_putc(buf, c);
}

/* See paq_uint_text(); value is below 10000. */
static inline int
short_uint_text(char *dst, uint32 value)
{
	if (value >= 1000)
	{
		paq_digit_pair(dst, value / 100);
		paq_digit_pair(dst + 2, value % 100);
		return 4;
	}
	if (value >= 100)
	{
		*dst = '0' + value / 100;
		paq_digit_pair(dst + 1, value % 100);
		return 3;
	}
	if (value >= 10)
	{
		paq_digit_pair(dst, value);
		return 2;
	}
	*dst = '0' + value;
	return 1;
}

/* Decimal text of value into dst, not terminated; returns its length. */
int
paq_uint_text(char *dst, uint64 value)
{
	uint32		last;
	int			len;

	if (value < 10000)
		return short_uint_text(dst, value);
	last = value % 10000;
	len = paq_uint_text(dst, value / 10000);
	paq_digit_pair(dst + len, last / 100);
	paq_digit_pair(dst + len + 2, last % 100);
	return len + 4;
}

/* Hexadecimal text of value into dst, not terminated; returns its length. */
int
paq_hex_text(char *dst, uint64 value)
{
	int			len = 1;

	while (len < 16 && (value >> (4 * len)) != 0)
		len++;
	for (int i = len - 1; i >= 0; i--)
	{
		dst[i] = "0123456789abcdef"[value & 15];
		value >>= 4;
	}
	return len;
}

/* Append a number in decimal, in place if there is certainly room for it. */
void
paq_buffer_int(PaqBuffer *buf, int64 value)
{
	char		text[PAQ_INT_TEXT];

	if (likely(buf->size - buf->used >= sizeof(text)))
		buf->used += paq_int_text(buf->data + buf->used, value);
	else
		paq_put(buf, text, paq_int_text(text, value));
}

void
paq_buffer_uint(PaqBuffer *buf, uint64 value)
{
	char		text[PAQ_INT_TEXT];

	if (likely(buf->size - buf->used >= sizeof(text)))
		buf->used += paq_uint_text(buf->data + buf->used, value);
	else
		paq_put(buf, text, paq_uint_text(text, value));
}
