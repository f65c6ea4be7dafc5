/*-------------------------------------------------------------------------
 *
 * mask_lexer.c
 *		Words, literals and other tokens of an SQL text, and what literals say.
 *
 * PostgreSQL's own lexer raises errors, and does not tell where a literal
 * ends.  This one takes any bytes for tokens and needs to know no more of SQL
 * than where literals, identifiers and comments begin and end.  Characters of
 * several bytes need no care: in all of a server's encodings their bytes are
 * not ASCII.
 *
 * Must not raise, nor read behind the end of a view.  Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "capture/mask_internal.h"
#include "mb/pg_wchar.h"

typedef struct Lexer
{
	const char *data;
	uint32		len;
	uint32		pos;
	bool		conforming;
} Lexer;

static inline bool
is_word_start(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
		IS_HIGHBIT_SET(c);
}

static inline bool
is_word_char(char c)
{
	return is_word_start(c) || paq_mask_is_digit(c) || c == '$';
}

/* The character n bytes further on; '\0' behind the end. */
static inline char
peek(const Lexer *lexer, uint32 n)
{
	return lexer->pos + n < lexer->len ? lexer->data[lexer->pos + n] : '\0';
}

static void
skip_line_comment(Lexer *lexer)
{
	while (lexer->pos < lexer->len && lexer->data[lexer->pos] != '\n' &&
		   lexer->data[lexer->pos] != '\r')
		lexer->pos++;
}

/* Such comments nest. */
static void
skip_block_comment(Lexer *lexer)
{
	uint32		depth = 0;

	do
	{
		if (peek(lexer, 0) == '/' && peek(lexer, 1) == '*')
		{
			depth++;
			lexer->pos += 2;
		}
		else if (peek(lexer, 0) == '*' && peek(lexer, 1) == '/')
		{
			depth--;
			lexer->pos += 2;
		}
		else
			lexer->pos++;
	} while (depth > 0 && lexer->pos < lexer->len);
	lexer->pos = Min(lexer->pos, lexer->len);
}

static void
skip_space(Lexer *lexer)
{
	while (lexer->pos < lexer->len)
	{
		if (paq_mask_is_space(lexer->data[lexer->pos]))
			lexer->pos++;
		else if (peek(lexer, 0) == '-' && peek(lexer, 1) == '-')
			skip_line_comment(lexer);
		else if (peek(lexer, 0) == '/' && peek(lexer, 1) == '*')
			skip_block_comment(lexer);
		else
			break;
	}
}

/*
 * Behind a literal's closing quote: does the literal go on in another line?
 * If so, move behind the quote there.
 */
static bool
continue_string(Lexer *lexer)
{
	uint32		pos = lexer->pos;
	bool		newline = false;

	while (lexer->pos < lexer->len)
	{
		if (paq_mask_is_space(lexer->data[lexer->pos]))
		{
			newline |= peek(lexer, 0) == '\n' || peek(lexer, 0) == '\r';
			lexer->pos++;
		}
		else if (peek(lexer, 0) == '-' && peek(lexer, 1) == '-')
			skip_line_comment(lexer);
		else
			break;
	}
	if (newline && peek(lexer, 0) == '\'')
	{
		lexer->pos++;
		return true;
	}
	lexer->pos = pos;
	return false;
}

/* Behind the opening quote of a literal or identifier. */
static void
lex_quoted(Lexer *lexer, PaqToken *token, char quote)
{
	const bool	escapes = token->quoting == PAQ_QUOTING_ESCAPE;

	token->kind = quote == '\'' ? PAQ_TOKEN_STRING : PAQ_TOKEN_QUOTED;
	token->body = lexer->pos;
	token->closed = true;
	while (lexer->pos < lexer->len)
	{
		char		c = lexer->data[lexer->pos++];

		if (c == '\\' && escapes)
		{
			lexer->pos = Min(lexer->pos + 1, lexer->len);
			continue;
		}
		if (c != quote)
			continue;
		if (peek(lexer, 0) == quote)
		{
			lexer->pos++;
			continue;
		}
		token->body_end = lexer->pos - 1;
		if (quote == '\'' && continue_string(lexer))
			continue;
		return;
	}
	token->body_end = lexer->len;
	token->closed = false;
}

