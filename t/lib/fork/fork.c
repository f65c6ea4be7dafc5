/*-------------------------------------------------------------------------
 *
 * fork.c
 *		Processes that come late, for a server that is started with this library
 *		in LD_PRELOAD.
 *
 * While the file exists that PAQ_HOLD names, a process that is forked stays where
 * fork() has left it, after it has made that file with ".held" at the end of its name.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* In a child: wait, at most for a minute. */
static void
wait_in_child(void)
{
	const char *path = getenv("PAQ_HOLD");
	char		held[1024];

	if (path == NULL || access(path, F_OK) != 0)
		return;
	snprintf(held, sizeof(held), "%s.held", path);
	close(open(held, O_CREAT | O_WRONLY, 0600));
	for (int i = 0; i < 6000 && access(path, F_OK) == 0; i++)
		usleep(10 * 1000);
}

pid_t
fork(void)
{
	static pid_t (*next) (void) = NULL;
	pid_t		result;

	if (next == NULL)
		next = (pid_t(*)(void)) dlsym(RTLD_NEXT, "fork");
	result = next();
	if (result == 0)
		wait_in_child();
	return result;
}
