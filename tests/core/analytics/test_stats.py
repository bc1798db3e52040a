"""Figures from a record: exact against a plain count of the same calls, in bounded memory."""

import gc
import sys
from types import FunctionType, ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.analytics.aggregates import MOST_WORDS, Figures, note
from mainstay.core.analytics.stats import Stats, stats
from mainstay.core.base.proof import Opening, Proof
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.events.codec import encode
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallInterrupted,
    CallRefused,
    CallSucceeded,
    FallbackUsed,
    HookFailed,
    RecordsLost,
    RetryAttempt,
    RetryExhausted,
)

DELAYS = (0.1, 0.2, 0.4, 0.8)


def call(number, failures, end, **who):
    """The events of one call: so many failed attempts, then its end."""
    same = {"call_id": f"{number:x}", **who}
    events = []
    for attempt in range(1, failures + 1):
        events.append(AttemptFailed(attempt_number=attempt, **same))
        if attempt < failures or end in ("succeeded", "interrupted", "open"):
            delay = DELAYS[attempt - 1]
            events.append(RetryAttempt(attempt_number=attempt, delay_seconds=delay, **same))
    ends = {
        "succeeded": CallSucceeded(total_attempts=failures + 1, **same),
        "exhausted": RetryExhausted(
            total_attempts=failures, reason="no attempt left; OSError is transient", **same
        ),
        "failed": CallFailed(total_attempts=failures, reason="not retryable; ValueError", **same),
        "interrupted": CallInterrupted(total_attempts=failures + 1, **same),
    }
    return [*events, ends[end]] if end in ends else events


CRASHES = st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=4)
"""Processes of a key: attempts that failed in each, and whether it was killed in the next one."""


@given(st.lists(st.tuples(CRASHES, st.integers(0, 3)), max_size=5))
def test_calls_that_go_on_after_crashes_count_every_attempt_once(keys):
    """Each key is an operation here, so that there is one call to go on with."""
    events, attempts, waits = [], 0, 0
    for key, (crashes, failures) in enumerate(keys):
        made = 0
        for number, (failed, in_attempt) in enumerate([*crashes, (failures, True)]):
            same = {"call_id": f"{key}-{number}", "operation": f"k{key}"}
            first = [Proof(opening=Opening(attempt=made + 1))] + [None] * 9
            for _ in range(failed):
                made += 1
                events.append(AttemptFailed(attempt_number=made, proof=first.pop(0), **same))
                events.append(RetryAttempt(attempt_number=made, delay_seconds=0.5, **same))
                waits += 1
            made += in_attempt
        events.append(CallSucceeded(total_attempts=made, proof=first.pop(0), **same))
        attempts += made
    total = stats((each.call_id, encode(each)) for each in events).total
    assert (total.attempts, total.waited) == (attempts, 0.5 * waits)
    assert (total.calls, total.unfinished) == (len(keys), 0)


def figures(events, **options):
    return stats((("w", encode(event)) for event in events), **options)


CALLS = st.lists(
    st.tuples(
        st.integers(1, 4),
        st.sampled_from(["succeeded", "exhausted", "failed", "interrupted", "open"]),
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from([None, "t1", "t2"]),
    ),
    max_size=40,
)


@pytest.mark.req("CP-18")
@given(CALLS, st.randoms(use_true_random=False))
def test_the_figures_are_those_of_a_plain_count(calls, random):
    """Attempts, rates and waits, also where the events of many calls are mixed."""
    streams = [
        call(n, failures, end, operation=op, tenant_id=tenant)
        for n, (failures, end, op, tenant) in enumerate(calls)
    ]
    found = figures(mixed(streams, random))
    assert_same(found.total, calls)
    for op, row in found.rows("operation")[0]:
        assert_same(row, [each for each in calls if each[2] == op])
    for tenant, row in found.rows("tenant")[0]:
        assert_same(row, [each for each in calls if (each[3] or "") == tenant])


def mixed(streams, random):
    """The events of all, each call's own in order."""
    streams = [stream[::-1] for stream in streams if stream]
    while streams:
        stream = random.choice(streams)
        yield stream.pop()
        if not stream:
            streams.remove(stream)


def assert_same(row, calls):
    ends = {end: [n for n, how, *_ in calls if how == end] for end in ("succeeded", "open")}
    vain = [n for n, how, *_ in calls if how in ("exhausted", "failed")]
    cut = [n for n, how, *_ in calls if how == "interrupted"]
    good, unfinished = ends["succeeded"], ends["open"]
    assert row.calls == len(calls)
    assert row.attempts == sum(good) + len(good) + sum(vain) + sum(cut) + len(cut) + sum(unfinished)
    assert row.recovery_rate == share(len(good), len(good) + len(vain))
    failed_retries = sum(n - 1 for n, *_ in calls)
    assert row.retry_success_rate == share(len(good), len(good) + failed_retries)
    assert row.mean_attempts == share(sum(good) + len(good) + sum(vain), len(good) + len(vain))
    assert (row.failed_before_success, row.failed_in_vain) == (sum(good), sum(vain))
    assert row.waited_before_success == pytest.approx(sum(sum(DELAYS[:n]) for n in good))
    assert row.waited_in_vain == pytest.approx(sum(sum(DELAYS[: n - 1]) for n in vain))
    rest = sum(sum(DELAYS[:n]) for n in (*cut, *unfinished))
    assert row.waited - row.waited_before_success - row.waited_in_vain == pytest.approx(rest)


