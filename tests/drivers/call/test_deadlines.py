"""A deadline is held: no attempt starts that cannot fit, no wait passes it, none inside does."""

import asyncio
import contextlib
import threading
import time as real_time

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mainstay
from mainstay import (
    AttemptTimeout,
    Backoff,
    DeadlineExceeded,
    Engine,
    Jitter,
    RetryPolicy,
    deadline,
)
from mainstay.runtime import clock
from mainstay.testing import Trace, takes, virtual_time
from tests.processes import wait_until

POLICY = RetryPolicy(
    name="op",
    retry_on=OSError,
    max_attempts=9,
    backoff=Backoff.constant(1.0),
    jitter=Jitter.none(),
)
WAYS = ("decorated", "call", "result", "block", "operation")


def play(driver, way, chosen, function):
    """One call by one of the ways there are; what it raises is returned."""
    try:
        if way == "decorated":
            return driver.run(chosen(function))
        if way == "operation":
            return driver.run(Engine(policies=[chosen], sinks=[Trace()]).protect("op")(function))
        outcome = getattr(driver, way)(chosen, function)
    except Exception as error:
        return error
    if way != "result":
        return outcome
    return outcome.value if outcome.success else outcome.last_exception


def failing(driver, calls):
    """Fails at once, and notes when it was called and how long it was told it has."""

    def function():
        calls.append((round(driver.time.elapsed, 6), rounded(deadline.remaining())))
        raise ConnectionError("down")

    return driver.colour(function)


def rounded(seconds):
    return None if seconds is None else round(seconds, 6)


# --- one call -------------------------------------------------------------------------------------


@pytest.mark.req("NFR-041-11", "FR-041-26")
@pytest.mark.parametrize("way", WAYS)
def test_no_attempt_starts_that_cannot_fit_and_no_wait_passes_the_deadline(driver, way):
    """Attempts at 0, 1 and 2 s fit into 2.5 s; the fourth does not, and is not waited for."""
    calls = []
    error = play(driver, way, POLICY.replace(deadline=2.5), failing(driver, calls))
    assert [moment for moment, _ in calls] == [0.0, 1.0, 2.0]
    assert driver.time.elapsed == 2.0
    assert isinstance(error, ConnectionError)
    assert "after 3 attempts: the deadline leaves no time" in error.__notes__[0]


@pytest.mark.parametrize("way", WAYS)
def test_an_attempt_that_would_start_at_the_deadline_does_not_fit(driver, way):
    """No time left is no time to start."""
    calls = []
    play(driver, way, POLICY.replace(deadline=2.0), failing(driver, calls))
    assert [moment for moment, _ in calls] == [0.0, 1.0]


@pytest.mark.parametrize("way", WAYS)
def test_remaining_is_right_in_first_attempts_and_in_retries(driver, way):
    """`deadline.remaining()` counts down from attempt to attempt, and is None outside."""
    calls = []
    play(driver, way, POLICY.replace(deadline=2.5), failing(driver, calls))
    assert [left for _, left in calls] == [2.5, 1.5, 0.5]
    assert deadline.remaining() is None


@pytest.mark.parametrize("way", WAYS)
def test_remaining_is_the_attempts_own_time_where_that_is_shorter(driver, way):
    """With both limits set, an attempt sees whichever ends first."""
    calls = []
    chosen = POLICY.replace(deadline=3.5, attempt_timeout=2.0)
    play(driver, way, chosen, failing(driver, calls))
    assert [left for _, left in calls] == [2.0, 2.0, 1.5, 0.5]


@pytest.mark.parametrize("way", WAYS)
def test_a_call_inside_sees_the_shorter_of_both_limits(driver, way):
    """In an inner call the outer limit counts where it is shorter; afterwards, the outer alone."""
    seen = []

    def note():
        seen.append(rounded(deadline.remaining()))

    def plain():
        note()
        POLICY.replace(deadline=3.0).call(note)
        note()
        POLICY.replace(deadline=30.0).call(note)
        with deadline.within(4.0):
            note()
        for attempt in POLICY.replace(deadline=2.0).attempts():
            with attempt:
                note()
        note()

    async def coloured():
        note()
        await POLICY.replace(deadline=3.0).acall(driver.colour(note))
        note()
        await POLICY.replace(deadline=30.0).acall(driver.colour(note))
        with deadline.within(4.0):
            note()
        async for attempt in POLICY.replace(deadline=2.0).attempts():
            with attempt:
                note()
        note()

    play(driver, way, POLICY.replace(deadline=5.0), coloured if driver.is_async else plain)
    assert seen == [5.0, 3.0, 5.0, 5.0, 4.0, 2.0, 5.0]


