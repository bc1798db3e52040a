"""What a traceback of a call shows: the caller, two frames of ours at most, the function."""

import asyncio
import functools
import itertools
import traceback
from pathlib import Path

import pytest
import trio

import mainstay
from mainstay import (
    Backoff,
    Bulkhead,
    CircuitBreaker,
    Engine,
    Fallback,
    Hedge,
    Jitter,
    RetryPolicy,
    Saga,
    SagaStep,
)
from mainstay.core.retry import call as flow
from mainstay.testing import virtual_time

POLICY = RetryPolicy(name="op", retry_on=OSError, backoff=Backoff.constant(0), jitter=Jitter.none())
POLICIES = [
    POLICY,
    POLICY.replace(deadline=60.0),
    POLICY.replace(attempt_timeout=60.0),
    POLICY.replace(retry_if_result=lambda value: False),
]


def failing(n):
    raise ConnectionError("mark this line")


async def afailing(n):
    raise ConnectionError("mark this line")


def frames_of(error):
    """The frames of ours in a traceback as it is printed, causes included."""
    found, waiting = [], [traceback.TracebackException.from_exception(error)]
    while waiting:
        shown = waiting.pop()
        found += [frame for frame in shown.stack if is_ours(frame.filename)]
        after = shown.__cause__ or (None if shown.__suppress_context__ else shown.__context__)
        waiting += [after] if after is not None else []
    return found


def is_ours(filename):
    return filename == "<mainstay>" or filename.startswith(str(Path(mainstay.__file__).parent))


def assert_short(error):
    """At most two frames of ours, none with text of a template; the function's own is last."""
    ours = frames_of(error)
    assert len(ours) <= 2, [f"{frame.filename}:{frame.name}" for frame in ours]
    assert not any("ms_" in (frame.line or "") for frame in ours)
    assert all(frame.line for frame in ours if frame.filename != "<mainstay>")


@pytest.mark.parametrize("chosen", POLICIES)
@pytest.mark.parametrize("colour", ["sync", "async"])
@pytest.mark.parametrize("fails", ["first", "last"])
def test_a_traceback_ends_at_the_functions_own_line(chosen, colour, fails):
    """Two frames of ours at most, and the line that raised comes last."""
    chosen = chosen.replace(max_attempts=1 if fails == "first" else 3)
    for _ in range(2):  # the first time by the flow, then perhaps by the fast path
        with virtual_time(), pytest.raises(ConnectionError) as caught:
            if colour == "sync":
                chosen(failing)(1)
            else:
                asyncio.run(chosen(afailing)(1))
        frames = traceback.extract_tb(caught.value.__traceback__)
        assert frames[-1].line == 'raise ConnectionError("mark this line")'
        assert_short(caught.value)


def chained(*_):
    try:
        raise KeyError("inner")
    except KeyError as error:
        raise ConnectionError("outer") from error


AT_ONCE = RetryPolicy(retry_on=ConnectionError, backoff=Backoff.constant(0))
KEYED = Engine(sinks=[], policies=[AT_ONCE.replace(name="standard")])
KEYS = itertools.count()


def failing_ways():
    """Ways to call a function that fails, of one argument each: the function."""
    retry = functools.partial(mainstay.retry, policy=AT_ONCE)
    yield "plain", retry()
    yield "listener", retry(listener=lambda event: None)
    yield "deadline", retry(deadline=60.0)
    yield "timeout", retry(timeout=60.0)
    yield "hook", retry(before_retry=lambda info: None)
    yield "result", retry(retry_if_result=lambda value: False)
    yield "guarded", retry(breaker=CircuitBreaker("a", failure_threshold=1000))
    yield "bulkhead", retry(bulkhead=Bulkhead("b", 9))
    yield "hedge", retry(hedge=Hedge(60.0))
    yield "fallback", retry(fallback=Fallback(value=0, on=KeyError))
    yield (
        "every layer",
        retry(
            bulkhead=Bulkhead("c", 9), hedge=Hedge(60.0), fallback=Fallback(value=0, on=KeyError)
        ),
    )
    yield "protect", KEYED.protect("work")
    yield "keyed", KEYED.idempotent(key=lambda *_: str(next(KEYS)))


def in_block(attempts):
    """A way to call a function of one argument: in blocks of what makes attempts."""

    def way(function):
        def call(n):
            for attempt in attempts():
                with attempt:
                    function(n)

        return call

    return way


def in_async_block(attempts):
    def way(function):
        async def call(n):
            async for attempt in attempts():
                with attempt:
                    await function(n)

        return call

    return way


def run_saga(step):
    with Engine(sinks=[]) as engine:
        return engine.sagas.run(Saga("shop", [SagaStep("pay", step, policy=AT_ONCE)]))


async def arun_saga(step):
    with Engine(sinks=[]) as engine:
        return await engine.sagas.arun(Saga("shop", [SagaStep("pay", step, policy=AT_ONCE)]))


