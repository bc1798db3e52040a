"""A store whose steps are timed, for sinks that want the steps of the store."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from mainstay.ports import many_of, steps_of, takes_hints, wants_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from mainstay.core.base.change import Decide, Reply
    from mainstay.ports import Step, Store


class TimedStore:
    """A store that reports the seconds of each step. Everything else is the store's own.

    Args:
        store: the store.
        listeners: called with the store's kind, the step's name, its seconds and `failed`.

    >>> from mainstay.stores.memory import MemoryStore
    >>> store = TimedStore(MemoryStore(), [lambda *what, failed: print(*what[:2], failed)])
    >>> store.read("seen", "a")[0]
    memory read False
    """

    def __init__(self, store: Store, listeners: list[Callable[..., object]]) -> None:
        self.store = store
        self.url = store.url
        self.abilities = store.abilities
        self.locks = getattr(store, "locks", True)
        self.takes_hints = takes_hints(store)
        self._kind = store.url.partition(":")[0]
        self._listeners = listeners

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    def transact(self, space: str, key: str, decide: Decide[Reply], *hint: Any) -> Reply:
        """The store's step, timed."""
        with _Timing(self, "transact"):
            return self.store.transact(space, key, decide, *hint)

    def transact_many(self, steps: Sequence[Step]) -> list[Any]:
        """Many steps of the store, timed as one."""
        with _Timing(self, "transact_many"):
            return many_of(self.store)(steps)

    def transact_together(self, steps: Sequence[Step]) -> list[Any]:
        """A few steps of the store that share one commit, timed as one."""
        with _Timing(self, "transact_many"):
            return (steps_of(self.store, "transact_together") or many_of(self.store))(steps)

    def transact_new(self, steps: Sequence[Step]) -> list[Any] | None:
        """Steps on records that are not there, timed as one; None if that cannot be."""
        new = steps_of(self.store, "transact_new")
        if new is None:
            return None
        with _Timing(self, "transact_many"):
            return new(steps)  # type: ignore[no-any-return]

    async def atransact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """The same, awaited."""
        with _Timing(self, "transact"):
            return await self.store.atransact(space, key, decide)

    def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The store's reading, timed."""
        with _Timing(self, "read"):
            return self.store.read(space, key)

    async def aread(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The same, awaited."""
        with _Timing(self, "read"):
            return await self.store.aread(space, key)

    def scan(self, space: str, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """The store's page, timed."""
        with _Timing(self, "scan"):
            return self.store.scan(space, after, limit)

    def purge(self, limit: int = 1000) -> int:
        """The store's cleaning, timed."""
        with _Timing(self, "purge"):
            return self.store.purge(limit)

    def report(self, step: str, seconds: float, failed: bool) -> None:
        """Calls the listeners; one that raises is reported and changes nothing."""
        for listener in self._listeners:
            try:
                listener(self._kind, step, seconds, failed=failed)
            except Exception as error:
                from mainstay.runtime.reports.report_failure import report

                report(error, "a listener raised on a step of the store and was passed over")


class _Timing:
    """One step, in real time even if a test has installed another clock."""

    __slots__ = ("_began", "_step", "_store")

    def __init__(self, store: TimedStore, step: str) -> None:
        self._store = store
        self._step = step

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        seconds = time.perf_counter() - self._began
        self._store.report(self._step, seconds, error is not None)


def timed(store: Store, sinks: tuple[Any, ...]) -> Store:
    """The store, timed if a sink wants the steps of the store."""
    listeners = [each.store_step for each in sinks if wants_of(each).store_steps]
    return TimedStore(store, listeners) if listeners else store
