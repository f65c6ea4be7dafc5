/*-------------------------------------------------------------------------
 *
 * mask_internal.h
 *		What the files of mask/ share.
 *
 * A PaqMaskText is a text with a mark for each of its bytes, which says what is
 * known of the byte.  The contents of a literal that may hold SQL, or a connection
 * string, are a PaqMaskText of their own.  What is found there is carried over to
 * the bytes of the text around it, so that however deep a secret is, in the end
 * some bytes of the whole text are replaced.
 *
 * Marks are only ever added, and a pass over a text marks each byte at most once.
 * The number of passes is fixed, and so is the depth of texts in each other.
 * Therefore all of it is linear.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_MASK_INTERNAL_H
#define PAQ_MASK_INTERNAL_H

#include "postgres.h"

#include "mask/mask.h"
#include "miscadmin.h"

/*
 * Literals inside of literals are looked into up to this depth, if they are not
 * longer than this.
 */
#define PAQ_MASK_MAX_DEPTH	6
#define PAQ_MASK_MAX_NESTED	(1024 * 1024)

/*
 * What is done with a text that is not longer is short enough to be done to its end.  Longer
 * ones are given up if somebody cancels the statement or ends the session meanwhile.
 */
#define PAQ_MASK_UNINTERRUPTED	(256 * 1024)

/* What is known of a byte */
#define PAQ_MARK_LITERAL	0x01	/* in a literal's contents, or a digit of a
									 * number: no other byte is ever replaced */
#define PAQ_MARK_DIGIT		0x02	/* ... of a number */
#define PAQ_MARK_NEXT		0x04	/* belongs to the byte before it: the second
									 * of two quotes, the rest of an escape */
#define PAQ_MARK_SECRET		0x08
#define PAQ_MARK_TOKEN		0x10	/* in a literal, its quotes included */
#define PAQ_MARK_FIRST		0x20	/* ... whose first byte it is */

typedef struct PaqMaskText
{
	const char *data;			/* terminated if it is to be scanned */
	uint32		len;
	uint8	   *marks;			/* one for each byte */
} PaqMaskText;

/* How a text is read, and what has been found out about it */
typedef struct PaqMaskWork
{
	bool		conforming;		/* standard_conforming_strings */
	bool		limited;		/* literals that need not be secrets are masked */
	bool		suspect;		/* PostgreSQL cannot have read it like this */
	bool		may_give_up;	/* see paq_mask_is_interrupted() */
	int			max_param;		/* $n: the highest n */
	uint64		steps;			/* see is_expensive() in scan.c */
	bool		want_rules;		/* only these are to be collected: */
	MemoryContext context;		/* their memory */
	List	   *rules;			/* see paq_mask_param_rules() */
} PaqMaskWork;

/* Returns true if somebody wants the statement or the session to end, and the text is long. */
static inline bool
paq_mask_is_interrupted(const PaqMaskWork *work, const PaqMaskText *text)
{
	return unlikely(InterruptPending) && (QueryCancelPending || ProcDiePending) &&
		work->may_give_up && text->len > PAQ_MASK_UNINTERRUPTED;
}

/* The codes of PostgreSQL's scanner that are not characters; see scanner.h */
typedef enum PaqTokenCode
{
	PAQ_TOKEN_END = 0,
	PAQ_TOKEN_IDENT = 258,
	PAQ_TOKEN_UIDENT,
	PAQ_TOKEN_FCONST,
	PAQ_TOKEN_SCONST,
	PAQ_TOKEN_USCONST,
	PAQ_TOKEN_BCONST,
	PAQ_TOKEN_XCONST,
	PAQ_TOKEN_OP,
	PAQ_TOKEN_ICONST,
	PAQ_TOKEN_PARAM
} PaqTokenCode;

/* What a literal's contents are known to be */
typedef enum PaqContent
{
	PAQ_CONTENT_ANY,
	PAQ_CONTENT_SQL,
	PAQ_CONTENT_COMMAND			/* of a shell */
} PaqContent;

typedef struct PaqToken
{
	int			code;			/* PaqTokenCode, character, or another one */
	uint32		start;			/* in the text */
	uint32		end;
	int			number;			/* of a parameter */
	bool		open;			/* a literal without an end */
} PaqToken;

/* White space, as a shell and libpq have it */
static inline bool
paq_mask_is_space(char c)
{
	return c == ' ' || (c >= '\t' && c <= '\r');
}

static inline bool
paq_mask_is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Can it be part of a name, in any encoding? */
static inline bool
paq_mask_is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		paq_mask_is_digit(c) || c == '_' || IS_HIGHBIT_SET(c);
}

static inline void
paq_mask_mark(PaqMaskText *text, uint32 start, uint32 end, uint8 mark)
{
	for (uint32 i = start; i < end; i++)
		text->marks[i] |= mark;
}

/* words.c */
extern bool paq_mask_is_candidate(const char *text, Size len);
extern bool paq_mask_sets_config(const char *text, Size len);
extern bool paq_mask_name_is_secret(const char *name, uint32 len);
extern bool paq_mask_builtin_is_secret(const char *name, uint32 len);
extern bool paq_mask_word_in(const char *word, uint32 len,
							 const char *const *list);

/* literal.c */
extern uint32 paq_comment_end(const PaqMaskText *text, uint32 pos);
extern uint32 paq_literal_read(const PaqMaskText *text, const PaqToken *token,
							   bool conforming, char *result);
extern void paq_literal_mark(const PaqMaskText *text, const PaqToken *token,
							 bool conforming, uint8 mark, const uint8 *secrets);
extern bool paq_plain_next(const PaqMaskText *text, uint32 *pos,
						   bool conforming, PaqToken *token);

/* scan.c */
extern void paq_plain_mark(PaqMaskWork *work, PaqMaskText *text, uint32 pos,
						   uint8 mark);
extern uint32 paq_scan(PaqMaskWork *work, PaqMaskText *text,
					   bool is_statement);

/* rules.c */
typedef struct PaqRules PaqRules;
extern PaqRules *paq_rules_begin(PaqMaskWork *work, PaqMaskText *text,
								 int depth);
extern bool paq_rules_token(PaqRules *rules, const PaqToken *token, PaqContent *content);
extern void paq_rules_expect_rest(PaqRules *rules);
extern bool paq_rules_want_secret(const PaqRules *rules);

/* content.c */
extern bool paq_content_find(PaqMaskText *text, PaqContent content);
extern void paq_content_assignments(PaqMaskText *text, bool capitals);
extern bool paq_content_patterns(PaqMaskText *text, bool may_raise);

#endif							/* PAQ_MASK_INTERNAL_H */
