"""The outbox on PostgreSQL: the steps of statements.py, on a pool of connections of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.errors import MissingExtraError, StoreUnavailable

try:
    import psycopg
except ImportError:
    raise MissingExtraError("psycopg", "postgres") from None
from mainstay.runtime.store_clock import StoreClock
from mainstay.stores.outbox import schema
from mainstay.stores.outbox import statements as steps
from mainstay.stores.outbox.expected import IDENTITY
from mainstay.stores.postgres.pool import Pools
from mainstay.stores.postgres.statements import RoundTrip
from mainstay.stores.postgres.store import PostgresStore
from mainstay.stores.postgres.url import PostgresUrl

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any, TypeVar

    from mainstay.core.outbox.entry import Entry
    from mainstay.core.outbox.settle import DeadRules, Settlement
    from mainstay.stores.outbox.rows import Batch, Look
    from mainstay.stores.postgres.statements import Steps

    Answer = TypeVar("Answer")

_MIGRATING = 0x6D61_696E_6F75_7462
"""The advisory lock of a migration."""
_LISTENING = 0.1
"""Seconds between two looks at whether the relay has stopped."""
_SESSION = (
    "SET enable_seqscan = off; SET enable_sort = off; SET jit = off;"
    " SET plan_cache_mode = force_generic_plan;"
)
"""Every statement has an index in its order; statistics of a table that empties and fills within
seconds must not suggest another plan. So planning one anew for each batch is of no use."""


class PostgresDatabase(PostgresStore):
    """A database of PostgreSQL without the tables of a store."""

    def __init__(self, url: str | PostgresUrl) -> None:
        address = PostgresUrl(url) if isinstance(url, str) else url
        self.url = address.shown
        self.timeout = address.timeout
        self.address = address
        self._clock = StoreClock(self.url)
        self._pools = Pools(address.params, address.pool, address.timeout, _SESSION)


class PostgresOutbox:
    """The outbox of a database, for relays and commands; adding needs only a connection.

    Args:
        url: that of the database, as PostgresStore takes it.
        creates: whether missing tables are created.
    """

    dialect = "postgresql"

    def __init__(self, url: str | PostgresUrl, *, creates: bool = True) -> None:
        self._database = PostgresDatabase(url)
        self.url = self._database.url
        try:
            self._prepare(creates=creates)
        except BaseException:
            self.close()
            raise

    def claim(self, limit: int, lease: float, token: str, *, is_idle: bool) -> Batch:
        """Claims the first entries that are ready."""
        return self._drive("claim", lambda: steps.claim(limit, lease, token, is_idle=is_idle))

    def settle(self, entries: Iterable[Entry], done: Sequence[Settlement]) -> set[str]:
        """Writes what became of claimed entries; the ids of those that were still ours."""
        known = list(entries)
        return self._drive("settle", lambda: steps.settle(known, done))

    def renew(self, entries: Iterable[Entry], lease: float) -> set[str]:
        """Renews leases; the ids of those that were still ours."""
        known = list(entries)
        tokens = sorted({each.token for each in known})
        ids = [each.id for each in known]
        return self._drive("renew", lambda: steps.renew(tokens, ids, lease))

    def upkeep(self, rules: DeadRules) -> Look:
        """Promotes what is due, and takes over what crashed workers have left."""
        return self._drive("upkeep", lambda: steps.upkeep(rules))

    def decide(
        self, entry_id: str, decide: Callable[[Entry, float], Settlement]
    ) -> tuple[Entry, Settlement] | None:
        """Settles one entry by a decision; None if there is no such entry."""
        return self._drive("decide", lambda: steps.decide_dead(entry_id, decide))

    def unreported(self) -> list[Entry]:
        """Dead entries of which the inbox has no item yet."""
        return self._drive("read", steps.unreported)

    def reported(self, ids: list[str]) -> None:
        """Notes that the inbox has items of them."""
        self._drive("write", lambda: steps.reported(ids))

    def get(self, entry_id: str) -> Entry | None:
        """One entry."""
        return self._drive("read", lambda: steps.get(entry_id))

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
        return self._drive("read", lambda: steps.listed(wanted, topic, aggregate_id, after, limit))

    def counts(self) -> dict[str, int]:
        """Entries by phase."""
        return self._drive("read", steps.counts)

    def oldest_age(self) -> float | None:
        """Seconds since the oldest entry was added that is due and not published."""
        return self._drive("read", steps.oldest_age)

    def purge(self, age: float, limit: int = 1000) -> int:
        """Deletes entries that ended some time ago; how many."""
        return self._drive("purge", lambda: steps.purge(age, limit))

    def forget(self, age: float, limit: int = 1000) -> int:
        """Deletes notes of messages that were consumed some time ago; how many."""
        return self._drive("purge", lambda: steps.forget(age, limit))

    def listen(self, wake: Callable[[], object], stop: threading.Event) -> None:
        """Calls `wake` when entries were committed, until `stop` is set; for a thread."""
        while not stop.is_set():
            try:
                with psycopg.connect(**self._database.address.params, autocommit=True) as found:
                    found.execute("LISTEN mainstay_outbox")
                    wake()  # for what was committed before
                    while not stop.is_set():
                        for _ in found.notifies(timeout=_LISTENING, stop_after=1):
                            wake()
            except psycopg.Error:  # the relay polls meanwhile
                stop.wait(_LISTENING)

    def identity(self) -> tuple[Any, ...]:
        """What identifies the table."""
        return self._drive("read", _identity)

    def is_in(self, store: Any) -> bool:
        """Whether it is in the database of a store."""
        drive = getattr(store, "drive", None)
        if drive is None:
            return False
        return bool(drive("read", _identity) == self.identity())

    def close(self) -> None:
        """Closes every connection."""
        self._database.close()

    def _drive(self, what: str, make: Callable[[], Steps[Answer]]) -> Answer:
        try:
            return self._database.drive(what, make)
        except StoreUnavailable as error:
            if isinstance(error.__cause__, psycopg.errors.UndefinedTable):
                raise schema.missing(self.url, self.dialect, error.__cause__) from error
            raise

    def _prepare(self, *, creates: bool) -> None:
        version = self._drive("open", steps.version)
        if version == schema.newest(self.dialect):
            return
        if not creates and version == 0:
            raise schema.missing(self.url, self.dialect)
        if creates:
            self._migrated(version)
        else:
            schema.check(self.dialect, version, self.url)

    def _migrated(self, version: int) -> None:
        """Brings the tables up to date, or raises with the command that prints what to apply."""
        try:
            self._drive("migrate", lambda: _migrate(self.url))
        except StoreUnavailable as error:
            if not isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                raise
            if version == 0:
                raise schema.missing(self.url, self.dialect, error.__cause__) from error
            schema.check(self.dialect, version, self.url)


def _identity() -> Steps[tuple[Any, ...]]:
    rows = yield RoundTrip(IDENTITY)
    return rows[0]


def _migrate(url: str) -> Steps[None]:
    """Brings the schema up to date; of several processes that start, one does it."""
    yield RoundTrip("BEGIN")
    yield RoundTrip("SELECT pg_advisory_xact_lock(%(lock)s::bigint)", {"lock": _MIGRATING})
    for script in schema.pending("postgresql", (yield from steps.version()), url).values():
        for statement in schema.statements("postgresql", script):
            yield RoundTrip(statement)
    yield RoundTrip("COMMIT")
