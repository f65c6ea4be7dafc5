/*-------------------------------------------------------------------------
 *
 * hex.h
 *		Hexadecimal digits.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_HEX_H
#define PAQ_HEX_H

#include "c.h"

/* The value of a digit, in either case; -1 if it is none. */
static inline int
paq_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Two digits for each byte, and a terminator */
static inline void
paq_hex_put(char *dst, const uint8 *src, Size len)
{
	for (Size i = 0; i < len; i++)
		snprintf(dst + 2 * i, 3, "%02x", src[i]);
}

#endif							/* PAQ_HEX_H */
