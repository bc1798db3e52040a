"""What if: another policy on recorded calls does what it does on real ones."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mainstay import (
    AttemptTimeout,
    Backoff,
    BreakerSettings,
    Engine,
    Jitter,
    KindRule,
    NestedRetryError,
    RetryBudget,
    RetryPolicy,
    UsageError,
    retry,
)
from mainstay.core.audit import recorded_calls as traffic_module
from mainstay.core.audit.comparison import MOST_MINUTES, Comparison, Load, compare
from mainstay.core.audit.recorded_calls import (
    INCOMPLETE,
    INTERRUPTED,
    NO_PLAN,
    TOO_LARGE,
    UNFINISHED,
    Attempt,
    Call,
    Traffic,
)
from mainstay.core.audit.whatif import MOST_CHANCES, Chances, Outcome, ready, recorded, rerun
from mainstay.core.base.rule import RULE
from mainstay.core.events.codec import encode
from mainstay.core.events.evidence import MOST_MEMBERS
from mainstay.core.retry.effects import Enclosing
from mainstay.core.retry.events import AttemptFailed, CallInterrupted, CallsCounted, CallSucceeded
from mainstay.runtime.plan_registry import plan_before
from mainstay.testing import no_retry, scripted, virtual_time


class Recorder:
    """A sink that keeps records as a log does."""

    wants_evidence = True
    hears_successes = True

    def __init__(self):
        self.lines = []
        self.known = set()

    def __call__(self, event):
        plan = plan_before(event, self.known)
        self.lines += [("w", encode(each)) for each in (plan, event) if each is not None]


class Lost(ConnectionError):
    """An exception of the user's own."""


def slow_down(seconds):
    error = RuntimeError("slow down")
    error.status_code, error.retry_after = 429, seconds
    return error


FAILURES = [
    lambda: ConnectionError("reset"),
    TimeoutError,
    Lost,
    lambda: ValueError("mistake"),
    lambda: slow_down(0.7),
    lambda: slow_down(4000.0),
    lambda: ExceptionGroup("two", [ConnectionError(), Lost()]),
]
POLICIES = st.builds(
    RetryPolicy,
    name=st.just("op"),
    max_attempts=st.integers(1, 5),
    backoff=st.sampled_from(
        [
            Backoff.constant(0.2),
            Backoff.exponential(0.1, factor=3.0, max_delay=1.0),
            Backoff.custom(lambda n: n * 0.37),
        ]
    ),
    jitter=st.sampled_from([Jitter.none(), Jitter.full(), Jitter.decorrelated()]),
    retry_on=st.sampled_from([None, (ConnectionError,), (Lost, "TimeoutError"), (Exception,)]),
    never_retry_on=st.sampled_from([(), (Lost,)]),
    classify=st.sampled_from([None, {Lost: "throttled"}]),
    per_kind=st.sampled_from([None, {"throttled": KindRule(max_attempts=2)}]),
    retry_if_result=st.sampled_from([None, lambda value: value == "not this"]),
    deadline=st.sampled_from([None, 0.5, 2.0]),
)
STEADY = RetryPolicy(name="op", max_attempts=4, backoff=Backoff.constant(0.2), jitter=Jitter.none())
SCRIPTS = st.lists(st.lists(st.integers(-1, len(FAILURES) - 1), max_size=6), min_size=1, max_size=6)


def run(policy, scripts, **engine):
    """The log of an engine whose every call meets its own script, then succeeds."""
    sink = Recorder()
    with virtual_time(start=1e9) as time:
        made = Engine(policies=[policy], sinks=[sink], seed=5, **engine)
        for script in scripts:
            made.run("op", function_of(script, time))
    return sink.lines


def function_of(script, time):
    left = list(reversed(script))

    def function():
        time.advance(0.03)
        which = left.pop() if left else None
        if which is None or which < 0:
            return "this" if which is None else "not this"
        failure = FAILURES[which]()
        raise failure

    return function


def calls_of(lines):
    """The calls that met a failure, by their keys."""
    traffic = Traffic()
    found = {call.key: call for call in traffic.calls(lines) if call.met_a_failure}
    assert not +traffic.left_out
    return found


