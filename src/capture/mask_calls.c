/*-------------------------------------------------------------------------
 *
 * mask_calls.c
 *		Calls of functions whose arguments are secret: set_config(), and the
 *		family of dblink().
 *
 * A call is a name with a parenthesis behind it, in any statement; whether it
 * was parsed makes no difference.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/mask_internal.h"

#define DBLINK_PREFIX	"dblink"

/* The tokens of an argument of a call: from first up to the one before end */
typedef struct Argument
{
	int			first;
	int			end;
} Argument;

/*
 * Calls can be inside of each other, and then the tokens of the inner ones are
 * looked at many times.  A text in which that is done more often, on average,
 * has been made for it, and is not shown.
 */
#define MAX_VISITS		100

/* The arguments of set_config() that matter; empty if not there */
typedef struct SetConfig
{
	Argument	name;
	Argument	value;
} SetConfig;

/* Is there a call of a function at token i, and is that its name? */
static bool
is_call(const PaqView *view, const PaqTokens *tokens, int i, const char *name,
		bool is_prefix)
{
	const PaqToken *token = &tokens->items[i];
	uint32		start = token->start;
	uint32		len = token->end - token->start;

	if (i + 1 >= tokens->count ||
		!paq_mask_is_punct(view, &tokens->items[i + 1], '('))
		return false;
	if (token->kind == PAQ_TOKEN_QUOTED)
	{
		start = token->body;
		len = token->body_end - token->body;
	}
	else if (token->kind != PAQ_TOKEN_WORD)
		return false;
	return (is_prefix ? len >= strlen(name) : len == strlen(name)) &&
		pg_strncasecmp(view->data + start, name, strlen(name)) == 0;
}

/* The end of the argument that begins at token i. */
static int
argument_end(const PaqView *view, const PaqTokens *tokens, int i)
{
	int			parens = 0;

	for (; i < tokens->count; i++)
	{
		const PaqToken *token = &tokens->items[i];

		if (paq_mask_is_punct(view, token, '('))
			parens++;
		else if (paq_mask_is_punct(view, token, ')') && parens-- == 0)
			break;
		else if (paq_mask_is_punct(view, token, ',') && parens == 0)
			break;
	}
	return i;
}

/* Does the argument begin with "name =>" or "name :="? */
static bool
has_argument_name(const PaqView *view, const PaqTokens *tokens,
				  const Argument *argument, const char *name)
{
	const PaqToken *items = tokens->items + argument->first;

	return argument->end - argument->first > 3 &&
		paq_mask_is_word(view, &items[0], name) &&
		((paq_mask_is_punct(view, &items[1], '=') &&
		  paq_mask_is_punct(view, &items[2], '>')) ||
		 (paq_mask_is_punct(view, &items[1], ':') &&
		  paq_mask_is_punct(view, &items[2], '=')));
}

/*
 * The arguments of the call of set_config() at token i.  *visits is the number
 * of tokens looked at for that, in all calls of the text.
 */
static SetConfig
read_set_config(PaqMaskWork *work, const PaqView *view,
				const PaqTokens *tokens, int i, uint64 *visits)
{
	SetConfig	call = {{0, 0}, {0, 0}};

	if (*visits > (uint64) tokens->count * MAX_VISITS)
	{
		work->failed = true;
		return call;
	}
	i += 2;
	for (int n = 0; n < 3 && i < tokens->count; n++)
	{
		Argument	argument = {i, argument_end(view, tokens, i)};

		if (has_argument_name(view, tokens, &argument, "setting_name"))
			call.name = argument;
		else if (has_argument_name(view, tokens, &argument, "new_value"))
			call.value = argument;
		else if (n == 0)
			call.name = argument;
		else if (n == 1)
			call.value = argument;
		*visits += argument.end - argument.first;
		i = argument.end + 1;
		if (argument.end >= tokens->count ||
			!paq_mask_is_punct(view, &tokens->items[argument.end], ','))
			break;
	}
	return call;
}

/* What a literal that is the name of a setting, or part of it, says */
static PaqSettingKind
literal_kind(PaqMaskWork *work, const PaqView *view, const PaqToken *token)
{
	PaqView		content;

	if (!paq_mask_decode(work, view, token, &content))
		return PAQ_SETTING_SECRET;
	if (paq_mask_name_is_secret(content.data, content.len))
		return PAQ_SETTING_SECRET;
	return paq_mask_setting_kind(content.data, content.len);
}

