/*-------------------------------------------------------------------------
 *
 * render.c
 *		A text without what its marks say is secret, or without its constants.
 *
 * This is where bytes are replaced, and it is the one place: only those of a
 * literal's contents, and digits of numbers, so that the tokens of the text stay
 * what they are.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"
#include "utils/memutils.h"

/* $1 and its like, with a space on each side */
#define PLACE_SIZE		16

/* What is shown of a text without memory for a copy */
#define BEGINNING_LEN	4096

/* A literal has two quotes: this is how much longer one of one byte can become. */
#define MAX_GROWTH		4

/* Where a text goes, or with data NULL only its length */
typedef struct Output
{
	char	   *data;
	Size		len;
} Output;

static void
put(Output *output, const char *bytes, Size len)
{
	if (output->data != NULL)
		memcpy(output->data + output->len, bytes, len);
	output->len += len;
}

/*
 * The bytes at *pos that can only be replaced together.  Moves *pos behind them;
 * returns whether they are to be replaced.
 */
static bool
next_unit(const PaqMaskText *text, uint32 *pos)
{
	const bool	literal = (text->marks[*pos] & PAQ_MARK_LITERAL) != 0;
	uint8		marks = 0;

	do
		marks |= text->marks[(*pos)++];
	while (*pos < text->len && (text->marks[*pos] & PAQ_MARK_NEXT) != 0);
	return literal && (marks & PAQ_MARK_SECRET) != 0;
}

/*
 * The text without its secrets; returns whether it had any.  A digit of a number
 * becomes a zero: it stays a number, and can become part of no other token.
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
		const bool	secret = next_unit(text, &pos);
		const bool	digit = (text->marks[start] & PAQ_MARK_DIGIT) != 0;

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

/* Either of them.  Returns whether anything is replaced. */
static bool
put_text(Output *output, const PaqMaskText *text, int max_param)
{
	if (max_param < 0)
		return put_secrets(output, text);
	put_constants(output, text, max_param);
	return true;
}

/*
 * Show the text with places instead of constants, behind those up to
 * $max_param, or if that is negative, without its secrets; if it has none, shown
 * is left alone.  Returns false if there is no memory.
 */
bool
paq_render(const PaqMaskText *text, int max_param, PaqMasked *shown)
{
	Output		output = {0};

	if (!put_text(&output, text, max_param))
		return true;
	output.data = MemoryContextAllocExtended(TopMemoryContext, output.len + 1,
											 MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
	if (output.data == NULL)
		return false;
	output.len = 0;
	(void) put_text(&output, text, max_param);
	output.data[output.len] = '\0';
	shown->text = shown->copy = output.data;
	shown->len = output.len;
	return true;
}

/*
 * There is no memory: show the beginning of the text, of which no literal may be
 * seen.  It is there until this is called the next time.
 */
void
paq_render_beginning(const char *data, Size len, bool conforming,
					 PaqMasked *shown)
{
	static uint8 marks[BEGINNING_LEN];
	static char beginning[BEGINNING_LEN * MAX_GROWTH + 1];
	const char *ambiguous = strstr(data, "\\'");
	PaqMaskText text = {data, Min(len, BEGINNING_LEN), marks};
	PaqMaskWork work = {.conforming = conforming};
	Output		output = {beginning, 0};

	/* what follows can be read in two ways */
	if (ambiguous != NULL)
		text.len = Min(text.len, ambiguous - data);
	memset(marks, 0, sizeof(marks));
	paq_plain_mark(&work, &text, 0, PAQ_MARK_SECRET);
	paq_mask_mark(&text, 0, text.len, PAQ_MARK_SECRET);
	(void) put_secrets(&output, &text);
	beginning[output.len] = '\0';
	shown->text = beginning;
	shown->len = output.len;
	shown->copy = NULL;
	shown->all = true;
	shown->cut = true;
}
