"""An explanation holds whatever a call does, and warns of what is likely a mistake, no more."""

import json
import pickle
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.deadline import NEVER
from mainstay.core.circuit.settings import BreakerSettings
from mainstay.core.circuit.window import Window
from mainstay.core.explain.explain import explain_engine, explain_policy
from mainstay.core.explain.rules import RULES, Remark
from mainstay.core.explain.worst_case import LAYERS
from mainstay.core.limits.throttle import RateRule
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.effects import TOO_LATE, Question
from mainstay.core.retry.plan import Plan
from mainstay.core.retry.policy import Policy
from mainstay.core.retry.policy_fields import KindRule
from mainstay.errors import UsageError

FLAT = Jitter.none()


def codes(explanation):
    return [warning.code for warning in explanation.warnings]


def note_codes(explanation):
    return [note.code for note in explanation.notes]


# --- the numbers ----------------------------------------------------------------------------------


def test_the_numbers_of_a_plain_policy():
    """Attempts, load, waits and wall time are those of a call in which all goes wrong."""
    policy = Policy(
        name="api",
        max_attempts=4,
        backoff=Backoff.constant(1.0),
        jitter=Jitter.percent(0.5),
        attempt_timeout=2.0,
    )
    explanation = explain_policy(policy)
    assert explanation.subject == "api"
    assert explanation.attempts == 4
    assert explanation.added_load == 3.0
    assert explanation.waits == ((0.5, 1.5),) * 3
    assert explanation.waiting_seconds == 4.5
    assert explanation.wall_seconds == 4 * 2.0 + 4.5
    assert explanation.asked_seconds == 4 * 2.0 + 3 * (60.0 + 30.0)  # and the jitter on top
    assert explanation.order == ("retry", "function")
    assert explanation.warnings == ()


