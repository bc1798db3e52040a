"""Leases are renewed at a third of their length, store by store, until they are forgotten."""

import gc
import os
import threading
import time
import weakref
from types import SimpleNamespace

import pytest

from mainstay.core.base.deadline import NEVER
from mainstay.core.idempotency.record import Done, Lost
from mainstay.deadline import remaining
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL, Lease, LeaseRenewal
from mainstay.errors import StoreUnavailable
from tests.processes import at_some_speed

SHORT = 0.06


@pytest.fixture
def renewal():
    """The only one there is, so that no test leaves a thread of its own."""
    return LEASE_RENEWAL


class Kept:
    """A store that renews; what it answers, and when, is the test's."""

    def __init__(self, answer=Done()):  # noqa: B008 -- it is never changed
        self.batches, self.patience, self.answer = [], [], answer
        self.go_on = threading.Event()
        self.go_on.set()
        self.asked = threading.Event()

    def transact(self, space, key, decide):
        raise AssertionError("many at once, where the store can")

    def transact_many(self, steps):
        self.batches.append([key for _, key, _ in steps])
        self.patience.append(remaining())
        self.asked.set()
        assert self.go_on.wait(30.0)
        if isinstance(self.answer, Exception):
            raise self.answer
        return [self.answer] * len(steps)

    def count(self, key):
        return sum(key in batch for batch in self.batches)


class Call:
    """What has a lease."""

    def __init__(self, store, key="k"):
        self.store, self.key, self.reports = store, key, []

    def renewing(self):
        return self.store, ("records", self.key, None)

    def lease_ran_out(self, *, is_taken):
        self.reports.append(is_taken)


@pytest.fixture
def lease_of(renewal):
    """Starts leases, which end with the test."""
    started = []

    def lease_of(call, length=SHORT, left=None):
        now = time.monotonic()
        lease = Lease(call, length, now + (length if left is None else left))
        started.append(lease)
        renewal.start(lease, 0.0 if left is None else length - left)
        return lease

    yield lease_of
    for lease in started:
        if isinstance(lease.call, Call):
            lease.call.store.go_on.set()
        renewal.forget(lease)


def wait_until(condition):
    end = time.monotonic() + 30.0
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.002)


# --- again and again ------------------------------------------------------------------------------


def test_a_lease_is_renewed_until_it_is_forgotten(renewal, lease_of):
    """Then no more."""
    store = Kept()
    lease = lease_of(Call(store))
    wait_until(lambda: len(store.batches) >= 5)  # one that was not renewed is over by then
    wait_until(lambda: lease.until > time.monotonic())
    renewal.forget(lease)
    number = len(store.batches)
    time.sleep(0.08)
    assert len(store.batches) <= number + 1, "one that was under way may end"
    assert lease.until == -NEVER


def test_a_renewal_that_fails_is_tried_again_before_the_lease_ends(lease_of):
    """A store that is unavailable for a moment costs no lease."""
    store = Kept(StoreUnavailable("kept://", "write", "it is away"))
    call = Call(store)
    lease = lease_of(call, 24.0, left=8.0)
    wait_until(lambda: len(store.batches) >= 2)
    store.answer = Done()
    wait_until(lambda: lease.until > time.monotonic() + 10.0)
    assert call.reports == []


