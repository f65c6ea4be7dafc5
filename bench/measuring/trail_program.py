# trail_program.py
#   pg_audit_trail, the program: takes layers off the trail's files, so that trail.py can
#   read them, verifies the trail, and is measured at both.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import resource
import secrets
import subprocess
import time
from collections import namedtuple

from cluster import Failure

# One run of it: CPU time of user and system, time, both in seconds
Run = namedtuple("Run", "cpu_s wall_s")


def path(cluster):
    return cluster.program("pg_audit_trail")


def absent(cluster):
    """Why it cannot be had; None if it can."""
    return None if os.path.exists(path(cluster)) else "pg_audit_trail is not installed"


# -- keys ---------------------------------------------------------------------------

def keys_file(cluster):
    """All keys of encrypted files"""
    return os.path.join(cluster.folder, "keys")


def key_command(cluster, bits):
    """A value for log_encryption_key_command: it prints a key of so many bits, which is
    the same in all runs."""
    file = os.path.join(cluster.folder, f"key.{bits}")
    if not os.path.exists(file):
        line = secrets.token_hex(bits // 8) + "\n"
        for each, text in ((file, line), (keys_file(cluster), line)):
            with open(each, "a", encoding="ascii", opener=private) as output:
                output.write(text)
    return f"cat '{file}'"


def private(file, flags):
    return os.open(file, flags, 0o600)


# -- reading ------------------------------------------------------------------------

def in_clear(cluster, files, layout, folder):
    """Copies of the trail's files in the folder, without layers."""
    copies = []
    for number, file in enumerate(files):
        copies.append(os.path.join(folder, f"clear.{number}"))
        with open(copies[-1], "wb") as output:
            _run(cluster, ["cat", "--format", layout, *keys_option(cluster), file], output)
    return copies


def keys_option(cluster):
    return ["-K", keys_file(cluster)] if os.path.exists(keys_file(cluster)) else []


def verify(cluster, folder):
    """Raises Failure if the trail is not complete and unaltered."""
    return measured(cluster, ["verify", "-k", cluster.seal_key, folder])


def first_line(cluster, file):
    """Of a file of the trail, in format json"""
    with open(os.path.join(cluster.folder, "first"), "w+b") as output:
        _run(cluster, ["cat", "--limit=1", *keys_option(cluster), file], output)
        output.seek(0)
        return output.read()


def measured(cluster, arguments):
    """Run it, its output to nowhere; returns how long that took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.monotonic()
    with open(os.devnull, "wb") as nowhere:
        _run(cluster, arguments, nowhere)
    wall = time.monotonic() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return Run(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall)


def _run(cluster, arguments, output=subprocess.PIPE):
    done = subprocess.run([path(cluster), *arguments], env=cluster.environment(), stdout=output,
                          stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, check=False)
    if done.returncode != 0:
        text = (done.stdout or b"") + done.stderr
        raise Failure(f"pg_audit_trail {arguments[0]} exits with {done.returncode}: "
                      + text.decode(errors="replace").strip()[-1000:])
