"""Settings of effects as the engine and client libraries need them.

The five models with their bounds are in the front door. Here: the fields of a policy that such
settings mean, the time for one attempt, and the options that carry timeouts to a client library.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

from mainstay.core.base.validate import in_seconds, seconds_of
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.effects.taxonomy import STATUSES
from mainstay.core.known.http import STATUS_KINDS
from mainstay.core.known.kind import RETRIED_KINDS, Kind
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mainstay.core.base.types import Fields, Seconds, UserValue
    from mainstay.core.base.validate import Checker
    from mainstay.core.retry.classify import Rule

    Settings: TypeAlias = Any
    """One of the five models of the front door: which fields it has follows from its kind."""

CIRCUIT_BREAKER = BreakerSettings(failure_threshold=5, recovery_timeout=60.0, count="all")
"""The document's, for a `CircuitBreaker` or an engine: opens for 60 s after 5 failures in a row.

Every failure is recorded, before it is asked whether it is retryable."""

RANGES = {
    "initial_delay_seconds": (0.01, 60.0),
    "max_delay_seconds": (1.0, 300.0),
    "exponential_base": (1.5, 4.0),
    "jitter_factor": (0.0, 0.5),
}
"""The ranges of the parameter table."""


def numeric(check: Checker, name: str, value: object, low: float, high: float) -> object:
    """The number that a field is to have; a timedelta is one, if the field has seconds.

    >>> from datetime import timedelta
    >>> from mainstay.core.base.validate import Checker
    >>> numeric(Checker("c"), "max_delay_seconds", timedelta(minutes=1), 1.0, 300.0)
    60.0
    """
    found = in_seconds(value) if name.endswith("_seconds") else value
    check.number(name, found, low, high)
    return found


def curve(initial: Seconds, base: float, most: Seconds) -> Backoff:
    """The document's formula, `min(initial × base^attempt, most)`: `most` may be the lower one.

    >>> curve(90.0, 2.0, 60.0).base(1)
    60.0
    """
    initial, most = seconds_of(initial), seconds_of(most)
    if type(initial) in (int, float) and type(most) in (int, float):
        initial = min(initial, most)
    return Backoff.exponential(initial, factor=base, max_delay=most)


def seconds_given(value: object, field: UserValue) -> object:
    """What is given for a field of a model: a timedelta is read if the field holds seconds."""
    return in_seconds(value) if str(field.field_name).endswith("_seconds") else value


def by_kind(check: Checker, given: UserValue) -> dict[str, Settings]:
    """Settings by their kind, of one model or of several; notes what is none, and a kind twice.

    >>> from mainstay.core.base.validate import Checker
    >>> by_kind(Checker("Orchestrator"), ())
    {}
    """
    is_one = hasattr(given, "client_options") or not hasattr(given, "__iter__")
    found: dict[str, Settings] = {}
    for each in (given,) if is_one else given:
        if not hasattr(each, "client_options"):
            check.note("settings", each, "models such as DatabaseRetryConfig()")
        elif found.setdefault(each.kind, each) is not each:
            check.note("settings", each, f"one for each kind: there are two for {each.kind}")
    return found


def policy_fields(settings: Settings) -> Fields:
    """The fields of a policy that the settings of one kind mean.

    >>> from types import SimpleNamespace
    >>> consul = SimpleNamespace(kind="consul", max_attempts=3, initial_delay_seconds=1.0,
    ...     max_delay_seconds=30.0, exponential_base=2.0, attempt_timeout_seconds=30.0)
    >>> policy_fields(consul)["attempt_timeout"]
    30.0
    """
    word = "backoff" if hasattr(settings, "initial_backoff_seconds") else "delay"
    initial = getattr(settings, f"initial_{word}_seconds")
    most = getattr(settings, f"max_{word}_seconds")
    return {
        "max_attempts": settings.max_attempts,
        "backoff": curve(initial, settings.exponential_base, most),
        "jitter": Jitter.percent(0.25),
        "attempt_timeout": attempt_timeout(settings),
        **status_fields(getattr(settings, "retry_on_status_codes", STATUSES)),
    }


def status_fields(statuses: Iterable[int]) -> Fields:
    """The rules by which these statuses are retried, and no others.

    >>> status_fields([429, 500, 502, 503, 504])
    {'never_retry_on': ('status:408', 'status:425')}
    """
    usual = {status for status, kind in STATUS_KINDS.items() if kind in RETRIED_KINDS}
    chosen = set(statuses)
    fields: Fields = {"never_retry_on": tuple(map(_named, sorted(usual - chosen)))}
    if chosen - usual:
        kinds: tuple[Rule, ...] = (*sorted(RETRIED_KINDS), Kind.AMBIGUOUS)
        fields["retry_on"] = (*map(_named, sorted(chosen - usual)), *kinds)
    return fields


def _named(status: int) -> str:
    return f"status:{status}"


def attempt_timeout(settings: Settings) -> float:
    """The seconds for one attempt: of all timeouts that the settings of a kind have."""
    return float(_TIMEOUTS[settings.kind](settings))


_TIMEOUTS: dict[str, Callable[[Settings], float]] = {
    "database": lambda s: s.connection_timeout_seconds + s.query_timeout_seconds,
    "kafka": lambda s: s.delivery_timeout_ms / 1000.0,
    "http": lambda s: s.connect_timeout_seconds + s.read_timeout_seconds,
    "vault": lambda s: s.attempt_timeout_seconds,
    "consul": lambda s: s.attempt_timeout_seconds,
}


def client_options(settings: Settings, library: str) -> Fields:
    """The arguments by which a client library gets the timeouts.

    >>> from types import SimpleNamespace
    >>> vault = SimpleNamespace(kind="vault", attempt_timeout_seconds=5.0)
    >>> client_options(vault, "hvac")
    {'timeout': 5.0}
    """
    known = _OPTIONS[settings.kind]
    if library not in known:
        raise UsageError(
            f"there are no {settings.kind} options for {library!r}",
            hint=f"known libraries: {', '.join(known)}",
        )
    return known[library](settings)


def _psycopg(settings: Settings) -> Fields:
    """Libpq takes whole seconds, and at least 2; `integrations.psycopg.limited` is exact."""
    query = round(settings.query_timeout_seconds * 1000)
    connect = max(2, math.ceil(settings.connection_timeout_seconds))
    return {"connect_timeout": connect, "options": f"-c statement_timeout={query}"}


def _librdkafka(settings: Settings) -> Fields:
    delivery = settings.delivery_timeout_ms
    request = min(settings.producer_timeout_ms, delivery)
    return {
        "request.timeout.ms": request,
        "socket.timeout.ms": request,
        "delivery.timeout.ms": delivery,
    }


_OPTIONS: dict[str, dict[str, Callable[[Settings], Fields]]] = {
    "database": {
        "psycopg": _psycopg,
        "asyncpg": lambda s: {
            "timeout": s.connection_timeout_seconds,
            "command_timeout": s.query_timeout_seconds,
        },
        "sqlalchemy": lambda s: {
            "connect_args": _psycopg(s),
            "pool_timeout": s.connection_timeout_seconds,
        },
    },
    "kafka": {
        "confluent_kafka": _librdkafka,
        "aiokafka": lambda s: {
            "request_timeout_ms": min(s.producer_timeout_ms, s.delivery_timeout_ms)
        },
    },
    "http": {
        "httpx": lambda s: {
            "timeout": (
                s.connect_timeout_seconds, s.read_timeout_seconds,
                s.read_timeout_seconds, s.connect_timeout_seconds,
            )
        },
        "requests": lambda s: {"timeout": (s.connect_timeout_seconds, s.read_timeout_seconds)},
    },
    "vault": {"hvac": lambda s: {"timeout": s.attempt_timeout_seconds}},
    "consul": {"consul": lambda s: {"connections_timeout": s.attempt_timeout_seconds}},
}  # fmt: skip
