/*-------------------------------------------------------------------------
 *
 * follow.c
 *		pg_audit_trail follow: print records as they are written.
 *
 * The directory and the current file are looked at a few times a second.  The writer
 * finishes a file before it begins the next one: when there is another file, what
 * is left of the current one is read first.
 *
 * Files that are not new are known by what they are, not by their names: somebody may
 * rename them.  As a file that is gone may leave its number to a new one, these have to have
 * the same first record, too.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <time.h>

#define POLL_NS		(200 * 1000 * 1000)

/* After so many seconds, a time of the directory is certainly past. */
#define SETTLED		2

typedef struct Follow
{
	Options		options;
	bool		is_directory;
	FileList	known;			/* files of the directory, sorted */
	time_t		changed;		/* when it was changed last, as it says, */
	time_t		listed;			/* and when it was looked through */
	TrailFile	file;			/* the current one */
	Source	   *source;			/* NULL: there is none */
	Record		record;
} Follow;

/* The last records of a file, in a ring */
typedef struct LastRecords
{
	int64		size;
	int64		count;			/* of all that there were */
	Buffer	   *text;
} LastRecords;

/* Print what is wanted of the file from here on; the result of the last read. */
static SourceResult
print_new(Follow *follow)
{
	SourceResult result = SOURCE_END;

	if (!source_follow_truncation(follow->source))
		return SOURCE_FAILED;
	while (!stopped &&
		   (result = source_next(follow->source, &follow->record)) == SOURCE_RECORD)
		if (filter_matches(&follow->options.filter, &follow->record))
			print_record(&follow->options, &follow->record);
	output_flush();
	return stopped ? SOURCE_END : result;
}

/* Print the last records that the file has now. */
static void
print_last(Follow *follow)
{
	LastRecords last = {follow->options.last};

	last.text = checked_alloc((last.size + 1) * sizeof(Buffer));
	while (!stopped && source_next(follow->source, &follow->record) == SOURCE_RECORD)
		if (last.size > 0 && filter_matches(&follow->options.filter, &follow->record))
		{
			Buffer	   *text = &last.text[last.count++ % last.size];

			text->used = 0;
			buffer_put(text, follow->record.data, follow->record.len);
		}
	for (int64 i = Max(last.count - last.size, 0); i < last.count; i++)
	{
		follow->record.data = last.text[i % last.size].data;
		follow->record.len = last.text[i % last.size].used;
		follow->record.format = follow->file.format;
		if (follow->file.format != FORMAT_JSON || record_parse(&follow->record))
			print_record(&follow->options, &follow->record);
	}
	for (int64 i = 0; i < last.size; i++)
		free(last.text[i].data);
	free(last.text);
	output_flush();
}

/* Go on with that file. */
static void
open_followed_file(Follow *follow, const TrailFile *file)
{
	source_close(follow->source);
	free(follow->file.path);
	follow->file = *file;
	follow->file.path = checked_strdup(file->path);
	follow->file.name = follow->file.path + (file->name - file->path);
	follow->source = source_open(&follow->file, follow->options.keys, false);
	if (follow->source != NULL)
		source_join(follow->source, true);
}

static bool
is_same_file(const TrailFile *a, const TrailFile *b)
{
	return a->device == b->device && a->inode == b->inode &&
		(strcmp(a->name, b->name) == 0 ||
		 (a->has_time && b->has_time && a->time == b->time && a->sequence == b->sequence));
}

/* What was known of a file when the directory was last looked at */
static TrailFile *
find_known(Follow *follow, const TrailFile *file)
{
	for (int i = 0; i < follow->known.count; i++)
		if (is_same_file(&follow->known.files[i], file))
			return &follow->known.files[i];
	return NULL;
}

/*
 * Find out what orders the file, and whether it is to be read.  A file whose records
 * are older than the current one's is none that the writer has begun since.
 */
