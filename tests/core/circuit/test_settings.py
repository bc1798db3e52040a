"""What may be set, every wrong value at once; and which failures count."""

import asyncio
import concurrent.futures
import functools
import math
import pickle
import urllib.error

import pytest

from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.circuit.commands import settings_to_plain
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.window import Window
from mainstay.core.known.kind import Kind
from mainstay.core.retry.backoff import Backoff
from mainstay.errors import (
    AttemptTimeout,
    BulkheadFull,
    CallCancelled,
    CallShed,
    CircuitOpenError,
    DeadlineExceeded,
    PolicyError,
    Refused,
)

NO_COUNTS = [0, -1, True, 1.5, "3", None, math.nan, math.inf, 10**400]
NO_SECONDS = [-1.0, True, "3", math.nan, math.inf, -math.inf, 10**400, [1.0]]
NO_RATES = [0, 0.0, -0.1, 1.01, True, "0.5", math.nan, math.inf]
NO_RULES = [3, [3], int, [ValueError, int], "", "transient"]


def problems(**fields):
    with pytest.raises(PolicyError) as caught:
        BreakerSettings(**fields)
    return [problem.field for problem in caught.value.problems]


class ApiError(Exception):
    """An HTTP library's error, in one of the shapes they have."""

    def __init__(self, status, on="status_code"):
        super().__init__(status)
        if on == "response":
            self.response = type("Response", (), {"status_code": status})()
        else:
            setattr(self, on, status)


class Throttled(Exception):
    code = "SlowDown"


# --- values ---------------------------------------------------------------------------------------


def test_the_defaults_are_those_of_the_contract():
    """Five failures in a row, 30 seconds, one probe at a time, one success closes."""
    settings = BreakerSettings()
    assert (settings.failure_threshold, settings.recovery_timeout.base(1)) == (5, 30.0)
    assert (settings.success_threshold, settings.half_open_probes) == (1, 1)
    assert (settings.window, settings.ramp) == (None, 0.0)


@pytest.mark.parametrize("value", NO_COUNTS)
@pytest.mark.parametrize(
    "field", ["failure_threshold", "success_threshold", "half_open_probes", "min_calls"]
)
def test_a_number_of_calls_is_a_whole_one_from_one_up(field, value):
    """Anything else is one problem, of that field."""
    assert problems(**{field: value}) == [field]


@pytest.mark.req("FR-041-56")
@pytest.mark.parametrize("value", [*NO_SECONDS, None])
@pytest.mark.parametrize("field", ["recovery_timeout", "probe_timeout", "ramp", "stable_after"])
def test_a_time_is_a_finite_number_of_seconds(field, value):
    """Anything else is one problem, of that field."""
    assert problems(**{field: value}) == [field]


@pytest.mark.parametrize("field", ["recovery_timeout", "probe_timeout"])
def test_an_open_time_and_a_probe_take_more_than_no_time(field):
    """Zero would open a circuit for nothing, or write off every probe."""
    assert problems(**{field: 0}) == [field]
    assert problems(**{field: 0.0}) == [field]


def test_no_ramp_and_no_stable_time_are_fine():
    """Zero turns them off."""
    assert BreakerSettings(ramp=0, stable_after=0).ramp == 0.0


@pytest.mark.parametrize("value", NO_RATES)
def test_a_rate_is_a_share(value):
    """Above nothing, up to everything."""
    assert problems(failure_rate=value) == ["failure_rate"]
    windowed = {"window": Window.calls(10), "slow_after": 1.0}
    assert problems(slow_rate=value, **windowed) == ["slow_rate"]


@pytest.mark.parametrize("value", [*NO_SECONDS, 0, 0.0])
def test_a_call_is_slow_from_some_seconds_on(value):
    """Zero would call everything slow."""
    assert problems(slow_after=value, slow_rate=0.5, window=Window.calls(10)) == ["slow_after"]


