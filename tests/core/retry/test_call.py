"""The life of one call, driven by hand: questions are answered from a script.

`Driver` is a second, small driver, written from the table in docs/design.md. `expected()` is a
second, naive account of what should happen, written from the specification: no generator, no
shortcuts, its own arithmetic. Hypothesis compares the two.
"""

import gc
import math
import weakref
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mainstay.core.base.deadline import NEVER
from mainstay.core.base.entropy import key_of, uniform
from mainstay.core.base.event import Event
from mainstay.core.events.builder import EventBuilder
from mainstay.core.known.kind import Kind
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.effects import (
    TOO_LATE,
    Consult,
    Enclosing,
    Question,
    Returned,
    Stop,
    Warn,
)
from mainstay.core.retry.events import (
    AttemptFailed,
    CallFailed,
    CallSucceeded,
    RetryAttempt,
    RetryExhausted,
)
from mainstay.core.retry.give_up import GaveUp
from mainstay.core.retry.hooks import CallHook
from mainstay.core.retry.plan import GIVE_UP, Plan, fast_decision
from mainstay.core.retry.policy import KindRule, Policy
from mainstay.core.retry.retry_after import parse_date
from mainstay.errors import (
    AttemptTimeout,
    DeadlineExceeded,
    MainstayWarning,
    NestedRetryError,
    NestedRetryWarning,
    OutcomeUnknown,
)

KEY = key_of(7, 0)


class ApiError(Exception):
    def __init__(self, message="", **attributes):
        super().__init__(message)
        for name, value in attributes.items():
            setattr(self, name, value)


# --- the driver -----------------------------------------------------------------------------------


@dataclass
class Driver:
    """Answers a call's questions, and writes down what it was asked for."""

    script: list
    """Outcomes, or (seconds, outcome) where an attempt takes time."""
    now: float = 0.0
    wall: float = 1_000_000.0
    key: int = KEY
    enclosing: Enclosing | None = None
    since: int = 0
    """The moment at which each attempt began."""
    waits: list = field(default_factory=list)
    asked: list = field(default_factory=list)
    events: list = field(default_factory=list)
    hooks: list = field(default_factory=list)
    warnings: list = field(default_factory=list)
    answers: list = field(default_factory=list)
    guards: list = field(default_factory=list)
    """What guards answer when they are consulted, one after the other."""
    effects: list = field(default_factory=list)

    def drive(self, alive):
        """Obeys the generator to its end; what it ends with is an exception or a Returned."""
        rest = iter(self.script)
        answer = None
        while True:
            effect = alive.send(answer)
            self.effects.append(effect)
            if isinstance(effect, BaseException | Returned):
                alive.close()
                return effect
            answer = self.answer(effect, rest)
            self.answers.append(answer)

    def answer(self, effect, rest):
        if type(effect) is float:
            self.waits.append(effect)
            self.now += effect
            outcome = next(rest)
            seconds, outcome = outcome if isinstance(outcome, tuple) else (0.0, outcome)
            self.now += seconds
            return outcome
        if isinstance(effect, Consult):
            answer = self.guards.pop(0)
            return effect.delay if answer is None else answer
        if isinstance(effect, Question):
            self.asked.append(effect)
            return {
                Question.NOW: self.now,
                Question.WALL: self.wall + self.now,
                Question.DRAW: self.key,
                Question.ENCLOSING: self.enclosing,
                Question.SINCE: self.since,
            }[effect]
        {CallHook: self.hooks, Warn: self.warnings}.get(type(effect), self.events).append(effect)
        assert isinstance(effect, CallHook | Warn | Event)
        return None


def plan_of(policy=None, *, idempotency="idempotent", token=1, **fields):
    return Plan(policy or Policy(**fields), "fetch", token, idempotency)


def run(plan, *script, driver=None, until=NEVER, **more):
    """(the driver, the end) of a call whose attempts have these outcomes."""
    driver = driver or Driver(list(script))
    driver.script = list(script)
    return driver, driver.drive(call_flow(plan, until=until, **more))


def teller_of(plan, started=0.0):
    return EventBuilder(plan, started)


def note_of(error):
    notes = getattr(error, "__notes__", [])
    return notes[0] if notes else None


# --- attempts -------------------------------------------------------------------------------------


def test_a_plan_is_idempotent_unless_it_says_otherwise():
    """Asking for retries says that repeating is safe; the words are those of the API."""
    assert Plan(Policy(), "fetch", 1).idempotency == "idempotent"


def test_a_call_that_succeeds_is_invoked_once():
    """A first success waits for nothing and asks for nothing."""
    driver, end = run(plan_of(), Returned("value"))
    assert (end.value, end.is_accepted) == ("value", True)
    assert driver.waits == [0.0]
    assert driver.asked == []


@pytest.mark.req("FR-041-24", "FR-041-28", "AC-011", "AC-012", "AC-015", "UT-041-09", "NFR-041-11")
def test_a_retryable_failure_is_followed_by_another_attempt():
    """Failure, wait, attempt, success: the value of the last is the call's."""
    plan = plan_of(max_attempts=4, jitter=Jitter.none())
    driver, end = run(plan, ConnectionError(), TimeoutError(), Returned(None))
    assert (type(end), end.value, end.is_accepted) == (Returned, None, True)
    assert driver.waits == [0.0, 0.1, 0.2]


@pytest.mark.req("FR-041-02", "FR-041-29", "FR-041-30", "NFR-041-16", "AC-016", "UT-041-10")
@pytest.mark.parametrize("attempts", [1, 2, 3, 7])
def test_the_attempts_are_counted_and_the_last_error_is_raised(attempts):
    """Exactly max_attempts are made, the first included; then the last exception itself comes."""
    failures = [ConnectionError(str(n)) for n in range(10)]
    driver, end = run(plan_of(max_attempts=attempts), *failures)
    assert end is failures[attempts - 1]
    assert len(driver.waits) == attempts


@pytest.mark.req("CP-21", "FR-041-23", "FR-041-25", "NFR-041-16", "AC-011", "AC-013")
@pytest.mark.parametrize("listening", [False, True])
def test_a_failure_that_is_not_retryable_is_raised_at_once(listening):
    """It is never delayed: no wait, no other attempt, the same object; its note has the rule."""
    for failure in (ValueError("mine"), PermissionError(), KeyError("k"), RuntimeError()):
        plan = plan_of(max_attempts=5)
        builder = teller_of(plan) if listening else None
        driver, end = run(plan, failure, builder=builder)
        assert end is failure
        assert driver.waits == [0.0]
        assert note_of(end).startswith(f"mainstay: not retried: {type(failure).__name__} is ")


@pytest.mark.req("CP-21", "FR-041-25")
def test_a_failure_that_is_not_retryable_ends_a_row_of_retries():
    """After retries the note has how many attempts there were, and which rule decided."""
    for warm in (False, True):
        plan = plan_of(max_attempts=5)
        if warm:  # both types are settled
            run(plan, ConnectionError(), ValueError())
        failure = ValueError("mine")
        driver, end = run(plan, ConnectionError(), failure, key=KEY, outer=None)
        assert end is failure
        assert len(driver.waits) == 2
        assert note_of(end) == (
            "mainstay: gave up on fetch after 2 attempts: not retryable: ValueError is permanent"
            " (a ValueError); a policy without on= retries what is transient, throttled, timeout,"
            " overload"
        )


def test_a_single_attempt_leaves_no_note():
    """Where nothing was retried there is nothing to tell."""
    for outer in (None, Question.ENCLOSING):
        plan = plan_of(max_attempts=1)
        for _ in range(2):  # the second time its type is settled
            _, end = run(plan, ConnectionError(), outer=outer, key=KEY)
            assert note_of(end) is None


@pytest.mark.parametrize("outer", [None, Question.ENCLOSING])
def test_the_exception_says_that_it_was_given_up_on(outer):
    """One note, which is also the mark of this site."""
    plan = plan_of(max_attempts=2, token=42)
    for _ in range(2):
        _, end = run(plan, ConnectionError(), ConnectionError(), outer=outer, key=KEY)
        [note] = end.__notes__
        assert note == "mainstay: gave up on fetch after 2 attempts: no attempt left"
        assert (type(note), note.token, note.attempts) == (GaveUp, 42, 2)


def test_one_note_only_on_an_exception_object_that_is_raised_again():
    """A mock's side_effect raises one object for ever; its notes do not pile up."""
    failure = ConnectionError()
    plan = plan_of(max_attempts=3)
    for _ in range(3):
        _, end = run(plan, failure, failure, failure)
        assert end is failure
        assert len(end.__notes__) == 1


def test_a_note_is_made_anew_only_where_it_differs():
    """The plan keeps the last note: attempts and reason must match for it to be used again."""
    plan = plan_of(max_attempts=3)
    first = note_of(run(plan, *[ConnectionError() for _ in range(3)])[1])
    again = note_of(run(plan, *[ConnectionError() for _ in range(3)])[1])
    other = note_of(run(plan, ConnectionError(), ValueError())[1])
    shorter = note_of(run(plan, ConnectionError(), ConnectionError(), limit=2)[1])
    assert again is first
    assert (other.attempts, other.reason) == (2, "not retryable")
    assert (shorter.attempts, shorter.reason) == (2, "no attempt left")


def test_a_smaller_limit_than_the_policys_holds():
    """A caller may allow fewer attempts; 0 means the policy's own."""
    plan = plan_of(max_attempts=5)
    for limit, made in [(1, 1), (3, 3), (0, 5)]:
        for _ in range(2):
            failures = [ConnectionError() for _ in range(6)]
            driver, _ = run(plan, *failures, limit=limit, key=KEY, outer=None)
            assert len(driver.waits) == made


