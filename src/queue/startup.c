/*-------------------------------------------------------------------------
 *
 * startup.c
 *		Bringing the queue up in the postmaster, before any backend runs, and
 *		the names of the files in the queue directory.
 *
 *	queue			the live queue file
 *	queue.N			backlog: queue files of earlier server runs that still
 *					hold records, drained by the worker in the order of N
 *	queue.bad.N		files that could not be used; for people to look at
 *	spill.*			see spill.c
 *	lock			held by the running server; keeps out a second server
 *
 * What an earlier run left is never repaired in place.  A queue file with
 * something in it - records, or statements that a crash interrupted - becomes
 * backlog, which the worker drains before the live file; one that cannot be
 * used is set aside and reported.  In both cases a new live file is made, with
 * the size and the number of slots that the settings ask for.  Only a file of
 * the right size that a clean shutdown left empty is used again.
 *
 * Guarantees: whatever is found in the queue directory, the server starts.  If
 * no queue file can be made, it does not start, and says why.
 *
 * Locking: AddinShmemInitLock is held by the caller of paq_queue_startup().
 * The worker uses the functions for names, too.
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
#include "queue/wal.h"
#include "stats.h"
#include "storage/fd.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#define BACKLOG_PREFIX	PAQ_QUEUE_FILE "."
#define BAD_PREFIX		PAQ_QUEUE_FILE ".bad."
#define LOCK_FILE		"lock"

/* Largest number in a file name that is taken for one of ours */
#define MAX_OWN_NUMBER	1000000000

/* How often, and after which delay, to try to get the lock again */
#define LOCK_TRIES		50
#define LOCK_DELAY_MS	100

PaqShared  *paq_shared = NULL;
PaqQueueFile paq_live;

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
static void
open_directory(void)
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

/* Bytes of ordinary shared memory that the queue needs. */
Size
paq_queue_shmem_size(void)
{
	return add_size(offsetof(PaqShared, waiters),
					mul_size(MaxBackends, sizeof(PaqWaiter)));
}

/* Is there a queue, that is, was the library preloaded? */
bool
paq_queue_available(void)
{
	return paq_shared != NULL;
}

/* Put a GAP record with this text into the still empty queue. */
static void
publish_gap(const char *text)
{
	PaqSessionBlock session = {0};
	PaqText		statement[PAQ_NSTATEMENT_FIELDS] = {{0}};
	PaqRecordHeader header;
	PaqText    *message = &statement[PAQ_FIELD_MESSAGE - PAQ_NSESSION_FIELDS];
	PaqPending *pending;

	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		session.field_len[i] = PAQ_NULL_LEN;
	session.data = "";
	message->data = text;
	message->len = Min(strlen(text), paq_ring_max_record() / 2);
	paq_record_init_gap(&header, 0, GetCurrentTimestamp(), -1);
	pending = paq_pending_create(&header, &session, statement, false);
	if (pending != NULL && paq_pending_publish(pending, PAQ_SPACE_NOWAIT) != 0)
		paq_stats_add(&paq_stats->worker.recovered, 1);
}

/*
 * Use a file again that a clean shutdown left empty.  That it is in use must be
 * on disk before anything is put into it: after a crash of the operating
 * system, it must not be taken for the empty file.
 */
static bool
begin_use(PaqQueueFile *qf, PaqCheckpoint *checkpoint)
{
	PaqWalNote	note;

	paq_file_set_boot_id(qf);
	paq_writers_reset(qf);
	checkpoint->synced_end = 0;
	paq_checkpoint_write(qf, checkpoint);
	if (paq_wal_note_read(qf, &note) && note.lsn != InvalidXLogRecPtr)
	{
		/* The server before could not note that it needed no WAL any more. */
		note.number++;
		note.lsn = InvalidXLogRecPtr;
		(void) paq_wal_note_write(qf, &note);
	}
	return paq_file_sync(qf, qf->header->slots_offset);
}

