"""Replay: every recorded decision made again, by the core itself, and compared.

`Replay` is fed records in the order of the log, from any number of writers. The events of one call
are put together; when the call ends, its flow is run again on stand-ins and the recorded answers,
and each event it yields is compared with the one that was recorded. The answers of guards and the
changes of circuits are decided again from the state that they looked at. The first difference is
kept, with both sides.

A record that lacks the proof (a sink that did not want evidence, a log that begins in the middle of
a call) is counted, never guessed.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins

from mainstay.core.audit.replay_call import CallReplay, Declared, Recorded
from mainstay.core.audit.replay_guard import UNKNOWN, decide_again
from mainstay.core.base.proof import RULE
from mainstay.core.circuit.commands import changed_again
from mainstay.core.circuit.events import CircuitStateChanged
from mainstay.core.retry.events import (
    AttemptFailed,
    CallInterrupted,
    CallRefused,
    CallSucceeded,
    GivenUp,
    PlanDeclared,
    RetryAttempt,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Answer, Json

    Result = TypeVar("Result")

MOST_OPEN = 100_000
"""Calls that may be under way at once in a log; the oldest are let go beyond that, and counted."""


class Divergence(Struct, frozen=True):
    """A decision that differs from the recorded one."""

    number: int
    """The record's number in the log."""
    event_type: str
    operation: str
    call_id: str
    field: str
    recorded: Any
    recomputed: Any

    def __str__(self) -> str:
        call = f", call {self.call_id}" if self.call_id else ""
        return (
            f"record {self.number} ({self.event_type} of {self.operation!r}{call}):"
            f" {self.field} was recorded as {self.recorded!r}, and comes out as {self.recomputed!r}"
        )


class ReplayReport(Struct):
    """The result of a replay.

    Attributes:
        events: how many records there were.
        calls: how many calls were run again, and `decisions` how many events were compared.
        unfinished: calls that have no end in the log.
        unproved: what could not be replayed, and why.
        divergence: the first decision that differs.

    >>> ReplayReport().ok
    True
    """

    events: int = 0
    calls: int = 0
    decisions: int = 0
    unfinished: int = 0
    unproved: Counter[str] = {}  # type: ignore[assignment]
    divergence: Divergence | None = None

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return self.divergence is None

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return {"ok": self.ok, **to_builtins(self)}


