"""`missing-quarantine`: a stage that failed fast, and the run was not halted and held for it."""

from __future__ import annotations

from mainstay.core.comply.finding import Finding
from mainstay.core.comply.rule import Rule

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.comply.evidence import Evidence

ID = "missing-quarantine"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Counts what failed fast in the retry log against what the versioning ledger has of it."""
    for run in evidence.checked:
        if not run.versions:
            continue
        failed = [entry for entry in run.retries if entry.kind == "failed_fast"]
        for kind, what in (("halted", "halted"), ("quarantined", "put into quarantine")):
            count = sum(entry.kind == kind for entry in run.versions)
            if count < len(failed):
                yield Finding(
                    rule=ID,
                    text=f"{len(failed)} calls failed fast, and the run was {what} {count} times",
                    file=run.version_file,
                    pipeline_id=run.pipeline_id,
                    run_id=run.run_id,
                    stage=failed[-1].stage,
                    call_id=failed[-1].call_id,
                )


RULE = Rule(
    id=ID,
    finds="A failure that must halt the run and put its data sets into quarantine, and the"
    " versioning ledger does not have both.",
    fix="run the stage by a Pipeline, which writes halt, quarantine and ledger as one",
    check=check,
)
