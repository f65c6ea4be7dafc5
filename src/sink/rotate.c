/*-------------------------------------------------------------------------
 *
 * rotate.c
 *		When a new trail file is started.
 *
 * A new file is started when there is none or ours is gone, when a setting it
 * was opened with changed, and, if it holds records, by request, size or age.
 * Ages are counted as those of the server log: a file ends at a multiple of the
 * age in local time, so that a daily rotation is at midnight.
 *
 * Guarantees: never asks for a wake-up while the file is empty, so that an
 * idle server stays idle.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "guc.h"
#include "sink/sink_internal.h"
#include "stats.h"
#include "utils/timestamp.h"

/*
 * A file that is rotated by age is named after the planned time, unless that
 * is longer ago than this: then nobody would look for it there.
 */
#define MAX_NAME_DELAY	60		/* seconds */

/* If a new file cannot be made, how long to wait before the next attempt, in s */
#define PUT_OFF_TIME	5

/* When to try again; 0: nothing was put off */
static pg_time_t put_off_until = 0;

/* Set when the file is too old: the next multiple of the age after from. */
void
paq_trail_plan_rotation(pg_time_t from)
{
	int64		age = (int64) paq_log_rotation_age * SECS_PER_MINUTE;
	struct pg_tm *tm = pg_localtime(&from, log_timezone);
	int64		offset = tm ? tm->tm_gmtoff : 0;
	int64		local = from + offset;

	paq_trail.rotation_age = paq_log_rotation_age;
	if (age > 0)
		paq_trail.next_rotation = local - local % age + age - offset;
}

/*
 * May the current file be written to?  Not if a setting it was opened with has
 * changed, nor if its directory is another server's.  Nor if it is an earlier
 * worker's that is to be loaded: the loader takes it for finished.
 */
static bool
may_go_on(void)
{
	return paq_trail.fd >= 0 && !paq_trail.gone &&
		paq_trail.format == paq_trail_format() &&
		paq_trail.mode == paq_trail_mode() &&
		paq_trail_layers_fit() &&
		paq_trail_is_inside(paq_trail.path) &&
		(paq_sink == PAQ_SINK_TABLE || paq_trail_lock(paq_log_directory)) &&
		strcmp(paq_trail.filename, paq_trail_pattern()) == 0 &&
		!(paq_trail.found && paq_sink == PAQ_SINK_TABLE);
}

/* Is it time for a new file?  If so, *name_time becomes its name's time. */
static bool
rotation_is_due(bool force, uint64 sequence, pg_time_t now,
				pg_time_t *name_time)
{
	bool		aged;

	*name_time = now;
	/* First, because what was in the file may have to be written again. */
	paq_trail_check(sequence);
	paq_trail_check_layers();
	if (!may_go_on())
		return true;

	if (paq_trail.rotation_age != paq_log_rotation_age)
		paq_trail_plan_rotation(now);
	aged = paq_log_rotation_age > 0 && now >= paq_trail.next_rotation;
	if (paq_trail.offset == 0)
	{
		/* An empty file grows no older. */
		if (aged)
			paq_trail_plan_rotation(now);
		return false;
	}
	if (force || paq_trail_is_full(paq_trail.offset))
		return true;
	if (aged && now - paq_trail.next_rotation <= MAX_NAME_DELAY)
		*name_time = paq_trail.next_rotation;
	return aged;
}

/* A new file cannot be made: the current one is better than nothing. */
static void
put_off(pg_time_t now)
{
	if (put_off_until == 0)
		ereport(WARNING,
				(errmsg("could not start a new audit trail file: %s",
						paq_sink_error()),
				 errdetail("The current file is written to until one can be made.")));
	paq_stats_worker_error(paq_sink_error());
	put_off_until = now + PUT_OFF_TIME;
}

/*
 * Cut off what is behind the last complete batch: it will be in the next file.
 * If that fails and the file has to be given up for other reasons, records that
 * are in the trail twice are better than a trail that ends here.
 */
static bool
finish_file(void)
{
	if (paq_trail.fd < 0 || paq_trail_cut_to_offset())
		return true;
	if (may_go_on())
		return false;
	ereport(LOG,
			(errmsg("records at the end of audit trail file \"%s\" are in the next file, too: %s",
					paq_trail.path, paq_sink_error())));
	return true;
}

PaqRotation
paq_sink_rotate_if_due(bool force, uint64 sequence, bool *flushed)
{
	pg_time_t	now = (pg_time_t) time(NULL);
	pg_time_t	name_time;

	*flushed = false;
	if (!rotation_is_due(force, sequence, now, &name_time))
		return PAQ_ROTATION_NONE;
	if (now < put_off_until && may_go_on())
		return PAQ_ROTATION_PUT_OFF;
	if (paq_trail.retreat)
	{
		paq_sink_set_error("file \"%s\" was removed or truncated before it was durable",
						   paq_trail.path);
		return PAQ_ROTATION_FAILED;
	}

	/* Later flushes are of the new file only, and so are cuts. */
	if (!paq_sink_flush(sequence))
		return PAQ_ROTATION_FAILED;
	*flushed = true;
	if (!finish_file() || !paq_seal_finish(sequence))
		return PAQ_ROTATION_FAILED;
	if (!paq_trail_create(name_time))
	{
		if (!may_go_on())
			return PAQ_ROTATION_FAILED;
		put_off(now);
		return PAQ_ROTATION_PUT_OFF;
	}
	if (put_off_until != 0)
		ereport(LOG,
				(errmsg("a new audit trail file could be started")));
	put_off_until = 0;
	paq_trail_plan_rotation(now);
	return PAQ_ROTATION_DONE;
}

TimestampTz
paq_sink_next_rotation(void)
{
	if (paq_trail.fd < 0 || paq_trail.offset == 0 ||
		paq_log_rotation_age == 0)
		return DT_NOEND;
	return time_t_to_timestamptz(Max(paq_trail.next_rotation, put_off_until));
}
