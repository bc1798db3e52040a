"""Many steps on PostgreSQL in two round trips: one reads all records, one writes the changed.

Like a single step, each write has the condition that its record is unchanged. A row that another
transaction has locked is passed over, and no row waits for another: so two batches cannot lock each
other, and a record in use costs the others nothing. What was passed over or changed meanwhile is
left to a step of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.change import KEEP
from mainstay.errors import StoreError
from mainstay.stores.postgres.statements import CLOCK, RoundTrip, address

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from mainstay.core.base.change import Change
    from mainstay.ports import Step
    from mainstay.stores.postgres.statements import Rows, Steps

    Written = tuple[int, dict[str, Any], Change, str | None]

_READ = (
    f"SELECT b.number, {CLOCK}, k.value, k.xmin::text"  # noqa: S608 -- constants
    " FROM unnest(%(spaces)s::text[], %(keys)s::text[]) WITH ORDINALITY AS b (space, key, number)"
    " LEFT JOIN mainstay_kept AS k ON k.space = b.space AND k.key = b.key"
)
_CHANGED = (
    "WITH changed AS MATERIALIZED ("
    "SELECT b.* FROM unnest(%(spaces)s::text[], %(keys)s::text[], %(values)s::bytea[],"
    " %(expires)s::float8[], %(seen)s::text[], %(numbers)s::bigint[])"
    " AS b (space, key, value, expires, seen, number)"
    " JOIN mainstay_kept AS k ON k.space = b.space AND k.key = b.key AND k.xmin::text = b.seen"
    " FOR UPDATE OF k SKIP LOCKED) "
)
_UPDATE = (
    f"{_CHANGED}UPDATE mainstay_kept AS k SET value = c.value, expires = c.expires"  # noqa: S608
    " FROM changed AS c WHERE k.space = c.space AND k.key = c.key RETURNING c.number"
)
_DELETE = (
    f"{_CHANGED}DELETE FROM mainstay_kept AS k USING changed AS c"  # noqa: S608 -- constants
    " WHERE k.space = c.space AND k.key = c.key RETURNING c.number"
)
_INSERT = (
    "WITH made AS (INSERT INTO mainstay_kept AS k (space, key, value, expires)"
    " SELECT b.space, b.key, b.value, b.expires"
    " FROM unnest(%(spaces)s::text[], %(keys)s::text[], %(values)s::bytea[], %(expires)s::float8[])"
    " AS b (space, key, value, expires) ORDER BY b.space, b.key"
    " ON CONFLICT DO NOTHING RETURNING k.space, k.key)"
    " SELECT b.number FROM made JOIN unnest(%(spaces)s::text[], %(keys)s::text[],"
    " %(numbers)s::bigint[]) AS b (space, key, number)"
    " ON made.space = b.space AND made.key = b.key"
)


def many(batch: Sequence[Step], answers: list[Any]) -> Steps[list[int]]:
    """Puts the answers into their places; returns the numbers of the steps that are left.

    A decision that raises is its own answer.
    """
    places, left = _places(batch, answers)
    rows = yield RoundTrip(_READ, _columns(list(places.values())))
    written = _decided(batch, list(places), rows, answers)
    for text, some in _by_statement(written):
        done = yield RoundTrip(text, some)
        left |= set(some["numbers"]) - {number for (number,) in done}
    return sorted(left)


def _places(
    batch: Sequence[Step], answers: list[Any]
) -> tuple[dict[int, dict[str, Any]], set[int]]:
    """Where the records are, by the number of the step; and second steps on a record."""
    places: dict[int, dict[str, Any]] = {}
    seen, left = set[tuple[str, str]](), set[int]()
    for number, (space, key, _) in enumerate(batch):
        if (space, key) in seen:
            left.add(number)
            continue
        seen.add((space, key))
        try:
            places[number] = address(space, key)
        except StoreError as error:  # no key for PostgreSQL: it fails alone
            answers[number] = error
    return places, left


def _decided(
    batch: Sequence[Step], numbers: list[int], rows: Rows, answers: list[Any]
) -> list[Written]:
    """What is to be written: number, place, change and the version that was read."""
    written = []
    for ordinal, now, value, seen in rows:
        number = numbers[ordinal - 1]
        space, key, decide = batch[number]
        try:
            change, answers[number] = decide(value, now)
        except Exception as error:
            answers[number] = error
            continue
        if change is not KEEP and (change.value is not None or seen is not None):
            written.append((number, address(space, key), change, seen))
    return written


def _by_statement(written: list[Written]) -> list[tuple[str, dict[str, list[Any]]]]:
    """The statements that there is something for, each with its columns."""
    parts: dict[str, list[Written]] = {_UPDATE: [], _DELETE: [], _INSERT: []}
    for each in written:
        _, _, change, seen = each
        existing = _DELETE if change.value is None else _UPDATE
        parts[_INSERT if seen is None else existing].append(each)
    return [(text, _values(some)) for text, some in parts.items() if some]


def _values(some: list[Written]) -> dict[str, list[Any]]:
    return {
        **_columns([place for _, place, _, _ in some]),
        "values": [change.value for _, _, change, _ in some],
        "expires": [change.expires for _, _, change, _ in some],
        "seen": [seen for _, _, _, seen in some],
        "numbers": [number for number, _, _, _ in some],
    }


def _columns(places: list[dict[str, Any]]) -> dict[str, list[Any]]:
    return {
        "spaces": [place["space"] for place in places],
        "keys": [place["key"] for place in places],
    }
