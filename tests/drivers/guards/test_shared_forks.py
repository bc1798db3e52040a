"""Shared circuits in forked children, and at the end of a process."""

from __future__ import annotations

import gc
import os
import threading
import time

import pytest

from mainstay import BreakerSettings, CircuitBreaker, CircuitOpenError, Engine
from mainstay.core.circuit.breaker import Signal
from mainstay.core.circuit.cluster import decode, give
from mainstay.drivers.guards import registry, shared
from mainstay.drivers.guards.shared import CIRCUITS, Sharing
from mainstay.runtime.fork import flush_all
from mainstay.stores.sqlite.store import SqliteStore
from tests.crash.forks import lines, run
from tests.drivers.guards.waits import wait_longer

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
SETTINGS = BreakerSettings(failure_threshold=1, recovery_timeout=600.0)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/shared.db"


@pytest.fixture
def open_engine(url):
    """Opens engines whose steps are taken when they are opened and closed, and not in between."""
    engines = []

    def opened(**fields):
        engines.append(Engine(url, sinks=[], share=3600.0, **{"breaker": SETTINGS, **fields}))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


def in_child(check):
    """Whether a forked child finds the same."""
    child = os.fork()
    if child == 0:
        try:
            os._exit(0 if check() else 1)
        finally:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def table_of(url, name):
    store = SqliteStore(url)
    try:
        return decode(store.read(CIRCUITS, name)[0])
    finally:
        store.close()


# --- a forked child -------------------------------------------------------------------------------


@needs_fork
def test_a_child_that_runs_another_program_never_sits_at_a_table(open_engine, url):
    """Its first step comes after an interval: a program in its place would be a node for ever."""
    engine = open_engine()
    assert engine.circuits["pay"].allow_request()
    assert engine.catch_up()
    assert in_child(lambda: time.sleep(0.3) or True)
    assert len(table_of(url, "pay").seats) == 1


@needs_fork
def test_the_first_call_of_a_child_knows_what_its_parent_has_read_ahead(open_engine):
    """A server that opens its engine before it forks has workers that know open circuits."""
    before = open_engine()
    before.circuits["pay"].record_failure()
    before.close()
    engine = open_engine()
    assert in_child(lambda: not engine.circuits["pay"].allow_request())


@needs_fork
@pytest.mark.parametrize("is_shared", [True, False])
def test_a_probe_of_the_parent_is_no_probe_of_its_child(open_engine, monkeypatch, is_shared):
    """It ends in the parent: the child neither waits for it, nor reports it as lost."""
    wait_longer(monkeypatch.setattr)
    breaker = CircuitBreaker("pay", failure_threshold=1, recovery_timeout=0.01)
    if is_shared:
        open_engine(breaker=None, breakers=[breaker])
    breaker.record_failure()
    time.sleep(0.02)

    def has_none():
        link = breaker.link
        return not breaker._circuit.probes and (link is None or not link.tokens)

    with breaker:
        assert in_child(has_none)
        assert breaker._circuit.probes
    assert breaker.state.name == "CLOSED"


BY_C_CODE = """
from mainstay import BreakerSettings, CircuitOpenError, RetryPolicy
from mainstay.core.circuit.cluster import decode
from mainstay.drivers.call import call, guard
call.WAIT = guard.WAIT = 30.0  # a loaded machine may need more than a tenth of a second
rules = BreakerSettings(failure_threshold=1, recovery_timeout=600.0)
once = RetryPolicy(name="once", max_attempts=1)
engine = Engine(sys.argv[2], sinks=[], breaker=rules, policies=[once], default="once", share=3600.0)
engine.call("first", int)

def down():
    raise ConnectionError("down")

def work():
    try:
        engine.call("pay", down)
    except ConnectionError:
        note("nodes", engine._sharing.node)
    os._exit(0)  # nothing is flushed: the opening is there by now

note("nodes", engine._sharing.node)
assert reap(in_child(work, fork=fork_in_c)) == 0
seats = decode(engine.store.read("circuits", "pay")[0]).seats
note("seats", *[f"{name} {seat.circuit.state.value}" for name, seat in seats.items()])
engine.close()
"""


