"""Retry budgets as users hold them: core/limits/budget.py with a lock, the tallies and a clock.

A budget decides only whether a failed attempt is repeated; it never refuses a first attempt and is
never failing. Successes are not reported one by one: they are taken from the tallies of its gates
whenever something fails.
"""

from __future__ import annotations

from contextvars import ContextVar

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import Checker
from mainstay.core.known.kind import Kind
from mainstay.core.limits.budget import RatioRule, SlidingCounts, TokenRule, spent, thousandths
from mainstay.core.limits.throttle import is_refusal
from mainstay.core.retry.effects import Stop
from mainstay.core.retry.kinds import kind_of
from mainstay.drivers.call.guard import Counted, Guard, label_of
from mainstay.drivers.guards.construct import built_from
from mainstay.runtime.fork import make_lock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mainstay.drivers.call.guard import Gate, GuardTicket, Witness

_RETRY = "retry"
"""The ticket of a retry, which is no call of its own."""


class RetryBudget(Guard):
    """Keeps retries to a share of the calls, so that a failing service is not hit twice as hard.

    One budget serves any number of operations, threads and event loops; their calls and retries
    are added up. A retry that is not allowed ends its call with the failure it has, and a note.

    Args:
        name: what notes and reports call it.
        ratio: retries per call; 0.2 is one retry for five calls.
        floor: how many retries are allowed in any window, however few calls there were.
        window: over how many seconds both are counted, a tenth of it at a time.

    >>> budget = RetryBudget("search", ratio=0.5, floor=1)
    >>> budget.consider(ConnectionError(), 0.1, 0.0)
    0.1
    >>> budget.consider(ConnectionError(), 0.1, 0.0).text
    "the retry budget 'search' is spent"
    """

    layer = "budget"

    @built_from(RatioRule)
    def __init__(self, rule: RatioRule) -> None:
        self.rule: RatioRule = rule
        self._stop = Stop(spent("retry", rule.name))
        self.elsewhere = (0, 0)
        """Calls and retries of other processes that share it, in the same window."""
        self._counted = Counted()
        self._counts = SlidingCounts(self.rule.window)  # calls and retries
        self._taken_at = clock.current.monotonic()
        self._lock = make_lock()

    @property
    def name(self) -> str:
        """What notes and reports call it."""
        return self.rule.name

    def snapshot(self) -> dict[str, Any]:
        """The calls and retries of the present window, and how many retries it allows.

        >>> RetryBudget(floor=3).snapshot()
        {'name': 'retries', 'calls': 0, 'retries': 0, 'allowed': 3}
        """
        with self._lock:
            now = clock.current.monotonic()
            self._take_calls_locked(now)
            calls, retries = self._counts.totals(now)
        allowed = int(self.rule.allowed(calls + self.elsewhere[0]) + 1e-9)
        return {"name": self.name, "calls": calls, "retries": retries, "allowed": allowed}

    def reset(self) -> None:
        """Forgets every call and retry.

        >>> budget = RetryBudget(floor=1)
        >>> budget.consider(None, 0.1, 0.0); budget.reset(); budget.consider(None, 0.1, 0.0)
        0.1
        0.1
        """
        with self._lock:
            self._take_calls_locked(clock.current.monotonic())
            self._counts = SlidingCounts(self.rule.window)

    def __repr__(self) -> str:
        rule = self.rule
        return (
            f"RetryBudget({rule.name!r}, ratio={rule.ratio}, floor={rule.floor},"
            f" window={rule.window})"
        )

    # --- as a guard -------------------------------------------------------------------------------

    def attach(self, gate: Gate) -> None:
        """Counts the calls of this gate too."""
        with self._lock:
            self._counted.add(gate.tally)

    def enter(self, is_retry: bool, now: float, _witness: Witness | None = None) -> int | str:
        """Counts a call that is announced; the ticket is where it was counted."""
        if is_retry:
            return _RETRY
        with self._lock:
            self._counts = self._counts.add(now, 1)
            return self._counts.newest

    def left(
        self, ticket: GuardTicket, _failure: BaseException | None, _seconds: float, now: float
    ) -> None:
        """Counts a call that was not announced."""
        with self._lock:
            self._take_calls_locked(now)
            if ticket is None:
                self._counts = self._counts.add(now, 1)

    def withdrawn(self, ticket: GuardTicket, now: float) -> None:
        """Takes the call back; a retry stays spent, for it may have been made."""
        if isinstance(ticket, int):
            with self._lock:
                self._counts = self._counts.take_back(ticket, now)

    def consider(
        self,
        _failure: BaseException | None,
        delay: float,
        now: float,
        witness: Witness | None = None,
    ) -> float | Stop:
        """Takes one retry, if there is one; decided on the calls and retries of the window."""
        allowed, calls, retries = self._take(now)
        if witness is not None:
            witness(label_of(self), [calls, retries], allowed)
        return delay if allowed else self._stop

    def _take(self, now: float) -> tuple[bool, int, int]:
        """Whether one retry may be made, which is then counted; on what calls and retries."""
        with self._lock:
            self._take_calls_locked(now)
            calls, retries = self._counts.totals(now)
            calls, retries = calls + self.elsewhere[0], retries + self.elsewhere[1]
            allowed = self.rule.allows(calls, retries)
            if allowed:
                self._counts = self._counts.add(now, 0, 1)
            return allowed, calls, retries

    def _take_calls_locked(self, now: float) -> None:
        """Counts the calls that went well since the last time, as if they had come in evenly.

        The window is moved in any case: a clock that was set back is noticed once, not for ever.
        """
        calls, counts = self._counted.take(), self._counts
        self._counts = counts.spread(self._taken_at, now, calls) if calls else counts.at(now)
        self._taken_at = now


