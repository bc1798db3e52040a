"""Publishes by HTTP: one POST for each message, as CloudEvents in binary mode, signed.

An answer of 2xx is the acknowledgement. Any other is raised as `urllib.error.HTTPError`, whose
status and Retry-After decide what becomes of the message. Redirects are not followed.
"""

from __future__ import annotations

import asyncio
from collections import deque
from email.message import Message as Headers
from http.client import HTTPException
from io import BytesIO
from selectors import EVENT_READ, DefaultSelector
from typing import TYPE_CHECKING
from urllib.error import HTTPError
from urllib.parse import quote, urldefrag
from weakref import finalize

import mainstay.runtime.clock as clock
from mainstay.core.base.validate import Checker
from mainstay.integrations.webhooks.post import (
    authorization_of,
    connection_to,
    in_time,
    parts_of,
    target_of,
)
from mainstay.integrations.webhooks.signature import ID, SHORTEST, SIGNED, TIME, signature_of
from mainstay.integrations.webhooks.targets import ALLOWS, is_local_literal
from mainstay.publishers.base import digest_of, options_in, time_left
from mainstay.publishers.content import Template, text_headers
from mainstay.publishers.threads import WorkerThreads
from mainstay.runtime.fork import leave_to_parent, reset_in_child

if TYPE_CHECKING:
    from http.client import HTTPResponse
    from socket import socket

    from mainstay.core.base.types import Seconds
    from mainstay.core.outbox.message import Message
    from mainstay.integrations.webhooks.targets import CheckedConnection

_OPTIONS = {"secret": str, "allow_local": bool, "timeout": float, "threads": int}
_READ = 65_536
"""Bytes of an answer that are read, so that its connection can be used again."""


class HttpPublisher:
    """Posts each message to a URL; an answer of 2xx is the acknowledgement.

    The headers are those of CloudEvents (`ce-id`, `ce-type`, …), `Idempotency-Key` with the id of
    the message, and, with a secret, those of Standard Webhooks, which `is_genuine` checks.

    A target on this machine or on its link (loopback, 169.254.169.254, …) needs `allow_local`: it
    is refused here if the URL shows it, and at the connection if a name leads there.

    Args:
        url: where to, http or https; `{topic}` and others may stand in its path. Options may
            follow as a fragment, which is not sent: `#timeout=5`.
        secret: what both sides know, of at least 16 characters; None not to sign.
        allow_local: whether a target on this machine or on its link is allowed.
        threads: requests that are under way at once.
        timeout: seconds for one message; less if a deadline is near.

    Attributes:
        url: the host, and a short hash of the rest, which may be a secret.

    Example:
        >>> HttpPublisher("https://example.org/hooks/1", secret="0123456789abcdef").url
        'https://example.org/#d581b948'
    """

    def __init__(
        self,
        url: str,
        *,
        secret: str | None = None,
        allow_local: bool = False,
        threads: int = 16,
        timeout: Seconds = 10.0,
    ) -> None:
        address, fragment = urldefrag(url)
        given = {"secret": secret, "allow_local": allow_local, "threads": threads}
        options = options_in(fragment, {**given, "timeout": timeout}, _OPTIONS)
        check, parts = Checker("HttpPublisher"), parts_of(address)
        if parts is None:
            check.note("url", "…", "a URL with http or https and a host, escaped where it must be")
        elif not options["allow_local"] and is_local_literal(parts.hostname or ""):
            check.note("url", parts.hostname, f"a target outside this machine, unless {ALLOWS}")
        key = options["secret"]
        if key is not None and (not isinstance(key, str) or len(key) < SHORTEST):
            check.note("secret", "…", f"a text of at least {SHORTEST} characters")
        self._timeout = check.duration("timeout", options["timeout"], 0.01, 3600.0)
        self._workers = WorkerThreads(check.count("threads", options["threads"], 1000))
        check.close()
        assert parts is not None
        self._parts, self._secret = parts, (key or "").encode()
        self._allow_local = bool(options["allow_local"])
        self._target = Template("url", target_of(parts), encode=_escaped)
        port = "" if parts.port is None else f":{parts.port}"
        path = target_of(parts)
        digest = "" if path == "/" else f"#{digest_of(address)}"
        self.url = f"{parts.scheme}://{parts.hostname}{port}/{digest}"
        self._idle: deque[CheckedConnection] = deque()
        finalize(self, _close_all, self._idle)
        reset_in_child(self, HttpPublisher._reset)

    def __repr__(self) -> str:
        return f"HttpPublisher({self.url!r})"

    def _reset(self) -> None:
        leave_to_parent(list(self._idle))
        self._idle.clear()

    async def publish(self, message: Message) -> None:
        """Posts the message; returns when the answer is 2xx, and raises otherwise."""
        seconds = time_left(self._timeout)
        until = clock.SYSTEM.monotonic() + seconds
        try:
            async with asyncio.timeout(seconds):
                await self._workers.run(lambda each: self._post(each, until), message)
        except TimeoutError as error:
            if str(error):
                raise
            text = f"{self.url} did not answer {message.id} within {seconds:.3g} s; it may have it"
            raise TimeoutError(text) from error

    async def close(self) -> None:
        """Closes the connections that are idle; `publish` opens others."""
        self._workers.close()
        _close_all(self._idle)

    # --- in a worker thread -----------------------------------------------------------------------

    def _post(self, message: Message, until: float) -> None:
        headers = self._headers(message)
        seconds = until - clock.SYSTEM.monotonic()
        if seconds <= 0.0:
            raise TimeoutError(f"no time is left for {message.id}; it was not sent")
        connection, is_kept = self._connection(seconds), False
        try:
            with in_time(lambda: connection.sock, seconds):
                connection.request("POST", self._target.of(message), message.payload, headers)
                answer = connection.getresponse()
                answer.read(_READ)
                is_kept = answer.isclosed() and not answer.will_close
        except HTTPException as error:  # some are no OSError
            if isinstance(error, ConnectionError):
                raise
            raise ConnectionError(f"{self.url}: {type(error).__name__}") from error
        finally:
            if is_kept:
                self._idle.append(connection)
            else:
                connection.close()
        if not 200 <= answer.status < 300:
            raise self._refused(answer)

    def _connection(self, seconds: float) -> CheckedConnection:
        """One that is idle and that the server has not closed, or a new one."""
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return connection_to(self._parts, seconds, allow_local=self._allow_local)
            if _is_silent(connection.sock):
                connection.sock.settimeout(seconds)
                return connection
            connection.close()

    def _refused(self, answer: HTTPResponse) -> HTTPError:
        headers = Headers()
        for name, value in answer.getheaders():
            headers[name] = value
        refused = HTTPError(self.url, answer.status, answer.reason, headers, BytesIO())
        refused.close()  # Python 3.14 warns of one that is collected open
        return refused

    def _headers(self, message: Message) -> dict[str, str]:
        found = text_headers(message)
        found["Content-Type"] = message.content_type
        found["Idempotency-Key"] = found[ID] = message.id
        found[TIME] = timestamp = str(int(clock.SYSTEM.wall()))
        if self._secret:
            found[SIGNED] = signature_of(self._secret, timestamp, message.payload, message.id)
        return found | authorization_of(self._parts)


def _close_all(connections: deque[CheckedConnection]) -> None:
    while connections:
        connections.pop().close()


def _is_silent(wire: socket) -> bool:
    """Whether nothing has come on an idle connection: anything would be its end."""
    with DefaultSelector() as waiting:
        waiting.register(wire, EVENT_READ)
        return not waiting.select(0)


def _escaped(text: str) -> str:
    return quote(text, safe="")
