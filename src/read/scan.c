/*-------------------------------------------------------------------------
 *
 * scan.c
 *		The records of the trail's files, one after the other, with any layers.
 *
 * Read are all files of format json in pg_audit_queue.log_directory, and those of blocks, whatever
 * their names are but for the ending, in the order in which they were written to last.
 * Files that were finished before the range began are not opened.  Those that were
 * begun behind its end are: the record of a statement that was interrupted by a crash
 * tells when it began, which may be long before.
 *
 * A scan ends where the trail ended when it began, so it comes to an end however
 * fast new records are written.  Memory is bounded by PAQ_MAX_LINE, and by what trail/block_text.c
 * says, whatever the files hold.
 *
 * Guarantees: opens no symbolic link and nothing that is not a regular file; descriptor,
 * keys and the libraries' memory are given back when the scan's memory context goes,
 * however that happens.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guc.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "read/read.h"
#include "sink/key_command.h"
#include "storage/fd.h"
#include "trail/layer.h"
#include "trail/part.h"
#include "trail/shorten.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define OPEN_FLAGS	(O_RDONLY | O_NOFOLLOW | O_NONBLOCK | PG_BINARY)

/*
 * A file is older than its records if the clock was set back in between: by so much it
 * may have been.
 */
#define CLOCK_TOLERANCE		(USECS_PER_HOUR)

/* Lines of a file that are reported one by one if they are no records */
#define MAX_REPORTS		10

/* Warnings of all scans of a query */
#define MAX_WARNINGS	100

typedef struct TrailFile
{
	char	   *path;
	const char *name;			/* the path's last part */
	char	   *shown;			/* the path, for people */
	TimestampTz written;		/* for the last time */
	uint64		size;			/* bytes, when the scan began */
} TrailFile;

struct PaqTrailScan
{
	MemoryContext context;
	PaqTrailRange range;
	PaqTrailCounts counts;
	PaqTrailReading *reading;
	List	   *files;			/* those to be read, with the one being read first */
	TimestampTz newest;			/* when the last of them was written to */

	/* The file being read */
	TrailFile  *file;			/* NULL: none */
	int			fd;				/* -1: none */
	PaqLayerReader *reader;		/* NULL: none */
	StringInfoData text;		/* of it */
	Size		start;			/* in text, of the next line */
	Size		scanned;		/* bytes from there on that have no newline */
	bool		cut;			/* it ends within a unit */
	bool		too_long;		/* the line has begun in: */
	PaqShortener shortener;
	uint64		nlines;			/* so far */
	uint64		nbad;			/* of them, no records */
	TimestampTz time;			/* of the last record that had one */
	PaqJoiner	joiner;
	bool		joined;			/* the record handed out points into that */
	const char *held;			/* line that comes after it, NULL: none */
	Size		held_len;
};

/* ----------
 * Files
 * ----------
 */

/* Returns true if that is the name of a file in format json, or of one that is read as such. */
static bool
is_json_name(const char *name)
{
	PaqLayers	layers;
	const Size	len = paq_layers_of_name(name, &layers);

	return paq_is_block_file(name) ||
		(len > strlen(".json") &&
		 memcmp(name + len - strlen(".json"), ".json", strlen(".json")) == 0);
}

static void
add_scanned_file(PaqTrailScan *scan, const char *directory, const char *name)
{
	char	   *path = psprintf("%s/%s", directory, name);
	char		shown_name[PAQ_SHOWN_NAME_LEN];
	struct stat st;
	TrailFile  *file;

	/* one that is gone again does not matter */
	if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
		return;
	scan->counts.files++;
	file = palloc(sizeof(TrailFile));
	file->path = path;
	file->name = path + strlen(directory) + 1;
	paq_show_name(shown_name, sizeof(shown_name), name, strlen(name));
	file->shown = psprintf("%s/%s", directory, shown_name);
	file->written = time_t_to_timestamptz(st.st_mtim.tv_sec) +
		st.st_mtim.tv_nsec / 1000;
	file->size = st.st_size;
	if (!TIMESTAMP_IS_NOBEGIN(scan->range.from) &&
		file->written < scan->range.from - CLOCK_TOLERANCE)
		scan->counts.old++;
	else
		scan->files = lappend(scan->files, file);
}

static int
compare_scanned_files(const ListCell *a, const ListCell *b)
{
	const TrailFile *left = lfirst(a);
	const TrailFile *right = lfirst(b);

	if (left->written != right->written)
		return left->written < right->written ? -1 : 1;
	return strcmp(left->name, right->name);
}

