"""Long waits are shown in the store of an engine, and nothing waits for that."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mainstay import Backoff, CallCancelled, Engine, Jitter, RetryPolicy
from mainstay.core.base.spaces import Space
from mainstay.core.telemetry.waits import read_board
from mainstay.runtime import waits as module
from mainstay.runtime.waits import Waits
from mainstay.stores.memory import MemoryStore
from mainstay.testing import scripted, virtual_time
from tests.processes import wait_until as wait_for

SPACE = Space.WAITS.value
LONG = RetryPolicy(
    name="long", retry_on=ConnectionError, backoff=Backoff.constant(50.0), jitter=Jitter.none()
)


class Lasting(MemoryStore):
    """A store in memory that passes for one which outlives the process."""

    abilities = MemoryStore.abilities | {"durable"}


def shown(store):
    found = [read_board(value) for _, value in store.scan(SPACE)]
    return [(each.operation, each.attempt, each.error) for board in found for each in board.waits]


def wait_until(is_so):
    wait_for(is_so, "what is shown")


def failing():
    raise ConnectionError("down")


def by_call(engine, stop):
    engine.operation("fetch", cancel=stop).call(failing)


def by_block(engine, stop):
    for attempt in engine.operation("fetch", cancel=stop).attempts():
        with attempt:
            failing()


def by_key(engine, stop):
    engine.operation("fetch", key="k", cancel=stop).call(failing)


def by_async_call(engine, stop):
    async def fetch():
        failing()

    asyncio.run(engine.operation("fetch", cancel=stop).acall(fetch))


@pytest.mark.req("AG-08.waiting")
@pytest.mark.parametrize("way", [by_call, by_block, by_key, by_async_call])
def test_a_long_wait_is_shown_while_it_lasts(way):
    """With the operation, the attempt and its failure; once it is cut off it is taken down."""
    store, stop = Lasting(), threading.Event()
    engine = Engine(store, policies=[LONG], default="long", sinks=[], audit=False)
    ended = []

    def work():
        try:
            way(engine, stop)
        except CallCancelled as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_until(lambda: shown(store) == [("fetch", 1, "ConnectionError")])
    finally:
        stop.set()
        thread.join(30)
    assert ended
    wait_until(lambda: shown(store) == [])
    engine.close()


class TakesFacts:
    """A sink that lets a call take the fast path."""

    def take(self, facts):
        pass

    def __call__(self, event):
        pass


@pytest.mark.parametrize("sinks", [[], [print], [TakesFacts()]], ids=["none", "one", "facts"])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_wait_on_every_path_is_shown(monkeypatch, sinks, is_async):
    """Also of a call that needs only attempts and waits: the second, whose failure is known."""
    seen, pause = [], threading.Event()

    def look(*_):
        for _ in range(3000):
            seen.extend(shown(store))
            if seen:
                return
            pause.wait(0.01)

    async def alook(*_):
        look()

    monkeypatch.setattr("time.sleep", look)
    monkeypatch.setattr("asyncio.sleep", alook)
    monkeypatch.setattr("mainstay.runtime.clock.SystemClock.sleep", look)
    store = Lasting()
    with Engine(store, policies=[LONG], default="long", sinks=sinks, audit=False) as engine:
        for _ in range(2):
            seen.clear()
            work = scripted(ConnectionError("down"), "up")

            async def fetch(work=work):
                return work()

            if is_async:
                assert asyncio.run(engine.acall("fetch", fetch)) == "up"
            else:
                assert engine.call("fetch", work) == "up"
            assert seen == [("fetch", 1, "ConnectionError")]
            engine._waits._write()
            assert shown(store) == []


def test_short_waits_and_virtual_ones_are_not_shown():
    """Nobody could look meanwhile; no thread is started for them."""
    store = Lasting()
    policy = LONG.replace(backoff=Backoff.constant(0.01))
    with Engine(store, policies=[policy], default="long", sinks=[], audit=False) as engine:
        engine.call("fetch", scripted(ConnectionError("down"), "up"))
        with virtual_time():
            engine.operation("fetch", policy=LONG).call(scripted(ConnectionError("down"), "up"))
        assert engine._waits._background is None
    assert shown(store) == []


def test_a_store_that_forgets_with_the_process_shows_nothing():
    """Another terminal could not read it."""
    with Engine(sinks=[]) as engine:
        assert engine._waits is None


def test_an_unavailable_store_costs_the_call_nothing():
    """The entry is not written; the next one is."""

    class Down(Lasting):
        def transact(self, space, *more):
            if space == SPACE and self.is_down:
                self.tried.set()
                raise ConnectionError("gone")
            return super().transact(space, *more)

    store = Down()
    store.is_down, store.tried = True, threading.Event()
    waits, plan = Waits(store), Engine(policies=[LONG]).operation("long")._verb_site
    first = waits.show(plan, 1, ConnectionError(), 50.0)
    assert store.tried.wait(30)
    store.is_down = False
    waits.show(plan, 2, None, 50.0)
    wait_until(lambda: len(shown(store)) == 2)
    waits.end(first)
    wait_until(lambda: shown(store) == [("long", 2, "")])
    waits.end(first)
    waits.close()
    assert shown(store) == []
    assert waits.show(plan, 1, None, 50.0) == 0


def test_of_very_many_waits_the_number_is_shown(monkeypatch):
    """A record stays small."""
    monkeypatch.setattr(module, "_MOST", 3)
    store, plan = Lasting(), Engine(policies=[LONG]).operation("long")._verb_site
    waits = Waits(store)
    for number in range(1, 8):
        waits.show(plan, number, None, 50.0)
    wait_until(lambda: [read_board(value).more for _, value in store.scan(SPACE)] == [4])
    assert len(shown(store)) == 3
    waits.close()
