"""An audit log in PostgreSQL: one row for each block, written under an advisory lock.

The tables come with the store's other ones (`sql/0002_audit.sql`). The steps are the
store's own kind, and go over its connections.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.core.audit.chain import encode_head, header_of, tail_of
from mainstay.errors import StoreError
from mainstay.stores.journal_rows import (
    MOST_PRUNED,
    anchor_after,
    anchor_of,
    block_of,
    body_of,
    heads_of,
    is_older,
    page_after,
    tail_of_row,
)
from mainstay.stores.postgres import audit_schema
from mainstay.stores.postgres.statements import RoundTrip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from mainstay.core.audit.chain import Anchor, Block, Entry, Head, Tail
    from mainstay.stores.postgres.statements import Rows, StepDriver, Steps

_LOCK = (  # of these types exactly, or a function of another user that has them would be called
    "SELECT pg_advisory_xact_lock(hashtextextended("
    "current_schema()::text || '.mainstay_audit'::text, 0::bigint))"
)
_TAIL = "SELECT header, links FROM mainstay_audit_blocks ORDER BY block DESC LIMIT 1"
_INSERT = (
    "INSERT INTO mainstay_audit_blocks (block, header, links, body) VALUES"
    " (%(block)s::bigint, %(header)s::bytea, %(links)s::bytea, %(body)s::bytea)"
)
_HEAD = "INSERT INTO mainstay_audit_heads (block, head) VALUES (%(block)s::bigint, %(head)s::bytea)"
_BLOCKS = (
    "SELECT header, links, body, block FROM mainstay_audit_blocks"
    " WHERE block > %(after)s::bigint ORDER BY block LIMIT %(most)s::bigint"
)
_HEADS = "SELECT head FROM mainstay_audit_heads ORDER BY block"
_ANCHOR = "SELECT log, block, number, link, carried FROM mainstay_audit_anchor"
_SET_ANCHOR = (
    "INSERT INTO mainstay_audit_anchor (log, block, number, link, carried) VALUES (%(log)s::text,"
    " %(block)s::bigint, %(number)s::bigint, %(link)s::bytea, %(carried)s::bytea)"
)
_OLD = "SELECT block, header FROM mainstay_audit_blocks ORDER BY block LIMIT %(most)s::bigint"
_DROP_BLOCKS = "DELETE FROM mainstay_audit_blocks WHERE block <= %(upto)s::bigint"
_DROP_HEADS = "DELETE FROM mainstay_audit_heads WHERE block <= %(upto)s::bigint"


class PostgresJournal:
    """The audit log of a PostgreSQL database.

    Args:
        store: the store whose connections it uses.
        closes: whether the store is this log's own, and ends with it.
    """

    def __init__(self, store: StepDriver, *, closes: bool = False) -> None:
        self.url = store.url
        self._store = store
        self._closes = closes

    def tail(self) -> Tail:
        """Where the log ends."""
        return self._store.drive("read", _tail)

    def append(self, make: Callable[[Tail, Sequence[bytes]], Entry]) -> Tail:
        """Seals and keeps what comes next, as one step; where the log ends then."""
        return self._store.drive("append", lambda: _append(make))

    def blocks(self, after: int = 0) -> Iterator[Block]:
        """The blocks after a number, in order."""
        most = 1
        while rows := self._rows(_BLOCKS, {"after": after, "most": most}):
            after, most = rows[-1][3], page_after(rows)
            yield from map(block_of, rows)

    def heads(self) -> list[Head]:
        """The heads that are kept in the log."""
        return heads_of(self._rows(_HEADS, {}))

    def anchor(self) -> Anchor | None:
        """Where the log begins, if older blocks were dropped."""
        return self._store.drive("read", _anchor)

    def schema_flaws(self) -> list[str]:
        """What of the tables and the view is not as it was made."""
        flaws = self._store.drive("read", audit_schema.schema_flaws)
        if flaws != [audit_schema.OTHER_VIEW]:
            return flaws
        with suppress(StoreError):  # a user who may not make a view has nothing to compare with
            if self._store.drive("read", audit_schema.is_as_made):
                return []
        return flaws

    def prune(self, before: str, make: Callable[[Tail, Anchor], Entry]) -> int:
        """Drops blocks written before a time, but never the last; how many records.

        It drops a bounded number, so that other writers wait briefly; call it again for more.
        """
        return self._store.drive("prune", lambda: _prune(before, make))

    def close(self) -> None:
        """Closes the store, if it is this log's own."""
        if self._closes:
            self._store.close()

    def _rows(self, text: str, values: dict[str, object]) -> Rows:
        def step() -> Steps[Rows]:
            return (yield RoundTrip(text, values))

        return self._store.drive("read", step)


def _append(make: Callable[[Tail, Sequence[bytes]], Entry]) -> Steps[Tail]:
    yield RoundTrip("BEGIN")
    yield RoundTrip(_LOCK)
    tail = yield from _tail()
    tail = yield from _put(tail, make(tail, ()))
    yield RoundTrip("COMMIT")
    return tail


def _put(tail: Tail, entry: Entry) -> Steps[Tail]:
    block, head = entry
    if block is not None:
        yield RoundTrip(
            _INSERT,
            {
                "block": header_of(block).block,
                "header": block.header,
                "links": block.links,
                "body": body_of(block.records),
            },
        )
        tail = tail_of(block)
    if head is not None:
        yield RoundTrip(_HEAD, {"block": head.block, "head": encode_head(head)})
    return tail


def _tail() -> Steps[Tail]:
    rows = yield RoundTrip(_TAIL)
    if rows:
        return tail_of_row(rows[0], None)
    anchor = yield from _anchor()
    return tail_of_row(None, anchor)


def _anchor() -> Steps[Anchor | None]:
    rows = yield RoundTrip(_ANCHOR)
    return anchor_of(rows[0] if rows else None)


def _prune(before: str, make: Callable[[Tail, Anchor], Entry]) -> Steps[int]:
    yield RoundTrip("BEGIN")
    yield RoundTrip(_LOCK)
    tail = yield from _tail()
    old = yield from _anchor()
    upto = 0
    for block, header in (yield RoundTrip(_OLD, {"most": MOST_PRUNED})):
        if block >= tail.block or not is_older(header, before):
            break
        upto = block
    if not upto:
        yield RoundTrip("ROLLBACK")
        return 0
    rows = yield RoundTrip(_BLOCKS, {"after": 0, "most": MOST_PRUNED})
    anchor = anchor_after(old, (block_of(row) for row in rows if row[3] <= upto))
    yield from _put(tail, make(tail, anchor))
    yield RoundTrip(_DROP_BLOCKS, {"upto": upto})
    yield RoundTrip(_DROP_HEADS, {"upto": upto})
    yield RoundTrip("DELETE FROM mainstay_audit_anchor")
    kept = {**anchor._asdict(), "carried": body_of(anchor.carried)}
    yield RoundTrip(_SET_ANCHOR, kept)
    yield RoundTrip("COMMIT")
    return anchor.number - (old.number if old is not None else 0)
