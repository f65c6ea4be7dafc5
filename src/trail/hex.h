/*-------------------------------------------------------------------------
 *
 * hex.h
 *		Hexadecimal digits, for the files of this room.
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

#endif							/* PAQ_HEX_H */
