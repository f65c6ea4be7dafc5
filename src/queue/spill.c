/*-------------------------------------------------------------------------
 *
 * spill.c
 *		Files for the texts of records that are too large for the ring.
 *
 * A spill file holds the bytes of PAQ_FIELD_STATEMENT followed by those of
 * PAQ_FIELD_PARAMETER; the record in the ring has their lengths and the
 * file's name.  So a record of any length PostgreSQL accepts can be kept with
 * no more memory than the text itself already takes.
 *
 * The name is "spill.", the time at which the queue file was made, the process
 * id, a counter, and the checksum of what is in the file: what a crash of the
 * operating system left of a file is not taken for it.
 *
 * The reader maps a file while its record is the current one, and removes it
 * when the record is durable in the trail.  Files that belong to older queue
 * files and that nobody removed are removed when these have been drained.
 *
 * Must not raise, except paq_reader_decode(): producers are in the middle of
 * somebody's statement.
 *
 * Locking: none.  A file is written by one process, and read by the worker.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fault.h"
#include "file_util.h"
#include "guc.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#define SPILL_PREFIX	"spill."

/* The name's last part: the checksum of the file's contents, in hexadecimal */
#define CHECKSUM_LEN	8

/* ----------
 * For producers
 * ----------
 */

/* Checksum of a spill file that has the len bytes at data and those at more */
static pg_crc32c
contents_crc(const char *data, Size len, const char *more, Size more_len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	if (len > 0)
		COMP_CRC32C(crc, data, len);
	if (more_len > 0)
		COMP_CRC32C(crc, more, more_len);
	FIN_CRC32C(crc);
	return crc;
}

/*
 * Write the two texts, each of which may be null, into a new spill file and put
 * its name into name.  Returns false with errno set, after a LOG message, if that
 * cannot be done.
 */
bool
paq_spill_write(char *name, Size namesize,
				const PaqText *statement, const PaqText *parameter)
{
	static uint32 counter = 0;
	const Size	first = statement->data ? statement->len : 0;
	const Size	second = parameter->data ? parameter->len : 0;
	char		path[MAXPGPATH];
	int			fd;
	bool		ok;
	int			save_errno = 0;

	snprintf(name, namesize, SPILL_PREFIX "%016llx.%d.%u.%08x",
			 (unsigned long long) paq_live.header->created, MyProcPid, ++counter,
			 contents_crc(statement->data, first, parameter->data, second));
	paq_file_path(path, name);

	fd = BasicOpenFilePerm(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | PG_BINARY,
						   S_IRUSR | S_IWUSR);
	ok = fd >= 0 &&
		paq_write_all(fd, statement->data, first, 0) == first &&
		paq_write_all(fd, parameter->data, second, first) == second;
	if (!ok)
	{
		save_errno = errno;
		HOLD_INTERRUPTS();		/* errfinish() would serve them */
		ereport(LOG_SERVER_ONLY,
				(errcode_for_file_access(),
				 errmsg("could not write audit spill file \"%s\": %m", path)));
		RESUME_INTERRUPTS();
	}
	if (fd >= 0)
	{
		close(fd);
		if (!ok)
			unlink(path);
	}
	errno = save_errno;
	return ok;
}

/* Path of the file with that name, which is not terminated */
static void
spill_path(char *path, const char *name, Size len)
{
	snprintf(path, MAXPGPATH, "%s/%.*s", paq_queue_directory, (int) len, name);
}

/* Remove a spill file; failure leaves a stray file and a LOG message. */
void
paq_spill_remove(const char *name, Size len)
{
	char		path[MAXPGPATH];

	spill_path(path, name, len);
	if (unlink(path) != 0 && errno != ENOENT)
	{
		HOLD_INTERRUPTS();		/* errfinish() would serve them */
		ereport(LOG_SERVER_ONLY,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
		RESUME_INTERRUPTS();
	}
}

/* ----------
 * For the reader
 * ----------
 */

/* Are these bytes what the file with that name had in it? */
static bool
is_good(const PaqText *name, const char *data, Size size)
{
	char		checksum[CHECKSUM_LEN + 1];

	snprintf(checksum, sizeof(checksum), "%08x",
			 contents_crc(data, size, NULL, 0));
	return name->len > CHECKSUM_LEN &&
		memcmp(name->data + name->len - CHECKSUM_LEN, checksum, CHECKSUM_LEN) == 0;
}

/*
 * Map a spill file; *data is NULL if it is empty.  Returns false if it is not
 * there, or not what it was, or the disk cannot read it; then errno is 0.  If it
 * cannot be read now, but perhaps later, errno says why.
 */
static bool
map_spill(const PaqText *name, char *path, char **data, Size *size)
{
	int			fd;
	int			save_errno;
	bool		ok;

	*data = NULL;
	*size = 0;
	spill_path(path, name->data, name->len);
	fd = paq_file_open_fd(path);
	if (fd < 0)
	{
		if (errno == ENOENT || errno == ELOOP || errno == EISDIR || errno == ENXIO)
			errno = 0;
		return false;
	}
	errno = PAQ_FAULT("queue-read");
	ok = errno == 0 && paq_map_file(fd, 0, data, size);
	save_errno = ok || errno == EIO ? 0 : errno;
	close(fd);
	errno = save_errno;
	if (ok && is_good(name, *data, *size))
		return true;
	if (*data != NULL)
		munmap(*data, *size);
	*data = NULL;
	return false;
}

/*
 * Map the spill file called name; the caller unmaps it.  Returns false if it cannot be
 * read, or is damaged.
 */
bool
paq_spill_map(const PaqText *name, char **data, Size *size)
{
	char		path[MAXPGPATH];

	return map_spill(name, path, data, size);
}

/*
 * Map the spill file called name for the current record, and note that it is to
 * be removed when the record is durable.  If it is not there, or damaged, returns
 * false; the record then has to do without its texts.  If it cannot be read now,
 * the batch has to be tried again: raises an error.
 */
static bool
open_spilled(PaqReader *reader, PaqText name)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	char		path[MAXPGPATH];

	reader->spills_read = lappend(reader->spills_read,
								  pnstrdup(name.data, name.len));
	MemoryContextSwitchTo(oldcontext);

	if (map_spill(&name, path, &reader->spill, &reader->spill_size))
		return true;
	if (errno != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read audit spill file \"%s\": %m", path)));
	ereport(LOG,
			(errmsg("audit spill file \"%s\" is missing or damaged", path),
			 errdetail("The record is written without its texts.")));
	return false;
}

