/*-------------------------------------------------------------------------
 *
 * part.c
 *		Which part of the text that was sent a statement is.
 *
 * A string can have many statements, and so can the body of an SQL function.
 * PostgreSQL hands the whole of it to each of them, and says where in it the
 * statement is.  Its record has that part, without white space around it, and
 * the place: the records of a string are as long as the string, not as long as
 * its square.  What stands alone in its string, but for semicolons, is recorded
 * as it was sent.  On versions before 18 a statement's part begins behind the
 * semicolon of the one before, so comments in front of it are in it.
 *
 * PostgreSQL does not always know the place.  The query in a statement such as
 * EXPLAIN or DECLARE CURSOR is in the part of that statement.  What a rule makes
 * of a statement is where that is, which is noted when the statement is
 * analysed.  If that fails, as for a rule within a function of several
 * statements, the record has the whole text.
 *
 * Must not raise: memory for a part that has to be copied comes from
 * TopMemoryContext.
 *
 * Locking: none, everything is local to the process.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "access/xact.h"
#include "capture/capture_internal.h"
#include "parser/analyze.h"
#include "parser/scansup.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"

static post_parse_analyze_hook_type prev_post_parse_analyze = NULL;

/*
 * Where the statement is that was analysed last in the text that the client has
 * sent, and the message that it came with: the text of another message can be
 * at the same address.
 */
static const char *analysed_text = NULL;
static TimestampTz analysed_message;
static int	analysed_location;
static int	analysed_len;

static void
capture_post_parse_analyze(ParseState *pstate, Query *query,
						   JumbleState *jstate)
{
	if (pstate->p_sourcetext == debug_query_string)
	{
		analysed_text = pstate->p_sourcetext;
		analysed_message = GetCurrentStatementStartTimestamp();
		analysed_location = query->stmt_location;
		analysed_len = query->stmt_len;
	}
	if (prev_post_parse_analyze)
		prev_post_parse_analyze(pstate, query, jstate);
}

/* The innermost statement that is being executed, if it is known. */
static const PaqStatement *
enclosing_statement(void)
{
	for (PaqCallFrame *frame = paq_frame; frame != NULL; frame = frame->parent)
		if (frame->statement != NULL)
			return frame->statement;
	return NULL;
}

/*
 * Can a query be in the statement's part of the text?  What else it executes may
 * have the same text, and be another part of it, or not the same if quotes are
 * read in another way.
 */
static bool
has_query(const PaqStatement *statement)
{
	switch (statement->command.node)
	{
		case T_CopyStmt:
		case T_CreateTableAsStmt:
		case T_DeclareCursorStmt:
		case T_ExplainStmt:
		case T_RefreshMatViewStmt:
		case T_ViewStmt:
			return true;
		default:
			return false;
	}
}

static inline bool
is_same_text(const char *a, const char *b)
{
	return a == b || strcmp(a, b) == 0;
}

/*
 * A statement begins, in the innermost frame or before it has one of its own,
 * and PostgreSQL does not say which part of its text it is.
 */
void
paq_part_begin(PaqStatement *statement)
{
	const PaqStatement *outer = enclosing_statement();

	if (outer != NULL && (outer->location > 0 || outer->len > 0) &&
		has_query(outer) && is_same_text(outer->text, statement->text))
	{
		statement->location = outer->location;
		statement->len = outer->len;
	}
	else if (statement->location < 0 && analysed_text != NULL &&
			 statement->text == analysed_text &&
			 analysed_message == GetCurrentStatementStartTimestamp())
	{
		statement->location = analysed_location;
		statement->len = analysed_len;
	}
}

/*
 * Has the text so many bytes?  The statements of the client's string come one after
 * the other: what has been looked at for the last one need not be again, or
 * that would take quadratic time.
 */
static bool
has_bytes(const char *text, int count)
{
	static const char *seen_text = NULL;
	static TimestampTz seen_message;
	static int	seen;
	const bool	clients = text == debug_query_string;
	int			from;

	if (clients && (text != seen_text ||
					seen_message != GetCurrentStatementStartTimestamp()))
	{
		seen_text = text;
		seen_message = GetCurrentStatementStartTimestamp();
		seen = 0;
	}
	from = clients ? Min(seen, count) : 0;
	if (strnlen(text + from, count - from) < (Size) (count - from))
		return false;
	if (clients)
		seen = Max(seen, count);
	return true;
}

/*
 * Is the statement's place within its text?  An extension can have a statement
 * executed with another text than that which it was parsed from.
 */
static bool
is_within_text(const PaqStatement *statement)
{
	const int	len = Max(statement->len, 0);

	return has_bytes(statement->text, statement->location) &&
		strnlen(statement->text + statement->location, len) == (Size) len;
}

/* What may stand behind a statement without anybody missing it */
static bool
is_end(const char *rest)
{
	while (*rest == ';' || scanner_isspace(*rest))
		rest++;
	return *rest == '\0';
}

/*
 * The part of the text that the statement is, terminated by '\0'; NULL when out
 * of memory.  From then on the statement's location and len say where it is, -1
 * and 0 if it is the whole text.
 */
const char *
paq_statement_part(PaqStatement *statement)
{
	const char *part;
	Size		len;
	bool		to_end;

	if (likely(statement->part != NULL))
		return statement->part;
	if (statement->location < 0 ||
		(statement->location == 0 && statement->len <= 0) ||
		!is_within_text(statement) ||
		(statement->location == 0 && is_end(statement->text + statement->len)))
	{
		statement->location = -1;
		statement->len = 0;
		statement->part = statement->text;
		return statement->part;
	}

	part = statement->text + statement->location;
	to_end = statement->len <= 0;
	len = to_end ? strlen(part) : (Size) statement->len;
	for (; len > 0 && scanner_isspace(*part); len--)
		part++;
	while (len > 0 && scanner_isspace(part[len - 1]))
		len--;
	statement->location = part - statement->text;
	if (!to_end)
		statement->len = len;

	if (part[len] != '\0')
	{
		statement->part_copy =
			MemoryContextAllocExtended(TopMemoryContext, len + 1,
									   MCXT_ALLOC_NO_OOM | MCXT_ALLOC_HUGE);
		if (statement->part_copy == NULL)
			return NULL;
		memcpy(statement->part_copy, part, len);
		statement->part_copy[len] = '\0';
		part = statement->part_copy;
	}
	statement->part = part;
	return part;
}

void
paq_part_init(void)
{
	prev_post_parse_analyze = post_parse_analyze_hook;
	post_parse_analyze_hook = capture_post_parse_analyze;
}
