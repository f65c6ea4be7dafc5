/*-------------------------------------------------------------------------
 *
 * rules.c
 *		Which literals of an SQL text are secret: rules over its tokens.
 *
 * What decides is the kind of statement, by its first words, and the tokens right
 * in front of a literal.  Nothing else does: neither a word somewhere in the text,
 * nor what stands in a comment or in another literal, so that nobody can use the
 * words of one literal to hide another one.  The exception are strings that are
 * put together with "||" right behind a literal that ends where its secret must
 * follow.
 *
 * The tokens come one by one, and each takes constant time.  Of calls of
 * set_config() inside of each other only the last is known.
 *
 * May raise an error for want of memory; see scan.c.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* The longest literal that can be the name of a setting */
#define MAX_NAME_LITERAL	256

/* PostgreSQL's settings that are commands: archive_command and its like */
#define COMMAND_ENDING		"_command"

/* What is known of the current statement; those from OBJECT on are about objects */
typedef enum Statement
{
	STATEMENT_START,			/* its first word is still to come */
	STATEMENT_OTHER,
	STATEMENT_DO,
	STATEMENT_OBJECT,			/* CREATE, ALTER, IMPORT */
	STATEMENT_ROLE				/* ... ROLE, USER, GROUP, unless it is SET */
} Statement;

/* Where in SET name TO value we are */
typedef enum SetState
{
	SET_NONE,
	SET_NAME,					/* behind SET, up to "=" or TO */
	SET_VALUE
} SetState;

/* What the next literal is, if it comes at once */
typedef enum Expected
{
	EXPECT_NOTHING,
	EXPECT_SECRET,
	EXPECT_BODY,				/* of a function */
	EXPECT_PIPES				/* "||", and then a secret */
} Expected;

/* Arguments of set_config() */
enum
{
	ARGUMENT_NAME,
	ARGUMENT_VALUE,
	ARGUMENT_OTHER
};

/* The last call of set_config(), if that is not at its end */
typedef struct Call
{
	uint32		depth;			/* of its parentheses; 0: none */
	bool		secret;			/* of a secret setting */
	int			argument;		/* which one this is, from ARGUMENT_NAME on */
	uint32		query;			/* parentheses of a query; 0: not in there */
	PaqToken	value;			/* first literal of the value, if it has an end */
	int			name_param;		/* 0: none */
	int			value_param;
} Call;

struct PaqRules
{
	PaqMaskWork *work;
	PaqMaskText *text;
	int			depth;			/* of literals in each other */
	Statement	statement;
	bool		secret_variable;	/* its first word is the name of a secret */
	Expected	expected;
	SetState	set;
	bool		set_dot;		/* the name has had a dot */
	bool		set_secret;		/* of a secret setting */
	bool		set_command;	/* of one that is a shell's command */
	PaqToken	last;			/* token before; at the beginning, none */
	uint32		parens;
	Call		call;
};

PaqRules *
paq_rules_begin(PaqMaskWork *work, PaqMaskText *text, int depth)
{
	PaqRules   *rules = palloc0(sizeof(PaqRules));

	rules->work = work;
	rules->text = text;
	rules->depth = depth;
	return rules;
}

/* ---------------------------------------------------------------------------
 * Tokens
 * ---------------------------------------------------------------------------
 */

/* Is the token the word, or the operator? */
static bool
is(const PaqRules *rules, const PaqToken *token, const char *word)
{
	const uint32 len = strlen(word);

	return token->end - token->start == len &&
		pg_strncasecmp(rules->text->data + token->start, word, len) == 0;
}

/* ... one of these words? */
static bool
is_in(const PaqRules *rules, const PaqToken *token, const char *const *list)
{
	return paq_mask_word_in(rules->text->data + token->start,
							token->end - token->start, list);
}

/* Is it a keyword or an identifier? */
static bool
is_name(const PaqRules *rules, const PaqToken *token)
{
	return token->code == PAQ_TOKEN_IDENT || token->code == PAQ_TOKEN_UIDENT ||
		(token->code > PAQ_TOKEN_PARAM &&
		 paq_mask_is_name_char(rules->text->data[token->start]));
}

/* The name between its quotes, if it has any */
static const char *
token_name(const PaqRules *rules, const PaqToken *token, uint32 *len)
{
	const char *name = rules->text->data + token->start;
	const bool	quoted = *name == '"' && token->end - token->start >= 2;

	*len = token->end - token->start - (quoted ? 2 : 0);
	return name + (quoted ? 1 : 0);
}