@pytest.mark.parametrize(
    ("jitter", "waits"),
    [
        (Jitter.none(), ((1.0, 1.0), (2.0, 2.0), (4.0, 4.0))),
        (Jitter.percent(0.25), ((0.75, 1.25), (1.5, 2.5), (3.0, 5.0))),
        (Jitter.full(), ((0.0, 1.0), (0.0, 2.0), (0.0, 4.0))),
        (Jitter.equal(), ((0.5, 1.0), (1.0, 2.0), (2.0, 4.0))),
        (Jitter.additive(2.0), ((1.0, 3.0), (2.0, 4.0), (4.0, 5.0))),
        (Jitter.decorrelated(), ((1.0, 3.0), (1.0, 5.0), (1.0, 5.0))),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_the_waits_are_those_of_the_jitter(jitter, waits):
    """The shortest and the longest that each jitter can give, neither less nor more."""
    backoff = Backoff.exponential(1.0, max_delay=5.0)
    policy = Policy(max_attempts=4, backoff=backoff, jitter=jitter)
    assert explain_policy(policy).waits == waits


def test_a_kind_with_limits_of_its_own_widens_the_waits():
    """Each kind counts its own failures: a late retry may wait by an early delay, or a kind's."""
    rules = {"throttled": KindRule(max_attempts=3, backoff=Backoff.linear(5.0))}
    policy = Policy(max_attempts=5, backoff=Backoff.linear(1.0), jitter=FLAT, per_kind=rules)
    assert explain_policy(policy).waits == ((1.0, 5.0), (1.0, 10.0), (1.0, 10.0), (1.0, 10.0))


def test_a_kind_that_is_not_retried_adds_no_wait():
    """Its backoff is never waited by."""
    rules = {"throttled": KindRule(max_attempts=1, backoff=Backoff.constant(50.0))}
    policy = Policy(backoff=Backoff.constant(1.0), jitter=FLAT, per_kind=rules)
    assert explain_policy(policy).waits == ((1.0, 1.0), (1.0, 1.0))


def test_what_the_other_side_may_ask_for_counts_beside_limits_by_kind():
    """Each retry may be asked to wait the longest there is."""
    rules = {"throttled": KindRule(backoff=Backoff.constant(3.0))}
    policy = Policy(attempt_timeout=1.0, per_kind=rules, max_retry_after=20.0)
    assert explain_policy(policy).asked_seconds == 3 * 1.0 + 2 * (20.0 + 2.0)


def test_a_retry_after_that_is_ignored_adds_nothing():
    """The waits are those of the backoff alone."""
    policy = Policy(attempt_timeout=1.0, respect_retry_after=False)
    figures = explain_policy(policy)
    assert figures.asked_seconds == figures.wall_seconds


def test_a_backoff_of_ones_own_is_asked_for_every_delay():
    """Two delays alike say nothing of the third."""
    backoff = Backoff.custom(lambda n: [1.0, 1.0, 5.0, 1.0][n - 1])
    waits = explain_policy(Policy(max_attempts=5, backoff=backoff, jitter=FLAT)).waits
    assert [low for low, _ in waits] == [1.0, 1.0, 5.0, 1.0]


def test_a_backoff_that_raises_counts_as_its_longest_delay():
    """As it does in the life of a call."""
    policy = Policy(max_attempts=3, backoff=Backoff.custom(lambda n: 1 / (2 - n), max_delay=9.0))
    assert explain_policy(policy).waits == ((0.9, 1.1), (9.0, 9.0))


def test_a_deadline_limits_attempts_waits_and_wall_time():
    """No attempt starts past it, so no more than these can be made."""
    policy = Policy(max_attempts=9, backoff=Backoff.constant(2.0), jitter=FLAT, deadline=5.0)
    explanation = explain_policy(policy)
    assert explanation.attempts == 3
    assert explanation.waits == ((2.0, 2.0),) * 2
    assert explanation.waiting_seconds == 4.0
    assert explanation.wall_seconds == explanation.asked_seconds == 5.0
    wide = policy.replace(jitter=Jitter.percent(0.5), max_attempts=4)
    assert explain_policy(wide).waiting_seconds == 5.0


def test_an_attempt_that_would_start_at_the_deadline_is_not_counted():
    """There is no time left for it."""
    policy = Policy(max_attempts=3, backoff=Backoff.constant(2.0), jitter=FLAT, deadline=4.0)
    assert explain_policy(policy).attempts == 2
    assert explain_policy(policy.replace(deadline=4.1)).attempts == 3


def test_a_call_without_limits_has_no_wall_time():
    """An attempt may hang for ever; the waits still have a sum."""
    explanation = explain_policy(Policy(backoff=Backoff.constant(1.0), jitter=FLAT))
    assert explanation.wall_seconds is None
    assert explanation.asked_seconds is None
    assert explanation.waiting_seconds == 2.0


def test_a_single_attempt_takes_its_own_time():
    """There is nothing to wait for and nothing to add."""
    explanation = explain_policy(Policy(max_attempts=1, attempt_timeout=3.0, deadline=8.0))
    assert (explanation.attempts, explanation.added_load, explanation.waits) == (1, 0.0, ())
    assert explanation.wall_seconds == explanation.asked_seconds == 3.0
    assert explanation.order == ("function",)


def test_a_budget_limits_the_load_and_not_the_attempts():
    """One unlucky call may use them all; a thousand may not."""
    policy = Policy(max_attempts=4, deadline=30.0)
    explanation = explain_policy(policy, budget_ratio=0.2)
    assert (explanation.attempts, explanation.added_load) == (4, 0.2)
    once = policy.replace(max_attempts=1)
    assert explain_policy(once, budget_ratio=0.2).added_load == 0.0


def test_a_million_attempts_are_explained_at_once():
    """A worker that hardly ever gives up can be explained too."""
    for jitter in (Jitter.percent(0.1), Jitter.decorrelated()):
        explanation = explain_policy(Policy(max_attempts=1_000_000, jitter=jitter))
        assert len(explanation.waits) == 999_999
        assert explanation.waits[-1][1] in (5.5, 5.0)


def test_the_order_names_what_there_is_and_nothing_else():
    """Fallback outside, function inside, whatever the order they were named in."""
    breakers = [("payments", BreakerSettings())]
    layers = ["bulkhead", "hedge", "fallback"]
    explanation = explain_policy(Policy(), breakers=breakers, budget_ratio=0.2, layers=layers)
    names = ("fallback", "retry", "breaker", "budget", "hedge", "bulkhead", "function")
    assert explanation.order == names
    assert explain_policy(Policy(), layers=LAYERS).order == LAYERS


def test_a_layer_that_does_not_exist_is_refused():
    """A misspelt name would be left out in silence."""
    with pytest.raises(UsageError, match=r"layers = \['bulkheads'\]") as caught:
        explain_policy(Policy(), layers=["bulkheads"])
    assert "rate limit" in caught.value.hint


# --- nesting --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("modes", "product", "leaf"),
    [
        ((), 3, 3),
        (("collapse",), 12, 4),
        (("refuse",), 12, 4),
        (("warn",), 12, 12),
        (("allow",), 12, 12),
        (("collapse", "collapse"), 24, 4),
        (("warn", "collapse"), 24, 12),
        (("collapse", "warn"), 24, 8),
    ],
)
def test_nested_attempts_multiply_only_where_an_outer_retry_lets_both_run(modes, product, leaf):
    """3 attempts inside 4 inside 2."""
    outer = [
        Policy(name=f"around {n}", max_attempts=n, nested=mode)
        for n, mode in zip((4, 2), modes, strict=False)
    ]
    explanation = explain_policy(Policy(name="in"), around=outer)
    assert (explanation.nesting_product, explanation.leaf_calls) == (product, leaf)
    assert explanation.around == ("around 4", "around 2")[: len(modes)]


def test_an_outer_deadline_counts_in_the_product():
    """Attempts that its deadline leaves no time for are not multiplied."""
    outer = Policy(max_attempts=9, backoff=Backoff.constant(2.0), jitter=FLAT, deadline=5.0)
    assert explain_policy(Policy(max_attempts=2), around=[outer]).nesting_product == 6


# --- the laws: no call does worse -----------------------------------------------------------------


class Throttled(Exception):
    """Carries a Retry-After where one is given."""

    def __init__(self, retry_after=None):
        super().__init__("slow down")
        if retry_after is not None:
            self.retry_after = retry_after


class Run(NamedTuple):
    """What a call came to."""

    attempts: int
    waits: list
    elapsed: float


def lived(policy, key, script):
    """A call whose attempts take such a share of their time, and fail so; the core decides."""
    end, now, waits = policy.deadline or NEVER, 0.0, []
    flow = call_flow(Plan(policy, "op", 1), key=key, outer=None, until=end)
    attempts, answer = 0, None
    while not isinstance(effect := flow.send(answer), BaseException):
        answer = now if effect is Question.NOW else None
        if type(effect) is not float:
            continue
        if attempts:
            now += effect
            waits.append(effect)
        share, failure = script[attempts]
        limit = min(policy.attempt_timeout or NEVER, end - now)
        if limit <= 0.0:
            answer = TOO_LATE
            continue
        now = min(now + share * (0.0 if limit == NEVER else limit), end)
        attempts, answer = attempts + 1, failure()
    return Run(attempts, waits, now)


DELAYS = st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0, 2.5])
BACKOFFS = st.one_of(
    st.builds(Backoff.constant, DELAYS),
    st.builds(Backoff.linear, DELAYS, step=DELAYS, max_delay=st.sampled_from([2.5, 3.0])),
    st.builds(
        Backoff.exponential,
        DELAYS,
        factor=st.sampled_from([1.0, 2.0, 3.3]),
        max_delay=st.sampled_from([2.5, 4.0, 60.0]),
    ),
    st.sampled_from([Backoff.chain(3.0, 0.1), Backoff.chain(0.1, 4.0, 0.1, Backoff.linear(0.1))]),
    st.sampled_from([Backoff.custom(lambda n: 1 / n), Backoff.custom(lambda n: [0.2, 3.0][n % 2])]),
)
JITTERS = st.one_of(
    st.sampled_from([Jitter.none(), Jitter.full(), Jitter.equal(), Jitter.decorrelated()]),
    st.builds(Jitter.percent, st.sampled_from([0.0, 0.1, 1.0])),
    st.builds(Jitter.additive, st.sampled_from([0.0, 0.2, 5.0])),
)
KIND_RULES = st.builds(
    KindRule,
    max_attempts=st.none() | st.integers(1, 9),
    backoff=st.none() | BACKOFFS,
    jitter=st.none() | JITTERS,
)
POLICIES = st.builds(
    Policy,
    max_attempts=st.integers(1, 7),
    backoff=BACKOFFS,
    jitter=JITTERS,
    classify=st.just({Throttled: "throttled"}),
    per_kind=st.none() | st.dictionaries(st.sampled_from(["throttled", "timeout"]), KIND_RULES),
    attempt_timeout=st.none() | st.sampled_from([0.2, 1.0, 3.0]),
    deadline=st.none() | st.sampled_from([0.5, 2.0, 7.0, 100.0]),
    max_retry_after=st.sampled_from([0.0, 1.5, 60.0]),
    respect_retry_after=st.booleans(),
)
KEYS = st.integers(0, 2**51 - 1).map(lambda n: 2 * n + 1)
SHARES = st.sampled_from([0.0, 0.5, 1.0])
PLAIN = st.sampled_from([ConnectionError, TimeoutError, Throttled])
ASKING = st.sampled_from([0.0, 1.0, 1.5, 30.0, 60.0, 61.0]).map(lambda s: lambda: Throttled(s))


