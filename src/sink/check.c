/*-------------------------------------------------------------------------
 *
 * check.c
 *		The directory of the trail: made if missing, checked at server start.
 *
 * A server that is told to audit and cannot must not start; later, a missing
 * directory is the worker's problem, which it retries.
 *
 * Relative names are relative to the data directory, which is the current
 * directory of every server process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "guc.h"
#include "sink/file_internal.h"

/*
 * Make the directory unless it is there.  Returns false, with errno, if that
 * fails.  Only its last component is made: a missing mount point should not
 * be papered over.
 */
bool
paq_trail_make_directory(const char *directory, bool *made)
{
	*made = (mkdir(directory, S_IRWXU) == 0);
	return *made || errno == EEXIST;
}

static void
report_unusable(const char *problem)
{
	ereport(FATAL,
			(errcode_for_file_access(),
			 errmsg("%s directory \"%s\" of the audit trail: %m",
					problem, paq_trail_directory()),
			 errhint("Set \"%s\" to a directory that the server can read and write.",
					 paq_sink == PAQ_SINK_TABLE ?
					 "pg_audit_queue.queue_directory" :
					 "pg_audit_queue.log_directory")));
}

/* Called in the postmaster. */
void
paq_file_sink_check(void)
{
	struct stat st;
	bool		made;

	if (!paq_trail_make_directory(paq_trail_directory(), &made))
		report_unusable("could not create");
	if (stat(paq_trail_directory(), &st) != 0)
		report_unusable("could not access");
	if (!S_ISDIR(st.st_mode))
	{
		errno = ENOTDIR;
		report_unusable("could not use");
	}
	/* Reading is needed to make new names durable. */
	if (access(paq_trail_directory(), R_OK | W_OK | X_OK) != 0)
		report_unusable("could not write to");
}