def test_the_first_attempt_may_have_been_made_already():
    """The wrapper hands in the first outcome; the rest of the life is the same."""
    plan = plan_of(max_attempts=3, jitter=Jitter.none())
    for _ in range(2):
        driver, end = run(plan, Returned(5), outcome=ConnectionError(), key=KEY, outer=None)
        assert driver.waits == [0.1]
        assert end.value == 5
    driver, end = run(plan, outcome=Returned(6))
    assert driver.waits == []
    assert end.value == 6


def test_after_its_end_a_life_has_nothing_more_to_say():
    """A driver that asks on is told that it is over: the plain way, the long way, and success."""
    plan = plan_of(max_attempts=1)
    for outcome in (ConnectionError(), ConnectionError(), Returned(1)):
        alive = call_flow(plan, outcome, KEY, None)
        next(alive)
        assert next(alive, "over") == "over"


def test_nothing_holds_on_to_a_failure_while_waiting():
    """The failure, its traceback and the frames below it can be freed during the wait."""

    class Weak(ConnectionError):
        pass

    for policy in (Policy(retry_on=Weak), Policy(retry_on=Weak, deadline=5.0)):
        plan = plan_of(policy)
        for _ in range(2):
            alive = call_flow(plan, key=KEY, outer=None)
            next(alive)
            failure = Weak()
            seen = weakref.ref(failure)
            effect = alive.send(failure)
            assert type(effect) is float
            del failure
            gc.collect()
            assert seen() is None
            alive.close()


# --- delays ---------------------------------------------------------------------------------------


@pytest.mark.req(
    "FR-041-27", "FR-041-46", "FR-041-50", "CP-16", "NFR-041-12", "NFR-041-19", "AC-024"
)
@pytest.mark.parametrize("kind", ["none", "percent", "additive", "full", "equal", "decorrelated"])
@pytest.mark.parametrize("listening", [False, True])
def test_the_waits_of_a_seeded_call_are_those_the_policy_foretells(kind, listening):
    """What is waited is delays(seed), to the bit, however the life goes about it."""
    policy = Policy(max_attempts=9, jitter=Jitter(kind, 0.3 if kind == "percent" else 0.0))
    plan = plan_of(policy)
    for _ in range(2):
        failures = [ConnectionError() for _ in range(9)]
        builder = teller_of(plan) if listening else None
        driver, _ = run(plan, *failures, key=key_of(7, 0), outer=None, builder=builder)
        assert driver.waits[1:] == policy.delays(seed=7)


def test_the_key_is_asked_for_at_the_first_failure_and_once():
    """A call that succeeds draws nothing; a call with a key asks for none."""
    plan = plan_of(max_attempts=4)
    failures = [ConnectionError() for _ in range(3)]
    driver, _ = run(plan, *failures, Returned(1))
    assert driver.asked.count(Question.DRAW) == 1
    assert driver.waits[1:] == plan.policy.delays(seed=7)
    driver, _ = run(plan, *failures, Returned(1), key=KEY)
    assert Question.DRAW not in driver.asked


def test_the_key_is_asked_for_where_only_the_enclosing_retry_is_known():
    """The two are given or asked for independently, also once the failure's type is settled."""
    plan = plan_of(max_attempts=2)
    for _ in range(2):
        driver, _ = run(plan, ConnectionError(), Returned(1), outer=None)
        assert driver.asked == [Question.DRAW]
        assert driver.waits[1:] == plan.policy.delays(seed=7)


@pytest.mark.req("FR-041-48", "FR-041-49", "AC-023")
def test_a_zero_delay_retries_at_once():
    """Zero is a wait like any other: an attempt follows it."""
    plan = plan_of(max_attempts=4, backoff=Backoff.constant(0))
    failures = [ConnectionError() for _ in range(3)]
    driver, end = run(plan, *failures, Returned("done"))
    assert driver.waits == [0.0] * 4
    assert end.value == "done"


def test_a_decorrelated_delay_follows_the_one_that_was_waited():
    """Each wait is the base of the next, hints included."""
    policy = Policy(
        max_attempts=3, backoff=Backoff.constant(1.0), jitter=Jitter.decorrelated(),
    )  # fmt: skip
    driver, _ = run(
        plan_of(policy), ApiError(status_code=429, retry_after=15), ConnectionError(), Returned(1)
    )
    _, first, second = driver.waits
    assert first == 15.0 + uniform(KEY, 1) * 15.0
    assert second == 1.0 + uniform(KEY, 2) * (min(60.0, 3 * first) - 1.0)


def test_a_backoff_that_raises_waits_the_cap_and_is_reported():
    """The original failure is not lost for a bug in a curve."""

    def curve(n):
        raise LookupError("bug")

    custom = Backoff.custom(curve, max_delay=7.0)
    for policy in (
        Policy(backoff=custom, jitter=Jitter.full()),
        Policy(per_kind={"transient": KindRule(backoff=custom)}),
    ):
        for _ in range(2):
            failures = [ConnectionError() for _ in range(3)]
            driver, end = run(plan_of(policy), *failures, key=KEY, outer=None)
            assert end is failures[2]
            assert driver.waits == [0.0, 7.0, 7.0]
            assert "bug" in driver.warnings[0].text
            assert driver.warnings[0].category is MainstayWarning


# --- kinds ----------------------------------------------------------------------------------------


def test_a_kind_has_its_own_limit_and_curve():
    """A throttle waits longer than a reset connection; each kind climbs its own curve."""
    policy = Policy(
        max_attempts=10,
        backoff=Backoff.linear(1.0),
        jitter=Jitter.none(),
        per_kind={"throttled": KindRule(3, Backoff.linear(10.0))},
    )
    throttle, reset = ApiError(status_code=429), ConnectionError()
    driver, end = run(plan_of(policy), reset, throttle, reset, throttle, reset, throttle)
    assert driver.waits == [0.0, 1.0, 10.0, 2.0, 20.0, 3.0]
    assert end is throttle
    assert note_of(end) == (
        "mainstay: gave up on fetch after 6 attempts: no attempt left for this kind of failure"
    )


def test_the_policys_limit_caps_the_sum():
    """A generous rule for a kind does not outlive max_attempts."""
    policy = Policy(max_attempts=2, per_kind={"transient": KindRule(9)})
    driver, _ = run(plan_of(policy), ConnectionError(), ConnectionError())
    assert len(driver.waits) == 2


def test_a_rule_without_a_limit_leaves_the_policys():
    """Only what a rule says is changed."""
    policy = Policy(
        max_attempts=3, jitter=Jitter.none(),
        per_kind={"transient": KindRule(backoff=Backoff.constant(9.0))},
    )  # fmt: skip
    driver, _ = run(plan_of(policy), *[ConnectionError() for _ in range(3)])
    assert driver.waits == [0.0, 9.0, 9.0]


def test_a_kind_that_may_be_tried_once_is_not_retried():
    """A limit of one attempt for a kind gives up at its first failure, and says so."""
    policy = Policy(per_kind={"timeout": KindRule(1)})
    driver, end = run(plan_of(policy), TimeoutError())
    assert driver.waits == [0.0]
    assert "for this kind" in note_of(end)


# --- Retry-After ----------------------------------------------------------------------------------

PLAIN = {"jitter": Jitter.none(), "backoff": Backoff.constant(2.0), "max_attempts": 3}


@pytest.mark.parametrize(
    ("asked", "waited"), [(0, 2.0), (1, 2.0), (2, 2.0), (7.5, 7.5), (60, 60.0), ("9", 9.0)]
)
def test_the_longer_of_delay_and_hint_is_waited(asked, waited):
    """Max(delay, retry_after); a limit of exactly max_retry_after is still waited."""
    driver, _ = run(plan_of(**PLAIN), ApiError(status_code=503, retry_after=asked), Returned(1))
    assert driver.waits == [0.0, waited]
    assert Question.WALL not in driver.asked


@pytest.mark.parametrize("asked", [60.001, 3600, "86400"])
def test_a_longer_hint_than_allowed_gives_up_now(asked):
    """Nobody sleeps an hour in vain: the error comes at once, with the reason."""
    failure = ApiError(status_code=503, retry_after=asked)
    driver, end = run(plan_of(**PLAIN), failure)
    assert end is failure
    assert driver.waits == [0.0]
    assert note_of(end) == (
        "mainstay: gave up on fetch after 1 attempt:"
        " the server asked for a longer wait than allowed"
    )


def test_max_retry_after_is_the_policys():
    """It is compared with what the server asked, not with the policy's own delay."""
    failure = ApiError(status_code=503, retry_after=5)
    assert run(plan_of(**PLAIN, max_retry_after=4), failure)[1] is failure
    slow = {**PLAIN, "backoff": Backoff.constant(10.0), "max_retry_after": 5}
    driver, _ = run(plan_of(**slow), failure, Returned(1))
    assert driver.waits == [0.0, 10.0]


DATE = "Sun, 06 Nov 1994 08:49:37 GMT"


@pytest.mark.parametrize(("ahead", "waited"), [(30.0, 30.0), (1.0, 2.0), (-500.0, 2.0)])
def test_a_date_is_read_against_the_wall_clock(ahead, waited):
    """Where the response has no Date, the driver's wall clock is asked; the past is no wait."""
    failure = ApiError(response=SimpleNamespace(status_code=503, headers={"Retry-After": DATE}))
    driver = Driver([], wall=parse_date(DATE) - ahead)
    driver, _ = run(plan_of(**PLAIN), failure, Returned(1), driver=driver)
    assert driver.waits == [0.0, waited]
    assert driver.asked.count(Question.WALL) == 1


