/*-------------------------------------------------------------------------
 *
 * files.c
 *		Files to be loaded: which there are, their lines, and their end.
 *
 * The files of a series are read in the order of their sequences; the series
 * that the worker writes now comes last.  The worker may take back what is not
 * durable - it does so if an fsync fails - so of the file that it writes, lines
 * are read only up to the sequence that is.  All others are finished: a worker
 * never goes on with a file that it finds.
 *
 * A file is removed when all of its records are in the table for good, and the
 * worker does not need it any more (paq_loading_settled()); never the one that the
 * worker writes to.  The rows are looked up first: what load_state says is not
 * enough.  A file with a record that is not in the table gets a second name before
 * that, and stays under it.
 *
 * Guarantees: opens no symbolic link and nothing that is not a regular file;
 * reads a line of any length in bounded memory.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/format.h"
#include "guc.h"
#include "load/load_internal.h"
#include "miscadmin.h"
#include "read/read.h"
#include "stats.h"
#include "storage/fd.h"
#include "trail/shorten.h"
#include "utils/memutils.h"

#define OPEN_FLAGS	(O_RDONLY | O_NOFOLLOW | O_NONBLOCK | PG_BINARY)
#define READ_SIZE	(256 * 1024)

typedef struct LoadedFile
{
	char		path[MAXPGPATH];
	PaqLoadFile name;
	bool		was_current;	/* the worker has written to it since we run */
	bool		read;			/* to its end, and it is not the current one */
	uint64		end;			/* the worker has taken back what is beyond that
								 * sequence; PG_UINT64_MAX: not known yet */
	uint64		offset;			/* of the next line */
	uint64		last;			/* sequence of the last line read */
	List	   *days;			/* DayLines, of the lines read */
} LoadedFile;

/* How many lines are filed under a day */
typedef struct DayLines
{
	int			day;			/* DAY_UNKNOWN: that on which they were loaded */
	uint64		lines;
} DayLines;

#define DAY_UNKNOWN		INT_MAX

/* Files that are known, in order of reading */
static List *files = NIL;
static char current_path[MAXPGPATH];	/* of the current one; "" for none */

/* The file being read */
static LoadedFile *reading = NULL;
static int	fd = -1;

/* What was read of it and not handed out yet */
static struct
{
	char	   *data;			/* NULL: nothing is allocated */
	Size		size;
	Size		start;			/* of what was not handed out */
	Size		end;
	uint64		skipped;		/* bytes of the line that are no longer here, but
								 * in the shortener */
	Size		line_size;		/* of the line handed out, with its newline */
}			buffer;

static PaqShortener shortener;

/* Is there a line to be loaded? */
typedef enum LineResult
{
	LINE_READY,
	LINE_NOT_DURABLE,			/* the worker may take it back yet */
	LINE_NONE					/* this is the end of the file, for now */
} LineResult;

/*
 * Forget what was read and not handed out: the worker may take it back and
 * write something else.
 */
static void
drop_buffer(void)
{
	buffer.start = buffer.end = 0;
	buffer.skipped = 0;
	buffer.line_size = 0;
}

static void
close_loaded_file(void)
{
	if (fd >= 0)
	{
		close(fd);
		ReleaseExternalFD();
	}
	fd = -1;
	reading = NULL;
	if (buffer.data != NULL)
		pfree(buffer.data);
	memset(&buffer, 0, sizeof(buffer));
}

static void
free_file(LoadedFile *file)
{
	list_free_deep(file->days);
	pfree(file);
}

/* Forget what was read: the files are read from their beginnings again. */
void
paq_files_forget(void)
{
	ListCell   *lc;

	close_loaded_file();
	foreach(lc, files)
		free_file(lfirst(lc));
	list_free(files);
	files = NIL;
	current_path[0] = '\0';
}

/*
 * The file that the worker writes to; false if there is none, or if it is not
 * one to be loaded.
 */
static bool
find_current(char *path, PaqLoadFile *name)
{
	paq_stats_read(path, paq_stats->worker.current_file, MAXPGPATH);
	return paq_load_file_parse(path, name);
}

