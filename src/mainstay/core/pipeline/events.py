"""Events of pipelines."""

from __future__ import annotations

from typing import ClassVar

from mainstay.core.base.event import Event

__all__ = ["GovernanceEscalated", "PipelineRunEnded", "PipelineRunHalted", "PipelineRunResumed"]


class PipelineRunHalted(Event, frozen=True, kw_only=True, tag="pipeline_halted"):
    """A stage has halted its run; for `cause` "fail_fast" its data sets are in quarantine.

    >>> PipelineRunHalted(operation="etl", run_id="r-1", stage="poll").event_type
    'pipeline_halted'
    """

    level: ClassVar[str] = "ERROR"
    run_id: str = ""
    stage: str = ""
    cause: str = ""
    exception_type: str = ""
    exception_message: str = ""
    total_attempts: int = 0
    datasets: list[str] = []  # noqa: RUF012  msgspec copies it
    care_labels: list[str] = []  # noqa: RUF012  msgspec copies it

    def sentence(self) -> str:
        held = f"; in quarantine: {', '.join(self.datasets) or 'the run'}"
        return (
            f"{self.operation}: run {self.run_id}: halted at stage {self.stage} ({self.cause})"
            f" after {self.total_attempts} attempts: {self.exception_type}:"
            f" {self.exception_message}" + (held if self.cause == "fail_fast" else "")
        )


class PipelineRunResumed(Event, frozen=True, kw_only=True, tag="pipeline_resumed"):
    """A run goes on where it stopped.

    >>> PipelineRunResumed(operation="etl", run_id="r-1", stage="poll", resumes=1).event_type
    'pipeline_resumed'
    """

    level: ClassVar[str] = "INFO"
    run_id: str = ""
    stage: str = ""
    resumes: int = 0

    def sentence(self) -> str:
        return f"{self.operation}: run {self.run_id}: resumed at stage {self.stage}"


class PipelineRunEnded(Event, frozen=True, kw_only=True, tag="pipeline_ended"):
    """Every stage of a run is done.

    >>> PipelineRunEnded(operation="etl", run_id="r-1", stages=3).event_type
    'pipeline_ended'
    """

    level: ClassVar[str] = "INFO"
    run_id: str = ""
    stages: int = 0

    def sentence(self) -> str:
        return f"{self.operation}: run {self.run_id}: {self.stages} stages are done"


class GovernanceEscalated(Event, frozen=True, kw_only=True, tag="governance_escalated"):
    """Governance is in conflict with a retry or a re-run: the council decides.

    >>> GovernanceEscalated(operation="etl", run_id="r-1", datasets=["d-7"]).event_type
    'governance_escalated'
    """

    level: ClassVar[str] = "ERROR"
    is_security: ClassVar[bool] = True
    run_id: str = ""
    stage: str = ""
    datasets: list[str] = []  # noqa: RUF012  msgspec copies it
    text: str = ""

    def sentence(self) -> str:
        names = ", ".join(self.datasets)
        return (
            f"{self.operation}: run {self.run_id}: escalated to the council: {names}: {self.text}"
        )
