"""Table 23: sagas of three steps against the same DBOS workflow, and recovery of 10,000 sagas.

One after another, which is one wait for the disk after another, and 32 at once.

Both run on the same kind of store with the durability that the table prints: SQLite with a
write-ahead log and the same `synchronous` on each side's connections, PostgreSQL with `fsync` and
`synchronous_commit` on. With FULL, a commit waits for the disk and survives a loss of power; with
NORMAL it survives the end of any process, as by kill -9, and a loss of power may take the last
commits. One after another with FULL, both sides mostly wait for the disk: a row has what commits
alone take. DBOS has its default settings otherwise; FULL is its default and ours.
"""

from __future__ import annotations

import contextlib
import itertools
import resource
import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.compare import duration
from bench.measure import METHOD, Absent, Contender, Effort, Results, nullary, race, reason
from bench.saga_crowd import crowd
from bench.sqlite_records import folder, fsync_time
from bench.table import Row, Table, at_least, at_most
from mainstay import Engine, Saga, SagaStep
from mainstay.core.base.change import Change
from mainstay.core.codec.outcome import encode_value
from mainstay.core.saga.commands import Begin
from mainstay.core.saga.record import reduce
from mainstay.drivers.saga.records import OPEN_SAGAS, SPACE

ORDER = 23
IS_LONG = True
MINE, DBOS = "a saga of three steps", "a DBOS workflow of three steps"
BARE = "four commits by sqlite3 alone"
"""The least that a saga of three steps writes: a step is begun after that is written, and the end
is written before it is reported."""
MANY, MANY_QUICK = 10_000, 1_000
_NUMBERS = itertools.count()
"""Ids: each part of a run makes its engine anew, and an id that was used is only looked up."""


def run(effort: Effort) -> Table:
    """Sagas and workflows on SQLite and PostgreSQL, and a recovery."""
    with folder() as place:
        rows = _on_sqlite(place, effort)
        rows += _on_postgres(effort)
        rows += _recovery(place, MANY_QUICK if effort.is_quick else MANY)
        note = f"An fsync of 4 KB takes {duration(fsync_time(place))} here."
    return Table("sagas", "Sagas", f"{METHOD} {note}", rows)


def saga() -> Saga:
    """Three steps that return at once."""
    names = ("debit", "credit", "notify")
    return Saga("bench", [SagaStep(name, lambda: 1, lambda: None) for name in names])


def _sagas(url: str) -> Callable[[], object]:
    engine, mine = Engine(url, sinks=[], audit=False), saga()
    return lambda: engine.sagas.run(mine, {"amount": 500}, id=f"{next(_NUMBERS)}")


def _on_sqlite(place: Path, effort: Effort) -> list[Row]:
    rows = []
    for synchronous in ("FULL", "NORMAL"):
        url = f"sqlite:///{place}/{synchronous}.db?synchronous={synchronous}"
        with Engine(url, sinks=[], audit=False) as engine:
            durability = f"synchronous={engine.store.describe()['synchronous']}"
        theirs = f"sqlite:///{place}/dbos-{synchronous}.sqlite"
        what = f"SQLite, {synchronous}: {MINE}, times faster than {DBOS}"
        with _synchronous(synchronous):
            rows += _against(effort, url, theirs, what, at_least(20), durability, _dbos_pragma,
                             (place, synchronous))  # fmt: skip
    durability = "synchronous=FULL"
    return [*rows, *crowd(place, 2 if effort.is_quick else 5, durability, _dbos_pragma)]


