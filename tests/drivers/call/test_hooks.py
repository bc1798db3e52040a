"""Hooks, predicates and listeners: what they raise is reported, and never the outcome."""

import asyncio
import functools
import logging

import pytest
import trio

import mainstay
from mainstay import Backoff, Engine, Jitter, MainstayWarning, RetryPolicy, WrapError
from mainstay.testing import Trace, virtual_time

POLICY = RetryPolicy(
    name="op",
    retry_on=OSError,
    max_attempts=3,
    backoff=Backoff.constant(1.0),
    jitter=Jitter.none(),
)
WAYS = ("decorated", "call", "result", "block", "listened")


def play(driver, way, chosen, function, trace=None):
    """One call by one of the ways there are; what it raises is returned."""
    try:
        if way == "decorated":
            return driver.run(chosen(function))
        if way == "listened":
            return driver.run(mainstay.retry(policy=chosen, listener=trace or Trace())(function))
        outcome = getattr(driver, way)(chosen, function)
    except Exception as error:
        return error
    if way != "result":
        return outcome
    return outcome.value if outcome.success else outcome.last_exception


@pytest.mark.req("CL-05.hooks")
@pytest.mark.parametrize("way", WAYS)
def test_hooks_are_told_of_every_retry(driver, way):
    """before_retry before each wait with the failure, after_retry after each retry with its end."""
    told = []
    chosen = POLICY.replace(
        before_retry=lambda info: told.append(("before", info.attempt, info.delay, info.exception)),
        after_retry=lambda info: told.append(("after", info.attempt, info.delay, info.exception)),
    )
    first, second = ConnectionError("first"), TimeoutError("second")
    assert play(driver, way, chosen, driver.scripted(first, second, "ok")) == "ok"
    assert told == [
        ("before", 1, 1.0, first),
        ("after", 2, 1.0, second),
        ("before", 2, 1.0, second),
        ("after", 3, 1.0, None),
    ]


@pytest.mark.req("CL-05.hooks")
@pytest.mark.parametrize("way", WAYS)
def test_hooks_are_not_called_where_nothing_is_retried(driver, way):
    """A first success, and a failure that is final, concern no hook."""
    told = []
    chosen = POLICY.replace(before_retry=told.append, after_retry=told.append)
    play(driver, way, chosen, driver.scripted("ok"))
    play(driver, way, chosen, driver.scripted(ValueError))
    play(driver, way, chosen.replace(max_attempts=1), driver.scripted(OSError))
    assert told == []


@pytest.mark.req("CL-05.async")
@pytest.mark.parametrize("way", WAYS)
def test_async_hooks_are_awaited(async_driver, way):
    """An async hook has ended before the wait begins; it may take its time."""
    sleep = asyncio.sleep if async_driver.name == "asyncio" else trio.sleep
    told = []

    async def hook(word, info):
        await sleep(0.25)
        told.append((word, info.attempt, async_driver.time.elapsed))

    chosen = POLICY.replace(
        before_retry=functools.partial(hook, "before"), after_retry=functools.partial(hook, "after")
    )
    assert play(async_driver, way, chosen, async_driver.scripted(OSError, OSError, "ok")) == "ok"
    assert told == [
        ("before", 1, 0.25),
        ("after", 2, 1.5),
        ("before", 2, 1.75),
        ("after", 3, 3.0),
    ]


@pytest.mark.req("CL-05.hooks")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["before_retry", "after_retry"])
@pytest.mark.parametrize("trouble", [ValueError, OSError, AssertionError])
def test_a_hook_that_raises_is_reported_and_changes_nothing(driver, way, name, trouble, caplog):
    """Whatever a hook raises, the call ends as it would have, and the trouble is told."""

    def hook(info):
        raise trouble("in the hook")

    trace = Trace()
    chosen = POLICY.replace(**{name: hook})
    with caplog.at_level(logging.ERROR, "mainstay"):
        assert play(driver, way, chosen, driver.scripted(OSError, "ok"), trace) == "ok"
        error = play(driver, way, chosen, driver.scripted(*[OSError] * 3), trace)
    assert isinstance(error, OSError)
    assert error.__context__ is None
    if way == "listened":
        failed = trace.of("hook_failed")
        assert {(event.hook, event.exception_type) for event in failed} == {
            (name, trouble.__name__)
        }
    else:
        assert name in caplog.text
        assert trouble.__name__ in caplog.text


@pytest.mark.req("CL-05.async")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["before_retry", "after_retry"])
def test_an_async_hook_that_raises_is_reported_too(async_driver, way, name, caplog):
    """The same where it raises while it is awaited."""

    async def hook(info):
        raise ValueError("in the hook")

    chosen = POLICY.replace(**{name: hook})
    trace = Trace()
    with caplog.at_level(logging.ERROR, "mainstay"):
        assert play(async_driver, way, chosen, async_driver.scripted(OSError, "ok"), trace) == "ok"
    assert "in the hook" in caplog.text or trace.of("hook_failed")


