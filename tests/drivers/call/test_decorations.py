"""What is known of a decorated function: `fetch.mainstay`."""

import asyncio
import functools

import pytest

from mainstay import (
    Backoff,
    Bulkhead,
    CircuitBreaker,
    CircuitOpenError,
    Engine,
    Fallback,
    PolicyError,
    Redactor,
    ResultRejected,
    RetryPolicy,
    retry,
)
from mainstay.testing import virtual_time

POLICY = RetryPolicy(name="api", max_attempts=3, retry_on=OSError, backoff=Backoff.constant(0))


def failing(times, calls=None):
    """A function that fails so often before it returns."""
    calls = [] if calls is None else calls

    def function():
        calls.append(1)
        if len(calls) <= times:
            raise OSError("down")
        return "page"

    return function


# --- the policy -----------------------------------------------------------------------------------


class Client:
    @POLICY
    def get(self):
        """Gets it."""
        return self

    @classmethod
    @POLICY
    def make(cls):
        return cls

    @POLICY
    @staticmethod
    def parse():
        return 1


@POLICY
async def afetch():
    return "page"


@pytest.mark.parametrize(
    "function",
    [
        POLICY(failing(0)),
        retry(policy=POLICY)(failing(0)),
        afetch,
        Client.get,
        Client().get,
        Client.make,
        Client.parse,
        POLICY(len),
        Engine(policies=[POLICY.replace(name="standard")]).protect("op")(failing(0)),
        retry(policy=POLICY, fallback=Fallback(value=1))(failing(0)),
        functools.wraps(afetch)(lambda: None),
    ],
    ids=["policy", "retry", "async", "method", "bound", "classmethod", "staticmethod", "builtin",
         "engine", "fallback", "wraps"],
)  # fmt: skip
def test_a_decorated_function_has_its_policy(function):
    """Of every sort; also through other decorators that copy attributes."""
    policy = function.mainstay.policy
    assert (policy.max_attempts, policy.retry_on) == (3, (OSError,))


def test_the_outermost_retry_is_the_one():
    """A function that is decorated twice has the policy of the outer one."""
    inner = POLICY(failing(0))
    assert POLICY.replace(name="outer")(inner).mainstay.policy.name == "outer"
    assert inner.mainstay.policy.name == "api"


def test_a_circuit_around_it_leaves_the_policy():
    """A breaker as a decorator has no policy of its own to show."""
    breaker = CircuitBreaker("pay")
    assert breaker(POLICY(failing(0))).mainstay.policy is POLICY
    assert not hasattr(breaker(failing(0)), "mainstay")


def test_it_is_shown_with_its_name_and_policy():
    """In a debugger."""
    assert repr(afetch.mainstay) == "<afetch under 'api'>"


# --- with_policy ----------------------------------------------------------------------------------


def test_a_function_under_another_policy():
    """The same function; the decorated one stays as it is."""
    calls = []
    fetch = POLICY(failing(9, calls))
    once = fetch.mainstay.with_policy(max_attempts=1)
    with pytest.raises(OSError, match="down"):
        once()
    assert len(calls) == 1
    with pytest.raises(OSError, match="down"):
        fetch()
    assert len(calls) == 4
    assert (once.__name__, once.mainstay.policy.name) == (fetch.__name__, "api")


def test_a_whole_policy_may_be_given_and_changed():
    """Fields that are given win over the policy that is given."""
    other = RetryPolicy(name="other", max_attempts=7, deadline=5)
    changed = POLICY(failing(0)).mainstay.with_policy(other, max_attempts=2).mainstay.policy
    assert (changed.name, changed.max_attempts, changed.deadline) == ("other", 2, 5.0)


def test_an_async_function_under_another_policy():
    """It stays async."""
    assert asyncio.run(afetch.mainstay.with_policy(max_attempts=1)()) == "page"


def test_guards_listeners_and_the_fallback_come_along():
    """All that was given with the decorator, but the statistics."""
    events, breaker = [], CircuitBreaker("pay", failure_threshold=1)
    fetch = retry(
        policy=POLICY, breaker=breaker, listener=events.append, fallback=Fallback(value="old")
    )(failing(9))
    counted = fetch.mainstay.statistics
    once = fetch.mainstay.with_policy(max_attempts=1)
    assert once() == "old"
    assert breaker.state.name == "OPEN"
    assert events[0].event_type == "attempt_failed"
    assert counted.failed_attempts == 0
    assert once.mainstay.statistics is not counted
    again = once.mainstay.with_policy(max_attempts=2)
    assert again() == "old"
    with pytest.raises(CircuitOpenError):
        retry(policy=POLICY, breaker=breaker)(failing(0))()