/* Is it this name, with or without quotes? */
static bool
is_named(const PaqRules *rules, const PaqToken *token, const char *word)
{
	uint32		len;
	const char *name = token_name(rules, token, &len);

	return len == strlen(word) && pg_strncasecmp(name, word, len) == 0;
}

static bool
is_secret_name(const PaqRules *rules, const PaqToken *token)
{
	uint32		len;
	const char *name = token_name(rules, token, &len);

	return is_name(rules, token) && paq_mask_name_is_secret(name, len);
}

static bool
is_literal(const PaqToken *token)
{
	return token->code >= PAQ_TOKEN_SCONST && token->code <= PAQ_TOKEN_XCONST;
}

static bool
is_number(const PaqToken *token)
{
	return token->code == PAQ_TOKEN_ICONST || token->code == PAQ_TOKEN_FCONST;
}

/* ---------------------------------------------------------------------------
 * Calls of set_config()
 * ---------------------------------------------------------------------------
 */

/*
 * Is this an argument of the call?  Literals in a query are not part of the value:
 * they tell which data were read.
 */
static bool
in_argument(const PaqRules *rules, int argument)
{
	return rules->call.depth > 0 && rules->call.argument == argument &&
		(argument != ARGUMENT_VALUE || rules->call.query == 0);
}

/* Is a constant that comes now part of the value of a secret setting? */
static bool
in_secret_value(const PaqRules *rules)
{
	return (rules->set == SET_VALUE && rules->set_secret) ||
		(rules->call.secret && in_argument(rules, ARGUMENT_VALUE));
}

/* The call ends: note if it makes a parameter the value of a setting. */
static void
end_call(PaqRules *rules)
{
	const Call	call = rules->call;
	PaqMaskWork *work = rules->work;
	MemoryContext old_context;

	rules->call = (Call){ 0 };
	if (!work->want_rules || call.value_param == 0 ||
		(call.name_param == 0 && !call.secret))
		return;
	old_context = MemoryContextSwitchTo(work->context);
	work->rules = lappend_int(work->rules, call.secret ? 0 : call.name_param);
	work->rules = lappend_int(work->rules, call.value_param);
	MemoryContextSwitchTo(old_context);
}

static void
open_paren(PaqRules *rules)
{
	rules->parens++;
	if (is_named(rules, &rules->last, "set_config"))
	{
		end_call(rules);
		rules->call.depth = rules->parens;
	}
}

static void
close_paren(PaqRules *rules)
{
	if (rules->call.query == rules->parens)
		rules->call.query = 0;
	if (rules->call.depth == rules->parens)
		end_call(rules);
	if (rules->parens > 0)
		rules->parens--;
}

/* name => value, or name := value */
static void
argument_name(PaqRules *rules)
{
	if (rules->call.depth > 0 && rules->call.depth == rules->parens)
		rules->call.argument =
			is_named(rules, &rules->last, "setting_name") ? ARGUMENT_NAME :
			is_named(rules, &rules->last, "new_value") ? ARGUMENT_VALUE :
			ARGUMENT_OTHER;
	else if (rules->depth > 0 && is_secret_name(rules, &rules->last))
		rules->expected = EXPECT_SECRET;
}

/* ---------------------------------------------------------------------------
 * Literals
 * ---------------------------------------------------------------------------
 */

static void
mark_secret(PaqRules *rules, const PaqToken *token)
{
	paq_literal_mark(rules->text, token, rules->work->conforming,
					 PAQ_MARK_SECRET, NULL);
}

/* A literal that is, or is part of, the name of a setting */
static void
setting_literal(PaqRules *rules, const PaqToken *token)
{
	Call	   *call = &rules->call;
	char		name[MAX_NAME_LITERAL];
	uint32		len;

	if (call->secret || token->end - token->start >= MAX_NAME_LITERAL)
		return;
	len = paq_literal_read(rules->text, token, rules->work->conforming, name);
	call->secret = paq_mask_name_is_secret(name, len) ||
		paq_mask_setting_is_secret(name);
	/* only once, however many literals the name has */
	if (call->secret && call->value.end > 0)
		mark_secret(rules, &call->value);
}

/*
 * Is a literal that comes now secret, by what is in front of it?  Right behind a
 * name, the statements about objects have passwords and options of what is
 * foreign; elsewhere that would be a type's name.
 */
static bool
is_secret(const PaqRules *rules, Expected expected)
{
	return expected == EXPECT_SECRET || in_secret_value(rules) ||
		(rules->statement >= STATEMENT_OBJECT &&
		 is_secret_name(rules, &rules->last)) ||
		/* PASSWORD in front of it may be misspelt */
		(rules->statement == STATEMENT_ROLE && rules->parens == 0 &&
		 !is(rules, &rules->last, "until"));
}

