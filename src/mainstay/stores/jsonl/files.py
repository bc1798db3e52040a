"""The file an audit log is written to: its known end, and what a killed writer left behind."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import TYPE_CHECKING

from mainstay.core.audit.chain import Tail
from mainstay.runtime.fork import PROCESS
from mainstay.stores.jsonl.lines import Reader, anchor_line, start_before, tail_after, torn_line

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO


class JournalFile:
    """The file that is written to, and its end as far as it was read."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._pid = 0
        self.tail = Tail()
        self.end = 0

    def open(self, path: Path, *, ends: Tail | None = None) -> None:
        """Opens the file if it is not open, and reads what others have appended."""
        if self._file is None or self._is_another(path):
            self.forget()
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._file = os.fdopen(os.open(path, flags, 0o600), "rb+", buffering=256 * 1024)
            self._pid = PROCESS.pid
        self._catch_up()
        if ends is not None and not self.end:
            self.write(anchor_line(ends), syncs=False)
            self.tail = ends

    def forget(self) -> None:
        """Closes the file; a parent's is not a child's to close."""
        file, self._file = self._file, None
        self.tail, self.end = Tail(), 0
        if file is not None:
            with suppress(OSError):
                file.close()

    def __del__(self) -> None:
        self.forget()

    def write(self, data: bytes, *, syncs: bool) -> None:
        """Appends bytes; if the disk refuses, as far as possible none of them."""
        assert self._file is not None
        number, left = self._file.fileno(), memoryview(data)
        try:
            while left:
                left = left[os.write(number, left) :]
        except OSError:
            with suppress(OSError):  # else the next writer marks it as torn
                os.ftruncate(number, self.end)
            raise
        if syncs:
            os.fsync(number)
        self.end += len(data)

    def _is_another(self, path: Path) -> bool:
        """Whether another process has rotated the file, or this is a forked child."""
        assert self._file is not None
        if self._pid != PROCESS.pid:
            return True
        mine = os.fstat(self._file.fileno())
        try:
            now = path.stat()
        except FileNotFoundError:
            return True
        return (mine.st_ino, mine.st_dev) != (now.st_ino, now.st_dev)

    def _catch_up(self) -> None:
        """Reads what was appended since, and marks what a killed writer left behind."""
        assert self._file is not None
        size = os.fstat(self._file.fileno()).st_size
        if size == self.end:
            return
        if size < self.end:
            self.tail, self.end = Tail(), 0  # it was truncated: read it from the start
        start = self.end or start_before(self._file, size)
        self._follow(start, self.tail.link if self.end else None)
        if start and not self.tail.block:
            self._follow(0, None)
        if self.end and not self.tail.block:
            raise OSError(errno.EINVAL, "the file holds something else than an audit log")
        if self.end < size:
            self._file.seek(size - 1)
            ends_a_line = self._file.read(1) == b"\n"
            self._mark(size - self.end, ends_a_line)

    def _follow(self, start: int, link: bytes | None) -> None:
        assert self._file is not None
        reader = Reader(self._file, start, link)
        for found in reader:
            self.tail = tail_after(found, self.tail)
        self.end = reader.end

    def _mark(self, count: int, ends_a_line: bool) -> None:
        """Marks what is torn; a line break that the mark brings counts with it."""
        assert self._file is not None
        number = self._file.fileno()
        os.write(number, torn_line(count + (not ends_a_line), ends_a_line=ends_a_line))
        self.end = os.fstat(number).st_size