@needs_fork
@pytest.mark.parametrize("server", ["valkey_url", "nats_url"])
def test_a_circuit_that_opens_in_a_child_of_c_code_is_shared(request, server, tmp_path):
    """As one of another node: its parent's threads, which would bring it there, are not there."""
    name = tmp_path.name.replace(".", "-")
    options = {"valkey_url": f"prefix={name}:", "nats_url": f"bucket={name}"}[server]
    run(BY_C_CODE, tmp_path, f"{request.getfixturevalue(server)}?{options}")
    assert lines(tmp_path, "errors") == []
    parent, child = lines(tmp_path, "nodes")
    assert parent != child
    assert lines(tmp_path, "seats") == [f"{child} open"]


@needs_fork
def test_a_child_of_a_closed_engine_takes_no_step_when_it_ends(open_engine, monkeypatch):
    """There is no store any more, and nothing to warn of."""
    engine = open_engine()
    engine.circuits["pay"].record_failure()
    engine.close()
    stores = []  # of other tests too, if those have left an engine open
    monkeypatch.setattr(Sharing, "sync", lambda self, **_: stores.append(self._store))
    assert in_child(lambda: flush_all() or engine.store not in stores)


# --- circuits that were forgotten -----------------------------------------------------------------


def test_a_circuit_that_is_made_again_follows_the_order_that_stands(open_engine, monkeypatch):
    """The registry has forgotten it, and an operator has not taken the order back."""
    monkeypatch.setattr(registry, "_MOST", 20)
    engine = open_engine()
    names = [f"pay{number}" for number in range(20)]
    for name in names:
        assert engine.circuits[name].allow_request()
    engine.catch_up()
    for name in names:
        engine.store.transact(
            CIRCUITS, name, lambda value, now: give(value, Signal.FORCE_OPEN, "ann", "", now)
        )
    engine.catch_up()
    assert engine.circuits["another"].allow_request()
    gc.collect()
    forgotten = next(name for name in names if name not in engine.circuits.names)
    assert engine.circuits[forgotten] is not None
    engine.catch_up()
    assert engine.circuits[forgotten].state.name == "FORCED_OPEN"


def test_an_order_stands_for_a_circuit_that_has_failures_of_its_own(open_engine, monkeypatch):
    """It takes over no circuit that has followed it, so it follows the order itself."""
    settings = BreakerSettings(failure_threshold=5)
    before = open_engine(breaker=settings)
    assert before.circuits["pay"].allow_request()
    before.catch_up()
    before.store.transact(
        CIRCUITS, "pay", lambda value, now: give(value, Signal.FORCE_OPEN, "ann", "", now)
    )
    before.catch_up()
    before.close()
    monkeypatch.setattr(shared.Prospects, "of", lambda *_: None)  # as if the store had been slow
    engine = open_engine(breaker=settings)
    engine.circuits["pay"].record_failure()
    engine.catch_up()
    with pytest.raises(CircuitOpenError), engine.circuits["pay"]:
        pass


# --- the end --------------------------------------------------------------------------------------


def test_an_engine_is_closed_while_its_store_hangs(url, monkeypatch):
    """However many circuits there are, and however long each step takes."""
    monkeypatch.setattr(shared, "_CLOSING", 0.1)
    store, hangs, goes_on = SqliteStore(url), threading.Event(), threading.Event()
    transact = store.transact

    def late(*args, **fields):
        if hangs.is_set():
            goes_on.wait(60.0)
        return transact(*args, **fields)

    monkeypatch.setattr(store, "transact", late)
    sharing = Sharing(store, [CircuitBreaker("pay")], interval=3600.0)
    sharing.start()
    hangs.set()
    closing = threading.Thread(target=sharing.close, daemon=True)
    closing.start()
    closing.join(20.0)
    was_closed = not closing.is_alive()
    goes_on.set()
    closing.join(30.0)
    sharing._jobs.close(30.0)
    store.close()
    assert was_closed


def test_a_process_that_ends_leaves_although_no_thread_can_be_started(
    open_engine, url, monkeypatch
):
    """As from Python 3.12 on, once the interpreter has begun to end."""
    engine = open_engine()
    assert engine.circuits["pay"].allow_request()
    engine.catch_up()

    def refuse(_):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as ending:
        ending.setattr(threading.Thread, "start", refuse)
        engine._sharing.leave()
    assert [seat.has_left for seat in table_of(url, "pay").seats.values()] == [True]
