"""The plan of a call: what is known before it is made."""

from __future__ import annotations

from mainstay.core.base.rule import RULE
from mainstay.core.retry.give_up import GaveUp

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.redact.redactor import Redactor
    from mainstay.core.retry.effects import Stop
    from mainstay.core.retry.policy import Policy

IDEMPOTENCY = ("idempotent", "keyed", "unsafe")
"""What repeating an operation may do; `unsafe` is never repeated after an ambiguous failure."""


class Plan:
    """What is known before a call: the policy, the operation's name and how safe repeating is."""

    __slots__ = (
        "idempotency", "is_guarded", "last_note", "operation", "policy", "redact", "rule", "token"
    )  # fmt: skip

    def __init__(
        self, policy: Policy, operation: str, token: int, idempotency: str = "idempotent"
    ) -> None:
        self.policy = policy
        self.operation = operation
        self.token = token
        self.idempotency = idempotency
        self.rule = RULE
        """The version of the rules by which calls decide; of a recorded call, its own."""
        self.is_guarded = False
        """Whether guards decide too: a breaker, a budget, a limit."""
        self.redact: Redactor | None = None
        """What takes secrets out of texts; the usual one if there is none."""
        self.last_note: GaveUp | None = None
        """Nearly always the same as the time before."""

    def shown(self, text: str) -> str:
        """A text as people may read it."""
        from mainstay.core.redact.redactor import REDACTOR

        return (self.redact or REDACTOR).text(text)

    def would_retry(self, failure: BaseException) -> bool:
        """Whether this, as an outer retry, would make another attempt after such a failure."""
        policy = self.policy
        verdict = policy.classification(failure)
        rule = (policy.per_kind or {}).get(verdict.kind)
        limits = [policy.max_attempts, (rule and rule.max_attempts) or policy.max_attempts]
        unsafe = verdict.is_ambiguous and self.idempotency == "unsafe"
        return verdict.retryable and min(limits) > 1 and not unsafe

    def note(self, stop: Stop, attempt: int, inside: int = 0) -> GaveUp:
        """The note for an exception that is given up on, here or further in."""
        note = self.last_note
        if (
            note is None
            or note.attempts != attempt
            or note.reason is not stop.text
            or note.inside != inside
        ):
            note = GaveUp(self.operation, stop.text, self.token, attempt, inside)
            self.last_note = note
        return note
