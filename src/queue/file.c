/*-------------------------------------------------------------------------
 *
 * file.c
 *		The queue file: making it, mapping it, its checkpoints and its note of
 *		WAL, and whether a file that was found can be trusted.
 *
 * Guarantees: a file appears under its name complete, with all its blocks
 * allocated, or not at all.  A file is mapped only after everything that later
 * code relies on (geometry, checksum, size) has been checked, so no content of
 * a file can make the server read outside of the mapping.  A damaged file is
 * made readable as far as possible: it has two headers of which one is enough,
 * and a part that was cut off is replaced by zeros.
 *
 * A checkpoint ties a queue position to an end of the trail: everything before
 * "drained" is in the trail, and everything in the trail beyond the stored end
 * is a batch that was being written, which has to be cut off and written again.
 * That makes the trail exact over a crash at any instruction, so a checkpoint
 * must never be seen half old and half new.  There are two blocks: the older
 * one is overwritten, and the newest one with a good checksum counts.
 *
 * A file is trusted if its positions are those that the last process of the
 * server before left: the operating system has not been restarted since, or
 * was restarted after the worker had synced everything, and the positions do
 * not contradict each other.  Then the trail ends where the checkpoint says,
 * and every record that is not in it is between "drained" and "reserved".  Of
 * any other file, each page may be older or newer than the others and than the
 * trail.  Only what was durable at the time of a checkpoint is certain; the
 * rest has to be found out by looking at what is there.
 *
 * Locking: none.  Files are made and judged by the postmaster before there are
 * backends; the worker writes the live file's checkpoints, and is the only user
 * of backlog files.
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
#include "miscadmin.h"
#include "queue/wal.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

/* Identification of the operating system's run, on Linux; see random(4) */
#define BOOT_ID_FILE	"/proc/sys/kernel/random/boot_id"

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

static pg_crc32c
header_crc(const PaqFileHeader *header)
{
	return paq_crc32c(header, offsetof(PaqFileHeader, crc));
}

/*
 * Compute the offsets of a file with header's sizes of ring and slots; returns
 * the file's size.
 */
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

/* Returns NULL if this build can use the header, else why it cannot. */
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
 * Map fd, whose header is known to be good: reserve address space, map the file
 * into it, and the ring once more behind.  Returns false with errno set.
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
 * Store both copies of the header, as far as they are not what they should be: a
 * file that is only read, or cannot be written to, must be left alone.
 */
static void
store_header(PaqQueueFile *qf, const PaqFileHeader *header)
{
	char	   *second = qf->base + second_header_offset();

	if (memcmp(qf->header, header, sizeof(*header)) != 0)
		memcpy(qf->header, header, sizeof(*header));
	if (memcmp(second, header, sizeof(*header)) != 0)
		memcpy(second, header, sizeof(*header));
}

/*
 * When the file was made, in nanoseconds; 0 where the system does not tell.
 * A copy of the file has another time.
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

/* Allocate all blocks of a part of the file; returns false with errno set. */
static bool
allocate_blocks(int fd, uint64 from, uint64 to)
{
	do
	{
		errno = posix_fallocate(fd, from, to - from);
	} while (errno == EINTR);
	return errno == 0;
}

/*
 * If the file was truncated, make it as long as it was, so that what is left
 * of it can be read; the reader notices what is missing.  Returns false with
 * errno set if the disk is full.
 */
static bool
restore_size(int fd, const char *path, uint64 size, uint64 expected)
{
	if (size >= expected)
		return true;
	ereport(LOG,
			(errcode(ERRCODE_DATA_CORRUPTED),
			 errmsg("audit queue file \"%s\" was truncated", path),
			 errdetail("It has %llu bytes instead of %llu.",
					   (unsigned long long) size,
					   (unsigned long long) expected)));
	return allocate_blocks(fd, size, expected);
}

/*
 * Open a file of the queue directory for reading and writing.  If somebody has
 * taken our permissions away, restore them.  Returns -1 with errno set.
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
 * with *reason a text of why it cannot be used, NULL if there is no such file.
 * Nothing found on disk makes it raise an error.
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
		store_header(qf, &header);	/* one may be damaged */
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

/* Fill in a mapped new file, which is all zeros, apart from its header. */
static void
init_contents(PaqQueueFile *qf, const PaqCheckpoint *inherit)
{
	PaqCheckpoint checkpoint;
	uint64		start;

	/*
	 * Start a few records before the end of the ring, so that every user
	 * crosses it soon.  Position 0 is not a position.
	 */
	start = qf->ring_size - 1024;
	pg_atomic_write_u64(&qf->live->reserved, start);
	pg_atomic_write_u64(&qf->live->released, start);
	pg_atomic_write_u64(&qf->live->drained, start);
	paq_file_set_boot_id(qf);

	memset(&checkpoint, 0, sizeof(checkpoint));
	checkpoint.sequence = inherit->sequence;
	checkpoint.doubtful = inherit->doubtful;
	memcpy(checkpoint.trail, inherit->trail, sizeof(checkpoint.trail));
	checkpoint.drained = checkpoint.flushed = start;
	paq_checkpoint_write(qf, &checkpoint);
}

