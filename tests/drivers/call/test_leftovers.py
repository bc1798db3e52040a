"""Nothing is left behind: no task, timer, thread, frame, or reference that only gc could free."""

import asyncio
import contextlib
import gc
import sys
import threading
import weakref

import pytest
import trio

import mainstay
from mainstay import Backoff, DeadlineExceeded, Engine, Jitter, RetryPolicy, deadline
from mainstay.testing import Trace, virtual_time

POLICY = RetryPolicy(
    name="op",
    retry_on=OSError,
    max_attempts=3,
    backoff=Backoff.constant(1.0),
    jitter=Jitter.none(),
)

LIMITED = POLICY.replace(deadline=99.0)


class Failure(ConnectionError):
    """One that can be referred to weakly."""


class Precious:
    """An argument or a result that should be freed when nobody holds it."""


class Witness:
    """Makes failures, arguments and results, and knows which of them still live."""

    def __init__(self):
        self.refs = []
        self.calls = 0

    def watch(self, thing):
        self.refs.append(weakref.ref(thing))
        return thing

    def fail(self, precious, *, until=None):
        self.calls += 1
        local = self.watch(Precious())  # held by the frame, so by the traceback
        if until is not None and self.calls >= until:
            return self.watch(Precious())
        raise self.watch(Failure(f"failure {self.calls} {local is None}"))

    @property
    def alive(self):
        return [ref() for ref in self.refs if ref() is not None]


@pytest.fixture
def no_gc():
    """Only reference counting frees anything."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


WAYS = {
    "plain": lambda driver, function: POLICY(function),
    "deadline": lambda driver, function: POLICY.replace(deadline=99.0)(function),
    "timeout": lambda driver, function: POLICY.replace(attempt_timeout=9.0)(function),
    "hooks": lambda driver, function: POLICY.replace(
        before_retry=lambda info: None, after_retry=lambda info: None
    )(function),
    "listener": lambda driver, function: mainstay.retry(policy=POLICY, listener=lambda event: None)(
        function
    ),
    "engine": lambda driver, function: Engine(policies=[POLICY], sinks=[]).protect("op")(function),
    "results": lambda driver, function: POLICY.replace(retry_if_result=lambda value: False)(
        function
    ),
    "cancel": lambda driver, function: mainstay.retry(policy=POLICY, cancel=threading.Event())(
        function
    ),
    "out of time": lambda driver, function: POLICY.replace(deadline=1.5)(function),
    "not retryable": lambda driver, function: POLICY.replace(retry_on=KeyError)(function),
    "twice decorated": lambda driver, function: POLICY(POLICY(function)),
    "bare": lambda driver, function: function,
}


def verbs(name):
    def way(driver, function):
        def plain(*args, **kwargs):
            verb = getattr(POLICY, name)
            return verb(function, *args, **kwargs)

        async def coloured(*args, **kwargs):
            return await getattr(POLICY, "a" + name)(function, *args, **kwargs)

        return coloured if driver.is_async else plain

    return way


def block(driver, function):
    def plain(*args, **kwargs):
        for attempt in LIMITED.attempts():
            with attempt:
                return function(*args, **kwargs)
        return None

    async def coloured(*args, **kwargs):
        async for attempt in LIMITED.attempts():
            with attempt:
                return await function(*args, **kwargs)
        return None

    return coloured if driver.is_async else plain


WAYS |= {"call": verbs("call"), "run": verbs("run"), "block": block}


@pytest.mark.req("NFR-041-14")
@pytest.mark.filterwarnings("ignore::mainstay.NestedRetryWarning")
@pytest.mark.parametrize("until", [None, 1, 2], ids=["given up", "first", "second"])
@pytest.mark.parametrize("way", WAYS)
def test_failures_arguments_and_results_are_freed_without_the_collector(driver, way, until, no_gc):
    """When a call is over, what it raised, was given and returned lives no longer than its user."""
    witness = Witness()
    function = driver.colour(lambda precious: witness.fail(precious, until=until))
    called = WAYS[way](driver, function)

    def plain():
        with contextlib.suppress(OSError):
            called(witness.watch(Precious()))
        return witness.alive

    async def coloured():
        with contextlib.suppress(OSError):
            await called(witness.watch(Precious()))
        return witness.alive

    alive = driver.run(coloured if driver.is_async else plain)
    if driver.name == "trio":  # on Python 3.13 it holds on to the arguments of what has slept
        assert len(alive) <= left_by_a_hand_written_loop(driver, until)
    else:
        assert alive == []
    assert witness.calls >= 1


def left_by_a_hand_written_loop(driver, until):
    """How much of the same a loop of one's own leaves alive under this driver."""
    witness = Witness()

    async def loop(precious):
        for attempt in range(3):
            with contextlib.suppress(*[OSError] * (attempt < 2)):
                return witness.fail(precious, until=until)
            await trio.sleep(1.0)
        raise AssertionError("the loop returns or raises")

    async def verb(function, *args):  # as acall() and arun() are
        value = await function(*args)
        return value  # noqa: RET504 -- held by the frame, which is what is measured

    async def main():
        with contextlib.suppress(OSError):
            await verb(loop, witness.watch(Precious()))
        return witness.alive

    return len(driver.run(main))


