/*-------------------------------------------------------------------------
 *
 * mask.c
 *		Texts without the secrets in them, before they become part of a record.
 *
 * Nearly all texts have none, and most of them have been seen before: telling
 * that quickly is mask_filter.c's.  The others are analysed, see mask_sql.c,
 * and the result of the last analysis is kept: each statement of a string of
 * many has that same string for its text, and so has one executed again.
 *
 * Guarantees: what is masked never enters shared memory or a file.  If a text
 * may have a secret, and that cannot be looked for or removed, the caller does
 * not get the text.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/capture_internal.h"
#include "capture/mask_internal.h"
#include "common/hashfn.h"
#include "parser/parser.h"
#include "utils/memutils.h"

/* The longest text that can be analysed; PostgreSQL has none that is longer. */
#define MAX_LENGTH		((Size) PG_UINT32_MAX / 2)

/* The longest result that is kept */
#define MAX_KEPT		((Size) 1024 * 1024)

/* A secret shorter than this is looked for in messages as a word only. */
#define MIN_PART_LEN	4

/* Most bytes to compare while looking for secrets in a message */
#define MAX_COMPARED	UINT64CONST(100000000)

/*
 * The last analysis.  The text may have secrets, so not the text itself is
 * kept but two hashes with seeds that nobody knows.
 */
typedef struct LastResult
{
	bool		valid;
	bool		may_parse;
	bool		conforming;
	uint32		version;		/* of the patterns */
	uint32		len;
	uint64		hash[2];
	char	   *masked;			/* NULL: nothing to hide */
	Size		masked_size;
} LastResult;

static LastResult last;

/* The patterns for which texts are remembered */
static uint32 memo_version = 0;

static void
begin_work(PaqMaskWork *work, bool may_parse)
{
	MemSet(work, 0, sizeof(*work));
	work->may_parse = may_parse;
	work->conforming = standard_conforming_strings;
}

/*
 * Whether a backslash in front of a quote belongs to it depends on a setting,
 * which may have been another one when the text was parsed.  Look for secrets
 * in what the text is with each of the settings.
 */
static void
find_both_ways(PaqMaskWork *work, const PaqView *view)
{
	PaqMaskOutcome outcome = {0};
	bool		parsed;

	work->parse_depth = work->may_parse ? 1 : 0;
	parsed = paq_mask_sql(work, view, 0, &outcome);
	/* the less likely way is none if it makes less sense */
	if (parsed)
		work->parse_depth = PAQ_MASK_DEPTH + 1;
	work->conforming = !work->conforming;
	parsed |= paq_mask_sql(work, view, 0, &outcome);
	work->conforming = !work->conforming;
	work->parse_depth = 0;
	if (work->may_parse && !parsed)
		paq_mask_sql(work, view, 0, &outcome);
}

/* Find the secrets of an SQL text. */
static void
find_secrets(PaqMaskWork *work, const char *text, uint32 len)
{
	const PaqView view = {text, len, NULL, 0};
	PaqMaskOutcome outcome = {0};

	if (strstr(text, "\\'") != NULL)
		find_both_ways(work, &view);
	else
		paq_mask_sql(work, &view, 0, &outcome);
	paq_mask_patterns_apply(work, text, len);
}

