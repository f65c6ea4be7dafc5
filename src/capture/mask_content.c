/*-------------------------------------------------------------------------
 *
 * mask_content.c
 *		Secrets in texts that are not SQL: connection strings, addresses with
 *		a password, environments of commands, verifiers of passwords.
 *
 * These are recognized by their form, wherever they stand, so a form that
 * ordinary data can have must not be taken for one of them: a connection
 * string consists of nothing but names with values.
 *
 * Must not raise, nor read behind the end of a view.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/mask_internal.h"

#define SPACES			" \t\n\r\f\v"

#define VERIFIER_PREFIX	"SCRAM-SHA-256$"

/* format() specifications further on in a text are not counted. */
#define MAX_FORMAT_LEN	10000

/* Text without a space, with addresses in it; positions are those of the view */
typedef struct UriRun
{
	uint32		end;
	uint32		last_at;		/* the last "@"; 0 if there is none */
	bool		params_masked;	/* from the first "?" on */
} UriRun;

static inline bool
is_name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || paq_mask_is_digit(c) ||
		c == '_';
}

static inline bool
is_quote(char c)
{
	return c == '\'' || c == '"' || c == '`';
}

/* The first position from pos on that has no space; the view's end if none. */
static uint32
skip_space(const PaqView *view, uint32 pos)
{
	while (pos < view->len && paq_mask_is_space(view->data[pos]))
		pos++;
	return pos;
}

static uint32
skip_name(const PaqView *view, uint32 pos)
{
	while (pos < view->len && is_name_char(view->data[pos]))
		pos++;
	return pos;
}

/* The first of the characters in a range; its end if none is there. */
static uint32
find_first(const PaqView *view, uint32 pos, uint32 end, const char *chars)
{
	while (pos < end &&
		   (view->data[pos] == '\0' || strchr(chars, view->data[pos]) == NULL))
		pos++;
	return pos;
}

/* The last place of the character in a range; its end if it is not there. */
static uint32
find_last(const PaqView *view, uint32 pos, uint32 end, char c)
{
	for (uint32 i = end; i > pos; i--)
	{
		if (view->data[i - 1] == c)
			return i - 1;
	}
	return end;
}

/*
 * If a format() specification is at pos, note in the outcome which of the
 * arguments it stands for.
 */
bool
paq_mask_placeholder(const PaqView *view, uint32 pos, PaqMaskOutcome *outcome)
{
	int			argument = 0;
	uint32		i = 0;

	if (pos >= view->len || view->data[pos] != '%')
		return false;
	if (pos > MAX_FORMAT_LEN)
		return true;

	/* Each specification takes the argument behind the one before. */
	while (i <= pos)
	{
		uint32		number_end = i + 1;

		if (view->data[i] != '%')
		{
			i++;
			continue;
		}
		if (number_end < view->len && view->data[number_end] == '%')
		{
			i += 2;
			continue;
		}
		argument++;
		while (number_end < view->len && paq_mask_is_digit(view->data[number_end]))
			number_end++;
		if (number_end > i + 1 && number_end < view->len &&
			view->data[number_end] == '$')
		{
			argument = 0;
			for (uint32 k = i + 1; k < number_end; k++)
				argument = Min(argument * 10 + view->data[k] - '0', 64);
		}
		i = number_end;
	}
	if (argument >= 1 && argument < 64)
		outcome->arguments |= UINT64CONST(1) << argument;
	return true;
}

/*
 * Mask a value; see what it says of the expression around.  An error's message
 * may quote each word of it.
 */
static void
mask_value(PaqMaskWork *work, const PaqView *view, uint32 start, uint32 end,
		   PaqMaskOutcome *outcome)
{
	paq_mask_placeholder(view, start, outcome);
	paq_mask_range(work, view, start, end);
	while (work->want_secrets && start < end)
	{
		uint32		word_end = find_first(view, start, end, SPACES "'\\");

		paq_mask_secret(work, view->data + start, word_end - start);
		start = word_end + 1;
	}
}

