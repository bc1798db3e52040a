"""Recorded events put together again into calls: what each attempt met, and when.

Only calls of which the record holds everything, from the first attempt to the end, with proofs,
come out; the others are counted with the reason. Calls that are under way at once are kept up to a
bound; of more, the oldest are let go.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.base.proof import Evidence, Opening
from mainstay.core.base.sums import in_order
from mainstay.core.events.codec import decode
from mainstay.core.retry.effects import TOO_LATE, Enclosing
from mainstay.core.retry.events import (
    AttemptFailed,
    CallInterrupted,
    CallsCounted,
    CallSucceeded,
    GivenUp,
    PlanDeclared,
    RetryAttempt,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Answer

MOST_OPEN = 50_000

INCOMPLETE = "a part of it, or its proof, is not in the log"
NO_PLAN = "its plan is not in the log"
TOO_LARGE = "a group of exceptions was too large to keep"
INTERRUPTED = "it was interrupted"
UNFINISHED = "its end is not in the log"


class Attempt(msgspec.Struct):
    """One attempt: how it ended, how long it took, and how long was waited before it."""

    evidence: Evidence | None
    """What its failure looked like; None if it succeeded."""
    kind: str = ""
    seconds: float = 0.0
    wait: float = 0.0
    inner: int = 0
    """The attempts of a retry further in that had given up."""


class Call(msgspec.Struct):
    """A recorded call, or `count` calls of which only the number is known."""

    operation: str
    policy: str
    key: int = 0
    attempts: list[Attempt] = []
    count: int = 1
    wall: float | None = None
    """When its first attempt began, in seconds since the epoch."""
    opening: Opening = Opening()
    plan: PlanDeclared | None = None
    rule: int = 1
    """The version of the rules by which it was decided."""
    enclosing: Enclosing | None = None
    refusal: str = ""
    """The reason of the guard that ended it, and whether it came before the wait or after."""
    refused_after_wait: bool = False
    unused_wait: float = 0.0
    """A wait after which no attempt came."""

    @property
    def succeeded(self) -> bool:
        return self.attempts[-1].evidence is None

    @property
    def waited(self) -> float:
        return in_order(attempt.wait for attempt in self.attempts) + self.unused_wait

    @property
    def met_a_failure(self) -> bool:
        return self.attempts[0].evidence is not None


class Traffic:
    """Makes calls of events; `left_out` counts those that could not be made, by reason."""

    def __init__(self) -> None:
        self.left_out: Counter[str] = Counter()
        self.unreadable = 0
        self._plans: dict[str, PlanDeclared] = {}
        self._open: OrderedDict[tuple[str, str, str], list[Event]] = OrderedDict()

    def calls(self, events: Iterable[tuple[str, bytes]]) -> Iterator[Call]:
        """The calls of a record, in the order in which they ended."""
        for writer, data in events:
            try:
                event = decode(data)
            except msgspec.MsgspecError:
                self.unreadable += 1
                continue
            call = self._follow(writer, event)
            if call is not None:
                yield call
        self.left_out[UNFINISHED] += len(self._open)
        self._open.clear()

    def _follow(self, writer: str, event: Event) -> Call | None:
        if isinstance(event, PlanDeclared):
            self._plans.setdefault(event.plan, event)
        elif isinstance(event, CallsCounted):
            return _at_once(event, event.calls)
        elif isinstance(event, CallSucceeded) and event.total_attempts == 1:
            return _at_once(event, 1, event.total_seconds)
        elif event.call_id and isinstance(event, _OF_A_CALL):
            return self._gather(writer, event)
        return None

    def _gather(self, writer: str, event: Event) -> Call | None:
        key = (writer, event.operation, event.call_id)
        call = self._open.setdefault(key, [])
        call.append(event)
        if not isinstance(event, _ENDS):
            if len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
                self.left_out[UNFINISHED] += 1
            return None
        del self._open[key]
        try:
            made = _call(call, self._plans)
        except (TypeError, ValueError):  # an id or a proof that is not of our making
            made = INCOMPLETE
        if isinstance(made, str):
            self.left_out[made] += 1
            return None
        return made


_ENDS = (GivenUp, CallSucceeded, CallInterrupted)
_OF_A_CALL = (AttemptFailed, RetryAttempt, *_ENDS)


def _at_once(event: Event, count: int, seconds: float = 0.0) -> Call:
    """Calls whose first attempt succeeded."""
    attempts = [Attempt(None, seconds=seconds)]
    wall = _epoch(event.timestamp, seconds)
    return Call(event.operation, event.policy, 0, attempts, count, wall)


def _call(events: list[Event], plans: dict[str, PlanDeclared]) -> Call | str:
    """The call that these events describe, or why it cannot be put together."""
    first, last = events[0], events[-1]
    opening = first.proved and first.proved.opening
    if isinstance(last, CallInterrupted):
        return INTERRUPTED
    if not isinstance(first, AttemptFailed) or not opening or opening.attempt != 1:
        return INCOMPLETE
    plan = plans.get(first.proved.plan) if first.proved else None
    if plan is None:
        return NO_PLAN
    made = Call(
        first.operation,
        first.policy,
        int(first.call_id, 16),
        [],
        wall=_epoch(first.timestamp, first.attempt_seconds or 0.0),
        opening=opening,
        plan=plan,
        rule=first.proved.rule if first.proved else 1,
    )
    return _filled(made, events)


def _filled(call: Call, events: list[Event]) -> Call | str:
    for event in events:
        if isinstance(event, AttemptFailed):
            evidence = event.proved and event.proved.evidence
            if not evidence or event.attempt_number != len(call.attempts) + 1:
                return INCOMPLETE
            if evidence.cut:
                return TOO_LARGE
            seconds = event.attempt_seconds or 0.0
            call.attempts.append(Attempt(evidence, event.kind, seconds, call.unused_wait))
            call.unused_wait = 0.0
            continue
        _take_in(call, event)
        if isinstance(event, RetryAttempt):
            call.unused_wait = event.delay_seconds
        elif isinstance(event, CallSucceeded):
            call.attempts.append(Attempt(None, wait=call.unused_wait))
            call.unused_wait = 0.0
    made = getattr(events[-1], "total_attempts", 0)
    return call if made == len(call.attempts) else INCOMPLETE


def _take_in(call: Call, event: Event) -> None:
    """The answers between the last failure and this event."""
    answers: list[Answer] = event.proved.answers if event.proved else []
    for answer in answers:
        if type(answer) is list:
            call.enclosing = Enclosing(*answer)
        elif type(answer) is dict and "inner" in answer:
            call.attempts[-1].inner = answer["inner"]
        elif type(answer) is dict and "stop" in answer and answer["stop"] != TOO_LATE.text:
            call.refusal = answer["stop"]
            call.refused_after_wait = bool(call.unused_wait)


def _epoch(stamp: str, before: float) -> float | None:
    """Seconds since the epoch, so long before a stamp."""
    try:
        moment = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() - before
