# table.py
#   The trail in a table, with and without WAL of its own, against files.
#
# Copyright (c) 2026, pg_audit_queue contributors

import picture
from config import in_table
from load import Load
from text import COSTS, SPEED, spread_text, table

NAME = "table"
TITLE = "TPC-B: trail in a table or in files"

DEFAULTS = {"rounds": 3, "seconds": 15, "clients": 32}
QUICK = {"rounds": 1, "seconds": 2, "clients": 32}


def run(bench, result, options):
    queued, immediate = bench.standard["queued"], bench.standard["immediate"]
    configurations = [bench.standard["none"], queued, immediate]
    for mode in (queued, immediate):
        configurations += [in_table(mode, logged=logged, synchronous_commit=synchronous)
                           for logged in ("on", "off") for synchronous in ("on", "off")]
    chosen = bench.pick(result, configurations)
    load = Load("saturated", "tpcb-like", options.clients, seconds=options.seconds)
    bench.alternate(result, [load], chosen, options.rounds)


COLUMNS = SPEED[:-1] + (
    ("behind, s", lambda row: spread_text(row, "flush_s", "{:.2f}")),
    ("WAL, MB", lambda row: f"{row['wal_bytes']['median'] / 1e6:.1f}"
     if "wal_bytes" in row else "-"),
) + SPEED[-1:]


def report(result):
    return [table(COLUMNS, result["medians"]), "", table(COSTS, result["medians"]), "",
            "\"Behind\" is how long it took, when the load had ended, until the trail had "
            "everything.", ""]


def pictures(result, plot):
    rows = result["medians"]
    plot.bars("Throughput, of none", "ratio to no audit; higher is better",
              [picture.bar(row, row["ratio"].get("tps")) for row in rows])
    plot.grouped("CPU time of a transaction", "microseconds; lower is better", rows,
                 (("sessions_us", "sessions"), ("writers_us", "processes that write the trail")))
    plot.bars("Until the trail had everything, after the load", "s; lower is better",
              [picture.bar(row, row.get("flush_s"), "{:.2f}") for row in rows])
