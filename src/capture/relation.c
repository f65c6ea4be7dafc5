/*-------------------------------------------------------------------------
 *
 * relation.c
 *		Records of the relations that a statement uses: session auditing, with
 *		log_relation and log_catalog, object auditing, and rules.
 *
 * The records are made when PostgreSQL has found that the statement has the
 * permissions that it needs.  That is the first moment at which everything
 * about its relations is known.  Relations for which no permission is needed do
 * not count: what a view reads, partitions of a table that is named.
 *
 * If the statement fails before, most likely because a permission is missing, its
 * records are made while the error is being handled.  No catalog can be read
 * then, so what the audit role's grants select is determined beforehand.
 *
 * With log_catalog = off, statements are left out that only read what every tool
 * reads all the time.  Not left out are direct changes of a catalog, reads of
 * columns that hold passwords, and of what is in users' tables and large
 * objects.  That concerns the relation that the statement names; what a system
 * view reads for everybody does not count.  Nor is a statement left out that
 * calls a function with another purpose, as in "SELECT lo_get(1) FROM pg_class":
 * any user-defined function, and VOLATILE functions of PostgreSQL, except those
 * that only look at the server.
 *
 * Rules decide about what the statement does with each relation, before permissions
 * are checked.  log_catalog, and whose rights the statement has, matter only where the
 * settings decide.  PostgreSQL's queries for foreign keys are nobody's access, for rules
 * either.
 *
 * Must not raise, except for what deciding (choice.c) and making a record (record.c)
 * may.  If a relation has vanished, the record lacks its name.
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
#include "access/transam.h"
#include "access/xact.h"
#include "capture/capture_internal.h"
#include "catalog/catalog.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_class.h"
#include "catalog/pg_language.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_user_mapping.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "nodes/plannodes.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"

/* A relation that object auditing selects */
typedef struct Granted
{
	RangeTblEntry *rte;			/* in the plan */
	const PaqDecision *decision;	/* of the statement's rules; NULL: there are none */
	bool		by_settings;	/* selected by the grants of the audit role */
	PaqCommand	command;
	PaqObject	object;
} Granted;

/* The audit role as of the last lookup */
static struct
{
	bool		valid;			/* no role has changed since */
	char		name[NAMEDATALEN];
	Oid			oid;
}			audit_role;

/* Functions have been called for a foreign key, outside of a query. */
static bool keys_call_functions = false;

/*
 * Columns with passwords, hashed or not, and columns that may contain some; and
 * relations with contents of users' tables
 */
static const struct
{
	const char *relation;
	const char *column;			/* NULL: any */
}			secret_columns[] =
{
	{"pg_largeobject", NULL},
	{"pg_statistic", NULL},
	{"pg_statistic_ext_data", NULL},
	{"pg_stats", NULL},
	{"pg_stats_ext", NULL},
	{"pg_stats_ext_exprs", NULL},
	{"pg_authid", "rolpassword"},
	{"pg_shadow", "passwd"},
	{"pg_subscription", "subconninfo"},
	{"pg_user_mapping", "umoptions"},
	{"pg_user_mappings", "umoptions"},
};

/*
 * Prefixes of the names of PostgreSQL's VOLATILE functions that only look at the
 * server
 */
static const char *const harmless_functions[] = {
	"clock_timestamp", "current_query", "gen_random_uuid", "pg_blocking_pids",
	"pg_collation_", "pg_control_", "pg_current_", "pg_database_", "pg_get_",
	"pg_hba_file_rules", "pg_ident_file_mappings", "pg_indexes_size", "pg_is_",
	"pg_jit_", "pg_last_", "pg_lock_status", "pg_notification_queue_usage",
	"pg_partition_", "pg_prepared_xact", "pg_relation_size",
	"pg_safe_snapshot_blocking_pids", "pg_sequence_last_value", "pg_show_",
	"pg_stat_get_", "pg_table_size", "pg_tablespace_size",
	"pg_total_relation_size", "pg_xact_", "random", "timeofday", "txid_status"
};

/* Is the column, or the row as a whole, among those that are read? */
static bool
reads_column(Bitmapset *columns, AttrNumber attnum)
{
	return bms_is_member(attnum - FirstLowInvalidHeapAttributeNumber, columns) ||
		bms_is_member(InvalidAttrNumber - FirstLowInvalidHeapAttributeNumber,
					  columns);
}

