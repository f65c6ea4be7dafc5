/*-------------------------------------------------------------------------
 *
 * error.c
 *		The error that is being handled, for the records of whatever it ends.
 *
 * The first to see an error is the innermost hook that it passes through, which
 * copies it; hooks further out find that copy.  An error that passes through no
 * hook - in a statement's syntax, at the commit - is first seen
 * when PostgreSQL reports it (report.c).  A new frame proves that the error was
 * handled.
 *
 * A function can handle an error before any hook sees it: that of a statement's
 * analysis, or of an expression, within a block with an exception handler.  Of these,
 * denials are recorded.  A frame has a context callback, which PostgreSQL calls when
 * it raises an error, and whoever handles one rolls a subtransaction back.
 *
 * PostgreSQL has no function that tells whether an error is being handled, so
 * if log_min_messages keeps an error from being reported, only what passes
 * through a hook is known of it; see at_abort() in xact.c.
 *
 * Must not raise, except that in PG_CATCH, and in the context callback, the lack of
 * memory for the copy of an error becomes the error.  In the callback it is raised as
 * any error is there: PostgreSQL has given up the message that it was about by then.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "libpq/libpq-be.h"
#include "miscadmin.h"
#include "tcop/tcopprot.h"
#include "utils/elog.h"
#include "utils/memutils.h"

static struct
{
	PaqError	error;
	bool		seen;			/* is there one? */
	uint64		pushes;			/* paq_stack.pushes when it was seen */

	bool		caught;			/* a hook has seen it */
	PaqCallFrame *next_frame;	/* which one it comes to next, NULL: none */

	/* it is the outcome of what the client wanted to have executed */
	bool		owned;

	char	   *message;		/* memory of error.message */
	MemoryContext context;		/* for the copy of an error; NULL: not yet made */
}			state;

/* A denial that has been raised within the innermost frame, and not come out of it */
static struct
{
	PaqError	error;			/* sqlstate 0: there is none */
	uint64		pushes;			/* paq_stack.pushes when it was raised */
	char	   *message;		/* memory of error.message */
}			inner;

/* Forget the error if something new has begun since it was seen. */
static void
forget_handled(void)
{
	if (state.pushes != paq_stack.pushes)
		paq_forget_error();
	state.pushes = paq_stack.pushes;
}

/* The error has been handled. */
void
paq_forget_error(void)
{
	state.seen = state.caught = state.owned = false;
}

/* The error, as far as it is known; NULL if there is none. */
PaqError *
paq_error(void)
{
	forget_handled();
	return state.seen ? &state.error : NULL;
}

/* Take over the message, in own memory, NULL if it is unknown. */
static void
set_message(char *message)
{
	if (state.message != NULL && state.message != message)
		pfree(state.message);
	state.message = message;
	state.error.message = message;
}

/*
 * The message as it may be recorded, given the text of a statement that the error
 * ends, NULL if that is unknown.  The result is own memory, or the message itself if
 * that is "own" and may be recorded as it is; NULL when out of memory.  Sets *cut if it is
 * only the beginning.
 */
static char *
shown_message(const char *message, char *own, const char *statement, bool *cut)
{
	PaqMasked	shown;

	paq_mask_message(message, statement, &shown);
	*cut |= shown.cut;
	if (shown.text == own)
		return own;
	if (shown.copy == NULL)
	{
		shown.copy = MemoryContextAllocExtended(TopMemoryContext, shown.len + 1,
												MCXT_ALLOC_NO_OOM);
		if (shown.copy != NULL)
			memcpy(shown.copy, shown.text, shown.len + 1);
	}
	return shown.copy;
}

/* Note a message; arguments as for shown_message(). */
static void
note_message(const char *message, const char *statement)
{
	set_message(shown_message(message, state.message, statement, &state.error.cut));
}

/*
 * Returns the error on top of PostgreSQL's stack of errors, copied to state.context.
 * There is no other way to its message.  Raises if there is no memory for it.
 */
