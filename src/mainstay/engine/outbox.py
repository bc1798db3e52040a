"""`engine.outbox`: adds messages in a caller's transaction, makes relays, acts on the dead."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mainstay.core.base.validate import Checker
from mainstay.core.events.describe import usual_redactor
from mainstay.core.outbox.entry import STATES, Phase
from mainstay.core.outbox.events import OutboxDiscarded, OutboxPurged, OutboxReplayed
from mainstay.core.outbox.payload import check_text
from mainstay.core.outbox.settle import DeadRules, discarded, replayed
from mainstay.core.retry.backoff import Backoff, Jitter
from mainstay.drivers.call.emit import emit
from mainstay.drivers.outbox.publish import Attempts
from mainstay.drivers.outbox.relay import Relay, RelayOptions
from mainstay.drivers.outbox.reports import KIND, OPERATION, Reports
from mainstay.drivers.policy import RetryPolicy
from mainstay.engine.operations import Operation
from mainstay.errors import UsageError
from mainstay.runtime.fork import make_lock
from mainstay.runtime.reports.report_failure import report
from mainstay.stores.outbox.insert import aadd, aconsume, add, consume
from mainstay.stores.outbox.new_row import new_row
from mainstay.stores.outbox.open import expected_database, open_outbox

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from typing import Any, Unpack

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.inbox.items import Decision, Item
    from mainstay.core.outbox.entry import Entry
    from mainstay.core.outbox.message import Message
    from mainstay.core.outbox.settle import Settlement
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.policy import Policy
    from mainstay.drivers.call.site import Entropy, Site
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.ports import Publisher, Sink, Store
    from mainstay.stores.outbox.expected import ExpectedDatabase
    from mainstay.stores.outbox.new_row import MessageFields
    from mainstay.stores.outbox.postgres import PostgresOutbox
    from mainstay.stores.outbox.sqlite import SqliteOutbox


class OutboxWiring(NamedTuple):
    """The parts of an engine that its outbox works with."""

    store: Store
    inbox: Inbox
    listeners: tuple[Sink, ...]
    redact: Redactor | None
    entropy: Entropy
    policy: Policy | None
    """That of the operation "outbox", if one is configured."""
    site: Callable[[str, Policy], Site]
    """Makes the site of an operation under a policy."""


class Outbox:
    """The outbox of an engine.

    It is in the application's own database: that of the engine's store, or of `Engine(outbox=URL)`.

    >>> import sqlite3, tempfile
    >>> from mainstay import Engine
    >>> path = f"{tempfile.mkdtemp()}/app.db"
    >>> with Engine(f"sqlite:///{path}") as engine:
    ...     connection = sqlite3.connect(path)
    ...     with connection:
    ...         _ = engine.outbox.add(connection, topic="user.created.v1", payload={"id": 7})
    ...     connection.close()
    ...     engine.outbox.relay(lambda message: print(message.payload)).drain().published
    b'{"id":7}'
    1
    """

    def __init__(self, wiring: OutboxWiring, place: str | None, *, creates: bool = True) -> None:
        self._wiring = wiring
        self._place = place
        self._creates = creates
        self._table: PostgresOutbox | SqliteOutbox | None = None
        self._lock = make_lock()
        self._relays: list[Relay] = []
        self._expected: ExpectedDatabase | None = None
        self._is_ready = False
        if place is not None:
            self._opened()

    # --- adding -----------------------------------------------------------------------------------

    def add(
        self,
        connection: Any,
        *,
        topic: str,
        payload: UserValue,
        **fields: Unpack[MessageFields],
    ) -> str:
        """Adds a message in the transaction of a connection: it is published if that commits.

        Args:
            connection: yours: of sqlite3, psycopg, SQLAlchemy (Connection, Session) or Django.
            topic: where it is published to: a subject, topic, routing key or stream.
            payload: a dict, list, msgspec Struct or pydantic model, as JSON; or bytes.
            fields: `aggregate_type` and `aggregate_id`, what it is about: messages of one aggregate
                are published in the order of their commits, unless `ordered` is False.
                `dedupe_key`: of messages with the same key only the first is kept. `delay`,
                seconds, or `due`, a datetime with a time zone, before which it is not published.
                `id`, by default a new UUID. `content_type`, by default JSON, or octet-stream for
                bytes. The attributes of CloudEvents: `source` (by default "mainstay"), `type` (the
                topic), `subject` (the id of the aggregate), `dataschema`, others as `extensions`.

        Returns:
            The id of the message; that of the first one, if the dedupe key is known.

        >>> import sqlite3
        >>> engine = Engine()
        >>> connection = sqlite3.connect(":memory:")
        >>> engine.outbox.add(connection, topic="t", payload=[1], id="8d0f", aggregate_id="u-1")
        '8d0f'
        >>> connection.close()
        """
        row = new_row(topic, payload, fields)
        if not self._is_ready:
            self._ready()
        return add(connection, row, creates=self._creates, expected=self._expected)

    async def aadd(
        self,
        connection: Any,
        *,
        topic: str,
        payload: UserValue,
        **fields: Unpack[MessageFields],
    ) -> str:
        """The same on an async connection of psycopg or SQLAlchemy.

        >>> import asyncio, sqlite3
        >>> connection = sqlite3.connect(":memory:")
        >>> asyncio.run(Engine().outbox.aadd(connection, topic="t", payload=[1], id="8d0f"))
        '8d0f'
        >>> connection.close()
        """
        row = new_row(topic, payload, fields)
        self._ready()
        return await aadd(connection, row, creates=self._creates, expected=self._expected)

    def consumed(self, connection: Any, consumer: str, message_id: str) -> Consumed:
        """What `engine.consumed` returns."""
        check_text("consumer", consumer, is_needed=True)
        check_text("message_id", message_id, is_needed=True)
        self._ready()
        return Consumed(connection, consumer, message_id, creates=self._creates)

    # --- publishing -------------------------------------------------------------------------------

    def relay(
        self,
        publish: str | Publisher | Callable[[Message], object],
        *,
        policy: RetryPolicy | None = None,
        batch: int = 100,
        poll: Seconds = 1.0,
        lease: Seconds = 30.0,
        after_dead: str = "continue",
        retention: Seconds | None = None,
    ) -> Relay:
        """A relay: `drain()` publishes what is due, `run()` goes on until it is stopped.

        Args:
            publish: a Publisher, its URL, or a function of one message, sync or async.
            policy: classification, backoff, the timeout of an attempt, and how many attempts a
                message has; by default the policy of the operation "outbox", or 4 attempts with
                30 s for each.
            batch: entries of one claim; the next claim is made while one is published.
            poll: seconds between two looks at the table, if nothing wakes the relay.
            lease: seconds after which the entries of a relay that ended are taken over.
            after_dead: "continue": if a message is dead, later ones of its aggregate go on;
                "hold": they wait until an operator has replayed or discarded it.
            retention: seconds after which what was published is deleted; None for never.

        >>> import tempfile
        >>> with Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db") as engine:
        ...     engine.outbox.relay(print).drain().published
        0
        """
        from mainstay.publishers.open import open_publisher

        if after_dead not in ("continue", "hold"):
            raise UsageError(f'after_dead = {after_dead!r}: must be "continue" or "hold"')
        table = self._opened()
        publisher = open_publisher(publish)
        options = RelayOptions.of(batch, poll, lease, retention)
        chosen = policy or self._wiring.policy or RELAY
        rules = DeadRules(chosen.max_attempts, holds=after_dead == "hold")
        attempts = self._attempts(publisher, chosen, rules, options.poll)
        reports = Reports(table, self._wiring.inbox, self._wiring.listeners, self._wiring.redact)
        made = Relay(table, publisher, attempts, reports, options)
        self._relays.append(made)
        return made

    def _attempts(
        self, publisher: Publisher, policy: Policy, rules: DeadRules, idle: float
    ) -> Attempts:
        """How a relay makes attempts: each is one call of an operation, without retries."""
        site = self._wiring.site(publisher.url, policy.replace(max_attempts=1))
        operation = Operation(site)

        def call(message: Message) -> Awaitable[object]:
            return operation.acall(publisher.publish, message)

        return Attempts(
            call,
            policy,
            rules,
            gate=site.gate,
            entropy=self._wiring.entropy,
            redact=self._wiring.redact or usual_redactor(),
            idle=idle,
        )

    # --- looking and acting -----------------------------------------------------------------------

    def get(self, entry_id: str) -> Entry | None:
        """The entry of a message.

        >>> import tempfile
        >>> Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db").outbox.get("nothing") is None
        True
        """
        return self._opened().get(entry_id)

    def entries(
        self,
        *states: str,
        topic: str | None = None,
        aggregate_id: str | None = None,
    ) -> Iterator[Entry]:
        """The entries of some states ("PENDING", "CLAIMED", "SENT", "DEAD", "DISCARDED").

        >>> import tempfile
        >>> list(Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db").outbox.entries("DEAD"))
        []
        """
        table, phases, after = self._opened(), _phases(states), 0
        while True:
            page = table.list(phases, topic=topic, aggregate_id=aggregate_id, after=after)
            yield from page
            if len(page) < 100:
                return
            after = page[-1].position

    def counts(self) -> dict[str, int]:
        """Entries by state; those that are 0 are left out.

        >>> import tempfile
        >>> Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db").outbox.counts()
        {}
        """
        found: dict[str, int] = {}
        for phase, count in self._opened().counts().items():
            state = STATES[Phase(phase)]
            found[state] = found.get(state, 0) + count
        return found

    def age(self) -> float | None:
        """Seconds since the oldest message was added that is due and not published; None if none.

        >>> import tempfile
        >>> Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db").outbox.age() is None
        True
        """
        return self._opened().oldest_age()

    def replay(self, entry_id: str, *, by: str = "") -> Entry:
        """Publishes a dead message again, with the same id.

        It comes after what is in the outbox by now, and carries `is_replay`. The item of the inbox
        is closed, if it is open.
        """
        entry, done = self._decide(entry_id, lambda entry, now: replayed(entry, now, by))
        self._emit(
            OutboxReplayed(
                operation=OPERATION, message=entry_id, topic=entry.message.topic, operator=by,
                is_out_of_order=done.is_moved,
            )
        )  # fmt: skip
        self._resolve(entry_id, f"the message was replayed by {by or 'unnamed'}", by)
        return entry

    def discard(self, entry_id: str, *, by: str = "", why: str) -> Entry:
        """Gives a dead message up for ever; the row stays until it is purged.

        The item of the inbox is closed, if it is open.
        """
        if not why.strip():
            raise UsageError("to discard a message needs a reason", hint='why="…"')
        reason = (self._wiring.redact or usual_redactor()).text(why)
        entry, _ = self._decide(entry_id, lambda entry, now: discarded(entry, now, by, reason))
        self._emit(
            OutboxDiscarded(
                operation=OPERATION, message=entry_id, topic=entry.message.topic, operator=by,
                why=reason,
            )
        )  # fmt: skip
        self._resolve(entry_id, f"the message was discarded by {by or 'unnamed'}: {reason}", by)
        return entry

    def purge(self, older_than: Seconds, *, limit: int | None = None) -> int:
        """Deletes messages that were published or discarded some time ago; how many.

        Notes of messages that consumers had by then go too, and are not counted. Items of the inbox
        that are open although their message is not dead any more are closed.

        >>> import tempfile
        >>> Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db").outbox.purge(7 * 86_400)
        0
        """
        check = Checker("purge")
        age, table, total = check.seconds("older_than", older_than), self._opened(), 0
        check.close()
        while limit is None or total < limit:
            step = 1000 if limit is None else min(1000, limit - total)
            count = table.purge(age, step)
            total += count
            if count < step:
                break
        if limit is None or total < limit:
            while table.forget(age, 1000) == 1000:
                pass
            self._resolve_others(table)
        if total:
            self._emit(OutboxPurged(operation=OPERATION, purged=total, older_than_seconds=age))
        return total

    def close(self) -> None:
        """Stops relays that run in threads, and closes the connections."""
        for relay in self._relays:
            relay.stop()
        if self._table is not None:
            self._table.close()

    def settle(self, item: Item, decision: Decision) -> str | None:
        """Carries out what was decided about a dead letter; it may be asked twice."""
        entry_id = str(item.data.get("message", item.subject))
        entry = self.get(entry_id)
        if entry is None or entry.state != "DEAD":
            return "nothing was changed: the message is not dead any more"
        if decision.action == "retry":
            self.replay(entry_id, by=decision.by)
            return "the message is in the outbox again, with the same id"
        self.discard(entry_id, by=decision.by, why=decision.why)
        return "the message was discarded"

    def _decide(
        self, entry_id: str, decide: Callable[[Entry, float], Settlement]
    ) -> tuple[Entry, Settlement]:
        found = self._opened().decide(entry_id, decide)
        if found is None:
            raise UsageError(
                f"there is no message {entry_id!r} in the outbox",
                hint="`mainstay outbox dead list` shows those that are dead",
            )
        return found

    def _resolve(self, entry_id: str, result: str, by: str = "") -> None:
        """Closes the item of a message that is not dead any more; the next purge finds it again."""
        try:
            self._wiring.inbox.resolve(KIND, entry_id, result, by=by)
        except Exception as error:  # the message is replayed or discarded all the same
            report(error, "the item of message %s could not be closed", entry_id)

    def _resolve_others(self, table: PostgresOutbox | SqliteOutbox) -> None:
        """Closes items of this outbox that something has left open."""
        for item in self._wiring.inbox:
            if item.kind != KIND or item.data.get("outbox") != table.url:
                continue
            entry = table.get(str(item.data.get("message", item.subject)))
            if entry is None:
                self._resolve(item.subject, "there is no such message any more")
            elif entry.state != "DEAD":
                self._resolve(item.subject, f"the message is not dead any more: {entry.state}")

    def _emit(self, event: Event) -> None:
        emit(event, self._wiring.listeners, self._wiring.redact)

    # --- the database -----------------------------------------------------------------------------

    def _ready(self) -> None:
        """Creates the tables before the first message, if the engine knows the database.

        Not those of SQLite: the transaction of the caller has its lock, and creates them.
        """
        if self._is_ready:
            return
        url = self._place or self._wiring.store.url
        if url.startswith(("postgresql:", "postgres:")):
            self._opened()
        self._expected = expected_database(url, lambda: self._opened().identity())
        self._is_ready = True

    @property
    def dialect(self) -> str:
        """That of its database: "postgresql" or "sqlite".

        >>> import tempfile
        >>> Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db").outbox.dialect
        'sqlite'
        """
        return self._opened().dialect

    def is_in(self, store: Store) -> bool:
        """Whether it is in the database of a store: a transaction can then be of both.

        >>> import tempfile
        >>> engine = Engine(f"sqlite:///{tempfile.mkdtemp()}/app.db")
        >>> engine.outbox.is_in(engine.store)
        True
        """
        return self._opened().is_in(store)

    def _opened(self) -> PostgresOutbox | SqliteOutbox:
        with self._lock:
            if self._table is None:
                self._table = open_outbox(self._place or self._wiring.store, creates=self._creates)
            return self._table


class Consumed:
    """Notes in a transaction that a consumer has a message: `with` or `async with`.

    It yields whether it is the first time. The note is part of the transaction: if that is rolled
    back, the message counts as not consumed.
    """

    def __init__(self, connection: Any, consumer: str, message_id: str, *, creates: bool) -> None:
        self._given = (connection, consumer, message_id)
        self._creates = creates

    def __enter__(self) -> bool:
        return consume(*self._given, creates=self._creates)

    def __exit__(self, *_: object) -> None: ...

    async def __aenter__(self) -> bool:
        return await aconsume(*self._given, creates=self._creates)

    async def __aexit__(self, *_: object) -> None: ...


RELAY = RetryPolicy(
    name="outbox",
    max_attempts=4,
    backoff=Backoff.exponential(1.0, factor=2.0, max_delay=60.0),
    jitter=Jitter.percent(0.1),
    attempt_timeout=30.0,
    nested="allow",
)
"""The policy of a relay, if none is configured."""


def _phases(states: Iterable[str]) -> list[str]:
    wanted = {state.upper() for state in states} or set(STATES.values())
    unknown = wanted - set(STATES.values())
    if unknown:
        known = ", ".join(dict.fromkeys(STATES.values()))
        raise UsageError(f"{min(unknown)!r} is no state of an entry", hint=f"states: {known}")
    return [phase.value for phase, state in STATES.items() if state in wanted]