def test_a_date_too_far_ahead_gives_up_now():
    """As a number of seconds does."""
    failure = ApiError(response=SimpleNamespace(status_code=503, headers={"Retry-After": DATE}))
    driver = Driver([], wall=parse_date(DATE) - 61.0)
    _, end = run(plan_of(**PLAIN), failure, driver=driver)
    assert end is failure


@pytest.mark.parametrize("wall", [50.0, 0.0, -0.5])
def test_a_date_that_has_passed_is_no_wait_at_all(wall):
    """Also at the beginning of time: the moment zero is a moment."""
    past = ApiError(retry_after="Thu, 01 Jan 1970 00:00:00 GMT", status_code=503)
    plan = plan_of(backoff=Backoff.constant(0.0), jitter=Jitter.none())
    driver, _ = run(plan, past, Returned(1), driver=Driver([], wall=wall))
    assert driver.waits == [0.0, max(0.0, -wall)]


def test_a_hint_past_the_deadline_gives_up_now():
    """The deadline is respected: no sleep that it would cut."""
    failure = ApiError(status_code=503, retry_after=5)
    driver, end = run(plan_of(**PLAIN), failure, until=5.0)
    assert end is failure
    assert driver.waits == [0.0]
    assert note_of(end).endswith("the deadline leaves no time for another attempt")


def test_nonsense_in_a_hint_is_ignored():
    """The policy's own delay is waited."""
    for nonsense in ("soon", -5, math.nan, 10**400):
        failure = ApiError(status_code=503, retry_after=nonsense)
        driver, _ = run(plan_of(**PLAIN), failure, Returned(1))
        assert driver.waits == [0.0, 2.0]


def test_an_exception_that_takes_no_note_is_given_up_on_without_one():
    """By the fast path too: it is raised all the same."""

    class Frozen(Exception):
        def add_note(self, note):
            raise TypeError("frozen")

    plan = plan_of(**{**PLAIN, "max_attempts": 2}, retry_on=Frozen)
    plan.policy.classification(Frozen())  # the type is settled from now on
    failure = Frozen()
    assert fast_decision(plan, failure, 2, 1, 0.0) == GIVE_UP
    assert note_of(failure) is None


# --- deadlines ------------------------------------------------------------------------------------


@pytest.mark.req("NFR-041-11")
def test_no_wait_passes_the_deadline():
    """Where an attempt could not start in time, the last real error comes now, with a note."""
    failures = [ConnectionError(str(n)) for n in range(5)]
    driver, end = run(
        plan_of(**{**PLAIN, "max_attempts": 9}), *((1.0, f) for f in failures), until=7.0
    )
    assert driver.waits == [0.0, 2.0, 2.0]
    assert end is failures[2]
    assert driver.now == 7.0
    assert note_of(end) == (
        "mainstay: gave up on fetch after 3 attempts:"
        " the deadline leaves no time for another attempt"
    )


def test_an_attempt_that_would_start_at_the_very_end_is_not_made():
    """2 s of waiting fit before 2.1 s, not before 2.0 s."""
    for until, made in [(2.0, 1), (2.1, 2)]:
        driver, _ = run(plan_of(**PLAIN), ConnectionError(), Returned(1), until=until)
        assert len(driver.waits) == made


def test_a_success_is_a_success_however_late():
    """The deadline limits attempts, not their value."""
    _, end = run(plan_of(), (99.0, Returned("late")), until=1.0)
    assert end.value == "late"


def test_a_first_attempt_cut_by_the_deadline_is_deadline_exceeded():
    """There is no real error to raise; the cut attempt is the cause."""
    cut = AttemptTimeout(5.0)
    _, end = run(plan_of(**PLAIN), (5.0, cut), until=5.0)
    assert type(end) is DeadlineExceeded
    assert end.deadline == 5.0
    assert end.__cause__ is cut
    assert "after 1 attempt: the deadline" in note_of(end)


def test_a_later_attempt_cut_by_the_deadline_is_deadline_exceeded_from_the_real_error():
    """Whichever attempt was cut, the type is the same; what went wrong before is the cause."""
    real = ConnectionError("real")
    plan = plan_of(**PLAIN, deadline=7.0)
    _, end = run(plan, real, (5.0, AttemptTimeout(3.0)), until=7.0)
    assert type(end) is DeadlineExceeded
    assert end.deadline == 7.0
    assert str(end) == "no attempt succeeded within the deadline of 7 s"
    assert end.__cause__ is real
    assert "after 2 attempts: the deadline" in note_of(end)
    assert note_of(real) is None


def test_a_deadline_that_is_not_the_policys_is_what_the_cut_attempt_had():
    """The end of an enclosing call: how long that was is not known here."""
    outcomes = (ConnectionError(), (5.0, AttemptTimeout(3.0)))
    _, end = run(plan_of(**PLAIN), *outcomes, until=7.0)
    assert end.deadline == 3.0
    _, end = run(plan_of(**PLAIN, deadline=60.0), *outcomes, until=7.0, has_own_end=False)
    assert end.deadline == 3.0


def test_an_attempt_cut_after_a_rejected_result_was_not_the_only_one_that_ended():
    """The cut attempt is the cause, since nothing else failed; the deadline is the policy's."""
    plan, cut = plan_of(**PLAIN, deadline=7.0, retry_if_result=lambda _: True), AttemptTimeout(3.0)
    _, end = run(plan, Returned("not yet"), (5.0, cut), until=7.0)
    assert (str(end), end.__cause__) == ("no attempt succeeded within the deadline of 7 s", cut)


def test_a_last_attempt_cut_by_the_deadline_is_out_of_time_too():
    """Also where no attempt would have been left: the deadline cut it."""
    plan = plan_of(**{**PLAIN, "max_attempts": 2})
    real = ConnectionError("real")
    _, end = run(plan, real, (5.0, AttemptTimeout(3.0)), until=7.0)
    assert (type(end), end.__cause__) == (DeadlineExceeded, real)
    _, end = run(plan_of(max_attempts=1), (5.0, AttemptTimeout(5.0)), until=5.0)
    assert type(end) is DeadlineExceeded


def test_a_last_attempt_cut_by_its_own_timeout_is_an_attempt_timeout():
    """Where the deadline has time left, the attempt's own limit cut it."""
    cut = AttemptTimeout(1.0)
    for until in (50.0, 1.5, NEVER):
        _, end = run(plan_of(max_attempts=1), (1.0, cut), until=until)
        assert end is cut
    first, second = AttemptTimeout(1.0), AttemptTimeout(1.0)
    for until in (50.0, 3.5):  # half a second is left: too little for a wait, but it is left
        _, end = run(plan_of(**{**PLAIN, "max_attempts": 2}), first, (1.0, second), until=until)
        assert end is second


def test_an_earlier_cut_attempt_counts_as_a_real_error():
    """An attempt that timed out by itself is what went wrong."""
    first = AttemptTimeout(1.0)
    _, end = run(plan_of(**PLAIN), (1.0, first), (9.0, AttemptTimeout(9.0)), until=12.0)
    assert (type(end), end.__cause__) == (DeadlineExceeded, first)


def test_an_attempt_that_timed_out_by_itself_is_raised_if_a_retry_would_not_fit():
    """The deadline has not cut it: it is the real error, whichever attempt it was."""
    for before in ([], [(1.0, ConnectionError("before"))]):
        cut = AttemptTimeout(2.0)
        until = 3.0 + 3.0 * len(before)  # a second is left, and the wait would take two
        _, end = run(plan_of(**PLAIN, attempt_timeout=2.0), *before, (2.0, cut), until=until)
        assert end is cut
        assert "the deadline leaves no time for another attempt" in note_of(end)


def test_a_final_failure_stays_final_after_the_deadline():
    """A ValueError is a ValueError, late or not."""
    failure = ValueError()
    _, end = run(plan_of(), (9.0, failure), until=1.0)
    assert end is failure
    assert note_of(end).startswith("mainstay: not retried: ValueError is permanent")


def test_an_error_that_is_false_is_an_error():
    """An exception with a length of zero is not taken for none."""

    class Empty(ConnectionError):
        def __len__(self):
            return 0

    real = Empty()
    _, end = run(plan_of(**PLAIN), real, (5.0, AttemptTimeout(3.0)), until=7.0)
    assert end.__cause__ is real


@pytest.mark.parametrize("listening", [False, True])
def test_an_attempt_for_which_time_ran_out_in_a_hook_or_wait_is_not_counted(listening):
    """The driver could not start it: the last real error comes, after the attempts made."""
    plan = plan_of(**PLAIN, nested="warn")
    first, second = ConnectionError("1"), ConnectionError("2")
    builder = teller_of(plan) if listening else None
    driver, end = run(plan, first, second, TOO_LATE, until=50.0, builder=builder)
    assert end is second
    assert note_of(end) == (
        "mainstay: gave up on fetch after 2 attempts:"
        " the deadline leaves no time for another attempt"
    )
    assert [type(e) for e in driver.events][-1:] == [RetryExhausted] * listening
    if listening:
        last = driver.events[-1]
        assert (last.total_attempts, last.total_seconds) == (2, 4.0)
        assert last.final_exception_message == "2"
        assert last.reason == "the deadline leaves no time for another attempt; a ConnectionError"


def test_a_rejected_result_for_which_time_ran_out_is_returned_as_such():
    """There is a value, though nobody wanted it."""
    plan = plan_of(**PLAIN, retry_if_result=lambda value: value == "bad")
    _, end = run(plan, Returned("bad"), TOO_LATE, until=50.0)
    assert (end.value, end.is_accepted) == ("bad", False)


