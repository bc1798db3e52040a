"""A rate limit for first calls: each attempt has its turn, and none begins before it."""

import asyncio
import threading

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from mainstay import (
    Backoff,
    CallCancelled,
    CircuitBreaker,
    Engine,
    Jitter,
    PolicyError,
    RateLimit,
    RateLimited,
    RetryPolicy,
    retry,
)
from mainstay.testing import virtual_time

POLICY = RetryPolicy(retry_on=OSError, backoff=Backoff.constant(0), jitter=Jitter.none())


def limit_of(**fields):
    return RateLimit("search", **{"per_second": 2.0, "burst": 1, "first_calls": True, **fields})


def called_at(limit, times, **options):
    """The moments at which so many calls in a row begin."""
    with virtual_time() as time:
        moments = []

        @retry(policy=POLICY, guards=limit, **options)
        def call():
            moments.append(time.elapsed)

        for _ in range(times):
            call()
    return moments


def test_first_calls_wait_for_their_turn():
    """Two a second: the third begins a second after the first."""
    assert called_at(limit_of(), 4) == [0.0, 0.5, 1.0, 1.5]


def test_a_burst_begins_at_once():
    """As many as `burst`; then each waits."""
    assert called_at(limit_of(burst=3), 5) == [0.0, 0.0, 0.0, 0.5, 1.0]


@given(per_second=st.floats(0.5, 50.0), burst=st.integers(1, 5), calls=st.integers(1, 30))
def test_no_more_begin_than_the_limit_allows(per_second, burst, calls):
    """In any t seconds `burst + per_second · t`, whatever the limit."""
    found = called_at(limit_of(per_second=per_second, burst=burst, max_wait=1e6), calls)
    for index, moment in enumerate(found):
        for count, other in enumerate(found[index:], 1):
            assert count <= burst + per_second * (other - moment + 0.021)


def test_retries_and_first_calls_share_the_rate():
    """A retry takes one turn, not two."""
    with virtual_time() as time:
        moments, steps = [], [OSError(), "a", "b"]

        @retry(policy=POLICY, guards=limit_of())
        def call():
            moments.append(time.elapsed)
            step = steps.pop(0)
            if isinstance(step, Exception):
                raise step
            return step

        assert (call(), call()) == ("a", "b")
    assert moments == [0.0, 0.5, 1.0]


def test_without_the_setting_first_calls_do_not_wait():
    """As ever: the limit is on retries, and calls are not announced."""
    assert called_at(limit_of(first_calls=False), 4) == [0.0] * 4


def test_a_call_whose_turn_is_too_far_off_is_refused():
    """RateLimited, with the seconds after which there is a turn; nothing was called."""
    limit, called = limit_of(max_wait=0.6), []
    with virtual_time() as time:
        call = retry(policy=POLICY, guards=limit)(lambda: called.append(1))
        for _ in range(2):
            call()
        limit.enter(False, time.monotonic())
        with pytest.raises(RateLimited) as caught:
            call()
    assert caught.value.operation == "search"
    assert caught.value.retry_after == pytest.approx(1.0)
    assert len(called) == 2


def test_a_deadline_ends_the_wait_and_frees_the_turn():
    """The call is not made, and the next one has its place."""
    limit = limit_of(per_second=0.1, max_wait=100.0)
    with virtual_time() as time:
        call = retry(policy=POLICY, guards=limit)(lambda: time.elapsed)
        hurried = retry(policy=POLICY, guards=limit, deadline=3.0)(lambda: time.elapsed)
        assert call() == 0.0
        with pytest.raises(RateLimited):
            hurried()
        assert time.elapsed == 3.0
        assert call() == 10.0


def test_a_cancel_event_ends_the_wait_and_frees_the_turn():
    """CallCancelled, as in the wait before a retry; the function is not called."""
    limit, stop = limit_of(per_second=0.01, max_wait=1e6), threading.Event()
    assert retry(policy=POLICY, guards=limit, cancel=stop)(lambda: "made")() == "made"
    for run in (lambda main: asyncio.run(main()), trio.run):

        @retry(policy=POLICY, guards=limit, cancel=stop)
        async def call():
            raise AssertionError

        stop.clear()
        timer = threading.Timer(0.05, stop.set)
        timer.start()
        with pytest.raises(CallCancelled) as caught:
            run(call)
        timer.join()
        assert caught.value.attempts == 0
    with pytest.raises(CallCancelled):
        retry(policy=POLICY, guards=limit, cancel=stop)(lambda: "never")()
    assert limit.snapshot()["waiting"] == 0


@pytest.mark.parametrize(
    "run", [lambda main: asyncio.run(main()), trio.run], ids=["asyncio", "trio"]
)
def test_async_calls_wait_without_blocking_the_loop(run):
    """Each awaits its own turn; those of one moment come one after the other."""
    moments = []

    async def main():
        @retry(policy=POLICY, guards=limit_of(per_second=50.0))
        async def call():
            moments.append(1)

        for _ in range(3):
            await call()

    run(main)
    assert len(moments) == 3


def test_tasks_that_call_at_once_begin_one_by_one():
    """Under virtual time, to the second."""
    with virtual_time() as time:

        @retry(policy=POLICY, guards=limit_of(per_second=1.0))
        async def call():
            return time.elapsed

        async def main():
            return await asyncio.gather(*(call() for _ in range(4)))

        assert sorted(asyncio.run(main())) == [0.0, 1.0, 2.0, 3.0]


def test_a_sync_call_in_an_event_loop_is_refused_if_it_is_not_its_turn():
    """It may not block the loop, and it may not begin early."""

    async def main():
        call = retry(policy=POLICY, guards=limit_of())(lambda: "made")
        assert call() == "made"
        with pytest.raises(RateLimited):
            call()

    asyncio.run(main())


def test_threads_share_the_turns():
    """Each of ten threads has one of its own."""
    limit = limit_of(per_second=200.0, burst=1)
    tickets, lock = [], threading.Lock()

    def enter():
        turn = limit.enter(False, 100.0)
        with lock:
            tickets.append(round(turn.start, 6))

    threads = [threading.Thread(target=enter) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(tickets) == [round(100.0 + n / 200.0, 6) for n in range(10)]


def test_other_guards_get_their_place_back():
    """A refused call is no probe of the circuit before it."""
    with virtual_time() as time:
        breaker = CircuitBreaker("search", failure_threshold=1, recovery_timeout=1.0)
        limit = limit_of(per_second=0.01, max_wait=0.0)
        call = retry(policy=POLICY, breaker=breaker, guards=limit)(lambda: "made")
        assert call() == "made"
        breaker.record_failure()
        time.advance(1.0)
        for _ in range(3):
            with pytest.raises(RateLimited):
                call()
        assert breaker.allow_request()


def test_an_engine_has_such_a_limit():
    """For all its operations; its listener receives the refusal."""
    events = []
    with virtual_time():
        engine = Engine(guards=[limit_of(max_wait=0.0)], sinks=[events.append])
        assert engine.call("op", int, "7") == 7
        with pytest.raises(RateLimited):
            engine.call("op", int, "7")
    [refused] = [event for event in events if event.event_type == "call_refused"]
    assert refused.by == "mainstay.errors.RateLimited"


def test_only_true_and_false_are_taken():
    """A number is a mistake."""
    with pytest.raises(PolicyError, match="first_calls"):
        limit_of(first_calls=1)
