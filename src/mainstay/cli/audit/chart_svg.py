"""A chart as SVG text, made by hand: pairs of bars, and two lines over time. Needs no library."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from math import ceil, floor, log10
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

WIDTH, HEIGHT = 860, 520
COLOURS = ("#8a8f98", "#1f6feb")
"""Recorded, and new; distinct by lightness too, for readers who see no colours."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 836, 260, 470
_MOST_POINTS = 400
_STYLE = f'width="{WIDTH}" height="{HEIGHT}" role="img" font-family="system-ui, sans-serif"'

Bar = tuple[str, float, float, str, str]
"""A name, two values, and how they are written."""
Point = tuple[float, float, float]
"""A moment, and two values."""


def chart(title: str, subtitle: str, bars: Sequence[Bar], series: Sequence[Point]) -> str:
    """The whole picture.

    >>> chart("a", "b", [("attempts", 3.0, 2.0, "3", "2")], [(0.0, 1.0, 2.0)])[:4]
    '<svg'
    """
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {_STYLE}>',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(24, 28, title, size=16, weight=600),
        _text(24, 46, subtitle, colour="#57606a"),
        *_legend(),
        *_bars(bars),
        *_lines(thinned(series)),
        "</svg>\n",
    ]
    return "\n".join(parts)


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "start",
    size: int = 12,
    weight: int = 400,
    colour: str = "#24292f",
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}"'
        f' font-weight="{weight}" fill="{colour}">{escape(text)}</text>'
    )


def _legend() -> Iterator[str]:
    for number, (name, colour) in enumerate(zip(("recorded", "new"), COLOURS, strict=True)):
        x = _RIGHT - 160 + number * 90
        yield f'<rect x="{x}" y="18" width="12" height="12" fill="{colour}"/>'
        yield _text(x + 18, 28, name)


def _bars(bars: Sequence[Bar]) -> Iterator[str]:
    """Each pair is drawn to its own scale: their units differ."""
    wide = (_RIGHT - 24) / max(1, len(bars))
    for number, (name, was, now, was_text, now_text) in enumerate(bars):
        x = 24 + number * wide
        most = max(was, now) or 1.0
        for side, (value, text) in enumerate(((was, was_text), (now, now_text))):
            tall = 96 * value / most
            left = x + 6 + side * 44
            yield (
                f'<rect x="{left:.1f}" y="{180 - tall:.1f}" width="36" height="{tall:.1f}"'
                f' fill="{COLOURS[side]}"/>'
            )
            yield _text(left + 18, 174 - tall, text, anchor="middle", size=11)
        yield _text(x + 46, 200, name, anchor="middle", colour="#57606a")


def _lines(series: Sequence[Point]) -> Iterator[str]:
    yield _text(_LEFT - 40, _TOP - 16, "attempts per second", weight=600)
    if not series:
        yield _text(_LEFT, _TOP + 40, "no event has a time", colour="#57606a")
        return
    if len(series) == 1:  # a line needs two ends
        series = [series[0], (series[0][0] + 60.0, *series[0][1:])]
    ticks = nice_ticks(max(max(was, now) for _, was, now in series))
    first, last = series[0][0], series[-1][0]
    for tick in ticks:
        y = _y(tick, ticks[-1])
        yield f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#d8dee4"/>'
        yield _text(_LEFT - 8, y + 4, f"{tick:g}", anchor="end", size=11, colour="#57606a")
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        label = moment_text(first + share * (last - first), last - first)
        x = _LEFT + share * (_RIGHT - _LEFT)
        yield _text(x, _BOTTOM + 20, label, anchor=anchor, size=11, colour="#57606a")
    for side, colour in enumerate(COLOURS):
        points = " ".join(
            f"{_x(point[0], first, last):.1f},{_y(point[1 + side], ticks[-1]):.1f}"
            for point in series
        )
        yield f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.8"/>'


def _x(moment: float, first: float, last: float) -> float:
    return _LEFT + (_RIGHT - _LEFT) * (moment - first) / ((last - first) or 1.0)


def _y(value: float, most: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * value / most


def nice_ticks(most: float) -> list[float]:
    """Four to seven round numbers from 0 to at least `most`.

    >>> nice_ticks(83.0)
    [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
    """
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 4
    unit = 10.0 ** floor(log10(rough))
    step = next(unit * n for n in (1, 2, 2.5, 5, 10) if unit * n * 4.999 >= most)
    return [round(step * n, 12) for n in range(ceil(most / step) + 1)]


def moment_text(moment: float, span: float) -> str:
    """A moment in UTC, as exact as the span of time asks for.

    >>> moment_text(0.0, 60.0), moment_text(0.0, 1e6)
    ('1970-01-01 00:00 UTC', '1970-01-01')
    """
    form = "%Y-%m-%d" if span > 3 * 86400 else "%Y-%m-%d %H:%M UTC"
    return datetime.fromtimestamp(moment, UTC).strftime(form)


def thinned(series: Sequence[Point], most: int = _MOST_POINTS) -> list[Point]:
    """At most `most` points; of those that fall together, the highest.

    >>> thinned([(0.0, 1.0, 5.0), (1.0, 2.0, 4.0), (2.0, 3.0, 3.0)], most=2)
    [(0.0, 2.0, 5.0), (2.0, 3.0, 3.0)]
    """
    each = ceil(len(series) / most) if series else 1
    groups = [series[n : n + each] for n in range(0, len(series), each)]
    return [(g[0][0], max(p[1] for p in g), max(p[2] for p in g)) for g in groups]
