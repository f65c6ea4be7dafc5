# cluster.py
#   The cluster in which everything is measured, and its server.
#
# One cluster serves all configurations.  For each run its server is started
# with the settings of one configuration, on an empty queue and an empty trail,
# with pgbench's tables vacuumed and in memory, right after a checkpoint.  There
# is no checkpoint and no autovacuum in a run.
#
# The server is a child of this process and ends when this process does.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import random
import shutil
import signal
import subprocess
import time

from processes import adopted, children_of, die_with_parent, kill
from proto import Connection, ConnectionLost

# Longest time that anything may take, in seconds
LIMIT = 120

# pgbench's tables are in the one, which also tells its records from others;
# our extension, and its table, in the other.
BENCH_DB = "bench"
AUDIT_DB = "audit"
EMPTY_AUDIT_DB = "audit_empty"

# Up to which record the table has them
LOADED = "SELECT coalesce(max(sequence), 0) FROM audit_queue.load_state"

# A role that leaves no records whatever is loaded
QUIET = "quiet"

# What is needed to tell records in a server log apart
LINE_PREFIX = "%m [%p] %q%u@%d %l "

SETTINGS = {
    "listen_addresses": "",
    "shared_buffers": "1GB",
    "min_wal_size": "1GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "autovacuum": "off",
    "max_connections": "160",
    "log_line_prefix": LINE_PREFIX,
}

class Failure(Exception):
    """Something does not do what it has to do."""


