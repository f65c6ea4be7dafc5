/*-------------------------------------------------------------------------
 *
 * drain_internal.h
 *		What the worker's main loop and its batches share.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_DRAIN_INTERNAL_H
#define PAQ_DRAIN_INTERNAL_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "queue/queue.h"
#include "queue/reader.h"
#include "sink/sink.h"

/* The worker's state; private to the worker process. */
typedef struct PaqDrain
{
	const PaqSink *sink;
	PaqReader  *reader;
	PaqSinkState resume_state;	/* where to resume the sink */
	bool		resume_cut;		/* see sink.h */
	bool		resumed;		/* the sink stands where it should */
	bool		batch_open;		/* between begin_batch() and its end */
	uint64		gaps;			/* records in the batch that mark a gap */
	uint64		sequence;		/* of the last record in the trail */
	uint64		unflushed;		/* records written since the last flush */
	TimestampTz retry_at;		/* do not touch the sink before; 0: it works */
	int			retry_delay;	/* ms, grows while the sink fails */
} PaqDrain;

/* batch.c */
extern void paq_drain_open(PaqDrain *drain);
extern bool paq_drain_cycle(PaqDrain *drain, bool rotate);
extern void paq_drain_failed(PaqDrain *drain, const char *message);
extern void paq_drain_abandon(PaqDrain *drain);

#endif							/* PAQ_DRAIN_INTERNAL_H */
