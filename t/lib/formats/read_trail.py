# read_trail.py
#   Trail files as Python's own parsers read them.
#
#   read_trail.py FORMAT FILE...
#
# Prints a JSON array of records: hashes in format json, lists of columns and,
# last, the message's fields in format csvlog, the line's prefix and a list of
# fields in format pgaudit.  Texts are what their bytes were, each as one
# character: what README.md says about getting them back is done here.
#
# Exits with 1, and says why, if a file is not what the format promises.
#
# Copyright (c) 2026, pg_audit_queue contributors

import csv
import io
import json
import re
import sys

csv.field_size_limit(1 << 30)


def fail(text):
    sys.exit(f"read_trail.py: {text}")


def lines_of(data):
    """Ended by newlines and nothing else."""
    if data and not data.endswith(b"\n"):
        fail(f"incomplete last line: {data[-200:]!r}")
    return data.split(b"\n")[:-1]


# -- json ------------------------------------------------------------------

def no_duplicates(pairs):
    if len(dict(pairs)) != len(pairs):
        fail(f"a name is there twice: {pairs!r}")
    return dict(pairs)


def no_constant(text):
    fail(f"not JSON: {text}")


# An escaped byte, not preceded by an odd number of backslashes
BYTE = re.compile(r"((?:^|[^\\])(?:\\\\)*)\\u00([89a-f][0-9a-f])")


def bytes_of(value, to_bytes):
    if isinstance(value, str):
        return to_bytes(value).decode("latin1")
    if isinstance(value, list):
        return [bytes_of(one, to_bytes) for one in value]
    return value


def read_json(data):
    for line in lines_of(data):
        text = line.decode("utf-8")
        if any(ord(c) < 0x20 for c in text):
            fail(f"control character in {line!r}")
        record = json.loads(text, object_pairs_hook=no_duplicates,
                            parse_constant=no_constant)
        encoding = record["textEncoding"]
        if encoding is None:
            if BYTE.search(text):
                fail(f"bytes without an encoding: {line!r}")
            to_bytes = lambda s: s.encode("utf-8")
        elif encoding in ("UTF8", "SQL_ASCII"):
            # What was valid is there as itself; an escape is a byte.
            previous = None
            while previous != text:
                previous, text = text, BYTE.sub(r"\1\\udc\2", text)
            record = json.loads(text)
            to_bytes = lambda s: s.encode("utf-8", "surrogateescape")
        else:
            to_bytes = lambda s: s.encode("latin1")
        yield {name: bytes_of(value, to_bytes) for name, value in record.items()}


# -- what pgaudit writes --------------------------------------------------

def fields_of(text):
    rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    if len(rows) != 1 or len(rows[0]) not in (9, 10):
        fail(f"not one list of 9 or 10 fields: {text!r}")
    return rows[0]


# -- csvlog ----------------------------------------------------------------

def read_csvlog(data):
    if data and not data.endswith(b"\n"):
        fail(f"incomplete last record: {data[-200:]!r}")
    file = io.StringIO(data.decode("latin1"), newline="")
    for row in csv.reader(file, strict=True):
        if len(row) != 26:
            fail(f"{len(row)} columns: {row!r}")
        if "escaped" in row[15].split(","):
            row = [re.sub(r"\\x([0-9a-f]{2})", lambda m: chr(int(m[1], 16)), text)
                   for text in row]
        message = row[13]
        yield row + [fields_of(message[7:]) if message.startswith("AUDIT: ") else None]


# -- pgaudit ---------------------------------------------------------------

RECORD = re.compile(r"(?P<prefix>[^\n]*?)LOG:  AUDIT: (?P<fields>.*)", re.DOTALL)


def read_pgaudit(data):
    records = []
    for line in lines_of(data):
        text = line.decode("latin1")
        if not text.startswith("\t"):
            records.append(text)
        elif not records:
            fail(f"begins with a continuation: {line!r}")
        else:
            records[-1] += "\n" + text[1:]
    for record in records:
        match = RECORD.fullmatch(record)
        if match is None:
            fail(f"not a record: {record!r}")
        yield [match["prefix"], fields_of(match["fields"])]


READERS = {"json": read_json, "csvlog": read_csvlog, "pgaudit": read_pgaudit}


def main():
    records = []
    for name in sys.argv[2:]:
        with open(name, "rb") as file:
            records += READERS[sys.argv[1]](file.read())
    json.dump(records, sys.stdout)


if __name__ == "__main__":
    main()
