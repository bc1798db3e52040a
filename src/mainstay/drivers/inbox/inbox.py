"""The inbox of an engine: matters for a person, kept in its store, and what people decide of them.

What an action does is up to the room that raised the item: see resolution.py. An item is decided in
one step, carried out in the next, and closed in the last: if a process dies between them, the item
stays decided, and any process can carry it out.
"""

from __future__ import annotations

import hashlib
import re
from os import urandom
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.core.base.attributes import add_note
from mainstay.core.base.change import KEEP
from mainstay.core.inbox import actions as acting
from mainstay.core.inbox import items as core
from mainstay.core.inbox.actions import OUTCOMES, Already, Gone, Stale, Won
from mainstay.core.inbox.events import InboxClosed, InboxDecided, InboxRaised
from mainstay.core.inbox.items import SPACE, Item
from mainstay.drivers.call.emit import emit
from mainstay.drivers.inbox.authentication import writable
from mainstay.drivers.inbox.credentials import Signature
from mainstay.drivers.inbox.operators import Operators
from mainstay.drivers.inbox.scan import listed
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    from mainstay.core.base.change import Change
    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Json
    from mainstay.core.inbox.actions import Answer
    from mainstay.core.inbox.items import Decision
    from mainstay.core.redact.redactor import Redactor
    from mainstay.drivers.inbox.authentication import Credential
    from mainstay.errors import StoredValueError
    from mainstay.ports import Sink, Store

    Room: TypeAlias = Callable[[Item, Decision], str | None]
    """Carries out what was decided; returns what came of it, or None if it is not for us."""

_ID = re.compile("[0-9a-f]{16}")
_AGAIN = 3
"""How often a decision on whatever is there is tried, while the item keeps changing."""
_LONGEST = 1000
"""Characters of evidence in an event."""
_NO_ITEM = "a record of %s is damaged, and no item could be put into the inbox"
_BY_THEMSELVES = frozenset({"alert", "governance", "corrupted_state", "partial_failure"})
"""Kinds for which a decision is noted and nothing else is done."""


