"""Table 19: by how much a keyed call passes its deadline while the store hangs.

Each server is behind the fault proxy, which swallows everything from a moment on; the SQLite file
is locked by another process. The store's own timeout is 30 s. A call begins when the store hangs
already, or the store begins to hang while the function runs: then the outcome cannot be recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.measure import Effort, reason
from bench.sqlite_records import folder
from bench.table import Row, Table, at_most
from mainstay import Engine, MainstayError, RetryPolicy
from mainstay.testing.proxy import FaultProxy

ORDER = 19
IS_LONG = True
DEADLINE, TIMEOUT = 0.5, 30.0
GOAL = at_most(100.0)
CALLERS = 64
_POLICY = RetryPolicy(name="brief", max_attempts=3, deadline=DEADLINE)
_LOCK = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
for line in sys.stdin:
    connection.execute(line.strip())
    print("done", flush=True)
"""


def run(effort: Effort) -> Table:
    """Every store, sync and async, alone and among many."""
    rounds = 3 if effort.is_quick else 12
    rows: list[Row] = []
    for name, opened in _STORES.items():
        with folder() as place:
            place.chmod(0o755)  # PostgreSQL may run as another user
            try:
                with opened(place) as (url, hang, heal):
                    rows += _rows(name, url, hang, heal, rounds)
            except Exception as error:
                rows.append(Row(name, None, GOAL, "ms", note=f"not available: {reason(error)}"))
    method = (
        f"A deadline of {DEADLINE:g} s, a store that hangs, whose own timeout is {TIMEOUT:g} s. The"
        f" 99th percentile of the time past the deadline, of {rounds} rounds."
    )
    return Table("store_hangs", "Deadlines while the store hangs", method, rows)


def _rows(name: str, url: str, hang: Any, heal: Any, rounds: int) -> list[Row]:
    found = []
    for colour, callers, is_last in itertools.product(("sync", "async"), (1, CALLERS), (0, 1)):
        late: list[float] = []
        for _ in range(rounds if callers == 1 else max(1, rounds // 4)):
            with Engine(
                url, policies=[_POLICY], operations={"*": "brief"}, sinks=[], audit=False
            ) as e:
                late += _round(e, colour, callers, hang, is_last=bool(is_last))
                heal()
        where = "at the end" if is_last else "before the claim"
        many = "" if callers == 1 else f", {callers} callers"
        p99 = sorted(late)[int(0.99 * (len(late) - 1))]
        found.append(Row(f"{name}, {colour}{many}: {where}", p99 * 1000.0, GOAL, "ms"))
    return found


_numbers = itertools.count()


def _round(
    engine: Engine, colour: str, callers: int, hang: Callable[[], None], *, is_last: bool
) -> list[float]:
    """The seconds past the deadline of each call."""
    prefix = f"{time.time()} {next(_numbers)}"
    engine.operation("op", key=f"{prefix} first").call(int)
    hangs = threading.Lock()
    has_begun: list[int] = []

    def begins() -> None:
        """The function: the first one makes the store hang, when all are in it or nearly so."""
        with hangs:
            has_begun.append(1)
            if len(has_begun) == 1:
                hang()

    if not is_last:
        hang()
    run = _in_threads if colour == "sync" else _in_tasks
    work = begins if is_last else int
    return run(engine, [f"{prefix} {number}" for number in range(callers)], work)


def _in_threads(engine: Engine, keys: list[str], work: Callable[[], object]) -> list[float]:
    late: list[float] = []

    def call(key: str) -> None:
        began = time.perf_counter()
        with contextlib.suppress(MainstayError):
            engine.operation("op", key=key).call(work)
        late.append(time.perf_counter() - began - DEADLINE)

    threads = [threading.Thread(target=call, args=[key]) for key in keys]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return late


def _in_tasks(engine: Engine, keys: list[str], work: Callable[[], object]) -> list[float]:
    late: list[float] = []

    async def works() -> None:
        work()

    async def call(key: str) -> None:
        began = time.perf_counter()
        with contextlib.suppress(MainstayError):
            await engine.operation("op", key=key).acall(works)
        late.append(time.perf_counter() - began - DEADLINE)

    async def main() -> None:
        await asyncio.gather(*map(call, keys))

    asyncio.run(main())
    return late


# --- stores that can hang -------------------------------------------------------------------------


@contextlib.contextmanager
def _proxied(server: Any) -> Iterator[tuple[str, Any, Any]]:
    parts = urlsplit(server.url)
    try:
        with FaultProxy(parts.hostname or "", parts.port or 0) as proxy:
            yield f"{proxy.url(server.url)}?timeout={TIMEOUT:g}", proxy.black_hole, proxy.heal
    finally:
        server.kill()


def _postgres(_: Path) -> Any:
    from tests.servers.postgres import start_postgres

    return _proxied(start_postgres())


def _valkey(place: Path) -> Any:
    from tests.servers.valkey import start_valkey

    return _proxied(start_valkey(place))


def _nats(place: Path) -> Any:
    from tests.servers.nats import start_nats

    return _proxied(start_nats(place))


@contextlib.contextmanager
def _sqlite(place: Path) -> Iterator[tuple[str, Any, Any]]:
    path = place / "kept.db"
    url = f"sqlite:///{path}?timeout={TIMEOUT:g}"
    Engine(url, sinks=[], audit=False).close()
    other = subprocess.Popen(
        [sys.executable, "-c", _LOCK, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert other.stdin is not None
    assert other.stdout is not None

    def says(statement: str) -> None:
        other.stdin.write(f"{statement}\n")  # type: ignore[union-attr]  # checked above
        other.stdin.flush()  # type: ignore[union-attr]
        other.stdout.readline()  # type: ignore[union-attr]

    try:
        yield url, lambda: says("BEGIN IMMEDIATE"), lambda: says("ROLLBACK")
    finally:
        other.kill()
        other.communicate()


_STORES: dict[str, Callable[[Path], Any]] = {
    "SQLite": _sqlite,
    "PostgreSQL": _postgres,
    "Redis": _valkey,
    "NATS": _nats,
}
