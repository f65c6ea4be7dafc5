/*-------------------------------------------------------------------------
 *
 * capture_internal.h
 *		What the files of capture/ share.
 *
 * The prototypes are in the order of the layers, lowest first.  A file calls
 * only files whose section comes before its own (scripts/check-style enforces
 * that), and a variable is set only by the file in whose section it is.
 *
 * A PaqStatement is one statement being executed: what it is, which ids it
 * has, and its records that wait for the outcome.  Statements come from a free
 * list.  An executor statement is found by its QueryDesc, because the statement
 * of a cursor outlives the call that opened it.  A utility statement belongs to
 * the call of the ProcessUtility hook.
 *
 * A PaqCallFrame is one call of a hook that executes something.  The chain of
 * frames tells how deep the session is, and on behalf of which statement
 * anything happens.  Neither frames nor statements are on the C stack, because
 * they would reduce the recursion that max_stack_depth allows.
 *
 * A PaqGroup hands out ids: all statements that one top-level statement runs
 * share its statement id and are numbered within it.
 *
 * Locking: none.  Everything here belongs to one process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_CAPTURE_INTERNAL_H
#define PAQ_CAPTURE_INTERNAL_H

#include "postgres.h"

#include "access/parallel.h"
#include "access/transam.h"
#include "catalog/objectaccess.h"
#include "commands/extension.h"
#include "compat.h"
#include "executor/execdesc.h"
#include "guc.h"
#include "lib/ilist.h"
#include "mask/mask.h"
#include "nodes/params.h"
#include "nodes/parsenodes.h"
#include "policy/policy.h"
#include "queue/queue.h"
#include "record/record.h"
#include "storage/ipc.h"
#include "tcop/cmdtag.h"
#include "tcop/utility.h"
#include "utils/hsearch.h"

/*
 * Limit for the bytes of text and parameters in the records of one statement.
 * Records beyond it refer to earlier ones.  Without a limit, a statement of
 * 20 kB that calls 2,000 functions, or drops 1,000 tables, would make 40 MB of
 * records.
 */
#define PAQ_MAX_TEXT_BYTES		(1024 * 1024)

/* What a record has in place of an error message that may quote constants */
#define PAQ_MASKED_MESSAGE	"<masked>"

/* What decides the class of a record, and the command it shows */
typedef struct PaqCommand
{
	LogStmtLevel level;
	NodeTag		node;
	CommandTag	tag;
	bool		sets_role;		/* it switches privileges, as SET ROLE does */
	bool		of_part;		/* it is not the whole statement's, but that of the GRANT
								 * in a CREATE SCHEMA */
} PaqCommand;

typedef struct PaqGroup
{
	uint64		number;			/* counts groups of this process */
	int64		statement_id;	/* 0: no record made yet */
	int64		substatements;	/* ids given within the statement */
} PaqGroup;

/* The object that a record is about; all zero if it is about none */
typedef struct PaqObject
{
	bool		granted;		/* selected by a grant to the audit role */
	const char *type;
	const char *name;
} PaqObject;

/* What records say of an error */
typedef struct PaqError
{
	int			sqlstate;
	const char *message;		/* without secrets; NULL: unknown */
	bool		cut;			/* the message is incomplete */
	bool		fatal;			/* it ends the session */
	bool		recorded;		/* some record has the message */
	bool		known;			/* some record has it as its outcome */
} PaqError;

/* Do the settings want a record, where they decide about it? */
typedef enum PaqWanted
{
	PAQ_WANTED_BY_CLASS,		/* if they want its class */
	PAQ_WANTED,
	PAQ_NOT_WANTED
} PaqWanted;

/*
 * Whether and how something is recorded, as far as rules decide about it.  All zero if
 * nothing has been decided yet.  choice.c has what becomes of it.
 */
typedef struct PaqChoice
{
	PaqSessionRules *rules;		/* in effect when it began; NULL: there were none */
	const PaqVerdict *best;		/* the first of the rules that record it; NULL: none */
	bool		by_settings;	/* of some subject, the settings decide */
	bool		by_rules;		/* of some subject, a rule decides that is known now */
	bool		left_later;		/* of some, they do if conditions do not hold */
	uint32		left_classes;	/* classes of subjects that the settings decide about */
	uint32		hidden_classes;	/* classes of subjects that log_catalog leaves out, where
								 * the settings decide */
	uint64		hidden_later;	/* bits: which members of "later" are only about subjects
								 * that log_catalog leaves out */
	PaqWanted	wanted;			/* do they want the record? */
	bool		by_subject;		/* that depends on the classes of subjects, too */
	List	   *later;			/* decisions that are yet to be made, PaqDecision */
} PaqChoice;

