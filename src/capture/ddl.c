/*-------------------------------------------------------------------------
 *
 * ddl.c
 *		Event triggers, which know the objects that a DDL statement concerns.
 *
 * Each object has a record of its own, in place of the record that the
 * statement would have without event triggers.
 *
 * Where nothing can be recorded these functions do nothing.  In particular they
 * do not fail, because then all DDL would fail.  They raise an error only if the
 * text of a statement is needed in another record and cannot be kept.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "catalog/pg_am.h"
#include "catalog/pg_authid.h"
#include "catalog/pg_cast.h"
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_event_trigger.h"
#include "catalog/pg_extension.h"
#include "catalog/pg_foreign_data_wrapper.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_language.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_publication.h"
#include "catalog/pg_subscription.h"
#include "catalog/pg_tablespace.h"
#include "catalog/pg_user_mapping.h"
#include "commands/event_trigger.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "sqlfunc.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"

PG_FUNCTION_INFO_V1(pg_audit_queue_ddl_command_end);
PG_FUNCTION_INFO_V1(pg_audit_queue_sql_drop);

/* In place: upper case of ASCII letters. */
static char *
upper_case(char *str)
{
	for (char *p = str; p != NULL && *p != '\0'; p++)
		*p = pg_ascii_toupper((unsigned char) *p);
	return str;
}

/* A text column of a row by its name, palloc'ed; NULL if it is null or missing. */
static char *
get_column_text(TupleTableSlot *slot, const char *column)
{
	const int	number = SPI_fnumber(slot->tts_tupleDescriptor, column);
	Datum		value;
	bool		isnull;

	if (number <= 0)
		return NULL;
	value = slot_getattr(slot, number, &isnull);
	return isnull ? NULL : TextDatumGetCString(value);
}

/* The statement that fires the event trigger; NULL if it is not recorded. */
static PaqStatement *
firing_statement(FunctionCallInfo fcinfo, uint32 classes)
{
	PaqStatement *statement;

	if (!CALLED_AS_EVENT_TRIGGER(fcinfo))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("function was not called by an event trigger")));
	if ((paq_wanted_classes & classes) == 0 || !paq_capture_possible())
		return NULL;
	statement = paq_current_statement();
	return statement != NULL && statement->query_desc == NULL ? statement : NULL;
}

/* Can objects of the catalog be in no schema, nor belong to something that is? */
static bool
is_without_schema(Oid catalog)
{
	switch (catalog)
	{
		case AuthIdRelationId:
		case AccessMethodRelationId:
		case CastRelationId:
		case DatabaseRelationId:
		case EventTriggerRelationId:
		case ExtensionRelationId:
		case ForeignDataWrapperRelationId:
		case ForeignServerRelationId:
		case LanguageRelationId:
		case PublicationRelationId:
		case SubscriptionRelationId:
		case TableSpaceRelationId:
		case UserMappingRelationId:
			return true;
		default:
			return false;
	}
}

/*
 * The name of an object in the schema, as rules have it: the identity without the
 * schema, the arguments of a function, the column of a table, and quotes.
 */
static const char *
object_name(const char *identity, const char *schema)
{
	const char *quoted = quote_identifier(schema);
	const char *name = identity;
	StringInfoData buf;

	if (strncmp(name, quoted, strlen(quoted)) == 0 && name[strlen(quoted)] == '.')
		name += strlen(quoted) + 1;
	if (*name != '"')
		return pnstrdup(name, strcspn(name, ".("));
	initStringInfo(&buf);
	while (*++name != '\0' && (*name != '"' || *++name == '"'))
		appendStringInfoChar(&buf, *name);
	return buf.data;
}

/* The object that a row is about, for rules; relid invalid: it is no relation */
static void
describe_object(PaqSubject *subject, TupleTableSlot *row, Oid relid)
{
	const Oid	catalog = paq_slot_oid(row, "classid");
	const char *schema = get_column_text(row, "schema_name");
	const char *identity = get_column_text(row, "object_identity");
	const char *name = get_column_text(row, "object_name");

	subject->may_look_up = true;
	if (OidIsValid(relid))
	{
		subject->object = PAQ_OBJECT_RELATION;
		subject->relid = relid;
	}
	else if (catalog == NamespaceRelationId && identity != NULL)
	{
		/* a schema is all that is in it */
		subject->object = PAQ_OBJECT_NAMED;
		subject->schema = name ? name : identity;
		subject->name = NULL;
	}
	else if (schema != NULL && identity != NULL)
	{
		subject->object = PAQ_OBJECT_NAMED;
		subject->schema = schema;
		subject->name = name ? name : object_name(identity, schema);
	}
	else
		subject->object = OidIsValid(catalog) && is_without_schema(catalog) ?
			PAQ_OBJECT_NONE : PAQ_OBJECT_UNKNOWN;
}

/*
 * Have rules decide about the relations that the object of a row is or belongs to, and add what
 * they decided before the statement changed them.  Returns false if there are none.
 */
static bool
choose_owners(const PaqStatement *statement, TupleTableSlot *row, PaqSubject subject,
			  PaqChoice *choice)
{
	List	   *relids = paq_relations_of(paq_slot_oid(row, "classid"), paq_slot_oid(row, "objid"),
									NULL);
	ListCell   *lc;

	subject.object = PAQ_OBJECT_RELATION;
	subject.may_look_up = true;
	foreach(lc, relids)
	{
		subject.relid = lfirst_oid(lc);
		paq_named_add(statement, subject.relid, choice);
		(void) paq_choose(choice, &subject);
	}
	return relids != NIL;
}

/*
 * Record the object that a row is about, whose type and name are those of object.
 * dropped: it is gone.
 */
