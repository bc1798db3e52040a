"""Predicates that return something to await: the flow asks for it, and decides on the answer."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.audit.plan_codec import declared
from mainstay.core.audit.reconstruct import exception_of, policy_of
from mainstay.core.events.evidence import evidence_of
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.classify import Rules, classify, judged
from mainstay.core.retry.effects import Returned
from mainstay.core.retry.plan import Plan
from mainstay.core.retry.policy import Policy, async_fields
from mainstay.core.retry.predicates import AwaitAnswer, truth_of


class Pending:
    """Something to await that holds its answer."""

    def __init__(self, answer):
        self.answer = answer

    def __await__(self):
        raise NotImplementedError


def driven(flow):
    """Runs a generator to its end, with each question answered by what it holds."""
    answer, asked = None, []
    while True:
        try:
            effect = flow.send(answer)
        except StopIteration as end:
            return end.value, asked
        assert isinstance(effect, AwaitAnswer)
        asked.append(effect.awaitable)
        answer = effect.awaitable.answer


def predicate(answer, *, is_pending, asked):
    """One that answers so, at once or later."""

    def judge(failure):
        asked.append(answer)
        if is_pending:
            return Pending(answer)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return judge


ANSWERS = st.sampled_from([True, False, LookupError("in the predicate")])
ROWS = st.lists(st.tuples(ANSWERS, st.booleans()), max_size=5)


def rules_of(rows, asked):
    return tuple(predicate(answer, is_pending=late, asked=asked) for answer, late in rows)


def ends_as(verdict):
    return verdict.kind, verdict.retryable, verdict.asked, list(map(str, verdict.errors))


@given(ROWS, ROWS, ROWS, st.booleans())
def test_an_answer_that_is_awaited_decides_as_one_that_comes_at_once(on, never, named, grouped):
    """The same verdict, the same answers in the same order, and each predicate asked once."""
    failure = ValueError("x")
    failure = ExceptionGroup("two", [failure, KeyError("y")]) if grouped else failure

    def policy(is_late, asked):
        late = [
            [(answer, is_late and late) for answer, late in rows] for rows in (on, never, named)
        ]
        retry_on, never_retry_on, classified = (rules_of(rows, asked) for rows in late)
        return Policy(
            retry_on=retry_on,
            never_retry_on=never_retry_on,
            classify=dict.fromkeys(classified, "throttled"),
        )

    at_once, later = [], []
    plain = classify(failure, policy(False, at_once)._rules)
    awaited, _ = driven(judged(failure, policy(True, later)._rules))
    assert ends_as(awaited) == ends_as(plain)
    assert later == at_once


def test_a_failure_is_final_if_nothing_can_await_the_answer():
    """The verdict has why, and which predicate had no answer."""
    policy = Policy(retry_on=(lambda _: False, lambda _: Pending(None)))
    verdict, asked = driven(judged(ConnectionError("x"), policy._rules))
    assert (verdict.retryable, verdict.asked) == (False, (False, None))
    assert "nothing awaits it" in verdict.reason
    assert len(asked) == len(verdict.errors) == 1
    assert ends_as(classify(ConnectionError("x"), policy._rules)) == ends_as(verdict)


def test_an_answer_that_nothing_awaited_is_not_remembered_for_the_type():
    """The next failure of the same class is judged by itself."""
    rules = Rules(retry_on=(lambda error: Pending(None) if error.args else True,))
    assert not classify(ValueError("x"), rules).retryable
    assert classify(ValueError(), rules).retryable


@pytest.mark.parametrize("answer", [True, False, 1, 0, "", "x"])
def test_a_result_is_judged_by_what_was_awaited(answer):
    """As it would be by the same value at once."""
    assert driven(truth_of(Pending(bool(answer))))[0] is bool(answer)
    assert driven(truth_of(answer))[0] is bool(answer)


@pytest.mark.parametrize("answer", [LookupError("in the predicate"), None])
def test_a_result_is_accepted_if_its_predicate_has_no_answer(answer):
    """It raised, or nothing could await it: the flow warns, and the value is returned."""
    policy = Policy(retry_if_result=lambda _: Pending(answer))
    flow = call_flow(Plan(policy, "op", 1), Returned("value"))
    effects = [flow.send(None), flow.send(answer), flow.send(None)]
    assert type(effects[0]) is AwaitAnswer
    assert ("LookupError" if answer else "nothing awaits it") in effects[1].text
    assert effects[2].value == "value"
    assert effects[2].is_accepted


def test_the_fields_with_async_predicates_are_named():
    """Each once, in order; classes, names and plain functions are none."""

    async def late(value):
        """Async."""

    assert async_fields(Policy(retry_on=(OSError, "Throttled", len))) == []
    assert async_fields(Policy(retry_on=(len, late), never_retry_on=late)) == [
        "retry_on",
        "never_retry_on",
    ]
    assert async_fields(Policy(classify={late: "throttled"}, retry_if_result=late)) == [
        "classify",
        "retry_if_result",
    ]


@pytest.mark.parametrize(
    "answers", [(True,), (False, True), (False, False), (False, None), (None,)]
)
def test_a_recorded_failure_is_judged_again_as_it_was(answers):
    """By stand-ins that answer what the predicates answered, also with nothing at all."""
    policy = Policy(retry_on=tuple(lambda _, a=answer: Pending(a) for answer in answers))
    failure = ConnectionError("x")
    verdict, _ = driven(judged(failure, policy._rules))
    again = policy_of(declared(policy, "idempotent").fields, deque())
    recorded = exception_of(evidence_of(failure, verdict))
    flow, found = judged(recorded, again._rules), None
    try:
        flow.send(None)
        flow.send(None)  # replay awaits nothing
    except StopIteration as end:
        found = end.value
    assert (found.retryable, found.asked) == (verdict.retryable, verdict.asked)
