"""The inbox of an engine: matters for a person, kept in its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.core import inbox as core
from mainstay.core.inbox import SPACE, Item

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.ports import Store


class Inbox:
    """What a person must decide: one item for each matter.

    >>> from mainstay.stores.memory import MemoryStore
    >>> inbox = Inbox(MemoryStore())
    >>> item = inbox.put(Item(kind="exhausted", subject="a", operation="fetch", text="gave up"))
    >>> [each.text for each in inbox]
    ['gave up']
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def put(self, item: Item, *, is_new: bool = True) -> Item:
        """Raises a matter; the same one again is counted, not repeated.

        One that is not new is raised only where there is no item of it.

        >>> from mainstay.stores.memory import MemoryStore
        >>> item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
        >>> inbox = Inbox(MemoryStore())
        >>> inbox.put(item).times, inbox.put(item).times
        (1, 2)
        """
        return self._store.transact(
            SPACE, item.id, lambda value, now: core.put(value, item, now, is_new=is_new)
        )

    async def aput(self, item: Item, *, is_new: bool = True) -> Item:
        """The same, awaited."""
        return await self._store.atransact(
            SPACE, item.id, lambda value, now: core.put(value, item, now, is_new=is_new)
        )

    def get(self, item_id: str) -> Item | None:
        """The item of that id, open or closed.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Inbox(MemoryStore()).get("nothing") is None
        True
        """
        value, _ = self._store.read(SPACE, item_id)
        return None if value is None else core.decode(value)

    def __iter__(self) -> Iterator[Item]:
        """The open items, page by page."""
        after = ""
        while True:
            page = self._store.scan(SPACE, after)
            if not page:
                return
            items = [core.decode(value) for _, value in page]
            yield from [item for item in items if item.status == "open"]
            after = page[-1][0]
