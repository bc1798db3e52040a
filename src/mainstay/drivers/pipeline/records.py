"""The records of runs and data sets in a store: commands as steps, and the entries of open runs.

Each run has an entry in a space of its own, written before its record changes and removed once its
end was carried over to data sets, inbox and files. An entry holds a text of its writer and is
removed only by that text: one that was written since stays.
"""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

from mainstay.core.base.change import DROP, KEEP, Change, damage
from mainstay.core.base.spaces import Space
from mainstay.core.pipeline.dataset import DatasetRecord
from mainstay.core.pipeline.dataset import decode as decode_dataset
from mainstay.core.pipeline.dataset import reduce as reduce_dataset
from mainstay.core.pipeline.record import is_expired, lease_of, reduce
from mainstay.core.pipeline.state import decode
from mainstay.drivers.idempotency.late_steps import LateSteps
from mainstay.drivers.idempotency.patience import Patience
from mainstay.errors import StoredValueError
from mainstay.runtime.store_clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.base.change import Decide
    from mainstay.core.pipeline.commands import Answer, Command
    from mainstay.core.pipeline.dataset import Command as DatasetCommand
    from mainstay.core.pipeline.state import RunRecord
    from mainstay.ports import Store

RUNS, OPEN_RUNS, DATASETS = Space.RUNS.value, Space.OPEN_RUNS.value, Space.DATASETS.value
_PAGE = 100


class RunRecords:
    """The runs and data sets in one store."""

    def __init__(self, store: Store, *, store_wait: float = 0.0) -> None:
        self.store = store
        self._store_wait = store_wait
        self._look = clock_of(store.url).look
        self._late = LateSteps(store)

    # --- runs -------------------------------------------------------------------------------------

    def step(self, address: str, command: Command) -> Answer:
        """The reducer's answer."""
        return self.store.transact(RUNS, address, self.deciding(command))

    async def astep(self, address: str, command: Command) -> Answer:
        """The same, awaited."""
        return await self.store.atransact(RUNS, address, self.deciding(command))

    def deciding(self, command: Command) -> Decide[Answer]:
        """The decision of a step."""
        look = self._look
        return lambda value, now: reduce(value, command, now, look(now))

    def patience(self) -> Patience:
        """How long a step is tried again while the store is unavailable."""
        return Patience(self._store_wait)

    def release(self, address: str, command: Command, lease: float) -> None:
        """A step that nothing waits for."""
        self._late.add((RUNS, address, self.deciding(command)), lease)

    def get(self, address: str) -> tuple[RunRecord | None, float]:
        """The record, and the seconds that are left of its lease."""
        value, now = self.store.read(RUNS, address)
        if value is None:
            return None, 0.0
        record = _decoded(address, value)
        return record, lease_of(record, now, self._look(now))

    def now(self) -> float:
        """The store's clock."""
        return self.store.read(OPEN_RUNS, "now")[1]

    def is_free(self, address: str) -> bool:
        """Whether no run has this address, or one that is not kept any longer."""
        value, now = self.store.read(RUNS, address)
        return value is None or is_expired(_decoded(address, value), now)

    def all(self) -> Iterator[tuple[str, RunRecord | StoredValueError]]:
        """Every run by its address, page by page; or why its record cannot be read."""
        for address, value in self._scan(RUNS):
            try:
                yield address, _decoded(address, value)
            except StoredValueError as error:
                yield address, error

    # --- entries ----------------------------------------------------------------------------------

    def enter(self, address: str) -> str:
        """Has the end of a run carried over; the text of the entry."""
        token = urandom(8).hex()
        self.store.transact(OPEN_RUNS, address, _writing(token))
        return token

    async def aenter(self, address: str) -> str:
        """The same, awaited."""
        token = urandom(8).hex()
        await self.store.atransact(OPEN_RUNS, address, _writing(token))
        return token

    def leave(self, address: str, token: str) -> None:
        """Removes an entry, if it is still that one."""
        self.store.transact(OPEN_RUNS, address, _leaving(token))

    def entry_of(self, address: str) -> str | None:
        """The text of the entry of a run; None if it has none."""
        value, _ = self.store.read(OPEN_RUNS, address)
        return None if value is None else value.decode("utf-8", "replace")

    def entries(self) -> Iterator[tuple[str, str]]:
        """The entries: the address of each run, and the text."""
        for address, value in self._scan(OPEN_RUNS):
            yield address, value.decode("utf-8", "replace")

    def _scan(self, space: str) -> Iterator[tuple[str, bytes]]:
        after = ""
        while page := self.store.scan(space, after, _PAGE):
            after = page[-1][0]
            yield from page

    # --- data sets --------------------------------------------------------------------------------

    def dataset(self, name: str, command: DatasetCommand) -> str:
        """Why a command on a data set is refused; "" if it is not."""
        return self.store.transact(DATASETS, name, _on_dataset(command))

    async def adataset(self, name: str, command: DatasetCommand) -> str:
        """The same, awaited."""
        return await self.store.atransact(DATASETS, name, _on_dataset(command))

    def known(self, name: str) -> DatasetRecord:
        """What is known of a data set."""
        value, _ = self.store.read(DATASETS, name)
        return DatasetRecord() if value is None else decode_dataset(value)

    def close(self) -> None:
        """Gives steps in the background a second."""
        self._late.close()


def _decoded(address: str, value: bytes) -> RunRecord:
    try:
        return decode(value)
    except StoredValueError as error:
        raise damage(f"run {address}: {error.message}") from error


def _on_dataset(command: DatasetCommand) -> Decide[str]:
    return lambda value, now: reduce_dataset(value, command, now)


def _writing(token: str) -> Decide[None]:
    return lambda _value, _now: (Change(token.encode()), None)


def _leaving(token: str) -> Decide[None]:
    return lambda value, _now: (DROP if value == token.encode() else KEEP, None)
