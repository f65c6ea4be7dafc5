# machine.py
#   A description of the machine, without which no figure means anything.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import platform
import re
import statistics
import subprocess
import time

# fsync is tried that often
SYNCS = 200

PACKAGES = ("postgresql-{major}", "postgresql-{major}-pgaudit",
            "postgresql-{major}-pgauditlogtofile", "gnuplot-nox", "valgrind")

MEMORY_FILE_SYSTEMS = ("tmpfs", "ramfs")


def output_of(*command):
    """What a program prints; None if it cannot be run or fails."""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=False)
    except OSError:
        return None
    return done.stdout.decode(errors="replace").strip() if done.returncode == 0 else None


def _first(path, pattern):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            found = re.search(pattern, file.read(), re.MULTILINE)
    except OSError:
        return None
    return found.group(1) if found else None


def _packages(major):
    versions = {}
    for name in PACKAGES:
        name = name.format(major=major)
        versions[name] = output_of("dpkg-query", "-W", "-f", "${Version}", name) or None
    return versions


def _fdatasync(folder):
    """Microseconds that it takes to have 8 kB appended and on disk."""
    path = os.path.join(folder, "fdatasync")
    times = []
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for _ in range(SYNCS):
            begin = time.perf_counter()
            os.write(file, b"x" * 8192)
            os.fdatasync(file)
            times.append((time.perf_counter() - begin) * 1e6)
    finally:
        os.close(file)
        os.unlink(path)
    return {"median": round(statistics.median(times), 1), "max": round(max(times), 1)}


def describe(bindir, folder):
    version = output_of(os.path.join(bindir, "postgres"), "-V") or "unknown"
    memory = _first("/proc/meminfo", r"^MemTotal:\s*(\d+)")
    where = (output_of("df", "--output=fstype,source,target", folder) or "").splitlines()
    file_system, device, mount = (where[-1].split() + [None] * 3)[:3] if where else [None] * 3
    return {
        "cpu": _first("/proc/cpuinfo", r"^model name\s*: (.*)") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(int(memory) / 2**20, 1) if memory else None,
        "kernel": platform.system() + " " + platform.release(),
        "system": _first("/etc/os-release", r'^PRETTY_NAME="?([^"\n]*)'),
        "file_system": file_system,
        "device": device,
        "mount": mount,
        "fdatasync_8kb_us": _fdatasync(folder),
        "load_average_before": [round(load, 2) for load in os.getloadavg()],
        "postgresql": version.replace("postgres (PostgreSQL) ", "PostgreSQL "),
        "packages": _packages((re.search(r"(\d+)", version) or ["0"])[0]),
        "python": platform.python_version(),
    }


def lines(result):
    """The description, for people."""
    machine = result["machine"]
    sync = machine["fdatasync_8kb_us"]
    texts = [
        ("CPU", f"{machine['cpu']}, {machine['cores']} in use"),
        ("memory", f"{machine['memory_gb']} GB"),
        ("system", f"{machine['system']}, {machine['kernel']}"),
        ("file system", f"{machine['file_system']} on {machine['device']}; fdatasync of 8 kB: "
                        f"median {sync['median']} us, longest of {SYNCS} {sync['max']} us"),
        ("server", machine["postgresql"]),
        ("packages", ", ".join(f"{name} {version}" for name, version
                               in machine["packages"].items() if version) or "unknown"),
        ("commit", result["commit"] or "unknown"),
        ("busy before", "load averages " + ", ".join(map(str, machine["load_average_before"]))),
    ]
    if machine["file_system"] in MEMORY_FILE_SYSTEMS:
        texts.append(("note", "the files were in memory, where fsync costs nothing: "
                              "set TMPDIR to a folder on a disk"))
    return texts


def caption(result):
    """One line for a picture."""
    machine = result["machine"]
    cpu = re.sub(r"\((R|TM)\)|\bProcessor\b", "", machine["cpu"])
    return (f"{' '.join(cpu.split())}, {machine['cores']} cores, {machine['memory_gb']} GB, "
            f"{machine['file_system']}, {machine['postgresql'].split(' (')[0]}, "
            f"commit {result['commit'] or 'unknown'}")