def test_blocks_in_one_function_may_enclose_each_other(driver):
    """A block that has ended gives way to the block around it, in the same function."""
    seen = []

    def plain():
        for outer in POLICY.replace(deadline=5.0).attempts():
            with outer:
                for inner in POLICY.replace(deadline=2.0).attempts():
                    with inner:
                        seen.append(rounded(deadline.remaining()))
                seen.append(rounded(deadline.remaining()))
        seen.append(deadline.remaining())

    async def coloured():
        async for outer in POLICY.replace(deadline=5.0).attempts():
            with outer:
                async for inner in POLICY.replace(deadline=2.0).attempts():
                    with inner:
                        seen.append(rounded(deadline.remaining()))
                seen.append(rounded(deadline.remaining()))
        seen.append(deadline.remaining())

    driver.run(coloured if driver.is_async else plain)
    assert seen == [2.0, 5.0, None]


@pytest.mark.parametrize("way", WAYS)
def test_a_first_attempt_that_is_cut_ends_in_deadline_exceeded(async_driver, way):
    """Nothing but the deadline went wrong, so DeadlineExceeded, a TimeoutError, names it."""
    function = async_driver.scripted(takes(50.0, "late"))
    error = play(async_driver, way, POLICY.replace(deadline=3.0), function)
    assert isinstance(error, DeadlineExceeded)
    assert isinstance(error, TimeoutError)
    assert error.deadline == pytest.approx(3.0)
    assert isinstance(error.__cause__, AttemptTimeout)
    assert async_driver.time.elapsed == pytest.approx(3.0)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("failed", [1, 2])
def test_a_later_attempt_that_is_cut_is_deadline_exceeded_from_the_real_error(
    async_driver, way, failed
):
    """Whichever attempt was cut: a caller handles one class, and sees what went wrong before."""
    errors = [ConnectionError(f"real {n}") for n in range(failed)]
    function = async_driver.scripted(*errors, takes(50.0, "late"))
    error = play(async_driver, way, POLICY.replace(deadline=3.0), function)
    assert isinstance(error, DeadlineExceeded)
    assert error.deadline == pytest.approx(3.0)
    assert error.__cause__ is errors[-1]
    assert "the deadline leaves no time" in error.__notes__[0]
    assert async_driver.time.elapsed == pytest.approx(3.0)


@pytest.mark.req("AG-01.timeout", "CP-14.attempt")
@pytest.mark.parametrize("way", WAYS)
def test_cut_attempts_are_retried_until_the_deadline(async_driver, way):
    """An attempt's own timeout is retried; each attempt gets what is left and no more."""
    started = []

    async def function():
        started.append((rounded(async_driver.time.elapsed), rounded(deadline.remaining())))
        await (asyncio.sleep if async_driver.name == "asyncio" else trio.sleep)(50.0)

    chosen = POLICY.replace(deadline=5.0, attempt_timeout=2.0, backoff=Backoff.constant(0.5))
    error = play(async_driver, way, chosen, function)
    assert started == [(0.0, 2.0), (2.5, 2.0)]
    assert isinstance(error, TimeoutError)
    assert async_driver.time.elapsed <= 5.0


