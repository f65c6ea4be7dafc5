/*-------------------------------------------------------------------------
 *
 * publish.c
 *		Handing finished records to the queue, and waiting for them to be
 *		durable.
 *
 * A record of a statement that has been executed is in one of these lists until
 * the queue has it:
 *
 *	that of its statement	the outcome is not known yet
 *	held		the statement has succeeded, and the commit of its
 *				transaction, which may still fail, follows at once
 *	deferred	finished, but there was no space in the queue when nothing
 *				could wait for it
 *
 * Guarantees: a record leaves its list only when the queue has it, or for that
 * of deferred records, so if paq_pending_publish() raises an error, whoever
 * catches that publishes the rest.  Deferred records go first whenever anything
 * is published, so finished records do not overtake each other.  Their number is
 * bounded by the records of the statements that were being executed, and
 * MAX_DEFERRED_BYTES: no statement begins before they are gone.
 *
 * Waiting happens only where an error may be raised, and after everything that
 * has to do with the records themselves.
 *
 * A statement that only looks at statistics is excused from waiting, because who
 * wants to know why sessions wait must get an answer.  Its records are deferred,
 * up to MAX_DEFERRED_BYTES of them, and whatever else the session does waits for
 * them.
 *
 * Must not know what a statement is.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/transam.h"
#include "access/xact.h"
#include "capture/capture_internal.h"
#include "miscadmin.h"
#include "stats.h"
#include "utils/timestamp.h"

/*
 * At exit: how often, and after which delay, to try again.  Less often in a
 * process without a PGPROC, which is refusing a client: perhaps because the
 * postmaster is waiting for all processes to end.  Then there is no worker, and
 * a process that takes 5 s is killed.
 */
#define LAST_TRIES		500
#define REFUSED_TRIES	50
#define LAST_DELAY_MS	10

/* Limit for the bytes of deferred records that belong to no statement */
#define MAX_DEFERRED_BYTES		((Size) 1024 * 1024)

/*
 * Longest message, in bytes, in a record if another record has the whole of it.
 * One error can end thousands of statements that execute each other.
 */
#define MAX_REPEATED_MESSAGE	((uint32) 8192)

/* Records that wait for space in the queue, oldest first */
static struct
{
	dlist_head	records;
	Size		loose_bytes;	/* of those that belong to no statement, since
								 * the list was empty */
}			deferred = {DLIST_STATIC_INIT(deferred.records)};

/* Records that wait for the commit, oldest first */
static struct
{
	dlist_head	records;
	uint64		bytes;
	TimestampTz message;		/* statement_timestamp() of their statement */
	bool		rollback;		/* that statement is a ROLLBACK */
}			held = {DLIST_STATIC_INIT(held.records)};

/* Positions to wait for, 0: none */
static struct
{
	uint64		statement;		/* at the end of the top-level statement */
	uint64		commit;			/* before the transaction commits */
}			awaited;

/* Records of this session so far */
static int64 session_lines = 0;

bool		paq_excused = false;

static pg_on_exit_callback exit_callback;
static bool exit_registered = false;

/*
 * Have the callback called when the process exits.  Not registered before there
 * is something for it to do, so that it is called before the callbacks that a
 * process starts with.
 */
void
paq_register_exit(void)
{
	if (likely(exit_registered))
		return;
	exit_registered = true;
	before_shmem_exit(exit_callback, (Datum) 0);
}

