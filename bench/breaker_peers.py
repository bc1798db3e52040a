"""Adapters of breakers: one circuit, told to each library in its own words.

Every adapter takes a Circuit and a colour and gives a decorator, as those of bench/peers.py do.
ALONE are breakers by themselves. BOTH retry too: libraries that have both, and stacks of a retry
around a breaker of another library, in the order that such stacks are written in practice: the
breaker sees every attempt. What a library cannot say raises Lacks.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from fractions import Fraction
from typing import Any, Literal

from bench.measure import Lacks
from bench.peers import PEERS, Colour, Decorator, Plan, mainstay_policy

PLAN = Plan()
WINDOW_CALLS = 100
WINDOW_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Circuit:
    """What every breaker is asked to do; with a window, it opens at half of the calls."""

    failures: int = 5
    open_seconds: float = 600.0
    window: Literal["", "calls", "seconds"] = ""
    slow_after: float | None = None
    plan: Plan = PLAN


Breaker = Callable[[Circuit, Colour], Decorator]


def mainstay_breaker(circuit: Circuit, name: str = "bench") -> Any:
    """The circuit as a mainstay breaker."""
    from mainstay import CircuitBreaker, Window

    windows = {
        "calls": Window.calls(WINDOW_CALLS),
        "seconds": Window.seconds(WINDOW_SECONDS),
    }
    fields: dict[str, Any] = {"recovery_timeout": circuit.open_seconds}
    if circuit.window:
        fields |= {"window": windows[circuit.window], "failure_rate": 0.5}
    else:
        fields["failure_threshold"] = circuit.failures
    if circuit.slow_after is not None:
        fields |= {"slow_after": circuit.slow_after, "slow_rate": 0.5}
    return CircuitBreaker(name, **fields)


def mainstay_alone(circuit: Circuit, colour: Colour) -> Decorator:
    """The breaker itself is the decorator."""
    breaker: Decorator = mainstay_breaker(circuit)
    return breaker


def mainstay_both(circuit: Circuit, colour: Colour) -> Decorator:
    """A retry that asks the breaker before every attempt."""
    from mainstay import retry

    decorate: Decorator = retry(
        policy=mainstay_policy(circuit.plan), breaker=mainstay_breaker(circuit)
    )
    return decorate


def _in_a_row(circuit: Circuit) -> None:
    """For those who count failures and nothing else."""
    if circuit.window:
        raise Lacks("no failure rate")


def _pybreaker(circuit: Circuit, colour: Colour) -> Decorator:
    import pybreaker

    _in_a_row(circuit)
    if colour == "async":
        raise Lacks("async by tornado only; on async def it never trips")
    return pybreaker.CircuitBreaker(
        fail_max=circuit.failures, reset_timeout=circuit.open_seconds, throw_new_error_on_trip=False
    )


def _circuitbreaker(circuit: Circuit, colour: Colour) -> Decorator:
    import circuitbreaker

    _in_a_row(circuit)
    return circuitbreaker.CircuitBreaker(
        failure_threshold=circuit.failures, recovery_timeout=circuit.open_seconds
    )


def _aiobreaker(circuit: Circuit, colour: Colour) -> Decorator:
    import aiobreaker

    _in_a_row(circuit)
    return aiobreaker.CircuitBreaker(
        fail_max=circuit.failures, timeout_duration=timedelta(seconds=circuit.open_seconds)
    )


def _purgatory(circuit: Circuit, colour: Colour) -> Decorator:
    import purgatory

    _in_a_row(circuit)
    factory: Any = (
        purgatory.SyncCircuitBreakerFactory()
        if colour == "sync"
        else purgatory.AsyncCircuitBreakerFactory()
    )
    decorate: Decorator = factory("bench", threshold=circuit.failures, ttl=circuit.open_seconds)
    return decorate


def _fluxgate(circuit: Circuit, colour: Colour) -> Decorator:
    import fluxgate
    from fluxgate.retries import Cooldown
    from fluxgate.trippers import FailureRate, FailureStreak, MinRequests, SlowRate
    from fluxgate.windows import CountWindow, TimeWindow

    tripper: Any = FailureStreak(circuit.failures)
    if circuit.window:
        tripper = FailureRate(0.5)
        if circuit.slow_after is not None:
            tripper |= SlowRate(0.5, threshold=circuit.slow_after)
        tripper &= MinRequests(WINDOW_CALLS)
    kind = fluxgate.CircuitBreaker if colour == "sync" else fluxgate.AsyncCircuitBreaker
    return kind(
        window=TimeWindow(int(WINDOW_SECONDS))
        if circuit.window == "seconds"
        else CountWindow(WINDOW_CALLS),
        tripper=tripper,
        retry=Cooldown(circuit.open_seconds),
    )


def _hyx(circuit: Circuit, colour: Colour) -> Decorator:
    from hyx.circuitbreaker import consecutive_breaker

    _in_a_row(circuit)
    if colour == "sync":
        raise Lacks("async only")
    return consecutive_breaker(
        failure_threshold=circuit.failures, recovery_time_secs=circuit.open_seconds
    )


def _resilient_circuit(circuit: Circuit, colour: Colour) -> Decorator:
    from resilient_circuit import CircuitProtectorPolicy
    from resilient_circuit.storage import InMemoryStorage

    if circuit.window == "seconds" or circuit.slow_after is not None:
        raise Lacks("no window of time, no slow calls")
    # It reads the size of its window off the denominator, which Fraction(50, 100) would lose.
    size = WINDOW_CALLS if circuit.window else circuit.failures
    limit = Fraction(49, 100) if circuit.window else Fraction(max(1, size - 1), size)
    return CircuitProtectorPolicy(
        resource_key="bench",
        storage=InMemoryStorage(),
        cooldown=timedelta(seconds=circuit.open_seconds),
        failure_limit=limit,
    )


def _pyresilience_breaker(circuit: Circuit) -> Any:
    import pyresilience

    if circuit.window == "seconds":
        raise Lacks("no window of time")
    return pyresilience.CircuitBreakerConfig(
        failure_threshold=circuit.failures,
        recovery_timeout=circuit.open_seconds,
        sliding_window_size=WINDOW_CALLS if circuit.window else 0,
        slow_call_duration=circuit.slow_after or 0.0,
        slow_call_rate_threshold=0.5,
    )


def _pyresilience_alone(circuit: Circuit, colour: Colour) -> Decorator:
    import pyresilience

    return pyresilience.resilient(circuit_breaker=_pyresilience_breaker(circuit))


def _pyresilience(circuit: Circuit, colour: Colour) -> Decorator:
    import pyresilience

    plan = circuit.plan
    return pyresilience.resilient(
        retry=pyresilience.RetryConfig(
            max_attempts=plan.attempts,
            delay=plan.longest,
            backoff_factor=plan.factor,
            max_delay=plan.max_delay,
            jitter=True,
            retry_on=(plan.on,),
        ),
        circuit_breaker=_pyresilience_breaker(circuit),
    )


def _redress(circuit: Circuit, colour: Colour) -> Decorator:
    import redress

    _in_a_row(circuit)
    plan = circuit.plan
    is_sync = colour == "sync"
    attempts = (redress.Retry if is_sync else redress.AsyncRetry)(
        classifier=redress.default_classifier,
        strategy=redress.equal_jitter(plan.longest / 2, plan.max_delay),
        max_attempts=plan.attempts,
        deadline_s=60.0,
    )
    breaker = redress.CircuitBreaker(
        failure_threshold=circuit.failures, recovery_timeout_s=circuit.open_seconds
    )
    policy: Any = (redress.Policy if is_sync else redress.AsyncPolicy)(
        retry=attempts, circuit_breaker=breaker
    )  # which calls functions without arguments
    return lambda function: lambda a, b: policy.call(lambda: function(a, b))


def _pyfailsafe(circuit: Circuit, colour: Colour) -> Decorator:
    import failsafe

    _in_a_row(circuit)
    if colour == "sync":
        raise Lacks("async only")
    plan = circuit.plan
    net = failsafe.Failsafe(
        retry_policy=failsafe.RetryPolicy(
            allowed_retries=plan.attempts - 1,
            retriable_exceptions=[plan.on],
            backoff=failsafe.Backoff(
                delay=timedelta(seconds=plan.longest),
                max_delay=timedelta(seconds=plan.max_delay),
                factor=plan.factor,
                jitter=True,
            ),
        ),
        circuit_breaker=failsafe.CircuitBreaker(
            maximum_failures=circuit.failures, reset_timeout_seconds=circuit.open_seconds
        ),
    )
    return lambda function: lambda a, b: net.run(function, a, b)


def _tenaz(circuit: Circuit, colour: Colour) -> Decorator:
    import tenaz

    _in_a_row(circuit)
    plan = circuit.plan
    decorate: Decorator = tenaz.retry(
        max_attempts=plan.attempts,
        backoff=plan.longest,
        max_delay=plan.max_delay,
        retry_on=plan.on,
        circuit_threshold=circuit.failures,
        circuit_timeout=circuit.open_seconds,
    )
    return decorate


def _stack(retries: str, breaks: Breaker) -> Breaker:
    """A retry of bench/peers.py around a breaker."""

    def adapter(circuit: Circuit, colour: Colour) -> Decorator:
        retried, broken = PEERS[retries](circuit.plan, colour), breaks(circuit, colour)
        return lambda function: retried(broken(function))

    return adapter


ALONE: dict[str, Breaker] = {
    "circuitbreaker": _circuitbreaker,
    "pybreaker": _pybreaker,
    "aiobreaker": _aiobreaker,
    "purgatory": _purgatory,
    "fluxgate": _fluxgate,
    "hyx, breaker": _hyx,
    "pyresilience, breaker": _pyresilience_alone,
    "resilient-circuit, breaker": _resilient_circuit,
}

BOTH: dict[str, Breaker] = {
    "tenaz": _tenaz,
    "pyresilience": _pyresilience,
    "redress": _redress,
    "pyfailsafe": _pyfailsafe,
    "hyx": _stack("hyx", _hyx),
    "resilient-circuit": _stack("resilient-circuit", _resilient_circuit),
    "backoff + circuitbreaker": _stack("backoff", _circuitbreaker),
    "stamina + circuitbreaker": _stack("stamina", _circuitbreaker),
    "tenacity + pybreaker": _stack("tenacity", _pybreaker),
    "tenacity + aiobreaker": _stack("tenacity", _aiobreaker),
}

LIBRARIES = ("aiobreaker", "circuitbreaker", "fluxgate", "purgatory", "pybreaker", "pyfailsafe",
             "tenaz")  # fmt: skip


def versions() -> str:
    """The breakers' versions; those of bench/peers.py are told above all tables."""
    found = []
    for name in LIBRARIES:
        try:
            found.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            found.append(f"{name} (not installed)")
    return ", ".join(found)
