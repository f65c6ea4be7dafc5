/*-------------------------------------------------------------------------
 *
 * files.c
 *		The files of a trail, and their order.
 *
 * Files may have been copied, renamed or touched: what orders them is the first record
 * of each.  A file without any is the newest, as a new one is.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <dirent.h>

/* Files of a format that does not fit, that are reported one by one */
#define MAX_REFUSED		10

/* The format that a file's name tells; false if it is none of a trail. */
bool
format_of_name(const char *name, Format *format)
{
	static const struct
	{
		const char *ending;
		Format		format;
	}			endings[] =
	{
		{".json", FORMAT_JSON},
		{".csv", FORMAT_CSVLOG},
		{".log", FORMAT_PGAUDIT}
	};
	PaqLayers	layers;
	const Size	len = paq_layers_of_name(name, &layers);

	/* what readers make of it */
	if (paq_is_block_file(name))
	{
		*format = FORMAT_JSON;
		return true;
	}
	for (int i = 0; i < lengthof(endings); i++)
	{
		const Size	ending_len = strlen(endings[i].ending);

		if (len > ending_len &&
			memcmp(name + len - ending_len, endings[i].ending, ending_len) == 0)
		{
			*format = endings[i].format;
			return true;
		}
	}
	return false;
}

static const char *
last_part(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash != NULL ? slash + 1 : path;
}

static TrailFile *
add_file(FileList *list, const char *path)
{
	TrailFile  *file;

	list->files = array_grow(list->files, list->count, &list->size, sizeof(TrailFile));
	file = &list->files[list->count++];
	memset(file, 0, sizeof(TrailFile));
	file->path = checked_strdup(path);
	file->name = last_part(file->path);
	return file;
}