static void
find_files(PaqTrailScan *scan)
{
	const char *directory = paq_log_directory;
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;

	/* the worker makes it when it writes the first file */
	if (dir == NULL && errno == ENOENT)
		return;
	while ((de = ReadDir(dir, directory)) != NULL)
	{
		CHECK_FOR_INTERRUPTS();
		if (is_json_name(de->d_name))
			add_scanned_file(scan, directory, de->d_name);
	}
	FreeDir(dir);
	list_sort(scan->files, compare_scanned_files);
	if (scan->files != NIL)
		scan->newest = ((TrailFile *) llast(scan->files))->written;
}

/* May there be one more warning? */
static bool
may_warn(PaqTrailScan *scan)
{
	return scan->reading->nwarnings++ < MAX_WARNINGS;
}

/* Have the keys for the file, which is open, if it is encrypted. */
static void
need_keys(PaqTrailScan *scan)
{
	PaqTrailReading *reading = scan->reading;
	MemoryContext old_context;
	char		error[PAQ_LAYER_ERROR_LEN];

	if (reading->keys != NULL || !paq_is_encrypted(scan->file->name, scan->fd))
		return;
	old_context = MemoryContextSwitchTo(reading->context);
	reading->keys = paq_run_key_command(error);
	MemoryContextSwitchTo(old_context);
	CHECK_FOR_INTERRUPTS();
	if (reading->keys == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not get the key of audit trail file \"%s\"", scan->file->shown),
				 errdetail_internal("%s", error)));
}

/* Open the scan's next file; false if it is gone. */
static bool
open_scanned_file(PaqTrailScan *scan)
{
	struct stat st;

	scan->file = linitial(scan->files);

	/* There can be any number of scans, and the server needs files, too. */
	if (!AcquireExternalFD())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not open audit trail file \"%s\": %m", scan->file->shown),
				 errdetail("The session reads too many files at once.")));
	scan->fd = BasicOpenFile(scan->file->path, OPEN_FLAGS);
	if (scan->fd < 0)
	{
		const int	save_errno = errno;

		ReleaseExternalFD();
		errno = save_errno;
	}
	if (scan->fd < 0 && errno == ENOENT)
		return false;
	if (scan->fd < 0 || fstat(scan->fd, &st) != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open audit trail file \"%s\": %m", scan->file->shown)));
	if (!S_ISREG(st.st_mode))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a regular file", scan->file->shown)));
	need_keys(scan);
	scan->counts.opened++;
	scan->reader = paq_layer_reader_make(scan->fd, scan->file->name,
										 scan->reading->keys);
	scan->time = scan->file->written;
	return true;
}

static void
close_scanned_file(PaqTrailScan *scan)
{
	paq_layer_reader_free(scan->reader);
	scan->reader = NULL;
	if (scan->fd >= 0)
	{
		close(scan->fd);
		ReleaseExternalFD();
	}
	scan->fd = -1;
	scan->file = NULL;
	resetStringInfo(&scan->text);
	scan->start = scan->scanned = 0;
	scan->cut = scan->too_long = false;
	scan->nlines = scan->nbad = 0;
	scan->held = NULL;
	paq_join_forget(&scan->joiner);
}

/* Done with the file: say what has not been said about it. */
static void
finish_scanned_file(PaqTrailScan *scan)
{
	if (scan->nbad > MAX_REPORTS && may_warn(scan))
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg_plural("audit trail file \"%s\" has " UINT64_FORMAT " more line that is no record",
							   "audit trail file \"%s\" has " UINT64_FORMAT " more lines that are no records",
							   scan->nbad - MAX_REPORTS,
							   scan->file->shown, scan->nbad - MAX_REPORTS)));

	/* the worker may just be writing to the newest one */
	if (scan->file->written < scan->newest &&
		(scan->cut || scan->too_long || scan->start < scan->text.len) && may_warn(scan))
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("audit trail file \"%s\" ends within a record", scan->file->shown)));
	close_scanned_file(scan);
}

/* ----------
 * Lines
 * ----------
 */

/* The file cannot be read on.  False if that is because of what is in it. */
static bool
report_failure(PaqTrailScan *scan)
{
	bool		damaged;
	bool		whole;
	const char *error = paq_layer_reader_error(scan->reader, &damaged);

	if (!damaged)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("could not read audit trail file \"%s\": %s",
						scan->file->shown, error)));
	if (may_warn(scan))
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("audit trail file \"%s\" is damaged from byte " UINT64_FORMAT " on: %s",
						scan->file->shown,
						paq_layer_reader_offset(scan->reader, &whole), error)));

	/* what is before that was text, if no whole line */
	scan->start = scan->text.len;
	scan->too_long = false;
	return false;
}

