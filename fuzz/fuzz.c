/*-------------------------------------------------------------------------
 *
 * fuzz.c
 *		A fuzzer for the parts of pg_audit_queue that read what others may have
 *		written, and need no server.
 *
 *	PAQ_FUZZ_TARGET=NAME fuzz [OPTION...] [CORPUS...]
 *
 * libFuzzer has the options.  Built and called by scripts/fuzz.
 *
 *	record.c		records in the queue
 *	line.c			lines of format json, their parts, and records that are shortened
 *	seal.c			lines of seals, and keys
 *	trail.c			trail files, compressed or encrypted
 *	blocks.c		trail files of blocks
 *	program.c		what pg_audit_trail makes of a file in any format
 *
 * Masking needs PostgreSQL's scanner, so mask_fuzz.c is loaded by a server.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "fuzz.h"

#include <sys/mman.h>
#include <unistd.h>

#include "file_util.h"

int			LLVMFuzzerInitialize(int *argc, char ***argv);
int			LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

typedef struct Target
{
	const char *name;
	void		(*run) (const char *data, Size len);
} Target;

static const Target targets[] = {
	{"blocks", fuzz_blocks},
	{"line", fuzz_line},
	{"program", fuzz_program},
	{"record", fuzz_record},
	{"seal", fuzz_seal},
	{"trail", fuzz_trail}
};

static const Target *target;

/* A copy of just that length, so that whatever is read behind it is noticed. */
char *
exact_copy(const char *data, Size len)
{
	char	   *copy = malloc(len);

	must(copy != NULL || len == 0);
	if (len > 0)
		memcpy(copy, data, len);
	return copy;
}

/* A file with these bytes that nobody else has, open */
int
make_file(const char *data, Size len)
{
	int			fd = memfd_create("fuzz", 0);

	must(fd >= 0 && paq_write_all(fd, data, len, 0) == len);
	return fd;
}

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *name = getenv("PAQ_FUZZ_TARGET");

	for (int i = 0; name != NULL && i < lengthof(targets); i++)
		if (strcmp(targets[i].name, name) == 0)
			target = &targets[i];
	if (target == NULL)
	{
		fprintf(stderr, "PAQ_FUZZ_TARGET names no target\n");
		exit(2);
	}
	return 0;
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	target->run((const char *) data, size);
	return 0;
}
