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
 *	literal.c		finding literals, and reading their contents
 *	names.c			names of secrets
 *	pattern.c		what mask_patterns matches
 *	render.c		the text without what was found
 *
 * A text without one of a dozen words goes as it is, after one pass over its
 * bytes, or a comparison if it has been seen before.  The others are scanned.
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

/* A secret shorter than this is looked for in messages as a word only. */
#define MIN_PART_LEN	4

/*
 * Literals in each other that messages may quote, and their length; each takes
 * memory.
 */
#define MAX_MESSAGE_DEPTH	6
#define MAX_MESSAGE_NESTED	(1024 * 1024)

/* Most bytes to compare while looking for secrets in a message */
#define MAX_COMPARED	UINT64CONST(100000000)

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

static void
show_nothing(PaqMasked *shown)
{
	show_unchanged(shown, PAQ_REDACTED, strlen(PAQ_REDACTED));
	shown->all = true;
}

/* ---------------------------------------------------------------------------
 * Texts of statements
 * ---------------------------------------------------------------------------
 */

/*
 * May the text of a statement that failed have a secret?  The word that would
 * tell may be misspelt, so for those about roles it is not needed.
 */
static bool
failed_is_candidate(const char *text, Size len)
{
	static const char *const words[][4] = {
		{"alter", "create", NULL}, {"group", "role", "user", NULL}
	};
	const char *pos = text;
	int			found = 0;

	while (*pos != '\0' && found < lengthof(words))
	{
		const char *start = pos;

		while (paq_mask_is_name_char(*pos))
			pos++;
		if (strncmp(pos, "/*", 2) == 0 && strstr(pos, "*/") == NULL)
			break;
		if (strncmp(pos, "--", 2) == 0)
			pos += strcspn(pos, "\r\n");
		else if (pos == start)
			pos = *pos == '/' && pos[1] == '*' ? strstr(pos, "*/") + 2 : pos + 1;
		else if (!paq_mask_word_in(start, pos - start, words[found++]))
			break;
		else if (found == lengthof(words))
			return true;
	}
	return paq_mask_is_candidate(text, len);
}

/*
 * Find literals and secrets in a text that has been read with that setting of
 * standard_conforming_strings.  Unless it is a candidate, it has no secrets.
 */
static void
read_text(PaqMaskWork *work, PaqMaskText *text, int options, bool candidate)
{
	uint32		reached = 0;

	if (options & PAQ_MASK_SCAN)
	{
		reached = paq_scan(work, text, true);
		work->suspect |= reached < text->len;
	}
	if (reached < text->len)
	{
		paq_plain_mark(work, text, reached, candidate ? PAQ_MARK_SECRET : 0);
		work->limited |= candidate;
	}
}

/*
 * What is shown of a text that can be read in two ways must be right both ways:
 * only what is to be replaced both ways is, and neither quotes nor what belongs to
 * escapes, of which it cannot be told.  Returns false if the literals are the same,
 * so that there is only one way.
 */
static bool
intersect(PaqMaskText *text, const PaqMaskText *other)
{
	bool		differ = false;

	for (uint32 i = 0; i < text->len && !differ; i++)
		differ = ((text->marks[i] ^ other->marks[i]) & ~PAQ_MARK_SECRET) != 0;
	for (uint32 i = 0; i < text->len && differ; i++)
	{
		const uint8 either = text->marks[i] | other->marks[i];

		text->marks[i] &= other->marks[i];
		if ((either & PAQ_MARK_NEXT) != 0 || strchr("'\\", text->data[i]) != NULL ||
			((either ^ text->marks[i]) & PAQ_MARK_DIGIT) != 0)
			text->marks[i] = 0;
	}
	return differ;
}

/*
 * Whether a backslash in front of a quote belongs to it depends on a setting,
 * which may have been another one when the text was parsed.  If it can have been
 * read in one way only, it was read in that.  A text that failed may make sense in
 * neither; then the setting as it is now decides.  Returns false if there is no
 * memory.
 */
static bool
read_both_ways(PaqMaskWork *work, PaqMaskText *text, int options,
			   bool candidate, bool *ambiguous)
{
	PaqMaskWork other_work = {.conforming = !work->conforming};
	PaqMaskText other = {0};

	if (strstr(text->data, "\\'") != NULL)
	{
		if (!begin_text(&other, text->data, text->len))
			return false;
		memcpy(other.marks, text->marks, text->len);
		read_text(&other_work, &other, options, candidate);
	}
	read_text(work, text, options, candidate);
	if (other.marks == NULL)
		return true;
	if (work->suspect && !other_work.suspect && (options & PAQ_MASK_SCAN))
	{
		memcpy(text->marks, other.marks, text->len);
		*work = other_work;
	}
	else if (!work->suspect && !other_work.suspect)
	{
		*ambiguous = intersect(text, &other);
		work->limited |= other_work.limited;
	}
	pfree(other.marks);
	return true;
}

