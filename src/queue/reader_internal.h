/*-------------------------------------------------------------------------
 *
 * reader_internal.h
 *		What the files of the consumer's side share.
 *
 *	reader.c	the cursor, checkpoints, going from file to file
 *	live.c		reading the file that backends write to
 *	backlog.c	reading a file that nobody writes to any more
 *	slots.c		its pending slots
 *	frames.c	is this a frame, and where are frames?
 *	spilled.c	texts in spill files
 *
 * Private to the worker, so nothing here is shared or locked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_READER_INTERNAL_H
#define PAQ_READER_INTERNAL_H

#include "postgres.h"

#include "nodes/pg_list.h"
#include "queue/queue_internal.h"

/* A backlog file that is to be set aside */
typedef struct PaqUnusable
{
	uint32		number;			/* see paq_backlog_path() */
	char	   *reason;
} PaqUnusable;

struct PaqReader
{
	PaqQueueFile *qf;			/* &backlog or &paq_live */
	PaqQueueFile backlog;
	uint32		number;			/* of backlog, see paq_backlog_path() */
	bool		trusted;		/* see judge.c */
	bool		bounded;		/* the positions are right: they say where the
								 * records end */
	bool		reported;		/* of the live file: that the one before it could
								 * not be used has been reported */
	bool		intact;			/* see paq_file_is_intact() */

	uint64		cursor;			/* next frame */
	uint64		slot_cursor;	/* next entry: byte offset in the slots' area;
								 * one more than its size when everything has
								 * been handed out */
	uint64		drained;		/* as of the last checkpoint */
	uint64		drained_slots;
	uint64		flushed;		/* as of the last paq_reader_flushed() */
	uint64		flushed_slots;
	uint64		drops_read[PAQ_NDROPS]; /* dropped records handed out so far */
	uint64		drops_drained[PAQ_NDROPS];
	uint64		drops_flushed[PAQ_NDROPS];
	uint64		synced;			/* "flushed" when the checkpoint was last synced */
	bool		lost;			/* there were files that could not be used, or
								 * ought to be; false once the trail says so,
								 * durably */
	uint64		lost_bytes;		/* of those that there were */
	List	   *unusable;		/* these, PaqUnusable; until that is durable, too */
	bool		lost_read;		/* reported */
	bool		lost_drained;	/* as of the last checkpoint */
	TimestampTz last_time;		/* of the last record read, 0 if none */
	uint64		busy_at;		/* the live file's last position at which a frame
								 * was not committed yet; 0 if there was none */
	TimestampTz busy_since;

	uint64	   *frames;			/* positions of backlog's frames, in order */
	uint32		nframes;
	uint32		next_frame;		/* index of the one at the cursor or behind */
	PaqRoom    *rooms;			/* if bounded, room before each frame and behind
								 * the last, from rooms_from on */
	uint64		rooms_from;

	void	   *spill;			/* spill file of the current record, mapped */
	Size		spill_size;
	List	   *spills_read;	/* names of spill files read since the last
								 * checkpoint */
	List	   *spills_drained; /* names of those before, not yet removed */
};

/* frames.c */
extern void *paq_reader_alloc(Size size);
extern uint64 *paq_frames_find(PaqQueueFile *qf, uint64 lower, uint32 *count);

/* slots.c */
extern PaqReadResult paq_slots_next(PaqReader *reader, PaqRecord *record,
									PaqGap *gap);
extern uint64 paq_slots_count(PaqReader *reader);
extern void paq_slots_take_back(PaqQueueFile *qf, uint64 from, uint64 to);

/* live.c */
extern PaqReadResult paq_live_next(PaqReader *reader, PaqRecord *record,
								   PaqGap *gap);
extern uint64 paq_live_ahead(PaqReader *reader);

/* backlog.c */
extern uint32 paq_backlog_find(uint32 after);
extern bool paq_backlog_open(PaqReader *reader);
extern void paq_backlog_set_aside(PaqReader *reader);
extern void paq_backlog_remove(uint32 number);
extern void paq_backlog_start(PaqReader *reader);
extern void paq_backlog_seek(PaqReader *reader);
extern uint64 paq_backlog_end(PaqReader *reader);
extern uint64 paq_backlog_ahead(PaqReader *reader);
extern PaqReadResult paq_backlog_next(PaqReader *reader, PaqRecord *record,
									  PaqGap *gap);

/* spilled.c */
extern void paq_spilled_open(PaqReader *reader, PaqText name);
extern bool paq_spilled_is_there(const char *data, uint32 len);
extern void paq_spilled_check(PaqReader *reader, PaqRecord *record);
extern void paq_spilled_close(PaqReader *reader);
extern void paq_spilled_collect(PaqReader *reader);
extern void paq_spilled_remove(PaqReader *reader);

/* reader.c */
extern void paq_reader_go_back(PaqReader *reader);
extern bool paq_reader_decode(PaqReader *reader, const char *data, uint32 len,
							  PaqRecord *record);

#endif							/* PAQ_READER_INTERNAL_H */
