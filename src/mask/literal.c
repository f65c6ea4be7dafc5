/*-------------------------------------------------------------------------
 *
 * literal.c
 *		Reading the contents of literals.
 *
 * PostgreSQL's scanner says where a literal begins and ends, and what it means.
 * It does not say which bytes of the text a byte of the meaning comes from, and
 * that is what matters here: only the bytes of a secret may be replaced.  So
 * the literal is read again, byte by byte.
 *
 * A literal can have parts with white space and comments between them, which
 * are not contents.  Nor are the quotes, nor the tag of a dollar quote.
 *
 * Must not raise.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"

/* What stands for a character that is of no interest here */
#define OTHER_CHARACTER	'?'

/* The contents of a dollar quote end where its tag comes again. */
static void
open_dollar(PaqLiteral *literal, uint32 start)
{
	const char *data = literal->text->data;
	uint32		tag_len = 1;

	while (start + tag_len < literal->end && data[start + tag_len] != '$')
		tag_len++;
	tag_len++;
	literal->quoting = PAQ_QUOTING_DOLLAR;
	literal->pos = Min(start + tag_len, literal->end);
	literal->stop = literal->end;
	if (literal->end - literal->pos >= tag_len &&
		memcmp(data + literal->end - tag_len, data + start, tag_len) == 0)
	{
		literal->stop = literal->end - tag_len;
		literal->closed = true;
	}
}

/* Begin to read the literal between start and end. */
void
paq_literal_open(PaqLiteral *literal, const PaqMaskText *text,
				 uint32 start, uint32 end, bool conforming)
{
	const char	first = text->data[start];

	literal->text = text;
	literal->end = end;
	literal->stop = end;
	literal->closed = false;
	literal->quote = '\'';
	literal->quoting = PAQ_QUOTING_PLAIN;
	literal->pos = start + 1;
	if (first == '$')
		open_dollar(literal, start);
	else if (first == '"')
		literal->quote = '"';
	else if (first == '\'')
		literal->quoting = conforming ? PAQ_QUOTING_PLAIN : PAQ_QUOTING_ESCAPE;
	else if (first == 'u' || first == 'U')
	{
		literal->quoting = PAQ_QUOTING_UNICODE;
		literal->pos = start + 3;
		literal->quote = text->data[start + 2];
	}
	else
	{
		if (first == 'e' || first == 'E')
			literal->quoting = PAQ_QUOTING_ESCAPE;
		literal->pos = start + 2;
	}
}

/* At the end of a part: is there another one?  Go to where it begins. */
static bool
next_part(PaqLiteral *literal)
{
	const char *data = literal->text->data;
	uint32		pos = literal->pos + 1;

	while (pos < literal->end && data[pos] != literal->quote)
	{
		if (data[pos] == '-')
			while (pos < literal->end && data[pos] != '\n' && data[pos] != '\r')
				pos++;
		else
			pos++;
	}
	if (pos >= literal->end)
	{
		literal->closed = true;
		literal->pos = literal->end;
		return false;
	}
	literal->pos = pos + 1;
	return true;
}

/* Up to max digits of the base from *pos on; moves *pos behind them. */
static uint32
read_digits(const PaqLiteral *literal, uint32 *pos, int max, int base)
{
	uint32		value = 0;

	for (; max > 0 && *pos < literal->end; max--, (*pos)++)
	{
		const char	c = literal->text->data[*pos];
		int			digit;

		if (paq_mask_is_digit(c))
			digit = c - '0';
		else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
			digit = (c | 0x20) - 'a' + 10;
		else
			break;
		if (digit >= base)
			break;
		value = value * base + digit;
	}
	return value;
}

/* A character by its number; what is no ASCII is nothing we look for. */
static char
character(uint32 code)
{
	return code > 0 && code < 0x80 ? (char) code : OTHER_CHARACTER;
}

