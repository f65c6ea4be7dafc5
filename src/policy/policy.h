/*-------------------------------------------------------------------------
 *
 * policy.h
 *		Policies: which statements are recorded, by the rules in policy_file.
 *
 * A statement has a subject for each relation that it uses, or one without any
 * relation.  The rules make a decision about each subject.  Capture (choice.c
 * there) makes one choice of the decisions about a statement.
 *
 * Locking: none; store.c has what is shared.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_POLICY_H
#define PAQ_POLICY_H

#include "postgres.h"

#include "compat.h"
#include "guc.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "port/atomics.h"
#include "record/record.h"
#include "tcop/cmdtag.h"
#include "utils/snapshot.h"

/* store.c: shared memory, and what the postmaster and the worker do */
extern Size paq_policy_shmem_size(void);
extern void paq_policy_startup(void);

/* What the worker has to record of a reload */
typedef struct PaqPolicyChange
{
	const char *path;			/* of the policy file */
	const char *old_checksum;	/* of the rules in effect before; NULL: there were none */
	const char *new_checksum;	/* of those in effect now */
	const char *error;			/* why the file is not in effect; NULL: it is */
	int			nerrors;		/* how many there are in it */
} PaqPolicyChange;

/*
 * In the worker: read the policy file.  Returns whether there is something to record:
 * other rules, or an error that was not there before.  Does not raise.  at_start: take
 * over what the postmaster has read.
 */
extern bool paq_policy_reload(bool at_start, PaqPolicyChange *change);

/*
 * In the worker: the record of the last change is made, so it need not be made again
 * after a restart.
 */
extern void paq_policy_recorded(void);

/* Outcomes, as bits */
#define PAQ_OUTCOME_OK			0x01
#define PAQ_OUTCOME_FAILED		0x02	/* any error */
#define PAQ_OUTCOME_DENIED		0x04	/* no permission */
#define PAQ_OUTCOME_PARTIAL		0x08	/* failed when rows had been processed: of rules
										 * only, PaqEnd has the rows */

typedef enum PaqOperator
{
	PAQ_OP_NONE,				/* there is no such condition */
	PAQ_OP_LT,
	PAQ_OP_LE,
	PAQ_OP_EQ,
	PAQ_OP_GE,
	PAQ_OP_GT
} PaqOperator;

typedef struct PaqComparison
{
	PaqOperator op;
	int64		value;
} PaqComparison;

/* Values of the option "statement" */
typedef enum PaqRuleText
{
	PAQ_TEXT_DEFAULT,			/* as the settings say */
	PAQ_TEXT_OFF,
	PAQ_TEXT_ON,
	PAQ_TEXT_NORMALIZED			/* without constants */
} PaqRuleText;

/* What a rule that matches wants */
typedef struct PaqVerdict
{
	int			number;			/* of the rule in the file, from 1 */
	bool		record;

	/* conditions that are known when the statement ends */
	uint32		outcomes;		/* PAQ_OUTCOME_xxx, 0: any */
	PaqComparison rows;
	PaqComparison duration;		/* microseconds */

	/* options, of a rule that records */
	int			mode;			/* PaqMode, -1: as the settings say */
	int			parameters;		/* 0 or 1, likewise */
	PaqRuleText statement;
	bool		mandatory;
	bool		plain;			/* records have the texts that the settings want */
	PaqText		name;			/* NULL: it has none */
} PaqVerdict;

/* What decides about a subject.  Lives as long as the session's rules. */
typedef struct PaqDecision
{
	const PaqVerdict *final;	/* the first rule without conditions that matches;
								 * NULL: the settings decide */
	bool		granted;		/* the grants of a role have selected it */
	uint32		late_class;		/* bit of the subject's class, if the settings may decide
								 * about it when the statement ends */
	int			nlater;
	const PaqVerdict *later[FLEXIBLE_ARRAY_MEMBER]; /* rules before that, which
													 * decide if their conditions
													 * hold when the statement ends */
} PaqDecision;

