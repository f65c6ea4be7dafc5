/*-------------------------------------------------------------------------
 *
 * ring.c
 *		The ring: putting records into frames, and telling frames from other
 *		bytes.
 *
 * To put a record into the ring:
 *
 * 1. Compute the checksum of the record's fields, the long part, beforehand.
 * 2. Claim the place behind "reserved" (writers.c), and reserve it: advance
 *	  "reserved" by the frame's size, if that much is free.  From here to step 4
 *	  nothing may raise an error, allocate or be interrupted: as long as this
 *	  process lives, the worker cannot step over its unfinished frame.
 * 3. Copy the record.
 * 4. Commit: store the frame's stamp.
 * 5. Wake the worker if the queue crossed the threshold or the worker
 *	  hibernates; note it if the queue is filling up.
 *
 * When the worker has released everything, or all but a little, it takes what is left
 * of the lap as one frame without a record, a skip: so a queue that does not fill up
 * stays in the ring's first pages.  For each page that a session writes to for the
 * first time it pays several times what a record costs, the caches hold few of them,
 * and the kernel has to write to disk whatever page was written to.
 *
 * What was not released at that time lies in the way of the next lap.  Usually it is
 * released before anybody comes there.  If not, because the disk is slow or the sink
 * fails, whoever gets there takes a detour: another skip, in the next lap, up to behind
 * what is in the way, which touches nothing of that.  Behind it the rest of the ring is
 * free.  So no space is lost but between the two skips, and from the detour until all
 * is released, more than one lap lies between "released" and "reserved".
 *
 * A frame is good if its stamp is that of its very position and its checksum
 * matches.  Both depend on the file's salt, so neither what earlier laps left
 * nor what somebody wrote into a statement can pass for one.
 *
 * Guarantees: a record is in the ring whole or not at all; once
 * paq_ring_put() has returned, only the death of the operating system can
 * lose it.  Records come out in the order of reservation, so one session's
 * records stay in order.
 *
 * Locking: none.  "reserved" is compare-and-swapped; "limit" is read before, so a
 * producer never writes to space the worker has not given back.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <signal.h>

#include "fault.h"
#include "guc.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "queue/queue_internal.h"
#include "stats.h"
#include "storage/proc.h"

/* Largest record stored in the ring itself, in bytes, whatever the ring's size */
#define MAX_INLINE_RECORD	(256 * 1024)

/*
 * Behind so much of a lap, in bytes, or a quarter of a smaller ring, the worker skips
 * what is left of it; so much at once
 */
#define SKIP_BEHIND			(512 * 1024)
#define MAX_SKIP			(1024 * 1024 * 1024)

/* How often to look whether the worker has skipped, in us, and how many times */
#define SKIP_DELAY			50
#define SKIP_LOOKS			2000

/* What is fetched into the cache ahead, at most, in bytes */
#define MAX_PREFETCH		1024
#define CACHE_LINE			64

/*
 * Position of the skip that is in the way, with what is before it, of those who take
 * a detour to that position.
 */
static inline uint64
skip_position(uint64 detour)
{
	return detour - sizeof(PaqFrame) - paq_live.ring_size;
}

/* Begin of the lap after that of pos */
static inline uint64
next_lap(uint64 pos)
{
	return (pos / paq_live.ring_size + 1) * paq_live.ring_size;
}

/* Position after everything that has been put into the queue so far. */
uint64
paq_queue_end(void)
{
	return pg_atomic_read_u64(&paq_live.live->reserved);
}

