"""A process that makes one keyed call and may kill itself on the way.

`python -m tests.crash.worker` waits for jobs on its input, one JSON object a line, and forks a
child for each: starting Python anew would cost more than everything else. The child counts
boundaries (before and after each statement of the store, the effect, and the caller's hearing of
it) and sends itself SIGKILL at the one it was told. All that outlives it is the store and two files
of lines that are flushed to the disk: effects, and what callers saw.
"""

# ruff: noqa: T201 -- it answers on its output

from __future__ import annotations

import asyncio
import gc
import importlib.resources.readers
import json
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mainstay.drivers.call.result
import mainstay.stores.sqlite.space
from mainstay import Backoff, Engine, RetryPolicy
from mainstay.core.idempotency.record import Busy, Done, Renew
from mainstay.drivers.idempotency import lease_renewal
from mainstay.drivers.idempotency.keyed_call import KeyedCall
from mainstay.drivers.idempotency.purging import Purging
from mainstay.stores.open import open_store
from mainstay.stores.sqlite import statements as sqlite_steps
from mainstay.stores.sqlite.store import SqliteStore

PRELOADED = (
    importlib.resources.readers, mainstay.drivers.call.result, mainstay.stores.sqlite.space,
)  # fmt: skip
"""What a call would import; a child need not, if the process that forks it has."""
LEASE = 0.25
MOST = 5
LIMIT = 30.0
"""Seconds after which a child counts as hung."""


class Ambiguous(Exception):
    """It may have been applied."""


_SWIFT: dict[str, Any] = {"backoff": Backoff.constant(0.001), "retry_on": ConnectionError}
POLICIES = [
    RetryPolicy(name="patient", max_attempts=MOST, **_SWIFT),
    RetryPolicy(name="twice", max_attempts=2, **_SWIFT),
    RetryPolicy(name="once", max_attempts=1, classify={Ambiguous: "ambiguous"}),
]
SCENARIOS = ("plain", "flaky", "fails", "released", "long", "unsafe", "given_up")
OPERATIONS = dict.fromkeys(SCENARIOS, "patient") | {"unsafe": "once", "released": "twice"}


# --- boundaries -----------------------------------------------------------------------------------


class Boundaries:
    """Counts them, and kills the process at one.

    A second run must find the boundaries of the first, however slow the machine is. A renewal adds
    its own, and as it changes the record it adds some to the next step of the call too; so where
    boundaries are counted a lease is not renewed when a third of it is over, but once, when the
    scenario asks for it. Nor does a thread purge, which begins with the first record: one scenario
    purges at its end, in the thread of the call. A step that finds its key taken is a boundary to
    be killed at like any other, but when it is over it does not count: how many there are depends
    on what is left of the lease. For the steps of SQLite see `_choose_path`.
    """

    def __init__(self, crash_at: int) -> None:
        self.crash_at = crash_at
        self.labels: list[str] = []
        self.command = ""
        self._asked, self._renewed = threading.Event(), threading.Event()
        self._lock = threading.Lock()

    def wait_for_a_renewal(self) -> None:
        """Lets the lease be renewed, and returns when it has been."""
        self._asked.set()
        assert self._renewed.wait(LIMIT), "the lease was not renewed"

    def renew(self, renew: Callable[[], None], *, is_counted: bool) -> None:
        """What the thread that renews leases does at each of its turns."""
        if is_counted and (self._renewed.is_set() or not self._asked.is_set()):
            return
        renew()
        self._renewed.set()

    def announce(self, decide: Any) -> None:
        """Says for which command the next boundaries are."""
        self.command = "" if decide is None else getattr(decide, "command", "inbox")

    def pass_by(self, label: str) -> None:
        with self._lock:
            self.labels.append(f"{self.command} {label}".strip())
            if len(self.labels) == self.crash_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def forget_from(self, label: str) -> None:
        """Counts no more what came since the last boundary of that name."""
        with self._lock:
            last = max(at for at, each in enumerate(self.labels) if each.endswith(label))
            del self.labels[last:]

    def around(self, decide: Any) -> Any:
        """A decision that says which command it is for."""

        def marked(value: bytes | None, now: float) -> Any:
            self.announce(decide)
            return decide(value, now)

        return marked