@pytest.mark.req("NFR-041-11")
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    limit=st.floats(0.1, 20.0),
    attempt_timeout=st.none() | st.floats(0.1, 20.0),
    durations=st.lists(st.floats(0.0, 9.0), min_size=9, max_size=9),
    delay=st.floats(0.0, 9.0),
    way=st.sampled_from(WAYS),
)
def test_whatever_an_async_call_does_it_ends_by_its_deadline(
    limit, attempt_timeout, durations, delay, way, drivers
):
    """Any limits, any delays, any durations: the call is over when its deadline comes."""
    for name in ("asyncio", "trio"):
        with virtual_time() as time:
            driver = next(each for each in drivers(time) if each.name == name)
            chosen = POLICY.replace(
                deadline=limit, attempt_timeout=attempt_timeout, backoff=Backoff.constant(delay)
            )
            function = driver.scripted(*(takes(each, ConnectionError()) for each in durations))
            error = play(driver, way, chosen, function)
            assert isinstance(error, (ConnectionError, TimeoutError))
            assert time.elapsed <= limit + 1e-6


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    limit=st.floats(0.1, 20.0),
    durations=st.lists(st.floats(0.0, 9.0), min_size=9, max_size=9),
    delay=st.floats(0.0, 9.0),
    way=st.sampled_from(WAYS),
)
def test_a_sync_call_neither_waits_nor_starts_past_its_deadline(
    limit, durations, delay, way, drivers
):
    """A sync attempt cannot be cut, but none begins and no wait ends after the deadline."""
    with virtual_time() as time:
        driver = drivers(time)[0]
        script = iter(durations)
        moments = []

        def function():
            moments.append(time.elapsed)
            assert 0.0 < deadline.remaining() <= limit
            time.advance(next(script))
            raise ConnectionError

        play(driver, way, POLICY.replace(deadline=limit, backoff=Backoff.constant(delay)), function)
        assert all(moment < limit for moment in moments)
        assert time.elapsed <= max(limit, moments[-1] + durations[len(moments) - 1]) + 1e-6


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hook", ["before_retry", "listener"])
def test_a_slow_hook_does_not_carry_the_wait_past_the_deadline(driver, hook, way):
    """However long a hook or a listener takes, no attempt starts after the deadline."""
    calls = []

    def slow(told):
        if getattr(told, "event_type", "retry_attempt") == "retry_attempt":
            driver.time.advance(5.0)

    chosen = POLICY.replace(deadline=3.0)
    if hook == "before_retry":
        error = play(driver, way, chosen.replace(before_retry=slow), failing(driver, calls))
    else:
        with pytest.raises(ConnectionError) as caught:
            driver.run(mainstay.retry(policy=chosen, listener=slow)(failing(driver, calls)))
        error = caught.value
    assert isinstance(error, ConnectionError)
    assert "after 1 attempt: the deadline leaves no time" in error.__notes__[0]
    assert error.__context__ is None
    assert [moment for moment, _ in calls] == [0.0]
    assert driver.time.elapsed == 5.0


@pytest.mark.parametrize("way", WAYS)
def test_a_result_that_could_not_be_asked_for_again_in_time_is_the_result(driver, way):
    """Where no time is left for another, the last value comes back, though it was not accepted."""
    chosen = POLICY.replace(
        deadline=3.0,
        retry_if_result=lambda value: value == "bad",
        before_retry=lambda info: driver.time.advance(5.0),
    )
    function = driver.scripted("bad", "good")
    found = play(driver, way, chosen, function)
    assert found == ("bad" if way != "result" else None)
    assert len(function.script.calls) == 1


@pytest.mark.parametrize("way", WAYS)
def test_an_attempt_does_not_start_when_the_wait_was_overslept(drivers, way):
    """A wait that lasts longer than asked (a busy machine) does not start an attempt too late."""
    with virtual_time() as time:
        driver, calls, real = drivers(time)[0], [], time.sleep
        time.sleep = lambda seconds, cancel=None: real(seconds * 10, cancel)
        error = play(driver, way, POLICY.replace(deadline=3.0), failing(driver, calls))
        assert isinstance(error, ConnectionError)
        assert [moment for moment, _ in calls] == [0.0]


def test_remaining_in_a_hook_is_what_is_left_of_the_call(driver):
    """Between attempts no attempt's time counts: a hook sees the deadline of the whole call."""
    seen = []
    chosen = POLICY.replace(
        deadline=60.0,
        attempt_timeout=1.0,
        max_attempts=3,
        before_retry=lambda info: seen.append(rounded(deadline.remaining())),
    )
    play(driver, "decorated", chosen, driver.scripted(*[ConnectionError] * 3))
    assert seen == [60.0, 59.0]


# --- a deadline outside, a call inside ------------------------------------------------------------


def inner_policy(kind):
    return {
        "plain": POLICY,
        "longer": POLICY.replace(deadline=500.0),
        "timed": POLICY.replace(attempt_timeout=500.0),
    }[kind]


INNERS = ("plain", "longer", "timed")


class Inside:
    """A failing inner call: what it saw, when it was called."""

    def __init__(self, time, kind):
        self.time = time
        self.policy = inner_policy(kind)
        self.calls = []

    def fail(self):
        self.calls.append((round(self.time.elapsed, 6), rounded(deadline.remaining())))
        raise ConnectionError("down")

    def sync(self):
        return self.policy(self.fail)()

    async def coloured(self):
        async def fail():
            self.fail()

        return await self.policy(fail)()

    def check(self, limit=2.5):
        """It was called at 0, 1 and 2 s, and told each time what the outer deadline leaves."""
        assert self.calls == [(float(n), limit - n) for n in range(3)]


