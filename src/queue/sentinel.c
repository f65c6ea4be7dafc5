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
 * All that is done only while sessions ask for it.  When none has between two
 * sentinels, the ring is synced, the note says that no WAL is needed, and the slot
 * holds nothing: an idle server, or one that nobody's commits use this on, keeps
 * no WAL and is not woken.  The next session that asks waits for the trail, once.
 *
 * If the ring cannot be synced, the operating system may have dropped what it
 * could not write, and the next attempt would succeed without it.  So nothing is
 * let go any more until the trail has all that was in the ring then.
 *
 * Guarantees: while wal_ready_until is not 0, a frame that is in the ring before
 * it is inserted into WAL outlives a crash of the operating system as soon as that
 * WAL is flushed.  It is set to 0 before the slot lets any of that go.  If this
 * process hangs, sessions use WAL for READY_FOR at most, and wait for the trail
 * from then on.
 *
 * Must not raise: what does not work is reported, and sessions wait for the
 * trail.
 *
 * Locking: none of ours.  wal_ready_until and the notes are written by this
 * process only.  PostgreSQL protects a slot's restart_lsn with its mutex.
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

/*
 * How much WAL, in bytes, and how much time, in ms, there is between sentinels,
 * and between attempts
 */
#define SENTINEL_BYTES	((uint64) 64 * 1024 * 1024)
#define SENTINEL_DELAY	10000

/* For how long sessions may use WAL after a sentinel, in ms */
#define READY_FOR		(3 * SENTINEL_DELAY)

/* In this process */
static struct
{
	bool		known;			/* the note has been read */
	bool		held;			/* the note of the live file names WAL */
	XLogRecPtr	sentinel;		/* where; valid if held */
	TimestampTz due;			/* of the next sentinel; valid if held */
	TimestampTz retry_at;		/* after a failure: no attempt before */
	uint64		suspect;		/* what is in the ring before this position may
								 * not be on disk, although it was synced */
	char		told[PAQ_ERROR_LEN];	/* what has been said to be wrong, "" if
										 * nothing is */
	bool		closing;		/* the process is going to leave */
}			held_wal;

/* ----------
 * The slot
 * ----------
 */

/*
 * Reserve WAL from there on, if there is a slot; InvalidXLogRecPtr for none.  A
 * checkpoint that does not know of this yet removes what is before the place from
 * which its own recovery would begin, and no sentinel that is inserted after this
 * is before that.
 */
static void
reserve_wal(XLogRecPtr from)
{
	ReplicationSlot *slot = MyReplicationSlot;

	if (slot == NULL)
		return;
	SpinLockAcquire(&slot->mutex);
	slot->data.restart_lsn = from;
	SpinLockRelease(&slot->mutex);
	ReplicationSlotsComputeRequiredLSN();
}

/* What does not work is said once, until it works again or something else is wrong. */
static void
note_failure(const char *message)
{
	char		error[PAQ_ERROR_LEN];

	snprintf(error, sizeof(error), "WAL cannot be used for audit records: %s", message);
	if (strcmp(held_wal.told, error) == 0)
		return;
	strlcpy(held_wal.told, error, sizeof(held_wal.told));
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
		paq_slot_create(PAQ_WAL_SLOT);
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
		ReplicationSlotDrop(PAQ_WAL_SLOT, true);
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
	held_wal.held = true;
	held_wal.sentinel = begin;
	(void) PAQ_FAULT("sentinel-advanced");
	return true;
}

/* Sessions must wait for the trail from now on. */
static void
stop_sessions(void)
{
	pg_atomic_write_u64(&paq_shared->wal_ready_until, 0);
	pg_memory_barrier();		/* pairs with that in try_commit(), wal.c */
}

/* Something could not be synced. */
static void
sync_failed(TimestampTz now)
{
	stop_sessions();
	note_failure("the queue file could not be synced");
	held_wal.suspect = paq_queue_end();
	held_wal.retry_at = TimestampTzPlusMilliseconds(now, SENTINEL_DELAY);
}

/* May the ring have something that is not on disk, although it was synced? */
static bool
is_suspect(void)
{
	if (held_wal.suspect != 0 && paq_queue_is_flushed(held_wal.suspect))
		held_wal.suspect = 0;
	return held_wal.suspect != 0;
}

/*
 * Need no WAL any more: make what sessions rely on it for durable in the ring.
 * Returns false if that cannot be done; then the slot goes on holding the WAL.
 */
