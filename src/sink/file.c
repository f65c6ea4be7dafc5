/*-------------------------------------------------------------------------
 *
 * file.c
 *		The trail file that is open, and the batches written to it.
 *
 * Records are formatted into one buffer, which goes through the file's layers
 * (layers.c) and becomes one write() at the end of the batch; only a batch that
 * does not fit is written in pieces.  The
 * file's offset moves when a batch is complete.  What a failed batch, or a
 * crash in the middle of one, leaves behind the offset is cut off before
 * anything else is written.
 *
 * A file is created exclusively, never opened through a symbolic link, and
 * written only at the end of the trail.  It is given up only when its successor
 * exists and (with fsync on) it is durable.  If somebody else removes,
 * replaces, truncates or extends it, that is noticed before the next batch, and
 * the trail tells of it.  Between that look and the write it can happen, too:
 * the file is written with O_APPEND, so that it has neither a hole then, nor the
 * size that it should have, and the next look finds it.  What is overwritten
 * without a change of size is not noticed.
 *
 * Guarantees: those of sink.h.  A function that returns false has noted the
 * reason for paq_sink_error().
 *
 * Must not raise for what the world outside does.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <fcntl.h>
#include <unistd.h>

#include "fault.h"
#include "guc.h"
#include "sink/load_file.h"
#include "sink/sink_internal.h"
#include "stats.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define OPEN_FLAGS	(O_RDWR | O_NOFOLLOW | O_CLOEXEC | PG_BINARY)

#define BATCH_BUFFER_SIZE	(1024 * 1024)

/* A batch ends here, so that its last record still fits in most cases. */
#define BATCH_FULL_SIZE		(BATCH_BUFFER_SIZE / 4 * 3)

/*
 * Size of a file that is to be loaded into the table, in kB.  It is removed
 * when it has been loaded and the next one has begun.
 */
#define LOAD_FILE_SIZE	(16 * 1024)

static bool drain_batch(PaqBuffer *buf);

static PaqBuffer batch = {.drain = drain_batch};

/* Where in it the record begins that is being formatted, or would begin */
static Size record_start = 0;

/* Show the current file, and what it is for, in the statistics. */
static void
publish_path(void)
{
	PaqWorkerStats *worker = &paq_stats->worker;
	PaqLoadFile file;
	const bool	table = paq_trail.path[0] == '\0' ? paq_sink == PAQ_SINK_TABLE :
		paq_load_file_parse(paq_trail.path, &file);

	paq_stats_begin_write();
	strlcpy(worker->current_file, paq_trail.path,
			sizeof(worker->current_file));
	strlcpy(worker->sink, table ? "table" : "file", sizeof(worker->sink));
	paq_stats_end_write();
}

void
paq_trail_close(void)
{
	if (paq_trail.fd < 0)
		return;

		/*
	 * Who reads a finished file has followed it, if anybody.  The memory of its
	 * pages is better used for the database, and for the next file.
	 */
#if defined(USE_POSIX_FADVISE) && defined(POSIX_FADV_DONTNEED)
	(void) posix_fadvise(paq_trail.fd, 0, 0, POSIX_FADV_DONTNEED);
#endif
	close(paq_trail.fd);
	ReleaseExternalFD();
	paq_trail.fd = -1;
	paq_trail.gone = paq_trail.found = false;
	paq_trail.offset = paq_trail.written = paq_trail.flushed = 0;
	paq_trail.begun = 0;
	paq_trail.begun_sequence = 0;
	paq_trail.format = NULL;
	paq_trail_close_writer();
	paq_trail.path[0] = '\0';
	publish_path();
}

/*
 * Make fd, which is open with O_APPEND, the current file, of offset bytes, in place
 * of the one before.
 */
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
	strlcpy(paq_trail.path, path, sizeof(paq_trail.path));
	publish_path();
}

/*
 * May the next file have other records with sequences that have been used
 * before?  So it is if the current file is an earlier worker's, because our
 * queue may be older than that file; and if records at its end will be written
 * again.
 */
static bool
series_is_over(void)
{
	return paq_trail.found || paq_trail.gone || paq_trail.written > paq_trail.offset;
}

