/*-------------------------------------------------------------------------
 *
 * mask_internal.h
 *		What the files that mask secrets share.
 *
 * A text that has a secret has it inside of a literal, often, and that may be
 * inside of another: a function's body has a statement, the statement has a
 * string that is executed, the string has a connection string.  A PaqView is
 * any of these, without the quoting of what is around it, and knows for each
 * byte which byte of the text it comes from.  So whatever finds a secret in a
 * view, at any depth, marks a range of the text (PaqSpan).
 *
 * PaqMaskWork is one text being looked at, with the ranges found so far.
 *
 * Nothing declared here raises.  Memory comes from TopMemoryContext, and when
 * there is none that is noted in the work, whose caller then must not show the
 * text.
 *
 * Locking: none, all of it belongs to one process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PAQ_MASK_INTERNAL_H
#define PAQ_MASK_INTERNAL_H

#include "postgres.h"

/* What is shown in place of a secret */
#define PAQ_REDACTED	"<REDACTED>"

/* Literals inside of literals are looked into up to this depth. */
#define PAQ_MASK_DEPTH	8

typedef struct PaqView
{
	const char *data;			/* not terminated */
	uint32		len;
	const uint32 *origin;		/* of each byte, and of the end, in the text */
	uint32		base;			/* that of the first, if origin is NULL */
} PaqView;

typedef struct PaqSpan
{
	uint32		start;			/* in the text */
	uint32		end;
} PaqSpan;

/* A secret as it would be quoted by somebody else */
typedef struct PaqSecret
{
	const char *data;
	uint32		len;
} PaqSecret;

/* Of ASCII, whatever the locale is */
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

typedef struct PaqMaskBlock PaqMaskBlock;

typedef struct PaqMaskWork
{
	bool		may_parse;		/* the parser may be called */
	int			parse_depth;	/* a text inside of fewer literals than this is
								 * of no interest if it cannot be parsed */
	bool		conforming;		/* standard_conforming_strings */
	bool		want_secrets;	/* collect them, beside their ranges */
	bool		failed;			/* out of memory, or of another resource */
	PaqMaskBlock *blocks;		/* memory, newest first */
	PaqMaskBlock *results;		/* that of what follows */
	PaqSpan    *spans;
	uint32		nspans;
	uint32		max_spans;
	PaqSecret  *secrets;
	uint32		nsecrets;
	uint32		max_secrets;
} PaqMaskWork;

/* What a view says about the expression that it is a literal of */
typedef struct PaqMaskOutcome
{
	bool		open;			/* it ends where a secret must follow */
	uint64		arguments;		/* format(): bit n: the secret is argument n */
} PaqMaskOutcome;

typedef enum PaqTokenKind
{
	PAQ_TOKEN_WORD,
	PAQ_TOKEN_QUOTED,			/* a delimited identifier */
	PAQ_TOKEN_STRING,
	PAQ_TOKEN_NUMBER,
	PAQ_TOKEN_PARAM,			/* $1 */
	PAQ_TOKEN_PUNCT				/* any other character */
} PaqTokenKind;

typedef enum PaqQuoting
{
	PAQ_QUOTING_NONE,			/* quotes are doubled */
	PAQ_QUOTING_ESCAPE,			/* backslashes, too */
	PAQ_QUOTING_UNICODE,		/* as U& has it */
	PAQ_QUOTING_DOLLAR
} PaqQuoting;

typedef enum PaqHint
{
	PAQ_HINT_NONE,
	PAQ_HINT_CONNINFO,			/* is a connection string */
	PAQ_HINT_DONE				/* is masked as a whole */
} PaqHint;

/* Positions are those of the view. */
typedef struct PaqToken
{
	uint32		start;
	uint32		end;
	uint32		body;			/* between the quotes, if there are any */
	uint32		body_end;
	uint8		kind;			/* PaqTokenKind */
	uint8		quoting;		/* PaqQuoting */
	bool		closed;			/* false: its end is missing */
	uint8		hint;			/* PaqHint */
} PaqToken;

typedef struct PaqTokens
{
	PaqToken   *items;
	int			count;
} PaqTokens;

/* How secret a setting's value is */
typedef enum PaqSettingKind
{
	PAQ_SETTING_PLAIN,
	PAQ_SETTING_SECRET,
	PAQ_SETTING_CONNINFO		/* a connection string */
} PaqSettingKind;

