/*-------------------------------------------------------------------------
 *
 * object_access.c
 *		Hook for accesses to objects: calls of functions, for the class
 *		FUNCTION, and truncated relations, for object auditing.
 *
 * The hook is called when PostgreSQL prepares the call of a function, once for
 * each place in a statement.  PostgreSQL's own functions, in pg_catalog, are not
 * recorded, except those that read files of the server's: these may be the trail's,
 * so each call is recorded, whatever the settings are.  A call outside of the
 * execution of a statement that is recorded has a record without ids, because
 * pgaudit has none; calls by the client itself are for protocol.c.
 *
 * The hook is also called before a relation is truncated, whether a statement
 * names it or reaches it as a partition or by CASCADE; and for each object that a
 * statement makes, changes or drops, which rules decide about by the relations that it
 * belongs to (named.c).
 *
 * Raises errors for the reasons that a statement may be refused for (see
 * paq_settle()), if the statement has not begun yet; when a statement has called
 * so many functions that it has to wait for space for their records (see
 * paq_publish_calls()); and if a record of a call or TRUNCATE lacks text.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/transam.h"
#include "access/xact.h"
#include "capture/capture_internal.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/objectaccess.h"
#include "catalog/pg_proc.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

static object_access_hook_type prev_object_access = NULL;

/*
 * Returns true if the function is one of PostgreSQL's own that executes queries on users'
 * relations, and that the planner may call.  One of xpath() is among them.
 */
static inline bool
reads_relations(Oid function)
{
	return function >= F_TABLE_TO_XML && function <= F_DATABASE_TO_XML_AND_XMLSCHEMA;
}

/* A function that is called */
typedef struct Call
{
	char	   *name;			/* qualified, palloc'ed; NULL if it cannot be had */
	bool		in_catalog;		/* it is one of PostgreSQL's own */
	NameData	own_name;		/* its subject's */
	PaqSubject	subject;		/* the call, for rules */
} Call;

/* Fill *call, which keeps a pointer to itself, for a call of the function. */
static void
look_up_call(Oid function, Call *call)
{
	HeapTuple	tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
	PaqSubject *subject = &call->subject;
	Form_pg_proc proc;

	call->name = NULL;
	call->in_catalog = false;
	memset(subject, 0, sizeof(*subject));
	subject->class = PAQ_CLASS_FUNCTION;
	subject->tag = CMDTAG_EXECUTE;
	subject->may_look_up = true;
	subject->object = PAQ_OBJECT_UNKNOWN;
	subject->relid = function;
	if (!HeapTupleIsValid(tuple))
		return;
	proc = (Form_pg_proc) GETSTRUCT(tuple);

	/* Ours are in pg_catalog, too. */
	call->in_catalog = IsCatalogNamespace(proc->pronamespace) &&
		function < FirstNormalObjectId;
	call->own_name = proc->proname;
	subject->object = PAQ_OBJECT_NAMED;
	subject->name = NameStr(call->own_name);
	subject->schema = get_namespace_name(proc->pronamespace);
	if (subject->schema != NULL)
		call->name = quote_qualified_identifier(subject->schema, subject->name);

	/* Rules call each temporary schema so; records have its own name, as pgaudit's have. */
	if (isAnyTempNamespace(proc->pronamespace))
		subject->schema = "pg_temp";
	ReleaseSysCache(tuple);
}

/* Is the function in a schema that the extension uses? */
static bool
is_in_own_schema(const Call *call)
{
	return call->subject.schema != NULL &&
		(strcmp(call->subject.schema, "audit_queue") == 0 ||
		 strcmp(call->subject.schema, "pg_catalog") == 0);
}

/*
 * Is a call of the function by the statement to be recorded?  *choice is for the
 * record, NULL if there are no rules.
 */
static bool
choose_call(PaqStatement *statement, const Call *call, PaqChoice *space,
			const PaqChoice **choice)
{
	*choice = NULL;
	if (likely(!paq_policy.has_rules))
		return paq_class_is_audited(PAQ_CLASS_FUNCTION);
	memset(space, 0, sizeof(*space));
	space->rules = statement->choice.rules ? statement->choice.rules : paq_policy.rules;
	(void) paq_choose(space, &call->subject);
	*choice = space;
	return paq_choice_records(space, PAQ_CLASS_FUNCTION);
}

