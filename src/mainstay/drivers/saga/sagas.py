"""The sagas of an engine: run, look at, cancel, recover."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.codec.arguments import key_text
from mainstay.core.saga.commands import Cancel, Refusal
from mainstay.core.saga.context import address_of
from mainstay.core.saga.definition import Saga
from mainstay.core.saga.diagram import GRAPHS
from mainstay.core.saga.state import decode
from mainstay.core.saga.view import view_of
from mainstay.drivers.call.aio import current_sleep
from mainstay.drivers.idempotency.groups import Workers
from mainstay.drivers.idempotency.patience import aoffered, offered
from mainstay.drivers.inbox.scan import listed
from mainstay.drivers.saga import recovery
from mainstay.drivers.saga.outcome import SagaResult, result_of
from mainstay.drivers.saga.records import SPACE
from mainstay.drivers.saga.request import Request
from mainstay.drivers.saga.resolution import stuck_sagas
from mainstay.drivers.saga.runner import Runner
from mainstay.drivers.saga.session import SagaRun
from mainstay.drivers.saga.steps import is_doubtful
from mainstay.errors import StoredValueError, UsageError
from mainstay.runtime.context import CONTEXT

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator

    from mainstay.core.base.types import Seconds, UserValue
    from mainstay.core.saga.view import SagaView
    from mainstay.drivers.policy import RetryPolicy
    from mainstay.drivers.saga.parts import SagaParts
    from mainstay.drivers.saga.recovery import Recovery


class Sagas:
    """The sagas of an engine.

    >>> from mainstay import Engine, Saga, SagaStep
    >>> saga = Saga("transfer", [SagaStep("debit", lambda ctx: ctx.input["amount"])])
    >>> with Engine(sinks=[]) as engine:
    ...     engine.sagas.run(saga, {"amount": 5}, id="t-1").results["debit"]
    5
    """

    def __init__(self, parts: SagaParts) -> None:
        self._parts = parts
        self._runner = Runner(parts)
        self.forwarded: set[str] = set()
        """Tokens of decisions that were forwarded to another executor of sagas, as Temporal is."""
        self.settle = stuck_sagas(parts.records, self.forwarded)
        """Carries out a decision on an item of the inbox."""

    def register(self, *sagas: Saga) -> None:
        """Makes definitions known, so that their sagas can be recovered; `run` does it by itself.

        >>> from mainstay import Engine, Saga, SagaStep
        >>> with Engine(sinks=[]) as engine:
        ...     engine.sagas.register(Saga("transfer", [SagaStep("debit", print)], version=2))
        ...     [(saga.name, saga.version) for saga in engine.sagas.definitions]
        [('transfer', 2)]
        """
        for saga in sagas:
            self._parts.register(saga)

    @property
    def definitions(self) -> list[Saga]:
        """The definitions that are known.

        >>> from mainstay import Engine
        >>> Engine(sinks=[]).sagas.definitions
        []
        """
        return list(self._parts.definitions.values())

    # --- running ----------------------------------------------------------------------------------

    def run(
        self,
        saga: Saga,
        input: UserValue = None,  # noqa: A002 -- as the contract names it
        *,
        id: object = None,  # noqa: A002
        wait: Seconds = 60.0,
    ) -> SagaResult:
        """Runs a saga to its end; one that was run before returns what it came to.

        Args:
            saga: the definition.
            input: what the steps are given; it is recorded.
            id: what the saga is known by; the same id is one saga. None for a new one.
            wait: seconds to wait for another process that runs the same saga.

        Returns:
            A SagaResult, if it has succeeded. A saga that is compensated raises what failed; one
            that is stuck raises CompensationFailedError or SagaStuckError.

        >>> from mainstay import Engine, Saga, SagaStep
        >>> saga = Saga("transfer", [SagaStep("debit", lambda: 5)])
        >>> with Engine(sinks=[]) as engine:
        ...     engine.sagas.run(saga, id="t-1").results["debit"]
        5
        """
        if saga.is_async:
            raise UsageError(
                f"the saga {saga.name} has steps that have to be awaited",
                hint="use `await engine.sagas.arun(...)`",
            )
        request = Request(self._parts, saga, input, id, wait)
        try:
            while True:
                sent = clock.steady()
                reply = offered(self._parts.records, request.ask)
                made = request.run_of(reply, sent)
                if isinstance(made, SagaRun):
                    return result_of(self._runner.completed(made), made)
                if isinstance(made, SagaResult):
                    return made
                if made is None:
                    clock.current.sleep(request.pause())
                    continue
                taken = self._runner.take(request.address, made)
                if isinstance(taken, SagaRun):
                    return result_of(self._runner.completed(taken), taken)
                recovery.not_taken(self._parts, request.address, taken)
        except StoredValueError as error:
            self._parts.inbox.put_damage(error, request.damaged())
            raise

    async def arun(
        self,
        saga: Saga,
        input: UserValue = None,  # noqa: A002
        *,
        id: object = None,  # noqa: A002
        wait: Seconds = 60.0,
    ) -> SagaResult:
        """The same for steps that have to be awaited; plain ones run in a thread.

        >>> import asyncio
        >>> from mainstay import Engine, Saga, SagaStep
        >>> async def debit(ctx): return ctx.input
        >>> async def main():
        ...     with Engine(sinks=[]) as engine:
        ...         return await engine.sagas.arun(Saga("transfer", [SagaStep("debit", debit)]), 5)
        >>> asyncio.run(main()).results["debit"]
        5
        """
        request = Request(self._parts, saga, input, id, wait)
        records = self._parts.records
        try:
            while True:
                sent = clock.steady()
                reply = await aoffered(records, request.aask)
                made = request.run_of(reply, sent)
                if isinstance(made, SagaRun):
                    return result_of(await self._runner.acompleted(made), made)
                if isinstance(made, SagaResult):
                    return made
                if made is None:
                    await current_sleep()(request.pause())
                    continue
                taken = await self._runner.atake(request.address, made)
                if isinstance(taken, SagaRun):
                    return result_of(await self._runner.acompleted(taken), taken)
                recovery.not_taken(self._parts, request.address, taken)
        except StoredValueError as error:
            await self._parts.inbox.aput_damage(error, request.damaged())
            raise

    # --- recovering -------------------------------------------------------------------------------

    def recover(
        self,
        *,
        limit: int | None = None,
        progress: Callable[[Recovery], object] | None = None,
        workers: int = recovery.WORKERS,
    ) -> Recovery:
        """Runs the sagas to their end whose processes are gone, or that a person let go on.

        Any process may do it that knows their definitions. Open sagas are read page by page, and
        run in threads: one that hangs holds up no other.

        Args:
            limit: how many are run at most; None for all.
            progress: called with the counts so far, after each saga, in the thread of the caller.
            workers: how many run at the same time, if they take longer than a moment.

        >>> from mainstay import Engine
        >>> with Engine(sinks=[]) as engine:
        ...     engine.sagas.recover().recovered
        0
        """
        pool = Workers(recovery.checked_workers(workers))
        try:
            return recovery.recover(self._runner, self._parts, pool, limit, progress)
        finally:
            pool.close()

    async def arecover(
        self,
        *,
        limit: int | None = None,
        progress: Callable[[Recovery], object] | None = None,
        workers: int = recovery.WORKERS,
    ) -> Recovery:
        """The same in tasks of an event loop, also for sagas whose steps have to be awaited.

        >>> import asyncio
        >>> from mainstay import Engine
        >>> asyncio.run(Engine(sinks=[]).sagas.arecover()).recovered
        0
        """
        most = recovery.checked_workers(workers)
        return await recovery.arecover(self._runner, self._parts, most, limit, progress)

    def resume(self, address: str) -> bool:
        """Takes one saga over, if no process runs it, and runs it to its end; whether it did.

        >>> from mainstay import Engine
        >>> Engine(sinks=[]).sagas.resume("transfer/t-1")
        False
        """
        return recovery.resume(self._runner, self._parts, address)

    def watch(
        self,
        stop: threading.Event,
        *,
        every: Seconds = 5.0,
        progress: Callable[[Recovery], object] | None = None,
        workers: int = recovery.WORKERS,
    ) -> Recovery:
        """Recovers again and again, until the event is set; the sum of all that was done.

        A saga that takes long, or hangs, holds up neither the others nor the next look. When the
        event is set, those at hand have 30 seconds; after that another process recovers them.

        >>> import threading
        >>> from mainstay import Engine
        >>> stop = threading.Event(); stop.set()
        >>> Engine(sinks=[]).sagas.watch(stop).recovered
        0
        """
        pool = Workers(recovery.checked_workers(workers))
        once = partial(recovery.recover, self._runner, self._parts)
        try:
            return recovery.watch(once, pool, stop, every, progress, self._parts.redact)
        finally:
            pool.close()

    # --- looking and cancelling -------------------------------------------------------------------

    def get(self, saga: Saga | str, id: object, *, tenant_id: str | None = None) -> SagaView | None:  # noqa: A002
        """A saga, as its record shows it; None if there is none.

        >>> from mainstay import Engine
        >>> Engine(sinks=[]).sagas.get("transfer", "t-1") is None
        True
        """
        return self.at(self._address(saga, id, tenant_id))

    def at(self, address: str) -> SagaView | None:
        """The same by its address, as commands name a saga: `transfer/t-1`.

        >>> from mainstay import Engine
        >>> Engine(sinks=[]).sagas.at("transfer/t-1") is None
        True
        """
        record, now = self._parts.records.get(address)
        return None if record is None else view_of(address, record, now)

    def graph(self, address: str, kind: str = "mermaid") -> str:
        """A diagram of what happened to a saga: "mermaid" text, or "svg".

        >>> from mainstay import Engine, Saga, SagaStep
        >>> with Engine(sinks=[]) as engine:
        ...     _ = engine.sagas.run(Saga("transfer", [SagaStep("debit", lambda: 5)]), id="t-1")
        ...     engine.sagas.graph("transfer/t-1").splitlines()[0]
        'flowchart TD'
        """
        if kind not in GRAPHS:
            raise UsageError(f"kind = {kind!r}: must be one of {', '.join(GRAPHS)}")
        found = self.at(address)
        if found is None:
            raise UsageError(f"there is no saga {address!r}", hint="engine.sagas.all() lists them")
        return GRAPHS[kind](found)

    def all(self) -> Iterator[SagaView]:
        """Every saga there is, page by page; damaged records are reported.

        >>> from mainstay import Engine
        >>> list(Engine(sinks=[]).sagas.all())
        []
        """
        records = self._parts.records
        for address, record in listed(records.store, SPACE, decode):
            yield view_of(address, record)

    def open(self) -> Iterator[SagaView]:
        """The sagas that have not ended and are not stuck, page by page.

        >>> from mainstay import Engine
        >>> list(Engine(sinks=[]).sagas.open())
        []
        """
        for address, _ in self._parts.records.entries():
            record, now = self._parts.records.get(address)
            if record is not None and not record.state.is_ended:
                yield view_of(address, record, now)

    def cancel(
        self,
        saga: Saga | str,
        id: object,  # noqa: A002
        *,
        why: str,
        tenant_id: str | None = None,
    ) -> str:
        """Has a saga begin no further step, and undo what was done; empty, or why it does not.

        The process that runs it finds this out before its next step. Past the pivot a saga only
        goes forward.

        >>> from mainstay import Engine
        >>> Engine(sinks=[]).sagas.cancel("transfer", "t-1", why="a mistake")
        'there is no such saga'
        """
        if not why.strip():
            raise UsageError(
                "to cancel a saga needs a reason", hint='why="the order was withdrawn"'
            )
        answer, _ = self._parts.records.step(self._address(saga, id, tenant_id), Cancel(why))
        return answer.why if isinstance(answer, Refusal) else ""

    def _address(self, saga: Saga | str, saga_id: object, tenant: str | None) -> str:
        name = saga.name if isinstance(saga, Saga) else saga
        chosen = CONTEXT.get().tenant_id if tenant is None else tenant
        return address_of(name, key_text(saga_id), chosen)

    def policy_of(self, saga: Saga, number: int, *, is_undo: bool = False) -> RetryPolicy:
        """The policy of an action, or of a compensation: for executors that retry themselves.

        >>> from mainstay import Engine, Saga, SagaStep
        >>> saga = Saga("transfer", [SagaStep("debit", print)])
        >>> Engine(sinks=[]).sagas.policy_of(saga, 0).name
        'standard'
        """
        return self._parts.operations.policy_of(saga, number, is_undo=is_undo)

    @staticmethod
    def is_doubtful(error: BaseException) -> bool:
        """Whether an action that raised this may have happened.

        >>> from mainstay import Engine
        >>> Engine(sinks=[]).sagas.is_doubtful(TimeoutError())
        True
        """
        return is_doubtful(error)

    def close(self) -> None:
        """Gives steps in the background a moment; the engine calls it."""
        self._parts.records.close()