_PAID: ContextVar[tuple[tuple[TokenBudget, int], ...]] = ContextVar(
    "mainstay.budget.paid", default=()
)
"""What the retry that the call under way will make next has cost: it gets that back if it succeeds.

A call asks for a retry and makes it in one and the same context, be it a thread or a task."""


class TokenBudget(Guard):
    """Tokens that retries use up and successes bring back; none left, no retry.

    `TokenBudget.aws()` and `TokenBudget.grpc()` are the rules of the AWS SDKs and of gRPC.

    Args:
        name: what notes and reports call it.
        capacity: how many tokens there are at first, and at most.
        cost: what a retry takes.
        timeout_cost: what a retry takes after a timeout.
        refund: what a retry that succeeds brings back; None is what it took.
        success_refund: what a call that succeeds at once brings back.
        failure_cost: what each attempt takes that the other side did not accept.
        reserve: retries are made only while there are more tokens than this.

    >>> budget = TokenBudget("search", capacity=12)
    >>> budget.consider(ConnectionError(), 0.1, 0.0), budget.snapshot()["tokens"]
    (0.1, 7.0)
    >>> budget.consider(TimeoutError(), 0.1, 0.0).text
    "the token budget 'search' is spent"
    """

    layer = "budget"

    @built_from(TokenRule)
    def __init__(self, rule: TokenRule) -> None:
        self.rule: TokenRule = rule
        self._stop = Stop(spent("token", rule.name))
        self._counted = Counted()
        self._tokens = thousandths(self.rule.capacity)
        self._taken = self._given = 0  # since the beginning, whether or not there was room for it
        self._lock = make_lock()

    @classmethod
    def aws(cls, name: str = "aws") -> TokenBudget:
        """The retry quota of the AWS SDKs' standard mode.

        500 tokens; a retry takes 5, after a timeout 10, and brings them back if it succeeds. A call
        that succeeds at once brings 1.

        >>> TokenBudget.aws().snapshot()
        {'name': 'aws', 'tokens': 500.0, 'capacity': 500.0}
        """
        return cls(name, capacity=500, cost=5, timeout_cost=10, success_refund=1)

    @classmethod
    def grpc(
        cls, name: str = "grpc", *, max_tokens: float = 10, token_ratio: float = 0.1
    ) -> TokenBudget:
        """The retryThrottling of gRPC (proposal A6).

        A failed attempt takes 1, one that succeeds brings `token_ratio`; retries are made while
        more than half of `max_tokens` are left.

        >>> budget = TokenBudget.grpc(max_tokens=4)
        >>> for _ in range(2):
        ...     budget.left(None, ConnectionError(), 0.1, 0.0)
        >>> budget.consider(ConnectionError(), 0.1, 0.0).text
        "the token budget 'grpc' is spent"
        """
        check = Checker("TokenBudget.grpc")
        check.name("name", name)
        max_tokens = check.number("max_tokens", max_tokens, 1.0, 1000.0)  # gRPC's own bound
        token_ratio = check.number("token_ratio", token_ratio, 0.001, 1000.0)
        check.close()
        gain = min(token_ratio, max_tokens)
        return cls(
            name,
            capacity=max_tokens,
            cost=0,
            timeout_cost=0,
            refund=gain,
            success_refund=gain,
            failure_cost=1,
            reserve=max_tokens / 2,
        )

    @property
    def name(self) -> str:
        """What notes and reports call it."""
        return self.rule.name

    def snapshot(self) -> dict[str, Any]:
        """How many tokens there are, and how many there can be.

        >>> TokenBudget("search", capacity=20).snapshot()
        {'name': 'search', 'tokens': 20.0, 'capacity': 20.0}
        """
        with self._lock:
            self._take_calls_locked()
            tokens = self._tokens / 1000
        return {"name": self.name, "tokens": tokens, "capacity": self.rule.capacity}

    def reset(self) -> None:
        """Fills it up.

        >>> budget = TokenBudget(capacity=20)
        >>> budget.consider(None, 0.1, 0.0); budget.reset(); budget.snapshot()["tokens"]
        0.1
        20.0
        """
        with self._lock:
            self._take_calls_locked()
            self._give_locked(thousandths(self.rule.capacity))

    def flow(self) -> tuple[int, int]:
        """The thousandths taken and given since the beginning, for the processes that share it.

        >>> budget = TokenBudget(capacity=20)
        >>> budget.consider(ConnectionError(), 0.1, 0.0), budget.flow()
        (0.1, (5000, 0))
        """
        with self._lock:
            self._take_calls_locked()
            return self._taken, self._given

    def agree(self, tokens: int, told: tuple[int, int]) -> None:
        """Goes on with the tokens of all that share it, which include `told` of its own flow.

        >>> budget = TokenBudget(capacity=20)
        >>> budget.agree(12_000, budget.flow()); budget.snapshot()["tokens"]
        12.0
        """
        with self._lock:
            self._take_calls_locked()
            since = self._given - told[1] - (self._taken - told[0])
            self._tokens = max(0, self.rule.given(tokens, since))

    def __repr__(self) -> str:
        rule = self.rule
        return (
            f"TokenBudget({rule.name!r}, capacity={rule.capacity}, cost={rule.cost},"
            f" timeout_cost={rule.timeout_cost}, refund={rule.refund},"
            f" success_refund={rule.success_refund}, failure_cost={rule.failure_cost},"
            f" reserve={rule.reserve})"
        )

    # --- as a guard -------------------------------------------------------------------------------

    def attach(self, gate: Gate) -> None:
        """Counts the successes of this gate too."""
        with self._lock:
            self._counted.add(gate.tally)

    def enter(self, is_retry: bool, _now: float, _witness: Witness | None = None) -> int:
        """The ticket is what a success will bring back, in thousandths."""
        if not is_retry:
            return thousandths(self.rule.success_refund)
        paid = self._collect()
        return paid if self.rule.refund is None else thousandths(self.rule.refund)

    def left(
        self, ticket: GuardTicket, failure: BaseException | None, _seconds: float, _now: float
    ) -> None:
        """Gives tokens for a success, and takes some for a failure where that costs."""
        costs = failure is not None and bool(self.rule.failure_cost) and is_refusal(failure)
        with self._lock:
            self._take_calls_locked()
            if failure is None:
                at_once = thousandths(self.rule.success_refund)
                self._give_locked(ticket if isinstance(ticket, int) else at_once)
            elif costs:
                self._failed_locked()

    def consider(
        self,
        failure: BaseException | None,
        delay: float,
        _now: float,
        witness: Witness | None = None,
    ) -> float | Stop:
        """Takes what a retry costs, if there is enough; decided on the tokens and the price."""
        allowed, tokens, price = self._take(failure)
        if witness is not None:
            witness(label_of(self), [tokens, price], allowed)
        return delay if allowed else self._stop

    def _take(self, failure: BaseException | None) -> tuple[bool, int, int]:
        """Whether there was enough for a retry; the tokens there were, and its price."""
        price = self.rule.price(failure is not None and kind_of(failure).kind is Kind.TIMEOUT)
        is_counted = failure is not None and is_refusal(failure)
        with self._lock:
            self._take_calls_locked()
            if not is_counted:  # retried by the caller's own rules: `left` did not take it for one
                self._failed_locked()
            had = self._tokens
            tokens = self.rule.spent(had, price)
            if tokens is None:
                return False, had, price
            self._tokens = tokens
            self._taken += price
        _PAID.set((*(each for each in _PAID.get() if each[0] is not self), (self, price)))
        return True, had, price

    def _collect(self) -> int:
        """What the retry of this call has cost; the usual where it was asked for elsewhere."""
        paid = _PAID.get()
        _PAID.set(tuple(each for each in paid if each[0] is not self))
        return next((price for budget, price in paid if budget is self), self.rule.price(False))

    def _failed_locked(self) -> None:
        self._tokens = self.rule.failed(self._tokens)
        self._taken += thousandths(self.rule.failure_cost)

    def _give_locked(self, amount: int) -> None:
        self._tokens = self.rule.given(self._tokens, amount)
        self._given += amount

    def _take_calls_locked(self) -> None:
        """Gives tokens for the calls that went well since the last time."""
        self._give_locked(self._counted.take() * thousandths(self.rule.success_refund))


def is_shareable(guard: Guard) -> bool:
    """Whether processes can share it through a store.

    >>> is_shareable(RetryBudget()), is_shareable(Guard())
    (True, False)
    """
    return isinstance(guard, RetryBudget | TokenBudget)
