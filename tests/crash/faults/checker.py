"""The properties, from the lines of the oracle alone: no part of the library takes part.

Each function yields what it found against its property; `check` runs all of them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.crash.faults import LEASE

if TYPE_CHECKING:
    from tests.crash.faults.oracle import Line

PROPERTIES = (
    "one_outcome", "real_outcome", "not_again", "one_at_a_time", "unsafe_once", "comes_to_an_end",
    "unknown_in_inbox", "documented_errors", "no_hang", "store_whole",
)  # fmt: skip
DOCUMENTED = {"StoreUnavailable", "Conflict", "LeaseLost", "OutcomeUnknown", "not recorded"}
"""What callers may see under faults, besides the outcome itself; "not recorded" is the exception of
the function with a note that it could not be recorded."""
EXCUSED_AFTER = LEASE / 4
"""Seconds after which a process that stood still, or a store that was down, may cost a lease."""


@dataclass
class Execution:
    """One run of a function."""

    key: str
    pid: int
    began: int
    """Place in the order of lines."""
    since: float
    """The moment at which its function was entered: its process may stand still before the line."""
    ended: int = 2**62
    until: float = float("inf")


@dataclass
class Evidence:
    """What the lines come to."""

    lines: list[Line]
    executions: dict[str, list[Execution]] = field(default_factory=lambda: defaultdict(list))
    kinds: dict[str, str] = field(default_factory=dict)
    outages: list[tuple[float, float]] = field(default_factory=list)
    pauses: dict[int, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    starved: list[tuple[int | None, float, float]] = field(default_factory=list)
    """When the machine, and no fault, held up a process, or the store (none)."""

    def __post_init__(self) -> None:
        self.rounds = [at for at, line in enumerate(self.lines) if line.what == "round"]
        """Where each round of the recovery begins."""
        self._read_executions()
        self._read_windows()

    def _read_executions(self) -> None:
        under_way: dict[tuple[int, str], Execution] = {}
        for index, line in enumerate(self.lines):
            if line.what == "asked":
                self.kinds[line.key] = line.more
            elif line.what == "began":
                made = Execution(line.key, line.pid, index, line.at)
                self.executions[line.key].append(made)
                under_way[line.pid, line.key] = made
            elif line.what == "ended" and (line.pid, line.key) in under_way:
                done = under_way.pop((line.pid, line.key))
                done.ended, done.until = index, line.at
            elif line.what == "gone":
                for pid, key in [each for each in under_way if each[0] == line.pid]:
                    done = under_way.pop((pid, key))
                    done.ended, done.until = index, line.at
        for executions in self.executions.values():
            executions.sort(key=lambda each: each.since)

    def _read_windows(self) -> None:
        down, stopped = None, {}
        for line in self.lines:
            if line.what == "down":
                down = line.at
            elif line.what == "up" and down is not None:
                self.outages.append((down, line.at))
                down = None
            elif line.what == "paused":
                stopped[line.pid] = line.at
            elif line.what == "resumed":
                self.pauses[line.pid].append((stopped.pop(line.pid), line.at))
            elif line.what == "slow":
                self.starved.append((None, float(line.more), line.at))
            elif line.what == "stalled":
                self.starved.append((line.pid, float(line.more), line.at))

    def overlaps(self) -> Iterator[tuple[Execution, Execution]]:
        """Two executions of a key of which the second began while the first was running."""
        for executions in self.executions.values():
            for number, second in enumerate(executions):
                for first in executions[:number]:
                    if second.began < first.ended:
                        yield first, second

    def excuse(self, first: Execution, second: Execution) -> str:
        """Why the lease of the first could not be renewed before the second began.

        "fault" if one was injected, "machine" if only the machine held up the process or the store,
        nothing if there is no reason.
        """
        machine = [(a, b) for pid, a, b in self.starved if pid in (None, first.pid)]
        for name, windows in (
            ("fault", [*self.outages, *self.pauses[first.pid]]),
            ("machine", machine),
        ):
            if any(
                until - since >= EXCUSED_AFTER
                and since < second.since
                and until > first.since - LEASE
                for since, until in windows
            ):
                return name
        return ""

    def excused(self) -> Counter[str]:
        """How many findings were excused, and why.

        "late line" counts keys whose execution wrote its first line after a caller had seen the
        outcome, but had been entered before.
        """
        found = Counter(self.excuse(*pair) for pair in self.overlaps())
        found.pop("", None)
        for key, seen in _outcomes(self).items():
            index, line = seen[0]
            late = [e for e in self.executions[key] if e.began > index and e.since <= line.at]
            found["late line"] += bool(late)
        return found


def check(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """Every violation: the property, and what was found."""
    for name, function in _CHECKS.items():
        for found in function(evidence):
            yield name, found


def _outcomes(evidence: Evidence) -> dict[str, list[tuple[int, Line]]]:
    seen = defaultdict(list)
    for index, line in enumerate(evidence.lines):
        if line.what == "saw":
            seen[line.key].append((index, line))
    return seen


def _one_outcome(evidence: Evidence) -> Iterator[str]:
    for key, seen in _outcomes(evidence).items():
        values = sorted({line.value for _, line in seen})
        if len(values) > 1:
            yield f"key {key}: callers saw {values}"


def _real_outcome(evidence: Evidence) -> Iterator[str]:
    made = {(line.key, line.value) for line in evidence.lines if line.what == "ended"}
    for key, seen in _outcomes(evidence).items():
        for value in sorted({line.value for _, line in seen}):
            if (key, value) not in made:
                yield f"key {key}: a caller saw {value!r}, which no execution returned"


def _not_again(evidence: Evidence) -> Iterator[str]:
    for key, seen in _outcomes(evidence).items():
        _, line = seen[0]
        later = [each for each in evidence.executions[key] if each.since > line.at]
        if later:
            yield (
                f"key {key}: process {line.pid} saw {line.value!r}, then {len(later)} more"
                f" execution(s), the first in process {later[0].pid} after"
                f" {later[0].since - line.at:.2f} s"
            )


def _one_at_a_time(evidence: Evidence) -> Iterator[str]:
    for first, second in evidence.overlaps():
        if not evidence.excuse(first, second):
            yield (
                f"key {first.key}: began in {first.pid}, and in {second.pid}"
                f" {second.since - first.since:.2f} s later while the first was running"
            )


def _unsafe_once(evidence: Evidence) -> Iterator[str]:
    for key, executions in evidence.executions.items():
        if evidence.kinds[key] == "unsafe" and len(executions) > 1:
            yield f"key {key}: executed {len(executions)} times"


def _comes_to_an_end(evidence: Evidence) -> Iterator[str]:
    asked = {line.key for line in evidence.lines if line.what == "asked"}
    if len(evidence.rounds) < 2:
        yield f"{len(evidence.rounds)} of 2 rounds of recovery took place"
    for begin, end in zip(evidence.rounds, [*evidence.rounds[1:], None], strict=True):
        answers = {line.key: line for line in evidence.lines[begin:end] if line.what in _ANSWERS}
        for key in sorted(asked - set(answers)):
            yield f"key {key}: no answer after recovery"
        for key, line in answers.items():
            if line.what == "raised" and line.value != "OutcomeUnknown":
                yield f"key {key}: {line.value} after recovery: {line.more}"


_ANSWERS = ("saw", "raised")


def _unknown_in_inbox(evidence: Evidence) -> Iterator[str]:
    for index, line in enumerate(evidence.lines):
        if line.what != "raised" or line.value != "OutcomeUnknown":
            continue
        if evidence.kinds[line.key] != "unsafe":
            yield f"key {line.key}: unknown, though it may be repeated"
        if line.more == "no item" or (
            index > min(evidence.rounds, default=index) and line.more != "open"
        ):
            yield f"key {line.key}: unknown, and its item is {line.more!r}"


def _documented_errors(evidence: Evidence) -> Iterator[str]:
    for line in evidence.lines:
        if line.what == "raised" and line.value not in DOCUMENTED:
            yield f"key {line.key}: a caller saw {line.value}: {line.more}"


_CHECKS = {
    "one_outcome": _one_outcome,
    "real_outcome": _real_outcome,
    "not_again": _not_again,
    "one_at_a_time": _one_at_a_time,
    "unsafe_once": _unsafe_once,
    "comes_to_an_end": _comes_to_an_end,
    "unknown_in_inbox": _unknown_in_inbox,
    "documented_errors": _documented_errors,
}
