/*-------------------------------------------------------------------------
 *
 * trail_file.c
 *		A trail file on disk: create, resume, write, truncate, sync.
 *
 * Guarantees: a file is created exclusively, never opened through a symbolic
 * link, and written only where this sink has put the end of the trail; the
 * current file is given up only when its successor exists and (with fsync on)
 * it is durable.
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

#include "fault.h"
#include "guc.h"
#include "sink/file_internal.h"
#include "stats.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

#define OPEN_FLAGS	(O_RDWR | O_NOFOLLOW | O_CLOEXEC | PG_BINARY)

/* How often to look whether the file is still there */
#define CHECK_INTERVAL_MS	1000

PaqTrailFile paq_trail = {.fd = -1};

/* Show the current file in the statistics. */
static void
publish_path(void)
{
	PaqWorkerStats *worker = &paq_stats->worker;

	SpinLockAcquire(&worker->mutex);
	strlcpy(worker->current_file, paq_trail.path,
			sizeof(worker->current_file));
	SpinLockRelease(&worker->mutex);
}

/*
 * A finished file is read, if at all, by those who have followed it.  Its
 * pages are worth more to the database, and to the next file: advise the
 * operating system to drop them.  Has no effect on what is not on disk yet.
 */
static void
drop_cached_pages(int fd)
{
#if defined(USE_POSIX_FADVISE) && defined(POSIX_FADV_DONTNEED)
	(void) posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
}

void
paq_trail_close(void)
{
	if (paq_trail.fd < 0)
		return;
	drop_cached_pages(paq_trail.fd);
	close(paq_trail.fd);
	ReleaseExternalFD();
	memset(&paq_trail, 0, sizeof(paq_trail));
	paq_trail.fd = -1;
	publish_path();
}

/* Make fd the current file, of offset bytes, in place of the one before. */
static void
adopt(int fd, const struct stat *st, const char *path, uint64 offset)
{
	paq_trail_close();
	ReserveExternalFD();
	paq_trail.fd = fd;
	paq_trail.offset = offset;
	paq_trail.written = offset;
	paq_trail.dev = st->st_dev;
	paq_trail.ino = st->st_ino;
	paq_trail.checked = GetCurrentTimestamp();
	strlcpy(paq_trail.path, path, sizeof(paq_trail.path));
	publish_path();
}

/* fsync a directory, so that the names in it are durable. */
static bool
sync_directory(const char *directory)
{
	int			fd;
	int			rc;

	if (!paq_fsync)
		return true;
	fd = BasicOpenFile(directory, O_RDONLY | O_CLOEXEC | PG_BINARY);
	if (fd < 0)
	{
		paq_sink_set_error("could not open directory \"%s\": %m", directory);
		return false;
	}
	rc = pg_fsync(fd);
	/* Some file systems cannot do this, and do not need it. */
	if (rc != 0 && (errno == EBADF || errno == EINVAL))
		rc = 0;
	if (rc != 0)
		paq_sink_set_error("could not fsync directory \"%s\": %m", directory);
	close(fd);
	paq_stats_add(&paq_stats->worker.fsyncs, 1);
	return rc == 0;
}

/* Make sure that the directory is there. */
static bool
need_directory(void)
{
	char		parent[MAXPGPATH];
	bool		made;

	if (!paq_trail_make_directory(paq_log_directory, &made))
	{
		paq_sink_set_error("could not create directory \"%s\": %m",
						   paq_log_directory);
		return false;
	}
	if (!made)
		return true;
	strlcpy(parent, paq_log_directory, sizeof(parent));
	get_parent_directory(parent);
	return sync_directory(parent[0] == '\0' ? "." : parent);
}

/* Open a file that did not exist before; *path becomes its name. */
static int
create_file(char *path, Size size, pg_time_t name_time)
{
	int			fd;

	for (int suffix = 0;; suffix++)
	{
		if (!paq_trail_name(path, size, name_time, suffix))
			return -1;
		fd = BasicOpenFilePerm(path, OPEN_FLAGS | O_CREAT | O_EXCL,
							   paq_trail_mode());
		if (fd >= 0)
			return fd;
		if (errno != EEXIST)
		{
			paq_sink_set_error("could not create file \"%s\": %m", path);
			return -1;
		}
	}
}

/* Permissions exactly as set, whatever the umask, and a durable name. */
static bool
prepare_file(int fd, const char *path, struct stat *st)
{
	if (fchmod(fd, paq_trail_mode()) != 0)
	{
		paq_sink_set_error("could not set permissions of file \"%s\": %m",
						   path);
		return false;
	}
	if (fstat(fd, st) != 0)
	{
		paq_sink_set_error("could not stat file \"%s\": %m", path);
		return false;
	}
	return sync_directory(paq_log_directory);
}

/*
 * Start a new file, named after name_time.  On failure the current file stays
 * what it is.
 */
