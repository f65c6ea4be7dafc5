/*-------------------------------------------------------------------------
 *
 * oldest.c
 *		The oldest files of the trail, found by reading its directory.
 *
 * A trail file is a regular file of the server's user whose name is one of a
 * trail file (names.c).  That it begins as such files do, or is empty, is looked
 * at only where it matters.  The current file is not among them, under whatever
 * name.  Of very many files only the oldest are kept in mind, so that memory is
 * bounded; when these have been dealt with, the directory is read again for
 * those that are younger.
 *
 * Guarantees: all names are looked up in the directory that was opened, even if
 * something else takes its place, and no symbolic link is followed.
 *
 * Must not raise for what the world outside does.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "fault.h"
#include "guc.h"
#include "sink/file_internal.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

/* How many are kept in mind */
#define MAX_OLDEST		256

/* How much of a file has to be read to see whether it is one of the trail's */
#define HEAD_SIZE		8192

/* What every record but those of format json has near its beginning */
#define RECORD_MARK		"AUDIT: "

/* The latest time that we believe a file to have: in the year 9999 */
#define MAX_MTIME		INT64CONST(253402300799)

static DIR *dir = NULL;
static dev_t dir_dev;

/* Those behind the ones that have been dealt with, oldest first */
static PaqOldFile files[MAX_OLDEST];
static PaqOldFile *oldest[MAX_OLDEST];
static int	noldest;
static bool more;				/* there are others that are younger */
static uint64 total_size;		/* of them, those, and the current file */

/* The last one that was dealt with before the directory was read again */
static bool again;
static TimestampTz done_mtime;
static char done_name[NAME_MAX + 1];

static void
start_reading(void)
{
	rewinddir(dir);
	noldest = 0;
	more = false;
	total_size = paq_trail.offset;
}

/*
 * Open the directory, in which we must be allowed to remove files.  On failure
 * returns false, with errno.
 */
bool
paq_oldest_open(void)
{
	struct stat st;
	int			save_errno;

	if (!AcquireExternalFD())
		return false;
	dir = opendir(paq_log_directory);
	if (dir == NULL)
	{
		save_errno = errno;
		ReleaseExternalFD();
		errno = save_errno;
		return false;
	}
	if (fstat(dirfd(dir), &st) != 0 ||
		faccessat(dirfd(dir), ".", W_OK | X_OK, AT_EACCESS) != 0)
	{
		save_errno = errno;
		paq_oldest_close();
		errno = save_errno;
		return false;
	}
	dir_dev = st.st_dev;
	again = false;
	start_reading();
	return true;
}

void
paq_oldest_close(void)
{
	if (dir == NULL)
		return;
	closedir(dir);
	ReleaseExternalFD();
	dir = NULL;
}

static TimestampTz
modified(const struct stat *st)
{
	int64		seconds = Min(Max((int64) st->st_mtim.tv_sec, 0), MAX_MTIME);

	return time_t_to_timestamptz((pg_time_t) seconds) +
		st->st_mtim.tv_nsec / 1000;
}

static bool
is_current(const char *name, const struct stat *st)
{
	const char *separator = last_dir_separator(paq_trail.path);

	return (st->st_ino == paq_trail.ino && st->st_dev == paq_trail.dev) ||
		(separator != NULL && strcmp(separator + 1, name) == 0);
}

/* By age, and by name if that is the same */
static int
compare(TimestampTz mtime1, const char *name1, TimestampTz mtime2, const char *name2)
{
	if (mtime1 != mtime2)
		return mtime1 < mtime2 ? -1 : 1;
	return strcmp(name1, name2);
}

