/*-------------------------------------------------------------------------
 *
 * status.c
 *		How the program ends, and standard output, which is written before it does.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <unistd.h>

#define OUTPUT_SIZE		(64 * 1024)

/* What a shell reports of a program that SIGPIPE has ended */
#define EXIT_BROKEN_PIPE	141

static Status worst = STATUS_FINE;

static char output[OUTPUT_SIZE];
static Size output_used = 0;

/* Somebody wants the program to end: for commands that go on until then. */
volatile sig_atomic_t stopped = false;

/* The program will end with that status, unless there is a worse one. */
void
note_status(Status status)
{
	worst = Max(worst, status);
}

Status
current_status(void)
{
	return worst;
}

static void
write_output(const char *data, Size len)
{
	while (len > 0)
	{
		ssize_t		n = write(STDOUT_FILENO, data, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EPIPE)
			exit(EXIT_BROKEN_PIPE);
		if (n < 0)
			plain_trouble("could not write to standard output: %m");
		data += n;
		len -= n;
	}
}

void
output_flush(void)
{
	const Size	len = output_used;

	/* if writing fails, there is nothing to be written at the end */
	output_used = 0;
	write_output(output, len);
}

void
output_put(const char *data, Size len)
{
	if (len > OUTPUT_SIZE - output_used)
		output_flush();
	if (len > OUTPUT_SIZE)
	{
		write_output(data, len);
		return;
	}
	memcpy(output + output_used, data, len);
	output_used += len;
}

/* End now, with that status or a worse one that was noted. */
void
leave(Status status)
{
	note_status(status);
	output_flush();
	exit(worst);
}

static void
handle_stop(int signal_number)
{
	stopped = true;
}

/* Have SIGINT and SIGTERM set "stopped". */
void
stop_on_signals(void)
{
	struct sigaction action = {.sa_handler = handle_stop};

	sigemptyset(&action.sa_mask);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}
