"""One run of a pipeline in this process: its flow, its lease, and what both drivers share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

import mainstay.runtime.clock as clock
from mainstay.core.codec.outcome import Succeeded, decode_outcome
from mainstay.core.idempotency import record as leases
from mainstay.core.idempotency.events import LeaseExpired
from mainstay.core.pipeline.commands import Lost, Release, Renew, Written
from mainstay.core.pipeline.flow import run_flow
from mainstay.core.pipeline.state import NULL, address_of
from mainstay.drivers.idempotency.lease_renewal import LEASE_RENEWAL, Lease
from mainstay.drivers.pipeline.context import StageResults
from mainstay.drivers.pipeline.records import RUNS
from mainstay.drivers.pipeline.stages import StageCall
from mainstay.errors import LeaseLost
from mainstay.runtime.context import context

if TYPE_CHECKING:
    from typing import Any, Self

    from mainstay.core.base.change import Change, Decide
    from mainstay.core.pipeline.commands import Answer
    from mainstay.core.pipeline.outcome import StageOutcome
    from mainstay.core.pipeline.state import RunRecord
    from mainstay.drivers.pipeline.parts import PipelineParts, PipelineSetup
    from mainstay.ports import Store


_SMALL = 256
"""Bytes of a result that is kept in any case."""
_RENEWALS = 3
"""How often a lease is renewed before an attempt, if each answer comes after the lease is over."""


class PipelineRun:
    """A run that this process has the lease of."""

    def __init__(
        self, parts: PipelineParts, setup: PipelineSetup, record: RunRecord, sent: float
    ) -> None:
        self.parts = parts
        self.setup = setup
        self.record = record
        self.address = address_of(record.pipeline, record.run)
        self.given = _input_of(record)
        self.results = StageResults(record)
        self.most = min(record.parallel, setup.max_parallel)
        self.flow = run_flow(setup.definition, record, setup.lease, self.most)
        self.lease = Lease(call=self, length=setup.lease, until=sent + setup.lease)
        self._context = context(
            tenant_id=record.tenant, correlation_id=record.correlation, trace_id=record.trace
        )

    def __enter__(self) -> Self:
        self._context.__enter__()
        lease = self.lease
        LEASE_RENEWAL.start(lease, clock.steady() - lease.until + lease.length)
        return self

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        LEASE_RENEWAL.forget(self.lease)
        is_left = error is not None and not isinstance(error, LeaseLost)
        if is_left and not self.lease.is_inherited:
            command = Release(self.record.owner, self.record.epoch)
            self.parts.records.release(self.address, command, self.setup.lease)
        self._context.__exit__()

    # --- the lease --------------------------------------------------------------------------------

    def is_certain(self) -> bool:
        """Whether this process still has the lease without asking."""
        return not self.lease.is_inherited and clock.steady() < self.lease.until

    def renew(self) -> None:
        """Renews a lease that may be over; raises LeaseLost if another process has the run.

        Also if it may have: an answer that comes when the renewed lease is over as well shows
        nothing, and if that happens again and again, the run is left to others.
        """
        for _ in range(_RENEWALS):
            sent = clock.steady()
            self._renewed(self.parts.records.step(self.address, self.renewal()), sent)
            if self.is_certain():
                return
        raise LeaseLost(self.record.pipeline, self.record.run)

    async def arenew(self) -> None:
        """The same, awaited."""
        for _ in range(_RENEWALS):
            sent = clock.steady()
            self._renewed(await self.parts.records.astep(self.address, self.renewal()), sent)
            if self.is_certain():
                return
        raise LeaseLost(self.record.pipeline, self.record.run)

    def sending(self) -> float:
        """Before a write: the time.

        Raises LeaseLost in a child that was forked in a stage: the run is its parent's.
        """
        if self.lease.is_inherited:
            raise self.lease.noted(LeaseLost(self.record.pipeline, self.record.run))
        return clock.steady()

    def renewal(self) -> Renew:
        """What renews the lease."""
        return Renew(self.record.owner, self.record.epoch, self.setup.lease)

    def _renewed(self, answer: Answer, sent: float) -> None:
        if type(answer) is Lost:
            raise LeaseLost(self.record.pipeline, self.record.run)
        self.lease.until = max(self.lease.until, sent + self.lease.length)

    def written(self, answer: Answer, sent: float) -> Answer:
        """After a write: its answer."""
        if type(answer) is Written:
            self.record = answer.record
            self.lease.until = max(self.lease.until, sent + self.lease.length)
        return answer

    def renewing(self) -> tuple[Store, tuple[str, str, Decide[Any]]]:
        """What renews the lease, with the answers of keyed calls."""
        decide = self.parts.records.deciding(self.renewal())

        def renew(value: bytes | None, now: float) -> tuple[Change, object]:
            change, answer = decide(value, now)
            return change, leases.Lost() if type(answer) is Lost else leases.Done()

        return self.parts.records.store, (RUNS, self.address, renew)

    def lease_ran_out(self, *, is_taken: bool) -> None:
        """Reports that another process may have the run, or has it."""
        event = LeaseExpired(
            operation=self.record.pipeline,
            idempotency_key=self.record.run,
            lease=self.setup.lease,
            taken=is_taken,
        )
        self.parts.emit(event)

    # --- stages -----------------------------------------------------------------------------------

    def call(self, name: str) -> StageCall:
        """A stage, ready to be called."""
        return StageCall(self, name)

    def done(self, outcome: StageOutcome) -> StageOutcome:
        """Keeps the result of a stage for the later ones; in the record, if there is room."""
        if outcome.error is not None:
            return outcome
        self.results.add(outcome.stage, outcome.value)
        kept = len(bytes(self.record.given))
        kept += sum(len(bytes(each.data)) for each in self.record.stages.values())
        most = self.parts.max_results
        if kept + len(outcome.data) <= most or len(outcome.data) <= _SMALL:
            return outcome
        note = (
            f"it takes {len(outcome.data):,} bytes, and {most:,} are kept of a run, {kept:,} by now"
        )
        return replace(outcome, data=bytes(NULL), note=note)


def _input_of(record: RunRecord) -> Any:
    outcome = decode_outcome(bytes(record.given))
    assert isinstance(outcome, Succeeded)
    return outcome.value
