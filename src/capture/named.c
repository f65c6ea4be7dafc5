/*-------------------------------------------------------------------------
 *
 * named.c
 *		What a utility statement is about, for rules: the relations that it names.
 *
 * Rules decide before the statement is executed, while its relations are there; and
 * meanwhile, when PostgreSQL tells of each object that it makes, changes or drops
 * (object_access.c): what belongs to a relation concerns the relation, by whatever name
 * it is called, and though it is reached by CASCADE or with a schema only.  What its
 * objects have been, event triggers tell at its end (ddl.c).  COPY is decided about once
 * more when its permissions are checked (relation.c).  If none of that can be known, rules
 * that name objects count for recording.
 *
 * Names are looked up without locks, as relations are found before PostgreSQL locks
 * them, and without permissions, whose lack is for PostgreSQL to complain of.
 *
 * Must not raise, except for what catalog lookups and choice.c may.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "extension.h"
#include "nodes/makefuncs.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"

/* The relation that a name in a statement means now; invalid if there is none */
Oid
paq_named_relation(const RangeVar *name)
{
	Oid			schema;

	if (name == NULL)
		return InvalidOid;
	if (name->schemaname == NULL)
		return RelnameGetRelid(name->relname);
	schema = LookupNamespaceNoError(name->schemaname);
	return OidIsValid(schema) ? get_relname_relid(name->relname, schema) :
		InvalidOid;
}

/* Names as DROP and COMMENT have them: lists of strings */
static List *
names_of_lists(List *objects)
{
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, objects)
		if (IsA(lfirst(lc), List) && list_length(lfirst(lc)) <= 3)
			names = lappend(names, makeRangeVarFromNameList(lfirst(lc)));
	return names;
}

/* Are objects of the type relations? */
static bool
is_relation_type(ObjectType type)
{
	switch (type)
	{
		case OBJECT_FOREIGN_TABLE:
		case OBJECT_INDEX:
		case OBJECT_MATVIEW:
		case OBJECT_SEQUENCE:
		case OBJECT_TABLE:
		case OBJECT_VIEW:
			return true;
		default:
			return false;
	}
}

/* The last name is that of something that belongs to the relation before it. */
static bool
belongs_to_relation(ObjectType type)
{
	return type == OBJECT_COLUMN || type == OBJECT_TRIGGER || type == OBJECT_RULE ||
		type == OBJECT_POLICY || type == OBJECT_TABCONSTRAINT;
}

/* The relation of each name, without what belongs to it */
static List *
names_without_last(List *objects)
{
	List	   *lists = NIL;
	ListCell   *lc;

	foreach(lc, objects)
	{
		List	   *name = lfirst(lc);

		if (IsA(name, List) && list_length(name) >= 2)
			lists = lappend(lists, list_truncate(list_copy(name), list_length(name) - 1));
	}
	return names_of_lists(lists);
}

static List *
names_of_objects(ObjectType type, List *objects)
{
	if (is_relation_type(type))
		return names_of_lists(objects);
	return belongs_to_relation(type) ? names_without_last(objects) : NIL;
}

static List *
names_of_vacuum(List *relations)
{
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, relations)
		names = lappend(names, lfirst_node(VacuumRelation, lc)->relation);
	return names;
}

static List *
names_of_grant(const GrantStmt *grant)
{
	return grant->targtype == ACL_TARGET_OBJECT &&
		(grant->objtype == OBJECT_TABLE || grant->objtype == OBJECT_SEQUENCE) ?
		grant->objects : NIL;
}

/*
 * The relations whose definition a new one takes over, and the one of which it is a partition: what
 * is in a default partition is looked at.
 */
static List *
names_of_create(const CreateStmt *create)
{
	List	   *names = create->partbound != NULL ? list_copy(create->inhRelations) : NIL;
	ListCell   *lc;

	foreach(lc, create->tableElts)
		if (IsA(lfirst(lc), TableLikeClause))
			names = lappend(names, ((TableLikeClause *) lfirst(lc))->relation);
	return names;
}

