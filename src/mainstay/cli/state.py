"""The default store of the command line, in the user's state folder.

`$XDG_STATE_HOME/mainstay/mainstay.db`, by default under `~/.local/state`; `%LOCALAPPDATA%` on
Windows. Only its user can read the folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

NAME = "mainstay.db"
TIMEOUT = 2
"""Seconds to wait for its lock: a command must not wait long for its own records."""


def state_folder() -> Path:
    """The folder; it need not exist."""
    given = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(given) if given else Path.home() / ".local" / "state") / "mainstay"


def default_store() -> str:
    """The URL of the user's own store; its folder is created if missing, for this user alone.

    Raises:
        OSError: the folder cannot be created, or belongs to another user.
        RuntimeError: the user's home is unknown.
    """
    folder = state_folder().absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and (owner := folder.stat().st_uid) != os.getuid():
        raise PermissionError(f"{folder} belongs to user {owner}")
    return f"sqlite:///{quote(str(folder / NAME))}?timeout={TIMEOUT}"