@contextlib.contextmanager
def _synchronous(value: str) -> Iterator[None]:
    """Sets the durability of the connections that SQLAlchemy opens to SQLite, as DBOS does."""
    from sqlalchemy import Engine as Connections
    from sqlalchemy import event

    def connected(connection: Any, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            if value == "NORMAL":  # with a rollback journal each commit would wait for the disk
                connection.execute("PRAGMA journal_mode = WAL")
            connection.execute(f"PRAGMA synchronous = {value}")

    event.listen(Connections, "connect", connected)
    try:
        yield
    finally:
        event.remove(Connections, "connect", connected)


def _on_postgres(effort: Effort) -> list[Row]:
    from tests.servers.postgres import server_programs, start_postgres

    what = f"PostgreSQL: {MINE}, times faster than {DBOS}"
    if server_programs() is None:
        return [Row(what, None, at_least(2), note="no server")]
    server = start_postgres(fsync=True)
    try:
        return _against(
            effort, server.url, server.url, what, at_least(2), "fsync=on, synchronous_commit=on",
            lambda: "the same server",
        )  # fmt: skip
    finally:
        server.kill()


def _against(
    effort: Effort,
    mine: str,
    theirs: str,
    what: str,
    goal: Any,
    durability: str,
    its_durability: Callable[[], str],
    place: tuple[Path, str] | None = None,
) -> list[Row]:
    try:
        with _dbos(theirs) as workflow:
            results, its = _race(effort, mine, workflow, place), its_durability()
    except Exception as error:
        return [Row(what, None, goal, note=reason(error))]
    own, peer = results[MINE], results[DBOS]
    if isinstance(own, Absent) or isinstance(peer, Absent):
        return [Row(what, None, goal, note=getattr(peer, "reason", getattr(own, "reason", "")))]
    note = f"{duration(own.best)} a saga ({durability}), {duration(peer.best)} a workflow ({its})"
    rows = [Row(what, peer.over(own), goal, spread=peer.spread_over(own), note=note)]
    bare = results.get(BARE)
    if bare is not None and not isinstance(bare, Absent):
        best = f"{peer.over(bare):.3g} times faster than {DBOS}: no saga can be faster here"
        least = f"{duration(bare.best)}, {best}"
        rows.append(
            Row(f"{what.partition(':')[0]}: {MINE} ÷ {BARE}", own.over(bare), None,
                spread=own.spread_over(bare), note=least)
        )  # fmt: skip
    return rows


def _bare(place: Path, synchronous: str) -> Callable[[], object]:
    """Two rows in a transaction, then three changes of one of them, as a saga writes them."""
    connection = sqlite3.connect(place / f"bare-{synchronous}.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute(
        "CREATE TABLE IF NOT EXISTS kept (space TEXT, key TEXT, value BLOB,"
        " PRIMARY KEY (space, key)) WITHOUT ROWID"
    )
    values = [bytes([65 + number]) * (300 + 80 * number) for number in range(4)]

    def commits() -> None:
        key = f"bench/{next(_NUMBERS)}"
        connection.execute(
            "INSERT INTO kept VALUES ('open', ?, 'me'), ('saga', ?, ?)", (key, key, values[0])
        )
        for value in values[1:]:
            connection.execute(
                "UPDATE kept SET value = ? WHERE space = 'saga' AND key = ?", (value, key)
            )

    return commits


def _race(
    effort: Effort, url: str, workflow: Callable[[int], object], place: tuple[Path, str] | None
) -> Results:
    parts = 3 if effort.is_quick else 5  # a batch is ten workflows, a tenth of a second or more
    short = Effort(effort.seconds / 2, effort.repeats, parts, effort.batch, effort.is_quick)
    contenders = [
        Contender(DBOS, lambda: (lambda: workflow(500),), nullary),
        Contender(MINE, lambda: (_sagas(url),), nullary),
    ]
    if place is not None:
        contenders.append(Contender(BARE, lambda: (_bare(*place),), nullary))
    return race(contenders, short)


@contextlib.contextmanager
def _dbos(url: str) -> Iterator[Callable[[int], object]]:
    """A workflow of three steps that is registered and may be called."""
    import dbos

    dbos.DBOS(
        config={
            "name": "bench",
            "system_database_url": url,
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )

    @dbos.DBOS.step()
    def debit(amount):
        return amount

    @dbos.DBOS.step()
    def credit(amount):
        return amount

    @dbos.DBOS.step()
    def notify(amount):
        return amount

    @dbos.DBOS.workflow()
    def workflow(amount):
        debit(amount)
        credit(amount)
        return notify(amount)

    dbos.DBOS.launch()
    try:
        yield workflow
    finally:
        dbos.DBOS.destroy(destroy_registry=True)


def _dbos_pragma() -> str:
    """The durability of the connections that DBOS opens to SQLite."""
    from dbos._dbos import _get_dbos_instance

    engine = _get_dbos_instance()._sys_db.engine
    with engine.connect() as connection:
        number = connection.exec_driver_sql("PRAGMA synchronous").scalar()
        mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar()
    names = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}
    return f"synchronous={names.get(number, number)}, journal_mode={mode}"


# --- recovery -------------------------------------------------------------------------------------


def _recovery(place: Path, many: int) -> list[Row]:
    """Sagas that were interrupted in their second step, recovered by one process."""
    url, mine = f"sqlite:///{place}/left.db?synchronous=NORMAL", saga()
    with Engine(url, sinks=[], audit=False) as engine:
        _interrupt(engine, mine, many)
        engine.sagas.register(mine)
        before, began = _peak(), time.perf_counter()
        found = engine.sagas.recover()
        seconds, grown = time.perf_counter() - began, _peak() - before
    assert found.succeeded == many, found.to_dict()
    what = f"recovery of {many:,} interrupted sagas"
    rate = f"{many / seconds:,.0f} sagas a second in one process (synchronous=NORMAL)"
    return [
        Row(f"{what}: memory that it adds", grown / 1e6, at_most(20), "MB", note=rate),
        Row(f"{what}: sagas a second", many / seconds, unit="/s"),
    ]


def _interrupt(engine: Engine, mine: Saga, many: int) -> None:
    """Writes the records that dead processes leave: begun, and their lease over."""
    store: Any = engine.store
    numbers = iter(range(many))
    while batch := list(itertools.islice(numbers, 500)):
        steps = []
        for number in batch:
            begin = Begin(
                "gone", mine.name, mine.version, mine.shape, "f", encode_value({"n": number}),
                mine.groups[0], 0.05,
            )  # fmt: skip
            address = f"bench/{number:06}"
            steps.append((OPEN_SAGAS, address, lambda _value, _now: (Change(b"gone"), None)))
            steps.append((SPACE, address, partial(_begun, begin)))
        store.transact_many(steps)
    time.sleep(0.1)


def _begun(begin: Begin, value: bytes | None, now: float) -> tuple[Change, object]:
    return reduce(value, begin, now)


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
