"""The inbox of an engine: matters for a person, kept in its store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.core import inbox as core
from mainstay.core.inbox import SPACE, Item

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.redact import Redactor
    from mainstay.ports import Store


class Inbox:
    """What a person must decide: one item for each matter.

    >>> from mainstay.stores.memory import MemoryStore
    >>> inbox = Inbox(MemoryStore())
    >>> item = inbox.put(Item(kind="exhausted", subject="a", operation="fetch", text="gave up"))
    >>> [each.text for each in inbox]
    ['gave up']
    """

    def __init__(self, store: Store, redact: Redactor | None = None) -> None:
        self._store = store
        self._redact = redact

    def put(self, item: Item, *, is_new: bool = True) -> Item:
        """Raises a matter; the same one again is counted, not repeated.

        One that is not new is raised only where there is no item of it.

        >>> from mainstay.stores.memory import MemoryStore
        >>> item = Item(kind="exhausted", subject="a", operation="fetch", text="gave up")
        >>> inbox = Inbox(MemoryStore())
        >>> inbox.put(item).times, inbox.put(item).times
        (1, 2)
        """
        item = self._shown(item)
        return self._store.transact(
            SPACE, item.id, lambda value, now: core.put(value, item, now, is_new=is_new)
        )

    async def aput(self, item: Item, *, is_new: bool = True) -> Item:
        """The same, awaited."""
        item = self._shown(item)
        return await self._store.atransact(
            SPACE, item.id, lambda value, now: core.put(value, item, now, is_new=is_new)
        )

    def _shown(self, item: Item) -> Item:
        """The item as people may read it; what it is about stays, or two matters were one."""
        from mainstay.core.redact import REDACTOR

        return replace(item, text=(self._redact or REDACTOR).text(item.text))

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
