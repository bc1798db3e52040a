"""Circuits that outlive their process: the first call of the next one knows what the last one did.

Engines that are opened one after the other stand for processes; real ones are below.
"""

import asyncio
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import trio

from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitBreaker,
    CircuitOpenError,
    CircuitState,
    Engine,
    RetryPolicy,
    Window,
)
from mainstay.core.base.change import Change
from mainstay.core.circuit.breaker import Signal
from mainstay.core.circuit.cluster import decode, give
from mainstay.drivers.guards import prospects
from mainstay.drivers.guards.shared import CIRCUITS
from tests.drivers.guards.waits import wait_longer
from tests.processes import needs_proc

SETTINGS = BreakerSettings(failure_threshold=3, recovery_timeout=600.0)
ONCE = RetryPolicy(name="once", max_attempts=1)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/shared.db"


@pytest.fixture
def open_engine(url):
    """Opens engines whose steps are taken when they are opened and closed, and not in between."""
    engines = []

    def opened(**fields):
        fields = {"breaker": SETTINGS, "policies": [ONCE], "default": "once", **fields}
        engines.append(Engine(url, sinks=[], share=3600.0, **fields))
        return engines[-1]

    yield opened
    for engine in engines:
        engine.close()


@pytest.fixture
def patient(monkeypatch):
    """A loaded machine may need more than a tenth of a second."""
    wait_longer(monkeypatch.setattr)


def fails(engine, times=1, name="pay"):
    """How many calls of a dead service were made, of so many that were asked for."""
    made = []

    def down():
        made.append(1)
        raise ConnectionError("down")

    for _ in range(times):
        engine.run(name, down)
    return len(made)


# --- each way to call -----------------------------------------------------------------------------


def protected(engine, function):
    return engine.protect("pay")(function)()


def keyed(engine, function):
    return engine.idempotent(operation="pay", key=lambda: "k")(function)()


def blocks(engine, function):
    for attempt in engine.operation("pay").attempts():
        with attempt:
            function()


async def ablocks(engine, function):
    async for attempt in engine.operation("pay").attempts():
        with attempt:
            await function()


def plainly(engine, function):
    raise engine.run("pay", function).last_exception


async def aplainly(engine, function):
    raise (await engine.arun("pay", function)).last_exception


def with_a_key(engine, function):
    return engine.operation("pay", key="order-7").call(function)


SYNC = {
    "call": lambda engine, function: engine.call("pay", function),
    "run": plainly,
    "protect": protected,
    "idempotent": keyed,
    "key": with_a_key,
    "blocks": blocks,
}
ASYNC = {
    "acall": lambda engine, function: engine.acall("pay", function),
    "arun": aplainly,
    "protect": protected,
    "idempotent": keyed,
    "key": lambda engine, function: engine.operation("pay", key="order-7").acall(function),
    "blocks": ablocks,
}


@pytest.mark.req("FR-041-65", "IT-041-05")
@pytest.mark.parametrize("way", SYNC)
def test_the_first_call_of_the_next_process_is_refused(way, open_engine):
    """By each way to call, without a step of the store in between."""
    made = []

    def down():
        made.append(1)
        raise ConnectionError("down")

    for _ in range(3):
        engine = open_engine()
        for _ in range(3):
            with pytest.raises((ConnectionError, CircuitOpenError)):
                SYNC[way](engine, down)
        engine.close()
    assert len(made) == 3, "the first process alone has reached the service"


@pytest.mark.req("FR-041-65", "IT-041-05")
@pytest.mark.parametrize("run", [asyncio.run, trio.run])
@pytest.mark.parametrize("way", ASYNC)
def test_the_first_async_call_of_the_next_process_is_refused(way, run, open_engine):
    """The same in each event loop."""
    made = []

    async def down():
        made.append(1)
        raise ConnectionError("down")

    async def calls(engine):
        for _ in range(3):
            with pytest.raises((ConnectionError, CircuitOpenError)):
                await ASYNC[way](engine, down)

    for _ in range(3):
        engine = open_engine()
        run(calls, engine) if run is trio.run else run(calls(engine))
        engine.close()
    assert len(made) == 3


