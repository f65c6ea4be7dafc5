# reading.py
#   How fast a trail is read: by pg_audit_trail, which verifies and prints it, and in SQL.
#
# A trail of some size is made for each combination of layers.  What counts is the text
# in it, however small the files are, for each second of the CPU time of the program,
# which has one thread.  Its output goes to nowhere, and files are in memory.
#
# Copyright (c) 2026, pg_audit_queue contributors

import json
import os
import time

import cpu
import picture
import trail
import trail_program
from cluster import Failure, quoted
from figures import summarize
from load import Load
from text import figure_text, grid, verdict_text

# Name, arguments of "cat"; None: "verify".  Those that need json are so marked.
READERS = (
    ("verify", None, False),
    ("cat", (), False),
    ("cat --class=READ", ("--class=READ",), True),
    ("cat --outcome=failed", ("--outcome=failed",), True),
    ("cat --format=table", ("--format=table",), True),
)

# With --quick
QUICK_NAMES = ("plain_sealed", "zstd_aes256_sealed")

# What is read in SQL, too
SQL_NAMES = QUICK_NAMES

# Compressed files are begun as often, so that what is read is many files.
MANY_FILES = {"pg_audit_queue.log_rotation_size": "512kB"}

# Of plain text a second, of rows a second
MEGABYTES = 300
ROWS = 200000

VIEW = "pg_catalog.audit_trail"

# Of a record, where nobody has measured that
RECORD_BYTES = 1200

# What is asked, with how many rows it reads: an answer of one row, or a number in the
# command's tag.  %s: a time at which the last file has begun.
QUERIES = (
    ("count(*)", f"SELECT count(*) FROM {VIEW}"),
    ("all columns", f"BEGIN; DECLARE c NO SCROLL CURSOR FOR SELECT * FROM {VIEW};"
                    " MOVE ALL IN c; COMMIT"),
    ("COPY", f"COPY (SELECT * FROM {VIEW}) TO '/dev/null'"),
    ("last file", f"SELECT count(*) FROM {VIEW} WHERE log_time >= %s"),
)


def measure(bench, result, options, combinations):
    """result gets "reading" and "sql", lists of runs, and their medians."""
    wanted = bench.options.configs or (QUICK_NAMES if options.quick else list(combinations))
    result["reading"], result["sql"] = [], []
    chosen = bench.pick(result, [each for name, each in combinations.items() if name in wanted])
    chosen = [each.variant(each.name, MANY_FILES) if "log_compression" in str(each.settings())
              else each for each in chosen]
    if not chosen:
        result["absent"]["reading"] = "it needs a configuration that is sealed"
    for configuration in chosen:
        made = {"load": "made", "configuration": configuration.name, "round": 1}
        bench.attempt(made, bench.measure, _load(result, options), configuration)
        if made["verdict"] != "ok":
            result["absent"][f"reading, {configuration.name}"] = made["verdict"]
            continue
        for each in _turns(options, configuration, result["reading"], _readers(bench.options)):
            bench.attempt(each, _read, bench, configuration, made)
            _show(result, each, options, "{:6.0f} MB a second of CPU", "mb_cpu_s")
        if configuration.name in SQL_NAMES and options.format == "json":
            bench.attempt(made, _ask, bench, result, options, configuration)
            if made["verdict"] != "ok":
                result["absent"][f"SQL, {configuration.name}"] = made["verdict"]
    for name in ("reading", "sql"):
        result[name + "_medians"] = summarize(result[name], "plain_sealed")


def _load(result, options):
    """SELECTs whose records have so much text"""
    runs = [run for run in result["runs"] if run.get("records") and "text_bytes" in run]
    size = runs[0]["text_bytes"] / runs[0]["records"] if runs else RECORD_BYTES
    return Load("made", "select-only", options.clients, log=False,
                transactions=1 + int(options.megabytes * 1e6 / size / options.clients))


def _turns(options, configuration, runs, names):
    """Runs to be filled in, each round in another order."""
    for number in range(1, options.rounds + 1):
        for place in range(len(names)):
            run = {"load": names[(place + number - 1) % len(names)],
                   "configuration": configuration.name, "round": number, "order": place + 1}
            yield run
            runs.append(run)


def _show(result, run, options, layout, figure):
    if "absent" in run:
        result["absent"][f"{run['load']}, {run['configuration']}"] = run["absent"].splitlines()[0]
    text = layout.format(run[figure]) if figure in run else "-"
    print(f"  round {run['round']}/{options.rounds}  {run['load']:<20} "
          f"{run['configuration']:<20} {text}   {run['verdict']}", flush=True)


# -- pg_audit_trail -------------------------------------------------------------------

def _readers(options):
    return [name for name, _, need_json in READERS
            if not need_json or options.format == "json"]


def _read(run, bench, configuration, made):
    cluster = bench.cluster
    folder = os.path.join(cluster.data, configuration.folder)
    arguments = {name: more for name, more, _ in READERS}[run["load"]]
    if arguments is None:
        used = trail_program.verify(cluster, folder)
    else:
        # "cat" has formats of its own for files that are not json.
        used = trail_program.measured(cluster, [
            "cat", "--format", configuration.layout, *trail_program.keys_option(cluster),
            *arguments, folder])
    megabytes = made["text_bytes"] / 1e6
    run.update(cpu_s=used.cpu_s, wall_s=used.wall_s, text_mb=megabytes,
               mb_cpu_s=megabytes / used.cpu_s, mb_s=megabytes / used.wall_s, verdict="ok")


