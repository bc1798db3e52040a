"""Each guard's word, said again from its rule and what it looked at."""

import msgspec
import pytest

from mainstay.core.audit.replay_guard import UNKNOWN, decide_again
from mainstay.core.circuit.breaker import Circuit, CircuitState
from mainstay.core.circuit.commands import settings_to_plain
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.retry.backoff import Backoff, Jitter

RATIO = {"name": "retries", "ratio": 0.5, "floor": 1, "window": 10.0}
TOKENS = {"name": "tokens", "capacity": 10.0, "cost": 5.0}
THROTTLE = {"name": "throttle", "k": 2.0, "window": 10.0, "floor": 1}
RATE = {"name": "rate", "per_second": 1.0, "burst": 1, "max_wait": 5.0}


@pytest.mark.parametrize(
    ("guard", "rule", "state", "said"),
    [
        ("RetryBudget:retries", RATIO, [4, 1], True),
        ("RetryBudget:retries", RATIO, [4, 2], False),
        ("TokenBudget:tokens", TOKENS, [10_000, 5_000], True),
        ("TokenBudget:tokens", TOKENS, [1_000, 5_000], False),
        ("AdaptiveThrottle:throttle", THROTTLE, [100.0, 10.0, 0.1], True),
        ("AdaptiveThrottle:throttle", THROTTLE, [100.0, 10.0, 0.99], False),
        ("AdaptiveThrottle:throttle", THROTTLE, [10.0, 10.0, 0.1], False),
        ("RateLimit:rate", RATE, [None, None, [], 0.0, 2.0], 2.0),
        ("RateLimit:rate", RATE, [9.0, 1.0, [1.0], 2.0, 0.0], None),
        ("MemoryGuard:memory", {"limit": 1000}, [2000.0, 1000], False),
        ("MemoryGuard:memory", {"limit": 1000}, [10.0, 1000], True),
        ("Stranger:x", RATIO, [4, 1], UNKNOWN),
        ("RetryBudget:retries", None, [4, 1], UNKNOWN),
    ],
)
def test_a_guard_says_the_same_again(guard, rule, state, said):
    """By the functions that decide in the guard itself."""
    assert decide_again(guard, rule, state) == said


def test_a_circuit_says_whether_it_admits_and_whether_waiting_helps():
    """Closed it admits; open it says for how long not, and a delay past that is worth it."""
    rule = settings_to_plain(BreakerSettings(recovery_timeout=30.0))
    closed = msgspec.to_builtins(Circuit(since=0.0, key=1))
    opened = msgspec.to_builtins(
        Circuit(state=CircuitState.OPEN, since=0.0, open_seconds=30.0, key=1)
    )
    assert decide_again("CircuitBreaker:pay", rule, [closed, 5.0]) == "admitted"
    assert decide_again("CircuitBreaker:pay", rule, [opened, 10.0]) == 20.0
    assert decide_again("CircuitBreaker:pay", rule, [opened, 10.0, 1.0]) is False
    assert decide_again("CircuitBreaker:pay", rule, [opened, 10.0, 25.0]) is True


def test_a_circuit_says_it_by_the_version_of_its_record():
    """A lost probe opens it for a time of its jitter: by the formula of then."""
    settings = BreakerSettings(
        recovery_timeout=Backoff.exponential(10.0, max_delay=11.0),
        recovery_jitter=Jitter.decorrelated(),
    )
    circuit = Circuit(
        state=CircuitState.HALF_OPEN,
        probes=((1, 0.0),),
        openings=1,
        open_seconds=11.0,
        key=2**51 + 1,
    )
    state = [msgspec.to_builtins(circuit), 100.0]
    now, then = (
        decide_again("CircuitBreaker:pay", settings_to_plain(settings), state, version)
        for version in (2, 1)
    )
    assert 10.0 <= now < 11.0
    assert then == 11.0
