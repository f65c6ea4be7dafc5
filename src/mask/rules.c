/*-------------------------------------------------------------------------
 *
 * rules.c
 *		Which literals of an SQL text are secret: rules over its tokens.
 *
 * Which statement it is decides, from its first words, and then the tokens
 * right in front of a literal.  Nothing else does: not a word somewhere in the
 * text, nor what stands in a comment or in another literal, so that nobody can
 * make the words of one literal a reason to hide another one.  The exceptions
 * are strings that are put together: with "||" behind a literal that ends
 * where its secret must follow, and in format().
 *
 * The tokens come one by one, and each takes constant time.  Calls of
 * functions whose arguments matter can be inside of each other to any depth; a
 * stack of those that are open takes memory, as the parser's does.
 *
 * May raise an error for want of memory; see scan.c.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* Size of the name of a setting that is put together; longer ones are cut. */
#define MAX_SETTING_NAME	128

/* The longest literal that can be the name of a setting */
#define MAX_NAME_LITERAL	256

#define DBLINK_PREFIX		"dblink"

/* Words that mean something here */
typedef enum Word
{
	WORD_NONE,
	WORD_ALTER,
	WORD_AS,
	WORD_BEGIN,
	WORD_CONNECTION,
	WORD_CREATE,
	WORD_DATABASE,
	WORD_DECLARE,
	WORD_DEFAULT,
	WORD_DO,
	WORD_ELSE,
	WORD_FOREIGN,
	WORD_FORMAT,
	WORD_FUNCTION,
	WORD_GROUP,
	WORD_IMPORT,
	WORD_LOCAL,
	WORD_LOOP,
	WORD_MAPPING,
	WORD_NEW_VALUE,
	WORD_OPTIONS,
	WORD_OR,
	WORD_PASSWORD,
	WORD_PROCEDURE,
	WORD_QUOTE_LITERAL,
	WORD_QUOTE_NULLABLE,
	WORD_REPLACE,
	WORD_ROLE,
	WORD_ROUTINE,
	WORD_SELECT,
	WORD_SERVER,
	WORD_SESSION,
	WORD_SET,
	WORD_SET_CONFIG,
	WORD_SETTING_NAME,
	WORD_SUBSCRIPTION,
	WORD_SYSTEM,
	WORD_TABLE,
	WORD_THEN,
	WORD_TO,
	WORD_UNTIL,
	WORD_USER,
	WORD_VALUES,
	WORD_WITH
} Word;

/* In the order of Word, and of the alphabet */
static const char *const words[] = {
	"", "alter", "as", "begin", "connection", "create", "database", "declare",
	"default", "do", "else", "foreign", "format", "function", "group", "import",
	"local", "loop", "mapping", "new_value", "options", "or", "password",
	"procedure", "quote_literal", "quote_nullable", "replace", "role",
	"routine", "select", "server", "session", "set", "set_config",
	"setting_name", "subscription", "system", "table", "then", "to",
	"until", "user", "values", "with"
};

#define MAX_WORD_LEN	14

/* What is known of the current statement */
typedef enum Statement
{
	STATEMENT_START,			/* its first word is still to come */
	STATEMENT_OBJECT,			/* behind CREATE, ALTER, IMPORT */
	STATEMENT_USER,				/* behind these and USER */
	STATEMENT_ROLE,				/* from here on it is known */
	STATEMENT_FOREIGN,
	STATEMENT_SUBSCRIPTION,
	STATEMENT_SETTINGS,			/* has SET, and no secrets but in settings */
	STATEMENT_FUNCTION,
	STATEMENT_DO,
	STATEMENT_OTHER
} Statement;

/* Where in SET name TO value we are */
typedef enum SetState
{
	SET_NONE,
	SET_NAME,					/* a part of the name must come */
	SET_OPERATOR,				/* ... has come */
	SET_VALUE					/* a value must come */
} SetState;

/* What the next literal is, if it comes at once */
typedef enum Expected
{
	EXPECT_NOTHING,
	EXPECT_SECRET,
	EXPECT_CONNINFO,
	EXPECT_BODY,				/* of a function */
	EXPECT_PIPES,				/* "||", and then a secret */
	EXPECT_REST,				/* the secret, or a function that quotes it */
	EXPECT_PAREN				/* that function's parenthesis */
} Expected;