def lsn(position):
    """A place in WAL, in bytes, as PostgreSQL writes it."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def quoted(value):
    return "'" + str(value).replace("'", "''") + "'"


def _settings_text(settings):
    return "".join(f"{name} = {quoted(value)}\n" for name, value in settings.items())


class Cluster:
    """The cluster, its server while there is one, and a session to look at it."""

    def __init__(self, bindir, folder, socket_folder):
        self.bindir = bindir
        self.folder = folder
        self.data = os.path.join(folder, "data")
        self.log = os.path.join(folder, "server.log")
        self.seal_key = os.path.join(folder, "seal.key")    # to verify the trail with
        self.socket_folder = socket_folder
        self.process = None
        self.session = None

    @property
    def pid(self):
        return self.process.pid

    def program(self, name):
        return os.path.join(self.bindir, name)

    # -- making it ------------------------------------------------------------

    def make(self, scale):
        """initdb, databases, and pgbench's tables."""
        self._run([self.program("initdb"), "-D", self.data, "--auth=trust",
                   "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C"])
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as file:
            file.write(_settings_text(
                {**SETTINGS, "unix_socket_directories": self.socket_folder}))
            file.write("include 'run.conf'\n")
        self._configure({"shared_preload_libraries": "pg_audit_queue"})
        self._start("postgres", "postgres")
        for sql in (f"CREATE ROLE {QUIET} SUPERUSER LOGIN",
                    f"ALTER ROLE {QUIET} SET log_statement = 'none'",
                    f"ALTER ROLE {QUIET} SET pgaudit.log = 'none'",
                    f"ALTER ROLE {QUIET} SET pg_audit_queue.log = 'none'",
                    f"CREATE DATABASE {BENCH_DB}",
                    f"CREATE DATABASE {EMPTY_AUDIT_DB}"):
            self.query(sql)
        self.rows(EMPTY_AUDIT_DB, "CREATE EXTENSION pg_audit_queue")
        self._run([self.program("pgbench"), "-i", "-q", "-s", str(scale), BENCH_DB])
        self.rows(BENCH_DB, "CREATE TABLE crashed (client int, number int)")
        self.stop()

    def environment(self):
        # of a server whose libraries are found by it, see scripts/lib.sh
        libraries = {name: value for name, value in os.environ.items()
                     if name == "LD_LIBRARY_PATH"}
        return {**libraries, "PATH": self.bindir + ":" + os.environ.get("PATH", ""), "LC_ALL": "C",
                "HOME": self.folder, "PGHOST": self.socket_folder, "PGPORT": "5432",
                "PGUSER": "postgres", "PGAPPNAME": "pgbench"}

    def _run(self, command, **more):
        done = subprocess.run(command, env=self.environment(), stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, check=False, **more)
        if done.returncode != 0:
            raise Failure(f"{command[0]} failed: " + done.stdout.decode(errors="replace")[-2000:])
        return done.stdout.decode(errors="replace")

    def rows(self, database, *statements):
        """Run statements in a session of its own; returns all their rows."""
        session = Connection(self._socket(), QUIET, database)
        rows = []
        for sql in statements:
            self._run_sql(session, sql, rows)
        session.quit()
        return rows

    def _run_sql(self, session, sql, rows):
        state = session.simple(sql, row=rows.append)
        if state is not None:
            raise Failure(f"{sql}: SQLSTATE {state}; see {self.log}")

    # -- a run ------------------------------------------------------------------

    def start(self, settings, table=False):
        """Start the server with these settings, its trail and its queue empty.
        table: it writes to a table of the database of our extension."""
        self._prepare(settings, table)
        self._start(QUIET, AUDIT_DB)
        # Only a scan by index brings a large table into shared_buffers.
        self.rows(BENCH_DB, "TRUNCATE pgbench_history, crashed",
                  "VACUUM pgbench_branches, pgbench_tellers, pgbench_accounts",
                  "SET enable_seqscan = off", "SET enable_bitmapscan = off",
                  "SELECT sum(abalance) FROM pgbench_accounts WHERE aid > 0",
                  "CHECKPOINT")
        self.wait_for_clients()

    def start_under(self, program, settings):
        """Start it with these settings, its trail and its queue empty, as what the
        program runs, which is given as its first words.  Nothing is read ahead."""
        self._prepare(settings, table=False)
        self._start(QUIET, AUDIT_DB, program)

    def _prepare(self, settings, table):
        for name in ("log", "audit", "pg_audit_queue"):
            shutil.rmtree(os.path.join(self.data, name), ignore_errors=True)
        self._configure({"shared_preload_libraries": ""})
        if table or not getattr(self, "has_audit", False):
            self._renew_audit_db()
        if settings.get("pg_audit_queue.seal") == "on":
            self._make_seal_key()
        self._configure(settings)

    def _make_seal_key(self):
        """A new sealing key, as the last one went with the queue."""
        key = self._run([self.program("pg_audit_trail"), "keygen", "-D", self.data])
        with open(self.seal_key, "w", encoding="ascii") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(key)

    def start_again(self):
        """Start it with the same settings, on what is there: after a crash."""
        self._start(QUIET, AUDIT_DB)

    def _renew_audit_db(self):
        """The database of our extension as CREATE EXTENSION leaves it."""
        statements = f"DROP DATABASE IF EXISTS {AUDIT_DB};\n" \
                     f"CREATE DATABASE {AUDIT_DB} TEMPLATE {EMPTY_AUDIT_DB};\n"
        self._run([self.program("postgres"), "--single", "-D", self.data, "postgres"],
                  input=statements.encode())
        self.has_audit = True

    def _configure(self, settings):
        with open(os.path.join(self.data, "run.conf"), "w", encoding="utf-8") as file:
            file.write(_settings_text(settings))

    def _socket(self):
        return os.path.join(self.socket_folder, ".s.PGSQL.5432")

    def _start(self, user, database, under=()):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [*under, self.program("postgres"), "-D", self.data], stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, env=self.environment(), start_new_session=True,
                preexec_fn=lambda: die_with_parent(signal.SIGQUIT))
        end = time.monotonic() + LIMIT
        while True:
            if self.process.poll() is not None:
                raise Failure("the server did not start:\n" + self._log_end())
            try:
                self.session = Connection(self._socket(), user, database)
                return
            except ConnectionLost as error:
                if time.monotonic() > end:
                    raise Failure(f"nobody can log in: {error}\n" + self._log_end()) from error
            time.sleep(0.02)

    def _log_end(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-20:])

    def query(self, sql):
        """Rows that a query returns, as lists of texts."""
        rows = []
        self._run_sql(self.session, sql, rows)
        return rows

    def message_bytes(self, begin, end):
        """How many bytes of WAL between the two places are records of logical messages,
        which nobody but pg_audit_queue makes here."""
        done = subprocess.run(
            [self.program("pg_waldump"), "--path", os.path.join(self.data, "pg_wal"), "--stats",
             "--rmgr", "LogicalMessage", "--start", lsn(begin), "--end", lsn(end)],
            env=self.environment(), stdout=subprocess.PIPE, check=True, text=True)
        row = next(line.split() for line in done.stdout.splitlines()
                   if line.startswith("LogicalMessage"))
        # name, count and its share, size and its share
        return int(row[3])

    def flush(self, table):
        """Wait until our trail has everything: audit_flush() does not wait for a
        table that does not keep up, or whose loader has just been started."""
        sequence = int(self.query("SELECT audit_flush()")[0][0])
        end = time.monotonic() + LIMIT
        while table and int(self.query(LOADED)[0][0]) < sequence:
            if time.monotonic() > end:
                raise Failure(f"the table does not get record {sequence}; see {self.log}")
            time.sleep(0.005)

    def children(self):
        return children_of(self.pid)

    def wait_for_clients(self):
        """Wait until no session but ours is left.  A process that has just been
        forked has no title of its own yet."""
        end = time.monotonic() + LIMIT
        while any("[local]" in title or not title.startswith("postgres: ")
                  for pid, title in self.children().items() if pid != self.session.backend):
            if time.monotonic() > end:
                raise Failure("there are sessions that do not end")
            time.sleep(0.005)

    # -- ending -----------------------------------------------------------------

    def stop(self):
        if self.process is None:
            return
        if self.session is not None:
            self.session.quit()
            self.session = None
        kill(self.pid, signal.SIGINT)
        try:
            self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise Failure("the server does not stop") from None
        self.process = None

    def kill_all(self):
        """kill -9 of all processes, in random order."""
        pids = list(self.children()) + [self.pid]
        random.shuffle(pids)
        for pid in pids:
            kill(pid, signal.SIGKILL)
        self.process.wait()
        self.session.close()
        self.session = None
        self._end_orphans()
        self.process = None

    def _end_orphans(self):
        """Processes of the server that are left without postmaster are ours now."""
        end = time.monotonic() + LIMIT
        while True:
            left = adopted(self.process and self.pid)
            if not left:
                return
            for pid, _ in left:
                kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if time.monotonic() > end:
                raise Failure("processes of the server do not end")

    def destroy(self):
        """End whatever is left."""
        if self.process is not None and self.process.poll() is None:
            kill(self.pid, signal.SIGQUIT)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                kill(self.pid, signal.SIGKILL)
                self.process.wait()
        self._end_orphans()
        self.process = None
        self.session = None
