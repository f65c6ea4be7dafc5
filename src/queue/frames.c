/*-------------------------------------------------------------------------
 *
 * frames.c
 *		Telling frames from other bytes of the ring, and finding them.
 *
 * A frame is good if its stamp is that of its very position and its checksum
 * matches.  Both depend on the file's salt, so neither what earlier laps left
 * nor what somebody wrote into a statement can pass for one.
 *
 * Locking: none; the worker is the only reader.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "queue/reader_internal.h"
#include "utils/memutils.h"

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
