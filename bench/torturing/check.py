# check.py
#   Is a trail whole, and does it have what clients were told exactly once?
#
# Reads each byte of the trail once, in any number of steps, so that a test can
# look again and again at a trail that grows.
#
# Finds, in format json:
#
# - a line that is not a record, an incomplete last line
# - a sequence that does not begin with 1, jumps, or comes back
# - a record of type gap, unless it counts records that the full queue could not
#   take when a session ended; or, with fault points, is about a death that the
#   postmaster took no notice of
# - a session whose records are not numbered 1, 2, 3, ...
# - a statement with more records than it may have, or not in its client's order
# - a statement that was acknowledged, and has no record or one of another
#   outcome
# - a row in the table, acknowledged or not, whose statement has no record
# - a text that is not what was sent
#
# In format pgaudit there is no sequence.
#
# Copyright (c) 2026, pg_audit_queue contributors

import csv
import glob
import io
import json
import os
import re
import subprocess

from client import FAILURES, long_statement

TOKEN = re.compile(r"T(\d+)-(\d+)-(long-\d+|[a-z]+)")

# Prefix of lines in format pgaudit, and what it looks like
LINE_PREFIX = "%m [%p] %c %l %e "
PGAUDIT_LINE = re.compile(
    r"\S+ \S+ \S+ \[\d+\] (?P<session>[0-9a-f]+\.[0-9a-f]+) (?P<line>\d+) "
    r"(?P<state>\S*) LOG:  AUDIT: (?P<fields>.*)", re.DOTALL)

# What a statement of kind "nest" has records of beside its own
NEST = {"INSERT": 1, "EXECUTE": 2}

# In the queue's directory when nothing is left to be done
QUEUE_FILES = {"queue", "lock", "load", "pgsql_tmp.seal_key"}

# What a session wanted to record when it had to end and the queue was full: the
# server's own doing, not a crash's.  No statement that was acknowledged may be
# among them.
EXPLAINED_GAP = re.compile(r"because their session ended while the queue was full")

# A process that a fault point ended while the server was recovering from another
# crash: the postmaster takes no notice then, and nobody else knows the record.
UNNOTICED_GAP = re.compile(r"a process was killed while it was recording")

# Longer than any text
csv.field_size_limit(1 << 24)

# Texts of files with layers that are kept, as each is looked at several times
KEPT_TEXTS = 20

# Findings that are kept; the first ones tell enough.
MOST_FINDINGS = 50


# ERRCODE_ADMIN_SHUTDOWN
TERMINATED = "57P01"


class Findings:
    """What is wrong."""

    def __init__(self):
        self.texts = []
        self.count = 0

    def add(self, text):
        self.count += 1
        if self.count <= MOST_FINDINGS:
            self.texts.append(text)


class Numbers:
    """The statements of one client: how many records each has."""

    def __init__(self):
        self.counts = tuple(bytearray() for _ in range(len(NEST) + 1))
        self.states = {}        # other outcomes than success
        self.last = 0

    def add(self, number, part):
        counts = self.counts[part]
        if number >= len(counts):
            counts.extend(bytes(number + 1024 - len(counts)))
        counts[number] = min(counts[number] + 1, 255)
        return counts[number]

    def records_of(self, number, part=0):
        counts = self.counts[part]
        return counts[number] if number < len(counts) else 0


class Reader:
    """The text of trail files, by pg_audit_trail if they have layers."""

    def __init__(self, bindir, folder):
        self.program = os.path.join(bindir, "pg_audit_trail") if bindir else "pg_audit_trail"
        self.keys = os.path.join(folder, "keys")
        self.texts = {}         # name: size of the file, and its text; the last ones

    def open(self, name, layout, findings):
        if name.endswith((".json", ".log")):
            return open(name, "rb")
        size = os.path.getsize(name)
        if self.texts.get(name, (None,))[0] == size:
            return io.BytesIO(self.texts[name][1])
        done = subprocess.run([self.program, "cat", "-K", self.keys, "--format", layout, name],
                              capture_output=True, check=False)
        # the end of a file may not be all there yet; what it reads is checked anyway
        if done.returncode == 2 or b"damaged" in done.stderr:
            findings.add(f"{name}: {done.stderr.decode(errors='replace')}")
        self.texts.pop(name, None)
        self.texts[name] = (size, done.stdout)
        while len(self.texts) > KEPT_TEXTS:
            del self.texts[next(iter(self.texts))]
        return io.BytesIO(done.stdout)