static bool
reads_secret(Oid relid, Bitmapset *columns)
{
	char	   *relation = get_rel_name(relid);

	for (int i = 0; relation != NULL && i < lengthof(secret_columns); i++)
	{
		if (strcmp(relation, secret_columns[i].relation) == 0)
			return secret_columns[i].column == NULL ||
				reads_column(columns, get_attnum(relid, secret_columns[i].column));
	}
	return false;
}

/* Does the statement only read what log_catalog = off leaves out? */
static bool
reads_catalog(RangeTblEntry *rte, PaqRtePerms *perms)
{
	const AclMode writes = ACL_INSERT | ACL_DELETE | ACL_TRUNCATE;

	if (!IsCatalogNamespace(get_rel_namespace(rte->relid)))
		return false;
	if (OidIsValid(perms->checkAsUser))
		return true;
	if ((perms->requiredPerms & writes) != 0 ||
		((perms->requiredPerms & ACL_UPDATE) != 0 &&
		 rte->rellockmode >= RowExclusiveLock))
		return false;
	return !reads_secret(rte->relid, perms->selectedCols);
}

/* Does log_catalog leave out what the statement does with the relation? */
static inline bool
catalog_is_hidden(RangeTblEntry *rte, PaqRtePerms *perms)
{
	return unlikely(!paq_log_catalog) && reads_catalog(rte, perms);
}

/*
 * May a statement that log_catalog leaves out call the function, without being
 * recorded for that?
 */
bool
paq_catalog_allows(Oid function)
{
	char	   *name;

	if (function >= FirstNormalObjectId)
		return false;
	if (func_volatile(function) != PROVOLATILE_VOLATILE)
		return true;
	name = get_func_name(function);
	for (int i = 0; name != NULL && i < lengthof(harmless_functions); i++)
		if (strncmp(name, harmless_functions[i], strlen(harmless_functions[i])) == 0)
			return true;
	return false;
}

static void
forget_role(Datum arg, int cacheid, uint32 hashvalue)
{
	audit_role.valid = false;
}

static Oid
look_up_audit_role(void)
{
	if (strlen(paq_role) >= NAMEDATALEN)
		return InvalidOid;
	if (!audit_role.valid || strcmp(audit_role.name, paq_role) != 0)
	{
		audit_role.name[0] = '\0';

		/*
		 * Valid before the lookup, so that a change of roles that is noticed
		 * while it runs is not lost; the name after it, in case it fails.
		 */
		audit_role.valid = true;
		audit_role.oid = get_role_oid(paq_role, true);
		strlcpy(audit_role.name, paq_role, NAMEDATALEN);
	}
	return audit_role.oid;
}

/* OID of the role named by pg_audit_queue.role; invalid if there is none. */
static inline Oid
find_audit_role(void)
{
	return likely(paq_role[0] == '\0') ? InvalidOid : look_up_audit_role();
}

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
PaqCommand
paq_relation_command(const PaqStatement *statement, RangeTblEntry *rte,
					 PaqRtePerms *perms)
{
	if (PAQ_COPY_HAS_RELATION && statement->query_desc == NULL &&
		statement->command.node == T_CopyStmt)
		return statement->command;
	return paq_perms_command(perms->requiredPerms, rte->rellockmode,
							 statement->query_desc ?
							 statement->query_desc->operation : CMD_UNKNOWN);
}

/* Is it the only relation of the statement, and the current user's own? */
static bool
is_own_only_relation(List *rangeTable, List *perminfos)
{
	Oid			relid = InvalidOid;
	HeapTuple	tuple;
	ListCell   *lc;
	bool		result;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid))
			continue;
		if (OidIsValid(relid) || OidIsValid(perms.checkAsUser))
			return false;
		relid = rte->relid;
	}
	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relid));
	if (!HeapTupleIsValid(tuple))
		return false;
	result = ((Form_pg_class) GETSTRUCT(tuple))->relowner == GetUserId();
	ReleaseSysCache(tuple);
	return result;
}

/* Is anything else than this statement being executed for a foreign key? */
static bool
in_key_query(const PaqStatement *except)
{
	for (PaqCallFrame *frame = paq_stack.frame; frame != NULL; frame = frame->parent)
	{
		if (frame->statement != NULL && frame->statement != except &&
			frame->statement->for_key)
			return true;
	}
	return false;
}

