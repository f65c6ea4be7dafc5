/*-------------------------------------------------------------------------
 *
 * disk.c
 *		File systems as large and as full as a test wants, for a server that is
 *		started with this library in LD_PRELOAD.
 *
 * The file that PAQ_DISK names has lines of a text, a size and what is free of
 * it, in bytes, separated by spaces.  They count for paths that have the text in
 * them; a size of 0 is an I/O error.  What is written is written to the real disk
 * all the same.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

/* Like statvfs() if the file has a line for the path; 1 if it has none. */
static int
pretend(const char *path, unsigned long long *size, unsigned long long *available)
{
	const char *name = getenv("PAQ_DISK");
	FILE	   *file = name ? fopen(name, "re") : NULL;
	char		text[256];
	int			result = 1;

	while (file != NULL && result == 1 &&
		   fscanf(file, "%255s %llu %llu", text, size, available) == 3)
		if (strstr(path, text) != NULL)
			result = *size == 0 ? -1 : 0;
	if (file != NULL)
		fclose(file);
	if (result == -1)
		errno = EIO;
	return result;
}

#define STATVFS(function, type) \
int \
function(const char *path, struct type *st) \
{ \
	static int	(*next) (const char *, struct type *) = NULL; \
	unsigned long long size; \
	unsigned long long available; \
	int			result = pretend(path, &size, &available); \
 \
	if (next == NULL) \
		next = (int (*) (const char *, struct type *)) dlsym(RTLD_NEXT, #function); \
	if (result == 1) \
		return next(path, st); \
	if (result == 0) \
	{ \
		memset(st, 0, sizeof(*st)); \
		st->f_frsize = 1; \
		st->f_blocks = size; \
		st->f_bfree = st->f_bavail = available; \
	} \
	return result; \
}

STATVFS(statvfs, statvfs)
STATVFS(statvfs64, statvfs64)
