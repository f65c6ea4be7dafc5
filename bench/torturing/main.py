# main.py
#   The torture test: chooses what dies and when, and checks the trail
#   afterwards.
#
# Run by bench/torture, which describes the options.
#
# Copyright (c) 2026, pg_audit_queue contributors

import argparse
import collections
import errno
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback

from check import (Acknowledged, Findings, Reader, Trail, check_folder, check_log, check_queue,
                   verify)
from client import SCHEMA, Client
from processes import adopt_orphans, die_with_parent, kill
from proto import ConnectionLost, ServerSilent
from server import LIMIT, Failure, Server, reap
from table import TableTrail

# What dies, and how often
KILLS = {
    "postmaster": 20,
    "all": 22,
    "backend": 13,
    "worker": 18,
    "other": 4,
    "terminate": 6,
    "worker-term": 5,
    "immediate": 11,
    "fast": 4,
}

# With --table, besides
LOADER_KILLS = {"loader": 15, "loader-term": 8}

# With --faults: where a process kills itself or stops, and what fails
POINTS = ("pending-replaced", "writer-borrowed", "ring-claimed", "ring-unplaced",
          "ring-reserved", "ring-copied", "ring-committed", "checkpoint-half",
          "checkpoint-written", "batch-written", "flushed", "wal-collected", "wal-inserted",
          "sentinel-inserted", "sentinel-flushed", "sentinel-synced", "sentinel-noted",
          "sentinel-advanced", "settle-begun", "settle-synced", "settle-noted", "note-written",
          "skip-claimed", "skip-reserved", "skip-committed", "skip-noted", "detour-claimed",
          "detour-taken", "restore-done", "restore-synced")
LOADER_POINTS = ("load-done", "load-committed", "load-removed")
SEAL_POINTS = ("heartbeat-written", "seal-written", "seal-stored")

# The time in SQL, as verify takes it
UTC = "to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SSZ')"
FAILURES = (f"trail-write {errno.ENOSPC}", f"trail-write {errno.EIO}",
            f"trail-fsync {errno.EIO}")
FAULTS = {"point": 60, "stopped": 40, "failing": 15}

# Whom a kill chooses among, by the beginnings of their titles
VICTIMS = {
    "backend": ("postgres: t",),
    "terminate": ("postgres: t",),
    "worker": ("postgres: pg_audit_queue worker",),
    "worker-term": ("postgres: pg_audit_queue worker",),
    "loader": ("postgres: pg_audit_queue loader",),
    "loader-term": ("postgres: pg_audit_queue loader",),
    "other": ("postgres: checkpointer", "postgres: background writer", "postgres: walwriter",
              "postgres: logical replication launcher"),
}

# After these the server starts again by itself
CRASHES = ("backend", "worker", "loader", "other", "point")

# Of the rounds: those in which the trail is looked at while the server runs,
# a new trail file is asked for, the worker is stopped before something dies, so
# that the queue becomes full, the server is killed again while it starts
CHECKED = 0.4
ROTATED = 0.1
STALLED = 0.15
KILLED_AGAIN = 0.2

QUEUE_SIZES = ("64kB", "128kB", "1MB", "16MB")
MODES = ("queued", "commit", "immediate")

# Layers of trail files; with "mixed" each start takes one of each
COMPRESSIONS = ("none", "lz4", "zstd")
ENCRYPTIONS = ("none", "aes-128-gcm", "aes-256-gcm")
KEYS = {"aes-128-gcm": "key128", "aes-256-gcm": "key256"}

# Without --keep, trail files that have been checked are removed, all but the last
KEPT_FILES = 20


# A stop that takes longer, in seconds, is a fault
SLOW_STOP = 30