/* Put a file where it belongs among the oldest, if it does. */
static void
keep_if_old(const char *name, TimestampTz mtime, const struct stat *st)
{
	int			low = 0;
	int			high = noldest;
	PaqOldFile *file;

	while (low < high)
	{
		int			middle = (low + high) / 2;

		if (compare(oldest[middle]->mtime, oldest[middle]->name, mtime, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	more = more || noldest == MAX_OLDEST;
	if (low == MAX_OLDEST)
		return;
	file = noldest < MAX_OLDEST ? &files[noldest++] : oldest[MAX_OLDEST - 1];
	memmove(&oldest[low + 1], &oldest[low], (noldest - 1 - low) * sizeof(oldest[0]));
	oldest[low] = file;
	file->ino = st->st_ino;
	file->mtime = mtime;
	file->size = st->st_size;
	file->planned = false;
	strlcpy(file->name, name, sizeof(file->name));
}

/* Get what is known of a name; false if it is none of a finished trail file. */
static bool
stat_finished(const char *name, struct stat *st)
{
	return fstatat(dirfd(dir), name, st, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISREG(st->st_mode) && st->st_uid == geteuid() &&
		st->st_dev == dir_dev && !is_current(name, st);
}

/* Read the next name in the directory.  Returns false if there is none. */
bool
paq_oldest_read(void)
{
	struct dirent *de = readdir(dir);
	struct stat st;
	TimestampTz mtime;

	if (de == NULL)
		return false;
	if (!paq_trail_has_name(de->d_name) || !stat_finished(de->d_name, &st))
		return true;
	mtime = modified(&st);
	if (again && compare(mtime, de->d_name, done_mtime, done_name) <= 0)
		return true;
	total_size += st.st_size;
	keep_if_old(de->d_name, mtime, &st);
	return true;
}

/* The files, by number from 0, oldest first; NULL if there are no more. */
PaqOldFile *
paq_oldest_file(int number)
{
	return number < noldest ? oldest[number] : NULL;
}

/* Size of all those that were read, kept in mind or not, and the current one. */
uint64
paq_oldest_total_size(void)
{
	return total_size;
}

/*
 * All files have been dealt with: read the directory again for younger ones.
 * Returns false if there are none.
 */
bool
paq_oldest_read_again(void)
{
	if (!more)
		return false;
	again = true;
	done_mtime = oldest[noldest - 1]->mtime;
	strlcpy(done_name, oldest[noldest - 1]->name, sizeof(done_name));
	start_reading();
	return true;
}

/*
 * Does the file begin as one of the trail's?  A name is soon given to
 * something else.  If we cannot tell, *failed is set, and errno.
 */
bool
paq_oldest_is_ours(const PaqOldFile *file, bool *failed)
{
	const PaqFormat *format = paq_trail_format_of(file->name);
	char		head[HEAD_SIZE];
	Size		start = 0;
	Size		digits;
	ssize_t		len;
	int			save_errno;
	int			fd;

	*failed = false;
	if (file->size == 0)
		return true;
	fd = openat(dirfd(dir), file->name,
				O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
	{
		*failed = (errno != ENOENT && errno != ELOOP && errno != ENXIO);
		return false;
	}
	len = pread(fd, head, sizeof(head), 0);
	save_errno = errno;
	close(fd);
	errno = save_errno;
	*failed = (len < 0);
	return len > 0 &&
		(format->find_sequence(head, len, &start, &digits) ||
		 memmem(head, len, RECORD_MARK, strlen(RECORD_MARK)) != NULL);
}

/*
 * Remove the file, if it is still the one that it was, unchanged.  *removed
 * tells whether that was done.  Returns false, with errno, on failure.
 */
bool
paq_oldest_remove(const PaqOldFile *file, bool *removed)
{
	struct stat st;

	*removed = false;
	if (!stat_finished(file->name, &st) || st.st_ino != file->ino ||
		modified(&st) != file->mtime || (uint64) st.st_size != file->size)
		return true;
	errno = PAQ_FAULT("trail-unlink");
	if (errno != 0 || unlinkat(dirfd(dir), file->name, 0) != 0)
		return errno == ENOENT;
	(void) PAQ_FAULT("trail-unlinked");
	*removed = true;
	return true;
}

/* Make it durable that files are gone; failure is only logged. */
void
paq_oldest_sync(void)
{
	if (paq_fsync && pg_fsync(dirfd(dir)) != 0 && errno != EBADF && errno != EINVAL)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not fsync directory \"%s\": %m",
						paq_log_directory)));
}
