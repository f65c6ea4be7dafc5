/*-------------------------------------------------------------------------
 *
 * reader.c
 *		The consumer's side: records out of a queue file, in order.
 *
 * The live file is read while backends write to it: the cursor stops at the
 * first frame that is not committed.  Backlog - a file that an earlier run of
 * the server left, see shmem.c - has no writers any more: what is not
 * committed there was cut short by a crash and is stepped over, and after the
 * ring come the pending slots, whose records the crash interrupted.
 *
 * Guarantees: nothing is handed out twice between two calls of
 * paq_reader_rewind(), and nothing that is not a whole record with a good
 * checksum; space is given back only for what paq_reader_flushed() was told.
 *
 * Locking: none; the worker is the only reader.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "guc.h"
#include "nodes/pg_list.h"
#include "queue/queue_internal.h"
#include "storage/fd.h"
#include "utils/memutils.h"

struct PaqReader
{
	PaqQueueFile *qf;			/* &backlog or &paq_live */
	PaqQueueFile backlog;
	uint32		number;			/* of backlog, see paq_backlog_path() */
	bool		same_boot;		/* see paq_file_same_boot() */

	uint64		cursor;			/* next frame */
	uint64		end;			/* end of the ring's contents (backlog) */
	uint64		slot_cursor;	/* next entry: byte offset in the slots' area */
	uint64		drained;		/* as of the last checkpoint */
	uint64		drained_slots;
	uint64		flushed;		/* as of the last paq_reader_flushed() */
	uint64		flushed_slots;
	uint64		lost;			/* bytes of files that could not be used, to be
								 * reported as damage */
	bool		lost_read;		/* reported since the last checkpoint */

	void	   *spill;			/* spill file of the current record, mapped */
	Size		spill_size;
	List	   *spills_read;	/* names of spill files read since the last
								 * checkpoint */
	List	   *spills_drained; /* names of those before, not yet removed */
};

/* There is one at a time. */
static PaqReader the_reader;

typedef enum FrameState
{
	FRAME_NONE,
	FRAME_BUSY,
	FRAME_COMMITTED
} FrameState;

static FrameState
frame_state(PaqQueueFile *qf, uint64 pos)
{
	uint64		stamp = pg_atomic_read_u64(&paq_frame_at(qf, pos)->stamp);

	if (stamp == paq_frame_stamp(qf, pos, PAQ_FRAME_COMMITTED))
	{
		/* Pairs with the write barrier in paq_ring_commit(). */
		pg_read_barrier();
		return FRAME_COMMITTED;
	}
	if (stamp == paq_frame_stamp(qf, pos, PAQ_FRAME_BUSY))
		return FRAME_BUSY;
	return FRAME_NONE;
}

/* Is there a committed and undamaged frame at pos, ending before limit? */
static bool
frame_is_good(PaqQueueFile *qf, uint64 pos, uint64 limit)
{
	PaqFrame   *frame = paq_frame_at(qf, pos);

	if (pos >= limit || limit - pos < sizeof(PaqFrame) ||
		frame_state(qf, pos) != FRAME_COMMITTED)
		return false;
	if (frame->length > limit - pos ||
		frame->size != PAQ_FRAME_SIZE(frame->length) ||
		frame->size > limit - pos)
		return false;
	return frame->crc == paq_frame_crc(qf, pos, (char *) (frame + 1), frame->length);
}

/* Position of the next good frame behind pos, or limit. */
static uint64
find_good_frame(PaqQueueFile *qf, uint64 pos, uint64 limit)
{
	for (pos += PAQ_FRAME_ALIGN; pos < limit; pos += PAQ_FRAME_ALIGN)
		if (frame_is_good(qf, pos, limit))
			return pos;
	return limit;
}

/*
 * Number of the oldest backlog file that is newer than the one called after;
 * 0 if there is none.
 */
static uint32
find_backlog(uint32 after)
{
	DIR		   *dir = AllocateDir(paq_queue_directory);
	struct dirent *de;
	uint32		oldest = 0;

	while ((de = ReadDirExtended(dir, paq_queue_directory, LOG)) != NULL)
	{
		uint32		number = paq_backlog_number(de->d_name);

		if (number > after && (oldest == 0 || number < oldest))
			oldest = number;
	}
	if (dir != NULL)
		FreeDir(dir);
	return oldest;
}

