/*-------------------------------------------------------------------------
 *
 * sentinel.c
 *		Records on the WAL, the worker's side: how much WAL a crash of the
 *		operating system makes necessary, and who keeps it.
 *
 * A temporary physical replication slot, this process's, holds the WAL that may
 * have records which neither the trail nor the queue file has durably.  Every
 * SENTINEL_BYTES of WAL, or SENTINEL_DELAY, the worker
 *
 * 1. inserts a sentinel into WAL and flushes it;
 * 2. syncs what is in the ring: all frames whose sessions inserted them into WAL
 *	  before the sentinel are there, because they are put into the ring first;
 * 3. notes in the queue file where the sentinel is, and syncs that;
 * 4. advances the slot to the sentinel.
 *
 * So what is in WAL before the noted place is durable in the ring, or was in the
 * trail when its space was released; and the slot is never ahead of the note.
 *
 * All that is done only while sessions ask for it.  When none has for
 * SENTINEL_DELAY, the ring is synced, the note says that no WAL is needed, and
 * the slot holds nothing: an idle server, or one that nobody's commits use this
 * on, keeps no WAL and is not woken.  The next session that asks waits for the
 * trail, once.
 *
 * Guarantees: while wal_ready is not 0, a frame that is in the ring before it is
 * inserted into WAL outlives a crash of the operating system as soon as that WAL
 * is flushed.  It is set to 0 before the slot lets any of that go.
 *
 * Must not raise: what does not work is reported, and sessions wait for the
 * trail.
 *
 * Locking: none of ours.  wal_ready and the notes are written by this process
 * only.  PostgreSQL protects a slot's restart_lsn with its mutex.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xlog.h"
#include "access/xloginsert.h"
#include "compat.h"
#include "fault.h"
#include "file_util.h"
#include "guc.h"
#include "miscadmin.h"
#include "queue/wal.h"
#include "replication/slot.h"
#include "stats.h"
#include "storage/condition_variable.h"
#include "storage/fd.h"
#include "storage/lwlock.h"
#include "utils/timestamp.h"

#define SLOT_NAME		"pg_audit_queue"

/*
 * How much WAL, in bytes, and how much time, in ms, there is between sentinels,
 * and between attempts
 */
#define SENTINEL_BYTES	((uint64) 64 * 1024 * 1024)
#define SENTINEL_DELAY	10000

/* In this process */
static struct
{
	bool		held;			/* the note of the live file names WAL */
	XLogRecPtr	sentinel;		/* where; valid if held */
	TimestampTz due;			/* of the next sentinel; valid if held */
	TimestampTz retry_at;		/* after a failure: no attempt before */
	bool		told;			/* what does not work has been said */
	bool		closed;			/* the process is going to leave */
}			wal;

/* ----------
 * Notes
 * ----------
 */

static PaqWalNote *
note_at(PaqQueueFile *qf, int number)
{
	return (PaqWalNote *) ((char *) qf->checkpoint[number] + PAQ_WAL_NOTE_OFFSET);
}

static pg_crc32c
note_crc(PaqQueueFile *qf, const PaqWalNote *note)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, &qf->salt, sizeof(qf->salt));
	COMP_CRC32C(crc, note, offsetof(PaqWalNote, crc));
	FIN_CRC32C(crc);
	return crc;
}

/* Which of the two is the newest valid one, -1 if none is. */
static int
newest_note(PaqQueueFile *qf)
{
	int			newest = -1;

	for (int i = 0; i < 2; i++)
	{
		const PaqWalNote *note = note_at(qf, i);

		if (note->crc == note_crc(qf, note) &&
			(newest < 0 || note->number > note_at(qf, newest)->number))
			newest = i;
	}
	return newest;
}

/* Read the file's note; false, and a note of no WAL, if there is none. */
bool
paq_wal_note_read(PaqQueueFile *qf, PaqWalNote *note)
{
	int			newest = newest_note(qf);

	if (newest < 0)
		memset(note, 0, sizeof(*note));
	else
		*note = *note_at(qf, newest);
	return newest >= 0;
}

/*
 * Store a note in place of the older one, and sync it; its number has been set by
 * the caller, its checksum is set here.  Returns false if it could not be synced.
 */
bool
paq_wal_note_write(PaqQueueFile *qf, PaqWalNote *note)
{
	note->crc = note_crc(qf, note);
	*note_at(qf, newest_note(qf) == 0 ? 1 : 0) = *note;
	(void) PAQ_FAULT("note-written");
	return paq_file_sync(qf, (char *) qf->live - qf->base);
}

/* ----------
 * The slot
 * ----------
 */

/*
 * Reserve WAL from there on; InvalidXLogRecPtr for none.  Only what no checkpoint
 * can have removed by now may be reserved: not before the last sentinel, or the
 * present end.
 */
