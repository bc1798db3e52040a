"""The memory store: records change in one step, on the store's clock."""

from __future__ import annotations

import threading

import pytest

from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time


def test_a_record_is_read_decided_and_written_in_one_step():
    """Eight threads count to 8,000 together: no step is lost."""
    store = MemoryStore()

    def count():
        for _ in range(1000):
            store.transact("counters", "a", lambda record, now: ((record or 0) + 1, None))

    threads = [threading.Thread(target=count) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert store.transact("counters", "a", lambda record, now: (record, record)) == 8000


def test_spaces_and_keys_are_apart_and_none_deletes():
    """The same key in another space is another record; deciding None removes it."""
    store = MemoryStore()
    for space in ("a", "b"):
        store.transact(space, "k", lambda record, now, space=space: (space, None))
    assert store.transact("a", "k", lambda record, now: (None, record)) == "a"
    assert store.transact("a", "k", lambda record, now: (None, record)) is None
    assert store.transact("b", "k", lambda record, now: (record, record)) == "b"


def test_a_decision_that_raises_changes_nothing():
    """The record stays as it was, and the store can go on."""
    store = MemoryStore()
    store.transact("a", "k", lambda record, now: (1, None))
    with pytest.raises(ZeroDivisionError):
        store.transact("a", "k", lambda record, now: (1 / 0, None))
    assert store.transact("a", "k", lambda record, now: (record, record)) == 1


def test_it_decides_on_the_process_clock():
    """Under virtual time the store's clock moves with it."""
    store = MemoryStore()
    with virtual_time() as time:
        first = store.transact("a", "k", lambda record, now: (None, now))
        time.advance(60.0)
        second = store.transact("a", "k", lambda record, now: (None, now))
    assert second - first == pytest.approx(60.0)


def test_closing_forgets():
    """Memory is the process's own: a closed store is empty."""
    store = MemoryStore()
    store.transact("a", "k", lambda record, now: (1, None))
    store.close()
    assert store.transact("a", "k", lambda record, now: (None, record)) is None
