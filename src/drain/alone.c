/*-------------------------------------------------------------------------
 *
 * alone.c
 *		Single-user mode: there is no worker, so the session does its work.
 *
 * Not more than is needed: the queue is written to the trail when it is full, or
 * when the session would wait for the trail.  What is in it at the end stays
 * there, and is written when the server next starts, as after a crash.  So there
 * are no files to be removed, nor loaded into the table.
 *
 * Guarantees: as the worker's.  An error in here abandons the batch, which is
 * tried again at the next call.
 *
 * May raise.
 *
 * Locking: none; there is no other process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "drain/drain_internal.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

static const PaqSink *(*get_sink) (void);
static PaqDrain drain;
static MemoryContext context = NULL;
static ResourceOwner owner = NULL;

/* Is it at work?  What it calls must not make records, or would call it again. */
static bool at_work = false;

static void
open_queue(void)
{
	if (drain.reader != NULL)
		return;
	drain.sink = get_sink();
	paq_drain_open(&drain);
}

/*
 * Write all that is in the queue to the trail; false if that cannot be done.
 * The trail outlives transactions, and so does what it needs.
 */
static bool
drain_alone(void)
{
	MemoryContext old_context = CurrentMemoryContext;
	ResourceOwner old_owner = CurrentResourceOwner;
	volatile bool ok = false;

	if (at_work)
		return false;
	at_work = true;
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext,
										"pg_audit_queue single-user mode",
										ALLOCSET_DEFAULT_SIZES);
	if (owner == NULL)
		owner = ResourceOwnerCreate(NULL, "pg_audit_queue single-user mode");
	PG_TRY();
	{
		MemoryContextSwitchTo(context);
		CurrentResourceOwner = owner;
		open_queue();
		paq_drain_abandon(&drain);
		ok = paq_drain_cycle(&drain, false);
	}
	PG_FINALLY();
	{
		MemoryContextSwitchTo(old_context);
		CurrentResourceOwner = old_owner;
		at_work = false;
	}
	PG_END_TRY();
	return ok;
}

/* The session will write to this sink. */
void
paq_drain_alone_init(const PaqSink *(*sink) (void))
{
	get_sink = sink;
	paq_queue_drain_alone = drain_alone;
}
