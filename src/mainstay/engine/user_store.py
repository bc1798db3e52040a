"""The store of a user, in the state folder: that of the command line and of agents.

`mainstay.db` in the folder of runtime/private_files.py. Folder and files must be this user's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from mainstay.engine.from_config import engine_of, read
from mainstay.runtime.private_files import check_own_file, make_private, state_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from mainstay.engine.engine import Engine

NAME = "mainstay.db"
TIMEOUT = 2
"""Seconds to wait for its lock: a command must not wait long for its own records."""


def default_store() -> str:
    """The URL of the user's own store; its folder is created if missing, for this user alone.

    Raises:
        OSError: the folder cannot be created, or another user could write to it, or a file of the
            store is a link or another user's.
        RuntimeError: the user's home is unknown.
    """
    folder = state_folder()
    make_private(folder, 1)
    for suffix in ("", "-wal", "-shm", "-journal"):
        check_own_file(folder / f"{NAME}{suffix}")
    return f"sqlite:///{quote(str(folder / NAME))}?timeout={TIMEOUT}"


def user_engine(
    build: Callable[..., Engine],
    path: str | os.PathLike[str] | None = None,
    *,
    store: str | None = None,
    overrides: Iterable[str] = (),
) -> Engine:
    """An engine of the configuration on the store that it names, or else on the user's own.

    If the configuration is wrong, that is warned of and logged, and the built-in default is used.

    Args:
        build: makes the engine; without a configuration it is given the store alone.
        path: the configuration; None for what is found.
        store: a URL in place of the configuration's.
        overrides: values before those of the configuration.
    """
    given = list(overrides)
    loaded = read(path, overrides=given)
    if store is None and (loaded.settings is None or not loaded.settings.store):
        store = default_store()
    if loaded.file is None and not given:
        return build(store=store)
    more = [] if store is None else [f"store={store}"]
    return engine_of(build, path, on_error="default", overrides=[*given, *more], env=None)
