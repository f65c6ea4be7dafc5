# load.py
#   Runs of pgbench, and the figures in its output.
#
# Copyright (c) 2026, pg_audit_queue contributors

import glob
import os
import re
import subprocess
import time

from cluster import BENCH_DB, Failure
from figures import percentile

# What pgbench sends besides its transactions: when it starts, it asks for the
# scale and the partitioning of its tables.
STARTUP_STATEMENTS = 2

FIGURES = {
    "transactions": r"number of transactions actually processed: (\d+)",
    "tps": r"tps = ([0-9.]+)",
    "latency_ms": r"latency average = ([0-9.]+)",
}

# What it says once a second, if asked to: of the time since it last did
PROGRESS = re.compile(r"^progress: ([0-9.]+) s, ([0-9.]+) tps, lat ([0-9.]+) ms", re.M)


class Load:
    """What pgbench does: its script, a builtin one or a path, how many clients, and for how long (seconds),
    how often (transactions of each client), or at which rate (a second, of all).
    warmup: seconds before those, which tps and latency leave out.  seed: with the same
    one, the same rows are chosen.  statements: of a transaction of a script of ours.
    connect: each transaction has a session of its own."""

    def __init__(self, name, script, clients, seconds=None, transactions=None, rate=None,
                 settings=None, log=True, warmup=0, seed=None, protocol="prepared",
                 statements=None, connect=False):
        self.name = name
        self.script = script
        self.clients = clients
        self.seconds = seconds
        self.transactions = transactions
        self.rate = rate
        self.settings = settings or {}
        self.log = log
        self.warmup = warmup
        self.seed = seed
        self.protocol = protocol
        self.own_statements = statements
        self.connect = connect

    @property
    def statements(self):
        """Of a transaction"""
        # BEGIN, UPDATE, SELECT, UPDATE, UPDATE, INSERT, END
        return self.own_statements or {"select-only": 1, "tpcb-like": 7}[self.script]

    @property
    def startup_statements(self):
        """What pgbench sends besides, once"""
        return 0 if self.own_statements else STARTUP_STATEMENTS

    def describe(self):
        return {"script": self.script, "protocol": self.protocol, "clients": self.clients,
                "seconds": self.seconds, "warmup": self.warmup,
                "transactions_per_client": self.transactions, "rate": self.rate,
                "server_settings": self.settings}

    def command(self, program, prefix):
        words = [program, "-n", "-f" if self.own_statements else "-b", self.script,
                 "-M", self.protocol, "-c", str(self.clients), "-j", str(threads(self.clients))]
        if self.connect:
            words.append("-C")
        if self.seconds:
            words += ["-T", str(self.seconds + (self.warmup + 1 if self.warmup else 0))]
        if self.warmup:
            # Of its last second it often says nothing: hence one more above.
            words += ["-P", "1"]
        if self.transactions:
            words += ["-t", str(self.transactions)]
        if self.rate:
            words += ["-R", f"{self.rate:.1f}"]
        if self.seed is not None:
            words.append(f"--random-seed={self.seed}")
        if self.log:
            words += ["-l", "--log-prefix=" + prefix]
        return words + [BENCH_DB]


def threads(clients):
    """pgbench wants no more of them than clients."""
    return min(clients, len(os.sched_getaffinity(0)))


def run(cluster, load, prefix, options=""):
    """Run it; returns its figures.  prefix: of its files.  options: PGOPTIONS of its
    sessions."""
    begin = time.monotonic()
    with open(prefix + ".out", "w+", encoding="utf-8") as output:
        process = subprocess.Popen(load.command(cluster.program("pgbench"), prefix),
                                   env={**cluster.environment(), "PGOPTIONS": options},
                                   stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read()
    if process.returncode != 0:
        raise Failure("pgbench failed:\n" + text[-2000:])
    if re.search(r"actually processed: 0\b", text):
        raise Failure("pgbench has done no transaction in that time")
    result = {"pgbench_seconds": time.monotonic() - begin,
              "pgbench_cpu_s": usage.ru_utime + usage.ru_stime}
    for name, pattern in FIGURES.items():
        found = re.search(pattern, text)
        if not found:
            raise Failure(f"pgbench says nothing of {name}:\n" + text[-2000:])
        result[name] = float(found.group(1)) if "." in found.group(1) else int(found.group(1))
    failed = re.search(r"number of failed transactions: (\d+)", text)
    if failed and failed.group(1) != "0":
        # Nobody knows how many statements these have sent.
        raise Failure(f"{failed.group(1)} transactions failed")
    if load.log:
        result.update(_latencies(prefix))
    if load.warmup:
        result["tps_with_warmup"] = result["tps"]
        result.update(steady(text, load.warmup, load.seconds))
    return result


def steady(text, warmup, seconds):
    """tps and latency of those seconds after warmup, from pgbench's output."""
    last, time_s, transactions, latency = 0.0, 0.0, 0.0, 0.0
    for found in PROGRESS.finditer(text):
        now, tps, latency_ms = map(float, found.groups())
        # It is late when there is much to do, so take what begins nearest.
        if warmup - 0.5 < last < warmup + seconds - 0.5:
            time_s += now - last
            transactions += (now - last) * tps
            latency += (now - last) * tps * latency_ms
        last = now
    if transactions == 0:
        raise Failure(f"pgbench has done no transaction after {warmup} seconds")
    return {"tps": transactions / time_s, "latency_ms": latency / transactions}


def log_files(prefix):
    return glob.glob(glob.escape(prefix) + ".[0-9]*")


def _latencies(prefix):
    """Percentiles from pgbench's log of transactions.  With a rate, latency counts
    from when the transaction was due."""
    microseconds = []
    for path in log_files(prefix):
        with open(path, "rb") as file:
            microseconds += [int(line.split(b" ", 3)[2]) for line in file]
        os.unlink(path)
    microseconds.sort()
    return {f"p{p}_ms": percentile(microseconds, p) / 1000 for p in (50, 95, 99)}
