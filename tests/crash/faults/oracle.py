"""The oracle: lines that executions, callers and the injector write to one pipe, in one order.

A line is shorter than PIPE_BUF, so that the kernel writes it whole; it outlives its process. Times
are of CLOCK_MONOTONIC, which is the same in all processes of a machine.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Line:
    """One event: what happened, to which key, in which process."""

    what: str
    at: float
    pid: int
    key: str = ""
    value: str = ""
    more: str = ""


class Pen:
    """Writes lines; also in a forked child."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def write(
        self, what: str, key: str = "", value: str = "", more: str = "", pid: int | None = None,
        at: float | None = None,
    ) -> None:  # fmt: skip
        """One line, by one system call; `at` is the moment that it is about, or now."""
        moment = time.monotonic() if at is None else at
        fields = [what, moment, pid or os.getpid(), key, value, more[:2000]]
        os.write(self.descriptor, json.dumps(fields).encode() + b"\n")


class Oracle:
    """Reads the pipe in a thread, and keeps every line."""

    def __init__(self, log: Path) -> None:
        self.lines: list[Line] = []
        self._log = log
        self._changed = threading.Condition()
        self.descriptor = -1
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """A new pipe, for the processes that are started from now on."""
        reading, self.descriptor = os.pipe()
        os.set_inheritable(self.descriptor, True)
        self.pen = Pen(self.descriptor)
        self._thread = threading.Thread(target=self._read, args=[reading], daemon=True)
        self._thread.start()

    def close(self, within: float) -> bool:
        """Waits until no process has the pipe any more; whether that came in time."""
        os.close(self.descriptor)
        assert self._thread is not None
        self._thread.join(within)
        return not self._thread.is_alive()

    def wait_for(
        self, is_it: Callable[[Line], Any], within: float, since: int = 0, count: int = 1
    ) -> bool:
        """Waits until that many lines since then are so; whether they came in time."""
        until = time.monotonic() + within
        with self._changed:
            while sum(bool(is_it(line)) for line in self.lines[since:]) < count:
                left = until - time.monotonic()
                if left <= 0.0:
                    return False
                self._changed.wait(left)
        return True

    def _read(self, reading: int) -> None:
        with os.fdopen(reading, encoding="utf-8") as pipe, self._log.open("a") as log:
            for text in pipe:
                log.write(text)
                with self._changed:
                    self.lines.append(Line(*json.loads(text)))
                    self._changed.notify_all()