/* In front of the "://" at pos: where does the scheme begin?  pos if nowhere. */
static uint32
scheme_start(const PaqView *view, uint32 pos)
{
	uint32		start = pos;

	while (start > 0 &&
		   (is_name_char(view->data[start - 1]) ||
			view->data[start - 1] == '+' || view->data[start - 1] == '-' ||
			view->data[start - 1] == '.'))
		start--;
	return start;
}

/* Values of the parameters of addresses, given from behind the first "?". */
static void
mask_uri_params(PaqMaskWork *work, const PaqView *view, uint32 pos, uint32 end,
				PaqMaskOutcome *outcome)
{
	while (pos < end)
	{
		uint32		param_end = find_first(view, pos, end, "&;#?");
		uint32		equals = find_first(view, pos, param_end, "=");

		if (equals < param_end &&
			paq_mask_name_is_secret(view->data + pos, equals - pos))
		{
			outcome->open |= equals + 1 == view->len;
			mask_value(work, view, equals + 1, param_end, outcome);
		}
		pos = param_end + 1;
	}
}

/* Is this a port, or the first of several hosts' ports? */
static bool
is_port(const PaqView *view, uint32 pos, uint32 end)
{
	while (pos < end && paq_mask_is_digit(view->data[pos]))
		pos++;
	return pos == end || view->data[pos] == ',';
}

/*
 * user:password@ behind the "://".  A password may have a slash in it by
 * mistake; what stands there otherwise, in front of one, is a port.
 */
static void
mask_credentials(PaqMaskWork *work, const PaqView *view, uint32 start,
				 const UriRun *run, PaqMaskOutcome *outcome)
{
	uint32		authority_end = find_first(view, start, run->end, "/?#");
	uint32		at = find_last(view, start, authority_end, '@');
	uint32		colon = find_first(view, start, authority_end, ":");

	if (colon == authority_end || view->data[start] == '[')
		return;
	if (at == authority_end && !is_port(view, colon + 1, authority_end) &&
		run->last_at > colon)
		at = run->last_at;
	if (at != authority_end && colon < at)
		mask_value(work, view, colon + 1, at, outcome);
	if (at == authority_end && colon + 1 == view->len)
		outcome->open = true;
}

/*
 * At an address that begins at start: what is there, up to where such a thing
 * can end.  One that is the whole view may have spaces and quotes in it, as
 * libpq takes them.
 */
static void
begin_run(const PaqView *view, uint32 start, UriRun *run)
{
	if (skip_space(view, 0) == start)
		run->end = view->len;
	else
		run->end = find_first(view, start, view->len, SPACES "'\"`");
	run->last_at = find_last(view, start, run->end, '@');
	if (run->last_at == run->end)
		run->last_at = 0;
	run->params_masked = false;
}

/* Addresses of the form scheme://user:password@host/path?name=value. */
void
paq_mask_uris(PaqMaskWork *work, const PaqView *view, PaqMaskOutcome *outcome)
{
	UriRun		run = {0, 0, false};
	uint32		pos = 0;

	while (pos + 3 <= view->len)
	{
		const char *colon = memchr(view->data + pos, ':', view->len - pos - 2);
		uint32		scheme;

		if (colon == NULL)
			break;
		pos = colon - view->data + 1;
		if (colon[1] != '/' || colon[2] != '/')
			continue;
		scheme = scheme_start(view, pos - 1);
		if (scheme == pos - 1)
			continue;
		pos += 2;
		if (pos >= run.end)
			begin_run(view, scheme, &run);
		if (pos < run.end)
			mask_credentials(work, view, pos, &run, outcome);
		if (!run.params_masked)
		{
			mask_uri_params(work, view, find_first(view, pos, run.end, "?") + 1,
							run.end, outcome);
			run.params_masked = true;
		}
	}
}

/*
 * The end of a value of a connection string that begins at pos: in single
 * quotes, or up to a space; a backslash takes the next character along.
 */
