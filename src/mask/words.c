/*-------------------------------------------------------------------------
 *
 * words.c
 *		Which names are those of secrets: options of foreign servers and user
 *		mappings, settings, keywords of connection strings.
 *
 * Which options exist is up to foreign data wrappers, and which settings, to
 * extensions; so a name is judged by the words in it.  A name too many costs
 * the reader of the trail a value, one too few a secret.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* ---------------------------------------------------------------------------
 * Names of secrets
 * ---------------------------------------------------------------------------
 */

/* Names with one of these in them... */
static const char *const secret_words[] = {
	"password", "passwd", "passphrase", "secret", "token", "credential",
	"apikey", "api_key", "access_key", "private_key", "encryption_key",
	"master_key", "account_key", "shared_key", "signing_key", "storage_key",
	"client_key", "server_key", "sas_key", "auth_key", NULL
};

/* ... unless one of these words follows, which say something about it. */
static const char *const harmless_words[] = {
	"required", "encryption", "file", "path", "dir", "directory", "length",
	"min", "max", "type", "policy", "method", "reuse", "valid", "validity",
	"expiry", "expires", "expiration", "check", "history", "url", "uri",
	"endpoint", "issuer", "lifetime", "interval", "timeout", "enabled",
	"command", "ize", "izer", "ization", NULL
};

/* Whole names, and ends of names behind an underscore */
static const char *const secret_names[] = {
	"pwd", "passw", NULL
};

/*
 * Settings without a prefix, which are PostgreSQL's, are secret only if they
 * are here: ssl_passphrase_command is a program that prints a passphrase, and
 * that can be "echo".
 */
