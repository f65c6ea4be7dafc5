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
 * their records, made at the beginning, get ids, as do those of the relations
 * of a utility statement, which pgaudit has not then, and of those that are
 * truncated, whose records are made before permissions are checked.
 *
 * Must not raise, except for what output functions of parameters' types do, for
 * an interrupt after showing a record to the client, and, when a statement calls
 * very many functions, as it has to wait for room in the queue.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "commands/extension.h"
#include "compat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "nodes/plannodes.h"
#include "stats.h"

/* Most bytes of records of functions that wait for the outcome of their statement */
#define MAX_CALLS_BYTES		(1024 * 1024)

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

static void
assign_ids(PaqStatement *statement)
{
	if (statement->statement_id == 0)
		next_ids(statement, &statement->statement_id,
				 &statement->substatement_id);
}

/*
 * Give the record the ids that are known by now, without giving new ones: for
 * what pgaudit does not record, so that the ids of what it does are its.
 */
void
paq_known_ids(PaqStatement *statement, PaqPending *pending)
{
	PaqRecordHeader *header = paq_pending_header(pending);
	PaqGroup   *group = paq_frame ? paq_frame->group : &statement->group;

	header->statement_id = statement->statement_id != 0 ?
		statement->statement_id : group->statement_id;
	header->substatement_id = statement->substatement_id;
}

/*
 * Does the statement end in another group than it began in?  It is the query of
 * a cursor then, whose statement pgaudit has lost by now: so it gets no id, lest
 * all ids that follow are others than pgaudit's.
 */
static bool
has_outlived_group(const PaqStatement *statement)
{
	return statement->query_desc != NULL &&
		(paq_frame == NULL || paq_frame->group->number != statement->opened_in);
}

/*
 * The statement ends, and the record is one that gets its ids only now; as in
 * pgaudit, no new ones if the statement has failed.
 */
void
paq_late_ids(PaqStatement *statement, PaqPending *pending, bool failed)
{
	if (has_outlived_group(statement))
		return;
	if (!failed)
		assign_ids(statement);
	paq_known_ids(statement, pending);
}

/*
 * Does session auditing want the statement?  Statements of an extension's
 * script are not recorded, because the text of each would be the script; the
 * statement that runs the script is.
 */
bool
paq_statement_is_audited(const PaqStatement *statement)
{
	return paq_class_is_audited(paq_classify(&statement->command)) &&
		!creating_extension;
}

/*
 * Which texts a record has, and whether it shows rows.  previous: those that it has
 * in common with one before are left out.
 */
static uint32
setting_flags(bool previous)
{
	uint32		flags = paq_log_rows ? PAQ_RECORD_ROWS : 0;

	if (!paq_log_statement)
		flags |= PAQ_RECORD_STMT_NOT_LOGGED;
	else if (previous)
		flags |= PAQ_RECORD_STMT_PREVIOUS;
	else if (!paq_log_parameter)
		flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	return flags;
}

/* The same for a record of the statement itself, which has the text at least once. */
uint32
paq_setting_flags(const PaqStatement *statement)
{
	return setting_flags(statement->text_recorded &&
						 (paq_log_statement_once ||
						  statement->text_bytes > PAQ_MAX_TEXT_BYTES));
}

static inline bool
has_text(uint32 flags)
{
	return (flags & (PAQ_RECORD_STMT_NOT_LOGGED | PAQ_RECORD_STMT_PREVIOUS)) == 0;
}

/* Note how much text the record of the statement has. */
static void
count_text(PaqStatement *statement, PaqPending *pending)
{
	const PaqRecordHeader *header = paq_pending_header(pending);

	for (int i = PAQ_FIELD_STATEMENT; i <= PAQ_FIELD_PARAMETER; i++)
		if (header->field_len[i] != PAQ_NULL_LEN)
			statement->text_bytes += header->field_len[i];
}

/* The same for a record of the statement itself. */
void
paq_note_text(PaqStatement *statement, PaqPending *pending)
{
	statement->text_recorded |= has_text(paq_pending_header(pending)->flags);
	count_text(statement, pending);
}

