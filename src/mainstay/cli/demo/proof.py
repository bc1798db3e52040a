"""What the audit log says at the end: that it is as it was written, and that it comes out again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mainstay.audit import AuditLog, replay_log, verify_log
from mainstay.cli.demo.place import AUDIT, HEADS

if TYPE_CHECKING:
    from pathlib import Path

    from mainstay.audit import Verdict
    from mainstay.core.audit.replay import ReplayReport


@dataclass(frozen=True, slots=True)
class Proof:
    """What verifying the log came to, and replaying it."""

    verdict: Verdict
    replay: ReplayReport

    @property
    def ok(self) -> bool:
        """Whether nothing speaks against the log."""
        return self.verdict.ok and self.replay.ok


def audit_in(folder: Path) -> AuditLog:
    """A log in that folder, and nowhere else: what cannot be written is not spilled."""
    return AuditLog(str(folder / AUDIT), heads=str(folder / HEADS), spill=False)


def prove(folder: Path) -> Proof:
    """Verifies the log against itself and the heads beside it, and makes its decisions again."""
    log = str(folder / AUDIT)
    return Proof(verify_log(log, heads=str(folder / HEADS)), replay_log(log))
