"""The slices of a buffer's thread: other threads get their turn while it works."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import AuditLog
from mainstay.sinks.delivery.slices import LONG, SHORT, Slices


class Time:
    """A clock that moves when it is told to; a pause takes as long as others use it."""

    def __init__(self):
        self.now = 0.0
        self.used = 0.0
        self.pauses = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds, _cancel=None):
        assert seconds > 0.0  # with 0.0 the same thread has the lock again
        self.pauses.append(self.now)
        self.now += max(self.used, 0.00006)
        return False


@given(st.lists(st.floats(0.0, 0.01), max_size=50), st.sampled_from([0.0, 0.001]))
def test_no_slice_is_longer_than_the_longest(steps, used):
    """A thread that looks has paused since, or does so now."""
    time = Time()
    time.used = used
    slices = Slices(time)
    slices.begin()
    free = 0.0
    for step in steps:
        time.now += step
        paused = len(time.pauses)
        slices.pause()
        free = time.now if len(time.pauses) > paused else free
        assert time.now - free < LONG


def test_a_pause_that_another_thread_uses_is_followed_by_a_short_slice():
    """And one that nobody needs by a longer one, up to a limit: a writer alone is not slowed."""
    time = Time()
    slices = Slices(time)
    slices.begin()
    lengths = []
    for used in (0.0, 0.0, 0.0, 0.002, 0.0):
        time.used = used
        before, began = len(time.pauses), time.now
        while len(time.pauses) == before:
            time.now += 0.000_01
            slices.pause()
        lengths.append(time.pauses[-1] - began)
    assert lengths == pytest.approx([SHORT, LONG, LONG, LONG, SHORT], abs=0.000_02)


def test_a_thread_that_has_waited_begins_a_slice():
    """What comes after a rest is delivered at once."""
    time = Time()
    slices = Slices(time)
    time.now = 100.0
    slices.begin()
    slices.pause()
    assert not time.pauses


def test_the_writer_of_an_audit_log_makes_pauses_while_it_computes(tmp_path, monkeypatch):
    """For each call whose events it makes, and several times while it encodes a batch."""
    log = AuditLog(tmp_path / "audit.jsonl", spill=False)
    policy = RetryPolicy(name="op", max_attempts=3, backoff=Backoff.constant(0.0))
    engine = Engine(policies=[policy], sinks=[log])
    call = engine.operation("op").call
    expect_failure(call)  # which settles the type
    assert log.flush(60)
    looks = []
    monkeypatch.setattr(Slices, "pause", lambda _: looks.append(1))
    with log._buffer._delivering:
        for _ in range(200):
            expect_failure(call)
    assert log.flush(60)
    engine.close()
    assert len(looks) >= 200 + 200 * 6 // 250


def expect_failure(call):
    with pytest.raises(ConnectionError):
        call(fail)


def fail():
    raise ConnectionError("down")
