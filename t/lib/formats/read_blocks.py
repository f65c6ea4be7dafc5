#!/usr/bin/env python3
"""Print the records of a trail file of blocks as lines of format json.

    read_blocks.py FILE

Written from doc/trail_format.md and doc/formats.md alone.  Needs nothing but Python, and for
files that zstd has compressed the module zstandard.

Copyright (c) 2026, pg_audit_queue contributors
"""

import hashlib
import struct
import sys
from datetime import datetime, timedelta, timezone

CLASSES = "? DDL FUNCTION MISC READ ROLE WRITE MISC ERROR CONNECT CONFIG MISC".split()
KINDS = "? record gap heartbeat".split()
MARKS = (("interrupted", 0x80), ("cut", 0x40), ("incomplete", 0x100), ("masked", 0x400))
SHORT = {8: "b", 9: "t", 10: "n", 12: "f", 13: "r", 34: '"', 92: "\\"}
EPOCH = datetime(2000, 1, 1, tzinfo=timezone.utc)
SECONDS_TO_2000 = 946684800


def crc32c(data, table=[]):
    if not table:
        for byte in range(256):
            for _ in range(8):
                byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
            table.append(byte)
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def decompress(method, body):
    if method == 1:
        sys.exit("the file is compressed by lz4")
    if method == 2:
        import zstandard
        return zstandard.ZstdDecompressor().decompressobj().decompress(body)
    return body


class Bytes:
    """What is left of a body, or of an item"""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        self.at += length
        if self.at > len(self.data):
            sys.exit("an item ends too early")
        return self.data[self.at - length:self.at]

    def varint(self):
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self):
        value = self.varint()
        return value >> 1 if value & 1 == 0 else -(value >> 1) - 1

    def text(self):
        length = self.varint()
        return None if length == 0 else self.take(length - 1)

    def fields(self):
        return {self.varint(): self.take(self.varint()) for _ in range(self.varint())}


def elements(data):
    """The elements of a list: bytes, None or, for what was too long, -2"""
    result, at = [], 0
    while data is not None and at + 4 <= len(data):
        (length,) = struct.unpack_from("<i", data, at)
        at += 4 + max(length, 0)
        result.append(None if length == -1 else length if length < 0 else data[at - length:at])
    return result


class Json:
    """Values of a line whose texts have that encoding"""

    def __init__(self, encoding):
        self.utf8, self.raw = encoding in ("UTF8", "SQL_ASCII"), False

    def string(self, data):
        result, at = "", 0
        while at < len(data):
            byte, length = data[at], 1
            if byte in SHORT:
                result += "\\" + SHORT[byte]
            elif 0x20 <= byte < 0x80:
                result += chr(byte)
            else:
                for length in (2, 3, 4, 0) if self.utf8 and byte >= 0xC0 else (0,):
                    try:
                        result += data[at:at + length].decode()
                        break
                    except UnicodeDecodeError:
                        pass
                if length == 0:
                    result += "\\u%04x" % byte
                    self.raw, length = self.raw or byte >= 0x80, 1
            at += length
        return '"' + result + '"'

    def value(self, value):
        if value is None or isinstance(value, int):
            return "null" if value is None else str(value).lower()
        if isinstance(value, list):
            return "[" + ",".join(map(self.value, value)) + "]"
        if isinstance(value, dict):
            return "{" + ",".join(self.string(k) + ":" + self.value(v) for k, v in value.items()) + "}"
        return self.string(value.encode() if isinstance(value, str) else value)


