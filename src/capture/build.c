/*-------------------------------------------------------------------------
 *
 * build.c
 *		Making records of statements.
 *
 * A record is made at the moment when pgaudit would log it, and gets its ids
 * then; it is encoded into the pending area at once, and published later (see
 * publish.c).  Two exceptions concern the ids only: a utility statement has a
 * provisional record from its beginning, so that a crash cannot hide it,
 * which gets its ids later or gives way to records with names; and with
 * log_rows pgaudit logs executor statements when they end, so that is when
 * their records, made at the beginning, get ids.
 *
 * Must not raise, except for what output functions of parameters' types do,
 * and for an interrupt after showing a record to the client.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/sysattr.h"
#include "capture/capture_internal.h"
#include "catalog/catalog.h"
#include "commands/extension.h"
#include "compat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "stats.h"

/* Ids given to top-level statements of this session so far. */
static int64 statement_count = 0;

static const PaqObject no_object = {false, NULL, NULL};

/*
 * Give the statement its ids, if it has none: those of the group of whatever
 * top-level statement is being executed.
 */
static void
next_ids(PaqStatement *statement, int64 *statement_id, int64 *substatement_id)
{
	PaqGroup   *group = paq_frame ? paq_frame->group : &statement->group;

	if (group->statement_id == 0)
		group->statement_id = ++statement_count;
	*statement_id = group->statement_id;
	*substatement_id = ++group->substatements;
}

void
paq_assign_ids(PaqStatement *statement)
{
	if (statement->statement_id == 0)
		next_ids(statement, &statement->statement_id,
				 &statement->substatement_id);
}

static inline bool
class_is_audited(PaqClass class)
{
	return (paq_log_classes & PAQ_CLASS_BIT(class)) != 0;
}

/*
 * Does session auditing want the statement?  Statements of an extension's
 * script are not recorded, because the text of each would be the script; the
 * statement that runs the script is.
 */
bool
paq_statement_is_audited(const PaqStatement *statement)
{
	return class_is_audited(paq_classify(&statement->command)) &&
		!creating_extension;
}

/* Which texts a record has, and whether it shows rows. */
static uint32
setting_flags(bool text_recorded)
{
	uint32		flags = paq_log_rows ? PAQ_RECORD_ROWS : 0;

	if (!paq_log_statement)
		flags |= PAQ_RECORD_STMT_NOT_LOGGED;
	else if (paq_log_statement_once && text_recorded)
		flags |= PAQ_RECORD_STMT_PREVIOUS;
	else if (!paq_log_parameter)
		flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	return flags;
}

static inline bool
has_text(uint32 flags)
{
	return (flags & (PAQ_RECORD_STMT_NOT_LOGGED | PAQ_RECORD_STMT_PREVIOUS)) == 0;
}

static inline void
set_text(PaqText *texts, PaqField field, const char *str)
{
	PaqText    *text = &texts[field - PAQ_NSESSION_FIELDS];

	text->data = str;
	text->len = str ? strlen(str) : 0;
}

static void
fill_header(PaqRecordHeader *header, const PaqStatement *statement,
			PaqClass class, uint32 flags)
{
	MemSet(header, 0, sizeof(*header));
	header->kind = PAQ_KIND_AUDIT;
	header->audit_class = class;
	header->flags = flags;
	header->start_time = statement->start_time;
	header->session_start = MyStartTimestamp;
	header->rows = -1;
	header->query_id = statement->query_id;
	header->stmt_location = statement->location;
	header->stmt_len = statement->len;
	header->vxid_proc = paq_vxid_proc();
	header->vxid_lxid = paq_vxid_lxid();
	header->pid = MyProcPid;
	header->encoding = GetDatabaseEncoding();
}

/*
 * Encode a record.  params is NULL for one that has none.  may_lookup is false
 * where the catalogs must not be read.  Returns NULL when out of memory.
 */
static PaqPending *
create_record(PaqStatement *statement, PaqClass class, CommandTag tag,
			  const PaqObject *object, ParamListInfo params, uint32 flags,
			  bool may_lookup)
{
	PaqRecordHeader header;
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	PaqText		encoded = {NULL, 0};
	const PaqSessionBlock *session;
	PaqPending *pending;
	bool		complete;

	if (object->granted)
		flags |= PAQ_RECORD_OBJECT;
	if (has_text(flags))
	{
		set_text(texts, PAQ_FIELD_STATEMENT, statement->text);
		if ((flags & PAQ_RECORD_PARAM_NOT_LOGGED) == 0)
		{
			encoded = paq_encode_params(params, &flags);
			texts[PAQ_FIELD_PARAMETER - PAQ_NSESSION_FIELDS] = encoded;
		}
	}
	set_text(texts, PAQ_FIELD_COMMAND, GetCommandTagName(tag));
	set_text(texts, PAQ_FIELD_OBJECT_TYPE, object->type);
	set_text(texts, PAQ_FIELD_OBJECT_NAME, object->name);

	session = paq_session_block(may_lookup, &complete);
	if (!complete)
		flags |= PAQ_RECORD_INCOMPLETE;
	fill_header(&header, statement, class, flags | statement->flags);

	pending = paq_pending_create(&header, session, texts);
	if (header.flags & PAQ_RECORD_INCOMPLETE)
		paq_stats_add(&paq_my_stats->incomplete, 1);
	if (pending == NULL)
		paq_stats_add(&paq_my_stats->dropped, 1);
	if (encoded.len > 0)
		pfree((char *) encoded.data);
	return pending;
}

