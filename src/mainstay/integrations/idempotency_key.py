"""Sends an Idempotency-Key with requests: the same on every attempt of a call, a new one per call.

A key belongs to a call, and so is made where the call begins, outside the retry; `carries_key` and
`keyed_call` do that and keep it in a context variable. What sends it are the hooks of
IdempotencyKeyHeader, which put the current key on a request if it has none. A request that is
made outside a keyed call is not marked.

No HTTP library is imported here: a hook takes whatever request its library hands it.
"""

from __future__ import annotations

import re
import warnings
from contextvars import ContextVar
from functools import wraps
from inspect import iscoroutine, iscoroutinefunction
from typing import TYPE_CHECKING
from uuid import uuid4

from mainstay.core.base.validate import Checker
from mainstay.errors import MainstayWarning, UsageError
from mainstay.runtime.enclosing import enclosures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping
    from typing import Any, TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

_KEYS: ContextVar[tuple[str, ...]] = ContextVar("mainstay_idempotency_key", default=())
"""The keys of the keyed calls that are under way here, the innermost last."""
_KEPT = re.compile(r"[ -~]{1,255}")
"""What fits a string of RFC 8941, and what servers take."""


def new_key() -> str:
    """A unique key: a random UUID, as the draft of the IETF recommends.

    >>> len(new_key()), new_key() == new_key()
    (36, False)
    """
    return str(uuid4())


def current_key() -> str | None:
    """The key of the call that is under way here.

    >>> current_key() is None
    True
    """
    keys = _KEYS.get()
    return keys[-1] if keys else None


class keyed_call:  # noqa: N801 -- a context manager is used like a function
    """Gives the requests inside one key: a new one, or the key given.

    It goes around the retry. Inside one, each attempt would get a key of its own, and the server
    would take each for a new request: that is warned of. One call is one request to be made once;
    a function that sends two needs a keyed call for each.

    >>> with keyed_call() as key:
    ...     current_key() == key
    True
    >>> with keyed_call("order-7"):
    ...     current_key()
    'order-7'
    """

    __slots__ = ("_key",)

    def __init__(self, key: str | None = None) -> None:
        if key is None:
            _warn_inside_retry()
            key = new_key()
        if not isinstance(key, str) or not key.strip() or _KEPT.fullmatch(key) is None:
            raise UsageError(
                f"key = {key!r}: must be a text of 1 to 255 ASCII characters, and not blank",
                hint="new_key() makes one",
            )
        self._key = key

    def __enter__(self) -> str:
        _KEYS.set((*_KEYS.get(), self._key))
        return self._key

    def __exit__(self, *_: object) -> None:
        _KEYS.set(_KEYS.get()[:-1])


def carries_key(function: F) -> F:
    """Decorates a function so that each call of it is a keyed call. Goes outside the retry.

    >>> import mainstay
    >>> keys = []
    >>> @carries_key
    ... @mainstay.retry(on=ConnectionError, attempts=3)
    ... def pay():
    ...     keys.append(current_key())
    ...     if len(keys) < 3:
    ...         raise ConnectionError
    >>> pay()
    >>> len(keys), len(set(keys))
    (3, 1)
    """
    carried: Any
    if iscoroutinefunction(function):

        async def carried(*args: Any, **kwargs: Any) -> Any:
            with keyed_call():
                return await function(*args, **kwargs)
    else:

        def carried(*args: Any, **kwargs: Any) -> Any:
            with keyed_call() as key:
                result = function(*args, **kwargs)
            return _awaited(key, result) if iscoroutine(result) else result

    decorated: Any = wraps(function)(carried)
    return decorated  # type: ignore[no-any-return]


async def _awaited(key: str, coroutine: Any) -> Any:
    """Awaits the coroutine of a function that is not declared as async."""
    with keyed_call(key):
        return await coroutine


def _warn_inside_retry() -> None:
    around = next((each for each in enclosures(2) if each.retries), None)
    if around is not None:
        warnings.warn(
            f"an idempotency key is made inside the retry {around.name!r}: each attempt of that has"
            " another; put keyed_call() or @carries_key outside the retry, or give a key",
            MainstayWarning,
            stacklevel=3,
        )


class IdempotencyKeyHeader:
    """Puts the current key on requests: one object, with a hook for each HTTP library.

    A request that has the header already keeps it; without a current key nothing is done.

    Args:
        methods: the methods that are marked.
        header: the name of the header.
        quoted: whether the key stands in quotes, as the draft of the IETF has it; some services
            want a bare UUID.

    Example:
        >>> import httpx
        >>> key = IdempotencyKeyHeader()
        >>> client = httpx.Client(event_hooks={"request": [key.httpx]})
        >>> client.close()
    """

    def __init__(
        self,
        *,
        methods: Iterable[str] = ("POST", "PATCH"),
        header: str = "Idempotency-Key",
        quoted: bool = True,
    ) -> None:
        check = Checker("IdempotencyKeyHeader")
        self._methods = frozenset(method.upper() for method in methods)
        self._header = check.name("header", header)
        check.close()
        self._quoted = quoted

    def httpx(self, request: Any) -> None:
        """For `httpx.Client(event_hooks={"request": [key.httpx]})`."""
        self._mark(request)

    async def httpx_async(self, request: Any) -> None:
        """For `httpx.AsyncClient(event_hooks={"request": [key.httpx_async]})`."""
        self._mark(request)

    def requests(self, auth: Callable[[Any], Any] | None = None) -> Callable[[Any], Any]:
        """For `session.auth = key.requests()`: the one hook that requests has before sending.

        Args:
            auth: what authenticates: `key.requests(HTTPBasicAuth("me", "secret"))`.
        """
        if auth is not None and not callable(auth):
            raise UsageError(
                f"auth: must be an AuthBase, not a {type(auth).__name__}",
                hint='key.requests(HTTPBasicAuth("me", "secret"))',
            )

        def mark(request: Any) -> Any:
            request = request if auth is None else auth(request)
            self._mark(request)
            return request

        return mark

    async def aiohttp(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """For `aiohttp.ClientSession(middlewares=[key.aiohttp])`, from aiohttp 3.12 on."""
        self._mark(request)
        return await handler(request)

    def headers(self, headers: Mapping[str, str] | None = None) -> dict[str, str]:
        """The headers with the current key, for any other library.

        >>> with keyed_call("order-7"):
        ...     IdempotencyKeyHeader().headers({"Accept": "text/plain"})
        {'Accept': 'text/plain', 'Idempotency-Key': '"order-7"'}
        """
        made, key = dict(headers or {}), current_key()
        if key is not None and all(name.lower() != self._header.lower() for name in made):
            made[self._header] = self._text(key)
        return made

    def _mark(self, request: Any) -> None:
        key = current_key()
        if key is None or str(request.method).upper() not in self._methods:
            return
        if self._header not in request.headers:  # of all three libraries: whatever the case
            request.headers[self._header] = self._text(key)

    def _text(self, key: str) -> str:
        if not self._quoted:
            return key
        escaped = key.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
