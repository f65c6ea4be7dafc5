/*-------------------------------------------------------------------------
 *
 * wal.c
 *		Records on the WAL, the session's side: in mode "commit", the records of
 *		a transaction are made durable by the WAL flush that its commit waits for
 *		anyway.
 *
 * Which frames of the ring belong to the transaction is noted when they are
 * published.  Before the commit, those that the trail does not have durably are
 * copied into private memory, compressed and inserted as one WAL record.  It
 * precedes the commit record (or that of PREPARE TRANSACTION), so when that has
 * been flushed, so has ours.
 *
 * Guarantees: a record is committed in the ring before it is in WAL.  If
 * paq_wal_replaces_wait() returns true, the records are in WAL from which the
 * worker's replication slot and its note in the queue file let them be restored;
 * in any other case it returns false, with nothing done that would keep the caller
 * from waiting for the trail.
 *
 * Must not raise, but for what inserting WAL itself raises.
 *
 * Locking: none.  The session reads its frames out of the ring without holding
 * anything back: if the worker has released one meanwhile, somebody may have
 * overwritten it, but then the trail has it durably.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/parallel.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "access/xloginsert.h"
#include "common/pg_lzcompress.h"
#include "compat.h"
#include "fault.h"
#include "miscadmin.h"
#include "queue/wal.h"
#include "replication/message.h"
#include "stats.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* The functions are the server's, if it has them. */
#if defined(USE_LZ4) && defined(__has_include)
#if __has_include(<lz4.h>)
#include <lz4.h>
#define PAQ_HAVE_LZ4
#endif
#endif

/* Frames of a transaction that are noted; PAQ_WAL_MAX_SIZE bytes have no more */
#define MAX_FRAMES	(PAQ_WAL_MAX_SIZE / PAQ_RECORD_HEADER_SIZE)

/* The frames that this transaction has to wait for */
static struct
{
	PaqWalFrame frame[MAX_FRAMES];
	uint32		count;
	bool		unfit;			/* there are others, or a spill file belongs to one */
	XLogRecPtr	inserted;		/* end of our WAL record; 0: there is none */
}			noted;

/* Memory for what is inserted, both of PAQ_WAL_MAX_SIZE bytes; NULL: none yet */
static char *contents = NULL;
static char *compressed = NULL;

/* ----------
 * Noting frames
 * ----------
 */

/* Forget the frames that the trail has durably by now. */
static void
forget_flushed(void)
{
	uint32		kept = 0;

	for (uint32 i = 0; i < noted.count; i++)
		if (!paq_queue_is_flushed(noted.frame[i].pos + 1))
			noted.frame[kept++] = noted.frame[i];
	noted.count = kept;
}

/*
 * The transaction has to wait for a record, of length bytes, that has just been
 * published; end is the position behind it.  A record with a spill file can not go
 * into WAL: nobody has synced that file.
 */
void
paq_wal_note(uint64 end, uint32 length, bool spilled)
{
	if (unlikely(noted.count == MAX_FRAMES))
		forget_flushed();
	if (unlikely(spilled || noted.count == MAX_FRAMES))
	{
		noted.unfit = true;
		return;
	}
	noted.frame[noted.count].pos = end - PAQ_FRAME_SIZE(length);
	noted.frame[noted.count].length = length;
	noted.count++;
}

/*
 * The transaction is over.  If it has committed, its WAL has been flushed, and
 * ours with it; make sure of that, which costs nothing then.
 */
void
paq_wal_end(bool committed)
{
	if (unlikely(noted.inserted != InvalidXLogRecPtr) && committed)
		XLogFlush(noted.inserted);
	noted.count = 0;
	noted.unfit = false;
	noted.inserted = InvalidXLogRecPtr;
}

/* ----------
 * Inserting
 * ----------
 */

/* Get memory, once for the session; false if there is none. */
static bool
have_memory(void)
{
	if (likely(compressed != NULL))
		return true;
	if (contents == NULL)
		contents = MemoryContextAllocExtended(TopMemoryContext, PAQ_WAL_MAX_SIZE,
											  MCXT_ALLOC_NO_OOM);
	if (contents != NULL)
		compressed = MemoryContextAllocExtended(TopMemoryContext,
												PGLZ_MAX_OUTPUT(PAQ_WAL_MAX_SIZE),
												MCXT_ALLOC_NO_OOM);
	return compressed != NULL;
}

/*
 * Copy the frames that are not flushed into "contents".  Returns the number of
 * bytes, 0 if the trail has all of them by now; -1 if they are too long.
 */
static int
collect(void)
{
	uint32		used = 0;

	for (uint32 i = 0; i < noted.count; i++)
	{
		const PaqWalFrame *frame = &noted.frame[i];
		const uint32 size = PAQ_WAL_FRAME_SIZE + frame->length;

		if (paq_queue_is_flushed(frame->pos + 1))
			continue;
		if (size > PAQ_WAL_MAX_SIZE - used)
			return -1;
		memcpy(contents + used, frame, PAQ_WAL_FRAME_SIZE);
		memcpy(contents + used + PAQ_WAL_FRAME_SIZE,
			   paq_frame_at(&paq_live, frame->pos) + 1, frame->length);

		/*
		 * If "released" has not passed the frame after the copy was made, nobody
		 * was allowed to write there before.  Pairs with the compare-and-swap in
		 * try_reserve(), between reading "limit" and writing.
		 */
		pg_read_barrier();
		if (pg_atomic_read_u64(&paq_live.live->released) <= frame->pos)
			used += size;
	}
	return used;
}

