"""Connections that are made and answered in time, or ended; and what psycopg2 has of its own.

Nothing here has a timeout of its own: what ends is ended by the deadline.
"""

import asyncio
import contextlib
import os
import socket
import threading

import psycopg
import psycopg2
import psycopg2.pool
import pytest

import mainstay
from mainstay import deadline
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations import psycopg as for_psycopg
from mainstay.integrations import psycopg2 as for_psycopg2
from mainstay.integrations.connection_deadline import connect_within, ended_after
from mainstay.testing import FaultProxy
from tests.processes import wait_until

THREE = mainstay.RetryPolicy(max_attempts=3)
SOON = 0.3


@pytest.fixture
def proxy(postgres_url):
    with FaultProxy("127.0.0.1", int(postgres_url.rpartition(":")[2].partition("/")[0])) as proxy:
        yield proxy


@pytest.fixture
def url(proxy, postgres_url):
    return proxy.url(postgres_url)


def one(connection):
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        return cursor.fetchone()


# --- the end of a connection ----------------------------------------------------------------------


class Ends:
    """A socket and its peer, and how often it was closed."""

    def __init__(self):
        self.ours, self.theirs = socket.socketpair()
        self.closed = 0

    def fileno(self):
        return self.ours.fileno()

    def close(self):
        self.closed += 1
        self.ours.close()


@pytest.fixture
def ends():
    made = Ends()
    yield made
    made.ours.close()
    made.theirs.close()


def no_thread_is_left():
    return "mainstay-deadline" not in {thread.name for thread in threading.enumerate()}


def test_a_wait_that_is_too_long_ends_with_the_connection(ends):
    """The reader sees the end of it, its failure has a note, and it is closed."""

    def read():
        with ended_after(0.01, ends, ends.close):
            assert ends.ours.recv(1) == b""
            raise ConnectionResetError

    with pytest.raises(ConnectionResetError) as caught:
        read()
    assert caught.value.__notes__ == ["mainstay: the server had not answered at the deadline"]
    assert ends.closed == 1
    assert ends.theirs.recv(1) == b""


def test_a_wait_that_ends_in_time_leaves_the_connection_as_it_is(ends):
    """Also one that fails: no note, and the connection can be used."""
    with pytest.raises(ValueError) as caught, ended_after(60.0, ends, ends.close):
        raise ValueError
    assert not hasattr(caught.value, "__notes__")
    assert ends.closed == 0
    ends.ours.send(b"x")
    assert ends.theirs.recv(1) == b"x"
    wait_until(no_thread_is_left, "no thread is left")


def test_the_file_that_has_its_number_later_is_not_touched(ends):
    """The connection was closed in the block, and its number is that of another socket."""
    other, peer = socket.socketpair()
    with other, peer, ended_after(0.01, ends, ends.close):
        number = ends.ours.detach()
        os.dup2(other.fileno(), number)
        wait_until(no_thread_is_left, "the time is over")
        assert ends.theirs.recv(1) == b"", "the connection has ended"
        peer.send(b"x")
        assert other.recv(1) == b"x"
        os.close(number)


def test_what_connecting_raises_and_returns_comes_through():
    """From its thread, with the context of the caller."""

    def fail():
        raise KeyError("no")

    with deadline.within(60.0):
        assert connect_within(60.0, deadline.remaining, TimeoutError, print) > 50.0
    with pytest.raises(KeyError, match="no"):
        connect_within(60.0, fail, TimeoutError, print)


# --- connecting -----------------------------------------------------------------------------------


def opened_by_psycopg(url):
    return for_psycopg.run_transaction(lambda: psycopg.connect(url), one, policy=THREE)


def opened_by_psycopg_async(url):
    async def transaction(connection):
        return await (await connection.execute("SELECT 1")).fetchone()

    async def connect():
        return await psycopg.AsyncConnection.connect(url)

    return asyncio.run(for_psycopg.arun_transaction(connect, transaction, policy=THREE))


def opened_by_psycopg2(url):
    return for_psycopg2.run_transaction(lambda: psycopg2.connect(url), one, policy=THREE)


def lent_by_a_pool_of_psycopg2(url):
    pool = psycopg2.pool.ThreadedConnectionPool(0, 1, url)  # it connects when it is asked
    return for_psycopg2.run_transaction(pool, one, policy=THREE)


@pytest.mark.parametrize(
    "call",
    [opened_by_psycopg, opened_by_psycopg_async, opened_by_psycopg2, lent_by_a_pool_of_psycopg2],
)
def test_a_server_that_does_not_answer_is_given_up(proxy, url, call):
    """Its port accepts; libpq would wait for ever. A timeout, and nothing was sent."""
    proxy.black_hole()
    with deadline.within(SOON), pytest.raises((psycopg.Error, psycopg2.Error)) as caught:
        call(url)
    known = kind_of(caught.value)
    assert (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, False)
    proxy.heal()
    with deadline.within(60.0):
        assert call(url) == (1,)
    assert call(url) == (1,)


