"""Lists the records of a space. A damaged one is reported, and the others are listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from mainstay.errors import StoredValueError
from mainstay.runtime.reports.report_failure import report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.ports import Store

Kind = TypeVar("Kind")


def listed(store: Store, space: str, decode: Callable[[bytes], Kind]) -> Iterator[tuple[str, Kind]]:
    """The records of a space by key, page by page.

    >>> from mainstay.core.inbox.items import decode
    >>> from mainstay.stores.memory import MemoryStore
    >>> list(listed(MemoryStore(), "inbox", decode))
    []
    """
    after = ""
    while page := store.scan(space, after):
        for key, value in page:
            try:
                yield key, decode(value)
            except StoredValueError as error:
                report(None, "%s %r is passed over: %s", space, key, error.message)
        after = page[-1][0]
