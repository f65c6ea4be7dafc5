/*-------------------------------------------------------------------------
 *
 * drain_internal.h
 *		What the worker's main loop, its batches and its own records share.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_DRAIN_INTERNAL_H
#define PAQ_DRAIN_INTERNAL_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "guc.h"
#include "queue/queue.h"
#include "queue/reader.h"
#include "sink/sink.h"

/* Of the process, as pg_stat_activity shows it */
#define PAQ_WORKER_NAME		"pg_audit_queue worker"

/* The worker's state; private to the worker process. */
typedef struct PaqDrain
{
	const PaqSink *sink;
	PaqReader  *reader;
	PaqSinkState resume_state;	/* where to resume the sink */
	bool		resume_exact;	/* see sink.h */
	bool		resumed;		/* the sink stands where it should */
	bool		batch_open;		/* between begin_batch() and its end */
	uint64		batch_records;	/* records in the batch, and of them those */
	uint64		gaps;			/* that mark a gap */
	bool		put_off;		/* a new file was asked for, in vain */
	uint64		sequence;		/* of the last record in the trail */
	uint64		unflushed;		/* records written since the last flush */
	PaqRemoval	removal;		/* planned, see retain.c; count 0: none */
	bool		removal_made;	/* there is a record of it */
	uint64		removal_end;	/* which ends before this position; 0: unknown */
	TimestampTz retry_at;		/* do not touch the sink before; 0: it works */
	int			retry_delay;	/* ms, grows while the sink fails */
} PaqDrain;

/* batch.c */
extern void paq_drain_open(PaqDrain *drain);
extern bool paq_drain_cycle(PaqDrain *drain, bool rotate);
extern void paq_drain_failed(PaqDrain *drain, const char *message);
extern void paq_drain_abandon(PaqDrain *drain);
extern void paq_drain_close(PaqDrain *drain);
extern void paq_drain_secure(PaqDrain *drain);

/* retain.c */
extern bool paq_drain_retain(PaqDrain *drain);

/* worker.c */
extern bool paq_drain_must_stop(void);

/* alone.c */
extern void paq_drain_alone_init(const PaqSink *(*sink) (void));

/* event.c */
extern void paq_event_record(const char *command,
							 const PaqSettingChange *change, int sqlstate);
extern void paq_event_setting(const PaqSettingChange *change);
extern bool paq_event_removal(const PaqRemoval *removal);
extern void paq_event_send(void);
extern bool paq_event_all_sent(void);
extern void paq_event_give_up(void);

#endif							/* PAQ_DRAIN_INTERNAL_H */