@pytest.fixture(params=INNERS)
def inside(request):
    """A failing inner call of each kind, in virtual time."""
    with virtual_time() as time:
        yield Inside(time, request.param)


OUTER = RetryPolicy(retry_on=KeyError, deadline=2.5)
"""Has a deadline, and does not retry what the inner call raises."""


@pytest.mark.parametrize("outer", ["decorated", "call", "block", "within", "run"])
def test_a_sync_call_in_a_sync_one_keeps_the_outer_deadline(inside, outer):
    """Inner retries stop where the outer deadline leaves no time."""
    if outer == "decorated":
        call = OUTER(inside.sync)
    elif outer == "call":
        call = lambda: OUTER.call(inside.sync)  # noqa: E731
    elif outer == "run":
        call = lambda: [OUTER.run(inside.sync).last_exception]  # noqa: E731
    elif outer == "block":

        def call():
            for attempt in OUTER.attempts():
                with attempt:
                    inside.sync()
    else:

        def call():
            with deadline.within(2.5):
                inside.sync()

    with contextlib.suppress(ConnectionError):
        call()
    inside.check()


@pytest.mark.parametrize("outer", ["decorated", "acall", "block", "within", "arun"])
@pytest.mark.parametrize("how", ["await", "create_task", "gather", "TaskGroup", "sync"])
def test_a_call_in_an_asyncio_one_keeps_the_outer_deadline(inside, outer, how):
    """The same for awaits, child tasks, and sync calls made by async functions."""

    async def body():
        if how == "await":
            await inside.coloured()
        elif how == "create_task":
            await asyncio.create_task(inside.coloured())
        elif how == "gather":
            await asyncio.gather(inside.coloured())
        elif how == "TaskGroup":
            async with asyncio.TaskGroup() as group:
                group.create_task(inside.coloured())
        else:
            inside.sync()

    async def main():
        if outer == "decorated":
            await OUTER(body)()
        elif outer == "acall":
            await OUTER.acall(body)
        elif outer == "arun":
            await OUTER.arun(body)
        elif outer == "block":
            async for attempt in OUTER.attempts():
                with attempt:
                    await body()
        else:
            with deadline.within(2.5):
                await body()

    with contextlib.suppress(ConnectionError, ExceptionGroup):
        asyncio.run(main())
    inside.check()


@pytest.mark.parametrize("outer", ["decorated", "acall", "block", "within"])
@pytest.mark.parametrize("how", ["await", "nursery", "sync"])
def test_a_call_in_a_trio_one_keeps_the_outer_deadline(inside, outer, how):
    """The same under trio, with nurseries."""

    async def body():
        if how == "await":
            await inside.coloured()
        elif how == "nursery":
            async with trio.open_nursery() as nursery:
                nursery.start_soon(inside.coloured)
        else:
            inside.sync()

    async def main():
        if outer == "decorated":
            await OUTER(body)()
        elif outer == "acall":
            await OUTER.acall(body)
        elif outer == "block":
            async for attempt in OUTER.attempts():
                with attempt:
                    await body()
        else:
            with deadline.within(2.5):
                await body()

    with contextlib.suppress(ConnectionError, ExceptionGroup):
        trio.run(main, clock=inside.time.trio_clock())
    if how == "sync":  # our waits move our clock, not trio's
        assert inside.calls[0] == (0.0, 2.5)
        assert len(inside.calls) == 3
    else:
        inside.check()


def test_asyncio_run_inside_a_sync_deadline_keeps_it(inside):
    """A loop that is started inside a sync attempt is inside that attempt."""

    @OUTER
    def outer():
        asyncio.run(inside.coloured())

    with pytest.raises(ConnectionError):
        outer()
    inside.check()


def in_thread(function):
    """Runs a function in a thread of its own; what it raises is swallowed."""

    def run():
        with contextlib.suppress(ConnectionError):
            function()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


@pytest.mark.parametrize("outer", ["decorated", "call", "block", "within"])
def test_carry_takes_the_deadline_to_a_thread(inside, outer):
    """What is carried to a thread has the deadline of the place that carried it."""

    def body():
        in_thread(mainstay.carry(inside.sync))

    if outer == "decorated":
        OUTER(body)()
    elif outer == "call":
        OUTER.call(body)
    elif outer == "block":
        for attempt in OUTER.attempts():
            with attempt:
                body()
    else:
        with deadline.within(2.5):
            body()
    inside.check()


