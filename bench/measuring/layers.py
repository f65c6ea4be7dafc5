# layers.py
#   The command "trail": what it costs that trail files are compressed, encrypted and
#   sealed, in bytes, CPU time of the worker, and throughput; and how fast the trail is
#   read again.
#
# All combinations do the same number of transactions, so their times can be compared.
# For the target of the throughput there are pairs of runs, one right after the other:
# plain files, and everything on.  Every other pair has the other order.
#
# Copyright (c) 2026, pg_audit_queue contributors

import statistics

import picture
import reading
import trail_program
from load import Load
from text import grid, ratio_text, spread_text, tables, verdict_text

NAME = "trail"
TITLE = "Layers of trail files, and reading them"

COMPRESSIONS = ("none", "lz4", "zstd")
BITS = (None, 128, 256)

PLAIN = "plain"
EVERYTHING = "zstd_aes256_sealed"
BASE = PLAIN

# With a load whose records resemble each other less
FEW = (PLAIN, "lz4", "zstd", EVERYTHING)

# A TPC-B transaction takes as long as so many SELECTs.
SLOWER = 12

# The loads, as the report calls them
LOADS = (("select", "SELECTs by key, prepared, a fixed number of them"),
         ("tpcb", "TPC-B, synchronous_commit = off, a fixed number of transactions"))

# With --quick, where nothing else was asked for
QUICK_NAMES = (PLAIN, "plain_sealed", "lz4", "zstd", "aes256", EVERYTHING)

DEFAULTS = {"rounds": 3, "seconds": 4, "clients": 8, "transactions": 30000, "megabytes": 500}
QUICK = {"rounds": 1, "seconds": 2, "clients": 8, "transactions": 4000, "megabytes": 100}

# Seconds before those of a run of a pair
WARMUP = 1

TARGET = 0.95

PUBLISHED = {
    "source": "Seconds that an RMAN duplicate of 1 GB took over SQL*Net, as published. The "
              "difference was CPU time of the two processes. None of this was measured here.",
    "rows": [
        {"configuration": "none", "12.1": 7, "11.2": 7},
        {"configuration": "AES128", "12.1": 16, "11.2": 25},
        {"configuration": "AES256", "12.1": 16, "11.2": 35},
        {"configuration": "3DES", "12.1": 125, "11.2": 125},
    ],
}

COLUMNS = (
    ("configuration", lambda row: row["configuration"]),
    ("trail, bytes/record", lambda row: spread_text(row, "record_bytes", "{:.1f}", False)),
    ("of plain", lambda row: ratio_text(row, "record_bytes")),
    ("worker, us/record", lambda row: spread_text(row, "worker_us_record", "{:.2f}")),
    ("of plain", lambda row: ratio_text(row, "worker_us_record")),
    ("tps", lambda row: spread_text(row, "tps", "{:.0f}")),
    ("of plain", lambda row: ratio_text(row, "tps")),
    ("records", lambda row: spread_text(row, "records", "{:.0f}", False)),
    ("trail", lambda row: verdict_text([row])),
)

SECONDS = (
    ("configuration", lambda row: row["configuration"]),
    ("load, s", lambda row: spread_text(row, "load_s", "{:.2f}")),
    ("database time, s", lambda row: spread_text(row, "db_time_s", "{:.2f}")),
    ("of plain", lambda row: ratio_text(row, "db_time_us")),
    ("CPU sessions, s", lambda row: spread_text(row, "sessions_s", "{:.2f}")),
    ("CPU worker, s", lambda row: spread_text(row, "worker_s", "{:.2f}")),
)


def name_of(compression, bits, sealed):
    words = ([compression] if compression != "none" else []) + ([f"aes{bits}"] if bits else [])
    return "_".join((words or [PLAIN]) + (["sealed"] if sealed else []))


