"""Many steps at once: who is asked for them, and in which order SQLite's writer takes them."""

import asyncio
import threading
from types import SimpleNamespace

import pytest

from mainstay.core.base.change import Change
from mainstay.deadline import within
from mainstay.errors import StoreUnavailable
from mainstay.ports import many_of
from mainstay.runtime.fork import make_lock
from mainstay.stores import group_commit
from mainstay.stores.memory import MemoryStore
from mainstay.stores.sqlite.connections import is_mine
from mainstay.stores.sqlite.store import SqliteStore
from mainstay.stores.timed import TimedStore
from mainstay.testing.stores import StoreContract
from tests.processes import wait_until

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
        self.records, self.lock = {}, make_lock()

    def open(self):
        store = Alone(self.records)
        store._lock = self.lock  # two views of one store exclude each other
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
        seen.append([item.answer for item in turn.items])
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
        with pytest.raises(StoreUnavailable, match="no answer within") as caught:
            await asyncio.to_thread(impatient)
        assert caught.value.url == held.url
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


# --- threads --------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path):
    """A store whose writer notes how many steps each commit has."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db?timeout=60")
    carry_out, store.batches = store._writer._carry_out, []
    store._writer._carry_out = lambda steps: store.batches.append(len(steps)) or carry_out(steps)
    yield store
    store.close()


def test_threads_that_write_at_the_same_time_share_a_commit(shared):
    """Each waited for SQLite's lock, and had a commit of its own: 32 sagas took 6 × as long."""
    held, go_on, answers = threading.Event(), threading.Event(), {}

    def slow(_value, _now):
        held.set()
        go_on.wait(60)
        return Change(b"1"), None

    def write(number):
        answers[number] = shared.transact(*put(str(number)))

    threads = [threading.Thread(target=shared.transact, args=("seen", "slow", slow))]
    threads[0].start()
    assert held.wait(60)
    threads += [threading.Thread(target=write, args=(number,)) for number in range(9)]
    for thread in threads[1:]:
        thread.start()
    wait_until(lambda: sum(shared.batches) + shared._writer._queue.qsize() == 9, "nine steps")
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert answers == {number: str(number) for number in range(9)}
    assert sum(shared.batches) == 9
    assert len(shared.batches) <= 2  # what had come when the first of them was taken, and the rest


def test_a_thread_that_is_alone_again_writes_by_itself(shared):
    seen = []

    def note(value, _now):
        seen.append(threading.current_thread())
        return Change(b"1"), None

    shared._writer.is_crowded = True
    shared.transact("seen", "a", note)
    wait_until(lambda: not shared._writer.is_crowded, "a commit for one thread")
    shared.transact("seen", "b", note)
    assert seen[0] is shared._writer._thread
    assert seen[1] is threading.current_thread()


def test_code_that_comes_between_the_step_of_its_own_thread_does_not_wait_for_it(shared):
    """A signal handler, for instance: the writer would wait for the lock that its thread has."""
    with shared._turn:
        shared._writer.is_crowded = True
        assert shared.transact(*put("a")) == "a"
    assert shared._writer._thread is None


def test_a_step_with_other_statements_takes_its_turn(shared):
    """It waited for SQLite's lock by polling, while the writer had it again and again."""
    seen = []

    def note(value, _now):
        seen.append(is_mine(shared._turn))
        return Change(b"1"), None

    shared.transact_also("seen", "a", note, [("SELECT 1", ())])
    held, go_on = threading.Event(), threading.Event()

    def hold():
        with shared._turn:
            held.set()
            go_on.wait(60)

    other = threading.Thread(target=hold)
    other.start()
    assert held.wait(60)
    shared.transact_also("seen", "b", note, [("SELECT 1", ())])  # SQLite's lock is free
    go_on.set()
    other.join(60)
    assert seen == [True, False]


@pytest.mark.parametrize("option", ["synchronous=NORMAL", ""])
def test_threads_share_where_a_commit_waits_for_the_disk(tmp_path, option):
    """Elsewhere a change of threads costs more than the commit."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db?{option}")
    store._writer.is_crowded = True
    store.transact(*put("a"))
    assert store.transact_together([put("b"), put("c")]) == ["b", "c"]
    assert (store._writer._thread is None) is bool(option)
    store.close()


def test_what_other_threads_make_of_new_records_is_not_guessed(shared):
    """The caller reads first then, and its steps are carried out with the others."""
    shared._writer.is_crowded = True
    assert shared.transact_new([put("a")]) is None
    assert shared.read("seen", "a")[0] is None


def test_a_failed_commit_is_an_error_of_its_own_in_each_thread():
    """One exception that several threads raise would have the traceback of all."""
    failed = StoreUnavailable("sqlite:///a.db", "write", "the disk is full")
    failed.__cause__ = OSError(28, "No space left on device")
    with pytest.raises(StoreUnavailable, match="the disk is full") as caught:
        group_commit.answer_of([failed])
    assert caught.value is not failed
    assert caught.value.__cause__ is failed.__cause__
    with pytest.raises(ZeroDivisionError):
        group_commit.answer_of([ZeroDivisionError()])
    assert group_commit.answer_of(["a"]) == "a"


def test_what_a_thread_hands_in_together_is_in_one_transaction():
    """Unless it is more than one transaction has."""
    turns = [group_commit._ThreadTurn([0]) for _ in range(255)]
    turns += [group_commit._ThreadTurn([1, 2]), group_commit._ThreadTurn(list(range(600)))]
    items = [item for turn in turns for item in turn.items]
    assert [len(part) for part in group_commit._parts(items)] == [255, 2, 256, 256, 88]


def test_a_writer_that_ends_while_a_thread_waits_leaves_its_steps_to_it():
    done = []
    writer = group_commit.Writer(lambda steps: done.append(steps) or steps, "writer")

    looks = iter([True, False, False, False])
    writer._thread = SimpleNamespace(is_alive=lambda: next(looks))
    assert writer.carry_out([1, 2], SOON) == [1, 2]
    assert done == [[1, 2]]


def test_a_thread_that_is_interrupted_while_it_waits_takes_its_steps_back(monkeypatch):
    done = []
    writer = group_commit.Writer(lambda steps: done.append(steps) or steps, "writer")

    def interrupted(turn, thread, patience):
        raise KeyboardInterrupt

    with monkeypatch.context() as changed:
        changed.setattr(group_commit._ThreadTurn, "waited_for", interrupted)
        changed.setattr(writer, "_thread", threading.current_thread())
        with pytest.raises(KeyboardInterrupt):
            writer.carry_out([1], SOON)
    assert writer.share([2], SOON) == [2]
    writer.close()
    assert done == [[2]]
