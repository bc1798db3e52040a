"""How many keys a caller may have: one count for each caller, in the store of the records.

A key is counted when its request has the record and before it runs, and taken out again if no
record of it is kept. What a process that died has counted, counts until its time is over. Repeats
are never refused for it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.core.idempotency.key_count import SPACE, Full, count_key, discount_key
from mainstay.core.inbox.items import Item
from mainstay.errors import StoreUnavailable
from mainstay.integrations.asgi_messages import too_many_keys

if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.base.validate import Checker
    from mainstay.core.idempotency.call import Keyed
    from mainstay.ports import Store

_MOST = 1_000_000_000


class Quota:
    """The place of one request among the keys of its caller."""

    __slots__ = ("_address", "_at", "_header", "_most", "_ttl")

    def __init__(self, address: str, most: int, ttl: float, header: str) -> None:
        self._address = address
        self._most = most
        self._ttl = ttl
        self._header = header
        self._at: float | None = None

    async def take(self, store: Store) -> None:
        """Counts the key, or raises the problem of one too many."""
        answer = await store.atransact(
            SPACE, self._address, lambda value, now: count_key(value, self._most, self._ttl, now)
        )
        if isinstance(answer, Full):
            raise too_many_keys(self._header, self._most, answer.retry_after)
        self._at = answer.at

    def damaged(self, call: Keyed) -> Item:
        """The item of a count that nothing can read."""
        return Item(
            kind="corrupted_state",
            subject=self._address,
            operation=call.operation,
            text=f"{call.operation}: the count of a caller's keys is damaged. No new key of this"
            " caller is taken until the record is restored or removed",
            data={"address": self._address},
        )

    async def give_back(self, store: Store) -> None:
        """Takes the key out of the count again; without the store, its time ends it."""
        if self._at is None:
            return
        at, self._at = self._at, None
        with suppress(StoreUnavailable):
            await store.atransact(
                SPACE, self._address, lambda value, now: discount_key(value, at, self._ttl, now)
            )


def checked_quota(check: Checker, max_keys: Any, ttl: float | None) -> int | None:
    """The limit, if there is one; a count of keys that are kept for ever would never go down."""
    if max_keys is None:
        return None
    if ttl is None:
        check.note("max_keys", max_keys, "None if ttl is None: keys are then kept for ever")
    return check.count("max_keys", max_keys, _MOST)
