/*-------------------------------------------------------------------------
 *
 * capture.h
 *		What the rest of the extension calls in this room.
 *
 * Everything else here runs by itself, from PostgreSQL's hooks.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_CAPTURE_H
#define PAQ_CAPTURE_H

/*
 * Install all hooks and callbacks, keeping those that are there already.
 * Call once, from _PG_init(), while shared_preload_libraries is processed.
 */
extern void paq_capture_init(void);

/*
 * config.c: record, whatever the settings are, that the session is about to do that to a
 * consumer of the trail: CREATE CONSUMER, DROP CONSUMER.
 */
extern void paq_record_consumer(const char *command, const char *name);

#endif							/* PAQ_CAPTURE_H */
