/*-------------------------------------------------------------------------
 *
 * backlog.c
 *		Reading a queue file that an earlier run of the server left.
 *
 * Nobody writes to it any more.  All good frames from the place on up to which
 * the trail is known to be complete are handed out in their order; then, from
 * the pending slots, what the crash interrupted.  Room between frames that no
 * dying process explains held records that are lost, and makes a gap, as does
 * a crash of the operating system, after which nobody knows what there was.
 *
 * Guarantees: whatever the content of the file, every good frame is found,
 * and nothing else is taken for one.
 *
 * Locking: none; the worker is the only reader.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "guc.h"
#include "queue/reader_internal.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * Number of the oldest backlog file that is newer than the one called after;
 * 0 if there is none.
 */
uint32
paq_backlog_find(uint32 after)
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

/* The file with that number cannot be used: remember to say so. */
static void
note_unusable(PaqReader *reader, const char *path, const char *reason)
{
	MemoryContext oldcontext = MemoryContextSwitchTo(TopMemoryContext);
	PaqUnusable *unusable = palloc(sizeof(PaqUnusable));
	struct stat st;

	unusable->number = reader->number;
	unusable->reason = pstrdup(reason);
	reader->unusable = lappend(reader->unusable, unusable);
	MemoryContextSwitchTo(oldcontext);
	reader->lost_bytes += lstat(path, &st) == 0 ? Max(st.st_size, 1) : 1;
	reader->lost = true;
	ereport(LOG,
			(errmsg("audit queue file \"%s\" cannot be used", path),
			 errdetail("%s", reason)));
}

/*
 * The trail says, durably, what cannot be used: set it aside.  Not before, or a
 * worker that died in between would leave nothing but the server's log to tell
 * of it.
 */
void
paq_backlog_set_aside(PaqReader *reader)
{
	ListCell   *lc;

	foreach(lc, reader->unusable)
	{
		PaqUnusable *unusable = lfirst(lc);
		char		path[MAXPGPATH];

		paq_backlog_path(path, unusable->number);
		paq_file_set_aside(path, unusable->reason, LOG);
		pfree(unusable->reason);
	}
	list_free_deep(reader->unusable);
	reader->unusable = NIL;
}

/*
 * Map the backlog file that reader->number says.  One that cannot be used will
 * be set aside when the reader has reported that records are missing.
 */
bool
paq_backlog_open(PaqReader *reader)
{
	char		path[MAXPGPATH];
	char	   *reason;

	paq_backlog_path(path, reader->number);
	if (paq_file_open(path, &reader->backlog, &reason))
	{
		if (!reader->backlog.foreign)
			return true;
		paq_file_close(&reader->backlog);
		reason = "It belongs to another server, or was copied.";
	}
	if (reason == NULL)
		return false;			/* it is gone */
	note_unusable(reader, path, reason);
	return false;
}

void
paq_backlog_remove(uint32 number)
{
	char		path[MAXPGPATH];

	paq_backlog_path(path, number);
	(void) durable_unlink(path, LOG);
}

/* Which room from the cursor on is that of processes which were killed? */
static void
explain_rooms(PaqReader *reader)
{
	uint64		reserved = pg_atomic_read_u64(&reader->qf->live->reserved);
	uint64		pos = reader->cursor;

	if (reader->rooms == NULL)
		reader->rooms = paq_reader_alloc((reader->nframes + 1) * sizeof(PaqRoom));
	for (uint32 i = reader->next_frame; i < reader->nframes; i++)
	{
		reader->rooms[i].from = pos;
		reader->rooms[i].to = reader->frames[i];
		pos = reader->frames[i] + paq_frame_at(reader->qf, reader->frames[i])->size;
	}
	reader->rooms[reader->nframes].from = pos;
	reader->rooms[reader->nframes].to = Max(pos, reserved);
	paq_writers_explain(reader->qf, &reader->rooms[reader->next_frame],
						reader->nframes - reader->next_frame + 1);
	reader->rooms_from = reader->cursor;
}

/* The cursor was moved. */
void
paq_backlog_seek(PaqReader *reader)
{
	reader->next_frame = 0;
	while (reader->next_frame < reader->nframes &&
		   reader->frames[reader->next_frame] < reader->cursor)
		reader->next_frame++;
	if (reader->bounded &&
		(reader->rooms == NULL || reader->cursor < reader->rooms_from))
		explain_rooms(reader);
}

/* Where the last good frame ends; 0 if there is none. */
uint64
paq_backlog_end(PaqReader *reader)
{
	uint64		last;

	if (reader->nframes == 0)
		return 0;
	last = reader->frames[reader->nframes - 1];
	return last + paq_frame_at(reader->qf, last)->size;
}

