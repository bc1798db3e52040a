"""The PostgreSQL store: the contract on a real server, and what goes wrong with servers."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections import deque
from types import SimpleNamespace
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import trio

from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.deadline import within
from mainstay.errors import MissingExtraError, StoreError, StoreUnavailable
from mainstay.stores.migrations import scripts
from mainstay.stores.postgres import pool as postgres_pool
from mainstay.stores.postgres.pool import TimedOutError
from mainstay.stores.postgres.store import PostgresStore
from mainstay.testing.stores import StoreContract
from tests.processes import run_at_once
from tests.servers.postgres import start_postgres

SOON = 30.0
"""Seconds that anything here may take at most."""
WAITING = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


def put(data, expires=None):
    return lambda value, now: (Change(data, expires), value)


def count(value, now):
    return Change(str(int(value or b"0") + 1).encode()), None


def look(value, now):
    return KEEP, value


def wait_for(condition):
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.01)


def in_threads(number, function):
    """Runs a function so often at once; what each raised or returned."""
    answers = [None] * number

    def run(index):
        try:
            answers[index] = function(index)
        except Exception as error:
            answers[index] = error

    threads = [threading.Thread(target=run, args=(index,)) for index in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert not any(thread.is_alive() for thread in threads)
    return answers


def ask(url, question, *values):
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(question, values).fetchone()


def sessions(url):
    """How many connections of a store there are."""
    return ask(url, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mainstay'"
        " AND datname = current_database()")[0]  # fmt: skip


@pytest.fixture
def url(postgres_database):
    return postgres_database


@pytest.fixture
def store(url):
    store = PostgresStore(url)
    yield store
    store.close()


@pytest.fixture
def server():
    """A server of one's own, to be stopped, killed and paused."""
    server = start_postgres()
    yield server
    server.kill()


@pytest.fixture
def other(url):
    """A connection of the caller's own."""
    with psycopg.connect(url) as connection:
        yield connection
        connection.rollback()


class TestPostgresStore(StoreContract):
    """On a server of the tests' own."""

    @pytest.fixture(autouse=True)
    def _place(self, url):
        self.url = f"{url}?timeout=60"  # a busy machine is no failure

    def open(self):
        return PostgresStore(self.url)


