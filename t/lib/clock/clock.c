/*-------------------------------------------------------------------------
 *
 * clock.c
 *		A clock that can be set, for a server that is started with this
 *		library in LD_PRELOAD.
 *
 * The file that PAQ_CLOCK names has the number of seconds by which the time of
 * day differs from the machine's; or "=" and a time, at which time() stands still.
 * Clocks that nobody can set are left alone.
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
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* Read what the file has; without one, that is nothing. */
static void
read_file(char *text, size_t size)
{
	const int	save_errno = errno;
	const char *path = getenv("PAQ_CLOCK");
	int			fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	memset(text, 0, size);
	if (fd >= 0)
	{
		if (read(fd, text, size - 1) < 0)
			text[0] = '\0';
		close(fd);
	}
	errno = save_errno;
}

/* Seconds to add to the time */
static long
difference(void)
{
	char		text[32];

	read_file(text, sizeof(text));
	return atol(text);
}

time_t
time(time_t *result)
{
	struct timespec now;
	char		text[32];

	read_file(text, sizeof(text));
	if (text[0] == '=')
		now.tv_sec = atol(text + 1);
	else
		clock_gettime(CLOCK_REALTIME, &now);
	if (result != NULL)
		*result = now.tv_sec;
	return now.tv_sec;
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
