"""`mainstay status`: open circuits, inbox items, running and waiting calls, undelivered events."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from mainstay.cli.inbox.identity import default_place, opened, store_option
from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import shielded, write, write_json

if TYPE_CHECKING:
    from typing import TypeAlias

    from mainstay.cli.status.read import Status

    Rows: TypeAlias = list[tuple[str, ...]]

_MOST = 20
"""Rows of a table; `--json` has all of them."""


@click.command(
    "status",
    epilog=example(
        "mainstay status --store sqlite:///app.db",
        "mainstay status --json --store postgresql://localhost/app",
    ),
)
@store_option
@json_option
def command(as_json: bool) -> None:
    """Show circuits, inbox items, calls, undelivered events.

    Reads the store that --store or the configuration names, by default that of `mainstay exec`, and
    the folders of events that could not be delivered.
    """
    from mainstay.cli.spill.command import spill_places
    from mainstay.cli.status.read import read_status

    with opened(looks=True) as engine:
        found = read_status(engine, spill_places())
    found = replace(found, store=default_place() or found.store)
    if as_json:
        write_json(found.to_dict())
    else:
        _show(found)


def _show(found: Status) -> None:
    from mainstay.cli.screen.console import Screen, fields

    screen = Screen()
    screen.show(fields(_facts(found)))
    for title, columns, rows in _tables(found):
        if rows:
            from mainstay.cli.screen.console import table

            screen.show("", table(columns, rows[:_MOST], left=len(columns)))
            if len(rows) > _MOST:
                write(f"{len(rows) - _MOST:,} more {title}; --json has them all")


def _facts(found: Status) -> list[tuple[str, str]]:
    open_, worst = found.open_circuits, found.items[0] if found.items else None
    running = [each for each in found.running if not each.is_left]
    left = len(found.running) - len(running)
    aside = sum(each.aside for each in found.spilled)
    files = sum(each.files for each in found.spilled)
    needs = f"{len(found.items):,}" + (f", the worst {worst.severity}" if worst else "")
    rows = [
        ("store", found.store),
        ("circuits", f"{len(open_):,} of {len(found.circuits):,} not closed"),
        ("needs a person", needs),
        (
            "running",
            f"{_several(len(running), 'keyed call')}, {left:,} left by a process that is gone",
        ),
        ("waiting", f"{_several(len(found.waiting) + found.more_waiting, 'call')} to be retried"),
        (
            "undelivered",
            f"{_several(files, 'file')} of events" + (f", {aside:,} unreadable" if aside else ""),
        ),
    ]
    if not found.is_whole:
        rows.append(("", f"keyed calls: of the first {found.looked_at:,} records only"))
    return rows


def _several(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def _tables(found: Status) -> list[tuple[str, tuple[str, ...], Rows]]:
    from mainstay.cli.circuits.tables import COLUMNS, age, row

    items: Rows = [
        (
            each.id,
            age(each.age(found.now)),
            *map(shielded, (each.severity, each.operation, each.text)),
        )
        for each in found.items
    ]
    running: Rows = [
        (shielded(each.operation), shielded(each.key), str(each.attempts),
         age(found.now - each.started), each.lease(found.now))
        for each in found.running
    ]  # fmt: skip
    waiting: Rows = [
        (shielded(each.operation), f"{each.attempt} of {each.max_attempts}",
         shielded(each.error or "the result was not accepted"), age(each.until - found.now))
        for each in found.waiting
    ]  # fmt: skip
    spilled: Rows = [
        (each.where, str(each.files), f"{each.size:,}", str(each.aside)) for each in found.spilled
    ]
    return [
        ("circuits", COLUMNS, [row(each) for each in found.open_circuits]),
        ("items", ("needs a person", "age", "severity", "operation", "what"), items),
        ("calls", ("running", "key", "attempts", "for", "lease"), running),
        ("waits", ("waiting", "attempt failed", "with", "next in"), waiting),
        ("folders", ("undelivered", "files", "bytes", "unreadable"), spilled),
    ]
