"""Values that a store cannot take: its limit, and keyed calls whose results are larger.

On every store, with the real server and its real limit: NATS with its default max_payload of 1 MB,
Valkey with proto-max-bulk-len at its least, SQLite with a lowered SQLITE_LIMIT_LENGTH, PostgreSQL
and memory by `max_result`.
"""

import asyncio
import sqlite3
import warnings
from uuid import uuid4

import psycopg
import pytest
import redis as redis_py

from mainstay import Engine, MainstayWarning, ResultNotKept, StoredFailure
from mainstay.ports import max_value_of
from mainstay.stores.memory import MemoryStore
from mainstay.stores.nats.store import NatsStore
from mainstay.stores.postgres.store import PostgresStore
from mainstay.stores.redis.store import RedisStore
from mainstay.stores.sqlite.store import SqliteStore
from mainstay.testing.stores import StoreContract
from tests.servers.nats import start_nats
from tests.servers.valkey import start_valkey

BEYOND = 1_200_000
"""Characters of a result that none of these stores takes."""


class LimitedSqlite(SqliteStore):
    """A file whose connections take a megabyte at most, as a program may set."""

    def _connect(self):
        connection = super()._connect()
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        return connection


@pytest.fixture(scope="module")
def nats_server(tmp_path_factory):
    """With the limit that every server has, unless its configuration has another."""
    server = start_nats(tmp_path_factory.mktemp("nats"), max_payload=1_048_576)
    yield server
    server.kill()


@pytest.fixture(scope="module")
def small_valkey(tmp_path_factory):
    """The smallest proto-max-bulk-len that a server takes."""
    folder = tmp_path_factory.mktemp("valkey")
    server = start_valkey(folder, False, "--proto-max-bulk-len", "1mb")
    yield server
    server.kill()


@pytest.fixture(params=["memory", "sqlite", "postgresql", "redis", "nats"])
def limited(request, tmp_path):
    """A function that opens the store, and the options that limit its results."""
    if request.param == "memory":
        return MemoryStore, {"max_result": 1_000_000}
    if request.param == "sqlite":
        return lambda: LimitedSqlite(f"sqlite:///{tmp_path}/a.db"), {}
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres_database")
        return lambda: PostgresStore(url), {"max_result": 1_000_000}
    if request.param == "redis":
        server = request.getfixturevalue("small_valkey")
        prefix = uuid4().hex
        return lambda: RedisStore(f"{server.url}?prefix={prefix}"), {}
    server = request.getfixturevalue("nats_server")
    bucket = uuid4().hex
    return lambda: NatsStore(f"{server.url}?bucket={bucket}"), {}


@pytest.fixture
def engine(limited):
    opening, options = limited
    with Engine(opening(), sinks=[], audit=False, share=None, **options) as engine:
        yield engine


class Payment:
    """A function that counts how often it was run."""

    def __init__(self, *ends):
        self.ends = ends
        self.runs = 0

    def __call__(self):
        self.runs += 1
        end = self.ends[0]
        if isinstance(end, Exception):
            raise end
        return end

    async def awaited(self):
        return self()


def called(engine, payment, is_async, **options):
    operation = engine.operation("pay", key="order-7", **options)
    return asyncio.run(operation.acall(payment.awaited)) if is_async else operation.call(payment)


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_payment_with_a_result_that_the_store_cannot_take_is_made_once(engine, is_async):
    """The caller has the result and a warning; later calls raise ResultNotKept, and run nothing."""
    payment = Payment("x" * BEYOND)
    with pytest.warns(MainstayWarning, match="the result of pay is not kept"):
        assert called(engine, payment, is_async) == payment.ends[0]
    for _ in range(2):
        with pytest.raises(ResultNotKept, match="pay was done at ") as caught:
            called(engine, payment, is_async)
        assert (caught.value.key, caught.value.operation) == ("order-7", "pay")
    assert payment.runs == 1
    counts = engine.records.counts()
    assert (counts["not_kept"], counts["record"], counts["hit"]) == (1, 0, 2)
    assert engine.health().to_dict()["counts"]["not_kept"] == 1


@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
def test_a_failure_that_the_store_cannot_take_is_recorded_by_its_class(engine, is_async):
    """The caller has it whole; later calls raise a StoredFailure, and run nothing."""
    payment = Payment(ValueError("declined", "x" * BEYOND))
    with pytest.raises(ValueError, match="declined"):
        called(engine, payment, is_async)
    with pytest.raises(StoredFailure, match=r"ValueError: .*declined"):
        called(engine, payment, is_async)
    assert payment.runs == 1


def test_another_process_raises_too(limited):
    """Not only the one that ran it; memory is one process's alone."""
    opening, options = limited
    payment = Payment("x" * BEYOND)
    with Engine(opening(), sinks=[], audit=False, **options) as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        called(engine, payment, False)
        if "durable" not in engine.store.abilities:
            return
    other = Engine(opening(), sinks=[], audit=False, **options)
    with other, pytest.raises(ResultNotKept):
        called(other, payment, False)
    assert payment.runs == 1


