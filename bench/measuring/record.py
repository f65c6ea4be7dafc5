# record.py
#   The cost of a record: CPU time of the session and of the worker, the ring
#   alone, instructions; and the cost of auditing when nothing is recorded.
#
# All runs do the same number of transactions, so CPU times can be subtracted:
# those of a configuration's sessions minus those of sessions without audit in
# the same round, divided by the statements.
#
# Copyright (c) 2026, pg_audit_queue contributors

import json
import os
import subprocess

import pairs
import picture
from figures import spread
from load import Load
from text import grid, ratio_text, spread_text, tables, verdict_text

NAME = "record"
TITLE = "What a record costs"

READERS = ("none", "loaded", "queued", "queued_no_nulls", "pgaudit", "pgaudit_tofile", "log_statement")
WRITERS = ("none", "loaded", "ddl_role", "queued")

DEFAULTS = {"rounds": 5, "clients": 8, "transactions": 60000}
QUICK = {"rounds": 2, "clients": 8, "transactions": 10000}

SHORT_COUNTS = (8, 64)

# A TPC-B transaction takes as long as so many SELECTs.
SLOWER = 12

RING_PRODUCERS = (1, 2)
RING_ROUNDS = 3
RING_RECORDS = 4000000

COLUMNS = (
    ("configuration", lambda row: row["configuration"]),
    ("CPU sessions, us/tx", lambda row: spread_text(row, "sessions_us", "{:.2f}")),
    ("of none", lambda row: ratio_text(row, "sessions_us")),
    ("session, us/statement more", lambda row: spread_text(row, "session_us_statement", "{:.2f}")),
    ("writers, us/statement", lambda row: spread_text(row, "writers_us_statement", "{:.2f}")),
    ("worker, us/record", lambda row: spread_text(row, "worker_us_record", "{:.2f}")),
    ("bytes/record", lambda row: spread_text(row, "record_bytes", "{:.0f}", False)),
    ("tps of none", lambda row: ratio_text(row, "tps")),
    ("records", lambda row: spread_text(row, "records", "{:.0f}", False)),
    ("trail", lambda row: verdict_text([row])),
)


