/*-------------------------------------------------------------------------
 *
 * retention.c
 *		Removing trail files that are too old, or more than there may be.
 *
 * A trail file is a regular file of the server's user in log_directory that has
 * a name of a trail file (names.c).  Besides, it begins as trail files do, or is
 * empty.  In doubt a file is none, because trail files may be removed.  The
 * current file, under whatever name, never is.
 *
 * A file's age is counted from its last change.  The oldest go first.
 *
 * A pass begins when the worker does, with each new file, at each reload, and
 * when the oldest file falls due.  The directory is read; a group of files is
 * planned; the caller sees to it that the trail tells of that, durably; the files
 * are removed, one after the other; then comes the next group.  Between two
 * pieces of that work the worker writes what is in the queue.  A piece is
 * NAMES_AT_ONCE names of the directory, or one file, and takes as long as the file
 * system needs for that: the removal of a large file may take a while.
 *
 * The records of a pass may make new files.  That is no reason for another pass:
 * there might be no end to it.
 *
 * A file stays for the consumers that have not acknowledged it, and so do those
 * behind it; the worker looks again every few seconds.
 *
 * Guarantees: what is removed is what was planned, unchanged since.  All names
 * are looked up in the directory that was opened, even if something else takes
 * its place, and no symbolic link is followed.  Nothing is removed while there
 * is no current file, or while records have to be recognized that may be in any
 * file (salvage.c).  What cannot be removed is reported once, left alone until
 * the next reload, and not counted.
 *
 * Must not raise for what the world outside does.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include "fault.h"
#include "file_util.h"
#include "guc.h"
#include "sink/sink_internal.h"
#include "stats.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* How many names are read in one piece of work */
#define NAMES_AT_ONCE	16

/* How many files are planned at once */
#define MAX_GROUP		32

/* Bytes of their names: a record must not become so long that it is spilled. */
#define MAX_NAMES		2048

/* If consumers have not acknowledged a file, how long to wait for that, in ms */
#define CONSUMER_DELAY	10000

/* If a file's removal cannot be sealed, how long to wait before the next attempt, in ms */
#define SEAL_DELAY		10000

/* How many files that cannot be removed are kept in mind */
#define MAX_STUCK		256

/* How much of a file has to be read to see whether it is one of the trail's */
#define HEAD_SIZE		8192

/* What every record but those of format json has near its beginning */
#define RECORD_MARK		"AUDIT: "

typedef enum Phase
{
	PHASE_IDLE,
	PHASE_READ,					/* the directory is being read */
	PHASE_PLAN,
	PHASE_REMOVE				/* when the plan is in the trail */
} Phase;

/* A finished trail file */
typedef struct OldFile
{
	ino_t		ino;
	TimestampTz mtime;			/* of its last change */
	uint64		size;			/* bytes */
	char	   *name;
} OldFile;

/* The pass that is under way, or the last one */
static struct
{
	Phase		phase;

	/* The current file, and the last reload, when it began */
	char		current[MAXPGPATH];
	TimestampTz reload;

	DIR		   *dir;
	dev_t		dev;
	regex_t		names;			/* of trail files, without their ending */
	bool		names_compiled;

	MemoryContext context;		/* of the following */
	List	   *files;			/* OldFile; oldest first when all are known */
	int			next;			/* number of the file to be dealt with next */
	uint64		total_size;		/* of that and younger ones, and of the current */
}			pass;

/* When the next pass is due, if nothing else begins one before */
static TimestampTz next_due = DT_NOEND;

/* The group of files that is planned */
static struct
{
	PaqRemoval	removal;
	OldFile    *files[MAX_GROUP];
	int			removed;		/* how many of them have been dealt with */
	char		path[MAXPGPATH];
	char		names[MAX_NAMES];
	char		consumers[256]; /* that have not acknowledged them */
}			plan;

/* What cannot be removed, files by inode, and whether any can */
static struct
{
	ino_t		files[MAX_STUCK];
	int			nfiles;
	bool		directory;
}			stuck;

/* When a file of that time is too old; DT_NOEND for never. */
static TimestampTz
due_at(TimestampTz mtime)
{
	return paq_log_retention_age == 0 ? DT_NOEND :
		Max(mtime + paq_log_retention_age * (SECS_PER_MINUTE * USECS_PER_SEC),
			paq_retention_begins(paq_retention_is_short(paq_log_retention_age),
								 GetCurrentTimestamp()));
}

/* When the oldest file is one too many; DT_NOEND while there is space for all. */
static TimestampTz
excess_due_at(void)
{
	return paq_log_retention_size == 0 ||
		pass.total_size <= (uint64) paq_log_retention_size * 1024 ? DT_NOEND :
		paq_retention_begins(paq_retention_is_small(paq_log_retention_size),
							 GetCurrentTimestamp());
}

