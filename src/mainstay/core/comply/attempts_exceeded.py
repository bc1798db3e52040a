"""`attempts-exceeded`: attempts beyond the maximum, or all of them, without a ledger entry."""

from __future__ import annotations

from mainstay.core.comply.finding import Finding
from mainstay.core.comply.rule import Rule
from mainstay.core.comply.unlogged_retry import unlogged_calls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.comply.evidence import Evidence, Run

ID = "attempts-exceeded"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Looks for calls in the telemetry and attempts of a run that the retry log does not have."""
    for call, is_exceeded in unlogged_calls(evidence):
        if is_exceeded:
            text = f"call {call.call_id} made {call.last.number} attempts, and no retry log has"
            yield call.finding(ID, f"{text} an entry of it")
    for run in evidence.checked:
        yield from _in_run(evidence, run)
    for fact in evidence.audit:
        if fact.kind == "exceeded":
            text = f"call {fact.call_id} made {fact.attempts} attempts of {fact.most} allowed, and"
            yield fact.finding(ID, f"{text} no retry log has an entry of it")


def _in_run(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """The attempts of a stage against those of its entries; a success at once has no entry."""
    for name, stage in run.record.stages.items() if run.record else ():
        logged = sum(entry.attempts for entry in run.retries if entry.stage == name)
        left = stage.attempts - logged - (stage.status == "done")
        if left > 0:
            yield Finding(
                rule=ID,
                text=f"stage {name} made {stage.attempts} attempts, and the retry log has {logged}",
                file=evidence.store,
                pipeline_id=run.pipeline_id,
                run_id=run.run_id,
                stage=name,
            )


RULE = Rule(
    id=ID,
    finds="A call that made more attempts than are allowed, or used up all of them, and has no"
    " entry in the retry log; and attempts of a stage that the retry log does not have.",
    fix="run the stage by a Pipeline, which writes the entry with the halt; find out what removed"
    " the entry",
    check=check,
)
