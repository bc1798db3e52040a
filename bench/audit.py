"""Table 18: what the audit log costs, to write, to verify, and to the caller.

The floor of writing is the standard library's sqlite3 with one row for each event; the floor of
verifying is SHA-256 of each record in a plain loop. Both sides have the same bytes.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

from bench.measure import METHOD, Absent, Contender, Effort, nullary, race
from bench.sqlite_records import charging, fsync_time, new_keys, warmed
from bench.table import Row, Table, at_least, at_most
from mainstay import Backoff, Engine, RetryPolicy
from mainstay.audit import AuditLog, read_log, verify_log
from mainstay.core.base.event import Event
from mainstay.core.events.codec import encode

ORDER = 18
IS_LONG = True
COUNT = 40_000
SLICE = 4_000  # events between two flushes: a call takes longer than the loop that stands for it
POLICY = RetryPolicy(name="bench", max_attempts=5, backoff=Backoff.constant(0.0))


def run(effort: Effort) -> Table:
    """Writing, verifying, and the caller's part."""
    rounds = effort.parts + 2
    with _folder() as place:
        events = _events(place)
        rows = [
            *_writing(place, events, rounds),
            *_verifying(place, events, rounds),
            *_caller(place, events, effort),
            *_keyed(place, effort),
        ]
        fsync = fsync_time(place) * 1e6
    method = (
        f"Writing and verifying: {COUNT:,} events, the best of {rounds} rounds in turns; verifying"
        f" in CPU time. The caller's part: {METHOD} An fsync of 4 KB takes {fsync:.0f} µs here."
    )
    return Table("audit", "The audit log", method, rows)


# --- writing --------------------------------------------------------------------------------------


def _writing(place: Path, events: list[Event], rounds: int) -> list[Row]:
    bodies = [(encode(event).decode(),) for event in events]
    sides: dict[str, Callable[[], float]] = {
        "raw": lambda: _raw(place, bodies),
        "sqlite": lambda: _sink(f"sqlite:///{_new(place)}/audit.db", events),
        "jsonl": lambda: _sink(_new(place) / "audit.jsonl", events),
    }
    times = _in_turns(sides, rounds)
    speed = COUNT / min(times["raw"])
    return [
        Row("write: executemany, one row an event", 1.0, note=f"{speed:,.0f} events/s"),
        _ratio(
            "write: the sink into SQLite, flushed", times["raw"], times["sqlite"], at_least(0.4)
        ),
        _ratio("write: the sink into a file, flushed", times["raw"], times["jsonl"]),
    ]


