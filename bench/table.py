"""What a benchmark reports: tables of rows with goals, as text for people and as plain data.

Nothing is measured here. A row that could not be measured has no value and says why.
"""

from __future__ import annotations

from dataclasses import dataclass, field

SPREAD_LIMIT = 0.10
"""A figure on which the parts of a run disagree by more is measured again before it is judged."""


@dataclass(frozen=True, slots=True)
class Table:
    """One question, how it was measured, and the answers."""

    name: str
    title: str
    method: str
    rows: list[Row] = field(default_factory=list)

    def data(self) -> dict[str, object]:
        """The table as JSON-ready values."""
        rows = [row.data() for row in self.rows]
        return {"name": self.name, "title": self.title, "method": self.method, "rows": rows}

    def text(self) -> str:
        """The table as aligned columns."""
        lines: list[tuple[str, ...]] = [("", "value", "goal", "", "spread", "")]
        lines += [row.cells() for row in self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
        body = ["  " + _aligned(line, widths) for line in lines]
        return "\n".join([f"{self.title}  [{self.name}]", *wrapped(self.method), *body])


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure; `spread` says how far the parts of the run disagreed on it.

    `is_repeated`: its table has measured it again, and this is the steadier of the two figures.
    """

    what: str
    value: float | None
    goal: Goal | None = None
    unit: str = "×"
    spread: float | None = None
    note: str = ""
    is_repeated: bool = False

    @property
    def is_noisy(self) -> bool:
        """Whether the machine was too busy to tell."""
        return (self.spread or 0) > SPREAD_LIMIT

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is met; None without a goal or without a value."""
        if self.goal is None or self.value is None:
            return None
        return self.goal.allows(self.value)

    def data(self) -> dict[str, object]:
        """The row as JSON-ready values."""
        return {
            "what": self.what,
            "value": self.value,
            "unit": self.unit,
            "goal": None if self.goal is None else str(self.goal),
            "met": self.is_met,
            "spread": self.spread,
            "note": self.note,
        }

    def cells(self) -> tuple[str, ...]:
        """The row as the columns of a printed table."""
        return (
            self.what,
            "–" if self.value is None else f"{_figure(self.value)} {self.unit}",
            "" if self.goal is None else str(self.goal),
            {True: "met", False: "MISSED", None: "" if self.goal is None else "not measured"}[
                self.is_met
            ],
            "" if self.spread is None else f"{self.spread:.0%}",
            self.note,
        )


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound from the specification of the work."""

    bound: float
    is_ceiling: bool = True

    def allows(self, value: float) -> bool:
        """Whether `value` is on the right side of the bound."""
        return value <= self.bound if self.is_ceiling else value >= self.bound

    def __str__(self) -> str:
        return f"{'≤' if self.is_ceiling else '≥'} {self.bound:g}"


def at_most(bound: float) -> Goal:
    """A goal that smaller figures meet."""
    return Goal(bound)


def at_least(bound: float) -> Goal:
    """A goal that larger figures meet."""
    return Goal(bound, is_ceiling=False)


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    cells = [line[0].ljust(widths[0]), line[1].rjust(widths[1])]
    cells += [cell.ljust(width) for cell, width in zip(line[2:], widths[2:], strict=True)]
    return "  ".join(cells).rstrip()


def wrapped(text: str, width: int = 100) -> list[str]:
    """A text as indented lines."""
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + len(word) >= width:
            lines.append("  " + line)
            line = ""
        line = f"{line} {word}".strip()
    return [*lines, "  " + line] if line else lines
