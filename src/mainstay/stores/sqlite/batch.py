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
    Kept = dict[str, dict[str, bytes | None]]
    Changed = dict[str, dict[str, Change]]

_SIZES = (1, 4, 16, 64, 256)
"""How many records a reading asks for: few different statements, so that all stay prepared."""
_READ = {
    size: f"WITH asked (k) AS (VALUES {', '.join(['(?)'] * size)})"  # noqa: S608 -- marks
    " SELECT key, value FROM asked CROSS JOIN mainstay_kept WHERE space = ? AND key = k"
    for size in _SIZES
}
"""Each key is looked up by itself: for `key IN (...)` SQLite sorts them into a table first."""
NEVER, EXPIRES = math.inf, "nullif(?, 9e999)"
"""NULL for a record that does not expire: what is bound, and the text, in which it is infinity."""
_WRITTEN = (64, 16, 4, 1)
_ON_CONFLICT = (
    " ON CONFLICT (space, key) DO UPDATE SET value = excluded.value, expires = excluded.expires"
)


def _writing(expires: str, marks: str) -> dict[int, str]:
    """One statement for many rows of a space, by their number.

    It lets go of the interpreter once, and not once for each row; and the space is bound once.
    """
    return {
        size: "INSERT INTO mainstay_kept (space, key, value, expires)"  # noqa: S608 -- marks
        f" SELECT ?, column1, column2, {expires} FROM (VALUES {', '.join([marks] * size)})"
        f" WHERE true{_ON_CONFLICT}"  # without a WHERE this ON would be that of a join
        for size in _WRITTEN
    }


_LASTING, _PASSING = _writing("NULL", "(?, ?)"), _writing("column3", "(?, ?, ?)")
WRITE = (
    "INSERT INTO mainstay_kept (space, key, value, expires)"  # noqa: S608 -- a fixed text
    f" VALUES (?, ?, ?, {EXPIRES}){_ON_CONFLICT}"
)
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
    changed: Changed = {space: {} for space in kept}
    small, moment = _surely_small(limit, kept), now()  # of the transaction, so of all its steps
    for space, key, decide in steps:
        known = kept[space]
        try:
            change, answer = decide(known.get(key), moment)
            value = change.value
            if value is not None and len(value) + len(key) > small:  # as nearly none
                _check_size((space, key), value, limit, url)
        except sqlite3.Error:
            raise
        except Exception as error:
            answers.append(error)
            continue
        answers.append(answer)
        if change is not KEEP:
            known[key] = value
            changed[space][key] = change
    for space, changes in changed.items():
        _write_all(connection, space, changes)
    return answers


def _surely_small(limit: int | None, spaces: Iterable[str]) -> float:
    """What a value and its key may have together, in any encoding, without a closer look."""
    if limit is None:
        return math.inf
    return limit // 4 - _ROW - max(map(len, spaces), default=0)


def _check_size(address: tuple[str, str], value: bytes, limit: int | None, url: str) -> None:
    """Raises ValueTooLarge for a row that SQLite would refuse, and with it the whole batch."""
    size = len(value) + _ROW + sum(len(text.encode()) for text in address)
    if limit is not None and size > limit:
        raise ValueTooLarge(url, len(value), limit)


def _write_all(connection: sqlite3.Connection, space: str, changes: dict[str, Change]) -> None:
    """Each record as the last step has left it."""
    lasting: list[Any] = []
    passing: list[Any] = []
    dropped = []
    for key, change in changes.items():
        value, expires = change.value, change.expires
        if value is None:
            dropped.append((space, key))
        elif expires is None or expires == NEVER:
            lasting += key, bytearray(value)
        else:
            passing += key, bytearray(value), expires
    _write(connection, _LASTING, space, lasting, 2)
    _write(connection, _PASSING, space, passing, 3)
    if dropped:
        connection.executemany(DROP, dropped)


def _write(
    connection: sqlite3.Connection,
    statements: dict[int, str],
    space: str,
    rows: list[Any],
    columns: int,
) -> None:
    """Rows of one space, their values as they are bound, by few statements."""
    end, start = len(rows), 0
    for size, statement in statements.items():
        length = size * columns
        while end - start >= length:
            connection.execute(statement, [space, *rows[start : start + length]])
            start += length


def row_of(space: str, key: str, value: bytes, expires: float | None) -> tuple[object, ...]:
    """A row as it is bound: what sqlite3 looks for no adapter of."""
    return space, key, bytearray(value), NEVER if expires is None else expires


def _read_all(connection: sqlite3.Connection, steps: Batch) -> Kept:
    """The records that are there, by space and key."""
    kept: Kept = {}
    asked: dict[str, dict[str, None]] = {}
    for space, key, _ in steps:
        try:
            asked[space][key] = None
        except KeyError:
            asked[space] = {key: None}
    for space, keys in asked.items():
        known = kept[space] = {}
        for part in _parts(list(keys)):
            statement = _READ[len(part)]
            known.update(connection.execute(statement, [*part, space]))
    return kept


def _parts(keys: list[str]) -> Iterable[list[str]]:
    """The keys in parts of the sizes there are; the last one is filled up with empty text."""
    most = _SIZES[-1]
    for start in range(0, len(keys), most):
        part = keys[start : start + most]
        size = next(size for size in _SIZES if size >= len(part))
        yield part + [""] * (size - len(part))
