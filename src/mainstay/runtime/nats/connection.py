"""One connection to a NATS server: requests go out, and each caller waits for its answer.

It is never mended, but replaced. A request on a lost connection fails at once with LostError; its
caller decides whether to repeat it. Only this folder runs nats-py; others know its messages by type
only.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.nats.client import NatsError, connect, end, on_end_of_reading

if TYPE_CHECKING:
    from collections.abc import Iterable

    from nats.aio.msg import Msg

    from mainstay.runtime.nats.client import NatsServers

CLOSE_TIMEOUT = 1.0
"""Seconds for closing a connection in good order."""

steady = SYSTEM.steady
"""Seconds on a clock of this machine that is never set, and goes on while it sleeps."""


class Address(Protocol):
    """Where a connection leads: the servers, and seconds for each of them."""

    @property
    def servers(self) -> NatsServers: ...
    @property
    def timeout(self) -> float: ...


A = TypeVar("A", bound=Address)


def status(message: Msg) -> str | None:
    """The status of a message without content; None for any other."""
    return message.headers.get("Status") if message.headers else None


class LostError(Exception):
    """The connection ended while an answer was awaited."""

    def __str__(self) -> str:
        return "the connection was lost"


CONNECTION_ERRORS = (NatsError, OSError, LostError)
"""The errors of connecting and of requests; a timeout is an OSError."""


class _Awaited:
    """An awaited answer: the wanted number of messages, or fewer and a status."""

    __slots__ = ("future", "messages", "wanted")

    def __init__(self, wanted: int) -> None:
        self.future: asyncio.Future[list[Msg]] = asyncio.get_running_loop().create_future()
        self.messages: list[Msg] = []
        self.wanted = wanted

    async def receive(self, message: Msg) -> None:
        self.messages.append(message)
        is_last = len(self.messages) >= self.wanted or status(message) is not None
        if is_last and not self.future.done():
            self.future.set_result(self.messages)

    def lose(self) -> None:
        if not self.future.done():
            self.future.set_result([])  # an exception that is never retrieved would be logged


class NatsConnection(Generic[A]):
    """One connection; it is never mended, but replaced."""

    def __init__(self, address: A) -> None:
        self.address = address
        self.client = address.servers.client()
        self.is_lost = False
        self.received = 0.0
        self.silent_since = -1.0
        """When the first operation began that got no answer, if nothing was received since."""
        self._inbox = ""
        self._tokens = itertools.count()
        self._awaited: dict[str, _Awaited] = {}

    async def open(self, discovered: Iterable[str] = ()) -> None:
        """Connects to one of the servers, or raises the error of the last one."""
        timeout = self.address.timeout
        await connect(
            self.client,
            self.address.servers,
            timeout,
            discovered,
            closed_cb=self.lose,
            reconnect_time_wait=0.05,
            flush_timeout=timeout,
            ping_interval=timeout,
        )
        on_end_of_reading(self.client, self._end_waits)
        self._inbox = self.client.new_inbox()
        await self.client.subscribe(self._inbox + ".*", cb=self._receive)

    async def _receive(self, message: Msg) -> None:
        self.received = steady()
        awaited = self._awaited.get(message.subject.rpartition(".")[2])
        if awaited is not None:
            await awaited.receive(message)

    async def lose(self) -> None:
        """Ends the wait of every request: no answer will come."""
        self._end_waits()

    def _end_waits(self) -> None:
        self.is_lost = True
        for awaited in list(self._awaited.values()):
            awaited.lose()

    async def ask(
        self, subject: str, payload: bytes = b"", headers: dict[str, str] | None = None
    ) -> Msg:
        """Sends a message and waits for the answer; for ever, or until the connection is lost."""
        token, awaited = str(next(self._tokens)), _Awaited(1)
        self._awaited[token] = awaited
        try:
            return (await self._send(awaited, subject, payload, f"{self._inbox}.{token}", headers))[
                0
            ]
        finally:
            del self._awaited[token]

    async def fetch(self, subject: str, payload: bytes, wanted: int) -> list[Msg]:
        """Requests a number of messages; they arrive at an inbox of their own."""
        inbox, awaited = self.client.new_inbox(), _Awaited(wanted)
        subscription = await self.client.subscribe(inbox, cb=awaited.receive)
        self._awaited[inbox] = awaited
        try:
            return await self._send(awaited, subject, payload, inbox, None)
        finally:
            del self._awaited[inbox]
            if not self.is_lost:
                await subscription.unsubscribe()

    async def _send(
        self,
        awaited: _Awaited,
        subject: str,
        payload: bytes,
        inbox: str,
        headers: dict[str, str] | None,
    ) -> list[Msg]:
        if self.is_lost:
            raise LostError
        try:
            await self.client.publish(subject, payload, inbox, headers)
        except (NatsError, OSError) as error:
            await self.lose()  # nats-py reports it only later, and would be asked again until then
            raise LostError from error
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # nats-py keeps a cancellation to itself
            raise asyncio.CancelledError
        messages = await awaited.future
        if not messages:
            raise LostError
        return messages

    async def close(self) -> None:
        """Closes it in good order, or aborts it if the server does not answer."""
        try:
            await end(self.client, CLOSE_TIMEOUT)
        finally:
            await self.lose()
