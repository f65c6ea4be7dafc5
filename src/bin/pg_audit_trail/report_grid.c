/*-------------------------------------------------------------------------
 *
 * report_grid.c
 *		A table's cells.
 *
 * Users decide what is in a text of the trail.  It becomes harmless to a terminal when it
 * is put into a cell, as in the format table of cat, so that nobody who
 * writes cells can forget that.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"


void
grid_begin(Grid *grid, const char *title, const GridColumn *columns, int ncolumns)
{
	memset(grid, 0, sizeof(Grid));
	grid->title = title;
	grid->columns = columns;
	grid->ncolumns = ncolumns;
}

static Cell *
add_cell(Grid *grid)
{
	Cell	   *cell;

	if (grid->ncells == grid->size)
	{
		grid->size = Max(64, 2 * grid->size);
		grid->cells = realloc(grid->cells, grid->size * sizeof(Cell));
		if (grid->cells == NULL)
			trouble("out of memory");
	}
	cell = &grid->cells[grid->ncells++];
	memset(cell, 0, sizeof(Cell));
	cell->start = grid->text.used;
	return cell;
}

/* "-" if it is null; "~" behind it if it is not all of the text */
void
grid_text(Grid *grid, Text text, bool is_whole)
{
	Cell	   *cell = add_cell(grid);
	const char *end;
	int			width;

	if (text.data == NULL)
	{
		text.data = "-";
		text.len = 1;
	}
	end = text.data + text.len;
	for (const char *p = text.data; p < end; cell->width += width)
		p += safe_put_char(&grid->text, SAFE_LINE, p, end - p, &width);
	if (!is_whole)
	{
		buffer_putc(&grid->text, '~');
		cell->width++;
	}
	cell->len = grid->text.used - cell->start;
}

void
grid_string(Grid *grid, const char *string)
{
	const Text	text = {string, string != NULL ? strlen(string) : 0};

	grid_text(grid, text, true);
}

void
grid_buffer(Grid *grid, const Buffer *buf)
{
	const Text	text = {buf->data, buf->used};

	grid_text(grid, text, true);
}

/* A word of the program's own */
void
grid_word(Grid *grid, const char *word, bool bad)
{
	grid_string(grid, word);
	grid->cells[grid->ncells - 1].bad = bad;
}

void
grid_number(Grid *grid, int64 number, bool bad)
{
	Cell	   *cell = add_cell(grid);

	buffer_grouped(&grid->text, number);
	cell->len = cell->width = grid->text.used - cell->start;
	cell->bad = bad;
	cell->number = number;
}

/* A number that counts nothing: a sequence */
void
grid_id(Grid *grid, int64 number)
{
	Cell	   *cell = add_cell(grid);

	buffer_printf(&grid->text, INT64_FORMAT, number);
	cell->len = cell->width = grid->text.used - cell->start;
}

/* A time in the local time zone, in strftime's format; "-" if there is none */
void
grid_time(Grid *grid, bool has_time, int64 timestamp, const char *format)
{
	char		text[64];
	struct tm	tm;

	if (has_time && local_tm(timestamp, &tm) && strftime(text, sizeof(text), format, &tm) > 0)
		grid_string(grid, text);
	else
		grid_string(grid, NULL);
}

/* As much of a cell's text as fits into so many columns; *used: columns that it takes */
Size
text_fits(const char *data, Size len, int width, int *used)
{
	static Buffer ignored;
	const char *p = data;
	int			char_width;

	*used = 0;
	while (p < data + len)
	{
		int			n;

		ignored.used = 0;
		n = safe_put_char(&ignored, SAFE_LINE, p, data + len - p, &char_width);
		if (*used + char_width > width)
			break;
		*used += char_width;
		p += n;
	}
	return p - data;
}

void
grid_free(Grid *grid)
{
	free(grid->cells);
	free(grid->text.data);
	memset(grid, 0, sizeof(Grid));
}