static void
fill_header(PaqRecordHeader *header, const PaqStatement *statement,
			PaqClass class, uint32 flags)
{
	memset(header, 0, offsetof(PaqRecordHeader, field_len));
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

/* Does a record of the class show the statement without constants? */
static inline bool
has_places(const PaqStatement *statement, PaqClass class)
{
	return unlikely(paq_mask_classes != PAQ_CLASSES_NONE) &&
		(paq_masks_constants(class) ||
		 paq_masks_constants(paq_classify(&statement->command)));
}

/*
 * The statement's part of the text without secrets, or without constants.  While
 * an error is being handled, may_scan must be false.  The result is the
 * statement's.
 */
const PaqMasked *
paq_shown_text(PaqStatement *statement, bool may_scan, bool places)
{
	const char *part = paq_statement_part(statement);
	PaqMasked  *shown = &statement->shown;

	if (shown->text == NULL || shown->cut || statement->shown_places != places)
	{
		if (shown->copy != NULL)
			pfree(shown->copy);
		paq_mask_text(part ? part : statement->text,
					  (may_scan ? PAQ_MASK_SCAN : 0) |
					  (places ? PAQ_MASK_CONSTANTS : 0), shown);
		statement->shown_places = places;
	}
	return shown;
}

/*
 * As paq_create_record(), in place of the record replaced, unless that is NULL.
 */
static PaqPending *
create_record(PaqStatement *statement, PaqClass class, CommandTag tag,
			  const PaqObject *object, ParamListInfo params, uint32 flags,
			  bool may_lookup, PaqPending *replaced)
{
	PaqRecordHeader header;
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	PaqText		encoded = {NULL, 0};
	const PaqSessionBlock *session;
	const char *part = paq_statement_part(statement);
	const bool	first = replaced != NULL ?
		statement->provisional_first : paq_is_first(statement);
	const bool	places = has_places(statement, class);
	PaqPending *pending;
	bool		complete;

	if (object->granted)
		flags |= PAQ_RECORD_OBJECT;
	if (places)
		flags |= PAQ_RECORD_CONSTANTS;
	if (has_text(flags))
	{
		const PaqMasked *shown = paq_shown_text(statement, may_lookup, places);

		flags |= paq_masked_flags(shown);
		paq_set_text(texts, PAQ_FIELD_STATEMENT, shown->text);
		if ((flags & (PAQ_RECORD_PARAM_NOT_LOGGED | PAQ_RECORD_CONSTANTS)) == 0)
		{
			encoded = paq_encode_params(params, part ? part : statement->text,
										&flags);
			texts[PAQ_FIELD_PARAMETER - PAQ_NSESSION_FIELDS] = encoded;
		}
	}
	paq_set_text(texts, PAQ_FIELD_COMMAND, GetCommandTagName(tag));
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, object->type);
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, object->name);

	session = paq_session_block(may_lookup, &complete);
	if (!complete)
		flags |= PAQ_RECORD_INCOMPLETE;
	fill_header(&header, statement, class, flags | statement->flags);

	pending = replaced != NULL ?
		paq_pending_replace(replaced, &header, session, texts, first) :
		paq_pending_create(&header, session, texts, first);
	if (encoded.len > 0)
		pfree((char *) encoded.data);
	return pending;
}

/*
 * Encode a record.  params is NULL for one that has none.  may_lookup is false
 * where the catalogs must not be read.  Returns NULL when out of memory.
 */
PaqPending *
paq_create_record(PaqStatement *statement, PaqClass class, CommandTag tag,
				  const PaqObject *object, ParamListInfo params, uint32 flags,
				  bool may_lookup)
{
	return create_record(statement, class, tag, object, params, flags,
						 may_lookup, NULL);
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
	statement->provisional_first = paq_is_first(statement);
	statement->provisional =
		paq_create_record(statement, paq_classify(&statement->command),
						  statement->command.tag, &no_object, statement->params,
						  setting_flags(false), true);
	statement->provisional_tag = statement->command.tag;
}

/* Is the provisional record the one that would be made now? */
static bool
provisional_fits(PaqStatement *statement, PaqClass class, CommandTag tag,
				 const PaqObject *object, uint32 flags)
{
	PaqPending *pending = statement->provisional;
	const uint32 mask = PAQ_RECORD_ROWS | PAQ_RECORD_STMT_NOT_LOGGED |
		PAQ_RECORD_STMT_PREVIOUS | PAQ_RECORD_PARAM_NOT_LOGGED;

	return pending != NULL && !object->granted && object->type == NULL &&
		object->name == NULL && tag == statement->provisional_tag &&
		paq_pending_header(pending)->audit_class == class &&
		(paq_pending_header(pending)->flags & mask) == flags;
}

/*
 * Make a record in place of the provisional one, if there is one.  Without
 * memory for it that one has to do.
 */
static PaqPending *
replace_provisional(PaqStatement *statement, PaqClass class, CommandTag tag,
					const PaqObject *object, uint32 flags)
{
	PaqPending *provisional = statement->provisional;
	PaqPending *pending = create_record(statement, class, tag, object,
										statement->params, flags, true,
										provisional);

	if (pending == NULL && provisional != NULL)
	{
		paq_pending_header(provisional)->flags |= PAQ_RECORD_INCOMPLETE;
		return provisional;
	}
	return pending;
}

