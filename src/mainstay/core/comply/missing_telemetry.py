"""`missing-telemetry`: a call, an attempt or a whole pipeline that the telemetry does not have."""

from __future__ import annotations

from mainstay.core.comply.finding import Finding
from mainstay.core.comply.rule import Rule
from mainstay.core.comply.telemetry_facts import is_summed_up

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstay.core.comply.evidence import Call, Evidence, Run, TelemetryFile
    from mainstay.core.pipeline.ledger import LedgerEntry

ID = "missing-telemetry"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Compares records with their totals, with each other, with the ledgers and the runs."""
    if evidence.telemetry is None:
        return
    for file in evidence.telemetry:
        yield from _in_file(evidence, file)
    for call in evidence.checked_calls:
        yield from _in_call(evidence, call)
    found = {call.key: call for call in evidence.calls}
    for run in evidence.checked:
        if not run.is_running:
            yield from _in_run(evidence, run, found)
    yield from _in_stages(evidence)
    for fact in evidence.audit:
        if fact.kind == "missing":
            text = f"the audit log has call {fact.call_id}, and the telemetry has no record of it"
            yield fact.finding(ID, text)


def _in_file(evidence: Evidence, file: TelemetryFile) -> Iterator[Finding]:
    """Records against totals: by stage, unless the file has left some out."""
    if not file.is_there:
        if evidence.runs:
            yield Finding(rule=ID, text="there is no such file", file=file.path)
        return
    if file.left_out or is_summed_up(file):
        stated = sum(file.stated.values())
        found = sum(file.found.values()) + file.left_out
        if stated != found:
            yield Finding(rule=ID, text=_counted(found, stated), file=file.path)
        return
    for at in sorted({*file.stated, *file.found}):
        stated, found = file.stated.get(at, 0), file.found.get(at, 0)
        if stated != found and evidence.has_pipeline(at[0]):
            yield Finding(
                rule=ID,
                text=f"stage {at[1]} of {at[0]}: {_counted(found, stated)}",
                file=file.path,
                pipeline_id=at[0],
                stage=at[1],
            )


def _counted(found: int, stated: int) -> str:
    what = "records are missing" if found < stated else "the totals do not have them all"
    return f"{found} telemetry records, and the totals count {stated}: {what}"


def _in_call(evidence: Evidence, call: Call) -> Iterator[Finding]:
    """The attempts of a call are counted from 1 on; older ones may have been left out."""
    numbers = {each.number for each in call.attempts}
    first = min(numbers) if _has_left_out(evidence) else min(1, *numbers)
    gone = [each for each in range(first, max(numbers)) if each not in numbers]
    if gone and call.call_id:
        names = ", ".join(map(str, gone))
        text = f"attempt {names} of call {call.call_id} is not in the telemetry"
        yield call.finding(ID, text)


def _in_run(
    evidence: Evidence, run: Run, calls: dict[tuple[str, str, str], Call]
) -> Iterator[Finding]:
    """Each call of the retry log is in the telemetry, with its end and all of its failures."""
    for entry in run.retries:
        call = calls.get((run.pipeline_id, entry.stage, entry.call_id))
        text = _flaw(evidence, entry, call) if entry.call_id else ""
        if text:
            yield Finding(
                rule=ID,
                text=f"stage {entry.stage}: {text}",
                file=_paths(evidence.telemetry),
                pipeline_id=run.pipeline_id,
                run_id=run.run_id,
                stage=entry.stage,
                call_id=entry.call_id,
            )


def _flaw(evidence: Evidence, entry: LedgerEntry, call: Call | None) -> str:
    if call is None:
        if _has_left_out(evidence):
            return ""
        return f"the retry log has call {entry.call_id}, and the telemetry has no record of it"
    if not call.last.is_final:
        return f"the telemetry of call {entry.call_id} has no end"
    failures = sum(not each.is_success for each in call.attempts)
    if failures < len(entry.error_classes) and not _has_left_out(evidence):
        return (
            f"the retry log has {len(entry.error_classes)} failures of call {entry.call_id}, and"
            f" the telemetry has {failures}"
        )
    return ""


def _in_stages(evidence: Evidence) -> Iterator[Finding]:
    """Stages that are done against the successes of the totals; these hold every call."""
    files = evidence.telemetry or []
    if any(map(is_summed_up, files)):
        return
    done: dict[tuple[str, str], int] = {}
    for at in _done(evidence):
        done[at] = done.get(at, 0) + 1
    for at, count in done.items():
        found = sum(file.successes.get(at, 0) for file in files)
        if found < count:
            yield Finding(
                rule=ID,
                text=f"stage {at[1]} of {at[0]} was done {count} times, and the telemetry has"
                f" {found} successes of it",
                file=_paths(files),
                pipeline_id=at[0],
                stage=at[1],
            )


def _done(evidence: Evidence) -> Iterator[tuple[str, str]]:
    """The stages that were called and are done, once for each run."""
    for run in evidence.checked:
        if run.record is not None and not run.is_running:
            for name, stage in run.record.stages.items():
                if stage.status == "done" and stage.attempts:
                    yield run.pipeline_id, name


def _has_left_out(evidence: Evidence) -> bool:
    return any(file.left_out for file in evidence.telemetry or ())


def _paths(files: Iterable[TelemetryFile] | None) -> str:
    return ", ".join(file.path for file in files or ())


RULE = Rule(
    id=ID,
    finds="Telemetry that is not there: a file, a call of the retry log or of the audit log, an"
    " attempt of a call, a stage that is done, or a record that the totals count.",
    fix="find the telemetry of the run and give all of its files; if it was not written, give the"
    " pipeline a telemetry sink and run it again",
    check=check,
)
