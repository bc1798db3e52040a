"""A process under load: it calls keys of a store by the public API, and writes to the oracle.

`python -m tests.crash.faults.worker '{"url": …}'`. Its lanes (threads, or tasks of asyncio) walk
through the same keys as those of the other workers. It obeys lines on its input: `fork HOW`, `lose`
and `stop`. With `"mode": "recover"` it asks for each key of a file, and ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import sqlite3
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mainstay import Engine, OutcomeUnknown, RetryPolicy, StoreUnavailable, verify_log
from mainstay.core.base.change import Change
from mainstay.stores.open import open_store
from tests.crash.faults import LEASE
from tests.crash.faults.oracle import Pen

OPENS_WITHIN = 30.0
_KINDS = {"short": 60, "long": 10, "fails": 10, "unsafe": 20}


def kind_of(seed: str, key: str) -> tuple[str, float]:
    """What a key is, and how long its function takes: the same in each process."""
    source = random.Random(f"{seed} {key}")
    kind = source.choices(list(_KINDS), list(_KINDS.values()))[0]
    is_long = kind == "long" or (kind == "unsafe" and source.random() < 0.3)
    return kind, source.uniform(0.3, 1.2) * LEASE if is_long else source.uniform(0.0, 0.04)


class Load:
    """The calls of one process."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.job = job
        self.pen = Pen(job["oracle"])
        self.stopping = threading.Event()
        self.engine = self._opened()
        self._count = 0
        self._recent: list[str] = []

    def _opened(self) -> Engine:
        """The engine; the store may be unavailable at the moment."""
        policies = [
            RetryPolicy(name="many", max_attempts=50),
            RetryPolicy(name="one", max_attempts=1),
        ]
        until = time.monotonic() + OPENS_WITHIN
        while True:
            try:
                return Engine(
                    self.job["url"], policies=policies, operations={"unsafe": "one"},
                    default="many", sinks=[], audit=self.job["audit"],
                )  # fmt: skip
            except StoreUnavailable:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)

    # --- the function that is called --------------------------------------------------------------

    def _begin(self, key: str) -> tuple[str, float]:
        entered = time.monotonic()  # first: a process may be stopped before the line is written
        kind, duration = kind_of(self.job["seed"], key)
        self.pen.write("began", key, more=kind, at=entered)
        return kind, duration

    def _end(self, key: str, kind: str) -> str:
        self._count += 1
        value = f"{os.getpid()}-{threading.get_ident()}-{self._count}"
        self.pen.write("ended", key, f"!{value}" if kind == "fails" else value)
        if kind == "fails":
            raise ValueError(value)
        return value + " " * self.job.get("pad", 0)

    def effect(self, key: str) -> str:
        """What is called: two lines, and some time between them."""
        kind, duration = self._begin(key)
        time.sleep(duration)
        return self._end(key, kind)

    async def aeffect(self, key: str) -> str:
        """The same, awaited."""
        kind, duration = self._begin(key)
        await asyncio.sleep(duration)
        return self._end(key, kind)

    # --- callers ----------------------------------------------------------------------------------

    def _operation(self, key: str) -> Any:
        is_unsafe = kind_of(self.job["seed"], key)[0] == "unsafe"
        name, how = ("unsafe", "unsafe") if is_unsafe else ("effect", "idempotent")
        return self.engine.operation(
            name, key=key, idempotency=how,
            lease=LEASE, ttl=self.job["ttl"], wait=self.job["wait"], scope=self.job["scope"],
        )  # fmt: skip

    def call(self, key: str) -> None:
        """Asks for a key, and writes what the caller saw."""
        self.pen.write("asked", key, more=kind_of(self.job["seed"], key)[0])
        try:
            self._saw(key, self._operation(key).call(self.effect, key))
        except Exception as error:
            self._failed(key, error)

    async def acall(self, key: str) -> None:
        """The same, awaited."""
        self.pen.write("asked", key, more=kind_of(self.job["seed"], key)[0])
        try:
            self._saw(key, await self._operation(key).acall(self.aeffect, key))
        except Exception as error:
            self._failed(key, error)

    def _saw(self, key: str, value: str) -> None:
        self.pen.write("saw", key, value.rstrip())

    def _failed(self, key: str, error: Exception) -> None:
        name = type(error).__name__
        if type(error) is ValueError:
            if not any("could not be recorded" in note for note in getattr(error, "__notes__", ())):
                self.pen.write("saw", key, f"!{error}")
                return
            name = "not recorded"
        item = "" if not isinstance(error, OutcomeUnknown) else self._item(error)
        self.pen.write("raised", key, name, item or f"{error}")

    def _item(self, error: OutcomeUnknown) -> str:
        """The state of the item that a person finds, where that can be asked now."""
        try:
            item = self.engine.inbox.get(error.item_id or "")
        except StoreUnavailable:
            return "unavailable"
        return "no item" if item is None else item.status

    # --- load -------------------------------------------------------------------------------------

    def keys(self, lane: int) -> Any:
        """The keys of a lane: one new one after another, sometimes an older one."""
        source, number = random.Random(f"{os.getpid()} {lane}"), self.job["start"]
        while not self.stopping.is_set():
            key = f"{lane}-{number}"
            self._recent = [*self._recent[-9:], key]
            yield key
            if number and source.random() < 0.3:
                yield f"{lane}-{source.randrange(number)}"
            number += 1

    def run(self) -> None:
        """Lanes in threads, or in a loop, until it is asked to stop."""
        threading.Thread(target=self._watch, daemon=True).start()
        lanes = range(self.job["lanes"])
        if self.job["colour"] == "asyncio":
            threads = [threading.Thread(target=self._loop, args=[lanes])]
        else:
            threads = [threading.Thread(target=self._lane, args=[lane]) for lane in lanes]
        for thread in threads:
            thread.start()
        self.pen.write("ready")
        self._obey()
        self.stopping.set()
        for thread in threads:
            thread.join()
        self.engine.close()

    def _lane(self, lane: int) -> None:
        for key in self.keys(lane):
            self.call(key)
            time.sleep(0.01)

    def _loop(self, lanes: range) -> None:
        async def all_of_them() -> None:
            await asyncio.gather(*(self._alane(lane) for lane in lanes))

        asyncio.run(all_of_them())

    async def _alane(self, lane: int) -> None:
        for key in self.keys(lane):
            await self.acall(key)
            await asyncio.sleep(0.01)

    def _watch(self) -> None:
        """Notes when this process did not get its turn for long: its lease may be over.

        Neither at the processor nor at the store: of several that write, one may wait for long.
        """
        last = time.monotonic()
        while True:
            time.sleep(0.1)
            with contextlib.suppress(Exception):  # faults, and the end of the process
                mine = f"{os.getpid()}"
                self.engine.store.transact("witness", mine, lambda *_: (Change(b""), None))
            now = time.monotonic()
            if now - last > LEASE / 4:
                self.pen.write("stalled", more=f"{last}")
            last = now

    # --- commands ---------------------------------------------------------------------------------

    def _obey(self) -> None:
        for line in sys.stdin:
            word, _, rest = line.strip().partition(" ")
            if word == "stop":
                return
            if word == "lose":
                LossyConnection.armed = True
            elif word == "fork" and not self._fork(rest):
                return

    def _fork(self, how: str) -> bool:
        """Forks while the lanes are in their calls; whether the parent goes on."""
        how, number = how.split()
        recent = list(self._recent)
        if how == "multiprocessing":
            context = multiprocessing.get_context("fork")
            context.Process(target=self._be_child, args=[how, number, recent]).start()
            self.pen.write("forked", more=how)
            return True
        parent = os.getpid()
        if os.fork() == 0:
            if how in ("closes", "exits"):
                _wait_until_gone(parent)
            self._be_child(how, number, recent)
            os._exit(0)
        self.pen.write("forked", more=how)
        if how == "exits":
            os._exit(0)
        return how != "closes"

    def _be_child(self, how: str, number: str, recent: list[str]) -> None:
        """Calls of a forked child, with the engine of its parent."""
        for key in [*(f"f{number}-{each}" for each in range(3)), *recent[-3:]]:
            self.call(key)
        if how == "stays" and int(number) % 2:
            self.engine.close()

    # --- recovery ---------------------------------------------------------------------------------

    def recover(self) -> None:
        """Asks for each key; writes what became of it, and what is wrong with the store."""
        keys = json.loads(Path(self.job["keys"]).read_text(encoding="utf-8"))
        with ThreadPoolExecutor(8) as pool:
            for _ in range(self.job["rounds"]):
                self.pen.write("round")
                list(pool.map(self.call, keys))
        self.engine.close()
        self.pen.write("damage", more=damage(self.job["url"], self.job["audit"]))

    # --- purging ----------------------------------------------------------------------------------

    def purge(self) -> None:
        """Asks for a new key, as a process that has just started, and purges the whole store."""
        self.call(self.job["key"])
        store = self.engine.store
        while store.purge(500) or not getattr(store, "is_swept", True):
            pass
        self.engine.close()


