/*-------------------------------------------------------------------------
 *
 * table.c
 *		A table for people, a line for each record.
 *
 * Columns have a width that does not depend on the records, for these are printed as they
 * come.  On a terminal each line fits into its width, and what is cut ends in "~": a narrow one
 * has who did what when, and how it ended; where there is more space, there are more columns.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/program.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "datatype/timestamp.h"

#define DEFAULT_WIDTH	80

/* The text is left out if it had less. */
#define MIN_TEXT		12

#define RED		"\033[31m"
#define YELLOW	"\033[33m"
#define PLAIN	"\033[0m"

typedef enum Column
{
	COLUMN_TIME,
	COLUMN_USER,
	COLUMN_ADDRESS,
	COLUMN_DATABASE,
	COLUMN_CLASS,
	COLUMN_COMMAND,
	COLUMN_OBJECT,
	COLUMN_OUTCOME,
	COLUMN_TEXT,
	NCOLUMNS
} Column;

static const struct
{
	const char *title;
	int			width;			/* columns; where nothing has to fit, names move what is
								 * behind them */
	int			from;			/* width of the terminal from which on it is there */
}			columns[NCOLUMNS] = {
	[COLUMN_TIME] = {"time", 19, 0},
	[COLUMN_USER] = {"user", 10, 0},
	[COLUMN_ADDRESS] = {"address", 15, 100},
	[COLUMN_DATABASE] = {"database", 10, 140},
	[COLUMN_CLASS] = {"class", 8, 140},
	[COLUMN_COMMAND] = {"command", 12, 0},
	[COLUMN_OBJECT] = {"object", 20, 120},
	[COLUMN_OUTCOME] = {"outcome", 7, 0},
	[COLUMN_TEXT] = {"text", 0, 0}
};

/* With milliseconds */
#define LONG_TIME_WIDTH	23
#define LONG_TIME_FROM	160

static int	widths[NCOLUMNS];
static bool cut;				/* do texts have to fit? */
static bool with_colors;
static bool header_is_printed;

/* Columns of the terminal; 0 if nothing has to fit. */
int
output_width(void)
{
	const char *columns = getenv("COLUMNS");
	struct winsize size;

	if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 &&
		size.ws_col > 0)
		return size.ws_col;
	if (columns != NULL && atoi(columns) > 0)
		return atoi(columns);
	return isatty(STDOUT_FILENO) ? DEFAULT_WIDTH : 0;
}

void
table_begin(bool colors)
{
	const int	width = output_width();
	int			left = width;

	cut = width > 0;
	with_colors = colors;
	for (int i = 0; i < NCOLUMNS; i++)
		widths[i] = !cut || width >= columns[i].from ? columns[i].width : 0;
	if (!cut || width >= LONG_TIME_FROM)
		widths[COLUMN_TIME] = LONG_TIME_WIDTH;
	if (!cut)
		return;
	for (int i = 0; i < COLUMN_TEXT; i++)
	{
		if (widths[i] == 0)
			continue;
		widths[i] = Max(0, Min(widths[i], left));
		left -= widths[i] + 1;
	}
	widths[COLUMN_TEXT] = left >= MIN_TEXT ? left : 0;
}

/*
 * Append text to a cell that has *used columns already.  What does not fit is
 * cut: *fits becomes false.
 */
static void
put_cell_text(Buffer *buf, Column column, Text text, int *used, bool *fits)
{
	const char *p = text.data;
	const char *end = p + text.len;
	Size		cut_at = buf->used;
	int			cut_used = *used;

	while (*fits && p < end)
	{
		int			char_width;

		if (*used < widths[column])
		{
			cut_at = buf->used;
			cut_used = *used;
		}
		p += safe_put_char(buf, SAFE_LINE, p, end - p, &char_width);
		*used += char_width;
		*fits = !cut || *used <= widths[column];
	}
	if (*fits)
		return;
	buf->used = cut_at;
	*used = cut_used;
	if (*used < widths[column])
	{
		buffer_putc(buf, '~');
		(*used)++;
	}
}

/* Fill a cell, and separate it from the next one; the last ones may be empty. */
static void
end_cell(Buffer *buf, Column column, int used)
{
	if (column == COLUMN_TEXT || widths[column] == 0)
		return;
	buffer_fill(buf, ' ', widths[column] - used);
	buffer_putc(buf, ' ');
}

static void
put_table_cell(Buffer *buf, Column column, Text text)
{
	int			used = 0;
	bool		fits = true;

	put_cell_text(buf, column, text, &used, &fits);
	end_cell(buf, column, used);
}

