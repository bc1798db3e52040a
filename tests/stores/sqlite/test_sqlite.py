"""The SQLite store: the contract, between threads and processes, and what goes wrong with files."""

from __future__ import annotations

import asyncio
import os
import resource
import sqlite3
import subprocess
import sys
import textwrap
import threading
from contextlib import closing

import pytest

from mainstay import deadline
from mainstay.core.base.change import Change
from mainstay.errors import StoreError, StoreUnavailable
from mainstay.stores.migrations import scripts
from mainstay.stores.sqlite.store import SqliteStore
from mainstay.testing.stores import StoreContract
from tests.connections import is_closed
from tests.processes import run_at_once, wait_until


def put(data):
    return lambda value, now: (Change(data), value)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/kept.db"


@pytest.fixture
def store(url):
    store = SqliteStore(url)
    yield store
    store.close()


class TestSqliteStore(StoreContract):
    """In a file."""

    @pytest.fixture(autouse=True)
    def _place(self, url):
        self.url = f"{url}?timeout=60"  # a busy machine is no failure

    def open(self):
        return SqliteStore(self.url)


class TestSqliteInMemory(StoreContract):
    """In memory, for a try: the second view is the same object."""

    @pytest.fixture(autouse=True)
    def _one(self, monkeypatch):
        self.store = SqliteStore("sqlite:///:memory:")
        close = self.store.close
        monkeypatch.setattr(self.store, "close", lambda: None)
        yield
        close()

    def open(self):
        return self.store


def run(program, *arguments, **more):
    """A Python program in a process of its own."""
    text = textwrap.dedent(program)
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)],
        capture_output=True, text=True, timeout=60, check=False, **more,
    )  # fmt: skip


IMPORTS = """
from mainstay.core.base.change import Change
from mainstay.stores.sqlite.store import SqliteStore
"""
OPEN = """
store = SqliteStore(sys.argv[1])
for _ in range(20):
    store.transact("s", "k", lambda v, now: (Change(str(int(v or b"0") + 1).encode()), None))
store.close()
"""


def test_ten_processes_may_start_at_once(url):
    """One makes the schema, the others wait for it; no step of any of them is lost."""
    assert run_at_once(10, IMPORTS, OPEN, url) == (0, "")
    store = SqliteStore(url)
    assert store.read("s", "k")[0] == b"200"
    assert store.describe()["schema"] == max(scripts("sqlite"))
    store.close()


def test_a_forked_child_has_a_connection_of_its_own(store):
    """Parent and child write to the same file without harm."""
    store.transact("s", "k", put(b"parent"))
    child = os.fork()
    if child == 0:
        try:
            store.transact("s", "child", put(b"child"))
            asyncio.run(store.atransact("s", "task", put(b"task")))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert store.read("s", "child")[0] == b"child"
    assert store.read("s", "task")[0] == b"task"


def test_a_wait_for_a_lock_ends_at_the_deadline_of_the_caller(store, tmp_path):
    """Long before the timeout of the store; the error names the deadline."""
    with closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with (
            pytest.raises(StoreUnavailable, match="until the deadline of the call"),
            deadline.within(1.0),
        ):
            store.transact("s", "k", put(b"1"))
    store.transact("s", "k", put(b"1"))


