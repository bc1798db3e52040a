"""Publishes to streams of NATS JetStream: the acknowledgement is that of the stream.

The id of the message is its `Nats-Msg-Id`: a stream stores one of an id within its
`duplicate_window` (2 minutes unless configured), and acknowledges the others as duplicates.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec

from mainstay.errors import MissingExtraError, UsageError
from mainstay.publishers.base import BrokerPublisher, options_in
from mainstay.publishers.connections import Link
from mainstay.publishers.content import Template, text_headers
from mainstay.runtime.nats.client import NatsServers
from mainstay.runtime.nats.connection import LostError, NatsConnection, status

try:
    import nats.errors
    import nats.js.errors
except ImportError:
    raise MissingExtraError("nats-py", "nats") from None

if TYPE_CHECKING:
    from mainstay.core.base.types import Seconds
    from mainstay.core.outbox.message import Message

_OPTIONS = {"timeout": float, "subject": str, "stream": str}
_SUBJECT = re.compile(r"[^\s.*>\0]+(\.[^\s.*>\0]+)*")
_HEADER_LINE = len("NATS/1.0\r\n\r\n")


class _Error(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Answer(msgspec.Struct):
    """The acknowledgement of a stream, or its error."""

    error: _Error | None = None
    stream: str = ""
    seq: int = 0
    duplicate: bool = False


_answers = msgspec.json.Decoder(_Answer)


class _Address:
    """The servers, and the seconds for connecting to one."""

    def __init__(self, servers: NatsServers, timeout: float) -> None:
        self.servers = servers
        self.timeout = timeout


class _NatsLink(Link):
    """One connection; it is lost when nats-py reports so."""

    def __init__(self, connection: NatsConnection[_Address]) -> None:
        self.connection = connection

    @property
    def is_lost(self) -> bool:
        """Whether nats-py has lost it, or the publisher has dropped it."""
        return self.is_dropped or self.connection.is_lost

    async def close(self) -> None:
        await self.connection.close()


class NatsPublisher(BrokerPublisher[_NatsLink]):
    """Publishes messages to NATS JetStream, each acknowledged by its stream.

    Streams are not created: a subject that no stream has is an error.

    Args:
        url: `nats://host:4222`, with `user:password@` or `token@` if needed, `tls://` for TLS;
            several hosts with commas between. Options may follow: `?subject=events.{topic}`.
        subject: the subject, with `{topic}`, `{type}`, `{aggregate_type}` or `{aggregate_id}`.
        stream: the stream that must have the subject; None for any.
        timeout: seconds for connecting and acknowledgement; less if a deadline is near.

    Example:
        >>> NatsPublisher("nats://me:secret@127.0.0.1:4222?subject=events.{topic}").url
        'nats://me@127.0.0.1:4222'
    """

    def __init__(
        self,
        url: str,
        *,
        subject: str = "{topic}",
        stream: str | None = None,
        timeout: Seconds = 5.0,
    ) -> None:
        given = {"subject": subject, "stream": stream, "timeout": timeout}
        parts = urlsplit(url)
        options = options_in(parts.query, given, _OPTIONS)
        servers = NatsServers(url)
        user = servers.user and f"{servers.user}@"
        shown = f"{servers.scheme}://{user}{servers.hosts}"
        if servers.scheme not in ("nats", "tls") or not all(map(_is_server, servers.urls)):
            raise UsageError(f"{shown} names no NATS server", hint="nats://127.0.0.1:4222")
        if parts.path.strip("/"):
            raise UsageError(f"{shown} has a path", hint="name a subject with ?subject=name")
        super().__init__(shown, options["timeout"])
        self._subject = Template("subject", options["subject"])
        self._stream: str | None = options["stream"]
        self._address = _Address(servers, self._timeout)

    async def _open(self) -> _NatsLink:
        connection = NatsConnection(self._address)
        try:
            await connection.open()
        except BaseException:
            await connection.close()
            raise
        return _NatsLink(connection)

    async def _send(self, link: _NatsLink, message: Message) -> None:
        subject = self._subject.of(message)
        if not _SUBJECT.fullmatch(subject):
            raise nats.errors.BadSubjectError
        headers = text_headers(message)
        headers["ce-datacontenttype"] = headers["Content-Type"] = message.content_type
        headers["Nats-Msg-Id"] = message.id
        if self._stream is not None:
            headers["Nats-Expected-Stream"] = self._stream
        size = len(message.payload) + _size_of(headers)
        if size > link.connection.client.max_payload:  # nats-py does not count the headers
            raise nats.errors.MaxPayloadError
        try:
            reply = await link.connection.ask(subject, message.payload, headers)
        except LostError as error:
            raise nats.errors.StaleConnectionError from error
        if status(reply) == "503":
            raise nats.js.errors.NoStreamResponseError
        answer = _answers.decode(reply.data)
        if answer.error is not None:
            nats.js.errors.APIError.from_error(msgspec.structs.asdict(answer.error))

    def _late(self, text: str) -> BaseException:
        return nats.errors.TimeoutError(text)


def _is_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False


def _size_of(headers: dict[str, str]) -> int:
    """The bytes of the headers, as the server counts them."""
    lines = sum(len(name) + len(value.encode()) + 4 for name, value in headers.items())
    return _HEADER_LINE + lines