@pytest.mark.parametrize("value", [3, "percent", 0.1, Backoff.constant(1.0)])
def test_a_jitter_is_a_jitter(value):
    """A bare number could mean seconds or a share."""
    assert problems(recovery_jitter=value) == ["recovery_jitter"]


@pytest.mark.parametrize("value", [10, "calls", ("calls", 10)])
def test_a_window_is_a_window(value):
    """A bare number could mean calls or seconds."""
    assert problems(window=value) == ["window"]


@pytest.mark.parametrize("value", NO_RULES)
@pytest.mark.parametrize("field", ["count_on", "ignore"])
def test_a_rule_is_a_class_a_name_a_kind_or_a_function(field, value):
    """Anything else is refused when it is said, not when the first call fails."""
    assert problems(**{field: value}) == [field]


def test_more_calls_than_the_window_holds_can_not_be_asked_for():
    """Such a circuit could never open."""
    assert problems(window=Window.calls(5), min_calls=6) == ["min_calls"]
    assert BreakerSettings(window=Window.calls(5), min_calls=5).min_calls == 5
    assert BreakerSettings(window=Window.seconds(5), min_calls=600).min_calls == 600


def test_slow_calls_need_a_window_a_limit_and_a_rate():
    """One of them alone does nothing, which nobody means."""
    assert problems(slow_rate=0.5, slow_after=1.0) == ["slow_rate"]
    assert problems(slow_rate=0.5, window=Window.calls(10)) == ["slow_after, slow_rate"]
    assert problems(slow_after=0.5, window=Window.calls(10)) == ["slow_after, slow_rate"]


def test_every_problem_is_told_at_once():
    """One error names each field, in order, with what is allowed."""
    fields = {
        "failure_threshold": 0,
        "recovery_timeout": -1,
        "recovery_jitter": 1,
        "success_threshold": True,
        "half_open_probes": 0,
        "probe_timeout": 0,
        "failure_rate": 2,
        "slow_after": math.nan,
        "min_calls": "10",
        "ramp": -1,
        "stable_after": math.inf,
        "count": "some",
        "count_on": 3,
        "ignore": "",
        "window": 10,
    }
    found = problems(**fields, slow_rate=0)
    assert set(found) == {*fields, "slow_rate"}
    assert len(found) == len(fields) + 1


def test_settings_are_a_value():
    """Equal, hashable and picklable by their fields; replaced, never changed."""
    settings = BreakerSettings(failure_threshold=3, ignore=ValueError)
    assert settings == BreakerSettings(failure_threshold=3, ignore=(ValueError,))
    assert hash(settings) == hash(BreakerSettings(failure_threshold=3, ignore=[ValueError]))
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert settings.replace(failure_threshold=4).ignore == (ValueError,)
    assert settings.failure_threshold == 3
    with pytest.raises(AttributeError):
        settings.failure_threshold = 4


def test_replacing_checks_again():
    """The whole is checked, not the field alone."""
    with pytest.raises(PolicyError):
        BreakerSettings(window=Window.calls(20)).replace(min_calls=21)


# --- what counts ----------------------------------------------------------------------------------

COUNTED = [
    ConnectionError(),
    ConnectionResetError("peer"),
    TimeoutError(),
    OSError("something"),
    AttemptTimeout(1.0),
    RuntimeError("nothing is known of it"),
    Throttled(),
    ApiError(500),
    ApiError(501),
    ApiError(503),
    ApiError(520),
    ApiError(502, "status"),
    ApiError(503, "response"),
    urllib.error.HTTPError("http://a", 503, "", None, None),
    ExceptionGroup("both", [ValueError(), ConnectionError()]),
]
NOT_COUNTED = [
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    KeyboardInterrupt(),
    SystemExit(1),
    GeneratorExit(),
    ValueError(),
    TypeError(),
    KeyError("missing"),
    PermissionError(),
    FileNotFoundError(2, "gone"),
    *(ApiError(status) for status in range(400, 500)),
    ApiError(404, "status"),
    ApiError(429, "response"),
    urllib.error.HTTPError("http://a", 404, "", None, None),
    CircuitOpenError("other", "open", 1.0),
    CallShed("other", 0.5),
    BulkheadFull("other", 1, 0, 0.0),
    CallCancelled("other", 1),
    DeadlineExceeded(1.0),
    Refused("no"),
    ExceptionGroup("all mine", [ValueError(), PermissionError()]),
    BaseExceptionGroup("stopped", [KeyboardInterrupt(), ConnectionError()]),
]


