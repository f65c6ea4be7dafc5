# bench.py
#   One run, and many of them.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import shutil
import time

import cpu
import load as pgbench
import trail
import trail_program
from cluster import BENCH_DB, Failure, quoted
from config import WRITERS, standard

STATISTICS = ("published", "drained", "flushed", "bytes", "queue_size", "queue_high_water",
              "space_waits", "flush_waits", "wait_time", "wal_commits", "wal_fallbacks",
              "dropped", "incomplete", "batches", "fsyncs", "wakeups")

# These are levels; all others count.
LEVELS = ("queue_size", "queue_high_water")


class Bench:
    """What all commands share: the cluster, the configurations, the runs."""

    def __init__(self, options, cluster, pkglibdir, scratch):
        self.options = options
        self.cluster = cluster
        self.scratch = scratch
        self.standard = standard(options.format)
        self.pkglibdir = pkglibdir
        self._clear = os.path.join(scratch, "clear")    # see _without_layers()
        self.wrong = 0
        self.named = set()      # configurations that any command has

    def pick(self, result, configurations):
        """Those of them that were asked for and can be had; notes all in the result."""
        wanted = self.options.configs
        self.named.update(configuration.name for configuration in configurations)
        picked = []
        for configuration in configurations:
            if wanted and configuration.name not in wanted:
                continue
            reason = configuration.absent(self.pkglibdir)
            if reason:
                result["configurations"][configuration.name] = {"absent": reason}
                print(f"  leaving out {configuration.name}: {reason}", flush=True)
                continue
            result["configurations"][configuration.name] = configuration.describe()
            picked.append(configuration)
        return picked

    # -- many runs --------------------------------------------------------------

    def turns(self, result, loads, configurations, rounds):
        """Runs to be filled in, with load and configuration: each configuration with
        each load, a name, in each round.  Every round has another order, so that a
        machine that changes with time affects all configurations."""
        for number in range(1, rounds + 1):
            for load in loads:
                for place in range(len(configurations)):
                    configuration = configurations[(place + number - 1) % len(configurations)]
                    run = {"load": load, "configuration": configuration.name,
                           "round": number, "order": place + 1}
                    yield run, load, configuration
                    result["runs"].append(run)

    def alternate(self, result, loads, configurations, rounds, beside=None):
        """Measure all turns."""
        by_name = {load.name: load for load in loads}
        for name, load in by_name.items():
            result["loads"][name] = load.describe()
        for run, name, configuration in self.turns(result, by_name, configurations, rounds):
            self._timed(run, by_name[name], configuration, beside)
            self._show(run, rounds)

    def _timed(self, run, load, configuration, beside):
        begin = time.monotonic()
        self.attempt(run, self.measure, load, configuration, beside)
        run["run_seconds"] = time.monotonic() - begin

    def attempt(self, run, function, *arguments):
        """Have the function fill in a run, which is its first argument.  If it fails,
        the run says so, in "absent" and "verdict", and nothing is left running."""
        try:
            function(run, *arguments)
        except Failure as error:
            run["absent"] = str(error)
            run["verdict"] = "absent: " + str(error).splitlines()[0]
            self.cluster.destroy()
        if run["verdict"] not in ("ok", None):
            self.wrong += 1

    def _show(self, run, rounds):
        text = "{:>9.0f} tps {:>9.3f} ms".format(run["tps"], run["latency_ms"]) \
            if "tps" in run else " " * 26
        print(f"  round {run['round']}/{rounds}  {run['load']:<14} {run['configuration']:<30} "
              f"{text}   trail: {run['verdict'] or '-'}", flush=True)

    # -- one run ----------------------------------------------------------------

    def settings_of(self, configuration):
        return {**configuration.settings(), **dict(self.options.set)}

    def measure(self, run, load, configuration, beside=None):
        """Fill in the figures of a run.  beside: what goes on beside pgbench; it is told
        where the load begins and ends, and checks itself when the trail has been checked."""
        cluster = self.cluster
        cluster.start({**load.settings, **self.settings_of(configuration)}, configuration.table)
        if beside:
            beside.begin(configuration)
        before = self._state(configuration)
        stolen, switches = cpu.stolen(), cpu.switches()
        figures = pgbench.run(cluster, load, os.path.join(self.scratch, "pgbench"))
        stolen, switches = cpu.stolen() - stolen, cpu.switches() - switches
        cluster.wait_for_clients()
        flush_s = self.flush(configuration)
        after = self._state(configuration)
        run.update(figures)
        run["stolen_cpu_s"] = stolen
        run["switches_tx"] = switches / run["transactions"]
        run["flush_s"] = flush_s
        self._add_costs(run, configuration, before, after)
        if beside:
            beside.end(run)
        expected = 0 if configuration.nothing else \
            figures["transactions"] * load.statements + pgbench.STARTUP_STATEMENTS
        self.check(run, configuration, expected)
        if beside:
            beside.check(run)

    def flush(self, configuration):
        """Wait until our trail has everything; how long that took, in seconds."""
        if not configuration.ours:
            return None
        begin = time.monotonic()
        self.cluster.flush(configuration.table)
        return time.monotonic() - begin

    def _state(self, configuration):
        """Everything that counts up."""
        active, wal = self.cluster.query(
            "SELECT active_time, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0') "
            f"FROM pg_stat_database WHERE datname = {quoted(BENCH_DB)}")[0]
        state = {"times": cpu.Times(self.cluster), "active_ms": float(active), "wal": int(wal)}
        if configuration.ours:
            row = self.cluster.query(
                f"SELECT {', '.join(STATISTICS)} FROM pg_stat_audit_queue")[0]
            state["queue"] = {name: float(value) if name == "wait_time" else int(value)
                              for name, value in zip(STATISTICS, row)}
        return state

    def _add_costs(self, run, configuration, before, after):
        transactions = run["transactions"]
        used = after["times"].since(before["times"])
        if used is None:
            run["cpu_absent"] = "a background process has ended during the run"
        else:
            run["cpu_s"] = used
            writers = sum(used.get(name, 0.0) for name in WRITERS.values())
            run["sessions_us"] = used["sessions"] * 1e6 / transactions
            run["writers_us"] = writers * 1e6 / transactions
            run["cpu_us"] = run["sessions_us"] + run["writers_us"]
        run["db_time_s"] = (after["active_ms"] - before["active_ms"]) / 1000
        run["db_time_us"] = run["db_time_s"] * 1e6 / transactions
        run["wal_bytes"] = after["wal"] - before["wal"]
        run["wal_tx"] = run["wal_bytes"] / transactions
        if configuration.ours:
            queue = {name: value - (0 if name in LEVELS else before["queue"][name])
                     for name, value in after["queue"].items()}
            run["queue"] = queue
            for name in ("fsyncs", "space_waits", "flush_waits"):
                run[name] = queue[name]
            if queue["wal_commits"] > 0:
                run["wal_commits"] = queue["wal_commits"]
                run["wal_fallbacks"] = queue["wal_fallbacks"]
                run["audit_wal_tx"] = \
                    self.cluster.message_bytes(before["wal"], after["wal"]) / transactions
            run["wait_ms"] = queue["wait_time"]
            if used is not None and queue["drained"] > 0:
                run["worker_us_record"] = used.get("worker", 0.0) * 1e6 / queue["drained"]

    # -- the trail ----------------------------------------------------------------

    def check(self, run, configuration, expected):
        """Stop the server, and compare the trail with what was sent: so many
        statements.  Fills in the verdict, None if there is no trail."""
        run["verdict"] = None
        if configuration.layout is None:
            self.cluster.stop()
            return
        size = self.cluster.query(TABLE_SIZE)[0][0] if configuration.table else None
        files = self.collect(configuration, ROWS)
        run["expected"] = expected
        readable = self._without_layers(configuration, files)
        run["records"], size_of_files, run["verdict"] = trail.check(
            configuration.layout, BENCH_DB, expected, readable)
        shutil.rmtree(self._clear, ignore_errors=True)
        run["trail_bytes"] = size_of_files if size is None else int(size)
        if configuration.layered:
            self._add_layers(run, configuration, files)
        if run["verdict"] != "ok":
            self._keep(run, files)

    def _without_layers(self, configuration, files):
        """Files that trail.py can read."""
        if not configuration.ending:
            return files
        shutil.rmtree(self._clear, ignore_errors=True)
        os.mkdir(self._clear)
        return trail_program.in_clear(self.cluster, files, configuration.layout, self._clear)

    def _add_layers(self, run, configuration, files):
        """Bytes of the text, and of the trail with its layers and seals.  The layers must
        be those that were asked for, and the seals must say that nothing is missing."""
        folder = os.path.join(self.cluster.data, configuration.folder)
        run["text_bytes"] = run["trail_bytes"]
        run["trail_bytes"] = trail.size_of(folder)
        ending = {"csvlog": ".csv", "pgaudit": ".log"}.get(configuration.layout, ".json")
        if not all(file.endswith(ending + configuration.ending) for file in files):
            run["verdict"] = "files of the trail do not have these layers"
        if configuration.sealed:
            trail_program.verify(self.cluster, folder)

    def collect(self, configuration, query):
        """Stop the server.  Returns the files that have the trail, one with the rows of
        the query if it is in the table.  The logging collector's trail is complete when
        the collector has ended."""
        path = os.path.join(self.scratch, "rows")
        if configuration.table:
            self.cluster.query(f"COPY ({query}) TO {quoted(path)}")
        self.cluster.stop()
        if configuration.table:
            return [path]
        return trail.files_of(os.path.join(self.cluster.data, configuration.folder))

    def _keep(self, run, files):
        """A wrong trail is evidence."""
        name = f"{run['load']}-{run['configuration']}-{run['round']}"
        folder = os.path.join(self.cluster.folder, "wrong", name)
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for path in files:
            shutil.copy(path, folder)
        print(f"  WRONG: {run['verdict']}; the trail is in {folder}", flush=True)


# What trail.py reads of the table
ROWS = "SELECT sequence, session_id, statement_id, class, database_name FROM audit_records " \
       "ORDER BY sequence"

# With its partitions and indexes
TABLE_SIZE = """
    SELECT sum(pg_total_relation_size(relation)) FROM (
        SELECT 'audit_queue.records'::regclass AS relation
        UNION SELECT relid FROM pg_partition_tree('audit_queue.records')) relations"""
