"""Carries a command's output: from a pipe, to a stream of ours and to a tape, as it comes.

A thread for each stream, so that one that is not read does not hold up the other. What cannot be
written any more closes the pipe: the command then meets what it would have met without us.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mainstay.drivers.process.capture import Tape

_MOST = 65_536
"""Bytes carried at once: what a pipe holds on Linux."""
_POLL = 100
"""Milliseconds after which a stream that has no room is looked at again."""


class Pump(threading.Thread):
    """Carries one stream until its end, or until `stop` states that no process writes any more.

    Args:
        source: the pipe to read.
        stream: 1 or 2, as the tape has it.
        target: the descriptor to write to; None for the tape alone.
        tape: what takes it down.
    """

    def __init__(self, source: int, stream: int, target: int | None, tape: Tape) -> None:
        super().__init__(name=f"mainstay-output-{stream}", daemon=True)
        self.error: OSError | None = None
        self._source = source
        self._stream = stream
        self._target = target
        self._tape = tape
        self._stop_reader, self._stop_writer = os.pipe()
        self._is_over = False

    def run(self) -> None:
        try:
            while (data := self._next()) and not self._is_over:
                self._tape.add(self._stream, data)
                self._pass_on(data)
        except OSError as error:
            self.error = error
            self._tape.lose(f"it was cut off: {error.strerror}")
        finally:
            os.close(self._source)

    def _next(self) -> bytes:
        """What comes next; nothing at the end, or if no process is left that could write."""
        if os.name != "nt":
            import select

            look = select.poll()
            look.register(self._source, select.POLLIN)
            look.register(self._stop_reader, select.POLLIN)
            ready = [descriptor for descriptor, _ in look.poll()]
            if self._source not in ready:
                return b""
        return os.read(self._source, _MOST)

    def _pass_on(self, data: bytes) -> None:
        if self._target is None:
            return
        left = memoryview(data)
        while left and not self._is_over:
            try:
                left = left[os.write(self._target, left) :]
            except BlockingIOError:  # a process that shares our stream made it so
                self._await_room(self._target)

    def _await_room(self, target: int) -> None:
        import select

        look = select.poll()
        look.register(target, select.POLLOUT)
        look.poll(_POLL)

    def finish(self, patience: float | None) -> None:
        """Carries what is still in the pipe; past its patience, lets the rest go."""
        os.close(self._stop_writer)
        self.join(patience)
        if self.is_alive():  # the reader of our output does not
            self._is_over = True
            self._tape.lose("nobody read it in time")
            return
        os.close(self._stop_reader)
