# instructions.py
#   Instructions of a statement, counted by valgrind's callgrind, in sessions
#   that are busy at the same time.
#
# Unlike time, instructions depend neither on other work of the machine nor on
# the size of its caches, and the same rows are read each time.  There are three
# runs on one server.  The first brings the rows into shared_buffers.  The other
# two have few and more statements, so that the work of sessions at their start,
# which is the same in both, cancels out.
#
# Only instructions below PostgresMain() are counted, that is, none of
# background processes.  Waiting for the client is included, where a session
# looks for the next command once or twice.  The server is some fifty times as
# slow as without valgrind, and sessions run side by side, so a session that had
# to spin until others are done would show.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import re
import shutil
import time

import load as pgbench
from cluster import LIMIT, Failure
from load import Load
from machine import output_of

# Statements of each client
FEW, MORE = 20, 120

SEED = 1

TOTALS = re.compile(rb"^totals: ([0-9]+)$", re.M)


def count(bench, result, configurations, counts):
    """Count for each configuration and number of clients.  result gets
    "instructions", a list, or why there are none."""
    if shutil.which("valgrind") is None:
        result["absent"]["instructions"] = "valgrind is not installed"
        return
    if "-fsanitize=" in (output_of(bench.cluster.program("pg_config"), "--cflags") or ""):
        result["absent"]["instructions"] = "valgrind runs no server with sanitizers"
        return
    result["instructions"] = []
    for clients in counts:
        for configuration in configurations:
            run = {"clients": clients, "configuration": configuration.name}
            bench.attempt(run, _count, bench, configuration, clients)
            result["instructions"].append(run)
            print(f"  instructions  {clients:<14} {configuration.name:<30} "
                  f"{run.get('statement', 0):>9} a statement   trail: {run['verdict'] or '-'}",
                  flush=True)


def _count(run, bench, configuration, clients):
    """Fill in "statement", instructions, and "verdict", on the trail."""
    folder = os.path.join(bench.scratch, "callgrind")
    os.mkdir(folder)
    try:
        bench.cluster.start_under(
            ["valgrind", "-q", "--tool=callgrind", "--toggle-collect=PostgresMain",
             "--callgrind-out-file=" + os.path.join(folder, "%p")],
            bench.settings_of(configuration))
        _run(bench, clients, MORE, folder)
        few = _run(bench, clients, FEW, folder)
        more = _run(bench, clients, MORE, folder)
        run["statement"] = round((more - few) / ((MORE - FEW) * clients))
        bench.flush(configuration)
        bench.check(run, configuration,
                    (FEW + 2 * MORE) * clients + 3 * pgbench.STARTUP_STATEMENTS)
    finally:
        shutil.rmtree(folder)


def _run(bench, clients, statements, folder):
    """Instructions of all sessions in a run of so many statements of each client."""
    before = set(bench.cluster.children())
    pgbench.run(bench.cluster, Load("counted", "select-only", clients,
                                    transactions=statements, log=False, seed=SEED),
                os.path.join(bench.scratch, "pgbench"))
    end = time.monotonic() + LIMIT
    while not set(bench.cluster.children()) <= before:
        if time.monotonic() > end:
            raise Failure("there are sessions that do not end")
        time.sleep(0.02)
    running = {str(pid) for pid in [bench.cluster.pid, *bench.cluster.children()]}
    return sum(_take(os.path.join(folder, name)) for name in os.listdir(folder)
               if name not in running)


def _take(path):
    """What the file of a process that has ended says; it is used up."""
    with open(path, "rb") as file:
        found = TOTALS.search(file.read())
    os.unlink(path)
    if not found:
        raise Failure(f"valgrind has not written {path}")
    return int(found.group(1))
