#!/usr/bin/env python3
#
# A client that uses asyncpg, whose cursors are portals that stop after some
# rows.  Connects as PGHOST, PGPORT, PGDATABASE and PGUSER say.
#
# Each statement has a label in a comment.  For each label the program prints,
# for t/capture/drivers.pl, a line with the label, a colon and what the server told
# the client, in the order in which the client learned of the ends of the
# statements.  Statements without a label only prepare for the others.
#
# Copyright (c) 2026, pg_audit_queue contributors

import asyncio

import asyncpg


def told(label, what):
    print(f"{label}: {what}", flush=True)


def values(rows):
    return " ".join(str(row[0]) for row in rows)


async def expect_error(label, awaitable):
    """Wait for something that has to fail."""
    try:
        await awaitable
        told(label, "no error")
    except asyncpg.PostgresError as error:
        told(label, error.sqlstate)
    except asyncio.TimeoutError:
        told(label, "timeout")


async def interleaved(conn):
    """Two portals that take turns, others in between, one forgotten."""
    async with conn.transaction():
        one = await conn.cursor("SELECT a FROM t ORDER BY a /* one */")
        two = await conn.cursor("SELECT a FROM big WHERE a > $1 ORDER BY a /* two */", 100)
        forgotten = await conn.cursor("SELECT a FROM t ORDER BY a /* forgotten */")
        rows_one = await one.fetch(3)
        rows_two = await two.fetch(4)
        told("forgotten", values(await forgotten.fetch(2)))
        told("insert", await conn.execute("INSERT INTO log VALUES (1) /* insert */"))
        rows_one += await one.fetch(2)
        told("select", await conn.fetchval("SELECT $1::int /* select */", 42))
        rows_two += await two.fetch(1)
        told("nested", await conn.fetchval("SELECT nested(2) /* nested */"))
        rows_one += await one.fetch(100)
        told("one", values(rows_one))
        rows_two += await two.fetch(2)
        told("two", values(rows_two))


async def twins(conn):
    """Two portals of one prepared statement."""
    async with conn.transaction():
        statement = await conn.prepare("SELECT a FROM big WHERE a > $1 ORDER BY a /* twin */")
        first = await statement.cursor(10)
        second = await statement.cursor(4990)
        rows = await first.fetch(2) + await second.fetch(3) + await first.fetch(3)
        rows += await second.fetch(100)
        told("twin", values(rows))


async def iterated(conn):
    """A portal that a loop reads, three rows at a time."""
    async with conn.transaction():
        total = 0
        async for row in conn.cursor("SELECT a FROM t ORDER BY a /* loop */", prefetch=3):
            total += row[0]
            await conn.execute("INSERT INTO log VALUES ($1) /* in loop */", row[0])
        told("loop", total)


async def failures(conn):
    """Errors while portals are suspended, of themselves and of others."""
    async def other_fails():
        async with conn.transaction():
            suspended = await conn.cursor("SELECT a FROM t ORDER BY a /* suspended */")
            told("suspended", values(await suspended.fetch(2)))
            await conn.fetch("SELECT 1 / (a - a) FROM t /* fails */")

    async def portal_fails():
        async with conn.transaction():
            cursor = await conn.cursor("SELECT 12 / (a - 5) FROM t ORDER BY a /* breaks */")
            told("breaks", values(await cursor.fetch(3)))
            await cursor.fetch(3)

    await expect_error("fails", other_fails())
    await expect_error("breaks", portal_fails())

    # the savepoint's portal ends with it, the one before goes on
    async with conn.transaction():
        outer = await conn.cursor("SELECT a FROM t ORDER BY a /* outer */")
        rows = await outer.fetch(2)
        savepoint = conn.transaction()
        await savepoint.start()
        inner = await conn.cursor("SELECT a FROM t ORDER BY a /* inner */")
        told("inner", values(await inner.fetch(1)))
        await expect_error("duplicate", conn.execute("INSERT INTO t VALUES ($1) /* duplicate */", 1))
        await savepoint.rollback()
        rows += await outer.fetch(2)
        told("outer", values(rows))

    await expect_error(
        "cancelled", conn.fetch("SELECT pg_sleep(600) FROM t /* cancelled */", timeout=3))


async def many(conn):
    """One prepared statement, executed without waiting in between."""
    await conn.executemany("INSERT INTO log VALUES ($1) /* many */", [(i,) for i in range(500, 505)])
    told("many", await conn.fetchval("SELECT sum(a) FROM log WHERE a >= 500 /* sum */"))


async def main():
    conn = await asyncpg.connect(timeout=30, command_timeout=60)
    for scenario in interleaved, twins, iterated, failures, many:
        await scenario(conn)
    await conn.close()


asyncio.run(main())
