"""What the middleware of asgi.py reads of a request and answers itself: HTTP, and no records.

A key is read from its header, a body is read once and passed on as it came, and a request that is
refused is answered with a problem. Nothing here uses a store.
"""

from __future__ import annotations

import hashlib
import re
from collections import deque
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from mainstay.core.idempotency.record import Busy, Mismatch
from mainstay.core.redact.redactor import REDACTOR

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
    from typing import Any, TypeAlias

    Scope: TypeAlias = MutableMapping[str, Any]
    Message: TypeAlias = MutableMapping[str, Any]
    Receive: TypeAlias = Callable[[], Awaitable[Message]]
    Send: TypeAlias = Callable[[Message], Awaitable[None]]
    App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]
    Headers: TypeAlias = list[tuple[bytes, bytes]]


# --- the key --------------------------------------------------------------------------------------

_MAX_KEY = 255
_QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"')
"""A string of RFC 8941, structured fields."""
_BARE = re.compile(r"[!#-+\--:<-\[\]-~]+")
"""Visible ASCII without what would make it a list, a parameter or a string."""


def parse_key(values: list[bytes], header: str) -> str:
    """The key of a header: a quoted string or, as most clients send it, the bare text."""
    if len(values) > 1:
        raise _malformed(header, "there is more than one")
    text = values[0].decode("latin-1").strip(" \t")
    quoted = _QUOTED.fullmatch(text)
    if quoted is None and text and _BARE.fullmatch(text) is None:
        raise _malformed(header, "it must be a string of visible ASCII characters in quotes")
    key = text if quoted is None else re.sub(r"\\(.)", r"\1", quoted[1])
    if not key.strip():
        raise _malformed(header, "it is empty")
    if len(key) > _MAX_KEY:
        raise _malformed(header, f"it has {len(key)} characters; {_MAX_KEY} are allowed")
    return key


def _malformed(header: str, reason: str) -> Problem:
    return Problem(
        400,
        "key_malformed",
        f"{header} is malformed",
        f'{header}: {reason}. Example: "8e03978e-40d5-43e8-bc93-6894a57f9324"',
    )


# --- problems -------------------------------------------------------------------------------------


class Problem(Exception):
    """A request that is answered here, in problem+json (RFC 9457)."""

    def __init__(
        self, status: int, code: str, title: str, detail: str, headers: Headers | None = None
    ) -> None:
        super().__init__(title)
        self.status = status
        detail = REDACTOR.text(detail)
        self.fields = {"title": title, "status": status, "detail": detail, "code": code}
        self.headers = headers or []

    async def send(self, send: Send, docs: str | None) -> None:
        kind = f"{docs}#{self.fields['code']}" if docs else "about:blank"
        headers = [(b"content-type", b"application/problem+json"), *self.headers]
        await respond(
            send, self.status, headers, msgspec.json.encode({"type": kind, **self.fields})
        )


def refusal(answer: Any, header: str) -> Problem:
    """The answer to a request whose record allows neither a run nor a replay."""
    if isinstance(answer, Busy):
        return Problem(
            409,
            "in_flight",
            f"A request with this {header} is under way",
            "Ask again with the same key for its response.",
            [(b"retry-after", b"1")],
        )
    if isinstance(answer, Mismatch):
        return Problem(
            422,
            "key_reused",
            f"{header} was used for another request",
            "The key stands for a request with another method, host, path, query, content type or"
            " body. Use a new key for a new request.",
        )
    return Problem(
        409,
        "outcome_unknown",
        "The outcome of the first request is not known",
        "The first request with this key was cut off; it may or may not have been carried out."
        " It was not repeated: a person has been asked to look.",
    )


def too_many_keys(header: str, most: int, retry_after: float) -> Problem:
    """The answer to a new key of a caller that has as many as it may have."""
    return Problem(
        429,
        "too_many_keys",
        f"Too many requests with an {header}",
        f"A caller may have {most} keys at once. The request was not carried out. Repeats of"
        " earlier requests are answered.",
        [(b"retry-after", b"%d" % max(1, ceil(retry_after)))],
    )


def unavailable() -> Problem:
    """The answer to a request while the store cannot be reached."""
    return Problem(
        503,
        "store_unavailable",
        "Idempotency records cannot be reached",
        "The request was not carried out. Send it again with the same key.",
        [(b"retry-after", b"1")],
    )


