"""Breakers inside breakers, calls that come back late, and blocks that are left elsewhere."""

import asyncio
import contextlib
import gc
import sys
import threading
from time import sleep

import pytest

from mainstay import (
    Backoff,
    BreakerSettings,
    CircuitBreaker,
    CircuitOpenError,
    PolicyError,
    retry,
)
from mainstay.core.circuit.breaker import CircuitState, Ticket
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


class Session:
    """Enters the breaker in one function, and leaves it in another."""

    def __init__(self, breaker):
        self.breaker = breaker

    def enter_context(self, breaker):
        breaker.__enter__()

    def __exit__(self, *error):
        self.breaker.__exit__(*error)


def closes(stack, error=None):
    """Ends a stack, from a function of its own."""
    stack.__exit__(type(error) if error else None, error, None)


STACKS = {
    "an exit stack": lambda breaker: contextlib.ExitStack(),
    "another class": Session,
}


def test_blocks_of_two_exit_stacks_do_not_swap_their_tickets():
    """In any order, in one thread: the stack that leaves is the one that has entered."""
    with virtual_time() as time:
        breaker = CircuitBreaker("b", failure_threshold=1, recovery_timeout=10.0)
        old, probe = contextlib.ExitStack(), contextlib.ExitStack()
        old.enter_context(breaker)
        breaker.record_failure()
        time.advance(10.0)
        probe.enter_context(breaker)
        closes(old, ConnectionError("from before the opening"))
        assert breaker.state is CircuitState.HALF_OPEN, "the old one is not the probe"
        closes(probe)
        assert breaker.state is CircuitState.CLOSED


@pytest.mark.parametrize("sort", STACKS)
def test_a_block_that_another_function_entered_is_not_that_of_another_thread(sort):
    """Two threads, each with a stack: the first to enter is also the first to leave."""
    with virtual_time() as time:
        breaker = CircuitBreaker("b", failure_threshold=1, recovery_timeout=10.0)
        entered, leave = threading.Event(), threading.Event()

        def old():
            stack = STACKS[sort](breaker)
            stack.enter_context(breaker)
            entered.set()
            leave.wait(60)
            closes(stack, ConnectionError("from before the opening"))

        thread = threading.Thread(target=old)
        thread.start()
        entered.wait(60)
        breaker.record_failure()
        time.advance(10.0)
        probe = STACKS[sort](breaker)
        probe.enter_context(breaker)
        leave.set()
        thread.join(60)
        assert breaker.state is CircuitState.HALF_OPEN, "the old one is not the probe"
        closes(probe)
        assert breaker.state is CircuitState.CLOSED


def test_an_exit_stack_inside_a_block_leaves_its_own():
    """Also where the block around it was entered later, and is left later."""
    with virtual_time() as time:
        breaker = CircuitBreaker("b", failure_threshold=1, recovery_timeout=10.0)
        stack = contextlib.ExitStack()
        stack.enter_context(breaker)
        breaker.record_failure()
        time.advance(10.0)
        with breaker:
            closes(stack, ConnectionError("from before the opening"))
            assert breaker.state is CircuitState.HALF_OPEN, "the old one is not the probe"
        assert breaker.state is CircuitState.CLOSED


def test_a_stack_whose_blocks_were_moved_to_another_leaves_them():
    """`pop_all` makes a new stack: what this thread has entered last is meant."""
    with virtual_time() as time:
        breaker = half_open(time)
        with contextlib.ExitStack() as stack:
            stack.enter_context(breaker)
            kept = stack.pop_all()
        assert breaker.snapshot().probes == 1
        kept.close()
        assert breaker.state is CircuitState.CLOSED
        assert not breaker._blocks


def test_blocks_of_two_tasks_in_exit_stacks_do_not_swap_their_tickets():
    """The first to enter is also the first to leave."""

    async def main(breaker, time):
        entered, leave = asyncio.Event(), asyncio.Event()

        async def old():
            with contextlib.suppress(ConnectionError):
                async with contextlib.AsyncExitStack() as stack:
                    await stack.enter_async_context(breaker)
                    entered.set()
                    await leave.wait()
                    raise ConnectionError("from before the opening")

        task = asyncio.create_task(old())
        await entered.wait()
        breaker.record_failure()
        time.advance(10.0)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(breaker)
            leave.set()
            await task
            assert breaker.state is CircuitState.HALF_OPEN, "the old one is not the probe"
        assert breaker.state is CircuitState.CLOSED

    with virtual_time() as time:
        asyncio.run(main(CircuitBreaker("b", failure_threshold=1, recovery_timeout=10.0), time))


@pytest.mark.parametrize("sort", STACKS)
def test_what_is_called_after_an_exit_stack_has_entered_is_part_of_the_block(sort):
    """A probe that passes the breaker again, further in, is one probe."""
    with virtual_time() as time:
        breaker = half_open(time)
        stack = STACKS[sort](breaker)
        stack.enter_context(breaker)
        assert breaker(lambda: "up")() == "up"
        closes(stack)
        assert breaker.state is CircuitState.CLOSED


def test_what_is_called_beside_a_suspended_generator_is_not_part_of_its_block():
    """It runs in the same thread, but not inside."""

    def block():
        with breaker:
            yield

    with virtual_time() as time:
        breaker = half_open(time)
        suspended = block()
        next(suspended)
        with pytest.raises(CircuitOpenError):
            breaker(lambda: "up")()
        suspended.close()


def test_a_block_that_was_not_entered_counts_nothing_when_it_is_left():
    """No error of ours comes out of a block of the user's."""
    breaker = CircuitBreaker("b", failure_threshold=1)
    breaker.__exit__(ConnectionError, ConnectionError("x"), None)
    assert breaker.state is CircuitState.CLOSED


class Numbered(CircuitBreaker):
    """Gives out tickets with the number of the thread, and looks which come back."""

    __slots__ = ("mixed",)

    def enter(self, is_retry, now, witness=None):
        return Ticket(0, threading.get_ident())

    def left(self, ticket, failure, seconds, now):
        if ticket.probe != threading.get_ident():
            self.mixed.append(ticket)


@pytest.mark.parametrize("stacked", [False, True])
def test_blocks_of_many_threads_keep_their_tickets(stacked):
    """Whatever the moment at which threads change."""
    breaker, errors = Numbered("b"), []
    breaker.mixed = []

    def work():
        try:
            for _ in range(300):
                with contextlib.ExitStack() as stack:
                    if stacked:
                        stack.enter_context(breaker)
                    else:
                        with breaker:
                            sleep(0)  # others enter and leave meanwhile
        except BaseException as error:
            errors.append(error)

    with often_switching():
        workers = [threading.Thread(target=work) for _ in range(16)]
        for each in workers:
            each.start()
        for each in workers:
            each.join(120)
    assert errors == []
    assert breaker.mixed == []
    assert not breaker._blocks


@contextlib.contextmanager
def often_switching():
    """Threads change after nearly every instruction that lets them."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


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