@pytest.mark.parametrize("call", [opened_by_psycopg, opened_by_psycopg2])
def test_a_connection_that_comes_late_is_closed(proxy, url, call):
    """It belongs to nobody."""
    proxy.latency(0.3)
    with deadline.within(0.2), pytest.raises((psycopg.Error, psycopg2.Error)):
        call(url)
    wait_until(lambda: proxy.open_connections == 0, "the connection has ended")


# --- psycopg before 3.3 ---------------------------------------------------------------------------


@pytest.fixture
def no_timeout(monkeypatch):
    """As psycopg was before its `wait` had a timeout."""
    monkeypatch.setattr(for_psycopg, "_CAN_WAIT", False)


@pytest.mark.usefixtures("no_timeout")
def test_an_older_psycopg_is_ended_at_the_deadline(proxy, url):
    """The connection is closed, and the failure may have been applied."""

    def lose(connection):
        proxy.black_hole()
        return one(connection)

    with psycopg.connect(url) as connection:
        with deadline.within(60.0):
            assert for_psycopg.run_transaction(connection, one, policy=THREE) == (1,)
        with deadline.within(SOON), pytest.raises(psycopg.OperationalError) as caught:
            for_psycopg.run_transaction(connection, lose, policy=THREE)
        assert connection.closed
    assert kind_of(caught.value).is_ambiguous


@pytest.mark.usefixtures("no_timeout")
def test_an_older_async_psycopg_is_ended_at_the_deadline(proxy, url):
    """The same, without a coroutine that nobody waits for."""

    async def fine(connection):
        return await (await connection.execute("SELECT 1")).fetchone()

    async def lose(connection):
        proxy.black_hole()
        return await fine(connection)

    async def main():
        opened = await psycopg.AsyncConnection.connect(url)
        async with opened as connection:
            with deadline.within(60.0):
                run = for_psycopg.arun_transaction
                assert await run(connection, fine, policy=THREE) == (1,)
            with deadline.within(SOON), pytest.raises(psycopg.OperationalError) as caught:
                await run(connection, lose, policy=THREE)
            assert connection.closed
        return caught.value

    assert kind_of(asyncio.run(main())).is_ambiguous


# --- psycopg2 -------------------------------------------------------------------------------------


def test_a_connection_in_a_transaction_or_in_autocommit_is_refused(postgres_url):
    """It could not be begun again, or would not be one."""
    with contextlib.closing(psycopg2.connect(postgres_url)) as connection:
        one(connection)
        with pytest.raises(mainstay.UsageError, match="in a transaction"):
            for_psycopg2.run_transaction(connection, one, policy=THREE)
        connection.rollback()
        connection.autocommit = True
        with pytest.raises(mainstay.UsageError, match="in autocommit"):
            for_psycopg2.run_transaction(connection, one, policy=THREE)
        connection.autocommit = False
        for _ in range(2):  # the limit of its session is looked up once
            with deadline.within(20.0):
                assert for_psycopg2.run_transaction(connection, one, policy=THREE) == (1,)


def test_a_failure_that_the_function_swallowed_is_not_taken_for_success(postgres_url):
    """The server answers COMMIT with a rollback then, and no error."""

    def swallow(connection):
        with contextlib.suppress(psycopg2.Error), connection.cursor() as cursor:
            cursor.execute("SELECT * FROM nowhere")

    failed = pytest.raises(psycopg2.errors.InFailedSqlTransaction)
    with contextlib.closing(psycopg2.connect(postgres_url)) as connection, failed:
        for_psycopg2.run_transaction(connection, swallow, policy=THREE)


def test_a_failure_of_the_function_comes_through_from_a_lost_connection(proxy, url):
    """Rolling back waits for no answer beyond the deadline, and does not replace the error."""

    def fail(connection):
        one(connection)
        proxy.black_hole()
        raise KeyError("mine")

    with contextlib.closing(psycopg2.connect(url)) as connection, deadline.within(SOON):
        with pytest.raises(KeyError, match="mine"):
            for_psycopg2.run_transaction(connection, fail, policy=THREE)
        assert connection.closed


def test_a_pool_of_psycopg2_gets_its_connections_back(proxy, url):
    """One that was ended is not lent again."""
    pool = psycopg2.pool.SimpleConnectionPool(1, 1, url)
    lent = []

    def lose(connection):
        lent.append(connection)
        proxy.black_hole()
        one(connection)

    def fine(connection):
        lent.append(connection)
        return one(connection)

    with deadline.within(SOON), pytest.raises(psycopg2.OperationalError):
        for_psycopg2.run_transaction(pool, lose, policy=THREE)
    proxy.heal()
    for _ in range(2):
        assert for_psycopg2.run_transaction(pool, fine, policy=THREE) == (1,)
    assert lent[0] is not lent[1]
    assert lent[1] is lent[2]
    pool.closeall()