static void
reserve_wal(XLogRecPtr from)
{
	ReplicationSlot *slot = MyReplicationSlot;

	SpinLockAcquire(&slot->mutex);
	slot->data.restart_lsn = from;
	SpinLockRelease(&slot->mutex);
	ReplicationSlotsComputeRequiredLSN();
}

/* What does not work is said once, until it works again. */
static void
note_failure(const char *message)
{
	char		error[PAQ_ERROR_LEN];

	if (wal.told)
		return;
	wal.told = true;
	snprintf(error, sizeof(error), "WAL cannot be used for audit records: %s", message);
	ereport(WARNING,
			(errmsg("%s", error),
			 errdetail("Commits wait for the audit trail, although \"%s\" is on.",
					   "pg_audit_queue.commit_wal")));
	paq_stats_worker_error(error);
}

/* After an error of the slot's: there is none of ours any more. */
static void
recover_from_slot_error(MemoryContext context)
{
	ErrorData  *edata;

	HOLD_INTERRUPTS();
	LWLockReleaseAll();
	ConditionVariableCancelSleep();
	AtEOXact_Files(false);
	MemoryContextSwitchTo(context);
	edata = CopyErrorData();
	FlushErrorState();
	note_failure(edata->message ? edata->message : "unknown error");
	FreeErrorData(edata);
	RESUME_INTERRUPTS();
}

/* Have a slot, which as yet reserves nothing.  Returns false if it cannot be made. */
static bool
have_slot(void)
{
	MemoryContext context = CurrentMemoryContext;

	if (MyReplicationSlot != NULL)
		return true;
	PG_TRY();
	{
		paq_slot_create(SLOT_NAME);
	}
	PG_CATCH();
	{
		recover_from_slot_error(context);
	}
	PG_END_TRY();
	return MyReplicationSlot != NULL;
}

static void
drop_slot(void)
{
	MemoryContext context = CurrentMemoryContext;

	if (MyReplicationSlot == NULL)
		return;
	PG_TRY();
	{
		ReplicationSlotRelease();
		ReplicationSlotDrop(SLOT_NAME, true);
	}
	PG_CATCH();
	{
		recover_from_slot_error(context);
	}
	PG_END_TRY();
}

/* ----------
 * Sentinels
 * ----------
 */

/* Note that WAL is needed from there on; InvalidXLogRecPtr: that none is. */
static bool
write_note(XLogRecPtr lsn)
{
	PaqWalNote	note = {0};
	PaqWalNote	last;

	(void) paq_wal_note_read(&paq_live, &last);
	note.number = last.number + 1;
	note.lsn = lsn;
	note.timeline = lsn == InvalidXLogRecPtr ? 0 : GetWALInsertionTimeLine();
	return paq_wal_note_write(&paq_live, &note);
}

/* See the top of this file.  Returns false if something could not be synced. */
static bool
put_sentinel(void)
{
	PaqWalNote	last;
	XLogRecPtr	begin;
	XLogRecPtr	end;
	uint64		number;

	(void) paq_wal_note_read(&paq_live, &last);
	number = last.number + 1;
	end = paq_wal_insert(PAQ_WAL_SENTINEL, PAQ_WAL_PLAIN, sizeof(number),
						 (char *) &number, sizeof(number));
	begin = ProcLastRecPtr;
	(void) PAQ_FAULT("sentinel-inserted");
	XLogFlush(end);
	(void) PAQ_FAULT("sentinel-flushed");
	if (!paq_file_sync_ring(&paq_live))
		return false;
	(void) PAQ_FAULT("sentinel-synced");
	if (!write_note(begin))
		return false;
	(void) PAQ_FAULT("sentinel-noted");
	reserve_wal(begin);
	wal.held = true;
	wal.sentinel = begin;
	(void) PAQ_FAULT("sentinel-advanced");
	return true;
}

/* Sessions must wait for the trail from now on. */
static void
stop_sessions(void)
{
	pg_atomic_write_u32(&paq_shared->wal_ready, 0);
	pg_memory_barrier();		/* pairs with that in try_commit(), wal.c */
}

/*
 * Need no WAL any more: make what sessions rely on it for durable in the ring.
 * Returns false if that cannot be done; then the slot goes on holding the WAL.
 */
static bool
settle(void)
{
	if (!wal.held)
		return true;
	stop_sessions();
	(void) PAQ_FAULT("settle-begun");
	if (!paq_file_sync_ring(&paq_live))
		return false;
	(void) PAQ_FAULT("settle-synced");
	if (!write_note(InvalidXLogRecPtr))
		return false;
	(void) PAQ_FAULT("settle-noted");
	reserve_wal(InvalidXLogRecPtr);
	wal.held = false;
	return true;
}

