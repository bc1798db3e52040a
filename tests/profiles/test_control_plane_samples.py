"""The code samples of the control-plane document run; only their imports are ours.

A sample refers to things of the reader's own, such as `alert`; those are given here. The class
definitions are not run: the front door has them. Two samples are not the contract: a class in both
lists is not retried (decision 1), and what is awaited is made anew for each attempt (decision 18).
"""

import asyncio

import pytest

from mainstay.profiles import control_plane
from mainstay.profiles.control_plane import RetryCategory, RetryManager
from mainstay.profiles.control_plane import manager as module
from mainstay.testing import virtual_time

CLASSIFICATION = """
# Default: retry all exceptions
default_policy = RetryPolicy(retryable_exceptions=[Exception])

# Non-retryable exceptions (fail fast)
strict_policy = RetryPolicy(
    non_retryable_exceptions=[ValueError, TypeError, KeyError]
)

# Retryable exceptions (override non-retryable)
lenient_policy = RetryPolicy(
    non_retryable_exceptions=[ValueError],
    retryable_exceptions=[ValueError, NetworkError]  # ValueError wins
)
"""
CHECK = """
async def check(idempotency_key):
    # Check if operation already processed
    if idempotency_key:
        existing_result = await idempotency_manager.check_idempotency(idempotency_key)
        if existing_result is not None:
            return existing_result  # Return cached result
"""
CONFIGURATION = """
# Custom retry policy for critical operations
critical_policy = RetryPolicy(
    max_attempts=5,
    base_delay=2.0,
    max_delay=60.0,
    backoff_multiplier=1.5,
    jitter_enabled=True,
    jitter_factor=0.2
)

retry_mgr = get_retry_manager()
"""
KEY = """
# Generate idempotency key for operation
idempotency_key = retry_mgr.idempotency_manager.compute_idempotency_key(
    operation="kill_switch_update",
    tenant_id="tenant-123",
    correlation_id="corr-456",
    additional_params={"switch_name": "all_execution"}
)
"""
MONITORING = """
# Monitor retry events in audit stream
retry_events = audit_stream.filter(event_type="retry_attempt")

# Alert on high retry rates
if retry_events.rate_per_minute > threshold:
    alert("High retry rate detected")
"""
PATTERNS = """
# Analyze retry patterns by category
retry_patterns = {}
for category in RetryCategory:
    events = audit_stream.filter(retry_category=category.value)
    retry_patterns[category.value] = {
        "total_attempts": len(events),
        "success_rate": calculate_success_rate(events),
        "avg_attempts": calculate_avg_attempts(events)
    }
"""


class NetworkError(Exception):
    """Of the reader's own."""


def run(sample, **given):
    """The names that a sample makes, with the front door's names and those given."""
    names = {name: getattr(control_plane, name) for name in control_plane.__all__}
    names = {**names, "NetworkError": NetworkError, **given}
    exec(compile(sample, "sample", "exec"), names)
    return names


@pytest.fixture
def busy():
    """A manager with some traffic behind it: two retries of one category, one of another."""
    manager = RetryManager(sinks=[])

    async def main():
        for category, failures in (("KV_GET", 2), ("KV_GET", 0), ("API_REQUEST", 1)):
            left = [ConnectionError()] * failures

            async def work(left=left):
                if left:
                    raise left.pop()

            await manager.execute_with_retry(RetryCategory[category], "op", work)

    with virtual_time():
        asyncio.run(main())
    return manager


def test_the_samples_on_policies_run(monkeypatch):
    """Classification and configuration."""
    monkeypatch.setattr(module, "_MANAGERS", [])
    names = run(CLASSIFICATION)
    assert names["strict_policy"].retryable_exceptions == (Exception,)
    names = run(CONFIGURATION)
    assert names["critical_policy"].policy().max_attempts == 5
    assert isinstance(names["retry_mgr"], RetryManager)


@pytest.mark.req("CP-06.key", "CP-06.check")
def test_the_samples_on_idempotency_run():
    """A key, and the check with it: a recorded None is a hit there too."""
    manager = RetryManager()
    key = run(KEY, retry_mgr=manager)["idempotency_key"]
    assert len(key) == 64
    results = manager.idempotency_manager
    check = run(CHECK, idempotency_manager=results)["check"]
    assert asyncio.run(check(key)) is None
    asyncio.run(results.record_result(key, None))
    assert asyncio.run(check(key)).value is None


@pytest.mark.req("CP-17.filter", "CP-17.rate", "CP-17.alert")
@pytest.mark.parametrize(("threshold", "alerts"), [(2, ["High retry rate detected"]), (3, [])])
def test_the_sample_on_monitoring_runs(busy, threshold, alerts):
    """Three retries within a minute are over a threshold of two."""
    heard = []
    run(MONITORING, audit_stream=busy.audit_stream, threshold=threshold, alert=heard.append)
    assert heard == alerts
    rates = busy.audit_stream.filter(event_type="retry_attempt").rate_per_minute("retry_category")
    assert rates == {"RETRY_API_REQUEST": 1.0, "RETRY_KV_GET": 2.0}


@pytest.mark.req("CP-18")
def test_the_sample_on_patterns_runs(busy):
    """Events by category, with figures of the reader's own or of the stream's."""

    def success_rate(events):
        ended = [e for e in events if e.event_type in ("call_succeeded", "retry_exhausted")]
        return sum(e.event_type == "call_succeeded" for e in ended) / len(ended) if ended else None

    def mean(events):
        ended = [e.total_attempts for e in events if e.event_type == "call_succeeded"]
        return sum(ended) / len(ended) if ended else None

    names = run(PATTERNS, audit_stream=busy.audit_stream, calculate_success_rate=success_rate,
                calculate_avg_attempts=mean)  # fmt: skip
    patterns = names["retry_patterns"]
    assert len(patterns) == 17
    assert patterns["RETRY_KV_GET"]["success_rate"] == 1.0
    assert patterns["RETRY_KV_GET"]["avg_attempts"] == 2.0
    assert patterns["RETRY_KV_PUT"] == {
        "total_attempts": 0, "success_rate": None, "avg_attempts": None,
    }  # fmt: skip


def test_a_manager_remembers_so_many_events_and_no_more():
    """The oldest are forgotten."""
    manager = RetryManager(sinks=[], remember=5)

    async def work():
        return 1

    for number in range(9):
        asyncio.run(manager.execute_with_retry(RetryCategory.KV_GET, f"{number}", work))
    assert [event.operation for event in manager.audit_stream] == list("45678")