/*
 * Use the queue file at path, if it can be used as it is: returns true with the
 * file mapped in paq_live.  Otherwise a new one may take its place; *inherit is
 * what is known about the trail, if anything; and *gap says what may be missing
 * from the trail, NULL if nothing is.
 */
static bool
take_over(const char *path, uint64 ring_size, PaqCheckpoint *inherit,
		  char **gap)
{
	PaqQueueFile *qf = &paq_live;
	PaqCheckpoint checkpoint;
	char		target[MAXPGPATH];
	char	   *reason;

	*gap = NULL;
	memset(inherit, 0, sizeof(*inherit));
	if (!paq_file_open(path, qf, &reason))
	{
		if (reason != NULL)
		{
			paq_file_set_aside(path, reason, FATAL);
			*gap = psprintf("%s; the records in it are not in the trail", reason);
		}
		return false;
	}

	if (qf->foreign)
	{
		reason = psprintf("queue file \"%s\" belongs to another server, or was copied", path);

		/* Go on counting from there, but not in that server's trail file. */
		(void) paq_checkpoint_read(qf, inherit);
		memset(inherit->trail, 0, sizeof(inherit->trail));
		paq_file_close(qf);
		paq_file_set_aside(path, reason, FATAL);
		*gap = psprintf("%s; whether records are missing here is not known", reason);
		return false;
	}

	if (paq_file_is_empty(qf, &checkpoint))
	{
		if (qf->ring_size != paq_file_ring_size(ring_size) ||
			qf->header->nslots != MaxBackends)
		{
			*inherit = checkpoint;
			paq_file_close(qf);
			return false;
		}
		if (begin_use(qf, &checkpoint))
			return true;
	}

	paq_wal_restore(qf);
	paq_file_close(qf);
	next_path(target, BACKLOG_PREFIX, FATAL);
	durable_rename(path, target, FATAL);
	return false;
}

/*
 * PostgreSQL removes a temporary replication slot that a crash has left when it
 * starts again: first the file, then the directory.  If another crash comes in
 * between, it finds a slot without a file, and does not start any more.  So remove
 * the worker's directory if it is empty; that of any other slot of this name is
 * not.
 */
static void
remove_half_removed_slot(void)
{
	(void) rmdir("pg_replslot/" PAQ_WAL_SLOT);
}

static void
init_shared(void)
{
	bool		found;

	paq_shared = ShmemInitStruct("pg_audit_queue", paq_queue_shmem_size(),
								 &found);
	Assert(!found);

	/* Nothing is flushed until the worker has seen to the backlog. */
	memset(paq_shared, 0, paq_queue_shmem_size());
	ConditionVariableInit(&paq_shared->space_cv);
	ConditionVariableInit(&paq_shared->request_cv);
	ConditionVariableInit(&paq_shared->load_cv);
}

/*
 * Make the queue ready.  Run by the postmaster at its start, and again when it
 * has cleaned up after a crash.  Statistics must have been initialized.
 */
void
paq_queue_startup(void)
{
	char		path[MAXPGPATH];
	PaqCheckpoint inherit;
	char	   *gap;
	uint64		ring_size = (uint64) paq_queue_size * 1024;

	/* A mapping left over from before the crash */
	paq_file_close(&paq_live);

	remove_half_removed_slot();
	open_directory();
	paq_file_path(path, PAQ_QUEUE_FILE);
	if (!take_over(path, ring_size, &inherit, &gap))
	{
		inherit.doubtful = gap != NULL ? PAQ_DOUBT_TRAIL : PAQ_DOUBT_NONE;
		paq_file_create(path, ring_size, MaxBackends, &inherit, &paq_live);
	}
	pg_atomic_write_u64(&paq_live.live->limit,
						pg_atomic_read_u64(&paq_live.live->released) +
							paq_live.ring_size);
	pg_atomic_write_u64(&paq_live.live->detour, 0);
	init_shared();
	paq_wait_events_init();
	if (gap != NULL)
		publish_gap(gap);
}

