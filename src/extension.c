/*-------------------------------------------------------------------------
 *
 * extension.c
 *		The extension in a database that has other things to do: names that step aside
 *		for others, and the table that is there only where it is needed.
 *
 * The functions and views that one calls by name are in pg_catalog, where nobody but a
 * superuser can put anything before them.  There they hide what has the same name
 * in other schemas.  So ours step aside, into the schema audit_queue, where an object
 * of an application would be hidden:
 *
 *	- when CREATE EXTENSION, or ALTER EXTENSION ... UPDATE, finds one;
 *	- when a superuser makes one, or gives it the name, later.
 *
 * What an ordinary user makes later changes nothing, but that he is warned: if
 * ours stepped aside for it, his table would be read by those who want to see what he
 * does.  Nor do ours step aside for code of users who are no superusers, or whoever
 * calls ours without a schema would execute it: functions, views, and tables whose
 * reader executes something of their owner, see runs_code().  Ours come back when such a
 * user gets code of the name, whether he makes it, renames it, is given it, or puts it
 * into a table for which ours have stepped aside.  A superuser may decide otherwise;
 * audit_check() has the command.  What he has allowed may be replaced by its owner if it
 * is a function of the same name and schema.
 *
 * PostgreSQL fires no event trigger for REASSIGN OWNED and ALTER ROLE ... NOSUPERUSER,
 * with which a superuser may give code away: that is for audit_check() to tell.
 *
 * A function hides others with which it can be mistaken: those that can be called
 * with as many arguments, of whatever types.
 *
 * The table is load/table.c's.  Here is what makes it when a dump that has
 * partitions of it is restored, and what a superuser may call.
 *
 * These functions work where the library is not preloaded, too.  Locking: that of
 * ALTER ... SET SCHEMA for what steps aside or comes back, before its schema is looked at.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/objectaddress.h"
#include "catalog/pg_class.h"
#include "catalog/pg_constraint.h"
#include "catalog/pg_depend.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_statistic_ext.h"
#include "catalog/pg_type.h"
#include "commands/event_trigger.h"
#include "commands/extension.h"
#include "compat.h"
#include "depend.h"
#include "executor/spi.h"
#include "extension.h"
#include "fmgr.h"
#include "funcapi.h"
#include "load/load.h"
#include "miscadmin.h"
#include "sqlfunc.h"
#include "storage/lmgr.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/catcache.h"
#include "utils/fmgroids.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

PG_FUNCTION_INFO_V1(audit_queue_make_table);
PG_FUNCTION_INFO_V1(audit_queue_drop_table);
PG_FUNCTION_INFO_V1(audit_queue_no_table);
PG_FUNCTION_INFO_V1(audit_queue_publications);
PG_FUNCTION_INFO_V1(audit_queue_names);
PG_FUNCTION_INFO_V1(audit_queue_step_aside);
PG_FUNCTION_INFO_V1(pg_audit_queue_extension);

#define SCHEMA		"audit_queue"

/* What one of ours hides, or would hide in pg_catalog */
typedef struct Other
{
	ObjectAddress address;
	Oid			owner;
	bool		is_code;		/* using it executes what its owner has written */
} Other;

/* A function or view of ours that one calls by its name */
typedef struct OwnName
{
	ObjectAddress address;
	Oid			owner;
	bool		aside;			/* it is in SCHEMA, not in pg_catalog */
	Acl		   *acl;			/* NULL: the default */
	List	   *others;			/* of Other */
} OwnName;

/* ----------
 * Names and what they hide
 * ----------
 */

/* Names that are called begin with these; what else is in SCHEMA is our own. */
static bool
is_called(const char *name)
{
	/* analyzer: never NULL, the grammar gives a statement that makes something a name */
	return strncmp(name, "audit_", 6) == 0 || strncmp(name, "pg_stat_", 8) == 0;
}

