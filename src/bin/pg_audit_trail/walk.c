/*-------------------------------------------------------------------------
 *
 * walk.c
 *		The records of a trail, from a place on, in the order of their sequences.
 *
 * The worker says up to where the trail is durable (trail/place.h): nothing behind that
 * is read, for it may be written again in another way.  A file that the worker has left
 * for the next one is durable to its end.
 *
 * Which file comes next, the sequences of their first records tell, not names or times: a
 * clock may be set back, and files may be renamed.  Where a restored server has gone on in the
 * trail that it had, two series have the same sequences: the one that the walk is in comes
 * first, as a whole.  There, times matter, too: retention takes files with smaller sequences
 * than the place, that are not newer than it, for acknowledged (paq_place_until()), and
 * so the walk never goes on to a file while one is unread that would be one of these.  A
 * consumer that begins gets the series with the oldest file first, for the same reason: its
 * place does not tell which series was before.
 *
 * If what a consumer had not acknowledged is gone - removed by retention, because it was too
 * much, or by somebody - the walk says so and goes on with what there is.  What is there, and
 * cannot be read, ends it.  Of a file in which no record can be found nobody knows where it
 * belongs: it ends the walk where it may have what is missing, see may_miss().  Only what a file
 * lacks at its end is gone.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/ship.h"

#include <fcntl.h>
#include <unistd.h>

/* Gaps that are reported one by one */
#define MAX_REPORTS		10

/* A file of the directory */
typedef struct WalkFile
{
	TrailFile	file;
	uint64		series;			/* of its first record, */
	uint64		begun;			/* and its sequence; 0: none was found, */
	SourceResult found;			/* but this, */
	bool		damaged;		/* because of what is in the file, */
	uint64		looked_at;		/* up to that byte */
	bool		done;			/* all of it has been handed out */
} WalkFile;

struct Walk
{
	const char *directory;
	const PaqKeys *keys;
	bool		has_end;		/* has the worker said something yet? */
	PaqPlace	end;			/* up to there the trail is durable */
	int64		end_written;	/* when its file was last written to; 0: none */
	int			nfiles;			/* as the directory was looked through last */
	WalkFile   *files;

	PaqPlace	place;			/* behind the last record, */
	uint64		place_begun;	/* and series of the first record of its file; 0:
								 * the file is gone */
	int64		until;			/* see paq_place_until() */
	int64		lost_until;		/* what was last written to by then has been read */
	bool		begins;			/* it had not acknowledged anything */
	PaqPlace	skip;			/* records of its series up to its sequence have
								 * been handed out before */
	uint64		highest;		/* sequence handed out, in any series */
	WalkFile	current;		/* path NULL: none */
	bool		in_current;		/* the place is in it, and has its name */
	Source	   *source;			/* NULL: none */
	uint64		missing;		/* records, so far */
	int			nreports;
	bool		other_format;	/* that has been said */
};

/* The place behind the last record that was handed out */
const PaqPlace *
walk_place(const Walk *walk)
{
	return &walk->place;
}

/* Sequence of the last durable record of the trail; 0: unknown */
uint64
walk_last_sequence(const Walk *walk)
{
	return walk->has_end ? walk->end.sequence : 0;
}

/* Has the worker said up to where the trail is durable? */
bool
walk_has_end(const Walk *walk)
{
	return walk->has_end;
}

uint64
walk_missing(const Walk *walk)
{
	return walk->missing;
}

/* ----------
 * Files
 * ----------
 */

/* See up to where the trail is durable now. */
static void
look_at_end(Walk *walk)
{
	Buffer		path = {0};
	struct stat st;
	int			fd;

	/* The worker may have made another one. */
	buffer_printf(&path, "%s/%s", walk->directory, PAQ_FLUSHED_FILE);
	buffer_putc(&path, '\0');
	fd = open(path.data, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd >= 0 && paq_flushed_read(fd, &walk->end) == PAQ_PLACE_OK)
		walk->has_end = true;
	if (fd >= 0)
		close(fd);
	path.used = 0;
	buffer_printf(&path, "%s/%s", walk->directory, walk->end.file);
	buffer_putc(&path, '\0');
	walk->end_written = 0;
	if (walk->end.file[0] != '\0' && stat(path.data, &st) == 0)
		walk->end_written = time_written(&st);
	free(path.data);
}

