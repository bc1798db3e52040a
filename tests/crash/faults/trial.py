"""One trial: load, faults, recovery, check."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.crash.faults import LEASE
from tests.crash.faults.checker import Evidence, check
from tests.crash.faults.crew import ENDS_WITHIN, Crew
from tests.crash.faults.injections import KINDS
from tests.crash.faults.nursery import Nursery
from tests.crash.faults.oracle import Oracle
from tests.crash.faults.places import Place

_LANES = 6
_TTL = 30 * 86_400.0
"""Longer than any jump of a clock: an outcome that expires may be executed again."""
_SHORT_TTL = 43_200.0
"""On SQLite, where no jump costs an outcome: shorter than the longest jump."""


@dataclass
class Report:
    """What came of a trial."""

    fault: str
    store: str
    number: int
    faults: int = 0
    executions: int = 0
    keys: int = 0
    seconds: float = 0.0
    violations: list[tuple[str, str]] = field(default_factory=list)
    excused: Counter[str] = field(default_factory=Counter)
    """What was found and not counted as a violation, by reason."""
    log: str = ""
    """The lines of the oracle, where something was violated."""


class Cell:
    """A fault on a store: its place is used by one trial after another."""

    def __init__(self, fault: str, store: str, seed: int) -> None:
        self.fault, self.store, self.seed = fault, store, seed
        self._stack = ExitStack()
        try:
            self.place = Place(store, fault, self._stack)
        except BaseException:
            self._stack.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def run(self, number: int, most: int | None = None, *, is_sample: bool = False) -> Report:
        """Runs the trial of that number, with that many rounds of faults at most.

        A sample has two workers and one process that recovers, instead of three and two, and they
        are forked by one that has imported everything.
        """
        if not is_sample:
            return _Trial(self, number, most).run()
        with Nursery(self.place) as nursery:
            return _Trial(self, number, most, nursery).run()


class _Trial:
    def __init__(
        self, cell: Cell, number: int, most: int | None, nursery: Nursery | None = None
    ) -> None:
        is_sample = nursery is not None
        self.cell, self.place = cell, cell.place
        self.report = Report(cell.fault, cell.store, number)
        self.name = f"trial-{number}"
        self.source = random.Random(f"{cell.seed} {cell.fault}:{cell.store} {number}")
        self.folder = self.place.folder
        kind = KINDS[cell.fault]
        self.oracle = Oracle(self.folder / f"{self.name}.oracle")
        log = self.folder / f"{self.name}.stderr"
        self.crew = Crew(self.place, self.oracle, self._job(), log, nursery)
        self.fault = kind(self.place, self.crew, self.oracle, self.source, self.name)
        self.colours = self.fault.colours(number)[: 2 if is_sample else 3]
        self.asks = 2 if is_sample else 1
        """How often a process that recovers asks for each key."""
        self.rounds = min(kind.per_trial, most or kind.per_trial)

    def _job(self) -> dict[str, object]:
        return {
            "url": self.place.url(self.name),
            "audit": self.place.audit(self.name),
            "scope": self.name,
            "seed": f"{self.cell.seed} {self.name}",
            "lanes": _LANES,
            "wait": 3.0 * LEASE,
            "ttl": _SHORT_TTL if self.cell.store == "sqlite" else _TTL,
            "pad": KINDS[self.cell.fault].needs_pad,
            "is_lossy": (self.cell.fault, self.cell.store) == ("reply", "sqlite"),
        }

    def run(self) -> Report:
        started = time.monotonic()
        try:
            self._break_and_recover()
        except Exception as error:
            self._violated("no_hang", f"the trial itself failed: {type(error).__name__}: {error}")
        finally:
            self.crew.end_all()
            self.place.forget(self.name)
        self.report.seconds = time.monotonic() - started
        if self.report.violations or self.report.excused["machine"]:
            self.report.log = _text(self.folder / f"{self.name}.oracle")
            self.report.log += _text(self.folder / f"{self.name}.stderr")
        return self.report

    def _break_and_recover(self) -> None:
        self.oracle.open()
        self.crew.start(self.colours)
        self.fault.wait_for_load()
        for _ in range(self.rounds):
            self.report.faults += self.fault.inject()
        self._end_load()
        for _ in range(2 // self.asks):
            self._recover()
        self._check()

    def _end_load(self) -> None:
        for problem in [*self.fault.problems, *self.crew.stop()]:
            self._violated("no_hang", problem)
        if not self.oracle.close(ENDS_WITHIN):
            self._violated("no_hang", "a forked child did not end")

    def _recover(self) -> None:
        """Asks for every key, in a new process."""
        keys = self.folder / f"{self.name}.keys"
        asked = sorted({line.key for line in list(self.oracle.lines) if line.what == "asked"})
        keys.write_text(json.dumps(asked), encoding="utf-8")
        self.oracle.open()
        status = self.crew.recover(keys, self.asks)
        if status is None:
            self._violated("no_hang", "the recovery did not end")
        elif status:
            why = _text(self.folder / f"{self.name}.stderr")[-400:]
            self._violated("store_whole", f"the recovery ended with {status}: {why}")
        self.oracle.close(ENDS_WITHIN)

    def _check(self) -> None:
        evidence = Evidence(self.oracle.lines)
        self.report.keys = len(evidence.kinds)
        self.report.executions = sum(map(len, evidence.executions.values()))
        self.report.excused = evidence.excused()
        for name, found in check(evidence):
            self._violated(name, found)
        for line in self.oracle.lines:
            if line.what == "damage" and line.more:
                self._violated("store_whole", line.more)

    def _violated(self, name: str, what: str) -> None:
        self.report.violations.append((name, what))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
