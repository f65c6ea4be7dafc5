/*-------------------------------------------------------------------------
 *
 * file_util.c
 *		See file_util.h.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/magic.h>
#include <sys/vfs.h>
#endif

#include "file_util.h"
#include "port/pg_crc32c.h"
#ifndef FRONTEND
#include "storage/fd.h"
#endif

uint32
paq_crc32c(const void *data, Size len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, data, len);
	FIN_CRC32C(crc);
	return crc;
}

/* Read exactly len bytes at offset.  A file that ends before them is EIO. */
bool
paq_read_all(int fd, char *data, Size len, uint64 offset)
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
 * Write len bytes at offset; or with PAQ_AT_END, to a file that was opened with
 * O_APPEND, where it ends.  Returns how many of them were written: fewer than len is
 * a failure.
 */
Size
paq_write_all(int fd, const char *data, Size len, int64 offset)
{
	Size		done = 0;

	while (done < len)
	{
		ssize_t		n = offset == PAQ_AT_END ? write(fd, data + done, len - done) :
			pwrite(fd, data + done, len - done, offset + done);

		if (n < 0 && errno == EINTR)
			continue;
		/* If a write did nothing, assume the disk is full. */
		if (n == 0)
			errno = ENOSPC;
		if (n <= 0)
			break;
		done += n;
	}
	return done;
}

/*
 * Can the file be read from one offset to the other?  Ask before they are
 * mapped: in a mapping, a sector that the disk cannot read raises SIGBUS.
 */
bool
paq_is_readable(int fd, uint64 from, uint64 to)
{
	static char scratch[64 * 1024];

	for (uint64 pos = from; pos < to; pos += sizeof(scratch))
		if (!paq_read_all(fd, scratch, Min(sizeof(scratch), to - pos), pos))
			return false;
	return true;
}

/*
 * Map a whole file for reading, after a check that it is readable from offset
 * "from" on.  *data is NULL if nothing is there, which goes for everything that
 * is not a regular file, too.  To be unmapped by the caller.
 */
bool
paq_map_file(int fd, uint64 from, char **data, Size *size)
{
	struct stat st;
	void	   *map;

	*data = NULL;
	*size = 0;
	if (fstat(fd, &st) != 0)
		return false;
	if (!S_ISREG(st.st_mode) || (uint64) st.st_size <= from)
		return true;
	if (!paq_is_readable(fd, from, st.st_size))
		return false;
	map = mmap(NULL, st.st_size, PROT_READ, MAP_SHARED, fd, 0);
	if (map == MAP_FAILED)
		return false;
	*data = map;
	*size = st.st_size;
	return true;
}

#ifndef FRONTEND

/*
 * Make the names in an open directory durable.  Some file systems cannot do
 * that, and do not need it.
 */
bool
paq_fsync_directory(int fd)
{
	return pg_fsync(fd) == 0 || errno == EBADF || errno == EINVAL;
}

#endif

/*
 * Contents of a short file, as a string of at most size bytes; the rest is
 * filled with zeros.  Empty if there is no such file.  Does not allocate.
 */
void
paq_read_text(const char *path, char *text, Size size)
{
	int			fd = open(path, O_RDONLY | O_CLOEXEC);

	memset(text, 0, size);
	if (fd < 0)
		return;
	if (read(fd, text, size - 1) < 0)
		text[0] = '\0';
	close(fd);
}

/*
 * Returns true if nobody but its owner can access the file, as it must be with secrets.  A group
 * may read root's files, as libpq allows it for the keys of certificates.
 */
bool
paq_is_private(const struct stat *st)
{
	return (st->st_mode & (st->st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO :
						   S_IRWXG | S_IRWXO)) == 0;
}

/*
 * Of the file system with that file or directory: bytes that there are for other
 * users than root, and how many of them are free.
 */
bool
paq_disk_space(const char *path, uint64 *size, uint64 *available)
{
	struct statvfs st;

	while (statvfs(path, &st) != 0)
		if (errno != EINTR)
			return false;
	*available = (uint64) st.f_bavail * st.f_frsize;
	*size = (uint64) (st.f_blocks - st.f_bfree) * st.f_frsize + *available;
	return true;
}

/*
 * Is that file or directory on a file system that a restart of the operating
 * system empties?  Where that cannot be found out, the answer is no.
 */
bool
paq_is_in_memory(const char *path)
{
#ifdef __linux__
	struct statfs st;

	return statfs(path, &st) == 0 &&
		(st.f_type == TMPFS_MAGIC || st.f_type == RAMFS_MAGIC);
#else
	return false;
#endif
}