static bool
is_end_file(const Walk *walk, const char *name)
{
	return walk->has_end && strcmp(walk->end.file, name) == 0;
}

static bool
is_gone(const WalkFile *file)
{
	struct stat st;

	return lstat(file->file.path, &st) != 0 && errno == ENOENT;
}

/* How far the file is looked into */
static uint64
end_of_look(const Walk *walk, const TrailFile *file)
{
	return is_end_file(walk, file->name) ? walk->end.offset : file->size;
}

/*
 * Find series and sequence of the file's first record that is durable.  If there is none, say what
 * is wrong, unless quiet.
 */
static void
look_into(const Walk *walk, WalkFile *file, bool quiet)
{
	Source	   *source = source_open(&file->file, walk->keys, quiet);
	Record		record = {0};

	file->begun = 0;
	file->damaged = false;
	file->looked_at = end_of_look(walk, &file->file);
	file->found = source == NULL && is_gone(file) ? SOURCE_END : SOURCE_FAILED;
	if (source != NULL)
	{
		source_limit(source, file->looked_at);
		file->found = source_next(source, &record);
		if (file->found != SOURCE_RECORD && source_bad_lines(source) > 0)
			file->found = SOURCE_FAILED;
		file->damaged = source_is_damaged(source) || source_bad_lines(source) > 0;
	}
	if (file->found == SOURCE_RECORD)
	{
		file->series = record_number(&record, PAQ_TRAIL_SERIES);
		file->begun = record_number(&record, PAQ_TRAIL_SEQUENCE);
	}
	if (file->found == SOURCE_RECORD && file->begun == 0)
	{
		file->found = SOURCE_FAILED;
		file->damaged = true;
		if (!quiet)
		{
			pg_log_error("file \"%s\": its first record has no sequence", file->file.path);
			note_status(STATUS_ALTERED);
		}
	}
	source_close(source);
	free(record.arena.data);
}

/*
 * The file as it was listed before; NULL if it was not.  A directory mostly lists its files in the
 * same order: *next is where the search begins.
 */
static const WalkFile *
find_known(const Walk *walk, const TrailFile *file, int *next)
{
	for (int i = 0; i < walk->nfiles; i++)
	{
		const int	at = (*next + i) % walk->nfiles;
		const WalkFile *known = &walk->files[at];

		if (known->file.device == file->device && known->file.inode == file->inode &&
			strcmp(known->file.name, file->name) == 0)
		{
			*next = at + 1;
			return known;
		}
	}
	return NULL;
}

/* Returns true if looking into the file again would find nothing else. */
static bool
is_settled(const Walk *walk, const WalkFile *known, const TrailFile *file)
{
	if (known->begun > 0)
		return true;
	return known->found == SOURCE_FAILED && known->file.written == file->written &&
		known->looked_at == end_of_look(walk, file);
}

/* Look through the directory. */
static void
list_files(Walk *walk)
{
	FileList	list = {0};
	WalkFile   *files;
	int			nfiles = 0;
	int			next_known = 0;

	if (!add_directory(&list, walk->directory))
		leave(STATUS_TROUBLE);
	files = checked_alloc((list.count + 1) * sizeof(WalkFile));
	for (int i = 0; i < list.count; i++)
	{
		WalkFile   *file = &files[nfiles];
		const WalkFile *known = find_known(walk, &list.files[i], &next_known);

		if (list.files[i].format != FORMAT_JSON)
		{
			free(list.files[i].path);
			continue;
		}
		if (known != NULL)
			*file = *known;
		file->file = list.files[i];
		if (known == NULL || !is_settled(walk, known, &file->file))
			look_into(walk, file, true);
		nfiles++;
	}
	for (int i = 0; i < walk->nfiles; i++)
		free(walk->files[i].file.path);
	free(walk->files);
	free(list.files);
	walk->files = files;
	walk->nfiles = nfiles;
}