/* A parameter that a statement makes the value of a setting */
typedef struct PaqParamRule
{
	int			name;			/* parameter with the setting's name; 0: it is
								 * known to be a secret one */
	int			value;			/* parameter with its value */
} PaqParamRule;

/* mask.c, for params.c */
extern const char *paq_mask_value(const char *value, bool is_text,
								  char **copy);
extern int	paq_mask_set_config_params(const char *text, PaqParamRule *rules,
									  int max_rules);

/* mask_work.c */
extern void *paq_mask_alloc(PaqMaskWork *work, Size size);
extern void paq_mask_release(PaqMaskWork *work, PaqMaskBlock *until);
extern void paq_mask_free(PaqMaskWork *work);
extern void paq_mask_span(PaqMaskWork *work, const PaqView *view,
						  uint32 start, uint32 end);
extern void paq_mask_range(PaqMaskWork *work, const PaqView *view,
						   uint32 start, uint32 end);
extern void paq_mask_secret(PaqMaskWork *work, const char *data, uint32 len);
extern char *paq_mask_render(PaqMaskWork *work, const char *text, uint32 len);

/* mask_filter.c */
extern bool paq_mask_is_candidate(const char *text, uint32 len);
extern bool paq_mask_sets_config(const char *text, uint32 len);
extern bool paq_mask_memo_find(const char *text, uint32 len);
extern void paq_mask_memo_add(const char *text, uint32 len);
extern void paq_mask_memo_clear(void);

/* mask_names.c */
extern bool paq_mask_name_is_secret(const char *name, uint32 len);
extern PaqSettingKind paq_mask_setting_kind(const char *name, uint32 len);
extern bool paq_mask_name_is_conninfo(const char *name, uint32 len);
extern bool paq_mask_word_in(const char *word, uint32 len,
							 const char *const *list);

/* mask_lexer.c */
extern bool paq_mask_lex(PaqMaskWork *work, const PaqView *view,
						 PaqTokens *tokens);
extern bool paq_mask_decode(PaqMaskWork *work, const PaqView *view,
							const PaqToken *token, PaqView *content);
extern void paq_mask_token(PaqMaskWork *work, const PaqView *view,
						   PaqToken *token);
extern bool paq_mask_is_word(const PaqView *view, const PaqToken *token,
							 const char *word);
extern bool paq_mask_is_punct(const PaqView *view, const PaqToken *token,
							  char c);

/* mask_content.c */
extern void paq_mask_uris(PaqMaskWork *work, const PaqView *view,
						  PaqMaskOutcome *outcome);
extern bool paq_mask_conninfo(PaqMaskWork *work, const PaqView *view,
							  bool expected, PaqMaskOutcome *outcome);
extern void paq_mask_assignments(PaqMaskWork *work, const PaqView *view);
extern void paq_mask_verifiers(PaqMaskWork *work, const PaqView *view);
extern void paq_mask_prose(PaqMaskWork *work, const PaqView *view);
extern bool paq_mask_placeholder(const PaqView *view, uint32 pos,
								 PaqMaskOutcome *outcome);

/* mask_rules.c */
extern void paq_mask_rules(PaqMaskWork *work, const PaqView *view,
						   PaqTokens *tokens, bool nested,
						   PaqMaskOutcome *outcome);

/* mask_calls.c */
extern void paq_mask_calls(PaqMaskWork *work, const PaqView *view,
						   PaqTokens *tokens);
extern int	paq_mask_param_rules(PaqMaskWork *work, const PaqView *view,
								PaqParamRule *rules, int max_rules);

/* mask_tree.c */
extern bool paq_mask_may_be_statement(const PaqView *view,
									  const PaqTokens *tokens);
extern bool paq_mask_tree(PaqMaskWork *work, const PaqView *view,
						  PaqTokens *tokens);

/* mask_sql.c */
extern bool paq_mask_sql(PaqMaskWork *work, const PaqView *view, int depth,
						 PaqMaskOutcome *outcome);
extern void paq_mask_literal(PaqMaskWork *work, const PaqView *content,
							 bool conninfo, int depth,
							 PaqMaskOutcome *outcome);

/* mask_pattern.c */
extern bool paq_mask_has_patterns(void);
extern void paq_mask_patterns_apply(PaqMaskWork *work, const char *text,
									uint32 len);

#endif							/* PAQ_MASK_INTERNAL_H */
