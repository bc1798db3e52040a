"""Connections to NATS servers: the URL, TLS, login, and the loop.

A connection is opened once and never mended: its owner replaces it, and decides what is sent again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from mainstay.errors import MissingExtraError

try:
    from nats.aio.client import Client
    from nats.errors import Error as NatsError
except ImportError:
    raise MissingExtraError("nats-py", "nats") from None

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = [
    "Client", "NatsError", "NatsServers", "RealTimeLoop", "connect", "end", "on_end_of_reading",
]  # fmt: skip

_TASKS = ("_reading_task", "_ping_interval_task", "_flusher_task", "_reconnection_task")
"""Where a client of nats-py has its tasks; each of its subscriptions may have another."""


class NatsServers:
    """The servers that a URL names, and the credentials for them.

    >>> servers = NatsServers("tls://me:secret@a:4222,b:4222")
    >>> servers.urls, servers.user, servers.hosts
    (['tls://a:4222', 'tls://b:4222'], 'me', 'a:4222,b:4222')
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        credentials, _, self.hosts = parts.netloc.rpartition("@")
        user, colon, password = credentials.partition(":")
        self.scheme = parts.scheme
        self.is_tls = parts.scheme == "tls"
        self.urls = [f"{'tls' if self.is_tls else 'nats'}://{h}" for h in self.hosts.split(",")]
        self.user = user if colon else ""
        """As in the URL; empty for a token, which is a secret."""
        self.login: dict[str, str] = {}
        if colon:
            self.login = {"user": unquote(user), "password": unquote(password)}
        elif user:
            self.login = {"token": unquote(user)}

    def client(self) -> Client:
        """A client that is not connected yet."""
        return _TlsClient() if self.is_tls else Client()


async def connect(
    client: Client, servers: NatsServers, each: float, more: Iterable[str] = (), **options: Any
) -> None:
    """Connects once to one of the servers, or raises the last error that one of them gave.

    Args:
        client: the client, as `servers.client()` makes it.
        servers: the servers.
        each: seconds for one server.
        more: URLs of further servers.
        options: more options of `Client.connect`.
    """
    errors: list[BaseException] = []

    async def note(error: BaseException) -> None:
        errors[:] = [error]

    login: dict[str, Any] = servers.login
    seconds: Any = each  # nats-py declares an int, and takes any number
    try:
        await client.connect(
            servers=[*servers.urls, *more],
            name="mainstay",
            error_cb=note,
            allow_reconnect=False,
            max_reconnect_attempts=1,
            connect_timeout=seconds,
            **login,
            **options,
        )
    except NatsError as error:  # "no servers" states less than the error of the last one
        raise (errors[0] if errors else error) from None


def on_end_of_reading(client: Client, notify: Callable[[], None]) -> None:
    """Calls a function if a connected client reads no more, for whatever reason.

    If a connection is lost while nats-py has something to write, nats-py fails to write it, and
    does not call `closed_cb`.
    """

    def ended(reading: asyncio.Future[Any]) -> None:
        if not reading.cancelled():
            reading.exception()  # that of the write; asyncio would log it
        notify()

    reading = getattr(client, "_reading_task", None)
    if isinstance(reading, asyncio.Future):
        reading.add_done_callback(ended)


async def end(client: Client, seconds: float) -> None:
    """Closes a client, in good order if its server answers in time, and leaves nothing of it.

    If the connection is lost while nats-py closes it, nats-py stops half-way: its tasks go on, or
    have failed, and asyncio would log each of them when it is collected.
    """
    try:
        async with asyncio.timeout(seconds):
            await client.close()
    except Exception:  # noqa: S110 -- it is aborted below in any case
        pass
    finally:
        tasks = _tasks_of(client)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)  # their failures are known by now
        writer = getattr(getattr(client, "_transport", None), "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
            await asyncio.sleep(0)


def _tasks_of(client: Client) -> list[asyncio.Future[Any]]:
    subscriptions = list(getattr(client, "_subs", {}).values())
    found = [getattr(client, name, None) for name in _TASKS]
    found += [getattr(each, "_wait_for_msgs_task", None) for each in subscriptions]
    current = asyncio.current_task()
    return [each for each in found if isinstance(each, asyncio.Future) and each is not current]


class _TlsClient(Client):
    """Gives no password to a server that does not encrypt."""

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        if initial_connection and not (info.get("tls_required") or info.get("tls_available")):
            raise NatsError("the server offers no TLS")
        info["tls_required"] = True
        await super()._process_info(info, initial_connection)


class RealTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose waits are for a real server, whatever clock a test has installed."""

    keeps_real_time = True

    def __init__(self) -> None:
        super().__init__()
        self._level = logging.WARNING

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Reports what asyncio would log of tasks of nats-py, one warning for each loop.

        The rest is for debugging: a caller whose step failed has its own error.
        """
        from mainstay.runtime.reports.report_failure import report

        level, self._level = self._level, logging.DEBUG
        report(
            context.get("exception"), "in a task of nats-py: %s", context["message"], level=level
        )

    def time(self) -> float:
        return time.monotonic()
