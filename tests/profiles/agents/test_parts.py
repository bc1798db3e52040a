"""The agent front door: its interfaces, registry, backoff and circuits, by the document's names."""

import pytest

from mainstay import Backoff, Jitter, PolicyError, PolicyNotFoundWarning, RetryPolicy
from mainstay.profiles.agents import (
    AGGRESSIVE,
    NO_RETRY,
    STANDARD,
    BackoffCalculator,
    BackoffStrategy,
    CircuitBreaker,
    CircuitOpenException,
    CircuitState,
    ICircuitBreaker,
    IPolicyRegistry,
    IRetryExecutor,
    PolicyRegistry,
    RetryExecutor,
)
from mainstay.testing import virtual_time


@pytest.mark.req("FR-041-19", "FR-041-20")
def test_the_registry_finds_the_policy_of_a_type():
    """Mapped, by pattern, or the default with a warning."""
    registry = PolicyRegistry(
        [AGGRESSIVE, NO_RETRY], {"network": "aggressive", "perm*": "noRetry"}, "standard"
    )
    found = [registry.get_policy(name).name for name in ("network", "permission")]
    assert found == ["aggressive", "noRetry"]
    assert registry.names == ("standard", "aggressive", "noRetry")
    with pytest.warns(PolicyNotFoundWarning, match="'tea'"):
        assert registry.get_policy("tea") is STANDARD


@pytest.mark.req("FR-041-36", "FR-041-37", "FR-041-38", "FR-041-39", "FR-041-40")
@pytest.mark.parametrize(
    ("strategy", "fields", "curve"),
    [
        ("constant", {}, Backoff.constant(0.1)),
        ("linear", {"step": 0.2, "max_delay": 5.0}, Backoff.linear(0.1, step=0.2, max_delay=5.0)),
        ("exponential", {"max_delay": 5.0}, Backoff.exponential(0.1, factor=2.0, max_delay=5.0)),
        ("exponential", {"factor": 3.0}, Backoff.exponential(0.1, factor=3.0)),
    ],
)
def test_a_strategy_makes_the_curve_of_a_policy(strategy, fields, curve):
    """By the word that configuration files have for it."""
    assert BackoffStrategy(strategy).backoff(0.1, **fields) == curve
    assert [member.value for member in BackoffStrategy] == ["constant", "linear", "exponential"]


@pytest.mark.req("FR-041-46", "FR-041-50", "NFR-041-19")
@pytest.mark.parametrize("jitter", [Jitter.percent(0.1), Jitter.full(), Jitter.decorrelated()])
def test_a_delay_is_calculated(jitter):
    """With a seed those that the policy lists; without one, within its bounds."""
    policy = RetryPolicy(max_attempts=6, jitter=jitter)
    seeded = BackoffCalculator(seed=7)
    assert [seeded.calculate(policy, n) for n in range(1, 6)] == policy.delays(seed=7)
    drawn = {BackoffCalculator().calculate(policy, 3) for _ in range(20)}
    assert len(drawn) > 1
    assert all(0.0 <= delay <= 5.5 for delay in drawn)
    assert BackoffCalculator(seed=1).calculate(policy, 40) <= 5.5
    for wrong in (0, -1, 1.5, True):
        with pytest.raises(PolicyError, match="attempt"):
            seeded.calculate(policy, wrong)


@pytest.mark.req("FR-041-54", "FR-041-57", "FR-041-58", "FR-041-61", "FR-041-62", "FR-041-64")
def test_circuits_are_kept_by_type():
    """Opened by five failures in a row, half open after 30 s, closed by a success or a reset."""
    breaker = CircuitBreaker()
    with virtual_time() as time:
        for _ in range(4):
            breaker.record_failure("network")
        assert not breaker.is_open("network")
        breaker.record_failure("network")
        assert (breaker.is_open("network"), breaker.is_open("file")) == (True, False)
        time.advance(30.0)
        assert breaker.state("network") is CircuitState.HALF_OPEN
        assert not breaker.is_open("network")
        breaker.record_success("network")
        assert breaker.state("network") is CircuitState.CLOSED
        for _ in range(5):
            breaker.record_failure("network")
        breaker.reset("network")
        assert not breaker.is_open("network")


def test_what_the_door_has_fits_its_interfaces():
    """And so does what a user writes with the same methods; anything else does not."""

    class Mine:
        def get_policy(self, operation_type):
            return STANDARD

    assert isinstance(Mine(), IPolicyRegistry)
    assert isinstance(PolicyRegistry(), IPolicyRegistry)
    assert isinstance(CircuitBreaker(), ICircuitBreaker)
    with RetryExecutor(escalate=False) as executor:
        assert isinstance(executor, IRetryExecutor)
        assert isinstance(executor.circuit_breaker, ICircuitBreaker)
    assert not isinstance(Mine(), ICircuitBreaker)


def test_the_exception_of_an_open_circuit_needs_the_type_alone():
    """As the document raises it."""
    error = CircuitOpenException("network")
    assert (error.operation_name, error.state) == ("network", CircuitState.OPEN)
