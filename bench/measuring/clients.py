# clients.py
#   More and more clients: does anything in the path of a record get slower
#   than the server itself?  One lock is enough, for instance that of libc's
#   time zones.
#
# Throughput alone does not tell.  With more sessions than the CPUs' caches have
# space for, everything takes longer, audited or not.  So two figures that do
# not depend on caches are taken as well: the instructions of a statement, and
# switches of processes.  Spinning on a lock takes instructions, and waiting for
# one takes switches.
#
# Copyright (c) 2026, pg_audit_queue contributors

import instructions
import pairs
from load import Load
from text import grid, ratio_text, spread_text, verdict_text

NAME = "clients"
TITLE = "1 to 128 clients, read-only"

COUNTS = (1, 2, 4, 8, 16, 32, 64, 128)
QUICK_COUNTS = (1, 8, 32, 128)
SHORT_COUNTS = (8, 64, 128)
QUICK_SHORT_COUNTS = (8, 64)

# The second has daylight saving.
ZONES = {"utc": "UTC", "dst": "Europe/Berlin"}

DEFAULTS = {"rounds": 3, "seconds": 8}
QUICK = {"rounds": 1, "seconds": 2}

# Clients a second of warm-up.  Every session maps the shared memory that it uses page
# by page, the server's and the queue's, and the more sessions there are, the longer that
# goes on: what counts is how fast they are afterwards.
WARMUP = 4
QUICK_WARMUP = 16


def run(bench, result, options):
    none, queued = bench.standard["none"], bench.standard["queued"]
    chosen = bench.pick(result, [none] + [
        queued.variant(f"queued_{name}", {"log_timezone": zone})
        for name, zone in ZONES.items()])
    counts = list(QUICK_COUNTS if options.quick else COUNTS)
    if options.clients:
        counts = [count for count in COUNTS if count <= options.clients]
    share = QUICK_WARMUP if options.quick else WARMUP
    loads = [Load(str(count), "select-only", count, seconds=options.seconds, log=False,
                  warmup=max(1, count // share))
             for count in counts]
    bench.alternate(result, loads, chosen, options.rounds)
    pairs.measure(bench, result, pairs.short_runs(
        pairs.counts(bench, SHORT_COUNTS, QUICK_SHORT_COUNTS)), options.pairs)
    # Times are the worker's business, so one zone is enough.  Many sessions take a while.
    few_to_many = [counts[0], counts[len(counts) // 2]] + ([] if options.quick else counts[-1:])
    instructions.count(bench, result, [each for each in chosen if each.name != "queued_dst"],
                       dict.fromkeys(few_to_many))


def _by_load(result):
    loads = {}
    for row in result["medians"]:
        loads.setdefault(row["load"], {})[row["configuration"]] = row
    return loads


def _names(result):
    return [name for name, what in result["configurations"].items() if "absent" not in what]


def report(result):
    names = _names(result)
    head = ["clients"] + [f"{name}, tps" for name in names] + \
        [f"{name} of none" for name in names if name != "none"] + ["trail"]
    rows = []
    for load, by_name in _by_load(result).items():
        rows.append(
            [load] + [spread_text(by_name[name], "tps", "{:.0f}") for name in names]
            + [ratio_text(by_name[name], "tps") for name in names if name != "none"]
            + [verdict_text(list(by_name.values()))])
    return [grid(head, rows), "", "### A transaction, which is a statement", "",
            _counted_table(result, names), ""] + pairs.report(result)


def _counted_table(result, names):
    """Switches, which are there for all runs, and instructions."""
    counted = {(str(each["clients"]), each["configuration"]): each["statement"]
               for each in result.get("instructions", ()) if "statement" in each}
    some = [name for name in names if any(name == other for _, other in counted)]
    audited = [name for name in some if name != "none" and "none" in some]
    rows = []
    for load, by_name in _by_load(result).items():
        here = {name: counted.get((load, name)) for name in some}
        rows.append([load]
                    + [spread_text(by_name[name], "switches_tx", "{:.2f}") for name in names]
                    + [here[name] or "-" for name in some]
                    + [here[name] - here["none"] if here[name] and here["none"] else "-"
                       for name in audited])
    return grid(["clients"] + [f"{name}, switches" for name in names]
                + [f"{name}, instructions" for name in some]
                + [f"{name}, added" for name in audited], rows)


def pictures(result, plot):
    loads = _by_load(result)
    names = _names(result)
    counts = [int(load) for load in loads]
    points = {name: [(int(load), by_name[name]["tps"]) for load, by_name in loads.items()
                     if name in by_name and "tps" in by_name[name]] for name in names}
    plot.lines("Transactions a second", "clients", "tps; higher is better", counts, points)
    ratios = {name: [(int(load), by_name[name]["ratio"]["tps"]) for load, by_name
                     in loads.items() if name in by_name and "tps" in by_name[name]["ratio"]]
              for name in names if name != "none"}
    plot.lines("The same, of none", "clients", "ratio to no audit; higher is better", counts,
               ratios)
