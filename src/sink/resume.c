/*-------------------------------------------------------------------------
 *
 * resume.c
 *		Going on with the trail that an earlier worker has left.
 *
 * Normally the checkpoint in the queue file says exactly where the trail ends,
 * and what is behind that is a batch that was being written: it is cut off.
 * If the checkpoint may be wrong, nothing is cut off but a torn last record;
 * see salvage.c.  If there is none at all, because the queue file was lost,
 * the newest trail file in the directory tells where to go on counting, and
 * which records need not be written again; it is only read.
 *
 * Functions that return false have noted the reason for paq_sink_error().
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "guc.h"
#include "sink/sink_internal.h"
#include "storage/fd.h"

#define OPEN_FLAGS	(O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | PG_BINARY)

/*
 * Open the file at path.  *fd is -1 if it is no longer there, or no longer a
 * file: then a new one will be started.
 */
static bool
open_existing(const char *path, int *fd, struct stat *st)
{
	*fd = BasicOpenFile(path, OPEN_FLAGS);
	if (*fd < 0)
	{
		if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP ||
			errno == EISDIR || errno == ENXIO)
			return true;		/* not there, or no regular file */
		paq_sink_set_error("could not open file \"%s\": %m", path);
		return false;
	}
	if (fstat(*fd, st) != 0)
	{
		paq_sink_set_error("could not stat file \"%s\": %m", path);
		close(*fd);
		return false;
	}
	if (!S_ISREG(st->st_mode))
	{
		close(*fd);
		*fd = -1;
	}
	return true;
}

/* Does the file end in the middle of a line? */
static bool
ends_in_line(int fd, uint64 size)
{
	char		last;

	return size > 0 && paq_trail_read(fd, &last, 1, size - 1) && last != '\n';
}

/*
 * The file is not what the state says; what is said how.  Durable records that
 * were in it may be lost, of which the trail has to tell.
 */
static void
file_has_changed(const PaqSinkState *state, const char *what)
{
	ereport(LOG,
			(errmsg("audit trail file \"%s\" %s", state->file, what)));
	paq_trail_note_loss(state->file, what, state->begun, state->begun_sequence,
						state->flushed_sequence);
}

/*
 * The file is to be as long as the state says.  If it is shorter, what was
 * written since the last flush is written again.  False if that is not enough,
 * or if it is longer and not by us: then we must not go on with it.
 */
static bool
compare_with_state(const PaqSinkState *state, uint64 size, uint64 *offset)
{
	*offset = state->offset;
	if (size > state->offset && state->closed)
	{
		paq_trail.retreat = state->offset > state->flushed;
		file_has_changed(state, "was written to by somebody else");
		return false;
	}
	if (size >= state->offset)
		return true;
	paq_trail.retreat = state->offset > state->flushed;
	if (size < state->flushed)
	{
		file_has_changed(state, "was truncated");
		return false;
	}
	ereport(LOG,
			(errmsg("audit trail file \"%s\" is shorter than it was", state->file),
			 errdetail("It has %llu bytes, but %llu were written.",
					   (unsigned long long) size,
					   (unsigned long long) state->offset)));
	*offset = state->flushed;
	return true;
}

/* What was the file opened with?  Its name and permissions tell most. */
static void
guess_settings(const struct stat *st)
{
	const PaqFormat *format = paq_trail_format_of(paq_trail.path);
	char	   *separator;

	paq_trail.format = format;
	paq_trail.mode = st->st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
	strlcpy(paq_trail.filename, paq_trail_pattern(), sizeof(paq_trail.filename));
	strlcpy(paq_trail.directory, paq_trail.path, sizeof(paq_trail.directory));
	separator = last_dir_separator(paq_trail.directory);
	if (separator != NULL)
		*separator = '\0';
	paq_trail_plan_rotation(Min(st->st_mtime, time(NULL)));
}

/*
 * Make the state's file, which is open, the current one, offset bytes of which
 * are to stay.  Closes it on failure.
 */
static bool
continue_file(int fd, const struct stat *st, const PaqSinkState *state,
			  uint64 offset)
{
	paq_trail_adopt(fd, st, state->file, offset);
	paq_trail.found = true;
	paq_trail.begun = state->begun;
	paq_trail.begun_sequence = state->begun_sequence;
	guess_settings(st);
	paq_trail.written = st->st_size;
	if (!paq_trail_cut_to_offset())
	{
		paq_trail_close();
		return false;
	}

	/* Somebody cut a line in two: what follows must not become part of it. */
	if (ends_in_line(fd, offset))
	{
		if (!paq_trail_write("\n", 1))
		{
			paq_trail_close();
			return false;
		}
		paq_trail.offset = paq_trail.written;
	}
	return true;
}

static bool
is_newer(const struct stat *st, const struct stat *than)
{
	if (st->st_mtim.tv_sec != than->st_mtim.tv_sec)
		return st->st_mtim.tv_sec > than->st_mtim.tv_sec;
	return st->st_mtim.tv_nsec > than->st_mtim.tv_nsec;
}

