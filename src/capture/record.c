/*-------------------------------------------------------------------------
 *
 * record.c
 *		Making records of statements, and of events.
 *
 * A record of a statement is made, and gets its ids, at the moment when pgaudit
 * would log it.  It is encoded into the pending area at once, and published when
 * the outcome is known (outcome.c).  Some records get their ids later:
 *
 * - A utility statement has a provisional record from its beginning, so that a
 *   crash cannot hide it.  It gets ids later, or gives way to records with names.
 * - With log_rows, pgaudit logs executor statements when they end.  Their
 *   records are made at the beginning and get ids at the end.  The same goes for
 *   the relations of a utility statement.
 * - Records of relations that are truncated are made before permissions are
 *   checked.
 *
 * An event is anything but the execution of a statement: an error before it, a
 * login or logout, a change of a setting.  pgaudit, whose numbering we keep, has
 * no such records, so they have no ids of their own.  An event during a statement
 * that has ids shows the statement's id.
 *
 * Whether something is recorded, and with which texts, is in the choice that callers
 * hand over (choice.c); NULL: rules have nothing to do with it.
 *
 * Must not raise, except for what output functions of parameters' types do, for
 * an interrupt after showing a record to the client or while a long text is masked, and
 * for space in the queue when a statement calls very many functions.  Events read no
 * catalog, and raise nothing but the latter interrupt, where it may be served: they are
 * for use anywhere, also while an error is being handled, before a session has logged in,
 * and at its end.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"

/* Limit for the bytes of records of function calls that wait for one statement */
#define MAX_CALL_BYTES		(1024 * 1024)

static const PaqObject no_object = {false, NULL, NULL};

/* The choice of a statement that rules have decided about; NULL of any other */
static inline const PaqChoice *
own_choice(const PaqStatement *statement)
{
	return unlikely(statement->choice.rules != NULL) ? &statement->choice : NULL;
}

/* Is something of the class wanted? */
static inline bool
class_is_wanted(const PaqChoice *choice, PaqClass class)
{
	return likely(choice == NULL) ? paq_class_is_audited(class) :
		paq_choice_records(choice, class);
}

/*
 * Does session auditing want the statement?
 */
bool
paq_statement_is_audited(const PaqStatement *statement)
{
	const PaqChoice *choice = own_choice(statement);

	return class_is_wanted(choice, paq_classify(&statement->command)) &&
		!paq_is_left_out(choice);
}

/*
 * Which texts a record has, and whether it shows rows.  recorded: an earlier record
 * has them, of many bytes or not.
 */
static inline uint32
text_flags(const PaqWish *wish, bool recorded, bool many)
{
	uint32		flags = paq_log_rows ? PAQ_RECORD_ROWS : 0;

	if (!wish->statement)
		flags |= PAQ_RECORD_STMT_NOT_LOGGED;
	else if (recorded && (!wish->repeated || many))
		flags |= PAQ_RECORD_STMT_PREVIOUS;
	else if (!wish->parameters)
		flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	return flags;
}

/* The texts that the choice wants; choice NULL: that the settings want */
static inline PaqWish
wish_of(const PaqChoice *choice)
{
	PaqWish		wish;

	if (unlikely(choice != NULL) && !paq_choice_is_plain(choice))
		return paq_choice_wish(choice, false);
	wish.statement = paq_log_statement;
	wish.parameters = paq_log_parameter;
	wish.repeated = !paq_log_statement_once;
	wish.long_parameters = wish.normalized = false;
	return wish;
}

static pg_noinline uint32
chosen_text_flags(const PaqStatement *statement, const PaqChoice *choice)
{
	const PaqWish wish = paq_choice_wish(choice, false);

	return text_flags(&wish, statement->text_recorded,
					  statement->text_bytes > PAQ_MAX_TEXT_BYTES);
}

/* The flags of a record of the statement itself; one of these has the text. */
static inline uint32
own_text_flags(const PaqStatement *statement, const PaqChoice *choice)
{
	PaqWish		wish;

	if (unlikely(choice != NULL) && !paq_choice_is_plain(choice))
		return chosen_text_flags(statement, choice);
	wish = wish_of(NULL);
	return text_flags(&wish, statement->text_recorded,
					  statement->text_bytes > PAQ_MAX_TEXT_BYTES);
}

