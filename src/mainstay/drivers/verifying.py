"""Whether somebody is the operator they say they are, by the records of a store.

A try is counted before it is looked at. A wrong secret and a name that nobody has take the same
steps and the same time, and read the same.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import mainstay.clock as clock
from mainstay.core import operators as core
from mainstay.core.events import Event, OperatorRefused
from mainstay.core.operators import SPACE, Hash, Operator, statement
from mainstay.drivers.credentials import OperatorKey, Secret, Signature, is_signed, nobodys_key
from mainstay.drivers.emit import emit
from mainstay.errors import IdentityRefused

if TYPE_CHECKING:
    from typing import TypeAlias

    from mainstay.core.redact import Redactor
    from mainstay.ports import Sink, Store

    Credential: TypeAlias = str | Secret | OperatorKey | Signature

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
WRONG = "the name or the secret is wrong"


class Verifier:
    """Looks at names and what proves them; every refusal is told."""

    def __init__(
        self, store: Store, listeners: tuple[Sink, ...] = (), redact: Redactor | None = None
    ) -> None:
        self._store = store
        self.listeners = listeners
        self._redact = redact

    def verify(
        self,
        name: str,
        proof: Credential,
        purpose: str = "verify",
        about: tuple[Any, ...] = (),
        told: str = "verify",
    ) -> None:
        """Raises IdentityRefused unless it is them.

        Tries are counted in the store: five wrong ones within a quarter of an hour lock the name,
        for a minute at first and twice as long each time after, also for the right secret.

        Args:
            name: who they say they are.
            proof: their secret, their key, or a signature of the statement about this very act.
            purpose: what it is for; with `about` it is what a key signs.
            about: what the act is on.
            told: the act in words, for the audit.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Operators(MemoryStore()).verify("ann", "a guess")
        Traceback (most recent call last):
        mainstay.errors.IdentityRefused: the name or the secret is wrong
        """
        proof = Secret(proof) if isinstance(proof, str) else proof
        known, now = self._knock(name, told)
        signature = self._signature(name, proof, purpose, about)
        if signature is None:
            is_right = self._is_secret(known, proof)
        else:
            message = statement(purpose, name, about, signature.at)
            is_right = _is_signature(known, message, signature, now)
        if not is_right:
            locked = self._step(name, core.missed)
            raise self._refusal(name, told, WRONG, locked)
        signed = None if signature is None else signature.at
        trouble = self._step(name, lambda value, now: core.passed(value, known, signed, now))
        if trouble:
            raise self._refusal(name, told, trouble)

    def _knock(self, name: str, told: str) -> tuple[Operator, float]:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise self._refusal(str(name)[:64], told, WRONG)

        def decide(value: bytes | None, now: float) -> Any:
            change, answer = core.knock(value, name, now)
            return change, (answer, now)

        answer, now = self._step(name, decide)
        if answer.locked_for:
            raise self._refusal(name, told, "too many wrong tries", answer.locked_for)
        return answer.operator, now

    def _signature(
        self, name: str, proof: Any, purpose: str, about: tuple[Any, ...]
    ) -> Signature | None:
        if not isinstance(proof, OperatorKey):
            return proof if isinstance(proof, Signature) else None
        at = clock.current.wall()
        return proof.sign(statement(purpose, name, about, at), at)

    def _is_secret(self, known: Operator, proof: Any) -> bool:
        """Nobody's secret takes as long to look at as anybody's."""
        kept = known.hash or Hash(salt="00" * 16, digest="")
        is_right = core.is_right(proof.reveal(), kept)
        return is_right and known.hash is not None

    def _refusal(
        self, name: str, told: str, reason: str, locked_for: float = 0.0
    ) -> IdentityRefused:
        """The same words for a wrong secret and for a name that nobody has."""
        if locked_for:
            reason = f"{reason}; {name} is locked for {locked_for:.0f} s"
        self._refuse(name, told, reason)
        hint = f"try again in {locked_for:.0f} s" if locked_for else ""
        return IdentityRefused(reason, hint=hint, operator=name, retry_after=locked_for or None)

    def _refuse(self, name: str, told: str, reason: str) -> None:
        self.tell(OperatorRefused(operation=SPACE, operator=name, about=told, reason=reason))

    def _step(self, name: str, decide: Any) -> Any:
        return self._store.transact(SPACE, name, decide)

    def tell(self, event: Event) -> None:
        """Tells the listeners, and so the audit, of what was done or refused."""
        emit(event, self.listeners, self._redact)


def _is_signature(known: Operator, message: bytes, signature: Signature, now: float) -> bool:
    is_right = is_signed(known.public_key or nobodys_key(), message, signature)
    return is_right and bool(known.public_key) and core.is_timely(signature.at, now)
