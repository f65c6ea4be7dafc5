/*-------------------------------------------------------------------------
 *
 * overflow.c
 *		What happens when the queue is full: the setting "overflow".
 *
 * wait		A session waits until there is room.
 * drop		Its record is dropped, and counted (drops.c), by
 *			paq_pending_publish().
 * error	A session waits for as long as the worker makes progress.  If it
 *			makes none, the queue is stuck, and the statement fails.
 * shutdown	The same, but the server is shut down.  The session goes on
 *			waiting, for that to end it.
 *
 * Also what happens when a text is too long for the queue, and cannot be put into
 * a file either; and the warning that the queue is filling up, once each time.
 *
 * Guarantees: nobody holds anything here while waiting, and each wait can be
 * interrupted.
 *
 * Must not be called where an error may not be raised, except for the
 * warning, which raises none.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "guc.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

/*
 * The room that a statement's own record is expected to need, in bytes,
 * frame included.
 */
#define USUAL_RECORD	4096

bool		(*paq_queue_drain_alone) (void) = NULL;

/* Is it this process that changes *flag from 0 to 1? */
static bool
is_first(pg_atomic_uint32 *flag)
{
	uint32		expected = 0;

	return pg_atomic_read_u32(flag) == 0 &&
		pg_atomic_compare_exchange_u32(flag, &expected, 1);
}

/* Why the worker makes no room; for ereport() */
static int
stuck_detail(void)
{
	if (pg_atomic_read_u32(&paq_shared->failing) != 0)
		return errdetail("The audit trail cannot be written.");
	if (pg_atomic_read_u64(&paq_shared->worker_latch) == 0)
		return errdetail("The audit worker is not running.");
	return errdetail("The audit worker does not make space.");
}

static void
fail_full(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("audit queue is full"),
			 stuck_detail(),
			 errhint("The server log and the view \"audit_queue_stats\" show what keeps the audit trail from being written.")));
}

/*
 * The same in single-user mode, where the session makes room itself.  If that is
 * not possible, to wait would be in vain.
 */
static bool
make_room_alone(uint64 size)
{
	if (paq_queue_drain_alone() &&
		paq_queue_used() + size <= paq_live.ring_size)
		return true;
	if (paq_overflow != PAQ_OVERFLOW_DROP)
		fail_full();
	return false;
}

/* The queue is stuck, and the server shall not go on like that. */
static void
shut_down(void)
{
	if (!is_first(&paq_shared->shutting_down))
		return;
	HOLD_INTERRUPTS();			/* errfinish() would serve them */
	ereport(LOG_SERVER_ONLY,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("audit queue is full, shutting down the server"),
			 stuck_detail(),
			 errhint("Mend what keeps the audit trail from being written, as reported by the audit worker; what is in the queue is written when the server starts again.")));
	if (kill(PostmasterPid, SIGINT) != 0)
		ereport(LOG_SERVER_ONLY,
				(errmsg("could not send signal to postmaster: %m")));
	RESUME_INTERRUPTS();
}

/*
 * There are not size bytes of free space: do as the setting says.  Returns
 * true if it is worth trying again, false if the caller has to do without.  May
 * raise an error, that of an interrupt or its own.
 */
bool
paq_make_room(uint64 size)
{
	const bool	patient = paq_overflow == PAQ_OVERFLOW_WAIT;

	if (!IsUnderPostmaster)
		return make_room_alone(size);
	if (paq_overflow == PAQ_OVERFLOW_DROP)
		return false;
	if (paq_wait_for_space(size, patient))
		return true;
	if (paq_overflow == PAQ_OVERFLOW_ERROR)
		fail_full();
	shut_down();
	return paq_wait_for_space(size, true);
}

/* See paq_queue_admit(). */
void
paq_queue_refuse_if_full(void)
{
	uint64		size = Min(PAQ_FRAME_SIZE(paq_ring_max_record()), USUAL_RECORD) +
		paq_ring_reserve();

	while (paq_queue_used() + size > paq_live.ring_size)
		if (!paq_make_room(size))
			return;
}

/*
 * See paq_queue_admit_text().  Nobody waits for the disk to have room again: the
 * text would have to be kept somewhere for so long.
 */
void
paq_queue_refuse_cut(void)
{
	errno = paq_text_errno;
	paq_text_errno = 0;
	if (paq_overflow != PAQ_OVERFLOW_DROP)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("could not keep the text of the statement for the audit trail: %m"),
				 errdetail("A text that is too long for the audit queue is written to a file in \"pg_audit_queue.queue_directory\".")));
}

static int
overflow_detail(void)
{
	switch (paq_overflow)
	{
		case PAQ_OVERFLOW_DROP:
			return errdetail("Audit records are dropped when it is full.");
		case PAQ_OVERFLOW_ERROR:
			return errdetail("Statements fail when it stays full.");
		case PAQ_OVERFLOW_SHUTDOWN:
			return errdetail("The server is shut down when it stays full.");
		default:
			return errdetail("Sessions wait for space when it is full.");
	}
}

/*
 * A record of ours has crossed paq_warning_level(): say so in the server's log,
 * unless another session has, and the queue has not been emptied since.
 */