def share(part, whole):
    return part / whole if whole else None


def test_delays_have_their_percentiles_and_their_error():
    events = [
        RetryAttempt(call_id=f"{n:x}", attempt_number=1, delay_seconds=n / 100)
        for n in range(1, 101)
    ]
    told = figures(events).to_dict()["total"]["delays"]
    assert told["count"] == 100
    assert told["relative_error"] == 0.01
    for name, true in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        assert told[name] == pytest.approx(true, rel=0.01)


def test_without_first_successes_the_rate_says_of_what_it_is():
    """A record of failing calls cannot know how many never failed."""
    events = [*call(1, 1, "succeeded"), *call(2, 2, "exhausted")]
    told = figures(events).to_dict()["total"]
    assert (told["success_rate"], told["success_rate_of"]) == (0.5, "calls that met a failure")


def test_first_successes_that_are_heard_make_it_the_rate_of_calls():
    events = [*call(1, 1, "succeeded"), *call(2, 2, "exhausted")]
    events += [CallSucceeded(total_attempts=1), CallSucceeded(total_attempts=1)]
    told = figures(events).to_dict()["total"]
    assert (told["success_rate"], told["success_rate_of"]) == (0.75, "calls")
    assert (told["recovery_rate"], told["mean_attempts"]) == (0.5, 6 / 4)


def test_counted_first_successes_count_for_their_operation():
    """They have no category and no tenant: those rows stay what they were."""
    counted = b'{"event_type":"calls_counted","operation":"a","calls":98}'
    events = [encode(e) for n in (1, 2) for e in call(n, 2, "exhausted", operation="a",
                                                      tenant_id="t")]  # fmt: skip
    found = stats(("w", data) for data in [*events, counted])
    ((_, operation),) = found.rows("operation")[0]
    assert (operation.success_rate, operation.attempts) == (0.98, 102)
    tenants = dict(found.rows("tenant")[0])
    assert tenants["t"].to_dict()["success_rate_of"] == "calls that met a failure"
    assert found.total.success_rate == 0.98


def test_reasons_refusals_fallbacks_and_openings_are_counted():
    events = [
        *call(1, 3, "exhausted"),
        *call(2, 1, "failed"),
        *call(3, 1, "failed"),
        CallRefused(by="mainstay.errors.CircuitOpenError"),
        FallbackUsed(),
        CircuitStateChanged(operation="db", from_state="closed", to_state="open"),
        CircuitStateChanged(operation="db", from_state="open", to_state="half_open"),
        CircuitStateChanged(operation="db", from_state="half_open", to_state="open"),
        CircuitStateChanged(operation="db", from_state="open", to_state="open"),
        HookFailed(),
    ]
    found = figures(events)
    told = found.to_dict()
    assert list(told["total"]["reasons"].items()) == [("not retryable", 2), ("no attempt left", 1)]
    assert told["total"]["refused_by"] == {"CircuitOpenError": 1}
    assert (found.total.refused, found.total.fallbacks) == (1, 1)
    assert told["circuits_opened"] == {"db": 2}
    assert found.events == len(events)


def test_two_writers_may_use_one_id():
    """A call is known by its writer and its id."""
    one, other = call(1, 1, "succeeded"), call(1, 3, "exhausted")
    pairs = [("w1", encode(e)) for e in one[:-1]] + [("w2", encode(e)) for e in other]
    found = stats([*pairs, ("w1", encode(one[-1]))])
    assert found.total.waited_before_success == pytest.approx(0.1)
    assert found.total.waited_in_vain == pytest.approx(0.3)


def test_a_wait_without_an_id_counts_as_a_wait_only():
    """Records in the control plane's own form have no id of the call."""
    found = figures([RetryAttempt(attempt_number=1, delay_seconds=0.5)])
    assert (found.total.waited, found.total.calls, found.total.unfinished) == (0.5, 0, 0)


def test_a_range_looks_at_the_end_of_calls():
    """What is outside is counted as that, and what has no time is in no range."""
    stamps = ["2026-01-25T10:00:00Z", "2026-01-25T11:00:00.500000Z", "2026-01-25T12:00:00Z", ""]
    events = [CallSucceeded(total_attempts=2, timestamp=stamp) for stamp in stamps]
    found = figures(events, since="2026-01-25T11:00:00", until="2026-01-25T12:00:00")
    assert found.total.recovered == 1
    assert (found.outside, found.undated) == (2, 1)
    assert (found.first, found.last) == (("2026-01-25T11:00:00.500000",) * 2)
    everything = figures(events)
    assert everything.total.recovered == 4
    assert (everything.first, everything.last) == ("2026-01-25T10:00:00", "2026-01-25T12:00:00")
    assert figures(events, until="2026-01-25T11:00:00").total.recovered == 1


