/*-------------------------------------------------------------------------
 *
 * mask_rules.c
 *		Secrets of a text that is not known to be SQL: statements with a syntax
 *		error, functions' bodies in PL/pgSQL and other languages, pieces of
 *		statements that are put together later.
 *
 * Without a parse tree, words must do: which statement it is, from its first
 * ones; what is a secret, from the name in front of it.  What is assigned to
 * a column is data, not to be masked, so with an operator in between a name
 * counts only outside of statements that deal with data.
 *
 * When a statement failed, its literals may be other ones than meant: a
 * password with a quote in it ends too early.  So if after a secret does not
 * come what must come, the rest of the text is taken for a part of it.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/mask_internal.h"

/* The longest name of a setting that we put together */
#define MAX_SETTING_NAME	128

/* How far behind a variable's name its value may be in its declaration */
#define MAX_DECLARATION		10

typedef enum StatementKind
{
	KIND_OTHER,
	KIND_ROLE,					/* CREATE or ALTER ROLE */
	KIND_OPTIONS,				/* about servers, user mappings, ... */
	KIND_DATA					/* SELECT, UPDATE, ... */
} StatementKind;

typedef struct Rules
{
	PaqMaskWork *work;
	const PaqView *view;
	PaqToken   *items;
	int			count;
	bool		nested;			/* the text is that of a literal */
	StatementKind kind;			/* of the current statement */
	PaqMaskOutcome *outcome;
} Rules;

static const char *const data_words[] = {
	"select", "insert", "update", "delete", "merge", "where", "values", NULL
};

/* Behind these a statement begins in PL/pgSQL. */
static const char *const start_words[] = {
	"then", "else", "loop", "begin", "declare", NULL
};

/* What can be in the list of options in CREATE ROLE */
static const char *const role_words[] = {
	"with", "superuser", "nosuperuser", "createdb", "nocreatedb", "createrole",
	"nocreaterole", "createuser", "nocreateuser", "inherit", "noinherit",
	"login", "nologin", "replication", "noreplication", "bypassrls",
	"nobypassrls", "connection", "encrypted", "unencrypted", "password",
	"valid", "in", "role", "user", "group", "admin", "sysid", NULL
};

static bool
is_word(const Rules *rules, int i, const char *word)
{
	return i >= 0 && i < rules->count &&
		paq_mask_is_word(rules->view, &rules->items[i], word);
}

static bool
is_punct(const Rules *rules, int i, char c)
{
	return i >= 0 && i < rules->count &&
		paq_mask_is_punct(rules->view, &rules->items[i], c);
}

static bool
is_word_of(const Rules *rules, int i, const char *const *list)
{
	const PaqToken *token;

	if (i < 0 || i >= rules->count)
		return false;
	token = &rules->items[i];
	return token->kind == PAQ_TOKEN_WORD &&
		paq_mask_word_in(rules->view->data + token->start,
						 token->end - token->start, list);
}

static bool
is_kind(const Rules *rules, int i, PaqTokenKind kind)
{
	return i < rules->count && rules->items[i].kind == kind;
}

static bool
is_secret_name(const Rules *rules, int i)
{
	const PaqToken *token = &rules->items[i];

	if (token->kind == PAQ_TOKEN_WORD)
		return paq_mask_name_is_secret(rules->view->data + token->start,
									   token->end - token->start);
	return token->kind == PAQ_TOKEN_QUOTED &&
		paq_mask_name_is_secret(rules->view->data + token->body,
								token->body_end - token->body);
}

/* The text from behind token i on is secret. */
static void
mask_rest(Rules *rules, int i)
{
	paq_mask_span(rules->work, rules->view, rules->items[i].end,
				  rules->view->len);
	for (i++; i < rules->count; i++)
		paq_mask_token(rules->work, rules->view, &rules->items[i]);
}

/* May this token follow a secret in the statement? */
static bool
may_follow(const Rules *rules, int i)
{
	if (i >= rules->count || is_punct(rules, i, ';') ||
		(rules->nested && is_kind(rules, i, PAQ_TOKEN_PUNCT)))
		return true;
	switch (rules->kind)
	{
		case KIND_ROLE:
			return is_word_of(rules, i, role_words);
		case KIND_OPTIONS:
			return is_punct(rules, i, ',') || is_punct(rules, i, ')');
		default:
			return rules->nested || is_kind(rules, i, PAQ_TOKEN_PUNCT) ||
				rules->items[i].start > rules->items[i - 1].end;
	}
}

