"""The records of sagas in a store: commands as steps, and the entries of those that are open.

Each saga that has not ended has an entry in a space of its own, written before its record and
removed after its end, so that recovery reads those alone. An entry holds the owner who wrote it,
and is removed only by that text: one that was written since stays.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mainstay.core.base.change import DROP, KEEP, Change
from mainstay.core.base.spaces import Space
from mainstay.core.saga.record import lease_of, reduce
from mainstay.core.saga.state import decode
from mainstay.drivers.idempotency.late_steps import LateSteps
from mainstay.drivers.idempotency.patience import Patience
from mainstay.drivers.saga.entries import EntryRemoval
from mainstay.ports import many_of, steps_of, takes_hints
from mainstay.runtime.store_clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mainstay.core.base.change import Decide
    from mainstay.core.saga.commands import Answer, Begin, Command
    from mainstay.core.saga.state import SagaRecord
    from mainstay.ports import Store

SPACE, OPEN_SAGAS = Space.SAGAS.value, Space.OPEN_SAGAS.value
PAGE = 100


class SagaRecords:
    """The sagas in one store."""

    def __init__(self, store: Store, *, store_wait: float = 0.0) -> None:
        self.store = store
        self._store_wait = store_wait
        self._takes_hints = takes_hints(store)
        self._reads_first: bool = getattr(store, "locks", True)
        self._look = clock_of(store.url).look
        self._many = many_of(store)
        self._together = steps_of(store, "transact_together") or self._many
        self._new = steps_of(store, "transact_new")
        self._late = LateSteps(store)
        self._removal = EntryRemoval(store)

    # --- steps ------------------------------------------------------------------------------------

    def step(self, address: str, command: Command, kept: Kept | None = None) -> Reply:
        """The reducer's answer, and the record as it was written; `kept` is what it was before."""
        decide = partial(self._decide, command, kept)
        if kept is not None and self._takes_hints:
            return self.store.transact(SPACE, address, decide, kept[0])  # type: ignore[call-arg]
        return self.store.transact(SPACE, address, decide)

    async def astep(self, address: str, command: Command) -> Reply:
        """The same, awaited."""
        return await self.store.atransact(SPACE, address, self.deciding(command))

    def begin(self, address: str, command: Begin) -> Reply:
        """The same for a saga that may be new: its entry comes first."""
        entry = (OPEN_SAGAS, address, _entering(command.owner))
        record = (SPACE, address, self.deciding(command))
        if self._new is not None:
            replies = self._new([entry, record])
            if replies is not None:
                return replies[1]  # type: ignore[no-any-return]
        if self._reads_first and self.store.read(SPACE, address)[0] is not None:
            return self.step(address, command)
        _, reply = self._together([entry, record])
        if isinstance(reply, Exception):
            raise reply
        return reply  # type: ignore[no-any-return]

    async def abegin(self, address: str, command: Begin) -> Reply:
        """The same, awaited."""
        if self._reads_first and (await self.store.aread(SPACE, address))[0] is not None:
            return await self.astep(address, command)
        await self.store.atransact(OPEN_SAGAS, address, _entering(command.owner))
        return await self.astep(address, command)

    def deciding(self, command: Command, kept: Kept | None = None) -> Decide[Reply]:
        """The decision of a step, with the record that it writes.

        A store that is given a hint decides on that very object: it need not be decoded again.
        """
        return partial(self._decide, command, kept)

    def _decide(
        self, command: Command, kept: Kept | None, value: bytes | None, now: float
    ) -> tuple[Change, Reply]:
        known = kept[1] if kept is not None and value is kept[0] else None
        change, answer = reduce(value, command, now, self._look(now), known)
        return change, (answer, None if change is KEEP else change.value)

    def patience(self) -> Patience:
        """How long a step is tried again while the store is unavailable."""
        return Patience(self._store_wait)

    # --- entries ----------------------------------------------------------------------------------

    def enter(self, address: str, owner: str) -> None:
        """Has recovery look at a saga."""
        self.store.transact(OPEN_SAGAS, address, _entering(owner, replaces=True))

    def leave(self, address: str, entry: str) -> None:
        """Removes an entry soon, in the background: nothing waits for it."""
        self._removal.add((OPEN_SAGAS, address, _leaving(entry)))

    def drop(self, address: str, entry: str) -> None:
        """Removes an entry now."""
        self.store.transact(OPEN_SAGAS, address, _leaving(entry))

    def release(self, address: str, command: Command, lease: float) -> None:
        """A step that nothing waits for."""
        self._late.add((SPACE, address, self.deciding(command)), lease)

    def entry_of(self, address: str) -> str:
        """The entry of a saga; one that has none gets one."""
        value, _ = self.store.read(OPEN_SAGAS, address)
        if value is not None:
            return value.decode("utf-8", "replace")
        self.enter(address, "taken over")
        return "taken over"

    def entries(self) -> Iterator[tuple[str, str]]:
        """The entries of sagas that are open: the address and the entry, page by page."""
        after = ""
        while page := self.store.scan(OPEN_SAGAS, after, PAGE):
            after = page[-1][0]
            yield from [(address, value.decode("utf-8", "replace")) for address, value in page]

    # --- looking ----------------------------------------------------------------------------------

    def get(self, address: str) -> tuple[SagaRecord | None, float]:
        """The record and the store's clock."""
        value, now = self.store.read(SPACE, address)
        return (None if value is None else decode(value)), now

    def lease_left(self, record: SagaRecord, now: float) -> float:
        """The seconds that are left of a lease."""
        return lease_of(record, now, self._look(now))[1]

    def close(self) -> None:
        """Removes the entries that wait, and gives other steps in the background a second."""
        self._removal.close()
        self._late.close()


def _entering(owner: str, *, replaces: bool = False) -> Decide[None]:
    def decide(value: bytes | None, _now: float) -> tuple[Change, None]:
        return (KEEP if value is not None and not replaces else Change(owner.encode())), None

    return decide


def _leaving(entry: str) -> Decide[None]:
    def decide(value: bytes | None, _now: float) -> tuple[Change, None]:
        return (DROP if value == entry.encode() else KEEP), None

    return decide


if TYPE_CHECKING:
    Reply = tuple[Answer, bytes | None]
    Kept = tuple[bytes, SagaRecord]
    """The text of a record as it was last written, and the record."""
    Ask = Callable[[], Reply]