/* A copy in TopMemoryContext; NULL when out of memory. */
static char *
copy_text(const char *text, Size size)
{
	char	   *copy;

	copy = MemoryContextAllocExtended(TopMemoryContext, size,
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (copy != NULL)
		memcpy(copy, text, size);
	return copy;
}

/*
 * The end of a work on a text: free its memory, and return what the API says
 * of paq_mask_text().
 */
static const char *
end_work(PaqMaskWork *work, const char *text, uint32 len, char **copy)
{
	const char *result = text;

	if (work->nspans > 0 && !work->failed)
	{
		*copy = paq_mask_render(work, text, len);
		result = *copy;
	}
	if (work->failed)
		result = NULL;
	paq_mask_free(work);
	return result;
}

/* Returns false if there are no seeds to be had. */
static bool
hash_text(const char *text, uint32 len, uint64 hash[2])
{
	static uint64 seeds[2] = {0, 0};

	if (seeds[0] == 0 && !pg_strong_random(seeds, sizeof(seeds)))
		return false;
	for (int i = 0; i < 2; i++)
		hash[i] = hash_bytes_extended((const unsigned char *) text, len,
									  seeds[i]);
	return true;
}

static bool
is_last(uint32 len, const uint64 hash[2], bool may_parse)
{
	return last.valid && last.len == len && last.may_parse == may_parse &&
		last.hash[0] == hash[0] && last.hash[1] == hash[1] &&
		last.version == paq_mask_patterns_version &&
		last.conforming == standard_conforming_strings;
}

/* Keep the result of an analysis; masked is NULL if there was no secret. */
static void
keep_last(uint32 len, const uint64 hash[2], bool may_parse, const char *masked)
{
	if (last.masked != NULL)
		pfree(last.masked);
	last.masked = NULL;
	last.valid = true;
	last.may_parse = may_parse;
	last.conforming = standard_conforming_strings;
	last.version = paq_mask_patterns_version;
	last.len = len;
	last.hash[0] = hash[0];
	last.hash[1] = hash[1];
	if (masked != NULL)
	{
		last.masked_size = strlen(masked) + 1;
		if (last.masked_size <= MAX_KEPT)
			last.masked = copy_text(masked, last.masked_size);
		last.valid = last.masked != NULL;
	}
}

/* The text of a candidate without its secrets. */
static const char *
analyse(const char *text, uint32 len, bool may_parse, char **copy)
{
	PaqMaskWork work;
	uint64		hash[2] = {0, 0};
	const bool	hashed = hash_text(text, len, hash);
	const char *result;

	if (hashed && is_last(len, hash, may_parse))
	{
		if (last.masked == NULL)
			return text;
		*copy = copy_text(last.masked, last.masked_size);
		return *copy;
	}
	begin_work(&work, may_parse);
	find_secrets(&work, text, len);
	result = end_work(&work, text, len, copy);
	if (hashed && result != NULL)
		keep_last(len, hash, may_parse, *copy);
	return result;
}

/*
 * The text of a statement as it may be recorded: the text itself, with *copy
 * NULL, if there is nothing to hide; else a copy, which is also in *copy, in
 * TopMemoryContext, to be freed by the caller.  NULL if there may be something
 * to hide and that is not possible, for want of memory.
 *
 * While an error is being handled may_parse must be false.
 */
const char *
paq_mask_text(const char *text, bool may_parse, char **copy)
{
	const Size	len = strlen(text);
	const char *result;

	*copy = NULL;
	if (unlikely(memo_version != paq_mask_patterns_version))
	{
		paq_mask_memo_clear();
		memo_version = paq_mask_patterns_version;
	}
	if (likely(may_parse && paq_mask_memo_find(text, len)))
		return text;
	if (unlikely(len > MAX_LENGTH))
		return NULL;

	/* in a statement that failed, the word that tells may be misspelt */
	result = text;
	if (unlikely(!may_parse || paq_mask_is_candidate(text, len) ||
				 paq_mask_has_patterns()))
		result = analyse(text, len, may_parse, copy);
	if (likely(result == text && may_parse))
		paq_mask_memo_add(text, len);
	return result;
}

/*
 * The same for a value that a statement is executed with.  Only some types
 * have values that can be more than a number, say.
 */
const char *
paq_mask_value(const char *value, bool is_text, char **copy)
{
	const Size	len = strlen(value);
	PaqMaskWork work;

	*copy = NULL;
	if (likely((!is_text || !paq_mask_is_candidate(value, len)) &&
			   !paq_mask_has_patterns()))
		return value;
	if (len > MAX_LENGTH)
		return NULL;

	begin_work(&work, true);
	if (is_text)
	{
		const PaqView view = {value, len, NULL, 0};
		PaqMaskOutcome outcome = {0};

		paq_mask_literal(&work, &view, false, 0, &outcome);
	}
	paq_mask_patterns_apply(&work, value, len);
	return end_work(&work, value, len, copy);
}

/*
 * Which parameters does a statement make values of settings that are, or may
 * be, secret?  See paq_mask_param_rules().
 */
int
paq_mask_set_config_params(const char *text, PaqParamRule *rules, int max_rules)
{
	const Size	len = strlen(text);
	const PaqView view = {text, len, NULL, 0};
	PaqMaskWork work;
	int			count;

	if (!paq_mask_sets_config(text, len))
		return 0;
	begin_work(&work, false);
	count = paq_mask_param_rules(&work, &view, rules, max_rules);
	if (work.failed)
		count = max_rules + 1;
	paq_mask_free(&work);
	return count;
}

static bool
is_word_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
		(c >= '0' && c <= '9') || c == '_' || IS_HIGHBIT_SET(c);
}

/* Mask all places where a secret is quoted.  Identifiers are in lower case. */
static void
mask_quotations(PaqMaskWork *work, const PaqView *message,
				const PaqSecret *secret)
{
	const char *data = message->data;

	for (uint32 pos = 0; pos + secret->len <= message->len;)
	{
		uint32		end = pos + secret->len;
		bool		is_word = (pos == 0 || !is_word_char(data[pos - 1])) &&
			(end == message->len || !is_word_char(data[end]));

		if ((secret->len >= MIN_PART_LEN || is_word) &&
			pg_strncasecmp(data + pos, secret->data, secret->len) == 0)
		{
			paq_mask_span(work, message, pos, end);
			pos = end;
		}
		else
			pos++;
	}
}

/* Mask what the message quotes of the secrets of a statement. */
static void
mask_quoted_secrets(PaqMaskWork *work, const PaqView *message,
					const char *statement)
{
	PaqMaskWork secrets;

	begin_work(&secrets, false);
	secrets.want_secrets = true;
	find_secrets(&secrets, statement, strlen(statement));
	work->failed |= secrets.failed;
	if (secrets.nsecrets * (uint64) message->len > MAX_COMPARED)
		work->failed = true;
	for (uint32 i = 0; i < secrets.nsecrets && !work->failed; i++)
		mask_quotations(work, message, &secrets.secrets[i]);
	paq_mask_free(&secrets);
}

/*
 * An error's message as it may be recorded, with the results of
 * paq_mask_text().  statement is the text of the statement that failed, NULL
 * if unknown: its secrets are masked where the message quotes them.  For use
 * while the error is being handled.
 */
const char *
paq_mask_message(const char *message, const char *statement, char **copy)
{
	const PaqView view = {message, strlen(message), NULL, 0};
	PaqMaskWork work;

	*copy = NULL;
	if (strlen(message) > MAX_LENGTH ||
		(statement != NULL && strlen(statement) > MAX_LENGTH))
		return NULL;
	begin_work(&work, false);
	paq_mask_prose(&work, &view);
	paq_mask_patterns_apply(&work, message, view.len);
	if (statement != NULL)
		mask_quoted_secrets(&work, &view, statement);
	return end_work(&work, message, view.len, copy);
}