def scripts(failures):
    return st.lists(st.tuples(SHARES, failures), min_size=7, max_size=7)


@given(POLICIES, KEYS, scripts(PLAIN))
def test_no_call_does_worse_than_the_explanation_says(policy, key, script):
    """Attempts, each wait, all waits and the wall time hold for whatever failures come."""
    explanation = explain_policy(policy)
    run = lived(policy, key, script)
    assert run.attempts <= explanation.attempts
    for wait, (low, high) in zip(run.waits, explanation.waits, strict=False):
        assert low <= wait <= high
    assert len(run.waits) <= len(explanation.waits)
    if explanation.wall_seconds is not None:
        assert run.elapsed <= explanation.wall_seconds
    elapsed = 0.0
    for wait in run.waits:
        elapsed += wait
    assert elapsed <= explanation.waiting_seconds


@given(POLICIES, KEYS, scripts(PLAIN | ASKING))
def test_no_call_takes_longer_than_what_the_other_side_may_ask_for(policy, key, script):
    """With a Retry-After on any failure, of any length, asked_seconds holds."""
    explanation = explain_policy(policy)
    run = lived(policy, key, script)
    assert run.attempts <= explanation.attempts
    if explanation.asked_seconds is not None:
        assert run.elapsed <= explanation.asked_seconds
        assert explanation.wall_seconds <= explanation.asked_seconds