/* Is the file of the series that the walk is in, and the worker in another one by now? */
static bool
is_of_left_series(const Walk *walk, const WalkFile *file)
{
	return file->series == walk->place.series && walk->end.series != walk->place.series;
}

/*
 * Is all that is in the file durable, or at least its beginning?  What is ahead of what the worker
 * says is so if it is of another series, which the worker has left: that is known of the series
 * that the walk is in, and of files that are older than what the worker has written.
 */
static bool
is_durable(const Walk *walk, const WalkFile *file)
{
	return is_end_file(walk, file->file.name) || file->begun <= walk->end.sequence ||
		is_of_left_series(walk, file) ||
		(file->series != walk->end.series && file->file.written < walk->end_written);
}

static bool
is_current_of_walk(const Walk *walk, const WalkFile *file)
{
	return walk->current.file.path != NULL &&
		file->file.device == walk->current.file.device &&
		file->file.inode == walk->current.file.inode;
}

/* Is that the file that the place is in, or has it been read before? */
static bool
is_behind(const Walk *walk, const WalkFile *file)
{
	const PaqPlace *place = &walk->place;

	/* Another file may begin with the same sequence, in another series. */
	if (file->begun == place->begun && file->series == walk->place_begun)
		return true;
	return file->begun <= place->begun && file->file.written <= walk->until;
}

/* Has the file to be read after the place? */
static bool
comes_later(const Walk *walk, const WalkFile *file)
{
	return file->begun > 0 && !file->done && !is_current_of_walk(walk, file) &&
		is_durable(walk, file) && !is_behind(walk, file);
}

/* When the file will have been written to for the last time, as far as the others tell */
static int64
time_of_end(const Walk *walk, const WalkFile *file)
{
	/* analyzer: never NULL, if a file comes later, there is a next one */
	return is_end_file(walk, file->file.name) ? PG_INT64_MAX : file->file.written;
}

/*
 * Does the worker's file have to wait for all others?  What a consumer that began before this
 * walk has of other series is not known: it stays in its own.
 */
static bool
comes_last(const Walk *walk, const WalkFile *file)
{
	return is_end_file(walk, file->file.name) &&
		(walk->begins || file->series != walk->place.series);
}

/*
 * Has the file, of another series than the place's, sequences that are before it?  Then there are
 * two series with the same ones, or a trail has begun anew.
 */
static bool
is_anew(const Walk *walk, const WalkFile *file)
{
	return file->series != walk->place.series && file->begun <= walk->place.sequence;
}

/*
 * Is the one file rather to be read than the other?  The rest of the place's series comes first.
 * Of the others, sequences tell, unless there are some that do not; then the older file comes
 * first, as it does where there is no place yet.
 */
static bool
is_preferred(const Walk *walk, bool by_time, const WalkFile *a, const WalkFile *b)
{
	const bool	a_last = comes_last(walk, a);
	const bool	b_last = comes_last(walk, b);
	const bool	a_stays = a->series == walk->place.series;
	const bool	b_stays = b->series == walk->place.series;

	if (a_last != b_last)
		return b_last;
	if (a_stays != b_stays)
		return a_stays;
	if (a->begun != b->begun && (a_stays || !by_time))
		return a->begun < b->begun;
	return a->file.written < b->file.written;
}

/*
 * Must the one file not be unread when the walk goes on to the other?  It is before it in its
 * series, or it would be behind a place in it.
 *
 * If the consumer began before this walk, what is not newer than the place has been read.  So has
 * a newer one with smaller sequences than a place in the series that the server is in: somebody
 * has touched it.
 */
static bool
must_precede(const Walk *walk, const WalkFile *a, const WalkFile *b)
{
	const int64 a_end = time_of_end(walk, a);
	const int64 b_end = time_of_end(walk, b);

	if (a->series == b->series)
		return a->begun < b->begun;
	if (!walk->begins &&
		(a->file.written <= walk->until ||
		 (walk->place.series == walk->end.series && a->begun <= walk->place.begun)))
		return false;
	return a->begun <= b->begun && a_end <= b_end && (a->begun < b->begun || a_end < b_end);
}

