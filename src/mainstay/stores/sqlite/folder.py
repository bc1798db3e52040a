"""Whether a folder is as it was, at the cost of one call of the system without a path.

To look a path up costs a step two microseconds, and nothing changes what a path leads to without a
new time of change of its folder. So the path is looked up again only if that time is another one.
"""

from __future__ import annotations

import os
from os import fstat
from pathlib import Path
from time import time_ns

_SECOND = 1_000_000_000
_SETTLED = _SECOND // 10
"""Nanoseconds after which a time of change is final: the system's clock ticks every 1 to 10 ms."""
_COARSE = 5 * _SECOND // 2
"""The same for a file system that counts in whole seconds, or in two."""


class WatchedFolder:
    """The folder of a file, open; without a file, or behind a symbolic link, it is never trusted.

    >>> import tempfile
    >>> folder = WatchedFolder(tempfile.mkstemp()[1])
    >>> folder.is_as_before()
    False
    >>> folder.close()
    """

    __slots__ = ("_number", "_seen", "_trusted")

    def __init__(self, file: str | None) -> None:
        self._number: int | None = None
        self._seen = self._trusted = 0
        if file is not None and hasattr(os, "O_DIRECTORY") and os.path.realpath(file) == file:
            try:
                self._number = os.open(Path(file).parent, os.O_RDONLY | os.O_DIRECTORY)
            except OSError:  # it may be searched and not read: the path is looked up each time
                self._number = None

    def is_as_before(self) -> bool:
        """Whether no file of the folder was created, renamed or deleted since it was trusted."""
        if self._number is None:
            return False
        self._seen = seen = fstat(self._number).st_mtime_ns
        return seen == self._trusted

    def trust(self) -> None:
        """The path was looked up after `is_as_before`, and is right."""
        seen = self._seen
        age = _SETTLED if seen % _SECOND else _COARSE
        self._trusted = seen if time_ns() - seen > age else 0

    def close(self) -> None:
        """Closes it; a second call does nothing."""
        number, self._number = self._number, None
        if number is not None:
            os.close(number)

    def __del__(self) -> None:
        self.close()
