/*-------------------------------------------------------------------------
 *
 * file.c
 *		The queue file: making one, mapping one.
 *
 * Guarantees: a file appears under its name complete, with all its blocks
 * allocated, or not at all; a file is mapped only after everything that later
 * code relies on (geometry, checksum, size) has been checked, so that no
 * content of it can make the server read outside of the mapping.  What can be
 * read of a damaged file is made readable: it has two headers of which one is
 * enough, and a part that was cut off is replaced by zeros.
 *
 * Locking: none.  Files are made and judged by the postmaster before there
 * are backends; the worker maps backlog files that nobody else uses.
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

#include "access/xlog.h"
#include "common/file_perm.h"
#include "fault.h"
#include "file_util.h"
#include "guc.h"
#include "queue/queue_internal.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

static Size
page_size(void)
{
	return (Size) sysconf(_SC_PAGESIZE);
}

/* Size of the ring, in bytes, that a file gets for a wanted size. */
uint64
paq_file_ring_size(uint64 wanted)
{
	return TYPEALIGN64(page_size(), wanted);
}

/* Path of a file in the queue directory; path has MAXPGPATH bytes. */
void
paq_file_path(char *path, const char *name)
{
	snprintf(path, MAXPGPATH, "%s/%s", paq_queue_directory, name);
}

static pg_crc32c
header_crc(const PaqFileHeader *header)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, header, offsetof(PaqFileHeader, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Offsets of the parts for a ring and a number of slots; returns the file's size. */
static uint64
compute_layout(PaqFileHeader *header)
{
	uint64		page = page_size();

	header->slots_offset = 5 * page;
	header->ring_offset = TYPEALIGN64(page, header->slots_offset +
									  (uint64) header->nslots * PAQ_SLOT_SIZE);
	return header->ring_offset + header->ring_size;
}

/* Where the second header is, bytes from file start. */
static uint64
second_header_offset(void)
{
	return 4 * page_size();
}

/* Is the header one that this build can use?  NULL if so, else why not. */
static const char *
check_header(const PaqFileHeader *header)
{
	PaqFileHeader expect = *header;

	if (header->magic != PAQ_FILE_MAGIC)
		return "it is not a queue file";
	if (header->version != PAQ_FILE_VERSION)
		return "it has another version";
	if (header->crc != header_crc(header))
		return "its header is damaged";
	if (header->nslots > INT_MAX / PAQ_SLOT_SIZE ||
		header->ring_size == 0 ||
		header->ring_size > PG_INT64_MAX / 4 ||
		header->ring_size % page_size() != 0)
		return "its header has impossible sizes";
	compute_layout(&expect);
	if (expect.slots_offset != header->slots_offset ||
		expect.ring_offset != header->ring_offset)
		return "it was made with another page size";
	return NULL;
}

/*
 * Map fd, whose header is known to be good: address space first, then the
 * file into it, then the ring once more behind.  Returns false with errno set.
 */
static bool
map_file(int fd, const PaqFileHeader *header, PaqQueueFile *qf)
{
	uint64		size = header->ring_offset + header->ring_size;
	Size		page = page_size();
	char	   *base;

	qf->map_size = size + header->ring_size;
	base = mmap(NULL, qf->map_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return false;
	if (mmap(base, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
			 fd, 0) == MAP_FAILED ||
		mmap(base + size, header->ring_size, PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_FIXED, fd, header->ring_offset) == MAP_FAILED)
	{
		int			save_errno = errno;

		munmap(base, qf->map_size);
		errno = save_errno;
		return false;
	}

	qf->base = base;
	qf->header = (PaqFileHeader *) base;
	qf->checkpoint[0] = (PaqCheckpoint *) (base + page);
	qf->checkpoint[1] = (PaqCheckpoint *) (base + 2 * page);
	qf->live = (PaqLive *) (base + 3 * page);
	qf->slots = base + header->slots_offset;
	qf->ring = base + header->ring_offset;
	qf->ring_size = header->ring_size;
	qf->salt = header->salt;
	return true;
}

/*
 * When the file was made, in nanoseconds; 0 where the system does not tell.
 * Unlike its name, that cannot be copied.
 */
static int64
file_birth(int fd)
{
#ifdef STATX_BTIME
	struct statx stx;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &stx) == 0 &&
		(stx.stx_mask & STATX_BTIME) != 0)
		return (int64) stx.stx_btime.tv_sec * INT64CONST(1000000000) +
			stx.stx_btime.tv_nsec;
#endif
	return 0;
}

/*
 * Was the file made by another cluster, or is it a copy of ours (a base
 * backup, say)?  Its records then belong to a trail elsewhere.
 */
