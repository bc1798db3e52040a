"""The sink that writes the audit log.

Calls hand their events to a Buffer; its thread seals them into a block and appends it. So a call
pays for one append to a queue; with `durability="call"` it waits until its event is committed. What
is in no block yet is lost by a kill; the writer's last block then does not close it, and `verify`
names it. What finds no room is a record of the log itself: how many, when and why.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec.structs import force_setattr, replace

import mainstay.runtime.clock as clock
from mainstay.audit.open import identity_of, load, open_journal
from mainstay.core.base.timestamps import stamp
from mainstay.core.base.validate import Checker
from mainstay.core.events.describe import reason_of
from mainstay.core.events.encode import encode
from mainstay.core.retry.events import CallSucceeded, RecordsLost
from mainstay.errors import UsageError
from mainstay.ports import SinkWants, wants_of
from mainstay.runtime.fork import PROCESS, flush_at_exit, load_before_fork
from mainstay.runtime.plan_registry import plan_before, plan_numbered
from mainstay.runtime.reports.logs import logger
from mainstay.sinks.delivery.buffer import Buffer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from mainstay.audit.external_heads import ExternalHeads
    from mainstay.audit.keys import Signer
    from mainstay.audit.open import Where
    from mainstay.core.audit.chain import Anchor, Block, Entry, Head, Tail
    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds
    from mainstay.ports import Journal
    from mainstay.runtime.reports.deferred_events import Facts
    from mainstay.sinks.delivery.losses import Loss

_log = logger()
_DURABILITY = ("buffered", "call")
_COUNT_EVERY = 10.0
_STRETCH = 250
"""Events that are encoded without a pause."""
_PRUNES = 5
"""Steps of pruning after one block; the rest waits for the next."""


load_before_fork("mainstay.core.audit.chain")  # loaded with the first block; it loads OpenSSL
load_before_fork("socket")  # by the same thread


class AuditLog:
    """Writes every event to an append-only log whose verification shows a change.

    Args:
        where: `sqlite:///audit.db`, `postgresql://…`, the path of a .jsonl file, a store that can,
            or a Journal of your own.
        durability: "buffered", written within 100 ms or so; or "call", written before the call
            goes on.
        key: an Ed25519 private key that signs heads: PEM, or the path of it.
        heads: where heads are written besides the log: a path, "log:NAME" for a logger, a function
            of one head, or a list of these.
        every: how many records lie between two heads.
        keep: seconds for which records are kept; None for ever.
        rotate: bytes after which a .jsonl file is ended and another begun; None for never.
        strict: a call whose event is not written raises SinkError.
        spill: the folder for what cannot be written; None for the user's own, False for none.
        successes: whether calls that never failed are recorded too: False, "counted" for their
            number by operation, every ten seconds or so and at the end, or True for each.

    >>> import tempfile
    >>> from mainstay import Engine
    >>> log = AuditLog(tempfile.mkdtemp() + "/audit.jsonl")
    >>> with Engine(sinks=[log]) as engine:
    ...     _ = engine.run("parse", int, "x")
    >>> log.stats()["delivered"]
    3
    """

    wants_evidence = True

    def __init__(
        self,
        where: Where,
        *,
        durability: str = "buffered",
        key: Any = None,
        heads: Any = None,
        every: int = 1000,
        keep: Seconds | None = None,
        rotate: int | None = None,
        strict: bool = False,
        spill: str | os.PathLike[str] | bool | None = None,
        successes: bool | str = False,
    ) -> None:
        kept = _check_options(durability, every, keep, rotate, successes)
        self.name = _name_of(where, rotate)
        load(where)
        self.durability = durability
        self._where, self._rotate = where, rotate
        self._every, self._keep = every, kept
        self._signer = _signer(key)
        self._external_heads = None if heads is None else _external(heads)
        self.wants = SinkWants(successes=successes is True, evidence=True, facts=True)
        self.counts_calls = successes == "counted"
        """Whether an engine is to count the calls that succeed at once."""
        self._counters: list[Callable[[], Sequence[Event]]] = []
        self._counted_at = clock.current.monotonic()
        self._buffer = Buffer(
            self._deliver,
            name=f"audit {self.name}",
            spill=spill,
            strict=strict,
            batch=1_000,
            at_end=self._prepare_end,
            at_start=self._begin_writer,
        )
        self.pressure = self._buffer.pressure
        self._waits = durability == "call" and not strict
        self._put = self._buffer.put if strict else self._buffer.add
        self._journal: Journal | None = None
        self._writer, self._pid, self._batch = "", 0, 0
        self._under_way: list[Event] | None = None
        self._records: list[bytes] = []
        self._losses: list[Loss] = []
        self._stated = 0
        """How many losses are stated by events of the batch: of a process before this one."""
        self._seen: int | None = None
        flush_at_exit(self, AuditLog._end_process)

    # --- for calls -------------------------------------------------------------------------------

    def __call__(self, event: Event) -> None:
        """Takes an event, after the plan it refers to."""
        is_first = type(event) is CallSucceeded and event.total_attempts == 1
        if is_first and not wants_of(self).successes:
            return  # emitted for other sinks, or with the key of a call
        proof = event.proof
        if proof and proof.plan not in self._buffer.known:
            plan = plan_before(event, set())
            if plan is not None:
                self._buffer.add(plan)
                self._buffer.known.add(plan.plan)
        if self._waits:
            self._buffer.commit(event, kept_will_do=True)
        else:
            self._put(event)
        if self._counters and clock.current.monotonic() - self._counted_at > _COUNT_EVERY:
            self._count()

    def count_by(self, counter: Callable[[], Sequence[Event]]) -> None:
        """Asks for the calls that were counted, from time to time and at the end."""
        self._counters.append(counter)

    def count_no_more(self, counter: Callable[[], Sequence[Event]]) -> None:
        """Asks a counter for the last time: its engine is closed, others may go on."""
        if counter in self._counters:
            self._count()
            self._counters.remove(counter)

    def _count(self) -> None:
        self._counted_at = clock.current.monotonic()
        for counter in self._counters:
            for event in counter():
                force_setattr(event, "timestamp", stamp(clock.current.wall()))
                self._buffer.put(event)

    def take(self, facts: Facts) -> None:
        """Takes the facts of a call, of which events are made when they are written."""
        if facts.plan_id not in self._buffer.known:
            plan = plan_numbered(facts.plan_id)
            if plan is not None:
                self._buffer.add(replace(plan, timestamp=stamp(clock.current.wall())))
                self._buffer.known.add(facts.plan_id)
        if self._waits:
            self._buffer.commit(facts, kept_will_do=True)
        else:
            self._put(facts)

    def flush(self, timeout: Seconds | None = None) -> bool:
        """Waits until everything is written, or safe on disk; whether it is."""
        self._count()
        return self._buffer.flush(timeout)

    def close(self) -> None:
        """Writes what is left, and that this writer closes; a later event opens the log again."""
        self._prepare_end()
        self._buffer.close()
        self._end_writer()
        if self._journal is not None and self._pid == PROCESS.pid:
            self._journal.close()

    def _prepare_end(self) -> None:
        """What comes before the last flush: counts, and losses if the log is not available.

        Those go to disk with the events that wait, and the next process writes them.
        """
        self._count()
        if self._buffer.losses.waiting():
            self._buffer.flush()
            self._buffer.between(self._hand_over_losses)

    def _hand_over_losses(self) -> None:
        losses = self._buffer.losses.waiting()
        self._records = self._records[: len(self._records) - len(self._losses)]
        self._losses = []
        for loss in losses:
            self._buffer.append(_event_of(loss))
        self._buffer.losses.reported(losses)

    def _end_process(self) -> None:
        """What the end of the process does, after the buffer's flush, which registers earlier."""
        self._end_writer()

    def _end_writer(self) -> None:
        """Closes the writer in the log, with a head, if everything it has taken is written."""
        if not self._is_writing:
            return
        try:
            if self._buffer.finish(self._close_writer):
                return
            reason = "not everything is written"
        except Exception as error:
            reason = reason_of(error)
        _log.warning("audit %s: is not closed, and has no head at the end: %s", self.name, reason)

    @property
    def _is_writing(self) -> bool:
        return bool(self._writer) and self._pid == PROCESS.pid

    def stats(self) -> dict[str, int]:
        """How many events were taken, delivered, spilled, recovered and lost; see Buffer."""
        return self._buffer.stats()

    # --- for the buffer's thread -----------------------------------------------------------------

    def _deliver(self, events: list[Event]) -> None:
        """Appends a block; if the last try ended in doubt, checks first whether it is there."""
        journal = self._open()
        if self._under_way is not events:
            self._begin_batch(self._encoded(events))
            self._stated = sum(each.records for each in events if type(each) is RecordsLost)
            self._under_way = events
        elif self._seen is not None and self._is_kept(journal, self._seen):
            self._end_batch([])
            return
        self._end_batch(self._append(journal))
        self._after(journal)

    def _begin_batch(self, records: list[bytes]) -> None:
        """The records of a batch, and of what was lost: newer events, which found no room."""
        self._losses = self._buffer.losses.waiting()
        self._records = [*records, *map(_lost, self._losses)]
        self._seen, self._stated = None, 0
        self._batch += 1

    def _end_batch(self, heads: list[Head]) -> None:
        self._buffer.losses.reported(self._losses)
        self._under_way, self._losses, self._records = None, [], []
        self._bring(heads)

    def _bring(self, heads: list[Head]) -> None:
        """Brings heads to where they are kept besides the log."""
        if self._external_heads is not None:
            for head in heads:
                self._external_heads.keep(head)

    def _append(
        self, journal: Journal, note: dict[str, Any] | None = None, *, ends: bool = False
    ) -> list[Head]:
        """Appends a block of the batch, and its head if one is due; returns that."""
        from mainstay.core.audit.chain import Entry, seal, tail_of

        heads: list[Head] = []

        def make(tail: Tail, carried: Sequence[bytes]) -> Entry:
            self._seen = tail.block
            records = [*carried, *self._records]
            passed = (tail.number + len(records)) // self._every - tail.number // self._every
            has_head = ends or passed > 0
            block = seal(
                tail,
                records,
                writer=self._writer,
                time=_now(),
                log=uuid4().hex[:16],
                batch=self._batch,
                note=note,
                head=has_head,
                lost=self._stated + sum(loss.events for loss in self._losses),
            )
            heads[:] = [self._head(tail_of(block))] if has_head else []
            return Entry(block, heads[0] if heads else None)

        journal.append(make)
        return heads

    def _after(self, journal: Journal) -> None:
        if self._keep is not None:
            try:
                self._prune(journal, self._keep)
            except Exception as error:
                reason = reason_of(error)
                _log.warning("audit %s: old records could not be dropped: %s", self.name, reason)

    def _is_kept(self, journal: Journal, after: int) -> bool:
        """Whether the block of this batch was appended after all."""
        from mainstay.core.audit.chain import header_of

        found = (header_of(block) for block in journal.blocks(after))
        return any(each.writer == self._writer and each.batch == self._batch for each in found)

    def _open(self) -> Journal:
        """The journal, opened by the first batch; a forked child opens its own."""
        if self._journal is None or self._pid != PROCESS.pid:
            durable = self.durability == "call" or self._buffer.strict
            self._journal = open_journal(self._where, durable=durable, rotate=self._rotate)
            self._pid, self._writer = PROCESS.pid, ""
        if not self._writer:
            import socket

            self._writer = f"{socket.gethostname()}:{self._pid}:{uuid4().hex[:8]}"
        return self._journal

    def _head(self, tail: Tail) -> Head:
        from mainstay.core.audit.chain import checked, head_of

        head = head_of(tail, _now())
        return checked(head if self._signer is None else self._signer.sign(head))

    def _begin_writer(self) -> None:
        """The writer's first block: from now on a kill shows."""
        if not self._is_writing:
            journal = self._open()
            self._begin_batch([])
            self._end_batch(self._append(journal, {"opened": {}}))

    def _close_writer(self) -> None:
        """The writer's last block; what comes later is written by another."""
        self._begin_batch([])
        note = {"closed": {"lost": self._buffer.losses.total}}
        self._end_batch(self._append(self._open(), note, ends=True))
        self._writer = ""

    def _encoded(self, events: list[Event]) -> list[bytes]:
        """The events as they are written; one without a written form costs no other."""
        records: list[bytes] = []
        try:
            for first in range(0, len(events), _STRETCH):
                records += [encode(event) for event in events[first : first + _STRETCH]]
                self._buffer.slices.pause()
            return records
        except Exception:
            return [record for event in events if (record := self._one(event)) is not None]

    def _one(self, event: Event) -> bytes | None:
        try:
            return encode(event)
        except Exception as error:
            from mainstay.runtime.reports.report_failure import report

            self._buffer.losses.add(1, f"a {event.event_type} has no written form")
            report(error, "audit: a %s has no written form, and is lost", event.event_type)
            return None

    def _prune(self, journal: Journal, keep: float) -> None:
        from mainstay.core.audit.chain import Entry, tail_of

        before = _moment(clock.current.wall() - keep)
        heads: list[Head] = []

        def make(tail: Tail, anchor: Anchor) -> Entry:
            block = self._noted(tail, anchor)
            heads.append(self._head(tail_of(block)))
            return Entry(block, heads[-1])

        for _ in range(_PRUNES):
            if not journal.prune(before, make):
                return
            self._bring(heads[-1:])

    def _noted(self, tail: Tail, anchor: Anchor) -> Block:
        """The block that records in the chain what was dropped; its head is the evidence."""
        import hashlib

        from mainstay.core.audit.chain import seal

        note = {
            "pruned": {
                "number": anchor.number,
                "link": anchor.link.hex(),
                "carried": hashlib.sha256(b"\n".join(anchor.carried)).hexdigest(),
            }
        }
        return seal(tail, (), writer=self._writer, time=_now(), note=note, head=True)


