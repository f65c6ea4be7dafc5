# figures.py
#   Medians, spread and ratios of runs.
#
# A ratio is computed within a round, in which two configurations meet about the
# same conditions of the machine.  The median of the rounds' ratios is shown.
#
# Copyright (c) 2026, pg_audit_queue contributors

import math
import statistics

# What ratios are formed of
COMPARED = ("tps", "latency_ms", "p50_ms", "p95_ms", "p99_ms", "sessions_us", "cpu_us",
            "db_time_us", "record_bytes", "worker_us_record", "records_s", "ship_us_record",
            "broker_us_record")


def percentile(values, p):
    """Of sorted values: the smallest that p per cent of them do not exceed."""
    return values[max(0, math.ceil(len(values) * p / 100) - 1)]


def spread(values):
    return {"median": statistics.median(values), "min": min(values), "max": max(values),
            "runs": len(values)}


def summarize(runs, base="none"):
    """Medians and spread of each figure of each load and configuration, in the
    order in which they first ran, with ratios to the base configuration.  base: its
    name, or a function that has a load's name and returns it."""
    rows = []
    for key in dict.fromkeys((run["load"], run["configuration"]) for run in runs):
        mine = [run for run in runs if (run["load"], run["configuration"]) == key]
        row = {"load": key[0], "configuration": key[1], "rounds": len(mine),
               "verdict": _verdict(mine)}
        for name in dict.fromkeys(name for run in mine for name in run):
            values = [run[name] for run in mine if _is_figure(name, run.get(name))]
            if values:
                row[name] = spread(values)
        row["ratio"] = _ratios(mine, runs, base(key[0]) if callable(base) else base)
        rows.append(row)
    return rows


def _is_figure(name, value):
    return (isinstance(value, (int, float)) and not isinstance(value, bool)
            and name not in ("round", "order"))


def _verdict(runs):
    """The first that is not good."""
    verdicts = [run["verdict"] for run in runs if run.get("verdict") is not None]
    return next((text for text in verdicts if text != "ok"), "ok" if verdicts else None)


def _ratios(mine, runs, base):
    ratios = {}
    others = {run["round"]: run for run in runs
              if run["configuration"] == base and run["load"] == mine[0]["load"]}
    for name in COMPARED:
        values = [run[name] / others[run["round"]][name] for run in mine
                  if run.get(name) is not None and run["round"] in others
                  and others[run["round"]].get(name)]
        if values:
            ratios[name] = spread(values)
    return ratios
