"""From an exception to what its library's table knows of it."""

from __future__ import annotations

from mainstay.core.base.attributes import CACHE_SIZE, KEEPS_SIGNALS, comes_through, is_direct
from mainstay.core.known.http import (
    KEEPS_REQUESTS,
    ONCE,
    sent_once,
    status_of,
    unsafe,
    unsafe_request,
)
from mainstay.core.known.kind import NOTHING_KNOWN, RETRIED_KINDS, Kind, Known, shared
from mainstay.core.known.registry import REGISTRY
from mainstay.core.known.table import Cases, Inner, Row, status_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mainstay.core.known.registry import Found
    from mainstay.core.known.table import Table

DEPTH = 8
"""Exceptions inside exceptions that are followed; a library that nests deeper has a loop."""


def known_by_table(
    found: Found,
    exception: BaseException,
    kind_of: Callable[[BaseException, int], Known],
    depth: int = 0,
) -> Known:
    """What the table of its library, which was found, has for an exception.

    `kind_of` judges what an exception wraps, which may be of no table.
    """
    table, _, entry = found
    first, known = entry, None
    try:
        while not isinstance(entry, Row):
            if isinstance(entry, Cases):
                cases = entry.cases(exception)
                if cases:
                    key = table.library, entry, cases, entry is first
                    known = _known.get(key) or _by_cases(*key)
            else:
                assert isinstance(entry, Inner), "what is `Same` was followed"
                inner = entry.of(exception)
                if inner is not None and depth < DEPTH:
                    inside = kind_of(inner, depth + 1)
                    if inside.reason != NOTHING_KNOWN:
                        known = _inside(table, inside, entry)
            if known is not None:
                break
            entry = entry.otherwise
    except Exception as error:  # what is in a table is checked, unless it is of a user's own class
        return _failed(table, error)
    if known is None:
        assert isinstance(entry, Row), "the end of the chain"
        carried = exception.__dict__
        has_own = "status_code" in carried or "status" in carried
        is_bare = not has_own and carried.get("response") is None and KEEPS_SIGNALS[type(exception)]
        status = None if is_bare else status_of(exception)  # which finds None then, without a call
        by_code = status is not None and status >= 400  # also of a user's own class derived from it
        row = entry if status is None or not by_code else status_row(status)
        stated = table.library, row, entry is first and not by_code, by_code
        known = _of_rows.get(stated) or _by_row(*stated)
    if known.is_ambiguous or ONCE in exception.__dict__:
        return _of_request(table, known, exception)
    if (
        table.first is None
        or known.kind not in RETRIED_KINDS
        or (trace := exception.__traceback__) is None  # as `is_direct`, without a call
        or (trace := trace.tb_next) is None
        or trace.tb_next is None
        or not _may_be_redirected(table, exception)
    ):
        return known
    return _of_request(table, known, exception)


def _failed(table: Table, error: Exception) -> Known:
    """What is known by a table that failed itself: it must not hide what the call failed with."""
    reason = f"the table of {table.library} failed: {type(error).__name__}"
    return Known(Kind.UNKNOWN, reason, table=table.library)


def _of_request(table: Table, known: Known, exception: BaseException) -> Known:
    """The same, with what the request decides: whether it may be sent again."""
    is_sent = table.senders is None or comes_through(exception, table.senders)
    carried = exception.__dict__
    if (
        not is_sent
        and carried.get("request") is None
        and carried.get("response") is None
        and KEEPS_REQUESTS[type(exception)]
        and not ("request_info" in carried or ONCE in carried or table.changes_nothing)
    ):
        return known  # there is no request to be found
    once, refused, is_ambiguous = known.once, known.unsafe, known.is_ambiguous
    if is_ambiguous:
        if table.changes_nothing is not None and _changes_nothing(table, exception):
            refused = ""
        elif not refused:
            find = table.request if is_sent else None
            refused = unsafe_request(exception, find, table.key, table.key_headers)
    if (
        table.first is not None
        and not refused
        and known.kind in RETRIED_KINDS
        and _may_be_redirected(table, exception, is_sent=is_sent)
        and not is_direct(exception)
    ):
        refused = unsafe_before(table, exception)
        is_ambiguous = is_ambiguous or refused != ""
    if ONCE in carried:
        once = once or sent_once(exception)
    if once != known.once or refused != known.unsafe:
        known = known.copied()
        known.once, known.unsafe, known.is_ambiguous = once, refused, is_ambiguous
    return known


