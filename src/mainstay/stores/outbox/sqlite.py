"""The outbox in a file of SQLite's: each step is one transaction, since there is one writer."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.core.outbox.claim import Candidate, plan_claim
from mainstay.core.outbox.entry import Phase
from mainstay.core.outbox.settle import LONGEST_WAIT, crashed
from mainstay.errors import StoreError, StoreUnavailable
from mainstay.runtime.clock import SYSTEM
from mainstay.stores.outbox import schema
from mainstay.stores.outbox.expected import is_same_file
from mainstay.stores.outbox.rows import COLUMNS, Batch, Look, entry_of, history_text
from mainstay.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeVar

    from mainstay.core.outbox.entry import Entry
    from mainstay.core.outbox.settle import DeadRules, Settlement

    Done = TypeVar("Done")

_RELEASED = 100
"""Parked rows that become ready at once, as many as a claim takes."""
_BY_AGGREGATE = "mainstay_outbox INDEXED BY mainstay_outbox_aggregate"
_READY = (
    f"SELECT {COLUMNS} FROM mainstay_outbox INDEXED BY mainstay_outbox_ready"
    " WHERE phase = 'ready' ORDER BY position LIMIT ?"
)

_LEAST = (
    f"SELECT min(position) FROM {_BY_AGGREGATE} WHERE aggregate = ? AND hold = ? UNION ALL"
    f" SELECT min(position) FROM {_BY_AGGREGATE} WHERE aggregate = ? AND hold = ?"
)
_PARKED, _IS_READY, _BUSY = 0, 1, 2
_TAKE = (
    "UPDATE mainstay_outbox SET phase = 'claimed', attempts = attempts + 1, token = ?,"
    " lease_until = ? WHERE id = ?"
)
_PARK = "UPDATE mainstay_outbox SET phase = 'parked' WHERE id = ?"
_LAST = "(SELECT coalesce(max(position), 0) + 1 FROM mainstay_outbox)"
_SETTLE = (
    "UPDATE mainstay_outbox SET phase = ?, attempts = ?, crashes = ?, next_at = ?, ended_at = ?,"
    " history = coalesce(?, history), token = '', lease_until = NULL, is_replay = ?, has_item = ?,"
    f" position = CASE WHEN ? THEN {_LAST} ELSE position END"
    " WHERE id = ? AND token = ? AND phase = ?"
)
_RELEASE = (
    f"UPDATE mainstay_outbox SET phase = 'ready' WHERE id IN (SELECT id FROM {_BY_AGGREGATE}"
    " WHERE aggregate = ? AND hold = 0 AND position < ?"
    f" ORDER BY position LIMIT {_RELEASED})"
)
_LARGEST = 2**63 - 1
_RENEW = (
    "UPDATE mainstay_outbox SET lease_until = ? WHERE id = ? AND token = ? AND phase = 'claimed'"
)
_LOOK = (
    "SELECT (SELECT min(next_at) FROM mainstay_outbox WHERE phase = 'scheduled' AND next_at > 0),"
    " (SELECT min(next_at) FROM mainstay_outbox WHERE phase = 'waiting' AND next_at > 0),"
    " (SELECT max(next_at) FROM mainstay_outbox WHERE phase = 'waiting' AND next_at > 0),"
    " (SELECT min(lease_until) FROM mainstay_outbox WHERE lease_until > 0),"
    " (SELECT max(lease_until) FROM mainstay_outbox WHERE lease_until > 0),"
    " EXISTS (SELECT 1 FROM mainstay_outbox WHERE has_item = 0)"
)
_DUE_NOW = (
    "SELECT id, phase FROM mainstay_outbox WHERE phase IN ('waiting', 'scheduled')"
    " AND next_at > 0 AND (next_at <= ?"
    f" OR (phase = 'waiting' AND next_at > ? + {LONGEST_WAIT})) ORDER BY next_at, position"
    " LIMIT 1000"
)
_PROMOTE = (
    "UPDATE mainstay_outbox SET phase = 'ready', next_at = NULL,"
    f" position = CASE WHEN ? THEN {_LAST} ELSE position END WHERE id = ?"
)
_EXPIRED = (
    f"SELECT {COLUMNS} FROM mainstay_outbox WHERE phase = 'claimed' AND lease_until > 0"
    f" AND (lease_until <= ? OR lease_until > ? + {LONGEST_WAIT}) LIMIT 100"
)
_UNREPORTED = (
    f"SELECT {COLUMNS} FROM mainstay_outbox WHERE has_item = 0 ORDER BY position LIMIT 100"
)
_GET = f"SELECT {COLUMNS} FROM mainstay_outbox WHERE id = ?"
_OLDEST = (
    "SELECT (SELECT created_at FROM mainstay_outbox WHERE phase = 'ready'"
    " ORDER BY position LIMIT 1),"
    " (SELECT min(created_at) FROM mainstay_outbox WHERE lease_until > 0),"
    " (SELECT min(created_at) FROM mainstay_outbox WHERE phase = 'waiting' AND next_at > 0)"
)
_ENDED = (
    "SELECT id FROM mainstay_outbox WHERE phase IN ('sent', 'discarded') AND ended_at <= ? LIMIT ?"
)


class SqliteDatabase(SqliteStore):
    """A file of SQLite's without the tables of a store."""

    def _migrate(self) -> None:
        """Leaves the file as it is."""

    def write(self, what: str, work: Callable[..., Done], *args: Any) -> Done:
        """The work as one transaction."""
        return self._step(what, work, *args)

    def look(self, what: str, work: Callable[..., Done], *args: Any) -> Done:
        """The work without a transaction: one statement that reads."""
        return self._use(what, work, *args)


