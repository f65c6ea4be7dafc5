# das.py
#   TPC-B with many clients, as published for a cloud's database activity
#   streams: the cost of auditing on a server that is saturated, and on one
#   that is not.
#
# Copyright (c) 2026, pg_audit_queue contributors

import figures
import picture
from load import Load
from text import COSTS, SPEED, WAL, grid, ratio_text, tables

NAME = "das"
TITLE = "TPC-B: who audits, and how long sessions wait"

CONFIGURATIONS = ("none", "pgaudit", "pgaudit_tofile", "log_statement", "queued", "commit_wal",
                  "commit", "immediate", "queued_table", "immediate_table")

DEFAULTS = {"rounds": 3, "seconds": 15, "clients": 32}
QUICK = {"rounds": 2, "seconds": 2, "clients": 32}

# The rate is that part of what the slowest of all configurations can do.
BELOW_SATURATION = 0.7

# The picture of what is left of the throughput: names in it, in groups that can be
# compared, because they promise about the same
KEPT = (
    (None, {"none": "no audit"}),
    ("Sessions do not wait until their records are on disk", {
        "queued": "pg_audit_queue, queued",
        "queued_table": "pg_audit_queue, queued, in a table",
        "pgaudit": "pgaudit",
        "pgaudit_tofile": "pgaudit with pgauditlogtofile",
        "log_statement": "log_statement = all"}),
    ("Sessions wait until their records are on disk", {
        "commit_wal": "pg_audit_queue, commit with commit_wal",
        "commit": "pg_audit_queue, commit",
        "immediate": "pg_audit_queue, immediate",
        "immediate_table": "pg_audit_queue, immediate, in a table"}),
)
KEPT_PUBLISHED = "Published of Amazon Aurora: another machine, one run each"

# Amazon Aurora PostgreSQL 13.6, pgbench -s 1000 -c 32 -T 300, one run each
PUBLISHED = {
    "source": "Amazon Aurora PostgreSQL 13.6 with database activity streams, as published: "
              "pgbench -s 1000 -c 32 -T 300, one run each",
    "note": "In each row tps times latency is 32, the number of clients: each client sent "
            "its next transaction at once, so this test had no limit of its rate.",
    "rows": [
        {"configuration": "none", "tps": 1831.0, "latency_ms": 17.477},
        {"configuration": "DAS synchronous", "tps": 1337.7, "latency_ms": 23.922},
        {"configuration": "DAS asynchronous", "tps": 1783.0, "latency_ms": 17.948},
        {"configuration": "pgaudit", "tps": 1847.7, "latency_ms": 17.319},
    ],
}


def run(bench, result, options):
    chosen = bench.pick(result, [bench.standard[name] for name in CONFIGURATIONS])
    result["published"] = PUBLISHED
    saturated = Load("saturated", "tpcb-like", options.clients, seconds=options.seconds)
    bench.alternate(result, [saturated], chosen, options.rounds)

    speeds = [row["tps"]["median"] for row in figures.summarize(result["runs"]) if "tps" in row]
    if not speeds:
        result["absent"]["limited"] = "no configuration has a speed, so there is no rate below it"
        return
    limited = Load("limited", "tpcb-like", options.clients, seconds=options.seconds,
                   rate=BELOW_SATURATION * min(speeds))
    bench.alternate(result, [limited], chosen, options.rounds)


def report(result):
    rate = result["loads"].get("limited", {}).get("rate")
    text = tables(result, (
        ("saturated", "As fast as the server can"),
        ("limited", f"At {rate:.0f} transactions a second, {BELOW_SATURATION} of the slowest above"
         if rate else "")),
        SPEED, COSTS, WAL)
    return text + against_queued(result) + ["### Published", "", PUBLISHED["source"] + ". " + PUBLISHED["note"], "",
                   published_table(), ""]


def against_queued(result):
    """What waiting for the own WAL costs, if anything: commit_wal beside queued."""
    rows = [row for row in figures.summarize(result["runs"], base="queued")
            if row["configuration"] == "commit_wal" and row["ratio"]]
    if not rows:
        return []
    return ["### commit_wal of queued", "",
            grid(("load", "tps", "latency", "p50", "p95", "p99", "CPU sessions"),
                 [(row["load"], *(ratio_text(row, name) for name in
                                  ("tps", "latency_ms", "p50_ms", "p95_ms", "p99_ms",
                                   "sessions_us"))) for row in rows]), ""]


def published_table():
    base = PUBLISHED["rows"][0]
    return grid(
        ("configuration", "tps", "of none", "latency, ms", "of none"),
        [(row["configuration"], f"{row['tps']:.1f}", f"{row['tps'] / base['tps']:.3f}",
          f"{row['latency_ms']:.3f}", f"{row['latency_ms'] / base['latency_ms']:.3f}")
         for row in PUBLISHED["rows"]])


def pictures(result, plot):
    medians = result["medians"]
    plot.bars("Throughput, as fast as the server can, of none",
              "ratio to no audit; higher is better",
              [picture.bar(row, row["ratio"].get("tps")) for row in medians
               if row["load"] == "saturated"] + _published("tps"))
    plot.bars("Latency, as fast as the server can, of none",
              "ratio to no audit; lower is better",
              [picture.bar(row, row["ratio"].get("latency_ms")) for row in medians
               if row["load"] == "saturated"] + _published("latency_ms"))
    rate = result["loads"].get("limited", {}).get("rate")
    if rate:
        plot.grouped(f"Latency at {rate:.0f} transactions a second", "ms; lower is better",
                     [row for row in medians if row["load"] == "limited"],
                     (("p50_ms", "median"), ("p95_ms", "95 %"), ("p99_ms", "99 %")))
    plot.grouped("CPU time of a transaction, as fast as the server can",
                 "microseconds; lower is better",
                 [row for row in medians if row["load"] == "saturated"],
                 (("sessions_us", "sessions"), ("writers_us", "processes that write the trail")))


def _published(name, words="(published) "):
    base = PUBLISHED["rows"][0]
    return [picture.Bar(words + row["configuration"], figures.spread([row[name] / base[name]]),
                        who=picture.PUBLISHED)
            for row in PUBLISHED["rows"][1:]]


def kept(result, plot):
    """What is left of the throughput."""
    rows = {row["configuration"]: row for row in result["medians"]
            if row["load"] == "saturated" and "tps" in row["ratio"]}
    groups = [(heading, [picture.bar(rows[name], rows[name]["ratio"]["tps"])
                         ._replace(name=words, who=plot.who(name))
                         for name, words in names.items() if name in rows])
              for heading, names in KEPT]
    if rows:
        groups.append((KEPT_PUBLISHED, _published("tps", "")))
    items = []
    for heading, bars in groups:
        if bars:
            items += [picture.Heading(heading)] if heading else []
            items += [bar._replace(layout="{:.2f}") for bar in
                      sorted(bars, key=lambda bar: bar.figure["median"], reverse=True)]
    plot.bars("pgbench TPC-B, as fast as the server can",
              "throughput, of no audit; higher is better", items)


# Ending of its name, title, what draws it
MORE_PICTURES = (("kept", "Throughput that is left when every statement is audited", kept),)