/* The tables that a publication names */
static List *
names_of_publication(List *objects)
{
	List	   *names = NIL;
	ListCell   *lc;

	foreach(lc, objects)
	{
		const PublicationObjSpec *object = lfirst_node(PublicationObjSpec, lc);

		if (object->pubobjtype == PUBLICATIONOBJ_TABLE)
			names = lappend(names, object->pubtable->relation);
	}
	return names;
}

/* The relations that the statement names, RangeVars */
static List *
names_of(Node *parsetree)
{
	switch (nodeTag(parsetree))
	{
		case T_AlterObjectSchemaStmt:
			return list_make1(((AlterObjectSchemaStmt *) parsetree)->relation);
		case T_AlterPolicyStmt:
			return list_make1(((AlterPolicyStmt *) parsetree)->table);
		case T_AlterPublicationStmt:
			return names_of_publication(((AlterPublicationStmt *) parsetree)->pubobjects);
		case T_AlterSeqStmt:
			return list_make1(((AlterSeqStmt *) parsetree)->sequence);
		case T_AlterTableStmt:
			return paq_tables_of_alter((AlterTableStmt *) parsetree);
		case T_CommentStmt:
			return names_of_objects(((CommentStmt *) parsetree)->objtype,
									list_make1(((CommentStmt *) parsetree)->object));
		case T_CopyStmt:
			return list_make1(((CopyStmt *) parsetree)->relation);
		case T_CreateForeignTableStmt:
		case T_CreateStmt:
			return names_of_create((CreateStmt *) parsetree);
		case T_CreatePolicyStmt:
			return list_make1(((CreatePolicyStmt *) parsetree)->table);
		case T_CreatePublicationStmt:
			return names_of_publication(((CreatePublicationStmt *) parsetree)->pubobjects);
		case T_CreateTrigStmt:
			return list_make1(((CreateTrigStmt *) parsetree)->relation);
		case T_DropStmt:
			return names_of_objects(((DropStmt *) parsetree)->removeType,
									((DropStmt *) parsetree)->objects);
		case T_GrantStmt:
			return names_of_grant((GrantStmt *) parsetree);
		case T_IndexStmt:
			return list_make1(((IndexStmt *) parsetree)->relation);
		case T_LockStmt:
			return ((LockStmt *) parsetree)->relations;
		case T_RefreshMatViewStmt:
			return list_make1(((RefreshMatViewStmt *) parsetree)->relation);
		case T_ReindexStmt:
			return list_make1(((ReindexStmt *) parsetree)->relation);
		case T_RenameStmt:
			return list_make1(((RenameStmt *) parsetree)->relation);
		case T_RuleStmt:
			return list_make1(((RuleStmt *) parsetree)->relation);
		case T_SecLabelStmt:
			return names_of_objects(((SecLabelStmt *) parsetree)->objtype,
									list_make1(((SecLabelStmt *) parsetree)->object));
		case T_TruncateStmt:
			return ((TruncateStmt *) parsetree)->relations;
		case T_VacuumStmt:
			return names_of_vacuum(((VacuumStmt *) parsetree)->rels);
		case T_ViewStmt:
			return list_make1(((ViewStmt *) parsetree)->view);
		default:
			return paq_cluster_relations(parsetree);
	}
}

/* Returns true if the relation is a temporary one. */
static bool
is_temporary(Oid relid)
{
	return get_rel_persistence(relid) == RELPERSISTENCE_TEMP;
}

/* What is known of the object of a statement that names no relation that is there */
static PaqObjectKnown
object_of(Node *parsetree, PaqClass class)
{
	switch (nodeTag(parsetree))
	{
			/* these have none in a schema */
		case T_AlterDatabaseSetStmt:
		case T_AlterDatabaseStmt:
		case T_AlterEventTrigStmt:
		case T_AlterSystemStmt:
		case T_AlterTableSpaceOptionsStmt:
		case T_CreateEventTrigStmt:
		case T_CreateTableSpaceStmt:
		case T_CreatedbStmt:
		case T_DropTableSpaceStmt:
		case T_DropdbStmt:
			return PAQ_OBJECT_NONE;
		case T_AlterDefaultPrivilegesStmt:
		case T_GrantStmt:
			return PAQ_OBJECT_UNKNOWN;

			/* without a table they are about all in a schema or a database */
		case PAQ_CLUSTER_NODE:
		case T_ReindexStmt:
		case T_VacuumStmt:
			return PAQ_OBJECT_UNKNOWN;
		default:
			return class == PAQ_CLASS_DDL ? PAQ_OBJECT_UNKNOWN : PAQ_OBJECT_NONE;
	}
}

