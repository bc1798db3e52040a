"""Replay: whatever was decided is decided again, and what was changed is found."""

import json
import random
import threading
from collections import deque
from pathlib import Path
from urllib.error import URLError

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainstay import (
    AdaptiveThrottle,
    Backoff,
    BreakerSettings,
    Engine,
    Jitter,
    KindRule,
    MemoryGuard,
    RateLimit,
    RetryBudget,
    RetryPolicy,
    TokenBudget,
    Window,
)
from mainstay.core.audit import reconstruct as standins
from mainstay.core.audit.plan_codec import declared
from mainstay.core.audit.reconstruct import exception_of, policy_of
from mainstay.core.audit.replay import MOST_OPEN, Replay
from mainstay.core.audit.replay_call import CallReplay, Declared
from mainstay.core.base.proof import RULE, Opening, stated
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.events import evidence
from mainstay.core.events.builder import EventBuilder
from mainstay.core.events.codec import decode, encode
from mainstay.core.events.evidence import MOST_MEMBERS, evidence_of
from mainstay.core.known.kind import Kind
from mainstay.core.retry.events import CallRefused
from mainstay.core.retry.plan import Plan
from mainstay.drivers.call.guard import Guard, label_of
from mainstay.errors import CircuitOpenError, NestedRetryWarning, Refused
from mainstay.runtime.plan_registry import plan_before
from mainstay.testing import virtual_time

RECORDED = Path(__file__).parent / "recorded" / "logs"


class Recorder:
    """A sink that keeps records as a log does: each plan before its first use."""

    wants_evidence = True
    hears_successes = False

    def __init__(self):
        self.lines = []
        self.known = set()

    def __call__(self, event):
        plan = plan_before(event, self.known)
        self.lines += [encode(each) for each in (plan, event) if each is not None]


def replayed(lines):
    replay = Replay()
    for number, line in enumerate(lines, 1):
        replay.feed(number, "w", decode(line))
    return replay.finish()


# --- failures of every sort -----------------------------------------------------------------------


class Throttled(Exception):
    """As a service's own exception."""


class Slow(Throttled, TimeoutError):
    """Of two families."""


class Denied(Exception):
    """With a status of its own."""

    status_code = 403


def carrying(cls, **attributes):
    error = cls("text")
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


class Response:
    def __init__(self, status, headers):
        self.status_code = status
        self.headers = headers


FAILURES = [
    lambda: ConnectionResetError(104, "reset"),
    lambda: OSError(11, "again"),
    lambda: OSError("no number"),
    lambda: PermissionError(13, "denied"),
    lambda: ValueError("mistake"),
    lambda: KeyError("missing"),
    TimeoutError,
    lambda: Throttled("slow down"),
    lambda: Slow("both"),
    lambda: Denied("no"),
    lambda: carrying(RuntimeError, status_code=503),
    lambda: carrying(RuntimeError, code="ThrottlingException"),
    lambda: carrying(RuntimeError, code=7, sqlstate="40001", error_code="E", pgcode="P"),
    lambda: carrying(Throttled, retry_after=0.7),
    lambda: carrying(Throttled, retry_after="Sun, 15 Nov 2026 13:15:00 GMT"),
    lambda: carrying(Throttled, retry_after=4000.0),
    lambda: carrying(Throttled, response={"Error": {"Code": "SlowDown"}}),
    lambda: carrying(Throttled, response=Response(429, {"Retry-After": "1"})),
    lambda: ExceptionGroup("several", [ConnectionError(), Throttled()]),
    lambda: ExceptionGroup("several", [ConnectionError(), ValueError()]),
    lambda: json.JSONDecodeError("bad", "doc", 0),
    lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
    lambda: type("Outer", (), {"Inner": type("Inner", (Throttled,), {})}).Inner(),
]


@pytest.mark.req("CP-16")
@pytest.mark.parametrize("make", FAILURES, ids=[str(n) for n in range(len(FAILURES))])
def test_a_stand_in_is_judged_as_the_failure_was(make):
    """By every sort of rule: class, base, name, code, kind; also after JSON."""
    failure = make()
    for rules in (None, (OSError,), (Throttled,), ("Throttled", "SlowDown", "40001", "7"), ("P",)):
        policy = RetryPolicy(retry_on=rules, never_retry_on=("E",))
        verdict = policy.classification(failure)
        again = policy.replace(
            retry_on=tuple("Throttled" if rule is Throttled else rule for rule in rules or ())
            if rules
            else None
        ).classification(exception_of(evidence_of(failure, verdict)))
        assert (again.kind, again.retryable) == (verdict.kind, verdict.retryable)
        assert again.retry_after == verdict.retry_after