static const char *const secret_settings[] = {
	"ssl_passphrase_command", NULL
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

/* Is the word, in any case, in the list, whose words are in lower case? */
bool
paq_mask_word_in(const char *word, uint32 len, const char *const *list)
{
	for (; *list != NULL; list++)
	{
		if (strlen(*list) == len && pg_strncasecmp(word, *list, len) == 0)
			return true;
	}
	return false;
}

/* Does the name end in a word of the list? */
static bool
ends_in(const char *name, uint32 len, const char *const *list)
{
	for (; *list != NULL; list++)
	{
		uint32		word_len = strlen(*list);

		if (len < word_len ||
			pg_strncasecmp(name + len - word_len, *list, word_len) != 0)
			continue;
		if (len == word_len || name[len - word_len - 1] == '_' ||
			name[len - word_len - 1] == '.')
			return true;
	}
	return false;
}

/* Does the rest of a name begin with a word of the list? */
static bool
begins_with_word(const char *rest, uint32 len, const char *const *list)
{
	const char *underscore = memchr(rest, '_', len);

	return paq_mask_word_in(rest, underscore ? underscore - rest : len, list);
}

/* Is something that has this name a secret? */
bool
paq_mask_name_is_secret(const char *name, uint32 len)
{
	for (const char *const *word = secret_words; *word != NULL; word++)
	{
		uint32		word_len = strlen(*word);

		for (uint32 i = 0; i + word_len <= len; i++)
		{
			uint32		next = i + word_len;

			if (pg_strncasecmp(name + i, *word, word_len) != 0)
				continue;
			if (next < len && name[next] == '_')
				next++;
			if (!begins_with_word(name + next, len - next, harmless_words))
				return true;
		}
	}
	return ends_in(name, len, secret_names);
}

/* Is it a setting of PostgreSQL's whose value is a secret? */
bool
paq_mask_builtin_is_secret(const char *name, uint32 len)
{
	return paq_mask_word_in(name, len, secret_settings);
}

/* Is the value of the setting a secret? */
bool
paq_mask_setting_is_secret(const char *name)
{
	const char *dot = strchr(name, '.');

	if (dot == NULL)
		return paq_mask_builtin_is_secret(name, strlen(name));
	return paq_mask_name_is_secret(dot + 1, strlen(dot + 1));
}

/* Is this one of libpq's keywords? */
bool
paq_mask_name_is_conninfo(const char *name, uint32 len)
{
	return paq_mask_word_in(name, len, conninfo_names);
}

/* ---------------------------------------------------------------------------
 * The filter
 * ---------------------------------------------------------------------------
 */

/*
 * The words, in lower case, and in them the letters' two cases count as the
 * same.  A text without any of them has no secret that we know of.  Together
 * they have at most 64 characters, see build_tables().
 */
static const char *const words[] = {
	"passw",					/* password, passwd */
	"passp",					/* passphrase */
	"secret",
	"token",
	"creden",					/* credentials */
	"apikey",
	"pwd",
	"scram-",					/* a password's verifier */
	"_key",						/* access_key and its like, see below */
	"://",						/* user:password@host, see below */
	"t_conf"					/* set_config, see below */
};

/* Places in words[] that get a second look */
#define WORD_KEY		8
#define WORD_URI		9
#define WORD_SET_CONFIG	10

/* What "_key" must be preceded by */
static const char *const key_words[] = {
	"access", "account", "api", "auth", "client", "encryption", "master",
	"private", "sas", "secret", "server", "shared", "signing", "storage"
};

#define MAX_WORD_LEN	8

/*
 * A bit for each character of each word; those of byte_bits[c] are the
 * characters that are c.
 */
static uint64 byte_bits[256];
static uint64 first_bits = 0;	/* the words' first characters */
static uint64 last_bits = 0;	/* and their last ones */
static uint64 word_last[lengthof(words)];

static void
build_tables(void)
{
	int			bit = 0;

	for (int i = 0; i < lengthof(words); i++)
	{
		Assert(strlen(words[i]) <= MAX_WORD_LEN);
		first_bits |= UINT64CONST(1) << bit;
		for (const char *p = words[i]; *p != '\0'; p++, bit++)
		{
			Assert(bit < 64);
			byte_bits[(unsigned char) *p] |= UINT64CONST(1) << bit;
			if (*p >= 'a' && *p <= 'z')
				byte_bits[(unsigned char) (*p - 'a' + 'A')] |=
					UINT64CONST(1) << bit;
		}
		word_last[i] = UINT64CONST(1) << (bit - 1);
		last_bits |= word_last[i];
	}
}

/* Is what ends in "_key", key_end bytes into the text, a secret's name? */
static bool
is_secret_key(const char *text, uint32 key_end)
{
	uint32		end = key_end - strlen("_key");

	for (int i = 0; i < lengthof(key_words); i++)
	{
		uint32		len = strlen(key_words[i]);

		if (end >= len &&
			pg_strncasecmp(text + end - len, key_words[i], len) == 0)
			return true;
	}
	return false;
}

/*
 * One step of the search, in which all words are looked for at once: bit n of
 * the state says that the text's last characters are a word's, up to the one
 * that has bit n.
 */
static inline uint64
next_state(uint64 state, char c)
{
	return ((state << 1) | first_bits) & byte_bits[(unsigned char) c];
}

/*
 * Is one of the words in the text?  Each step of the search has to wait for
 * the one before, so there are two searches at once, one in each half.
 */
static bool
has_word(const char *text, uint32 len, uint64 wanted)
{
	const uint32 half = len / 2;
	const uint32 end = Min(half + MAX_WORD_LEN - 1, len);
	uint64		first = 0;
	uint64		second = 0;
	uint64		hits = 0;

	for (uint32 i = 0; i < half; i++)
	{
		first = next_state(first, text[i]);
		second = next_state(second, text[half + i]);
		hits |= first | second;
	}
	/* words that begin in the first half and end in the second one */
	for (uint32 i = half; i < end; i++)
	{
		first = next_state(first, text[i]);
		hits |= first;
	}
	if (len % 2 != 0)
		hits |= next_state(second, text[len - 1]);
	return (hits & wanted) != 0;
}

/* Is one of the words there, in a place where it means something? */
static bool
scan(const char *text, uint32 len, uint64 wanted)
{
	uint64		state = 0;

	if (likely(!has_word(text, len, wanted)))
		return false;
	for (uint32 i = 0; i < len; i++)
	{
		uint64		hit;

		state = next_state(state, text[i]);
		hit = state & wanted;
		if (likely(hit == 0))
			continue;
		if (hit & word_last[WORD_KEY] && !is_secret_key(text, i + 1))
			continue;
		if (hit & word_last[WORD_URI] && text[len - 1] != ':' &&
			memchr(text + i, '@', len - i) == NULL)
		{
			/*
			 * No password, nor does one have to follow.  What is behind a "?"
			 * has a name that is a word, too.
			 */
			wanted &= ~word_last[WORD_URI];
			continue;
		}
		return true;
	}
	return false;
}

/* May the text have a secret? */
bool
paq_mask_is_candidate(const char *text, Size len)
{
	if (unlikely(first_bits == 0))
		build_tables();
	return scan(text, len, last_bits & ~word_last[WORD_SET_CONFIG]);
}

/* May the text call set_config()? */
bool
paq_mask_sets_config(const char *text, Size len)
{
	if (unlikely(first_bits == 0))
		build_tables();
	return scan(text, len, word_last[WORD_SET_CONFIG]);
}
