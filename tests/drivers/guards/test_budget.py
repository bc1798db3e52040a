"""Budgets among gates, threads and clocks: never more retries than they promise, never fewer."""

import contextvars
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mainstay.core.limits.budget import RatioRule, TokenRule
from mainstay.core.retry.effects import Stop
from mainstay.drivers.call.guard import Gate
from mainstay.drivers.guards.budget import RetryBudget, TokenBudget
from mainstay.errors import PolicyError
from mainstay.runtime import clock
from mainstay.testing import virtual_time

FEW = settings(max_examples=60, stateful_step_count=40, deadline=None)
ERROR = ConnectionError()


class Hands:
    """A clock that a test moves, also backwards."""

    def __init__(self, now=1000.0):
        self.now = now

    def monotonic(self):
        return self.now


def fail(budget, now, failure=ERROR):
    """A first attempt that nobody announced has failed; may it be repeated?"""
    budget.left(None, failure, 0.1, now)
    return budget.consider(failure, 0.5, now)


# --- a share of the calls -------------------------------------------------------------------------


class RetryBudgetMachine(RuleBasedStateMachine):
    """A RetryBudget of two gates against a list of moments."""

    @initialize(
        ratio=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
        floor=st.integers(0, 3),
        start=st.integers(0, 4000),
    )
    def begin(self, ratio, floor, start):
        self.hands = Hands(start / 4)
        self.before = clock.install(self.hands)
        self.budget = RetryBudget(ratio=ratio, floor=floor, window=10.0)
        self.gates = [Gate([self.budget]), Gate([self.budget])]
        self.calls, self.retries, self.tickets = [], [], []
        self.uncounted, self.heard, self.latest = 0, self.hands.now, self.hands.now // 1

    def teardown(self):
        if hasattr(self, "before"):
            clock.install(self.before)

    @rule(quarters=st.integers(0, 60))
    def time_passes(self, quarters):
        self.hands.now += quarters / 4
        self.latest = max(self.latest, self.hands.now // 1)

    @rule(seconds=st.integers(2, 500))
    def the_clock_is_set_back(self, seconds):
        self.hear()
        self.budget.snapshot()
        self.hands.now -= seconds
        shift = self.hands.now // 1 - self.latest
        if shift >= -1:
            return
        self.calls = [moment + shift for moment in self.calls]
        self.retries = [moment + shift for moment in self.retries]
        self.tickets = []
        self.latest = self.hands.now // 1
        self.budget.snapshot()
        self.heard = self.hands.now

    @rule(n=st.integers(1, 30), which=st.integers(0, 1))
    def calls_go_well_by_themselves(self, n, which):
        for _ in range(n):
            self.gates[which].tally.count()
        self.uncounted += n

    @rule()
    def a_call_is_announced(self):
        ticket = self.budget.enter(False, self.hands.now)
        self.calls.append(self.moment())
        self.tickets.append((ticket, self.calls[-1]))

    @precondition(lambda self: self.tickets)
    @rule(went_well=st.booleans())
    def an_announced_call_ends(self, went_well):
        self.hear()
        ticket, _ = self.tickets.pop()
        self.budget.left(ticket, None if went_well else ERROR, 0.1, self.hands.now)

    @precondition(lambda self: self.tickets)
    @rule()
    def an_announced_call_is_withdrawn(self):
        ticket, moment = self.tickets.pop()
        self.budget.withdrawn(ticket, self.hands.now)
        self.calls.remove(moment)

    @rule(times=st.integers(1, 4))
    def a_call_fails_and_wants_retries(self, times):
        self.hear()
        self.calls.append(self.moment())
        self.budget.left(None, ERROR, 0.1, self.hands.now)
        for _ in range(times):
            self.ask()
            ticket = self.budget.enter(True, self.hands.now)
            assert ticket is not None
            self.budget.left(ticket, ERROR, 0.1, self.hands.now)
        ticket = self.budget.enter(True, self.hands.now)
        self.the_snapshot_is_the_model()
        self.budget.withdrawn(ticket, self.hands.now)

    def ask(self):
        answer = self.budget.consider(ERROR, 0.5, self.hands.now)
        spent = self.count(self.retries)
        rule = self.budget.rule
        if isinstance(answer, Stop):
            assert spent + 1 > max(rule.floor, rule.ratio * self.count(self.calls, inner=1e-6))
        else:
            assert answer == 0.5
            assert spent + 1 <= max(rule.floor, rule.ratio * self.count(self.calls, outer=1e-6))
            self.retries.append(self.moment())

    @invariant()
    def the_snapshot_is_the_model(self):
        if not hasattr(self, "budget"):
            return
        self.hear()
        found = self.budget.snapshot()
        assert found["retries"] == self.count(self.retries)
        least, most = self.count(self.calls, inner=1e-6), self.count(self.calls, outer=1e-6)
        assert least <= found["calls"] <= most

    def moment(self):
        """The time to count at: that of the newest bucket where the clock is a little behind."""
        return max(self.hands.now, self.latest)

    def hear(self):
        """Places the calls that went well evenly since the last time."""
        since, now, n = self.heard, self.hands.now, self.uncounted
        if since < now:
            self.calls += [since + (i + 0.5) / n * (now - since) for i in range(n)]
        else:
            self.calls += [self.moment()] * n
        self.uncounted, self.heard = 0, now

    def count(self, moments, inner=0.0, outer=0.0):
        """How many are in the ten seconds that begin with whole ones, give or take the edge."""
        start = self.latest - 9
        return sum(moment >= start + inner - outer for moment in moments)


RetryBudgetMachine.TestCase.settings = FEW
TestARetryBudgetKeepsItsShare = RetryBudgetMachine.TestCase


def test_a_spent_budget_says_so_with_one_object():
    """The reason is made once; the delay comes back as it was."""
    budget = RetryBudget("search", ratio=0.0, floor=2)
    assert [fail(budget, 0.0), fail(budget, 0.0)] == [0.5, 0.5]
    stop = fail(budget, 0.0)
    assert stop.text == "the retry budget 'search' is spent"
    assert fail(budget, 5.0) is stop
    assert fail(budget, 10.0) == 0.5


def test_calls_that_need_no_help_pay_for_retries():
    """The tally's calls are taken when something fails: 100 calls, 20 retries."""
    with virtual_time() as time:
        budget = RetryBudget(floor=0)
        gate = Gate([budget])
        assert gate.counts_calls
        for _ in range(99):
            gate.tally.count()
        now = clock.current.monotonic()
        granted = [fail(budget, now)]
        granted += [budget.consider(ERROR, 0.5, now) for _ in range(30)]
        assert granted.count(0.5) == 20
        time.advance(10.0)
        assert isinstance(budget.consider(ERROR, 0.5, clock.current.monotonic()), Stop)


def test_a_gate_that_is_attached_late_brings_no_old_calls():
    """Calls from before a budget was there are not its calls."""
    gate = Gate([])
    for _ in range(1000):
        gate.tally.count()
    budget = RetryBudget()
    budget.attach(gate)
    budget.attach(gate)
    gate.tally.count()
    assert budget.snapshot()["calls"] == 1


def test_an_hour_of_calls_does_not_pay_for_a_storm():
    """360,000 calls in an hour are 100 a second: 1,000 in ten seconds, and 200 retries."""
    with virtual_time() as time:
        budget = RetryBudget()
        gate = Gate([budget])
        for _ in range(36_000):
            gate.tally.count()
        time.advance(360.0)
        assert budget.snapshot()["allowed"] == pytest.approx(200, rel=0.11)


def test_a_clock_set_back_neither_ends_nor_renews_a_budget():
    """A budget that is spent stays so for a window, however often it is asked, and no longer."""
    hands = Hands(5000.0)
    before = clock.install(hands)
    try:
        budget = RetryBudget(floor=1, window=10.0)
        assert fail(budget, 5000.0) == 0.5
        answers = [budget.consider(ERROR, 0.5, 100.0 + n) for n in range(11)]
    finally:
        clock.install(before)
    assert [answer == 0.5 for answer in answers] == [False] * 10 + [True]


def test_a_budget_is_never_in_trouble():
    """It has a say in retries only, so calls that go well pay one count."""
    budget = RetryBudget(floor=0)
    gate = Gate([budget])
    fail(budget, 0.0)
    assert not budget.standing().is_failing
    assert not gate.is_failing


def test_a_retry_budget_is_reset_with_everything_it_has_not_heard():
    """Afterwards there are no calls and no retries, and the floor is there again."""
    budget = RetryBudget(floor=1)
    gate = Gate([budget])
    gate.tally.count()
    now = clock.current.monotonic()
    fail(budget, now)
    budget.reset()
    assert budget.snapshot() == {"name": "retries", "calls": 0, "retries": 0, "allowed": 1}
    assert fail(budget, now) == 0.5


def test_a_budget_shows_how_it_is_set():
    """The repr is the constructor's call."""
    budget = RetryBudget("a", ratio=0.5, floor=2, window=1.0)
    assert repr(budget) == "RetryBudget('a', ratio=0.5, floor=2, window=1.0)"
    assert (repr(eval(repr(budget))), budget.name) == (repr(budget), "a")
    tokens = TokenBudget.grpc()
    assert repr(eval(repr(tokens))) == repr(tokens)
    assert tokens.name == "grpc"


def test_a_wrong_budget_is_never_made():
    """Every problem is told at once, of the class the user knows."""
    with pytest.raises(PolicyError, match=r"RetryBudget[\s\S]*ratio = 20[\s\S]*floor = True"):
        RetryBudget(ratio=20, floor=True)
    with pytest.raises(PolicyError, match=r"TokenBudget[\s\S]*cost = nan[\s\S]*reserve = -1"):
        TokenBudget(cost=float("nan"), reserve=-1)
    with pytest.raises(PolicyError, match=r"grpc[\s\S]*max_tokens = 1001[\s\S]*token_ratio = 0"):
        TokenBudget.grpc(max_tokens=1001, token_ratio=0)


# --- tokens, as the AWS SDKs count them -----------------------------------------------------------


class AwsMachine(RuleBasedStateMachine):
    """Calls under way side by side, against the quota as botocore describes it."""

    def __init__(self):
        super().__init__()
        self.budget = TokenBudget(capacity=40)
        self.gate = Gate([self.budget])
        self.tokens, self.calls = 40, []

    @rule()
    def a_call_succeeds_at_once(self):
        self.gate.tally.count()
        self.give(1)

    @rule(is_announced=st.booleans())
    def a_call_is_told_of(self, is_announced):
        self.budget.left(self.budget.enter(False, 0.0) if is_announced else None, None, 0.1, 0.0)
        self.give(1)

    @rule(is_timeout=st.booleans())
    def a_call_fails(self, is_timeout):
        """Each call has a context of its own, as a thread or a task has."""
        failure = TimeoutError() if is_timeout else ERROR
        self.budget.left(None, failure, 0.1, 0.0)
        self.ask(contextvars.copy_context(), failure, 10 if is_timeout else 5)

    def ask(self, context, failure, price):
        answer = context.run(self.budget.consider, failure, 0.5, 0.0)
        if self.tokens < price:
            assert answer.text == "the token budget 'tokens' is spent"
        else:
            assert answer == 0.5
            self.tokens -= price
            self.calls.append((context, price))

    @precondition(lambda self: self.calls)
    @rule(data=st.data(), how=st.sampled_from(["well", "badly", "withdrawn"]))
    def a_retry_ends(self, data, how):
        context, price = self.calls.pop(data.draw(st.integers(0, len(self.calls) - 1)))
        ticket = context.run(self.budget.enter, True, 0.0)
        if how == "well":
            context.run(self.budget.left, ticket, None, 0.1, 0.0)
            self.give(price)
        elif how == "badly":
            context.run(self.budget.left, ticket, ERROR, 0.1, 0.0)
            self.ask(context, ERROR, 5)
        else:
            context.run(self.budget.withdrawn, ticket, 0.0)

    @invariant()
    def the_tokens_are_those_of_the_model(self):
        assert self.budget.snapshot()["tokens"] == self.tokens
        assert 0 <= self.tokens <= 40

    def give(self, amount):
        self.tokens = min(40, self.tokens + amount)


AwsMachine.TestCase.settings = FEW
TestATokenBudgetCountsAsTheAwsSdks = AwsMachine.TestCase


def test_a_hundred_retries_empty_the_quota_of_aws():
    """500 tokens at 5 each; a success brings 1, so every fifth brings a retry."""
    budget = TokenBudget.aws()
    gate = Gate([budget])
    assert [fail(budget, 0.0) for _ in range(100)] == [0.5] * 100
    stop = fail(budget, 0.0)
    for _ in range(4):
        gate.tally.count()
    assert fail(budget, 0.0) is stop
    gate.tally.count()
    assert fail(budget, 0.0) == 0.5


def test_two_token_budgets_of_one_call_keep_their_own_accounts():
    """What a retry has cost the one is not given back to the other."""
    cheap, dear = TokenBudget("cheap", cost=1), TokenBudget("dear", cost=50)
    gate = Gate([cheap, dear])
    assert gate.consider(ERROR, 0.5, 0.0) == 0.5
    tickets = gate.enter(True, 0.0)
    gate.left(tickets, None, 0.1, 0.0)
    assert [each.snapshot()["tokens"] for each in (cheap, dear)] == [500.0, 500.0]


def test_a_fixed_refund_is_what_a_retry_brings_back():
    """Refund overrides what was paid; a retry that nobody asked for brings the usual."""
    budget = TokenBudget(capacity=20, refund=2)
    fail(budget, 0.0, TimeoutError())
    budget.left(budget.enter(True, 0.0), None, 0.1, 0.0)
    assert budget.snapshot()["tokens"] == 12.0
    other = TokenBudget(capacity=20)
    assert other.enter(True, 0.0) == 5000


# --- tokens, as gRPC counts them ------------------------------------------------------------------


def test_the_example_of_grpcs_own_tests():
    """4 tokens, 1.6 for a success: the counts that gRPC's core expects of itself."""
    budget = TokenBudget.grpc(max_tokens=4, token_ratio=1.6)

    def tokens():
        return budget.snapshot()["tokens"]

    assert (fail(budget, 0.0), tokens()) == (0.5, 3.0)
    budget.left(None, None, 0.1, 0.0)
    assert tokens() == 4.0
    assert (fail(budget, 0.0), tokens()) == (0.5, 3.0)
    assert isinstance(fail(budget, 0.0), Stop)
    assert tokens() == 2.0
    assert isinstance(fail(budget, 0.0), Stop)
    budget.left(None, None, 0.1, 0.0)
    assert tokens() == 2.6
    assert isinstance(fail(budget, 0.0), Stop)


@given(
    maximum=st.integers(1, 20),
    ratio=st.integers(1, 3000).map(lambda n: Fraction(n, 1000)),
    steps=st.lists(st.sampled_from(["well", "counted", "failed", "last", "mine"]), max_size=80),
)
@settings(deadline=None)
def test_a_token_budget_counts_as_grpc(maximum, ratio, steps):
    """Failures take 1, successes bring the ratio, and above a half there are retries."""
    budget = TokenBudget.grpc(max_tokens=maximum, token_ratio=float(ratio))
    gate, tokens = Gate([budget]), Fraction(maximum)
    for step in steps:
        if step in {"well", "counted"}:
            tokens = min(Fraction(maximum), tokens + ratio)
            gate.tally.count() if step == "counted" else budget.left(None, None, 0.1, 0.0)
            continue
        failure = ValueError() if step == "mine" else ERROR
        tokens = max(Fraction(0), tokens - 1)
        budget.left(None, failure, 0.1, 0.0)
        if step != "last":  # the attempts were used up: it counts, and nobody asks
            refused = isinstance(budget.consider(failure, 0.5, 0.0), Stop)
            assert refused is (tokens <= Fraction(maximum, 2))
    assert budget.snapshot()["tokens"] == float(tokens)


def test_a_callers_mistake_takes_no_token_of_grpc():
    """What is not retried and not the service's fault is no failure."""
    budget = TokenBudget.grpc()
    for _ in range(10):
        budget.left(None, ValueError(), 0.1, 0.0)
    assert budget.snapshot()["tokens"] == 10.0


def test_a_token_budget_is_reset_with_everything_it_has_not_heard():
    """It is full, and what went well before does not come on top."""
    budget = TokenBudget(capacity=20)
    gate = Gate([budget])
    fail(budget, 0.0, TimeoutError())
    gate.tally.count()
    budget.reset()
    assert budget.snapshot() == {"name": "tokens", "tokens": 20.0, "capacity": 20.0}


# --- threads --------------------------------------------------------------------------------------


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


def test_eight_threads_lose_no_call_and_gain_no_retry(hammer):
    """8 × 300 failing calls and 8 × 300 good ones: 4,800 calls, and 10 % of them retried."""
    budget = RetryBudget(ratio=0.1, floor=5, window=1000.0)
    gate = Gate([budget])
    now = clock.current.monotonic()

    def work():
        answers = []
        for _ in range(300):
            gate.tally.count()
            answers.append(fail(budget, now))
            budget.withdrawn(budget.enter(False, now), now)
        return answers

    answers = hammer(work)
    found = budget.snapshot()
    assert found["calls"] == 4800
    assert found["retries"] == answers.count(0.5) <= found["allowed"] == 480
    while budget.consider(ERROR, 0.5, now) == 0.5:
        pass
    assert budget.snapshot()["retries"] == 480


def test_eight_threads_never_take_a_token_twice(hammer):
    """4,000 tokens are 4,000 retries, whoever takes them; of what comes back nothing is lost."""
    budget = TokenBudget(capacity=4000, cost=1)

    def work():
        answers = [budget.consider(ERROR, 0.5, 0.0) for _ in range(1000)]
        return [each for each in answers if each == 0.5]

    granted = hammer(work)
    assert len(granted) == 4000
    assert budget.snapshot()["tokens"] == 0.0

    def give():
        return [budget.left(None, None, 0.1, 0.0) for _ in range(50)]

    hammer(give)
    assert budget.snapshot()["tokens"] == 400.0


@pytest.mark.parametrize(
    ("budget", "rule", "method"),
    [(RetryBudget(), RatioRule, "allows"), (TokenBudget(), TokenRule, "spent")],
    ids=["ratio", "tokens"],
)
def test_a_retry_is_decided_on_and_taken_under_one_lock(budget, rule, method, monkeypatch):
    """What eight threads show by chance, this shows each time."""
    decide, locked = getattr(rule, method), []

    def look(*args):
        locked.append(budget._lock.locked())
        return decide(*args)

    monkeypatch.setattr(rule, method, look)
    assert budget.consider(ERROR, 0.5, 0.0) == 0.5
    assert locked == [True]
    assert not budget._lock.locked()
