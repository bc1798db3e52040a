"""A failure that is final at once has a note with the rule that decided."""

from __future__ import annotations

import copy
import pickle
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay.core.known.kind import Kind, transient
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Row, Table
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.classify import Rules, classify
from mainstay.core.retry.effects import NOT_RETRYABLE, Question, Returned
from mainstay.core.retry.plan import GIVE_UP, Plan, fast_decision
from mainstay.core.retry.policy import Policy
from mainstay.errors import CallCancelled, PolicyError


def is_odd(error):
    return False


def given_up(failure, attempts=3, **fields):
    """The exception that a call raises whose first attempt ends in this failure."""
    plan = Plan(Policy(max_attempts=attempts, **fields), "fetch", 1)
    flow = call_flow(plan, failure, key=1, outer=None)
    effect = next(flow)
    while isinstance(effect, Question):
        effect = flow.send(None)
    return effect


def notes(error):
    return getattr(error, "__notes__", [])


@pytest.mark.parametrize(
    ("failure", "fields", "note"),
    [
        (
            sqlite3.OperationalError("locked"),
            {"retry_on": (ConnectionError, TimeoutError)},
            "sqlite3.OperationalError is not named by on=(ConnectionError, TimeoutError)",
        ),
        (KeyError("x"), {"retry_on": OSError}, "KeyError is not named by on=OSError"),
        (
            KeyError("x"),
            {"retry_on": ("SlowDown", Kind.THROTTLED, is_odd, sqlite3.OperationalError)},
            (
                "KeyError is permanent (a LookupError), which"
                " on=('SlowDown', Kind.THROTTLED, is_odd, sqlite3.OperationalError) does not name"
            ),
        ),
        (
            PermissionError("no"),
            {"retry_on": transient},
            (
                "PermissionError is auth (a PermissionError),"
                " which on=mainstay.transient does not name"
            ),
        ),
        (
            KeyError("x"),
            {"retry_on": tuple(f"E{n}" for n in range(10))},
            (
                "KeyError is not named by"
                " on=('E0', 'E1', 'E2', 'E3', 'E4', 'E5', 'E6', 'E7', and 2 more)"
            ),
        ),
        (
            PermissionError("no"),
            {"retry_on": OSError},
            "PermissionError is an authentication failure, and on=OSError does not name it",
        ),
        (
            ConnectionResetError("peer"),
            {"retry_on": OSError, "never_retry_on": ConnectionError},
            "ConnectionResetError matches never_retry_on=ConnectionError",
        ),
        (
            KeyError("x"),
            {},
            (
                "KeyError is permanent (a LookupError); a policy without on= retries what is"
                " transient, throttled, timeout, overload"
            ),
        ),
        (
            MemoryError(),
            {"retry_on": Exception},
            "MemoryError is never retried: the process is out of memory",
        ),
        (
            ExceptionGroup("two", [ConnectionError(), KeyError("x")]),
            {"retry_on": ConnectionError},
            (
                "ExceptionGroup has a member that is not retried: KeyError is not named by"
                " on=ConnectionError"
            ),
        ),
    ],
)
def test_the_note_names_the_rule_that_decided(failure, fields, note):
    """What it is, and which rule did not cover it or excluded it."""
    assert given_up(failure, **fields) is failure
    assert notes(failure) == [f"mainstay: not retried: {note}"]


def test_the_fast_path_leaves_the_same_note():
    """Once the type is settled no flow is needed, and the exception says the same."""
    plan = Plan(Policy(retry_on=ConnectionError), "fetch", 1)
    first, second = KeyError("x"), KeyError("y")
    classify(first, plan.policy._rules)
    assert fast_decision(plan, second, 1, 1, 0.0) == GIVE_UP
    assert notes(second) == notes(given_up(first, retry_on=ConnectionError))


def test_the_text_of_a_settled_type_is_made_once():
    """The next failure of that type gets the very same text."""
    rules = Rules((ConnectionError,))
    assert classify(KeyError(), rules).note is classify(KeyError(), rules).note


@pytest.mark.parametrize("attempts", [1, 3])
def test_where_nothing_could_be_retried_there_is_no_note(attempts):
    """One attempt is all there was to be, or a cancellation, or the failure would be retried."""
    for failure, fields in (
        (KeyError("x"), {"attempts": 1, "retry_on": OSError}),
        (ConnectionError(), {"attempts": 1, "retry_on": OSError}),
        (CallCancelled("fetch", 1), {"attempts": attempts, "retry_on": OSError}),
    ):
        plan = Plan(Policy(max_attempts=fields["attempts"], retry_on=OSError), "fetch", 1)
        given_up(failure, **fields)
        assert notes(failure) == []
        fast_decision(plan, failure, 1, 1, 0.0)
        assert notes(failure) == []


def test_a_group_with_a_cancellation_has_no_note():
    """Nothing is to be explained: it was stopped."""
    group = BaseExceptionGroup("two", [CallCancelled("fetch", 1), ConnectionError()])
    given_up(group, retry_on=ConnectionError)
    assert notes(group) == []