/* The file to be read next; NULL if there is none yet. */
static const WalkFile *
find_next(Walk *walk)
{
	bool		by_time = walk->place.sequence == 0;
	const WalkFile *next = NULL;
	const WalkFile *before;

	list_files(walk);
	for (int i = 0; i < walk->nfiles && !by_time; i++)
		by_time = comes_later(walk, &walk->files[i]) && is_anew(walk, &walk->files[i]);
	for (int i = 0; i < walk->nfiles; i++)
		if (comes_later(walk, &walk->files[i]) &&
			(next == NULL || is_preferred(walk, by_time, &walk->files[i], next)))
			next = &walk->files[i];

	/* Each step has a smaller sequence, or the same one and an older file. */
	do
	{
		before = NULL;
		for (int i = 0; i < walk->nfiles; i++)
		{
			const WalkFile *file = &walk->files[i];

			if (comes_later(walk, file) && must_precede(walk, file, next) &&
				(before == NULL || file->begun < before->begun))
				before = file;
		}
		if (before != NULL)
			next = before;
	} while (before != NULL);
	return next;
}

/* Returns true if the file may have records, and none can be found. */
static bool
is_unreadable(const Walk *walk, const WalkFile *file)
{
	/* What has been cut off may have just been begun by the worker. */
	return file->found == SOURCE_FAILED ||
		(file->found == SOURCE_CUT && file->file.written < walk->end_written);
}

/*
 * Returns true if records may be missing between those that were handed out and that file, or the
 * trail's end if it is NULL.  Sequences tell within a series; a consumer that begins does not know
 * what was before.
 */
static bool
may_miss(const Walk *walk, const WalkFile *next)
{
	const PaqPlace *place = &walk->place;

	if (place->sequence == 0)
		return true;
	if (next == NULL)
		return walk->end.sequence != place->sequence;
	return next->series != place->series || next->begun > place->sequence + 1;
}

/*
 * The file that may have what is missing before the next one, and cannot be read; NULL if there is
 * none.
 */
static WalkFile *
find_lost(Walk *walk, const WalkFile *next)
{
	if (!may_miss(walk, next))
		return NULL;
	for (int i = 0; i < walk->nfiles; i++)
	{
		WalkFile   *file = &walk->files[i];

		if (is_unreadable(walk, file) &&
			(file->file.written > walk->lost_until ||
			 strcmp(file->file.name, walk->place.file) == 0))
			return file;
	}
	return NULL;
}

/* Has the file the record that the place is behind? */
static bool
has_place(const Walk *walk, const WalkFile *file)
{
	Source	   *source = source_open(&file->file, walk->keys, true);
	Record		record = {0};
	bool		found = false;

	while (source != NULL && !found && source_next(source, &record) == SOURCE_RECORD)
		found = record_number(&record, PAQ_TRAIL_SERIES) == walk->place.series &&
			record_number(&record, PAQ_TRAIL_SEQUENCE) == walk->place.sequence;
	source_close(source);
	free(record.arena.data);
	return found;
}

/* The file that the place is in, whatever its name is now; NULL if it is gone. */
static const WalkFile *
find_place(Walk *walk)
{
	const PaqPlace *place = &walk->place;
	const WalkFile *renamed = NULL;

	list_files(walk);
	for (int i = 0; i < walk->nfiles && place->begun > 0; i++)
	{
		const WalkFile *file = &walk->files[i];

		if (file->begun != place->begun)
			continue;
		if (strcmp(file->file.name, place->file) == 0)
			return file;
		if (renamed == NULL && has_place(walk, file))
			renamed = file;
	}
	return renamed;
}

static void
close_current(Walk *walk)
{
	source_close(walk->source);
	walk->source = NULL;
	free(walk->current.file.path);
	memset(&walk->current, 0, sizeof(walk->current));
	walk->in_current = false;
}

