/*-------------------------------------------------------------------------
 *
 * verify.h
 *		pg_audit_trail verify: what its files share.
 *
 *	verify.c			the command: seals, and the files that they are over
 *	verify_rest.c		which sequences seals cover, and what they do not cover
 *	verify_text.c		what is wrong, and what is worth knowing
 *
 * What is not covered by seals is named before what was verified, in numbers, and nothing else
 * than what seals cover is ever said to be complete and unaltered.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_VERIFY_H
#define PAQ_VERIFY_H

#include "bin/pg_audit_trail/program.h"

/* verify_text.c */

extern void finding(const char *fmt,...) pg_attribute_printf(1, 2);
extern int64 findings(void);
extern void remark(const char *fmt,...) pg_attribute_printf(1, 2);
extern void uncovered(const char *fmt,...) pg_attribute_printf(1, 2);
extern void print_remarks(void);
extern const char *time_text(int64 timestamp);

/* verify_rest.c */

/* Why there is no seal over something */
typedef enum RestKind
{
	REST_BEFORE,				/* it was there before the first seal */
	REST_BETWEEN,				/* nothing was sealed for some time */
	REST_BEHIND,				/* it came behind the last seal */
	REST_FILE,					/* its file is in no seal */
	NREST_KINDS
} RestKind;

extern void rest_bytes(RestKind kind, const char *path, uint64 from, uint64 to, bool expected);
extern void rest_sequences(RestKind kind, uint64 first, uint64 last, bool expected);
extern bool rest_report(void);
extern bool rest_is_expected(void);

/* Sequences from first to last; first is 0 if they begin anew, and only the last one is known. */
typedef struct Range
{
	uint64		first;
	uint64		last;
} Range;

typedef struct Ranges
{
	int			count;
	int			size;
	Range	   *range;
} Ranges;

extern void ranges_add(Ranges *ranges, uint64 first, uint64 last);
extern void ranges_put(Buffer *buf, const Ranges *ranges);

#endif							/* PAQ_VERIFY_H */
