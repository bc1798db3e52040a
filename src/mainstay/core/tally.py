"""What is counted of the calls of one operation, category or tenant, and what follows from it.

Sums only, so that two tallies can be merged; every share is worked out when it is asked for. A
share of nothing is None, never 0 or 1.
"""

from __future__ import annotations

from mainstay.core.sketch import Sketch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_WORDS = 32
"""Different reasons that are kept in one tally; the rest are counted as OTHER."""
OTHER = "other"
COUNTS = (
    "first_time", "counted", "recovered", "exhausted", "failed", "interrupted", "unfinished",
    "refused", "fallbacks", "attempts", "retries_succeeded", "retries_failed",
    "failed_before_success", "failed_in_vain",
)  # fmt: skip
SECONDS = ("waited", "waited_before_success", "waited_in_vain")


class Tally:
    """Counts of calls and attempts.

    >>> tally = Tally()
    >>> tally.end("recovered", attempts=3, waited=0.5)
    >>> tally.end("exhausted", attempts=3, waited=0.7)
    >>> tally.calls, tally.attempts, tally.recovery_rate, tally.retry_success_rate
    (2, 6, 0.5, 0.25)
    """

    __slots__ = (*COUNTS, *SECONDS, "delays", "missed", "reasons", "refusers", "weight")

    first_time: int
    """Calls whose first attempt succeeded, each heard."""
    counted: int
    """Calls whose first attempt succeeded, of which the record has only the number."""
    recovered: int
    """Calls that succeeded after a retry."""
    exhausted: int
    failed: int
    """Calls given up: out of attempts or time, or for a failure that is not retried."""
    interrupted: int
    unfinished: int
    refused: int
    fallbacks: int
    attempts: int
    retries_succeeded: int
    retries_failed: int
    failed_before_success: int
    failed_in_vain: int
    waited: float
    waited_before_success: float
    waited_in_vain: float

    def __init__(self) -> None:
        for name in COUNTS:
            setattr(self, name, 0)
        for name in SECONDS:
            setattr(self, name, 0.0)
        self.delays = Sketch()
        self.reasons: dict[str, int] = {}
        self.refusers: dict[str, int] = {}
        self.weight = 0
        self.missed = 0

    def end(self, how: str, attempts: int, waited: float = 0.0) -> None:
        """A call that was made has ended: "first_time", "recovered", "exhausted" or "failed"."""
        setattr(self, how, getattr(self, how) + 1)
        self.attempts += attempts
        if how == "first_time":
            return
        if how == "recovered":
            self.retries_succeeded += 1
            self.retries_failed += max(0, attempts - 2)
            self.failed_before_success += max(0, attempts - 1)
            self.waited_before_success += waited
        else:
            self.retries_failed += max(0, attempts - 1)
            self.failed_in_vain += attempts
            self.waited_in_vain += waited

    def leave(self, how: str, attempts: int, failed: int) -> None:
        """A call was "interrupted" or is "unfinished": so many attempts began, so many failed."""
        setattr(self, how, getattr(self, how) + 1)
        self.attempts += attempts
        self.retries_failed += max(0, failed - 1)

    def merge(self, other: Tally) -> None:
        """Counts everything that another tally has counted."""
        for name in (*COUNTS, *SECONDS):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.delays.merge(other.delays)
        for mine, theirs in ((self.reasons, other.reasons), (self.refusers, other.refusers)):
            for word, times in theirs.items():
                note(mine, word, times)

    @property
    def calls(self) -> int:
        """Calls that the record knows of, refused ones included."""
        return self._ended + self.interrupted + self.unfinished + self.refused

    @property
    def given_up(self) -> int:
        return self.exhausted + self.failed

    @property
    def _ended(self) -> int:
        return self.first_time + self.counted + self.recovered + self.given_up

    @property
    def knows_first_successes(self) -> bool:
        """Whether calls that never failed are in the record; otherwise shares leave them out."""
        return bool(self.first_time or self.counted)

    @property
    def success_rate(self) -> float | None:
        """The share of calls, made and ended, that succeeded; None without any."""
        return _share(self._ended - self.given_up, self._ended)

    @property
    def recovery_rate(self) -> float | None:
        """The share of calls that succeeded among those that met a failure."""
        return _share(self.recovered, self.recovered + self.given_up)

    @property
    def retry_success_rate(self) -> float | None:
        """The share of retried attempts that succeeded: of second, third and later ones."""
        return _share(self.retries_succeeded, self.retries_succeeded + self.retries_failed)

    @property
    def mean_attempts(self) -> float | None:
        """Attempts per call that was made and ended."""
        attempts = (
            self.first_time + self.counted + self.recovered
            + self.failed_before_success + self.failed_in_vain
        )  # fmt: skip
        return _share(attempts, self._ended)

    def to_dict(self) -> dict[str, Any]:
        """Every figure, as JSON has it; seconds are seconds."""
        sums = {name: getattr(self, name) for name in COUNTS}
        return {
            "calls": self.calls,
            **sums,
            "given_up": self.given_up,
            "success_rate": self.success_rate,
            "success_rate_of": "calls" if self.knows_first_successes else MET_A_FAILURE,
            "recovery_rate": self.recovery_rate,
            "retry_success_rate": self.retry_success_rate,
            "mean_attempts": self.mean_attempts,
            "delays": self._delays(),
            "waited_seconds": self.waited,
            "waited_before_success_seconds": self.waited_before_success,
            "waited_in_vain_seconds": self.waited_in_vain,
            "reasons": most_first(self.reasons),
            "refused_by": most_first(self.refusers),
            "missed_at_most": self.missed,
        }

    def _delays(self) -> dict[str, Any]:
        sketch = self.delays
        shares = {"p50": 0.50, "p90": 0.90, "p99": 0.99}
        found = {name: sketch.quantile(share) for name, share in shares.items()}
        return {"count": sketch.total, **found, "relative_error": sketch.error}


MET_A_FAILURE = "calls that met a failure"


def note(words: dict[str, int], word: str, times: int = 1, most: int = MOST_WORDS) -> None:
    """Counts a word, or OTHER where there are too many different ones.

    >>> seen = {}
    >>> note(seen, "no attempt left"); note(seen, "no attempt left"); seen
    {'no attempt left': 2}
    """
    if word not in words and len(words) >= most:
        word = OTHER
    words[word] = words.get(word, 0) + times


def most_first(words: dict[str, int]) -> dict[str, int]:
    """The same, the most frequent first.

    >>> most_first({"a": 1, "b": 2})
    {'b': 2, 'a': 1}
    """
    return dict(sorted(words.items(), key=lambda item: (-item[1], item[0])))


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