class Inbox:
    """What a person must decide: one item for each matter.

    >>> from mainstay.stores.memory import MemoryStore
    >>> inbox = Inbox(MemoryStore())
    >>> item = inbox.put(Item(kind="exhausted", subject="a", operation="fetch", text="gave up"))
    >>> [each.text for each in inbox]
    ['gave up']
    """

    def __init__(
        self, store: Store, redact: Redactor | None = None, listeners: tuple[Sink, ...] = ()
    ) -> None:
        self._store = store
        self._redact = redact
        self.listeners = listeners
        self.operators = Operators(store, listeners, redact)
        self._rooms: dict[str, Room] = {}
        self._first: dict[str, Room] = {}

    # --- raising ----------------------------------------------------------------------------------

    def put(self, item: Item, *, is_new: bool = True) -> Item:
        """Raises a matter; the same one again is counted, not repeated.

        One that is not new is raised only if there is no item of it.

        >>> from mainstay.stores.memory import MemoryStore
        >>> item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
        >>> inbox = Inbox(MemoryStore())
        >>> inbox.put(item).times, inbox.put(item).times
        (1, 2)
        """
        item = self._shown(item)
        return self._raised(self._store.transact(SPACE, item.id, _putting(item, is_new)))

    async def aput(self, item: Item, *, is_new: bool = True) -> Item:
        """The same, awaited."""
        item = self._shown(item)
        return self._raised(await self._store.atransact(SPACE, item.id, _putting(item, is_new)))

    def put_damage(self, error: StoredValueError, item: Item) -> None:
        """Raises the item of a damaged record, whose id the error then has; each error once.

        The error reaches the caller in any case: if there is no item, that is reported.
        """
        if error.is_damaged and error.item_id is None:
            try:
                error.item_id = self.put(item).id
            except Exception as failure:
                report(failure, _NO_ITEM, item.operation, redact=self._redact)

    async def aput_damage(self, error: StoredValueError, item: Item) -> None:
        """The same, awaited."""
        if error.is_damaged and error.item_id is None:
            try:
                error.item_id = (await self.aput(item)).id
            except Exception as failure:
                report(failure, _NO_ITEM, item.operation, redact=self._redact)

    def _raised(self, answer: tuple[Item, bool]) -> Item:
        """Emits that there is an item which did not exist, or was not open."""
        item, is_raised = answer
        if is_raised:
            event = InboxRaised(
                operation=item.operation,
                item=item.id,
                item_kind=item.kind,
                severity=item.severity,
                text=item.text,
            )
            self._emit(event)
        return item

    def _shown(self, item: Item) -> Item:
        """The item as people may read it; what it is about stays, or two matters were one."""
        about = {"subject": writable(item.subject), "operation": writable(item.operation)}
        return replace(item, text=self._text(item.text), **about)

    def _text(self, text: str) -> str:
        from mainstay.core.redact.redactor import REDACTOR

        return (self._redact or REDACTOR).text(writable(text))

    def _emit(self, event: Event) -> None:
        emit(event, self.listeners, self._redact)

    # --- looking ----------------------------------------------------------------------------------

    def get(self, item_id: str) -> Item | None:
        """The item of that id, open or closed.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Inbox(MemoryStore()).get("nothing") is None
        True
        """
        if not _ID.fullmatch(item_id):  # not every store takes every text for a key
            return None
        value, _ = self._store.read(SPACE, item_id)
        return None if value is None else core.decode(value)

    def __iter__(self) -> Iterator[Item]:
        """The open items, page by page."""
        return (item for item in self.all() if item.status == "open")

    def all(self) -> Iterator[Item]:
        """Every item there is, also those that are decided or closed; damaged ones are reported.

        >>> from mainstay.stores.memory import MemoryStore
        >>> list(Inbox(MemoryStore()).all())
        []
        """
        return (item for _, item in listed(self._store, SPACE, core.decode))

    # --- acting -----------------------------------------------------------------------------------

    def act(
        self,
        item_id: str,
        action: str,
        *,
        by: str,
        proof: Credential,
        why: str = "",
        evidence: str = "",
        revision: int | None = None,
    ) -> Answer:
        """Decides what becomes of a matter, and does it; of two that decide at once one wins.

        Args:
            item_id: the item.
            action: one of its `actions`.
            by: the operator.
            proof: the operator's secret or key; or a signature made elsewhere.
            why: the reason; needed to abandon.
            evidence: needed for mark_done: of an unknown outcome the outcome itself, as JSON.
            revision: the state of the item that was looked at; without one, the present.

        Returns:
            Won; or Already, with who decided what; Illegal, with what can be done; Stale, if the
            item has changed since; Gone.

        >>> from mainstay import Engine
        >>> with Engine(sinks=[]) as engine:
        ...     engine.operators.add("ann", secret="correct horse")
        ...     item = engine.inbox.put(
        ...         Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
        ...     )
        ...     engine.inbox.act(item.id, "retry", by="ann", proof="correct horse").item.status
        'closed'
        """
        action, why, evidence = writable(action), writable(why), writable(evidence)
        is_bound = revision is not None or isinstance(proof, Signature)
        answer: Answer = Stale(0)
        for _ in range(1 if is_bound else _AGAIN):
            answer = self._act_once(item_id, action, by, proof, why, evidence, revision)
            if not isinstance(answer, Stale):
                break
        return answer

    def check(
        self,
        item_id: str,
        action: str,
        *,
        why: str = "",
        evidence: str = "",
        revision: int | None = None,
    ) -> Answer | None:
        """What `act` would refuse to any operator; None if the action is legal now.

        For a program that asks a person for a secret: it asks only if the secret can be of use.

        >>> from mainstay.stores.memory import MemoryStore
        >>> inbox = Inbox(MemoryStore())
        >>> item = inbox.put(Item(kind="exhausted", subject="a", operation="fetch", text="gave up"))
        >>> inbox.check(item.id, "abandon").text
        'to abandon needs a reason'
        >>> inbox.check(item.id, "retry") is None
        True
        """
        seen = self.get(item_id)
        if seen is None:
            return Gone()
        action, why, evidence = writable(action), writable(why), writable(evidence)
        number = seen.revision if revision is None else revision
        return acting.refusal(seen, action, why, evidence, number)

    def _act_once(
        self,
        item_id: str,
        action: str,
        by: str,
        proof: Credential,
        why: str,
        evidence: str,
        revision: int | None,
    ) -> Answer:
        seen = self.get(item_id)
        number = revision if revision is not None else 0 if seen is None else seen.revision
        about = about_of(item_id, seen, number, action, why, evidence)
        self.operators.verify(by, proof, "act", about, f"{action} {item_id}")
        if seen is None:
            return Gone()
        answer = self._decide(seen, action, by, why, evidence, number)
        if isinstance(answer, Won):
            self._emit(_decided(answer.item, self._text(evidence[:_LONGEST])))
        if isinstance(answer, Won | Already):
            after = self.carry_out(item_id)
            if isinstance(answer, Won) and after is not None:
                return Won(after)
        return answer

    def _decide(
        self, seen: Item, action: str, by: str, why: str, evidence: str, revision: int
    ) -> Answer:
        reason, token = self._text(why), urandom(8).hex()
        kept = evidence if seen.kind in OUTCOMES else self._text(evidence)

        def decide(value: bytes | None, now: float) -> tuple[Change, Answer]:
            return acting.act(value, action, by, reason, kept, revision, now, token=token)

        return self._store.transact(SPACE, seen.id, decide)

    def resolve(self, kind: str, subject: str, result: str, *, by: str = "") -> Item | None:
        """Closes the open item of a matter that was resolved elsewhere; decides nothing.

        Args:
            kind: the kind of the item.
            subject: what it is about.
            result: what became of the matter; it enters the item and the audit.
            by: the name that was given there; nobody has verified it here.

        >>> from mainstay.stores.memory import MemoryStore
        >>> inbox = Inbox(MemoryStore())
        >>> item = inbox.put(Item(kind="exhausted", subject="a", operation="fetch", text="gave up"))
        >>> inbox.resolve("exhausted", "a", "the service is back").status, list(inbox)
        ('closed', [])
        """
        about = Item(kind=kind, subject=writable(subject), operation="", text="")
        text = self._text(result)
        item = self._store.transact(
            SPACE, about.id, lambda value, now: acting.resolve(value, text, now)
        )
        if item is not None:
            event = InboxClosed(
                operation=item.operation, item=item.id, item_kind=kind, operator=by, result=text
            )
            self._emit(event)
        return item

    def carry_out(self, item_id: str) -> Item | None:
        """Carries out what was decided about an item, if that was not done; the item after it.

        Any process may: the one that decided may be gone. If this raises, the item stays as it is.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Inbox(MemoryStore()).carry_out("nothing") is None
        True
        """
        item = self.get(item_id)
        if item is None or item.status != "decided" or item.decision is None:
            return item
        decision = item.decision
        first = self._first.get(item.kind)
        result = None if first is None else first(item, decision)
        if result is None:
            result = self._rooms.get(item.kind, _by_itself)(item, decision)
        if result is None:
            return item
        outcome = self._text(result)
        is_closed = self._store.transact(
            SPACE, item.id, lambda value, now: acting.close(value, decision, outcome, now)
        )
        if is_closed:
            self._emit(_closed(item, decision, outcome))
        return self.get(item_id)

    def carry_out_all(self) -> int:
        """Carries out whatever is decided and was not; how many were closed.

        An error stops no other item: the first error is raised when all were tried.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Inbox(MemoryStore()).carry_out_all()
        0
        """
        left = [item.id for item in self.all() if item.status == "decided"]
        closed, errors = 0, []
        for item_id in left:
            try:
                item = self.carry_out(item_id)
            except Exception as error:
                add_note(error, f"while carrying out item {item_id}")
                errors.append(error)
            else:
                closed += item is not None and item.is_over
        if errors:
            raise errors[0]
        return closed

    def settle(self, kind: str, room: Room, *, is_first: bool = False) -> None:
        """Sets what carries out decisions on items of a kind.

        It returns a text for the item, or None if it has nothing to do with it. One that is first
        is asked before the other, for items that a feature raises under a kind of the user's.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Inbox(MemoryStore()).settle("quarantine", lambda item, decision: "let go")
        """
        rooms = self._first if is_first else self._rooms
        rooms[kind] = room


