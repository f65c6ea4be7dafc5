/*-------------------------------------------------------------------------
 *
 * report_html.c
 *		The report as a page of HTML.
 *
 * The page is one file, without scripts, and it refers to nothing else; its policy
 * (Content-Security-Policy) makes browsers refuse both.  Texts of the trail are escaped where
 * they are put into it, and only there: put_html_cell() here and the labels in report_chart.c.  In
 * their cells control characters and the like have been made visible before.  The page is
 * well-formed XML as well, so that programs can read it.
 *
 * Copyright (c) 2026, pg_audit_queue contributors
 *
 *-------------------------------------------------------------------------
 */
#include "bin/pg_audit_trail/report.h"

static const char style[] =
	":root{color-scheme:light dark;--paper:#fff;--ink:#1b2430;--faint:#5a6672;--line:#d4dae0;"
	"--stripe:#f4f6f8;--ok:#3a72a8;--bad:#c22e2e;--alarm:#fdf0ef}\n"
	"@media screen and (prefers-color-scheme:dark){:root{--paper:#14181d;--ink:#e3e7eb;"
	"--faint:#9ba7b3;--line:#343d47;--stripe:#1b2127;--ok:#5e9bd1;--bad:#ff7b72;--alarm:#33201f}}\n"
	"*{box-sizing:border-box}\n"
	"body{margin:0 auto;padding:1.5rem;max-width:72rem;background:var(--paper);color:var(--ink);"
	"font:15px/1.5 system-ui,sans-serif}\n"
	"h1{font-size:1.7rem;margin:0 0 1rem}\n"
	"h2{font-size:1.25rem;margin:2.2rem 0 .6rem;padding-bottom:.2rem;border-bottom:2px solid var(--line)}\n"
	"p{margin:.4rem 0;max-width:60rem}\n"
	"p.alarm{background:var(--alarm);border-left:4px solid var(--bad);padding:.35rem .7rem}\n"
	"p.chart{font-weight:600;margin-top:1rem}\n"
	"p.legend{color:var(--faint);font-size:13px}\n"
	".key{display:inline-block;width:.8em;height:.8em;margin:0 .2em 0 .6em;background:var(--ok)}\n"
	".key.failed{background:var(--bad)}\n"
	".wide,.days{overflow-x:auto}\n"
	".days svg{min-width:42rem}\n"
	".bars{max-width:36rem}\n"
	"svg{display:block;width:100%;height:auto;font:13px system-ui,sans-serif}\n"
	"svg text{fill:var(--ink)}\n"
	"svg .end{text-anchor:end}\nsvg .middle{text-anchor:middle}\n"
	"svg .name{font:12px ui-monospace,monospace}\n"
	"svg .ok{fill:var(--ok)}\nsvg .bad{fill:var(--bad)}\n"
	"svg .grid{stroke:var(--line)}\nsvg .axis{stroke:var(--faint)}\n"
	"table{border-collapse:collapse;margin:.8rem 0;font-size:14px}\n"
	"caption{text-align:left;font-weight:600;padding:.4rem 0}\n"
	"th,td{text-align:left;vertical-align:top;padding:.22rem .7rem .22rem .3rem;"
	"border-bottom:1px solid var(--line);unicode-bidi:isolate}\n"
	"thead th{border-bottom:2px solid var(--faint);white-space:nowrap}\n"
	"tbody th{font-weight:600;white-space:nowrap}\n"
	"tbody tr:nth-child(even){background:var(--stripe)}\n"
	".n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\n"
	".f{white-space:nowrap;font-variant-numeric:tabular-nums}\n"
	".t{overflow-wrap:anywhere;min-width:5rem}\n"
	"td.alarm{color:var(--bad);font-weight:600}\n"
	"summary{cursor:pointer;color:var(--ok);padding:.3rem 0}\n"
	"@media print{body{max-width:none;padding:0;font-size:10pt}table{font-size:9pt}"
	"h2,caption,p.chart{break-after:avoid}tr,svg{break-inside:avoid}.days svg{min-width:0}"
	"thead{display:table-header-group}*{print-color-adjust:exact}"
	"details::details-content{content-visibility:visible}}\n";

static Buffer buf;
static bool in_section;
static int	ncharts;

static void
write_out(void)
{
	output_put(buf.data, buf.used);
	buf.used = 0;
}