/*
 * A relation that a utility statement names, or whose parts it has made, changed or dropped; and
 * what has been decided about it
 */
typedef struct PaqNamedRelation
{
	Oid			relid;			/* invalid: of the old name of something else */
	Oid			owner;			/* that it belongs to; invalid: none that is known */

	/*
	 * What rules have decided; NULL behind the last.  There are at most eight: by two
	 * commands, the statement's and that which PostgreSQL has for this kind of relation;
	 * as two users, the session's and the relation's owner; of a statement that counts as
	 * temporary, or not.
	 */
	const PaqDecision *decision[8];
	bool		shown;			/* a record of an object has these decisions */
} PaqNamedRelation;

/* Which texts a record is to have */
typedef struct PaqWish
{
	bool		statement;
	bool		parameters;
	bool		repeated;		/* also if an earlier record has them */
	bool		long_parameters;	/* also those that log_parameter_max_size leaves
									 * out */
	bool		normalized;		/* without constants */
} PaqWish;

typedef struct PaqStatement
{
	dlist_node	node;			/* of open executor or free statements */
	dlist_node	bucket;			/* of open ones with the same hash value */
	QueryDesc  *query_desc;		/* NULL for a utility statement */
	const char *text;			/* source text */
	const char *part;			/* the statement's part of the text; NULL: not
								 * determined yet, or out of memory */
	char	   *part_copy;		/* its memory, if it is not in text */
	PaqMasked	shown;			/* part without secrets; text NULL: not yet */
	bool		shown_without_constants;
	ParamListInfo params;
	PaqCommand	command;
	PaqGroup	group;			/* used if the statement is a top-level one */
	uint64		opened_in;		/* number of the group in which it began;
								 * executor only */
	int64		statement_id;	/* 0: none yet */
	int64		substatement_id;
	TimestampTz start_time;
	TimestampTz run_message;	/* statement_timestamp() of the executor's last
								 * run; 0: none, or run by another statement */
	int64		rows;			/* -1: meaningless */
	uint64		processed;		/* rows of the executor's last run that we saw */
	uint64		query_id;
	uint32		flags;			/* PAQ_RECORD_xxx for all of its records */
	uint32		call_bytes;		/* of records of functions that it calls, and
								 * that wait for its outcome */
	uint64		text_bytes;		/* of texts and parameters in its records */
	int			location;		/* in text, bytes; -1: unknown, or all of it */
	int			len;			/* there, bytes; 0: to the end */
	SubTransactionId subxact;	/* in which it began */
	bool		recorded;		/* it has a record of its own */
	bool		text_recorded;	/* some record of it has the text */
	bool		being_planned;	/* it has no plan yet */
	bool		perms_checked;	/* permissions were granted */
	bool		unfinished;		/* its records are being made */
	bool		hidden;			/* log_catalog leaves it out so far */
	bool		commits;		/* COMMIT or PREPARE TRANSACTION */
	bool		run;			/* ExecutorRun was called for it */
	bool		complete;		/* its client has been told everything */
	bool		top_level;		/* the client's, not run by another one */
	bool		others_rights;	/* runs with rights that the session's user
								 * lacks: session auditing leaves it out */
	bool		of_key;			/* and is PostgreSQL's own, for a foreign key */
	bool		for_key;		/* executed for a foreign key, by PostgreSQL
								 * or by code of users; if "role" is set */
	bool		granted_known;	/* "granted" is complete */
	List	   *granted;		/* relations that object auditing selects, see
								 * relation.c */
	Oid			truncated;		/* the last relation it was about to truncate */
	List	   *trail_uses;		/* uses of the trail that are to be recorded, see
								 * trail_access.c */
	Oid			trail_copied;	/* COPY: the relation of the trail that it copies,
								 * once that is recorded */
	PaqSpaceWait space_policy;	/* of its success, for a full queue */
	PaqPending *attempt;		/* record of a SET of ours, in case it fails */
	PaqChoice	choice;			/* of rules */
	bool		chosen;			/* it is complete */
	bool		temporary;		/* all its relations are, if that matters to rules */
	bool		objects_known;	/* event triggers have told of its objects */
	bool		unnamed;		/* it may concern relations that it does not name */
	HTAB	   *named;			/* PaqNamedRelation by relid, of a utility statement, if
								 * there are rules; NULL: none */
	PaqPending *provisional;	/* stands in for the first record */
	const PaqVerdict *provisional_verdict;	/* the rule that it was made for */
	CommandTag	provisional_tag;	/* its command */
	bool		provisional_first;	/* it was the first of its message */
	dlist_head	records;		/* that wait for the outcome, oldest first */
} PaqStatement;

