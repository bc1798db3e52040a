"""The three log records of the effects document: level, words, and exactly its fields."""

import json
import logging
from uuid import UUID

import pytest

from mainstay.profiles.effects import (
    log_compensation_action,
    log_retry_attempt,
    log_retry_exhausted,
)

WHO = UUID("12345678-1234-5678-1234-567812345678")
USUAL = set(vars(logging.makeLogRecord({}))) | {"message", "taskName"}


@pytest.fixture
def logged(caplog):
    """The one record that was logged: level, message and the fields of its own."""
    caplog.set_level(logging.INFO, logger="mainstay.profiles.effects")

    def last():
        (record,) = caplog.records
        own = {name: value for name, value in vars(record).items() if name not in USUAL}
        return record.levelname, record.getMessage(), own

    return last


@pytest.mark.req("EF-13.attempt")
def test_a_retry_is_logged_with_the_documents_fields(logged):
    """Attempts are counted from 0 by the caller, and from 1 in the record."""
    log_retry_attempt("database", 1, 3, 2.345, TimeoutError("no reply"), WHO)
    assert logged() == (
        "WARNING",
        "Retrying database operation (attempt 2/3) after 2.35s delay",
        {
            "effect_type": "database",
            "attempt": 2,
            "max_attempts": 3,
            "delay_seconds": 2.345,
            "error_type": "TimeoutError",
            "correlation_id": str(WHO),
        },
    )


@pytest.mark.req("EF-13.exhausted")
def test_exhaustion_is_logged_with_the_documents_fields(logged):
    """The text of the error is a field, and not in the message."""
    log_retry_exhausted("kafka", 3, 12.5, ConnectionError("broker away"), WHO)
    assert logged() == (
        "ERROR",
        "All retry attempts exhausted for kafka after 3 attempts (12.50s total)",
        {
            "effect_type": "kafka",
            "max_attempts": 3,
            "total_time_seconds": 12.5,
            "error_type": "ConnectionError",
            "error_message": "broker away",
            "correlation_id": str(WHO),
        },
    )


@pytest.mark.req("EF-13.compensation")
@pytest.mark.parametrize(
    ("success", "level", "word"), [(True, "INFO", "succeeded"), (False, "ERROR", "failed")]
)
def test_a_compensation_is_logged_with_the_documents_fields(logged, success, level, word):
    """At INFO where it succeeded, at ERROR where it did not."""
    log_compensation_action("database", "delete_user", success, WHO)
    assert logged() == (
        level,
        f"Compensation {word} for database: delete_user",
        {
            "effect_type": "database",
            "compensation_action": "delete_user",
            "compensation_success": success,
            "correlation_id": str(WHO),
        },
    )


@pytest.mark.req("EF-13.exhausted")
def test_no_secret_of_an_error_is_logged(logged, caplog):
    """Of its text nothing but the field is left, and that without what nobody may read."""
    error = ConnectionError("no route to postgresql://ann:hunter2@db/shop")
    log_retry_exhausted("database", 3, 1.0, error, WHO)
    _, message, own = logged()
    assert own["error_message"].startswith("no route to postgresql://ann:")
    assert "hunter2" not in message + json.dumps(own)
    caplog.clear()
    log_retry_attempt("database", 0, 3, 1.0, error, WHO)
    _, message, own = logged()
    assert "route" not in message + json.dumps(own)


@pytest.mark.req("EF-13.exhausted")
def test_an_error_that_cannot_be_shown_is_logged_all_the_same(logged):
    """By its type."""

    class Broken(Exception):
        def __str__(self):
            raise RuntimeError

    log_retry_exhausted("vault", 3, 1.0, Broken(), WHO)
    assert (logged()[2]["error_type"], logged()[2]["error_message"]) == ("Broken", "")
