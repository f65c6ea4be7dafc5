/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Finding the literals of a text, and looking into them.
 *
 * The scanner is PostgreSQL's own, which reads each statement before it is
 * executed, so what is a literal here was one for PostgreSQL.
 *
 * The scanner raises errors, so it must not be called while an error is being
 * handled: to catch one error would be to forget the other.  Then, and where the
 * scanner gives up because a text is no SQL, literals are found without it
 * (literal.c).
 *
 * The scanner takes linear time for what people write.  It has cases in which
 * it takes quadratic time: in a run of operator characters it can match all of
 * the rest, and take one character of it.  Somebody who sends such a statement
 * has made the parser do that before, but the contents of a literal nobody has
 * scanned yet.  So the steps that the scanner may take are counted before, and
 * what has too many is only searched for literals.
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
 * The steps that the scanner may take for runs of operator characters, in all
 * that one text contains: about 0.1 s, or one run of 7,000 characters.
 */
#define MAX_OPERATOR_STEPS	(50 * 1000 * 1000)

static bool scan_literal(PaqMaskWork *work, PaqMaskText *text, const PaqToken *token,
						 PaqContent content, int depth);

/* ---------------------------------------------------------------------------
 * Marking literals
 * ---------------------------------------------------------------------------
 */

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
		case '"':
			/* no statement has one outside of literals, or names */
			work->suspect = true;
			return;
		default:
			return;
	}
	text->marks[token->start] |= PAQ_MARK_FIRST;
	paq_mask_mark(text, token->start, token->end, PAQ_MARK_TOKEN);
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

/*
 * Scan the text up to its end, unless it is given up, moving *reached; is_sql: it is known to be
 * SQL.  May raise.
 */
static void
scan(PaqMaskWork *work, PaqMaskText *text, int depth, bool is_sql, PaqRules *rules,
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
		PaqContent	content;

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
		else if (is_sql && token.code == '\\')
			work->suspect = true;
		if (paq_rules_token(rules, &token, &content) &&
			scan_literal(work, text, &token, content, depth))
			paq_rules_expect_rest(rules);
		*reached = token.end;
	}
}

/*
 * Apply the rules to a text; is_sql: as for scan().  Returns where the scanner stopped, and in
 * *open whether a secret must follow there.
 */
static uint32
scan_level(PaqMaskWork *work, PaqMaskText *text, int depth, bool is_sql, bool *open)
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
		scan(work, text, depth, is_sql, rules, &reached);
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

/*
 * Returns true if the scanner could take more steps for the contents, and those before it, than
 * it may.  For a run of operator characters it takes at most the square of its length; lines of
 * one character, as comments have them, do not take long.
 */
static bool
is_expensive(PaqMaskWork *work, const PaqMaskText *contents)
{
	uint64		length = 0;		/* of the run up to here */
	uint64		parts = 0;		/* that it can be taken as */

	for (uint32 pos = 0; pos < contents->len; pos++)
	{
		const char	c = contents->data[pos];

		if (c == '\0' || strchr("~!@#^&|`?+-*/%<>=", c) == NULL)
			length = parts = 0;
		else
		{
			length++;
			if (c == '+' || length == 1 || c != contents->data[pos - 1])
			{
				work->steps += length + parts - 1;
				parts++;
			}
			else
				work->steps += parts - 1;
		}
	}
	return work->steps > MAX_OPERATOR_STEPS;
}

/* Returns true if the contents begin as a statement does. */
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
	if (!is_expensive(work, contents))
	{
		reached = scan_level(work, contents, depth, is_sql, &open);
		work->suspect |= is_sql && reached < contents->len;
	}
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
static bool
scan_literal(PaqMaskWork *work, PaqMaskText *text, const PaqToken *token,
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
			reached = scan_level(work, text, 0, true, &open);
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
