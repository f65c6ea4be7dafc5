# kafka.py
#   A Kafka broker, run by scripts/kafka on this machine.
#
# One broker serves all runs.  What it keeps is limited, so that many runs need no more
# space than one: it removes the oldest records while it gets new ones.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import re
import subprocess

import cpu
from cluster import Failure

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts", "kafka")

# Of a topic.  A second for files that were removed: they are still there for a minute
# otherwise.
KEPT = ("segment.bytes=268435456", "retention.bytes=268435456", "file.delete.delay.ms=1000")
SETTINGS = ("log.retention.check.interval.ms=1000", "log.initial.task.delay.ms=1000")

# As brokers are run that have to be fast in the long run; scripts/kafka wants a fast start.
# Without the optimizing compiler Java uses no instructions of the CPU for AES.
JAVA = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", "-XX:+UseG1GC",
        # says what has been agreed on with each client, and nothing else
        "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.network.SslTransportLayer=debug")

HANDSHAKE = re.compile(r"SSL handshake completed .* protocol '([^']+)' cipherSuite '([^']+)'")


def absent():
    """Why there can be no broker; None if there can."""
    done = _run("check")
    return None if done.returncode == 0 else done.stderr.strip()


def _run(*arguments):
    return subprocess.run([SCRIPT, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", errors="replace", check=False)


class Broker:
    """The broker, in a folder of its own that is made for it."""

    def __init__(self, folder):
        self.folder = folder
        self.values = {}        # what clients need, as scripts/kafka names it
        self.log_read = 0       # characters of its log
        self.ends = {}          # of topics, after runs that went well

    def start(self):
        words = [word for each in SETTINGS for word in ("--set", each)]
        words += [word for each in JAVA for word in ("--java", each)]
        text = self._must("start", "--tls", *words)
        self.values = dict(line.split(" ", 1) for line in text.splitlines())

    def topic(self, name):
        """Make a topic with one partition, which has the order of the trail."""
        self._must("topic", name, "1", *KEPT)

    def end_of(self, topic):
        """How many records it has got, after a run."""
        text = self._must("tool", "GetOffsetShell", "--topic", topic, "--time", "latest")
        self.ends[topic] = sum(int(line.rpartition(":")[2]) for line in text.splitlines())
        return self.ends[topic]

    def end_before(self, topic):
        """The same, before a run.  Asking takes a second, and is done only if the run
        before that one did not come to its end."""
        end = self.ends.pop(topic, None)
        return self.end_of(topic) if end is None else end

    def cpu_s(self):
        return cpu.used_by_threads(int(self.values["pid"]))

    def cpus(self):
        """Those that it may use"""
        return sorted(os.sched_getaffinity(int(self.values["pid"])))

    def move(self, cpus):
        """From now on it uses these CPUs."""
        cpu.move(int(self.values["pid"]), cpus)

    def handshakes(self):
        """Protocol and cipher of each connection by TLS since the last call."""
        with open(self.values["log"], encoding="utf-8", errors="replace") as file:
            text = file.read()
        found = HANDSHAKE.findall(text, self.log_read)
        self.log_read = len(text)
        return [" ".join(each) for each in found]

    def destroy(self):
        """End it.  It is our child now, as scripts/kafka has ended."""
        if os.path.exists(os.path.join(self.folder, "kafka.pid")):
            _run("kill", self.folder)
        if "pid" in self.values:
            try:
                os.waitpid(int(self.values["pid"]), os.WNOHANG)
            except ChildProcessError:
                pass

    def _must(self, command, *arguments):
        done = _run(command, self.folder, *arguments)
        if done.returncode != 0:
            raise Failure(f"scripts/kafka {command} has failed: " + done.stderr.strip()[-1000:])
        return done.stdout
