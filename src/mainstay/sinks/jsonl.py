"""Events in a file, one line of JSON each; several processes may append to the same one.

A writer holds the lock of a file beside it, for one batch: lines are whole, and one process at a
time rotates files. A line that a killed process left half is ended, not mended.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from mainstay.core.base.validate import Checker
from mainstay.core.events.encode import encode
from mainstay.runtime.filelock import lock, unlock
from mainstay.runtime.private_files import open_beside
from mainstay.sinks.delivery.base import BufferedSink

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mainstay.core.base.event import Event
    from mainstay.core.base.types import Seconds

_OPEN = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
_PATIENCE = 5.0
"""Seconds to wait for another process that writes."""


class JsonlSink(BufferedSink):
    """Appends events to a file, as `mainstay.events.decode` reads them again.

    Args:
        path: the file; its folder is created if it does not exist.
        rotate: bytes after which a new file is begun; the old one is then `path.1`.
        keep: how many old files there are at most.
        fsync: whether each batch is on the disk, and not just with the system, before it counts.
        successes: whether calls that succeed at the first attempt are written too.
        spill: the folder for what cannot be written for now; False for none.
        timeout: seconds that `flush` and a strict sink wait.
        strict: a call fails with SinkError if its event was not written in time.

    >>> import tempfile
    >>> from mainstay import Engine, events
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sink = JsonlSink(f"{folder}/events.jsonl", spill=folder)
    ...     with Engine(sinks=[sink]) as engine:
    ...         done = engine.run("parse", int, "x")
    ...     lines = Path(folder, "events.jsonl").read_text().splitlines()
    >>> [events.decode(line).event_type for line in lines]
    ['attempt_failed', 'call_failed']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        rotate: int | None = None,
        keep: int = 5,
        fsync: bool = False,
        successes: bool = False,
        spill: str | os.PathLike[str] | bool | None = None,
        timeout: Seconds = 5.0,
        strict: bool = False,
    ) -> None:
        check = Checker("JsonlSink")
        if rotate is not None:
            check.count("rotate", rotate, 1 << 50)
        self._keep = check.count("keep", keep, 10_000)
        check.close()
        self.path = Path(path).absolute()
        self._rotate = rotate
        self._fsync = fsync
        super().__init__(
            f"jsonl {self.path}", successes=successes, spill=spill, timeout=timeout, strict=strict
        )

    def _deliver(self, events: list[Event]) -> None:
        data = b"".join(encode(event) + b"\n" for event in events)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._alone():
            self._make_room(len(data))
            file = os.open(self.path, _OPEN, 0o600)
            try:
                _append(file, data)
                if self._fsync:
                    os.fsync(file)
            finally:
                os.close(file)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Holds the lock that all writers of this file share."""
        held = open_beside(self.path.with_name(f"{self.path.name}.lock"), _OPEN)
        try:
            if not lock(held, _PATIENCE):
                raise TimeoutError(f"another process has {self.path} for {_PATIENCE:g} s")
            try:
                yield
            finally:
                unlock(held)  # a child that was forked meanwhile has the file open, too
        finally:
            os.close(held)

    def _make_room(self, size: int) -> None:
        """Begins a new file if this one would grow too large; the oldest is deleted."""
        if self._rotate is None or not self.path.exists():
            return
        present = self.path.stat().st_size
        if not present or present + size <= self._rotate:
            return
        for number in range(self._keep - 1, 0, -1):
            older = Path(f"{self.path}.{number}")
            if older.exists():
                older.replace(f"{self.path}.{number + 1}")
        self.path.replace(f"{self.path}.1")


def _append(file: int, data: bytes) -> None:
    """Writes all of it or nothing; a half line that is there already is ended first."""
    size = os.lseek(file, 0, os.SEEK_END)
    if size:
        os.lseek(file, -1, os.SEEK_END)
        if os.read(file, 1) != b"\n":
            data = b"\n" + data
    left = memoryview(data)
    try:
        while left:
            left = left[os.write(file, left) :]
    except OSError:
        os.ftruncate(file, size)
        raise
