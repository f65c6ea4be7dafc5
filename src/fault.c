/*-------------------------------------------------------------------------
 *
 * fault.c
 *		What the points of fault.h do in a server that was built for tests.
 *
 * The file "pg_audit_queue.fault" in the data directory, which is the current
 * directory of every server process, has lines of a point's name and an
 * action, separated by a space:
 *
 *	kill		end the process there and then, as kill -9 does
 *	stop		stop it, until somebody sends SIGCONT; then report the errno that
 *				the file has for the point by now, if it has one
 *	NUMBER		errno that the point reports
 *
 * It is read at each point, so that a test changes it while the server runs.
 *
 * Must not raise, nor allocate: some points are between reserve and commit.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fault.h"

#ifdef PAQ_FAULT_POINTS

#include <signal.h>
#include <unistd.h>

#include "file_util.h"

#define FAULT_FILE	"pg_audit_queue.fault"

/* Read what the point shall do; an empty action is nothing. */
static void
read_action(const char *point, char *action, Size size)
{
	Size		len = strlen(point);
	char		faults[1024];

	action[0] = '\0';
	paq_read_text(FAULT_FILE, faults, sizeof(faults));
	for (char *line = faults; line != NULL && *line != '\0';)
	{
		if (strncmp(line, point, len) == 0 && line[len] == ' ')
		{
			strlcpy(action, line + len + 1, size);
			return;
		}
		line = strchr(line, '\n');
		if (line != NULL)
			line++;
	}
}

/* Returns 0, or the errno that this point shall report. */
int
paq_fault(const char *point)
{
	int			save_errno = errno;
	char		action[16];

	read_action(point, action, sizeof(action));
	if (strncmp(action, "kill", 4) == 0)
		kill(getpid(), SIGKILL);
	if (strncmp(action, "stop", 4) == 0)
	{
		kill(getpid(), SIGSTOP);
		read_action(point, action, sizeof(action));
	}
	errno = save_errno;
	return atoi(action);
}

#endif							/* PAQ_FAULT_POINTS */
