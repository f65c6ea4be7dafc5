/*-------------------------------------------------------------------------
 *
 * content.c
 *		Secrets in literals that are not SQL: addresses with a password,
 *		connection strings, environments of commands, verifiers of passwords;
 *		and what mask_patterns matches in a whole text.
 *
 * The former are recognized by their form, whatever statement they are in; of
 * them only the secret value is marked.
 *
 * Regular expressions are compiled when they are needed for the first time, and
 * again when the setting or the database's encoding has become another.  If that
 * fails, most likely for want of memory, or if the search in a text fails, nobody
 * knows what would have matched.
 *
 * Must not raise, except what an interrupt does where the caller lets it; and only
 * regular expressions allocate: these are compiled and searched for by the engine itself,
 * because the functions around it raise errors.  Where no interrupt may be served, a text
 * that is long is not searched, nor for long.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "guc.h"
#include "mask/mask_internal.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#define VERIFIER_PREFIX	"SCRAM-SHA-256$"

/* Where no interrupt may be served, texts are searched for so long, microseconds */
#define MAX_UNINTERRUPTED_TIME	200000

/* What ends a shell's word, or a phrase */
#define SPACES			" \t\n\v\f\r"
#define QUOTES			"'\"`"
#define WORD_ENDS		SPACES QUOTES ";&|)<>"
#define PHRASE_ENDS		SPACES QUOTES ";&|),"

/* Where an address and its parts end, by what it is in */
typedef struct AddressForm
{
	const char *credentials;	/* user:password */
	const char *value;			/* behind "?name=" */
	const char *address;
	bool		is_command;		/* also at "$(", which a shell executes */
} AddressForm;

/* libpq takes all of a string for the address, with spaces and quotes. */
static const AddressForm libpq_address = {"/", "&", "", false};
static const AddressForm command_address = {
	"/?#" WORD_ENDS, "#" WORD_ENDS, SPACES QUOTES, true
};
static const AddressForm other_address = {
	"/?#" SPACES QUOTES, "&;#" SPACES QUOTES, SPACES QUOTES, false
};

/* libpq's keywords */
static const char *const conninfo_names[] = {
	"application_name", "authtype", "channel_binding", "client_encoding",
	"connect_timeout", "dbname", "fallback_application_name", "gssdelegation",
	"gssencmode", "gsslib", "host", "hostaddr", "keepalives",
	"keepalives_count", "keepalives_idle", "keepalives_interval", "krbsrvname",
	"load_balance_hosts", "max_protocol_version", "min_protocol_version",
	"oauth_client_id", "oauth_client_secret", "oauth_issuer", "oauth_scope",
	"options", "passfile", "password", "port", "replication", "require_auth",
	"requirepeer", "requiressl", "scram_client_key", "scram_server_key",
	"service", "servicefile", "sslcert", "sslcertmode", "sslcompression",
	"sslcrl", "sslcrldir", "sslkey", "sslkeylogfile", "sslmode",
	"sslnegotiation", "sslpassword", "sslrootcert", "sslsni",
	"ssl_max_protocol_version", "ssl_min_protocol_version",
	"target_session_attrs", "tcp_user_timeout", "tty", "user", NULL
};

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

static inline bool
is_one_of(char c, const char *characters)
{
	return strchr(characters, c) != NULL;
}

static bool
has_at(const PaqMaskText *text, uint32 pos, const char *string)
{
	return text->len - pos >= strlen(string) &&
		memcmp(text->data + pos, string, strlen(string)) == 0;
}

/*
 * Mark a secret value.  Returns whether the text has nothing of it, so that it
 * must follow.
 */
static bool
mark_value(PaqMaskText *text, uint32 start, uint32 end)
{
	paq_mask_mark(text, start, end, PAQ_MARK_SECRET);
	return start == text->len;
}

/* ---------------------------------------------------------------------------
 * Addresses: scheme://user:password@host/path?name=value
 * ---------------------------------------------------------------------------
 */

static bool
ends_at(const PaqMaskText *text, uint32 pos, const char *ends,
		const AddressForm *form)
{
	return pos >= text->len || is_one_of(text->data[pos], ends) ||
		(form->is_command && has_at(text, pos, "$("));
}

/*
 * Behind "://": user:password@host.  Moves *pos to the "@".  All from the first
 * ":" to the last "@" is a password.
 */
static bool
find_credentials(PaqMaskText *text, uint32 *pos, const AddressForm *form)
{
	uint32		colon = 0;
	uint32		at = 0;

	for (uint32 end = *pos; !ends_at(text, end, form->credentials, form); end++)
	{
		if (text->data[end] == ':' && colon == 0)
			colon = end;
		if (text->data[end] == '@')
			at = end;
	}
	if (colon == 0 || text->data[*pos] == '[')
		return false;
	if (at < colon)
		return colon + 1 == text->len;
	*pos = at;
	return mark_value(text, colon + 1, at);
}