def _may_be_redirected(
    table: Table, exception: BaseException, *, is_sent: bool | None = None
) -> bool:
    """Whether the table is to be asked for the first request of the call.

    `is_sent` is whether the exception comes through the functions that the table names.
    """
    if table.senders is None or not KEEPS_SIGNALS[type(exception)]:
        return True
    response = exception.__dict__.get("response")
    if response is None and is_sent is not None:
        return is_sent
    if response is None:
        trace = exception.__traceback__  # as `comes_through`, without a call
        while trace is not None:
            if trace.tb_frame.f_globals.get("__name__") in table.senders:
                return True
            trace = trace.tb_next
        return False
    try:
        return bool(response.history)
    except Exception:  # of another shape: the table may read more of it
        return True


def unsafe_before(table: Table, exception: BaseException) -> str:
    """Why a call must not be repeated that began with another request; empty if it may be."""
    find = table.first
    try:
        first = None if find is None else find(exception)
    except Exception:  # of another version of the library than the table knows
        return ""
    return "" if first is None else unsafe(first, table.key, table.key_headers)


def _changes_nothing(table: Table, exception: BaseException) -> bool:
    read = table.changes_nothing
    try:
        return read is not None and read(exception) is True
    except Exception:  # an attribute of another shape than the library gives it
        return False


_known: dict[tuple[str, Cases, tuple[str, ...], bool], Known] = {}
_of_rows: dict[tuple[str, Row, bool, bool], Known] = {}
"""What cases and rows state of exceptions that are alike: one object for all of them."""


def _by_cases(library: str, cases: Cases, found: tuple[str, ...], is_first: bool) -> Known | None:
    """What is known by what an exception carries; None if no case has a row."""
    row = cases.row_of(found)
    if row is None:
        return None
    known = Known(row.kind, row.why, by_code=True, is_ambiguous=row.ambiguous, table=library)
    known.by_status = is_first and cases.is_status
    known.codes = found if is_first and cases.is_last else ()
    if len(_known) >= CACHE_SIZE:
        _known.clear()
    return _known.setdefault((library, cases, found, is_first), shared(known))


def _by_row(library: str, row: Row, by_type: bool, by_code: bool) -> Known:
    """What is known by the class, or by its status alone."""
    if len(_of_rows) >= CACHE_SIZE:
        _of_rows.clear()
    is_ambiguous = row.ambiguous
    known = Known(
        row.kind, row.why, by_type, by_code=by_code, is_ambiguous=is_ambiguous, table=library
    )
    return _of_rows.setdefault((library, row, by_type, by_code), shared(known))


def _inside(table: Table, known: Known, entry: Inner) -> Known:
    """Of the instance, whatever its type: what is inside decided."""
    return Known(
        known.kind,
        known.reason,
        by_code=known.by_code,
        is_ambiguous=known.is_ambiguous or entry.ambiguous,
        unsafe=known.unsafe,
        once=known.once,
        table=table.library,
    )


def repeated_inside(exception: BaseException) -> tuple[str, int, str] | None:
    """The library that has repeated the request by itself, how often it was sent, the remedy."""
    found = REGISTRY.found[type(exception)]
    own = None if found is None else found[0].own_retries
    if found is None or own is None:
        return None
    count = own.count(exception)
    return (found[0].library, count, own.off) if count > 1 else None


def codes_by_table(exception: BaseException, depth: int = 0) -> tuple[str, ...]:
    """The error codes that the table of its library reads, those of what it wraps included."""
    found = REGISTRY.found[type(exception)]
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


def reads_more(cls: type[BaseException]) -> bool:
    """Whether a table reads what the class does not show: how long to wait, the first request."""
    found = REGISTRY.found[cls]
    return found is not None and not (found[0].hint is None and found[0].first is None)


def reads_hint(cls: type[BaseException]) -> bool:
    """Whether a table reads how long to wait."""
    found = REGISTRY.found[cls]
    return found is not None and found[0].hint is not None


def hint_by_table(exception: BaseException) -> object:
    """How long the other side asks to wait, where the table of its library reads it."""
    found = REGISTRY.found[type(exception)]
    read = None if found is None else found[0].hint
    if read is None:
        return None
    try:
        return read(exception)
    except Exception:  # an attribute of another shape than the library gives it
        return None