SYNC_WAYS = {
    **dict(failing_ways()),
    "block": in_block(AT_ONCE.attempts),
    "block with limits": in_block(AT_ONCE.replace(deadline=60.0, attempt_timeout=9.0).attempts),
    "engine block": in_block(lambda: KEYED.operation("work").attempts()),
    "run": lambda function: lambda n: raised(AT_ONCE.run(function, n)),
    "saga": lambda function: lambda n: run_saga(lambda: function(n)),
    "thread": mainstay.retry(policy=AT_ONCE, timeout=60.0, timeout_by="thread"),
    "call": lambda function: lambda n: AT_ONCE.call(function, n),
    "engine.call": lambda function: lambda n: KEYED.call("work", function, n),
    "keyed call": lambda function: (
        lambda n: KEYED.operation("work", key=str(next(KEYS))).call(function, n)
    ),
    "keyed with a deadline": lambda function: (
        lambda n: KEYED.operation(
            "work", key=str(next(KEYS)), policy=AT_ONCE.replace(deadline=60.0)
        ).call(function, n)
    ),
}
ASYNC_WAYS = {
    **dict(failing_ways()),
    "block": in_async_block(AT_ONCE.attempts),
    "block with limits": in_async_block(
        AT_ONCE.replace(deadline=60.0, attempt_timeout=9.0).attempts
    ),
    "engine block": in_async_block(lambda: KEYED.operation("work").attempts()),
    "acall": lambda function: lambda n: AT_ONCE.acall(function, n),
    "engine.acall": lambda function: lambda n: KEYED.acall("work", function, n),
    "keyed acall": lambda function: (
        lambda n: KEYED.operation("work", key=str(next(KEYS))).acall(function, n)
    ),
}


@pytest.mark.parametrize("function", [failing, chained])
@pytest.mark.parametrize("way", SYNC_WAYS)
def test_a_call_that_is_given_up_shows_at_most_two_frames_of_ours(way, function):
    """However it is called: guards, layers, a key and a worker thread add no line to read."""
    call = SYNC_WAYS[way](function)
    for _ in range(2):
        with pytest.raises(ConnectionError) as caught:
            call(1)
        assert_short(caught.value)
        last = traceback.extract_tb(caught.value.__traceback__)[-1]
        assert last.name == function.__name__


def raised(result):
    """Raises what a result has; the traceback then begins here."""
    raise result.last_exception


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
@pytest.mark.parametrize("way", ASYNC_WAYS)
def test_an_async_call_that_is_given_up_shows_at_most_two_frames_of_ours(way, loop):
    """The same for coroutines, under both event loops."""
    call = ASYNC_WAYS[way](afailing)
    for _ in range(2):
        with pytest.raises(ConnectionError) as caught:
            if loop == "trio":
                trio.run(_awaited, call, 1)
            else:
                asyncio.run(_awaited(call, 1))
        assert_short(caught.value)
        assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "afailing"


async def _awaited(call, *args):
    return await call(*args)


def test_an_async_saga_that_fails_shows_at_most_two_frames_of_ours():
    """As a sync one: what failed is raised, as the step raised it."""

    async def pay():
        await afailing(1)

    with pytest.raises(ConnectionError) as caught:
        asyncio.run(arun_saga(pay))
    assert_short(caught.value)
    assert traceback.extract_tb(caught.value.__traceback__)[-1].name == "afailing"


def test_errors_of_ours_have_short_tracebacks_and_short_causes():
    """A deadline that cut an attempt, an open circuit, a fallback that raised."""

    async def slow(calls=[]):  # noqa: B006 -- counts its calls
        calls.append(1)
        if len(calls) == 1:
            raise ConnectionError("first")
        await asyncio.sleep(50.0)

    with virtual_time(), pytest.raises(mainstay.DeadlineExceeded) as caught:
        asyncio.run(_awaited(mainstay.retry(policy=AT_ONCE, deadline=1.0)(slow)))
    assert str(caught.value.__cause__) == "first"
    assert_short(caught.value)
    for listener in (None, lambda event: None):
        breaker = CircuitBreaker("open", failure_threshold=1)
        call = mainstay.retry(policy=AT_ONCE, breaker=breaker, listener=listener)(failing)
        with pytest.raises(ConnectionError):
            call(1)
        with pytest.raises(mainstay.CircuitOpenError) as caught:
            call(1)
        assert_short(caught.value)
    fallback = Fallback(function=lambda error: 1 / 0)
    with pytest.raises(ZeroDivisionError) as caught:
        mainstay.retry(policy=AT_ONCE, fallback=fallback)(failing)(1)
    assert_short(caught.value)


def test_a_defect_of_ours_keeps_every_frame(monkeypatch):
    """Only what is raised on purpose is shortened: a bug can be reported."""

    def broken(*_):
        raise AssertionError("a defect")

    monkeypatch.setattr(flow, "classify", broken)
    with pytest.raises(AssertionError, match="a defect") as caught:
        mainstay.retry(policy=AT_ONCE, deadline=60.0)(failing)(1)
    assert {"drive", "call_flow"} <= {frame.name for frame in frames_of(caught.value)}