def damage(url: str, audit: str | None) -> str:
    """What is wrong with a store that nobody uses any more; nothing if all is well."""
    if url.startswith("sqlite"):
        path = url.removeprefix("sqlite:///").partition("?")[0]
        with contextlib.closing(sqlite3.connect(path, timeout=10.0)) as connection:
            found = connection.execute("PRAGMA integrity_check").fetchall()
        if found != [("ok",)]:
            return f"integrity_check: {found[:3]}"
    verdict = verify_log(audit or url)
    return "" if verdict.ok else f"audit log: {verdict.problem}"


def bear_witness(url: str, pen: Pen) -> None:
    """Uses the store beside the workers, and notes when it did not answer for long: `slow`.

    On a machine with more work than it can do a server is as good as down, and leases run out.
    """
    threading.Thread(target=_use, args=[url, pen], daemon=True).start()
    sys.stdin.readline()


def _use(url: str, pen: Pen) -> None:
    last, store = time.monotonic(), None
    while True:
        with contextlib.suppress(StoreUnavailable):
            store = store or open_store(url)
            store.transact("witness", "clock", lambda _, now: (Change(b"%.3f" % now), None))
            if time.monotonic() - last > LEASE / 4:
                pen.write("slow", more=f"{last}")
            last = time.monotonic()
        time.sleep(0.05)


