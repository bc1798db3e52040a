"""Opens the store of a URL, if it has the abilities that are needed."""

from __future__ import annotations

from importlib import import_module
from os import PathLike, fspath
from typing import TYPE_CHECKING

from mainstay.errors import StoreError, UsageError
from mainstay.ports import ABILITIES
from mainstay.runtime.reports.known_secrets import know_url

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
_KNOWN = "known stores: " + ", ".join(f"{scheme}://" for scheme in STORES)
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
    if store is None:
        raise StoreError("the store is None", hint="memory:// is for this process only; " + _KNOWN)
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
    scheme, colon, _ = url.partition("://")
    know_url(url)
    home = STORES.get(ALSO.get(scheme, scheme)) if colon else None
    if home is None:
        raise _no_store(url)
    opened: Store = getattr(import_module(home[0]), home[1])(url)
    return opened


def _no_store(url: str) -> StoreError:
    """What to write instead: a path is most likely a file of SQLite's."""
    from difflib import get_close_matches

    from mainstay.core.redact.redactor import REDACTOR

    hint = _KNOWN
    scheme, colon, path = url.partition("://")
    near = get_close_matches(scheme, [*STORES, *ALSO], n=1)
    if not colon and url.strip():
        hint = f"write {_meant_by(url)}; {hint}"
    elif near:
        hint = f"write {near[0]}://{path}; {hint}"
    # without its scheme a password is not known as one
    before = "" if colon else f"{next(iter(ALSO))}://"
    shown = REDACTOR.text(before + url).removeprefix(before)
    return StoreError(f"there is no store for {shown!r}", hint=REDACTOR.text(hint))


def _meant_by(text: str) -> str:
    """The URL that a text without `://` most likely stands for."""
    path = text.removeprefix("sqlite:").replace("\\", "/")
    first = path.partition("/")[0]
    _, colon, port = first.rpartition(":")
    scheme, is_near, rest = path.partition(":")
    if path in (":memory:", "memory"):
        return "memory:// to keep it in this process only"
    if text == "sqlite":
        return "sqlite:///mainstay.db for a file of SQLite"
    if text in STORES or text in ALSO:
        return f"{text}://localhost for a server on this machine"
    if (
        is_near
        and "@" not in scheme
        and not rest.isdigit()
        and (scheme in STORES or scheme in ALSO)
    ):
        return f"{scheme}://{rest.lstrip('/')} for a server"
    if (colon and port.isdigit()) or ("@" in path and not path.startswith((".", "/"))):
        return f"postgresql://{text}, redis://{text} or nats://{text} for a server"
    return f"sqlite:///{path} for a file of SQLite"