/* Read that file, from an offset on.  False if it is gone, or cannot be opened. */
static bool
open_walked_file(Walk *walk, const WalkFile *file, uint64 offset)
{
	close_current(walk);
	walk->current = *file;
	walk->current.file.path = checked_strdup(file->file.path);
	walk->current.file.name = walk->current.file.path + (file->file.name - file->file.path);
	walk->source = source_open(&walk->current.file, walk->keys, false);
	if (walk->source == NULL)
	{
		close_current(walk);
		return false;
	}
	if (offset > 0 && !source_seek(walk->source, offset))
	{
		/* from its beginning; what was handed out is skipped */
		source_close(walk->source);
		walk->source = source_open(&walk->current.file, walk->keys, false);
	}
	if (walk->source == NULL)
	{
		close_current(walk);
		return false;
	}

	/* until set_limit() says how far */
	source_limit(walk->source, 0);
	return true;
}

/* ----------
 * Records
 * ----------
 */

/* Is the record's place one that the walk has been at?  If not, go there. */
static bool
go_behind(Walk *walk, const Record *record)
{
	PaqPlace   *place = &walk->place;
	const uint64 series = record_number(record, PAQ_TRAIL_SERIES);
	const uint64 sequence = record_number(record, PAQ_TRAIL_SEQUENCE);

	/* Another series goes on behind any of those before it. */
	const uint64 last = series == place->series ? place->sequence : walk->highest;

	if (series == walk->skip.series && sequence <= walk->skip.sequence)
		return false;
	if (sequence > last + 1 && place->sequence > 0)
	{
		walk->missing += sequence - last - 1;
		note_status(STATUS_ALTERED);
		if (walk->nreports++ < MAX_REPORTS)
			pg_log_error("records with sequence " UINT64_FORMAT " to " UINT64_FORMAT " are missing in the trail",
						 last + 1, sequence - 1);
	}
	walk->highest = Max(walk->highest, sequence);
	place->series = walk->skip.series = series;
	place->sequence = walk->skip.sequence = sequence;
	place->begun = walk->current.begun;
	walk->place_begun = walk->current.series;
	place->offset = source_mark(walk->source);
	if (!walk->in_current)
		strlcpy(place->file, walk->current.file.name, sizeof(place->file));
	walk->in_current = true;
	return true;
}

/*
 * May the current file be read, and how far?  Not if it is ahead of what the worker says:
 * after a crash of the operating system that may be old.  But a file that is gone from
 * the directory has been left by the worker.
 */
static bool
set_limit(Walk *walk)
{
	struct stat st;

	if (is_end_file(walk, walk->current.file.name))
		source_limit(walk->source, walk->end.offset);
	else if (!is_durable(walk, &walk->current) &&
			 stat(walk->current.file.path, &st) == 0 && source_is_file(walk->source, &st))
		return false;
	else
		source_limit(walk->source, PG_UINT64_MAX);
	return true;
}

/* The file cannot be read, or not further, which has been said. */
static void
give_up_file(const WalkFile *file, bool damaged)
{
	pg_log_error("nothing behind that is shipped");
	if (damaged)
		pg_log_error_hint("Keep a copy of file \"%s\", and take out what is damaged, or the file: what is missing then is reported, and shipping goes on.",
						  file->file.path);
}

/*
 * Say what is wrong with a file in which no record was found, unless one is by now, or the file is
 * gone: then false.
 */
static bool
give_up_lost(const Walk *walk, WalkFile *file)
{
	look_into(walk, file, false);
	if (!is_unreadable(walk, file))
		return false;
	if (file->found == SOURCE_CUT)
	{
		pg_log_error("file \"%s\" ends within its first record", file->file.path);
		note_status(STATUS_ALTERED);
	}
	give_up_file(file, file->damaged || file->found == SOURCE_CUT);
	return true;
}

/* The next record of the current file; SOURCE_FAILED: it cannot be read further. */
static SourceResult
next_of_file(Walk *walk, Record *record)
{
	SourceResult result;
	bool		damaged;

	do
	{
		result = source_next(walk->source, record);
		damaged = source_is_damaged(walk->source) || source_bad_lines(walk->source) > 0;
		if (damaged || result == SOURCE_FAILED)
		{
			give_up_file(&walk->current, damaged);
			return SOURCE_FAILED;
		}
	} while (result == SOURCE_RECORD && !go_behind(walk, record));
	return result;
}

