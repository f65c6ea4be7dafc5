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
 * The name is "spill.", the generation of the queue file, the process id, a
 * counter, and the checksum of what is in the file.  The worker removes a file
 * once its record is durable; files of older generations that nobody removed go
 * when their queue file is done.
 *
 * Must not raise: callers are in the middle of somebody's statement.
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
#include "queue/reader_internal.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#define SPILL_PREFIX	"spill."

/* CRC-32C of what a spill file with these texts has in it */
static pg_crc32c
texts_crc(const PaqText *statement, const PaqText *parameter)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	if (statement->data != NULL)
		COMP_CRC32C(crc, statement->data, statement->len);
	if (parameter->data != NULL)
		COMP_CRC32C(crc, parameter->data, parameter->len);
	FIN_CRC32C(crc);
	return crc;
}

/* Are these size bytes what the file with that name, len bytes, had in it? */
bool
paq_spill_is_good(const char *name, Size len, const char *data, Size size)
{
	char		wanted[9];
	char		found[9];
	pg_crc32c	crc;

	if (len < sizeof(wanted))
		return false;
	memcpy(wanted, name + len - 8, 8);
	wanted[8] = '\0';
	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, size);
	FIN_CRC32C(crc);
	snprintf(found, sizeof(found), "%08x", crc);
	return strcmp(found, wanted) == 0;
}

/* Write a text, if there is one, at *offset, which moves behind it. */
static bool
write_text(int fd, const PaqText *text, uint64 *offset)
{
	Size		len = text->data ? text->len : 0;
	uint64		start = *offset;

	*offset += len;
	return paq_write_all(fd, text->data, len, start) == len;
}

/*
 * Write the two texts into a new spill file and put its name into name.
 * Returns false with errno set, after a LOG message, if that cannot be done.
 */
bool
paq_spill_write(char *name, Size namesize,
				const PaqText *statement, const PaqText *parameter)
{
	static uint32 counter = 0;
	char		path[MAXPGPATH];
	int			fd;
	bool		ok;
	uint64		offset = 0;
	int			save_errno = 0;

	snprintf(name, namesize, SPILL_PREFIX "%016llx.%d.%u.%08x",
			 (unsigned long long) paq_file_generation(&paq_live),
			 MyProcPid, ++counter, texts_crc(statement, parameter));
	paq_file_path(path, name);

	fd = BasicOpenFilePerm(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | PG_BINARY,
						   S_IRUSR | S_IWUSR);
	ok = fd >= 0 && write_text(fd, statement, &offset) &&
		write_text(fd, parameter, &offset);
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

/* Remove a spill file; failure leaves a stray file and a LOG message. */
void
paq_spill_remove(const char *name, Size len)
{
	char		path[MAXPGPATH];

	snprintf(path, sizeof(path), "%s/%.*s", paq_queue_directory, (int) len, name);
	if (unlink(path) != 0 && errno != ENOENT)
	{
		HOLD_INTERRUPTS();		/* errfinish() would serve them */
		ereport(LOG_SERVER_ONLY,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
		RESUME_INTERRUPTS();
	}
}

/*
 * Remove all spill files but those of the given generation.  Only for use
 * when every queue file of another generation has been drained.
 */
void
paq_spill_remove_older(uint64 generation)
{
	DIR		   *dir = AllocateDir(paq_queue_directory);
	struct dirent *de;
	char		current[64];

	snprintf(current, sizeof(current), SPILL_PREFIX "%016llx.",
			 (unsigned long long) generation);
	while ((de = ReadDirExtended(dir, paq_queue_directory, LOG)) != NULL)
	{
		if (strncmp(de->d_name, SPILL_PREFIX, strlen(SPILL_PREFIX)) == 0 &&
			strncmp(de->d_name, current, strlen(current)) != 0)
			paq_spill_remove(de->d_name, strlen(de->d_name));
	}
	if (dir != NULL)
		FreeDir(dir);
}

/*
 *		The reader's side of spill files; see spill.c.
 *
 * A record's file is mapped while the record is the current one, and removed
 * when the record is durable in the trail.
 *
 * Locking: none; the worker is the only reader.
 */

/* The current record's texts are not needed any more. */
void
paq_spilled_close(PaqReader *reader)
{
	if (reader->spill != NULL)
		munmap(reader->spill, reader->spill_size);
	reader->spill = NULL;
	reader->spill_size = 0;
}

/*
 * Open and map a spill file.  Returns NULL if it is not there, or is no file, or
 * an empty one, or the disk cannot read it; then errno is 0.  If it cannot be
 * opened or mapped now, but perhaps later, errno says why.
 */
static char *
map_spill(const char *path, Size *size)
{
	int			fd = paq_file_open_fd(path);
	char	   *map = NULL;

	if (fd < 0)
	{
		if (errno == ENOENT || errno == ELOOP || errno == EISDIR || errno == ENXIO)
			errno = 0;
		return NULL;
	}
	errno = PAQ_FAULT("queue-read");
	if (errno == 0)
		(void) paq_map_file(fd, 0, &map, size);
	if (errno == EIO)
		errno = 0;
	close(fd);
	return map;
}

static void
spill_path(char *path, const PaqText *name)
{
	snprintf(path, MAXPGPATH, "%s/%.*s", paq_queue_directory,
			 (int) name->len, name->data);
}

/*
 * Map the spill file called name, which is to be removed when the record is
 * durable.  A file that is not there, or not what it was, is as if it was empty:
 * the record is then handed out without its texts.  If there is one that cannot
 * be read now, the batch has to be tried again: raises an error.
 */
void
paq_spilled_open(PaqReader *reader, PaqText name)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	char		path[MAXPGPATH];

	reader->spills_read = lappend(reader->spills_read,
								  pnstrdup(name.data, name.len));
	MemoryContextSwitchTo(oldcontext);

	spill_path(path, &name);
	reader->spill = map_spill(path, &reader->spill_size);
	if (reader->spill == NULL && errno != 0)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not read audit spill file \"%s\": %m", path)));
	if (reader->spill != NULL &&
		paq_spill_is_good(name.data, name.len, reader->spill, reader->spill_size))
		return;
	ereport(LOG,
			(errmsg("audit spill file \"%s\" is missing or damaged", path),
			 errdetail("The record is written without its texts.")));
	paq_spilled_close(reader);
}

