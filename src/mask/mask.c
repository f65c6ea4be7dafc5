/*-------------------------------------------------------------------------
 *
 * mask.c
 *		Masking of texts, values and messages.
 *
 * File map:
 *
 *	mask.c			what is to be done with which text
 *	filter.c		telling texts without secrets quickly: nearly all
 *	scan.c			PostgreSQL's scanner, on a text and on its literals
 *	rules.c			which literals are secret: rules over tokens
 *	content.c		secrets in literals that are not SQL
 *	literal.c		reading the contents of literals
 *	plain.c			finding literals without the scanner
 *	names.c			names of secrets
 *	pattern.c		what mask_patterns matches
 *	render.c		the text without what was found
 *
 * A text without one of a dozen words goes as it is, after one pass over its
 * bytes, or a comparison if it has been seen before.  The others are scanned.
 * The result of the last scan is kept: each statement of a string of many has
 * that same string for its text, and so has one executed again.
 *
 * Where the scanner may not be called, and where it fails, it cannot be known
 * which of the literals is a secret, so all of them are taken for one.
 *
 * Guarantees: see mask.h.  They hold for mask_patterns, too: only contents of
 * literals are replaced.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "guc.h"
#include "mask/mask_internal.h"
#include "parser/parser.h"
#include "utils/memutils.h"

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
	int			options;
	bool		conforming;
	uint32		version;		/* of the patterns */
	Size		text_len;
	uint64		hash[2];
	PaqMasked	shown;			/* copy NULL: nothing to hide */
} LastResult;

static LastResult last;

/* The patterns for which texts are remembered */
static uint32 memo_version = 0;

