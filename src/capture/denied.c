/*-------------------------------------------------------------------------
 *
 * denied.c
 *		Records of executor statements that failed before anything could be
 *		recorded of them, most likely because permissions are missing.
 *
 * What the audit role's grants select has to be found out beforehand, because
 * while an error is being handled no catalog can be read.
 *
 * Must not raise.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "utils/lsyscache.h"

/* A relation that object auditing selects */
typedef struct Granted
{
	RangeTblEntry *rte;			/* in the plan */
	PaqCommand	command;
	PaqObject	object;
} Granted;

/*
 * Before permissions are checked: note the relations that object auditing
 * selects, if there is any.
 */
void
paq_find_granted(PaqStatement *statement, PlannedStmt *plan)
{
	Oid			role = paq_audit_role();
	List	   *perminfos = paq_stmt_perm_infos(plan);
	ListCell   *lc;

	statement->granted_known = true;
	if (role == InvalidOid || creating_extension ||
		(statement->others_rights && InNoForceRLSOperation()))
		return;
	foreach(lc, plan->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);
		Granted    *granted;

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid) ||
			!paq_role_is_granted(role, rte, perminfos))
			continue;
		granted = palloc(sizeof(Granted));
		granted->rte = rte;
		granted->command = paq_perms_command(perms.requiredPerms,
											 rte->rellockmode,
											 plan->commandType);
		granted->object.granted = true;
		granted->object.type = paq_relkind_name(rte->relkind);
		granted->object.name = paq_relation_name(rte->relid);
		statement->granted = lappend(statement->granted, granted);
	}
}

/* Does object auditing select what the statement does with the relation? */
bool
paq_is_granted(const PaqStatement *statement, RangeTblEntry *rte,
			   List *perminfos)
{
	ListCell   *lc;

	if (!statement->granted_known)
		return paq_role_is_granted(paq_audit_role(), rte, perminfos);
	foreach(lc, statement->granted)
	{
		if (((Granted *) lfirst(lc))->rte == rte)
			return true;
	}
	return false;
}

/* Forget what paq_find_granted() has noted. */
void
paq_forget_granted(PaqStatement *statement)
{
	ListCell   *lc;

	foreach(lc, statement->granted)
	{
		Granted    *granted = lfirst(lc);

		if (granted->object.name != NULL)
			pfree((char *) granted->object.name);
	}
	list_free_deep(statement->granted);
	statement->granted = NIL;
	statement->granted_known = false;
}

/*
 * What a denied statement counts as: what it is as a whole or, if that is not
 * audited, what it does with one of its relations.  Returns false if none of
 * it is audited.  log_catalog does not matter: who is denied a catalog is not
 * one of PostgreSQL's own tools.
 */
static bool
denied_command(const PaqStatement *statement, PlannedStmt *plan,
			   PaqCommand *command)
{
	List	   *perminfos = paq_stmt_perm_infos(plan);
	ListCell   *lc;

	*command = statement->command;
	if (paq_class_is_audited(paq_classify(command)))
		return true;
	foreach(lc, plan->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid))
			continue;
		*command = paq_perms_command(perms.requiredPerms, rte->rellockmode,
									 plan->commandType);
		if (paq_class_is_audited(paq_classify(command)))
			return true;
	}
	return false;
}

/* Make one record; it calls no output function. */
static void
record_denied(PaqStatement *statement, const PaqCommand *command,
			  const PaqObject *object)
{
	uint32		flags = paq_setting_flags(statement);
	PaqPending *pending;

	if ((flags & (PAQ_RECORD_STMT_NOT_LOGGED | PAQ_RECORD_STMT_PREVIOUS)) == 0)
		flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	if (paq_log_parameter && statement->params != NULL)
		flags |= PAQ_RECORD_INCOMPLETE;
	pending = paq_create_record(statement, paq_classify(command), command->tag,
								object, NULL, flags, false);
	if (pending == NULL)
		return;
	paq_note_text(statement, pending);
	paq_known_ids(statement, pending);
	paq_entry_add(statement, pending, false, true);
}

/* Record what the audit role's grants say that the statement was to do. */
static void
record_granted(PaqStatement *statement)
{
	ListCell   *lc;

	foreach(lc, statement->granted)
	{
		Granted    *granted = lfirst(lc);

		record_denied(statement, &granted->command, &granted->object);
	}
}

/*
 * Record a statement that failed before its permissions had been found to
 * suffice.  For use while the error is being handled.
 */
void
paq_record_denied(PaqStatement *statement, PlannedStmt *plan)
{
	const PaqObject no_object = {false, NULL, NULL};
	PaqCommand	command;

	if (creating_extension)
		return;
	if (!statement->others_rights && denied_command(statement, plan, &command))
		record_denied(statement, &command, &no_object);
	record_granted(statement);
}

/*
 * Record a statement that failed while its first record was being made.  It is
 * not known then whether log_catalog leaves it out.  For use while the error is
 * being handled.
 */
void
paq_record_unfinished(PaqStatement *statement, PlannedStmt *plan)
{
	const PaqObject no_object = {false, NULL, NULL};
	PaqCommand	command;

	if (creating_extension || !slist_is_empty(&statement->entries))
		return;
	if (!statement->others_rights && denied_command(statement, plan, &command))
		record_denied(statement, &command, &no_object);
	record_granted(statement);
}