def test_an_exception_that_is_raised_again_has_one_note():
    """By the same policy, by another one around it, or by a mock that raises one object."""
    failure = KeyError("x")
    for rules in (ConnectionError, ConnectionError, TimeoutError):
        given_up(failure, retry_on=rules)
    assert notes(failure) == ["mainstay: not retried: KeyError is not named by on=ConnectionError"]


def test_the_mark_of_an_inner_retry_stays():
    """An outer retry that does not retry the failure leaves the note of the one that gave up."""
    failure = KeyError("x")
    plan = Plan(Policy(), "inner", 2)
    plan.note(NOT_RETRYABLE, 2).put_on(failure)
    given_up(failure, retry_on=TimeoutError)
    assert len(notes(failure)) == 1
    assert "gave up on inner" in notes(failure)[0]


def test_an_exception_that_takes_no_note_is_raised_without_one():
    """A frozen exception is not lost for a note."""

    class Frozen(Exception):
        def add_note(self, _):
            raise AttributeError("frozen")

    failure = Frozen()
    assert given_up(failure, retry_on=TimeoutError) is failure
    plan = Plan(Policy(retry_on=TimeoutError), "fetch", 1)
    classify(failure, plan.policy._rules)
    plan.policy._rules.settle(Frozen, classify(failure, plan.policy._rules))
    assert fast_decision(plan, failure, 1, 1, 0.0) == GIVE_UP
    assert notes(failure) == []


def test_notes_of_the_users_own_stay():
    """Ours comes after them."""
    failure = KeyError("x")
    failure.add_note("of mine")
    given_up(failure, retry_on=TimeoutError)
    assert notes(failure)[0] == "of mine"
    assert len(notes(failure)) == 2


def test_a_classification_of_an_older_version_has_no_note():
    """It is read from a pickle all the same."""
    verdict = classify(KeyError("x"), Rules((OSError,)))
    assert pickle.loads(pickle.dumps(verdict)).note == verdict.note
    old = copy.copy(verdict)
    old.__setstate__((None, {"reason": "not in retry_on"}))
    assert old.note == ""


FAILURES = st.sampled_from([KeyError, MemoryError, ConnectionError, OSError, PermissionError])


@given(FAILURES, st.sampled_from([None, (Exception,), (OSError,), ()]), st.booleans())
def test_a_note_explains_exactly_what_is_not_retried(cls, rules, excluded):
    """Law: a classification has a note if and only if it is final and no cancellation."""
    found = classify(cls(), Rules(rules, (OSError,) if excluded else ()))
    assert bool(found.note) is not found.retryable


# --- memory ---------------------------------------------------------------------------------------


class ArrayTooLarge(MemoryError):
    """As array libraries have one."""


@pytest.mark.req("AG-01.memory")
@pytest.mark.parametrize("failure", [MemoryError(), ArrayTooLarge()])
@pytest.mark.parametrize("rule", [Exception, lambda error: True, Kind.PERMANENT, "Exception"])
def test_a_memory_error_is_never_retried(failure, rule):
    """Whatever covers it: its base class, a function, its kind, a name; also inside a group."""
    found = classify(failure, Rules((rule,), classify={MemoryError: Kind.TRANSIENT}))
    assert not found.retryable
    assert found.kind is Kind.PERMANENT
    assert not classify(ExceptionGroup("g", [failure]), Rules((rule,))).retryable


@pytest.mark.req("AG-01.memory")
@pytest.mark.parametrize("rule", [MemoryError, ArrayTooLarge, "MemoryError"])
def test_a_policy_that_names_memory_errors_is_refused(rule):
    """When it is made, with the reason; to exclude them is no mistake."""
    with pytest.raises(PolicyError, match="a MemoryError is never retried"):
        Policy(retry_on=(ConnectionError, rule))
    assert Policy(never_retry_on=rule).never_retry_on == (rule,)


def test_a_result_is_not_taken_for_a_failure():
    """A result that is not accepted is retried, and gets no note."""
    assert isinstance(
        given_up(Returned("x"), attempts=1, retry_if_result=lambda value: True), Returned
    )


@pytest.mark.parametrize("on", [None, OSError, (Kind.TRANSIENT,), (lambda error: True,)])
def test_a_request_that_cannot_be_sent_again_is_final_under_every_rule(on, known_here):
    """Its body is spent: what would be sent again is another request."""
    error = known_here("the connection was lost")
    error.ms_once = "PUT whose body cannot be read again"
    assert given_up(error, retry_on=on) is error
    (note,) = notes(error)
    assert "PUT whose body cannot be read again" in note
    assert classify(known_here("another"), Rules()).retryable


@pytest.fixture
def known_here():
    """An exception class that a table judges as transient."""

    class Lost(OSError):
        pass

    name = f"{Lost.__module__}.{Lost.__qualname__}"
    package = Lost.__module__.partition(".")[0]
    row = Row(Kind.TRANSIENT, "the connection was lost")
    REGISTRY.register(Table("here", {name: row}, packages=(package,)))
    yield Lost
    REGISTRY.unregister("here")
