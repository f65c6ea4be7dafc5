/*-------------------------------------------------------------------------
 *
 * names.c
 *		Which names in a directory are those of trail files.
 *
 * One that pg_audit_queue.log_filename can give at some time, then perhaps a
 * dot and the number that tells it from others of the same name, then the
 * ending of a format, whichever.
 *
 * Guarantees: says no when in doubt, because what it says yes to may be
 * removed.  Names made by an earlier value of the setting are not recognized.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <ctype.h>

#include "guc.h"
#include "sink/file_internal.h"

/* Length of an abbreviation of a time zone */
#define MIN_ZONE_LEN	3
#define MAX_ZONE_LEN	6

/* Length of an offset from UTC */
#define OFFSET_LEN		5

#define WEEKDAYS		"Sunday|Monday|Tuesday|Wednesday|Thursday|Friday|Saturday"
#define SHORT_WEEKDAYS	"Sun|Mon|Tue|Wed|Thu|Fri|Sat"
#define MONTHS \
	"January|February|March|April|May|June|July|August|September|October|November|December"
#define SHORT_MONTHS	"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"

/*
 * What an escape becomes: a number of fixed width, one of several words, or
 * what another pattern becomes, in which there are only escapes of the first
 * two kinds, and %Z.
 */
typedef struct Escape
{
	char		letter;
	char		padding;
	int			width;			/* of a number; 0: it is none */
	int			min;
	int			max;
	const char *words;			/* with "|" between them, or NULL */
	const char *pattern;		/* or NULL */
} Escape;

/* Those of pg_strftime(), but for %Z and %z */
static const Escape escapes[] = {
	{'A', .words = WEEKDAYS},
	{'a', .words = SHORT_WEEKDAYS},
	{'B', .words = MONTHS},
	{'b', .words = SHORT_MONTHS},
	{'C', '0', 2, 0, 99},
	{'c', .pattern = "%a %b %e %H:%M:%S %Y"},
	{'D', .pattern = "%m/%d/%y"},
	{'d', '0', 2, 1, 31},
	{'e', ' ', 2, 1, 31},
	{'F', .pattern = "%Y-%m-%d"},
	{'G', '0', 4, 0, 9999},
	{'g', '0', 2, 0, 99},
	{'H', '0', 2, 0, 23},
	{'h', .words = SHORT_MONTHS},
	{'I', '0', 2, 1, 12},
	{'j', '0', 3, 1, 366},
	{'k', ' ', 2, 0, 23},
	{'l', ' ', 2, 1, 12},
	{'M', '0', 2, 0, 59},
	{'m', '0', 2, 1, 12},
	{'n', .words = "\n"},
	{'p', .words = "AM|PM"},
	{'R', .pattern = "%H:%M"},
	{'r', .pattern = "%I:%M:%S %p"},
	{'S', '0', 2, 0, 60},
	{'T', .pattern = "%H:%M:%S"},
	{'t', .words = "\t"},
	{'U', '0', 2, 0, 53},
	{'u', '0', 1, 1, 7},
	{'V', '0', 2, 1, 53},
	{'v', .pattern = "%e-%b-%Y"},
	{'W', '0', 2, 0, 53},
	{'w', '0', 1, 0, 6},
	{'X', .pattern = "%H:%M:%S"},
	{'x', .pattern = "%m/%d/%y"},
	{'Y', '0', 4, 0, 9999},
	{'y', '0', 2, 0, 99},
	{'+', .pattern = "%a %b %e %H:%M:%S %Z %Y"}
};

static const Escape *
find_escape(char letter)
{
	for (int i = 0; i < lengthof(escapes); i++)
		if (escapes[i].letter == letter)
			return &escapes[i];
	return NULL;
}

/* Is there such a number at the beginning of text? */
static bool
match_number(const Escape *escape, const char *text, Size len)
{
	int			value = 0;
	int			i = 0;

	if (len < escape->width)
		return false;
	if (escape->padding == ' ')
		while (i < escape->width - 1 && text[i] == ' ')
			i++;
	for (; i < escape->width; i++)
	{
		if (!isdigit((unsigned char) text[i]))
			return false;
		value = value * 10 + (text[i] - '0');
	}
	return value >= escape->min && value <= escape->max;
}