static bool
find_addresses(PaqMaskText *text, bool is_command)
{
	const AddressForm *form = is_command ? &command_address : &other_address;
	const AddressForm *first_form = form;
	bool		open = false;
	bool		inside = false;
	uint32		pos = 0;

	if (!is_command && (has_at(text, 0, "postgresql://") ||
						has_at(text, 0, "postgres://")))
		form = first_form = &libpq_address;
	while (pos < text->len)
	{
		const char	c = text->data[pos++];

		if (c == ':' && has_at(text, pos, "//") && pos > 1 &&
			is_key_char(text->data[pos - 2]))
		{
			inside = true;
			pos += strlen("//");
			open |= find_credentials(text, &pos, first_form);
			/* for libpq, another one behind the first is part of a value */
			if (form == &libpq_address)
				first_form = &other_address;
		}
		else if (is_one_of(c, form->address))
			inside = false;
		else if (inside && (c == '?' || c == '&'))
		{
			const uint32 name = pos;
			uint32		value;

			pos = skip_key(text, pos);
			if (!has_at(text, pos, "=") ||
				!paq_mask_name_is_secret(text->data + name, pos - name))
				continue;
			value = ++pos;
			while (!ends_at(text, pos, form->value, form))
				pos++;
			open |= mark_value(text, value, pos);
		}
	}
	return open;
}

/* ---------------------------------------------------------------------------
 * Connection strings: name=value name='value'
 * ---------------------------------------------------------------------------
 */

/*
 * The end of a value of a connection string that begins at pos: in single
 * quotes, or up to a space; a backslash takes the next character along.
 */
static uint32
conninfo_value_end(const PaqMaskText *text, uint32 pos)
{
	const bool	quoted = has_at(text, pos, "'");

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
	if (*name_end == pos || !has_at(text, equals, "="))
		return false;
	*value = skip_space(text, equals + 1);
	return true;
}

/* A string that begins with one of libpq's keywords and "=" is taken for one. */
static bool
find_conninfo(PaqMaskText *text)
{
	uint32		pos = skip_space(text, 0);
	uint32		name_end;
	uint32		value;
	bool		open = false;

	if (!conninfo_name(text, pos, &name_end, &value) ||
		!paq_mask_word_in(text->data + pos, name_end - pos, conninfo_names))
		return false;
	while (pos < text->len)
	{
		if (!is_key_char(text->data[pos]))
			pos++;
		else if (!conninfo_name(text, pos, &name_end, &value))
			pos = name_end;
		else
		{
			const uint32 end = conninfo_value_end(text, value);

			if (paq_mask_name_is_secret(text->data + pos, name_end - pos))
				open = mark_value(text, value, end);
			pos = end;
		}
	}
	return open;
}

/* ---------------------------------------------------------------------------
 * Others
 * ---------------------------------------------------------------------------
 */

/*
 * The end of a value at pos, in quotes or up to where a shell's word ends.  What
 * the shell puts in there by executing it, $(...) or `...`, is a command, not
 * the value.
 */
static uint32
assigned_value_end(const PaqMaskText *text, uint32 pos, const char *ends)
{
	/* how a shell gets an apostrophe into apostrophes */
	const char *const apostrophe = "'\\''";
	char		quote = '\0';

	if (has_at(text, pos, "'") || has_at(text, pos, "\""))
		quote = text->data[pos++];
	for (; pos < text->len; pos++)
	{
		const char	c = text->data[pos];

		if (quote == '\'' && has_at(text, pos, apostrophe))
			pos += strlen(apostrophe) - 1;
		else if (c == quote)
			return pos + 1;
		else if (quote != '\'' && (c == '`' || has_at(text, pos, "$(")))
			return pos;
		else if (quote != '\'' && c == '\\')
			pos++;
		else if (quote == '\0' && is_one_of(c, ends))
			return pos;
	}
	return text->len;
}

/*
 * NAME=value, as commands get their environment; with capitals set, the name
 * must be in these.
 */
void
paq_content_assignments(PaqMaskText *text, bool capitals)
{
	uint32		pos = 0;

	while (pos < text->len)
	{
		const uint32 name = pos;
		bool		lower = false;
		uint32		value;

		while (pos < text->len && is_key_char(text->data[pos]))
		{
			lower |= text->data[pos] >= 'a' && text->data[pos] <= 'z';
			pos++;
		}
		if (pos == name || !has_at(text, pos, "=") || (capitals && lower) ||
			!paq_mask_name_is_secret(text->data + name, pos - name))
		{
			pos++;
			continue;
		}
		value = ++pos;
		pos = assigned_value_end(text, pos, capitals ? WORD_ENDS : PHRASE_ENDS);
		paq_mask_mark(text, value, pos, PAQ_MARK_SECRET);
	}
}

/*
 * Mark the secrets of a literal's contents.  Returns whether they end where a
 * secret must follow.  A command is no connection string, whatever it begins with:
 * what would be a value there may be executed.
 */
