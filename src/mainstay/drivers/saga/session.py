"""One run of a saga in this process: its flow, its lease, and what both drivers share.

The lease is renewed in the background, together with those of keyed calls. From the first
compensation on, and behind the pivot, neither a deadline nor a cancel event of the caller's counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.codec.outcome import Succeeded, decode_outcome
from mainstay.core.idempotency import record as leases
from mainstay.core.idempotency.events import LeaseExpired
from mainstay.core.saga.commands import Done, Release, Renew, Written
from mainstay.core.saga.context import Results
from mainstay.core.saga.definition import outline_of
from mainstay.core.saga.flow import Plan, saga_flow
from mainstay.core.saga.state import SagaState
from mainstay.drivers.call.emit import emit
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL, Lease
from mainstay.drivers.saga.records import SPACE
from mainstay.drivers.saga.steps import SagaTaken, StepCall, call_of
from mainstay.errors import LeaseLost, StoreUnavailable
from mainstay.runtime.context import BOUND, CANCEL, UNBOUND, context
from mainstay.runtime.fork import fork_mark

if TYPE_CHECKING:
    from typing import Any, Self

    from mainstay.core.base.change import Change, Decide
    from mainstay.core.base.types import UserValue
    from mainstay.core.saga.commands import Append, Claimed
    from mainstay.core.saga.definition import Saga
    from mainstay.core.saga.flow import Outcome, Write
    from mainstay.core.saga.state import SagaRecord
    from mainstay.drivers.saga.parts import SagaParts
    from mainstay.drivers.saga.records import Reply
    from mainstay.ports import Store

_BACK = (SagaState.COMPENSATING, SagaState.COMPENSATED, SagaState.STUCK)
_HERE = fork_mark()
_RENEWALS = 3
"""How often a lease is renewed before an attempt, if each answer comes after the lease is over."""
GIVEN: Any = object()
"""Stands for an input that is in the record."""


class SagaRun:
    """A saga that this process has the lease of."""

    def __init__(
        self,
        parts: SagaParts,
        saga: Saga,
        place: tuple[str, str],
        claimed: Claimed,
        kept: bytes | None,
        *,
        sent: float,
        given: UserValue = GIVEN,
        entry: str = "",
    ) -> None:
        record = claimed.record
        self.parts = parts
        self.saga = saga
        self.saga_id, self.address = place
        self.record = record
        self.entry = entry or record.owner
        self.kept = None if kept is None else (kept, record)
        """The record as it was last written, as text and as itself."""
        is_recovery = given is GIVEN
        self.given = input_of(record) if is_recovery else given
        self.results = Results(saga.name, self.saga_id, outline_of(saga.shape).names, record.log)
        plan = Plan(saga, self.saga_id, record.owner, parts.max_result)
        self.flow = saga_flow(plan, record, claimed.left, is_recovery=is_recovery)
        self.lease = Lease(call=self, length=saga.lease, until=sent + saga.lease)
        self.may_await = False
        """Whether a function that only its call shows to be async has an event loop of its own: in
        a recovery, which cannot know by which of `run` and `arun` the saga was begun."""
        self._is_free = False
        self._tokens: tuple[Any, ...] = ()
        self._context = _context_of(record)

    # --- a beginning and an end -------------------------------------------------------------------

    def __enter__(self) -> Self:
        if self._context is not None:
            self._context.__enter__()
        lease = self.lease
        LEASE_RENEWAL.start(lease, clock.steady() - lease.until + lease.length)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        LEASE_RENEWAL.forget(self.lease)
        is_left = error is not None and not isinstance(error, LeaseLost)
        if is_left and not self.lease.is_inherited:
            is_counted = not isinstance(error, StoreUnavailable)
            command = Release(self.record.owner, self.record.epoch, is_counted)
            self.parts.records.release(self.address, command, self.saga.lease)
        if self._tokens:
            BOUND.reset(self._tokens[0])
            CANCEL.reset(self._tokens[1])
        if self._context is not None:
            self._context.__exit__()

    # --- steps of the store -----------------------------------------------------------------------

    def sending(self, command: Append) -> float:
        """Before a write: the time. On the way back no deadline of the caller's counts.

        Raises LeaseLost in a child that was forked in a step: the saga is its parent's.
        """
        lease = self.lease
        if (
            lease.home is not LEASE_RENEWAL.home or not _HERE[0]
        ) and lease.is_inherited:  # asked only if it may be: without a frame otherwise
            raise lease.noted(LeaseLost(self.saga.name, self.saga_id))
        if command.state is not None and command.state in _BACK:
            self.free_of_caller()
        return clock.steady()

    def step_emitting(self, effect: Write) -> Reply:
        """A write together with messages for the outbox, as one transaction."""
        messages = self.parts.messages
        assert messages is not None
        decide = self.parts.records.deciding(effect.command)
        return messages.transact(SPACE, self.address, decide, effect.messages)

    def free_of_caller(self) -> None:
        """From here on, nothing of the caller's ends this run."""
        if not self._is_free:
            self._is_free = True
            self._tokens = (BOUND.set(UNBOUND), CANCEL.set(None))

    def free_in_task(self) -> None:
        """The same in a task of its own that goes on with this run: its context ends with it."""
        self._is_free = True
        BOUND.set(UNBOUND)
        CANCEL.set(None)

    def written(self, reply: Reply, sent: float) -> object:
        """After a write: its answer."""
        answer, value = reply
        if type(answer) is Written:
            if value is not None and answer.record is not None:
                self.kept = value, answer.record
            until = sent + self.lease.length
            if until > self.lease.until:  # noqa: PLR1730 -- max() takes as long as ten lines
                self.lease.until = until
        return answer

    # --- the lease --------------------------------------------------------------------------------

    def is_certain(self) -> bool:
        """Whether this process still has the lease without asking."""
        lease = self.lease
        if (lease.home is not LEASE_RENEWAL.home or not _HERE[0]) and lease.is_inherited:
            return False
        return clock.steady() < lease.until

    def renew(self) -> None:
        """Renews a lease that may be over; raises SagaTaken if another process has the saga.

        Also if it may have: an answer that comes when the renewed lease is over as well shows
        nothing, and if that happens again and again, the saga is left to others.
        """
        for _ in range(_RENEWALS):
            sent = clock.steady()
            self._renewed(self.parts.records.step(self.address, self.renewal()), sent)
            if self.is_certain():
                return
        raise SagaTaken(LeaseLost(self.saga.name, self.saga_id))

    async def arenew(self) -> None:
        """The same, awaited."""
        for _ in range(_RENEWALS):
            sent = clock.steady()
            self._renewed(await self.parts.records.astep(self.address, self.renewal()), sent)
            if self.is_certain():
                return
        raise SagaTaken(LeaseLost(self.saga.name, self.saga_id))

    def _renewed(self, reply: Reply, sent: float) -> None:
        if type(reply[0]) is not Done:  # it is another process's, or gone
            raise SagaTaken(LeaseLost(self.saga.name, self.saga_id))
        self.lease.until = max(self.lease.until, sent + self.lease.length)

    def renewal(self) -> Renew:
        return Renew(self.record.owner, self.record.epoch, self.saga.lease)

    def renewing(self) -> tuple[Store, tuple[str, str, Decide[Any]]]:
        """What renews the lease, with the answers of keyed calls."""
        decide = self.parts.records.deciding(self.renewal())

        def renew(value: bytes | None, now: float) -> tuple[Change, object]:
            change, (answer, _) = decide(value, now)
            return change, leases.Done() if type(answer) is Done else leases.Lost()

        return self.parts.records.store, (SPACE, self.address, renew)

    def lease_ran_out(self, *, is_taken: bool) -> None:
        """Reports that another process may have the saga, or has it."""
        event = LeaseExpired(
            operation=self.saga.name,
            idempotency_key=self.saga_id,
            lease=self.saga.lease,
            taken=is_taken,
        )
        emit(event, self.parts.listeners, self.parts.redact)

    # --- actions ----------------------------------------------------------------------------------

    def call(self, number: int, *, is_undo: bool = False) -> StepCall:
        """The action or the compensation of a step, ready to be called."""
        known = self.parts.operations.of(self.saga, number, is_undo=is_undo)
        if not known.takes_context:
            return StepCall(self.saga.name, number, known, self)
        place = (self.saga_id, self.address)
        messages = self.parts.messages
        make = None if messages is None else messages.make
        return call_of(
            self.saga, number, place, self.given, self.results, known, self, make, is_undo=is_undo
        )

    def done(self, outcome: Outcome) -> Outcome:
        """Keeps the result of a step for the later ones."""
        if outcome.error is None:
            self.results.add(self.saga.steps[outcome.step].name, outcome.value)
        return outcome


def _context_of(record: SagaRecord) -> context | None:
    """For whom a saga runs; None if its record names nobody."""
    if record.tenant is None and record.correlation is None and record.trace is None:
        return None
    return context(
        tenant_id=record.tenant, correlation_id=record.correlation, trace_id=record.trace
    )


def input_of(record: SagaRecord) -> UserValue:
    """What a saga was started with; StoredValueError if it cannot be rebuilt here."""
    outcome = decode_outcome(bytes(record.given))
    assert isinstance(outcome, Succeeded)
    return outcome.value
