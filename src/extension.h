/*-------------------------------------------------------------------------
 *
 * extension.h
 *		What the extension has made in a database, and what commands may change of it.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_EXTENSION_H
#define PAQ_EXTENSION_H

#include "nodes/parsenodes.h"
#include "nodes/pg_list.h"

/*
 * Returns the objects that belong to the extension pg_audit_queue in this database, a palloc'ed
 * list of ObjectAddress; NIL where the extension has not been created.
 */
extern List *paq_extension_members(void);

/*
 * Returns the relations that ALTER TABLE names, a list of RangeVar: the table, and what becomes,
 * or was, its parent or its partition.
 */
extern List *paq_tables_of_alter(const AlterTableStmt *stmt);

#endif							/* PAQ_EXTENSION_H */
