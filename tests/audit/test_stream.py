"""A log as a stream: what a filter lets through, how often it comes, and what it amounts to."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mainstay.audit.stream
from mainstay import (
    AuditStream,
    Engine,
    MainstayError,
    MainstayWarning,
    RetryPolicy,
    UsageError,
    context,
    testing,
)
from mainstay.events import CallSucceeded, RetryAttempt, RetryExhausted, encode
from mainstay.runtime.plan_registry import plan_before

START = datetime(2026, 1, 25, 21, tzinfo=UTC)


def at(minutes):
    """The stamp of so many minutes after nine."""
    return (START + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


EVENTS = [
    RetryAttempt(operation="a", retry_category="KV", tenant_id="t1", timestamp=at(0)),
    CallSucceeded(operation="a", retry_category="KV", tenant_id="t1", timestamp=at(1)),
    RetryAttempt(operation="b", retry_category="API", tenant_id="t2", timestamp=at(2)),
    RetryAttempt(operation="b", timestamp=at(5)),
    RetryExhausted(operation="b", retry_category="API", total_attempts=3, timestamp=at(10)),
]


@pytest.mark.req("CP-17.filter")
@pytest.mark.parametrize(
    ("names", "found"),
    [
        ({"event_type": "retry_attempt"}, [0, 2, 3]),
        ({"retry_category": "API"}, [2, 4]),
        ({"operation": "b", "event_type": "retry_attempt"}, [2, 3]),
        ({"tenant_id": ("t1", "t2")}, [0, 1, 2]),
        ({"retry_category": ""}, [3]),
        ({"since": at(2)}, [2, 3, 4]),
        ({"until": at(2)}, [0, 1]),
        ({"since": START + timedelta(minutes=1), "until": at(5)}, [1, 2]),
    ],
)
def test_a_filter_lets_through_what_was_asked_for(names, found):
    assert list(AuditStream(EVENTS).filter(**names)) == [EVENTS[n] for n in found]


FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "event_type": st.sampled_from(["retry_attempt", "call_succeeded", "x"]),
        "operation": st.lists(st.sampled_from("abc"), max_size=2),
        "since": st.integers(0, 10).map(at),
        "until": st.integers(0, 10).map(at),
    },
)


@settings(deadline=None)  # machines are shared
@given(FILTERS, FILTERS)
def test_a_filter_of_a_filter_lets_through_what_both_do(one, other):
    stream = AuditStream(EVENTS)
    both = list(stream.filter(**one).filter(**other))
    assert both == [e for e in stream.filter(**one) if e in list(stream.filter(**other))]
    assert len(stream.filter(**one).filter(**other)) == len(both)
    assert bool(stream.filter(**one).filter(**other)) == bool(both)


def test_a_filter_reads_nothing():
    """Only looking does, and each look is a pass of its own."""
    passes = []

    def begin():
        passes.append(1)
        return [("w", encode(event)) for event in EVENTS]

    retries = AuditStream(begin).filter(event_type="retry_attempt").filter(operation="b")
    assert passes == []
    assert (len(retries), [event.operation for event in retries.filter()]) == (2, ["b", "b"])
    assert len(passes) == 2


def test_so_long_ago_is_before_now():
    with testing.virtual_time(start=(START + timedelta(minutes=11)).timestamp()):
        assert list(AuditStream(EVENTS).filter(since="7m")) == EVENTS[3:]


@pytest.mark.req("CP-17.rate")
def test_the_rate_is_per_minute_of_the_time_the_log_covers():
    """The document's own sample: compared with a threshold."""
    retry_events = AuditStream(EVENTS).filter(event_type="retry_attempt")
    assert float(retry_events.rate_per_minute) == 0.3  # 3 in the log's 10 minutes
    assert retry_events.rate_per_minute > 0.2
    assert retry_events.rate_per_minute >= 0.3
    assert retry_events.rate_per_minute < 0.4
    assert retry_events.rate_per_minute <= 0.3
    assert not retry_events.rate_per_minute > 0.3
    assert retry_events.rate_per_minute() == 0.3
    assert f"{retry_events.rate_per_minute:.2f}" == "0.30"
    assert repr(retry_events.rate_per_minute) == "0.3"


@pytest.mark.req("CP-17.rate")
def test_the_rate_by_category():
    rates = AuditStream(EVENTS).filter(event_type="retry_attempt").rate_per_minute
    assert rates(by="retry_category") == {"": 0.1, "API": 0.1, "KV": 0.1}
    assert rates(by="operation") == {"a": 0.1, "b": 0.2}


def test_the_rate_in_a_range_is_that_of_the_range():
    """From its beginning to its end, also where nothing happened at either."""
    stream = AuditStream(EVENTS).filter(since=at(-10), until=at(10))
    assert float(stream.rate_per_minute) == 4 / 20


def test_a_moment_is_no_minute():
    """Three events in one second are not 180 a minute; nor is a log without times endless."""
    assert float(AuditStream(EVENTS[:1] * 3).rate_per_minute) == 3.0
    assert float(AuditStream([RetryAttempt()] * 3).rate_per_minute) == 3.0
    assert float(AuditStream([]).rate_per_minute) == 0.0
    strange = [RetryAttempt(timestamp="9999-99-99T99:99:99Z"), EVENTS[0]]
    assert float(AuditStream(strange).rate_per_minute) == 2.0


