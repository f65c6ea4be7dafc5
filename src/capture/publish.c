/*-------------------------------------------------------------------------
 *
 * publish.c
 *		Sending records off once their outcome is known, and waiting for them
 *		to be durable.
 *
 * Guarantees: a record leaves the list of its statement only after it has
 * gone into the queue, so if paq_pending_publish() raises an error, whoever
 * catches it publishes the rest.  A record that found no room although it
 * could not wait goes to the list of deferred records, which the next
 * publication of this session deals with first; so records never overtake each
 * other once they are finished.  There are never more of them than the statements that
 * were being executed had, and MAX_DEFERRED_BYTES: no statement begins before
 * they are gone.
 *
 * Waiting happens only where an error may be raised, after everything that
 * has to do with the records themselves is finished.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "capture/capture_internal.h"
#include "compat.h"
#include "miscadmin.h"
#include "stats.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/*
 * At exit: how often, and after which delay, to try again.  Less often in a
 * process without a PGPROC, which is refusing a client: perhaps because the
 * postmaster is waiting for all processes to end, in which case there is no
 * worker, and kills those that take 5 s.
 */
#define LAST_TRIES		500
#define REFUSED_TRIES	50
#define LAST_DELAY_MS	10

/* Most bytes of records that may wait for room without belonging to a statement */
#define MAX_DEFERRED_BYTES		((Size) 1024 * 1024)

/*
 * Longest message, in bytes, that a record has if another one has it whole.  One error
 * can end thousands of statements that execute each other.
 */
#define MAX_REPEATED_MESSAGE	((uint32) 8192)

/* Structs that are not in use. */
static slist_head free_entries = SLIST_STATIC_INIT(free_entries);

/* Records that wait for room in the queue, oldest first. */
static slist_head deferred = SLIST_STATIC_INIT(deferred);
static slist_node *last_deferred = NULL;
static Size deferred_bytes = 0; /* in records that do not belong to statements,
								 * since the list was empty */

/*
 * Records of a statement that has succeeded, if the commit of its transaction,
 * on which its outcome depends, is to follow at once; oldest first.
 */
static slist_head held = SLIST_STATIC_INIT(held);
static slist_node *last_held = NULL;
static TimestampTz held_since;	/* statement_timestamp() of that statement */
static uint64 held_bytes = 0;
static bool held_rollback;		/* that statement is a ROLLBACK */

/* Records of this session so far. */
static int64 session_lines = 0;

/*
 * Positions that the session has to wait for: at the end of the top-level
 * statement, and before the transaction commits.  0: none.
 */
static uint64 immediate_pos = 0;
static uint64 commit_pos = 0;

/* Append to a singly-linked list whose last node is *last. */
static void
append_node(slist_head *list, slist_node **last, slist_node *node)
{
	if (slist_is_empty(list))
		slist_push_head(list, node);
	else
		slist_insert_after(*last, node);
	*last = node;
}

static PaqEntry *
new_entry(void)
{
	if (!slist_is_empty(&free_entries))
		return slist_container(PaqEntry, node,
							   slist_pop_head_node(&free_entries));
	return MemoryContextAllocExtended(TopMemoryContext, sizeof(PaqEntry),
									  MCXT_ALLOC_NO_OOM);
}

/* The latest that can be said of a record before it is published. */
static void
complete_header(PaqRecordHeader *header)
{
	uint32		lxid = paq_vxid_lxid();

	header->xid = GetTopTransactionIdIfAny();
	if (lxid != InvalidLocalTransactionId)
	{
		header->vxid_proc = paq_vxid_proc();
		header->vxid_lxid = lxid;
	}
	if (header->session_line == 0)
	{
		header->session_line = ++session_lines;
		if (header->flags & PAQ_RECORD_INCOMPLETE)
			paq_stats_add(&paq_my_stats->incomplete, 1);
	}
}

/* Remember who has to wait for the record that ends at pos. */
static void
note_position(uint64 pos, PaqClass class)
{
	if (paq_mode == PAQ_MODE_IMMEDIATE ||
		(paq_immediate_classes & PAQ_CLASS_BIT(class)))
		immediate_pos = pos;
	if (paq_mode == PAQ_MODE_COMMIT)
		commit_pos = pos;
}

