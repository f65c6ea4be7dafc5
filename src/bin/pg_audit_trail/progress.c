/*-------------------------------------------------------------------------
 *
 * progress.c
 *		How far reading has got, on standard error, once a second.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <time.h>
#include <unistd.h>

/* Trails larger than this show it unasked, in bytes */
#define LARGE		(UINT64CONST(100) * 1024 * 1024)

#define MEGABYTE	(1024.0 * 1024.0)

static bool is_shown;
static bool was_shown;
static uint64 total_size;
static double began;
static double last_report;

static double
seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

void
progress_begin(const Options *options, uint64 total)
{
	total_size = total;
	began = last_report = seconds();
	is_shown = isatty(STDERR_FILENO) &&
		(options->progress || (total > LARGE && !isatty(STDOUT_FILENO)));
}

bool
progress_is_shown(void)
{
	return is_shown;
}

/* The trail has been read up to here; at the end, the line is finished. */
void
progress_report(uint64 done, bool finished)
{
	const double now = is_shown ? seconds() : 0;

	if (!is_shown || (finished ? !was_shown : now - last_report < 1))
		return;
	was_shown = true;
	last_report = now;
	fprintf(stderr, "\r%.0f/%.0f MB (%d%%), %.0f MB/s   %s",
			done / MEGABYTE, total_size / MEGABYTE,
			total_size > 0 ? (int) Min(done * 100 / total_size, 100) : 100,
			done / MEGABYTE / Max(now - began, 0.001), finished ? "\n" : "");
	fflush(stderr);
}
