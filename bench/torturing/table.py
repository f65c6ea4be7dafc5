# table.py
#   The trail in a table, read as check.py reads files.
#
# Series are ignored: whatever series a worker begins, sequences go on.
#
# Copyright (c) 2026, pg_audit_queue contributors

import json
import time

from check import Trail
from proto import ConnectionLost
from server import LIMIT, Failure

REACHED = "SELECT coalesce(max(sequence), 0) FROM audit_queue.load_state"

RECORDS = """SELECT json_build_object(
    'type', type, 'sequence', sequence, 'sessionId', session_id,
    'sessionLine', session_line, 'command', command, 'commandText', command_text,
    'paramList', parameters, 'exitCode', sqlstate, 'errorMessage', error_message,
    'interrupted', interrupted, 'cut', cut)
  FROM audit_records WHERE sequence > %d AND sequence <= %d ORDER BY sequence, series"""


class TableTrail(Trail):
    """The table of a server that runs when it is read."""

    def __init__(self, server, findings, faults):
        super().__init__(None, "json", findings, faults)
        self.server = server
        self.file = "audit_records"

    def read(self, upto=None):
        """Up to the sequence, or to that which is durable now, as soon as the
        loader has got there."""
        end = time.monotonic() + LIMIT
        while True:
            try:
                connection = self.server.connect()
                self._read_connected(connection, upto, end)
                connection.quit()
                return
            except ConnectionLost:
                if time.monotonic() > end:
                    raise

    def count_files(self):
        return 0

    def remove_read(self, keep):
        pass

    def _read_connected(self, connection, upto, end):
        if upto is None:
            upto = int(self._row(connection, "SELECT audit_flush()")[0])
        reached = int(self._row(connection, REACHED)[0])
        while reached < upto:
            if time.monotonic() > end:
                raise Failure(f"the table has got to sequence {reached}, not to {upto}")
            time.sleep(0.01)
            reached = int(self._row(connection, REACHED)[0])
        rows = []
        state = connection.simple(RECORDS % (self.sequence, upto), row=rows.append)
        if state is not None:
            raise Failure(f"the table cannot be read: {state}")
        for text, in rows:
            self.check_record(json.loads(text))

    def _row(self, connection, sql):
        rows = []
        state = connection.simple(sql, row=rows.append)
        if state is not None:
            raise Failure(f"{sql}: {state}")
        return rows[0]
