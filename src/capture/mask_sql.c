/*-------------------------------------------------------------------------
 *
 * mask_sql.c
 *		Secrets of an SQL text, in whatever it has literals for.
 *
 * What the statements are is known from their parse tree (mask_tree.c) or,
 * where there is none, guessed from their words (mask_rules.c).  Either way,
 * calls of some functions (mask_calls.c) and all literals are looked at: any
 * literal can be SQL that is executed, with literals of its own.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/mask_internal.h"

/*
 * A literal can end where a secret must follow, as in 'PASSWORD ' || 'x'; or
 * be the format in format('PASSWORD %L', 'x').  Then these are on, until the
 * parenthesis around it is closed; the first one also until a comma.
 */
typedef struct Expectation
{
	int			parens;			/* parentheses around the current token */
	bool		open;			/* literals that follow are secret */
	int			open_parens;
	uint64		arguments;		/* literals in these arguments are secret */
	int			arguments_parens;
	int			argument;		/* the current one */
} Expectation;

/* Languages whose functions' bodies have SQL as it is everywhere */
static const char *const sql_languages[] = {
	"sql", "plpgsql", "c", "internal", NULL
};

/* Is there a function's body in another language? */
static bool
has_foreign_language(const PaqView *view, const PaqTokens *tokens)
{
	for (int i = 0; i + 1 < tokens->count; i++)
	{
		const PaqToken *name = &tokens->items[i + 1];
		uint32		start = name->start;
		uint32		end = name->end;

		if (!paq_mask_is_word(view, &tokens->items[i], "language"))
			continue;
		if (name->kind == PAQ_TOKEN_STRING || name->kind == PAQ_TOKEN_QUOTED)
		{
			start = name->body;
			end = name->body_end;
		}
		if (!paq_mask_word_in(view->data + start, end - start, sql_languages))
			return true;
	}
	return false;
}

static void
expect_by_punctuation(Expectation *expectation, char c)
{
	switch (c)
	{
		case '(':
			expectation->parens++;
			break;
		case ')':
			expectation->parens--;
			if (expectation->parens < expectation->open_parens)
				expectation->open = false;
			if (expectation->parens < expectation->arguments_parens)
				expectation->arguments = 0;
			break;
		case ',':
			if (expectation->parens == expectation->open_parens)
				expectation->open = false;
			if (expectation->parens == expectation->arguments_parens)
				expectation->argument++;
			break;
		case ';':
			expectation->open = false;
			expectation->arguments = 0;
			break;
		default:
			break;
	}
}

static bool
is_expected(const Expectation *expectation)
{
	return expectation->open ||
		(expectation->argument < 64 &&
		 (expectation->arguments & (UINT64CONST(1) << expectation->argument)));
}

static void
expect_by_outcome(Expectation *expectation, const PaqMaskOutcome *outcome)
{
	if (outcome->open)
	{
		expectation->open = true;
		expectation->open_parens = expectation->parens;
	}
	if (outcome->arguments != 0)
	{
		expectation->arguments = outcome->arguments;
		expectation->arguments_parens = expectation->parens;
		expectation->argument = 0;
	}
}

/* Look into a literal, or into a delimited identifier that may be one. */
static void
look_into(PaqMaskWork *work, const PaqView *view, const PaqToken *token,
		  bool foreign, int depth, PaqMaskOutcome *outcome)
{
	PaqMaskBlock *const blocks = work->blocks;
	PaqView		content;

	if (paq_mask_decode(work, view, token, &content) &&
		paq_mask_is_candidate(content.data, content.len))
	{
		const bool	conforming = work->conforming;

		/* elsewhere, a backslash is an escape in any string */
		if (foreign)
			work->conforming = false;
		paq_mask_literal(work, &content, token->hint == PAQ_HINT_CONNINFO,
						 depth, outcome);
		if (foreign)
			paq_mask_prose(work, &content);
		work->conforming = conforming;
	}
	paq_mask_release(work, blocks);
}

/*
 * Look at all literals.  Where the text could not be parsed, other languages
 * may be in it, and what has double quotes may be a string of theirs.
 */
static void
mask_literals(PaqMaskWork *work, const PaqView *view, PaqTokens *tokens,
			  bool parsed, int depth)
{
	const bool	foreign = has_foreign_language(view, tokens);
	Expectation expectation = {0};

	for (int i = 0; i < tokens->count; i++)
	{
		PaqToken   *token = &tokens->items[i];
		PaqMaskOutcome outcome = {0};

		if (token->kind == PAQ_TOKEN_PUNCT)
			expect_by_punctuation(&expectation, view->data[token->start]);
		if (token->hint == PAQ_HINT_DONE)
			continue;
		if (token->kind == PAQ_TOKEN_QUOTED && !parsed)
			look_into(work, view, token, foreign, depth, &outcome);
		if (token->kind != PAQ_TOKEN_STRING)
			continue;
		if (is_expected(&expectation))
			paq_mask_token(work, view, token);
		else
		{
			look_into(work, view, token, foreign, depth, &outcome);
			expect_by_outcome(&expectation, &outcome);
		}
	}
}

/*
 * Mask an SQL text.  depth is the number of literals that it is inside of; the
 * outcome is for the expression around it.  Returns whether it was parsed.
 */
bool
paq_mask_sql(PaqMaskWork *work, const PaqView *view, int depth,
			 PaqMaskOutcome *outcome)
{
	PaqTokens	tokens;
	bool		parsed;

	if (!paq_mask_lex(work, view, &tokens))
		return false;
	parsed = work->may_parse &&
		(depth == 0 || paq_mask_may_be_statement(view, &tokens)) &&
		paq_mask_tree(work, view, &tokens);
	if (!parsed)
	{
		if (depth < work->parse_depth)
			return false;
		paq_mask_rules(work, view, &tokens, depth > 0, outcome);
	}
	/* not only those in literals */
	if (depth == 0)
		paq_mask_uris(work, view, outcome);
	paq_mask_calls(work, view, &tokens);
	mask_literals(work, view, &tokens, parsed, depth);
	return parsed;
}

/*
 * Mask the content of a literal, or of anything else that can be a connection
 * string, an address, SQL, ...  depth is that of the text around it.
 */
void
paq_mask_literal(PaqMaskWork *work, const PaqView *content, bool conninfo,
				 int depth, PaqMaskOutcome *outcome)
{
	paq_mask_uris(work, content, outcome);
	paq_mask_verifiers(work, content);
	paq_mask_assignments(work, content);
	if (paq_mask_conninfo(work, content, conninfo, outcome))
		return;
	if (depth >= PAQ_MASK_DEPTH)
		paq_mask_range(work, content, 0, content->len);
	else
		paq_mask_sql(work, content, depth + 1, outcome);
}