class TestRecords:
    """What is kept, and how."""

    def test_keys_with_every_character_are_kept_apart_and_in_order(self, store):
        """Also those that PostgreSQL's text cannot hold; the order is Python's own."""
        keys = ["\x00", "\x00\x01", "\x01", "\x01\x00", "\x01\x01", "\x02", "a", "a\x00", "a\x01"]
        keys += ["Z", "é", "\uffff", "\U0001f600"]
        for key in keys:
            store.transact("s\x00", key, put(key.encode()))
        assert store.scan("s\x00") == [(key, key.encode()) for key in sorted(keys)]
        assert store.scan("s\x00", after="a\x00", limit=1) == [("a\x01", b"a\x01")]

    def test_a_key_of_two_kilobytes_is_kept_and_a_longer_one_refused(self, store):
        """The limit is PostgreSQL's, and the message names it."""
        long = "".join(chr(0x4E00 + number * 7 % 5000) for number in range(700))
        store.transact("s", long, put(b"1"))
        assert store.read("s", long)[0] == b"1"
        with pytest.raises(StoreError, match="3001 bytes together, and PostgreSQL takes 2600"):
            store.read("s", "x" * 3000)
        with pytest.raises(StoreError, match="2801 bytes together"):  # few characters, many bytes
            store.read("s", "\U0001f600" * 700)

    def test_a_key_that_is_no_text_is_refused(self, store):
        """Half a surrogate pair cannot be sent."""
        with pytest.raises(StoreError, match="is no text"):
            store.read("s", "\ud800")

    def test_values_of_megabytes_come_back(self, store):
        """Eight of them, sync and async, written twice."""
        data = os.urandom(1 << 20) * 8
        store.transact("s", "k", put(data))
        assert asyncio.run(store.atransact("s", "k", put(data[::-1]))) == data
        assert store.read("s", "k")[0] == data[::-1]

    def test_a_decision_to_keep_writes_nothing(self, store, url):
        """Not even a row version."""
        store.transact("s", "k", put(b"1"))
        before = ask(url, "SELECT xmin::text, ctid::text FROM mainstay_kept")
        store.transact("s", "k", look)
        store.transact("s", "absent", lambda value, now: (DROP, None))
        assert ask(url, "SELECT xmin::text, ctid::text FROM mainstay_kept") == before

    def test_a_step_that_was_overtaken_is_decided_again(self, store):
        """On what the faster one wrote, whatever each of them did."""
        for first, second in ((None, b"1"), (b"1", b"2"), (b"2", None), (None, None)):
            seen = []

            def decide(value, now, second=second, seen=seen):
                if not seen:
                    store.transact("s", "k", lambda _value, _now: (Change(second), None))
                seen.append(value)
                return Change(b"mine"), None

            store.transact("s", "k", lambda _value, _now, first=first: (Change(first), None))
            store.transact("s", "k", decide)
            assert seen == ([first, second] if first != second else [first])
            assert store.read("s", "k")[0] == b"mine"

    def test_a_step_may_be_overtaken_again(self, store):
        """A record that vanished cannot be locked, and somebody else may make it first."""
        others, seen = [DROP, Change(b"again")], []

        def decide(value, now):
            seen.append(value)
            if others:
                change = others.pop(0)
                store.transact("s", "k", lambda _value, _now: (change, None))
            return Change(b"mine"), None

        store.transact("s", "k", put(b"first"))
        store.transact("s", "k", decide)
        assert seen == [b"first", None, b"again"]
        assert store.read("s", "k")[0] == b"mine"

    def test_who_was_overtaken_may_keep_or_fail(self, store):
        """And leaves no lock and no change."""
        for end in (KEEP, None):
            seen = []

            def decide(value, now, end=end, seen=seen):
                seen.append(value)
                if len(seen) == 1:
                    store.transact("s", "k", put(b"theirs"))
                    return Change(b"mine"), None
                return end, 1 / (end is not None)

            store.transact("s", "k", put(b"before"))
            if end is KEEP:
                store.transact("s", "k", decide)
            else:
                with pytest.raises(ZeroDivisionError):
                    store.transact("s", "k", decide)
            assert store.transact("s", "k", put(b"after")) == b"theirs"

    def test_the_clock_of_who_waited_is_read_after_the_wait(self, store, url, other):
        """Not the moment at which it began to wait."""
        seen = []

        def decide(value, now):
            if not seen:
                store.transact("s", "k", put(b"1"))
                other.execute("SELECT 1 FROM mainstay_kept FOR UPDATE")
                threading.Timer(0.3, other.rollback).start()
            seen.append(now)
            return Change(b"mine"), None

        store.transact("s", "k", put(b"0"))
        store.transact("s", "k", decide)
        assert seen[1] - seen[0] >= 0.3

    def test_another_default_isolation_changes_nothing(self, store, url):
        """A database may be set to SERIALIZABLE: steps are atomic by themselves."""
        with psycopg.connect(url, autocommit=True) as connection:
            name = connection.info.dbname
            connection.execute(
                f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"
            )
        strict = PostgresStore(url)
        assert in_threads(8, lambda _: [strict.transact("s", "k", count) for _ in range(5)])
        assert strict.read("s", "k")[0] == b"40"
        strict.close()

    def test_a_record_that_somebody_holds_costs_no_other_of_many(self, store, other):
        """It fails alone, when the time is over: the others have their answers."""
        for key in ("a", "b", "c"):
            store.transact("s", key, put(b"0"))
        other.execute("SELECT 1 FROM mainstay_kept WHERE key = 'b' FOR UPDATE")
        with within(2.0):
            answers = store.transact_many([("s", key, put(b"1")) for key in ("a", "b", "c")])
        assert isinstance(answers.pop(1), StoreUnavailable)
        assert answers == [b"0", b"0"]
        assert [value for _, value in store.scan("s")] == [b"1", b"0", b"1"]
        other.rollback()

    def test_purging_passes_over_what_somebody_holds(self, store, other):
        """It never waits."""
        for key in ("a", "b"):
            store.transact("s", key, put(b"x", 1.0))
        other.execute("SELECT 1 FROM mainstay_kept WHERE key = 'a' FOR UPDATE")
        assert store.purge(10) == 1
        other.rollback()
        assert store.purge(10) == 1


