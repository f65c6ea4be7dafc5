/*-------------------------------------------------------------------------
 *
 * literal.c
 *		Where the literals of a text are, and what they contain.
 *
 * PostgreSQL's scanner says where a literal begins and ends, and what it means.
 * It does not say which bytes of the text a byte of the meaning comes from, and
 * that is what matters here: only the bytes of a secret may be replaced.  So
 * the literal is read again, byte by byte.
 *
 * A literal can have parts with white space and comments between them, which
 * are not contents.  Nor are the quotes, nor the tag of a dollar quote.
 *
 * The scanner raises errors and allocates memory, so it must not be called
 * while an error is being handled, and it gives up where a text is no SQL.
 * Then quotes and comments tell where literals are: the "plain" search below.
 *
 * Must not raise, nor allocate.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* What stands for a character that is of no interest here */
#define OTHER_CHARACTER	'?'

/* Reads the contents of a literal byte by byte */
typedef struct Literal
{
	const PaqMaskText *text;
	uint32		start;
	uint32		pos;			/* of the next byte */
	uint32		end;			/* of the literal, or at least of the text */
	uint32		tag_len;		/* of a dollar quote */
	char		quote;			/* ' " or $ */
	bool		escapes;		/* backslashes mean something, as in E'' */
	bool		unicode;		/* or as in U&'' */
	bool		closed;			/* its end was seen */
} Literal;

/* The byte at pos; behind the end, something that means nothing. */
static inline char
byte_at(const PaqMaskText *text, uint32 pos)
{
	return pos < text->len ? text->data[pos] : ' ';
}

static inline bool
ends_line(char c)
{
	return c == '\n' || c == '\r';
}

/* The length of a dollar quote's tag at pos, with both dollars; 0 if there is none. */
static uint32
tag_length(const PaqMaskText *text, uint32 pos)
{
	uint32		end = pos + 1;

	while (end < text->len && paq_mask_is_name_char(text->data[end]))
		end++;
	return byte_at(text, end) == '$' ? end + 1 - pos : 0;
}

/* Begin to read the literal at start, which goes no further than to end. */
static void
open_literal(Literal *literal, const PaqMaskText *text, uint32 start,
			 uint32 end, bool conforming)
{
	const char	first = text->data[start];

	memset(literal, 0, sizeof(Literal));
	literal->text = text;
	literal->start = start;
	literal->pos = start + 1;
	literal->end = end;
	literal->quote = first;
	if (first == '\'')
		literal->escapes = !conforming;
	else if (first == '$')
	{
		literal->tag_len = tag_length(text, start);
		literal->pos = start + literal->tag_len;
	}
	else if (first != '"')
	{
		literal->escapes = first == 'e' || first == 'E';
		literal->unicode = first == 'u' || first == 'U';
		literal->pos = start + (literal->unicode ? 3 : 2);
		literal->quote = text->data[literal->pos - 1];
	}
}

/*
 * Behind a quote: is there another part of the literal, on another line?  Go to
 * where it begins.
 */
static bool
next_part(Literal *literal)
{
	const char *data = literal->text->data;
	uint32		pos = literal->pos;
	bool		other_line = false;

	for (; pos < literal->end && literal->quote == '\''; pos++)
	{
		if (data[pos] == '-' && pos + 1 < literal->end && data[pos + 1] == '-')
			while (pos + 1 < literal->end && !ends_line(data[pos + 1]))
				pos++;
		else if (!paq_mask_is_space(data[pos]))
			break;
		other_line |= ends_line(data[pos]);
	}
	if (pos >= literal->end || data[pos] != literal->quote || !other_line)
		return false;
	literal->pos = pos + 1;
	return true;
}

/* A character by up to max digits of its number at *pos, which is moved. */
static char
read_code(const Literal *literal, uint32 *pos, int max, int base)
{
	static const char digits[] = "0123456789abcdef";
	uint32		code = 0;

	for (; max > 0 && *pos < literal->end; max--, (*pos)++)
	{
		const char	c = pg_ascii_tolower((unsigned char) literal->text->data[*pos]);
		const char *digit = memchr(digits, c, base);

		if (digit == NULL)
			break;
		code = code * base + (digit - digits);
	}
	/* what is no ASCII is nothing we look for */
	return code > 0 && code < 0x80 ? (char) code : OTHER_CHARACTER;
}

