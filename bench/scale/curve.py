"""A curve: sizes, what was measured at each, and the exponent with which it grows.

Nothing is measured here. A cost is stored for all of the work at a size; it may be printed for each
piece. The exponent is the slope of log cost over log size by least squares: 1 is linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bench.table import wrapped

LIMIT = 1.1
"""The exponent that the cost of a curve has at most, unless its reason is given."""
BOUNDED = 0.1
"""The same for memory that does not depend on the size."""
_UNITS = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "KB"), (1.0, "B")),
}


@dataclass(frozen=True, slots=True)
class Fit:
    """How a cost grows: `exponent` over all sizes, `last` over the last step alone."""

    exponent: float
    error: float | None
    """The standard error of the exponent; None for two points, which any line goes through."""
    last: float

    def text(self) -> str:
        """The exponent with its error, as a person reads it."""
        return f"{self.exponent:.2f}" + ("" if self.error is None else f" ± {self.error:.2f}")


def fit(points: list[tuple[float, float]]) -> Fit | None:
    """The least squares of log cost over log size; None for fewer than two sizes.

    A cost of zero has no logarithm: its point is left out.
    """
    logs = [(math.log(n), math.log(cost)) for n, cost in points if n > 0 and cost > 0]
    if len({x for x, _ in logs}) < 2:
        return None
    middle = [math.fsum(each) / len(logs) for each in zip(*logs, strict=True)]
    wide = math.fsum((x - middle[0]) ** 2 for x, _ in logs)
    slope = math.fsum((x - middle[0]) * (y - middle[1]) for x, y in logs) / wide
    off = math.fsum((y - middle[1] - slope * (x - middle[0])) ** 2 for x, y in logs)
    error = math.sqrt(off / (len(logs) - 2) / wide) if len(logs) > 2 else None
    (x0, y0), (x1, y1) = logs[-2:]
    return Fit(slope, error, (y1 - y0) / (x1 - x0))


@dataclass(frozen=True, slots=True)
class Series:
    """One column of a curve.

    A cost is fitted; `each` prints it for one of n. What is no cost (a ratio, a count) is printed
    as it is. `limit` is the bound of the exponent; with a `reason` a larger exponent is explained.
    """

    name: str
    unit: str = "s"
    is_cost: bool = True
    each: bool = True
    limit: float | None = LIMIT
    reason: str = ""

    def shown(self, n: int, value: float | None) -> str:
        """A figure as a person reads it."""
        if value is None:
            return "–"
        return figure(value / n if self.is_cost and self.each else value, self.unit)

    def relative(self, n: int, value: float | None, first: tuple[int, float] | None) -> str:
        """A figure without a time of this machine: a cost as a multiple of the smallest size's."""
        if value is None or (self.is_cost and first is None):
            return "–"
        if not self.is_cost:
            return figure(value, self.unit)
        assert first is not None
        ratio = value / first[1]
        return figure(ratio * first[0] / n if self.each else ratio, "×")


def ratio(name: str) -> Series:
    """A column that compares with a floor; it is printed as it is."""
    return Series(name, "×", is_cost=False, limit=None)


def count(name: str) -> Series:
    """A column that counts something that is no cost."""
    return Series(name, "", is_cost=False, limit=None)


@dataclass(frozen=True, slots=True)
class Point:
    """What was measured at one size, by the name of its column."""

    n: int
    figures: dict[str, float]


