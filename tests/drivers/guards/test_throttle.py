"""The throttle, the rate limit and the memory guard among gates, threads and clocks."""

import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mainstay.core.retry.effects import Stop
from mainstay.drivers.call.guard import Gate, Guard
from mainstay.drivers.guards import throttle as limiter
from mainstay.drivers.guards.throttle import (
    AdaptiveThrottle,
    MemoryGuard,
    RateLimit,
    memory_there_is,
    resident_bytes,
)
from mainstay.errors import CallShed, PolicyError
from mainstay.runtime import clock

FEW = settings(max_examples=60, stateful_step_count=40, deadline=None)
BUSY, MINE = TimeoutError(), ValueError()


class Hands:
    """A clock that a test moves, also backwards."""

    def __init__(self, now=1000.0):
        self.now = now

    def monotonic(self):
        return self.now


@pytest.fixture
def hands():
    """The process's clock, in the hands of the test."""
    hands = Hands()
    before = clock.install(hands)
    yield hands
    clock.install(before)


@pytest.fixture
def hammer():
    """Runs a function in eight threads that take turns as often as Python can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def run(function):
        barrier = threading.Barrier(8)

        def start(_):
            barrier.wait()
            return function()

        with ThreadPoolExecutor(8) as pool:
            return [item for items in pool.map(start, range(8)) for item in items]

    yield run
    sys.setswitchinterval(before)


# --- the adaptive throttle ------------------------------------------------------------------------


class ThrottleMachine(RuleBasedStateMachine):
    """An AdaptiveThrottle of two gates against two lists of moments, in buckets of a second."""

    @initialize(k=st.sampled_from([1.0, 1.5, 2.0]), floor=st.integers(1, 4), seed=st.integers(0, 9))
    def begin(self, k, floor, seed):
        self.hands = Hands()
        self.before = clock.install(self.hands)
        self.throttle = AdaptiveThrottle("search", k=k, window=10.0, floor=floor, seed=seed)
        self.gates = [Gate([self.throttle]), Gate([Guard(), self.throttle])]
        self.requests, self.accepts, self.latest = [], [], 1000

    def teardown(self):
        if hasattr(self, "before"):
            clock.install(self.before)

    @rule(quarters=st.integers(0, 50))
    def time_passes(self, quarters):
        self.hands.now += quarters / 4
        self.latest = max(self.latest, int(self.hands.now // 1))
        self.notice()

    @rule(seconds=st.integers(1, 500))
    def the_clock_is_set_back(self, seconds):
        self.hands.now -= seconds
        shift = int(self.hands.now // 1) - self.latest
        if shift < -1:
            self.requests = [moment + shift for moment in self.requests]
            self.accepts = [moment + shift for moment in self.accepts]
            self.latest += shift
        self.notice()

    @rule(n=st.integers(1, 9), which=st.integers(0, 1))
    def calls_go_well_by_themselves(self, n, which):
        self.throttle.snapshot()
        for _ in range(n):
            self.gates[which].tally.count()
        self.requests += [self.latest] * n
        self.accepts += [self.latest] * n
        self.throttle.snapshot()

    @rule(failure=st.sampled_from([None, BUSY, MINE]), is_announced=st.booleans())
    def an_attempt_ends(self, failure, is_announced):
        gate = self.gates[0]
        tickets = gate.enter(True, self.hands.now) if is_announced else None
        gate.left(tickets, failure, 0.1, self.hands.now)
        self.requests.append(self.latest)
        if failure is not BUSY:
            self.accepts.append(self.latest)

    @rule(is_retry=st.booleans(), which=st.integers(0, 1))
    def an_attempt_is_announced_and_withdrawn(self, is_retry, which):
        probability = self.probability()
        answer = self.gates[which].enter(is_retry, self.hands.now)
        if isinstance(answer, CallShed):
            assert not is_retry
            assert probability > 0.0
            assert answer.operation == "search"
            assert answer.probability == pytest.approx(probability)
            self.requests.append(self.latest)
        else:
            assert None not in answer[-1:]
            self.gates[which].give_back(answer, self.hands.now)

    @invariant()
    def it_is_troubled_exactly_while_it_could_hold_back(self):
        if hasattr(self, "throttle"):
            failing = self.probability() > 0.0
            assert self.throttle.is_failing is failing
            assert [gate.is_failing for gate in self.gates] == [failing, failing]
            assert self.throttle.snapshot()["probability"] == pytest.approx(self.probability())

    def notice(self):
        """The window slides by itself; a throttle notices when it is asked."""
        answer = self.throttle.enter(True, self.hands.now)
        assert not isinstance(answer, CallShed)

    def probability(self):
        requests = len([moment for moment in self.requests if moment > self.latest - 10])
        accepts = len([moment for moment in self.accepts if moment > self.latest - 10])
        if requests < self.throttle.rule.floor or requests <= self.throttle.rule.k * accepts:
            return 0.0
        return (requests - self.throttle.rule.k * accepts) / (1 + requests)


ThrottleMachine.TestCase.settings = FEW
TestAThrottleFollowsTheBook = ThrottleMachine.TestCase


def test_a_throttle_sends_about_twice_what_is_accepted(hands):
    """A service that takes 20 of 100 calls a second is sent 40 or so, as the book says."""
    throttle = AdaptiveThrottle(window=10.0, seed=5)
    sent = accepted = 0
    for second in range(60):
        room = 20
        for n in range(100):
            now = 1000.0 + second + n / 100
            ticket = throttle.enter(False, now)
            if isinstance(ticket, CallShed):
                continue
            room -= 1
            throttle.left(ticket, None if room >= 0 else BUSY, 0.1, now)
            sent, accepted = sent + (second >= 20), accepted + (second >= 20 and room >= 0)
    assert accepted == 40 * 20
    assert 1.8 < sent / accepted < 2.2


def test_a_seed_makes_the_choice_again(hands):
    """Two throttles of one seed hold back the same calls; of another seed, others."""

    def choices(seed):
        throttle = AdaptiveThrottle(floor=1, seed=seed)
        for failure in [BUSY] * 60 + [None] * 20:
            throttle.left(None, failure, 0.1, 1000.0)
        return [isinstance(throttle.enter(False, 1000.0), CallShed) for _ in range(50)]

    assert choices(1) == choices(1)
    assert choices(1) != choices(2)
    assert choices(None) != choices(None)
    assert True in choices(3)
    assert False in choices(3)


def test_calls_under_way_are_no_refusals(hands):
    """A hundred calls that have not ended yet hold no further one back."""
    throttle = AdaptiveThrottle()
    assert not any(isinstance(throttle.enter(False, 1000.0), CallShed) for _ in range(100))
    assert throttle.snapshot()["requests"] == 0


def test_a_throttle_hears_of_the_calls_before_a_failure(hands):
    """Calls that went well by themselves are requests and accepts alike."""
    throttle = AdaptiveThrottle(floor=1)
    gate = Gate([throttle])
    for _ in range(50):
        gate.tally.count()
    gate.left(None, BUSY, 0.1, 1000.0)
    assert throttle.snapshot() == {
        "name": "throttle",
        "requests": 51,
        "accepts": 50,
        "probability": 0.0,
    }
    assert not gate.is_failing


def test_a_throttle_heals_with_no_traffic_at_all(hands):
    """When the window has passed, the next call takes the short way again."""
    throttle = AdaptiveThrottle(floor=1, window=10.0)
    gate = Gate([throttle])
    gate.left(None, BUSY, 0.1, 1000.0)
    assert gate.is_failing
    assert gate.enter(True, 1009.0) == [True]
    assert gate.is_failing
    assert gate.enter(False, 1010.0) == [True]
    assert not gate.is_failing


def test_gates_are_told_without_the_lock(hands):
    """A gate asks all its guards; one that asks the throttle back must not hang."""
    seen = []

    class Nosy(Guard):
        def standing(self):
            seen.append(throttle._lock.locked())
            return super().standing()

    throttle = AdaptiveThrottle(floor=1)
    gate = Gate([Nosy(), throttle])
    seen.clear()
    gate.left(None, BUSY, 0.1, 1000.0)
    throttle.reset()
    assert seen == [False, False]


def test_a_throttle_is_reset_and_tells_its_gates(hands):
    """Afterwards no attempt is known, not even those it had not heard of."""
    throttle = AdaptiveThrottle("a", floor=1)
    gate = Gate([throttle])
    gate.left(None, BUSY, 0.1, 1000.0)
    gate.tally.count()
    throttle.reset()
    assert not gate.is_failing
    assert throttle.snapshot()["requests"] == 0
    assert repr(throttle) == "AdaptiveThrottle('a', k=2.0, window=120.0, floor=1)"


def test_eight_threads_lose_no_attempt(hammer):
    """8 × 300 attempts, half of them accepted, and 8 × 300 counted by the tally."""
    throttle = AdaptiveThrottle(window=10_000.0, k=1.0)
    gate = Gate([throttle])
    now = clock.current.monotonic()

    def work():
        for n in range(300):
            gate.tally.count()
            gate.left(None, BUSY if n % 2 else None, 0.1, now)
        return [isinstance(throttle.enter(False, now), CallShed) for _ in range(100)]

    shed = hammer(work).count(True)
    found = throttle.snapshot()
    assert (found["requests"], found["accepts"]) == (4800 + shed, 3600)
    assert shed > 0
    assert gate.is_failing


# --- the rate limit -------------------------------------------------------------------------------


class RateMachine(RuleBasedStateMachine):
    """A RateLimit against the list of all starts, and every moment that might be next."""

    @initialize(
        per_second=st.sampled_from([0.5, 2.0, 4.0]),
        burst=st.integers(1, 3),
        max_wait=st.sampled_from([0.0, 1.0, 5.0]),
    )
    def begin(self, per_second, burst, max_wait):
        self.limit = RateLimit(per_second=per_second, burst=burst, max_wait=max_wait)
        self.now, self.seen = 1000.0, float("-inf")  # seen: by the limit, when it was asked
        self.starts = []

    @rule(quarters=st.integers(0, 20))
    def time_passes(self, quarters):
        self.now += quarters / 4

    @rule(quarters=st.integers(1, 8000))
    def the_clock_is_set_back(self, quarters):
        self.now -= quarters / 4

    @rule(quarters=st.integers(0, 12))
    def a_call_wants_a_retry(self, quarters):
        self.ask(quarters / 4)

    def ask(self, delay):
        back = self.seen - self.now
        if back > 1.0:  # all there is moves along; less may be a thread that is late
            self.starts = [start - back for start in self.starts]
            self.seen = self.now
        answer = self.limit.consider(None, delay, self.now)
        wait = self.expected(self.now + delay) - self.now
        if self.now < self.seen:  # gaps that have passed already are not looked for
            wait = max(wait, self.limit.rule.max_wait if isinstance(answer, Stop) else answer)
        self.seen = max(self.seen, self.now)
        if isinstance(answer, Stop):
            assert wait > max(delay, self.limit.rule.max_wait) - 1e-6
            return
        assert answer == pytest.approx(wait, abs=1e-6)
        assert delay <= answer <= max(delay, self.limit.rule.max_wait)
        self.starts.append(self.now + answer)

    @invariant()
    def never_more_than_the_burst_and_the_rate(self):
        if hasattr(self, "starts"):
            assert self.keeps(self.starts)

    def expected(self, earliest):
        interval = 1 / self.limit.rule.per_second
        steps = range(len(self.starts) + 1)
        tried = {earliest, *(start + n * interval for start in self.starts for n in steps)}
        ahead = sorted(moment for moment in tried if moment >= earliest)
        return next(moment for moment in ahead if self.keeps([*self.starts, moment]))

    def keeps(self, starts):
        """In any stretch of t seconds at most burst + rate · t of them."""
        starts, rule = sorted(starts), self.limit.rule
        return all(
            j - i <= rule.burst - 1 + (starts[j] - starts[i]) * rule.per_second + 1e-6
            for i in range(len(starts))
            for j in range(i, len(starts))
        )


RateMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestARateLimitKeepsItsRate = RateMachine.TestCase


def test_a_rate_limit_says_why_with_one_object(hands):
    """The reason is made once, and what was refused has taken no room."""
    limit = RateLimit("search", per_second=1.0, burst=1, max_wait=0.5)
    assert limit.consider(None, 0.25, 1000.0) == 0.25
    assert limit.snapshot() == {"name": "search", "waiting": 1, "next": 1.25}
    stop = limit.consider(None, 0.25, 1000.0)
    assert stop.text == "the rate limit 'search' has no room for a retry in time"
    assert limit.consider(None, 0.0, 1000.5) is stop
    assert limit.snapshot() == {"name": "search", "waiting": 0, "next": 1.25}
    assert limit.consider(None, 0.25, 1001.0) == 0.25
    hands.now = 1001.0
    limit.reset()
    assert limit.snapshot() == {"name": "search", "waiting": 0, "next": 0.0}
    assert repr(limit) == "RateLimit('search', per_second=1.0, burst=1, max_wait=0.5)"


def test_a_rate_limit_costs_calls_that_go_well_nothing():
    """It counts no calls and is never in trouble."""
    gate = Gate([RateLimit(), MemoryGuard(2**60)])
    assert (gate.is_failing, gate.counts_calls) == (False, False)
    assert gate.consider(None, 0.5, 1000.0) == 0.5


def test_eight_threads_get_eight_times_as_many_moments(hammer):
    """400 retries at once: a burst of 10, then one every 10 ms, none of them twice."""
    limit = RateLimit(per_second=100.0, burst=10, max_wait=100.0)
    waits = sorted(hammer(lambda: [limit.consider(None, 0.0, 0.0) for _ in range(50)]))
    assert waits == pytest.approx([0.0] * 10 + [n / 100 for n in range(1, 391)])


def test_a_wrong_limit_is_never_made():
    """Every problem is told at once, of the class the user knows."""
    with pytest.raises(PolicyError, match=r"RateLimit[\s\S]*per_second = 0[\s\S]*burst = 1.5"):
        RateLimit(per_second=0, burst=1.5)
    with pytest.raises(PolicyError, match=r"AdaptiveThrottle[\s\S]*k = 0[\s\S]*seed = 'x'"):
        AdaptiveThrottle(k=0, seed="x")
    with pytest.raises(PolicyError, match=r"MemoryGuard[\s\S]*limit = '1XB'[\s\S]*probe = 7"):
        MemoryGuard("1XB", probe=7)


# --- the memory guard -----------------------------------------------------------------------------


@pytest.mark.req("AG-01.memory")
def test_over_the_limit_there_is_no_retry():
    """At the limit there is; above there is none, and the figures are there to be read."""
    used = [512_000_000]
    guard = MemoryGuard("512MB", probe=lambda: used[0])
    assert guard.consider(None, 0.5, 0.0) == 0.5
    used[0] += 1
    stop = guard.consider(None, 0.5, 1.0)
    assert stop.text == "memory is over the limit of 512 MB"
    assert guard.consider(None, 0.5, 2.0) is stop
    assert (guard.used, guard.limit, guard.name) == (512_000_001, 512_000_000, "memory")
    used[0] = 0
    assert guard.consider(None, 0.5, 3.0) == 0.5
    assert repr(guard) == "MemoryGuard('512MB')"


def test_the_memory_is_looked_at_ten_times_a_second():
    """Within 0.1 s the last look is good; not when the clock went back, nor after a reset."""
    looks = []
    guard = MemoryGuard(100, probe=lambda: looks.append(0) or len(looks))
    for now, expected in [(5.0, 1), (5.05, 1), (5.09, 1), (5.125, 2), (5.05, 3), (5.06, 3)]:
        guard.consider(None, 0.5, now)
        assert len(looks) == expected
    guard.reset()
    assert guard.used is None
    guard.consider(None, 0.5, 5.06)
    assert len(looks) == 4


@pytest.mark.parametrize(
    "answer", [-1, float("nan"), float("inf"), "1", None, True, OSError("gone")], ids=repr
)
def test_a_probe_that_fails_is_reported_once_and_fails_no_call(answer, caplog):
    """It is a warning of the log; the retry is made, and a probe that recovers is heard again."""
    answers = [answer, answer, 500]

    def probe():
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    guard = MemoryGuard(100, probe=probe)
    assert guard.consider(None, 0.5, 1.0) == 0.5
    assert guard.consider(None, 0.5, 2.0) == 0.5
    assert guard.used is None
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("mainstay", logging.WARNING)
    told = answer if isinstance(answer, Exception) else f"the probe answered {answer!r}"
    kind = "OSError" if isinstance(answer, Exception) else "ValueError"
    assert record.getMessage() == (
        "MemoryGuard(100) cannot find out how much memory is used; retries are made:"
        f" {kind}: {told}"
    )
    assert record.exc_text.endswith(f"{kind}: {told}")
    assert record.exc_info is None  # whose text nobody has looked at
    assert isinstance(guard.consider(None, 0.5, 3.0), Stop)


def test_a_probe_is_asked_without_the_lock():
    """A probe may take its time, or ask the guard itself."""
    locked = []
    guard = MemoryGuard(100, probe=lambda: locked.append(guard._lock.locked()) or 1)
    guard.consider(None, 0.5, 0.0)
    assert locked == [False]


def test_a_share_of_memory_that_cannot_be_told_is_reported(monkeypatch, caplog):
    """Without a total there is no limit, and that is said when the guard is made."""
    monkeypatch.setattr(limiter, "memory_there_is", lambda: None)
    guard = MemoryGuard("80%", probe=lambda: 2**62)
    assert "cannot find out how much memory there is" in caplog.text
    assert guard.consider(None, 0.5, 0.0) == 0.5
    assert guard.snapshot() == {"limit": None, "used": 2**62}


def test_a_share_is_of_the_memory_there_is(monkeypatch):
    """80 % of a gigabyte."""
    monkeypatch.setattr(limiter, "memory_there_is", lambda: 10**9)
    assert MemoryGuard("80%").limit == 800_000_000


def test_this_process_uses_memory():
    """The two ways to ask agree that it is more than a megabyte and less than the machine has."""
    total = memory_there_is("/no/such/folder")
    assert 10**6 < resident_bytes() < total
    assert 10**6 < resident_bytes("/no/such/file") < total
    assert MemoryGuard("100%").consider(None, 0.5, 0.0) == 0.5


def test_the_resident_set_is_counted_in_pages(tmp_path):
    """The second number of statm is the resident set."""
    statm = tmp_path / "statm"
    statm.write_text("9000 3 500 1 0 99 0\n", encoding="ascii")
    assert resident_bytes(str(statm)) == 3 * os.sysconf("SC_PAGE_SIZE")


def tree(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="ascii")
    return str(root)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "5000\n"}, 5000),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/memory.max": "max\n",
                "sys/fs/cgroup/a/memory.max": "7000\n",
            },
            7000,
        ),
        ({"proc/self/cgroup": "0::/../x\n", "sys/fs/cgroup/memory.max": "6000\n"}, 6000),
        (
            {
                "proc/self/cgroup": "5:cpu,cpuacct:/c\n4:memory:/a/b\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
                "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "4000\n",
                "sys/fs/cgroup/cpu,cpuacct/c/memory.limit_in_bytes": "1\n",
            },
            4000,
        ),
        ({"proc/self/cgroup": "4:memory:/gone\n", "sys/fs/cgroup/memory/x": "1"}, None),
        ({"proc/self/cgroup": "nonsense\n", "sys/fs/cgroup/memory.max": "0\n"}, None),
        ({}, None),
    ],
    ids=["v2", "v2 outer", "v2 folder", "v1", "no limit", "nonsense", "no cgroup"],
)
def test_the_limit_of_a_container_counts(files, expected, tmp_path):
    """The least of the limits around the process; the machine's memory where there is none."""
    machine = memory_there_is("/no/such/folder")
    assert memory_there_is(tree(tmp_path, files)) == (expected or machine)


def test_a_system_that_does_not_know_its_memory_says_nothing(monkeypatch, tmp_path):
    """Windows has no sysconf."""
    monkeypatch.delattr(os, "sysconf")
    assert memory_there_is(str(tmp_path)) is None
