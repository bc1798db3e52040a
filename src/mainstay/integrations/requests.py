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
from urllib3.exceptions import EmptyPoolError

from mainstay.core.base.deadline import NEVER
from mainstay.integrations.http_exchange import Body, Exchange, limited, one_attempt
from mainstay.integrations.http_headers import PORTS, Outgoing
from mainstay.integrations.urllib3 import bound, drained, refuse_retries, timeouts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping
    from typing import Any

    from mainstay.integrations.http_headers import Calls, Operations


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
            refuse_retries("max_retries", self.max_retries, self._outgoing.attempts)

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
        exchange = _Exchange(self._outgoing, request, super().send, options)
        response: requests.Response | None
        try:
            response = self._send(exchange)
        except BaseException as error:
            response = exchange.last_response(error)
            if response is None:
                if exchange.response is not None:
                    exchange.response.close()
                raise
        finally:
            exchange.restore()
        assert response is not None
        return response


_OPTIONS = ("stream", "timeout", "verify", "cert", "proxies")


_send = one_attempt("requests", requests.RequestException)


class _Exchange(Exchange):
    request: requests.PreparedRequest
    status_error = requests.HTTPError
    _body: Body | None = None

    def __init__(
        self,
        outgoing: Outgoing,
        request: requests.PreparedRequest,
        sends: Callable[..., requests.Response],
        options: dict[str, Any],
    ) -> None:
        super().__init__(outgoing, request)
        self._sends, self._options = sends, options
        if outgoing.attempts > 1 and request.body is not None and not _is_repeatable(request):
            self._body = request.body = Body(request.body)

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

    def send(self, end: float) -> requests.Response:
        options = self._options
        if end != NEVER:
            connect, read = timeouts_of(options.get("timeout"))
            options = {**options, "timeout": (limited(connect, end), limited(read, end))}
        try:
            return self._sends(self.request, **options)
        except EmptyPoolError as error:  # requests lets it pass
            raise requests.ConnectTimeout(str(error), request=self.request) from error

    def status_of(self, response: requests.Response) -> int:
        return response.status_code

    def release(self) -> None:
        self.is_released = self.has_short_body() and drained(self.response.raw)
        if not self.is_released:
            self.response.close()
            self.response = None  # no part of a body is returned as the whole

    def rewind(self) -> None:
        """Has a file begin where it began for the first attempt."""
        if hasattr(self.request.body, "seek"):
            rewind_body(self.request)

    def restore(self) -> None:
        """Gives the request its own body back: a redirect looks at it."""
        if self._body is not None:
            self.request.body = self._body.given


def _is_repeatable(request: requests.PreparedRequest) -> bool:
    """Whether a body gives the same bytes again: plain bytes, or a file that seeks."""
    body: Any = request.body
    if isinstance(body, str | bytes | bytearray | memoryview):
        return True
    return hasattr(body, "seek") and isinstance(getattr(request, "_body_position", None), int)
