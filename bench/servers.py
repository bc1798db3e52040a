"""Table 16: a keyed call on Redis and on PostgreSQL against the same round trips by hand.

What a call with a new key says to the server is written down once, as it leaves the client library;
the raw side says the same again with that library, for a new key each time, on one connection.

Client and server share a core. Left to the scheduler they are now together, now apart, where a
round trip takes twice as long, and the minima of the two sides are of different lots: the same code
came out at 1.04 and at 1.69. On one core a round trip is quickest, which is hardest on what we add.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import os
import threading
from collections.abc import Awaitable, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

from bench.compare import duration, ratios
from bench.measure import METHOD, Contender, Effort, Lacks, nullary, race, race_async, reason
from bench.sqlite_records import SPACE, address, charging, folder, fsync_time
from bench.table import Row, Table, at_most
from mainstay import Engine

Said = tuple[tuple[Any, ...], dict[str, Any]]

ORDER = 16
IS_LONG = True
GOAL = at_most(1.3)
MINE, RAW = "mainstay", "the same {} round trips by hand"
RAW_KEYS = 50_000_000  # where the keys of the raw side begin
MARK = "order-99999999"
"""The key of the call that is written down; others of the same length take its place."""


def run(effort: Effort) -> Table:
    """Claim and complete on both servers."""
    rows = []
    with folder() as place, _one_core():
        place.chmod(0o755)  # PostgreSQL may run as another user
        for name, measured in _SERVERS.items():
            try:
                rows += measured(place, effort)
            except Exception as error:
                rows.append(Row(f"{name}: {MINE}", None, GOAL, note=_absence(error)))
        note = f"An fsync of 4 KB takes {duration(fsync_time(place))} here."
    method = f"{METHOD} Client and server on one core, a call with a new key each. {note}"
    return Table("servers", "Keyed calls on servers", method, rows)


@contextlib.contextmanager
def _one_core() -> Iterator[None]:
    """This thread, and the servers it starts meanwhile, on one core where the system has a say."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _absence(error: Exception) -> str:
    return f"not available: {reason(error)}"


def _compared(name: str, effort: Effort, raw: Any, mine: Any, trips: int) -> list[Row]:
    is_async = inspect.iscoroutinefunction(raw)
    base, loop = RAW.format(trips), _awaited if is_async else nullary
    contenders = [Contender(base, lambda: (raw,), loop), Contender(MINE, lambda: (mine,), loop)]
    results = (race_async if is_async else race)(contenders, effort.scaled(0.5))
    return ratios(results, base, {MINE: GOAL}, named=f"{name}: {{}}")


async def _awaited(n: int, f: Callable[[], Awaitable[object]]) -> None:
    """await f(), ten times; unrolled it would be no quicker beside a round trip."""
    for _ in range(n * 10):
        await f()


def _keys(first: int) -> Iterator[str]:
    return (f"order-{number:08d}" for number in itertools.count(first))


def charges(store: Any) -> tuple[Callable[[str, int], int], Any, Any]:
    """The keyed function, and a call of it with a new key; sync and async."""
    engine, keys = Engine(store, sinks=[], audit=False), _keys(0)
    charge = charging(engine)

    @engine.idempotent(key=lambda order, amount: order, operation="charge")
    async def acharge(order, amount):
        return amount

    return charge, lambda: charge(next(keys), 500), lambda: acharge(next(keys), 500)


def rehearsed(raw: Callable[[], object], store: Any) -> Callable[[], object]:
    """The raw side, after it was seen to do the same: a record of a call that has ended."""
    raw()
    value, _ = store.read(SPACE, address(next(_keys(RAW_KEYS))))
    if value is None or b"succeeded" not in value:
        raise Lacks(f"by hand it comes to {value!r}")
    return raw


class Raw:
    """What was said, said again for a new key each time: by a client for threads, or for a loop."""

    def __init__(self, trips: Callable[[str], Generator[Said, Any, None]]) -> None:
        self._trips = trips
        self._keys = _keys(RAW_KEYS)
        self._client: Any = None

    def by(self, say: Callable[..., Any]) -> Callable[[], None]:
        """With a function that says it and returns the answer."""

        def call() -> None:
            answer, trips = None, self._trips(next(self._keys))
            with contextlib.suppress(StopIteration):
                while True:
                    args, kwargs = trips.send(answer)
                    answer = say(*args, **kwargs)

        return call

    def by_async(self, connect: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[None]]:
        """With what gives such a function, in the loop in which it is used."""

        async def call() -> None:
            if self._client is None:
                self._client = await connect()
            answer, trips = None, self._trips(next(self._keys))
            with contextlib.suppress(StopIteration):
                while True:
                    args, kwargs = trips.send(answer)
                    answer = await self._client(*args, **kwargs)

        return call


