/*-------------------------------------------------------------------------
 *
 * kept.c
 *		The file in queue_directory that keeps the rules in effect: for sessions
 *		that were there before them, and for a start at which the policy file is
 *		of no use.
 *
 * The worker is the only one that writes it: it puts a new file, which is durable,
 * in the place of the old one.  So a reader has the one or the other.  What is found
 * in the file is believed only if all of it is right.
 *
 * Must not raise.
 *
 * Locking: none.
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
#include "policy/policy_internal.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#define KEPT_FILE		"policy"
#define KEPT_MAGIC		0x4b525150	/* "PQRK" */
#define KEPT_VERSION	1

/* What is in front of the rule set */
typedef struct KeptHeader
{
	uint32		magic;
	uint32		version;
	uint32		set_size;		/* bytes */
	char		recorded[PAQ_CHECKSUM_LEN]; /* see PaqKept */
	pg_crc32c	crc;			/* of all before */
} KeptHeader;

static void
kept_path(char *path)
{
	snprintf(path, MAXPGPATH, "%s/%s", paq_queue_directory, KEPT_FILE);
}

static pg_crc32c
header_crc(const KeptHeader *header)
{
	return paq_crc32c(header, offsetof(KeptHeader, crc));
}

static bool
header_is_valid(const KeptHeader *header)
{
	return header->magic == KEPT_MAGIC && header->version == KEPT_VERSION &&
		header->crc == header_crc(header) &&
		header->set_size <= PAQ_MAX_RULE_SET &&
		strnlen(header->recorded, PAQ_CHECKSUM_LEN) < PAQ_CHECKSUM_LEN;
}

/*
 * Read an open file.  Returns NULL, or what is wrong with it: an empty text stands
 * for errno.
 */
static const char *
read_kept(int fd, PaqKept *kept)
{
	KeptHeader	header;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return "";
	if (!S_ISREG(st.st_mode))
		return "It is not a regular file.";
	if (st.st_size < sizeof(header))
		return "It is too short.";
	if (!paq_read_all(fd, (char *) &header, sizeof(header), 0))
		return "";
	if (!header_is_valid(&header) || st.st_size != sizeof(header) + header.set_size)
		return "It is damaged, or of another version.";
	kept->set = MemoryContextAllocExtended(TopMemoryContext, Max(header.set_size, 1),
										   MCXT_ALLOC_NO_OOM);
	if (kept->set == NULL)
		return "Out of memory.";
	if (!paq_read_all(fd, (char *) kept->set, header.set_size, sizeof(header)))
		return "";
	if (!paq_rule_set_is_valid((char *) kept->set, header.set_size))
		return "It is damaged, or of another version.";
	strlcpy(kept->recorded, header.recorded, sizeof(kept->recorded));
	return NULL;
}

static void
report_unusable(const char *path, const char *reason)
{
	/* or errfinish() would serve them */
	HOLD_INTERRUPTS();
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 reason[0] == '\0' ?
			 errmsg("could not read kept audit policy \"%s\": %m", path) :
			 errmsg("kept audit policy \"%s\" cannot be used", path),
			 reason[0] == '\0' ? 0 : errdetail_internal("%s", reason)));
	RESUME_INTERRUPTS();
}

/* What is kept; unless quiet, a file that cannot be used is reported. */
PaqKeptState
paq_kept_read(PaqKept *kept, bool quiet)
{
	char		path[MAXPGPATH];
	const char *problem = "";
	int			fd;

	memset(kept, 0, sizeof(*kept));
	kept_path(path);
	fd = BasicOpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | PG_BINARY);
	if (fd >= 0)
	{
		int			save_errno;

		problem = read_kept(fd, kept);
		save_errno = errno;
		close(fd);
		errno = save_errno;
	}
	else if (errno == ENOENT)
		return PAQ_KEPT_NOTHING;
	if (problem == NULL)
		return PAQ_KEPT_RULES;
	if (kept->set != NULL)
		pfree(kept->set);
	memset(kept, 0, sizeof(*kept));
	if (!quiet)
		report_unusable(path, problem);
	return PAQ_KEPT_UNUSABLE;
}

/* Write and sync a new file of that name. */
static bool
write_new(const char *path, const KeptHeader *header, const PaqRuleSet *set)
{
	bool		ok;
	int			save_errno;
	int			fd;

	if (unlink(path) != 0 && errno != ENOENT)
		return false;
	fd = BasicOpenFilePerm(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | PG_BINARY,
						   S_IRUSR | S_IWUSR);
	if (fd < 0)
		return false;
	ok = paq_write_all(fd, (const char *) header, sizeof(*header), 0) == sizeof(*header) &&
		paq_write_all(fd, (const char *) set, set->size, sizeof(*header)) == set->size &&
		pg_fsync(fd) == 0;
	save_errno = errno;
	close(fd);
	if (!ok)
		unlink(path);
	errno = save_errno;
	return ok;
}

/*
 * Keep rules in place of what was kept; recorded is as in PaqKept.  A failure is
 * reported in the server log.
 */
bool
paq_kept_write(const PaqRuleSet *set, const char *recorded)
{
	char		path[MAXPGPATH];
	char		tmp[MAXPGPATH];
	KeptHeader	header;

	memset(&header, 0, sizeof(header));
	header.magic = KEPT_MAGIC;
	header.version = KEPT_VERSION;
	header.set_size = set->size;
	strlcpy(header.recorded, recorded, sizeof(header.recorded));
	header.crc = header_crc(&header);

	kept_path(path);
	snprintf(tmp, sizeof(tmp), "%s/%s.new", paq_queue_directory, KEPT_FILE);
	if (write_new(tmp, &header, set))
		return durable_rename(tmp, path, LOG) == 0;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not write file \"%s\": %m", tmp)));
	return false;
}
