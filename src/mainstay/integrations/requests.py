"""requests: an adapter that retries, ends at the deadline, and hands on what services need.

A failure of requests, and a response with an error status, are judged by the policy; the last
response is returned as requests would return it. An attempt ends with the headers of the response:
the body is read by the session, later; it is bounded by the same deadline but not repeated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import requests
from requests.adapters import HTTPAdapter
from requests.utils import rewind_body

from mainstay.core.base.deadline import NEVER
from mainstay.errors import UsageError
from mainstay.integrations.http_exchange import Exchange, limited
from mainstay.integrations.http_headers import PORTS, Outgoing
from mainstay.integrations.urllib3 import bound

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, MutableMapping
    from typing import Any

    from mainstay.integrations.http_headers import Calls, Operations

_BLOCK = 16384


class Adapter(HTTPAdapter):
    """An adapter for `session.mount("https://", Adapter(policy))`.

    Args:
        retry: a RetryPolicy, an Engine, or an operation of one; None for one attempt.
        trust: the hosts that get our headers, and whose give-up is believed: names, patterns such
            as "*.svc.local", networks, each with or without a port.
        operation: the operation of the engine.
        options: those of `requests.adapters.HTTPAdapter`; `max_retries` is refused beside a retry,
            since urllib3 would repeat inside each of its attempts.

    Example:
        >>> import mainstay, requests
        >>> session = requests.Session()
        >>> session.mount("https://", Adapter(mainstay.RetryPolicy(attempts=3)))
        >>> session.close()
    """

    __attrs__ = [*HTTPAdapter.__attrs__, "_outgoing"]  # noqa: RUF012 -- what requests pickles

    def __init__(
        self,
        retry: Calls | Operations | None = None,
        *,
        trust: Iterable[str] = (),
        operation: str = "requests",
        **options: Any,
    ) -> None:
        self._outgoing = Outgoing(retry, trust, operation)
        self._send = self._outgoing.retried(_send)
        super().__init__(**options)
        if retry is not None:
            _refuse_retries(self.max_retries, self._outgoing.attempts)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Out of a pickle."""
        super().__setstate__(state)
        self._send = self._outgoing.retried(_send)

    def init_poolmanager(self, *sizes: Any, **options: Any) -> None:
        """As HTTPAdapter, with connections that end at the deadline."""
        super().init_poolmanager(*sizes, **options)
        bound(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **options: Any) -> Any:
        """As HTTPAdapter, with connections that end at the deadline."""
        is_new = proxy not in self.proxy_manager
        manager = super().proxy_manager_for(proxy, **options)
        if is_new:
            bound(manager)
        return manager

    def send(
        self, request: requests.PreparedRequest, *given: Any, **named: Any
    ) -> requests.Response:
        """Sends the request, as often as the policy allows; returns the last response."""
        options = {**dict(zip(_OPTIONS, given, strict=False)), **named} if given else named
        exchange = _Exchange(self._outgoing, request)
        try:
            return self._send(exchange, super().send, options)
        except BaseException as error:
            response: requests.Response | None = exchange.last_response(error)
            if response is None:
                if exchange.response is not None:
                    exchange.response.close()
                raise
            return response
        finally:
            exchange.restore()


_OPTIONS = ("stream", "timeout", "verify", "cert", "proxies")


def _refuse_retries(retries: Any, attempts: int) -> None:
    counts = (retries.total, retries.connect, retries.read, retries.status, retries.other)
    most = max([int(each) for each in counts if each], default=0)
    if most:
        n = most + 1
        raise UsageError(
            f"max_retries: urllib3 would repeat a request up to {n} times inside each of {attempts}"
            f" attempts: up to {n} x {attempts} = {n * attempts} requests",
            hint="leave out max_retries; the policy decides what is repeated",
        )


def _send(
    exchange: _Exchange, sends: Callable[..., requests.Response], options: dict[str, Any]
) -> requests.Response:
    """One attempt."""
    if exchange.attempt:
        held: requests.Response | None = exchange.take_response()
        if held is not None:
            held.close()
        exchange.rewind()
    end = exchange.begin()
    if end != NEVER:
        connect, read = _timeouts(options.get("timeout"))
        options = {**options, "timeout": (limited(connect, end), limited(read, end))}
    try:
        response = sends(exchange.request, **options)
    except requests.RequestException as error:
        raise exchange.failed(error)  # noqa: B904 -- the same one, with its request
    except Exception:
        exchange.is_under_way = False
        raise
    finally:
        if exchange.is_touched:
            exchange.end()
    exchange.is_under_way = False
    if response.status_code >= 400:
        exchange.answered(response, response.status_code)
    exchange.response = response  # to be closed, if the policy does not accept it
    return response


_send.__qualname__ = "requests"  # what notes and events call it


def _timeouts(given: Any) -> tuple[float | None, float | None]:
    """The timeouts for connecting and for a read, in each form that requests takes."""
    if isinstance(given, tuple):
        return given
    if not hasattr(given, "connect_timeout"):
        return given, given
    timeout = given.clone()  # urllib3's Timeout: what is left of its total shows once it runs
    timeout.start_connect()
    connect, read = (
        each if isinstance(each, int | float) else None  # its default is no number
        for each in (timeout.connect_timeout, timeout.read_timeout)
    )
    return connect, read


class _Exchange(Exchange):
    request: requests.PreparedRequest
    status_error = requests.HTTPError
    _body: _Body | None = None

    def __init__(self, outgoing: Outgoing, request: requests.PreparedRequest) -> None:
        super().__init__(outgoing, request)
        if outgoing.attempts > 1 and request.body is not None and not _is_repeatable(request):
            self._body = request.body = _Body(request.body)

    @property
    def address(self) -> tuple[str, int | None]:
        url = urlsplit(self.request.url or "")
        return str(url.hostname or ""), url.port or PORTS.get(url.scheme)

    @property
    def is_spent(self) -> bool:
        return self._body is not None and self._body.begun

    def marks_of(self, response: requests.Response) -> MutableMapping[str, Any]:
        return vars(response)

    def late(self, text: str) -> Exception:
        return requests.ConnectTimeout(text, request=self.request)

    def cut(self, text: str) -> Exception:
        return requests.ReadTimeout(text, request=self.request)

    def rewind(self) -> None:
        """Has a file begin where it began for the first attempt."""
        if hasattr(self.request.body, "seek"):
            rewind_body(self.request)

    def restore(self) -> None:
        """Gives the request its own body back: a redirect looks at it."""
        if self._body is not None:
            self.request.body = self._body.given


class _Body:
    """A body that can be read once; knows whether it has been."""

    def __init__(self, body: Any) -> None:
        self.given = body
        self.begun = False

    def __iter__(self) -> Iterator[Any]:
        self.begun = True
        if not hasattr(self.given, "read"):
            yield from self.given
            return
        while block := self.given.read(_BLOCK):
            yield block


def _is_repeatable(request: requests.PreparedRequest) -> bool:
    """Whether a body gives the same bytes again: plain bytes, or a file that seeks."""
    body: Any = request.body
    if isinstance(body, str | bytes | bytearray | memoryview):
        return True
    return hasattr(body, "seek") and isinstance(getattr(request, "_body_position", None), int)