def test_the_first_and_last_moment_are_found_in_any_order():
    events = [CallSucceeded(timestamp=f"2026-01-25T{hour}:00:00Z") for hour in (11, 10, 12)]
    found = figures(events)
    assert (found.first[11:13], found.last[11:13]) == ("10", "12")


def test_what_cannot_be_read_is_counted():
    """A broken line costs itself only."""
    lines = [b"{", b'{"event_type": 5}', b'"\xff"', encode(CallSucceeded(total_attempts=1))]
    found = stats(("w", line) for line in lines)
    assert (found.unreadable, found.total.calls) == (3, 1)


def test_records_that_a_log_has_lost_are_counted():
    """They are in no figure, and the figures state how many."""
    lost = [RecordsLost(records=5), RecordsLost(records=2)]
    found = figures([*lost, CallSucceeded(total_attempts=1)])
    assert (found.lost, found.to_dict()["lost"], found.total.calls) == (7, 7, 1)


def test_more_names_than_rows_are_summed_up():
    """The rows and the rest together are the total."""
    events = [e for n in range(30) for e in call(n, 1 + (n < 2), "exhausted", tenant_id=f"t{n}")]
    found = figures(events, by=("tenant",), top=2)
    rows, other = found.rows("tenant")
    assert [(name, row.attempts) for name, row in rows] == [("t0", 2), ("t1", 2)]
    assert (other.calls, found.total.calls) == (28, 30)
    told = found.to_dict()["by"]["tenant"]
    assert told["is_exact"] is True
    assert told["other"]["attempts"] == 28


def test_more_names_than_are_kept_are_told():
    """The busiest tenant is found among thousands that come once, with nothing missing."""
    found = Stats(by=("tenant",), top=2, names=8)
    for n in range(2000):
        for event in call(n, 1, "failed", tenant_id="big" if n % 4 == 0 else f"t{n}"):
            found.add("w", encode(event))
    found.close()
    told = found.to_dict()["by"]["tenant"]
    assert told["is_exact"] is False
    assert told["rows"][0]["tenant"] == "big"
    assert (told["rows"][0]["calls"], told["rows"][0]["missed_at_most"]) == (500, 0)
    assert told["rows"][1]["missed_at_most"] > 0
    assert sum(row["calls"] for row in told["rows"]) + told["other"]["calls"] == 2000


def test_without_tables_there_is_a_total():
    assert figures(call(1, 1, "succeeded"), by=()).total.recovered == 1


def test_calls_that_are_no_longer_followed_are_counted():
    """Too many open calls: the oldest go, their waits stay, and their end still counts."""
    found = Stats(open_calls=10)
    for n in range(15):
        for event in call(n, 1, "open"):
            found.add("w", encode(event))
    found.add("w", encode(call(0, 1, "succeeded")[-1]))
    found.close()
    assert found.forgotten == 5
    assert (found.total.unfinished, found.total.recovered) == (10, 1)
    assert found.total.waited == pytest.approx(1.5)
    assert found.total.waited_before_success == 0


def test_words_without_end_are_summed_up():
    """Reasons are few; were they many, they would still not fill the memory."""
    row, more = Figures(), Figures()
    for n in range(MOST_WORDS + 5):
        note(row.reasons, f"reason {n}")
        note(more.reasons, f"another {n}")
    row.merge(more)
    assert len(row.reasons) <= MOST_WORDS + 1
    assert sum(row.reasons.values()) == 2 * (MOST_WORDS + 5)


def test_memory_does_not_grow_with_the_record():
    """Six times the events, each of another tenant, and calls that never end: the same memory."""
    assert largest(18_000) < 1.2 * largest(3_000)


def largest(events):
    """The most bytes that the figures hold on the way, at every hundredth event.

    The allocator's own peak also counts what other threads of the process allocate meanwhile.
    """
    found, sizes = Stats(open_calls=200, names=32, top=5), []
    for n in range(events // 3):
        who = {"tenant_id": f"t{n}", "operation": f"op{n % 7}"}
        for event in call(n, 1, "succeeded" if n % 2 else "open", **who):
            found.add("w", encode(event))
        if n % 100 == 99:
            sizes.append(size_of(found))
    return max(sizes)


def size_of(value):
    """Bytes of a value and of all that it leads to, but for classes, functions and modules."""
    seen, left, size = {id(value)}, [value], 0
    while left:
        size += sys.getsizeof(each := left.pop())
        for held in gc.get_referents(each):
            if id(held) not in seen and not isinstance(held, type | FunctionType | ModuleType):
                seen.add(id(held))
                left.append(held)
    return size