/*
 * Publish one record, unless it is dropped.  Returns false if there is no
 * room; may raise if wait is PAQ_SPACE_WAIT.  The record is then still pending.
 */
static bool
publish_pending(PaqPending *pending, PaqSpaceWait wait)
{
	PaqClass	class = paq_pending_header(pending)->audit_class;
	uint64		pos = paq_pending_publish(pending, wait);

	if (pos == 0)
		return false;
	if (likely(pos != PAQ_POS_DROPPED))
		note_position(pos, class);
	return true;
}

/* Publish deferred records, oldest first, as far as there is room. */
static void
publish_deferred(PaqSpaceWait wait)
{
	while (!slist_is_empty(&deferred))
	{
		PaqEntry   *entry = slist_head_element(PaqEntry, node, &deferred);

		if (!publish_pending(entry->pending, wait))
			break;
		slist_pop_head_node(&deferred);
		slist_push_head(&free_entries, &entry->node);
	}
	if (slist_is_empty(&deferred))
		deferred_bytes = 0;
}

/*
 * Let a finished record wait for room in the queue, behind those that do.
 * What fails before it is executed does not wait for them, so there must be a
 * limit to what a client can pile up that way.
 */
static void
defer(PaqPending *pending)
{
	const uint32 length = paq_pending_header(pending)->length;
	const bool	fits = deferred_bytes + length <= MAX_DEFERRED_BYTES;
	PaqEntry   *entry = fits ? new_entry() : NULL;

	if (unlikely(entry == NULL))
	{
		paq_queue_note_drop(fits ? PAQ_DROP_MEMORY : PAQ_DROP_FULL, 1);
		paq_pending_free(pending);
		return;
	}
	entry->pending = pending;
	paq_pending_keep(pending);
	append_node(&deferred, &last_deferred, &entry->node);
	deferred_bytes += length;
}

/* Publish a record as it is.  Neither waits nor raises. */
static void
publish_or_defer(PaqPending *pending)
{
	PaqRecordHeader *header = paq_pending_header(pending);

	header->end_time = GetCurrentTimestamp();
	complete_header(header);
	publish_deferred(PAQ_SPACE_NOWAIT);
	if (!slist_is_empty(&deferred) || !publish_pending(pending, PAQ_SPACE_NOWAIT))
		defer(pending);
}

/*
 * Publish a record that belongs to no statement, with its outcome.  Neither
 * waits nor raises.
 */
void
paq_publish_now(PaqPending *pending, int sqlstate)
{
	paq_pending_header(pending)->sqlstate = sqlstate;
	paq_register_exit();
	publish_or_defer(pending);
}

/*
 * Make the record wait for the outcome of the statement.  If that is not
 * possible, for want of memory, publish it as it is.
 */
static void
add_entry(PaqStatement *statement, PaqPending *pending, bool late,
		  bool has_rows, bool call)
{
	PaqEntry   *entry = new_entry();

	if (unlikely(entry == NULL))
	{
		paq_pending_header(pending)->flags |= PAQ_RECORD_INCOMPLETE;
		publish_or_defer(pending);
		return;
	}
	entry->pending = pending;
	entry->late = late;
	entry->has_rows = has_rows;
	entry->call = call;
	append_node(&statement->entries, &statement->last_entry, &entry->node);
}

void
paq_entry_add(PaqStatement *statement, PaqPending *pending, bool late,
			  bool has_rows)
{
	add_entry(statement, pending, late, has_rows, false);
}

/* The same for the record of a function that the statement calls. */
void
paq_entry_add_call(PaqStatement *statement, PaqPending *pending)
{
	statement->calls += paq_pending_header(pending)->length;
	add_entry(statement, pending, false, false, true);
}

/* In single-user mode; an error must not keep the records from being counted. */
static void
drain_at_exit(void)
{
	PG_TRY();
	{
		(void) paq_queue_drain_alone();
	}
	PG_CATCH();
	{
		EmitErrorReport();
		FlushErrorState();
	}
	PG_END_TRY();
}

/*
 * The process exits: publish what is deferred, waiting for room for a limited
 * time.  An interrupt cannot end the process earlier than it is ending anyway.
 */
