"""Steps whose callers have left are taken in the background, and not for ever."""

import os
import subprocess
import sys
import threading
import time
from textwrap import dedent

import pytest

from mainstay import Engine
from mainstay.core.base.change import Change
from mainstay.drivers.idempotency import late_steps
from mainstay.drivers.idempotency.late_steps import LateSteps
from mainstay.errors import StoreUnavailable
from mainstay.stores.memory import MemoryStore

SOON = 30.0


class Away(MemoryStore):
    """Is unavailable for some tries."""

    def __init__(self, tries, error=None):
        super().__init__()
        self.error = error or StoreUnavailable(self.url, "write", "it is away")
        self.tries, self.tried = tries, 0
        self.go_on = threading.Event()
        self.go_on.set()

    def transact(self, space, key, decide):
        assert self.go_on.wait(SOON)
        self.tried += 1
        if self.tried <= self.tries:
            raise self.error
        return super().transact(space, key, decide)


@pytest.fixture(autouse=True)
def _swift(monkeypatch):
    monkeypatch.setattr(late_steps, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(late_steps, "_LONGEST_PAUSE", 0.01)


def put(key="k"):
    return ("seen", key, lambda value, now: (Change(b"1"), None))


def end(late):
    wait_until(lambda: late._thread is None)


def wait_until(condition):
    until = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.002)


def test_a_step_is_taken_and_the_thread_ends():
    """Many at once, each once."""
    store = MemoryStore()
    late = LateSteps(store)
    for number in range(300):
        late.add(put(str(number)))
    late.flush(SOON)
    assert len(store.scan("seen", limit=1000)) == 300
    end(late)


def test_a_step_waits_for_the_next_one_if_no_thread_can_be_started(monkeypatch):
    """Whoever is cut off raises what cut it off, and no error of a thread."""
    store = MemoryStore()
    late = LateSteps(store)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", no_thread)
        late.add(put("a"))
    late.add(put("b"))
    late.flush(SOON)
    end(late)
    assert [key for key, _ in store.scan("seen")] == ["a", "b"]


def no_thread(_):
    raise RuntimeError("can't start new thread")


def test_no_caller_waits_for_the_thread_to_begin(monkeypatch):
    """It may be an event loop, and its other calls have deadlines; the system may take its time."""

    def waits(*_):
        raise AssertionError("the caller waits")

    store = MemoryStore()
    late = LateSteps(store)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Event, "wait", waits)
        late.add(put("a"))
    late.flush(SOON)
    end(late)
    assert [key for key, _ in store.scan("seen")] == ["a"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_step_after_a_thread_that_died_starts_another(monkeypatch):
    """Whatever ended it."""
    store = MemoryStore()
    late = LateSteps(store)
    with monkeypatch.context() as patch:
        patch.setattr(LateSteps, "_taken", died)
        late.add(put("a"))
        end(late)
    late.add(put("b"))
    late.flush(SOON)
    end(late)
    assert [key for key, _ in store.scan("seen")] == ["a", "b"]


def died(*_):
    raise SystemExit


def test_a_step_is_offered_until_the_store_takes_it():
    """For as long as its lease lasts."""
    store = Away(5)
    late = LateSteps(store)
    late.add(put(), 3600.0)
    end(late)
    assert store.read("seen", "k")[0] is not None
    assert store.tried == 6


@pytest.mark.parametrize(
    ("error", "seconds"), [(None, 0.0), (ZeroDivisionError("a decision's"), 3600.0)]
)
def test_a_step_that_cannot_be_taken_is_left_to_its_lease(error, seconds):
    """If the lease is over, or the step fails in a way that would be the same again."""
    store = Away(1, error)
    late = LateSteps(store)
    late.add(put(), seconds)
    end(late)
    assert store.tried == 1
    assert store.read("seen", "k")[0] is None


def test_no_more_than_some_thousand_wait(monkeypatch):
    """A store that is unavailable for long must not cost the memory of the process."""
    monkeypatch.setattr(late_steps, "_MOST_WAITING", 5)
    store = Away(0)
    store.go_on.clear()
    late = LateSteps(store)
    for number in range(20):
        late.add(put(str(number)))
    assert len(late._steps) <= 5
    store.go_on.set()
    late.flush(SOON)
    end(late)


def test_closing_gives_what_is_left_one_more_try(monkeypatch):
    """A store that is back has it, however long the pause was to be; no other is waited for."""
    monkeypatch.setattr(late_steps, "_FIRST_PAUSE", SOON)
    monkeypatch.setattr(late_steps, "_LONGEST_PAUSE", SOON)
    back, away = Away(1), Away(99)
    for store, tried in ((back, 2), (away, 2)):
        late = LateSteps(store)
        late.add(put(), 3600.0)
        late.flush(SOON)
        late.close()
        end(late)
        assert store.tried == tried
    assert back.read("seen", "k")[0] is not None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_none_of_its_parents_steps():
    """What waits is the parent's to write."""
    late = LateSteps(Away(10**6))
    late.add(put(), 3600.0)
    pid = os.fork()
    if pid == 0:  # pragma: no cover -- the child
        os._exit(0 if late._thread is None and not late._steps else 1)
    assert os.waitpid(pid, 0)[1] == 0
    late.close()


def test_an_engine_that_closes_has_taken_them():
    """Also if it closes at once."""
    store = MemoryStore()
    seen = []
    store.close = lambda: seen.append(store.read("records", "k")[0])
    with Engine(store, sinks=[]) as engine:
        engine.records.later("k", put()[2], 30.0)
    assert seen == [b"1"]


def test_a_process_that_ends_has_released_what_it_claimed(tmp_path):
    """Ctrl+C in a claim, and then the end: the next process runs the call at once."""
    program = f"""
    from mainstay import Engine
    engine = Engine("sqlite:///{tmp_path}/kept.db", sinks=[], audit=False)
    transact = engine.store.transact
    def interrupted(*args):
        transact(*args)
        raise KeyboardInterrupt
    engine.store.transact = interrupted
    try:
        engine.operation("work", key="k").call(int)
    except KeyboardInterrupt:
        engine.store.transact = transact
    """
    subprocess.run([sys.executable, "-c", dedent(program)], check=True, timeout=60)
    with Engine(f"sqlite:///{tmp_path}/kept.db", sinks=[]) as engine:
        assert engine.operation("work", key="k", on_conflict="raise").call(int) == 0
