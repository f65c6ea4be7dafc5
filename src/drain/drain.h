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

#include "datatype/timestamp.h"

/*
 * Register the background worker.  It calls tend whenever it is awake, which
 * returns when it has to be called next.
 */
extern void paq_drain_register(TimestampTz (*tend) (TimestampTz now));
extern void paq_drain_check_library(void);

#endif							/* PAQ_DRAIN_H */
