"""By how much calls pass their deadline, beside a bare wait of the same length at the same time.

A process of its own does nothing but sleep for that long, again and again, and notes by how much it
is late: that is what the machine adds, and no client can do better. A row has the 99th percentile
of a client; its note has the median, that of the bare wait meanwhile, and what is beyond it. Where
Linux counts how long a thread was ready and had no CPU, the note has the percentile without that
time: what is left is the client's own. Waits before the deadline count as well, so it may be more
by as much. The spread is that of five parts of the run.

Calls that wait for a deadline leave the CPU to others. So rows are measured at once, each in a
process of its own: the path of a call is that of a program with one client, and what the processes
take from each other is in the bare wait, too.
"""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from statistics import median

from bench.measure import reason
from bench.table import Row, at_most

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Future
    from threading import Barrier

GOAL = at_most(50.0)
PARTS = 5
AT_ONCE = 6
READY_WITHIN = 120.0
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


class Past(float):
    """The seconds by which a call was late, and for how many of them the thread had no CPU."""

    __slots__ = ("waited",)
    waited: float


class Began:
    """The moment at which a call began, in the thread that makes it."""

    __slots__ = ("_at", "_waited")

    def __init__(self) -> None:
        self._waited = _waits()
        self._at = time.perf_counter()

    def past(self, seconds: float) -> Past:
        """By how much the call is late now, if it had some seconds.

        >>> Began().past(60.0) < 0.0
        True
        """
        past = Past(time.perf_counter() - self._at - seconds)
        past.waited = min(_waits() - self._waited, max(past, 0.0))
        return past


def _waits() -> float:
    """The seconds that this thread has been ready without a CPU; 0 where they are not counted."""
    try:
        return int(_SCHEDSTAT.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


_SCHEDSTAT = Path("/proc/thread-self/schedstat")


class Lateness:
    """The rows of a table, and the bare wait that runs beside it."""

    def __init__(self, file: Path) -> None:
        self.rows: list[Row] = []
        self._file = file
        self._beyond: list[float] = []

    def measure(
        self, calls: Mapping[str, Callable[[], list[float]]], libraries: Sequence[str] = ()
    ) -> None:
        """A row for each: a call gives by how many seconds each of its calls was late.

        What is imported at first would be taken for lateness by the processes beside it, so no row
        begins before every process has imported the libraries.
        """
        size = min(AT_ONCE, len(calls))
        spawn = multiprocessing.get_context("spawn")
        ready = (spawn.Barrier(size), libraries)
        with ProcessPoolExecutor(size, spawn, initializer=_import_all, initargs=ready) as pool:
            rows = {what: pool.submit(_timed, call) for what, call in calls.items()}
            self.rows += [self._row(what, timed) for what, timed in rows.items()]

    def _row(self, what: str, timed: Future[tuple[float, list[float], float]]) -> Row:
        try:
            began, late, ended = timed.result()
        except Exception as error:
            return Row(what, None, GOAL, "ms", note=reason(error))
        bare = p99(self._bare(began, ended))
        self._beyond.append(p99(late) - bare)
        note = (
            f"median {median(late) * 1e3:.3g} ms; a bare wait {bare * 1e3:.3g} ms,"
            f" {(p99(late) - bare) * 1e3:.3g} ms beyond it"
        )
        if any(getattr(each, "waited", 0.0) for each in late):
            own = p99([each - getattr(each, "waited", 0.0) for each in late])
            note += f"; without waits for a CPU {own * 1e3:.3g} ms"
        return Row(what, p99(late) * 1e3, GOAL, "ms", spread(late), note)

    def finish(self) -> list[Row]:
        """The rows, and what the client that is furthest beyond the bare wait adds to it."""
        if self._beyond:
            what = "the largest beyond a bare wait at the same time"
            self.rows.append(Row(what, max(self._beyond) * 1e3, GOAL, "ms"))
        return self.rows

    def _bare(self, began: float, ended: float) -> list[float]:
        """Of the waits that ended meanwhile; if none did, of the next."""
        found: list[float] = []
        while not found:
            lines = self._file.read_text(encoding="utf-8").splitlines()
            pairs = [(float(at), float(late)) for at, late in map(str.split, lines)]
            after = [late for at, late in pairs if at > ended]
            found = [late for at, late in pairs if began <= at <= ended] or after[:1]
            time.sleep(0 if found else 0.05)
        return found


def _import_all(ready: Barrier, libraries: Sequence[str]) -> None:
    for each in libraries:
        try:
            import_module(each)
        except ImportError:  # its row says so
            continue
    ready.wait(READY_WITHIN)


def _timed(call: Callable[[], list[float]]) -> tuple[float, list[float], float]:
    """The clock is that of the bare wait: on Linux one for all processes."""
    began = time.perf_counter()
    late = call()
    return began, late, time.perf_counter()


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
