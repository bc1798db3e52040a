"""Publishes to streams of Redis and Valkey: the server's reply to XADD is the acknowledgement.

All messages of an event loop go over one connection, one after the other, without waiting between
two: the server answers in the order of the commands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from mainstay.core.base.validate import Checker
from mainstay.errors import MissingExtraError, UsageError
from mainstay.publishers.base import BrokerPublisher, options_in, time_left
from mainstay.publishers.connections import Link
from mainstay.publishers.content import Template, attributes_of

try:
    from redis import exceptions as theirs
    from redis.asyncio import connection as client
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
except ImportError:
    raise MissingExtraError("redis", "redis") from None

if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds
    from mainstay.core.outbox.message import Message

_OPTIONS = {
    "stream": str, "maxlen": int, "create": bool, "replicas": int, "dedupe": float,
    "timeout": float,
}  # fmt: skip
_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_SETTINGS = {
    "socket_keepalive": True, "socket_timeout": None, "socket_connect_timeout": None, "protocol": 2,
}  # fmt: skip
"""One timeout bounds a message as a whole; redis-py would start a task for each of its own."""
_NEWS = """
if redis.call('SET', KEYS[2], '1', 'NX', 'PX', ARGV[1]) then
    return redis.call('XADD', KEYS[1], unpack(ARGV, 2))
