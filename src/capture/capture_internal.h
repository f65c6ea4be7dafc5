/*-------------------------------------------------------------------------
 *
 * capture_internal.h
 *		What the files of capture/ share.
 *
 * Three things live here.
 *
 * A PaqStatement is one statement being executed: what it is, which ids it
 * has, and which of its records wait for its outcome (a list of PaqEntry).
 * Statements come from a free list; the executor's are found by their QueryDesc,
 * because a cursor's statement outlives the call that opened it; utility
 * statements belong to the call of the ProcessUtility hook.
 *
 * A PaqCallFrame is one call of a hook that executes something.  The chain of
 * frames says how deep the session is and on behalf of which statement anything
 * happens.  Neither frames nor statements are on the C stack, because what is
 * there is taken from the recursion that max_stack_depth allows.
 *
 * A PaqGroup hands out ids: all statements that one top-level statement runs
 * share its statement id and are numbered within it.
 *
 * All of it belongs to one process; nothing is shared, so nothing is locked.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_CAPTURE_INTERNAL_H
#define PAQ_CAPTURE_INTERNAL_H

#include "postgres.h"

#include "access/parallel.h"
#include "compat.h"
#include "executor/execdesc.h"
#include "guc.h"
#include "lib/ilist.h"
#include "mask/mask.h"
#include "nodes/params.h"
#include "queue/queue.h"
#include "record/record.h"
#include "tcop/cmdtag.h"
#include "tcop/utility.h"

/*
 * Most bytes of text and parameters in the records of a statement.  Those that
 * come when there are more refer to the ones before, or a statement of 20 kB that
 * has 2,000 functions called, or drops 1,000 tables, would have 40 MB of records.
 */
#define PAQ_MAX_TEXT_BYTES		(1024 * 1024)

/* What decides the class of a record, and the command it shows */
typedef struct PaqCommand
{
	LogStmtLevel level;
	NodeTag		node;
	CommandTag	tag;
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
	bool		fatal;			/* it ends the session */
	bool		recorded;		/* some record has the message */
} PaqError;

/* A record that waits for the outcome of its statement */
typedef struct PaqEntry
{
	slist_node	node;
	PaqPending *pending;
	bool		late;			/* ids and client's copy are still to come */
	bool		has_rows;		/* shows the rows of its statement */
	bool		call;			/* of a function that its statement calls */
} PaqEntry;

typedef struct PaqStatement
{
	dlist_node	node;			/* of open executor or free statements */
	dlist_node	bucket;			/* of open ones with a similar query_desc */
	QueryDesc  *query_desc;		/* NULL for a utility statement */
	const char *text;			/* source text */
	const char *part;			/* what of it is the statement; NULL: not
								 * looked for yet, or in vain, see part.c */
	char	   *part_copy;		/* its memory, if it is not in text */
	PaqMasked	shown;			/* part without secrets; text NULL: not yet */
	bool		shown_places;	/* ... and without constants */
	ParamListInfo params;
	PaqCommand	command;
	PaqGroup	group;			/* used if the statement is a top-level one */
	uint64		opened_in;		/* number of the group in which it began;
								 * executor only */
	int64		statement_id;	/* 0: none yet */
	int64		substatement_id;
	TimestampTz start_time;
	TimestampTz run_message;	/* statement_timestamp() of the executor's last
								 * run, 0: none; not if another statement ran it */
	int64		rows;			/* -1: meaningless */
	uint64		processed;		/* of the executor's last run that we saw */
	uint64		query_id;
	uint32		flags;			/* PAQ_RECORD_xxx for all of its records */
	uint32		calls;			/* bytes of records of functions that it calls,
								 * and that wait for its outcome */
	uint64		text_bytes;		/* of texts and parameters in its records */
	int			location;		/* in text, bytes; -1: unknown, or all of it */
	int			len;			/* there, bytes; 0: to the end */
	SubTransactionId subxact;	/* in which it began */
	bool		recorded;		/* nothing more to say about it by itself */
	bool		text_recorded;	/* some record of it has the text */
	bool		perms_checked;	/* permissions were granted */
	bool		unfinished;		/* its records are being made */
	bool		hidden;			/* log_catalog leaves it out so far */
	bool		commits;		/* COMMIT or PREPARE TRANSACTION */
	bool		run;			/* ExecutorRun was called for it */
	bool		complete;		/* has told its client everything */
	bool		top_level;		/* the client's, not run by another one */
	bool		others_rights;	/* runs with rights that the session's user has
								 * not: session auditing leaves it out */
	bool		granted_known;	/* "granted" is all of them */
	List	   *granted;		/* see denied.c */
	Oid			truncated;		/* the last relation it was about to truncate */
	PaqSpaceWait room;			/* how its success deals with a full queue */
	PaqPending *attempt;		/* record of a SET of ours, if that fails */
	PaqPending *provisional;	/* stands in for the first record */
	CommandTag	provisional_tag;	/* its command */
	bool		provisional_first;	/* paq_is_first() of it */
	slist_head	entries;		/* oldest first */
	slist_node *last_entry;
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
	ErrorContextCallback *context_stack;	/* likewise */
	sigjmp_buf	handler;
} PaqCallFrame;

