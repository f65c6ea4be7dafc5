/*-------------------------------------------------------------------------
 *
 * extent.c
 *		How much of the trail there is, and how much space for more.
 *
 * A trail file is known by its name (names.c), and is a regular file of the
 * server's user.  What is in it is not looked at, as it is before a file is
 * removed.
 *
 * Used by sessions, and therefore of no use to what the worker keeps in memory.
 * May raise an error if there is no memory, or an interrupt, and for nothing
 * else.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_util.h"
#include "guc.h"
#include "miscadmin.h"
#include "sink/extent.h"
#include "sink/load_file.h"
#include "sink/sink_internal.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

/* Of files with names of the trail's, or with names of those to be loaded */
static bool
is_trail_file(regex_t *names, const char *name, const struct stat *st)
{
	const Size	suffix_len = sizeof(PAQ_KEPT_SUFFIX) - 1;
	Size		len = strlen(name);
	char		original[MAXPGPATH];
	PaqLoadFile file;

	if (!S_ISREG(st->st_mode) || st->st_uid != geteuid())
		return false;
	if (names != NULL)
		return paq_trail_names_match(names, name);

	/* A file that gets its second name has both for a moment. */
	strlcpy(original, name, sizeof(original));
	if (len > suffix_len && len < sizeof(original) && st->st_nlink == 1 &&
		strcmp(name + len - suffix_len, PAQ_KEPT_SUFFIX) == 0)
		original[len - suffix_len] = '\0';
	return paq_load_file_parse(original, &file);
}

/* The latest time that we believe a file to have: in the year 9999 */
#define MAX_MTIME		INT64CONST(253402300799)

/* What is done with each file of a directory */
typedef void (*FileAction) (void *arg, const char *directory, const char *name,
						   const struct stat *st);

/* When a file was last written to.  Somebody may have set any time. */
TimestampTz
paq_trail_written(const struct stat *st)
{
	const int64 seconds = Min(Max((int64) st->st_mtim.tv_sec, 0), MAX_MTIME);

	return time_t_to_timestamptz((pg_time_t) seconds) + st->st_mtim.tv_nsec / 1000;
}

static void
count_file(void *arg, const char *directory, const char *name, const struct stat *st)
{
	PaqTrailExtent *extent = arg;
	TimestampTz mtime = paq_trail_written(st);

	extent->bytes += st->st_size;
	if (extent->oldest_time != 0 && extent->oldest_time <= mtime)
		return;
	extent->oldest_time = mtime;
	snprintf(extent->oldest, sizeof(extent->oldest), "%s/%s", directory, name);
}

/* For the files of a directory; names is NULL for files to be loaded. */
static bool
for_directory(const char *directory, regex_t *names, FileAction action, void *arg)
{
	DIR		   *dir = AllocateDir(directory);
	struct dirent *de;

	if (dir == NULL)
		return errno == ENOENT;
	while ((de = ReadDirExtended(dir, directory, LOG)) != NULL)
	{
		struct stat st;

		CHECK_FOR_INTERRUPTS();
		if (fstatat(dirfd(dir), de->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
			is_trail_file(names, de->d_name, &st))
			action(arg, directory, de->d_name, &st);
	}
	FreeDir(dir);
	return true;
}

/* For the files of log_directory */
static bool
for_trail_files(FileAction action, void *arg)
{
	regex_t		names;
	volatile bool ok = false;

	if (!paq_trail_names_compile(&names))
		return false;
	PG_TRY();
	{
		ok = for_directory(paq_log_directory, &names, action, arg);
	}
	PG_FINALLY();
	{
		pg_regfree(&names);
	}
	PG_END_TRY();
	return ok;
}

bool
paq_trail_extent(PaqTrailExtent *extent)
{
	memset(extent, 0, sizeof(*extent));
	return for_trail_files(count_file, extent) &&
		for_directory(paq_load_directory(), NULL, count_file, extent);
}

/* What is behind a place in a file */
typedef struct Behind
{
	const char *file;			/* its name; "": all is */
	TimestampTz written;		/* when the file was, last */
	uint64		bytes;
} Behind;

static void
add_if_behind(void *arg, const char *directory, const char *name, const struct stat *st)
{
	Behind	   *behind = arg;

	if (behind->file[0] == '\0' ||
		(strcmp(name, behind->file) != 0 && paq_trail_written(st) >= behind->written))
		behind->bytes += st->st_size;
}

bool
paq_trail_bytes_behind(const char *file, uint64 offset, uint64 *bytes)
{
	Behind		behind = {.file = file};
	char		path[MAXPGPATH];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", paq_log_directory, file);
	if (file[0] != '\0')
	{
		if (lstat(path, &st) != 0)
			return false;
		behind.written = paq_trail_written(&st);
		behind.bytes = (uint64) st.st_size > offset ? st.st_size - offset : 0;
	}
	if (!for_trail_files(add_if_behind, &behind))
		return false;
	*bytes = behind.bytes;
	return true;
}

/* Of the file system that the trail's files are written to */
bool
paq_trail_space(uint64 *size, uint64 *available)
{
	return paq_disk_space(paq_trail_directory(), size, available);
}
