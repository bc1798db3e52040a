"""The folder of a file, watched at the cost of one call of the system without a path.

To look a path up costs a step two microseconds, and no name in a folder is changed without a new
time of change of the folder. So the path is looked up again only if that time is another one: the
one that no program can set (`st_ctime_ns`), since a backup that is restored sets the other one back
(`st_mtime_ns`). A folder further up that is renamed shows in neither, so nothing is trusted for
longer than `TRUST` seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import time_ns

TRUST = 0.05
"""Seconds after which the path is looked up in any case."""
_SECOND = 1_000_000_000
_SETTLED = _SECOND // 10
"""Nanoseconds after which a time of change is final: the system's clock ticks every 1 to 10 ms."""
_COARSE = 5 * _SECOND // 2
"""The same for a file system that counts in whole seconds, or in two."""


def open_folder(file: str | None) -> int | None:
    """A descriptor of the folder; None without a file, or if the path must be looked up each time.

    A path with a symbolic link may change without its folder.

    >>> open_folder(None) is None
    True
    """
    if file is None or not hasattr(os, "O_DIRECTORY") or os.path.realpath(file) != file:
        return None
    try:
        return os.open(Path(file).parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:  # it may be searched and not read
        return None


def trusted(changed: int) -> int:
    """The time of change, if a later change would have another one; else 0.

    >>> trusted(1_000_000_001), trusted(time_ns())
    (1000000001, 0)
    """
    age = _SETTLED if changed % _SECOND else _COARSE
    return changed if time_ns() - changed > age else 0
