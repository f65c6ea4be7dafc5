# trail.py
#   Does a trail hold exactly what was sent?
#
# A fast trail with holes is worth nothing.  Counts the records of pgbench's
# statements and looks for errors:
#
# - there are not as many records as statements;
# - the statements of a session are not numbered 1, 2, 3, ... in this order (so
#   one lost and another doubled do not make a right number);
# - the sequence of all records, where there is one, does not begin with 1, or
#   has a gap or a doubled number;
# - the trail itself says that records are missing;
# - the end of a file is torn;
# - a line, or row, is not a record, in json and csvlog.
#
# Where statements have no numbers (log_statement), the lines of a session have.
#
# Records without a number, of logins for example, are not those of statements.
#
# Copyright (c) 2026, pg_audit_queue contributors

import csv
import os
import re
import sys

# Texts cannot deceive these: within a JSON string a double quote has a backslash
# before it, in the others everything that is looked at is before the first text.
JSON_START = re.compile(rb'\{"type":"(record|gap|heartbeat)","formatVersion":\d+,"sequence":(\d+),')
JSON_REST = (rb',"statementId":(\d+),"substatementId":\d+,"sessionLine":(?:\d+|null),'
             rb'"sessionId":"([0-9a-f.]+)".*,"databaseName":"%s",')
PGAUDIT = rb'^[^@\t]* \[(\d+)\] [^@\t]*@%s (?:\d+ )?LOG:  AUDIT: SESSION,(\d+),'
# time, user, database, process, host, session, line, tag, session's start, virtual
# transaction, transaction, SQLSTATE, and what pgaudit has
TOFILE = rb'^[^,]*,[^,]*,%s,\d+,[^,]*,([0-9a-f.]+),(?:[^,]*,){6}SESSION,(\d+),'
STATEMENTS = rb'^[^@\t]* \[(\d+)\] [^@\t]*@%s (\d+) (?:LOG:  (statement|execute)\b)?'

# Columns of csvlog, counted from 0, and its message
CSV_COLUMNS = 26
CSV_DATABASE, CSV_SESSION, CSV_MESSAGE, CSV_LOCATION = 2, 5, 13, 21
CSV_AUDIT = re.compile(r"AUDIT: SESSION,(\d+),\d+,([^,]*),")

# What is beside the files of our trail: a lock, seals, and how far it is durable
BESIDE = "pg_audit_queue."
FLUSHED = BESIDE + "flushed"

# A text may be of any length.
csv.field_size_limit(sys.maxsize)


class Trail:
    """What has been found so far."""

    def __init__(self):
        self.records = 0
        self.bytes = 0
        self.last = {}          # number of each session's last statement
        self.stretches = []     # first and last sequence of each file
        self.findings = []

    def find(self, text):
        self.findings.append(text)

    def numbered(self, session, number):
        """The next record, or line, of a session."""
        if number != self.last.get(session, 0) + 1:
            self.find("numbers of a session are broken")
        self.last[session] = number

    def sequence(self, number):
        """The next record of a file."""
        if self.stretches[-1] is None:
            self.stretches[-1] = (number, number)
        elif number == self.stretches[-1][1] + 1:
            self.stretches[-1] = (self.stretches[-1][0], number)
        else:
            self.find("the sequence is broken")

    def check_stretches(self):
        """Files continue each other."""
        expected = 1
        for first, last in sorted(stretch for stretch in self.stretches if stretch):
            if first != expected:
                self.find(f"sequence {expected - 1} is followed by {first}")
            expected = last + 1


def _lines(trail, path):
    with open(path, "rb") as file:
        for line in file:
            trail.bytes += len(line)
            if not line.endswith(b"\n"):
                trail.find("the last line of a file is torn")
                return
            yield line


def _read_json(trail, path, database):
    rest = re.compile(JSON_REST % re.escape(database))
    for line in _lines(trail, path):
        start = JSON_START.match(line)
        if not start or not line.endswith(b"}\n"):
            trail.find("a line is not a record")
            continue
        trail.sequence(int(start.group(2)))
        if start.group(1) == b"gap":
            trail.find("the trail says that records are missing")
            continue
        found = rest.search(line)
        if found:
            trail.records += 1
            trail.numbered(found.group(2), int(found.group(1)))