static int
compare_loaded_files(const ListCell *a, const ListCell *b)
{
	const PaqLoadFile *x = &((const LoadedFile *) lfirst(a))->name;
	const PaqLoadFile *y = &((const LoadedFile *) lfirst(b))->name;
	PaqLoadFile current;

	if (x->series != y->series)
	{
		if (paq_load_file_parse(current_path, &current) &&
			(x->series == current.series || y->series == current.series))
			return x->series == current.series ? 1 : -1;
		return x->series < y->series ? -1 : 1;
	}
	if (x->sequence != y->sequence)
		return x->sequence < y->sequence ? -1 : 1;
	return x->suffix < y->suffix ? -1 : x->suffix > y->suffix;
}

static LoadedFile *
find_file(const char *path)
{
	ListCell   *lc;

	foreach(lc, files)
	{
		LoadedFile *file = lfirst(lc);

		if (strcmp(file->path, path) == 0)
			return file;
	}
	return NULL;
}

/* Add a file, unless it is known or no file. */
static void
add_loaded_file(const PaqLoadFile *name)
{
	char		path[MAXPGPATH];
	struct stat st;
	MemoryContext old_context;
	LoadedFile *file;

	if (!paq_load_file_path(path, sizeof(path), name) ||
		find_file(path) != NULL ||
		lstat(path, &st) != 0 || !S_ISREG(st.st_mode))
		return;
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	file = palloc0(sizeof(LoadedFile));
	strlcpy(file->path, path, sizeof(file->path));
	file->name = *name;
	file->last = name->sequence;
	file->end = PG_UINT64_MAX;
	files = lappend(files, file);
	MemoryContextSwitchTo(old_context);
}

/*
 * The worker has begun a file.  If the file is of a new series, it repeats what
 * was not durable yet in the series before.
 */
static void
end_series(const PaqLoadFile *begun)
{
	ListCell   *lc;

	foreach(lc, files)
	{
		LoadedFile *file = lfirst(lc);

		if (file->was_current && file->name.series != begun->series)
			file->end = Min(file->end, begun->sequence);
	}
}

/*
 * Find the files, unless the worker still writes to the same one as last time.
 * False if it writes to none: then it is not known yet where the files end, and
 * nothing must be read.  May raise an error.
 */
bool
paq_files_scan(void)
{
	char		path[MAXPGPATH];
	PaqLoadFile name;
	LoadedFile *file;
	DIR		   *dir;
	struct dirent *de;

	if (!find_current(path, &name))
		return false;
	if (strcmp(path, current_path) == 0)
		return true;
	strlcpy(current_path, path, sizeof(current_path));
	end_series(&name);
	dir = AllocateDir(paq_load_directory());
	while ((de = ReadDir(dir, paq_load_directory())) != NULL)
		if (strchr(de->d_name, '/') == NULL &&
			paq_load_file_parse(de->d_name, &name))
			add_loaded_file(&name);
	FreeDir(dir);
	list_sort(files, compare_loaded_files);
	file = find_file(current_path);
	if (file != NULL)
		file->was_current = true;
	return true;
}

/* Open the file for reading from its offset on; false if it is gone. */
static bool
open_loaded_file(LoadedFile *file)
{
	struct stat st;

	close_loaded_file();
	fd = BasicOpenFile(file->path, OPEN_FLAGS);
	if (fd < 0 && errno == ENOENT)
		return false;
	if (fd < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", file->path)));
	ReserveExternalFD();
	reading = file;
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("\"%s\" is not a regular file", file->path)));
	return true;
}

/* Make space for READ_SIZE bytes behind what is in the buffer. */
static void
need_space(void)
{
	if (buffer.start > 0)
	{
		memmove(buffer.data, buffer.data + buffer.start, buffer.end - buffer.start);
		buffer.end -= buffer.start;
		buffer.start = 0;
	}
	if (buffer.size - buffer.end >= READ_SIZE)
		return;
	buffer.size = Max(2 * READ_SIZE, buffer.size * 2);
	buffer.data = buffer.data == NULL ?
		MemoryContextAlloc(TopMemoryContext, buffer.size) :
		repalloc_huge(buffer.data, buffer.size);
}

/* Read on; false if there is no more now. */
static bool
read_loaded_file(void)
{
	const uint64 pos = reading->offset + buffer.skipped + (buffer.end - buffer.start);
	ssize_t		n;

	need_space();
	n = pread(fd, buffer.data + buffer.end, READ_SIZE, pos);
	if (n < 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read file \"%s\": %m", reading->path)));
	buffer.end += n;
	return n > 0;
}

