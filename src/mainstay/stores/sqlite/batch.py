"""Many steps in one transaction of SQLite: one reading of all records, one writing of the changed.

A step that follows another on the same record decides on what that one has left. What is written
is the last state of each record: a state between two steps of one transaction is never visible.
A value that is too large fails alone, before anything is written.
"""

from __future__ import annotations

import math
import sqlite3
from typing import TYPE_CHECKING

from mainstay.core.base.change import KEEP
from mainstay.errors import ValueTooLarge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from mainstay.core.base.change import Change

    Batch = list[tuple[str, str, Any]]
    Kept = dict[tuple[str, str], bytes | None]

_SIZES = (1, 4, 16, 64, 256)
"""How many records a reading asks for: few different statements, so that all stay prepared."""
_READ = {
    size: f"SELECT key, value FROM mainstay_kept WHERE space = ? AND key IN ({'?, ' * size}NULL)"  # noqa: S608 -- marks
    for size in _SIZES
}
NEVER, EXPIRES = math.inf, "nullif(?, 9e999)"
"""NULL for a record that does not expire: what is bound, and the text, in which it is infinity."""
_COLUMNS = 4
_WRITE = {
    size: "INSERT INTO mainstay_kept (space, key, value, expires) VALUES"  # noqa: S608 -- marks
    f" {', '.join([f'(?, ?, ?, {EXPIRES})'] * size)}"
    " ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, expires = excluded.expires"
    for size in (64, 16, 4, 1)
}
"""One statement for many rows: it lets go of the interpreter once, and not once for each row."""
WRITE = _WRITE[1]
DROP = "DELETE FROM mainstay_kept WHERE space = ? AND key = ?"


_ROW = 64
"""Bytes of a row besides its space, key and value, at most."""


def carry_out(
    connection: sqlite3.Connection,
    steps: Batch,
    now: Callable[[], float],
    limit: int | None = None,
    url: str = "",
) -> list[Any]:
    """The answers of the steps, in their order; a decision that raises is its own answer."""
    try:
        kept = _read_all(connection, steps)
    except UnicodeError as error:  # a key that is no text: it fails alone
        if len(steps) == 1:
            return [error]
        return [
            answer for step in steps for answer in carry_out(connection, [step], now, limit, url)
        ]
    answers: list[Any] = []
    changed: dict[tuple[str, str], Change] = {}
    for space, key, decide in steps:
        address = (space, key)
        try:
            change, answer = decide(kept.get(address), now())
            value = change.value
            if (
                limit is not None
                and value is not None
                and len(value) + _ROW + 4 * (len(space) + len(key)) > limit  # as nearly none
            ):
                _check_size(address, value, limit, url)
        except sqlite3.Error:
            raise
        except Exception as error:
            answers.append(error)
            continue
        answers.append(answer)
        if change is not KEEP:
            kept[address], changed[address] = value, change
    _write_all(connection, changed)
    return answers


def _check_size(address: tuple[str, str], value: bytes, limit: int, url: str) -> None:
    """Raises ValueTooLarge for a row that SQLite would refuse, and with it the whole batch."""
    size = len(value) + _ROW + sum(len(text.encode()) for text in address)
    if size > limit:
        raise ValueTooLarge(url, len(value), limit)


def _write_all(connection: sqlite3.Connection, changed: dict[tuple[str, str], Change]) -> None:
    """Each record as the last step has left it."""
    rows: list[Any] = []
    dropped = []
    for address, change in changed.items():
        if change.value is None:
            dropped.append(address)
        else:  # row_of, without a frame
            rows += address
            rows += bytearray(change.value), NEVER if change.expires is None else change.expires
    end, start = len(rows), 0
    for size, statement in _WRITE.items():
        length = size * _COLUMNS
        while end - start >= length:
            connection.execute(statement, rows[start : start + length])
            start += length
    if dropped:
        connection.executemany(DROP, dropped)


def row_of(space: str, key: str, value: bytes, expires: float | None) -> tuple[object, ...]:
    """A row as it is bound: what sqlite3 looks for no adapter of."""
    return space, key, bytearray(value), NEVER if expires is None else expires


def _read_all(connection: sqlite3.Connection, steps: Batch) -> Kept:
    keys: dict[str, dict[str, None]] = {}
    for space, key, _ in steps:
        keys.setdefault(space, {})[key] = None
    kept: Kept = {}
    for space, several in keys.items():
        for part in _parts(list(several)):
            for key, value in connection.execute(_READ[len(part)], (space, *part)):
                kept[space, key] = value
    return kept


def _parts(keys: list[str]) -> Iterable[list[str]]:
    """The keys in parts of the sizes there are; what is missing of the last is its first again."""
    most = _SIZES[-1]
    for start in range(0, len(keys), most):
        part = keys[start : start + most]
        size = next(size for size in _SIZES if size >= len(part))
        yield part + part[:1] * (size - len(part))