static inline bool
has_text(uint32 flags)
{
	return (flags & (PAQ_RECORD_STMT_NOT_LOGGED | PAQ_RECORD_STMT_PREVIOUS)) == 0;
}

/* Count the text in a record of the statement. */
static void
count_text(PaqStatement *statement, PaqPending *pending)
{
	const PaqRecordHeader *header = paq_pending_header(pending);

	for (int i = PAQ_FIELD_STATEMENT; i <= PAQ_FIELD_PARAMETER; i++)
		if (header->field_len[i] != PAQ_NULL_LEN)
			statement->text_bytes += header->field_len[i];
}

/* Make a record wait for the outcome of the statement. */
void
paq_record_add(PaqStatement *statement, PaqPending *pending, bool late_ids,
			   bool has_rows)
{
	pending->late_ids = late_ids;
	pending->has_rows = has_rows;
	pending->is_call = false;
	dlist_push_tail(&statement->records, &pending->node);
}

/* The same for a record of the statement itself, which may have its text. */
static void
add_own_record(PaqStatement *statement, PaqPending *pending, bool late_ids)
{
	statement->text_recorded |= has_text(paq_pending_header(pending)->flags);
	count_text(statement, pending);
	paq_record_add(statement, pending, late_ids, true);
}

/* Do the settings have a record of the class show the statement without constants? */
static inline bool
masks_constants(const PaqStatement *statement, PaqClass class)
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
paq_shown_text(PaqStatement *statement, bool may_scan, bool without_constants)
{
	const char *part = paq_statement_part(statement);
	PaqMasked  *shown = &statement->shown;

	if (shown->text == NULL || shown->cut ||
		statement->shown_without_constants != without_constants)
	{
		if (shown->copy != NULL)
			pfree(shown->copy);
		paq_mask_text(part ? part : statement->text,
					  (may_scan ? PAQ_MASK_SCAN : 0) |
					  (without_constants ? PAQ_MASK_CONSTANTS : 0), shown);
		statement->shown_without_constants = without_constants;
	}
	return shown;
}

/*
 * Does a record by that choice show the statement without constants?  *max_size becomes
 * the longest value, in bytes, of a parameter that it has, 0 for any.
 */
static pg_noinline bool
choose_texts(const PaqChoice *choice, bool masked, int *max_size)
{
	const PaqWish wish = paq_choice_wish(choice, masked);

	if (wish.long_parameters)
		*max_size = 0;
	return wish.normalized;
}

/*
 * Encode a record of the statement, in place of the record replaced, unless
 * that is NULL, because of the choice.  params is NULL for a record that has none.
 * may_lookup is false where the catalogs must not be read.  Returns NULL when out of
 * memory; the loss is then counted, unless a record was to be replaced.
 */