def rule_of(index):
    return (
        OSError, ConnectionError, Throttled, Exception, "Throttled", "SlowDown", "403", Denied,
        lambda error: "text" in str(error), PermissionError, ExceptionGroup,
    )[index]  # fmt: skip


RULES = st.lists(st.integers(0, 10), max_size=3).map(lambda found: tuple(map(rule_of, found)))
SECONDS = st.sampled_from([0.0, 0.1, 0.5, 2.0])
BACKOFFS = st.sampled_from(
    [
        Backoff.constant(0.2),
        Backoff.exponential(0.1, factor=3.0, max_delay=1.0),
        Backoff.linear(0.1, step=0.3),
        Backoff.custom(lambda n: n * 0.37),
        Backoff.custom(lambda n: 1 / (n - 2)),
        Backoff.chain(0.1, 0.7, Backoff.linear(0.2)),
    ]
)
JITTERS = st.sampled_from(
    [Jitter.none(), Jitter.full(), Jitter.equal(), Jitter.percent(0.3), Jitter.decorrelated(),
     Jitter.additive(0.4)]
)  # fmt: skip


class Hinted(str):
    """A result that asks for a wait."""

    __slots__ = ()
    retry_after = 0.6


def computed_wait(outcome):
    """A wait of some outcomes: of one it is no number, and on one it fails."""
    waits = {"not this": 0.45, Throttled: 0.25, Slow: "long", KeyError: None}
    return waits[outcome if isinstance(outcome, str) else type(outcome)]


POLICIES = st.builds(
    RetryPolicy,
    name=st.just("standard"),
    max_attempts=st.integers(1, 5),
    backoff=BACKOFFS,
    jitter=JITTERS,
    retry_on=st.none() | RULES,
    never_retry_on=RULES,
    classify=st.none() | st.just({Throttled: "throttled", (lambda e: "rese" in str(e)): "timeout"}),
    per_kind=st.none()
    | st.just({"throttled": KindRule(max_attempts=2, backoff=Backoff.constant(0.3))})
    | st.just({"transient": KindRule(jitter=Jitter.full())}),
    retry_if_result=st.none() | st.just(lambda value: value == "not this"),
    wait_from=st.none() | st.just(computed_wait),
    deadline=st.none() | st.floats(0.05, 3.0),
    max_retry_after=st.sampled_from([0.5, 60.0]),
    respect_retry_after=st.booleans(),
)
OUTCOMES = st.lists(st.integers(-3, len(FAILURES) - 1), min_size=1, max_size=40)


def guards_of(names):
    makers = {
        "budget": lambda: RetryBudget(floor=3, ratio=0.1),
        "tokens": lambda: TokenBudget(capacity=20, cost=5),
        "rate": lambda: RateLimit(per_second=2.0, burst=1, max_wait=1.0),
        "throttle": lambda: AdaptiveThrottle(floor=4, seed=1),
        "memory": lambda: MemoryGuard(1000, probe=lambda: 1200),
        "little": lambda: MemoryGuard(1000, probe=lambda: 100),
    }
    return [makers[name]() for name in names]


GUARDS = st.lists(
    st.sampled_from(["budget", "tokens", "rate", "throttle", "memory", "little"]),
    unique=True, max_size=3,
)  # fmt: skip
BREAKERS = st.sampled_from(
    [
        None,
        BreakerSettings(failure_threshold=3, recovery_timeout=1.0),
        BreakerSettings(window=Window.calls(6), min_calls=3, ramp=2.0),
        BreakerSettings(
            window=Window.seconds(10.0), min_calls=3, recovery_jitter=Jitter.percent(0.5)
        ),
    ]
)


def throws(error):
    def function():
        raise error

    return function


def run(engine, outcomes, time):
    """Calls until the outcomes are used up; time goes on between them."""
    left = list(reversed(outcomes))

    def function():
        which = left.pop() if left else -1
        time.advance(0.03)
        if which < 0:
            return {-1: "this", -2: "not this"}.get(which, Hinted("not this"))
        failure = FAILURES[which]()
        raise failure

    for _ in range(len(outcomes)):
        engine.run("op", function)
        time.advance(0.4)


