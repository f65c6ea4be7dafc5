/*-------------------------------------------------------------------------
 *
 * drops.c
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
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "queue/queue_internal.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

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
