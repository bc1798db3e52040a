"""Expired records are purged by the engines themselves: in the background, by one at a time."""

import gc
import os
import threading
import weakref
from uuid import uuid4

import pytest

from mainstay import Engine
from mainstay.core.base.change import Change
from mainstay.drivers.idempotency.purging import Purging
from mainstay.stores.memory import MemoryStore
from mainstay.stores.sqlite.store import SqliteStore
from mainstay.testing import virtual_time
from tests.processes import wait_until as wait_until_it_is

NAME = "mainstay-purge"


def wait_until(condition):
    wait_until_it_is(condition, "it did not come to that")


def threads():
    return [thread for thread in threading.enumerate() if thread.name == NAME]


@pytest.fixture(autouse=True)
def _nothing_is_left():
    """Every test ends its threads."""
    yield
    gc.collect()
    wait_until(lambda: not threads())


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/a.db"


def fill(store, count, seconds=-1.0):
    """Records that have expired already, or expire later."""
    for number in range(count):
        store.transact("s", str(number), lambda _, now: (Change(b"x", now + seconds), None))


def left(store):
    return len(store.scan("s", limit=100_000))


class Counting(MemoryStore):
    """A durable store that counts its purges; nothing is purged with writes."""

    abilities = MemoryStore.abilities | {"durable"}

    def __init__(self, *answers):
        super().__init__()
        self.answers = list(answers)
        self.batches = []

    def purge(self, limit=1000):
        self.batches.append(limit)
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_the_first_record_of_a_process_purges_what_has_expired(url):
    """In the background, without being asked."""
    with Engine(url, sinks=[], audit=False) as engine:
        fill(engine.store, 700)
        assert not threads(), "an engine that records nothing has no thread"
        engine.operation("pay", key="k").call(int)
        wait_until(lambda: left(engine.store) == 0)
        wait_until(lambda: engine.records.purged == 700)
        assert engine.health().counts == {"purged": 700}
        assert engine.operation("pay", key="k").call(int) == 0, "what has not expired stays"


@pytest.mark.parametrize(
    ("server", "place"),
    [("postgres_database", ""), ("valkey_url", "?prefix={}"), ("nats_url", "?bucket={}")],
    ids=["postgresql", "redis", "nats"],
)
def test_an_engine_purges_every_store(request, server, place):
    """The same on a server: what has expired goes, and what has not stays."""
    url = request.getfixturevalue(server) + place.format(uuid4().hex)
    with Engine(url, sinks=[], audit=False) as engine:
        fill(engine.store, 30)
        engine.store.transact("s", "stays", lambda *_: (Change(b"1"), None))
        engine.operation("pay", key="k").call(int)
        wait_until(lambda: engine.records.purged == 30)
        assert engine.store.scan("s") == [("stays", b"1")]


def test_a_program_that_can_start_no_thread_goes_on(url, monkeypatch):
    """The call has been made, and its result is returned."""

    def start(_self):
        raise RuntimeError("can't start new thread")

    with Engine(url, sinks=[], audit=False) as engine:
        monkeypatch.setattr(threading.Thread, "start", start)
        purging = engine.records.purging
        purging.start()
        assert not purging.is_idle
        monkeypatch.undo()


def test_a_file_that_is_filled_by_short_programs_is_purged(url):
    """Each lives for one call: the first that finds a purge due does it before it ends."""
    with Engine(url, sinks=[], audit=False) as engine:
        fill(engine.store, 100)
    for number in range(3):
        with Engine(url, sinks=[], audit=False) as engine:
            engine.operation("pay", key=str(number)).call(int)
    with Engine(url, sinks=[], audit=False) as engine:
        wait_until(lambda: left(engine.store) == 0)


def test_of_many_processes_one_purges(url):
    """The others find that it was done; after the interval another may."""
    stores = [SqliteStore(url) for _ in range(8)]
    purgings = [Purging(store, 3600.0) for store in stores]
    turns, gate = [], threading.Barrier(8)

    def turn(purging):
        gate.wait()
        turns.append(purging.purge_if_due())

    workers = [threading.Thread(target=turn, args=(each,)) for each in purgings]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(turns) == [False] * 7 + [True]
    assert Purging(stores[0], 1e-6).purge_if_due()
    for store in stores:
        store.close()


def test_a_purge_goes_on_until_a_batch_is_not_full():
    """In small batches, so that no other step waits for long."""
    store = Counting(500, 500, 3)
    purging = Purging(store)
    assert purging.purge_if_due()
    assert store.batches == [500, 500, 500]
    assert purging.purged == 1003