/*
 * Would it be right to remove anything now?  Not while the current file could not
 * be followed by one in the directory that the settings name: that may be another
 * server's.
 */
static bool
is_possible(void)
{
	return (paq_log_retention_age != 0 || paq_log_retention_size != 0) &&
		paq_trail.fd >= 0 && !paq_trail.gone &&
		paq_trail_is_inside(paq_trail.path) && !paq_salvage_is_kept() &&
		stuck.nfiles < MAX_STUCK;
}

static bool
pass_is_due(void)
{
	return pass.reload != PgReloadTime ||
		strcmp(pass.current, paq_trail.path) != 0 ||
		GetCurrentTimestamp() >= next_due;
}

/*
 * Open the directory, in which we must be allowed to remove files.  On failure
 * returns false, with errno.
 */
static bool
open_directory(void)
{
	struct stat st;

	if (!AcquireExternalFD())
		return false;
	pass.dir = opendir(paq_log_directory);
	if (pass.dir == NULL)
	{
		ReleaseExternalFD();
		return false;
	}
	if (fstat(dirfd(pass.dir), &st) != 0)
		return false;
	pass.dev = st.st_dev;
	return faccessat(dirfd(pass.dir), ".", W_OK | X_OK, AT_EACCESS) == 0 &&
		(pass.names_compiled = paq_trail_names_compile(&pass.names));
}

static void
end_pass(void)
{
	if (pass.dir != NULL)
	{
		closedir(pass.dir);
		ReleaseExternalFD();
	}
	pass.dir = NULL;
	if (pass.names_compiled)
		pg_regfree(&pass.names);
	pass.names_compiled = false;
	paq_consumers_end();
	if (pass.context != NULL)
		MemoryContextDelete(pass.context);
	pass.context = NULL;
	pass.phase = PHASE_IDLE;
}

static void
begin_pass(void)
{
	const bool	ours = paq_trail_lock(paq_log_directory);

	end_pass();					/* an error may have left something open */
	strlcpy(pass.current, paq_trail.path, sizeof(pass.current));
	pass.reload = PgReloadTime;
	next_due = DT_NOEND;
	if (ours && open_directory())
	{
		stuck.directory = false;
		pass.context = AllocSetContextCreate(TopMemoryContext,
											 "old audit trail files",
											 ALLOCSET_DEFAULT_SIZES);
		paq_consumers_begin(dirfd(pass.dir));
		pass.files = NIL;
		pass.next = 0;
		pass.total_size = paq_trail.offset;
		pass.phase = PHASE_READ;
		return;
	}
	if (!stuck.directory)
		ereport(WARNING,
				(errcode_for_file_access(),
				 ours ?
				 errmsg("could not remove old audit trail files from directory \"%s\": %m",
						paq_log_directory) :
				 errmsg("could not remove old audit trail files: %s",
						paq_sink_error())));
	stuck.directory = true;
	end_pass();
}

/*
 * What is left falls due at that time.  Files that were finished since the
 * directory was read do so at most their age later than now.
 */
static void
finish_pass(TimestampTz due)
{
	end_pass();
	next_due = due;
	if (strcmp(pass.current, paq_trail.path) != 0)
		next_due = Min(next_due, due_at(GetCurrentTimestamp()));
	strlcpy(pass.current, paq_trail.path, sizeof(pass.current));
}

static bool
is_current_name(const char *name, const struct stat *st)
{
	const char *separator = last_dir_separator(paq_trail.path);

	return (st->st_ino == paq_trail.ino && st->st_dev == paq_trail.dev) ||
		(separator != NULL && strcmp(separator + 1, name) == 0);
}

