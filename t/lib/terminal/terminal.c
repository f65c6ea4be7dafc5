/*-------------------------------------------------------------------------
 *
 * terminal.c
 *		A terminal of 24 lines and 90 columns, for a program that is started with
 *		this library in LD_PRELOAD.
 *
 * The file descriptors whose numbers, one digit each, are in PAQ_TERMINAL are a
 * terminal as far as isatty() and ioctl(TIOCGWINSZ) tell.  What is written there
 * goes where it goes without this library.  So it takes no terminal, which not every
 * system can make: that needs a mount of devpts.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int
is_terminal(int fd)
{
	const char *terminals = getenv("PAQ_TERMINAL");

	return terminals != NULL && fd >= 0 && fd <= 9 && strchr(terminals, '0' + fd) != NULL;
}

int
isatty(int fd)
{
	int			(*next) (int) = (int (*) (int)) dlsym(RTLD_NEXT, "isatty");

	return is_terminal(fd) ? 1 : next(fd);
}

int
ioctl(int fd, unsigned long request,...)
{
	int			(*next) (int, unsigned long,...) =
		(int (*) (int, unsigned long,...)) dlsym(RTLD_NEXT, "ioctl");
	va_list		args;
	void	   *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);
	if (request == TIOCGWINSZ && is_terminal(fd))
	{
		struct winsize *size = arg;

		memset(size, 0, sizeof(*size));
		size->ws_row = 24;
		size->ws_col = 90;
		return 0;
	}
	return next(fd, request, arg);
}
