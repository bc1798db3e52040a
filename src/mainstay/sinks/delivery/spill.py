"""Keeps on disk what could not be delivered: a folder per process, a file per batch, in order.

A file is written once, delivered as one batch, and deleted. A running process holds the lock of its
folder; the next process with the same destination takes over the folders of processes that ended.
A process killed between delivering and deleting leaves a batch that is delivered twice.

Only what this user has written is delivered: folders and files must be this user's own
(runtime/private_files.py), and each line must have this user's seal (seal.py).
"""

from __future__ import annotations

import errno
import os
import re
import sys
from collections import deque
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from msgspec import Struct

from mainstay.core.events.encode import encode
from mainstay.runtime.filelock import try_lock
from mainstay.runtime.private_files import (
    NotPrivateError,
    check_own_folder,
    check_private,
    create_anew,
    make_private,
    open_private,
    private_folders,
    read_private,
)
from mainstay.sinks.delivery.seal import Seal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainstay.core.base.event import Event

LOCK = "lock"
_SHA256 = "_sha2" if sys.version_info >= (3, 12) else "_sha256"
LARGEST = 256 << 20
"""The most bytes of a file."""
LEVELS = 3
"""The levels of a destination's folder that are ours: `mainstay`, `spill`, its own."""


class Spill:
    """The files of one destination.

    Args:
        name: the destination's name; its hash is part of the folder's, so that no event goes to
            another destination.
        folder: where to keep them; None for the user's own state folder, or a temporary one.
    """

    def __init__(self, name: str, folder: str | os.PathLike[str] | None = None) -> None:
        self._name = name
        self._found: list[Path] = []
        self._is_named = folder is not None
        self._seal = Seal(self._homes_in(folder)[0] if self._is_named else None)
        self._own: Path | None = None
        self._locks: dict[Path, int] = {}
        self.pending: deque[Path] = deque()
        """What is to be delivered, oldest first."""
        self.refused: dict[str, NotPrivateError] = {}
        """Folders that another user could have put there, by path."""

    @property
    def _homes(self) -> list[Path]:
        """The folders of the destination, the best one first; looked for when one is needed."""
        return self._found or self._homes_in(None)

    def _homes_in(self, folder: str | os.PathLike[str] | None) -> list[Path]:
        self._found = [each / _safe(self._name) for each in spill_folders(folder)]
        return self._found

    @property
    def where(self) -> str:
        """The folder, for messages."""
        return str(self._own or self._homes[0])

    def take_over(self) -> list[Path]:
        """Finds the files of processes that are gone, and makes them ours."""
        found: list[Path] = []
        for home in self._homes:
            refused: list[NotPrivateError] = []
            folders = own_folders(home, is_named=self._is_named, refused=refused)
            self.refused |= {each.filename: each for each in refused}
            for folder in sorted(folders, key=_age):
                if folder not in self._locks and self._is_ours_now(folder):
                    files = sorted(folder.glob("*.jsonl"))
                    found += files
                    if not files:
                        self._leave(folder)
        self.pending.extendleft(reversed(found))
        return found

    def write(
        self, events: Iterable[Event], number: int, *, first: bool = False
    ) -> tuple[Path, int]:
        """Writes a batch; its file, and how many events had no written form.

        Raises OSError where the disk refuses; then there is no file.
        """
        lines, lost = _encoded(events)
        path = self._folder() / f"{number:012d}.jsonl"
        data = self._seal.seal(path, lines)
        if len(data) > LARGEST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
        try:
            with os.fdopen(create_anew(path), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
        (self.pending.appendleft if first else self.pending.append)(path)
        return path, lost

    def read(self, path: Path) -> list[Event]:
        """The events of a file; the last line may be torn, where its writer was killed.

        Raises:
            NotPrivateError: it is no regular file of this user's alone, or too large.
            NotSealedError: it is not sealed by this user.
        """
        from mainstay.core.events.codec import decode  # loads every event there is; few have files

        return [decode(line) for line in self._seal.lines(path, read_private(path, LARGEST))]

    def done(self, path: Path) -> None:
        """Deletes a file that was delivered, and its folder after the last one."""
        with suppress(ValueError):
            self.pending.remove(path)
        with suppress(OSError):  # what cannot be deleted is delivered again by the next process
            path.unlink()
        self._leave_if_done(path.parent)

    def set_aside(self, path: Path) -> Path:
        """Renames a file that cannot be read, for an operator; its new path."""
        aside = path.with_suffix(".bad")
        with suppress(OSError):
            path.rename(aside)
        with suppress(ValueError):
            self.pending.remove(path)
        self._leave_if_done(path.parent)
        return aside

    def forget(self) -> None:
        """Closes everything, as a forked child must: the files are its parent's."""
        for file in self._locks.values():
            with suppress(OSError):
                os.close(file)
        self._locks.clear()
        self.pending.clear()
        self._own = None

    def _folder(self) -> Path:
        """This process's own folder, locked."""
        if self._own is not None:
            with suppress(OSError):  # it was removed, or is another user's by now
                check_own_folder(self._own)
                return self._own
        self._own = self._new_folder()
        return self._own

    def _new_folder(self) -> Path:
        refusal: OSError | None = None
        for home in self._homes:
            folder = home / f"{os.getpid()}-{uuid4().hex[:12]}"
            try:
                make_private(home, 1 if self._is_named else LEVELS, is_named=self._is_named)
                folder.mkdir(mode=0o700)
                if self._is_ours_now(folder):
                    return folder
            except OSError as error:
                refusal = error
        raise refusal or OSError(f"{self.where} is locked by another process")

    def _is_ours_now(self, folder: Path) -> bool:
        """Takes the lock of a folder, unless its owner still runs."""
        try:
            file = open_private(folder / LOCK, os.O_RDWR | os.O_CREAT)
        except OSError:  # another process has removed it
            return False
        if try_lock(file) and (folder / LOCK).exists():
            self._locks[folder] = file
            return True
        os.close(file)
        return False

    def _leave_if_done(self, folder: Path) -> None:
        if folder not in (each.parent for each in self.pending):
            self._leave(folder)

    def _leave(self, folder: Path) -> None:
        """Removes an empty folder; one with a file that was set aside stays."""
        file = self._locks.pop(folder, None)
        with suppress(OSError):
            (folder / LOCK).unlink()
        with suppress(OSError):
            folder.rmdir()
        if file is not None:
            os.close(file)
        if folder == self._own:
            self._own = None


class Spilled(Struct, frozen=True):
    """What waits on disk for one destination."""

    where: str
    files: int
    size: int
    """Bytes."""
    oldest: float
    """When the oldest file was written, in seconds since 1970."""
    aside: int
    """Files that could not be read, and wait for a person."""


def spilled(folder: str | os.PathLike[str] | None = None) -> list[Spilled]:
    """What waits on disk, of every destination; nothing is touched.

    Args:
        folder: where to look; None for the default folders of Spill.
    """
    found: list[Spilled] = []
    for each in spill_folders(folder):
        for home in homes_in(each, is_named=folder is not None, refused=[]):
            here = _spilled_in(home, is_named=folder is not None)
            found += [] if here is None else [here]
    return found


def _spilled_in(home: Path, *, is_named: bool) -> Spilled | None:
    stats = []
    for folder in own_folders(home, is_named=is_named, refused=[]):
        for path in spill_files(folder):
            with suppress(OSError):  # delivered at this very moment
                stats.append((path.suffix, path.lstat()))
    if not stats:
        return None
    aside = sum(suffix == ".bad" for suffix, _ in stats)
    size = sum(stat.st_size for _, stat in stats)
    oldest = min(stat.st_mtime for _, stat in stats)
    return Spilled(str(home), len(stats) - aside, size, oldest, aside)


def spill_folders(folder: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where the folders of destinations are; None for the user's own places."""
    if folder is not None:
        return [Path(folder).absolute()]
    return [each / "spill" for each in private_folders()]


def homes_in(place: Path, *, is_named: bool, refused: list[NotPrivateError]) -> list[Path]:
    """The folders of destinations; another user's place is not looked into."""
    try:
        if not is_named:
            check_private(place, LEVELS - 1)
    except NotPrivateError as error:
        refused.append(error)
        return []
    except OSError:  # there is none
        return []
    return sorted(_folders_in(place))


def own_folders(home: Path, *, is_named: bool, refused: list[NotPrivateError]) -> list[Path]:
    """The folders of processes in a destination's; those that are not this user's are refused."""
    found = []
    try:
        check_private(home, 1 if is_named else LEVELS, is_named=is_named)
    except NotPrivateError as error:
        refused.append(error)
        return []
    except OSError:  # there is none
        return []
    for each in _folders_in(home):
        try:
            check_own_folder(each)
            found.append(each)
        except NotPrivateError as error:
            refused.append(error)
        except OSError:  # another process has removed it
            continue
    return found


def spill_files(folder: Path) -> list[Path]:
    """The files of a process, with those that were set aside, in order."""
    try:
        return sorted(each for each in folder.iterdir() if each.suffix in (".jsonl", ".bad"))
    except OSError:
        return []


def _encoded(events: Iterable[Event]) -> tuple[list[bytes], int]:
    lines, lost = [], 0
    for event in events:
        try:
            lines.append(encode(event))
        except Exception:  # a value without a written form must not cost the others
            lost += 1
    return lines, lost


def _safe(name: str) -> str:
    """A folder's name for a destination: readable, and unlike any other's."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{words}-{_sha256(name)[:12]}"


def _sha256(text: str) -> str:
    """By a module of Python's own: hashlib loads OpenSSL, and most processes spill nothing."""
    with suppress(ImportError):  # a build without it
        made = import_module(_SHA256).sha256(text.encode())
        return str(made.hexdigest())
    import hashlib

    return hashlib.sha256(text.encode()).hexdigest()


def _folders_in(home: Path) -> list[Path]:
    try:
        return [each for each in home.iterdir() if each.is_dir() or each.is_symlink()]
    except OSError:
        return []


def _age(folder: Path) -> float:
    try:
        return folder.lstat().st_mtime
    except OSError:
        return 0.0
