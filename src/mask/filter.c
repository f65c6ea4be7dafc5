/*-------------------------------------------------------------------------
 *
 * filter.c
 *		Texts that have no secret, told quickly: nearly all.
 *
 * Each text that is recorded is looked at, so this is what masking costs.  A
 * text is a candidate if one of a few words is in it, looked for in one pass
 * over its bytes; only candidates are analysed.  Texts that turned out to have
 * nothing to hide are remembered, up to a length, so that most of the time
 * not even that pass is needed.
 *
 * Guarantees: what is remembered is compared byte by byte.  Must not raise,
 * nor allocate.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

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

/* Texts that are remembered, by a hash */
#define MEMO_SLOTS		64
#define MEMO_MIN_LEN	16		/* shorter ones are looked at again */
#define MEMO_MAX_LEN	1000
#define MEMO_SAMPLES	8

#define HASH_FACTOR		UINT64CONST(0x9E3779B97F4A7C15)

typedef struct Memo
{
	uint32		len;			/* 0: none */
	char		text[MEMO_MAX_LEN];
} Memo;

static Memo memos[MEMO_SLOTS];

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

/*
 * A slot for a text that has MEMO_MIN_LEN bytes at least: by all of them if they
 * are few, else by samples.
 */
static Memo *
memo_slot(const char *text, uint32 len)
{
	const uint32 last = len - sizeof(uint64);
	const uint32 step = Max(sizeof(uint64), len / MEMO_SAMPLES);
	uint64		hash = len;
	uint64		word;

	for (uint32 pos = 0; pos < last; pos += step)
	{
		memcpy(&word, text + pos, sizeof(word));
		hash = (hash ^ word) * HASH_FACTOR;
	}
	memcpy(&word, text + last, sizeof(word));
	hash = (hash ^ (hash >> 32) ^ word) * HASH_FACTOR;
	return &memos[(hash >> 32) % MEMO_SLOTS];
}

/* Is it known that the text has nothing to hide? */
bool
paq_mask_memo_find(const char *text, Size len)
{
	const Memo *memo;

	if (len < MEMO_MIN_LEN || len > MEMO_MAX_LEN)
		return false;
	memo = memo_slot(text, len);
	return memo->len == len && memcmp(memo->text, text, len) == 0;
}

/* The text has nothing to hide. */
void
paq_mask_memo_add(const char *text, Size len)
{
	Memo	   *memo;

	if (len < MEMO_MIN_LEN || len > MEMO_MAX_LEN)
		return;
	memo = memo_slot(text, len);
	memo->len = len;
	memcpy(memo->text, text, len);
}

/* What was known holds no longer. */
void
paq_mask_memo_clear(void)
{
	for (int i = 0; i < MEMO_SLOTS; i++)
		memos[i].len = 0;
}