# -- SQL ------------------------------------------------------------------------------

def _ask(made, bench, result, options, configuration):
    """Start the server again, and ask everything."""
    cluster = bench.cluster
    files = trail.files_of(os.path.join(cluster.data, configuration.folder))
    since = quoted(json.loads(trail_program.first_line(cluster, files[-1]))["logTime"])

    # As if they had been written one after the other for longer: those of the last hour
    # are never too old to be read.
    for path in files[:-1]:
        then = os.stat(path).st_mtime - 7200
        os.utime(path, (then, then))
    cluster.start_again()
    try:
        queries = {name: sql.replace("%s", since) for name, sql in QUERIES}
        for each in _turns(options, configuration, result["sql"], list(queries)):
            bench.attempt(each, _query, bench, queries[each["load"]],
                          1 if each["load"] == "last file" else made["records"])
            each["files"] = len(files)
            _show(result, each, options, "{:8.0f} rows a second", "rows_s")
    finally:
        cluster.stop()


def _query(run, bench, sql, least):
    """It must read so many rows at least."""
    session = bench.cluster.session
    if session is None:
        raise Failure("there is no server any more")
    rows, tags = [], []
    used, begin = cpu.used_by(session.backend), time.monotonic()
    state = session.simple(sql, completed=tags.append, row=rows.append)
    wall, used = time.monotonic() - begin, cpu.used_by(session.backend) - used
    if state is not None:
        raise Failure(f"{sql}: SQLSTATE {state}; see {bench.cluster.log}")
    counts = [tag.split()[-1] for tag in tags if tag[-1].isdigit()]
    number = int(rows[0][0] if rows else counts[0])
    run.update(rows=number, cpu_s=used, wall_s=wall, rows_s=number / wall,
               rows_cpu_s=number / used,
               verdict="ok" if number >= least else f"{number} of {least} rows")


# -- what is shown --------------------------------------------------------------------

def report(result):
    text = []
    for figure, target, unit in (("mb_cpu_s", MEGABYTES, " of CPU time"), ("mb_s", None, "")):
        text += _table(result.get("reading_medians"), figure, target,
                       f"Reading: MB of plain text for each second{unit}")
    for figure, target, unit in (("rows_s", ROWS, ""), ("rows_cpu_s", None, " of CPU time")):
        text += _table(result.get("sql_medians"), figure, target,
                       f"audit_trail in SQL: rows for each second{unit}")
    return text + _selective(result)


def _table(rows, figure, target, title):
    """A row for each configuration, a column for each of what has read it, but for what
    reads one file only."""
    rows = [row for row in rows or () if row["load"] != "last file"]
    if not rows:
        return []
    loads = list(dict.fromkeys(row["load"] for row in rows))
    lines = []
    for name in dict.fromkeys(row["configuration"] for row in rows):
        mine = {row["load"]: row for row in rows if row["configuration"] == name}
        lines.append((name, *(figure_text(mine.get(load, {}).get(figure), "{:.0f}")
                              for load in loads), verdict_text(mine.values())))
    text = [f"### {title}", "", grid(("configuration", *loads, "trail"), lines), ""]
    if target:
        below = [f"{row['load']} of {row['configuration']}" for row in rows
                 if figure in row and row[figure]["median"] < target]
        text += [f"Target: {target}; below it: {', '.join(below) or 'nothing'}.", ""]
    return text


def _selective(result):
    rows = [row for row in result.get("sql_medians", ()) if row["load"] == "last file"]
    if not rows:
        return []
    whole = {row["configuration"]: row for row in result["sql_medians"]
             if row["load"] == "count(*)"}
    return ["### audit_trail in SQL: the time of the last file", "",
            grid(("configuration", "files", "rows", "s", "whole trail, s", "trail"),
                 [(row["configuration"], *(figure_text(row.get(name), "{:.0f}", False)
                                           for name in ("files", "rows")),
                   figure_text(row.get("wall_s"), "{:.3f}"),
                   figure_text(whole.get(row["configuration"], {}).get("wall_s"), "{:.3f}"),
                   verdict_text([row])) for row in rows]), ""]


def pictures(result, plot):
    rows = result.get("reading_medians", ())
    plot.bars("Verifying: plain text for each second of CPU time", "MB; higher is better",
              [picture.bar(row, row.get("mb_cpu_s"), "{:.0f}") for row in rows
               if row["load"] == "verify"])
    names = ("cat", "cat --class=READ", "cat --format=table")
    together = []
    for name in dict.fromkeys(row["configuration"] for row in rows):
        mine = {row["load"]: row for row in rows if row["configuration"] == name}
        together.append({"configuration": name, **{
            load: row["mb_cpu_s"] for load, row in mine.items() if "mb_cpu_s" in row}})
    if together:
        plot.grouped("Reading: plain text for each second of CPU time", "MB; higher is better",
                     together, [(name, name) for name in names
                                if all(name in row for row in together)])
