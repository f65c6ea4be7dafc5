#!/usr/bin/env python3
#
# A client that uses psycopg 3 and, through it, libpq's pipeline mode: several
# statements are on their way before the first one is answered.  Connects as
# libpq's environment variables say.
#
# Prints lines for t/capture/drivers.pl, see asyncpg_portals.py.
#
# Copyright (c) 2026, pg_audit_queue contributors

import psycopg


def told(label, what):
    print(f"{label}: {what}", flush=True)


def values(cursor):
    return " ".join(str(row[0]) for row in cursor.fetchall())


def all_work(conn):
    """All statements of a pipeline in one implicit transaction."""
    with conn.pipeline():
        cursors = [
            conn.execute("SELECT a FROM t WHERE a <= %s ORDER BY a /* first */", (3,)),
            conn.execute("INSERT INTO log VALUES (%s) /* second */", (602,)),
            conn.execute("SELECT nested(%s) /* third */", (1,)),
            conn.execute("UPDATE log SET a = a WHERE a = %s /* fourth */", (602,)),
        ]
    told("first", values(cursors[0]))
    told("second", cursors[1].rowcount)
    told("third", values(cursors[2]))
    told("fourth", cursors[3].rowcount)


def one_fails(conn):
    """What comes behind a failing statement is not executed."""
    pending = []
    try:
        with conn.pipeline():
            pending.append(conn.execute("INSERT INTO log VALUES (%s) /* before */", (603,)))
            pending.append(conn.execute("SELECT 1 / (a - %s) FROM t /* bad */", (3,)))
            pending.append(conn.execute("INSERT INTO log VALUES (%s) /* never */", (604,)))
        told("bad", "no error")
    except psycopg.Error as error:
        told("bad", error.sqlstate)


def synced(conn):
    """Sync points make transactions of their own within one pipeline."""
    with conn.pipeline() as pipeline:
        good = conn.execute("INSERT INTO log VALUES (%s) /* kept */", (605,))
        pipeline.sync()
        more = conn.execute("SELECT count(*) FROM log WHERE a = %s /* counted */", (605,))
    told("kept", good.rowcount)
    told("counted", values(more))


def prepared(conn):
    """The same statement several times, prepared by the driver."""
    with conn.pipeline():
        cursors = [
            conn.execute("SELECT %s::int + 1 /* again */", (i,), prepare=True) for i in range(4)
        ]
    told("again", " ".join(values(cursor) for cursor in cursors))


def in_block(conn):
    """A transaction block and server-side cursors in it."""
    with conn.transaction():
        with conn.cursor(name="curs") as cursor:
            cursor.execute("SELECT a FROM t ORDER BY a /* declared */")
            rows = cursor.fetchmany(2)
            conn.execute("INSERT INTO log VALUES (606) /* aside */")
            rows += cursor.fetchmany(3)
            told("declared", " ".join(str(row[0]) for row in rows))


with psycopg.connect(autocommit=True, connect_timeout=30) as connection:
    for scenario in all_work, one_fails, synced, prepared, in_block:
        scenario(connection)
