/*-------------------------------------------------------------------------
 *
 * statement.c
 *		Statements being executed.
 *
 * An executor statement is known from ExecutorStart to ExecutorEnd, or to
 * whatever ends it instead: an error in one of the executor's functions, the
 * end of its subtransaction or transaction, the exit of the process.  Which
 * one comes first closes it, which is what makes its records be published
 * exactly once.
 *
 * A utility statement belongs to the call of the hook that runs it, so only
 * that hook, or the exit of the process, ends it.
 *
 * Must not raise: memory comes from a free list that grows, if it can, in
 * TopMemoryContext.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "common/hashfn.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* How many statements are looked for in the list, without buckets */
#define LISTED_STATEMENTS	8		/* a power of 2 */

/* Structs that are not in use */
static dlist_head free_statements = DLIST_STATIC_INIT(free_statements);

/*
 * Open executor statements: all of them, newest first, and, once they have been
 * many, by the address of their QueryDesc, because there may be thousands of
 * cursors.  The number of buckets is a power of 2, and grows with that of
 * statements, if it can.
 */
dlist_head	paq_statements = DLIST_STATIC_INIT(paq_statements);
static dlist_head *buckets = NULL;
static uint32 bucket_count = LISTED_STATEMENTS;
static uint32 open_count = 0;

static dlist_head *
bucket_of(const QueryDesc *queryDesc)
{
	return &buckets[murmurhash32((uint32) ((uintptr_t) queryDesc >> 3)) &
					(bucket_count - 1)];
}

/* Have twice as many buckets; if there is no memory, these have to do. */
static void
add_buckets(void)
{
	Size		size = sizeof(dlist_head) * bucket_count * 2;
	dlist_head *old = buckets;
	dlist_head *more = MemoryContextAllocExtended(TopMemoryContext, size,
												  MCXT_ALLOC_NO_OOM |
													  MCXT_ALLOC_HUGE |
													  MCXT_ALLOC_ZERO);
	dlist_iter	iter;

	if (more == NULL)
		return;
	buckets = more;
	bucket_count *= 2;
	dlist_foreach(iter, &paq_statements)
	{
		PaqStatement *statement = dlist_container(PaqStatement, node, iter.cur);

		dlist_push_head(bucket_of(statement->query_desc), &statement->bucket);
	}
	if (old != NULL)
		pfree(old);
}

static PaqStatement *
allocate(void)
{
	if (!dlist_is_empty(&free_statements))
		return dlist_container(PaqStatement, node,
							   dlist_pop_head_node(&free_statements));
	return MemoryContextAllocExtended(TopMemoryContext, sizeof(PaqStatement),
									  MCXT_ALLOC_NO_OOM);
}

/*
 * A statement with what all of them have; plan may be NULL.  Returns NULL when
 * out of memory.
 */
PaqStatement *
paq_statement_new(const char *text, const PaqCommand *command,
				  const PlannedStmt *plan, bool top_level)
{
	PaqStatement *statement = allocate();

	if (unlikely(statement == NULL))
		return NULL;
	statement->query_desc = NULL;
	statement->text = text;
	statement->part = NULL;
	statement->part_copy = NULL;
	statement->shown.text = NULL;
	statement->shown.copy = NULL;
	statement->params = NULL;
	statement->command = *command;
	paq_group_init(&statement->group);
	statement->opened_in = 0;
	statement->statement_id = 0;
	statement->substatement_id = 0;
	statement->start_time = top_level ?
		GetCurrentStatementStartTimestamp() : GetCurrentTimestamp();
	statement->run_message = 0;
	statement->rows = -1;
	statement->processed = 0;
	statement->query_id = plan ? plan->queryId : 0;
	statement->location = plan ? plan->stmt_location : -1;
	statement->len = plan ? plan->stmt_len : 0;
	statement->flags = 0;
	statement->calls = 0;
	statement->text_bytes = 0;
	statement->subxact = GetCurrentSubTransactionId();
	statement->recorded = false;
	statement->text_recorded = false;
	statement->perms_checked = false;
	statement->unfinished = false;
	statement->hidden = false;
	statement->commits = false;
	statement->run = false;
	statement->complete = false;
	statement->top_level = top_level;
	statement->others_rights = false;
	statement->granted_known = false;
	statement->granted = NIL;
	statement->truncated = InvalidOid;
	statement->room = PAQ_SPACE_WAIT;
	statement->attempt = NULL;
	statement->provisional = NULL;
	slist_init(&statement->entries);
	statement->last_entry = NULL;
	if (statement->location <= 0 && statement->len <= 0)
		paq_part_begin(statement);
	paq_register_exit();
	return statement;
}

