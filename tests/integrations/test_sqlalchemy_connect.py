"""SQLAlchemy connects to PostgreSQL within the time that is left, or not at all.

No driver has a timeout of its own here: what ends is ended by the deadline.
"""

import asyncio
import threading

import pytest
import sqlalchemy
from sqlalchemy import event
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

import mainstay
from mainstay import deadline
from mainstay.core.known.kind import Kind
from mainstay.core.retry.kinds import kind_of
from mainstay.integrations.sqlalchemy import arun_transaction, attach, run_transaction
from mainstay.testing import FaultProxy
from tests.integrations.transaction_hands import scheme
from tests.processes import wait_until

THREE = mainstay.RetryPolicy(max_attempts=3)
LATE = (sqlalchemy.exc.OperationalError, TimeoutError)
SOURCES = {"engine": lambda engine: engine, "sessionmaker": sessionmaker, "session": Session}


@pytest.fixture
def proxy(postgres_url):
    with FaultProxy("127.0.0.1", int(postgres_url.rpartition(":")[2].partition("/")[0])) as proxy:
        yield proxy


def one(used):
    return used.execute(sqlalchemy.text("SELECT 1")).scalar()


async def aone(used):
    return (await used.execute(sqlalchemy.text("SELECT 1"))).scalar()


def is_late(error):
    """A timeout, and nothing was sent; one attempt."""
    known = kind_of(error)
    return (known.kind, known.is_ambiguous) == (Kind.TIMEOUT, False)


@pytest.fixture
def engine(proxy, postgres_url, request):
    driver = getattr(request, "param", "psycopg")
    made = sqlalchemy.create_engine(scheme(proxy.url(postgres_url), driver))
    yield made
    made.dispose()


@pytest.mark.parametrize("engine", ["psycopg", "psycopg2"], indirect=True)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_server_that_does_not_answer_is_given_up(proxy, engine, source):
    """Its port accepts; libpq would wait for ever."""
    proxy.black_hole()
    with deadline.within(0.3), pytest.raises(LATE) as caught:
        run_transaction(source(engine), one, policy=THREE)
    assert is_late(caught.value)
    proxy.heal()
    with deadline.within(60.0):
        assert run_transaction(engine, one, policy=THREE) == 1


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
@pytest.mark.parametrize("source", [lambda engine: engine, async_sessionmaker])
def test_in_a_loop_as_well(proxy, postgres_url, driver, source):
    """By the function with which SQLAlchemy has a driver connect."""

    async def main():
        engine = create_async_engine(scheme(proxy.url(postgres_url), driver))
        proxy.black_hole()
        with deadline.within(0.3), pytest.raises(LATE) as caught:
            await arun_transaction(source(engine), aone, policy=THREE)
        proxy.heal()
        with deadline.within(60.0):
            assert await arun_transaction(engine, aone, policy=THREE) == 1
        await engine.dispose()
        return caught.value

    assert is_late(asyncio.run(main()))


def test_a_connection_that_comes_late_is_closed(proxy, engine):
    """It belongs to nobody."""
    proxy.latency(0.3)
    with deadline.within(0.2), pytest.raises(LATE):
        run_transaction(engine, one, policy=THREE)
    assert proxy.connections == 1
    wait_until(lambda: proxy.open_connections == 0, "the connection has ended")


# --- the pool -------------------------------------------------------------------------------------

ONE = {"pool_size": 1, "max_overflow": 0, "pool_timeout": 600}


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_pool_that_has_no_connection_free_is_given_up(postgres_url, tmp_path, database, source):
    """With any database; nothing was sent. `pool_timeout` holds where there is no deadline."""
    lite = f"sqlite:///{tmp_path}/shop.db"
    url = lite if database == "sqlite" else scheme(postgres_url, "psycopg")
    engine = sqlalchemy.create_engine(url, **ONE)
    with engine.connect():
        with deadline.within(0.3), pytest.raises(sqlalchemy.exc.TimeoutError) as caught:
            run_transaction(source(engine), one, policy=THREE)
        assert is_late(caught.value)
    with deadline.within(60.0):
        assert run_transaction(source(engine), one, policy=THREE) == 1
    engine.dispose()
    with engine.connect(), deadline.within(0.3), pytest.raises(sqlalchemy.exc.TimeoutError):
        run_transaction(source(engine), one, policy=THREE)
    engine.dispose()


def test_the_pool_of_an_async_engine_as_well(postgres_url):
    """Its queue waits in the loop."""

    async def main():
        engine = create_async_engine(scheme(postgres_url, "asyncpg"), **ONE)
        async with engine.connect():
            with deadline.within(0.3), pytest.raises(sqlalchemy.exc.TimeoutError) as caught:
                await arun_transaction(engine, aone, policy=THREE)
        await engine.dispose()
        return caught.value

    assert is_late(asyncio.run(main()))


def test_an_attached_engine_keeps_the_limit_when_it_is_disposed_of(tmp_path):
    """It has another pool from then on."""
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db", **ONE)
    attach(engine)
    engine.dispose()
    with engine.connect(), deadline.within(0.1), pytest.raises(sqlalchemy.exc.TimeoutError):
        engine.connect()
    engine.dispose()