/* Path of a file to be loaded that begins where the current one ends. */
static bool
load_file_name(char *dst, Size size, int suffix)
{
	PaqLoadFile file;

	if (series_is_over() || !paq_load_file_parse(paq_trail.path, &file))
	{
		paq_trail.series = 0;
		if (!paq_trail_need_series())
			return false;
		file.series = paq_trail.series;
	}
	file.sequence = paq_trail.flushed_sequence;
	file.suffix = suffix;
	if (paq_load_file_path(dst, size, &file))
		return true;
	paq_sink_set_error("file name in directory \"%s\" is too long",
					   paq_load_directory());
	return false;
}

/*
 * Path of a file started at name_time; suffix, if not 0, tells it from others
 * of the same name.  Returns false, with an error noted, if there is no such
 * name.
 */
static bool
make_file_name(char *dst, Size size, pg_time_t name_time, int suffix)
{
	char		name[MAXPGPATH];
	char		number[16] = "";
	const PaqLayers layers = paq_trail_layers();
	struct pg_tm *tm;

	if (paq_sink == PAQ_SINK_TABLE)
		return load_file_name(dst, size, suffix);
	tm = pg_localtime(&name_time, log_timezone);
	if (tm == NULL ||
		pg_strftime(name, sizeof(name), paq_log_filename, tm) == 0)
	{
		paq_sink_set_error("could not make a file name from \"%s\"",
						   paq_log_filename);
		return false;
	}
	/* Some escapes, like %D, have slashes: it is still a name. */
	for (char *p = name; *p != '\0'; p++)
		if (IS_DIR_SEP(*p))
			*p = '-';

	if (suffix != 0)
		snprintf(number, sizeof(number), ".%d", suffix);
	/* analyzer: each value of the setting has a format */
	if (snprintf(dst, size, "%s/%s%s%s%s", paq_log_directory, name, number,
				 paq_trail_format()->extension,
				 paq_layers_ending(&layers)) >= (int) size)
	{
		paq_sink_set_error("file name made from \"%s\" is too long",
						   paq_log_filename);
		return false;
	}
	return true;
}

/*
 * Number of the current file if its name is that but for the number, -1 if it is not.
 * An earlier process may have made it.
 */
static int
current_number(const char *path)
{
	const Size	stem = paq_trail_name_of(path) - path + paq_trail_stem(paq_trail_name_of(path));
	const char *rest = paq_trail.path + stem;

	if (strncmp(paq_trail.path, path, stem) != 0 || *rest != '.')
		return -1;
	return isdigit((unsigned char) rest[1]) ? atoi(rest + 1) : 0;
}

/*
 * Open a file that did not exist before; *path becomes its name.  If the
 * previous file had the same name, numbering goes on from its number: the names
 * before need not be tried again, numbers tell the order of the files, and the name of
 * one that retention has removed is not given again.
 */