/* Bytes of the queue that are in use; what the worker has skipped is not. */
uint64
paq_queue_used(void)
{
	uint64		released;
	uint64		reserved;
	uint64		detour;
	uint64		skip;

	do
	{
		/*
		 * "released" first: it never overtakes a "reserved" read later.  "detour"
		 * after "reserved": its barrier pairs with the compare-and-swap in
		 * paq_ring_skip().
		 */
		released = pg_atomic_read_u64(&paq_live.live->released);
		pg_read_barrier();
		reserved = pg_atomic_read_u64(&paq_live.live->reserved);
		pg_read_barrier();
		detour = pg_atomic_read_u64(&paq_live.live->detour);
		pg_read_barrier();
	} while (released != pg_atomic_read_u64(&paq_live.live->released));
	skip = skip_position(detour);
	if (detour == 0 || released > skip || reserved < next_lap(skip))
		return reserved - released;

	/* What is in the way of a detour is part of it. */
	return reserved - next_lap(skip) + (reserved < detour ? skip - released : 0);
}

/* Is there nothing in the queue, not even a skip? */
bool
paq_queue_is_empty(void)
{
	uint64		released = pg_atomic_read_u64(&paq_live.live->released);

	pg_read_barrier();			/* as above */
	return pg_atomic_read_u64(&paq_live.live->reserved) == released;
}

/* Has the worker skipped something that it has not yet released? */
bool
paq_queue_has_skip(void)
{
	return pg_atomic_read_u64(&paq_live.live->detour) != 0;
}

/* Size of the queue in bytes. */
uint64
paq_queue_capacity(void)
{
	return paq_live.ring_size;
}

/*
 * Longest record, in bytes, that goes into the ring of a file; a longer one needs a
 * spill file.  Several of them fit into the reserve.
 */
uint32
paq_max_record(PaqQueueFile *qf)
{
	return Min(qf->ring_size / 16, MAX_INLINE_RECORD) - sizeof(PaqFrame);
}

/* The same, of the live file */
uint32
paq_ring_max_record(void)
{
	return paq_max_record(&paq_live);
}

/*
 * First part of a frame's checksum: that of the fields behind the record's
 * header.  They do not change any more once the record has been made, so the
 * long part of the work is done then.
 */
pg_crc32c
paq_fields_crc(const char *record, uint32 len)
{
	const uint32 header_size = paq_record_header_size(record, len);
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	if (likely(len > header_size))
		COMP_CRC32C(crc, record + header_size, len - header_size);
	return crc;
}

/*
 * The rest: the record's header, and the frame's place.  The salt is included so
 * that nobody who does not know it can write text that looks like a frame.
 */
static inline pg_crc32c
finish_crc(PaqQueueFile *qf, pg_crc32c crc, uint64 pos, const char *record,
		   uint32 len)
{
	char		place[sizeof(qf->salt) + sizeof(pos) + sizeof(len)];

	memcpy(place, &qf->salt, sizeof(qf->salt));
	memcpy(place + sizeof(qf->salt), &pos, sizeof(pos));
	memcpy(place + sizeof(qf->salt) + sizeof(pos), &len, sizeof(len));
	COMP_CRC32C(crc, record, Min(len, paq_record_header_size(record, len)));
	COMP_CRC32C(crc, place, sizeof(place));
	FIN_CRC32C(crc);
	return crc;
}

pg_crc32c
paq_frame_crc(PaqQueueFile *qf, uint64 pos, const char *record, uint32 len)
{
	return finish_crc(qf, paq_fields_crc(record, len), pos, record, len);
}

/* Of a skip.  No record is so short. */
static pg_crc32c
skip_crc(PaqQueueFile *qf, uint64 pos, uint32 size, uint32 length)
{
	uint32		record[2] = {size, length};

	return finish_crc(qf, paq_fields_crc(NULL, 0), pos, (char *) record,
					  sizeof(record));
}

/*
 * Have a cache line fetched for writing.  On x86-64 compilers fetch for reading,
 * unless told that the CPU can do better; the other CPU's copy then has still to
 * be invalidated.  CPUs that are too old for this instruction ignore it.
 */
static inline void
prefetch_for_write(const volatile void *address)
{
#if defined(__GNUC__) && defined(__x86_64__)
	__asm__ __volatile__("prefetchw (%0)"
						 :
						 : "r"(address));
#elif defined(__GNUC__)
	__builtin_prefetch((const void *) address, 1);
#endif
}