def test_names_without_end_are_summed_up(monkeypatch):
    monkeypatch.setattr(mainstay.audit.stream, "MOST_NAMES", 3)
    events = [RetryAttempt(tenant_id=f"t{n}") for n in range(10)]
    rates = AuditStream(events).rate_per_minute(by="tenant_id")
    assert rates == {"other": 7.0, "t0": 1.0, "t1": 1.0, "t2": 1.0}


@pytest.mark.req("CP-18")
def test_patterns_by_category():
    """The document's analysis: attempts, success rate and mean attempts of each category."""
    events = []
    with testing.virtual_time():
        engine = Engine(sinks=[events.append], seed=1)
        for category, outcomes in (
            ("KV", (ConnectionError, 1)),
            ("KV", (ConnectionError,) * 3),
            ("API", (2,)),
        ):
            with context(category=category):
                engine.run("x", testing.scripted(*outcomes))
    told = AuditStream(events).stats(by="category")
    rows = {row["category"]: row for row in told["by"]["category"]["rows"]}
    assert rows["KV"]["attempts"] == 5
    assert (rows["KV"]["success_rate"], rows["KV"]["mean_attempts"]) == (0.5, 2.5)
    assert rows["API"]["success_rate"] == 1.0
    assert len(AuditStream(events).filter(retry_category="API")) == 1


def test_figures_are_of_what_the_filter_lets_through():
    told = AuditStream(EVENTS).filter(operation="b").stats()
    assert told["total"]["exhausted"] == told["total"]["calls"] == 1
    assert list(told["by"]) == ["operation", "category", "tenant"]


class Log:
    """A sink that keeps records as a log does."""

    wants_evidence = hears_successes = True

    def __init__(self):
        self.events, self.known = [], set()

    def __call__(self, event):
        self.events += [each for each in (plan_before(event, self.known), event) if each]


@pytest.mark.req("CP-19")
def test_another_policy_on_what_the_filter_lets_through():
    """For all operations, or for some; the plans are found also where a range leaves them out."""
    log, policies = Log(), [RetryPolicy(name=name, max_attempts=3) for name in "ab"]
    with testing.virtual_time(start=START.timestamp()) as time:
        engine = Engine(policies=policies, sinks=[log], seed=1)
        for name in "aabb":
            engine.run(name, testing.scripted(ConnectionError, ConnectionError, 1))
            time.advance(60)
    stream = AuditStream(log.events)
    hasty = RetryPolicy(max_attempts=2)
    assert stream.whatif(hasty)["total"]["attempts_saved"] == 4
    some = stream.whatif({"a": hasty})
    assert (some["total"]["attempts_saved"], some["calls_unchanged"]) == (2, 2)
    late = stream.filter(since=at(1), operation="a").whatif(hasty)["total"]
    assert (late["calls"], late["attempts_saved"]) == (1, 1)


def test_what_this_version_cannot_read_is_told():
    """Events of a later version: left out of the events, with a warning, and counted."""
    lines = [("w", b'{"event_type":"invented_later"}'), ("w", b"{"), ("w", encode(EVENTS[0]))]
    stream = AuditStream(lines)
    with pytest.warns(MainstayWarning, match="2 recorded events could not be read"):
        assert list(stream) == EVENTS[:1]
    assert stream.stats()["unreadable"] == 1
    assert list(stream.filter(operation="a")) == EVENTS[:1]
    assert float(stream.rate_per_minute) == 2.0


def test_what_can_be_gone_through_once_is_refused():
    """The second look would find nothing, and say so as if it were true."""
    with pytest.raises(UsageError, match="generator can be gone through only once") as refused:
        AuditStream(event for event in EVENTS)
    assert "list" in refused.value.hint


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda stream: stream.filter(since="tomorrow"), "since: 'tomorrow' is no moment"),
        (lambda stream: stream.rate_per_minute(by="day"), "by='day': there are event_type"),
        (lambda stream: stream.stats(by="day"), "by='day': there are operation"),
    ],
)
def test_a_mistake_is_told(ask, told):
    with pytest.raises(UsageError, match=told):
        ask(AuditStream(EVENTS))


def test_a_file_is_read_anew_each_time(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"\n".join(map(encode, EVENTS)) + b"\n\n")
    stream = AuditStream(log)
    assert list(stream) == EVENTS
    with log.open("ab") as more:
        more.write(encode(EVENTS[0]) + b"\n")
    assert len(stream) == len(AuditStream(str(log))) == 6


@pytest.mark.parametrize("place", ["audit.jsonl", "sqlite:///audit.db"])
def test_an_audit_log_is_read_where_it_is(place, tmp_path, monkeypatch):
    """Whatever it is kept in; one that is not there says so."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MainstayError):
        len(AuditStream(place))
    with testing.virtual_time(), Engine(sinks=[], audit=place) as engine:
        engine.run("x", testing.scripted(ConnectionError, 1))
    names = [event.event_type for event in AuditStream(place)]
    assert names == ["plan_declared", "attempt_failed", "retry_attempt", "call_succeeded"]
    assert AuditStream(place).stats()["total"]["recovered"] == 1
    assert AuditStream(place).whatif(RetryPolicy(max_attempts=1))["total"]["attempts_saved"] == 1
