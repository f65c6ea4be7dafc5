/*-------------------------------------------------------------------------
 *
 * capture.c
 *		Turning what PostgreSQL's hooks tell us into records: the parts that
 *		all of capture/ uses.
 *
 * File map:
 *
 *	capture.c		initialization, frames, the audit role
 *	executor.c		hooks of the executor: SELECT, INSERT, UPDATE, ...
 *	utility.c		hook of everything else
 *	object_access.c	hook for calls of functions, and for TRUNCATE
 *	fastpath.c		calls of functions without SQL
 *	replication.c	commands of walsenders
 *	messages.c		watching what a client is sent, for these two
 *	ddl.c			event triggers, for the names of objects in DDL
 *	error.c			the error being handled, and errors without a statement
 *	xact.c			ends of transactions, and of the process
 *	statement.c		statements being executed
 *	part.c			which part of the text that was sent each of them is
 *	build.c			making records of them
 *	relation.c		... for the relations of a statement
 *	denied.c		... for statements that are denied
 *	catalog.c		which of them log_catalog leaves out
 *	grants.c		which relations the audit role's grants select
 *	classify.c		classes and names of commands and objects
 *	session.c		the fields that all records of a session share
 *	config.c		changes of our settings
 *	connect.c		logins and logouts
 *	event.c			making records of what is not a statement's execution
 *	params.c		parameters of a statement
 *	param_text.c	the text of one
 *	publish.c		sending records off when the outcome is known; waiting
 *	client.c		showing records to the client
 *
 * Guarantees: no hook raises an error of its own, except to serve an
 * interrupt while it waits for the worker, and where pg_audit_queue.overflow
 * has a statement fail.  With nothing to be recorded, a hook does no more than
 * to keep the frames.
 *
 * Must not do: know anything of the queue beyond queue/queue.h.
 *
 * Locking: none, everything is local to the process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture.h"
#include "capture/capture_internal.h"
#include "utils/acl.h"
#include "utils/inval.h"
#include "utils/memutils.h"
#include "utils/syscache.h"

PaqCallFrame *paq_frame = NULL;
bool		paq_executes_part = false;

/* Begins the chain of frames, which is as long as it has ever been. */
static PaqCallFrame outermost = {NULL};

/* The audit role as of the last look: valid while both are unchanged. */
static bool role_valid = false;
static char role_name[NAMEDATALEN];
static Oid	role_oid = InvalidOid;

/* The session has never been as deep: allocate the frame within paq_frame. */
static PaqCallFrame *
new_frame(void)
{
	PaqCallFrame *frame = MemoryContextAllocExtended(TopMemoryContext,
													 sizeof(PaqCallFrame),
													 MCXT_ALLOC_NO_OOM);

	if (frame != NULL)
	{
		frame->parent = paq_frame;
		frame->inner = NULL;
	}
	paq_frame->inner = frame;
	return frame;
}

/* Begin a group that has given no ids yet. */
void
paq_group_init(PaqGroup *group)
{
	static uint64 groups = 0;

	group->number = ++groups;
	group->statement_id = 0;
	group->substatements = 0;
}

/*
 * Enter a hook that executes something for statement, which may be NULL if
 * nothing is known of it, and for queryDesc, NULL for a utility statement.
 * The caller must pop the frame however the execution ends.  Returns NULL when
 * out of memory.
 */
PaqCallFrame *
paq_frame_push(PaqStatement *statement, QueryDesc *queryDesc)
{
	PaqCallFrame *frame = paq_frame ? paq_frame->inner : &outermost;

	if (unlikely(frame == NULL))
	{
		frame = new_frame();
		if (frame == NULL)
			return NULL;
	}
	frame->statement = statement;
	frame->query_desc = queryDesc;
	frame->starting = false;
	frame->text_errno = paq_text_errno;
	paq_text_errno = 0;
	paq_forget_error();			/* whatever it was, it has been handled */
	if (paq_frame != NULL)
		frame->group = paq_frame->group;
	else
	{
		paq_group_init(&frame->own_group);
		frame->group = statement ? &statement->group : &frame->own_group;
	}
	frame->exception_stack = PG_exception_stack;
	frame->context_stack = error_context_stack;
	paq_frame = frame;
	return frame;
}

/*
 * Leave the hook; if it guarded the frame, errors are its caller's again.  So is
 * what became of texts: whether it fails for want of one depends on its own.
 */
void
paq_frame_pop(PaqCallFrame *frame)
{
	Assert(paq_frame == frame);
	paq_frame_catch(frame);
	paq_text_errno = frame->text_errno;
	paq_frame = frame->parent;
}

/*
 * The statement that is being executed, NULL if none is.  If auditing was
 * off when it started, it becomes known now.
 */
PaqStatement *
paq_current_statement(void)
{
	PaqCallFrame *frame = paq_frame;

	if (frame == NULL)
		return NULL;
	if (frame->statement == NULL && frame->query_desc != NULL)
	{
		frame->statement = paq_statement_find(frame->query_desc);
		if (frame->statement == NULL)
			frame->statement = paq_statement_open(frame->query_desc);
		if (frame->statement != NULL && frame->group == &frame->own_group)
		{
			frame->statement->group = frame->own_group;
			frame->group = &frame->statement->group;
		}
	}
	return frame->statement;
}

static void
forget_role(Datum arg, int cacheid, uint32 hashvalue)
{
	role_valid = false;
}

/* OID of the role named by pg_audit_queue.role; invalid if there is none. */
Oid
paq_audit_role(void)
{
	if (paq_role[0] == '\0' || strlen(paq_role) >= NAMEDATALEN)
		return InvalidOid;
	if (!role_valid || strcmp(role_name, paq_role) != 0)
	{
		role_name[0] = '\0';

		/*
		 * Valid before the lookup, so that a change of roles that is noticed
		 * while it runs is not lost; the name after it, lest it fails.
		 */
		role_valid = true;
		role_oid = get_role_oid(paq_role, true);
		strlcpy(role_name, paq_role, NAMEDATALEN);
	}
	return role_oid;
}

void
paq_capture_init(void)
{
	CacheRegisterSyscacheCallback(AUTHOID, forget_role, (Datum) 0);
	paq_session_init();
	paq_config_init();
	paq_connect_init();
	paq_xact_init();
	paq_error_init();
	paq_part_init();
	paq_executor_init();
	paq_utility_init();
	paq_object_access_init();
}