/* Returns true if what is in the schema can be hidden by what is in pg_catalog. */
static bool
is_behind(Oid schema, Oid ours)
{
	return schema != PG_CATALOG_NAMESPACE && schema != ours &&
		!IsToastNamespace(schema) && !isAnyTempNamespace(schema);
}

static void
add_other(OwnName *name, Oid catalog, Oid object, Oid owner, bool is_code)
{
	Other	   *other = palloc(sizeof(Other));

	ObjectAddressSet(other->address, catalog, object);
	other->owner = owner;
	other->is_code = is_code;
	name->others = lappend(name->others, other);
}

/*
 * Returns true if the definition of the object uses a function, an operator or a type of
 * somebody who is no superuser.  PostgreSQL's own are not in pg_depend.
 */
static bool
uses_untrusted(Oid catalog, Oid object)
{
	ListCell   *lc;

	foreach(lc, paq_depends_on(catalog, object, NULL))
	{
		const Form_pg_depend row = lfirst(lc);

		/* The types of columns do not count. */
		if (row->objsubid == 0 &&
			(row->refclassid == ProcedureRelationId || row->refclassid == OperatorRelationId ||
			 row->refclassid == TypeRelationId) &&
			!paq_is_superusers(row->refclassid, row->refobjid))
			return true;
	}
	return false;
}

/*
 * Returns true if a constraint, an index or statistics of the relation use what is
 * untrusted: planning any query of the relation evaluates their constant expressions.
 */
static bool
has_untrusted_parts(Oid relation)
{
	ListCell   *lc;

	foreach(lc, paq_dependents_of(RelationRelationId, relation, NULL))
	{
		const Form_pg_depend row = lfirst(lc);

		if ((row->classid == ConstraintRelationId || row->classid == RelationRelationId ||
			 row->classid == StatisticExtRelationId) &&
			uses_untrusted(row->classid, row->objid))
			return true;
	}
	return false;
}

/*
 * Returns true if reading the relation may execute what its owner has written: that of a
 * view, of a policy, of a partition key, or of parts.  What a parent's children have is
 * not looked at: their owner may change it at any time.
 */
static bool
runs_code(Form_pg_class relation)
{
	return relation->relkind == RELKIND_VIEW || relation->relrowsecurity ||
		relation->relhassubclass || relation->relispartition ||
		uses_untrusted(RelationRelationId, relation->oid) ||
		has_untrusted_parts(relation->oid);
}

/* Add relations with the name of a view of ours. */
static void
add_relations(OwnName *name, const char *relname, Oid ours)
{
	CatCList   *list = SearchSysCacheList1(RELNAMENSP, CStringGetDatum(relname));

	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_class other = (Form_pg_class) GETSTRUCT(&list->members[i]->tuple);

		if (is_behind(other->relnamespace, ours) &&
			other->relkind != RELKIND_COMPOSITE_TYPE &&
			other->relkind != RELKIND_INDEX &&
			other->relkind != RELKIND_PARTITIONED_INDEX)
			add_other(name, RelationRelationId, other->oid, other->relowner,
					  runs_code(other));
	}
	ReleaseSysCacheList(list);
}

/* Returns true if the type comes with a relation, which is more than that. */
static bool
is_row_type(Form_pg_type type)
{
	return OidIsValid(type->typrelid) &&
		get_rel_relkind(type->typrelid) != RELKIND_COMPOSITE_TYPE;
}

/* Add types with the name of a view of ours, which has a type, too. */
static void
add_types(OwnName *name, const char *relname, Oid ours)
{
	CatCList   *list = SearchSysCacheList1(TYPENAMENSP, CStringGetDatum(relname));

	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_type other = (Form_pg_type) GETSTRUCT(&list->members[i]->tuple);

		if (is_behind(other->typnamespace, ours) && !is_row_type(other))
			add_other(name, TypeRelationId, other->oid, other->typowner, false);
	}
	ReleaseSysCacheList(list);
}

/* Returns true if the function can be called with as few arguments as the other one has at most. */
static bool
reaches_down(Form_pg_proc function, Form_pg_proc other)
{
	return OidIsValid(other->provariadic) ||
		function->pronargs - function->pronargdefaults <= other->pronargs;
}