static PaqPending *
create_record(PaqStatement *statement, PaqClass class, CommandTag tag,
			  const PaqObject *object, ParamListInfo params, uint32 flags,
			  bool may_lookup, PaqPending *replaced, const PaqChoice *choice)
{
	PaqRecordHeader header;
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	PaqText		encoded = {NULL, 0};
	const PaqSessionBlock *session;
	const char *part = paq_statement_part(statement);
	const bool	first = replaced != NULL ?
		statement->provisional_first : paq_is_first(statement);
	const PaqVerdict *verdict = choice != NULL ? paq_choice_verdict(choice) : NULL;
	const bool	masked = masks_constants(statement, class);
	bool		without_constants = masked;
	int			max_size = paq_log_parameter_max_size;
	PaqPending *pending;
	bool		complete;

	if (unlikely(choice != NULL && (verdict == NULL || !verdict->plain)))
		without_constants = choose_texts(choice, masked, &max_size);
	if (object->granted)
		flags |= PAQ_RECORD_OBJECT;
	if (without_constants)
		flags |= PAQ_RECORD_CONSTANTS;
	if (has_text(flags))
	{
		const PaqMasked *shown = paq_shown_text(statement, may_lookup,
												without_constants);

		flags |= paq_masked_flags(shown);
		paq_set_text(texts, PAQ_FIELD_STATEMENT, shown->text);
		if ((flags & (PAQ_RECORD_PARAM_NOT_LOGGED | PAQ_RECORD_CONSTANTS)) == 0)
		{
			encoded = paq_encode_params(params, part ? part : statement->text,
										max_size, &flags);
			texts[PAQ_FIELD_PARAMETER - PAQ_NSESSION_FIELDS] = encoded;
		}
	}
	paq_set_text(texts, PAQ_FIELD_COMMAND, GetCommandTagName(tag));
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, object->type);
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, object->name);
	if (verdict != NULL)
		texts[PAQ_FIELD_POLICY - PAQ_NSESSION_FIELDS] = verdict->name;

	session = paq_session_block(may_lookup, &complete);
	if (!complete)
		flags |= PAQ_RECORD_INCOMPLETE;

	flags |= session->flags;

	/* Output functions of parameters' types, which may make records, are done. */
	paq_set_settings(texts, &flags);
	paq_pending_init_header(&header, class, flags | statement->flags,
							statement->start_time);
	header.query_id = statement->query_id;
	header.stmt_location = statement->location;
	header.stmt_len = statement->len;

	pending = paq_pending_replace(replaced, &header, session, texts, first);
	if (encoded.len > 0)
		pfree((char *) encoded.data);
	if (unlikely(choice != NULL) && pending != NULL)
	{
		if (choice->best != NULL)
			paq_verdict_apply(pending, choice->best);
		if (choice->later != NIL)
			paq_choice_attach(pending, choice, masked, statement);
	}
	return pending;
}

/*
 * With log_client, show the record, unless it is yet to be decided whether there will
 * be one.
 */
static inline void
show_client(const PaqStatement *statement, PaqPending *pending)
{
	if (unlikely(paq_log_client) && pending->choice == NULL)
		paq_show_client(statement, pending);
}

static void
set_ids(PaqPending *pending, int64 statement_id, int64 substatement_id)
{
	PaqRecordHeader *header = paq_pending_header(pending);

	header->statement_id = statement_id;
	header->substatement_id = substatement_id;
}

/*
 * Before a utility statement is executed: make a record that says that it is
 * being executed.  It has no ids yet.
 */
void
paq_record_provisional(PaqStatement *statement)
{
	const PaqChoice *choice = own_choice(statement);

	statement->provisional_first = paq_is_first(statement);
	statement->provisional =
		create_record(statement, paq_classify(&statement->command),
					  statement->command.tag, &no_object, statement->params,
					  own_text_flags(statement, choice), true, NULL, choice);
	statement->provisional_tag = statement->command.tag;
	statement->provisional_verdict = choice ? choice->best : NULL;
}

/* Is the provisional record the one that would be made now? */
static bool
provisional_fits(PaqStatement *statement, PaqClass class, CommandTag tag,
				 const PaqObject *object, uint32 flags, const PaqChoice *choice)
{
	PaqPending *pending = statement->provisional;
	const uint32 mask = PAQ_RECORD_ROWS | PAQ_RECORD_STMT_NOT_LOGGED |
		PAQ_RECORD_STMT_PREVIOUS | PAQ_RECORD_PARAM_NOT_LOGGED;

	return pending != NULL && !object->granted && object->type == NULL &&
		object->name == NULL && tag == statement->provisional_tag &&
		statement->provisional_verdict == (choice ? choice->best : NULL) &&
		pending->choice == NULL && (choice == NULL || choice->later == NIL) &&
		paq_pending_header(pending)->audit_class == class &&
		(paq_pending_header(pending)->flags & mask) == flags;
}

/*
 * Make a record in place of the provisional one, if there is one.  Without
 * memory for it, the provisional record stays.
 */
