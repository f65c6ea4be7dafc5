/*-------------------------------------------------------------------------
 *
 * literal.c
 *		Literals: reading them byte by byte, and finding them without a scanner.
 *
 * A scanner says where a literal begins and ends, and what it means.  It does not say
 * which bytes of the text a byte of the meaning comes from, and that is what matters
 * here: only the bytes of a secret may be replaced.  So the literal is read again.
 *
 * Where no scanner can be used, quotes and comments tell where literals are; that is the
 * "plain" search.
 *
 * Must not raise or allocate.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* What stands for a character that is of no interest here */
#define OTHER_CHARACTER	'?'

/*
 * Reads the contents of a literal byte by byte.  A literal can have parts with
 * white space and comments between them, which are not contents.  Nor are the
 * quotes, nor the tag of a dollar quote.
 */
typedef struct Literal
{
	const PaqMaskText *text;
	uint32		start;
	uint32		end;			/* of the literal, or at least of the text */
	uint32		tag_len;		/* of a dollar quote */
	char		quote;			/* ' " or $ */
	bool		escapes;		/* backslashes mean something, as in E'' */
	bool		unicode;		/* or as in U&'' */
	bool		closed;			/* its end was seen */
	char		byte;			/* of the contents, which come from the text */
	uint32		from;			/* from here */
	uint32		pos;			/* to here, where the next one begins */
} Literal;

/* ---------------------------------------------------------------------------
 * Reading a literal
 * ---------------------------------------------------------------------------
 */

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
 * pos is behind a quote.  If another part of the literal follows on another line,
 * go to where it begins.
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
	/* only ASCII characters are ever looked for */
	return code > 0 && code < 0x80 ? (char) code : OTHER_CHARACTER;
}

/* The character of the escape whose backslash precedes *pos, which moves behind it */
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

/* Go to the next byte of the contents.  False at the end, which pos is then. */
static bool
next_byte(Literal *literal)
{
	const char *data = literal->text->data;

	while (literal->pos < literal->end)
	{
		const char	c = data[literal->pos];

		literal->from = literal->pos++;
		literal->byte = c;
		if (literal->quote == '$')
		{
			literal->closed = c == '$' &&
				literal->end - literal->from >= literal->tag_len &&
				memcmp(data + literal->from, data + literal->start,
					   literal->tag_len) == 0;
			if (literal->closed)
				literal->pos = literal->from + literal->tag_len;
		}
		else if (c == literal->quote)
		{
			if (literal->pos < literal->end && data[literal->pos] == c)
				literal->pos++;
			else if (next_part(literal))
				continue;
			else
				literal->closed = true;
		}
		else if (c == '\\' && literal->pos < literal->end &&
				 (literal->escapes || literal->unicode))
			literal->byte = read_escape(literal, &literal->pos);
		if (literal->closed)
			literal->end = literal->pos;
		return !literal->closed;
	}
	return false;
}

/*
 * Write a literal's contents to result, terminated; they are no longer than the
 * literal.  Returns their length.
 */
uint32
paq_literal_read(const PaqMaskText *text, const PaqToken *token, bool conforming,
				 char *result)
{
	Literal		literal;
	uint32		len = 0;

	open_literal(&literal, text, token->start, token->end, conforming);
	while (next_byte(&literal))
		result[len++] = literal.byte;
	result[len] = '\0';
	return len;
}

/*
 * Mark a literal's contents and, unless secrets is NULL, what is marked as secret
 * of the contents by themselves.
 */
void
paq_literal_mark(const PaqMaskText *text, const PaqToken *token, bool conforming,
				 uint8 mark, const uint8 *secrets)
{
	Literal		literal;

	open_literal(&literal, text, token->start, token->end, conforming);
	for (uint32 n = 0; next_byte(&literal); n++)
		for (uint32 i = literal.from; i < literal.pos; i++)
			text->marks[i] |= mark | (secrets ? secrets[n] & PAQ_MARK_SECRET : 0) |
				(i > literal.from ? PAQ_MARK_NEXT : 0);
}

/* ---------------------------------------------------------------------------
 * Without the scanner
 * ---------------------------------------------------------------------------
 */

/* Where the comment at pos ends; pos if there is none */
uint32
paq_comment_end(const PaqMaskText *text, uint32 pos)
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

/* Where the number at pos ends, if only in front of its exponent's sign */
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

/* Where the word at pos ends; pos if it is the letter in front of a literal's quote */
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

/* Where the $n at pos ends; its number becomes the token's. */
static uint32
read_param(const PaqMaskText *text, uint32 pos, PaqToken *token)
{
	token->number = 0;
	while (paq_mask_is_digit(byte_at(text, ++pos)))
		token->number = Min(token->number * 10 + text->data[pos] - '0',
							PG_UINT16_MAX);
	return pos;
}

/* Where the literal, or name in quotes, at pos ends; notes if it has no end. */
static uint32
quoted_end(const PaqMaskText *text, uint32 pos, bool conforming,
		   PaqToken *token)
{
	Literal		literal;

	open_literal(&literal, text, pos, text->len, conforming);
	while (next_byte(&literal))
		;
	token->open = !literal.closed;
	return literal.pos;
}

/*
 * The next literal, number or parameter from *pos on, or what no statement has outside of
 * literals: a backslash, or a quote that begins a name without an end.  Moves *pos behind it.
 * Returns false if there is none.
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
		uint32		end;

		if (c == '$' && paq_mask_is_digit(next))
		{
			token->code = PAQ_TOKEN_PARAM;
			end = read_param(text, *pos, token);
		}
		else if (c == '\\')
		{
			token->code = c;
			end = *pos + 1;
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
			token->code = PAQ_TOKEN_SCONST;
			end = quoted_end(text, *pos, conforming, token);
			if (c == '"')
				token->code = token->open ? c : PAQ_TOKEN_END;
		}
		else if (paq_mask_is_name_char(c))
			end = word_end(text, *pos);
		else
			end = paq_comment_end(text, *pos);

		token->start = *pos;
		token->end = *pos = Max(end, *pos + 1);
	}
	return token->code != PAQ_TOKEN_END;
}