/* Returns true if both functions can be called with the same number of arguments. */
static bool
are_alike(Form_pg_proc a, Form_pg_proc b)
{
	return reaches_down(a, b) && reaches_down(b, a);
}

/* Add functions that a function of ours hides. */
static void
add_functions(OwnName *name, Form_pg_proc function, Oid ours)
{
	CatCList   *list = SearchSysCacheList1(PROCNAMEARGSNSP,
										 CStringGetDatum(NameStr(function->proname)));

	for (int i = 0; i < list->n_members; i++)
	{
		Form_pg_proc other = (Form_pg_proc) GETSTRUCT(&list->members[i]->tuple);

		if (is_behind(other->pronamespace, ours) && are_alike(function, other))
			add_other(name, ProcedureRelationId, other->oid, other->proowner, true);
	}
	ReleaseSysCacheList(list);
}

/* A name of ours; NULL: it is not one that is called */
static OwnName *
make_name(Oid catalog, Oid object, const char *called, Oid owner, Oid schema, Oid ours)
{
	OwnName    *name;

	if (!is_called(called) || (schema != PG_CATALOG_NAMESPACE && schema != ours))
		return NULL;
	name = palloc0(sizeof(OwnName));
	ObjectAddressSet(name->address, catalog, object);
	name->owner = owner;
	name->aside = schema == ours;
	return name;
}

/* The privileges in a column of a row, palloc'ed; NULL: the default */
static Acl *
acl_of(int cache, HeapTuple tuple, AttrNumber column)
{
	bool		isnull;
	Datum		acl = SysCacheGetAttr(cache, tuple, column, &isnull);

	return isnull ? NULL : DatumGetAclPCopy(acl);
}

/* The name of a relation of the extension, with what it hides; NULL: nobody calls it */
static OwnName *
name_of_relation(Oid relation, Oid ours)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(relation));
	Form_pg_class row;
	OwnName    *name;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	row = (Form_pg_class) GETSTRUCT(tuple);
	name = make_name(RelationRelationId, relation, NameStr(row->relname),
					 row->relowner, row->relnamespace, ours);
	if (name != NULL)
	{
		name->acl = acl_of(RELOID, tuple, Anum_pg_class_relacl);
		add_relations(name, NameStr(row->relname), ours);
		add_types(name, NameStr(row->relname), ours);
	}
	ReleaseSysCache(tuple);
	return name;
}

/* The same of a function */
static OwnName *
name_of_function(Oid function, Oid ours)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	Form_pg_proc row;
	OwnName    *name;

	if (!HeapTupleIsValid(tuple))
		return NULL;
	row = (Form_pg_proc) GETSTRUCT(tuple);
	name = make_name(ProcedureRelationId, function, NameStr(row->proname),
					 row->proowner, row->pronamespace, ours);
	if (name != NULL)
	{
		name->acl = acl_of(PROCOID, tuple, Anum_pg_proc_proacl);
		add_functions(name, row, ours);
	}
	ReleaseSysCache(tuple);
	return name;
}

List *
paq_extension_members(void)
{
	const Oid	extension = get_extension_oid("pg_audit_queue", true);
	List	   *members = NIL;
	ListCell   *lc;

	if (!OidIsValid(extension))
		return NIL;
	foreach(lc, paq_dependents_of(ExtensionRelationId, extension, NULL))
	{
		const Form_pg_depend row = lfirst(lc);
		ObjectAddress *member;

		if (row->deptype != DEPENDENCY_EXTENSION)
			continue;
		member = palloc(sizeof(ObjectAddress));
		ObjectAddressSet(*member, row->classid, row->objid);
		members = lappend(members, member);
	}
	return members;
}