/*
 * Is it a query with which PostgreSQL checks a foreign key, or does what that asks
 * for?  PostgreSQL executes it with the rights of the owner of its one relation.
 * SECURITY_NOFORCE_RLS is set then, but also while code of users runs meanwhile,
 * which can be anything:
 *
 * - triggers, and all that they execute, are executed by the query;
 * - functions can also be called by the planner or, from 19 on, without a query;
 * - queries that rules make of it have another relation, or another owner's;
 * - the planner calls operators of theirs without telling: while another statement is being
 *	 planned, it can be anything.
 */
static pg_noinline bool
is_key_query_now(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	const int	own = statement->being_planned ? 1 : 0;

	statement->for_key = true;
	return paq_stack.plannings <= own && !in_key_query(statement) && !keys_call_functions &&
		is_own_only_relation(rangeTable, perminfos);
}

static inline bool
is_key_query(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	return unlikely(InNoForceRLSOperation()) &&
		is_key_query_now(statement, rangeTable, perminfos);
}

/*
 * A function is about to be called.  If that is for a foreign key, but not within a
 * query of PostgreSQL's that is being executed, what the function executes cannot be
 * told from these queries any more in this session.  Any function may execute
 * something, whatever its language: a user's function, which the planner replaces
 * by what is in it, can call those of PostgreSQL's and of extensions.
 */
void
paq_note_key_call(void)
{
	if (likely(!InNoForceRLSOperation()) || keys_call_functions)
		return;
	keys_call_functions = !in_key_query(NULL);
}

/* ----------
 * Rules
 * ----------
 */

/* Are all relations of the statement, at least one, temporary? */
static bool
is_temporary(List *rangeTable, List *perminfos)
{
	ListCell   *lc;
	bool		result = false;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (paq_rte_perms(rte, perminfos).requiredPerms == 0 ||
			!OidIsValid(rte->relid))
			continue;
		if (get_rel_persistence(rte->relid) != RELPERSISTENCE_TEMP)
			return false;
		result = true;
	}
	return result;
}

/*
 * What an executor does with a relation, or without one, as a number other than 0: all
 * that the rest of a subject is made of.
 */
static inline uint64
use_of(const PaqStatement *statement, AclMode perms, int lockmode)
{
	return (uint64) (uint32) perms | ((uint64) statement->query_desc->operation << 32) |
		((uint64) (lockmode >= RowExclusiveLock) << 40) |
		((uint64) statement->temporary << 41) | (UINT64CONST(1) << 63);
}

/* What the statement does with the relation, for rules */
static PaqSubject
relation_subject(const PaqStatement *statement, RangeTblEntry *rte, List *perminfos,
				 PaqRtePerms *perms)
{
	PaqSubject	subject = {.object = PAQ_OBJECT_RELATION, .may_look_up = true};
	PaqCommand	command = statement->query_desc == NULL &&
		statement->command.node == T_CopyStmt ? statement->command :
		paq_relation_command(statement, rte, perms);

	subject.class = paq_classify(&command);
	subject.tag = command.tag;
	subject.temp = statement->temporary;
	subject.relid = rte->relid;
	subject.rte = rte;
	subject.perminfos = perminfos;
	if (statement->query_desc != NULL)
		subject.use = use_of(statement, perms->requiredPerms, rte->rellockmode);
	return subject;
}

static pg_noinline void
choose_relation(PaqStatement *statement, RangeTblEntry *rte, List *perminfos)
{
	PaqRtePerms perms = paq_rte_perms(rte, perminfos);
	const PaqSubject subject = relation_subject(statement, rte, perminfos, &perms);
	const bool	hidden = catalog_is_hidden(rte, &perms);

	paq_choose_shown(&statement->choice, &subject, hidden);
}

/*
 * The same if a rule has decided about it before, and nothing has to be asked again: most
 * often.  Returns false otherwise.
 */
static inline bool
choose_again(PaqStatement *statement, Oid relid, uint64 use)
{
	const PaqDecision *decision = paq_policy_recall(statement->choice.rules, relid, use);

	if (unlikely(decision == NULL || decision->final == NULL))
		return false;
	Assert(!decision->granted);
	paq_choice_add(&statement->choice, decision);
	return true;
}

