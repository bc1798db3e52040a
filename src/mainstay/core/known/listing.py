"""A table as rows for people: the documentation and `mainstay explain-error` are made from it."""

from __future__ import annotations

from mainstay.core.known.kind import RETRIED_KINDS
from mainstay.core.known.table import ANY_STATUS, Cases, Inner, Row, Same, status_row

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.known.table import Entry, Table


class Line:
    """One row of a table: a class, or one case of it."""

    __slots__ = ("ancestor", "case", "name", "row")

    def __init__(self, name: str, case: str, row: Row | None, ancestor: str = "") -> None:
        self.name = name
        self.case = case
        """Such as "status 503" or "code SlowDown"; empty if the class decides."""
        self.row = row
        """None if what the exception wraps decides."""
        self.ancestor = ancestor
        """The class whose entry it is, if it has none of its own."""

    @property
    def kind(self) -> str:
        """The kind, or who decides it."""
        return "of what it wraps" if self.row is None else self.row.kind.value

    @property
    def is_ambiguous(self) -> bool:
        """Whether the request may have been carried out."""
        return self.row is not None and self.row.ambiguous

    @property
    def is_retried(self) -> bool | None:
        """Whether a policy without `on` retries it; None if what it wraps decides."""
        return None if self.row is None else self.row.kind in RETRIED_KINDS

    @property
    def why(self) -> str:
        """The reason."""
        return "what it wraps decides" if self.row is None else self.row.why


def lines(table: Table) -> Iterator[Line]:
    """Every row of a table, in its order.

    >>> from mainstay.core.known.kind import Kind
    >>> from mainstay.core.known.table import Table
    >>> table = Table("acme", {"acme.Busy": Row(Kind.OVERLOAD, "the queue is full")})
    >>> [(line.name, line.kind, line.is_retried) for line in lines(table)]
    [('acme.Busy', 'overload', True)]
    """
    for name, entry in table.entries.items():
        if isinstance(entry, Same):
            yield Line(name, "", _last(table.entries[entry.ancestor]), entry.ancestor)
        else:
            yield from lines_of(name, entry)


def lines_of(name: str, entry: Entry, ancestor: str = "") -> Iterator[Line]:
    """Every row that an entry may come to."""
    is_first = True
    while not isinstance(entry, Row):
        assert not isinstance(entry, Same), "what is `Same` was followed"
        if isinstance(entry, Cases):
            for case, row in entry.rows.items():
                yield Line(name, f"{entry.of} {case}", row, ancestor)
        else:
            yield Line(name, _wrapped(entry), None, ancestor)
        entry, is_first = entry.otherwise, False
    yield Line(name, "" if is_first else "otherwise", entry, ancestor)


def lines_of_carried(
    name: str, entry: Entry, ancestor: str, status: int | None, code: str | None
) -> list[Line]:
    """The row of an exception that carries this status and this code, as a policy finds it.

    All that are left if it may wrap another, since that one decides.

    >>> from mainstay.core.known.table import by_status
    >>> lines_of_carried("acme.Refused", by_status(), "", 503, None)[0].why
    'status 503'
    """
    first, is_open = entry, False
    while not isinstance(entry, Row):
        assert not isinstance(entry, Same), "what is `Same` was followed"
        if isinstance(entry, Inner):
            is_open = True
            break
        for case in _cases_in(entry, status, code):
            row = entry.row_of((case,))
            if row is not None:
                return [Line(name, f"{entry.of} {case}", row, ancestor)]
        entry = entry.otherwise
    if status is not None and status >= 400 and not is_open:
        return [Line(name, f"status {status}", status_row(status), ancestor)]
    if is_open:
        return list(lines_of(name, entry, ancestor))
    assert isinstance(entry, Row), "the end of a chain"
    asked = f"code {code}" if status is None else f"status {status}"
    return [Line(name, "" if entry is first else f"{asked}, which no row has", entry, ancestor)]


def _cases_in(cases: Cases, status: int | None, code: str | None) -> list[str]:
    """What these cases would read of it; a code before a status, as the tables read them."""
    given = "" if status is None else str(status)
    if cases.of == "status":  # a number is taken for one, whichever option has it
        found = [given or code or ""]
        return found if found[0].isdecimal() else []
    found = [] if code is None else [code]
    return [*found, given] if given and reads_status(cases) else found


def reads_status(cases: Cases) -> bool:
    """Whether an HTTP status is among what these read.

    >>> from mainstay.core.known.table import by_status
    >>> reads_status(by_status())
    True
    """
    return any(row.why in ANY_STATUS for row in cases.rows.values())


def _wrapped(entry: Inner) -> str:
    return f"wraps `{entry.read}`" if isinstance(entry.read, str) else "wraps another"


def _last(entry: Entry) -> Row | None:
    """The row of an entry if the class decides; None if it has cases."""
    return entry if isinstance(entry, Row) else None