def iso(microseconds, zone):
    """A time in the time zone of the trail"""
    if not microseconds:
        return None
    second = microseconds // 1000000 + SECONDS_TO_2000
    offset = [o for n, (begin, o) in enumerate(zone) if n == 0 or begin <= second][-1]
    time = EPOCH + timedelta(microseconds=microseconds, seconds=offset)
    sign, rest = "-" if offset < 0 else "+", abs(offset)
    text = "%s%s%02d:%02d" % (time.strftime("%Y-%m-%dT%H:%M:%S.%f"), sign, rest // 3600, rest // 60 % 60)
    return text + (":%02d" % (rest % 60) if rest % 60 else "")


def json_line(r, server, session, text, fields, file):
    version, host, cluster, zone = server
    flags, kind = text["flags"], r["kind"]
    is_record, client = kind == 1, fields.get(2)
    log_time = r["end"] or r["start"]
    statement = "not logged" if flags & 4 else "previously logged" if flags & 8 else None
    params = statement or ("not logged" if flags & 0x10 else "masked" if flags & 0x800 else None)
    known = is_record and (r["sqlstate"] != "00000" or flags & 0x280 == 0)
    where = text["location"]
    json = Json(session["encoding"])
    members = ['"%s":%s' % (name, json.value(value)) for name, value in (
            ("type", KINDS[kind]), ("formatVersion", 1), ("sequence", r["sequence"]), ("series", r["series"]),
            ("logTime", iso(log_time, zone)), ("startTime", iso(r["start"], zone)), ("endTime", iso(r["end"], zone)),
            ("durationUs", r["end"] - r["start"] if r["start"] and r["end"] else None),
            ("auditType", ("OBJECT" if flags & 1 else "SESSION") if is_record else None),
            ("policy", fields.get(21)), ("class", {1: CLASSES[text["class"]], 2: "GAP"}.get(kind)),
            ("command", fields.get(11)),
            ("commandText", None if statement else fields.get(14)), ("commandTextOmitted", statement),
            ("statementLocation", where if where >= 0 else None),
            ("statementLength", text["length"] if where >= 0 and text["length"] > 0 else None),
            ("paramList", None if params or 15 not in fields else
             ["<long param suppressed>" if e == -2 else e for e in elements(fields[15])]),
            ("paramListOmitted", params), ("objectType", fields.get(12)), ("objectName", fields.get(13)),
            ("oldValue", fields.get(17)), ("newValue", fields.get(18)), ("valueSource", fields.get(19)),
            ("rowCount", r["rows"]),
            ("exitCode", r["sqlstate"] if known else None), ("errorMessage", fields.get(22)),
            ("statementId", r["id"] or None), ("substatementId", r["sub"] or None), ("sessionLine", r["line"] or None),
            ("sessionId", "%x.%x" % (session["start"] // 1000000 + SECONDS_TO_2000,
                                     session["pid"] & 0xFFFFFFFF) if session["start"] else None),
            ("sessionStart", iso(session["start"], zone)), ("pid", session["pid"] or None),
            ("backendType", fields.get(5)), ("dbUserName", fields.get(0)), ("sessionUser", fields.get(6)),
            ("currentUser", fields.get(7)), ("superuser", {1: False, 2: True}.get(session["privileges"])),
            ("databaseName", fields.get(1)), ("remoteHost", client), ("remotePort", fields.get(3) or None),
            ("netProtocol", ("UNIX" if client == b"[local]" else "TCP") if client is not None else None),
            ("dbProtocol", "Postgres 3.0" if client is not None else None),
            ("tlsVersion", fields.get(9)), ("tlsCipher", fields.get(10)), ("authMethod", fields.get(8)),
            ("clientApplication", fields.get(4)), ("serverHost", host), ("serverType", "PostgreSQL"),
            ("serverVersion", version), ("serviceName", cluster), ("systemIdentifier", str(file)),
            ("settings", dict(zip(*[iter(elements(fields[20]))] * 2)) if 20 in fields else None),
            ("transactionId", r["xid"]),
            ("virtualTransactionId", "%d/%d" % (session["backend"], r["lxid"])
             if is_record and session["backend"] >= 0 else None),
            ("queryId", text["query"] or None))]
    encoding = session["encoding"] if json.raw or not json.utf8 else None
    members += ['"textEncoding":' + json.value(encoding)]
    return "{" + ",".join(members + ['"%s":true' % name for name, flag in MARKS if flags & flag]) + "}\n"


def read_record(item, sessions, texts, time):
    mask = item.varint()
    session, text = sessions[item.varint()], texts[item.varint()]
    last, r = session["last"], {}
    time += item.signed()
    r["end"] = 0 if mask & 2 else time
    r["start"] = 0 if mask & 1 else time if mask & 2 else time - item.signed()
    r["id"], r["sub"] = (item.signed(), item.signed()) if mask & 4 else (last["id"] + 1, 1)
    r["line"] = item.signed() if mask & 8 else last["line"] + 1
    r["lxid"] = last["lxid"] + (item.signed() if mask & 0x10 else 0)
    r["xid"] = item.varint() if mask & 0x20 else None
    r["rows"] = item.varint() if mask & 0x40 else None
    r["sqlstate"] = item.take(5).decode() if mask & 0x80 else "00000"
    fields = {**session["fields"], **text["fields"], **(item.fields() if mask & 0x100 else {})}
    r["kind"] = item.varint() if mask & 0x200 else 1
    rest = [(item.varint(), item.varint()) for _ in range(item.varint())] if mask & 0x400 else []
    session["last"] = r
    return r, session, text, fields, sum(length for _, length in rest), time


def main(path):
    data = open(path, "rb").read()
    header = data[:struct.unpack_from("<H", data, 10)[0]]
    if data[:8] != b"PAQAUDIT" or crc32c(header[:-4]) != struct.unpack("<I", header[-4:])[0]:
        sys.exit("no trail file")
    assert data[13] == 0, "the file is encrypted"
    (identifier,) = struct.unpack_from("<Q", data, 16)
    before, at, waiting = header, len(header), None
    while at < len(data):
        head = data[at:at + 136]
        stored, length, series, sequence = struct.unpack_from("<IIQQ", head, 8)
        stored_body = data[at + 136:at + 136 + stored]
        if (head[:4] != b"PAQR" or head[96:128] != hashlib.sha256(before).digest() or
                struct.unpack_from("<II", head, 128) != (crc32c(stored_body), crc32c(head[:132]))):
            sys.exit("a block is damaged")
        before, at = head + stored_body, at + 136 + stored
        body, sessions, texts, time = Bytes(decompress(data[12], stored_body)), [], [], 0
        while body.at < length:
            kind = body.take(1)[0]
            item = Bytes(body.take(body.varint()))
            if kind == 1:
                server = [item.text(), item.text(), item.text()]
                server.append([(item.signed(), item.signed(), item.text())[:2] for _ in range(item.varint())])
            elif kind == 2:
                sessions.append(dict(start=item.signed(), pid=item.signed(), backend=item.signed(),
                                     privileges=item.varint(), encoding=item.text().decode(),
                                     fields=item.fields(), last=dict(id=0, line=0, lxid=0)))
            elif kind == 3:
                texts.append({"class": item.varint(), "flags": item.varint(), "query": item.signed(),
                              "location": item.signed(), "length": item.signed(),
                              "fields": item.fields()})
            elif kind == 4:
                r, session, text, fields, missing, time = read_record(item, sessions, texts, time)
                r["sequence"], r["series"], sequence = sequence, series, sequence + 1
                waiting = [missing, (r, server, session, text, fields, identifier)]
            elif kind == 5 and waiting:
                field, piece = item.varint(), item.data[item.at:]
                waiting[1][4][field] += piece
                waiting[0] -= len(piece)
            if waiting and waiting[0] == 0:
                sys.stdout.buffer.write(json_line(*waiting[1]).encode())
                waiting = None


main(sys.argv[1])
