"""One keyed call under way: its flow, its lease, and what the drivers keep for it."""

from __future__ import annotations

import warnings
from os import urandom
from typing import TYPE_CHECKING

from msgspec.structs import replace

import mainstay.runtime.clock as clock
from mainstay.core.base.change import KEEP
from mainstay.core.base.spaces import Space
from mainstay.core.codec.outcome import Failed, decode_outcome
from mainstay.core.idempotency.call import Notice, SizeLimit, keyed
from mainstay.core.idempotency.record import (
    Begin,
    Done,
    Release,
    Renew,
    Replay,
    glimpse,
    reduce,
)
from mainstay.core.inbox.items import Item
from mainstay.core.retry.deadline import NEVER
from mainstay.core.retry.effects import Question, Returned
from mainstay.deadline import remaining
from mainstay.drivers.call.call import Call
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL
from mainstay.errors import CallCancelled, LeaseLost, ResultNotKept
from mainstay.runtime.context import BOUND, CANCEL, UNBOUND

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from typing import Any, Protocol

    from mainstay.core.base.change import Change, Decide
    from mainstay.core.base.types import UserValue
    from mainstay.core.idempotency.call import Escalate, Invoke, Keyed, KeyedFlow
    from mainstay.core.idempotency.record import Answer, Command
    from mainstay.drivers.call.site import Site
    from mainstay.drivers.idempotency.keys import Keying, KeyOptions
    from mainstay.drivers.idempotency.lease_renewal import RenewedLease
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.ports import Store
    from mainstay.runtime.enclosing import Enclosure

    class KeyedRecords(Protocol):
        """What a keyed call needs of the records it is kept in; see records.py."""

        store: Store
        inbox: Inbox
        store_wait: float
        reads_first: bool
        takes_hints: bool
        is_bound: bool

        def draft_of(self, keying: Keying, /) -> Keyed: ...
        def report(self, site: Site, call: Keyed, what: str, /) -> None: ...
        def report_hit(self, site: Site, key: str, /) -> None: ...
        def size_limit(self, options: KeyOptions, address: str, /) -> int | None: ...
        def later(self, address: str, decide: Decide[Answer], /) -> None: ...


SPACE = Space.RECORDS.value


