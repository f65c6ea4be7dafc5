/*-------------------------------------------------------------------------
 *
 * policy_internal.h
 *		Rules, as the files of policy/ share them.
 *
 * A rule set is what was read from the policy file and found to be right: words,
 * in one piece of memory that can be written to a file and inherited by fork().
 * A rule (PaqRule) is what a line of it means.  Each process that needs rules
 * makes them from the words again.
 *
 * Locking: none; shared memory is store.c's.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_POLICY_INTERNAL_H
#define PAQ_POLICY_INTERNAL_H

#include "postgres.h"

#include <sys/socket.h>

#include "compat.h"
#include "lib/ilist.h"
#include "libpq/pqcomm.h"
#include "nodes/pg_list.h"
#include "policy/policy.h"
#include "record/record.h"
#include "tcop/cmdtag.h"

/* Hexadecimal digits of a checksum, and the terminator */
#define PAQ_CHECKSUM_LEN	65

/* Does a word of a rule mean what the rule is asked about? */
typedef enum PaqMatch
{
	PAQ_MATCH_NO,
	PAQ_MATCH_UNKNOWN,
	PAQ_MATCH_YES
} PaqMatch;

/* What a word for a database or user means */
typedef enum PaqNameKind
{
	PAQ_NAME_ALL,
	PAQ_NAME_EXACT,
	PAQ_NAME_REGEX,
	PAQ_NAME_GROUP,				/* members of the role, not for databases */
	PAQ_NAME_SAMEUSER,			/* these three are for databases only */
	PAQ_NAME_SAMEROLE,
	PAQ_NAME_REPLICATION
} PaqNameKind;

typedef struct PaqName
{
	PaqNameKind kind;
	const char *text;			/* the name or expression, without + or / */
	regex_t    *regex;			/* PAQ_NAME_REGEX, compiled for the database's
								 * encoding; NULL: nobody can tell what it
								 * matches here */
} PaqName;

typedef enum PaqAddressKind
{
	PAQ_ADDRESS_ALL,
	PAQ_ADDRESS_LOCAL,			/* Unix-domain sockets */
	PAQ_ADDRESS_SAMEHOST,
	PAQ_ADDRESS_SAMENET,
	PAQ_ADDRESS_RANGE
} PaqAddressKind;

typedef struct PaqAddress
{
	PaqAddressKind kind;
	struct sockaddr_storage addr;	/* PAQ_ADDRESS_RANGE */
	struct sockaddr_storage mask;
} PaqAddress;

typedef enum PaqClassKind
{
	PAQ_CLASS_WORD,				/* class as in pg_audit_queue.log */
	PAQ_CLASS_TAG,				/* command tag */
	PAQ_CLASS_TRUNCATE,
	PAQ_CLASS_TEMP				/* all relations are temporary */
} PaqClassKind;

typedef struct PaqClassItem
{
	PaqClassKind kind;
	bool		out;			/* "-" in front: what matches is taken out */
	uint32		bits;			/* PAQ_CLASS_WORD */
	CommandTag	tag;			/* PAQ_CLASS_TAG */
} PaqClassItem;

typedef enum PaqItemKind
{
	PAQ_ITEM_ANY,
	PAQ_ITEM_NAME,			/* schema and name, each with wildcards "*" */
	PAQ_ITEM_REGEX,			/* of schema.name */
	PAQ_ITEM_ROLE				/* what grants of the role select */
} PaqItemKind;

typedef struct PaqObjectItem
{
	PaqItemKind kind;
	bool		literal;		/* PAQ_ITEM_NAME: without wildcards */
	const char *schema;			/* PAQ_ITEM_NAME */
	const char *name;			/* likewise, NULL: any; PAQ_ITEM_ROLE: the role */
	regex_t    *regex;			/* PAQ_ITEM_REGEX; as in PaqName */
	int			number;			/* likewise: in PaqSessionRules.searched, see match.c */
} PaqObjectItem;

