"""psycopg, psycopg2 and asyncpg: rows of their tables that the other tests do not come to.

Most are of the real server; a scripted one sends what that does not: rows that were not described,
an old version, no answer to a request to cancel.
"""

import asyncio
import struct

import asyncpg
import asyncpg.cluster
import psycopg
import psycopg.connection
import psycopg.types.range
import psycopg2
import psycopg2.extensions
import pytest

from tests.integrations.errors.raw_server import scripted
from tests.integrations.errors.rows import comes_to
from tests.servers.http_faults import dead_port, full_port

RAISE = "DO $$ BEGIN RAISE EXCEPTION 'ours' USING ERRCODE = 'ZZ001'; END $$"
"""With an SQLSTATE that no version has."""


def by(driver, *statements):
    """What runs the statements over a connection of its own."""

    def run(url):
        connection = driver.connect(url)
        try:
            for statement in statements:
                cursor = connection.cursor()
                cursor.execute(statement)
                if cursor.description:
                    cursor.fetchall()
        finally:
            connection.close()

    return run


def dumped(_url):
    psycopg.types.range.fail_dump(psycopg.types.range.Range())


def in_binary(url):
    with psycopg.connect(url, cursor_factory=psycopg.ClientCursor) as connection:
        connection.execute("SELECT 1", binary=True)


PSYCOPG = {
    "psycopg.DataError otherwise": by(psycopg, "SELECT 'infinity'::date"),
    "psycopg.DatabaseError otherwise": by(psycopg, RAISE),
    "psycopg.NotSupportedError otherwise": in_binary,
    "psycopg.InternalError otherwise": dumped,
    "psycopg2.DatabaseError otherwise": by(psycopg2, RAISE),
}


@pytest.mark.parametrize("row", PSYCOPG)
def test_psycopg(postgres_url, row):
    """A value that Python does not have, a code that nobody knows, a call that is wrong."""
    comes_to(row, lambda: PSYCOPG[row](postgres_url))


def test_two_hosts():
    """One does not answer in time and the other refuses: the text has both."""
    with full_port() as port, pytest.MonkeyPatch.context() as patch:
        patch.setattr(psycopg.connection, "timeout_from_conninfo", lambda _given: 0.05)
        hosts = f"host=127.0.0.1,127.0.0.1 port={port},{dead_port()}"
        comes_to(
            "psycopg.OperationalError SQLSTATE connect timeout",
            lambda: psycopg.connect(f"{hosts} user=u dbname=d sslmode=disable gssencmode=disable"),
        )


# --- asyncpg --------------------------------------------------------------------------------------


def over(*statements, then=None):
    async def run(url):
        connection = await asyncpg.connect(url)
        try:
            for statement in statements:
                await connection.execute(statement)
            if then is not None:
                await then(connection, url)
        finally:
            await connection.close()

    return run


async def domain(connection, _url):
    name, schema = "cardinal_number", "information_schema"
    await connection.set_type_codec(name, schema=schema, encoder=str, decoder=str)


async def outdated(connection, url):
    """Another session changes a type that this one has read."""
    await connection.fetch("SELECT ROW(1)::single")
    other = await asyncpg.connect(url)
    await other.execute("ALTER TYPE single ADD ATTRIBUTE b int")
    await other.close()
    await connection.fetch("SELECT ROW(1, 2)::single")


async def connected_twice(url):
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await pool._holders[0].connect()


ASYNCPG = {
    "asyncpg.exceptions._base.PostgresError otherwise": over(RAISE),
    "asyncpg.exceptions._base.UnsupportedClientFeatureError": over(then=domain),
    "asyncpg.exceptions._base.InternalClientError": connected_twice,
    "asyncpg.cluster.ClusterError": lambda _: asyncpg.cluster.Cluster(
        "nowhere", pg_config_path="nowhere"
    ).get_status(),
}


@pytest.mark.parametrize("row", ASYNCPG)
def test_asyncpg(postgres_url, row):
    """A code that nobody knows, what it does not support, and states that it does not expect."""
    comes_to(row, lambda: ASYNCPG[row](postgres_url))