/* Have more text of the file; false if there is none. */
static bool
read_scanned_file(PaqTrailScan *scan)
{
	const char *data;
	Size		len;
	bool		whole;

	CHECK_FOR_INTERRUPTS();
	if (scan->start > 0)
	{
		scan->text.len -= scan->start;
		memmove(scan->text.data, scan->text.data + scan->start, scan->text.len);
		scan->start = 0;
	}
	if (paq_layer_reader_offset(scan->reader, &whole) >= scan->file->size && whole)
		return false;
	switch (paq_layer_read(scan->reader, &data, &len))
	{
		case PAQ_LAYER_TEXT:
			appendBinaryStringInfo(&scan->text, data, len);
			return true;
		case PAQ_LAYER_CUT:
			scan->cut = true;
			return false;
		case PAQ_LAYER_END:
			return false;
		case PAQ_LAYER_FAILED:
			break;
	}
	return report_failure(scan);
}

/* So many bytes from the start on are of a line that is too long. */
static void
shorten_scanned_line(PaqTrailScan *scan, Size len)
{
	if (!scan->too_long)
		paq_shorten_begin(&scan->shortener, PAQ_SHORT_JSON);
	scan->too_long = true;
	paq_shorten_add(&scan->shortener, scan->text.data + scan->start, len);
	scan->start += len;
	scan->scanned = 0;
}

/*
 * The next line of the file, without its newline; false if there is none.  Either it
 * is in the text, or what is left of it in the shortener.
 */
static bool
next_scanned_line(PaqTrailScan *scan, const char **data, Size *len, bool *shortened)
{
	for (;;)
	{
		const char *start = scan->text.data + scan->start;
		const Size	used = scan->text.len - scan->start;
		const char *newline = used > scan->scanned ?
			memchr(start + scan->scanned, '\n', used - scan->scanned) : NULL;

		if (newline != NULL)
		{
			*data = start;
			*len = newline - start;
			*shortened = scan->too_long || *len > PAQ_MAX_LINE;
			if (*shortened)
			{
				shorten_scanned_line(scan, *len);
				paq_shorten_end(&scan->shortener);
				*data = scan->shortener.kept.data;
				*len = scan->shortener.kept.len;
				scan->start++;
			}
			else
				scan->start += *len + 1;
			scan->too_long = false;
			scan->scanned = 0;
			scan->nlines++;
			return true;
		}
		if (used > PAQ_MAX_LINE || (scan->too_long && used > 0))
			shorten_scanned_line(scan, used);
		else
			scan->scanned = used;
		if (!read_scanned_file(scan))
			return false;
	}
}

void
paq_trail_scan_report(PaqTrailScan *scan)
{
	if (++scan->nbad <= MAX_REPORTS && may_warn(scan))
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("line " UINT64_FORMAT " of audit trail file \"%s\" is no record",
						scan->nlines, scan->file->shown)));
}

/* Is the record in the range?  Otherwise so is, perhaps, a later one. */
static bool
record_is_wanted(PaqTrailScan *scan, PaqTrailRecord *record)
{
	const PaqTrailRange *range = &scan->range;
	int64		sequence;

	/* One without a time, as a GAP may be, counts for that of the one before it. */
	if (paq_line_time(&record->line.value[PAQ_TRAIL_LOG_TIME], &record->time))
		scan->time = record->time;
	else
		record->time = scan->time;
	return record->time >= range->from && record->time <= range->to &&
		(!paq_line_number(&record->line.value[PAQ_TRAIL_SEQUENCE], &sequence) ||
		 (sequence >= range->first_sequence && sequence <= range->last_sequence));
}

/*
 * Of a record in parts, the first one has to do: it has all fields, but not all of its
 * texts.
 */
static bool
use_first_part(PaqTrailRecord *record)
{
	record->line.value[PAQ_TRAIL_PART].kind = PAQ_VALUE_ABSENT;
	record->shortened = true;
	return true;
}

/*
 * The joiner has a first part, and nothing more comes of it; too_long: because there is too much
 * of it.
 */
static bool
give_up_parts(PaqTrailScan *scan, bool too_long, PaqTrailRecord *record)
{
	const PaqJoiner *joiner = &scan->joiner;
	const char *kept = joiner->kept.data;

	if (!too_long && may_warn(scan))
		ereport(WARNING,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("audit trail file \"%s\" has " INT64_FORMAT " of " INT64_FORMAT " parts of the record with sequence " INT64_FORMAT,
						scan->file->shown, joiner->number, joiner->count,
						joiner->sequence - joiner->number + 1)));
	scan->joined = true;
	return paq_line_parse(kept, joiner->first_len, &record->line) && use_first_part(record);
}

/*
 * The line was parsed.  Make *record the record that it is, or the last part of.  False if
 * there is none yet.
 */