/*
 * A record is going to be put into the ring in a while.  Other processes were
 * the last to write to "reserved" and to read the ring behind it, so each store
 * there would wait for its cache line, and what is executed after the record is
 * out would wait for all of them: 0.2 to 0.3 us a record.  Have the cache lines
 * fetched while the statement is being executed: first that of "reserved", which
 * tells where the others are.
 */
void
paq_ring_prefetch_position(void)
{
	prefetch_for_write(&paq_live.live->reserved);
}

/*
 * Fetch the place where a record of len bytes will probably go: the present end
 * of the ring.  If others take that place first, ours is right behind it.
 */
void
paq_ring_prefetch_frame(uint32 len)
{
	uint64		pos = pg_atomic_read_u64(&paq_live.live->reserved);
	char	   *place = (char *) paq_frame_at(&paq_live, pos);
	char	   *end = place + Min(PAQ_FRAME_SIZE(len), MAX_PREFETCH);

	for (; place < end; place += CACHE_LINE)
		prefetch_for_write(place);
	prefetch_for_write(end);
}

/*
 * May size bytes at pos be reserved before "limit", and are kept bytes left then, and
 * a frame's header for a detour?  Before a detour with half of the ring behind it, what
 * is to be kept is there.
 */
static inline bool
fits(uint64 pos, uint64 size, uint64 kept, uint64 limit)
{
	uint64		end = pos + size + sizeof(PaqFrame);
	uint64		detour;

	if (likely(end + kept <= limit))
		return true;
	if (kept == 0 || end > limit)
		return false;
	detour = pg_atomic_read_u64(&paq_live.live->detour);
	return pos < detour &&
		detour % paq_live.ring_size <= paq_live.ring_size / 2 + sizeof(PaqFrame);
}

/*
 * Is there space for size bytes now, besides kept bytes, which is 0 or at most the
 * reserve?
 */
bool
paq_ring_has_space(uint64 size, uint64 kept)
{
	/* "limit" first: one read later may allow more than pos has. */
	uint64		limit = pg_atomic_read_u64(&paq_live.live->limit);

	pg_read_barrier();
	return fits(pg_atomic_read_u64(&paq_live.live->reserved), size, kept, limit);
}

/*
 * Reserve size bytes, with a claim in writer, so that kept bytes are left.  Returns
 * the position, or 0 if there is not that much space.  *used is how much of the ring
 * could not be reserved before.
 */
static inline uint64
try_reserve(PaqWriter *writer, uint32 size, uint64 kept, uint64 *used)
{
	uint64		pos = pg_atomic_read_u64(&paq_live.live->reserved);
	uint64		limit;

	do
	{
		/*
		 * Reading "limit" may give an old value, which is too small and hence
		 * safe.  It cannot be newer than what we may rely on: the
		 * compare-and-swap below is a full barrier, which pairs with the one in
		 * paq_reader_flushed() between the worker's last look at the space and
		 * its giving it back.
		 *
		 * It may also be more than a lap beyond pos, if pos is old: others have
		 * put records there since, and the trail has them.  Read "reserved"
		 * again.
		 */
		while (unlikely((limit = pg_atomic_read_u64(&paq_live.live->limit)) >
						pos + paq_live.ring_size))
			pos = pg_atomic_read_u64(&paq_live.live->reserved);
		*used = pos + paq_live.ring_size - limit;
		if (!fits(pos, size, kept, limit))
			return 0;

		/* Claim first, in case that we are killed after the reservation. */
		paq_writer_claim(writer, pos, size);
		(void) PAQ_FAULT("ring-claimed");
	} while (!pg_atomic_compare_exchange_u64(&paq_live.live->reserved, &pos,
											 pos + size));
	return pos;
}

