"""Whether a caller is the operator they claim to be, by the records of a store.

A try is counted before it is looked at. A wrong secret and an unknown name take the same
steps and the same time, and read the same. A signature is of one store: it is checked with the
identity of the store (store_identity.py). The hash of a secret that costs less to guess than a new
one is replaced when the secret was right.
"""

from __future__ import annotations

import re
from os import urandom
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.core.inbox import operators as core
from mainstay.core.inbox.events import OperatorRefused
from mainstay.core.inbox.operators import SPACE, Hash, Operator, statement
from mainstay.drivers.call.emit import emit
from mainstay.drivers.inbox.credentials import (
    OperatorKey,
    Secret,
    Signature,
    is_signed,
    unowned_key,
)
from mainstay.drivers.inbox.store_identity import identity_of
from mainstay.errors import IdentityRefused, UsageError

if TYPE_CHECKING:
    from typing import Any, ClassVar, TypeAlias

    from mainstay.core.base.change import Change, Decide, Reply
    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Json
    from mainstay.core.redact.redactor import Redactor
    from mainstay.ports import Sink, Store

    Credential: TypeAlias = str | Secret | OperatorKey | Signature

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
WRONG = "the name or the secret is wrong"
_LONGEST = 200
"""Characters of a name or an act in an event: a refusal is recorded whatever was sent."""


class Verifier:
    """Checks names and what proves them; every refusal is emitted."""

    cost: ClassVar[Hash] = core.COST
    """What a new hash costs to guess; the cost of a hash that there is, is stored with it."""

    def __init__(
        self, store: Store, listeners: tuple[Sink, ...] = (), redact: Redactor | None = None
    ) -> None:
        self._store = store
        self.listeners = listeners
        self._redact = redact

    def verify(
        self,
        name: str,
        proof: Credential | None,
        purpose: str = "verify",
        about: tuple[Any, ...] = (),
        told: str = "verify",
    ) -> None:
        """Raises IdentityRefused unless it is them.

        Tries are counted in the store: five wrong ones within a quarter of an hour lock the name,
        for a minute at first and twice as long each time after, also for the right secret.

        Args:
            name: whom they claim to be.
            proof: their secret, their key, or a signature of the statement about this very act.
            purpose: what it is for; with `about` it is what a key signs.
            about: what the act is on.
            told: the act in words, for the audit.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Operators(MemoryStore()).verify("ann", "a guess")
        Traceback (most recent call last):
        mainstay.errors.IdentityRefused: the name or the secret is wrong
        """
        act = told
        proof = Secret(proof) if isinstance(proof, str) else proof
        known, now = self._count_attempt(name, act)
        signature = self._signature(name, proof, purpose, about, now)
        if signature is None:
            is_right = self._is_secret(known, proof)
        else:
            is_right = self._is_signature(name, known, purpose, about, signature)
        if not is_right:
            locked = self._step(name, core.missed)
            raise self._refusal(name, act, WRONG, locked)
        signed = None if signature is None else signature.at
        if signed is not None and not core.is_timely(signed, now):
            offset = f"{abs(now - signed):.0f} s {'before' if signed < now else 'after'}"
            raise self._refusal(name, act, f"the signature is of {offset} the store's time")
        is_fresh, better = isinstance(proof, OperatorKey), self._better(known, proof)

        def decide(value: bytes | None, now: float) -> tuple[Change, str]:
            return core.passed(value, known, signed, now, is_fresh=is_fresh, better=better)

        error = self._step(name, decide)
        if error:
            raise self._refusal(name, act, error)

    def _count_attempt(self, name: str, act: str) -> tuple[Operator, float]:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self._refusal(str(name)[:64], act, WRONG)

        answer, now = self._step(name, _counting(name))
        if answer.locked_for:
            raise self._refusal(name, act, "too many wrong tries", answer.locked_for)
        return answer.operator, now

    def _is_secret(self, known: Operator, proof: Credential | None) -> bool:
        """A secret of an unknown name takes as long to check as any other."""
        if not isinstance(proof, Secret):
            return False
        kept = known.hash or replace(self.cost, salt="00" * 16)
        if core.is_right(proof.reveal(), kept):
            return known.hash is not None
        rest = core.padding(kept, self.cost)
        if rest is not None:
            core.hashed(proof.reveal(), rest)
        return False

    def _better(self, known: Operator, proof: Credential | None) -> Hash | None:
        """The right secret hashed anew, if its hash is of an earlier version's cost."""
        if known.hash is None or not isinstance(proof, Secret):
            return None
        return self._hashed(proof) if core.is_cheaper(known.hash, self.cost) else None

    def _hashed(self, secret: Secret) -> Hash:
        return core.hashed(secret.reveal(), replace(self.cost, salt=urandom(16).hex()))

    @property
    def store_identity(self) -> str:
        """What signatures for this store are bound to: the last argument of a `statement`.

        >>> from mainstay.stores.memory import MemoryStore
        >>> operators = Operators(MemoryStore())
        >>> operators.store_identity == operators.store_identity
        True
        """
        return identity_of(self._store)

    def _signature(
        self, name: str, proof: Credential | None, purpose: str, about: tuple[Json, ...], at: float
    ) -> Signature | None:
        """What was signed elsewhere; or here, by the store's clock, since ours may be off."""
        if isinstance(proof, OperatorKey):
            return proof.sign(statement(purpose, name, about, at, self.store_identity), at)
        return proof if isinstance(proof, Signature) else None

    def _is_signature(
        self,
        name: str,
        known: Operator,
        purpose: str,
        about: tuple[Json, ...],
        signature: Signature,
    ) -> bool:
        """Whether it is theirs, of this very act in this store; whatever is sent for one."""
        identity = self.store_identity
        try:
            message = statement(purpose, name, about, signature.at, identity)
            is_right = is_signed(known.public_key or unowned_key(), message, signature)
        except (TypeError, ValueError, UsageError):
            return False
        return is_right and bool(known.public_key)

    def _refusal(
        self, name: str, act: str, reason: str, locked_for: float = 0.0
    ) -> IdentityRefused:
        """The same words for a wrong secret and for an unknown name."""
        if locked_for:
            reason = f"{reason}; {name} is locked for {locked_for:.0f} s"
        self.refuse(name, act, reason)
        hint = f"try again in {locked_for:.0f} s" if locked_for else ""
        return IdentityRefused(reason, hint=hint, operator=name, retry_after=locked_for or None)

    def refuse(self, name: str, act: str, reason: str) -> None:
        """Emits that an act was refused, and so to the audit."""
        name, act = writable(name)[:_LONGEST], writable(act)[:_LONGEST]
        self.tell(OperatorRefused(operation=SPACE, operator=name, about=act, reason=reason))

    def _step(self, name: str, decide: Decide[Reply]) -> Reply:
        return self._store.transact(SPACE, name, decide)

    def tell(self, event: Event) -> None:
        """Emits what was done or refused to the listeners, and so to the audit."""
        emit(event, self.listeners, self._redact)


def writable(text: str) -> str:
    r"""A text that every store and every log takes: without half characters.

    >>> writable("a\udcffb")
    'a\\udcffb'
    """
    return text.encode("utf-8", "backslashreplace").decode()


def _counting(name: str) -> Decide[tuple[core.AuthAttempt, float]]:
    """Counts an attempt of an operator; the answer has the store's time beside it."""

    def decide(value: bytes | None, now: float) -> tuple[Change, tuple[core.AuthAttempt, float]]:
        change, answer = core.count_attempt(value, name, now)
        return change, (answer, now)

    return decide
