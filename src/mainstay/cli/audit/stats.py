"""`mainstay audit stats`: attempts, success, waits and waste in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import shielded, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.cli.screen.layout import Rows
    from mainstay.core.analytics.aggregates import Figures
    from mainstay.core.analytics.stats import Stats

DIMENSIONS = ("operation", "category", "tenant")


@click.command(
    "stats",
    epilog=example(
        "mainstay audit stats mainstay-audit.jsonl",
        "mainstay audit stats sqlite:///mainstay.db --since 2h --by tenant --top 5",
    ),
)
@click.argument("log")
@click.option("--since", metavar="WHEN", default="", help="From then on: ISO 8601, or 2h ago.")
@click.option("--until", metavar="WHEN", default="", help="Before then.")
@click.option(
    "--by",
    type=click.Choice(DIMENSIONS),
    multiple=True,
    help="Which tables to show; may be given more than once. All, unless given.",
)
@click.option(
    "--top", type=click.IntRange(1, 1000), default=10, show_default=True, help="Rows of a table."
)
@json_option
def command(log: str, since: str, until: str, by: tuple[str, ...], top: int, as_json: bool) -> None:
    """Count what a log holds: attempts, success, waits and waste.

    One pass in bounded memory, however long the log. A call counts where it ended. The delays'
    percentiles are within 1 % of the exact ones, or the error is shown.
    """
    from mainstay.audit.stream import read_records
    from mainstay.cli.screen.progress import watched
    from mainstay.core.analytics.stats import stats

    span = {"since": _moment("--since", since), "until": _moment("--until", until)}
    found = stats(watched(read_records(log), "events"), by=by or DIMENSIONS, top=top, **span)
    if as_json:
        write_json({"log": log, **{k: v or None for k, v in span.items()}, **found.to_dict()})
    else:
        _show(log, found)


def _moment(option: str, text: str) -> str:
    """The moment an option names, in the form that records are compared in."""
    if not text:
        return ""
    from datetime import UTC, datetime

    from mainstay.core.base.timestamps import parse_moment, written
    from mainstay.runtime import clock

    try:
        return written(parse_moment(text, datetime.fromtimestamp(clock.current.wall(), UTC)))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _show(log: str, found: Stats) -> None:
    from mainstay.cli.screen.console import Screen, fields

    screen = Screen()
    screen.show(fields([("log", shielded(log)), *_facts(found)]))
    for by in found.tables:
        screen.show("", _table(by, found, screen.width))
    for text in _notes(found):
        screen.print(text, style="dim", soft_wrap=True)


def _facts(found: Stats) -> Iterator[tuple[str, str]]:
    total = found.total
    yield "events", f"{found.events:,}{_between(found)}"
    yield "calls", _calls(total)
    yield "attempts", f"{total.attempts:,}, {number(total.mean_attempts)} a call that ended"
    yield "success", _success(total)
    yield "retried attempts", f"{percent(total.retry_success_rate)} of them succeeded"
    yield "waits", _waits(total)
    yield "wasted", _wasted(total)
    if total.reasons:
        yield "given up because", _listed(total.reasons)
    if total.refused:
        yield "refused by", _listed(total.refusers)
    if found.circuits:
        yield "circuits opened", _listed(found.circuits)


def _between(found: Stats) -> str:
    return f", {found.first}Z to {found.last}Z" if found.first else ""


def _calls(total: Figures) -> str:
    parts = {
        "succeeded at once": total.first_time + total.counted,
        "succeeded after retries": total.recovered,
        "exhausted": total.exhausted,
        "failed for good": total.failed,
        "refused": total.refused,
        "interrupted": total.interrupted,
        "unfinished": total.unfinished,
        "answered by a fallback": total.fallbacks,
    }
    shown = [f"{count:,} {word}" for word, count in parts.items() if count]
    return f"{total.calls:,}" + (f": {', '.join(shown)}" if shown else "")


def _success(total: Figures) -> str:
    after = f"{percent(total.recovery_rate)} of calls that met a failure"
    return f"{percent(total.success_rate)} of calls, {after}" if _is_whole(total) else after


def _is_whole(figures: Figures) -> bool:
    return figures.knows_first_successes


def _waits(total: Figures) -> str:
    if not total.delays.total:
        return "none"
    shown = [f"p{share * 100:.0f} {seconds(total.delays.quantile(share))}" for share in _SHARES]
    return f"{', '.join(shown)} (±{total.delays.error * 100:.0f} %), {seconds(total.waited)} in all"


_SHARES = (0.5, 0.9, 0.99)


def _wasted(total: Figures) -> str:
    return (
        f"{total.failed_before_success:,} attempts and {seconds(total.waited_before_success)}"
        " before a success;"
        f" {total.failed_in_vain:,} attempts and {seconds(total.waited_in_vain)} in vain"
    )


def _listed(words: dict[str, int]) -> str:
    from mainstay.core.analytics.aggregates import most_first

    shown = [f"{shielded(word)} {count:,}" for word, count in most_first(words).items()]
    return ", ".join(shown[:8]) + (f", {len(shown) - 8} more" if len(shown) > 8 else "")


def _table(by: str, found: Stats, width: int) -> Rows:
    from mainstay.cli.screen.console import table

    columns = _columns(width)
    rows, other = found.rows(by)
    shown = [(_name(by, name, figures), *_cells(figures, columns)) for name, figures in rows]
    if other is not None:
        shown.append(("(other)", *_cells(other, columns)))
    return table((by, *columns), shown)


def _columns(width: int) -> list[str]:
    """Those that fit; `--json` has all of them."""
    least = 130 if width >= 130 else 100 if width >= 100 else 0
    return [name for name, (_, needs) in _CELLS.items() if needs <= least]


def _name(by: str, name: str, figures: Figures) -> str:
    return (shielded(name) or f"(no {by})") + (" †" if figures.missed else "")


def _cells(figures: Figures, columns: list[str]) -> list[str]:
    return [_CELLS[column][0](figures) for column in columns]


def _rate(figures: Figures) -> str:
    star = "*" if figures.success_rate is not None and not _is_whole(figures) else ""
    return percent(figures.success_rate) + star


def _delay(share: float) -> Callable[[Figures], str]:
    return lambda figures: seconds(figures.delays.quantile(share))


_CELLS: dict[str, tuple[Callable[[Figures], str], int]] = {
    "calls": (lambda figures: f"{figures.calls:,}", 0),
    "attempts": (lambda figures: f"{figures.attempts:,}", 0),
    "mean": (lambda figures: number(figures.mean_attempts), 100),
    "success": (_rate, 0),
    "of retries": (lambda figures: percent(figures.retry_success_rate), 0),
    "p50": (_delay(0.5), 100),
    "p90": (_delay(0.9), 130),
    "p99": (_delay(0.99), 0),
    "waited": (lambda figures: seconds(figures.waited), 130),
    "wasted": (lambda figures: f"{figures.failed_before_success + figures.failed_in_vain:,}", 0),
    "in vain": (lambda figures: f"{figures.failed_in_vain:,}", 130),
    "refused": (lambda figures: f"{figures.refused:,}", 130),
}
"""What a column shows, and the width of screen that it asks for."""


def _notes(found: Stats) -> Iterator[str]:
    """What the figures leave out."""
    shown = [figures for by in found.tables for _, figures in found.rows(by)[0]]
    if not all(_is_whole(figures) for figures in (*shown, found.total)):
        yield "* of calls that met a failure: those that succeeded at once are not in the log"
    most = max((figures.missed for figures in shown), default=0)
    if most:
        yield f"† came late into a full table: up to {most:,} of its events count as (other)"
    if found.forgotten:
        yield f"{found.forgotten:,} calls were too many to follow: their waits are not split"
    if found.unreadable:
        yield f"{found.unreadable:,} records could not be read and are in no figure"
    if found.lost:
        yield f"{found.lost:,} records were lost before they could be written, and are in no figure"
    if found.undated and (found.since or found.until):
        yield f"{found.undated:,} events have no time and are in no range"


def percent(value: float | None) -> str:
    """A share in per cent.

    >>> percent(0.985), percent(None)
    ('98.5 %', '–')
    """
    return "–" if value is None else f"{value * 100:.1f} %"


def number(value: float | None) -> str:
    """A mean, or a dash.

    >>> number(1.5)
    '1.50'
    """
    return "–" if value is None else f"{value:.2f}"


def seconds(value: float | None) -> str:
    """Seconds to three digits; from an hour on, hours.

    >>> seconds(0.1234), seconds(1234.5), seconds(5400.0), seconds(None)
    ('0.123 s', '1,234 s', '1.5 h', '–')
    """
    if value is None:
        return "–"
    if value >= 3600:
        return f"{value / 3600:,.1f} h"
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"
