"""The waits that an outcome decides: Retry-After with jitter on top, and `wait_from`.

Driven by hand, as in test_call.py: data in, decisions out.
"""

import functools
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.base.entropy import key_of, uniform
from mainstay.core.base.proof import RULE, Opening
from mainstay.core.events.builder import EventBuilder
from mainstay.core.known.kind import Kind
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.effects import Question, Returned, Warn
from mainstay.core.retry.plan import Plan
from mainstay.core.retry.policy import KindRule, Policy
from mainstay.errors import PolicyError, ResultRejected

KEYS = st.integers(0, 1000).map(lambda call: key_of(7, call))
JITTERS = {
    "none": (Jitter.none(), 0.0),
    "percent": (Jitter.percent(0.1), 1.0),
    "additive": (Jitter.additive(3.0), 3.0),
    "equal": (Jitter.equal(), 5.0),
    "full": (Jitter.full(), 10.0),
    "decorrelated": (Jitter.decorrelated(), 10.0),
}
"""Each with the most that it adds to 10 s."""


class Busy(Exception):
    """A failure with what the service sent along."""

    def __init__(self, retry_after=None):
        super().__init__("busy")
        self.retry_after = retry_after


class Response:
    """A result as HTTP clients give it."""

    def __init__(self, status, **headers):
        self.status_code = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def policy_of(**fields):
    return Policy(**{"retry_on": Busy, "jitter": Jitter.none(), "max_attempts": 2, **fields})


def decided(policy, outcome, key=1, *, rule=RULE, builder=False):
    """What the flow does after a first outcome: the effects up to a wait or the end."""
    plan = Plan(policy, "fetch", 1)
    plan.rule = rule
    flow = call_flow(plan, outcome, key, None, builder=_builder(plan) if builder else None)
    seen, answer = [], None
    while True:
        effect = flow.send(answer)
        seen.append(effect)
        if isinstance(effect, float | BaseException | Returned):
            return seen
        answer = 1_000_000.0 if isinstance(effect, Question) else None


def _builder(plan):
    return EventBuilder(plan, 0.0, opening=Opening())


def wait_after(policy, outcome, key=1, **options):
    return decided(policy, outcome, key, **options)[-1]


# --- Retry-After ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", JITTERS)
@given(key=KEYS)
def test_jitter_comes_on_top_of_what_the_server_asked_for(kind, key):
    """Never earlier than asked, and later by no more than the jitter has room above a delay."""
    jitter, most = JITTERS[kind]
    policy = policy_of(backoff=Backoff.exponential(0.1, max_delay=60.0), jitter=jitter)
    assert wait_after(policy, Busy(10), key) == 10.0 + most * uniform(key, 1)


def test_clients_that_were_asked_to_wait_together_do_not_return_together():
    """Fifty clients that are asked for 10 s each have a moment of their own within a second."""
    policy = Policy(retry_on=Busy)
    waits = sorted(wait_after(policy, Busy(10), key_of(1, client)) for client in range(50))
    assert len(set(waits)) == 50
    assert 10.0 <= waits[0] < 10.2
    assert 10.8 < waits[-1] < 11.0


@given(asked=st.floats(0.0, 60.0), longest=st.floats(0.1, 60.0), key=KEYS)
def test_the_jitter_on_top_is_never_longer_than_the_longest_delay(asked, longest, key):
    """`max_delay` bounds what the policy adds by itself."""
    backoff = Backoff.constant(0.05).to_dict() | {"max_delay": longest}
    policy = policy_of(backoff=Backoff.from_dict(backoff), jitter=Jitter.full())
    wait = wait_after(policy, Busy(asked), key)
    assert max(asked, 0.0) <= wait <= max(asked + longest, 0.05)


def test_a_kind_with_a_jitter_of_its_own_spreads_by_that():
    """The jitter on top is that of the rule by which the call would have waited."""
    rule = KindRule(jitter=Jitter.none())
    policy = policy_of(
        jitter=Jitter.full(), per_kind={"throttled": rule}, classify={Busy: "throttled"}
    )
    assert wait_after(policy, Busy(10), 12345) == 10.0


@pytest.mark.parametrize("asked", [4, 90, "Mon, 16 Nov 2026 12:00:07 GMT"])
def test_a_retry_after_that_is_not_respected_changes_no_wait(asked):
    """However long, in seconds or as a date: the wait is the backoff's, and nothing is given up."""
    policy = policy_of(backoff=Backoff.constant(0.5), respect_retry_after=False)
    assert wait_after(policy, Busy(asked)) == 0.5