/* Steps 3 and 4 of the list above. */
static inline void
commit_frame(uint64 pos, uint32 size, const char *record, uint32 len,
			 pg_crc32c fields_crc)
{
	PaqFrame   *frame = paq_frame_at(&paq_live, pos);

	(void) PAQ_FAULT("ring-reserved");
	frame->size = size;
	frame->length = len;
	frame->kind = PAQ_FRAME_RECORD;
	memcpy((char *) frame + sizeof(PaqFrame), record, len);
	(void) PAQ_FAULT("ring-copied");
	frame->crc = finish_crc(&paq_live, fields_crc, pos, record, len);
	if (likely(MyProc != NULL))
		paq_stats_add(&paq_my_stats->published, 1);
	else
		pg_atomic_fetch_add_u64(&paq_stats->slotless, 1);

	/*
	 * The record must be complete before it is stamped.  Pairs with the read
	 * barrier in paq_frame_is_committed().
	 */
	pg_write_barrier();
	pg_atomic_write_u64(&frame->stamp, paq_frame_stamp(&paq_live, pos));
	(void) PAQ_FAULT("ring-committed");
}

/*
 * Step 5.  used is what was in use before our size bytes: only the record that
 * crosses the threshold wakes the worker.  Reading "hibernating" after the
 * compare-and-swap of try_reserve(), a full barrier, pairs with
 * paq_worker_hibernate(), which sets it before it looks at "reserved".
 *
 * The warning is left to paq_pending_publish(): it must not be reported with
 * signals blocked, nor while the record is in the ring and pending, too.
 */
static inline void
wake_if_needed(uint64 used, uint32 size)
{
	uint64		threshold = paq_live.ring_size / 100 * paq_flush_threshold;

	if ((used < threshold && used + size >= threshold) ||
		pg_atomic_read_u32(&paq_shared->hibernating) != 0)
		paq_wake_worker();
	if (unlikely(used + size >= paq_warning_level()) &&
		used < paq_warning_level())
		paq_producer.filling = true;
}

/*
 * A background worker's default SIGTERM handler leaves the process from
 * within the handler, and so does that of a session that has no PGPROC yet.
 * This must not happen between reserve and commit.  The handlers of all other
 * processes only note the signal.
 */
static inline bool
signals_may_exit(void)
{
	return MyBackendType == B_BG_WORKER || MyProc == NULL;
}

/* Reset the claim, and give the writer back if it was borrowed. */
static inline void
release_writer(PaqWriter *writer)
{
	paq_writer_end(writer);
	if (unlikely(writer != paq_producer.writer))
		paq_writer_reset(writer);
}

/*
 * Put len bytes, at most paq_ring_max_record(), into the ring; fields_crc is
 * their paq_fields_crc().  Stores the frame's position in *published_at between
 * reserving and committing, if published_at is not NULL.
 *
 * Returns the position after the record.  Returns 0 if there is no space, besides
 * the reserve if wait is PAQ_SPACE_WAIT.  Returns PAQ_POS_UNCLAIMED in a process
 * without a slot that finds no free PaqWriter, because PAQ_NGUESTS others are in
 * here or were killed in here: a process that cannot claim its place must not write.
 */