static const ErrorData *
copy_error(void)
{
	MemoryContext old_context;
	const ErrorData *copy;

	if (state.context == NULL)
		state.context = AllocSetContextCreate(TopMemoryContext,
											  "pg_audit_queue error",
											  ALLOCSET_DEFAULT_SIZES);
	old_context = MemoryContextSwitchTo(state.context);
	copy = CopyErrorData();
	MemoryContextSwitchTo(old_context);
	return copy;
}

/*
 * Returns a copy of the error that is being caught; NULL if there is no memory for it.
 * That is another error then, which stays on top and is the one that goes on.
 */
static const ErrorData *
copy_error_caught(void)
{
	const uint32 interrupts = InterruptHoldoffCount;
	const uint32 cancels = QueryCancelHoldoffCount;
	MemoryContext old_context = CurrentMemoryContext;
	const ErrorData *volatile copy = NULL;

	PG_TRY();
	{
		copy = copy_error();
	}
	PG_CATCH();
	{
		/* which errfinish() has reset */
		InterruptHoldoffCount = interrupts;
		QueryCancelHoldoffCount = cancels;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	return copy;
}

/* The copy is not used any more. */
static void
free_copy(void)
{
	if (state.context != NULL)
		MemoryContextReset(state.context);
}

/* A new error, of which only the SQLSTATE is known yet */
static void
begin_error(int sqlstate)
{
	state.seen = true;
	state.error.sqlstate = sqlstate;
	state.error.recorded = false;
	state.error.known = false;
	state.error.cut = false;
	state.error.fatal = false;
	state.error.message = NULL;
}

/* Note the error on top of PostgreSQL's stack of errors. */
static void
note_error(int sqlstate, const char *statement)
{
	const ErrorData *copy;

	begin_error(sqlstate);
	set_message(NULL);
	if (sqlstate == ERRCODE_OUT_OF_MEMORY)
		return;
	copy = copy_error_caught();
	if (copy != NULL && copy->message != NULL)
		note_message(copy->message, statement);
	free_copy();
}

/* A hook sees the error that is being handled, which comes to that frame next; NULL: to none. */
static void
catch_error(const char *text, PaqCallFrame *next_frame)
{
	const PaqCallFrame *frame = paq_stack.frame;
	int			sqlstate = geterrcode();

	forget_handled();
	if (frame == NULL || !state.caught || state.next_frame != frame ||
		state.error.sqlstate != sqlstate)
		note_error(sqlstate, text);
	else if (state.error.message != NULL)
		note_message(state.error.message, text);
	state.caught = true;
	state.next_frame = next_frame;
}

/*
 * In the PG_CATCH block of the innermost frame, before it is popped: the error
 * that is being handled.  text is that of the statement which it ends, NULL
 * if unknown.  Or, before PostgresMain() reports the error, for a command that has
 * no frame.
 */
PaqError *
paq_error_catch(const char *text)
{
	PaqCallFrame *frame = paq_stack.frame;

	inner.error.sqlstate = 0;
	catch_error(text, frame ? frame->parent : NULL);
	if (state.next_frame == NULL)
		state.owned = frame == NULL ||
			(frame->statement != NULL && frame->statement->top_level);
	return &state.error;
}

/*
 * For the PG_CATCH block of a hook that has no frame.  Returns the error that is being handled,
 * which the innermost frame, if there is one, is yet to see.  text is that of the statement which
 * it ends.  The error still gets a record of its own, unless paq_error_own() follows.
 */
PaqError *
paq_error_catch_unframed(const char *text)
{
	catch_error(text, paq_stack.frame);
	return &state.error;
}

/* The error that a hook without a frame has caught is the outcome of a record. */
void
paq_error_own(void)
{
	inner.error.sqlstate = 0;
	if (paq_stack.frame == NULL)
		state.owned = true;
}

/* The error has come too late for the record of the statement that it ends. */
void
paq_error_unrecorded(void)
{
	state.owned = false;
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

/* The error that PostgreSQL reports, which a hook may have seen already. */
PaqError *
paq_error_report(ErrorData *edata)
{
	forget_handled();
	if (!state.caught || state.error.sqlstate != edata->sqlerrcode)
	{
		begin_error(edata->sqlerrcode);
		if (!in_signal_handler(edata))
		{
			set_message(NULL);
			if (edata->message != NULL)
				note_message(edata->message, debug_query_string);
		}
	}
	state.error.fatal = edata->elevel >= FATAL;
	return &state.error;
}

/*
 * Is the error that is reported the outcome of a statement of the client's?  A
 * FATAL error is reported while there are frames, and what is executed may not
 * be the client's, but part of a commit or of planning.
 */
bool
paq_error_has_owner(void)
{
	PaqCallFrame *frame = paq_stack.frame;

	if (frame == NULL)
		return state.owned || paq_statement_awaits_outcome();
	if (!state.error.fatal)
		return true;
	while (frame->parent != NULL)
		frame = frame->parent;
	return frame->statement != NULL && frame->statement->top_level;
}

/* The error has been reported: without frames, the next one is a new one. */
void
paq_error_reported(void)
{
	if (paq_stack.frame == NULL)
		state.caught = state.owned = false;
}

/*
 * Record the error as an event of class ERROR, or another one, that settings or rules
 * have chosen.
 */
void
paq_error_record(PaqEvent *event, const PaqError *error)
{
	const PaqWish wish = paq_verdict_wish(event->verdict,
										  paq_masks_constants(event->class));

	event->message = wish.normalized ? PAQ_MASKED_MESSAGE : error->message;
	if (error->cut && !wish.normalized)
		event->flags |= PAQ_RECORD_CUT;
	paq_event_set_text(event, false);
	paq_record_event(event, error->sqlstate);
}

/* Is it the code of an error, and not of a message that goes with a success? */
static bool
is_error_code(int sqlstate)
{
	const int	category = ERRCODE_TO_CATEGORY(sqlstate);

	return category != ERRCODE_SUCCESSFUL_COMPLETION && category != ERRCODE_WARNING &&
		category != ERRCODE_NO_DATA;
}

/*
 * Context callback of a frame: PostgreSQL raises an error, or tells something.  Note a
 * denial that the innermost frame may not see.
 */
void
paq_error_context(void *frame)
{
	const int	sqlstate = geterrcode();
	const ErrorData *copy;

	/* A message of a frame further out, or one that goes with a success */
	if (frame != paq_stack.frame || !is_error_code(sqlstate))
		return;
	inner.error.sqlstate = 0;

	/* Not a denial, or one that nobody wants to be told of */
	if ((paq_outcome_bits(sqlstate) & PAQ_OUTCOME_DENIED) == 0 ||
		((paq_log_classes & PAQ_DENIED_BIT) == 0 && !paq_class_is_wanted(PAQ_CLASS_ERROR)))
		return;

	/* It will be a PANIC, and nothing may be allocated. */
	if (CritSectionCount > 0)
		return;

	free_copy();
	copy = copy_error();
	if (copy->elevel == ERROR)
	{
		if (inner.message != NULL)
			pfree(inner.message);
		inner.error.cut = false;
		inner.message = copy->message ?
			shown_message(copy->message, NULL, paq_stack.frame->statement ?
						  paq_stack.frame->statement->text : NULL, &inner.error.cut) : NULL;
		inner.error.message = inner.message;
		inner.error.sqlstate = sqlstate;
		inner.pushes = paq_stack.pushes;
	}
	free_copy();
}

/*
 * A subtransaction is rolled back, and the error that was the reason is handled: the
 * next one is a new one.  If it was a denial that no hook has seen, record it.
 */
void
paq_error_handled(void)
{
	const PaqSubject subject = {.class = PAQ_CLASS_ERROR};
	PaqEvent	event = {.class = PAQ_CLASS_ERROR};

	if (unlikely(inner.error.sqlstate != 0) && inner.pushes == paq_stack.pushes &&
		paq_stack.frame != NULL && !creating_extension)
	{
		event.start_time = GetCurrentTimestamp();
		if (paq_event_choose(&event, &subject, inner.error.sqlstate))
			paq_error_record(&event, &inner.error);
	}
	inner.error.sqlstate = 0;
	if (unlikely(inner.message != NULL))
	{
		pfree(inner.message);
		inner.message = NULL;
	}
	paq_forget_error();
}
