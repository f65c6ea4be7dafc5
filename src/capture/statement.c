/*-------------------------------------------------------------------------
 *
 * statement.c
 *		What this process is executing: call frames, statements, their ids,
 *		and their parts of the texts that were sent.
 *
 * An executor statement is known from ExecutorStart to ExecutorEnd, before that while it is
 * planned (planning.c), or to
 * whatever ends it instead: an error in one of the executor's functions, the
 * end of its subtransaction or transaction, the exit of the process.  Whichever
 * comes first closes it, so its records are published exactly once.  A utility
 * statement belongs to the call of the hook that runs it, so only that hook, or
 * the exit of the process, ends it.  outcome.c has what happens to the records
 * then.
 *
 * A string can have many statements, and so can the body of an SQL function.
 * PostgreSQL hands the whole text to each of them, with the place of the
 * statement.  A record has that part, without white space around it, and the
 * place.  So the records of a string are as long as the string, and not as its
 * square.  A statement that is alone in its string, but for semicolons, has no
 * place.  It is recorded as it was sent or, from PostgreSQL 17 on, without white
 * space and semicolons around it, as pgaudit does.  Before PostgreSQL 18, the part
 * of a statement begins behind the semicolon of the one before, and includes
 * comments in front of it.
 *
 * PostgreSQL does not always know the place.  The query of a statement such as
 * EXPLAIN or DECLARE CURSOR has the place of that statement.  What a rule makes
 * of a statement has the statement's place, which is noted when the statement
 * is analysed.  Where even that is unknown, as for a rule within a function of
 * several statements, the record has the whole text.
 *
 * Must not raise, except in paq_settle() as documented there.  Memory comes from
 * TopMemoryContext.  Structs that are not in use are kept.
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
#include "common/hashfn.h"
#include "miscadmin.h"
#include "parser/analyze.h"
#include "parser/scansup.h"
#include "tcop/pquery.h"
#include "tcop/tcopprot.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

/* Number of open statements that are looked up without buckets; a power of 2 */
#define LISTED_STATEMENTS	8

PaqStack	paq_stack = {.statements = DLIST_STATIC_INIT(paq_stack.statements)};

/* The first frame of the chain, which is as long as it has ever been */
static PaqCallFrame outermost = {.context.arg = &outermost};

/* Structs that are not in use */
static dlist_head free_statements = DLIST_STATIC_INIT(free_statements);

/*
 * Open executor statements by the address of their QueryDesc, once there have
 * been many of them: there may be thousands of cursors.  The number of buckets
 * is a power of 2 and grows with that of statements, as far as there is memory.
 */
static struct
{
	dlist_head *heads;			/* NULL: the list is enough */
	uint32		count;
	uint32		statements;
}			buckets = {NULL, LISTED_STATEMENTS, 0};

/* Ids given to top-level statements of this session so far */
static int64 statement_count = 0;

/*
 * Without a client: the last transaction in which a statement was followed by another one, see
 * paq_in_job()
 */
static LocalTransactionId job = InvalidLocalTransactionId;

/*
 * Place of the statement that was analysed last, if it is in the text that the
 * client has sent, and the message with that text: the text of another message
 * can be at the same address.
 */
static struct
{
	const char *text;
	TimestampTz message;
	int			location;
	int			len;
}			analysed;

static post_parse_analyze_hook_type prev_post_parse_analyze = NULL;

/* Begin a group that has given no ids yet. */
static void
init_group(PaqGroup *group)
{
	static uint64 groups = 0;

	group->number = ++groups;
	group->statement_id = 0;
	group->substatements = 0;
}

/* The session has never been as deep: allocate the next frame. */
static PaqCallFrame *
new_frame(void)
{
	PaqCallFrame *frame = MemoryContextAllocExtended(TopMemoryContext,
													 sizeof(PaqCallFrame),
													 MCXT_ALLOC_NO_OOM);

	if (frame != NULL)
	{
		frame->parent = paq_stack.frame;
		frame->inner = NULL;
		frame->context.arg = frame;
	}
	paq_stack.frame->inner = frame;
	return frame;
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
	PaqCallFrame *parent = paq_stack.frame;
	PaqCallFrame *frame = parent ? parent->inner : &outermost;

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
	if (parent != NULL)
		frame->group = parent->group;
	else
	{
		init_group(&frame->own_group);
		frame->group = statement ? &statement->group : &frame->own_group;
	}
	frame->exception_stack = PG_exception_stack;
	frame->context.previous = error_context_stack;
	paq_stack.frame = frame;
	paq_stack.pushes++;
	return frame;
}