def told(outcome):
    return outcome.attempts, outcome.succeeded, outcome.waited


@pytest.mark.req("CP-19", "CP-16")
@settings(max_examples=100)
@given(POLICIES, SCRIPTS)
@example(STEADY, [[0, 4, 0]])  # 0.2 + 0.7 + 0.2 is not what `sum` makes of it from Python 3.12 on
def test_the_recorded_policy_gives_the_record(policy, scripts):
    """Nothing is assumed, and every wait is the same to the bit."""
    for call in calls_of(run(policy, scripts)).values():
        again = rerun(call, ready(policy), Chances("succeed"))
        assert told(again) == told(recorded(call))
        assert again.assumed == 0


@pytest.mark.req("CP-19")
@settings(max_examples=150)
@given(POLICIES, POLICIES, SCRIPTS)
def test_another_policy_gives_what_it_gives_for_real(one, other, scripts):
    """The same calls are made under both: what is not assumed is what happened."""
    other = other.replace(retry_if_result=one.retry_if_result)  # results are in no record
    real = calls_of(run(other, scripts))
    for key, call in calls_of(run(one, scripts)).items():
        again = rerun(call, ready(other), Chances("fail"))
        if again.assumed == 0:
            assert told(again) == told(recorded(real[key]))


def test_the_laws_above_compare_something():
    """Under a stricter policy nothing is assumed, and most calls come out otherwise."""
    scripts = [[0, 0, 0], [0, 1], [2, 2, 2, 2], [0, 3]]
    patient = RetryPolicy(name="op", max_attempts=5, backoff=Backoff.constant(1))
    calls = calls_of(run(patient, scripts))
    hasty = ready(patient.replace(max_attempts=2))
    again = [rerun(call, hasty, Chances()) for call in calls.values()]
    assert [recorded(call).attempts for call in calls.values()] == [4, 3, 5, 2]
    assert [(each.attempts, each.succeeded) for each in again] == [
        (2, False), (2, False), (2, False), (2, False),
    ]  # fmt: skip
    assert [each.assumed for each in again] == [0, 0, 0, 0]


# --- what the record cannot know ------------------------------------------------------------------

SHORT = RetryPolicy(name="op", max_attempts=2, backoff=Backoff.constant(1), jitter=Jitter.none())
LONG = SHORT.replace(max_attempts=4)


def compared(lines, policy=LONG, **options):
    found, traffic = compare(lambda: lines, lambda *_: policy, **options)
    return found.to_dict()["total"], found, traffic


@pytest.mark.req("CP-19")
@pytest.mark.parametrize(
    ("assume", "succeeded", "attempts", "assumed"),
    [("fail", 0, 4, 2), ("succeed", 1, 3, 1)],
)
def test_an_attempt_that_was_never_made_is_assumed(assume, succeeded, attempts, assumed):
    """And counted: once for each."""
    total, found, _ = compared(run(SHORT, [[0, 0, 0, 0]]), assume=assume)
    assert (total["new"]["succeeded"], total["new"]["attempts"]) == (succeeded, attempts)
    assert (total["assumed_outcomes"], total["calls_with_assumed_outcomes"]) == (assumed, 1)
    assert found.to_dict()["assumption"]["rule"] == assume


@pytest.mark.req("CP-19")
def test_by_rate_it_succeeds_as_often_as_recorded_ones_did():
    """Of 400 retried attempts after a reset, half succeeded; so do half of the assumed ones."""
    lines = run(SHORT, [[0], [0, 0]] * 200)
    total, _, _ = compared(lines, SHORT.replace(max_attempts=3))
    assert total["assumed_outcomes"] == 200
    gained = total["new"]["succeeded"] - total["recorded"]["succeeded"]
    assert 70 < gained < 130
    assert compared(lines, SHORT.replace(max_attempts=3))[0] == total
    more, _, _ = compared(lines, SHORT.replace(max_attempts=5))  # each attempt is drawn for itself
    assert 155 < more["new"]["succeeded"] - more["recorded"]["succeeded"] < 195


