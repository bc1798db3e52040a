"""Sagas in a test: run in memory, a step that fails, a process that dies at a write."""

from __future__ import annotations

from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING

from mainstay.core.base.functions import is_async, takes_context
from mainstay.core.base.spaces import Space
from mainstay.core.saga.definition import Saga, SagaStep
from mainstay.engine.engine import Engine
from mainstay.errors import StoreError
from mainstay.stores.memory import MemoryStore
from mainstay.testing.time import virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from mainstay.core.base.change import Decide, Reply
    from mainstay.core.base.types import UserValue
    from mainstay.core.inbox.items import Item
    from mainstay.core.saga.definition import Action
    from mainstay.core.saga.view import SagaView
    from mainstay.ports import Step

_SAGAS = Space.SAGAS.value
_MOST_RECOVERIES = 100


class ProcessDied(BaseException):
    """A process has died at a write of a saga, as `crash_at` asked for.

    >>> issubclass(ProcessDied, Exception)
    False
    """


class SagaTrace:
    """What a saga did in a test.

    Attributes:
        state: "succeeded", "compensated" or "stuck".
        calls: the steps that ran, in their order: "debit", and "-debit" for its compensation.
        results: what the steps returned, if the saga has succeeded.
        error: what it raised, if it has not; None if it was recovered after a crash.
        items: the items that were raised for a person.
        view: the saga, as its record shows it.
        writes: how often its record was written.

    >>> from mainstay import Saga, SagaStep
    >>> run_saga(Saga("transfer", [SagaStep("debit", lambda: None)]))
    SagaTrace(state='succeeded', calls=['debit'])
    """

    __slots__ = ("calls", "error", "items", "results", "state", "view", "writes")

    def __init__(self) -> None:
        self.state = ""
        self.calls: list[str] = []
        self.results: Mapping[str, UserValue] = {}
        self.error: BaseException | None = None
        self.items: list[Item] = []
        self.view: SagaView | None = None
        self.writes = 0

    def __repr__(self) -> str:
        return f"SagaTrace(state={self.state!r}, calls={self.calls!r})"


def run_saga(
    saga: Saga,
    input: UserValue = None,  # noqa: A002 -- as `engine.sagas.run` names it
    *,
    fail: Mapping[str, Exception] | None = None,
    crash_at: int | Sequence[int] = (),
    crash_when: str = "before",
) -> SagaTrace:
    """Runs a saga in memory and in virtual time, to its end; the actions are its own.

    What an action returns that has to be awaited is awaited, as `engine.sagas.arun` does.

    Args:
        saga: the definition.
        input: what the steps are given.
        fail: steps that fail each time, and with what: `{"credit": OSError("down")}`;
            `"-credit"` is its compensation.
        crash_at: the number of a write, from 1, at which the process dies; or several. Another
            process then recovers the saga.
        crash_when: "before" the write, or "after" it.

    >>> from mainstay import Saga, SagaStep
    >>> saga = Saga("transfer", [
    ...     SagaStep("debit", lambda ctx: ctx.input, compensate=lambda: None),
    ...     SagaStep("credit", lambda: None),
    ... ])
    >>> run_saga(saga, 5).state
    'succeeded'
    >>> run_saga(saga, 5, fail={"credit": ValueError("closed")}).calls
    ['debit', 'credit', '-debit']
    >>> run_saga(saga, 5, crash_at=2).calls
    ['debit', 'debit', 'credit']
    """
    trace, kept = SagaTrace(), MemoryStore()
    numbers = [crash_at] if isinstance(crash_at, int) else list(crash_at)
    watched = _watched(saga, trace.calls, fail or {})
    with virtual_time() as time:
        for number in range(_MOST_RECOVERIES):
            store = CrashingStore(kept, numbers, crash_when, trace.writes)
            try:
                _process(store, watched, input, trace, is_first=not number)
            except ProcessDied:
                time.advance(saga.lease + 1.0)
            else:
                break
            finally:
                trace.writes = store.writes
        with Engine(kept, sinks=[]) as engine:
            trace.items = list(engine.inbox)
            trace.view = engine.sagas.get(saga, "1")
    trace.state = "" if trace.view is None else trace.view.state
    return trace


