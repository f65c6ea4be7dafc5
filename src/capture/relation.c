/*-------------------------------------------------------------------------
 *
 * relation.c
 *		Records of the relations that a statement uses.
 *
 * Runs when PostgreSQL has found that the statement may do what it wants to,
 * the first moment at which everything about its relations is known.
 * Relations for which no permission is needed are none of the statement's
 * business: what a view reads, partitions of a table that it names.
 *
 * Must not raise, except for what making a record may (build.c); where a
 * relation has vanished, the record lacks its name.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "compat.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"

/* Qualified name of a relation, palloc'ed; NULL if it is gone. */
const char *
paq_relation_name(Oid relid)
{
	char	   *schema = get_namespace_name(get_rel_namespace(relid));
	char	   *name = get_rel_name(relid);

	if (schema == NULL || name == NULL)
		return NULL;
	return quote_qualified_identifier(schema, name);
}

/* What the statement does with the relation */
static PaqCommand
relation_command(const PaqStatement *statement, RangeTblEntry *rte,
				 PaqRtePerms *perms)
{
	return paq_perms_command(perms->requiredPerms, rte->rellockmode,
							 statement->query_desc ?
							 statement->query_desc->operation : CMD_UNKNOWN);
}

/* Is the relation another one than those that the statement changes? */
static bool
is_only_read(Oid relid, List *rangeTable, List *perminfos)
{
	const AclMode changes = ACL_INSERT | ACL_UPDATE | ACL_DELETE;
	ListCell   *lc;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->relid == relid &&
			(paq_rte_perms(rte, perminfos).requiredPerms & changes) != 0)
			return false;
	}
	return true;
}

/*
 * Session auditing does not want what the statement is as a whole: does it want
 * what it does with one of its relations?  A SELECT can delete rows, in its WITH
 * clause, and an UPDATE can return those of another table.  Utility statements
 * are what they are as a whole.
 */
static bool
find_command(const PaqStatement *statement, List *rangeTable, List *perminfos,
			 PaqCommand *command)
{
	const QueryDesc *queryDesc = statement->query_desc;
	ListCell   *lc;

	if (queryDesc == NULL ||
		(!paq_class_is_audited(PAQ_CLASS_READ) &&
		 !paq_class_is_audited(PAQ_CLASS_WRITE)) ||
		(queryDesc->operation == CMD_SELECT &&
		 !queryDesc->plannedstmt->hasModifyingCTE))
		return false;
	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid) ||
			paq_catalog_is_hidden(rte, &perms))
			continue;
		*command = relation_command(statement, rte, &perms);
		if (paq_class_is_audited(paq_classify(command)) &&
			(paq_classify(command) != PAQ_CLASS_READ ||
			 is_only_read(rte->relid, rangeTable, perminfos)))
			return true;
	}
	return false;
}

/* Record the statement as a whole, before its relations. */
static void
record_whole(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	PaqCommand	command;

	if (paq_class_is_audited(paq_classify(&statement->command)))
		paq_record_relation(statement, &statement->command, NULL);
	else if (find_command(statement, rangeTable, perminfos, &command))
		paq_record_unnumbered(statement, &command);
}

/* Object auditing, and log_relation, for one relation. */
static void
record_relation(PaqStatement *statement, RangeTblEntry *rte,
				PaqRtePerms *perms, bool granted, bool session)
{
	PaqCommand	command = relation_command(statement, rte, perms);
	PaqObject	object;

	object.type = paq_relkind_name(rte->relkind);
	object.name = paq_relation_name(rte->relid);
	if (granted)
	{
		object.granted = true;
		paq_record_relation(statement, &command, &object);
	}
	if (session)
	{
		object.granted = false;
		paq_record_relation(statement, &command, &object);
	}
}

/*
 * Is what is being done not for session auditing?  As in pgaudit, it leaves
 * out what the functions of others do with their owners' rights.  A role that
 * the session has taken with SET ROLE is its own, also if it is no member any
 * more: it goes on with the role's rights until it gives them up.
 */
bool
paq_has_others_rights(void)
{
	return GetUserId() != GetSessionUserId() &&
		GetUserId() != GetOuterUserId() &&
		!is_member_of_role(GetSessionUserId(), GetUserId());
}

/*
 * Make the records of a statement whose permissions on the relations in
 * rangeTable have been checked: one for the statement as a whole or one for
 * each relation, and one for each relation that the audit role's grants
 * select.  The latter cover what a function does with its owner's rights,
 * too, but not PostgreSQL's own checks of foreign keys.
 *
 * With log_rows, the record of a utility statement as a whole is left to its
 * end, unless one of its relations has a record, which must not come first.
 */
void
paq_record_relations(PaqStatement *statement, List *rangeTable,
					 List *perminfos)
{
	Oid			role = paq_audit_role();
	bool		session = true;
	bool		first = true;
	bool		found = false;
	bool		shown = false;
	bool		hidden = false;
	bool		at_end = paq_log_rows && statement->query_desc == NULL;
	ListCell   *lc;

	if (role == InvalidOid && paq_log_classes == PAQ_CLASSES_NONE)
		return;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);
		bool		granted;

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid))
			continue;
		if (!found)
			session = !paq_has_others_rights();
		found = true;
		if (!session && (role == InvalidOid || InNoForceRLSOperation()))
			return;
		if (paq_catalog_is_hidden(rte, &perms))
		{
			hidden = session && !shown;
			continue;
		}

		shown = true;
		hidden = false;
		granted = role != InvalidOid && paq_is_granted(statement, rte, perminfos);
		if (session && first && !paq_log_relation && (!at_end || granted))
		{
			record_whole(statement, rangeTable, perminfos);
			first = false;
		}
		if (granted || (session && paq_log_relation))
			record_relation(statement, rte, &perms, granted,
							session && paq_log_relation);
		else if (role == InvalidOid)
			return;
	}

	statement->hidden = hidden && statement->query_desc != NULL;
	if (!found)
	{
		statement->recorded = false;
		paq_record_relation(statement, &statement->command, NULL);
	}
}

/*
 * A relation is about to be truncated: an object record, if the audit role is
 * granted TRUNCATE on it.  PostgreSQL may tell of the same one twice in a row.
 */
void
paq_record_truncate(PaqStatement *statement, Oid relid)
{
	Oid			role = paq_audit_role();
	PaqObject	object;

	if (role == InvalidOid || statement->truncated == relid ||
		!paq_role_has_grant(role, relid, ACL_TRUNCATE))
		return;
	statement->truncated = relid;
	object.granted = true;
	object.type = paq_relkind_name(get_rel_relkind(relid));
	object.name = paq_relation_name(relid);
	paq_record_object(statement, &object);
}
