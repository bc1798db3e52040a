"""A table of a library's exceptions: which kind each is of, and why.

Every class that a library can raise has an entry, by its qualified name:

- `Row`: the class alone decides.
- `Cases`: something that the exception carries decides, such as a status or an error code.
- `Inner`: the exception wraps another, which decides.
- `Same`: as an ancestor, which it names; so that a class nobody has looked at is noticed.

A function in a table reads attributes, and may raise: then the case is not known.
"""

from __future__ import annotations

from mainstay.core.base.attributes import CACHE_SIZE, KEEPS_SIGNALS
from mainstay.core.known.http import (
    AMBIGUOUS_STATUSES,
    IDEMPOTENCY_KEY,
    KEY_HEADERS,
    STATUS_KINDS,
    kind_of_status,
    status_of,
    status_of_response,
)
from mainstay.core.known.kind import Kind
from mainstay.errors import Problem, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, TypeAlias, TypeVar

    F = TypeVar("F")
    Entry: TypeAlias = "Row | Cases | Inner | Same"


class Row:
    """The kind of a failure, and why; `ambiguous` if the request may have been carried out.

    >>> Row(Kind.TIMEOUT, "sent, and no answer in time", ambiguous=True)
    Row(timeout, ambiguous, 'sent, and no answer in time')
    """

    __slots__ = ("ambiguous", "kind", "why")

    def __init__(self, kind: Kind, why: str, *, ambiguous: bool = False) -> None:
        if type(kind) is not Kind or not isinstance(why, str):
            is_kind = type(kind) is Kind
            what = ("why", why, "a text") if is_kind else ("kind", kind, "a Kind")
            raise _wrong("Row", *what, hint='such as Row(Kind.OVERLOAD, "the queue is full")')
        self.kind = kind
        self.why = why
        self.ambiguous = ambiguous

    def __repr__(self) -> str:
        words = f"{self.kind.value}, ambiguous" if self.ambiguous else self.kind.value
        return f"Row({words}, {self.why!r})"


class Same:
    """As an ancestor of the class.

    >>> Same("acme.Busy").ancestor
    'acme.Busy'
    """

    __slots__ = ("ancestor",)

    def __init__(self, ancestor: str) -> None:
        self.ancestor = ancestor


class Cases:
    """What the exception carries decides: `read` gives its cases, the most precise first.

    A case is a text or a number. A row whose name ends in `*` matches all that begin so. If no case
    has a row, `otherwise` decides.

    >>> by_code = Cases(lambda error: [error.code], {"40*": Row(Kind.TRANSIENT, "rolled back")},
    ...                 otherwise=Row(Kind.UNKNOWN, "a code that is not known"))
    >>> error = RuntimeError()
    >>> error.code = "40001"
    >>> by_code.row(error)
    Row(transient, 'rolled back')
    """

    __slots__ = (
        "_exact", "_others", "_prefixes", "is_last", "is_status", "of", "otherwise", "read", "rows",
    )  # fmt: skip

    def __init__(
        self,
        read: Callable[[Any], Iterable[str | int | None]],
        rows: Mapping[str | int, Row],
        *,
        otherwise: Entry,
        of: str = "code",
    ) -> None:
        self.read = _function("Cases", "read", read)
        for name, row in rows.items():
            if not isinstance(row, Row):
                raise _wrong("Cases", f"the row of {name!r}", row, "a Row")
        self.rows = rows
        self.otherwise = _end("Cases", otherwise)
        self.of = of
        """What the cases are: "code", "status", "phase"; for people."""
        self.is_status = of == "status" and isinstance(otherwise, Row)
        """Whether a status is all that is read."""
        self.is_last = isinstance(otherwise, Row) or (
            isinstance(otherwise, Cases) and otherwise.is_status
        )
        """Whether nothing but a status may be read after this."""
        self._others: dict[tuple[Kind, str], Row] = {}
        self._exact = {str(name): row for name, row in rows.items()}
        prefixes = [name[:-1] for name in self._exact if name.endswith("*")]
        self._prefixes = tuple(sorted(prefixes, key=len, reverse=True))

    def cases(self, exception: BaseException) -> tuple[str, ...]:
        """What the exception carries, as text; nothing if it cannot be read."""
        found = []
        try:
            for each in self.read(exception):
                if each is not None:
                    found.append(str(each))  # noqa: PERF401 -- a comprehension is one more frame
        except Exception:  # an attribute of another shape than the library gives it
            return ()
        return tuple(found)

    def row(self, exception: BaseException) -> Row | None:
        """The row of the first case that has one."""
        return self.row_of(self.cases(exception))

    def row_of(self, cases: tuple[str, ...]) -> Row | None:
        """The row of the first of these that has one."""
        for case in cases:
            row = self.of_case(case)
            if row is not None:
                return self._of_status(row.kind, case) if row.why in ANY_STATUS else row
        return None

    def _of_status(self, kind: Kind, case: str) -> Row:
        """The row of a status without one of its own: the same object each time."""
        if len(self._others) >= CACHE_SIZE:
            self._others.clear()
        return self._others.setdefault((kind, case), Row(kind, f"status {case}"))

    def of_case(self, case: str) -> Row | None:
        """The row of one case."""
        row = self._exact.get(case)
        if row is None:
            prefix = next((each for each in self._prefixes if case.startswith(each)), None)
            row = None if prefix is None else self._exact[f"{prefix}*"]
        return row


