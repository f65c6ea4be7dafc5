/*-------------------------------------------------------------------------
 *
 * retention.c
 *		What goes with old records: the record of each removal, kept files, and
 *		what load_state says of series.
 *
 * Removing evidence leaves evidence: the record of a partition, or a kept file,
 * that will be removed goes through the queue like any other, and the partition or
 * file goes only when the record is flushed, as with files of the trail
 * (drain/).  Nobody waits for the record to be in the table as well: that is the
 * loader's own work.  A partition has one record, however often dropping it is
 * tried: somebody may be reading it.  Only if the loader ends in between, or
 * something older turns up, there will be another one.
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
#include "queue/queue.h"
#include "storage/fd.h"
#include "utils/timestamp.h"

/* ----------
 * The record
 * ----------
 */

/* What will be removed, and its record */
static struct
{
	char		object[MAXPGPATH];	/* "": nothing */
	PaqPending *unsent;			/* waits for space in the queue; NULL: it is in */
	uint64		end;			/* position behind it, if it is in the queue */
}			planned;

/*
 * Does the trail have a durable record that the object, "TABLE" or "FILE", will
 * be removed?  If not, the record is made, or sent on its way.  name is the
 * object's without schema or directory.  Must not raise.
 */
bool
paq_removal_is_recorded(const char *type, const char *object, const char *name,
						uint64 bytes)
{
	if (strcmp(object, planned.object) != 0)
	{
		PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
		char		size[32];

		if (planned.unsent != NULL)
			paq_pending_free(planned.unsent);
		snprintf(size, sizeof(size), UINT64_FORMAT, bytes);
		paq_set_text(texts, PAQ_FIELD_COMMAND, "RETENTION");
		paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, type);
		paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, object);
		paq_set_text(texts, PAQ_FIELD_STATEMENT, name);
		paq_set_text(texts, PAQ_FIELD_OLD_VALUE, size);
		paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE, "pg_audit_queue.table_retention");
		planned.object[0] = '\0';
		planned.unsent = paq_own_record(PAQ_LOADER_NAME, paq_database, texts, 0, 1);
		if (planned.unsent == NULL)
			return false;
		strlcpy(planned.object, object, sizeof(planned.object));
	}
	if (planned.unsent != NULL)
	{
		planned.end = paq_pending_publish(planned.unsent, PAQ_SPACE_KEEP);
		if (planned.end == 0)
			return false;
		planned.unsent = NULL;
		paq_queue_request_flush(planned.end);
	}
	return paq_queue_is_flushed(planned.end);
}

/* It is removed.  What gets the same name later has a record of its own. */
void
paq_removal_done(void)
{
	planned.object[0] = '\0';
}

/* ----------
 * Kept files
 * ----------
 */

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
	paq_table_forget_series(before);
	return remove_kept_files(before);
}