class KeyedCall:
    """One keyed call under way: the flow, and what the drivers keep for it."""

    __slots__ = (
        "address",
        "attempts",
        "call",
        "cancel",
        "epoch",
        "fingerprint",
        "flow",
        "function",
        "is_accepted",
        "is_unread",
        "kept",
        "key",
        "keying",
        "options",
        "records",
        "renewal",
        "site",
        "started",
    )  # fmt: skip

    def __init__(
        self, records: KeyedRecords, keying: Keying, named: tuple[str, str, str], started: float
    ) -> None:
        self.key, self.fingerprint, self.address = named
        self.records = records
        self.keying = keying
        self.site = keying.site
        self.options = keying.options
        self.function = keying.function
        self.started = started
        self.is_unread = False
        """Whether a store that cannot be written may still have the outcome to be read."""
        self.is_accepted = True
        self.renewal: RenewedLease | None = None
        self.flow: KeyedFlow
        self.kept: bytes | None = None
        """The record as this call has left it, or seen it; nothing, where it has not looked."""
        self.attempts = 0
        """Made by this call; a replay makes none."""

    @property
    def operation(self) -> str:
        """The operation's name."""
        return self.site.operation

    @property
    def store_wait(self) -> float:
        """Seconds to wait for an unavailable store: the operation's own, or the engine's."""
        chosen: float | None = self.options.store_wait
        return self.records.store_wait if chosen is None else chosen

    def begin(self) -> None:
        """Makes what only a call that is not replayed needs."""
        keying = self.keying
        draft = keying.draft or self.records.draft_of(keying)
        self.call = replace(draft, key=self.key, fingerprint=self.fingerprint, owner=new_owner())
        self.flow = keyed(self.call, self.site.policy)
        self.cancel = self.site.cancel or CANCEL.get()

    def decide(self, command: Command) -> Decide[Answer]:
        """The reducer of a command, as a store runs it."""

        def decide(value: bytes | None, now: float) -> tuple[Change, Answer]:
            change, answer = reduce(value, command, now)
            self.kept = value if change is KEEP else change.value
            return change, answer

        return decide

    def ask(self, command: Command) -> Answer:
        """One step of the store on the record of this call, which is likely to be as we left it."""
        records, decide = self.records, self.decide(command)
        if records.takes_hints:
            store = records.store
            return store.transact(SPACE, self.address, decide, self.kept)  # type: ignore[call-arg]  # it takes a hint
        return records.store.transact(SPACE, self.address, decide)

    def aask(self, command: Command) -> Awaitable[Answer]:
        """The same, to be awaited."""
        return self.records.store.atransact(SPACE, self.address, self.decide(command))

    def replayed(self, record: bytes | None, now: float) -> Replay | None:
        """How a call has ended, where a plain reading shows it."""
        return None if record is None else glimpse(record, self.fingerprint, now)

    def start_renewing(self, epoch: int) -> None:
        """Renews the lease; not in the caller's own transaction, where the record is private."""
        if self.records.is_bound:
            return
        self.epoch = epoch
        self.renewal = LEASE_RENEWAL.start(self.call.lease, self._renew)

    def _renew(self) -> None:
        self.ask(Renew(self.call.owner, self.epoch, self.call.lease))

    def leave(self) -> None:
        """Ends the renewal of the lease, and notes whether the next call should read first.

        Drops the renewal, which holds this call: nothing is left for the collector.
        """
        renewal = self.renewal
        if renewal is not None:
            renewal.stop()  # first: an interruption before it would let it renew for ever
            self.renewal = None
        self.keying.news = self.keying.news + 1 if self.attempts else 0

    def next_attempt(self, epoch: int) -> Renew | None:
        """The command that counts a further attempt before it is made; None for the first."""
        self.attempts += 1
        if self.attempts == 1:
            return None
        return Renew(self.call.owner, epoch, self.call.lease, attempt=True)

    def check_attempt(self, answer: Answer | Exception) -> None:
        """Raises if the attempt was not counted, because the lease is another owner's."""
        if type(answer) is not Done:
            raise LeaseLost(self.call.operation, self.call.key)

    def answer(self, effect: Question | Notice | SizeLimit) -> float | None:
        """The answer to what needs neither the store nor the function."""
        if type(effect) is SizeLimit:
            return self.records.size_limit(self.options, self.address)
        if effect is Question.WALL:
            return clock.current.wall()
        if effect is Question.NOW:
            return clock.current.monotonic()
        if effect is Question.LEFT:
            left = remaining()
            return NEVER if left is None else left
        if type(effect) is Notice:
            warnings.warn(self.site.shown(effect.text), effect.category, stacklevel=4)
        return None

    def item(self, effect: Escalate) -> Item:
        """The inbox item that asks a person what became of the call, if that is unknown."""
        return Item(
            kind="unknown_outcome",
            subject=self.address,
            operation=self.call.operation,
            text=f"{self.call.operation} with key {self.call.key!r}: {effect.reason}",
            attempts=effect.attempts,
            occasion=f"{effect.owner}:{effect.epoch}",
            data={
                "address": self.address,
                "owner": effect.owner,
                "epoch": effect.epoch,
                "ttl": self.call.ttl,
            },
        )

    def end(self, effect: Returned | Replay | BaseException) -> UserValue:
        """What the caller gets: the value or the exception that the flow ends with."""
        if type(effect) is Returned:
            self.is_accepted = effect.is_accepted
            return effect.value
        if isinstance(effect, BaseException):
            raise effect
        assert isinstance(effect, Replay)
        outcome = decode_outcome(effect.outcome)
        if isinstance(outcome, Failed):
            if isinstance(outcome.exception, ResultNotKept):
                outcome.exception.key = self.key  # of a long key, the record has the beginning
            raise outcome.exception
        return outcome.value

    def cut_off(self, command: Command) -> None:
        """A step was on its way, and may have been taken; the caller cannot wait for it.

        A claim is released; how a call ended is recorded again, because that is known.
        """
        command = Release(self.call.owner) if type(command) is Begin else command
        self.records.later(self.address, self.decide(command))

    def is_plain(self, around: Sequence[Enclosure]) -> bool:
        """Whether a first attempt that succeeds needs nothing but the function."""
        site = self.site
        is_special = site.overrides.is_active or not site.is_plain
        return not is_special and not around and BOUND.get() is UNBOUND

    def under_way(self, effect: Invoke, around: Sequence[Enclosure], box: list[Any]) -> Call:
        """The call itself, or what follows a first attempt that failed.

        Its time has run since the keyed call began.
        """
        limit = effect.attempts
        return Call(self.site, self.function, around, self.started, box, limit=limit)

    def cancelled(self) -> CallCancelled:
        """The error of a set cancel event, while another call had the key."""
        return CallCancelled(self.call.operation, self.attempts)


def new_owner() -> str:
    """A unique name: it distinguishes one call's claim from another's."""
    return urandom(16).hex()
