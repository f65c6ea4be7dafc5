/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Finding the literals of a text, reading them, and looking into them.
 *
 * The scanner is PostgreSQL's own, which reads each statement before it is
 * executed, so what is a literal here was one for PostgreSQL.  It says where a
 * literal begins and ends, and what it means.  It does not say which bytes of the
 * text a byte of the meaning comes from, and that is what matters here: only the
 * bytes of a secret may be replaced.  So the literal is read again, byte by byte.
 *
 * The scanner raises errors, so it must not be called while an error is being
 * handled: to catch one error would be to forget the other.  Then, and where the
 * scanner gives up because a text is no SQL, quotes and comments tell where
 * literals are; that is the "plain" search.
 *
 * The scanner takes linear time for what people write.  It has cases in which
 * it takes quadratic time: in a run of operator characters it can match all of
 * the rest, and take one character of it.  Somebody who sends such a statement
 * has made the parser do that before, but the contents of a literal nobody has
 * scanned yet, so those with a long run are only searched for literals.
 *
 * Memory: the tokens are given away one by one, so at each depth there are the
 * scanner's copy of the text, and of one literal.  Literals within literals are
 * looked into only if they are not long, so that it is the outermost one's
 * length that counts, whatever is in there.
 *
 * Guarantees: no error leaves this file.  paq_scan() must not be called in a
 * critical section either.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "compat.h"
#include "mask/mask_internal.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/guc.h"
#include "utils/memutils.h"

/*
 * The longest run of operator characters that the scanner gets; lines of one
 * character, as comments have them, do not take long.
 */
#define MAX_OPERATOR_RUN	200

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

/*
 * Mark a literal or a number of the outermost text as what it is, and note what
 * other tokens tell.
 */
static void
mark_token(PaqMaskWork *work, PaqMaskText *text, const PaqToken *token)
{
	const bool	hexadecimal = token->end - token->start > 1 &&
		(text->data[token->start + 1] | 0x20) == 'x';

	switch (token->code)
	{
		case PAQ_TOKEN_SCONST:
		case PAQ_TOKEN_USCONST:
		case PAQ_TOKEN_BCONST:
		case PAQ_TOKEN_XCONST:
			paq_literal_mark(text, token, work->conforming, PAQ_MARK_LITERAL, NULL);
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
			end = paq_comment_end(text, *pos);

		token->start = *pos;
		token->end = *pos = Max(end, *pos + 1);
	}
	return token->code != PAQ_TOKEN_END;
}

/*
 * Mark literals and numbers from pos on as what they are, and the contents of
 * literals with another mark, too.
 */
void
paq_plain_mark(PaqMaskWork *work, PaqMaskText *text, uint32 pos, uint8 mark)
{
	PaqToken	token;

	while (!paq_mask_is_interrupted(work, text) &&
		   paq_plain_next(text, &pos, work->conforming, &token))
	{
		mark_token(work, text, &token);
		if (token.code == PAQ_TOKEN_SCONST)
			paq_literal_mark(text, &token, work->conforming, mark, NULL);
	}
}

/* ---------------------------------------------------------------------------
 * With PostgreSQL's scanner
 * ---------------------------------------------------------------------------
 */

/* Scan the text up to its end, unless it is given up, moving *reached; may raise. */
static void
scan(PaqMaskWork *work, PaqMaskText *text, int depth, PaqRules *rules,
	 volatile uint32 *reached)
{
	core_yy_extra_type extra = {0};
	core_yyscan_t scanner = scanner_init(text->data, &extra, &ScanKeywords,
										 ScanKeywordTokens);

	extra.backslash_quote = BACKSLASH_QUOTE_ON;
	paq_scanner_set_conforming(&extra, work->conforming);
	while (!paq_mask_is_interrupted(work, text))
	{
		core_YYSTYPE value;
		YYLTYPE		location;
		PaqToken	token = {0};

		token.code = core_yylex(&value, &location, scanner);
		if (token.code == PAQ_TOKEN_END)
		{
			*reached = text->len;
			break;
		}
		token.start = location;
		/* the scanner has put a zero behind the token */
		token.end = location + strlen(extra.scanbuf + location);
		/* the value is memory that nobody needs */
		if (token.code >= PAQ_TOKEN_IDENT && token.code <= PAQ_TOKEN_OP)
			pfree(value.str);
		else if (token.code == PAQ_TOKEN_PARAM)
			token.number = value.ival;
		if (depth == 0)
			mark_token(work, text, &token);
		paq_rules_token(rules, &token);
		*reached = token.end;
	}
}

/*
 * Apply the rules to a text.  Returns where the scanner stopped, and in *open
 * whether a secret must follow there.
 */
