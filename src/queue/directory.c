/*-------------------------------------------------------------------------
 *
 * directory.c
 *		The queue directory: which files are in it, and under what names.
 *
 *	queue			the live queue file
 *	queue.N			backlog: queue files of earlier server runs that still
 *					hold records, drained by the worker in the order of N
 *	queue.bad.N		files that could not be used; for people to look at
 *	spill.*			see spill.c
 *	lock			held by the running server
 *
 * Two clusters must not share a queue directory; the lock sees to that.
 *
 * Locking: none.  Run by the postmaster before there are backends, except
 * paq_file_set_aside() and the naming functions, which the worker uses too.
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

#include "common/file_perm.h"
#include "guc.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "queue/startup.h"
#include "storage/fd.h"

#define BACKLOG_PREFIX	PAQ_QUEUE_FILE "."
#define BAD_PREFIX		PAQ_QUEUE_FILE ".bad."
#define LOCK_FILE		"lock"

/* Largest number in a file name that is taken for one of ours */
#define MAX_OWN_NUMBER	1000000000

/* How often, and after which delay, to try to get the lock again */
#define LOCK_TRIES		50
#define LOCK_DELAY_MS	100

/* Path of the backlog file with that number; path has MAXPGPATH bytes. */
void
paq_backlog_path(char *path, uint32 number)
{
	char		name[NAMEDATALEN];

	snprintf(name, sizeof(name), BACKLOG_PREFIX "%u", number);
	paq_file_path(path, name);
}

/* Number behind prefix in name; 0 if name is not of that form. */
static uint32
number_after(const char *name, const char *prefix)
{
	size_t		len = strlen(prefix);
	char	   *end;
	unsigned long number;

	if (strncmp(name, prefix, len) != 0 ||
		name[len] < '1' || name[len] > '9')
		return 0;
	errno = 0;
	number = strtoul(name + len, &end, 10);
	if (errno != 0 || *end != '\0' || number > PG_UINT32_MAX)
		return 0;
	return (uint32) number;
}

/* Number of the backlog file called name (without directory); 0 if it is none. */
uint32
paq_backlog_number(const char *name)
{
	return number_after(name, BACKLOG_PREFIX);
}

/*
 * One more than the largest number behind prefix in the directory.  We never
 * get beyond MAX_OWN_NUMBER; somebody else's file may have done so.
 */
static uint32
next_number(const char *prefix, int elevel)
{
	DIR		   *dir = AllocateDir(paq_queue_directory);
	struct dirent *de;
	uint32		largest = 0;

	while ((de = ReadDirExtended(dir, paq_queue_directory, elevel)) != NULL)
	{
		uint32		number = number_after(de->d_name, prefix);

		if (number <= MAX_OWN_NUMBER)
			largest = Max(largest, number);
	}
	if (dir != NULL)
		FreeDir(dir);
	return largest + 1;
}

/*
 * Rename a file that cannot be used, so that it is neither in the way nor
 * lost, and report why.
 */
void
paq_file_set_aside(const char *path, const char *reason, int elevel)
{
	char		name[NAMEDATALEN];
	char		target[MAXPGPATH];

	snprintf(name, sizeof(name), BAD_PREFIX "%u", next_number(BAD_PREFIX, elevel));
	paq_file_path(target, name);
	if (rename(path, target) != 0)
		ereport(elevel,
				(errcode_for_file_access(),
				 errmsg("could not rename file \"%s\" to \"%s\": %m", path, target),
				 errdetail("%s", reason)));
	else
		ereport(LOG,
				(errmsg("audit queue file \"%s\" was set aside as \"%s\"", path, target),
				 errdetail("%s", reason)));
}

/*
 * Rename the live file to the next backlog file.  Numbers only grow while
 * there is backlog, so the order of the files is that of their making.
 */
void
paq_directory_keep_backlog(const char *path)
{
	char		target[MAXPGPATH];

	paq_backlog_path(target, next_number(BACKLOG_PREFIX, FATAL));
	durable_rename(path, target, FATAL);
}

/*
 * Make the queue directory if necessary, and take its lock, which the
 * postmaster and its children hold for as long as any of them lives.
 */
void
paq_directory_open(void)
{
	static int	lock_fd = -1;
	char		path[MAXPGPATH];

	if (MakePGDirectory(paq_queue_directory) != 0 && errno != EEXIST)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not create directory \"%s\": %m", paq_queue_directory),
				 errhint("Check \"pg_audit_queue.queue_directory\".")));

	/* After a crash of a child we come here again and still have it. */
	if (lock_fd >= 0)
		return;
	paq_file_path(path, LOCK_FILE);
	lock_fd = BasicOpenFilePerm(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | PG_BINARY,
								S_IRUSR | S_IWUSR);
	if (lock_fd < 0)
		ereport(FATAL,
				(errcode_for_file_access(),
				 errmsg("could not open file \"%s\": %m", path),
				 errhint("Check \"pg_audit_queue.queue_directory\".")));

	/* The log collector of the server before us may take a while to leave. */
	for (int try = 0; flock(lock_fd, LOCK_EX | LOCK_NB) != 0; try++)
	{
		if ((errno == EWOULDBLOCK || errno == EINTR) && try < LOCK_TRIES)
		{
			pg_usleep(LOCK_DELAY_MS * 1000L);
			continue;
		}
		ereport(FATAL,
				(errcode(ERRCODE_OBJECT_IN_USE),
				 errmsg("could not lock file \"%s\": %m", path),
				 errhint("Is another server using the directory \"%s\"?",
						 paq_queue_directory)));
	}
}
