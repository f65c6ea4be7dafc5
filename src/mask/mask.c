/*-------------------------------------------------------------------------
 *
 * mask.c
 *		Masking of texts, values and messages.
 *
 * File map:
 *
 *	mask.c			what is done with which text; replacing what is found
 *	words.c			names of secrets; the filter, which tells quickly that a
 *					text has none
 *	literal.c		literals, read byte by byte; found without a scanner
 *	scan.c			PostgreSQL's scanner on a text and on its literals
 *	rules.c			which literals are secret: rules over tokens
 *	content.c		secrets in literals that are not SQL; mask_patterns
 *
 * A text that the filter lets pass is recorded as it is.  Any other is scanned.
 * Texts that turned out to have no secret are remembered, up to a length, so that
 * most of the time a comparison is all.
 *
 * Where the scanner may not be called, and where it fails, it cannot be known
 * which of the literals is a secret, so all of them are treated as secrets.
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

#include "access/parallel.h"
#include "compat.h"
#include "guc.h"
#include "mask/mask_internal.h"
#include "mb/pg_wchar.h"
#include "utils/memutils.h"

/* $1 and its like, with a space on each side */
#define PLACE_SIZE		16

/* What is shown of a text if there is no memory for a copy */
#define BEGINNING_LEN	4096

/* A literal has two quotes: this is how much longer one of one byte can become. */
#define MAX_GROWTH		4

/* A secret shorter than this is looked for in messages as a word only. */
#define MIN_PART_LEN	4

/* A message that is cut is looked at so many bytes beyond the cut. */
#define CUT_MARGIN		4096

/* Most bytes to compare while looking for secrets in a message */
#define MAX_COMPARED	UINT64CONST(100000000)

/* Texts that are remembered, by a hash */
#define MEMO_SLOTS		64
#define MEMO_MIN_LEN	16		/* shorter ones are looked at again */
#define MEMO_MAX_LEN	1000
#define MEMO_SAMPLES	8

#define HASH_FACTOR		UINT64CONST(0x9E3779B97F4A7C15)

/* A text that has nothing to hide */
typedef struct Memo
{
	uint32		len;			/* 0: none */
	uint32		version;		/* of mask_patterns at that time */
	char		text[MEMO_MAX_LEN];
} Memo;

static Memo memos[MEMO_SLOTS];

/* Where a text goes, or with data NULL only its length */
typedef struct Output
{
	char	   *data;
	Size		len;
} Output;

static void *
allocate_memory(Size size, int flags)
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
	text->marks = allocate_memory(len + 1, MCXT_ALLOC_ZERO);
	return text->marks != NULL;
}

/* Returns true if an interrupt may be served where the text is masked with these options. */
static inline bool
may_raise(int options)
{
	return (options & PAQ_MASK_SCAN) != 0 && INTERRUPTS_CAN_BE_PROCESSED();
}

/*
 * Mark what mask_patterns matches.  Returns false if nobody knows what that is.  If an interrupt
 * raises an error, the marks are freed.
 */
static bool
mark_patterns(PaqMaskText *text, int options)
{
	volatile bool done = false;

	if (likely(*paq_mask_patterns == '\0'))
		return true;
	PG_TRY();
	{
		done = paq_content_patterns(text, may_raise(options));
	}
	PG_CATCH();
	{
		pfree(text->marks);
		PG_RE_THROW();
	}
	PG_END_TRY();
	return done;
}

/*
 * Returns true if the text is to be given up, and has freed its marks then.  If the interrupt that
 * is the reason may be served here, it is: the statement does not go on.
 */