def _name_commands() -> None:
    """Lets each decision of a keyed call tell its command."""
    plain = KeyedCall.decide

    def decide(self: KeyedCall, command: Any) -> Any:
        made: Any = plain(self, command)
        again = type(command) is Renew and command.attempts
        made.command = "attempt" if again else type(command).__name__.lower()
        return made

    KeyedCall.decide = decide  # type: ignore[method-assign]


def _renew_through(boundaries: Boundaries) -> None:
    """Lets the boundaries of this process choose when a lease is renewed."""
    plain = lease_renewal.many_of

    def many_of(store: Any) -> Any:
        def renewed(steps: Any) -> list[Any]:
            answers: list[Any] = []
            boundaries.renew(
                lambda: answers.extend(plain(store)(steps)), is_counted=isinstance(store, _Told)
            )
            return answers or [Done()] * len(steps)

        return renewed

    lease_renewal.many_of = many_of


class _Told:
    """The steps of a store, each announced with its command before it begins."""

    boundaries: Boundaries

    def transact(self, space: str, key: str, decide: Any, *hint: Any) -> Any:
        return self._announced(decide, super().transact(space, key, self._mark(decide), *hint))  # type: ignore[misc]

    async def atransact(self, space: str, key: str, decide: Any) -> Any:
        made = await super().atransact(space, key, self._mark(decide))  # type: ignore[misc]
        return self._announced(decide, made)

    def _mark(self, decide: Any) -> Any:
        self.boundaries.announce(decide)
        self.boundaries.pass_by("before the step")
        return self.boundaries.around(decide)

    def _announced(self, decide: Any, answer: Any) -> Any:
        self.boundaries.pass_by("after the step")
        self.boundaries.announce(None)
        if type(answer) is Busy:
            self.boundaries.forget_from("before the step")
        return answer


class _Hooked:
    """A connection to SQLite with a boundary before and after each statement."""

    def __init__(self, connection: Any, boundaries: Boundaries) -> None:
        self._connection = connection
        self._boundaries = boundaries

    def execute(self, statement: str, *values: Any) -> Any:
        word = statement.split(maxsplit=1)[0]
        self._boundaries.pass_by(f"before {word}")
        done = self._connection.execute(statement, *values)
        self._boundaries.pass_by(f"after {word}")
        return done

    def executemany(self, statement: str, rows: Any) -> Any:
        word = statement.split(maxsplit=1)[0]
        self._boundaries.pass_by(f"before {word}")
        done = self._connection.executemany(statement, rows)
        self._boundaries.pass_by(f"after {word}")
        return done

    @property
    def in_transaction(self) -> bool:
        return bool(self._connection.in_transaction)

    def getlimit(self, category: int, /) -> int:
        return int(self._connection.getlimit(category))

    def close(self) -> None:
        self._connection.close()


def _choose_path(*, is_late: bool) -> None:
    """Lets every step that has a hint be in time, or none.

    SQLite refuses one that is made more than 10 ms after its time was read, and then it is made
    with a transaction: which of the two it is must not depend on the machine.
    """
    limit = "< 0.0" if is_late else "< 1e9"
    for name in ("_INSERT", "_UPDATE"):
        statement = getattr(sqlite_steps, name)
        assert "< 0.01" in statement
        setattr(sqlite_steps, name, statement.replace("< 0.01", limit))


class CrashingSqlite(_Told, SqliteStore):
    """Kills its process at a boundary, also while it makes its tables."""

    def __init__(self, url: str, boundaries: Boundaries) -> None:
        self.boundaries = boundaries
        super().__init__(url)

    def _connect(self) -> Any:
        return _Hooked(super()._connect(), self.boundaries)


def crashing_postgres(url: str, boundaries: Boundaries) -> Any:
    """The same for PostgreSQL: a boundary before and after each trip to the server."""
    from mainstay.stores.postgres.store import PostgresStore

    class CrashingPostgres(_Told, PostgresStore):
        def _step(self, space: str, key: str, decide: Any) -> Any:
            steps, answer = super()._step(space, key, decide), None
            while True:
                try:
                    trip = steps.send(answer)
                except StopIteration as end:
                    return end.value
                boundaries.pass_by("before a trip")
                answer = yield trip
                boundaries.pass_by("after a trip")

    CrashingPostgres.boundaries = boundaries
    return CrashingPostgres(url)


_STORES = {
    "redis": ("mainstay.stores.redis.store", "RedisStore"),
    "nats": ("mainstay.stores.nats.store", "NatsStore"),
}