static uint32
conninfo_value_end(const PaqView *view, uint32 pos)
{
	const bool	quoted = pos < view->len && view->data[pos] == '\'';

	if (quoted)
		pos++;
	for (; pos < view->len; pos++)
	{
		char		c = view->data[pos];

		if (c == '\\')
			pos++;
		else if (quoted && c == '\'')
			return pos + 1;
		else if (!quoted && paq_mask_is_space(c))
			return pos;
	}
	return view->len;
}

/* "name =" at pos?  Then *name_end is that, and *value where its value is. */
static bool
conninfo_name(const PaqView *view, uint32 pos, uint32 *name_end, uint32 *value)
{
	uint32		equals;

	*name_end = skip_name(view, pos);
	equals = skip_space(view, *name_end);
	if (*name_end == pos || equals >= view->len || view->data[equals] != '=')
		return false;
	*value = skip_space(view, equals + 1);
	return true;
}

/*
 * Is the view a connection string, or part of one, with a secret?  If it is
 * expected to be one, or has at least a keyword beside the secret, the rest
 * may have mistakes.
 */
static bool
is_conninfo(const PaqView *view, bool expected)
{
	uint32		pos = skip_space(view, 0);
	bool		known = false;
	bool		secret = false;

	while (pos < view->len)
	{
		uint32		name_end;
		uint32		value;

		if (!conninfo_name(view, pos, &name_end, &value))
			return expected ? pos > skip_space(view, 0) : known && secret;
		if (paq_mask_name_is_secret(view->data + pos, name_end - pos))
			secret = true;
		else if (paq_mask_name_is_conninfo(view->data + pos, name_end - pos))
			known = true;
		pos = skip_space(view, conninfo_value_end(view, value));
	}
	return secret || expected;
}

/*
 * The end of a secret value.  What follows and is not a name with a value is
 * part of the value, whose quotes were forgotten.
 */
static uint32
secret_value_end(const PaqView *view, uint32 pos)
{
	uint32		end = conninfo_value_end(view, pos);

	for (;;)
	{
		uint32		next = skip_space(view, end);
		uint32		name_end;
		uint32		value;

		if (next >= view->len || conninfo_name(view, next, &name_end, &value))
			return end;
		end = next;
		while (end < view->len && !paq_mask_is_space(view->data[end]))
			end++;
	}
}

/*
 * Mask the secret values of a connection string.  Returns whether the view is
 * one; if that is expected, it may have more mistakes.
 */
bool
paq_mask_conninfo(PaqMaskWork *work, const PaqView *view, bool expected,
				  PaqMaskOutcome *outcome)
{
	uint32		pos = 0;

	if (!is_conninfo(view, expected))
		return false;
	while (pos < view->len)
	{
		uint32		name_end;
		uint32		value;

		if (!is_name_char(view->data[pos]))
			pos++;
		else if (!conninfo_name(view, pos, &name_end, &value))
			pos = name_end;
		else if (!paq_mask_name_is_secret(view->data + pos, name_end - pos))
			pos = Max(conninfo_value_end(view, value), name_end);
		else
		{
			outcome->open |= value == view->len;
			pos = secret_value_end(view, value);
			mask_value(work, view, value, pos, outcome);
		}
	}
	return true;
}

/* The end of what a shell takes as one word, from pos on. */
static uint32
shell_word_end(const PaqView *view, uint32 pos)
{
	if (pos < view->len && is_quote(view->data[pos]))
	{
		const char	quote[2] = {view->data[pos], '\0'};

		return Min(find_first(view, pos + 1, view->len, quote) + 1, view->len);
	}
	return find_first(view, pos, view->len, SPACES ";&|");
}

/* NAME=value with a name in capitals, as commands get their environment. */
void
paq_mask_assignments(PaqMaskWork *work, const PaqView *view)
{
	for (uint32 pos = 0; pos < view->len; pos++)
	{
		uint32		start = pos;
		bool		capitals = true;

		if (!is_name_char(view->data[pos]))
			continue;
		pos = skip_name(view, pos);
		for (uint32 i = start; i < pos; i++)
			capitals &= view->data[i] < 'a' || view->data[i] > 'z';
		if (capitals && pos < view->len && view->data[pos] == '=' &&
			paq_mask_name_is_secret(view->data + start, pos - start))
		{
			start = pos + 1;
			pos = shell_word_end(view, start);
			paq_mask_range(work, view, start, pos);
		}
	}
}