@pytest.mark.req("FR-041-65")
def test_failures_of_processes_one_after_the_other_add_up(open_engine):
    """One in each of three opens it in the third; a success in between begins the count again."""
    for _ in range(2):
        engine = open_engine()
        assert fails(engine) == 1
        engine.close()
    third = open_engine()
    assert fails(third, 2) == 1
    assert third.breaker("pay").state is CircuitState.OPEN
    assert (fails(third, 2, "ship"), third.call("ship", int)) == (2, 0)
    third.close()
    fourth = open_engine()
    assert fails(fourth, 2, "ship") == 2
    fourth.call("ship", int)
    fourth.close()
    assert fails(open_engine(), 3, "ship") == 3


def test_a_window_is_taken_over_with_its_failures(open_engine):
    """So a rate counts the calls of all of them."""
    rate = BreakerSettings(window=Window.calls(10), failure_rate=0.5, min_calls=4)
    for expected in (2, 2, 0):
        engine = open_engine(breaker=rate)
        assert fails(engine, 2) == expected
        engine.close()


def test_an_order_that_stands_holds_for_the_first_call(open_engine):
    """Of an operation whose circuit this process has yet to make."""
    first = open_engine()
    first.call("pay", int)
    first.close()
    second = open_engine()
    second.store.transact(
        CIRCUITS, "pay", lambda value, now: give(value, Signal.FORCE_OPEN, "ann", "", now)
    )
    assert fails(open_engine()) == 0


@pytest.mark.usefixtures("patient")
def test_beside_live_nodes_the_quorum_decides(open_engine):
    """One bad node does not keep a new one from calling; most of them do."""
    bad = open_engine()
    assert fails(bad, 3) == 3
    good = open_engine()
    assert fails(good) == 1, "one of two is not most of them"
    assert fails(good, 2) == 2
    assert fails(open_engine()) == 0, "two of three are"


@pytest.mark.usefixtures("patient")
def test_circuits_of_a_group_are_open_when_the_engine_is(open_engine):
    """They exist before any call."""

    def group():
        return {"breaker": None, "breakers": {"pay": CircuitBreaker("all", failure_threshold=1)}}

    first, second = open_engine(**group()), open_engine(**group())
    assert fails(first) == fails(second) == 1
    assert fails(open_engine(**group())) == 0, "by the votes of two live nodes"
    first.close()
    second.close()


def test_a_listener_may_use_the_circuits_while_a_new_one_begins_open(url, open_engine):
    """It is called without a lock: one that asks for the health of all does not wait for ever."""
    first = open_engine()
    assert fails(first, 3) == 3
    first.close()
    heard, engines = [], []

    def listener(event):
        heard.append((event.event_type, len(engines[0].health().circuits) if engines else 0))

    second = Engine(
        url, breaker=SETTINGS, policies=[ONCE], default="once", sinks=[listener], share=3600.0
    )
    engines.append(second)
    thread = threading.Thread(target=lambda: fails(second), daemon=True)
    thread.start()
    thread.join(30.0)
    assert not thread.is_alive()
    assert heard[0] == ("circuit_state_changed", 1)
    second.close()


# --- an opening is in the store before the call returns -------------------------------------------


def stored(engine, name="pay"):
    """The states that the seats of a circuit have in the store."""
    value, _ = engine.store.read(CIRCUITS, name)
    return [seat.circuit.state.value for seat in decode(value).seats.values()] if value else []


@pytest.mark.parametrize("way", SYNC)
@pytest.mark.usefixtures("patient")
def test_an_opening_is_in_the_store_when_the_call_returns(way, open_engine):
    """Whatever becomes of the process then."""
    engine = open_engine(breaker=BreakerSettings(failure_threshold=1))

    def down():
        raise ConnectionError("down")

    with pytest.raises(ConnectionError):
        SYNC[way](engine, down)
    assert stored(engine) == ["open"]


@pytest.mark.parametrize("run", [asyncio.run, trio.run])
@pytest.mark.parametrize("way", [way for way in ASYNC if way != "blocks"])
@pytest.mark.usefixtures("patient")
def test_an_opening_is_awaited(way, run, open_engine):
    """A block of an async loop has no place to await it: the thread brings it by itself."""
    engine = open_engine(breaker=BreakerSettings(failure_threshold=1))

    async def down():
        raise ConnectionError("down")

    async def main():
        with pytest.raises(ConnectionError):
            await ASYNC[way](engine, down)
        return stored(engine)

    assert (run(main) if run is trio.run else run(main())) == ["open"]


