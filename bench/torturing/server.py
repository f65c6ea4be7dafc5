# server.py
#   A cluster of the torture test, and ways to make its server end.
#
# When the postmaster is gone, all processes of the server become children of
# this process, so that none is lost sight of.  When this process dies in any
# way, the postmaster is told to end.  Both are features of Linux.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import signal
import subprocess
import time

from check import LINE_PREFIX
from processes import adopted, children_of, die_with_parent, kill
from proto import Connection, ConnectionLost

# Longest time that anything may take, in seconds
LIMIT = 90

# Before it is looked what processes do that are left, in seconds
PATIENCE = 5

# Who ends before the checkpointer does, at a stop
BEFORE_CHECKPOINTER = (
    "postgres: startup", "postgres: background writer", "postgres: walwriter",
    "postgres: pg_audit_queue")

# What a server says that is started while processes of the one before are there,
# or while an empty lock file is that it has left
TOO_EARLY = ("pre-existing shared memory block", "could not lock", "is in use by another server",
             'lock file "postmaster.pid" already exists',
             'lock file "postmaster.pid" is empty', '.s.PGSQL.5432.lock" is empty')

class Failure(Exception):
    """The server does not do what it has to do."""


class Server:
    """The cluster and the postmaster that runs in it."""

    def __init__(self, bindir, folder, socket_folder):
        self.bindir = bindir
        self.folder = folder
        self.data = os.path.join(folder, "data")
        self.trail = os.path.join(folder, "audit")
        self.log = os.path.join(folder, "server.log")
        self.socket_folder = socket_folder
        self.socket = os.path.join(socket_folder, ".s.PGSQL.5432")
        self.pid = None
        self.settings = {}
        self.log_read = 0
        self.lock_waiters = 0
        self.half_stops = 0

    def make(self, settings, extra):
        """initdb; settings are pg_audit_queue's, extra is text for postgresql.conf."""
        done = subprocess.run(
            [os.path.join(self.bindir, "initdb"), "-D", self.data, "--auth=trust",
             "--username=postgres", "--no-sync", "--encoding=UTF8", "--locale=C"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise Failure("initdb failed: " + done.stdout.decode())
        lines = [
            "listen_addresses = ''",
            f"unix_socket_directories = '{self.socket_folder}'",
            "shared_preload_libraries = 'pg_audit_queue'",
            "restart_after_crash = on",
            "max_connections = 20",
            "max_wal_senders = 0",
            "max_worker_processes = 3",
            "shared_buffers = 16MB",
            "autovacuum = off",
            "log_line_prefix = '%m [%p] '",
            "log_error_verbosity = terse",
            "log_min_error_statement = panic",
        ]
        settings = {
            "log": "all", "log_parameter": "on", "log_directory": self.trail,
            "log_line_prefix": LINE_PREFIX, **settings}
        lines += [f"pg_audit_queue.{name} = '{value}'" for name, value in settings.items()]
        with open(os.path.join(self.data, "postgresql.conf"), "a", encoding="utf-8") as file:
            file.write("\n".join(lines + extra) + "\n")

    def make_sealing_key(self, file):
        """Its verification key goes to the file."""
        done = subprocess.run(
            [os.path.join(self.bindir, "pg_audit_trail"), "keygen", "-D", self.data],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        if done.returncode != 0:
            raise Failure("keygen failed: " + done.stdout.decode())
        with open(file, "wb") as key:
            os.fchmod(key.fileno(), 0o600)
            key.write(done.stdout)

    # -- starting -----------------------------------------------------------

    def start(self, settings):
        """Start a postmaster, without waiting for anything."""
        self.settings = settings
        words = [os.path.join(self.bindir, "postgres"), "-D", self.data]
        for name, value in settings.items():
            words += ["-c", f"{name}={value}"]
        self.log_start = os.path.getsize(self.log) if os.path.exists(self.log) else 0
        with open(self.log, "ab") as log, open(os.devnull, "rb") as null:
            pid = os.fork()
            if pid == 0:
                try:
                    # not in the terminal's process group, which ^C is sent to
                    os.setsid()
                    die_with_parent(signal.SIGQUIT)
                    os.dup2(null.fileno(), 0)
                    os.dup2(log.fileno(), 1)
                    os.dup2(log.fileno(), 2)
                    signal.pthread_sigmask(signal.SIG_SETMASK, ())
                    os.execv(words[0], words)
                finally:
                    os._exit(127)
        self.pid = pid

    def connect(self, user="quiet"):
        """A session as soon as there can be one, that of "quiet" leaves no records."""
        end = time.monotonic() + LIMIT
        patience = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.has_ended():
                # The last processes of the one before may still be there.
                log = self.log_since_start()
                self.remove_empty_lock_files()
                if not any(text in log for text in TOO_EARLY):
                    last = "".join(log.splitlines(keepends=True)[-20:])
                    raise Failure("the server has ended by itself:\n" + last)
                if time.monotonic() > patience:
                    self.kill_lock_waiters()
                self.start(self.settings)
            try:
                return Connection(self.socket, user)
            except ConnectionLost as error:
                last = error
                time.sleep(0.02)
        raise Failure(f"nobody can log in: {last}\nstill there:\n{self.left_over()}")

    def log_since_start(self):
        """Whole, as sessions of the server before can go on writing for a while."""
        with open(self.log, encoding="utf-8", errors="replace") as file:
            file.seek(self.log_start)
            return file.read()

    def new_log(self):
        """What has come into the log since the last call."""
        if not os.path.exists(self.log):
            return ""
        with open(self.log, "rb") as file:
            file.seek(self.log_read)
            text = file.read()
        text = text[:text.rfind(b"\n") + 1]
        self.log_read += len(text)
        return text.decode(errors="replace")

    # -- ending -------------------------------------------------------------

    def has_ended(self):
        if self.pid is None:
            return True
        if os.waitpid(self.pid, os.WNOHANG)[0] == 0:
            return False
        self.pid = None
        return True

    def children(self):
        return children_of(self.pid)

    def named(self, *beginnings):
        """Process ids of children, given how their titles begin."""
        return [pid for pid, title in self.children().items() if title.startswith(beginnings)]

    def wait_for_end(self):
        """Returns the time it took."""
        begin = time.monotonic()
        while not self.has_ended():
            if time.monotonic() > begin + LIMIT:
                raise Failure("the server does not stop")
            time.sleep(0.002)
        return time.monotonic() - begin

    def stop(self, signum, stopped=()):
        """SIGINT is a fast stop, SIGQUIT an immediate one.  Stopped children
        go on behind it.  Returns the time it took."""
        kill(self.pid, signum)
        for pid in stopped:
            kill(pid, signal.SIGCONT)
        begin = time.monotonic()
        while signum == signal.SIGINT and not self.has_ended():
            if time.monotonic() > begin + PATIENCE:
                self.end_half_stopped()
                break
            time.sleep(0.002)
        self.wait_for_end()
        return time.monotonic() - begin

    def end_half_stopped(self):
        """A fast stop that comes while PostgreSQL recovers from a crash can end
        all but the checkpointer, whom nobody tells then, and for whom the
        postmaster waits: a server without the extension does the same.  It takes
        an administrator to end it."""
        if self.named("postgres: checkpointer") and not self.named(*BEFORE_CHECKPOINTER):
            stop = self.log_since_start().rpartition("received fast shutdown request")[2]
            if "LOG:  shutting down" not in stop:
                kill(self.pid, signal.SIGQUIT)
                self.half_stops += 1

    def kill_postmaster(self):
        """The others notice and end by themselves."""
        kill(self.pid, signal.SIGKILL)
        self.wait_for_end()

    def kill_all(self):
        children = self.children()
        kill(self.pid, signal.SIGKILL)
        for pid in children:
            kill(pid, signal.SIGKILL)
        self.wait_for_end()
        # those that the postmaster had just started
        for pid in self.orphans():
            kill(pid, signal.SIGKILL)

    def orphans(self):
        """Processes of the server whose postmaster is dead."""
        return [pid for pid, title in children_of(os.getpid()).items()
                if pid != self.pid and (title.startswith("postgres") or self.data in title)]

    def remove_empty_lock_files(self):
        """A postmaster killed while it makes one of its lock files, that of the
        data directory or that of the socket, leaves it empty, which takes an
        administrator, too."""
        for path in (os.path.join(self.data, "postmaster.pid"), self.socket + ".lock"):
            if os.path.exists(path) and os.path.getsize(path) == 0:
                os.unlink(path)

    def kill_lock_waiters(self):
        """A process that waits for a lightweight lock of PostgreSQL's whose holder
        was killed, and then the postmaster, waits for ever: it sleeps on a
        semaphore and does not notice.  It takes an administrator to end it."""
        for pid in self.orphans():
            try:
                with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
                    waits = "futex" in file.read()
            except OSError:
                continue
            if waits:
                kill(pid, signal.SIGKILL)
                self.lock_waiters += 1

    def left_over(self):
        """What those processes do, as text."""
        lines = []
        for pid in self.orphans():
            words = [str(pid)]
            for name in ("cmdline", "wchan", "syscall", "stat"):
                try:
                    with open(f"/proc/{pid}/{name}", encoding="ascii", errors="replace") as file:
                        words.append(file.read().replace("\0", " ").strip())
                except OSError:
                    pass
            lines.append(" | ".join(words))
        return "\n".join(lines)

    def destroy(self):
        """End all that is left, as this process ends."""
        if not self.has_ended():
            kill(self.pid, signal.SIGQUIT)
        end = time.monotonic() + 10
        while True:
            self.has_ended()
            reap(self.pid)
            left = [pid for pid, title in children_of(os.getpid()).items()
                    if title.startswith("postgres") or self.data in title]
            if not left:
                return
            if time.monotonic() > end:
                for pid in left:
                    kill(pid, signal.SIGKILL)
            time.sleep(0.01)


def reap(postmaster):
    """Let go of orphans that have ended.  The postmaster is waited for elsewhere."""
    for pid, state in adopted(postmaster):
        if state == "Z":
            try:
                os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                pass
