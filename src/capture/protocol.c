/*-------------------------------------------------------------------------
 *
 * protocol.c
 *		What clients have executed without SQL: fast-path calls and replication
 *		commands.
 *
 * No hook of PostgreSQL is called for either as a whole.  But each tells the
 * client of its result, and that is when its record must be published.  So the
 * messages that a session sends to its client are watched: an ordinary session's
 * during its fast-path calls, a walsender's as long as it lives.  PqCommMethods,
 * the table of functions that messages go through, is meant to be exchanged, as
 * parallel workers do.  Two functions are wrapped: the one that sends a message,
 * and the one that PostgresMain() calls first when an error has come up to it.
 *
 * A fast-path call has one function called, as libpq's PQfn() and psql's
 * \lo_import do.  PostgreSQL's hook for calls of functions is called when the
 * client has been found to have the permission, before the arguments are looked
 * at.  There begins the statement which stands for the call.  What the function
 * executes runs within it, until the client is sent the result.  As for other
 * statements, the record waits for the commit that follows.  Calls of functions
 * in pg_catalog are recorded, too, because the call is all that the client does.
 * If the call fails before that hook, because the function does not exist for
 * instance, its record names no function, but the error's message does.  No hook
 * sees the values of the arguments.
 *
 * A replication command (BASE_BACKUP, CREATE_REPLICATION_SLOT, ...) is executed
 * by a walsender, and answered with messages.  The first begins its record, so
 * that a crash does not hide the command, and the last publishes it, before the
 * client is told of the success.  START_REPLICATION ends with the session, so the
 * first message publishes its record.  The class is MISC.  What a walsender
 * executes as SQL is recorded as in any session.
 *
 * Guarantees: every message goes on as it came, except that after an error here
 * none does.  Messages about errors are not looked at.
 *
 * Raises errors for the reasons that a statement may be refused for (see
 * paq_settle()), when memory is short, and to serve an interrupt.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "replication/walsender.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/regproc.h"

#define CALL_TEXT	"fastpath function call"	/* as the server log calls it */

/* The keywords of replication commands of PostgreSQL 15 to 18 */
static const char *const keywords[] = {
	"ALTER_REPLICATION_SLOT",
	"BASE_BACKUP",
	"CREATE_REPLICATION_SLOT",
	"DROP_REPLICATION_SLOT",
	"IDENTIFY_SYSTEM",
	"READ_REPLICATION_SLOT",
	"SHOW",
	"START_REPLICATION",
	"TIMELINE_HISTORY",
	"UPLOAD_MANIFEST"
};

/* What is wrapped; NULL: nothing */
static const PQcommMethods *next_methods = NULL;
static PQcommMethods watching_methods;

/*
 * The fast-path call that is running.  Its statement and frame belong to no
 * function on the C stack, and its frame is the outermost one.
 */
static struct
{
	PaqCallFrame *frame;		/* NULL: none is running */
	TimestampTz message;		/* statement_timestamp() of the last one */
}			call;

/* The replication command that is being executed */
static struct
{
	PaqPending *record;			/* NULL: none */
	TimestampTz message;		/* statement_timestamp() of the last command
								 * that has a record */
	bool		waits;			/* the session waits for the record, which says
								 * that the command has succeeded */
}			command;

/*
 * Is the client's message a fast-path call?  pg_stat_activity tells, unless
 * track_activities is off.
 */
static bool
is_fastpath(void)
{
	if (MyBEEntry == NULL || MyProcPort == NULL)
		return false;
	if (MyBEEntry->st_state != STATE_DISABLED)
		return MyBEEntry->st_state == STATE_FASTPATH;

	/* No text, no portal, and nothing between PostgresMain() and the call */
	return debug_query_string == NULL && ActivePortal == NULL &&
		error_context_stack == NULL && CurrentMemoryContext == MessageContext;
}

/*
 * A function is about to be called, and there is no frame.  Does the client's
 * message call it, rather than a trigger at the commit after that call?
 */
bool
paq_fastpath_begins(void)
{
	return is_fastpath() && call.message != GetCurrentStatementStartTimestamp();
}

/*
 * The session is being ended: during a call?  Without track_activities a call
 * cannot be told from an idle session.
 */