def test_a_type_that_another_session_changed(postgres_url):
    """The statement has run: its rows cannot be read."""
    create = over("DROP TYPE IF EXISTS single", "CREATE TYPE single AS (a int)")
    asyncio.run(create(postgres_url))
    comes_to(
        "asyncpg.exceptions._base.OutdatedSchemaCacheError",
        lambda: over(then=outdated)(postgres_url),
    )
    asyncio.run(over("DROP TYPE single")(postgres_url))


# --- a scripted server ----------------------------------------------------------------------------


def message(kind, *parts):
    body = b"".join(parts)
    return kind + struct.pack("!i", len(body) + 4) + body


def started(version="17.0"):
    """What a server sends to a client that it trusts."""
    settings = {"server_version": version, "client_encoding": "UTF8", "DateStyle": "ISO, MDY"}
    said = [message(b"S", f"{k}\0{v}\0".encode()) for k, v in settings.items()]
    key = message(b"K", struct.pack("!ii", 1, 1))
    return b"".join([message(b"R", struct.pack("!i", 0)), *said, key, IDLE])


IDLE = message(b"Z", b"I")
COLUMN = b"n\0" + struct.pack("!ihihih", 0, 0, 23, 4, -1, 1)
DESCRIBED = message(b"1") + message(b"t", b"\0\0") + message(b"T", b"\0\1", COLUMN)
ROW = message(b"D", b"\0\2", struct.pack("!iiii", 4, 1, 4, 2))
TWO_COLUMNS = message(b"2") + ROW + message(b"C", b"SELECT 1\0") + IDLE


async def described(url):
    connection = await asyncpg.connect(url)
    try:
        await connection.fetch("SELECT 1")
    finally:
        connection.terminate()


async def copied(url):
    connection = await asyncpg.connect(url)
    try:
        await connection.copy_records_to_table("t", records=[], where="a > 1")
    finally:
        connection.terminate()


def cancelled(url):
    with psycopg.connect(url) as connection:
        connection.pgconn.send_query(b"SELECT 1")
        connection.cancel_safe(timeout=0.02)


def unless_cancelled(reply):
    """Silence for a request to cancel, which has 16 bytes."""
    return lambda received: None if received[4:8] == struct.pack("!HH", 1234, 5678) else reply


SCRIPTED = {
    "asyncpg.exceptions._base.ProtocolError": (described, started(), DESCRIBED, TWO_COLUMNS),
    "asyncpg.exceptions._base.UnsupportedServerFeatureError": (copied, started("11.0"), DESCRIBED),
    "psycopg.errors.CancellationTimeout": (cancelled, unless_cancelled(started()), None),
}


@pytest.mark.parametrize("row", SCRIPTED)
def test_what_a_real_server_does_not_send(row):
    """Rows of more columns than described, an old version, no answer to a cancellation."""
    call, *replies = SCRIPTED[row]
    with scripted(*replies) as port:
        plain = "sslmode=disable" + ("" if "asyncpg" in row else "&gssencmode=disable")
        url = f"postgresql://postgres@127.0.0.1:{port}/postgres?{plain}"
        comes_to(row, lambda: call(url))


# --- psycopg2 ----------------------------------------------------------------------------------


def two_phases(connection):
    connection.tpc_begin(connection.xid(1, "a", "b"))


def test_two_phases():
    """A server of 2005."""
    with scripted(started("8.0.1")) as port:
        plain = f"host=127.0.0.1 port={port} user=u dbname=d sslmode=disable gssencmode=disable"
        connection = psycopg2.connect(plain)
        comes_to("psycopg2.NotSupportedError otherwise", lambda: two_phases(connection))
        connection.close()


def test_a_string_that_is_no_connection():
    """The class is called itself; `connect` would look at the string before."""
    comes_to("psycopg2.InternalError otherwise", lambda: psycopg2.extensions.connection("nonsense"))


def test_a_time_that_is_none():
    """The parser of psycopg2 refuses it."""
    comes_to("psycopg2.DataError otherwise", lambda: psycopg2.extensions.PYTIME("x", None))
