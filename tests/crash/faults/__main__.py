"""Faults by the thousand: `python -m tests.crash.faults --faults 2000`.

Prints the table of faults by store; exits with 1 if a property was violated or a cell had too few
faults.
"""

# ruff: noqa: T201 -- a command prints

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.crash.faults import CELLS, FAULTS, STORES
from tests.crash.faults.table import Totals, write
from tests.crash.faults.trial import Cell, Report


def main() -> int:
    """Runs the campaign."""
    options = _options()
    cells = _chosen(options.only)
    campaign = Campaign(options, len(cells))
    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(lambda cell: campaign.run(*cell), cells))
    totals = campaign.totals
    print(json.dumps(totals.as_json(), indent=2) if options.json else totals.text())
    if options.write:
        write(options.write, totals.markdown(options.seed))
    return 0 if totals.is_whole and not campaign.too_few else 1


class Campaign:
    """The cells, several at a time, and what they come to."""

    def __init__(self, options: argparse.Namespace, cells: int) -> None:
        self.options = options
        self.wanted = math.ceil(options.faults / len(CELLS))
        self.totals = Totals()
        self.too_few: list[str] = []
        self._cells = cells
        self._lock = threading.Lock()
        self._logs = Path(tempfile.gettempdir(), "mainstay-faults")

    def run(self, fault: str, store: str) -> None:
        """Trials of one cell until it had enough faults, or three in a row had none."""
        options = self.options
        with Cell(fault, store, options.seed) as cell:
            if options.trial is not None:
                self._note(cell.run(options.trial))
                return
            made, number, empty = 0, 0, 0
            while made < self.wanted and empty < 3:
                report = cell.run(number, self.wanted - made)
                made, number = made + report.faults, number + 1
                empty = 0 if report.faults else empty + 1
                self._note(report)
        if made < self.wanted:
            self.too_few.append(f"{fault}:{store}")
            self._print(f"{fault}:{store} had {made} faults, {self.wanted} wanted")

    def _note(self, report: Report) -> None:
        with self._lock:
            self.totals.add(report)
            for name, what in report.violations:
                self._print(f"VIOLATED {name} {_again(report, self.options.seed)}: {what}")
            if report.log:
                self._keep(report)
            self._show(report)

    def _keep(self, report: Report) -> None:
        self._logs.mkdir(exist_ok=True)
        path = self._logs / f"{report.fault}-{report.store}-{report.number}.log"
        path.write_text(report.log, encoding="utf-8")
        self._print(f"  the lines of that trial are in {path}")

    def _show(self, report: Report) -> None:
        made = sum(each.faults for each in self.totals.reports)
        of = self.wanted * self._cells
        self._print(
            f"{time.strftime('%H:%M:%S')} {report.fault}:{report.store} trial {report.number}:"
            f" {report.faults} faults, {report.executions} executions, {report.seconds:.0f} s"
            f" [{made}/{of}]"
        )

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)


def _again(report: Report, seed: int) -> str:
    return f"(--only {report.fault}:{report.store} --seed {seed} --trial {report.number})"


def _chosen(only: str) -> list[tuple[str, str]]:
    """The cells that are named, `fault:store` or one of both; the slow ones first."""
    names = [name for name in only.split(",") if name]
    wanted = [
        (fault, store)
        for fault, store in CELLS
        if not names or {fault, store, f"{fault}:{store}"} & set(names)
    ]
    unknown = [n for n in names if not set(n.split(":")) <= {*FAULTS, *STORES}]
    assert not unknown, f"there is no {unknown}"
    slow = ("pause", "restart", "disk", "clock", "fork", "kill", "reply")
    return sorted(wanted, key=lambda cell: slow.index(cell[0]))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Breaks stores and processes; checks the rest.")
    parser.add_argument("--faults", type=int, default=2000, help="in all, over 28 cells")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--only", default="", help="cells: pause, nats, pause:nats; with commas")
    parser.add_argument("--trial", type=int, help="run one trial of each cell again")
    parser.add_argument("--jobs", type=int, default=4, help="cells at a time")
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    parser.add_argument("--write", type=Path, help="a page that gets the table")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
