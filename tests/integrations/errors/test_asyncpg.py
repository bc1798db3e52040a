"""What asyncpg raises of its own; the server's errors are in test_postgres.py."""

import asyncio

import asyncpg
import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of


async def raised(expected, awaitable):
    with pytest.raises(expected) as caught:
        await awaitable
    return kind_of(caught.value)


def connected(test, url):
    async def main():
        connection = await asyncpg.connect(url)
        try:
            await test(connection)
        finally:
            await connection.close()

    asyncio.run(main())


def test_misuse_is_permanent(postgres_url):
    """A second statement at once, an argument of another type, a wrong address."""

    async def test(connection):
        sleeping = asyncio.ensure_future(connection.execute("SELECT pg_sleep(0.05)"))
        await asyncio.sleep(0)
        known = await raised(asyncpg.InterfaceError, connection.execute("SELECT 1"))
        assert known.kind is Kind.PERMANENT
        await sleeping
        known = await raised(asyncpg.DataError, connection.fetch("SELECT $1::int", "one"))
        assert known.kind is Kind.PERMANENT
        known = await raised(asyncpg.ClientConfigurationError, asyncpg.connect("no://such"))
        assert known.kind is Kind.PERMANENT

    connected(test, postgres_url)


def test_a_statement_whose_table_changed_is_worth_repeating(postgres_url):
    """In a transaction asyncpg cannot prepare it anew; the next transaction does."""

    async def test(connection):
        await connection.execute("CREATE TEMPORARY TABLE changing (a int)")
        await connection.fetch("SELECT * FROM changing")
        await connection.execute("ALTER TABLE changing ADD COLUMN b int")
        async with connection.transaction():
            known = await raised(
                asyncpg.InvalidCachedStatementError, connection.fetch("SELECT * FROM changing")
            )
            assert (known.kind, known.is_ambiguous) == (Kind.TRANSIENT, False)
            raise asyncpg.InterfaceError("leave")

    with pytest.raises(asyncpg.InterfaceError, match="leave"):
        connected(test, postgres_url)


def test_a_statement_that_is_too_slow_is_a_timeout(postgres_url):
    """It is Python's own TimeoutError."""

    async def test(connection):
        slow = connection.fetch("SELECT pg_sleep(60)", timeout=0.02)
        assert (await raised(TimeoutError, slow)).kind is Kind.TIMEOUT

    connected(test, postgres_url)


def test_no_server_of_the_role_that_was_asked_for_is_worth_repeating(postgres_url):
    """As until a failover ends."""
    connecting = asyncpg.connect(postgres_url, target_session_attrs="standby")
    error = asyncpg.exceptions.TargetServerAttributeNotMatched
    assert asyncio.run(raised(error, connecting)).kind is Kind.TRANSIENT