def run(bench, result, options):
    per_client = options.transactions
    select = Load("select", "select-only", options.clients, transactions=per_client, log=False)
    # the only format that has fields which are null
    chosen = bench.pick(result, [bench.standard[name] for name in READERS
                                 if name != "queued_no_nulls" or options.format == "json"])
    bench.alternate(result, [select], chosen, options.rounds)
    # without waits for the disk, which would hide what is measured
    dml = Load("dml", "tpcb-like", options.clients, transactions=max(1, per_client // SLOWER),
               settings={"synchronous_commit": "off"}, log=False)
    chosen = bench.pick(result, [bench.standard[name] for name in WRITERS])
    bench.alternate(result, [dml], chosen, options.rounds)
    _subtract(result, {"select": select.statements, "dml": dml.statements})
    pairs.measure(bench, result, pairs.short_sessions(
        bench, pairs.counts(bench, SHORT_COUNTS, SHORT_COUNTS)), options.pairs)
    _add_ring(bench, result, options)
    _add_instructions(result, options)


def _subtract(result, statements):
    base = {(run["load"], run["round"]): run["sessions_us"] for run in result["runs"]
            if run["configuration"] == "none" and "sessions_us" in run}
    for each in result["runs"]:
        without = base.get((each["load"], each["round"]))
        if each.get("records"):
            each["record_bytes"] = each["trail_bytes"] / each["records"]
        if "sessions_us" in each:
            n = statements[each["load"]]
            each["writers_us_statement"] = each["writers_us"] / n
            if without is not None and each["configuration"] != "none":
                each["session_us_statement"] = (each["sessions_us"] - without) / n


# -- the ring alone ---------------------------------------------------------------

def _add_ring(bench, result, options):
    """Build bench/ring and run it."""
    here = os.path.dirname(os.path.abspath(__file__))
    program = os.path.join(bench.cluster.folder, "ring_time")
    build = subprocess.run(
        ["make", "-s", "-C", os.path.join(here, "..", "ring"), f"PROGRAM={program}",
         "PG_CONFIG=" + bench.cluster.program("pg_config")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    if build.returncode != 0:
        result["absent"]["ring"] = "bench/ring does not build: " + \
            build.stdout.decode(errors="replace")[-1000:]
        return
    rounds = 1 if options.quick else RING_ROUNDS
    runs = []
    for number in range(1, rounds + 1):
        for producers in RING_PRODUCERS:
            done = subprocess.run(
                [program, "--producers", str(producers), "--records",
                 str(RING_RECORDS // (4 if options.quick else 1)), "--directory",
                 bench.scratch],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
            text = done.stdout.decode(errors="replace")
            if done.returncode != 0:
                result["absent"]["ring"] = "bench/ring has failed: " + text[-1000:]
                bench.wrong += 1
                return
            runs.append({"round": number, **json.loads(text)})
            print(f"  round {number}/{rounds}  ring, {producers} producers: "
                  f"{runs[-1]['put_ns']['median']} ns a record", flush=True)
    result["ring"] = runs


def _ring_table(result):
    rows = []
    for producers in RING_PRODUCERS:
        runs = [each for each in result["ring"] if each["producers"] == producers]

        def low_high(values):
            return f"{min(values)}..{max(values)}" if len(values) > 1 else str(values[0])

        rows.append((producers, low_high([each["put_ns"]["median"] for each in runs]),
                     low_high([each["put_ns"]["mean"] for each in runs]),
                     low_high([each["put_ns"]["p99"] for each in runs]),
                     low_high([each["take_ns"] for each in runs])))
    return grid(("producers", "put, median ns", "put, mean ns", "put, p99 ns", "take, ns"), rows)


# -- instructions -----------------------------------------------------------------

def _add_instructions(result, options):
    """What bench/unaudited has printed."""
    if not options.instructions:
        result["absent"]["instructions"] = \
            "left out: bench/unaudited counts them, and takes minutes"
        return
    with open(options.instructions, encoding="utf-8") as file:
        counted = _parse_instructions(file.read())
    if counted:
        result["instructions"] = counted
    else:
        result["absent"]["instructions"] = "bench/unaudited has failed"


def _parse_instructions(text):
    """Its two tables: added and in the library, by configuration and statement."""
    counted = {}
    configuration = None
    for line in text.splitlines():
        words = line.split()
        if line.startswith("Nothing audited"):
            configuration = "log = none"
        elif line.startswith("Everything audited"):
            configuration = "log = all"
        elif line.startswith("Called by"):
            break
        elif configuration and len(words) == 10 and words[1].isdigit():
            counted.setdefault(configuration, {})[words[0]] = {
                "absent": int(words[1]), "added": int(words[3]), "in_library": int(words[5]),
                "records": None if words[8] == "-" else int(words[8])}
    return counted


def _instructions_table(result):
    counted = result["instructions"]
    rows = []
    for configuration, statements in counted.items():
        for name, figures in statements.items():
            records = figures["records"]
            rows.append((f"{name}, {configuration}", figures["absent"], figures["added"],
                         figures["in_library"], "-" if records is None else records,
                         figures["added"] // records if records else "-"))
    return grid(("statement", "instructions without", "added", "in library", "records",
                 "added a record"), rows)


# -- what is shown ------------------------------------------------------------------

def report(result):
    text = tables(result, (
        ("select", "SELECTs by key, prepared; a statement is a transaction"),
        ("dml", "TPC-B, synchronous_commit = off; seven statements")), COLUMNS)
    text += pairs.report(result)
    if "ring" in result:
        text += ["### The ring alone, 256 bytes a record", "", _ring_table(result), ""]
    if "instructions" in result:
        text += ["### Instructions (callgrind)", "", _instructions_table(result), ""]
    return text


def pictures(result, plot):
    for load, title in (("select", "SELECT by key"), ("dml", "TPC-B")):
        rows = [row for row in result["medians"]
                if row["load"] == load and row["configuration"] != "none"]
        plot.grouped(f"CPU time that a statement takes more than without audit: {title}",
                     "microseconds; lower is better", rows,
                     (("session_us_statement", "session"),
                      ("writers_us_statement", "processes that write the trail")))
    if "ring" in result:
        plot.bars("The ring alone: reserve, copy and commit 256 bytes",
                  "ns, median and range of rounds; lower is better",
                  [picture.Bar(f"{producers} producer{'s' if producers > 1 else ''}",
                               _of_rounds(result, producers), "{:.0f}", who=picture.OURS)
                   for producers in RING_PRODUCERS])


def _of_rounds(result, producers):
    values = [each["put_ns"]["median"] for each in result["ring"]
              if each["producers"] == producers]
    return spread(values)