/* Note what has been decided about a relation that the statement concerns. */
static void
note_named(PaqStatement *statement, Oid relid, const PaqDecision *decision)
{
	PaqNamedRelation *named;
	bool		found;

	if (statement->named == NULL)
	{
		HASHCTL		info = {.keysize = sizeof(Oid), .entrysize = sizeof(PaqNamedRelation)};

		statement->named = hash_create("pg_audit_queue named relations", 16, &info,
									   HASH_ELEM | HASH_BLOBS);
	}
	named = hash_search(statement->named, &relid, HASH_ENTER, &found);
	if (!found)
	{
		memset(named->decision, 0, sizeof(named->decision));
		named->owner = InvalidOid;
		named->shown = false;
	}
	for (int i = 0; i < lengthof(named->decision); i++)
	{
		if (named->decision[i] == decision)
			return;
		if (named->decision[i] == NULL)
		{
			named->decision[i] = decision;
			return;
		}
	}
	Assert(false);				/* see PaqNamedRelation */
}

/* The relation, which has been noted, belongs to another one. */
static void
note_owner(PaqStatement *statement, Oid relid, Oid owner)
{
	PaqNamedRelation *named = hash_search(statement->named, &relid, HASH_FIND, NULL);

	if (named != NULL)
		named->owner = owner;
}

/*
 * Add what has been decided about a named relation, whose object is being recorded.  What it
 * belongs to needs no record of its own then.
 */
static void
add_decisions(const PaqStatement *statement, PaqNamedRelation *named, PaqChoice *choice)
{
	PaqNamedRelation *owner;

	for (int i = 0; i < lengthof(named->decision) && named->decision[i] != NULL; i++)
		paq_choice_add(choice, named->decision[i]);
	named->shown = true;
	owner = OidIsValid(named->owner) ?
		hash_search(statement->named, &named->owner, HASH_FIND, NULL) : NULL;
	if (owner != NULL)
		owner->shown = true;
}

/*
 * Returns true if the relation needs a record of its own, because no object of the statement
 * has been recorded for it: not what is gone, which event triggers tell of, nor what belongs to
 * another relation.
 */
bool
paq_named_needs_record(const PaqNamedRelation *named)
{
	List	   *relids;
	bool		belongs;

	if (named->shown || !OidIsValid(named->relid) || get_rel_relkind(named->relid) == '\0')
		return false;
	relids = paq_relations_of(RelationRelationId, named->relid, NULL);
	belongs = list_length(relids) > 1;
	list_free(relids);
	return !belongs;
}

/*
 * Add what rules decided about the relation before the statement changed or dropped it.
 * What gets another name or schema may have been anything.
 */
void
paq_named_add(const PaqStatement *statement, Oid relid, PaqChoice *choice)
{
	PaqNamedRelation *named;
	HASH_SEQ_STATUS all;

	if (statement->named == NULL)
		return;
	if (statement->command.node != T_RenameStmt &&
		statement->command.node != T_AlterObjectSchemaStmt)
	{
		named = OidIsValid(relid) ? hash_search(statement->named, &relid, HASH_FIND, NULL) : NULL;
		if (named != NULL)
			add_decisions(statement, named, choice);
		return;
	}
	hash_seq_init(&all, statement->named);
	while ((named = hash_seq_search(&all)) != NULL)
		add_decisions(statement, named, choice);
}

/*
 * What PostgreSQL calls a statement that does this to a relation of the kind; the statement's own
 * tag if it has no word for it.
 */
