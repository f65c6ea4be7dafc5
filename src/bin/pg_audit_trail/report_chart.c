/*-------------------------------------------------------------------------
 *
 * report_chart.c
 *		Charts of the page of HTML, as SVG.
 *
 * A chart needs no script and nothing from elsewhere.  All of its figures are in a table beside
 * it, too: a chart's title and description are for who does not see it.  Where there is
 * a failure, at least a line of it is drawn, however many records there are.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"

/* Chart of days, in units of its own: the page scales it. */
#define DAYS_WIDTH		1000
#define DAYS_HEIGHT		250
#define PLOT_LEFT		56
#define PLOT_TOP		12
#define PLOT_WIDTH		(DAYS_WIDTH - PLOT_LEFT - 4)
#define PLOT_HEIGHT		200
#define MAX_BAR			64
#define MAX_TICKS		5
#define MAX_LABELS		10

/* Chart of names */
#define BARS_WIDTH		480
#define LABEL_WIDTH		140
#define LABEL_CHARS		17
#define BAR_SPACE		230
#define ROW_HEIGHT		24
#define MAX_BARS		10

/* Escape what means something in HTML or XML. */
void
html_put(Buffer *buf, const char *data, Size len)
{
	for (const char *p = data; p < data + len; p++)
	{
		switch (*p)
		{
			case '&':
				buffer_puts(buf, "&amp;");
				break;
			case '<':
				buffer_puts(buf, "&lt;");
				break;
			case '>':
				buffer_puts(buf, "&gt;");
				break;
			case '"':
				buffer_puts(buf, "&quot;");
				break;
			case '\'':
				buffer_puts(buf, "&#39;");
				break;
			default:
				buffer_putc(buf, *p);
		}
	}
}

static void
put_svg(Buffer *buf, int width, int height, int number, const char *title)
{
	buffer_printf(buf, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"t%d d%d\">\n",
				  width, height, number, number);
	buffer_printf(buf, "<title id=\"t%d\">%s</title>\n", number, title);
}

static void
put_rect(Buffer *buf, const char *class, double x, double y, double width, double height)
{
	buffer_printf(buf, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
				  class, x, y, width, height);
}

/* How long a bar is, which can be seen if there is anything to see */
static double
bar_length(int64 part, double scale)
{
	return part > 0 ? Max(part * scale, 2) : 0;
}

/* Distance of the lines: 1, 2 or 5 and zeros, so that there are few of them */
static int64
tick_step(int64 max)
{
	static const int factors[] = {1, 2, 5};
	int64		power = 1;

	for (;; power *= 10)
		for (int i = 0; i < lengthof(factors); i++)
			if (max / (power * factors[i]) < MAX_TICKS || power > PG_INT64_MAX / 100)
				return power * factors[i];
}

/* A round number with few digits */
static void
put_round_number(Buffer *buf, int64 number)
{
	static const char suffixes[] = " kMGTPE";
	int			i = 0;

	for (; number >= 10000 && number % 1000 == 0; i++)
		number /= 1000;
	buffer_printf(buf, INT64_FORMAT, number);
	if (i > 0)
		buffer_putc(buf, suffixes[i]);
}

static void
put_ticks(Buffer *buf, int64 step, int64 top, double scale)
{
	for (int64 tick = 0; tick <= top; tick += step)
	{
		const double y = PLOT_TOP + PLOT_HEIGHT - tick * scale;

		buffer_printf(buf, "<line class=\"%s\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>",
					  tick == 0 ? "axis" : "grid", PLOT_LEFT, y, PLOT_LEFT + PLOT_WIDTH, y);
		buffer_printf(buf, "<text class=\"end\" x=\"%d\" y=\"%.1f\">", PLOT_LEFT - 6, y + 4);
		put_round_number(buf, tick);
		buffer_puts(buf, "</text>\n");
	}
}

/* Failures are at the bottom, so that they can be compared. */
static void
put_span(Buffer *buf, const Span *span, bool failures, double middle, double width,
		 double scale)
{
	const double failed = bar_length(span->failures, scale);
	const double fine = failures ? 0 : bar_length(span->records - span->failures, scale);
	const double bottom = PLOT_TOP + PLOT_HEIGHT;
	const double left = middle - width / 2;

	buffer_printf(buf, "<g><title>%s: ", span->name);
	buffer_grouped(buf, span->records);
	buffer_puts(buf, " records, ");
	buffer_grouped(buf, span->failures);
	buffer_puts(buf, " failed</title>");
	put_rect(buf, "ok", left, bottom - failed - fine, width, fine);
	put_rect(buf, "bad", left, bottom - failed, width, failed);
	buffer_puts(buf, "</g>\n");
}

