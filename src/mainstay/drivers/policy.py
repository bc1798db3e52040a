"""The public RetryPolicy: the core's value with its verbs."""

from __future__ import annotations

from types import AsyncGeneratorType, CoroutineType, GeneratorType

import mainstay.runtime.clock as clock
from mainstay.core.retry.policy import Policy
from mainstay.drivers.call.callables import (
    SYNC_HINT,
    check_callable,
    context_managers,
    refuse_async_predicates,
    refuse_coroutine,
    refuse_positional,
    refuse_unawaitable,
)
from mainstay.drivers.call.site import Site
from mainstay.drivers.call.wrap import caller, wrap
from mainstay.runtime.enclosing import enclosures, opened
from mainstay.runtime.reports.logs import LOGS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any, Never, ParamSpec, TypeVar, overload

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.explain.explain import Explanation
    from mainstay.core.known.kind import Kind
    from mainstay.core.retry.backoff import Backoff, Jitter
    from mainstay.core.retry.classify import Rule
    from mainstay.core.retry.hooks import Hook
    from mainstay.core.retry.policy import KindRule
    from mainstay.drivers.call.blocks import Attempts
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.call.result import RetryResult
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


class Verbs:
    """Calling and decorating under a site: shared by policies and an engine's operations."""

    __slots__ = ()

    @property
    def _verb_site(self) -> Site:
        raise TypeError("a subclass must define where its calls are made")

    def call(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Calls the function, and again if it fails as the policy allows.

        Returns what the function returned; raises what it raised last.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(retry_on=OSError).call(int, "42")
        42
        """
        try:
            value: R = _plain_caller(self._verb_site)(function, args, kwargs)
        except Exception as error:
            if isinstance(error, TypeError):
                check_callable(function)  # raises with the reason if it is no function
            error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            raise
        if type(value) in _UNRUN:
            _refuse_unrun(function, value)
        return value

    async def acall(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Awaits the async function, and again if it fails as the policy allows.

        >>> import asyncio
        >>> from mainstay import RetryPolicy
        >>> async def answer(): return 42
        >>> asyncio.run(RetryPolicy(retry_on=OSError).acall(answer))
        42
        """
        try:
            value: R = await _async_caller(self._verb_site)(function, args, kwargs)
        except Exception as error:
            if isinstance(error, TypeError):
                refuse_unawaitable(function, error)
            error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            raise
        return value

    def run(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> RetryResult[R]:
        """Like `call`, but answers with a RetryResult and never raises for a failed call.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(retry_on=OSError).run(int, "x").last_exception
        ValueError("invalid literal for int() with base 10: 'x'")
        """
        from mainstay.drivers.call import sync

        check_callable(function)
        refuse_async_predicates(self._verb_site.policy, SYNC_HINT)
        watch = _Watch(self._verb_site, function)
        try:
            with opened(watch.call.site):
                value: R = sync.drive(watch.call, function, args, kwargs)
        except Exception as error:
            return watch.failed(error)
        if type(value) in _UNRUN:
            _refuse_unrun(function, value)
        return watch.returned(value)

    async def arun(
        self, function: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> RetryResult[R]:
        """Like `acall`, but answers with a RetryResult and never raises for a failed call.

        >>> import asyncio
        >>> from mainstay import RetryPolicy
        >>> async def answer(): return 42
        >>> asyncio.run(RetryPolicy(retry_on=OSError).arun(answer)).value
        42
        """
        from mainstay.drivers.call import aio

        check_callable(function)
        watch = _Watch(self._verb_site, function)
        try:
            with opened(watch.call.site):
                value: R = await aio.drive(watch.call, function, args, kwargs)
        except Exception as error:
            if type(error) is TypeError:
                refuse_unawaitable(function, error)
            return watch.failed(error)
        return watch.returned(value)

    def explain(self, *around: Policy) -> Explanation:
        """What a call comes to at worst, and what is likely a mistake; nothing is called.

        Args:
            around: the policies of the retries that enclose it, the nearest first.

        >>> from mainstay import RetryPolicy
        >>> RetryPolicy(attempt_timeout=10.0, deadline=8.0).explain().warnings[0].code
        'timeout-past-deadline'
        """
        from mainstay.drivers.explain import explain_site

        return explain_site(self._verb_site, around)

    def attempts(self) -> Attempts:
        """Attempts as blocks: `for attempt in policy.attempts(): with attempt: ...`.

        >>> from mainstay import RetryPolicy
        >>> for attempt in RetryPolicy(retry_on=OSError).attempts():
        ...     with attempt:
        ...         attempt.number
        1
        """
        from mainstay.drivers.call.blocks import Attempts

        return Attempts(self._verb_site)


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

    __slots__ = ("_site",)
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


def _plain_caller(site: Site) -> Function:
    if site.caller is None:
        site.caller = caller(site, awaits=False)
        _UNRUN.update(context_managers())
    return site.caller


def _async_caller(site: Site) -> Function:
    if site.acaller is None:
        site.acaller = caller(site, awaits=True)
    return site.acaller


_UNRUN: set[type] = {AsyncGeneratorType, CoroutineType, GeneratorType}


def _refuse_unrun(function: Function, value: UserValue) -> None:
    """Refuses what has not run yet: its failures would come where nothing retries."""
    check_callable(function)
    if type(value) is not CoroutineType:
        return  # a plain function that returns a generator of its own making
    refuse_coroutine(function, value, "await policy.acall(...) or policy.arun(...) instead")


class _Watch:
    """Times one call and makes its RetryResult."""

    __slots__ = ("call", "started")

    def __init__(self, site: Site, function: Function) -> None:
        from mainstay.drivers.call.call import Call

        self.started = clock.current.monotonic()
        self.call = Call(site, function, enclosures(3), self.started)

    def returned(self, value: R) -> RetryResult[R]:
        return self._result(self.call.is_accepted, None, value)

    def failed(self, error: Exception) -> RetryResult[UserValue]:
        return self._result(False, error, None)

    def _result(
        self, success: bool, error: Exception | None, value: UserValue
    ) -> RetryResult[UserValue]:
        from mainstay.drivers.call.result import RetryResult

        elapsed = max(0.0, clock.current.monotonic() - self.started)
        return RetryResult(success, self.call.attempts, error, elapsed * 1000.0, value)
