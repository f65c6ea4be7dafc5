/*-------------------------------------------------------------------------
 *
 * rotate.c
 *		Names and formats of trail files, and when a new one is started.
 *
 * A new file is started when there is none or ours is gone, when a setting it
 * was opened with changed, and, if it holds records, by request, size or age.
 * Ages are counted as those of the server log: a file ends at a multiple of the
 * age in local time, so that a daily rotation is at midnight.
 *
 * Guarantees: never asks for a wake-up while the file is empty, so that an
 * idle server stays idle.
 *
 * What load_file.h declares is used by the loader, too, and does not raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <time.h>

#include "guc.h"
#include "sink/load_file.h"
#include "sink/sink_internal.h"
#include "stats.h"
#include "utils/timestamp.h"

/*
 * A file that is rotated by age is named after the planned time, unless that
 * is longer ago than this: then nobody would look for it there.
 */
#define MAX_NAME_DELAY	60		/* seconds */

/*
 * Size of a file that is to be loaded into the table, in kB.  It is removed
 * when it has been loaded and the next one has begun.
 */
#define LOAD_FILE_SIZE	(16 * 1024)

/* If a new file cannot be made, how long to wait before the next attempt, in s */
#define PUT_OFF_TIME	5

/* When to try again; 0: nothing was put off */
static pg_time_t put_off_until = 0;

/* Directory of the files to be loaded; it need not exist. */
const char *
paq_load_directory(void)
{
	static char path[MAXPGPATH];

	/* The setting cannot change while the server runs, and leaves space. */
	if (path[0] == '\0')
		snprintf(path, sizeof(path), "%s/load", paq_queue_directory);
	return path;
}

/* Path of a file to be loaded; false if it is too long. */
bool
paq_load_file_path(char *dst, Size size, const PaqLoadFile *file)
{
	char		suffix[16] = "";

	if (file->suffix != 0)
		snprintf(suffix, sizeof(suffix), ".%u", file->suffix);
	return snprintf(dst, size, "%s/%016llX-%016llX%s.json",
					paq_load_directory(),
					(unsigned long long) file->series,
					(unsigned long long) file->sequence, suffix) < (int) size;
}

/*
 * Is path, with or without our directory, that of a file to be loaded?  If so
 * *file says what the name tells.
 */
bool
paq_load_file_parse(const char *path, PaqLoadFile *file)
{
	const char *separator = last_dir_separator(path);
	const char *name = separator ? separator + 1 : path;
	unsigned long long series;
	unsigned long long sequence;
	char		again[MAXPGPATH];

	file->suffix = 0;
	if (sscanf(name, "%16llX-%16llX.%10u", &series, &sequence, &file->suffix) < 2 ||
		series == 0)
		return false;
	file->series = series;
	file->sequence = sequence;

	/* sscanf() accepts more than what we would have written. */
	return paq_load_file_path(again, sizeof(again), file) &&
		strcmp(separator ? path : name,
			   separator ? again : last_dir_separator(again) + 1) == 0;
}

/* Directory that the settings ask for now. */
const char *
paq_trail_directory(void)
{
	return paq_sink == PAQ_SINK_TABLE ? paq_load_directory() : paq_log_directory;
}

/* Is a file with that path in this directory? */
bool
paq_trail_is_inside(const char *path)
{
	const char *directory = paq_trail_directory();
	const Size	len = strlen(directory);

	return strncmp(path, directory, len) == 0 &&
		last_dir_separator(path) == path + len;
}

/* Pattern of names likewise; "" where there is none. */
const char *
paq_trail_pattern(void)
{
	return paq_sink == PAQ_SINK_TABLE ? "" : paq_log_filename;
}

static const PaqFormat *
format_of_kind(int kind)
{
	const PaqFormat *const formats[] = {
		[PAQ_FORMAT_PGAUDIT] = paq_format_pgaudit(&paq_log_line_prefix),
		[PAQ_FORMAT_CSVLOG] = paq_format_csvlog(),
		[PAQ_FORMAT_JSON] = paq_format_json(&paq_json_nulls)
	};

	return kind < lengthof(formats) ? formats[kind] : NULL;
}