typedef enum FrameType
{
	FRAME_SET_CONFIG,
	FRAME_DBLINK,
	FRAME_FORMAT,
	FRAME_OPTIONS
} FrameType;

/* Roles of the arguments of set_config() */
#define ARGUMENT_NAME	0
#define ARGUMENT_VALUE	1
#define ARGUMENT_OTHER	2

/* A parenthesis that matters, and is open */
typedef struct Frame
{
	FrameType	type;
	bool		inherited;		/* all of it is the value of a secret setting */
	bool		secret;			/* set_config(): of a secret setting */
	bool		conninfo;		/* ... of one that is a connection string */
	uint32		depth;			/* of parentheses */
	uint32		select_depth;	/* of one with a query in it; 0: none */
	uint32		argument;		/* counted from 0; of set_config(): its role */
	uint32		commas;
	uint32		value_start;	/* set_config(): first literal of the value */
	uint32		value_end;
	int			name_param;		/* 0: none */
	int			value_param;
	uint64		arguments;		/* format(): see PaqMaskOutcome */
} Frame;

struct PaqRules
{
	PaqMaskWork *work;
	PaqMaskText *text;
	int			depth;			/* of literals in each other */
	PaqMaskOutcome *outcome;	/* NULL: nobody wants to know */
	Statement	statement;
	bool		secret_variable;	/* its first word is the name of a secret */
	Expected	expected;
	SetState	set;
	bool		set_secret;		/* SET_VALUE: of a secret setting */
	bool		set_conninfo;	/* ... of one that is a connection string */
	char		setting[MAX_SETTING_NAME];	/* its name so far, terminated */
	uint32		setting_len;
	bool		setting_cut;	/* the rest might be that of a secret */
	PaqToken	last;			/* token before */
	Word		last_word;
	uint32		parens;
	Frame	   *frames;
	uint32		nframes;
	uint32		max_frames;
};

PaqRules *
paq_rules_begin(PaqMaskWork *work, PaqMaskText *text, int depth,
				PaqMaskOutcome *outcome)
{
	PaqRules   *rules = palloc0(sizeof(PaqRules));

	rules->work = work;
	rules->text = text;
	rules->depth = depth;
	rules->outcome = outcome;
	return rules;
}

/* ---------------------------------------------------------------------------
 * Tokens
 * ---------------------------------------------------------------------------
 */