/* What is known of the object of a subject */
typedef enum PaqObjectKnown
{
	PAQ_OBJECT_NONE,			/* there is none */
	PAQ_OBJECT_UNKNOWN,			/* there may be one */
	PAQ_OBJECT_RELATION,
	PAQ_OBJECT_NAMED			/* something else with a name */
} PaqObjectKnown;

typedef struct PaqSubject
{
	PaqClass	class;
	CommandTag	tag;
	bool		temp;			/* all relations of the statement are temporary */
	bool		may_look_up;	/* catalogs may be read */
	PaqObjectKnown object;
	Oid			relid;			/* of a relation, or of something named, whose decision is
								 * to be remembered */
	RangeTblEntry *rte;			/* what is done to a relation, for grants */
	List	   *perminfos;
	AclMode		perms;			/* likewise, if there is no rte */
	uint64		use;			/* stands for all of the above but relid; 0: nothing does */
	const char *schema;			/* PAQ_OBJECT_NAMED, NULL: it has none */
	const char *name;			/* NULL: all in the schema */
} PaqSubject;

/* The rules as they apply to this session; see session.c */
typedef struct PaqSessionRules PaqSessionRules;

typedef struct PaqPolicy
{
	uint64		generation;		/* of what is below; 0: out of date */
	bool		enabled;		/* pg_audit_queue.policy, likewise */
	bool		has_rules;		/* any rule may decide anything here */
	bool		has_temp;		/* PaqSubject.temp matters */
	bool		has_roles;		/* grants select objects */
	PaqSessionRules *rules;
} PaqPolicy;

extern PaqPolicy paq_policy;

/* In shared memory: which rules are in effect, see store.c */
extern pg_atomic_uint64 *paq_policy_generation;

/* How a statement has ended */
typedef struct PaqEnd
{
	uint32		outcomes;		/* PAQ_OUTCOME_xxx, 0: not known */
	bool		interrupted;	/* the server died; nothing else is known */
	int64		rows;			/* or one of these: */
#define PAQ_ROWS_NONE		(-1)	/* it is not about rows */
#define PAQ_ROWS_UNKNOWN	(-2)
	int64		duration;		/* microseconds */
} PaqEnd;

/* session.c */
extern void paq_policy_refresh(bool may_look_up);
extern PaqSessionRules *paq_policy_pin(PaqSessionRules *rules);
extern void paq_policy_unpin(PaqSessionRules *rules);
extern void paq_policy_init(void);

/* belongs.c */
extern List *paq_relations_of(Oid catalog, Oid object, Snapshot snapshot);
extern List *paq_relations_with_type(Oid type);

/* match.c */
extern const PaqDecision *paq_policy_decide(PaqSessionRules *rules,
											const PaqSubject *subject);
extern const PaqDecision *paq_policy_recall(const PaqSessionRules *rules, Oid relid,
											uint64 use);
extern bool paq_verdict_holds(const PaqVerdict *verdict, const PaqEnd *end);
extern uint32 paq_outcome_bits(int sqlstate);

/* grants.c */
extern bool paq_role_has_grant(Oid role, Oid relid, AclMode mask);
extern bool paq_role_is_granted(Oid role, RangeTblEntry *rte, List *perminfos);

/* A rule that may ignore statements of these classes */
typedef struct PaqIgnoring
{
	const char *file;
	int			line;			/* where it begins there */
	uint32		classes;
} PaqIgnoring;

/* What the rules in effect do about statements that end in a given way */
typedef struct PaqCoverage
{
	uint32		recorded;		/* classes of which they record all, of everybody; */
	uint32		possible;		/* something, of somebody */
	List	   *ignoring;		/* PaqIgnoring, in the order of the file */
} PaqCoverage;

/* coverage.c */
extern void paq_policy_coverage(bool enabled, uint32 outcomes, PaqCoverage *coverage);

/*
 * Have the rules that this session knows been in effect when it was asked last?  All
 * that anybody else's change costs a statement.
 */
static inline bool
paq_policy_is_current(void)
{
	return likely(paq_policy.generation == pg_atomic_read_u64(paq_policy_generation) &&
				  paq_policy.enabled == paq_policy_enabled);
}

#endif							/* PAQ_POLICY_H */