/*
 * Leave the hook.  If it guarded the frame, errors are its caller's again; and
 * so is paq_text_errno, because a statement fails for its own texts only.
 */
void
paq_frame_pop(PaqCallFrame *frame)
{
	Assert(paq_stack.frame == frame);
	paq_frame_catch(frame);
	paq_text_errno = frame->text_errno;
	paq_stack.frame = frame->parent;
}

/* This process is a parallel worker that executes a part of a query. */
void
paq_stack_begin_part(void)
{
	paq_stack.in_part = true;
}

/* A statement is being planned, or is so no more. */
void
paq_stack_begin_planning(void)
{
	paq_stack.plannings++;
}

void
paq_stack_end_planning(void)
{
	Assert(paq_stack.plannings > 0);
	paq_stack.plannings--;
}

/*
 * Is the active portal one of those that the client has sent?  A function can
 * have portals of its own, with other texts.
 */
static bool
is_clients_portal(void)
{
	const char *text = ActivePortal ? ActivePortal->sourceText : NULL;

	return text != NULL && debug_query_string != NULL &&
		(text == debug_query_string || strcmp(text, debug_query_string) == 0);
}

/*
 * Is a statement that no other statement executes the client's?  If not, it is
 * part of a commit, or in a function that PostgreSQL calls to plan the client's
 * statement, to make the value of a parameter, or in a parallel worker.  The
 * client's statement has no portal yet then.  A background worker has no portals
 * at all.
 */
bool
paq_is_clients(void)
{
	if (paq_is_committing())
		return false;
	return MyProcPort != NULL ? is_clients_portal() : !IsParallelWorker();
}

/*
 * Returns true if the process executes SQL with the rights of users: for a client, in
 * single-user mode, or in a background worker or autovacuum, which are connected to a
 * database then.
 */
bool
paq_is_for_users(void)
{
	return MyProcPort != NULL || !IsUnderPostmaster ||
		(OidIsValid(MyDatabaseId) &&
		 (MyBackendType == B_BG_WORKER || MyBackendType == B_AUTOVAC_WORKER));
}

/* Returns true within a trigger: pg_trigger_depth() is all that PostgreSQL tells of it. */
bool
paq_in_trigger(void)
{
	LOCAL_FCINFO(fcinfo, 0);

	InitFunctionCallInfoData(*fcinfo, NULL, 0, InvalidOid, NULL, NULL);
	return DatumGetInt32(pg_trigger_depth(fcinfo)) > 0;
}

/*
 * Returns true if a statement that is about to begin, with no other being executed, is part
 * of the commit that records are held for.  Without a client there are no messages that
 * would tell one statement of a job from the next, but a commit executes nothing except in
 * triggers.
 */
static bool
is_in_commit(void)
{
	return paq_is_committing() && (MyProcPort != NULL || paq_in_trigger());
}

/*
 * Returns true if the transaction, which is of a process without a client, has executed a
 * statement before the last one.  Then the commit has an outcome of its own, as in the
 * transaction of several statements that a client sends in one message.
 */
bool
paq_in_job(void)
{
	return job != InvalidLocalTransactionId && job == paq_vxid_lxid();
}

/*
 * Before a statement, whoever executes it: a session that still owes records
 * must not do anything new, or it could pile up any number of them in its memory,
 * and then leave.  May raise an error if wait is PAQ_SPACE_WAIT.
 *
 * If a commit was to follow the top-level statement before, but did not, as in a
 * pipeline or in a job of a background worker, that statement was a success, and the
 * session waits for its records now.
 */
