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
#include <sys/stat.h>
#include <unistd.h>

#include "file_util.h"
#include "guc.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "storage/fd.h"

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