@pytest.fixture
def no_thread(monkeypatch):
    """The names of threads that cannot be started, each once."""
    start, names = threading.Thread.start, []

    def refuse(thread):
        if thread.name in names:
            names.remove(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    return names


def test_a_lease_is_renewed_although_a_thread_could_not_be_started_at_first(lease_of, no_thread):
    """Nor are later leases of the same store left alone."""

    def check(length):
        no_thread[:] = ["mainstay-renewer"]
        store = Kept()
        first = lease_of(Call(store, "a"), length)
        wait_until(lambda: store.count("a") > 1)
        lease_of(Call(store, "b"))
        wait_until(lambda: store.count("b"))
        assert not no_thread
        assert not first.call.reports

    at_some_speed(check, 0.3, 3.0, 15.0)


def test_a_lease_that_runs_out_is_reported_although_no_thread_can_be_started(lease_of, no_thread):
    """And the other leases are still renewed."""
    no_thread.append("mainstay-lease-report")
    away, store = Kept(StoreUnavailable("memory://", "write", "away")), Kept()
    ended = lease_of(Call(away, "a"))
    lease_of(Call(store, "b"), 0.3)
    wait_until(lambda: ended.call.reports)
    wait_until(lambda: store.count("b") > 1)
    assert not no_thread


def test_a_short_lease_is_not_kept_waiting_by_a_long_one(lease_of):
    """Whoever comes later and is due sooner goes first."""
    store = Kept()
    lease_of(Call(store, "long"), 3600.0)
    lease_of(Call(store, "short"))
    wait_until(lambda: store.count("short") >= 2)
    assert store.count("long") == 0


def test_a_claim_that_took_long_is_renewed_in_time(lease_of):
    """A third of a lease after it was sent, not after its reply came."""
    store = Kept()
    lease_of(Call(store, "new"), 3600.0)
    lease_of(Call(store, "late"), 3600.0, left=2399.99)
    wait_until(lambda: store.count("late") == 1)
    assert store.count("new") == 0


# --- store by store -------------------------------------------------------------------------------


def test_a_store_that_hangs_costs_the_leases_of_no_other(lease_of):
    """However many calls it has."""
    hangs, works = Kept(), Kept()
    hangs.go_on.clear()
    for number in range(8):
        lease_of(Call(hangs, f"k{number}"))
    assert hangs.asked.wait(30.0)

    def check(length):
        call, before = Call(works), len(works.batches)
        lease = lease_of(call, length)
        wait_until(lambda: len(works.batches) >= before + 4)
        assert lease.until > time.monotonic()
        assert call.reports == []
        assert len(hangs.batches) <= 2

    at_some_speed(check, 0.3, 3.0, 15.0)


def test_leases_that_are_due_are_renewed_together_the_earliest_end_first(lease_of):
    """While a step is under way, others become due: the next step takes all of them."""
    store = Kept()
    store.go_on.clear()
    lease_of(Call(store, "first"))
    assert store.asked.wait(30.0)
    for number in (3, 1, 2):
        lease_of(Call(store, f"k{number}"), 3600.0, left=60.0 + number)
    wait_until(lambda: sum(len(each.due) for each in LEASE_RENEWAL._renewers.values()) == 3)
    store.go_on.set()
    wait_until(lambda: len(store.batches) >= 2)
    assert [key for key in store.batches[1] if key != "first"] == ["k1", "k2", "k3"]


def test_a_step_is_given_half_of_the_time_that_is_left(lease_of):
    """So that another try is possible."""
    store = Kept()
    lease_of(Call(store), 3600.0, left=60.0)
    wait_until(lambda: store.patience)
    assert 20.0 < store.patience[0] <= 30.0


# --- a lease that ends ----------------------------------------------------------------------------


def test_a_late_reply_does_not_extend_a_lease():
    """The lease is certain from the moment at which the request was sent."""
    renewal, now = LeaseRenewal(), time.monotonic()
    renewal._wakes_at = -NEVER  # no thread
    lease = Lease(Call(Kept()), 30.0, now + 5.0)
    renewal.renewed([lease], [Done()], sent=now - 20.0)
    assert lease.until == now + 10.0
    assert lease.due < now
    renewal.renewed([lease], [Done()], sent=now - 29.0)
    assert lease.until == now + 10.0, "the first reply was the later one"


def test_a_lease_that_runs_out_is_reported_once(lease_of):
    """While the store cannot be reached; and it is still tried."""
    store = Kept(StoreUnavailable("kept://", "write", "it is away"))
    call = Call(store)
    lease_of(call)
    wait_until(lambda: call.reports)
    number = len(store.batches)
    wait_until(lambda: len(store.batches) > number + 2)
    assert call.reports == [False]


def test_a_lease_that_was_not_taken_meanwhile_is_held_again(lease_of):
    """The store is back, and no other call has come."""
    store = Kept(StoreUnavailable("kept://", "write", "it is away"))
    call = Call(store)
    lease = lease_of(call, 0.3)
    wait_until(lambda: call.reports)
    assert lease.until <= time.monotonic()
    store.answer = Done()
    wait_until(lambda: lease.until > time.monotonic())


def test_a_lease_that_another_call_has_taken_is_over(lease_of):
    """It is reported as taken, and renewed no more."""
    store = Kept(Lost())
    call = Call(store)
    lease = lease_of(call, 3600.0, left=2399.99)  # due at once, and for long not over by itself
    wait_until(lambda: call.reports)
    time.sleep(0.08)
    assert (call.reports, len(store.batches), lease.until) == ([True], 1, -NEVER)


@pytest.mark.parametrize("answer", [Lost(), StoreUnavailable("kept://", "write", "away")])
def test_a_call_that_has_ended_is_told_of_no_lost_lease(lease_of, answer):
    """Its outcome is being recorded: a renewal that comes after that finds no claim."""
    store = Kept(answer)
    call = Call(store)
    lease = lease_of(call)
    lease.is_over = True
    wait_until(lambda: store.batches)
    time.sleep(SHORT * 2)
    assert call.reports == []


def test_a_report_that_waits_costs_no_lease(lease_of, caplog):
    """A sink may be slow, or raise."""
    lost, works = Kept(Lost()), Kept()
    inside, go_on = threading.Event(), threading.Event()

    class Slow(Call):
        def lease_ran_out(self, *, is_taken):
            inside.set()
            assert go_on.wait(30.0)
            raise OSError("a sink that fails")

    lease_of(Slow(lost))
    assert inside.wait(30.0)
    lease_of(Call(works))
    wait_until(lambda: len(works.batches) >= 3)
    go_on.set()
    wait_until(lambda: "could not be reported" in caplog.text)


# --- what is kept ---------------------------------------------------------------------------------


def test_what_is_forgotten_is_forgotten_at_once(renewal):
    """A lease of a day must not keep each call that ever had one in memory for eight hours."""
    before = _all_of(renewal)
    calls = [Call(Kept()) for _ in range(100)]
    seen = [weakref.ref(call) for call in calls]
    for call in calls:
        lease = Lease(call, 86_400.0, NEVER)
        renewal.start(lease)
        renewal.forget(lease)
    del call
    calls.clear()
    wait_until(lambda: not _still_there(seen))  # the thread may just be looking at one
    assert _all_of(renewal) == before


def test_a_lease_that_is_renewed_for_long_has_two_moments_at_most(renewal, lease_of):
    """When it is due, and when it ends: the heap does not grow with its age."""
    store = Kept()
    lease = lease_of(Call(store))
    wait_until(lambda: len(store.batches) >= 12)
    with renewal._lock:
        assert sum(each[2] is lease for each in renewal._looks) <= 2


def test_empty_queues_are_removed_when_the_thread_looks(renewal, lease_of):
    """However many lengths of leases there were."""
    for number in range(50):
        lease = Lease(None, 3600.0 + number, NEVER)
        renewal.start(lease)
        renewal.forget(lease)
    lease_of(Call(Kept()))
    wait_until(lambda: len(renewal._queues) <= 2)


def test_forgetting_twice_and_while_it_is_renewed_is_forgetting(renewal, lease_of):
    """A call may end while its renewal is under way."""
    store = Kept()
    store.go_on.clear()
    lease = lease_of(Call(store))
    assert store.asked.wait(30.0)
    renewal.forget(lease)
    renewal.forget(lease)
    store.go_on.set()
    wait_until(lambda: not renewal._renewers)
    time.sleep(0.05)
    assert len(store.batches) == 1
    assert lease.until == -NEVER


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_renews_nothing_of_its_parents(lease_of):
    """Else a lease would outlive the process that holds it, for as long as a child lives."""
    lease = lease_of(Call(Kept()), 3600.0)
    pid = os.fork()
    if pid == 0:
        store = Kept()
        LEASE_RENEWAL.start(Lease(Call(store), SHORT, time.monotonic() + SHORT))
        is_right = store.asked.wait(30.0) and lease not in _all_of(LEASE_RENEWAL)
        os._exit(0 if is_right else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _still_there(references):
    gc.collect()
    return [each for each in references if each() is not None]


def _all_of(renewal):
    with renewal._lock:
        queued = [lease for queue in renewal._queues.values() for lease in queue]
        return queued + [each[2] for each in renewal._looks if each[2].call is not None]


# --- the thread -----------------------------------------------------------------------------------


def test_a_renewal_without_leases_has_no_thread():
    """It is started with the first of them."""
    assert LeaseRenewal()._thread is None


def test_leases_that_end_before_the_thread_runs_wake_it_once():
    """On a busy machine, calls are quicker than the thread: not each of them must wake it."""
    renewal, woken = LeaseRenewal(), []
    renewal._thread = SimpleNamespace(is_alive=lambda: True)
    renewal._changed = SimpleNamespace(notify=lambda: woken.append(1))
    for _ in range(5):
        lease = Lease(None, 30.0, NEVER)
        renewal.start(lease)
        renewal.forget(lease)
    assert len(woken) == 1
    renewal.start(Lease(None, 3.0, NEVER))
    assert len(woken) == 2, "it is due before the thread would look"


def test_a_thread_that_finds_no_lease_looks_again_when_it_was_to():
    """And then rests: a lease that comes after that wakes it."""
    renewal = LeaseRenewal()
    renewal._wakes_at = 110.0
    assert renewal._next_wake_locked(now=100.0) == 110.0
    assert renewal._next_wake_locked(now=110.0) == NEVER
    lease = Lease(None, 15.0, NEVER)
    lease.due = 105.0
    renewal._queues[15.0] = {lease: None}
    assert renewal._next_wake_locked(now=100.0) == 105.0
