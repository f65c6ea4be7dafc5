/*-------------------------------------------------------------------------
 *
 * names.c
 *		Names, formats and permissions of trail files: what the settings ask for,
 *		and recognizing names, whatever their time.
 *
 * A name of a trail file is one that log_filename can give at some time, then
 * perhaps a dot and the number that tells it from others of the same name, then
 * the endings of a format and of layers.  file.c makes them.
 *
 * Used by sessions and the loader, too.  paq_trail_names_compile() and
 * paq_trail_names_match() may raise, for lack of memory or when somebody cancels the
 * query: callers can be left in the middle.  Nothing else does.
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
#include "sink/load_file.h"
#include "sink/sink_internal.h"

/* ----------
 * What the settings ask for, and what names tell
 * ----------
 */

/* Directory of the files to be loaded; it need not exist. */
const char *
paq_load_directory(void)
{
	static char path[MAXPGPATH];

	/* The setting cannot change while the server runs, and leaves space. */
	if (path[0] == '\0')
		snprintf(path, sizeof(path), "%s/load", paq_queue_directory);
	return path;
}

/* Path of a file to be loaded; false if it is too long. */
bool
paq_load_file_path(char *dst, Size size, const PaqLoadFile *file)
{
	char		suffix[16] = "";

	if (file->suffix != 0)
		snprintf(suffix, sizeof(suffix), ".%u", file->suffix);
	return snprintf(dst, size, "%s/%016llX-%016llX%s.json",
					paq_load_directory(),
					(unsigned long long) file->series,
					(unsigned long long) file->sequence, suffix) < (int) size;
}

/*
 * Is path, with or without our directory, that of a file to be loaded?  If so
 * *file says what the name tells.
 */
bool
paq_load_file_parse(const char *path, PaqLoadFile *file)
{
	const char *separator = last_dir_separator(path);
	const char *name = separator ? separator + 1 : path;
	unsigned long long series;
	unsigned long long sequence;
	char		again[MAXPGPATH];

	file->suffix = 0;
	if (sscanf(name, "%16llX-%16llX.%10u", &series, &sequence, &file->suffix) < 2 ||
		series == 0)
		return false;
	file->series = series;
	file->sequence = sequence;

	/* sscanf() accepts more than what we would have written. */
	return paq_load_file_path(again, sizeof(again), file) &&
		strcmp(separator ? path : name,
			   separator ? again : last_dir_separator(again) + 1) == 0;
}

/* A path's last component, which is what the layers know of a file */
const char *
paq_trail_name_of(const char *path)
{
	const char *separator = last_dir_separator(path);

	return separator != NULL ? separator + 1 : path;
}

/* Directory that the settings ask for now. */
const char *
paq_trail_directory(void)
{
	return paq_sink == PAQ_SINK_TABLE ? paq_load_directory() : paq_log_directory;
}

/* Returns true if the path is that of a file in the directory that the settings ask for now. */
bool
paq_trail_is_inside(const char *path)
{
	const char *directory = paq_trail_directory();
	const Size	len = strlen(directory);

	return strncmp(path, directory, len) == 0 &&
		last_dir_separator(path) == path + len;
}

/* Pattern of names likewise; "" where there is none. */
const char *
paq_trail_pattern(void)
{
	return paq_sink == PAQ_SINK_TABLE ? "" : paq_log_filename;
}

static const PaqFormat *
format_of_kind(int kind)
{
	const PaqFormat *const formats[] = {
		[PAQ_FORMAT_PGAUDIT] = paq_format_pgaudit(&paq_log_line_prefix),
		[PAQ_FORMAT_CSVLOG] = paq_format_csvlog(),
		[PAQ_FORMAT_JSON] = paq_format_json(&paq_json_nulls)
	};

	return kind < lengthof(formats) ? formats[kind] : NULL;
}

/* Format that the settings ask for now; the loader reads json only. */
const PaqFormat *
paq_trail_format(void)
{
	return format_of_kind(paq_sink == PAQ_SINK_TABLE ? PAQ_FORMAT_JSON : paq_format);
}

/* Format of the file called path, going by its name; NULL if it is none of ours. */
const PaqFormat *
paq_trail_format_of(const char *path)
{
	const PaqFormat *format;
	PaqLayers	layers;
	Size		len = paq_layers_of_name(path, &layers);

	for (int kind = 0; (format = format_of_kind(kind)) != NULL; kind++)
	{
		Size		ext_len = strlen(format->extension);

		if (len > ext_len &&
			strncmp(path + len - ext_len, format->extension, ext_len) == 0)
			return format;
	}
	return NULL;
}

/* Length of such a path without its endings */
Size
paq_trail_stem(const char *path)
{
	const PaqFormat *format = paq_trail_format_of(path);
	PaqLayers	layers;
	Size		len = paq_layers_of_name(path, &layers);

	return format != NULL ? len - strlen(format->extension) : len;
}

/* Permissions that the settings ask for; we ourselves have to read and write. */
int
paq_trail_mode(void)
{
	return paq_log_file_mode | S_IRUSR | S_IWUSR;
}

/* ----------
 * Recognizing names, whatever their time
 * ----------
 */

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
			/* see make_file_name() in file.c */
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
