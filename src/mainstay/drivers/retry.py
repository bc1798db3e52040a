"""The decorator for one function: `@mainstay.retry(on=...)`."""

from __future__ import annotations

from weakref import WeakValueDictionary

from mainstay.core.base.validate import Checker
from mainstay.core.retry.plan import IDEMPOTENCY
from mainstay.drivers.call.callables import refuse_positional
from mainstay.drivers.call.guard import gate_of
from mainstay.drivers.call.listeners import listeners_of
from mainstay.drivers.call.site import Site, log_beside
from mainstay.drivers.layers.order import Layers
from mainstay.drivers.policy import RetryPolicy
from mainstay.errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Iterable
    from typing import Any, Never, Unpack

    from mainstay.core.base.types import Fields, Seconds
    from mainstay.core.retry.backoff import Backoff, Jitter
    from mainstay.core.retry.classify import Rule
    from mainstay.core.retry.policy import Policy
    from mainstay.core.retry.policy_fields import MoreFields
    from mainstay.drivers.call.guard import Guard
    from mainstay.drivers.decorated import Decorator
    from mainstay.drivers.layers.order import Layer
    from mainstay.ports import Sink


def retry(
    *given: Never,
    on: Rule | Iterable[Rule] | None = None,
    policy: Policy | None = None,
    attempts: int | None = None,
    timeout: Seconds | None = None,
    deadline: Seconds | None = None,
    backoff: Backoff | None = None,
    jitter: Jitter | None = None,
    idempotency: str = "idempotent",
    listener: Sink | Iterable[Sink] | None = None,
    cancel: threading.Event | None = None,
    breaker: Guard | Iterable[Guard] | None = None,
    budget: Guard | None = None,
    guards: Guard | Iterable[Guard] | None = None,
    hedge: Layer | None = None,
    bulkhead: Layer | None = None,
    fallback: Layer | None = None,
    **fields: Unpack[MoreFields],
) -> Decorator:
    """Retries a function, sync or async, when it fails with what `on` names.

    `on` or `policy` must be given: only you know what is safe to retry.

    Args:
        given: nothing; `@retry` alone and `@retry(ConnectionError)` are refused with what to write.
        on: what is retried: exception classes, names or error codes, Kinds, predicates.
        policy: a RetryPolicy; the other arguments override its fields.
        attempts: the largest number of attempts, the first included.
        timeout: seconds for one attempt.
        deadline: seconds for the whole call, waits included.
        backoff: how the delay grows.
        jitter: how the delay is spread.
        idempotency: "idempotent" (the default: asking for retries declares that), "keyed", or
            "unsafe", which may not be repeated.
        listener: called with every event; several as a list.
        cancel: once set, a wait ends at once with CallCancelled.
        breaker: a CircuitBreaker, or several: asked before and after every attempt.
        budget: a RetryBudget or TokenBudget: if it is spent, the error is raised with a note.
        guards: others that may refuse: RateLimit, AdaptiveThrottle, MemoryGuard.
        hedge: a Hedge: each attempt may be raced by a second one.
        bulkhead: a Bulkhead: each attempt waits for room.
        fallback: a Fallback: what answers if the call has failed for good.
        fields: any other field of a RetryPolicy, under its name there; `max_attempts`, `retry_on`
            and `attempt_timeout` are the same as `attempts`, `on` and `timeout`.

    >>> import mainstay
    >>> @mainstay.retry(on=(ConnectionError, TimeoutError), attempts=4, deadline=30.0)
    ... def fetch(url):
    ...     return f"page at {url}"
    >>> fetch("/")
    'page at /'
    """
    if given:
        refuse_positional(given, "retry", "on")
    named = {
        "on": on, "attempts": attempts, "timeout": timeout, "deadline": deadline,
        "backoff": backoff, "jitter": jitter,
    }  # fmt: skip
    changes: Fields = {n: value for n, value in named.items() if value is not None}
    chosen = _policy_of(policy, {**changes, **fields})
    check_idempotency(idempotency, chosen)
    listeners = listeners_of("retry", listener)
    layers = Layers(hedge=hedge, bulkhead=bulkhead, fallback=fallback)
    layers.check(idempotency)
    gate, logs = gate_of(breaker, guards, budget), log_beside(listeners)

    def decorate(function: Any) -> Any:
        site = Site(
            chosen, idempotency=idempotency, listeners=listeners, cancel=cancel, gate=gate,
            logs=logs,
        )  # fmt: skip
        return layers.around(function, site)

    return decorate


def _policy_of(policy: Policy | None, changes: Fields) -> Policy:
    is_named = changes.get("on") is not None or changes.get("retry_on") is not None
    if policy is None and not is_named:
        raise UsageError(
            "what should be retried is not given",
            hint="give on=, such as on=(ConnectionError, TimeoutError), or policy=",
        )
    if policy is not None and not isinstance(policy, RetryPolicy):
        raise UsageError(f"policy = {policy!r} is no RetryPolicy", hint="policy=RetryPolicy(...)")
    if policy is not None:
        return policy.replace(**changes) if changes else policy
    key = _key_of(changes)
    known = None if key is None else _SHARED.get(key)
    if known is None:
        known = RetryPolicy(**changes)
        if key is not None:
            _SHARED[key] = known
    return known


_SHARED: WeakValueDictionary[tuple[object, ...], RetryPolicy] = WeakValueDictionary()
"""The policies of decorators, by their arguments: a program has few, and many functions.

They are kept for as long as a function has them. A policy is frozen; what it remembers of exception
classes is the same for every function."""
_PLAIN = frozenset({int, float, str, bool})


def _key_of(changes: Fields) -> tuple[object, ...] | None:
    """What equal policies have in common; None if an argument is no plain value.

    Types are part of it: True is equal to 1, and not allowed in its place.
    """
    key: list[object] = []
    for name, value in changes.items():
        parts = value if type(value) is tuple else (value,)
        for part in parts:
            if type(part) is not type and type(part) not in _PLAIN:
                return None
        key += (name, parts, tuple(map(type, parts)), type(value))
    return tuple(key)


def check_idempotency(idempotency: str, policy: Policy) -> None:
    """Refuses what would repeat an unsafe call, when it is declared."""
    if type(idempotency) is str and idempotency in IDEMPOTENCY and idempotency != "unsafe":
        return
    check = Checker("retry")
    check.choice("idempotency", idempotency, IDEMPOTENCY)
    if idempotency == "unsafe" and policy.max_attempts > 1:
        allowed = '1 for an unsafe operation; declare it "idempotent" or "keyed" to retry it'
        check.note("max_attempts", policy.max_attempts, allowed)
    check.close()
