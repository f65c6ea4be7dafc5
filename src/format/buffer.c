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

/* All numbers from 00 to 99, so that one division gives two digits. */
static const char digit_pairs[] =
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

static inline int
count_digits(uint64 value)
{
	int			digits = 1;

	for (; value >= 10000; value /= 10000)
		digits += 4;
	return digits + (value >= 10) + (value >= 100) + (value >= 1000);
}

/* Decimal text of value into dst, not terminated; returns its length. */
int
paq_uint_text(char *dst, uint64 value)
{
	const int	len = count_digits(value);
	char	   *p = dst + len;

	while (value >= 100)
	{
		p -= 2;
		memcpy(p, digit_pairs + 2 * (value % 100), 2);
		value /= 100;
	}
	if (value >= 10)
		memcpy(dst, digit_pairs + 2 * value, 2);
	else
		*dst = '0' + value;
	return len;
}

/* The same for a signed value. */
int
paq_int_text(char *dst, int64 value)
{
	if (value >= 0)
		return paq_uint_text(dst, value);
	*dst = '-';
	return 1 + paq_uint_text(dst + 1, -(uint64) value);
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
