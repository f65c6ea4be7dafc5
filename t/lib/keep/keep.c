/*-------------------------------------------------------------------------
 *
 * keep.c
 *		Files that a server removes are kept, if it is started with this library
 *		in LD_PRELOAD.
 *
 * Before unlinkat() removes a file, the file gets another link, in the directory
 * that PAQ_KEEP names, under its inode's number, "-" and its name.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int
unlinkat(int fd, const char *name, int flags)
{
	static int	(*next) (int, const char *, int) = NULL;
	const int	save_errno = errno;
	const char *directory = getenv("PAQ_KEEP");
	char		path[PATH_MAX];
	struct stat st;

	if (next == NULL)
		next = (int (*) (int, const char *, int)) dlsym(RTLD_NEXT, "unlinkat");
	if (directory != NULL && flags == 0 &&
		fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
	{
		snprintf(path, sizeof(path), "%s/%llu-%s", directory,
				 (unsigned long long) st.st_ino, name);
		/* It is there if an earlier attempt failed, or was killed. */
		if (linkat(fd, name, AT_FDCWD, path, 0) != 0 && errno != EEXIST)
			abort();
	}
	errno = save_errno;
	return next(fd, name, flags);
}
