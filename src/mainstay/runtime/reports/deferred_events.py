"""Facts of a call, of which its events are built later, in the thread of the listener.

To build events during a call costs more than the call. If every listener takes facts (a sink behind
a buffer does), a call that needs only attempts and waits keeps a few values; `events()` then makes
the events that the call would have emitted, with the builder that other listeners' events are made
with at once. No exception is kept, only its class and text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct

import mainstay.runtime.clock as clock
from mainstay.core.base.proof import Opening
from mainstay.core.base.timestamps import stamp
from mainstay.core.events.builder import EventBuilder
from mainstay.core.events.describe import NAMES, shown
from mainstay.core.events.evidence import evidence_of
from mainstay.core.retry.classify import classify
from mainstay.core.retry.effects import Returned

if TYPE_CHECKING:
    from mainstay.core.base.event import Event
    from mainstay.core.base.proof import Evidence
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.plan import Plan
    from mainstay.runtime.context import Context


class Facts(Struct, gc=False, eq=False):
    """One call as it went: how each attempt ended and when, and how the call did.

    Thousands of them wait in a queue. So the garbage collector does not track them, as nothing that
    they hold refers back to them, and of each call it sees only the list of `attempts`: class,
    text, evidence, beginning, end and what was decided then, of one attempt after the other.
    """

    plan: Plan
    plan_id: str
    key: int
    began: float
    context: Context
    attempts: list[Any]
    offset: float = 0.0
    """From the clock of the call to the time of day, as of the first failure."""
    ended: float | None = None
    """When it returned or was cut off; None if the last failure was its end."""
    made: int = 1
    """How many attempts were started."""
    by: str = ""
    """What cut it off."""

    def failed(self, failure: BaseException, began: float | None, delay: float) -> float:
        """An attempt ended so; the next one comes after the delay, or none below zero.

        Returns the time of day.
        """
        try:
            text = str(failure)
        except Exception:  # a broken __str__ must not cost the record
            text = ""
        now = clock.current.monotonic()
        evidence = evidence_of(failure, None, self.plan.redact)
        attempts = self.attempts
        if not attempts:
            self.offset = clock.current.wall() - now
        attempts += (type(failure), text, evidence, began or self.began, now, delay)
        return now + self.offset

    def events(self) -> list[Event]:
        """The events that the call would have emitted."""
        return _events_of(self)


_PARTS = 6
"""How many values of `attempts` are of one attempt."""


def _bare(cls: type[BaseException]) -> BaseException:
    """An exception of a class and nothing more; none of the class's own code is run."""
    base: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    bare: BaseException = base.__new__(cls)
    return bare


class _LateBuilder(EventBuilder):
    """Describes a failure by its class, and by the text it had then."""

    __slots__ = ("_late",)
    _late: Evidence

    def __init__(self, facts: Facts) -> None:
        who = facts.context
        super().__init__(
            facts.plan, facts.began, Opening(facts.began), facts.plan_id, f"{facts.key:x}",
            who.category, who.tenant_id, who.correlation_id, who.trace_id,
        )  # fmt: skip
        self.record_answer(facts.key)

    def look_at(
        self, attempt: int, described: tuple[str, str], evidence: Evidence, took: float
    ) -> None:
        """Turns to the failure of an attempt: what its events share is passed in."""
        self._attempt, self._described = attempt, described
        self._late, self.took = evidence, took

    def _evidence(self, _outcome: Any, _verdict: Classification, /) -> Evidence:
        return self._late


def _events_of(facts: Facts) -> list[Event]:
    """The events of a call that `fast_decision` decided, in their order and with their times."""
    builder, plan, key = _LateBuilder(facts), facts.plan, facts.key
    rules, limit, offset = plan.policy._rules, plan.policy.max_attempts, facts.offset  # noqa: SLF001
    found: list[Event] = []
    parts, made = iter(facts.attempts), 0
    for cls, text, evidence, began, now, delay in zip(*[parts] * _PARTS, strict=True):
        made += 1
        verdict = rules.settled.get(cls) or classify(_bare(cls), rules)
        builder.at = stamp(now + offset)
        builder.look_at(made, (NAMES[cls], shown(text, plan.redact)), evidence, now - began)
        failed = builder.attempt_failed(_GONE, verdict, made, limit, key)
        if delay < 0.0:
            builder.record_answer(now)
        event = builder.next_step(_GONE, verdict, made, delay, key, now)
        found += (failed, event)
    if facts.ended is not None:
        found.append(_end_of(facts, builder, made))
    return found


def _end_of(facts: Facts, builder: EventBuilder, failed: int) -> Event:
    """The last event of a call that has returned or was cut off, after that many failures."""
    assert facts.ended is not None
    builder.at = stamp(facts.ended + facts.offset)
    if facts.by:
        return builder.call_interrupted(facts.made, facts.by)
    builder.record_answer(facts.ended)
    return builder.call_succeeded(failed + 1, facts.ended)


_GONE = Returned(None)
"""In place of an exception that is not kept."""
