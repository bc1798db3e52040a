"""One stage of a run: called under its policy, gated before each attempt, and watched."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.functions import discard, is_awaitable, is_read_once, takes_context
from mainstay.core.base.validate import Checker
from mainstay.core.circuit.breaker import CircuitState
from mainstay.core.codec.outcome import encode_value
from mainstay.core.events.describe import describe, shown
from mainstay.core.pipeline.definition import names_of
from mainstay.core.pipeline.outcome import StageOutcome
from mainstay.core.pipeline.state import NULL
from mainstay.core.retry.events import AttemptFailed, CallRefused, CallSucceeded
from mainstay.core.telemetry.record import label_of
from mainstay.drivers.pipeline.context import StageContext
from mainstay.drivers.pipeline.gate import Pass
from mainstay.errors import CircuitOpenError, LeaseLost, UsageError
from mainstay.ports import SinkWants
from mainstay.runtime.reports.tracebacks import leave_out

if TYPE_CHECKING:
    from typing import Any, Protocol

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import UserValue
    from mainstay.core.pipeline.state import RunRecord
    from mainstay.drivers.pipeline.context import StageResults
    from mainstay.drivers.pipeline.parts import PipelineParts, PipelineSetup, StageOperation

    class StageRun(Protocol):
        """The run that a stage is part of."""

        parts: PipelineParts
        setup: PipelineSetup
        record: RunRecord
        given: Any
        results: StageResults
        most: int

        def is_certain(self) -> bool: ...
        def renew(self) -> None: ...
        async def arenew(self) -> None: ...


_OPEN = (CircuitState.OPEN, CircuitState.FORCED_OPEN)


class RunTaken(BaseException):
    """Another process has the run, or may have: no attempt is made, and none is a failure of it.

    No policy retries it, because it is no Exception; the drivers raise the `lost` in its place.
    """

    def __init__(self, lost: LeaseLost) -> None:
        super().__init__(str(lost))
        self.lost = lost


class StageWatch:
    """A listener of one call: the class of each failure, and whether the last may be retried."""

    wants = SinkWants(successes=True, evidence=True)

    def __init__(self) -> None:
        self.classes: list[str] = []
        self.retryable = False
        self.call_id = ""

    def __call__(self, event: Event) -> None:
        if isinstance(event, AttemptFailed):
            self.classes.append(_error_class(event))
            self.retryable = event.retryable
        elif isinstance(event, CallRefused):
            self.classes.append(event.by.rpartition(".")[2])
        elif not isinstance(event, CallSucceeded):
            return
        self.call_id = event.call_id


class StageCall:
    """One stage of a run: prepared, called, and what came of it."""

    def __init__(self, run: StageRun, name: str) -> None:
        setup = run.setup
        self.run = run
        self.stage = next(each for each in setup.definition.stages if each.name == name)
        pipeline, record = setup.definition.name, run.record
        results = run.results.of(self._before()) if run.most > 1 else run.results
        self.context = StageContext(pipeline, record.run, name, run.given, results)
        self.watch = StageWatch()
        self.name = f"{pipeline}.{name}"
        self.circuits = run.parts.circuits(self.name, setup.telemetry)
        self.operation = self._operation(None)
        self.was_open = any(each.state is not CircuitState.CLOSED for each in self.circuits)
        self.pass_ = Pass(self.stage, self.context, f"{pipeline}/{name}")
        self.calls = 0
        self.has_key = False

    def _before(self) -> set[str]:
        """Every stage that it comes after: beside others it sees the results of those alone."""
        stages = {each.name: each.after for each in self.run.setup.definition.stages}
        found, left = set[str](), list(self.stage.after)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left.extend(stages[name])
        return found

    def prepare(self) -> None:
        """Asks the stage for its data sets and its key; if that fails, as its policy has it.

        What cannot be prepared halts the run as a call does: with telemetry and ledgers.
        """
        try:
            self._prepare()
        except Exception as error:
            failed: list[Exception] = [error]

            def again() -> None:
                if failed:
                    raise failed.pop()
                self._prepare()

            try:
                self.operation.call(again)
            except Exception as raised:
                leave_out(raised)
                raise

    def _prepare(self) -> None:
        self.context.datasets = self.pass_.datasets = self._datasets()
        key = self._key()
        if key is not None:
            self.operation, self.has_key = self._operation(key), True

    def _operation(self, key: object) -> StageOperation:
        telemetry = self.run.setup.telemetry
        listeners = (self.watch,) if telemetry is None else (self.watch, telemetry)
        return self.run.parts.operation(self.name, self.stage, listeners, key)

    def _datasets(self) -> tuple[str, ...]:
        declared = self.stage.datasets
        if callable(declared):
            check = Checker(f"stage {self.stage.name!r}")
            declared = names_of(check, "datasets", declared(self.context))
            check.close()
        return tuple(dict.fromkeys([*self.run.setup.datasets, *declared]))

    def _key(self) -> object:
        """The key of the stage's own choice; its calls are recorded under it."""
        declared, context = self.stage.idempotency_key, self.context
        if declared is None:
            return None
        if callable(declared):
            key = declared(context)
            if key is None:
                raise UsageError(f"the key of stage {self.stage.name} is None")
        else:
            key = declared.format(
                run_id=context.run_id, pipeline_id=context.pipeline_id, stage=context.stage_name
            )
        if isinstance(key, str):
            context.idempotency_key = key
        return key

    # --- attempts ---------------------------------------------------------------------------------

    def attempt(self) -> UserValue:
        """One attempt of a plain function."""
        self._look()
        context = self._begin()
        self.run.setup.gate.ask(self.run.parts.records, self.pass_)
        self._look()
        self.calls += 1
        if self.stage.idempotency == "outbox":
            return self._guarded(context)
        return self._plain(self.stage.function(*self._given(context)))

    async def aattempt(self) -> UserValue:
        """One attempt of an async function."""
        await self._alook()
        context = self._begin()
        await self.run.setup.gate.aask(self.run.parts.records, self.pass_)
        await self._alook()
        self.calls += 1
        return self._whole(await self.stage.function(*self._given(context)))

    def _look(self) -> None:
        """Before the gate, and after it: raises RunTaken if another process may have the run.

        A process may have stood still since the last look, or have waited for this attempt, or for
        the gate. A stage with a key has the lease of its key, which no other process gets around.
        """
        if not self.has_key and not self.run.is_certain():
            try:
                self.run.renew()
            except LeaseLost as lost:
                raise RunTaken(lost) from None

    async def _alook(self) -> None:
        """The same, awaited."""
        if not self.has_key and not self.run.is_certain():
            try:
                await self.run.arenew()
            except LeaseLost as lost:
                raise RunTaken(lost) from None

    def _begin(self) -> StageContext:
        record, context = self.run.record, self.context.of_attempt()
        self.pass_.context = context
        self.pass_.call = f"{record.run}.{record.epoch}.{context.attempt}.{record.owner}"
        return context

    def _given(self, context: StageContext) -> tuple[StageContext, ...]:
        return (context,) if takes_context(self.stage.function) else ()

    def _plain(self, value: UserValue) -> UserValue:
        if is_awaitable(value):
            discard(value)
            hint = "write it with `async def`, and use `await pipeline.arun(...)`"
            raise UsageError(f"stage {self.stage.name} has to be awaited", hint=hint)
        return self._whole(value)

    def _whole(self, value: UserValue) -> UserValue:
        """Refuses what can be read only once: a retry of the next stage would find it empty."""
        if is_read_once(value):
            kind = type(value).__name__
            raise UsageError(
                f"stage {self.stage.name} returned a {kind}, which can be read only once",
                hint="return a list, or where the data is",
            )
        return value

    def _guarded(self, context: StageContext) -> UserValue:
        """Effect, messages and record of the stage in one transaction of its own connection."""
        function, given = self.stage.function, self._given(context)
        return self.run.parts.guarded(
            f"{self.operation.name}.effect",
            self.stage,
            context,
            lambda: self._plain(function(*given)),
        )

    # --- outcomes ---------------------------------------------------------------------------------

    def returned(self, value: UserValue) -> StageOutcome:
        """How it has ended."""
        data, note = _kept(value, self.run.parts.max_result)
        return self._outcome(value=value, data=data, note=note)

    def failed(self, error: BaseException) -> StageOutcome:
        """How it has ended."""
        return self._outcome(error=error, text=describe(error, self.run.parts.redact)[1])

    def _outcome(self, **fields: Any) -> StageOutcome:
        stage, watch, gate = self.stage, self.watch, self.run.setup.gate
        policy, datasets = self.operation.policy, self.pass_.datasets
        is_open = any(each.state in _OPEN for each in self.circuits)
        error = fields.get("error")
        return StageOutcome(
            stage=stage.name,
            attempts=self.calls,
            error_classes=tuple(watch.classes) or _class_of(error),
            retryable=watch.retryable,
            circuit_open=is_open or isinstance(error, CircuitOpenError),
            is_probe_failed=self.was_open and is_open and self.calls > 0,
            call_id=watch.call_id,
            policy=policy.name,
            retry_policy=label_of(policy.backoff.kind, policy.jitter.kind),
            max_attempts=policy.max_attempts,
            datasets=datasets,
            names=tuple([shown(each, self.run.parts.redact) for each in datasets]),
            care_labels=gate.labels(datasets),
            council=gate.council,
            masking=stage.masking,
            is_retry=self.context.attempt > 1 or self.run.record.resumes > 0,
            is_given=self.pass_.is_given,
            is_rerun=self.pass_.is_rerun,
            **fields,
        )


def _error_class(event: AttemptFailed) -> str:
    """The class of a failure, or its HTTP status if it has one."""
    proof = event.proved
    evidence = None if proof is None else proof.evidence
    if evidence is None or evidence.status is None:
        return event.exception_type
    return f"HTTP_{evidence.status}"


def _class_of(error: BaseException | None) -> tuple[str, ...]:
    return () if error is None else (type(error).__name__,)


def _kept(value: UserValue, most: int) -> tuple[bytes, str]:
    """A result as the record keeps it; null and the reason if it does not."""
    try:
        data = encode_value(value)
    except Exception as error:
        return bytes(NULL), describe(error)[1]
    if len(data) > most:
        return bytes(NULL), f"it takes {len(data):,} bytes, and {most:,} are kept"
    return data, ""