static void
choose_without_relation(PaqStatement *statement)
{
	PaqSubject	subject = {.may_look_up = true};

	if (statement->query_desc != NULL)
	{
		subject.use = use_of(statement, 0, NoLock);
		if (choose_again(statement, InvalidOid, subject.use))
			return;
	}
	subject.class = paq_classify(&statement->command);
	subject.tag = statement->command.tag;
	(void) paq_choose(&statement->choice, &subject);
}

/*
 * Have the rules decide about a statement and its relations, before permissions are
 * checked if it is the executor's.
 */
void
paq_choose_relations(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	const bool	executed = statement->query_desc != NULL;
	bool		found = false;
	ListCell   *lc;

	if (is_key_query(statement, rangeTable, perminfos) && statement->others_rights)
		return;
	if (likely(statement->choice.rules == NULL))
		statement->choice.rules = paq_policy_pin(paq_policy.rules);
	if (unlikely(paq_policy.has_temp) && executed)
		statement->temporary = is_temporary(rangeTable, perminfos);
	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		const AclMode perms = paq_rte_perms(rte, perminfos).requiredPerms;

		if (perms == 0 || !OidIsValid(rte->relid))
			continue;
		found = true;
		if (unlikely(!executed) ||
			!choose_again(statement, rte->relid,
						  use_of(statement, perms, rte->rellockmode)))
			choose_relation(statement, rte, perminfos);
	}
	if (unlikely(!found))
		choose_without_relation(statement);
	statement->chosen = true;
}

/* What the rules of the statement decide about one of its relations */
static const PaqDecision *
decide_relation(const PaqStatement *statement, RangeTblEntry *rte, List *perminfos,
				PaqRtePerms *perms)
{
	PaqSubject	subject = relation_subject(statement, rte, perminfos, perms);

	return paq_policy_decide(statement->choice.rules, &subject);
}

/*
 * Returns true if the settings decide whether the statement is recorded for the relation, or
 * may come to decide when it ends.
 */
static bool
is_left_to_settings(const PaqStatement *statement, RangeTblEntry *rte, List *perminfos,
					PaqRtePerms *perms)
{
	const PaqDecision *decision = decide_relation(statement, rte, perminfos, perms);

	return decision->final == NULL && !decision->granted;
}

/*
 * The choice for a record of one object, by a decision of the statement's rules, NULL if
 * it has none.  granted: the settings want it, by the grants of the audit role.  session:
 * if it is left to them after all, because a rule that selects it by grants does not hold
 * in the end, session auditing counts.  The result is the caller's, but for "later".
 */
static const PaqChoice *
choice_of(const PaqStatement *statement, const PaqDecision *decision, bool granted,
		  bool session, PaqChoice *choice)
{
	if (decision == NULL)
		return NULL;
	memset(choice, 0, sizeof(*choice));
	choice->rules = statement->choice.rules;
	paq_choice_add(choice, decision);
	choice->wanted = granted ? PAQ_WANTED : decision->granted && session ? PAQ_WANTED_BY_CLASS
																		 : PAQ_NOT_WANTED;
	return choice;
}

/*
 * Is there a record of the object?  By the grants of the audit role, if rules leave it
 * to the settings.
 */
static inline bool
is_selected(const PaqDecision *decision, bool granted_by_settings)
{
	if (likely(decision == NULL))
		return granted_by_settings;
	return decision->granted || (granted_by_settings && decision->final == NULL);
}

/* ----------
 * Object auditing
 * ----------
 */

/*
 * Before permissions are checked: note the relations that object auditing
 * selects.
 */
void
paq_find_granted(PaqStatement *statement, PlannedStmt *plan)
{
	Oid			role = find_audit_role();
	List	   *perminfos = paq_stmt_perm_infos(plan);
	bool		for_key;
	ListCell   *lc;

	statement->granted_known = true;
	for_key = is_key_query(statement, plan->rtable, perminfos);
	if ((role == InvalidOid && !paq_policy.has_roles) ||
		(statement->others_rights && for_key))
		return;
	foreach(lc, plan->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);
		const PaqDecision *decision = NULL;
		Granted    *granted;
		bool		by_settings;

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid))
			continue;
		if (unlikely(statement->choice.rules != NULL))
			decision = decide_relation(statement, rte, perminfos, &perms);
		by_settings = role != InvalidOid && paq_role_is_granted(role, rte, perminfos);
		if (!is_selected(decision, by_settings))
			continue;
		granted = palloc(sizeof(Granted));
		granted->decision = decision;
		granted->by_settings = by_settings;
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