def test_a_rejected_result_is_no_real_error():
    """If all that came before was a result nobody wanted, time ran out."""
    plan = plan_of(**PLAIN, retry_if_result=lambda value: value is None)
    _, end = run(plan, Returned(None), (9.0, AttemptTimeout(5.0)), until=7.0)
    assert type(end) is DeadlineExceeded


@pytest.mark.req("NFR-041-11")
def test_a_clock_that_jumps_does_no_harm():
    """Backwards or far ahead, the call ends after its attempts with the real error."""
    for jump in (-1e9, 1e9):
        failures = [ConnectionError() for _ in range(3)]
        driver, end = run(plan_of(**PLAIN), *((jump, f) for f in failures), until=100.0)
        assert end in failures
        assert len(driver.waits) <= 3


# --- results --------------------------------------------------------------------------------------


def test_a_result_may_be_retried():
    """While retry_if_result says so; the reason and kind are told."""
    plan = plan_of(**PLAIN, retry_if_result=lambda value: value == "pending")
    driver, end = run(plan, Returned("pending"), Returned("done"))
    assert (end.value, end.is_accepted) == ("done", True)
    assert driver.waits == [0.0, 2.0]


def test_a_result_that_is_never_accepted_is_returned_as_such():
    """The value is not lost; the driver knows that it was not accepted."""
    plan = plan_of(**PLAIN, retry_if_result=lambda value: True)
    driver, end = run(plan, *[Returned(n) for n in range(3)])
    assert (end.value, end.is_accepted) == (2, False)
    assert len(driver.waits) == 3


def test_a_rule_for_results_that_raises_accepts_and_is_reported():
    """It has not said that it wants another result."""
    plan = plan_of(name="p", retry_if_result=lambda value: value.missing)
    driver, end = run(plan, Returned(5))
    assert (end.value, end.is_accepted) == (5, True)
    [warning] = driver.warnings
    assert warning.category is MainstayWarning
    assert "policy 'p'" in warning.text
    assert "AttributeError" in warning.text
    assert warning.subjects == (("p", AttributeError),)


def test_a_predicate_that_raises_is_reported_and_the_failure_is_judged():
    """The user's exception is not lost for a bug in a predicate."""

    def broken(error):
        raise LookupError("bug")

    failures = [ConnectionError() for _ in range(3)]
    driver, end = run(plan_of(**PLAIN, retry_on=(broken, OSError)), *failures)
    assert end is failures[2]
    assert len(driver.warnings) == 3
    assert "bug" in driver.warnings[0].text


# --- safety ---------------------------------------------------------------------------------------

AMBIGUOUS = {"classify": {ApiError: Kind.AMBIGUOUS}, **PLAIN}


@pytest.mark.parametrize("idempotency", ["idempotent", "keyed"])
def test_an_ambiguous_failure_of_a_safe_operation_is_retried(idempotency):
    """Repeating it does no harm."""
    driver, end = run(plan_of(**AMBIGUOUS, idempotency=idempotency), ApiError(), Returned(1))
    assert end.value == 1
    assert len(driver.waits) == 2


@pytest.mark.parametrize("retry_on", [None, ApiError])
def test_an_ambiguous_failure_of_an_unsafe_operation_is_outcome_unknown(retry_on):
    """It may have been applied: nobody repeats it, whatever retry_on says."""
    failure = ApiError("reply lost")
    plan = plan_of(**AMBIGUOUS, retry_on=retry_on, idempotency="unsafe")
    driver, end = run(plan, failure)
    assert type(end) is OutcomeUnknown
    assert end.operation == "fetch"
    assert end.__cause__ is failure
    assert driver.waits == [0.0]
    assert note_of(end) == "mainstay: gave up on fetch after 1 attempt: it may have been applied"


def test_an_unsafe_attempt_that_was_cut_is_outcome_unknown():
    """Our own timeout cut it; what the other side did, nobody knows."""
    cut = AttemptTimeout(1.0)
    for until in (NEVER, 1.0):
        plan = plan_of(max_attempts=1, idempotency="unsafe")
        _, end = run(plan, (1.0, cut), until=until)
        assert type(end) is OutcomeUnknown
        assert end.__cause__ is cut


def test_a_plain_failure_of_an_unsafe_operation_is_itself():
    """A refused connection was not applied."""
    failure = ConnectionRefusedError()
    _, end = run(plan_of(max_attempts=1, idempotency="unsafe"), failure)
    assert end is failure


# --- nested retries -------------------------------------------------------------------------------


def inner_gave_up(attempts=3, moment=7, error=None, inside=0):
    """A failure that another retry has given up on at that moment."""
    error = ConnectionError("inner") if error is None else error
    GaveUp("inner", "no attempt left", 99, attempts, inside, moment=moment).put_on(error)
    return error


def raised(error, cause=None, context=None):
    error.__cause__, error.__context__ = cause, context
    return error


@pytest.mark.parametrize("since", [0, 6, 7])
@pytest.mark.parametrize("wrapped", ["same", "from", "group"])
def test_what_an_inner_retry_has_given_up_on_is_not_repeated(wrapped, since):
    """If the mark was made since the attempt began; one warning names both, and how to allow it."""
    mark = inner_gave_up()
    failure = {
        "same": mark,
        "from": raised(ConnectionError("outer"), cause=mark),
        "group": ExceptionGroup("g", [ConnectionError(), mark]),
    }[wrapped]
    plan = plan_of(max_attempts=4)
    run(plan, ConnectionError(), Returned(1))  # its type is settled from here on
    driver, end = run(plan, failure, driver=Driver([], since=since), key=KEY)
    assert end is failure
    assert len(driver.waits) == 1
    assert end.__notes__[-1] == (
        "mainstay: gave up on fetch after 1 attempt: an inner retry has given up on it"
    )
    assert (end.__notes__[-1].is_mark, end.__notes__[-1].made) == (True, 3)
    [warning] = driver.warnings
    assert warning.category is NestedRetryWarning
    assert warning.text == (
        "inner retries inside fetch: avoided 3 x 4 = 12 calls; retry in one place, or set"
        ' nested="allow" in the policy of fetch if both are meant'
    )
    assert warning.subjects == (("inner", "fetch"),)


@pytest.mark.parametrize("wrapped", ["same", "from", "group", "context"])
def test_a_mark_of_before_the_attempt_is_a_failure_like_any_other(wrapped):
    """An exception object that was given up on before may be raised again: it is retried."""
    mark = inner_gave_up(moment=7)
    failure = {
        "same": mark,
        "from": raised(ConnectionError(), cause=mark),
        "group": ExceptionGroup("g", [mark]),
        "context": raised(ConnectionError(), context=mark),
    }[wrapped]
    driver, _ = run(plan_of(max_attempts=3), *[failure] * 3, driver=Driver([], since=8))
    assert len(driver.waits) == 3
    assert driver.warnings == []


def test_a_mark_of_an_older_version_has_no_name():
    """The warning is about an inner retry then."""
    failure = ConnectionError()
    GaveUp("", "no attempt left", 99, 1, 5, moment=0).put_on(failure)
    driver, _ = run(plan_of(max_attempts=4), failure)
    [warning] = driver.warnings
    assert warning.text.startswith("an inner retry retries inside fetch: avoided 5 x 4 = 20 calls")
    GaveUp("", "no attempt left", 99, 3, moment=0).put_on(failure)
    assert run(plan_of(nested="refuse"), failure)[1].inner == "an inner retry"


def test_a_later_failure_with_a_mark_is_not_repeated_either():
    """The mark counts at any attempt."""
    driver, end = run(plan_of(max_attempts=4), ConnectionError(), inner_gave_up())
    assert len(driver.waits) == 2
    assert end.__notes__[-1].endswith("an inner retry has given up on it")


@pytest.mark.parametrize("mode", ["collapse", "warn", "refuse", "allow"])
def test_a_failure_raised_while_a_given_up_one_was_handled_is_retried(mode):
    """It is another failure: both run, and one warning gives the product, unless it is allowed."""
    failures = [raised(ConnectionError(), context=inner_gave_up()) for _ in range(4)]
    plan = plan_of(max_attempts=4, nested=mode)
    driver, _ = run(plan, *failures)
    assert len(driver.waits) == 4
    assert {w.text[:48] for w in driver.warnings} == (
        set() if mode == "allow" else {"inner retries inside fetch: up to 3 x 4 = 12 cal"}
    )


def test_the_fast_path_leaves_a_context_with_notes_to_the_flow():
    """Only such a context can have a mark; any other one changes nothing."""
    plan = plan_of(max_attempts=3)
    run(plan, ConnectionError(), Returned(1))  # its type is settled from here on
    bare = raised(ConnectionError(), context=KeyError())
    assert fast_decision(plan, bare, 1, KEY, 0.0) is not None
    marked = raised(ConnectionError(), context=inner_gave_up())
    assert fast_decision(plan, marked, 1, KEY, 0.0) is None


def test_with_warn_both_retry():
    """The warning has the product that is risked; the same object again is the same warning."""
    failure = inner_gave_up()
    driver, end = run(plan_of(max_attempts=3, nested="warn"), failure, failure, failure)
    assert end is failure
    assert len(driver.waits) == 3
    assert {w.text[:46] for w in driver.warnings} == {
        "inner retries inside fetch: up to 3 x 3 = 9 ca"
    }


def test_with_allow_both_retry_in_silence():
    driver, _ = run(plan_of(max_attempts=3, nested="allow"), *[inner_gave_up()] * 3)
    assert len(driver.waits) == 3
    assert driver.warnings == []


