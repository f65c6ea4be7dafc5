/*-------------------------------------------------------------------------
 *
 * load.h
 *		The loader, as the rest of the extension sees it.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_LOAD_H
#define PAQ_LOAD_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern void paq_load_init(void);
extern TimestampTz paq_load_tend(TimestampTz now);

#endif							/* PAQ_LOAD_H */