uint64
paq_ring_put(const char *record, uint32 len, pg_crc32c fields_crc,
			 PaqSpaceWait wait, uint64 *published_at)
{
	uint32		size = PAQ_FRAME_SIZE(len);
	uint64		kept = wait == PAQ_SPACE_WAIT ? paq_ring_reserve() : 0;
	bool		mask = signals_may_exit();
	sigset_t	save_mask;
	PaqWriter  *writer;
	uint64		used = 0;
	uint64		pos = 0;

	Assert(len <= paq_ring_max_record());

	for (;;)
	{
		if (unlikely(mask))
			sigprocmask(SIG_SETMASK, &BlockSig, &save_mask);
		writer = paq_producer.writer;
		if (unlikely(writer == NULL))
			writer = paq_writer_borrow();
		if (likely(writer != NULL))
		{
			pos = try_reserve(writer, size, kept, &used);
			if (likely(pos != 0))
				break;
			release_writer(writer);
		}
		if (unlikely(mask))
			sigprocmask(SIG_SETMASK, &save_mask, NULL);

		/* Once more behind the detour: another process may have taken it. */
		if (writer != NULL &&
			(paq_ring_has_space(size, kept) || paq_ring_detour() ||
			 paq_ring_has_space(size, kept)))
			continue;
		return writer == NULL ? PAQ_POS_UNCLAIMED : 0;
	}

	(void) PAQ_FAULT("ring-unplaced");
	if (likely(published_at != NULL))
		*published_at = pos;
	commit_frame(pos, size, record, len, fields_crc);
	release_writer(writer);
	wake_if_needed(used, size);
	if (unlikely(mask))
		sigprocmask(SIG_SETMASK, &save_mask, NULL);
	return pos + size;
}

/* ----------
 * Skips
 * ----------
 */

/* Steps 3 and 4 of the list at the top of this file, for a skip. */
static void
commit_skip(uint64 pos, uint32 size, uint64 unflushed)
{
	PaqFrame   *frame = paq_frame_at(&paq_live, pos);

	(void) PAQ_FAULT("skip-reserved");
	frame->size = size;
	frame->length = Min(unflushed, PG_UINT32_MAX);
	frame->kind = PAQ_FRAME_SKIP;
	frame->crc = skip_crc(&paq_live, pos, size, frame->length);
	pg_write_barrier();			/* as in commit_frame() */
	pg_atomic_write_u64(&frame->stamp, paq_frame_stamp(&paq_live, pos));
	(void) PAQ_FAULT("skip-committed");
}

/*
 * Let positions before pos be reserved.  Returns whether that is news: another
 * process may have done it, or more.
 */
static bool
raise_limit(uint64 pos)
{
	uint64		limit = pg_atomic_read_u64(&paq_live.live->limit);

	while (limit < pos)
		if (pg_atomic_compare_exchange_u64(&paq_live.live->limit, &limit, pos))
			return true;
	return false;
}

/* Is everything between the two positions committed?  For the worker. */
static bool
all_committed(uint64 pos, uint64 end)
{
	while (pos < end)
	{
		uint32		size;

		if (!paq_frame_is_committed(&paq_live, pos))
			return false;
		size = paq_frame_at(&paq_live, pos)->size;
		if (size < sizeof(PaqFrame))
			return false;
		pos += size;
	}
	return true;
}

/*
 * For the worker, which has released everything before flushed: if almost nothing
 * has been put into the ring since, and its end is far enough from the ring's begin,
 * skip what is left of the lap.  Returns the position behind the skip if there is
 * nothing before it, which can then be released, too; else flushed.
 *
 * "detour" is set before: from the moment at which the skip is reserved, nobody is
 * to find less space than there is.
 */
uint64
paq_ring_skip(uint64 flushed)
{
	const uint64 ring_size = paq_live.ring_size;
	uint64		pos = pg_atomic_read_u64(&paq_live.live->reserved);
	const uint64 offset = pos % ring_size;
	const uint64 rest = ring_size - offset;
	const uint32 size = rest <= MAX_SKIP ? rest : MAX_SKIP / 2;
	PaqFrame   *frame = paq_frame_at(&paq_live, pos);
	PaqWriter  *writer = paq_producer.writer;
	uint64		end = flushed;

	if (offset < Min(SKIP_BEHIND, ring_size / 4) || size <= sizeof(PaqFrame) ||
		paq_queue_has_skip())
		return flushed;

	/*
	 * With something in the way, that must be little, and such that it can be
	 * written at once; and the rest must do as the reserve.
	 */
	if (pos != flushed &&
		(pos - flushed > Min(offset / 2, MAX_SKIP / 2) || size != rest ||
		 offset > ring_size / 2 || !all_committed(flushed, pos)))
		return flushed;
	if (writer == NULL)
		writer = paq_writer_borrow();
	if (writer == NULL)
		return flushed;

	/*
	 * Have the page mapped now, as that may have to wait for a disk.  If a producer
	 * takes the place meanwhile, this changes nothing.
	 */
	(void) pg_atomic_fetch_add_u64(&frame->stamp, 0);
	paq_writer_claim(writer, pos, size);
	if (size == rest)
		pg_atomic_write_u64(&paq_live.live->detour,
							pos + ring_size + sizeof(PaqFrame));
	(void) PAQ_FAULT("skip-claimed");
	if (pg_atomic_compare_exchange_u64(&paq_live.live->reserved, &pos, pos + size))
	{
		commit_skip(pos, size, pos - flushed);
		if (pos == flushed)
			end = pos + size;
	}
	else
		pg_atomic_write_u64(&paq_live.live->detour, 0);
	release_writer(writer);
	return end;
}

