"""When a circuit opens, how long it stays open, and what it takes to close it again."""

from __future__ import annotations

from mainstay.core.base.attributes import attribute
from mainstay.core.base.functions import is_async
from mainstay.core.base.validate import Checker
from mainstay.core.base.value import Value
from mainstay.core.circuit.window import Window
from mainstay.core.known.http import status_of
from mainstay.core.known.kind import Kind, qualified_name
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.classify import first_match
from mainstay.core.retry.kinds import NEVER_RETRIED, kind_of
from mainstay.core.retry.policy_fields import CHECKS
from mainstay.errors import DeadlineExceeded, Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Literal, Self, TypeAlias, TypedDict

    from mainstay.core.base.types import Fields, Seconds
    from mainstay.core.retry.classify import Rule

    Counted: TypeAlias = Literal["dependency", "all"]

    class BreakerFields(TypedDict, total=False):
        """The settings as keywords."""

        failure_threshold: int
        recovery_timeout: Seconds | Backoff
        recovery_jitter: Jitter | None
        success_threshold: int
        half_open_probes: int
        probe_timeout: Seconds
        window: Window | None
        failure_rate: float
        slow_after: Seconds | None
        slow_rate: float | None
        min_calls: int
        ramp: Seconds
        stable_after: Seconds
        count: Counted
        count_on: Rule | Iterable[Rule] | None
        ignore: Rule | Iterable[Rule]
        failure_if_result: Callable[[Any], object] | None


_MOST = 1_000_000
COUNTED = ("dependency", "all")
"""Which failures count: those of the other side, or every one."""


class BreakerSettings(Value):
    """What makes a circuit open and close.

    Args:
        failure_threshold: failures in a row that open it, if there is no window.
        recovery_timeout: seconds it stays open, or a Backoff by which each opening in a row lasts
            longer.
        recovery_jitter: spreads that time, so that many processes do not probe at once.
        success_threshold: probes that must succeed to close it.
        half_open_probes: probes at once, at most.
        probe_timeout: seconds after which a probe that has not ended is written off, as failed.
        window: `Window.calls(n)` or `Window.seconds(s)`: opens by rates instead of failures in a
            row.
        failure_rate: the share of failures that opens it.
        slow_after: seconds from which on a call is slow.
        slow_rate: the share of slow calls that opens it.
        min_calls: fewer calls in the window do not open it.
        ramp: seconds over which calls are let through again, little by little, after it closed.
        stable_after: closed for so long, and the next opening counts as a first one.
        count: which failures count: "dependency", those of the other side and unknown ones, not the
            caller's mistakes; "all", every failure, retryable or not, but neither cancellations nor
            calls that mainstay refused to make.
        count_on: only these failures count: exception classes, names or codes, Kinds, functions.
        ignore: these never count.
        failure_if_result: a function of the result; true means that the call counts as failed. The
            caller gets the result all the same.

    >>> BreakerSettings(failure_threshold=3, recovery_timeout=300.0).success_threshold
    1
    """

    __slots__ = (
        "count",
        "count_on",
        "failure_if_result",
        "failure_rate",
        "failure_threshold",
        "half_open_probes",
        "ignore",
        "min_calls",
        "probe_timeout",
        "ramp",
        "recovery_jitter",
        "recovery_timeout",
        "slow_after",
        "slow_rate",
        "stable_after",
        "success_threshold",
        "window",
    )
    failure_threshold: int
    recovery_timeout: Backoff
    recovery_jitter: Jitter
    success_threshold: int
    half_open_probes: int
    probe_timeout: float
    window: Window | None
    failure_rate: float
    slow_after: float | None
    slow_rate: float | None
    min_calls: int
    ramp: float
    stable_after: float
    count: str
    count_on: tuple[Rule, ...] | None
    ignore: tuple[Rule, ...]
    failure_if_result: Callable[[Any], object] | None

    def __init__(  # noqa: PLR0913 -- one for each setting
        self,
        *,
        failure_threshold: int = 5,
        recovery_timeout: Seconds | Backoff = 30.0,
        recovery_jitter: Jitter | None = None,
        success_threshold: int = 1,
        half_open_probes: int = 1,
        probe_timeout: Seconds = 60.0,
        window: Window | None = None,
        failure_rate: float = 0.5,
        slow_after: Seconds | None = None,
        slow_rate: float | None = None,
        min_calls: int = 10,
        ramp: Seconds = 0.0,
        stable_after: Seconds = 60.0,
        count: Counted = "dependency",
        count_on: Rule | Iterable[Rule] | None = None,
        ignore: Rule | Iterable[Rule] = (),
        failure_if_result: Callable[[Any], object] | None = None,
    ) -> None:
        check = Checker("BreakerSettings")
        values = {
            "failure_threshold": check.count("failure_threshold", failure_threshold, _MOST),
            "recovery_timeout": _a_recovery(check, recovery_timeout),
            "recovery_jitter": _a_jitter(check, recovery_jitter),
            "success_threshold": check.count("success_threshold", success_threshold, _MOST),
            "half_open_probes": check.count("half_open_probes", half_open_probes, _MOST),
            "probe_timeout": check.seconds("probe_timeout", probe_timeout, zero=False),
            "window": window,
            "failure_rate": _a_rate(check, "failure_rate", failure_rate),
            "slow_after": check.optional_seconds("slow_after", slow_after),
            "slow_rate": None if slow_rate is None else _a_rate(check, "slow_rate", slow_rate),
            "min_calls": check.count("min_calls", min_calls, _MOST),
            "ramp": check.seconds("ramp", ramp),
            "stable_after": check.seconds("stable_after", stable_after),
            "count": check.choice("count", count, COUNTED),
            "count_on": CHECKS["retry_on"](check, "count_on", count_on),
            "ignore": CHECKS["never_retry_on"](check, "ignore", ignore),
            "failure_if_result": CHECKS["wait_from"](check, "failure_if_result", failure_if_result),
        }
        _check_together(check, values)
        _check_plain(check, values)
        check.close()
        self._fill(**values)

    def replace(self, **fields: Any) -> Self:
        """The same settings with some changed.

        >>> BreakerSettings().replace(failure_threshold=2).failure_threshold
        2
        """
        return type(self)(**{**{name: getattr(self, name) for name in self._fields()}, **fields})

    def counts(self, failure: BaseException) -> bool:
        """Whether a failure counts against the other side.

        Cancellations, refusals of our own, the caller's mistakes and HTTP statuses from 400 to 499
        do not. A group does if one of its members does. With `count="all"` mistakes, statuses and
        deadlines that ran out do, too.

        >>> BreakerSettings().counts(ConnectionError()), BreakerSettings().counts(ValueError())
        (True, False)
        >>> BreakerSettings(count="all").counts(ValueError())
        True
        """
        counts_all = self.count == "all"
        if counts_all and isinstance(failure, DeadlineExceeded):
            return first_match(failure, self.ignore) is None
        if _is_ours(failure) or first_match(failure, self.ignore) is not None:
            return False
        if self.count_on is not None and first_match(failure, self.count_on) is not None:
            return True
        if isinstance(failure, ExceptionGroup):
            return any(map(self.counts, failure.exceptions))
        return counts_all or (self.count_on is None and _is_theirs(failure))


