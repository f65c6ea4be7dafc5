# crash.py
#   kill -9 of everything in the middle of the load: which records of
#   acknowledged statements are missing in the trail?
#
# Clients number their statements.  The statements that pgbench has noted as
# done are those that the server has acknowledged.  After the kill the server is
# started again, so that it can write the records in its queue, and the trail is
# read.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import subprocess
import time

import load as pgbench
import picture
import trail
from cluster import BENCH_DB, Failure
from processes import kill
from text import spread_text, tables, verdict_text

NAME = "crash"
TITLE = "Records lost by a kill -9 of all processes of the server"

CONFIGURATIONS = ("pgaudit", "pgaudit_tofile", "queued", "commit", "immediate", "queued_table",
                  "immediate_table")

DEFAULTS = {"rounds": 10, "seconds": 4, "clients": 32}
QUICK = {"rounds": 1, "seconds": 2, "clients": 32}

# A statement is a transaction.  pgbench has its variables for each client.
SCRIPTS = {
    "insert": "\\set n :n + 1\n"
              "INSERT INTO crashed VALUES (:client_id, :n);\n",
    "select": "\\set n :n + 1\n\\set aid random(1, 100000)\n"
              "SELECT (:client_id, :n), abalance FROM pgbench_accounts WHERE aid = :aid;\n",
}

COLUMNS = (
    ("configuration", lambda row: row["configuration"]),
    ("rounds", lambda row: str(row["rounds"])),
    ("acknowledged", lambda row: spread_text(row, "acknowledged", "{:.0f}", False)),
    ("lost of acknowledged", lambda row: spread_text(row, "lost", "{:.0f}")),
    ("committed without record", lambda row: spread_text(row, "unrecorded", "{:.0f}")),
    ("doubled", lambda row: spread_text(row, "doubled", "{:.0f}")),
    ("trail", lambda row: verdict_text([row])),
)


def run(bench, result, options):
    chosen = bench.pick(result, [bench.standard[name] for name in CONFIGURATIONS])
    for load in SCRIPTS:
        result["loads"][load] = {"script": SCRIPTS[load], "protocol": "simple",
                                 "clients": options.clients, "seconds": options.seconds}
    for each, _, configuration in bench.turns(result, SCRIPTS, chosen, options.rounds):
        bench.attempt(each, _crash, bench, configuration, options)
        _show(each, options)


def _show(each, options):
    lost = f"{each['lost']:6d} of {each['acknowledged']} lost" if "lost" in each else ""
    print(f"  round {each['round']}/{options.rounds}  {each['load']:<8} {each['configuration']:<16} "
          f"{lost}   trail: {each['verdict'] or '-'}", flush=True)


def _crash(each, bench, configuration, options):
    cluster = bench.cluster
    cluster.start(bench.settings_of(configuration), configuration.table)
    prefix = os.path.join(bench.scratch, "crash")
    acknowledged = _load_until_killed(cluster, each["load"], options, prefix)
    each["acknowledged"] = sum(acknowledged.values())
    if not acknowledged:
        raise Failure("no statement was acknowledged")

    cluster.start_again()
    if configuration.ours:
        cluster.flush(configuration.table)
    committed = cluster.rows(BENCH_DB, "SELECT client, number FROM crashed")
    files = bench.collect(configuration, "SELECT r::text FROM audit_records r")
    found = trail.tokens(files)
    told = {(client, n) for client, count in acknowledged.items() for n in range(1, count + 1)}
    each["records"] = len(found)
    each["lost"] = len(told - found.keys())
    each["unrecorded"] = sum((int(client), int(n)) not in found for client, n in committed)
    each["doubled"] = sum(count > 1 for count in found.values())
    each["verdict"] = None
    if configuration.ours:
        whole = each["lost"] == each["unrecorded"] == each["doubled"] == 0
        each["verdict"] = "ok" if whole else "records are lost or doubled"


def _load_until_killed(cluster, load, options, prefix):
    """Kill everything after some time; returns how many statements of each client
    were acknowledged."""
    with open(prefix + ".sql", "w", encoding="ascii") as file:
        file.write(SCRIPTS[load])
    command = [cluster.program("pgbench"), "-n", "-M", "simple", "-D", "n=0", "-f",
               prefix + ".sql", "-c", str(options.clients), "-j",
               str(pgbench.threads(options.clients)), "-T", "3600", "-l",
               "--log-prefix=" + prefix, BENCH_DB]
    with open(prefix + ".out", "wb") as output:
        process = subprocess.Popen(command, env=cluster.environment(), stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT)
    try:
        time.sleep(options.seconds)
        if process.poll() is not None:
            with open(prefix + ".out", encoding="utf-8", errors="replace") as file:
                raise Failure("pgbench has ended:\n" + file.read()[-2000:])
        cluster.kill_all()
        process.wait(60)
    finally:
        kill(process.pid, 9)
        process.wait()
    acknowledged = {}
    for path in pgbench.log_files(prefix):
        with open(path, "rb") as file:
            for line in file:
                client, number = line.split(b" ", 2)[:2]
                acknowledged[int(client)] = max(acknowledged.get(int(client), 0), int(number))
        os.unlink(path)
    return acknowledged


def report(result):
    return tables(result, (("insert", "One-row INSERTs"), ("select", "SELECTs by key")), COLUMNS)


def pictures(result, plot):
    for load, title in (("insert", "one-row INSERTs"), ("select", "SELECTs by key")):
        plot.bars(f"Acknowledged statements without record, {title}",
                  "records lost by one crash, median and range of all; lower is better",
                  [picture.bar(row, row.get("lost"), "{:.0f}") for row in result["medians"]
                   if row["load"] == load])
