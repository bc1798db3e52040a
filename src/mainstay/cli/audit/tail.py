"""`mainstay audit tail`: the last records of a log, and those that come."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from mainstay.cli.options import example, json_option
from mainstay.cli.screen.output import shielded, write, write_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from mainstay.audit import Record
    from mainstay.ports import Journal

_PAUSE = 0.3
"""Seconds between two looks at a log that is followed."""


@click.command(
    "tail",
    epilog=example(
        "mainstay audit tail audit.jsonl -n 5",
        "mainstay audit tail sqlite:///app.db --follow --operation 'payments.*'",
    ),
)
@click.argument("log")
@click.option(
    "-n", "count", type=click.IntRange(0, 1_000_000), default=20, show_default=True,
    help="How many records.",
)  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Show new records too, until Ctrl+C.")
@click.option("--operation", metavar="PATTERN", help="Only this operation; * matches any text.")
@json_option
def command(log: str, count: int, follow: bool, operation: str | None, as_json: bool) -> None:
    """Show the last records of a log.

    With --follow, --json writes a line for each record instead of one document.
    """
    from mainstay.audit.open import open_journal

    with closing(open_journal(log, reads_only=True)) as journal:
        found, last = _last(journal, count, operation)
        if as_json and not follow:
            write_json([_plain(record) for record in found])
            return
        for record in found:
            _show(record, as_json)
        if follow:
            for record in _coming(journal, last):
                if _is_of(record, operation):
                    _show(record, as_json)


def _last(journal: Journal, count: int, operation: str | None) -> tuple[list[Record], int]:
    """The last `count` records, read from near the end; and the last block's number."""
    from mainstay.audit.read import records_in

    end = journal.tail().block
    begins = journal.anchor()
    first = begins.block if begins is not None else 0
    blocks = 4
    while True:
        after = max(first, end - blocks)
        found = [
            record
            for block in journal.blocks(after)
            for record in records_in(block)
            if _is_of(record, operation)
        ]
        if len(found) >= count or after <= first:
            return found[max(0, len(found) - count) :], end
        blocks *= 4


def _coming(journal: Journal, last: int) -> Iterator[Record]:
    """Records as they are appended."""
    from mainstay.audit.read import records_in
    from mainstay.runtime.clock import SYSTEM

    while True:
        for block in journal.blocks(last):
            for record in records_in(block):
                last = record.block
                yield record
        SYSTEM.sleep(_PAUSE)


def _is_of(record: Record, operation: str | None) -> bool:
    if operation is None:
        return True
    from fnmatch import fnmatchcase

    return fnmatchcase(str(_content(record).get("operation", "")), operation)


def _content(record: Record) -> dict[str, Any]:
    """The event as plain data; also one that this version does not know."""
    import msgspec

    from mainstay.core.codec.reader import UNREADABLE

    try:
        found = msgspec.json.decode(record.body)
    except UNREADABLE:
        found = None
    return (
        found if isinstance(found, dict) else {"unreadable": record.body.decode("utf-8", "replace")}
    )


def _plain(record: Record) -> dict[str, Any]:
    return {"number": record.number, "writer": record.writer, "event": _content(record)}


def _show(record: Record, as_json: bool) -> None:
    if as_json:
        import json

        write(json.dumps(_plain(record), allow_nan=False))
        return
    when = str(_content(record).get("timestamp", ""))[:23].replace("T", " ")
    write(f"{record.number:>8}  {when:<23}  {shielded(_sentence(record))}")


def _sentence(record: Record) -> str:
    try:
        return record.event.sentence()
    except ValueError:  # of a newer version, or no event at all
        content = _content(record)
        return f"{content.get('operation', '')}: {content.get('event_type', content)}"
