"""The commonest mistakes: refused at once, with what to write instead."""

import asyncio
import contextlib
import functools
import gc
import inspect
import sys
import warnings

import pytest

import mainstay
from mainstay import Engine, PolicyError, RetryPolicy, UsageError, WrapError
from mainstay.core.retry import policy_fields
from mainstay.core.retry.policy_fields import DEFAULTS, OTHER_NAMES
from tests.costs import costs


def fetch():
    """What is decorated by mistake."""


class Client:
    @staticmethod
    def get():
        pass


class Caller:
    def __call__(self):
        pass


# --- no parentheses, no keyword -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mistake", "instead"),
    [
        (lambda: mainstay.retry(fetch), "@retry(on=...)"),
        (lambda: mainstay.retry(vars(Client)["get"]), "@retry(on=...)"),
        (lambda: mainstay.retry(print), "@retry(on=...)"),
        (lambda: mainstay.retry(ConnectionError), "write retry(on=ConnectionError)"),
        (lambda: mainstay.retry((OSError, ValueError)), "write retry(on=(OSError, ValueError))"),
        (lambda: mainstay.retry(OSError, attempts=3), "write retry(on=OSError)"),
        (lambda: mainstay.retry("SlowDown"), "write retry(on='SlowDown')"),
        (lambda: mainstay.retry(5), "write retry(attempts=5)"),
        (lambda: mainstay.retry(RetryPolicy(name="api")), "write retry(policy=...)"),
        (lambda: RetryPolicy(fetch), "@RetryPolicy(retry_on=...)"),
        (lambda: RetryPolicy(ConnectionError), "write RetryPolicy(retry_on=ConnectionError)"),
        (lambda: Engine(sinks=[]).idempotent(fetch), "@engine.idempotent()"),
        (lambda: Engine(sinks=[]).idempotent("charge"), "engine.idempotent(operation='charge')"),
        (lambda: Engine(sinks=[]).idempotent(lambda o: o["id"]), "engine.idempotent(key=lambda"),
        (lambda: mainstay.retry(lambda error: True), "write retry(on=lambda"),
        (lambda: RetryPolicy(lambda error: True), "write RetryPolicy(retry_on=lambda"),
        (lambda: mainstay.retry(functools.partial(fetch)), "write retry(on=...)(function)"),
        (lambda: RetryPolicy(Caller()), "write RetryPolicy(retry_on=...)(function)"),
        (lambda: mainstay.retry(Client), "decorate its methods"),
        (lambda: mainstay.retry(ConnectionError()), "write retry(on=ConnectionError)"),
        (lambda: mainstay.retry(OSError(5, "x" * 60)), "write retry(on=OSError)"),
        (lambda: mainstay.retry((OSError(), KeyError)), "write retry(on=(OSError, KeyError))"),
        (lambda: RetryPolicy(ConnectionError()), "write RetryPolicy(retry_on=ConnectionError)"),
    ],
)
def test_a_decorator_without_parentheses_or_keyword_names_what_to_write(mistake, instead):
    """At decoration, as a WrapError, which is the TypeError that Python would have raised."""
    with pytest.raises(WrapError) as caught:
        mistake()
    assert instead in caught.value.hint
    assert "by position" in caught.value.message
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("verb", ["protect", "call", "run", "operation"])
def test_an_operation_without_its_name_is_refused(verb):
    """`@engine.protect` without parentheses, and `engine.call(function)`."""
    with pytest.raises(UsageError, match="must be the name of an operation") as caught:
        getattr(Engine(sinks=[]), verb)(*[fetch] * (2 if verb in ("call", "run") else 1))
    assert 'engine.protect("orders.list")' in caught.value.hint


# --- one vocabulary -------------------------------------------------------------------------------


@pytest.mark.parametrize(("short", "own"), OTHER_NAMES.items())
def test_retry_takes_both_names_of_a_field(short, own):
    """`@retry(max_attempts=3)` is `@retry(attempts=3)`; both at once are refused."""
    calls = []

    def fail():
        calls.append(1)
        raise ConnectionError

    for name in (short, own):
        given = {"on": ConnectionError, "attempts": 2, "timeout": 5.0}
        given[name] = given.pop(short)
        with pytest.raises(ConnectionError):
            mainstay.retry(**given, policy=RetryPolicy(backoff=mainstay.Backoff.constant(0)))(
                fail
            )()
        assert len(calls) == 2
        calls.clear()
    with pytest.raises(PolicyError, match=f"{short} and {own} are one field"):
        mainstay.retry(**{"on": OSError, short: 3, own: 3})


def test_retry_takes_every_field_of_a_policy():
    """What RetryPolicy takes, the decorator takes: nothing has to be learned twice."""
    seen = []

    @mainstay.retry(on=OSError, retry_if_result=lambda value: seen.append(value) or len(seen) < 3,
                    backoff=mainstay.Backoff.constant(0))  # fmt: skip
    def poll():
        return len(seen)

    assert (poll(), seen) == (2, [0, 1, 2])


def test_the_signatures_name_every_field():
    """A field that is added to policies is added to `retry` and RetryPolicy, for type checkers."""
    source = inspect.getsource(policy_fields)
    more = source[source.index("class MoreFields") :].partition("class PolicyFields")[0]
    listed = {line.split(":")[0].strip() for line in more.splitlines() if ": " in line}
    own = inspect.signature(mainstay.retry).parameters
    assert {*DEFAULTS, *OTHER_NAMES} <= listed | set(own)
    assert {*DEFAULTS, *OTHER_NAMES} <= set(inspect.signature(RetryPolicy).parameters)