/*
 * A function is about to be called while nothing that is known is being executed: to
 * plan a statement, to make the value of a parameter, or in a parallel worker that
 * builds an index; or where nothing is audited.  The client may want nothing but
 * that call.  The record cannot wait for an outcome.  If PostgreSQL calls the
 * function several times for one message, one record is enough.  The subject is what
 * settings and rules are asked about; NULL: there is a record whatever they say.
 */
static void
record_early(Oid function, PaqEvent *event, const PaqSubject *subject)
{
	static Oid	last_function = InvalidOid;
	static TimestampTz last_message = 0;
	static Size text_bytes = 0; /* in records of the last message */
	const TimestampTz message = GetCurrentStatementStartTimestamp();

	if (function == last_function && message == last_message)
		return;
	event->start_time = GetCurrentTimestamp();
	if (subject != NULL)
	{
		paq_policy_follow();
		if (!paq_event_choose(event, subject, -1))
			return;
	}
	paq_settle(PAQ_SPACE_WAIT);
	paq_session_warm();
	if (message != last_message)
		text_bytes = 0;
	event->flags = PAQ_RECORD_NO_OUTCOME | PAQ_RECORD_PARAM_NOT_LOGGED;
	if (paq_verdict_wish(event->verdict, false).statement && text_bytes > PAQ_MAX_TEXT_BYTES)
		event->flags |= PAQ_RECORD_STMT_PREVIOUS;
	else
	{
		paq_event_set_text(event, true);
		text_bytes += event->shown[0].len;
	}
	last_function = function;
	last_message = message;
	paq_record_event(event, 0);
	paq_queue_admit_text();
}

/*
 * Record a call of a function that is not part of the execution of a statement, see
 * record_early().  always: also if the function is PostgreSQL's own.
 */
static void
record_early_call(Oid function, bool always)
{
	PaqEvent	event = {.class = PAQ_CLASS_FUNCTION};
	Call		call;

	look_up_call(function, &call);
	if (call.in_catalog && !always)
		return;
	event.object_name = call.name;
	event.object_type = "FUNCTION";
	event.command = GetCommandTagName(CMDTAG_EXECUTE);
	record_early(function, &event, always ? NULL : &call.subject);
}

/*
 * Returns true if the function is called by another one, which a parallel worker executes for its
 * part of a query: neither has a statement there.  What the part calls itself is initialized when
 * it starts, and recorded by the leader.
 */
static bool
is_called_in_part(void)
{
	const PaqCallFrame *frame = paq_stack.frame;

	return unlikely(paq_stack.in_part) && frame != NULL && frame->parent == NULL &&
		!frame->starting;
}

/* A statement is about to call the function. */
static void
record_call(Oid function)
{
	PaqStatement *statement = paq_current_statement();
	const PaqChoice *choice;
	PaqChoice	space;
	Call		call;

	if (statement == NULL)
	{
		if (is_called_in_part())
			record_early_call(function, false);
		return;
	}
	look_up_call(function, &call);
	if (call.in_catalog)
		return;

	/*
	 * What audit_check() calls to look at settings has no record beside that of the
	 * statement, whoever calls it within one.
	 */
	if (!statement->top_level && is_in_own_schema(&call) && paq_is_own_look(function))
		return;
	if (!choose_call(statement, &call, &space, &choice))
		return;
	if (!paq_is_left_out(choice))
	{
		paq_record_function(statement, call.name, false, choice);
		paq_queue_admit_text();
	}
	if (choice != NULL)
		list_free(space.later);
}

/*
 * A function is about to be called.  If that keeps log_catalog from leaving out the
 * statement, record it.
 */
static void
look_at_hidden(Oid function)
{
	PaqStatement *statement = paq_stack.frame ? paq_stack.frame->statement : NULL;

	if (statement == NULL || !statement->hidden || paq_catalog_allows(function))
		return;
	statement->hidden = false;
	if (!paq_choice_show(statement))
		paq_record_unnumbered(statement, &statement->command, NULL);
}

