/*-------------------------------------------------------------------------
 *
 * ring.c
 *		The producer's side of the ring.
 *
 * When a record has been made, long before it is complete, the place where it
 * will go is fetched into the CPU's cache (paq_ring_prefetch_frame()).  To put it
 * into the ring:
 *
 * 1. Compute the checksum of the record's fields, the long part, beforehand.
 * 2. Claim the place behind "reserved" (writers.c), and reserve: advance
 *	  "reserved" by the frame's size, if that much is free.  From here to step 4
 *	  nothing may raise an error, allocate or be interrupted: the worker cannot
 *	  step over a frame that is not finished, while we live.
 * 3. Copy the record.
 * 4. Commit: store the frame's stamp.
 * 5. Wake the worker if the queue crossed the threshold or the worker
 *	  hibernates; note it if the queue is filling up.
 *
 * Guarantees: a record is in the ring whole or not at all; once
 * paq_ring_put() has returned, only the death of the operating system can
 * lose it.  Records come out in the order of reservation, so one session's
 * records stay in order.
 *
 * Locking: none.  "reserved" is compare-and-swapped; "released" is read
 * before, so a producer never writes to space the worker has not given back.
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
#include "queue/reader_internal.h"
#include "stats.h"
#include "storage/proc.h"
#include "utils/memutils.h"

/* Largest record stored in the ring itself, in bytes, whatever the ring's size */
#define MAX_INLINE_RECORD	(256 * 1024)

/* What is fetched into the cache ahead, at most, in bytes */
#define MAX_PREFETCH		1024
#define CACHE_LINE			64

/* Has a record of this process crossed paq_warning_level()? */
bool		paq_ring_filling = false;

/*
 * Longest record, in bytes, that goes into the ring; a longer one needs a
 * spill file.  Several of them fit into the reserve.
 */
uint32
paq_ring_max_record(void)
{
	return Min(paq_live.ring_size / 16, MAX_INLINE_RECORD) - sizeof(PaqFrame);
}

/*
 * Checksum of a frame.  The long part comes first, so that it can be computed
 * when the record is made: the fields behind the header, which do not change
 * any more.  The salt is in it so that nobody who does not know it can write
 * text that looks like a frame.
 */
pg_crc32c
paq_fields_crc(const char *record, uint32 len)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	if (likely(len > sizeof(PaqRecordHeader)))
		COMP_CRC32C(crc, record + sizeof(PaqRecordHeader),
					len - sizeof(PaqRecordHeader));
	return crc;
}

static inline pg_crc32c
finish_crc(PaqQueueFile *qf, pg_crc32c crc, uint64 pos, const char *record,
		   uint32 len)
{
	char		place[sizeof(qf->salt) + sizeof(pos) + sizeof(len)];

	memcpy(place, &qf->salt, sizeof(qf->salt));
	memcpy(place + sizeof(qf->salt), &pos, sizeof(pos));
	memcpy(place + sizeof(qf->salt) + sizeof(pos), &len, sizeof(len));
	COMP_CRC32C(crc, record, Min(len, sizeof(PaqRecordHeader)));
	COMP_CRC32C(crc, place, sizeof(place));
	FIN_CRC32C(crc);
	return crc;
}

pg_crc32c
paq_frame_crc(PaqQueueFile *qf, uint64 pos, const char *record, uint32 len)
{
	return finish_crc(qf, paq_fields_crc(record, len), pos, record, len);
}

/*
 * Have a cache line fetched, for writing.  For x86-64 in general, a compiler's
 * own means is fetching for reading, after which the other CPU's copy has still to
 * be taken away; CPUs that are too old for this instruction do nothing.
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
 * A record is going to be put into the ring, in a while.  Other processes were
 * the last to write to "reserved", and to read what is in the ring behind it.
 * Without a hint, each store there waits for its cache line, and what is executed
 * after the record is out waits for all of them: 0.2 to 0.3 us a record.  So have
 * the cache lines fetched while the statement is being executed; first of all
 * that of "reserved", which says where the others are.
 */
void
paq_ring_prefetch_position(void)
{
	prefetch_for_write(&paq_live.live->reserved);
}

/*
 * A record of len bytes will probably go to the present end of the ring.  If
 * others take that place first, most of what has been fetched is next to theirs.
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
 * Reserve size bytes.  Returns the position, which is our writer's claim then, or
 * 0 if there is not that much space.  *used is how much of the ring was in use
 * before.
 */