typedef struct PaqRule
{
	int			line;			/* where it begins in its file */
	const char *file;
	int			ndatabases;
	PaqName    *databases;
	int			nusers;
	PaqName    *users;
	int			naddresses;
	PaqAddress *addresses;
	int			nclasses;
	PaqClassItem *classes;
	int			nobjects;
	PaqObjectItem *objects;

	int			ncurrent_users; /* condition currentuser; 0: any */
	PaqName    *current_users;
	PaqVerdict	verdict;		/* its other conditions and its options */
} PaqRule;

/* A rule set; rule_set.c knows what follows */
typedef struct PaqRuleSet
{
	uint32		magic;
	uint32		size;			/* of all of it, bytes */
	uint32		crc;			/* CRC-32C of what follows the header */
	uint32		nrules;
	char		checksum[PAQ_CHECKSUM_LEN]; /* SHA-256 of the words, so that
											 * comments do not count */
} PaqRuleSet;

/* Iterator over the rules of a set */
typedef struct PaqRuleReader
{
	const PaqRuleSet *set;
	const char *next;
	int			number;
} PaqRuleReader;

/*
 * rule.c: words to a rule, in the current memory context.  fields is a list of lists
 * of AuthToken, none of which is empty.  On an error the result is NULL and *error says
 * why, palloc'ed, without the line.  Used where raising is forbidden, too: out of
 * memory is the only error that is raised.
 */
extern PaqRule *paq_rule_make(List *fields, char **error);
extern void paq_rule_free(PaqRule *rule);

/*
 * rule_set.c: a file to a rule set.  Every line, right or wrong, is one PaqRuleLine of
 * the list *lines, in the order of the file.  NULL, with at least one error in *lines or
 * in *error (the file as a whole), if there is any error; *missing tells whether it is
 * that there is no file.  A set without rules has nrules 0.  Raises what the reading of
 * included files does, and if memory is short.
 */
typedef struct PaqRuleLine
{
	const char *file;
	int			line;
	List	   *fields;			/* lists of AuthToken; may be NIL with an error */
	const char *error;			/* NULL: none */
} PaqRuleLine;

extern PaqRuleSet *paq_rule_set_read(const char *path, List **lines, char **error,
									 bool *missing);
extern bool paq_rule_set_is_valid(const char *data, Size size);
extern bool paq_rule_set_is_genuine(const PaqRuleSet *set);
extern void paq_rule_set_begin(PaqRuleReader *reader, const PaqRuleSet *set);
extern void paq_rule_set_skip(PaqRuleReader *reader);
extern PaqRule *paq_rule_set_next(PaqRuleReader *reader);

/* The largest rule set, bytes */
#define PAQ_MAX_RULE_SET	(64 * 1024 * 1024)

/* kept.c: the file that keeps the rules in effect */
typedef enum PaqKeptState
{
	PAQ_KEPT_RULES,
	PAQ_KEPT_NOTHING,			/* there is no file */
	PAQ_KEPT_UNUSABLE
} PaqKeptState;

typedef struct PaqKept
{
	PaqRuleSet *set;			/* in TopMemoryContext; NULL if there is none */
	char		recorded[PAQ_CHECKSUM_LEN]; /* of the rules that the trail has been
											 * told of last; empty: none */
} PaqKept;

extern PaqKeptState paq_kept_read(PaqKept *kept, bool quiet);
extern bool paq_kept_write(const PaqRuleSet *set, const char *recorded);

/*
 * store.c: the rule set that is in effect for the server, NULL if there is none; may
 * read a file.  Valid until the next call.  *generation tells which one it is: one
 * behind paq_policy_generation, if this process cannot have the newest one.  Does not
 * raise.
 */
extern bool paq_store_get(const PaqRuleSet **set, uint64 *generation);
extern bool paq_store_is_in_effect(const char *checksum);

/* Whose rules are wanted */
typedef struct PaqIdentity
{
	Oid			role;			/* that logged in; invalid: cannot be looked up */
	const char *user;			/* its name; NULL: none */
	const char *database;		/* NULL: none */
	const SockAddr *client;		/* NULL: there is none */
	bool		client_unknown; /* there may be one */
	bool		replication;	/* a walsender without a database */
} PaqIdentity;

#define PAQ_KNOWN_USERS			4

