/*-------------------------------------------------------------------------
 *
 * fastpath.c
 *		Fast-path calls: a client has a function called without SQL, as libpq's
 *		PQfn() and psql's \lo_import do.
 *
 * PostgreSQL tells us of the function when the client has been found to be
 * allowed to call it, before the arguments are looked at.  That is where the
 * statement begins which stands for the call, and what the function executes
 * runs within it, until the client is sent the result.  As for other
 * statements, the record waits for the commit that follows.  Those of functions
 * in pg_catalog are recorded, too: the call is all that the client does.
 *
 * An error comes up to PostgresMain().  One from before the hook is called, as
 * when the function does not exist or may not be called, has a record that names
 * no function; the error's message does.
 *
 * Neither statement nor frame belongs to a function on the C stack.  At most one
 * call is running, and what ends is the outermost frame.
 *
 * No hook sees the values of the arguments.
 *
 * Raises errors for the reasons that a statement may be refused for, see
 * paq_settle(), when memory is short, and to serve an interrupt.
 *
 * Locking: none, everything is local to the process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "miscadmin.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/backend_status.h"
#include "utils/memutils.h"
#include "utils/regproc.h"

#define TEXT	"fastpath function call"	/* as the server log calls it */

/* The call that is running; NULL if there is none */
static PaqCallFrame *call = NULL;

/* statement_timestamp() of the last one */
static TimestampTz last_call = 0;

/*
 * Is the client's message a call?  PostgreSQL says so in pg_stat_activity, unless
 * track_activities is off.
 */
static bool
is_fastpath(void)
{
	if (MyBEEntry == NULL || MyProcPort == NULL)
		return false;
	if (MyBEEntry->st_state != STATE_DISABLED)
		return MyBEEntry->st_state == STATE_FASTPATH;

	/* No text, no portal, and nobody between PostgresMain() and the call */
	return debug_query_string == NULL && ActivePortal == NULL &&
		error_context_stack == NULL && CurrentMemoryContext == MessageContext;
}

/*
 * A function is about to be called, and there is no frame.  Does the client's
 * message call it, rather than, say, a trigger at the commit behind that?
 */
bool
paq_fastpath_begins(void)
{
	return is_fastpath() && last_call != GetCurrentStatementStartTimestamp();
}

/*
 * The session is ended: while a call is dealt with?  Without track_activities that
 * cannot be told from an idle session.
 */
bool
paq_fastpath_ends(void)
{
	return MyBEEntry != NULL && MyBEEntry->st_state == STATE_FASTPATH;
}

/* The text lives in MessageContext, as those that clients send do. */
static PaqCallFrame *
begin_call(Oid function)
{
	const PaqCommand command = {LOGSTMT_ALL, T_CallStmt, CMDTAG_EXECUTE};
	MemoryContext old_context = MemoryContextSwitchTo(MessageContext);
	char	   *text = psprintf(TEXT ": %s", format_procedure_qualified(function));
	PaqStatement *statement;
	PaqCallFrame *frame = NULL;

	MemoryContextSwitchTo(old_context);
	statement = paq_statement_new(text, &command, NULL, true);
	if (likely(statement != NULL))
		frame = paq_frame_push(statement, NULL);
	if (likely(frame != NULL))
	{
		statement->flags |= PAQ_RECORD_PARAM_NOT_LOGGED;
		return frame;
	}
	if (statement != NULL)
		paq_statement_close(statement);
	paq_queue_note_drop(PAQ_DROP_MEMORY, 1);
	return NULL;
}

/* The client calls the function, whose qualified name may be NULL. */
void
paq_fastpath_call(Oid function, const char *name)
{
	paq_session_warm();
	paq_settle(PAQ_SPACE_WAIT);
	last_call = GetCurrentStatementStartTimestamp();
	call = begin_call(function);
	if (unlikely(call == NULL))
		return;
	paq_messages_watch();
	if (!paq_class_is_audited(PAQ_CLASS_FUNCTION))
		return;
	paq_record_function(call->statement, name, true);
	paq_queue_admit();
}

static void
end_call(void)
{
	PaqCallFrame *frame = call;

	call = NULL;
	paq_messages_ignore();
	paq_statement_close(frame->statement);
	paq_frame_pop(frame);
}

/* A message to the client: is it the result of the call? */
void
paq_fastpath_message(char type)
{
	if (type != 'V' || call == NULL)
		return;
	paq_statement_succeed(call->statement);
	end_call();
	paq_wait_statement(PAQ_SPACE_WAIT);
}

/* An error has come up to PostgresMain(). */
void
paq_fastpath_error(void)
{
	if (call == NULL)
		return;
	paq_statement_fail(call->statement, paq_error_catch(call->statement->text));
	end_call();
	paq_request_waits();
}

/*
 * An error is reported that has no record.  Is it that of a call?  Then event is
 * made one of it.
 */
bool
paq_fastpath_refused(PaqEvent *event)
{
	if (!is_fastpath() || last_call == GetCurrentStatementStartTimestamp() ||
		!paq_class_is_audited(PAQ_CLASS_FUNCTION))
		return false;
	event->class = PAQ_CLASS_FUNCTION;
	event->command = GetCommandTagName(CMDTAG_EXECUTE);
	event->object_type = "FUNCTION";
	event->text = TEXT;
	return true;
}