/* Do the grants of the audit role select what the statement does with the relation? */
static bool
is_granted(const PaqStatement *statement, RangeTblEntry *rte,
		   List *perminfos)
{
	ListCell   *lc;

	if (!statement->granted_known)
		return paq_role_is_granted(find_audit_role(), rte, perminfos);
	foreach(lc, statement->granted)
	{
		const Granted *granted = lfirst(lc);

		if (granted->rte == rte)
			return granted->by_settings;
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

/* Does the statement change the relation? */
static bool
is_changed(Oid relid, List *rangeTable, List *perminfos)
{
	const AclMode changes = ACL_INSERT | ACL_UPDATE | ACL_DELETE;
	ListCell   *lc;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);

		if (rte->relid == relid &&
			(paq_rte_perms(rte, perminfos).requiredPerms & changes) != 0)
			return true;
	}
	return false;
}

/*
 * Session auditing does not want the statement as a whole: does it want what the
 * statement does with one of its relations?  A SELECT can delete rows in its
 * WITH clause, and an UPDATE can return rows of another table.  For a utility
 * statement only the whole counts.
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
			catalog_is_hidden(rte, &perms))
			continue;
		*command = paq_relation_command(statement, rte, &perms);
		if (paq_class_is_audited(paq_classify(command)) &&
			(paq_classify(command) != PAQ_CLASS_READ ||
			 !is_changed(rte->relid, rangeTable, perminfos)))
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
		paq_record_relation(statement, &statement->command, NULL, NULL);
	else if (find_command(statement, rangeTable, perminfos, &command))
		paq_record_unnumbered(statement, &command, NULL);
}

/* Object auditing, and log_relation, for one relation.  choices: see record.c */
static void
record_relation(PaqStatement *statement, RangeTblEntry *rte,
				PaqRtePerms *perms, bool granted, bool session,
				const PaqChoice *object_choice, const PaqChoice *choice)
{
	PaqCommand	command = paq_relation_command(statement, rte, perms);
	PaqObject	object;

	object.type = paq_relkind_name(rte->relkind);
	object.name = paq_relation_name(rte->relid);
	if (granted)
	{
		object.granted = true;
		paq_record_relation(statement, &command, &object, object_choice);
	}
	if (session)
	{
		object.granted = false;
		paq_record_relation(statement, &command, &object, choice);
	}
}

/*
 * Is the current user's work not for session auditing?  As in pgaudit, that is
 * what the functions of other roles do with their owners' rights.  A role that
 * the session has taken with SET ROLE is its own, even if its user is no member
 * any more: the session keeps the role's rights until it gives them up.
 */
bool
paq_has_others_rights(void)
{
	return GetUserId() != GetSessionUserId() &&
		GetUserId() != GetOuterUserId() &&
		!is_member_of_role(GetSessionUserId(), GetUserId());
}

/*
 * Before permissions are checked of a statement with others' rights: note whether it is
 * PostgreSQL's own, for a foreign key.
 */
void
paq_note_key_query(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	statement->of_key = is_key_query(statement, rangeTable, perminfos);
}

/*
 * The settings decide about relations that no rule decides about, but of others rules
 * have: do the settings want what the statement does with one of these?
 */
static bool
find_rest(const PaqStatement *statement, List *rangeTable, List *perminfos,
		  PaqCommand *command)
{
	ListCell   *lc;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);
		const PaqDecision *decision;

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid) ||
			catalog_is_hidden(rte, &perms))
			continue;
		*command = paq_relation_command(statement, rte, &perms);
		decision = decide_relation(statement, rte, perminfos, &perms);
		if (decision->final == NULL && decision->nlater == 0 && !decision->granted &&
			paq_class_is_audited(paq_classify(command)))
			return true;
	}
	return false;
}

/*
 * Rules have decided about the statement: record it as a whole.  visible: where they
 * leave it to the settings, these do not leave it out.
 */