bool
paq_trail_create(pg_time_t name_time)
{
	char		path[MAXPGPATH];
	struct stat st;
	int			fd;

	/* Later flushes are of the new file only. */
	if (paq_trail.fd >= 0 && !paq_trail.gone && !paq_file_sink()->flush())
		return false;
	if (!need_directory())
		return false;
	fd = create_file(path, sizeof(path), name_time);
	if (fd < 0)
		return false;
	if (!prepare_file(fd, path, &st))
	{
		close(fd);
		unlink(path);
		return false;
	}

	adopt(fd, &st, path, 0);
	paq_trail.format = paq_trail_format();
	paq_trail.mode = paq_trail_mode();
	strlcpy(paq_trail.directory, paq_log_directory,
			sizeof(paq_trail.directory));
	strlcpy(paq_trail.filename, paq_log_filename, sizeof(paq_trail.filename));
	return true;
}

/* Write all of data at the end of what was written. */
bool
paq_trail_write(const char *data, Size len)
{
	while (len > 0)
	{
		int			fault = PAQ_FAULT("trail-write");
		ssize_t		n = -1;

		if (fault != 0)
			errno = fault;
		else
			n = pwrite(paq_trail.fd, data, len, paq_trail.written);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
		{
			/* If a write did nothing, assume the disk is full. */
			if (n == 0)
				errno = ENOSPC;
			paq_sink_set_error("could not write to file \"%s\": %m",
							   paq_trail.path);
			return false;
		}
		data += n;
		len -= n;
		paq_trail.written += n;
	}
	return true;
}

static bool
truncate_file(int fd, const char *path, uint64 size)
{
	int			rc;

	do
	{
		rc = ftruncate(fd, size);
	} while (rc != 0 && errno == EINTR);
	if (rc != 0)
		paq_sink_set_error("could not truncate file \"%s\": %m", path);
	return rc == 0;
}

/* Cut off what was written beyond the last whole batch. */
bool
paq_trail_cut_to_offset(void)
{
	if (paq_trail.written == paq_trail.offset)
		return true;
	if (!truncate_file(paq_trail.fd, paq_trail.path, paq_trail.offset))
		return false;
	paq_trail.written = paq_trail.offset;
	return true;
}

/* Read exactly len bytes; false, with errno, if that cannot be done. */
static bool
read_fully(int fd, char *data, Size len, uint64 offset)
{
	while (len > 0)
	{
		ssize_t		n = pread(fd, data, len, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n == 0)
			errno = EIO;
		if (n <= 0)
			return false;
		data += n;
		len -= n;
		offset += n;
	}
	return true;
}

/*
 * Write what is not known to be durable once more.  After a failed fsync the
 * kernel may hold the pages as clean, so that the next fsync would succeed
 * without writing them.
 */
static bool
rewrite_unflushed(void)
{
	Size		size;
	char	   *scratch = paq_sink_scratch(&size);
	uint64		pos = paq_trail.flushed;

	if (!paq_trail_cut_to_offset())
		return false;
	while (pos < paq_trail.offset)
	{
		Size		len = Min(size, paq_trail.offset - pos);
		bool		ok;

		if (!read_fully(paq_trail.fd, scratch, len, pos))
		{
			paq_sink_set_error("could not read file \"%s\": %m",
							   paq_trail.path);
			return false;
		}
		paq_trail.written = pos;
		ok = paq_trail_write(scratch, len);
		paq_trail.written = paq_trail.offset;
		if (!ok)
			return false;
		pos += len;
	}
	return true;
}

static int
sync_file(void)
{
	int			fault = PAQ_FAULT("trail-fsync");

	if (fault != 0)
	{
		errno = fault;
		return -1;
	}
	return pg_fdatasync(paq_trail.fd);
}

/* Make all whole batches durable.  Not to be called within a batch. */
bool
paq_trail_sync(void)
{
	if (paq_trail.sync_failed && !rewrite_unflushed())
		return false;
	paq_stats_add(&paq_stats->worker.fsyncs, 1);
	if (sync_file() != 0)
	{
		paq_trail.sync_failed = true;
		paq_sink_set_error("could not fsync file \"%s\": %m", paq_trail.path);
		return false;
	}
	paq_trail.sync_failed = false;
	paq_trail.flushed = paq_trail.offset;
	return true;
}

/* Is the path still that of our file?  If we cannot tell, assume so. */
static bool
path_is_ours(void)
{
	struct stat st;

	if (lstat(paq_trail.path, &st) != 0)
		return errno != ENOENT && errno != ENOTDIR;
	return st.st_dev == paq_trail.dev && st.st_ino == paq_trail.ino;
}

/*
 * Did somebody remove, replace or truncate the file?  Then nothing more must
 * be written to it: nobody would find it, or it would come after a hole.  The
 * file itself is looked at each time, which is cheap, its path once in a while.
 * Once it is gone, it stays so.
 */