@pytest.mark.req("NFR-041-14")
@pytest.mark.filterwarnings("ignore::mainstay.NestedRetryWarning")
@pytest.mark.parametrize("way", [way for way in WAYS if way != "run"])
def test_a_failed_task_and_its_exception_are_freed_without_the_collector(way, no_gc, drivers):
    """A task that ended in a give-up forms no circle with its exception, frames and timers."""
    with virtual_time() as time:
        driver = drivers(time)[1]
        witness = Witness()
        function = driver.colour(witness.fail)
        called = WAYS[way](driver, function)

        async def main():
            task = witness.watch(asyncio.ensure_future(called(witness.watch(Precious()))))
            await asyncio.wait([task])
            assert isinstance(task.exception(), Failure)
            del task
            await asyncio.sleep(0)
            return witness.alive

        assert asyncio.run(main()) == []


CUTS = {
    "first attempt": {"attempt_timeout": 1.0, "max_attempts": 1},
    "retries": {"attempt_timeout": 1.0},
    "deadline": {"deadline": 1.0},
    "both": {"attempt_timeout": 1.0, "deadline": 2.5},
}


@pytest.mark.req("NFR-041-14")
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("cut", CUTS)
def test_cut_attempts_are_freed_without_the_collector(async_driver, cut, listens, no_gc):
    """An attempt that was cut leaves no circle of timer, scope, task and exception."""
    witness = Witness()
    sleep = asyncio.sleep if async_driver.name == "asyncio" else trio.sleep

    async def function(precious):
        local = witness.watch(Precious())  # held by the frame of the cancellation
        await sleep(50.0)
        return local

    policy = POLICY.replace(**CUTS[cut])
    called = (
        Engine(policies=[policy], sinks=[Trace()]).protect("op")(function)
        if listens
        else policy(function)
    )

    async def one():
        with pytest.raises(TimeoutError):
            await called(witness.watch(Precious()))

    async def main():
        if async_driver.name == "asyncio":  # which keeps a cancellation as long as its task
            await asyncio.create_task(one())
        else:
            await one()
            await trio.lowlevel.checkpoint()
        return witness.alive

    assert async_driver.run(main) == []
    assert witness.refs


@pytest.mark.req("NFR-041-14")
@pytest.mark.parametrize("failures", [0, 1])
@pytest.mark.parametrize("cut", ["retries", "deadline", "both"])
def test_what_is_cancelled_from_outside_is_freed_without_the_collector(
    async_driver, cut, failures, no_gc
):
    """A client that hangs up: its request is cancelled within its limits, at any attempt."""
    witness, script = Witness(), iter([True] * failures)
    sleep = asyncio.sleep if async_driver.name == "asyncio" else trio.sleep

    @POLICY.replace(**CUTS[cut], backoff=Backoff.constant(0.0))
    async def function():
        local = witness.watch(Precious())  # held by the frame of the cancellation
        if next(script, False):
            raise ConnectionError("down")
        await sleep(50.0)
        return local

    async def on_asyncio():
        task = asyncio.create_task(function())
        for _ in range(20):  # until it sleeps
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        del task
        await asyncio.sleep(0)

    async def on_trio():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(function)
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()

    async_driver.run(on_asyncio if async_driver.name == "asyncio" else on_trio)
    assert len(witness.refs) > failures
    assert witness.alive == []


