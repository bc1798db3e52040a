"""The thread of a NATS store: an event loop, in it one connection, and the bucket of the records.

nats-py supports asyncio only, and callers come from threads and many event loops. So a store has
one thread with a loop (`NatsThread`) and in it one connection, opened when it is first needed and
again after it was lost; then the bucket is checked and the server's clock is measured. An operation
(`Operation`) runs in the loop until its timeout, and records what it is doing for error messages.
"""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from typing import TYPE_CHECKING, Any

import msgspec

from mainstay.errors import StoreError, StoreUnavailable
from mainstay.runtime.background import detached_thread
from mainstay.runtime.fork import PROCESS
from mainstay.runtime.nats.client import RealTimeLoop
from mainstay.runtime.nats.connection import (
    CLOSE_TIMEOUT,
    CONNECTION_ERRORS,
    NatsConnection,
    steady,
)
from mainstay.runtime.store_clock import StoreClock
from mainstay.stores.nats.wire import (
    NAME_IN_USE,
    NO_STREAM,
    NoResponderError,
    answer_of,
    configuration,
    differences,
)
from mainstay.stores.options import without_secrets
from mainstay.stores.time_left import shown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from concurrent.futures import Future
    from typing import TypeAlias, TypeVar

    from mainstay.stores.nats.url import NatsUrl
    from mainstay.stores.nats.wire import Answer, Clock

    Op = TypeVar("Op", bound="Operation")
    Work: TypeAlias = Coroutine[Any, Any, Any]

_AT_ONCE = 256
"""Steps under way at once; a server's JetStream queue holds 10,000 for all its clients."""


class Operation:
    """The state of an operation, for error messages: what it does, and what failed."""

    def __init__(self, address: NatsUrl, what: str, seconds: float) -> None:
        self.address = address
        self.what = what
        self.seconds = seconds
        """The store's own timeout, or less if the caller's deadline comes first."""
        self.began = steady()
        self.doing = "starting"
        self.tries = 0
        self.error = ""
        self.lost_races = 0

    def failed(self, reason: str) -> StoreUnavailable:
        return StoreUnavailable(self.address.shown, self.what, without_secrets(reason))

    def reason(self) -> str:
        """Why there was no answer, as far as it is known."""
        limit = shown(self.seconds, self.address.timeout)
        text = f"no answer within {limit}, while {self.doing}"
        if self.lost_races:
            text += f"; lost the race to write {self.lost_races} times"
        if self.tries:
            text += f"; tried to connect {self.tries} x, the last error: {self.error}"
        return text


# --- the thread -----------------------------------------------------------------------------------


