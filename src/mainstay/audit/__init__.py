"""The audit log: written by a sink, read and verified by anybody.

`log.py` writes, `reading.py` reads, `verifying.py` checks, `replaying.py` decides again; `places`
knows where a log may be, `keys.py` signs, `outside.py` brings heads to other places. What a log is
made of is in `core/audit/chain.py`, and how it is kept in `stores/journal_*.py`.

>>> import tempfile
>>> from mainstay import Engine
>>> where = tempfile.mkdtemp() + "/audit.jsonl"
>>> with Engine(sinks=[], audit=where) as engine:
...     _ = engine.run("parse", int, "x")
>>> [record.event.event_type for record in read_log(where)]
['plan_declared', 'attempt_failed', 'call_failed']
>>> verify_log(where).ok
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstay.audit.keys import make_key
    from mainstay.audit.log import AuditLog
    from mainstay.audit.read import Record, read_log
    from mainstay.audit.replay import replay_log, replay_records
    from mainstay.audit.verify import Verdict, verify_log

__all__ = [
    "AuditLog",
    "Record",
    "Verdict",
    "make_key",
    "read_log",
    "replay_log",
    "replay_records",
    "verify_log",
]

_HOMES = {
    "AuditLog": "log",
    "Record": "read",
    "Verdict": "verify",
    "make_key": "keys",
    "read_log": "read",
    "replay_log": "replay",
    "replay_records": "replay",
    "verify_log": "verify",
}


def __getattr__(name: str) -> object:
    """Loads what is asked for: who writes a log needs nothing of what verifies and replays it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"mainstay.audit.{_HOMES[name]}"), name)
    return found
