/*-------------------------------------------------------------------------
 *
 * directory.c
 *		The directory of the trail: it is there, it is ours alone, and the names
 *		in it are durable.
 *
 * A server takes a lock in log_directory before it writes or removes anything
 * there: what another one's retention removes, or its worker mends, may be our
 * trail.  The lock is the worker's, because only the worker uses the directory,
 * and because the setting can change while the server runs.  It is released when
 * the worker ends, however that comes, and nobody has it until the next worker
 * runs.  Files to be loaded are in the queue directory, which the postmaster has
 * locked.
 *
 * Where there can be no lock - the file system has none, or the lock file is
 * somebody else's - there is none: better a trail that might be shared than none.
 * Two names of one directory are one, because the lock is that of a file.
 *
 * Functions that return false have noted the reason for paq_sink_error().
 *
 * Must not raise for what the world outside does, but for paq_sink_check().
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "file_util.h"
#include "guc.h"
#include "sink/sink_internal.h"
#include "stats.h"
#include "storage/fd.h"

#define LOCK_FILE	"pg_audit_queue.lock"

/* The lock that we have */
static struct
{
	int			fd;				/* -1: none */
	dev_t		dev;			/* of the file */
	ino_t		ino;
}			held = {.fd = -1};

/* Longer than any path that there can be, so that it is never another one's */
typedef char LockPath[MAXPGPATH + sizeof(LOCK_FILE) + 1];

typedef enum LockResult
{
	LOCK_OURS,					/* *fd is open, and has the lock */
	LOCK_IMPOSSIBLE,			/* there can be none, see above */
	LOCK_OTHERS,				/* another server has it */
	LOCK_FAILED					/* errno says why: nor could a trail be written */
} LockResult;

/* Lock the file at path.  That there can be no lock is said once. */
static LockResult
lock_file(const char *path, int *fd)
{
	static bool said = false;
	int			rc;

	*fd = BasicOpenFilePerm(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | PG_BINARY,
							S_IRUSR | S_IWUSR);
	if (*fd < 0 &&
		errno != EACCES && errno != EPERM && errno != ELOOP && errno != EISDIR)
		return LOCK_FAILED;
	if (*fd >= 0)
	{
		do
		{
			rc = flock(*fd, LOCK_EX | LOCK_NB);
		} while (rc != 0 && errno == EINTR);
		if (rc == 0)
		{
			said = false;
			return LOCK_OURS;
		}
		if (errno == EWOULDBLOCK)
		{
			close(*fd);
			return LOCK_OTHERS;
		}
	}
	if (!said)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not lock file \"%s\": %m", path),
				 errdetail("Another server might use the directory, too.")));
	said = true;
	if (*fd >= 0)
		close(*fd);
	return LOCK_IMPOSSIBLE;
}

/*
 * Called in the postmaster, at its start and after each crash.  A server that has
 * to audit and cannot must not start; later, the worker retries if the directory
 * is missing, or another server's.
 */
void
paq_sink_check(void)
{
	static bool started = false;
	const char *directory = paq_trail_directory();
	char		inside[MAXPGPATH + 2];
	LockPath	path;
	int			fd;

	/* With "/." it has to be a directory.  fsync() of it needs R_OK. */
	snprintf(inside, sizeof(inside), "%s/.", directory);
	if ((mkdir(directory, S_IRWXU) != 0 && errno != EEXIST) ||
		access(inside, R_OK | W_OK | X_OK) != 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not use directory \"%s\" for the audit trail: %m",
						directory),
				 errhint("Make it a directory of the operating system's user that runs the server, or set \"%s\" to another one.",
						 paq_sink == PAQ_SINK_TABLE ?
						 "pg_audit_queue.queue_directory" :
						 "pg_audit_queue.log_directory")));
	if (paq_sink == PAQ_SINK_TABLE || started)
		return;
	started = true;

	snprintf(path, sizeof(path), "%s/%s", directory, LOCK_FILE);
	switch (lock_file(path, &fd))
	{
		case LOCK_OURS:
			close(fd);
			break;
		case LOCK_IMPOSSIBLE:
			break;
		case LOCK_OTHERS:
			ereport(FATAL,
					(errcode(ERRCODE_OBJECT_IN_USE),
					 errmsg("directory \"%s\" is used for the audit trail of another server",
							directory),
					 errhint("Set \"%s\" to a directory that no other server uses.",
							 "pg_audit_queue.log_directory")));
			break;
		case LOCK_FAILED:
			/* A full disk, say: the worker will see to that. */
			break;
	}
}

/*
 * May we use the directory, which must be there?  Takes its lock instead of any
 * other, if there can be one; if that fails, the lock that we have stays.  To be
 * called before each batch: costs a system call while we have the lock.
 */
bool
paq_trail_lock(const char *directory)
{
	LockPath	path;
	struct stat st;
	int			fd;

	snprintf(path, sizeof(path), "%s/%s", directory, LOCK_FILE);
	if (held.fd >= 0 && lstat(path, &st) == 0 &&
		st.st_dev == held.dev && st.st_ino == held.ino)
		return true;
	switch (lock_file(path, &fd))
	{
		case LOCK_OURS:
			break;
		case LOCK_IMPOSSIBLE:
			return true;
		case LOCK_OTHERS:
			paq_sink_set_error("directory \"%s\" is used for the audit trail of another server",
							   directory);
			return false;
		case LOCK_FAILED:
			paq_sink_set_error("could not create file \"%s\": %m", path);
			return false;
	}
	if (held.fd >= 0)
		close(held.fd);
	else
		ReserveExternalFD();
	held.fd = fd;
	if (fstat(fd, &st) == 0)
	{
		held.dev = st.st_dev;
		held.ino = st.st_ino;
	}
	return true;
}

/* fsync the trail's directory, so that the names in it are durable. */
bool
paq_trail_sync_directory(const char *directory)
{
	bool		ok;
	int			fd;

	if (!paq_fsync)
		return true;
	fd = BasicOpenFile(directory, O_RDONLY | O_CLOEXEC | PG_BINARY);
	if (fd < 0)
	{
		paq_sink_set_error("could not open directory \"%s\": %m", directory);
		return false;
	}
	ok = paq_fsync_directory(fd);
	if (!ok)
		paq_sink_set_error("could not fsync directory \"%s\": %m", directory);
	close(fd);
	paq_stats_add(&paq_stats->worker.fsyncs, 1);
	return ok;
}

/*
 * Make the directory that the settings ask for now, unless it is there, and lock
 * it.  Only its last component is made: a missing mount point should not be
 * papered over.
 */
bool
paq_trail_need_directory(void)
{
	const char *directory = paq_trail_directory();
	char		parent[MAXPGPATH];

	if (mkdir(directory, S_IRWXU) == 0)
	{
		strlcpy(parent, directory, sizeof(parent));
		get_parent_directory(parent);
		if (!paq_trail_sync_directory(parent[0] == '\0' ? "." : parent))
			return false;
	}
	else if (errno != EEXIST)
	{
		paq_sink_set_error("could not create directory \"%s\": %m", directory);
		return false;
	}
	return paq_sink == PAQ_SINK_TABLE || paq_trail_lock(directory);
}
