/*-------------------------------------------------------------------------
 *
 * trail.c
 *		What all files of the sink use: the trail file that is open, and the
 *		reason for the last failure.
 *
 * Must not raise or allocate.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "sink/sink_internal.h"
#include "stats.h"

PaqTrailFile paq_trail = {.fd = -1};

static char error_message[PAQ_ERROR_LEN];

/* Note a failure; %m works as in errmsg(). */
void
paq_sink_set_error(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	vsnprintf(error_message, sizeof(error_message), fmt, args);
	va_end(args);
}

const char *
paq_sink_error(void)
{
	return error_message;
}

/* Cut a file of the trail, or of seals. */
bool
paq_trail_truncate(int fd, const char *path, uint64 size)
{
	int			rc;

	do
	{
		rc = ftruncate(fd, size);
	} while (rc != 0 && errno == EINTR);
	if (rc != 0)
		paq_sink_set_error("could not truncate file \"%s\": %m", path);
	return rc == 0;
}
