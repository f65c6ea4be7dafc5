/*-------------------------------------------------------------------------
 *
 * synced.c
 *		Keeps what a crash of the operating system could not take: a copy of each
 *		file as it was when it was last synced.
 *
 * Loaded by LD_PRELOAD in front of libc.  fsync(), fdatasync() and msync() copy
 * what they have been asked to sync into a file in the directory
 * PAQ_SYNCED_DIRECTORY, named after the inode, before they return: all of the
 * file, or the mapped part.  Only files are kept whose path has one of the words
 * in "kept".  Nothing is really synced, which saves time.
 *
 * What is copied may be newer than what was there when the function was called.
 * A disk may have that, too.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK	65536

static const char *const kept[] = {"/pg_wal/", "/pg_audit_queue/", "/audit/"};

static int
is_kept(const char *path)
{
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (strstr(path, kept[i]) != NULL)
			return 1;
	return 0;
}

/* Stop the test rather than go on with half a copy. */
static void
give_up(const char *what)
{
	perror(what);
	abort();
}

static int
open_copy(ino_t inode)
{
	const char *directory = getenv("PAQ_SYNCED_DIRECTORY");
	char		path[PATH_MAX];
	int			fd;

	if (directory == NULL)
		give_up("PAQ_SYNCED_DIRECTORY");
	snprintf(path, sizeof(path), "%s/%ju", directory, (uintmax_t) inode);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	if (fd < 0)
		give_up(path);
	return fd;
}

static void
write_copy(int copy, const char *data, size_t len, off_t offset)
{
	while (len > 0)
	{
		ssize_t		n = pwrite(copy, data, len, offset);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			give_up("pwrite");
		data += n;
		len -= n;
		offset += n;
	}
}

static void
copy_file(int fd, const struct stat *st)
{
	static __thread char chunk[CHUNK];
	int			copy = open_copy(st->st_ino);
	off_t		offset = 0;
	ssize_t		n;

	while ((n = pread(fd, chunk, sizeof(chunk), offset)) > 0)
	{
		write_copy(copy, chunk, n, offset);
		offset += n;
	}
	if (n < 0 || ftruncate(copy, offset) != 0)
		give_up("copy");
	close(copy);
}

static int
sync_fd(int fd)
{
	int			save_errno = errno;
	char		link[64];
	char		path[PATH_MAX];
	ssize_t		len;
	struct stat st;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	if (len < 0 || fstat(fd, &st) != 0)
		return -1;
	path[len] = '\0';
	if (S_ISREG(st.st_mode) && is_kept(path))
		copy_file(fd, &st);
	errno = save_errno;
	return 0;
}

int
fsync(int fd)
{
	return sync_fd(fd);
}

int
fdatasync(int fd)
{
	return sync_fd(fd);
}

/*
 * The part of [from, to) in the mapping that a line of /proc/self/maps describes.
 * Returns how many bytes of the range it has.
 */
static size_t
copy_mapped(const char *line, uintptr_t from, uintptr_t to)
{
	uintptr_t	begin;
	uintptr_t	end;
	uintmax_t	offset;
	uintmax_t	inode;
	int			copy;

	if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %*s %jx %*s %ju", &begin, &end,
			   &offset, &inode) != 4 || end <= from || begin >= to)
		return 0;
	if (from > begin)
	{
		offset += from - begin;
		begin = from;
	}
	if (to < end)
		end = to;
	copy = open_copy(inode);
	write_copy(copy, (const char *) begin, end - begin, offset);
	close(copy);
	return end - begin;
}

int
msync(void *addr, size_t length, int flags)
{
	const uintptr_t page = sysconf(_SC_PAGESIZE);
	const uintptr_t from = (uintptr_t) addr;
	const uintptr_t to = (from + length + page - 1) / page * page;
	int			save_errno = errno;
	FILE	   *maps = fopen("/proc/self/maps", "re");
	char		line[PATH_MAX + 128];
	size_t		copied = 0;

	if (maps == NULL)
		give_up("/proc/self/maps");
	while (fgets(line, sizeof(line), maps) != NULL)
		copied += copy_mapped(line, from, to);
	fclose(maps);
	if (copied != to - from)
	{
		errno = ENOMEM;
		return -1;
	}
	errno = save_errno;
	return 0;
}