static bool
settle(void)
{
	if (!held_wal.held)
		return true;
	stop_sessions();
	if (is_suspect())
		return false;
	(void) PAQ_FAULT("settle-begun");
	if (!paq_file_sync_ring(&paq_live))
		return false;
	(void) PAQ_FAULT("settle-synced");
	if (!write_note(InvalidXLogRecPtr))
		return false;
	(void) PAQ_FAULT("settle-noted");
	reserve_wal(InvalidXLogRecPtr);
	held_wal.held = false;
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
	if (!paq_fsync)
		return "\"pg_audit_queue.fsync\" is off";
	if (paq_sink != PAQ_SINK_FILE)
		return "\"pg_audit_queue.sink\" is not \"file\"";
	if (!XLogIsNeeded())
		return "\"wal_level\" is \"minimal\"";
	if (max_slot_wal_keep_size_mb >= 0 &&
		(uint64) max_slot_wal_keep_size_mb * 1024 * 1024 < 2 * (uint64) wal_segment_size)
		return "\"max_slot_wal_keep_size\" is less than two segments of WAL";
	if (!held_wal.held && paq_is_in_memory(paq_queue_directory))
		return "\"pg_audit_queue.queue_directory\" is on a file system in memory";
	return NULL;
}

/*
 * How much WAL, in bytes, there may be before a sentinel.  If max_slot_wal_keep_size
 * is set, a checkpoint ends the process that holds more than that; so hold less, as
 * far as this process is awake.
 */
static uint64
sentinel_bytes(void)
{
	uint64		limit = (uint64) Max(max_slot_wal_keep_size_mb, 0) * 1024 * 1024;

	return max_slot_wal_keep_size_mb < 0 ? SENTINEL_BYTES :
		Min(SENTINEL_BYTES, limit / 4);
}

/* Is it time for the next one?  Reading the end of WAL takes a spinlock. */
static bool
sentinel_due(TimestampTz now)
{
	return !held_wal.held || now >= held_wal.due ||
		GetXLogInsertRecPtr() - held_wal.sentinel >= sentinel_bytes();
}

/* Begin to use WAL.  Returns false if that cannot be done. */
static bool
begin_use(TimestampTz now)
{
	if (!have_slot())
	{
		held_wal.retry_at = TimestampTzPlusMilliseconds(now, SENTINEL_DELAY);
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
	{
		if (!is_suspect())
			sync_failed(now);
		held_wal.retry_at = TimestampTzPlusMilliseconds(now, SENTINEL_DELAY);
	}
	else if (!paq_commit_wal || held_wal.closing)
		drop_slot();
}

/*
 * The worker before this one may have left a note that it could not take back, for
 * the same reason that makes what is in the ring suspect.
 */
static void
read_note(void)
{
	PaqWalNote	note;

	held_wal.known = true;
	held_wal.held = paq_wal_note_read(&paq_live, &note) &&
		note.lsn != InvalidXLogRecPtr;
	if (held_wal.held)
		held_wal.suspect = paq_queue_end();
}

/* What is due now; see paq_wal_tend(). */
static void
tend(TimestampTz now, bool wanted)
{
	const char *reason = obstacle();

	if (reason != NULL && wanted && *reason != '\0')
		note_failure(reason);
	if (reason == NULL && !held_wal.closing && !sentinel_due(now))
		return;

	/* Whoever uses it from here on counts for the next time. */
	pg_atomic_write_u32(&paq_shared->wal_wanted, 0);
	if (reason != NULL || !wanted || held_wal.closing ||
		(held_wal.held && MyReplicationSlot == NULL) || is_suspect())
	{
		let_go(now);
		return;
	}
	if (!held_wal.held)
	{
		if (!begin_use(now))
			return;
	}
	else if (!put_sentinel())
	{
		sync_failed(now);
		return;
	}
	held_wal.due = TimestampTzPlusMilliseconds(now, SENTINEL_DELAY);
	held_wal.told[0] = '\0';
	pg_atomic_write_u64(&paq_shared->wal_ready_until,
						TimestampTzPlusMilliseconds(now, READY_FOR));
}

/*
 * Do what is due.  For the worker, whenever it is awake.  Returns when it has to
 * be called again, unless sessions wake the worker before.
 */
TimestampTz
paq_wal_tend(TimestampTz now)
{
	bool		wanted;

	if (unlikely(!held_wal.known))
		read_note();
	wanted = pg_atomic_read_u32(&paq_shared->wal_wanted) != 0 && !held_wal.closing;
	if (likely(!held_wal.held && !wanted) &&
		(MyReplicationSlot == NULL || (paq_commit_wal && !held_wal.closing)))
		return DT_NOEND;

	/* The clock may have been set back. */
	held_wal.retry_at = Min(held_wal.retry_at,
							TimestampTzPlusMilliseconds(now, SENTINEL_DELAY));
	held_wal.due = Min(held_wal.due, TimestampTzPlusMilliseconds(now, SENTINEL_DELAY));
	if (now < held_wal.retry_at && !held_wal.closing)
		return held_wal.retry_at;
	tend(now, wanted);
	if (now < held_wal.retry_at)
		return held_wal.retry_at;
	return held_wal.held ? held_wal.due : DT_NOEND;
}

/*
 * The process has been asked to end, perhaps because of the WAL that it holds: let
 * that go, and do not begin again.  If the ring cannot be synced, that is not
 * before the trail has what is in there.
 */
void
paq_wal_close(void)
{
	held_wal.closing = true;
	(void) paq_wal_tend(GetCurrentTimestamp());
}