def test_the_jitter_on_top_does_not_count_for_the_longest_wait_allowed():
    """`max_retry_after` is about what was asked: exactly that much is still waited for."""
    policy = policy_of(jitter=Jitter.full(), max_retry_after=10.0)
    assert wait_after(policy, Busy(10), 12345) > 10.0
    assert isinstance(wait_after(policy, Busy(10.1), 12345), Busy)


def test_the_first_version_of_the_rules_waits_exactly_as_asked():
    """A call that was recorded under version 1 is decided as it was then."""
    policy = policy_of(jitter=Jitter.full())
    assert wait_after(policy, Busy(10), 12345, rule=1) == 10.0


# --- a result that is not accepted ----------------------------------------------------------------

REJECTING = {"retry_if_result": lambda response: response.status_code in (429, 503)}


@pytest.mark.parametrize(
    ("result", "wait"),
    [
        (Response(429, Retry_After="7"), 7.0),
        (Response(503, retry_after="2.5"), 2.5),
        (Response(429, Retry_After="Mon, 12 Jan 1970 13:46:50 GMT"), 10.0),
        (Response(429, Retry_After="soon"), 0.5),
        (Response(429), 0.5),
    ],
)  # fmt: skip
def test_the_retry_after_of_a_rejected_result_is_waited_for(result, wait):
    """A client that returns its 429 in place of raising it waits as one that raises."""
    policy = policy_of(backoff=Backoff.constant(0.5), **REJECTING)
    assert wait_after(policy, Returned(result)) == wait


def test_a_rejected_result_may_ask_for_too_long_a_wait():
    """Then the call ends, as after a failure; the event has what was asked."""
    policy = policy_of(max_retry_after=5.0, **REJECTING)
    result = Response(429, Retry_After="6")
    effects = decided(policy, Returned(result), builder=True)
    assert effects[-1].value is result
    assert not effects[-1].is_accepted
    assert effects[0].retry_after_seconds == 6.0


class Odd:
    """Nothing about it can be read."""

    status_code = 429

    @property
    def headers(self):
        raise RuntimeError("no headers yet")


class Broken:
    status_code = 429
    headers = (("Retry-After", "7"),)


@pytest.mark.parametrize("result", [Odd(), Broken()])
def test_a_result_that_cannot_be_read_asks_for_nothing(result):
    """It is the user's own, and may be anything."""
    assert (
        wait_after(policy_of(backoff=Backoff.constant(0.5), **REJECTING), Returned(result)) == 0.5
    )


def test_a_result_may_carry_its_wait_as_an_attribute():
    """As an exception may, also as a timedelta."""
    result = Response(429)
    result.retry_after = timedelta(seconds=3)
    assert wait_after(policy_of(**REJECTING), Returned(result)) == 3.0


# --- wait_from ------------------------------------------------------------------------------------


@given(key=KEYS, seconds=st.floats(0.0, 1000.0))
def test_a_wait_is_computed_from_the_failure(key, seconds):
    """It takes the place of backoff and jitter, to the bit."""

    def wait_from(outcome):
        assert isinstance(outcome, Busy)
        return seconds

    assert wait_after(policy_of(jitter=Jitter.full(), wait_from=wait_from), Busy(), key) == seconds


def test_a_wait_is_computed_from_a_result():
    """The function receives the result that was not accepted, as it came."""
    policy = policy_of(wait_from=lambda response: response.status_code / 100, **REJECTING)
    assert wait_after(policy, Returned(Response(503))) == 5.03


@pytest.mark.parametrize("answer", [timedelta(milliseconds=1500), 1.5])
def test_a_wait_may_be_a_timedelta(answer):
    """Wherever seconds go."""
    assert wait_after(policy_of(wait_from=lambda _: answer), Busy()) == 1.5


def test_none_leaves_the_wait_to_the_policy():
    """So a function may decide on some outcomes only."""
    policy = policy_of(backoff=Backoff.constant(0.5), wait_from=lambda _: None)
    assert wait_after(policy, Busy()) == 0.5


def test_no_function_makes_a_call_return_earlier_than_the_server_asked():
    """A Retry-After is the least, whatever is computed."""
    assert wait_after(policy_of(wait_from=lambda _: 1.0), Busy(4)) == 4.0
    assert wait_after(policy_of(wait_from=lambda _: 9.0), Busy(4)) == 9.0


async def asked_later(_):
    """A coroutine; it is never awaited."""