static CommandTag
tag_for(const PaqStatement *statement, ObjectAccessType access, Oid relid)
{
	const char *verb = access == OAT_DROP ? "DROP" : "ALTER";
	char	   *name;
	CommandTag	tag;

	if (paq_classify(&statement->command) != PAQ_CLASS_DDL || access == OAT_POST_CREATE)
		return statement->command.tag;
	name = psprintf("%s %s", verb, paq_relkind_name(get_rel_relkind(relid)));
	tag = GetCommandTagEnum(name);
	pfree(name);
	return tag != CMDTAG_UNKNOWN ? tag : statement->command.tag;
}

/*
 * The statement makes, changes or drops an object, as PostgreSQL tells in the middle of it: have
 * the rules decide about the relations that the object is or belongs to.  A relation that is
 * being made cannot be seen yet: it is decided about at the end.
 */
void
paq_note_object(PaqStatement *statement, ObjectAccessType access, Oid catalog, Oid object)
{
	List	   *relids;
	ListCell   *lc;

	if (statement->choice.rules == NULL || !statement->chosen)
		return;
	relids = paq_relations_of(catalog, object, SnapshotSelf);
	foreach(lc, relids)
	{
		const Oid	relid = lfirst_oid(lc);
		const bool	itself = catalog == RelationRelationId && relid == object;
		const CommandTag tag = itself ? tag_for(statement, access, relid) : statement->command.tag;
		PaqSubject	subject = {.object = PAQ_OBJECT_RELATION, .may_look_up = true};

		if (get_rel_relkind(relid) == '\0')
			continue;
		subject.class = paq_classify(&statement->command);
		subject.temp = paq_policy.has_temp && is_temporary(relid);
		subject.relid = relid;
		subject.tag = statement->command.tag;
		note_named(statement, relid, paq_choose(&statement->choice, &subject));
		if (tag != statement->command.tag)
		{
			subject.tag = tag;
			note_named(statement, relid, paq_choose(&statement->choice, &subject));
		}
		if (itself && list_length(relids) > 1)
			note_owner(statement, relid, lsecond_oid(relids));
	}
	list_free(relids);
	if (statement->provisional == NULL && !statement->recorded &&
		dlist_is_empty(&statement->records) && paq_statement_is_audited(statement))
		paq_record_provisional(statement);
}

/*
 * Something that is no relation gets another name or schema: what do rules decide about
 * it by its old name?  If that has no schema, nobody knows here which it is.
 */
static void
choose_old_name(PaqStatement *statement, PaqSubject *subject, ObjectType type,
				Node *object, const char *name)
{
	List	   *names = NIL;

	if (object != NULL && IsA(object, ObjectWithArgs))
		names = ((ObjectWithArgs *) object)->objname;
	else if (object != NULL && IsA(object, List))
		names = (List *) object;
	subject->object = PAQ_OBJECT_UNKNOWN;
	if (type == OBJECT_SCHEMA)
	{
		/* a schema is all that is in it */
		subject->object = PAQ_OBJECT_NAMED;
		subject->schema = name;
		subject->name = NULL;
	}
	else if (list_length(names) >= 2 && IsA(linitial(names), String))
	{
		subject->object = PAQ_OBJECT_NAMED;
		subject->schema = strVal(list_nth(names, list_length(names) - 2));
		subject->name = strVal(llast(names));
	}
	else if (type == OBJECT_DATABASE || type == OBJECT_ROLE || type == OBJECT_TABLESPACE)
		subject->object = PAQ_OBJECT_NONE;
	note_named(statement, InvalidOid, paq_choose(&statement->choice, subject));
}

/*
 * The relations that have a column of the domain, whose values the statement checks: it adds a
 * constraint or NOT NULL, or validates one.
 */