static PaqPending *
replace_provisional(PaqStatement *statement, PaqClass class, CommandTag tag,
					const PaqObject *object, uint32 flags, const PaqChoice *choice)
{
	PaqPending *provisional = statement->provisional;
	PaqPending *pending;

	if (provisional != NULL)
		paq_choice_detach(provisional);
	pending = create_record(statement, class, tag, object, statement->params, flags,
							true, provisional, choice);

	if (pending == NULL && provisional != NULL)
	{
		paq_pending_header(provisional)->flags |= PAQ_RECORD_INCOMPLETE;
		return provisional;
	}
	return pending;
}

/*
 * Make a record of the statement, as command and with object, if settings, rules or
 * grants ask for one and it has none yet.  late_ids: it gets its ids when the
 * statement ends.  beside: the statement has another record of its own.
 */
static void
record_statement(PaqStatement *statement, const PaqCommand *command,
				 const PaqObject *object, bool late_ids, bool beside,
				 const PaqChoice *choice)
{
	PaqClass	class = paq_classify(command);
	uint32		flags;
	PaqPending *pending;

	if ((statement->recorded && !beside) || paq_is_left_out(choice) ||
		(!object->granted && !class_is_wanted(choice, class)))
		return;

	if (!late_ids)
		paq_assign_ids(statement);
	flags = own_text_flags(statement, choice);
	pending = statement->provisional;
	if (beside)
		pending = create_record(statement, class, command->tag, object,
								statement->params, flags, true, NULL, choice);
	else if (!provisional_fits(statement, class, command->tag, object, flags, choice))
		pending = replace_provisional(statement, class, command->tag, object,
									  flags, choice);
	if (pending == NULL)
		return;
	if (!beside)
	{
		statement->provisional = NULL;
		statement->recorded = true;
	}

	set_ids(pending, statement->statement_id, statement->substatement_id);
	paq_pending_header(pending)->rows = statement->rows;
	add_own_record(statement, pending, late_ids);
	if (!late_ids)
		show_client(statement, pending);
}

/* Record the statement, or what it does to an object, at this moment. */
void
paq_record_statement(PaqStatement *statement, const PaqCommand *command,
					 const PaqObject *object, const PaqChoice *choice)
{
	record_statement(statement, command, object ? object : &no_object,
					 paq_log_rows && statement->query_desc != NULL, false, choice);
}

/*
 * Record one of the statement's relations or, with object NULL, the statement
 * before them.  For an executor statement, the record of a relation is one of
 * its own; a utility statement has its own record beside it, unless session
 * auditing records it as what it does with the relation.
 */
void
paq_record_relation(PaqStatement *statement, const PaqCommand *command,
					const PaqObject *object, const PaqChoice *choice)
{
	const bool	beside = object != NULL && statement->query_desc == NULL &&
		(object->granted || command->node != statement->command.node);

	if (object != NULL && !beside)
		statement->recorded = false;
	record_statement(statement, command, object ? object : &no_object,
					 paq_log_rows, beside, choice);
}

/*
 * Record the statement, as command, where pgaudit does not record it: the record
 * takes no ids.
 */
void
paq_record_unnumbered(PaqStatement *statement, const PaqCommand *command,
					  const PaqChoice *choice)
{
	PaqClass	class = paq_classify(command);
	PaqPending *pending;

	if (paq_is_left_out(choice) || !class_is_wanted(choice, class))
		return;
	pending = create_record(statement, class, command->tag, &no_object,
							statement->params, own_text_flags(statement, choice),
							true, NULL, choice);
	if (pending == NULL)
		return;
	statement->recorded = true;
	paq_known_ids(statement, pending);
	add_own_record(statement, pending, false);
	show_client(statement, pending);
}

/*
 * Record what the statement does with an object, whatever the settings are, beside
 * its other records.  pgaudit makes no such record, so it takes no ids but those
 * that the statement has, or gets for another record.
 */