static uint32
scan_level(PaqMaskWork *work, PaqMaskText *text, int depth, bool *open)
{
	MemoryContext old_context = CurrentMemoryContext;
	const uint32 interrupt_holdoff = InterruptHoldoffCount;
	const uint32 cancel_holdoff = QueryCancelHoldoffCount;
	MemoryContext volatile context = NULL;
	PaqRules   *volatile rules = NULL;
	volatile uint32 reached = 0;

	*open = false;
	PG_TRY();
	{
		context = AllocSetContextCreate(TopMemoryContext, "pg_audit_queue mask",
										ALLOCSET_DEFAULT_SIZES);
		MemoryContextSwitchTo(context);
		rules = paq_rules_begin(work, text, depth);
		scan(work, text, depth, rules, &reached);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(old_context);
		FlushErrorState();
		InterruptHoldoffCount = interrupt_holdoff;
		QueryCancelHoldoffCount = cancel_holdoff;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(old_context);
	if (rules != NULL)
		*open = paq_rules_want_secret(rules);
	if (context != NULL)
		MemoryContextDelete(context);
	return reached;
}

/* Would the scanner take quadratic time? */
static bool
is_expensive(const PaqMaskText *text)
{
	uint32		run = 0;

	for (uint32 pos = 0; pos < text->len && run <= MAX_OPERATOR_RUN; pos++)
	{
		const char	c = text->data[pos];

		if (strchr("~!@#^&|`?+-*/%<>=", c) == NULL)
			run = 0;
		else if (c == '+' || pos == 0 || c != text->data[pos - 1])
			run++;
	}
	return run > MAX_OPERATOR_RUN;
}

/* Does it begin as a statement does? */
static bool
begins_statement(const PaqMaskText *text)
{
	static const char *const words[] = {
		"alter", "begin", "call", "copy", "create", "declare", "delete", "do",
		"execute", "explain", "import", "insert", "merge", "perform", "prepare",
		"select", "set", "update", "values", "with", NULL
	};
	uint32		start = 0;
	uint32		end;

	while (start < text->len && (paq_mask_is_space(text->data[start]) ||
								 text->data[start] == '('))
		start++;
	if (text->len - start >= 2 &&
		(memcmp(text->data + start, "--", 2) == 0 ||
		 memcmp(text->data + start, "/*", 2) == 0))
		return true;
	end = start;
	while (end < text->len && paq_mask_is_name_char(text->data[end]))
		end++;
	return paq_mask_word_in(text->data + start, end - start, words);
}

/*
 * Look into the contents of a literal, or a value that is as good as one, depth
 * literals deep.  Returns whether it ends where a secret must follow.
 */
static bool
scan_contents(PaqMaskWork *work, PaqMaskText *contents, PaqContent content,
			  int depth)
{
	const bool	is_sql = content == PAQ_CONTENT_SQL;
	PaqMaskWork plain = *work;
	uint32		reached = 0;
	bool		open = true;

	if (content == PAQ_CONTENT_COMMAND || (!is_sql && !begins_statement(contents)))
		return paq_content_find(contents, content);
	if (!is_expensive(contents))
		reached = scan_level(work, contents, depth, &open);
	if (reached == contents->len)
		return open;
	/* most likely, it only looked like SQL */
	if (!is_sql && !open)
		return paq_content_find(contents, content);
	paq_plain_mark(&plain, contents, reached, PAQ_MARK_SECRET);
	work->limited = true;
	return false;
}

/*
 * Look into a literal of the text, which is depth literals deep.  Returns whether
 * it ends where a secret must follow.
 */
bool
paq_scan_literal(PaqMaskWork *work, PaqMaskText *text, const PaqToken *token,
				 PaqContent content, int depth)
{
	const uint32 len = token->end - token->start;
	const char	last = text->data[token->end - 1];
	char	   *data = NULL;
	bool		open = false;

	/* the filter looks at the last character, which must not be the quote */
	if (work->want_rules ||
		!paq_mask_is_candidate(text->data + token->start,
							   len - (last == '\'' || last == '"')))
		return false;
	if (depth < PAQ_MASK_MAX_DEPTH && (depth == 0 || len <= PAQ_MASK_MAX_NESTED))
		data = palloc_extended(2 * ((Size) len + 1),
							   MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
	if (data == NULL)
	{
		paq_literal_mark(text, token, work->conforming, PAQ_MARK_SECRET, NULL);
		work->limited = true;
	}
	else
	{
		PaqMaskText contents = {.data = data, .marks = (uint8 *) data + len + 1};

		contents.len = paq_literal_read(text, token, work->conforming, data);
		open = scan_contents(work, &contents, content, depth + 1);
		paq_literal_mark(text, token, work->conforming, 0, contents.marks);
		pfree(data);
	}
	return open;
}

/*
 * Find the secrets of a statement, or of a value.  Returns up to where it could
 * be scanned; nothing is known of what is behind that.
 *
 * The scanner warns of a name that is too long.  The client and the server log
 * have seen that before, so messages are turned off, by GUC's own means: the
 * variables are GUC's to set.
 */
uint32
paq_scan(PaqMaskWork *work, PaqMaskText *text, bool is_statement)
{
	ErrorContextCallback *context_stack = error_context_stack;
	MemoryContext context = CurrentMemoryContext;
	volatile uint32 reached = 0;
	bool		open;
	int			guc_level;

	if (CritSectionCount > 0)
		return 0;
	guc_level = NewGUCNestLevel();
	error_context_stack = NULL;
	PG_TRY();
	{
		(void) set_config_option("client_min_messages", "error", PGC_SUSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		(void) set_config_option("log_min_messages", "error", PGC_SUSET,
								 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
		if (is_statement)
			reached = scan_level(work, text, 0, &open);
		else
		{
			(void) scan_contents(work, text, PAQ_CONTENT_ANY, 1);
			reached = text->len;
		}
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		FlushErrorState();
	}
	PG_END_TRY();
	AtEOXact_GUC(true, guc_level);
	error_context_stack = context_stack;
	return reached;
}