static List *
relations_of_domain(Node *parsetree)
{
	const AlterDomainStmt *alter = (const AlterDomainStmt *) parsetree;
	Oid			schema;
	Oid			type;
	int			number;

	if (!IsA(parsetree, AlterDomainStmt) || strchr("COV", alter->subtype) == NULL)
		return NIL;
	number = list_length(alter->typeName);
	if (number == 1)
		type = TypenameGetTypid(strVal(linitial(alter->typeName)));
	else
	{
		schema = LookupNamespaceNoError(strVal(list_nth(alter->typeName, number - 2)));
		type = GetSysCacheOid2(TYPENAMENSP, Anum_pg_type_oid,
							   CStringGetDatum(strVal(llast(alter->typeName))),
							   ObjectIdGetDatum(schema));
	}
	return OidIsValid(type) ? paq_relations_with_type(type) : NIL;
}

/*
 * Returns true if the statement may concern relations that it does not name: what it makes,
 * or what is in schemas that it publishes.
 */
static bool
concerns_unnamed(Node *parsetree)
{
	List	   *objects = NIL;
	ListCell   *lc;

	switch (nodeTag(parsetree))
	{
		case T_CreateForeignTableStmt:
		case T_CreateStmt:
			return true;
		case T_AlterPublicationStmt:
			objects = ((AlterPublicationStmt *) parsetree)->pubobjects;
			break;
		case T_CreatePublicationStmt:
			objects = ((CreatePublicationStmt *) parsetree)->pubobjects;
			if (objects == NIL)
				return true;
			break;
		default:
			return false;
	}
	foreach(lc, objects)
		if (lfirst_node(PublicationObjSpec, lc)->pubobjtype != PUBLICATIONOBJ_TABLE)
			return true;
	return false;
}

static void
find_relations(PaqStatement *statement, Node *parsetree, List **relids, bool *temporary)
{
	ListCell   *lc;

	*relids = relations_of_domain(parsetree);
	foreach(lc, names_of(parsetree))
	{
		const Oid	relid = paq_named_relation(lfirst(lc));

		if (OidIsValid(relid))
			*relids = lappend_oid(*relids, relid);
	}
	*temporary = paq_policy.has_temp && *relids != NIL && !concerns_unnamed(parsetree);
	foreach(lc, *relids)
		*temporary = *temporary && is_temporary(lfirst_oid(lc));
}

/*
 * Have the rules decide about a utility statement that is about to be executed.
 */
void
paq_choose_utility(PaqStatement *statement, Node *parsetree)
{
	PaqSubject	subject = {.object = PAQ_OBJECT_RELATION, .may_look_up = true};
	List	   *relids;
	ListCell   *lc;

	subject.class = paq_classify(&statement->command);
	subject.tag = statement->command.tag;
	find_relations(statement, parsetree, &relids, &statement->temporary);

	/* what goes to or comes from the server's files and programs is not only temporary */
	if (IsA(parsetree, CopyStmt) && ((CopyStmt *) parsetree)->filename != NULL)
		statement->temporary = false;
	subject.temp = statement->temporary;
	if (IsA(parsetree, TruncateStmt))
		subject.perms = ACL_TRUNCATE;
	else if (IsA(parsetree, CopyStmt))
		subject.perms = ((CopyStmt *) parsetree)->is_from ? ACL_INSERT : ACL_SELECT;
	foreach(lc, relids)
	{
		subject.relid = lfirst_oid(lc);
		note_named(statement, subject.relid, paq_choose(&statement->choice, &subject));
	}
	if (relids == NIL && IsA(parsetree, RenameStmt))
	{
		RenameStmt *rename = (RenameStmt *) parsetree;

		choose_old_name(statement, &subject, rename->renameType, rename->object,
						rename->subname);
	}
	else if (relids == NIL && IsA(parsetree, AlterObjectSchemaStmt))
	{
		AlterObjectSchemaStmt *alter = (AlterObjectSchemaStmt *) parsetree;

		choose_old_name(statement, &subject, alter->objectType, alter->object, NULL);
	}
	else if (relids == NIL || concerns_unnamed(parsetree))
	{
		subject.object = relids == NIL ? object_of(parsetree, subject.class) : PAQ_OBJECT_UNKNOWN;
		subject.relid = InvalidOid;
		(void) paq_choose(&statement->choice, &subject);
		statement->unnamed = subject.object == PAQ_OBJECT_UNKNOWN;
	}
	statement->chosen = !IsA(parsetree, CopyStmt);
}