typedef struct PaqCallFrame
{
	struct PaqCallFrame *parent;	/* NULL: called by no other statement */
	struct PaqCallFrame *inner; /* the next one, in use or not; NULL: none yet */
	PaqStatement *statement;	/* NULL: unknown */
	QueryDesc  *query_desc;		/* NULL for a utility statement */
	bool		starting;		/* in ExecutorStart */
	int			text_errno;		/* paq_text_errno of the caller */
	PaqGroup   *group;
	PaqGroup	own_group;		/* for want of a statement that has one */
	sigjmp_buf *exception_stack;	/* of the caller */
	ErrorContextCallback context;	/* tells of each error, see error.c; the
									 * previous one is the caller's */
	sigjmp_buf	handler;
} PaqCallFrame;

/*
 * Something to be recorded that is not the execution of a statement.  Texts
 * are without secrets; NULL is null.
 */
typedef struct PaqEvent
{
	PaqClass	class;
	bool		known;			/* a record has its outcome already */
	uint32		flags;			/* PAQ_RECORD_xxx */
	const PaqVerdict *verdict;	/* the rule, or settings, that record it; NULL: it is
								 * always recorded */
	TimestampTz start_time;
	const char *command;
	const char *object_type;
	const char *object_name;
	const char *text;			/* statement */
	const char *message;		/* error message */
	const char *old_value;		/* of a setting */
	const char *new_value;
	const char *value_source;
	PaqMasked	shown[3];		/* memory of text and values */
} PaqEvent;

/* classify.c */
extern PaqClass paq_classify(const PaqCommand *command);
extern PaqCommand paq_operation_command(CmdType operation);
extern PaqCommand paq_perms_command(AclMode perms, int lockmode,
									CmdType operation);
extern const char *paq_relkind_name(char relkind);

/* session.c */
extern bool paq_logged_in;		/* the client's session is set up */
extern const PaqSessionBlock *paq_session_block(bool may_lookup,
												bool *complete);
extern void paq_session_warm(void);
extern void paq_session_authenticated(void);
extern void paq_session_logged_in(void);
extern void paq_session_init(void);

/* choice.c */
extern const PaqDecision *paq_choose(PaqChoice *choice, const PaqSubject *subject);
extern void paq_choose_shown(PaqChoice *choice, const PaqSubject *subject, bool hidden);
extern void paq_choice_add_later(PaqChoice *choice, const PaqDecision *decision);
extern PaqWish paq_choice_wish(const PaqChoice *choice, bool masked);
extern PaqWish paq_verdict_wish(const PaqVerdict *verdict, bool masked);
extern void paq_choice_attach(PaqPending *pending, const PaqChoice *choice,
							  bool masked, const PaqStatement *statement);
extern void paq_choice_detach(PaqPending *pending);
extern void paq_choice_note_rows(dlist_head *records, int64 rows);
extern bool paq_choice_show(PaqStatement *statement);
extern PaqMode paq_choice_mode(const PaqPending *pending, PaqClass class);
extern PaqPending *paq_choice_settle(PaqPending *pending, const PaqError *error,
									 TimestampTz end_time);
extern bool paq_event_choose(PaqEvent *event, const PaqSubject *subject, int sqlstate);

/* settings.c */
extern PaqText paq_encode_settings(uint32 *flags);

/* publish.c */
extern bool paq_excused;		/* what is executed now does not wait */
extern bool paq_may_excuse(void);
extern void paq_excuse(bool excused);
extern void paq_register_exit(void);
extern void paq_publish_now(PaqPending *pending, int sqlstate);
extern void paq_publish_list(dlist_head *records, PaqError *error,
							 PaqSpaceWait wait);
