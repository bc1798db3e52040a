"""The rules of the pipeline document: what is retried, what never is, which policies are wrong."""

import errno
import sqlite3

import pytest

from mainstay import Backoff, Jitter, KindRule, RetryPolicy
from mainstay.core.pipeline.rules import check_idempotency, check_policy, is_fail_fast, is_retryable
from mainstay.errors import (
    AttemptTimeout,
    FailFastError,
    GovernanceBlocked,
    ImmutabilityViolation,
    LicenseViolation,
    LineageMismatch,
    PolicyError,
    RetryForbidden,
    SchemaValidationError,
    UsageError,
)

GOOD = RetryPolicy(
    max_attempts=5,
    backoff=Backoff.exponential(0.5, factor=2.0, max_delay=30.0),
    jitter=Jitter.full(),
    attempt_timeout=5.0,
)


def http(status):
    error = RuntimeError(f"HTTP {status}")
    error.status_code = status
    return error


@pytest.mark.req("PL-01.statuses")
@pytest.mark.parametrize("status", range(400, 600))
def test_the_statuses_that_are_retried(status):
    """408, 429 and 500 to 504; no other."""
    assert is_retryable(http(status)) == (status in (408, 429, 500, 501, 502, 503, 504))


@pytest.mark.req("PL-01.contention")
@pytest.mark.parametrize("name", ["EAGAIN", "EBUSY", "ETXTBSY", "EDEADLK", "ENOLCK", "EINTR"])
def test_contention_is_retried(name):
    """A file that is busy or locked is worth another attempt; a full disk is not."""
    assert is_retryable(OSError(getattr(errno, name), "busy"))
    assert not is_retryable(OSError(errno.ENOSPC, "full"))
    assert is_retryable(sqlite3.OperationalError("database is locked"))


@pytest.mark.req("PL-02")
@pytest.mark.parametrize(
    "cls",
    [
        SchemaValidationError, GovernanceBlocked, LineageMismatch, ImmutabilityViolation,
        LicenseViolation, FailFastError,
    ],
)  # fmt: skip
def test_what_fails_fast(cls):
    """Each class of the document, and whatever derives from one."""
    assert is_fail_fast(cls("no"))
    assert is_fail_fast(type("Own", (cls,), {})("no"))
    assert not is_retryable(cls("no"))


@pytest.mark.req("PL-02")
def test_validation_errors_of_libraries_fail_fast():
    """A schema is a schema, whichever library has found it violated."""
    import msgspec

    error = type("ValidationError", (Exception,), {"__module__": "jsonschema.exceptions"})("no")
    assert is_fail_fast(error)
    assert is_fail_fast(msgspec.ValidationError("no"))
    assert not is_fail_fast(ValueError("no"))


@pytest.mark.req("PL-05")
def test_a_timeout_is_judged_by_its_cause():
    """One that was raised from a violation is one; a slow dependency is not."""
    slow, waited = AttemptTimeout(5.0), AttemptTimeout(5.0)
    waited.__cause__ = GovernanceBlocked("waiting for consent")
    assert (is_fail_fast(slow), is_fail_fast(waited)) == (False, True)
    assert is_retryable(TimeoutError())
    beside = TimeoutError()
    beside.__context__ = GovernanceBlocked("while it was handled")
    assert is_fail_fast(beside)
    circle = TimeoutError()
    circle.__cause__ = TimeoutError()
    circle.__cause__.__cause__ = circle
    assert not is_fail_fast(circle)


def test_what_is_raised_from_a_violation_is_one():
    """Under a class of one's own too; what was raised while one was handled is not."""
    wrapped, later = OSError("x"), OSError("y")
    wrapped.__cause__ = ValueError("row 7")
    wrapped.__cause__.__cause__ = SchemaValidationError("no id")
    later.__context__ = SchemaValidationError("no id")
    assert (is_fail_fast(wrapped), is_fail_fast(later)) == (True, False)


def test_a_group_fails_fast_if_a_member_does():
    """One violation among several failures is enough."""
    assert is_fail_fast(ExceptionGroup("x", [OSError(), SchemaValidationError("no")]))
    assert not is_fail_fast(ExceptionGroup("x", [OSError()]))


@pytest.mark.req("PL-04")
@pytest.mark.parametrize(
    ("change", "fields"),
    [
        ({}, []),
        ({"max_attempts": 6}, ["max_attempts"]),
        ({"attempt_timeout": None}, ["attempt_timeout"]),
        ({"respect_retry_after": False}, ["respect_retry_after"]),
        ({"wait_from": lambda _: 0.0}, ["wait_from"]),
        ({"backoff": Backoff.constant(1.0)}, ["backoff"]),
        ({"backoff": Backoff.constant(0.0)}, ["backoff"]),
        ({"backoff": Backoff.linear(1.0, step=1.0, max_delay=5.0)}, ["backoff"]),
        ({"backoff": Backoff.exponential(0.5, factor=3.0, max_delay=30.0)}, ["backoff"]),
        ({"backoff": Backoff.exponential(0.1, factor=2.0, max_delay=30.0)}, ["backoff.initial"]),
        ({"backoff": Backoff.exponential(1.5, factor=2.0, max_delay=30.0)}, ["backoff.initial"]),
        ({"backoff": Backoff.exponential(1.0, factor=2.0, max_delay=31.0)}, ["backoff.max_delay"]),
        ({"jitter": Jitter.none()}, ["jitter"]),
        ({"max_attempts": 9, "jitter": Jitter.none()}, ["max_attempts", "jitter"]),
        ({"max_attempts": 1, "backoff": Backoff.constant(0.0)}, []),
        ({"retry_on": (SchemaValidationError, OSError)}, ["retry_on"]),
        (
            {"per_kind": {"throttled": KindRule(jitter=Jitter.none())}},
            ["per_kind.throttled.jitter"],
        ),
    ],
)
def test_the_policies_that_are_refused(change, fields):
    """Each rule of the document that a policy breaks is named, all at once."""
    policy = GOOD.replace(**change)
    if not fields:
        check_policy("poll", policy)
        return
    with pytest.raises(PolicyError) as caught:
        check_policy("poll", policy)
    assert [problem.field for problem in caught.value.problems] == fields


@pytest.mark.req("PL-06")
def test_the_idempotency_gate():
    """What is not declared is an error; unsafe is called once; keyed has a key."""
    for declared in (None, "maybe"):
        with pytest.raises(UsageError, match="stage load"):
            check_idempotency("load", declared, 5, has_key=False)
    with pytest.raises(RetryForbidden, match="unsafe") as caught:
        check_idempotency("load", "unsafe", 5, has_key=False)
    assert caught.value.rule == "non-idempotent"
    with pytest.raises(UsageError, match="no key"):
        check_idempotency("load", "keyed", 5, has_key=False)
    assert check_idempotency("load", "unsafe", 1, has_key=False) == "unsafe"
    assert check_idempotency("load", "keyed", 5, has_key=True) == "keyed"
