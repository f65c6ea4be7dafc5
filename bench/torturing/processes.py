# processes.py
#   Processes and their parents, as Linux has them.  Used by bench/measuring, too.
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


def children_of(parent):
    """Process ids and titles of a process's children, those that have ended left out."""
    children = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="ascii", errors="replace") as file:
                state, ppid = file.read().rpartition(")")[2].split()[:2]
            if int(ppid) == parent and state != "Z":
                with open(f"/proc/{name}/cmdline", encoding="utf-8", errors="replace") as file:
                    children[int(name)] = file.read().rstrip("\0")
        except OSError:
            pass
    return children