@given(POLICIES, st.integers())
def test_the_waits_hold_the_delays_of_every_seed(policy, seed):
    """What `delays()` promises is between the two."""
    waits = explain_policy(policy).waits
    delays = policy.delays(seed)
    if policy.deadline is None:
        assert len(waits) == len(delays)
    for delay, (low, high) in zip(delays, waits, strict=False):
        assert low <= delay <= high


@given(POLICIES.filter(lambda policy: policy.per_kind is None), st.sampled_from([0.0, 1.0]))
def test_the_waits_are_no_wider_than_they_must_be(policy, u):
    """Without limits by kind, both ends are delays of the policy's own."""
    previous = 0.0
    for n, wait in enumerate(explain_policy(policy).waits, start=1):
        previous = policy.delay(n, u, previous)
        assert previous == wait[int(u)]


@given(POLICIES.filter(lambda policy: policy.per_kind is None))
def test_as_many_attempts_as_are_told_can_be_made(policy):
    """With failures at once and the shortest waits each of them starts before the deadline."""
    explanation = explain_policy(policy)
    start = 0.0
    for low, _ in explanation.waits:
        start += low
    assert start < (policy.deadline or NEVER)
    assert explanation.attempts == len(explanation.waits) + 1


# --- the rules ------------------------------------------------------------------------------------


def calm(**fields):
    """A policy that no rule has anything to say about."""
    return Policy(**{"deadline": 30.0, "attempt_timeout": 5.0, **fields})


def breaker(**fields):
    return {"breakers": [("payments", BreakerSettings(**fields))]}


def per_kind(**fields):
    return calm(per_kind={"throttled": KindRule(**fields)})


def is_empty(result):
    return not result


