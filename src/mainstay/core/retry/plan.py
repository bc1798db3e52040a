"""The plan of a call: what is known before it is made, and decisions that need no flow."""

from __future__ import annotations

from mainstay.core.base.attributes import KEEPS_SIGNALS, PerClass
from mainstay.core.base.entropy import MASK, uniform
from mainstay.core.base.rule import RULE
from mainstay.core.known.registry import REGISTRY
from mainstay.core.retry.classify import classify
from mainstay.core.retry.effects import EXHAUSTED, NOT_RETRYABLE
from mainstay.core.retry.give_up import NO_MOMENT, GaveUp, mark_on, newest_mark, note_of_response
from mainstay.core.retry.hooks import RELEASE
from mainstay.core.retry.not_retried import after_retries, leave
from mainstay.errors import AttemptTimeout, NestedRetryError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.effects import Stop
    from mainstay.core.retry.policy import Policy

    class Keeper(Protocol):
        """What keeps of a call what listeners want to know of it."""

        by_type: bool
        verdict: Classification | None


IDEMPOTENCY = ("idempotent", "keyed", "unsafe")
"""What repeating an operation may do; `unsafe` is never repeated after an ambiguous failure."""


class Plan:
    """What is known before a call: the policy, the operation's name and how safe repeating is."""

    __slots__ = (
        "idempotency", "is_guarded", "last_note", "looked", "operation", "policy", "redact",
        "rule", "token",
    )  # fmt: skip

    def __init__(
        self, policy: Policy, operation: str, token: int, idempotency: str = "idempotent"
    ) -> None:
        self.policy = policy
        self.operation = operation
        self.token = token
        self.idempotency = idempotency
        self.is_guarded = False
        """Whether guards decide too: a breaker, a budget, a limit."""
        self.redact: Redactor | None = None
        """What takes secrets out of texts; the usual one if there is none."""
        self.rule = RULE
        """The version of the rules that decide; an older one if a recorded call is replayed."""
        self.last_note: GaveUp | None = None
        """Nearly always the same as the time before."""
        self.looked: frozenset[str] = frozenset()
        """The libraries of which a failure was looked at for retries of their own."""

    def shown(self, text: str) -> str:
        """A text as people may read it."""
        from mainstay.core.redact.redactor import REDACTOR

        return (self.redact or REDACTOR).text(text)

    def would_retry(self, failure: BaseException) -> bool:
        """Whether this, as an outer retry, would make another attempt after such a failure."""
        return self.repeats(self.policy.classification(failure))

    def repeats(self, verdict: Classification) -> bool:
        """Whether a failure of that sort is ever followed by another attempt."""
        rule = (self.policy.per_kind or {}).get(verdict.kind)
        of_kind = rule.max_attempts if rule is not None else None
        unsafe = verdict.is_ambiguous and self.idempotency == "unsafe"
        return verdict.retryable and self.policy.max_attempts > 1 and of_kind != 1 and not unsafe

    @staticmethod
    def moment(own: int = 0) -> int:  # noqa: ARG004 -- a Site counts by it
        """The moment of a mark that is made now; a Site counts them."""
        return NO_MOMENT

    def note(
        self,
        stop: Stop,
        attempt: int,
        inside: int = 0,
        is_mark: bool = True,
        own: int = -1,
        why: str = "",
        by: str = "",
    ) -> GaveUp:
        """The note for an exception that is given up on, here or by a retry further in.

        `own` is how many references the call itself holds to what counts calls under way; below
        zero if no call is made, only decided again. `why` is which rule made the failure final.
        """
        moment = self.moment(own) if is_mark and own >= 0 else NO_MOMENT
        note = self.last_note
        if (
            moment >= 0
            or why
            or note is None
            or note.attempts != attempt
            or note.reason is not stop.text
            or note.inside != inside
            or note.is_mark is not is_mark
            or note.by != (by or self.operation)
        ):
            note = GaveUp(
                self.operation, stop.text, self.token, attempt, inside, is_mark, moment, why, by
            )
            if moment < 0 and not why:  # others belong to this exception alone
                self.last_note = note
        return note


