/*-------------------------------------------------------------------------
 *
 * drain.h
 *		The worker: registration, for the door.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_DRAIN_H
#define PAQ_DRAIN_H

#include "postgres.h"

#include "sink/sink.h"

/* Register the background worker, which will write to this sink. */
extern void paq_drain_register(const PaqSink *(*sink) (void));

#endif							/* PAQ_DRAIN_H */