static void *
allocate(Size size, int flags)
{
	return MemoryContextAllocExtended(TopMemoryContext, size,
									  flags | MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
}

/* Marks for a text, none set.  False if there is no memory. */
static bool
begin_text(PaqMaskText *text, const char *data, Size len)
{
	text->data = data;
	text->len = len;
	text->marks = allocate(len + 1, MCXT_ALLOC_ZERO);
	return text->marks != NULL;
}

static void
show_unchanged(PaqMasked *shown, const char *text, Size len)
{
	shown->text = text;
	shown->len = len;
	shown->copy = NULL;
	shown->all = false;
	shown->cut = false;
}

/* What is no SQL text, and has no beginning that could be shown without memory */
static void
show_value(const PaqMaskText *text, PaqMasked *shown)
{
	paq_render_secrets(text, true, shown);
	if (likely(!shown->cut))
		return;
	show_unchanged(shown, PAQ_REDACTED, strlen(PAQ_REDACTED));
	shown->all = true;
}

/* ---------------------------------------------------------------------------
 * Texts of statements
 * ---------------------------------------------------------------------------
 */

/* Is the next word at *pos one of the list?  Moves *pos behind it. */
static bool
skip_word(const char *text, Size len, Size *pos, const char *const *list)
{
	Size		start;

	while (*pos < len && paq_mask_is_space(text[*pos]))
		(*pos)++;
	start = *pos;
	while (*pos < len && paq_mask_is_name_char(text[*pos]))
		(*pos)++;
	return paq_mask_word_in(text + start, *pos - start, list);
}

/*
 * May the text of a statement that failed have a secret?  The word that would
 * tell may be misspelt, so for those about roles it is not needed.
 */
static bool
failed_is_candidate(const char *text, Size len)
{
	static const char *const verbs[] = {"alter", "create", NULL};
	static const char *const objects[] = {"group", "role", "user", NULL};
	Size		pos = 0;

	while (pos < len && !paq_mask_is_name_char(text[pos]))
	{
		if (text[pos] == '/' && pos + 1 < len && text[pos + 1] == '*')
		{
			const char *end = strstr(text + pos, "*/");

			if (end == NULL)
				break;
			pos = end + 1 - text;
		}
		pos++;
	}
	return (skip_word(text, len, &pos, verbs) &&
			skip_word(text, len, &pos, objects)) ||
		paq_mask_is_candidate(text, len);
}

/*
 * Whether a backslash in front of a quote belongs to it depends on a setting,
 * which may have been another one when the text was parsed.  If the text can
 * have been read in one way only, it was read in that.  Otherwise what is shown
 * must be right both ways: only bytes that are in literals either way are
 * replaced.
 */
static uint32
compare_readings(PaqMaskWork *work, PaqMaskText *text, uint32 reached)
{
	PaqMaskWork other_work = {0};
	PaqMaskText other;
	uint32		other_reached;
	const bool	possible = reached == text->len && !work->suspect;

	if (!begin_text(&other, text->data, text->len))
		return 0;
	other_work.conforming = !work->conforming;
	other_reached = paq_scan_text(&other_work, &other);
	if (other_reached < text->len || other_work.suspect)
		;
	else if (!possible)
	{
		for (uint32 i = 0; i < text->len; i++)
			text->marks[i] = other.marks[i] |
				(text->marks[i] & PAQ_MARK_PATTERN);
		*work = other_work;
		reached = other_reached;
	}
	else
	{
		for (uint32 i = 0; i < text->len; i++)
		{
			if ((other.marks[i] & PAQ_MARK_LITERAL) == 0)
				text->marks[i] &= ~(PAQ_MARK_SECRET | PAQ_MARK_LITERAL);
		}
	}
	pfree(other.marks);
	return reached;
}

/*
 * Mark literals and secrets in the text of a statement.  Returns false if some
 * literals had to be taken for secrets.
 */
static bool
find_secrets(PaqMaskWork *work, PaqMaskText *text, int options)
{
	uint32		reached = 0;

	if (options & PAQ_MASK_SCAN)
	{
		reached = paq_scan_text(work, text);
		if (strstr(text->data, "\\'") != NULL)
			reached = compare_readings(work, text, reached);
	}
	if (reached < text->len)
		paq_plain_mark(work, text, reached, PAQ_MARK_SECRET);
	return reached == text->len && !work->limited;
}

/* A text that may have something to hide, or has constants */
static void
analyse(const char *data, Size len, int options, bool candidate,
		PaqMasked *shown)
{
	PaqMaskWork work = {0};
	PaqMaskText text;
	bool		all = false;

	if (!begin_text(&text, data, len))
	{
		paq_render_beginning(data, len, standard_conforming_strings, shown);
		return;
	}
	work.conforming = standard_conforming_strings;
	if (!paq_mask_patterns_apply(&text))
	{
		paq_plain_mark(&work, &text, 0, PAQ_MARK_SECRET);
		all = true;
	}
	else if (candidate)
		all = !find_secrets(&work, &text, options);
	else if ((options & PAQ_MASK_CONSTANTS) ||
			 memchr(text.marks, PAQ_MARK_PATTERN, len) != NULL)
	{
		/* literals, and that they have no secrets */
		if (!find_secrets(&work, &text, options) &&
			(options & PAQ_MASK_CONSTANTS) == 0)
			paq_mask_unmark(&text, PAQ_MARK_SECRET);
	}
	if (options & PAQ_MASK_CONSTANTS)
		paq_render_constants(&text, work.max_param, work.conforming, shown);
	else
		paq_render_secrets(&text, work.conforming, shown);
	if (shown->text != data)
		shown->all |= all;
	pfree(text.marks);
}

/* Returns false if there are no seeds to be had. */
static bool
hash_text(const char *text, Size len, uint64 hash[2])
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
is_last(Size len, const uint64 hash[2], int options)
{
	return last.valid && last.text_len == len && last.options == options &&
		last.hash[0] == hash[0] && last.hash[1] == hash[1] &&
		last.version == paq_mask_patterns_version &&
		last.conforming == standard_conforming_strings;
}

/* A copy of a result's text; NULL when out of memory. */
static char *
copy_text(const PaqMasked *shown)
{
	char	   *copy = allocate(shown->len + 1, 0);

	if (copy != NULL)
		memcpy(copy, shown->copy, shown->len + 1);
	return copy;
}

/* Keep the result of an analysis. */
static void
keep_last(Size len, const uint64 hash[2], int options, const PaqMasked *shown)
{
	if (last.shown.copy != NULL)
		pfree(last.shown.copy);
	last.shown.copy = NULL;
	last.options = options;
	last.conforming = standard_conforming_strings;
	last.version = paq_mask_patterns_version;
	last.text_len = len;
	last.hash[0] = hash[0];
	last.hash[1] = hash[1];
	last.valid = !shown->cut && shown->len <= MAX_KEPT;
	if (last.valid && shown->copy != NULL)
	{
		last.shown = *shown;
		last.shown.copy = copy_text(shown);
		last.valid = last.shown.copy != NULL;
	}
}

/* As analyse(), unless it would be the same again. */
static void
analyse_again(const char *text, Size len, int options, bool candidate,
			  PaqMasked *shown)
{
	uint64		hash[2] = {0, 0};
	const bool	hashed = hash_text(text, len, hash);

	if (hashed && is_last(len, hash, options))
	{
		char	   *copy = last.shown.copy ? copy_text(&last.shown) : NULL;

		if (last.shown.copy == NULL)
			return;
		if (copy != NULL)
		{
			*shown = last.shown;
			shown->text = shown->copy = copy;
			return;
		}
	}
	analyse(text, len, options, candidate, shown);
	if (hashed)
		keep_last(len, hash, options, shown);
}

/* The text of a statement as it may be recorded; options are those of mask.h. */
void
paq_mask_text(const char *text, int options, PaqMasked *shown)
{
	const Size	len = strlen(text);
	const bool	usual = options == PAQ_MASK_SCAN;
	bool		candidate;

	show_unchanged(shown, text, len);
	if (unlikely(memo_version != paq_mask_patterns_version))
	{
		paq_mask_memo_clear();
		memo_version = paq_mask_patterns_version;
	}
	if (likely(usual && paq_mask_memo_find(text, len)))
		return;
	if (options & PAQ_MASK_SCAN)
		candidate = paq_mask_is_candidate(text, len);
	else
		candidate = failed_is_candidate(text, len);
	if (unlikely(candidate || (options & PAQ_MASK_CONSTANTS) ||
				 paq_mask_has_patterns()))
		analyse_again(text, len, options, candidate, shown);
	if (likely(usual && shown->text == text))
		paq_mask_memo_add(text, len);
}

/* ---------------------------------------------------------------------------
 * Values
 * ---------------------------------------------------------------------------
 */

/*
 * The same for a value that a statement is executed with.  Only some types
 * have values that can be more than a number, say.
 */
void
paq_mask_value(const char *value, bool is_text, PaqMasked *shown)
{
	const Size	len = strlen(value);
	PaqMaskWork work = {0};
	PaqMaskText text;
	bool		done;

	show_unchanged(shown, value, len);
	is_text = is_text && paq_mask_is_candidate(value, len);
	if (likely(!is_text && !paq_mask_has_patterns()))
		return;
	if (!begin_text(&text, value, len))
	{
		show_unchanged(shown, PAQ_REDACTED, strlen(PAQ_REDACTED));
		shown->all = true;
		return;
	}
	work.conforming = standard_conforming_strings;
	paq_mask_mark(&text, 0, len, PAQ_MARK_LITERAL);
	done = paq_mask_patterns_apply(&text) &&
		(!is_text || paq_scan_value(&work, &text));
	if (!done)
		paq_mask_mark(&text, 0, len, PAQ_MARK_SECRET);
	show_value(&text, shown);
	shown->all |= !done || work.limited;
	pfree(text.marks);
}

/*
 * Which parameters does a statement make values of settings that are, or may
 * be, secret?  Returns how many there are, or -1 if that cannot be told.  They
 * are palloc'ed.
 */
int
paq_mask_param_rules(const char *data, PaqParamRule **rules)
{
	PaqMaskWork work = {0};
	PaqMaskText text;
	const Size	len = strlen(data);
	uint32		reached;

	if (likely(!paq_mask_sets_config(data, len)))
		return 0;
	if (!begin_text(&text, data, len))
		return -1;
	work.conforming = standard_conforming_strings;
	work.want_rules = true;
	work.context = CurrentMemoryContext;
	reached = paq_scan_text(&work, &text);
	if (reached < len || work.suspect)
	{
		/* it was parsed with the other setting */
		work.conforming = !work.conforming;
		work.suspect = false;
		work.nrules = 0;
		reached = paq_scan_text(&work, &text);
	}
	pfree(text.marks);
	*rules = work.rules;
	return reached == len && !work.suspect ? work.nrules : -1;
}

/* ---------------------------------------------------------------------------
 * Messages of errors
 * ---------------------------------------------------------------------------
 */

/* Does the message have the bytes at pos?  Counts what it compares. */
static bool
has_bytes(const PaqMaskText *message, uint32 pos, const char *bytes,
		  uint32 len, uint64 *compared)
{
	uint32		same = 0;

	while (same < len && message->data[pos + same] == bytes[same])
		same++;
	*compared += same + 1;
	return same == len;
}

/*
 * Mark all places where the message quotes something secret.  A literal that is
 * all of the message is not quoted, but raised.
 */
static void
mark_quotations(PaqMaskText *message, const char *bytes, uint32 len,
				uint64 *compared)
{
	uint32		pos = 0;

	while (len > 0 && len < message->len && pos + len <= message->len &&
		   *compared <= MAX_COMPARED)
	{
		const uint32 end = pos + len;
		const bool	is_word =
			(pos == 0 || !paq_mask_is_name_char(message->data[pos - 1])) &&
			(end == message->len || !paq_mask_is_name_char(message->data[end]));

		if ((len >= MIN_PART_LEN || is_word) &&
			has_bytes(message, pos, bytes, len, compared))
		{
			paq_mask_mark(message, pos, end, PAQ_MARK_SECRET);
			pos = end;
		}
		else
		{
			pos++;
			(*compared)++;
		}
	}
}

/*
 * libpq quotes single words of a connection string that it cannot read: mark
 * those of its secrets.
 */
static void
mark_quoted_words(PaqMaskText *message, const char *bytes, uint32 len,
				  uint64 *compared)
{
	PaqMaskOutcome ignored = {0};
	PaqMaskText text;
	uint32		pos = 0;

	if (!paq_mask_is_candidate(bytes, len))
		return;
	if (!begin_text(&text, bytes, len))
	{
		*compared = MAX_COMPARED + 1;
		return;
	}
	paq_content_find(&text, true, &ignored);
	while (pos < len)
	{
		const uint32 start = pos;

		while (pos < len && (text.marks[pos] & PAQ_MARK_SECRET) != 0 &&
			   !paq_mask_is_space(bytes[pos]) && bytes[pos] != '\'')
			pos++;
		mark_quotations(message, bytes + start, pos - start, compared);
		pos = Max(pos, start + 1);
	}
	pfree(text.marks);
}

/*
 * Mark what the message quotes of the literals of a text, as they mean or as
 * they are written, and of those in them, depth literals deep.  If there is no
 * memory for that, it is as if too much had been compared.
 */
static void
mark_quoted_literals(PaqMaskText *message, const PaqMaskText *text, int depth,
					 uint64 *compared)
{
	const bool	conforming = standard_conforming_strings;
	char	   *data = allocate(text->len + 1, 0);
	uint32		pos = 0;
	PaqToken	token;

	if (data == NULL)
		*compared = MAX_COMPARED + 1;
	while (*compared <= MAX_COMPARED &&
		   paq_plain_next(text, &pos, conforming, &token))
	{
		PaqMaskText contents = {data};
		uint32		end = token.end;

		if (token.code != PAQ_TOKEN_SCONST)
			continue;
		contents.len = paq_literal_read(text, token.start, end, conforming, data);
		mark_quotations(message, data, contents.len, compared);
		mark_quoted_words(message, data, contents.len, compared);
		if (depth < PAQ_MASK_DEPTH && paq_mask_is_candidate(data, contents.len))
			mark_quoted_literals(message, &contents, depth + 1, compared);
		/* quotes that are doubled, or have a backslash, stay so */
		if (end > token.start + 1 && text->data[end - 1] == '\'')
			end--;
		mark_quotations(message, text->data + token.start + 1,
						end - token.start - 1, compared);
	}
	if (data != NULL)
		pfree(data);
}

/*
 * An error's message as it may be recorded.  statement is the text of the
 * statement that failed, NULL if unknown: if that may have secrets, its
 * literals are masked where the message quotes them.  For use while the error
 * is being handled.
 */
void
paq_mask_message(const char *message, const char *statement, PaqMasked *shown)
{
	const Size	len = strlen(message);
	const bool	quotes = statement != NULL &&
		failed_is_candidate(statement, strlen(statement));
	PaqMaskOutcome ignored = {0};
	PaqMaskText text;
	uint64		compared = 0;

	show_unchanged(shown, message, len);
	if (!quotes && !paq_mask_is_candidate(message, len) && !paq_mask_has_patterns())
		return;
	if (!begin_text(&text, message, len))
	{
		show_unchanged(shown, PAQ_REDACTED, strlen(PAQ_REDACTED));
		shown->all = true;
		return;
	}
	paq_mask_mark(&text, 0, len, PAQ_MARK_LITERAL);
	paq_content_find(&text, false, &ignored);
	paq_content_assignments(&text, false);
	if (quotes)
	{
		const PaqMaskText quoted = {statement, strlen(statement), NULL};

		mark_quoted_literals(&text, &quoted, 0, &compared);
	}
	if (!paq_mask_patterns_apply(&text) || compared > MAX_COMPARED)
	{
		paq_mask_mark(&text, 0, len, PAQ_MARK_SECRET);
		shown->all = true;
	}
	show_value(&text, shown);
	pfree(text.marks);
}
