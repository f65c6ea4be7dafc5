# client.py
#   A client of the torture test: sends numbered statements, notes what it was
#   told, and connects again when it has lost its connection.
#
# Each statement carries a token: T<client>-<number>-<kind>, with -<length>
# behind it for a text of that length.  The numbers of a client are never used
# again.
#
# For each statement that the server has acknowledged the client's file gets a
# line of number, kind and SQLSTATE, 00000 if it has succeeded.  The line is
# written at once, before the next statement is sent.
#
# Copyright (c) 2026, pg_audit_queue contributors

import os
import random
import signal
import time

from proto import Connection, ConnectionLost, ServerSilent

# Kinds of work and how often each is chosen
KINDS = {
    "select": 30,
    "insert": 20,
    "prepared": 15,
    "written": 10,
    "block": 15,
    "nest": 12,
    "long": 3,
    "null": 3,
    "syntax": 2,
    "comment": 3,
    "slow": 5,
}

# Those of them that can stand in a transaction block that goes on
IN_BLOCK = ("select", "insert", "prepared", "written", "nest", "long", "comment", "slow")

# SQLSTATE that statements of a kind are meant to fail with
FAILURES = {"null": "23502", "syntax": "42601"}

# Kinds that leave a row in the table if they are committed
WRITERS = ("insert", "written", "nest")

SCHEMA = """
CREATE TABLE torture (token text NOT NULL);
GRANT ALL ON torture TO PUBLIC;
GRANT ALL ON SCHEMA public TO PUBLIC;
CREATE FUNCTION nest(token text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('INSERT INTO torture VALUES (%L)', token);
    RETURN token;
END $$;
"""


def long_statement(token, length):
    """A statement of that length, which can be recognized byte by byte."""
    head, tail = f"SELECT length('{token} ", "')"
    padding = (token + " ") * (length // len(token))
    return head + padding[:length - len(head) - len(tail)] + tail


def statement(kind, token):
    """SQL text for kinds that are sent as text."""
    if kind.startswith("long"):
        return long_statement(token, int(token.rsplit("-", 1)[1]))
    return {
        "select": f"SELECT '{token}'",
        "insert": f"INSERT INTO torture VALUES ('{token}')",
        "slow": f"SELECT '{token}' FROM pg_sleep({len(token) % 3 * 0.01})",
        "nest": f"SELECT nest('{token}')",
        "null": f"INSERT INTO torture SELECT NULL WHERE '{token}' <> ''",
        "syntax": f"SELEC '{token}'",
        "begin": f"BEGIN /* {token} */",
        "commit": f"COMMIT /* {token} */",
        "rollback": f"ROLLBACK /* {token} */",
        "comment": f"COMMENT ON TABLE own IS '{token}'",
    }[kind]


class Client:
    """Runs in a process of its own."""

    def __init__(self, number, seed, path, file, lengths):
        self.number = number
        self.random = random.Random(f"{seed}-{number}")
        self.path = path
        self.lengths = lengths
        self.file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.connection = None
        self.count = 0
        self.stopping = False
        # at first each kind once, so that also a short run has them all
        self.first = list(KINDS)
        self.random.shuffle(self.first)

    def run(self):
        """Until SIGTERM comes, but not before each kind of work has been done.
        Returns an exit code."""
        signal.signal(signal.SIGTERM, self._stop)
        while self.first or not self.stopping:
            try:
                if self.connection is None:
                    self._connect()
                self._work()
            except ConnectionLost:
                self.connection = None
                # each attempt costs the server a process
                time.sleep(self.random.uniform(0.01, 0.1))
            except ServerSilent:
                return 1
        if self.connection is not None:
            self.connection.quit()
        return 0

    def _stop(self, signum, frame):
        self.stopping = True

    def _connect(self):
        connection = Connection(self.path, f"t{self.number}")
        connection.prepare("prepared", "SELECT $1::text")
        connection.prepare("written", "INSERT INTO torture VALUES ($1)")
        self.connection = connection

    def _note(self, number, kind, state):
        os.write(self.file, f"{number} {kind} {state}\n".encode())

    def _work(self):
        kind = (self.first[-1] if self.first
                else self.random.choices(list(KINDS), list(KINDS.values()))[0])
        if kind == "block":
            self._block()
        else:
            self._send(kind)
        if self.first:
            self.first.pop()
        if self.random.random() < 0.005:
            self.connection.quit()
            self.connection = None
        if self.random.random() < 0.2:
            time.sleep(self.random.uniform(0, 0.002))

    def _block(self):
        """A transaction block.  Returns with no transaction open."""
        self._send("begin")
        for _ in range(self.random.randint(1, 5)):
            if self.random.random() < 0.05:
                self.connection.simple("SAVEPOINT s")
                self._send("null")
                self.connection.simple("ROLLBACK TO s")
            elif self.random.random() < 0.05:
                self._send("null")
                # of this one there is no record
                self.connection.simple("ROLLBACK")
                return
            self._send(self.random.choice(IN_BLOCK))
        self._send("rollback" if self.random.random() < 0.1 else "commit")

    def _send(self, kind):
        self.count += 1
        number = self.count
        if kind == "long":
            kind = f"long-{self._length()}"
        token = f"T{self.number}-{number}-{kind}"
        if kind in ("prepared", "written"):
            state = self.connection.execute(kind, token)
            self._note(number, kind, state or "00000")
            return
        state = self.connection.simple(
            statement(kind, token), lambda tag: self._note(number, kind, "00000"))
        if state is not None:
            self._note(number, kind, state)

    def _length(self):
        """Of a long text: some larger than a slot of the queue file, or than
        the queue itself."""
        shortest, longest = self.random.choices(list(self.lengths), list(self.lengths.values()))[0]
        return self.random.randint(shortest, longest)