/* At a dollar sign: a literal $tag$...$tag$, or false. */
static bool
lex_dollar(Lexer *lexer, PaqToken *token)
{
	const char *tag = lexer->data + lexer->pos;
	uint32		tag_len = 1;
	const char *p;
	const char *end = lexer->data + lexer->len;

	while (peek(lexer, tag_len) != '$')
	{
		char		c = peek(lexer, tag_len);

		if (!is_word_start(c) && !(paq_mask_is_digit(c) && tag_len > 1))
			return false;
		tag_len++;
	}
	tag_len++;

	token->kind = PAQ_TOKEN_STRING;
	token->quoting = PAQ_QUOTING_DOLLAR;
	token->body = lexer->pos + tag_len;
	token->closed = false;
	token->body_end = lexer->len;
	lexer->pos = lexer->len;
	for (p = tag + tag_len; end - p >= tag_len; p++)
	{
		p = memchr(p, '$', end - p - tag_len + 1);
		if (p == NULL)
			break;
		if (memcmp(p, tag, tag_len) == 0)
		{
			token->closed = true;
			token->body_end = p - lexer->data;
			lexer->pos = token->body_end + tag_len;
			break;
		}
	}
	return true;
}

/* At a letter: a literal with a prefix, a word, or an identifier. */
static void
lex_word(Lexer *lexer, PaqToken *token)
{
	char		c = peek(lexer, 0);

	if (peek(lexer, 1) == '\'' && strchr("eEbBxXnN", c) != NULL)
	{
		if (c == 'e' || c == 'E')
			token->quoting = PAQ_QUOTING_ESCAPE;
		lexer->pos += 2;
		lex_quoted(lexer, token, '\'');
		return;
	}
	if ((c == 'u' || c == 'U') && peek(lexer, 1) == '&' &&
		(peek(lexer, 2) == '\'' || peek(lexer, 2) == '"'))
	{
		char		quote = peek(lexer, 2);

		token->quoting = PAQ_QUOTING_UNICODE;
		lexer->pos += 3;
		lex_quoted(lexer, token, quote);
		return;
	}
	token->kind = PAQ_TOKEN_WORD;
	while (is_word_char(peek(lexer, 0)))
		lexer->pos++;
}

/* At a digit.  What is no number for PostgreSQL may be one here. */
static void
lex_number(Lexer *lexer, PaqToken *token)
{
	token->kind = PAQ_TOKEN_NUMBER;
	while (is_word_char(peek(lexer, 0)) ||
		   (peek(lexer, 0) == '.' && paq_mask_is_digit(peek(lexer, 1))))
		lexer->pos++;
}

/* The next token; false at the end. */
static bool
next_token(Lexer *lexer, PaqToken *token)
{
	char		c;

	skip_space(lexer);
	if (lexer->pos >= lexer->len)
		return false;
	MemSet(token, 0, sizeof(*token));
	token->start = lexer->pos;
	token->closed = true;
	c = peek(lexer, 0);
	if (is_word_start(c))
		lex_word(lexer, token);
	else if (paq_mask_is_digit(c))
		lex_number(lexer, token);
	else if (c == '\'' || c == '"')
	{
		if (c == '\'' && !lexer->conforming)
			token->quoting = PAQ_QUOTING_ESCAPE;
		lexer->pos++;
		lex_quoted(lexer, token, c);
	}
	else if (c == '$' && paq_mask_is_digit(peek(lexer, 1)))
	{
		lexer->pos++;
		lex_number(lexer, token);
		token->kind = PAQ_TOKEN_PARAM;
	}
	else if (c != '$' || !lex_dollar(lexer, token))
	{
		token->kind = PAQ_TOKEN_PUNCT;
		lexer->pos++;
	}
	token->end = lexer->pos;
	return true;
}