@pytest.mark.req("CP-16", "CP-12", "CP-13")
@settings(max_examples=150, deadline=None)
@given(policy=POLICIES, outcomes=OUTCOMES, guards=GUARDS, breaker=BREAKERS)
def test_any_sequence_of_outcomes_replays(policy, outcomes, guards, breaker):
    """Under any policy, behind any guards: from the bytes of the log alone."""
    sink = Recorder()
    with virtual_time() as time:
        engine = Engine(
            sinks=[sink], policies=[policy], guards=guards_of(guards), breaker=breaker, seed=5
        )
        run(engine, outcomes, time)
    report = replayed(sink.lines)
    assert report.divergence is None
    assert not report.unproved
    assert report.events == len(sink.lines)


def a_log(seed=1, **fields):
    """A log of sixty calls with trouble of every sort."""
    sink, rand = Recorder(), random.Random(seed)
    with virtual_time(start=1000.0) as time:
        policy = RetryPolicy(name="standard", max_attempts=3, retry_on=(OSError, Throttled))
        engine = Engine(
            sinks=[sink],
            policies=[policy.replace(**fields)],
            guards=[RetryBudget(floor=4)],
            breaker=BreakerSettings(failure_threshold=6, recovery_timeout=1.0),
            seed=seed,
        )
        run(engine, [rand.randrange(-6, len(FAILURES)) for _ in range(60)], time)
    return sink.lines


@pytest.mark.req("CP-16")
def test_a_changed_policy_is_named_at_the_first_decision_that_differs():
    """Both sides are shown."""
    lines = a_log()
    plan = json.loads(lines[0])
    plan["fields"]["max_attempts"] = 2
    report = replayed([json.dumps(plan), *lines[1:]])
    first = next(n for n, line in enumerate(lines, 1) if b"attempt_failed" in line)
    found = report.divergence
    assert (found.number, found.field, found.recorded, found.recomputed) == (
        first, "max_attempts", 3, 2
    )  # fmt: skip
    assert str(found).startswith(f"record {first} (attempt_failed of 'op', call ")


DECIDED = {
    "attempt_failed": ("kind", "reason", "retryable"),
    "retry_attempt": ("delay_seconds", "kind", "key"),
    "retry_exhausted": ("reason", "total_attempts", "total_seconds"),
    "call_failed": ("reason", "kind"),
    "call_succeeded": ("total_attempts",),
    "circuit_state_changed": ("to_state", "reason", "generation", "failure_count"),
}
CHANGED = [(name, field) for name, fields in DECIDED.items() for field in fields]


@pytest.mark.parametrize(("name", "field"), CHANGED, ids=[f"{n}-{f}" for n, f in CHANGED])
def test_a_decision_that_was_recorded_otherwise_is_found(name, field):
    """Every field the core decides, of every event; the record's number, and both values."""
    lines = a_log()
    events = [json.loads(line) for line in lines]
    told = [i for i, event in enumerate(events) if event["event_type"] == name]
    at = next(i for i in told if events[i]["call_id"] or name == "circuit_state_changed")
    event = events[at]
    right = event[field]
    event[field] = not right if type(right) is bool else right + ("x" if type(right) is str else 1)
    report = replayed([*lines[:at], json.dumps(event), *lines[at + 1 :]])
    assert report.divergence.number == at + 1
    assert report.divergence.field == field
    assert report.divergence.recomputed == right


def test_what_a_guard_said_otherwise_is_found():
    """A budget that is recorded as having allowed what it cannot."""
    lines = a_log()
    at = next(i for i, line in enumerate(lines) if b'"RetryBudget:retries"' in line and i)
    event = json.loads(lines[at])
    mine = next(w for w in event["proof"]["witness"] if w[0] == "RetryBudget:retries")
    mine[2] = not mine[2]
    report = replayed([*lines[:at], json.dumps(event), *lines[at + 1 :]])
    assert (report.divergence.number, report.divergence.field) == (at + 1, "RetryBudget:retries")