class TestConcurrency:
    """Threads, loops, processes."""

    def test_more_threads_than_connections_take_turns(self, url):
        """The pool is never exceeded, and everybody is served."""
        store = PostgresStore(f"{url}?pool=3")
        most = []

        def work(_):
            for _ in range(5):
                store.transact("s", "k", count)
            most.append(sessions(url))

        assert in_threads(12, work) == [None] * 12
        assert store.read("s", "k")[0] == b"60"
        assert max(most) <= 3
        store.close()

    def test_waiting_for_a_connection_has_an_end(self, url):
        """Where all are in use, the message says so; sync and async."""
        store = PostgresStore(f"{url}?pool=1")
        store.read("s", "k")  # a connection is there: what takes time is only the wait for it
        asyncio.run(store.aread("s", "k"))
        store.timeout = 0.2

        async def taken():
            pool = store._pools.of_loop()
            connection, _ = await pool.take(time.monotonic() + SOON)
            with pytest.raises(StoreUnavailable, match="every connection of the pool was in use"):
                await store.aread("s", "k")
            pool.give(connection)
            store.timeout = SOON
            return await store.aread("s", "k")

        with pytest.raises(StoreUnavailable, match="every connection of the pool was in use"):
            store.transact("s", "k", lambda value, now: store.read("s", "k"))
        assert asyncio.run(taken())[0] is store.read("s", "k")[0] is None
        store.close()

    def test_an_interruption_while_a_connection_comes_back_takes_no_place(self, url, monkeypatch):
        """Ctrl+C may come there too; a pool of one is as good as before."""
        store = PostgresStore(f"{url}?pool=1&timeout=10")

        def interrupted(*_):
            monkeypatch.undo()
            raise KeyboardInterrupt

        monkeypatch.setattr("mainstay.stores.postgres.pool._Idle.push", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.transact("s", "k", put(b"1"))
        assert store.read("s", "k")[0] == b"1"
        store.close()

    def test_an_idle_connection_keeps_no_large_record(self, store):
        """Neither what it wrote nor what it read; its cursor is used again for small ones."""
        pool = store._pools.of_threads()
        store.transact("s", "small", put(b"1"))
        first = pool.idle._connections[-1].own_cursor
        store.transact("s", "small", put(b"2"))
        assert pool.idle._connections[-1].own_cursor is first
        store.transact("s", "large", put(b"x" * 100_000))
        assert pool.idle._connections[-1].own_cursor is not first
        assert pool.idle._connections[-1].own_cursor.pgresult is None
        assert len(store.read("s", "large")[0]) == 100_000
        assert pool.idle._connections[-1].own_cursor.pgresult is None

    @pytest.mark.parametrize("bounded_by", ["psycopg", "mainstay"])
    def test_waiting_for_an_answer_has_an_end(self, store, monkeypatch, bounded_by):
        """Whoever bounds it, as psycopg does since 3.3; the connection is not used again."""
        if bounded_by == "mainstay":
            monkeypatch.setattr(postgres_pool, "_TimedOut", TimedOutError)
        pool = store._pools.of_threads()
        connection, _ = pool.take(time.monotonic() + SOON)
        connection.until = time.monotonic() + 0.2
        with pytest.raises(TimedOutError, match="did not answer in time"):
            connection.execute("SELECT pg_sleep(20)")
        assert connection.closed
        pool.give(connection)

        async def waiting():
            pool = store._pools.of_loop()
            connection, _ = await pool.take(time.monotonic() + SOON)
            connection.until = time.monotonic() + 0.2
            with pytest.raises(TimedOutError, match="did not answer in time"):
                await connection.execute("SELECT pg_sleep(20)")
            assert connection.closed
            pool.give(connection)
            return await store.aread("s", "k")

        assert asyncio.run(waiting())[0] is store.read("s", "k")[0] is None

    def test_waiting_for_a_record_has_an_end(self, store, url, other):
        """Where somebody holds it for too long, the message says so; sync and async."""
        store.transact("s", "k", put(b"1"))
        hasty = PostgresStore(f"{url}?timeout=2")
        assert hasty.read("s", "k")[0] == b"1"
        other.execute("SELECT 1 FROM mainstay_kept FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="held the record for more than 2 s"):
            hasty.transact("s", "k", put(b"2"))
        with pytest.raises(StoreUnavailable, match="held the record for more than 2 s"):
            asyncio.run(hasty.atransact("s", "k", put(b"2")))
        other.rollback()
        hasty.timeout = 30.0
        assert hasty.transact("s", "k", put(b"2")) == b"1"
        hasty.close()

    def test_loops_in_two_threads_have_their_own_connections(self, store, url):
        """And those of a loop that is over are closed when the next one comes."""

        async def many():
            await asyncio.gather(*(store.atransact("s", "k", count) for _ in range(20)))
            return await store.aread("s", "k")

        assert all(
            isinstance(answer, tuple) for answer in in_threads(2, lambda _: asyncio.run(many()))
        )
        assert asyncio.run(store.aread("s", "k"))[0] == b"40"
        wait_for(lambda: sessions(url) <= 2)
        store.close()
        wait_for(lambda: sessions(url) == 0)

    def test_it_works_under_trio(self, store):
        """In a thread of trio's."""

        async def main():
            await store.atransact("s", "k", put(b"1"))
            return await store.aread("s", "k")

        assert trio.run(main)[0] == b"1"

    def test_a_cancelled_step_leaves_no_lock_and_no_change(self, store, url, other):
        """Wherever it is cut, somebody else can go on at once."""
        store.transact("s", "k", put(b"1"))
        other.execute("SELECT 1 FROM mainstay_kept FOR UPDATE")

        async def cut():
            task = asyncio.create_task(store.atransact("s", "k", put(b"2")))
            await asyncio.to_thread(wait_for, is_waiting)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        def is_waiting():
            return ask(url, WAITING)[0] > 0

        asyncio.run(cut())
        wait_for(lambda: not is_waiting())
        other.rollback()
        assert store.transact("s", "k", put(b"3")) == b"1"

    def test_steps_cancelled_at_any_moment_free_their_connections(self, url):
        """Fifty of them, on two connections, cut after ever longer."""
        store = PostgresStore(f"{url}?pool=2")

        async def many():
            for number in range(50):
                task = asyncio.create_task(store.atransact("s", "k", count))
                await asyncio.sleep(number / 10_000)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await asyncio.gather(*(store.atransact("s", "k", count) for _ in range(4)))

        asyncio.run(many())
        assert sessions(url) <= 3
        store.close()

    def test_ten_processes_may_open_it_at_once(self, url):
        """On an empty database: one makes the tables, and all can count."""
        imports = """
            from mainstay.core.base.change import Change
            from mainstay.stores.postgres.store import PostgresStore
        """
        body = """
            store = PostgresStore(sys.argv[1])
            for _ in range(5):
                store.transact("s", "k", lambda value, now: (
                    Change(str(int(value or b"0") + 1).encode()), None))
            store.close()
        """
        assert run_at_once(10, imports, body, url) == (0, "")
        assert ask(url, "SELECT convert_from(value, 'UTF8') FROM mainstay_kept") == ("50",)
        assert ask(url, "SELECT count(*), max(version) FROM mainstay_schema") == (2, 2)

    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
    def test_a_forked_child_has_connections_of_its_own(self, store, url):
        """Both go on, and neither hears the other's answers."""
        store.transact("s", "k", put(b"0"))
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for _ in range(50):
                    store.transact("s", "child", count)
                store.close()
                status = 0
            finally:
                os._exit(status)
        for _ in range(50):
            store.transact("s", "parent", count)
        assert os.waitpid(child, 0)[1] == 0
        assert (store.read("s", "child")[0], store.read("s", "parent")[0]) == (b"50", b"50")


class TestWithin:
    """In a transaction of the caller's own."""

    @pytest.fixture(autouse=True)
    def _orders(self, store, url):
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE orders (id text PRIMARY KEY)")

    def test_it_commits_and_rolls_back_with_the_caller(self, store, url):
        """The record and the caller's own row, together or not at all."""
        for keeps in (False, True):
            with psycopg.connect(url) as connection:
                view = store.within(connection)
                connection.execute("INSERT INTO orders VALUES ('7')")
                assert view.transact("s", "k", put(b"1")) is None
                assert view.read("s", "k")[0] == b"1"
                assert store.read("s", "k")[0] is None, "nobody sees it before the commit"
                connection.commit() if keeps else connection.rollback()
            assert store.read("s", "k")[0] == (b"1" if keeps else None)
            assert ask(url, "SELECT count(*) FROM orders")[0] == keeps

    def test_it_commits_and_rolls_back_with_an_async_caller(self, store, url):
        """The same on an AsyncConnection."""

        async def main(keeps):
            async with await psycopg.AsyncConnection.connect(url) as connection:
                view = store.within(connection)
                assert await view.atransact("s", "k", put(b"1")) is None
                assert (await view.aread("s", "k"))[0] == b"1"
                assert (await store.aread("s", "k"))[0] is None
                await (connection.commit() if keeps else connection.rollback())

        for keeps in (False, True):
            asyncio.run(main(keeps))
            assert store.read("s", "k")[0] == (b"1" if keeps else None)

    @pytest.mark.parametrize("before", [None, b"0"])
    @pytest.mark.parametrize("ends", ["commit", "rollback"])
    def test_the_second_of_two_transactions_waits_for_the_first(self, store, url, before, ends):
        """And sees what it committed; record or none, within a transaction or without."""
        store.transact("s", "k", lambda value, now: (Change(before), None))
        seen = {}
        with psycopg.connect(url) as first, psycopg.connect(url) as second:
            store.within(first).transact("s", "k", put(b"first"))

            def work(index):
                view = (store.within(second), store)[index]
                seen[index] = view.transact("s", "k", put(str(index).encode()))
                if index == 0:
                    second.commit()

            threads = [threading.Thread(target=work, args=(index,)) for index in range(2)]
            for thread in threads:
                thread.start()
            wait_for(lambda: ask(url, WAITING)[0] == 2)
            getattr(first, ends)()
            for thread in threads:
                thread.join(SOON)
        start = b"first" if ends == "commit" else before
        assert seen in ({0: start, 1: b"0"}, {1: start, 0: b"1"})

    def test_the_second_of_two_async_transactions_waits_for_the_first(self, store, url):
        """The same awaiting."""

        async def main():
            async with (
                await psycopg.AsyncConnection.connect(url) as first,
                await psycopg.AsyncConnection.connect(url) as second,
            ):
                await store.within(first).atransact("s", "k", put(b"first"))
                task = asyncio.create_task(store.within(second).atransact("s", "k", put(b"second")))
                await asyncio.to_thread(wait_for, lambda: ask(url, WAITING)[0] == 1)
                await first.commit()
                return await task

        assert asyncio.run(main()) == b"first"

    def test_waiting_for_another_transaction_has_an_end(self, store, url, other):
        """And the caller's own lock_timeout is what it was."""
        store.timeout = 0.3
        with psycopg.connect(url) as second:
            second.execute("SET lock_timeout = '77s'")
            second.commit()
            store.within(second).transact("s", "free", put(b"1"))
            assert second.execute("SHOW lock_timeout").fetchone() == ("77s",)
            store.within(other).transact("s", "k", put(b"1"))
            with pytest.raises(StoreUnavailable, match=r"held the record for more than 0\.3 s"):
                store.within(second).transact("s", "k", put(b"2"))
            second.rollback()
            assert second.execute("SHOW lock_timeout").fetchone() == ("77s",)

    def test_a_serializable_caller_is_told_to_run_again(self, store, url, other):
        """Its snapshot cannot show what somebody else committed meanwhile."""
        with psycopg.connect(url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
            connection.execute("SELECT count(*) FROM mainstay_kept")
            store.transact("s", "k", put(b"1"))
            with pytest.raises(StoreUnavailable, match="run your transaction again"):
                store.within(connection).transact("s", "k", put(b"2"))
            connection.rollback()

    def test_the_callers_factories_do_not_matter(self, store, url):
        """Rows as dictionaries, and cursors that bind on the client."""
        with psycopg.connect(
            url, row_factory=psycopg.rows.dict_row, cursor_factory=psycopg.ClientCursor
        ) as connection:
            store.within(connection).transact("s", "k", put(b"1"))
        assert store.read("s", "k")[0] == b"1"

    def test_a_connection_that_commits_by_itself_needs_a_transaction(self, store, url):
        """Without one the promise could not be kept, so it is refused."""
        with psycopg.connect(url, autocommit=True) as connection:
            view = store.within(connection)
            with pytest.raises(StoreError, match=r"with connection\.transaction"):
                view.transact("s", "k", put(b"1"))
            with connection.transaction():
                view.transact("s", "k", put(b"1"))
        assert store.read("s", "k")[0] == b"1"

    def test_a_connection_of_sqlalchemy_has_one_of_psycopg_inside(self, store, other):
        """It is found where SQLAlchemy keeps it, sync and async."""
        outer = SimpleNamespace(connection=SimpleNamespace(driver_connection=other))
        for connection in (outer, SimpleNamespace(sync_connection=outer)):
            assert store.within(connection).transact("s", "k", look) is None
        with pytest.raises(StoreError, match="a SimpleNamespace is no connection of psycopg"):
            store.within(SimpleNamespace())

    def test_colours_may_be_mixed_where_that_is_safe(self, store, url, other):
        """A sync connection is used in a thread; an async one cannot be used by sync code."""
        view = store.within(other)
        assert asyncio.run(view.atransact("s", "k", put(b"1"))) is None
        other.commit()

        async def wrong():
            async with await psycopg.AsyncConnection.connect(url) as connection:
                with pytest.raises(StoreError, match="the connection is async"):
                    store.within(connection).transact("s", "k", look)

        asyncio.run(wrong())
        view.close()
        assert other.execute("SELECT 1").fetchone() == (1,)


class TestTrouble:
    """Servers that are away, slow or wrong."""

    def test_it_goes_on_when_the_server_was_restarted(self, server):
        """Idle connections that died are replaced without a word."""
        store = PostgresStore(server.url)

        async def main():
            await asyncio.gather(*(store.atransact("s", "k", count) for _ in range(5)))
            server.restart()
            await asyncio.gather(*(store.atransact("s", "k", count) for _ in range(5)))

        in_threads(5, lambda _: store.transact("s", "k", count))
        asyncio.run(main())
        assert store.transact("s", "k", look) == b"15"
        store.close()

    def test_a_server_that_is_gone_is_told_of_at_once(self, server):
        """The message says what was tried; when it is back, so is the store."""
        store = PostgresStore(f"{server.url}?timeout=60")
        store.transact("s", "k", put(b"1"))
        server.crash()
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"could not write: .*refused"):
                store.transact("s", "k", put(b"2"))
            with pytest.raises(StoreUnavailable, match=r"could not read: .*refused"):
                asyncio.run(store.aread("s", "k"))
        server.start()
        assert store.transact("s", "k", look) == b"1"
        assert asyncio.run(store.aread("s", "k"))[0] == b"1"
        store.close()

    def test_a_server_that_stands_still_is_given_up_on(self, server):
        """On open connections and on new ones, sync and async; then it goes on."""
        store = PostgresStore(server.url)
        store.transact("s", "k", put(b"1"))

        async def both():
            await store.aread("s", "k")
            store.timeout = 1.0
            server.pause()
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match="time"):
                    await store.atransact("s", "k", put(b"2"))

        asyncio.run(both())
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match="time"):
                store.transact("s", "k", put(b"2"))
        server.resume()
        store.timeout = SOON
        assert store.transact("s", "k", look) == b"1"
        assert asyncio.run(store.aread("s", "k"))[0] == b"1"
        store.close()

    @pytest.mark.parametrize("is_async", [False, True], ids=["sync", "asyncio"])
    def test_a_connection_lost_in_the_middle_is_not_repeated(self, store, url, is_async):
        """What was sent may have been applied: the caller has to ask again."""

        def decide(value, now):
            ask(url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE application_name = 'mainstay'")  # fmt: skip
            decided.append(value)
            return Change(b"1"), None

        async def twice():
            await store.aread("s", "k")  # so that the connection is not a new one
            await store.atransact("s", "k", decide)

        decided = []
        with pytest.raises(StoreUnavailable, match=r"could not write"):
            asyncio.run(twice()) if is_async else store.transact("s", "k", decide)
        assert decided == [None]
        assert store.transact("s", "k", look) is None

    def test_a_session_that_breaks_while_it_is_prepared_is_closed(self, store, url, monkeypatch):
        """Sync and async: the trouble is told, and nothing is left open."""
        monkeypatch.setattr(store._pools._settings, "session", "SELECT 1 / 0")
        store._pools.of_threads().idle.clear()
        with pytest.raises(StoreUnavailable, match="division by zero"):
            store.read("s", "k")
        with pytest.raises(StoreUnavailable, match="division by zero"):
            asyncio.run(store.aread("s", "k"))
        wait_for(lambda: sessions(url) == 0)

    def test_a_wrong_password_is_told_without_the_password(self, server):
        """Not in the message, nor in the URL, nor in what caused it."""
        store = PostgresStore(server.url)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE alice LOGIN PASSWORD 'right'")
        rules = server.folder / "data" / "pg_hba.conf"
        rules.write_text("host all alice all scram-sha-256\nhost all all all trust\n")
        ask(server.url, "SELECT pg_reload_conf()")
        wrong = server.url.replace("postgres@", "alice:s3cret%21@")
        with pytest.raises(StoreUnavailable, match="check the user and the password") as caught:
            PostgresStore(wrong)
        for text in (str(caught.value), caught.value.url, str(caught.value.__cause__)):
            assert "s3cret" not in text
        assert caught.value.url == server.url.replace("postgres@", "alice@")
        right = server.url.replace("postgres@", "alice@") + "?password=right"
        with pytest.raises(StoreUnavailable, match=r"could not open") as caught:
            PostgresStore(right + "x")
        assert "rightx" not in str(caught.value)
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO alice")
        hers = PostgresStore(right)
        assert hers.url == server.url.replace("postgres@", "alice@")
        assert "right" not in str(hers.describe())
        hers.close()
        store.close()

    @pytest.mark.parametrize(
        ("part", "other", "told"),
        [
            ("/test_", "/nowhere_", 'database "nowhere_.*" does not exist: create it'),
            ("postgres@", "nobody_here@", 'role "nobody_here" does not exist: check the user'),
        ],
    )
    def test_an_unknown_database_or_user_is_told(self, url, part, other, told):
        """With what to do about it."""
        with pytest.raises(StoreUnavailable, match=told):
            PostgresStore(url.replace(part, other))

    def test_missing_privileges_are_told(self, url):
        """To create the tables, and to use them."""
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("DROP ROLE IF EXISTS bob")
            connection.execute("CREATE ROLE bob LOGIN")
        hers = url.replace("postgres@", "bob@")
        with pytest.raises(StoreUnavailable, match="for schema public: the owner has to open"):
            PostgresStore(hers)
        PostgresStore(url).close()
        with pytest.raises(StoreUnavailable, match=r"permission denied for table .*: GRANT"):
            PostgresStore(hers)

    def test_a_newer_schema_is_refused(self, url):
        """This library does not know what it means."""
        PostgresStore(url).close()
        with psycopg.connect(url) as connection:
            connection.execute("INSERT INTO mainstay_schema (version) VALUES (99)")
        with pytest.raises(StoreError, match="schema version 99, and this mainstay knows up to"):
            PostgresStore(url)
        wait_for(lambda: sessions(url) == 0)

    def test_tables_that_are_gone_are_told(self, store, url):
        """Somebody dropped them while the store was open."""
        with psycopg.connect(url) as connection:
            connection.execute("DROP TABLE mainstay_kept")
        with pytest.raises(StoreUnavailable, match="its tables are gone"):
            store.read("s", "k")

    def test_a_database_that_cannot_hold_every_key_is_refused(self, postgres_url):
        """One in LATIN1 has no place for most of Unicode."""
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS latin")
            connection.execute(
                "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
            )
        place = urlunsplit(urlsplit(postgres_url)._replace(path="/latin"))
        with pytest.raises(StoreError, match="keeps text as LATIN1"):
            PostgresStore(place)

    def test_wrong_urls_are_refused(self):
        """With the reason, and without the password."""
        for url, told in (
            ("postgresql://a:pw%zz@h/d", "is no URL that PostgreSQL takes"),
            ("postgresql://h/d?floppy=1", "floppy"),
            ("postgresql://h/d?pool=none", "pool = 'none': must be a whole number"),
        ):
            with pytest.raises(StoreError, match=told) as caught:
                PostgresStore(url)
            assert "pw" not in str(caught.value)

    def test_parameters_of_libpq_are_passed_on(self, url):
        """So that a store can live in a schema of its own, or be limited further."""
        with psycopg.connect(url) as connection:
            connection.execute("CREATE SCHEMA app")
        more = "options=-csearch_path%3Dapp&application_name=shop&connect_timeout=3"
        store = PostgresStore(f"{url}?timeout=2&{more}")
        assert ask(url, "SELECT to_regclass('app.mainstay_kept') IS NOT NULL") == (True,)
        assert store.url.endswith(f"?timeout=2&{more}")
        store.close()

    def test_a_closed_store_says_so_and_has_no_connections(self, store, url):
        """Sync and async; what was in use is closed when it comes back."""

        async def main():
            await store.aread("s", "k")

            def decide(value, now):
                store.close()
                return KEEP, None

            await store.atransact("s", "k", decide)
            with pytest.raises(StoreUnavailable, match="the store was closed"):
                await store.aread("s", "k")

        asyncio.run(main())
        store.close()
        with pytest.raises(StoreUnavailable, match="the store was closed"):
            store.read("s", "k")
        wait_for(lambda: sessions(url) == 0)

    def test_a_connection_that_comes_back_while_it_closes_is_closed(self, store, url):
        """Whatever thread was faster."""

        class Closing(deque):
            def append(self, connection):
                super().append(connection)
                idle.is_closed = True

        idle = store._pools.of_threads().idle
        idle._connections = Closing(idle._connections)
        store.read("s", "k")
        assert not idle._connections
        wait_for(lambda: sessions(url) == 0)

    def test_it_says_what_it_is(self, store, url):
        """Its server's version, its schema, and how fast it answers."""
        told = store.describe()
        assert told["store"] == "postgresql"
        assert told["url"] == url
        assert told["version"][0].isdigit()
        assert told["schema"] == max(scripts("postgres"))
        assert told["latency_ms"] > 0

    def test_without_psycopg_the_extra_is_named(self, monkeypatch):
        """Importing the store is when it is needed."""
        monkeypatch.setitem(sys.modules, "psycopg", None)
        monkeypatch.delitem(sys.modules, "mainstay.stores.postgres.store")
        with pytest.raises(MissingExtraError, match=r"pip install 'mainstay\[postgres\]'"):
            __import__("mainstay.stores.postgres.store")