static void
look_at(Follow *follow, TrailFile *file)
{
	const TrailFile *known = find_known(follow, file);
	const struct stat st = {.st_dev = file->device, .st_ino = file->inode};

	if (!fits_format(file, &follow->options))
	{
		file->is_old = true;
		if (known == NULL)
			refuse_format(file, &follow->options);
		return;
	}
	if (known != NULL && known->has_time)
	{
		file->has_time = true;
		file->time = known->time;
		file->sequence = known->sequence;
	}
	else
	{
		find_file_time(file, follow->options.keys);
		known = find_known(follow, file);
	}
	if (follow->source != NULL && source_is_file(follow->source, &st))
	{
		follow->file.has_time = file->has_time;
		follow->file.time = file->time;
		file->is_old = true;
	}
	else if (known != NULL)
		file->is_old = known->is_old;
	else
		file->is_old = follow->file.has_time && file->has_time &&
			file->time < follow->file.time;
}

/*
 * Look through the directory, if it was changed.  Its time may have no parts of a second:
 * one that is not yet past could be that of several changes.
 */
static void
list_directory(Follow *follow)
{
	const char *path = follow->options.paths[0];
	const time_t now = time(NULL);
	struct stat st = {0};
	FileList	list = {0};

	if (stat(path, &st) == 0 && st.st_mtime == follow->changed &&
		st.st_mtime < follow->listed - SETTLED)
		return;
	follow->changed = st.st_mtime;
	follow->listed = now;
	if (!add_directory(&list, path))
		leave(STATUS_TROUBLE);
	for (int i = 0; i < list.count; i++)
		look_at(follow, &list.files[i]);
	sort_files(&list, follow->options.keys);
	free_files(&follow->known);
	follow->known = list;
}

/*
 * The oldest file that is to be read after the current one; NULL if there is none.  It
 * counts as old from then on.
 */
static TrailFile *
find_next(Follow *follow)
{
	list_directory(follow);
	for (int i = 0; i < follow->known.count; i++)
		if (!follow->known.files[i].is_old)
		{
			follow->known.files[i].is_old = true;
			return &follow->known.files[i];
		}
	return NULL;
}

/* Choose the file to begin with: the newest that has a record, if there is one. */
static void
find_first(Follow *follow)
{
	FileList   *list = &follow->known;
	int			first = -1;

	if (!add_directory(list, follow->options.paths[0]))
		leave(STATUS_TROUBLE);
	sort_files(list, follow->options.keys);
	for (int i = 0; i < list->count; i++)
	{
		list->files[i].is_old = !fits_format(&list->files[i], &follow->options);
		if (list->files[i].is_old)
			refuse_format(&list->files[i], &follow->options);
		else if (first < 0 || (list->files[i].has_time && !follow->options.all))
			first = i;
	}
	for (int i = 0; i <= first; i++)
		list->files[i].is_old = true;
	if (first >= 0)
		open_followed_file(follow, &list->files[first]);
}

/* Begin with what there is. */
static void
begin(Follow *follow)
{
	const char *path = follow->options.paths[0];
	struct stat st;
	FileList	list = {0};

	if (strcmp(path, "-") == 0)
		trouble("standard input cannot be followed");
	follow->is_directory = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	if (follow->is_directory)
		find_first(follow);
	else if (add_path(&list, path))
	{
		check_formats(&list, &follow->options);
		open_followed_file(follow, &list.files[0]);
	}
	free_files(&list);
	if (follow->source == NULL && !follow->is_directory)
		leave(STATUS_TROUBLE);
	if (follow->source != NULL && !follow->options.all)
		print_last(follow);
}

/* There is a newer file: nothing is written to the current one any more. */
static void
finish_followed_file(Follow *follow)
{
	if (follow->source == NULL)
		return;
	source_join(follow->source, false);
	if (print_new(follow) != SOURCE_CUT)
		return;
	pg_log_error("file \"%s\" ends within a record, but is not the newest one",
				 follow->file.path);
	note_status(STATUS_ALTERED);
}

void
run_follow(int argc, char **argv)
{
	static Follow follow;
	const struct timespec pause = {.tv_nsec = POLL_NS};

	parse_options(&follow.options, READER_FOLLOW, argc, argv);
	print_begin(&follow.options);
	stop_on_signals();
	begin(&follow);
	while (!stopped)
	{
		const TrailFile *next;

		if (follow.source != NULL)
			(void) print_new(&follow);
		next = follow.is_directory ? find_next(&follow) : NULL;
		if (next == NULL)
		{
			nanosleep(&pause, NULL);
			continue;
		}
		finish_followed_file(&follow);
		open_followed_file(&follow, next);
	}
	output_flush();
	filter_note_left_out(&follow.options.filter);
}