class SqliteOutbox:
    """The outbox of a file, for relays and commands; adding needs only a connection.

    Args:
        url: that of the file, as SqliteStore takes it.
        creates: whether missing tables are created.
        now: the clock; by default the machine's.
    """

    dialect = "sqlite"

    def __init__(
        self, url: str, *, creates: bool = True, now: Callable[[], float] = SYSTEM.wall
    ) -> None:
        self._now = now
        self._database = SqliteDatabase(url)
        self.url = self._database.url
        if self._database.path == ":memory:":
            self._database.close()
            raise StoreError(
                f"{url} is in memory: no relay could reach what you add",
                hint="use a file, such as sqlite:///app.db",
            )
        try:
            self._prepare(creates=creates)
        except BaseException:
            self.close()
            raise

    def claim(self, limit: int, lease: float, token: str, *, is_idle: bool) -> Batch:
        """Claims the first entries that are ready."""
        if not self._look(_has_ready):
            return Batch((), token, self._now())
        return self._write("claim", _claim, limit, lease, token, is_idle, self._now())

    def settle(self, entries: Iterable[Entry], done: Sequence[Settlement]) -> set[str]:
        """Writes what became of claimed entries; the ids of those that were still ours."""
        return self._write("settle", _settle, list(entries), done)

    def renew(self, entries: Iterable[Entry], lease: float) -> set[str]:
        """Renews leases; the ids of those that were still ours."""
        return self._write("renew", _renew, list(entries), self._now() + lease)

    def upkeep(self, rules: DeadRules) -> Look:
        """Promotes what is due, and takes over what crashed workers have left."""
        now = self._now()
        look = self._look(_find_due, now)
        if not look.is_due:
            return look
        recovered = self._write("upkeep", _promote, now, rules)
        after = self._look(_find_due, now)
        return replace(after, recovered=recovered)

    def decide(
        self, entry_id: str, decide: Callable[[Entry, float], Settlement]
    ) -> tuple[Entry, Settlement] | None:
        """Settles one entry by a decision; None if there is no such entry."""
        return self._write("decide", _decide, entry_id, decide, self._now())

    def unreported(self) -> list[Entry]:
        """Dead entries of which the inbox has no item yet."""
        return self._look(_rows, _UNREPORTED)

    def reported(self, ids: list[str]) -> None:
        """Notes that the inbox has items of them."""
        self._write("write", _report, ids)

    def get(self, entry_id: str) -> Entry | None:
        """One entry."""
        return next(iter(self._look(_rows, _GET, entry_id)), None)

    def list(
        self,
        phases: Iterable[str],
        *,
        topic: str | None = None,
        aggregate_id: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Entry]:
        """Entries of some phases by position, page by page."""
        wanted = list(phases)
        query = (
            f"SELECT {COLUMNS} FROM mainstay_outbox WHERE phase IN"
            f" ({', '.join('?' * len(wanted))}) AND position > ?"
            + " AND topic = ?" * (topic is not None)
            + " AND aggregate_id = ?" * (aggregate_id is not None)
            + " ORDER BY position LIMIT ?"
        )
        given = [each for each in (topic, aggregate_id) if each is not None]
        return self._look(_rows, query, *wanted, after, *given, limit)

    def counts(self) -> dict[str, int]:
        """Entries by phase."""
        return self._look(_counts)

    def oldest_age(self) -> float | None:
        """Seconds since the oldest entry was added that is due and not published."""
        known = [each for each in self._look(_one, _OLDEST) if each is not None]
        return max(0.0, self._now() - min(known)) if known else None

    def purge(self, age: float, limit: int = 1000) -> int:
        """Deletes entries that ended some time ago; how many."""
        return self._write("purge", _purge, self._now() - age, limit)

    def forget(self, age: float, limit: int = 1000) -> int:
        """Deletes notes of messages that were consumed some time ago; how many."""
        return self._write("purge", _forget, self._now() - age, limit)

    def listen(self, wake: Callable[[], object], stop: threading.Event) -> None:
        """Returns at once: SQLite notifies nobody, and relays poll."""

    def identity(self) -> tuple[Any, ...]:
        """What identifies the file."""
        return (self._database.path,)

    def is_in(self, store: Any) -> bool:
        """Whether it is in the file of a store."""
        return is_same_file(getattr(store, "path", ""), self._database.path)

    def close(self) -> None:
        """Closes every connection."""
        self._database.close()

    def _write(self, what: str, work: Callable[..., Done], *args: Any) -> Done:
        try:
            return self._database.write(what, work, *args)
        except StoreUnavailable as error:
            raise self._explained(error) from error

    def _look(self, work: Callable[..., Done], *args: Any) -> Done:
        try:
            return self._database.look("read", work, *args)
        except StoreUnavailable as error:
            raise self._explained(error) from error

    def _explained(self, error: StoreUnavailable) -> Exception:
        if "no such table: mainstay_outbox" in str(error.__cause__):
            return schema.missing(self.url, self.dialect, error.__cause__)
        return error

    def _prepare(self, *, creates: bool) -> None:
        version = self._look(version_of)
        if version == schema.newest(self.dialect):
            return
        if creates:
            self._write("migrate", migrate, self.url)
        elif version == 0:
            raise schema.missing(self.url, self.dialect)
        else:
            schema.check(self.dialect, version, self.url)


