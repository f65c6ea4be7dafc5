/*-------------------------------------------------------------------------
 *
 * content.c
 *		Secrets in literals that are not SQL: connection strings, addresses
 *		with a password, environments of commands, verifiers of passwords.
 *
 * These are recognized by their form, whatever statement they are in, so the
 * form is that of the program that reads them, and strict: a connection string
 * consists of nothing but libpq's keywords with values, from its first byte to
 * its last.  Where a statement says that it must be one, it may have mistakes.
 *
 * Must not raise, nor allocate.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

#define VERIFIER_PREFIX	"SCRAM-SHA-256$"

static inline bool
is_quote(char c)
{
	return c == '\'' || c == '"' || c == '`';
}

/* Can it be part of a keyword, or of the name of a variable? */
static inline bool
is_key_char(char c)
{
	return paq_mask_is_name_char(c) && !IS_HIGHBIT_SET(c);
}

static uint32
skip_space(const PaqMaskText *text, uint32 pos)
{
	while (pos < text->len && paq_mask_is_space(text->data[pos]))
		pos++;
	return pos;
}

static uint32
skip_key(const PaqMaskText *text, uint32 pos)
{
	while (pos < text->len && is_key_char(text->data[pos]))
		pos++;
	return pos;
}

/*
 * If a specification of format() is at pos, note which of the arguments it
 * stands for.  The outcome remembers how far they were counted, so that
 * counting all of them is one pass.
 */
bool
paq_content_placeholder(const PaqMaskText *text, uint32 pos,
						PaqMaskOutcome *outcome)
{
	if (pos >= text->len || text->data[pos] != '%')
		return false;
	if (pos < outcome->counted)
		outcome->counted = outcome->argument = 0;
	while (outcome->counted <= pos)
	{
		uint32		end = outcome->counted + 1;
		int			number = 0;

		if (text->data[outcome->counted] != '%')
		{
			outcome->counted++;
			continue;
		}
		while (end < text->len && paq_mask_is_digit(text->data[end]))
		{
			number = Min(number * 10 + text->data[end] - '0', 64);
			end++;
		}
		if (end < text->len && text->data[end] == '$')
			outcome->argument = number;
		else if (end >= text->len || text->data[end] != '%')
			outcome->argument++;
		else
			end++;
		outcome->counted = end;
	}
	if (outcome->argument >= 1 && outcome->argument < 64)
		outcome->arguments |= UINT64CONST(1) << outcome->argument;
	return true;
}

/* A secret value; where it is empty at the end, the next literal has it. */
static void
mark_value(PaqMaskText *text, uint32 start, uint32 end,
		   PaqMaskOutcome *outcome)
{
	(void) paq_content_placeholder(text, start, outcome);
	paq_mask_mark(text, start, end, PAQ_MARK_SECRET);
	if (start == text->len)
		outcome->open = true;
}

/* Behind what belongs to an address: a delimiter that it does not have */
static inline bool
ends_address(char c)
{
	return paq_mask_is_space(c) || is_quote(c);
}

/* Behind "://": user:password@host.  Returns where the path begins. */
static uint32
find_credentials(PaqMaskText *text, uint32 start, PaqMaskOutcome *outcome)
{
	uint32		colon = 0;
	uint32		at = 0;
	uint32		pos;

	for (pos = start; pos < text->len; pos++)
	{
		const char	c = text->data[pos];

		if (ends_address(c) || c == '/' || c == '?' || c == '#')
			break;
		if (c == ':' && colon == 0)
			colon = pos;
		if (c == '@')
			at = pos;
	}
	if (colon == 0 || text->data[start] == '[')
		return pos;
	if (at > colon)
		mark_value(text, colon + 1, at, outcome);
	else if (colon + 1 == text->len)
		outcome->open = true;
	return pos;
}

