"""The identity of a store, read from the store and made there when it is first needed."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

from mainstay.core.inbox import store_identity as core
from mainstay.core.inbox.store_identity import SPACE

if TYPE_CHECKING:
    from mainstay.ports import Store


def identity_of(store: Store) -> str:
    """What a store is known by; of two processes that need it first, one makes it.

    >>> from mainstay.stores.memory import MemoryStore
    >>> one, other = MemoryStore(), MemoryStore()
    >>> identity_of(one) == identity_of(one), identity_of(one) == identity_of(other)
    (True, False)
    """
    value, _ = store.read(SPACE, "")
    if value is not None:
        return core.known(value)
    fresh = urandom(16).hex()
    return store.transact(SPACE, "", lambda value, now: core.ensure(value, fresh, now))


def renew_identity(store: Store) -> str:
    """Gives the store another identity; who may is for the caller to check.

    >>> from mainstay.stores.memory import MemoryStore
    >>> store = MemoryStore()
    >>> identity_of(store) == renew_identity(store)
    False
    """
    fresh = urandom(16).hex()
    return store.transact(SPACE, "", lambda value, now: core.renew(value, fresh, now))
