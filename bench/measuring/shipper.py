# shipper.py
#   pg_audit_trail ship, the program, and the figures that it prints.
#
# Statistics are those of its option --stats, a line of JSON each second.
#
# Which cipher TLS uses is decided by OpenSSL's own configuration, in a file that the
# program's environment names: librdkafka has no property for those of TLS 1.3.
#
# Copyright (c) 2026, pg_audit_queue contributors

import json
import os
import signal
import subprocess
import threading
import time
from collections import namedtuple

import cpu
import trail_program
from cluster import LIMIT, Failure

OPENSSL_CONFIG = """openssl_conf = program
[program]
ssl_conf = ssl
[ssl]
system_default = all
[all]
MinProtocol = TLSv1.3
Ciphersuites = {cipher}
"""

# A line of statistics, and when it came: seconds since the epoch
Line = namedtuple("Line", "time figures")


def absent(cluster):
    """Why it cannot be had; None if it can."""
    reason = trail_program.absent(cluster)
    if reason:
        return reason
    properties = _write(cluster, "kafka.none", "topic = none\n")
    done = subprocess.run(
        [trail_program.path(cluster), "ship", "--consumer=none", "--kafka=" + properties,
         cluster.folder], env=cluster.environment(), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    return "pg_audit_trail was built without librdkafka" \
        if "has no librdkafka" in done.stderr else None


def _write(cluster, name, text):
    """A file that nobody else may read, as the program wants it"""
    path = os.path.join(cluster.folder, name)
    with open(path, "w", encoding="ascii", opener=trail_program.private) as file:
        file.write(text)
    return path


class Shipper:
    """The program, while it ships for a consumer.  cipher: of TLS 1.3; None: plain text.
    properties: of librdkafka, others than the program's.  cpus: that it may use; None: any."""

    def __init__(self, cluster, broker, folder, consumer, topic, cipher=None, properties=None,
                 once=False, cpus=None):
        listener = "ssl" if cipher else "plaintext"
        text = f"bootstrap.servers = {broker.values[listener]}\ntopic = {topic}\n"
        text += "".join(f"{name} = {value}\n" for name, value in (properties or {}).items())
        environment = cluster.environment()
        if cipher:
            text += f"security.protocol = ssl\nssl.ca.location = {broker.values['ca']}\n"
            environment["OPENSSL_CONF"] = _write(
                cluster, "openssl.conf", OPENSSL_CONFIG.format(cipher=cipher))
        self.lines = []
        self.log = os.path.join(cluster.folder, "ship.log")
        with open(self.log, "wb") as log, cpu.starting_on(cpus or os.sched_getaffinity(0)):
            self.process = subprocess.Popen(
                [trail_program.path(cluster), "ship", "--consumer=" + consumer,
                 "--kafka=" + _write(cluster, "kafka.conf", text), "--stats=1",
                 *(("--once",) if once else ()), folder],
                env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
        self.cpus = sorted(os.sched_getaffinity(self.process.pid))
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(Line(time.time(), json.loads(line)))
                self._changed.notify_all()

    def wait_for(self, sequence):
        """Wait until all up to that record are acknowledged; returns the line that says so.
        As long as it goes on, it may take its time."""
        end, last = time.monotonic() + LIMIT, -1
        with self._changed:
            while not self.lines or self.lines[-1].figures["sequence"] < sequence:
                if self.lines and self.lines[-1].figures["sequence"] > last:
                    end, last = time.monotonic() + LIMIT, self.lines[-1].figures["sequence"]
                if time.monotonic() > end or self.process.poll() is not None:
                    raise Failure(f"record {sequence} is not shipped: " + self._messages())
                self._changed.wait(1)
            return self.lines[-1]

    def finish(self):
        """Wait until it ends; returns its last statistics."""
        try:
            status = self.process.wait(LIMIT * 10)
        except subprocess.TimeoutExpired:
            self.kill()
            raise Failure("pg_audit_trail ship does not end") from None
        self._reader.join()
        if status != 0 or not self.lines:
            raise Failure(f"pg_audit_trail ship exits with {status}: " + self._messages())
        return self.lines[-1].figures

    def stop(self):
        """The same, having told it to"""
        self.process.send_signal(signal.SIGTERM)
        return self.finish()

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _messages(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read().strip()[-1000:] or "it says nothing"
