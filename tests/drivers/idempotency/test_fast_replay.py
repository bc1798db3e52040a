"""A glance at the record before the claim: made where keys come again, left out where they do not.

Whoever is replayed by a claim is replayed with the same value and told of in the same way; and a
call that has ended is replayed also while the store cannot be written.
"""

import asyncio
import contextlib
import sqlite3
from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mainstay import Engine, StoreUnavailable
from mainstay.drivers.idempotency.keys import ENOUGH
from mainstay.stores.memory import MemoryStore
from mainstay.stores.sqlite.store import SqliteStore
from tests.processes import at_some_speed


class Watched(MemoryStore):
    """Counts readings, and refuses steps or readings where it is told to."""

    locks = True

    def __init__(self):
        super().__init__()
        self.readings, self.refused, self.is_locked, self.is_gone = 0, 0, False, False

    def read(self, space, key):
        self.readings += 1
        if self.is_gone:
            raise StoreUnavailable(self.url, "read", "it is gone")
        return super().read(space, key)

    def transact(self, space, key, decide):
        if self.is_locked:
            self.refused += 1
            raise StoreUnavailable(self.url, "write", "it is locked")
        return super().transact(space, key, decide)


@pytest.fixture
def store():
    return Watched()


@pytest.fixture(params=["sync", "asyncio", "trio"])
def charging(request):
    """A keyed function on a store, in one of three colours; all are called as plain functions."""

    def on(store):
        engine = Engine(store, sinks=[], audit=False)
        calls = []

        def charge(order, amount):
            calls.append(order)
            return [order, amount]

        async def acharge(order, amount):
            return charge(order, amount)

        keyed = engine.idempotent(key=lambda order, amount: order, operation="charge")
        if request.param == "sync":
            call = keyed(charge)
        else:
            run = _on_asyncio if request.param == "asyncio" else trio.run
            decorated = keyed(acharge)

            def call(order, amount):
                return run(decorated, order, amount)

        return engine, call, calls

    return on


def _on_asyncio(function, *args):
    return asyncio.run(function(*args))


def begin(call, first=0, count=ENOUGH):
    for number in range(first, first + count):
        call(f"order-{number}", 5)


@pytest.mark.req("FR-041-65")
def test_where_keys_are_always_new_nothing_is_read_before_the_claim(charging, store):
    engine, call, calls = charging(store)
    begin(call)
    assert store.readings == ENOUGH
    begin(call, first=ENOUGH)
    assert store.readings == ENOUGH
    assert len(set(calls)) == len(calls) == 2 * ENOUGH
    engine.close()


def test_a_key_that_comes_again_is_replayed_and_looked_for_from_then_on(charging, store):
    engine, call, calls = charging(store)
    begin(call)
    assert call("order-3", 5) == ["order-3", 5]
    assert engine.records.counts()["hit"] == 1
    assert store.readings == ENOUGH
    assert call("order-4", 5) == ["order-4", 5]
    assert store.readings == ENOUGH + 1
    assert engine.records.counts()["hit"] == 2
    assert len(calls) == ENOUGH
    engine.close()


def test_one_hit_among_new_keys_begins_the_count_anew(charging, store):
    engine, call, _ = charging(store)
    begin(call, count=ENOUGH - 1)
    call("order-0", 5)
    begin(call, first=ENOUGH)
    assert store.readings == 2 * ENOUGH
    begin(call, first=2 * ENOUGH)
    assert store.readings == 2 * ENOUGH
    engine.close()


def test_a_call_that_has_ended_is_replayed_while_nobody_can_write(charging, store):
    engine, call, calls = charging(store)
    begin(call)
    store.is_locked = True
    assert call("order-3", 5) == ["order-3", 5]
    assert len(calls) == ENOUGH
    assert engine.records.counts()["hit"] == 1
    engine.close()


def test_one_that_has_not_hears_what_the_claim_met(charging, store):
    engine, call, _ = charging(store)
    begin(call)
    store.is_locked = True
    with pytest.raises(StoreUnavailable, match="it is locked"):
        call("another", 5)
    engine.close()


def test_of_a_store_that_cannot_be_read_either_the_first_trouble_is_told(charging, store):
    engine, call, _ = charging(store)
    begin(call)
    store.is_locked = store.is_gone = True
    with pytest.raises(StoreUnavailable, match="it is locked"):
        call("order-3", 5)
    engine.close()


def test_a_file_that_somebody_else_has_locked_still_replays(charging, tmp_path):
    """With the real lock, of another connection."""

    def check(timeout):
        path = tmp_path / f"{timeout}.db"
        store = SqliteStore(f"sqlite:///{path}?timeout={timeout}&synchronous=NORMAL")
        engine, call, calls = charging(store)
        with engine, contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            begin(call)
            other.execute("BEGIN IMMEDIATE")
            assert call("order-3", 5) == ["order-3", 5]
            # An event loop gives up by itself if the writer thread does not answer in twice that.
            with pytest.raises(StoreUnavailable, match=r"locked|no answer within"):
                call("another", 5)
            other.execute("ROLLBACK")
            assert call("another", 5) == ["another", 5]
            assert len(calls) == ENOUGH + 1

    at_some_speed(check, 0.3, 1.5, 10.0)


@given(st.lists(st.one_of(st.integers(0, 3), st.integers(100, 1000)), max_size=80))
def test_whatever_comes_each_key_runs_once_and_has_its_value(orders):
    """Against a plain dict: with or without a glance, nobody can tell."""
    calls, seen = [], {}
    with Engine(Watched(), sinks=[], audit=False) as engine:

        @engine.idempotent(key=str)
        def charge(order):
            calls.append(order)
            return [order, len(calls)]

        for order in orders:
            seen.setdefault(order, [order, len(seen) + 1])
            assert charge(order) == seen[order]
        assert calls == list(seen)
        assert engine.records.counts()["hit"] == len(orders) - len(seen)


def test_a_replay_does_not_wait_for_the_store_as_a_claim_does(charging, store):
    """What has ended is read at the first refusal, however long `store_wait` is."""
    engine, call, calls = charging(store)
    begin(call)
    store.is_locked = True
    assert call("order-3", 5) == ["order-3", 5]
    assert store.refused == 1
    assert len(calls) == ENOUGH
    engine.close()


@pytest.mark.parametrize("run", [None, _on_asyncio, trio.run], ids=["sync", "asyncio", "trio"])
def test_a_failure_that_is_replayed_begins_the_count_anew_too(store, run):
    engine = Engine(store, sinks=[], audit=False)

    def charge(order):
        if order == "bad":
            raise ValueError(order)

    async def acharge(order):
        charge(order)

    keyed = engine.idempotent(key=str)(charge if run is None else acharge)
    call = keyed if run is None else partial(run, keyed)
    orders = ["bad", *range(ENOUGH - 2), "bad", *range(100, 100 + ENOUGH)]
    for order in orders:
        with contextlib.suppress(ValueError):
            call(order)
    assert engine.records.counts()["hit"] == 1
    assert store.readings == len(orders)
    engine.close()
