"""The statements for PostgreSQL, and steps as generators, without a connection.

A step yields round trips: a statement each, and what goes to the server together with it. It is
sent the rows, and returns the reply. Sync and async code drive the same generators.

**A record is changed without holding a lock meanwhile.** The first trip reads the record, the
server's clock, and `xmin`, which PostgreSQL sets anew with every change of a row. The second
writes, on the condition that `xmin` is unchanged; an absent record is inserted unless it exists by
then. Either is one statement, and so a transaction of its own. A step that lost the race queues up:
its next reading locks the row, so that the row is the latest and stays so until it is written. In
a transaction of the caller's own it is the same, and others wait for its end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainstay.core.base.change import KEEP
from mainstay.errors import StoreError, ValueTooLarge
from mainstay.stores.migrations import pending, statements

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any, Protocol, TypeAlias, TypeVar

    from mainstay.core.base.change import Decide, Reply

    Answer = TypeVar("Answer")
    Values: TypeAlias = dict[str, Any]
    Statement: TypeAlias = tuple[str, Values]
    Rows: TypeAlias = list[tuple[Any, ...]]
    Steps: TypeAlias = Generator["RoundTrip", Rows, Answer]

    class StepDriver(Protocol):
        """Drives steps over connections of its own; PostgresStore is one."""

        @property
        def url(self) -> str: ...
        def drive(self, what: str, make: Callable[[], Steps[Answer]]) -> Answer: ...
        def close(self) -> None: ...


CLOCK = "extract(epoch FROM clock_timestamp())::float8"
_AT = "k.space = %(space)s::text AND k.key = %(key)s::text"
_SEEN = "k.xmin::text = %(seen)s::text"
_READ = (
    f"SELECT {CLOCK}, k.value, k.xmin::text"  # noqa: S608 -- constants
    f" FROM (VALUES (1)) AS one LEFT JOIN mainstay_kept AS k ON {_AT}"
)
_LOCK = (  # the clock is read when the lock is held, because the join comes first
    "WITH held AS MATERIALIZED (SELECT k.value, k.xmin::text AS seen"  # noqa: S608 -- constants
    f" FROM mainstay_kept AS k WHERE {_AT} FOR UPDATE)"
    f" SELECT {CLOCK}, held.value, held.seen FROM (VALUES (1)) AS one LEFT JOIN held ON true"
)
_INSERT = (
    "INSERT INTO mainstay_kept (space, key, value, expires) VALUES"
    " (%(space)s::text, %(key)s::text, %(value)s::bytea, %(expires)s::float8)"
    " ON CONFLICT DO NOTHING RETURNING 1"
)
_UPDATE = (
    "UPDATE mainstay_kept AS k"  # noqa: S608 -- constants
    " SET value = %(value)s::bytea, expires = %(expires)s::float8"
    f" WHERE {_AT} AND {_SEEN} RETURNING 1"
)
_DELETE = f"DELETE FROM mainstay_kept AS k WHERE {_AT} AND {_SEEN} RETURNING 1"  # noqa: S608
_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_HURRY = (
    "SELECT set_config('mainstay.lock_timeout', current_setting('lock_timeout'), true),"
    " set_config('lock_timeout', %(patience)s::text, true)"
)
_RELAX = "SELECT set_config('lock_timeout', current_setting('mainstay.lock_timeout'), true)"
_SCAN = (
    "SELECT key, value FROM mainstay_kept WHERE space = %(space)s::text AND key > %(after)s::text"
    " ORDER BY key LIMIT %(limit)s::bigint"
)
_PURGE = (
    "WITH gone AS (DELETE FROM mainstay_kept WHERE (space, key) IN (SELECT space, key"
    " FROM mainstay_kept WHERE expires <= %(now)s::float8"
    " LIMIT %(limit)s::bigint FOR UPDATE SKIP LOCKED) RETURNING 1) SELECT count(*) FROM gone"
)
_NOW = f"SELECT {CLOCK}"
_HAS_SCHEMA = "SELECT to_regclass('mainstay_schema') IS NOT NULL"
_SERVER = "SELECT current_setting('server_version'), current_setting('server_encoding')"
_VERSION = "SELECT coalesce(max(version), 0) FROM mainstay_schema"
_MAKE_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS mainstay_schema"
    " (version integer PRIMARY KEY, applied timestamptz NOT NULL DEFAULT now())"
)
_MIGRATING = 0x6D61_696E_7374_6179
"""The advisory lock of a migration: the letters of the library's name."""
_LONGEST = 2600
"""Bytes of space and key together: an index entry has 2,704 at most, a third of a page."""
LARGEST = (1 << 30) - (1 << 16)
"""Bytes of a value: PostgreSQL takes and gives 1 GB in one message, with all else that is in it."""
_SHORT = _LONGEST // 4
"""Characters that have no more bytes than that, however they are written."""


class RoundTrip(NamedTuple):
    """A statement, and what is sent together with it; its rows are the answer."""

    text: str
    values: Values = {}  # noqa: RUF012 -- it is never changed
    before: tuple[Statement, ...] = ()
    after: tuple[Statement, ...] = ()


def step(space: str, key: str, decide: Decide[Reply]) -> Steps[Reply]:
    """Reads, decides and writes, in transactions of its own."""
    where = address(space, key)
    rows = yield RoundTrip(_READ, where)
    reply, write = _decided(decide, rows[0], where)
    if write is None or (yield RoundTrip(*write)):
        return reply
    while True:
        rows = yield RoundTrip(_LOCK, where, before=((_BEGIN, {}),))
        reply, write = _decided(decide, rows[0], where)
        if write is None:
            yield RoundTrip("ROLLBACK")
            return reply
        if (yield RoundTrip(*write, after=(("COMMIT", {}),))):
            return reply


