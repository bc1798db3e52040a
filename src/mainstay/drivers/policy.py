"""The public RetryPolicy: the core's value with its verbs."""

from __future__ import annotations

from mainstay.core.retry.policy import Policy
from mainstay.drivers.call.callables import refuse_positional
from mainstay.drivers.call.site import Site
from mainstay.drivers.call.wrap import wrap
from mainstay.drivers.verbs import Verbs
from mainstay.runtime.reports.logs import LOGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Never, ParamSpec, TypeVar, overload

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.known.kind import Kind
    from mainstay.core.retry.backoff import Backoff, Jitter
    from mainstay.core.retry.classify import Rule
    from mainstay.core.retry.hooks import Hook
    from mainstay.core.retry.policy import KindRule
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.decorated import ClassFunction, Decorated

    P = ParamSpec("P")
    R = TypeVar("R")
    F = TypeVar("F", bound=Function)


class _Default:
    """Stands for a field that was not given."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<default>"


_DEFAULT: Any = _Default()


class RetryPolicy(Policy, Verbs):
    """How a call is retried: a frozen value that can also call and decorate.

    Only what is given differs from the default: three attempts, 0.1 s doubled up to 5 s, ±10 %.
    All problems are reported at once, in one PolicyError. Three fields have a short name as well:
    `attempts` is max_attempts, `on` is retry_on, `timeout` is attempt_timeout.

    Args:
        given: nothing; an argument without its keyword is refused with the right one.
        name: what records and messages call it.
        max_attempts: the largest number of attempts, the first included; 1 means no retry.
        backoff: how the delay grows; see Backoff.
        jitter: how the delay is spread; see Jitter.
        retry_on: what is retried: exception classes, names or error codes, Kinds, predicates.
            None: the kinds transient, throttled, timeout and overload.
        never_retry_on: what is never retried; checked first, and final.
        classify: kinds for exceptions of your own, such as `{SlowDown: "throttled"}`.
        per_kind: limits of their own for some kinds, such as
            `{"throttled": KindRule(max_attempts=8, backoff=Backoff.exponential(5.0))}`.
        retry_if_result: a function of the result; true means "not good, try again".
        on_exhausted: what becomes of a result that no attempt improved: "return" it, or "raise"
            ResultRejected.
        wait_from: a function of what an attempt ended with, the exception or the result that was
            not accepted. It returns the wait, in place of backoff and jitter; None leaves it to
            them. A Retry-After is still waited for.
        attempt_timeout: seconds for one attempt. Async attempts are cancelled; a sync attempt is
            bounded through what reads `mainstay.deadline.remaining()`, or see `timeout_by`.
        timeout_by: "client" as above, or "thread": a sync attempt runs in a worker thread that is
            abandoned when its time is up.
        deadline: seconds for the whole call, waits included.
        max_retry_after: the longest Retry-After that is waited for; the jitter comes on top.
        respect_retry_after: whether a Retry-After is waited for; False leaves the wait to the
            backoff.
        nested: what is made of a failure that a retry inside this one has given up on: "collapse"
            (it is not repeated), "warn" or "allow" (both retry), "refuse" (NestedRetryError).
        before_retry: called with a RetryInfo before the wait; may be async for async calls.
        after_retry: called with a RetryInfo when a retry has ended.
        log_level: the level at which a scheduled retry is logged: a name, or `logging.INFO`.
        attempts: the same as max_attempts.
        on: the same as retry_on.
        timeout: the same as attempt_timeout.
        unknown: nothing; a name that is not known is refused with the nearest one.

    >>> policy = RetryPolicy(name="api", max_attempts=4, retry_on=(ConnectionError, "SlowDown"))
    >>> @policy
    ... def fetch():
    ...     return "page"
    >>> fetch()
    'page'
    """

    __slots__ = ("__weakref__", "_site")
    _site: Site

    def __init__(
        self,
        *given: Never,
        name: str = _DEFAULT,
        max_attempts: int = _DEFAULT,
        backoff: Backoff = _DEFAULT,
        jitter: Jitter = _DEFAULT,
        retry_on: Rule | Iterable[Rule] | None = _DEFAULT,
        never_retry_on: Rule | Iterable[Rule] = _DEFAULT,
        classify: Mapping[Rule, Kind | str] | None = _DEFAULT,
        per_kind: Mapping[Kind | str, KindRule] | None = _DEFAULT,
        retry_if_result: Callable[[Any], object] | None = _DEFAULT,
        on_exhausted: str = _DEFAULT,
        wait_from: Callable[[Any], Seconds | None] | None = _DEFAULT,
        attempt_timeout: Seconds | None = _DEFAULT,
        timeout_by: str = _DEFAULT,
        deadline: Seconds | None = _DEFAULT,
        max_retry_after: Seconds = _DEFAULT,
        respect_retry_after: bool = _DEFAULT,
        nested: str = _DEFAULT,
        before_retry: Hook | None = _DEFAULT,
        after_retry: Hook | None = _DEFAULT,
        log_level: str | int = _DEFAULT,
        attempts: int = _DEFAULT,
        on: Rule | Iterable[Rule] | None = _DEFAULT,
        timeout: Seconds | None = _DEFAULT,
        **unknown: Never,
    ) -> None:
        fields: dict[str, UserValue] = {**locals(), **unknown}
        refuse_positional(given, "RetryPolicy", "retry_on")
        for extra in ("self", "given", "unknown", "__class__"):
            fields.pop(extra, None)
        super().__init__(**{n: value for n, value in fields.items() if value is not _DEFAULT})

    if TYPE_CHECKING:

        @overload
        def __call__(self, function: ClassFunction, /) -> ClassFunction: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Decorated[P, R]: ...
        @overload
        def __call__(self, function: F, /) -> F: ...

    def __call__(self, function: Any, /) -> Any:
        """Decorates a function, sync or async, with this policy."""
        return wrap(function, Site(self, logs=LOGS))

    @property
    def _verb_site(self) -> Site:
        try:
            return self._site
        except AttributeError:
            site = Site(self, logs=LOGS)
            object.__setattr__(self, "_site", site)
            return site


def states_nested(policy: Policy) -> bool:
    """Whether the `nested` of a policy was given; False if it is the default.

    >>> states_nested(RetryPolicy(nested="collapse")), states_nested(RetryPolicy())
    (True, False)
    """
    return "nested" in policy._explicit  # noqa: SLF001 -- the fields that were given
