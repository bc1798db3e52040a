"""Pipelines: stages on an engine, with governance, ledgers and telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.pipeline.definition import PipelineDefinition, names_of
from mainstay.drivers.pipeline.flushed import Flushed
from mainstay.drivers.pipeline.ledger_files import LedgerFiles
from mainstay.drivers.pipeline.parts import PipelineSetup
from mainstay.errors import StoreError, UsageError
from mainstay.profiles.pipelines.compliance import records_in
from mainstay.profiles.pipelines.governance import Governance
from mainstay.profiles.pipelines.stage import Stage
from mainstay.sinks.telemetry.file import telemetry_in
from mainstay.sinks.telemetry.sink import TelemetrySink

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.pipeline.governance import GovernanceRules
    from mainstay.core.pipeline.view import RunView
    from mainstay.core.telemetry.energy import EnergyModel
    from mainstay.drivers.pipeline.runs import RunResult
    from mainstay.engine.engine import Engine
    from mainstay.profiles.pipelines.compliance import ComplianceRecord

PATHS = {"ledgers": "docs/reports/audit", "telemetry": "releases/v10.3.0/focus-telemetry.json"}
"""The folder of `pipeline_retry_log.json` and `versioning_ledger.json`, and the telemetry file."""


class Pipeline:
    """A DAG of stages on an engine. Each run is recorded: it halts, is repaired, and is resumed.

    Args:
        pipeline_id: its name, in telemetry, ledgers and compliance records.
        stages: in any order; each comes after those that it names.
        engine: whose store has the runs; with a durable one they outlive the process.
        governance: a Governance, its rules, or the path of a file of them.
        datasets: data sets that every stage touches.
        ledgers: the folder of the two ledger files, copies of what the store has.
        telemetry: the file that telemetry is added to. At the default places files of another user
            than this one or root are refused, and links; what you name is your decision.
        model: how energy is computed; its defaults are round assumptions.
        keep_telemetry: how many of the latest records the telemetry file holds.
        lease: seconds after which a process that does not renew its claim on a run counts as gone.
        keep: seconds for which a run that has ended stays in store and ledgers; None for ever.
        max_resumes: resumptions without progress before a person must release the run.
        max_parallel: how many stages that do not come after each other run at the same time, in
            threads or tasks; a run that is resumed has at most as many as it began with.

    >>> import tempfile
    >>> from mainstay import Engine
    >>> place = tempfile.mkdtemp()
    >>> with Engine(sinks=[]) as engine:
    ...     pipeline = Pipeline("etl", [
    ...         Stage("poll", lambda: [1, 2, 3], idempotency="idempotent"),
    ...         Stage("load", lambda ctx: len(ctx.results["poll"]), after="poll",
    ...               idempotency="idempotent"),
    ...     ], engine=engine, ledgers=place, telemetry=place + "/telemetry.json")
    ...     pipeline.run().results["load"]
    3
    """

    def __init__(  # noqa: PLR0913 -- all but two by keyword
        self,
        pipeline_id: str,
        stages: Iterable[Stage],
        *,
        engine: Engine,
        governance: Governance | GovernanceRules | str | os.PathLike[str] | None = None,
        datasets: Iterable[str] | str = (),
        ledgers: str | os.PathLike[str] = PATHS["ledgers"],
        telemetry: str | os.PathLike[str] = PATHS["telemetry"],
        model: EnergyModel | None = None,
        keep_telemetry: int = 10_000,
        lease: Seconds = 30.0,
        keep: Seconds | None = None,
        max_resumes: int = 5,
        max_parallel: int = 1,
    ) -> None:
        check = Checker(f"Pipeline {pipeline_id!r}")
        several = tuple(stages)
        for each in several:
            check.instance("stages", each, Stage, "Stage(...)")
        names = names_of(check, "datasets", datasets)
        length = check.duration("lease", lease, 1.0, 3600.0)
        kept = None if keep is None else check.duration("keep", keep, 1.0, 31_622_400.0 * 100)
        check.count("max_resumes", max_resumes, 1_000, 0)
        check.count("max_parallel", max_parallel, 64)
        check.close()
        self.pipeline_id = pipeline_id
        self.stages = several
        self.engine = engine
        self.governance = Governance.of(governance)
        definition = PipelineDefinition(pipeline_id, several)
        _check_outbox(definition, engine)
        self.telemetry = TelemetrySink(
            telemetry, pipeline_id=pipeline_id, model=model, keep=keep_telemetry
        )
        self.telemetry.is_named = telemetry != PATHS["telemetry"]
        files = LedgerFiles(ledgers, kept, is_named=ledgers != PATHS["ledgers"])
        self.ledgers = files.folder
        self._setup = PipelineSetup(
            definition,
            self.governance.gate(),
            files,
            telemetry=self.telemetry,
            datasets=names,
            lease=length,
            keep=kept,
            max_resumes=max_resumes,
            max_parallel=max_parallel,
        )

    def run(self, input: UserValue = None, *, run_id: str | None = None) -> RunResult:  # noqa: A002
        """Runs every stage; raises what halted the run.

        A run id that was used before starts nothing: the result is returned, or PipelineHalted
        raised. Of an input that cannot be recorded, UsageError.
        """
        self._refuse_async()
        with Flushed(self.telemetry):
            return self.engine.pipelines.run(self._setup, input, run_id)

    async def arun(self, input: UserValue = None, *, run_id: str | None = None) -> RunResult:  # noqa: A002
        """The same, awaited; plain functions among the stages run in threads."""
        with Flushed(self.telemetry):
            return await self.engine.pipelines.arun(self._setup, input, run_id)

    def resume(self, run_id: str, *, by: str = "") -> RunResult:
        """Goes on with a run where it stopped: halted and repaired, or left by a dead process.

        What is in quarantine is resumed once a person has released it through the inbox.
        """
        self._refuse_async()
        with Flushed(self.telemetry):
            return self.engine.pipelines.resume(self._setup, run_id, by)

    async def aresume(self, run_id: str, *, by: str = "") -> RunResult:
        """The same, awaited."""
        with Flushed(self.telemetry):
            return await self.engine.pipelines.aresume(self._setup, run_id, by)

    def get(self, run_id: str) -> RunView | None:
        """One run, as its record shows it; None if there is no such run."""
        return self.engine.pipelines.get(self.pipeline_id, run_id)

    def runs(self) -> Iterator[RunView]:
        """Every run of this pipeline."""
        return self.engine.pipelines.all(self.pipeline_id)

    def compliance(self) -> list[ComplianceRecord]:
        """A compliance record for each call of a stage, from the telemetry."""
        self.telemetry.flush()
        if not self.telemetry.path.exists():
            return []
        path, is_named = self.telemetry.path, self.telemetry.is_named
        found = records_in(telemetry_in(path, is_named=is_named), path)
        return [each for each in found if each.pipeline_id == self.pipeline_id]

    def _refuse_async(self) -> None:
        if self._setup.definition.is_async:
            hint = "use `await pipeline.arun(...)`"
            raise UsageError(f"pipeline {self.pipeline_id} has async stages", hint=hint)


def _check_outbox(definition: PipelineDefinition, engine: Engine) -> None:
    """Refuses a stage that only a store can guard which takes part in transactions."""
    guarded = [each.name for each in definition.stages if each.idempotency == "outbox"]
    if guarded and not hasattr(engine.store, "within"):
        raise StoreError(
            f"stage {guarded[0]} is guarded by state store and outbox, and {engine.store.url} takes"
            " no part in a transaction",
            hint='Engine("sqlite:///…") or Engine("postgresql://…")',
        )
