# cpu.py
#   CPU time of the server's processes, and what the kernel counts for all.
#
# Sessions have ended when pgbench ends.  The kernel adds the CPU time of each,
# from its start to its end, to the times that it keeps for the postmaster's
# children that have ended (cutime and cstime in /proc/PID/stat).  Their growth
# in a run is the CPU time of all sessions that ended in it, login included.  If
# any other process ends, there is no figure: our own session goes on, and the
# background processes must be the same before and after.  The kernel adds up
# nanoseconds and shows the sum in ticks, so the error is one tick a run (10
# ms), not one a session.
#
# The times of processes that stay are read from /proc/PID/schedstat, in
# nanoseconds.
#
# Copyright (c) 2026, pg_audit_queue contributors

import contextlib
import os

from config import WRITERS

TICKS = os.sysconf("SC_CLK_TCK")

# Not every kernel has it.
HAVE_SCHEDSTAT = os.path.exists("/proc/self/schedstat")


def _stat_times(pid):
    """utime, stime, cutime, cstime of a process, in seconds."""
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        words = file.read().rpartition(")")[2].split()
    return [int(word) / TICKS for word in words[11:15]]


def used_by(pid):
    """CPU time of a process with one thread."""
    if not HAVE_SCHEDSTAT:
        return sum(_stat_times(pid)[:2])
    with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
        return int(file.read().split()[0]) / 1e9


def used_by_threads(pid):
    """CPU time of a process with all its threads, those that have ended included."""
    return sum(_stat_times(pid)[:2])


def stolen():
    """CPU time that the machine below a virtual one has given to others."""
    with open("/proc/stat", encoding="ascii") as file:
        words = file.readline().split()
    return int(words[8]) / TICKS if len(words) > 8 else 0.0


def switches():
    """How often the machine's CPUs have turned to another process."""
    with open("/proc/stat", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("ctxt "))


def divided():
    """One of the CPUs that we may use, and the others; twice the same if there are no others."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others or [first])


@contextlib.contextmanager
def starting_on(cpus):
    """What is started meanwhile stays on these CPUs."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def move(pid, cpus):
    """From now on a process is on these CPUs, with all its threads and those that they start."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread), cpus)


class Times:
    """CPU times of the server's processes at one moment; no session but ours
    may be there."""

    def __init__(self, cluster):
        self.ended = sum(_stat_times(cluster.pid)[2:])
        self.running = {}
        for pid, title in list(cluster.children().items()) + [(cluster.pid, "postmaster")]:
            try:
                self.running[pid] = (title, used_by(pid))
            except OSError:
                pass            # it has just ended, which is noticed in since()

    def since(self, before):
        """What has been used since another moment, in seconds: "sessions", each
        of WRITERS that is there, "others".  None if background processes have
        ended in between."""
        if self.running.keys() != before.running.keys():
            return None
        used = {"sessions": self.ended - before.ended, "others": 0.0}
        for pid, (title, seconds) in self.running.items():
            name = next((name for start, name in WRITERS.items() if title.startswith(start)),
                        "others")
            used[name] = used.get(name, 0.0) + seconds - before.running[pid][1]
        return used