void
paq_settle(PaqSpaceWait wait)
{
	if (unlikely(paq_excused))
		paq_excuse(false);		/* that was for an earlier statement */
	if (paq_stack.frame == NULL)
		paq_text_errno = 0;		/* of texts of one, too */
	if (likely(!paq_owes_records()))
		return;
	paq_publish_deferred(wait);
	if (paq_stack.frame != NULL || is_in_commit())
		return;
	if (MyProcPort == NULL && paq_is_committing())
		job = paq_vxid_lxid();
	paq_publish_held(NULL, wait);
	paq_wait_statement(wait);
}

static dlist_head *
bucket_of(const QueryDesc *queryDesc)
{
	return &buckets.heads[murmurhash32((uint32) ((uintptr_t) queryDesc >> 3)) &
						  (buckets.count - 1)];
}

/* Double the number of buckets, if there is memory. */
static void
add_buckets(void)
{
	Size		size = sizeof(dlist_head) * buckets.count * 2;
	dlist_head *old = buckets.heads;
	dlist_head *more = MemoryContextAllocExtended(TopMemoryContext, size,
												  MCXT_ALLOC_NO_OOM |
													  MCXT_ALLOC_HUGE |
													  MCXT_ALLOC_ZERO);
	dlist_iter	iter;

	if (more == NULL)
		return;
	buckets.heads = more;
	buckets.count *= 2;
	dlist_foreach(iter, &paq_stack.statements)
	{
		PaqStatement *statement = dlist_container(PaqStatement, node, iter.cur);

		dlist_push_head(bucket_of(statement->query_desc), &statement->bucket);
	}
	if (old != NULL)
		pfree(old);
}

static PaqStatement *
allocate_statement(void)
{
	if (!dlist_is_empty(&free_statements))
		return dlist_container(PaqStatement, node,
							   dlist_pop_head_node(&free_statements));
	return MemoryContextAllocExtended(TopMemoryContext, sizeof(PaqStatement),
									  MCXT_ALLOC_NO_OOM);
}

/* The innermost statement that is being executed, if it is known. */
static const PaqStatement *
enclosing_statement(void)
{
	for (PaqCallFrame *frame = paq_stack.frame; frame != NULL;
		 frame = frame->parent)
		if (frame->statement != NULL)
			return frame->statement;
	return NULL;
}

/*
 * Can a query be in the statement's part of the text?  Anything else that the
 * statement executes may have the same text, and be another part of it, or be
 * different if quotes are read in another way.
 */
static bool
has_query(const PaqStatement *statement)
{
	switch (statement->command.node)
	{
		case T_CopyStmt:
		case T_CreateTableAsStmt:
		case T_DeclareCursorStmt:
		case T_ExplainStmt:
		case T_RefreshMatViewStmt:
		case T_ViewStmt:
			return true;
		default:
			return false;
	}
}

static inline bool
is_same_text(const char *a, const char *b)
{
	return a == b || strcmp(a, b) == 0;
}

/*
 * A statement begins, in the innermost frame or before it has one of its own,
 * and PostgreSQL does not tell its part of the text.
 */
static void
find_place(PaqStatement *statement)
{
	const PaqStatement *outer = enclosing_statement();

	if (outer != NULL && (outer->location > 0 || outer->len > 0) &&
		has_query(outer) && is_same_text(outer->text, statement->text))
	{
		statement->location = outer->location;
		statement->len = outer->len;
	}
	else if (statement->location < 0 && analysed.text != NULL &&
			 statement->text == analysed.text &&
			 analysed.message == GetCurrentStatementStartTimestamp())
	{
		statement->location = analysed.location;
		statement->len = analysed.len;
	}
}

/*
 * A statement; plan may be NULL.  top_level: it is the client's.  Returns NULL
 * when out of memory.
 */
PaqStatement *
paq_statement_new(const char *text, const PaqCommand *command,
				  const PlannedStmt *plan, bool top_level)
{
	PaqStatement *statement = allocate_statement();

	if (unlikely(statement == NULL))
		return NULL;
	memset(statement, 0, sizeof(*statement));
	statement->text = text;
	statement->command = *command;
	init_group(&statement->group);
	statement->start_time = top_level ?
		GetCurrentStatementStartTimestamp() : GetCurrentTimestamp();
	statement->rows = -1;
	statement->query_id = plan ? plan->queryId : 0;
	statement->location = plan ? plan->stmt_location : -1;
	statement->len = plan ? plan->stmt_len : 0;
	statement->subxact = GetCurrentSubTransactionId();
	statement->top_level = top_level;
	statement->space_policy = PAQ_SPACE_WAIT;
	dlist_init(&statement->records);
	if (statement->location <= 0 && statement->len <= 0)
		find_place(statement);
	paq_register_exit();
	return statement;
}