/*
 * Is there the skip that a detour to this position is for?  Its place may just be
 * being reserved or written: wait for that, microseconds unless that process has to
 * wait for a CPU.  No interrupt ends this, so it is not for long.
 */
static bool
is_skipped(uint64 to)
{
	uint64		pos = skip_position(to);

	for (int i = 0; i < SKIP_LOOKS; i++)
	{
		if (paq_frame_is_committed(&paq_live, pos))
		{
			PaqFrame   *frame = paq_frame_at(&paq_live, pos);

			/* A detour of the lap before may have taken the place. */
			return frame->kind == PAQ_FRAME_SKIP &&
				pos + frame->size == next_lap(pos);
		}
		if (pg_atomic_read_u64(&paq_live.live->detour) != to)
			return false;
		pg_usleep(SKIP_DELAY);
	}
	return false;
}

/*
 * Go on behind what lies in the way, up to position to, unless others have done so.
 * false: there is nobody to claim the place.
 */
static bool
take_detour(uint64 to)
{
	const uint64 lap = to / paq_live.ring_size;
	uint64		pos = pg_atomic_read_u64(&paq_live.live->reserved);
	PaqWriter  *writer = paq_producer.writer;
	bool		mask = signals_may_exit();
	sigset_t	save_mask;

	if (mask)
		sigprocmask(SIG_SETMASK, &BlockSig, &save_mask);
	if (writer == NULL)
		writer = paq_writer_borrow();
	while (writer != NULL && pos < to && pos / paq_live.ring_size == lap)
	{
		/* fits() has seen to that, as what is in the way begins at "limit". */
		Assert(pos + sizeof(PaqFrame) <=
			   pg_atomic_read_u64(&paq_live.live->limit));
		paq_writer_claim(writer, pos, to - pos);
		(void) PAQ_FAULT("detour-claimed");
		if (pg_atomic_compare_exchange_u64(&paq_live.live->reserved, &pos, to))
			commit_skip(pos, to - pos,
						pos - pg_atomic_read_u64(&paq_live.live->released));
	}
	if (writer != NULL)
		release_writer(writer);
	if (mask)
		sigprocmask(SIG_SETMASK, &save_mask, NULL);
	return writer != NULL;
}

/*
 * There was no space.  If that was because of what lay in the way when the worker
 * skipped what was left of the lap before, go on behind it.  Returns whether there is
 * more space than before.
 *
 * Once "reserved" has reached the end of the detour, nobody can come to what is in
 * the way any more, so that everything behind it may be used, by whomever: the process
 * that reserved the detour may be slow to say so.  Nobody gets there without a detour
 * before what was in the way has been released; then this changes nothing.
 *
 * A worker that is killed, and of whose death the postmaster takes no notice, may
 * leave "detour" without a skip, until the next one has released what is there
 * instead: see paq_ring_release().
 */