void
paq_publish_last(void)
{
	const int	tries = MyProc != NULL ? LAST_TRIES : REFUSED_TRIES;
	int			lost = 0;
	slist_iter	iter;

	if (paq_queue_drain_alone != NULL && !slist_is_empty(&deferred))
		drain_at_exit();
	for (int try = 0; try < tries && !slist_is_empty(&deferred); try++)
	{
		if (try > 0)
			pg_usleep(LAST_DELAY_MS * 1000L);
		paq_queue_request_flush(paq_queue_end());
		publish_deferred(PAQ_SPACE_NOWAIT);
	}

	slist_foreach(iter, &deferred)
		lost++;
	if (lost == 0)
		return;
	paq_queue_note_drop(PAQ_DROP_EXIT, lost);
	while (!slist_is_empty(&deferred))
	{
		PaqEntry   *entry = slist_head_element(PaqEntry, node, &deferred);

		slist_pop_head_node(&deferred);
		paq_pending_free(entry->pending);
	}
	ereport(LOG,
			(errmsg_plural("%d audit record found no room in the queue and is lost",
						   "%d audit records found no room in the queue and are lost",
						   lost, lost)));
}

/*
 * Give the ids to a record that gets them only now and show it to the client;
 * but, as in pgaudit, not if the statement has failed.
 */
static void
finish_late_entry(PaqStatement *statement, PaqEntry *entry, bool failed)
{
	entry->late = false;
	paq_late_ids(statement, entry->pending, failed);
	if (!failed && paq_log_client)
		paq_show_client(statement, entry->pending);
}

/* What the statement knows of the outcome, apart from success or failure. */
static void
finish_entry(PaqStatement *statement, PaqEntry *entry, bool failed)
{
	PaqRecordHeader *header = paq_pending_header(entry->pending);

	header->flags |= statement->flags;
	if (entry->has_rows)
		header->rows = statement->rows;
	if (entry->late)
		finish_late_entry(statement, entry, failed);
}

/* Add the error's message to a record of a statement. */
static void
add_message(PaqPending *pending, const PaqError *error)
{
	if (paq_pending_header(pending)->flags & PAQ_RECORD_CONSTANTS)
	{
		paq_pending_add_message(pending, PAQ_MASKED_MESSAGE, PG_UINT32_MAX);
		return;
	}
	paq_pending_add_message(pending, error->message, error->recorded ?
							MAX_REPEATED_MESSAGE : PG_UINT32_MAX);
	paq_error_recorded();
}

/* Note the outcome in a record that is about to be published. */
static void
finish_record(PaqPending *pending, const PaqError *error, TimestampTz end_time)
{
	PaqRecordHeader *header = paq_pending_header(pending);

	if (error != NULL && header->sqlstate == 0)
	{
		header->sqlstate = error->sqlstate;
		if (error->message != NULL)
			add_message(pending, error);
		header = paq_pending_header(pending);
	}
	header->end_time = end_time;
	complete_header(header);
}

/* Let a finished record of a statement, in no list any more, wait for room. */
static void
defer_entry(PaqEntry *entry)
{
	paq_pending_keep(entry->pending);
	append_node(&deferred, &last_deferred, &entry->node);
}

/*
 * Publish the first entry of a list with its outcome and remove it.  May raise
 * an error if wait is PAQ_SPACE_WAIT; the entry is then still in the list.
 */
static void
publish_first(slist_head *list, const PaqError *error, TimestampTz end_time,
			  PaqSpaceWait wait)
{
	PaqEntry   *entry = slist_head_element(PaqEntry, node, list);

	finish_record(entry->pending, error, end_time);
	if (slist_is_empty(&deferred) && publish_pending(entry->pending, wait))
	{
		slist_pop_head_node(list);
		slist_push_head(&free_entries, &entry->node);
	}
	else
	{
		slist_pop_head_node(list);
		defer_entry(entry);
	}
}

/*
 * Publish the records of the functions that a statement has called so far; it goes
 * on, and its outcome is not known.  May raise an error, before anything else
 * is done.
 */
