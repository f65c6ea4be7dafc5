/*-------------------------------------------------------------------------
 *
 * directory.c
 *		The queue directory: the names of its files, and its lock.
 *
 *	queue			the live queue file
 *	queue.N			backlog: queue files of earlier server runs that still
 *					hold records, drained by the worker in the order of N
 *	queue.bad.N		files that could not be used; for people to look at
 *	spill.*			see spill.c
 *	lock			held by the running server; keeps out a second server
 *
 * Used by the postmaster and the worker.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "common/file_perm.h"
#include "guc.h"
#include "queue/queue_internal.h"
#include "storage/fd.h"

#define BACKLOG_PREFIX	PAQ_QUEUE_FILE "."
#define BAD_PREFIX		PAQ_QUEUE_FILE ".bad."
#define LOCK_FILE		"lock"

/* Largest number in a file name that is taken for one of ours */
#define MAX_OWN_NUMBER	1000000000

/* How often, and after which delay, to try to get the lock again */
#define LOCK_TRIES		50
#define LOCK_DELAY_MS	100

/* Path of a file in the queue directory; path has MAXPGPATH bytes. */
void
paq_file_path(char *path, const char *name)
{
	snprintf(path, MAXPGPATH, "%s/%s", paq_queue_directory, name);
}

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

/*
 * Of the files in the directory whose names are prefix and a number: the
 * smallest number that is greater than after, 0 if there is none, and, in
 * *largest, the largest one.  MAX_OWN_NUMBER is the largest that counts for
 * that: our own numbers never get so far, but somebody else's file may.
 */
static uint32
scan_numbers(const char *prefix, uint32 after, uint32 *largest, int elevel)
{
	DIR		   *dir = AllocateDir(paq_queue_directory);
	struct dirent *de;
	uint32		next = 0;

	*largest = 0;
	while ((de = ReadDirExtended(dir, paq_queue_directory, elevel)) != NULL)
	{
		uint32		number = number_after(de->d_name, prefix);

		if (number > after && (next == 0 || number < next))
			next = number;
		if (number <= MAX_OWN_NUMBER)
			*largest = Max(*largest, number);
	}
	if (dir != NULL)
		FreeDir(dir);
	return next;
}

/*
 * Number of the oldest backlog file that is newer than the one called after;
 * 0 if there is none.
 */
uint32
paq_backlog_find(uint32 after)
{
	uint32		largest;

	return scan_numbers(BACKLOG_PREFIX, after, &largest, LOG);
}

/*
 * Path for a file called prefix and the next number; path has MAXPGPATH bytes.
 * Numbers of backlog only grow while there is some, so the order of the files
 * is that of their making.
 */
static void
next_path(char *path, const char *prefix, int elevel)
{
	char		name[NAMEDATALEN];
	uint32		largest;

	(void) scan_numbers(prefix, 0, &largest, elevel);
	snprintf(name, sizeof(name), "%s%u", prefix, largest + 1);
	paq_file_path(path, name);
}

/* The file becomes the newest backlog; FATAL if it cannot. */
void
paq_backlog_add(const char *path)
{
	char		target[MAXPGPATH];

	next_path(target, BACKLOG_PREFIX, FATAL);
	durable_rename(path, target, FATAL);
}

/* Rename a file that cannot be used and is in the way, and report the reason. */
void
paq_file_set_aside(const char *path, const char *reason, int elevel)
{
	char		target[MAXPGPATH];

	next_path(target, BAD_PREFIX, elevel);
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
 * Make the queue directory if necessary, and take its lock, which is held as
 * long as the postmaster or one of its children lives.
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
				 errhint("Make it a directory of the operating system's user that runs the server, or set \"%s\" to another one.",
						 "pg_audit_queue.queue_directory")));

	/* After a crash of a child, we still have it. */
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

	/* The log collector of the server before may need a while to exit. */
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
