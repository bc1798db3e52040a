"""Table 15: whether beginning a call takes longer where many keys are stored."""

from __future__ import annotations

import hashlib
import itertools
import random
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.compare import duration, ratios
from bench.measure import METHOD, Contender, Effort, nullary, race
from bench.sqlite_records import (
    INSERT,
    SPACE,
    address,
    claimed_and_completed,
    folder,
    fsync_time,
)
from bench.table import Row, Table, at_most
from mainstay.core.idempotency.record import Begin, reduce
from mainstay.stores.sqlite.store import SqliteStore

ORDER = 15
IS_LONG = True
FEW, MANY, MANY_QUICK = 1_000, 1_000_000, 200_000


def run(effort: Effort) -> Table:
    """Begin with a new key, on files with few and with many records."""
    many = MANY_QUICK if effort.is_quick else MANY
    with folder() as place:
        files = {count: _filled(place, count) for count in (FEW, many)}
        rows = _rows(files, effort, "FULL") + _rows(files, effort, "NORMAL")
        note = f"An fsync of 4 KB takes {duration(fsync_time(place))} here."
        note += f" The larger file has {files[many].stat().st_size / 1e6:,.0f} MB."
    method = (
        f"{METHOD} One step of a SQLite store: a claim of a key that nobody has, anywhere among "
        f"the others. {note}{' Quick: fewer keys than the goal is for.' if effort.is_quick else ''}"
    )
    return Table("many_keys", "Beginning a call among many keys", method, rows)


def _rows(files: dict[int, Path], effort: Effort, synchronous: str) -> list[Row]:
    names = {count: f"{count:,} keys stored" for count in files}
    contenders = [
        Contender(names[count], _beginning(path, synchronous), nullary)
        for count, path in files.items()
    ]
    few, many = names.values()
    goals = {many: at_most(1.5)}
    results = race(contenders, effort.scaled(0.6), goals)
    return ratios(results, few, goals, named=f"{synchronous}: {{}}")


def _beginning(path: Path, synchronous: str) -> Callable[[], tuple[Callable[[], object]]]:
    """Claims keys that are not there; each is new, and lies anywhere."""
    keys = _scattered(random.Random(path.name + synchronous).randbytes(8))

    def prepare() -> tuple[Callable[[], object]]:
        store = SqliteStore(f"sqlite:///{path}?synchronous={synchronous}")
        begin = Begin("0" * 32, "0" * 64, 30.0, 3)
        claim = lambda: store.transact(  # noqa: E731 -- what is timed
            SPACE, next(keys), lambda value, now: reduce(value, begin, now)
        )
        for _ in range(400):  # until the log has stopped growing
            claim()
        return (claim,)

    return prepare


def _scattered(seed: bytes) -> Iterator[str]:
    for number in itertools.count():
        yield address(hashlib.md5(seed + number.to_bytes(8)).hexdigest())


def _filled(place: Path, count: int) -> Path:
    """A file with so many calls that have ended, in the order of their keys: that is faster."""
    path = place / f"{count}.db"
    SqliteStore(f"sqlite:///{path}").close()
    _, done, _ = claimed_and_completed()
    now, chance = time.time(), random.Random(count)
    keys = sorted(itertools.islice(_scattered(b"stored"), count))
    rows = ((SPACE, key, done, now + 86_400 * chance.random()) for key in keys)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA cache_size = -400000")  # the index is filled out of order
    connection.execute("BEGIN")
    connection.executemany(INSERT, rows)
    connection.execute("COMMIT")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path