/* Returns true if the literal has to be looked into, as contents of that kind. */
static bool
literal(PaqRules *rules, const PaqToken *token, Expected expected, PaqContent *content)
{
	if (expected == EXPECT_BODY || rules->statement == STATEMENT_DO)
		*content = PAQ_CONTENT_SQL;
	else if ((rules->set == SET_VALUE && rules->set_command) ||
			 is_named(rules, &rules->last, "program") ||
			 /* PROGRAM can be written with escapes */
			 rules->last.code == PAQ_TOKEN_UIDENT)
		*content = PAQ_CONTENT_COMMAND;

	if (in_argument(rules, ARGUMENT_NAME))
		setting_literal(rules, token);
	else if (in_argument(rules, ARGUMENT_VALUE) && rules->call.value.end == 0)
		rules->call.value = *token;
	if (!is_secret(rules, expected))
		return true;
	mark_secret(rules, token);
	return false;
}

/* ---------------------------------------------------------------------------
 * Statements
 * ---------------------------------------------------------------------------
 */

static void
begin_setting(PaqRules *rules)
{
	rules->set = SET_NAME;
	rules->set_dot = rules->set_secret = rules->set_command = false;
}

/*
 * A part of a setting's name, if it is one.  One of PostgreSQL's own settings
 * has only one part.
 */
static bool
setting_part(PaqRules *rules, const PaqToken *token)
{
	static const char *const scopes[] = {"set", "local", "session", NULL};
	uint32		len;
	const char *name = token_name(rules, token, &len);
	const char *dot;

	if (!is_name(rules, token) ||
		(rules->last.code != '.' && !is_in(rules, &rules->last, scopes)))
		return false;
	/* with quotes, one part can have the dot in it */
	dot = memchr(name, '.', len);
	if (rules->set_dot || dot == NULL)
		dot = name;
	else
		rules->set_dot = true;
	len -= dot - name;
	rules->set_secret |= rules->set_dot ? paq_mask_name_is_secret(dot, len) :
		paq_mask_builtin_is_secret(name, len);
	rules->set_command = !rules->set_dot && len > strlen(COMMAND_ENDING) &&
		pg_strncasecmp(name + len - strlen(COMMAND_ENDING), COMMAND_ENDING,
					   strlen(COMMAND_ENDING)) == 0;
	return true;
}

/*
 * A token of SET name TO value, value.  Returns whether no other rule applies to
 * it.
 */
static bool
set_token(PaqRules *rules, const PaqToken *token)
{
	if (rules->set == SET_NAME)
	{
		if (token->code == '.')
			rules->set_dot = true;
		else if (token->code == '=' || is(rules, token, "to"))
			rules->set = SET_VALUE;
		else if (!setting_part(rules, token))
			rules->set = SET_NONE;
	}
	else if (rules->set == SET_VALUE)
	{
		const bool	in_list = rules->last.code == ',' || rules->last.code == '=' ||
			is(rules, &rules->last, "to");

		if (is_literal(token) || is_number(token) ||
			(in_list && is_name(rules, token)))
			return false;
		if (token->code != ',' && token->code != '+' && token->code != '-')
			rules->set = SET_NONE;
	}
	return rules->set != SET_NONE;
}

static const char *const verbs[] = {"create", "alter", "import", NULL};

/* The first word of a statement */
static void
first_word(PaqRules *rules, const PaqToken *token)
{
	rules->statement = STATEMENT_OTHER;
	if (is_in(rules, token, verbs))
		rules->statement = STATEMENT_OBJECT;
	else if (is(rules, token, "do"))
		rules->statement = STATEMENT_DO;
	else if (is(rules, token, "set"))
		begin_setting(rules);
	else						/* in PL/pgSQL a variable, or a label */
		rules->secret_variable = rules->depth > 0 &&
			!is(rules, &rules->last, "<<") && is_secret_name(rules, token);
}