def test_the_rate_is_that_of_the_kind_of_failure():
    """What follows a timeout is told apart from what follows a reset."""
    chances = Chances()
    call = Call("op", "p")
    for kind, ends in (("timeout", (1, 1, 1, 0)), ("transient", (0, 0))):
        for end in ends:
            retried = Attempt(None if end else object(), kind)
            call.attempts = [Attempt(object(), kind), retried]
            chances.learn(call)
    assert chances.of("op", "timeout") == 0.75
    assert chances.of("op", "transient") == 0.0
    assert chances.of("op", "throttled") == 0.5  # the operation's
    assert chances.of("other", "timeout") == 0.5  # that of all
    assert Chances().of("op", "timeout") == 0.0


def test_operations_without_end_have_the_chance_of_all():
    chances = Chances()
    for n in range(MOST_CHANCES):
        chances.learn(Call(f"op{n}", "p", attempts=[Attempt(object(), "k"), Attempt(None)]))
    assert len(chances._seen) == MOST_CHANCES
    assert chances.of(f"op{n}", "k") == 1.0


def test_a_rule_that_there_is_not_is_refused():
    with pytest.raises(UsageError, match="assume='luck': there are rate, fail, succeed"):
        Chances("luck")


def test_a_function_cannot_judge_a_record():
    """It would be asked about a stand-in, and answer as if it were the exception."""
    for fields in (
        {"retry_on": lambda error: True},
        {"never_retry_on": (lambda error: True,)},
        {"classify": {(lambda error: True): "transient"}},
    ):
        with pytest.raises(UsageError, match="cannot be asked") as refused:
            ready(RetryPolicy(**fields))
        assert "name classes" in refused.value.hint


# --- time -----------------------------------------------------------------------------------------


def timed(seconds, timeout=None, **opening):
    """A call whose first attempt failed after so many seconds, and whose second succeeded."""
    (call,) = calls_of(run(SHORT.replace(attempt_timeout=timeout), [[0]])).values()
    call.attempts[0].seconds = seconds
    for name, value in opening.items():
        call.opening = type(call.opening)(call.opening.started, **{name: value})
    return call


def test_an_attempt_that_is_allowed_less_time_is_cut():
    """After the new limit, as a timeout; the clock stands there."""
    again = rerun(timed(5.0), ready(SHORT.replace(attempt_timeout=2.0)), Chances())
    assert again.starts == (0.0, 3.0)
    assert again.succeeded
    never = SHORT.replace(attempt_timeout=2.0, never_retry_on=TimeoutError)
    assert not rerun(timed(5.0), ready(never), Chances()).succeeded
    assert rerun(timed(1.0), ready(never), Chances()).succeeded


def test_an_attempt_that_ran_over_its_limit_is_not_cut_by_the_same():
    """Nobody cut it then; nobody does now."""
    policy = SHORT.replace(attempt_timeout=2.0, never_retry_on=TimeoutError)
    assert rerun(timed(2.5, timeout=2.0), ready(policy), Chances()).succeeded


def test_a_deadline_cuts_too():
    policy = ready(SHORT.replace(deadline=2.0))
    again = rerun(timed(5.0), policy, Chances())
    assert (again.succeeded, again.attempts) == (False, 1)


def test_a_deadline_around_the_call_holds_under_any_policy():
    (call,) = calls_of(run(SHORT, [[0]])).values()
    until = call.opening.started + 0.5
    call.opening = type(call.opening)(call.opening.started, until=until)
    again = rerun(call, ready(SHORT), Chances())
    assert (again.succeeded, again.attempts) == (False, 1)  # the wait of 1 s would pass it


def test_an_attempt_that_was_cut_and_has_more_time_now_is_assumed():
    """It might have succeeded, had it not been cut."""
    with virtual_time(start=1e9):
        sink = Recorder()
        engine = Engine(policies=[SHORT.replace(attempt_timeout=2.0)], sinks=[sink], seed=1)
        engine.run("op", scripted(AttemptTimeout(2.0), 1))
    (call,) = calls_of(sink.lines).values()
    more = ready(SHORT.replace(attempt_timeout=9.0))
    again = rerun(call, more, Chances("succeed"))
    assert (again.attempts, again.succeeded, again.assumed) == (1, True, 1)
    same = rerun(call, ready(SHORT.replace(attempt_timeout=2.0)), Chances("succeed"))
    assert (same.attempts, same.assumed) == (2, 0)