/* Called, or about to be called, by a statement or by the client itself */
static void
note_call(Oid function)
{
	if (!paq_is_built_in(function) || reads_relations(function))
		paq_note_key_call();
	if (unlikely(!paq_log_catalog))
		look_at_hidden(function);
	if (paq_stack.frame == NULL && paq_fastpath_begins())
	{
		Call		call;

		look_up_call(function, &call);
		paq_fastpath_call(function, call.name, &call.subject);
	}
	else if (!paq_class_is_wanted(PAQ_CLASS_FUNCTION) || paq_is_built_in(function) ||
			 (creating_extension && !paq_policy.has_rules))
		return;
	else if (paq_stack.frame != NULL)
		record_call(function);
	else if (!creating_extension && paq_is_for_users())
		record_early_call(function, false);
}

/* Has the client's fast-path call of the function a record already? */
static bool
is_recorded_call(const PaqStatement *statement)
{
	return statement->command.node == T_DoStmt &&
		statement->command.tag == CMDTAG_EXECUTE && !paq_policy.has_rules &&
		paq_class_is_audited(PAQ_CLASS_FUNCTION);
}

/*
 * A function that reads a file is about to be called.  Which file cannot be told
 * here: it may be the trail's.
 */
static pg_noinline void
record_file_call(Oid function)
{
	PaqStatement *statement = paq_current_statement();
	Call		call;

	/* A function that a superuser has made of PostgreSQL's code has a record as any other. */
	if (!paq_is_built_in(function) && !creating_extension && !paq_policy.has_rules &&
		paq_class_is_audited(PAQ_CLASS_FUNCTION))
		return;
	if (paq_stack.frame == NULL || is_called_in_part())
		record_early_call(function, true);
	else if (statement != NULL && !is_recorded_call(statement))
	{
		look_up_call(function, &call);
		paq_record_function_always(statement, call.name, NULL);
		paq_queue_admit_text();
	}
}

/*
 * Returns true if it is certain that the statement has a record.  The records of
 * functions that it calls are not its own, and rules can yet decide against those that
 * hang on its end.
 */
static bool
is_surely_recorded(const PaqStatement *statement)
{
	dlist_iter	iter;

	if (!statement->recorded || dlist_is_empty(unconstify(dlist_head *, &statement->records)))
		return statement->recorded;
	dlist_foreach(iter, unconstify(dlist_head *, &statement->records))
	{
		const PaqPending *pending = dlist_container(PaqPending, node, iter.cur);

		if (!pending->is_call && pending->choice == NULL)
			return true;
	}
	return false;
}

/*
 * set_config() is about to be called, which can do what SET ROLE does.  Of which
 * setting is not known here: a record that SET ROLE would have is made, unless the
 * statement has one of its own.
 */
static pg_noinline void
look_at_set_config(void)
{
	const PaqCommand command = {LOGSTMT_ALL, T_VariableSetStmt, CMDTAG_SET, true};
	const PaqSubject subject = {
		.class = PAQ_CLASS_SET_ROLE, .tag = CMDTAG_SET, .may_look_up = true
	};
	PaqStatement *statement = paq_current_statement();
	PaqChoice	choice = {NULL};

	if (paq_stack.frame == NULL)
	{
		PaqEvent	event = {
			.class = PAQ_CLASS_SET_ROLE, .command = GetCommandTagName(CMDTAG_SET)
		};

		record_early(F_SET_CONFIG, &event, &subject);
		return;
	}
	if (statement == NULL || is_surely_recorded(statement) || is_recorded_call(statement))
		return;
	if (likely(!paq_policy.has_rules))
	{
		paq_record_unnumbered(statement, &command, NULL);
		return;
	}
	choice.rules = statement->choice.rules ? statement->choice.rules : paq_policy.rules;
	(void) paq_choose(&choice, &subject);
	paq_record_unnumbered(statement, &command, &choice);
	list_free(choice.later);
}

/*
 * A function of PostgreSQL's is about to be called that reads or changes relations.  Of which
 * is not known here, so rules that name objects count for recording.  For rules it is a read.
 */
