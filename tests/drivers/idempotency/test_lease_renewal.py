"""The heart: leases are renewed at a third of their length, and forgotten when they are stopped."""

import gc
import os
import threading
import time
import weakref

import pytest

from mainstay.drivers.idempotency.lease_renewal import HEART, LeaseRenewal


@pytest.fixture
def heart():
    """The only one there is, so that no test leaves a thread of its own."""
    return HEART


def wait_until(condition):
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def test_a_lease_is_renewed_again_and_again(heart):
    """Until it is stopped; then no more."""
    beats = []
    beat = heart.beat(0.06, lambda: beats.append(time.monotonic()))
    wait_until(lambda: len(beats) >= 3)
    beat.stop()
    number = len(beats)
    time.sleep(0.08)
    assert len(beats) <= number + 1, "one that was under way may end"


def test_a_renewal_that_fails_is_tried_again(heart):
    """A store that is away for a moment costs no lease."""
    beats = []

    def renew():
        beats.append(1)
        raise OSError("away")

    beat = heart.beat(0.06, renew)
    wait_until(lambda: len(beats) >= 2)
    beat.stop()


def test_a_short_lease_is_not_kept_waiting_by_a_long_one(heart):
    """Whoever comes later and is due sooner goes first."""
    long, short = [], []
    first = heart.beat(3600.0, lambda: long.append(1))
    second = heart.beat(0.06, lambda: short.append(1))
    wait_until(lambda: len(short) >= 2)
    first.stop()
    second.stop()
    assert long == []


def test_what_is_stopped_is_forgotten_at_once(heart):
    """A lease of a day must not keep each call that ever had one in memory for eight hours."""

    class Call:
        def renew(self):
            """Nothing."""

    before = _all_of(heart)
    calls = [Call() for _ in range(100)]
    seen = [weakref.ref(call) for call in calls]
    for call in calls:
        heart.beat(86_400.0, call.renew).stop()
    del call
    calls.clear()
    wait_until(lambda: not _still_there(seen))  # the thread may just be looking at one
    assert _all_of(heart) == before


def test_empty_lanes_are_closed_when_the_thread_looks(heart):
    """However many lengths of leases there were."""
    for number in range(50):
        heart.beat(3600.0 + number, lambda: None).stop()
    beat = heart.beat(0.06, lambda: None)
    wait_until(lambda: len(heart._lanes) <= 2)
    beat.stop()
    assert len(heart._lanes) <= 2


def test_stopping_twice_and_while_it_is_renewed_is_stopping(heart):
    """A call may end while its renewal is under way."""
    inside, go_on, beats = threading.Event(), threading.Event(), []

    def renew():
        beats.append(1)
        inside.set()
        go_on.wait(30.0)

    beat = heart.beat(0.06, renew)
    assert inside.wait(30.0)
    beat.stop()
    beat.stop()
    go_on.set()
    wait_until(lambda: heart._thread.is_alive() and not heart._lanes)
    time.sleep(0.05)
    assert beats == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_renews_nothing_of_its_parents(heart):
    """Else a lease would outlive the process that holds it, for as long as a child lives."""
    beat = heart.beat(3600.0, lambda: None)
    pid = os.fork()
    if pid == 0:
        beats = threading.Event()
        own = HEART.beat(0.06, beats.set)
        is_right = beats.wait(30.0) and len(HEART._lanes) <= 1 and beat not in _all_of(HEART)
        own.stop()
        os._exit(0 if is_right else 1)
    beat.stop()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _still_there(references):
    gc.collect()
    return [each for each in references if each() is not None]


def _all_of(heart):
    with heart._lock:
        return [beat for lane in heart._lanes.values() for beat in lane]


def test_a_heart_without_leases_has_no_thread():
    """It is started with the first of them."""
    assert LeaseRenewal()._thread is None