# --- Redis ----------------------------------------------------------------------------------------


def _redis(place: Path, effort: Effort) -> list[Row]:
    import redis

    from mainstay.stores.redis.store import RedisStore
    from tests.servers.valkey import server_binary, start_valkey

    if server_binary() is None:
        raise Lacks("no server")
    (place / "valkey").mkdir()
    server = start_valkey(place / "valkey")
    store = RedisStore(server.url)
    try:
        charge, mine, amine = charges(store)
        mine()
        with noted(redis.Connection, "send_command") as said:
            charge(MARK, 500)
        again = Raw(_redis_again(said))
        client = redis.Redis.from_url(server.url, protocol=2)
        raw = rehearsed(again.by(client.execute_command), store)
        araw = again.by_async(lambda: _redis_client(server.url))
        return [
            *_compared("Redis", effort, raw, mine, len(said)),
            *_compared("Redis, async", effort, araw, amine, len(said)),
        ]
    finally:
        store.close()
        server.kill()


async def _redis_client(url: str) -> Callable[..., Any]:
    from redis import asyncio as aredis

    return aredis.Redis.from_url(url, protocol=2).execute_command  # type: ignore[no-any-return]


def _redis_again(said: list[Said]) -> Callable[[str], Generator[Said, Any, None]]:
    """The same commands for a new key; a record's token is in them, and so is the same again."""
    mark = MARK.encode()
    pieces = [[_cut(part, mark) for part in command] for command, _ in said]

    def trips(key: str) -> Generator[Said, Any, None]:
        name = key.encode()
        for command in pieces:
            yield tuple(p if type(p) is not list else name.join(p) for p in command), {}

    return trips


def _cut(part: Any, mark: bytes) -> Any:
    """A part of a command, in pieces where the key stands in it."""
    data = part.encode() if isinstance(part, str) else part
    return data.split(mark) if isinstance(data, bytes) and mark in data else part


# --- PostgreSQL -----------------------------------------------------------------------------------


def _postgres(place: Path, effort: Effort) -> list[Row]:
    from tests.servers.postgres import server_programs, start_postgres

    if server_programs() is None:
        raise Lacks("no server")
    rows = []
    for name, fsync in (("PostgreSQL", True), ("PostgreSQL, fsync=off", False)):
        server = start_postgres(fsync=fsync)
        try:
            rows += _on_postgres(name, effort, server.url)
        finally:
            server.kill()
    return rows


def _on_postgres(name: str, effort: Effort, url: str) -> list[Row]:
    import psycopg

    from mainstay.stores.postgres.store import PostgresStore

    store = PostgresStore(url)
    try:
        charge, mine, amine = charges(store)
        mine()
        with noted(psycopg.Cursor, "execute") as said:
            charge(MARK, 500)
        again = Raw(postgres_again(said))
        with psycopg.connect(url, autocommit=True) as connection:
            raw = rehearsed(
                again.by(lambda *args, **kwargs: connection.execute(*args, **kwargs).fetchone()),
                store,
            )
            rows = _compared(name, effort, raw, mine, len(said))
        araw = again.by_async(lambda: _postgres_client(url))
        return rows + _compared(f"{name}, async", effort, araw, amine, len(said))
    finally:
        store.close()


async def _postgres_client(url: str) -> Callable[..., Any]:
    import psycopg

    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)

    async def say(*args: Any, **kwargs: Any) -> Any:
        cursor = await connection.execute(*args, **kwargs)
        return await cursor.fetchone()

    return say


def postgres_again(said: list[Said]) -> Callable[[str], Generator[Said, Any, None]]:
    """The same statements for a new key; what the last reading saw is the condition of a write."""

    def trips(key: str) -> Generator[Said, Any, None]:
        row = (None, None, None)
        for (text, values), options in said:
            new = {**values, "key": values["key"].replace(MARK, key)}
            if "seen" in new:
                new["seen"] = row[2]
            row = (yield (text, new), options) or row

    return trips


# --- what a client library is told ----------------------------------------------------------------


@contextlib.contextmanager
def noted(cls: type, name: str) -> Iterator[list[Said]]:
    """Writes down the arguments of a method's calls in this thread: others purge and follow."""
    said: list[Said] = []
    method, here = getattr(cls, name), threading.get_ident()

    def noting(self: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == here:
            said.append((args, kwargs))
        return method(self, *args, **kwargs)

    setattr(cls, name, noting)
    try:
        yield said
    finally:
        setattr(cls, name, method)


_SERVERS = {"Redis": _redis, "PostgreSQL": _postgres}
