"""What hooks are told."""

import pickle

import pytest

from mainstay.core.known.kind import Kind
from mainstay.core.retry.hooks import CallHook, RetryInfo


@pytest.mark.req("FR-041-13")
def test_a_hook_is_told_of_the_retry_and_can_change_nothing():
    """Operation, attempt, limit, delay and failure; no arguments and no result, and all frozen."""
    failure = ConnectionError()
    info = RetryInfo("fetch", 2, 3, 0.5, failure, Kind.TRANSIENT, "why")
    assert RetryInfo._fields() == (
        "attempt", "delay", "exception", "kind", "max_attempts", "operation", "reason",
    )  # fmt: skip
    assert (info.operation, info.attempt, info.max_attempts, info.delay) == ("fetch", 2, 3, 0.5)
    assert (info.exception, info.kind, info.reason) == (failure, Kind.TRANSIENT, "why")
    with pytest.raises(AttributeError, match="RetryInfo is frozen"):
        info.delay = 0.0


def test_a_success_has_no_failure():
    """After a retry that succeeded there is no exception, no kind and no reason."""
    info = RetryInfo("fetch", 2, 3, 0.5)
    assert (info.exception, info.kind, info.reason) == (None, None, "")


def test_what_a_hook_is_told_can_be_kept():
    """It compares, and travels between processes."""
    info = RetryInfo("fetch", 2, 3, 0.5, None, Kind.TIMEOUT, "why")
    assert pickle.loads(pickle.dumps(info)) == info
    assert info != RetryInfo("fetch", 3, 3, 0.5, None, Kind.TIMEOUT, "why")


def test_the_effect_names_the_hook():
    """A driver that reports a hook which raised must know which it was."""
    info = RetryInfo("fetch", 1, 3, 0.5)
    effect = CallHook("before_retry", print, info)
    assert (effect.name, effect.hook, effect.info) == ("before_retry", print, info)