@pytest.mark.req("CP-14.stores")
def test_a_lock_that_is_held_too_long_is_told_of(url, tmp_path):
    """The error says who is waited for and for how long; then the store works again."""
    store = SqliteStore(f"{url}?timeout=1")
    other = sqlite3.connect(tmp_path / "kept.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match=r"another process held the lock for more than 1 s"):
        store.transact("s", "k", put(b"1"))
    with pytest.raises(StoreUnavailable, match="held the lock"):
        asyncio.run(store.atransact("s", "k", put(b"1")))
    other.execute("ROLLBACK")
    store.transact("s", "k", put(b"1"))
    store.close()
    other.close()


def test_a_full_disk_is_told_of_and_loses_nothing(url):
    """A limit on the size of files stands for it: what was acknowledged is there."""
    program = """
        import resource, signal, sys
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        from mainstay.core.base.change import Change
        from mainstay.errors import StoreUnavailable
        from mainstay.stores.sqlite.store import SqliteStore
        store = SqliteStore(sys.argv[1])
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))
        done = 0
        try:
            for number in range(1000):
                store.transact("s", str(number), lambda v, now: (Change(b"x" * 1000), None))
                done += 1
        except StoreUnavailable as error:
            print(done, error)
    """
    told = run(program, url)
    done, _, message = told.stdout.partition(" ")
    assert "the disk is full" in message or "disk I/O error" in message, told
    store = SqliteStore(url)
    kept, after = 0, ""
    while page := store.scan("s", after, 500):
        kept, after = kept + len(page), page[-1][0]
    assert kept == int(done) > 0
    store.close()


def test_a_file_that_cannot_be_written_is_told_of(tmp_path, url):
    """Also by root, who ignores the mode of a file."""
    SqliteStore(url).close()
    store = SqliteStore(f"sqlite:///file:{tmp_path}/kept.db%3Fmode=ro")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        store.transact("s", "k", put(b"1"))
    store.close()


def test_a_folder_that_is_not_there_is_told_of(tmp_path):
    """The error names the reason."""
    with pytest.raises(StoreUnavailable, match="does its folder exist"):
        SqliteStore(f"sqlite:///{tmp_path}/no/such/kept.db")


@pytest.mark.parametrize("damage", ["everything", "a page"])
def test_a_damaged_file_is_told_of(damage, tmp_path, url):
    """It is not replaced in silence, and the error says what to do."""
    store = SqliteStore(url)
    for number in range(200):
        store.transact("s", str(number), put(b"x" * 500))
    store.close()
    path = tmp_path / "kept.db"
    data = bytearray(path.read_bytes())
    if damage == "everything":
        data[:] = b"not a database at all" * 100
    else:
        data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with (
        pytest.raises(StoreUnavailable, match=r"damaged|malformed"),
        closing(SqliteStore(url)) as again,
    ):
        again.transact("s", "7", put(b"1"))


def test_a_newer_schema_is_refused(url, tmp_path):
    """An old program does not touch what a newer one has made."""
    SqliteStore(url).close()
    with sqlite3.connect(tmp_path / "kept.db") as connection:
        connection.execute("UPDATE mainstay_schema SET version = 99")
    connection.close()
    with pytest.raises(StoreError, match=r"has schema version 99, and this mainstay knows up to"):
        SqliteStore(url)


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("timeout=0", "timeout = '0': must be a number above 0"),
        ("timeout=soon", "timeout = 'soon': must be a number above 0"),
        ("synchronous=OFF", "synchronous = 'OFF': must be FULL, NORMAL or EXTRA"),
        ("colour=red", "colour is no option of this store"),
    ],
)
def test_a_wrong_option_is_refused(url, query, told):
    """The error names the option and what is allowed."""
    with pytest.raises(StoreError, match=told):
        SqliteStore(f"{url}?{query}")


def test_a_url_without_a_file_is_refused():
    """With an example of one that has."""
    with pytest.raises(StoreError, match=r"sqlite:///mainstay\.db"):
        SqliteStore("sqlite://")


def test_steps_that_wait_together_share_a_commit(store, monkeypatch):
    """Sixty-four tasks at once make a few transactions, not sixty-four."""
    batches = []
    carry_out = store._writer._carry_out
    monkeypatch.setattr(
        store._writer, "_carry_out", lambda steps: batches.append(len(steps)) or carry_out(steps)
    )

    async def main():
        await asyncio.gather(*(store.atransact("s", str(n), put(b"1")) for n in range(64)))

    asyncio.run(main())
    assert sum(batches) == 64
    assert len(batches) < 10


