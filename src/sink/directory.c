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
 * Where the file system has no locks, there is none: better a trail that might
 * be shared than none.  Two names of one directory are one, because the lock is
 * that of a file.
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

/*
 * Open and lock the file at path.  Returns its descriptor, or -1 with errno, which
 * is EBUSY if another server has the lock.
 */
static int
open_locked(const char *path)
{
	int			fd;
	int			rc;

	fd = BasicOpenFilePerm(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | PG_BINARY,
						   S_IRUSR | S_IWUSR);
	if (fd < 0)
		return -1;
	do
	{
		rc = flock(fd, LOCK_EX | LOCK_NB);
	} while (rc != 0 && errno == EINTR);
	if (rc == 0)
		return fd;
	if (errno == EWOULDBLOCK)
	{
		close(fd);
		errno = EBUSY;
		return -1;
	}
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not lock file \"%s\": %m", path),
			 errdetail("That no other server uses the directory cannot be made certain.")));
	return fd;
}

/*
 * Called in the postmaster.  A server that has to audit and cannot must not
 * start; later, the worker retries if the directory is missing, or another
 * server's.
 */
void
paq_sink_check(void)
{
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
	if (paq_sink == PAQ_SINK_TABLE)
		return;

	/* The worker will see to anything else that may be wrong. */
	snprintf(path, sizeof(path), "%s/%s", directory, LOCK_FILE);
	fd = open_locked(path);
	if (fd >= 0)
		close(fd);
	else if (errno == EBUSY)
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("directory \"%s\" is used for the audit trail of another server",
						directory),
				 errhint("Set \"%s\" to a directory that no other server uses.",
						 "pg_audit_queue.log_directory")));
}

/*
 * Have the lock of a directory, which must be there, instead of any other.  If
 * that fails, the lock that we have stays; errno is set then.
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
	fd = open_locked(path);
	if (fd < 0)
	{
		int			save_errno = errno;

		if (errno == EBUSY)
			paq_sink_set_error("directory \"%s\" is used for the audit trail of another server",
							   directory);
		else
			paq_sink_set_error("could not create file \"%s\": %m", path);
		errno = save_errno;
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
