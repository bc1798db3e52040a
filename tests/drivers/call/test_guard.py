"""Guards as one: who is asked, who is told, and what the happy path counts."""

import sys
import threading

import pytest

from mainstay import Backoff, Jitter, RetryPolicy
from mainstay.core.retry.effects import Stop
from mainstay.drivers.call.guard import Counted, Gate, Guard, Standing, Tally
from mainstay.drivers.call.site import Site
from mainstay.drivers.call.wrap import wrap
from mainstay.errors import Refused
from mainstay.testing import virtual_time

POLICY = RetryPolicy(
    retry_on=OSError, max_attempts=3, backoff=Backoff.constant(1.0), jitter=Jitter.none()
)


class Probe(Guard):
    """A guard that writes down what it hears and says what it is told to."""

    def __init__(
        self, name="", heard=None, *, says=None, considers=None, failing=True, counts=False,
        slow_after=None,
    ):  # fmt: skip
        self.name, self.heard = name, [] if heard is None else heard
        self.says, self.considers, self.failing = says, considers, failing
        self.counts, self.slow_after = counts, slow_after
        self.gates = []

    def attach(self, gate):
        self.gates.append(gate)
        if self.counts:
            self.tally = gate.tally
        if self.slow_after is not None:
            gate.time_calls(self.slow_after)

    def standing(self):
        return Standing(is_failing=self.failing)

    def enter(self, is_retry, now, witness=None):
        self.heard.append((self.name, "enter", is_retry))
        return self.says or f"ticket of {self.name}"

    def left(self, ticket, failure, seconds, now):
        self.heard.append((self.name, "left", ticket, type(failure)))

    def withdrawn(self, ticket, now):
        self.heard.append((self.name, "withdrawn", ticket))

    def consider(self, failure, delay, now, witness=None):
        return delay if self.considers is None else self.considers


@pytest.fixture
def hasty():
    """Threads are switched as often as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


# --- a gate ---------------------------------------------------------------------------------------


def test_guards_are_asked_and_told_in_their_order():
    """Each with its own ticket."""
    heard = []
    gate = Gate([Probe("a", heard), Probe("b", heard)])
    tickets = gate.enter(False, 0.0)
    gate.left(tickets, OSError(), 1.0, 1.0)
    assert heard == [
        ("a", "enter", False),
        ("b", "enter", False),
        ("a", "left", "ticket of a", OSError),
        ("b", "left", "ticket of b", OSError),
    ]


def test_a_refusal_gives_back_what_was_granted_before_it():
    """To those only who had granted something; nobody after it is asked."""
    heard, refusal = [], Refused("no")
    gate = Gate([Probe("a", heard), Probe("b", heard, says=refusal), Probe("c", heard)])
    assert gate.enter(True, 0.0) is refusal
    assert heard == [("a", "enter", True), ("b", "enter", True), ("a", "withdrawn", "ticket of a")]


def test_the_longest_delay_counts_and_the_first_stop():
    """No guard shortens what another asks for."""
    stop = Stop("enough")
    assert Gate([Probe(considers=2.0), Probe(considers=0.5)]).consider(None, 1.0, 0.0) == 2.0
    assert Gate([Probe(considers=0.5)]).consider(None, 1.0, 0.0) == 1.0
    assert Gate([Probe(considers=9.0), Probe(considers=stop)]).consider(None, 1.0, 0.0) is stop


def test_a_guard_says_yes_to_everything_unless_it_says_otherwise():
    """The defaults ask for nothing, count nothing and refuse nothing."""
    guard = Guard()
    gate = Gate([guard])
    assert (gate.is_failing, gate.shut, gate.counts_calls, gate.slow_after) == (
        False,
        None,
        False,
        None,
    )
    assert gate.enter(False, 0.0) == [None]
    gate.left([None], None, 0.0, 0.0)
    gate.give_back([None], 0.0)
    assert gate.consider(OSError(), 1.5, 0.0) == 1.5


def test_a_gate_is_troubled_while_one_guard_is():
    """It looks when a guard says that it has changed."""
    quiet, wild = Probe(failing=False), Probe(failing=False)
    gate = Gate([quiet, wild])
    assert quiet.gates == wild.gates == [gate]
    assert not gate.is_failing
    wild.failing = True
    gate.look()
    assert gate.is_failing
    wild.failing = False
    gate.look()
    assert not gate.is_failing


def test_the_least_patient_guard_says_what_is_slow():
    """The others look at the seconds themselves."""
    slow, slower = Probe(slow_after=1.0), Probe(slow_after=2.0)
    assert Gate([slower, slow, Probe()]).slow_after == 1.0


# --- in a call ------------------------------------------------------------------------------------


@pytest.mark.parametrize("failing", [True, False])
def test_each_attempt_is_told_once_on_the_way_it_took(driver, failing):
    """A first attempt without trouble has no ticket; every retry has one."""
    guard = Probe("g", failing=failing)
    function = driver.scripted(OSError, OSError, "up")
    assert driver.run(wrap(function, Site(POLICY, gate=Gate([guard])))) == "up"
    first = [("g", "enter", False)] if failing else []
    ticket = "ticket of g"
    assert guard.heard == [
        *first,
        ("g", "left", ticket if failing else None, OSError),
        ("g", "enter", True),
        ("g", "left", ticket, OSError),
        ("g", "enter", True),
        ("g", "left", ticket, type(None)),
    ]


def test_trouble_that_comes_during_a_call_hears_of_its_success(driver):
    """It was not announced, so it has no ticket."""
    guard = Probe("g", failing=False)
    gate = Gate([guard])

    def work():
        guard.failing = True
        gate.look()

    driver.run(wrap(driver.colour(work), Site(POLICY, gate=gate)))
    assert guard.heard == [("g", "left", None, type(None))]


def test_a_longer_delay_is_waited(driver):
    """What the guard asks for, in place of the policy's second."""
    guard = Probe(considers=5.0)
    driver.run(wrap(driver.scripted(OSError, "up"), Site(POLICY, gate=Gate([guard]))))
    assert driver.time.elapsed == 5.0