@pytest.mark.parametrize("listening", [False, True])
def test_with_refuse_it_is_an_error(listening):
    """An enclosing retry refuses when the second attempt would be scheduled."""
    plan, failure = plan_of(), ConnectionError()
    builder = teller_of(plan) if listening else None
    driver = Driver([], enclosing=Enclosing("outer", 4))
    driver, end = run(plan, failure, driver=driver, outer=Question.ENCLOSING, builder=builder)
    assert type(end) is NestedRetryError
    assert (end.inner, end.outer, end.product) == ("fetch", "outer", 12)
    assert end.__cause__ is failure
    assert driver.warnings == []
    assert [type(e) for e in driver.events][-1:] == [CallFailed] * listening


def test_with_refuse_an_inner_retry_that_gave_up_is_an_error_too():
    """The failure is the cause."""
    failure = inner_gave_up()
    _, end = run(plan_of(max_attempts=4, nested="refuse"), failure)
    assert type(end) is NestedRetryError
    assert (end.inner, end.outer, end.product) == ("inner", "fetch", 12)
    assert end.__cause__ is failure


def test_a_refusal_is_never_retried():
    """It is a mistake in the program, and another attempt makes it again."""
    failure = NestedRetryError("a", "b", 2, 3)
    driver, end = run(plan_of(retry_on=Exception), failure)
    assert end is failure
    assert len(driver.waits) == 1


def test_the_enclosing_retry_may_be_known_ahead():
    """Then the driver is not asked."""
    driver, end = run(plan_of(), ConnectionError(), outer=Enclosing("outer", 2))
    assert type(end) is NestedRetryError
    assert Question.ENCLOSING not in driver.asked


def test_the_enclosing_retry_is_asked_for_before_the_second_attempt_only():
    """Not on success, not for what is not retried anyway, and not again later."""
    plan, asking = plan_of(max_attempts=3), {"outer": Question.ENCLOSING}
    assert Question.ENCLOSING not in run(plan, Returned(1), **asking)[0].asked
    assert Question.ENCLOSING not in run(plan, ValueError(), **asking)[0].asked
    late = run(plan, ConnectionError(), until=0.01, **asking)[0]
    assert Question.ENCLOSING not in late.asked
    driver, _ = run(plan, ConnectionError(), ConnectionError(), Returned(1), **asking)
    assert driver.asked.count(Question.ENCLOSING) == 1


# --- what is given up on --------------------------------------------------------------------------


class Counting(Plan):
    """A plan whose marks have moments."""

    @staticmethod
    def moment(own):
        return 40 + own


KIND = {"per_kind": {"transient": KindRule(1)}}


@pytest.mark.parametrize(
    ("fields", "script", "until", "own_end", "is_mark"),
    [
        ({"max_attempts": 2}, [ConnectionError, ConnectionError], NEVER, True, True),
        ({"max_attempts": 1}, [(9.0, lambda: AttemptTimeout(1.0))], 5.0, True, False),
        (KIND, [TimeoutError, ConnectionError], NEVER, True, False),
        ({**KIND, "max_attempts": 2}, [TimeoutError, ConnectionError], NEVER, True, False),
        ({}, [ConnectionError, ValueError], NEVER, True, False),
        ({}, [ConnectionError], 0.01, True, True),
        ({}, [ConnectionError], 0.01, False, False),
        ({}, [ConnectionError, (9.0, ConnectionError)], 5.0, False, True),
        ({}, [lambda: ApiError(status_code=503, retry_after=999)], NEVER, True, True),
    ],
    ids=[
        "no attempt left", "one attempt, cut", "one of a kind", "one of a kind, the last",
        "not retryable", "own deadline", "an enclosing end", "an enclosing end, later",
        "retry-after",
    ],
)  # fmt: skip
def test_what_is_given_up_on_is_marked(fields, script, until, own_end, is_mark):
    """It would have been retried, and was retried or was stopped by what is the call's own."""
    plan = Counting(Policy(**fields), "fetch", 1)
    made = [(s[0], s[1]()) if isinstance(s, tuple) else s() for s in script]
    _, end = run(plan, *made, until=until, own=1, has_own_end=own_end)
    [note] = end.__notes__
    assert note.is_mark is is_mark
    assert note.moment == (41 if is_mark else -1)


@pytest.mark.parametrize("attempt", [1, 2])
def test_what_a_guard_stops_is_given_up_on(attempt):
    """A budget or a circuit of its own; also if it refuses the attempt after the wait."""
    plan = Counting(Policy(max_attempts=4), "fetch", 1)
    plan.is_guarded = True
    driver = Driver([], guards=[*[None] * (attempt - 1), Stop("the budget is spent")])
    failures = [ConnectionError() for _ in range(attempt)]
    _, end = run(plan, *failures, driver=driver, own=0)
    assert end.__notes__[0].moment == 40
    driver = Driver([], guards=[None])
    _, end = run(plan, ConnectionError(), Stop("the circuit is open"), driver=driver, own=0)
    assert end.__notes__[0].moment == 40


def test_a_mark_with_a_moment_is_not_used_again():
    """It belongs to one failure; a note without a moment may serve many."""
    plan = Counting(Policy(max_attempts=2), "fetch", 1)
    ends = [run(plan, ConnectionError(), ConnectionError(), own=0)[1] for _ in range(2)]
    assert ends[0].__notes__[0] is not ends[1].__notes__[0]
    ends = [run(plan, ConnectionError(), ConnectionError())[1] for _ in range(2)]
    assert ends[0].__notes__[0] is ends[1].__notes__[0]


@pytest.mark.parametrize("error", [ConnectionError, ValueError])
def test_the_fast_path_marks_as_the_flow_does(error):
    """No attempt left is given up on; what is not retryable is not."""
    plan = Counting(Policy(max_attempts=2), "fetch", 1)
    run(plan, error(), Returned(1))  # its type is settled from here on
    failure = error()
    assert fast_decision(plan, failure, 2, KEY, 0.0) == GIVE_UP
    assert failure.__notes__[0].moment == (41 if error is ConnectionError else -1)


class Stubborn(Exception):
    """Takes no notes."""

    def add_note(self, note):
        raise AttributeError("frozen")


def test_the_fast_path_gives_up_on_what_takes_no_note():
    """The exception is raised all the same, and is not lost for a note."""
    plan = plan_of(max_attempts=2, retry_on=Stubborn)
    run(plan, Stubborn(), Returned(1))  # its type is settled from here on
    failure = Stubborn()
    assert fast_decision(plan, failure, 2, KEY, 0.0) == GIVE_UP
    assert note_of(failure) is None


# --- by version 1 of the rules --------------------------------------------------------------------


def old(**fields):
    plan = plan_of(**fields)
    plan.rule = 1
    return plan


@pytest.mark.parametrize(
    ("mode", "attempts"), [("collapse", 1), ("warn", 3), ("refuse", 1), ("allow", 1)]
)
def test_by_version_1_an_inner_retry_stands_back(mode, attempts):
    """Its own mode decided."""
    driver = Driver([], enclosing=Enclosing("outer", 4))
    failures = [ConnectionError() for _ in range(3)]
    driver, end = run(old(nested=mode), *failures, driver=driver, outer=Question.ENCLOSING)
    assert len(driver.waits) == attempts
    assert isinstance(end, NestedRetryError) is (mode == "refuse")
    assert driver.warnings == []


def test_by_version_1_an_outer_retry_does_so_for_a_mark():
    driver, end = run(old(), inner_gave_up(), outer=Question.ENCLOSING)
    assert len(driver.waits) == 1
    assert end.__notes__[-1].endswith("an inner retry has given up on it")
    driver, _ = run(old(), *[ConnectionError() for _ in range(3)], outer=None)
    assert len(driver.waits) == 3


def test_by_version_1_a_refusal_could_be_retried():
    failures = [NestedRetryError("a", "b", 2, 3) for _ in range(3)]
    driver, _ = run(old(retry_on=Exception), *failures)
    assert len(driver.waits) == 3


def test_by_version_1_an_enclosing_retry_does_not_matter_to_a_result():
    plan = old(retry_if_result=lambda value: value is None)
    _, end = run(plan, Returned(None), Returned(1), outer=Enclosing("o", 2))
    assert end.value == 1


def test_a_rejected_result_asks_for_no_other_retry():
    """A value has no mark, and the enclosing retry would not get it."""
    plan = plan_of(retry_if_result=lambda value: value is None)
    driver = Driver([], enclosing=Enclosing("o", 2))
    driver, end = run(plan, Returned(None), Returned(1), driver=driver, outer=Question.ENCLOSING)
    assert end.value == 1
    assert Question.ENCLOSING not in driver.asked


@pytest.mark.parametrize(
    ("fields", "failure", "wanted"),
    [
        ({}, ConnectionError(), True),
        ({}, ValueError(), False),
        ({"max_attempts": 1}, ConnectionError(), False),
        ({"max_attempts": 2}, ConnectionError(), True),
        ({"retry_on": KeyError}, ConnectionError(), False),
        ({"per_kind": {"transient": KindRule(1)}}, ConnectionError(), False),
        ({"per_kind": {"transient": KindRule(2)}}, ConnectionError(), True),
        ({"per_kind": {"transient": KindRule()}}, ConnectionError(), True),
        ({"per_kind": {"timeout": KindRule(1)}}, ConnectionError(), True),
        ({"classify": {ApiError: "ambiguous"}}, ApiError(), True),
        ({"classify": {ApiError: "ambiguous"}, "idempotency": "unsafe"}, ApiError(), False),
        ({"idempotency": "unsafe"}, ConnectionError(), True),
    ],
)
def test_a_plan_knows_whether_it_would_retry(fields, failure, wanted):
    """An inner retry is refused only by an outer one that would really go on; and it does."""
    plan = plan_of(**fields)
    assert bool(plan.would_retry(failure)) is wanted
    driver, _ = run(plan, failure, Returned(1))
    assert (len(driver.waits) == 2) is wanted


