"""The log of a SQLite file that was replaced: set aside, so that the new file is not read with it.

SQLite finds a log by its name alone. If another file takes the name of an open one, the log of the
old one stays beside it, and the next process to open the new file has the old pages in place of its
own. A process that had the old file open knows its log by the inode. It renames that log before it
opens the new file, and does so once for all processes: under a lock on the log itself, so that no
other log is ever renamed, and while no process has the new file open.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.filelock import lock
from mainstay.runtime.private_files import NotPrivateError, open_beside
from mainstay.runtime.reports.logs import logger

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    Inode = tuple[int, int]

_PATIENCE = 1.0
"""Seconds to wait for another process that sets the same log aside."""
_FIRST, _COUNT = 0x4000_0002, 510
"""The bytes of a file that a connection of SQLite has locked for as long as it is open (WAL)."""
_log = logger()


class LogInUseError(Exception):
    """The log of the old file cannot be set aside; the message has what to do."""


def set_log_aside(file: str, log_inode: Inode, open_files: Container[Inode]) -> None:
    """Renames the log beside a file if it is still the log of the file before.

    A connection to the file before must be open meanwhile: the number of an inode that nobody has
    open is used again.

    Args:
        file: the file that has the name now, if there is one.
        log_inode: of the log of the file before.
        open_files: what this process has open. To open and close such a file would drop its locks.

    Raises:
        LogInUseError: it cannot be set aside, or is a link, a pipe or another thing that is no log.
    """
    log = f"{file}-wal"
    try:
        descriptor = open_beside(Path(log), os.O_RDONLY)
    except NotPrivateError as error:
        raise LogInUseError(_PLANTED.format(error=error)) from None
    except OSError:
        return
    try:
        if _inode(os.fstat(descriptor)) != log_inode:
            return
        if not lock(descriptor, _PATIENCE):
            raise LogInUseError(_ADVICE.format(why="another process has it locked"))
        with suppress(FileNotFoundError):
            if _inode(os.stat(log)) == log_inode:  # noqa: PTH116
                with _nobody_at(file, open_files):
                    _rename(file, log, log_inode)
    finally:
        os.close(descriptor)


def _rename(file: str, log: str, log_inode: Inode) -> None:
    name = f"{log}.replaced.{log_inode[1]}.{SYSTEM.wall():.0f}"
    try:
        os.replace(log, name)  # noqa: PTH105
        with suppress(FileNotFoundError):
            os.unlink(f"{file}-shm")  # noqa: PTH108 -- who still has the old file, has this open
    except OSError as error:
        raise LogInUseError(
            _ADVICE.format(why=f"it cannot be renamed ({error.strerror})")
        ) from None
    _log.warning(
        "%s was deleted or replaced while it was in use; its write-ahead log is kept as %s",
        file,
        name,
    )


@contextmanager
def _nobody_at(file: str, open_files: Container[Inode]) -> Iterator[None]:
    """Keeps others from opening the new file meanwhile; raises if somebody has it open already.

    That one has opened it with the old log, and may have written to it.
    """
    if sys.platform == "win32":
        yield
        return
    import fcntl

    try:
        found = _inode(os.stat(file))  # noqa: PTH116
    except OSError:
        yield
        return
    if found in open_files:
        raise LogInUseError(_ADVICE.format(why=_OPENED))
    descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _COUNT, _FIRST)
        except OSError:
            raise LogInUseError(_ADVICE.format(why=_OPENED)) from None
        yield
    finally:
        os.close(descriptor)


def _inode(found: os.stat_result) -> Inode:
    return found.st_dev, found.st_ino


_PLANTED = (
    "the file was replaced while it was in use, and is not opened with what is beside it: {error}"
)
_OPENED = "a connection has the new file open, and perhaps that log with it"
_ADVICE = (
    "the file was replaced while it was in use, and the write-ahead log of the one before is still"
    " beside it: {why}. End all processes that use it, remove its -wal and -shm, put the copy in"
    " place again, and start them"
)