/* A text that may have something to hide, or has constants */
static void
analyse(const char *data, Size len, int options, bool candidate,
		PaqMasked *shown)
{
	PaqMaskWork work = {.conforming = standard_conforming_strings};
	bool		constants = (options & PAQ_MASK_CONSTANTS) != 0;
	bool		ambiguous = false;
	bool		done = true;
	PaqMaskText text;

	if (!begin_text(&text, data, len))
	{
		paq_render_beginning(data, len, work.conforming, shown);
		return;
	}
	if (!paq_mask_patterns_apply(&text))
	{
		/* nobody knows what they would have matched */
		options &= ~PAQ_MASK_SCAN;
		candidate = true;
	}
	if (candidate || constants || memchr(text.marks, PAQ_MARK_SECRET, len) != NULL)
		done = read_both_ways(&work, &text, options, candidate, &ambiguous);
	if (constants && ambiguous)
	{
		/* which of them have places cannot be told either */
		paq_mask_mark(&text, 0, len, PAQ_MARK_SECRET);
		constants = false;
		work.limited = true;
	}
	if (done)
		done = paq_render(&text, constants ? work.max_param : -1, shown);
	if (!done)
		paq_render_beginning(data, len, work.conforming, shown);
	else if (shown->text != data)
		shown->all |= work.limited;
	pfree(text.marks);
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
		analyse(text, len, options, candidate, shown);
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
		show_nothing(shown);
		return;
	}
	work.conforming = standard_conforming_strings;
	paq_mask_mark(&text, 0, len, PAQ_MARK_LITERAL);
	done = paq_mask_patterns_apply(&text) &&
		(!is_text || paq_scan(&work, &text, false) == len);
	if (!done)
		paq_mask_mark(&text, 0, len, PAQ_MARK_SECRET);
	shown->all = !done || work.limited;
	if (!paq_render(&text, -1, shown))
		show_nothing(shown);
	pfree(text.marks);
}

/*
 * Which parameters does a statement make values of settings that are, or may
 * be, secret?  The list, palloc'ed, has two integers for each: the parameter with
 * the setting's name, or 0 if that is known to be a secret one, and the parameter
 * with its value.  Returns false if it cannot be told.
 */
bool
paq_mask_param_rules(const char *data, List **rules)
{
	PaqMaskWork work = {.conforming = standard_conforming_strings};
	PaqMaskText text;
	const Size	len = strlen(data);
	bool		done = false;

	*rules = NIL;
	if (likely(!paq_mask_sets_config(data, len)))
		return true;
	if (!begin_text(&text, data, len))
		return false;
	work.want_rules = true;
	work.context = CurrentMemoryContext;
	/* it may have been parsed with the other setting */
	for (int i = 0; i < 2 && !done; i++)
	{
		work.rules = NIL;
		work.suspect = false;
		done = paq_scan(&work, &text, true) == len && !work.suspect;
		work.conforming = !work.conforming;
	}
	pfree(text.marks);
	*rules = work.rules;
	return done;
}

/* ---------------------------------------------------------------------------
 * Messages of errors
 * ---------------------------------------------------------------------------
 */

/*
 * Mark all places where the message quotes something secret; counts what it
 * compares.  A literal that is all of the message is not quoted, but raised.
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

		*compared += message->data[pos] == *bytes ? len : 1;
		if ((len >= MIN_PART_LEN || is_word) && message->data[pos] == *bytes &&
			memcmp(message->data + pos, bytes, len) == 0)
		{
			paq_mask_mark(message, pos, end, PAQ_MARK_SECRET);
			pos = end;
		}
		else
			pos++;
	}
}

/*
 * Mark what the message quotes of the literals of a text, as they mean or as
 * they are written, and of those in them, depth literals deep.  If they are too
 * many, too long or there is no memory, it is as if too much had been compared.
 */
static void
mark_quoted_literals(PaqMaskText *message, const PaqMaskText *text, int depth,
					 uint64 *compared)
{
	const bool	conforming = standard_conforming_strings;
	char	   *data = allocate(text->len + 1, 0);
	PaqMaskText contents = {data};
	uint32		pos = 0;
	PaqToken	token;

	if (data == NULL)
		*compared = MAX_COMPARED + 1;
	while (*compared <= MAX_COMPARED &&
		   paq_plain_next(text, &pos, conforming, &token))
	{
		if (token.code != PAQ_TOKEN_SCONST)
			continue;
		contents.len = paq_literal(text, &token, conforming, 0, NULL, data);
		mark_quotations(message, data, contents.len, compared);
		if (!paq_mask_is_candidate(data, contents.len))
			;
		else if (depth < MAX_MESSAGE_DEPTH && contents.len <= MAX_MESSAGE_NESTED)
			mark_quoted_literals(message, &contents, depth + 1, compared);
		else
			*compared = MAX_COMPARED + 1;
		/* quotes that are doubled, or have a backslash, stay so */
		if (token.end > token.start + 1 && text->data[token.end - 1] == '\'')
			token.end--;
		mark_quotations(message, text->data + token.start + 1,
						token.end - token.start - 1, compared);
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
	PaqMaskText text;
	uint64		compared = 0;

	show_unchanged(shown, message, len);
	if (!quotes && !paq_mask_is_candidate(message, len) && !paq_mask_has_patterns())
		return;
	if (!begin_text(&text, message, len))
	{
		show_nothing(shown);
		return;
	}
	paq_mask_mark(&text, 0, len, PAQ_MARK_LITERAL);
	(void) paq_content_find(&text, PAQ_CONTENT_ANY);
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
	if (!paq_render(&text, -1, shown))
		show_nothing(shown);
	pfree(text.marks);
}