# --- the schema -----------------------------------------------------------------------------------


def version_of(connection: sqlite3.Connection) -> int:
    """The version of the schema; 0 if there is none."""
    try:
        row = connection.execute("SELECT version FROM mainstay_outbox_schema").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        return 0
    return int(row[0])


def migrate(connection: sqlite3.Connection, url: str) -> None:
    """Brings the schema up to date, in a transaction that is under way."""
    for script in schema.pending("sqlite", version_of(connection), url).values():
        for statement in schema.statements("sqlite", script):
            connection.execute(statement)


# --- steps ----------------------------------------------------------------------------------------


def _has_ready(connection: sqlite3.Connection) -> bool:
    question = "SELECT EXISTS (SELECT 1 FROM mainstay_outbox WHERE phase = 'ready')"
    return bool(connection.execute(question).fetchone()[0])


def _claim(
    connection: sqlite3.Connection, limit: int, lease: float, token: str, is_idle: bool, now: float
) -> Batch:
    entries = {row[0]: entry_of(row) for row in connection.execute(_READY, (limit,)).fetchall()}
    first = {}
    for aggregate in {each.aggregate for each in entries.values() if each.aggregate is not None}:
        found = _first(connection, aggregate, _PARKED, _BUSY)
        if found is not None:
            first[aggregate] = found
    rows = [Candidate(e.id, e.aggregate, e.position, e.crashes) for e in entries.values()]
    plan = plan_claim(rows, first, is_idle=is_idle)
    connection.executemany(_PARK, [(row.id,) for row in plan.blocked])
    connection.executemany(_TAKE, [(token, now + lease, row.id) for row in plan.claimed])
    taken = tuple(_taken(entries[row.id], token) for row in plan.claimed)
    return Batch(taken, token, now, len(entries), len(plan.blocked), wants_alone=plan.wants_alone)