/* Behind a backslash; *pos is moved behind the escape. */
static char
read_escape(const Literal *literal, uint32 *pos)
{
	const char	c = literal->text->data[*pos];

	if (literal->unicode)
	{
		*pos += c == '\\' || c == '+';
		return c == '\\' ? c : read_code(literal, pos, c == '+' ? 6 : 4, 16);
	}
	if (c >= '0' && c <= '7')
		return read_code(literal, pos, 3, 8);
	(*pos)++;
	switch (c)
	{
		case 'x':
			return read_code(literal, pos, 2, 16);
		case 'u':
			return read_code(literal, pos, 4, 16);
		case 'U':
			return read_code(literal, pos, 8, 16);
		case 'n':
		case 'r':
			return '\n';
		case 'b':
		case 'f':
		case 't':
		case 'v':
			return ' ';
		default:
			return c;
	}
}

/*
 * The next byte of the contents, and the range of the text that it comes from.
 * False at the end, which pos is then.
 */
static bool
next_byte(Literal *literal, char *c, uint32 *from, uint32 *to)
{
	const char *data = literal->text->data;

	while (literal->pos < literal->end)
	{
		*from = literal->pos++;
		*c = data[*from];
		if (literal->quote == '$')
		{
			literal->closed = *c == '$' &&
				literal->end - *from >= literal->tag_len &&
				memcmp(data + *from, data + literal->start, literal->tag_len) == 0;
			if (literal->closed)
				literal->pos = *from + literal->tag_len;
		}
		else if (*c == literal->quote)
		{
			if (literal->pos < literal->end && data[literal->pos] == *c)
				literal->pos++;
			else if (next_part(literal))
				continue;
			else
				literal->closed = true;
		}
		else if (*c == '\\' && literal->pos < literal->end &&
				 (literal->escapes || literal->unicode))
			*c = read_escape(literal, &literal->pos);
		if (literal->closed)
			literal->end = literal->pos;
		*to = literal->pos;
		return !literal->closed;
	}
	return false;
}

/*
 * Go through a literal's contents: mark them, with what they have been marked
 * with by themselves, too, unless that is NULL.  Unless result is NULL, write them
 * there, terminated; they are no longer than the literal.  Returns their length.
 */
uint32
paq_literal(const PaqMaskText *text, const PaqToken *token, bool conforming,
			uint8 mark, const uint8 *marks, char *result)
{
	Literal		literal;
	uint32		len = 0;
	char		c;
	uint32		from;
	uint32		to;

	open_literal(&literal, text, token->start, token->end, conforming);
	while (next_byte(&literal, &c, &from, &to))
	{
		for (uint32 i = from; i < to && result == NULL; i++)
			text->marks[i] |= mark | (marks ? marks[len] & PAQ_MARK_SECRET : 0) |
				(i > from ? PAQ_MARK_NEXT : 0);
		if (result != NULL)
			result[len] = c;
		len++;
	}
	if (result != NULL)
		result[len] = '\0';
	return len;
}

/*
 * Mark what a token of the outermost text is, if it is a literal or a number;
 * note what else matters.
 */
void
paq_token_mark(PaqMaskWork *work, PaqMaskText *text, const PaqToken *token)
{
	const bool	hexadecimal = token->end - token->start > 1 &&
		(text->data[token->start + 1] | 0x20) == 'x';

	switch (token->code)
	{
		case PAQ_TOKEN_SCONST:
		case PAQ_TOKEN_USCONST:
		case PAQ_TOKEN_BCONST:
		case PAQ_TOKEN_XCONST:
			(void) paq_literal(text, token, work->conforming, PAQ_MARK_LITERAL,
							   NULL, NULL);
			work->suspect |= token->open;
			break;
		case PAQ_TOKEN_ICONST:
		case PAQ_TOKEN_FCONST:
			for (uint32 i = token->start; i < token->end; i++)
			{
				const char	c = text->data[i];

				if (paq_mask_is_digit(c) ||
					(hexadecimal && i > token->start + 1 && c != '_'))
					text->marks[i] |= PAQ_MARK_LITERAL | PAQ_MARK_DIGIT;
			}
			break;
		case PAQ_TOKEN_PARAM:
			work->max_param = Max(work->max_param, token->number);
			return;
		case '\\':
			/* no statement has one outside of literals */
			work->suspect = true;
			return;
		default:
			return;
	}
	text->marks[token->start] |= PAQ_MARK_FIRST;
	paq_mask_mark(text, token->start, token->end, PAQ_MARK_TOKEN);
}