class Replay:
    """Takes records one by one; `finish` returns the report.

    >>> replay = Replay()
    >>> replay.feed(1, "w", CallSucceeded(operation="fetch", total_attempts=1))
    >>> replay.finish().ok
    True
    """

    def __init__(self) -> None:
        self._open: OrderedDict[tuple[str, str, str], Recorded] = OrderedDict()
        self._plans: dict[str, Declared] = {}
        self._report = ReplayReport(unproved=Counter())

    def feed(self, number: int, writer: str, event: Event) -> None:
        """One more record of the log."""
        report = self._report
        report.events += 1
        if report.divergence is not None:
            return
        if isinstance(event, PlanDeclared):
            self._declare(event)
        elif isinstance(event, CircuitStateChanged):
            self._check_circuit(number, event)
        elif isinstance(event, CallRefused):
            self._check_refusal(number, event)
        elif event.call_id and isinstance(event, _OF_A_CALL):
            self._follow(number, writer, event)

    def _declare(self, event: PlanDeclared) -> None:
        if event.plan not in self._plans:
            plan = _tried(Declared, event)
            if isinstance(plan, Declared):
                self._plans[event.plan] = plan
            else:
                self._report.unproved["a plan that cannot be read"] += 1

    def skip(self, why: str) -> None:
        """A record that cannot be read."""
        self._report.events += 1
        self._report.unproved[why] += 1

    def finish(self) -> ReplayReport:
        """The report, once the log is at its end."""
        self._report.unfinished += len(self._open)
        self._open.clear()
        return self._report

    def _follow(self, number: int, writer: str, event: Event) -> None:
        key = (writer, event.operation, event.call_id)
        call = self._open.setdefault(key, [])
        call.append((number, event))
        if isinstance(event, _ENDS):
            del self._open[key]
            self._check_call(call)
        elif len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)
            self._report.unfinished += 1

    # --- one thing checked ------------------------------------------------------------------------

    def _check_call(self, call: Recorded) -> None:
        plan, why = self._plan_of(call)
        if plan is None:
            self._report.unproved[why] += 1
            return
        self._report.calls += 1
        replayed, version = iter(CallReplay(plan, call)), _rule_of(call[0][1])
        for number, event in call:
            if isinstance(event, CallInterrupted):
                return
            self._report.decisions += 1
            again = _tried(next, replayed, "the end of the call")
            if self._compare(number, event, again):
                return
            if self._check_witness(number, event, plan, version):
                return

    def _plan_of(self, call: Recorded) -> tuple[Declared | None, str]:
        """The plan of a call that can be replayed, or why it cannot."""
        first = call[0][1]
        if not isinstance(first, AttemptFailed) or first.proved is None:
            return None, "its beginning or its proof is not in the log"
        if first.proved.opening is None:
            return None, "its beginning or its proof is not in the log"
        if first.proved.rule > RULE:
            return None, _LATER
        proofs = [event.proved for _, event in call if isinstance(event, AttemptFailed)]
        if any(p is None or p.evidence is None or p.evidence.cut for p in proofs):
            return None, "a group of exceptions was too large to keep"
        plan = self._plans.get(first.proved.plan)
        return plan, "" if plan is not None else "its plan is not in the log"

    def _check_circuit(self, number: int, event: CircuitStateChanged) -> None:
        if _rule_of(event) > RULE:
            self._report.unproved[_LATER] += 1
            return
        again = _tried(changed_again, event)
        if again is None:
            self._report.unproved["a circuit's change without proof"] += 1
            return
        self._report.decisions += 1
        self._compare(number, event, again)

    def _check_refusal(self, number: int, event: CallRefused) -> None:
        plan = None if event.proved is None else self._plans.get(event.proved.plan)
        if plan is None or event.proved is None or not event.proved.witness:
            self._report.unproved["a refusal without proof"] += 1
            return
        if event.proved.rule > RULE:
            self._report.unproved[_LATER] += 1
            return
        self._report.decisions += 1
        self._check_witness(number, event, plan, _rule_of(event))

    def _check_witness(self, number: int, event: Event, plan: Declared, version: int) -> bool:
        """Compares the answers of the guards; whether one of them differs now."""
        for guard, state, answer in (event.proved and event.proved.witness) or ():
            again = _tried(decide_again, guard, plan.rules.get(guard), state, version)
            if again is UNKNOWN:
                self._report.unproved["a guard that is not one of ours"] += 1
            elif again != answer:
                self._diverge(number, event, guard, answer, again)
                return True
        return False

    def _compare(self, number: int, event: Event, again: Event | str) -> bool:
        """Whether two events differ in a field that the core decides."""
        if isinstance(again, str):
            self._diverge(number, event, "event", event.event_type, again)
            return True
        if type(again) is not type(event):
            self._diverge(number, event, "event", event.event_type, again.event_type)
            return True
        for field in _DECIDED[type(event)]:
            was, comes = getattr(event, field), getattr(again, field)
            if was != comes and not _is_redacted(was):
                self._diverge(number, event, field, was, comes)
                return True
        return False

    def _diverge(self, number: int, event: Event, field: str, was: Json, comes: Json) -> None:
        self._report.divergence = Divergence(
            number, event.event_type, event.operation, event.call_id, field, was, comes
        )


_LATER = "it was decided by the rules of a later version"


def _rule_of(first: Event) -> int:
    """The version of the rules by which a call was decided, from its first event."""
    return first.proved.rule if first.proved is not None else 1


def _tried(function: Callable[..., Result], *arguments: Answer) -> Result | str:
    """What a function answers; what it raises as text, since a record may hold anything."""
    try:
        return function(*arguments)
    except Exception as error:
        return f"it cannot be made again: {type(error).__name__}: {error}"


def _is_redacted(was: Json) -> bool:
    """Whether something was taken out of a text before it was recorded."""
    return isinstance(was, str) and "[redacted]" in was


_ENDS = (GivenUp, CallSucceeded, CallInterrupted)
_OF_A_CALL = (AttemptFailed, RetryAttempt, *_ENDS)
_FAILED = (
    "attempt_number", "max_attempts", "kind", "reason", "retryable", "retry_after_seconds",
)  # fmt: skip
_GAVE_UP = ("total_attempts", "total_seconds", "kind", "reason")
_CHANGED = (
    "from_state", "to_state", "reason", "failure_count", "success_count", "generation",
    "retry_after_seconds",
)  # fmt: skip


class _Fields(dict[type, tuple[str, ...]]):
    """The fields of an event that the core decides."""

    def __missing__(self, cls: type) -> tuple[str, ...]:
        return _GAVE_UP if issubclass(cls, GivenUp) else ()


_DECIDED = _Fields(
    {
        AttemptFailed: _FAILED,
        RetryAttempt: ("attempt_number", "max_attempts", "delay_seconds", "kind", "key"),
        CallSucceeded: ("total_attempts", "total_seconds"),
        CircuitStateChanged: _CHANGED,
    }
)