/* All functions and views of ours that one calls by name; NIL without the extension */
static List *
find_names(void)
{
	const Oid	ours = get_namespace_oid(SCHEMA, true);
	List	   *names = NIL;
	ListCell   *lc;

	if (!OidIsValid(ours))
		return NIL;
	foreach(lc, paq_extension_members())
	{
		const ObjectAddress *member = lfirst(lc);
		OwnName    *name = NULL;

		if (member->classId == RelationRelationId)
			name = name_of_relation(member->objectId, ours);
		else if (member->classId == ProcedureRelationId)
			name = name_of_function(member->objectId, ours);
		if (name != NULL)
			names = lappend(names, name);
	}
	return names;
}

/*
 * What an object is, as "table" or "function", and its name with its schema; NULL:
 * somebody has dropped it
 */
static char *
kind_of(const ObjectAddress *address)
{
	return getObjectTypeDescription(address, true);
}

static char *
identity_of(const ObjectAddress *address)
{
	return getObjectIdentity(address, true);
}

/* One of ours without its schema, and without arguments */
static char *
bare_name(const OwnName *name)
{
	return name->address.classId == ProcedureRelationId ?
		get_func_name(name->address.objectId) : get_rel_name(name->address.objectId);
}

/* The command that moves one of ours to that schema */
static char *
move_command(const OwnName *name, const char *schema)
{
	return psprintf("ALTER %s %s SET SCHEMA %s",
					name->address.classId == ProcedureRelationId ? "FUNCTION" : "VIEW",
					identity_of(&name->address), schema);
}

/* ----------
 * Stepping aside
 * ----------
 */

/* Returns true if using it would execute what somebody has written who is no superuser. */
static bool
is_untrusted(const Other *other)
{
	return other->is_code && !superuser_arg(other->owner);
}

/* The first of those; NULL: there is none */
static const Other *
find_untrusted(const OwnName *name)
{
	ListCell   *lc;

	foreach(lc, name->others)
	{
		if (is_untrusted(lfirst(lc)))
			return lfirst(lc);
	}
	return NULL;
}

/* Returns true if the privileges are anybody's. */
static bool
is_public(const Acl *acl)
{
	const AclItem *items = ACL_DAT(acl);

	for (int i = 0; i < ACL_NUM(acl); i++)
	{
		if (items[i].ai_grantee == ACL_ID_PUBLIC)
			return true;
	}
	return false;
}

static void
grant_usage(const char *grantee)
{
	paq_run_command(psprintf("GRANT USAGE ON SCHEMA %s TO %s", SCHEMA, grantee));
}

/*
 * Let those who have privileges on one of ours find it in SCHEMA.  In a script of the
 * extension that would be a privilege that the extension has by itself, and pg_dump would
 * leave it out.
 */
static void
let_find(const OwnName *name)
{
	const bool	was_creating = creating_extension;
	Oid		   *roles;
	int			count;

	if (name->acl == NULL)
		return;
	count = aclmembers(name->acl, &roles);
	PG_TRY();
	{
		creating_extension = false;
		if (is_public(name->acl))
			grant_usage("PUBLIC");
		for (int i = 0; i < count; i++)
			grant_usage(quote_identifier(GetUserNameFromId(roles[i], false)));
	}
	PG_FINALLY();
	{
		creating_extension = was_creating;
	}
	PG_END_TRY();
}

/*
 * Lock one of ours as moving it does, until the end of the transaction.  Returns whether it
 * is still where it was found: somebody else may have moved it, or dropped it.
 */
static bool
lock_name(const OwnName *name)
{
	const Oid	object = name->address.objectId;
	Oid			schema;

	if (name->address.classId == RelationRelationId)
	{
		LockRelationOid(object, AccessExclusiveLock);
		schema = get_rel_namespace(object);
	}
	else
	{
		LockDatabaseObject(ProcedureRelationId, object, 0, AccessExclusiveLock);
		schema = get_func_namespace(object);
	}
	return OidIsValid(schema) && (schema != PG_CATALOG_NAMESPACE) == name->aside;
}