static void
put_legend(Buffer *buf)
{
	buffer_puts(buf, "<p class=\"legend\"><span class=\"key\"></span> succeeded, or outcome unknown "
				"<span class=\"key failed\"></span> failed</p>\n");
}

static void
put_spans(Buffer *buf, const Spans *spans, bool failures, double scale)
{
	const double slot = (double) PLOT_WIDTH / spans->count;
	const double width = Min(slot * (spans->count > 1 ? 0.8 : 0.5), MAX_BAR);
	const int	every = (spans->count + MAX_LABELS - 1) / MAX_LABELS;

	for (int i = 0; i < spans->count; i++)
	{
		const double middle = PLOT_LEFT + (i + 0.5) * slot;
		const bool	at_end = middle > DAYS_WIDTH - 40;

		put_span(buf, &spans->span[i], failures, middle, width, scale);
		if (i % every == 0)
			buffer_printf(buf, "<text class=\"%s\" x=\"%.1f\" y=\"%d\">%s</text>\n",
						  at_end ? "end" : "middle", at_end ? DAYS_WIDTH : middle,
						  PLOT_TOP + PLOT_HEIGHT + 20, spans->span[i].name);
	}
}

/* All records, or the failures of them only */
void
chart_days(Buffer *buf, const Spans *spans, const char *title, bool failures, int number)
{
	int64		max = 1;
	double		scale;

	for (int i = 0; i < spans->count; i++)
		max = Max(max, failures ? spans->span[i].failures : spans->span[i].records);
	scale = (double) (PLOT_HEIGHT - 4) / max;
	if (failures)
		buffer_printf(buf, "<p class=\"chart\">%s</p>\n", title);
	buffer_puts(buf, "<div class=\"days\">\n");
	put_svg(buf, DAYS_WIDTH, DAYS_HEIGHT, number, title);
	buffer_printf(buf, "<desc id=\"d%d\">From %s to %s, at most " INT64_FORMAT ". The table below has all figures.</desc>\n",
				  number, spans->span[0].name, spans->span[spans->count - 1].name, max);
	put_ticks(buf, tick_step(max), max, scale);
	put_spans(buf, spans, failures, scale);
	buffer_puts(buf, "</svg>\n</div>\n");
	if (!failures)
		put_legend(buf);
}

static int64
cell_number(const Grid *grid, int row, int column)
{
	return grid->cells[row * grid->ncolumns + column].number;
}

static void
put_bar(Buffer *buf, const Grid *grid, int row, double scale)
{
	const Cell *name = &grid->cells[row * grid->ncolumns];
	const int64 records = cell_number(grid, row, 1);
	const int64 failures = cell_number(grid, row, 2);
	const double failed = bar_length(failures, scale);
	const double fine = bar_length(records - failures, scale);
	const double y = row * ROW_HEIGHT;
	const char *data = grid->text.data + name->start;
	int			used;
	Size		len = text_fits(data, name->len, LABEL_CHARS, &used);

	buffer_printf(buf, "<text class=\"end name\" x=\"%d\" y=\"%.1f\">", LABEL_WIDTH - 6, y + 16);
	html_put(buf, data, len);
	buffer_puts(buf, len < name->len ? "~</text>" : "</text>");
	put_rect(buf, "bad", LABEL_WIDTH, y + 4, failed, ROW_HEIGHT - 8);
	put_rect(buf, "ok", LABEL_WIDTH + failed, y + 4, fine, ROW_HEIGHT - 8);
	buffer_printf(buf, "<text x=\"%.1f\" y=\"%.1f\">", LABEL_WIDTH + failed + fine + 6, y + 16);
	buffer_grouped(buf, records);
	if (failures > 0)
	{
		buffer_puts(buf, " (");
		buffer_grouped(buf, failures);
		buffer_putc(buf, ')');
	}
	buffer_puts(buf, "</text>\n");
}

/* Of a grid whose first columns are name, records and failures */
void
chart_bars(Buffer *buf, const Grid *grid, int number)
{
	const int	rows = Min(grid->ncells / grid->ncolumns, MAX_BARS);
	int64		max = 1;

	for (int i = 0; i < rows; i++)
		max = Max(max, cell_number(grid, i, 1));
	buffer_puts(buf, "<div class=\"bars\">\n");
	put_svg(buf, BARS_WIDTH, rows * ROW_HEIGHT, number, grid->title);
	buffer_printf(buf, "<desc id=\"d%d\">The first %d lines of the table below: records, and in parentheses those that failed.</desc>\n",
				  number, rows);
	for (int i = 0; i < rows; i++)
		put_bar(buf, grid, i, (double) BAR_SPACE / max);
	buffer_puts(buf, "</svg>\n</div>\n");
	put_legend(buf);
}
