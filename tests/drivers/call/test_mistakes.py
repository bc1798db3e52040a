"""The commonest mistakes: refused at once, with what to write instead."""

import inspect

import pytest

import mainstay
from mainstay import Engine, PolicyError, RetryPolicy, UsageError, WrapError
from mainstay.core.retry.policy_fields import DEFAULTS, OTHER_NAMES
from mainstay.drivers import policy as policies


def fetch():
    """What is decorated by mistake."""


class Client:
    @staticmethod
    def get():
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
    source = inspect.getsource(policies)
    more = source[source.index("class MoreFields") :].partition("\nclass ")[0]
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
