/*-------------------------------------------------------------------------
 *
 * error.c
 *		The error that is being handled: what the records of whatever it ends
 *		say of it, and records of errors that ended nothing that was executed.
 *
 * An error is met first by the innermost hook that it passes through, which
 * copies it; the hooks further out find that copy.  Starting anything new
 * proves that it was handled.  When it reaches the client, PostgreSQL reports
 * it: the one moment at which errors can be seen that no hook was there for -
 * in a statement's syntax, in its planning, at the commit.  If there was
 * nothing being executed whose record has the error, it gets a record of
 * class ERROR.
 *
 * Errors that log_min_messages keeps from the server's log are not reported, and
 * PostgreSQL has no function that tells whether an error is being handled, or it
 * could be looked at when the transaction ends.  Of such an error only what
 * passes through a hook is known; see at_abort().
 *
 * A PANIC leaves nobody who could make a record, nor memory that may be
 * allocated: it may come from a critical section.
 *
 * Must not raise, except that in PG_CATCH the lack of memory for the copy of an
 * error becomes the error.
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
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/elog.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"

static emit_log_hook_type prev_emit_log = NULL;

/* The last error seen since the last top-level statement began */
static PaqError error;
static bool error_seen = false;

/* Has a hook met it?  Which one does it come to next: NULL if it was the last */
static bool caught = false;
static PaqCallFrame *next_frame;

/* Is it the outcome of what the client wanted to have executed? */
static bool owned = false;

/* Memory for the copy of the error, and for its message without secrets */
static MemoryContext error_context = NULL;
static char *own_message = NULL;

/* Is the hook for messages running?  What it calls may report something, too. */
static bool in_emit_log = false;

/* The error, as far as it is known; NULL if there was none. */
const PaqError *
paq_error(void)
{
	return error_seen ? &error : NULL;
}

/* Something new begins. */
void
paq_forget_error(void)
{
	error_seen = false;
	caught = false;
	owned = false;
}

/* Take over the message in own memory, unless it is there. */
static void
set_message(char *message)
{
	if (own_message != NULL && own_message != message)
		pfree(own_message);
	own_message = message;
	error.message = message;
}

/*
 * Note a message as it may be recorded, given the text of a statement that
 * the error ends; NULL if that is unknown.
 */
static void
note_message(const char *message, const char *statement)
{
	PaqMasked	shown;

	paq_mask_message(message, statement, &shown);
	if (shown.text == own_message)
		return;
	if (shown.copy == NULL)
	{
		shown.copy = MemoryContextAllocExtended(TopMemoryContext, shown.len + 1,
												MCXT_ALLOC_NO_OOM);
		if (shown.copy != NULL)
			memcpy(shown.copy, shown.text, shown.len + 1);
	}
	set_message(shown.copy);
}

/*
 * The message of the error on top of PostgreSQL's stack of errors, in
 * error_context; NULL if it cannot be had.  The one way to it is to copy the
 * error, which takes memory; if there is none, that is another error, which
 * stays on top and is the one that goes on.
 */
