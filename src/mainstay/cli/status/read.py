"""Reads what `mainstay status` shows: from a store, and from the folders of undelivered events."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from mainstay.cli.circuits.tables import age, ranked
from mainstay.cli.screen.progress import watched
from mainstay.core.base.spaces import Space
from mainstay.core.idempotency.record import RecordState
from mainstay.core.idempotency.record import decode as decode_record
from mainstay.core.inbox.items import RANKS
from mainstay.core.telemetry.waits import read_board
from mainstay.drivers.idempotency.keyed_call import SPACE
from mainstay.drivers.inbox.circuit_admin import shared_circuits
from mainstay.drivers.inbox.scan import listed
from mainstay.runtime.identity import has_ended
from mainstay.runtime.reports.report_failure import report
from mainstay.sinks.delivery.spill import spilled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from mainstay import Engine, Item
    from mainstay.core.circuit.cluster_status import Standing
    from mainstay.core.telemetry.waits import Wait
    from mainstay.ports import Store
    from mainstay.sinks.delivery.spill import Spilled

MOST = 1_000_000
"""Records that are looked at for calls that run."""
_PAGE = 1000


class Running(Struct, frozen=True):
    """A keyed call that has begun and not ended."""

    operation: str
    key: str
    attempts: int
    started: float
    lease_until: float
    is_left: bool
    """Whether its lease is over: its process is gone, and the next call takes over."""

    def lease(self, now: float) -> str:
        """How long the lease lasts, or since when it is over."""
        seconds = self.lease_until - now
        return f"over, {age(-seconds)} ago" if self.is_left else f"{age(seconds)} more"


class Waiting(Struct, frozen=True):
    """A call that waits for its next attempt, in a process that has not ended."""

    operation: str
    attempt: int
    max_attempts: int
    error: str
    until: float


@dataclass(frozen=True)
class Status:
    """What there is to know at one moment of the store's clock."""

    store: str
    now: float
    circuits: list[Standing]
    items: list[Item]
    running: list[Running]
    waiting: list[Waiting]
    more_waiting: int
    """Waits that their processes have not listed: there were too many."""
    looked_at: int
    spilled: list[Spilled]

    @property
    def open_circuits(self) -> list[Standing]:
        """Those that refuse calls, the worst first."""
        return [each for each in self.circuits if each.is_open]

    @property
    def is_whole(self) -> bool:
        """Whether every record was looked at."""
        return self.looked_at < MOST

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        items = [
            {"id": each.id, "kind": each.kind, "severity": each.severity, "status": each.status,
             "operation": each.operation, "text": each.text, "age": each.age(self.now)}
            for each in self.items
        ]  # fmt: skip
        return {
            "store": self.store,
            "circuits": {
                "total": len(self.circuits),
                "open": [each.to_dict() for each in self.open_circuits],
            },
            "needs_a_person": items,
            "running": msgspec.to_builtins(self.running),
            "waiting": msgspec.to_builtins(self.waiting),
            "more_waiting": self.more_waiting,
            "records_looked_at": self.looked_at,
            "undelivered": [msgspec.structs.asdict(each) for each in self.spilled],
        }


def read_status(engine: Engine, folders: Sequence[str] = ()) -> Status:
    """Looks at everything, also for events that wait in these folders, and changes nothing."""
    store = engine.store
    now = store.read(SPACE, "")[1]
    running: list[Running] = []
    looked_at = 0
    for address, value in watched(islice(_records(store), MOST), "records"):
        looked_at += 1
        found = _running(address, value, now)
        if found is not None:
            running.append(found)
    boards = [board for _, board in listed(store, Space.WAITS.value, read_board)]
    alive = [board for board in boards if not has_ended(board.process)]
    waits = [wait for board in alive for wait in board.waits if wait.until > now]
    return Status(
        store=store.url,
        now=now,
        circuits=ranked(shared_circuits(store)),
        items=sorted((each for each in engine.inbox.all() if not each.is_over), key=_rank),
        running=sorted(running, key=lambda each: each.started),
        waiting=[Waiting(*msgspec.structs.astuple(wait)) for wait in sorted(waits, key=_soonest)],
        more_waiting=sum(board.more for board in alive),
        looked_at=looked_at,
        spilled=[found for folder in (None, *folders) for found in spilled(folder)],
    )


def _soonest(wait: Wait) -> float:
    return wait.until


def _records(store: Store) -> Iterator[tuple[str, bytes]]:
    after = ""
    while page := store.scan(SPACE, after, _PAGE):
        yield from page
        after = page[-1][0]


def _running(address: str, value: bytes, now: float) -> Running | None:
    if b'"running"' not in value:  # most have ended: those need not be decoded
        return None
    try:
        record = decode_record(value)
    except msgspec.MsgspecError as error:
        report(None, "the record %r is passed over: it is damaged: %s", address, error)
        return None
    if record.state is not RecordState.RUNNING:
        return None
    operation, key = _named(address)
    is_left = record.lease_until <= now
    return Running(operation, key, record.attempts, record.started, record.lease_until, is_left)


def _named(address: str) -> tuple[str, str]:
    """The operation and the key of a record's address: caller, operation and key as JSON."""
    try:
        _, operation, key = msgspec.json.decode(address, type=tuple[object, str, object])
    except msgspec.MsgspecError:  # a record with another kind of address
        return "", address
    return operation, key if isinstance(key, str) else msgspec.json.encode(key).decode()


def _rank(item: Item) -> tuple[int, float]:
    known = item.severity in RANKS
    return (RANKS.index(item.severity) if known else len(RANKS), item.created)
