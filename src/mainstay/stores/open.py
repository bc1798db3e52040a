"""Opens the store of a URL, if it has the abilities that are needed."""

from __future__ import annotations

from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING

from mainstay.errors import StoreError, UsageError
from mainstay.ports import ABILITIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.ports import Store

STORES = {
    "memory": ("mainstay.stores.memory", "MemoryStore"),
    "sqlite": ("mainstay.stores.sqlite.store", "SqliteStore"),
    "postgresql": ("mainstay.stores.postgres.store", "PostgresStore"),
    "redis": ("mainstay.stores.redis.store", "RedisStore"),
    "nats": ("mainstay.stores.nats.store", "NatsStore"),
}
"""The module and class of each store, by the scheme of its URLs."""
ALSO = {
    "postgres": "postgresql",
    "rediss": "redis",
    "valkey": "redis",
    "valkeys": "redis",
    "tls": "nats",
}
"""Other schemes."""
_ABLE = {
    "durable": ("sqlite", "postgresql", "redis", "nats"),
    "transactions": ("sqlite", "postgresql"),
    "audit": ("sqlite", "postgresql"),
}
"""The stores that can do what not every store can."""


def open_store(store: str | Store, needs: Iterable[str] = ()) -> Store:
    """The store of a URL, or the one given; refuses one that cannot do what is needed."""
    wanted = tuple(needs)
    for ability in wanted:
        if ability not in ABILITIES:
            known = ", ".join(ABILITIES)
            raise UsageError(
                f"needs = {ability!r} is no ability of a store", hint=f"known: {known}"
            )
    if isinstance(store, PathLike):
        raise _no_store(fspath(store))
    opened = _opened(store) if isinstance(store, str) else store
    for ability in wanted:
        if ability not in opened.abilities:
            opened.close()
            able = ", ".join(f"{scheme}://" for scheme in _ABLE.get(ability, STORES))
            raise StoreError(
                f"{opened.url} cannot do what is needed: {ABILITIES[ability]}",
                hint=f"stores that can: {able}",
            )
    return opened


def _opened(url: str) -> Store:
    scheme = url.partition("://")[0]
    home = STORES.get(ALSO.get(scheme, scheme))
    if home is None:
        raise _no_store(url)
    opened: Store = getattr(import_module(home[0]), home[1])(url)
    return opened


def _no_store(url: str) -> StoreError:
    """What to write instead: a path is most likely a file of SQLite's."""
    from difflib import get_close_matches

    from mainstay.core.redact.redactor import REDACTOR

    known = ", ".join(f"{scheme}://" for scheme in STORES)
    hint = f"known stores: {known}"
    scheme, colon, path = url.partition("://")
    near = get_close_matches(scheme, [*STORES, *ALSO], n=1)
    if not colon and url.strip():
        path = url.removeprefix("sqlite:").replace("\\", "/")
        hint = f"write sqlite:///{path} for a file of SQLite; {hint}"
    elif near:
        hint = f"write {near[0]}://{path}; {hint}"
    shown = REDACTOR.text(url)
    return StoreError(f"there is no store for {shown!r}", hint=REDACTOR.text(hint))