def _process(
    store: CrashingStore, saga: Saga, given: UserValue, trace: SagaTrace, *, is_first: bool
) -> None:
    """One process: the first runs the saga, the others recover it."""
    import asyncio

    with Engine(store, sinks=[], purge=None) as engine:
        engine.sagas.register(saga)
        if not is_first and next(engine.sagas.open(), None) is not None:
            engine.sagas.recover()
            return
        try:
            if saga.is_async:
                result = asyncio.run(engine.sagas.arun(saga, given, id="1"))
            else:
                result = engine.sagas.run(saga, given, id="1")
        except Exception as error:
            trace.error = error
        else:
            trace.results = result.results


def _watched(saga: Saga, calls: list[str], fail: Mapping[str, Exception]) -> Saga:
    """The same saga, whose steps are listed as they run."""
    plain = _around if saga.is_async else _awaiting_around

    def around(name: str, action: Action) -> Action:
        function = _async_around if is_async(action) else plain
        return partial(function, calls, name, action, fail.get(name))

    def step(own: SagaStep) -> SagaStep:
        undo = None if own.compensate is None else around(f"-{own.name}", own.compensate)
        return SagaStep(
            own.name,
            around(own.name, own.action),
            undo,
            pivot=own.pivot,
            policy=own.policy,
            compensate_policy=own.compensate_policy,
            idempotency=own.idempotency,
        )

    groups = [[step(saga.steps[number]) for number in group] for group in saga.groups]
    return Saga(
        saga.name,
        groups,
        version=saga.version,
        deadline=saga.deadline,
        lease=saga.lease,
        max_recoveries=saga.max_recoveries,
        keep=saga.keep,
    )


def _around(
    calls: list[str], name: str, action: Action, error: Exception | None, ctx: UserValue
) -> UserValue:
    calls.append(name)
    if error is not None:
        raise error
    return action(*((ctx,) if takes_context(action) else ()))


def _awaiting_around(
    calls: list[str], name: str, action: Action, error: Exception | None, ctx: UserValue
) -> UserValue:
    return _awaited(_around(calls, name, action, error, ctx))


def _awaited(result: UserValue) -> UserValue:
    """What a lambda of a saga without async steps returns; awaited, as `arun` awaits it."""
    import asyncio

    if not isawaitable(result):
        return result

    async def awaited() -> UserValue:
        return await result

    return asyncio.run(awaited())


async def _async_around(
    calls: list[str], name: str, action: Action, error: Exception | None, ctx: UserValue
) -> UserValue:
    calls.append(name)
    if error is not None:
        raise error
    return await action(*((ctx,) if takes_context(action) else ()))


class CrashingStore(MemoryStore):
    """A store whose process dies at some writes of sagas; what is kept is another store's.

    From then on it does not answer: the process is gone.

    >>> store = CrashingStore(MemoryStore(), [1], "before")
    >>> store.transact("sagas", "transfer/1", lambda value, now: (value, now))
    Traceback (most recent call last):
    mainstay.testing.sagas.ProcessDied: at write 1
    """

    def __init__(
        self, kept: MemoryStore, crash_at: Sequence[int], when: str, writes: int = 0
    ) -> None:
        super().__init__()
        self._kept = kept
        self._crash_at = frozenset(crash_at)
        self._is_after = when == "after"
        self.writes = writes
        self._is_dead = False

    def transact(self, space: str, key: str, decide: Decide[Reply]) -> Reply:
        """The step of the store that is kept, unless the process is gone or dies in it."""
        if self._is_dead:
            raise StoreError("the process of this store is gone")
        if space != _SAGAS:
            return self._kept.transact(space, key, decide)
        self.writes += 1
        number = self.writes
        if number in self._crash_at and not self._is_after:
            self._die(number)
        reply = self._kept.transact(space, key, decide)
        if number in self._crash_at:
            self._die(number)
        return reply

    def _die(self, number: int) -> None:
        self._is_dead = True
        raise ProcessDied(f"at write {number}")

    def transact_many(self, steps: Sequence[Step]) -> list[UserValue]:
        """One after the other, until the process is gone."""
        return [_answered(self.transact, step) for step in steps]

    def read(self, space: str, key: str) -> tuple[bytes | None, float]:
        """The record that is kept."""
        return self._kept.read(space, key)

    def scan(self, space: str, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """The records that are kept."""
        return self._kept.scan(space, after, limit)

    def close(self) -> None:
        """Does nothing: what is kept outlives the process."""


def _answered(transact: Callable[..., UserValue], step: Step) -> UserValue:
    try:
        return transact(*step)
    except Exception as error:
        return error