def not_kept(status: int, headers: Headers) -> Problem:
    """The answer to a repeat whose response was not kept: its status, and its location."""
    problem = Problem(
        422,
        "response_not_kept",
        "The first request was carried out, and its response is not kept",
        f"The first request with this key was answered with status {status}. The response was"
        " too large to keep, or was cut off. Do not repeat the request: look at the resource.",
        [(name, value) for name, value in headers if name in _WAYS_ON],
    )
    problem.fields["first_status"] = status
    return problem


def leads_on(name: str, value: str) -> bool:
    """Whether a header is kept of a response that is too large for the store."""
    return name.encode("latin-1") in _WAYS_ON and len(value) <= _LONGEST


def abandoned() -> Problem:
    """The answer to a repeat of a request of unknown outcome that an operator has given up."""
    return Problem(
        409,
        "abandoned",
        "The first request was given up",
        "It is not known whether the first request with this key was carried out, and an operator"
        " has given it up. Use a new key to send it again.",
    )


def as_response(kept: Any) -> dict[str, Any]:
    """A recorded response; or the outcome that an operator has recorded, as JSON.

    >>> as_response({"id": 7})["body"]
    b'{"id":7}'
    """
    is_ours = isinstance(kept, dict) and kept.keys() == {"status", "headers", "body"}
    if is_ours and isinstance(kept["body"], bytes | None):
        return kept  # type: ignore[no-any-return]
    headers = [("content-type", "application/json")]
    return {"status": 200, "headers": headers, "body": msgspec.json.encode(kept)}


async def respond(send: Send, status: int, headers: Headers, body: bytes) -> None:
    """Sends a whole response, with its length."""
    if not values_of(headers, b"content-length") and status != 204:
        headers = [*headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


# --- messages -------------------------------------------------------------------------------------

_DIGITS = 18
"""Of a length; Python refuses to read a number of thousands of digits."""
_LONGEST = 2000
"""Characters of such a header."""
_WAYS_ON = frozenset({b"location", b"content-location"})
NEVER_REPLAYED = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade date".split()
)
"""Headers of one connection (RFC 9110, 7.6.1) and of one moment."""

_SHORTCUTS = ("http.response.pathsend", "http.response.zerocopysend", "http.response.trailers")


def hide_shortcuts(scope: Scope) -> None:
    """Ways past the body that we record; an application does without them."""
    extensions = scope.get("extensions") or {}
    if any(name in extensions for name in _SHORTCUTS):
        scope["extensions"] = {n: v for n, v in extensions.items() if n not in _SHORTCUTS}


def values_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    """The values of a header, whose name is given in lower case."""
    return [value for each, value in headers if each.lower() == name]


def declared_length(headers: Iterable[tuple[bytes, bytes]]) -> int | None:
    """The Content-Length, if there is a sound one."""
    values = values_of(headers, b"content-length")
    is_sound = len(values) == 1 and values[0].isdigit() and len(values[0]) <= _DIGITS
    return int(values[0]) if is_sound else None


def lasting(
    headers: Iterable[tuple[bytes, bytes]], dropped: frozenset[bytes]
) -> Iterator[list[str]]:
    """The headers that are replayed: not those of one connection, nor what Connection names."""
    headers = [(bytes(name).lower(), bytes(value)) for name, value in headers]
    named = b",".join(values_of(headers, b"connection")).lower().split(b",")
    gone = dropped | {name.strip() for name in named}
    for name, value in headers:
        if name not in gone:
            yield [name.decode("latin-1"), value.decode("latin-1")]


class Body:
    """A request's body: read once here, and handed on message by message as it came."""

    __slots__ = ("_messages", "_receive", "has_disconnected")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._messages: deque[Message] = deque()
        self.has_disconnected = False

    async def read(self, declared: int | None, most: int) -> str | None:
        """The SHA-256 of the whole body; None if the client disconnected first."""
        digest, size, goes_on = hashlib.sha256(), declared or 0, True
        received = 0
        while goes_on and size <= most:
            message = await self.receive_next()
            if message["type"] == "http.disconnect":
                return None
            chunk, goes_on = message.get("body", b""), message.get("more_body", False)
            digest.update(chunk)
            received += len(chunk)
            size = max(size, received)
            if chunk or not goes_on:
                self._messages.append(message)
        if size > most:
            raise Problem(
                413,
                "body_too_large",
                "The request is too large",
                f"A request with a key may have a body of at most {most} bytes.",
            )
        return digest.hexdigest()

    async def receive(self) -> Message:
        """For the application: the body as it came, then whatever comes next."""
        return self._messages.popleft() if self._messages else await self.receive_next()

    async def receive_next(self) -> Message:
        message = await self._receive()
        self.has_disconnected = self.has_disconnected or message["type"] == "http.disconnect"
        return message
