"""Hints to SQLite: what a record is thought to be makes a step cheaper, and never another one."""

import sqlite3
import threading
import time
import uuid
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay import Engine, Saga, SagaStep
from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.core.idempotency.record import Begin, Busy, Run, decode, reduce
from mainstay.errors import StoreUnavailable
from mainstay.stores.sqlite import statements as sqlite_steps
from mainstay.stores.sqlite.store import SqliteStore


class Wrong(Exception):
    """What a decision may raise."""


def decision(name):
    """Each tells what it saw."""

    def decide(value, _now):
        if name == "raise" or (name == "picky" and value == b"x"):
            raise Wrong(value)
        if name in ("keep", "drop"):
            return KEEP if name == "keep" else DROP, value
        return Change((value or b"") + name[:1].encode(), float(len(name))), value

    return decide


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    store = SqliteStore(f"sqlite:///{tmp_path_factory.mktemp('hints')}/kept.db?synchronous=NORMAL")
    yield store
    store.close()


@pytest.fixture
def statements(store):
    """What is said to SQLite from now on."""
    said = []
    store._hold().connection.set_trace_callback(said.append)
    yield said
    store._hold().connection.set_trace_callback(None)


@pytest.fixture
def _unhurried(monkeypatch):
    """A machine that stands still for a moment is no wait for the lock."""
    for name in ("_INSERT", "_UPDATE", "_ROW"):
        monkeypatch.setattr(
            sqlite_steps, name, getattr(sqlite_steps, name).replace("< 0.01", "< 50")
        )
    sqlite_steps._inserting.cache_clear()
    yield
    sqlite_steps._inserting.cache_clear()


def outcome(function, *args):
    """What it returned, or what it raised."""
    try:
        return function(*args)
    except Wrong as error:
        return ("raised", error.args)


HINTS = st.sampled_from(["right", "absent", "stale", "other"])
STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "keep", "drop", "raise", "picky"]),
              HINTS),
    max_size=30,
)  # fmt: skip


@given(steps=STEPS)
def test_a_step_with_any_hint_is_the_step_without(store, steps):
    """Against a dict: the reply, the record, its expiry and what a decision raises."""
    store._hold().execute("DELETE FROM mainstay_kept")
    there, before, expiries = {}, {}, {}
    for key, name, kind in steps:
        value = there.get(key)
        hint = {"right": value, "absent": None, "stale": before.get(key), "other": b"x"}[kind]
        decide = decision(name)
        made = outcome(decide, value, 0.0)
        change, reply = (KEEP, made) if made[0] == "raised" else made
        assert outcome(store.transact, "s", key, decide, hint) == reply
        if change is not KEEP:
            before[key], there[key] = value, change.value
            expiries[key] = change.expires
        assert store.read("s", key)[0] == there.get(key)
        expires = store._hold().execute("SELECT expires FROM mainstay_kept WHERE key = ?", (key,))
        assert (expires.fetchone() or (None,))[0] == expiries.get(key)


@pytest.mark.usefixtures("_unhurried")
def test_a_right_hint_makes_it_one_statement(store, statements):
    """A record that is new, and one that is as it was left."""
    store.transact("s", "one", decision("x"), None)
    store.transact("s", "one", decision("y"), b"x")
    assert [each.split()[0] for each in statements] == ["INSERT", "UPDATE"]
    assert store.read("s", "one")[0] == b"xy"


@pytest.mark.usefixtures("_unhurried")
def test_a_keyed_call_says_as_little_as_it_can(tmp_path):
    """A new key: looked for, claimed, ended; one that has expired is claimed as it was seen."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db")
    with Engine(store, sinks=[], audit=False, purge=None) as engine:
        charge = engine.idempotent(key=str, ttl=0.001)(lambda order: order)
        statements, words = [], []
        store._hold().connection.set_trace_callback(statements.append)
        for _ in range(2):
            statements.clear()
            assert charge("little") == "little"
            words.append([each.split()[0] for each in statements])
            time.sleep(0.01)
        assert words == [["SELECT", "INSERT", "UPDATE"], ["SELECT", "UPDATE", "UPDATE"]]


@pytest.mark.usefixtures("_unhurried")
def test_new_records_are_one_statement_and_all_or_none(store, statements):
    """If one of them is there, none is written, and the caller takes the usual way."""
    new = [("s", "first", decision("x")), ("t", "first", decision("y"))]
    assert store.transact_new(new) == [None, None]
    assert [each.split()[0] for each in statements] == ["INSERT"]
    assert (store.read("s", "first")[0], store.read("t", "first")[0]) == (b"x", b"y")
    for there in (("s", "first", decision("x")), ("s", "second", decision("keep"))):
        assert store.transact_new([("s", "third", decision("x")), there]) is None
        assert store.read("s", "third")[0] is None


def test_new_records_wait_for_no_lock_with_a_time_of_before(store, monkeypatch):
    """If the time is another by then, nothing is written."""
    monkeypatch.setattr(sqlite_steps, "now", lambda: time.time() - 60.0)
    assert store.transact_new([("s", "late", decision("x"))]) is None
    assert store.read("s", "late")[0] is None


@pytest.mark.usefixtures("_unhurried")
def test_a_saga_says_as_little_as_it_can(tmp_path):
    """Three steps are four statements, each a commit of its own; a second run reads one record."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db")
    saga = Saga("transfer", [SagaStep(name, lambda: 1) for name in ("a", "b", "c")])
    with Engine(store, sinks=[], audit=False, purge=None) as engine:
        statements = []
        store._hold().connection.set_trace_callback(statements.append)
        engine.sagas.run(saga, id="t-1")
        assert [each.split()[0] for each in statements] == ["INSERT", "UPDATE", "UPDATE", "UPDATE"]