bool
paq_content_find(PaqMaskText *text, PaqContent content)
{
	const bool	is_command = content == PAQ_CONTENT_COMMAND;
	const bool	open = !is_command && find_conninfo(text);

	paq_content_assignments(text, true);
	/* what pg_authid has instead of passwords */
	if (!is_command && has_at(text, 0, VERIFIER_PREFIX))
		paq_mask_mark(text, 0, text->len, PAQ_MARK_SECRET);
	return find_addresses(text, is_command) || open;
}

/* ---------------------------------------------------------------------------
 * Patterns
 * ---------------------------------------------------------------------------
 */

static regex_t *patterns = NULL;
static int	npatterns = 0;
static uint32 patterns_version = 0; /* of the setting; 0: not all are compiled */
static int	patterns_encoding = -1;

/* See to it that the patterns are those of the setting.  False if they cannot be. */
static bool
prepare_patterns(void)
{
	const int	encoding = GetDatabaseEncoding();
	const char *pattern;
	int			count = 0;

	if (patterns_version == paq_mask_patterns_version && patterns_encoding == encoding)
		return true;
	while (npatterns > 0)
		pg_regfree(&patterns[--npatterns]);
	if (patterns != NULL)
		pfree(patterns);

	for (pattern = paq_mask_patterns; *pattern != '\0'; pattern += strlen(pattern) + 1)
		count++;
	patterns = MemoryContextAllocExtended(TopMemoryContext, count * sizeof(regex_t),
										  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
	pattern = paq_mask_patterns;
	while (patterns != NULL && npatterns < count &&
		   paq_regcomp(&patterns[npatterns], pattern, encoding) == REG_OKAY)
	{
		npatterns++;
		pattern += strlen(pattern) + 1;
	}
	patterns_version = npatterns == count ? paq_mask_patterns_version : 0;
	patterns_encoding = encoding;
	return npatterns == count;
}

/* Move on by so many characters; never behind the end. */
static uint32
skip_chars(const char *text, uint32 len, uint32 pos, size_t chars)
{
	for (; chars > 0 && pos < len; chars--)
		pos += pg_encoding_mblen(GetDatabaseEncoding(), text + pos);
	return Min(pos, len);
}

/*
 * Mark what matches the pattern or, if it has a group, what that matches.
 * Returns false if the search fails, or has lasted until the deadline; 0: there is none, and
 * interrupts are served.
 */
static bool
apply_pattern(PaqMaskText *text, regex_t *regex, const pg_wchar *wide,
			  size_t wide_len, TimestampTz deadline)
{
	size_t		start = 0;
	size_t		chars = 0;		/* up to pos */
	uint32		pos = 0;

	while (start <= wide_len)
	{
		regmatch_t	match[2];
		regmatch_t *secret = &match[0];
		uint32		secret_start;
		int			code;

		if (deadline == 0)
			CHECK_FOR_INTERRUPTS();
		else if (GetCurrentTimestamp() > deadline)
			return false;
		code = paq_regexec(regex, wide, wide_len, start, lengthof(match), match,
						   deadline == 0);
		if (code != REG_OKAY)
			return code == REG_NOMATCH;
		if (regex->re_nsub > 0 && match[1].rm_so >= 0)
			secret = &match[1];
		secret_start = skip_chars(text->data, text->len, pos,
								  secret->rm_so - chars);
		pos = skip_chars(text->data, text->len, secret_start,
						 secret->rm_eo - secret->rm_so);
		chars = secret->rm_eo;
		paq_mask_mark(text, secret_start, pos, PAQ_MARK_SECRET);
		start = Max((size_t) match[0].rm_eo, start);
		if (match[0].rm_eo == match[0].rm_so)
			start++;
	}
	return true;
}

/*
 * Mark what the patterns match in the text.  Returns false if that fails, or takes too long
 * where interrupts must not be served.  Where they may, it raises what they do.
 */
bool
paq_content_patterns(PaqMaskText *text, bool may_raise)
{
	const TimestampTz deadline = may_raise ? 0 : GetCurrentTimestamp() + MAX_UNINTERRUPTED_TIME;
	pg_wchar   *wide;
	size_t		wide_len;
	volatile bool done = true;

	if (!may_raise && text->len > PAQ_MASK_UNINTERRUPTED)
		return false;
	if (!prepare_patterns())
		return false;
	wide = MemoryContextAllocExtended(TopMemoryContext,
									  (text->len + (Size) 1) * sizeof(pg_wchar),
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (wide == NULL)
		return false;
	wide_len = pg_mb2wchar_with_len(text->data, wide, text->len);
	PG_TRY();
	{
		for (int i = 0; i < npatterns && done; i++)
			done = apply_pattern(text, &patterns[i], wide, wide_len, deadline);
	}
	PG_FINALLY();
	{
		pfree(wide);
	}
	PG_END_TRY();
	return done;
}