static void
put_string(Buffer *buf, Column column, const char *string)
{
	const Text	text = {string, strlen(string)};

	put_table_cell(buf, column, text);
}

/* In local time, with milliseconds if there is space */
static void
put_table_time(Buffer *buf, Record *record)
{
	char		text[64] = "";
	int64		timestamp;
	int64		usec;
	struct tm	tm;

	if (paq_line_time(&record->line.value[PAQ_TRAIL_LOG_TIME], &timestamp))
	{
		usec = timestamp % USECS_PER_SEC;
		if (usec < 0)
			usec += USECS_PER_SEC;
		if (local_tm(timestamp, &tm))
			strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &tm);
		if (widths[COLUMN_TIME] == LONG_TIME_WIDTH)
			snprintf(text + strlen(text), 8, ".%03d", (int) (usec / 1000));
	}
	put_string(buf, COLUMN_TIME, text);
}

/* What was rolled back has succeeded all the same. */
static void
put_table_outcome(Buffer *buf, Record *record)
{
	if (transaction_is_undone(record))
		put_string(buf, COLUMN_OUTCOME, "undone");
	else if (record_is(record, PAQ_TRAIL_EXIT_CODE, "00000"))
		put_string(buf, COLUMN_OUTCOME, "ok");
	else
		put_table_cell(buf, COLUMN_OUTCOME, record_text(record, PAQ_TRAIL_EXIT_CODE));
}

/* Error message, values of a setting, statement */
static void
put_table_text(Buffer *buf, Record *record)
{
	static const Text arrow = {" -> ", 4};
	static const Text separator = {" | ", 3};
	const Text	message = record_text(record, PAQ_TRAIL_ERROR_MESSAGE);
	const Text	statement = record_text(record, PAQ_TRAIL_COMMAND_TEXT);
	const Text	value = record_text(record, PAQ_TRAIL_NEW_VALUE);
	int			used = 0;
	bool		fits = true;

	if (cut && widths[COLUMN_TEXT] == 0)
		return;
	put_cell_text(buf, COLUMN_TEXT, message, &used, &fits);
	if (value.data != NULL)
	{
		if (message.data != NULL)
			put_cell_text(buf, COLUMN_TEXT, separator, &used, &fits);
		put_cell_text(buf, COLUMN_TEXT, record_text(record, PAQ_TRAIL_OLD_VALUE), &used, &fits);
		put_cell_text(buf, COLUMN_TEXT, arrow, &used, &fits);
		put_cell_text(buf, COLUMN_TEXT, value, &used, &fits);
	}
	if (statement.data != NULL && (message.data != NULL || value.data != NULL))
		put_cell_text(buf, COLUMN_TEXT, separator, &used, &fits);
	put_cell_text(buf, COLUMN_TEXT, statement, &used, &fits);
}

/* End a line, without the spaces that the last cells were filled with. */
static void
end_table_line(Buffer *buf)
{
	while (buf->used > 0 && buf->data[buf->used - 1] == ' ')
		buf->used--;
}

static void
put_header(Buffer *buf)
{
	for (int i = 0; i < NCOLUMNS; i++)
		if (!cut || widths[i] > 0)
			put_string(buf, i, columns[i].title);
	end_table_line(buf);
	buffer_putc(buf, '\n');
	header_is_printed = true;
}

void
table_write(Buffer *buf, Record *record)
{
	const char *color = NULL;

	if (!header_is_printed)
		put_header(buf);
	if (with_colors)
		color = record_is_gap(record) ? YELLOW : record_has_failed(record) ? RED
																		   : NULL;
	if (color != NULL)
		buffer_puts(buf, color);
	record_decode_as(record, false);
	put_table_time(buf, record);
	put_table_cell(buf, COLUMN_USER, record_text(record, PAQ_TRAIL_USER_NAME));
	put_table_cell(buf, COLUMN_ADDRESS, record_text(record, PAQ_TRAIL_REMOTE_HOST));
	put_table_cell(buf, COLUMN_DATABASE, record_text(record, PAQ_TRAIL_DATABASE_NAME));
	put_table_cell(buf, COLUMN_CLASS, record_text(record, PAQ_TRAIL_CLASS));
	put_table_cell(buf, COLUMN_COMMAND, record_text(record, PAQ_TRAIL_COMMAND));
	put_table_cell(buf, COLUMN_OBJECT, record_text(record, PAQ_TRAIL_OBJECT_NAME));
	put_table_outcome(buf, record);
	put_table_text(buf, record);
	end_table_line(buf);
	if (color != NULL)
		buffer_puts(buf, PLAIN);
	buffer_putc(buf, '\n');
}
