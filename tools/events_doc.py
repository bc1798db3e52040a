"""The event reference, docs/reference/events.md, made from the catalogue.

    python tools/events_doc.py            print it
    python tools/events_doc.py --write    write docs/reference/events.md

Names, levels, fields and types come from the catalogue of events. What a field means stands here,
once for each name: a field has one meaning in every event. A field without a meaning is an error.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.base.event import Event
from mainstay.core.events.catalogue import CATALOGUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "reference" / "events.md"

HEAD = """\
<!-- Made by tools/events_doc.py; edit that, then: .venv/bin/python tools/events_doc.py --write -->

# Events

A listener is called with one of these. An event is a fact in the past tense and frozen: its fields
cannot be set. `attempt_number` is the attempt that has just ended; `delay_seconds` is the wait
before the next one. Arguments and results of the call are in no event; the message of its exception
is, without secrets. How to listen: [hooks and events](../how-to/hooks-and-events.md).

The level is what `LoggingSink` logs the event at; security events go to the logger
`mainstay.security`, so that they can be sent elsewhere. Recorded events decode for ever: a field is
never renamed, and a new one has a default.

```python
from mainstay import events

line = events.encode(events.CallSucceeded(operation="fetch", total_attempts=2))
assert events.decode(line).total_attempts == 2
```
"""

MEANINGS = {
    "about": "the act that the operator tried",
    "action": '"hit" or "record"',
    "alert": "the name of the rule",
    "attempt_number": "the attempt that has just ended, from 1",
    "attempt_seconds": "how long the attempt took, if that was measured",
    "authorised_by": "the operator who did it; empty if there was none yet",
    "by": "the class of what interrupted or refused the call, such as `CancelledError`",
    "call_id": "the same in every event of one call; empty if no attempt failed",
    "calls": "the number of calls",
    "change": "`disabled`, `enabled`, `removed` or `changed`; of an identity `renewed`",
    "correlation_id": "from `mainstay.context()`",
    "message": "the id of the message",
    "topic": "where the message is published to",
    "purged": "how many messages were deleted",
    "older_than_seconds": "the age from which on they were deleted",
    "effect_key": "what the effect is about",
    "is_published": "whether the compensating event was published",
    "is_undone": "whether the undo has succeeded",
    "is_out_of_order": "whether it comes after later messages of its aggregate",
    "decided_evidence": "the evidence of the operator, without secrets",
    "decision": "the action: `retry`, `mark_done`, `abandon` or `release`",
    "delay_seconds": "the wait before the next attempt",
    "exception_message": "its text; `the result was not accepted` for a result",
    "exception_type": "the class of the failure; empty for a result that was not accepted",
    "failure_count": "the failures that were counted before",
    "first_at": "when the first of them was lost",
    "fields": "the policy, with every rule tagged by its sort",
    "final_exception_message": "the text of the failure that ended the call",
    "final_exception_type": "the class of the failure that ended the call",
    "from_state": "the state before",
    "generation": "counts the circuit's changes",
    "group": "the operation, category or tenant; empty if the alert is about all",
    "guards": "each guard's name and rule",
    "hedge_number": "which hedge of the attempt, from 1",
    "hook": "`before_retry` or `after_retry`",
    "idempotency": "how safe repeating is",
    "idempotency_key": "the key of the record",
    "item": "the id of the inbox item",
    "lease": "the seconds after which another call may take over, unless it is renewed",
    "item_kind": "the kind of the item, such as `unknown_outcome`",
    "key": "the random key of the call: it and the attempt give the jitter of the delay",
    "kind": "the kind of the failure",
    "last_at": "when the last of them was lost",
    "lasted_seconds": "how long the alert was on",
    "log_level": "the policy's `log_level`",
    "max_attempts": "how many attempts the call may make, the first included",
    "metric": "the metric of the rule",
    "operation": "the operation's name, or the function's",
    "operator": "the name of the operator",
    "outcome": "`succeeded`, `failed`, `ignored` (a failure that does not count) or `refused`",
    "state": "the state of the circuit afterwards",
    "duration_seconds": "how long the call took; none of a call that was refused",
    "order": "the order to the circuit, such as `force open`",
    "plan": "the id by which proofs refer to it: a hash of its content",
    "policy": "the name of the policy",
    "proof": "what replay needs, if a sink wants evidence; absent otherwise",
    "reason": "why: the rule or the limit that decided",
    "records": "the number of records",
    "result": "the result of the action",
    "retry_after_seconds": "the Retry-After, if it was in seconds",
    "retry_category": "the `category` of `mainstay.context()`",
    "retryable": "whether the policy's rules allow another attempt after this failure",
    "revision": "counts the item's changes",
    "severity": "`critical`, `high`, `normal` or `low`",
    "success_count": "the probes that had succeeded",
    "saga_id": "the id of the saga",
    "run_id": "the id of the run",
    "stage": "the name of the stage",
    "stages": "how many stages the pipeline has",
    "cause": "`fail_fast`, `exhausted`, `refused` or `unknown`",
    "datasets": "the ids of the data sets of the stage",
    "care_labels": "their CARE labels",
    "resumes": "how often the run was resumed",
    "step": "the name of the step",
    "completed": "the steps that were done before",
    "in_doubt": "whether the step may have happened although it failed",
    "success": "whether the compensation has succeeded",
    "recoveries": "how often the saga was taken over from a process that was gone",
    "phase": "`forward`, `pivot`, `undo` or `definition`",
    "taken": "whether another call has taken over",
    "tenant_id": "from `mainstay.context()`",
    "text": "the description of the item, without secrets",
    "threshold": "the value past which the rule fires",
    "timestamp": "when it happened, ISO 8601 in UTC",
    "to_state": "the state from now on",
    "total_attempts": "how many attempts were made, the first included",
    "total_seconds": "from the start of the call, waits included",
    "trace_id": "from `mainstay.context()`",
    "value": "of the metric, over the window",
    "version": "the version of the event's format",
    "waited_seconds": "how long the attempt had run without a result",
    "why": "the operator's reason, without secrets",
    "window_seconds": "over how many seconds the metric is taken",
}

REMARKS = {
    "retry_attempt": "Logged at the policy's `log_level`.",
}


def render() -> str:
    """The whole page."""
    common = {field.name for field in msgspec.structs.fields(Event)}
    sections = [_overview(), _common()]
    sections += [_section(name, CATALOGUE[name], common) for name in sorted(CATALOGUE)]
    return "\n".join([HEAD, *sections])


def _overview() -> str:
    rows = (
        f"| [`{name}`](#{name}) | {_meaning(cls)} | {_level(cls)} |"
        for name, cls in sorted(CATALOGUE.items())
    )
    return _table("| event | meaning | level |", rows)


def _common() -> str:
    return f"## Every event\n\n{_fields(msgspec.structs.fields(Event))}"


def _section(name: str, cls: type[Event], common: set[str]) -> str:
    own = [field for field in msgspec.structs.fields(cls) if field.name not in common]
    remark = f" {REMARKS[name]}" if name in REMARKS else ""
    head = f"## {name}\n\n`mainstay.events.{cls.__name__}`, level {_level(cls)}. {_meaning(cls)}"
    return f"{head}{remark}\n\n{_fields(own)}"


def _level(cls: type[Event]) -> str:
    return f"{cls.level}, security" if cls.is_security else cls.level


def _meaning(cls: type[Event]) -> str:
    """The first line of the docstring."""
    return (cls.__doc__ or "").strip().splitlines()[0]


def _fields(fields: Iterable[msgspec.structs.FieldInfo]) -> str:
    rows = (f"| `{f.name}` | {_type(f)} | {MEANINGS[f.name]} |" for f in fields)
    return _table("| field | type | meaning |", rows)


def _type(field: msgspec.structs.FieldInfo) -> str:
    kind = field.type
    text = kind.__name__ if isinstance(kind, type) else re.sub(r"\b(?:[a-z_]+\.)+", "", str(kind))
    return f"`{text}`".replace("|", r"\|")


def _table(head: str, rows: Iterable[str]) -> str:
    return "\n".join(_lines(head, rows)) + "\n"


def _lines(head: str, rows: Iterable[str]) -> Iterator[str]:
    yield head
    yield "| --- " * (head.count("|") - 1) + "|"
    yield from rows


def main() -> int:
    """Prints the page, or writes it."""
    parser = argparse.ArgumentParser(description="the event reference, from the catalogue")
    parser.add_argument("--write", action="store_true", help="write docs/reference/events.md")
    if parser.parse_args().write:
        FILE.parent.mkdir(parents=True, exist_ok=True)
        FILE.write_text(render(), encoding="utf-8")
    else:
        print(render(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
