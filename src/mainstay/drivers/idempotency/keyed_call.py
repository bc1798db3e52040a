"""One keyed call under way: its flow, its lease, and what the drivers keep for it."""

from __future__ import annotations

import warnings
from os import getpid, urandom
from typing import TYPE_CHECKING

from msgspec.structs import replace

import mainstay.runtime.clock as clock
from mainstay.core.base.change import KEEP
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.functions import discard
from mainstay.core.base.printable import printable
from mainstay.core.base.spaces import Space
from mainstay.core.codec.outcome import Failed, decode_outcome
from mainstay.core.idempotency.call import OVERDUE, Notice, Recorded, SizeLimit, keyed
from mainstay.core.idempotency.record import (
    Begin,
    Done,
    Lost,
    Release,
    Renew,
    Replay,
    glimpse,
    reduce,
)
from mainstay.core.inbox.items import Item, damaged_item
from mainstay.core.retry.effects import Question, Returned
from mainstay.core.retry.predicates import AwaitAnswer
from mainstay.deadline import remaining
from mainstay.drivers.call.call import Call
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL, Lease
from mainstay.errors import (
    CallCancelled,
    DeadlineExceeded,
    LeaseLost,
    ResultNotKept,
    StoredValueError,
)
from mainstay.runtime.context import BOUND, CANCEL, CONTEXT, LEASE, UNBOUND
from mainstay.runtime.fork import PROCESS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from contextvars import Token
    from typing import Any, Protocol

    from mainstay.core.base.change import Change, Decide
    from mainstay.core.base.types import UserValue
    from mainstay.core.idempotency.call import Escalate, Invoke, Keyed, KeyedFlow, Overdue
    from mainstay.core.idempotency.record import Answer, Command
    from mainstay.drivers.call.site import Site
    from mainstay.drivers.idempotency.keys import Keying, KeyOptions, Named
    from mainstay.drivers.inbox.inbox import Inbox
    from mainstay.ports import Step, Store
    from mainstay.runtime.context import Context, HeldLease
    from mainstay.runtime.enclosing import Enclosure
    from mainstay.runtime.store_clock import StoreClock

    class KeyedRecords(Protocol):
        """What a keyed call needs of the records it is kept in; see records.py."""

        store: Store
        inbox: Inbox
        store_wait: float
        reads_first: bool
        takes_hints: bool
        fences: bool
        is_bound: bool
        clock: StoreClock

        def draft_of(self, keying: Keying, /) -> Keyed: ...
        def report(self, site: Site, call: Keyed, what: str, /) -> None: ...
        def report_hit(self, site: Site, key: str, /) -> None: ...
        def report_expired(
            self, site: Site, call: Keyed, here: Context, /, *, is_taken: bool
        ) -> None: ...
        def size_limit(self, options: KeyOptions, address: str, /) -> int | None: ...
        def later(self, address: str, decide: Decide[Answer], seconds: float, /) -> None: ...


