/*-------------------------------------------------------------------------
 *
 * grants.c
 *		Object auditing: which relations the grants of a role select: the audit
 *		role, or that of a rule.
 *
 * A relation is selected if the role, or a role whose privileges it
 * inherits, has been granted one of the privileges that the statement needs,
 * on the relation or on one of the columns concerned.  Grants to PUBLIC select
 * nothing.
 *
 * Must not raise.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/sysattr.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_class.h"
#include "compat.h"
#include "nodes/bitmapset.h"
#include "policy/policy.h"
#include "storage/lockdefs.h"
#include "utils/acl.h"
#include "utils/syscache.h"

/*
 * Does the list grant one of the privileges to role?  Grants to the role itself
 * are looked at first, because membership in other roles is expensive to test.
 */
static bool
acl_grants(Datum datum, Oid role, AclMode mask)
{
	Acl		   *acl = DatumGetAclP(datum);
	AclItem    *items = ACL_DAT(acl);
	int			nitems = ACL_NUM(acl);
	bool		result = false;

	for (int i = 0; i < nitems && !result; i++)
		result = items[i].ai_grantee == role && (items[i].ai_privs & mask);

	for (int i = 0; i < nitems && !result; i++)
	{
		if (items[i].ai_grantee != ACL_ID_PUBLIC && (items[i].ai_privs & mask))
			result = has_privs_of_role(role, items[i].ai_grantee);
	}

	if ((Pointer) acl != DatumGetPointer(datum))
		pfree(acl);
	return result;
}

/* Is role granted one of the privileges on the relation as a whole? */
bool
paq_role_has_grant(Oid role, Oid relid, AclMode mask)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	Datum		acl;
	bool		isnull;
	bool		result;

	if (!HeapTupleIsValid(tuple))
		return false;
	acl = SysCacheGetAttr(RELOID, tuple, Anum_pg_class_relacl, &isnull);
	result = !isnull && acl_grants(acl, role, mask);
	ReleaseSysCache(tuple);
	return result;
}

/* Is role granted one of the privileges on a column that exists? */
static bool
column_grants(Oid relid, AttrNumber attnum, Oid role, AclMode mask)
{
	HeapTuple	tuple = SearchSysCache2(ATTNUM, ObjectIdGetDatum(relid),
									  Int16GetDatum(attnum));
	Datum		acl;
	bool		isnull;
	bool		result = false;

	if (!HeapTupleIsValid(tuple))
		return false;
	if (!((Form_pg_attribute) GETSTRUCT(tuple))->attisdropped)
	{
		acl = SysCacheGetAttr(ATTNUM, tuple, Anum_pg_attribute_attacl, &isnull);
		result = !isnull && acl_grants(acl, role, mask);
	}
	ReleaseSysCache(tuple);
	return result;
}

/* The same for any column of the relation. */
static bool
any_column_grants(Oid relid, Oid role, AclMode mask)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	AttrNumber	natts;

	if (!HeapTupleIsValid(tuple))
		return false;
	natts = ((Form_pg_class) GETSTRUCT(tuple))->relnatts;
	ReleaseSysCache(tuple);

	for (AttrNumber attnum = 1; attnum <= natts; attnum++)
		if (column_grants(relid, attnum, role, mask))
			return true;
	return false;
}

/*
 * The same for the columns in a set such as selectedCols.  An empty set stands
 * for all columns, because nothing tells which of them are meant, and so does a
 * reference to a whole row, which includes them all.
 */
static bool
columns_grant(Oid relid, Bitmapset *columns, Oid role, AclMode mask)
{
	int			member = -1;

	if (bms_is_empty(columns))
		return any_column_grants(relid, role, mask);
	while ((member = bms_next_member(columns, member)) >= 0)
	{
		AttrNumber	attnum = member + FirstLowInvalidHeapAttributeNumber;

		if (attnum == InvalidAttrNumber ?
			any_column_grants(relid, role, mask) :
			column_grants(relid, attnum, role, mask))
			return true;
	}
	return false;
}

/* Do role's grants select what the statement does with the relation? */
bool
paq_role_is_granted(Oid role, RangeTblEntry *rte, List *perminfos)
{
	PaqRtePerms perms = paq_rte_perms(rte, perminfos);
	AclMode		needed = perms.requiredPerms &
		(ACL_SELECT | ACL_INSERT | ACL_UPDATE | ACL_DELETE);

	/* SELECT FOR UPDATE needs the permission to update, too */
	if (PAQ_ROW_LOCK_IS_SELECT && rte->rellockmode == RowShareLock)
		needed &= ACL_SELECT;
	if (needed == 0)
		return false;
	if (paq_role_has_grant(role, rte->relid, needed))
		return true;
	if ((needed & ACL_SELECT) &&
		columns_grant(rte->relid, perms.selectedCols, role, ACL_SELECT))
		return true;
	if ((needed & ACL_INSERT) &&
		columns_grant(rte->relid, perms.insertedCols, role, needed))
		return true;
	return (needed & ACL_UPDATE) &&
		columns_grant(rte->relid, perms.updatedCols, role, needed);
}