static pg_noinline void
look_at_relation_call(Oid function)
{
	const PaqSubject subject = {
		.class = PAQ_CLASS_READ, .tag = CMDTAG_SELECT, .may_look_up = true,
		.object = PAQ_OBJECT_UNKNOWN
	};
	PaqStatement *statement = paq_current_statement();
	PaqChoice	choice = {NULL};
	Call		call;

	look_up_call(function, &call);
	if (paq_stack.frame == NULL || is_called_in_part())
	{
		PaqEvent	event = {
			.class = PAQ_CLASS_FUNCTION, .object_name = call.name, .object_type = "FUNCTION",
			.command = GetCommandTagName(CMDTAG_EXECUTE)
		};

		record_early(function, &event, &subject);
		return;
	}
	if (statement == NULL || is_surely_recorded(statement))
		return;
	choice.rules = statement->choice.rules ? statement->choice.rules : paq_policy.rules;
	(void) paq_choose(&choice, &subject);
	choice.by_settings = false;
	if (choice.best != NULL || choice.later != NIL)
		paq_record_function_always(statement, call.name, &choice);
	list_free(choice.later);
}

/* Not inlined, so that the hook leaves little on the stack */
static pg_noinline void
look_at_call(Oid function)
{
	Oid			builtin;

	if (IsAbortedTransactionBlockState())
		return;

	/*
	 * Without a client the roles of a session are looked up here, too: autovacuum becomes the
	 * owner of a table before it calls a function of its indexes.
	 */
	if (unlikely(MyProcPort == NULL) && paq_stack.frame == NULL)
		paq_session_warm();
	builtin = paq_builtin(function);
	if (paq_capture_wanted())
		note_call(function);
	if (unlikely(builtin == F_SET_CONFIG) && paq_class_is_wanted(PAQ_CLASS_SET_ROLE) &&
		paq_capture_possible())
		look_at_set_config();
	if (unlikely(paq_policy.has_rules) && paq_uses_relations(builtin) && paq_capture_possible())
		look_at_relation_call(function);
	if (paq_reads_file(builtin) && paq_capture_possible())
		record_file_call(function);
}

static pg_noinline void
record_truncate(Oid relid)
{
	PaqStatement *statement;

	if ((paq_role[0] == '\0' && !paq_policy.has_rules) || !paq_capture_possible())
		return;
	statement = paq_current_statement();
	if (statement == NULL || statement->command.node != T_TruncateStmt)
		return;
	paq_record_truncate(statement, relid);
	paq_statement_admit(statement);
}

/* Hand an object that a statement is making, changing or dropping to rules. */
static pg_noinline void
note_object(ObjectAccessType access, Oid catalog, Oid object)
{
	PaqStatement *statement;

	if (!paq_capture_possible() || IsAbortedTransactionBlockState() || paq_stack.frame == NULL)
		return;
	statement = paq_current_statement();
	if (statement != NULL && statement->query_desc == NULL)
		paq_note_object(statement, access, catalog, object);
}

/*
 * Returns true if nothing has to be done about a call of the function: it is one of PostgreSQL's
 * own, like the functions of most operators.  If anything is audited, that holds only within a
 * statement, because elsewhere the client itself may be calling, and only with log_catalog,
 * because without it a call can bring a statement its record.
 */
static inline bool
is_plain_call(Oid function)
{
	return function < PAQ_FIRST_SPECIAL_FUNCTION &&
		(!paq_auditing_is_on() || (paq_stack.frame != NULL && paq_log_catalog));
}

/* The hook, for accesses that may be of interest */
static pg_noinline void
look_at_access(ObjectAccessType access, Oid classId, Oid objectId, int subId, void *arg)
{
	if (access == OAT_FUNCTION_EXECUTE)
	{
		if (paq_capture_wanted() || paq_reads_file(paq_builtin(objectId)))
			look_at_call(objectId);
	}
	else if (access == OAT_TRUNCATE)
		record_truncate(objectId);
	else if (paq_policy.has_rules &&
			 (access == OAT_POST_CREATE || access == OAT_POST_ALTER || access == OAT_DROP))
		note_object(access, classId, objectId);
	if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);
}

/* PostgreSQL calls this for each operator of a statement, so most calls must cost little. */
static void
capture_object_access(ObjectAccessType access, Oid classId, Oid objectId,
					  int subId, void *arg)
{
	if (access != OAT_FUNCTION_EXECUTE || !is_plain_call(objectId))
		look_at_access(access, classId, objectId, subId, arg);
	else if (prev_object_access)
		prev_object_access(access, classId, objectId, subId, arg);
}

void
paq_object_access_init(void)
{
	prev_object_access = object_access_hook;
	object_access_hook = capture_object_access;
}
