"""The identity of a store: what the signatures of operators are bound to, as reducers of a record.

It is a random text that is made when it is first needed. A backup that is restored has the identity
it was taken with, so that nothing changes for who signs. A copy that is to be a store of its own
gets another one: what was signed for the original is refused there.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from mainstay.core.base.change import KEEP, Change, read_as, ready
from mainstay.core.base.spaces import Space

SPACE = Space.IDENTITY.value


class StoreIdentity(Struct, frozen=True):
    """What a store is known by, and since when.

    >>> StoreIdentity("9c41", created=5.0).id
    '9c41'
    """

    id: str
    created: float = 0.0


def ensure(value: bytes | None, fresh: str, now: float) -> tuple[Change, str]:
    """The identity that there is; the fresh one if there is none yet.

    >>> change, identity = ensure(None, "9c41", now=5.0)
    >>> identity, ensure(change.value, "77aa", now=6.0)[1]
    ('9c41', '9c41')
    """
    return renew(None, fresh, now) if value is None else (KEEP, known(value))


def renew(_value: bytes | None, fresh: str, now: float) -> tuple[Change, str]:
    """Another identity, whatever there was."""
    return Change(msgspec.json.encode(StoreIdentity(fresh, now))), fresh


def known(value: bytes) -> str:
    """The identity in a record."""
    return read_as(StoreIdentity, value, "identity of the store").id


ready(StoreIdentity)
