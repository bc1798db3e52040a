"""Many steps at once: who is asked for them, and in which order SQLite's writer takes them."""

import asyncio
import threading

import pytest

from mainstay.core.base.change import Change
from mainstay.deadline import within
from mainstay.errors import StoreUnavailable
from mainstay.ports import many_of
from mainstay.stores import group_commit
from mainstay.stores.memory import MemoryStore
from mainstay.stores.sqlite.store import SqliteStore
from mainstay.stores.timed import TimedStore
from mainstay.testing.stores import StoreContract

SOON = 30.0


class Alone(MemoryStore):
    """A store of somebody else, which derives from ours and has steps of its own."""

    def __init__(self, records=None):
        super().__init__()
        self.threads, self.asked = set(), 0
        if records is not None:
            self._records = records

    def transact(self, space, key, decide):
        self.threads.add(threading.current_thread().name)
        self.asked += 1
        return super().transact(space, key, decide)


class TestAStoreWithoutIt(StoreContract):
    """It is asked for one step after the other, with the same result."""

    @pytest.fixture(autouse=True)
    def _one_place(self):
        self.records = {}

    def open(self):
        store = Alone(self.records)
        store.close = lambda: None
        return store


def put(key):
    return ("seen", key, lambda value, now: (Change(b"1"), key))


def test_a_store_with_its_own_step_is_asked_for_it_each_time():
    """What it has inherited would pass by it; a few threads share the work."""
    store = Alone()
    keys = [str(number) for number in range(50)]
    assert many_of(store)([put(key) for key in keys]) == keys
    assert store.asked == 50
    assert len(store.threads) <= 8


def test_a_store_that_brings_its_own_is_asked_once():
    """A class that has both, however much it inherits."""

    class Both(Alone):
        def transact(self, space, key, decide):
            raise AssertionError

        def transact_many(self, steps):
            return len(steps)

    assert many_of(Both())([put("a"), put("b")]) == 2


def test_the_bound_of_a_caller_holds_in_the_threads():
    """As the time that is left for a step."""
    from mainstay.deadline import remaining

    class Noting(Alone):
        def transact(self, space, key, decide):
            return remaining()

    with within(20.0):
        assert all(left <= 20.0 for left in many_of(Noting())([put(key) for key in "abcd"]))


def test_a_timed_store_counts_many_steps_as_one():
    """Named as what it is."""
    seen = []
    store = TimedStore(MemoryStore(), [lambda *what, failed: seen.append((what[:2], failed))])
    assert many_of(store)([put("a"), put("b")]) == ["a", "b"]
    assert seen == [(("memory", "transact_many"), False)]


# --- SQLite's writer ------------------------------------------------------------------------------


class Held(SqliteStore):
    """Holds a batch of the writer back until it is let go."""

    held, let_go = threading.Event(), threading.Event()

    def _write_batch(self, batch):
        if threading.current_thread().name == "mainstay-sqlite" and not self.let_go.is_set():
            self.held.set()
            assert self.let_go.wait(SOON)
        return super()._write_batch(batch)


@pytest.fixture
def held(tmp_path):
    store = Held(f"sqlite:///{tmp_path}/kept.db?synchronous=NORMAL")
    store.held, store.let_go = threading.Event(), threading.Event()
    yield store
    store.let_go.set()
    store.close()


def log(name):
    return ("seen", "log", lambda value, now: (Change((value or b"") + name), None))


def test_many_steps_of_a_thread_come_after_the_async_ones_before(held):
    """A step that was cancelled while it is carried out is ended by what comes after it."""

    async def main():
        first = asyncio.create_task(held.atransact(*log(b"a")))
        await asyncio.to_thread(held.held.wait, SOON)
        first.cancel()
        withdrawn = asyncio.create_task(held.atransact(*log(b"b")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        withdrawn.cancel()
        last = asyncio.create_task(asyncio.to_thread(held.transact_many, [log(b"c")]))
        await asyncio.sleep(0.05)
        held.let_go.set()
        assert await last == [None]

    asyncio.run(main())
    assert held.read("seen", "log")[0] == b"ac"


def test_a_thread_that_waits_has_every_answer_when_it_goes_on(monkeypatch):
    """Also if the writer is stopped as soon as it has woken the thread."""
    seen = []

    def end(turn):
        seen.append([answer.result for _, answer, _ in turn.items])
        turn.is_done.set()

    monkeypatch.setattr(group_commit._ThreadTurn, "end", end)
    writer = group_commit.Writer(lambda steps: [step * 2 for step in steps], "writer")
    writer._start()
    assert writer.carry_out([1, 2], SOON) == [2, 4]
    writer.close()
    assert seen == [[2, 4]]


def test_many_steps_that_wait_too_long_are_withdrawn(held):
    """Their thread is told, and nothing of them is written afterwards."""

    async def main():
        first = asyncio.create_task(held.atransact(*log(b"a")))
        await asyncio.to_thread(held.held.wait, SOON)
        with pytest.raises(StoreUnavailable, match="no answer within"):
            await asyncio.to_thread(impatient)
        held.let_go.set()
        await first

    def impatient():
        with within(0.05):
            held.transact_many([log(b"b")])

    asyncio.run(main())
    held.close()
    again = SqliteStore(held.url)
    assert again.read("seen", "log")[0] == b"a"
    again.close()


def test_without_async_callers_a_thread_writes_by_itself(tmp_path):
    """More steps than one transaction has, and no further thread."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db")
    keys = [str(number) for number in range(600)]
    assert store.transact_many([put(key) for key in keys]) == keys
    assert store._writer._thread is None
    store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.transact_many([put("a")])