/* Is the spill file there, and whole, that the record needs, if it needs one? */
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
	spill_path(path, &name);
	map = map_spill(path, &size);
	good = map != NULL && paq_spill_is_good(name.data, name.len, map, size);
	if (map != NULL)
		munmap(map, size);
	return good;
}

/* Bytes of texts that a record has in its spill file */
static uint64
spilled_bytes(const PaqRecordHeader *header)
{
	uint64		bytes = 0;

	if (header->field_len[PAQ_FIELD_STATEMENT] != PAQ_NULL_LEN)
		bytes += header->field_len[PAQ_FIELD_STATEMENT];
	if (header->field_len[PAQ_FIELD_PARAMETER] != PAQ_NULL_LEN)
		bytes += header->field_len[PAQ_FIELD_PARAMETER];
	return bytes;
}

/* If the current record's texts are not all there, it says so. */
void
paq_spilled_check(PaqReader *reader, PaqRecord *record)
{
	static const char lost[] = "the text of the statement is lost, unless the trail has the record already";
	PaqText    *message = &record->field[PAQ_FIELD_MESSAGE];

	if (reader->spill_size >= spilled_bytes(&record->header) ||
		message->data != NULL)
		return;
	message->data = lost;
	message->len = sizeof(lost) - 1;
	record->header.field_len[PAQ_FIELD_MESSAGE] = message->len;
}

/*
 * A worker before us may have written records to the trail and gone before it
 * could remove their spill files.  The records are still in the ring.
 */
void
paq_spilled_collect(PaqReader *reader)
{
	uint64		pos = reader->flushed;
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);

	while (pos < reader->drained &&
		   paq_frame_is_good(reader->qf, pos, reader->drained))
	{
		PaqFrame   *frame = paq_frame_at(reader->qf, pos);
		PaqText		name;

		if (paq_record_spill_name((char *) (frame + 1), frame->length, &name))
			reader->spills_drained = lappend(reader->spills_drained,
											 pnstrdup(name.data, name.len));
		pos += frame->size;
	}
	MemoryContextSwitchTo(oldcontext);
}

/* The records up to the last checkpoint are durable. */
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
