"""An engine that is closed leaves the tables of all its circuits, also if they are many."""

import logging
import threading
import time

import pytest

from mainstay import BreakerSettings, Engine, RetryPolicy
from mainstay.core.base.change import Change
from mainstay.core.circuit import cluster
from mainstay.stores.sqlite.store import SqliteStore

ONCE = RetryPolicy(name="once", max_attempts=1)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/circuits.db?synchronous=NORMAL"


def node(url, **fields):
    settings = BreakerSettings(failure_threshold=1, recovery_timeout=600.0)
    return Engine(
        url, policies=[ONCE], default="once", sinks=[], audit=False, breaker=settings, **fields
    )


class Dead:
    """A service that refuses everybody, and counts them."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1
        raise ConnectionError("down")


def call_all(engine, names, service):
    for name in names:
        engine.run(name, service)


def test_a_thousand_open_circuits_are_left_in_a_few_steps_of_the_store(url, monkeypatch):
    """A step for each took longer than an engine waits; the next one called what was down."""
    names, service = [f"name {n}" for n in range(1000)], Dead()
    first = node(url, share=3600.0)
    call_all(first, names, service)
    assert service.calls == len(names)
    alone, many = SqliteStore.transact, []
    monkeypatch.setattr(SqliteStore, "transact", lambda *args: many.append(args[1]) or alone(*args))
    first.close()
    assert many.count("circuits") == 0
    with node(url, share=3600.0) as second:
        for name in names:
            value, _ = second.store.read("circuits", name)
            assert all(seat.has_left for seat in cluster.decode(value).seats.values())
        call_all(second, names, service)
    assert service.calls == len(names)


def test_the_last_step_does_not_wait_for_one_that_has_many_circuits_to_go(url, monkeypatch):
    """A background step that is under way when the engine is closed ends early."""
    engine = node(url, share=3600.0)
    call_all(engine, ["a", "b", "c"], Dead())
    sharing, began, may_go_on = engine._sharing, threading.Event(), threading.Event()
    shared = []

    def share(circuit):
        shared.append(circuit.name)
        began.set()
        may_go_on.wait(10.0)

    monkeypatch.setattr(sharing, "_share_readable", share)
    step = threading.Thread(target=sharing.sync)
    step.start()
    began.wait(10.0)
    sharing._stopped.set()
    may_go_on.set()
    step.join()
    assert len(shared) == 1
    engine.close()


def test_what_is_not_left_in_time_is_reported(url, monkeypatch, caplog):
    """Not in silence: for a while, other processes count this one as a node."""
    engine = node(url, share=3600.0)
    call_all(engine, ["a", "b", "c"], Dead())
    monkeypatch.setattr("mainstay.drivers.guards.shared._CLOSING", 0.05)
    release = threading.Event()
    monkeypatch.setattr(engine._sharing, "_seating", lambda *_, **__: release.wait(10.0))
    with caplog.at_level(logging.WARNING):
        began = time.monotonic()
        engine.close()
    release.set()
    engine._sharing._jobs._thread.join(10.0)
    assert time.monotonic() - began < 10.0
    assert "3 circuits were not left in 0.05 s" in caplog.text


def test_a_damaged_table_costs_no_other_circuit_its_end(url, caplog):
    """It is reported, once, and the rest is left."""
    engine = node(url, share=3600.0)
    call_all(engine, ["a", "b"], Dead())
    engine.store.transact("circuits", "a", lambda value, now: (Change(b"{"), None))
    engine.close()
    assert caplog.text.count("the circuit 'a' is not shared") == 1
    with node(url, share=3600.0) as other:
        value, _ = other.store.read("circuits", "b")
    assert all(seat.has_left for seat in cluster.decode(value).seats.values())