@pytest.mark.parametrize("outer", ["decorated", "acall", "block", "within"])
@pytest.mark.parametrize("how", ["to_thread", "carry"])
def test_a_thread_of_an_asyncio_call_keeps_its_deadline(inside, outer, how, request):
    """asyncio.to_thread takes the context along, and with it the deadline."""

    async def body():
        if how == "to_thread":
            await asyncio.to_thread(inside.sync)
        else:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, mainstay.carry(inside.sync))

    async def main():
        if outer == "decorated":
            await OUTER(body)()
        elif outer == "acall":
            await OUTER.acall(body)
        elif outer == "block":
            async for attempt in OUTER.attempts():
                with attempt:
                    await body()
        else:
            with deadline.within(2.5):
                await body()

    with pytest.raises((ConnectionError, DeadlineExceeded)):
        asyncio.run(main())
    inside.check()


@pytest.mark.parametrize("outer", ["decorated", "within"])
def test_a_thread_of_a_trio_call_keeps_its_deadline(inside, outer):
    """trio.to_thread does so too."""

    async def body():
        await trio.to_thread.run_sync(inside.sync)

    async def main():
        if outer == "decorated":
            await OUTER(body)()
        else:
            with deadline.within(2.5):
                await body()

    with pytest.raises(ConnectionError):
        trio.run(main, clock=inside.time.trio_clock())
    inside.check()


def test_a_task_is_not_bound_by_what_its_parent_does_later():
    """A task that was started outside a limited call is outside it, whatever its parent does."""
    seen = []

    @POLICY.replace(attempt_timeout=1.0, max_attempts=1)
    async def quick():
        return rounded(deadline.remaining())

    @POLICY.replace(attempt_timeout=1.0, max_attempts=1)
    async def slow():
        await asyncio.sleep(0.9)

    async def background():
        for _ in range(4):
            await asyncio.sleep(0.5)
            seen.append((rounded(deadline.remaining()), await quick()))

    async def main():
        await quick()
        task = asyncio.create_task(background())
        await slow()
        await task

    with virtual_time():
        asyncio.run(main())
    assert seen == [(None, 1.0)] * 4


def test_siblings_have_each_their_own_deadline():
    """Calls side by side in one loop do not see each other's limits."""
    seen = {}

    async def work(limit):
        @POLICY.replace(deadline=limit)
        async def call():
            await asyncio.sleep(0.5)
            seen[limit] = rounded(deadline.remaining())
            await asyncio.sleep(0.25)

        await call()
        assert deadline.remaining() is None

    async def main():
        await asyncio.gather(*(work(float(limit)) for limit in range(1, 30)))

    with virtual_time():
        asyncio.run(main())
    assert seen == {float(limit): limit - 0.5 for limit in range(1, 30)}


# --- threads --------------------------------------------------------------------------------------

IN_THREAD = POLICY.replace(timeout_by="thread", attempt_timeout=0.05, backoff=Backoff.constant(0))


def test_a_sync_attempt_in_a_thread_is_abandoned_and_counted():
    """When its time is up the wait ends; the thread is counted until its function returns."""
    release, started = threading.Event(), []

    def stuck():
        started.append(threading.current_thread())
        release.wait(100.0)

    begun = real_time.monotonic()
    with pytest.raises(AttemptTimeout):
        IN_THREAD.replace(max_attempts=3).call(stuck)
    assert real_time.monotonic() - begun < 30.0, "and not the 100 s of the function"
    wait_until(lambda: len(started) == 3, "the threads")
    assert mainstay.abandoned_threads() == 3
    release.set()
    for thread in started:
        thread.join()
    assert mainstay.abandoned_threads() == 0


def test_abandoned_threads_are_forgotten_without_being_asked_for():
    """What an abandoned attempt returned is freed when it ends, though nobody counts."""
    from mainstay.drivers.call import threads

    release, started = threading.Event(), []

    def stuck():
        started.append(threading.current_thread())
        release.wait(100.0)

    with pytest.raises(AttemptTimeout):
        IN_THREAD.replace(max_attempts=1).call(stuck)
    wait_until(lambda: started, "the thread")
    release.set()
    started[0].join()
    assert not threads._abandoned


