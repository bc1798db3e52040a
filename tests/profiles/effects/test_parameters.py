"""The effects front door: the parameter table and the delay formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay import CircuitBreaker, CircuitOpenError, CircuitState, PolicyError, retry
from mainstay.profiles.effects import (
    CIRCUIT_BREAKER,
    EffectRetryConfig,
    calculate_backoff_delay,
)
from mainstay.testing import scripted, virtual_time

BELOW_ONE = 1.0 - 2.0**-52


@pytest.mark.req("EF-04")
def test_the_defaults_are_the_tables():
    """Three attempts, 1 s, 60 s, base 2, a quarter of jitter."""
    config = EffectRetryConfig()
    assert config == EffectRetryConfig(3, 1.0, 60.0, 2.0, 0.25)
    assert config.policy().max_attempts == 3


@pytest.mark.req("EF-04")
@pytest.mark.parametrize(
    ("field", "low", "high"),
    [
        ("max_attempts", 1, 10),
        ("initial_delay_seconds", 0.01, 60.0),
        ("max_delay_seconds", 1.0, 300.0),
        ("exponential_base", 1.5, 4.0),
        ("jitter_factor", 0.0, 0.5),
    ],
)
def test_each_range_is_held(field, low, high):
    """Both ends are allowed; just outside is refused with the range."""
    step = 1 if isinstance(low, int) else 0.001
    for value in (low, high):
        assert getattr(EffectRetryConfig(**{field: value}), field) == value
    for value in (low - step, high + step, float("nan"), True, "3"):
        with pytest.raises(PolicyError, match=field):
            EffectRetryConfig(**{field: value})


@pytest.mark.req("EF-04")
def test_all_problems_are_told_at_once():
    """Four wrong values, four problems."""
    with pytest.raises(PolicyError) as caught:
        EffectRetryConfig(0, 0.0, 0.0, 9.0)
    assert len(caught.value.problems) == 4


@pytest.mark.req("EF-06")
@pytest.mark.parametrize(
    ("settings", "rows"),
    [
        ({}, [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]),
        (
            {"initial_delay": 0.1, "exponential_base": 3.0, "max_delay": 30.0},
            [0.1, 0.3, 0.9, 2.7, 8.1, 24.3, 30.0, 30.0],
        ),
    ],
)
def test_both_tables_reproduce(settings, rows):
    """Base delay, lower and upper bound of each row, from attempt 0 on."""
    for attempt, base in enumerate(rows):
        middle, low, high = (
            calculate_backoff_delay(attempt, u=u, **settings) for u in (0.5, 0.0, BELOW_ONE)
        )
        assert middle == pytest.approx(base, rel=1e-12)
        assert low == pytest.approx(base * 0.75, rel=1e-12)
        assert high == pytest.approx(base * 1.25, rel=1e-12)


@pytest.mark.req("EF-06")
@given(attempt=st.integers(0, 5000))
def test_a_drawn_delay_is_within_its_bounds(attempt):
    """Without u, it is drawn; any attempt number is within the cap and its jitter."""
    assert 0.75 <= calculate_backoff_delay(attempt) <= 75.0


@pytest.mark.req("EF-06")
@given(attempt=st.integers(0, 40), initial=st.floats(0.01, 60.0), most=st.floats(1.0, 300.0))
def test_the_formula_holds_also_if_the_first_delay_is_above_the_cap(attempt, initial, most):
    """`min(initial × base^attempt, max)`: an initial delay above the cap gives the cap."""
    wanted = min(initial * 2.0**attempt, most)
    assert calculate_backoff_delay(attempt, initial, most, u=0.5) == pytest.approx(wanted)
    config = EffectRetryConfig(10, initial, most, jitter_factor=0.0)
    if attempt < 9:
        assert config.policy().delays(seed=1)[attempt] == pytest.approx(wanted)


@pytest.mark.req("EF-06")
def test_an_initial_delay_above_the_cap_gives_the_cap():
    """In every row, with the jitter of the cap."""
    for attempt in range(5):
        drawn = [
            calculate_backoff_delay(attempt, initial_delay=30.0, max_delay=20.0, u=u)
            for u in (0.0, 0.5, BELOW_ONE)
        ]
        assert drawn == pytest.approx([15.0, 20.0, 25.0])
    config = EffectRetryConfig(initial_delay_seconds=30.0, max_delay_seconds=20.0, jitter_factor=0)
    assert list(config.policy().delays(seed=1)) == [20.0, 20.0]


@pytest.mark.parametrize("field", ["initial_delay", "max_delay"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), True, "3", None])
def test_a_delay_that_is_none_is_named(field, value):
    """Taking the lower of two values hides no wrong one."""
    with pytest.raises(PolicyError, match=field.removesuffix("_delay")):
        calculate_backoff_delay(0, **{field: value})


@pytest.mark.parametrize("attempt", [-1, 1.5, True, None])
def test_an_attempt_is_a_number_from_zero(attempt):
    """Anything else is refused by name."""
    with pytest.raises(PolicyError, match="attempt"):
        calculate_backoff_delay(attempt)


@pytest.mark.req("EF-11")
def test_the_documents_circuit_records_every_failure_before_it_asks_whether_to_retry():
    """Five failures that are not retried open it for 60 s; a success before the fifth resets it."""
    breaker = CircuitBreaker("postgresql-primary", CIRCUIT_BREAKER)
    guarded = EffectRetryConfig().policy()
    function = scripted(*[ValueError] * 4, "row", *[ValueError] * 5, "never")
    query = retry(policy=guarded, breaker=breaker)(function)
    with virtual_time() as time:
        for _ in range(4):
            with pytest.raises(ValueError):
                query()
        assert query() == "row"
        for _ in range(5):
            assert breaker.state is CircuitState.CLOSED
            with pytest.raises(ValueError):
                query()
        with pytest.raises(CircuitOpenError) as refused:
            query()
        assert (refused.value.retry_after, len(function.script.calls)) == (60.0, 10)
        time.advance(60.0)
        assert breaker.state is CircuitState.HALF_OPEN