void
paq_record_always(PaqStatement *statement, PaqClass class, CommandTag tag,
				  const PaqObject *object)
{
	const bool	late_ids = paq_log_rows && statement->recorded;
	PaqPending *pending = create_record(statement, class, tag, object,
										statement->params,
										own_text_flags(statement, NULL), true, NULL,
										NULL);

	if (pending == NULL)
		return;
	paq_known_ids(statement, pending);
	paq_pending_header(pending)->rows = statement->rows;
	add_own_record(statement, pending, late_ids);
	if (!late_ids)
		show_client(statement, pending);
}

/*
 * Record what a utility statement is about to do to an object that object
 * auditing selects, before its permissions are checked.  The record gets ids if
 * the statement succeeds.  The record of the statement itself is left alone.
 */
void
paq_record_object(PaqStatement *statement, const PaqObject *object,
				  const PaqChoice *choice)
{
	PaqPending *pending;

	if (paq_is_left_out(choice))
		return;
	pending = create_record(statement, paq_classify(&statement->command),
							statement->command.tag, object, statement->params,
							own_text_flags(statement, choice), true, NULL, choice);
	if (pending != NULL)
		add_own_record(statement, pending, true);
}

/*
 * Record a statement that failed before it was recorded, as command and with
 * object.  For use while the error is being handled: no output function is
 * called, and so parameters are left out.
 */
void
paq_record_denied(PaqStatement *statement, const PaqCommand *command,
				  const PaqObject *object, const PaqChoice *choice)
{
	uint32		flags = own_text_flags(statement, choice);
	PaqPending *pending;

	if (paq_is_left_out(choice))
		return;
	if (has_text(flags))
		flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	if (wish_of(choice).parameters && statement->params != NULL)
		flags |= PAQ_RECORD_INCOMPLETE;
	pending = create_record(statement, paq_classify(command), command->tag,
							object ? object : &no_object, NULL, flags, false,
							NULL, choice);
	if (pending == NULL)
		return;
	paq_known_ids(statement, pending);
	add_own_record(statement, pending, false);
}

/*
 * A statement can call any number of functions, as a procedure that commits does, so
 * there is a limit to the records that wait for it.
 */
static PaqPending *
create_call(PaqStatement *statement, const char *name, const PaqChoice *choice)
{
	PaqObject	object = {false, "FUNCTION", name};
	PaqWish		wish = wish_of(choice);

	wish.repeated = true;
	if (unlikely(statement->call_bytes >= MAX_CALL_BYTES))
	{
		paq_publish_calls(&statement->records);
		statement->call_bytes = 0;
	}
	return create_record(statement, PAQ_CLASS_FUNCTION, CMDTAG_EXECUTE, &object,
						 NULL, text_flags(&wish, true, statement->text_bytes > PAQ_MAX_TEXT_BYTES),
						 true, NULL, choice);
}

static void
add_call(PaqStatement *statement, PaqPending *pending, bool itself)
{
	count_text(statement, pending);
	paq_record_add(statement, pending, false, false);
	if (!itself)
	{
		pending->is_call = true;
		statement->call_bytes += paq_pending_header(pending)->length;
	}
	show_client(statement, pending);
}

/*
 * Record that the statement calls a function, or is about to.  name may be NULL;
 * itself: the call is all of the statement.  The record has ids of its own, the
 * statement's outcome and, also with log_statement_once, its text, up to
 * PAQ_MAX_TEXT_BYTES.
 */
void
paq_record_function(PaqStatement *statement, const char *name, bool itself,
					const PaqChoice *choice)
{
	int64		statement_id;
	int64		substatement_id;
	PaqPending *pending;

	paq_next_ids(statement, &statement_id, &substatement_id);
	pending = create_call(statement, name, choice);
	if (pending == NULL)
		return;
	set_ids(pending, statement_id, substatement_id);
	add_call(statement, pending, itself);
}

/* The same where pgaudit makes no record: it takes no ids. */
void
paq_record_function_always(PaqStatement *statement, const char *name,
						   const PaqChoice *choice)
{
	PaqPending *pending = create_call(statement, name, choice);

	if (pending == NULL)
		return;
	paq_known_ids(statement, pending);
	add_call(statement, pending, false);
}

