/*-------------------------------------------------------------------------
 *
 * resume.c
 *		Going on with the trail that an earlier worker has left, and the state
 *		from which that is possible.
 *
 * Normally the checkpoint in the queue file says exactly where the trail ends.
 * What is behind that is an unfinished batch, and is cut off.  If the
 * checkpoint may be wrong, only a torn last record is cut off, and what else is
 * there is learned (salvage.c).  If there is no checkpoint, because the queue
 * file was lost, the newest trail file in the directory tells which sequence
 * comes next, and which records need not be written again; a new file is
 * written then.
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

#include "file_util.h"
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

/* Count or learn the records of a file, if it is there. */
static bool
read_records(const char *path, PaqSalvage what, PaqSalvaged *found)
{
	struct stat st;
	bool		ok;
	int			fd;

	memset(found, 0, sizeof(*found));
	if (!open_existing(path, &fd, &st))
		return false;
	if (fd < 0)
		return true;
	ok = paq_salvage(fd, path, what, 0, found);
	close(fd);
	return ok;
}

/*
 * May we use this file?  One that we may not read and write was not made by us,
 * and must not keep us from going on; or somebody has taken it away from us,
 * and that is worth a message.
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
 * The number that tells a trail file from others of the same name, 0 if it has
 * none.  *len is the length of what precedes it.
 */
static uint64
number_in_name(const char *path, Size *len)
{
	Size		end = paq_trail_stem(path);
	Size		begin = end;

	while (begin > 0 && path[begin - 1] >= '0' && path[begin - 1] <= '9')
		begin--;
	*len = end;
	if (begin == end || begin == 0 || path[begin - 1] != '.')
		return 0;
	*len = begin - 1;
	return strtoull(path + begin, NULL, 10);
}

/* Does the name come behind the other one, in the order in which we give them? */
static bool
is_later_name(const char *path, const char *than_path)
{
	Size		len;
	Size		than_len;
	uint64		number = number_in_name(path, &len);
	uint64		than_number = number_in_name(than_path, &than_len);

	if (len == than_len && strncmp(path, than_path, len) == 0)
		return number > than_number;
	return strcmp(path, than_path) > 0;
}

/*
 * Was the file changed later than the other one?  If that is the same, as the
 * clock of a file system may have steps of 10 ms, by name.
 */
static bool
is_newer(const char *path, const struct stat *st,
		 const char *than_path, const struct stat *than)
{
	if (st->st_mtim.tv_sec != than->st_mtim.tv_sec)
		return st->st_mtim.tv_sec > than->st_mtim.tv_sec;
	if (st->st_mtim.tv_nsec != than->st_mtim.tv_nsec)
		return st->st_mtim.tv_nsec > than->st_mtim.tv_nsec;
	return is_later_name(path, than_path);
}

/* Find the next trail file in the directory that is newer than the given one. */
static bool
next_newer(DIR *dir, const char *than_path, const struct stat *than,
		   char *path, struct stat *st)
{
	struct dirent *de;

	while ((de = ReadDirExtended(dir, paq_trail_directory(), LOG)) != NULL)
	{
		if (paq_trail_format_of(de->d_name) == NULL)
			continue;
		snprintf(path, MAXPGPATH, "%s/%s", paq_trail_directory(), de->d_name);
		if (lstat(path, st) == 0 && S_ISREG(st->st_mode) && st->st_size > 0 &&
			is_newer(path, st, than_path, than) && is_accessible(path))
			return true;
	}
	return false;
}

/* Path of the newest trail file in the directory; false if there is none. */
static bool
find_newest(char *newest)
{
	DIR		   *dir = AllocateDir(paq_trail_directory());
	char		path[MAXPGPATH];
	struct stat newest_st = {0};
	struct stat st;

	newest[0] = '\0';
	while (next_newer(dir, newest, &newest_st, path, &st))
	{
		newest_st = st;
		strlcpy(newest, path, MAXPGPATH);
	}
	if (dir != NULL)
		FreeDir(dir);
	return newest[0] != '\0';
}

/*
 * Learn the records of files that are newer than the given one, and of the same
 * format; *any tells whether there are any.
 */
