"""`forbidden-class`: a failure that must not be retried, and was."""

from __future__ import annotations

from mainstay.core.comply.finding import Finding
from mainstay.core.comply.forbidden_names import is_forbidden
from mainstay.core.comply.rule import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.comply.evidence import Attempt, Call, Evidence, Run

ID = "forbidden-class"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Looks for an attempt, or a resumption, after a failure that forbids it."""
    for call in evidence.checked_calls:
        yield from _in_call(call)
    for run in evidence.checked:
        yield from _in_log(evidence, run)
        yield from _in_versions(evidence, run)
    for fact in evidence.audit:
        if fact.kind == "retried":
            text = f"{fact.error_class} was retried after attempt {fact.attempts}"
            yield fact.finding(ID, text)


def _in_call(call: Call) -> Iterator[Finding]:
    last = call.last
    for each in call.attempts:
        if _is_retried(each, last) and (is_forbidden(each.error_class) or not each.retryable):
            text = f"{each.error_class} was retried after attempt {each.number}"
            yield call.finding(ID, text, each)


def _is_retried(attempt: Attempt, last: Attempt) -> bool:
    """Whether a wait or another attempt followed a failure."""
    if attempt.is_success or not attempt.number:
        return False
    return attempt.number < last.number or (not attempt.is_final and attempt.delay > 0.0)


def _in_log(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """A class that fails fast is the last of its call; a call that had one did not succeed."""
    for entry in run.retries:
        ended = entry.kind == "retried"
        before = entry.error_classes if ended else entry.error_classes[:-1]
        for name in filter(is_forbidden, before):
            yield Finding(
                rule=ID,
                text=f"stage {entry.stage}: the retry log has {name} as retried",
                file=run.retry_file,
                index=evidence.index_of(run.retry_file, entry),
                pipeline_id=run.pipeline_id,
                run_id=run.run_id,
                stage=entry.stage,
                call_id=entry.call_id,
            )


def _in_versions(evidence: Evidence, run: Run) -> Iterator[Finding]:
    """What is in quarantine is resumed only after a person has reviewed it."""
    is_held = False
    for entry in run.versions:
        if entry.kind == "quarantined":
            is_held = True
        elif entry.kind == "reviewed":
            is_held = False
        elif entry.kind == "resumed" and is_held:
            yield Finding(
                rule=ID,
                text="the run was resumed while its data sets were in quarantine, before a person"
                " had reviewed them",
                file=run.version_file,
                index=evidence.index_of(run.version_file, entry),
                pipeline_id=run.pipeline_id,
                run_id=run.run_id,
                stage=entry.stage,
            )


RULE = Rule(
    id=ID,
    finds="A failure that must never be retried and was: a schema, governance, lineage,"
    " immutability or license error, a failure that was classified as final, or a run that was"
    " resumed out of quarantine without a review.",
    fix="let the error halt the stage: do not list its class in retry_on, and do not catch and"
    " repeat it in the stage",
    check=check,
)