GIVE_UP = -1.0
"""The answer of `fast_decision` for a failure that is to be raised."""


def fast_decision(
    plan: Plan,
    failure: BaseException,
    attempt: int,
    key: int,
    previous: float,
    keeps: Keeper | None = None,
) -> float | None:
    """The decision if it depends only on the exception and the attempts left.

    Most failures are of this sort, and need no flow: no inner retry has given up on them, the other
    side asks for no wait, and the call has no deadline or hook. `call_flow` would decide the same.
    What keeps something of the call for listeners receives the classification. If it keeps no
    exception, only a type that the policy has settled before will do, of an exception without
    attributes and cause that no client of HTTP has raised.

    Returns:
        The delay before another attempt, GIVE_UP, or None if the flow must decide.
    """
    policy, verdict = plan.policy, None
    if not failure.__dict__ and failure.__cause__ is None:
        verdict = policy._rules.settled.get(type(failure))
    if verdict is None or (
        verdict.looks_behind
        and (trace := failure.__traceback__) is not None  # as `is_direct`, without a call
        and (trace := trace.tb_next) is not None
        and trace.tb_next is not None
        and REGISTRY.behind(failure) is not None
    ):
        verdict = None if keeps is not None and keeps.by_type else _verdict(plan, failure)
        if verdict is None:
            return None
    context = failure.__context__
    if context is not None and "__notes__" in context.__dict__:  # perhaps a mark
        return None
    if keeps is not None:
        keeps.verdict = verdict
    if verdict.retryable:
        ramps = policy._ramps
        if attempt <= len(ramps):  # they are of attempts that are followed by another one
            low, step, power = ramps[attempt - 1]
            return low + step * (key * power & MASK)
        if attempt < policy.max_attempts:
            return policy.delay(attempt, uniform(key, attempt), previous)
    note: str = verdict.note if policy.max_attempts > 1 else ""
    if attempt > 1:
        stop = EXHAUSTED if verdict.retryable else NOT_RETRYABLE
        why = "" if verdict.retryable else after_retries(note)
        note = plan.note(stop, attempt, 0, verdict.retryable, 1, why)
    if note and (failure.__dict__ or failure.__cause__ is not None):
        note.put_on(failure) if type(note) is GaveUp else leave(note, failure)
    elif note:
        try:  # as these do; it has no note of ours yet
            failure.add_note(note)
        except Exception:  # a frozen exception takes no note, and is not lost for one
            return GIVE_UP
    return GIVE_UP


_OF_THE_FLOW = PerClass(
    lambda cls: issubclass(cls, BaseExceptionGroup | AttemptTimeout | NestedRetryError)
)
"""Whether the flow treats failures of a class by what they are, besides their kind."""


def _verdict(plan: Plan, failure: BaseException) -> Classification | None:
    """The classification of a failure; None if more than that, and the attempts left, decide."""
    rules, cls, carried = plan.policy._rules, type(failure), failure.__dict__
    if rules.functions or _OF_THE_FLOW[cls] or RELEASE in carried:
        return None
    if failure.__cause__ is not None:
        mark = newest_mark(failure)
    elif "__notes__" in carried or not KEEPS_SIGNALS[cls]:
        mark = mark_on(failure)
    else:  # one without notes and response has no mark
        response = carried.get("response")
        mark = None if response is None else note_of_response(response)
    if mark is not None and mark.moment != NO_MOMENT:
        return None
    verdict = classify(failure, rules)
    if verdict.hint is not None or (verdict.is_ambiguous and plan.idempotency == "unsafe"):
        return None
    known = verdict.known
    if verdict.retryable and known is not None and known.table not in plan.looked:
        return None  # the flow looks for retries of the client's own, once
    return verdict