/*
 * Make the statement of queryDesc, whose frame is the innermost one, known.
 * Returns NULL when out of memory: its records are then made without it.
 */
PaqStatement *
paq_statement_open(QueryDesc *queryDesc)
{
	PaqCommand	command = paq_operation_command(queryDesc->operation);
	bool		top_level = paq_frame->parent == NULL && paq_is_clients();
	PaqStatement *statement = paq_statement_new(queryDesc->sourceText, &command,
												queryDesc->plannedstmt,
												top_level);

	if (unlikely(statement == NULL))
		return NULL;
	statement->query_desc = queryDesc;
	statement->opened_in = paq_frame->group->number;
	statement->params = queryDesc->params;
	dlist_push_head(&paq_statements, &statement->node);
	if (unlikely(buckets != NULL))
		dlist_push_head(bucket_of(queryDesc), &statement->bucket);
	if (unlikely(++open_count > bucket_count))
		add_buckets();
	return statement;
}

/*
 * An executor is being started: an open statement with the same address is of
 * one that somebody freed without ending it, and its outcome is unknown.
 */
void
paq_statement_forget(QueryDesc *queryDesc)
{
	PaqStatement *statement = paq_statement_find(queryDesc);

	if (likely(statement == NULL))
		return;
	statement->flags |= PAQ_RECORD_INCOMPLETE;
	paq_statement_fail(statement, NULL);
	paq_statement_close(statement);
}

static PaqStatement *
look_into_bucket(QueryDesc *queryDesc)
{
	dlist_iter	iter;

	dlist_foreach(iter, bucket_of(queryDesc))
	{
		PaqStatement *statement = dlist_container(PaqStatement, bucket, iter.cur);

		if (statement->query_desc == queryDesc)
			return statement;
	}
	return NULL;
}

/* As paq_statement_find(), which knows the newest one. */
PaqStatement *
paq_statement_look_up(QueryDesc *queryDesc)
{
	dlist_iter	iter;

	if (unlikely(buckets != NULL))
		return look_into_bucket(queryDesc);
	dlist_foreach(iter, &paq_statements)
	{
		PaqStatement *statement = dlist_container(PaqStatement, node, iter.cur);

		if (statement->query_desc == queryDesc)
			return statement;
	}
	return NULL;
}

/* Is there no record of the statement yet? */
static bool
is_unrecorded(PaqStatement *statement)
{
	return slist_is_empty(&statement->entries) &&
		statement->provisional == NULL && statement->attempt == NULL;
}

/*
 * Will the next record be the first of what the client has sent?  statement is
 * the one that it is about, if there is one that has no frame.  What runs during
 * a commit comes behind the statement that it belongs to.
 */
bool
paq_is_first(PaqStatement *statement)
{
	if ((statement != NULL && !is_unrecorded(statement)) || paq_is_committing())
		return false;
	for (PaqCallFrame *frame = paq_frame; frame != NULL; frame = frame->parent)
	{
		if (frame->statement != NULL && !is_unrecorded(frame->statement))
			return false;
	}
	return true;
}

/*
 * Is the client's last message about the statement: has it begun it (Bind), or run
 * it, or is it about to (Execute, whose text is the portal's)?
 */
