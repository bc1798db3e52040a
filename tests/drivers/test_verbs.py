"""What makes the calls of a verb is kept at the site, and so are the sites of functions."""

import asyncio
import functools
import gc
import inspect
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay import Backoff, CircuitBreaker, Engine, Jitter, RetryPolicy, UsageError, WrapError
from mainstay.drivers.call import site as sites
from mainstay.testing import scripted, virtual_time
from tests.costs import acosts, costs


class Own(Exception):
    """Of the application."""


class Coded(Exception):
    """Its attributes decide."""

    def __init__(self, status):
        super().__init__(f"status {status}")
        self.status_code = status


class Slow(Exception):
    """It asks for a wait."""

    def __init__(self, seconds):
        super().__init__("slow")
        self.retry_after = seconds


STEPS = st.lists(
    st.one_of(
        st.just(lambda: ConnectionError("reset")),
        st.sampled_from([5, 104, 111]).map(lambda number: lambda: OSError(number, "x")),
        st.just(lambda: Own("x")),
        st.sampled_from([400, 401, 429, 503]).map(lambda status: lambda: Coded(status)),
        st.sampled_from([0.5, 100.0]).map(lambda seconds: lambda: Slow(seconds)),
        st.just(lambda: TypeError("of the function's own")),
        st.just(None),
    ),
    min_size=1,
    max_size=5,
)
NAMES = st.sampled_from(["fetch", "store", "send"])
POLICIES = st.builds(
    lambda attempts, on, deadline: RetryPolicy(
        max_attempts=attempts, retry_on=on, deadline=deadline, jitter=Jitter.none(),
        backoff=Backoff.exponential(1.0),
    ),
    st.integers(1, 4),
    st.sampled_from([None, OSError, (OSError, Own, Coded, Slow), Exception]),
    st.sampled_from([None, 2.5]),
)  # fmt: skip


def played(policy, steps, name, time):
    """What a call comes to: value or error with its notes, and the waits."""
    function = scripted(*(step if step is None else step() for step in steps), None)
    function.__qualname__ = function.__name__ = name
    before = len(time.sleeps)
    try:
        outcome = policy.call(function)
    except Exception as error:
        outcome = type(error), str(error), getattr(error, "__notes__", [])
    return outcome, len(function.script.calls), time.sleeps[before:]


@given(POLICIES, st.lists(st.tuples(STEPS, NAMES), min_size=1, max_size=6))
@settings(max_examples=60, deadline=None)
def test_a_policy_that_has_called_before_decides_as_a_new_one(policy, calls):
    """The sites that are kept by the names of functions change nothing."""
    with virtual_time() as time:
        for steps, name in calls:
            fresh = played(policy.replace(), steps, name, time)
            assert played(policy, steps, name, time) == fresh


@given(POLICIES, STEPS)
@settings(max_examples=60, deadline=None)
def test_run_reports_what_call_would_have_come_to(policy, steps):
    """The same attempts, the same waits, the same error, in a result."""
    with virtual_time() as time:
        called = played(policy, steps, "fetch", time)
        function = scripted(*(step if step is None else step() for step in steps), None)
        function.__qualname__ = "fetch"
        before, started = len(time.sleeps), time.monotonic()
        result = policy.run(function)
        assert len(function.script.calls) == result.attempts == called[1]
        assert time.sleeps[before:] == called[2]
        assert result.total_time_ms == pytest.approx((time.monotonic() - started) * 1000.0)
        error = result.last_exception
        assert result.success is (error is None)
        if error is not None:
            assert (type(error), str(error), getattr(error, "__notes__", [])) == called[0]


def test_a_verb_costs_no_frame_but_its_own():
    """A first attempt that succeeds enters the verb and the template, and then the function."""

    def plain():
        return 1

    async def coloured():
        return 1

    policy, engine = RetryPolicy(), Engine()
    for call in (lambda: policy.call(plain), lambda: engine.call("op", plain)):
        call()
        assert costs(call) == ["<lambda>", "call", "first_attempt", "plain"]
    for acall in (lambda: policy.acall(coloured), lambda: engine.acall("op", coloured)):
        acosts(acall)
        assert [name for name in acosts(acall) if name != "<lambda>"] == [
            "acall", "first_attempt", "coloured",
        ]  # fmt: skip


def test_the_sites_of_functions_are_bounded():
    """A program that calls a thousand functions under one policy keeps some of their names."""
    policy = RetryPolicy(retry_on=Own, max_attempts=2, backoff=Backoff.constant(0))
    with virtual_time():
        for number in range(1000):
            function = scripted(Own("x"), None)
            function.__qualname__ = f"function_{number}"
            policy.call(function)
    assert 0 < len(policy._verb_site.ways.named) <= sites._MAX_NAMED


def test_nothing_is_put_into_what_all_sites_share():
    """Decorated functions have no ways of their own."""

    @RetryPolicy(retry_on=Own, max_attempts=2, backoff=Backoff.constant(0))
    def fails():
        raise Own("x")

    with pytest.raises(Own):
        fails()
    shared = sites.Ways.NONE
    assert [shared.call, shared.acall, shared.run, shared.arun, shared.named] == [
        None, None, None, None, {},
    ]  # fmt: skip


def test_a_function_that_was_called_is_not_kept():
    """Only names are kept: a closure and what it holds are freed."""
    policy = RetryPolicy(retry_on=Own, max_attempts=2, backoff=Backoff.constant(0))

    class Held:
        pass

    def make():
        held = Held()
        left = [Own("x")]

        def function():
            if left:
                raise left.pop()
            return bool(held)

        return function

    with virtual_time():
        assert policy.call(make()) is True
    assert not [each for each in gc.get_objects() if type(each) is Held]