extern void paq_publish_calls(dlist_head *records);
extern void paq_hold(dlist_head *records, bool rollback);
extern bool paq_is_committing(void);
extern bool paq_is_failing_commit(void);
extern void paq_publish_held(PaqError *error, PaqSpaceWait wait);
extern void paq_prepare_held(void);
extern bool paq_owes_records(void);
extern void paq_publish_deferred(PaqSpaceWait wait);
extern void paq_publish_last(void);
extern void paq_wait_statement(PaqSpaceWait wait);
extern void paq_wait_commit(bool commits);
extern void paq_request_waits(void);
extern void paq_forget_commit(bool committed);
extern void paq_publish_init(pg_on_exit_callback at_exit);

/* statement.c */
typedef struct PaqStack
{
	PaqCallFrame *frame;		/* innermost; NULL: idle */
	uint64		pushes;			/* frames pushed so far */
	dlist_head	statements;		/* open executor statements, newest first */
	bool		in_part;		/* this is a parallel worker for a query */
	int			plannings;		/* statements that are being planned, within each other */
} PaqStack;

extern PaqStack paq_stack;
extern PaqCallFrame *paq_frame_push(PaqStatement *statement,
									QueryDesc *queryDesc);
extern void paq_frame_pop(PaqCallFrame *frame);
extern void paq_stack_begin_part(void);
extern void paq_stack_begin_planning(void);
extern void paq_stack_end_planning(void);
extern bool paq_is_clients(void);
extern bool paq_is_for_users(void);
extern bool paq_in_trigger(void);
extern bool paq_in_job(void);
extern void paq_settle(PaqSpaceWait wait);
extern PaqStatement *paq_statement_new(const char *text,
									   const PaqCommand *command,
									   const PlannedStmt *plan,
									   bool top_level);
extern PaqStatement *paq_statement_open(QueryDesc *queryDesc, bool top_level);
extern PaqStatement *paq_statement_look_up(QueryDesc *queryDesc);
extern PaqStatement *paq_current_statement(void);
extern PaqCallFrame *paq_statement_enter(PaqStatement *statement);
extern bool paq_statement_is_clients_last(const PaqStatement *statement);
extern bool paq_statement_awaits_outcome(void);
extern bool paq_is_first(PaqStatement *statement);
extern void paq_next_ids(PaqStatement *statement, int64 *statement_id,
						 int64 *substatement_id);
extern void paq_assign_ids(PaqStatement *statement);
extern void paq_assign_late_ids(PaqStatement *statement, PaqPending *pending,
								bool failed);
extern void paq_known_ids(PaqStatement *statement, PaqPending *pending);
extern const char *paq_statement_part(PaqStatement *statement);
extern void paq_statement_detach(PaqStatement *statement);
extern void paq_statement_close(PaqStatement *statement);
extern void paq_statement_init(void);

/* params.c */
extern PaqText paq_encode_params(ParamListInfo params, const char *statement,
								 int max_size, uint32 *flags);

/* client.c */
extern void paq_show_client(const PaqStatement *statement,
							PaqPending *pending);

/* record.c */
extern bool paq_statement_is_audited(const PaqStatement *statement);
extern const PaqMasked *paq_shown_text(PaqStatement *statement, bool may_scan,
									   bool without_constants);
extern void paq_record_add(PaqStatement *statement, PaqPending *pending,
						   bool late_ids, bool has_rows);
extern void paq_record_provisional(PaqStatement *statement);
extern void paq_record_statement(PaqStatement *statement,
								 const PaqCommand *command,
								 const PaqObject *object,
								 const PaqChoice *choice);
extern void paq_record_unnumbered(PaqStatement *statement,
								  const PaqCommand *command,
								  const PaqChoice *choice);
extern void paq_record_relation(PaqStatement *statement,
								const PaqCommand *command,
								const PaqObject *object,
								const PaqChoice *choice);
extern void paq_record_always(PaqStatement *statement, PaqClass class,
							  CommandTag tag, const PaqObject *object);
extern void paq_record_object(PaqStatement *statement,
							  const PaqObject *object, const PaqChoice *choice);
extern void paq_record_denied(PaqStatement *statement,
							  const PaqCommand *command,
							  const PaqObject *object, const PaqChoice *choice);
extern void paq_record_function(PaqStatement *statement, const char *name,
								bool itself, const PaqChoice *choice);
extern void paq_record_function_always(PaqStatement *statement, const char *name,
									   const PaqChoice *choice);
