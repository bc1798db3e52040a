"""A client that repeats by itself inside a call that is repeated: a warning, and the fast path."""

import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.resolve import repeated_inside
from mainstay.core.known.table import OwnRetries, Row, Table
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.effects import Warn
from mainstay.core.retry.hooks import RELEASE
from mainstay.core.retry.plan import Plan, fast_decision
from mainstay.core.retry.policy import Policy
from mainstay.errors import NestedRetryWarning

KEY = 1


def library_class(name, module):
    """A class as a library defines it."""
    return type(name, (Exception,), {"__module__": module, "__qualname__": name})


Busy, Plain = library_class("Busy", "hasty"), library_class("Plain", "patient")
ROW = Row(Kind.OVERLOAD, "the queue is full")
OWN = OwnRetries(lambda error: error.tries, "pass retries=0")


@pytest.fixture(autouse=True)
def tables():
    REGISTRY.register(Table("hasty", {"hasty.Busy": ROW}, own_retries=OWN))
    REGISTRY.register(Table("patient", {"patient.Plain": ROW}))
    yield
    REGISTRY.unregister("hasty")
    REGISTRY.unregister("patient")


def busy(tries):
    error = Busy()
    error.tries = tries
    return error


def effects(plan, failure):
    """What the flow asks for after a failure, up to the wait."""
    flow, made = call_flow(plan, failure, KEY, None), []
    while type(effect := next(flow)) is not float:
        made.append(effect)
    return made


def test_a_client_that_has_repeated_is_named_with_the_product():
    """Three requests of its own for each of four attempts."""
    plan = Plan(Policy(max_attempts=4), "fetch", token=1)
    (warning,) = effects(plan, busy(3))
    assert isinstance(warning, Warn)
    assert warning.category is NestedRetryWarning
    assert warning.text == (
        "hasty has sent a request 3 times by itself inside fetch: up to 3 x 4 = 12 requests;"
        ' pass retries=0, or set nested="allow" in the policy of fetch if both are meant'
    )
    assert effects(plan, busy(3)) == [], "once for each library"


@pytest.mark.parametrize("failure", [busy(1), busy(None), busy("many"), Busy(), Plain()])
def test_a_client_that_has_not_repeated_is_not_named(failure):
    """Nor one whose number cannot be read, nor one that repeats nothing."""
    assert effects(Plan(Policy(), "fetch", token=1), failure) == []
    assert repeated_inside(failure) is None
    assert repeated_inside(ValueError()) is None


def test_both_may_be_meant():
    """`nested="allow"` states that."""
    assert effects(Plan(Policy(nested="allow"), "fetch", token=1), busy(3)) == []


def test_the_flow_looks_once_and_the_fast_path_decides_from_then_on():
    """A failure that is final is not looked at, and takes the fast path at once."""
    plan = Plan(Policy(), "fetch", token=1)
    assert fast_decision(plan, busy(3), 1, KEY, 0.0) is None
    effects(plan, busy(3))
    assert fast_decision(plan, busy(3), 1, KEY, 0.0) is not None
    assert fast_decision(plan, Plain(), 1, KEY, 0.0) is None, "another library"
    final = Plan(Policy(never_retry_on=(Busy,)), "fetch", token=1)
    assert fast_decision(final, busy(3), 1, KEY, 0.0) is not None


def test_a_failure_that_holds_something_is_left_to_the_flow():
    """The driver frees it before the wait, which the fast path does not."""
    plan, error = Plan(Policy(), "fetch", token=1), ConnectionError()
    assert fast_decision(plan, error, 1, KEY, 0.0) is not None
    setattr(error, RELEASE, print)
    assert fast_decision(plan, error, 1, KEY, 0.0) is None