/*
 * Make a queue file with a ring of at least ring_size bytes and nslots
 * pending slots at path, replacing what is there, and map it.  inherit says how
 * far the trail has got.  The server cannot start without a queue file, so any
 * failure is FATAL.
 */
void
paq_file_create(const char *path, Size ring_size, int nslots,
				const PaqCheckpoint *inherit, PaqQueueFile *qf)
{
	char		tmp[MAXPGPATH];
	PaqFileHeader header;
	struct stat st;
	uint64		size;
	int			fd;

	snprintf(tmp, sizeof(tmp), "%s.new", path);
	if (unlink(tmp) != 0 && errno != ENOENT)
		paq_file_set_aside(tmp, "It is in the way of a new queue file.", FATAL);
	fd = BasicOpenFilePerm(tmp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC | PG_BINARY,
						   S_IRUSR | S_IWUSR);
	if (fd < 0 || fstat(fd, &st) != 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not create queue file \"%s\": %m", tmp),
				 errhint("Check \"pg_audit_queue.queue_directory\".")));

	memset(&header, 0, sizeof(header));
	header.magic = PAQ_FILE_MAGIC;
	header.version = PAQ_FILE_VERSION;
	header.nslots = nslots;
	header.ring_size = paq_file_ring_size(ring_size);
	header.system_identifier = GetSystemIdentifier();
	header.inode = st.st_ino;
	header.birth = file_birth(fd);
	header.created = GetCurrentTimestamp();
	if (!pg_strong_random(&header.salt, sizeof(header.salt)))
		ereport(FATAL,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random salt for queue file \"%s\"",
						tmp)));
	size = compute_layout(&header);
	header.crc = header_crc(&header);

	/*
	 * Allocate all blocks now: a full disk is an error here, but would be
	 * SIGBUS in a backend later.
	 */
	if (!allocate_blocks(fd, 0, size))
	{
		int			save_errno = errno;

		unlink(tmp);
		errno = save_errno;
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not allocate %llu bytes for queue file \"%s\": %m",
						(unsigned long long) size, tmp),
				 errhint("Free some space, or change \"pg_audit_queue.queue_size\" or \"pg_audit_queue.queue_directory\".")));
	}
	memset(qf, 0, sizeof(*qf));
	if (!map_file(fd, &header, qf))
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not map queue file \"%s\": %m", tmp)));

	store_header(qf, &header);
	init_contents(qf, inherit);
	if (msync(qf->base, size, MS_SYNC) != 0 || pg_fsync(fd) != 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not fsync file \"%s\": %m", tmp)));
	close(fd);
	durable_rename(tmp, path, FATAL);
}