extern void paq_record_finish(PaqStatement *statement, bool failed);
extern void paq_event_set_text(PaqEvent *event, bool may_scan);
extern PaqPending *paq_event_create(PaqEvent *event);
extern void paq_record_event(PaqEvent *event, int sqlstate);

/* error.c */
extern PaqError *paq_error(void);
extern void paq_forget_error(void);
extern void paq_error_unrecorded(void);
extern PaqError *paq_error_catch(const char *text);
extern PaqError *paq_error_catch_unframed(const char *text);
extern void paq_error_own(void);
extern PaqError *paq_error_report(ErrorData *edata);
extern bool paq_error_has_owner(void);
extern void paq_error_reported(void);
extern void paq_error_record(PaqEvent *event, const PaqError *error);
extern void paq_error_context(void *frame);
extern void paq_error_handled(void);

/* outcome.c */
extern void paq_statement_publish(PaqStatement *statement, PaqError *error,
								  PaqSpaceWait wait);
extern void paq_statement_succeed(PaqStatement *statement);
extern void paq_record_denial(PaqStatement *statement, const PaqError *error);
extern void paq_statement_fail(PaqStatement *statement, PaqError *error);
extern void paq_statement_forget(QueryDesc *queryDesc);
extern void paq_statement_close_all(SubTransactionId from, PaqError *error,
									uint32 flags);
extern void paq_leave(PaqCallFrame *frame, PaqSpaceWait wait);
pg_noreturn extern void paq_rethrow(PaqCallFrame *frame);

/* relation.c */
extern const char *paq_relation_name(Oid relid);
extern PaqCommand paq_relation_command(const PaqStatement *statement,
									   RangeTblEntry *rte, PaqRtePerms *perms);
extern void paq_record_chosen(PaqStatement *statement, List *rangeTable,
							  List *perminfos);
extern void paq_record_by_settings(PaqStatement *statement, List *rangeTable,
								   List *perminfos);
extern void paq_choose_relations(PaqStatement *statement, List *rangeTable,
								 List *perminfos);
extern void paq_record_truncate(PaqStatement *statement, Oid relid);
extern bool paq_has_others_rights(void);
extern void paq_note_key_query(PaqStatement *statement, List *rangeTable,
							   List *perminfos);
extern bool paq_catalog_allows(Oid function);
extern void paq_note_key_call(void);
extern void paq_find_granted(PaqStatement *statement, PlannedStmt *plan);
extern void paq_forget_granted(PaqStatement *statement);
extern void paq_record_failed_start(PaqStatement *statement, PlannedStmt *plan);
extern void paq_relation_init(void);

/* named.c */
extern Oid	paq_named_relation(const RangeVar *name);
extern bool paq_named_needs_record(const PaqNamedRelation *named);
extern void paq_named_add(const PaqStatement *statement, Oid relid, PaqChoice *choice);
extern void paq_note_object(PaqStatement *statement, ObjectAccessType access, Oid catalog,
							Oid object);
extern void paq_choose_utility(PaqStatement *statement, Node *parsetree);

/* builtin.c */
extern Oid	paq_look_up_builtin(Oid function);
extern void paq_builtin_init(void);

/* look.c */
extern bool paq_may_look(void);
extern bool paq_only_looks(const PlannedStmt *plan);
extern bool paq_is_own_look(Oid function);

/* trail_access.c */
extern bool paq_is_loader(void);
#define PAQ_KNOWN_RELATIONS	64	/* a power of 2 */

extern Oid	paq_not_trail[PAQ_KNOWN_RELATIONS]; /* relations that are not the
												 * trail's, by OID */
extern bool paq_trail_is_used(const List *relations);
extern void paq_trail_begin(PaqStatement *statement, List *rangeTable,
							List *perminfos);
extern bool paq_trail_concerns_copy(const CopyStmt *copy);
extern void paq_trail_begin_copy(PaqStatement *statement, const CopyStmt *copy);
extern void paq_trail_record(PaqStatement *statement);
extern void paq_trail_fail(PaqStatement *statement);
extern void paq_trail_init(void);

/* planning.c */
extern int	paq_planned;		/* plans that wait for their execution */
extern void paq_prepare_statement(PaqStatement *statement, PlannedStmt *plan);
extern void paq_planning_executed(const QueryDesc *query_desc);
extern void paq_planning_close_all(SubTransactionId from, PaqError *error);
extern bool paq_planning_fail(PaqError *error);
extern void paq_planning_init(void);

