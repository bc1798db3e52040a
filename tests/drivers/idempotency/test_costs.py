"""What a keyed call costs: statements, frames and C functions, counted.

Bounds for the work of a call that nothing goes wrong with; ratios of time are in bench/.
"""

import asyncio
import sys
import threading

import pytest

from mainstay import Engine
from mainstay.drivers.idempotency.keys import ENOUGH
from mainstay.stores.sqlite import statements as sqlite_steps
from mainstay.stores.sqlite.store import SqliteStore
from tests.costs import costs, set_apart


@pytest.fixture
def charge(tmp_path):
    """A keyed function on SQLite, used so often with new keys that it expects the next."""
    store = SqliteStore(f"sqlite:///{tmp_path}/kept.db?synchronous=NORMAL")
    with Engine(store, sinks=[], audit=False) as engine:

        @engine.idempotent(key=lambda order, amount: order)
        def charge(order, amount):
            return amount

        for number in range(ENOUGH):
            charge(f"order-{number}", 5)
        yield charge


def statements(entered):
    return sum(name == "Connection.execute" for name in entered)


@pytest.mark.req("NFR-041-02")
def test_a_call_with_a_new_key_says_two_statements(charge, monkeypatch):
    """The claim and the outcome, each a commit of its own; nothing is read."""
    for name in ("_INSERT", "_UPDATE"):  # a machine that stands still is no wait for the lock
        monkeypatch.setattr(
            sqlite_steps, name, getattr(sqlite_steps, name).replace("< 0.01", "< 50")
        )
    calls = [costs(charge, f"another-{number}", 5) for number in range(3)]
    assert [statements(entered) for entered in calls] == [2, 2, 2]
    assert min(map(len, calls)) <= 102, "a machine that stands still adds looks at the clock"


@pytest.mark.req("NFR-041-02")
def test_a_call_whose_key_is_known_says_one(charge):
    """A lookup without a transaction, once it has been seen that keys come again."""
    charge("order-1", 5)
    entered = costs(charge, "order-2", 5)
    assert statements(entered) == 1
    assert len(entered) <= 36


CALLERS, CALLS = 64, 10


@pytest.mark.req("NFR-041-02")
def test_an_acknowledgement_of_many_tasks_costs_few_frames(tmp_path):
    """A claim or a completion that shares its commit, in the loop's thread and in the writer's."""
    entered, least = [], []

    def watch(_frame, kind, argument):
        is_lock = kind == "c_call" and argument.__qualname__ == "RLock.__enter__"  # in 3.14
        if kind in ("call", "c_call") and not is_lock:
            entered.append(kind)

    async def crowd(charge, number):
        async def caller(name):
            for call in range(CALLS):
                await charge(f"{number}-{name}-{call}", 5)

        await asyncio.gather(*(caller(name) for name in range(CALLERS)))

    async def run(charge):
        for number in range(2):
            await crowd(charge, number)
        for number in range(3):
            entered.clear()
            sys.setprofile(watch)
            try:
                await crowd(charge, f"counted-{number}")
            finally:
                sys.setprofile(None)
            least.append(len(entered) / (CALLERS * CALLS * 2))

    threading.setprofile(watch)  # of the writer, which is started with the first step
    try:
        with Engine(f"sqlite:///{tmp_path}/kept.db", sinks=[], audit=False) as engine:

            @engine.idempotent(key=lambda order, amount: order)
            async def charge(order, amount):
                return amount

            with set_apart():
                asyncio.run(run(charge))
    finally:
        threading.setprofile(None)
    assert min(least) <= 72