AT_ONCE, A_MINUTE = Backoff.constant(0.0), Backoff.constant(60.0)
WARN, ALLOW, COLLAPSE = Policy(nested="warn"), Policy(nested="allow"), Policy()
SLOW = {"window": Window.seconds(60.0), "slow_rate": 0.5}
CASES = [
    # code, what raises it, and a neighbour that does not: the policy and what stands around it
    ("unbounded", (Policy(), {}), (Policy(deadline=30.0), {})),
    ("unbounded", (Policy(max_attempts=1), {}), (Policy(attempt_timeout=5.0), {})),
    ("timeout-past-deadline", (calm(attempt_timeout=31.0), {}), (calm(), {})),
    (
        "timeout-past-deadline",
        (calm(attempt_timeout=30.0), {}),
        (calm(attempt_timeout=30.0, max_attempts=1), {}),
    ),
    (
        "attempts-out-of-reach",
        (calm(backoff=Backoff.constant(20.0)), {}),
        (calm(backoff=Backoff.constant(15.0)), {}),
    ),
    ("attempts-out-of-time", (calm(attempt_timeout=15.0), {}), (calm(attempt_timeout=14.0), {})),
    ("attempts-out-of-time", (calm(attempt_timeout=29.0), {}), (calm(attempt_timeout=None), {})),
    (
        "many-attempts",
        (calm(max_attempts=11, attempt_timeout=0.1), {}),
        (calm(max_attempts=10, attempt_timeout=0.1), {}),
    ),
    ("retries-everything", (calm(retry_on=Exception), {}), (calm(retry_on=OSError), {})),
    (
        "retries-everything",
        (calm(retry_on=(OSError, "Exception")), {}),
        (calm(retry_on=Exception, max_attempts=1), {}),
    ),
    ("unsafe-retries", (calm(), {"idempotency": "unsafe"}), (calm(), {"idempotency": "keyed"})),
    (
        "result-of-unsafe",
        (calm(retry_if_result=is_empty, max_attempts=1), {"idempotency": "unsafe"}),
        (calm(retry_if_result=is_empty, max_attempts=1), {}),
    ),
    ("no-jitter", (calm(jitter=FLAT), {}), (calm(jitter=FLAT, max_attempts=1), {})),
    ("no-jitter", (calm(jitter=Jitter.percent(0.0)), {}), (calm(jitter=Jitter.percent(0.01)), {})),
    ("no-jitter", (per_kind(jitter=FLAT), {}), (per_kind(max_attempts=2), {})),
    (
        "no-jitter",
        (per_kind(jitter=FLAT, max_attempts=2), {}),
        (calm(max_attempts=1, per_kind={"throttled": KindRule(jitter=FLAT, max_attempts=2)}), {}),
    ),
    ("no-backoff", (calm(backoff=AT_ONCE), {}), (calm(backoff=Backoff.linear(0.0, step=1.0)), {})),
    (
        "no-backoff",
        (per_kind(backoff=AT_ONCE), {}),
        (per_kind(backoff=AT_ONCE, jitter=Jitter.additive(1.0)), {}),
    ),
    (
        "retry-after-past-deadline",
        (calm(max_retry_after=30.0), {}),
        (calm(max_retry_after=29.0), {}),
    ),
    (
        "retry-after-past-deadline",
        (calm(max_retry_after=90.0), {}),
        (calm(max_retry_after=90.0, respect_retry_after=False), {}),
    ),
    (
        "retry-after-past-deadline",
        (calm(max_retry_after=90.0), {}),
        (calm(max_retry_after=60.0), {}),
    ),
    ("kind-attempts", (per_kind(max_attempts=4), {}), (per_kind(max_attempts=3), {})),
    (
        "kind-wait-past-deadline",
        (per_kind(backoff=Backoff.constant(30.0), jitter=FLAT), {}),
        (per_kind(backoff=A_MINUTE, jitter=Jitter.full()), {}),
    ),
    (
        "kind-wait-past-deadline",
        (per_kind(backoff=Backoff.constant(34.0)), {}),
        (per_kind(backoff=Backoff.constant(33.0)), {}),
    ),
    ("nesting-multiplies", (calm(), {"around": [WARN]}), (calm(), {"around": [COLLAPSE]})),
    ("nesting-multiplies", (calm(), {"around": [ALLOW]}), (calm(), {"around": [COLLAPSE]})),
    (
        "nesting-multiplies",
        (calm(), {"around": [COLLAPSE, WARN]}),
        (calm(max_attempts=1), {"around": [WARN]}),
    ),
    ("budget-allows-nothing", (calm(), {"budget_ratio": 0.0}), (calm(), {"budget_ratio": 0.1})),
    (
        "budget-allows-everything",
        (calm(max_attempts=2), {"budget_ratio": 1.0}),
        (calm(max_attempts=3), {"budget_ratio": 1.0}),
    ),
    (
        "breaker-needs-traffic",
        (calm(), breaker(window=Window.seconds(10.0))),
        (calm(), breaker(window=Window.seconds(11.0))),
    ),
    (
        "breaker-needs-traffic",
        (calm(), breaker(window=Window.seconds(1.0), min_calls=4)),
        (calm(max_attempts=1), breaker(window=Window.seconds(0.5), min_calls=1)),
    ),
    (
        "breaker-opened-by-one-call",
        (calm(), breaker(failure_threshold=3)),
        (calm(), breaker(failure_threshold=4)),
    ),
    (
        "breaker-opened-by-one-call",
        (calm(), breaker(window=Window.calls(20), min_calls=3)),
        (calm(), breaker(window=Window.calls(20), min_calls=4)),
    ),
    (
        "breaker-opened-by-one-call",
        (calm(), breaker(window=Window.seconds(3.0), min_calls=2)),
        (
            calm(backoff=Backoff.constant(5.0), max_attempts=2),
            breaker(window=Window.seconds(3.0), min_calls=2),
        ),
    ),
    (
        "breaker-opened-by-one-call",
        (
            calm(backoff=Backoff.constant(2.0)),
            breaker(window=Window.seconds(3.0), min_calls=2),
        ),
        (
            calm(backoff=Backoff.constant(2.0)),
            breaker(window=Window.seconds(3.0), min_calls=3),
        ),
    ),
    (
        "breaker-opened-by-one-call",
        (calm(), breaker(failure_threshold=1)),
        (calm(max_attempts=1), breaker(failure_threshold=1)),
    ),
    (
        "breaker-recovers-early",
        (calm(), breaker(recovery_timeout=4.9)),
        (calm(), breaker(recovery_timeout=5.0)),
    ),
    (
        "breaker-recovers-early",
        (calm(), breaker(recovery_timeout=5.0, recovery_jitter=Jitter.percent(0.1))),
        (calm(attempt_timeout=None), breaker(recovery_timeout=4.9)),
    ),
    (
        "breaker-probe-cut",
        (calm(), breaker(probe_timeout=4.9)),
        (calm(), breaker(probe_timeout=5.0)),
    ),
    (
        "breaker-never-slow",
        (calm(), breaker(**SLOW, slow_after=5.0)),
        (calm(), breaker(**SLOW, slow_after=4.9)),
    ),
    (
        "breaker-never-slow",
        (calm(attempt_timeout=None), breaker(**SLOW, slow_after=31.0)),
        (Policy(), breaker(**SLOW, slow_after=31.0)),
    ),
]
NOTED = [
    ("sync-not-interrupted", (calm(), {}), (calm(timeout_by="thread"), {})),
    ("sync-not-interrupted", (Policy(deadline=9.0), {}), (Policy(), {})),
    ("hang-takes-all", (Policy(deadline=9.0), {}), (Policy(deadline=9.0, max_attempts=1), {})),
    ("hang-takes-all", (Policy(deadline=9.0), {}), (calm(), {})),
    (
        "breaker-traffic",
        (calm(), breaker(window=Window.seconds(60.0))),
        (calm(), breaker(window=Window.seconds(9.0))),
    ),
    (
        "breaker-traffic",
        (calm(), breaker(window=Window.seconds(60.0), min_calls=2)),
        (calm(), breaker(window=Window.seconds(60.0), min_calls=1)),
    ),
    (
        "breaker-closes-slowly",
        (calm(), breaker(success_threshold=2)),
        (calm(), breaker(success_threshold=2, half_open_probes=2)),
    ),
    ("breaker-counts-all", (calm(), breaker(count="all")), (calm(), breaker())),
    (
        "breaker-judges-results",
        (calm(), breaker(failure_if_result=is_empty)),
        (calm(retry_if_result=is_empty), breaker()),
    ),
    (
        "first-calls-wait",
        (calm(), {"limits": [RateRule(first_calls=True)]}),
        (calm(), {"limits": [RateRule()]}),
    ),
    ("hedge-not-counted", (calm(), {"layers": ["hedge"]}), (calm(), {"layers": ["bulkhead"]})),
    ("computed-waits", (calm(wait_from=len), {}), (calm(), {})),
    (
        "exhausted-without-results",
        (calm(on_exhausted="raise"), {}),
        (calm(on_exhausted="raise", retry_if_result=len), {}),
    ),
]