/* Token i is secret.  Returns the place of the next one to look at. */
static int
mask_token(Rules *rules, int i)
{
	paq_mask_token(rules->work, rules->view, &rules->items[i]);
	if (!rules->items[i].closed)
		rules->outcome->open = true;
	if (!may_follow(rules, i + 1))
	{
		mask_rest(rules, i);
		return rules->count;
	}
	return i + 1;
}

/* At a word: does another statement begin, and of which kind? */
static void
note_statement(Rules *rules, int i)
{
	int			next = i + 1;

	if (is_word_of(rules, i, start_words))
		rules->kind = KIND_OTHER;
	else if (is_word(rules, i, "create") || is_word(rules, i, "alter") ||
			 is_word(rules, i, "import"))
	{
		if (is_word(rules, next, "role") || is_word(rules, next, "group"))
			rules->kind = KIND_ROLE;
		else if (is_word(rules, next, "user"))
			rules->kind = is_word(rules, next + 1, "mapping") ?
				KIND_OPTIONS : KIND_ROLE;
		else if (is_word(rules, next, "server") ||
				 is_word(rules, next, "foreign"))
			rules->kind = KIND_OPTIONS;
		else
			rules->kind = KIND_OTHER;
	}
	else if (rules->kind == KIND_OTHER && is_word_of(rules, i, data_words))
		rules->kind = KIND_DATA;
}

/* A name like "a.b" at token *i; moves *i behind it.  False: no name there. */
static bool
read_name(const Rules *rules, int *i, char *name)
{
	uint32		len = 0;

	while (*i < rules->count)
	{
		const PaqToken *token = &rules->items[*i];
		const bool	quoted = token->kind == PAQ_TOKEN_QUOTED;
		uint32		start = quoted ? token->body : token->start;
		uint32		part_len = (quoted ? token->body_end : token->end) - start;

		if ((token->kind != PAQ_TOKEN_WORD && !quoted) ||
			len + part_len + 2 > MAX_SETTING_NAME)
			return false;
		memcpy(name + len, rules->view->data + start, part_len);
		len += part_len;
		name[len] = '\0';
		(*i)++;
		if (!is_punct(rules, *i, '.'))
			return true;
		name[len++] = '.';
		(*i)++;
	}
	return false;
}

/* The values of a setting, from token i on.  Returns the place behind them. */
static int
mask_setting_values(Rules *rules, int i, PaqSettingKind kind)
{
	if (i >= rules->count)
		rules->outcome->open = true;
	while (i < rules->count && !is_punct(rules, i, ';'))
	{
		if (kind == PAQ_SETTING_CONNINFO)
			rules->items[i].hint = PAQ_HINT_CONNINFO;
		else if (paq_mask_placeholder(rules->view, rules->items[i].start,
									  rules->outcome))
			return i + 1;
		else if (!is_word(rules, i, "default"))
			paq_mask_token(rules->work, rules->view, &rules->items[i]);
		i++;
		if (!is_punct(rules, i, ','))
			break;
		i++;
	}
	return i;
}

/* SET [SESSION | LOCAL] name TO value: at SET. */
static int
mask_set(Rules *rules, int i)
{
	char		name[MAX_SETTING_NAME];
	int			next = i + 1;
	PaqSettingKind kind;

	if (is_word(rules, next, "session") || is_word(rules, next, "local"))
		next++;
	if (rules->kind == KIND_DATA || !read_name(rules, &next, name) ||
		(!is_punct(rules, next, '=') && !is_word(rules, next, "to")))
		return i + 1;
	kind = paq_mask_setting_kind(name, strlen(name));
	if (kind == PAQ_SETTING_PLAIN)
		return i + 1;
	return mask_setting_values(rules, next + 1, kind);
}

/*
 * Is what comes up to token i the piece of a role's options, so that it must
 * be the password that the next piece begins with?
 */
static bool
is_role_piece(const Rules *rules, int i)
{
	if (rules->kind == KIND_ROLE)
		return true;
	for (; i >= 0; i--)
	{
		if (!is_word_of(rules, i, role_words))
			return false;
	}
	return true;
}

/*
 * Behind the name of a secret: skip what stands between it and its value.
 * *assigned says whether there is an operator.
 */
static int
skip_operator(const Rules *rules, int i, bool *assigned)
{
	int			start = i;

	while (is_punct(rules, i, '=') || is_punct(rules, i, ':') ||
		   is_punct(rules, i, '>') || is_word(rules, i, "to") ||
		   is_word(rules, i, "default"))
		i++;
	*assigned = i > start;
	return i;
}

/*
 * Behind a variable's name: skip its type, if ":=" or DEFAULT comes behind it.
 * Otherwise returns i.
 */