static inline uint64
try_reserve(PaqWriter *writer, uint32 size, uint64 limit, uint64 *used)
{
	uint64		pos = pg_atomic_read_u64(&paq_live.live->reserved);
	uint64		released;

	do
	{
		/*
		 * Reading "released" may give an old value, which is too small and
		 * hence safe.  It cannot be newer than what we may rely on: the
		 * compare-and-swap below is a full barrier, which pairs with the one
		 * in paq_reader_flushed() between the worker's last look at the space
		 * and its giving it back.
		 *
		 * It may be beyond pos, if that is old: others have put records there
		 * since, and the trail has them.  That is no full ring.
		 */
		while (unlikely((released = pg_atomic_read_u64(&paq_live.live->released)) > pos))
			pos = pg_atomic_read_u64(&paq_live.live->reserved);
		*used = pos - released;
		if (*used + size > limit)
			return 0;

		/* Should we be killed: whoever has reserved has said so before. */
		paq_writer_claim(writer, pos, size);
		(void) PAQ_FAULT("ring-claimed");
	} while (!pg_atomic_compare_exchange_u64(&paq_live.live->reserved, &pos,
											 pos + size));
	return pos;
}

/* Steps 3 and 4 of the list above. */
static inline void
paq_ring_commit(uint64 pos, uint32 size, const char *record, uint32 len,
				pg_crc32c fields_crc)
{
	PaqFrame   *frame = paq_frame_at(&paq_live, pos);

	(void) PAQ_FAULT("ring-reserved");
	frame->size = size;
	frame->length = len;
	frame->unused = 0;
	memcpy((char *) frame + sizeof(PaqFrame), record, len);
	(void) PAQ_FAULT("ring-copied");
	frame->crc = finish_crc(&paq_live, fields_crc, pos, record, len);
	if (likely(MyProc != NULL))
		paq_stats_add(&paq_my_stats->published, 1);
	else
		pg_atomic_fetch_add_u64(&paq_stats->slotless, 1);

	/*
	 * The record must be there before the stamp says so.  Pairs with the read
	 * barrier in paq_frame_is_committed().
	 */
	pg_write_barrier();
	pg_atomic_write_u64(&frame->stamp, paq_frame_stamp(&paq_live, pos));
	(void) PAQ_FAULT("ring-committed");
}

/*
 * Step 5.  used is what was in use before our size bytes: only the one
 * record that crosses the threshold wakes the worker.  Reading "hibernating"
 * after the compare-and-swap of try_reserve(), a full barrier, pairs with
 * paq_worker_hibernate(), which sets it before it looks at "reserved".
 *
 * To warn takes time, and must not be done with signals blocked or a record
 * that is in the ring but still pending, too: see paq_pending_publish().
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
		paq_ring_filling = true;
}

/*
 * A background worker's default SIGTERM handler leaves the process from
 * within the handler, and so does that of a session that has not got as far
 * as to have a PGPROC; this must not happen between reserve and commit.  All
 * others only note the signal.
 */
static inline bool
signals_may_exit(void)
{
	return MyBackendType == B_BG_WORKER || MyProc == NULL;
}

/* This process's PaqWriter, or a borrowed one; NULL if there is none. */
static inline PaqWriter *
obtain_writer(void)
{
	if (likely(paq_my_writer != NULL))
		return paq_my_writer;
	return paq_writer_borrow();
}

/* Nothing of ours is unfinished any more. */
static inline void
release_writer(PaqWriter *writer)
{
	paq_writer_end(writer);
	if (unlikely(writer != paq_my_writer))
		paq_writer_return(writer);
}

/*
 * Put len bytes, at most paq_ring_max_record(), into the ring; fields_crc is
 * their paq_fields_crc().  Stores the frame's position in *published_at between
 * reserving and committing, if published_at is not NULL.  Returns the position
 * after the record; or 0, if there is no space: wait is not PAQ_SPACE_WAIT, or
 * there is no use in waiting (overflow "drop", single-user mode).  With
 * PAQ_SPACE_WAIT it may raise an error instead, with nothing reserved.
 *
 * 0 also for a process without slot, if so many others are, or were killed, in
 * here that no PaqWriter is left: who cannot say where it writes must not write.
 */
uint64
paq_ring_put(const char *record, uint32 len, pg_crc32c fields_crc,
			 PaqSpaceWait wait, uint64 *published_at)
{
	uint32		size = PAQ_FRAME_SIZE(len);
	uint64		limit = paq_live.ring_size;
	bool		mask = signals_may_exit();
	sigset_t	save_mask;
	PaqWriter  *writer;
	uint64		used = 0;
	uint64		pos = 0;

	Assert(len <= paq_ring_max_record());
	if (wait == PAQ_SPACE_WAIT)
		limit -= paq_ring_reserve();

	for (;;)
	{
		if (unlikely(mask))
			sigprocmask(SIG_SETMASK, &BlockSig, &save_mask);
		writer = obtain_writer();
		if (likely(writer != NULL))
		{
			pos = try_reserve(writer, size, limit, &used);
			if (likely(pos != 0))
				break;
			release_writer(writer);
		}
		if (unlikely(mask))
			sigprocmask(SIG_SETMASK, &save_mask, NULL);
		if (writer == NULL || wait != PAQ_SPACE_WAIT ||
			!paq_make_room(size + paq_ring_reserve()))
			return 0;
	}

	(void) PAQ_FAULT("ring-unplaced");
	if (likely(published_at != NULL))
		*published_at = pos;
	paq_ring_commit(pos, size, record, len, fields_crc);
	release_writer(writer);
	wake_if_needed(used, size);
	if (unlikely(mask))
		sigprocmask(SIG_SETMASK, &save_mask, NULL);
	return pos + size;
}

