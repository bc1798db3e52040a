"""One call of `run` or `arun`: asks for the saga until it is to be had, or has ended."""

from __future__ import annotations

from os import urandom
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import MAX_SECONDS, Checker
from mainstay.core.codec.arguments import key_text
from mainstay.core.codec.canonical import fingerprint
from mainstay.core.codec.outcome import encode_value
from mainstay.core.inbox.items import damaged_item
from mainstay.core.saga.commands import Begin, Busy, Claimed, Found, Mismatch
from mainstay.core.saga.context import address_of
from mainstay.drivers.saga.outcome import recorded_result
from mainstay.drivers.saga.session import SagaRun
from mainstay.errors import Conflict, PayloadMismatch
from mainstay.runtime.context import CONTEXT

if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.inbox.items import Item
    from mainstay.core.saga.definition import Saga
    from mainstay.core.saga.state import SagaRecord
    from mainstay.drivers.saga.outcome import SagaResult
    from mainstay.drivers.saga.parts import SagaParts
    from mainstay.drivers.saga.records import Reply

_SHORTEST, _LONGEST = 0.02, 1.0
"""Seconds between two looks at a saga that another process runs."""


class Request:
    """One call of `run` or `arun`, until the saga is to be had or has ended."""

    def __init__(
        self, parts: SagaParts, saga: Saga, given: UserValue, saga_id: object, wait: Seconds
    ) -> None:
        self._patience = _checked(wait)
        parts.register(saga)
        here = CONTEXT.get()
        self.saga_id = urandom(16).hex() if saga_id is None else key_text(saga_id)
        self.address = address_of(saga.name, self.saga_id, here.tenant_id)
        self._parts, self._saga, self._given = parts, saga, given
        self._end = clock.current.monotonic() + self._patience
        self._pause = _SHORTEST
        self._command = Begin(
            urandom(8).hex(),
            saga.name,
            saga.version,
            saga.shape,
            fingerprint(given),
            encode_value(given),
            saga.groups[0],
            saga.lease,
            saga.deadline,
            saga.keep,
            here.tenant_id,
            here.correlation_id,
            here.trace_id,
        )
        self._busy = Busy(0.0)

    def ask(self) -> Reply:
        """Asks for the saga."""
        return self._parts.records.begin(self.address, self._command)

    async def aask(self) -> Reply:
        """The same, awaited."""
        return await self._parts.records.abegin(self.address, self._command)

    def run_of(self, reply: Reply, sent: float) -> SagaRun | SagaResult | SagaRecord | None:
        """The run, if the saga is ours; what it came to; or its record, if it is to be taken over.

        None to wait for the process that runs it.
        """
        answer, kept = reply
        place = (self.saga_id, self.address)
        if isinstance(answer, Claimed):
            return SagaRun(
                self._parts, self._saga, place, answer, kept, sent=sent, given=self._given
            )
        if isinstance(answer, Mismatch):
            raise PayloadMismatch(self._saga.name, self.saga_id)
        if isinstance(answer, Busy):
            self._busy = answer
            return None
        assert isinstance(answer, Found)
        if answer.record.state.value not in ("running", "compensating"):
            self._parts.records.leave(self.address, self._command.owner)
            return recorded_result(answer.record, *place)
        return answer.record

    def pause(self) -> float:
        """Seconds until the next look; raises Conflict if it takes too long."""
        left = self._end - clock.current.monotonic()
        if left <= 0.0:
            raise Conflict(self._saga.name, self.saga_id, self._busy.retry_after)
        pause, self._pause = self._pause, min(self._pause * 1.5, _LONGEST)
        return min(pause, left, max(self._busy.retry_after, _SHORTEST))

    def damaged(self) -> Item:
        """The item, if the record cannot be read."""
        return damaged_item(self._saga.name, self.saga_id, self.address)


def _checked(wait: Seconds) -> float:
    if type(wait) is float and 0.0 <= wait <= MAX_SECONDS:
        return wait
    check = Checker("run")
    seconds = check.seconds("wait", wait)
    check.close()
    return seconds