# --- others who have a say ------------------------------------------------------------------------


def test_a_guard_says_what_it_said():
    """A budget that ended a call ends it under a longer policy too, at that attempt."""
    lines = run(LONG, [[0, 0, 0]] * 6, guards=[RetryBudget(floor=2, ratio=0.01)])
    calls = list(calls_of(lines).values())
    refused = [call for call in calls if call.refusal]
    assert refused
    longer = ready(LONG.replace(max_attempts=9))
    for call in refused:
        again = rerun(call, longer, Chances("succeed"))
        assert told(again) == told(recorded(call))
        assert again.assumed == 0


def test_a_guard_that_refused_after_the_wait_does_so_again():
    """The wait is waited, the attempt is not made."""
    (call,) = calls_of(run(SHORT, [[0, 0]])).values()
    call.attempts.pop()
    call.refusal, call.refused_after_wait, call.unused_wait = "the circuit is open", True, 1.0
    again = rerun(call, ready(LONG), Chances("succeed"))
    assert told(again) == told(recorded(call)) == (1, False, 1.0)


def test_a_circuit_that_opens_in_a_wait_is_in_the_record():
    """As other calls let it open; the refusal is told from an attempt."""
    lines = run(
        LONG, [[0, 0, 0, 0]], breaker=BreakerSettings(failure_threshold=2, recovery_timeout=60)
    )
    (call,) = calls_of(lines).values()
    assert call.refusal
    assert told(rerun(call, ready(LONG), Chances("succeed"))) == told(recorded(call))


def test_an_enclosing_retry_is_still_there():
    """By version 1 of the rules an inner call stood back, and does under any policy."""
    (call,) = calls_of(run(SHORT, [[0, 0]])).values()
    assert call.rule == RULE
    del call.attempts[1:]
    call.rule, call.enclosing = 1, Enclosing("outer", 3)
    again = rerun(call, ready(LONG), Chances("succeed"))
    assert told(again) == told(recorded(call)) == (1, False, 0.0)


def test_a_call_that_an_enclosing_retry_refused_is_refused_again():
    """The refusal is in the record, with the name and the attempts of the outer one."""
    sink = Recorder()
    inner = retry(policy=SHORT, listener=sink)(scripted(ConnectionError, 1))
    outer = Engine(
        policies=[RetryPolicy(name="outer", retry_on=OSError, nested="refuse")], sinks=[]
    )
    with virtual_time(), pytest.raises(NestedRetryError):
        outer.call("outer", inner)
    (call,) = calls_of(sink.lines).values()
    assert (call.enclosing.operation, call.enclosing.attempts) == ("outer", 3)
    again = rerun(call, ready(LONG), Chances("succeed"))
    assert told(again) == told(recorded(call)) == (1, False, 0.0)


def test_an_inner_retry_that_gave_up_is_not_repeated():
    sink = Recorder()
    error = ConnectionError("down")
    inner = SHORT.replace(max_attempts=3)
    engine = Engine(policies=[SHORT], sinks=[sink], seed=1)

    def task():
        with ThreadPoolExecutor() as pool:
            return pool.submit(inner.call, scripted(error, error, error)).result()

    with virtual_time(), pytest.warns(Warning, match="avoided"):
        engine.run("op", task)
    (call,) = calls_of(sink.lines).values()
    assert call.attempts[0].inner == 3
    again = rerun(call, ready(LONG), Chances("succeed"))
    assert told(again) == told(recorded(call)) == (1, False, 0.0)


def test_a_date_to_come_back_at_is_read_by_the_calls_own_clock():
    sink = Recorder()
    error = slow_down("Sun, 09 Sep 2001 01:46:45 GMT")  # 5 s after the start
    with virtual_time(start=1e9):
        Engine(policies=[SHORT], sinks=[sink], seed=1).run("op", scripted(error, 1))
    (call,) = calls_of(sink.lines).values()
    assert recorded(call).waited == 5.0
    assert rerun(call, ready(SHORT), Chances()).waited == 5.0