/* Shorten the line that begins at buffer.start, so many bytes of it; ends: these are the last. */
static void
shorten_line(Size len, bool ends)
{
	MemoryContext old_context = MemoryContextSwitchTo(TopMemoryContext);

	if (buffer.skipped == 0)
		paq_shorten_begin(&shortener, PAQ_SHORT_JSON);
	paq_shorten_add(&shortener, buffer.data + buffer.start, len);
	if (ends)
		paq_shorten_end(&shortener);
	MemoryContextSwitchTo(old_context);
}

/*
 * Find the end of the line that begins at buffer.start; false if there is none
 * yet.  A line that is too long is shortened, once.
 */
static bool
find_newline(void)
{
	Size		seen = 0;

	if (buffer.line_size > 0)
		return true;
	for (;;)
	{
		const char *start = buffer.data + buffer.start;
		Size		used = buffer.end - buffer.start;
		const char *newline = used > seen ?
			memchr(start + seen, '\n', used - seen) : NULL;

		if (newline != NULL)
		{
			buffer.line_size = newline + 1 - start;
			if (buffer.skipped + buffer.line_size - 1 > PAQ_MAX_LINE)
				shorten_line(buffer.line_size - 1, true);
			return true;
		}
		if (buffer.skipped + used > PAQ_MAX_LINE)
		{
			CHECK_FOR_INTERRUPTS();
			shorten_line(used, false);
			buffer.skipped += used;
			buffer.end = buffer.start;
			used = 0;
		}
		seen = used;
		if (!read_loaded_file())
			return false;
	}
}

/* The next line of the file being read, if it may be loaded. */
static LineResult
get_line(PaqLoadLine *line, uint64 limit)
{
	if (!find_newline())
	{
		drop_buffer();
		return LINE_NONE;
	}
	line->path = reading->path;
	line->shortened = buffer.skipped + buffer.line_size - 1 > PAQ_MAX_LINE;
	if (line->shortened)
	{
		line->data = shortener.kept.data;
		line->len = shortener.kept.len;
	}
	else
	{
		line->data = buffer.data + buffer.start;
		line->len = buffer.line_size - 1;
	}
	line->series = reading->name.series;
	line->sequence = paq_find_sequence(paq_format_json(&paq_json_nulls),
									   line->data, line->len);
	if (!reading->was_current)
		return LINE_READY;
	if (line->sequence > 0 && line->sequence <= limit &&
		line->sequence <= reading->end)
		return LINE_READY;
	drop_buffer();
	return reading->end == PG_UINT64_MAX ? LINE_NOT_DURABLE : LINE_NONE;
}

/*
 * The next line that may be loaded; false if there is none now.  Records are
 * durable up to the sequence "limit".  Returns the same line until
 * paq_files_skip_line() is called.  May raise an error.
 */
bool
paq_files_next_line(PaqLoadLine *line, uint64 limit)
{
	ListCell   *lc;

	if (reading != NULL && !reading->read && get_line(line, limit) == LINE_READY)
		return true;
	foreach(lc, files)
	{
		LoadedFile *file = lfirst(lc);
		LineResult	result = LINE_NONE;

		if (file->read)
			continue;
		if (file == reading || open_loaded_file(file))
			result = get_line(line, limit);
		if (result != LINE_NONE)
			return result == LINE_READY;
		if (strcmp(file->path, current_path) == 0)
			return false;
		file->read = true;
	}
	return false;
}

/* One more line is filed under the day. */
static void
count_line(LoadedFile *file, int day)
{
	ListCell   *lc;
	MemoryContext old_context;
	DayLines   *entry;

	foreach(lc, file->days)
	{
		entry = lfirst(lc);
		if (entry->day == day)
		{
			entry->lines++;
			return;
		}
	}
	old_context = MemoryContextSwitchTo(TopMemoryContext);
	entry = palloc(sizeof(DayLines));
	entry->day = day;
	entry->lines = 1;
	file->days = lappend(file->days, entry);
	MemoryContextSwitchTo(old_context);
}

/* Done with the line that was handed out. */
void
paq_files_skip_line(const PaqLoadLine *line)
{
	int			day;

	if (line->sequence > reading->name.sequence)
		count_line(reading, paq_row_day(line, &day) ? day : DAY_UNKNOWN);
	reading->offset += buffer.skipped + buffer.line_size;
	reading->last = Max(reading->last, line->sequence);
	buffer.start += buffer.line_size;
	buffer.skipped = 0;
	buffer.line_size = 0;
}