bool
paq_fastpath_ends(void)
{
	return MyBEEntry != NULL && MyBEEntry->st_state == STATE_FASTPATH;
}

/*
 * The text lives in MessageContext, as texts that clients send do.  Its class is that
 * of DO, FUNCTION.
 */
static PaqStatement *
new_call(Oid function)
{
	const PaqCommand execute = {LOGSTMT_ALL, T_DoStmt, CMDTAG_EXECUTE};
	MemoryContext old_context = MemoryContextSwitchTo(MessageContext);
	char	   *text = psprintf(CALL_TEXT ": %s",
						  format_procedure_qualified(function));

	MemoryContextSwitchTo(old_context);
	return paq_statement_new(text, &execute, NULL, true);
}

/*
 * The client calls the function, whose qualified name may be NULL; subject is the call
 * for rules.
 */
void
paq_fastpath_call(Oid function, const char *name, const PaqSubject *subject)
{
	const PaqChoice *choice = NULL;

	paq_policy_follow();
	paq_session_warm();
	paq_settle(PAQ_SPACE_WAIT);
	call.message = GetCurrentStatementStartTimestamp();
	call.frame = paq_statement_enter(new_call(function));
	if (unlikely(call.frame == NULL))
		return;
	paq_frame_watch(call.frame);
	call.frame->statement->flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
	paq_protocol_watch();
	if (paq_choose(&call.frame->statement->choice, subject) != NULL)
		choice = &call.frame->statement->choice;
	if (choice ? !paq_choice_records(choice, PAQ_CLASS_FUNCTION) :
		!paq_class_is_audited(PAQ_CLASS_FUNCTION))
		return;
	paq_record_function(call.frame->statement, name, true, choice);
	paq_queue_admit();
}

/* If another library has wrapped us since, we go on handing messages through. */
static void
stop_watching(void)
{
	if (PqCommMethods != &watching_methods)
		return;
	PqCommMethods = next_methods;
	next_methods = NULL;
}

static void
end_call(void)
{
	PaqCallFrame *frame = call.frame;

	call.frame = NULL;
	stop_watching();
	paq_statement_close(frame->statement);
	paq_frame_pop(frame);
}

/* A message to the client during a call: is it the result of the call? */
static void
watch_call(char type)
{
	if (type != 'V')
		return;
	paq_statement_succeed(call.frame->statement);
	end_call();
	paq_wait_statement(PAQ_SPACE_WAIT);
}

/* An error of a call has come up to PostgresMain(). */
static void
fail_call(void)
{
	PaqStatement *statement = call.frame->statement;
	PaqError   *error;

	error = paq_error_catch(statement->text);
	paq_record_denial(statement, error);
	paq_statement_fail(statement, error);
	end_call();
	paq_request_waits();
}

/*
 * An error is reported that has no record.  If it is that of a fast-path call,
 * event is made one of that.
 */
bool
paq_fastpath_refused(PaqEvent *event, int sqlstate)
{
	const PaqSubject subject = {
		.class = PAQ_CLASS_FUNCTION, .tag = CMDTAG_EXECUTE, .object = PAQ_OBJECT_UNKNOWN
	};

	if (!is_fastpath() || call.message == GetCurrentStatementStartTimestamp())
		return false;
	event->class = PAQ_CLASS_FUNCTION;
	if (!paq_event_choose(event, &subject, sqlstate))
	{
		event->class = PAQ_CLASS_ERROR;
		return false;
	}
	event->command = GetCommandTagName(CMDTAG_EXECUTE);
	event->object_type = "FUNCTION";
	event->text = CALL_TEXT;
	return true;
}

/* Keyword of the replication command that is being executed; NULL: none is. */
static const char *
current_keyword(void)
{
	const char *text = debug_query_string;

	if (!am_walsender || text == NULL)
		return NULL;
	text += strspn(text, " \t\n\r\f\v");
	for (int i = 0; i < lengthof(keywords); i++)
	{
		const Size	len = strlen(keywords[i]);

		if (strncmp(text, keywords[i], len) == 0 &&
			!isalnum((unsigned char) text[len]) && text[len] != '_')
			return keywords[i];
	}
	return NULL;
}

