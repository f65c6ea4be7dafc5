/*-------------------------------------------------------------------------
 *
 * overflow.c
 *		What happens when the queue is full, as the setting "overflow" says,
 *		and the account of the records that were dropped.
 *
 * wait		A session waits until there is space.
 * drop		Its record is dropped, and counted, by paq_pending_publish().
 * error	A session waits for as long as the worker makes progress.  If it
 *			makes none, the queue is stuck, and the statement fails.
 * shutdown	The same, but the server is shut down.  The session goes on
 *			waiting, for that to end it.
 *
 * The same setting decides what happens if a text is too long for the queue and
 * cannot be put into a file.  The server's log has a warning whenever the queue
 * is filling up.
 *
 * Dropped records are counted in the queue file: PaqDrops counts up as long as
 * the file lives, and the checkpoint says how many of them GAP records in the
 * trail report.  The next GAP record reports the difference.
 *
 * Guarantees: nobody holds anything here while waiting, and each wait can be
 * interrupted.  Each dropped record is counted in exactly one GAP record,
 * whichever PostgreSQL process dies when.  The time from which on a GAP record
 * reports may be a little early, if records are dropped while the one before is
 * being made.
 *
 * paq_queue_note_drop() and the warning do not raise errors; the former does not
 * allocate, either, because records are dropped anywhere, also for lack of
 * memory, and by processes without a PGPROC.
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

/* Space that a statement's own record usually needs, in bytes, with its frame */
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

/* Why the worker makes no space; for ereport() */
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
 * paq_make_space() in single-user mode: the session makes space itself.  If it
 * cannot, waiting is useless.
 */
static bool
make_space_alone(uint64 size)
{
	if (paq_queue_drain_alone() && paq_ring_has_space(size, 0))
		return true;
	if (paq_overflow != PAQ_OVERFLOW_DROP)
		fail_full();
	return false;
}

/* The queue is stuck, and the setting is "shutdown". */
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
 * There are not size bytes of free space: do as the setting says.  Returns true
 * if the caller should try again, false if it has to drop the record.  May raise
 * an error, its own or that of an interrupt.
 */
bool
paq_make_space(uint64 size)
{
	const bool	drop = paq_overflow == PAQ_OVERFLOW_DROP && !paq_producer.must_keep;
	const bool	patient = paq_overflow <= PAQ_OVERFLOW_DROP;

	if (!IsUnderPostmaster)
		return make_space_alone(size);
	if (drop)
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
	uint64		size = Min(PAQ_FRAME_SIZE(paq_ring_max_record()), USUAL_RECORD);
	uint64		kept = paq_ring_reserve();

	while (!paq_ring_has_space(size, kept))
		if (!paq_make_space(size + kept))
			return;
}

/*
 * See paq_queue_admit_text().  A session does not wait until the disk has space
 * again, because the text would have to be kept in memory until then.
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
 * A record of this process has crossed paq_warning_level(): write a warning to
 * the server's log, unless there is one since the queue was last half empty.
 */
void
paq_warn_of_filling(void)
{
	paq_producer.filling = false;

	/* Perhaps the worker has skipped what was left of a lap. */
	if (paq_queue_used() < paq_live.ring_size / 2 ||
		!is_first(&paq_shared->warned))
		return;
	HOLD_INTERRUPTS();			/* errfinish() would serve them */
	ereport(LOG_SERVER_ONLY,
			(errmsg("audit queue is %d%% full",
					(int) (paq_queue_used() * 100 / paq_live.ring_size)),
			 overflow_detail(),
			 errhint("Look for messages of the audit worker, or consider increasing \"pg_audit_queue.queue_size\".")));
	RESUME_INTERRUPTS();
}

/* For the worker: if half of the queue is free, the next crossing is warned of. */
void
paq_forget_warning(void)
{
	if (pg_atomic_read_u32(&paq_shared->warned) != 0 &&
		paq_queue_used() < paq_live.ring_size / 2)
		pg_atomic_write_u32(&paq_shared->warned, 0);
}

/* Note time and place of the first dropped record, if there is none yet. */
static void
note_first(PaqDrops *drops, TimestampTz when)
{
	uint64		none = 0;

	if (pg_atomic_compare_exchange_u64(&drops->first, &none, (uint64) when))
		pg_atomic_write_u64(&drops->position,
							pg_atomic_read_u64(&paq_live.live->reserved));
}

/* Account for records that are dropped. */
void
paq_queue_note_drop(PaqDropReason reason, uint32 count)
{
	PaqDrops   *drops = &paq_live.live->drops[reason];
	TimestampTz now = GetCurrentTimestamp();
	uint64		last = pg_atomic_read_u64(&drops->last);

	note_first(drops, now);
	while (last < (uint64) now &&
		   !pg_atomic_compare_exchange_u64(&drops->last, &last, (uint64) now))
		;
	pg_atomic_fetch_add_u64(&drops->count, count);

	/*
	 * The addition, a full barrier, pairs with those in paq_drops_reported()
	 * and paq_worker_hibernate().  If the former has not seen it, but has reset
	 * the time that we noted above, we note the time again.
	 */
	note_first(drops, now);
	pg_atomic_fetch_add_u64(&paq_stats->dropped[reason], count);
	if (pg_atomic_read_u32(&paq_shared->hibernating) != 0)
		paq_wake_worker();
}

/* Fill in a gap; count is -1 if it is not known. */
void
paq_gap_set(PaqGap *gap, TimestampTz from, TimestampTz to, int64 count,
			const char *fmt,...)
{
	va_list		args;

	gap->hole = false;
	gap->from = from;
	gap->to = to;
	gap->count = count;
	va_start(args, fmt);
	vsnprintf(gap->message, sizeof(gap->message), fmt, args);
	va_end(args);
}

/*
 * Fill in *gap for count dropped records.  Their times were noted before they
 * were counted.
 */
void
paq_drops_describe(PaqQueueFile *qf, PaqDropReason reason, uint64 count,
				   PaqGap *gap)
{
	static const char *const reasons[] = {
		[PAQ_DROP_FULL] = "because the queue was full",
		[PAQ_DROP_EXIT] = "because their session ended while the queue was full",
		[PAQ_DROP_MEMORY] = "for lack of memory"
	};
	PaqDrops   *drops = &qf->live->drops[reason];
	TimestampTz first;
	TimestampTz last;
	char		from[MAXDATELEN + 1];

	StaticAssertStmt(lengthof(reasons) == PAQ_NDROPS, "a text for each reason");
	pg_read_barrier();
	last = (TimestampTz) pg_atomic_read_u64(&drops->last);
	first = (TimestampTz) pg_atomic_read_u64(&drops->first);
	if (first == 0 || first > last)
		first = last;
	strlcpy(from, timestamptz_to_str(first), sizeof(from));
	paq_gap_set(gap, first, last, (int64) count,
				"%llu audit %s dropped between %s and %s, %s",
				(unsigned long long) count,
				count == 1 ? "record was" : "records were",
				from, timestamptz_to_str(last), reasons[reason]);
}

/*
 * GAP records report the first count records, durably.  If more have been dropped
 * meanwhile, the next GAP record says that this happened from now on.
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