@pytest.mark.parametrize(("code", "raising", "near"), CASES)
def test_a_mistake_is_warned_of_and_its_neighbour_is_not(code, raising, near):
    """Each rule finds what it is there for, and stops where it should."""
    assert code in codes(explain_policy(raising[0], **raising[1]))
    assert code not in codes(explain_policy(near[0], **near[1]))


@pytest.mark.parametrize(("code", "raising", "near"), NOTED)
def test_what_is_worth_knowing_is_a_note_and_no_warning(code, raising, near):
    """A note is not counted among the warnings."""
    explanation = explain_policy(raising[0], **raising[1])
    assert code in note_codes(explanation)
    assert code not in codes(explanation)
    assert code not in note_codes(explain_policy(near[0], **near[1]))


def test_every_rule_is_tried_above():
    """A rule that is added needs a policy that meets it."""
    tried = {(code, "warning") for code, *_ in CASES} | {(code, "note") for code, *_ in NOTED}
    assert tried == {(code, level) for code, level, _ in RULES}
    assert len({code for code, *_ in RULES}) == len(RULES)


@pytest.mark.parametrize("deadline", [0.5, 5.0, 30.0, 600.0])
def test_the_default_policy_with_a_deadline_is_not_warned_of(deadline):
    """Nor is it with the default breaker and a budget of the default ratio."""
    policy = Policy(deadline=deadline)
    breakers = [("payments", BreakerSettings())]
    assert codes(explain_policy(policy, breakers=breakers, budget_ratio=0.2)) == []


def test_the_calm_policy_of_these_tests_is_not_warned_of():
    """Or a neighbour above might be silent for another reason."""
    assert codes(explain_policy(calm())) == []


