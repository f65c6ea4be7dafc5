# das.py
#   TPC-B with many clients, as published for a cloud's database activity
#   streams: the cost of auditing on a server that is saturated, and on one
#   that is not.
#
# Copyright (c) 2026, pg_audit_queue contributors

import figures
import picture
from load import Load
from text import COSTS, SPEED, grid, tables

NAME = "das"
TITLE = "TPC-B: who audits, and how long sessions wait"

CONFIGURATIONS = ("none", "pgaudit", "pgaudit_tofile", "log_statement", "queued", "commit",
                  "immediate", "queued_table", "immediate_table")

DEFAULTS = {"rounds": 3, "seconds": 15, "clients": 32}
QUICK = {"rounds": 2, "seconds": 2, "clients": 32}

# The rate is that part of what the slowest of all configurations can do.
BELOW_SATURATION = 0.7

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
        ("limited", f"{rate:.0f} transactions a second, which all can do" if rate else "")),
        SPEED, COSTS)
    return text + ["### Published", "", PUBLISHED["source"] + ". " + PUBLISHED["note"], "",
                   published_table(), ""]


def published_table():
    base = PUBLISHED["rows"][0]
    return grid(
        ("configuration", "tps", "of none", "latency, ms", "of none"),
        [(row["configuration"], f"{row['tps']:.1f}", f"{row['tps'] / base['tps']:.3f}",
          f"{row['latency_ms']:.3f}", f"{row['latency_ms'] / base['latency_ms']:.3f}")
         for row in PUBLISHED["rows"]])


def pictures(result, plot):
    medians = result["medians"]
    plot.bars("Throughput, as fast as the server can, of none (ranges: rounds)",
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


def _published(name):
    base = PUBLISHED["rows"][0]
    return [("(published) " + row["configuration"], row[name] / base[name], None, picture.PUBLISHED)
            for row in PUBLISHED["rows"][1:]]