/* ---------------------------------------------------------------------------
 * Without the scanner
 * ---------------------------------------------------------------------------
 */

/* Behind the comment at pos; pos if there is none. */
static uint32
comment_end(const PaqMaskText *text, uint32 pos)
{
	int			depth = 0;

	if (text->data[pos] == '-' && byte_at(text, pos + 1) == '-')
	{
		while (pos < text->len && !ends_line(text->data[pos]))
			pos++;
		return pos;
	}
	if (text->data[pos] != '/' || byte_at(text, pos + 1) != '*')
		return pos;
	while (pos < text->len)
	{
		const char	c = text->data[pos++];

		if (c == '/' && byte_at(text, pos) == '*')
			depth++;
		else if (c == '*' && byte_at(text, pos) == '/')
			depth--;
		else
			continue;
		pos++;
		if (depth == 0)
			return pos;
	}
	return text->len;
}

/* Behind the number at pos, or what is in front of its exponent's sign */
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
	}
	return pos;
}

/* Behind the word at pos, but at pos if the word is a literal's first letter. */
static uint32
word_end(const PaqMaskText *text, uint32 pos)
{
	const char	first = text->data[pos];
	uint32		end = pos;

	if (strchr("eEbBxX", first) != NULL && byte_at(text, pos + 1) == '\'')
		return pos;
	if ((first == 'u' || first == 'U') && byte_at(text, pos + 1) == '&' &&
		byte_at(text, pos + 2) == '\'')
		return pos;
	while (end < text->len && (paq_mask_is_name_char(text->data[end]) ||
							   text->data[end] == '$'))
		end++;
	return end;
}

/* Behind the $n at pos, whose number becomes the token's */
static uint32
read_param(const PaqMaskText *text, uint32 pos, PaqToken *token)
{
	token->number = 0;
	while (paq_mask_is_digit(byte_at(text, ++pos)))
		token->number = Min(token->number * 10 + text->data[pos] - '0',
							PG_UINT16_MAX);
	return pos;
}

/* Behind the literal, or the name in quotes, at pos; notes if it has no end. */
static uint32
quoted_end(const PaqMaskText *text, uint32 pos, bool conforming,
		   PaqToken *token)
{
	Literal		literal;
	char		c;
	uint32		from;
	uint32		to;

	open_literal(&literal, text, pos, text->len, conforming);
	while (next_byte(&literal, &c, &from, &to))
		;
	token->open = !literal.closed;
	return literal.pos;
}

/*
 * The next literal, number or parameter from *pos on, which is moved behind
 * it.  Returns false if there is none.
 */
bool
paq_plain_next(const PaqMaskText *text, uint32 *pos, bool conforming,
			   PaqToken *token)
{
	token->code = PAQ_TOKEN_END;
	while (*pos < text->len && token->code == PAQ_TOKEN_END)
	{
		const char	c = text->data[*pos];
		const char	next = byte_at(text, *pos + 1);
		uint32		end = *pos;

		if (c == '$' && paq_mask_is_digit(next))
		{
			token->code = PAQ_TOKEN_PARAM;
			end = read_param(text, *pos, token);
		}
		else if (c == '.' && next == '.')
			end = *pos + 2;
		else if (paq_mask_is_digit(c) || (c == '.' && paq_mask_is_digit(next)))
		{
			token->code = PAQ_TOKEN_ICONST;
			end = number_end(text, *pos);
		}
		else if (c == '"' || c == '\'' || (c == '$' && tag_length(text, *pos) > 0) ||
				 (paq_mask_is_name_char(c) && word_end(text, *pos) == *pos))
		{
			token->code = c == '"' ? PAQ_TOKEN_END : PAQ_TOKEN_SCONST;
			end = quoted_end(text, *pos, conforming, token);
		}
		else if (paq_mask_is_name_char(c))
			end = word_end(text, *pos);
		else
			end = comment_end(text, *pos);

		token->start = *pos;
		token->end = *pos = Max(end, *pos + 1);
	}
	return token->code != PAQ_TOKEN_END;
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
		paq_token_mark(work, text, &token);
		if (token.code == PAQ_TOKEN_SCONST)
			(void) paq_literal(text, &token, work->conforming, mark, NULL, NULL);
	}
}
