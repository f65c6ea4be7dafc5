/*-------------------------------------------------------------------------
 *
 * words.c
 *		Words of a statement, as PostgreSQL reads them.
 *
 * A text may be anything that a user has sent, or a part of that.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include "common/hashfn.h"

/* A comment, which may have others in it, whose first two characters are at p */
static const char *
skip_comment(const char *p, const char *end)
{
	int			depth = 0;

	while (p < end)
	{
		if (end - p >= 2 && p[0] == '/' && p[1] == '*')
		{
			depth++;
			p += 2;
		}
		else if (end - p >= 2 && p[0] == '*' && p[1] == '/')
		{
			p += 2;
			if (--depth == 0)
				return p;
		}
		else
			p++;
	}
	return end;
}

void
words_skip_space(Words *words)
{
	const char *p = words->p;
	const char *end = words->end;

	for (;;)
	{
		if (p < end && strchr(" \t\n\r\f\v", *p) != NULL && *p != '\0')
			p++;
		else if (end - p >= 2 && p[0] == '-' && p[1] == '-')
			while (p < end && *p != '\n' && *p != '\r')
				p++;
		else if (end - p >= 2 && p[0] == '/' && p[1] == '*')
			p = skip_comment(p, end);
		else
			break;
	}
	words->p = p;
}

static bool
is_word_character(char c)
{
	return isalnum((unsigned char) c) || c == '_' || c == '$' || IS_HIGHBIT_SET(c);
}

/* If the next word is this one, in any case, go behind it. */
bool
words_take(Words *words, const char *word)
{
	const Size	len = strlen(word);

	words_skip_space(words);
	if (words->end - words->p < (ptrdiff_t) len ||
		pg_strncasecmp(words->p, word, len) != 0 ||
		(words->end - words->p > (ptrdiff_t) len && is_word_character(words->p[len])))
		return false;
	words->p += len;
	return true;
}

/*
 * Go behind the name that comes next, if there is one.  Returns true, with its hash, if PostgreSQL
 * is sure to understand the same name: another encoding may fold what is not ASCII, and decides
 * where a long name is cut.  What is left of a name with Unicode escapes, U&"...", is not its end.
 */
bool
words_take_name(Words *words, uint64 *hash)
{
	const char *p;
	char		name[NAMEDATALEN];
	Size		len = 0;
	bool		quoted;
	bool		is_certain = true;

	words_skip_space(words);
	p = words->p;
	quoted = p < words->end && *p == '"';
	if (quoted)
		p++;
	while (p < words->end)
	{
		if (quoted && *p == '"' && (words->end - p < 2 || p[1] != '"'))
			break;
		if (quoted && *p == '"')
			p++;
		if (!quoted && !is_word_character(*p))
			break;
		if (len < NAMEDATALEN - 1)
			name[len++] = quoted ? *p : pg_ascii_tolower((unsigned char) *p);
		is_certain &= !IS_HIGHBIT_SET(*p);
		p++;
	}
	if (quoted && p < words->end)
		p++;
	else if (quoted)
		is_certain = false;
	words->p = p;
	*hash = hash_bytes_extended((unsigned char *) name, (int) len, hash_seed());
	return is_certain && len > 0 && len < NAMEDATALEN - 1;
}

/* Returns true if nothing more of the statement comes. */
bool
words_at_end(Words *words)
{
	words_skip_space(words);
	return words->p == words->end || *words->p == ';';
}

/*
 * Go behind the next word, name, or character that is neither.  Returns false at the end of the
 * text.
 */
bool
words_skip(Words *words)
{
	const char *start;
	uint64		ignored;

	words_skip_space(words);
	start = words->p;
	if (start == words->end)
		return false;
	(void) words_take_name(words, &ignored);
	if (words->p == start)
		words->p++;
	return true;
}
