"""Table 13: a keyed call on SQLite against the same commits by hand, and against DBOS.

The raw side is the standard library's sqlite3 with the same table, the same records and the same
settings: BEGIN IMMEDIATE, SELECT, INSERT, COMMIT to claim; the same with UPDATE to complete.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench.compare import duration, ratios
from bench.measure import METHOD, Absent, Contender, Effort, Results, nullary, race, reason
from bench.table import Row, Table, at_least, at_most
from mainstay import Engine
from mainstay.core.codec.outcome import Succeeded, encode_outcome
from mainstay.core.idempotency.record import Begin, RecordState, Settle, reduce
from mainstay.stores.migrations import scripts, statements

ORDER = 13
MINE, DBOS, LOOKUP = "mainstay", "DBOS workflow with one step", "an indexed SELECT"
SELECT = "SELECT value FROM mainstay_kept WHERE space = ? AND key = ?"
INSERT = "INSERT INTO mainstay_kept (space, key, value, expires) VALUES (?, ?, ?, ?)"
UPDATE = "UPDATE mainstay_kept SET value = ?, expires = ? WHERE space = ? AND key = ?"
SPACE = "records"
WARM = 300  # calls that write more than the 1,000 pages after which SQLite empties its log


def run(effort: Effort) -> Table:
    """Claim and complete, a replayed hit, and DBOS; each relative to its own base."""
    with folder() as place:
        rows = _commits(place, effort, "FULL") + _commits(place, effort, "NORMAL")
        rows += _hits(place, effort)
        rows += _against_dbos(place, effort)
        note = f"An fsync of 4 KB takes {duration(fsync_time(place))} here."
    method = (
        f"{METHOD} A real file, new in each part, with a write-ahead log that has stopped growing. "
        f"{note}"
    )
    return Table("sqlite_records", "Keyed calls on SQLite", method, rows)


def _commits(place: Path, effort: Effort, synchronous: str) -> list[Row]:
    """A call with a new key: claim and complete."""
    base = "the two commits by hand"
    goals = {MINE: at_most(2)} if synchronous == "FULL" else {}
    results = race(
        [
            Contender(base, lambda: (raw_commits(place, synchronous),), nullary),
            Contender(MINE, lambda: (_new_keys(place, synchronous),), nullary),
        ],
        effort.scaled(0.6 if goals else 0.3),
        goals,
    )
    return ratios(results, base, goals, named=f"new key, {synchronous}: {{}}")


def _hits(place: Path, effort: Effort) -> list[Row]:
    """A call whose key is known."""
    goals = {MINE: at_most(3)}
    results = race(
        [
            Contender(LOOKUP, lambda: _known_row(place), _lookups),
            Contender(MINE, lambda: _known_key(place), _hit_calls),
        ],
        effort.scaled(0.4),
        goals,
    )
    return ratios(results, LOOKUP, goals, named="known key: {}")


# --- mainstay -------------------------------------------------------------------------------------


def engine_in(place: Path, synchronous: str = "FULL") -> Engine:
    """An engine on a new file."""
    path = Path(tempfile.mkdtemp(dir=place)) / "mainstay.db"
    return Engine(f"sqlite:///{path}?synchronous={synchronous}", sinks=[], audit=False)


def charging(engine: Engine) -> Callable[[str, int], int]:
    """What is measured: a trivial function with a key."""

    @engine.idempotent(key=lambda order, amount: order, operation="charge")
    def charge(order, amount):
        return amount

    return charge


def _new_keys(place: Path, synchronous: str) -> Callable[[], object]:
    charge, keys = charging(engine_in(place, synchronous)), new_keys()
    return warmed(lambda: charge(next(keys), 500))


def warmed(call: Callable[[], object]) -> Callable[[], object]:
    """After so many calls that the log is written from its start again, as it is ever after.

    While the file of the log still grows, an fsync has its length to write too.
    """
    for _ in range(WARM):
        call()
    return call


def _known_key(place: Path) -> tuple[Any, ...]:
    charge = charging(engine_in(place))
    for order in itertools.islice(new_keys(), 1000):
        charge(order, 500)
    return charge, "order-00000500"


def _hit_calls(n: int, charge: Any, order: str) -> None:
    """charge(order, 500)"""
    for _ in range(n):
        charge(order, 500)
        charge(order, 500)
        charge(order, 500)
        charge(order, 500)
        charge(order, 500)
        charge(order, 500)
        charge(order, 500)
        charge(order, 500)
        charge(order, 500)
        charge(order, 500)


def new_keys() -> Iterator[str]:
    """Keys as an application has them."""
    return (f"order-{number:08d}" for number in itertools.count())


# --- by hand --------------------------------------------------------------------------------------


def raw_file(place: Path, synchronous: str = "FULL") -> sqlite3.Connection:
    """A connection to a new file with the same table and settings."""
    path = Path(tempfile.mkdtemp(dir=place)) / "raw.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    for script in scripts("sqlite").values():
        for statement in statements(script):
            connection.execute(statement)
    return connection


def claimed_and_completed() -> tuple[bytes, bytes, float]:
    """The records of a call that has begun and of one that has ended, and when that expires."""
    now, owner, outcome = time.time(), "0" * 32, encode_outcome(Succeeded(500))
    claim, _ = reduce(None, Begin(owner, "0" * 64, 30.0, 3), now)
    settle = Settle(owner, 1, RecordState.SUCCEEDED, outcome, 86_400.0)
    done, _ = reduce(claim.value, settle, now)
    assert claim.value is not None
    assert done.value is not None
    assert done.expires is not None
    return claim.value, done.value, done.expires


def address(order: str) -> str:
    """Where the record of a key is."""
    return f'[null,"charge","{order}"]'


def raw_claim(connection: sqlite3.Connection, key: str, claim: bytes) -> None:
    """One commit that claims a key."""
    execute = connection.execute
    execute("BEGIN IMMEDIATE")
    execute(SELECT, (SPACE, key)).fetchone()
    execute(INSERT, (SPACE, key, claim, None))
    execute("COMMIT")


def raw_commits(place: Path, synchronous: str) -> Callable[[], object]:
    """Both commits of a call with a new key."""
    connection, keys = raw_file(place, synchronous), new_keys()
    claim, done, expires = claimed_and_completed()
    execute = connection.execute

    def both() -> None:
        key = address(next(keys))
        raw_claim(connection, key, claim)
        execute("BEGIN IMMEDIATE")
        execute(SELECT, (SPACE, key)).fetchone()
        execute(UPDATE, (done, expires, SPACE, key))
        execute("COMMIT")

    return warmed(both)


def _known_row(place: Path) -> tuple[Any, ...]:
    connection = raw_file(place)
    _, done, expires = claimed_and_completed()
    with contextlib.closing(connection.cursor()) as cursor:
        cursor.execute("BEGIN")
        for order in itertools.islice(new_keys(), 1000):
            cursor.execute(INSERT, (SPACE, address(order), done, expires))
        cursor.execute("COMMIT")
    return connection.execute, SELECT, (SPACE, address("order-00000500"))


def _lookups(n: int, execute: Any, select: str, at: tuple[str, str]) -> None:
    """execute(select, at).fetchone()"""
    for _ in range(n):
        execute(select, at).fetchone()
        execute(select, at).fetchone()
        execute(select, at).fetchone()
        execute(select, at).fetchone()
        execute(select, at).fetchone()
        execute(select, at).fetchone()
        execute(select, at).fetchone()
        execute(select, at).fetchone()
        execute(select, at).fetchone()
        execute(select, at).fetchone()


# --- DBOS -----------------------------------------------------------------------------------------


def _against_dbos(place: Path, effort: Effort) -> list[Row]:
    """How many times faster a call with a new key is than a workflow with one step."""
    what, goal = f"new key, FULL: {MINE}, times faster than a {DBOS}", at_least(20)
    try:
        with _dbos(place) as workflow:
            results = _race_dbos(place, effort, workflow)
    except Exception as error:
        return [Row(what, None, goal, note=reason(error))]
    mine, its = results[MINE], results[DBOS]
    if isinstance(mine, Absent) or isinstance(its, Absent):
        return [Row(what, None, goal, note=getattr(its, "reason", ""))]
    note = f"{duration(its.best)} a workflow, on SQLite in its default settings"
    noise, again = its.spread_over(mine), mine.is_repeated
    return [Row(what, its.over(mine), goal, spread=noise, note=note, is_repeated=again)]


def _race_dbos(place: Path, effort: Effort, workflow: Callable[[int], object]) -> Results:
    parts = 3 if effort.is_quick else 5  # a batch is ten workflows, a tenth of a second or more
    short = Effort(effort.seconds / 2, effort.repeats, parts, effort.batch, effort.is_quick)
    return race(
        [
            Contender(DBOS, lambda: (lambda: workflow(500),), nullary),
            Contender(MINE, lambda: (_new_keys(place, "FULL"),), nullary),
        ],
        short,
        {MINE},
    )


@contextlib.contextmanager
def _dbos(place: Path) -> Iterator[Callable[[int], object]]:
    """A workflow that is registered and may be called."""
    import dbos

    url = f"sqlite:///{place}/dbos.sqlite"
    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )

    @dbos.DBOS.step()
    def step(amount):
        return amount

    @dbos.DBOS.workflow()
    def workflow(amount):
        return step(amount)

    dbos.DBOS.launch()
    try:
        yield workflow
    finally:
        dbos.DBOS.destroy(destroy_registry=True)


# --- the disk -------------------------------------------------------------------------------------


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder on the disk: the temporary one may be memory, where an fsync costs nothing."""
    home = Path(__file__).parents[1] if _is_memory(tempfile.gettempdir()) else None
    place = Path(tempfile.mkdtemp(prefix="mainstay-bench-", dir=home))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _is_memory(path: str) -> bool:
    """Whether a path is on tmpfs; where that cannot be told it is not."""
    with contextlib.suppress(OSError):
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        within = [m for m in mounts if Path(path).is_relative_to(m[1])]
        return max(within, key=lambda mount: len(mount[1]))[2] == "tmpfs"
    return False


def fsync_time(place: Path) -> float:
    """Seconds that an fsync of a page takes: the median of many."""
    taken = []
    with (place / "fsync").open("wb", buffering=0) as file:
        for _ in range(100):
            file.write(b"x" * 4096)
            start = time.perf_counter()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - start)
    return statistics.median(taken)