/*
 * Something to be recorded that is not the execution of a statement.  Texts
 * are without secrets; NULL is null.
 */
typedef struct PaqEvent
{
	PaqClass	class;
	uint32		flags;			/* PAQ_RECORD_xxx */
	TimestampTz start_time;
	const char *command;
	const char *object_type;
	const char *object_name;
	const char *text;			/* statement */
	const char *message;		/* error message */
	const char *old_value;		/* of a setting */
	const char *new_value;
	const char *value_source;
} PaqEvent;

/* capture.c */
extern PaqCallFrame *paq_frame; /* innermost; NULL: idle */
extern bool paq_executes_part;	/* this is a parallel worker for a query */
extern PaqCallFrame *paq_frame_push(PaqStatement *statement,
									QueryDesc *queryDesc);
extern void paq_frame_pop(PaqCallFrame *frame);
extern void paq_group_init(PaqGroup *group);
extern PaqStatement *paq_current_statement(void);
extern Oid	paq_audit_role(void);

/* statement.c */
extern dlist_head paq_statements;	/* open executor statements, newest first */
extern PaqStatement *paq_statement_open(QueryDesc *queryDesc);
extern void paq_statement_forget(QueryDesc *queryDesc);
extern PaqStatement *paq_statement_look_up(QueryDesc *queryDesc);
extern bool paq_is_first(PaqStatement *statement);
extern bool paq_statement_awaits_outcome(void);
extern PaqStatement *paq_statement_new(const char *text,
									   const PaqCommand *command,
									   const PlannedStmt *plan,
									   bool top_level);
extern void paq_statement_close(PaqStatement *statement);
extern void paq_statement_close_all(SubTransactionId from,
									const PaqError *error, uint32 flags);
extern void paq_statement_fail(PaqStatement *statement, const PaqError *error);

/* build.c */
extern bool paq_statement_is_audited(const PaqStatement *statement);
extern void paq_record_provisional(PaqStatement *statement);
extern void paq_record_statement(PaqStatement *statement,
								 const PaqCommand *command,
								 const PaqObject *object);
extern void paq_record_unnumbered(PaqStatement *statement,
								  const PaqCommand *command);
extern void paq_record_relation(PaqStatement *statement,
								const PaqCommand *command,
								const PaqObject *object);
extern void paq_record_object(PaqStatement *statement,
							  const PaqObject *object);
extern void paq_record_function(PaqStatement *statement, const char *name,
								bool itself);
extern uint32 paq_setting_flags(const PaqStatement *statement);
extern void paq_note_text(PaqStatement *statement, PaqPending *pending);
extern const PaqMasked *paq_shown_text(PaqStatement *statement, bool may_scan,
									   bool places);
extern PaqPending *paq_create_record(PaqStatement *statement, PaqClass class,
									 CommandTag tag, const PaqObject *object,
									 ParamListInfo params, uint32 flags,
									 bool may_lookup);
extern void paq_late_ids(PaqStatement *statement, PaqPending *pending,
						 bool failed);
extern void paq_known_ids(PaqStatement *statement, PaqPending *pending);

/* part.c */
extern void paq_part_begin(PaqStatement *statement);
extern const char *paq_statement_part(PaqStatement *statement);
extern void paq_part_init(void);

