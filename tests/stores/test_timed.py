"""A timed store: the store's own answers, and what each step took."""

import asyncio
import sqlite3

import pytest

from mainstay import Engine
from mainstay.core.base.change import Change
from mainstay.stores.memory import MemoryStore
from mainstay.stores.timed import TimedStore, timed
from mainstay.testing import StoreContract, virtual_time


class TestTheContract(StoreContract):
    """A timed store is a store."""

    @pytest.fixture(autouse=True)
    def _one_place(self, monkeypatch):
        self._store = MemoryStore()
        monkeypatch.setattr(self._store, "close", lambda: None)

    def open(self):
        return TimedStore(self._store, [lambda *_, failed: None])


class Listener:
    def __init__(self):
        self.steps = []

    def __call__(self, event):
        pass

    def store_step(self, store, step, seconds, *, failed):
        self.steps.append((store, step, failed))
        assert 0.0 <= seconds < 60.0


def test_every_step_is_told_with_the_kind_of_the_store():
    """Which store, which step, and whether it failed."""
    heard = Listener()
    store = timed(MemoryStore(), (heard,))
    store.transact("s", "a", lambda value, now: (Change(b"1"), None))
    assert store.read("s", "a")[0] == b"1"
    assert asyncio.run(store.aread("s", "a"))[0] == b"1"
    assert asyncio.run(store.atransact("s", "a", lambda value, now: (Change(None), value))) == b"1"
    assert store.scan("s") == []
    assert store.purge() == 0
    steps = ["transact", "read", "read", "transact", "scan", "purge"]
    assert heard.steps == [("memory", step, False) for step in steps]


def test_a_step_that_fails_is_told_and_raises_as_ever():
    """The caller gets the store's own error."""
    heard = Listener()
    store = timed(MemoryStore(), (heard,))
    with pytest.raises(ZeroDivisionError):
        store.transact("s", "a", lambda value, now: 1 / 0)
    assert heard.steps == [("memory", "transact", True)]


def test_a_listener_that_raises_costs_no_step(caplog):
    """It is reported, and the answer is the store's."""

    class Broken(Listener):
        def store_step(self, *_, failed):
            raise RuntimeError("no disk")

    store = timed(MemoryStore(), (Broken(),))
    assert store.read("s", "a")[0] is None
    assert "a listener raised on a step of the store" in caplog.text


def test_an_engine_times_its_store_only_where_somebody_asks(tmp_path):
    """Without such a sink the store is the store itself."""
    with Engine(sinks=[print]) as engine:
        assert type(engine.store) is MemoryStore
    heard = Listener()
    with Engine(f"sqlite:///{tmp_path}/a.db", sinks=[heard]) as engine, virtual_time():
        assert engine.operation("parse", key="a").call(int, "7") == 7
    assert ("sqlite", "transact", False) in heard.steps


def test_a_transaction_of_the_callers_still_works(tmp_path):
    """What only some stores can do is asked of the store itself."""
    url = f"sqlite:///{tmp_path}/a.db"
    with Engine(url, sinks=[Listener()]) as engine:
        connection = sqlite3.connect(tmp_path / "a.db", isolation_level=None)
        connection.execute("BEGIN IMMEDIATE")
        operation = engine.operation("parse", key="a", connection=connection)
        assert operation.call(int, "7") == 7
        connection.execute("COMMIT")
        connection.close()
        assert engine.operation("parse", key="a").run(int, "7").attempts == 0