static bool
add_newer_files(const char *than_path, const struct stat *than,
				uint64 *sequence, bool *any)
{
	DIR		   *dir = AllocateDir(paq_trail_directory());
	char		path[MAXPGPATH];
	struct stat st;
	bool		ok = true;

	*any = false;
	while (ok && next_newer(dir, than_path, than, path, &st))
	{
		PaqSalvaged found;

		if (paq_trail_format_of(path) != paq_trail_format_of(than_path) ||
			st.st_ino == than->st_ino)
			continue;
		ok = read_records(path, PAQ_SALVAGE_LEARN, &found);
		*sequence = Max(*sequence, found.sequence);
		*any = true;
	}
	if (dir != NULL)
		FreeDir(dir);
	return ok;
}

/*
 * The file is not what the state says; "what" says how.  Durable records that
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

/* Does the file end in the middle of a line? */
static bool
ends_in_line(int fd, uint64 size)
{
	char		last;

	return size > 0 && paq_read_all(fd, &last, 1, size - 1) && last != '\n';
}

/*
 * Make the state's file, which is open, the current one, offset bytes of which
 * are to stay.  Closes it on failure.
 */
static bool
continue_file(int fd, const struct stat *st, const PaqSinkState *state,
			  uint64 offset)
{
	/* Not when it was opened: salvage() writes in its middle. */
	if (fcntl(fd, F_SETFL, O_APPEND) != 0)
	{
		paq_sink_set_error("could not set flags of file \"%s\": %m", state->file);
		close(fd);
		return false;
	}
	paq_trail_adopt(fd, st, state->file, offset);
	paq_trail.found = true;
	paq_trail.begun = state->begun;
	paq_trail.begun_sequence = state->begun_sequence;

	/* Name and permissions tell most of the settings that it was opened with. */
	paq_trail.format = paq_trail_format_of(paq_trail.path);
	(void) paq_layers_of_name(paq_trail.path, &paq_trail.layers);
	paq_trail.mode = st->st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
	strlcpy(paq_trail.filename, paq_trail_pattern(), sizeof(paq_trail.filename));
	paq_trail_plan_rotation(Min(st->st_mtime, time(NULL)));

	paq_trail.written = st->st_size;
	if (!paq_trail_cut_to_offset())
	{
		paq_trail_close();
		return false;
	}

	/* If somebody has cut a line in two, what follows begins a new one. */
	if (!paq_trail_is_layered(&paq_trail.layers) && ends_in_line(fd, offset))
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

/*
 * Nothing says where the trail ends.  *sequence is how far it had got at some
 * time.  If there is a trail, there was a queue: a queue file that does not know
 * of it is an old copy.  Only sequences show that a file belongs to the trail;
 * others that end in .log may be anybody's.
 */
static bool
resume_without_state(bool *exact, uint64 *sequence)
{
	char		path[MAXPGPATH];
	PaqSalvaged found;

	if (!find_newest(path))
		return true;
	if (!*exact)
		paq_salvage_keep(path, 0, 0);
	if (!read_records(path, *exact ? PAQ_SALVAGE_COUNT : PAQ_SALVAGE_LEARN, &found))
		return false;
	if (*exact)
		*exact = found.sequence == 0;
	*sequence = Max(*sequence, found.sequence);
	paq_trail.flushed_sequence = *sequence;
	return true;
}

/*
 * Does the trail have more than the state knows of, so that the state comes
 * from an old copy of the queue file?  Either the file has more records behind
 * the state's end than the queue has, or a newer file has larger sequences.
 */
static bool
look_if_outdated(int fd, const PaqSinkState *state, uint64 size, uint64 ahead,
				 uint64 sequence, bool *outdated)
{
	char		newest[MAXPGPATH];
	PaqSalvaged found = {0};

	*outdated = false;
	if (paq_trail_format_of(state->file) == NULL)
		return true;
	if (size > state->offset &&
		!paq_salvage(fd, state->file, PAQ_SALVAGE_COUNT, state->offset, &found))
		return false;
	*outdated = found.count > ahead;
	if (*outdated)
		return true;

	/* In another directory there may be anybody's files. */
	if (!paq_trail_is_inside(state->file))
		return true;
	if (!find_newest(newest) || strcmp(newest, state->file) == 0)
		return true;
	if (!read_records(newest, PAQ_SALVAGE_COUNT, &found))
		return false;
	*outdated = found.sequence > sequence;
	return true;
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
 * new file since: learn the records from where it began.
 */
static bool
learn_again(const PaqSinkState *state, uint64 *sequence)
{
	PaqSalvaged found = {.sequence = state->known_sequence};
	struct stat st;
	bool		any;
	bool		ok;
	int			fd;

	if (!open_existing(state->known_file, &fd, &st))
		return false;
	*sequence = state->known_sequence;
	paq_salvage_keep(state->known_file, state->known_from, state->known_sequence);
	if (fd < 0)
		return true;
	ok = paq_trail_format_of(state->known_file) == NULL ||
		paq_salvage(fd, state->known_file, PAQ_SALVAGE_MEND, state->known_from, &found);
	close(fd);
	*sequence = found.sequence;
	return ok && add_newer_files(state->known_file, &st, sequence, &any);
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
	const bool	elsewhere = begin_elsewhere(state);
	PaqSalvaged found = {.end = before->st_size, .sequence = *sequence};
	struct stat st = *before;
	bool		any = false;

	if (!elsewhere)
	{
		found.sequence = state->known_sequence;
		paq_salvage_keep(state->file, state->known_from, state->known_sequence);
	}
	if ((uint64) st.st_size < state->flushed)
		file_has_changed(state, "is shorter than it was");
	if (!paq_salvage(fd, state->file, PAQ_SALVAGE_MEND,
					 elsewhere ? 0 : state->known_from, &found))
	{
		close(fd);
		return false;
	}
	*sequence = found.sequence;
	st.st_size = found.end;
	if (!continue_file(fd, &st, state, found.end))
		return false;

	/* Without the flush, a failed fsync might take back more than the queue has. */
	if (!paq_sink_flush(*sequence) ||
		(!elsewhere && !add_newer_files(state->file, before, sequence, &any)))
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

/*
 * Before anything is cut off or mended in log_directory, it has to be ours.  A
 * file elsewhere will not be gone on with, see rotate.c.
 */
static bool
need_lock(const PaqSinkState *state)
{
	if (!paq_trail_is_inside(state->file) && !paq_trail_is_inside(state->known_file))
		return true;
	return paq_trail_need_directory();
}

bool
paq_sink_resume(const PaqSinkState *state, bool *exact, uint64 ahead,
				uint64 *sequence)
{
	const char *change = NULL;
	struct stat st;
	bool		outdated = false;
	uint64		offset = state->offset;
	int			fd;

	paq_trail.series = 0;
	if (!need_lock(state) || !paq_trail_need_series())
		return false;
	paq_trail_close();
	paq_sink_forget_known();
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
	if (outdated)
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
	if ((uint64) st.st_size < state->flushed)
		change = "was truncated";
	else if ((uint64) st.st_size > state->offset && state->closed)
		change = "was written to by somebody else";
	if (change != NULL)
	{
		file_has_changed(state, change);
		paq_trail.retreat = state->offset > state->flushed;
		close(fd);
		return true;
	}

	/*
	 * What was not durable is missing, or a part of it.  All of that is written
	 * again, so it must not stay in the file.
	 */
	if ((uint64) st.st_size < state->offset)
	{
		ereport(LOG,
				(errmsg("audit trail file \"%s\" is shorter than it was",
						state->file),
				 errdetail("It has %llu bytes, but %llu were written.",
						   (unsigned long long) st.st_size,
						   (unsigned long long) state->offset)));
		offset = state->flushed;
	}
	if (!continue_file(fd, &st, state, offset))
		return false;
	paq_trail.flushed = state->flushed;
	paq_trail.retreat = offset < state->offset;
	return true;
}

void
paq_sink_get_state(PaqSinkState *state)
{
	memset(state, 0, sizeof(*state));
	state->flushed_sequence = paq_trail.flushed_sequence;
	state->known_sequence = paq_trail.flushed_sequence;
	if (paq_trail.fd >= 0)
	{
		state->offset = paq_trail.offset;
		state->flushed = state->known_from = paq_trail.flushed;
		strlcpy(state->file, paq_trail.path, sizeof(state->file));
		strlcpy(state->known_file, paq_trail.path, sizeof(state->known_file));
		state->inode = paq_trail.ino;
		state->begun = paq_trail.begun;
		state->begun_sequence = paq_trail.begun_sequence;
	}
	state->loss = paq_trail.loss;
	paq_salvage_state(state);
}

/* What could not be cut off was written by us: the file is not closed then. */
void
paq_sink_close(PaqSinkState *state)
{
	paq_sink_abort_batch();
	paq_sink_get_state(state);
	state->closed = paq_trail.fd >= 0 && paq_trail.written == paq_trail.offset;
}
