/*-------------------------------------------------------------------------
 *
 * belongs.c
 *		The relations that an object of the catalog is, or belongs to.
 *
 * An index, a TOAST table, an owned sequence, a constraint, a trigger, a policy, a rule, a
 * default, extended statistics, and an entry of a publication belong to a relation: whoever
 * uses or changes them does so with the relation.  pg_depend says so by its types internal,
 * auto and partition, which lead from an object to what it goes away with.  Three things it
 * does not say: the table of an index whose constraint stands between them, the table of a
 * trigger that PostgreSQL has made for a foreign key, and that a foreign key belongs to the
 * table it refers to, too.
 *
 * A partition or child belongs to nothing here: match.c knows families.
 *
 * Must not raise, except for what catalog lookups may.
 *
 * Locking: AccessShareLock on the catalogs that are read, none on the objects.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/stratnum.h"
#include "access/table.h"
#include "catalog/dependency.h"
#include "catalog/index.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "depend.h"
#include "policy/policy.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* Objects that are followed at most: nothing belongs to more than a few. */
#define MAX_FOLLOWED	64

/* A list of ObjectAddress with the object, if it was not there */
static List *
add_object(List *objects, Oid catalog, Oid object)
{
	ObjectAddress *address;
	ListCell   *lc;

	foreach(lc, objects)
	{
		address = lfirst(lc);
		if (address->objectId == object && address->classId == catalog)
			return objects;
	}
	address = palloc(sizeof(ObjectAddress));
	ObjectAddressSet(*address, catalog, object);
	return lappend(objects, address);
}

/* Add what the object belongs to, in the sense of pg_depend. */
static List *
add_owners(List *objects, const ObjectAddress *object, Snapshot snapshot)
{
	List	   *rows = paq_depends_on(object->classId, object->objectId, snapshot);
	ListCell   *lc;

	foreach(lc, rows)
	{
		const Form_pg_depend row = lfirst(lc);

		if (row->deptype == DEPENDENCY_INTERNAL || row->deptype == DEPENDENCY_AUTO ||
			row->deptype == DEPENDENCY_PARTITION_PRI ||
			row->deptype == DEPENDENCY_PARTITION_SEC)
			objects = add_object(objects, row->refclassid, row->refobjid);
	}
	list_free_deep(rows);
	return objects;
}

/* The table of a trigger; invalid if there is no such trigger */
static Oid
table_of_trigger(Oid trigger, Snapshot snapshot)
{
	Relation	catalog = table_open(TriggerRelationId, AccessShareLock);
	Oid			table = InvalidOid;
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	tuple;

	ScanKeyInit(&key, Anum_pg_trigger_oid, BTEqualStrategyNumber, F_OIDEQ,
				ObjectIdGetDatum(trigger));
	scan = systable_beginscan(catalog, TriggerOidIndexId, true, snapshot, 1, &key);
	tuple = systable_getnext(scan);
	if (HeapTupleIsValid(tuple))
		table = ((Form_pg_trigger) GETSTRUCT(tuple))->tgrelid;
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	return table;
}

/* The table that a foreign key refers to; invalid if the constraint is none */
static Oid
table_of_key(Oid constraint)
{
	HeapTuple	tuple = SearchSysCache1(CONSTROID, ObjectIdGetDatum(constraint));
	Oid			table = InvalidOid;

	if (!HeapTupleIsValid(tuple))
		return InvalidOid;
	if (((Form_pg_constraint) GETSTRUCT(tuple))->contype == CONSTRAINT_FOREIGN)
		table = ((Form_pg_constraint) GETSTRUCT(tuple))->confrelid;
	ReleaseSysCache(tuple);
	return table;
}

/*
 * Returns the OIDs of the relations that the object is, first of all, or belongs to, directly
 * or not.  snapshot is what the catalogs are read with, NULL for what the transaction sees; a
 * statement that is making the object needs SnapshotSelf.
 */
List *
paq_relations_of(Oid catalog, Oid object, Snapshot snapshot)
{
	List	   *objects = add_object(NIL, catalog, object);
	List	   *relations = NIL;

	for (int i = 0; i < Min(list_length(objects), MAX_FOLLOWED); i++)
	{
		const ObjectAddress *address = list_nth(objects, i);
		Oid			table = InvalidOid;

		if (address->classId == RelationRelationId)
		{
			const char	relkind = get_rel_relkind(address->objectId);

			relations = lappend_oid(relations, address->objectId);

			/* Tables and views belong to nothing, but to what they are partitions of. */
			if (relkind == RELKIND_RELATION || relkind == RELKIND_PARTITIONED_TABLE ||
				relkind == RELKIND_FOREIGN_TABLE || relkind == RELKIND_VIEW ||
				relkind == RELKIND_MATVIEW)
				continue;
			if (relkind == RELKIND_INDEX || relkind == RELKIND_PARTITIONED_INDEX)
				table = IndexGetRelation(address->objectId, true);
		}
		else if (address->classId == TriggerRelationId)
			table = table_of_trigger(address->objectId, snapshot);
		else if (address->classId == ConstraintRelationId)
			table = table_of_key(address->objectId);
		if (OidIsValid(table))
			objects = add_object(objects, RelationRelationId, table);
		objects = add_owners(objects, address, snapshot);
	}
	list_free_deep(objects);
	return relations;
}

/*
 * Returns the OIDs of the relations that have a column of the type, or of one that is made of
 * it: a domain over it, an array, a range, a composite type.
 */
List *
paq_relations_with_type(Oid type)
{
	List	   *types = list_make1_oid(type);
	List	   *relations = NIL;

	for (int i = 0; i < list_length(types); i++)
	{
		List	   *rows = paq_dependents_of(TypeRelationId, list_nth_oid(types, i), NULL);
		ListCell   *lc;

		foreach(lc, rows)
		{
			const Form_pg_depend row = lfirst(lc);

			if (row->classid == TypeRelationId)
				types = list_append_unique_oid(types, row->objid);
			else if (row->classid != RelationRelationId)
				continue;
			else if (get_rel_relkind(row->objid) == RELKIND_COMPOSITE_TYPE)
				types = list_append_unique_oid(types, get_rel_type_id(row->objid));
			else
				relations = lappend_oid(relations, row->objid);
		}
		list_free_deep(rows);
	}
	list_free(types);
	list_sort(relations, list_oid_cmp);
	list_deduplicate_oid(relations);
	return relations;
}
