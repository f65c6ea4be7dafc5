/*-------------------------------------------------------------------------
 *
 * retain.c
 *		Retention, as far as the worker has to do with it: that the trail tells
 *		of what will be removed, before it is.
 *
 * The sink plans a group of files; a record of class CONFIG names them; when
 * that is flushed, and no checkpoint refers to an older file any more, the sink
 * removes them.  A crash in between leaves a record of something that is yet to
 * be done: then there will be another one.
 *
 * Guarantees: nothing is removed of which no record can be made.  Waits for
 * nothing: what has to be waited for is looked at again at the next call.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "drain/drain_internal.h"
#include "queue/queue.h"

/* Is what is planned in the trail?  If not, see to it that it will be. */
static bool
removal_is_recorded(PaqDrain *drain)
{
	if (drain->removal_end == 0)
	{
		/* The queue may be full; it is tried again when there is room. */
		if (!paq_event_all_sent())
			return false;
		drain->removal_end = paq_queue_end();
		paq_queue_request_flush(drain->removal_end);
	}
	return paq_queue_is_flushed(drain->removal_end);
}

/*
 * Do a small piece of the work.  Returns whether there is more that can be done
 * at once.
 */
bool
paq_drain_retain(PaqDrain *drain)
{
	PaqRemoval	removal;

	if (!drain->resumed || drain->retry_at != 0 ||
		!paq_reader_is_live(drain->reader))
		return false;
	if (drain->removal.count > 0)
	{
		if (!drain->removal_made)
			drain->removal_made = paq_event_removal(&drain->removal);
		if (!drain->removal_made || !removal_is_recorded(drain))
			return false;
		paq_drain_secure(drain);
		drain->removal.count = 0;
	}
	switch (drain->sink->retain(&removal))
	{
		case PAQ_RETENTION_IDLE:
			return false;
		case PAQ_RETENTION_MORE:
			break;
		case PAQ_RETENTION_PLANNED:
			drain->removal = removal;
			drain->removal_made = false;
			drain->removal_end = 0;
			break;
		case PAQ_RETENTION_FAILED:
			(void) paq_event_removal(&removal);
			break;
	}
	return true;
}
