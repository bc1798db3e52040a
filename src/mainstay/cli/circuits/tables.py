"""Circuits of every process as tables, for people. Imports rich where a table is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.cli.screen.output import shielded

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from rich.console import RenderableType

    from mainstay.cli.screen.layout import Rows
    from mainstay.core.circuit.cluster_status import NodeStatus, Standing

COLUMNS = ("circuit", "state", "processes", "for", "asks again in", "why")
STYLES = {"open": "red", "forced_open": "red", "half_open": "yellow", "closed": "green"}


def ranked(found: Iterable[Standing]) -> list[Standing]:
    """The worst first, then by name."""
    return sorted(found, key=lambda each: (-each.state.gauge, each.name))


def listed(found: Sequence[Standing]) -> Rows:
    """A row for each circuit."""
    from rich.text import Text

    from mainstay.cli.screen.console import table

    rows: list[tuple[RenderableType, ...]] = []
    for each in found:
        name, state, *rest = row(each)
        rows.append((name, Text(state, style=STYLES.get(state, "")), *rest))
    return table(COLUMNS, rows, left=6)


def row(standing: Standing) -> tuple[str, ...]:
    """A circuit in words; the columns are COLUMNS."""
    worst = standing.worst
    if worst is None:
        return shielded(standing.name), standing.state.value, processes(standing), "–", "–", ""
    return (
        shielded(standing.name),
        standing.state.value,
        processes(standing),
        age(worst.seconds_in_state),
        asks_again(worst),
        shielded(_why(standing, worst)),
    )


def processes(standing: Standing) -> str:
    """How many have it in which state: `2`, or `1 of 3` if they differ; `gone` without any."""
    there = len(standing.live)
    if not there:
        return "gone"
    worst = standing.states()[standing.state.value]
    return str(there) if worst == there else f"{worst} of {there}"


def asks_again(place: NodeStatus) -> str:
    """When a further call may help."""
    if place.retry_after is None:
        return "by order only"
    return f"{place.retry_after:.0f} s" if place.retry_after else "–"


def _why(standing: Standing, worst: NodeStatus) -> str:
    waits = standing.pending_nodes
    order = standing.order
    if order is None or not waits:
        return worst.reason
    return f"{worst.reason} [{order.signal.value} by {order.by}: {waits} yet to follow]"


def facts(standing: Standing) -> list[tuple[str, str]]:
    """One circuit as a whole."""
    name, state, there, since, again, why = row(standing)
    rows = [
        ("circuit", name), ("state", f"{state}, for {since}"), ("processes", there),
        ("asks again in", again), ("why", why or "–"),
    ]  # fmt: skip
    order = standing.order
    if order is not None:
        from mainstay.core.base.timestamps import stamp

        when = stamp(order.at)[:19].replace("T", " ")
        rows.append(("last order", f"{order.signal.value} by {order.by}, {when} UTC"))
        rows.append(("its reason", shielded(order.why) or "–"))
    return rows


def places(standing: Standing) -> Rows:
    """A row for each process."""
    from mainstay.cli.screen.console import table

    columns = ("process", "state", "failures", "for", "asks again in", "last seen", "why")
    return table(columns, [_place(each) for each in standing.places], left=7)


def _place(each: NodeStatus) -> tuple[str, ...]:
    last_seen = f"{age(each.seen)} ago" + ("" if each.is_live else ", gone")
    return (
        shielded(each.node), each.state.value, str(each.failures), age(each.seconds_in_state),
        asks_again(each), last_seen, shielded(each.reason),
    )  # fmt: skip


def age(seconds: float) -> str:
    """An age in its largest unit.

    >>> age(7200.0), age(5.0)
    ('2 h', '5 s')
    """
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
