"""A process that runs or recovers sagas and may kill itself on the way.

`python -m tests.crash.saga_worker` waits for jobs on its input, one JSON object a line, and forks
children for each. A child counts boundaries (before and after each write of the store, and each
effect of a step) and sends itself SIGKILL at the one that its job names. All that outlives it is
the store and a file of effects, which each step appends to and flushes to the disk.
"""

# ruff: noqa: T201 -- it answers on its output

from __future__ import annotations

import gc
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
import mainstay.drivers.saga.sagas
import mainstay.stores.sqlite.space
import mainstay.testing
from mainstay import Backoff, Engine, RetryPolicy, Saga, SagaStep
from mainstay.stores.sqlite.store import SqliteStore

PRELOADED = (mainstay.drivers.call.result, mainstay.stores.sqlite.space, mainstay.testing)
LEASE = 0.25
LIMIT = 60.0
"""Seconds after which a child gives up."""
_ONCE = RetryPolicy(name="once", max_attempts=1)
_TWICE = RetryPolicy(
    name="twice", max_attempts=2, backoff=Backoff.constant(0.001), retry_on=Exception
)

SCENARIOS = {
    "succeeds": ("a~ b~ c", "succeeded"),
    "fails": ("a~ b~ c~ d?", "compensated"),
    "doubts": ("a~ b~%", "compensated"),
    "group": ("a~ (b~ c~) d?", "compensated"),
    "pivot": ("a~ b! c", "succeeded"),
    "stuck": ("a~ b~x c?", "stuck"),
    "behind": ("a~ b! c?", "stuck"),
}
"""The steps of each, and how it ends: `~` has a compensation, `?` fails, `%` fails in doubt, `x`
has a compensation that fails, `!` is the pivot."""


class Boundaries:
    """Counts them, and kills the process at one."""

    def __init__(self, crash_at: int, counted: Path) -> None:
        self._crash_at, self._number = crash_at, 0
        self._counted = counted
        self._lock = threading.Lock()

    def pass_by(self) -> None:
        """One more boundary; perhaps the last.

        How many renewals there are depends on the machine, and a second run must find the
        boundaries of the first: they do not count.
        """
        if threading.current_thread().name == "mainstay-renewer":
            return
        with self._lock:
            self._number += 1
            if self._number == self._crash_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def keep(self) -> None:
        """Writes down how many there were."""
        self._counted.write_text(f"{self._number}", encoding="utf-8")

    def around(self, method: Callable[..., Any]) -> Callable[..., Any]:
        """A write of a store between two boundaries."""

        def bounded(*args: Any, **kwargs: Any) -> Any:
            self.pass_by()
            try:
                return method(*args, **kwargs)
            finally:
                self.pass_by()

        return bounded


def definition(scenario: str, effects: Path, boundaries: Boundaries) -> Saga:
    """The saga of a scenario, whose steps append to a file of each saga's own."""

    def acting(name: str, error: Exception | None) -> Callable[..., Any]:
        def act(ctx: Any) -> str:
            boundaries.pass_by()
            line = f"{name} {ctx.key} {time.time():.6f} {os.getpid()}\n"
            with (effects / ctx.saga_id).open("ab", buffering=0) as file:
                file.write(line.encode())
                os.fsync(file.fileno())
            boundaries.pass_by()
            ctx.emit(name, {"key": ctx.key}, aggregate_type="saga", aggregate_id=ctx.saga_id)
            if error is not None:
                raise error
            return name

        return act

    def step(text: str) -> SagaStep:
        name = text[0]
        error = ValueError(name) if "?" in text else TimeoutError(name) if "%" in text else None
        undo_error = ValueError(f"-{name}") if "x" in text else None
        undo = acting(f"-{name}", undo_error) if "~" in text else None
        return SagaStep(
            name,
            acting(name, error),
            undo,
            pivot="!" in text,
            policy=_ONCE,
            compensate_policy=_TWICE if undo_error else _ONCE,
        )

    shape, _ = SCENARIOS[scenario]
    groups: list[list[SagaStep]] = []
    is_inside = False
    for word in shape.split():
        if not is_inside:
            groups.append([])
        groups[-1].append(step(word.strip("()")))
        is_inside = (is_inside or word.startswith("(")) and not word.endswith(")")
    return Saga(scenario, groups, lease=LEASE, max_recoveries=1000)


def work(job: dict[str, Any]) -> None:
    """One process: runs the saga, or recovers until it is over."""
    folder = Path(job["folder"])
    boundaries = Boundaries(job["crash_at"], folder / "counted")
    saga = definition(job["scenario"], Path(job["effects"]), boundaries)
    stores: list[Any] = [SqliteStore]
    if job["url"].startswith("postgresql"):
        from mainstay.stores.postgres.store import PostgresStore

        stores = [PostgresStore]
    for store in stores:
        for name in (
            "transact",
            "transact_many",
            "transact_also",
            "transact_together",
            "transact_new",
        ):
            if hasattr(store, name):
                setattr(store, name, boundaries.around(getattr(store, name)))
    engine = Engine(job["url"], sinks=[], audit=False, purge=None, share=None)
    engine.sagas.register(saga)
    if job["is_first"]:
        try:
            engine.sagas.run(saga, {"n": 1}, id=job["id"])
        except Exception:
            traceback.format_exc()
    else:
        end = time.monotonic() + LIMIT
        while time.monotonic() < end:
            engine.sagas.recover()
            found = engine.sagas.get(saga, job["id"])
            mine = [at for at, _ in engine.sagas._parts.records.entries() if job["id"] in at]
            is_open = bool(mine)  # other trials may use the same database
            if not is_open and (found is None or found.state not in ("running", "compensating")):
                break
            time.sleep(0.02)
    engine.close()
    boundaries.keep()


def main() -> None:
    """Forks the children of each job, waits for them, and prints how they ended."""
    gc.freeze()
    for line in sys.stdin:
        children = []
        for job in json.loads(line):
            pid = os.fork()
            if pid == 0:
                try:
                    os.dup2(2, 1)
                    work(job)
                except BaseException:
                    traceback.print_exc()
                    os._exit(70)
                os._exit(0)
            children.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
