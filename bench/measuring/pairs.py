# pairs.py
#   Short sessions: what auditing costs those who come and go.
#
# A session pays most when it begins: it maps memory, the server's and the queue's, and
# makes what it needs later.  In runs of many seconds nobody sees that.
#
# Runs come in pairs, one right after the other on the same server: one whose statements
# are recorded, and one without, as PGOPTIONS says.  Every other pair has the other order.
# The ratio of two short runs differs much from that of the next two.  So there are many
# pairs, and what counts is the median of their ratios; half of all ratios are between the
# quartiles.
#
# The server has the library in both runs: what it costs to have it loaded and recording
# nothing is in the command "record".
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import statistics

import load as pgbench
from load import Load
from text import grid, verdict_text

# Both are of the configuration "queued".
OPTIONS = {"none": "-c pg_audit_queue.log=none", "queued": "-c pg_audit_queue.log=all"}

# Of a run
SECONDS = 2
STATEMENTS = 100


def counts(bench, usual, quick):
    """How many clients: one number, if the options say one."""
    options = bench.options
    return [options.clients] if options.clients else quick if options.quick else usual


def short_runs(counts):
    """Loads: sessions that go on for some seconds, so many at the same time."""
    return [Load(f"{count} clients, {SECONDS} s", "select-only", count, seconds=SECONDS,
                 log=False) for count in counts]


def short_sessions(bench, counts):
    """Loads: sessions of some statements, each a connection of its own, so many at the
    same time."""
    path = os.path.join(bench.scratch, "session.sql")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"\\set aid random(1, {100000 * bench.options.scale})\n"
                   "SELECT abalance FROM pgbench_accounts WHERE aid = :aid;\n" * STATEMENTS)
    return [Load(f"{count} clients, {STATEMENTS} statements a session", path, count,
                 seconds=SECONDS, log=False, protocol="simple", statements=STATEMENTS,
                 connect=True) for count in counts]


def measure(bench, result, loads, number):
    """So many pairs of each load.  result gets "pairs", a list."""
    result["pairs"] = []
    for load in loads:
        run = {"load": load.name, "pairs": []}
        bench.attempt(run, _measure, bench, load, number)
        result["pairs"].append(run)
        print(f"  {number} pairs  {load.name:<42} {_ratios(run)} of none   "
              f"trail: {run['verdict']}", flush=True)


def _measure(run, bench, load, number):
    configuration = bench.standard["queued"]
    bench.cluster.start(bench.settings_of(configuration))
    expected = 0
    for i in range(number):
        pair = {}
        for name in sorted(OPTIONS, reverse=i % 2 == 1):
            figures = pgbench.run(bench.cluster, load, os.path.join(bench.scratch, "pgbench"),
                                  OPTIONS[name])
            bench.cluster.wait_for_clients()
            bench.flush(configuration)
            pair[name] = figures["tps"]
            if name == "queued":
                expected += figures["transactions"] * load.statements + load.startup_statements
        run["pairs"].append(pair)
    bench.check(run, configuration, expected)
    run["none_tps"] = statistics.median(pair["none"] for pair in run["pairs"])
    run["queued_tps"] = statistics.median(pair["queued"] for pair in run["pairs"])
    ratios = [pair["queued"] / pair["none"] for pair in run["pairs"]]
    run["ratio"] = statistics.median(ratios)
    run["quartiles"] = statistics.quantiles(ratios, method="inclusive")[::2] \
        if number > 1 else [run["ratio"]] * 2


def _ratios(run):
    if "ratio" not in run:
        return "-"
    return "{:.3f} ({:.3f}..{:.3f})".format(run["ratio"], *run["quartiles"])


def report(result):
    """The table, with its heading."""
    if not result.get("pairs"):
        return []
    rows = [(run["load"], len(run["pairs"]),
             *("{:.0f}".format(run[name]) if name in run else "-"
               for name in ("none_tps", "queued_tps")),
             _ratios(run), verdict_text([run])) for run in result["pairs"]]
    return ["### Short sessions: median of pairs, and quartiles", "",
            grid(("load", "pairs", "none, tps", "queued, tps", "queued of none", "trail"), rows),
            ""]