@pytest.mark.req("NFR-041-14")
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_task_is_freed_without_the_collector(cut, no_gc):
    """Neither does the task itself, when it ends with the timeout."""
    witness = Witness()

    @POLICY.replace(**CUTS[cut])
    async def function():
        await asyncio.sleep(50.0)

    async def main():
        task = witness.watch(asyncio.ensure_future(function()))
        await asyncio.wait([task])
        assert isinstance(task.exception(), TimeoutError)
        del task
        await asyncio.sleep(0)
        return witness.alive

    with virtual_time():
        assert asyncio.run(main()) == []


@pytest.mark.req("NFR-041-14")
def test_while_a_call_waits_nothing_holds_its_last_failure(driver, no_gc):
    """In the wait before a retry the failure, its traceback and its frames are already gone."""
    witness, seen = Witness(), []

    def function(precious):
        seen.append([each for each in witness.alive if isinstance(each, Failure)])
        return witness.fail(precious)

    async def coloured(decorated):
        with contextlib.suppress(Failure):
            await decorated(None)

    for chosen in (POLICY, POLICY.replace(attempt_timeout=50.0)):
        assert driver.result(chosen, driver.colour(function), None).attempts == 3
        witness.refs.clear()  # an event loop may keep the result of its last run
        decorated = chosen(driver.colour(function))
        assert driver.result(POLICY.replace(retry_on=KeyError), decorated, None).attempts == 1
        witness.refs.clear()
        if driver.is_async:
            driver.run(coloured, decorated)
        else:
            with contextlib.suppress(Failure):
                decorated(None)
        witness.refs.clear()
    assert seen == [[]] * 18


# --- timers and tasks -----------------------------------------------------------------------------


def live_timers(loop):
    return [handle for handle in loop._scheduled if not handle.cancelled()]


@pytest.mark.req("NFR-041-14")
def test_at_most_one_timer_rests_per_limit_and_it_disarms():
    """After a thousand timed calls one timer is left for each limit, and it ends by itself."""
    numbers = iter(range(10**6))

    @POLICY.replace(attempt_timeout=5.0)
    async def quick():
        return 1

    @POLICY.replace(attempt_timeout=7.0, deadline=60.0)
    async def flaky():
        if next(numbers) % 2 == 0:
            raise Failure
        return 1

    async def main():
        loop = asyncio.get_running_loop()
        for _ in range(500):
            await quick()
            await flaky()
        assert len(live_timers(loop)) <= 2
        await asyncio.sleep(10.0)
        assert live_timers(loop) == []
        assert all(lane.timer is None and not lane.queue for lane in loop.mainstay_lanes.values())
        assert asyncio.all_tasks() == {asyncio.current_task()}

    with virtual_time():
        asyncio.run(main())


@pytest.mark.req("NFR-041-09", "IT-041-06", "NFR-041-14")
def test_a_thousand_calls_with_one_limit_expire_each_at_its_own_moment():
    """Attempts of one lane are cut in the order they began, none early, none forgotten."""
    ends = []

    @POLICY.replace(attempt_timeout=5.0, max_attempts=1)
    async def slow(number, started):
        try:
            await asyncio.sleep(3.0 if number % 3 == 0 else 99.0)
        except asyncio.CancelledError:
            ends.append((number, asyncio.get_running_loop().time() - started))
            raise

    async def one(number):
        await asyncio.sleep(number / 1000)
        await slow(number, asyncio.get_running_loop().time())

    async def main():
        found = await asyncio.gather(*(one(n) for n in range(1000)), return_exceptions=True)
        cut = [n for n, each in enumerate(found) if isinstance(each, TimeoutError)]
        assert cut == [n for n in range(1000) if n % 3]
        assert live_timers(asyncio.get_running_loop()) == []

    with virtual_time() as time:
        asyncio.run(main())
        assert time.elapsed < 7.0
    assert [number for number, _ in ends] == [n for n in range(1000) if n % 3]
    assert all(4.999 <= took <= 5.01 for _, took in ends)