@pytest.mark.req("NFR-041-13")
@pytest.mark.parametrize("failure", COUNTED, ids=repr)
def test_what_the_other_side_did_counts(failure):
    """Broken connections, timeouts, 5xx, what is unknown, and groups with one of those."""
    assert BreakerSettings().counts(failure)


@pytest.mark.req("NFR-041-13")
@pytest.mark.parametrize("failure", NOT_COUNTED, ids=repr)
def test_what_happened_on_this_side_does_not_count(failure):
    """Cancellations, the caller's mistakes, 4xx, and refusals of our own."""
    assert not BreakerSettings().counts(failure)


@pytest.mark.parametrize(
    "rule",
    [Throttled, "Throttled", "SlowDown", Kind.UNKNOWN, lambda error: error.code == "SlowDown"],
    ids=["class", "name", "code", "kind", "function"],
)
def test_rules_of_ones_own_come_first(rule):
    """`ignore` takes a failure out; `count_on` leaves nothing else in, and puts mistakes in."""
    assert not BreakerSettings(ignore=rule).counts(Throttled())
    assert BreakerSettings(ignore=rule).counts(ConnectionError())
    assert BreakerSettings(count_on=rule).counts(Throttled())
    assert not BreakerSettings(count_on=rule).counts(ConnectionError())
    assert not BreakerSettings(count_on=rule, ignore=Exception).counts(Throttled())


def test_count_on_may_name_the_callers_mistakes():
    """Whoever says so means it."""
    assert BreakerSettings(count_on=ValueError).counts(ValueError())
    assert BreakerSettings(count_on="404").counts(ApiError(404))


@pytest.mark.parametrize(
    "failure",
    [asyncio.CancelledError(), concurrent.futures.CancelledError(), CircuitOpenError("a", "open")],
    ids=repr,
)
def test_no_rule_makes_a_cancellation_or_a_refusal_count(failure):
    """They say nothing of the other side, whatever anybody says."""
    assert not BreakerSettings(count_on=BaseException).counts(failure)


def test_a_rule_that_raises_has_not_matched():
    """The user's exception is not masked by a mistake in a predicate."""

    def broken(error):
        raise LookupError("oops")

    assert BreakerSettings(ignore=broken).counts(ConnectionError())
    assert not BreakerSettings(count_on=broken).counts(ConnectionError())
    assert BreakerSettings(count_on=(broken, ConnectionError)).counts(ConnectionError())


def test_rules_look_into_groups():
    """A group counts where a member does; a rule may also speak of the group itself."""
    group = ExceptionGroup("two", [Throttled(), ValueError()])
    assert BreakerSettings(count_on=Throttled).counts(group)
    assert not BreakerSettings(count_on=ConnectionError).counts(group)
    assert not BreakerSettings(ignore=Throttled).counts(group)
    assert not BreakerSettings(ignore=ExceptionGroup).counts(group)
    assert BreakerSettings(count_on=ExceptionGroup).counts(group)


CANCELLED = [
    asyncio.CancelledError(),
    concurrent.futures.CancelledError(),
    KeyboardInterrupt(),
    SystemExit(1),
    GeneratorExit(),
    CallCancelled("other", 1),
    ExceptionGroup("all cancelled", [concurrent.futures.CancelledError()]),
    BaseExceptionGroup("stopped", [KeyboardInterrupt(), ConnectionError()]),
]
NOT_MADE = [
    CircuitOpenError("other", "open", 1.0),
    CallShed("other", 0.5),
    BulkheadFull("other", 1, 0, 0.0),
    Refused("no"),
]
"""Calls that were refused here: nothing was called that could have failed."""