def test_a_refusal_is_decided_again():
    """From the circuit as it was."""
    lines = a_log()
    at = next(i for i, line in enumerate(lines) if b'"event_type":"call_refused"' in line)
    assert replayed(lines).ok
    event = json.loads(lines[at])
    event["proof"]["witness"][0][1][0]["state"] = "closed"
    report = replayed([*lines[:at], json.dumps(event), *lines[at + 1 :]])
    assert (report.divergence.number, report.divergence.recomputed) == (at + 1, "admitted")


def test_a_call_is_replayed_by_the_rules_that_it_was_decided_by():
    """Those that state none are of the first version; a later one than ours is not guessed."""
    lines = a_log()
    first = next(i for i, line in enumerate(lines) if b'"opening"' in line)
    event = json.loads(lines[first])
    assert decode(json.dumps(event).encode()).proof.rule == RULE
    whole = replayed(lines)
    own = [each for each in event["proof"]["answers"] if each != {"rule": RULE}]
    for rule, calls in ((1, whole.calls), (RULE, whole.calls), (RULE + 1, whole.calls - 1)):
        answers = [{"rule": rule}, *own]
        stated = {**event, "proof": {**event["proof"], "answers": answers}}
        report = replayed([*lines[:first], json.dumps(stated), *lines[first + 1 :]])
        assert (report.ok, report.calls) == (True, calls)
        later = report.unproved["it was decided by the rules of a later version"]
        assert later == (rule > RULE)


@pytest.mark.parametrize("name", ["circuit_state_changed", "call_refused"])
def test_what_a_later_version_decided_beside_a_call_is_not_guessed(name):
    """A change of a circuit and a refusal are counted as a call is, and are no difference."""
    lines, mark = a_log(), b'"event_type":"%b"' % name.encode()
    at = next(i for i, line in enumerate(lines) if mark in line)
    event, whole = json.loads(lines[at]), replayed(lines)
    event["proof"]["answers"] = [{"rule": RULE + 1}, "what only that version can read"]
    report = replayed([*lines[:at], json.dumps(event), *lines[at + 1 :]])
    assert (report.ok, report.decisions) == (True, whole.decisions - 1)
    assert report.unproved["it was decided by the rules of a later version"] == 1


def test_a_call_states_the_version_of_its_rules_first():
    """From the second version on: then replay of an older release cannot take it for its own."""
    event = decode(next(line for line in a_log() if b'"opening"' in line))
    assert event.proof.rule == RULE
    assert event.proof.answers[:1] == [*stated(RULE)]


def of_version_1(answers, reason):
    """The record of a call that an enclosing retry, or a mark, ended after its first attempt."""
    policy = RetryPolicy(name="standard", max_attempts=1, jitter=Jitter.none())
    plan, failed, end = map(json.loads, recorded(throws(ConnectionError("x")), policy=policy))
    plan["fields"]["max_attempts"] = failed["max_attempts"] = 3
    failed["proof"]["answers"] = failed["proof"]["answers"][1:]
    end["event_type"], end["reason"] = "call_failed", f"{reason}; a ConnectionError"
    end["proof"]["answers"] = [*answers, *end["proof"]["answers"]]
    return [json.dumps(event) for event in (plan, failed, end)]


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([["outer", 3]], "left to the enclosing retry"),
        ([None, {"inner": 4}], "an inner retry has given up on it"),
    ],
)
def test_a_call_that_stood_back_by_version_1_still_replays(answers, reason):
    """An enclosing retry took its retries; under the rules of now it would have them."""
    lines = of_version_1(answers, reason)
    report = replayed(lines)
    assert (report.divergence, report.calls) == (None, 1)
    lines[1] = lines[1].replace('"answers": [', '"answers": [{"rule": 2}, ')
    assert not replayed(lines).ok  # the rules of now decide otherwise, or ask otherwise


def recorded_waits(failure, rule, attempts=2, **fields):
    """The first delay that comes out otherwise if such a call is replayed by that version."""
    sink = Recorder()
    policy = RetryPolicy(name="standard", max_attempts=attempts, retry_on=Throttled, **fields)
    with virtual_time():
        Engine(sinks=[sink], policies=[policy], seed=5).run("op", throws(failure()))
    events = [json.loads(line) for line in sink.lines]
    proof = next(each for each in events if each["event_type"] == "attempt_failed")["proof"]
    proof["answers"] = [{"rule": rule}, *proof["answers"][1:]]
    if rule == 1:  # it asked for an enclosing retry, of which there was none
        scheduled = next(each for each in events if each["event_type"] == "retry_attempt")
        scheduled["proof"]["answers"] = [None, *scheduled["proof"].get("answers", ())]
    report = replayed([json.dumps(each) for each in events])
    return report.divergence.recomputed if report.divergence else "the same"