static void
html_begin(const char *title, const Options *options)
{
	buffer_puts(&buf, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
				"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
				"style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\"/>\n"
				"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
				"<meta name=\"referrer\" content=\"no-referrer\"/>\n<title>");
	buffer_puts(&buf, title);
	buffer_puts(&buf, "</title>\n<style>\n");
	buffer_puts(&buf, style);
	buffer_puts(&buf, "</style>\n</head>\n<body>\n<main>\n<h1>");
	buffer_puts(&buf, title);
	buffer_puts(&buf, "</h1>\n");
	write_out();
}

static void
end_section(void)
{
	if (in_section)
		buffer_puts(&buf, "</section>\n");
	in_section = false;
}

static void
html_section(const char *title)
{
	end_section();
	buffer_puts(&buf, "<section>\n<h2>");
	buffer_puts(&buf, title);
	buffer_puts(&buf, "</h2>\n");
	in_section = true;
	write_out();
}

static void
html_note(const char *text, bool bad)
{
	buffer_puts(&buf, bad ? "<p class=\"alarm\"><strong>!</strong> " : "<p>");
	html_put(&buf, text, strlen(text));
	buffer_puts(&buf, "</p>\n");
	write_out();
}

static void
put_html_cell(const Grid *grid, const Cell *cell, ColumnKind kind)
{
	static const char *const classes[] = {
		[COLUMN_NAME] = "t", [COLUMN_FIXED] = "f", [COLUMN_NUMBER] = "n"
	};

	buffer_printf(&buf, "<td class=\"%s%s\">", classes[kind], cell->bad ? " alarm" : "");
	html_put(&buf, grid->text.data + cell->start, cell->len);
	buffer_puts(&buf, "</td>");
}

static void
html_facts(const Grid *grid)
{
	buffer_puts(&buf, "<table class=\"facts\">\n<tbody>\n");
	for (int i = 0; i < grid->ncells; i += 2)
	{
		buffer_puts(&buf, "<tr><th scope=\"row\">");
		html_put(&buf, grid->text.data + grid->cells[i].start, grid->cells[i].len);
		buffer_puts(&buf, "</th>");
		put_html_cell(grid, &grid->cells[i + 1], COLUMN_NAME);
		buffer_puts(&buf, "</tr>\n");
	}
	buffer_puts(&buf, "</tbody>\n</table>\n");
	write_out();
}

static void
html_table(const Grid *grid)
{
	buffer_puts(&buf, "<div class=\"wide\">\n<table>\n");
	if (grid->title != NULL)
	{
		buffer_puts(&buf, "<caption>");
		buffer_puts(&buf, grid->title);
		buffer_puts(&buf, "</caption>\n");
	}
	buffer_puts(&buf, "<thead>\n<tr>");
	for (int i = 0; i < grid->ncolumns; i++)
	{
		buffer_puts(&buf, grid->columns[i].kind == COLUMN_NUMBER
					? "<th scope=\"col\" class=\"n\">"
					: "<th scope=\"col\">");
		buffer_puts(&buf, grid->columns[i].title);
		buffer_puts(&buf, "</th>");
	}
	buffer_puts(&buf, "</tr>\n</thead>\n<tbody>\n");
	for (int i = 0; i < grid->ncells; i++)
	{
		if (i % grid->ncolumns == 0)
			buffer_puts(&buf, "<tr>");
		put_html_cell(grid, &grid->cells[i], grid->columns[i % grid->ncolumns].kind);
		if (i % grid->ncolumns == grid->ncolumns - 1)
			buffer_puts(&buf, "</tr>\n");
	}
	buffer_puts(&buf, "</tbody>\n</table>\n</div>\n");
	write_out();
}

/* Behind a line that opens it */
static void
html_long_table(const Grid *grid, const char *summary)
{
	buffer_puts(&buf, "<details>\n<summary>");
	html_put(&buf, summary, strlen(summary));
	buffer_puts(&buf, "</summary>\n");
	html_table(grid);
	buffer_puts(&buf, "</details>\n");
	write_out();
}

static void
html_days_chart(const Spans *spans, const char *title, bool failures)
{
	chart_days(&buf, spans, title, failures, ++ncharts);
	write_out();
}

static void
html_bars_chart(const Grid *grid)
{
	buffer_printf(&buf, "<p class=\"chart\">%s</p>\n", grid->title);
	chart_bars(&buf, grid, ++ncharts);
	write_out();
}

static void
html_end(void)
{
	end_section();
	buffer_puts(&buf, "</main>\n</body>\n</html>\n");
	write_out();
	output_flush();
}

const ReportWriter html_writer = {
	.begin = html_begin,
	.section = html_section,
	.note = html_note,
	.facts = html_facts,
	.table = html_table,
	.long_table = html_long_table,
	.days_chart = html_days_chart,
	.bars_chart = html_bars_chart,
	.end = html_end
};
