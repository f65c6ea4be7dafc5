/*-------------------------------------------------------------------------
 *
 * key_command.c
 *		The command that prints the key for encryption.
 *
 * It is run by a shell, in the data directory, as archive_command is, and has
 * TIMEOUT to end.  What it prints to its standard error goes to the server's.
 *
 * Guarantees: what it prints to its standard output is in no message, and is
 * overwritten as soon as the keys were taken from it.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guc.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "postmaster/interrupt.h"
#include "sink/key_command.h"

#define SETTING		"pg_audit_queue.log_encryption_key_command"

/* Until it is ended, in ms; and if the server is being shut down */
#define TIMEOUT				30000
#define SHUTDOWN_TIMEOUT	5000

/* How often to look whether it is, in ms */
#define STEP		500

/* How much it may print, in bytes */
#define MAX_OUTPUT	8192

/* Where the reason for a failure goes; PAQ_LAYER_ERROR_LEN bytes */
static char *reason;

static void set_reason(const char *fmt,...) pg_attribute_printf(1, 2);

/* Note a failure; %m works as in errmsg(). */
static void
set_reason(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	(void) vsnprintf(reason, PAQ_LAYER_ERROR_LEN, fmt, args);
	va_end(args);
}

/*
 * Start the command with its standard output into a pipe, as the leader of a process
 * group.  Its pid, and *fd to read from; -1 on failure, with errno.
 */
static pid_t
start_command(const char *command, int *fd)
{
	const char *argv[] = {"sh", "-c", command, NULL};
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t	signals;
	int			ends[2];
	pid_t		pid;
	int			rc;

	if (pipe(ends) != 0)
		return -1;
	(void) fcntl(ends[0], F_SETFD, FD_CLOEXEC);
	(void) fcntl(ends[1], F_SETFD, FD_CLOEXEC);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, DEVNULL, O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);

	/* Signals as a program expects them, rather than the worker's handlers */
	posix_spawnattr_init(&attributes);
	posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP |
							 POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	posix_spawnattr_setpgroup(&attributes, 0);
	sigfillset(&signals);
	posix_spawnattr_setsigdefault(&attributes, &signals);
	sigemptyset(&signals);
	posix_spawnattr_setsigmask(&attributes, &signals);

	rc = posix_spawn(&pid, "/bin/sh", &actions, &attributes,
					 (char *const *) argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attributes);
	close(ends[1]);
	if (rc == 0)
	{
		*fd = ends[0];
		return pid;
	}
	close(ends[0]);
	errno = rc;
	return -1;
}

/*
 * Milliseconds that a command has left which was begun then; if none, notes the reason.  A
 * session may be canceled meanwhile, which the caller will see.
 */
static long
time_left(instr_time start)
{
	const long	limit = ShutdownRequestPending ? SHUTDOWN_TIMEOUT : TIMEOUT;
	instr_time	now;

	if (QueryCancelPending || ProcDiePending)
	{
		set_reason("command of \"%s\" was canceled", SETTING);
		return 0;
	}

	INSTR_TIME_SET_CURRENT(now);
	INSTR_TIME_SUBTRACT(now, start);
	if (INSTR_TIME_GET_MILLISEC(now) < limit)
		return limit - (long) INSTR_TIME_GET_MILLISEC(now);
	set_reason("command of \"%s\" did not end within %ld s", SETTING, limit / 1000);
	return 0;
}

/*
 * Read all that the command prints, up to its end or the limits, into output, which has
 * MAX_OUTPUT bytes.  False if there was a limit, with the reason noted.
 */
static bool
read_output(int fd, instr_time start, char *output, Size *len)
{
	*len = 0;
	for (;;)
	{
		struct pollfd pfd = {.fd = fd, .events = POLLIN};
		long		left = time_left(start);
		ssize_t		n;

		if (left == 0)
			return false;
		if (poll(&pfd, 1, Min(left, STEP)) <= 0)
			continue;
		n = read(fd, output + *len, MAX_OUTPUT - *len);
		if (n == 0)
			return true;
		if (n > 0)
			*len += n;
		else if (errno != EINTR)
		{
			set_reason("could not read from command of \"%s\": %m", SETTING);
			return false;
		}
		if (*len == MAX_OUTPUT)
		{
			set_reason("command of \"%s\" prints more than %d bytes",
					   SETTING, MAX_OUTPUT);
			return false;
		}
	}
}

/*
 * Wait for the command to end, as long as it has time, and not at all unless all is well; false
 * if it has failed.
 */
static bool
end_command(pid_t pid, instr_time start, bool well)
{
	int			status;
	pid_t		rc;

	while ((rc = waitpid(pid, &status, WNOHANG)) <= 0)
	{
		if (rc < 0 && errno != EINTR)
		{
			set_reason("could not wait for command of \"%s\": %m", SETTING);
			return false;
		}
		well = well && time_left(start) > 0;
		if (!well)
			(void) kill(-pid, SIGKILL);
		pg_usleep(10 * 1000L);
	}
	if (well && status != 0)
	{
		char	   *result = wait_result_to_str(status);

		set_reason("command of \"%s\" failed: %s", SETTING, result);
		pfree(result);
	}
	return well && status == 0;
}

PaqKeys *
paq_run_key_command(char *error)
{
	static char output[MAX_OUTPUT];
	char		parse_error[PAQ_LAYER_ERROR_LEN];
	PaqKeys    *keys = NULL;
	instr_time	start;
	bool		well;
	pid_t		pid;
	Size		len;
	int			fd;

	reason = error;
	if (paq_log_encryption_key_command[0] == '\0')
	{
		set_reason("\"%s\" is not set", SETTING);
		return NULL;
	}
	INSTR_TIME_SET_CURRENT(start);
	pid = start_command(paq_log_encryption_key_command, &fd);
	if (pid < 0)
	{
		set_reason("could not start command of \"%s\": %m", SETTING);
		return NULL;
	}
	well = read_output(fd, start, output, &len);
	close(fd);
	if (end_command(pid, start, well))
	{
		keys = paq_keys_parse(output, len, parse_error);
		if (keys == NULL)
			set_reason("what \"%s\" prints cannot be used: %s", SETTING, parse_error);
	}
	paq_forget_secret(output, sizeof(output));
	return keys;
}