def _wait_until_gone(parent: int) -> None:
    until = time.monotonic() + 4.0 * LEASE
    while os.getppid() == parent and time.monotonic() < until:
        time.sleep(0.005)


class LossyConnection(sqlite3.Connection):
    """Carries out a statement that commits, and then reports an error, once."""

    armed = False
    pen: Pen

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """The statement is carried out in any case."""
        was_inside = self.in_transaction
        cursor = super().execute(statement, *values)
        word = statement.split(maxsplit=1)[0].upper()
        commits = word == "COMMIT" or (not was_inside and word in ("INSERT", "UPDATE", "DELETE"))
        if commits and not self.in_transaction and LossyConnection.armed:
            LossyConnection.armed = False
            LossyConnection.pen.write("lost", more=word)
            raise sqlite3.OperationalError("disk I/O error")
        return cursor


def _lose_replies(pen: Pen) -> None:
    """Every connection that is opened from now on may lose the reply to a commit."""
    plain = sqlite3.connect
    LossyConnection.pen = pen

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        return plain(*args, **{"factory": LossyConnection, **options})

    sqlite3.connect = connect  # type: ignore[assignment]


def work(job: dict[str, Any]) -> None:
    """Runs a job."""
    if job.get("is_lossy"):
        _lose_replies(Pen(job["oracle"]))
    if job["mode"] == "witness":
        bear_witness(job["url"], Pen(job["oracle"]))
        return
    load = Load(job)
    if job["mode"] == "recover":
        load.recover()
    elif job["mode"] == "purge":
        load.purge()
    else:
        load.run()


if __name__ == "__main__":
    work(json.loads(sys.argv[1]))
