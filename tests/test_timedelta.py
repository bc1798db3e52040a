"""Wherever seconds go, a timedelta goes: the same value comes of both."""

from datetime import timedelta

import pytest

from mainstay import (
    AdaptiveThrottle,
    Backoff,
    BreakerSettings,
    Bulkhead,
    CircuitBreaker,
    Engine,
    Hedge,
    KindRule,
    RateLimit,
    RetryBudget,
    RetryPolicy,
    Window,
    deadline,
    retry,
)
from mainstay.drivers.idempotency.keys import KeyOptions
from mainstay.profiles import clients, control_plane, effects
from mainstay.sinks.alerts import AlertRule
from mainstay.testing import FaultProxy, scripted, takes, virtual_time

MAKERS = {
    "policy": lambda s: RetryPolicy(attempt_timeout=s, deadline=s),
    "backoff": lambda s: Backoff.exponential(s, max_delay=s),
    "kind": lambda s: KindRule(backoff=Backoff.chain(s, s)),
    "breaker": lambda s: CircuitBreaker("pay", recovery_timeout=s).settings,
    "settings": lambda s: BreakerSettings(probe_timeout=s, ramp=s, stable_after=s),
    "slow": lambda s: BreakerSettings(window=Window.seconds(s), slow_after=s, slow_rate=0.5),
    "budget": lambda s: RetryBudget(window=s).rule,
    "rate": lambda s: RateLimit(max_wait=s).rule,
    "throttle": lambda s: AdaptiveThrottle(window=s).rule,
    "bulkhead": lambda s: Bulkhead("db", 3, queue=9, max_wait=s).max_wait,
    "hedge": lambda s: Hedge(s).delay,
    "key": lambda s: KeyOptions(key=None, lease=s, ttl=s, wait=s, store_wait=s),
    "alert": lambda s: AlertRule("slow", "failure_rate", above=0.5, window=s, for_seconds=s),
    "client": lambda s: clients.RetryConfiguration(base_delay=s, max_delay=s, jitter=s),
    "circuit": lambda s: clients.CircuitBreakerConfiguration(recovery_timeout_seconds=s),
    "effect": lambda s: effects.EffectRetryConfig(initial_delay_seconds=s, max_delay_seconds=s),
    "contract": lambda s: effects.OrchestratorContract(
        initial_backoff_seconds=s, max_backoff_seconds=s
    ),
    "step": lambda s: takes(s, "ok").seconds,
    "plane": lambda s: control_plane.RetryPolicy(base_delay=s, max_delay=s),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_timedelta_is_as_good_as_seconds(make):
    """What is made of 30 seconds and of half a minute is equal."""
    assert make(timedelta(minutes=0.5)) == make(30.0)


@pytest.mark.parametrize("make", [make for name, make in MAKERS.items() if name != "step"])
def test_a_negative_timedelta_is_refused(make):
    """With the same error as negative seconds."""
    with pytest.raises(ValueError, match="must be"):
        make(timedelta(seconds=-1))


def test_a_decorator_and_a_deadline_take_timedeltas():
    """The call ends when the time is up."""
    with virtual_time() as time:

        @retry(on=OSError, attempts=9, deadline=timedelta(seconds=3), timeout=timedelta(seconds=2),
               backoff=Backoff.constant(timedelta(seconds=1)))  # fmt: skip
        def fetch():
            assert deadline.remaining() <= 2.0
            raise OSError("down")

        with pytest.raises(OSError, match="down"), deadline.within(timedelta(minutes=5)):
            fetch()
        assert time.elapsed <= 3.0


def test_an_engine_takes_timedeltas():
    """Its store, its purging and its shared circuits go by seconds."""
    second = timedelta(seconds=2)
    with Engine(share=second, store_wait=second, purge=second) as engine:
        assert engine.call("op", int, "7") == 7


def test_the_tools_for_tests_take_timedeltas():
    """Virtual time, the steps of a script, and the latency of a proxy."""
    with virtual_time() as time:
        time.advance(timedelta(minutes=1))
        assert scripted(takes(timedelta(seconds=2), "ok"))() == "ok"
        assert time.elapsed == 62.0
    with FaultProxy("127.0.0.1", 9) as proxy:
        proxy.latency(timedelta(milliseconds=1), jitter=timedelta(0))
