/*-------------------------------------------------------------------------
 *
 * startup.h
 *		Bringing the queue up when the server starts: for the door only.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_STARTUP_H
#define PAQ_STARTUP_H

#include "postgres.h"

/* startup.c */
extern Size paq_queue_shmem_size(void);
extern void paq_queue_startup(void);

/* directory.c */
extern void paq_directory_open(void);
extern void paq_directory_keep_backlog(const char *path);

#endif							/* PAQ_STARTUP_H */