def step_also(
    space: str, key: str, decide: Decide[Reply], also: Sequence[Statement]
) -> Steps[Reply]:
    """A step with other statements, as one transaction of its own."""
    where = address(space, key)
    while True:
        rows = yield RoundTrip(_LOCK, where, before=((_BEGIN, {}),))
        reply, write = _decided(decide, rows[0], where)
        if write is None:
            yield RoundTrip("ROLLBACK")
            return reply
        if not (yield RoundTrip(*write)):  # an absent record was inserted meanwhile
            yield RoundTrip("ROLLBACK")
            continue
        for text, values in also:
            yield RoundTrip(text, values)
        yield RoundTrip("COMMIT")
        return reply


def step_within(space: str, key: str, decide: Decide[Reply], timeout: float) -> Steps[Reply]:
    """The same in a transaction of the caller's own, whose `lock_timeout` is put back."""
    where = address(space, key)
    hurry: Statement = (_HURRY, {"patience": patience(timeout)})
    relax: Statement = (_RELAX, {})
    rows = yield RoundTrip(_READ, where)
    while True:
        reply, write = _decided(decide, rows[0], where)
        if write is None or (yield RoundTrip(*write, before=(hurry,), after=(relax,))):
            return reply
        rows = yield RoundTrip(_LOCK, where, before=(hurry,), after=(relax,))


def patience(timeout: float) -> str:
    """How long to wait for a lock: a little less, so that the server times out first."""
    return f"{max(1, int(timeout * 900))}ms"


def _decided(
    decide: Decide[Reply], row: tuple[Any, ...], where: Values
) -> tuple[Reply, Statement | None]:
    """The reply, and the statement that makes the change if the record is still the same."""
    now, value, seen = row
    change, reply = decide(value, now)
    if change is KEEP or (change.value is None and seen is None):
        return reply, None
    if change.value is None:
        return reply, (_DELETE, {**where, "seen": seen})
    if len(change.value) > LARGEST:
        raise ValueTooLarge("postgresql", len(change.value), LARGEST)
    values = {**where, "value": change.value, "expires": change.expires}
    if seen is None:
        return reply, (_INSERT, values)
    return reply, (_UPDATE, {**values, "seen": seen})


def read(space: str, key: str) -> Steps[tuple[bytes | None, float]]:
    """The record and the server's clock."""
    (now, value, _), *_ = yield RoundTrip(_READ, address(space, key))
    return value, now


def scan(space: str, after: str, limit: int) -> Steps[list[tuple[str, bytes]]]:
    """The records of a space in the order of their keys, from one on."""
    where = {"space": _shielded(space), "after": _shielded(after), "limit": limit}
    rows = yield RoundTrip(_SCAN, where)
    return [(_bared(key), value) for key, value in rows]


def purge(limit: int, before_jumps: Callable[[float], float]) -> Steps[int]:
    """Drops records that have expired, on a clock that was not set ahead; how many."""
    rows = yield RoundTrip(_NOW)
    rows = yield RoundTrip(_PURGE, {"limit": limit, "now": before_jumps(rows[0][0])})
    return int(rows[0][0])


def version() -> Steps[int]:
    """The version of the schema; 0 if there is none."""
    rows = yield RoundTrip(_HAS_SCHEMA)
    if not rows[0][0]:
        return 0
    rows = yield RoundTrip(_VERSION)
    return int(rows[0][0])


def server() -> Steps[tuple[str, str]]:
    """The server's version, and the encoding of its text."""
    rows = yield RoundTrip(_SERVER)
    return rows[0][0], rows[0][1]


def migrate(url: str) -> Steps[None]:
    """Brings the schema up to date; of several processes that start, one does it."""
    _, encoding = yield from server()
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise StoreError(
            f"{url} keeps text as {encoding}, which cannot hold every key",
            hint="use a database with the encoding UTF8",
        )
    if not pending("postgres", (yield from version()), url):
        return
    yield RoundTrip("BEGIN")
    yield RoundTrip("SELECT pg_advisory_xact_lock(%(lock)s::bigint)", {"lock": _MIGRATING})
    yield RoundTrip(_MAKE_SCHEMA)
    for number, script in pending("postgres", (yield from version()), url).items():
        for statement in statements(script):
            yield RoundTrip(statement)
        done = "INSERT INTO mainstay_schema (version) VALUES (%(number)s::integer)"
        yield RoundTrip(done, {"number": number})
    yield RoundTrip("COMMIT")


# --- text that PostgreSQL can keep ----------------------------------------------------------------


def address(space: str, key: str) -> Values:
    """Where a record is; refuses what an index cannot hold."""
    where = {"space": _shielded(space), "key": _shielded(key)}
    if len(space) + len(key) <= _SHORT:  # as most are
        return where
    size = sum(len(text.encode()) for text in where.values())
    if size > _LONGEST:
        raise StoreError(
            f"space and key have {size} bytes together, and PostgreSQL takes {_LONGEST}",
            hint="use a shorter key, or a hash of it",
        )
    return where


def _shielded(text: str) -> str:
    """Without the character 0, which PostgreSQL refuses; the order stays what it was."""
    if not text.isascii():
        _check(text)
    if "\x00" in text or "\x01" in text:
        return text.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")
    return text


def _bared(text: str) -> str:
    """What was shielded, as it was."""
    if "\x01" in text:
        return text.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")
    return text


def _check(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise StoreError(
            f"{text!r} is no text: it has half a surrogate pair", hint="use a key that is text"
        ) from None
