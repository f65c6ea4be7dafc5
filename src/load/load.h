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
#include "nodes/pg_list.h"

extern void paq_load_init(void);
extern TimestampTz paq_load_tend(TimestampTz now);

/* The table, in any database */
extern bool paq_table_make(void);
extern bool paq_table_drop(void);
extern List *paq_table_publications(void);

/* What commands need in any database */
extern bool paq_is_superusers(Oid catalog, Oid object);
extern void paq_run_command(const char *command);
extern void paq_use_own_names(void);

#endif							/* PAQ_LOAD_H */
