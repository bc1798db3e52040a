"""Reads an audit log, record by record, without holding more than some blocks in memory."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from mainstay.audit.open import open_journal
from mainstay.core.audit.chain import header_of
from mainstay.core.events.codec import decode
from mainstay.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.audit.open import Where
    from mainstay.core.audit.chain import Block
    from mainstay.core.base.event import Event


class Record(NamedTuple):
    """One record of a log.

    Attributes:
        number: its place in the log, from 1 on; 0 for a plan that was kept when older records
            were pruned.
        writer: who wrote it: host, process and log.
        body: the event as it was written, canonical JSON.
        block: the block it is in.

    >>> Record(1, "me", b'{"event_type":"call_succeeded"}', 1).event.event_type
    'call_succeeded'
    """

    number: int
    writer: str
    body: bytes
    block: int

    @property
    def event(self) -> Event:
        """The event, of any version."""
        return decode(self.body)


def read_log(where: Where, *, after: int = 0) -> Iterator[Record]:
    """The records of a log, in order; nothing is verified, and nothing is changed.

    Args:
        where: the place of the log.
        after: the number of the block to begin after.

    >>> import tempfile
    >>> from mainstay.audit import AuditLog
    >>> from mainstay.events import CallSucceeded
    >>> where = tempfile.mkdtemp() + "/audit.jsonl"
    >>> log = AuditLog(where)
    >>> log(CallSucceeded(operation="fetch")); log.close()
    >>> [(record.number, record.event.operation) for record in read_log(where)]
    [(1, 'fetch')]
    """
    with closing(open_journal(where, reads_only=True)) as journal:
        anchor = None if after else journal.anchor()
        if anchor is not None:
            for body in anchor.carried:
                yield Record(0, "", body, anchor.block)
        for block in journal.blocks(after):
            yield from records_in(block)


_HINT = "mainstay audit verify names the first record that is not as it was written"


def records_in(block: Block) -> Iterator[Record]:
    """The records of a block."""
    try:
        header = header_of(block)
    except msgspec.MsgspecError:
        raise StoreError("a block of the log cannot be read", hint=_HINT) from None
    for number, body in enumerate(block.records, header.first):
        yield Record(number, header.writer, body, header.block)