/*
 * Where does the content of a file begin and end?  The checkpoint says where
 * the trail is; without one, or if positions contradict each other, every
 * frame that can be found counts.
 */
static void
find_bounds(PaqReader *reader, PaqCheckpoint *checkpoint)
{
	PaqQueueFile *qf = reader->qf;
	uint64		released = pg_atomic_read_u64(&qf->live->released);
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);

	if (!paq_checkpoint_read(qf, checkpoint))
	{
		memset(checkpoint, 0, sizeof(*checkpoint));
		checkpoint->drained = pg_atomic_read_u64(&qf->live->drained);
		reader->same_boot = false;
	}
	reader->cursor = TYPEALIGN64(PAQ_FRAME_ALIGN, checkpoint->drained);
	reader->end = reserved;
	if (!reader->same_boot ||
		released > reader->cursor || reader->cursor > reserved ||
		reserved - released > qf->ring_size)
		reader->end = reader->cursor + qf->ring_size;
}

/* Stand at the checkpoint of reader->qf, which goes to *checkpoint. */
static void
start_reading(PaqReader *reader, PaqCheckpoint *checkpoint)
{
	reader->same_boot = paq_file_same_boot(reader->qf);
	find_bounds(reader, checkpoint);
	reader->drained = reader->cursor;

	/* A worker before us may have written without getting to the flush. */
	reader->flushed = Min(pg_atomic_read_u64(&reader->qf->live->released),
						  reader->drained);
	reader->slot_cursor = reader->drained_slots = checkpoint->drained_slots;
	reader->flushed_slots = 0;
}

/*
 * Map the backlog file that reader->number says.  One that cannot be used is
 * set aside; the reader remembers to report that records are missing.
 */
static bool
open_backlog(PaqReader *reader)
{
	char		path[MAXPGPATH];
	struct stat st;
	char	   *reason;

	paq_backlog_path(path, reader->number);
	if (paq_file_open(path, &reader->backlog, &reason))
	{
		if (!paq_file_is_foreign(&reader->backlog, path))
			return true;
		paq_file_close(&reader->backlog);
		paq_file_set_aside(path, "It belongs to another server, or was copied.", LOG);
		return false;
	}
	if (reason == NULL)
		return false;			/* it is gone */
	if (stat(path, &st) == 0)
		reader->lost += Max(st.st_size, 1);
	paq_file_set_aside(path, reason, LOG);
	return false;
}

static void
remove_backlog(uint32 number)
{
	char		path[MAXPGPATH];

	paq_backlog_path(path, number);
	(void) durable_unlink(path, LOG);
}

/*
 * Open the oldest queue file newer than the backlog file called after: more
 * backlog if there is any, else the live file.
 */
static PaqReader *
open_after(uint32 after, PaqCheckpoint *checkpoint)
{
	PaqReader  *reader = &the_reader;

	memset(reader, 0, sizeof(*reader));
	for (; (reader->number = find_backlog(after)) != 0; after = reader->number)
	{
		if (!open_backlog(reader))
			continue;
		reader->qf = &reader->backlog;
		start_reading(reader, checkpoint);
		if (checkpoint->drained != PAQ_DRAINED_ALL)
			return reader;

		/* Done, but it could not be removed at the time. */
		paq_file_close(&reader->backlog);
		remove_backlog(reader->number);
	}

	reader->qf = &paq_live;
	start_reading(reader, checkpoint);
	paq_spill_remove_older(paq_file_generation(&paq_live));
	return reader;
}

/*
 * Open the oldest queue file.  *checkpoint says how far the trail has got;
 * *same_boot whether the operating system has been up since, see sink.h.  A
 * backlog file that cannot be used is reported and set aside.
 */
PaqReader *
paq_reader_open(PaqCheckpoint *checkpoint, bool *same_boot)
{
	PaqReader  *reader = open_after(0, checkpoint);

	*same_boot = reader->same_boot;
	return reader;
}