@pytest.mark.parametrize("sinks", [(), (True,)], ids=["plain", "timed"])
def test_a_saga_passes_by_no_step_of_a_derived_store(tmp_path, sinks):
    """A store that has its own `transact`, such as one that encrypts, is asked for each step."""
    store = Derived(f"sqlite:///{tmp_path}/kept.db")
    saga = Saga("transfer", [SagaStep("debit", lambda: 1)])
    with Engine(store, sinks=[Timing() for _ in sinks], audit=False, purge=None) as engine:
        before = store.steps
        engine.sagas.run(saga, id="t-1")
        assert store.steps >= before + 3  # the entry, the record, its end


@pytest.mark.parametrize("there", [None, b"x"])
def test_whoever_waited_for_the_lock_has_a_whole_lease(tmp_path, there):
    """The moment counts at which it had the lock, not the one at which it began to wait."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db")
    claim = None
    if there is not None:  # a claim of its own, whose reply was lost
        begin = Begin("me", "f", 30.0, 3)
        store.transact("records", "k", lambda value, now: reduce(value, begin, now))
        claim = store.read("records", "k")[0]
    other = sqlite3.connect(tmp_path / "kept.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    released = []

    def release():
        time.sleep(0.4)
        released.append(time.time())
        other.execute("ROLLBACK")

    thread = threading.Thread(target=release)
    thread.start()
    answer = store.transact(
        "records", "k", lambda value, now: reduce(value, Begin("me", "f", 30.0, 3), now), claim
    )
    thread.join()
    assert answer == Run(1, 1)
    record = decode(store.read("records", "k")[0])
    assert (record.owner, record.epoch, record.attempts) == ("me", 1, 1)
    assert record.lease_until >= released[0] + 30.0
    store.close()
    other.close()


@pytest.mark.parametrize("there", [None, b"xx"])
def test_whoever_waited_for_the_lock_has_made_its_step_once(tmp_path, there):
    """Also a step that is another one the second time, as that which counts an attempt."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db")
    if there is not None:
        store.transact("s", "k", lambda value, now: (Change(there), None))
    other = sqlite3.connect(tmp_path / "kept.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, other.execute, ("ROLLBACK",))
    release.start()
    assert store.transact("s", "k", decision("y"), there) == there
    release.join()
    assert store.read("s", "k")[0] == (there or b"") + b"y"
    store.close()
    other.close()


@pytest.mark.parametrize("seconds", [-3600.0, -1.0, 1.0, 3600.0])
@pytest.mark.parametrize("there", [None, b"xx"])
def test_a_clock_that_is_set_meanwhile_does_not_decide(store, monkeypatch, there, seconds):
    """The time of the guess is not the time of the write: the step is decided anew."""
    store.transact("s", "clock", lambda value, now: (DROP if there is None else Change(there), 0))
    times = [time.time() + seconds]
    monkeypatch.setattr(sqlite_steps, "now", lambda: times.pop() if times else time.time())
    before = time.time()
    now = store.transact("s", "clock", lambda value, now: (Change(b"%f" % now), now), there)
    assert before <= now <= time.time()
    assert store.read("s", "clock")[0] == b"%f" % now


def test_a_transaction_that_was_interrupted_takes_no_hinted_step_with_it(tmp_path):
    """Ctrl+C between BEGIN and COMMIT leaves one open; the next step is not a part of it."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db")
    store._hold().execute("BEGIN IMMEDIATE")
    store._hold().execute("INSERT INTO mainstay_kept VALUES ('s', 'half', x'00', NULL)")
    assert store.transact("s", "k", decision("x"), None) is None
    other = SqliteStore(f"sqlite:///{tmp_path}/kept.db")
    assert other.read("s", "k")[0] == b"x"
    assert other.read("s", "half")[0] is None
    store.close()
    other.close()


def test_what_was_interrupted_is_not_read_as_if_it_had_been_written(tmp_path):
    """A second Ctrl+C may leave a step half done: nobody replays what it held."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db")
    for look in (lambda: store.read("s", "half")[0], lambda: store.scan("s")):
        store._hold().execute("BEGIN IMMEDIATE")
        store._hold().execute("INSERT INTO mainstay_kept VALUES ('s', 'half', x'00', NULL)")
        assert not look()
        assert not store._hold().connection.in_transaction
    store.close()


