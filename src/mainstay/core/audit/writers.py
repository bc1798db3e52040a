"""Which writers of a log have closed it, and which have not: read off the headers of its blocks.

A writer begins with its first block, whose note is `{"opened": {}}` unless that was pruned or could
not be written, and ends with one whose note is `{"closed": {...}}`. One that was killed has none:
what it held in memory, at most the time between two blocks, is missing. Blocks of version 1 state
neither, and do not count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

if TYPE_CHECKING:
    from mainstay.core.audit.chain import Header


class OpenWriter(Struct, frozen=True):
    """A writer whose last block does not close it.

    Attributes:
        writer: its name in the log.
        host: the machine, and `pid` the process on it; 0 if the name does not have them.
        since: when its first block was written.
        last: when its last block was written.

    >>> OpenWriter("web-1:4711:9f", "web-1", 4711, "2026-01-01T00:00:00Z", "").pid
    4711
    """

    writer: str
    host: str
    pid: int
    since: str
    last: str


class Writers:
    """Is fed every header, in the order of the log.

    >>> Writers().unclosed
    []
    """

    def __init__(self) -> None:
        self._open: dict[str, OpenWriter] = {}

    def feed(self, header: Header) -> None:
        """One more block."""
        if header.version < 2:
            return
        if header.note is not None and "closed" in header.note:
            self._open.pop(header.writer, None)
            return
        known = self._open.get(header.writer)
        if known is None:
            known = _begun(header)
        self._open[header.writer] = replace(known, last=header.time)

    @property
    def unclosed(self) -> list[OpenWriter]:
        """Those that have begun and not closed, in the order in which they began."""
        return list(self._open.values())


_DIGITS = 18
"""A process has no longer number."""


def _begun(header: Header) -> OpenWriter:
    host, _, rest = header.writer.rpartition(":")[0].rpartition(":")
    pid = int(rest) if rest.isascii() and rest.isdigit() and len(rest) <= _DIGITS else 0
    return OpenWriter(header.writer, host, pid, header.time, header.time)