@pytest.mark.parametrize("way", ["decorated", "call", "result", "block", "operation"])
def test_a_thread_that_ends_in_time_gives_its_outcome(way, drivers):
    """Results and errors come back from the thread, and no thread stays."""
    if way == "block":
        pytest.skip("a block is code of the caller's own: it cannot run in a thread")
    driver = drivers(None)[0]
    chosen = IN_THREAD.replace(attempt_timeout=60.0)
    before = set(threading.enumerate())
    assert play(driver, way, chosen, driver.scripted(ConnectionError, "ok")) == "ok"
    error = play(driver, way, chosen, driver.scripted(ValueError("mine")))
    assert str(error) == "mine"
    assert set(threading.enumerate()) <= before


def test_the_context_and_the_deadline_go_to_the_thread():
    """An attempt in a worker thread knows whose it is and how long it has."""
    seen = []

    def look():
        seen.append((mainstay.current_context().tenant_id, deadline.remaining()))

    with mainstay.context(tenant_id="t1"):
        IN_THREAD.replace(attempt_timeout=100.0, deadline=60.0).call(look)
    assert seen[0][0] == "t1"
    assert 30.0 < seen[0][1] <= 60.0


def test_a_deadline_alone_bounds_an_attempt_in_a_thread():
    """timeout_by="thread" with a deadline and no attempt timeout cuts the first attempt."""
    release = threading.Event()
    chosen = POLICY.replace(timeout_by="thread", deadline=0.05)
    with pytest.raises(DeadlineExceeded):
        chosen.call(release.wait, 100.0)
    release.set()
    wait_until(lambda: not mainstay.abandoned_threads(), "the thread's end")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stop_raised_in_the_thread_reaches_the_caller(stop, drivers):
    """SystemExit in the attempt's thread is the caller's, and is not retried."""
    driver = drivers(None)[0]
    function = driver.scripted(stop, "never reached")
    with pytest.raises(stop):
        IN_THREAD.replace(attempt_timeout=60.0).call(function)
    assert len(function.script.calls) == 1


# --- clocks that jump -----------------------------------------------------------------------------


class Jumpy:
    """A clock that jumps by the next of some amounts each time it is read."""

    def __init__(self, jumps):
        self.now, self.wall_now, self.jumps, self.slept = 1000.0, 1e9, list(jumps), 0.0

    def monotonic(self):
        if self.jumps:
            self.now += self.jumps.pop(0)
        return self.now

    def wall(self):
        return self.wall_now

    def sleep(self, seconds, cancel=None):
        assert 0.0 <= seconds <= 100.0
        self.now += seconds
        self.slept += seconds
        return False


@pytest.mark.req("NFR-041-11")
@settings(max_examples=60, deadline=None)
@given(jumps=st.lists(st.floats(-1e6, 1e6), max_size=30), way=st.sampled_from(WAYS))
def test_a_clock_that_jumps_neither_hangs_nor_costs_the_error(jumps, way):
    """Backwards or forwards: at most the policy's attempts, and the user's error at the end."""
    calls = []

    def fail():
        calls.append(1)
        raise ConnectionError("down")

    class Plain:
        is_async = False
        run = staticmethod(lambda function, *args: function(*args))
        call = staticmethod(lambda verbs, function: verbs.call(function))
        result = staticmethod(lambda verbs, function: verbs.run(function))

        @staticmethod
        def block(verbs, function):
            for attempt in verbs.attempts():
                with attempt:
                    function()

    jumpy = Jumpy(jumps)
    before = clock.install(jumpy)
    try:
        error = play(Plain, way, POLICY.replace(deadline=5.0, attempt_timeout=2.0), fail)
    finally:
        clock.install(before)
    assert isinstance(error, ConnectionError)
    assert 1 <= len(calls) <= 9
    assert jumpy.slept <= 8.0


@settings(max_examples=30, deadline=None)
@given(jumps=st.lists(st.floats(-1e3, 1e3), max_size=20))
def test_a_clock_that_jumps_does_not_hang_an_event_loop(jumps):
    """Timers are the loop's own: a jump of ours may cut early or late, never stop the loop."""

    @POLICY.replace(attempt_timeout=1.0, deadline=9.0, max_attempts=3)
    async def work():
        await asyncio.sleep(2.0)
        return "late"

    async def main():
        return await asyncio.gather(*(work() for _ in range(3)), return_exceptions=True)

    with virtual_time() as time:
        jumpy = Jumpy(jumps)
        before = clock.install(jumpy)
        try:
            found = asyncio.run(main())
        finally:
            clock.install(before)
        assert all(each == "late" or isinstance(each, TimeoutError) for each in found)
        assert time.elapsed < 5000.0