@pytest.mark.usefixtures("patient")
def test_a_retry_does_not_delay_the_opening(open_engine):
    """The attempt that opens it may be followed by a wait."""
    policy = RetryPolicy(name="p", max_attempts=3, backoff=Backoff.constant(0))
    engine = open_engine(policies=[policy], default="p", breaker=BreakerSettings())
    seen = []

    def down():
        seen.append(stored(engine))
        raise ConnectionError("down")

    engine.run("pay", down)
    engine.run("pay", down)
    assert len(seen) == 5
    assert stored(engine) == ["open"]


@pytest.mark.usefixtures("patient")
def test_blocks_by_hand_and_slow_calls_bring_their_opening_too(open_engine):
    """Each way in which a circuit opens."""
    pay = CircuitBreaker("pay", failure_threshold=1)
    hand = CircuitBreaker("hand", failure_threshold=1)
    slow = CircuitBreaker(
        "slow", window=Window.calls(2), min_calls=1, slow_after=1e-9, slow_rate=0.1,
    )  # fmt: skip
    engine = open_engine(breaker=None, breakers=[pay, hand, slow])
    with pytest.raises(ConnectionError), pay:
        raise ConnectionError("down")
    assert stored(engine) == ["open"]
    hand.record_failure()
    assert stored(engine, "hand") == ["open"]
    engine.protect("slow")(time.sleep)(0.001)
    assert stored(engine, "slow") == ["open"]


def test_a_store_that_hangs_holds_a_call_for_a_tenth_of_a_second(open_engine, monkeypatch):
    """The call returns, the event loop runs on, and the opening arrives when the store answers."""
    engine = open_engine(breaker=BreakerSettings(failure_threshold=1))
    answers, transact = threading.Event(), engine.store.transact

    def hangs(*args):
        answers.wait(60.0)
        return transact(*args)

    async def down():
        raise ConnectionError("down")

    async def main():
        ticks = []

        async def tick():
            while True:
                ticks.append(1)
                await asyncio.sleep(0.001)

        ticking = asyncio.create_task(tick())
        for name in ("pay", "ship"):
            with pytest.raises(ConnectionError):
                await engine.acall(name, down)
        ticking.cancel()
        return len(ticks)

    with monkeypatch.context() as patch:
        patch.setattr(engine.store, "transact", hangs)
        assert asyncio.run(main()) > 5, "the loop was blocked"
        assert fails(engine, 1, "sync") == 1
        assert fails(engine, 1, "sync") == 0
        assert stored(engine) == []
        answers.set()
    end = time.monotonic() + 30.0
    while "open" not in stored(engine, "sync"):
        assert time.monotonic() < end
        time.sleep(0.01)
    assert stored(engine) == ["open"]


def test_an_engine_opens_while_its_store_hangs(url, monkeypatch):
    """With local state; what the store has arrives when it answers."""
    monkeypatch.setattr("mainstay.drivers.guards.shared._OPENING", 0.05)
    answers, scan = threading.Event(), prospects.Prospects.look

    def hangs(*args):
        answers.wait(60.0)
        scan(*args)

    monkeypatch.setattr(prospects.Prospects, "look", hangs)
    engine = Engine(url, breaker=SETTINGS, policies=[ONCE], default="once", sinks=[])
    assert fails(engine) == 1
    answers.set()
    engine.close()


# --- what is read ahead ---------------------------------------------------------------------------