/* config.c */
extern bool paq_config_concerns(Node *parsetree);
extern void paq_config_begin(PaqStatement *statement, Node *parsetree);
extern void paq_config_end(PaqStatement *statement);
extern void paq_config_init(void);

/* protocol.c */
extern void paq_protocol_watch(void);
extern bool paq_fastpath_begins(void);
extern bool paq_fastpath_ends(void);
extern void paq_fastpath_call(Oid function, const char *name,
							  const PaqSubject *subject);
extern bool paq_fastpath_refused(PaqEvent *event, int sqlstate);
extern bool paq_replication_known(void);
extern void paq_replication_end(const PaqError *error);

/* connect.c */
extern bool paq_connect_login(void);
extern void paq_connect_without_client(void);
extern void paq_connect_failed(const PaqError *error);
extern void paq_connect_exit(const PaqError *error);
extern void paq_connect_init(void);

/* xact.c */
extern bool paq_is_before_commit(void);
extern void paq_xact_init(void);

/* report.c, object_access.c, executor.c, utility.c: install their hooks */
extern void paq_report_init(void);
extern void paq_object_access_init(void);
extern void paq_executor_init(void);
extern void paq_utility_init(void);

/* Is there any open executor statement? */
static inline bool
paq_statements_open(void)
{
	return !dlist_is_empty(&paq_stack.statements);
}

/* The open statement of queryDesc, NULL if there is none. */
static inline PaqStatement *
paq_statement_find(QueryDesc *queryDesc)
{
	PaqStatement *newest;

	if (!paq_statements_open())
		return NULL;
	newest = dlist_head_element(PaqStatement, node, &paq_stack.statements);
	if (likely(newest->query_desc == queryDesc))
		return newest;
	return paq_statement_look_up(queryDesc);
}

/*
 * Before a statement does what its records, if it has any yet, are about: raise
 * an error if that is not permitted.  Errors as for paq_queue_admit().
 */
static inline void
paq_statement_admit(PaqStatement *statement)
{
	if (!dlist_is_empty(&statement->records) && likely(!paq_excused))
		paq_queue_admit();
}

/* From here on, what is denied within the frame is noted, until the frame is popped. */
static inline void
paq_frame_watch(PaqCallFrame *frame)
{
	frame->context.callback = paq_error_context;
	error_context_stack = &frame->context;
}

/*
 * PG_TRY() for the function that has pushed the frame:
 *
 *	if (PAQ_FRAME_TRY(frame))
 *		what may raise an error;
 *	else
 *		error handling, which begins with paq_frame_catch();
 *	paq_frame_pop(frame);
 *
 * The jump buffer of 200 bytes is in the frame instead of on the stack.
 * elog.c knows its address before it is filled.  That is harmless, because
 * nothing happens in between.
 */
#define PAQ_FRAME_TRY(frame)	(sigsetjmp(*paq_frame_guard(frame), 0) == 0)

static inline sigjmp_buf *
paq_frame_guard(PaqCallFrame *frame)
{
	PG_exception_stack = &frame->handler;
	paq_frame_watch(frame);
	return &frame->handler;
}

/* From here on errors are the caller's. */
static inline void
paq_frame_catch(PaqCallFrame *frame)
{
	PG_exception_stack = frame->exception_stack;
	error_context_stack = frame->context.previous;
}

/*
 * The space policy where a full queue must not be a reason to fail: when a
 * session logs in, or leaves its transaction.
 */
static inline PaqSpaceWait
paq_unrefused(void)
{
	return paq_overflow == PAQ_OVERFLOW_ERROR ? PAQ_SPACE_NOWAIT : PAQ_SPACE_WAIT;
}

/* Are constants of statements of the class to be masked? */
static inline bool
paq_masks_constants(PaqClass class)
{
	return (paq_mask_classes & PAQ_CLASS_BIT(class)) != 0;
}

/* The flags of a record with that text */
static inline uint32
paq_masked_flags(const PaqMasked *shown)
{
	return (shown->all ? PAQ_RECORD_MASKED : 0) |
		(shown->cut ? PAQ_RECORD_CUT : 0);
}

/*
 * Give a record's texts the values of the settings that log_settings names, and add
 * to its flags.  They are valid until this is called for another record.
 */
