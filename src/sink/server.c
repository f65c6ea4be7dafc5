/*-------------------------------------------------------------------------
 *
 * server.c
 *		What records of the trail say of this server.
 *
 * Nothing of it changes while the server runs, except for the time zone.
 *
 * Must not raise or allocate.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "access/xlog.h"
#include "pgtime.h"
#include "sink/sink_internal.h"
#include "utils/guc.h"

/* See PaqServer. */
static int
log_timezone_offset_at(const PaqServer *server, int64 second, char zone[PAQ_ZONE_NAME_LEN])
{
	const pg_time_t time = second;
	const struct pg_tm *tm = pg_localtime(&time, log_timezone);

	/* A year that does not fit into an int, which no time of a record can have. */
	if (tm == NULL)
	{
		strlcpy(zone, "UTC", PAQ_ZONE_NAME_LEN);
		return 0;
	}
	/* Does without an abbreviation that is too long. */
	if (strlcpy(zone, tm->tm_zone, PAQ_ZONE_NAME_LEN) >= PAQ_ZONE_NAME_LEN)
		zone[0] = '\0';
	return tm->tm_gmtoff;
}

static PaqText
text_or_null(const char *str)
{
	PaqText		text = {NULL, 0};

	if (str != NULL && str[0] != '\0')
		text = (PaqText){
			str, strlen(str)
		};
	return text;
}

/* Valid until the next call.  A change of log_timezone makes a new generation. */
const PaqServer *
paq_trail_server(void)
{
	static PaqServer server;
	static const pg_tz *zone;
	static char host[256];

	if (likely(server.generation != 0 && zone == log_timezone))
		return &server;
	if (server.generation == 0)
	{
		/* The machine is asked for its name once; it may have none. */
		if (gethostname(host, sizeof(host) - 1) != 0)
			host[0] = '\0';
		server.host = text_or_null(host);
		server.version = text_or_null(PG_VERSION);
		server.cluster = text_or_null(cluster_name);
		server.system_identifier = GetSystemIdentifier();
		server.offset_at = log_timezone_offset_at;
	}
	zone = log_timezone;
	server.generation = paq_new_generation();
	return &server;
}