def test_many_circuits_are_read_in_pages_and_the_closed_ones_are_left_out(url, monkeypatch):
    """All of them when the engine is opened, a page in each step after it."""
    monkeypatch.setattr(prospects, "_PAGE", 3)
    with Engine(url, breaker=SETTINGS, policies=[ONCE], default="once", sinks=[]) as engine:
        for number in range(10):
            fails(engine, 3 if number % 2 else 0, f"op{number}")
            engine.run(f"op{number}", int)
    with Engine(url) as engine:
        found = prospects.Prospects(engine.store, 10.0)
        found.look("h:1:x")
        known = [number for number in range(10) if found.of(f"op{number}") is not None]
        assert known == [1, 3, 5, 7, 9]
        engine.store.transact(CIRCUITS, "op1", lambda value, now: (Change(), None))
        engine.store.transact(CIRCUITS, "op3", lambda value, now: (Change(b"{"), None))
        for _ in range(3):
            found.look("h:1:x")
            assert found.of("op1") is not None, "the round is not over"
        found.look("h:1:x")
        assert found.of("op1") is None
        assert found.of("op3") is None
        monkeypatch.setattr(prospects, "_MOST", 2)
        for _ in range(4):
            found.look("h:1:x")
        assert sum(found.of(f"op{number}") is not None for number in range(10)) == 2


# --- real processes -------------------------------------------------------------------------------

WORKER = """
    import os, signal, sys
    from mainstay import BreakerSettings, Engine, RetryPolicy
    from tests.drivers.guards.waits import wait_longer
    wait_longer()
    url, log, end = sys.argv[1:4]
    engine = Engine(url, policies=[RetryPolicy(name="once", max_attempts=1)], default="once",
                    sinks=[], breaker=BreakerSettings(failure_threshold=3, recovery_timeout=600.0))
    def down():
        with open(log, "a") as file:
            file.write("called\\n")
        raise ConnectionError("down")
    for _ in range(int(sys.argv[4])):
        engine.run("pay", down)
    if end == "close":
        engine.close()
    if end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""


def worker(url, log, end, calls=5):
    program = [sys.executable, "-c", textwrap.dedent(WORKER), url, str(log), end, str(calls)]
    return subprocess.run(program, timeout=60, check=False).returncode


@pytest.mark.req("FR-041-65", "IT-041-05")
@pytest.mark.parametrize("end", ["close", "exit", pytest.param("kill", marks=needs_proc)])
def test_three_processes_reach_a_dead_service_three_times_in_all(end, url, tmp_path):
    """Closed, ended without a word, or killed a moment after it opened."""
    log = tmp_path / "calls"
    assert [worker(url, log, end) for _ in range(3)] == ([-9] * 3 if end == "kill" else [0] * 3)
    assert log.read_text().count("called") == 3


@pytest.mark.req("FR-041-65")
@pytest.mark.parametrize("end", ["close", "exit"])
def test_processes_of_one_failure_each_open_it_together(end, url, tmp_path):
    """The third opens it, the fourth is refused."""
    log = tmp_path / "calls"
    for _ in range(5):
        worker(url, log, end, calls=1)
    assert log.read_text().count("called") == 3


@pytest.mark.req("FR-041-65")
def test_commands_of_exec_are_refused_after_their_failures(url, tmp_path):
    """Each `mainstay exec` is a process of its own."""
    config = tmp_path / "mainstay.yml"
    config.write_text(
        "circuitBreaker: {failureThreshold: 3, recoveryTimeout: 600}\n"
        "retry: {policies: {standard: {maxAttempts: 1}}}\n"
    )
    log = tmp_path / "calls"
    codes = []
    for _ in range(5):
        program = [
            sys.executable, "-m", "mainstay", "exec", "--store", url, "--operation", "pay",
            "--", "sh", "-c", f"echo called >> {log}; exit 7",
        ]  # fmt: skip
        done = subprocess.run(program, timeout=60, check=False, cwd=tmp_path, capture_output=True)
        codes.append(done.returncode)
    assert log.read_text().count("called") == 3, codes
    assert codes[3:] == [75, 75]


def test_a_process_that_sits_at_many_tables_is_looked_for_once(open_engine, monkeypatch):
    """Each look at /proc costs more than to read a table, and a step reads hundreds of them."""
    engine = open_engine()
    for number in range(20):
        fails(engine, name=f"pay{number}")
    engine.catch_up()
    asked = []
    monkeypatch.setattr(prospects, "has_ended", lambda name: asked.append(name) or False)
    found = prospects.Prospects(engine.store, 10.0)
    found.look("other:1:a")
    assert len(asked) == 1
