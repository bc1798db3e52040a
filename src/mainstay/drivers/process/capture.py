"""What a command wrote, in order and by stream: kept to be replayed, up to a limit.

The tape is spooled to disk, so that it costs little memory while the command runs. Its form is a
row of frames: the stream (1 or 2), the length as four bytes, the bytes. What is too long, or finds
no room on the disk, is not kept at all: half an output would be taken for the whole.
"""

from __future__ import annotations

import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

KEPT = 8 * 1024 * 1024
"""Bytes that are kept unless the options have another number."""
IN_MEMORY = 256 * 1024
_HEAD = struct.Struct(">BI")


class Tape:
    """Takes down what is written; `lost` is why nothing was kept.

    >>> tape = Tape()
    >>> tape.add(1, b"one"); tape.add(2, b"oops")
    >>> list(frames(tape.taken()))
    [(1, b'one'), (2, b'oops')]
    """

    def __init__(self, limit: int = KEPT, spool: Callable[[], IO[bytes]] | None = None) -> None:
        self.limit = limit
        self.lost = ""
        self._size = 0
        self._spool = (spool or _spool)()
        self._lock = threading.Lock()

    def add(self, stream: int, data: bytes) -> None:
        """Takes down what was written to a stream; never raises."""
        with self._lock:
            if self.lost:
                return
            self._size += _HEAD.size + len(data)
            if self._size > self.limit:
                self._lose_locked(f"it was longer than {self.limit} bytes")
                return
            try:
                self._spool.write(_HEAD.pack(stream, len(data)))
                self._spool.write(data)
            except OSError as error:
                self._lose_locked(f"it could not be kept: {error.strerror}")

    def _lose_locked(self, why: str) -> None:
        self.lost = why
        self._close()

    def lose(self, why: str) -> None:
        """Keeps nothing: what was taken down is not all there was."""
        with self._lock:
            if not self.lost:
                self._lose_locked(why)

    def taken(self) -> bytes:
        """All of it, and the end of the tape; nothing if it was lost."""
        with self._lock:
            if self.lost:
                return b""
            try:
                self._spool.seek(0)
                return self._spool.read()
            except OSError as error:
                self.lost = f"it could not be kept: {error.strerror}"
                return b""
            finally:
                self._close()

    def close(self) -> None:
        """Lets go of what was not taken."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        try:
            self._spool.close()
        except OSError:  # a full disk shows here too
            return


def _spool() -> IO[bytes]:
    import tempfile  # few keep output; it loads shutil, which loads every compression

    return tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)


def frames(tape: bytes) -> Iterator[tuple[int, bytes]]:
    """The frames of a tape: stream and bytes."""
    at = 0
    while at < len(tape):
        stream, length = _HEAD.unpack_from(tape, at)
        at += _HEAD.size
        yield stream, tape[at : at + length]
        at += length


def stream_of(tape: bytes, stream: int) -> bytes:
    """All that was written to one stream.

    >>> tape = Tape()
    >>> tape.add(1, b"a"); tape.add(2, b"b"); tape.add(1, b"c")
    >>> stream_of(tape.taken(), 1)
    b'ac'
    """
    return b"".join(data for which, data in frames(tape) if which == stream)