static bool
is_clients_last(const PaqStatement *statement)
{
	const TimestampTz message = GetCurrentStatementStartTimestamp();

	return statement->top_level &&
		(statement->start_time == message || statement->run_message == message ||
		 statement->text == debug_query_string);
}

/*
 * Is the client's last message about an open statement whose records wait for its
 * outcome?  Then it is ended by whatever error comes now, although it has no frame,
 * as while its session waits for the records of what it has executed.
 */
bool
paq_statement_awaits_outcome(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &paq_statements)
	{
		PaqStatement *statement = dlist_container(PaqStatement, node, iter.cur);

		if (is_clients_last(statement) && !slist_is_empty(&statement->entries))
			return true;
	}
	return false;
}

/* Forget a statement all of whose records have been published. */
void
paq_statement_close(PaqStatement *statement)
{
	Assert(slist_is_empty(&statement->entries));
	if (statement->shown.copy != NULL)
	{
		pfree(statement->shown.copy);
		statement->shown.copy = NULL;
	}
	if (statement->part_copy != NULL)
	{
		pfree(statement->part_copy);
		statement->part_copy = NULL;
	}
	if (statement->query_desc != NULL)
	{
		dlist_delete(&statement->node);
		if (unlikely(buckets != NULL))
			dlist_delete(&statement->bucket);
		open_count--;
	}
	dlist_push_head(&free_statements, &statement->node);
}

/*
 * Publish the records of a statement that failed or, with error NULL, that
 * ended without telling us.  May be called where nothing may wait or raise.
 */
void
paq_statement_fail(PaqStatement *statement, const PaqError *error)
{
	if (statement->attempt != NULL)
	{
		PaqPending *attempt = statement->attempt;

		statement->attempt = NULL;
		paq_entry_add(statement, attempt, false, false);
	}

	/* The only record of a utility statement that did not get far */
	if (statement->provisional != NULL)
	{
		PaqPending *pending = statement->provisional;

		statement->provisional = NULL;
		paq_known_ids(statement, pending);
		paq_entry_add(statement, pending, false, true);
	}
	paq_statement_publish(statement, error, PAQ_SPACE_NOWAIT);
}

/* No frame must lead to a statement that is no more. */
static void
detach_frames(PaqStatement *statement)
{
	PaqCallFrame *outermost = NULL;

	for (PaqCallFrame *frame = paq_frame; frame != NULL; frame = frame->parent)
	{
		if (frame->statement != statement)
			continue;
		frame->statement = NULL;
		outermost = frame;
	}
	if (outermost == NULL)
		return;

	/* nor to its group, which those within it share */
	outermost->own_group = statement->group;
	for (PaqCallFrame *frame = paq_frame; frame != NULL; frame = frame->parent)
	{
		if (frame->group == &statement->group)
			frame->group = &outermost->own_group;
	}
}

/*
 * Close all executor statements that began in subtransaction from or later,
 * newest first, with flags added to their records.  from is the current one, or
 * they all are closed: what began before that is older than what did not.
 */
void
paq_statement_close_all(SubTransactionId from, const PaqError *error,
						uint32 flags)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &paq_statements)
	{
		PaqStatement *statement = dlist_container(PaqStatement, node, iter.cur);
		const bool	last = is_clients_last(statement);

		if (statement->subxact < from)
			break;
		statement->flags |= flags;
		if (statement->command.tag != CMDTAG_SELECT)
		{
			/* Only a SELECT may stop before its end, if there is no error. */
			if (statement->run && (error == NULL || !last))
				statement->flags |= PAQ_RECORD_INCOMPLETE;
			if (error == NULL)
				statement->flags |= PAQ_RECORD_NO_OUTCOME;
		}

		/* In a pipeline, what the client was told to be complete is a success. */
		paq_statement_fail(statement, statement->complete && !last ? NULL : error);
		detach_frames(statement);
		paq_statement_close(statement);
	}
}