/* Move one of ours out of the way of what it hides. */
static void
step_aside(const OwnName *name)
{
	const Other *other = linitial(name->others);
	const char *hidden;

	if (!lock_name(name))
		return;
	hidden = identity_of(&other->address);
	SPI_connect();
	paq_run_command(move_command(name, SCHEMA));
	let_find(name);
	SPI_finish();
	ereport(WARNING,
			(errmsg("%s \"%s\" is in schema \"%s\"",
					kind_of(&name->address), bare_name(name), SCHEMA),
			 hidden != NULL ? errdetail("In \"pg_catalog\" it would hide %s.", hidden) : 0));
}

/*
 * Move one of ours back, with its owner's privileges: somebody has got what would be
 * executed in its place.  Event triggers of superusers run within, and must not find
 * by its settings what the user has made for them.
 */
static void
come_back(const OwnName *name, const Other *other)
{
	Oid			user;
	int			context;
	int			level;
	const char *hidden;

	if (!superuser_arg(name->owner) || !lock_name(name))
		return;
	hidden = identity_of(&other->address);
	GetUserIdAndSecContext(&user, &context);
	level = NewGUCNestLevel();
	SetUserIdAndSecContext(name->owner, context | SECURITY_LOCAL_USERID_CHANGE |
						   SECURITY_RESTRICTED_OPERATION);
	paq_use_own_names();
	SPI_connect();
	paq_run_command(move_command(name, "pg_catalog"));
	SPI_finish();
	AtEOXact_GUC(true, level);
	SetUserIdAndSecContext(user, context);
	ereport(WARNING,
			(errmsg("%s \"%s\" is in schema \"pg_catalog\" again",
					kind_of(&name->address), bare_name(name)),
			 hidden == NULL ? 0 :
			 errdetail("In its place one would execute %s, whose owner is no superuser.", hidden)));
}

/* Say that ours hides it, and what can be done. */
static void
report_hidden(const OwnName *name, const Other *other)
{
	const char *kind = kind_of(&other->address);
	const char *hidden = identity_of(&other->address);

	if (kind == NULL || hidden == NULL)
		return;
	ereport(WARNING,
			(errmsg("%s %s is hidden by %s of extension \"pg_audit_queue\"",
					kind, hidden, identity_of(&name->address)),
			 errdetail("It can be used by its name with the schema only."),
			 errhint("If you trust its owner, have a superuser run: %s;",
					 move_command(name, SCHEMA))));
}

/* Have one of ours step aside, or say why it does not. */
static void
give_way(const OwnName *name)
{
	const Other *untrusted = find_untrusted(name);

	if (untrusted != NULL)
		report_hidden(name, untrusted);
	else
		step_aside(name);
}

/*
 * audit_queue.step_aside() returns void
 *
 * Has ours step aside where they hide anything.  For superusers.
 */
Datum
audit_queue_step_aside(PG_FUNCTION_ARGS)
{
	ListCell   *lc;

	foreach(lc, find_names())
	{
		const OwnName *name = lfirst(lc);

		if (!name->aside && name->others != NIL)
			give_way(name);
	}
	PG_RETURN_VOID();
}

/* ----------
 * Objects that are made later
 * ----------
 */

static void
add_address(List **touched, Oid catalog, Oid object)
{
	ObjectAddress *address = palloc(sizeof(ObjectAddress));

	ObjectAddressSet(*address, catalog, object);
	*touched = lappend(*touched, address);
}

/* A row of pg_event_trigger_ddl_commands() */
static void
add_row(void *arg, TupleTableSlot *row)
{
	add_address(arg, paq_slot_oid(row, "classid"), paq_slot_oid(row, "objid"));
}

/* Returns true if the command gives a table, or view, to somebody. */
static bool
changes_owner(const AlterTableStmt *stmt)
{
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		if (lfirst_node(AlterTableCmd, lc)->subtype == AT_ChangeOwner)
			return true;
	}
	return false;
}