/*
 * Make a record of the statement, as command and with object, if settings or
 * grants say so and it is not recorded yet.  late says whether it gets its ids
 * when the statement ends, beside that it is not the record of the statement
 * itself, which has another one.
 */
static void
record_statement(PaqStatement *statement, const PaqCommand *command,
				 const PaqObject *object, bool late, bool beside)
{
	PaqClass	class = paq_classify(command);
	uint32		flags;
	PaqPending *pending;

	if ((statement->recorded && !beside) || creating_extension ||
		(!object->granted && !paq_class_is_audited(class)))
		return;

	if (!late)
		assign_ids(statement);
	flags = paq_setting_flags(statement);
	pending = statement->provisional;
	if (beside)
		pending = create_record(statement, class, command->tag, object,
								statement->params, flags, true, NULL);
	else if (!provisional_fits(statement, class, command->tag, object, flags))
		pending = replace_provisional(statement, class, command->tag, object,
									  flags);
	if (pending == NULL)
		return;
	if (!beside)
	{
		statement->provisional = NULL;
		statement->recorded = true;
	}

	set_ids(pending, statement->statement_id, statement->substatement_id);
	paq_pending_header(pending)->rows = statement->rows;
	paq_note_text(statement, pending);
	paq_entry_add(statement, pending, late, true);
	if (paq_log_client && !late)
		paq_show_client(statement, pending);
}

/* Record the statement, or what it does to an object, at this moment. */
void
paq_record_statement(PaqStatement *statement, const PaqCommand *command,
					 const PaqObject *object)
{
	record_statement(statement, command, object ? object : &no_object,
					 paq_log_rows && statement->query_desc != NULL, false);
}

/*
 * Record the statement, as command, where pgaudit does not record it: so the record
 * takes no ids.
 */
void
paq_record_unnumbered(PaqStatement *statement, const PaqCommand *command)
{
	PaqClass	class = paq_classify(command);
	PaqPending *pending;

	if (creating_extension || !paq_class_is_audited(class))
		return;
	pending = paq_create_record(statement, class, command->tag, &no_object,
								statement->params, paq_setting_flags(statement),
								true);
	if (pending == NULL)
		return;
	statement->recorded = true;
	paq_note_text(statement, pending);
	paq_known_ids(statement, pending);
	paq_entry_add(statement, pending, false, true);
	if (paq_log_client)
		paq_show_client(statement, pending);
}

/*
 * Record one of the statement's relations or, with object NULL, the statement
 * in front of them.  The record of a relation is that of a statement of the
 * executor; a utility statement has its own one beside it.
 */
void
paq_record_relation(PaqStatement *statement, const PaqCommand *command,
					const PaqObject *object)
{
	const bool	beside = object != NULL && statement->query_desc == NULL;

	if (object != NULL && !beside)
		statement->recorded = false;
	record_statement(statement, command, object ? object : &no_object,
					 paq_log_rows, beside);
}

/*
 * Record what a utility statement is about to do to an object that object
 * auditing selects, before it is known whether it may: the record gets ids
 * if the statement succeeds.  That of the statement as a whole is left alone.
 */
void
paq_record_object(PaqStatement *statement, const PaqObject *object)
{
	PaqPending *pending;

	if (creating_extension)
		return;
	pending = paq_create_record(statement, paq_classify(&statement->command),
								statement->command.tag, object, statement->params,
								paq_setting_flags(statement), true);
	if (pending == NULL)
		return;
	paq_note_text(statement, pending);
	paq_entry_add(statement, pending, true, true);
}

/*
 * Record that the statement calls a function, or is about to; name may be
 * NULL; itself says that the call is all of the statement.  The record has ids
 * of its own, the text up to PAQ_MAX_TEXT_BYTES, also if log_statement_once is on,
 * and the statement's outcome.  But there is no end to what one statement may call,
 * a procedure that commits, say, and so there is a limit to what waits for that.
 */
void
paq_record_function(PaqStatement *statement, const char *name, bool itself)
{
	PaqObject	object = {false, "FUNCTION", name};
	int64		statement_id;
	int64		substatement_id;
	PaqPending *pending;

	if (unlikely(statement->calls >= MAX_CALLS_BYTES))
		paq_publish_calls(statement);
	next_ids(statement, &statement_id, &substatement_id);
	pending = paq_create_record(statement, PAQ_CLASS_FUNCTION, CMDTAG_EXECUTE,
								&object, NULL,
								setting_flags(statement->text_bytes > PAQ_MAX_TEXT_BYTES),
								true);
	if (pending == NULL)
		return;
	count_text(statement, pending);
	set_ids(pending, statement_id, substatement_id);
	if (itself)
		paq_entry_add(statement, pending, false, false);
	else
		paq_entry_add_call(statement, pending);
	if (paq_log_client)
		paq_show_client(statement, pending);
}