def test_the_async_verbs_are_coroutine_functions():
    """Schedulers and web frameworks ask that before they decide how to run a function."""
    for owner in (RetryPolicy(), Engine(), Engine().operation("op"), CircuitBreaker("c")):
        for verb in (owner.acall, owner.arun):
            assert inspect.iscoroutinefunction(verb)
            assert inspect.iscoroutinefunction(functools.partial(verb, print))
            if sys.version_info < (3, 14):  # deprecated from there on
                assert asyncio.iscoroutinefunction(verb)
            assert inspect.unwrap(verb).__code__.co_flags & inspect.CO_COROUTINE


async def _answer():
    return 42


def test_a_call_of_an_async_verb_gives_a_coroutine():
    """The first call at a site and those after it, so that a task can be made of each."""

    async def main(owner, *name):
        first, second = owner.acall(*name, _answer), owner.acall(*name, _answer)
        third = asyncio.create_task(first)
        assert await third == await second == 42
        later = owner.acall(*name, _answer)
        assert inspect.iscoroutine(later)
        return await asyncio.create_task(later)

    assert asyncio.run(main(RetryPolicy())) == 42
    assert asyncio.run(main(Engine(), "op")) == 42


def test_an_async_verb_that_is_not_awaited_is_named():
    """In the warning of Python's; it is the call that somebody wrote."""
    policy = RetryPolicy()
    assert asyncio.run(policy.acall(_answer)) == 42
    with pytest.warns(RuntimeWarning, match="coroutine 'acall' was never awaited"):
        policy.acall(_answer)


@pytest.mark.parametrize("name", ["", [], 5])
def test_a_wrong_operation_is_refused_where_the_call_is_awaited(name):
    """As every mistake in an async function is."""
    made = Engine().acall(name, _answer)
    with pytest.raises((TypeError, UsageError)):
        asyncio.run(made)


AGAIN = {"retry_on": OSError, "backoff": Backoff.constant(0)}


@pytest.mark.parametrize("tries", [0, 1])
@pytest.mark.parametrize(
    "policy",
    [
        RetryPolicy(**AGAIN),
        RetryPolicy(**AGAIN, attempt_timeout=5.0),
        RetryPolicy(**AGAIN, retry_if_result=lambda _: False),
        Engine(sinks=[]).operation("op", policy=RetryPolicy(**AGAIN)),
        CircuitBreaker("c"),
    ],
    ids=["plain", "limited", "whole", "engine", "gated"],
)
def test_acall_explains_what_cannot_be_awaited(policy, tries):
    """At the first attempt or a later one, whatever template makes the attempts."""
    tries = 0 if isinstance(policy, CircuitBreaker) else tries
    left = [OSError("x")] * tries

    def plain():
        if left:
            raise left.pop()
        return 5

    with virtual_time(), pytest.raises(WrapError, match=r"plain is not async"):
        asyncio.run(policy.acall(plain))
    with pytest.raises(WrapError, match="5"):
        asyncio.run(policy.acall(5))


def test_run_through_a_circuit_counts_no_attempt_that_was_refused():
    """A refusal is the failure of the result, with no attempt made."""
    breaker = CircuitBreaker("c", failure_threshold=1)
    assert breaker.run(scripted(OSError("x"))).attempts == 1
    refused = breaker.run(scripted(None))
    assert (refused.success, refused.attempts) == (False, 0)
    assert type(refused.last_exception).__name__ == "CircuitOpenError"
    breaker.reset()
    assert breaker.run(scripted(5)).value == 5


def test_run_with_a_rule_for_results_is_accepted_or_not():
    """A result that no attempt improved is returned, and is no success."""
    policy = RetryPolicy(
        retry_if_result=lambda value: value == 0, max_attempts=2, backoff=Backoff.constant(0)
    )
    with virtual_time():
        poor, good = policy.run(scripted(0, 0)), policy.run(scripted(0, 3))
    assert (poor.success, poor.attempts, poor.value) == (False, 2, 0)
    assert (good.success, good.attempts, good.value) == (True, 2, 3)


@pytest.mark.parametrize("wrong", [None, 3, "fetch"])
def test_run_refuses_what_cannot_be_called(wrong):
    """It is a mistake of the program, and no result of a call."""
    events = []
    engine = Engine(sinks=[events.append])
    for run in (RetryPolicy().run, lambda f: engine.run("op", f)):
        with pytest.raises(WrapError, match="cannot be called"):
            run(wrong)
    for arun in (RetryPolicy().arun, lambda f: engine.arun("op", f)):
        with pytest.raises(WrapError, match="cannot be called"):
            asyncio.run(arun(wrong))
    assert not events


def test_run_refuses_what_has_not_run_yet():
    """A coroutine is closed, and the async verb is named."""

    async def coloured():
        return 1

    def lazily():
        yield 1

    for run in (RetryPolicy().run, lambda f: Engine().run("op", f)):
        with pytest.raises(WrapError, match="acall"):
            run(coloured)
        with pytest.raises(WrapError, match="generator"):
            run(lazily)


def test_a_closed_engine_takes_no_call_of_a_verb():
    """What was kept is forgotten when the engine is closed."""
    engine = Engine()
    engine.call("op", int, "1")
    engine.close()
    for verb in (engine.call, engine.run):
        with pytest.raises(Exception, match="the engine is closed"):
            verb("op", int, "1")