static void
set_ids(PaqPending *pending, int64 statement_id, int64 substatement_id)
{
	PaqRecordHeader *header = paq_pending_header(pending);

	header->statement_id = statement_id;
	header->substatement_id = substatement_id;
}

/*
 * Before a utility statement is executed: make a record that says it is
 * running.  It has no ids yet.
 */
void
paq_record_provisional(PaqStatement *statement)
{
	statement->provisional =
		create_record(statement, paq_classify(&statement->command),
					  statement->command.tag, &no_object, statement->params,
					  setting_flags(false), true);
	statement->provisional_tag = statement->command.tag;
}

/*
 * The provisional record, if it is the one that would be made now; else NULL.
 */
static PaqPending *
take_provisional(PaqStatement *statement, PaqClass class, CommandTag tag,
				 const PaqObject *object, uint32 flags)
{
	PaqPending *pending = statement->provisional;
	const uint32 mask = PAQ_RECORD_ROWS | PAQ_RECORD_STMT_NOT_LOGGED |
		PAQ_RECORD_STMT_PREVIOUS | PAQ_RECORD_PARAM_NOT_LOGGED;

	if (pending == NULL || object->granted || object->type != NULL ||
		object->name != NULL || tag != statement->provisional_tag ||
		paq_pending_header(pending)->audit_class != class ||
		(paq_pending_header(pending)->flags & mask) != flags)
		return NULL;
	statement->provisional = NULL;
	return pending;
}

/*
 * Record the statement, as command and, unless object is NULL, with object,
 * if settings or grants say so and it is not recorded yet.
 */
void
paq_record_statement(PaqStatement *statement, const PaqCommand *command,
					 const PaqObject *object)
{
	PaqClass	class = paq_classify(command);
	bool		late = paq_log_rows && statement->query_desc != NULL;
	uint32		flags;
	PaqPending *pending;

	if (object == NULL)
		object = &no_object;
	if (statement->recorded || creating_extension ||
		(!object->granted && !class_is_audited(class)))
		return;

	if (!late)
		paq_assign_ids(statement);
	flags = setting_flags(statement->text_recorded);
	pending = take_provisional(statement, class, command->tag, object, flags);
	if (pending == NULL)
	{
		pending = create_record(statement, class, command->tag, object,
								statement->params, flags, true);
		if (pending == NULL)
			return;
	}
	if (statement->provisional != NULL)
	{
		paq_pending_free(statement->provisional);
		statement->provisional = NULL;
	}

	set_ids(pending, statement->statement_id, statement->substatement_id);
	paq_pending_header(pending)->rows = statement->rows;
	statement->recorded = true;
	statement->text_recorded |= has_text(flags);
	paq_entry_add(statement, pending, late, true);
	if (paq_log_client && !late)
		paq_show_client(pending);
}

/*
 * Record that the statement calls a function, or is about to; name may be
 * NULL.  The record has ids of its own, and the statement's outcome.
 */
void
paq_record_function(PaqStatement *statement, const char *name)
{
	PaqObject	object = {false, "FUNCTION", name};
	int64		statement_id;
	int64		substatement_id;
	PaqPending *pending;

	next_ids(statement, &statement_id, &substatement_id);
	pending = create_record(statement, PAQ_CLASS_FUNCTION, CMDTAG_EXECUTE,
							&object, NULL, setting_flags(false), true);
	if (pending == NULL)
		return;
	set_ids(pending, statement_id, substatement_id);
	paq_entry_add(statement, pending, false, false);
	if (paq_log_client)
		paq_show_client(pending);
}

/*
 * What a denied statement counts as: what it is as a whole or, if that is not
 * audited, what it does with one of its relations.  Returns false if none of
 * it is audited.  Reads no catalog.
 */
static bool
denied_command(const PaqStatement *statement, PlannedStmt *plan,
			   PaqCommand *command)
{
	List	   *perminfos = paq_stmt_perm_infos(plan);
	bool		only_catalog = true;
	ListCell   *lc;

	*command = statement->command;
	foreach(lc, plan->rtable)
	{
		RangeTblEntry *rte = lfirst_node(RangeTblEntry, lc);
		PaqRtePerms perms = paq_rte_perms(rte, perminfos);

		if (perms.requiredPerms == 0 || !OidIsValid(rte->relid) ||
			(!paq_log_catalog && IsCatalogRelationOid(rte->relid)))
			continue;
		only_catalog = false;
		if (!class_is_audited(paq_classify(command)))
			*command = paq_perms_command(perms.requiredPerms, rte->rellockmode,
										 plan->commandType);
	}
	return !only_catalog && class_is_audited(paq_classify(command));
}

/*
 * Record a statement that failed before anything could be recorded of it,
 * most likely because permissions are missing.  For use while the error is
 * being handled: reads no catalog and calls no output function.
 */
void
paq_record_denied(PaqStatement *statement, PlannedStmt *plan)
{
	uint32		flags = setting_flags(statement->text_recorded);
	PaqCommand	command;
	PaqPending *pending;

	if (creating_extension || !denied_command(statement, plan, &command))
		return;
	if (has_text(flags))
		flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	if (paq_log_parameter && statement->params != NULL)
		flags |= PAQ_RECORD_INCOMPLETE;

	paq_assign_ids(statement);
	pending = create_record(statement, paq_classify(&command), command.tag,
							&no_object, NULL, flags, false);
	if (pending == NULL)
		return;
	set_ids(pending, statement->statement_id, statement->substatement_id);
	paq_entry_add(statement, pending, false, true);
}