/* Is this the file that backends write to? */
bool
paq_reader_is_live(PaqReader *reader)
{
	return reader->qf == &paq_live;
}

static void
close_spill(PaqReader *reader)
{
	if (reader->spill != NULL)
		munmap(reader->spill, reader->spill_size);
	reader->spill = NULL;
	reader->spill_size = 0;
}

/*
 * Map the spill file called name.  If that fails, it is as if the file were
 * empty: the record is then handed out without its texts.
 */
static void
open_spill(PaqReader *reader, PaqText name)
{
	char		path[MAXPGPATH];
	struct stat st;
	int			fd;
	void	   *map;

	snprintf(path, sizeof(path), "%s/%.*s", paq_queue_directory,
			 (int) name.len, name.data);
	fd = BasicOpenFile(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | PG_BINARY);
	if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not open audit spill file \"%s\": %m", path)));
		if (fd >= 0)
			close(fd);
		return;
	}
	if (st.st_size > 0)
	{
		map = mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (map != MAP_FAILED)
		{
			reader->spill = map;
			reader->spill_size = st.st_size;
		}
		else
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not map audit spill file \"%s\": %m", path)));
	}
	close(fd);
}

/* Decode a record, with its spill file if it has one. */
static bool
decode(PaqReader *reader, const char *data, uint32 len, PaqRecord *record)
{
	PaqText		name;

	if (unlikely(paq_record_spill_name(data, len, &name)))
	{
		MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);

		reader->spills_read = lappend(reader->spills_read,
									  pnstrdup(name.data, name.len));
		MemoryContextSwitchTo(oldcontext);
		open_spill(reader, name);
	}
	return paq_record_decode(data, len, reader->spill, reader->spill_size, record);
}

/*
 * Step over what is no record, to the next one.  Unfinished records at the
 * end of backlog are no damage: a crash left them, and the pending slots have
 * them.
 */
static PaqReadResult
skip_damage(PaqReader *reader, uint64 limit, uint64 *damaged)
{
	uint64		next = find_good_frame(reader->qf, reader->cursor, limit);
	bool		expected = !paq_reader_is_live(reader) &&
		frame_state(reader->qf, reader->cursor) != FRAME_COMMITTED &&
		(reader->same_boot || next == limit);

	*damaged = next - reader->cursor;
	reader->cursor = next;
	return expected ? PAQ_READ_END : PAQ_READ_DAMAGED;
}

/* Next record of the ring; PAQ_READ_END if there is none before the end. */
static PaqReadResult
next_in_ring(PaqReader *reader, PaqRecord *record, uint64 *damaged)
{
	PaqQueueFile *qf = reader->qf;
	bool		live = paq_reader_is_live(reader);
	uint64		limit;

	limit = live ? pg_atomic_read_u64(&qf->live->reserved) : reader->end;
	while (reader->cursor < limit)
	{
		PaqFrame   *frame = paq_frame_at(qf, reader->cursor);
		PaqReadResult result;

		if (live && frame_state(qf, reader->cursor) != FRAME_COMMITTED)
			return PAQ_READ_BUSY;
		if (!frame_is_good(qf, reader->cursor, limit))
		{
			result = skip_damage(reader, limit, damaged);
			if (result == PAQ_READ_DAMAGED)
				return result;
			continue;
		}
		reader->cursor += frame->size;
		if (decode(reader, (char *) (frame + 1), frame->length, record))
			return PAQ_READ_RECORD;
		*damaged = frame->size;
		return PAQ_READ_DAMAGED;
	}
	return PAQ_READ_END;
}

/* Did the record of this entry get into the ring before the crash? */
static bool
entry_was_published(PaqReader *reader, const PaqSlotEntry *entry)
{
	uint64		pos = entry->published_at;

	if (pos == 0 || pos % PAQ_FRAME_ALIGN != 0)
		return false;
	return pos < pg_atomic_read_u64(&reader->qf->live->released) ||
		frame_is_good(reader->qf, pos, reader->end);
}

/*
 * Entry at the slot cursor, NULL if there is none left in its slot.  Moves
 * the cursor behind it, or to the next slot.
 */