/* What is known of a record no earlier than when it is published */
static void
complete_header(PaqRecordHeader *header, TimestampTz end_time)
{
	uint32		lxid = paq_vxid_lxid();

	header->end_time = end_time;
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

/* Note who has to wait for the record of length bytes that ends at pos. */
static void
note_position(uint64 pos, bool immediate, bool commit, uint32 length, bool spilled)
{
	if (immediate)
		awaited.statement = pos;
	if (commit)
	{
		awaited.commit = pos;
		paq_wal_note(pos, length, spilled);
	}
}

/*
 * May what is executed next be excused from waiting?  Not if the session has yet to
 * wait for something else, before its transaction commits, say.
 */
bool
paq_may_excuse(void)
{
	return awaited.statement == 0 && awaited.commit == 0 &&
		dlist_is_empty(&held.records);
}

/* What is executed now is excused from waiting, or not. */
void
paq_excuse(bool excused)
{
	paq_excused = excused;
}

/* The space policy of what is executed now */
static inline PaqSpaceWait
patience(PaqSpaceWait wait)
{
	return unlikely(paq_excused) && deferred.loose_bytes < MAX_DEFERRED_BYTES ?
		PAQ_SPACE_NOWAIT : wait;
}

/*
 * Publish one record, unless the space policy drops it.  Returns false if there
 * is no space; may raise if wait is PAQ_SPACE_WAIT.  The record is then still
 * pending.
 */
static bool
publish_pending(PaqPending *pending, PaqSpaceWait wait)
{
	const PaqRecordHeader *header = paq_pending_header(pending);
	const bool	immediate = paq_record_mode(pending, header->audit_class) ==
		PAQ_MODE_IMMEDIATE;
	const bool	commit = (pending->mode >= 0 ? pending->mode : paq_mode) ==
		PAQ_MODE_COMMIT;
	const uint32 length = header->length;
	const bool	spilled = (header->flags & PAQ_RECORD_SPILLED) != 0;
	uint64		pos = paq_pending_publish(pending, wait);

	if (pos == 0)
		return false;
	if (likely(pos != PAQ_POS_DROPPED))
		note_position(pos, immediate, commit, length, spilled);
	return true;
}

/*
 * Publish deferred records, oldest first, as far as there is space.  May raise
 * if wait is PAQ_SPACE_WAIT.
 */
void
paq_publish_deferred(PaqSpaceWait wait)
{
	wait = patience(wait);
	while (!dlist_is_empty(&deferred.records))
		if (!publish_pending(dlist_head_element(PaqPending, node,
												&deferred.records), wait))
			return;
	deferred.loose_bytes = 0;
}

/*
 * Publish a finished record, or let it wait for space.  Returns false in the
 * latter case.  May raise if wait is PAQ_SPACE_WAIT; the record is then where it
 * was.
 */
static bool
publish_or_defer(PaqPending *pending, PaqSpaceWait wait)
{
	if (likely(dlist_is_empty(&deferred.records)) &&
		publish_pending(pending, wait))
		return true;
	paq_pending_keep(pending);
	paq_pending_unlink(pending);
	dlist_push_tail(&deferred.records, &pending->node);
	return false;
}

/*
 * Publish a record that belongs to no statement, with its outcome sqlstate, 0
 * for success.  Neither waits nor raises.  What fails before it is executed
 * does not wait for deferred records, nor do the denials that a function handles, so
 * there is a limit to what a client can pile up that way.  Records beyond it are
 * dropped, whatever "overflow" says, and counted in a GAP record.
 */
void
paq_publish_now(PaqPending *pending, int sqlstate)
{
	PaqRecordHeader *header = paq_pending_header(pending);
	const uint32 length = header->length;

	paq_register_exit();
	header->sqlstate = sqlstate;
	complete_header(header, GetCurrentTimestamp());
	paq_publish_deferred(PAQ_SPACE_NOWAIT);
	if (publish_or_defer(pending, PAQ_SPACE_NOWAIT))
		return;
	if (deferred.loose_bytes + length <= MAX_DEFERRED_BYTES)
	{
		deferred.loose_bytes += length;
		return;
	}
	paq_queue_note_drop(PAQ_DROP_FULL, 1);
	paq_pending_free(pending);
}

/* Add the error's message to a record of a statement. */
static void
add_message(PaqPending *pending, PaqError *error)
{
	if (paq_pending_header(pending)->flags & PAQ_RECORD_CONSTANTS)
	{
		paq_pending_add_message(pending, PAQ_MASKED_MESSAGE, PG_UINT32_MAX);
		return;
	}
	if (error->cut)
		paq_pending_header(pending)->flags |= PAQ_RECORD_CUT;
	paq_pending_add_message(pending, error->message, error->recorded ?
							MAX_REPEATED_MESSAGE : PG_UINT32_MAX);
	error->recorded = true;
}

/*
 * Note the outcome in a record of a statement; error NULL is success.  Returns the
 * record, NULL if a rule has let it go.
 */
static PaqPending *
finish_record(PaqPending *pending, PaqError *error, TimestampTz end_time)
{
	PaqRecordHeader *header;

	if (unlikely(pending->choice != NULL))
		pending = paq_choice_settle(pending, error, end_time);
	if (pending == NULL)
		return NULL;
	header = paq_pending_header(pending);
	if (error != NULL && header->sqlstate == 0)
	{
		header->sqlstate = error->sqlstate;
		error->known = true;
		if (error->message != NULL)
			add_message(pending, error);
		header = paq_pending_header(pending);
	}
	complete_header(header, end_time);
	return pending;
}

/*
 * Publish a list of records with their outcome, error NULL being success, and
 * empty it.  Sets error->recorded.  Call paq_publish_deferred() before.  With
 * PAQ_SPACE_WAIT an error may be raised, before the first record has been
 * published.  Only the first record waits for space: if others did, and that was
 * cancelled, records of one statement would have two outcomes.  Those are
 * deferred instead, and a wait for them comes after the statement.
 */
void
paq_publish_list(dlist_head *records, PaqError *error, PaqSpaceWait wait)
{
	TimestampTz end_time;

	if (dlist_is_empty(records))
		return;
	end_time = GetCurrentTimestamp();
	wait = patience(wait);
	while (!dlist_is_empty(records))
	{
		PaqPending *pending = dlist_head_element(PaqPending, node, records);
		uint32		length;

		pending = finish_record(pending, error, end_time);
		if (pending == NULL)
			continue;
		length = paq_pending_header(pending)->length;
		if (!publish_or_defer(pending, wait) && paq_excused)
			deferred.loose_bytes += length;
		wait = PAQ_SPACE_NOWAIT;
	}
}

/*
 * Publish the records of function calls in the list of a statement that goes
 * on: their outcome is not known.  May raise an error, before anything else is
 * done.
 */
void
paq_publish_calls(dlist_head *records)
{
	TimestampTz now = GetCurrentTimestamp();
	dlist_mutable_iter iter;

	paq_publish_deferred(PAQ_SPACE_WAIT);
	dlist_foreach_modify(iter, records)
	{
		PaqPending *pending = dlist_container(PaqPending, node, iter.cur);

		if (!pending->is_call)
			continue;
		paq_pending_header(pending)->flags |= PAQ_RECORD_NO_OUTCOME;
		pending = finish_record(pending, NULL, now);
		if (pending != NULL)
			(void) publish_or_defer(pending, PAQ_SPACE_NOWAIT);
	}
}

/*
 * Hold the records of a statement that has succeeded until the commit, which
 * follows at once.  rollback: the statement is a ROLLBACK.
 */
void
paq_hold(dlist_head *records, bool rollback)
{
	while (!dlist_is_empty(records))
	{
		PaqPending *pending = dlist_head_element(PaqPending, node, records);

		held.bytes += paq_pending_header(pending)->length;
		dlist_delete(&pending->node);
		dlist_push_tail(&held.records, &pending->node);
	}
	held.message = GetCurrentStatementStartTimestamp();
	held.rollback = rollback;
}

/*
 * Does what is executed now belong to a commit, as the query of a deferred
 * trigger does?  It does if records are held and no message has come from the
 * client since.
 */
bool
paq_is_committing(void)
{
	return !dlist_is_empty(&held.records) &&
		held.message == GetCurrentStatementStartTimestamp();
}

/* The transaction is rolled back: was it to be committed? */
bool
paq_is_failing_commit(void)
{
	return paq_is_committing() && !held.rollback;
}

static pg_noinline void
publish_held(PaqError *error, PaqSpaceWait wait)
{
	paq_publish_deferred(wait);
	paq_publish_list(&held.records, error, wait);
	held.bytes = 0;
}

/*
 * Publish what is held with the outcome of the commit, NULL being success.
 * Errors as for paq_publish_list().
 */
void
paq_publish_held(PaqError *error, PaqSpaceWait wait)
{
	if (!dlist_is_empty(&held.records))
		publish_held(error, wait);
}

/* Must the session wait for any record that is held? */
static bool
held_is_waited_for(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &held.records)
	{
		PaqPending *pending = dlist_container(PaqPending, node, iter.cur);

		if (paq_record_mode(pending, paq_pending_header(pending)->audit_class) !=
			PAQ_MODE_QUEUED)
			return true;
	}
	return false;
}

