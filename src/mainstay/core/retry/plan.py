"""The plan of a call: what is known before it is made."""

from __future__ import annotations

from mainstay.core.base.rule import RULE
from mainstay.core.retry.give_up import NO_MOMENT, GaveUp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.classify import Classification
    from mainstay.core.retry.effects import Stop
    from mainstay.core.retry.policy import Policy

IDEMPOTENCY = ("idempotent", "keyed", "unsafe")
"""What repeating an operation may do; `unsafe` is never repeated after an ambiguous failure."""


class Plan:
    """What is known before a call: the policy, the operation's name and how safe repeating is."""

    __slots__ = (
        "idempotency", "is_guarded", "last_note", "operation", "policy", "redact", "rule",
        "token",
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
    ) -> GaveUp:
        """The note for an exception that is given up on, here or further in.

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
        ):
            note = GaveUp(
                self.operation, stop.text, self.token, attempt, inside, is_mark, moment, why
            )
            if moment < 0 and not why:  # others belong to this exception alone
                self.last_note = note
        return note