def _raw(place: Path, bodies: list[tuple[str]]) -> float:
    with closing(sqlite3.connect(_new(place) / "raw.db", isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("CREATE TABLE events (number INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        start = time.perf_counter()
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO events (body) VALUES (?)", bodies)
        connection.execute("COMMIT")
        return time.perf_counter() - start


def _sink(where: Any, events: list[Event]) -> float:
    log = AuditLog(where, spill=False)
    log(events[0])
    log.flush()
    start = time.perf_counter()
    for first in range(0, COUNT, SLICE):
        for event in events[first : first + SLICE]:
            log(event)
        assert log.flush(60)
    took = time.perf_counter() - start
    assert log.stats()["lost"] == 0
    log.close()
    return took


# --- verifying ------------------------------------------------------------------------------------


def _verifying(place: Path, events: list[Event], rounds: int) -> list[Row]:
    places = {
        "sqlite": f"sqlite:///{_new(place)}/audit.db",
        "jsonl": str(_new(place) / "audit.jsonl"),
    }
    for where in places.values():
        _sink(where, events)
    bodies = [record.body for record in read_log(places["jsonl"])]
    times = _in_turns(
        {
            "hash": lambda: _timed(lambda: [sha256(body).digest() for body in bodies]),
            **{
                name: (lambda where=where: _timed(lambda: _verified(where)))  # type: ignore[misc]
                for name, where in places.items()
            },
        },
        rounds,
    )
    size = sum(map(len, bodies)) / min(times["hash"]) / 1e6
    return [
        Row("verify: SHA-256 of each record, in memory", 1.0, note=f"{size:,.0f} MB/s"),
        _ratio("verify: SQLite", times["hash"], times["sqlite"], at_least(0.5)),
        _ratio("verify: a file", times["hash"], times["jsonl"], at_least(0.5)),
    ]


def _verified(where: str) -> None:
    assert verify_log(where).ok


# --- the caller -----------------------------------------------------------------------------------


def _caller(place: Path, events: list[Event], effort: Effort) -> list[Row]:
    """Two failures and a success, with a log behind it and without."""
    plain = json.loads(encode(events[0]))
    log = AuditLog(_new(place) / "audit.jsonl", spill=_new(place))
    results = race(
        [
            Contender("bare", lambda: (_sequence(Engine(policies=[POLICY], sinks=[])),), nullary),
            Contender(
                "audited", lambda: (_sequence(Engine(policies=[POLICY], sinks=[log])),), nullary
            ),
            Contender("dumps", lambda: (lambda: json.dumps(plain),), nullary),
        ],
        effort.scaled(0.6),
    )
    lost = log.stats()["lost"]
    log.close()
    what = "caller: two failures, then success; beyond the unaudited, × one json.dumps"
    bare, audited, dumps = (results[name] for name in ("bare", "audited", "dumps"))
    if isinstance(bare, Absent) or isinstance(audited, Absent) or isinstance(dumps, Absent):
        return [Row(what, None, at_most(4), note="not measured")]
    beyond = (audited.best - bare.best) / dumps.best
    note = f"{bare.best * 1e6:.1f} µs unaudited, {audited.best * 1e6:.1f} µs audited; {lost} lost"
    return [Row(what, beyond, at_most(4), note=note)]


def _sequence(engine: Engine) -> Callable[[], object]:
    failure, outcomes = ConnectionError("connection refused"), [0]

    @engine.protect("bench")
    def flaky() -> int:
        outcomes[0] += 1
        if outcomes[0] % 3:
            raise failure
        return 1

    return flaky


def _keyed(place: Path, effort: Effort) -> list[Row]:
    """A keyed call on SQLite whose engine audits into the same file."""

    def calling(**options: Any) -> Callable[[], object]:
        engine = Engine(f"sqlite:///{_new(place)}/app.db", **options)
        charge, keys = charging(engine), new_keys()
        return warmed(lambda: charge(next(keys), 500))

    results = race(
        [
            Contender("bare", lambda: (calling(sinks=[], audit=False),), nullary),
            Contender("heard", lambda: (calling(sinks=[_hear], audit=False),), nullary),
            Contender("audited", lambda: (calling(sinks=[]),), nullary),
        ],
        effort.scaled(0.6),
    )
    what = "keyed: a new key on SQLite, audited in the same file, × the same {}"
    rows = []
    for base, named in (("bare", "unheard"), ("heard", "with a listener that does nothing")):
        unit, audited = results[base], results["audited"]
        if isinstance(unit, Absent) or isinstance(audited, Absent):
            rows.append(Row(what.format(named), None, note="not measured"))
        else:
            spread = audited.spread_over(unit)
            rows.append(Row(what.format(named), audited.over(unit), spread=spread))
    return rows


def _hear(event: Event) -> None:
    """Nothing."""


# --- what they share ------------------------------------------------------------------------------


def _events(place: Path) -> list[Event]:
    """The events of real calls, with their proofs."""
    where = _new(place) / "events.jsonl"
    with Engine(policies=[POLICY], sinks=[], audit=where) as engine:
        call = _sequence(engine)
        for _ in range(20):
            call()
    found = [record.event for record in read_log(where)]
    found = [event for event in found if event.event_type != "plan_declared"]
    return (found * (COUNT // len(found) + 1))[:COUNT]


def _in_turns(sides: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        for name, side in sides.items():
            times[name].append(side())
    return times


def _ratio(what: str, base: list[float], mine: list[float], goal: Any = None) -> Row:
    """How fast it is, as a share of the base: the best round of each."""
    found = sorted(b / m for b, m in zip(base, mine, strict=True))
    spread = (found[-1 - len(found) // 4] - found[len(found) // 4]) / statistics.median(found)
    return Row(what, min(base) / min(mine), goal, spread=spread)


def _timed(work: Callable[[], object]) -> float:
    start = time.thread_time()
    work()
    return time.thread_time() - start


@contextmanager
def _folder() -> Iterator[Path]:
    place = Path(tempfile.mkdtemp(prefix="bench-audit-"))
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _new(place: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=place))