void
paq_publish_calls(PaqStatement *statement)
{
	TimestampTz now = GetCurrentTimestamp();
	slist_mutable_iter iter;

	publish_deferred(PAQ_SPACE_WAIT);
	statement->calls = 0;
	statement->last_entry = NULL;
	slist_foreach_modify(iter, &statement->entries)
	{
		PaqEntry   *entry = slist_container(PaqEntry, node, iter.cur);

		if (!entry->call)
		{
			statement->last_entry = &entry->node;
			continue;
		}
		slist_delete_current(&iter);
		paq_pending_header(entry->pending)->flags |= PAQ_RECORD_NO_OUTCOME;
		finish_record(entry->pending, NULL, now);
		if (slist_is_empty(&deferred) &&
			publish_pending(entry->pending, PAQ_SPACE_NOWAIT))
			slist_push_head(&free_entries, &entry->node);
		else
			defer_entry(entry);
	}
}

/*
 * Publish all records of the statement with their outcome, NULL being success.
 * With PAQ_SPACE_WAIT an error may be raised, before the first has been published:
 * if others waited for room, too, and that was cancelled, records of one statement
 * would tell of two outcomes.  So those are deferred, and whoever waits for them
 * then does it behind the statement.
 */
void
paq_statement_publish(PaqStatement *statement, const PaqError *error,
					  PaqSpaceWait wait)
{
	const bool	failed = wait == PAQ_SPACE_NOWAIT;
	TimestampTz end_time;

	if (slist_is_empty(&statement->entries))
		return;
	publish_deferred(wait);
	end_time = GetCurrentTimestamp();
	while (!slist_is_empty(&statement->entries))
	{
		finish_entry(statement,
					 slist_head_element(PaqEntry, node, &statement->entries),
					 failed);
		publish_first(&statement->entries, error, end_time, wait);
		wait = PAQ_SPACE_NOWAIT;
	}
}

/*
 * Keep the records of a statement until the commit that follows at once.
 */
static void
hold_entries(PaqStatement *statement)
{
	while (!slist_is_empty(&statement->entries))
	{
		PaqEntry   *entry = slist_head_element(PaqEntry, node,
											 &statement->entries);

		finish_entry(statement, entry, false);
		slist_pop_head_node(&statement->entries);
		append_node(&held, &last_held, &entry->node);
		held_bytes += paq_pending_header(entry->pending)->length;
	}
}

/*
 * Does the commit follow at once, if the statement is in no transaction block?  Not if
 * it ends because the client's next message takes the place of its portal.
 */
static bool
is_last_message(const PaqStatement *statement)
{
	return statement->query_desc == NULL || debug_query_string == NULL ||
		statement->run_message == GetCurrentStatementStartTimestamp();
}

/*
 * The statement has succeeded.  If the commit of its transaction follows at
 * once, which for a top-level statement it does outside of a transaction
 * block, the client learns of one outcome for both: the commit may fail, for
 * the sake of a deferred constraint, say.  Errors as for
 * paq_statement_publish().
 */
void
paq_statement_succeed(PaqStatement *statement)
{
	if (statement->top_level && (statement->commits || !IsTransactionBlock()) &&
		is_last_message(statement))
	{
		hold_entries(statement);
		held_since = GetCurrentStatementStartTimestamp();
		held_rollback = statement->command.tag == CMDTAG_ROLLBACK;
	}
	else
		paq_statement_publish(statement, NULL, statement->room);
}

/*
 * Has a statement ended, and what is executed now belongs to its commit - the
 * query of a deferred trigger - because no message has come from the client
 * since?
 */
bool
paq_is_committing(void)
{
	return !slist_is_empty(&held) &&
		held_since == GetCurrentStatementStartTimestamp();
}

/*
 * Is the portal that is being executed one of what the client has sent?  A function
 * can have portals of its own, with other texts.
 */
static bool
is_clients_portal(void)
{
	const char *text = ActivePortal ? ActivePortal->sourceText : NULL;

	return text != NULL && debug_query_string != NULL &&
		(text == debug_query_string || strcmp(text, debug_query_string) == 0);
}

/*
 * Is a statement that no other one executes the client's?  If it is not, it is
 * part of a commit, or PostgreSQL calls a function to plan the client's, or for a
 * value of a parameter, or in a parallel worker.  The client's statement has no
 * portal yet then.  What a background worker executes has none at all.
 */