/*
 * Enter a hook for a new statement that is not the executor's.  Returns NULL,
 * after counting the loss, when out of memory; statement may be NULL for that
 * reason, too.
 */
PaqCallFrame *
paq_statement_enter(PaqStatement *statement)
{
	PaqCallFrame *frame = NULL;

	if (likely(statement != NULL))
		frame = paq_frame_push(statement, NULL);
	if (likely(frame != NULL))
		return frame;
	if (statement != NULL)
		paq_statement_close(statement);
	paq_queue_note_drop(PAQ_DROP_MEMORY, 1);
	return NULL;
}

/*
 * Make the statement of queryDesc, which is executed by the innermost frame, known.  top_level:
 * it is the client's.  Returns NULL when out of memory: its records are then made without it.
 */
PaqStatement *
paq_statement_open(QueryDesc *queryDesc, bool top_level)
{
	PaqCommand	command = paq_operation_command(queryDesc->operation);
	PaqStatement *statement = paq_statement_new(queryDesc->sourceText, &command,
												queryDesc->plannedstmt,
												top_level);

	if (unlikely(statement == NULL))
		return NULL;
	statement->query_desc = queryDesc;
	statement->opened_in = paq_stack.frame != NULL ? paq_stack.frame->group->number : 0;
	statement->params = queryDesc->params;
	dlist_push_head(&paq_stack.statements, &statement->node);
	if (unlikely(buckets.heads != NULL))
		dlist_push_head(bucket_of(queryDesc), &statement->bucket);
	if (unlikely(++buckets.statements > buckets.count))
		add_buckets();
	return statement;
}

/* As paq_statement_find(), which knows the newest one. */
PaqStatement *
paq_statement_look_up(QueryDesc *queryDesc)
{
	dlist_iter	iter;

	if (unlikely(buckets.heads != NULL))
	{
		dlist_foreach(iter, bucket_of(queryDesc))
		{
			PaqStatement *statement = dlist_container(PaqStatement, bucket,
													  iter.cur);

			if (statement->query_desc == queryDesc)
				return statement;
		}
		return NULL;
	}
	dlist_foreach(iter, &paq_stack.statements)
	{
		PaqStatement *statement = dlist_container(PaqStatement, node, iter.cur);

		if (statement->query_desc == queryDesc)
			return statement;
	}
	return NULL;
}

/*
 * The statement that is being executed, NULL if none is.  If auditing was
 * off when it started, it becomes known now.
 */
PaqStatement *
paq_current_statement(void)
{
	PaqCallFrame *frame = paq_stack.frame;

	if (frame == NULL)
		return NULL;
	if (frame->statement == NULL && frame->query_desc != NULL)
	{
		frame->statement = paq_statement_find(frame->query_desc);
		if (frame->statement == NULL)
			frame->statement = paq_statement_open(frame->query_desc,
												  frame->parent == NULL && paq_is_clients());
		if (frame->statement != NULL && frame->group == &frame->own_group)
		{
			frame->statement->group = frame->own_group;
			frame->group = &frame->statement->group;
		}
	}
	return frame->statement;
}

/*
 * Is the client's last message about the statement?  It is if it began the
 * statement (Bind), ran it, or is about to run it (Execute, whose text is the
 * portal's).
 */
bool
paq_statement_is_clients_last(const PaqStatement *statement)
{
	const TimestampTz message = GetCurrentStatementStartTimestamp();

	return statement->top_level &&
		(statement->start_time == message || statement->run_message == message ||
		 statement->text == debug_query_string);
}

/*
 * Is the client's last message about an open statement with records that wait
 * for its outcome?  An error that is raised now ends it, even if it has no
 * frame, because its session is waiting for records of what it has executed.
 */
