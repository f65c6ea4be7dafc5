/*-------------------------------------------------------------------------
 *
 * names.c
 *		Recognizing the names of trail files, whatever their time.
 *
 * A name of a trail file is one that log_filename can give at some time, then
 * perhaps a dot and the number that tells it from others of the same name, then
 * the endings of a format and of layers.  rotate.c makes them.
 *
 * Used by sessions, too.  May raise, for lack of memory or when somebody cancels
 * the query: callers can be left in the middle.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>

#include "compat.h"
#include "guc.h"
#include "lib/stringinfo.h"
#include "sink/sink_internal.h"

/*
 * What the escapes of pg_strftime() become: regular expressions or, with a "%",
 * other patterns.
 */
static const struct
{
	const char *letters;
	const char *becomes;
}			escapes[] =
{
	{"A", "(?:Sun|Mon|Tues|Wednes|Thurs|Fri|Satur)day"},
	{"a", "(?:Sun|Mon|Tue|Wed|Thu|Fri|Sat)"},
	{"B", "(?:January|February|March|April|May|June|July|August|September|October|November|December)"},
	{"bh", "(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"},
	{"Cgy", "[0-9]{2}"},
	{"c", "%a %b %e %H:%M:%S %Y"},
	{"Dx", "%m/%d/%y"},
	{"d", "(?:0[1-9]|[12][0-9]|3[01])"},
	{"e", "(?: [1-9]|[12][0-9]|3[01])"},
	{"F", "%Y-%m-%d"},
	{"GY", "[0-9]{4}"},
	{"H", "(?:[01][0-9]|2[0-3])"},
	{"Im", "(?:0[1-9]|1[0-2])"},
	{"j", "(?:00[1-9]|0[1-9][0-9]|[12][0-9]{2}|3[0-5][0-9]|36[0-6])"},
	{"k", "(?: [0-9]|1[0-9]|2[0-3])"},
	{"l", "(?: [1-9]|1[0-2])"},
	{"M", "[0-5][0-9]"},
	{"n", "\n"},
	{"p", "(?:AM|PM)"},
	{"R", "%H:%M"},
	{"r", "%I:%M:%S %p"},
	{"S", "(?:[0-5][0-9]|60)"},
	{"TX", "%H:%M:%S"},
	{"t", "\t"},
	{"UW", "(?:[0-4][0-9]|5[0-3])"},
	{"u", "[1-7]"},
	{"V", "(?:0[1-9]|[1-4][0-9]|5[0-3])"},
	{"v", "%e-%b-%Y"},
	{"w", "[0-6]"},
	{"Z", "[A-Za-z0-9+-]{3,6}"},
	{"z", "[+-][0-9]{4}"},
	{"+", "%a %b %e %H:%M:%S %Z %Y"}
};

/* Append a regular expression for the names that a pattern gives. */
static void
append_names(StringInfo regex, const char *pattern)
{
	for (; *pattern != '\0'; pattern++)
	{
		const char *becomes = NULL;

		if (*pattern == '%' && pattern[1] != '\0')
		{
			pattern++;
			/* E and O change nothing, except at the end. */
			while ((*pattern == 'E' || *pattern == 'O') && pattern[1] != '\0')
				pattern++;
			for (int i = 0; i < lengthof(escapes); i++)
				if (strchr(escapes[i].letters, *pattern) != NULL)
					becomes = escapes[i].becomes;
		}
		if (becomes == NULL)
		{
			/* see paq_trail_name() */
			char		c = IS_DIR_SEP(*pattern) ? '-' : *pattern;

			if (!IS_HIGHBIT_SET(c) && !isalnum((unsigned char) c))
				appendStringInfoChar(regex, '\\');
			appendStringInfoChar(regex, c);
		}
		else if (strchr(becomes, '%') != NULL)
			append_names(regex, becomes);
		else
			appendStringInfoString(regex, becomes);
	}
}

/*
 * Make the regular expression for names without their ending, to be freed by
 * pg_regfree().  On failure returns false, with errno.
 */
bool
paq_trail_names_compile(regex_t *names)
{
	StringInfoData regex;
	int			code;

	initStringInfo(&regex);
	appendStringInfoChar(&regex, '^');
	append_names(&regex, paq_log_filename);
	appendStringInfoString(&regex, "(?:\\.[1-9][0-9]*)?$");

	/* Names are bytes in no encoding. */
	code = paq_regcomp(names, regex.data, PG_SQL_ASCII);
	pfree(regex.data);
	errno = ENOMEM;
	return code == REG_OKAY;
}

/* Is this, without a directory, a name that we would give a trail file? */
bool
paq_trail_names_match(regex_t *names, const char *name)
{
	pg_wchar	wide[NAME_MAX + 1];
	Size		len;

	if (paq_trail_format_of(name) == NULL)
		return false;
	len = paq_trail_stem(name);
	if (len > NAME_MAX)
		return false;
	for (Size i = 0; i < len; i++)
		wide[i] = (unsigned char) name[i];
	return paq_regexec(names, wide, len, 0, 0, NULL, false) == REG_OKAY;
}