static inline void
paq_set_settings(PaqText *texts, uint32 *flags)
{
	if (unlikely(paq_log_settings != NULL))
		texts[PAQ_FIELD_SETTINGS - PAQ_NSESSION_FIELDS] = paq_encode_settings(flags);
}

/* Do the settings ask session auditing to record the class? */
static inline bool
paq_class_is_audited(PaqClass class)
{
	Assert(paq_is_class(class));
	return (paq_log_classes & PAQ_CLASS_BIT(class)) != 0;
}

/* Do they ask for a record of whatever ends like that, because it is denied? */
static inline bool
paq_denial_is_audited(int sqlstate)
{
	return (paq_log_classes & PAQ_DENIED_BIT) != 0 &&
		(paq_outcome_bits(sqlstate) & PAQ_OUTCOME_DENIED) != 0;
}

/* Can anything of the class be recorded? */
static inline bool
paq_class_is_wanted(PaqClass class)
{
	Assert(paq_is_class(class));
	return (paq_wanted_classes & PAQ_CLASS_BIT(class)) != 0;
}

/* Where the settings decide about a record of the class, do they want it? */
static inline bool
paq_choice_is_audited(const PaqChoice *choice, PaqClass class)
{
	return choice->wanted == PAQ_WANTED ||
		(choice->wanted == PAQ_WANTED_BY_CLASS && paq_class_is_audited(class));
}

/* The first rule of the two in the file; NULL is none. */
static inline const PaqVerdict *
paq_first_verdict(const PaqVerdict *a, const PaqVerdict *b)
{
	return a == NULL || (b != NULL && b->number < a->number) ? b : a;
}

/* Add what has been decided about a subject. */
static inline void
paq_choice_add(PaqChoice *choice, const PaqDecision *decision)
{
	if (unlikely(decision->nlater > 0))
		paq_choice_add_later(choice, decision);
	else if (unlikely(decision->final == NULL))
		choice->by_settings = true;
	else
	{
		choice->by_rules = true;
		if (decision->final->record)
			choice->best = paq_first_verdict(choice->best, decision->final);
	}
}

/* The choice is not used any more. */
static inline void
paq_choice_end(const PaqChoice *choice)
{
	if (unlikely(choice->later != NIL))
		list_free(choice->later);
	paq_policy_unpin(choice->rules);
}

/* The verdict of a rule that is certain to record it; NULL: there may be one */
static inline const PaqVerdict *
paq_choice_verdict(const PaqChoice *choice)
{
	return likely(choice->later == NIL) ? choice->best : NULL;
}

/* Is a rule without options for texts certain to record it? */
static inline bool
paq_choice_is_plain(const PaqChoice *choice)
{
	const PaqVerdict *verdict = paq_choice_verdict(choice);

	return verdict != NULL && verdict->plain;
}

/* The rules record it, or may do so, or leave it to settings that do. */
static inline bool
paq_choice_records(const PaqChoice *choice, PaqClass class)
{
	return choice->best != NULL || choice->later != NIL ||
		(choice->by_settings && paq_choice_is_audited(choice, class));
}

/* May a mandatory rule record it? */
static inline bool
paq_choice_is_mandatory(const PaqChoice *choice)
{
	ListCell   *lc;

	if (choice->best != NULL && choice->best->mandatory)
		return true;
	foreach(lc, choice->later)
	{
		const PaqDecision *decision = lfirst(lc);

		if (decision->final != NULL && decision->final->mandatory)
			return true;
		for (int i = 0; i < decision->nlater; i++)
			if (decision->later[i]->mandatory)
				return true;
	}
	return false;
}

/*
 * What the script of an extension does has no record, but for mandatory rules: the
 * statement that runs the script has one.  choice NULL: rules have not decided.
 */
static inline bool
paq_is_left_out(const PaqChoice *choice)
{
	return unlikely(creating_extension) &&
		(choice == NULL || !paq_choice_is_mandatory(choice));
}

/* The record is made because of the verdict. */
static inline void
paq_verdict_apply(PaqPending *pending, const PaqVerdict *verdict)
{
	pending->mode = verdict->mode;
	pending->must_keep = verdict->mandatory;
}

/* When a session has to wait for the record, of that class */
static inline PaqMode
paq_record_mode(const PaqPending *pending, PaqClass class)
{
	if (unlikely(pending->choice != NULL || pending->mode >= 0))
		return paq_choice_mode(pending, class);
	return (paq_immediate_classes & PAQ_CLASS_BIT(class)) ? PAQ_MODE_IMMEDIATE : paq_mode;
}

