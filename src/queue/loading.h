/*-------------------------------------------------------------------------
 *
 * loading.h
 *		How far the table has got: between the loader, the worker and the
 *		sessions that wait.
 *
 * See wait.c.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_LOADING_H
#define PAQ_LOADING_H

#include "postgres.h"

/* for the loader */
extern bool paq_loading_attach(void);
extern uint64 paq_loading_limit(uint64 *pos);
extern bool paq_loading_reached(uint64 pos, bool awaited);
extern void paq_loading_lags(void);
extern bool paq_loading_failed(void);
extern uint64 paq_loading_settled(void);

/* for the worker, and for statistics */
extern int	paq_loading_loader_pid(void);
extern bool paq_loading_is_failing(void);
extern void paq_loading_settle(uint64 sequence);

#endif							/* PAQ_LOADING_H */
