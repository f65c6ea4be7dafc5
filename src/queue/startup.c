/*-------------------------------------------------------------------------
 *
 * startup.c
 *		Bringing the queue up in the postmaster, before any backend runs.
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
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <unistd.h>

#include "guc.h"
#include "miscadmin.h"
#include "queue/wal.h"
#include "stats.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

PaqShared  *paq_shared = NULL;
PaqQueueFile paq_live;

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
take_over_file(const char *path, uint64 ring_size, PaqCheckpoint *inherit,
			   char **gap)
{
	PaqQueueFile *qf = &paq_live;
	PaqCheckpoint checkpoint;
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
	paq_backlog_add(path);
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
	paq_directory_open();
	paq_file_path(path, PAQ_QUEUE_FILE);
	if (!take_over_file(path, ring_size, &inherit, &gap))
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
