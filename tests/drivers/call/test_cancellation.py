"""Cancellation is immediate everywhere, and what means "stop" is never retried nor swallowed."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest
import trio

import mainstay
from mainstay import Backoff, CallCancelled, Engine, Jitter, RetryPolicy
from mainstay.testing import Trace, virtual_time
from tests.processes import wait_until

POLICY = RetryPolicy(
    name="op",
    retry_on=Exception,
    max_attempts=3,
    backoff=Backoff.constant(10.0),
    jitter=Jitter.none(),
)
STOPS = (KeyboardInterrupt, SystemExit, GeneratorExit, asyncio.CancelledError)
WAYS = ("decorated", "call", "result", "block", "operation", "timed")


def play(driver, way, function, chosen=POLICY):
    """One call by one of the ways there are."""
    if way == "decorated":
        return driver.run(chosen(function))
    if way == "timed":
        return driver.run(chosen.replace(attempt_timeout=60.0, deadline=600.0)(function))
    if way == "operation":
        return driver.run(Engine(policies=[chosen], sinks=[Trace()]).protect("op")(function))
    return getattr(driver, way)(chosen, function)


@pytest.mark.req("FR-041-34", "FR-041-35", "NFR-041-17", "UT-041-14")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stop", STOPS)
def test_what_means_stop_is_never_retried_nor_swallowed(driver, way, stop):
    """KeyboardInterrupt, SystemExit, GeneratorExit, CancelledError pass at once, by every way."""
    function = driver.scripted(stop, "never reached")
    with pytest.raises(stop):
        play(driver, way, function)
    assert len(function.script.calls) == 1
    assert driver.time.elapsed == 0.0


@pytest.mark.req("FR-041-35", "NFR-041-17")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_in_a_retry_ends_the_call_there(driver, way, stop):
    """The same in a second attempt: the first failure is forgotten, the stop is what is raised."""
    function = driver.scripted(ConnectionError, stop, "never reached")
    with pytest.raises(stop) as caught:
        play(driver, way, function)
    assert len(function.script.calls) == 2
    assert driver.time.elapsed == 10.0
    assert caught.value.__context__ is None


@pytest.mark.req("FR-041-34")
def test_listeners_hear_of_an_interruption_once(driver):
    """A call that is stopped ends its trace with call_interrupted, whichever way it was made."""
    for way in ("call", "block"):
        trace = Trace()
        operation = Engine(policies=[POLICY], sinks=[trace]).operation("op")
        with pytest.raises(KeyboardInterrupt):
            getattr(driver, way)(operation, driver.scripted(OSError, KeyboardInterrupt))
        assert trace.names == ["attempt_failed", "retry_attempt", "call_interrupted"], way
        assert trace.events[-1].by == "KeyboardInterrupt"
        assert trace.events[-1].total_attempts == 2


@pytest.mark.req("FR-041-34")
@pytest.mark.parametrize("way", ["call", "block"])
def test_listeners_hear_of_an_interruption_in_a_wait(way, drivers):
    """Ctrl+C, or a cancelled task, between two attempts: the trace says so, once."""
    for name in ("sync", "asyncio", "trio"):
        with virtual_time() as virtual:
            driver = next(each for each in drivers(virtual) if each.name == name)
            trace = Trace()
            operation = Engine(policies=[POLICY], sinks=[trace]).operation("op")
            function = driver.scripted(OSError, "never reached")

            async def in_asyncio(operation=operation, function=function):
                async with asyncio.timeout(5.0):
                    await called(way, operation, function)

            async def in_trio(operation=operation, function=function):
                with trio.fail_after(5.0):
                    await called(way, operation, function)

            if name == "sync":
                virtual.sleep = interrupted
                with pytest.raises(KeyboardInterrupt):
                    getattr(driver, way)(operation, function)
            else:
                with pytest.raises((TimeoutError, trio.TooSlowError)):
                    driver.run(in_asyncio if name == "asyncio" else in_trio)
        assert trace.names == ["attempt_failed", "retry_attempt", "call_interrupted"], name
        assert trace.events[-1].total_attempts == 1


async def called(way, operation, function):
    if way == "call":
        return await operation.acall(function)
    async for attempt in operation.attempts():
        with attempt:
            value = await function()
    return value


def interrupted(seconds, cancel=None):
    raise KeyboardInterrupt


@pytest.mark.req("FR-041-34")
@pytest.mark.parametrize("way", ["call", "block"])
@pytest.mark.parametrize("stop", [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError])
def test_a_call_made_while_a_stop_is_handled_was_not_interrupted(driver, way, stop):
    """Clean-up with retries in an `except CancelledError:` block ends as it ended, no other way."""
    trace = Trace()
    operation = Engine(policies=[POLICY], sinks=[trace]).operation("op")
    clean_up = driver.scripted(OSError, "cleaned")

    def plain():
        try:
            raise stop
        except stop:
            return getattr(driver, way)(operation, clean_up)

    async def coloured():
        try:
            raise stop
        except stop:
            if way == "call":
                return await operation.acall(clean_up)
            async for attempt in operation.attempts():
                with attempt:
                    value = await clean_up()
            return value

    assert driver.run(coloured if driver.is_async else plain) == "cleaned"
    assert trace.names == ["attempt_failed", "retry_attempt", "call_succeeded"]


# --- task.cancel() --------------------------------------------------------------------------------

BOUNDS = [
    {},
    {"attempt_timeout": 500.0},
    {"deadline": 500.0},
    {"attempt_timeout": 500.0, "deadline": 900.0},
]


async def cancelled_after(seconds, coroutine, times=1):
    """Cancels a task at a moment; answers with the task, ended, and when it ended."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    task = asyncio.create_task(coroutine)
    if seconds is not None:
        await asyncio.sleep(seconds)
    for _ in range(times):
        task.cancel()
    await asyncio.wait([task])
    return task, loop.time() - started


