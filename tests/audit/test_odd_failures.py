"""Failures that carry odd things are told of, without secrets, and replay."""

from __future__ import annotations

import enum
import errno

import pytest

from mainstay import Backoff, Engine, Redactor, RetryPolicy
from mainstay.audit import AuditLog, read_log, replay_log
from mainstay.testing import scripted

SECRET = "EMP-12345"


class Odd(Exception):
    """A failure that carries what it is given."""

    def __init__(self, **carried):
        super().__init__("odd")
        self.__dict__.update(carried)


class Number(enum.IntEnum):
    """The system's numbers, as some programs name them."""

    RESET = errno.ECONNRESET


def record(where, failure, *, guarded=False, **options):
    """A log of one call that fails so, and then succeeds."""
    policy = RetryPolicy(name="op", max_attempts=2, backoff=Backoff.constant(0), **options)
    redact = Redactor(patterns=[r"EMP-\d+"])
    log = AuditLog(where, spill=False)
    with Engine(policies=[policy], sinks=[], redact=redact, audit=log) as engine:
        verb = engine.run if guarded else engine.call
        return verb("op", scripted(failure, "fine"))


@pytest.mark.req("AG-02.redacted-audit")
@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(
    "failure",
    [
        Odd(code=SECRET),
        Odd(response={"Error": {"Code": SECRET}}),
        ExceptionGroup("of them", [Odd(sqlstate=SECRET), ConnectionError()]),
        Odd(reason=Odd(code=SECRET)),
    ],
)
def test_patterns_of_ones_own_hold_for_what_a_service_calls_its_error(tmp_path, failure, guarded):
    """Codes are recorded as evidence, and are texts like any other."""
    where = tmp_path / "audit.jsonl"
    record(where, failure, guarded=guarded, retry_on=Exception)
    told = where.read_text()
    assert "attempt_failed" in told
    assert SECRET not in told


@pytest.mark.parametrize("carried", [{"code": "\udc80"}, {"sqlstate": "4000\ud800"}])
def test_a_code_without_a_written_form_costs_no_event(tmp_path, carried):
    """Stray bytes are shown; the call replays."""
    where = tmp_path / "audit.jsonl"
    record(where, Odd(**carried), retry_on=Exception)
    types = [record.event.event_type for record in read_log(where)]
    assert types == ["plan_declared", "attempt_failed", "retry_attempt", "call_succeeded"]
    assert replay_log(where).ok


@pytest.mark.parametrize("number", [[1], {}, 104.0, "104", True, Number.RESET, 1 << 80, -1])
@pytest.mark.parametrize("options", [{"retry_on": Exception}, {}])
def test_whatever_stands_for_a_number_of_the_system_is_not_in_the_way(tmp_path, number, options):
    """The failure is the caller's own, and the decision replays."""
    where = tmp_path / "audit.jsonl"
    failure = OSError(number, "odd")
    result = record(where, failure, guarded=True, **options)
    assert result.value == "fine" if result.success else result.last_exception is failure
    report = replay_log(where)
    assert report.ok, report.divergence
    assert report.calls == 1