static pg_crc32c
checkpoint_crc(PaqQueueFile *qf, const PaqCheckpoint *checkpoint)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &qf->salt, sizeof(qf->salt));
	COMP_CRC32C(crc, checkpoint, offsetof(PaqCheckpoint, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Number of the newest valid block, -1 if none is. */
static int
newest_block(PaqQueueFile *qf)
{
	int			newest = -1;

	for (int i = 0; i < 2; i++)
	{
		const PaqCheckpoint *block = qf->checkpoint[i];

		if (block->crc != checkpoint_crc(qf, block))
			continue;
		if (newest < 0 || block->counter > qf->checkpoint[newest]->counter)
			newest = i;
	}
	return newest;
}

/* Read the newest checkpoint.  Returns false if there is no valid one. */
bool
paq_checkpoint_read(PaqQueueFile *qf, PaqCheckpoint *out)
{
	int			newest = newest_block(qf);

	if (newest < 0)
		return false;
	memcpy(out, qf->checkpoint[newest], sizeof(*out));
	return true;
}

/*
 * Store a checkpoint; its counter and checksum are set here.  A process that
 * dies in the middle leaves the previous one in force.
 */
void
paq_checkpoint_write(PaqQueueFile *qf, PaqCheckpoint *checkpoint)
{
	int			newest = newest_block(qf);
	PaqCheckpoint *block;

	checkpoint->counter = newest < 0 ? 1 : qf->checkpoint[newest]->counter + 1;
	checkpoint->crc = checkpoint_crc(qf, checkpoint);
	block = qf->checkpoint[newest == 0 ? 1 : 0];
	memcpy(block, checkpoint, offsetof(PaqCheckpoint, trail));
	(void) PAQ_FAULT("checkpoint-half");
	memcpy(block, checkpoint, sizeof(*checkpoint));
	(void) PAQ_FAULT("checkpoint-written");
}

/* Write that part of the mapped file to disk, whole pages; failure is logged. */
static bool
sync_part(char *from, Size size)
{
	if ((errno = PAQ_FAULT("queue-sync")) == 0 &&
		(!enableFsync || size == 0 || msync(from, size, MS_SYNC) == 0))
		return true;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not sync the audit queue file: %m")));
	return false;
}

/* Write the first size bytes of the file to disk; failure is logged. */
bool
paq_file_sync(PaqQueueFile *qf, Size size)
{
	return sync_part(qf->base, size);
}

/* Likewise, the part of the ring that has not been given back. */
bool
paq_file_sync_ring(PaqQueueFile *qf)
{
	uint64		released = pg_atomic_read_u64(&qf->live->released);
	uint64		size = pg_atomic_read_u64(&qf->live->reserved) - released;
	char	   *from = (char *) paq_frame_at(qf, released);
	Size		before = (from - qf->base) % page_size();

	return sync_part(from - before,
					 size == 0 ? 0 : before + Min(size, qf->ring_size));
}

static PaqWalNote *
note_at(PaqQueueFile *qf, int number)
{
	return (PaqWalNote *) ((char *) qf->checkpoint[number] + PAQ_WAL_NOTE_OFFSET);
}

static pg_crc32c
note_crc(PaqQueueFile *qf, const PaqWalNote *note)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &qf->salt, sizeof(qf->salt));
	COMP_CRC32C(crc, note, offsetof(PaqWalNote, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Which of the two is the newest valid one, -1 if none is. */
static int
newest_note(PaqQueueFile *qf)
{
	int			newest = -1;

	for (int i = 0; i < 2; i++)
	{
		const PaqWalNote *note = note_at(qf, i);

		if (note->crc == note_crc(qf, note) &&
			(newest < 0 || note->number > note_at(qf, newest)->number))
			newest = i;
	}
	return newest;
}

/* Read the file's note; false, and a note of no WAL, if there is none. */
bool
paq_wal_note_read(PaqQueueFile *qf, PaqWalNote *note)
{
	int			newest = newest_note(qf);

	if (newest < 0)
		memset(note, 0, sizeof(*note));
	else
		*note = *note_at(qf, newest);
	return newest >= 0;
}

/*
 * Store a note in place of the older one, and sync it; its number has been set by
 * the caller, its checksum is set here.  Returns false if it could not be synced.
 */
bool
paq_wal_note_write(PaqQueueFile *qf, PaqWalNote *note)
{
	note->crc = note_crc(qf, note);
	*note_at(qf, newest_note(qf) == 0 ? 1 : 0) = *note;
	(void) PAQ_FAULT("note-written");
	return paq_file_sync(qf, (char *) qf->live - qf->base);
}

/* Note that the file is in use in this run of the operating system. */
void
paq_file_set_boot_id(PaqQueueFile *qf)
{
	paq_read_text(BOOT_ID_FILE, qf->live->boot_id, PAQ_BOOT_ID_LEN);
}

/*
 * Has the operating system been up ever since the file was last in use?  If
 * that is not known, the answer is no.
 */
static bool
same_boot(PaqQueueFile *qf)
{
	char		id[PAQ_BOOT_ID_LEN];

	paq_read_text(BOOT_ID_FILE, id, sizeof(id));
	return id[0] != '\0' && memcmp(id, qf->live->boot_id, sizeof(id)) == 0;
}

/*
 * Are all pages of the file as the last process of the server left them?
 * checkpoint is the file's.
 */
bool
paq_file_is_intact(PaqQueueFile *qf, const PaqCheckpoint *checkpoint)
{
	return same_boot(qf) ||
		(checkpoint->synced_end != 0 &&
		 checkpoint->synced_end == pg_atomic_read_u64(&qf->live->reserved));
}

/* Is all that the trail has durable? */
static bool
all_is_flushed(const PaqCheckpoint *checkpoint)
{
	return checkpoint->flushed == checkpoint->drained &&
		checkpoint->flushed_slots == checkpoint->drained_slots &&
		memcmp(checkpoint->flushed_drops, checkpoint->drops,
			   sizeof(checkpoint->drops)) == 0;
}

/* Are the positions of the file to be trusted?  checkpoint is the file's. */
bool
paq_file_is_trusted(PaqQueueFile *qf, const PaqCheckpoint *checkpoint)
{
	uint64		released = pg_atomic_read_u64(&qf->live->released);
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);

	if (released > checkpoint->drained || checkpoint->drained > reserved ||
		reserved - released > 2 * qf->ring_size)
		return false;

	/* The trail may be behind the checkpoint if it was not synced. */
	return same_boot(qf) ||
		(paq_file_is_intact(qf, checkpoint) && all_is_flushed(checkpoint));
}

/*
 * Did the worker leave the file empty - with nothing in it that the trail does
 * not have durably - and has nobody used it since?  Then *checkpoint is the
 * file's.
 */
bool
paq_file_is_empty(PaqQueueFile *qf, PaqCheckpoint *checkpoint)
{
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);

	if (!paq_checkpoint_read(qf, checkpoint) ||
		!paq_file_is_trusted(qf, checkpoint) ||
		checkpoint->synced_end != reserved ||
		checkpoint->drained != reserved || !all_is_flushed(checkpoint) ||
		paq_drops_unreported(qf, checkpoint->drops))
		return false;
	for (uint32 i = 0; i < qf->header->nslots; i++)
		if (paq_slot(qf, i)->used != 0)
			return false;
	return true;
}
