"""What follows a failure that needs no flow is the event that the flow would have had."""

from hypothesis import given
from hypothesis import strategies as st

from mainstay import Backoff, Jitter, RetryPolicy
from mainstay.core.base.event import Event
from mainstay.core.events.builder import EventBuilder
from mainstay.core.events.encode import encode
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.classify import classify
from mainstay.core.retry.effects import Question
from mainstay.core.retry.plan import Plan, fast_decision

KEY = 12345
POLICIES = st.builds(
    lambda attempts, jitter, on: RetryPolicy(
        name="p", max_attempts=attempts, jitter=jitter, retry_on=on,
        backoff=Backoff.exponential(0.1),
    ),
    st.integers(1, 7),
    st.sampled_from([Jitter.none(), Jitter.full(), Jitter.percent(0.2), Jitter.decorrelated()]),
    st.sampled_from([None, (OSError,), (Exception,)]),
)  # fmt: skip
FAILURES = [ConnectionError, ConnectionResetError, ValueError, PermissionError, TimeoutError]


def by_flow(plan, outcomes, now):
    """The events of a call, as the flow has them."""
    flow = call_flow(plan, outcomes[0], KEY, builder=EventBuilder(plan, 0.0))
    left, found, answer = iter(outcomes[1:]), [], None
    while True:
        effect = flow.send(answer)
        answer = now if effect is Question.NOW else None
        if isinstance(effect, Event):
            found.append(effect)
        elif type(effect) is float:
            answer = next(left, None)
            if answer is None:
                return found
        elif isinstance(effect, BaseException):
            return found


def by_steps(plan, outcomes, now):
    """The same, of what `fast_decision` says."""
    builder, found, delay = EventBuilder(plan, 0.0), [], 0.0
    for attempt, failure in enumerate(outcomes, 1):
        verdict = classify(failure, plan.policy._rules)
        delay = fast_decision(plan, failure, attempt, KEY, delay)
        limit = plan.policy.max_attempts
        found.append(builder.attempt_failed(failure, verdict, attempt, limit, KEY))
        found.append(builder.next_step(failure, verdict, attempt, delay, KEY, now))
        if delay < 0.0:
            break
    return found


@given(
    policy=POLICIES,
    classes=st.lists(st.sampled_from(FAILURES), min_size=1, max_size=8),
    now=st.floats(-1.0, 1e6),
)
def test_the_next_step_is_that_of_the_flow(policy, classes, now):
    """A retry after the same delay to the bit, or the end for the same reason."""
    plan = Plan(policy, "op", 1)
    flow = by_flow(plan, [cls("x") for cls in classes], now)
    steps = by_steps(plan, [cls("x") for cls in classes], now)
    assert list(map(encode, steps)) == list(map(encode, flow))


class LateBuilder(EventBuilder):
    """As for a queued call, whose exception is gone: its text was kept."""

    def look_at(self, attempt, described):
        self._attempt, self._described = attempt, described


def test_a_failure_that_was_described_before_is_not_described_again():
    """All events of an attempt have the text that was kept."""
    plan, failure = Plan(RetryPolicy(), "op", 1), ConnectionError("a stand-in")
    builder, verdict = LateBuilder(plan, 0.0), classify(failure, RetryPolicy()._rules)
    builder.look_at(1, ("TimeoutError", "the text"))
    failed = builder.attempt_failed(failure, verdict, 1, 3, KEY)
    retried = builder.next_step(failure, verdict, 1, 0.1, KEY, 0.0)
    assert {(each.exception_type, each.exception_message) for each in (failed, retried)} == {
        ("TimeoutError", "the text")
    }