class Trail:
    """The trail's files, read as one."""

    def __init__(self, folder, layout, findings, faults=False, reader=None):
        self.folder = folder
        self.reader = reader
        self.layout = layout
        self.findings = findings
        self.faults = faults
        self.files = {}         # name: bytes of text read; in the order of the trail
        self.sizes = {}         # name: size of a file that was read to its end
        self.heartbeats = 0
        self.removed = 0
        self.file = None        # the one being read
        self.sequence = 0       # of the last record
        self.sessions = {}      # id: line of the last record
        self.numbers = {}       # client: Numbers
        self.records = 0
        self.interrupted = 0
        self.gaps = 0
        self.unnoticed = 0

    # -- reading ----------------------------------------------------------

    def read(self, upto=None):
        """Up to the sequence, or to the end, which then has to be the trail's."""
        while upto is None or self.sequence < upto:
            if self.file is None and not self._next_file():
                break
            size = os.path.getsize(self.file)
            with self._open(self.file) as file:
                file.seek(self.files[self.file])
                done = self._read_file(file, upto)
            if done:
                return
            self.sizes[self.file] = size
            self.file = None
        if upto is not None and self.layout == "json" and self.sequence < upto:
            self.findings.add(f"the trail ends with sequence {self.sequence}, "
                              f"audit_flush() had said {upto}")

    def _open(self, name):
        return self.reader.open(name, self.layout, self.findings)

    def count_files(self):
        return len(self.files) + self.removed

    def remove_read(self, keep):
        """Remove files that have been read, but for the last."""
        for name in list(self.files)[:-keep]:
            os.remove(name)
            del self.files[name]
            self.removed += 1

    def _read_file(self, file, upto):
        """True if the sequence has been reached."""
        for line in file:
            if not line.endswith(b"\n"):
                self.findings.add(f"{self.file}: the last line is incomplete, "
                                  f"at byte {self.files[self.file]}: {line[:200]!r}")
                self.files[self.file] += len(line)
                return False
            self.files[self.file] += len(line)
            self._line(line)
            if upto is not None and self.sequence >= upto:
                return True
        return False

    def _next_file(self):
        """Go to the file that continues the trail.  False if there is none."""
        candidates = []
        for name in glob.glob(os.path.join(glob.escape(self.folder), "*")):
            read = self.files.get(name, 0)
            # neither the lock nor seals
            if (os.path.basename(name).startswith("pg_audit_queue.")
                    or os.path.getsize(name) <= self.sizes.get(name, 0)):
                continue
            first = self._first_sequence(name, read)
            if read > 0 and first[0] == self.sequence + 1:
                candidates = [(first, name)]
                break
            candidates.append((first, name))
        if not candidates:
            return False
        following = [entry for entry in candidates if entry[0][0] > self.sequence]
        self.file = min(following or candidates)[1]
        self.files.setdefault(self.file, 0)
        return True

    def _first_sequence(self, name, offset):
        """Where the unread part of a file belongs: its first sequence; the
        numbers in its name, if that has to decide."""
        with self._open(name) as file:
            file.seek(offset)
            line = file.readline()
        if self.layout != "json":
            # audit-DATE_TIME.log, audit-DATE_TIME.1.log, ...
            return self.sequence + 1, [int(n) for n in re.findall(r"\d+", os.path.basename(name))]
        match = re.search(rb'"sequence":\s*(\d+)', line)
        return (int(match[1]) if match else self.sequence + 1), []

    # -- a record ---------------------------------------------------------

    def _line(self, line):
        try:
            record = self._parse(line)
        except (ValueError, KeyError, TypeError) as error:
            self.findings.add(f"{self._place()}: not a record ({error}): {line[:200]!r}")
            return
        self.check_record(record)

    def check_record(self, record):
        self.records += 1
        self._check_sequence(record)
        if record["type"] == "heartbeat":
            self.heartbeats += 1
            return
        if record["type"] != "record":
            if EXPLAINED_GAP.search(record["errorMessage"] or ""):
                self.gaps += 1
            elif self.faults and UNNOTICED_GAP.search(record["errorMessage"] or ""):
                self.unnoticed += 1
            else:
                self.findings.add(f"{self._place()}: {record['type']}: "
                                  f"{record['errorMessage']}")
            return
        if record.get("interrupted"):
            self.interrupted += 1
        self._check_session(record)
        self._check_statement(record)

    def _place(self):
        return f"{os.path.basename(self.file)}, sequence {self.sequence}"

    def _parse(self, line):
        if self.layout == "json":
            record = json.loads(line)
            for name in ("type", "sequence", "sessionId", "sessionLine", "command",
                         "commandText", "paramList", "exitCode"):
                record[name]
            return record
        match = PGAUDIT_LINE.fullmatch(line.decode()[:-1])
        if match is None:
            raise ValueError("no such line")
        fields = next(csv.reader([match["fields"]]))
        return {
            "type": "gap" if fields[3] == "GAP" else "record",
            "sequence": self.sequence + 1,
            "sessionId": match["session"],
            "sessionLine": int(match["line"]) or None,
            "command": fields[4],
            "commandText": fields[7],
            "paramList": fields[8:9],
            "exitCode": match["state"],
            "errorMessage": fields[7],
            "interrupted": int(match["line"]) == 0,
        }

    def _check_sequence(self, record):
        sequence = record["sequence"]
        if sequence != self.sequence + 1:
            self.findings.add(f"{self._place()} is followed by sequence {sequence}")
        self.sequence = sequence

    def _check_session(self, record):
        session, line = record["sessionId"], record["sessionLine"]
        if line is None:
            # of a failed one the outcome may have been known
            if record["exitCode"] == "00000":
                self.findings.add(f"{self._place()}: no line of session {session}")
            return
        last = self.sessions.get(session, 0)
        if line != last + 1:
            self.findings.add(f"{self._place()}: session {session}: "
                              f"line {line} follows line {last}")
        self.sessions[session] = line

    def _check_statement(self, record):
        texts = [record["commandText"]] + (record["paramList"] or [])
        match = next(filter(None, (TOKEN.search(text) for text in texts if text)), None)
        if match is None:
            return
        number, kind = int(match[2]), match[3]
        numbers = self.numbers.setdefault(int(match[1]), Numbers())
        part = NEST.get(record["command"], 0) if kind == "nest" else 0
        count = numbers.add(number, part)
        # A session that was ended while it waited, before its commit, says so:
        # what the first record says is then taken back.  Its client must not
        # have been told that it was done, see check_acknowledged().
        taken_back = (count == 2 and record["exitCode"] == TERMINATED
                      and number not in numbers.states)
        if count > 1 and not taken_back:
            self.findings.add(f"{self._place()}: {match[0]} has another record")
        if part > 0:
            return
        if number < numbers.last:
            self.findings.add(f"{self._place()}: {match[0]} follows number {numbers.last}")
        numbers.last = number
        if record["exitCode"] != "00000":
            numbers.states[number] = record["exitCode"]
        if kind.startswith("long") and not record.get("cut"):
            if texts[0] != long_statement(match[0], int(kind[5:])):
                self.findings.add(f"{self._place()}: {match[0]} has another text")

    # -- what clients were told ---------------------------------------------

    def check_acknowledged(self, client, number, kind, state):
        """What a client was told about a statement."""
        numbers = self.numbers.setdefault(client, Numbers())
        name = f"T{client}-{number}-{kind}"
        expected = FAILURES.get(kind, "00000")
        if state != expected:
            self.findings.add(f"{name}: the client got {state}")
        if numbers.records_of(number) == 0:
            self.findings.add(f"{name} was acknowledged and has no record")
        elif numbers.states.get(number, "00000") != state:
            self.findings.add(f"{name} was acknowledged with {state}, its record "
                              f"has {numbers.states[number]}")
        for command, part in NEST.items():
            if kind == "nest" and numbers.records_of(number, part) == 0:
                self.findings.add(f"{name} was acknowledged and has no record of {command}")

    def check_row(self, token):
        """A row in the table was put there by a statement."""
        match = TOKEN.fullmatch(token)
        numbers = self.numbers.setdefault(int(match[1]), Numbers())
        if numbers.records_of(int(match[2])) == 0:
            self.findings.add(f"{token} has left a row and has no record")