def about_of(
    item_id: str, item: Item | None, revision: int, action: str, why: str, evidence: str
) -> tuple[Json, ...]:
    """What a signature is about: this action on this state of this item, and nothing else.

    >>> about_of("3f2a", None, 1, "retry", "it is back", "")[:3]
    ('3f2a', 1, 0.0)
    """
    created = 0.0 if item is None else item.created
    digest = hashlib.sha256(evidence.encode("utf-8", "surrogatepass")).hexdigest()
    return (item_id, revision, created, action, why, digest)


def _putting(
    item: Item, is_new: bool
) -> Callable[[bytes | None, float], tuple[Change, tuple[Item, bool]]]:
    def decide(value: bytes | None, now: float) -> tuple[Change, tuple[Item, bool]]:
        change, kept = core.put(value, item, now, is_new=is_new)
        return change, (kept, change is not KEEP and kept.times == 1)

    return decide


def _by_itself(item: Item, _decision: Decision) -> str | None:
    """Without a room, only what needs none is carried out."""
    return "noted" if item.kind in _BY_THEMSELVES else None


def _decided(item: Item, evidence: str) -> InboxDecided:
    decision = item.decision
    assert decision is not None
    return InboxDecided(
        operation=item.operation,
        item=item.id,
        item_kind=item.kind,
        decision=decision.action,
        operator=decision.by,
        why=decision.why,
        decided_evidence=evidence,
        revision=item.revision,
    )


def _closed(item: Item, decision: Decision, result: str) -> InboxClosed:
    return InboxClosed(
        operation=item.operation,
        item=item.id,
        item_kind=item.kind,
        decision=decision.action,
        operator=decision.by,
        result=result,
    )