/* Behind "?" or "&" in an address: name=value.  Returns where that ends. */
static uint32
find_address_param(PaqMaskText *text, uint32 pos, PaqMaskOutcome *outcome)
{
	const uint32 name = pos;
	uint32		value;

	pos = skip_key(text, pos);
	if (pos == text->len || text->data[pos] != '=' ||
		!paq_mask_name_is_secret(text->data + name, pos - name))
		return pos;
	value = ++pos;
	while (pos < text->len && !ends_address(text->data[pos]) &&
		   strchr("&;#", text->data[pos]) == NULL)
		pos++;
	mark_value(text, value, pos, outcome);
	return pos;
}

/* Addresses, scheme://user:password@host/path?name=value, from pos on */
void
paq_content_uris(PaqMaskText *text, uint32 pos, PaqMaskOutcome *outcome)
{
	bool		inside = false;

	while (pos < text->len)
	{
		const char	c = text->data[pos];

		if (ends_address(c))
			inside = false;
		if (c == ':' && pos > 0 && pos + 3 <= text->len &&
			text->data[pos + 1] == '/' && text->data[pos + 2] == '/' &&
			is_key_char(text->data[pos - 1]))
		{
			inside = true;
			pos = find_credentials(text, pos + 3, outcome);
		}
		else if (inside && (c == '?' || c == '&'))
			pos = find_address_param(text, pos + 1, outcome);
		else
			pos++;
	}
}

/*
 * What is an address of libpq's from its first byte on: all from the first ":" to
 * the last "@" in front of the path is a password for libpq, spaces as well.
 */
static void
find_libpq_address(PaqMaskText *text, PaqMaskOutcome *outcome)
{
	static const char *const schemes[] = {"postgresql://", "postgres://"};
	uint32		colon = 0;
	uint32		at = 0;

	for (int i = 0; i < lengthof(schemes); i++)
	{
		const uint32 len = strlen(schemes[i]);

		if (text->len <= len || memcmp(text->data, schemes[i], len) != 0)
			continue;
		for (uint32 pos = len; pos < text->len && text->data[pos] != '/'; pos++)
		{
			if (text->data[pos] == ':' && colon == 0)
				colon = pos;
			else if (text->data[pos] == '@')
				at = pos;
		}
	}
	if (colon > 0 && at > colon)
		mark_value(text, colon + 1, at, outcome);
}

/*
 * The end of a value of a connection string that begins at pos: in single
 * quotes, or up to a space; a backslash takes the next character along.
 */
static uint32
conninfo_value_end(const PaqMaskText *text, uint32 pos)
{
	const bool	quoted = pos < text->len && text->data[pos] == '\'';

	if (quoted)
		pos++;
	for (; pos < text->len; pos++)
	{
		const char	c = text->data[pos];

		if (c == '\\')
			pos++;
		else if (quoted && c == '\'')
			return pos + 1;
		else if (!quoted && paq_mask_is_space(c))
			return pos;
	}
	return text->len;
}

/* "name =" at pos?  Then *name_end is that, and *value where its value is. */
static bool
conninfo_name(const PaqMaskText *text, uint32 pos, uint32 *name_end,
			  uint32 *value)
{
	uint32		equals;

	*name_end = skip_key(text, pos);
	equals = skip_space(text, *name_end);
	if (*name_end == pos || equals >= text->len || text->data[equals] != '=')
		return false;
	*value = skip_space(text, equals + 1);
	return true;
}

/* Is it a connection string?  If it must be one, it need only begin so. */
static bool
is_conninfo(const PaqMaskText *text, bool expected)
{
	uint32		pos = skip_space(text, 0);
	bool		secret = false;

	while (pos < text->len)
	{
		uint32		name_end;
		uint32		value;

		if (!conninfo_name(text, pos, &name_end, &value))
			return false;
		if (expected)
			return true;
		if (!paq_mask_name_is_conninfo(text->data + pos, name_end - pos))
			return false;
		secret |= paq_mask_name_is_secret(text->data + pos, name_end - pos);
		pos = skip_space(text, conninfo_value_end(text, value));
	}
	return secret;
}