/* The same for a record whose checksum has not been computed yet. */
uint64
paq_ring_publish(const char *record, uint32 len, PaqSpaceWait wait,
				 uint64 *published_at)
{
	return paq_ring_put(record, len, paq_fields_crc(record, len), wait,
						published_at);
}

/*
 *		Telling frames from other bytes of the ring, and finding them.
 *
 * A frame is good if its stamp is that of its very position and its checksum
 * matches.  Both depend on the file's salt, so neither what earlier laps left
 * nor what somebody wrote into a statement can pass for one.
 *
 * Locking: none; the worker is the only reader.
 */

/* Is there a committed frame at pos?  Its record may be damaged. */
bool
paq_frame_is_committed(PaqQueueFile *qf, uint64 pos)
{
	if (pg_atomic_read_u64(&paq_frame_at(qf, pos)->stamp) !=
		paq_frame_stamp(qf, pos))
		return false;
	pg_read_barrier();			/* pairs with that in paq_ring_commit() */
	return true;
}

/* Is the committed frame at pos undamaged, ending before limit? */
bool
paq_frame_is_whole(PaqQueueFile *qf, uint64 pos, uint64 limit)
{
	PaqFrame   *frame = paq_frame_at(qf, pos);

	if (limit - pos < sizeof(PaqFrame) ||
		frame->length > limit - pos ||
		frame->size != PAQ_FRAME_SIZE(frame->length) ||
		frame->size > limit - pos)
		return false;
	return frame->crc == paq_frame_crc(qf, pos, (char *) (frame + 1), frame->length);
}

/* Is there a committed and undamaged frame at pos, ending before limit? */
bool
paq_frame_is_good(PaqQueueFile *qf, uint64 pos, uint64 limit)
{
	return pos < limit && limit - pos >= sizeof(PaqFrame) &&
		paq_frame_is_committed(qf, pos) &&
		paq_frame_is_whole(qf, pos, limit);
}

static int
compare_positions(const void *a, const void *b)
{
	uint64		x = *(const uint64 *) a;
	uint64		y = *(const uint64 *) b;

	return (x > y) - (x < y);
}

/*
 * Position of the good frame at this offset of the ring, of whatever lap; 0
 * if there is none.  A stamp tells its position.
 */
static uint64
frame_at_offset(PaqQueueFile *qf, uint64 offset)
{
	PaqFrame   *frame = (PaqFrame *) (qf->ring + offset);
	uint64		stamp = pg_atomic_read_u64(&frame->stamp) ^ qf->salt;
	uint64		pos = stamp & ~UINT64CONST(7);

	if ((stamp & 7) != PAQ_FRAME_COMMITTED || pos % qf->ring_size != offset ||
		pos > PG_INT64_MAX ||
		!paq_frame_is_good(qf, pos, pos + qf->ring_size))
		return 0;
	return pos;
}

/*
 * Memory of TopMemoryContext.  Without it there is nothing to go on with: the
 * worker starts again.
 */
void *
paq_reader_alloc(Size size)
{
	const int	flags = MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM;
	void	   *memory = MemoryContextAllocExtended(TopMemoryContext, size, flags);

	if (memory == NULL)
		ereport(FATAL,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of memory"),
				 errdetail("Failed while reading the audit queue.")));
	return memory;
}

/*
 * An array of room positions with the first used ones of the old array, which is
 * freed.
 */
static uint64 *
enlarge(uint64 *old, Size used, Size room)
{
	uint64	   *new = paq_reader_alloc(room * sizeof(uint64));

	if (old != NULL)
	{
		memcpy(new, old, used * sizeof(uint64));
		pfree(old);
	}
	return new;
}

/*
 * Positions of all good frames from lower on, in order, in TopMemoryContext;
 * the caller frees them.  Looks at every place of the ring, so that nothing
 * depends on the positions in the file.
 */
uint64 *
paq_frames_find(PaqQueueFile *qf, uint64 lower, uint32 *count)
{
	Size		room = 1024;
	uint64	   *frames = NULL;
	uint64		offset = 0;

	*count = 0;
	frames = enlarge(frames, 0, room);
	while (offset < qf->ring_size)
	{
		uint64		pos = frame_at_offset(qf, offset);

		if (pos == 0)
		{
			offset += PAQ_FRAME_ALIGN;
			continue;
		}
		offset += paq_frame_at(qf, pos)->size;
		if (pos < lower)
			continue;
		if (*count == room)
		{
			frames = enlarge(frames, room, room * 2);
			room *= 2;
		}
		frames[(*count)++] = pos;
	}
	qsort(frames, *count, sizeof(uint64), compare_positions);
	return frames;
}
