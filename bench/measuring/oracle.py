# oracle.py
#   Queues of three sizes against no queue, as published for Oracle's unified
#   auditing: how much time the database spends on the same work.
#
# Copyright (c) 2026, pg_audit_queue contributors

import picture
from load import Load
from text import ratio_text, spread_text, tables, verdict_text

NAME = "oracle"
TITLE = "Queued and immediate: database time, trail, waits"

SIZES = ("1MB", "10MB", "64MB")

DEFAULTS = {"rounds": 3, "seconds": 15, "clients": 32}
QUICK = {"rounds": 1, "seconds": 2, "clients": 32}

# CERN, Oracle 12.1: 460,000 records an hour.  A transaction has seven.
PUBLISHED_RATE = 460000 / 3600 / 7
PUBLISHED = {
    "source": "CERN, Oracle 12.1 unified auditing at 460,000 records an hour, as published",
    "findings": [
        "queued took about 35 % less database time than immediate",
        "a queue of 1 MB or of 10 MB made no difference",
        "immediate's trail was more than 30 % larger, with twice the parses and 75 % more "
        "executions",
    ],
}

COLUMNS = (
    ("configuration", lambda row: row["configuration"]),
    ("database time, us/tx", lambda row: spread_text(row, "db_time_us", "{:.0f}")),
    ("of immediate", lambda row: ratio_text(row, "db_time_us")),
    ("tps", lambda row: spread_text(row, "tps", "{:.1f}")),
    ("records", lambda row: spread_text(row, "records", "{:.0f}", False)),
    ("trail bytes/record", lambda row: spread_text(row, "bytes_record", "{:.0f}")),
    ("most of queue, kB", lambda row: spread_text(row, "high_water_kb", "{:.0f}")),
    ("waits for space", lambda row: spread_text(row, "space_waits", "{:.0f}")),
    ("waits for flush", lambda row: spread_text(row, "flush_waits", "{:.0f}")),
    ("waited, ms", lambda row: spread_text(row, "wait_ms", "{:.0f}")),
    ("fsyncs", lambda row: spread_text(row, "fsyncs", "{:.0f}", False)),
    ("trail", lambda row: verdict_text([row])),
)

BASE = "immediate"


def run(bench, result, options):
    queued = bench.standard["queued"]
    configurations = [bench.standard["none"], bench.standard["immediate"]] + [
        queued.variant(f"queued_{size}", {"pg_audit_queue.queue_size": size}) for size in SIZES]
    chosen = bench.pick(result, configurations)
    result["published"] = PUBLISHED
    loads = (Load("published rate", "tpcb-like", options.clients, seconds=options.seconds,
                  rate=PUBLISHED_RATE),
             Load("saturated", "tpcb-like", options.clients, seconds=options.seconds))
    bench.alternate(result, loads, chosen, options.rounds)
    for each in result["runs"]:
        if "queue" in each:
            each["bytes_record"] = each["queue"]["bytes"] / each["queue"]["drained"]
            each["high_water_kb"] = each["queue"]["queue_high_water"] / 1024


def report(result):
    text = tables(result, (
        ("published rate", "460,000 records an hour, as published"),
        ("saturated", "As fast as the server can")), COLUMNS)
    text += ["### Published", "", PUBLISHED["source"] + ":", ""]
    text += [f"- {finding}" for finding in PUBLISHED["findings"]]
    return text + [""]


def pictures(result, plot):
    for load, title in (("published rate", "460,000 records an hour"),
                        ("saturated", "as fast as the server can")):
        rows = [row for row in result["medians"] if row["load"] == load]
        plot.bars(f"Database time of a transaction, {title}", "microseconds; lower is better",
                  [picture.bar(row, row.get("db_time_us"), "{:.0f}") for row in rows])
    plot.bars("Time that sessions waited in a run for the queue or the trail, as fast as the "
              "server can", "ms, of all sessions",
              [picture.bar(row, row.get("wait_ms"), "{:.0f}") for row in result["medians"]
               if row["load"] == "saturated"])