static PaqSlotEntry *
next_entry(PaqReader *reader)
{
	uint64		slot_start = reader->slot_cursor - reader->slot_cursor % PAQ_SLOT_SIZE;
	uint64		offset = reader->slot_cursor - slot_start;
	PaqSlot    *slot = (PaqSlot *) (reader->qf->slots + slot_start);
	PaqSlotEntry *entry = (PaqSlotEntry *) (slot->entries + offset);
	uint64		used = Min(slot->used, sizeof(slot->entries));

	if (offset + sizeof(PaqSlotEntry) > used ||
		entry->size < sizeof(PaqSlotEntry) || entry->size % 8 != 0 ||
		entry->size > used - offset)
	{
		reader->slot_cursor = slot_start + PAQ_SLOT_SIZE;
		return NULL;
	}
	reader->slot_cursor += entry->size;
	return entry;
}

/* Next record of the pending slots of a backlog file. */
static PaqReadResult
next_in_slots(PaqReader *reader, PaqRecord *record)
{
	uint64		end = (uint64) reader->qf->header->nslots * PAQ_SLOT_SIZE;

	while (reader->slot_cursor < end)
	{
		PaqSlotEntry *entry = next_entry(reader);
		PaqRecordHeader *header = (PaqRecordHeader *) (entry + 1);

		if (entry == NULL || entry->valid != 1 ||
			entry->size < sizeof(PaqSlotEntry) + sizeof(PaqRecordHeader) ||
			header->length > entry->size - sizeof(PaqSlotEntry) ||
			entry_was_published(reader, entry) ||
			!decode(reader, (char *) header, header->length, record))
			continue;

		/*
		 * Some only waited for space.  If one had failed, that is its outcome;
		 * a success that nobody was told of is none.
		 */
		if (record->header.sqlstate == 0)
		{
			record->header.flags |= PAQ_RECORD_INTERRUPTED;
			record->header.sqlstate = ERRCODE_CRASH_SHUTDOWN;
		}
		return PAQ_READ_RECORD;
	}
	return PAQ_READ_END;
}

/*
 * Read the next record.  *record is valid until the next call of any function
 * here.  For PAQ_READ_DAMAGED, *damaged is the number of bytes that were
 * stepped over.
 */
PaqReadResult
paq_reader_next(PaqReader *reader, PaqRecord *record, uint64 *damaged)
{
	PaqReadResult result;

	close_spill(reader);
	if (unlikely(reader->lost != 0 && !reader->lost_read))
	{
		*damaged = reader->lost;
		reader->lost_read = true;
		return PAQ_READ_DAMAGED;
	}
	result = next_in_ring(reader, record, damaged);
	if (result == PAQ_READ_END && !paq_reader_is_live(reader))
		result = next_in_slots(reader, record);
	return result;
}

/* Position of the next record. */
uint64
paq_reader_position(PaqReader *reader)
{
	return reader->cursor;
}

/* Position at which the records that there are now end. */
uint64
paq_reader_limit(PaqReader *reader)
{
	return paq_reader_is_live(reader) ?
		pg_atomic_read_u64(&reader->qf->live->reserved) : PG_UINT64_MAX;
}

/* Go back to the last checkpoint: the batch since then failed. */
void
paq_reader_rewind(PaqReader *reader)
{
	close_spill(reader);
	list_free_deep(reader->spills_read);
	reader->spills_read = NIL;
	reader->cursor = reader->drained;
	reader->slot_cursor = reader->drained_slots;
	reader->lost_read = false;
}

/* Has anything been read, or stepped over, since the last checkpoint? */
bool
paq_reader_unsaved(PaqReader *reader)
{
	return reader->lost_read ||
		reader->cursor != reader->drained ||
		reader->slot_cursor != reader->drained_slots;
}

/*
 * All that has been read is in the trail, whose last record has the given
 * sequence and whose state is the PAQ_TRAIL_STATE_SIZE bytes at trail.
 */
