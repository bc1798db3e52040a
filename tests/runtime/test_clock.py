"""The process's clock: its three readings, and what takes its place."""

import sys
import time

import pytest

import mainstay.runtime.clock as clock
from mainstay.runtime.clock import SystemClock, steady_clock
from mainstay.testing import virtual_time


@pytest.mark.skipif(sys.platform != "linux", reason="the name of the clock is that of Linux")
def test_the_steady_clock_counts_what_the_machine_slept():
    """CLOCK_BOOTTIME is CLOCK_MONOTONIC and that time, which it may be since the machine began."""
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= SystemClock().steady() <= time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.parametrize(
    ("platform", "name"),
    [
        ("linux", "CLOCK_BOOTTIME"),
        ("darwin", "CLOCK_MONOTONIC_RAW"),
        ("win32", None),
        ("freebsd14", None),
    ],
)
def test_each_system_has_its_own_name_for_the_clock_that_goes_on(monkeypatch, platform, name):
    """Without any, it is that of `time.monotonic()`: on Windows that goes on while it sleeps."""
    for each in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW"):
        monkeypatch.delattr(time, each, raising=False)
    if name is not None:
        monkeypatch.setattr(time, name, 77, raising=False)
        monkeypatch.setattr(time, "clock_gettime", float, raising=False)
    chosen = steady_clock(platform)
    assert (chosen is time.monotonic) if name is None else (chosen() == 77.0)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_system_that_has_the_name_and_not_the_clock_has_another(monkeypatch, platform):
    """As WebAssembly has it: no lease could be taken, nor mainstay be loaded with SQLite."""

    def refused(number):
        raise OSError(22, "Invalid argument")

    for each in ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC_RAW"):
        monkeypatch.setattr(time, each, 77, raising=False)
    monkeypatch.setattr(time, "clock_gettime", refused, raising=False)
    assert steady_clock(platform) is time.monotonic


def test_a_clock_that_is_installed_measures_leases_too():
    """One that knows no sleep of the machine does so by its monotonic reading."""

    class Still:
        def monotonic(self):
            return 5.0

    with virtual_time() as virtual:
        virtual.suspend(60.0)
        assert clock.steady() - virtual.monotonic() == 60.0
        before = clock.install(Still())
        try:
            assert clock.steady() == 5.0
        finally:
            clock.install(before)
        assert clock.steady() - virtual.monotonic() == 60.0
    assert clock.steady == clock.SYSTEM.steady
