"""Many at once: threads, tasks, one policy, one seed; nothing is lost and nothing mixed."""

import asyncio
import sys
import threading

import pytest
import trio

from mainstay import Backoff, Engine, Jitter, RetryPolicy
from mainstay.core.base.entropy import key_of
from mainstay.drivers.call.site import Entropy
from mainstay.testing import Trace, record, virtual_time

POLICY = RetryPolicy(
    name="op",
    retry_on=OSError,
    max_attempts=3,
    backoff=Backoff.constant(0),
    jitter=Jitter.none(),
)
THREADS, CALLS = 8, 150


@pytest.fixture
def hasty():
    """Threads are switched as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(work, threads=THREADS):
    """Runs work(n) in so many threads at once; raises what one of them raised."""
    barrier, trouble = threading.Barrier(threads), []

    def run(n):
        barrier.wait(60)
        try:
            work(n)
        except BaseException as error:
            trouble.append(error)

    started = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if trouble:
        raise trouble[0]


def flaky(name):
    """Fails twice, each time with its caller's name, then returns it."""
    left = [2]

    def function():
        if left[0]:
            left[0] -= 1
            raise ConnectionError(name)
        return name

    return function


@pytest.mark.req("NFR-041-15", "NFR-041-09", "IT-041-06")
@pytest.mark.parametrize("way", ["call", "run", "protect", "block"])
def test_eight_threads_lose_no_call_and_mix_none(hasty, way):
    """One engine, one operation, one seed: every event belongs to its own call."""
    trace = Trace()
    engine = Engine(policies=[POLICY], seed=7, sinks=[trace])

    def work(n):
        for m in range(CALLS):
            name = f"{n}-{m}"
            function = flaky(name)
            if way == "call":
                assert engine.call("op", function) == name
            elif way == "run":
                result = engine.run("op", function)
                assert (result.value, result.attempts) == (name, 3)
            elif way == "protect":
                assert engine.protect("op")(function)() == name
            else:
                for attempt in engine.operation("op").attempts():
                    with attempt:
                        value = function()
                assert value == name

    in_threads(work)
    total = THREADS * CALLS
    assert trace.names.count("attempt_failed") == 2 * total
    assert trace.names.count("retry_attempt") == 2 * total
    assert trace.names.count("call_succeeded") == total
    calls = {}
    for event in trace.events:
        calls.setdefault(event.call_id, []).append(event)
    assert set(calls) == {f"{key_of(7, n):x}" for n in range(total)}
    for events in calls.values():
        assert len({e.exception_message for e in events if e.event_type == "retry_attempt"}) == 1
        assert [e.attempt_number for e in events if e.event_type == "retry_attempt"] == [1, 2]


@pytest.mark.req("NFR-041-15")
def test_one_decorated_function_serves_many_threads(hasty):
    """Attempts are counted by call, not by function."""
    local, total = threading.local(), []

    @POLICY
    def work_once(name):
        local.count = getattr(local, "count", 0) + 1
        if local.count % 3:
            raise ConnectionError(name)
        return name

    def work(n):
        for m in range(300):
            assert work_once(f"{n}-{m}") == f"{n}-{m}"
        total.append(local.count)

    in_threads(work)
    assert total == [900] * THREADS


@pytest.mark.req("NFR-041-15")
def test_keys_under_a_seed_are_drawn_once_each(hasty):
    """The counter of a seed gives no number twice and skips none."""
    entropy, drawn = Entropy(7), [[] for _ in range(THREADS)]

    def work(n):
        mine = drawn[n]
        for _ in range(5000):
            mine.append(entropy.draw())

    in_threads(work)
    keys = [key for each in drawn for key in each]
    assert len(set(keys)) == len(keys) == THREADS * 5000
    assert set(keys) == {key_of(7, n) for n in range(len(keys))}


@pytest.mark.req("NFR-041-15")
def test_notes_of_concurrent_failures_do_not_mix(hasty):
    """Each exception's note tells of its own call, though all share one site."""

    def work(n):
        attempts = n % 3 + 1
        for _ in range(200):
            made = [0]

            def fail(made=made):
                made[0] += 1
                raise OSError if made[0] < attempts else ValueError

            with pytest.raises((OSError, ValueError)) as caught:
                POLICY.call(fail)
            notes = getattr(caught.value, "__notes__", [])
            end = f"after {attempts} attempts" if attempts > 1 else "not retried: ValueError"
            assert len(notes) == 1
            assert end in notes[0]

    in_threads(work)


@pytest.mark.req("NFR-041-09", "IT-041-06", "NFR-041-15")
@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("bounds", [{}, {"attempt_timeout": 5.0, "deadline": 600.0}])
def test_a_thousand_concurrent_retries_end_each_for_itself(loop, bounds):
    """One loop, a thousand calls in backoff at once: all delays, all results, at their moment."""
    chosen = POLICY.replace(
        backoff=Backoff.exponential(0.5), jitter=Jitter.full(), max_attempts=5, **bounds
    )
    trace = Trace()
    engine = Engine(policies=[chosen], seed=1, sinks=[trace])
    ended = {}

    async def call(n):
        left = [n % 5]

        async def function():
            if left[0]:
                left[0] -= 1
                raise ConnectionError(str(n))
            return n

        ended[n] = await engine.acall("op", function)

    async def in_asyncio():
        await asyncio.gather(*(call(n) for n in range(1000)))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    async def in_trio():
        async with trio.open_nursery() as nursery:
            for n in range(1000):
                nursery.start_soon(call, n)

    with virtual_time() as time:
        if loop == "asyncio":
            asyncio.run(in_asyncio())
        else:
            trio.run(in_trio, clock=time.trio_clock())
    assert ended == {n: n for n in range(1000)}
    assert trace.names.count("retry_attempt") == 2000
    assert trace.names.count("call_succeeded") == 1000
    assert time.elapsed == pytest.approx(slowest(trace), abs=1e-6)


def slowest(trace):
    """The longest sum of delays of one call: what it all must take, and no more."""
    sums = {}
    for event in trace.of("retry_attempt"):
        sums[event.call_id] = sums.get(event.call_id, 0.0) + event.delay_seconds
    return max(sums.values())


@pytest.mark.req("NFR-041-15")
def test_recording_hears_every_thread(hasty):
    """`record()` in one thread hears the calls of all of them, each event once."""
    with record() as trace:
        in_threads(lambda n: [POLICY.call(flaky(f"{n}-{m}")) for m in range(50)])
    assert trace.names.count("attempt_failed") == 2 * THREADS * 50


@pytest.mark.req("NFR-041-15")
def test_many_loops_in_many_threads(hasty):
    """Each thread's loop has its own timers: timeouts in eight loops at once do not meet."""

    def work(n):
        @POLICY.replace(attempt_timeout=0.05, max_attempts=1)
        async def slow():
            await asyncio.sleep(30.0)

        @POLICY.replace(attempt_timeout=5.0)
        async def quick():
            await asyncio.sleep(0.001)
            return n

        async def main():
            found = await asyncio.gather(slow(), quick(), quick(), return_exceptions=True)
            assert isinstance(found[0], TimeoutError)
            assert found[1:] == [n, n]

        asyncio.run(main())

    in_threads(work, 4)
