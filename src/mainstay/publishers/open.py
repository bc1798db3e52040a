"""Opens the publisher of a URL, or makes one of a function."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from mainstay.errors import UsageError
from mainstay.runtime.reports.known_secrets import know_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeGuard

    from mainstay.core.outbox.message import Message
    from mainstay.ports import Publisher

PUBLISHERS = {
    "nats": ("mainstay.publishers.nats", "NatsPublisher"),
    "kafka": ("mainstay.publishers.kafka", "KafkaPublisher"),
    "amqp": ("mainstay.publishers.rabbitmq", "RabbitPublisher"),
    "redis": ("mainstay.publishers.redis_streams", "RedisStreamsPublisher"),
    "http": ("mainstay.publishers.http", "HttpPublisher"),
    "python": ("mainstay.publishers.function", "FunctionPublisher"),
}
"""The module and class of each publisher, by the scheme of its URLs."""
ALSO = {
    "tls": "nats",
    "https": "http",
    "amqps": "amqp",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
}
"""Other schemes."""
FORMS = {"python": "python:module:function"}
"""How a URL is written that has no host."""


def open_publisher(target: str | Publisher | Callable[[Message], object]) -> Publisher:
    """The publisher of a URL, one that calls a function, or the one given.

    Nothing is connected yet: the first message does it.

    Example:
        >>> open_publisher("nats://127.0.0.1:4222").url
        'nats://127.0.0.1:4222'
        >>> open_publisher(print).url
        'python:builtins:print'
    """
    if isinstance(target, str):
        return _of_url(target)
    if _is_publisher(target):
        return target
    if callable(target):
        from mainstay.publishers.function import FunctionPublisher

        return FunctionPublisher(target)
    raise UsageError(
        f"{type(target).__name__} is no publisher",
        hint="a URL, a function of one message, or an object with publish(), close() and url",
    )


def _is_publisher(target: Any) -> TypeGuard[Publisher]:
    methods = (getattr(target, name, None) for name in ("publish", "close"))
    return all(map(callable, methods)) and not isinstance(target, type) and hasattr(target, "url")


def _of_url(url: str) -> Publisher:
    scheme = url.partition(":")[0].lower()
    know_url(url)
    known = ALSO.get(scheme, scheme)
    if known == "python":
        return _of_function(url)
    home = PUBLISHERS.get(known)
    if home is None or "://" not in url:
        raise _no_publisher(url)
    opened: Publisher = getattr(import_module(home[0]), home[1])(url)
    return opened


def _of_function(url: str) -> Publisher:
    """The function of `python:module:function`; imports the module."""
    _, _, place = url.partition(":")
    module, colon, name = place.partition(":")
    if not (module and colon and name) or "/" in place:
        raise UsageError(f"{url!r} names no function", hint="python:module:function")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module is there, and misses another
        raise UsageError(
            f"there is no module {module!r}", hint="run it where the module can be imported"
        ) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise UsageError(f"the module {module} has no {name}", hint="python:module:function")
    return open_publisher(found)


def _no_publisher(url: str) -> UsageError:
    """What to write instead, if it can be guessed."""
    from difflib import get_close_matches

    from mainstay.core.redact.redactor import REDACTOR

    hint = "known: " + ", ".join(FORMS.get(scheme, f"{scheme}://") for scheme in PUBLISHERS)
    scheme, colon, rest = url.partition("://")
    near = get_close_matches(scheme.lower(), [*PUBLISHERS, *ALSO], n=1)
    if scheme in ("sqlite", "postgresql", "postgres", "memory"):
        hint = f"that is a store, which messages are taken from; {hint}"
    elif near and colon and near[0] not in FORMS:
        hint = f"write {near[0]}://{rest}; {hint}"
    return UsageError(f"there is no publisher for {REDACTOR.text(url)!r}", hint=REDACTOR.text(hint))
