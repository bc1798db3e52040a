"""From an exception to what its library's table knows of it."""

from __future__ import annotations

from mainstay.core.known.http import sent_once, status_of, unsafe_request
from mainstay.core.known.kind import NOTHING_KNOWN, Known
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Cases, Inner, Row, status_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.known.table import Entry, Table

DEPTH = 8
"""Exceptions inside exceptions that are followed; a library that nests deeper has a loop."""


def known_by_table(
    exception: BaseException, kind_of: Callable[[BaseException, int], Known], depth: int = 0
) -> Known | None:
    """What the table of its library has for an exception; None if there is none.

    `kind_of` judges what an exception wraps, which may be of no table.
    """
    found = REGISTRY.entry_of(type(exception))
    if found is None:
        return None
    table, _, entry = found
    known = _judged(entry, exception, kind_of, depth)
    known.table = table.library
    known.once = known.once or sent_once(exception)
    if known.is_ambiguous and _changes_nothing(table, exception):
        known.unsafe = ""
    elif known.is_ambiguous and not known.unsafe:
        known.unsafe = unsafe_request(exception, table.request)
    return known


def _changes_nothing(table: Table, exception: BaseException) -> bool:
    read = table.changes_nothing
    try:
        return read is not None and read(exception) is True
    except Exception:  # an attribute of another shape than the library gives it
        return False


def _judged(
    entry: Entry,
    exception: BaseException,
    kind_of: Callable[[BaseException, int], Known],
    depth: int,
) -> Known:
    by_code, is_plain = False, isinstance(entry, Row)
    while not isinstance(entry, Row):
        if isinstance(entry, Cases):
            row = entry.row(exception)
            by_code, entry = row is not None, entry.otherwise if row is None else row
            continue
        assert isinstance(entry, Inner), "what is `Same` was followed"
        inner = entry.of(exception)
        if inner is not None and depth < DEPTH:
            known = kind_of(inner, depth + 1)
            if known.reason != NOTHING_KNOWN:
                return _inside(known, is_ambiguous=known.is_ambiguous or entry.ambiguous)
        entry = entry.otherwise
    if not by_code:
        status = status_of(exception)
        if status is not None and status >= 400:  # also of a user's own class that derives from it
            entry, by_code, is_plain = status_row(status), True, False
    return Known(entry.kind, entry.why, is_plain, by_code=by_code, is_ambiguous=entry.ambiguous)


def _inside(known: Known, *, is_ambiguous: bool) -> Known:
    """Of the instance, whatever its type: what is inside decided."""
    return Known(
        known.kind,
        known.reason,
        by_code=known.by_code,
        is_ambiguous=is_ambiguous,
        unsafe=known.unsafe,
        once=known.once,
    )


def codes_by_table(exception: BaseException, depth: int = 0) -> tuple[str, ...]:
    """The error codes that the table of its library reads, those of what it wraps included."""
    found = REGISTRY.entry_of(type(exception))
    entry = None if found is None else found[2]
    codes: tuple[str, ...] = ()
    while isinstance(entry, Cases | Inner):
        if isinstance(entry, Cases):
            codes += entry.cases(exception)
        else:
            inner = entry.of(exception)
            if inner is not None and depth < DEPTH:
                codes += codes_by_table(inner, depth + 1)
        entry = entry.otherwise
    return codes


def hint_by_table(exception: BaseException) -> object:
    """How long the other side asks to wait, where the table of its library reads it."""
    found = REGISTRY.entry_of(type(exception))
    read = None if found is None else found[0].hint
    if read is None:
        return None
    try:
        return read(exception)
    except Exception:  # an attribute of another shape than the library gives it
        return None
