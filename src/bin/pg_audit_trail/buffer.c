/*-------------------------------------------------------------------------
 *
 * buffer.c
 *		Memory that grows.
 *
 * A line may be longer than what PostgreSQL's functions for strings can hold, and
 * running out of memory is not the trail's fault: so all memory for
 * texts comes from here, and the program ends with the right status without it.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

/* Have space for len more bytes. */
void
buffer_reserve(Buffer *buf, Size len)
{
	Size		size = Max(buf->size, 1024);

	if (len <= buf->size - buf->used)
		return;
	while (size - buf->used < len)
		size *= 2;
	/* analyzer: no leak, without memory the program ends */
	buf->data = realloc(buf->data, size);
	if (buf->data == NULL)
		plain_trouble("out of memory");
	buf->size = size;
}

void
buffer_put(Buffer *buf, const char *data, Size len)
{
	if (len == 0)
		return;
	buffer_reserve(buf, len);
	memcpy(buf->data + buf->used, data, len);
	buf->used += len;
}

/* Make space for one more element of an array that has "count" of them, and space for *size. */
void *
array_grow(void *array, int count, int *size, Size element)
{
	if (count < *size)
		return array;
	*size = Max(16, 2 * *size);
	array = realloc(array, *size * element);
	if (array == NULL)
		plain_trouble("out of memory");
	return array;
}

void
buffer_puts(Buffer *buf, const char *str)
{
	buffer_put(buf, str, strlen(str));
}

/* For numbers and the like, not for texts of any length */
void
buffer_printf(Buffer *buf, const char *fmt,...)
{
	char		text[256];
	va_list		args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	buffer_puts(buf, text);
}

void
buffer_fill(Buffer *buf, char c, int count)
{
	while (count-- > 0)
		buffer_putc(buf, c);
}

/* A number for people: 1,234,567 */
void
buffer_grouped(Buffer *buf, int64 number)
{
	char		digits[32];
	const int	len = snprintf(digits, sizeof(digits), UINT64_FORMAT,
							 number < 0 ? -(uint64) number : (uint64) number);

	if (number < 0)
		buffer_putc(buf, '-');
	for (int i = 0; i < len; i++)
	{
		if (i > 0 && (len - i) % 3 == 0)
			buffer_putc(buf, ',');
		buffer_putc(buf, digits[i]);
	}
}

/* What a noun of so many has at its end: "1 record", "2 records" */
const char *
plural(int64 number)
{
	return number == 1 ? "" : "s";
}

/*
 * A random number, the same each time.  With it, nobody can choose names that meet in a hash
 * table.
 */
uint64
hash_seed(void)
{
	static uint64 seed;
	static bool is_set;

	if (!is_set && !pg_strong_random(&seed, sizeof(seed)))
		plain_trouble("could not generate a random number");
	is_set = true;
	return seed;
}

void *
checked_alloc(Size size)
{
	void	   *result = calloc(1, size);

	if (result == NULL)
		plain_trouble("out of memory");
	return result;
}

char *
checked_strdup(const char *str)
{
	char	   *result = checked_alloc(strlen(str) + 1);

	strcpy(result, str);
	return result;
}
