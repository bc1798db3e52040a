"""The default store of the command line, in the user's state folder.

`mainstay.db` in the folder of runtime/private_files.py, which must be this user's own.
"""

from __future__ import annotations

from urllib.parse import quote

from mainstay.runtime.private_files import make_private, state_folder

NAME = "mainstay.db"
TIMEOUT = 2
"""Seconds to wait for its lock: a command must not wait long for its own records."""


def default_store() -> str:
    """The URL of the user's own store; its folder is created if missing, for this user alone.

    Raises:
        OSError: the folder cannot be created, or another user could write to it.
        RuntimeError: the user's home is unknown.
    """
    folder = state_folder()
    make_private(folder, 1)
    return f"sqlite:///{quote(str(folder / NAME))}?timeout={TIMEOUT}"
