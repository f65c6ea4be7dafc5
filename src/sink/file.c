/*-------------------------------------------------------------------------
 *
 * file.c
 *		The file sink: the trail is a series of files.
 *
 * Records are formatted straight into one buffer, which becomes one write()
 * at the end of the batch; only a batch that does not fit is written in
 * pieces.  The file's offset moves when a batch is whole.  What a failed
 * batch, or a crash in the middle of one, leaves behind the offset is cut off
 * before anything else is written.
 *
 * Guarantees: sink.h's.  After end_batch() the batch is the operating
 * system's; flush() makes it durable.
 * Must not raise for what the world outside does.
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
#include "sink/sink_internal.h"
#include "sink/load_file.h"
#include "stats.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define OPEN_FLAGS	(O_RDWR | O_NOFOLLOW | O_CLOEXEC | PG_BINARY)

/* How often to look whether the file is still there */
#define CHECK_INTERVAL_MS	1000

PaqTrailFile paq_trail = {.fd = -1};

/* Show the current file, and what it is for, in the statistics. */
static void
publish_path(void)
{
	PaqWorkerStats *worker = &paq_stats->worker;
	PaqLoadFile file;
	const bool	table = paq_trail.path[0] == '\0' ? paq_sink == PAQ_SINK_TABLE :
		paq_load_file_parse(paq_trail.path, &file);

	SpinLockAcquire(&worker->mutex);
	strlcpy(worker->current_file, paq_trail.path,
			sizeof(worker->current_file));
	strlcpy(worker->sink, table ? "table" : "file", sizeof(worker->sink));
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
	paq_trail.fd = -1;
	paq_trail.gone = paq_trail.found = false;
	paq_trail.offset = paq_trail.written = paq_trail.flushed = 0;
	paq_trail.begun = 0;
	paq_trail.begun_sequence = 0;
	paq_trail.format = NULL;
	paq_trail.path[0] = '\0';
	publish_path();
}

/* Make fd the current file, of offset bytes, in place of the one before. */
void
paq_trail_adopt(int fd, const struct stat *st, const char *path, uint64 offset)
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

	if (!paq_trail_make_directory(paq_trail_directory(), &made))
	{
		paq_sink_set_error("could not create directory \"%s\": %m",
						   paq_trail_directory());
		return false;
	}
	if (!made)
		return true;
	strlcpy(parent, paq_trail_directory(), sizeof(parent));
	get_parent_directory(parent);
	return sync_directory(parent[0] == '\0' ? "." : parent);
}

/*
 * Open a file that did not exist before; *path becomes its name.  Where the
 * last one had the same name, go on counting from there: all that there are
 * need not be tried again, and numbers tell in which order files were made.
 */
static int
create_file(char *path, Size size, pg_time_t name_time)
{
	static char last_path[MAXPGPATH];	/* without its number */
	static int	last_suffix = -1;
	int			fd;

	if (!paq_trail_name(path, size, name_time, 0))
		return -1;
	if (strcmp(path, last_path) != 0)
	{
		strlcpy(last_path, path, sizeof(last_path));
		last_suffix = -1;
	}
	for (int suffix = last_suffix + 1;; suffix++)
	{
		if (!paq_trail_name(path, size, name_time, suffix))
			return -1;
		fd = BasicOpenFilePerm(path, OPEN_FLAGS | O_CREAT | O_EXCL,
							   paq_trail_mode());
		if (fd >= 0)
		{
			last_suffix = suffix;
			return fd;
		}
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
	return sync_directory(paq_trail_directory());
}

/*
 * Start a new file, named after name_time; all of the current one must be
 * durable.  On failure that stays what it is.
 */
bool
paq_trail_create(pg_time_t name_time)
{
	char		path[MAXPGPATH];
	struct stat st;
	int			fd;

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

	paq_trail_adopt(fd, &st, path, 0);
	paq_trail.begun = GetCurrentTimestamp();
	paq_trail.begun_sequence = paq_trail.flushed_sequence;
	paq_trail.format = paq_trail_format();
	paq_trail.mode = paq_trail_mode();
	strlcpy(paq_trail.directory, paq_trail_directory(),
			sizeof(paq_trail.directory));
	strlcpy(paq_trail.filename, paq_trail_pattern(), sizeof(paq_trail.filename));
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
		paq_stats_add(&paq_stats->worker.written, n);
	}
	return true;
}

/* Cut the file to size bytes. */
bool
paq_trail_truncate(int fd, const char *path, uint64 size)
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
	if (!paq_trail_truncate(paq_trail.fd, paq_trail.path, paq_trail.offset))
		return false;
	paq_trail.written = paq_trail.offset;
	return true;
}

/* Read exactly len bytes at offset; false, with errno, if that cannot be done. */
bool
paq_trail_read(int fd, char *data, Size len, uint64 offset)
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

/*
 * Make all whole batches durable; the last record has the given sequence.
 * With pg_audit_queue.fsync off it counts as done, but once that is turned on
 * again, it is.
 */
