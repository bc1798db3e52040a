"""Table 19: leases that are lost while thousands of async calls are under way, 20 ms from a store.

Every call waits inside its function until the end. Another process would take a key over if its
lease ran out: a second store, without the proxy, tries that with every key, twice in three leases.
What it gets is a lease that was lost, and so is one that its own process could not renew in time.
SQLite has no network; its file is on the disk of this machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.measure import Effort, Lacks, reason
from bench.sqlite_records import folder
from bench.table import Row, Table, at_most
from mainstay import Engine
from mainstay.core.idempotency.record import Begin, Busy, reduce
from mainstay.ports import many_of
from mainstay.stores.open import open_store
from mainstay.testing.proxy import FaultProxy

ORDER = 19
IS_LONG = True
AWAY = 0.02
"""Seconds of a round trip to the server."""
AT_ONCE = 48
"""Claims on their way at the same time, while the calls begin."""


def run(effort: Effort) -> Table:
    """Leases lost on each store."""
    calls, lease, seconds = (500, 3.0, 6.0) if effort.is_quick else (5_000, 15.0, 60.0)
    rows = []
    with folder() as place:
        place.chmod(0o755)  # PostgreSQL may run as another user
        for name, opened in _STORES.items():
            try:
                with opened(place) as (far, near):
                    rows.append(_lost(name, far, near, calls, lease, seconds))
            except Exception as error:
                rows.append(Row(name, None, at_most(0), unit="lost", note=reason(error)))
    method = (
        f"{calls:,} async calls under way for {seconds:g} s, lease {lease:g} s, each store "
        f"{AWAY * 1000:g} ms away behind the fault proxy (SQLite: a file)."
        f"{' Quick: fewer and shorter than the goal is for.' if effort.is_quick else ''}"
    )
    return Table("lease_renewal", "Leases of long calls", method, rows)


def _lost(name: str, far: str, near: str, calls: int, lease: float, seconds: float) -> Row:
    store = open_store(near)
    with Engine(far, sinks=[], audit=False) as engine:
        try:
            taken, began = asyncio.run(_held(engine, store, calls, lease, seconds))
        finally:
            store.close()
        counts = engine.records.counts()
    lost = max(taken, counts["expired"], counts["lost"])
    note = f"began within {began:.1f} s; {counts['expired']} ran out, {taken} were taken over"
    return Row(name, float(lost), at_most(0), unit="lost", note=note)


async def _held(
    engine: Engine, store: Any, calls: int, lease: float, seconds: float
) -> tuple[int, float]:
    """How many keys another process could take over, and how long it took to begin."""
    end, room, started = asyncio.Event(), asyncio.Semaphore(AT_ONCE), itertools.count(1)
    all_began, began = asyncio.Event(), time.monotonic()

    async def work() -> None:
        room.release()
        if next(started) == calls:
            all_began.set()
        await end.wait()

    async def call(number: int) -> None:
        await room.acquire()
        await engine.operation("held", key=str(number), lease=lease).acall(work)

    tasks = [asyncio.create_task(call(number)) for number in range(calls)]
    waiting = asyncio.create_task(all_began.wait())
    await asyncio.wait({waiting, *tasks}, return_when=asyncio.FIRST_COMPLETED)
    if not waiting.done():
        raise next(task for task in tasks if task.done()).exception() or Lacks("a call ended")
    took, taken = time.monotonic() - began, 0
    until = time.monotonic() + seconds
    while time.monotonic() < until and not taken:
        taken = await asyncio.to_thread(_taken, store, calls)
        await asyncio.sleep(lease * 2 / 3)
    end.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    return taken, took


def _taken(store: Any, calls: int) -> int:
    """How many keys are not held by a call; those are taken."""
    addresses = [f'[null,"held","{number}"]' for number in range(calls)]
    answers = []
    for first in range(0, calls, 256):
        some = addresses[first : first + 256]
        answers += many_of(store)([("records", each, _thief(store, each)) for each in some])
    return sum(not isinstance(answer, Busy) for answer in answers)


def _thief(store: Any, address: str) -> Callable[[bytes | None, float], Any]:
    """Another process, with the same payload."""

    def decide(value: bytes | None, now: float) -> Any:
        from mainstay.core.idempotency.record import decode

        payload = "" if value is None else decode(value).fingerprint
        return reduce(value, Begin("thief", payload, 1.0, 99), now)

    return decide


# --- the stores -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _behind(url: str, **options: Any) -> Iterator[tuple[str, str]]:
    parts = urlsplit(url)
    query = "&".join(f"{name}={value}" for name, value in options.items())
    with FaultProxy(str(parts.hostname), int(parts.port or 0)) as proxy:
        proxy.latency(AWAY)
        far = proxy.url(url)
        yield f"{far}{'&' if parts.query else '?'}{query}" if query else far, url
        proxy.heal()


@contextlib.contextmanager
def _sqlite(place: Path) -> Iterator[tuple[str, str]]:
    url = f"sqlite:///{place}/held.db"
    yield url, url


@contextlib.contextmanager
def _postgres(_: Path) -> Iterator[tuple[str, str]]:
    from tests.servers.postgres import server_programs, start_postgres

    if server_programs() is None:
        raise Lacks("no server")
    server = start_postgres()
    try:
        with _behind(server.url, pool=AT_ONCE) as urls:
            yield urls
    finally:
        server.kill()


@contextlib.contextmanager
def _valkey(place: Path) -> Iterator[tuple[str, str]]:
    from tests.servers.valkey import server_binary, start_valkey

    if server_binary() is None:
        raise Lacks("no server")
    (place / "valkey").mkdir()
    server = start_valkey(place / "valkey")
    try:
        with _behind(server.url, pool=AT_ONCE) as urls:
            yield urls
    finally:
        server.kill()


@contextlib.contextmanager
def _nats(place: Path) -> Iterator[tuple[str, str]]:
    from tests.servers.nats import server_binary, start_nats

    if server_binary() is None:
        raise Lacks("no server")
    (place / "nats").mkdir()
    server = start_nats(place / "nats")
    try:
        with _behind(server.url) as urls:
            yield urls
    finally:
        server.kill()


_STORES = {"SQLite": _sqlite, "PostgreSQL": _postgres, "Valkey": _valkey, "NATS": _nats}