/* Length of the word, of those, that text begins with; 0: with none. */
static Size
match_word(const char *words, const char *text, Size len)
{
	for (const char *word = words; *word != '\0';)
	{
		Size		word_len = strcspn(word, "|");

		if (word_len <= len && strncmp(word, text, word_len) == 0)
			return word_len;
		word += word_len;
		if (*word == '|')
			word++;
	}
	return 0;
}

/* Length of the number or word at the beginning of text; 0: that is not there. */
static Size
match_simple(const Escape *escape, const char *text, Size len)
{
	if (escape->width == 0)
		return match_word(escape->words, text, len);
	return match_number(escape, text, len) ? escape->width : 0;
}

/* Is there an offset from UTC, as of %z, at the beginning of text? */
static bool
match_offset(const char *text, Size len)
{
	if (len < OFFSET_LEN || (text[0] != '+' && text[0] != '-'))
		return false;
	for (int i = 1; i < OFFSET_LEN; i++)
		if (!isdigit((unsigned char) text[i]))
			return false;
	return true;
}

static bool match(const char *pattern, const char *after, const char *text, Size len);

/* Is text the abbreviation of a time zone, and then what match() says? */
static bool
match_zone(const char *pattern, const char *after, const char *text, Size len)
{
	for (Size n = 0; n <= Min(len, MAX_ZONE_LEN); n++)
	{
		if (n >= MIN_ZONE_LEN && match(pattern, after, text + n, len - n))
			return true;
		if (n == len || !(isalnum((unsigned char) text[n]) ||
						  text[n] == '+' || text[n] == '-'))
			break;
	}
	return false;
}

/*
 * Is text what the pattern becomes at some time, followed by what the pattern
 * after, unless that is NULL, becomes?
 */
static bool
match(const char *pattern, const char *after, const char *text, Size len)
{
	for (;; pattern++)
	{
		const Escape *escape = NULL;
		bool		escaped = *pattern == '%';
		Size		n;

		if (*pattern == '\0' && after != NULL)
			return match(after, NULL, text, len);
		if (*pattern == '\0')
			return len == 0;

		/* E and O change nothing; in front of nothing they are themselves. */
		if (escaped && pattern[1] != '\0')
			pattern++;
		while (escaped && (*pattern == 'E' || *pattern == 'O') && pattern[1] != '\0')
			pattern++;

		if (escaped && *pattern == 'Z')
			return match_zone(pattern + 1, after, text, len);
		if (escaped)
			escape = find_escape(*pattern);
		if (escape != NULL && escape->pattern != NULL)
			return match(escape->pattern, pattern + 1, text, len);
		if (escape != NULL)
			n = match_simple(escape, text, len);
		else if (escaped && *pattern == 'z')
			n = match_offset(text, len) ? OFFSET_LEN : 0;
		else
			/* what paq_trail_name() makes of a separator */
			n = len > 0 && *text == (IS_DIR_SEP(*pattern) ? '-' : *pattern) ? 1 : 0;
		if (n == 0)
			return false;
		text += n;
		len -= n;
	}
}

/* Length of the name without a number, from 1, behind its last dot. */
static Size
without_number(const char *name, Size len)
{
	Size		start = len;

	while (start > 0 && isdigit((unsigned char) name[start - 1]))
		start--;
	if (start == len || start == 0 || name[start] == '0' || name[start - 1] != '.')
		return len;
	return start - 1;
}

/* Is this, without a directory, a name that we would give a trail file? */
bool
paq_trail_has_name(const char *name)
{
	const PaqFormat *format = paq_trail_format_of(name);
	Size		len;

	if (format == NULL)
		return false;
	len = strlen(name) - strlen(format->extension);
	return match(paq_log_filename, NULL, name, len) ||
		match(paq_log_filename, NULL, name, without_number(name, len));
}