/* There will be nothing more in the current file. */
static void
finish_walked_file(Walk *walk, SourceResult result)
{
	for (int i = 0; i < walk->nfiles; i++)
		if (is_current_of_walk(walk, &walk->files[i]))
			walk->files[i].done = true;
	if (result != SOURCE_CUT)
		return;
	pg_log_error("file \"%s\" ends within a record, but is not the newest one",
				 walk->current.file.path);
	note_status(STATUS_ALTERED);
}

/* Go on with the next file, from which WALK_RECORD is to be read; WALK_END: there is none yet. */
static WalkResult
open_next(Walk *walk, SourceResult result)
{
	for (;;)
	{
		const WalkFile *next = find_next(walk);
		WalkFile   *lost = find_lost(walk, next);

		if (lost != NULL)
		{
			if (give_up_lost(walk, lost))
				return WALK_STUCK;
			continue;
		}
		if (next == NULL)
			return WALK_END;
		if (walk->source != NULL)
			finish_walked_file(walk, result);
		if (open_walked_file(walk, next, 0))
			return WALK_RECORD;
		if (!is_gone(next))
		{
			give_up_file(next, false);
			return WALK_STUCK;
		}
	}
}

/* What the server writes in another format is not shipped.  Say so, once. */
static void
look_at_format(Walk *walk)
{
	Format		format;

	if (walk->other_format || walk->end.file[0] == '\0' ||
		!format_of_name(walk->end.file, &format) || format == FORMAT_JSON)
		return;
	walk->other_format = true;
	pg_log_error("file \"%s/%s\" is not of format json, and is not shipped",
				 walk->directory, walk->end.file);
	pg_log_error_hint("Set \"pg_audit_queue.format\" to json.");
	note_status(STATUS_ALTERED);
}

WalkResult
walk_next(Walk *walk, Record *record)
{
	SourceResult result = SOURCE_END;
	WalkResult	next;
	bool		may_read;

	if (walk->source != NULL)
		result = next_of_file(walk, record);
	if (result == SOURCE_RECORD)
		return WALK_RECORD;
	if (result == SOURCE_FAILED)
		return WALK_STUCK;
	look_at_end(walk);
	if (!walk->has_end)
		return WALK_END;
	look_at_format(walk);
	for (;;)
	{
		/* The worker may have gone on from this file since its end was reached. */
		may_read = walk->source == NULL || set_limit(walk);
		if (walk->source != NULL && may_read)
			result = next_of_file(walk, record);
		if (result == SOURCE_RECORD)
			return WALK_RECORD;
		if (result == SOURCE_FAILED)
			return WALK_STUCK;
		if (!may_read)
			source_limit(walk->source, 0);
		if (!may_read ||
			(walk->source != NULL && is_end_file(walk, walk->current.file.name)))
			return WALK_END;
		next = open_next(walk, result);
		if (next != WALK_RECORD)
			return next;
	}
}

/* Go on behind what the consumer has acknowledged. */
void
walk_set_place(Walk *walk, const PaqConsumer *consumer)
{
	const WalkFile *file;

	close_current(walk);
	walk->place = walk->skip = consumer->place;
	walk->highest = walk->place.sequence;
	walk->begins = consumer->place.begun == 0;
	look_at_end(walk);
	for (int i = 0; i < walk->nfiles; i++)
		walk->files[i].done = false;
	file = find_place(walk);
	walk->place_begun = file != NULL ? file->series : 0;
	walk->until = paq_place_until(consumer, file != NULL ? file->file.written : 0);
	walk->lost_until = consumer->record_time == 0 ? walk->until :
		Min(walk->until, consumer->record_time);
	if (file != NULL && !open_walked_file(walk, file, consumer->place.offset) && !is_gone(file))
		leave(STATUS_TROUBLE);
}

Walk *
walk_begin(const char *directory, const PaqKeys *keys)
{
	Walk	   *walk = checked_alloc(sizeof(Walk));

	walk->directory = directory;
	walk->keys = keys;
	look_at_end(walk);
	return walk;
}