/*
 * Make the record of the command, unless it has one or none is wanted.  sqlstate is its
 * outcome, -1 if that is not known; may_scan: no error is being handled.
 */
static void
begin_command(const char *keyword, int sqlstate, bool may_scan)
{
	/* These two commands send what is in tables, and it is not known in which. */
	const bool	sends_data = strcmp(keyword, "START_REPLICATION") == 0 ||
		strcmp(keyword, "BASE_BACKUP") == 0;
	const PaqSubject subject = {
		.class = PAQ_CLASS_MISC, .object = sends_data ? PAQ_OBJECT_UNKNOWN : PAQ_OBJECT_NONE
	};
	PaqEvent	event = {.class = PAQ_CLASS_MISC};

	event.start_time = GetCurrentStatementStartTimestamp();
	if (command.record != NULL || command.message == event.start_time ||
		!paq_event_choose(&event, &subject, sqlstate))
		return;
	event.command = keyword;
	paq_event_set_text(&event, may_scan);
	command.message = event.start_time;
	command.record = paq_event_create(&event);
}

/*
 * The command, if one with a record is being executed, ends: publish the record
 * with its outcome, NULL being success.
 */
void
paq_replication_end(const PaqError *error)
{
	PaqPending *record = command.record;

	if (record == NULL)
		return;
	command.record = NULL;
	if (error != NULL && error->message != NULL)
	{
		const bool	masked = paq_masks_constants(PAQ_CLASS_MISC);

		if (error->cut && !masked)
			paq_pending_header(record)->flags |= PAQ_RECORD_CUT;
		paq_pending_add_message(record, masked ? PAQ_MASKED_MESSAGE : error->message,
								PG_UINT32_MAX);
	}
	paq_publish_now(record, error ? error->sqlstate : 0);
}

/*
 * A message to the client without any statement: does it begin, or end, the
 * answer to a command?  The message that ends an answer has the command's
 * keyword; BASE_BACKUP sends results that end before.
 */
static void
watch_command(char type, const char *data)
{
	const char *keyword;

	if (strchr("CGHTW", type) == NULL)
		return;
	keyword = current_keyword();
	if (keyword == NULL)
		return;
	if (command.record == NULL)
	{
		paq_settle(PAQ_SPACE_WAIT);
		begin_command(keyword, -1, true);
		if (command.record != NULL)
			paq_queue_admit();
	}
	if (type != 'W' && (type != 'C' || strcmp(data, keyword) != 0))
		return;

	/* It has succeeded: wait for what has to be durable by then. */
	paq_replication_end(NULL);
	command.waits = true;
	paq_wait_statement(PAQ_SPACE_WAIT);
	paq_wait_commit(false);
	command.waits = false;
}

/* An error has come up to PostgresMain(): is it that of a command? */
static void
fail_command(void)
{
	const char *keyword = current_keyword();

	command.waits = false;
	if (keyword != NULL)
		begin_command(keyword, geterrcode(), false);
	if (command.record == NULL)
		return;
	paq_replication_end(paq_error_catch(debug_query_string));
	paq_request_waits();
}

/* Is a command being executed that has a record, and is not waiting for it? */
bool
paq_replication_known(void)
{
	return !command.waits && current_keyword() != NULL &&
		command.message == GetCurrentStatementStartTimestamp();
}

static int
watch_message(char type, const char *data, size_t len)
{
	if (call.frame != NULL)
		watch_call(type);
	if (paq_stack.frame == NULL)
		watch_command(type, data);
	/* may have been unwrapped meanwhile */
	return (next_methods ? next_methods : PqCommMethods)->putmessage(type, data, len);
}

/* An error has come up to PostgresMain(), which will report it. */
static void
watch_reset(void)
{
	void		(*next_reset) (void) = next_methods->comm_reset;

	if (call.frame != NULL)
		fail_call();
	fail_command();
	next_reset();
}

/* Begin to watch the messages to the client. */
void
paq_protocol_watch(void)
{
	if (next_methods != NULL)
		return;
	next_methods = PqCommMethods;
	watching_methods = *PqCommMethods;
	watching_methods.putmessage = watch_message;
	watching_methods.comm_reset = watch_reset;
	PqCommMethods = &watching_methods;
}
