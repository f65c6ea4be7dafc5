/*-------------------------------------------------------------------------
 *
 * drain_internal.h
 *		Moving records from the queue to the sink (batch.c), as the processes
 *		see it that do so (worker.c).
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
#include "stats.h"

/* State of the process that drains the queue */
typedef struct PaqDrain
{
	PaqReader  *reader;
	PaqSinkState resume_state;	/* where to resume the sink */
	bool		resume_exact;	/* see sink.h */
	bool		resumed;		/* the sink stands where it should */
	bool		batch_open;		/* between begin_batch() and its end */
	uint64		batch_records;	/* records in the batch, and of them those */
	uint64		gaps;			/* that mark a gap */
	uint64		batch_sequences;	/* that it takes: a long record has several */
	uint64		batch_kinds[PAQ_NKINDS];	/* by class */
	bool		put_off;		/* a new file was asked for, in vain */
	uint64		sequence;		/* of the last record in the trail */
	uint64		unflushed;		/* records written since the last flush */
	TimestampTz retry_at;		/* do not touch the sink before; 0: it works */
	int			retry_delay;	/* ms, grows while the sink fails */
	TimestampTz shutdown_since; /* when shutdown was asked for; 0: it was not */
} PaqDrain;

/* batch.c */
extern void paq_drain_open(PaqDrain *drain);
extern bool paq_drain_cycle(PaqDrain *drain, bool rotate);
extern bool paq_drain_seal(PaqDrain *drain, PaqSealReason reason);
extern void paq_drain_failed(PaqDrain *drain, const char *message);
extern void paq_drain_abandon(PaqDrain *drain);
extern void paq_drain_close(PaqDrain *drain);
extern void paq_drain_secure(PaqDrain *drain);
extern bool paq_drain_must_stop(PaqDrain *drain);

#endif							/* PAQ_DRAIN_INTERNAL_H */