/* denied.c */
extern void paq_find_granted(PaqStatement *statement, PlannedStmt *plan);
extern bool paq_is_granted(const PaqStatement *statement, RangeTblEntry *rte,
						   List *perminfos);
extern void paq_forget_granted(PaqStatement *statement);
extern void paq_record_denied(PaqStatement *statement, PlannedStmt *plan);
extern void paq_record_unfinished(PaqStatement *statement, PlannedStmt *plan);

/* config.c */
extern bool paq_config_concerns(Node *parsetree);
extern void paq_config_begin(PaqStatement *statement, Node *parsetree);
extern void paq_config_end(PaqStatement *statement);
extern void paq_config_init(void);

/* connect.c */
extern bool paq_logged_in;		/* the client's session is set up */
extern bool paq_connect_login(void);
extern void paq_connect_failed(const PaqError *error);
extern void paq_connect_exit(const PaqError *error);
extern void paq_connect_init(void);

/* event.c */
extern PaqPending *paq_event_create(const PaqEvent *event);
extern void paq_record_event(const PaqEvent *event, int sqlstate);

/* publish.c */
extern void paq_publish_now(PaqPending *pending, int sqlstate);
extern void paq_entry_add(PaqStatement *statement, PaqPending *pending,
						  bool late, bool has_rows);
extern void paq_entry_add_call(PaqStatement *statement, PaqPending *pending);
extern void paq_statement_publish(PaqStatement *statement,
								  const PaqError *error, PaqSpaceWait wait);
extern void paq_statement_succeed(PaqStatement *statement);
extern bool paq_is_committing(void);
extern bool paq_is_clients(void);
extern bool paq_is_failing_commit(void);
extern void paq_publish_calls(PaqStatement *statement);
extern void paq_publish_held(const PaqError *error, PaqSpaceWait wait);
extern void paq_prepare_held(void);
extern void paq_settle(PaqSpaceWait wait);
extern void paq_publish_last(void);
extern void paq_wait_statement(PaqSpaceWait wait);
extern void paq_wait_commit(void);
extern void paq_request_waits(void);
extern void paq_forget_commit(void);

/* classify.c */
extern PaqClass paq_classify(const PaqCommand *command);
extern PaqCommand paq_operation_command(CmdType operation);
extern PaqCommand paq_perms_command(AclMode perms, int lockmode,
									CmdType operation);
extern const char *paq_relkind_name(char relkind);

/* relation.c */
extern const char *paq_relation_name(Oid relid);
extern void paq_record_relations(PaqStatement *statement, List *rangeTable,
								 List *perminfos);
extern bool paq_has_others_rights(void);
extern void paq_record_truncate(PaqStatement *statement, Oid relid);

/* catalog.c */
extern bool paq_catalog_is_hidden(RangeTblEntry *rte, PaqRtePerms *perms);
extern bool paq_catalog_allows(Oid function);

/* grants.c */
extern bool paq_role_has_grant(Oid role, Oid relid, AclMode mask);
extern bool paq_role_is_granted(Oid role, RangeTblEntry *rte, List *perminfos);

/* session.c */
extern const PaqSessionBlock *paq_session_block(bool may_lookup,
												bool *complete);
extern void paq_session_warm(void);
extern void paq_session_init(void);

/* params.c */
extern PaqText paq_encode_params(ParamListInfo params, const char *statement,
								 uint32 *flags);

/* param_text.c */
extern char *paq_param_text(Oid type, Oid output, Datum value, Size size);

/* client.c */
extern void paq_show_client(const PaqStatement *statement,
							PaqPending *pending);

/* messages.c */
extern void paq_messages_watch(void);
extern void paq_messages_ignore(void);

/* fastpath.c */
extern bool paq_fastpath_begins(void);
extern bool paq_fastpath_ends(void);
extern void paq_fastpath_call(Oid function, const char *name);
extern void paq_fastpath_message(char type);
extern void paq_fastpath_error(void);
extern bool paq_fastpath_refused(PaqEvent *event);

/* replication.c */
extern void paq_replication_message(char type, const char *data);
extern void paq_replication_error(void);
extern bool paq_replication_known(void);
extern void paq_replication_exit(const PaqError *error);