List *
paq_tables_of_alter(const AlterTableStmt *stmt)
{
	List	   *relations = list_make1(stmt->relation);
	ListCell   *lc;

	foreach(lc, stmt->cmds)
	{
		Node	   *def = lfirst_node(AlterTableCmd, lc)->def;

		if (def != NULL && IsA(def, RangeVar))
			relations = lappend(relations, def);
		else if (def != NULL && IsA(def, PartitionCmd))
			relations = lappend(relations, ((PartitionCmd *) def)->name);
	}
	return relations;
}

/*
 * Relations that have been there, and that the command may give code that is executed
 * when they are read; of RangeVar
 */
static List *
altered_relations(const Node *parsetree)
{
	switch (nodeTag(parsetree))
	{
		case T_AlterTableStmt:
			return paq_tables_of_alter((const AlterTableStmt *) parsetree);
		case T_CreateForeignTableStmt:
			return ((const CreateForeignTableStmt *) parsetree)->base.inhRelations;
		case T_CreateStatsStmt:
			return ((const CreateStatsStmt *) parsetree)->relations;
		case T_CreateStmt:
			return ((const CreateStmt *) parsetree)->inhRelations;
		case T_IndexStmt:
			return list_make1(((const IndexStmt *) parsetree)->relation);
		case T_RuleStmt:
			return list_make1(((const RuleStmt *) parsetree)->relation);
		default:
			return NIL;
	}
}

/* Objects that a command has given a name or an owner; of ObjectAddress */
static List *
find_named(const Node *parsetree)
{
	List	   *named = NIL;

	if (!IsA(parsetree, AlterTableStmt) ||
		changes_owner((const AlterTableStmt *) parsetree))
		paq_use_rows(F_PG_EVENT_TRIGGER_DDL_COMMANDS, add_row, &named);
	return named;
}

/* Those and altered_relations(); of ObjectAddress */
static List *
find_changed(const Node *parsetree)
{
	List	   *changed = find_named(parsetree);
	ListCell   *lc;

	foreach(lc, altered_relations(parsetree))
		add_address(&changed, RelationRelationId,
					RangeVarGetRelid(lfirst_node(RangeVar, lc), NoLock, true));
	return changed;
}

/*
 * The first of those that one of ours hides that was touched, rather one that is
 * untrusted; NULL: none
 */
static const Other *
find_touched(const OwnName *name, const List *touched)
{
	const Other *found = NULL;
	ListCell   *lc;
	ListCell   *address;

	foreach(lc, name->others)
	{
		const Other *other = lfirst(lc);

		foreach(address, touched)
		{
			const ObjectAddress *was = lfirst(address);

			if (other->address.classId == was->classId &&
				other->address.objectId == was->objectId &&
				(found == NULL || (is_untrusted(other) && !is_untrusted(found))))
				found = other;
		}
	}
	return found;
}

/*
 * Returns true if ours hid the function before the command, too: the same name, schema
 * and owner, so that the command has only replaced it.  A superuser may have allowed that.
 */
static bool
was_hidden(const OwnName *name, const ObjectAddress *function)
{
	HeapTuple	ours = SearchSysCache1(PROCOID, ObjectIdGetDatum(name->address.objectId));
	HeapTuple	now = SearchSysCache1(PROCOID, ObjectIdGetDatum(function->objectId));
	Relation	catalog = table_open(ProcedureRelationId, AccessShareLock);
	ScanKeyData key;
	SysScanDesc scan;
	HeapTuple	before;
	bool		result = false;

	/* The command's own snapshot does not show what the command has done. */
	ScanKeyInit(&key, Anum_pg_proc_oid, BTEqualStrategyNumber,
				F_OIDEQ, ObjectIdGetDatum(function->objectId));
	scan = systable_beginscan(catalog, ProcedureOidIndexId, true, GetActiveSnapshot(), 1, &key);
	before = systable_getnext(scan);
	if (HeapTupleIsValid(before) && HeapTupleIsValid(now) && HeapTupleIsValid(ours))
	{
		const Form_pg_proc is = (Form_pg_proc) GETSTRUCT(now);
		const Form_pg_proc was = (Form_pg_proc) GETSTRUCT(before);

		result = was->pronamespace == is->pronamespace &&
			was->proowner == is->proowner &&
			strcmp(NameStr(was->proname), NameStr(is->proname)) == 0 &&
			are_alike((Form_pg_proc) GETSTRUCT(ours), was);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);
	if (HeapTupleIsValid(now))
		ReleaseSysCache(now);
	if (HeapTupleIsValid(ours))
		ReleaseSysCache(ours);
	return result;
}