static int
skip_declaration(const Rules *rules, int i)
{
	for (int k = i; k < rules->count && k < i + MAX_DECLARATION; k++)
	{
		if (is_word(rules, k, "default") ||
			(is_punct(rules, k, ':') && is_punct(rules, k + 1, '=')))
			return k;
		if (is_punct(rules, k, ';') || is_kind(rules, k, PAQ_TOKEN_STRING))
			break;
	}
	return i;
}

/* Is the literal at i, which follows the name of a secret, its value? */
static bool
is_value(const Rules *rules, int name, int i, bool assigned)
{
	if (rules->kind == KIND_ROLE || rules->kind == KIND_OPTIONS)
		return true;
	if (is_kind(rules, name, PAQ_TOKEN_QUOTED))
		return false;
	if (assigned)
		return rules->kind != KIND_DATA;
	/* not an apostrophe */
	return !rules->nested || rules->items[i].start > rules->items[name].end;
}

/*
 * Token i follows the name of a secret, and is not a literal.  In a statement
 * that failed it may have been meant to be one.
 */
static bool
is_mistaken_value(const Rules *rules, int name, int i, bool assigned)
{
	if (is_kind(rules, i, PAQ_TOKEN_PUNCT))
		return false;
	switch (rules->kind)
	{
		case KIND_ROLE:
			return is_word(rules, name, "password") &&
				!is_word(rules, i, "null") && !is_word_of(rules, i, role_words);
		case KIND_OPTIONS:
			return is_punct(rules, name - 1, '(') ||
				is_punct(rules, name - 1, ',') ||
				is_word(rules, name - 1, "add") ||
				is_word(rules, name - 1, "set");
		case KIND_OTHER:
			return assigned && is_kind(rules, i, PAQ_TOKEN_QUOTED) &&
				is_kind(rules, name, PAQ_TOKEN_WORD);
		default:
			return false;
	}
}

/* At the name of a secret: mask the value, if one follows. */
static int
mask_named(Rules *rules, int name)
{
	bool		assigned;
	int			i = skip_operator(rules, name + 1, &assigned);

	if (!assigned && rules->kind == KIND_OTHER)
		i = skip_operator(rules, skip_declaration(rules, i), &assigned);
	if (i >= rules->count)
	{
		if (rules->kind == KIND_OPTIONS || is_role_piece(rules, name) ||
			(assigned && rules->kind != KIND_DATA))
			rules->outcome->open = true;
		return i;
	}
	if (is_punct(rules, i, '%') && (assigned || is_role_piece(rules, name) ||
									rules->kind == KIND_OPTIONS))
	{
		paq_mask_placeholder(rules->view, rules->items[i].start, rules->outcome);
		return i + 1;
	}
	if (is_kind(rules, i, PAQ_TOKEN_STRING) ?
		is_value(rules, name, i, assigned) :
		is_mistaken_value(rules, name, i, assigned))
	{
		paq_mask_placeholder(rules->view, rules->items[i].body, rules->outcome);
		return mask_token(rules, i);
	}
	return name + 1;
}

/*
 * A literal in a statement about a role is its password, unless it is the
 * time until which that is valid, or the value of a setting.
 */
static bool
is_role_secret(const Rules *rules, int i)
{
	return rules->kind == KIND_ROLE && is_kind(rules, i, PAQ_TOKEN_STRING) &&
		!is_word(rules, i - 1, "until") && !is_word(rules, i - 1, "to") &&
		!is_punct(rules, i - 1, '=');
}

/* Mask what the words say; for a text without a parse tree. */
void
paq_mask_rules(PaqMaskWork *work, const PaqView *view, PaqTokens *tokens,
			   bool nested, PaqMaskOutcome *outcome)
{
	Rules		rules = {
		work, view, tokens->items, tokens->count, nested, KIND_OTHER, outcome
	};
	int			i = 0;

	while (i < rules.count)
	{
		if (is_punct(&rules, i, ';'))
			rules.kind = KIND_OTHER;
		else if (is_kind(&rules, i, PAQ_TOKEN_WORD))
			note_statement(&rules, i);

		if (is_role_secret(&rules, i))
			i = mask_token(&rules, i);
		else if (is_word(&rules, i, "set"))
			i = mask_set(&rules, i);
		else if (is_word(&rules, i, "connection") &&
				 is_kind(&rules, i + 1, PAQ_TOKEN_STRING))
			rules.items[++i].hint = PAQ_HINT_CONNINFO;
		else if (is_secret_name(&rules, i))
			i = mask_named(&rules, i);
		else
			i++;
	}
}
