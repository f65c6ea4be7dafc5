/*-------------------------------------------------------------------------
 *
 * load_file.c
 *		Files on their way into the table: where they are, what they are
 *		called.  See load_file.h.
 *
 * Must not raise: the sink and the loader report what fails in their own ways.
 *
 * Locking: none.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "guc.h"
#include "sink/load_file.h"

#define SUBDIRECTORY	"load"
#define EXTENSION		".json"
#define HEX_DIGITS		16

/* Directory of the files; it need not exist. */
const char *
paq_load_directory(void)
{
	static char path[MAXPGPATH];

	/* A setting that cannot change while the server runs, and leaves room. */
	if (path[0] == '\0')
		snprintf(path, sizeof(path), "%s/" SUBDIRECTORY, paq_queue_directory);
	return path;
}

/* Read HEX_DIGITS digits, upper case as we write them. */
static bool
parse_hex(const char **p, uint64 *value)
{
	*value = 0;
	for (int i = 0; i < HEX_DIGITS; i++)
	{
		static const char digits[] = "0123456789ABCDEF";
		const char *digit = **p != '\0' ? strchr(digits, **p) : NULL;

		if (digit == NULL)
			return false;
		*value = *value << 4 | (uint64) (digit - digits);
		(*p)++;
	}
	return true;
}

/* Read ".N", if there is one. */
static bool
parse_suffix(const char **p, uint32 *suffix)
{
	uint64		value = 0;

	*suffix = 0;
	if ((*p)[0] != '.' || (*p)[1] < '1' || (*p)[1] > '9')
		return true;
	for ((*p)++; **p >= '0' && **p <= '9'; (*p)++)
	{
		value = value * 10 + (**p - '0');
		if (value > PG_UINT32_MAX)
			return false;
	}
	*suffix = (uint32) value;
	return true;
}

/*
 * Is path, or name, that of a file to be loaded?  If so *file says what the
 * name tells.  With a directory, that must be ours.
 */
bool
paq_load_file_parse(const char *path, PaqLoadFile *file)
{
	const char *directory = paq_load_directory();
	const char *separator = last_dir_separator(path);
	const char *p = path;

	if (separator != NULL)
	{
		if (strlen(directory) != separator - path ||
			strncmp(path, directory, separator - path) != 0)
			return false;
		p = separator + 1;
	}
	return parse_hex(&p, &file->series) && file->series != 0 &&
		*p++ == '-' &&
		parse_hex(&p, &file->sequence) &&
		parse_suffix(&p, &file->suffix) &&
		strcmp(p, EXTENSION) == 0;
}

/*
 * Begin *file behind the file at path, "" for none, whose last record has the
 * given sequence.  False if a new series has to begin and there is no number
 * for it.
 */
bool
paq_load_file_successor(const char *path, uint64 sequence, PaqLoadFile *file)
{
	if (!paq_load_file_parse(path, file))
	{
		do
		{
			if (!pg_strong_random(&file->series, sizeof(file->series)))
				return false;
			file->series &= PG_INT64_MAX;
		} while (file->series == 0);
	}
	file->sequence = sequence;
	file->suffix = 0;
	return true;
}

/* Path of the file; false if it is too long. */
bool
paq_load_file_path(char *dst, Size size, const PaqLoadFile *file)
{
	char		suffix[16] = "";

	if (file->suffix != 0)
		snprintf(suffix, sizeof(suffix), ".%u", file->suffix);
	return snprintf(dst, size, "%s/%016llX-%016llX%s" EXTENSION,
					paq_load_directory(),
					(unsigned long long) file->series,
					(unsigned long long) file->sequence, suffix) < (int) size;
}