/* Decode a record, with its spill file if it has one. */
bool
paq_reader_decode(PaqReader *reader, const char *data, uint32 len,
				  PaqRecord *record)
{
	static const char lost[] = "the text of the statement is lost, unless the trail has the record already";
	PaqText    *message = &record->field[PAQ_FIELD_MESSAGE];
	PaqText		name;

	if (!paq_record_decode(data, len, NULL, 0, record))
		return false;
	if (unlikely(record->header.flags & PAQ_RECORD_SPILLED))
	{
		bool		whole = paq_record_spill_name(data, len, &name) &&
			open_spilled(reader, name);

		(void) paq_record_decode(data, len, reader->spill, reader->spill_size,
								 record);
		if (!whole && message->data == NULL)
		{
			message->data = lost;
			message->len = sizeof(lost) - 1;
			record->header.field_len[PAQ_FIELD_MESSAGE] = message->len;
		}
	}
	reader->last_time = record->header.end_time != 0 ?
		record->header.end_time : record->header.start_time;
	return true;
}

/* The current record's texts are not needed any more. */
void
paq_spilled_close(PaqReader *reader)
{
	if (reader->spill != NULL)
		munmap(reader->spill, reader->spill_size);
	reader->spill = NULL;
	reader->spill_size = 0;
}

/* If the record has a spill file, is that there and whole? */
bool
paq_spilled_is_there(const char *data, uint32 len)
{
	char		path[MAXPGPATH];
	PaqText		name;
	Size		size;
	char	   *map;
	bool		good;

	if (likely(!paq_record_spill_name(data, len, &name)))
		return true;
	good = map_spill(&name, path, &map, &size);
	if (map != NULL)
		munmap(map, size);
	return good;
}

/*
 * A worker before us may have written records to the trail and exited before it
 * could remove their spill files.  The records are still in the ring: find the
 * files.
 */
void
paq_spilled_collect(PaqReader *reader)
{
	uint64		pos = reader->flushed.pos;
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);

	while (paq_frame_is_good(reader->qf, pos, reader->drained.pos))
	{
		PaqFrame   *frame = paq_frame_at(reader->qf, pos);
		PaqText		name;

		if (frame->kind == PAQ_FRAME_RECORD &&
			paq_record_spill_name((char *) (frame + 1), frame->length, &name))
			reader->spills_drained = lappend(reader->spills_drained,
											 pnstrdup(name.data, name.len));
		pos += frame->size;
	}
	MemoryContextSwitchTo(oldcontext);
}

/* The records up to the last checkpoint are durable: remove their files. */
void
paq_spilled_remove(PaqReader *reader)
{
	ListCell   *lc;

	foreach(lc, reader->spills_drained)
	{
		const char *name = (const char *) lfirst(lc);

		paq_spill_remove(name, strlen(name));
	}
	list_free_deep(reader->spills_drained);
	reader->spills_drained = NIL;
}

/*
 * Remove all spill files but those of the live queue file.  Every other queue
 * file must have been drained.
 */
void
paq_spilled_remove_older(void)
{
	DIR		   *dir = AllocateDir(paq_queue_directory);
	struct dirent *de;
	char		current[64];

	snprintf(current, sizeof(current), SPILL_PREFIX "%016llx.",
			 (unsigned long long) paq_live.header->created);
	while ((de = ReadDirExtended(dir, paq_queue_directory, LOG)) != NULL)
	{
		if (strncmp(de->d_name, SPILL_PREFIX, strlen(SPILL_PREFIX)) == 0 &&
			strncmp(de->d_name, current, strlen(current)) != 0)
			paq_spill_remove(de->d_name, strlen(de->d_name));
	}
	if (dir != NULL)
		FreeDir(dir);
}