static void
record_whole_by_rules(PaqStatement *statement, List *rangeTable, List *perminfos,
					  bool visible)
{
	PaqChoice	choice = statement->choice;
	PaqCommand	command;

	choice.by_settings = choice.by_settings && visible;
	choice.by_subject = true;
	choice.wanted = visible ? PAQ_WANTED_BY_CLASS : PAQ_NOT_WANTED;
	if (choice.best != NULL || choice.later != NIL)
		paq_record_relation(statement, &statement->command, NULL, &choice);
	else if (!choice.by_settings)
		return;
	else if (!choice.by_rules)
		record_whole(statement, rangeTable, perminfos);
	else if (find_rest(statement, rangeTable, perminfos, &command))
	{
		if (paq_class_is_audited(paq_classify(&statement->command)))
			paq_record_relation(statement, &statement->command, NULL, NULL);
		else
			paq_record_unnumbered(statement, &command, NULL);
	}
}

/* Rules decide about the statement. */
static pg_noinline void
record_by_rules(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	const Oid	role = find_audit_role();
	const bool	at_end = paq_log_rows && statement->query_desc == NULL;
	bool		session;
	bool		whole;			/* the settings decide about a record of the whole */
	bool		visible = false;
	bool		hidden = false;
	bool		found = false;
	ListCell   *lc;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid))
			continue;
		found = true;
		if (catalog_is_hidden(rte, &perms))
			hidden = true;
		else if (paq_log_catalog || is_left_to_settings(statement, rte, perminfos, &perms))
			visible = true;
	}
	session = !paq_has_others_rights();
	visible = session && (visible || !found);
	statement->hidden = session && hidden && !visible && statement->query_desc != NULL &&
		statement->choice.best == NULL &&
		(statement->choice.by_settings || statement->choice.left_later);
	whole = !paq_log_relation && visible && statement->choice.by_settings;
	if (!found || (!paq_log_relation && !at_end))
		record_whole_by_rules(statement, rangeTable, perminfos, visible);
	if (role == InvalidOid && !paq_policy.has_roles && !paq_log_relation)
		return;

	foreach(lc, rangeTable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);
		const PaqDecision *decision;
		PaqChoice	object_choice;
		PaqChoice	choice;
		bool		granted;
		bool		by_class;

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid))
			continue;
		decision = decide_relation(statement, rte, perminfos, &perms);
		granted = role != InvalidOid && !catalog_is_hidden(rte, &perms) &&
			is_granted(statement, rte, perminfos);
		by_class = session && !catalog_is_hidden(rte, &perms);
		(void) choice_of(statement, decision, granted, by_class && !whole, &object_choice);
		choice = object_choice;
		choice.wanted = by_class ? PAQ_WANTED_BY_CLASS : PAQ_NOT_WANTED;
		record_relation(statement, rte, &perms, is_selected(decision, granted),
						paq_log_relation && !decision->granted, &object_choice, &choice);
		list_free(choice.later);
	}
}

/* paq_record_relations() where rules have decided */
void
paq_record_chosen(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	const PaqChoice *choice = &statement->choice;

	Assert(choice->rules != NULL);

	/* Most often rules have decided about the whole, and nobody asks for its parts. */
	if (unlikely(choice->by_settings || choice->left_later ||
				 paq_log_relation || paq_policy.has_roles || paq_role[0] != '\0' ||
				 (statement->query_desc == NULL && paq_log_rows)))
		record_by_rules(statement, rangeTable, perminfos);
	else if (choice->best != NULL || choice->later != NIL)
		paq_record_relation(statement, &statement->command, NULL, choice);
}

/* paq_record_relations() where settings decide */
void
paq_record_by_settings(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	Oid			role = find_audit_role();
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
		if (!session && (role == InvalidOid ||
						 is_key_query(statement, rangeTable, perminfos)))
			return;
		if (catalog_is_hidden(rte, &perms))
		{
			hidden = session && !shown;
			continue;
		}

		shown = true;
		hidden = false;
		granted = role != InvalidOid && is_granted(statement, rte, perminfos);
		if (session && first && !paq_log_relation && (!at_end || granted))
		{
			record_whole(statement, rangeTable, perminfos);
			first = false;
		}
		if (granted || (session && paq_log_relation))
			record_relation(statement, rte, &perms, granted,
							session && paq_log_relation, NULL, NULL);
		else if (role == InvalidOid)
			return;
	}

	statement->hidden = hidden && statement->query_desc != NULL;
	if (!found)
	{
		statement->recorded = false;
		paq_record_relation(statement, &statement->command, NULL, NULL);
	}
}

