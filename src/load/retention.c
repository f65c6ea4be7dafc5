/*-------------------------------------------------------------------------
 *
 * retention.c
 *		What goes with old records: kept files, and what load_state says of series.
 *
 * Kept files and rows of load_state live as long as table_retention says that
 * records do; without it, for ever.  A kept file was finished before the first day
 * that the table still has, and so were all records in it.  A series that had
 * nothing loaded since then, and has no files, has no records in the table either:
 * if a file of it turns up, from a copy of the directory, nothing of it gets
 * into the table twice.
 *
 * Guarantees: waits for nothing; what has to be waited for is looked at again at
 * the next call.  Removes only files that have the names of our own.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "guc.h"
#include "load/load_internal.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

/* Is that a kept file, and no other of our files?  If so, *st is its status. */
static bool
is_kept_file(const char *name, const char *path, struct stat *st)
{
	const Size	suffix_len = sizeof(PAQ_KEPT_SUFFIX) - 1;
	char		original[MAXPGPATH];
	PaqLoadFile file;
	Size		len = strlen(name);

	if (len <= suffix_len || len - suffix_len >= sizeof(original) ||
		strcmp(name + len - suffix_len, PAQ_KEPT_SUFFIX) != 0)
		return false;
	strlcpy(original, name, len - suffix_len + 1);

	/* While it has its first name, too, the worker may still write to it. */
	return paq_load_file_parse(original, &file) &&
		lstat(path, st) == 0 && S_ISREG(st->st_mode) && st->st_nlink == 1;
}

/* Remove a file if that is recorded; false if the record is not durable yet. */
static bool
remove_kept(const char *path, const char *name, uint64 bytes)
{
	if (!paq_removal_is_recorded("FILE", path, name, bytes))
		return false;
	if (unlink(path) != 0 && errno != ENOENT)
		ereport(ERROR,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", path)));
	paq_removal_done();
	ereport(LOG,
			(errmsg("removing file \"%s\" of the audit trail, which is older than \"pg_audit_queue.table_retention\"",
					path)));
	return true;
}

/* Remove kept files that are older; false if a record is not durable yet. */
static bool
remove_kept_files(TimestampTz before)
{
	DIR		   *dir = AllocateDir(paq_load_directory());
	struct dirent *de;
	bool		done = true;

	while (done && (de = ReadDir(dir, paq_load_directory())) != NULL)
	{
		char		path[MAXPGPATH];
		struct stat st;

		snprintf(path, sizeof(path), "%s/%s", paq_load_directory(), de->d_name);
		if (is_kept_file(de->d_name, path, &st) &&
			time_t_to_timestamptz(st.st_mtime) < before)
			done = remove_kept(path, de->d_name, (uint64) st.st_size);
	}
	FreeDir(dir);
	return done;
}

/* Remove from load_state the series that had nothing loaded since and have no files. */
static void
forget_series(TimestampTz since)
{
	uint64		count;
	uint64	   *series = paq_table_old_series(since, &count);
	uint64		start;

	for (uint64 i = 0; i < count; i++)
		if (!paq_files_have(series[i], &start))
			paq_table_forget_series(series[i]);
	pfree(series);
}

/*
 * Remove what is due, but for partitions.  Returns whether all of it is done; if
 * not, this has to be called again soon.  Must be called in a transaction with a
 * snapshot, when no old partition is left, and may raise an error.
 */
bool
paq_expire(TimestampTz now)
{
	const TimestampTz before = paq_start_of(paq_first_day(now));

	if (TIMESTAMP_IS_NOBEGIN(before) || !paq_files_known())
		return true;
	forget_series(before);
	return remove_kept_files(before);
}
