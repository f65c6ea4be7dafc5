/*-------------------------------------------------------------------------
 *
 * scan.c
 *		Going through a text with PostgreSQL's scanner, and into its literals.
 *
 * This is the scanner that reads each statement before it is executed, so what
 * is a literal here was one for PostgreSQL.  Its settings are given to it
 * directly.  It has no switch for one thing, the notice that a name is too
 * long, which the client and the server log would see twice; for that, levels
 * of messages are saved and set as a function's SET clause does it.
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
 * Guarantees: no error leaves this file.  So nothing here may be called while
 * an error is being handled, or in a critical section: catching one error would
 * forget the other.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "mask/mask_internal.h"
#include "miscadmin.h"
#include "parser/parser.h"
#include "parser/scanner.h"
#include "utils/guc.h"
#include "utils/memutils.h"

/* Literals inside of literals are looked into up to this depth. */
#define MAX_DEPTH			6

/* ... and if they are not longer than this. */
#define MAX_NESTED_LEN		(1024 * 1024)

/*
 * The longest run of operator characters that the scanner gets; lines of one
 * character, as comments have them, do not take long.
 */
#define MAX_OPERATOR_RUN	200

/* The scanner's value is memory that nobody needs. */
static bool
has_memory(int code)
{
	return code >= PAQ_TOKEN_IDENT && code <= PAQ_TOKEN_OP;
}

/* Scan the text up to its end, moving *reached; may raise. */
static void
scan(PaqMaskWork *work, PaqMaskText *text, int depth, PaqRules *rules,
	 volatile uint32 *reached)
{
	core_yy_extra_type extra = {0};
	core_yyscan_t scanner = scanner_init(text->data, &extra, &ScanKeywords,
										 ScanKeywordTokens);

	extra.backslash_quote = BACKSLASH_QUOTE_ON;
	extra.escape_string_warning = false;
	extra.standard_conforming_strings = work->conforming;
	for (;;)
	{
		core_YYSTYPE value;
		YYLTYPE		location;
		PaqToken	token = {0};

		token.code = core_yylex(&value, &location, scanner);
		if (token.code == PAQ_TOKEN_END)
			break;
		token.start = location;
		/* the scanner has put a zero behind the token */
		token.end = location + strlen(extra.scanbuf + location);
		if (has_memory(token.code))
			pfree(value.str);
		else if (token.code == PAQ_TOKEN_PARAM)
			token.number = value.ival;
		if (depth == 0)
			paq_token_mark(work, text, &token);
		paq_rules_token(rules, &token);
		*reached = token.end;
	}
	*reached = text->len;
}

/*
 * Go through a text.  Returns where the scanner stopped, and in *open whether a
 * secret must come there.
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

/* ---------------------------------------------------------------------------
 * Literals
 * ---------------------------------------------------------------------------
 */

/* Would the scanner take too long? */
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
	/* what only looked like SQL, most likely */
	if (!is_sql && !open)
		return paq_content_find(contents, content);
	paq_plain_mark(&plain, contents, reached, PAQ_MARK_SECRET);
	work->limited = true;
	return false;
}

/*
 * Look into a literal of the text, which is depth literals deep.  Returns as
 * scan_contents().
 */
bool
paq_scan_literal(PaqMaskWork *work, PaqMaskText *text, const PaqToken *token,
				 PaqContent content, int depth)
{
	const uint32 len = token->end - token->start;
	const char	last = text->data[token->end - 1];
	PaqMaskText contents = {0};
	char	   *data = NULL;
	bool		open = false;

	/* the filter asks for the last character, which is not the quote */
	if (work->want_rules ||
		!paq_mask_is_candidate(text->data + token->start,
							   len - (last == '\'' || last == '"')))
		return false;
	if (depth < MAX_DEPTH && (depth == 0 || len <= MAX_NESTED_LEN))
	{
		data = palloc_extended((Size) len + 1, MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM);
		contents.marks = palloc_extended((Size) len + 1,
										 MCXT_ALLOC_HUGE | MCXT_ALLOC_NO_OOM | MCXT_ALLOC_ZERO);
	}
	if (data != NULL && contents.marks != NULL)
	{
		contents.data = data;
		contents.len = paq_literal(text, token, work->conforming, 0, NULL, data);
		open = scan_contents(work, &contents, content, depth + 1);
		(void) paq_literal(text, token, work->conforming, 0, contents.marks, NULL);
	}
	else
	{
		(void) paq_literal(text, token, work->conforming, PAQ_MARK_SECRET, NULL, NULL);
		work->limited = true;
	}
	if (contents.marks != NULL)
		pfree(contents.marks);
	if (data != NULL)
		pfree(data);
	return open;
}

/* ---------------------------------------------------------------------------
 * The outermost text
 * ---------------------------------------------------------------------------
 */

/*
 * Find the secrets of a statement, or of a value.  Returns up to where it could
 * be scanned; nothing is known of what is behind that.
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