def test_an_unsafe_operation_is_not_repeated_by_the_way():
    """The declaration holds under every policy."""
    pay = retry(on=OSError, attempts=1, idempotency="unsafe")(failing(0))
    assert pay.mainstay.with_policy(deadline=3).mainstay.policy.deadline == 3.0
    with pytest.raises(PolicyError, match="unsafe"):
        pay.mainstay.with_policy(max_attempts=2)


def test_a_wrong_field_is_refused():
    """As with the policy itself."""
    with pytest.raises(PolicyError, match="max_attempts"):
        afetch.mainstay.with_policy(max_attempts=0)


# --- statistics -----------------------------------------------------------------------------------


def test_statistics_count_failing_calls_from_the_first_look_on():
    """Attempts, retries, waits; what recovered and what was given up."""
    script = [
        OSError(),
        OSError(),
        "a",
        OSError(),
        OSError(),
        OSError(),
        "b",
        ValueError(),
        OSError(),
    ]

    @POLICY.replace(backoff=Backoff.constant(2.0), jitter=POLICY.jitter.none())
    def fetch():
        step = script.pop(0)
        if isinstance(step, Exception):
            raise step
        return step

    with virtual_time():
        assert fetch() == "a"
        counted = fetch.mainstay.statistics
        assert counted is fetch.mainstay.statistics
        for error in (OSError, None, ValueError):
            if error is None:
                assert fetch() == "b"
            else:
                with pytest.raises(error):
                    fetch()
        script.append("c")
        assert fetch() == "c"
    assert counted.to_dict() == {
        "failed_attempts": 5, "given_up": 2, "recovered": 1, "retries": 3, "waited_seconds": 6.0
    }  # fmt: skip
    assert "given_up=2" in repr(counted)
    counted.reset()

    assert set(counted.to_dict().values()) == {0}


def test_a_result_that_is_not_accepted_is_a_failed_attempt():
    """Also if it is returned in the end; one that is accepted at once is not counted."""
    script = ["bad", "good", "good", "bad", "bad", "bad"]
    fetch = POLICY.replace(retry_if_result=lambda value: value == "bad")(lambda: script.pop(0))
    counted = fetch.mainstay.statistics
    assert [fetch() for _ in range(3)] == ["good", "good", "bad"]
    assert (counted.failed_attempts, counted.recovered, counted.given_up) == (4, 1, 1)


def test_functions_have_statistics_of_their_own():
    """One decorator for many functions."""
    one, other = POLICY(failing(1)), POLICY(failing(1))
    counted, rest = one.mainstay.statistics, other.mainstay.statistics
    assert one() == "page"
    assert (counted.retries, rest.retries) == (1, 0)


def test_no_statistics_exist_before_somebody_looks():
    """A decorated function pays for nothing that is not asked for."""
    functions = [POLICY(failing(0)) for _ in range(10)]
    for function in functions:
        function()

    assert all(not function.mainstay._site.listeners for function in functions)


@pytest.mark.parametrize("policy", [3, failing, OSError])
def test_what_is_no_policy_is_refused_with_what_to_write(policy):
    """Such as the number of attempts, by position."""
    with pytest.raises(PolicyError, match="a RetryPolicy; its fields need their keywords"):
        POLICY(failing(0)).mainstay.with_policy(policy)


def test_a_policy_by_its_keyword_is_refused_with_where_it_goes():
    """`with_policy` takes it by position, as nothing else has that name."""
    with pytest.raises(PolicyError, match=r"by position: with_policy\(policy\)"):
        POLICY(failing(0)).mainstay.with_policy(policy=POLICY)


# --- the fallback of an exhausted result ----------------------------------------------------------

REJECTING = POLICY.replace(retry_if_result=lambda value: value == "bad")
DECORATED = {
    "layer": lambda fallback: retry(policy=REJECTING, fallback=fallback),
    "decorator": lambda fallback: lambda function: fallback(REJECTING(function)),
    "engine": lambda fallback: Engine(policies=[REJECTING.replace(name="standard")]).protect(
        "op", fallback=fallback
    ),
}


