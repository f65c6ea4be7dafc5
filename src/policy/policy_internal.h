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
#include "policy/policy.h"
#include "record/record.h"
#include "tcop/cmdtag.h"

/* Hexadecimal digits of a checksum, and the terminator */
#define PAQ_CHECKSUM_LEN	65

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
	regex_t    *regex;			/* PAQ_NAME_REGEX */
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

typedef enum PaqObjectKind
{
	PAQ_OBJECT_ALL,
	PAQ_OBJECT_NAME,			/* schema and name, each with wildcards "*" */
	PAQ_OBJECT_REGEX,			/* of schema.name */
	PAQ_OBJECT_ROLE				/* what grants of the role select */
} PaqObjectKind;

typedef struct PaqObjectItem
{
	PaqObjectKind kind;
	const char *schema;			/* PAQ_OBJECT_NAME */
	const char *name;			/* likewise; PAQ_OBJECT_ROLE: the role */
	regex_t    *regex;			/* PAQ_OBJECT_REGEX */
} PaqObjectItem;

/* Outcomes, as bits */
#define PAQ_OUTCOME_OK			0x01
#define PAQ_OUTCOME_FAILED		0x02	/* any error */
#define PAQ_OUTCOME_DENIED		0x04	/* no permission */

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

/* Values of the option statement */
typedef enum PaqRuleText
{
	PAQ_TEXT_DEFAULT,			/* as the settings say */
	PAQ_TEXT_OFF,
	PAQ_TEXT_ON,
	PAQ_TEXT_NORMALIZED			/* without constants */
} PaqRuleText;

typedef struct PaqRule
{
	int			number;			/* counts rules of the set, from 1 */
	int			line;			/* where it begins in its file */
	const char *file;
	bool		record;			/* or else ignore */
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

	/* conditions */
	int			ncurrent_users; /* 0: any */
	PaqName    *current_users;
	uint32		outcomes;		/* PAQ_OUTCOME_xxx, 0: any */
	PaqComparison rows;
	PaqComparison duration;		/* microseconds */

	/* options, of a rule that records */
	int			mode;			/* PaqMode, -1: as the settings say */
	int			parameters;		/* 0 or 1, likewise */
	PaqRuleText statement;
	bool		mandatory;
	const char *name;			/* NULL: it has none */
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
 * rule.c: words to a rule, in the current memory context.  fields is a list of
 * lists of AuthToken.  On an error the result is NULL and *error says why, palloc'ed,
 * without the line.  Used where raising is forbidden, too: out of memory is the only
 * error that is raised.
 */
extern PaqRule *paq_rule_make(List *fields, char **error);
extern void paq_rule_free(PaqRule *rule);

/*
 * rule_set.c: a file to a rule set.  Every line, right or wrong, is one PaqRuleLine of
 * the list *lines, in the order of the file.  NULL, with at least one error in *lines or
 * in *error (the file as a whole), if there is any error.  A set without rules has
 * nrules 0.
 */
typedef struct PaqRuleLine
{
	const char *file;
	int			line;
	List	   *fields;			/* lists of AuthToken; may be NIL with an error */
	PaqRule    *rule;			/* NULL if there is an error */
	const char *error;			/* NULL: none */
} PaqRuleLine;

extern PaqRuleSet *paq_rule_set_read(const char *path, List **lines, char **error,
									 bool *missing);
extern bool paq_rule_set_is_valid(const char *data, Size size);
extern void paq_rules_begin(PaqRuleReader *reader, const PaqRuleSet *set);
extern PaqRule *paq_rules_next(PaqRuleReader *reader);

/*
 * store.c: the rule set that is in effect for the server, NULL if this process cannot
 * have it; may read a file.  Valid until the next call.  *generation tells which one it is.
 */
extern const PaqRuleSet *paq_store_get(uint64 *generation);
extern bool paq_store_is_in_effect(const char *checksum);

/* The policy file's path, absolute or relative to the data directory, palloc'ed */
extern char *paq_policy_path(void);

#endif							/* PAQ_POLICY_INTERNAL_H */