@pytest.mark.parametrize(
    ("policy", "around", "text"),
    [
        (
            Policy(attempt_timeout=10.0, deadline=8.0),
            {},
            (
                "attempt_timeout 10 s exceeds deadline 8 s: an attempt that hangs leaves no time"
                " for another; set attempt_timeout below 4 s, or raise the deadline"
            ),
        ),
        (
            Policy(attempt_timeout=8.0, deadline=8.0),
            {},
            (
                "attempt_timeout 8 s equals deadline 8 s: an attempt that hangs leaves no time"
                " for another; set attempt_timeout below 4 s, or raise the deadline"
            ),
        ),
        (
            calm(),
            breaker(window=Window.seconds(3.0)),
            (
                "breaker 'payments' cannot trip below 3.3 calls a second: its window of 3 s must"
                " hold min_calls 10; lower min_calls or widen the window"
            ),
        ),
        (
            calm(backoff=Backoff.constant(20.0)),
            {},
            (
                "the waits alone pass deadline 30 s: only 2 of 3 attempts can ever start; lower"
                " max_attempts, shorten the backoff or raise the deadline"
            ),
        ),
        (
            Policy(max_attempts=5, attempt_timeout=2.0, deadline=5.0),
            {},
            (
                "if each attempt takes its attempt_timeout 2 s, only 3 of 5 start before"
                " deadline 5 s; shorten attempt_timeout, lower max_attempts or raise the deadline"
            ),
        ),
        (
            calm(retry_on=Exception, never_retry_on=PermissionError),
            {},
            (
                "retry_on Exception: everything but what never_retry_on names is retried, also"
                " mistakes such as a TypeError; name what can pass, such as (ConnectionError,"
                " TimeoutError)"
            ),
        ),
        (
            per_kind(jitter=FLAT),
            {},
            (
                "the first retry after a throttled failure waits 0.1 s and never more or less:"
                " clients that failed together return together; set a jitter, such as"
                " Jitter.percent(0.1)"
            ),
        ),
        (
            calm(),
            breaker(failure_threshold=2),
            (
                "one call can open breaker 'payments': failure_threshold 2 is not above its 3"
                " attempts; raise failure_threshold above 3"
            ),
        ),
    ],
)
def test_a_warning_says_the_values_and_what_to_do(policy, around, text):
    """The whole sentence, and only that one."""
    assert [warning.text for warning in explain_policy(policy, **around).warnings] == [text]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (
            {"window": Window.seconds(60.0)},
            (
                "breaker 'payments' cannot trip below 10 calls a minute: its window of 60 s must"
                " hold min_calls 10; lower min_calls or widen the window"
            ),
        ),
        (
            {"success_threshold": 3},
            "breaker 'payments' closes after 3 probes that succeed, one at a time",
        ),
        (
            {"success_threshold": 3, "half_open_probes": 2},
            "breaker 'payments' closes after 3 probes that succeed, 2 at a time",
        ),
    ],
)
def test_a_note_says_the_values(settings, text):
    """The last of the notes is the breaker's."""
    assert explain_policy(calm(), **breaker(**settings)).notes[-1].text == text


def test_each_breaker_is_looked_at():
    """The second one's mistake is found, and named."""
    breakers = [("good", BreakerSettings()), ("bad", BreakerSettings(failure_threshold=1))]
    (warning,) = explain_policy(calm(), breakers=breakers).warnings
    assert "'bad'" in warning.text


# --- as text and as data --------------------------------------------------------------------------


def test_an_explanation_reads_well_on_a_terminal():
    """The whole text, with every row there can be."""
    policy = Policy(name="pay", max_attempts=4, attempt_timeout=2.0, jitter=FLAT)
    explanation = explain_policy(
        policy,
        budget_ratio=0.2,
        around=[Policy(name="checkout", max_attempts=5)],
        layers=["fallback", "hedge"],
    )
    assert (
        str(explanation)
        == """\
pay
  attempts   at most 4; +20 % load while all fail
  waits      0.1 s, 0.2 s, 0.4 s; 0.7 s in all
  wall time  at most 8.7 s; 188 s if the other side asks for it (Retry-After)
  nesting    pay in checkout: at most 5 calls instead of 20
  order      fallback > retry > budget > hedge > function
  warning    [no-jitter] the first retry waits 0.1 s and never more or less: clients that failed
             together return together; set a jitter, such as Jitter.percent(0.1)
  note       [sync-not-interrupted] timeout_by "client": a sync attempt is not interrupted; its
             client must heed mainstay.deadline.remaining(), or set timeout_by="thread"
  note       [hedge-not-counted] a hedge may start further attempts beside each one; they are
             not counted here"""
    )