@pytest.mark.parametrize(
    ("failure", "fields", "formula"),
    [
        (lambda: carrying(Throttled, retry_after=10), {"jitter": Jitter.full()}, 10.0),
        (
            lambda: carrying(Throttled, retry_after=10),
            {"jitter": Jitter.full(), "backoff": Backoff.custom(lambda n: n)},
            10.0,
        ),
        (
            Throttled,
            {"jitter": Jitter.decorrelated(), "backoff": Backoff.exponential(2.0, max_delay=2.5)},
            2.5,
        ),
    ],
    ids=["Retry-After", "Retry-After of a custom backoff", "decorrelated"],
)
def test_a_wait_of_the_first_version_is_replayed_by_its_own_formula(failure, fields, formula):
    """What was recorded then is never judged by what is right now."""
    assert recorded_waits(failure, RULE, **fields) == "the same"
    assert recorded_waits(failure, 1, **fields) == formula


@pytest.mark.parametrize(
    ("backoff", "formula"),
    [
        (Backoff.chain(Backoff.exponential(2.0, max_delay=2.5)), 2.5),
        (Backoff.chain(0.1, Backoff.exponential(2.0, max_delay=2.5)), 2.0),
        (Backoff.chain(0.1, Backoff.chain(2.0, 2.0)), 2.0),
        (Backoff.chain(1.0, 2.0), "the same"),
    ],
    ids=["at the cap of its curve", "after a short wait", "a chain in a chain", "fixed delays"],
)
def test_a_wait_of_the_third_version_is_replayed_by_its_own_formula(backoff, formula):
    """The delays of a curve in a chain were each the least that was drawn."""
    fields = {"jitter": Jitter.decorrelated(), "backoff": backoff, "attempts": 3}
    assert recorded_waits(Throttled, RULE, **fields) == "the same"
    assert recorded_waits(Throttled, 3, **fields) == formula


def test_a_missing_event_of_a_call_is_found():
    """A call that tells of a retry it never decided on is no such call."""
    lines = a_log()
    at = next(i for i, line in enumerate(lines) if b'"event_type":"retry_attempt"' in line)
    assert not replayed([*lines[:at], *lines[at + 1 :]]).ok


def test_what_lacks_proof_is_counted_and_not_guessed():
    """A log of a sink that wanted no evidence, one without its plans, one cut at its start."""
    sink = Recorder()
    sink.wants_evidence = False
    with virtual_time():
        Engine(sinks=[sink], seed=1).run("op", throws(ConnectionError()))
    report = replayed(sink.lines)
    assert report.ok
    assert dict(report.unproved) == {"its beginning or its proof is not in the log": 1}
    lines = a_log()
    report = replayed(lines[1:])
    assert report.calls == 0
    assert report.unproved["its plan is not in the log"] > 10
    start = next(i for i, line in enumerate(lines) if b'"event_type":"retry_attempt"' in line)
    report = replayed([lines[0], *lines[start:]])
    assert report.ok
    assert report.unproved["its beginning or its proof is not in the log"] == 1


def test_a_group_too_large_to_keep_is_not_replayed():
    """It would be judged by a part of it."""
    sink = Recorder()
    many = [ConnectionError() for _ in range(MOST_MEMBERS + 1)]
    with virtual_time():
        Engine(sinks=[sink]).run("op", throws(ExceptionGroup("x", many)))
    assert dict(replayed(sink.lines).unproved) == {"a group of exceptions was too large to keep": 1}


def test_calls_of_several_writers_do_not_mix():
    """The same seed in two processes gives the same call ids."""
    one, other = a_log(), a_log(retry_on=(ValueError, OSError, Throttled))
    replay = Replay()
    for number, (a, b) in enumerate(zip(one, other, strict=False), 1):
        replay.feed(2 * number, "a", decode(a))
        replay.feed(2 * number + 1, "b", decode(b))
    assert replay.finish().ok