@pytest.mark.req("CL-05.async")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["before_retry", "after_retry"])
def test_an_async_hook_of_a_sync_call_is_refused(drivers, way, name):
    """When the function is decorated or called, before it is: nothing could await the hook."""
    made = []

    async def hook(info):
        raise AssertionError("is never run")

    with virtual_time() as time:
        driver = drivers(time)[0]
        chosen = POLICY.replace(**{name: hook})
        refused = play(driver, way, chosen, lambda: made.append(1))
    assert isinstance(refused, WrapError)
    assert f"{name} of policy 'op' is async, and this call cannot await it" in str(refused)
    assert made == []


@pytest.mark.req("CL-05.async")
@pytest.mark.parametrize("name", ["before_retry", "after_retry"])
def test_a_sync_function_is_not_decorated_with_an_async_hook(name):
    """By no decorator, and not under a key."""

    async def hook(info):
        raise AssertionError("is never run")

    def work():
        return "done"

    chosen = POLICY.replace(**{name: hook})
    with Engine(policies=[chosen], default="op") as engine:
        keyed = engine.operation("work", key="k")
        for refused in (
            lambda: chosen(work),
            lambda: mainstay.retry(policy=chosen)(work),
            lambda: engine.protect("work")(work),
            lambda: engine.idempotent(key=lambda: "k")(work),
            lambda: keyed.call(work),
            lambda: keyed.run(work),
            lambda: engine.call("work", work),
        ):
            with pytest.raises(WrapError, match=f"{name} of policy 'op' is async"):
                refused()


@pytest.mark.req("CL-05.async")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["before_retry", "after_retry"])
def test_what_a_plain_hook_of_a_sync_call_leaves_to_await_is_visible(drivers, way, name, caplog):
    """A warning names the policy and the hook; nothing warns of a lost coroutine."""

    async def hook(info):
        raise AssertionError("is never run")

    trace, text = Trace(), f"{name} of policy 'hides {way}' is async"
    hides = {name: lambda info: hook(info)}  # noqa: PLW0108 -- hides it
    chosen = POLICY.replace(name=f"hides {way}", **hides)
    with virtual_time() as time, caplog.at_level(logging.ERROR, "mainstay"):
        driver = drivers(time)[0]
        with pytest.warns(MainstayWarning, match=text):
            assert play(driver, way, chosen, driver.scripted(OSError, "ok"), trace) == "ok"
    assert "is async" in caplog.text or "is async" in trace.of("hook_failed")[0].exception_message


@pytest.mark.req("CL-05.async")
@pytest.mark.parametrize("ends", ["success", "failure"])
def test_an_async_hook_of_a_blocks_last_attempt_is_not_lost(async_driver, ends, caplog):
    """After the last attempt it is awaited, or, where an exception leaves the loop, reported."""
    told = []

    async def hook(info):
        told.append(info.attempt)

    chosen = POLICY.replace(after_retry=hook, max_attempts=2)
    steps = (OSError, "ok") if ends == "success" else (OSError, OSError)
    with caplog.at_level(logging.ERROR, "mainstay"):
        play(async_driver, "block", chosen, async_driver.scripted(*steps))
    assert told == ([2] if ends == "success" else [])
    assert ("could be awaited" in caplog.text) == (ends == "failure")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_a_stop_in_a_hook_is_a_stop(driver, way, stop):
    """Ctrl+C while a hook runs ends the call."""

    def hook(info):
        raise stop

    function = driver.scripted(OSError, "never reached")
    with pytest.raises(stop):
        play(driver, way, POLICY.replace(before_retry=hook), function)
    assert len(function.script.calls) == 1


# --- predicates -----------------------------------------------------------------------------------


def raises(*_):
    raise LookupError("in the predicate")


class Undecided:
    """An answer that is neither true nor false, as numpy's arrays are."""

    def __bool__(self):
        raise ValueError("ambiguous")


BAD = {"raises": raises, "undecided": lambda _: Undecided()}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("field", ["retry_on", "never_retry_on", "retry_if_result"])
def test_a_predicate_that_raises_counts_as_no_match_and_is_reported(driver, way, bad, field):
    """The original outcome comes through, and a warning names the predicate's policy."""
    chosen = POLICY.replace(**{field: BAD[bad]})
    original = ConnectionError("original")
    outcome = "first" if field == "retry_if_result" else original
    with pytest.warns(MainstayWarning, match="of policy 'op'"):
        found = play(driver, way, chosen, driver.scripted(outcome, *[original] * 3))
    assert found is (original if field != "retry_if_result" else "first")
    if isinstance(found, Exception):
        assert found.__context__ is None