bool
paq_statement_awaits_outcome(void)
{
	dlist_iter	iter;

	dlist_foreach(iter, &paq_stack.statements)
	{
		PaqStatement *statement = dlist_container(PaqStatement, node, iter.cur);

		if (paq_statement_is_clients_last(statement) &&
			!dlist_is_empty(&statement->records))
			return true;
	}
	return false;
}

/* Is there no record of the statement yet? */
static bool
is_unrecorded(PaqStatement *statement)
{
	return dlist_is_empty(&statement->records) &&
		statement->provisional == NULL && statement->attempt == NULL;
}

/*
 * Will the next record be the first about the client's message?  statement is
 * what it is about, if that has no frame; it may be NULL.  What runs during a
 * commit comes after the statement that the commit belongs to.
 */
bool
paq_is_first(PaqStatement *statement)
{
	if ((statement != NULL && !is_unrecorded(statement)) || paq_is_committing())
		return false;
	for (PaqCallFrame *frame = paq_stack.frame; frame != NULL;
		 frame = frame->parent)
	{
		if (frame->statement != NULL && !is_unrecorded(frame->statement))
			return false;
	}
	return true;
}

/*
 * New ids within the top-level statement that is being executed, which gets its
 * own now if it has none.
 */
void
paq_next_ids(PaqStatement *statement, int64 *statement_id,
			 int64 *substatement_id)
{
	PaqGroup   *group = paq_stack.frame ? paq_stack.frame->group :
		&statement->group;

	if (group->statement_id == 0)
		group->statement_id = ++statement_count;
	*statement_id = group->statement_id;
	*substatement_id = ++group->substatements;
}

/* Give the statement its ids, if it has none. */
void
paq_assign_ids(PaqStatement *statement)
{
	if (statement->statement_id == 0)
		paq_next_ids(statement, &statement->statement_id,
					 &statement->substatement_id);
}

/*
 * Give the record the ids that are known by now, and assign none: pgaudit does
 * not record it, and the ids of other records must be those of pgaudit.
 */
void
paq_known_ids(PaqStatement *statement, PaqPending *pending)
{
	PaqRecordHeader *header = paq_pending_header(pending);
	PaqGroup   *group = paq_stack.frame ? paq_stack.frame->group :
		&statement->group;

	header->statement_id = statement->statement_id != 0 ?
		statement->statement_id : group->statement_id;
	header->substatement_id = statement->substatement_id;
}

/*
 * Does the statement end in another group than it began in?  Then it is the
 * query of a cursor, which pgaudit has forgotten by now.
 */
static bool
has_outlived_group(const PaqStatement *statement)
{
	return statement->query_desc != NULL &&
		(paq_stack.frame == NULL ||
		 paq_stack.frame->group->number != statement->opened_in);
}

/*
 * The statement ends, and gives its ids only now to a record.  As in pgaudit,
 * none are assigned if the statement has failed, and a record that comes too
 * late has none, or else all later ids would differ from those of pgaudit.
 */
void
paq_assign_late_ids(PaqStatement *statement, PaqPending *pending, bool failed)
{
	if (has_outlived_group(statement))
		return;
	if (!failed)
		paq_assign_ids(statement);
	paq_known_ids(statement, pending);
}

/*
 * Length of a statement's text.  The statements of the client's string come one
 * after the other, so its length is kept: otherwise they would take quadratic time.
 */
static Size
text_length(const char *text)
{
	static const char *clients = NULL;
	static TimestampTz message;
	static Size length;

	if (text != debug_query_string)
		return strlen(text);
	if (text != clients || message != GetCurrentStatementStartTimestamp())
	{
		clients = text;
		message = GetCurrentStatementStartTimestamp();
		/* analyzer: a statement with a place has a text */
		length = strlen(text);
	}
	return length;
}

/*
 * Is the statement's place within its text?  An extension can have a statement
 * executed with another text than the one that it was parsed from.
 */
static bool
is_within_text(const PaqStatement *statement)
{
	return (Size) statement->location + Max(statement->len, 0) <=
		text_length(statement->text);
}

/* Does it stand between statements, without a meaning? */
static inline bool
is_separator(char c)
{
	return c == ';' || scanner_isspace(c);
}

/* Is nothing left of the text but white space and semicolons? */
static bool
is_end(const char *rest)
{
	while (is_separator(*rest))
		rest++;
	return *rest == '\0';
}

