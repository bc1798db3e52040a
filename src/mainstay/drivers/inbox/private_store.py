"""Whether a store is one user's private file, and whose.

The owner of such a file can write whatever it holds: an account would keep nothing from them. A
server, a file that others can open, and a platform without owners of files need an operator.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstay.ports import Store

_OTHERS = 0o077
"""Bits of group and others in the mode of a file."""


def private_owner(store: Store) -> str:
    """Who this process runs as, `os:NAME`, if the store is a file that only they can open.

    No operator has such a name: it has a colon. Empty if the store is no private file.

    >>> from mainstay.stores.memory import MemoryStore
    >>> private_owner(MemoryStore())
    ''
    """
    path = getattr(store, "path", "")
    if not path or path == ":memory:" or not hasattr(os, "getuid"):
        return ""
    try:
        from pathlib import Path  # when it is needed: it takes a moment to load

        file, folder = Path(path).stat(), Path(path).absolute().parent.stat()
    except OSError:
        return ""
    is_file = stat.S_ISREG(file.st_mode) and file.st_uid == os.getuid()
    is_private = is_file and (_is_closed(file) or _is_closed(folder))
    return f"os:{_user()}" if is_private else ""


def _is_closed(found: os.stat_result) -> bool:
    """Whether it is ours, and closed to the group and to others."""
    return found.st_uid == os.getuid() and not found.st_mode & _OTHERS


def _user() -> str:
    """The user by the system's own table: the environment may name anybody."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
