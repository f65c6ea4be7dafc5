/*-------------------------------------------------------------------------
 *
 * report_text.c
 *		The report as text.
 *
 * On a terminal each line fits into its width, if that is 80 or more: names are cut, and end
 * in "~" then, and so do texts.  Numbers and times are never cut.  Elsewhere, columns are
 * as wide as what is in them, unless COLUMNS says how wide a line may be.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"

/* Names are not cut to less. */
#define MIN_NAME		8

/* Most columns of a grid */
#define MAX_COLUMNS		16

/* Lines of notes, where nothing says how wide a line may be */
#define NOTE_WIDTH		80

#define RED		"\033[31m"
#define BOLD	"\033[1m"
#define PLAIN	"\033[0m"

static Buffer buf;
static int	line_width;			/* 0: any */
static bool with_colors;

static void
write_out(void)
{
	output_put(buf.data, buf.used);
	buf.used = 0;
}

static void
put_colored(const char *color, const char *data, Size len)
{
	if (with_colors)
		buffer_puts(&buf, color);
	buffer_put(&buf, data, len);
	if (with_colors)
		buffer_puts(&buf, PLAIN);
}

/* End a line, without spaces in front of that. */
static void
end_text_line(void)
{
	while (buf.used > 0 && buf.data[buf.used - 1] == ' ')
		buf.used--;
	buffer_putc(&buf, '\n');
}

static void
put_heading(const char *title, char line)
{
	put_colored(BOLD, title, strlen(title));
	buffer_putc(&buf, '\n');
	buffer_fill(&buf, line, strlen(title));
	buffer_putc(&buf, '\n');
}

static void
text_begin(const char *title, const Options *options)
{
	with_colors = wants_colors(options);
	line_width = output_width();
	put_heading(title, '=');
	write_out();
}

static void
text_section(const char *title)
{
	buffer_putc(&buf, '\n');
	put_heading(title, '-');
	write_out();
}

/* A note, whose lines are broken at spaces */
static void
text_note(const char *text, bool bad)
{
	const int	width = line_width > 0 ? Max(Min(line_width, NOTE_WIDTH) - 2, 1) : NOTE_WIDTH - 2;
	const char *prefix = bad ? "! " : "  ";

	while (*text != '\0')
	{
		int			len = strlen(text);

		if (len > width)
			for (len = width; len > 0 && text[len] != ' '; len--)
				;
		if (len == 0)
			len = strcspn(text, " ");
		buffer_puts(&buf, prefix);
		if (bad)
			put_colored(RED, text, len);
		else
			buffer_put(&buf, text, len);
		buffer_putc(&buf, '\n');
		text += len;
		text += strspn(text, " ");
		prefix = "  ";
	}
	write_out();
}

/* How wide columns are: as their cells, but the widest names give way. */
static void
set_widths(const Grid *grid, int *widths)
{
	int			total = grid->ncolumns - 1;

	for (int i = 0; i < grid->ncolumns; i++)
		widths[i] = strlen(grid->columns[i].title);
	for (int i = 0; i < grid->ncells; i++)
		/* analyzer: where there are cells there are columns */
		widths[i % grid->ncolumns] = Max(widths[i % grid->ncolumns], grid->cells[i].width);
	for (int i = 0; i < grid->ncolumns; i++)
		total += widths[i];
	for (; line_width > 0 && total > line_width; total--)
	{
		int			widest = -1;

		for (int i = 0; i < grid->ncolumns; i++)
			if (grid->columns[i].kind == COLUMN_NAME && widths[i] > MIN_NAME &&
				(widest < 0 || widths[i] > widths[widest]))
				widest = i;
		if (widest < 0)
			break;
		widths[widest]--;
	}
}

static void
put_text_cell(const Grid *grid, const Cell *cell, ColumnKind kind, int width)
{
	const char *data = grid->text.data + cell->start;
	int			used = cell->width;
	Size		len = cell->len;

	if (kind == COLUMN_NUMBER)
		buffer_fill(&buf, ' ', width - used);
	if (used > width)
		len = text_fits(data, len, width - 1, &used);
	if (cell->bad)
		put_colored(RED, data, len);
	else
		buffer_put(&buf, data, len);
	if (len < cell->len)
	{
		buffer_putc(&buf, '~');
		used++;
	}
	if (kind != COLUMN_NUMBER)
		buffer_fill(&buf, ' ', width - used);
}

static void
put_titles(const Grid *grid, const int *widths)
{
	for (int i = 0; i < grid->ncolumns; i++)
	{
		const char *title = grid->columns[i].title;
		const int	space = widths[i] - (int) strlen(title);

		if (i > 0)
			buffer_putc(&buf, ' ');
		if (grid->columns[i].kind == COLUMN_NUMBER)
			buffer_fill(&buf, ' ', space);
		buffer_puts(&buf, title);
		if (grid->columns[i].kind != COLUMN_NUMBER)
			buffer_fill(&buf, ' ', space);
	}
	end_text_line();
}

static void
put_rows(const Grid *grid, const int *widths)
{
	for (int i = 0; i < grid->ncells; i++)
	{
		const int	column = i % grid->ncolumns;

		put_text_cell(grid, &grid->cells[i], grid->columns[column].kind, widths[column]);
		if (column < grid->ncolumns - 1)
			buffer_putc(&buf, ' ');
		else
			end_text_line();
	}
	write_out();
}

static void
text_facts(const Grid *grid)
{
	int			widths[MAX_COLUMNS];

	set_widths(grid, widths);
	put_rows(grid, widths);
}

static void
text_table(const Grid *grid)
{
	int			widths[MAX_COLUMNS];

	Assert(grid->ncolumns <= MAX_COLUMNS);
	buffer_putc(&buf, '\n');
	if (grid->title != NULL)
	{
		put_colored(BOLD, grid->title, strlen(grid->title));
		buffer_puts(&buf, ":\n");
	}
	set_widths(grid, widths);
	put_titles(grid, widths);
	put_rows(grid, widths);
}

static void
text_long_table(const Grid *grid, const char *summary)
{
	text_table(grid);
}

/* Text has the table of days, and of each name, instead. */
static void
text_days_chart(const Spans *spans, const char *title, bool failures)
{
}

static void
text_bars_chart(const Grid *grid)
{
}

static void
text_end(void)
{
	output_flush();
}

const ReportWriter text_writer = {
	.begin = text_begin,
	.section = text_section,
	.note = text_note,
	.facts = text_facts,
	.table = text_table,
	.long_table = text_long_table,
	.days_chart = text_days_chart,
	.bars_chart = text_bars_chart,
	.end = text_end
};