/* Get what is known of a file; false if it is no finished trail file. */
static bool
stat_finished(OldFile *file)
{
	struct stat st;

	if (fstatat(dirfd(pass.dir), file->name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
		!S_ISREG(st.st_mode) || st.st_uid != geteuid() ||
		st.st_dev != pass.dev || is_current_name(file->name, &st))
		return false;
	file->ino = st.st_ino;
	file->mtime = paq_trail_written(&st);
	file->size = st.st_size;
	return true;
}

/* For list_sort(): by age, and by name if that is the same */
static int
compare_old_files(const ListCell *a, const ListCell *b)
{
	const OldFile *x = lfirst(a);
	const OldFile *y = lfirst(b);

	if (x->mtime != y->mtime)
		return x->mtime < y->mtime ? -1 : 1;
	return strcmp(x->name, y->name);
}

/* Add a file to those of the pass. */
static void
add_old_file(const OldFile *file)
{
	MemoryContext old_context = MemoryContextSwitchTo(pass.context);
	OldFile    *copy = palloc(sizeof(OldFile));

	*copy = *file;
	copy->name = pstrdup(file->name);
	pass.files = lappend(pass.files, copy);
	pass.total_size += file->size;
	MemoryContextSwitchTo(old_context);
}

static void
begin_plan(void)
{
	memset(&plan.removal, 0, sizeof(plan.removal));
	plan.removal.path = plan.path;
	plan.removal.names = plan.names;
	plan.removal.consumers = plan.consumers;
	plan.removed = 0;
	pass.phase = PHASE_PLAN;
}

/* A file that is not the trail's may be a consumer's. */
static void
note_other_file(const char *name)
{
	MemoryContext old_context = MemoryContextSwitchTo(pass.context);

	paq_consumers_add(name);
	MemoryContextSwitchTo(old_context);
}

/* Read some of the directory, and plan when all of it has been. */
static void
read_some(void)
{
	for (int i = 0; i < NAMES_AT_ONCE; i++)
	{
		struct dirent *de = readdir(pass.dir);
		OldFile		file;

		if (de == NULL)
		{
			list_sort(pass.files, compare_old_files);
			begin_plan();
			return;
		}
		file.name = de->d_name;
		if (paq_trail_names_match(&pass.names, file.name) && stat_finished(&file))
			add_old_file(&file);
		else
			note_other_file(file.name);
	}
}

/*
 * The file cannot be removed, with errno: say so, and leave it alone from now
 * on.  When there are too many such files, nothing more is removed, rather than
 * to forget one of them.
 */
static void
file_failed(const OldFile *file)
{
	stuck.files[stuck.nfiles++] = file->ino;
	ereport(WARNING,
			(errcode_for_file_access(),
			 errmsg("could not remove audit trail file \"%s/%s\": %m",
					paq_log_directory, file->name),
			 stuck.nfiles < MAX_STUCK ? 0 :
			 errdetail("Nothing more is removed until the configuration is reloaded.")));
}

/*
 * Does the file begin as one of the trail's?  A name is soon given to
 * something else.  If that cannot be told, says so.
 */
static bool
begins_as_trail(const OldFile *file)
{
	const PaqFormat *format = paq_trail_format_of(file->name);
	char		head[HEAD_SIZE];
	bool		is_encrypted;
	ssize_t		len;
	int			fd;

	if (file->size == 0)
		return true;
	fd = openat(dirfd(pass.dir), file->name,
				O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
	{
		if (errno != ENOENT && errno != ELOOP && errno != ENXIO)
			file_failed(file);
		return false;
	}
	len = paq_trail_read_head(fd, file->name, NULL, head, sizeof(head), &is_encrypted);
	if (len < 0)
		file_failed(file);
	close(fd);
	return is_encrypted || (len > 0 &&
		(paq_find_sequence(format, head, len) != 0 ||
		 memmem(head, len, RECORD_MARK, strlen(RECORD_MARK)) != NULL));
}

/* Is there nothing about the file that forbids to remove it? */
static bool
may_be_removed(const OldFile *file)
{
	for (int i = 0; i < stuck.nfiles; i++)
		if (stuck.files[i] == file->ino)
			return false;
	return begins_as_trail(file);
}

/* The setting because of which the file has to go; NULL if it may stay. */
static const char *
reason_to_remove(const OldFile *file)
{
	if (due_at(file->mtime) <= GetCurrentTimestamp())
		return "pg_audit_queue.log_retention_age";
	if (excess_due_at() <= GetCurrentTimestamp())
		return "pg_audit_queue.log_retention_size";
	return NULL;
}

/*
 * Add the file, of which some consumers may know nothing, to the group; false if that has to
 * be dealt with first.
 */
static bool
add_to_plan(OldFile *file, const char *setting, const char *consumers)
{
	PaqRemoval *removal = &plan.removal;
	Size		used = strlen(plan.names);

	if (removal->count == 0)
	{
		snprintf(plan.path, sizeof(plan.path), "%s/%s", paq_log_directory, file->name);
		strlcpy(plan.names, file->name, sizeof(plan.names));
		strlcpy(plan.consumers, consumers, sizeof(plan.consumers));
		removal->setting = setting;
	}
	else if (removal->count == MAX_GROUP || removal->setting != setting ||
			 strcmp(plan.consumers, consumers) != 0 ||
			 used + strlen(file->name) + 2 >= sizeof(plan.names))
		return false;
	else
		snprintf(plan.names + used, sizeof(plan.names) - used, ", %s", file->name);
	plan.files[removal->count++] = file;
	removal->bytes += file->size;
	return true;
}

/* Plan for the next file.  Returns true if there is a group, and it is complete. */
static bool
plan_next(void)
{
	OldFile    *file = pass.next < list_length(pass.files) ?
		list_nth(pass.files, pass.next) : NULL;
	const char *setting = file ? reason_to_remove(file) : NULL;
	PaqConsumerHold hold = PAQ_HOLD_NONE;
	char		consumers[sizeof(plan.consumers)] = "";

	if (setting != NULL && file->size > 0)
		hold = paq_consumers_hold(&(PaqTrailMember){file->name, file->mtime, file->size},
								  pass.total_size, consumers, sizeof(consumers));
	if (hold == PAQ_HOLD_EXCEEDED)
		setting = "pg_audit_queue.consumer_keep_size";

	if ((setting == NULL || hold == PAQ_HOLD_KEEP) && plan.removal.count > 0)
		return true;
	if (hold == PAQ_HOLD_KEEP)
	{
		/* Nor have they acknowledged what came after it. */
		finish_pass(TimestampTzPlusMilliseconds(GetCurrentTimestamp(), CONSUMER_DELAY));
	}
	else if (setting == NULL)
		finish_pass(file ? Min(due_at(file->mtime), excess_due_at()) : DT_NOEND);
	else
	{
		if (may_be_removed(file) && !add_to_plan(file, setting, consumers))
			return true;
		pass.total_size -= file->size;
		pass.next++;
	}
	return false;
}

/*
 * Remove the file, if it is still the one that it was, unchanged.  Returns
 * false, with errno, on failure.
 */
static bool
remove_file(const OldFile *file)
{
	OldFile		now = *file;

	if (!stat_finished(&now) || now.ino != file->ino ||
		now.mtime != file->mtime || now.size != file->size)
		return true;
	errno = PAQ_FAULT("trail-unlink");
	if (errno != 0 || unlinkat(dirfd(pass.dir), file->name, 0) != 0)
		return errno == ENOENT;
	(void) PAQ_FAULT("trail-unlinked");
	ereport(LOG,
			(errmsg("removed audit trail file \"%s/%s\"",
					paq_log_directory, file->name),
			 errdetail("It had %llu bytes; the reason is \"%s\".",
					   (unsigned long long) file->size, plan.removal.setting)));
	return true;
}

/* Remove the next file of the group.  Returns false if it could not be, see *removal. */
static bool
remove_next(PaqRemoval *removal)
{
	const OldFile *file;

	if (plan.removed == plan.removal.count)
	{
		if (paq_fsync && !paq_fsync_directory(dirfd(pass.dir)))
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not fsync directory \"%s\": %m",
							paq_log_directory)));
		begin_plan();
		return true;
	}
	file = plan.files[plan.removed++];
	if (!paq_seal_removed(file->name, file->size))
	{
		/* As long as that lasts, the trail does not grow, either. */
		paq_stats_worker_error(paq_sink_error());
		end_pass();
		next_due = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), SEAL_DELAY);
		return true;
	}
	if (remove_file(file))
		return true;
	*removal = plan.removal;
	removal->count = 1;
	removal->bytes = file->size;
	removal->names = file->name;
	removal->error = errno;
	file_failed(file);
	snprintf(plan.path, sizeof(plan.path), "%s/%s", paq_log_directory, file->name);
	return false;
}

PaqRetention
paq_sink_retain(PaqRemoval *removal)
{
	if (pass.reload != PgReloadTime)
	{
		/* What was planned need not be what is wanted now. */
		end_pass();
		stuck.nfiles = 0;
		stuck.directory = false;
	}
	if (!is_possible())
		end_pass();
	else if (pass.phase == PHASE_IDLE && pass_is_due())
		begin_pass();

	switch (pass.phase)
	{
		case PHASE_IDLE:
			break;
		case PHASE_READ:
			read_some();
			break;
		case PHASE_PLAN:
			if (!plan_next())
				break;
			pass.phase = PHASE_REMOVE;
			*removal = plan.removal;
			return PAQ_RETENTION_PLANNED;
		case PHASE_REMOVE:
			if (!remove_next(removal))
				return PAQ_RETENTION_FAILED;
			break;
	}
	return pass.phase == PHASE_IDLE ? PAQ_RETENTION_IDLE : PAQ_RETENTION_MORE;
}

TimestampTz
paq_sink_next_retention(void)
{
	return pass.phase == PHASE_IDLE && is_possible() ? next_due : DT_NOEND;
}