def opened(url: str, boundaries: Boundaries | None = None) -> Any:
    """The store of a URL; with boundaries where its statements can be counted."""
    scheme = url.partition("://")[0]
    if scheme in _STORES:
        module, name = _STORES[scheme]
        return getattr(__import__(module, fromlist=[name]), name)(url)
    if scheme == "postgresql":
        return crashing_postgres(url, boundaries or Boundaries(0))
    return open_store(url) if boundaries is None else CrashingSqlite(url, boundaries)


# --- what is called -------------------------------------------------------------------------------


class Script:
    """The function of a scenario, with its effects."""

    def __init__(self, job: dict[str, Any], boundaries: Boundaries) -> None:
        self.job = job
        self.boundaries = boundaries
        self.calls = 0

    def effect(self) -> str:
        """One line, on the disk before it is said to be done."""
        self.calls += 1
        self.boundaries.command = ""
        self.boundaries.pass_by("before the effect")
        append(self.job, "effects", f"{self.job['key']} {self.calls} {os.getpid()}")
        self.boundaries.pass_by("after the effect")
        return f"{os.getpid()}-{time.monotonic_ns()}"

    def plain(self) -> str:
        made, what = self.effect(), self.job["scenario"]
        if what == "fails":
            raise ValueError(made)
        if what == "unsafe":
            raise Ambiguous(made)
        if what == "released" or (what == "flaky" and self.calls == 1):
            raise ConnectionError(made)
        if what == "long":
            self.boundaries.wait_for_a_renewal()
        if what == "given_up":
            os.kill(os.getpid(), signal.SIGKILL)
        return made

    async def coloured(self) -> str:
        if self.job["scenario"] == "long":
            made = self.effect()
            await asyncio.to_thread(self.boundaries.wait_for_a_renewal)
            return made
        return self.plain()


def append(job: dict[str, Any], name: str, line: str) -> None:
    """Adds a line to a file of the job, and has it on the disk."""
    where = os.open(Path(job["folder"], name), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(where, f"{line}\n".encode())
    os.fsync(where)
    os.close(where)


def perform(job: dict[str, Any]) -> Boundaries:
    """Makes the keyed call of a job, and writes down what the caller saw."""
    boundaries = Boundaries(job.get("crash_at", 0))
    _renew_through(boundaries)
    _choose_path(is_late=job.get("is_late", False))
    script = Script(job, boundaries)
    store = opened(job["url"], boundaries)
    how = "unsafe" if job["scenario"] == "unsafe" else "idempotent"
    options: dict[str, Any] = {"sinks": [], "audit": False, "purge": None}
    with Engine(store, policies=POLICIES, operations=OPERATIONS, **options) as engine:
        operation = engine.operation(
            job["scenario"], key=job["key"], idempotency=how, lease=LEASE, wait=LIMIT / 2
        )
        if job.get("colour") == "asyncio":
            result = asyncio.run(operation.arun(script.coloured))
        else:
            result = operation.run(script.plain)
        boundaries.pass_by("before it is seen")
        error = result.last_exception
        seen = {"value": result.value} if error is None else {"error": type(error).__name__}
        if isinstance(error, ValueError):
            seen["value"] = str(error)
        elif error is not None:
            seen["why"] = "; ".join([str(error), *getattr(error, "__notes__", ())])
        append(job, "seen", json.dumps(seen))
        boundaries.pass_by("after it is seen")
        if job["scenario"] == "plain":
            boundaries.command = "purge"
            Purging(store).purge_if_due()
    return boundaries


# --- the process that forks -----------------------------------------------------------------------


def serve() -> None:
    """Forks a child for each job; answers with how it ended."""
    _name_commands()
    gc.freeze()  # what a child does not touch it need not copy
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _be_child(job)
        print(json.dumps({"status": _end_of(pid, job.get("kill_after"))}), flush=True)


def _be_child(job: dict[str, Any]) -> None:
    status = 1
    try:
        os.setpgid(0, 0)
        boundaries = perform(job)
        Path(job["folder"], "labels").write_text("\n".join(boundaries.labels))
        status = 0
    except BaseException:
        append(job, "trouble", traceback.format_exc())
    finally:
        os._exit(status)


def _end_of(pid: int, kill_after: float | None) -> int | None:
    """The child's exit status; negative for a signal, None where it had to be stopped."""
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(pid, signal.SIGKILL)
    until = time.monotonic() + LIMIT
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


if __name__ == "__main__":
    serve()