static pg_noinline void
prepare_held(void)
{
	if (held_is_waited_for() || !dlist_is_empty(&deferred.records) ||
		paq_queue_used() + held.bytes > paq_queue_capacity() / 2)
		paq_publish_held(NULL, PAQ_SPACE_WAIT);
}

/*
 * Before a commit.  What is held is published when the commit has succeeded,
 * at which time nothing may wait any more.  So if the session has to wait, for
 * the trail or for space in the queue, the records are published now, as if
 * the commit had succeeded; a failure of the commit then makes a record of its
 * own.  Errors as for paq_publish_list().
 */
void
paq_prepare_held(void)
{
	if (!dlist_is_empty(&held.records))
		prepare_held();
}

/* Is any finished record not in the queue yet? */
bool
paq_owes_records(void)
{
	return !dlist_is_empty(&deferred.records) || !dlist_is_empty(&held.records);
}

/* In single-user mode.  An error must not keep the records from being counted. */
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
 * The process exits: publish what is deferred, and wait for space for a limited
 * time.  An interrupt cannot end the process any earlier.
 */
void
paq_publish_last(void)
{
	const int	tries = MyProc != NULL ? LAST_TRIES : REFUSED_TRIES;
	int			lost = 0;

	if (paq_queue_drain_alone != NULL && !dlist_is_empty(&deferred.records))
		drain_at_exit();
	for (int try = 0; try < tries && !dlist_is_empty(&deferred.records); try++)
	{
		if (try > 0)
			pg_usleep(LAST_DELAY_MS * 1000L);
		paq_queue_request_flush(paq_queue_end());
		paq_publish_deferred(PAQ_SPACE_NOWAIT);
	}

	while (!dlist_is_empty(&deferred.records))
	{
		paq_queue_note_drop(PAQ_DROP_EXIT, 1);
		paq_pending_free(dlist_head_element(PaqPending, node, &deferred.records));
		lost++;
	}
	if (lost > 0)
		ereport(LOG,
				(errmsg_plural("%d audit record found no space in the queue and is lost",
							   "%d audit records found no space in the queue and are lost",
							   lost, lost)));
}

