"""Facts of a call, of which its events are built later, in the thread of the listener.

To build events during a call costs more than the call. If every listener takes facts (a sink behind
a buffer does), a call that needs only attempts and waits keeps a few values; `events()` then runs
the same flow on them, and builds the events that the call would have emitted. No exception is kept,
only its class and text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import force_setattr

import mainstay.runtime.clock as clock
from mainstay.core.base.event import Event
from mainstay.core.base.proof import Opening
from mainstay.core.base.timestamps import stamp
from mainstay.core.events.builder import EventBuilder
from mainstay.core.events.describe import name_of, shown
from mainstay.core.events.evidence import evidence_of
from mainstay.core.retry.call import call_flow
from mainstay.core.retry.effects import Question, Returned
from mainstay.core.retry.events import CallFailed, CallSucceeded, RetryExhausted
from mainstay.runtime.context import CONTEXT

if TYPE_CHECKING:
    from mainstay.core.base.proof import Evidence
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.plan import Plan
    from mainstay.runtime.context import Context


class Facts(Struct, gc=False, eq=False):
    """One call as it went: how each attempt ended and when, and how the call did.

    Thousands of them wait in a queue. So the garbage collector does not track them, as nothing that
    they hold refers back to them, and of each call it sees only the list of `attempts`: class,
    text, evidence, beginning and end of one attempt after the other.
    """

    plan: Plan
    plan_id: str
    key: int
    began: float
    offset: float
    context: Context
    attempts: list[Any]
    ended: float | None = None
    """When it returned or was cut off; None if the last failure was its end."""
    made: int = 1
    """How many attempts were started."""
    by: str = ""
    """What cut it off."""

    def failed(self, failure: BaseException, began: float | None = None) -> None:
        """An attempt ended so."""
        try:
            text = str(failure)
        except Exception:  # a broken __str__ must not cost the record
            text = ""
        now = clock.current.monotonic()
        evidence = evidence_of(failure, None, self.plan.redact)
        self.attempts += (type(failure), text, evidence, began or self.began, now)

    def events(self) -> list[Event]:
        """The events that the call would have emitted."""
        return _Replayed(self).events()


_PARTS = 5
"""How many values of `attempts` are of one attempt."""


def facts_of(plan: Plan, plan_id: str, key: int, began: float | None) -> Facts:
    """The facts of a call whose first attempt has just failed."""
    now = clock.current.monotonic()
    offset = clock.current.wall() - now
    began = now if began is None else began
    return Facts(plan, plan_id, key, began, offset, CONTEXT.get(), [])


def _bare(cls: type[BaseException]) -> BaseException:
    """An exception of a class and nothing more; none of the class's own code is run."""
    base: Any = next(base for base in cls.__mro__ if base.__module__ == "builtins")
    bare: BaseException = base.__new__(cls)
    return bare


class _LateBuilder(EventBuilder):
    """Describes a failure by its class, and by the text it had then."""

    __slots__ = ("described", "evidence")
    described: tuple[str, str]
    evidence: Evidence

    def _describe(self, _outcome: Any, _attempt: int) -> tuple[str, str]:
        return self.described

    def _evidence(self, _outcome: Any, _verdict: Classification, /) -> Evidence:
        return self.evidence


class _Replayed:
    """Runs the flow of a call on its facts.

    What several events of an attempt share is made once: the redacted text, and the timestamp.
    """

    __slots__ = ("_builder", "_facts", "_index", "_now", "_stamp")

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._index = 0
        self._move_to(facts.began)
        context = facts.context
        self._builder = _LateBuilder(
            facts.plan,
            facts.began,
            category=context.category,
            tenant_id=context.tenant_id,
            correlation_id=context.correlation_id,
            trace_id=context.trace_id,
            opening=Opening(facts.began),
            plan_id=facts.plan_id,
        )

    def events(self) -> list[Event]:
        flow = call_flow(self._facts.plan, self._outcome(), builder=self._builder)
        found: list[Event] = []
        answer: Any = None
        while True:
            effect = flow.send(answer)
            answer = None
            if isinstance(effect, Event):
                force_setattr(effect, "timestamp", self._stamp)
                found.append(effect)
                if type(effect) in _ENDS:
                    return found
            elif type(effect) is float:
                answer = self._outcome()
                if answer is None:
                    break
            elif type(effect) is Question:
                answer = self._answer(effect)
            else:
                return found
        if self._facts.by:
            found.append(self._cut_off())
        return found

    def _move_to(self, now: float) -> None:
        self._now, self._stamp = now, stamp(now + self._facts.offset)

    def _cut_off(self) -> Event:
        facts = self._facts
        self._move_to(facts.ended or self._now)
        event = self._builder.call_interrupted(facts.made, facts.by)
        force_setattr(event, "timestamp", self._stamp)
        return event

    def _outcome(self) -> Any:
        """How the next attempt ended; None if the facts end."""
        facts, builder = self._facts, self._builder
        at = self._index
        if at < len(facts.attempts):
            self._index = at + _PARTS
            cls, text, builder.evidence, began, now = facts.attempts[at : at + _PARTS]
            self._move_to(now)
            builder.took = now - began
            builder.described = name_of(cls), shown(text, facts.plan.redact)
            return _bare(cls)
        if facts.ended is None or facts.by:
            return None
        self._move_to(facts.ended)
        return Returned(None)

    def _answer(self, question: Question) -> Any:
        answer: Any = None
        if question is _NOW:
            answer = self._now
        elif question is _DRAW:
            answer = self._facts.key
        self._builder.record_answer(answer)
        return answer


_ENDS = {CallFailed, RetryExhausted, CallSucceeded}
_NOW, _DRAW = Question.NOW, Question.DRAW