class NatsThread:
    """A thread with a loop and the connection; all methods but submit and close run in it."""

    def __init__(self, address: NatsUrl, clock: Clock) -> None:
        self.address = address
        self.clock = clock
        self.store_clock = StoreClock(address.shown)
        self.locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self.room = asyncio.Semaphore(_AT_ONCE)
        self.measuring = asyncio.Lock()
        self.max_payload: int | None = None
        """The bytes of a message that the server takes, from the first connection on."""
        self._connection: NatsConnection[NatsUrl] | None = None
        self._opening: asyncio.Task[NatsConnection[NatsUrl]] | None = None
        self._discovered: list[str] = []
        self._running: set[asyncio.Task[Any]] = set()
        self._tidying: set[asyncio.Task[Any]] = set()
        self._pid = PROCESS.pid
        self._is_closing = False
        self._loop = RealTimeLoop()
        self._thread = detached_thread(self._run, "mainstay-nats")
        self._thread.start()

    def submit(self, begin: Callable[[], Op], work: Callable[[Op], Work]) -> Future[Any]:
        """Begins an operation, from any thread."""
        return asyncio.run_coroutine_threadsafe(self._bounded(begin, work), self._loop)

    def close(self) -> None:
        """Ends the thread with all that is in it, from any thread."""
        if self._is_closing or self._pid != PROCESS.pid:
            return
        self._is_closing = True
        self._loop.call_soon_threadsafe(lambda: self._tidy(self._end()))
        if threading.current_thread() is not self._thread:
            self._thread.join(5 * CLOSE_TIMEOUT)

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(_cancel_all())
            self._loop.close()

    async def _end(self) -> None:
        for task in [*self._running, *([self._opening] if self._opening else [])]:
            task.cancel()
        if self._connection is not None:
            self._tidy(self._connection.close())
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=2 * CLOSE_TIMEOUT)
        self._loop.stop()

    # --- operations ------------------------------------------------------------------------------

    async def _bounded(self, begin: Callable[[], Op], work: Callable[[Op], Work]) -> Any:
        """Runs an operation until its timeout; then cancels it."""
        step = begin()
        if self._is_closing:
            raise step.failed("it was closed")
        task = asyncio.create_task(work(step))
        task.add_done_callback(_retrieve_exception)
        self._running.add(task)
        try:
            done, _ = await asyncio.wait({task}, timeout=step.seconds)
        finally:
            task.cancel()
            self._running.discard(task)
        if not done:
            self._suspect(step)
            raise step.failed(step.reason())
        if task.cancelled():
            raise step.failed("it was closed")
        try:
            return task.result()
        except CONNECTION_ERRORS as error:
            raise step.failed(f"{_text_of(error)}, while {step.doing}") from error

    def _suspect(self, step: Operation) -> None:
        """Drops a connection that has received nothing for the store's timeout.

        An operation that was cut by the deadline of its caller may have waited for a moment only.
        """
        connection = self._connection
        if connection is None or connection.received >= step.began:
            return
        if connection.silent_since < connection.received:
            connection.silent_since = step.began
        if step.began - connection.silent_since + step.seconds >= self.address.timeout:
            self.drop(connection)

    def drop(self, connection: NatsConnection[NatsUrl]) -> None:
        """Ends a connection; the next operation opens another and checks the bucket again."""
        if self._connection is connection:
            self._connection = None
        self._tidy(connection.close())

    def _tidy(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tidying.add(task)
        task.add_done_callback(self._tidying.discard)

    # --- the connection --------------------------------------------------------------------------

    async def connection(self, step: Operation) -> NatsConnection[NatsUrl]:
        """The connection; if there is none, one task opens it for all that wait."""
        while self._connection is None or self._connection.is_lost:
            if self._opening is None:
                self._opening = asyncio.create_task(self._open())
                self._opening.add_done_callback(self._opened)
            step.doing = "connecting"
            try:
                await asyncio.shield(self._opening)
            except NoResponderError as error:
                raise step.failed(str(error)) from None
            except CONNECTION_ERRORS as error:
                step.tries, step.error = step.tries + 1, _text_of(error)
                if "authorization" in step.error.lower():
                    raise step.failed(f"the server answered: {step.error}") from None
                await asyncio.sleep(random.uniform(0.02, 0.1))  # noqa: S311 -- to spread
        return self._connection

    def _opened(self, task: asyncio.Task[NatsConnection[NatsUrl]]) -> None:
        self._opening = None
        _retrieve_exception(task)

    async def _open(self) -> NatsConnection[NatsUrl]:
        connection = NatsConnection(self.address)
        try:
            async with asyncio.timeout(self.address.timeout):
                await connection.open(self._discovered)
                await _prepare(connection)
                await measure(connection, self.clock)
        except BaseException:
            await connection.close()
            raise
        if self._connection is not None:
            self._tidy(self._connection.close())
        self._discovered = [server.geturl() for server in connection.client.discovered_servers]
        self._connection = connection
        self.max_payload = connection.client.max_payload
        return connection


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieves the exception of a task, or asyncio would log it if no caller waits any more."""
    if not task.cancelled():
        task.exception()


async def _cancel_all() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def _text_of(error: BaseException) -> str:
    return str(error).strip() or type(error).__name__


# --- the bucket -----------------------------------------------------------------------------------


async def _prepare(connection: NatsConnection[NatsUrl]) -> None:
    """Creates the bucket if it does not exist; refuses one that would lose records."""
    address = connection.address
    answer = await _api(connection, "STREAM.INFO")
    if answer.error is not None and answer.error.err_code == NO_STREAM:
        answer = await _api(connection, "STREAM.CREATE", configuration(address))
        if answer.error is not None and answer.error.err_code == NAME_IN_USE:
            answer = await _api(connection, "STREAM.INFO")  # another process created it
    if answer.error is not None:
        reason = without_secrets(f"JetStream answered: {answer.error.description}")
        raise StoreUnavailable(address.shown, f"open its bucket {address.bucket!r}", reason)
    found = differences(answer.config, address)
    if found:
        raise StoreError(
            f"the bucket {address.bucket!r} of {address.shown} cannot keep records:"
            f" {'; '.join(found)}",
            hint="change it, or name another one with ?bucket=",
        )


async def measure(connection: NatsConnection[NatsUrl], clock: Clock) -> None:
    """Reads the server's clock, and where the answer took long once or twice more."""
    for _ in range(3):
        sent = steady()
        answer = await _api(connection, "STREAM.INFO")
        if answer.ts is None:  # a server before 2.10
            await _measure_by_writing(connection, clock)
        else:
            clock.learn(sent, steady(), answer.ts.timestamp())
        if clock.uncertainty() < 0.1:
            return


async def _measure_by_writing(connection: NatsConnection[NatsUrl], clock: Clock) -> None:
    """Writes a message, and asks when the server has written it."""
    sent = steady()
    reply = await connection.ask(
        connection.address.subjects + "clock", b"", {"KV-Operation": "DEL"}
    )
    received = steady()
    asked = msgspec.json.encode({"seq": answer_of(reply).seq})
    answer = await _api(connection, "STREAM.MSG.GET", asked)
    if answer.message is None:
        raise StoreUnavailable(
            connection.address.shown, "read the time", "its own message is missing"
        )
    clock.learn(sent, received, answer.message.time.timestamp())


async def _api(connection: NatsConnection[NatsUrl], call: str, payload: bytes = b"") -> Answer:
    reply = await connection.ask(f"$JS.API.{call}.{connection.address.stream}", payload)
    return answer_of(reply)