static const char *
copy_message(void)
{
	const uint32 interrupts = InterruptHoldoffCount;
	const uint32 cancels = QueryCancelHoldoffCount;
	MemoryContext old_context = CurrentMemoryContext;
	const char *volatile message = NULL;

	PG_TRY();
	{
		if (error_context == NULL)
			error_context = AllocSetContextCreate(TopMemoryContext,
												  "pg_audit_queue error",
												  ALLOCSET_DEFAULT_SIZES);
		MemoryContextSwitchTo(error_context);
		message = CopyErrorData()->message;
	}
	PG_CATCH();
	{
		/* which errfinish() has reset */
		InterruptHoldoffCount = interrupts;
		QueryCancelHoldoffCount = cancels;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	return message;
}

/* Note the error on top of PostgreSQL's stack of errors. */
static void
note_error(int sqlstate, const char *statement)
{
	const char *message;

	error_seen = true;
	error.sqlstate = sqlstate;
	error.recorded = false;
	error.fatal = false;
	set_message(NULL);
	if (sqlstate == ERRCODE_OUT_OF_MEMORY)
		return;
	message = copy_message();
	if (message != NULL)
		note_message(message, statement);
	if (error_context != NULL)
		MemoryContextReset(error_context);
}

/*
 * In the PG_CATCH block of the innermost frame, before it is popped: the error
 * that is being handled.  text is that of the statement which it ends, NULL
 * if unknown.
 */
const PaqError *
paq_error_catch(const char *text)
{
	int			sqlstate = geterrcode();

	if (!caught || next_frame != paq_frame || error.sqlstate != sqlstate)
		note_error(sqlstate, text);
	else if (error.message != NULL)
		note_message(error.message, text);
	caught = true;
	next_frame = paq_frame->parent;
	if (next_frame == NULL)
		owned = paq_frame->statement != NULL && paq_frame->statement->top_level;
	return &error;
}

/*
 * The same before PostgresMain() reports the error, for a command that has no
 * frame.
 */
const PaqError *
paq_error_command(const char *text)
{
	note_error(geterrcode(), text);
	caught = owned = true;
	next_frame = NULL;
	return &error;
}

/* A record has the message. */
void
paq_error_recorded(void)
{
	error.recorded = true;
}

/* The error has come too late for the record of the statement that it ends. */
void
paq_error_unrecorded(void)
{
	owned = false;
}

/*
 * Is the error the outcome of a statement of the client's?  One that ends the session
 * is reported while there are frames, and what is executed may be others': those of a
 * commit, or of planning.
 */
static bool
has_owner(void)
{
	PaqCallFrame *frame = paq_frame;

	if (frame == NULL)
		return owned || paq_statement_awaits_outcome();
	if (!error.fatal)
		return true;
	while (frame->parent != NULL)
		frame = frame->parent;
	return frame->statement != NULL && frame->statement->top_level;
}

/*
 * The error is reported and ends the client's command.  Unless something that
 * was executed has it as its outcome, it gets a record of its own.
 */
static void
record_error(void)
{
	PaqEvent	event = {.class = PAQ_CLASS_ERROR};
	PaqMasked	shown = {0};
	bool		places;

	if (!paq_capture_possible() || has_owner() || paq_is_committing() ||
		(MyProcPort == NULL && IsUnderPostmaster) ||
		(!paq_fastpath_refused(&event) &&
		 !paq_class_is_audited(PAQ_CLASS_ERROR)))
		return;

	/* What is still held succeeded before, in the same pipeline. */
	paq_publish_held(NULL, PAQ_SPACE_NOWAIT);
	event.start_time = GetCurrentStatementStartTimestamp();
	places = paq_masks_constants(event.class);
	event.message = places ? PAQ_MASKED_MESSAGE : error.message;
	if (!paq_log_statement)
	{
		event.flags = PAQ_RECORD_STMT_NOT_LOGGED;
		event.text = NULL;
	}
	else if (debug_query_string != NULL)
	{
		paq_mask_text(debug_query_string, places ? PAQ_MASK_CONSTANTS : 0, &shown);
		event.text = shown.text;
		event.flags = paq_masked_flags(&shown);
	}
	paq_record_event(&event, error.sqlstate);
	if (shown.copy != NULL)
		pfree(shown.copy);
	paq_request_waits();
}

/*
 * May the report come from a signal handler, as when a background worker is
 * told to end?  Then memory must be left alone.
 */
static bool
in_signal_handler(const ErrorData *edata)
{
	return edata->elevel >= FATAL && MyProcPort == NULL;
}

/* pg_trigger_depth(), which is all that PostgreSQL tells of triggers */
static int
trigger_depth(void)
{
	LOCAL_FCINFO(fcinfo, 0);

	InitFunctionCallInfoData(*fcinfo, NULL, 0, InvalidOid, NULL, NULL);
	return DatumGetInt32(pg_trigger_depth(fcinfo));
}

/*
 * One that ends the session ends what the client has sent, too, if anything.  A call
 * has no text; nor has a Sync, which commits, perhaps by way of triggers.
 */
static bool
is_busy(void)
{
	return debug_query_string != NULL || paq_frame != NULL ||
		paq_is_before_commit() || paq_fastpath_ends() ||
		trigger_depth() > 0;
}

/* Keep what is reported, unless it is what the hooks know already. */
static void
note_report(ErrorData *edata)
{
	if (!caught || error.sqlstate != edata->sqlerrcode)
	{
		error_seen = true;
		error.sqlstate = edata->sqlerrcode;
		error.recorded = false;
		error.message = NULL;
		if (!in_signal_handler(edata))
		{
			set_message(NULL);
			if (edata->message != NULL)
				note_message(edata->message, debug_query_string);
		}
	}
	error.fatal = edata->elevel >= FATAL;
	if (edata->elevel == FATAL)
		paq_connect_failed(&error);

	if (edata->elevel == ERROR ||
		(paq_logged_in && !paq_replication_known() && is_busy()))
		record_error();
	if (paq_frame == NULL)
		caught = owned = false; /* the next one is another one */
}

static void
capture_emit_log(ErrorData *edata)
{
	if (edata->elevel >= ERROR && edata->elevel < PANIC && !in_emit_log &&
		(paq_log_classes != PAQ_CLASSES_NONE || paq_role[0] != '\0'))
	{
		in_emit_log = true;
		PG_TRY();
		{
			note_report(edata);
		}
		PG_FINALLY();
		{
			/* If that failed after all, later errors are recorded. */
			in_emit_log = false;
		}
		PG_END_TRY();
	}
	if (prev_emit_log)
		prev_emit_log(edata);
}

void
paq_error_init(void)
{
	prev_emit_log = emit_log_hook;
	emit_log_hook = capture_emit_log;
}
