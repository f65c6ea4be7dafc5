# proto.py
#   A connection that speaks PostgreSQL's protocol, version 3, as far as the
#   torture test needs it.
#
# Connects through a Unix-domain socket, without a password.  The test is about
# the exact answers of the server before the connection was lost, and no driver
# gives them; hence a connection of our own.
#
# Copyright (c) 2026, pg_audit_queue contributors

import socket
import struct

# Silence of the server, in seconds, that is a fault
SILENCE = 90


class ConnectionLost(Exception):
    """The server is gone, or does not let us in."""


class ServerSilent(Exception):
    """The server does not answer."""


class Connection:
    """One session."""

    def __init__(self, path, user, database="postgres"):
        self.received = b""
        self.backend = 0
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(SILENCE)
        try:
            self.socket.connect(path)
        except OSError as error:
            self.close()
            raise ConnectionLost(str(error)) from error
        words = ("user", user, "database", database, "application_name", user)
        body = struct.pack("!i", 196608)
        body += b"".join(word.encode() + b"\0" for word in words) + b"\0"
        self._send(struct.pack("!i", len(body) + 4) + body)
        outcome = self._answer(lambda tag: None)
        if outcome is not None:
            self.close()
            raise ConnectionLost(outcome)

    def close(self):
        self.socket.close()

    def quit(self):
        """Say good-bye."""
        try:
            self._send(_message(b"X", b""))
        except ConnectionLost:
            pass
        self.close()

    def simple(self, sql, completed=lambda tag: None, row=None):
        """Run SQL.  Calls completed(tag) as soon as the server says that a
        statement is complete, row(values) for each row.  Returns the SQLSTATE of
        an error, None if there is none."""
        self._send(_message(b"Q", sql.encode() + b"\0"))
        return self._answer(completed, row)

    def prepare(self, name, sql):
        """Prepare a statement with parameters."""
        self._send(_message(b"P", _text(name) + _text(sql) + b"\0\0") + _message(b"S", b""))
        return self._answer(lambda tag: None)

    def execute(self, name, value):
        """Execute a prepared statement with one parameter, and commit.
        Returns the SQLSTATE of an error, None if there is none."""
        value = value.encode()
        bind = (b"\0" + _text(name) + struct.pack("!hhi", 0, 1, len(value)) + value
                + struct.pack("!h", 0))
        self._send(_message(b"B", bind) + _message(b"E", b"\0" + struct.pack("!i", 0))
                   + _message(b"S", b""))
        return self._answer(lambda tag: None)

    def _send(self, data):
        try:
            self.socket.sendall(data)
        except socket.timeout as error:
            raise ServerSilent("the server takes nothing") from error
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def _answer(self, completed, row=None):
        """Take messages up to ReadyForQuery."""
        failed = None
        while True:
            kind, body = self._receive()
            if kind == b"Z":
                return failed
            if kind == b"C":
                completed(body[:-1].decode())
            elif kind == b"D" and row is not None:
                row(_values(body))
            elif kind == b"K":
                self.backend = struct.unpack("!i", body[:4])[0]
            elif kind == b"E":
                fields = _fields(body)
                if fields.get("V", fields["S"]) != "ERROR":
                    raise ConnectionLost(fields["C"] + " " + fields["M"])
                failed = fields["C"]

    def _receive(self):
        """The next message: letter, body."""
        while True:
            if len(self.received) >= 5:
                end = 1 + struct.unpack_from("!i", self.received, 1)[0]
                if len(self.received) >= end:
                    message = self.received[:end]
                    self.received = self.received[end:]
                    return message[:1], message[5:]
            try:
                data = self.socket.recv(65536)
            except socket.timeout as error:
                raise ServerSilent("the server says nothing") from error
            except OSError as error:
                raise ConnectionLost(str(error)) from error
            if data == b"":
                raise ConnectionLost("the server has closed the connection")
            self.received += data


def _message(kind, body):
    return kind + struct.pack("!i", len(body) + 4) + body


def _text(text):
    return text.encode() + b"\0"


def _fields(body):
    return {field[:1].decode(): field[1:].decode(errors="replace")
            for field in body.split(b"\0") if field}


def _values(body):
    """Columns of a row, as texts."""
    values = []
    offset = 2
    for _ in range(struct.unpack_from("!h", body)[0]):
        length = struct.unpack_from("!i", body, offset)[0]
        offset += 4
        if length < 0:
            values.append(None)
        else:
            values.append(body[offset:offset + length].decode())
            offset += length
    return values
