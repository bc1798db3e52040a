"""Runs sagas that this process has, and takes over those whose processes are gone."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.saga.commands import Claimed, Take
from mainstay.core.saga.context import parts_of
from mainstay.drivers.saga import aio, sync
from mainstay.drivers.saga.session import SagaRun, input_of
from mainstay.errors import UsageError

if TYPE_CHECKING:
    from mainstay.core.saga.commands import Answer
    from mainstay.core.saga.definition import Saga
    from mainstay.core.saga.flow import End
    from mainstay.core.saga.state import SagaRecord
    from mainstay.drivers.saga.parts import SagaParts
    from mainstay.drivers.saga.records import Reply


class Runner:
    """The sagas of an engine, as one run of them needs it."""

    def __init__(self, parts: SagaParts) -> None:
        self._parts = parts

    def completed(self, run: SagaRun) -> End:
        """Runs a saga that this process has to its end."""
        with run:
            end = sync.drive(run)
        return self._left(run, end)

    async def acompleted(self, run: SagaRun) -> End:
        """The same, awaited."""
        with run:
            end = await aio.drive(run)
        return self._left(run, end)

    def _left(self, run: SagaRun, end: End) -> End:
        """Removes the entry, unless another process has the saga now."""
        if end.state is not None:
            self._parts.records.leave(run.address, run.entry)
        return end

    def take(self, address: str, record: SagaRecord, entry: str = "") -> SagaRun | Answer:
        """Takes a saga over whose process is gone; the answer, if it is not to be had."""
        saga, command = self._taking(record)
        sent = clock.steady()
        return self._taken(saga, address, self._parts.records.step(address, command), sent, entry)

    async def atake(self, address: str, record: SagaRecord, entry: str = "") -> SagaRun | Answer:
        """The same, awaited."""
        saga, command = self._taking(record)
        sent = clock.steady()
        reply = await self._parts.records.astep(address, command)
        return self._taken(saga, address, reply, sent, entry)

    def _taking(self, record: SagaRecord) -> tuple[Saga, Take]:
        saga = self._parts.definitions.get((record.saga, record.version))
        if saga is None:
            raise UsageError(
                f"version {record.version} of the saga {record.saga} is not known here",
                hint="engine.sagas.register(...) the definition with which it was begun",
            )
        input_of(record)  # if it cannot be rebuilt here, the saga is left to a process that can
        return saga, Take(urandom(8).hex(), saga.shape, saga.lease)

    def _taken(
        self, saga: Saga, address: str, reply: Reply, sent: float, entry: str
    ) -> SagaRun | Answer:
        answer, kept = reply
        if not isinstance(answer, Claimed):
            return answer
        place = (parts_of(address)[1], address)
        found = entry or self._parts.records.entry_of(address)
        return SagaRun(self._parts, saga, place, answer, kept, sent=sent, entry=found)