def test_a_guards_stop_ends_the_call_with_its_own_error_and_a_note(driver):
    """No second is waited."""
    guard = Probe(considers=Stop("the guard has had enough"))
    with pytest.raises(OSError, match="mine") as caught:
        driver.run(wrap(driver.scripted(OSError("mine")), Site(POLICY, gate=Gate([guard]))))
    assert "the guard has had enough" in caught.value.__notes__[0]
    assert driver.time.elapsed == 0.0


def test_a_longer_delay_than_the_deadline_allows_is_not_waited(driver):
    """The call ends with its error at once."""
    policy = POLICY.replace(deadline=3.0)
    guard = Probe(considers=5.0)
    with pytest.raises(OSError, match="mine"):
        driver.run(wrap(driver.scripted(OSError("mine")), Site(policy, gate=Gate([guard]))))
    assert driver.time.elapsed == 0.0


def test_a_cancelled_attempt_is_withdrawn(async_driver):
    """Neither a success nor a failure."""
    guard = Probe("g")
    function = wrap(async_driver.scripted(KeyboardInterrupt), Site(POLICY, gate=Gate([guard])))
    with pytest.raises(KeyboardInterrupt):
        async_driver.run(function)
    assert guard.heard[-1] == ("g", "withdrawn", "ticket of g")


# --- counting -------------------------------------------------------------------------------------


def test_reading_a_tally_does_not_count():
    """However often."""
    tally = Tally()
    for n in range(5):
        assert [tally.total() for _ in range(3)] == [n] * 3
        tally.count()


@pytest.mark.req("NFR-041-13")
def test_a_tally_is_exact_under_threads(hasty):
    """Eight threads count while two read; no reading goes back, none is too great."""
    tally, readings = Tally(), [[], []]

    def count():
        for _ in range(5000):
            tally.count()

    def read(kept):
        for _ in range(2000):
            kept.append(tally.total())

    threads = [threading.Thread(target=count) for _ in range(8)]
    threads += [threading.Thread(target=read, args=(kept,)) for kept in readings]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.total() == 8 * 5000
    for kept in readings:
        assert kept == sorted(kept)
        assert kept[-1] <= 8 * 5000


def test_a_guard_hears_of_each_call_once():
    """From any number of tallies, and of none from before it listened."""
    one, two, counted = Tally(), Tally(), Counted()
    one.count()
    counted.add(one)
    counted.add(two)
    counted.add(one)
    assert counted.take() == 0
    one.count()
    two.count()
    two.count()
    assert counted.take() == 3
    assert counted.take() == 0


def test_only_successes_without_trouble_are_tallied():
    """A failure is told, a call during trouble is told; neither is counted too."""
    guard = Probe(failing=False, counts=True)
    gate = Gate([guard])

    def work(fail):
        if fail:
            raise ValueError

    call = wrap(work, Site(POLICY, gate=gate))
    call(False)
    with pytest.raises(ValueError):
        call(True)
    assert gate.tally.total() == 1
    guard.failing = True
    gate.look()
    call(False)
    assert gate.tally.total() == 1


def test_a_slow_success_is_told_and_not_tallied(driver):
    """A quick one the other way round."""
    from mainstay.testing import takes

    guard = Probe("g", failing=False, counts=True, slow_after=2.0)
    gate = Gate([guard])
    call = wrap(driver.scripted(takes(1.0, "quick"), takes(2.0, "slow")), Site(POLICY, gate=gate))
    driver.run(call)
    assert (gate.tally.total(), guard.heard) == (1, [])
    driver.run(call)
    assert (gate.tally.total(), guard.heard) == (1, [("g", "left", None, type(None))])


def test_virtual_time_is_what_guards_are_told():
    """The moment an attempt ended, and how long it took."""
    told = []

    class Watch(Probe):
        def left(self, ticket, failure, seconds, now):
            told.append((seconds, now))

    with virtual_time() as time:
        began = time.monotonic()
        call = wrap(lambda: time.advance(3.0), Site(POLICY, gate=Gate([Watch()])))
        call()
    assert told == [(pytest.approx(3.0), pytest.approx(began + 3.0))]
