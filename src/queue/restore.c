/*-------------------------------------------------------------------------
 *
 * restore.c
 *		Records on the WAL, after a crash: put what the queue file lacks back into
 *		its ring.
 *
 * Run by the postmaster before recovery begins, for a queue file that is going to
 * be backlog.  If all its pages are as the server left them, it only has to be
 * synced, because nobody holds the WAL any longer.  If the operating system has
 * been restarted, its pages may be old ones.  Then WAL is read from the noted
 * sentinel to its end, and each frame in it that is missing in the ring is put
 * there, at its own position.  After that, recovery.c finds it like any other.
 *
 * A frame must not overwrite a later one.  When a session reserved space to which
 * an earlier frame belonged, that frame had been released, so the trail has it
 * durably.  The end of the last frame known, wherever it is known from, tells
 * which places of the ring have not been reserved anew; the others may have been, or
 * a detour may have left them out (ring.c): there, a frame is put where no later one
 * is.  All other frames of the ring are at places of their own.
 *
 * Guarantees: a crash in here is only another start: everything is done once
 * more, until the note says that no WAL is needed.  Nothing but a message of ours,
 * of this very queue file, is taken for one.  If WAL is missing, the note says so,
 * for the GAP record; the server starts all the same.
 *
 * Must not use any state of WAL in shared memory: there is none yet.
 *
 * Locking: none; there are no other processes.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/rmgr.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "access/xlogreader.h"
#include "fault.h"
#include "file_util.h"
#include "queue/wal.h"
#include "replication/message.h"
#include "storage/fd.h"
#include "utils/memutils.h"

/* What is being restored */
typedef struct Restore
{
	PaqQueueFile *qf;
	uint64		flushed;		/* what is before, the trail has durably */
	uint64		end;			/* of the last frame known */
	uint64		frames;			/* put back */

	/* WAL */
	TimeLineID	timeline;
	int			fd;				/* of a segment, -1: none is open */
	XLogSegNo	segment;		/* its number */
	bool		missing;		/* a segment is, although there are later ones, or
								 * cannot be read */
} Restore;

/* ----------
 * Reading WAL
 * ----------
 */

static void
close_segment(Restore *restore)
{
	if (restore->fd >= 0)
		close(restore->fd);
	restore->fd = -1;
}

static bool
segment_exists(Restore *restore, XLogSegNo segment)
{
	char		path[MAXPGPATH];
	struct stat st;

	XLogFilePath(path, restore->timeline, segment, wal_segment_size);
	return stat(path, &st) == 0;
}

/*
 * WAL may end with a segment.  But a segment that is missing before another one,
 * be it one that was made in advance, was there.
 */
static bool
open_segment(Restore *restore, XLogSegNo segment)
{
	char		path[MAXPGPATH];

	if (restore->fd >= 0 && restore->segment == segment)
		return true;
	close_segment(restore);
	XLogFilePath(path, restore->timeline, segment, wal_segment_size);
	restore->segment = segment;
	restore->fd = BasicOpenFile(path, O_RDONLY | O_CLOEXEC | PG_BINARY);
	if (restore->fd < 0)
		restore->missing = errno != ENOENT || segment_exists(restore, segment + 1);
	return restore->fd >= 0;
}

/* See XLogPageReadCB. */
static int
read_page(XLogReaderState *reader, XLogRecPtr page, int len, XLogRecPtr target,
		  char *buf)
{
	Restore    *restore = reader->private_data;
	XLogSegNo	segment;

	XLByteToSeg(page, segment, wal_segment_size);
	if (!open_segment(restore, segment))
		return -1;
	if (!paq_read_all(restore->fd, buf, XLOG_BLCKSZ,
					  XLogSegmentOffset(page, wal_segment_size)))
	{
		restore->missing = true;
		return -1;
	}
	reader->seg.ws_tli = restore->timeline;
	return XLOG_BLCKSZ;
}

/* Nothing is opened by the reader itself. */
static void
close_nothing(XLogReaderState *reader)
{
}

/*
 * Is the record read a message of ours about this queue file, and whole?  Then
 * *message is what it begins with, and *data its contents.
 */
