/*-------------------------------------------------------------------------
 *
 * clock.c
 *		A clock that can be set, for a server that is started with this
 *		library in LD_PRELOAD.
 *
 * The file that PAQ_CLOCK names has the number of seconds by which the time of
 * day differs from the machine's.  Clocks that nobody can set are left alone.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Seconds to add to the time */
static long
difference(void)
{
	const int	save_errno = errno;
	const char *path = getenv("PAQ_CLOCK");
	char		text[32] = {0};
	int			fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	ssize_t		n = 0;

	if (fd >= 0)
	{
		n = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	errno = save_errno;
	return n > 0 ? atol(text) : 0;
}

int
gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
	static int	(*next) (struct timeval *, void *) = NULL;
	int			result;

	if (next == NULL)
		next = (int (*) (struct timeval *, void *)) dlsym(RTLD_NEXT, "gettimeofday");
	result = next(tv, tz);
	if (result == 0)
		tv->tv_sec += difference();
	return result;
}

int
clock_gettime(clockid_t clock, struct timespec *ts)
{
	static int	(*next) (clockid_t, struct timespec *) = NULL;
	int			result;

	if (next == NULL)
		next = (int (*) (clockid_t, struct timespec *)) dlsym(RTLD_NEXT, "clock_gettime");
	result = next(clock, ts);
	if (result == 0 && clock == CLOCK_REALTIME)
		ts->tv_sec += difference();
	return result;
}
