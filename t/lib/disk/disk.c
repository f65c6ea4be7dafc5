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
 * Beside that file, there is one for each process, its name ended by a dot and the
 * process id, that says for how long the process has last gone to sleep, in ms, -1
 * for until somebody wakes it.
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
#include <sys/epoll.h>
#include <sys/statvfs.h>
#include <unistd.h>

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

int
epoll_wait(int epoll, struct epoll_event *events, int n, int timeout)
{
	static int	(*next) (int, struct epoll_event *, int, int) = NULL;
	static int	last = 0;
	const char *name = getenv("PAQ_DISK");
	char		path[1024];
	FILE	   *file;

	if (next == NULL)
		next = (int (*) (int, struct epoll_event *, int, int)) dlsym(RTLD_NEXT, "epoll_wait");
	if (timeout != 0 && timeout != last && name != NULL)
	{
		snprintf(path, sizeof(path), "%s.%d", name, (int) getpid());
		file = fopen(path, "we");
		if (file != NULL)
		{
			fprintf(file, "%d\n", timeout);
			fclose(file);
		}
		last = timeout;
	}
	return next(epoll, events, n, timeout);
}
