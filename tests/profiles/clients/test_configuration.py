"""The client front door: the configuration's fields, defaults and five rules."""

from __future__ import annotations

import dataclasses

import pytest

from mainstay import Backoff, Jitter, PolicyError
from mainstay.profiles.clients import RetryConfiguration
from mainstay.testing import scripted, virtual_time


@pytest.mark.req("CL-01")
def test_the_fields_and_defaults_are_the_documents():
    """5 attempts, 1 s, 30 s, base 2, jitter 1 s; in that order."""
    values = {f.name: f.default for f in dataclasses.fields(RetryConfiguration)}
    assert list(values) == [
        "max_attempts", "base_delay", "max_delay", "exponential_base", "jitter",
        "retry_on_exceptions", "ignore_on_exceptions", "log_level", "before_retry_hook",
        "after_retry_hook",
    ]  # fmt: skip
    assert list(values.values())[:5] == [5, 1.0, 30.0, 2.0, 1.0]
    assert values["log_level"] == "WARNING"


@pytest.mark.req("CL-01")
@pytest.mark.parametrize(
    ("wrong", "allowed"),
    [
        ({"max_attempts": 0}, "max_attempts = 0: must be an integer of at least 1"),
        ({"max_attempts": True}, "max_attempts = True: must be an integer of at least 1"),
        ({"base_delay": -0.1}, "base_delay = -0.1: must be at least 0"),
        ({"max_delay": 0.5}, "max_delay = 0.5: must be at least base_delay, 1"),
        ({"exponential_base": 0.9}, "exponential_base = 0.9: must be at least 1.0"),
        ({"jitter": -1.0}, "jitter = -1.0: must be at least 0"),
        ({"jitter": float("nan")}, "jitter = nan: must be at least 0"),
        ({"log_level": "LOUD"}, "log_level = 'LOUD': must be one of"),
        ({"before_retry_hook": 3}, "before_retry_hook = 3: must be a function"),
    ],
)
def test_each_rule_has_a_clear_error(wrong, allowed):
    """The field, the value and what is allowed, when the configuration is made."""
    with pytest.raises(PolicyError) as caught:
        RetryConfiguration(**wrong)
    assert allowed in str(caught.value)


@pytest.mark.req("CL-01")
def test_all_wrong_values_are_reported_at_once():
    """Ten mistakes, ten lines, each under the document's name."""
    wrong = {
        "max_attempts": 0, "base_delay": -1, "max_delay": -1, "exponential_base": 0, "jitter": -1,
        "retry_on_exceptions": 3, "ignore_on_exceptions": (int,), "log_level": "LOUD",
        "before_retry_hook": 3, "after_retry_hook": 4,
    }  # fmt: skip
    with pytest.raises(PolicyError) as caught:
        RetryConfiguration(**wrong)
    assert sorted(problem.field for problem in caught.value.problems) == sorted(wrong)


@pytest.mark.req("CL-01")
def test_the_policy_has_the_configurations_values():
    """Exponential with additive jitter, capped; hooks and level handed on."""
    seen = []
    configuration = RetryConfiguration(before_retry_hook=seen.append, log_level="INFO")
    policy = configuration.policy("s3")
    assert policy.name == "s3"
    assert policy.backoff == Backoff.exponential(1.0, factor=2.0, max_delay=30.0)
    assert policy.jitter == Jitter.additive(1.0)
    assert policy.log_level == "INFO"
    with virtual_time():
        assert policy.call(scripted(aws("ThrottlingException"), "done")) == "done"
    assert [info.attempt for info in seen] == [1]


def aws(code):
    error = RuntimeError(code)
    error.response = {"Error": {"Code": code}}
    return error


def http(status):
    error = RuntimeError(str(status))
    error.status_code = status
    return error


@pytest.mark.parametrize(
    ("error", "is_retried"),
    [
        (aws("ThrottlingException"), True),
        (aws("InternalError"), True),
        (aws("NoSuchKey"), False),
        (aws("AccessDeniedException"), False),
        (http(503), True),
        (http(429), True),
        (http(404), False),
        (ValueError("bad"), False),
    ],
)
def test_what_is_retried_by_default(error, is_retried):
    """Throttling and the server's own errors; not what the caller did wrong."""
    assert RetryConfiguration().policy().classification(error).retryable is is_retried