static Word
find_word(const char *text, uint32 len)
{
	char		lower[MAX_WORD_LEN + 1];
	int			low = 1;
	int			high = lengthof(words);

	if (len > MAX_WORD_LEN)
		return WORD_NONE;
	for (uint32 i = 0; i < len; i++)
		lower[i] = pg_ascii_tolower((unsigned char) text[i]);
	lower[len] = '\0';
	while (low < high)
	{
		const int	middle = (low + high) / 2;
		const int	order = strcmp(lower, words[middle]);

		if (order == 0)
			return middle;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return WORD_NONE;
}

/* The name between its quotes, if it has any */
static void
token_name(const PaqRules *rules, const PaqToken *token, const char **name,
		   uint32 *len)
{
	*name = rules->text->data + token->start;
	*len = token->end - token->start;
	if (**name == '"' && *len >= 2)
	{
		(*name)++;
		*len -= 2;
	}
}

/* Is it a keyword or an identifier? */
static bool
is_name(const PaqRules *rules, const PaqToken *token)
{
	const char	first = rules->text->data[token->start];

	return token->code == PAQ_TOKEN_IDENT || token->code == PAQ_TOKEN_UIDENT ||
		(token->code > PAQ_TOKEN_PARAM && paq_mask_is_name_char(first));
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

static bool
is_operator(const PaqRules *rules, const PaqToken *token, const char *operator)
{
	const uint32 len = strlen(operator);

	return token->end - token->start == len &&
		memcmp(rules->text->data + token->start, operator, len) == 0;
}

/* Is the token before this one the name of a secret? */
static bool
follows_secret_name(const PaqRules *rules)
{
	const char *name;
	uint32		len;

	if (rules->last.end == 0 || !is_name(rules, &rules->last))
		return false;
	token_name(rules, &rules->last, &name, &len);
	return paq_mask_name_is_secret(name, len);
}

/* ---------------------------------------------------------------------------
 * Frames
 * ---------------------------------------------------------------------------
 */

static Frame *
top_frame(const PaqRules *rules)
{
	return rules->nframes > 0 ? &rules->frames[rules->nframes - 1] : NULL;
}

/* The innermost frame, if the token is right in it */
static Frame *
own_frame(const PaqRules *rules)
{
	Frame	   *frame = top_frame(rules);

	return frame != NULL && frame->depth == rules->parens ? frame : NULL;
}

/*
 * Is what comes now part of a secret setting's value?  A query in there is
 * not: it tells which data were read.
 */
static bool
in_secret_value(const PaqRules *rules)
{
	const Frame *frame = top_frame(rules);

	if (frame == NULL || frame->select_depth > 0)
		return false;
	return frame->inherited ||
		(frame->type == FRAME_SET_CONFIG && frame->secret &&
		 frame->argument == ARGUMENT_VALUE);
}

static void
push_frame(PaqRules *rules, FrameType type)
{
	Frame		frame = {0};

	frame.type = type;
	frame.depth = rules->parens;
	frame.inherited = in_secret_value(rules);
	if (rules->nframes == rules->max_frames)
	{
		rules->max_frames = Max(rules->max_frames * 2, 8);
		if (rules->frames == NULL)
			rules->frames = MemoryContextAllocHuge(CurrentMemoryContext,
												   rules->max_frames * sizeof(Frame));
		else
			rules->frames = repalloc_huge(rules->frames,
										  rules->max_frames * sizeof(Frame));
	}
	rules->frames[rules->nframes++] = frame;
}

/* The call of set_config() is at its end: does it take parameters? */
static void
note_rule(PaqMaskWork *work, const Frame *frame)
{
	if (!work->want_rules || frame->type != FRAME_SET_CONFIG ||
		frame->value_param == 0 ||
		(frame->name_param == 0 && !frame->secret))
		return;
	if (work->nrules == work->max_rules)
	{
		work->max_rules = Max(work->max_rules * 2, 8);
		if (work->rules == NULL)
			work->rules = MemoryContextAllocHuge(work->context,
												 work->max_rules * sizeof(PaqParamRule));
		else
			work->rules = repalloc_huge(work->rules,
										work->max_rules * sizeof(PaqParamRule));
	}
	work->rules[work->nrules].name = frame->secret ? 0 : frame->name_param;
	work->rules[work->nrules++].value = frame->value_param;
}

static void
pop_frame(PaqRules *rules)
{
	note_rule(rules->work, top_frame(rules));
	rules->nframes--;
}

static void
open_paren(PaqRules *rules)
{
	const char *name;
	uint32		len;

	rules->parens++;
	if (rules->expected == EXPECT_PAREN)
	{
		rules->expected = EXPECT_REST;
		return;
	}
	rules->expected = EXPECT_NOTHING;
	if (rules->last.end == 0 || !is_name(rules, &rules->last))
		return;
	token_name(rules, &rules->last, &name, &len);
	if (rules->last_word == WORD_SET_CONFIG)
		push_frame(rules, FRAME_SET_CONFIG);
	else if (rules->last_word == WORD_FORMAT)
		push_frame(rules, FRAME_FORMAT);
	else if (rules->last_word == WORD_OPTIONS &&
			 rules->statement == STATEMENT_FOREIGN)
		push_frame(rules, FRAME_OPTIONS);
	else if (len >= strlen(DBLINK_PREFIX) &&
			 pg_strncasecmp(name, DBLINK_PREFIX, strlen(DBLINK_PREFIX)) == 0)
		push_frame(rules, FRAME_DBLINK);
}

static void
close_paren(PaqRules *rules)
{
	Frame	   *frame = top_frame(rules);

	if (own_frame(rules) != NULL)
		pop_frame(rules);
	else if (frame != NULL && frame->select_depth == rules->parens)
		frame->select_depth = 0;
	if (rules->parens > 0)
		rules->parens--;
}

static void
comma(PaqRules *rules)
{
	Frame	   *frame = own_frame(rules);

	if (frame == NULL)
		return;
	frame->argument = ++frame->commas;
}

/* name => value, or name := value */
static void
argument_name(PaqRules *rules)
{
	Frame	   *frame = own_frame(rules);

	if (frame != NULL && frame->type == FRAME_SET_CONFIG)
	{
		if (rules->last_word == WORD_SETTING_NAME)
			frame->argument = ARGUMENT_NAME;
		else if (rules->last_word == WORD_NEW_VALUE)
			frame->argument = ARGUMENT_VALUE;
		else
			frame->argument = ARGUMENT_OTHER;
	}
	else if (rules->depth > 0 && follows_secret_name(rules))
		rules->expected = EXPECT_SECRET;
}

/* ---------------------------------------------------------------------------
 * Literals
 * ---------------------------------------------------------------------------
 */

static void
mark_literal(PaqRules *rules, uint32 start, uint32 end)
{
	PaqLiteral	literal;
	uint32		from;
	uint32		to;
	char		c;

	paq_literal_open(&literal, rules->text, start, end, rules->work->conforming);
	if (rules->outcome != NULL && paq_literal_next(&literal, &c, &from, &to))
		(void) paq_content_placeholder(rules->text, from, rules->outcome);
	(void) paq_literal_mark(rules->text, start, end, rules->work->conforming,
							PAQ_MARK_SECRET);
}

/* A literal that is, or is part of, the name of a setting */
static void
setting_literal(PaqRules *rules, Frame *frame, const PaqToken *token)
{
	char		name[MAX_NAME_LITERAL];
	uint32		len;

	if (frame->secret || token->end - token->start >= MAX_NAME_LITERAL)
		return;
	len = paq_literal_read(rules->text, token->start, token->end,
						   rules->work->conforming, name);
	if (paq_mask_setting_is_conninfo(name, len))
		frame->conninfo = true;
	if (!paq_mask_name_is_secret(name, len) && !paq_mask_setting_is_secret(name))
		return;

	/* once, however many literals the name has */
	frame->secret = true;
	if (frame->value_end > 0)
		mark_literal(rules, frame->value_start, frame->value_end);
}

/* Is the literal secret, by what is in front of it? */
static bool
is_secret(const PaqRules *rules)
{
	const Frame *frame = own_frame(rules);

	if (rules->expected == EXPECT_SECRET || rules->expected == EXPECT_REST)
		return true;
	if (rules->set == SET_VALUE && rules->set_secret)
		return true;
	/* the word that must be in front of it may be misspelt */
	if (rules->statement == STATEMENT_ROLE && rules->set == SET_NONE &&
		rules->last_word != WORD_UNTIL)
		return true;
	if (frame != NULL && frame->type == FRAME_OPTIONS && follows_secret_name(rules))
		return true;
	frame = top_frame(rules);
	if (frame != NULL && frame->type == FRAME_FORMAT &&
		frame->select_depth == 0 && frame->argument < 64 &&
		(frame->arguments & (UINT64CONST(1) << frame->argument)) != 0)
		return true;
	return in_secret_value(rules);
}

/* Must the literal be a connection string? */
static bool
is_conninfo(const PaqRules *rules)
{
	const Frame *frame = top_frame(rules);

	if (rules->expected == EXPECT_CONNINFO ||
		(rules->set == SET_VALUE && rules->set_conninfo))
		return true;
	return frame != NULL &&
		(frame->type == FRAME_DBLINK ||
		 (frame->conninfo && frame->argument == ARGUMENT_VALUE));
}

static void
literal(PaqRules *rules, const PaqToken *token)
{
	Frame	   *frame = top_frame(rules);
	PaqMaskOutcome outcome = {0};

	if (frame != NULL && frame->type == FRAME_SET_CONFIG)
	{
		if (frame->argument == ARGUMENT_NAME)
			setting_literal(rules, frame, token);
		else if (frame->argument == ARGUMENT_VALUE && frame->value_end == 0)
		{
			frame->value_start = token->start;
			frame->value_end = token->end;
		}
	}
	if (is_secret(rules))
		mark_literal(rules, token->start, token->end);
	else
		paq_scan_literal(rules->work, rules->text, token->start, token->end,
						 rules->expected == EXPECT_BODY ||
							 rules->statement == STATEMENT_DO,
						 is_conninfo(rules), rules->depth, &outcome);
	if (frame != NULL && frame->type == FRAME_FORMAT && frame->argument == 0)
		frame->arguments |= outcome.arguments;
	rules->expected = outcome.open ? EXPECT_PIPES : EXPECT_NOTHING;
}

/* A number is secret only as the value of a setting. */
static void
number(PaqRules *rules, const PaqToken *token)
{
	rules->expected = EXPECT_NOTHING;
	if ((rules->set == SET_VALUE && rules->set_secret) || in_secret_value(rules))
		paq_mask_mark(rules->text, token->start, token->end, PAQ_MARK_SECRET);
}

static void
parameter(PaqRules *rules, const PaqToken *token)
{
	Frame	   *frame = top_frame(rules);

	rules->expected = EXPECT_NOTHING;
	if (frame == NULL || frame->type != FRAME_SET_CONFIG)
		return;
	if (frame->argument == ARGUMENT_NAME && frame->name_param == 0)
		frame->name_param = token->number;
	else if (frame->argument == ARGUMENT_VALUE && frame->value_param == 0)
		frame->value_param = token->number;
}

/* ---------------------------------------------------------------------------
 * Statements
 * ---------------------------------------------------------------------------
 */

static void
end_statement(PaqRules *rules)
{
	while (rules->nframes > 0)
		pop_frame(rules);
	rules->parens = 0;
	rules->statement = STATEMENT_START;
	rules->secret_variable = false;
	rules->set = SET_NONE;
}

static void
begin_setting(PaqRules *rules)
{
	rules->set = SET_NAME;
	rules->setting[0] = '\0';
	rules->setting_len = 0;
	rules->setting_cut = false;
}

static void
add_to_setting(PaqRules *rules, const char *part, uint32 len)
{
	const uint32 room = MAX_SETTING_NAME - 1 - rules->setting_len;

	if (len > room)
	{
		rules->setting_cut = true;
		len = room;
	}
	memcpy(rules->setting + rules->setting_len, part, len);
	rules->setting_len += len;
	rules->setting[rules->setting_len] = '\0';
}

/* A part of a setting's name */
static void
setting_name(PaqRules *rules, const PaqToken *token)
{
	const char *name;
	uint32		len;

	if (rules->setting_len == 0 && (rules->last_word == WORD_SET) &&
		(find_word(rules->text->data + token->start,
				   token->end - token->start) == WORD_LOCAL ||
		 find_word(rules->text->data + token->start,
				   token->end - token->start) == WORD_SESSION))
		return;
	token_name(rules, token, &name, &len);
	add_to_setting(rules, name, len);
	rules->set = SET_OPERATOR;
}

/*
 * A token of SET name TO value, value.  Returns whether that is all that there
 * is to be said of it.
 */
static bool
set_token(PaqRules *rules, const PaqToken *token, Word word)
{
	switch (rules->set)
	{
		case SET_NONE:
			return false;
		case SET_NAME:
			if (is_name(rules, token))
			{
				setting_name(rules, token);
				return true;
			}
			break;
		case SET_OPERATOR:
			if (token->code == '.')
			{
				add_to_setting(rules, ".", 1);
				rules->set = SET_NAME;
				return true;
			}
			if (token->code == '=' || word == WORD_TO)
			{
				rules->set_secret = rules->setting_cut ||
					paq_mask_setting_is_secret(rules->setting);
				rules->set_conninfo =
					paq_mask_setting_is_conninfo(rules->setting,
												 rules->setting_len);
				rules->set = SET_VALUE;
				return true;
			}
			break;
		case SET_VALUE:
			if (is_literal(token) || is_number(token))
				return false;
			if (token->code == ',' || token->code == '-' || token->code == '+')
				return true;
			if (token->code == '%' && rules->set_secret && rules->outcome != NULL)
				(void) paq_content_placeholder(rules->text, token->start,
											   rules->outcome);
			if (is_name(rules, token) &&
				(rules->last.code == ',' || rules->last.code == '=' ||
				 rules->last_word == WORD_TO))
				return true;
			break;
	}
	rules->set = SET_NONE;
	return false;
}

/* The first words of a statement say what it is. */
static void
begin_statement(PaqRules *rules, Word word)
{
	if (rules->statement == STATEMENT_USER)
	{
		rules->statement = word == WORD_MAPPING ? STATEMENT_FOREIGN : STATEMENT_ROLE;
		return;
	}
	switch (word)
	{
		case WORD_OR:
		case WORD_REPLACE:
			return;
		case WORD_ROLE:
		case WORD_GROUP:
			rules->statement = STATEMENT_ROLE;
			break;
		case WORD_USER:
			rules->statement = STATEMENT_USER;
			break;
		case WORD_SERVER:
		case WORD_FOREIGN:
			rules->statement = STATEMENT_FOREIGN;
			break;
		case WORD_TABLE:
			/* it may be a foreign one, unless it is new */
			rules->statement = rules->last_word == WORD_ALTER ?
				STATEMENT_FOREIGN : STATEMENT_OTHER;
			break;
		case WORD_SUBSCRIPTION:
			rules->statement = STATEMENT_SUBSCRIPTION;
			break;
		case WORD_SYSTEM:
		case WORD_DATABASE:
			rules->statement = STATEMENT_SETTINGS;
			break;
		case WORD_FUNCTION:
		case WORD_PROCEDURE:
		case WORD_ROUTINE:
			rules->statement = STATEMENT_FUNCTION;
			break;
		default:
			rules->statement = STATEMENT_OTHER;
			break;
	}
}

/* The first word of a statement */
static void
first_word(PaqRules *rules, const PaqToken *token, Word word)
{
	const char *name;
	uint32		len;

	switch (word)
	{
		case WORD_CREATE:
		case WORD_ALTER:
		case WORD_IMPORT:
			rules->statement = STATEMENT_OBJECT;
			return;
		case WORD_DO:
			rules->statement = STATEMENT_DO;
			return;
		case WORD_SET:
			rules->statement = STATEMENT_OTHER;
			begin_setting(rules);
			return;
		default:
			rules->statement = STATEMENT_OTHER;
			if (rules->depth == 0)
				return;
			token_name(rules, token, &name, &len);
			rules->secret_variable = paq_mask_name_is_secret(name, len);
	}
}

/*
 * Does a statement begin behind the word, in PL/pgSQL?  That is in a literal; in
 * SQL these may be names, or within an expression.
 */
static bool
begins_block(const PaqRules *rules, Word word)
{
	return rules->depth > 0 &&
		(word == WORD_BEGIN || word == WORD_DECLARE || word == WORD_ELSE ||
		 word == WORD_LOOP || word == WORD_THEN);
}

static void
name(PaqRules *rules, const PaqToken *token, Word word)
{
	const bool	begins = begins_block(rules, word);
	Frame	   *frame = top_frame(rules);

	rules->expected = EXPECT_NOTHING;
	if (frame != NULL && frame->select_depth == 0 &&
		(word == WORD_SELECT || word == WORD_VALUES || word == WORD_WITH ||
		 word == WORD_TABLE))
		frame->select_depth = rules->parens;
	if (begins && rules->statement == STATEMENT_OTHER)
	{
		rules->statement = STATEMENT_START;
		rules->secret_variable = false;
	}
	if (rules->statement == STATEMENT_START)
	{
		if (!begins)
			first_word(rules, token, word);
	}
	else if (rules->statement < STATEMENT_ROLE)
		begin_statement(rules, word);
	else if (word == WORD_SET && rules->parens == 0 &&
			 (rules->statement == STATEMENT_ROLE ||
			  rules->statement == STATEMENT_SETTINGS ||
			  rules->statement == STATEMENT_FUNCTION))
	{
		begin_setting(rules);
	}
	else if (word == WORD_PASSWORD && rules->statement == STATEMENT_ROLE)
		rules->expected = EXPECT_SECRET;
	else if (word == WORD_CONNECTION &&
			 rules->statement == STATEMENT_SUBSCRIPTION)
		rules->expected = EXPECT_CONNINFO;
	else if (word == WORD_AS && rules->statement == STATEMENT_FUNCTION)
		rules->expected = EXPECT_BODY;
	else if (word == WORD_DEFAULT && rules->secret_variable)
		rules->expected = EXPECT_SECRET;
}

/* An operator, or another single character */
static void
operator(PaqRules *rules, const PaqToken *token)
{
	const Expected before = rules->expected;

	if (token->code == '(')
	{
		open_paren(rules);
		return;
	}
	rules->expected = EXPECT_NOTHING;
	if (token->code == ')')
		close_paren(rules);
	else if (token->code == ',')
		comma(rules);
	else if (token->code == ';')
		end_statement(rules);
	else if (token->code == '%')
	{
		if (rules->outcome != NULL &&
			(before == EXPECT_SECRET ||
			 (own_frame(rules) != NULL &&
			  own_frame(rules)->type == FRAME_OPTIONS &&
			  follows_secret_name(rules))))
			(void) paq_content_placeholder(rules->text, token->start,
										   rules->outcome);
	}
	else if (before == EXPECT_PIPES && is_operator(rules, token, "||"))
		rules->expected = EXPECT_REST;
	else if (is_operator(rules, token, "=>") || is_operator(rules, token, ":="))
	{
		argument_name(rules);
		if (rules->secret_variable)
			rules->expected = EXPECT_SECRET;
	}
	else if (token->code == '=' && rules->secret_variable &&
			 rules->last.end > 0 && is_name(rules, &rules->last))
		rules->expected = EXPECT_SECRET;
}

/*
 * In a literal, a delimited identifier may be a string of another language than
 * SQL.
 */
static void
quoted_name(PaqRules *rules, const PaqToken *token)
{
	PaqMaskOutcome ignored = {0};

	name(rules, token, WORD_NONE);
	paq_scan_literal(rules->work, rules->text, token->start, token->end, false,
					 false, rules->depth, &ignored);
}

/* Is it the N of N'...', which is a token of its own? */
static bool
is_prefix(const PaqRules *rules, const PaqToken *token)
{
	const char *data = rules->text->data;

	return token->end - token->start == 1 && token->end < rules->text->len &&
		(data[token->start] == 'n' || data[token->start] == 'N') &&
		data[token->end] == '\'';
}

/* The next token of the text */
void
paq_rules_token(PaqRules *rules, const PaqToken *token)
{
	Word		word = WORD_NONE;
	const bool	named = is_name(rules, token);

	if (is_prefix(rules, token))
		return;
	if (named)
		word = find_word(rules->text->data + token->start,
						 token->end - token->start);
	else if (rules->statement > STATEMENT_START &&
			 rules->statement < STATEMENT_ROLE)
		rules->statement = STATEMENT_OTHER; /* what it is about must follow at once */
	if (set_token(rules, token, word))
		rules->expected = EXPECT_NOTHING;
	else if (is_literal(token))
		literal(rules, token);
	else if (is_number(token))
		number(rules, token);
	else if (token->code == PAQ_TOKEN_PARAM)
		parameter(rules, token);
	else if (named && rules->expected == EXPECT_REST &&
			 (word == WORD_QUOTE_LITERAL || word == WORD_QUOTE_NULLABLE))
		rules->expected = EXPECT_PAREN;
	else if (named && rules->depth > 0 && rules->text->data[token->start] == '"')
		quoted_name(rules, token);
	else if (named)
		name(rules, token, word);
	else
		operator(rules, token);
	rules->last = *token;
	rules->last_word = word;
}

/* Must a secret come now? */
static bool
wants_secret(const PaqRules *rules)
{
	const Frame *frame = own_frame(rules);

	return rules->expected == EXPECT_SECRET ||
		(rules->set == SET_VALUE && rules->set_secret &&
		 (rules->last.code == '=' || rules->last_word == WORD_TO)) ||
		(frame != NULL && frame->type == FRAME_OPTIONS &&
		 follows_secret_name(rules)) ||
		(frame != NULL && frame->type == FRAME_SET_CONFIG &&
		 in_secret_value(rules) && frame->value_end == 0);
}

/*
 * The text ends, or at pos the scanner has given up.  A literal without an end
 * may begin there.
 */
void
paq_rules_end(PaqRules *rules, uint32 pos)
{
	const bool	open = wants_secret(rules);
	PaqMaskOutcome ignored = {0};
	PaqToken	token;

	if (rules->outcome != NULL && open)
		rules->outcome->open = true;
	while (rules->nframes > 0)
		pop_frame(rules);
	if (rules->depth == 0 || pos == rules->text->len)
		return;
	paq_content_uris(rules->text, pos, &ignored);
	if (open && paq_plain_next(rules->text, &pos, rules->work->conforming, &token) &&
		token.code == PAQ_TOKEN_SCONST)
		(void) paq_literal_mark(rules->text, token.start, token.end,
								rules->work->conforming, PAQ_MARK_SECRET);
}