void
paq_warn_of_filling(void)
{
	paq_ring_filling = false;
	if (!is_first(&paq_shared->warned))
		return;
	HOLD_INTERRUPTS();			/* errfinish() would serve them */
	ereport(LOG_SERVER_ONLY,
			(errmsg("audit queue is %d%% full",
					(int) (paq_queue_used() * 100 / paq_live.ring_size)),
			 overflow_detail(),
			 errhint("Look for messages of the audit worker, or consider increasing \"pg_audit_queue.queue_size\".")));
	RESUME_INTERRUPTS();
}

/* For the worker: if half of the queue is free, the next crossing is news. */
void
paq_forget_warning(void)
{
	if (pg_atomic_read_u32(&paq_shared->warned) != 0 &&
		paq_queue_used() < paq_live.ring_size / 2)
		pg_atomic_write_u32(&paq_shared->warned, 0);
}

/*
 *		Accounts of the records that were dropped.
 *
 * They are in the queue file: PaqDrops counts up for as long as the file
 * lives, and the checkpoint says how much of that GAP records in the trail
 * tell of.  The difference is what the next GAP record is about.
 *
 * Guarantees: each dropped record is in exactly one GAP record's number,
 * whichever PostgreSQL process dies when.  The time from which on a GAP record
 * tells may be a little early, if records are dropped while another GAP record
 * is being made.
 *
 * Must not raise or allocate: records are dropped in any place, for want of
 * memory too, and by processes without a PGPROC.
 *
 * Locking: none.
 */

/* Note the time, and the place in the queue, unless that has been done. */
static void
note_first(PaqDrops *drops, TimestampTz when)
{
	uint64		none = 0;

	if (pg_atomic_compare_exchange_u64(&drops->first, &none, (uint64) when))
		pg_atomic_write_u64(&drops->position,
							pg_atomic_read_u64(&paq_live.live->reserved));
}

static void
note_last(PaqDrops *drops, TimestampTz when)
{
	uint64		last = pg_atomic_read_u64(&drops->last);

	while (last < (uint64) when &&
		   !pg_atomic_compare_exchange_u64(&drops->last, &last, (uint64) when))
		;
}

/* A number of records will not come into the queue. */
void
paq_queue_note_drop(PaqDropReason reason, uint32 count)
{
	PaqDrops   *drops = &paq_live.live->drops[reason];
	TimestampTz now = GetCurrentTimestamp();

	note_first(drops, now);
	note_last(drops, now);
	pg_atomic_fetch_add_u64(&drops->count, count);

	/*
	 * The addition, a full barrier, pairs with those in paq_drops_reported()
	 * and paq_worker_hibernate(): if the former has not seen it, but forgotten
	 * the time above, we note it here.
	 */
	note_first(drops, now);
	pg_atomic_fetch_add_u64(&paq_stats->dropped[reason], count);
	if (pg_atomic_read_u32(&paq_shared->hibernating) != 0)
		paq_wake_worker();
}

/* Fill in what is missing; the times of what count has were noted before. */
static void
describe(PaqDrops *drops, PaqDropReason reason, uint64 count, PaqGap *gap)
{
	static const char *const reasons[] = {
		[PAQ_DROP_FULL] = "because the queue was full",
		[PAQ_DROP_EXIT] = "because their session ended while the queue was full",
		[PAQ_DROP_MEMORY] = "for lack of memory"
	};
	char		from[MAXDATELEN + 1];

	StaticAssertStmt(lengthof(reasons) == PAQ_NDROPS, "a text for each reason");
	pg_read_barrier();
	gap->count = (int64) count;
	gap->to = (TimestampTz) pg_atomic_read_u64(&drops->last);
	gap->from = (TimestampTz) pg_atomic_read_u64(&drops->first);
	if (gap->from == 0 || gap->from > gap->to)
		gap->from = gap->to;
	strlcpy(from, timestamptz_to_str(gap->from), sizeof(from));
	snprintf(gap->message, sizeof(gap->message),
			 "%llu audit %s dropped between %s and %s, %s",
			 (unsigned long long) count,
			 count == 1 ? "record was" : "records were",
			 from, timestamptz_to_str(gap->to), reasons[reason]);
}

/*
 * Find records beyond those reported that would have come before pos, for a
 * reason that is not to be skipped.
 */
bool
paq_drops_find(PaqQueueFile *qf, const uint64 *reported, const bool *skip,
			   uint64 pos, PaqDropReason *reason, PaqGap *gap)
{
	for (int i = 0; i < PAQ_NDROPS; i++)
	{
		PaqDrops   *drops = &qf->live->drops[i];
		uint64		count = skip[i] ? 0 : paq_drops_count(qf, reported, i);

		if (count == 0 ||
			pg_atomic_read_u64(&drops->position) > pos)
			continue;
		*reason = i;
		describe(drops, i, count, gap);
		return true;
	}
	return false;
}

/*
 * The trail now tells of the first count records, durably.  What has been dropped
 * meanwhile was so from now on, as far as the next report knows.
 */
void
paq_drops_reported(PaqQueueFile *qf, PaqDropReason reason, uint64 count)
{
	PaqDrops   *drops = &qf->live->drops[reason];

	pg_atomic_write_u64(&drops->first, 0);
	pg_memory_barrier();		/* pairs with paq_queue_note_drop() */
	if (pg_atomic_read_u64(&drops->count) > count)
		note_first(drops, GetCurrentTimestamp());
}
