/*-------------------------------------------------------------------------
 *
 * root.c
 *		A program that is started with this library in LD_PRELOAD takes itself
 *		for root's, and becomes nobody else.
 *
 * Each call by which it would get another user or other groups is a line of the file
 * that PAQ_ROOT names: the function, and what it was called with.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int
note(const char *function, unsigned long id)
{
	FILE	   *file = fopen(getenv("PAQ_ROOT"), "a");

	if (file == NULL)
		abort();
	fprintf(file, "%s %lu\n", function, id);
	return fclose(file);
}

uid_t
geteuid(void)
{
	return 0;
}

int
initgroups(const char *user, gid_t group)
{
	return note("groups", group);
}

int
setgroups(size_t size, const gid_t *list)
{
	return note("groups", size == 1 ? list[0] : 0);
}

int
setgid(gid_t group)
{
	return note("setgid", group);
}

int
setuid(uid_t user)
{
	return note("setuid", user);
}
