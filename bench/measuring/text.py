# text.py
#   Tables, as Markdown that is readable as it is.
#
# Copyright (c) 2026, pg_audit_queue contributors


def grid(head, rows):
    """A table; all columns but the first are figures."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [list(head)] + rows) for i in range(len(head))]

    def line(cells):
        return "| " + " | ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(cells, widths))) + " |"

    rule = "|" + "|".join("-" * (width + 2) if i == 0 else "-" * (width + 1) + ":"
                          for i, width in enumerate(widths)) + "|"
    return "\n".join([line(head), rule] + [line(row) for row in rows])


def table(columns, rows):
    """A table of medians; without the columns that would have nothing in them."""
    cells = [[get(row) for row in rows] for _, get in columns]
    used = [i for i, column in enumerate(cells) if any(cell != "-" for cell in column)]
    return grid([columns[i][0] for i in used],
                [[cells[i][number] for i in used] for number in range(len(rows))])


def tables(result, titles, *columns):
    """For each load that has medians a heading, and a table of each set of columns;
    titles are pairs of load and title."""
    text = []
    for load, title in titles:
        rows = [row for row in result["medians"] if row["load"] == load]
        if rows:
            text += [f"### {title}", ""]
            for each in columns:
                text += [table(each, rows), ""]
    return text


def figure_text(figure, layout, ranges=True):
    """A median, and from where to where the runs were."""
    if figure is None:
        return "-"
    text = layout.format(figure["median"])
    if ranges and figure["runs"] > 1:
        text += f" ({layout.format(figure['min'])}..{layout.format(figure['max'])})"
    return text


def spread_text(row, name, layout, ranges=True):
    return figure_text(row.get(name), layout, ranges)


def ratio_text(row, name):
    return figure_text(row["ratio"].get(name), "{:.3f}")


def verdict_text(rows):
    """Of rows of medians: the first verdict that is not good."""
    verdicts = [row["verdict"] for row in rows if row["verdict"] is not None]
    bad = next((text for text in verdicts if text != "ok"), None)
    if bad:
        return "absent" if bad.startswith("absent: ") else "WRONG: " + bad
    return "ok" if verdicts else "-"


def megabytes(row):
    return f"{row['trail_bytes']['median'] / 1e6:.1f}" if "trail_bytes" in row else "-"


# Columns for loads that have a speed
SPEED = (
    ("configuration", lambda row: row["configuration"]),
    ("tps", lambda row: spread_text(row, "tps", "{:.0f}")),
    ("of none", lambda row: ratio_text(row, "tps")),
    ("latency, ms", lambda row: spread_text(row, "latency_ms", "{:.2f}")),
    ("latency of none", lambda row: ratio_text(row, "latency_ms")),
    ("records", lambda row: spread_text(row, "records", "{:.0f}", False)),
    ("trail, MB", megabytes),
    ("fsyncs", lambda row: spread_text(row, "fsyncs", "{:.0f}", False)),
    ("trail", lambda row: verdict_text([row])),
)

# And what goes into WAL
WAL = (
    ("configuration", lambda row: row["configuration"]),
    ("WAL, bytes/tx", lambda row: spread_text(row, "wal_tx", "{:.0f}")),
    ("of it records, bytes/tx", lambda row: spread_text(row, "audit_wal_tx", "{:.0f}")),
    ("commits with WAL", lambda row: spread_text(row, "wal_commits", "{:.0f}", False)),
    ("without", lambda row: spread_text(row, "wal_fallbacks", "{:.0f}", False)),
)

# And more of them
COSTS = (
    ("configuration", lambda row: row["configuration"]),
    ("p50, ms", lambda row: spread_text(row, "p50_ms", "{:.2f}")),
    ("p95, ms", lambda row: spread_text(row, "p95_ms", "{:.2f}")),
    ("p99, ms", lambda row: spread_text(row, "p99_ms", "{:.2f}")),
    ("CPU sessions, us/tx", lambda row: spread_text(row, "sessions_us", "{:.0f}")),
    ("CPU writers, us/tx", lambda row: spread_text(row, "writers_us", "{:.1f}")),
)
