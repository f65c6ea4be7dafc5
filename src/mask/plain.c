/*-------------------------------------------------------------------------
 *
 * plain.c
 *		Where the literals of a text are, without PostgreSQL's scanner.
 *
 * The scanner raises errors and allocates memory, so it must not be called
 * while an error is being handled, and it gives up where a text is no SQL.
 * Then all that is asked of a text is where its literals are, and that is a
 * matter of quotes and comments.
 *
 * Must not raise, nor allocate.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* The byte at pos; behind the end, something that means nothing. */
static inline char
byte_at(const PaqMaskText *text, uint32 pos)
{
	return pos < text->len ? text->data[pos] : ' ';
}

/* Behind what is quoted from pos on, where the first quote is. */
static uint32
quoted_end(const PaqMaskText *text, uint32 pos, bool escapes)
{
	const char	quote = text->data[pos++];

	while (pos < text->len)
	{
		const char	c = text->data[pos++];

		if (c == '\\' && escapes && pos < text->len)
			pos++;
		else if (c == quote)
		{
			if (byte_at(text, pos) != quote)
				return pos;
			pos++;
		}
	}
	return text->len;
}

/* Behind the dollar quote at pos; pos if there is none. */
static uint32
dollar_end(const PaqMaskText *text, uint32 pos)
{
	uint32		tag_end = pos + 1;
	uint32		tag_len;

	while (tag_end < text->len && paq_mask_is_name_char(text->data[tag_end]))
		tag_end++;
	if (byte_at(text, tag_end) != '$')
		return pos;
	tag_len = ++tag_end - pos;
	while (tag_end + tag_len <= text->len)
	{
		const char *dollar = memchr(text->data + tag_end, '$',
									text->len - tag_end);

		if (dollar == NULL)
			break;
		tag_end = dollar - text->data;
		if (tag_end + tag_len <= text->len &&
			memcmp(dollar, text->data + pos, tag_len) == 0)
			return tag_end + tag_len;
		tag_end++;
	}
	return text->len;
}

/* Behind the comment at pos; pos if there is none. */
static uint32
comment_end(const PaqMaskText *text, uint32 pos)
{
	int			depth = 0;

	if (text->data[pos] == '-' && byte_at(text, pos + 1) == '-')
	{
		while (pos < text->len &&
			   text->data[pos] != '\n' && text->data[pos] != '\r')
			pos++;
		return pos;
	}
	if (text->data[pos] != '/' || byte_at(text, pos + 1) != '*')
		return pos;
	while (pos < text->len)
	{
		if (text->data[pos] == '/' && byte_at(text, pos + 1) == '*')
		{
			depth++;
			pos += 2;
		}
		else if (text->data[pos] == '*' && byte_at(text, pos + 1) == '/')
		{
			pos += 2;
			if (--depth == 0)
				return pos;
		}
		else
			pos++;
	}
	return text->len;
}

/* Behind the word at pos, which ends in front of a quote if it is its prefix. */
static uint32
word_end(const PaqMaskText *text, uint32 pos)
{
	while (pos < text->len && (paq_mask_is_name_char(text->data[pos]) ||
							   text->data[pos] == '$'))
		pos++;
	return pos;
}

/* Behind the number at pos */
static uint32
number_end(const PaqMaskText *text, uint32 pos)
{
	while (pos < text->len)
	{
		const char	c = text->data[pos];

		if (!paq_mask_is_name_char(c) &&
			(c != '.' || byte_at(text, pos + 1) == '.'))
			break;
		pos++;
		if ((c == 'e' || c == 'E') && paq_mask_is_digit(byte_at(text, pos + 1)) &&
			(byte_at(text, pos) == '+' || byte_at(text, pos) == '-'))
			pos++;
	}
	return pos;
}

/* A word, or a literal that begins with what looks like one */
static bool
read_word(const PaqMaskText *text, uint32 *pos, PaqToken *token)
{
	const uint32 start = *pos;
	const char	first = text->data[start];
	uint32		quote;

	*pos = word_end(text, start);
	quote = *pos;
	if (*pos != start + 1)
		return false;
	if ((first == 'u' || first == 'U') && byte_at(text, *pos) == '&')
		quote++;
	else if (strchr("eEbBxX", first) == NULL)
		return false;
	if (byte_at(text, quote) != '\'')
		return false;
	*pos = quoted_end(text, quote, first == 'e' || first == 'E');
	token->code = PAQ_TOKEN_SCONST;
	return true;
}

/*
 * The next literal, number or parameter from *pos on, which is moved behind
 * it.  Returns false if there is none.
 */
bool
paq_plain_next(const PaqMaskText *text, uint32 *pos, bool conforming,
			   PaqToken *token)
{
	while (*pos < text->len)
	{
		const char	c = text->data[*pos];
		const char	next = byte_at(text, *pos + 1);
		uint32		end = *pos;

		token->start = *pos;
		token->code = PAQ_TOKEN_END;
		if (c == '\'')
		{
			end = quoted_end(text, *pos, !conforming);
			token->code = PAQ_TOKEN_SCONST;
		}
		else if (c == '"')
			end = quoted_end(text, *pos, false);
		else if (c == '$' && paq_mask_is_digit(next))
		{
			token->code = PAQ_TOKEN_PARAM;
			token->number = 0;
			for (end = *pos + 1; paq_mask_is_digit(byte_at(text, end)); end++)
				token->number = Min(token->number * 10 + text->data[end] - '0',
									PG_UINT16_MAX);
		}
		else if (c == '$')
		{
			end = dollar_end(text, *pos);
			if (end > *pos)
				token->code = PAQ_TOKEN_SCONST;
		}
		else if (c == '.' && next == '.')
			end = *pos + 2;
		else if (paq_mask_is_digit(c) || (c == '.' && paq_mask_is_digit(next)))
		{
			end = number_end(text, *pos);
			token->code = PAQ_TOKEN_ICONST;
		}
		else if (paq_mask_is_name_char(c))
			(void) read_word(text, &end, token);
		else
			end = comment_end(text, *pos);

		*pos = Max(end, *pos + 1);
		token->end = *pos;
		if (token->code != PAQ_TOKEN_END)
			return true;
	}
	return false;
}

/*
 * Mark literals, and numbers, from pos on, and besides the contents of
 * literals, unless they are numbers, with another mark.
 */
void
paq_plain_mark(PaqMaskWork *work, PaqMaskText *text, uint32 pos, uint8 mark)
{
	PaqToken	token;

	while (paq_plain_next(text, &pos, work->conforming, &token))
	{
		if (token.code == PAQ_TOKEN_PARAM)
		{
			work->max_param = Max(work->max_param, token.number);
			continue;
		}
		text->marks[token.start] |= PAQ_MARK_FIRST;
		paq_mask_mark(text, token.start, token.end, PAQ_MARK_TOKEN);
		if (token.code == PAQ_TOKEN_SCONST)
			(void) paq_literal_mark(text, token.start, token.end,
									work->conforming, PAQ_MARK_LITERAL | mark);
		else
			paq_mask_mark(text, token.start, token.end,
						  PAQ_MARK_LITERAL | PAQ_MARK_NUMBER);
	}
}