/* What setting is it? */
static PaqSettingKind
name_kind(PaqMaskWork *work, const PaqView *view, const PaqTokens *tokens,
		  const Argument *name)
{
	for (int i = name->first; i < name->end; i++)
	{
		const PaqToken *token = &tokens->items[i];
		PaqSettingKind kind = PAQ_SETTING_PLAIN;

		if (token->kind == PAQ_TOKEN_STRING)
			kind = literal_kind(work, view, token);
		if (kind != PAQ_SETTING_PLAIN)
			return kind;
	}
	return PAQ_SETTING_PLAIN;
}

static void
mask_set_config(PaqMaskWork *work, const PaqView *view, PaqTokens *tokens,
				int i, uint64 *visits)
{
	SetConfig	call = read_set_config(work, view, tokens, i, visits);
	PaqSettingKind kind = name_kind(work, view, tokens, &call.name);

	if (kind == PAQ_SETTING_PLAIN)
		return;
	for (i = call.value.first; i < call.value.end; i++)
	{
		PaqToken   *token = &tokens->items[i];

		if (token->hint == PAQ_HINT_DONE)
			continue;
		if (kind == PAQ_SETTING_CONNINFO)
			token->hint = PAQ_HINT_CONNINFO;
		else if (token->kind == PAQ_TOKEN_STRING ||
				 token->kind == PAQ_TOKEN_NUMBER)
			paq_mask_token(work, view, token);
	}
}

/* Mask, or mark, the arguments of such calls. */
void
paq_mask_calls(PaqMaskWork *work, const PaqView *view, PaqTokens *tokens)
{
	int			parens = 0;
	int			dblink_parens = -1; /* those around the outermost call */
	uint64		visits = 0;

	for (int i = 0; i < tokens->count; i++)
	{
		PaqToken   *token = &tokens->items[i];

		if (paq_mask_is_punct(view, token, '('))
			parens++;
		else if (paq_mask_is_punct(view, token, ')') &&
				 --parens <= dblink_parens)
			dblink_parens = -1;
		else if (token->kind == PAQ_TOKEN_STRING)
		{
			if (dblink_parens >= 0 && token->hint == PAQ_HINT_NONE)
				token->hint = PAQ_HINT_CONNINFO;
		}
		else if (is_call(view, tokens, i, "set_config", false))
			mask_set_config(work, view, tokens, i, &visits);
		else if (dblink_parens < 0 &&
				 is_call(view, tokens, i, DBLINK_PREFIX, true))
			dblink_parens = Max(parens, 0);
	}
}

/* The number of the first parameter in the argument, 0 if there is none. */
static int
argument_param(const PaqView *view, const PaqTokens *tokens,
			   const Argument *argument)
{
	for (int i = argument->first; i < argument->end; i++)
	{
		const PaqToken *token = &tokens->items[i];
		int			number = 0;

		if (token->kind != PAQ_TOKEN_PARAM)
			continue;
		for (uint32 k = token->start + 1; k < token->end; k++)
		{
			char		c = view->data[k];

			if (c < '0' || c > '9' || number > PG_UINT16_MAX)
				break;
			number = number * 10 + c - '0';
		}
		return number;
	}
	return 0;
}

/*
 * Which parameters does the statement make values of settings that are, or
 * may be, secret?  Returns how many there are, no more than max_rules of which
 * are in rules.
 */
int
paq_mask_param_rules(PaqMaskWork *work, const PaqView *view,
					 PaqParamRule *rules, int max_rules)
{
	PaqTokens	tokens;
	uint64		visits = 0;
	int			count = 0;

	if (!paq_mask_lex(work, view, &tokens))
		return 0;
	for (int i = 0; i < tokens.count; i++)
	{
		SetConfig	call;
		PaqParamRule rule;
		bool		secret;

		if (!is_call(view, &tokens, i, "set_config", false))
			continue;
		call = read_set_config(work, view, &tokens, i, &visits);
		secret = name_kind(work, view, &tokens, &call.name) == PAQ_SETTING_SECRET;
		rule.name = secret ? 0 : argument_param(view, &tokens, &call.name);
		rule.value = argument_param(view, &tokens, &call.value);
		if (rule.value == 0 || (!secret && rule.name == 0))
			continue;
		if (count < max_rules)
			rules[count] = rule;
		count++;
	}
	return count;
}
