"""Runs a flow against a Redis server, and orders the writers of one record.

A flow yields a command, a record to lock, or seconds to wait. `Exchange` has its state and its
deadline; `perform` and `aperform` do what it asks for. Writers of the same record go one after the
other: within a process by a lock, among processes by holding the record on the server.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from redis import exceptions as theirs

from mainstay.errors import StoreUnavailable, ValueTooLarge
from mainstay.runtime.clock import SYSTEM
from mainstay.stores.options import without_secrets
from mainstay.stores.redis.keys import SMALLER, TOKEN, explained
from mainstay.stores.time_left import shown, time_for

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.stores.redis.connection import AsyncScriptConnection, ScriptConnection
    from mainstay.stores.redis.keys import Flow, Server


class Exchange:
    """A flow under way: what it asks for, the answer or error, and the deadline."""

    __slots__ = (
        "_flow", "_store", "_what", "answer", "ask", "error", "result", "seconds", "turn", "until",
    )  # fmt: skip

    def __init__(self, store: Server, what: str, flow: Flow, seconds: float | None = None) -> None:
        self._store = store
        self._what = what
        self._flow = flow
        self.seconds = time_for(store.timeout) if seconds is None else seconds
        self.until = SYSTEM.monotonic() + self.seconds
        self.ask: Any = None
        self.answer: Any = None
        self.error: Exception | None = None
        self.turn: Any = None
        self.result: Any = None

    def asks(self) -> bool:
        """Whether the flow asks for something more, in `ask`; otherwise it has a `result`."""
        error, self.error = self.error, None
        answer, self.answer = self.answer, None
        try:
            if error is None:
                self.ask = self._flow.send(answer)
            else:
                self.ask = self._flow.throw(error)
        except StopIteration as end:
            self.result = end.value
            return False
        except Exception as raised:
            if raised is not error:
                raise  # the decision's own, as it is
            raise self.unavailable(raised) from raised
        self._check_may_go_on()
        return True

    def end(self) -> None:
        """Releases the lock of the record."""
        if self.turn is not None:
            self.turn.release()

    def _check_may_go_on(self) -> None:
        if self._store.is_closed:
            raise StoreUnavailable(self._store.url, self._what, "it was closed")
        if SYSTEM.monotonic() > self.until:
            limit = shown(self.seconds, self._store.timeout)
            reason = f"not done within {limit}: it lost every race to write"
            raise StoreUnavailable(self._store.url, self._what, reason)

    def unavailable(self, error: Exception) -> Exception:
        """The error for the caller of a client's error; any other error stays as it is."""
        if self._store.is_closed:
            return StoreUnavailable(self._store.url, self._what, "it was closed")
        if not isinstance(error, theirs.RedisError | OSError):
            return error
        if "invalid bulk length" in str(error):  # a server that does not give its settings
            return ValueTooLarge(self._store.url, None, None, hint=SMALLER)
        reason = without_secrets(explained(error, self._store, self.seconds))
        return StoreUnavailable(self._store.url, self._what, reason)


def perform(connection: ScriptConnection, write_locks: WriteLocks, exchange: Exchange) -> None:
    """Does what a flow asks for."""
    ask = exchange.ask
    if isinstance(ask, tuple):
        exchange.answer = connection.execute(ask)
    elif isinstance(ask, list):
        exchange.answer = connection.pipeline(ask)
    elif isinstance(ask, float):
        if ask:
            connection.release()
            SYSTEM.sleep(ask)
    else:
        lock = write_locks.lock(ask)
        if not lock.acquire(blocking=False):
            connection.release()
            if not lock.acquire(timeout=max(0.0, exchange.until - SYSTEM.monotonic())):
                raise theirs.TimeoutError("others of this process write the same record")
        exchange.turn = lock


async def aperform(
    connection: AsyncScriptConnection, write_locks: WriteLocks, exchange: Exchange
) -> None:
    """The same in a running loop."""
    ask = exchange.ask
    if isinstance(ask, tuple):
        exchange.answer = await connection.execute(ask)
    elif isinstance(ask, float):
        import asyncio

        if ask:
            await connection.release()
        await asyncio.sleep(ask)
    else:
        lock = write_locks.lock(ask)
        if lock.locked():
            await connection.release()
        await lock.acquire()
        exchange.turn = lock


class WriteLocks:
    """Callers of this process that write the same record go one after another.

    Without it, of a hundred callers that write one record most lose again and again: each round one
    of them wins, and the others went to the server for nothing. Two records that share a lock by
    chance wait for each other's round trip.
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self._locks = [make() for _ in range(256)]

    def lock(self, record: bytes) -> Any:
        """The lock of a record."""
        return self._locks[hash(record) & 255]


class Contention:
    """How often a step lost the race to write, and what follows from it.

    After a few losses a step asks the server to hold the record for it while it decides once more:
    otherwise a slow or distant client would lose to nearby ones for ever.
    """

    __slots__ = ("_started", "is_holding", "lost", "name")

    def __init__(self) -> None:
        self._started = SYSTEM.monotonic()
        self.lost = 0
        self.is_holding = False
        self.name = os.urandom(TOKEN)
        """Of this step; as it writes at most once, also the token of what it writes."""

    def hold(self) -> int | bytes:
        """Milliseconds to ask for: four times what a round has taken so far, within bounds."""
        if self.lost < 3:
            return b""
        taken = SYSTEM.monotonic() - self._started
        return int(min(1000.0, 50.0 + 4000.0 * taken / self.lost))

    def pause(self, is_holding: bool) -> float:
        """Seconds to wait after a loss; the answer is fresh, so the first try need not wait."""
        self.lost += 1
        self.is_holding = is_holding
        if is_holding or self.lost == 1:
            return 0.0
        return random.uniform(0.0, 0.0005 * min(self.lost, 20))  # noqa: S311 -- spreads callers