/* All tokens of the view.  Returns false when out of memory. */
bool
paq_mask_lex(PaqMaskWork *work, const PaqView *view, PaqTokens *tokens)
{
	Lexer		lexer = {view->data, view->len, 0, work->conforming};
	PaqToken	token;
	int			max = 0;

	tokens->items = NULL;
	tokens->count = 0;
	while (next_token(&lexer, &token))
	{
		if (tokens->count == max)
		{
			int			new_max = Max(32, max * 2);
			PaqToken   *items;

			items = paq_mask_alloc(work, new_max * sizeof(PaqToken));
			if (items == NULL)
				return false;
			if (max > 0)
				memcpy(items, tokens->items, max * sizeof(PaqToken));
			tokens->items = items;
			max = new_max;
		}
		tokens->items[tokens->count++] = token;
	}
	return true;
}

static int
hex_value(char c)
{
	if (paq_mask_is_digit(c))
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/*
 * Read up to max digits of a base, 8 or 16, at *pos and move behind them.
 * Returns their value, 0 if there are none.
 */
static uint32
read_digits(const char *data, uint32 end, uint32 *pos, int max, int base)
{
	uint32		value = 0;

	for (int i = 0; i < max && *pos < end; i++)
	{
		int			digit = hex_value(data[*pos]);

		if (digit < 0 || digit >= base)
			break;
		value = value * base + digit;
		(*pos)++;
	}
	return value;
}

/* The bytes of a character given by its number; returns how many. */
static int
put_unicode(uint32 c, char *bytes)
{
	if (c < 0x80)
	{
		bytes[0] = (char) c;
		return 1;
	}
	if (GetDatabaseEncoding() != PG_UTF8 || !is_valid_unicode_codepoint(c))
	{
		bytes[0] = '?';
		return 1;
	}
	unicode_to_utf8(c, (unsigned char *) bytes);
	return pg_utf_mblen((unsigned char *) bytes);
}

/* The escape behind a backslash in E'': its bytes; moves *pos behind it. */
static int
read_escape(const char *data, uint32 end, uint32 *pos, char *bytes)
{
	char		c = data[(*pos)++];

	switch (c)
	{
		case 'b':
			bytes[0] = '\b';
			break;
		case 'f':
			bytes[0] = '\f';
			break;
		case 'n':
			bytes[0] = '\n';
			break;
		case 'r':
			bytes[0] = '\r';
			break;
		case 't':
			bytes[0] = '\t';
			break;
		case 'u':
			return put_unicode(read_digits(data, end, pos, 4, 16), bytes);
		case 'U':
			return put_unicode(read_digits(data, end, pos, 8, 16), bytes);
		case 'x':
			bytes[0] = (char) read_digits(data, end, pos, 2, 16);
			break;
		default:
			if (c >= '0' && c <= '7')
			{
				(*pos)--;
				bytes[0] = (char) read_digits(data, end, pos, 3, 8);
			}
			else
				bytes[0] = c;
			break;
	}
	return 1;
}

/* The escape behind a backslash in U&''. */
static int
read_unicode_escape(const char *data, uint32 end, uint32 *pos, char *bytes)
{
	if (data[*pos] == '+')
	{
		(*pos)++;
		return put_unicode(read_digits(data, end, pos, 6, 16), bytes);
	}
	if (hex_value(data[*pos]) >= 0)
		return put_unicode(read_digits(data, end, pos, 4, 16), bytes);
	bytes[0] = data[(*pos)++];
	return 1;
}

/* Behind a quote that is not doubled: skip to behind the one that follows. */
static uint32
skip_to_quote(const char *data, uint32 pos, uint32 end)
{
	Lexer		lexer = {data, end, pos, true};

	continue_string(&lexer);
	return Max(lexer.pos, pos);
}

/* Is the content of the literal what stands between its quotes? */
static bool
is_verbatim(const PaqView *view, const PaqToken *token)
{
	const char *body = view->data + token->body;
	const uint32 len = token->body_end - token->body;
	const char	quote = token->kind == PAQ_TOKEN_STRING ? '\'' : '"';

	if (token->quoting == PAQ_QUOTING_DOLLAR)
		return true;
	return memchr(body, quote, len) == NULL &&
		(token->quoting == PAQ_QUOTING_NONE || memchr(body, '\\', len) == NULL);
}

/* Undo the quoting; the buffers have room for the raw bytes. */
static uint32
undo_quoting(const PaqView *view, const PaqToken *token, char *data,
			 uint32 *origin)
{
	const char	quote = token->kind == PAQ_TOKEN_STRING ? '\'' : '"';
	uint32		pos = token->body;
	uint32		len = 0;

	while (pos < token->body_end)
	{
		const uint32 start = pos;
		char		bytes[8];
		int			n = 1;

		bytes[0] = view->data[pos++];
		if (bytes[0] == quote)
		{
			if (pos < token->body_end && view->data[pos] == quote)
				pos++;
			else
			{
				pos = skip_to_quote(view->data, pos, token->body_end);
				continue;
			}
		}
		else if (bytes[0] == '\\' && pos < token->body_end)
		{
			if (token->quoting == PAQ_QUOTING_ESCAPE)
				n = read_escape(view->data, token->body_end, &pos, bytes);
			else if (token->quoting == PAQ_QUOTING_UNICODE)
				n = read_unicode_escape(view->data, token->body_end, &pos,
										bytes);
		}
		n = Min(n, pos - start);
		for (int i = 0; i < n; i++)
		{
			origin[len] = view->origin ? view->origin[start] : view->base + start;
			data[len++] = bytes[i];
		}
	}
	origin[len] = view->origin ? view->origin[pos] : view->base + pos;
	return len;
}

/*
 * What a literal or a delimited identifier says.  The escape character of U&''
 * is taken to be the backslash.  Returns false when out of memory.
 */
bool
paq_mask_decode(PaqMaskWork *work, const PaqView *view, const PaqToken *token,
				PaqView *content)
{
	uint32		size = token->body_end - token->body;
	char	   *data;
	uint32	   *origin;

	if (is_verbatim(view, token))
	{
		content->data = view->data + token->body;
		content->len = size;
		content->origin = view->origin ? view->origin + token->body : NULL;
		content->base = view->base + token->body;
		return true;
	}

	origin = paq_mask_alloc(work, (size + (Size) 1) * sizeof(uint32));
	data = paq_mask_alloc(work, size);
	if (origin == NULL || data == NULL)
		return false;
	content->data = data;
	content->origin = origin;
	content->base = 0;
	content->len = undo_quoting(view, token, data, origin);
	return true;
}

/* The token as a whole is secret. */
void
paq_mask_token(PaqMaskWork *work, const PaqView *view, PaqToken *token)
{
	PaqView		content;

	paq_mask_span(work, view, token->start, token->end);
	token->hint = PAQ_HINT_DONE;
	if (!work->want_secrets)
		return;
	if (token->kind != PAQ_TOKEN_STRING && token->kind != PAQ_TOKEN_QUOTED)
	{
		paq_mask_secret(work, view->data + token->start,
						token->end - token->start);
		return;
	}
	paq_mask_secret(work, view->data + token->body,
					token->body_end - token->body);
	if (paq_mask_decode(work, view, token, &content))
		paq_mask_secret(work, content.data, content.len);
}

/* Is the token this word, given in lower case, in any case? */
bool
paq_mask_is_word(const PaqView *view, const PaqToken *token, const char *word)
{
	const uint32 len = token->end - token->start;

	return token->kind == PAQ_TOKEN_WORD && strlen(word) == len &&
		pg_strncasecmp(view->data + token->start, word, len) == 0;
}

bool
paq_mask_is_punct(const PaqView *view, const PaqToken *token, char c)
{
	return token->kind == PAQ_TOKEN_PUNCT && view->data[token->start] == c;
}
