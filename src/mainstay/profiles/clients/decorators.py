"""The decorators of the client document: for any configuration, for S3 and for HTTP APIs."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from mainstay.core.base.validate import Checker
from mainstay.drivers.call.callables import name_of
from mainstay.drivers.call.guard import gate_of
from mainstay.drivers.call.site import Site
from mainstay.drivers.call.wrap import wrap
from mainstay.drivers.guards.breaker import CircuitBreaker
from mainstay.drivers.verbs import Verbs
from mainstay.engine.engine import Engine
from mainstay.errors import PolicyError
from mainstay.profiles.calls import site_in
from mainstay.profiles.clients.configuration import RetryConfiguration, RetryPresets
from mainstay.runtime.fork import make_lock
from mainstay.runtime.reports import logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import ParamSpec, TypeVar, overload

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds
    from mainstay.drivers.call.callables import Function
    from mainstay.drivers.decorated import ClassFunction, Decorated

    P = ParamSpec("P")
    R = TypeVar("R")
    F = TypeVar("F", bound=Function)


class RetryDecorator(Verbs):
    """Retries the functions it decorates, sync or async, and counts their attempts.

    `call` and `run`, `acall` and `arun` do the same for one call; `run` and `arun` return a
    RetryResult and do not raise.

    Args:
        config: how it is retried; by default `RetryConfiguration()`.
        circuit_breaker: asked before and after every attempt.
        attempt_counter: where attempts are counted, by the name of the function, at the end of
            each call; decorators may share one. By default one of its own.
        respect_retry_after: whether a Retry-After is waited for.
        engine: makes the calls as an operation of this engine: with its circuits, budget, log and
            audit, and under the policy that it maps the operation to, unless `config` is given.
        operation: what log, events and the engine call it; by default the function's name, and
            "client" for `call`, `run` and the others if there is an engine.

    >>> from mainstay.profiles.clients import RetryPresets
    >>> retried = RetryDecorator(RetryPresets.API_CALL)
    >>> @retried
    ... def fetch():
    ...     return "page"
    >>> fetch(), retried.attempt_counter["fetch"]
    ('page', 1)
    """

    def __init__(
        self,
        config: RetryConfiguration | None = None,
        circuit_breaker: CircuitBreaker | None = None,
        attempt_counter: Counter[str] | None = None,
        *,
        respect_retry_after: bool = True,
        engine: Engine | None = None,
        operation: str | None = None,
    ) -> None:
        check = Checker("RetryDecorator")
        check.instance("config", config, RetryConfiguration, "RetryPresets.S3_UPLOAD")
        _check_rest(check, circuit_breaker, respect_retry_after, engine, operation)
        check.instance("attempt_counter", attempt_counter, Counter)
        check.close()
        self.config = config or RetryConfiguration()
        self.circuit_breaker = circuit_breaker
        self.attempt_counter = Counter() if attempt_counter is None else attempt_counter
        self._policy = self.config.policy().replace(respect_retry_after=respect_retry_after)
        self.engine, self.operation, self._is_given = engine, operation, config is not None

    def _new_site(self, name: str = "") -> Site:
        name, guard = self.operation or name, self.circuit_breaker
        counting = _Counting(self.attempt_counter)
        if self.engine is None:
            gate = gate_of(guard)
            return Site(self._policy, name, gate=gate, listeners=(counting,), logs=logs.LOGS)
        name = name or "client"
        is_mapped = not self._is_given and self.engine.policies.mapped(name)
        policy = None if is_mapped else self._policy
        return site_in(self.engine, name, policy, counting, guard)

    @property
    def _verb_site(self) -> Site:
        try:
            return self._site
        except AttributeError:
            self._site = self._new_site()
            return self._site

    if TYPE_CHECKING:

        @overload
        def __call__(self, function: ClassFunction, /) -> ClassFunction: ...
        @overload
        def __call__(self, function: Callable[P, R], /) -> Decorated[P, R]: ...
        @overload
        def __call__(self, function: F, /) -> F: ...

    def __call__(self, function: Any, /) -> Any:
        """Decorates a function, sync or async."""
        return wrap(function, self._new_site("" if self.engine is None else name_of(function)))


class _Counting:
    """A listener that adds the attempts of each call that has ended to a counter."""

    def __init__(self, counter: Counter[str]) -> None:
        self._counter = counter

    def __call__(self, event: Event) -> None:
        attempts = getattr(event, "total_attempts", 0)
        if attempts:
            with _COUNTING:
                self._counter[event.operation] += attempts


_COUNTING = make_lock()
"""One for all, since decorators may share a counter."""


def with_s3_retry(
    max_attempts: int = 5,
    base_delay: Seconds = 1.0,
    max_delay: Seconds = 30.0,
    jitter: Seconds = 1.0,
    circuit_breaker: CircuitBreaker | None = None,
    *,
    log_level: str | int = "WARNING",
    engine: Engine | None = None,
    operation: str | None = None,
) -> RetryDecorator:
    """Decorates a function that calls S3, sync or async.

    Throttling, lost connections and S3's own errors are retried; what is missing or forbidden is
    not. A client's own retries multiply these: `boto3.client("s3",
    config=Config(retries={"total_max_attempts": 1}))`.

    Args:
        max_attempts: the most attempts, the first included.
        base_delay: seconds before the first retry.
        max_delay: the longest delay.
        jitter: up to how many seconds are added to a delay.
        circuit_breaker: asked before and after every attempt.
        log_level: the level at which a scheduled retry is logged: a name, or `logging.INFO`.
        engine: makes the calls as an operation of this engine, as of a RetryDecorator. The policy
            that it maps the operation to wins, unless attempts or delays differ from the defaults.
        operation: what log, events and the engine call it; by default the function's name.

    >>> @with_s3_retry(max_attempts=3)
    ... def upload(name):
    ...     return f"uploaded {name}"
    >>> upload("invoice")
    'uploaded invoice'
    """
    fields = {
        "max_attempts": max_attempts, "base_delay": base_delay, "max_delay": max_delay,
        "jitter": jitter,
    }  # fmt: skip
    rest = {"circuit_breaker": circuit_breaker, "engine": engine, "operation": operation}
    return _decorator("with_s3_retry", fields, RetryPresets.S3_UPLOAD, log_level, rest)


def with_api_retry(
    max_attempts: int = 3,
    base_delay: Seconds = 0.5,
    max_delay: Seconds = 10.0,
    jitter: Seconds = 0.5,
    respect_retry_after: bool = True,
    *,
    circuit_breaker: CircuitBreaker | None = None,
    log_level: str | int = "WARNING",
    engine: Engine | None = None,
    operation: str | None = None,
) -> RetryDecorator:
    """Decorates a function that calls an HTTP API, sync or async.

    Lost connections, timeouts, 429 and 5xx are retried, other statuses are not; the function has
    to raise for them (`response.raise_for_status()`).

    Args:
        max_attempts: the most attempts, the first included.
        base_delay: seconds before the first retry.
        max_delay: the longest delay.
        jitter: up to how many seconds are added to a delay.
        respect_retry_after: whether a Retry-After is waited for, in seconds or as a date; one of
            more than 60 s ends the call.
        circuit_breaker: asked before and after every attempt.
        log_level: the level at which a scheduled retry is logged: a name, or `logging.INFO`.
        engine: makes the calls as an operation of this engine, as of a RetryDecorator. The policy
            that it maps the operation to wins, unless attempts or delays differ from the defaults.
        operation: what log, events and the engine call it; by default the function's name.

    >>> @with_api_retry()
    ... async def fetch(): ...
    >>> fetch.mainstay.policy.max_attempts
    3
    """
    fields = {
        "max_attempts": max_attempts, "base_delay": base_delay, "max_delay": max_delay,
        "jitter": jitter,
    }  # fmt: skip
    rest = {
        "circuit_breaker": circuit_breaker, "engine": engine, "operation": operation,
        "respect_retry_after": respect_retry_after,
    }  # fmt: skip
    return _decorator("with_api_retry", fields, RetryPresets.API_CALL, log_level, rest)


def _decorator(
    name: str,
    fields: dict[str, Any],
    usual: RetryConfiguration,
    log_level: str | int,
    rest: dict[str, Any],
) -> RetryDecorator:
    """The decorator with these values; all problems are reported at once."""
    check, config = Checker(name), None
    try:
        config = RetryConfiguration(**fields, log_level=log_level)
    except PolicyError as error:
        check.problems += error.problems
    _check_rest(check, **{"respect_retry_after": True, **rest})
    check.close()
    made = RetryDecorator(config, **rest)
    made._is_given = any(getattr(usual, field) != value for field, value in fields.items())  # noqa: SLF001 -- of this module
    return made


def _check_rest(
    check: Checker,
    circuit_breaker: object,
    respect_retry_after: object,
    engine: object,
    operation: str | None,
) -> None:
    check.instance("circuit_breaker", circuit_breaker, CircuitBreaker)
    if not isinstance(respect_retry_after, bool):
        check.note("respect_retry_after", respect_retry_after, "True or False")
    check.instance("engine", engine, Engine)
    if operation is not None:
        check.name("operation", operation)