def _read_csvlog(trail, path, database):
    """Rows, which may have newlines in them.  Bytes are read as characters: they may
    be of any encoding."""
    lines = (line.decode("latin-1") for line in _lines(trail, path))
    try:
        for row in csv.reader(lines, strict=True):
            _csvlog_row(trail, row, database.decode("latin-1"))
    except csv.Error:
        trail.find("a line is not a record")


def _csvlog_row(trail, row, database):
    message = CSV_AUDIT.match(row[CSV_MESSAGE]) if len(row) == CSV_COLUMNS else None
    if not message or not row[CSV_LOCATION].isdecimal():
        trail.find("a line is not a record")
        return
    trail.sequence(int(row[CSV_LOCATION]))
    if message.group(2) == "GAP":
        trail.find("the trail says that records are missing")
    elif row[CSV_DATABASE] == database and message.group(1) != "0":
        trail.records += 1
        trail.numbered(row[CSV_SESSION], int(message.group(1)))


def _read_numbered(trail, path, pattern):
    """Lines that match, with a session and the number of a statement."""
    for line in _lines(trail, path):
        found = pattern.match(line)
        if found and found.group(2) != b"0":
            trail.records += 1
            trail.numbered(found.group(1), int(found.group(2)))


def _read_statements(trail, path, database):
    pattern = re.compile(STATEMENTS % re.escape(database))
    for line in _lines(trail, path):
        found = pattern.match(line)
        if found:
            trail.records += found.group(3) is not None
            trail.numbered(found.group(1), int(found.group(2)))


def _read_table(trail, path, database):
    """Rows as copied: sequence, session, statement, class, database."""
    for line in _lines(trail, path):
        sequence, session, statement, name, where = line.rstrip(b"\n").split(b"\t")
        trail.sequence(int(sequence))
        if name == b"GAP":
            trail.find("the trail says that records are missing")
        elif where == database and statement not in (b"\\N", b"0"):
            trail.records += 1
            trail.numbered(session, int(statement))


def check(layout, database, expected, files):
    """Compare a trail with the number of statements sent.  Returns records, bytes,
    and "ok" or what is wrong."""
    trail = Trail()
    database = database.encode()
    for path in files:
        trail.stretches.append(None)
        if layout == "json":
            _read_json(trail, path, database)
        elif layout == "csvlog":
            _read_csvlog(trail, path, database)
        elif layout == "statements":
            _read_statements(trail, path, database)
        elif layout == "table":
            _read_table(trail, path, database)
        else:
            pattern = TOFILE if layout == "tofile" else PGAUDIT
            _read_numbered(trail, path, re.compile(pattern % re.escape(database)))
    trail.check_stretches()
    if trail.records != expected:
        trail.findings.insert(0, f"{trail.records} of {expected} records")
    if not files:
        trail.findings.insert(0, "there is no trail")
    return trail.records, trail.bytes, trail.findings[0] if trail.findings else "ok"


def _age(name):
    """Sorts names by their times, and those of one time by the numbers that they
    were given: audit-TIME.json, audit-TIME.2.json, audit-TIME.10.json."""
    stem = os.path.splitext(re.sub(r"(\.zst|\.lz4)?(\.enc)?$", "", name))[0]
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", stem)]


def files_of(folder):
    """The files of a trail, oldest first."""
    names = sorted(os.listdir(folder), key=_age) if os.path.isdir(folder) else []
    return [os.path.join(folder, name) for name in names if not name.startswith(BESIDE)]


def size_of(folder):
    """Bytes of the trail in the folder, seals included"""
    return sum(entry.stat().st_size for entry in os.scandir(folder)
               if entry.name != FLUSHED)


# -- the trail after a crash -----------------------------------------------------

# What crash.py's clients send: their number and that of the statement
TOKEN = re.compile(rb"(?:crashed VALUES|SELECT) \((\d+), (\d+)\)")


def tokens(files):
    """How many records there are of each (client, number)."""
    found = {}
    for path in files:
        with open(path, "rb") as file:
            for line in file:
                for token in TOKEN.findall(line):
                    key = (int(token[0]), int(token[1]))
                    found[key] = found.get(key, 0) + 1
    return found