# --- hooks ----------------------------------------------------------------------------------------


def before(info):
    raise AssertionError("the core calls no hook")


def after(info):
    raise AssertionError("the core calls no hook")


def told(effect):
    info = effect.info
    return effect.name, effect.hook, info.attempt, info.delay, info.exception, info.kind


def test_hooks_are_asked_for_before_and_after_each_retry():
    """Before: with the failure and the wait to come. After: with what came of the retry."""
    plan = plan_of(**PLAIN, before_retry=before, after_retry=after)
    first, second = ConnectionError("1"), TimeoutError("2")
    driver, _ = run(plan, first, second, Returned("ok"))
    assert [told(effect) for effect in driver.hooks] == [
        ("before_retry", before, 1, 2.0, first, Kind.TRANSIENT),
        ("after_retry", after, 2, 2.0, second, Kind.TIMEOUT),
        ("before_retry", before, 2, 2.0, second, Kind.TIMEOUT),
        ("after_retry", after, 3, 2.0, None, None),
    ]
    info = driver.hooks[0].info
    assert (info.operation, info.max_attempts, info.reason) == ("fetch", 3, "a ConnectionError")
    last = driver.hooks[-1].info
    assert (last.operation, last.max_attempts, last.reason) == ("fetch", 3, "")
    driver, _ = run(plan, ConnectionError(), Returned("ok"))
    assert [effect.name for effect in driver.hooks] == ["before_retry", "after_retry"]


def test_hooks_are_not_asked_for_where_nothing_is_retried():
    """No retry, no hook: a first success, a final failure, a single attempt."""
    plan = plan_of(before_retry=before, after_retry=after)
    assert run(plan, Returned(1))[0].hooks == []
    assert run(plan, ValueError())[0].hooks == []
    assert run(plan, ConnectionError(), limit=1)[0].hooks == []


def test_the_last_failure_is_told_to_after_retry_only():
    """There is no retry to come."""
    plan = plan_of(max_attempts=2, before_retry=before, after_retry=after)
    driver, _ = run(plan, ConnectionError(), ConnectionError())
    assert [effect.name for effect in driver.hooks] == ["before_retry", "after_retry"]


def test_a_hook_is_told_of_a_rejected_result_without_the_result():
    """A hook that logs leaks nothing."""
    plan = plan_of(**PLAIN, before_retry=before, retry_if_result=lambda value: value == "secret")
    driver, _ = run(plan, Returned("secret"), Returned(1))
    assert told(driver.hooks[0]) == ("before_retry", before, 1, 2.0, None, Kind.TRANSIENT)
    assert driver.hooks[0].info.reason == "retry_if_result"


# --- events ---------------------------------------------------------------------------------------


def lines(driver):
    """Every event in short."""
    return [
        (type(e).__name__, getattr(e, "attempt_number", None) or getattr(e, "total_attempts", None))
        for e in driver.events
    ]


@pytest.mark.req("FR-041-47", "AC-022")
def test_the_events_of_a_call_that_succeeds_in_the_end():
    """Each failure, each retry with its delay, and the success, in that order."""
    plan = plan_of(**PLAIN)
    driver, _ = run(
        plan, (1.0, ConnectionError("a")), (1.0, TimeoutError("b")), (1.0, Returned(1)),
        builder=teller_of(plan),
    )  # fmt: skip
    assert lines(driver) == [
        ("AttemptFailed", 1), ("RetryAttempt", 1),
        ("AttemptFailed", 2), ("RetryAttempt", 2),
        ("CallSucceeded", 3),
    ]  # fmt: skip
    assert [e.delay_seconds for e in driver.events if type(e) is RetryAttempt] == [2.0, 2.0]
    assert driver.events[0].exception_message == driver.events[1].exception_message == "a"
    assert driver.events[3].exception_type == "TimeoutError"
    assert driver.events[0].max_attempts == driver.events[1].max_attempts == 3
    assert driver.events[1].key == KEY
    assert driver.events[-1].total_seconds == 7.0
    assert {e.call_id for e in driver.events} == {f"{KEY:x}"}


def test_the_events_of_a_call_that_is_exhausted():
    """The last is retry_exhausted, with the attempts, the time and the reason."""
    plan = plan_of(**PLAIN)
    driver, _ = run(plan, *[(1.0, ConnectionError("x"))] * 3, builder=teller_of(plan))
    assert [name for name, _ in lines(driver)] == [
        "AttemptFailed", "RetryAttempt", "AttemptFailed", "RetryAttempt", "AttemptFailed",
        "RetryExhausted",
    ]  # fmt: skip
    last = driver.events[-1]
    assert (last.total_attempts, last.total_seconds) == (3, 7.0)
    assert (last.final_exception_type, last.final_exception_message) == ("ConnectionError", "x")
    assert last.reason == "no attempt left; a ConnectionError"


@pytest.mark.parametrize(
    ("outcome", "until", "last"),
    [
        (lambda: Returned(1), NEVER, CallSucceeded),
        (ValueError, NEVER, CallFailed),
        (ConnectionError, 1.0, RetryExhausted),
        (lambda: ApiError(status_code=503, retry_after=99), NEVER, RetryExhausted),
        (inner_gave_up, NEVER, CallFailed),
        (lambda: AttemptTimeout(1.0), 0.0, RetryExhausted),
    ],
    ids=["success", "final", "deadline", "retry-after", "inner", "cut"],
)
def test_every_call_ends_in_one_event(outcome, until, last):
    """Whatever its end, the record says so once, and says it last."""
    plan = plan_of(**PLAIN)
    driver, _ = run(plan, outcome(), until=until, builder=teller_of(plan))
    assert type(driver.events[-1]) is last
    ends = [e for e in driver.events if not isinstance(e, AttemptFailed | RetryAttempt)]
    assert len(ends) == 1


def test_a_rejected_result_is_told_without_the_result():
    """No value of the user's gets into a record."""
    plan = plan_of(**PLAIN, retry_if_result=lambda value: value == "secret")
    driver, _ = run(plan, *[Returned("secret")] * 3, builder=teller_of(plan))
    assert driver.events[0].exception_message == "the result was not accepted"
    assert driver.events[0].reason == "retry_if_result"
    assert "secret" not in str(driver.events)


# --- the model ------------------------------------------------------------------------------------

KINDS = {
    "reset": ("transient", True),
    "busy": ("overload", True),
    "throttled": ("throttled", True),
    "slow": ("timeout", True),
    "cut": ("timeout", True),
    "wrong": ("permanent", False),
    "forbidden": ("auth", False),
    "strange": ("unknown", False),
}


def make(word, hint):
    """The failure that a word stands for."""
    if word == "cut":
        return AttemptTimeout(1.0)
    plain = {
        "reset": ConnectionResetError,
        "slow": TimeoutError,
        "wrong": ValueError,
        "forbidden": PermissionError,
        "strange": RuntimeError,
    }
    error = plain[word]() if word in plain else ApiError()
    if word == "busy":
        error.status_code = 503
    if word == "throttled":
        error.status_code = 429
    if hint is not None:
        error.retry_after = hint
    return error


@dataclass(frozen=True)
class Case:
    """A policy, told in plain words."""

    attempts: int
    curve: str
    jitter: str
    amount: float
    initial: float
    step: float
    factor: float
    cap: float
    until: float
    max_retry_after: float
    rejects: bool
    throttle_limit: int | None
    listening: bool
    handed_in: bool
    key: int

    def policy(self):
        per_kind = {"throttled": KindRule(self.throttle_limit)} if self.throttle_limit else None
        return Policy(
            max_attempts=self.attempts,
            backoff=Backoff(
                self.curve, self.initial, factor=self.factor, step=self.step, max_delay=self.cap
            ),
            jitter=Jitter(self.jitter, self.amount),
            max_retry_after=self.max_retry_after,
            retry_if_result=(lambda value: value == "bad") if self.rejects else None,
            per_kind=per_kind,
        )

    def delay(self, n, attempt, previous):
        """The delay of the specification, before retry n."""
        base = {
            "constant": lambda: self.initial,
            "linear": lambda: self.initial + (n - 1) * self.step,
            "exponential": lambda: self.initial * self.factor ** (n - 1),
        }[self.curve]()
        base = min(base, self.cap)
        u = self.key * pow(0x57AEA2E62A9C5, attempt, 2**52) % 2**52 / 2**52
        previous = previous or self.initial
        return {
            "none": lambda: base,
            "percent": lambda: base * (1 - self.amount + 2 * self.amount * u),
            "additive": lambda: min(base + u * self.amount, self.cap),
            "full": lambda: u * base,
            "equal": lambda: base / 2 + u * base / 2,
            "decorrelated": lambda: self.initial + u * self._room(previous),
        }[self.jitter]()

    def _room(self, previous):
        return max(self.initial, min(self.cap, 3 * previous)) - self.initial

    def asked(self, hint, attempt):
        """What is waited if so much was asked for: never less, and more by the jitter's reach."""
        u = self.key * pow(0x57AEA2E62A9C5, attempt, 2**52) % 2**52 / 2**52
        reach = {
            "none": 0.0,
            "percent": self.amount * hint,
            "additive": self.amount,
            "equal": hint / 2,
        }.get(self.jitter, hint)
        return hint + u * min(reach, max(self.cap, self.initial))