bool
paq_ring_detour(void)
{
	uint64		to;
	uint64		pos;

	pg_read_barrier();			/* pairs with the compare-and-swap in
								 * paq_ring_skip(): whoever has seen the skip in
								 * "reserved" sees "detour" */
	to = pg_atomic_read_u64(&paq_live.live->detour);
	pos = pg_atomic_read_u64(&paq_live.live->reserved);
	if (likely(to == 0) || pos >= next_lap(to) ||
		pg_atomic_read_u64(&paq_live.live->limit) >= next_lap(to))
		return false;
	if (pos < to)
	{
		if (!is_skipped(to))
			return false;

		/* So the lap before has been left by now, if it was not before. */
		pos = pg_atomic_read_u64(&paq_live.live->reserved);
		if (pos < to && (to - pos > MAX_SKIP || !take_detour(to)))
			return false;
	}
	else
	{
		pg_read_barrier();		/* pairs with the compare-and-swap in
								 * raise_limit(): see paq_ring_release() */
		if (pg_atomic_read_u64(&paq_live.live->detour) != to)
			return false;
	}
	(void) PAQ_FAULT("detour-taken");
	return raise_limit(next_lap(to));
}

/*
 * For the worker: everything before pos may be overwritten.  Returns how many bytes of
 * that were a skip for which "detour" was set.
 *
 * A skip is released as a whole.  If it is not, there was none: then "detour" must be
 * reset before anybody can get behind it.
 */
uint64
paq_ring_release(uint64 pos)
{
	uint64		detour = pg_atomic_read_u64(&paq_live.live->detour);
	uint64		skip = skip_position(detour);

	if (detour != 0 && pos > skip && pos < next_lap(skip))
	{
		detour = 0;
		pg_atomic_write_u64(&paq_live.live->detour, detour);
	}
	pg_atomic_write_u64(&paq_live.live->released, pos);
	(void) raise_limit(pos + paq_live.ring_size);
	if (detour == 0 || pos <= skip)
		return 0;
	pg_write_barrier();			/* pairs with those in paq_queue_used() */
	pg_atomic_write_u64(&paq_live.live->detour, 0);
	return next_lap(skip) - skip;
}

/* Is there a committed frame at pos?  Its record may be damaged. */
bool
paq_frame_is_committed(PaqQueueFile *qf, uint64 pos)
{
	if (pg_atomic_read_u64(&paq_frame_at(qf, pos)->stamp) !=
		paq_frame_stamp(qf, pos))
		return false;
	pg_read_barrier();			/* pairs with that in commit_frame() */
	return true;
}

/* Is the committed skip at pos undamaged, ending before limit? */
static bool
skip_is_whole(PaqQueueFile *qf, uint64 pos, uint64 limit)
{
	PaqFrame   *frame = paq_frame_at(qf, pos);

	return frame->size >= sizeof(PaqFrame) &&
		frame->size % PAQ_FRAME_ALIGN == 0 && frame->size <= limit - pos &&
		frame->crc == skip_crc(qf, pos, frame->size, frame->length);
}

/* Is the committed frame at pos undamaged, ending before limit? */
bool
paq_frame_is_whole(PaqQueueFile *qf, uint64 pos, uint64 limit)
{
	PaqFrame   *frame = paq_frame_at(qf, pos);

	if (limit - pos < sizeof(PaqFrame))
		return false;
	if (unlikely(frame->kind != PAQ_FRAME_RECORD))
		return frame->kind == PAQ_FRAME_SKIP && skip_is_whole(qf, pos, limit);
	if (frame->length > limit - pos ||
		frame->size != PAQ_FRAME_SIZE(frame->length) ||
		frame->size > limit - pos)
		return false;
	return frame->crc == paq_frame_crc(qf, pos, (char *) (frame + 1), frame->length);
}

/* Is there a committed and undamaged frame at pos, ending before limit? */
bool
paq_frame_is_good(PaqQueueFile *qf, uint64 pos, uint64 limit)
{
	return pos < limit && paq_frame_is_committed(qf, pos) &&
		paq_frame_is_whole(qf, pos, limit);
}