/* ----------
 * When
 * ----------
 */

/*
 * Why WAL cannot be used although somebody wants to, NULL if it can.  An empty
 * text is no mistake of anybody's.
 */
static const char *
obstacle(void)
{
	if (!paq_commit_wal || RecoveryInProgress() ||
		pg_atomic_read_u32(&paq_shared->failing) != 0)
		return "";
	if (paq_sink != PAQ_SINK_FILE)
		return "\"pg_audit_queue.sink\" is not \"file\"";
	if (!XLogIsNeeded())
		return "\"wal_level\" is \"minimal\"";
	if (!wal.held && paq_is_in_memory(paq_queue_directory))
		return "\"pg_audit_queue.queue_directory\" is on a file system in memory";
	return NULL;
}

/*
 * How much WAL, in bytes, there may be before a sentinel: less than what makes a
 * checkpoint end the process that holds it.
 */
static uint64
sentinel_bytes(void)
{
	uint64		limit = (uint64) Max(max_slot_wal_keep_size_mb, 1) * 1024 * 1024;

	return max_slot_wal_keep_size_mb < 0 ? SENTINEL_BYTES :
		Min(SENTINEL_BYTES, limit / 4);
}

/* Is it time for the next one?  Reading the end of WAL takes a spinlock. */
static bool
sentinel_due(TimestampTz now)
{
	return !wal.held || now >= wal.due ||
		GetXLogInsertRecPtr() - wal.sentinel >= sentinel_bytes();
}

/* Something could not be synced: sessions wait for the trail until it can be. */
static void
sync_failed(TimestampTz now)
{
	stop_sessions();
	note_failure("the queue file could not be synced");
	wal.retry_at = TimestampTzPlusMilliseconds(now, SENTINEL_DELAY);
}

/* Begin to use WAL.  Returns false if that cannot be done. */
static bool
begin_use(TimestampTz now)
{
	if (!have_slot())
	{
		wal.retry_at = TimestampTzPlusMilliseconds(now, SENTINEL_DELAY);
		return false;
	}
	reserve_wal(GetXLogInsertRecPtr());
	if (put_sentinel())
		return true;
	(void) write_note(InvalidXLogRecPtr);
	reserve_wal(InvalidXLogRecPtr);
	sync_failed(now);
	return false;
}

/* Nobody uses WAL, or nobody can: let it go. */
static void
let_go(TimestampTz now)
{
	if (!settle())
		sync_failed(now);
	else if (!paq_commit_wal)
		drop_slot();
}

/* What is due now; see paq_wal_tend(). */
static void
tend(TimestampTz now, bool wanted)
{
	const char *reason = obstacle();

	if (reason != NULL && wanted && *reason != '\0')
		note_failure(reason);
	if (reason == NULL && !sentinel_due(now))
		return;

	/* Whoever uses it from here on counts for the next time. */
	pg_atomic_write_u32(&paq_shared->wal_wanted, 0);
	if (reason != NULL || !wanted)
	{
		let_go(now);
		return;
	}
	if (!wal.held)
	{
		if (!begin_use(now))
			return;
	}
	else if (!put_sentinel())
	{
		sync_failed(now);
		return;
	}
	wal.due = TimestampTzPlusMilliseconds(now, SENTINEL_DELAY);
	wal.told = false;
	pg_atomic_write_u32(&paq_shared->wal_ready, 1);
}

/*
 * Do what is due.  For the worker, whenever it is awake.  Returns when it has to
 * be called again, unless sessions wake the worker before.
 */
TimestampTz
paq_wal_tend(TimestampTz now)
{
	const bool	wanted = pg_atomic_read_u32(&paq_shared->wal_wanted) != 0;
	const bool	idle = !wal.held && !wanted &&
		(paq_commit_wal || MyReplicationSlot == NULL);

	if (likely(idle) || wal.closed)
		return DT_NOEND;

	/* The clock may have been set back. */
	wal.retry_at = Min(wal.retry_at, TimestampTzPlusMilliseconds(now, SENTINEL_DELAY));
	wal.due = Min(wal.due, TimestampTzPlusMilliseconds(now, SENTINEL_DELAY));
	if (now < wal.retry_at)
		return wal.retry_at;
	tend(now, wanted);
	if (now < wal.retry_at)
		return wal.retry_at;
	return wal.held ? wal.due : DT_NOEND;
}

/*
 * The process has been asked to end, perhaps because of the WAL that it holds:
 * let that go at once, and do not begin again.
 */
void
paq_wal_close(void)
{
	if (wal.closed)
		return;
	wal.closed = true;
	if (!settle())
		note_failure("the queue file could not be synced");
	drop_slot();
}