static bool
is_foreign(int fd, const struct stat *st, const PaqFileHeader *header)
{
	int64		birth = file_birth(fd);

	return header->system_identifier != GetSystemIdentifier() ||
		header->inode != (uint64) st->st_ino ||
		(header->birth != 0 && birth != 0 && header->birth != birth);
}

/*
 * Read the header, or the second one if the first cannot be used.  Returns
 * NULL, or why neither can.
 */
static const char *
read_header(int fd, const char *path, PaqFileHeader *header)
{
	const char *problem = "it is too short";
	const char *second;

	if (paq_read_all(fd, (char *) header, sizeof(*header), 0) &&
		(problem = check_header(header)) == NULL)
		return NULL;
	if (!paq_read_all(fd, (char *) header, sizeof(*header),
					  second_header_offset()))
		return problem;
	second = check_header(header);
	if (second != NULL)
		return problem;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("the first header of audit queue file \"%s\" is damaged, using the second",
					path)));
	return NULL;
}

/*
 * A file that was truncated is made as long as it was, so that what is left
 * of it can be read; records that are missing will be noticed.  Returns false
 * with errno set if there is no room.
 */
static bool
restore_size(int fd, const char *path, uint64 size, uint64 expected)
{
	int			rc;

	if (size >= expected)
		return true;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("audit queue file \"%s\" was truncated", path),
			 errdetail("It has %llu bytes instead of %llu.",
					   (unsigned long long) size,
					   (unsigned long long) expected)));
	do
	{
		rc = posix_fallocate(fd, size, expected - size);
	} while (rc == EINTR);
	errno = rc;
	return rc == 0;
}

/*
 * Open a file of the queue directory for reading and writing.  Somebody may
 * have taken our permissions away, which does not make the contents worthless.
 * Returns -1 with errno set if that cannot be done.
 */
int
paq_file_open_fd(const char *path)
{
	const int	flags = O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | PG_BINARY;
	int			fd = BasicOpenFile(path, flags);
	struct stat st;

	if (fd >= 0 || errno != EACCES)
		return fd;
	if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) &&
		chmod(path, S_IRUSR | S_IWUSR) == 0)
	{
		ereport(LOG,
				(errmsg("restored permissions of audit queue file \"%s\"", path)));
		return BasicOpenFile(path, flags);
	}
	errno = EACCES;
	return -1;
}

/*
 * Open and map the queue file at path.  Returns true with *qf set; or false
 * with *reason a translated text of why it cannot be used, NULL if there is
 * no such file.  Never raises for anything found on disk.
 */
bool
paq_file_open(const char *path, PaqQueueFile *qf, char **reason)
{
	PaqFileHeader header;
	struct stat st;
	int			fd;
	const char *problem;

	memset(qf, 0, sizeof(*qf));
	*reason = NULL;

	fd = paq_file_open_fd(path);
	if (fd < 0)
	{
		if (errno != ENOENT)
			*reason = psprintf("could not open file \"%s\": %m", path);
		return false;
	}

	if (fstat(fd, &st) != 0)
		*reason = psprintf("could not stat file \"%s\": %m", path);
	else if (!S_ISREG(st.st_mode))
		*reason = psprintf("\"%s\" is not a regular file", path);
	else if ((problem = read_header(fd, path, &header)) != NULL)
		*reason = psprintf("queue file \"%s\" cannot be used: %s", path, problem);
	else if (!restore_size(fd, path, st.st_size,
						   header.ring_offset + header.ring_size))
		*reason = psprintf("could not extend queue file \"%s\": %m", path);
	else if ((errno = PAQ_FAULT("queue-read")) != 0 ||
			 !paq_is_readable(fd, 0, header.ring_offset + header.ring_size))
		*reason = psprintf("could not read queue file \"%s\": %m", path);
	else if (!map_file(fd, &header, qf))
		*reason = psprintf("could not map queue file \"%s\": %m", path);
	else
	{
		/* One damaged header is mended by the other. */
		if (memcmp(qf->header, &header, sizeof(header)) != 0)
			memcpy(qf->header, &header, sizeof(header));
		if (memcmp(qf->base + second_header_offset(), &header, sizeof(header)) != 0)
			memcpy(qf->base + second_header_offset(), &header, sizeof(header));
		qf->foreign = is_foreign(fd, &st, &header);
	}
	close(fd);
	return qf->base != NULL;
}

/* Unmap; the file stays. */
void
paq_file_close(PaqQueueFile *qf)
{
	if (qf->base != NULL)
		munmap(qf->base, qf->map_size);
	memset(qf, 0, sizeof(*qf));
}

