/*-------------------------------------------------------------------------
 *
 * extension.h
 *		What the extension has made in this database.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_EXTENSION_H
#define PAQ_EXTENSION_H

#include "nodes/pg_list.h"

/*
 * Returns the objects that belong to the extension pg_audit_queue in this database, a palloc'ed
 * list of ObjectAddress; NIL where the extension has not been created.
 */
extern List *paq_extension_members(void);

#endif							/* PAQ_EXTENSION_H */
