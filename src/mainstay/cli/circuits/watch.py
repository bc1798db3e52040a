"""`mainstay circuits watch`: a table drawn anew in its place, or a line for each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.cli.screen.output import write
from mainstay.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from mainstay.cli.screen.console import Screen
    from mainstay.core.circuit.cluster_status import Standing
    from mainstay.ports import Store


def watch_screen(store: Store, screen: Screen, every: float) -> None:
    """Draws until Ctrl+C; the last picture stays."""
    from rich.live import Live

    with Live(console=screen, auto_refresh=False) as live:
        for found in _looks(store, every):
            live.update(_picture(found), refresh=True)


def _looks(store: Store, every: float) -> Iterator[list[Standing] | StoreUnavailable]:
    """The circuits, again and again; or the error of an unavailable store, which ends nothing."""
    from mainstay.drivers.inbox.circuit_admin import shared_circuits
    from mainstay.runtime.clock import SYSTEM

    while True:
        try:
            yield shared_circuits(store)
        except StoreUnavailable as error:
            yield error
        SYSTEM.sleep(every)


def _picture(found: list[Standing] | StoreUnavailable) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from mainstay.cli.circuits.tables import listed, ranked
    from mainstay.cli.screen.output import shown

    if isinstance(found, StoreUnavailable):
        return Text(shown(f"the store is unavailable: {found}"))
    foot = Text(f"{_count(found)}; Ctrl+C ends", style="dim")
    return Group(listed(ranked(found)), foot) if found else foot


def _count(found: list[Standing]) -> str:
    several = "1 circuit" if len(found) == 1 else f"{len(found):,} circuits"
    return f"{several}, {sum(each.is_open for each in found):,} not closed"


def watch_lines(store: Store, every: float, as_json: bool) -> None:
    """Writes each circuit as it is found, and then every change of one."""
    known: dict[str, tuple[str, ...]] = {}
    was_unavailable = False
    for found in _looks(store, every):
        if isinstance(found, StoreUnavailable):
            if not was_unavailable:
                _write_unavailable(found, as_json)
            was_unavailable = True
            continue
        was_unavailable = False
        for each in found:
            seen = _seen(each)
            if known.get(each.name) != seen:
                _write_change(each, known.get(each.name), as_json)
                known[each.name] = seen


def _seen(standing: Standing) -> tuple[str, ...]:
    """What counts as a change: the state, how many have it, the last order and who follows it."""
    from mainstay.cli.circuits.tables import processes

    order = 0 if standing.order is None else standing.order.number
    return standing.state.value, processes(standing), str(order), str(standing.pending_nodes)


def _write_change(standing: Standing, before: tuple[str, ...] | None, as_json: bool) -> None:
    from mainstay.cli.circuits.tables import row
    from mainstay.core.base.timestamps import stamp
    from mainstay.runtime import clock

    at = stamp(clock.current.wall())
    if as_json:
        _write_line({"at": at, "from": before and before[0], **standing.to_dict()})
        return
    name, state, there, _, _, why = row(standing)
    change = f"{before[0]} -> {state}" if before and before[0] != state else state
    write(f"{at[:19].replace('T', ' ')}  {name}: {change} ({there}) {why}".rstrip())


def _write_unavailable(error: StoreUnavailable, as_json: bool) -> None:
    from mainstay.core.events.describe import reason_of

    message = reason_of(error)
    if as_json:
        _write_line({"store": "away", "message": message})
    else:
        write(f"the store is unavailable: {message}")


def _write_line(document: object) -> None:
    import json

    from mainstay.core.redact.redactor import REDACTOR

    write(json.dumps(REDACTOR.data(document), allow_nan=False))