class Torture:
    """One run."""

    def __init__(self, options, folder, socket_folder):
        self.options = options
        self.random = random.Random(options.seed)
        self.folder = folder
        self.server = Server(options.bindir, folder, socket_folder)
        self.acknowledged_folder = os.path.join(folder, "acknowledged")
        self.findings = Findings()
        if options.table:
            self.trail = TableTrail(self.server, self.findings, options.faults)
        else:
            self.trail = Trail(self.server.trail, options.format, self.findings,
                               options.faults, Reader(options.bindir, folder))
        self.acknowledged = Acknowledged(self.acknowledged_folder)
        self.weights = {**KILLS, **(FAULTS if options.faults else {}),
                        **(LOADER_KILLS if options.table else {})}
        self.kills = collections.Counter()
        self.stalled = []       # the worker, while it is stopped
        self.told = []
        self.clients = {}
        self.round = 0
        self.checks = 0

    def run(self):
        os.makedirs(self.acknowledged_folder)
        settings = {"format": self.options.format, "log_rotation_size": "1MB",
                    "fsync": self.options.fsync}
        if self.options.mode != "mixed":
            settings["mode"] = self.options.mode
        if self.options.table:
            settings["sink"] = "table"
        if self._sealed():
            settings.update({"seal": "on", "seal_interval": "1s"})
        self.server.make(settings, self.options.set)
        self._make_keys()
        self._prepare()
        self._start_clients()
        for self.round in range(1, self.options.rounds + 1):
            begin = time.monotonic()
            what = self._one_round()
            self._look_around()
            if self.options.verbose:
                print(f"round {self.round}: {what}, {time.monotonic() - begin:.2f} s",
                      flush=True)
            if self.findings.count > 0:
                raise Failure("the trail is wrong")
        self._end()

    def _prepare(self):
        """Roles and tables."""
        server = self.server
        server.start({"pg_audit_queue.log": "none", "fsync": "off"})
        connection = server.connect("postgres")
        statements = ["CREATE EXTENSION pg_audit_queue",
                      "CREATE ROLE quiet SUPERUSER LOGIN",
                      "ALTER ROLE quiet SET pg_audit_queue.log = 'none'",
                      SCHEMA]
        for number in range(1, self.options.clients + 1):
            role = f"t{number}"
            statements += [f"CREATE ROLE {role} LOGIN",
                           f"CREATE SCHEMA {role} AUTHORIZATION {role}",
                           f"CREATE TABLE {role}.own ()",
                           f"ALTER TABLE {role}.own OWNER TO {role}"]
            if self.options.mode == "mixed":
                mode = MODES[number % len(MODES)]
                statements.append(f"ALTER ROLE {role} SET pg_audit_queue.mode = '{mode}'")
        for sql in statements:
            state = connection.simple(sql)
            if state is not None:
                raise Failure(f"{sql}: {state}")
        connection.quit()
        server.stop(signal.SIGINT)

    # -- layers of the trail's files --------------------------------------------

    def _sealed(self):
        return {"seal", "mixed"} & set(self.options.layers)

    def _make_keys(self):
        """Of encryption and seals, as if all were used."""
        with open(os.path.join(self.folder, "keys"), "w", encoding="ascii") as keys:
            os.chmod(keys.name, 0o600)
            for name in KEYS.values():
                key = os.urandom(int(name[3:]) // 8).hex() + "\n"
                keys.write(key)
                with open(os.path.join(self.folder, name), "w", encoding="ascii") as file:
                    file.write(key)
        if self._sealed():
            self.server.make_sealing_key(os.path.join(self.folder, "verification-key"))

    def _layers(self):
        """Settings for one start."""
        chosen = self.options.layers
        if "mixed" in chosen:
            chosen = [self.random.choice(COMPRESSIONS), self.random.choice(ENCRYPTIONS)]
        compression = next((word for word in chosen if word in COMPRESSIONS), "none")
        encryption = next((word for word in chosen if word in KEYS), "none")
        settings = {"pg_audit_queue.log_compression": compression,
                    "pg_audit_queue.log_encryption": encryption}
        if encryption != "none":
            file = os.path.join(self.folder, KEYS[encryption])
            settings["pg_audit_queue.log_encryption_key_command"] = f"cat '{file}'"
        return settings

    def _verify(self, until=None):
        """The seals of a server that was stopped, or of one that has sealed its trail
        since that time."""
        if self._sealed():
            verify(self.options.bindir, self.folder, until, self.findings)

    # -- clients --------------------------------------------------------------

    def _lengths(self):
        """Ranges of long texts, and how often each is chosen: some larger than
        a slot of the queue file, some larger than what is put into the largest
        queue as a whole."""
        return {(1000, 8000): 10, (8000, 30000): 4, (260000, 400000): 0.2}

    def _start_clients(self):
        for number in range(1, self.options.clients + 1):
            pid = os.fork()
            if pid == 0:
                code = 2
                try:
                    die_with_parent(signal.SIGKILL)
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
                    client = Client(number, self.options.seed, self.server.socket,
                                    os.path.join(self.acknowledged_folder, str(number)),
                                    self._lengths())
                    code = client.run()
                except BaseException as error:
                    print(f"client {number}: {error!r}", file=sys.stderr, flush=True)
                finally:
                    os._exit(code)
            self.clients[pid] = number

    def _client_ended(self):
        for pid, number in list(self.clients.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done != 0:
                del self.clients[pid]
                yield number, os.waitstatus_to_exitcode(status)

    def _stop_clients(self):
        for pid in self.clients:
            kill(pid, signal.SIGTERM)
        end = time.monotonic() + LIMIT
        while self.clients and time.monotonic() < end:
            for number, code in self._client_ended():
                if code != 0:
                    self.findings.add(f"client {number} has ended with {code}")
            time.sleep(0.01)
        for pid, number in self.clients.items():
            self.findings.add(f"client {number} waits for ever")
            kill(pid, signal.SIGKILL)

    # -- a round ----------------------------------------------------------------

    def _settings(self):
        """For one start."""
        size = self.options.queue_size
        if size == "mixed":
            size = self.random.choice(QUEUE_SIZES)
        return {
            "pg_audit_queue.queue_size": size,
            "pg_audit_queue.flush_interval":
                self.random.choice(("1ms", "10ms", "100ms", "1s", "1h")),
            "pg_audit_queue.flush_threshold": self.random.choice(("1", "20", "50", "80")),
            "pg_audit_queue.commit_wal": self.random.choice(("on", "on", "off")),
            # with little, there are many sentinels in WAL
            "max_slot_wal_keep_size": self.random.choice(("32MB", "-1")),
            # makes a commit long: between its record in WAL and its end
            "fsync": self.random.choice(("on", "off")),
            **self._layers(),
        }

    def _one_round(self):
        what = []
        while self.server.has_ended():
            self.server.start(self._settings())
            if self.random.random() < KILLED_AGAIN:
                time.sleep(self.random.uniform(0, 0.1))
                again = self.random.choice(("postmaster", "all"))
                if not self.server.has_ended():
                    self._kill(again)
                    what.append(f"again {again}")
        connection = self.server.connect()
        if self.random.random() < CHECKED:
            connection = self._check_running(connection)
        if self.random.random() < ROTATED:
            self._try(connection, "SELECT audit_rotate()")
        connection.close()
        time.sleep(self.random.uniform(0.05, self.options.load))
        if self.random.random() < STALLED:
            self._stall()
        kind = self.random.choices(list(self.weights), list(self.weights.values()))[0]
        if self.stalled:
            what.append("full queue")
        self._kill(kind)
        what.append(kind)
        self._go_on()
        if self.server.pid and kind in CRASHES and self.random.random() < KILLED_AGAIN:
            time.sleep(self.random.uniform(0, 0.1))
            again = self.random.choice(("postmaster", "all", "worker"))
            self._kill(again)
            what.append(f"again {again}")
        return ", ".join(what)

    def _stall(self):
        """Stop the worker and let the clients go on."""
        self.stalled = self.server.named("postgres: pg_audit_queue worker")
        for pid in self.stalled:
            kill(pid, signal.SIGSTOP)
            time.sleep(self.random.uniform(0, 0.2))

    def _go_on(self):
        """Stopped, the worker would not notice that others are gone."""
        for pid in self.stalled:
            kill(pid, signal.SIGCONT)
        self.stalled = []

    def _try(self, connection, sql):
        """The first column of the first row, None if the connection is lost."""
        rows = []
        try:
            state = connection.simple(sql, row=rows.append)
        except ConnectionLost:
            return None
        if state is not None:
            raise Failure(f"{sql}: {state}")
        return rows[0]

    def _kill(self, kind):
        server = self.server
        self.kills[kind] += 1
        if kind == "postmaster":
            server.kill_postmaster()
        elif kind == "all":
            server.kill_all()
        elif kind == "immediate":
            self._stop(signal.SIGQUIT)
        elif kind == "fast":
            self._stop(signal.SIGINT)
        elif kind in FAULTS:
            self._fault(kind)
        else:
            pids = server.named(*VICTIMS[kind])
            if pids:
                kill(self.random.choice(pids), signal.SIGTERM
                     if kind in ("worker-term", "loader-term", "terminate")
                     else signal.SIGKILL)
            else:
                self.kills[kind] -= 1
                self.kills["nothing"] += 1

    def _fault(self, kind):
        """Have a fault point act for some time."""
        path = os.path.join(self.server.data, "pg_audit_queue.fault")
        if kind == "failing":
            text = self.random.choice(FAILURES)
        else:
            points = (POINTS + (LOADER_POINTS if self.options.table else ())
                      + (SEAL_POINTS if self._sealed() else ()))
            text = self.random.choice(points) + (" kill" if kind == "point" else " stop")
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(text + "\n")
        os.rename(path + ".new", path)
        time.sleep(self.random.uniform(0.01, 0.2))
        if kind == "stopped":
            self._kill("all")
        os.unlink(path)
        # for those who have just read it; one of them may be the postmaster
        time.sleep(0.02)

    def _stop(self, signum):
        seconds = self.server.stop(signum, self.stalled)
        if seconds > SLOW_STOP:
            self.findings.add(f"a stop by signal {signum} took {seconds:.1f} s")

    def _look_around(self):
        """What can be checked whether the server runs or not."""
        reap(self.server.pid)
        for number, code in self._client_ended():
            self.findings.add(f"client {number} has ended with {code}")
        check_log(self.server.new_log(), self.findings)
        for name in os.listdir(os.path.join(self.server.data, "pg_audit_queue")):
            if name.startswith("queue.bad"):
                self.findings.add(f"{name} has been set aside")

    # -- looking at the trail -------------------------------------------------------

    def _check_running(self, connection):
        """Compare the trail with what clients have been told, while they go
        on.  Returns a connection, another one if that was lost."""
        told = list(self.acknowledged.new())
        end = time.monotonic() + LIMIT
        row = None
        while row is None:
            row = self._try(connection, "SELECT audit_flush(), dropped_full + dropped_memory,"
                                        f" {UTC}, {'audit_seal()' if self._sealed() else 'NULL'}"
                                        " FROM audit_queue_stats")
            if row is None:
                if time.monotonic() > end:
                    raise Failure("audit_flush() does not come to an end")
                connection = self.server.connect()
        # but what ends while the queue is full cannot wait for space
        if row[1] != "0":
            self.findings.add(f"{row[1]} records were dropped")
        if self.options.format == "json":
            self.trail.read(int(row[0]))
            for one in told:
                self.trail.check_acknowledged(*one)
        else:
            # only a sequence tells how far to read while the worker writes
            self.told += told
        self._verify(until=row[2])
        self.checks += 1
        if not self.options.keep and not self._sealed():
            self.trail.remove_read(KEPT_FILES)
        return connection

    def _end(self):
        """Clean stop, start, clean stop; now nothing may be missing or left over."""
        if self.server.has_ended():
            self.server.start(self._settings())
        self.server.connect().close()
        self._stop_clients()
        for _ in range(2):
            if self.server.pid is None:
                self.server.start(self._settings())
            connection = self._check_running(self.server.connect())
            rows = []
            connection.simple("SELECT token FROM torture", row=rows.append)
            connection.quit()
            self._stop(signal.SIGINT)
        if self.options.table:
            # What was recorded at the end is loaded at the next beginning.
            self.server.start(self._settings())
            self.trail.read()
            self._stop(signal.SIGINT)
        else:
            self.trail.read()
        for one in self.told:
            self.trail.check_acknowledged(*one)
        with open(os.path.join(self.folder, "rows"), "w", encoding="ascii") as file:
            for token, in rows:
                file.write(token + "\n")
                self.trail.check_row(token)
        self._verify()
        self._look_around()
        check_queue(os.path.join(self.server.data, "pg_audit_queue"), self.findings)


def summary(torture, seconds):
    options = torture.options
    kinds = [*KILLS, *LOADER_KILLS, *FAULTS, "nothing"]
    kills = " ".join(f"{kind} {torture.kills[kind]}" for kind in kinds
                     if torture.kills[kind])
    unnoticed = f"unnoticed deaths {torture.trail.unnoticed}, " if options.faults else ""
    sink = "table, " if options.table else ""
    layers = "layers " + "+".join(options.layers) + ", " if options.layers else ""
    return (f"seed {options.seed}, {sink}{layers}mode {options.mode}, queue {options.queue_size}, "
            f"rounds {torture.round}, {seconds:.0f} s; kills: {kills}; "
            f"acknowledged {torture.acknowledged.count}, records {torture.trail.records}, "
            f"interrupted {torture.trail.interrupted}, drops {torture.trail.gaps}, {unnoticed}"
            f"sessions {len(torture.trail.sessions)}, "
            f"files {torture.trail.count_files()}, checks {torture.checks}, "
            f"lock waiters left {torture.server.lock_waiters}, "
            f"half stops {torture.server.half_stops}; "
            f"wrong: {torture.findings.count}")


def parse_options():
    parser = argparse.ArgumentParser(prog="torture", allow_abbrev=False)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--mode", choices=MODES + ("mixed",), default="mixed")
    parser.add_argument("--queue-size", default="mixed")
    parser.add_argument("--format", choices=("json", "pgaudit"), default="json")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--layers", type=lambda words: words.split(","), default=[])
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--fsync", choices=("on", "off"), default="on")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seed", type=int)
    parser.add_argument("--faults", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--folder")
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--verbose", action="store_true")
    parser.add_argument("--check")
    parser.add_argument("--bindir")
    options = parser.parse_args()
    known = {*COMPRESSIONS, *ENCRYPTIONS, "seal", "mixed"}
    if not known.issuperset(options.layers):
        parser.error(f"layers are {', '.join(sorted(known))}")
    if options.seed is None:
        options.seed = random.SystemRandom().randrange(1, 10**6)
    return options


def show(findings):
    for text in findings.texts:
        print("  " + text)
    if findings.count > len(findings.texts):
        print(f"  ... {findings.count} in all")


def check(options):
    findings = Findings()
    trail, acknowledged = check_folder(options.check, options.format, findings)
    show(findings)
    print(f"acknowledged {acknowledged.count}, records {trail.records}, "
          f"wrong: {findings.count}")
    return 1 if findings.count else 0


def torture(options):
    if options.folder:
        folder = os.path.abspath(options.folder)
        os.mkdir(folder, 0o700)
    else:
        folder = tempfile.mkdtemp(prefix="paq_torture.")
    # names of sockets must be short
    socket_folder = tempfile.mkdtemp(prefix="paq.")
    adopt_orphans()
    run = Torture(options, folder, socket_folder)
    begin = time.monotonic()
    print(f"seed {options.seed}", flush=True)
    keep, ended = True, False
    try:
        run.run()
        keep = options.keep or run.findings.count > 0
    except (Failure, ServerSilent, ConnectionLost) as error:
        run.findings.add(str(error))
    except KeyboardInterrupt:
        print("Ended by a signal")
        keep, ended = options.keep, True
    except Exception:
        run.findings.add(traceback.format_exc())
    finally:
        for pid in run.clients:
            kill(pid, signal.SIGKILL)
        run.server.destroy()
        shutil.rmtree(socket_folder, ignore_errors=True)
        if run.findings.count:
            print(f"Wrong in round {run.round}:")
            show(run.findings)
        print(summary(run, time.monotonic() - begin), flush=True)
        if keep:
            print(f"The files are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return 1 if run.findings.count or ended else 0


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.default_int_handler)
    options = parse_options()
    return check(options) if options.check else torture(options)


if __name__ == "__main__":
    sys.exit(main())
