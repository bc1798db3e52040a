"""The memory store: the contract, on the process's clock."""

from __future__ import annotations

import pytest

from mainstay.core.base.change import KEEP, Change
from mainstay.stores.memory import MemoryStore
from mainstay.testing import virtual_time
from mainstay.testing.stores import StoreContract


class TestMemoryStore(StoreContract):
    """One process: the second view is the same object."""

    def open(self):
        return self.store

    @pytest.fixture(autouse=True)
    def _one(self, monkeypatch):
        self.store = MemoryStore()
        monkeypatch.setattr(self.store, "close", lambda: None)


def test_it_decides_on_the_process_clock():
    """Under virtual time the store's clock moves with it."""
    store = MemoryStore()
    with virtual_time() as time:
        first = store.transact("a", "k", lambda value, now: (KEEP, now))
        time.advance(60.0)
        second = store.transact("a", "k", lambda value, now: (KEEP, now))
    assert second - first == pytest.approx(60.0)


def test_closing_forgets():
    """Memory is the process's own: a closed store is empty."""
    store = MemoryStore()
    store.transact("a", "k", lambda value, now: (Change(b"1"), None))
    store.close()
    assert store.read("a", "k")[0] is None


def test_it_cannot_do_what_outlives_a_process():
    """It says so, and an engine can ask."""
    assert "durable" not in MemoryStore.abilities