/*
 * The end of a secret value.  What follows and is not a name with a value is
 * part of the value, whose quotes were forgotten.
 */
static uint32
secret_value_end(const PaqMaskText *text, uint32 pos)
{
	uint32		end = conninfo_value_end(text, pos);

	for (;;)
	{
		uint32		next = skip_space(text, end);
		uint32		name_end;
		uint32		value;

		if (next >= text->len || conninfo_name(text, next, &name_end, &value))
			return end;
		end = next;
		while (end < text->len && !paq_mask_is_space(text->data[end]))
			end++;
	}
}

/* The secret values of a connection string */
static void
find_conninfo(PaqMaskText *text, bool expected, PaqMaskOutcome *outcome)
{
	uint32		pos = 0;

	if (!is_conninfo(text, expected))
		return;
	while (pos < text->len)
	{
		uint32		name_end;
		uint32		value;

		if (!is_key_char(text->data[pos]))
			pos++;
		else if (!conninfo_name(text, pos, &name_end, &value))
			pos = name_end;
		else if (!paq_mask_name_is_secret(text->data + pos, name_end - pos))
			pos = Max(conninfo_value_end(text, value), name_end);
		else
		{
			pos = secret_value_end(text, value);
			mark_value(text, value, pos, outcome);
		}
	}
}

/* The end of what a shell takes as one word, from pos on */
static uint32
shell_word_end(const PaqMaskText *text, uint32 pos)
{
	char		quote;

	if (pos < text->len && is_quote(text->data[pos]))
	{
		quote = text->data[pos++];
		while (pos < text->len && text->data[pos] != quote)
			pos++;
		return Min(pos + 1, text->len);
	}
	while (pos < text->len && !paq_mask_is_space(text->data[pos]) &&
		   !is_quote(text->data[pos]) &&
		   strchr(";&|),", text->data[pos]) == NULL)
		pos++;
	return pos;
}

/*
 * NAME=value, as commands get their environment; with capitals set, the name
 * must be in these.
 */
void
paq_content_assignments(PaqMaskText *text, bool capitals)
{
	for (uint32 pos = 0; pos < text->len; pos++)
	{
		const uint32 name = pos;
		bool		lower = false;

		pos = skip_key(text, pos);
		for (uint32 i = name; i < pos; i++)
			lower |= text->data[i] >= 'a' && text->data[i] <= 'z';
		if (pos > name && pos < text->len && text->data[pos] == '=' &&
			!(capitals && lower) &&
			paq_mask_name_is_secret(text->data + name, pos - name))
		{
			const uint32 value = pos + 1;

			pos = shell_word_end(text, value);
			paq_mask_mark(text, value, pos, PAQ_MARK_SECRET);
		}
	}
}

/* What pg_authid has instead of passwords */
static void
find_verifiers(PaqMaskText *text)
{
	const uint32 prefix_len = strlen(VERIFIER_PREFIX);

	for (uint32 pos = 0; pos + prefix_len < text->len; pos++)
	{
		const uint32 start = pos;

		if (text->data[pos] != VERIFIER_PREFIX[0] ||
			memcmp(text->data + pos, VERIFIER_PREFIX, prefix_len) != 0)
			continue;
		pos += prefix_len;
		while (pos < text->len && (is_key_char(text->data[pos]) ||
								   strchr("+/=:$", text->data[pos]) != NULL))
			pos++;
		paq_mask_mark(text, start, pos, PAQ_MARK_SECRET);
	}
}

/*
 * Mark the secrets of a literal's contents; conninfo says that they must be a
 * connection string.
 */
void
paq_content_find(PaqMaskText *text, bool conninfo, PaqMaskOutcome *outcome)
{
	find_conninfo(text, conninfo, outcome);
	find_libpq_address(text, outcome);
	paq_content_uris(text, 0, outcome);
	paq_content_assignments(text, true);
	find_verifiers(text);
}