bool
paq_trail_flush(uint64 sequence)
{
	if (paq_trail.fd >= 0 && paq_fsync &&
		(paq_trail.flushed != paq_trail.offset || paq_trail.unsynced))
	{
		paq_stats_add(&paq_stats->worker.fsyncs, 1);
		if (sync_file() != 0)
		{
			paq_sink_set_error("could not fsync file \"%s\": %m", paq_trail.path);
			paq_trail.retreat = true;
			return false;
		}
	}
	paq_trail.unsynced = !paq_fsync;
	paq_trail.flushed = paq_trail.offset;
	paq_trail.flushed_sequence = sequence;
	return true;
}

/*
 * After a failed fsync the operating system may have dropped what could not
 * be written, and the next fsync would succeed without it; and what was in a
 * file that somebody removed is nowhere.  The records are still in the queue,
 * so they are written again, from the last flush on.  See sink.h.  What is
 * behind it is cut off when the next batch begins.
 */
bool
paq_trail_retreat(uint64 *sequence)
{
	if (!paq_trail.retreat)
		return false;
	paq_trail.retreat = false;
	paq_trail.offset = paq_trail.flushed;
	*sequence = paq_trail.flushed_sequence;
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
 * The trail has to tell that records may be missing: those of the file at path,
 * to which somebody else has done what is said.  They are those behind
 * begun_sequence up to last_sequence; later ones will be written again.  If the
 * trail has yet to tell of an earlier loss, nothing was written since.
 */
void
paq_trail_note_loss(const char *path, const char *what, TimestampTz begun,
					uint64 begun_sequence, uint64 last_sequence)
{
	PaqLoss    *loss = &paq_trail.loss;

	if (loss->message[0] != '\0')
		return;
	loss->from = begun;
	loss->to = GetCurrentTimestamp();
	if (last_sequence > begun_sequence)
		snprintf(loss->message, sizeof(loss->message),
				 "audit trail file \"%s\" %s; the records with sequence %llu to %llu were in it",
				 path, what, (unsigned long long) begun_sequence + 1,
				 (unsigned long long) last_sequence);
	else
		snprintf(loss->message, sizeof(loss->message),
				 "audit trail file \"%s\" %s; no records were in it, or they follow",
				 path, what);
}

/*
 * Nothing more must be written to the file.  retreat tells whether what was
 * written to it and not flushed is gone, too; the last record written has that
 * sequence.
 */
static void
file_is_gone(const char *what, bool retreat, uint64 sequence)
{
	paq_trail.gone = true;
	if (retreat && paq_trail.offset > paq_trail.flushed)
	{
		paq_trail.retreat = true;
		sequence = paq_trail.flushed_sequence;
	}
	ereport(LOG,
			(errmsg("audit trail file \"%s\" %s, starting a new one",
					paq_trail.path, what)));
	paq_trail_note_loss(paq_trail.path, what, paq_trail.begun,
						paq_trail.begun_sequence, sequence);
}

/*
 * Is the open file not as we have left it?  *what says how, and *retreat whether
 * what was not flushed is gone: it is not if the file has become longer.
 */
static bool
file_has_changed(const char **what, bool *retreat)
{
	struct stat st;

	if (fstat(paq_trail.fd, &st) != 0)
		return false;
	if (st.st_nlink == 0)
		*what = "was removed";
	else if ((uint64) st.st_size < paq_trail.offset)
		*what = "was truncated";
	else if ((uint64) st.st_size > paq_trail.written)
		*what = "was written to by somebody else";
	else
		return false;
	*retreat = st.st_nlink == 0 || (uint64) st.st_size < paq_trail.offset;
	return true;
}

/*
 * Did somebody else remove, replace, truncate or write to the file, whose last
 * record has that sequence?  Then nobody would find what is written to it, or it
 * would come after a hole, or after what is none of ours.  The file itself is
 * looked at each time, which is cheap, its path once in a while.  Once it is
 * gone, it stays so.
 */
bool
paq_trail_is_gone(uint64 sequence)
{
	TimestampTz now;
	const char *what;
	bool		retreat;

	if (paq_trail.gone)
		return true;
	if (file_has_changed(&what, &retreat))
	{
		file_is_gone(what, retreat, sequence);
		return true;
	}
	now = GetCurrentTimestamp();
	if (now >= paq_trail.checked &&
		!TimestampDifferenceExceeds(paq_trail.checked, now, CHECK_INTERVAL_MS))
		return false;
	paq_trail.checked = now;
	if (!path_is_ours())
		file_is_gone("was moved or replaced", false, sequence);
	return paq_trail.gone;
}

/*
 * Make the directory unless it is there.  Returns false, with errno, if that
 * fails.  Only its last component is made: a missing mount point should not
 * be papered over.
 */
bool
paq_trail_make_directory(const char *directory, bool *made)
{
	*made = (mkdir(directory, S_IRWXU) == 0);
	return *made || errno == EEXIST;
}

static void
report_unusable(const char *problem)
{
	ereport(FATAL,
			(errcode_for_file_access(),
			 errmsg("%s directory \"%s\" of the audit trail: %m",
					problem, paq_trail_directory()),
			 errhint("Set \"%s\" to a directory that the server can read and write.",
					 paq_sink == PAQ_SINK_TABLE ?
					 "pg_audit_queue.queue_directory" :
					 "pg_audit_queue.log_directory")));
}

/* Called in the postmaster. */
void
paq_file_sink_check(void)
{
	struct stat st;
	bool		made;

	if (!paq_trail_make_directory(paq_trail_directory(), &made))
		report_unusable("could not create");
	if (stat(paq_trail_directory(), &st) != 0)
		report_unusable("could not access");
	if (!S_ISDIR(st.st_mode))
	{
		errno = ENOTDIR;
		report_unusable("could not use");
	}
	/* Reading is needed to make new names durable. */
	if (access(paq_trail_directory(), R_OK | W_OK | X_OK) != 0)
		report_unusable("could not write to");
}

#define BATCH_BUFFER_SIZE	(1024 * 1024)

/* A batch ends here, so that its last record still fits in most cases. */
#define BATCH_FULL_SIZE		(BATCH_BUFFER_SIZE / 4 * 3)

static char error_message[PAQ_ERROR_LEN];

static bool drain_batch(PaqBuffer *buf);

static PaqBuffer batch = {.drain = drain_batch};

/* Note a failure; %m works as in errmsg(). */
void
paq_sink_set_error(const char *fmt,...)
{
	va_list		args;

	va_start(args, fmt);
	vsnprintf(error_message, sizeof(error_message), fmt, args);
	va_end(args);
}

const char *
paq_sink_error(void)
{
	return error_message;
}

static void
need_buffer(void)
{
	if (batch.data != NULL)
		return;
	batch.data = MemoryContextAlloc(TopMemoryContext, BATCH_BUFFER_SIZE);
	batch.size = BATCH_BUFFER_SIZE;
}

/* Write out what the buffer holds. */
static bool
drain_batch(PaqBuffer *buf)
{
	if (!paq_trail_write(buf->data, buf->used))
		return false;
	buf->used = 0;
	return true;
}

static bool
file_begin_batch(void)
{
	/* rotate_if_due() comes first and has seen to that, if it succeeded. */
	if (paq_trail.fd < 0 || paq_trail.format == NULL)
	{
		paq_sink_set_error("no audit trail file is open");
		return false;
	}
	if (!paq_trail_cut_to_offset())
		return false;
	need_buffer();
	batch.used = 0;
	batch.failed = false;
	return true;
}

static PaqAppendResult
file_append(const PaqRecord *record)
{
	paq_trail.format->write(&batch, record);
	if (batch.failed)
		return PAQ_APPEND_FAILED;
	if (batch.used >= BATCH_FULL_SIZE ||
		paq_trail.written > paq_trail.offset ||
		paq_trail_is_full(paq_trail.offset + batch.used))
		return PAQ_APPEND_FULL;
	return PAQ_APPEND_OK;
}

static bool
file_end_batch(void)
{
	if (batch.failed || !drain_batch(&batch))
		return false;
	paq_stats_add(&paq_stats->worker.bytes,
				  paq_trail.written - paq_trail.offset);
	paq_trail.offset = paq_trail.written;
	return true;
}

/* If the cut fails, file_begin_batch() tries it again. */
static void
file_abort_batch(void)
{
	batch.used = 0;
	batch.failed = false;
	if (paq_trail.fd >= 0)
		(void) paq_trail_cut_to_offset();
}

static void
file_get_state(PaqSinkState *state)
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

static const PaqLoss *
file_loss(void)
{
	return paq_trail.loss.message[0] != '\0' ? &paq_trail.loss : NULL;
}

static void
file_loss_told(void)
{
	memset(&paq_trail.loss, 0, sizeof(paq_trail.loss));
}

/* See sink.h.  What could not be cut off is ours. */
static void
file_close(PaqSinkState *state)
{
	file_abort_batch();
	file_get_state(state);
	state->closed = paq_trail.fd >= 0 && paq_trail.written == paq_trail.offset;
}

const PaqSink *
paq_file_sink(void)
{
	static const PaqSink sink = {
		.resume = paq_trail_resume,
		.is_known = paq_salvage_is_known,
		.forget_known = paq_salvage_forget,
		.rotate_if_due = paq_file_rotate_if_due,
		.next_rotation = paq_file_next_rotation,
		.retain = paq_file_retain,
		.next_retention = paq_file_next_retention,
		.begin_batch = file_begin_batch,
		.append = file_append,
		.end_batch = file_end_batch,
		.abort_batch = file_abort_batch,
		.flush = paq_trail_flush,
		.retreat = paq_trail_retreat,
		.loss = file_loss,
		.loss_told = file_loss_told,
		.get_state = file_get_state,
		.close = file_close
	};

	return &sink;
}
