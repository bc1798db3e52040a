"""What a keyed call costs: statements, frames and C functions, counted.

Bounds for the work of a call that nothing goes wrong with; ratios of time are in bench/.
"""

import pytest

from mainstay import Engine
from mainstay.drivers.idempotency.keys import ENOUGH
from mainstay.stores.sqlite import statements as sqlite_steps
from mainstay.stores.sqlite.store import SqliteStore
from tests.costs import costs


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
