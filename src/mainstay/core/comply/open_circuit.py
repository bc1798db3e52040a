"""`open-circuit`: an attempt that was made although the circuit was open.

Telemetry and ledger mark what met an open circuit or opened it. A circuit that is marked stays open
for its cooldown from the first mark on. An attempt that began after a mark and was over before the
end of the cooldown went through it. Times are those of telemetry, whose clock is that of the
circuit; those of the ledger, which are the store's, count only for calls without telemetry.
"""

from __future__ import annotations

from itertools import pairwise

from mainstay.core.comply.finding import Finding
from mainstay.core.comply.moments import moment
from mainstay.core.comply.rule import Rule
from mainstay.core.pipeline.rules import MAX_DELAY

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    from mainstay.core.comply.evidence import At, Attempt, Call, Evidence, Run
    from mainstay.core.pipeline.ledger import LedgerEntry

    Ends: TypeAlias = dict[tuple[str, str, str], float | None]
    """When each call of the telemetry was over."""

ID = "open-circuit"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Looks for attempts within the cooldown; if the audit log has the circuit, it alone decides.

    That knows when the circuit was closed again, by a probe or by an operator.
    """
    ends = {call.key: moment(call.last.timestamp) for call in evidence.calls if call.call_id}
    marks = _marks(evidence, ends)
    for call in evidence.checked_calls:
        yield from _in_call(evidence, call, marks)
    for run in evidence.checked:
        yield from _in_run(evidence, run, marks, ends)
    for fact in evidence.audit:
        if fact.kind == "passed":
            text = f"attempt {fact.attempts} was made while the circuit was open since {fact.since}"
            yield fact.finding(ID, text)


def _marks(evidence: Evidence, ends: Ends) -> dict[At, list[float]]:
    """When the circuit of each stage was seen open, as the telemetry and the ledgers have it."""
    found: dict[At, list[float]] = {}
    for call in evidence.calls:
        for each in call.attempts:
            at = moment(each.timestamp)
            if each.circuit_open and at is not None:
                found.setdefault((call.pipeline_id, call.stage), []).append(at)
    for run in evidence.runs.values():
        for entry in run.retries:
            at = None if _key(run, entry) in ends else moment(entry.timestamp)
            if entry.circuit_open and at is not None:
                earlier = at - MAX_DELAY * entry.attempts  # it is written after the last wait
                found.setdefault((run.pipeline_id, entry.stage), []).append(earlier)
    return found


def _in_call(evidence: Evidence, call: Call, marks: dict[At, list[float]]) -> Iterator[Finding]:
    """A success through an open circuit; or an attempt after one that met or opened it."""
    at = (call.pipeline_id, call.stage)
    for each in call.attempts:
        if each.circuit_open and each.is_success:
            yield _passed(call, each)
    for before, after in pairwise(call.attempts):
        is_next = before.circuit_open and before.number < after.number
        if is_next and at not in evidence.audited:
            seen, over = moment(before.timestamp), moment(after.timestamp)
            if _is_within(evidence.cooldown, marks.get(at, []), seen, over):
                yield _passed(call, after)


def _is_within(cooldown: float, marks: list[float], seen: float | None, over: float | None) -> bool:
    """Whether the circuit that was seen open at a moment was still open at another."""
    if seen is None or over is None:
        return False
    since = min((each for each in marks if seen - cooldown < each <= seen), default=seen)
    return over - since < cooldown


def _passed(call: Call, attempt: Attempt) -> Finding:
    text = f"attempt {attempt.number} was made while the circuit was open"
    return call.finding(ID, text, attempt)


def _in_run(
    evidence: Evidence, run: Run, marks: dict[At, list[float]], ends: Ends
) -> Iterator[Finding]:
    """The calls of one stage in one run follow each other: the next began after the last entry."""
    opened: dict[str, LedgerEntry] = {}
    for entry in run.retries:
        if not entry.attempts:
            continue
        at, before = (run.pipeline_id, entry.stage), opened.pop(entry.stage, None)
        if entry.circuit_open:
            opened[entry.stage] = entry
        if before is None or at in evidence.audited:
            continue
        seen, over = (ends.get(_key(run, each), moment(each.timestamp)) for each in (before, entry))
        if _is_within(evidence.cooldown, marks.get(at, []), seen, over):
            yield Finding(
                rule=ID,
                text=f"stage {entry.stage}: {entry.attempts} attempts were made while the circuit"
                f" was open, as entry {before.sequence} of the retry log shows",
                file=run.retry_file,
                index=evidence.index_of(run.retry_file, entry),
                pipeline_id=run.pipeline_id,
                run_id=run.run_id,
                stage=entry.stage,
                call_id=entry.call_id,
            )


def _key(run: Run, entry: LedgerEntry) -> tuple[str, str, str]:
    return run.pipeline_id, entry.stage, entry.call_id


RULE = Rule(
    id=ID,
    finds="An attempt that was made although the circuit of its stage was open.",
    fix="call the stage through its circuit only; if the cooldown is not 300 s, give --cooldown or"
    " the audit log",
    check=check,
)