bool
paq_is_clients(void)
{
	if (paq_is_committing())
		return false;
	return MyProcPort != NULL ? is_clients_portal() : !IsParallelWorker();
}

/* The transaction is rolled back: was it to be committed? */
bool
paq_is_failing_commit(void)
{
	return paq_is_committing() && !held_rollback;
}

/*
 * Publish what is held with the outcome of the commit, NULL being success.
 * Errors as for paq_statement_publish().
 */
void
paq_publish_held(const PaqError *error, PaqSpaceWait wait)
{
	TimestampTz end_time;

	if (slist_is_empty(&held))
		return;
	publish_deferred(wait);
	end_time = GetCurrentTimestamp();
	while (!slist_is_empty(&held))
	{
		publish_first(&held, error, end_time, wait);
		wait = PAQ_SPACE_NOWAIT;	/* as in paq_statement_publish() */
	}
	held_bytes = 0;
}

/* Does anything make the session wait for what is held? */
static bool
held_is_waited_for(void)
{
	slist_iter	iter;

	if (paq_mode != PAQ_MODE_QUEUED)
		return true;
	slist_foreach(iter, &held)
	{
		PaqEntry   *entry = slist_container(PaqEntry, node, iter.cur);
		int			class = paq_pending_header(entry->pending)->audit_class;

		if (paq_immediate_classes & PAQ_CLASS_BIT(class))
			return true;
	}
	return false;
}

/*
 * Before a commit: what is held is published when the commit has succeeded,
 * at which time nothing may wait any more.  So if the session has to wait, for
 * the trail or for room in the queue, it is published now, as if the commit
 * had succeeded; should it fail after all, that makes a record of its own.
 * Errors as for paq_statement_publish().
 */
void
paq_prepare_held(void)
{
	if (slist_is_empty(&held))
		return;
	if (held_is_waited_for() || !slist_is_empty(&deferred) ||
		paq_queue_used() + held_bytes > paq_queue_capacity() / 2)
		paq_publish_held(NULL, PAQ_SPACE_WAIT);
}

/*
 * Before a statement, whoever executes it: if the session still owes records, it
 * must not do anything new, or it could run up any number of them, in its memory,
 * and then leave.  May raise an error if wait is PAQ_SPACE_WAIT.
 *
 * If a commit was to follow the top-level statement before, but did not, as in
 * a pipeline, that statement was a success, and what has to wait for it waits
 * now.  Texts that could not be kept before are none of this one's; as to those
 * of a statement that executes it, see paq_frame_push().
 */
void
paq_settle(PaqSpaceWait wait)
{
	if (paq_frame == NULL)
		paq_text_errno = 0;
	if (likely(slist_is_empty(&deferred) && slist_is_empty(&held)))
		return;
	publish_deferred(wait);
	if (paq_frame != NULL || paq_is_committing())
		return;
	paq_publish_held(NULL, wait);
	paq_wait_statement(wait);
}

/*
 * Wait for *pos, if it is not 0, and for what the session owes, as far as wait
 * lets it.
 */
static void
wait_for(uint64 *pos, PaqSpaceWait wait)
{
	uint64		target;

	if (likely(*pos == 0 && slist_is_empty(&deferred)))
		return;
	publish_deferred(wait);
	target = *pos;
	*pos = 0;
	if (target != 0)
		paq_queue_wait_flushed(target);
}

/*
 * At the successful end of a top-level statement: wait for what has to be
 * durable by then.  May raise the error of an interrupt.
 */
void
paq_wait_statement(PaqSpaceWait wait)
{
	wait_for(&immediate_pos, wait);
}

/* Before a commit: the same for the transaction. */
void
paq_wait_commit(void)
{
	wait_for(&commit_pos, PAQ_SPACE_WAIT);
}

/* Where nobody can wait: have a flush done soon. */
void
paq_request_waits(void)
{
	uint64		pos = immediate_pos;

	immediate_pos = 0;
	if (pos != 0)
		paq_queue_request_flush(pos);
}

/* The transaction is over, whatever it published. */
void
paq_forget_commit(void)
{
	commit_pos = 0;
}
