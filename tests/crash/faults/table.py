"""The table of a campaign: as text, as JSON, and as the part of a page between two marks."""

from __future__ import annotations

import platform
import re
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.crash.faults import FAULTS, STORES
from tests.crash.faults.checker import PROPERTIES
from tests.servers import nats, postgres, valkey

if TYPE_CHECKING:
    from tests.crash.faults.trial import Report

NAMES = {
    "kill": "kill -9 of a process",
    "fork": "fork under load",
    "pause": "SIGSTOP past the lease",
    "restart": "kill -9 and restart of the server",
    "reply": "lost reply",
    "disk": "full disk",
    "clock": "clock set by an hour or a day",
}
STORE_NAMES = {"sqlite": "SQLite", "postgres": "PostgreSQL", "valkey": "Valkey", "nats": "NATS"}
_MARKS = ("<!-- faults: python -m tests.crash.faults --write -->", "<!-- end of faults -->")


class Totals:
    """What the trials come to, by cell."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def add(self, report: Report) -> None:
        self.reports.append(report)

    def faults(self, fault: str, store: str) -> int:
        """How many were injected in a cell."""
        return sum(each.faults for each in self._of(fault, store))

    def violations(self, fault: str, store: str) -> int:
        """How many were found in a cell."""
        return sum(len(each.violations) for each in self._of(fault, store))

    def _of(self, fault: str, store: str) -> list[Report]:
        return [each for each in self.reports if (each.fault, each.store) == (fault, store)]

    @property
    def is_whole(self) -> bool:
        """Whether nothing was violated."""
        return not any(each.violations for each in self.reports)

    def cell(self, fault: str, store: str) -> str:
        """Faults, and violations if there were any."""
        reports, found = self._of(fault, store), self.violations(fault, store)
        if not reports:
            return "–"
        broken = f", {found} broken" if found else ""
        return f"{self.faults(fault, store)}{broken}"

    def rows(self) -> list[list[str]]:
        """The table, with its heading and its sums."""
        head = ["fault", *(STORE_NAMES[store] for store in STORES), "in all"]
        rows = [
            [NAMES[fault], *(self.cell(fault, store) for store in STORES), self._sum([fault])]
            for fault in FAULTS
        ]
        sums = [str(sum(self.faults(fault, store) for fault in FAULTS)) for store in STORES]
        return [head, *rows, ["in all", *sums, self._sum(FAULTS)]]

    def _sum(self, faults: Iterable[str]) -> str:
        return str(sum(self.faults(fault, store) for fault in faults for store in STORES))

    def properties(self) -> dict[str, int]:
        """How often each property was violated."""
        found = Counter(name for each in self.reports for name, _ in each.violations)
        return {name: found[name] for name in PROPERTIES}

    def text(self) -> str:
        """For a terminal."""
        rows = self.rows()
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        lines = [
            "  ".join(
                text.ljust(width) if at == 0 else text.rjust(width)
                for at, (text, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in rows
        ]
        broken = [f"{name}: {count}" for name, count in self.properties().items()]
        return "\n".join(
            [*lines, "", f"violations: {', '.join(broken)}", self.excused(), self.summary()]
        )

    def summary(self) -> str:
        """What was done besides, in one line."""
        return (
            f"{len(self.reports)} trials, {self._sum(FAULTS)} faults,"
            f" {sum(each.keys for each in self.reports):,} keys,"
            f" {sum(each.executions for each in self.reports):,} executions"
        )

    def excused(self) -> str:
        """What was not counted as a violation, in one line."""
        found = sum((each.excused for each in self.reports), Counter[str]())
        by_machine = [
            f"{each.fault}:{each.store}" for each in self.reports if each.excused["machine"]
        ]
        where = f" ({', '.join(sorted(set(by_machine)))})" if by_machine else ""
        return (
            f"Overlaps after an injected fault cost the lease: {found['fault']}; after the machine"
            f" alone did: {found['machine']}{where}. Executions entered before the outcome was"
            f" seen whose line came after it: {found['late line']}."
        )

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        cells = {
            f"{fault}:{store}": {
                "faults": self.faults(fault, store),
                "trials": len(self._of(fault, store)),
                "violations": self.violations(fault, store),
            }
            for fault in FAULTS
            for store in STORES
            if self._of(fault, store)
        }
        return {
            "cells": cells,
            "properties": self.properties(),
            "excused": self.excused(),
            "versions": versions(),
        }

    def markdown(self, seed: int) -> str:
        """For a page."""
        head, *rows = [" | ".join(row) for row in self.rows()]
        rule = " | ".join(["---", *["--:"] * (len(STORES) + 1)])
        table = [f"| {line} |" for line in (head, rule, *rows)]
        broken = [
            f"{name.replace('_', ' ')}, {n} times" for name, n in self.properties().items() if n
        ]
        found = f"Violated: {'; '.join(broken)}." if broken else "No property was violated."
        used = ", ".join(f"{name} {number}" for name, number in versions().items())
        return "\n".join(
            [
                *table,
                "",
                f"{self.summary()}; seed {seed}. {found}",
                "",
                self.excused(),
                "",
                f"Ran on {used}.",
            ]
        )


def write(page: Path, text: str) -> None:
    """Puts a text between the marks of a page."""
    begin, end = map(re.escape, _MARKS)
    old = page.read_text(encoding="utf-8")
    new, count = re.subn(
        f"({begin}\n).*?(\n{end})", lambda m: f"{m[1]}\n{text}\n{m[2]}", old, flags=re.DOTALL
    )
    assert count == 1, f"{page} has no marks"
    page.write_text(new, encoding="utf-8")


def versions() -> dict[str, str]:
    """What the campaign ran on."""
    programs = {
        "PostgreSQL": [str((postgres.server_programs() or Path()) / "postgres"), "--version"],
        "Valkey": [str(valkey.server_binary()), "--version"],
        "nats-server": [str(nats.server_binary()), "--version"],
    }
    packages = {"psycopg": "psycopg", "redis-py": "redis", "nats-py": "nats-py"}
    return {
        platform.system(): platform.release().partition("-")[0],
        "CPython": platform.python_version(),
        "SQLite": sqlite3.sqlite_version,
        **{name: _printed(command) for name, command in programs.items()},
        **{name: _installed(package) for name, package in packages.items()},
    }


def _printed(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30.0, check=False)
    except OSError:
        return "not found"
    found = re.search(r"\d+\.\d+(\.\d+)?", done.stdout)
    return found[0] if found else "unknown"


def _installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
