"""The runs of an engine's pipelines: begin, resume, look at, and settle what people decide."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.attributes import add_note
from mainstay.core.base.value import Value
from mainstay.core.codec.canonical import canonical
from mainstay.core.codec.outcome import encode_value
from mainstay.core.events.describe import shown
from mainstay.core.pipeline.commands import Begin, Busy, Claimed, Mismatch, Refusal, Take
from mainstay.core.pipeline.definition import is_name
from mainstay.core.pipeline.flow import first_of
from mainstay.core.pipeline.open_run import datasets_of
from mainstay.core.pipeline.state import HALTED, RUNNING, SUCCEEDED, address_of
from mainstay.core.pipeline.view import damaged_view, view_of
from mainstay.drivers.idempotency.patience import aoffered, offered
from mainstay.drivers.pipeline.carry import CarryOver, item_of
from mainstay.drivers.pipeline.context import StageResults
from mainstay.drivers.pipeline.drive import adrive, drive
from mainstay.drivers.pipeline.session import PipelineRun
from mainstay.errors import (
    Conflict,
    LeaseLost,
    MainstayError,
    PayloadMismatch,
    PipelineHalted,
    StoredValueError,
    UsageError,
)
from mainstay.runtime.context import CONTEXT
from mainstay.runtime.loops import in_thread
from mainstay.runtime.reports.report_failure import report
from mainstay.runtime.reports.tracebacks import leave_out

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from mainstay.core.base.types import UserValue
    from mainstay.core.inbox.items import Decision, Item
    from mainstay.core.pipeline.commands import Answer
    from mainstay.core.pipeline.flow import RunEnd
    from mainstay.core.pipeline.state import RunRecord
    from mainstay.core.pipeline.view import RunView
    from mainstay.drivers.pipeline.parts import PipelineParts, PipelineSetup

_LONGEST = 200
_NOT_CARRIED = "run %s has ended, and was not carried over to its ledger files or data sets yet"


class RunResult(Value):
    """A run whose stages are all done.

    Attributes:
        pipeline_id: the pipeline.
        run_id: the run.
        results: what each stage returned, by its name.

    >>> RunResult("etl", "r-1", {"poll": 5}).results["poll"]
    5
    """

    __slots__ = ("pipeline_id", "results", "run_id")
    pipeline_id: str
    run_id: str
    results: Mapping[str, UserValue]

    def __init__(self, pipeline_id: str, run_id: str, results: Mapping[str, UserValue]) -> None:
        self._fill(pipeline_id=pipeline_id, run_id=run_id, results=results)

    __hash__ = None  # type: ignore[assignment]  # results are the user's


class PipelineRuns:
    """The runs of pipelines in the store of an engine.

    >>> from mainstay import Engine
    >>> list(Engine().pipelines.all())
    []
    """

    def __init__(self, parts: PipelineParts) -> None:
        self._parts = parts
        self.carry_over = CarryOver(parts)

    # --- running ----------------------------------------------------------------------------------

    def run(self, setup: PipelineSetup, given: UserValue, run_id: str | None) -> RunResult:
        """Begins a run, or goes on with none: one that exists is looked at."""
        self.prepare(setup)
        command = self._begin(setup, given, run_id)
        address = address_of(command.pipeline, command.run)
        if self._is_new(setup, command):
            self._parts.records.enter(address, _at_stake(setup))
        return self._driven(setup, address, command)

    def resume(self, setup: PipelineSetup, run_id: str, by: str = "") -> RunResult:
        """Goes on with a run where it stopped."""
        self.prepare(setup)
        address = address_of(setup.definition.name, run_id)
        self._parts.records.enter(address, _at_stake(setup))
        return self._driven(setup, address, self._take(setup, by))

    async def arun(self, setup: PipelineSetup, given: UserValue, run_id: str | None) -> RunResult:
        """The same as `run`, awaited."""
        await in_thread(lambda: self.prepare(setup))
        command = self._begin(setup, given, run_id)
        address = address_of(command.pipeline, command.run)
        if await in_thread(lambda: self._is_new(setup, command)):
            await self._parts.records.aenter(address, _at_stake(setup))
        return await self._adriven(setup, address, command)

    async def aresume(self, setup: PipelineSetup, run_id: str, by: str = "") -> RunResult:
        """The same as `resume`, awaited."""
        await in_thread(lambda: self.prepare(setup))
        address = address_of(setup.definition.name, run_id)
        await self._parts.records.aenter(address, _at_stake(setup))
        return await self._adriven(setup, address, self._take(setup, by))

    def prepare(self, setup: PipelineSetup) -> None:
        """Refuses damaged ledgers, and carries over what was left: before any stage is called."""
        self.carry_over.all(setup.files, setup.definition.name)

    def _is_new(self, setup: PipelineSetup, command: Begin) -> bool:
        """Whether a run begins; refused if its ledgers have another of that id."""
        records = self._parts.records
        if not records.is_free(address_of(command.pipeline, command.run)):
            return False
        setup.files.refuse_known(command.pipeline, command.run, records.now())
        return True

    def _begin(self, setup: PipelineSetup, given: UserValue, run_id: str | None) -> Begin:
        definition, context = setup.definition, CONTEXT.get()
        run = urandom(8).hex() if run_id is None else run_id
        if not is_name(run) or len(run) > _LONGEST:
            raise UsageError(
                f"run_id = {run!r}: must be a text of 1 to {_LONGEST} characters that UTF-8 has"
            )
        data, fingerprint = _recorded(definition.name, given)
        return Begin(
            urandom(8).hex(),
            definition.name,
            run,
            definition.shape,
            fingerprint,
            data,
            first_of(definition, setup.max_parallel),
            setup.lease,
            datasets=tuple([shown(each, self._parts.redact) for each in setup.datasets]),
            ledgers=str(setup.files.folder),
            council=setup.gate.read().council,
            keep=setup.keep,
            parallel=setup.max_parallel,
            tenant=context.tenant_id,
            correlation=context.correlation_id,
            trace=context.trace_id,
        )

    def _take(self, setup: PipelineSetup, by: str) -> Take:
        definition = setup.definition
        if by and not is_name(by):
            raise UsageError(f"by = {by!r}: must be a name")
        return Take(
            urandom(8).hex(),
            definition.shape,
            setup.lease,
            setup.max_resumes,
            definition.unsafe,
            shown(by, self._parts.redact),
        )

    def _driven(self, setup: PipelineSetup, address: str, command: Begin | Take) -> RunResult:
        records, sent = self._parts.records, clock.steady()
        answer = offered(records, lambda: records.step(address, command))
        claimed = self._claimed(address, answer)
        if isinstance(claimed, RunResult):
            return claimed
        with PipelineRun(self._parts, setup, claimed, sent) as run:
            end = drive(run)
        item = self._carried(run.address)
        try:
            return _result(end, run, item)
        except Exception as error:
            leave_out(error, 2)
            raise

    async def _adriven(
        self, setup: PipelineSetup, address: str, command: Begin | Take
    ) -> RunResult:
        records, sent = self._parts.records, clock.steady()
        answer = await aoffered(records, lambda: records.astep(address, command))
        claimed = await in_thread(lambda: self._claimed(address, answer))
        if isinstance(claimed, RunResult):
            return claimed
        with PipelineRun(self._parts, setup, claimed, sent) as run:
            end = await adrive(run)
        item = await in_thread(lambda: self._carried(run.address))
        try:
            return _result(end, run, item)
        except Exception as error:
            leave_out(error, 2)
            raise

    def _claimed(self, address: str, answer: Answer) -> RunRecord | RunResult:
        """The record of a run that is ours; or its result; raises why it is neither."""
        pipeline, _, run_id = address.partition("/")
        if type(answer) is Claimed:
            return answer.record
        if type(answer) is Busy:
            raise Conflict(pipeline, run_id, answer.retry_after)
        if type(answer) is Mismatch:
            raise PayloadMismatch(pipeline, run_id)
        record: RunRecord | None = getattr(answer, "record", None)
        if record is None:
            self._parts.records.leave(address, self._parts.records.entry_of(address) or "")
            raise UsageError(
                f"there is no run {run_id!r} of pipeline {pipeline!r}",
                hint="mainstay pipelines list",
            )
        item = self._carried(address)
        if record.state is SUCCEEDED:
            return RunResult(pipeline, run_id, StageResults(record))
        stage = record.halt.stage if record.halt else ""
        why = answer.why if type(answer) is Refusal else _why(record)
        raise PipelineHalted(pipeline, run_id, stage, why, item)

    def _carried(self, address: str) -> str | None:
        """Carries over a run; if that fails, it is reported and done before the next run."""
        try:
            token = self._parts.records.entry_of(address)
            if token is not None:
                return self.carry_over.one(address, token)
            record, _ = self._parts.records.get(address)
            item = None if record is None else item_of(address, record)
            return None if item is None else item.id
        except Exception as error:
            report(error, _NOT_CARRIED, address, redact=self._parts.redact)
            return None

    # --- looking ----------------------------------------------------------------------------------

    def get(self, pipeline_id: str, run_id: str) -> RunView | None:
        """One run; None if there is no such run.

        >>> from mainstay import Engine
        >>> Engine().pipelines.get("etl", "r-1") is None
        True
        """
        record, left = self._parts.records.get(address_of(pipeline_id, run_id))
        return None if record is None else view_of(record, left)

    def all(self, pipeline_id: str | None = None) -> Iterator[RunView]:
        """Every run, or those of one pipeline, page by page; one that cannot be read is listed."""
        for address, record in self._parts.records.all():
            if pipeline_id not in (None, address.partition("/")[0]):
                continue
            if isinstance(record, StoredValueError):
                yield damaged_view(address, record.message)
                continue
            is_running = record.state is RUNNING
            yield view_of(record, self._parts.records.get(address)[1] if is_running else 0.0)

    def settle(self, item: Item, decision: Decision) -> str | None:
        """Carries out what a person has decided about a run."""
        return self.carry_over.settle(item, decision)

    def close(self) -> None:
        """Gives steps in the background a second."""
        self._parts.records.close()


def _at_stake(setup: PipelineSetup) -> tuple[str, ...] | None:
    return datasets_of(setup.definition, setup.datasets)


def _recorded(pipeline: str, given: UserValue) -> tuple[bytes, str]:
    """An input as the record has it, and its fingerprint; UsageError if that cannot be."""
    try:
        return encode_value(given), canonical(given).hex() if given is not None else ""
    except MainstayError as error:
        text = f"the input of pipeline {pipeline} cannot be recorded: {error.message}"
        raise UsageError(text, hint="give plain data, or where it is") from error


def _why(record: RunRecord) -> str:
    if record.state is RUNNING:
        return "its process is gone; resume it"
    if record.state is HALTED and record.halt is not None:
        return f"{record.halt.error_class}: {record.halt.text}; resume it"
    return "a person has abandoned it"


def _result(end: RunEnd, run: PipelineRun, item: str | None) -> RunResult:
    """The result of a run; raises what halted it."""
    pipeline, run_id = run.record.pipeline, run.record.run
    error: Any = None if end.outcome is None else end.outcome.error
    if end.is_lost:
        raise LeaseLost(pipeline, run_id) from error
    if error is None:
        return RunResult(pipeline, run_id, run.results)
    assert end.outcome is not None
    held = f"; inbox item {item}" if item else ""
    add_note(error, f"run {run_id} of {pipeline} is halted at stage {end.outcome.stage}{held}")
    for each in end.others:
        add_note(error, f"stage {each.stage} failed beside it: {type(each.error).__name__}")
    raise error
