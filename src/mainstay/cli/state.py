"""Where the command line keeps what it must remember, when nobody says where: the user's state.

`$XDG_STATE_HOME/mainstay/mainstay.db`, by default under `~/.local/state`; `%LOCALAPPDATA%` on
Windows. Only its user can read the folder.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

NAME = "mainstay.db"
TIMEOUT = 2
"""Seconds to wait for its lock: a command must not wait long for what it only remembers."""


def state_folder() -> Path:
    """The folder; it need not be there."""
    given = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    return (Path(given) if given else Path.home() / ".local" / "state") / "mainstay"


def default_store() -> str:
    """The URL of the user's own store; its folder is made, for this user alone.

    Raises:
        OSError: there is no such place, or it is somebody else's.
        RuntimeError: nobody's home is known.
    """
    folder = state_folder().absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    if hasattr(os, "getuid") and (owner := folder.stat().st_uid) != os.getuid():
        raise PermissionError(f"{folder} belongs to user {owner}")
    return f"sqlite:///{quote(str(folder / NAME))}?timeout={TIMEOUT}"
