"""The same chart as PNG, by matplotlib: the extra `charts`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.cli.audit.chart_svg import COLOURS, moment_text, thinned
from mainstay.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mainstay.cli.audit.chart_svg import Bar, Point


def save(
    path: str, title: str, subtitle: str, bars: Sequence[Bar], series: Sequence[Point]
) -> None:
    """Draws the chart into a file."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "charts") from None
    figure = Figure(figsize=(8.6, 5.2), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(f"{title}\n{subtitle}", fontsize=10)
    grid = figure.add_gridspec(2, max(1, len(bars)), height_ratios=(1, 1.4))
    for number, bar in enumerate(bars):
        _bars(figure.add_subplot(grid[0, number]), bar)
    _lines(figure.add_subplot(grid[1, :]), thinned(series))
    figure.savefig(path, format="png", dpi=120)


def _bars(axes: Any, bar: Bar) -> None:
    name, was, now, was_text, now_text = bar
    drawn = axes.bar(("recorded", "new"), (was, now), color=COLOURS, width=0.7)
    axes.bar_label(drawn, (was_text, now_text), fontsize=8)
    axes.set_title(name, fontsize=9)
    axes.set_yticks(())
    axes.margins(y=0.2)
    axes.tick_params(labelsize=7)


def _lines(axes: Any, series: Sequence[Point]) -> None:
    axes.set_title("attempts per second", fontsize=9)
    span = series[-1][0] - series[0][0] if series else 0.0
    for side, name in enumerate(("recorded", "new")):
        moments, values = [p[0] for p in series], [p[1 + side] for p in series]
        axes.plot(moments, values, color=COLOURS[side], label=name, linewidth=1.4)
    ends = [series[0][0], series[-1][0]] if series else []
    axes.set_xticks(ends, [moment_text(end, span) for end in ends], fontsize=7)
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=8)