def _taken(entry: Entry, token: str) -> Entry:
    attempts = entry.attempts + 1
    message = replace(entry.message, attempt=attempts)
    return replace(entry, message=message, attempts=attempts, token=token, phase=Phase.CLAIMED)


def _settle(
    connection: sqlite3.Connection, entries: Sequence[Entry], done: Sequence[Settlement]
) -> set[str]:
    known = {entry.id: entry for entry in entries}
    kept = {each.id for each in done if _write_one(connection, known[each.id], each)}
    for aggregate in {each.aggregate for each in entries if each.aggregate is not None}:
        first = _first(connection, aggregate, _IS_READY, _BUSY)
        connection.execute(_RELEASE, (aggregate, _LARGEST if first is None else first))
    return kept


def _first(connection: sqlite3.Connection, aggregate: str, one: int, other: int) -> int | None:
    """The first position of an aggregate's rows that hold it in two ways."""
    found = [row[0] for row in connection.execute(_LEAST, (aggregate, one, aggregate, other))]
    return min((each for each in found if each is not None), default=None)


def _write_one(connection: sqlite3.Connection, entry: Entry, done: Settlement) -> bool:
    history = None if done.history is None else history_text(done.history)
    values = (
        done.phase.value,
        done.attempts,
        done.crashes,
        done.next_at,
        done.ended_at,
        history,
        done.is_replay,
        False if done.is_dead else None,
        done.is_moved,
        done.id,
        entry.token,
        entry.phase.value,
    )
    return connection.execute(_SETTLE, values).rowcount == 1


def _renew(connection: sqlite3.Connection, entries: Sequence[Entry], until: float) -> set[str]:
    return {
        each.id
        for each in entries
        if connection.execute(_RENEW, (until, each.id, each.token)).rowcount
    }


def _find_due(connection: sqlite3.Connection, now: float) -> Look:
    return Look.of(now, *connection.execute(_LOOK).fetchone())


def _promote(
    connection: sqlite3.Connection, now: float, rules: DeadRules
) -> tuple[tuple[Entry, Settlement], ...]:
    for entry_id, phase in connection.execute(_DUE_NOW, (now, now)).fetchall():
        connection.execute(_PROMOTE, (phase == "scheduled", entry_id))
    late = _rows(connection, _EXPIRED, now, now)
    done = [crashed(entry, now, rules) for entry in late]
    _settle(connection, late, done)
    return tuple(zip(late, done, strict=True))


def _decide(
    connection: sqlite3.Connection,
    entry_id: str,
    decide: Callable[[Entry, float], Settlement],
    now: float,
) -> tuple[Entry, Settlement] | None:
    found = _rows(connection, _GET, entry_id)
    if not found:
        return None
    done = decide(found[0], now)
    _settle(connection, found, [done])
    return found[0], done


def _report(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    connection.executemany(
        "UPDATE mainstay_outbox SET has_item = 1 WHERE id = ? AND has_item = 0",
        [(each,) for each in ids],
    )


def _purge(connection: sqlite3.Connection, before: float, limit: int) -> int:
    ids = connection.execute(_ENDED, (before, limit)).fetchall()
    connection.executemany("UPDATE mainstay_outbox SET phase = 'purged' WHERE id = ?", ids)
    connection.executemany("DELETE FROM mainstay_outbox WHERE id = ?", ids)
    return len(ids)


def _forget(connection: sqlite3.Connection, before: float, limit: int) -> int:
    return connection.execute(
        "DELETE FROM mainstay_consumed WHERE (consumer, message_id) IN (SELECT consumer,"
        " message_id FROM mainstay_consumed WHERE consumed_at <= ? LIMIT ?)",
        (before, limit),
    ).rowcount


def _rows(connection: sqlite3.Connection, query: str, *values: Any) -> list[Entry]:
    return [entry_of(row) for row in connection.execute(query, values).fetchall()]


def _one(connection: sqlite3.Connection, query: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] = connection.execute(query).fetchone()
    return row


def _counts(connection: sqlite3.Connection) -> dict[str, int]:
    return dict(
        connection.execute("SELECT phase, count(*) FROM mainstay_outbox GROUP BY phase").fetchall()
    )