def test_rows_that_have_nothing_to_say_are_left_out():
    """One attempt, no limit: no waits, no load."""
    assert str(explain_policy(Policy(max_attempts=1), subject="ping")).splitlines()[:4] == [
        "ping",
        "  attempts   at most 1",
        "  wall time  without limit",
        "  order      function",
    ]


def test_a_long_list_of_waits_is_cut_in_the_middle():
    """Six are shown whole; of more, the first five and the last."""
    policy = Policy(max_attempts=7, backoff=Backoff.linear(1.0), jitter=Jitter.percent(0.5))
    six = "0.5–1.5 s, 1–3 s, 1.5–4.5 s, 2–6 s, 2.5–7.5 s, 3–9 s; 31.5 s in all"
    assert f"  waits      {six}\n" in str(explain_policy(policy))
    seven = "0.5–1.5 s, 1–3 s, 1.5–4.5 s, 2–6 s, 2.5–7.5 s, …, 3.5–10.5 s; 42 s in all"
    assert f"  waits      {seven}\n" in str(explain_policy(policy.replace(max_attempts=8)))


def test_a_product_that_nothing_collapses_stands_alone():
    """There is no other number to give."""
    text = str(explain_policy(Policy(name="a"), around=[Policy(name="b", nested="warn")]))
    assert "  nesting    a in b: at most 9 calls\n" in text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.00004, "4e-05 s"), (0.0015, "0.002 s"), (12.0, "12 s"), (90_000.5, "90,000.5 s")],
)
def test_seconds_are_told_without_idle_digits(seconds, text):
    """And never as nothing where they are something."""
    explanation = explain_policy(Policy(max_attempts=1, deadline=seconds))
    assert f"wall time  at most {text}\n" in str(explanation)


def test_an_explanation_goes_to_json_and_back():
    """Lists and dictionaries of plain values, with every field."""
    explanation = explain_policy(Policy(name="api", jitter=FLAT), around=[Policy(name="out")])
    plain = explanation.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert list(plain) == list(explanation.__struct_fields__)
    assert plain["waits"] == [[0.1, 0.1], [0.2, 0.2]]
    assert plain["around"] == ["out"]
    assert [warning["code"] for warning in plain["warnings"]] == ["unbounded", "no-jitter"]


def test_an_explanation_is_a_frozen_value():
    """Compared by its fields, hashed, pickled, never changed."""
    one, other = explain_policy(calm()), explain_policy(calm())
    assert one == other
    assert hash(one) == hash(other)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != explain_policy(calm(max_attempts=2))
    with pytest.raises(AttributeError):
        one.attempts = 9


# --- an engine ------------------------------------------------------------------------------------


def test_the_worst_operation_is_the_one_that_may_take_longest():
    """Without limit is longest; among equals the attempts decide."""
    short = explain_policy(Policy(name="short", deadline=5.0))
    long = explain_policy(Policy(name="long", deadline=50.0))
    more = explain_policy(Policy(name="more", deadline=50.0, max_attempts=4))
    endless = explain_policy(Policy(name="endless"))
    assert explain_engine([("a", long), ("b", short)]).worst == "a"
    assert explain_engine([("a", long), ("b", more)]).worst == "b"
    assert explain_engine([("a", endless), ("b", more)]).worst == "a"
    assert explain_engine([]).worst is None


def test_an_engine_tells_its_warnings_with_the_operation():
    """Who is warned of what, in the order of the operations."""
    endless, flat = explain_policy(Policy()), explain_policy(calm(jitter=FLAT))
    engine = explain_engine([("read", endless), ("write", flat)])
    found = [(name, warning.code) for name, warning in engine.warnings]
    assert found == [("read", "unbounded"), ("write", "no-jitter")]
    plain = engine.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["operations"] == {"read": endless.to_dict(), "write": flat.to_dict()}
    assert plain["warnings"][0] == {
        "operation": "read",
        "code": "unbounded",
        "text": endless.warnings[0].text,
    }


def test_an_engine_reads_well_on_a_terminal():
    """One part for each operation, with the policy where its name is another, and a last line."""
    one = explain_policy(Policy(name="read", deadline=5.0, max_attempts=1))
    other = explain_policy(Policy(name="standard"))
    text = str(explain_engine([("read", one), ("write", other)]))
    assert text == f"{one}\n\nwrite, under {other}\n\nworst: write; warnings: 1"
    assert str(explain_engine([])) == "no operations"


def test_a_remark_is_its_code_and_its_sentence():
    """So that a filter and a person both find what they look for."""
    assert str(Remark("unbounded", "set a deadline")) == "[unbounded] set a deadline"
