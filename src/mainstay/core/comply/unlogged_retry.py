"""`unlogged-retry`: a call that did not succeed at once, and has no entry in the retry log."""

from __future__ import annotations

from mainstay.core.comply.forbidden_names import INTERRUPTIONS
from mainstay.core.comply.rule import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.comply.evidence import Call, Evidence
    from mainstay.core.comply.finding import Finding

ID = "unlogged-retry"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Looks for calls that were retried or failed, and ended, and are in no retry log."""
    for call, is_exceeded in unlogged_calls(evidence):
        if not is_exceeded:
            text = f"call {call.call_id} ended after attempt {call.last.number}, and no retry log"
            yield call.finding(ID, f"{text} has an entry of it")
    for fact in evidence.audit:
        if fact.kind == "unlogged":
            text = f"call {fact.call_id} ended after attempt {fact.attempts}, and no retry log has"
            yield fact.finding(ID, f"{text} an entry of it")


def unlogged_calls(evidence: Evidence) -> Iterator[tuple[Call, bool]]:
    """The calls without an entry that need one, and whether they used up their attempts.

    Beyond the maximum each needs one. Below it, the pipeline must be one that has ledgers.
    """
    for call in evidence.checked_calls:
        last, is_beyond = call.last, call.last.number > evidence.max_attempts
        if not call.call_id or call.key in evidence.logged:
            continue
        if not last.is_final or not evidence.is_kept(call.pipeline_id, last.timestamp):
            continue
        if is_beyond:
            yield call, True
        elif _needs_entry(evidence, call):
            yield call, not last.is_success and last.retryable


def _needs_entry(evidence: Evidence, call: Call) -> bool:
    if not evidence.has_ledger or call.pipeline_id not in evidence.pipelines:
        return False
    return call.last.error_class.rpartition(".")[2] not in INTERRUPTIONS


RULE = Rule(
    id=ID,
    finds="A call of a pipeline with ledgers that was retried or failed, has ended, and has no"
    " entry in the retry log.",
    fix="run the stage by a Pipeline; if another process took the run over meanwhile, the inbox"
    " and the audit log show what the first one did",
    check=check,
)
