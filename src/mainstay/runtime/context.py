"""What travels with the flow of control: for whom a call is made, until when, and what cancels it.

Held in context variables, so it follows calls, tasks and generators by itself. Threads and
executors start empty; `carry()` and `carrying()` take it there.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar, Token, copy_context

from mainstay.core.base.deadline import NEVER
from mainstay.core.base.validate import seconds_of
from mainstay.core.base.value import Value
from mainstay.runtime.enclosing import enclosing_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Callable
    from concurrent.futures import Executor
    from typing import Any, ParamSpec, Protocol, TypeVar

    from mainstay.core.base.types import Seconds

    P = ParamSpec("P")
    R = TypeVar("R")

    class Bounding(Protocol):
        """A Bound, or what a driver uses in its place."""

        end: float
        is_over: bool

        @property
        def outer(self) -> Bounding | None: ...
        def cuts_here(self) -> bool: ...

    class HeldLease(Protocol):
        """The lease of a keyed call; no other call can take over until a steady moment."""

        until: float


class Context(Value):
    """Who a call is made for; `mainstay.context()` sets it, every event carries it.

    >>> Context(tenant_id="t1").tenant_id
    't1'
    """

    __slots__ = ("category", "correlation_id", "tenant_id", "trace_id")
    tenant_id: str | None
    correlation_id: str | None
    trace_id: str | None
    category: str | None

    def __init__(
        self,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        category: str | None = None,
    ) -> None:
        self._fill(tenant_id=tenant_id, correlation_id=correlation_id, trace_id=trace_id,
                   category=category)  # fmt: skip


class Bound:
    """Until when what runs here may last, and what bounds that in turn.

    A bound that has ended is marked so instead of being taken back: a task that was started
    inside sees that too, and one that was started before never saw it.
    """

    __slots__ = ("end", "is_over", "outer")

    def __init__(self, end: float, outer: Bounding | None) -> None:
        self.end = end
        self.outer = outer
        self.is_over = False

    def cuts_here(self) -> bool:
        """Whether it cancels the running task at its end, which is yet to come: it does not."""
        return False


UNBOUND = Bound(NEVER, None)
NO_CONTEXT = Context()
CONTEXT: ContextVar[Context] = ContextVar("mainstay_context", default=NO_CONTEXT)
BOUND: ContextVar[Bounding] = ContextVar("mainstay_bound", default=UNBOUND)
CANCEL: ContextVar[threading.Event | None] = ContextVar("mainstay_cancel", default=None)
LEASE: ContextVar[HeldLease | None] = ContextVar("mainstay_lease", default=None)


def current_bound() -> Bounding:
    """The innermost bound that has not ended."""
    bound = BOUND.get()
    while bound.is_over and bound.outer is not None:
        bound = bound.outer
    return bound


class context:  # noqa: N801 -- a context manager is used like a function
    """Sets whom the calls inside are made for; what is left out is taken from outside.

    `cancel` is a threading.Event: once set, every wait of a retry inside ends at once with
    CallCancelled, in whichever thread it is.

    >>> import mainstay
    >>> with mainstay.context(tenant_id="t1", correlation_id="c1"):
    ...     with mainstay.context(correlation_id="c2"):
    ...         mainstay.current_context().tenant_id
    't1'
    """

    __slots__ = ("_cancel", "_changes", "_entered")

    def __init__(
        self,
        *,
        tenant_id: str | None = None,
        correlation_id: str | None = None,
        trace_id: str | None = None,
        category: str | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        given = {
            "tenant_id": tenant_id,
            "correlation_id": correlation_id,
            "trace_id": trace_id,
            "category": category,
        }
        self._changes = {name: value for name, value in given.items() if value is not None}
        self._cancel = cancel
        self._entered: dict[int, tuple[Any, ...]] = {}
        """By what each block has set: several threads and tasks may be inside at once."""

    def __enter__(self) -> Context:
        outer = CONTEXT.get()
        inherited = {name: getattr(outer, name) for name in Context._fields()}
        inner = Context(**{**inherited, **self._changes})
        self._entered[id(inner)] = (inner, CONTEXT.set(inner), *self._set_cancel())
        return inner

    def _set_cancel(self) -> tuple[Token[threading.Event | None], Token[Bounding]] | tuple[()]:
        if self._cancel is None:
            return ()
        outer = current_bound()
        # A bound of its own, so that one look shows a failing call that something bounds it.
        return CANCEL.set(self._cancel), BOUND.set(Bound(outer.end, outer))

    def __exit__(self, *_: object) -> None:
        mine = self._entered.pop(id(CONTEXT.get()), None)
        _, context, *limits = mine or self._entered.popitem()[1]
        CONTEXT.reset(context)
        if limits:
            cancel, bound = limits
            CANCEL.reset(cancel)
            BOUND.reset(bound)


def current_context() -> Context:
    """Who the current call is made for.

    >>> current_context().tenant_id is None
    True
    """
    return CONTEXT.get()


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """The function, bound to the context, deadline and cancel event of here and now.

    For a thread or an executor, which would start with none of them:

    >>> import threading, mainstay
    >>> seen = []
    >>> with mainstay.context(tenant_id="t1"):
    ...     thread = threading.Thread(target=carry(lambda: seen.append(current_context())))
    >>> thread.start(); thread.join(); seen[0].tenant_id
    't1'
    """
    here = copy_context()
    end = enclosing_end()
    bound = current_bound()
    if end < bound.end:  # the stack stays behind: take the deadline along
        here.run(BOUND.set, Bound(end, bound))

    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        # A context can be entered once at a time, and this may run in many threads.
        return here.copy().run(function, *args, **kwargs)

    return carried


class carrying:  # noqa: N801 -- reads as a verb: carrying(executor).submit(...)
    """An executor whose `submit` and `map` carry the context along.

    >>> import mainstay
    >>> from concurrent.futures import ThreadPoolExecutor
    >>> with ThreadPoolExecutor() as pool, mainstay.context(tenant_id="t1"):
    ...     carrying(pool).submit(current_context).result().tenant_id
    't1'
    """

    __slots__ = ("executor",)

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def submit(self, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Runs the function in the executor, with the context of here and now."""
        return self.executor.submit(carry(function), *args, **kwargs)

    def map(
        self,
        function: Callable[..., R],
        *iterables: Iterable[object],
        timeout: Seconds | None = None,
        chunksize: int = 1,
    ) -> Iterator[R]:
        """Like `Executor.map`, with the context of here and now."""
        left = None if timeout is None else seconds_of(timeout)
        return self.executor.map(carry(function), *iterables, timeout=left, chunksize=chunksize)


if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Future


def is_in_event_loop() -> bool:
    """Whether other tasks share this thread."""
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_run():
        return True
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
