"""Scripts, switches and traces: the rest of `mainstay.testing`."""

import asyncio
import threading

import pytest

import mainstay
from mainstay import Backoff, Engine, RetryPolicy
from mainstay.runtime.overrides import PROCESS_OVERRIDES
from mainstay.testing import (
    ScriptEnded,
    Trace,
    no_retry,
    record,
    scripted,
    scripted_async,
    takes,
    virtual_time,
)

POLICY = RetryPolicy(name="op", retry_on=OSError, backoff=Backoff.constant(0))


@pytest.fixture(autouse=True)
def _all_switched_off():
    """Every switch is off before and after."""
    assert not PROCESS_OVERRIDES.is_active
    yield
    assert not PROCESS_OVERRIDES.is_active


# --- scripts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_script_raises_exceptions_and_returns_the_rest(colour):
    """Instances and classes of exceptions are raised; all else is returned as it is."""
    value = object()
    steps = (KeyError("instance"), KeyError, value, None, KeyboardInterrupt)
    function = scripted(*steps) if colour == "sync" else scripted_async(*steps)

    def call(*args, **kwargs):
        made = function(*args, **kwargs)
        return made if colour == "sync" else asyncio.run(made)

    with pytest.raises(KeyError, match="instance"):
        call(1, two=2)
    with pytest.raises(KeyError):
        call()
    assert call() is value
    assert call() is None
    assert function.script.remaining == 1
    with pytest.raises(KeyboardInterrupt):
        call()
    assert function.script.calls[0] == ((1,), {"two": 2})
    assert function.script.remaining == 0
    with pytest.raises(ScriptEnded, match="call 6 of a script of 5"):
        call()


def test_a_script_that_ends_is_not_retried_away():
    """ScriptEnded is an AssertionError: no policy takes it for a passing trouble."""
    function = scripted(OSError)
    with pytest.raises(ScriptEnded):
        RetryPolicy(retry_on=OSError, max_attempts=9, backoff=Backoff.constant(0)).call(function)
    assert len(function.script.calls) == 2


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_step_takes_its_time(colour):
    """takes() lets virtual time pass, before it returns or raises."""
    steps = (takes(2.5, OSError()), takes(1.5, "ok"))
    with virtual_time() as time:
        if colour == "sync":
            assert POLICY.call(scripted(*steps)) == "ok"
        else:
            assert asyncio.run(POLICY.acall(scripted_async(*steps))) == "ok"
        assert time.elapsed == 4.0


# --- no_retry -------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["call", "run", "decorated", "engine", "block", "async"])
def test_no_retry_makes_one_attempt_whatever_the_policy(way):
    """Every way of calling makes one attempt, and raises what it raised."""
    function = (scripted_async if way == "async" else scripted)(ConnectionError("first"), "second")
    with no_retry(), pytest.raises(ConnectionError, match="first"):
        if way == "call":
            POLICY.call(function)
        elif way == "run":
            raise POLICY.run(function).last_exception
        elif way == "decorated":
            POLICY(function)()
        elif way == "engine":
            Engine(policies=[POLICY], sinks=[]).call("op", function)
        elif way == "async":
            asyncio.run(POLICY.acall(function))
        else:
            for attempt in POLICY.attempts():
                with attempt:
                    function()
    assert len(function.script.calls) == 1
    if way == "call":
        assert POLICY.call(function) == "second"


def test_no_retry_nests_and_is_undone_by_errors():
    """The outermost switch counts; an error on the way leaves none on."""
    with pytest.raises(KeyError), no_retry():
        with no_retry():
            pass
        assert POLICY.run(scripted(OSError, "ok")).attempts == 1
        raise KeyError
    assert POLICY.run(scripted(OSError, "ok")).attempts == 2


# --- traces ---------------------------------------------------------------------------------------


def test_record_hears_calls_decorated_anywhere():
    """Functions that know of no listener are heard while it lasts, and not afterwards."""
    fetch = POLICY(scripted(OSError, "ok", OSError, "ok"))
    with record() as trace:
        fetch()
    fetch()
    assert trace.names == ["attempt_failed", "retry_attempt", "call_succeeded"]
    trace.assert_succeeded(attempts=2)
    trace.assert_delays([0.0])
    assert trace.failures == ["OSError"]


def test_records_nest_and_each_hears_all():
    """An inner record takes nothing from an outer one."""
    with record() as outer:
        POLICY.call(scripted(OSError, 1))
        with record() as inner:
            POLICY.call(scripted(OSError, 1))
        POLICY.call(scripted(OSError, 1))
    assert (len(outer.events), len(inner.events)) == (9, 3)


def test_records_may_overlap():
    """Two threads' recordings that begin and end crosswise leave nothing behind."""
    begun, ended = threading.Event(), threading.Event()

    def other():
        with record():
            begun.set()
            ended.wait(5)

    thread = threading.Thread(target=other)
    with record() as trace:
        thread.start()
        begun.wait(5)
    ended.set()
    thread.join()
    POLICY.call(scripted(OSError, 1))
    assert trace.events == []


def test_assertions_fail_with_the_whole_story():
    """What was expected, what was found, and every event in words."""
    trace = Trace()
    call = mainstay.retry(policy=POLICY.replace(max_attempts=2), listener=trace)
    with pytest.raises(OSError):
        call(scripted(OSError("down"), OSError("down")))()
    trace.assert_gave_up(attempts=2)
    for check in (
        trace.assert_succeeded,
        lambda: trace.assert_gave_up(attempts=3),
        lambda: trace.assert_delays([1.0]),
        lambda: trace.assert_delays([]),
    ):
        with pytest.raises(AssertionError, match="expected") as caught:
            check()
        assert "retry_exhausted" in str(caught.value)
    with pytest.raises(AssertionError, match="no event"):
        Trace().assert_succeeded()


def test_a_call_that_fails_at_once_gave_up():
    """A final failure is a give-up as well, after one attempt."""
    with record() as trace, pytest.raises(ValueError):
        POLICY.call(scripted(ValueError))
    trace.assert_gave_up(attempts=1)
    assert [event.kind for event in trace.of("call_failed")] == ["permanent"]