/* A role that has been the current user, and which rules apply to it */
typedef struct PaqKnownUser
{
	Oid			role;			/* invalid: unused */
	bool	   *applies;
} PaqKnownUser;

/* Rules of a set that this process has made of its words; see made.c */
typedef struct PaqMadeRules
{
	MemoryContext context;		/* of all of it */
	uint64		generation;		/* of the set */
	int			encoding;		/* that regular expressions are for */
	int			users;			/* those who have got it */
	int			nrules;			/* that the set has */
	PaqRule   **rules;			/* in the order of the set; NULL: nobody uses it */
	int		   *uses;			/* how often each is used */
	List	   *groups;			/* names of the roles whose members rules name, in order */
	bool		samerole;		/* and the one with the name of the database is one, too */
	bool		groups_known;	/* these two are complete */
} PaqMadeRules;

struct PaqSessionRules
{
	dlist_node	node;			/* of all_rules in session.c */
	MemoryContext context;		/* of all of it */
	int			pins;			/* users: the session, and statements */
	PaqMadeRules *made;			/* whose rules they are; NULL: there is no set */
	bool		unknown;		/* the rules cannot be had: all is recorded */
	bool		enabled;		/* also those that are not mandatory */
	PaqIdentity who;			/* that they apply to, with names of its own; if made, and */
	PaqMatch   *members;		/* is it a member of each of the roles that made->groups has,
								 * and of the one that made->samerole means? */
	int			nrules;
	int			size;			/* allocated */
	PaqRule   **rules;			/* in the order of the file */
	bool		has_temp;		/* a rule has the class word "temp" */
	bool		has_roles;		/* or objects selected by grants, */
	bool		has_current_users;	/* or a condition currentuser */
	uint32		recorded;		/* see paq_set_rule_classes() */
	uint32		ignored;
	List	   *decisions;		/* all different ones so far */
	bool		full;			/* there are too many: others are to be made */
	struct known_hash *known;	/* decisions that were made before, and what each depends */
	struct dependence_hash *dependences;	/* on; NULL: none.  See match.c */
	MemoryContext searched_context;
	struct searched_hash *searched; /* which names regular expressions match; NULL: none */
	int			nexpressions;	/* that are numbered */
	PaqKnownUser users[PAQ_KNOWN_USERS];
	int			next_user;
	bool		users_lost;		/* there are decisions of roles that are not among them */
};

/* identity.c */
extern uint64 paq_failed_searches;
extern PaqMatch paq_match_regex(regex_t *regex, const char *text);
extern PaqMatch paq_match_group(const char *group, const PaqIdentity *who);
extern bool paq_rule_applies(const PaqRule *rule, const PaqIdentity *who);
extern bool paq_rule_applies_to(const PaqRule *rule, Oid role, const char *name);

/* made.c */
extern PaqMadeRules *paq_made_rules_get(const PaqRuleSet *set, uint64 generation);
extern void paq_made_rules_put(PaqMadeRules *made);
extern PaqRule *paq_made_rule_get(PaqMadeRules *made, PaqRuleReader *reader, int *i);
extern void paq_made_rule_drop(PaqMadeRules *made, int i);
extern void paq_made_rules_note(PaqMadeRules *made, const PaqRule *rule);
extern void paq_made_rules_noted(PaqMadeRules *made);

/* session.c */
extern PaqSessionRules *paq_session_rules_make(bool known, const PaqRuleSet *set,
											   uint64 generation, const PaqIdentity *who,
											   bool enabled);
extern void paq_session_rules_free(PaqSessionRules *rules);
extern void paq_rule_classes(const PaqRule *rule, uint32 *some, uint32 *whole);

/* match.c */
extern const PaqDecision *paq_rules_decide(PaqSessionRules *rules, Oid user,
										   const PaqSubject *subject);
extern bool paq_known_user_update(PaqSessionRules *rules, PaqKnownUser *known);
extern void paq_match_forget(PaqSessionRules *rules);
extern void paq_match_leave(PaqSessionRules *rules);
extern void paq_match_init(void);

/* The policy file's absolute path, palloc'ed */
extern char *paq_policy_path(void);

#endif							/* PAQ_POLICY_INTERNAL_H */