/*
 * May we use this file?  One that we may not read and write is none that we
 * have made, and must not keep us from going on; or somebody has taken it away
 * from us, and that is worth a message.
 */
static bool
is_accessible(const char *path)
{
	if (access(path, R_OK | W_OK) == 0 || errno == ENOENT)
		return true;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("ignoring file \"%s\" in the directory of the audit trail: %m",
					path)));
	return false;
}

/*
 * Path of the newest trail file in the directory; false if there is none.
 */
static bool
find_newest(char *path)
{
	DIR		   *dir = AllocateDir(paq_trail_directory());
	struct dirent *de;
	struct stat newest = {0};
	bool		found = false;

	while ((de = ReadDirExtended(dir, paq_trail_directory(), LOG)) != NULL)
	{
		char		name[MAXPGPATH];
		struct stat st;

		if (paq_trail_format_of(de->d_name) == NULL)
			continue;
		snprintf(name, sizeof(name), "%s/%s", paq_trail_directory(), de->d_name);
		if (lstat(name, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0)
			continue;
		if (found && !is_newer(&st, &newest) &&
			(is_newer(&newest, &st) || strcmp(name, path) < 0))
			continue;
		if (!is_accessible(name))
			continue;
		newest = st;
		strlcpy(path, name, MAXPGPATH);
		found = true;
	}
	if (dir != NULL)
		FreeDir(dir);
	return found;
}

/*
 * Nothing says where the trail ends.  *sequence is how far it had got at some
 * time.  If there is a trail, there was a queue: not to know of it is what an
 * old copy would do.  Only sequences show that it is one; other files that end
 * in .log may be anybody's.
 */
static bool
resume_without_state(bool *exact, uint64 *sequence)
{
	char		path[MAXPGPATH];
	struct stat st;
	uint64		found = 0;
	uint64		count;
	bool		ok = true;
	int			fd;

	if (!find_newest(path))
		return true;
	if (!open_existing(path, &fd, &st))
		return false;
	if (fd < 0)
		return true;
	if (*exact)
	{
		ok = paq_salvage_count(fd, path, paq_trail_format_of(path), 0, &count,
							   &found);
		*exact = found == 0;
	}
	else
	{
		paq_salvage_keep(path, 0, 0);
		ok = paq_salvage_add(fd, path, paq_trail_format_of(path), &found);
	}
	close(fd);
	*sequence = Max(*sequence, found);
	paq_trail.flushed_sequence = *sequence;
	return ok;
}

/*
 * Does the trail have more than the state knows of, so that it is that of an
 * old copy of the queue file?  Either more records behind its end than the
 * queue has, or a newer file with larger sequences.
 */
static bool
look_if_outdated(int fd, const PaqSinkState *state, uint64 size, uint64 ahead,
				 uint64 sequence, bool *outdated)
{
	char		newest[MAXPGPATH];
	const PaqFormat *format = paq_trail_format_of(state->file);
	const Size	directory_len = strlen(paq_trail_directory());
	struct stat st;
	uint64		count = 0;
	uint64		last = 0;
	int			newest_fd;
	bool		ok;

	*outdated = false;
	if (format == NULL)
		return true;
	if (size > state->offset &&
		!paq_salvage_count(fd, state->file, format, state->offset, &count, &last))
		return false;
	*outdated = count > ahead;
	if (*outdated)
		return true;

	/* In another directory there may be anybody's files. */
	if (strncmp(state->file, paq_trail_directory(), directory_len) != 0 ||
		!IS_DIR_SEP(state->file[directory_len]))
		return true;
	if (!find_newest(newest) || strcmp(newest, state->file) == 0)
		return true;
	if (!open_existing(newest, &newest_fd, &st))
		return false;
	if (newest_fd < 0)
		return true;
	ok = paq_salvage_count(newest_fd, newest, paq_trail_format_of(newest), 0,
						   &count, &last);
	close(newest_fd);
	*outdated = last > sequence;
	return ok;
}

/*
 * Learn what files have that are newer than the given one; *any tells whether
 * there are any.
 */
static bool
add_newer_files(const struct stat *than, const PaqFormat *format,
				uint64 *sequence, bool *any)
{
	DIR		   *dir = AllocateDir(paq_trail_directory());
	struct dirent *de;
	bool		ok = true;

	*any = false;
	while (ok && (de = ReadDirExtended(dir, paq_trail_directory(), LOG)) != NULL)
	{
		char		path[MAXPGPATH];
		struct stat st;
		uint64		last = 0;
		int			fd;

		if (paq_trail_format_of(de->d_name) != format)
			continue;
		snprintf(path, sizeof(path), "%s/%s", paq_trail_directory(), de->d_name);
		if (lstat(path, &st) != 0 || !S_ISREG(st.st_mode) || !is_accessible(path))
			continue;
		ok = open_existing(path, &fd, &st);
		if (!ok || fd < 0)
			continue;
		if (st.st_ino != than->st_ino && st.st_size > 0 && is_newer(&st, than))
		{
			ok = paq_salvage_add(fd, path, format, &last);
			*sequence = Max(*sequence, last);
			*any = true;
		}
		close(fd);
	}
	if (dir != NULL)
		FreeDir(dir);
	return ok;
}

/* Do the known records begin in an older file than the state's? */
static bool
begin_elsewhere(const PaqSinkState *state)
{
	return state->known_file[0] != '\0' &&
		strcmp(state->known_file, state->file) != 0;
}

/*
 * The worker before us found the end of the trail in doubt, too, and has begun a
 * new file since: learn what there is from where it began.
 */
static bool
learn_again(const PaqSinkState *state, uint64 *sequence)
{
	const PaqFormat *format = paq_trail_format_of(state->known_file);
	struct stat st;
	uint64		offset;
	bool		any;
	bool		ok;
	int			fd;

	if (!open_existing(state->known_file, &fd, &st))
		return false;
	*sequence = state->known_sequence;
	paq_salvage_keep(state->known_file, state->known_from, state->known_sequence);
	if (fd < 0 || format == NULL)
		return true;
	ok = paq_salvage(fd, state->known_file, format, state->known_from, &offset,
					 sequence);
	close(fd);
	return ok && add_newer_files(&st, format, sequence, &any);
}

/*
 * Mend the end of the file, and rely on what is there then; go on with it,
 * unless there are newer ones.  The caller has opened fd, which is closed on
 * failure.
 */
static bool
salvage(int fd, const struct stat *before, const PaqSinkState *state,
		uint64 *sequence)
{
	const PaqFormat *format = paq_trail_format_of(state->file);
	const bool	elsewhere = begin_elsewhere(state);
	struct stat st = *before;
	uint64		offset;
	bool		any = false;

	if (!elsewhere)
	{
		*sequence = state->known_sequence;
		paq_salvage_keep(state->file, state->known_from, state->known_sequence);
	}
	if ((uint64) st.st_size < state->flushed)
		file_has_changed(state, "is shorter than it was");
	if (!paq_salvage(fd, state->file, format, elsewhere ? 0 : state->known_from,
					 &offset, sequence))
	{
		close(fd);
		return false;
	}
	st.st_size = offset;
	if (!continue_file(fd, &st, state, offset))
		return false;

	/* Or else a failed fsync might take back more than is in the queue. */
	if (!paq_trail_flush(*sequence) ||
		(!elsewhere && !add_newer_files(before, format, sequence, &any)))
	{
		paq_trail.retreat = false;
		paq_trail_close();
		return false;
	}
	if (any)
	{
		paq_trail_close();
		paq_trail.flushed_sequence = *sequence;
	}
	return true;
}

/* See sink.h. */
bool
paq_trail_resume(const PaqSinkState *state, bool *exact, uint64 ahead,
				 uint64 *sequence)
{
	struct stat st;
	uint64		offset;
	bool		outdated;
	int			fd;

	paq_trail_close();
	paq_salvage_forget();
	paq_trail.retreat = false;
	paq_trail.flushed_sequence = state->flushed_sequence;
	paq_trail.loss = state->loss;
	if (!*exact && begin_elsewhere(state) && !learn_again(state, sequence))
		return false;
	if (state->file[0] == '\0')
		return (!*exact && begin_elsewhere(state)) ||
			resume_without_state(exact, sequence);
	if (!open_existing(state->file, &fd, &st))
		return false;
	if (fd >= 0 && *exact && st.st_ino != state->inode)
	{
		close(fd);
		fd = -1;
	}
	if (fd < 0)
	{
		if (state->offset > 0)
			file_has_changed(state, "was removed or replaced");
		paq_trail.retreat = state->offset > state->flushed;
		return true;
	}
	if (*exact &&
		!look_if_outdated(fd, state, st.st_size, ahead, *sequence, &outdated))
	{
		close(fd);
		return false;
	}
	if (*exact && outdated)
	{
		ereport(LOG,
				(errmsg("audit trail file \"%s\" has more records than the queue file knows of",
						state->file),
				 errdetail("The queue file seems to be an old copy.")));
		*exact = false;
		if (begin_elsewhere(state) && !learn_again(state, sequence))
		{
			close(fd);
			return false;
		}
	}
	if (!*exact && paq_trail_format_of(state->file) != NULL)
		return salvage(fd, &st, state, sequence);
	if (!compare_with_state(state, st.st_size, &offset))
	{
		close(fd);
		return true;
	}
	if (!continue_file(fd, &st, state, offset))
	{
		paq_trail.retreat = false;
		return false;
	}
	paq_trail.flushed = Min(state->flushed, offset);
	return true;
}