static bool
give_up_text(const PaqMaskWork *work, PaqMaskText *text, int options)
{
	if (likely(!paq_mask_is_interrupted(work, text)))
		return false;
	pfree(text->marks);
	if (may_raise(options))
		CHECK_FOR_INTERRUPTS();
	return true;
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

/* ---------------------------------------------------------------------------
 * Replacing what is marked
 *
 * Only bytes of literals' contents, and digits of numbers, are ever replaced,
 * so that the tokens of the text stay what they are.
 * ---------------------------------------------------------------------------
 */

static void
put(Output *output, const char *bytes, Size len)
{
	if (output->data != NULL)
		memcpy(output->data + output->len, bytes, len);
	output->len += len;
}

/*
 * The text without its secrets; returns whether it had any.  Bytes that belong
 * together are replaced together.  A digit of a number becomes a zero: it stays a
 * number, and can become part of no other token.
 */
static bool
put_secrets(Output *output, const PaqMaskText *text)
{
	bool		replaced = false;
	bool		in_secret = false;
	uint32		pos = 0;

	while (pos < text->len)
	{
		const uint32 start = pos;
		const uint8 first = text->marks[start];
		const bool	digit = (first & PAQ_MARK_DIGIT) != 0;
		uint8		marks = 0;
		bool		secret;

		do
			marks |= text->marks[pos++];
		while (pos < text->len && (text->marks[pos] & PAQ_MARK_NEXT) != 0);
		secret = (first & PAQ_MARK_LITERAL) != 0 && (marks & PAQ_MARK_SECRET) != 0;
		if (!secret)
			put(output, text->data + start, pos - start);
		else if (digit)
			put(output, "0", 1);
		else if (!in_secret)
			put(output, PAQ_REDACTED, strlen(PAQ_REDACTED));
		in_secret = secret && !digit;
		replaced |= secret;
	}
	return replaced;
}

/* Can the byte at pos be part of a word? */
static bool
is_word(const PaqMaskText *text, uint32 pos)
{
	return pos < text->len && (paq_mask_is_name_char(text->data[pos]) ||
							   text->data[pos] == '$');
}

/*
 * The text with places in it instead of constants, from $number + 1 on.  A place
 * is no part of a word.
 */
static void
put_constants(Output *output, const PaqMaskText *text, int number)
{
	uint32		pos = 0;

	while (pos < text->len)
	{
		const uint32 start = pos;
		const bool	constant = (text->marks[pos] & PAQ_MARK_FIRST) != 0;
		char		place[PLACE_SIZE];

		do
			pos++;
		while (pos < text->len && (text->marks[pos] & PAQ_MARK_FIRST) == 0 &&
			   (!constant || (text->marks[pos] & PAQ_MARK_TOKEN) != 0));
		if (constant)
			put(output, place,
				snprintf(place, sizeof(place), "%s$%d%s",
						 start > 0 && is_word(text, start - 1) ? " " : "",
						 ++number, is_word(text, pos) ? " " : ""));
		else
			put(output, text->data + start, pos - start);
	}
}

/*
 * Show the text with places instead of constants, behind those up to
 * $max_param, or if that is negative, without its secrets; if it has none, shown
 * is left alone.  Returns false if there is no memory.
 */
static bool
render(const PaqMaskText *text, int max_param, PaqMasked *shown)
{
	Output		output = {0};

	/* first the length, then the text */
	for (int i = 0; i < 2; i++)
	{
		if (max_param >= 0)
			put_constants(&output, text, max_param);
		else if (!put_secrets(&output, text))
			return true;
		if (i == 0)
		{
			output.data = allocate_memory(output.len + 1, 0);
			if (output.data == NULL)
				return false;
			output.len = 0;
		}
	}
	output.data[output.len] = '\0';
	shown->text = shown->copy = output.data;
	shown->len = output.len;
	return true;
}

uint8		paq_mask_parsed_with = 0;

void
paq_mask_note_first_parse(uint8 bit)
{
	paq_mask_parsed_with |= bit;
	/* What had nothing to hide in one way may have something in the other. */
	memset(memos, 0, sizeof(memos));
}

/*
 * Returns true if a text may have been parsed with another value of standard_conforming_strings
 * than there is now.  What the leader of a parallel worker has parsed is not known.
 */
static bool
may_be_parsed_otherwise(void)
{
	return paq_backslash_is_ambiguous() &&
		((paq_mask_parsed_with & PAQ_PARSED_WITH(!paq_strings_conform())) != 0 ||
		 IsParallelWorker());
}

/*
 * The first place that may be read in two ways, see read_both_ways(): a backslash in front of a
 * quote, or a literal U&'...', which PostgreSQL reads only with standard_conforming_strings on.
 */
static const char *
find_ambiguous(const char *text)
{
	const char *backslash;
	const char *unicode;

	if (!may_be_parsed_otherwise())
		return NULL;
	backslash = strstr(text, "\\'");
	for (unicode = strstr(text, "&'"); unicode != NULL; unicode = strstr(unicode + 1, "&'"))
		if (unicode > text && (unicode[-1] == 'U' || unicode[-1] == 'u'))
			break;
	if (unicode == NULL)
		return backslash;
	return backslash == NULL || unicode < backslash ? unicode - 1 : backslash;
}

/*
 * There is no memory, or the text is given up: show its beginning with all literals masked.
 * It is valid until this is called the next time.
 */
static void
show_beginning(const char *data, Size len, PaqMasked *shown)
{
	static uint8 marks[BEGINNING_LEN];
	static char beginning[BEGINNING_LEN * MAX_GROWTH + 1];
	const char *ambiguous = find_ambiguous(data);
	PaqMaskText text = {data, Min(len, BEGINNING_LEN), marks};
	PaqMaskWork work = {.conforming = paq_strings_conform()};
	Output		output = {beginning, 0};

	/* what follows can be read in two ways */
	if (ambiguous != NULL)
		text.len = Min(text.len, ambiguous - data);
	memset(marks, 0, sizeof(marks));
	paq_plain_mark(&work, &text, 0, PAQ_MARK_SECRET);
	paq_mask_mark(&text, 0, text.len, PAQ_MARK_SECRET);
	(void) put_secrets(&output, &text);
	beginning[output.len] = '\0';
	show_unchanged(shown, beginning, output.len);
	shown->all = true;
	shown->cut = true;
}

/* ---------------------------------------------------------------------------
 * Texts of statements
 * ---------------------------------------------------------------------------
 */

/* Does the text begin as a statement about a role does? */
static bool
concerns_role(const char *data, Size len)
{
	static const char *const words[][4] = {
		{"alter", "create", NULL}, {"group", "role", "user", NULL}
	};
	const PaqMaskText text = {data, len, NULL};
	uint32		pos = 0;

	for (int i = 0; i < lengthof(words); i++)
	{
		uint32		start;

		while (pos < len && !paq_mask_is_name_char(data[pos]))
			pos = Max(paq_comment_end(&text, pos), pos + 1);
		start = pos;
		while (pos < len && paq_mask_is_name_char(data[pos]))
			pos++;
		if (!paq_mask_word_in(data + start, pos - start, words[i]))
			return false;
	}
	return true;
}

/*
 * May the text of a statement that failed have a secret?  In one about a role,
 * the word that would tell may be misspelt.
 */
static bool
failed_is_candidate(const char *text, Size len)
{
	return paq_mask_is_candidate(text, len) || concerns_role(text, len);
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
 * What is shown of a text that can be read in two ways must be right both ways: what is to be
 * replaced in one of them is, if it is in a literal in both; neither quotes nor parts of escapes
 * are, which may be something else in the other reading.  Returns false if the literals are the
 * same, so that there is only one way.
 */
static bool
intersect(PaqMaskWork *work, PaqMaskText *text, const PaqMaskText *other)
{
	bool		differ = false;

	for (uint32 i = 0; i < text->len && !differ; i++)
		differ = ((text->marks[i] ^ other->marks[i]) & ~PAQ_MARK_SECRET) != 0;
	for (uint32 i = 0; i < text->len && differ; i++)
	{
		const uint8 either = text->marks[i] | other->marks[i];
		const uint8 both = text->marks[i] & other->marks[i];

		text->marks[i] = both;
		if ((both & PAQ_MARK_LITERAL) != 0 && ((either ^ both) & PAQ_MARK_SECRET) != 0)
		{
			text->marks[i] |= PAQ_MARK_SECRET;
			work->limited = true;
		}
		if ((either & PAQ_MARK_NEXT) != 0 || strchr("'\\", text->data[i]) != NULL ||
			((either ^ text->marks[i]) & PAQ_MARK_DIGIT) != 0)
			text->marks[i] = 0;
	}
	return differ;
}

/*
 * Whether a backslash in front of a quote belongs to it depends on a setting,
 * which may have been another one when the text was parsed.  If the text makes
 * sense in one way only, it was read in that.  A text that failed may make sense in
 * neither; then the setting as it is now decides.  Returns false if there is no
 * memory.
 */
static bool
read_both_ways(PaqMaskWork *work, PaqMaskText *text, int options,
			   bool candidate, bool *ambiguous)
{
	PaqMaskWork other_work = {
		.conforming = !work->conforming, .may_give_up = work->may_give_up
	};
	PaqMaskText other = {0};

	if (find_ambiguous(text->data) != NULL)
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
		*ambiguous = intersect(work, text, &other);
		work->limited |= other_work.limited;
	}
	pfree(other.marks);
	return true;
}

/* Show a text that may have something to hide, or has constants. */
static void
show_text(const char *data, Size len, int options, bool candidate,
		  PaqMasked *shown)
{
	PaqMaskWork work = {
		.conforming = paq_strings_conform(), .may_give_up = (options & PAQ_MASK_WHOLE) == 0
	};
	bool		constants = (options & PAQ_MASK_CONSTANTS) != 0;
	bool		ambiguous = false;
	bool		done = true;
	PaqMaskText text;

	if (!begin_text(&text, data, len))
	{
		show_beginning(data, len, shown);
		return;
	}

	/* If an interrupt is served, nothing must be taken for what may be shown. */
	shown->text = NULL;
	if (!mark_patterns(&text, options))
	{
		/* nobody knows what they would have matched */
		options &= ~PAQ_MASK_SCAN;
		candidate = true;
	}
	if (candidate || constants || memchr(text.marks, PAQ_MARK_SECRET, len) != NULL)
		done = read_both_ways(&work, &text, options, candidate, &ambiguous);
	if (give_up_text(&work, &text, options))
	{
		show_beginning(data, len, shown);
		return;
	}
	shown->text = data;
	if (constants && ambiguous)
	{
		/* which constants are replaced by which places is ambiguous, too */
		paq_mask_mark(&text, 0, len, PAQ_MARK_SECRET);
		constants = false;
		work.limited = true;
	}
	if (!done || !render(&text, constants ? work.max_param : -1, shown))
		show_beginning(data, len, shown);
	else if (shown->text != data)
		shown->all |= work.limited;
	pfree(text.marks);
}

/*
 * Where a text may be remembered, NULL if it has another length: a slot by a
 * hash of all of its bytes if they are few, else of samples.
 */
static Memo *
memo_slot(const char *text, Size len)
{
	const uint32 last = len - sizeof(uint64);
	const uint32 step = Max(sizeof(uint64), len / MEMO_SAMPLES);
	uint64		hash = len;
	uint64		word;

	if (len < MEMO_MIN_LEN || len > MEMO_MAX_LEN)
		return NULL;
	for (uint32 pos = 0; pos < last; pos += step)
	{
		memcpy(&word, text + pos, sizeof(word));
		hash = (hash ^ word) * HASH_FACTOR;
	}
	memcpy(&word, text + last, sizeof(word));
	hash = (hash ^ (hash >> 32) ^ word) * HASH_FACTOR;
	return &memos[(hash >> 32) % MEMO_SLOTS];
}

/* The text of a statement as it may be recorded; options are those of mask.h. */
void
paq_mask_text(const char *text, int options, PaqMasked *shown)
{
	const Size	len = strlen(text);
	Memo	   *memo = options == PAQ_MASK_SCAN ? memo_slot(text, len) : NULL;
	bool		candidate;

	show_unchanged(shown, text, len);
	if (likely(memo != NULL && memo->len == len &&
			   memo->version == paq_mask_patterns_version &&
			   memcmp(memo->text, text, len) == 0))
		return;
	if (options & PAQ_MASK_SCAN)
		candidate = paq_mask_is_candidate(text, len);
	else
		candidate = failed_is_candidate(text, len);
	if (unlikely(candidate || (options & PAQ_MASK_CONSTANTS) ||
				 *paq_mask_patterns != '\0'))
		show_text(text, len, options, candidate, shown);
	if (likely(memo != NULL && shown->text == text))
	{
		memo->len = len;
		memo->version = paq_mask_patterns_version;
		memcpy(memo->text, text, len);
	}
}

/* ---------------------------------------------------------------------------
 * Values
 * ---------------------------------------------------------------------------
 */

static void
show_nothing(PaqMasked *shown)
{
	show_unchanged(shown, PAQ_REDACTED, strlen(PAQ_REDACTED));
	shown->all = true;
}

/* Marks for a value or a message, all of which is as good as one literal */
static bool
begin_literal(PaqMaskText *text, const char *data, Size len, PaqMasked *shown)
{
	if (!begin_text(text, data, len))
	{
		show_nothing(shown);
		return false;
	}
	paq_mask_mark(text, 0, len, PAQ_MARK_LITERAL);
	return true;
}

/* Show it, nothing of it if it is not known which parts are secrets. */
static void
end_literal(PaqMaskText *text, bool known, PaqMasked *shown)
{
	if (!known)
		paq_mask_mark(text, 0, text->len, PAQ_MARK_SECRET);
	shown->all = !known;
	if (!render(text, -1, shown))
		show_nothing(shown);
	pfree(text->marks);
}

/*
 * A value that a statement is executed with, as it may be recorded.  Only a value
 * of some types can be more than a number, say; is_text tells.  options are those of mask.h.
 */
void
paq_mask_value(const char *value, bool is_text, int options, PaqMasked *shown)
{
	const Size	len = strlen(value);
	PaqMaskWork work = {.conforming = paq_strings_conform(), .may_give_up = true};
	PaqMaskText text;
	bool		known;

	show_unchanged(shown, value, len);
	is_text = is_text && paq_mask_is_candidate(value, len);
	if (likely(!is_text && *paq_mask_patterns == '\0') ||
		!begin_literal(&text, value, len, shown))
		return;
	known = mark_patterns(&text, options) &&
		(!is_text || paq_scan(&work, &text, false) == len);
	if (give_up_text(&work, &text, options))
	{
		show_nothing(shown);
		return;
	}
	end_literal(&text, known, shown);
	shown->all |= work.limited;
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
	PaqMaskWork work = {.conforming = paq_strings_conform()};
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
	for (int i = 0; i < (may_be_parsed_otherwise() ? 2 : 1) && !done; i++)
	{
		work.rules = NIL;
		work.suspect = false;
		if (i > 0)
			work.conforming = !work.conforming;
		done = paq_scan(&work, &text, true) == len && !work.suspect;
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
	const bool	conforming = paq_strings_conform();
	char	   *data = allocate_memory(text->len + 1, 0);
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
		contents.len = paq_literal_read(text, &token, conforming, data);
		mark_quotations(message, data, contents.len, compared);
		if (!paq_mask_is_candidate(data, contents.len))
			;
		else if (depth < PAQ_MASK_MAX_DEPTH && contents.len <= PAQ_MASK_MAX_NESTED)
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
 *
 * Of a message that is longer than PAQ_MASK_UNINTERRUPTED, the beginning is shown.  What
 * mask_patterns matches is recognized there if it ends within CUT_MARGIN bytes behind that.
 */
void
paq_mask_message(const char *message, const char *statement, PaqMasked *shown)
{
	const Size	len = strlen(message);
	const bool	cut = len > PAQ_MASK_UNINTERRUPTED;
	const bool	quotes = statement != NULL &&
		failed_is_candidate(statement, strlen(statement));
	PaqMaskText text;
	PaqMaskText beginning;
	uint64		compared = 0;
	bool		known;

	show_unchanged(shown, message, len);
	if ((!cut && !quotes && !paq_mask_is_candidate(message, len) &&
		 *paq_mask_patterns == '\0') ||
		!begin_literal(&text, message, len, shown))
		return;
	(void) paq_content_find(&text, PAQ_CONTENT_ANY);
	paq_content_assignments(&text, false);
	if (quotes)
	{
		const PaqMaskText quoted = {statement, strlen(statement), NULL};

		mark_quoted_literals(&text, &quoted, 0, &compared);
	}
	beginning = text;
	if (cut)
	{
		beginning.len = pg_mbcliplen(message, len, PAQ_MASK_UNINTERRUPTED);
		text.len = pg_mbcliplen(message, len, PAQ_MASK_UNINTERRUPTED - CUT_MARGIN);
	}
	known = mark_patterns(&beginning, 0) && compared <= MAX_COMPARED;
	end_literal(&text, known, shown);
	shown->cut = cut;
	if (!cut || shown->text != message)
		return;

	/* It has no secret, but it goes on behind its beginning. */
	shown->copy = allocate_memory(text.len + 1, 0);
	if (shown->copy == NULL)
	{
		show_nothing(shown);
		return;
	}
	memcpy(shown->copy, message, text.len);
	shown->copy[text.len] = '\0';
	shown->text = shown->copy;
	shown->len = text.len;
}
