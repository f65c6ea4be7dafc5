/*-------------------------------------------------------------------------
 *
 * print.c
 *		Records in any format, on standard output.
 *
 * A record that is in the wanted format already is written as it is; but on a terminal,
 * nothing that a user has put into it is obeyed.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <unistd.h>

static bool to_terminal;

bool
wants_colors(const Options *options)
{
	const char *no_color = getenv("NO_COLOR");

	return options->colors == COLORS_ALWAYS ||
		(options->colors == COLORS_AUTO && isatty(STDOUT_FILENO) &&
		 (no_color == NULL || no_color[0] == '\0'));
}

void
print_begin(const Options *options)
{
	to_terminal = isatty(STDOUT_FILENO);
	table_begin(wants_colors(options));
}

static bool
is_json(Format format)
{
	return format == FORMAT_JSON || format == FORMAT_OCSF || format == FORMAT_ECS;
}

void
print_record(const Options *options, Record *record)
{
	static Buffer raw;
	static Buffer safe;
	const char *data = record->data;
	Size		len = record->len;
	const bool	convert = options->format != record->format;

	raw.used = safe.used = 0;
	if (convert)
	{
		if (options->format == FORMAT_CSVLOG || options->format == FORMAT_PGAUDIT)
			server_format_write(&raw, record, options->format);
		else if (options->format == FORMAT_OCSF)
			ocsf_write(&raw, record);
		else if (options->format == FORMAT_ECS)
			ecs_write(&raw, record);
		else
			table_write(&raw, record);
		data = raw.data;
		len = raw.used;
	}
	if (options->format != FORMAT_TABLE &&
		(to_terminal || (convert && options->format == FORMAT_PGAUDIT)))
	{
		safe_put(&safe, is_json(options->format) ? SAFE_JSON : SAFE_LINES, data, len);
		data = safe.data;
		len = safe.used;
	}
	output_put(data, len);
}
