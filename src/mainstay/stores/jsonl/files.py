"""The file an audit log is written to: its known end, and what a killed writer left behind."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from io import BufferedReader, FileIO
from typing import TYPE_CHECKING

from mainstay.core.audit.chain import Tail
from mainstay.runtime.fork import PROCESS
from mainstay.runtime.private_files import create_anew, open_regular
from mainstay.stores.jsonl.lines import (
    Reader,
    anchor_line,
    gap_hash,
    start_before,
    tail_after,
)
from mainstay.stores.jsonl.torn import torn_line

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any, BinaryIO

_BUFFER = 256 * 1024
"""Bytes that are read at once."""


class _Bounded(FileIO):
    """A file as long as it was when it was opened."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, opener=open_regular)
        self.size = os.fstat(self.fileno()).st_size

    def readinto(self, buffer: Any, /) -> int:
        left = max(0, self.size - self.tell())
        return super().readinto(memoryview(buffer)[:left])


class Snapshot(BufferedReader):
    """A file to read while others append: nothing that is appended later is seen.

    Else a reader could see the beginning of a write as the end of the file, and then more of it.

    Attributes:
        size: how long the file was when it was opened.
    """

    def __init__(self, path: Path) -> None:
        bounded = _Bounded(path)
        super().__init__(bounded, _BUFFER)
        self.size = bounded.size


class JournalFile:
    """The file that is written to, and its end as far as it was read."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None
        self._pid = 0
        self.tail = Tail()
        self.end = 0
        self._gap_from: int | None = 0
        self._awaits_head = False
        self._is_torn = True
        """Whether all that was read last is what killed writers left."""

    def open(self, path: Path, *, ends: Tail | None = None) -> None:
        """Opens the file if it is not open, and reads what others have appended."""
        if ends is not None or self._file is None or self._is_another(path):
            self.forget()
            if ends is not None:
                _begin(path, ends)
            flags = os.O_RDWR | os.O_APPEND | os.O_CREAT
            self._file = os.fdopen(open_regular(str(path), flags), "rb+", buffering=_BUFFER)
            self._pid = PROCESS.pid
        self._catch_up()

    def forget(self) -> None:
        """Closes the file; a parent's is not a child's to close."""
        file, self._file = self._file, None
        self.tail, self.end, self._gap_from = Tail(), 0, 0
        self._awaits_head = False
        if file is not None:
            with suppress(OSError):
                file.close()

    def __del__(self) -> None:
        self.forget()

    def tail_to_seal(self) -> Tail:
        """The tail, with the hash of what stands behind the last block."""
        assert self._file is not None
        start = self.end if self._gap_from is None else self._gap_from
        gap = gap_hash(self._file, start, self.end, awaits_head=self._awaits_head)
        return self.tail._replace(gap=gap)

    def append(self, data: bytes, tail: Tail, *, syncs: bool) -> None:
        """Appends a block and its head, or a head; where the log ends then."""
        self.write(data, syncs=syncs)
        if tail.block != self.tail.block:
            self._gap_from, self._awaits_head = self.end, False
        self.tail = tail

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
            # it was truncated: read it from the start
            self.tail, self.end, self._gap_from = Tail(), 0, 0
            self._awaits_head = False
        start = self.end or start_before(self._file, size)
        self._follow(start, self.tail if self.end else None)
        if start and not self.tail.block:
            self._follow(0, None)
        if self.end and not self.tail.block and not self._is_torn:
            raise OSError(errno.EINVAL, "the file holds something else than an audit log")
        if self.end < size:
            self._file.seek(size - 1)
            ends_a_line = self._file.read(1) == b"\n"
            self._mark(size - self.end, ends_a_line)
        elif self._awaits_head and self._gap_from == self.end:
            self._mark(0, ends_a_line=True)

    def _follow(self, start: int, tail: Tail | None) -> None:
        assert self._file is not None
        reader = Reader(self._file, start, tail)
        if tail is not None:
            reader.gap_from, reader.awaits_head = self._gap_from, self._awaits_head
        self._is_torn = True
        for found in reader:
            self.tail = tail_after(found, self.tail)
            self._is_torn = self._is_torn and bool(found.torn)
        self.end = reader.end
        self._gap_from, self._awaits_head = reader.gap_from, reader.awaits_head

    def _mark(self, count: int, ends_a_line: bool) -> None:
        """Marks what is torn; a line break that the mark brings counts with it."""
        assert self._file is not None
        torn_from, self.end = self.end, os.fstat(self._file.fileno()).st_size
        try:
            mark = torn_line(count + (not ends_a_line), ends_a_line=ends_a_line)
            self.write(mark, syncs=False)
        except BaseException:
            self.end = torn_from
            raise


def _begin(path: Path, ends: Tail) -> None:
    """Makes a file that goes on from another one; it is there with its first line, or not at all.

    The path is free, or an empty file is there.
    """
    begun = path.with_name(f"{path.name}.new")
    with os.fdopen(create_anew(begun), "wb") as file:
        file.write(anchor_line(ends))
        file.flush()
        os.fsync(file.fileno())
    begun.replace(path)