static bool
is_ours(Restore *restore, XLogReaderState *reader, PaqWalMessage *message,
		const char **data, uint32 *len)
{
	const uint32 begin = SizeOfLogicalMessage + sizeof(PAQ_WAL_PREFIX);
	const uint32 total = XLogRecGetDataLen(reader);
	xl_logical_message record;

	if (XLogRecGetRmid(reader) != RM_LOGICALMSG_ID ||
		total < begin + sizeof(PaqWalMessage))
		return false;
	memcpy(&record, XLogRecGetData(reader), SizeOfLogicalMessage);
	if (record.dbId != InvalidOid ||
		record.prefix_size != sizeof(PAQ_WAL_PREFIX) ||
		record.message_size != total - begin ||
		memcmp(XLogRecGetData(reader) + SizeOfLogicalMessage, PAQ_WAL_PREFIX,
			   sizeof(PAQ_WAL_PREFIX)) != 0)
		return false;
	memcpy(message, XLogRecGetData(reader) + begin, sizeof(*message));
	*data = XLogRecGetData(reader) + begin + sizeof(*message);
	*len = total - begin - sizeof(*message);
	return message->version == PAQ_WAL_VERSION &&
		message->queue == restore->qf->header->created &&
		message->size <= PAQ_WAL_MAX_SIZE;
}

/* ----------
 * The ring
 * ----------
 */

/*
 * Where the last frame ends that the file itself knows of.  "reserved" is an old
 * value, perhaps, but it was true once.
 */
static void
find_end(Restore *restore)
{
	PaqQueueFile *qf = restore->qf;
	uint64		reserved = pg_atomic_read_u64(&qf->live->reserved);
	uint64		offset = 0;

	if (reserved <= PG_INT64_MAX)
		restore->end = reserved;
	while (offset < qf->ring_size)
	{
		uint64		pos = paq_frame_at_offset(qf, offset);

		if (pos == 0)
		{
			offset += PAQ_FRAME_ALIGN;
			continue;
		}
		offset += paq_frame_step(paq_frame_at(qf, pos));
		restore->end = Max(restore->end, pos + paq_frame_at(qf, pos)->size);
	}
}

/*
 * Is there a good frame of a later lap where one of that size belongs?  None is
 * longer than the ring's longest record.
 */
static bool
is_overwritten(PaqQueueFile *qf, uint64 pos, uint32 size)
{
	const uint64 longest = PAQ_FRAME_SIZE(paq_max_record(qf));
	uint64		at = pos > longest ? pos - longest : 0;

	while (at < pos + size)
	{
		uint64		found = paq_frame_at_offset(qf, at % qf->ring_size);
		uint64		step = PAQ_FRAME_ALIGN;

		if (found > at)
		{
			step = paq_frame_step(paq_frame_at(qf, found));
			if (at + step > pos)
				return true;
		}
		at += step;
	}
	return false;
}

/* Put a frame into the ring, unless it is there, or the trail has it. */
static void
put_frame(Restore *restore, uint64 pos, const char *record, uint32 length)
{
	PaqQueueFile *qf = restore->qf;
	const uint32 size = PAQ_FRAME_SIZE(length);
	PaqFrame   *frame = paq_frame_at(qf, pos);

	restore->end = Max(restore->end, pos + size);
	if (pos < restore->flushed || paq_frame_is_good(qf, pos, pos + qf->ring_size) ||
		(restore->end - pos > qf->ring_size && is_overwritten(qf, pos, size)))
		return;
	frame->size = size;
	frame->length = length;
	frame->kind = PAQ_FRAME_RECORD;
	memcpy(frame + 1, record, length);
	(void) PAQ_FAULT("restore-copied");
	frame->crc = paq_frame_crc(qf, pos, record, length);
	pg_atomic_write_u64(&frame->stamp, paq_frame_stamp(qf, pos));
	restore->frames++;
	(void) PAQ_FAULT("restore-frame");
}

/* All frames of a message; false if they are not what they should be. */
static bool
put_frames(Restore *restore, const char *contents, uint32 size)
{
	while (size > 0)
	{
		PaqWalFrame frame;

		if (size < PAQ_WAL_FRAME_SIZE)
			return false;
		memcpy(&frame, contents, PAQ_WAL_FRAME_SIZE);
		contents += PAQ_WAL_FRAME_SIZE;
		size -= PAQ_WAL_FRAME_SIZE;
		if (frame.length > size || frame.pos == 0 || frame.pos > PG_INT64_MAX ||
			frame.pos % PAQ_FRAME_ALIGN != 0 ||
			PAQ_FRAME_SIZE(frame.length) > restore->qf->ring_size)
			return false;
		put_frame(restore, frame.pos, contents, frame.length);
		contents += frame.length;
		size -= frame.length;
	}
	return true;
}

