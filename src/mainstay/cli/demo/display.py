"""What is shown meanwhile: a live screen, or a line a second and one for each act without one."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from mainstay.cli.demo.traffic import OPERATIONS
from mainstay.cli.screen.console import table
from mainstay.cli.screen.output import write
from mainstay.events import CallFailed, CallSucceeded, RetryAttempt, RetryExhausted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from rich.console import RenderableType

    from mainstay.cli.demo.tally import Count
    from mainstay.cli.demo.traffic import Traffic
    from mainstay.cli.screen.console import Screen
    from mainstay.events import Event


LAST = 8
"""Lines of the acts that are shown at once."""


@contextmanager
def display_on(screen: Screen) -> Iterator[Callable[[Traffic], None]]:
    """The display that fits; it is gone when the calls are done."""
    if not screen.is_live:
        yield Lines()
        return
    with Live(console=screen, auto_refresh=False, transient=True) as live:
        yield lambda traffic: live.update(frame(traffic), refresh=True)


class Lines:
    """One line a second, and one for whatever is said of the acts; for logs and pipes."""

    def __init__(self) -> None:
        self._next = 1.0
        self._is_over = False
        self._told = 0

    def __call__(self, traffic: Traffic) -> None:
        self._count(traffic)
        for line in traffic.story[self._told :]:
            write(f"         {line}")
            self._told += 1

    def _count(self, traffic: Traffic) -> None:
        total = traffic.tally.total
        is_over = total.ended >= traffic.calls
        if self._is_over or (traffic.elapsed < self._next and not is_over):
            return
        self._next, self._is_over = traffic.elapsed + 1.0, is_over
        write(
            f"{traffic.elapsed:5.1f} s  {total.ended} of {traffic.calls} calls:"
            f" {total.first} at first attempt, {total.saved} saved by retries,"
            f" {total.failed} failed; {total.retries} retries"
        )


def frame(traffic: Traffic) -> RenderableType:
    """The whole display at one moment."""
    title = Text("last events", style="bold")
    lines = _acts(traffic) if traffic.story else _recent(traffic)
    return Group(*_progress(traffic), "", operations(traffic), "", title, *lines)


def _progress(traffic: Traffic) -> tuple[Table, Text]:
    ended, in_flight = traffic.tally.total.ended, traffic.wire.in_flight
    waiting = max(0, traffic.begun - ended - in_flight)
    grid = Table.grid(padding=(0, 2))
    bar = ProgressBar(total=traffic.calls, completed=ended, width=30)
    grid.add_row(bar, f"{ended} of {traffic.calls} calls", f"{traffic.elapsed:.1f} s")
    line = Text(f"{in_flight} attempts in flight, {waiting} calls waiting for their next")
    if traffic.service.is_down or (traffic.is_outage and not traffic.story):
        line.append("   the service is down", style="bold red")
    return grid, line


def operations(traffic: Traffic) -> Table:
    """What became of the calls, by operation."""
    columns = ("operation", "policy", "circuit", "first attempt", "saved", "failed", "retries")
    counts, states = traffic.tally.counts, traffic.circuits.states
    rows = (_row(name, states[name][-1], counts[name]) for name in OPERATIONS)
    return table((*columns, "waited"), rows, left=3)


def _row(name: str, state: str, count: Count) -> tuple[RenderableType, ...]:
    return (
        name,
        OPERATIONS[name],
        Text(state, style=_STYLES.get(state, "")),
        str(count.first),
        Text(str(count.saved), style="green"),
        Text(str(count.failed), style="red" if count.failed else ""),
        str(count.retries),
        f"{count.waited:.1f} s",
    )


_STYLES = {"open": "bold red", "half-open": "yellow"}


def _acts(traffic: Traffic) -> Iterator[Text]:
    for line in traffic.story[-LAST:]:
        yield Text(line, style="dim", no_wrap=True, overflow="ellipsis")


def _recent(traffic: Traffic) -> Iterator[Text]:
    for event in tuple(traffic.tally.recent):
        line = f"{event.operation}: {_SAY[type(event)](event)}"
        yield Text(line, style="dim", no_wrap=True, overflow="ellipsis")


def _retry(event: Any) -> str:
    what = f"attempt {event.attempt_number} failed, again in {event.delay_seconds:.2f} s"
    return f"{what} ({event.kind}: {event.exception_message})"


def _saved(event: Any) -> str:
    return f"saved by attempt {event.total_attempts} after {event.total_seconds:.2f} s"


def _lost(event: Any) -> str:
    what = f"failed after {event.total_seconds:.2f} s, {event.stop_reason}"
    return f"{what} ({event.kind}: {event.final_exception_message})"


_SAY: dict[type[Event], Callable[[Any], str]] = {
    CallFailed: _lost,
    CallSucceeded: _saved,
    RetryAttempt: _retry,
    RetryExhausted: _lost,
}