def test_the_timeout_of_a_pool_that_is_shorter_stays(tmp_path):
    """The deadline only shortens it."""
    short = ONE | {"pool_timeout": 0.05}
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/shop.db", **short)
    attach(engine)
    with engine.connect():
        with deadline.within(600.0), pytest.raises(sqlalchemy.exc.TimeoutError):
            engine.connect()
        with pytest.raises(sqlalchemy.exc.TimeoutError):
            engine.connect()
    engine.dispose()


# --- until it can be used -------------------------------------------------------------------------


def lose_new_ones(proxy, engine, *, first):
    """The network loses each new connection, before or after SQLAlchemy has asked its own."""

    def lose(_connection, _record):
        proxy.black_hole()

    event.listen(engine, "connect", lose, insert=first)


@pytest.mark.parametrize("engine", ["psycopg", "psycopg2"], indirect=True)
def test_the_first_connection_of_an_engine_is_asked_in_time(proxy, engine):
    """It is logged in, and the question for the version of the server has no answer."""
    lose_new_ones(proxy, engine, first=True)
    with deadline.within(0.3), pytest.raises(LATE):
        run_transaction(engine, one, policy=THREE)
    assert proxy.connections == 1
    proxy.heal()
    wait_until(lambda: proxy.open_connections == 0, "the connection has ended")


@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_the_first_connection_in_a_loop_as_well(proxy, postgres_url, driver):
    """The same; a driver that is cancelled would clean up for seconds."""

    async def main():
        engine = create_async_engine(scheme(proxy.url(postgres_url), driver))
        lose_new_ones(proxy, engine.sync_engine, first=True)
        with deadline.within(0.3), pytest.raises((*LATE, sqlalchemy.exc.DBAPIError, OSError)):
            await arun_transaction(engine, aone, policy=THREE)
        proxy.heal()
        await engine.dispose()

    asyncio.run(main())


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_connection_of_the_pool_is_pinged_in_time(proxy, postgres_url, driver):
    """`pool_pre_ping` asks the one that the pool has kept; then it connects, which fails too."""
    made = scheme(proxy.url(postgres_url), driver)
    engine = sqlalchemy.create_engine(made, pool_pre_ping=True)
    assert run_transaction(engine, one, policy=THREE) == 1
    assert run_transaction(engine, one, policy=THREE) == 1
    proxy.black_hole()
    with deadline.within(0.3), pytest.raises(LATE):
        run_transaction(engine, one, policy=THREE)
    proxy.heal()
    with deadline.within(60.0):
        assert run_transaction(engine, one, policy=THREE) == 1
        assert run_transaction(engine, one, policy=THREE) == 1
    engine.dispose()


@pytest.mark.parametrize("engine", ["psycopg", "psycopg2"], indirect=True)
@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_a_rollback_waits_no_longer_than_the_deadline(proxy, engine, source):
    """The function fails on a network that has lost the connection; its error comes through."""

    def fail(used):
        one(used)
        proxy.black_hole()
        struck.append(True)
        raise KeyError("mine")

    struck = []
    for seconds in (0.3, 3.0, 30.0):  # a busy machine needs more to come so far
        with deadline.within(seconds), pytest.raises((KeyError, *LATE)) as caught:
            run_transaction(source(engine), fail, policy=THREE)
        proxy.heal()
        if struck:
            break
    assert caught.value.args == ("mine",)
    assert run_transaction(engine, one, policy=THREE) == 1


def test_a_new_connection_is_limited_only_until_it_can_be_used(engine):
    """The pool lends it later to those who have more time, or no limit."""
    attach(engine)
    with deadline.within(60.0), engine.connect() as connection:
        assert "wait" not in vars(connection.connection.driver_connection)


def test_after_the_deadline_nothing_is_begun(proxy, engine):
    """No thread connects: what it made could come before the look at the clock, and be used."""
    attach(engine)
    with deadline.within(1e-9), pytest.raises(LATE):
        engine.connect()
    assert proxy.connections == 0


def test_other_listeners_still_set_their_options(engine):
    """A token, for example, which is made for each connection."""
    seen = []

    @event.listens_for(engine, "do_connect")
    def name(_dialect, _record, _args, options):
        options["application_name"] = "shop"
        seen.append(threading.current_thread().name)

    with deadline.within(60.0):
        shown = run_transaction(
            engine,
            lambda used: used.exec_driver_sql("SHOW application_name").scalar(),
            policy=THREE,
        )
    assert (shown, len(seen)) == ("shop", 1)


def test_what_connecting_raises_comes_through(proxy, postgres_url):
    """As from the driver, wrapped by SQLAlchemy: there is no such database."""
    url = scheme(proxy.url(postgres_url), "psycopg").rpartition("/")[0] + "/nowhere"
    engine = sqlalchemy.create_engine(url)
    with deadline.within(60.0), pytest.raises(sqlalchemy.exc.OperationalError) as caught:
        run_transaction(engine, one, policy=THREE)
    assert kind_of(caught.value).kind is Kind.PERMANENT
    assert proxy.connections == 1


def test_without_a_deadline_and_for_other_databases_nothing_changes(engine):
    """The connection is made where it is asked for."""
    assert run_transaction(engine, one, policy=THREE) == 1
    before = engine.dialect.connect
    run_transaction(engine, one, policy=THREE)
    assert engine.dialect.connect is before, "once for an engine"
    lite = sqlalchemy.create_engine("sqlite://")
    run_transaction(lite, one, policy=THREE)
    lite.dispose()
    assert "connect" not in vars(lite.dialect)