/*
 * A command may have given objects names, or code: look whether ours hide them.
 * is_before: the active snapshot is of the time before the command.
 */
static void
look_at_names(const Node *parsetree, bool is_before)
{
	ListCell   *lc;

	foreach(lc, find_names())
	{
		const OwnName *name = lfirst(lc);
		const Other *other;

		if (name->others == NIL)
			continue;
		other = find_touched(name, name->aside ? find_changed(parsetree) : find_named(parsetree));
		if (other == NULL)
			continue;
		if (name->aside)
		{
			if (is_untrusted(other) &&
				!(other->address.classId == ProcedureRelationId && is_before &&
				  was_hidden(name, &other->address)))
				come_back(name, other);
		}
		else if (superuser())
			give_way(name);
		else
			report_hidden(name, other);
	}
}

/*
 * Returns true if the command may give a name that is one of ours, or give an owner, or
 * code, to what has it, in the sight of others than its session.  Most commands are told
 * here by their names.  REASSIGN OWNED and ALTER ROLE fire no event trigger.
 */
static bool
concerns_names(const Node *parsetree)
{
	const RangeVar *relation = NULL;
	const char *name = NULL;
	ListCell   *lc;

	foreach(lc, altered_relations(parsetree))
	{
		if (is_called(lfirst_node(RangeVar, lc)->relname))
			return true;
	}
	switch (nodeTag(parsetree))
	{
		case T_CreateStmt:
			relation = ((const CreateStmt *) parsetree)->relation;
			break;
		case T_CreateForeignTableStmt:
			relation = ((const CreateForeignTableStmt *) parsetree)->base.relation;
			break;
		case T_CreateTableAsStmt:
			relation = ((const CreateTableAsStmt *) parsetree)->into->rel;
			break;
		case T_CreateSeqStmt:
			relation = ((const CreateSeqStmt *) parsetree)->sequence;
			break;
		case T_ViewStmt:
			relation = ((const ViewStmt *) parsetree)->view;
			break;
		case T_RenameStmt:
			/* not columns and the like */
			if (((const RenameStmt *) parsetree)->subname != NULL)
				return false;
			name = ((const RenameStmt *) parsetree)->newname;
			break;
		case T_CreateFunctionStmt:
			name = strVal(llast(((const CreateFunctionStmt *) parsetree)->funcname));
			break;
		case T_AlterObjectSchemaStmt:
		case T_AlterOwnerStmt:
		case T_CompositeTypeStmt:
		case T_CreateDomainStmt:
		case T_CreateEnumStmt:
		case T_CreateRangeStmt:
		case T_CreateSchemaStmt:
		case T_DefineStmt:
		case T_ImportForeignSchemaStmt:
			return true;
		default:
			return false;
	}
	if (relation != NULL && relation->relpersistence == RELPERSISTENCE_TEMP)
		return false;
	return is_called(relation != NULL ? relation->relname : name);
}

/* Returns true if the command makes what may be a partition of a table that is being restored. */
static bool
makes_partition(const Node *parsetree)
{
	const RangeVar *relation;

	if (!IsA(parsetree, CreateStmt))
		return false;
	relation = ((const CreateStmt *) parsetree)->relation;
	return relation->schemaname != NULL && strcmp(relation->schemaname, SCHEMA) == 0 &&
		strncmp(relation->relname, "records_", 8) == 0;
}

