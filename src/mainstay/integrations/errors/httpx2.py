"""httpx2 and httpcore2, whose classes have the names and the meaning of httpx's and httpcore's."""

from __future__ import annotations

import mainstay.integrations.errors.httpx as httpx
from mainstay.core.known.kind import Kind
from mainstay.core.known.table import Row, Same, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mainstay.core.known.table import Entry


def _renamed(name: str) -> str:
    package, _, rest = name.partition(".")
    return f"{package}2.{rest}"


def _entry(entry: Entry) -> Entry:
    return Same(_renamed(entry.ancestor)) if isinstance(entry, Same) else entry


FINDER = httpx.Finder("httpx2")

TABLE = Table(
    "httpx2",
    {
        **{
            _renamed(name): _entry(entry)
            for name, entry in httpx.TABLE.entries.items()
            if name not in httpx.BEFORE
        },
        "httpx2.SSEError": Row(Kind.PERMANENT, "the answer is no stream of events"),
    },
    packages=("httpx2", "httpcore2"),
    request=FINDER.request,
    first=FINDER.first,
    senders=FINDER.senders,
    retries=httpx.TABLE.retries,
)
OTHER_VERSIONS = tuple(_renamed(name) for name in httpx.OTHER_VERSIONS if name not in httpx.BEFORE)
