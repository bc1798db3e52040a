"""The audit log as a sink: writing, reading, verifying, replaying; keys, external heads.

`log.py` writes, `read.py` reads, `verify.py` checks, `replay.py` makes every decision again, and
`stream.py` filters and counts; `open.py` opens the journal of a URL or path, `keys.py` signs,
`external_heads.py` writes heads to other places. The format of a log is in `core/audit/chain.py`,
and its storage in the `journal` module of each store.

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
    from mainstay.audit.verify import LogVerdict, Verdict, verify_log
    from mainstay.core.audit.writers import OpenWriter

__all__ = [
    "AuditLog",
    "LogVerdict",
    "OpenWriter",
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
    "LogVerdict": "verify",
    "OpenWriter": "verify",
    "Record": "read",
    "Verdict": "verify",
    "make_key": "keys",
    "read_log": "read",
    "replay_log": "replay",
    "replay_records": "replay",
    "verify_log": "verify",
}


def __getattr__(name: str) -> object:
    """Loads what is asked for: writing a log needs nothing of what verifies and replays it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"mainstay.audit.{_HOMES[name]}"), name)
    return found
