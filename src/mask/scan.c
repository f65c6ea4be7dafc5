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
 * scanned yet, so they are looked at first, and then only searched for
 * literals.
 *
 * Memory: the tokens are given away one by one, so at each depth there are the
 * scanner's copy of the text, and of one literal.  All of it is in contexts of
 * their own, one for each depth, emptied afterwards.
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

/* Most work that runs of operator characters may make, in bytes a byte */
#define MAX_OPERATOR_WORK	64

/* What an error, or the scanner, changes behind our back */
typedef struct ErrorSettings
{
	uint32		interrupt_holdoff;
	uint32		cancel_holdoff;
	ErrorContextCallback *context_stack;
	MemoryContext context;
	int			guc_level;
} ErrorSettings;

/* Parents of all else here, by depth */
static MemoryContext contexts[PAQ_MASK_DEPTH + 1];

/* What a text must begin with so that it is taken for SQL */
static const char *const statement_words[] = {
	"alter", "begin", "call", "copy", "create", "declare", "delete", "do",
	"execute", "explain", "import", "insert", "merge", "perform", "prepare",
	"select", "set", "update", "values", "with", NULL
};

/* The scanner's value is memory that nobody needs. */
static bool
has_memory(int code)
{
	return code >= PAQ_TOKEN_IDENT && code <= PAQ_TOKEN_OP;
}

/* Mark where literals are in the outermost text; note what else matters. */
static void
note_token(PaqMaskWork *work, PaqMaskText *text, const PaqToken *token)
{
	switch (token->code)
	{
		case PAQ_TOKEN_PARAM:
			work->max_param = Max(work->max_param, token->number);
			return;
		case PAQ_TOKEN_SCONST:
		case PAQ_TOKEN_USCONST:
		case PAQ_TOKEN_BCONST:
		case PAQ_TOKEN_XCONST:
			(void) paq_literal_mark(text, token->start, token->end,
									work->conforming, PAQ_MARK_LITERAL);
			break;
		case PAQ_TOKEN_ICONST:
		case PAQ_TOKEN_FCONST:
			paq_mask_mark(text, token->start, token->end,
						  PAQ_MARK_LITERAL | PAQ_MARK_NUMBER);
			break;
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
			note_token(work, text, &token);
		paq_rules_token(rules, &token);
		*reached = token.end;
	}
	*reached = text->len;
}

/*
 * Go through a text.  Returns whether the scanner came to its end; otherwise
 * *reached is where it stopped.  Raises an error for want of memory only.
 */
