"""The file that telemetry is added to, by several processes at once.

Each adds what is new under a lock, to what the file holds by then, and puts a whole new file in
the old one's place. A process that is killed meanwhile leaves the last whole file, and no lock.
A new file can be read by this user alone; one that others may read stays so. The path may be a
link if a user has named it, what stands beside it (`.lock`, `.new`) may not.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

import msgspec

from mainstay.core.telemetry.record import Telemetry, decode, encode, merged
from mainstay.errors import UsageError
from mainstay.runtime.filelock import lock, unlock
from mainstay.runtime.private_files import create_anew, open_beside, read_beside, read_regular

_PATIENCE = 5.0
"""Seconds to wait for the other processes; each needs milliseconds."""


def add_to_file(path: Path, new: Telemetry, most: int, *, is_named: bool = True) -> None:
    """Adds telemetry to a file, which is created if it does not exist.

    `is_named` as for `telemetry_in`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.lock")
    guard = open_beside(beside, os.O_RDWR | os.O_CREAT)
    try:
        if not lock(guard, _PATIENCE):
            raise TimeoutError(f"{beside} was held by another process for {_PATIENCE:g} s")
        try:
            before = telemetry_in(path, is_named=is_named) if path.exists() else Telemetry()
            _replace(path, encode(merged(before, new, most)))
        finally:
            unlock(guard)  # a child that was forked meanwhile has the file open, too
    finally:
        os.close(guard)


def read_telemetry(path: str | os.PathLike[str]) -> Telemetry:
    """The telemetry in a file.

    Raises:
        UsageError: it holds something else.
        OSError: it cannot be read, is no regular file, or is larger than 512 MB.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "telemetry.json")
    >>> add_to_file(path, Telemetry(), most=10)
    >>> read_telemetry(path).records
    []
    """
    return telemetry_in(Path(path), is_named=True)


def telemetry_in(path: Path, *, is_named: bool) -> Telemetry:
    """The telemetry in a file.

    Args:
        path: the file.
        is_named: whether a user has named it. Otherwise it must be this user's or root's, no link.
    """
    try:
        return decode(read_regular(path) if is_named else read_beside(path, is_named=False))
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"{path} holds no telemetry that this version reads: {error}",
            hint="give another path, or move that file",
        ) from error


def _replace(path: Path, data: bytes) -> None:
    """Puts a whole new file in place; its name is the same each time, so that none pile up."""
    draft = path.with_name(f"{path.name}.new")
    with os.fdopen(create_anew(draft), "wb") as file:
        with suppress(FileNotFoundError, AttributeError):  # it is new; Windows has no fchmod
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode) & 0o666)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