static int
create_file(char *path, Size size, pg_time_t name_time)
{
	static char last_path[MAXPGPATH];	/* without its number */
	static int	last_suffix = -1;
	int			fd;

	if (!make_file_name(path, size, name_time, 0))
		return -1;
	if (strcmp(path, last_path) != 0)
	{
		strlcpy(last_path, path, sizeof(last_path));
		last_suffix = current_number(path);
	}
	for (int suffix = last_suffix + 1;; suffix++)
	{
		if (!make_file_name(path, size, name_time, suffix))
			return -1;
		fd = BasicOpenFilePerm(path, OPEN_FLAGS | O_APPEND | O_CREAT | O_EXCL,
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
	return paq_trail_sync_directory(paq_trail_directory());
}

/*
 * Start a new file, named after name_time; all of the current one must be
 * durable.  On failure the current one stays.
 */
bool
paq_trail_create(pg_time_t name_time)
{
	char		path[MAXPGPATH];
	struct stat st;
	PaqKeys    *keys;
	PaqLayerWriter *writer = NULL;
	int			fd;

	if (!paq_trail_need_directory() || !paq_trail_keys(&keys))
		return false;
	fd = create_file(path, sizeof(path), name_time);
	if (fd >= 0 && (!prepare_file(fd, path, &st) ||
					!paq_trail_new_writer(path, keys, &writer)))
	{
		close(fd);
		unlink(path);
		fd = -1;
	}
	if (fd < 0)
	{
		paq_keys_free(keys);
		return false;
	}

	paq_trail_adopt(fd, &st, path, 0);
	paq_trail_use_writer(writer, keys);
	paq_keys_free(keys);
	paq_trail.begun = GetCurrentTimestamp();
	paq_trail.begun_sequence = paq_trail.flushed_sequence;
	paq_trail.format = paq_trail_format();
	paq_trail.mode = paq_trail_mode();
	strlcpy(paq_trail.filename, paq_trail_pattern(), sizeof(paq_trail.filename));
	return true;
}

/*
 * Cut off what was written behind the last complete batch.  Somebody may have cut off
 * more than that: then nothing is done, paq_trail_check() has to see it.
 */
bool
paq_trail_cut_to_offset(void)
{
	struct stat st;

	if (paq_trail.written == paq_trail.offset)
		return true;
	if ((fstat(paq_trail.fd, &st) != 0 || (uint64) st.st_size > paq_trail.offset) &&
		!paq_trail_truncate(paq_trail.fd, paq_trail.path, paq_trail.offset))
		return false;
	paq_trail.written = paq_trail.offset;

	/* Somebody may have read it. */
	paq_trail_end_series();
	return true;
}

/*
 * Write out what the buffer holds: whole records first, so that with layers no unit has
 * some and a part of another one.
 */
static bool
drain_batch(PaqBuffer *buf)
{
	const Size	whole = record_start > 0 ? record_start : buf->used;

	if (!paq_trail_write_text(buf->data, whole) ||
		(whole < buf->used && !paq_trail_write_text(buf->data + whole, buf->used - whole)))
		return false;
	buf->used = record_start = 0;
	return true;
}

static void
empty_batch(void)
{
	batch.used = record_start = 0;
	batch.failed = false;
}

bool
paq_sink_begin_batch(void)
{
	/* A successful paq_sink_rotate_if_due() has seen to that. */
	if (paq_trail.fd < 0 || paq_trail.format == NULL)
	{
		paq_sink_set_error("no audit trail file is open");
		return false;
	}
	if (!paq_trail_cut_to_offset() || !paq_trail_need_series())
		return false;
	if (batch.data == NULL)
	{
		batch.data = MemoryContextAlloc(TopMemoryContext, BATCH_BUFFER_SIZE);
		batch.size = BATCH_BUFFER_SIZE;
	}
	empty_batch();
	return true;
}

PaqAppendResult
paq_sink_append(PaqRecord *record, uint32 *nparts)
{
	record->series = paq_trail.series;
	record->server = paq_trail_server();
	record_start = batch.used;
	*nparts = paq_parts_write(&batch, paq_trail.format, record,
							  paq_parts_limit(paq_trail.format, paq_trail.path), false);
	record_start = batch.used;
	if (*nparts == 0)
		paq_sink_set_error("could not compute the digest of an audit record");
	if (batch.failed || *nparts == 0)
		return PAQ_APPEND_FAILED;
	if (batch.used >= BATCH_FULL_SIZE ||
		paq_trail.written > paq_trail.offset ||
		paq_trail_is_full(paq_trail.offset + paq_trail_size_of_text(batch.used)))
		return PAQ_APPEND_FULL;
	return PAQ_APPEND_OK;
}

bool
paq_sink_end_batch(void)
{
	if (batch.failed || !drain_batch(&batch))
		return false;
	paq_stats_add(&paq_stats->worker.bytes,
				  paq_trail.written - paq_trail.offset);
	paq_trail.offset = paq_trail.written;
	return true;
}

/* If the cut fails, paq_sink_begin_batch() tries again. */
void
paq_sink_abort_batch(void)
{
	empty_batch();
	if (paq_trail.fd >= 0)
		(void) paq_trail_cut_to_offset();
}

void
paq_sink_gap_record(PaqRecord *record, TimestampTz from, TimestampTz to,
					int64 count, PaqText message)
{
	memset(record, 0, sizeof(*record));
	paq_record_init_gap(&record->header, from, to, count);
	for (int i = 0; i < PAQ_NFIELDS; i++)
		record->header.field_len[i] = PAQ_NULL_LEN;
	record->header.field_len[PAQ_FIELD_MESSAGE] = message.len;
	record->field[PAQ_FIELD_MESSAGE] = message;
}

bool
paq_sink_heartbeat_record(PaqRecord *record)
{
	if (paq_trail.format == NULL || !paq_trail.format->has_heartbeats)
		return false;
	memset(record, 0, sizeof(*record));
	paq_record_init_heartbeat(&record->header, GetCurrentTimestamp());
	for (int i = 0; i < PAQ_NFIELDS; i++)
		record->header.field_len[i] = PAQ_NULL_LEN;
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
 * With pg_audit_queue.fsync off, this only counts as done; the first flush
 * after it was turned on again makes up for it.
 */
bool
paq_sink_flush(uint64 sequence)
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
	paq_trail_note_durable();
	return true;
}

/*
 * After a failed fsync the operating system may have dropped what it could not
 * write, and the next fsync would succeed without it.  What was in a removed
 * file is lost, too.  The queue still has the records since the last flush.
 * The next batch begins with cutting off what is behind it.
 */
bool
paq_sink_retreat(uint64 *sequence)
{
	if (!paq_trail.retreat)
		return false;
	paq_trail.retreat = false;
	paq_trail.offset = paq_trail.flushed;
	*sequence = paq_trail.flushed_sequence;
	return true;
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
 * The same for what a crash of the operating system has damaged behind the record with
 * that sequence, which was cut off.
 */
void
paq_trail_note_damage(const char *path, uint64 sequence)
{
	PaqLoss    *loss = &paq_trail.loss;

	if (loss->message[0] != '\0')
		return;
	loss->from = 0;
	loss->to = GetCurrentTimestamp();
	snprintf(loss->message, sizeof(loss->message),
			 "audit trail file \"%s\" was damaged behind the record with sequence %llu; those that the queue has follow",
			 path, (unsigned long long) sequence);
}

const PaqLoss *
paq_sink_loss(void)
{
	return paq_trail.loss.message[0] != '\0' ? &paq_trail.loss : NULL;
}

void
paq_sink_loss_told(void)
{
	memset(&paq_trail.loss, 0, sizeof(paq_trail.loss));
}

/*
 * Nothing more must be written to the file.  lost tells whether what was not
 * flushed of it is lost, too; the last record written has that sequence.
 */
static void
file_is_gone(const char *what, bool lost, uint64 sequence)
{
	paq_trail.gone = true;
	if (lost && paq_trail.offset > paq_trail.flushed)
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
 * Did somebody else remove, replace, truncate or write to the file, whose last
 * record has that sequence?  Then it is marked as gone: nobody would find what
 * is written to it, or it would come after a hole or after foreign bytes.  If
 * that cannot be told, assume that nobody did.
 */
void
paq_trail_check(uint64 sequence)
{
	struct stat st;

	if (paq_trail.fd < 0 || paq_trail.gone || fstat(paq_trail.fd, &st) != 0)
		return;
	if (st.st_nlink == 0)
		file_is_gone("was removed", true, sequence);
	else if ((uint64) st.st_size < paq_trail.offset)
		file_is_gone("was truncated", true, sequence);
	else if ((uint64) st.st_size > paq_trail.written)
		file_is_gone("was written to by somebody else", false, sequence);
	else if (lstat(paq_trail.path, &st) == 0 ?
			 st.st_dev != paq_trail.dev || st.st_ino != paq_trail.ino :
			 errno == ENOENT || errno == ENOTDIR)
		file_is_gone("was moved or replaced", false, sequence);
}

/* Returns true if a trail file of this size, in bytes, has to be rotated. */
bool
paq_trail_is_full(uint64 size)
{
	int			limit = paq_sink == PAQ_SINK_TABLE ?
		LOAD_FILE_SIZE : paq_log_rotation_size;

	return limit > 0 && size >= (uint64) limit * 1024;
}