/* Is there nothing but white space and semicolons in front of the place? */
static bool
is_beginning(const char *text, int location)
{
	while (location > 0 && is_separator(text[location - 1]))
		location--;
	return location == 0;
}

/* Is the text all of the statement, or is the statement's place not known? */
static bool
has_whole_text(const PaqStatement *statement)
{
	const char *text = statement->text;

	if (statement->location < 0 ||
		(statement->location == 0 && statement->len <= 0) ||
		!is_within_text(statement))
		return true;
	return is_beginning(text, statement->location) &&
		(statement->len <= 0 ||
		 is_end(text + statement->location + statement->len));
}

/*
 * The part of the text that the statement is, terminated by '\0'; NULL when out
 * of memory.  From then on the statement's location and len say where it is, -1
 * and 0 if it is the whole text.
 */
const char *
paq_statement_part(PaqStatement *statement)
{
	const char *part;
	Size		len;
	bool		whole;

	if (likely(statement->part != NULL))
		return statement->part;
	whole = has_whole_text(statement);
	if (whole)
	{
		statement->location = -1;
		statement->len = 0;
	}
	if (whole && !PAQ_TEXT_IS_TRIMMED)
	{
		statement->part = statement->text;
		return statement->part;
	}

	part = statement->text + Max(statement->location, 0);
	len = statement->len > 0 ? (Size) statement->len : strlen(part);
	for (; len > 0 && (scanner_isspace(*part) || (whole && is_separator(*part))); len--)
		part++;
	while (len > 0 && is_separator(part[len - 1]))
		len--;
	if (!whole)
		statement->location = part - statement->text;
	if (statement->len > 0)
		statement->len = len;

	if (part[len] != '\0')
	{
		statement->part_copy =
			MemoryContextAllocExtended(TopMemoryContext, len + 1,
									   MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
		if (statement->part_copy == NULL)
			return NULL;
		memcpy(statement->part_copy, part, len);
		statement->part_copy[len] = '\0';
		part = statement->part_copy;
	}
	statement->part = part;
	return part;
}

/* No frame must lead to a statement that is about to be closed, nor to its group. */
void
paq_statement_detach(PaqStatement *statement)
{
	PaqCallFrame *last = NULL;

	for (PaqCallFrame *frame = paq_stack.frame; frame != NULL; frame = frame->parent)
	{
		if (frame->statement != statement)
			continue;
		frame->statement = NULL;
		last = frame;
	}
	if (last == NULL)
		return;

	/* the frames within it share its group */
	last->own_group = statement->group;
	for (PaqCallFrame *frame = paq_stack.frame; frame != NULL; frame = frame->parent)
	{
		if (frame->group == &statement->group)
			frame->group = &last->own_group;
	}
}

/* Forget a statement all of whose records have been published. */
void
paq_statement_close(PaqStatement *statement)
{
	Assert(dlist_is_empty(&statement->records));
	if (unlikely(statement->choice.rules != NULL))
		paq_choice_end(&statement->choice);
	if (unlikely(statement->named != NULL))
		hash_destroy(statement->named);
	if (statement->shown.copy != NULL)
		pfree(statement->shown.copy);
	if (statement->part_copy != NULL)
		pfree(statement->part_copy);
	if (statement->query_desc != NULL)
	{
		dlist_delete(&statement->node);
		if (unlikely(buckets.heads != NULL))
			dlist_delete(&statement->bucket);
		buckets.statements--;
	}
	dlist_push_head(&free_statements, &statement->node);
}

static void
capture_post_parse_analyze(ParseState *pstate, Query *query,
						   PAQ_JUMBLE_STATE *jstate)
{
	paq_mask_note_parse(paq_strings_conform());
	if (pstate->p_sourcetext == debug_query_string)
	{
		analysed.text = pstate->p_sourcetext;
		analysed.message = GetCurrentStatementStartTimestamp();
		analysed.location = query->stmt_location;
		analysed.len = query->stmt_len;
	}
	if (prev_post_parse_analyze)
		prev_post_parse_analyze(pstate, query, jstate);
}

void
paq_statement_init(void)
{
	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = capture_post_parse_analyze;
}