def expected(case, script):  # noqa: PLR0912 (told in one piece, as a person would)
    """(waits, how it ends, index of the outcome that it ends with): the naive account."""
    now = previous = 0.0
    waits, seen, last_real = [], {}, None
    for attempt, (seconds, word, hint) in enumerate(script, 1):
        now += seconds
        if word == "good" or (word == "bad" and not case.rejects):
            return waits, "returned", attempt
        kind, retryable = KINDS.get(word, ("transient", True))
        in_time = now < case.until
        # May there be another attempt, and when?
        why, wait = None, None
        if not retryable:
            why = "not retryable"
        elif attempt >= case.attempts:
            why = "no attempt left"
        else:
            n = attempt
            if case.throttle_limit:
                n = seen[kind] = seen.get(kind, 0) + 1
            if case.throttle_limit and kind == "throttled" and n >= case.throttle_limit:
                why = "no attempt left for this kind"
            else:
                wait = case.delay(n, attempt, previous)
                if hint is not None and word not in ("cut", "bad"):
                    wait = max(wait, case.asked(hint, attempt))
                    if hint > case.max_retry_after:
                        why = "longer wait"
        if why is None:
            assume(abs(now + wait - case.until) > 1e-6)  # too close to call with floats
            if now + wait >= case.until:
                why = "deadline"
        elif word == "cut" and not in_time:
            why = "deadline"
        if why is None:
            last_real = last_real if word == "bad" else attempt
            waits.append(wait)
            now += wait
            previous = wait
            continue
        if word == "bad":
            return waits, "rejected", attempt
        if word == "cut":
            assume(abs(now - case.until) > 1e-6)
        if why == "deadline" and word == "cut" and not in_time:
            return waits, "cut by the deadline", last_real
        return waits, why, attempt
    raise AssertionError("the script is longer than any call")


CASES = st.builds(
    Case,
    attempts=st.integers(1, 8),
    curve=st.sampled_from(["constant", "linear", "exponential"]),
    jitter=st.sampled_from(["none", "percent", "additive", "full", "equal", "decorrelated"]),
    amount=st.floats(0.0, 1.0),
    initial=st.floats(0.001, 3.0),
    step=st.floats(0.0, 2.0),
    factor=st.floats(1.0, 4.0),
    cap=st.floats(3.0, 10.0),
    until=st.one_of(st.just(NEVER), st.floats(0.5, 40.0)),
    max_retry_after=st.floats(0.0, 12.0),
    rejects=st.booleans(),
    throttle_limit=st.one_of(st.none(), st.integers(1, 4)),
    listening=st.booleans(),
    handed_in=st.booleans(),
    key=st.integers(0, 2**51 - 1).map(lambda half: 2 * half + 1),
)
OUTCOMES = st.tuples(
    st.floats(0.0, 3.0),
    st.sampled_from(["reset", "reset", "busy", "throttled", "slow", "cut", "bad", "good", *KINDS]),
    st.one_of(st.none(), st.none(), st.floats(0.0, 15.0)),
)


def play(case, script, plan=None):
    """(driver, end, outcomes) of the real thing, for the same case and script."""
    outcomes = [Returned(w) if w in ("good", "bad") else make(w, h) for _, w, h in script]
    timed = [(s, outcome) for (s, _, _), outcome in zip(script, outcomes, strict=True)]
    plan = plan or plan_of(case.policy())
    driver = Driver(timed, key=case.key)
    more = {"key": case.key, "outer": None} if not case.listening else {}
    if case.listening:
        more["builder"] = teller_of(plan)
    if case.handed_in:
        driver.now += timed[0][0]
        driver.script = timed[1:]
        more["outcome"] = outcomes[0]
    end = driver.drive(call_flow(plan, until=case.until, **more))
    if not case.handed_in:
        assert driver.waits.pop(0) == 0.0
    return driver, end, outcomes


@pytest.mark.req(
    "NFR-041-11", "NFR-041-12", "FR-041-23", "FR-041-24", "FR-041-25", "FR-041-28", "FR-041-29",
    "FR-041-30", "CP-04", "CP-21",
)  # fmt: skip
@given(case=CASES, script=st.lists(OUTCOMES, min_size=8, max_size=8))
def test_a_call_does_what_the_specification_says(case, script):
    """Waits, attempts, the end and its note: the life agrees with the naive account."""
    waits, ending, index = expected(case, script)
    plan = plan_of(case.policy())
    for _ in range(2):  # once with an empty memory, once with a full one
        driver, end, outcomes = play(case, script, plan)
        assert driver.waits == pytest.approx(waits, rel=1e-9, abs=1e-12)
        attempts = len(waits) + 1
        if ending in ("returned", "rejected"):
            assert end.value == outcomes[index - 1].value
            assert end.is_accepted is (ending == "returned")
            continue
        if ending == "cut by the deadline":
            assert type(end) is DeadlineExceeded
            assert end.__cause__ is outcomes[(index or attempts) - 1]
        else:
            assert end is outcomes[index - 1]
        if attempts == 1 and ending in ("not retryable", "no attempt left"):
            has_note = ending == "not retryable" and plan.policy.max_attempts > 1
            assert (note_of(end) or "").startswith("mainstay: not retried: ") is has_note
        else:
            assert f"after {attempts} attempt" in note_of(end)
            assert ending.removeprefix("cut by the ") in note_of(end)
            assert len(end.__notes__) == 1


@pytest.mark.req("CP-16", "NFR-041-19", "CP-22")
@given(case=CASES, script=st.lists(OUTCOMES, min_size=8, max_size=8))
def test_a_call_is_its_list_of_answers(case, script):
    """Fed back to a new life, the answers of a call bring the same effects, to the bit."""
    plan = plan_of(case.policy())
    driver, _, outcomes = play(case, script, plan)
    again = call_flow(
        plan_of(case.policy()),
        until=case.until,
        outcome=outcomes[0] if case.handed_in else None,
        **({"builder": teller_of(plan)} if case.listening else {"key": case.key, "outer": None}),
    )
    effects = [next(again)] + [again.send(answer) for answer in driver.answers]
    for first, second in zip(driver.effects, effects, strict=True):
        assert type(first) is type(second)
        if isinstance(first, float | Question | Event):
            assert first == second


@pytest.mark.req("CP-16", "NFR-041-11")
@given(case=CASES, script=st.lists(OUTCOMES, min_size=8, max_size=8))
def test_listening_changes_nothing(case, script):
    """Events, deadlines far away and asked-for keys take the long way to the same waits."""
    quiet = Case(**{**vars(case), "listening": False})
    loud = Case(**{**vars(case), "listening": True})
    one, end_one, outcomes_one = play(quiet, script)
    two, end_two, outcomes_two = play(loud, script)
    assert one.waits == two.waits
    assert type(end_one) is type(end_two)
    if end_one in outcomes_one:
        assert outcomes_one.index(end_one) == outcomes_two.index(end_two)
    assert note_of(end_one) == note_of(end_two)
    assert sum(type(e) is RetryAttempt for e in two.events) == len(two.waits)
    assert type(two.events[-1]) in (CallSucceeded, CallFailed, RetryExhausted)


class Marked(ConnectionError):
    """What carries something."""


class Answered(Exception):
    """A failure with a status."""


def answered(status, **carried):
    def make():
        failure = Answered()
        failure.status_code = status
        for name, value in carried.items():
            setattr(failure, name, value)
        return failure

    return make


FAST = (ConnectionError, TimeoutError, KeyError, PermissionError, OSError, FileNotFoundError)
GLANCED = st.sampled_from(
    [
        *FAST,
        Marked,
        lambda: OSError(104, "reset"),
        lambda: OSError(2, "gone"),
        lambda: OSError([2], "odd"),
        answered(503),
        answered(404),
        answered(401),
        answered(429, retry_after=3.0),
        lambda: ExceptionGroup("two", [ConnectionError(), answered(503)()]),
    ]
)


@pytest.mark.req("CP-16", "NFR-041-11", "NFR-041-19")
@given(
    kinds=st.lists(GLANCED, min_size=9, max_size=9),
    attempts=st.integers(1, 9),
    jitter=st.sampled_from(["none", "percent", "additive", "full", "equal", "decorrelated"]),
    seed=st.integers(0, 10**6),
    marks=st.sets(st.sampled_from(["dict", "cause", "context"])),
)
def test_a_glance_decides_what_a_life_decides(kinds, attempts, jitter, seed, marks):
    """The short way and the long way: the same delays to the bit, the same end, the same note."""
    policy = Policy(max_attempts=attempts, jitter=Jitter(jitter, 0.3 if jitter == "percent" else 0))
    key, delay = key_of(seed, 0), 0.0
    for attempt in range(1, attempts + 1):
        first, second = (_failure(kinds[attempt - 1], marks) for _ in "ab")
        plans = plan_of(policy), plan_of(policy)
        seen = fast_decision(plans[0], first, attempt, key, delay)
        flow = call_flow(plans[1], second, key, None, attempt=attempt, delay=delay)
        effect = next(flow)
        if kinds[attempt - 1] in (*FAST, Marked):
            assert seen is not None
        if seen is None:
            pass
        elif seen == GIVE_UP:
            assert effect is second
            assert note_of(first) == note_of(second)
        else:
            assert seen == effect
        if effect is second:
            break
        delay = effect


def _failure(kind, marks):
    failure = kind()
    if kind is Marked:
        failure.__cause__ = KeyError() if "cause" in marks else None
        failure.__context__ = KeyError() if "context" in marks else None
        if "dict" in marks:
            failure.note = "carried"
    return failure


