/*-------------------------------------------------------------------------
 *
 * depend.c
 *		Rows of pg_depend.
 *
 * Must not raise, except for what catalog lookups may.
 *
 * Locking: AccessShareLock on pg_depend while it is read.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/pg_depend.h"
#include "depend.h"
#include "utils/fmgroids.h"

/* The rows that have the object in these columns, by the index of that name */
static List *
read_rows(Oid index, AttrNumber catalog_column, Oid catalog, AttrNumber object_column,
		  Oid object, Snapshot snapshot)
{
	Relation	depend = table_open(DependRelationId, AccessShareLock);
	List	   *rows = NIL;
	ScanKeyData key[2];
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key[0], catalog_column, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(catalog));
	ScanKeyInit(&key[1], object_column, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(object));
	scan = systable_beginscan(depend, index, true, snapshot, lengthof(key), key);
	while (HeapTupleIsValid(tuple = systable_getnext(scan)))
	{
		Form_pg_depend row = palloc(sizeof(FormData_pg_depend));

		*row = *(Form_pg_depend) GETSTRUCT(tuple);
		rows = lappend(rows, row);
	}
	systable_endscan(scan);
	table_close(depend, AccessShareLock);
	return rows;
}

List *
paq_depends_on(Oid catalog, Oid object, Snapshot snapshot)
{
	return read_rows(DependDependerIndexId, Anum_pg_depend_classid, catalog,
					 Anum_pg_depend_objid, object, snapshot);
}

List *
paq_dependents_of(Oid catalog, Oid object, Snapshot snapshot)
{
	return read_rows(DependReferenceIndexId, Anum_pg_depend_refclassid, catalog,
					 Anum_pg_depend_refobjid, object, snapshot);
}
