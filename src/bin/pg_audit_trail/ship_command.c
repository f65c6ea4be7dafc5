/*-------------------------------------------------------------------------
 *
 * ship_command.c
 *		The target of pg_audit_trail ship that is a program.
 *
 * A shell executes the command.  It gets records on its standard input, lines of format
 * json as the trail has them, and acknowledges them by lines with a sequence on its standard
 * output: that record, and all before it.  Its standard error is ours.
 *
 * What it says tells nothing of the series.  So each run of it gets sequences that go up: where
 * they go back, in another series, its standard input ends, and when it has acknowledged what it
 * has, it is started again.
 *
 * It fails when it ends, when it acknowledges what it has not been sent, or says something
 * else than numbers.  When there will be no more records, its standard input is at its
 * end; it is waited for, and if it takes too long, terminated.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/ship.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Bytes that are collected before they are written */
#define OUTPUT_SIZE		(256 * 1024)

/* How long a program that was told to end may take for that, in steps of 10 ms */
#define END_STEPS		500

static struct
{
	const char *text;
	pid_t		pid;			/* 0: not running */
	int			in;				/* its standard input; -1: closed */
	int			out;			/* its standard output; likewise */
	Buffer		output;			/* to be written to it, from start on */
	Size		start;
	bool		finishing;		/* there will be no more of that */
	int64		last;			/* sequence that was sent last */
	Buffer		line;			/* of what it says, not all there yet */
}			command;