@pytest.mark.req("FR-041-30", "NFR-041-11")
@given(case=CASES, script=st.lists(OUTCOMES, min_size=8, max_size=8))
def test_a_call_is_bounded(case, script):
    """Never more attempts than allowed, never a wait below zero or past the deadline."""
    driver, _, _ = play(case, script)
    assert len(driver.waits) + 1 <= case.attempts
    assert all(0.0 <= wait < math.inf for wait in driver.waits)
    waited = 0.0
    for (seconds, _, _), wait in zip(script, driver.waits, strict=False):
        waited += seconds + wait
        assert waited < case.until


def test_a_predicate_whose_error_cannot_be_shown_is_reported_all_the_same():
    """A broken repr costs neither the report nor the user's own exception."""

    class Broken(Exception):
        def __repr__(self):
            raise RuntimeError("no repr")

    def predicate(_):
        raise Broken

    failure = ConnectionError("down")
    flow = call_flow(Plan(Policy(retry_on=predicate), "op", token=1), failure, 1, None)
    warning = next(flow)
    assert isinstance(warning, Warn)
    assert "a Broken that cannot be shown" in warning.text
    assert flow.send(None) is failure


# --- guards ---------------------------------------------------------------------------------------

SPENT = Stop("the budget is spent")


def guarded(**fields):
    plan = plan_of(**{"jitter": Jitter.none(), "backoff": Backoff.constant(1.0), **fields})
    plan.is_guarded = True
    return plan


def test_a_guard_that_says_yes_changes_nothing():
    """It is asked before every retry, with the delay and the failure."""
    driver = Driver([], guards=[None, None])
    driver, end = run(guarded(), ConnectionError(), ConnectionError(), Returned(1), driver=driver)
    assert end.value == 1
    asked = [effect for effect in driver.effects if isinstance(effect, Consult)]
    assert [(type(effect.failure), effect.delay) for effect in asked] == [
        (ConnectionError, 1.0)
    ] * 2


def test_a_guard_that_says_no_ends_the_call_with_its_failure():
    """The original error is raised, with the guard's reason in a note; nothing is waited for."""
    failure = ConnectionError("down")
    driver, end = run(guarded(), failure, driver=Driver([], guards=[SPENT]))
    assert end is failure
    assert note_of(end) == "mainstay: gave up on fetch after 1 attempt: the budget is spent"
    assert driver.waits == [0.0]


def test_a_guard_may_ask_for_a_longer_wait():
    """The longer delay is waited, unless the deadline leaves no time for it."""
    driver, _ = run(guarded(), ConnectionError(), Returned(1), driver=Driver([], guards=[7.0]))
    assert driver.waits == [0.0, 7.0]
    failure = ConnectionError()
    plan = guarded(deadline=5.0)
    driver, end = run(plan, failure, driver=Driver([], guards=[7.0]), until=5.0)
    assert end is failure
    assert "the deadline leaves no time" in note_of(end)
    driver, end = run(
        plan, ConnectionError(), Returned(1), driver=Driver([], guards=[2.0]), until=5.0
    )
    assert driver.waits == [0.0, 2.0]


def test_a_guard_is_not_asked_where_there_is_nothing_to_retry():
    """A final failure and a last attempt need nobody's leave."""
    for plan, failure in ((guarded(), ValueError()), (guarded(max_attempts=1), ConnectionError())):
        driver, end = run(plan, failure)
        assert end is failure
        assert not any(isinstance(effect, Consult) for effect in driver.effects)


def test_a_result_that_is_not_accepted_is_no_failure_to_a_guard():
    """It is consulted all the same: another attempt is another load."""
    plan = guarded(retry_if_result=lambda value: value == "bad")
    driver, end = run(plan, Returned("bad"), driver=Driver([], guards=[SPENT]))
    assert (end.value, end.is_accepted) == ("bad", False)
    assert [e.failure for e in driver.effects if isinstance(e, Consult)] == [None]


def test_an_attempt_that_is_refused_when_its_time_comes_ends_the_call():
    """The guard said yes before the wait and no after it: the failure before it is raised."""
    failure = ConnectionError("down")
    plan = guarded()
    driver = Driver([], guards=[None])
    driver, end = run(plan, failure, SPENT, driver=driver, builder=teller_of(plan))
    assert end is failure
    assert note_of(end) == "mainstay: gave up on fetch after 1 attempt: the budget is spent"
    assert type(driver.events[-1]) is RetryExhausted
    assert driver.events[-1].total_attempts == 1


@pytest.mark.parametrize("jitter", [Jitter.percent(0.1), Jitter.decorrelated()])
def test_a_glance_decides_as_a_life_does(jitter):
    """Where the type is settled: each delay to the last bit, and the end."""
    backoff = Backoff.exponential(0.1, factor=2.0, max_delay=5.0)
    policy = Policy(
        name="p", retry_on=ConnectionError, max_attempts=4, backoff=backoff, jitter=jitter
    )
    plan, key = plan_of(policy), key_of(7, 1)
    first = fast_decision(plan, ConnectionError(), 1, key, 0.0, keeps=ByType())
    assert first is None, "nothing is settled yet"
    driver = Driver([ConnectionError() for _ in range(4)], key=key)
    driver.drive(call_flow(plan, key=key, outer=None))
    seen, previous = [], 0.0
    for attempt in (1, 2, 3):
        previous = fast_decision(plan, ConnectionError(), attempt, key, previous, keeps=ByType())
        seen.append(previous)
    assert seen == driver.waits[1:]
    last = ConnectionError()
    assert fast_decision(plan, last, 4, key, previous) == GIVE_UP
    assert "no attempt left" in last.__notes__[0]
    assert fast_decision(plan, KeyError(), 1, key, 0.0, keeps=ByType()) is None
    assert fast_decision(plan, KeyError(), 1, key, 0.0) == GIVE_UP
    carrying = ConnectionError()
    carrying.host = "db"
    assert fast_decision(plan, carrying, 1, key, 0.0, keeps=ByType()) is None
    assert fast_decision(plan, carrying, 1, key, 0.0) == seen[0]


class ByType:
    """Keeps of a call what a listener that takes facts gets to know: no exception."""

    by_type, verdict = True, None


def test_what_keeps_a_call_receives_the_classification():
    """The one that decided: a settled one, and one that was made for this failure."""
    plan, key, keeper = plan_of(Policy(retry_on=OSError, max_attempts=2)), key_of(7, 1), ByType()
    keeper.by_type = False
    failure = FileNotFoundError(2, "no such file")
    for attempt in (1, 2):
        keeper.verdict = None
        fast_decision(plan, failure, attempt, key, 0.0, keeper)
        assert keeper.verdict is plan.policy.classification(failure)
    final = KeyError()
    assert fast_decision(plan, final, 1, key, 0.0, keeper) == GIVE_UP
    assert not keeper.verdict.retryable
    kept = keeper.verdict = object()
    asking = plan_of(Policy(retry_on=lambda _: True))
    assert fast_decision(asking, failure, 1, key, 0.0, keeper) is None
    assert keeper.verdict is kept, "the flow decides, and classifies by itself"


@pytest.mark.parametrize(
    "failure",
    [
        inner_gave_up(),
        raised(ValueError(), cause=inner_gave_up()),
        answered(429, retry_after=3.0)(),
        ExceptionGroup("two", [ConnectionError(), inner_gave_up()]),
        NestedRetryError("a", "b", 2, 3),
        AttemptTimeout(1.0),
    ],
    ids=[
        "a mark",
        "a mark on its cause",
        "a wait that is asked for",
        "a group",
        "a refusal",
        "cut",
    ],
)
def test_the_fast_path_leaves_to_the_flow_what_more_than_a_kind_decides(failure):
    plan = plan_of(Policy(max_attempts=3, retry_on=Exception))
    assert fast_decision(plan, failure, 1, KEY, 0.0) is None


def test_the_fast_path_leaves_an_ambiguous_failure_of_an_unsafe_call_to_the_flow():
    failure = answered(504)()
    policy = Policy(max_attempts=1, classify={Answered: Kind.AMBIGUOUS})
    assert fast_decision(plan_of(policy, idempotency="unsafe"), failure, 1, KEY, 0.0) is None
    assert fast_decision(plan_of(policy), failure, 1, KEY, 0.0) == GIVE_UP


def test_the_fast_path_leaves_what_a_function_judges_to_the_flow():
    plan = plan_of(Policy(max_attempts=3, retry_on=lambda failure: True))
    assert fast_decision(plan, ConnectionError(), 1, KEY, 0.0) is None


def test_a_failure_that_carries_something_has_one_note_of_the_fast_path():
    """A note of ours that is there is replaced, as by the flow."""
    plan = plan_of(Policy(max_attempts=2, retry_on=ConnectionError))
    failure = ConnectionError()
    failure.host = "db"
    assert fast_decision(plan, failure, 2, KEY, 0.0) == GIVE_UP
    assert fast_decision(plan_of(Policy(max_attempts=1)), failure, 1, KEY, 0.0) in (GIVE_UP, None)
    assert len(failure.__notes__) == 1
    final = KeyError()
    final.host = "db"
    assert fast_decision(plan, final, 1, KEY, 0.0) == GIVE_UP
    assert "is not named by on=ConnectionError" in final.__notes__[0]


def test_an_unknown_outcome_has_the_id_of_its_inbox_item():
    """The answer to the event of a call that is given up is the id, if an item was raised."""
    plan = plan_of(Policy(max_attempts=1), idempotency="unsafe")
    flow = call_flow(plan, AttemptTimeout(1.0), 7, None, builder=teller_of(plan))
    effect = next(flow)
    while not isinstance(effect, OutcomeUnknown):
        is_end = isinstance(effect, Event) and hasattr(effect, "stop_reason")
        effect = flow.send("item-1" if is_end else 0.0)
    assert effect.item_id == "item-1"