class _Statuses(Cases):
    """Cases of the status that an exception carries as every client spells it."""

    __slots__ = ()

    def cases(self, exception: BaseException) -> tuple[str, ...]:
        """As those of Cases, in fewer steps: most failures of HTTP clients come here."""
        carried = exception.__dict__
        has_own = "status_code" in carried or "status" in carried
        if has_own or not KEEPS_SIGNALS[type(exception)]:
            status = status_of(exception)
        else:
            response = carried.get("response")
            status = None if response is None else status_of_response(response)
        return () if status is None else _texts[status]


class _Texts(dict[int, tuple[str]]):
    """The text of each status, with its hash; there are 500 of them."""

    def __missing__(self, status: int) -> tuple[str]:
        return self.setdefault(status, (str(status),))


_texts = _Texts()


class Inner:
    """The exception wraps another: `read` gives it, an attribute's name or a function.

    `ambiguous` holds whatever the inner one is: the request had been sent.

    >>> entry = Inner("orig", otherwise=Row(Kind.UNKNOWN, "nothing is wrapped"))
    >>> error = RuntimeError()
    >>> error.orig = ConnectionResetError("peer")
    >>> entry.of(error)
    ConnectionResetError('peer')
    """

    __slots__ = ("ambiguous", "otherwise", "read")

    def __init__(
        self,
        read: str | Callable[[Any], BaseException | None],
        *,
        otherwise: Entry,
        ambiguous: bool = False,
    ) -> None:
        self.read = read if isinstance(read, str) else _function("Inner", "read", read)
        self.otherwise = _end("Inner", otherwise)
        self.ambiguous = ambiguous

    def of(self, exception: BaseException) -> BaseException | None:
        """The exception inside."""
        read = self.read
        try:
            found = getattr(exception, read, None) if type(read) is str else read(exception)  # type: ignore[operator]
        except Exception:  # an attribute of another shape than the library gives it
            return None
        return found if isinstance(found, BaseException) and found is not exception else None


class OwnRetries:
    """What a client repeats by itself: how many requests it has made, and how that is turned off.

    `made` reads the number from an exception: from what it carries, or from its traceback. It is
    asked when a policy repeats the call, and only a number above 1 counts.

    >>> own = OwnRetries(lambda error: error.tries, "pass retries=0 to the client")
    >>> error = RuntimeError()
    >>> error.tries = 3
    >>> own.count(error), own.count(RuntimeError())
    (3, 1)
    """

    __slots__ = ("made", "off")

    def __init__(self, made: Callable[[Any], int | None], off: str) -> None:
        self.made = _function("OwnRetries", "made", made)
        self.off = off

    def count(self, exception: BaseException) -> int:
        """The requests that the client has made for a call that failed so."""
        try:
            return int(self.made(exception) or 1)
        except Exception:  # of another version of the library than the table knows
            return 1


ANY_STATUS = ("status 4xx", "status 5xx")
"""Why, of a row that stands for all statuses that begin so."""


class Table:
    """What is known of a library's exceptions.

    `packages` are the packages whose classes it judges. `retries` is what the library repeats by
    itself, for people.

    >>> table = Table("acme", {"acme.Busy": Row(Kind.OVERLOAD, "the queue is full")})
    >>> table.packages
    ('acme',)
    """

    __slots__ = (
        "changes_nothing", "entries", "first", "hint", "key", "key_headers", "library",
        "own_retries", "packages", "request", "retries", "senders",
    )  # fmt: skip

    def __init__(
        self,
        library: str,
        entries: Mapping[str, Entry],
        *,
        packages: tuple[str, ...] = (),
        retries: str = "",
        hint: Callable[[Any], object] | None = None,
        request: Callable[[BaseException], object] | None = None,
        first: Callable[[BaseException], object] | None = None,
        changes_nothing: Callable[[Any], bool] | None = None,
        own_retries: OwnRetries | None = None,
        key: str = IDEMPOTENCY_KEY,
        key_headers: tuple[str, ...] = KEY_HEADERS,
        senders: frozenset[str] | None = None,
    ) -> None:
        self.library = library
        self.packages = _texts_of("packages", packages) or (library,)
        self.entries = _checked(library, entries, self.packages)
        functions = {"hint": hint, "request": request, "first": first}
        for name, given in (functions | {"changes_nothing": changes_nothing}).items():
            if given is not None:
                _function("Table", name, given)
        if own_retries is not None and not isinstance(own_retries, OwnRetries):
            raise _wrong("Table", "own_retries", own_retries, "an OwnRetries")
        self.retries = retries
        self.hint = hint
        """Reads how long the other side asks to wait, where it is not in a Retry-After header:
        seconds, a date as text, or None."""
        self.request = request
        """Finds the request of an exception that does not carry it: something with `method` and
        `headers`, or None."""
        self.first = first
        """Finds the request that a call began with, if redirects have led to another method: a POST
        that was answered so has been carried out, whatever became of the GET after it."""
        self.changes_nothing = changes_nothing
        """Whether the request of an exception only computes or reads, though it is a POST: then it
        may be repeated if its answer was lost."""
        self.own_retries = own_retries
        """How many requests the client has made by itself, if an exception shows it."""
        self.key = key
        """What lets the services of this library be asked twice: a header, whose name has a hyphen,
        or what a call is given; for people."""
        self.key_headers = tuple(map(str.lower, _texts_of("key_headers", key_headers)))
        """The headers, in lower case, with which a POST may be repeated if its answer was lost."""
        self.senders = None if senders is None else frozenset(_texts_of("senders", senders))
        """The modules whose functions have what `request` and `first` look for in a traceback.

        Neither is asked then about a failure that came through none of these, and about one with a
        response `first` is asked if that has a `history`. If None, both are always asked."""

    def entry(self, name: str) -> Entry | None:
        """The entry of a class: its own, or that of its module (`module.*`)."""
        found = self.entries.get(name)
        return self.entries.get(f"{name.rpartition('.')[0]}.*") if found is None else found