/*
 * Is the file under the other name the same, or all of a copy of it?  A base
 * backup copies both names.
 */
static bool
is_kept(const char *path, const char *kept)
{
	struct stat st;
	struct stat kept_st;

	return lstat(path, &st) == 0 && lstat(kept, &kept_st) == 0 &&
		S_ISREG(kept_st.st_mode) && kept_st.st_size >= st.st_size;
}

/*
 * Give the file a second name, under which it is kept; returns whether it had
 * none.
 */
static bool
keep_file(const LoadedFile *file)
{
	char		kept[MAXPGPATH + sizeof(PAQ_KEPT_SUFFIX)];

	snprintf(kept, sizeof(kept), "%s" PAQ_KEPT_SUFFIX, file->path);
	if (link(file->path, kept) == 0)
		return true;
	if (errno == EEXIST && is_kept(file->path, kept))
		return false;

	/* The beginning of a copy goes. */
	if (errno == EEXIST && unlink(kept) == 0 && link(file->path, kept) == 0)
		return true;
	ereport(ERROR,
			(errcode_for_file_access(),
			 errmsg("could not link file \"%s\" to \"%s\": %m",
					file->path, kept)));
}

/*
 * Keep the file being read under another name, too: it has a record that will
 * not be in the table, or not whole.
 */
void
paq_files_keep(void)
{
	(void) keep_file(reading);
}

/* Has the file been loaded for good, and will the worker not look for it any more? */
static bool
may_remove(const LoadedFile *file, uint64 settled)
{
	return file->read && settled > 0 &&
		(file->last <= settled || !file->was_current) &&
		strcmp(file->path, current_path) != 0;
}

/*
 * Does the table have a row for each line of the file?  Retention may have
 * dropped those of the days before first_day.
 */
static bool
is_in_table(const LoadedFile *file, int first_day)
{
	uint64		lines = 0;
	ListCell   *lc;

	foreach(lc, file->days)
	{
		const DayLines *entry = lfirst(lc);

		if (entry->day >= first_day)
			lines += entry->lines;
	}
	return lines == 0 ||
		paq_table_count(file->name.series, file->name.sequence, file->last,
						first_day) >= lines;
}

static void
remove_file(const LoadedFile *file)
{
	if (unlink(file->path) == 0 || errno == ENOENT)
		return;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not remove file \"%s\": %m", file->path),
			 errdetail("Its records are in the audit table.")));
}

/*
 * Remove the files that have been loaded.  All lines that were handed out
 * should be in the table, durably.  settled is the sequence behind which the
 * worker needs the files; of days before first_day the table may lack records.
 * Must be called in a transaction; may raise an error.
 */
void
paq_files_loaded(uint64 settled, int first_day)
{
	ListCell   *lc;

	foreach(lc, files)
	{
		LoadedFile *file = lfirst(lc);

		if (!may_remove(file, settled))
			continue;
		CHECK_FOR_INTERRUPTS();
		if (!is_in_table(file, first_day) && keep_file(file))
			ereport(WARNING,
					(errcode(ERRCODE_DATA_CORRUPTED),
					 errmsg("records of file \"%s\" are no longer in the audit table",
							file->path),
					 errdetail("The file is kept as \"%s" PAQ_KEPT_SUFFIX "\".",
							   file->path)));
		if (file == reading)
			close_loaded_file();
		remove_file(file);
		files = foreach_delete_current(files, lc);
		free_file(file);
	}
}

/* Is there a file that paq_files_loaded() would remove? */
bool
paq_files_removable(uint64 settled)
{
	ListCell   *lc;

	foreach(lc, files)
		if (may_remove(lfirst(lc), settled))
			return true;
	return false;
}

/* Is it known which files there are? */
bool
paq_files_known(void)
{
	return current_path[0] != '\0';
}

/*
 * Is there a file of the series?  If so, *start is the sequence behind which the
 * first of them begins.
 */
bool
paq_files_have(uint64 series, uint64 *start)
{
	ListCell   *lc;

	foreach(lc, files)
	{
		const LoadedFile *file = lfirst(lc);

		/* They are in the order of their sequences. */
		if (file->name.series == series)
		{
			*start = file->name.sequence;
			return true;
		}
	}
	return false;
}