@dataclass(frozen=True, slots=True)
class Curve:
    """One question over several sizes."""

    name: str
    title: str
    of: str
    """What n counts."""
    method: str
    series: list[Series]
    points: list[Point] = field(default_factory=list)
    left_out: str = ""
    """Which sizes were not measured, and why."""

    def fit(self, series: Series) -> Fit | None:
        """How a column grows; None if it is no cost, or has fewer than two sizes."""
        if not series.is_cost:
            return None
        named = [(p.n, p.figures[series.name]) for p in self.points if series.name in p.figures]
        return fit([(float(n), cost) for n, cost in named])

    def is_met(self, series: Series) -> bool | None:
        """Whether a column grows no faster than its limit; None without a limit or an exponent."""
        found = self.fit(series)
        return None if series.limit is None or found is None else found.exponent <= series.limit

    def data(self) -> dict[str, object]:
        """The curve as JSON-ready values."""
        return {
            "name": self.name,
            "title": self.title,
            "of": self.of,
            "method": self.method,
            "points": [{"n": point.n, **point.figures} for point in self.points],
            "left_out": self.left_out,
            "series": [self._series_data(each) for each in self.series],
        }

    def _series_data(self, series: Series) -> dict[str, object]:
        found = self.fit(series)
        return {
            "name": series.name,
            "unit": series.unit,
            "exponent": found and found.exponent,
            "error": found and found.error,
            "last_step": found and found.last,
            "limit": series.limit,
            "met": self.is_met(series),
            "reason": series.reason,
        }

    def text(self) -> str:
        """The curve as aligned columns, with times and bytes of this machine."""
        shown = self._rows([[each.shown(p.n, p.figures.get(each.name)) for each in self.series]
                            for p in self.points])  # fmt: skip
        widths = [max(len(line[column]) for line in shown) for column in range(len(shown[0]))]
        body = ["  " + _aligned(line, widths) for line in shown]
        lines = [f"{self.title}  [{self.name}]", *wrapped(self.method), *body]
        return "\n".join([*lines, *(f"  {note}" for note in self._notes())])

    def markdown(self) -> str:
        """The curve as a table for the docs: ratios and exponents, no time of this machine."""
        first = {
            series.name: next(
                ((p.n, p.figures[series.name]) for p in self.points if series.name in p.figures),
                None,
            )
            for series in self.series
        }
        rows = self._rows([
            [each.relative(p.n, p.figures.get(each.name), first[each.name]) for each in self.series]
            for p in self.points
        ])  # fmt: skip
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        lines.insert(1, "|" + " --- |" * len(rows[0]))
        notes = [line for note in self._notes() for line in ("", *_folded(note))]
        notes = [
            line.partition(";")[0] if line.startswith("not measured") else line for line in notes
        ]
        return "\n".join([*_folded(self.method), "", *lines, *notes])

    def _rows(self, cells: list[list[str]]) -> list[tuple[str, ...]]:
        fits = [self.fit(each) for each in self.series]
        rows = [(self.of, *(series.name for series in self.series))]
        for point, row in zip(self.points, cells, strict=True):
            rows.append((f"{point.n:,}", *row))
        if any(fits):
            rows.append(("exponent", *("" if found is None else found.text() for found in fits)))
            rows.append(("last step", *("" if f is None else f"{f.last:.2f}" for f in fits)))
            rows.append(("at most", *(self._verdict(each) for each in self.series)))
        return rows

    def _verdict(self, series: Series) -> str:
        if series.limit is None:
            return ""
        word = {True: "met", False: "EXPLAINED" if series.reason else "MISSED", None: "–"}
        return f"{series.limit:g} {word[self.is_met(series)]}"

    def _notes(self) -> list[str]:
        notes = [self.left_out] if self.left_out else []
        above = [each for each in self.series if self.is_met(each) is False and each.reason]
        return notes + [f"{each.name}: {each.reason}" for each in above]


def _aligned(line: tuple[str, ...], widths: list[int]) -> str:
    cells = [line[0].ljust(widths[0])]
    cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
    return "  ".join(cells).rstrip()


def _folded(text: str) -> list[str]:
    """A paragraph as lines of a page."""
    return [line.strip() for line in wrapped(text)]


def figure(value: float, unit: str) -> str:
    """A number in the unit that a person would choose.

    >>> figure(0.0000213, "s"), figure(2_500_000, "B"), figure(1.234, "×")
    ('21.3 µs', '2.5 MB', '1.23 ×')
    """
    for least, name in _UNITS.get(unit, ()):
        if abs(value) >= least or name == _UNITS[unit][-1][1]:
            return f"{_digits(value / least)} {name}"
    return f"{_digits(value)} {unit}".rstrip()


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