/* Behind a backslash, as E'' has it; *pos is moved behind the escape. */
static char
read_escape(const PaqLiteral *literal, uint32 *pos)
{
	const char	c = literal->text->data[(*pos)++];

	switch (c)
	{
		case 'b':
			return '\b';
		case 'f':
			return '\f';
		case 'n':
			return '\n';
		case 'r':
			return '\r';
		case 't':
			return '\t';
		case 'v':
			return '\v';
		case 'x':
		{
			const uint32 digits = *pos;
			uint32 code = read_digits(literal, pos, 2, 16);

			return *pos == digits ? 'x' : character(code);
		}
		case 'u':
			return character(read_digits(literal, pos, 4, 16));
		case 'U':
			return character(read_digits(literal, pos, 8, 16));
		default:
			if (c < '0' || c > '7')
				return c;
			(*pos)--;
			return character(read_digits(literal, pos, 3, 8));
	}
}

/* The same as U&'' has it, with the backslash as escape character. */
static char
read_unicode(const PaqLiteral *literal, uint32 *pos)
{
	switch (literal->text->data[*pos])
	{
		case '\\':
			(*pos)++;
			return '\\';
		case '+':
			(*pos)++;
			return character(read_digits(literal, pos, 6, 16));
		default:
			return character(read_digits(literal, pos, 4, 16));
	}
}

/*
 * The next byte of the contents, and the range of the text that it comes from.
 * False at the end.
 */
bool
paq_literal_next(PaqLiteral *literal, char *c, uint32 *from, uint32 *to)
{
	const char *data = literal->text->data;

	while (literal->pos < literal->stop)
	{
		uint32		next = literal->pos + 1;

		*from = literal->pos;
		*c = data[literal->pos];
		if (literal->quoting == PAQ_QUOTING_DOLLAR)
			;
		else if (*c == literal->quote)
		{
			if (next >= literal->end || data[next] != literal->quote)
			{
				if (!next_part(literal))
					return false;
				continue;
			}
			next++;
		}
		else if (*c == '\\' && next < literal->end)
		{
			if (literal->quoting == PAQ_QUOTING_ESCAPE)
				*c = read_escape(literal, &next);
			else if (literal->quoting == PAQ_QUOTING_UNICODE)
				*c = read_unicode(literal, &next);
		}
		*to = next;
		literal->pos = next;
		return true;
	}
	return false;
}

/* Mark the contents of a literal.  Returns whether the literal has an end. */
bool
paq_literal_mark(PaqMaskText *text, uint32 start, uint32 end, bool conforming,
				 uint8 mark)
{
	PaqLiteral	literal;
	char		c;
	uint32		from;
	uint32		to;

	paq_literal_open(&literal, text, start, end, conforming);
	while (paq_literal_next(&literal, &c, &from, &to))
		paq_mask_mark(text, from, to, mark);
	return literal.closed;
}

/*
 * Read the contents of a literal, no longer than the literal, and terminate
 * them.  Returns their length.
 */
uint32
paq_literal_read(const PaqMaskText *text, uint32 start, uint32 end,
				 bool conforming, char *contents)
{
	PaqLiteral	literal;
	uint32		len = 0;
	uint32		from;
	uint32		to;

	paq_literal_open(&literal, text, start, end, conforming);
	while (paq_literal_next(&literal, &contents[len], &from, &to))
		len++;
	contents[len] = '\0';
	return len;
}

/* What is secret in the contents is so in the text that has the literal. */
void
paq_literal_carry(PaqMaskText *text, uint32 start, uint32 end, bool conforming,
				  const PaqMaskText *contents)
{
	PaqLiteral	literal;
	char		c;
	uint32		from;
	uint32		to;

	paq_literal_open(&literal, text, start, end, conforming);
	for (uint32 i = 0; i < contents->len &&
		 paq_literal_next(&literal, &c, &from, &to); i++)
		paq_mask_mark(text, from, to, contents->marks[i] & PAQ_MARK_SECRET);
}
