"""Events in a stream of NATS JetStream, each acknowledged by the server, in their order.

A batch goes out over one connection without waiting between two messages; the server takes them in
their order, so what a lost connection did not deliver is the end of the batch. The whole batch is
then sent again over a new one: a message the server has is known by its Nats-Msg-Id and not stored
twice. A connection is never mended: messages that it still held would come too early.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import OrderedDict
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.events.encode import encode
from mainstay.errors import UsageError
from mainstay.runtime.fork import PROCESS, leave_to_parent, make_lock
from mainstay.runtime.nats.client import Client, NatsServers, RealTimeLoop, connect, end
from mainstay.runtime.reports.known_secrets import know_url
from mainstay.sinks.delivery.base import BufferedSink

if TYPE_CHECKING:
    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds

_WINDOW = 3600.0
"""Seconds for which a server detects duplicates, in a stream that is created here."""
_IDLE = 30.0
"""Seconds after which an unused connection is not trusted: its pings were not answered."""
_REMEMBERED = 20_000
_AT_ONCE = 500
"""Messages on their way; a server's queue holds 10,000 for all its clients."""


class NatsSink(BufferedSink):
    """Publishes events to a JetStream stream, as `mainstay.events.decode` reads them again.

    Args:
        url: `nats://host:4222`, with `user:password@` or `token@` if needed, `tls://` for TLS;
            several hosts with commas between.
        stream: the stream; it is created if it does not exist.
        subject: what the events are published under.
        successes: whether calls that succeed at the first attempt are published too.
        spill: the folder for what cannot be delivered for now; False for none.
        timeout: seconds for connecting, for a batch, for `flush` and for a strict sink.
        strict: a call fails with SinkError if its event was not acknowledged in time.

    Example:
        >>> sink = NatsSink("nats://127.0.0.1:4222", stream="RETRIES", spill=False)
        >>> sink.name
        'nats 127.0.0.1:4222 RETRIES mainstay.events'
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str = "MAINSTAY",
        subject: str = "mainstay.events",
        successes: bool = False,
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: Seconds = 5.0,
        strict: bool = False,
    ) -> None:
        check = Checker("NatsSink")
        self.stream = check.name("stream", stream)
        self.subject = check.name("subject", subject)
        self._timeout = check.duration("timeout", timeout, 0.05, 3600.0)
        check.close()
        know_url(url)
        self._servers = _servers_of(url)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: Client | None = None
        self._pid = PROCESS.pid
        self._turn = make_lock()
        """Held by the thread that uses the connection: a delivery, or `close`."""
        self._used = 0.0
        self._known: OrderedDict[str, int] = OrderedDict()
        """How often a message was delivered, by its hash: two events may be alike."""
        name = f"nats {self._servers.hosts} {stream} {subject}"
        super().__init__(name, successes=successes, spill=spill, timeout=timeout, strict=strict)

    def close(self) -> None:
        """Flushes, and ends the connection; a later event opens another."""
        super().close()
        if self._pid == PROCESS.pid:
            with self._turn:
                self._drop()

    # --- in the buffer's thread ------------------------------------------------------------------

    def _deliver(self, events: list[Event]) -> None:
        messages = self._named([encode(event) for event in events])
        if self._pid != PROCESS.pid:  # a forked child's connection is its own
            leave_to_parent((self._loop, self._client))
            self._loop = self._client = None
            self._pid = PROCESS.pid
        with self._turn:
            self._send(messages)
        for name, _ in messages:
            self._remember(name.partition("-")[0])

    def _send(self, messages: list[tuple[str, bytes]]) -> None:
        if time.monotonic() - self._used > _IDLE:
            self._drop()
        if self._loop is None:
            self._loop = RealTimeLoop()
        try:
            self._loop.run_until_complete(self._publish(messages))
        except BaseException as error:
            self._drop()
            if isinstance(error, TimeoutError) and not str(error):
                raise TimeoutError(f"no answer within {self._timeout:g} s") from error
            raise
        self._used = time.monotonic()

    def _named(self, records: list[bytes]) -> list[tuple[str, bytes]]:
        """Each record with its Nats-Msg-Id: its hash, and how many such there were before."""
        here: dict[str, int] = {}
        named = []
        for record in records:
            digest = hashlib.sha256(record).hexdigest()[:32]
            times = here.get(digest, self._known.get(digest, 0))
            here[digest] = times + 1
            named.append((f"{digest}-{times}" if times else digest, record))
        return named

    def _remember(self, digest: str) -> None:
        self._known[digest] = self._known.pop(digest, 0) + 1
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def _drop(self) -> None:
        """Ends the connection and its loop."""
        loop, client = self._loop, self._client
        self._loop = self._client = None
        if loop is None:
            return
        try:
            loop.run_until_complete(_ended(client))
        finally:
            loop.close()

    async def _publish(self, messages: list[tuple[str, bytes]]) -> None:
        async with asyncio.timeout(self._timeout):
            client = await self._connected()
            stream = client.jetstream(publish_async_max_pending=_AT_ONCE)
            answers = [
                await stream.publish_async(
                    self.subject, data, stream=self.stream, headers={"Nats-Msg-Id": name}
                )
                for name, data in messages
            ]
            await asyncio.gather(*answers)

    async def _connected(self) -> Client:
        if self._client is not None and self._client.is_connected:
            return self._client
        await _ended(self._client)
        client = self._client = self._servers.client()
        await connect(client, self._servers, self._timeout)
        await self._prepare(client)
        return client

    async def _prepare(self, client: Client) -> None:
        """Creates the stream if it does not exist."""
        from nats.js.api import StreamConfig
        from nats.js.errors import NotFoundError

        streams = client.jetstream(timeout=self._timeout)
        try:
            await streams.stream_info(self.stream)
        except NotFoundError:
            config = StreamConfig(
                name=self.stream, subjects=[self.subject], duplicate_window=_WINDOW
            )
            await streams.add_stream(config)


def _servers_of(url: str) -> NatsServers:
    servers = NatsServers(url)
    if servers.scheme not in ("nats", "tls") or not servers.hosts:
        raise UsageError(
            f"{servers.scheme}://{servers.hosts} is no NATS server", hint="nats://127.0.0.1:4222"
        )
    return servers


async def _ended(client: Client | None) -> None:
    """Ends a connection, and whatever of it is still under way."""
    if client is not None:
        await end(client, 1.0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if client is not None:
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
