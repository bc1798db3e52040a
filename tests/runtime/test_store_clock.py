"""A store's clock as a process sees it, beside the clocks of the machine that are never set."""

import sys
from pathlib import Path

import pytest

from mainstay.core.base.clock_jumps import ClockView, Jump
from mainstay.runtime import store_clock
from mainstay.runtime.store_clock import StoreClock, boot, clock_of
from mainstay.testing import virtual_time

DAY = 86_400.0
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="there is no boot id")


class Steady:
    """A clock that is never set, moved by hand."""

    def __init__(self):
        self.now = 50.0

    def __call__(self):
        return self.now


@pytest.fixture
def steady():
    return Steady()


@pytest.fixture
def watched(steady):
    watched = StoreClock("postgresql://host/db")
    watched._steady = steady
    watched.look(1000.0)
    return watched


def test_a_clock_that_goes_on_has_not_jumped(watched, steady):
    """Nor has one that drifts, for however long it is watched."""
    for second in range(0, 100_000, 50):
        steady.now = 50.0 + second
        assert watched.look(1000.0 + second * 1.0005).jumps == ()
    assert watched.before_jumps(1000.0 + second * 1.0005) == 1000.0 + second * 1.0005


def test_a_jump_ahead_is_seen_at_the_next_step_and_counted_off_for_purging(watched, steady):
    """What purges goes by the time that would be; a setting back takes it back."""
    steady.now += 10.0
    assert watched.look(1010.0 + DAY).jumps == (Jump(1010.0, DAY),)
    steady.now += 10.0
    assert watched.before_jumps(1020.0 + DAY) == 1020.0
    assert watched.look(1020.0).jumps == ()


def test_a_clock_that_was_set_is_reported_once(watched, steady, caplog):
    """By how much, ahead or back; a server that answers late is not reported."""
    steady.now += 5.0
    watched.look(1000.0 + 2.0)
    watched.look(1000.0 + 5.0 + DAY)
    watched.look(1000.0 + 5.0 + DAY)
    watched.look(1000.0 + 5.0)
    assert [each.getMessage() for each in caplog.records] == [
        "the clock of postgresql://host/db was set +86403 s",
        "the clock of postgresql://host/db was set -86400 s",
    ]


def test_a_slow_answer_is_forgotten_with_the_next_quick_one(watched, steady):
    """The time of a server that took three seconds to answer looks set back, and then ahead."""
    for _ in range(5):
        steady.now += 10.0
        watched.look(950.0 + steady.now - 3.0)
        steady.now += 10.0
        assert len(watched.look(950.0 + steady.now).jumps) == 1


def test_the_steps_of_one_transaction_share_one_look(steady):
    """They pass one reading, the same object; an equal one is another reading."""
    watched = StoreClock("sqlite:///kept.db")
    watched._boot, watched._steady = "here", steady
    moment = float("1000.5")
    seen = watched.look(moment)
    steady.now += 1.0
    assert watched.look(moment) is seen
    assert watched.look(float("1000.5")).uptime == seen.uptime + 1.0


def test_virtual_time_is_no_clock_that_is_set():
    """A store in memory has the process's clock, which a test may replace at will."""
    own = clock_of("memory://")
    own.look(1e9)
    with virtual_time(start=0.0):
        assert own.look(5.0) == ClockView()
    assert own.look(1e9).jumps == ()


@pytest.mark.parametrize("url", ["postgresql://host/db", "redis://host", "memory://"])
def test_a_machine_that_slept_takes_no_clock_for_one_that_was_set(machine, url):
    """The store's clock went on meanwhile: nothing was gained that it should not have."""
    watched = clock_of(url)
    watched.look(1000.0)
    machine.sleep(DAY)
    assert watched.look(1000.0 + DAY).jumps == ()


@needs_linux
def test_a_store_on_this_machine_is_watched_by_the_uptime():
    """Every process of the machine has the same boot, and an uptime that counts from it."""
    first, second = clock_of("sqlite:///a.db").look(0.0), clock_of("sqlite:///b.db").look(0.0)
    assert first.boot == second.boot == boot() != ""
    assert 0.0 < first.uptime <= second.uptime
    assert second.is_same_boot(first.boot, first.uptime)
    assert clock_of("redis://host").look(0.0) == ClockView()


@pytest.mark.parametrize("missing", ["boot_id", "nothing"])
def test_without_a_boot_id_the_stores_clock_is_all_there_is(monkeypatch, missing):
    """Where the system has none, as on macOS and Windows."""

    class Elsewhere(type(Path())):
        def read_text(self, *args, **kwargs):
            if missing in str(self):
                raise FileNotFoundError(str(self))
            return "0123456789abcdef"

        def is_symlink(self):
            return False

    monkeypatch.setattr(store_clock, "Path", Elsewhere)
    boot.cache_clear()
    try:
        assert boot() == ("" if missing == "boot_id" else "01234567cdef.")
    finally:
        boot.cache_clear()
