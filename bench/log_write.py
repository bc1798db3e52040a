"""Table 17: what one log record costs, as JSON to a file, with its text looked at for secrets."""

from __future__ import annotations

import json
import logging
import tempfile
import time
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
QUARTER, FULL = 250_000, 1_000_000  # characters, four times as many
AT_LENGTH = "a text of 1 MB looked at for secrets, beside one of 250 kB"
SEEDS = (
    "key=a, 'token' [",
    "request 17 of orders from 10.0.0.7 took 0.2 s: password=hunter2x ",
    "password was: ab cd ",
)
"""What texts of that length are made of: each is slow for a rule of its own."""


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
    longest = max(map(_growth, SEEDS))
    rows.append(Row(AT_LENGTH, longest, at_most(8), note="linear is 4, quadratic 16"))
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


def _growth(seed: str) -> float:
    """How much more time of the processor a text of 1 MB takes than one of 250 kB."""
    return _look_at(seed, FULL) / _look_at(seed, QUARTER)


def _look_at(seed: str, size: int) -> float:
    """The least of two looks at a text that is not cut, as `Redactor.text` cuts it."""
    from mainstay import Redactor

    look, text = Redactor()._once, (seed * size)[:size]
    took = []
    for _ in range(2):
        before = time.thread_time()
        look(text)
        took.append(time.thread_time() - before)
    return min(took)


def _long(size: int) -> tuple[Any]:
    """A text of names and values: each is looked at, and nothing twice."""
    from mainstay import Redactor

    look, text = Redactor()._settled, ("key=a, 'token' [" * size)[:size]
    return (lambda a, b: look(text),)