/* error.c, executor.c, utility.c, object_access.c, xact.c: install their hooks */
extern void paq_error_init(void);
extern void paq_executor_init(void);
extern void paq_utility_init(void);
extern void paq_object_access_init(void);
extern void paq_xact_init(void);

/* error.c */
extern const PaqError *paq_error(void);
extern void paq_forget_error(void);
extern void paq_error_unrecorded(void);
extern void paq_error_recorded(void);
extern const PaqError *paq_error_catch(const char *text);
extern const PaqError *paq_error_command(const char *text);

/* xact.c */
extern void paq_register_exit(void);
extern bool paq_is_before_commit(void);

/* Is there any open executor statement? */
static inline bool
paq_statements_open(void)
{
	return !dlist_is_empty(&paq_statements);
}

/* The open statement of queryDesc, NULL if there is none. */
static inline PaqStatement *
paq_statement_find(QueryDesc *queryDesc)
{
	PaqStatement *newest;

	if (!paq_statements_open())
		return NULL;
	newest = dlist_head_element(PaqStatement, node, &paq_statements);
	if (likely(newest->query_desc == queryDesc))
		return newest;
	return paq_statement_look_up(queryDesc);
}

/*
 * The statement is about to do what its records, if it has any yet, are of: may it?
 * Raises as paq_queue_admit() does.
 */
static inline void
paq_statement_admit(PaqStatement *statement)
{
	if (!slist_is_empty(&statement->entries))
		paq_queue_admit();
}

/*
 * PG_TRY() for the function that has pushed the frame:
 *
 *	if (PAQ_FRAME_TRY(frame))
 *		what may raise an error;
 *	else
 *		what is done about it, beginning with paq_frame_catch();
 *	paq_frame_pop(frame);
 *
 * The buffer of 200 bytes is in the frame instead of on the stack.  Its address
 * is known to elog.c before it is filled, which does no harm, because nothing
 * is done in between.
 */
#define PAQ_FRAME_TRY(frame)	(sigsetjmp(*paq_frame_guard(frame), 0) == 0)

static inline sigjmp_buf *
paq_frame_guard(PaqCallFrame *frame)
{
	PG_exception_stack = &frame->handler;
	return &frame->handler;
}

/* From here on errors are the caller's. */
static inline void
paq_frame_catch(PaqCallFrame *frame)
{
	PG_exception_stack = frame->exception_stack;
	error_context_stack = frame->context_stack;
}

/*
 * How to deal with a full queue where that must not be a reason to fail: when
 * a session logs in, or gets out of its transaction.
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

/* The flags of a record that has that text */
static inline uint32
paq_masked_flags(const PaqMasked *shown)
{
	return (shown->all ? PAQ_RECORD_MASKED : 0) |
		(shown->cut ? PAQ_RECORD_CUT : 0);
}

/* What a record without constants has in place of an error's message */
#define PAQ_MASKED_MESSAGE	"<masked>"

/* Does session auditing record the class? */
static inline bool
paq_class_is_audited(PaqClass class)
{
	return (paq_log_classes & PAQ_CLASS_BIT(class)) != 0;
}

/*
 * Does this process record what is done now, whatever the settings are?  A
 * parallel worker does not record the part of a query that it executes, which is
 * its leader's, but what functions in that execute.
 */
static inline bool
paq_capture_possible(void)
{
	return !paq_executes_part || paq_frame != NULL;
}

/* Do the settings ask for records of statements? */
static inline bool
paq_auditing_is_on(void)
{
	return (paq_log_classes & PAQ_CLASSES_STATEMENTS) != 0 ||
		paq_role[0] != '\0';
}

/* Is there anything to be recorded? */
static inline bool
paq_capture_wanted(void)
{
	return paq_auditing_is_on() && paq_capture_possible();
}

/* Is there neither anything to be recorded nor anything to keep track of? */
static inline bool
paq_capture_idle(void)
{
	return !paq_capture_possible() ||
		(!paq_capture_wanted() && paq_frame == NULL && !paq_statements_open());
}

#endif							/* PAQ_CAPTURE_INTERNAL_H */