@pytest.mark.req("FR-041-34", "FR-041-35", "NFR-041-17", "UT-041-14", "IT-041-15", "UVS-6")
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    ("moment", "calls"),
    [(None, 0), (0.0, 1), (3.0, 1), (7.0, 1), (16.0, 2), (20.0, 2)],
    ids=["before start", "at start", "attempt 1", "wait 1", "attempt 2", "wait 2"],
)
def test_a_cancelled_task_ends_at_once(bounds, listens, times, moment, calls):
    """task.cancel() in an attempt, in a wait, before the start, twice: it ends that very moment."""
    made = []

    async def function():
        made.append(1)
        await asyncio.sleep(5.0)
        raise ConnectionError

    async def main():
        chosen = POLICY.replace(**bounds)
        if listens:
            decorated = Engine(policies=[chosen], sinks=[Trace()]).protect("op")(function)
        else:
            decorated = chosen(function)
        task, elapsed = await cancelled_after(moment, decorated(), times)
        assert task.cancelled()
        assert task.cancelling() == times
        assert elapsed == pytest.approx(moment or 0.0)
        assert [t for t in asyncio.all_tasks() if t is not asyncio.current_task()] == []
        await asyncio.sleep(2000.0)

    with virtual_time():
        asyncio.run(main())
    assert len(made) == calls


@pytest.mark.req("FR-041-35", "NFR-041-17")
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(("moment", "calls"), [(3.0, 1), (7.0, 1), (16.0, 2), (20.0, 2)])
def test_a_cancelled_trio_scope_ends_at_once(bounds, moment, calls):
    """The same for a trio cancel scope around the call."""
    made = []

    @POLICY.replace(**bounds)
    async def function():
        made.append(1)
        await trio.sleep(5.0)
        raise ConnectionError

    async def main():
        started = trio.current_time()
        with trio.move_on_after(moment) as scope:
            await function()
        assert scope.cancelled_caught
        assert trio.current_time() - started == pytest.approx(moment)

    with virtual_time() as virtual:
        trio.run(main, clock=virtual.trio_clock())
    assert len(made) == calls


@pytest.mark.req("FR-041-35", "NFR-041-17")
@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize(("moment", "calls"), [(3.0, 1), (7.0, 1), (16.0, 2), (20.0, 2)])
def test_a_cancelled_block_ends_at_once(bounds, moment, calls):
    """The same for `async for attempt in policy.attempts()`."""
    made = []

    async def function():
        async for attempt in POLICY.replace(**bounds).attempts():
            with attempt:
                made.append(1)
                await asyncio.sleep(5.0)
                raise ConnectionError

    async def main():
        task, elapsed = await cancelled_after(moment, function())
        assert task.cancelled()
        assert elapsed == pytest.approx(moment)

    with virtual_time():
        asyncio.run(main())
    assert len(made) == calls


@pytest.mark.req("FR-041-35")
def test_a_task_cancelled_in_an_async_hook_ends_there():
    """A cancellation that arrives while a hook is awaited is not a hook that failed."""
    made = []

    async def hook(info):
        await asyncio.sleep(100.0)

    @POLICY.replace(before_retry=hook)
    async def function():
        made.append(1)
        raise ConnectionError

    async def main():
        task, elapsed = await cancelled_after(5.0, function())
        assert task.cancelled()
        assert elapsed == pytest.approx(5.0)

    with virtual_time():
        asyncio.run(main())
    assert len(made) == 1


# --- cancel events --------------------------------------------------------------------------------


def failing(driver, calls):
    def function():
        calls.append(time.monotonic())
        raise ConnectionError("down")

    return driver.colour(function)


