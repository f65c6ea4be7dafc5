/*-------------------------------------------------------------------------
 *
 * criteria.c
 *		What a filter asks for: words with wildcards, and ranges of times and sequences.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

void
patterns_add(Patterns *patterns, const char *pattern, Size len)
{
	char	   *copy = checked_alloc(len + 1);
	char	  **list = realloc(patterns->pattern, (patterns->count + 1) * sizeof(char *));

	if (list == NULL)
		trouble("out of memory");
	memcpy(copy, pattern, len);
	patterns->pattern = list;
	patterns->pattern[patterns->count++] = copy;
}

/* Returns true if the filter needs more of a record than a search for texts. */
bool
filter_needs_fields(const Filter *filter)
{
	return filter->has_from || filter->has_to || filter->from_sequence > 0 ||
		filter->to_sequence < PG_INT64_MAX || filter->type.count > 0 ||
		filter->class.count > 0 || filter->command.count > 0 || filter->user.count > 0 ||
		filter->database.count > 0 || filter->object.count > 0 ||
		filter->session.count > 0 || filter->outcome.count > 0 ||
		filter->address.count > 0 || filter->setting.count > 0 ||
		filter->transaction.count > 0 || filter->has_rows || filter->superuser;
}

bool
filter_is_empty(const Filter *filter)
{
	return !filter_needs_fields(filter) && filter->text.count == 0;
}

/* Behind the character at p: a wildcard stands for one of these. */
static const char *
next_character(const char *p, const char *end)
{
	p++;
	while (p < end && ((unsigned char) *p & 0xc0) == 0x80)
		p++;
	return p;
}

static bool
same_byte(char a, char b, bool any_case)
{
	return a == b ||
		(any_case && pg_tolower((unsigned char) a) == pg_tolower((unsigned char) b));
}

/*
 * Does the text match a pattern with wildcards?  When it does not go on, the last * takes
 * one character more.
 */
bool
word_matches(Text text, const char *pattern, bool any_case)
{
	const char *p = text.data;
	const char *end = text.data + text.len;
	const char *star = NULL;
	const char *retry = NULL;

	while (p < end)
	{
		if (*pattern == '*')
		{
			star = ++pattern;
			retry = p;
		}
		else if (*pattern == '?')
		{
			pattern++;
			p = next_character(p, end);
		}
		else if (*pattern != '\0' && same_byte(*pattern, *p, any_case))
		{
			pattern++;
			p++;
		}
		else if (star != NULL)
		{
			pattern = star;
			p = retry = next_character(retry, end);
		}
		else
			return false;
	}
	while (*pattern == '*')
		pattern++;
	return *pattern == '\0';
}

/* Returns true if a word of --transaction is an id, false if it is a virtual one. */
bool
is_transaction_id(const char *word)
{
	return strchr(word, '/') == NULL;
}

/* Returns true if an outcome is among those that are wanted that only other records tell. */
bool
filter_wants_undone(const Filter *filter)
{
	for (int i = 0; i < filter->outcome.count; i++)
		if (strcmp(filter->outcome.pattern[i], "undone") == 0)
			return true;
	return false;
}

bool
filter_in_sequences(const Filter *filter, const Record *record)
{
	int64		value;

	if (filter->from_sequence == 0 && filter->to_sequence == PG_INT64_MAX)
		return true;
	return paq_line_number(&record->line.value[PAQ_TRAIL_SEQUENCE], &value) &&
		value >= filter->from_sequence && value <= filter->to_sequence;
}

static bool
matches_time(const Filter *filter, const Record *record)
{
	int64		value;

	if (!filter->has_from && !filter->has_to)
		return true;
	return paq_line_time(&record->line.value[PAQ_TRAIL_LOG_TIME], &value) &&
		(!filter->has_from || value >= filter->from) &&
		(!filter->has_to || value < filter->to);
}

/* Returns true if the record is of the times and sequences that are wanted. */
bool
filter_in_range(const Filter *filter, const Record *record)
{
	return filter_in_sequences(filter, record) && matches_time(filter, record);
}
