/*-------------------------------------------------------------------------
 *
 * depend.h
 *		Rows of pg_depend.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_DEPEND_H
#define PAQ_DEPEND_H

#include "nodes/pg_list.h"
#include "utils/snapshot.h"

/*
 * These return a palloc'ed list of the rows, Form_pg_depend each: those that say what the object
 * depends on, and those that say what depends on the object.  They read with the snapshot, or, if
 * that is NULL, with that for catalogs.
 */
extern List *paq_depends_on(Oid catalog, Oid object, Snapshot snapshot);
extern List *paq_dependents_of(Oid catalog, Oid object, Snapshot snapshot);

#endif							/* PAQ_DEPEND_H */