@pytest.mark.req("FR-041-34", "FR-041-35", "NFR-041-17", "IT-041-15")
@pytest.mark.parametrize("way", ["decorated", "call", "block", "context"])
@pytest.mark.parametrize("name", ["sync", "asyncio", "trio"])
def test_a_cancel_event_set_in_another_thread_ends_a_wait_at_once(name, way, drivers):
    """An event set by another thread wakes the wait; the last failure is the cause."""
    driver = next(each for each in drivers(None) if each.name == name)
    driver.run = {
        "sync": driver.run,
        "asyncio": lambda function, *args: asyncio.run(function(*args)),
        "trio": trio.run,
    }[name]
    cancel, calls = threading.Event(), []
    function = failing(driver, calls)
    policy = POLICY.replace(backoff=Backoff.constant(600.0))
    engine = Engine(policies=[policy], sinks=[])

    def set_in_the_wait():
        wait_until(lambda: calls, "the first attempt")
        cancel.wait(0.05)
        cancel.set()

    timer = threading.Thread(target=set_in_the_wait)
    timer.start()
    with pytest.raises(CallCancelled) as caught:
        if way == "decorated":
            driver.run(mainstay.retry(policy=policy, cancel=cancel)(function))
        elif way == "context":
            with mainstay.context(cancel=cancel):
                driver.call(policy, function)
        else:
            getattr(driver, way)(engine.operation("op", cancel=cancel), function)
    took = time.monotonic() - calls[0]
    timer.join()
    assert took < 30.0, "and not the 600 s of the wait"
    assert len(calls) == 1
    assert caught.value.attempts == 1
    assert type(caught.value.__cause__) is ConnectionError


@pytest.mark.req("FR-041-34")
@pytest.mark.parametrize("listens", [False, True])
@pytest.mark.parametrize("way", ["call", "block"])
def test_a_cancel_event_that_is_set_beforehand_lets_one_attempt_be_made(driver, way, listens):
    """The happy path reads no event: the first attempt is made, a retry never, on each driver."""
    cancel = threading.Event()
    cancel.set()
    engine = Engine(policies=[POLICY], sinks=[Trace()] if listens else [])
    operation = engine.operation("op", cancel=cancel)
    assert getattr(driver, way)(operation, driver.scripted("first")) == "first"
    function = driver.scripted(ConnectionError("down"), "second")
    with pytest.raises(CallCancelled) as caught:
        getattr(driver, way)(operation, function)
    assert len(function.script.calls) == 1
    assert str(caught.value.__cause__) == "down"
    assert driver.time.elapsed == 0.0


@pytest.mark.req("FR-041-34")
def test_a_cancelled_call_is_not_retried_by_an_outer_one(driver):
    """CallCancelled passes through an enclosing retry of any exception."""
    cancel = threading.Event()
    cancel.set()
    function = driver.scripted(ConnectionError, ConnectionError, ConnectionError)
    inner = mainstay.retry(policy=POLICY, cancel=cancel)(function)
    outer = mainstay.retry(policy=POLICY.replace(retry_on=CallCancelled))(inner)
    with pytest.raises(CallCancelled):
        driver.run(outer)
    assert len(function.script.calls) == 1


@pytest.mark.req("FR-041-34")
def test_listeners_hear_of_a_cancel_event(driver):
    """A cancel event ends the trace with call_interrupted."""
    cancel, trace = threading.Event(), Trace()
    cancel.set()
    operation = Engine(policies=[POLICY], sinks=[trace]).operation("op", cancel=cancel)
    with pytest.raises(CallCancelled):
        driver.call(operation, driver.scripted(ConnectionError))
    assert trace.names == ["attempt_failed", "retry_attempt", "call_interrupted"]
    assert trace.events[-1].by == "CallCancelled"


# --- Ctrl+C ---------------------------------------------------------------------------------------

PROGRAM = """
    import asyncio, sys, time
    import mainstay
    from mainstay import Backoff, RetryPolicy

    policy = RetryPolicy(retry_on=Exception, backoff=Backoff.constant(600.0), max_attempts=9)
    where, colour, calls = sys.argv[1], sys.argv[2], 0

    def begin():
        global calls
        calls += 1
        print("ready", flush=True)
        if where == "wait":
            raise ConnectionError("down")

    def plain():
        begin()
        time.sleep(600.0)

    async def coloured():
        begin()
        if colour == "trio":
            import trio
            await trio.sleep(600.0)
        await asyncio.sleep(600.0)

    def main():
        if colour == "block":
            for attempt in policy.attempts():
                with attempt:
                    plain()
        elif colour == "thread":
            policy.replace(timeout_by="thread", attempt_timeout=600.0).call(plain)
        elif colour == "sync":
            policy.call(plain)
        elif colour == "asyncio":
            asyncio.run(policy.acall(coloured))
        else:
            import trio
            trio.run(policy.acall, coloured)

    try:
        main()
    except KeyboardInterrupt:
        print("interrupted after", calls, flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="a Ctrl+C for one process needs POSIX signals")
@pytest.mark.req("FR-041-35", "NFR-041-17", "UVS-6", "IT-041-15")
@pytest.mark.parametrize("colour", ["sync", "block", "thread", "asyncio", "trio"])
@pytest.mark.parametrize("where", ["wait", "attempt"])
def test_ctrl_c_ends_the_program_at_once(where, colour, tmp_path):
    """A real SIGINT in a sleep or in an attempt is a KeyboardInterrupt, there and then."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    process = subprocess.Popen(
        [sys.executable, program, where, colour], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.15)  # from the attempt into the wait
        sent = time.monotonic()
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        took = time.monotonic() - sent
    assert rest == "interrupted after 1\n"
    assert took < 30.0, "and not the 600 s of the sleep"
