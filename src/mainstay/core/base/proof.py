"""What replay needs besides an event: how a call began, what a failure was, which answers it had.

Data only: names of classes, numbers and answers. `core/events/evidence.py` gathers it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct

from mainstay.core.base.rule import RULE as RULE  # noqa: PLC0414 -- it is a part of every proof
from mainstay.core.base.types import Answer  # noqa: TC001  msgspec reads the annotations


def stated(rule: int) -> tuple[Answer, ...]:
    """What a call states first among its answers: the version of its rules, unless it is the first.

    It is an answer and no field: a field would change the fingerprint of events that are recorded.

    >>> stated(1), stated(2)
    ((), ({'rule': 2},))
    """
    return ({"rule": rule},) if rule > 1 else ()


class KnownThen(Struct, frozen=True, omit_defaults=True, gc=False):
    """What the table of a library had for a failure when it was classified; tables change.

    >>> KnownThen("timeout", "no answer in time", table="httpx", ambiguous=True).kind
    'timeout'
    """

    kind: str
    reason: str
    table: str
    by_code: bool = False
    ambiguous: bool = False
    unsafe: str = ""
    once: str = ""


class Evidence(Struct, frozen=True, omit_defaults=True, gc=False):
    """One failure as its classification saw it; `cut` if a group had too many members to keep.

    >>> Evidence(classes=("builtins:OSError",), errno=104).errno
    104
    """

    _LATER_FIELDS: ClassVar[tuple[str, ...]] = ("known",)
    classes: tuple[str, ...] = ()
    status: int | None = None
    codes: tuple[str, ...] = ()
    errno: int | None = None
    winerror: int | None = None
    retry_after: float | None = None
    retry_at: float | None = None
    timeout: float | None = None
    asked: tuple[bool | None, ...] = ()
    """What the policy's own predicates answered, in the order they were asked; None for one that
    returned something to await, if nothing could await it."""
    wrapped: Evidence | None = None
    members: tuple[Evidence, ...] = ()
    cut: bool = False
    known: KnownThen | None = None
    """What the table of its library had for it."""


class Opening(Struct, frozen=True, gc=False):
    """What a call began with, besides its plan; in the proof of its first failure."""

    started: float = 0.0
    until: float | None = None
    """The moment of the deadline, on the monotonic clock; None if there is none."""
    attempt: int = 1
    delay: float = 0.0
    """The number of the first recorded attempt, and the wait before it."""
    limit: int = 0
    """A smaller number of attempts than the policy's; 0 for the policy's own."""


class Proof(Struct, frozen=True, omit_defaults=True, gc=False):
    """What replay needs besides the event itself.

    `answers` are those that the flow received since the event before, in order: a float for a
    clock, an integer for the key, the enclosing retry as [operation, attempts] or null, the answer
    of the guards as a delay or {"stop": why}; and what it found by itself: {"inner": attempts} of
    a retry further in, {"base": seconds} of a backoff that is a function, {"wait": seconds} of
    `wait_from`, or null if it left the wait to the policy. The first answer of a call may be
    {"rule": version}.
    """

    plan: str = ""
    opening: Opening | None = None
    evidence: Evidence | None = None
    answers: list[Answer] = []
    witness: list[list[Any]] | None = None
    """What guards looked at: [guard, state, answer] each."""
    settings: dict[str, Any] | None = None
    before: dict[str, Any] | None = None
    command: list[Any] | None = None
    """Of a circuit's change: its settings, what it was before, and what came."""

    @property
    def rule(self) -> int:
        """The version of the rules by which the call was decided, in the proof of its beginning.

        >>> Proof(answers=[{"rule": 2}]).rule, Proof().rule
        (2, 1)
        """
        first = self.answers[0] if self.answers else None
        return int(first["rule"]) if type(first) is dict and "rule" in first else 1
