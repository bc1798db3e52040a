"""What is counted of the calls of one operation, category or tenant, and what follows from it.

Sums only, so that two of them can be merged; every share is worked out when it is asked for. A
share of nothing is None, never 0 or 1.
"""

from __future__ import annotations

from mainstay.core.analytics.sketch import Sketch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST_WORDS = 32
"""Different reasons that are kept for one name; the rest are counted as OTHER."""
OTHER = "other"
COUNTS = (
    "first_time",  # calls whose first attempt succeeded, each with an event
    "counted",  # the same, of which the record has only the number
    "recovered",  # calls that succeeded after a retry
    "exhausted",  # calls given up, out of attempts or of time
    "failed",  # calls given up for a failure that is not retried
    "interrupted",
    "unfinished",
    "refused",
    "fallbacks",
    "attempts",
    "retries_succeeded",  # retried attempts: the second of a call, the third and so on
    "retries_failed",
    "failed_before_success",  # attempts that failed, in calls that succeeded
    "failed_in_vain",  # attempts that failed, in calls that were given up
)
_SECONDS = ("waited", "waited_before_success", "waited_in_vain")


class Figures:
    """Counts of calls and attempts.

    >>> figures = Figures()
    >>> figures.end("recovered", attempts=3, waited=0.5)
    >>> figures.end("exhausted", attempts=3, waited=0.7)
    >>> figures.calls, figures.attempts, figures.recovery_rate, figures.retry_success_rate
    (2, 6, 0.5, 0.25)
    """

    __slots__ = (*COUNTS, *_SECONDS, "delays", "missed", "reasons", "refusers", "weight")

    def __init__(self) -> None:
        # Written out: if names are many, figures are made and merged all the time.
        self.first_time = self.counted = self.recovered = self.exhausted = self.failed = 0
        self.interrupted = self.unfinished = self.refused = self.fallbacks = self.attempts = 0
        self.retries_succeeded = self.retries_failed = 0
        self.failed_before_success = self.failed_in_vain = 0
        self.waited = self.waited_before_success = self.waited_in_vain = 0.0
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
        """A call was "interrupted" or is "unfinished", after attempts of which `failed` failed."""
        setattr(self, how, getattr(self, how) + 1)
        self.attempts += attempts
        self.retries_failed += max(0, failed - 1)

    def merge(self, other: Figures) -> None:
        """Counts everything that others have counted."""
        self.first_time += other.first_time
        self.counted += other.counted
        self.recovered += other.recovered
        self.exhausted += other.exhausted
        self.failed += other.failed
        self.interrupted += other.interrupted
        self.unfinished += other.unfinished
        self.refused += other.refused
        self.fallbacks += other.fallbacks
        self.attempts += other.attempts
        self.retries_succeeded += other.retries_succeeded
        self.retries_failed += other.retries_failed
        self.failed_before_success += other.failed_before_success
        self.failed_in_vain += other.failed_in_vain
        self.waited += other.waited
        self.waited_before_success += other.waited_before_success
        self.waited_in_vain += other.waited_in_vain
        self._merge_others(other)

    def _merge_others(self, other: Figures) -> None:
        self.delays.merge(other.delays)
        for mine, theirs in ((self.reasons, other.reasons), (self.refusers, other.refusers)):
            for word, times in theirs.items():
                note(mine, word, times)

    @property
    def calls(self) -> int:
        """Calls in the record, refused ones included."""
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
    """Counts a word, or OTHER if there are too many different ones.

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