def _check_plain(check: Checker, values: Fields) -> None:
    """A circuit counts at once, in whatever thread or task a call ends, and awaits nothing."""
    for field in ("count_on", "ignore"):
        for rule in values[field] or ():
            if is_async(rule):
                check.note(field, rule, "a plain function: nothing awaits it")


def _is_ours(failure: BaseException) -> bool:
    """Whether it was cancelled or refused on this side."""
    if not isinstance(failure, Exception) or isinstance(failure, Refused):
        return True
    return any(qualified_name(base) in NEVER_RETRIED for base in type(failure).__mro__)


def _is_theirs(failure: BaseException) -> bool:
    """Whether the other side is to blame, as far as anything is known."""
    status = status_of(failure) or _botocore_status(failure)
    if status is not None:
        return not 400 <= status < 500
    return kind_of(failure).kind not in (Kind.PERMANENT, Kind.AUTH)


def _botocore_status(failure: BaseException) -> int | None:
    """The status of a botocore error; for a retry its code counts, and 400 is also a throttle."""
    response = attribute(failure, "response")
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    status = metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None
    return status if type(status) is int else None


def _a_recovery(check: Checker, value: object) -> Backoff:
    if isinstance(value, Backoff):
        if value.kind == "custom" or value.initial <= 0.0:
            check.note("recovery_timeout", value, "a Backoff above 0 without a function of yours")
        return value
    seconds = check.seconds("recovery_timeout", value, zero=False)
    return Backoff.constant(seconds)


def _a_jitter(check: Checker, value: object) -> Jitter:
    if value is not None and not isinstance(value, Jitter):
        check.note("recovery_jitter", value, "a Jitter, such as Jitter.percent(0.1)")
        return Jitter.none()
    return value or Jitter.none()


def _a_rate(check: Checker, field: str, value: object) -> float:
    if type(value) in (int, float) and 0.0 < value <= 1.0:  # type: ignore[operator]
        return float(value)  # type: ignore[arg-type]
    check.note(field, value, "a share above 0 and up to 1, such as 0.5")
    return 1.0


def _check_together(check: Checker, values: Fields) -> None:
    """What is right alone and wrong together."""
    window = values["window"]
    if window is not None and not isinstance(window, Window):
        check.note("window", window, "a Window, such as Window.calls(100) or Window.seconds(60)")
    elif window is None and values["slow_rate"] is not None:
        check.note(
            "slow_rate", values["slow_rate"], "used with a window: window=Window.seconds(60)"
        )
    elif window is not None and window.kind == "calls" and values["min_calls"] > window.size:
        allowed = f"at most the {window.size:g} calls of the window, or it could never open"
        check.note("min_calls", values["min_calls"], allowed)
    if values["count"] == "all" and values["count_on"] is not None:
        check.note("count", "all", "given without count_on, which leaves some failures out")
    if (values["slow_rate"] is None) != (values["slow_after"] is None):
        pair = (values["slow_after"], values["slow_rate"])
        check.note("slow_after, slow_rate", pair, "given together")