@pytest.mark.req("NFR-041-14")
def test_many_different_limits_do_not_pile_up():
    """A limit that is worked out anew for each call leaves no lane behind for each of them."""

    async def quick():
        return 1

    async def main():
        for n in range(500):
            await POLICY.replace(attempt_timeout=1.0 + n / 1000)(quick)()
        assert len(asyncio.get_running_loop().mainstay_lanes) <= 64

    with virtual_time():
        asyncio.run(main())


@pytest.mark.req("NFR-041-14")
def test_another_loop_has_its_own_timers():
    """A function that was limited in a loop that is closed is limited in the next one as well."""

    @POLICY.replace(attempt_timeout=1.0, max_attempts=2)
    async def slow():
        await asyncio.sleep(99.0)

    for _ in range(3):
        with virtual_time() as time:
            with pytest.raises(TimeoutError):
                asyncio.run(slow())
            assert time.elapsed == pytest.approx(3.0)


@pytest.mark.req("NFR-041-14")
def test_a_loop_that_is_thrown_away_takes_its_timers_along():
    """A loop closed in the middle of an attempt is freed, with what waited in it."""
    gc.collect()

    @POLICY.replace(attempt_timeout=5.0)
    async def slow():
        await asyncio.sleep(99.0)

    loop = asyncio.new_event_loop()
    ref = weakref.ref(loop)
    task = loop.create_task(slow())
    loop.call_later(0.01, loop.stop)
    loop.run_forever()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    del loop, task
    gc.collect()
    assert ref() is None


@pytest.mark.req("NFR-041-14")
@pytest.mark.parametrize("way", sorted(WAYS.keys() - {"bare", "cancel"}))
@pytest.mark.filterwarnings("ignore::mainstay.NestedRetryWarning")
def test_thousands_of_calls_leave_the_memory_flat(driver, way, no_gc):
    """Ten thousand attempts, most of them failing, leave no more blocks than a hundred did."""
    counter = iter(range(10**9))

    def fail():
        if next(counter) % 5 == 4:
            return
        raise Failure("again")

    function = driver.colour(fail)
    called = WAYS[way](driver, function)

    async def many_coloured(times):
        for _ in range(times):
            with contextlib.suppress(OSError):
                await called()

    def many(times):
        for _ in range(times):
            with contextlib.suppress(OSError):
                called()

    def grown():
        if not driver.is_async:
            many(200)
            before = sys.getallocatedblocks()
            many(1000)
            return sys.getallocatedblocks() - before

        async def main():
            await many_coloured(200)
            before = sys.getallocatedblocks()
            await many_coloured(1000)
            return sys.getallocatedblocks() - before

        return driver.run(main)

    driver.time.sleeps = Forgetful()
    growth = grown()
    assert growth < 400, f"{growth} blocks for 1000 calls"


class Forgetful(list):
    """A list that keeps nothing: virtual time notes every sleep."""

    def append(self, _):
        pass


@pytest.mark.req("NFR-041-14")
def test_deadlines_leave_nothing_in_the_context(driver):
    """After a call with every limit there is, the caller is as unlimited as before."""
    policy = POLICY.replace(attempt_timeout=1.0, deadline=5.0)

    def plain():
        assert deadline.remaining() is None
        with pytest.raises(Failure):
            policy.call(lambda: Witness().fail(None))
        return deadline.remaining()

    async def coloured():
        assert deadline.remaining() is None
        for function in (driver.scripted(Failure, Failure, Failure), driver.scripted("ok")):
            with contextlib.suppress(OSError):
                await policy.acall(function)
        with pytest.raises((DeadlineExceeded, Failure)):
            async for attempt in policy.attempts():
                with attempt:
                    raise Failure
        return deadline.remaining()

    assert driver.run(coloured if driver.is_async else plain) is None
