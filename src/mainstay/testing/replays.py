"""Asserts that a recorded log replays."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstay.audit.open import Where
    from mainstay.core.audit.replay import ReplayReport


def assert_replays(where: Where, *, proved: bool = True) -> ReplayReport:
    """Fails if a decision in the log differs today; the message has both sides.

    Keep a log of your service beside its tests: a change of a policy's code path shows what
    changes with it.

    Args:
        where: the place of the log: a path of a .jsonl file, `sqlite:///…`, `postgresql://…`.
        proved: fail also if a part of the log lacks what replay needs.

    >>> import tempfile
    >>> from mainstay import Engine
    >>> from mainstay.audit import AuditLog
    >>> where = tempfile.mkdtemp() + "/audit.jsonl"
    >>> with Engine(sinks=[AuditLog(where)]) as engine:
    ...     _ = engine.run("parse", int, "x")
    >>> assert_replays(where).calls
    1
    """
    from mainstay.audit import replay_log

    report = replay_log(where)
    assert report.divergence is None, f"{where} does not replay: {report.divergence}"
    if proved:
        assert not report.unproved, f"{where} cannot be replayed in full: {report.unproved}"
    return report