def is_in(failure, several):
    return any(repr(failure) == repr(each) for each in several)


@pytest.mark.req("NFR-041-13")
@pytest.mark.parametrize(
    "failure",
    [each for each in COUNTED + NOT_COUNTED if not is_in(each, CANCELLED + NOT_MADE)],
    ids=repr,
)
def test_with_count_all_every_failure_counts(failure):
    """Retryable or not: the caller's mistakes, statuses of 4xx and deadlines that ran out too."""
    assert BreakerSettings(count="all").counts(failure)


@pytest.mark.req("NFR-041-13")
@pytest.mark.parametrize("failure", CANCELLED + NOT_MADE, ids=repr)
def test_count_all_counts_no_cancellation_and_no_call_that_was_not_made(failure):
    """A task that is cancelled says nothing of the other side, and neither does a refusal."""
    assert not BreakerSettings(count="all").counts(failure)


def test_ignore_takes_failures_out_of_all():
    """Of a group, the members that are left decide."""
    settings = BreakerSettings(count="all", ignore=(ValueError, DeadlineExceeded))
    assert not settings.counts(ValueError())
    assert not settings.counts(DeadlineExceeded(1.0))
    assert settings.counts(TypeError())
    assert settings.counts(ExceptionGroup("two", [ValueError(), TypeError()]))
    assert not settings.counts(ExceptionGroup("one", [ValueError()]))


@pytest.mark.parametrize("value", ["every", "", None, True, ("all",)])
def test_count_is_one_of_two_words(value):
    """What is not known is refused with both of them."""
    with pytest.raises(PolicyError, match="one of dependency, all"):
        BreakerSettings(count=value)


def test_all_failures_and_some_failures_is_a_contradiction():
    """`count_on` leaves failures out; with "all" one of the two would do nothing."""
    assert problems(count="all", count_on=ValueError) == ["count"]
    assert BreakerSettings(count="dependency", count_on=ValueError).counts(ValueError())


def test_what_counts_is_not_a_part_of_the_recorded_rule():
    """Which failures count is settled before the machine is asked; old records replay."""
    assert settings_to_plain(BreakerSettings(count="all")) == settings_to_plain(BreakerSettings())


def test_attributes_that_raise_say_nothing():
    """A stranger's property may do anything."""

    class Odd(Exception):
        @property
        def status_code(self):
            raise RuntimeError("not now")

    assert BreakerSettings().counts(Odd())


def test_an_open_time_must_be_one_the_core_can_tell():
    """No function of the user's, and not nothing."""
    for backoff in (Backoff.custom(lambda n: 1.0), Backoff.constant(0)):
        with pytest.raises(PolicyError, match="a Backoff above 0 without a function of yours"):
            BreakerSettings(recovery_timeout=backoff)


def test_a_state_is_a_number_for_a_gauge():
    """0 while calls go through, 1 half open, 2 while they are refused."""
    assert [state.gauge for state in CircuitState] == [0, 2, 1, 2, 0, 0, 0]


async def late(_):
    """Async."""


class Late:
    """Called, it gives something to await."""

    async def __call__(self, _):
        """Async."""


@pytest.mark.parametrize("rule", [late, Late(), functools.partial(late)])
@pytest.mark.parametrize("field", ["count_on", "ignore", "failure_if_result"])
def test_an_async_rule_is_refused(field, rule):
    """A circuit counts at once and awaits nothing."""
    given = rule if field == "failure_if_result" else (OSError, rule)
    with pytest.raises(PolicyError, match=f"{field} = .*a plain function"):
        BreakerSettings(**{field: given})


def test_a_rule_whose_answer_must_be_awaited_has_not_matched():
    """A plain function that returns something to await is seen only when it is asked."""

    class Pending:
        __await__ = None

    assert not BreakerSettings(count_on=lambda _: Pending()).counts(ConnectionError())
    assert BreakerSettings(ignore=lambda _: Pending()).counts(ConnectionError())