def test_a_smaller_number_of_attempts_holds():
    """Where the caller had switched retries off."""
    sink = Recorder()
    with virtual_time(), no_retry():
        Engine(policies=[SHORT], sinks=[sink], seed=1).run("op", scripted(ConnectionError, 1))
    for call in calls_of(sink.lines).values():
        assert rerun(call, ready(LONG), Chances("succeed")).attempts == 1


def test_hooks_of_the_new_policy_are_not_called():
    called = []
    hooked = LONG.replace(before_retry=called.append, after_retry=called.append)
    (call,) = calls_of(run(SHORT, [[0]])).values()
    assert rerun(call, ready(hooked), Chances()).succeeded
    assert called == []


# --- traffic --------------------------------------------------------------------------------------


def left_out(lines):
    traffic = Traffic()
    assert [call for call in traffic.calls(lines) if call.met_a_failure] == []
    return dict(+traffic.left_out)


def without(lines, *names):
    return [(w, line) for w, line in lines if json.loads(line)["event_type"] not in names]


def test_what_cannot_be_put_together_is_left_out_with_the_reason():
    lines = run(SHORT, [[0]])
    assert left_out(without(lines, "plan_declared")) == {NO_PLAN: 1}
    assert left_out(without(lines, "attempt_failed")) == {INCOMPLETE: 1}
    assert left_out(without(lines, "call_succeeded")) == {UNFINISHED: 1}
    cut = CallInterrupted(operation="op", call_id=json.loads(lines[1][1])["call_id"])
    assert left_out([*lines[:-1], ("w", encode(cut))]) == {INTERRUPTED: 1}
    bare = [(w, encode(AttemptFailed(call_id="7f", attempt_number=1))) for w, _ in lines[:1]]
    end = ("w", encode(CallSucceeded(call_id="7f", total_attempts=2)))
    assert left_out([*bare, end]) == {INCOMPLETE: 1}


def test_a_call_with_a_hole_in_it_is_left_out():
    """Its second failure is missing, or has lost its proof."""
    lines = run(LONG, [[0, 0, 0]])
    failed = [n for n, (_, line) in enumerate(lines) if b'"attempt_failed"' in line]
    assert left_out([*lines[: failed[1]], *lines[failed[1] + 1 :]]) == {INCOMPLETE: 1}
    last = [n for n, (_, line) in enumerate(lines) if b'"attempt_number":3' in line]
    assert left_out([*lines[: last[0]], *lines[last[1] + 1 :]]) == {INCOMPLETE: 1}
    event = json.loads(lines[failed[1]][1])
    del event["proof"]
    lines[failed[1]] = ("w", json.dumps(event).encode())
    assert left_out(lines) == {INCOMPLETE: 1}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"call_id":"', b'"call_id":"x'),
        (b'"proof":{"plan"', b'"proof":{"answers":[["an outer one"]],"plan"'),
    ],
)
def test_what_is_not_of_our_making_is_left_out(old, new):
    """An id that is no number, an enclosing retry without its attempts."""
    lines = run(SHORT, [[0]])
    assert any(old in line for _, line in lines)
    assert left_out([(w, line.replace(old, new)) for w, line in lines]) == {INCOMPLETE: 1}


def test_a_group_too_large_to_keep_is_left_out():
    sink = Recorder()
    many = ExceptionGroup("many", [ConnectionError()] * (MOST_MEMBERS + 1))
    with virtual_time():
        Engine(policies=[SHORT], sinks=[sink], seed=1).run("op", scripted(many, 1))
    assert left_out(sink.lines) == {TOO_LARGE: 1}


def test_calls_that_never_end_do_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(traffic_module, "MOST_OPEN", 5)
    lines = [("w", encode(AttemptFailed(call_id=f"{n:x}", attempt_number=1))) for n in range(20)]
    traffic = Traffic()
    assert list(traffic.calls(lines)) == []
    assert traffic.left_out == {UNFINISHED: 20}


