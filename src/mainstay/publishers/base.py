"""What the publishers of brokers have in common: options of the URL, the time limit, connections.

A publisher has one connection for each event loop. It sends a message once and waits for its
acknowledgement, no longer than its own timeout and the deadline of the caller. It repeats nothing:
whether to do so is decided by the policy of the relay, which reads the client's own exception.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import parse_qsl

from mainstay.core.base.validate import Checker
from mainstay.deadline import remaining
from mainstay.errors import UsageError
from mainstay.publishers.connections import Link, LoopConnections

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mainstay.core.base.types import Seconds
    from mainstay.core.outbox.message import Message

L = TypeVar("L", bound=Link)


class BrokerPublisher(Generic[L]):
    """Sends messages over one connection per event loop; a subclass has the client.

    Attributes:
        url: where it publishes to, without secrets and options.
    """

    drops_silent = True
    """Whether a connection on which nothing was acknowledged in time is replaced."""

    def __init__(self, url: str, timeout: Seconds) -> None:
        check = Checker(type(self).__name__)
        self._timeout = check.duration("timeout", timeout, 0.01, 3600.0)
        check.close()
        self.url = url
        self._links: LoopConnections[L] = LoopConnections(self._open)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.url!r})"

    async def publish(self, message: Message) -> None:
        """Sends a message; returns when the broker has acknowledged it, and raises otherwise."""
        loop = asyncio.get_running_loop()
        seconds, began = time_left(self._timeout), loop.time()
        link: L | None = None
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                link = await self._links.get()
                await self._send(link, message)
        except TimeoutError as error:
            if not limit.expired():
                raise
            is_silent = link is not None and link.answered < began  # one slow answer is not
            if link is not None and is_silent and self.drops_silent:
                self._links.drop(link)
            raise self._late(_described(self.url, message, seconds, link is not None)) from error
        link.answered = loop.time()

    async def close(self) -> None:
        """Closes the connection of this event loop; `publish` opens another."""
        await self._links.close()

    async def _open(self) -> L:
        """Opens a connection in the running loop; leaves nothing open if it fails."""
        raise NotImplementedError("a subclass has the client")

    async def _send(self, link: L, message: Message) -> None:
        """Sends one message, and waits for its acknowledgement."""
        raise NotImplementedError("a subclass has the client")

    def _late(self, text: str) -> BaseException:
        """The exception that the client raises for an answer that does not come in time."""
        return TimeoutError(text)


def time_left(timeout: float) -> float:
    """The seconds for one message: the publisher's own timeout, or less if a deadline is near.

    >>> from mainstay import deadline
    >>> with deadline.within(2.0):
    ...     1.0 < time_left(5.0) <= 2.0
    True
    """
    left = remaining()
    return timeout if left is None else min(timeout, max(left, 0.0))


def digest_of(url: str) -> str:
    """What a URL is known by whose path may be a secret.

    >>> digest_of("https://example.org/hooks/1")
    'd581b948'
    """
    return hashlib.sha256(url.encode()).hexdigest()[:8]


def _described(url: str, message: Message, seconds: float, is_sent: bool) -> str:
    if is_sent:
        return f"{url} did not acknowledge {message.id} within {seconds:.3g} s; it may have it"
    return f"no connection to {url} within {seconds:.3g} s; {message.id} was not sent"


def options_in(
    query: str, given: Mapping[str, Any], known: Mapping[str, type[Any]]
) -> dict[str, Any]:
    """The options of a URL, as the types they have; those that are given in code are overridden.

    >>> options_in("timeout=2&subject=a", {"timeout": 5.0, "stream": None},
    ...            {"timeout": float, "subject": str, "stream": str})
    {'timeout': 2.0, 'stream': None, 'subject': 'a'}
    """
    found = dict(given)
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name not in known:
            raise UsageError(
                f"{name} is no option of this publisher", hint=f"known: {', '.join(known)}"
            )
        found[name] = _typed(name, text, known[name])
    return found


def _typed(name: str, text: str, kind: type[Any]) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise UsageError(f"{name} = {text!r}: must be true or false")
        return text.lower() in ("true", "1")
    try:
        return kind(text)
    except ValueError:
        words = "a whole number" if kind is int else "a number"
        raise UsageError(f"{name} = {text!r}: must be {words}") from None
