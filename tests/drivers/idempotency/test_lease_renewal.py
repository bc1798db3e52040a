"""Leases are renewed at a third of their length, and forgotten when they are stopped."""

import gc
import os
import threading
import time
import weakref
from types import SimpleNamespace

import pytest

from mainstay.core.retry.deadline import NEVER
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL, LeaseRenewal


@pytest.fixture
def renewal():
    """The only one there is, so that no test leaves a thread of its own."""
    return LEASE_RENEWAL


def wait_until(condition):
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


def test_a_lease_is_renewed_again_and_again(renewal):
    """Until it is stopped; then no more."""
    renewals = []
    renewed = renewal.start(0.06, lambda: renewals.append(time.monotonic()))
    wait_until(lambda: len(renewals) >= 3)
    renewed.stop()
    number = len(renewals)
    time.sleep(0.08)
    assert len(renewals) <= number + 1, "one that was under way may end"


def test_a_renewal_that_fails_is_tried_again(renewal):
    """A store that is unavailable for a moment costs no lease."""
    renewals = []

    def renew():
        renewals.append(1)
        raise OSError("unavailable")

    renewed = renewal.start(0.06, renew)
    wait_until(lambda: len(renewals) >= 2)
    renewed.stop()


def test_a_short_lease_is_not_kept_waiting_by_a_long_one(renewal):
    """Whoever comes later and is due sooner goes first."""
    long, short = [], []
    first = renewal.start(3600.0, lambda: long.append(1))
    second = renewal.start(0.06, lambda: short.append(1))
    wait_until(lambda: len(short) >= 2)
    first.stop()
    second.stop()
    assert long == []


def test_what_is_stopped_is_forgotten_at_once(renewal):
    """A lease of a day must not keep each call that ever had one in memory for eight hours."""

    class Call:
        def renew(self):
            """Nothing."""

    before = _all_of(renewal)
    calls = [Call() for _ in range(100)]
    seen = [weakref.ref(call) for call in calls]
    for call in calls:
        renewal.start(86_400.0, call.renew).stop()
    del call
    calls.clear()
    wait_until(lambda: not _still_there(seen))  # the thread may just be looking at one
    assert _all_of(renewal) == before


def test_empty_queues_are_removed_when_the_thread_looks(renewal):
    """However many lengths of leases there were."""
    for number in range(50):
        renewal.start(3600.0 + number, lambda: None).stop()
    renewed = renewal.start(0.06, lambda: None)
    wait_until(lambda: len(renewal._queues) <= 2)
    renewed.stop()
    assert len(renewal._queues) <= 2


def test_stopping_twice_and_while_it_is_renewed_is_stopping(renewal):
    """A call may end while its renewal is under way."""
    inside, go_on, renewals = threading.Event(), threading.Event(), []

    def renew():
        renewals.append(1)
        inside.set()
        go_on.wait(30.0)

    renewed = renewal.start(0.06, renew)
    assert inside.wait(30.0)
    renewed.stop()
    renewed.stop()
    go_on.set()
    wait_until(lambda: renewal._thread.is_alive() and not renewal._queues)
    time.sleep(0.05)
    assert renewals == [1]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_renews_nothing_of_its_parents(renewal):
    """Else a lease would outlive the process that holds it, for as long as a child lives."""
    renewed = renewal.start(3600.0, lambda: None)
    pid = os.fork()
    if pid == 0:
        renewals = threading.Event()
        own = LEASE_RENEWAL.start(0.06, renewals.set)
        is_right = (
            renewals.wait(30.0)
            and len(LEASE_RENEWAL._queues) <= 1
            and renewed not in _all_of(LEASE_RENEWAL)
        )
        own.stop()
        os._exit(0 if is_right else 1)
    renewed.stop()
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _still_there(references):
    gc.collect()
    return [each for each in references if each() is not None]


def _all_of(renewal):
    with renewal._lock:
        return [renewed for queue in renewal._queues.values() for renewed in queue]


def test_a_renewal_without_leases_has_no_thread():
    """It is started with the first of them."""
    assert LeaseRenewal()._thread is None


def test_leases_that_end_before_the_thread_runs_wake_it_once():
    """On a busy machine, calls are quicker than the thread: not each of them must wake it."""
    renewal, woken = LeaseRenewal(), []
    renewal._thread = SimpleNamespace(is_alive=lambda: True)
    renewal._changed = SimpleNamespace(notify=lambda: woken.append(1))
    for _ in range(5):
        renewal.start(30.0, lambda: None).stop()
    assert len(woken) == 1
    renewal.start(3.0, lambda: None)
    assert len(woken) == 2, "it is due before the thread would look"


def test_a_thread_that_finds_no_lease_looks_again_when_it_was_to():
    """And then rests: a lease that comes after that wakes it."""
    renewal = LeaseRenewal()
    renewal._wakes_at = 110.0
    assert renewal._next_wake_locked(None, now=100.0) == 110.0
    assert renewal._next_wake_locked(105.0, now=100.0) == 105.0
    assert renewal._next_wake_locked(None, now=110.0) == NEVER