def _checked(
    library: str, entries: Mapping[str, Entry], packages: tuple[str, ...]
) -> dict[str, Entry]:
    if not isinstance(library, str) or not library:
        raise _wrong("Table", "library", library, "a name")
    for name, entry in entries.items():
        if not isinstance(name, str) or not covers(packages, name):
            problem = f"it is in none of packages={packages!r}, so no error would be found by it"
        elif name.startswith("builtins."):
            problem = "Python's own errors are of no table; `classify` of a policy gives them kinds"
        elif not isinstance(entry, Row | Cases | Inner | Same):
            problem = f"{entry!r} is no Row, Cases, Inner or Same"
        elif isinstance(entry, Same) and isinstance(entries.get(entry.ancestor, entry), Same):
            problem = f"Same({entry.ancestor!r}) names no entry of the table with an answer"
        else:
            continue
        raise UsageError(
            f"table {library!r}, {name!r}: {problem}",
            hint='entries such as {"acme.Busy": Row(Kind.OVERLOAD, "the queue is full")}, with'
            ' packages=("acme",)',
        )
    return dict(entries)


def covers(packages: tuple[str, ...], name: str) -> bool:
    """Whether a class is of one of the packages.

    >>> covers(("acme",), "acme.client.Busy"), covers(("acme",), "acmes.Busy")
    (True, False)
    """
    return any(name.startswith(f"{package}.") for package in packages)


def _end(what: str, otherwise: Entry) -> Entry:
    if isinstance(otherwise, Row | Cases | Inner):
        return otherwise
    raise _wrong(what, "otherwise", otherwise, "a Row, Cases or Inner")


def _function(what: str, field: str, given: F) -> F:
    if callable(given):
        return given
    raise _wrong(what, field, given, "a function of the exception")


def _texts_of(field: str, given: Iterable[str]) -> tuple[str, ...]:
    texts = () if isinstance(given, str) else tuple(given)
    if isinstance(given, str) or not all(isinstance(each, str) and each for each in texts):
        raise _wrong("Table", field, given, "texts", hint=f'such as {field}=("acme",)')
    return texts


def _wrong(what: str, field: str, value: object, allowed: str, hint: str = "") -> UsageError:
    return UsageError(f"{what}: {Problem(field, value, allowed)}", hint=hint)


def by_status(
    otherwise: Entry | None = None,
    rows: Mapping[int, Row] | None = None,
    read: Callable[[Any], Iterable[int | None]] | None = None,
) -> Cases:
    """Cases of HTTP statuses as every client has them; `rows` are the library's own.

    >>> error = RuntimeError()
    >>> error.status_code = 503
    >>> by_status().row(error)
    Row(overload, 'status 503')
    """
    own: dict[str | int, Row] = {status: status_row(status) for status in STATUS_KINDS}
    own |= {f"{why[7]}*": Row(Kind.PERMANENT, why) for why in ANY_STATUS}
    own.update([*(rows or {}).items()])
    nothing = otherwise or Row(Kind.UNKNOWN, "no status of a failure")
    if read is None:
        return _Statuses(_status, own, otherwise=nothing, of="status")
    return Cases(read, own, otherwise=nothing, of="status")


def status_row(status: int) -> Row:
    """The row of an HTTP status.

    >>> status_row(504)
    Row(timeout, ambiguous, 'status 504')
    """
    return _status_rows[status]


class _StatusRows(dict[int, Row]):
    """One row for each status, so that what is known of it is one object too.

    A row is made when its status is first seen: all of them take longer than the rest of this
    module. No server sends others than those that are kept.
    """

    def __missing__(self, status: int) -> Row:
        is_ambiguous = status in AMBIGUOUS_STATUSES
        made = Row(kind_of_status(status), f"status {status}", ambiguous=is_ambiguous)
        return self.setdefault(status, made) if status in range(100, 600) else made


_status_rows = _StatusRows()


def _status(exception: BaseException) -> tuple[int | None]:
    return (status_of(exception),)