end
return 'duplicate'
"""
"""Adds a message unless its id was seen within the window; both or nothing, as one step."""


class _RedisLink(Link):
    """One connection; each command waits for the reply of its number."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._turn = asyncio.Lock()
        self._error: BaseException | None = None
        self._sent = asyncio.Semaphore(0)
        self._reader = asyncio.get_running_loop().create_task(self._read())

    @property
    def is_lost(self) -> bool:
        return self.is_dropped or self._error is not None

    async def ask(self, commands: list[tuple[Any, ...]]) -> list[Any]:
        """The replies to some commands that are sent together; raises the first error."""
        loop = asyncio.get_running_loop()
        replies = [loop.create_future() for _ in commands]
        data = self._connection.pack_commands(commands)
        async with self._turn:
            if self._error is not None:
                raise theirs.ConnectionError("Connection not ready") from self._error
            self._waiting.extend(replies)
            try:
                await self._connection.send_packed_command(data, check_health=False)
            except BaseException as error:  # half a command: what follows would be part of it
                for reply in replies:
                    reply.cancel()
                self._lose(error)
                if isinstance(error, Exception):  # also AttributeError: the reader has closed it
                    raise _lost(error) from error
                raise
            for _ in commands:
                self._sent.release()
        answers = await asyncio.gather(*replies, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def _read(self) -> None:
        """Hands each reply to the command that it belongs to."""
        while True:
            await self._sent.acquire()
            answer: Any
            try:
                answer = await self._connection.read_response()
            except theirs.ResponseError as error:
                answer = error
            except Exception as error:
                self._lose(error)
                return
            reply = self._waiting.popleft()
            if not reply.done():
                if isinstance(answer, BaseException):
                    reply.set_exception(answer)
                else:
                    reply.set_result(answer)

    def _lose(self, error: BaseException) -> None:
        self._error = error
        while self._waiting:
            reply = self._waiting.popleft()
            if not reply.done():
                reply.set_exception(_lost(error))

    async def close(self) -> None:
        self._reader.cancel()
        self._lose(ConnectionError("closed"))
        await asyncio.gather(self._reader, return_exceptions=True)
        await self._connection.disconnect(nowait=True)


def _lost(error: BaseException) -> BaseException:
    if isinstance(error, theirs.RedisError):
        return type(error)(*error.args)
    return theirs.ConnectionError(f"Connection closed by server: {type(error).__name__}")


class RedisStreamsPublisher(BrokerPublisher[_RedisLink]):
    """Adds messages to streams of Redis or Valkey, each acknowledged by the server.

    A server that loses power or fails over may lose what it has acknowledged: `appendfsync always`
    and `replicas` narrow that. A stream without `maxlen` grows until something trims it.

    Args:
        url: `redis://host:6379/0`, `rediss://` for TLS, `valkey://` too. Options may follow:
            `?stream=events:{topic}`.
        stream: the key of the stream, with `{topic}` and others.
        maxlen: about how many entries a stream keeps, read or not; None for all.
        create: whether a stream that does not exist is created; otherwise it is an error.
        replicas: how many replicas must have it too (WAIT), in half of the time.
        dedupe: seconds for which a second message of the same id is acknowledged and not added.
        timeout: seconds for connecting and acknowledgement; less if a deadline is near.

    Example:
        >>> RedisStreamsPublisher("redis://:secret@127.0.0.1:6379/0", maxlen=100_000).url
        'redis://127.0.0.1:6379/0'
    """

    def __init__(
        self,
        url: str,
        *,
        stream: str = "{topic}",
        maxlen: int | None = None,
        create: bool = True,
        replicas: int = 0,
        dedupe: Seconds | None = None,
        timeout: Seconds = 5.0,
    ) -> None:
        parts = urlsplit(url)
        given = {
            "stream": stream, "maxlen": maxlen, "create": create, "replicas": replicas,
            "dedupe": dedupe, "timeout": timeout,
        }  # fmt: skip
        options = options_in(parts.query, given, _OPTIONS)
        user, port = parts.username and f"{parts.username}@", parts.port and f":{parts.port}"
        shown = f"{parts.scheme}://{user or ''}{parts.hostname}{port or ''}{parts.path}"
        if parts.scheme not in _SCHEMES or not parts.hostname:
            raise UsageError(f"{shown} names no Redis server", hint="redis://127.0.0.1:6379/0")
        super().__init__(shown, options["timeout"])
        check = Checker("RedisStreamsPublisher")
        if options["maxlen"] is not None:
            check.count("maxlen", options["maxlen"], 2**62)
        self._replicas = check.count("replicas", options["replicas"], 1000, least=0)
        self._dedupe = check.optional_seconds("dedupe", options["dedupe"])
        check.close()
        self._stream = Template("stream", options["stream"])
        self._how = ([] if options["create"] else ["NOMKSTREAM"]) + (
            [] if options["maxlen"] is None else ["MAXLEN", "~", options["maxlen"]]
        )
        self._address = parts._replace(scheme=_SCHEMES[parts.scheme], query="").geturl()

    async def _open(self) -> _RedisLink:
        settings: dict[str, Any] = dict(client.parse_url(self._address))
        kind = settings.pop("connection_class", client.Connection)
        connection = kind(**settings, **_SETTINGS, retry=Retry(NoBackoff(), 0))
        try:
            await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return _RedisLink(connection)

    async def _send(self, link: _RedisLink, message: Message) -> None:
        stream = self._stream.of(message)
        fields: list[str | bytes | int] = [*self._how, "*"]
        for name, value in attributes_of(message).items():
            fields += [name, value]
        fields += ["datacontenttype", message.content_type, "data", message.payload]
        if self._dedupe is None:
            commands = [("XADD", stream, *fields)]
        else:
            seen, window = f"{stream}:seen:{message.id}", int(self._dedupe * 1000)
            commands = [("EVAL", _NEWS, 2, stream, seen, window, *fields)]
        if self._replicas:
            commands.append(("WAIT", self._replicas, max(1, int(time_left(self._timeout) * 500))))
        added, *waited = await link.ask(commands)
        if added is None:
            raise theirs.ResponseError(f"there is no stream {stream}")
        if waited and waited[0] < self._replicas:
            raise theirs.ResponseError(
                f"NOREPLICAS {waited[0]} of {self._replicas} replicas have it"
            )

    def _late(self, text: str) -> BaseException:
        return theirs.TimeoutError(f"Timeout: {text}")