def _check_options(
    durability: str, every: int, keep: Seconds | None, rotate: int | None, successes: bool | str
) -> float | None:
    """The seconds for which records are kept; raises PolicyError if an option is wrong."""
    check = Checker("AuditLog")
    if successes not in (True, False, "counted"):
        check.note("successes", successes, 'True, False or "counted"')
    check.choice("durability", durability, _DURABILITY)
    check.count("every", every, 1_000_000_000)
    kept = check.optional_seconds("keep", keep)
    if rotate is not None:
        check.count("rotate", rotate, 1 << 50)
    check.close()
    return kept


def _name_of(where: Where, rotate: int | None) -> str:
    """The name of the log; raises UsageError if it cannot be rotated."""
    name = identity_of(where)
    if rotate is not None and not name.endswith((".jsonl", ".json", ".log")):
        raise UsageError(f"{name} is no file of lines", hint="rotate= is for those only")
    return name


def _external(heads: Any) -> ExternalHeads:
    from mainstay.audit.external_heads import ExternalHeads

    return ExternalHeads(heads)


def _signer(key: Any) -> Signer | None:
    if key is None:
        return None
    from mainstay.audit.keys import Signer

    return Signer(key)


def _lost(loss: Loss) -> bytes:
    """The record of a loss."""
    return encode(_event_of(loss))


def _event_of(loss: Loss) -> RecordsLost:
    return RecordsLost(
        records=loss.events,
        first_at=loss.first,
        last_at=loss.last,
        reason=loss.why,
        timestamp=stamp(clock.current.wall()),
    )


def _now() -> str:
    return _moment(clock.current.wall())


def _moment(wall: float) -> str:
    """A time that sorts as text."""
    try:
        moment = datetime.fromtimestamp(wall, UTC)
    except (OSError, OverflowError, ValueError):
        moment = datetime.fromtimestamp(0, UTC)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")
