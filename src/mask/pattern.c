/*-------------------------------------------------------------------------
 *
 * pattern.c
 *		Secrets that the setting mask_patterns describes.
 *
 * The regular expressions are compiled when they are needed for the first
 * time, and again when the setting or the database's encoding has become
 * another.  If that fails, for want of memory most likely, or if the search in a
 * text fails, nobody knows what would have matched.
 *
 * Must not raise: calls the regular expressions' engine itself, because the
 * functions around it raise errors, and holds off interrupts meanwhile.  A bad
 * expression is one of the administrator's.
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
#include "utils/memutils.h"

static regex_t *patterns = NULL;
static int	npatterns = 0;
static bool usable = false;		/* all are compiled */

/* What they were compiled for */
static uint32 patterns_version = 0;
static int	patterns_encoding = -1;

static void
free_patterns(void)
{
	for (int i = 0; i < npatterns; i++)
		pg_regfree(&patterns[i]);
	if (patterns != NULL)
		pfree(patterns);
	patterns = NULL;
	npatterns = 0;
}

static bool
compile_pattern(const char *pattern, regex_t *regex)
{
	const int	len = strlen(pattern);
	pg_wchar   *wide;
	int			code;

	wide = MemoryContextAllocExtended(TopMemoryContext,
									  (len + 1) * sizeof(pg_wchar),
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (wide == NULL)
		return false;
	code = paq_regcomp(regex, wide, pg_mb2wchar_with_len(pattern, wide, len));
	pfree(wide);
	return code == REG_OKAY;
}

/* Compile all patterns.  False if one of them could not be. */
static bool
compile_patterns(void)
{
	const char *pattern;
	int			count = 0;

	for (pattern = paq_mask_patterns; *pattern != '\0';
		 pattern += strlen(pattern) + 1)
		count++;
	patterns = MemoryContextAllocExtended(TopMemoryContext,
										  count * sizeof(regex_t),
										  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
	if (patterns == NULL)
		return false;
	for (pattern = paq_mask_patterns; *pattern != '\0';
		 pattern += strlen(pattern) + 1)
	{
		if (!compile_pattern(pattern, &patterns[npatterns]))
			return false;
		npatterns++;
	}
	return true;
}

/* See to it that the patterns are those of the setting. */
static bool
prepare_patterns(void)
{
	if (usable && patterns_version == paq_mask_patterns_version &&
		patterns_encoding == GetDatabaseEncoding())
		return true;
	free_patterns();
	usable = compile_patterns();
	patterns_version = paq_mask_patterns_version;
	patterns_encoding = GetDatabaseEncoding();
	return usable;
}

/* Are there any? */
bool
paq_mask_has_patterns(void)
{
	return paq_mask_patterns[0] != '\0';
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
 * Returns false if the search fails.
 */
static bool
apply_pattern(PaqMaskText *text, regex_t *regex, const pg_wchar *wide,
			  size_t wide_len)
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

		code = paq_regexec(regex, wide, wide_len, start, lengthof(match), match);
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

/* Mark what the patterns match in the text.  Returns false if that fails. */
bool
paq_mask_patterns_apply(PaqMaskText *text)
{
	pg_wchar   *wide;
	size_t		wide_len;
	bool		done = true;

	if (!paq_mask_has_patterns())
		return true;
	if (!prepare_patterns())
		return false;
	wide = MemoryContextAllocExtended(TopMemoryContext,
									  (text->len + (Size) 1) * sizeof(pg_wchar),
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (wide == NULL)
		return false;
	wide_len = pg_mb2wchar_with_len(text->data, wide, text->len);
	for (int i = 0; i < npatterns && done; i++)
		done = apply_pattern(text, &patterns[i], wide, wide_len);
	pfree(wide);
	return done;
}