class Acknowledged:
    """The files in which clients note what they were told."""

    def __init__(self, folder):
        self.folder = folder
        self.offsets = {}
        self.count = 0

    def new(self):
        """What has come since the last call: client, number, kind, state."""
        for name in sorted(os.listdir(self.folder)):
            client = int(name)
            with open(os.path.join(self.folder, name), "rb") as file:
                file.seek(self.offsets.get(name, 0))
                text = file.read()
            # the client may be writing
            text = text[:text.rfind(b"\n") + 1]
            self.offsets[name] = self.offsets.get(name, 0) + len(text)
            for line in text.decode().splitlines():
                number, kind, state = line.split(" ")
                self.count += 1
                yield client, int(number), kind, state


def verify(bindir, folder, until, findings):
    """What pg_audit_trail says of the seals of a trail that nobody has changed, and that
    is sealed until then; until the end, if that is None."""
    options = [] if until is None else ["--until", until]
    done = subprocess.run(
        [os.path.join(bindir, "pg_audit_trail"), "verify", *options, "-k",
         os.path.join(folder, "verification-key"), "-D", os.path.join(folder, "data"),
         os.path.join(folder, "audit")], capture_output=True, check=False)
    if done.returncode != 0:
        findings.add(f"verify ends with {done.returncode}: "
                     f"{done.stdout.decode()}{done.stderr.decode()}")