static void
record_row(PaqStatement *statement, const PaqCommand *command, const PaqObject *object,
		   TupleTableSlot *row, bool dropped)
{
	PaqSubject	subject = {.object = PAQ_OBJECT_NONE};
	PaqChoice	choice = {NULL};
	Oid			relid = InvalidOid;
	bool		owned;

	statement->recorded = false;
	if (likely(statement->choice.rules == NULL))
	{
		paq_record_statement(statement, command, object, NULL);
		return;
	}
	statement->objects_known = true;
	if (paq_slot_oid(row, "classid") == RelationRelationId)
		relid = paq_slot_oid(row, "objid");
	choice.rules = statement->choice.rules;
	paq_named_add(statement, relid, &choice);
	if (!dropped || (choice.best == NULL && choice.later == NIL && !choice.by_rules &&
					 !choice.by_settings))
	{
		/* what is dropped of a relation may leave the relation */
		if (dropped && get_rel_relkind(relid) == '\0')
			relid = InvalidOid;
		subject.class = paq_classify(command);
		subject.tag = command->tag;
		subject.temp = statement->temporary;
		owned = !dropped && choose_owners(statement, row, subject, &choice);
		describe_object(&subject, row, relid);

		/* A publication of a whole schema may be about any table. */
		if (subject.object == PAQ_OBJECT_NONE && statement->unnamed &&
			paq_slot_oid(row, "classid") == PublicationRelationId)
			subject.object = PAQ_OBJECT_UNKNOWN;
		if (!owned || subject.object != PAQ_OBJECT_UNKNOWN)
			(void) paq_choose(&choice, &subject);
	}
	paq_record_statement(statement, command, object, &choice);
	list_free(choice.later);
}

/*
 * Event triggers have told of objects of the statement.  It concerns other relations, too: what
 * it has dropped belonged to them, say.  Record those that rules record.
 */
static void
record_others(PaqStatement *statement)
{
	PaqNamedRelation *named;
	HASH_SEQ_STATUS all;

	if (likely(statement->named == NULL) || !statement->objects_known)
		return;
	hash_seq_init(&all, statement->named);
	while ((named = hash_seq_search(&all)) != NULL)
	{
		PaqChoice	choice = {.rules = statement->choice.rules};
		PaqObject	object = {false, NULL, NULL};

		if (!paq_named_needs_record(named))
			continue;
		paq_named_add(statement, named->relid, &choice);
		if (choice.best == NULL && choice.later == NIL)
			continue;
		object.type = paq_relkind_name(get_rel_relkind(named->relid));
		object.name = paq_relation_name(named->relid);
		statement->recorded = false;
		paq_record_statement(statement, &statement->command, &object, &choice);
		list_free(choice.later);
	}
}

/* A row of pg_event_trigger_ddl_commands() */
static void
record_command(void *arg, TupleTableSlot *row)
{
	PaqStatement *statement = arg;
	PaqCommand	command = statement->command;
	PaqObject	object = {false, NULL, NULL};
	char	   *tag = get_column_text(row, "command_tag");

	object.type = upper_case(get_column_text(row, "object_type"));
	object.name = get_column_text(row, "object_identity");
	if (tag != NULL)
		command.tag = GetCommandTagEnum(tag);
	if (command.tag == CMDTAG_GRANT || command.tag == CMDTAG_REVOKE)
		command.node = T_GrantStmt;
	record_row(statement, &command, &object, row, false);
}

/*
 * ON ddl_command_end: objects that a statement has created or altered.
 */
Datum
pg_audit_queue_ddl_command_end(PG_FUNCTION_ARGS)
{
	PaqStatement *statement;
	EventTriggerData *data;

	statement = firing_statement(fcinfo, PAQ_CLASS_BIT(PAQ_CLASS_DDL) |
								 PAQ_CLASS_BIT(PAQ_CLASS_ROLE));
	if (statement == NULL)
		PG_RETURN_NULL();

	data = (EventTriggerData *) fcinfo->context;
	statement->command.level = GetCommandLogLevel(data->parsetree);
	statement->command.node = nodeTag(data->parsetree);
	statement->command.tag = CreateCommandTag(data->parsetree);
	paq_use_rows(F_PG_EVENT_TRIGGER_DDL_COMMANDS, record_command, statement);
	record_others(statement);
	paq_queue_admit_text();
	PG_RETURN_NULL();
}

/*
 * A row of pg_event_trigger_dropped_objects().  As in pgaudit, objects without
 * a schema and the types that come with tables are left out.
 */
static void
record_drop(void *arg, TupleTableSlot *row)
{
	PaqStatement *statement = arg;
	PaqObject	object = {false, NULL, NULL};
	char	   *type = get_column_text(row, "object_type");
	char	   *schema = get_column_text(row, "schema_name");

	if (type == NULL || schema == NULL ||
		pg_strcasecmp(type, "type") == 0 || strcmp(schema, "pg_toast") == 0)
		return;
	object.type = upper_case(type);
	object.name = get_column_text(row, "object_identity");
	record_row(statement, &statement->command, &object, row, true);
}

/*
 * ON sql_drop: objects that a statement has dropped.
 */
Datum
pg_audit_queue_sql_drop(PG_FUNCTION_ARGS)
{
	PaqStatement *statement;

	statement = firing_statement(fcinfo, PAQ_CLASS_BIT(PAQ_CLASS_DDL));
	if (statement == NULL)
		PG_RETURN_NULL();
	paq_use_rows(F_PG_EVENT_TRIGGER_DROPPED_OBJECTS, record_drop, statement);
	paq_queue_admit_text();
	PG_RETURN_NULL();
}
