"""By how much calls pass their deadline, beside a bare wait of the same length at the same time.

A process of its own does nothing but sleep for that long, again and again, and notes by how much it
is late: that is what the machine adds, and no client can do better. A row has the 99th percentile
of a client; its note has the median, that of the bare wait meanwhile, and what is beyond it. The
spread is that of five parts of the run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.measure import reason
from bench.table import Row, at_most

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GOAL = at_most(50.0)
PARTS = 5
_WAIT = """
import sys, time
seconds = float(sys.argv[1])
with open(sys.argv[2], "a", buffering=1) as file:
    while True:
        began = time.perf_counter()
        time.sleep(seconds)
        now = time.perf_counter()
        file.write(f"{now} {now - began - seconds}\\n")
"""


class Lateness:
    """The rows of a table, and the bare wait that runs beside it."""

    def __init__(self, file: Path) -> None:
        self.rows: list[Row] = []
        self._file = file
        self._beyond: list[float] = []

    def measure(self, what: str, call: Callable[[], list[float]]) -> None:
        """A row: `call` gives by how many seconds each of its calls was late."""
        began = time.perf_counter()
        try:
            late = call()
        except Exception as error:
            self.rows.append(Row(what, None, GOAL, "ms", note=reason(error)))
            return
        bare = p99(self._bare(began))
        self._beyond.append(p99(late) - bare)
        note = (
            f"median {median(late) * 1e3:.3g} ms; a bare wait {bare * 1e3:.3g} ms,"
            f" {(p99(late) - bare) * 1e3:.3g} ms beyond it"
        )
        self.rows.append(Row(what, p99(late) * 1e3, GOAL, "ms", spread(late), note))

    def finish(self) -> list[Row]:
        """The rows, and what the client that is furthest beyond the bare wait adds to it."""
        if self._beyond:
            what = "the largest beyond a bare wait at the same time"
            self.rows.append(Row(what, max(self._beyond) * 1e3, GOAL, "ms"))
        return self.rows

    def _bare(self, began: float) -> list[float]:
        """Of the waits that ended since then; one at least."""
        found: list[float] = []
        while not found:
            lines = self._file.read_text(encoding="utf-8").splitlines()
            pairs = [line.split() for line in lines]
            found = [float(late) for at, late in pairs if float(at) >= began]
            time.sleep(0 if found else 0.05)
        return found


@contextmanager
def beside_a_bare_wait(seconds: float) -> Iterator[Lateness]:
    """Measures while the other process waits."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "late"
        file.touch()
        command = [sys.executable, "-c", _WAIT, str(seconds), str(file)]
        with subprocess.Popen(command) as process:
            try:
                yield Lateness(file)
            finally:
                process.kill()


def p99(late: list[float]) -> float:
    """The 99th percentile.

    >>> p99([float(number) for number in range(101)])
    99.0
    """
    return sorted(late)[int(0.99 * (len(late) - 1))]


def spread(late: list[float]) -> float | None:
    """How far the parts of a run disagree on the percentile, as a share of it.

    >>> spread([1.0, 1.0, 1.0, 1.0, 2.0])
    1.0
    """
    size = len(late) // PARTS
    if size == 0:
        return None
    each = [p99(late[number * size : (number + 1) * size]) for number in range(PARTS)]
    middle = median(each)
    return (max(each) - min(each)) / middle if middle > 0 else None  # some ended before it
