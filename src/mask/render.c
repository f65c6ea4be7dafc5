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

/* What can be shown of a text without memory for a copy */
#define BEGINNING_SIZE	8192

/* $1 and its like, with a space on each side */
#define PLACE_SIZE		16

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

static void
put_string(Output *output, const char *string)
{
	put(output, string, strlen(string));
}

void
paq_mask_unmark(PaqMaskText *text, uint8 mark)
{
	for (uint32 i = 0; i < text->len; i++)
		text->marks[i] &= ~mark;
}

/* Is the byte to be replaced? */
static inline bool
is_hidden(uint8 mark)
{
	return (mark & PAQ_MARK_LITERAL) != 0 &&
		(mark & (PAQ_MARK_SECRET | PAQ_MARK_PATTERN)) != 0;
}

/* The end of the run of bytes from pos on that are, or are not, replaced */
static uint32
run_end(const PaqMaskText *text, uint32 pos)
{
	const bool	hidden = is_hidden(text->marks[pos]);

	for (pos++; pos < text->len; pos++)
	{
		if (is_hidden(text->marks[pos]) != hidden ||
			(text->marks[pos] & (PAQ_MARK_FIRST | PAQ_MARK_NUMBER)) != 0)
			break;
	}
	return pos;
}

/*
 * The number at *pos, which is moved behind it.  If any digit is to be hidden,
 * all are, each by a zero: it stays a number, and can become part of no other
 * token.  Returns whether it is hidden.
 */
static bool
put_number(Output *output, const PaqMaskText *text, uint32 *pos)
{
	const uint32 start = *pos;
	const bool	hexadecimal = start + 1 < text->len &&
		(text->data[start + 1] == 'x' || text->data[start + 1] == 'X');
	bool		hidden = false;

	do
		hidden |= is_hidden(text->marks[(*pos)++]);
	while (*pos < text->len && (text->marks[*pos] & PAQ_MARK_NUMBER) != 0 &&
		   (text->marks[*pos] & PAQ_MARK_FIRST) == 0);
	for (uint32 i = start; i < *pos; i++)
	{
		const char	c = text->data[i];
		const bool	digit = paq_mask_is_digit(c) ||
			(hexadecimal && i > start + 1 && c != '_');

		put(output, hidden && digit ? "0" : &c, 1);
	}
	return hidden;
}

/* Returns whether anything is replaced. */
static bool
write_secrets(Output *output, const PaqMaskText *text)
{
	bool		replaced = false;
	uint32		pos = 0;

	while (pos < text->len)
	{
		const uint32 start = pos;

		if (text->marks[pos] & PAQ_MARK_NUMBER)
		{
			replaced |= put_number(output, text, &pos);
			continue;
		}
		pos = run_end(text, pos);
		if (is_hidden(text->marks[start]))
		{
			put_string(output, PAQ_REDACTED);
			replaced = true;
		}
		else
			put(output, text->data + start, pos - start);
	}
	return replaced;
}

/* Memory for a text of that length; NULL if there is none. */
static char *
allocate_text(Size len)
{
	return MemoryContextAllocExtended(TopMemoryContext, len + 1,
									  MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
}

static void
show(PaqMasked *shown, Output *output)
{
	output->data[output->len] = '\0';
	shown->text = shown->copy = output->data;
	shown->len = output->len;
}

/* The text without its secrets; unless it has some, shown is left alone. */
void
paq_render_secrets(const PaqMaskText *text, bool conforming, PaqMasked *shown)
{
	Output		output = {0};

	if (!write_secrets(&output, text))
		return;
	output.data = allocate_text(output.len);
	if (output.data == NULL)
	{
		paq_render_beginning(text->data, text->len, conforming, shown);
		return;
	}
	output.len = 0;
	(void) write_secrets(&output, text);
	show(shown, &output);
}

/* Can the byte at pos be part of a word? */
static bool
is_word(const PaqMaskText *text, uint32 pos)
{
	return pos < text->len && (paq_mask_is_name_char(text->data[pos]) ||
							   text->data[pos] == '$');
}

/* The place of a constant between start and end, which is no part of a word. */
static void
put_place(Output *output, const PaqMaskText *text, uint32 start, uint32 end,
		  int number)
{
	char		place[PLACE_SIZE];

	snprintf(place, sizeof(place), "%s$%d%s",
			 start > 0 && is_word(text, start - 1) ? " " : "", number,
			 is_word(text, end) ? " " : "");
	put_string(output, place);
}

static void
write_constants(Output *output, const PaqMaskText *text, int number)
{
	uint32		pos = 0;

	while (pos < text->len)
	{
		const uint32 start = pos;
		const bool	constant = (text->marks[pos] & PAQ_MARK_FIRST) != 0;

		do
			pos++;
		while (pos < text->len && (text->marks[pos] & PAQ_MARK_FIRST) == 0 &&
			   (!constant || (text->marks[pos] & PAQ_MARK_TOKEN) != 0));
		if (constant)
			put_place(output, text, start, pos, ++number);
		else
			put(output, text->data + start, pos - start);
	}
}

/* The text with places in it instead of constants, from $max_param on */
void
paq_render_constants(const PaqMaskText *text, int max_param, bool conforming,
					 PaqMasked *shown)
{
	Output		output = {0};

	write_constants(&output, text, max_param);
	output.data = allocate_text(output.len);
	if (output.data == NULL)
	{
		paq_render_beginning(text->data, text->len, conforming, shown);
		return;
	}
	output.len = 0;
	write_constants(&output, text, max_param);
	show(shown, &output);
}

/*
 * There is no memory: show the beginning of the text, with all its literals
 * masked.  It is there until this is called the next time.
 */
void
paq_render_beginning(const char *data, Size len, bool conforming,
					 PaqMasked *shown)
{
	static char beginning[BEGINNING_SIZE];
	const PaqMaskText text = {data, Min(len, BEGINNING_SIZE / 2), NULL};
	Output		output = {beginning, 0};
	PaqToken	token = {0};
	uint32		pos = 0;
	uint32		shown_to = 0;

	for (;;)
	{
		if (!paq_plain_next(&text, &pos, conforming, &token))
			token.start = text.len;
		else if (token.code == PAQ_TOKEN_PARAM)
			continue;
		put(&output, text.data + shown_to,
			Min(token.start - shown_to, BEGINNING_SIZE - 1 - output.len));
		if (token.start == text.len ||
			output.len + PLACE_SIZE >= BEGINNING_SIZE)
			break;
		put_string(&output, "'" PAQ_REDACTED "'");
		shown_to = token.end;
	}
	beginning[output.len] = '\0';
	shown->text = beginning;
	shown->len = output.len;
	shown->copy = NULL;
	shown->all = true;
	shown->cut = true;
}
