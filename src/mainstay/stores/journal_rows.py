"""The blocks of an audit log as rows: what SQLite and PostgreSQL have in common.

The records of a block are one JSON array, a record on each line and a comma between them on a line
of its own. No record has a line break in it, so the array is split without parsing it; searching
for a single byte is the fastest split.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import msgspec

from mainstay.core.audit.chain import (
    MOST,
    START,
    Anchor,
    Block,
    Tail,
    carried,
    decode_head,
    read_header,
    tail_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from mainstay.core.audit.chain import Head

MOST_PRUNED = 200
"""Blocks that are dropped in one step; meanwhile no other process can write."""
_BETWEEN = b"\n,\n"
_PAGE = 16
"""Blocks that are read at once, if they are small."""
_PAGE_BYTES = 2 << 20
"""Bytes that blocks read at once have together, or so, if they are not."""


def body_of(records: Sequence[bytes]) -> bytes:
    """The records as one JSON array, copied once: a block has half a megabyte."""
    if not records:
        return b"[]"
    parts = [b"[\n" + records[0], *records[1:]]
    parts[-1] += b"\n]"
    return _BETWEEN.join(parts)


def records_of(body: Any) -> list[bytes]:
    """The records of such an array; a row that was tampered with may hold anything."""
    data = _as_bytes(body)
    if data == b"[]":
        return []
    lines = data.split(b"\n")
    marks = lines[::2]
    is_whole = len(lines) % 2 and marks.count(b",") == len(marks) - 2
    if not is_whole or marks[0] != b"[" or marks[-1] != b"]":
        return lines  # which fail the verification
    return lines[1::2]


def block_of(row: Sequence[Any]) -> Block:
    """The block of a row: header, links, body."""
    return Block(_as_bytes(row[0]), records_of(row[2]), _as_bytes(row[1]))


def page_after(rows: Sequence[Sequence[Any]]) -> int:
    """How many blocks to read at once after these, by their sizes; one for no rows.

    Blocks of a busy writer have megabytes each, those of one that commits each call a few records.
    """
    bodies = [row[2] for row in rows]
    size = sum(len(body) for body in bodies if isinstance(body, str | bytes | memoryview))
    return max(1, min(_PAGE, len(rows) * _PAGE_BYTES // size if size else _PAGE * len(rows)))


def tail_of_row(row: Sequence[Any] | None, anchor: Anchor | None) -> Tail:
    """Where a log ends, by its last row: header, links."""
    if row is None:
        return Tail() if anchor is None else anchor.tail
    return tail_of(Block(_as_bytes(row[0]), (), _as_bytes(row[1])))


def anchor_of(row: Sequence[Any] | None) -> Anchor | None:
    """The anchor of a row: log, block, number, link, carried; MsgspecError if it is none."""
    if row is None:
        return None
    log, block, number = msgspec.convert(tuple(row[:3]), _Place)
    return Anchor(log, block, number, _as_bytes(row[3]), tuple(records_of(row[4])))


_Count = Annotated[int, msgspec.Meta(ge=0, le=MOST)]
_Place = tuple[str, _Count, _Count]


def heads_of(rows: Iterable[Sequence[Any]]) -> list[Head]:
    """The heads of rows; one that cannot be read is left out."""
    found: list[Head] = []
    for row in rows:
        with suppress(msgspec.MsgspecError):
            found.append(decode_head(_as_bytes(row[0])))
    return found


def is_older(header: Any, before: str) -> bool:
    """Whether a block was written before a time."""
    return read_header(_as_bytes(header)).time < before


def anchor_after(old: Anchor | None, dropped: Iterable[Block]) -> Anchor:
    """The anchor in the place of blocks that are dropped, and of the anchor before them."""
    last: Block | None = None
    plans: list[bytes] = list(old.carried) if old is not None else []
    for block in dropped:
        last = block
        plans = carried([*plans, *block.records])
    assert last is not None, "nothing is dropped"
    tail = tail_of(last)
    return Anchor(tail.log, tail.block, tail.number, tail.link or START, tuple(plans))


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else b""