/* ----------
 * All of it
 * ----------
 */

/* Is the record read the sentinel of that note? */
static bool
is_sentinel(Restore *restore, XLogReaderState *reader, const PaqWalNote *note)
{
	PaqWalMessage message;
	const char *data;
	uint32		len;

	return is_ours(restore, reader, &message, &data, &len) &&
		message.kind == PAQ_WAL_SENTINEL && len == sizeof(note->number) &&
		memcmp(data, &note->number, len) == 0;
}

/*
 * Read WAL from the note's sentinel on.  Returns false if there is no such
 * sentinel, or if something behind it is missing or cannot be read.
 */
static bool
read_wal(Restore *restore, XLogReaderState *reader, const PaqWalNote *note,
		 char *contents)
{
	char	   *error;
	bool		all = true;

	XLogBeginRead(reader, note->lsn);
	if (XLogReadRecord(reader, &error) == NULL ||
		!is_sentinel(restore, reader, note))
		return false;
	while (XLogReadRecord(reader, &error) != NULL)
	{
		PaqWalMessage message;
		const char *data;
		uint32		len;

		if (!is_ours(restore, reader, &message, &data, &len) ||
			message.kind != PAQ_WAL_RECORDS)
			continue;
		if (!paq_wal_decompress(message.method, data, len, contents, message.size) ||
			!put_frames(restore, contents, message.size))
			all = false;
	}
	return all && !restore->missing;
}

/*
 * Put back what WAL has and the ring lacks.  Returns false if WAL is missing.
 * There may be errors, for lack of memory: then it counts as missing.
 */
static bool
restore_frames(PaqQueueFile *qf, const PaqWalNote *note)
{
	MemoryContext context = AllocSetContextCreate(CurrentMemoryContext,
												  "pg_audit_queue restore",
												  ALLOCSET_DEFAULT_SIZES);
	MemoryContext old_context = MemoryContextSwitchTo(context);
	Restore    *restore = palloc0(sizeof(Restore));
	PaqCheckpoint checkpoint;
	volatile bool whole = false;

	restore->qf = qf;
	restore->timeline = note->timeline;
	restore->fd = -1;
	if (paq_checkpoint_read(qf, &checkpoint))
		restore->flushed = Min(checkpoint.flushed, checkpoint.drained);
	find_end(restore);
	PG_TRY();
	{
		XLogReaderState *reader =
			XLogReaderAllocate(wal_segment_size, NULL,
							   XL_ROUTINE(.page_read = read_page,
										  .segment_close = close_nothing),
							   restore);

		if (reader != NULL)
		{
			reader->system_identifier = GetSystemIdentifier();
			whole = read_wal(restore, reader, note, palloc(PAQ_WAL_MAX_SIZE));
		}
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		EmitErrorReport();
		FlushErrorState();
	}
	PG_END_TRY();
	close_segment(restore);
	ereport(LOG,
			(errmsg_plural("restored %llu audit record from WAL",
						   "restored %llu audit records from WAL",
						   restore->frames,
						   (unsigned long long) restore->frames),
			 whole ? 0 : errdetail("WAL from %X/%X on is missing, or cannot be read.",
								   LSN_FORMAT_ARGS(note->lsn))));
	MemoryContextSwitchTo(old_context);
	MemoryContextDelete(context);
	return whole;
}

/*
 * qf is a file that the server has left, and the live one until now.  Make all
 * that its note says WAL is needed for durable in the file itself.
 */
void
paq_wal_restore(PaqQueueFile *qf)
{
	PaqCheckpoint checkpoint;
	PaqWalNote	note;

	if (!paq_wal_note_read(qf, &note) || note.lsn == InvalidXLogRecPtr)
		return;
	if (!paq_checkpoint_read(qf, &checkpoint) ||
		!paq_file_is_intact(qf, &checkpoint))
		note.lost = restore_frames(qf, &note) ? 0 : 1;
	(void) PAQ_FAULT("restore-done");
	if (!paq_file_sync(qf, qf->header->ring_offset + qf->ring_size))
		return;
	(void) PAQ_FAULT("restore-synced");
	note.number++;
	note.lsn = InvalidXLogRecPtr;
	(void) paq_wal_note_write(qf, &note);
}