static void
name(PaqRules *rules, const PaqToken *token, Expected expected)
{
	/* words of PL/pgSQL, which is in a literal, that a statement follows */
	static const char *const blocks[] = {
		"begin", "declare", "else", "loop", "then", NULL
	};
	static const char *const queries[] = {"select", "table", "values", "with", NULL};
	static const char *const roles[] = {"role", "user", "group", NULL};
	static const char *const quoting[] = {"quote_literal", "quote_nullable", NULL};

	if (rules->last.code == '(' && is_in(rules, token, queries))
		rules->call.query = rules->call.query ? rules->call.query : rules->parens;
	if (rules->depth > 0 && is_in(rules, token, blocks) &&
		(rules->statement == STATEMENT_START || rules->statement == STATEMENT_OTHER))
	{
		rules->statement = STATEMENT_START;
		rules->secret_variable = false;
	}
	else if (rules->statement == STATEMENT_START)
		first_word(rules, token);
	else if (rules->statement == STATEMENT_OBJECT && is_in(rules, token, roles) &&
			 is_in(rules, &rules->last, verbs))
		rules->statement = STATEMENT_ROLE;
	else if (rules->statement >= STATEMENT_OBJECT && rules->parens == 0 &&
			 is(rules, token, "set"))
	{
		begin_setting(rules);
		rules->statement = STATEMENT_OBJECT;
	}
	else if (rules->statement == STATEMENT_OBJECT && rules->parens == 0 &&
			 is(rules, token, "as"))
		rules->expected = EXPECT_BODY;
	else if ((rules->secret_variable && is(rules, token, "default")) ||
			 (expected == EXPECT_SECRET && is_in(rules, token, quoting)))
		rules->expected = EXPECT_SECRET;
}

/* An operator, or another single character */
static void
operator(PaqRules *rules, const PaqToken *token, Expected expected)
{
	if (token->code == '(')
	{
		/* it may be that of quote_literal() */
		rules->expected = expected;
		open_paren(rules);
	}
	else if (token->code == ')')
		close_paren(rules);
	else if (token->code == ',' && rules->call.depth == rules->parens)
		rules->call.argument++;
	else if (token->code == ';')
	{
		end_call(rules);
		rules->parens = 0;
		rules->statement = STATEMENT_START;
		rules->secret_variable = false;
		rules->set = SET_NONE;
	}
	else if (expected == EXPECT_PIPES && is(rules, token, "||"))
		rules->expected = EXPECT_SECRET;
	else if (is(rules, token, "=>") || is(rules, token, ":=") ||
			 (token->code == '=' && rules->secret_variable))
	{
		argument_name(rules);
		if (rules->secret_variable)
			rules->expected = EXPECT_SECRET;
		rules->secret_variable = false;
	}
}

/*
 * The next token of the text.  Returns true if it has to be looked into, with *content
 * what is known of its contents.
 */
bool
paq_rules_token(PaqRules *rules, const PaqToken *token, PaqContent *content)
{
	const Expected expected = rules->expected;
	bool		look = false;

	/* the N of N'...' is a token of its own */
	if (is(rules, token, "n") && rules->text->data[token->end] == '\'')
		return false;
	/* this is CREATE TABLE ... AS SELECT, so no function's body follows */
	if (expected == EXPECT_BODY && !is_literal(token))
		rules->statement = STATEMENT_OTHER;

	rules->expected = EXPECT_NOTHING;
	*content = PAQ_CONTENT_ANY;
	if (set_token(rules, token))
		;
	else if (is_literal(token))
		look = literal(rules, token, expected, content);
	else if (is_number(token))
	{
		if (in_secret_value(rules))
			paq_mask_mark(rules->text, token->start, token->end, PAQ_MARK_SECRET);
	}
	else if (token->code == PAQ_TOKEN_PARAM)
	{
		if (in_argument(rules, ARGUMENT_NAME) && rules->call.name_param == 0)
			rules->call.name_param = token->number;
		else if (in_argument(rules, ARGUMENT_VALUE) && rules->call.value_param == 0)
			rules->call.value_param = token->number;
	}
	else if (is_name(rules, token))
	{
		name(rules, token, expected);
		/* it may be a string of another language than SQL */
		look = rules->depth > 0 && rules->text->data[token->start] == '"';
	}
	else
		operator(rules, token, expected);
	rules->last = *token;
	return look;
}

/*
 * The last token was looked into, and ends where a secret must follow: so what is
 * appended to a literal is the secret.
 */
void
paq_rules_expect_rest(PaqRules *rules)
{
	if (is_literal(&rules->last))
		rules->expected = EXPECT_PIPES;
}

/* Must a secret follow where the text ends, or where the scanner gave up? */
bool
paq_rules_want_secret(const PaqRules *rules)
{
	const PaqToken *last = &rules->last;

	return rules->expected == EXPECT_SECRET ||
		(in_secret_value(rules) &&
		 (last->code == ',' || (rules->set == SET_VALUE && !is_literal(last)))) ||
		/* elsewhere it may be the name of a table, say */
		(rules->statement >= STATEMENT_OBJECT && is_secret_name(rules, last) &&
		 (rules->parens > 0 || is(rules, last, "password")));
}