/*
 * Make the records of a statement whose permissions on the relations in rangeTable have
 * been checked: one for the statement as a whole or one for each relation, and one for
 * each relation that the audit role's grants select.  The latter cover what a function
 * does with its owner's rights, too, but not PostgreSQL's own queries for foreign keys.
 *
 * With log_rows, the record of a utility statement as a whole is made at its end, unless
 * one of its relations has a record, which must not come first.
 */
static inline void
paq_record_relations(PaqStatement *statement, List *rangeTable, List *perminfos)
{
	if (unlikely(paq_policy.has_rules && !statement->chosen))
		paq_choose_relations(statement, rangeTable, perminfos);
	if (unlikely(statement->chosen))
		paq_record_chosen(statement, rangeTable, perminfos);
	else
		paq_record_by_settings(statement, rangeTable, perminfos);
}

/* Before a statement: see to it that the rules are those in effect. */
static inline void
paq_policy_follow(void)
{
	if (unlikely(!paq_policy_is_current()))
		paq_policy_refresh(true);
}

/*
 * Could this process record what is done now, whatever the settings are?  A
 * parallel worker does not record its part of a query, which is its leader's,
 * but it does record what functions within that part execute.
 */
static inline bool
paq_capture_possible(void)
{
	return !paq_stack.in_part || paq_stack.frame != NULL;
}

/* Do settings or rules ask for records of statements? */
static inline bool
paq_auditing_is_on(void)
{
	return (paq_wanted_classes & PAQ_CLASSES_STATEMENTS) != 0 ||
		paq_role[0] != '\0';
}

/* Is there anything to be recorded? */
static inline bool
paq_capture_wanted(void)
{
	return paq_auditing_is_on() && paq_capture_possible();
}

/*
 * Returns true if the settings alone decide about a statement's relations: neither rules nor
 * grants do, nor is it left out because it has others' rights.  Whether the statement uses the
 * trail is another question.
 */
static inline bool
paq_settings_decide(void)
{
	return !paq_policy.has_rules && !paq_policy.has_roles && paq_role[0] == '\0' &&
		!paq_has_others_rights();
}

/* Is there neither anything to be recorded nor anything to keep track of? */
static inline bool
paq_capture_idle(void)
{
	return !paq_auditing_is_on() && paq_stack.frame == NULL &&
		!paq_statements_open();
}

/*
 * Returns true if the relation may be the trail's.  Every statement asks that, whether anything
 * is audited or not: nothing is called here.
 */
static inline bool
paq_relation_may_be_trail(Oid relid)
{
	return unlikely(paq_not_trail[relid % PAQ_KNOWN_RELATIONS] != relid) &&
		relid >= FirstNormalObjectId;
}

/* Returns true if any of the relations may be the trail's. */
static inline bool
paq_trail_may_be_used(const List *relations)
{
	Size		number;

	if (relations == NIL)
		return false;
	number = relations->length;
	do
	{
		if (paq_relation_may_be_trail(relations->elements[number - 1].oid_value))
			return true;
	} while (--number != 0);
	return false;
}

/*
 * Returns true if PostgreSQL's source gives the function its OID.  Then it is in pg_catalog,
 * which need not be looked up: every operator calls such a function.
 */
static inline bool
paq_is_built_in(Oid function)
{
	return function < FirstGenbkiObjectId;
}

/*
 * Returns the OID of the function of PostgreSQL's own that has the same code as the function:
 * most often that is the function itself.  Returns InvalidOid if there is none.
 */
static inline Oid
paq_builtin(Oid function)
{
	return likely(paq_is_built_in(function)) ? function : paq_look_up_builtin(function);
}

/* Is it a COPY of something of the trail's? */
static inline bool
paq_trail_concerns(Node *parsetree)
{
	return unlikely(IsA(parsetree, CopyStmt)) &&
		paq_trail_concerns_copy((const CopyStmt *) parsetree);
}

/*
 * Is the statement that is being executed about to use the trail, if its
 * permissions suffice?
 */
static inline bool
paq_trail_awaits_check(void)
{
	return paq_stack.frame != NULL && paq_stack.frame->statement != NULL &&
		paq_stack.frame->statement->trail_uses != NIL;
}

#endif							/* PAQ_CAPTURE_INTERNAL_H */