/* Compress "contents" into "compressed"; returns the length, 0 if that is no gain. */
static uint32
compress_contents(uint32 size, PaqWalMethod *method)
{
	int			len;

#ifdef PAQ_HAVE_LZ4
	*method = PAQ_WAL_LZ4;
	len = LZ4_compress_default(contents, compressed, size, size - 1);
#else
	*method = PAQ_WAL_PGLZ;
	len = pglz_compress(contents, size, compressed, PGLZ_strategy_always);
#endif
	return len > 0 && (uint32) len < size ? len : 0;
}

/*
 * The opposite: fills size bytes at "to", or returns false.  For restore.c.  What
 * another build has compressed by a method that this one does not have stays
 * closed.
 */
bool
paq_wal_decompress(PaqWalMethod method, const char *data, uint32 len,
				   char *to, uint32 size)
{
	switch (method)
	{
		case PAQ_WAL_PLAIN:
			if (len != size)
				return false;
			memcpy(to, data, size);
			return true;
		case PAQ_WAL_LZ4:
#ifdef PAQ_HAVE_LZ4
			return LZ4_decompress_safe(data, to, len, size) == (int) size;
#else
			return false;
#endif
		case PAQ_WAL_PGLZ:
			return pglz_decompress(data, len, to, size, true) == (int32) size;
	}
	return false;
}

/*
 * Insert a WAL record with the len bytes at data, which are size bytes when they
 * are not compressed.  Returns where it ends; ProcLastRecPtr is where it begins.
 */
XLogRecPtr
paq_wal_insert(PaqWalKind kind, PaqWalMethod method, uint32 size,
			   const char *data, uint32 len)
{
	PaqWalMessage message = {
		.version = PAQ_WAL_VERSION,
		.kind = kind,
		.method = method,
		.size = size,
		.queue = paq_live.header->created
	};
	xl_logical_message record;

	/* Padding goes into WAL, too. */
	memset(&record, 0, sizeof(record));
	record.dbId = InvalidOid;
	record.transactional = false;
	record.prefix_size = sizeof(PAQ_WAL_PREFIX);
	record.message_size = sizeof(message) + len;

	XLogBeginInsert();
	paq_xlog_register(&record, SizeOfLogicalMessage);
	paq_xlog_register(PAQ_WAL_PREFIX, sizeof(PAQ_WAL_PREFIX));
	paq_xlog_register(&message, sizeof(message));
	paq_xlog_register(data, len);
	return XLogInsert(RM_LOGICALMSG_ID, XLOG_LOGICAL_MESSAGE);
}

/* Insert what has been collected. */
static void
insert_contents(uint32 size)
{
	PaqWalMethod method;
	uint32		len = compress_contents(size, &method);

	if (len > 0)
		noted.inserted = paq_wal_insert(PAQ_WAL_RECORDS, method, size, compressed, len);
	else
		noted.inserted = paq_wal_insert(PAQ_WAL_RECORDS, PAQ_WAL_PLAIN, size,
										contents, size);
	(void) PAQ_FAULT("wal-inserted");
}

/* Does the commit that comes flush its WAL? */
static bool
commit_flushes(void)
{
	return TransactionIdIsValid(GetTopTransactionIdIfAny()) &&
		synchronous_commit > SYNCHRONOUS_COMMIT_OFF;
}

/* Are these records, and this transaction, such that WAL can be used? */
static bool
is_fit(void)
{
	return !noted.unfit && IsUnderPostmaster && !IsParallelWorker() &&
		commit_flushes() && have_memory();
}

/*
 * Can WAL be used now?  The worker says so; it learns here that somebody would
 * like to.  A sink that fails is waited for, because nobody knows for how long the
 * queue must keep what it has.
 */
static bool
is_ready(void)
{
	if (pg_atomic_read_u32(&paq_shared->wal_wanted) == 0)
		pg_atomic_write_u32(&paq_shared->wal_wanted, 1);
	return pg_atomic_read_u64(&paq_shared->wal_ready_until) > (uint64) GetCurrentTimestamp() &&
		pg_atomic_read_u32(&paq_shared->failing) == 0 &&
		paq_sink == PAQ_SINK_FILE && !RecoveryInProgress();
}

static bool
try_commit(void)
{
	int			size;

	if (!is_fit() || !is_ready() || (size = collect()) < 0)
		return false;
	if (size == 0)
		return true;
	(void) PAQ_FAULT("wal-collected");
	insert_contents(size);

	/*
	 * If the worker gives the WAL up, it first says so and then syncs the ring.
	 * Either it sees our frames in the ring, or we see here what it said.  Pairs
	 * with the barrier in stop_sessions(), sentinel.c.  (If it has begun anew in
	 * between, its sentinel has taken care of our frames, or is before them.)
	 */
	pg_memory_barrier();
	return pg_atomic_read_u64(&paq_shared->wal_ready_until) != 0;
}

/*
 * To be called before a commit, or PREPARE TRANSACTION, that has to wait until
 * everything before pos is durable: make what paq_wal_note() was told of durable
 * with the transaction's WAL.  Returns false if the caller has to wait for the
 * trail, instead; it may find then that the trail has it already.
 */
bool
paq_wal_replaces_wait(uint64 pos)
{
	if (!paq_commit_wal)
		return false;
	if (try_commit())
	{
		if (noted.inserted != InvalidXLogRecPtr)
			paq_stats_add(&paq_my_stats->wal_commits, 1);
		return true;
	}
	if (!paq_queue_is_flushed(pos))
		paq_stats_add(&paq_my_stats->wal_fallbacks, 1);
	return false;
}