/*
 * The statement's outcome is known: add what the statement knows by now to its
 * records.  Records that get their ids only now are shown to the client then,
 * but, as in pgaudit, not if the statement has failed.
 */
void
paq_record_finish(PaqStatement *statement, bool failed)
{
	dlist_iter	iter;

	dlist_foreach(iter, &statement->records)
	{
		PaqPending *pending = dlist_container(PaqPending, node, iter.cur);
		PaqRecordHeader *header = paq_pending_header(pending);

		header->flags |= statement->flags;
		if (pending->has_rows)
			header->rows = statement->rows;
		if (likely(!pending->late_ids))
			continue;
		pending->late_ids = false;
		paq_assign_late_ids(statement, pending, failed);
		if (!failed)
			show_client(statement, pending);
	}
}

/*
 * Give the event the text that the client has sent, as far as the settings want
 * it and as it may be shown.  While an error is being handled, may_scan must be
 * false.
 */
void
paq_event_set_text(PaqEvent *event, bool may_scan)
{
	PaqMasked  *shown = &event->shown[0];
	const PaqWish wish = paq_verdict_wish(event->verdict,
										  paq_masks_constants(event->class));

	if (!wish.statement)
	{
		event->flags |= PAQ_RECORD_STMT_NOT_LOGGED;
		event->text = NULL;
		return;
	}
	if (debug_query_string == NULL)
		return;
	paq_mask_text(debug_query_string, (may_scan ? PAQ_MASK_SCAN : 0) |
				  (wish.normalized ? PAQ_MASK_CONSTANTS : 0), shown);
	event->text = shown->text;
	event->flags |= paq_masked_flags(shown);
}

/*
 * Encode a record of the event into the pending area, and free the event's
 * memory.  Its outcome is noted when it is published.  Returns NULL, after
 * counting the loss, when out of memory.
 */
PaqPending *
paq_event_create(PaqEvent *event)
{
	PaqRecordHeader header;
	PaqText		texts[PAQ_NSTATEMENT_FIELDS] = {{NULL, 0}};
	const PaqSessionBlock *session;
	PaqPending *pending;
	bool		complete;
	bool		first;

	paq_set_text(texts, PAQ_FIELD_COMMAND, event->command);
	paq_set_text(texts, PAQ_FIELD_OBJECT_TYPE, event->object_type);
	paq_set_text(texts, PAQ_FIELD_OBJECT_NAME, event->object_name);
	paq_set_text(texts, PAQ_FIELD_STATEMENT, event->text);
	paq_set_text(texts, PAQ_FIELD_OLD_VALUE, event->old_value);
	paq_set_text(texts, PAQ_FIELD_NEW_VALUE, event->new_value);
	paq_set_text(texts, PAQ_FIELD_VALUE_SOURCE, event->value_source);
	if (event->verdict != NULL)
		texts[PAQ_FIELD_POLICY - PAQ_NSESSION_FIELDS] = event->verdict->name;

	session = paq_session_block(false, &complete);
	event->flags |= session->flags;
	paq_set_settings(texts, &event->flags);
	paq_pending_init_header(&header, event->class, event->flags,
							event->start_time);
	if (paq_stack.frame != NULL)
		header.statement_id = paq_stack.frame->group->statement_id;
	first = paq_stack.frame != NULL && !proc_exit_inprogress &&
		paq_is_first(NULL);
	pending = paq_pending_create(&header, session, texts, first);
	if (pending != NULL && event->verdict != NULL)
		paq_verdict_apply(pending, event->verdict);
	if (pending != NULL && event->message != NULL)
		paq_pending_add_message(pending, event->message, PG_UINT32_MAX);
	for (int i = 0; i < lengthof(event->shown); i++)
		if (event->shown[i].copy != NULL)
			pfree(event->shown[i].copy);
	return pending;
}

/*
 * Record the event now, with outcome sqlstate, 0 for success, or, without space
 * in the queue, as soon as there is some.
 */
void
paq_record_event(PaqEvent *event, int sqlstate)
{
	PaqPending *pending = paq_event_create(event);

	if (pending != NULL)
		paq_publish_now(pending, sqlstate);
}
