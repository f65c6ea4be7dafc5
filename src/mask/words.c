/*-------------------------------------------------------------------------
 *
 * words.c
 *		The words by which secrets are recognized: in names of options,
 *		settings and keywords, and, for the filter, anywhere in a text.
 *
 * Foreign data wrappers define options, and extensions define settings, so a name
 * is judged by the words in it.  A false alarm costs the reader of the trail a
 * value; a miss discloses a secret.
 *
 * The filter tells quickly that a text has no secret, which is true of nearly
 * all texts.  Every text that is recorded goes through the filter, so the filter
 * is what masking costs.  It looks for a few words in one pass over the bytes.
 *
 * Every word that makes a name secret must contain one of the filter's words,
 * because a text that the filter lets pass is not looked at any further.
 *
 * Must not raise, nor allocate.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* ---------------------------------------------------------------------------
 * Names
 * ---------------------------------------------------------------------------
 */

/* Names with one of these in them, or with "_key" behind one of key_words... */
static const char *const secret_words[] = {
	"password", "passwd", "passphrase", "secret", "token", "credential",
	"apikey", "_key", NULL
};

static const char *const key_words[] = {
	"access", "account", "api", "auth", "client", "encryption", "master",
	"private", "sas", "secret", "server", "shared", "signing", "storage", NULL
};

/* ... unless one of these words follows, which say something about it. */
static const char *const harmless_words[] = {
	"required", "encryption", "file", "path", "dir", "directory", "length",
	"min", "max", "type", "policy", "method", "reuse", "valid", "validity",
	"expiry", "expires", "expiration", "check", "history", "url", "uri",
	"endpoint", "issuer", "lifetime", "interval", "timeout", "enabled",
	"command", "ize", "izer", "ization", NULL
};

/* Whole names, and ends of names behind an underscore or a dot */
static const char *const secret_endings[] = {
	"pwd", "passw", NULL
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

/* The length of the word of the list that the text ends in; 0 if it does in none */
static uint32
ends_in(const char *text, uint32 len, const char *const *list)
{
	for (; *list != NULL; list++)
	{
		const uint32 word_len = strlen(*list);

		if (len >= word_len &&
			pg_strncasecmp(text + len - word_len, *list, word_len) == 0)
			return word_len;
	}
	return 0;
}

/* Is something that has this name a secret? */
bool
paq_mask_name_is_secret(const char *name, uint32 len)
{
	uint32		start;

	for (uint32 end = 1; end <= len; end++)
	{
		const char *rest = name + end;
		const char *underscore;

		start = end - ends_in(name, end, secret_words);
		if (start == end ||
			(name[start] == '_' && ends_in(name, start, key_words) == 0))
			continue;
		if (end < len && *rest == '_')
			rest++;
		underscore = memchr(rest, '_', name + len - rest);
		if (!paq_mask_word_in(rest, (underscore ? underscore : name + len) - rest,
							  harmless_words))
			return true;
	}
	start = len - ends_in(name, len, secret_endings);
	return start < len &&
		(start == 0 || name[start - 1] == '_' || name[start - 1] == '.');
}

/*
 * Is it a setting of PostgreSQL's whose value is a secret?  There is one: a
 * command that prints a passphrase, which can be "echo".
 */
bool
paq_mask_builtin_is_secret(const char *name, uint32 len)
{
	return len == strlen("ssl_passphrase_command") &&
		pg_strncasecmp(name, "ssl_passphrase_command", len) == 0;
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

/* ---------------------------------------------------------------------------
 * The filter
 * ---------------------------------------------------------------------------
 */

/*
 * The words, in lower case; letters of a text match in either case.  Together
 * the words have at most 64 characters, see build_tables().
 */
static const char *const filter_words[] = {
	"passw",					/* password, passwd */
	"passp",					/* passphrase */
	"secret",
	"token",
	"creden",					/* credential */
	"apikey",
	"pwd",
	"scram-",					/* a password's verifier */
	"_key",						/* behind one of key_words */
	"://",						/* user:password@host */
	"t_conf"					/* set_config */
};

/* Places in filter_words[] that get a second look */
#define WORD_KEY		8
#define WORD_URI		9
#define WORD_SET_CONFIG	10

#define MAX_WORD_LEN	8

/*
 * A bit for each character of each word; those of byte_bits[c] are the
 * characters that are c.
 */
static uint64 byte_bits[256];
static uint64 first_bits = 0;	/* the words' first characters */
static uint64 last_bits = 0;	/* and their last ones */
static uint64 word_last[lengthof(filter_words)];

static void
build_tables(void)
{
	int			bit = 0;

	for (int i = 0; i < lengthof(filter_words); i++)
	{
		Assert(strlen(filter_words[i]) <= MAX_WORD_LEN);
		first_bits |= UINT64CONST(1) << bit;
		for (const char *p = filter_words[i]; *p != '\0'; p++, bit++)
		{
			Assert(bit < 64);
			byte_bits[(unsigned char) *p] |= UINT64CONST(1) << bit;
			byte_bits[pg_ascii_toupper((unsigned char) *p)] |= UINT64CONST(1) << bit;
		}
		word_last[i] = UINT64CONST(1) << (bit - 1);
		last_bits |= word_last[i];
	}
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
has_meaningful_word(const char *text, uint32 len, uint64 wanted)
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
		if (hit & word_last[WORD_KEY] &&
			ends_in(text, i + 1 - strlen("_key"), key_words) == 0)
			continue;
		if (hit & word_last[WORD_URI] && text[len - 1] != ':' &&
			memchr(text + i, '@', len - i) == NULL)
		{
			/*
			 * There is no password in an address, nor can one follow.  A secret
			 * behind its "?" has a name that is found by another word.
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
	return has_meaningful_word(text, len, last_bits & ~word_last[WORD_SET_CONFIG]);
}

/* May the text call set_config()? */
bool
paq_mask_sets_config(const char *text, Size len)
{
	if (unlikely(first_bits == 0))
		build_tables();
	return has_meaningful_word(text, len, word_last[WORD_SET_CONFIG]);
}