def test_what_cannot_be_read_is_counted():
    traffic = Traffic()
    lines = [("w", b"{"), ("w", b'{"event_type":"later"}'), ("w", encode(CallSucceeded()))]
    assert list(traffic.calls(lines)) == []
    assert traffic.unreadable == 2


def test_first_successes_are_the_same_under_any_policy():
    """Heard one by one, or counted."""
    lines = [
        ("w", encode(CallSucceeded(operation="op", total_attempts=1, total_seconds=3.0))),
        ("w", encode(CallsCounted(operation="op", calls=40, timestamp="2026-01-25T21:00:00Z"))),
        ("w", encode(CallsCounted(operation="op", calls=9, timestamp="2026-01-25T21:00:00"))),
    ]
    total, found, _ = compared(lines, SHORT.replace(attempt_timeout=2.0))
    assert total["calls"] == total["new"]["attempts"] == total["recorded"]["succeeded"] == 50
    assert total["recorded"]["waited_mean"] is None
    assert found.long_successes == 1
    assert found.load.peaks() == (49 / 60, 49 / 60)
    assert compared(lines, SHORT)[1].long_successes == 0


# --- side by side ---------------------------------------------------------------------------------


def outcome(*starts, succeeded=True):
    return Outcome(succeeded, sum(starts), starts)


def test_the_load_is_told_by_the_minute():
    """And the time in which nothing happened is not drawn over."""
    load = Load()
    load.add(Call("op", "p", wall=600.0), outcome(0.0, 59.0), outcome(0.0, 61.0, 62.0))
    load.add(Call("op", "p", wall=1200.0, count=60), outcome(0.0), outcome(0.0))
    load.add(Call("op", "p", wall=None), outcome(0.0), outcome(0.0))
    assert load.series() == [
        (600.0, 2 / 60, 1 / 60),
        (660.0, 0.0, 2 / 60),
        (720.0, 0.0, 0.0),
        (1140.0, 0.0, 0.0),
        (1200.0, 1.0, 1.0),
    ]
    assert load.peaks() == (1.0, 1.0)
    assert Load().peaks() == (0.0, 0.0)


def test_a_long_record_has_wider_spans(monkeypatch):
    monkeypatch.setattr("mainstay.core.audit.comparison.MOST_MINUTES", 10)
    load = Load()
    for minute in range(100):
        load.add(Call("op", "p", wall=60.0 * minute), outcome(0.0), outcome(0.0, 1.0))
    assert load.width == 960.0
    assert len(load.series()) <= 10 < MOST_MINUTES
    assert sum(was for _, was, _ in load.series()) * load.width == pytest.approx(100)
    assert sum(now for _, _, now in load.series()) * load.width == pytest.approx(200)


def test_operations_keep_their_policy_where_none_is_chosen():
    lines = run(SHORT, [[0, 0]] * 3)
    found, _ = compare(lambda: lines, lambda operation, policy: None)
    total = found.to_dict()["total"]
    assert total["recorded"] == total["new"]
    assert found.unchanged == 3
    assert (
        compare(lambda: lines, lambda operation, policy: LONG if policy == "op" else None)[
            0
        ].total.new.attempts
        > total["recorded"]["attempts"]
    )


def test_operations_beyond_the_first_are_summed_up():
    """The rows and the rest together are the total, also where names were too many to keep."""
    for names, count in ((256, 6), (4, 40)):
        found = Comparison(lambda *_: None, Chances(), top=1, names=names)
        for n in range(count):
            found.add(Call(f"op{n}", "p", attempts=[Attempt(None)], count=1 + (n == 0)))
        (first,), other = found.rows()
        assert first[1].calls + other.calls == found.total.calls == count + 1
        assert (found.operations.gone > 0) == (names == 4)
        assert found.to_dict()["other"]["calls"] == other.calls


def test_without_assumption_by_rate_the_record_is_read_once():
    """The rate needs a pass of its own."""
    passes = []

    def read():
        passes.append(1)
        return []

    for assume, times in (("rate", 2), ("fail", 1)):
        passes.clear()
        compare(read, lambda *_: None, assume=assume)
        assert len(passes) == times