@pytest.mark.parametrize("way", DECORATED)
def test_a_fallback_answers_for_a_result_that_stayed_rejected(way):
    """As for a failure, with ResultRejected as the reason."""
    reasons, script = [], ["bad"] * 3
    fallback = Fallback(function=lambda error: reasons.append(error) or "stale")
    fetch = DECORATED[way](fallback)(lambda: script.pop(0))
    assert fetch() == "stale"
    assert reasons[0].result == "bad"
    assert script == []


@pytest.mark.parametrize("way", DECORATED)
def test_a_fallback_for_other_failures_leaves_the_result(way):
    """The policy returns it, and the fallback is not for it."""
    script = ["bad"] * 3
    fetch = DECORATED[way](Fallback(value="stale", on=ConnectionError))(lambda: script.pop(0))
    assert fetch() == "bad"


def test_a_policy_that_raises_still_raises_past_such_a_fallback():
    """What was asked for holds."""
    raising = REJECTING.replace(on_exhausted="raise")
    fetch = Fallback(value="stale", on=ConnectionError)(raising(lambda: "bad"))
    with pytest.raises(Exception, match="no result that was accepted"):
        fetch()
    assert Fallback(value="stale")(raising(lambda: "bad"))() == "stale"


def test_an_async_result_has_a_fallback_too():
    """In both ways."""

    async def bad():
        return "bad"

    assert asyncio.run(Fallback(value="stale")(REJECTING(bad))()) == "stale"
    assert asyncio.run(Fallback(value="stale", on=OSError)(REJECTING(bad))()) == "bad"


def test_methods_of_every_sort_have_such_a_fallback():
    """A staticmethod and a classmethod, too."""

    class Service:
        @Fallback(value="stale")
        @REJECTING
        def get(self):
            return "bad"

        @Fallback(value="stale")
        @classmethod
        @REJECTING
        def make(cls):
            return "bad"

        @Fallback(value="stale")
        @staticmethod
        @REJECTING
        def parse():
            return "bad"

    assert (Service().get(), Service.make(), Service.parse()) == ("stale",) * 3


def test_the_policy_of_a_function_with_a_fallback_is_the_one_given():
    """It is not shown as raising because of the fallback."""
    fetch = Fallback(value="stale")(REJECTING(lambda: "bad"))
    assert fetch.mainstay.policy.on_exhausted == "return"
    assert fetch.mainstay.with_policy(max_attempts=1)() == "stale"


def counted(function):
    """A decorator of somebody else, which copies the attributes of what it wraps."""

    @functools.wraps(function)
    def around():
        around.calls += 1
        return function()

    around.calls = 0
    return around


def test_a_fallback_leaves_out_no_decorator_between_it_and_the_policy():
    """`functools.wraps` copies `mainstay` onto a wrapper that may check a login, or log."""
    between = counted(REJECTING(lambda: "page"))
    assert Fallback(value="stale")(between)() == "page"
    assert between.calls == 1


def test_a_fallback_leaves_out_no_layer_of_ours():
    """A circuit and a bulkhead between it and the policy still hold, and it has the result."""
    circuit, bulkhead = CircuitBreaker("api"), Bulkhead("api", limit=1)
    script = ["page", "bad", "bad", "bad"]

    def used():
        assert bulkhead.snapshot().running == 1
        return script.pop(0)

    fetch = Fallback(value="stale", on=(OSError, ResultRejected))(
        circuit(bulkhead(REJECTING(used)))
    )
    assert [fetch(), fetch()] == ["page", "stale"]
    circuit.force_open("planned")
    for function in (fetch, fetch.mainstay.with_policy(max_attempts=1)):
        with pytest.raises(CircuitOpenError):
            function()


def test_statistics_of_a_function_with_a_fallback_count_its_calls():
    """Although the fallback has it run under another setting."""
    fetch = Fallback(value="stale")(REJECTING(lambda: "bad"))
    statistics = fetch.mainstay.statistics
    assert fetch() == "stale"
    assert (statistics.given_up, statistics.retries) == (1, 2)


def test_a_fallback_for_results_keeps_the_redaction_of_its_engine():
    """The event has the text of the failure as the engine's own patterns leave it."""
    events = []
    policy = REJECTING.replace(name="standard", max_attempts=1)
    engine = Engine(
        policies=[policy], sinks=[], redact=Redactor(patterns=[r"order-\d+"]), audit=False
    )

    @engine.protect("op", fallback=Fallback(value="stale", listener=events.append))
    def fetch():
        raise OSError("order-4711 is stuck")

    assert fetch() == "stale"
    assert "4711" not in events[0].exception_message