@pytest.mark.parametrize(
    "answer",
    [-1.0, float("nan"), float("inf"), "3", True, [3], asked_later],
    ids=["negative", "nan", "inf", "text", "bool", "list", "coroutine"],
)
def test_an_answer_that_is_no_wait_is_not_heeded(answer):
    """The policy's own delay is waited, and one warning has the reason."""
    returned = answer(None) if callable(answer) else answer
    policy = policy_of(backoff=Backoff.constant(0.5), wait_from=lambda _: returned)
    *_, warning, wait = decided(policy, Busy())
    assert wait == 0.5
    assert isinstance(warning, Warn)
    assert "no number of seconds" in warning.text


def test_a_function_that_raises_is_not_heeded():
    """As every function of a policy: the call goes on."""
    policy = policy_of(backoff=Backoff.constant(0.5), wait_from=lambda outcome: outcome.nothing)
    *_, warning, wait = decided(policy, Busy())
    assert wait == 0.5
    assert "AttributeError" in warning.text


class AskedLater:
    """An object that is called, and then has to be awaited."""

    async def __call__(self, _):
        """It is never awaited."""


@pytest.mark.parametrize(
    "value",
    [asked_later, functools.partial(asked_later, 1), AskedLater(), 3, "wait", int],
    ids=["async", "partial", "object", "3", "text", "class"],
)
def test_only_a_plain_function_computes_waits(value):
    """An async one is refused with the policy: a sync call could not await it."""
    with pytest.raises(PolicyError) as caught:
        policy_of(wait_from=value)
    assert [problem.field for problem in caught.value.problems] == ["wait_from"]


def test_the_computed_wait_is_recorded_for_replay():
    """Also that it was left to the policy: the function itself is in no record."""
    for answer in (2.5, None):
        policy = policy_of(wait_from=lambda _, answer=answer: answer)
        scheduled = decided(policy, Busy(), builder=True)[-2]
        assert {"wait": answer} in scheduled.proved.answers


# --- the end --------------------------------------------------------------------------------------


def ended(policy, *outcomes):
    """The end of a call with these outcomes."""
    flow = call_flow(Plan(policy, "poll", 1), outcomes[0], 1, None)
    rest, answer = iter(outcomes[1:]), None
    while True:
        effect = flow.send(answer)
        if isinstance(effect, BaseException | Returned):
            return effect
        answer = next(rest) if isinstance(effect, float) else None


PENDING = {"retry_if_result": lambda state: state == "pending"}


def test_a_result_that_stays_rejected_is_raised_if_the_policy_asks_for_it():
    """`on_exhausted="raise"`: ResultRejected with the last result, the attempts and the note."""
    policy = policy_of(on_exhausted="raise", **PENDING)
    error = ended(policy, Returned("pending"), Returned("pending"))
    assert isinstance(error, ResultRejected)
    assert (error.operation, error.attempts, error.result) == ("poll", 2, "pending")
    assert str(error) == "poll returned no result that was accepted in 2 attempts"
    assert error.__notes__ == ["mainstay: gave up on poll after 2 attempts: no attempt left"]


def test_one_attempt_can_be_rejected_too():
    """Also without a retry the result is no success."""
    error = ended(policy_of(on_exhausted="raise", max_attempts=1, **PENDING), Returned("pending"))
    assert isinstance(error, ResultRejected)
    assert str(error).endswith("in 1 attempt")


def test_the_result_is_not_in_the_message():
    """A message may be logged, and a result may hold what is not to be."""
    secret = "pending"
    error = ended(policy_of(on_exhausted="raise", max_attempts=1, **PENDING), Returned(secret))
    assert secret not in str(error)


def test_a_result_that_is_accepted_after_all_is_returned():
    """Raising is for the end only."""
    policy = policy_of(on_exhausted="raise", **PENDING)
    assert ended(policy, Returned("pending"), Returned("done")).value == "done"


def test_without_the_setting_the_last_result_is_returned():
    """The default: the caller's types hold."""
    end = ended(policy_of(**PENDING), Returned("pending"), Returned("pending"))
    assert (end.value, end.is_accepted) == ("pending", False)


def test_an_unknown_setting_is_refused():
    """With the two that there are."""
    with pytest.raises(PolicyError, match="one of return, raise"):
        policy_of(on_exhausted="explode")


def test_an_outer_retry_does_not_take_a_rejected_result_for_a_short_failure():
    """It is permanent: the inner call has retried it already."""
    assert Policy().classification(ResultRejected("poll", 3)).kind is Kind.PERMANENT