/* How many records will still come out of it? */
uint64
paq_backlog_ahead(PaqReader *reader)
{
	return reader->nframes - reader->next_frame + paq_slots_count(reader);
}

/* When did what the good frame at pos says happen? */
static TimestampTz
frame_time(PaqQueueFile *qf, uint64 pos)
{
	PaqFrame   *frame = paq_frame_at(qf, pos);
	const PaqRecordHeader *header = (PaqRecordHeader *) (frame + 1);

	if (frame->length < sizeof(PaqRecordHeader))
		return 0;
	return header->end_time != 0 ? header->end_time : header->start_time;
}

/* Is everything there from the cursor on? */
static bool
is_whole(PaqReader *reader)
{
	for (uint32 i = reader->next_frame; i < reader->nframes; i++)
	{
		PaqFrame   *frame = paq_frame_at(reader->qf, reader->frames[i]);

		if (!reader->rooms[i].explained ||
			!paq_spilled_is_there((char *) (frame + 1), frame->length))
			return false;
	}
	return reader->rooms[reader->nframes].explained;
}

/*
 * Find what there is, and stand at the cursor.  paq_reader_retreat() may go
 * back from there as far as "flushed".
 *
 * If something is damaged, the trail may have it: what was being written to the
 * trail must not be cut off then.
 */
void
paq_backlog_start(PaqReader *reader)
{
	reader->frames = paq_frames_find(reader->qf, reader->flushed,
									 &reader->nframes);
	paq_backlog_seek(reader);
	if (reader->trusted && !is_whole(reader))
		paq_reader_go_back(reader);
}

/*
 * Step over the room before the next frame, which is at "to" or not there at
 * all.  Returns whether that has to be reported, with *gap filled in.
 */
static bool
skip_room(PaqReader *reader, uint64 to, PaqGap *gap)
{
	uint64		bytes = to - reader->cursor;

	reader->cursor = to;
	if (reader->bounded && reader->rooms[reader->next_frame].explained)
		return false;
	gap->room = true;
	gap->from = reader->last_time;
	gap->to = reader->next_frame < reader->nframes ?
		frame_time(reader->qf, to) : PgStartTime;
	gap->count = -1;
	snprintf(gap->message, sizeof(gap->message),
			 "%llu bytes of the audit queue are damaged or missing; the records in them are lost unless they are in the trail already",
			 (unsigned long long) bytes);
	return true;
}

/* Next record of the ring, or a gap. */
static PaqReadResult
next_in_ring(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	PaqQueueFile *qf = reader->qf;

	while (reader->next_frame < reader->nframes)
	{
		uint64		pos = reader->frames[reader->next_frame];
		PaqFrame   *frame = paq_frame_at(qf, pos);

		if (pos > reader->cursor && skip_room(reader, pos, gap))
			return PAQ_READ_GAP;
		reader->cursor = pos + frame->size;
		reader->next_frame++;
		if (paq_reader_decode(reader, (char *) (frame + 1), frame->length, record))
			return PAQ_READ_RECORD;
		gap->from = reader->last_time;
		gap->to = frame_time(qf, pos);
		gap->count = 1;
		strlcpy(gap->message, "a record of another version is lost",
				sizeof(gap->message));
		return PAQ_READ_GAP;
	}

	/* Or else the end of the records is not known. */
	if (reader->bounded)
	{
		uint64		end = pg_atomic_read_u64(&qf->live->reserved);

		if (end > reader->cursor && skip_room(reader, end, gap))
			return PAQ_READ_GAP;
	}
	return PAQ_READ_END;
}

/*
 * If the end of the records is not known: what came after the last thing that
 * is left, nobody knows of.
 */
static PaqReadResult
last_gap(PaqReader *reader, PaqGap *gap)
{
	uint64		end = (uint64) reader->qf->header->nslots * PAQ_SLOT_SIZE;

	if ((reader->bounded && reader->intact) || reader->slot_cursor > end)
		return PAQ_READ_END;
	reader->slot_cursor = end + 1;
	gap->from = reader->last_time;
	gap->to = PgStartTime;
	gap->count = -1;
	strlcpy(gap->message, reader->intact ?
			"the positions in the queue file are damaged, or it is an old copy; records may be lost" :
			"the operating system was restarted while the server was running; records that were not yet durable may be lost",
			sizeof(gap->message));
	return PAQ_READ_GAP;
}

/* Next record of the file, or a gap. */
PaqReadResult
paq_backlog_next(PaqReader *reader, PaqRecord *record, PaqGap *gap)
{
	PaqReadResult result = next_in_ring(reader, record, gap);

	if (result == PAQ_READ_END)
		result = paq_slots_next(reader, record, gap);
	if (result == PAQ_READ_END)
		result = last_gap(reader, gap);
	return result;
}
