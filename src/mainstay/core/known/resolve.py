"""From an exception to what its library's table knows of it."""

from __future__ import annotations

from mainstay.core.base.attributes import CACHE_SIZE
from mainstay.core.known.http import sent_once, status_of, unsafe_request
from mainstay.core.known.kind import NOTHING_KNOWN, Known, shared
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
    known = _judged(table, entry, exception, kind_of, depth)
    once, unsafe = known.once or sent_once(exception), known.unsafe
    if known.is_ambiguous and _changes_nothing(table, exception):
        unsafe = ""
    elif known.is_ambiguous and not unsafe:
        unsafe = unsafe_request(exception, table.request)
    if once != known.once or unsafe != known.unsafe:
        known = known.copied()
        known.once, known.unsafe = once, unsafe
    return known


def _changes_nothing(table: Table, exception: BaseException) -> bool:
    read = table.changes_nothing
    try:
        return read is not None and read(exception) is True
    except Exception:  # an attribute of another shape than the library gives it
        return False


def _judged(
    table: Table,
    entry: Entry,
    exception: BaseException,
    kind_of: Callable[[BaseException, int], Known],
    depth: int,
) -> Known:
    by_code, is_plain = False, isinstance(entry, Row)
    is_of_status = isinstance(entry, Cases) and _is_of_status(entry)
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
                return _inside(table, known, is_ambiguous=known.is_ambiguous or entry.ambiguous)
        entry = entry.otherwise
    if not by_code:
        status = status_of(exception)
        if status is not None and status >= 400:  # also of a user's own class that derives from it
            entry, by_code, is_plain, is_of_status = status_row(status), True, False, False
    return _stated(table, entry, is_plain, by_code, is_of_status)


def _is_of_status(cases: Cases) -> bool:
    """Whether a status is all that is read."""
    return cases.of == "status" and isinstance(cases.otherwise, Row)


_known: dict[tuple[str, Row, bool, bool, bool], Known] = {}


def _stated(table: Table, row: Row, by_type: bool, by_code: bool, by_status: bool) -> Known:
    """What a row states of an exception: one object for all exceptions that are alike."""
    key = table.library, row, by_type, by_code, by_status
    found = _known.get(key)
    if found is None:
        if len(_known) >= CACHE_SIZE:
            _known.clear()
        found = Known(row.kind, row.why, by_type, by_code=by_code, is_ambiguous=row.ambiguous)
        found.table, found.by_status = table.library, by_status
        _known[key] = shared(found)
    return found


def _inside(table: Table, known: Known, *, is_ambiguous: bool) -> Known:
    """Of the instance, whatever its type: what is inside decided."""
    return Known(
        known.kind,
        known.reason,
        by_code=known.by_code,
        is_ambiguous=is_ambiguous,
        unsafe=known.unsafe,
        once=known.once,
        table=table.library,
    )


def repeated_inside(exception: BaseException) -> tuple[str, int, str] | None:
    """The library that has repeated the request by itself, how often it was sent, the remedy."""
    found = REGISTRY.entry_of(type(exception))
    own = None if found is None else found[0].own_retries
    if found is None or own is None:
        return None
    count = own.count(exception)
    return (found[0].library, count, own.off) if count > 1 else None


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