def test_a_result_below_the_limit_is_kept(engine):
    """A limit that is near refuses nothing that fits."""
    payment = Payment("x" * 900_000)
    assert called(engine, payment, False) == called(engine, payment, True) == payment.ends[0]
    assert payment.runs == 1


def test_an_operation_may_keep_less_than_the_engine():
    """And another more."""
    with Engine(max_result=100, sinks=[]) as engine:
        with pytest.warns(MainstayWarning, match="50 are kept at most"):
            called(engine, Payment("x" * 60), False, max_result=50)
        more = engine.operation("other", key="k", max_result=1000)
        assert more.call(lambda: "x" * 500) == more.call(lambda: "never") == "x" * 500


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "1MB"])
def test_a_wrong_limit_is_refused(wrong):
    """By the engine, and by an operation."""
    with pytest.raises(ValueError, match="max_result"):
        Engine(max_result=wrong)
    with pytest.raises(ValueError, match="max_result"):
        Engine().operation("pay", key="k", max_result=wrong)


def test_the_limit_is_known_when_the_store_is_used(limited):
    """Read from the server or the connection, and shown by `describe`."""
    opening, _ = limited
    store = opening()
    try:
        store.read("s", "k")
        limits = {"memory": None, "sqlite": 1_000_000, "postgresql": 2**30 - 2**16}
        limits |= {"redis": 2**20 - 12, "nats": 2**20 - 256}
        assert max_value_of(store) == limits[store.describe()["store"]]
    finally:
        store.close()


# --- in a transaction of the caller's own ---------------------------------------------------------


def test_a_result_is_not_kept_within_a_transaction_of_sqlite(tmp_path):
    """It is committed with the effect; the transaction goes on."""
    url, payment = f"sqlite:///{tmp_path}/a.db", Payment("x" * BEYOND)
    with Engine(LimitedSqlite(url), sinks=[], audit=False) as engine:
        connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)
        connection.execute("CREATE TABLE paid (id)")
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO paid VALUES (7)")
        with pytest.warns(MainstayWarning, match="not kept"):
            called(engine, payment, False, connection=connection)
        connection.execute("COMMIT")
        with pytest.raises(ResultNotKept):
            called(engine, payment, False)
        assert connection.execute("SELECT count(*) FROM paid").fetchone() == (1,)
        connection.close()
    assert payment.runs == 1


def test_a_result_is_not_kept_within_a_transaction_of_postgresql(postgres_database):
    """The same; the server refuses nothing, so the transaction is not aborted."""
    payment = Payment("x" * BEYOND)
    with (
        Engine(postgres_database, sinks=[], audit=False, max_result=1_000_000) as engine,
        psycopg.connect(postgres_database) as connection,
    ):
        connection.execute("CREATE TABLE paid (id int)")
        connection.execute("INSERT INTO paid VALUES (7)")
        with pytest.warns(MainstayWarning, match="not kept"):
            called(engine, payment, False, connection=connection)
        connection.commit()
        with pytest.raises(ResultNotKept):
            called(engine, payment, False)
    assert payment.runs == 1


# --- a server that does not give its settings -----------------------------------------------------


def test_a_payment_is_made_once_on_a_server_that_gives_no_settings(small_valkey):
    """Its limit is taken for the usual one. It cuts the connection, which is taken for the size."""
    client = redis_py.Redis.from_url(small_valkey.url)
    client.execute_command("ACL", "SETUSER", "app", "on", ">pw", "~*", "+@all", "-config")
    url = small_valkey.url.replace("redis://", "redis://app:pw@")
    payment = Payment("x" * BEYOND)
    with Engine(RedisStore(f"{url}?prefix={uuid4().hex}"), sinks=[]) as engine:
        with pytest.warns(MainstayWarning, match="not kept: "):
            called(engine, payment, False)
        assert engine.store.max_value == 512 * 2**20 - 12
        with pytest.raises(ResultNotKept):
            called(engine, payment, False)
    assert payment.runs == 1


# --- the contract, where the limits are small -----------------------------------------------------


class TestLimitedSqlite(StoreContract):
    """As every store."""

    @pytest.fixture(autouse=True)
    def _file(self, tmp_path):
        self.url = f"sqlite:///{tmp_path}/a.db"

    def open(self):
        return LimitedSqlite(self.url)


class TestLimitedNats(StoreContract):
    """As every store."""

    @pytest.fixture(autouse=True)
    def _server(self, nats_server):
        self.url = nats_server.url

    def open(self):
        return NatsStore(self.url)


class TestLimitedRedis(StoreContract):
    """As every store."""

    @pytest.fixture(autouse=True)
    def _server(self, small_valkey):
        self.url = small_valkey.url

    def open(self):
        return RedisStore(self.url)
