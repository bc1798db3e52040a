"""Table 17: what one log record costs, as JSON to a file, with its text looked at for secrets."""

from __future__ import annotations

import json
import logging
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.compare import ratios
from bench.measure import METHOD, Contender, Effort, Timing, calls, race
from bench.table import Row, Table, at_most

ORDER = 17
LIMIT = 5.0  # milliseconds for one record
BASE = "json.dumps of the event"
WRITTEN = "LoggingSink with JsonFormatter, to a file"
GOALS = {WRITTEN: at_most(8)}
HALF, WHOLE = 2000, 4000  # characters
LINEAR = "a text of 4 kB looked at for secrets, beside one of 2 kB"


def run(effort: Effort) -> Table:
    """One event as a log record, and one text redacted, beside one json.dumps of the event."""
    # req: NFR-041-05
    with tempfile.TemporaryDirectory() as folder:
        results = race(_contenders(Path(folder) / "log.jsonl"), effort.scaled(0.6), GOALS)
    written = results[WRITTEN]
    rows = ratios(results, BASE, GOALS)
    looks = race([_looking(size) for size in (HALF, WHOLE)], replace(effort, seconds=1, parts=3))
    half, whole = looks[f"{HALF}"], looks[f"{WHOLE}"]
    if isinstance(written, Timing):
        worst = max(written.parts) * 1000.0
        rows.append(Row("one record, in milliseconds", worst, at_most(LIMIT), "ms"))
    if isinstance(half, Timing) and isinstance(whole, Timing):
        rows.append(Row(LINEAR, whole.over(half), at_most(3)))
    return Table("log_write", "A log record", f"× one json.dumps. {METHOD}", rows)


def _contenders(path: Path) -> list[Contender]:
    return [
        Contender(BASE, _dumps, calls),
        Contender(WRITTEN, partial(_written, path), calls),
        Contender("a text looked at for secrets, new", partial(_redacted, "_settled"), calls),
        Contender("a text looked at for secrets, seen before", partial(_redacted, "text"), calls),
    ]


def _looking(size: int) -> Contender:
    return Contender(f"{size}", partial(_long, size), _once)


def _once(n: int, look: Any) -> None:
    """One look where the harness counts ten: a look at such a text takes milliseconds."""
    for _ in range(n):
        look(1, 2)


def recorded() -> Any:
    """The event that is logged."""
    from mainstay.events import RetryAttempt

    return RetryAttempt(
        operation="orders.fetch",
        policy="network",
        call_id="1f00c0ffee",
        timestamp="2026-01-01T00:00:00Z",
        attempt_number=1,
        max_attempts=3,
        delay_seconds=0.1,
        exception_type="ConnectionError",
        exception_message="[Errno 111] Connect call failed ('127.0.0.1', 5432)",
        kind="transient",
    )


def _dumps() -> tuple[Any]:
    fields = recorded().to_dict()
    return (lambda a, b: json.dumps(fields),)


def _written(path: Path) -> tuple[Any]:
    from mainstay.sinks.logging import JsonFormatter, LoggingSink

    handler = logging.FileHandler(path)
    handler.setFormatter(JsonFormatter())
    log = logging.Logger("bench")  # noqa: LOG001 - one of its own, that nobody else hears
    log.addHandler(handler)
    sink, event = LoggingSink(log), recorded()
    return (lambda a, b: sink(event),)


def _redacted(verb: str) -> tuple[Any]:
    from mainstay import Redactor

    look, text = getattr(Redactor(), verb), recorded().exception_message
    return (lambda a, b: look(text),)


def _long(size: int) -> tuple[Any]:
    """A text of names and values: each is looked at, and nothing twice."""
    from mainstay import Redactor

    look, text = Redactor()._settled, ("key=a, 'token' [" * size)[:size]
    return (lambda a, b: look(text),)
