"""What steps of sagas emit: the outbox gets it in the transaction of the saga's record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Protocol

    from mainstay.core.base.change import Decide, Reply
    from mainstay.core.base.types import UserValue
    from mainstay.engine.outbox import Outbox
    from mainstay.ports import Statement, Store

    class _TransactAlso(Protocol):
        def __call__(
            self, space: str, key: str, decide: Decide[Reply], also: Sequence[Statement]
        ) -> Reply: ...


class SagaMessages:
    """The outbox of an engine, as its sagas use it; nothing is opened before a step emits.

    Args:
        store: that of the sagas.
        outbox: the outbox of the engine.
    """

    def __init__(self, store: Store, outbox: Callable[[], Outbox]) -> None:
        self._store = store
        self._outbox = outbox
        self._dialect = ""
        self._also: _TransactAlso | None = None

    def make(self, topic: str, payload: UserValue, fields: dict[str, Any]) -> tuple[UserValue, str]:
        """A message as it is inserted, and its id; raises if it cannot be, with the reason."""
        from mainstay.stores.outbox.insert import adding
        from mainstay.stores.outbox.new_row import new_row

        if "id" in fields:
            raise UsageError(
                f"emit({topic!r}): id is made anew, because a second message of one id is refused",
                hint="use dedupe_key: of messages with the same key only the first is kept",
            )
        self._prepare()
        row = new_row(topic, payload, fields)  # type: ignore[arg-type]
        return adding(self._dialect, row), row.id

    def transact(
        self, space: str, key: str, decide: Decide[Reply], messages: Sequence[UserValue]
    ) -> Reply:
        """A step of the store, and the messages if it changes the record: one transaction."""
        assert self._also is not None
        return self._also(space, key, decide, messages)

    def _prepare(self) -> None:
        """Opens the outbox, whose tables are created if they are missing."""
        if self._also is not None:
            return
        also = getattr(self._store, "transact_also", None)
        if also is None:
            raise UsageError(
                f"{self._store.url} keeps the sagas, and an outbox cannot be in it: a message"
                " would not be in the transaction of the saga's state",
                hint="use a store on SQLite or PostgreSQL, and the outbox of the same database",
            )
        outbox = self._outbox()
        if not outbox.is_in(self._store):
            raise UsageError(
                f"the outbox is in another database than the sagas, which are in {self._store.url}:"
                " a message would not be in the transaction of the saga's state",
                hint="leave out Engine(outbox=…), or make it the database of the store",
            )
        self._dialect, self._also = outbox.dialect, also