def test_trouble_with_a_hint_is_told_as_any_other(tmp_path):
    """A lock that does not come, a store that was closed."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db?timeout=0.05")
    other = sqlite3.connect(tmp_path / "kept.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailable, match="locked"):
        store.transact("s", "k", decision("x"), None)
    other.execute("ROLLBACK")
    other.close()
    assert store.read("s", "k")[0] is None
    store.close()
    with pytest.raises(StoreUnavailable, match="it was closed"):
        store.transact("s", "k", decision("x"), None)


def test_a_store_that_is_closed_meanwhile_says_so(tmp_path):
    """Between the moment a step has its connection and the moment it has the lock of it."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db")

    class Closing:
        """The lock of the connection; the store is closed just before it is taken."""

        def __init__(self, lock):
            self.lock = lock

        def __enter__(self):
            held.lock = self.lock
            store.close()
            return self.lock.__enter__()

        def __exit__(self, *_):
            self.lock.release()

    held = store._hold()
    held.lock = Closing(held.lock)
    with pytest.raises(StoreUnavailable, match="it was closed"):
        store.scan("s")


def test_of_many_that_think_a_key_is_new_one_is_right(tmp_path):
    """Threads, all with the same hint; the others hear of it."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db?synchronous=NORMAL")
    ready, answers = threading.Barrier(16), []

    def claim(number):
        begin = Begin(str(number), "f", 30.0, 3)
        ready.wait(60)
        answers.append(
            store.transact("records", "k", lambda value, now: reduce(value, begin, now), None)
        )

    threads = [threading.Thread(target=claim, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(type(each) for each in answers if isinstance(each, Run)) == [Run]
    assert sum(isinstance(each, Busy) for each in answers) == 15
    store.close()


class Derived(SqliteStore):
    """A store of somebody's who has never heard of hints."""

    steps = 0

    def transact(self, space, key, decide):
        self.steps += 1
        return super().transact(space, key, decide)


class Wrapper:
    """The same as a wrapper that passes on what it does not know."""

    def __init__(self, url):
        self.inner, self.steps = SqliteStore(url), 0

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def transact(self, space, key, decide):
        self.steps += 1
        return self.inner.transact(space, key, decide)


class Timing:
    """A sink that wants to know what steps took."""

    def __call__(self, event):
        pass

    def store_step(self, *told, failed):
        pass


@pytest.mark.parametrize("sinks", [(), (Timing(),)], ids=["plain", "timed"])
@pytest.mark.parametrize("kind", [Derived, Wrapper])
def test_a_store_made_of_one_that_takes_hints_need_not_take_them(tmp_path, kind, sinks):
    """It is asked as before, and nothing goes past it."""
    store = kind(f"sqlite:///{tmp_path}/kept.db")
    with Engine(store, sinks=list(sinks), audit=False, purge=None) as engine:

        @engine.idempotent(key=str)
        def charge(order):
            return order

        before = store.steps
        assert [charge("a"), charge("a"), charge("b")] == ["a", "a", "b"]
        assert store.steps == before + 4


@pytest.mark.parametrize("expires", [None, 0.0, -1.0, 5e9])
def test_every_way_of_writing_gives_the_same_row(store, expires):
    """A blob, and NULL for a record that does not expire: whoever reads the file relies on both."""
    change, step = Change(b"a\0b", expires), lambda value, _now: (change, value)
    with closing(sqlite3.connect(store.path)) as connection:
        for write in (
            lambda key: store.transact("ways", key, step),
            lambda key: store.transact("ways", key, step, None),
            lambda key: (
                store.transact("ways", key, step),
                store.transact("ways", key, step, b"a\0b"),
            ),
            lambda key: store.transact_many([("ways", key, step)]),
            lambda key: store.transact_new([("ways", key, step)]),
        ):
            key = f"{uuid.uuid4()}"
            write(key)
            asked = "SELECT typeof(value), value, expires FROM mainstay_kept WHERE key = ?"
            assert connection.execute(asked, (key,)).fetchall() == [("blob", b"a\0b", expires)]