SPACE = Space.RECORDS.value
_COUNTINGS = 3
"""How often an attempt is counted, if that takes longer than the lease each time."""


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
        "here",
        "is_accepted",
        "is_unread",
        "kept",
        "key",
        "keying",
        "lease",
        "number",
        "options",
        "overdue",
        "records",
        "sent",
        "site",
        "started",
        "stop",
        "token",
    )  # fmt: skip

    def __init__(self, records: KeyedRecords, keying: Keying, named: Named, started: float) -> None:
        self.key, self.fingerprint, self.address = named
        self.records = records
        self.keying = keying
        self.site = keying.site
        self.options = keying.options
        self.function = keying.invoked
        self.started, self.sent = started, clock.steady()
        """The present claim was sent at `sent` or later: its lease is certain for its length
        from then on."""
        self.is_unread = False
        """Whether a store that cannot be written may still have the outcome to be read."""
        self.is_accepted = True
        self.lease: Lease | None = None
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
        owner = urandom(16).hex()  # as new_owner() makes one
        self.call = replace(draft, key=self.key, fingerprint=self.fingerprint, owner=owner)
        self.flow = keyed(self.call, self.site.policy)
        self.cancel = self.site.cancel or CANCEL.get()

    def decide(self, command: Command) -> Decide[Answer]:
        """The reducer of a command, as a store runs it."""
        look = self.records.clock.look

        def decide(value: bytes | None, now: float) -> tuple[Change, Answer]:
            change, answer = reduce(value, command, now, look(now))
            self.kept = value if change is KEEP else change.value
            return change, answer

        return decide

    def ask(self, command: Command) -> Answer:
        """One step of the store on the record of this call, which is likely to be as we left it."""
        records, lease = self.records, self.lease
        if not records.takes_hints and PROCESS.number != getpid():  # a file of SQLite is refused
            PROCESS.notice()
        if (  # is_inherited
            lease is not None and lease.home is not LEASE_RENEWAL.home and lease.home is not None
        ):
            return self._of_parent(command)
        decide = self.decide(command)
        if records.takes_hints:
            store = records.store
            return store.transact(SPACE, self.address, decide, self.kept)  # type: ignore[call-arg]  # it takes a hint
        return records.store.transact(SPACE, self.address, decide)

    def aask(self, command: Command) -> Awaitable[Answer]:
        """The same, to be awaited."""
        records, lease = self.records, self.lease
        if not records.takes_hints and PROCESS.number != getpid():
            PROCESS.notice()
        if lease is not None and lease.home is not LEASE_RENEWAL.home and lease.home is not None:
            return _answered(self._of_parent(command))
        return records.store.atransact(SPACE, self.address, self.decide(command))

    def _of_parent(self, command: Command) -> Lost:
        """The answer in a child that was forked in this call: the claim is its parent's."""
        if type(command) is Begin:
            raise LeaseLost(self.call.operation, self.call.key)
        return Lost()

    def replayed(self, record: bytes | None, now: float) -> Replay | None:
        """How a call has ended, if a plain reading shows it."""
        try:
            return None if record is None else glimpse(record, self.fingerprint, now)
        except StoredValueError:  # the claim raises that it is damaged
            return None

    # --- the lease --------------------------------------------------------------------------------

    def hold(self, effect: Invoke) -> bool:
        """Begins to renew the lease; False if it may be over by now: then nothing is started.

        In the caller's own transaction there is none, because the record is private.
        """
        self.number, self.epoch, self.overdue = effect.number, effect.epoch, 0
        if self.records.is_bound:
            return True
        now, length = clock.steady(), self.call.lease
        age = now - self.sent
        if age >= length:
            self.sent = now  # another claim is made next
            return False
        self.stop: Callable[[], object] | None = None
        self.here = CONTEXT.get()
        self.lease = lease = Lease(self, length, self.sent + length)
        LEASE_RENEWAL.start(lease, age, now if clock.current is clock.SYSTEM else None)
        self.token: Token[HeldLease | None] = LEASE.set(lease)
        return True

    def give_up_lease(self) -> Overdue:
        """The lease ran out before the function began: another claim is made next."""
        assert self.lease is not None
        LEASE_RENEWAL.forget(self.lease)
        self.sent = clock.steady()
        return OVERDUE

    def let_go(self) -> None:
        """The function has ended; its lease is still renewed, until that is recorded."""
        lease = self.lease
        if lease is not None:
            lease.is_over = True
            try:
                LEASE.reset(self.token)
            except ValueError:  # a coroutine that was closed from elsewhere: its context is gone
                return

    def renewing(self) -> tuple[Store, Step]:
        """The step that renews the lease, and where."""
        command = Renew(self.call.owner, self.epoch, self.call.lease)
        return self.records.store, (SPACE, self.address, self.decide(command))

    def lease_ran_out(self, *, is_taken: bool) -> None:
        """The function still runs, and another call may run it too; or does, if it `is_taken`."""
        self.records.report_expired(self.site, self.call, self.here, is_taken=is_taken)
        stop = self.stop
        if stop is not None:
            stop()

    def leave(self) -> None:
        """Ends the renewal of the lease, and notes whether the next call should read first.

        Drops the lease, which holds this call, and the flow, which holds the failure that it ends
        with, and so this call: nothing is left for the collector.
        """
        lease = self.lease
        if lease is not None:
            LEASE_RENEWAL.forget(lease)  # first: an interruption before it would let it renew on
            self.lease = None
        self.keying.news = self.keying.news + 1 if self.attempts else 0
        del self.flow

    def next_attempt(self) -> Renew | None:
        """The command that counts an attempt before it is made.

        None for the first, which was counted with the claim, unless its lease has run out since:
        a guard may have kept it waiting.
        """
        self.attempts += 1
        lease, self.sent = self.lease, clock.steady()
        if self.attempts == 1 and (lease is None or self.sent < lease.until):
            return None
        number = self.number + self.attempts - 1
        return Renew(self.call.owner, self.epoch, self.call.lease, number)

    def is_counted(self, answer: Answer | Exception) -> bool:
        """Whether the attempt may start; not if it was counted, and the lease is over again.

        Raises if it was not counted, because the lease is another owner's, or if that takes
        longer than the lease again and again.
        """
        self.overdue += 1
        if type(answer) is not Done or self.overdue > _COUNTINGS:
            raise LeaseLost(self.call.operation, self.call.key)
        now, until = clock.steady(), self.sent + self.call.lease
        if self.lease is not None:
            if now >= until:
                self.sent = now
                return False
            self.lease.until = max(self.lease.until, until)
        self.overdue = 0
        return True

    def answer(self, effect: Question | Notice | SizeLimit | AwaitAnswer) -> float | None:
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
        if type(effect) is AwaitAnswer:
            discard(effect.awaitable)
        if type(effect) is Notice:
            text = printable(self.site.shown(effect.text))
            warnings.warn(text, effect.category, stacklevel=4)
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

    def damaged(self) -> Item:
        """The inbox item of a record that nothing can read."""
        return damaged_item(self.operation, self.key, self.address)

    def end(self, effect: Recorded | Returned | Replay | BaseException) -> UserValue:
        """What the caller gets: the value or the exception that the flow ends with."""
        if type(effect) is Recorded:
            self.records.report(self.site, self.call, "record")
            effect = effect.outcome
        if type(effect) is Returned:
            self.is_accepted = effect.is_accepted
            return effect.value
        if isinstance(effect, LeaseLost) and self.lease is not None:
            raise self.lease.noted(effect)
        if isinstance(effect, BaseException):
            raise effect
        assert isinstance(effect, Replay)
        outcome = decode_outcome(effect.outcome)
        if isinstance(outcome, Failed):
            if isinstance(outcome.exception, ResultNotKept):
                outcome.exception.key = self.key  # of a long key, the record has the beginning
            raise outcome.exception
        return outcome.value

    def cut_off(self, command: Command, *, is_repeated: bool = True) -> None:
        """A step was on its way, and may have been taken; the caller cannot wait for it.

        A claim is released; how a call ended is recorded again, because that is known. Unless it
        `is_repeated`, a store that is unavailable is asked once.
        """
        if self.lease is not None and self.lease.is_inherited:
            return
        if type(command) is Begin:
            command = Release(self.call.owner, fence=self.records.fences)
        seconds = self.call.lease if is_repeated else 0.0
        self.records.later(self.address, self.decide(command), seconds)

    def is_plain(self, around: Sequence[Enclosure]) -> bool:
        """Whether a first attempt that succeeds needs nothing but the function."""
        site = self.site
        if (
            site.overrides.is_active
            or not site.is_plain
            or (site.receivers and site.reports_successes)
            or around
            or self.options.on_lease_lost == "cancel"
            or self.number > 1  # of a call that goes on after a crash the end is an event
        ):
            return False
        return BOUND.get() is UNBOUND

    def under_way(
        self, effect: Invoke, around: Sequence[Enclosure], box: list[Any], since: int
    ) -> Call:
        """The call itself, or what follows a first attempt that failed.

        Its time has run since the keyed call began.
        """
        number = effect.number  # after a crash its attempts go on from there
        limit = number + effect.attempts - 1
        has_deadline = self.site.policy.deadline is not None
        call = Call(
            self.site, self.function, around, self.started, box, number, limit=limit, since=since,
            is_bound=has_deadline,
        )  # fmt: skip
        call.before = number - 1
        return call

    def check_time(self, call: Call) -> None:
        """Raises if the claim took all the time there was: the function is not started then."""
        if not self.attempts and call.attempts == 0 and call.is_late(0.0):
            call.release()
            raise DeadlineExceeded(max(0.0, call.until - self.started))

    def cancelled(self) -> CallCancelled:
        """The error of a set cancel event, while another call had the key."""
        return CallCancelled(self.call.operation, self.attempts)


async def _answered(answer: Answer) -> Answer:
    """What needs no store, to be awaited."""
    return answer


def new_owner() -> str:
    """A unique name: it distinguishes one call's claim from another's."""
    return urandom(16).hex()