/* What pg_authid has instead of passwords. */
void
paq_mask_verifiers(PaqMaskWork *work, const PaqView *view)
{
	const uint32 prefix_len = strlen(VERIFIER_PREFIX);

	for (uint32 pos = 0; pos + prefix_len <= view->len; pos++)
	{
		uint32		start = pos;

		if (pg_strncasecmp(view->data + pos, VERIFIER_PREFIX, prefix_len) != 0)
			continue;
		pos += prefix_len;
		while (pos < view->len &&
			   (is_name_char(view->data[pos]) ||
				strchr("+/=:$", view->data[pos]) != NULL))
			pos++;
		paq_mask_range(work, view, start, pos);
	}
}

/*
 * The position behind the quoted text that begins at pos.  If it is part of
 * another quoted text, its quotes have a backslash.
 */
static uint32
quoted_end(const PaqView *view, uint32 pos)
{
	const char	quote = view->data[pos];
	const bool	escaped = pos > 0 && view->data[pos - 1] == '\\';

	for (pos++; pos < view->len; pos++)
	{
		const bool	is_last = pos + 1 >= view->len;

		if (view->data[pos] == '\\')
		{
			if (escaped && !is_last && view->data[pos + 1] == quote)
				return pos + 2;
			pos++;
		}
		else if (view->data[pos] == quote)
		{
			/* doubled, or the end */
			if (is_last || view->data[pos + 1] != quote)
				return pos + 1;
			pos++;
		}
	}
	return view->len;
}

/*
 * Behind the name of a secret, which begins at start and ends at pos: the
 * value that it is given, if it is: quoted, or at once behind an equals sign.
 * Returns the position behind it.
 */
static uint32
mask_prose_value(PaqMaskWork *work, const PaqView *view, uint32 start,
				 uint32 pos)
{
	bool		spaced;
	uint32		value;
	uint32		sign;

	/* the name may be quoted itself */
	if (pos < view->len && start > 0 && is_quote(view->data[pos]) &&
		view->data[start - 1] == view->data[pos])
		pos++;
	sign = skip_space(view, pos);
	spaced = sign > pos && pos == skip_name(view, start);
	value = sign;
	while (value < view->len && strchr(":=>", view->data[value]) != NULL)
		value++;
	if (value < view->len && value > sign && view->data[value - 1] == '=' &&
		strchr(SPACES "'\"`\\", view->data[value]) == NULL)
	{
		uint32		end = find_first(view, value, view->len, SPACES "'\"`);,");

		paq_mask_range(work, view, value, end);
		return end;
	}
	if (!spaced && value == sign)
		return pos;
	value = skip_space(view, value);
	while (value < view->len && view->data[value] == '\\')
		value++;
	if (value >= view->len || !is_quote(view->data[value]))
		return pos;
	pos = quoted_end(view, value);
	paq_mask_range(work, view, value, pos);
	paq_mask_secret(work, view->data + value + 1, Max(pos - value, 2) - 2);
	return pos;
}

/*
 * A text of no known language - a message, a function's body in Python - with
 * names of secrets in front of what looks like their values.
 */
void
paq_mask_prose(PaqMaskWork *work, const PaqView *view)
{
	PaqMaskOutcome outcome = {0};
	uint32		pos = 0;

	paq_mask_uris(work, view, &outcome);
	paq_mask_assignments(work, view);
	paq_mask_verifiers(work, view);
	while (pos < view->len)
	{
		uint32		start = pos;

		pos = skip_name(view, pos);
		if (pos == start)
			pos++;
		else if (paq_mask_name_is_secret(view->data + start, pos - start))
			pos = mask_prose_value(work, view, start, pos);
	}
}