bool
paq_trail_is_gone(void)
{
	TimestampTz now;
	struct stat st;

	if (paq_trail.gone)
		return true;
	if (fstat(paq_trail.fd, &st) == 0 &&
		(st.st_nlink == 0 || (uint64) st.st_size < paq_trail.offset))
	{
		paq_trail.gone = true;
		return true;
	}
	now = GetCurrentTimestamp();
	if (now >= paq_trail.checked &&
		!TimestampDifferenceExceeds(paq_trail.checked, now, CHECK_INTERVAL_MS))
		return false;
	paq_trail.checked = now;
	paq_trail.gone = !path_is_ours();
	return paq_trail.gone;
}

/*
 * Where the last record ends in a file of size bytes that may end in the
 * middle of one: behind the last newline that no tab follows, because lines
 * within a record start with a tab.  *end is size if the file ends in a
 * newline.
 */
static bool
find_last_record_end(int fd, uint64 size, uint64 *end)
{
	Size		room;
	char	   *scratch = paq_sink_scratch(&room);
	char		next = '\0';	/* byte behind the block */
	uint64		pos = size;

	while (pos > 0)
	{
		Size		len = Min(room, pos);

		pos -= len;
		if (!read_fully(fd, scratch, len, pos))
			return false;
		for (Size i = len; i > 0; i--)
		{
			if (scratch[i - 1] == '\n' && next != '\t')
			{
				*end = pos + i;
				return true;
			}
			next = scratch[i - 1];
		}
	}
	*end = 0;
	return true;
}

/* Does the file end in the middle of a line? */
static bool
ends_in_line(int fd, uint64 size)
{
	char		last;

	return size > 0 && read_fully(fd, &last, 1, size - 1) && last != '\n';
}

/*
 * The file has size bytes: bring its end in line with the state, and set
 * *offset to it.
 */
static bool
mend_end(int fd, const PaqSinkState *state, bool cut, uint64 size,
		 uint64 *offset)
{
	*offset = size;
	if (cut && size >= state->offset)
		*offset = state->offset;
	else if (!cut)
	{
		if (!find_last_record_end(fd, size, offset))
		{
			paq_sink_set_error("could not read file \"%s\": %m", state->file);
			return false;
		}
	}
	if (size < state->offset)
		ereport(LOG,
				(errmsg("audit trail file \"%s\" is shorter than it was", state->file),
				 errdetail("It has %llu bytes, but %llu were written.",
						   (unsigned long long) size,
						   (unsigned long long) state->offset)));
	return *offset == size || truncate_file(fd, state->file, *offset);
}

/* What was the file opened with?  Its name and permissions tell most. */
static void
guess_settings(const struct stat *st)
{
	const PaqFormat *format = paq_trail_format();
	Size		len = strlen(paq_trail.path);
	Size		ext_len = strlen(format->extension);
	char	   *separator;

	paq_trail.format = NULL;	/* another one than the settings ask for */
	if (len > ext_len &&
		strcmp(paq_trail.path + len - ext_len, format->extension) == 0)
		paq_trail.format = format;
	paq_trail.mode = st->st_mode & (S_IRWXU | S_IRWXG | S_IRWXO);
	strlcpy(paq_trail.filename, paq_log_filename, sizeof(paq_trail.filename));
	strlcpy(paq_trail.directory, paq_trail.path, sizeof(paq_trail.directory));
	separator = last_dir_separator(paq_trail.directory);
	if (separator != NULL)
		*separator = '\0';
	paq_trail_plan_rotation(Min(st->st_mtime, time(NULL)));
}

/*
 * Open the state's file.  *fd is -1 if it is no longer there, or no longer a
 * file: then a new one will be started.
 */
static bool
open_existing(const PaqSinkState *state, int *fd, struct stat *st)
{
	*fd = BasicOpenFile(state->file, OPEN_FLAGS | O_NONBLOCK);
	if (*fd < 0)
	{
		if (errno == ENOENT || errno == ENOTDIR || errno == ELOOP ||
			errno == EISDIR || errno == ENXIO)
			return true;		/* not there, or no regular file */
		paq_sink_set_error("could not open file \"%s\": %m", state->file);
		return false;
	}
	if (fstat(*fd, st) != 0)
	{
		paq_sink_set_error("could not stat file \"%s\": %m", state->file);
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

/* See sink.h. */
bool
paq_trail_resume(const PaqSinkState *state, bool cut)
{
	struct stat st;
	uint64		offset;
	int			fd;

	paq_trail_close();
	if (state->file[0] == '\0')
		return true;
	if (!open_existing(state, &fd, &st))
		return false;
	if (fd < 0)
	{
		if (state->offset > 0)
			ereport(LOG,
					(errmsg("audit trail file \"%s\" is missing, starting a new one",
							state->file)));
		return true;
	}
	if (!mend_end(fd, state, cut, st.st_size, &offset))
	{
		close(fd);
		return false;
	}
	adopt(fd, &st, state->file, offset);
	guess_settings(&st);

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
