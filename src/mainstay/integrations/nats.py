"""A NATS client whose operations are repeated by a runner: one bounded attempt at a time.

A runner takes the kind of an operation ("publish", "kv_get"), its name for events, the attempt, and
what the caller gave for this call; it calls the attempt as often as its policy allows. The client
of nats-py repeats nothing; it connects again by itself after it was connected once. Every reply is
waited for `timeout` seconds at most.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

from mainstay.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from typing import Self, TypeVar

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription
    from nats.js import JetStreamContext
    from nats.js.kv import KeyValue

    from mainstay.core.base.types import UserValue

    T = TypeVar("T")


class Runner(Protocol):
    """Runs an operation: calls the attempt, and again if its policy allows."""

    async def __call__(
        self,
        kind: str,
        operation: str,
        attempt: Callable[[], Awaitable[T]],
        call: Mapping[str, UserValue],
        /,
    ) -> T:
        """Returns what the attempt returned, or raises."""


class Operations:
    """Operations of NATS, JetStream and its key-value buckets, each through a runner.

    Args:
        run: the runner.
        timeout: seconds for one reply of a server or service.

    Example:
        >>> async def once(kind, operation, attempt, call):
        ...     return await attempt()
        >>> Operations(once, timeout=2.0).client is None
        True
    """

    def __init__(self, run: Runner, timeout: float = 5.0) -> None:
        self._run = run
        self.timeout = timeout
        self.client: Client | None = None
        """The client of nats-py, once it is connected."""
        self._open: Callable[[], Awaitable[Client]] | None = None
        self._buckets: dict[str, KeyValue] = {}

    async def connect(
        self,
        servers: str | Sequence[str] = "nats://localhost:4222",
        *,
        nats_options: Mapping[str, Any] | None = None,
        **call: UserValue,
    ) -> Self:
        """Connects: each attempt makes one connection.

        Args:
            servers: a URL, or several of one cluster.
            nats_options: options of `nats.connect`, such as `user_credentials`.
            call: what the runner takes for a call.
        """
        await self.close()
        urls = [servers] if isinstance(servers, str) else list(servers)
        self._open = lambda: _connected(urls, self.timeout, dict(nats_options or {}))
        await self._run("connect", "Connect to NATS", self._client, call)
        return self

    async def publish(
        self,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        acknowledged: bool = True,
        **call: UserValue,
    ) -> int | None:
        """Publishes a message; returns its sequence in the stream.

        Every attempt sends the same `Nats-Msg-Id`, so that the stream holds the message once.

        Args:
            subject: where to.
            payload: the message.
            headers: more headers.
            acknowledged: False for a subject that no stream holds; the server has then received
                it, and None is returned.
            call: what the runner takes for a call.
        """
        sent = _with_id(headers, call)

        async def attempt() -> int | None:
            if acknowledged:
                stream = await self._stream()
                return (await stream.publish(subject, payload, self.timeout, headers=sent)).seq
            client = await self._client()
            await client.publish(subject, payload, headers=sent)
            await _received(client, self.timeout)
            return None

        return await self._run("publish", f"Publish to {subject}", attempt, call)

    async def subscribe(
        self,
        subject: str,
        cb: Callable[[Msg], Awaitable[None]] | None = None,
        *,
        queue: str = "",
        **call: UserValue,
    ) -> Subscription:
        """Subscribes; when it returns, the server has the subscription."""

        async def attempt() -> Subscription:
            client = await self._client()
            made = await client.subscribe(subject, queue=queue, cb=cb)
            try:
                await _received(client, self.timeout)
            except BaseException:
                await made.unsubscribe()
                raise
            return made

        return await self._run("subscribe", f"Subscribe to {subject}", attempt, call)

    async def create_stream(
        self, name: str, subjects: Sequence[str], *, settings: Mapping[str, Any] | None = None,
        **call: UserValue,
    ) -> None:  # fmt: skip
        """Creates a stream; one with the same settings may be there."""

        async def attempt() -> None:
            stream = await self._stream()
            await stream.add_stream(name=name, subjects=list(subjects), **(settings or {}))

        await self._run("create_stream", f"Create stream {name}", attempt, call)

    async def kv_create(
        self, bucket: str, *, settings: Mapping[str, Any] | None = None,
        **call: UserValue,
    ) -> None:  # fmt: skip
        """Creates a bucket; one with the same settings may be there."""

        async def attempt() -> None:
            stream = await self._stream()
            await stream.create_key_value(bucket=bucket, **(settings or {}))

        await self._run("kv_create", f"Create bucket {bucket}", attempt, call)

    async def kv_get(self, bucket: str, key: str, **call: UserValue) -> bytes | None:
        """The value of a key; None if there is none."""

        async def attempt() -> bytes | None:
            from nats.js.errors import KeyNotFoundError

            try:
                return (await (await self._bucket(bucket)).get(key)).value
            except KeyNotFoundError:
                return None

        return await self._run("kv_get", f"Get {bucket}/{key}", attempt, call)

    async def kv_put(self, bucket: str, key: str, value: bytes, **call: UserValue) -> int:
        """Sets the value of a key; returns its revision."""

        async def attempt() -> int:
            return await (await self._bucket(bucket)).put(key, value)

        return await self._run("kv_put", f"Put {bucket}/{key}", attempt, call)

    async def kv_delete(self, bucket: str, key: str, **call: UserValue) -> None:
        """Deletes a key."""

        async def attempt() -> None:
            await (await self._bucket(bucket)).delete(key)

        await self._run("kv_delete", f"Delete {bucket}/{key}", attempt, call)

    async def kv_watch(
        self, bucket: str, keys: str = ">", **call: UserValue
    ) -> KeyValue.KeyWatcher:
        """Watches keys: what there is, then what changes."""

        async def attempt() -> KeyValue.KeyWatcher:
            return await (await self._bucket(bucket)).watch(keys)

        return await self._run("kv_get", f"Watch {bucket}/{keys}", attempt, call)

    async def request(
        self,
        kind: str,
        subject: str,
        payload: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        **call: UserValue,
    ) -> bytes:
        """Asks a service and returns its reply; `kind` is what the runner knows the request by.

        Every attempt sends the same `Nats-Msg-Id`, by which the service can recognise a repetition.
        """
        sent = _with_id(headers, call)

        async def attempt() -> bytes:
            client = await self._client()
            return (await client.request(subject, payload, self.timeout, headers=sent)).data

        return await self._run(kind, f"Request {subject}", attempt, call)

    async def close(self) -> None:
        """Closes the connection."""
        client, self.client, self._open = self.client, None, None
        self._buckets.clear()
        if client is not None:
            from mainstay.runtime.nats.client import end  # an extra

            await end(client, self.timeout)

    async def _client(self) -> Client:
        """The client; one that has given up reconnecting is replaced."""
        if self.client is None or self.client.is_closed:
            if self._open is None:
                raise UsageError("the client is not connected", hint="await client.connect(URL)")
            self._buckets.clear()
            self.client = await self._open()
        return self.client

    async def _stream(self) -> JetStreamContext:
        return (await self._client()).jetstream(timeout=self.timeout)

    async def _bucket(self, name: str) -> KeyValue:
        if name not in self._buckets:
            self._buckets[name] = await (await self._stream()).key_value(name)
        return self._buckets[name]


async def _connected(urls: list[str], seconds: float, options: dict[str, Any]) -> Client:
    """One connection, or the error; from then on the client connects again by itself."""
    from mainstay.runtime.nats.client import Client, end  # an extra

    client, left, is_first = Client(), len(urls), True
    again, after = options.pop("allow_reconnect", True), options.pop("error_cb", None)

    async def note(error: Exception) -> None:
        """Ends it after each server was tried once: nats-py would go on by itself."""
        nonlocal left
        left -= 1
        if is_first and left <= 0:
            raise error
        if after is not None:
            await after(error)

    own = {"connect_timeout": seconds, "max_reconnect_attempts": -1, **options}
    try:
        await client.connect(urls, error_cb=note, allow_reconnect=False, **own)
    except BaseException:
        await end(client, seconds)
        raise
    is_first = False
    client.options["allow_reconnect"] = again
    return client


async def _received(client: Client, seconds: float) -> None:
    """Waits until the server has what was sent before.

    `flush` of nats-py writes its PING before what waits to be written, so the first answer shows
    that this was written, and only the second one that the server has it.
    """
    for _ in range(2):
        await client.flush(seconds)  # type: ignore[arg-type]  # any number of seconds


def _with_id(headers: Mapping[str, str] | None, call: Mapping[str, UserValue]) -> dict[str, str]:
    """The headers with an id that all attempts of a call share."""
    return {"Nats-Msg-Id": call.get("idempotency_key") or uuid4().hex, **(headers or {})}
