"""The records of runs and data sets in a store: commands as steps, and the entries of open runs.

Each run has an entry in a space of its own, written before its record changes and removed once its
end was carried over to data sets, inbox and files. An entry begins with a text of its writer and is
removed only if it is still the same: one that was written since stays.
"""

from __future__ import annotations

from contextlib import contextmanager
from os import urandom
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mainstay.core.base.change import DROP, KEEP, Change, damage
from mainstay.core.base.spaces import Space
from mainstay.core.pipeline.dataset import DatasetRecord
from mainstay.core.pipeline.dataset import decode as decode_dataset
from mainstay.core.pipeline.dataset import reduce as reduce_dataset
from mainstay.core.pipeline.open_run import read as read_entry
from mainstay.core.pipeline.open_run import written
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
    from mainstay.core.pipeline.open_run import OpenRun
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
        with _naming(f"run {address}"):
            return self.store.transact(RUNS, address, self.deciding(command))

    async def astep(self, address: str, command: Command) -> Answer:
        """The same, awaited."""
        with _naming(f"run {address}"):
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

    def enter(self, address: str, datasets: tuple[str, ...] | None = ()) -> str:
        """Has the end of a run carried over; the text of the entry."""
        return self.store.transact(OPEN_RUNS, address, _writing(datasets))

    async def aenter(self, address: str, datasets: tuple[str, ...] | None = ()) -> str:
        """The same, awaited."""
        return await self.store.atransact(OPEN_RUNS, address, _writing(datasets))

    def hold(self, address: str) -> OpenRun | None:
        """Writes into an entry that its data sets are held; the entry, or None if it is gone."""
        return self.store.transact(OPEN_RUNS, address, _holding)

    def exchange(self, address: str, text: str, entry: OpenRun) -> str:
        """Replaces an entry, if it is still that one; the text that it has then."""
        self.store.transact(OPEN_RUNS, address, _replacing(text, entry.text))
        return entry.text

    def leave(self, address: str, text: str) -> None:
        """Removes an entry, if it is still that one."""
        self.store.transact(OPEN_RUNS, address, _leaving(text))

    def entry_of(self, address: str) -> str | None:
        """The text of the entry of a run; None if it has none."""
        value, _ = self.store.read(OPEN_RUNS, address)
        return None if value is None else _text(value)

    def entries(self) -> Iterator[tuple[str, str]]:
        """The entries: the address of each run, and the text."""
        for address, value in self._scan(OPEN_RUNS):
            yield address, _text(value)

    def _scan(self, space: str) -> Iterator[tuple[str, bytes]]:
        after = ""
        while page := self.store.scan(space, after, _PAGE):
            after = page[-1][0]
            yield from page

    # --- data sets --------------------------------------------------------------------------------

    def dataset(self, name: str, command: DatasetCommand) -> str:
        """Why a command on a data set is refused; "" if it is not."""
        with _naming(f"data set {name}"):
            return self.store.transact(DATASETS, name, _on_dataset(command))

    async def adataset(self, name: str, command: DatasetCommand) -> str:
        """The same, awaited."""
        with _naming(f"data set {name}"):
            return await self.store.atransact(DATASETS, name, _on_dataset(command))

    def known(self, name: str) -> DatasetRecord:
        """What is known of a data set."""
        value, _ = self.store.read(DATASETS, name)
        with _naming(f"data set {name}"):
            return DatasetRecord() if value is None else decode_dataset(value)

    def close(self) -> None:
        """Gives steps in the background a second."""
        self._late.close()


def _decoded(address: str, value: bytes) -> RunRecord:
    with _naming(f"run {address}"):
        return decode(value)


@contextmanager
def _naming(what: str) -> Iterator[None]:
    """Names the run or the data set whose record is damaged."""
    try:
        yield
    except StoredValueError as error:
        if not error.is_damaged:
            raise
        raise damage(f"{what}: {error.message}") from error


def _on_dataset(command: DatasetCommand) -> Decide[str]:
    return lambda value, now: reduce_dataset(value, command, now)


def _writing(datasets: tuple[str, ...] | None) -> Decide[str]:
    token = urandom(8).hex()

    def decide(value: bytes | None, _now: float) -> tuple[Change, str]:
        before = None if value is None else read_entry(_text(value))
        text = written(before, token, datasets).text
        return Change(text.encode()), text

    return decide


def _holding(value: bytes | None, _now: float) -> tuple[Change, OpenRun | None]:
    if value is None:
        return KEEP, None
    entry = replace(read_entry(_text(value)), is_held=True)
    return Change(entry.text.encode()), entry


def _replacing(text: str, other: str) -> Decide[None]:
    return lambda value, _now: (Change(other.encode()) if value == text.encode() else KEEP, None)


def _leaving(text: str) -> Decide[None]:
    return lambda value, _now: (DROP if value == text.encode() else KEEP, None)


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
