"""A sample of every cell of `make crash`: each fault on each store, checked by the same oracle."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest

from tests.crash.faults import CELLS, LEASE
from tests.crash.faults.checker import PROPERTIES, Evidence, check
from tests.crash.faults.clock import Clock
from tests.crash.faults.oracle import Line
from tests.crash.faults.trial import Cell

SEED = 3


@pytest.mark.timeout(180)
@pytest.mark.parametrize(("fault", "store"), CELLS, ids=[":".join(cell) for cell in CELLS])
def test_no_property_is_violated_under_a_fault(fault, store):
    """Each fault on each store leaves one outcome for a key, and nothing half done."""
    with Cell(fault, store, SEED) as cell:
        report = cell.run(0, most=1, is_sample=True)
    assert report.violations == []
    assert report.executions > 0


WAIT = """
import ctypes, time
libc = ctypes.CDLL(None)
rule, condition, mutex = (ctypes.create_string_buffer(256) for _ in range(3))
libc.pthread_condattr_init(rule)
libc.pthread_condattr_setclock(rule, time.CLOCK_MONOTONIC)
libc.pthread_cond_init(condition, rule)
libc.pthread_mutex_lock(mutex)
ends = time.clock_gettime_ns(time.CLOCK_MONOTONIC) + 200_000_000
until = (ctypes.c_long * 2)(*divmod(ends, 10**9))
print(libc.pthread_cond_timedwait(condition, mutex, until))
print(time.clock_gettime_ns(time.CLOCK_MONOTONIC) >= ends)
"""


@pytest.mark.parametrize("offset", [3600, -86_400])
def test_a_wait_on_the_monotonic_clock_lasts_while_the_wall_clock_is_set(tmp_path, offset):
    """Python's threads wait so for the interpreter: each would interrupt the others at once."""
    clock = Clock(tmp_path)
    clock.set(offset)
    done = subprocess.run(
        [sys.executable, "-c", WAIT], env={**os.environ, **clock.environment},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == [str(errno.ETIMEDOUT), "True"]


# --- the checker can fail -------------------------------------------------------------------------


def lines(*events):
    """Lines of an oracle, 0.1 s apart: (what, pid, key, value, more)."""
    return [Line(what, number / 10, pid, *rest) for number, (what, pid, *rest) in enumerate(events)]


def found(*events, recovery=None):
    """The properties that are violated by a load, if each round of the recovery sees this."""
    load = lines(*events)
    keys = {line.key for line in load if line.what == "asked"}
    last = {line.key: line for line in load if line.what in ("saw", "raised")}
    seen = recovery or [Line("saw", 99.0, 9, key, last[key].value) for key in sorted(keys)]
    begin = Line("round", 99.0, 9)
    return sorted({name for name, _ in check(Evidence([*load, begin, *seen, begin, *seen]))})


ASKED = ("asked", 1, "k", "", "short")
SLOW = ("slow", 9, "", "", "0.3")
RUN = (("began", 1, "k"), ("ended", 1, "k", "v"), ("saw", 1, "k", "v"))


def test_a_trial_without_a_fault_violates_nothing():
    """The checker has nothing against calls that went well."""
    assert found(ASKED, *RUN, ("asked", 2, "k", "", "short"), ("saw", 2, "k", "v")) == []


@pytest.mark.parametrize(
    ("name", "events"),
    [
        ("one_outcome", [ASKED, *RUN, ("ended", 2, "k", "w"), ("saw", 2, "k", "w")]),
        ("real_outcome", [ASKED, ("began", 1, "k"), ("ended", 1, "k", "v"), ("saw", 1, "k", "x")]),
        ("not_again", [ASKED, *RUN, ("began", 2, "k"), ("ended", 2, "k", "v")]),
        ("one_at_a_time", [ASKED, ("began", 2, "k"), *RUN, ("ended", 2, "k", "v")]),
        (
            "unsafe_once",
            [("asked", 1, "k", "", "unsafe"), ("began", 2, "k"), ("gone", 2), *RUN],
        ),
        ("documented_errors", [ASKED, ("raised", 1, "k", "DatabaseError", "malformed"), *RUN]),
        ("unknown_in_inbox", [ASKED, ("raised", 1, "k", "OutcomeUnknown", "no item"), *RUN]),
    ],
)
def test_the_checker_finds_each_violation(name, events):
    """Every property can fail, and does for what it forbids."""
    assert found(*events) == [name]


@pytest.mark.parametrize("error", ["Conflict", "StoreUnavailable"])
def test_a_key_that_does_not_come_to_an_end_is_found(error):
    """After recovery only an outcome or OutcomeUnknown is an end."""
    after = [Line("raised", 99.0, 9, "k", error, "in use")]
    assert found(ASKED, ("raised", 1, "k", "Conflict"), recovery=after) == ["comes_to_an_end"]


def test_a_process_that_was_stopped_past_its_lease_may_be_overtaken():
    """An overlap is no violation if the first process was stopped, or the store was down."""
    twice = [("began", 1, "k"), ("began", 2, "k"), ("ended", 2, "k", "v"), ("saw", 2, "k", "v")]
    late = [("ended", 1, "k", "w"), ("raised", 1, "k", "LeaseLost")]
    assert found(ASKED, *twice, *late, recovery=[Line("saw", 99.0, 9, "k", "v")]) == [
        "one_at_a_time"
    ]
    stops = (
        (("paused", 1), ("resumed", 1), "fault"),
        (("down", 0), ("up", 0), "fault"),
        (("x", 0), SLOW, "machine"),
    )
    for stop, go_on, why in stops:
        waits = [("asked", 3, "k", "", "short")] * int(10 * LEASE)
        events = [ASKED, twice[0], stop, *waits, *twice[1:], go_on, *late]
        assert found(*events, recovery=[Line("saw", 99.0, 9, "k", "v")]) == []
        assert +Evidence(lines(*events)).excused() == {why: 1}, "each excuse is counted"


def test_a_function_that_was_entered_before_its_process_stood_still_did_not_run_again():
    """Its line comes after the outcome of another; what counts is when it was entered."""
    waits = [("asked", 3, "k", "", "short")] * int(10 * LEASE)
    events = lines(ASKED, ("paused", 1), *waits, ("began", 2, "k"), ("ended", 2, "k", "v"))
    events += [Line("saw", 5.0, 2, "k", "v"), Line("resumed", 5.1, 1)]
    late = [Line("ended", 5.3, 1, "k", "w"), Line("raised", 5.4, 1, "k", "LeaseLost")]
    after = [Line("round", 99.0, 9), Line("saw", 99.0, 9, "k", "v")] * 2

    def judged(entered):
        began = Line("began", entered, 1, "k")
        evidence = Evidence([*events, began, *late, *after])
        return [name for name, _ in check(evidence)], evidence.excused()["late line"]

    assert judged(entered=0.05) == ([], 1)
    assert judged(entered=5.2) == (["not_again"], 0)


def test_every_property_of_the_checker_is_in_the_table():
    """The table counts what the checker can find, and what a trial adds."""
    assert len(set(PROPERTIES)) == len(PROPERTIES) == 10