void
paq_reader_checkpoint(PaqReader *reader, uint64 sequence, const void *trail)
{
	PaqCheckpoint checkpoint = {0};

	close_spill(reader);
	checkpoint.drained = reader->cursor;
	checkpoint.drained_slots = reader->slot_cursor;
	checkpoint.sequence = sequence;
	memcpy(checkpoint.trail, trail, sizeof(checkpoint.trail));
	paq_checkpoint_write(reader->qf, &checkpoint);

	if (reader->lost_read)
		reader->lost = 0;
	reader->lost_read = false;
	reader->drained = reader->cursor;
	reader->drained_slots = reader->slot_cursor;
	reader->spills_drained = list_concat(reader->spills_drained,
										 reader->spills_read);
	list_free(reader->spills_read);
	reader->spills_read = NIL;
	pg_atomic_write_u64(&reader->qf->live->drained, reader->drained);
}

/* Is there anything between the last checkpoint and the last flush? */
bool
paq_reader_unflushed(PaqReader *reader)
{
	return reader->drained != reader->flushed ||
		reader->drained_slots != reader->flushed_slots ||
		reader->spills_drained != NIL;
}

/* Bytes of the ring between the two. */
uint64
paq_reader_unflushed_bytes(PaqReader *reader)
{
	return reader->drained - reader->flushed;
}

static void
remove_drained_spills(PaqReader *reader)
{
	ListCell   *lc;

	foreach(lc, reader->spills_drained)
	{
		const char *name = (const char *) lfirst(lc);

		paq_spill_remove(name, strlen(name));
	}
	list_free_deep(reader->spills_drained);
	reader->spills_drained = NIL;
}

/*
 * The trail is durable up to the last checkpoint, whose last record has the
 * given sequence: give the space back and wake those who wait for it.
 */
void
paq_reader_flushed(PaqReader *reader, uint64 sequence)
{
	Assert(reader->flushed <= reader->drained);
	reader->flushed = reader->drained;
	reader->flushed_slots = reader->drained_slots;
	remove_drained_spills(reader);
	pg_atomic_write_u64(&paq_shared->flushed_sequence, sequence);
	if (!paq_reader_is_live(reader))
		return;

	Assert(pg_atomic_read_u64(&paq_live.live->reserved) >= reader->drained);
	Assert(pg_atomic_read_u64(&paq_live.live->released) <= reader->flushed);

	/*
	 * Our reading of the space must be over before it is given back (pairs
	 * with the compare-and-swap in try_reserve()), and the sequence must be
	 * there before "flushed" promises it (pairs with the barrier in
	 * paq_queue_flushed_sequence()).
	 */
	pg_memory_barrier();
	pg_atomic_write_u64(&paq_live.live->released, reader->flushed);
	pg_atomic_write_u64(&paq_shared->flushed, reader->flushed);
	ConditionVariableBroadcast(&paq_shared->flush_cv);
	ConditionVariableBroadcast(&paq_shared->space_cv);
}

/*
 * A backlog file has been read to its end, and the trail is durable: carry
 * its checkpoint over to the next file, remove it, and stand on the next one.
 */
PaqReader *
paq_reader_advance(PaqReader *reader, uint64 sequence, const void *trail)
{
	PaqQueueFile done = reader->backlog;
	uint32		number = reader->number;
	PaqCheckpoint checkpoint;

	Assert(!paq_reader_is_live(reader));
	Assert(!paq_reader_unsaved(reader) && !paq_reader_unflushed(reader));
	close_spill(reader);

	/*
	 * First the next file learns how far the trail has got, then this one
	 * goes.  A crash in between finds this file drained and does it again.
	 * It is marked as done before, for the case that it cannot be removed: its
	 * checkpoint must never be taken for the trail's end again.
	 */
	reader = open_after(number, &checkpoint);
	paq_reader_checkpoint(reader, sequence, trail);
	memset(&checkpoint, 0, sizeof(checkpoint));
	checkpoint.drained = PAQ_DRAINED_ALL;
	paq_checkpoint_write(&done, &checkpoint);
	paq_file_close(&done);
	remove_backlog(number);
	return reader;
}

/* Write the queue file's checkpoint to disk; failure is only logged. */
void
paq_reader_sync(PaqReader *reader)
{
	PaqQueueFile *qf = reader->qf;

	if (msync(qf->base, qf->header->ring_offset, MS_SYNC) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not sync the audit queue file: %m")));
}
