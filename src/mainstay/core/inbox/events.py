"""Events of the inbox and its operators."""

from __future__ import annotations

from typing import ClassVar

from mainstay.core.base.event import Event

__all__ = [
    "InboxClosed",
    "InboxDecided",
    "InboxRaised",
    "OperatorAdded",
    "OperatorChanged",
    "OperatorRefused",
]


class InboxRaised(Event, frozen=True, kw_only=True, tag="inbox_raised"):
    """A matter for a person has come up; its repetitions emit no event.

    >>> InboxRaised(item="3f2a", item_kind="exhausted").event_type
    'inbox_raised'
    """

    item: str = ""
    item_kind: str = ""
    severity: str = ""
    text: str = ""
    level: ClassVar[str] = "WARNING"

    def sentence(self) -> str:
        return (
            f"{self.operation}: a person must decide"
            f" ({self.item_kind}, {self.severity}, {self.item}): {self.text}"
        )


class InboxDecided(Event, frozen=True, kw_only=True, tag="inbox_decided"):
    """A person has decided what becomes of a matter.

    >>> InboxDecided(item="3f2a", decision="retry", operator="ann").event_type
    'inbox_decided'
    """

    item: str = ""
    item_kind: str = ""
    decision: str = ""
    operator: str = ""
    why: str = ""
    decided_evidence: str = ""
    revision: int = 0
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        why = f": {self.why}" if self.why else ""
        return (
            f"{self.operation}: {self.operator} decided {self.decision}"
            f" on {self.item_kind} {self.item}{why}"
        )


class InboxClosed(Event, frozen=True, kw_only=True, tag="inbox_closed"):
    """What was decided about a matter was carried out; or it was resolved without a decision.

    >>> InboxClosed(item="3f2a", decision="retry", result="the circuit was reset").event_type
    'inbox_closed'
    """

    item: str = ""
    item_kind: str = ""
    decision: str = ""
    operator: str = ""
    result: str = ""
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        if not self.decision:
            return f"{self.operation}: {self.item_kind} {self.item} was closed: {self.result}"
        return (
            f"{self.operation}: {self.decision} of {self.item_kind} {self.item}"
            f" was carried out: {self.result}"
        )


class OperatorRefused(Event, frozen=True, kw_only=True, tag="operator_refused"):
    """An operator was refused: a wrong secret, an unknown name, too many attempts.

    >>> OperatorRefused(operator="ann", about="retry 3f2a").event_type
    'operator_refused'
    """

    operator: str = ""
    about: str = ""
    reason: str = ""
    level: ClassVar[str] = "WARNING"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        return f"{self.operation}: {self.operator} was refused ({self.about}): {self.reason}"


class OperatorAdded(Event, frozen=True, kw_only=True, tag="operator_added"):
    """An operator may act on the inbox from now on.

    >>> OperatorAdded(operator="bob", authorised_by="ann").event_type
    'operator_added'
    """

    operator: str = ""
    authorised_by: str = ""
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        by = f" by {self.authorised_by}" if self.authorised_by else ""
        return f"{self.operation}: {self.operator} was added{by}"


class OperatorChanged(Event, frozen=True, kw_only=True, tag="operator_changed"):
    """An operator was disabled, enabled or removed, or has another secret.

    If the identity of the store was renewed, `operator` is "the identity of the store".

    >>> OperatorChanged(operator="bob", change="disabled").event_type
    'operator_changed'
    """

    operator: str = ""
    change: str = ""
    authorised_by: str = ""
    level: ClassVar[str] = "INFO"
    is_security: ClassVar[bool] = True

    def sentence(self) -> str:
        by = f" by {self.authorised_by}" if self.authorised_by else ""
        return f"{self.operation}: {self.operator} was {self.change}{by}"