def test_calls_that_never_end_are_let_go(monkeypatch):
    """In bounded memory, and counted."""
    assert MOST_OPEN >= 10_000
    monkeypatch.setattr("mainstay.core.audit.replay.MOST_OPEN", 3)
    lines = [line for line in a_log() if b'"attempt_failed"' in line]
    assert replayed(lines).unfinished == len({json.loads(line)["call_id"] for line in lines})


def test_nothing_is_checked_after_the_first_divergence():
    """The events are still counted."""
    lines = a_log()
    plan = json.loads(lines[0])
    plan["fields"]["max_attempts"] = 2
    report = replayed([json.dumps(plan), *lines[1:]])
    assert report.events == len(lines)
    assert not report.ok


@pytest.mark.req("CP-22", "CP-16")
@pytest.mark.parametrize("path", sorted(RECORDED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_an_old_log_replays_for_ever(path):
    """These files are never edited."""
    report = replayed(path.read_bytes().splitlines())
    assert report.ok
    assert report.calls > 20
    assert not report.unproved


# --- what is rare ---------------------------------------------------------------------------------


def recorded(function, *, policy=None, calls=1, **fields):
    """The log of some calls of a function under one policy."""
    sink = Recorder()
    with virtual_time(start=1000.0) as time:
        policies = [policy] if policy is not None else []
        engine = Engine(sinks=[sink], policies=policies, seed=2, **fields)
        for _ in range(calls):
            try:
                engine.call("op", function, *([time] if function.__code__.co_argcount else []))
            except (Exception, KeyboardInterrupt):
                time.advance(0.1)
    return sink.lines


def types_of(lines):
    return [json.loads(line)["event_type"] for line in lines]


class AtTheDoor(Guard):
    """Lets retries be scheduled, and refuses them when they come."""

    name = "door"

    def enter(self, is_retry, now, witness=None):
        return Refused("closed meanwhile") if is_retry else None


def test_a_retry_that_was_refused_at_the_door_replays():
    """It was scheduled and not made; the call ends with the failure it had."""
    lines = recorded(throws(ConnectionError("x")), guards=[AtTheDoor()])
    assert types_of(lines)[1:] == ["attempt_failed", "retry_attempt", "retry_exhausted"]
    report = replayed(lines)
    assert (report.divergence, report.decisions) == (None, 3)
    event = json.loads(lines[-1])
    event["proof"]["answers"] = event["proof"]["answers"][1:]
    found = replayed([*lines[:-1], json.dumps(event)]).divergence
    assert (found.field, found.recomputed) == ("event", "another attempt")


def test_a_retry_that_came_too_late_replays():
    """A hook took the time there was."""
    policy = RetryPolicy(
        name="standard",
        deadline=2.0,
        retry_on=OSError,
        before_retry=lambda info: virtual.advance(5.0),
    )
    sink = Recorder()
    with virtual_time() as virtual:
        Engine(sinks=[sink], policies=[policy]).run("op", throws(ConnectionError("x")))
    assert types_of(sink.lines)[-1] == "retry_exhausted"
    assert b'"stop"' in sink.lines[-1]
    assert replayed(sink.lines).ok


def test_an_inner_retry_that_gave_up_replays():
    """Its mark was found on the exception; the outer one does not repeat it."""
    inner = RetryPolicy(name="inner", max_attempts=3, retry_on=OSError)

    def outer():
        box = []

        def run():
            try:
                inner.call(throws(ConnectionError("x")))
            except ConnectionError as error:
                box.append(error)

        thread = threading.Thread(target=run)  # where the outer retry cannot be seen
        thread.start()
        thread.join()
        raise box[0]

    with pytest.warns(NestedRetryWarning):
        lines = recorded(outer)
    assert b'{"inner":3}' in b"".join(lines)
    report = replayed(lines)
    assert report.ok
    assert report.calls >= 1


def test_a_call_that_was_cut_off_replays_as_far_as_it_came():
    """Ctrl+C is no decision of ours."""
    left = [ConnectionError("x"), KeyboardInterrupt()]

    def function():
        raise left.pop(0)

    lines = recorded(function)
    assert types_of(lines)[-1] == "call_interrupted"
    report = replayed(lines)
    assert (report.divergence, report.decisions, report.unfinished) == (None, 2, 0)


def test_an_event_of_another_sort_is_found():
    """Exhausted where the core says that it was not for us to retry."""
    lines = recorded(throws(ValueError("x")))
    event = json.loads(lines[-1])
    event["event_type"] = "retry_exhausted"
    found = replayed([*lines[:-1], json.dumps(event)]).divergence
    assert (found.recorded, found.recomputed) == ("retry_exhausted", "call_failed")


def test_an_answer_that_is_not_in_the_record_is_found():
    """The core asks what the record does not answer."""
    lines = recorded(throws(ConnectionError("x")))
    at = next(i for i, line in enumerate(lines) if b'"attempt_failed"' in line)
    event = json.loads(lines[at])
    event["proof"]["answers"] = [{"rule": 2}, "no key"]
    found = replayed([*lines[:at], json.dumps(event), *lines[at + 1 :]]).divergence
    assert "it cannot be made again" in str(found.recomputed)
    last = json.loads(lines[-1])
    last["proof"]["answers"] = []
    found = replayed([*lines[:-1], json.dumps(last)]).divergence
    assert "a question that was not asked" in str(found.recomputed)


@pytest.mark.parametrize("field", ["fields", "guards"])
def test_a_plan_that_makes_no_sense_is_counted(field):
    """Its calls are not replayed, and nothing is raised."""
    lines = recorded(throws(ConnectionError("x")))
    plan = json.loads(lines[0])
    plan[field] = {"fields": {"max_attempts": "many"}, "guards": [{"no": "guard"}]}[field]
    report = replayed([json.dumps(plan), *lines[1:]])
    assert report.unproved["a plan that cannot be read"] == 1
    assert report.calls == 0


class Foreign(AtTheDoor):
    """A guard of the user's own that tells what it looked at."""

    def consider(self, failure, delay, now, witness=None):
        witness(label_of(self), [1, 2], True)
        return delay

    def enter(self, is_retry, now, witness=None):
        return None


def test_a_guard_of_the_users_own_is_taken_at_its_word():
    """Its rule is not ours to know: counted."""
    report = replayed(recorded(throws(ConnectionError("x")), guards=[Foreign()]))
    assert report.ok
    assert report.unproved["a guard that is not one of ours"] == 2


def test_a_circuits_change_without_proof_is_counted():
    """Of a sink that wanted none."""
    report = replayed([encode(CircuitStateChanged(operation="op", to_state="open"))])
    assert dict(report.unproved) == {"a circuit's change without proof": 1}
    report = replayed([encode(CallRefused(operation="op"))])
    assert dict(report.unproved) == {"a refusal without proof": 1}


def test_a_report_is_plain_data_too():
    """For `--json`."""
    replay = Replay()
    replay.skip("no event")
    told = replay.finish().to_dict()
    assert (told["ok"], told["events"], told["unproved"]) == (True, 1, {"no event": 1})


def test_a_failure_inside_another_and_one_of_ours_stand_in():
    """A wrapper of urllib's is judged by what is inside; a refusal of ours keeps its hint."""
    for failure in (
        URLError(ConnectionResetError(104, "x")),
        CircuitOpenError("payments", "open", 2.5),
        carrying(RuntimeError, code="A", error_code="B", sqlstate="C", pgcode="D",
                 response={"Error": {"Code": "E"}}),
    ):  # fmt: skip
        policy = RetryPolicy(retry_on=("E", CircuitOpenError), classify=None)
        verdict = policy.classification(failure)
        again = policy.classification(exception_of(evidence_of(failure, verdict)))
        assert repr(again) == repr(verdict)
        assert again.retry_after == verdict.retry_after


def test_many_types_are_kept_in_bounded_memory(monkeypatch):
    """Of evidence and of classes that stand in."""
    monkeypatch.setattr("mainstay.core.events.evidence._MOST_PLAIN", 2)
    monkeypatch.setattr("mainstay.core.audit.reconstruct._MOST_CLASSES", 2)
    for name in "abcd":
        made = type(name, (Exception,), {})
        assert type(exception_of(evidence_of(made()))).__name__ == name
    assert len(evidence._plain) <= 2
    assert len(standins._classes) <= 2


def test_rules_of_every_sort_come_back():
    """A group class of one's own among them; a policy without rules is without."""

    class Several(ExceptionGroup):
        pass

    rules = (Several, Throttled, "Throttled", Kind.TIMEOUT, rule_of(8))
    fields = declared(RetryPolicy(retry_on=rules, never_retry_on=(KeyError,)), "keyed").fields
    assert [sort for sort, _ in fields["retry_on"]] == [
        "group",
        "class",
        "name",
        "kind",
        "function",
    ]
    policy = policy_of(json.loads(json.dumps(fields)), deque())
    group, cls, name, kind, function = policy.retry_on
    assert issubclass(group, BaseExceptionGroup)
    assert (cls.__name__, name, kind, function.__qualname__) == (
        "Throttled", "Throttled", Kind.TIMEOUT, "rule_of.<locals>.<lambda>"
    )  # fmt: skip
    assert isinstance(exception_of(evidence_of(Slow())), cls)
    assert policy.never_retry_on == (KeyError,)
    assert declared(RetryPolicy(), "keyed", [("Mine:x", None)]).guards[0]["rule"] is None


def test_more_than_the_call_could_tell_is_found():
    """An event after the end, and one before the beginning."""
    lines = recorded(throws(ValueError("x")))
    first, last = json.loads(lines[1]), json.loads(lines[-1])
    extra = {**first, "attempt_number": 2}
    found = replayed([*lines[:-1], json.dumps(extra), json.dumps(last)]).divergence
    assert (found.number, found.recorded) == (3, "attempt_failed")
    exhausted = {**last, "event_type": "retry_attempt", "attempt_number": 1}
    found = replayed([*lines[:-1], json.dumps(exhausted), json.dumps(last)]).divergence
    assert (found.number, found.recorded) == (3, "retry_attempt")


def test_a_retelling_ends_where_the_record_does():
    """Read to its end, it tells of the attempt that it would make next; a plan may come twice."""
    policy = RetryPolicy(name="standard", deadline=60.0)
    lines = recorded(throws(ConnectionError("x")), policy=policy)
    lines = [line for line in lines if b"exhausted" not in line]
    plan, *events = [decode(line) for line in lines]
    told = list(CallReplay(Declared(plan), list(enumerate(events[:2]))))
    assert told[-1] == "another attempt"
    assert replayed([lines[0], *lines]).ok
    events[1].proof.answers.clear()
    told = list(CallReplay(Declared(plan), list(enumerate(events[:2]))))
    assert told[-1].startswith("a question that was not asked")
    final = [decode(line) for line in recorded(throws(ValueError("x")))]
    assert len(list(CallReplay(Declared(final[0]), list(enumerate(final[1:]))))) == 2


def test_a_call_whose_beginning_was_told_elsewhere_is_not_replayed():
    """Its first failure in the log is a later one, without an opening."""
    lines = recorded(throws(ConnectionError("x")))
    first = json.loads(lines[1])
    del first["proof"]["opening"]
    report = replayed([lines[0], json.dumps(first), *lines[2:]])
    assert report.unproved["its beginning or its proof is not in the log"] == 1


def test_a_key_that_was_drawn_before_is_an_answer_like_any_other():
    """On the first attempt; later the beginning was told before, and is not told again."""
    plan = Plan(RetryPolicy(), "op", 1)
    verdict = RetryPolicy().classification(ConnectionError())
    for attempts, answers, has_opening in ((1, [*stated(RULE), 7], True), (2, [], False)):
        builder = EventBuilder(plan, 0.0, opening=Opening(), plan_id="p")
        builder.goes_on(7, attempts)
        proof = builder.attempt_failed(ConnectionError(), verdict, attempts, 3, 7).proved
        assert (proof.answers, proof.opening is not None) == (answers, has_opening)
    quiet = EventBuilder(plan, 0.0)
    quiet.saw("guard", [], True)
    quiet.record_answer(1)
    assert quiet.attempt_failed(ConnectionError(), verdict, 1, 3, 7).proved is None


@pytest.mark.req("CP-16")
def test_a_result_that_was_not_accepted_replays():
    """It carries no evidence but that."""
    left = ["no", "no", "yes"]
    policy = RetryPolicy(name="standard", retry_if_result=lambda value: value == "no")
    lines = recorded(lambda: left.pop(0), policy=policy)
    assert types_of(lines).count("attempt_failed") == 2
    report = replayed(lines)
    assert (report.divergence, report.calls) == (None, 1)