def test_a_store_that_looks_at_its_records_in_parts_is_looked_at_to_the_end():
    """A purge of NATS ends after half its timeout: it found nothing there, and goes on."""
    store = Counting()
    store.is_swept = False

    def purge(limit):
        store.is_swept = len(store.batches) == 2
        store.batches.append(limit)
        return 0

    store.purge = purge
    Purging(store).purge_if_due()
    assert len(store.batches) == 3


def test_a_store_that_fails_is_tried_again_at_the_next_turn():
    """Nothing depends on a purge: no call fails, and the thread goes on."""
    store = Counting(RuntimeError("away"), 7)
    purging = Purging(store, 0.001)
    purging.start()
    wait_until(lambda: purging.purged == 7)
    purging.close()


def test_an_engine_that_is_closed_purges_no_more(url):
    """Its thread has ended by then, also while it rests between two batches."""
    engine = Engine(url, sinks=[], audit=False)
    fill(engine.store, 5000)
    engine.operation("pay", key="k").call(int)
    wait_until(threads)
    engine.close()
    assert not threads()
    purging = engine.records.purging
    purging.start()
    assert not threads(), "nor does it begin again"


def test_an_engine_that_nobody_closes_leaves_no_thread(url):
    """The thread does not hold it."""
    engine = Engine(url, sinks=[], audit=False)
    engine.operation("pay", key="k").call(int)
    wait_until(threads)
    gone = weakref.ref(engine.records.purging)
    store = engine.store
    del engine
    gc.collect()
    wait_until(lambda: gone() is None)
    wait_until(lambda: not threads())
    store.close()


@pytest.mark.parametrize("options", [{"purge": None}, {"store": "memory://"}])
def test_an_engine_may_have_no_purging(url, options):
    """Because it is switched off, or because the store does it with its writes."""
    with Engine(**({"store": url, "sinks": [], "audit": False} | options)) as engine:
        engine.operation("pay", key="k").call(int)
        assert engine.records.purging is None
        assert engine.records.purged == 0


def test_calls_in_a_transaction_of_the_callers_own_purge_too(url):
    """A program may have no others."""
    import sqlite3

    with Engine(url, sinks=[], audit=False) as engine:
        fill(engine.store, 10)
        connection = sqlite3.connect(url.removeprefix("sqlite:///"), isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        engine.operation("pay", key="k", connection=connection).call(int)
        connection.execute("COMMIT")
        connection.close()
        wait_until(lambda: left(engine.store) == 0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_purges_by_a_thread_of_its_own():
    """It has none of its parent's threads, and counts anew."""
    store = Counting(3, 5)
    purging = Purging(store, 0.001)
    purging.start()
    wait_until(lambda: purging.purged >= 3)
    child = os.fork()
    if child == 0:
        is_new = not threads() and purging.purged == 0
        purging.start()
        os._exit(0 if is_new and threads() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    purging.close()


# --- in memory ------------------------------------------------------------------------------------


def test_records_in_memory_are_dropped_with_later_writes():
    """Without a thread: a process that goes on writing does not grow for ever."""
    with virtual_time() as time, Engine(sinks=[]) as engine:
        for number in range(5000):
            engine.operation("pay", key=str(number), ttl=10.0).call(int)
            time.advance(1.0)
        assert engine.store.describe()["records"] < 100
        assert engine.records.purged > 4900
        assert engine.store.describe()["store"] == "memory"


def test_a_record_in_memory_that_was_replaced_is_not_dropped_by_its_old_time():
    """Only the time of the record that is there counts."""
    store = MemoryStore()
    with virtual_time() as time:
        fill(store, 1, 10.0)
        fill(store, 1, 1000.0)
        time.advance(500.0)
        store.transact("s", "other", lambda *_: (Change(b"1"), None))
        assert store.purge() == 0
        assert left(store) == 2


def test_a_record_in_memory_that_is_written_again_and_again_leaves_little():
    """The queue of times does not grow with the writes."""
    store = MemoryStore()
    with virtual_time() as time:
        for number in range(20_000):
            store.transact("s", "k", lambda _, now: (Change(b"x", now + 10.0), None))
            if number % 10 == 0:
                time.advance(1.0)
        assert len(store._expiring) < 2000
        fill(store, 5, 5.0)
        time.advance(100.0)
        assert store.purge(2) == 2
        assert store.purge() == 4
        assert left(store) == 0
