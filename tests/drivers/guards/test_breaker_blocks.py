"""Breakers inside breakers, calls that come back late, and blocks that are left elsewhere."""

import asyncio
import contextlib
import gc
import threading

import pytest

from mainstay import Backoff, BreakerSettings, CircuitBreaker, CircuitOpenError, PolicyError, retry
from mainstay.core.circuit.breaker import CircuitState
from mainstay.testing import virtual_time


def half_open(time, **fields):
    """A breaker whose one probe is still to be made."""
    breaker = CircuitBreaker("b", failure_threshold=1, recovery_timeout=10.0, **fields)
    breaker.record_failure()
    time.advance(10.0)
    assert breaker.state is CircuitState.HALF_OPEN
    return breaker


# --- the same breaker, twice around a call --------------------------------------------------------


def decorated(breaker):
    return breaker(breaker(lambda: "up"))()


def blocks(breaker):
    with breaker, breaker:
        return "up"


def a_block_around_a_function(breaker):
    with breaker:
        return breaker(lambda: "up")()


def a_function_around_a_block(breaker):
    def inner():
        with breaker:
            return "up"

    return breaker(inner)()


def retried(breaker):
    return retry(on=OSError, breaker=breaker)(breaker(lambda: "up"))()


def by_asyncio(breaker):
    @breaker
    async def inner():
        return "up"

    @breaker
    async def outer():
        async with breaker:
            return await inner()

    return asyncio.run(outer())


@pytest.mark.parametrize(
    "way",
    [decorated, blocks, a_block_around_a_function, a_function_around_a_block, retried, by_asyncio],
)
def test_a_probe_that_passes_the_same_breaker_twice_is_one_probe(way):
    """The inner call goes along with the outer one, or the circuit could never close again."""
    with virtual_time() as time:
        breaker = half_open(time)
        assert way(breaker) == "up"
        assert breaker.state is CircuitState.CLOSED
        assert breaker.snapshot().probes == 0


def test_only_what_is_inside_goes_along():
    """Another task is not part of the probe, though it runs in the same thread."""

    async def main(breaker):
        async with breaker:
            with pytest.raises(CircuitOpenError):
                await asyncio.create_task(breaker.acall(asyncio.sleep, 0))

    with virtual_time() as time:
        asyncio.run(main(half_open(time)))


# --- late -----------------------------------------------------------------------------------------


@pytest.mark.req("NFR-041-13")
@pytest.mark.parametrize("fields", [{}, {"listener": lambda event: None}])
def test_a_call_from_before_the_opening_says_nothing_of_what_came_after(fields):
    """It began in peace, took long, and failed when the circuit had opened and closed again."""
    with virtual_time() as time:
        breaker = CircuitBreaker("b", failure_threshold=1, recovery_timeout=10.0, **fields)

        @breaker
        def slow():
            breaker.record_failure()
            time.advance(10.0)
            assert breaker.allow_request()
            breaker.record_success()
            assert breaker.state is CircuitState.CLOSED
            raise ConnectionError("from another time")

        with pytest.raises(ConnectionError):
            slow()
        assert breaker.state is CircuitState.CLOSED
        assert breaker.snapshot().failure_count == 0


def test_a_success_from_before_a_failure_forgets_it():
    """Of the same generation: it ended later, and ends the row of failures."""
    breaker = CircuitBreaker("b", failure_threshold=2)

    @breaker
    def slow():
        breaker.record_failure()

    slow()
    assert breaker.snapshot().failure_count == 0


# --- blocks ---------------------------------------------------------------------------------------


def test_blocks_of_two_generators_do_not_swap_their_tickets():
    """One began before the opening, the other is the probe; each says what is its own to say."""

    def block(breaker, fails):
        with breaker:
            yield
            if fails:
                raise ConnectionError

    with virtual_time() as time:
        breaker = CircuitBreaker("b", failure_threshold=1, recovery_timeout=10.0)
        old = block(breaker, fails=True)
        next(old)
        breaker.record_failure()
        time.advance(10.0)
        probe = block(breaker, fails=False)
        next(probe)
        with pytest.raises(ConnectionError):
            next(old)
        assert breaker.state is CircuitState.HALF_OPEN, "the old one is not the probe"
        next(probe, None)
        assert breaker.state is CircuitState.CLOSED


def test_a_block_may_be_left_by_another_function_or_thread():
    """An exit stack enters it in one frame and leaves it in another: the place is free again."""
    with virtual_time() as time:
        breaker = half_open(time)
        stack = contextlib.ExitStack()
        stack.enter_context(breaker)
        thread = threading.Thread(target=stack.close)
        thread.start()
        thread.join(60)
        assert breaker.state is CircuitState.CLOSED


def test_decorating_again_and_again_leaves_nothing_behind():
    """A breaker does not hold on to functions that are gone."""
    breaker = CircuitBreaker("b")
    for _ in range(50):
        breaker(lambda: None)()
    gc.collect()
    breaker(lambda: None)()
    assert len(breaker._gates) <= 2


# --- wrong input ----------------------------------------------------------------------------------


def test_a_time_that_a_function_of_the_users_decides_is_refused():
    """It would run under the lock; and an open time of nothing is none."""
    for backoff in (Backoff.custom(lambda n: 1.0), Backoff.constant(0)):
        with pytest.raises(PolicyError, match="recovery_timeout"):
            BreakerSettings(recovery_timeout=backoff)


def test_a_listener_that_cannot_be_called_is_refused():
    """One or several, the error names it."""
    for listener in (3, [3]):
        with pytest.raises(PolicyError, match="listener = 3: must be a function of one event"):
            CircuitBreaker("b", listener=listener)


def test_a_refusal_on_the_ramp_does_not_call_the_circuit_closed():
    """It says that calls come back little by little, and when all will."""
    with virtual_time() as time:
        breaker = half_open(time, ramp=60.0)
        breaker.call(int)
        answers = [breaker.allow_request() for _ in range(10)]
        assert answers.count(True) < 5
        with pytest.raises(CircuitOpenError, match="only beginning to let calls through"):
            for _ in range(10):
                breaker.call(int)


def test_a_4xx_of_botocore_does_not_count():
    """Its status stands where no other client has it."""
    error = RuntimeError("bad request")
    error.response = {"ResponseMetadata": {"HTTPStatusCode": 400}, "Error": {"Code": "Invalid"}}
    assert not BreakerSettings().counts(error)
    error.response["ResponseMetadata"]["HTTPStatusCode"] = 500
    assert BreakerSettings().counts(error)
