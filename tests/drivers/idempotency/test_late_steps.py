"""Steps whose callers have left are taken in the background, and not for ever."""

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

    def __init__(self, tries):
        super().__init__()
        self.tries, self.tried = tries, 0
        self.go_on = threading.Event()
        self.go_on.set()

    def transact(self, space, key, decide):
        assert self.go_on.wait(SOON)
        self.tried += 1
        if self.tried <= self.tries:
            raise StoreUnavailable(self.url, "write", "it is away")
        return super().transact(space, key, decide)


@pytest.fixture(autouse=True)
def _swift(monkeypatch):
    monkeypatch.setattr(late_steps, "_PAUSES", (0.01, 0.01, 0.01))


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


@pytest.mark.parametrize(("tries", "is_taken"), [(3, True), (4, False)])
def test_a_store_that_is_unavailable_is_tried_a_few_times(tries, is_taken):
    """Then the lease ends what was begun."""
    store = Away(tries)
    late = LateSteps(store)
    late.add(put())
    end(late)
    assert (store.read("seen", "k")[0] is not None) == is_taken
    assert store.tried == 4


def test_a_step_that_is_not_repeated_is_tried_once():
    """The release of a claim that has failed: most likely there is none."""
    store = Away(1)
    late = LateSteps(store)
    late.add(put(), is_repeated=False)
    end(late)
    assert store.tried == 1


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


def test_closing_gives_up_what_was_tried_in_vain(monkeypatch):
    """And does not wait for a store that is unavailable."""
    monkeypatch.setattr(late_steps, "_PAUSES", (SOON,))
    store = Away(99)
    late = LateSteps(store)
    late.add(put())
    late.close()
    end(late)
    assert store.tried == 1


def test_an_engine_that_closes_has_taken_them():
    """Also if it closes at once."""
    store = MemoryStore()
    seen = []
    store.close = lambda: seen.append(store.read("records", "k")[0])
    with Engine(store, sinks=[]) as engine:
        engine.records.later("k", put()[2])
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
