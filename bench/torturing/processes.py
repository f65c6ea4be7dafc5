# processes.py
#   Processes and their parents on Linux.  Used by bench/measuring, too.
#
# Copyright (c) 2026, pg_audit_queue contributors

import ctypes
import os

# From linux/prctl.h
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36

libc = ctypes.CDLL(None, use_errno=True)


def adopt_orphans():
    """Become the parent of processes whose own parents die."""
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def die_with_parent(signum):
    """To be called in a child."""
    libc.prctl(PR_SET_PDEATHSIG, signum, 0, 0, 0)


def kill(pid, signum):
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        pass


def _children(parent):
    """Process id, name of the program and state of each child of a process."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
                before, _, after = file.read().rpartition(")")
        except OSError:
            continue
        state, ppid = after.split()[:2]
        if int(ppid) == parent:
            yield int(pid), before.partition("(")[2], state


def children_of(parent):
    """Process ids and titles of the children of a process that have not ended."""
    children = {}
    for pid, _, state in _children(parent):
        try:
            if state != "Z":
                with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
                    children[pid] = file.read().rstrip("\0")
        except OSError:
            pass
    return children


def adopted(postmaster):
    """Process ids and states of the servers' processes that are our own children now,
    ended ones included, but not the postmaster, whose process id may be None."""
    return [(pid, state) for pid, name, state in _children(os.getpid())
            if name == "postgres" and pid != postmaster]