/*
 * ON ddl_command_end: makes the table for partitions, and has ours step aside, for
 * superusers; has ours come back, for everybody.
 */
Datum
pg_audit_queue_extension(PG_FUNCTION_ARGS)
{
	const Node *parsetree;
	bool		push;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called by an event trigger")));
	parsetree = ((EventTriggerData *) fcinfo->context)->parsetree;
	if (IsBinaryUpgrade ||
		!(makes_partition(parsetree) || concerns_names(parsetree)))
		PG_RETURN_NULL();

	/* for the queries and commands below */
	push = !ActiveSnapshotSet();
	if (push)
		PushActiveSnapshot(GetTransactionSnapshot());
	if (!makes_partition(parsetree))
		look_at_names(parsetree, !push);
	else if (superuser())
		(void) paq_table_make();
	if (push)
		PopActiveSnapshot();
	PG_RETURN_NULL();
}

/* ----------
 * What audit_check() asks for, and what superusers may call
 * ----------
 */

/* The kinds, names and owners of what one of ours hides, as an array of text */
static Datum
others_datum(const OwnName *name)
{
	ArrayBuildState *texts = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ListCell   *lc;

	foreach(lc, name->others)
	{
		const Other *other = lfirst(lc);
		const char *kind = kind_of(&other->address);
		const char *hidden = identity_of(&other->address);
		const char *owner = GetUserNameFromId(other->owner, true);
		char	   *text;

		/* somebody has dropped it meanwhile */
		if (kind == NULL || hidden == NULL || owner == NULL)
			continue;
		text = psprintf("%s %s of %s", kind, hidden, quote_identifier(owner));
		accumArrayResult(texts, CStringGetTextDatum(text), false, TEXTOID,
						 CurrentMemoryContext);
	}
	return makeArrayResult(texts, CurrentMemoryContext);
}

/*
 * audit_queue.names() returns setof record
 *
 * The functions and views that one calls by name: each with its kind and schema, whether it
 * has stepped aside, whether code of users who are no superusers has its name, what it
 * hides, or would hide, and the command that moves it aside or back.
 */
Datum
audit_queue_names(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, 0);
	foreach(lc, find_names())
	{
		const OwnName *name = lfirst(lc);
		PaqRow		row = {0};

		paq_row_add_text(&row, psprintf("%s %s.%s", kind_of(&name->address),
										name->aside ? SCHEMA : "pg_catalog", bare_name(name)));
		paq_row_add(&row, BoolGetDatum(name->aside), false);
		paq_row_add(&row, BoolGetDatum(find_untrusted(name) != NULL), false);
		paq_row_add(&row, others_datum(name), false);
		paq_row_add_text(&row, move_command(name, name->aside ? "pg_catalog" : SCHEMA));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
	}
	return (Datum) 0;
}

/*
 * audit_queue.publications() returns setof text
 *
 * Publications that carry the table.
 */
Datum
audit_queue_publications(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	ListCell   *lc;

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	foreach(lc, paq_table_publications())
	{
		PaqRow		row = {0};

		paq_row_add_text(&row, lfirst(lc));
		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, row.values, row.nulls);
	}
	return (Datum) 0;
}

/*
 * audit_queue.make_table() returns boolean
 *
 * Makes the table before a loader needs it; false if it is there.  For superusers.
 */
Datum
audit_queue_make_table(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(paq_table_make());
}

/*
 * audit_queue.drop_table() returns boolean
 *
 * Drops the table if no loader has written to it; false if one has, or if there is none.
 * For superusers.
 */
Datum
audit_queue_drop_table(PG_FUNCTION_ARGS)
{
	PG_RETURN_BOOL(paq_table_drop());
}

/*
 * audit_queue.no_table() returns trigger
 *
 * Somebody restores what load_state had where there is no table.
 */
Datum
audit_queue_no_table(PG_FUNCTION_ARGS)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("this database has no table for audit records"),
			 errhint("To restore a dump of one, call %s.make_table() before.", SCHEMA)));
	PG_RETURN_NULL();
}