@pytest.mark.parametrize("answer", [None, 0, "", [], "yes", object(), 2.5])
def test_a_predicate_may_answer_anything(driver, answer):
    """What is true is a match, what is false is none."""
    chosen = POLICY.replace(retry_on=lambda error: answer)
    function = driver.scripted(KeyError, "second")
    if answer:
        assert driver.run(chosen(function)) == "second"
    else:
        with pytest.raises(KeyError):
            driver.run(chosen(function))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "bad",
    [raises, lambda n: "soon", lambda n: None, lambda n: float("nan"), lambda n: -1.0],
    ids=["raises", "text", "none", "nan", "negative"],
)
@pytest.mark.filterwarnings("ignore::mainstay.MainstayWarning")
def test_a_custom_backoff_that_fails_costs_nobody_the_exception(driver, way, bad):
    """The call goes on with the longest delay, and what is raised at the end is the user's."""
    chosen = POLICY.replace(backoff=Backoff.custom(bad, max_delay=7.0))
    assert play(driver, way, chosen, driver.scripted(OSError, "ok")) == "ok"
    assert driver.time.elapsed == 7.0
    error = play(driver, way, chosen, driver.scripted(*[ConnectionError("mine")] * 3))
    assert str(error) == "mine"


@pytest.mark.parametrize("way", WAYS)
def test_a_listener_that_raises_is_passed_over(driver, way, caplog):
    """The other listeners hear all the same, and the outcome is what it was."""
    trace = Trace()
    engine = mainstay.Engine(policies=[POLICY], sinks=[raises, trace])
    with caplog.at_level(logging.ERROR, "mainstay"):
        verbs = engine.operation("op")
        if way in ("decorated", "listened"):
            assert driver.run(engine.protect("op")(driver.scripted(OSError, "ok"))) == "ok"
        elif way == "result":
            assert driver.result(verbs, driver.scripted(OSError, "ok")).value == "ok"
        else:
            assert getattr(driver, way)(verbs, driver.scripted(OSError, "ok")) == "ok"
    assert trace.names == ["attempt_failed", "retry_attempt", "call_succeeded"]
    assert "in the predicate" in caplog.text


@pytest.mark.parametrize("wall", [1e12, -1e12, 1e300, float("nan"), float("inf")])
def test_a_wall_clock_out_of_the_calendar_costs_nobody_the_exception(driver, wall):
    """A clock that has gone astray leaves an event without its time, and changes no outcome."""
    trace = Trace()
    driver.time.wall = lambda: wall
    error = ConnectionError("mine")
    found = play(driver, "listened", POLICY, driver.scripted(*[error] * 3), trace)
    assert found is error
    assert [event.timestamp for event in trace.events] == [""] * 6


# --- exceptions that resist -----------------------------------------------------------------------


class Frozen(ConnectionError):
    """Takes no attribute, so no note."""

    def __setattr__(self, name, value):
        raise AttributeError("frozen")


class BadNotes(ConnectionError):
    """Has notes that are none."""

    __notes__ = "not a list"


class BadProperty(ConnectionError):
    """Raises whoever asks it for a hint."""

    @property
    def response(self):
        raise RuntimeError("no response")

    retry_after = headers = code = status_code = response


class BadAttributes(ConnectionError):
    """Raises whoever asks it for what it does not have."""

    def __init__(self, *args):
        super().__init__(*args)
        self.response = None

    def __getattr__(self, name):
        raise KeyError(name)


class BadText(ConnectionError):
    """Cannot be shown."""

    def __str__(self):
        raise RuntimeError("no text")


class BadEquality(ConnectionError):
    """Equals nothing, and says so loudly."""

    def __eq__(self, other):
        raise RuntimeError("no equality")

    def __hash__(self):
        raise RuntimeError("no hash")


class Falsy(ConnectionError):
    """Is false."""

    def __bool__(self):
        return False

    def __len__(self):
        return 0


@pytest.mark.req("NFR-041-16")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "kind",
    [
        Frozen,
        BadNotes,
        BadProperty,
        BadAttributes,
        BadText,
        BadEquality,
        Falsy,
    ],
)
def test_an_exception_that_resists_is_raised_all_the_same(driver, way, kind):
    """Whatever its class does, the user gets his own exception, after all its attempts."""
    for limits in ({}, {"deadline": 60.0}, {"deadline": 1.5}):
        errors = [kind("a"), kind("b"), kind("c")]
        function = driver.scripted(*errors)
        found = play(driver, way, POLICY.replace(**limits), function)
        made = len(function.script.calls)
        assert made == (2 if limits.get("deadline") == 1.5 else 3)
        assert found is errors[made - 1]
