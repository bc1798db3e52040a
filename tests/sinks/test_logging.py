"""Events as log records: the levels of the design, the fields on the record."""

from __future__ import annotations

import logging

import pytest

from mainstay import Backoff, Engine, Jitter, RetryPolicy, events
from mainstay.sinks.logging import LoggingSink, level_of, sentence
from mainstay.testing import scripted, virtual_time

POLICY = RetryPolicy(name="api", backoff=Backoff.constant(1.0), jitter=Jitter.none())


@pytest.fixture
def heard(caplog):
    """An engine that logs as it does by default, and what was logged, as (level, event)."""
    caplog.set_level(logging.DEBUG, "mainstay")

    def run(function, policy=POLICY):
        caplog.clear()
        with virtual_time():
            Engine(policies=[policy]).run("api", function)
        return [(r.levelname, r.mainstay["event_type"]) for r in caplog.records]

    return run


@pytest.mark.req("FR-041-31", "FR-041-32", "FR-041-47", "AC-022", "UVS-1")
def test_a_recovered_call_is_logged_step_by_step(heard, caplog):
    """Each attempt DEBUG, the scheduled retry WARNING with its delay, the success INFO."""
    assert heard(scripted(ConnectionError("down"), "up")) == [
        ("DEBUG", "attempt_failed"),
        ("WARNING", "retry_attempt"),
        ("INFO", "call_succeeded"),
    ]
    said = [record.getMessage() for record in caplog.records]
    assert said[1] == ("api: attempt 1 of 3 failed with ConnectionError: down; next in 1.000 s")
    assert said[2] == "api: succeeded on attempt 2 after 1.000 s"
    assert caplog.records[1].mainstay["delay_seconds"] == 1.0


@pytest.mark.req("FR-041-33", "UVS-2")
def test_an_exhausted_call_is_logged_as_an_error(heard, caplog):
    """All attempts, then the end at ERROR, saying how many, how long and what."""
    levels = heard(scripted(*[ConnectionError("down")] * 3))
    assert levels[-1] == ("ERROR", "retry_exhausted")
    assert [name for _, name in levels].count("attempt_failed") == 3
    assert caplog.records[-1].getMessage() == (
        "api: gave up after 3 attempts in 2.000 s (no attempt left; a ConnectionError):"
        " ConnectionError: down"
    )


@pytest.mark.req("UVS-3")
def test_a_final_failure_is_logged_with_its_category(heard, caplog):
    """Access denied: one attempt, no delay, and the log says it was an authentication matter."""
    assert heard(scripted(PermissionError("denied"))) == [
        ("DEBUG", "attempt_failed"),
        ("ERROR", "call_failed"),
    ]
    assert caplog.records[-1].mainstay["kind"] == "auth"
    assert "not retryable" in caplog.records[-1].getMessage()


@pytest.mark.req("FR-041-31")
def test_a_call_that_never_failed_is_logged_at_debug(heard):
    """So that it can be seen where everything is."""
    assert heard(lambda: 1) == [("DEBUG", "call_succeeded")]


def test_a_policy_chooses_the_level_of_its_retries(heard):
    """`log_level` is for the scheduled retry alone."""
    levels = dict(
        map(reversed, heard(scripted(OSError(11, ""), 1), POLICY.replace(log_level="INFO")))
    )
    assert levels["retry_attempt"] == "INFO"
    assert levels["attempt_failed"] == "DEBUG"


def test_nothing_is_made_for_a_level_that_is_off(caplog):
    """With DEBUG off, a first success makes no record and a retry only its own."""
    caplog.set_level(logging.WARNING, "mainstay")
    with virtual_time():
        engine = Engine(policies=[POLICY])
        engine.call("api", int, "1")
        engine.call("api", scripted(ConnectionError("down"), "up"))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_logger_of_ones_own(caplog):
    """By name or as an object."""
    for logger in ("my.retries", logging.getLogger("my.retries")):
        caplog.clear()
        with virtual_time():
            engine = Engine(policies=[POLICY], sinks=[LoggingSink(logger)])
            engine.call("api", scripted(ConnectionError("down"), "up"))
        assert {record.name for record in caplog.records} == {"my.retries"}


@pytest.mark.parametrize("name", sorted(events.CATALOGUE))
def test_every_event_has_a_level_and_a_sentence(name):
    """A new event is not forgotten here: it says more than its name, or just that."""
    event = events.CATALOGUE[name](operation="api")
    assert level_of(event) in (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR)
    assert sentence(event).startswith("api: ")