/* When a file was written to for the last time: TimestampTz */
int64
time_written(const struct stat *st)
{
	return ((int64) st->st_mtim.tv_sec -
			(int64) (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * SECS_PER_DAY) * USECS_PER_SEC +
		st->st_mtim.tv_nsec / 1000;
}

static TrailFile *
add_regular_file(FileList *list, const char *path, Format format, const struct stat *st)
{
	TrailFile  *file = add_file(list, path);

	file->format = format;
	file->device = st->st_dev;
	file->inode = st->st_ino;
	file->size = st->st_size;
	file->written = time_written(st);
	return file;
}

/* What orders files: look for a record that has a time. */
void
find_file_time(TrailFile *file, const PaqKeys *keys)
{
	Source	   *source = file->is_stdin ? NULL : source_open(file, keys, true);
	Record		record = {0};

	while (source != NULL && !file->has_time &&
		   source_next(source, &record) == SOURCE_RECORD)
		file->has_time = record_time(&record, &file->time, &file->sequence);
	source_close(source);
	free(record.arena.data);
}

/* Compare names so that numbers in them are in order. */
static int
compare_names(const char *a, const char *b)
{
	while (*a != '\0' && *b != '\0')
	{
		const Size	a_digits = strspn(a, "0123456789");
		const Size	b_digits = strspn(b, "0123456789");

		if (a_digits > 0 && b_digits > 0 && a_digits != b_digits)
			return a_digits < b_digits ? -1 : 1;
		if (*a != *b)
			break;
		a++;
		b++;
	}
	return (unsigned char) *a - (unsigned char) *b;
}

/* For qsort */
static int
compare_files(const void *a, const void *b)
{
	const TrailFile *left = a;
	const TrailFile *right = b;

	if (left->has_time != right->has_time)
		return left->has_time ? -1 : 1;
	if (left->has_time && left->time != right->time)
		return left->time < right->time ? -1 : 1;
	if (left->sequence != right->sequence)
		return left->sequence < right->sequence ? -1 : 1;
	return compare_names(left->name, right->name);
}

/* Put files in order. */
void
sort_files(FileList *list, const PaqKeys *keys)
{
	if (list->count < 2)
		return;
	for (int i = 0; i < list->count; i++)
		if (!list->files[i].has_time)
			find_file_time(&list->files[i], keys);
	qsort(list->files, list->count, sizeof(TrailFile), compare_files);
}

/*
 * Add all files of a trail that are in a directory.  False, with a message, if it cannot
 * be read.
 */
bool
add_directory(FileList *list, const char *path)
{
	DIR		   *dir = opendir(path);
	struct dirent *entry;
	Buffer		name = {0};

	if (dir == NULL)
	{
		pg_log_error("could not open directory \"%s\": %m", path);
		note_status(STATUS_TROUBLE);
		return false;
	}
	while (errno = 0, (entry = readdir(dir)) != NULL)
	{
		struct stat st;
		Format		format;

		if (!format_of_name(entry->d_name, &format))
			continue;
		name.used = 0;
		buffer_puts(&name, path);
		if (name.data[name.used - 1] != '/')
			buffer_putc(&name, '/');
		buffer_puts(&name, entry->d_name);
		buffer_putc(&name, '\0');

		/* one that is gone again does not matter; a symbolic link is none of the server's */
		if (lstat(name.data, &st) == 0 && S_ISREG(st.st_mode))
			(void) add_regular_file(list, name.data, format, &st);
	}
	if (errno != 0)
	{
		pg_log_error("could not read directory \"%s\": %m", path);
		note_status(STATUS_TROUBLE);
	}
	closedir(dir);
	free(name.data);
	return true;
}

/* Add what a user has named; false, with a message, if that cannot be read. */
bool
add_path(FileList *list, const char *path)
{
	struct stat st;
	Format		format;

	if (strcmp(path, "-") == 0)
	{
		add_file(list, path)->is_stdin = true;
		return true;
	}
	if (stat(path, &st) != 0)
		pg_log_error("could not open \"%s\": %m", path);
	else if (S_ISDIR(st.st_mode))
		return add_directory(list, path);
	else if (!S_ISREG(st.st_mode))
		pg_log_error("\"%s\" is neither a file nor a directory", path);
	else if (!format_of_name(last_part(path), &format))
	{
		pg_log_error("file \"%s\" has an unknown ending", path);
		pg_log_error_hint("Names of trail files end in .trail, or in .json, .csv or .log, perhaps with .zst, .lz4 or .enc behind that.");
	}
	else
	{
		add_regular_file(list, path, format, &st)->is_named = true;
		return true;
	}
	note_status(STATUS_TROUBLE);
	return false;
}

void
free_files(FileList *list)
{
	for (int i = 0; i < list->count; i++)
		free(list->files[i].path);
	free(list->files);
	memset(list, 0, sizeof(FileList));
}

/* Name of the newest file of a directory; NULL if it has none, or cannot be read. */
static char *
find_newest(const char *directory, const PaqKeys *keys)
{
	FileList	list = {0};
	char	   *result = NULL;

	if (add_directory(&list, directory) && list.count > 0)
	{
		sort_files(&list, keys);
		result = checked_strdup(list.files[list.count - 1].name);
	}
	free_files(&list);
	return result;
}

/*
 * Returns true if there is no newer file in its directory: then it may be being written.  Each
 * directory is looked through once, later than the files to be read were listed.
 */
bool
is_newest_file(const TrailFile *file, const PaqKeys *keys)
{
	static Names directories;
	static char **newest;
	static int	count = 0;
	static int	size = 0;
	Buffer		directory = {0};
	uint64	   *number;
	bool		found;

	if (file->is_stdin)
		return true;
	buffer_put(&directory, file->path, file->name - file->path);
	buffer_puts(&directory, directory.used > 0 ? "" : ".");
	buffer_putc(&directory, '\0');
	number = names_add(&directories, directory.data, &found);
	if (!found)
	{
		newest = array_grow(newest, count, &size, sizeof(char *));
		newest[count] = find_newest(directory.data, keys);
		*number = count++;
	}
	free(directory.data);
	/* analyzer: the directory has been added, here or earlier */
	return newest[*number] == NULL || strcmp(newest[*number], file->name) == 0;
}

/*
 * The file does not end where a record does.  That is fine of the newest one; true if
 * something is wrong.
 */
bool
note_cut(const TrailFile *file, const PaqKeys *keys)
{
	if (is_newest_file(file, keys))
	{
		pg_log_info("file \"%s\" ends within a record; it is being written, or was cut off",
					file->path);
		return false;
	}
	pg_log_error("file \"%s\" ends within a record, but is not the newest one", file->path);
	note_status(STATUS_ALTERED);
	return true;
}

uint64
files_size(const FileList *list)
{
	uint64		result = 0;

	for (int i = 0; i < list->count; i++)
		result += list->files[i].size;
	return result;
}

/*
 * Can the file's records be printed, or counted, as the options want it?  Those of the formats
 * csvlog and pgaudit can only be written as they are.
 */
bool
fits_format(const TrailFile *file, const Options *options)
{
	return file->format == FORMAT_JSON ||
		(file->format == options->format && !filter_needs_fields(&options->filter));
}

/*
 * The file is of a format that does not fit.  If the user has named it, that is the end;
 * otherwise it is left out.
 */
void
refuse_format(const TrailFile *file, const Options *options)
{
	static int	nrefused = 0;

	note_status(STATUS_TROUBLE);
	if (++nrefused > MAX_REFUSED)
	{
		if (nrefused == MAX_REFUSED + 1)
			pg_log_error("more files are left out because of their format");
	}
	else if (options->format == FORMAT_TEXT || options->format == FORMAT_HTML)
	{
		pg_log_error("file \"%s\" is not of format json: a report cannot be made of it",
					 file->path);
	}
	else if (file->format != options->format)
	{
		pg_log_error("file \"%s\" cannot be written in format %s", file->path,
					 format_name(options->format));
		pg_log_error_hint("Use --format=%s.", format_name(file->format));
	}
	else
		pg_log_error("records of file \"%s\" can only be chosen by --text", file->path);
	if (file->is_named)
		leave(STATUS_TROUBLE);
}

/* What the user has named must fit.  Say so before anything is written. */
void
check_formats(const FileList *list, const Options *options)
{
	for (int i = 0; i < list->count; i++)
		if (list->files[i].is_named && !fits_format(&list->files[i], options))
			refuse_format(&list->files[i], options);
}
