"""Keeps on disk what could not be delivered: a folder per process, a file per batch, in order.

A file is written once, delivered as one batch, and deleted. A running process holds the lock of its
folder; the next process with the same destination takes over the folders of processes that ended.
A process killed between delivering and deleting leaves a batch that is delivered twice.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from mainstay.core.events.codec import decode, encode
from mainstay.runtime.filelock import try_lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from mainstay.core.base.event import Event

_LOCK = "lock"


class Spill:
    """The files of one destination.

    Args:
        name: the destination's name; its hash is part of the folder's, so that no event goes to
            another destination.
        folder: where to keep them; None for the user's own state folder, or a temporary one.
    """

    def __init__(self, name: str, folder: str | os.PathLike[str] | None = None) -> None:
        given = [Path(folder)] if folder is not None else list(_state_folders())
        self._homes = [each / _safe(name) for each in given]
        self._is_given = folder is not None
        self._own: Path | None = None
        self._locks: dict[Path, int] = {}
        self.pending: deque[Path] = deque()
        """What is to be delivered, oldest first."""

    @property
    def where(self) -> str:
        """The folder, for messages."""
        return str(self._own or self._homes[0])

    def take_over(self) -> list[Path]:
        """Finds the files of processes that are gone, and makes them ours."""
        found: list[Path] = []
        for home in self._homes:
            for folder in sorted(_folders_in(home), key=_age):
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
        try:
            with open(path, "wb", opener=_private) as file:
                file.write(b"".join(lines))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
        (self.pending.appendleft if first else self.pending.append)(path)
        return path, lost

    def read(self, path: Path) -> list[Event]:
        """The events of a file; the last line may be torn, where its writer was killed."""
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        return [decode(line) for line in whole.splitlines()]

    def done(self, path: Path) -> None:
        """Deletes a file that was delivered, and its folder after the last one."""
        with suppress(ValueError):
            self.pending.remove(path)
        with suppress(OSError):  # what cannot be deleted is delivered again by the next process
            path.unlink()
        if path.parent not in (each.parent for each in self.pending):
            self._leave(path.parent)

    def set_aside(self, path: Path) -> Path:
        """Renames a file that cannot be read, for an operator; its new path."""
        aside = path.with_suffix(".bad")
        with suppress(OSError):
            path.rename(aside)
        with suppress(ValueError):
            self.pending.remove(path)
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
        if self._own is None or not self._own.is_dir():
            self._own = self._new_folder()
        return self._own

    def _new_folder(self) -> Path:
        refusal: OSError | None = None
        for home in self._homes:
            folder = home / f"{os.getpid()}-{uuid4().hex[:12]}"
            try:
                _make_private(home, 1 if self._is_given else 3)
                folder.mkdir(mode=0o700)
                if self._is_ours_now(folder):
                    return folder
            except OSError as error:
                refusal = error
        raise refusal or OSError(f"{self.where} is locked by another process")

    def _is_ours_now(self, folder: Path) -> bool:
        """Takes the lock of a folder, unless its owner still runs."""
        try:
            file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError:  # another process has removed it
            return False
        if try_lock(file) and (folder / _LOCK).exists():
            self._locks[folder] = file
            return True
        os.close(file)
        return False

    def _leave(self, folder: Path) -> None:
        """Removes an empty folder; one with a file that was set aside stays."""
        file = self._locks.pop(folder, None)
        with suppress(OSError):
            (folder / _LOCK).unlink()
        with suppress(OSError):
            folder.rmdir()
        if file is not None:
            os.close(file)
        if folder == self._own:
            self._own = None


class Spilled(NamedTuple):
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
    given = [Path(folder)] if folder is not None else list(_state_folders())
    homes = [home for each in given for home in sorted(_folders_in(each), key=str)]
    return [found for home in homes if (found := _spilled_in(home)) is not None]


def _spilled_in(home: Path) -> Spilled | None:
    files = [path for path in home.glob("*/*") if path.suffix in (".jsonl", ".bad")]
    stats = []
    for path in files:
        with suppress(OSError):  # delivered at this very moment
            stats.append((path.suffix, path.stat()))
    if not stats:
        return None
    aside = sum(suffix == ".bad" for suffix, _ in stats)
    size = sum(stat.st_size for _, stat in stats)
    oldest = min(stat.st_mtime for _, stat in stats)
    return Spilled(str(home), len(stats) - aside, size, oldest, aside)


def _encoded(events: Iterable[Event]) -> tuple[list[bytes], int]:
    lines, lost = [], 0
    for event in events:
        try:
            lines.append(encode(event) + b"\n")
        except Exception:  # a value without a written form must not cost the others
            lost += 1
    return lines, lost


def _safe(name: str) -> str:
    """A folder's name for a destination: readable, and unlike any other's."""
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40]
    return f"{words}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _state_folders() -> Iterator[Path]:
    """Where a user's programs keep their state; else a folder of the user's own for a while."""
    given = os.environ.get("XDG_STATE_HOME") or os.environ.get("LOCALAPPDATA")
    with suppress(RuntimeError):  # the home folder is not known
        yield (Path(given) if given else Path.home() / ".local" / "state") / "mainstay" / "spill"
    user = os.getuid() if hasattr(os, "getuid") else "user"
    yield Path(tempfile.gettempdir()) / f"mainstay-{user}" / "spill"


def _make_private(folder: Path, levels: int) -> None:
    """Creates folders that only their user can read; refuses those of another user."""
    chain = [folder, *folder.parents][:levels]
    chain[-1].parent.mkdir(parents=True, exist_ok=True)
    for each in reversed(chain):
        each.mkdir(mode=0o700, exist_ok=True)
        if hasattr(os, "getuid") and (owner := each.lstat().st_uid) != os.getuid():
            raise PermissionError(f"{each} belongs to user {owner}")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _folders_in(home: Path) -> list[Path]:
    try:
        return [each for each in home.iterdir() if each.is_dir()]
    except OSError:
        return []


def _age(folder: Path) -> float:
    try:
        return folder.stat().st_mtime
    except OSError:
        return 0.0
