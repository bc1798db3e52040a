"""Two policies side by side: what the record has, and what another policy would have made of it.

Sums and sketches, one pair for each operation and one for all, and the load over time; in memory
that does not grow with the record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.analytics.aggregates import MET_A_FAILURE
from mainstay.core.analytics.sketch import Sketch
from mainstay.core.analytics.top_k import Ranking
from mainstay.core.audit.recorded_calls import Traffic
from mainstay.core.audit.whatif import RULES, Chances, Outcome, ready, recorded, rerun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.core.audit.recorded_calls import Call
    from mainstay.core.retry.policy import Policy

NAMES = 256
MOST_MINUTES = 20_000
"""Two weeks of minutes; of a longer record, spans of two minutes, four and so on are kept."""


def compare(
    read: Callable[[], Iterable[tuple[str, bytes]]],
    choose: Callable[[str, str], Policy | None],
    *,
    assume: str = "rate",
    top: int = 10,
) -> tuple[Comparison, Traffic]:
    """Recorded traffic under two policies, and what could not be put together of it.

    Args:
        read: begins a pass over the record; there are two.
        choose: the policy for an operation and the name of its recorded policy; None if it
            stays as it was.
        assume: how an attempt ends that was never made, of `whatif.RULES`.
        top: how many operations to show.
    """
    chances = Chances(assume)
    made: dict[int, tuple[Policy, Policy]] = {}

    def ready_choice(operation: str, name: str) -> Policy | None:
        policy = choose(operation, name)
        if policy is None:
            return None
        if id(policy) not in made:
            made[id(policy)] = (policy, ready(policy))  # held, or its id might be another's
        return made[id(policy)][1]

    if assume == "rate":
        for call in Traffic().calls(read()):
            chances.learn(call)
    traffic, found = Traffic(), Comparison(ready_choice, chances, assume, top=top)
    for call in traffic.calls(read()):
        found.add(call)
    return found, traffic


class Side:
    """What one policy came to."""

    __slots__ = ("attempts", "given_up", "succeeded", "waited", "waits")

    def __init__(self) -> None:
        self.attempts = self.succeeded = self.given_up = 0
        self.waited = 0.0
        self.waits = Sketch()
        """How long each call waited that met a failure."""

    def add(self, outcome: Outcome, count: int, *, met_a_failure: bool) -> None:
        self.attempts += outcome.attempts * count
        self.succeeded += outcome.succeeded * count
        self.given_up += (not outcome.succeeded) * count
        self.waited += outcome.waited * count
        if met_a_failure:
            self.waits.add(outcome.waited)

    def merge(self, other: Side) -> None:
        self.attempts += other.attempts
        self.succeeded += other.succeeded
        self.given_up += other.given_up
        self.waited += other.waited
        self.waits.merge(other.waits)

    def to_dict(self) -> dict[str, Any]:
        calls = self.succeeded + self.given_up
        return {
            "attempts": self.attempts,
            "succeeded": self.succeeded,
            "given_up": self.given_up,
            "success_rate": self.succeeded / calls if calls else None,
            "waited_seconds": self.waited,
            "waited_mean": self.waited / self.waits.total if self.waits.total else None,
            "waited_p50": self.waits.quantile(0.5),
            "waited_p99": self.waits.quantile(0.99),
            "relative_error": self.waits.error,
        }


class Pair:
    """One operation under both policies."""

    __slots__ = ("assumed", "assumed_calls", "at_once", "calls", "missed", "new", "recorded",
                 "weight")  # fmt: skip

    def __init__(self) -> None:
        self.recorded, self.new = Side(), Side()
        self.calls = self.assumed = self.assumed_calls = 0
        self.at_once = 0
        """Calls whose first attempt succeeded; without any, the record leaves them out."""
        self.weight = self.missed = 0

    @property
    def knows_first_successes(self) -> bool:
        """Whether calls that never failed are in the record; otherwise no figure has them."""
        return bool(self.at_once)

    @property
    def saved(self) -> int:
        """Attempts that the new policy does without; below zero if it makes more."""
        return self.recorded.attempts - self.new.attempts

    def add(self, call: Call, was: Outcome, now: Outcome) -> None:
        self.calls += call.count
        self.at_once += 0 if call.met_a_failure else call.count
        self.recorded.add(was, call.count, met_a_failure=call.met_a_failure)
        self.new.add(now, call.count, met_a_failure=call.met_a_failure)
        self.assumed += now.assumed
        self.assumed_calls += bool(now.assumed)

    def merge(self, other: Pair) -> None:
        self.calls += other.calls
        self.at_once += other.at_once
        self.assumed += other.assumed
        self.assumed_calls += other.assumed_calls
        self.recorded.merge(other.recorded)
        self.new.merge(other.new)

    def to_dict(self) -> dict[str, Any]:
        return {
            "calls": self.calls,
            "success_rate_of": "calls" if self.knows_first_successes else MET_A_FAILURE,
            "recorded": self.recorded.to_dict(),
            "new": self.new.to_dict(),
            "attempts_saved": self.saved,
            "assumed_outcomes": self.assumed,
            "calls_with_assumed_outcomes": self.assumed_calls,
            "missed_at_most": self.missed,
        }


class Load:
    """Attempts in each minute, recorded and new."""

    def __init__(self) -> None:
        self.width = 60.0
        self._spans: dict[int, list[int]] = {}

    def add(self, call: Call, was: Outcome, now: Outcome) -> None:
        if call.wall is None:
            return
        for side, outcome in enumerate((was, now)):
            for start in outcome.starts:
                span = self._spans.setdefault(int((call.wall + start) // self.width), [0, 0])
                span[side] += call.count
        while len(self._spans) > MOST_MINUTES:
            self._join()

    def _join(self) -> None:
        old, self._spans, self.width = self._spans, {}, self.width * 2
        for number, counts in old.items():
            span = self._spans.setdefault(number // 2, [0, 0])
            span[0] += counts[0]
            span[1] += counts[1]

    def series(self) -> list[tuple[float, float, float]]:
        """Of each span: when it begins, and the attempts per second, recorded and new.

        Of a time in which nothing happened, only the first and the last span are shown.
        """
        shown: dict[int, list[int]] = {}
        for number, counts in sorted(self._spans.items()):
            if shown and number - 1 not in shown:
                shown[next(reversed(shown)) + 1] = [0, 0]
                shown[number - 1] = [0, 0]
            shown[number] = counts
        return [
            (number * self.width, was / self.width, now / self.width)
            for number, (was, now) in shown.items()
        ]

    def peaks(self) -> tuple[float, float]:
        """The highest attempts per second of any span, recorded and new."""
        series = self.series()
        return (
            max((was for _, was, _ in series), default=0.0),
            max((now for _, _, now in series), default=0.0),
        )


class Comparison:
    """Recorded traffic under two policies: `add` every call.

    Args:
        choose: the policy, `ready`, for an operation and the name of its recorded policy; None
            if it stays as it was.
        chances: what is assumed of attempts that were never made.
        assume: the name of that rule.
    """

    def __init__(
        self,
        choose: Callable[[str, str], Policy | None],
        chances: Chances,
        assume: str = "rate",
        *,
        top: int = 10,
        names: int = NAMES,
    ) -> None:
        self._choose, self._chances = choose, chances
        self.assume, self.top = assume, top
        self.operations = Ranking(max(names, 4 * top), Pair)
        self.load = Load()
        self.unchanged = self.long_successes = 0
        """Calls whose policy stays; calls that took longer at once than an attempt may now."""

    def add(self, call: Call) -> None:
        """Counts one recorded call, as it was and as it would be."""
        was = now = recorded(call)
        policy = self._choose(call.operation, call.policy)
        if policy is None:
            self.unchanged += call.count
        elif call.met_a_failure:
            now = rerun(call, policy, self._chances)
        elif policy.attempt_timeout is not None:
            self.long_successes += call.attempts[0].seconds > policy.attempt_timeout
        self.operations.row(call.operation).add(call, was, now)
        self.load.add(call, was, now)

    @property
    def total(self) -> Pair:
        """All operations together."""
        total = Pair()
        for pair in (self.operations.other, *self.operations.rows.values()):
            total.merge(pair)
        return total

    def rows(self) -> tuple[list[tuple[str, Pair]], Pair | None]:
        """The operations with most attempts, and what the rest come to."""
        rows = self.operations.rows.items()
        ranked = sorted(rows, key=lambda row: (-row[1].recorded.attempts, row[0]))
        rest = ranked[self.top :]
        if not rest and not self.operations.gone:
            return ranked, None
        other = Pair()
        for pair in (self.operations.other, *(pair for _, pair in rest)):
            other.merge(pair)
        return ranked[: self.top], other

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        rows, other = self.rows()
        was, now = self.load.peaks()
        return {
            "total": self.total.to_dict(),
            "operations": [{"operation": name, **pair.to_dict()} for name, pair in rows],
            "other": None if other is None else other.to_dict(),
            "calls_unchanged": self.unchanged,
            "first_successes_longer_than_the_timeout": self.long_successes,
            "assumption": {"rule": self.assume, "an_attempt_never_made": RULES[self.assume]},
            "load": {
                "span_seconds": self.load.width,
                "peak_recorded": was,
                "peak_new": now,
                "series": [list(each) for each in self.load.series()],
            },
        }
