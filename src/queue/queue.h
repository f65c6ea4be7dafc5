/*-------------------------------------------------------------------------
 *
 * queue.h
 *		The queue as those who put records into it see it.
 *
 * A record lives in the backend's pending area from paq_pending_create() on,
 * where recovery finds it if the server dies; paq_pending_publish() moves it
 * into the queue.  Positions are uint64 byte offsets into the endless stream
 * of the queue; 0 is no position.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_QUEUE_H
#define PAQ_QUEUE_H

#include "postgres.h"

#include "guc.h"
#include "lib/ilist.h"
#include "port/pg_crc32c.h"
#include "record/record.h"
#include "stats.h"

/*
 * A record that waits for its outcome.  Its header may be written to until the
 * record is published or freed.
 */
typedef struct PaqPending
{
	/* the caller's */
	dlist_node	node;			/* of a list of records, from which publishing
								 * or freeing removes it; next is NULL if it is
								 * in no list */
	bool		late_ids;		/* ids and client's copy are still to come */
	bool		has_rows;		/* shows the rows of its statement */
	bool		is_call;		/* of a function that its statement calls */
	void	   *choice;			/* NULL: it is certain that it is wanted */
	int			mode;			/* PaqMode; -1: as the settings say */

	/* the queue's, see pending.c */
	bool		must_keep;		/* set by the caller: "drop" does not drop it */
	bool		done;			/* the entry is free, but not yet taken back */
	dlist_node	slot_node;		/* in paq_producer.entries or .unused */
	struct PaqSlotEntry *entry; /* in the slot, or NULL */
	char	   *record;			/* the encoded record */
	char	   *local;			/* its memory, if it is not in the slot; "entry"
								 * then stands for it */
	pg_crc32c	crc;			/* paq_fields_crc() of record */
} PaqPending;

/* A session's space policy: what to do when the queue has no space for a record */
typedef enum PaqSpaceWait
{
	PAQ_SPACE_WAIT,				/* do as the overflow setting says; may raise
								 * an error, its own or that of a cancel or
								 * terminate request, the record then stays
								 * pending */
	PAQ_SPACE_NOWAIT,			/* use the reserve, never wait or raise */
	PAQ_SPACE_KEEP				/* likewise; the record stays pending even
								 * where the setting is "drop" */
} PaqSpaceWait;

/* In place of a position: the record was dropped, as the setting says */
#define PAQ_POS_DROPPED		1

/* startup.c */
extern Size paq_queue_shmem_size(void);
extern void paq_queue_startup(void);
extern bool paq_queue_available(void);

/* pending.c */
extern PaqPending *paq_pending_replace(PaqPending *replaced,
									   const PaqRecordHeader *header,
									   const PaqSessionBlock *session,
									   const PaqText *statement,
									   bool first);
extern void paq_pending_keep(PaqPending *pending);
extern void paq_pending_add_message(PaqPending *pending, const char *message,
									uint32 max);
/* What is in a pending record, to be changed; see paq_pending_open() */
typedef struct PaqContents
{
	PaqRecord	record;
	char	   *copy;			/* memory of its fields */
	char	   *spill;			/* its spill file, mapped, NULL: it has none */
	Size		spill_size;
} PaqContents;

extern bool paq_pending_open(PaqPending *pending, PaqContents *contents);
extern PaqPending *paq_pending_rewrite(PaqPending *pending, PaqContents *contents);
extern uint64 paq_pending_publish(PaqPending *pending, PaqSpaceWait wait);
extern void paq_pending_free(PaqPending *pending);
extern void paq_pending_init_header(PaqRecordHeader *header, PaqClass class,
									uint32 flags, TimestampTz start_time);
extern PaqPending *paq_own_record(const char *process, const char *database,
								  const PaqText *texts, int sqlstate,
								  int64 rows);

static inline PaqPending *
paq_pending_create(const PaqRecordHeader *header,
				   const PaqSessionBlock *session, const PaqText *statement,
				   bool first)
{
	return paq_pending_replace(NULL, header, session, statement, first);
}

/*
 * Why the text of a record could not be kept, an errno; 0: there was no such
 * record since this was last set to 0.
 */
extern int	paq_text_errno;

/* overflow.c */
extern void paq_queue_note_drop(PaqDropReason reason, uint32 count);
extern void paq_queue_refuse_if_full(void);
extern void paq_queue_refuse_cut(void);

/*
 * In single-user mode: write all that is in the queue to the trail; returns
 * whether that could be done.  May raise an error.  NULL in any other process.
 */
extern bool (*paq_queue_drain_alone) (void);

/* ring.c */
extern uint64 paq_queue_end(void);
extern uint64 paq_queue_used(void);
extern bool paq_queue_is_empty(void);
extern bool paq_queue_has_skip(void);
extern uint64 paq_queue_capacity(void);

/* wal.c */
extern void paq_wal_note(uint64 end, uint32 length, bool spilled);
extern bool paq_wal_replaces_wait(uint64 pos);
extern void paq_wal_end(bool committed);

/* wait.c */
typedef enum PaqWait
{
	PAQ_WAIT_FLUSH,
	PAQ_WAIT_SPACE,
	PAQ_WAIT_ROTATION,
	PAQ_WAIT_SEAL,
	PAQ_WAIT_TABLE,
	PAQ_WAIT_WORKER_MAIN,
	PAQ_WAIT_LOADER_MAIN,
	PAQ_NWAITS
} PaqWait;

extern uint32 paq_wait_event(PaqWait wait);
extern bool paq_queue_is_flushed(uint64 pos);
extern void paq_queue_request_flush(uint64 pos);
extern void paq_queue_wait_flushed(uint64 pos);
extern uint64 paq_queue_flushed_sequence(void);

/* What a session can ask the worker for, and wait for */
typedef enum PaqRequest
{
	PAQ_REQUEST_ROTATE,			/* a new file */
	PAQ_REQUEST_SEAL,			/* a seal */
	PAQ_REQUEST_REPORT,			/* a flush, be there records for it or not */
	PAQ_NREQUESTS
} PaqRequest;

extern bool paq_queue_request(PaqRequest what);
extern void paq_queue_wait_reported(void);

/* The header of a pending record, to note what has become known since. */
static inline PaqRecordHeader *
paq_pending_header(PaqPending *pending)
{
	return (PaqRecordHeader *) pending->record;
}

/* Remove the record from the list it is in, if any. */
static inline void
paq_pending_unlink(PaqPending *pending)
{
	if (pending->node.next == NULL)
		return;
	dlist_delete(&pending->node);
	pending->node.next = NULL;
}

/*
 * If the text of a record could not be kept, because no spill file could be
 * written, raise an error, unless the overflow setting is "drop".
 */
static inline void
paq_queue_admit_text(void)
{
	if (unlikely(paq_text_errno != 0))
		paq_queue_refuse_cut();
}

/*
 * To be called before a statement is executed that will be recorded.  If the
 * queue stays full, or the statement's text could not be kept, raise an error
 * or wait for the shutdown, as the overflow setting says.  What cannot be
 * rolled back is then not done at all.
 */
static inline void
paq_queue_admit(void)
{
	paq_queue_admit_text();
	if (unlikely(paq_overflow >= PAQ_OVERFLOW_ERROR))
		paq_queue_refuse_if_full();
}

#endif							/* PAQ_QUEUE_H */
