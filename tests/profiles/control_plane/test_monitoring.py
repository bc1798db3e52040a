"""The control-plane front door: the stream of events, its rates, alerts and patterns."""

import asyncio

import pytest

from mainstay.events import CallSucceeded, RetryExhausted
from mainstay.profiles import control_plane
from mainstay.profiles.control_plane import (
    RetryCategory,
    RetryError,
    RetryManager,
    audit_stream,
    calculate_avg_attempts,
    calculate_success_rate,
    get_retry_manager,
)
from mainstay.profiles.control_plane import manager as module
from mainstay.testing import virtual_time

TRAFFIC = [
    (RetryCategory.KV_GET, 2),
    (RetryCategory.KV_GET, 0),
    (RetryCategory.API_REQUEST, 1),
    (RetryCategory.NATS_PUBLISH, 3),
]
"""Calls, each with the attempts of it that fail; a publish has three."""


def busy(manager):
    """The manager after the traffic: two recovered, one at once, one exhausted."""

    async def main():
        for category, failures in TRAFFIC:
            left = [ConnectionError()] * failures

            async def work(left=left):
                if left:
                    raise left.pop()

            try:
                await manager.execute_with_retry(category, category.name, work)
            except RetryError:
                assert category is RetryCategory.NATS_PUBLISH

    with virtual_time():
        asyncio.run(main())
    return manager


@pytest.fixture
def own(monkeypatch):
    """The process has no manager yet."""
    monkeypatch.setattr(module, "_MANAGERS", [])


@pytest.mark.usefixtures("own")
@pytest.mark.req("CP-17.filter", "CP-17.rate")
def test_the_stream_of_the_module_is_that_of_the_process():
    """Empty before there is a manager; then its events, by type and by category."""
    assert len(audit_stream.filter(event_type="retry_attempt")) == 0
    manager = get_retry_manager()
    assert len(audit_stream) == 0
    busy(manager)
    retries = audit_stream.filter(event_type="retry_attempt")
    assert len(retries) == 5
    rates = retries.rate_per_minute(by="retry_category")
    assert rates == {
        "RETRY_API_REQUEST": 1.0, "RETRY_KV_GET": 2.0, "RETRY_NATS_PUBLISH": 2.0,
    }  # fmt: skip
    assert len(audit_stream) == len(manager.audit_stream)


@pytest.mark.req("CP-17.rate", "CP-17.alert")
@pytest.mark.parametrize(("threshold", "alerts"), [(4, 1), (5, 0)])
def test_a_rate_above_a_threshold_is_seen(threshold, alerts):
    """Five retries within a minute are more than four, and not more than five."""
    retries = busy(RetryManager(sinks=[])).audit_stream.filter(event_type="retry_attempt")
    assert sum([retries.rate_per_minute > threshold]) == alerts


@pytest.mark.req("CP-18")
def test_patterns_are_analysed_by_category():
    """Calls that ended well, and attempts on average, for each of the seventeen."""
    stream = busy(RetryManager(sinks=[])).audit_stream
    found = {}
    for category in RetryCategory:
        events = stream.filter(retry_category=category.value)
        found[category.name] = (
            len(events), calculate_success_rate(events), calculate_avg_attempts(events),
        )  # fmt: skip
    assert len(found) == 17
    assert found["KV_GET"][1:] == (1.0, 2.0)
    assert found["API_REQUEST"][1:] == (1.0, 2.0)
    assert found["NATS_PUBLISH"][1:] == (0.0, 3.0)
    assert found["KV_PUT"] == (0, None, None)


@pytest.mark.req("CP-18")
def test_figures_are_of_any_events():
    """A list will do, such as those that a log was read into."""
    events = [CallSucceeded(call_id=str(n), total_attempts=n) for n in (1, 2)]
    events.append(RetryExhausted(call_id="3", total_attempts=3))
    assert calculate_success_rate(events) == pytest.approx(2 / 3)
    assert calculate_avg_attempts(iter(events)) == 2.0
    assert (calculate_success_rate([]), calculate_avg_attempts([])) == (None, None)


def test_a_manager_remembers_a_number_of_events_and_no_more():
    """The oldest are dropped."""
    manager = RetryManager(sinks=[], remember=5)

    async def work():
        return 1

    for number in range(9):
        asyncio.run(manager.execute_with_retry(RetryCategory.KV_GET, f"{number}", work))
    assert [event.operation for event in manager.audit_stream] == list("45678")


def test_every_name_of_the_door_is_there():
    """What is listed can be imported."""
    assert all(hasattr(control_plane, name) for name in control_plane.__all__)
