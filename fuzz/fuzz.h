/*-------------------------------------------------------------------------
 *
 * fuzz.h
 *		What the targets of the fuzzer share; fuzz.c has the list of them.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_FUZZ_H
#define PAQ_FUZZ_H

#include "postgres_fe.h"

/* What must hold, whatever the input is; the fuzzer keeps one for which it does not. */
#define must(condition) \
	do { \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)

/* fuzz.c */
extern char *exact_copy(const char *data, Size len);
extern int	make_file(const char *data, Size len);

/* The targets: one input each */
extern void fuzz_blocks(const char *data, Size len);
extern void fuzz_line(const char *data, Size len);
extern void fuzz_program(const char *data, Size len);
extern void fuzz_record(const char *data, Size len);
extern void fuzz_seal(const char *data, Size len);
extern void fuzz_trail(const char *data, Size len);

#endif							/* PAQ_FUZZ_H */
