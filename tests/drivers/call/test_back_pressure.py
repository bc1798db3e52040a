"""A call waits for a sink that cannot keep up: bounded, and never after it has succeeded."""

from __future__ import annotations

import asyncio
import threading

import pytest
import trio

from mainstay import Backoff, Engine, Jitter, RetryPolicy
from mainstay.ports import SinkWants
from mainstay.testing import scripted, virtual_time

TURN = 0.25
POLICY = RetryPolicy(
    name="api", max_attempts=3, backoff=Backoff.constant(1.0), jitter=Jitter.none()
)
ONCE = RetryPolicy(name="api", max_attempts=1)


class Pressure:
    """As a sink has it: says how long to wait, and counts."""

    def __init__(self, is_high=True, turn=TURN):
        self.is_high = is_high
        self.turns = 0
        self._turn = turn

    def turn(self):
        self.turns += 1
        return self._turn


class Sink:
    """Takes events, or the facts of calls, and is behind."""

    def __init__(self, *, facts, successes=False, **pressure):
        self.wants = SinkWants(successes=successes, facts=facts, evidence=True)
        self.pressure = Pressure(**pressure)
        self.types = []

    def __call__(self, event):
        self.types.append(event.event_type)

    def take(self, facts):
        self.types += [event.event_type for event in facts.events()]


@pytest.fixture(params=[True, False], ids=["facts", "events"])
def sink(request):
    return Sink(facts=request.param)


def engine(sink, policy=POLICY):
    return Engine(policies=[policy], sinks=[sink], seed=1)


def later(*outcomes):
    """An async function that ends so, call by call."""
    step = scripted(*outcomes)

    async def fetch():
        return step()

    return fetch


def test_a_sync_call_waits_after_each_failure(sink):
    """Besides the wait before the retry; not after the attempt that succeeded."""
    with virtual_time() as time:
        start = time.monotonic()
        outcome = engine(sink).run("api", scripted(ConnectionError(), ConnectionError(), 7))
        assert outcome.value == 7
        assert time.monotonic() - start == pytest.approx(2 * 1.0 + 2 * TURN)
    assert sink.pressure.turns == 2


def test_an_async_call_waits_without_blocking_its_loop(sink):
    """Other tasks run meanwhile."""
    calls = engine(sink)
    order = []

    async def call():
        await calls.operation("api").acall(later(ConnectionError(), 7))
        order.append("call")

    async def other():
        await asyncio.sleep(1.0 + TURN / 2)
        order.append("other")

    async def main():
        await asyncio.gather(call(), other())

    with virtual_time() as time:
        start = time.monotonic()
        asyncio.run(main())
        assert time.monotonic() - start == pytest.approx(1.0 + TURN)
    assert order == ["other", "call"]
    assert sink.pressure.turns == 1


def test_a_call_under_trio_waits(sink):
    """By trio's own sleep."""
    sink.pressure = Pressure(turn=0.001)

    async def main():
        return await engine(sink, ONCE).operation("api").acall(later(7))

    async def failing():
        with pytest.raises(ConnectionError):
            await engine(sink, ONCE).operation("api").acall(later(ConnectionError()))

    trio.run(failing)
    assert sink.pressure.turns == 1
    assert trio.run(main) == 7
    assert sink.pressure.turns == 1


def test_a_call_that_fails_for_good_waits_too(sink):
    """Else nothing would hold back calls that are not retried."""
    with virtual_time() as time:
        start = time.monotonic()
        with pytest.raises(ValueError, match="no"):
            engine(sink).operation("api").call(scripted(ValueError("no")))
        assert time.monotonic() - start == pytest.approx(TURN)


def test_with_room_no_call_waits(sink):
    """The turn is not even asked for."""
    sink.pressure = Pressure(is_high=False)
    with virtual_time() as time:
        start = time.monotonic()
        engine(sink).run("api", scripted(ConnectionError(), 7))
        assert time.monotonic() - start == pytest.approx(1.0)
    assert sink.pressure.turns == 0


def test_a_success_that_is_an_event_waits_before_its_first_attempt():
    """A value that is there is never held back, and so never lost to a cancellation."""
    sink = Sink(facts=False, successes=True)
    calls, at = engine(sink), []
    with virtual_time() as time:
        start = time.monotonic()
        calls.run("api", lambda: at.append(time.monotonic() - start))
        assert at == [pytest.approx(TURN)]
        assert time.monotonic() - start == pytest.approx(TURN)


def test_a_call_that_is_cancelled_while_it_waits_is_recorded_as_interrupted(sink):
    """After the failure it waited on; it has one end in the record."""
    calls = engine(sink)

    async def main():
        task = asyncio.ensure_future(calls.operation("api").acall(later(ConnectionError(), 7)))
        await asyncio.sleep(TURN / 2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with virtual_time():
        asyncio.run(main())
    assert [each for each in sink.types if each != "retry_attempt"] == [
        "attempt_failed",
        "call_interrupted",
    ]


def test_a_sync_call_in_the_thread_of_an_event_loop_does_not_wait(sink):
    """It would block the loop."""
    sink.pressure = Pressure(turn=60.0)

    async def main():
        with pytest.raises(ValueError, match="no"):
            engine(sink).operation("api").call(scripted(ValueError("no")))

    asyncio.run(main())
    trio.run(main)
    assert sink.pressure.turns == 2


def test_a_wait_ends_with_the_deadline(sink):
    """The time of the call bounds all of its waits."""
    sink.pressure = Pressure(turn=60.0)
    policy = RetryPolicy(name="api", max_attempts=3, backoff=Backoff.constant(0.1), deadline=2.0)
    with virtual_time() as time:
        start = time.monotonic()
        with pytest.raises(ConnectionError):
            engine(sink, policy).operation("api").call(scripted(*[ConnectionError()] * 3))
        assert time.monotonic() - start == pytest.approx(2.0)


def test_a_cancel_event_ends_a_wait(sink):
    """As it ends the wait before a retry."""
    sink.pressure = Pressure(turn=3600.0)
    cancel = threading.Event()
    cancel.set()
    call = engine(sink).operation("api", cancel=cancel)
    with pytest.raises(Exception, match="cancel"):
        call.call(scripted(ConnectionError(), 7))


def test_a_cancel_event_ends_the_wait_of_an_async_call(sink):
    """It is looked at while the call waits for its turn, too."""
    sink.pressure = Pressure(turn=3600.0)
    cancel = threading.Event()
    call = engine(sink).operation("api", cancel=cancel)

    async def main():
        task = asyncio.ensure_future(call.acall(later(ConnectionError(), 7)))
        await asyncio.sleep(1.0)
        cancel.set()
        with pytest.raises(Exception, match="cancel"):
            await task

    with virtual_time() as time:
        start = time.monotonic()
        asyncio.run(main())
        assert time.monotonic() - start == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("awaits", [False, True])
def test_the_attempts_of_a_block_wait(sink, awaits):
    """Before the next attempt: a block that ends cannot await."""
    blocks = engine(sink).operation("api")

    def body(attempt):
        with attempt:
            if attempt.number < 2:
                raise ConnectionError

    async def main():
        async for attempt in blocks.attempts():
            body(attempt)

    with virtual_time() as time:
        start = time.monotonic()
        if awaits:
            asyncio.run(main())
        else:
            for attempt in blocks.attempts():
                body(attempt)
        assert time.monotonic() - start == pytest.approx(1.0 + TURN)
    assert sink.pressure.turns == 1