/* Format that the settings ask for now; the loader reads json only. */
const PaqFormat *
paq_trail_format(void)
{
	return format_of_kind(paq_sink == PAQ_SINK_TABLE ? PAQ_FORMAT_JSON : paq_format);
}

/* Format of the file called path, going by its name; NULL if it is none of ours. */
const PaqFormat *
paq_trail_format_of(const char *path)
{
	const PaqFormat *format;
	PaqLayers	layers;
	Size		len = paq_layers_of_name(path, &layers);

	for (int kind = 0; (format = format_of_kind(kind)) != NULL; kind++)
	{
		Size		ext_len = strlen(format->extension);

		if (len > ext_len &&
			strncmp(path + len - ext_len, format->extension, ext_len) == 0)
			return format;
	}
	return NULL;
}

/* Length of such a path without its endings */
Size
paq_trail_stem(const char *path)
{
	const PaqFormat *format = paq_trail_format_of(path);
	PaqLayers	layers;
	Size		len = paq_layers_of_name(path, &layers);

	return format != NULL ? len - strlen(format->extension) : len;
}

/* Permissions that the settings ask for; we ourselves have to read and write. */
int
paq_trail_mode(void)
{
	return paq_log_file_mode | S_IRUSR | S_IWUSR;
}

/*
 * May the next file have other records with sequences that have been used
 * before?  So it is if the current file is an earlier worker's, because our
 * queue may be older than that file; and if records at its end will be written
 * again.
 */
static bool
series_is_over(void)
{
	return paq_trail.found || paq_trail.gone || paq_trail.written > paq_trail.offset;
}

/* Path of a file to be loaded that begins where the current one ends. */
static bool
load_file_name(char *dst, Size size, int suffix)
{
	PaqLoadFile file;

	if (series_is_over() || !paq_load_file_parse(paq_trail.path, &file))
	{
		paq_trail.series = 0;
		if (!paq_trail_need_series())
			return false;
		file.series = paq_trail.series;
	}
	file.sequence = paq_trail.flushed_sequence;
	file.suffix = suffix;
	if (paq_load_file_path(dst, size, &file))
		return true;
	paq_sink_set_error("file name in directory \"%s\" is too long",
					   paq_load_directory());
	return false;
}

/*
 * Path of a file started at name_time; suffix, if not 0, tells it from others
 * of the same name.  Returns false, with an error noted, if there is no such
 * name.
 */
bool
paq_trail_name(char *dst, Size size, pg_time_t name_time, int suffix)
{
	char		name[MAXPGPATH];
	char		number[16] = "";
	const PaqLayers layers = paq_trail_layers();
	struct pg_tm *tm;

	if (paq_sink == PAQ_SINK_TABLE)
		return load_file_name(dst, size, suffix);
	tm = pg_localtime(&name_time, log_timezone);
	if (tm == NULL ||
		pg_strftime(name, sizeof(name), paq_log_filename, tm) == 0)
	{
		paq_sink_set_error("could not make a file name from \"%s\"",
						   paq_log_filename);
		return false;
	}
	/* Some escapes, like %D, have slashes: it is still a name. */
	for (char *p = name; *p != '\0'; p++)
		if (IS_DIR_SEP(*p))
			*p = '-';

	if (suffix != 0)
		snprintf(number, sizeof(number), ".%d", suffix);
	if (snprintf(dst, size, "%s/%s%s%s%s", paq_log_directory, name, number,
				 paq_trail_format()->extension,
				 paq_layers_ending(&layers)) >= (int) size)
	{
		paq_sink_set_error("file name made from \"%s\" is too long",
						   paq_log_filename);
		return false;
	}
	return true;
}

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

/* Would a file of this size have to be rotated? */
bool
paq_trail_is_full(uint64 size)
{
	int			limit = paq_sink == PAQ_SINK_TABLE ?
		LOAD_FILE_SIZE : paq_log_rotation_size;

	return limit > 0 && size >= (uint64) limit * 1024;
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
