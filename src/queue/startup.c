/*-------------------------------------------------------------------------
 *
 * startup.c
 *		Bringing the queue up in the postmaster, before any backend runs.
 *
 * What an earlier run left is never repaired in place.  A queue file with
 * something in it - records, or statements that a crash interrupted - becomes
 * backlog, which the worker drains before the live file; one that cannot be
 * used is set aside and reported.  In both cases a new live file is made,
 * with the size and the number of slots that the settings now ask for.  Only
 * a file of the right size that a clean shutdown left empty is used again.
 *
 * Guarantees: whatever is found in the queue directory, the server starts;
 * it does not start only if no queue file can be made, and then says why.
 *
 * Locking: AddinShmemInitLock is held by the caller.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/file_perm.h"
#include "guc.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "queue/startup.h"
#include "stats.h"
#include "storage/fd.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

PaqShared  *paq_shared = NULL;
PaqQueueFile paq_live;

/* Bytes of ordinary shared memory that the queue needs. */
Size
paq_queue_shmem_size(void)
{
	return add_size(sizeof(PaqShared), paq_waiters_shmem_size());
}

/* Is the queue there, that is, was the library preloaded? */
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
	uint32		size;
	char	   *record;

	for (int i = 0; i < PAQ_NSESSION_FIELDS; i++)
		session.field_len[i] = PAQ_NULL_LEN;
	session.data = "";
	message->data = text;
	message->len = Min(strlen(text), paq_ring_max_record() / 2);
	paq_record_init_gap(&header, 0, GetCurrentTimestamp(), -1);

	size = paq_record_size(0, &session, statement);
	record = palloc(size);
	paq_record_encode(record, &header, &session, statement);
	paq_ring_publish(record, size, PAQ_SPACE_NOWAIT, NULL);
	paq_stats_add(&paq_stats->worker.recovered, 1);
	pfree(record);
}

/*
 * A file that a clean shutdown left empty is used again: the disk has to know
 * that before anything is put into it.  Should the operating system crash, the
 * file must not be taken for the one that was left.
 */
static bool
begin_use(PaqQueueFile *qf)
{
	PaqCheckpoint checkpoint;

	paq_file_set_boot_id(qf);
	paq_writers_reset(qf);
	if (!paq_checkpoint_read(qf, &checkpoint))
		return false;
	checkpoint.synced_end = 0;
	paq_checkpoint_write(qf, &checkpoint);
	if (!enableFsync || msync(qf->base, qf->header->slots_offset, MS_SYNC) == 0)
		return true;
	ereport(LOG,
			(errcode_for_file_access(),
			 errmsg("could not sync the audit queue file: %m")));
	return false;
}

/*
 * Judge the queue file at path.  Returns true if it can be used as it is,
 * mapped in paq_live.  Otherwise it is out of the way under another name, if
 * there was one; *inherit is what is known about the trail, if anything; and
 * *gap says what may be missing from the trail, NULL if nothing is.
 */
static bool
take_over(const char *path, uint64 ring_size, int nslots,
		  PaqCheckpoint *inherit, char **gap)
{
	PaqQueueFile qf;
	char	   *reason;

	*gap = NULL;
	memset(inherit, 0, sizeof(*inherit));
	if (!paq_file_open(path, &qf, &reason))
	{
		if (reason != NULL)
		{
			paq_file_set_aside(path, reason, FATAL);
			*gap = psprintf("%s; the records in it are not in the trail", reason);
		}
		return false;
	}

	if (qf.foreign)
	{
		reason = psprintf("queue file \"%s\" belongs to another server, or was copied", path);

		/* Go on counting from there, but not in that server's trail file. */
		(void) paq_checkpoint_read(&qf, inherit);
		memset(inherit->trail, 0, sizeof(inherit->trail));
		paq_file_close(&qf);
		paq_file_set_aside(path, reason, FATAL);
		*gap = psprintf("%s; whether records are missing here is not known", reason);
		return false;
	}

	if (paq_file_is_empty(&qf))
	{
		if (qf.ring_size == paq_file_ring_size(ring_size) &&
			qf.header->nslots == nslots)
		{
			if (begin_use(&qf))
			{
				paq_live = qf;
				return true;
			}
		}
		else
		{
			(void) paq_checkpoint_read(&qf, inherit);
			paq_file_close(&qf);
			return false;
		}
	}

	paq_file_close(&qf);
	paq_directory_keep_backlog(path);
	return false;
}

static void
init_shared(void)
{
	bool		found;

	paq_shared = ShmemInitStruct("pg_audit_queue", sizeof(PaqShared), &found);
	Assert(!found);
	memset(paq_shared, 0, sizeof(*paq_shared));

	/* Nothing, until the worker has seen to the backlog. */
	pg_atomic_init_u64(&paq_shared->flushed, 0);
	pg_atomic_init_u64(&paq_shared->flushed_sequence, 0);
	pg_atomic_init_u64(&paq_shared->flush_request, 0);
	pg_atomic_init_u64(&paq_shared->space_request, 0);
	pg_atomic_init_u32(&paq_shared->rotate_request, 0);
	pg_atomic_init_u32(&paq_shared->rotate_done, 0);
	pg_atomic_init_u32(&paq_shared->rotate_failed, 0);
	pg_atomic_init_u32(&paq_shared->hibernating, 0);
	pg_atomic_init_u64(&paq_shared->progress, 0);
	pg_atomic_init_u32(&paq_shared->failing, 0);
	pg_atomic_init_u32(&paq_shared->warned, 0);
	pg_atomic_init_u32(&paq_shared->shutting_down, 0);
	ConditionVariableInit(&paq_shared->space_cv);
	ConditionVariableInit(&paq_shared->rotate_cv);
	pg_atomic_init_u64(&paq_shared->worker_latch, 0);
	paq_loading_init();
	paq_waiters_init();
}

/*
 * Make the queue ready.  Run by the postmaster when it starts and again when
 * it has cleaned up after a crash; the statistics must be there already.
 */
void
paq_queue_startup(void)
{
	char		path[MAXPGPATH];
	PaqCheckpoint inherit;
	char	   *gap;
	char	   *reason;
	uint64		ring_size = (uint64) paq_queue_size * 1024;

	/* A mapping left over from before the crash */
	paq_file_close(&paq_live);

	paq_directory_open();
	paq_file_path(path, PAQ_QUEUE_FILE);
	if (!take_over(path, ring_size, MaxBackends, &inherit, &gap))
	{
		inherit.doubtful = gap != NULL ? PAQ_DOUBT_TRAIL : PAQ_DOUBT_NONE;
		paq_file_create(path, ring_size, MaxBackends, &inherit);
		if (!paq_file_open(path, &paq_live, &reason))
			ereport(FATAL,
					(errmsg("could not open the audit queue that was just created"),
					 errdetail("%s", reason ? reason : "It is gone.")));
	}
	init_shared();
	if (gap != NULL)
		publish_gap(gap);
}

/*
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
 */

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