def check_log(text, findings):
    """Lines of the server log that no kill of ours explains."""
    for line in text.splitlines():
        if re.search(r"\bPANIC: |\bTRAP: |Sanitizer|\bruntime error: ", line):
            findings.add(f"server log: {line}")
        elif "issuing SIGKILL to recalcitrant children" in line:
            findings.add("server log: processes have not reacted to an immediate stop")
        elif re.search(r"was terminated by signal (?!9\b)", line):
            findings.add(f"server log: {line}")


def check_queue(folder, findings):
    """The queue's directory of a server that has written everything."""
    left = sorted(set(os.listdir(folder)) - QUEUE_FILES)
    if left:
        findings.add("left in the queue's directory: " + " ".join(left))


def check_folder(folder, layout, findings):
    """All that can be checked of the files that a run has kept."""
    trail = Trail(os.path.join(folder, "audit"), layout, findings,
                  reader=Reader(None, folder))
    with open(os.path.join(folder, "server.log"), encoding="utf-8", errors="replace") as file:
        check_log(file.read(), findings)
    check_queue(os.path.join(folder, "data", "pg_audit_queue"), findings)
    acknowledged = Acknowledged(os.path.join(folder, "acknowledged"))
    trail.read()
    for told in acknowledged.new():
        trail.check_acknowledged(*told)
    rows = os.path.join(folder, "rows")
    # of a run that was not broken off
    if os.path.exists(rows):
        with open(rows, encoding="ascii") as file:
            for token in file.read().split():
                trail.check_row(token)
    return trail, acknowledged