/*
 * A relation is about to be truncated: rules decide about it, too, and there is an
 * object record, if the audit role is granted TRUNCATE on it.  PostgreSQL may tell of
 * the same one twice in a row.
 */
void
paq_record_truncate(PaqStatement *statement, Oid relid)
{
	Oid			role = find_audit_role();
	PaqSubject	subject = {.object = PAQ_OBJECT_RELATION, .may_look_up = true};
	const PaqDecision *decision = NULL;
	PaqChoice	choice;
	PaqObject	object;
	bool		granted;

	if (statement->truncated == relid)
		return;
	if (statement->choice.rules != NULL)
	{
		subject.class = paq_classify(&statement->command);
		subject.tag = statement->command.tag;
		subject.temp = statement->temporary;
		subject.relid = relid;
		subject.perms = ACL_TRUNCATE;
		decision = paq_choose(&statement->choice, &subject);
		if (statement->provisional == NULL && paq_statement_is_audited(statement))
			paq_record_provisional(statement);
	}
	granted = role != InvalidOid && paq_role_has_grant(role, relid, ACL_TRUNCATE);
	if (!is_selected(decision, granted))
		return;
	statement->truncated = relid;
	object.granted = true;
	object.type = paq_relkind_name(get_rel_relkind(relid));
	object.name = paq_relation_name(relid);
	paq_record_object(statement, &object,
					  choice_of(statement, decision, granted, !paq_has_others_rights(),
								&choice));
	if (decision != NULL)
		list_free(choice.later);
}

/*
 * What a failed statement counts as: what it is as a whole or, if that is not
 * audited, what it does with one of its relations.  Returns false if nothing of
 * it is audited.  log_catalog does not matter here: permission to read a catalog
 * is not denied to PostgreSQL's own tools.
 */
static bool
failed_command(const PaqStatement *statement, PlannedStmt *plan,
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

/*
 * Record a statement that failed in ExecutorStart, before its permissions had been
 * found to suffice, or while its first record was being made; in the latter case
 * whether log_catalog leaves it out is not known.  For use while the error is
 * being handled.
 */
void
paq_record_failed_start(PaqStatement *statement, PlannedStmt *plan)
{
	const PaqChoice *choice;
	PaqChoice	own;
	PaqCommand	command;
	ListCell   *lc;

	if (statement->perms_checked &&
		(!statement->unfinished || !dlist_is_empty(&statement->records)))
		return;
	choice = statement->choice.rules != NULL ? &statement->choice : NULL;
	if (unlikely(paq_policy.has_rules && !statement->chosen && !statement->of_key))
	{
		/* What rules say of it is not known, if it is not PostgreSQL's own. */
		if (paq_class_is_wanted(paq_classify(&statement->command)))
			paq_record_denied(statement, &statement->command, NULL, NULL);
	}
	else if (choice != NULL && (choice->best != NULL || choice->later != NIL))
	{
		own = *choice;
		own.by_subject = true;
		own.wanted = statement->others_rights ? PAQ_NOT_WANTED : PAQ_WANTED_BY_CLASS;
		paq_record_denied(statement, &statement->command, NULL, &own);
	}
	else if (statement->others_rights)
	{
		/* it is not for session auditing */
	}
	else if (choice != NULL && choice->by_rules)
	{
		if (choice->left_classes & paq_log_classes)
			paq_record_denied(statement, &statement->command, NULL, NULL);
	}
	else if (failed_command(statement, plan, &command))
		paq_record_denied(statement, &command, NULL, NULL);
	foreach(lc, statement->granted)
	{
		Granted    *granted = lfirst(lc);

		paq_record_denied(statement, &granted->command, &granted->object,
						  choice_of(statement, granted->decision, granted->by_settings,
									!statement->others_rights, &own));
		if (granted->decision != NULL)
			list_free(own.later);
	}
}

void
paq_relation_init(void)
{
	CacheRegisterSyscacheCallback(AUTHOID, forget_role, (Datum) 0);
}
