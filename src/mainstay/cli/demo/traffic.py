"""The engine with its policies, and the calls: most of them async, the exports in threads.

After the calls come the acts: an outage that opens the circuits, a charge that is called twice, one
that needs a person, and the audit log of it all.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING
from urllib.parse import quote

from mainstay import Backoff, Engine, Jitter, RetryPolicy
from mainstay.cli.demo.interrupt import interrupts
from mainstay.cli.demo.orders import CHARGE, Desk
from mainstay.cli.demo.outage import SETTINGS, Circuits, break_all, recover_all
from mainstay.cli.demo.place import STORE
from mainstay.cli.demo.proof import audit_in, prove
from mainstay.cli.demo.script import Script
from mainstay.cli.demo.service import Service
from mainstay.cli.demo.tally import Tally
from mainstay.cli.demo.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from mainstay.cli.demo.interrupt import Interrupts
    from mainstay.cli.demo.orders import Charged, Resolved
    from mainstay.cli.demo.proof import Proof

    Observer = Callable[["Traffic"], object]

OPERATIONS = {
    "catalogue.read": "standard",
    "search": "aggressive",
    "report.export": "patient",
    "profile.read": "once",
}
POLICIES = (
    RetryPolicy(
        name="aggressive",
        max_attempts=5,
        backoff=Backoff.exponential(0.05, factor=2.0, max_delay=1.0),
        jitter=Jitter.percent(0.20),
        attempt_timeout=0.6,
        deadline=2.0,
    ),
    RetryPolicy(
        name="patient",
        max_attempts=4,
        backoff=Backoff.linear(0.3, step=0.3),
        jitter=Jitter.equal(),
        attempt_timeout=5.0,
    ),
    RetryPolicy(name="once", max_attempts=1),
    RetryPolicy(name="charging", max_attempts=3, attempt_timeout=2.0),
)
SPAN = 9.0
"""Seconds over which the calls begin, and the pace of fewer calls than the default."""
PACE = SPAN / 300
THREADS = 16
MAX_OPEN = 200
"""Calls under way at once; two sockets each stay well below a limit of 1024 descriptors."""
REFRESH = 0.1


class Traffic:
    """Some hundred calls, and what is known of them."""

    charged: Charged | None = None
    resolved: Resolved | None = None
    proof: Proof | None = None

    def __init__(self, calls: int, seed: int, folder: Path) -> None:
        self.folder = folder
        self.calls = calls
        self.seed = seed
        self.elapsed = 0.0
        self.begun = 0
        self.script = Script(seed, calls)
        self.tally = Tally(OPERATIONS)
        self.story: list[str] = []
        """What was said of the acts so far; nothing while the calls are made."""
        self.circuits = Circuits(OPERATIONS, self.story.append)
        self.engine = Engine(
            f"sqlite:///{quote(str(folder.absolute() / STORE))}",
            policies=POLICIES,
            operations={**OPERATIONS, CHARGE: "charging"},
            seed=seed,
            sinks=[self.tally, self.circuits],
            breaker=SETTINGS,
            share=None,
            audit=audit_in(folder),
        )
        self.service = Service(self.script)
        self.wire = Wire(0)
        self.stop = threading.Event()

    @property
    def is_outage(self) -> bool:
        """Whether the call that began last meets the outage."""
        return self.script.is_outage(self.begun - 1)

    @property
    def requests(self) -> int:
        """How many requests of the calls the service got, by its own count."""
        return sum(n for call, n in self.service.requests.items() if call < self.calls)

    def run(self, observe: Observer) -> None:
        """Makes the calls; the observer is shown the state ten times a second."""
        with interrupts() as ctrl_c, self.engine, self._threads() as pool:
            try:
                asyncio.run(self._run(pool, observe, ctrl_c))
            finally:
                ctrl_c.put_off()
        self.story.append("the audit log is verified and replayed")
        observe(self)
        self.proof = prove(self.folder)

    @contextmanager
    def _threads(self) -> Iterator[ThreadPoolExecutor]:
        """Worker threads that are gone afterwards; the cancel event ends their waits."""
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="mainstay-demo")
        try:
            yield pool
        finally:
            self.stop.set()
            pool.shutdown(cancel_futures=True)

    async def _run(self, pool: ThreadPoolExecutor, observe: Observer, ctrl_c: Interrupts) -> None:
        ctrl_c.take_once()
        async with self.service:
            self.wire = Wire(self.service.port)
            calls = asyncio.ensure_future(self._play(pool))
            try:
                await self._watch(calls, observe)
            finally:
                ctrl_c.put_off()
                self.stop.set()
                calls.cancel()
                await asyncio.gather(calls, return_exceptions=True)

    async def _watch(self, calls: asyncio.Future[None], observe: Observer) -> None:
        started = time.monotonic()
        while not calls.done():
            await asyncio.wait([calls], timeout=REFRESH)
            if not self.story:
                self.elapsed = time.monotonic() - started
            observe(self)
        await calls

    async def _play(self, pool: ThreadPoolExecutor) -> None:
        await self._make_calls(pool)
        self.tally.is_done = True
        await _go_down(self, pool)
        await _charge_orders(self, pool)

    async def _make_calls(self, pool: ThreadPoolExecutor) -> None:
        begin, places = time.monotonic(), asyncio.Semaphore(MAX_OPEN)
        pace = min(PACE, SPAN / self.calls)
        async with asyncio.TaskGroup() as group:
            for call in range(self.calls):
                await asyncio.sleep(begin + call * pace - time.monotonic())
                await places.acquire()
                self.begun = call + 1
                task = group.create_task(self._call(call, pool))
                task.add_done_callback(lambda _: places.release())

    async def _call(self, call: int, pool: ThreadPoolExecutor) -> None:
        """One call through the engine, which says through its events what became of it."""
        await self.send(self.script.operation(call), call, pool)

    async def send(self, name: str, call: int, pool: ThreadPoolExecutor) -> None:
        """The same, of an operation that need not be the script's."""
        path = f"/{name}?call={call}"
        if name == "report.export":
            operation = self.engine.operation(name, cancel=self.stop)
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(pool, operation.run, self.wire.fetch, path)
        else:
            await self.engine.arun(name, self.wire.get, path)


async def _go_down(traffic: Traffic, pool: ThreadPoolExecutor) -> None:
    """The service is down until every circuit is open, and then back."""
    circuits = [traffic.engine.breaker(name) for name in traffic.circuits.states]
    numbers = count(traffic.script.stuck.call + 1)  # of calls that the script says nothing of

    async def call(name: str) -> None:
        await traffic.send(name, next(numbers), pool)

    traffic.story.append("the service goes down, for everybody")
    traffic.service.is_down = True
    await break_all(circuits, call)
    traffic.story.append("the service is back")
    traffic.service.is_down = False
    await recover_all(circuits, call)


async def _charge_orders(traffic: Traffic, pool: ThreadPoolExecutor) -> None:
    """One order is charged by two calls; the other one not before a person has decided."""

    def charge(call: int) -> str:
        return traffic.wire.fetch(f"/{CHARGE}?call={call}", "POST").decode()

    desk = Desk(traffic.engine, charge, traffic.stop)
    loop, script = asyncio.get_running_loop(), traffic.script
    traffic.story.append(f"{script.twice.name} is charged, by two calls with one key")
    traffic.charged = await loop.run_in_executor(pool, desk.charge_twice, script.twice)
    traffic.story.append(f"{script.stuck.name} cannot be charged: a person is asked")
    traffic.resolved = await loop.run_in_executor(pool, desk.ask_a_person, script.stuck)
