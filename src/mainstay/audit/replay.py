"""Replays an audit log: every decision in it made again, and compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from mainstay.audit.read import read_log
from mainstay.core.audit.replay import Replay

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.audit.open import Where
    from mainstay.audit.read import Record
    from mainstay.core.audit.replay import ReplayReport


def replay_log(where: Where) -> ReplayReport:
    """Recomputes every decision of a log: classification, delay, breaker, budget, deadline.

    Nothing is written, and nothing of the log is verified: `verify_log` does that.

    Args:
        where: the place of the log.

    >>> import tempfile
    >>> from mainstay import Engine
    >>> from mainstay.audit import AuditLog
    >>> where = tempfile.mkdtemp() + "/audit.jsonl"
    >>> with Engine(sinks=[AuditLog(where)]) as engine:
    ...     _ = engine.run("parse", int, "x")
    >>> report = replay_log(where)
    >>> report.ok, report.calls
    (True, 1)
    """
    return replay_records(read_log(where))


def replay_records(records: Iterable[Record]) -> ReplayReport:
    """The same for records that are already read."""
    replay = Replay()
    for record in records:
        try:
            event = record.event
        except msgspec.DecodeError:
            replay.skip("a record that is no event of ours")
            continue
        replay.feed(record.number, record.writer, event)
    return replay.finish()