static bool
assemble(PaqTrailScan *scan, const char *data, Size len, PaqTrailRecord *record)
{
	const PaqJoinResult result = paq_join_line(&scan->joiner, data, len, &record->line,
											   PAQ_MAX_LINE);
	PaqPartInfo part;

	switch (result)
	{
		case PAQ_JOIN_NONE:
			if (!paq_part_info(&record->line, &part))
				return true;
			return part.number == 1 && use_first_part(record);
		case PAQ_JOIN_MORE:
			break;
		case PAQ_JOIN_DONE:
			scan->joined = true;
			return paq_line_parse(scan->joiner.joined.data, scan->joiner.joined.len,
								  &record->line);
		case PAQ_JOIN_BROKEN:
		case PAQ_JOIN_TOO_LONG:
			scan->held = data;
			scan->held_len = len;
			return give_up_parts(scan, result == PAQ_JOIN_TOO_LONG, record);
	}
	return false;
}

/* The line that was held back, or the next one of the file; see next_scanned_line(). */
static bool
take_line(PaqTrailScan *scan, const char **data, Size *len, bool *shortened)
{
	if (scan->joined)
		paq_join_forget(&scan->joiner);
	scan->joined = *shortened = false;
	if (scan->held == NULL)
		return next_scanned_line(scan, data, len, shortened);
	*data = scan->held;
	*len = scan->held_len;
	scan->held = NULL;
	return true;
}

/* The next record of the file being read; false if there is none. */
static bool
next_record(PaqTrailScan *scan, PaqTrailRecord *record)
{
	const char *data;
	Size		len;

	record->path = scan->file->shown;
	while (take_line(scan, &data, &len, &record->shortened))
	{
		CHECK_FOR_INTERRUPTS();
		if (!paq_line_parse(data, len, &record->line) ||
			!paq_line_has(&record->line, PAQ_TRAIL_TYPE))
			paq_trail_scan_report(scan);
		else if (assemble(scan, data, len, record) && record_is_wanted(scan, record))
			return true;
	}

	/* the worker may just be writing to the newest one */
	return paq_join_is_pending(&scan->joiner) && scan->file->written < scan->newest &&
		give_up_parts(scan, false, record) && record_is_wanted(scan, record);
}

/* ----------
 * Scans
 * ----------
 */

bool
paq_trail_scan_next(PaqTrailScan *scan, PaqTrailRecord *record)
{
	MemoryContext old_context = MemoryContextSwitchTo(scan->context);
	bool		found = false;

	while (!found && scan->files != NIL)
	{
		if (scan->file == NULL && !open_scanned_file(scan))
		{
			scan->file = NULL;
			scan->counts.gone++;
		}
		else
			found = next_record(scan, record);
		if (!found)
		{
			if (scan->file != NULL)
				finish_scanned_file(scan);
			scan->files = list_delete_first(scan->files);
			if (scan->files == NIL && scan->counts.gone > 0 && may_warn(scan))
				ereport(WARNING,
						(errmsg_plural("%d file of the audit trail was removed while the trail was being read",
									   "%d files of the audit trail were removed while the trail was being read",
									   scan->counts.gone, scan->counts.gone)));
		}
	}
	MemoryContextSwitchTo(old_context);
	return found;
}

const PaqTrailCounts *
paq_trail_scan_counts(const PaqTrailScan *scan)
{
	return &scan->counts;
}

/* The memory context goes. */
static void
forget_scan(void *arg)
{
	close_scanned_file(arg);
}

static void
forget_reading(void *arg)
{
	PaqTrailReading *reading = arg;

	paq_keys_free(reading->keys);
}

PaqTrailReading *
paq_trail_reading_make(void)
{
	PaqTrailReading *reading = palloc0(sizeof(PaqTrailReading));

	reading->context = CurrentMemoryContext;
	reading->callback.func = forget_reading;
	reading->callback.arg = reading;
	MemoryContextRegisterResetCallback(reading->context, &reading->callback);
	return reading;
}

PaqTrailScan *
paq_trail_scan_begin(PaqTrailReading *reading, const PaqTrailRange *range)
{
	MemoryContext context = AllocSetContextCreate(reading->context, "audit trail scan",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	MemoryContextCallback *callback = palloc(sizeof(MemoryContextCallback));
	PaqTrailScan *scan = palloc0(sizeof(PaqTrailScan));

	scan->context = context;
	scan->reading = reading;
	scan->range = *range;
	scan->fd = -1;
	initStringInfo(&scan->text);
	callback->func = forget_scan;
	callback->arg = scan;
	MemoryContextRegisterResetCallback(context, callback);
	find_files(scan);
	MemoryContextSwitchTo(old_context);
	return scan;
}

void
paq_trail_scan_end(PaqTrailScan *scan)
{
	MemoryContextDelete(scan->context);
}
