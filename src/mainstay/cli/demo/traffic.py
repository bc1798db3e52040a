"""The engine with its policies, and the calls: most of them async, the exports in threads.

After the calls come the acts: an outage that opens the circuits, an order that two calls charge,
one that an operator decides about, and the audit log of it all.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import quote

from mainstay import Backoff, BreakerSettings, CircuitState, Engine, Jitter, RetryPolicy
from mainstay.audit import AuditLog, replay_log, verify_log
from mainstay.cli.demo.script import ORDERS, Script
from mainstay.cli.demo.service import Service, ServiceDown, StatusError, Wire
from mainstay.cli.demo.tally import Tally
from mainstay.errors import CallCancelled

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path
    from typing import Any

    from mainstay import CircuitBreaker

    Observer = Callable[["Traffic"], object]
    Call = Callable[[str], Awaitable[object]]

STORE, AUDIT, HEADS = "store.db", "audit.jsonl", "heads.jsonl"
OPERATIONS = {
    "catalogue.read": "standard",
    "search": "eager",
    "report.export": "patient",
    "profile.read": "once",
}
POLICIES = (
    RetryPolicy(name="eager", max_attempts=5, attempt_timeout=0.6, deadline=2.0,
                backoff=Backoff.exponential(0.05, factor=2.0, max_delay=1.0),
                jitter=Jitter.percent(0.20)),
    RetryPolicy(name="patient", max_attempts=4, attempt_timeout=5.0,
                backoff=Backoff.linear(0.3, step=0.3), jitter=Jitter.equal()),
    RetryPolicy(name="once", max_attempts=1),
    RetryPolicy(name="charging", max_attempts=3, attempt_timeout=2.0),
)  # fmt: skip
# 502 comes only while the service is down, so the circuits do the same each time.
BREAKER = BreakerSettings(failure_threshold=3, recovery_timeout=2.0, count_on=ServiceDown)
CHARGE, OPERATOR = "charge", "demo-operator"
SPAN = 9.0
"""Seconds over which 300 calls or more begin; fewer begin at the same pace."""
MAX_OPEN = 200
"""Calls under way at once; two sockets each stay well below a limit of 1024 descriptors."""
REFUSED = 5
"""Calls of each operation while its circuit is open."""


class Traffic:
    """Some hundred calls, and the acts after them."""

    def __init__(
        self, calls: int, seed: int, folder: Path, stop: threading.Event | None = None
    ) -> None:
        self.calls = calls
        self.seed = seed
        self.folder = folder
        self.stop = stop or threading.Event()
        self.elapsed = 0.0
        self.begun = 0
        self.script = Script(seed, calls)
        self.tally = Tally(OPERATIONS)
        self.acts: dict[str, dict[str, Any]] = {}
        """What each act came to, as the summary has it."""
        self.engine = Engine(
            f"sqlite:///{quote(str(folder.absolute() / STORE))}",
            policies=POLICIES,
            operations={**OPERATIONS, CHARGE: "charging"},
            seed=seed,
            sinks=[self.tally],
            breaker=BREAKER,
            share=None,
            audit=AuditLog(str(folder / AUDIT), heads=str(folder / HEADS), spill=False),
        )
        self.service = Service(self.script)
        self.wire = Wire(0)
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="mainstay-demo")

    @property
    def is_outage(self) -> bool:
        """Whether the service is down: for the call that began last, or for every caller."""
        is_met = not self.tally.lines and self.script.is_outage(self.begun - 1)
        return self.service.is_down or is_met

    def run(self, observe: Observer) -> bool:
        """Plays it all, unless it is stopped; the observer gets the state ten times a second."""
        with self.engine:
            try:
                asyncio.run(self._run(observe))
            except BaseException:
                self.stop.set()  # ends the waits of the threads
                raise
            finally:
                self._pool.shutdown(cancel_futures=True)
        if self.stop.is_set():
            return False
        self.tally.lines.append("the audit log is verified and replayed")
        observe(self)
        self.acts["audit"] = prove(self.folder)
        return True

    async def _run(self, observe: Observer) -> None:
        async with self.service:
            self.wire = Wire(self.service.port)
            playing, started = asyncio.ensure_future(self._play()), time.monotonic()
            try:
                while not playing.done() and not self.stop.is_set():
                    await asyncio.wait([playing], timeout=0.1)
                    if not self.tally.lines:
                        self.elapsed = time.monotonic() - started
                    observe(self)
            finally:
                playing.cancel()
                (error,) = await asyncio.gather(playing, return_exceptions=True)
        if error is not None and not self.stop.is_set():
            raise error

    async def _play(self) -> None:
        await self._make_calls()
        await self._go_down()
        in_thread = asyncio.get_running_loop().run_in_executor
        twice, stuck = ORDERS
        self.tally.lines.append(f"{twice} is charged, by two calls with one key")
        self.acts["charge"] = await in_thread(self._pool, self.charge_twice, twice)
        self.tally.lines.append(f"{stuck} cannot be charged: an operator decides")
        self.acts["inbox"] = await in_thread(self._pool, self.resolve, stuck)

    async def _make_calls(self) -> None:
        begin, places = time.monotonic(), asyncio.Semaphore(MAX_OPEN)
        pace = SPAN / max(300, self.calls)
        async with asyncio.TaskGroup() as group:
            for call in range(self.calls):
                await asyncio.sleep(begin + call * pace - time.monotonic())
                await places.acquire()
                self.begun = call + 1
                task = group.create_task(self._call(self.script.operation(call), call))
                task.add_done_callback(lambda _: places.release())

    async def _call(self, name: str, call: int) -> None:
        """One call through the engine, whose events state the outcome."""
        path = f"/{name}?call={call}"
        if name == "report.export":
            run, loop = (
                self.engine.operation(name, cancel=self.stop).run,
                asyncio.get_running_loop(),
            )
            await loop.run_in_executor(self._pool, run, self.wire.fetch, path)
        else:
            await self.engine.arun(name, self.wire.get, path)

    async def _go_down(self) -> None:
        """The service is down until every circuit is open; then it is back."""
        circuits = [self.engine.breaker(name) for name in OPERATIONS]
        numbers = count(self.calls + len(ORDERS))  # of calls without a fault

        async def call(name: str) -> None:
            await self._call(name, next(numbers))

        self.tally.lines.append("the service goes down for every caller")
        self.service.is_down = True
        await asyncio.gather(*(break_circuit(each, call) for each in circuits))
        self.tally.lines.append("the service is back")
        self.service.is_down = False
        await asyncio.gather(*(recover_circuit(each, call) for each in circuits))

    def charge(self, order: str) -> str:
        """Charges an order under its key; if that fails, an inbox item is raised."""
        self._check()
        path = f"/{CHARGE}?call={self.script.call_of(order)}"
        operation = self.engine.operation(CHARGE, key=order, escalate=True, cancel=self.stop)
        return operation.call(self.wire.fetch, path, "POST")

    def charge_twice(self, order: str) -> dict[str, Any]:
        """Two calls with one key, as of a user who presses a button twice."""
        receipts = [self.charge(order), self.charge(order)]
        return {
            "order": order,
            "calls": len(receipts),
            "requests": self.service.requests.get(self.script.call_of(order), 0),
            "charged": self.service.charges.get(self.script.call_of(order), 0),
            "receipts": receipts,
            "replayed": len(set(receipts)) == 1,
        }

    def resolve(self, order: str) -> dict[str, Any]:
        """A charge that is given up, the operator who decides, and the charge again."""
        with suppress(StatusError):
            self.charge(order)
        inbox, secret = self.engine.inbox, secrets.token_urlsafe(16)
        raised = next(item for item in inbox if item.operation == CHARGE)
        self._check()
        self.engine.operators.add(OPERATOR, secret=secret)
        self._check()
        inbox.act(raised.id, "retry", by=OPERATOR, proof=secret, why="the bank is back")
        receipt, closed = self.charge(order), inbox.get(raised.id)
        assert closed is not None
        assert closed.decision is not None
        return {
            "order": order,
            "raised": raised.text,
            "actions": list(raised.actions),
            "decision": closed.decision.action,
            "by": closed.decision.by,
            "why": closed.decision.why,
            "result": closed.result,
            "receipt": receipt,
            "charged": self.service.charges.get(self.script.call_of(order), 0),
            "still_open": len(list(inbox)),
        }

    def _check(self) -> None:
        """Raises once the demo is interrupted: hashing a secret takes its time."""
        if self.stop.is_set():
            raise CallCancelled(CHARGE, 0)


async def break_circuit(circuit: CircuitBreaker, call: Call) -> None:
    """Calls until the circuit is open, and then some more, which are refused."""
    await _until(CircuitState.OPEN, circuit, call)
    for _ in range(REFUSED):
        await call(circuit.name)


async def recover_circuit(circuit: CircuitBreaker, call: Call) -> None:
    """Waits until the circuit lets a probe through, and makes it."""
    await asyncio.sleep((circuit.retry_after or 0.0) + 0.05)
    await _until(CircuitState.CLOSED, circuit, call)


async def _until(state: CircuitState, circuit: CircuitBreaker, call: Call) -> None:
    for _ in range(10):  # far fewer are needed
        if circuit.state is state:
            return
        await call(circuit.name)


def prove(folder: Path) -> dict[str, Any]:
    """Verifies the log against itself and its heads, and makes its decisions again."""
    log = str(folder / AUDIT)
    verdict, replay = verify_log(log, heads=str(folder / HEADS)), replay_log(log)
    return {
        "ok": verdict.ok and replay.ok,
        **({} if verdict.ok else {"problem": verdict.problem}),
        "verified_records": verdict.records,
        "replayed_calls": replay.calls,
        "replayed_decisions": replay.decisions,
        "unfinished_calls": replay.unfinished,
        "unproved": sum(replay.unproved.values()),
    }