def test_steps_of_several_event_loops_share_a_commit_and_each_gets_its_own_answers(store):
    """One loop per thread; what waits is in one transaction."""
    batches, held, go_on = [], threading.Event(), threading.Event()
    carry_out = store._writer._carry_out
    store._writer._carry_out = lambda steps: batches.append(len(steps)) or carry_out(steps)

    def slow(_value, _now):
        held.set()
        go_on.wait(60)
        return Change(b"1"), None

    async def several(name):
        steps = [store.atransact("s", f"{name}{n}", answering(f"{name}{n}")) for n in range(5)]
        return await asyncio.gather(*steps)

    def answering(answer):
        return lambda _value, _now: (Change(b"1"), answer)

    def run(name):
        answers[name] = asyncio.run(several(name))

    answers = {}
    first = threading.Thread(target=lambda: asyncio.run(store.atransact("s", "slow", slow)))
    first.start()
    assert held.wait(60)
    threads = [threading.Thread(target=run, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    wait_until(lambda: store._writer._queue.qsize() == 3, "three turns")
    go_on.set()
    for thread in (first, *threads):
        thread.join(60)
    assert answers == {name: [f"{name}{n}" for n in range(5)] for name in "abc"}
    assert batches == [1, 15]


def test_a_decision_that_raises_fails_alone_in_its_batch(store):
    """The others in the same transaction are written."""

    async def main():
        steps = [store.atransact("s", str(n), put(b"1")) for n in range(10)]
        wrong = store.atransact("s", "wrong", lambda value, now: (Change(b"2"), 1 / 0))
        return await asyncio.gather(*steps, wrong, return_exceptions=True)

    answers = asyncio.run(main())
    assert isinstance(answers[-1], ZeroDivisionError)
    assert len(store.scan("s")) == 10


def test_a_task_cancelled_while_it_waits_takes_no_step(store):
    """What is still in the queue is left out."""
    started, go_on = threading.Event(), threading.Event()

    def slow(_value, _now):
        started.set()
        go_on.wait(60)
        return Change(b"1"), None

    async def main():
        first = asyncio.create_task(store.atransact("s", "first", slow))
        await asyncio.to_thread(started.wait, 10)
        second = asyncio.create_task(store.atransact("s", "second", put(b"2")))
        await asyncio.sleep(0.01)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        go_on.set()
        await first

    asyncio.run(main())
    store.close()
    again = SqliteStore(store.url)
    assert again.read("s", "first")[0] == b"1"
    assert again.read("s", "second")[0] is None
    again.close()


def test_a_closed_store_says_so(store):
    """Sync and async alike."""
    store.close()
    with pytest.raises(StoreUnavailable, match="it was closed"):
        store.read("s", "k")
    with pytest.raises(StoreUnavailable, match="it was closed"):
        asyncio.run(store.atransact("s", "k", put(b"1")))


def test_a_closed_store_leaves_no_file_open_for_a_thread_that_waits(store, tmp_path):
    """A log that stays is not taken over; a free-threaded Python kept it until the thread ran."""
    wrote, goes_on = threading.Event(), threading.Event()

    def other():
        store.transact("s", "k", put(b"1"))
        wrote.set()
        goes_on.wait(60.0)

    thread = threading.Thread(target=other)
    thread.start()
    wrote.wait(60.0)
    store.close()
    left = sorted(path.name for path in tmp_path.iterdir())
    goes_on.set()
    thread.join()
    assert left == ["kept.db"]


@pytest.fixture
def connections(monkeypatch):
    """Every connection that a store opens."""
    made, connect = [], SqliteStore._connect
    monkeypatch.setattr(
        SqliteStore, "_connect", lambda store: made.append(connect(store)) or made[-1]
    )
    return made


def test_a_store_that_cannot_be_opened_leaves_no_connection(url, connections):
    """There is nobody else who could close it."""
    with closing(SqliteStore(url)) as store:
        store._hold().execute("UPDATE mainstay_schema SET version = 99")
    with pytest.raises(StoreError, match="version 99"):
        SqliteStore(url)
    assert [is_closed(each) for each in connections] == [True, True]


def test_a_connection_opened_while_the_store_is_closed_is_closed_too(store, connections):
    """A thread that has just connected finds that it came too late, and leaves nothing."""
    connect, told = store._connect, []

    def closed_meanwhile():
        connection = connect()
        store.close()
        return connection

    def step():
        with pytest.raises(StoreUnavailable, match="it was closed") as caught:
            store.read("s", "k")
        told.append(caught.value)

    store._connect = closed_meanwhile
    thread = threading.Thread(target=step)
    thread.start()
    thread.join(60)
    assert told
    assert [is_closed(each) for each in connections] == [True]


@pytest.mark.parametrize("error", [ValueError(), KeyboardInterrupt()])
def test_a_step_that_fails_gives_the_lock_back_at_once(store, error):
    """Not when the store is used the next time: others wait for it."""

    def decide(_value, _now):
        raise error

    with pytest.raises(type(error)):
        store.transact("s", "k", decide)
    with closing(sqlite3.connect(store.path, isolation_level=None, timeout=0.0)) as other:
        other.execute("BEGIN IMMEDIATE")


def test_a_step_begins_anew_where_one_was_interrupted(store):
    """A second Ctrl+C may come while the first is seen to; nothing of that is in the next step."""
    store._hold().execute("BEGIN IMMEDIATE")
    store._hold().execute("INSERT INTO mainstay_kept VALUES ('s', 'half', x'00', NULL)")
    assert store.transact("s", "k", put(b"1")) is None
    assert store.scan("s") == [("k", b"1")]


def test_on_a_connection_of_the_callers_all_is_there_that_a_store_has(store, url):
    """Seen as their transaction sees it, and gone with it."""
    with closing(sqlite3.connect(store.path)) as mine:
        bound = store.within(mine)
        bound.transact("s", "k", lambda value, now: (Change(b"1", now - 1.0), None))
        assert bound.scan("s") == [("k", b"1")]
        assert store.scan("s") == []
        assert bound.purge() == 1
        assert bound.scan("s") == []
        assert bound.describe()["url"] == url
        mine.rollback()
        with pytest.raises(StoreUnavailable, match="could not scan"):
            mine.close()
            bound.scan("s")


def test_a_step_may_be_part_of_a_transaction_of_the_users(store, tmp_path):
    """It is committed with theirs, or rolled back with theirs."""
    mine = sqlite3.connect(tmp_path / "kept.db", isolation_level=None)
    mine.execute("CREATE TABLE orders (id TEXT)")
    mine.execute("BEGIN IMMEDIATE")
    mine.execute("INSERT INTO orders VALUES ('a')")
    store.within(mine).transact("s", "k", put(b"1"))
    assert store.read("s", "k")[0] is None
    mine.execute("ROLLBACK")
    assert store.read("s", "k")[0] is None
    store.within(mine).transact("s", "k", put(b"1"))
    mine.execute("COMMIT")
    assert store.read("s", "k")[0] == b"1"
    mine.close()


def test_the_limit_of_this_test_run_is_no_limit():
    """The full disk above is real only where files may otherwise grow."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] == resource.RLIM_INFINITY