def run(bench, result, options):
    combinations = _combinations(bench)
    wanted = bench.options.configs or (QUICK_NAMES if options.quick else list(combinations))
    chosen = bench.pick(result, [bench.standard["none"]] + [
        combinations[name] for name in combinations if name in wanted])
    # names that are known, though nobody has asked for them
    bench.named.update(combinations)
    select = Load("select", "select-only", options.clients, log=False,
                  transactions=options.transactions)
    bench.alternate(result, [select], chosen, options.rounds)
    tpcb = Load("tpcb", "tpcb-like", options.clients, log=False,
                transactions=max(1, options.transactions // SLOWER),
                settings={"synchronous_commit": "off"})
    bench.alternate(result, [tpcb], [each for each in chosen if each.name in FEW],
                    options.rounds)
    _add_figures(result)
    result["published"] = PUBLISHED
    _pairs(bench, result, options, [each for each in chosen
                                    if each.name in (PLAIN, EVERYTHING)])
    reading.measure(bench, result, options, {name: each for name, each in combinations.items()
                                             if each.sealed})


# -- combinations -------------------------------------------------------------------

def _combinations(bench):
    """All of them, by name, the plain one first."""
    offered = _offered(bench)
    queued = bench.standard["queued"]
    return {name_of(compression, bits, sealed):
            _combination(bench, queued, compression, bits, sealed, offered)
            for sealed in (False, True) for bits in BITS for compression in COMPRESSIONS}


def _combination(bench, queued, compression, bits, sealed, offered):
    settings = {}
    if compression != "none":
        settings["pg_audit_queue.log_compression"] = compression
    if bits:
        settings["pg_audit_queue.log_encryption"] = f"aes-{bits}-gcm"
        settings["pg_audit_queue.log_encryption_key_command"] = \
            trail_program.key_command(bench.cluster, bits)
    if sealed:
        settings["pg_audit_queue.seal"] = "on"
    return queued.variant(name_of(compression, bits, sealed), settings, layered=True,
                          missing=_missing(bench, settings, offered))


def _missing(bench, settings, offered):
    """Why these layers cannot be had; None if they can."""
    if settings:
        reason = trail_program.absent(bench.cluster)
        if reason:
            return reason
    return next((f"the library was built without {value}" for name, value in settings.items()
                 if name in offered and value not in offered[name]), None)


def _offered(bench):
    """Values that the library has for settings of layers, by name of the setting"""
    bench.cluster.start(bench.settings_of(bench.standard["queued"]))
    rows = bench.cluster.query(
        "SELECT name, unnest(enumvals) FROM pg_settings WHERE name IN "
        "('pg_audit_queue.log_compression', 'pg_audit_queue.log_encryption')")
    bench.cluster.stop()
    offered = {}
    for name, value in rows:
        offered.setdefault(name, set()).add(value)
    return offered


def _add_figures(result):
    for each in result["runs"]:
        if each.get("records"):
            each["record_bytes"] = each["trail_bytes"] / each["records"]
        if "tps" in each:
            each["load_s"] = each["transactions"] / each["tps"]
        if "cpu_s" in each:
            each["sessions_s"] = each["cpu_s"]["sessions"]
            each["worker_s"] = each["cpu_s"].get("worker", 0.0)


# -- pairs ----------------------------------------------------------------------------

def _pairs(bench, result, options, two):
    if len(two) < 2:
        result["absent"]["pairs"] = f"they need the configurations {PLAIN} and {EVERYTHING}"
        return
    load = Load("pairs", "select-only", options.clients, seconds=options.seconds,
                warmup=WARMUP, log=False)
    bench.alternate(result, [load], two, options.pairs)
    ratios = _ratios(result)
    if not ratios:
        return
    result["everything"] = {
        "pairs": len(ratios), "ratio": statistics.median(ratios), "target": TARGET,
        "quartiles": statistics.quantiles(ratios, method="inclusive")[::2]
        if len(ratios) > 1 else ratios * 2}


def _ratios(result):
    """Throughput with everything on, of that with plain files, of each pair"""
    tps = {(run["configuration"], run["round"]): run["tps"] for run in result["runs"]
           if run["load"] == "pairs" and "tps" in run}
    return [tps[name, number] / tps[PLAIN, number] for name, number in tps
            if name == EVERYTHING and (PLAIN, number) in tps]


def _pairs_report(result):
    found = result.get("everything")
    if not found:
        return []
    rows = {row["configuration"]: row for row in result["medians"] if row["load"] == "pairs"}
    ratio = "{:.3f} ({:.3f}..{:.3f})".format(found["ratio"], *found["quartiles"])
    return ["### Everything on, of plain: median of pairs, and quartiles", "",
            grid(("load", "pairs", "plain, tps", EVERYTHING + ", tps", "of plain",
                  "target", "reached", "trail"),
                 [("select", found["pairs"], *(f"{rows[name]['tps']['median']:.0f}"
                                               for name in (PLAIN, EVERYTHING)),
                   ratio, found["target"], "yes" if found["ratio"] >= found["target"] else "no",
                   verdict_text(rows.values()))]), ""]


# -- what is shown --------------------------------------------------------------------

def report(result):
    return (tables(result, LOADS, COLUMNS, SECONDS) + published_table(result["published"])
            + _pairs_report(result) + reading.report(result))


def published_table(published):
    return ["### Seconds for the same load, published", "", published["source"], "",
            grid(("encryption", "Oracle 12.1, s", "of none", "Oracle 11.2, s", "of none"),
                 [(row["configuration"], *(cell for version in ("12.1", "11.2") for cell in (
                     row[version], f"{row[version] / published['rows'][0][version]:.2f}")))
                  for row in published["rows"]]), ""]


def pictures(result, plot):
    rows = [row for row in result["medians"] if row["load"] == "select"]
    plot.bars("Trail, bytes of a record", "lower is better",
              [picture.bar(row, row.get("record_bytes"), "{:.0f}") for row in rows])
    plot.bars("CPU time of the worker for a record", "microseconds; lower is better",
              [picture.bar(row, row.get("worker_us_record"), "{:.2f}") for row in rows])
    plot.bars("Throughput, of plain files", "ratio; higher is better",
              [picture.bar(row, row["ratio"].get("tps")) for row in rows])
    reading.pictures(result, plot)