static void
close_pipe(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* In the new process */
pg_noreturn static void
execute(int in, int out)
{
	struct sigaction action = {.sa_handler = SIG_DFL};

	sigemptyset(&action.sa_mask);
	sigaction(SIGPIPE, &action, NULL);

	/* What interrupts us at a terminal is not for it: it has to finish first. */
	(void) setpgid(0, 0);
	if (dup2(in, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0)
		execl("/bin/sh", "sh", "-c", command.text, (char *) NULL);
	_exit(127);
}

static bool
command_open(void)
{
	int			in[2];
	int			out[2];

	command.output.used = command.start = command.line.used = 0;
	command.in = command.out = -1;
	command.finishing = false;
	command.last = 0;
	if (pipe(in) != 0)
		trouble("could not make a pipe: %m");
	if (pipe(out) != 0)
		trouble("could not make a pipe: %m");
	for (int i = 0; i < 2; i++)
	{
		(void) fcntl(in[i], F_SETFD, FD_CLOEXEC);
		(void) fcntl(out[i], F_SETFD, FD_CLOEXEC);
	}
	fflush(NULL);
	command.pid = fork();
	if (command.pid == 0)
		execute(in[0], out[1]);
	close(in[0]);
	close(out[1]);
	command.in = in[1];
	command.out = out[0];
	if (command.pid < 0)
	{
		pg_log_error("could not fork: %m");
		command.pid = 0;
		return false;
	}
	(void) fcntl(command.in, F_SETFL, O_NONBLOCK);
	(void) fcntl(command.out, F_SETFL, O_NONBLOCK);
	return true;
}

/* Write what the pipe takes. */
static bool
write_output(void)
{
	while (command.start < command.output.used)
	{
		ssize_t		n = write(command.in, command.output.data + command.start,
						  command.output.used - command.start);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n < 0)
		{
			pg_log_error("could not write to the command: %m");
			return false;
		}
		command.start += n;
	}
	command.output.used = command.start = 0;
	if (command.finishing)
		close_pipe(&command.in);
	return true;
}

static SendResult
command_send(uint64 number, Record *record)
{
	const int64 sequence = record_number(record, PAQ_TRAIL_SEQUENCE);

	if (command.output.used >= OUTPUT_SIZE && !write_output())
		return SEND_FAILED;
	if (command.output.used >= OUTPUT_SIZE)
		return SEND_FULL;
	if (command.last > 0 && sequence <= command.last)
		return SEND_ANEW;
	command.last = sequence;
	buffer_put(&command.output, record->data, record->len);
	return SEND_TAKEN;
}

/* A line that the command has said */
static bool
take_line(const char *line, Size len)
{
	PaqValue	value = {line, len, PAQ_VALUE_NUMBER, false};
	int64		sequence;
	uint64		number;

	if (len > 0 && line[len - 1] == '\r')
		value.len--;
	if (!paq_line_number(&value, &sequence) || sequence < 0)
		pg_log_error("the command says \"%.*s\", which is no sequence",
					 (int) Min(value.len, 100), line);
	else if (!ship_find_sequence(sequence, &number))
		pg_log_error("the command acknowledges sequence " INT64_FORMAT ", which it has not been sent, or has acknowledged before",
					 sequence);
	else
	{
		ship_acknowledged_to(number);
		return true;
	}
	return false;
}

/* Take what there is of lines; false if one is wrong. */
static bool
take_lines(void)
{
	char	   *start = command.line.data;
	char	   *end = command.line.data + command.line.used;
	char	   *newline;

	while (start < end && (newline = memchr(start, '\n', end - start)) != NULL)
	{
		if (!take_line(start, newline - start))
			return false;
		start = newline + 1;
	}
	command.line.used = end - start;
	memmove(command.line.data, start, command.line.used);
	if (command.line.used < 100)
		return true;
	pg_log_error("the command says something that is no sequence");
	return false;
}

/* Read what the command says; false if it says nothing more. */
static bool
read_lines(void)
{
	ssize_t		n;

	for (;;)
	{
		buffer_reserve(&command.line, 4096);
		n = read(command.out, command.line.data + command.line.used, 4096);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return true;
		if (n <= 0)
			break;
		command.line.used += n;
		if (!take_lines())
			return false;
	}
	if (n == 0)
		close_pipe(&command.out);
	if (n == 0 && command.in >= 0)
		pg_log_error("the command has ended");
	else if (n < 0)
		pg_log_error("could not read what the command says: %m");
	return false;
}

static bool
command_wait(int timeout)
{
	struct pollfd fds[] = {
		{ .fd = command.out, .events = POLLIN },
		{ .fd = command.in, .events = POLLOUT }
	};
	int			n;

	if (command.in >= 0 && !write_output())
		return false;
	n = poll(fds, command.start < command.output.used ? 2 : 1, timeout);
	if (n < 0 && errno != EINTR)
		trouble("poll() failed: %m");
	if (n <= 0)
		return true;
	return fds[0].revents == 0 || read_lines();
}

static void
command_finish(void)
{
	command.finishing = true;
}

/* How the command has ended, if it was not well */
static void
report_status(int status)
{
	if (WIFSIGNALED(status))
		pg_log_error("the command was terminated by signal %d", WTERMSIG(status));
	else if (WEXITSTATUS(status) != 0)
		pg_log_error("the command has ended with status %d", WEXITSTATUS(status));
}

static void
command_close(void)
{
	int			status;
	pid_t		ended = 0;

	close_pipe(&command.in);
	if (command.pid != 0)
	{
		for (int i = 0; i < END_STEPS && (ended = waitpid(command.pid, &status, WNOHANG)) == 0; i++)
		{
			if (i == END_STEPS / 2)
				(void) kill(-command.pid, SIGTERM);
			(void) poll(NULL, 0, 10);
		}
		if (ended == 0)
		{
			(void) kill(-command.pid, SIGKILL);
			ended = waitpid(command.pid, &status, 0);
		}
		if (ended == command.pid)
			report_status(status);
		command.pid = 0;
	}
	close_pipe(&command.out);
}

const Target *
command_target(const char *text)
{
	static const Target target = {
		.name = "command",
		.open = command_open,
		.send = command_send,
		.wait = command_wait,
		.finish = command_finish,
		.close = command_close
	};

	command.text = text;
	return &target;
}