static bool
scan_level(PaqMaskWork *work, PaqMaskText *text, int depth,
		   PaqMaskOutcome *outcome, uint32 *reached)
{
	MemoryContext old_context = CurrentMemoryContext;
	volatile uint32 position = 0;
	PaqRules   *rules;

	if (contexts[depth] == NULL)
		contexts[depth] = AllocSetContextCreate(TopMemoryContext,
												"pg_audit_queue mask",
												ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(contexts[depth]);
	rules = paq_rules_begin(work, text, depth, outcome);
	PG_TRY();
	{
		scan(work, text, depth, rules, &position);
	}
	PG_CATCH();
	{
		if (geterrcode() == ERRCODE_OUT_OF_MEMORY)
			PG_RE_THROW();
		MemoryContextSwitchTo(contexts[depth]);
		FlushErrorState();
	}
	PG_END_TRY();
	*reached = position;
	paq_rules_end(rules, position);
	MemoryContextSwitchTo(old_context);
	MemoryContextReset(contexts[depth]);
	return position == text->len;
}

/* ---------------------------------------------------------------------------
 * Literals
 * ---------------------------------------------------------------------------
 */

static inline bool
is_operator_char(char c)
{
	return c != '\0' && strchr("~!@#^&|`?+-*/%<>=", c) != NULL;
}

/*
 * Would the scanner take too long?  In a run of operator characters, it looks
 * at the rest of the run for each "+" and each comment that begins.
 */
static bool
is_expensive(const PaqMaskText *text)
{
	uint64		work = 0;
	uint32		pos = 0;

	while (pos < text->len)
	{
		const uint32 start = pos;
		uint64		matches = 0;

		while (pos < text->len && is_operator_char(text->data[pos]))
		{
			if (text->data[pos] == '+' ||
				(text->data[pos] == '*' && pos > start &&
				 text->data[pos - 1] == '/'))
				matches++;
			pos++;
		}
		if (pos - start > MAX_OPERATOR_WORK)
			work += matches * (pos - start);
		pos++;
	}
	return work > (uint64) text->len * MAX_OPERATOR_WORK;
}

/* Does it begin as a statement does? */
static bool
begins_statement(const PaqMaskText *text)
{
	uint32		start = 0;
	uint32		end;

	while (start < text->len && (paq_mask_is_space(text->data[start]) ||
								 text->data[start] == '('))
		start++;
	if (start + 1 < text->len &&
		(memcmp(text->data + start, "--", 2) == 0 ||
		 memcmp(text->data + start, "/*", 2) == 0))
		return true;
	end = start;
	while (end < text->len && paq_mask_is_name_char(text->data[end]))
		end++;
	return paq_mask_word_in(text->data + start, end - start, statement_words);
}

/*
 * Look into the contents of a literal, or a value that is as good as one, depth
 * literals deep.  is_body says that it is SQL, conninfo that it is a connection
 * string.  Raises an error for want of memory only.
 */
void
paq_scan_contents(PaqMaskWork *work, PaqMaskText *contents, bool is_body,
				  bool conninfo, int depth, PaqMaskOutcome *outcome)
{
	uint32		reached;

	if (!is_body && !begins_statement(contents))
		paq_content_find(contents, conninfo, outcome);
	else if (depth > PAQ_MASK_DEPTH)
	{
		paq_mask_mark(contents, 0, contents->len, PAQ_MARK_SECRET);
		work->limited = true;
	}
	else if (is_expensive(contents))
	{
		paq_plain_mark(work, contents, 0, PAQ_MARK_SECRET);
		work->limited = true;
	}
	else
		(void) scan_level(work, contents, depth, outcome, &reached);
}

/*
 * Look into a literal of the text, which is depth literals deep.
 */
void
paq_scan_literal(PaqMaskWork *work, PaqMaskText *text, uint32 start,
				 uint32 end, bool is_body, bool conninfo, int depth,
				 PaqMaskOutcome *outcome)
{
	const Size	size = end - start + 1;
	const char	last = text->data[end - 1];
	PaqMaskText contents;
	char	   *data;

	/* the filter asks for the last character, which is not the quote */
	if (work->want_rules ||
		!paq_mask_is_candidate(text->data + start,
							   end - start - (last == '\'' || last == '"')))
		return;
	data = palloc_extended(size, MCXT_ALLOC_HUGE);
	contents.data = data;
	contents.len = paq_literal_read(text, start, end, work->conforming, data);
	contents.marks = palloc_extended(size, MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	paq_scan_contents(work, &contents, is_body, conninfo, depth + 1, outcome);
	paq_literal_carry(text, start, end, work->conforming, &contents);
	pfree(contents.marks);
	pfree(data);
}

/* ---------------------------------------------------------------------------
 * The outermost text
 * ---------------------------------------------------------------------------
 */

static void
save_settings(ErrorSettings *saved)
{
	saved->interrupt_holdoff = InterruptHoldoffCount;
	saved->cancel_holdoff = QueryCancelHoldoffCount;
	saved->context_stack = error_context_stack;
	saved->context = CurrentMemoryContext;
	saved->guc_level = NewGUCNestLevel();
	error_context_stack = NULL;
}

static void
restore_settings(const ErrorSettings *saved)
{
	AtEOXact_GUC(true, saved->guc_level);
	InterruptHoldoffCount = saved->interrupt_holdoff;
	QueryCancelHoldoffCount = saved->cancel_holdoff;
	error_context_stack = saved->context_stack;
	MemoryContextSwitchTo(saved->context);
}

static void
silence(void)
{
	(void) set_config_option("client_min_messages", "error", PGC_SUSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("log_min_messages", "error", PGC_SUSET,
							 PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
}

/*
 * Run one of the functions above for the outermost text.  Returns false for
 * want of memory, or of another resource.
 */
static bool
run_guarded(PaqMaskWork *work, PaqMaskText *text, bool is_statement,
			uint32 *reached)
{
	PaqMaskOutcome ignored = {0};
	volatile bool done = false;
	ErrorSettings saved;

	if (CritSectionCount > 0)
		return false;
	save_settings(&saved);
	PG_TRY();
	{
		silence();
		if (is_statement)
			(void) scan_level(work, text, 0, NULL, reached);
		else
			paq_scan_contents(work, text, false, false, 1, &ignored);
		done = true;
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(saved.context);
		FlushErrorState();
	}
	PG_END_TRY();
	restore_settings(&saved);
	for (int depth = 0; depth <= PAQ_MASK_DEPTH && !done; depth++)
	{
		if (contexts[depth] != NULL)
			MemoryContextReset(contexts[depth]);
	}
	return done;
}

/*
 * Find the secrets of a statement.  Returns up to where it could be scanned;
 * nothing is known of what is behind that.
 */
uint32
paq_scan_text(PaqMaskWork *work, PaqMaskText *text)
{
	uint32		reached = 0;

	return run_guarded(work, text, true, &reached) ? reached : 0;
}

/* Find the secrets of a value.  Returns false if that was not possible. */
bool
paq_scan_value(PaqMaskWork *work, PaqMaskText *text)
{
	return run_guarded(work, text, false, NULL);
}