/* A number that tells this file from those before it; names spill files. */
uint64
paq_file_generation(PaqQueueFile *qf)
{
	return (uint64) qf->header->created;
}

/* Fill in a header for a new file; fd is open on it. */
static void
init_header(PaqFileHeader *header, int fd, const char *path,
			Size ring_size, int nslots)
{
	struct stat st;

	if (fstat(fd, &st) != 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not stat file \"%s\": %m", path)));

	memset(header, 0, sizeof(*header));
	header->magic = PAQ_FILE_MAGIC;
	header->version = PAQ_FILE_VERSION;
	header->nslots = nslots;
	header->ring_size = paq_file_ring_size(ring_size);
	header->system_identifier = GetSystemIdentifier();
	header->inode = st.st_ino;
	header->birth = file_birth(fd);
	header->created = GetCurrentTimestamp();
	if (!pg_strong_random(&header->salt, sizeof(header->salt)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random salt for queue file \"%s\"",
						path)));
	compute_layout(header);
	header->crc = header_crc(header);
}

/* Initial contents of a mapped new file, apart from its header. */
static void
init_contents(PaqQueueFile *qf, const PaqCheckpoint *inherit)
{
	PaqCheckpoint checkpoint;
	uint64		start;

	/*
	 * Start a few records before the end of the ring, so that whoever runs
	 * this at all runs the wrap.  Position 0 is not a position.
	 */
	start = qf->ring_size - 1024;
	pg_atomic_init_u64(&qf->live->reserved, start);
	pg_atomic_init_u64(&qf->live->released, start);
	pg_atomic_init_u64(&qf->live->drained, start);
	paq_writers_reset(qf);
	for (int i = 0; i < PAQ_NDROPS; i++)
	{
		pg_atomic_init_u64(&qf->live->drops[i].count, 0);
		pg_atomic_init_u64(&qf->live->drops[i].first, 0);
		pg_atomic_init_u64(&qf->live->drops[i].last, 0);
		pg_atomic_init_u64(&qf->live->drops[i].position, 0);
	}
	paq_file_set_boot_id(qf);

	memset(&checkpoint, 0, sizeof(checkpoint));
	if (inherit != NULL)
	{
		checkpoint.sequence = inherit->sequence;
		checkpoint.doubtful = inherit->doubtful;
		memcpy(checkpoint.trail, inherit->trail, sizeof(checkpoint.trail));
	}
	checkpoint.drained = checkpoint.flushed = start;
	paq_checkpoint_write(qf, &checkpoint);
}

/*
 * Make a queue file with a ring of at least ring_size bytes and nslots
 * pending slots at path, replacing what is there.  inherit, if not NULL, says
 * how far the trail has got.  The server cannot start without it: anything
 * that goes wrong is FATAL.
 */
void
paq_file_create(const char *path, Size ring_size, int nslots,
				const PaqCheckpoint *inherit)
{
	char		tmp[MAXPGPATH];
	PaqFileHeader header;
	PaqQueueFile qf;
	uint64		size;
	int			fd;
	int			rc;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	if (unlink(tmp) != 0 && errno != ENOENT)
		paq_file_set_aside(tmp, "It is in the way of a new queue file.", FATAL);
	fd = BasicOpenFilePerm(tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | PG_BINARY,
						   S_IRUSR | S_IWUSR);
	if (fd < 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not create queue file \"%s\": %m", tmp),
				 errhint("Check \"pg_audit_queue.queue_directory\".")));

	init_header(&header, fd, tmp, ring_size, nslots);
	size = header.ring_offset + header.ring_size;

	/*
	 * All blocks now: a full disk is an error here, but would be SIGBUS in a
	 * backend later.
	 */
	do
	{
		rc = posix_fallocate(fd, 0, size);
	} while (rc == EINTR);
	if (rc != 0)
	{
		errno = rc;
		unlink(tmp);
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not allocate %llu bytes for queue file \"%s\": %m",
						(unsigned long long) size, tmp),
				 errhint("Free some space, or change \"pg_audit_queue.queue_size\" or \"pg_audit_queue.queue_directory\".")));
	}
	if (!map_file(fd, &header, &qf))
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not map queue file \"%s\": %m", tmp)));

	memcpy(qf.header, &header, sizeof(header));
	memcpy(qf.base + second_header_offset(), &header, sizeof(header));
	init_contents(&qf, inherit);
	if (msync(qf.base, size, MS_SYNC) != 0 || pg_fsync(fd) != 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not fsync file \"%s\": %m", tmp)));
	paq_file_close(&qf);
	close(fd);
	durable_rename(tmp, path, FATAL);
}
