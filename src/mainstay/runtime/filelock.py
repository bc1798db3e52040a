"""A lock on an open file, which the system drops when its owner is gone, however it went.

Two rooms need it: sinks, to find the files of dead processes; and stores, to let one process at a
time append to a file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mainstay.runtime.clock import SYSTEM

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE = 0.002
"""Seconds between two tries to take a lock that is taken."""


def try_lock(file: int) -> bool:
    """Takes the lock of an open file, if it is free.

    >>> import os, tempfile
    >>> with tempfile.NamedTemporaryFile() as file, open(file.name) as other:
    ...     try_lock(file.fileno()), try_lock(other.fileno())
    (True, False)
    """
    try:
        _take()(file)
    except OSError:
        return False
    return True


def lock(file: int, timeout: float) -> bool:
    """Waits for the lock, in real time; whether it was had.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as file:
    ...     lock(file.fileno(), 1.0)
    True
    """
    end = SYSTEM.monotonic() + timeout
    while not try_lock(file):
        if SYSTEM.monotonic() >= end:
            return False
        SYSTEM.sleep(_PAUSE)
    return True


def unlock(file: int) -> None:
    """Lets go of the lock."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]
    else:
        fcntl.flock(file, fcntl.LOCK_UN)


def _take() -> Callable[[int], None]:
    """The system's way to take a lock without waiting."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        return lambda file: msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    return lambda file: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