@pytest.mark.parametrize(
    ("fields", "meant"),
    [
        ({"attempt": 3}, "did you mean attempts?"),
        ({"max_retries": 3}, "did you mean max_attempts, which counts the first call too?"),
        ({"exceptions": OSError, "on": OSError}, "did you mean retry_on?"),
    ],
)
def test_a_wrong_name_gets_the_right_one_suggested(fields, meant):
    """Of `retry` as of a policy."""
    with pytest.raises(PolicyError, match="left out") as caught:
        mainstay.retry(**{"on": OSError, **fields})
    assert meant in str(caught.value)
    with pytest.raises(PolicyError) as caught:
        RetryPolicy(**fields)
    assert meant in str(caught.value)


# --- what runs nothing when it is called ----------------------------------------------------------


@contextlib.contextmanager
def opened(name="a"):
    yield name


@contextlib.asynccontextmanager
async def aopened(name="a"):
    yield name


class Pool:
    @contextlib.contextmanager
    def connection(self):
        yield self


POLICY = RetryPolicy(retry_on=OSError, backoff=mainstay.Backoff.constant(0))
MANAGERS = [opened, aopened, Pool().connection, functools.partial(opened, "b")]


@pytest.mark.parametrize("function", MANAGERS)
@pytest.mark.parametrize(
    "decorate",
    [
        POLICY,
        mainstay.retry(on=OSError),
        Engine(sinks=[]).protect("open"),
        Engine(sinks=[]).idempotent(),
        mainstay.Fallback(value=None),
        mainstay.Bulkhead("open", 3),
        POLICY.call,
        POLICY.run,
        Engine(sinks=[]).operation("open").call,
    ],
)
def test_a_context_manager_function_is_refused_as_a_generator_is(decorate, function):
    """Calling it runs nothing: its failures come in the with statement, where nothing retries."""
    with pytest.raises(WrapError, match="is a context manager: calling it runs nothing") as caught:
        decorate(function)
    assert "policy.attempts()" in caught.value.hint


@pytest.mark.parametrize("verb", ["acall", "arun"])
def test_an_async_context_manager_is_refused_by_the_async_verbs(verb):
    """The same, awaited."""
    with pytest.raises(WrapError, match="is a context manager"):
        asyncio.run(getattr(POLICY, verb)(aopened))


def test_a_function_that_a_context_manager_decorates_is_retried():
    """`@suppress(...)`-like decorators of contextlib leave a function a function."""
    entered = []

    @contextlib.contextmanager
    def counted():
        entered.append(1)
        yield

    @POLICY
    @counted()
    def work():
        if len(entered) < 3:
            raise ConnectionError
        return "done"

    assert (work(), len(entered)) == ("done", 3)


async def answer(n=1):
    return n


def through():
    return answer()


WAYS = {
    "retry": lambda function: mainstay.retry(on=Exception)(function)(),
    "policy": lambda function: POLICY(function)(),
    "deadline": lambda function: POLICY.replace(deadline=9.0)(function)(),
    "listener": lambda function: mainstay.retry(on=OSError, listener=print)(function)(),
    "guarded": lambda function: mainstay.retry(on=Exception, breaker=mainstay.CircuitBreaker("a"))(
        function
    )(),
    "fallback": lambda function: mainstay.retry(on=Exception, fallback=mainstay.Fallback(value=1))(
        function
    )(),
    "protect": lambda function: Engine(sinks=[]).protect("work")(function)(),
    "idempotent": lambda function: Engine(sinks=[]).idempotent()(function)(),
    "keyed": lambda function: Engine(sinks=[]).operation("work", key="k").call(function),
    "call": POLICY.call,
    "operation": lambda function: Engine(sinks=[]).operation("work").call(function),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("function", [lambda n=1: answer(n), through])
def test_a_sync_function_that_returns_a_coroutine_is_refused(way, function):
    """Its failures come when it is awaited, where nothing retries; nothing is left unawaited."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(WrapError, match="returned a coroutine"):
            WAYS[way](function)
        gc.collect()


def test_only_the_first_result_is_looked_at():
    """From the second call on, the wrapper calls the function itself: no frame is added."""
    decorated = mainstay.retry(on=OSError)(lambda: len("abc"))
    assert "first_call" in costs(decorated)
    assert costs(decorated) == ["first_attempt", "<lambda>", "len"]


def test_after_a_first_call_that_fails_there_is_no_look_either():
    """An async function that is called does not raise: the failing path keeps its frames."""
    calls = []

    def flaky():
        calls.append(sys._getframe(1).f_code.co_name)
        raise ConnectionError

    decorated = POLICY(flaky)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            decorated()
    assert calls.count("first_call") == 1
    assert len(calls) == 6


def test_a_function_that_could_not_be_retried_is_not_recorded_under_its_key():
    """The next call with the key, of the function as it should be, runs."""
    with Engine(sinks=[]) as engine:
        with pytest.raises(WrapError):
            engine.operation("work", key="k").call(through)
        assert engine.operation("work", key="k").call(lambda: 42) == 42


def test_the_look_at_a_first_result_changes_no_key_and_no_payload():
    """The record of a first call is found by the second, which calls the function itself."""
    with Engine(sinks=[]) as engine:

        @engine.idempotent(key=lambda order, amount=1: order)
        def charge(order, amount=1):
            return str(order)

        assert [charge("a", amount=1), charge("a"), charge(order="a")] == ["a", "a", "a"]
        with pytest.raises(mainstay.PayloadMismatch):
            charge("a", 2)
