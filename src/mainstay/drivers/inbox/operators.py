"""The operators of a store: who may act on its inbox. authentication.py verifies them.

A process that has the store can read and write all of it: operators exist so that each act has a
name, and so that a wrong secret is seen. Every change and every refusal
is emitted to the listeners, and so enters the audit; a secret never.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from mainstay.core.inbox import operators as core
from mainstay.core.inbox.events import OperatorAdded, OperatorChanged
from mainstay.core.inbox.operators import FIRST, SHORTEST, SPACE, Hash, Operator
from mainstay.drivers.inbox.authentication import NAME, Verifier
from mainstay.drivers.inbox.credentials import Secret, public_pem
from mainstay.drivers.inbox.private_store import private_owner
from mainstay.drivers.inbox.scan import listed
from mainstay.drivers.inbox.store_identity import renew_identity
from mainstay.errors import IdentityRefused, UsageError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from mainstay.core.base.change import Change, Decide
    from mainstay.drivers.inbox.authentication import Credential

IDENTITY = "the identity of the store"
"""In the place of an operator, in the event of its renewal; no operator has such a name."""


class Operators(Verifier):
    """Who may act on the inbox of a store.

    >>> from mainstay import Engine
    >>> with Engine() as engine:
    ...     engine.operators.add("ann", secret="correct horse")
    ...     engine.operators.add("bob", secret="battery staple", by="ann", proof="correct horse")
    ...     [operator.name for operator in engine.operators]
    ['ann', 'bob']
    """

    def __iter__(self) -> Iterator[Operator]:
        """The operators, by name; damaged records are reported."""
        found = listed(self._store, SPACE, core.decode)
        return (each for _, each in found if not each.is_ghost)

    def get(self, name: str) -> Operator | None:
        """The operator of that name.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Operators(MemoryStore()).get("ann") is None
        True
        """
        value, _ = self._store.read(SPACE, name)
        found = None if value is None else core.decode(value)
        return None if found is None or found.is_ghost else found

    def add(
        self,
        name: str,
        *,
        secret: str | Secret | None = None,
        public_key: bytes | str | os.PathLike[str] | None = None,
        by: str = "",
        proof: Credential | None = None,
    ) -> None:
        """Adds an operator, with a secret or the public part of an Ed25519 key.

        The first needs no authorisation; every other one is added by an operator.

        >>> from mainstay.stores.memory import MemoryStore
        >>> operators = Operators(MemoryStore())
        >>> operators.add("ann", secret="correct horse")
        >>> operators.get("ann").is_enabled
        True
        """
        _check_name(name)
        kept = self._proof_of(secret, public_key)
        leave = self._leave(name, "add", kept, by, proof)
        digest, key = (kept, "") if isinstance(kept, Hash) else (None, kept)
        operator = Operator(name=name, hash=digest, public_key=key, added_by=leave)
        if not self._step(name, lambda value, now: core.add(value, operator, now)):
            raise _taken(name)
        self.tell(OperatorAdded(operation=SPACE, operator=name, authorised_by=leave))

    def change(
        self,
        name: str,
        *,
        secret: str | Secret | None = None,
        public_key: bytes | str | os.PathLike[str] | None = None,
        by: str,
        proof: Credential,
    ) -> None:
        """Gives an operator another secret or key; one's own, or by another operator.

        >>> from mainstay.stores.memory import MemoryStore
        >>> operators = Operators(MemoryStore())
        >>> operators.add("ann", secret="correct horse")
        >>> operators.change("ann", secret="battery staple", by="ann", proof="correct horse")
        >>> operators.verify("ann", "battery staple")
        """
        kept = self._proof_of(secret, public_key)
        self._administer(name, "change", kept, by, proof)
        self._changed(name, by, "changed", lambda value, now: core.change(value, now, proof=kept))

    def enable(self, name: str, *, by: str, proof: Credential) -> None:
        """Lets an operator act again.

        >>> from mainstay.stores.memory import MemoryStore
        >>> operators = Operators(MemoryStore())
        >>> operators.add("ann", secret="correct horse")
        >>> operators.enable("ann", by="ann", proof="correct horse")
        """
        self._administer(name, "enable", "", by, proof)
        self._changed(
            name, by, "enabled", lambda value, now: core.change(value, now, is_enabled=True)
        )

    def disable(self, name: str, *, by: str, proof: Credential) -> None:
        """Lets an operator act no more; the last one stays.

        >>> from mainstay.stores.memory import MemoryStore
        >>> operators = Operators(MemoryStore())
        >>> operators.add("ann", secret="correct horse")
        >>> operators.disable("ann", by="ann", proof="correct horse")
        Traceback (most recent call last):
        mainstay.errors.UsageError: 'ann' is the last operator who can act. add another one first
        """
        self._administer(name, "disable", "", by, proof)
        self._stop(name)
        self._changed(name, by, "disabled", _disabling)

    def remove(self, name: str, *, by: str, proof: Credential) -> None:
        """Removes an operator; the last one stays.

        >>> from mainstay.stores.memory import MemoryStore
        >>> operators = Operators(MemoryStore())
        >>> operators.add("ann", secret="correct horse")
        >>> operators.add("bob", secret="battery staple", by="ann", proof="correct horse")
        >>> operators.remove("ann", by="bob", proof="battery staple")
        >>> [each.name for each in operators]
        ['bob']
        """
        self._administer(name, "remove", "", by, proof)
        self._stop(name)
        self._changed(name, by, "removed", lambda value, _now: core.remove(value))

    def check(self, name: str, verb: str, *, by: str = "") -> None:
        """Raises what `add`, `change`, `enable`, `disable` or `remove` would, for any operator.

        For a program that asks a person for a secret: it asks only if the secret can be of use.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Operators(MemoryStore()).check("ann", "remove")
        Traceback (most recent call last):
        mainstay.errors.UsageError: there is no operator 'ann'. mainstay operators
        """
        value, _ = self._store.read(SPACE, name) if _is_name(name) else (None, 0.0)
        is_there = value is not None and core.is_somebody(value)
        if verb != "add":
            if not is_there:
                raise _nobody(name)
            if verb in ("disable", "remove"):
                self._keep_one_besides(name)
            return
        _check_name(name)
        if is_there:
            raise _taken(name)
        if not by and not self.is_empty:
            raise self._not_first(name, verb, by)

    def renew_identity(self, *, by: str = "", proof: Credential | None = None) -> str:
        """Gives the store another identity: what was signed for the present one is void.

        For a copy that becomes a store of its own. A restored backup keeps its identity. While
        there is no operator, no authorisation is needed.

        >>> from mainstay.stores.memory import MemoryStore
        >>> operators = Operators(MemoryStore())
        >>> before = operators.store_identity
        >>> operators.renew_identity() == operators.store_identity != before
        True
        """
        what = "renew the identity of the store"
        if by and proof is not None:
            self.verify(by, proof, "store.renew_identity", (), what)
        elif not self.is_empty:
            self.refuse(by, what, "an operator must do this")
            raise IdentityRefused(
                "an operator must renew the identity of the store",
                hint="identify yourself with by= and proof=; on the command line with --as NAME",
            )
        made, by = renew_identity(self._store), by or private_owner(self._store)
        self.tell(
            OperatorChanged(operation=SPACE, operator=IDENTITY, change="renewed", authorised_by=by)
        )
        return made

    @property
    def is_empty(self) -> bool:
        """Whether there is none yet: the next one to be added needs no authorisation."""
        return not any(there for _, there in listed(self._store, SPACE, core.is_somebody))

    def _leave(
        self, name: str, verb: str, kept: Hash | str, by: str, proof: Credential | None
    ) -> str:
        """Who authorises that an operator is added; no one if it is the first."""
        if by and proof is not None:
            self._administer(name, verb, kept, by, proof)
            return by
        if self.is_empty and self._claim(name):
            return ""
        raise self._not_first(name, verb, by)

    def _not_first(self, name: str, verb: str, by: str) -> IdentityRefused:
        self.refuse(by, f"{verb} operator {name}", "an operator must add this one")
        return IdentityRefused(
            f"operator {name!r} is not the first: an operator must add this one",
            hint="identify yourself with by= and proof=; on the command line with --as NAME",
        )

    def _claim(self, name: str) -> bool:
        value, _ = self._store.read(FIRST, "")
        before = "" if value is None else str(core.first_of(value))
        is_there = bool(before) and self.get(before) is not None
        return self._store.transact(
            FIRST, "", lambda value, now: core.claim_first(value, name, is_there, now)
        )

    def _administer(
        self, name: str, verb: str, kept: Hash | str, by: str, proof: Credential
    ) -> None:
        digest = hashlib.sha256(repr(kept).encode()).hexdigest() if kept else ""
        self.verify(by, proof, f"operators.{verb}", (name, digest), f"{verb} operator {name}")

    def _stop(self, name: str) -> None:
        """Disables an operator, unless it is the last who can act.

        It is checked once more afterwards: of two that stop each other at once, each has found the
        other one. Then both go on.
        """
        self._keep_one_besides(name)
        value, _ = self._store.read(SPACE, name)
        if value is None or not core.is_enabled(value):
            return
        self._step(name, _disabling)
        try:
            self._keep_one_besides(name)
        except UsageError:
            self._step(name, lambda value, now: core.change(value, now, is_enabled=True))
            raise

    def _keep_one_besides(self, name: str) -> None:
        if not any(each.is_enabled and each.name != name for each in self):
            raise UsageError(
                f"{name!r} is the last operator who can act", hint="add another one first"
            )

    def _proof_of(
        self, secret: str | Secret | None, public_key: bytes | str | os.PathLike[str] | None
    ) -> Hash | str:
        """What is kept: the hash of a secret, or a public key."""
        if (secret is None) == (public_key is None):
            raise UsageError("an operator has a secret or a public key", hint="give one of the two")
        if public_key is not None:
            return public_pem(public_key)
        return self._hashed(check_new_secret(secret))

    def _changed(self, name: str, by: str, what: str, decide: Decide[bool]) -> None:
        if not self._step(name, decide):
            raise _nobody(name)
        self.tell(OperatorChanged(operation=SPACE, operator=name, change=what, authorised_by=by))


def _disabling(value: bytes | None, now: float) -> tuple[Change, bool]:
    return core.change(value, now, is_enabled=False)


def _taken(name: str) -> UsageError:
    return UsageError(f"there is an operator {name!r} already", hint="mainstay operators")


def _nobody(name: str) -> UsageError:
    return UsageError(f"there is no operator {name!r}", hint="mainstay operators")


def _is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def _check_name(name: str) -> None:
    if not _is_name(name):
        raise UsageError(
            f"{name!r} is no name for an operator",
            hint="letters, digits and . _ @ + -, 64 at most, a letter or digit first",
        )


def check_new_secret(secret: str | Secret | None) -> Secret:
    """A secret that is long enough for a new one.

    >>> check_new_secret("correct horse")
    Secret(...)
    """
    text = secret.reveal() if isinstance(secret, Secret) else str(secret)
    if len(text) < SHORTEST:
        raise UsageError(f"a secret has at least {SHORTEST} characters", hint="a longer one")
    return secret if isinstance(secret, Secret) else Secret(text)