/*
 * Wait for *pos, if it is not 0, and publish what the session owes, as far as
 * wait lets it.  If the transaction commits now, WAL may take the place of the
 * trail.
 */
static void
wait_for(uint64 *pos, PaqSpaceWait wait, bool commits)
{
	uint64		target;

	if (likely(*pos == 0 && dlist_is_empty(&deferred.records)))
		return;
	paq_publish_deferred(wait);
	target = *pos;
	*pos = 0;
	if (target == 0)
		return;
	if (unlikely(paq_excused))
		paq_queue_request_flush(target);
	else if (!(commits && paq_wal_replaces_wait(target)))
		paq_queue_wait_flushed(target);
}

/*
 * At the successful end of a top-level statement: wait for what has to be
 * durable by then.  May raise the error of an interrupt.
 */
void
paq_wait_statement(PaqSpaceWait wait)
{
	wait_for(&awaited.statement, wait, false);
}

/* The same for the transaction, which commits now, or else goes on. */
void
paq_wait_commit(bool commits)
{
	wait_for(&awaited.commit, PAQ_SPACE_WAIT, commits);
}

/* Where nothing can wait: have a flush done soon. */
void
paq_request_waits(void)
{
	uint64		pos = awaited.statement;

	awaited.statement = 0;
	if (pos != 0)
		paq_queue_request_flush(pos);
}

/* The transaction is over, whatever it published. */
void
paq_forget_commit(bool committed)
{
	awaited.commit = 0;
	paq_wal_end(committed);
}

/* at_exit: called when the process exits, see paq_register_exit(). */
void
paq_publish_init(pg_on_exit_callback at_exit)
{
	exit_callback = at_exit;
}
