"""The seams, as Protocols: Clock, Sink, Follower, Store, Journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence

    from mainstay.core.audit.chain import Anchor, Block, Entry, Head, Tail
    from mainstay.core.base.change import Decide, Reply
    from mainstay.core.base.event import Event


class Clock(Protocol):
    """Reads time, and waits without an event loop.

    Example:
        >>> from mainstay.runtime.clock import SystemClock
        >>> clock: Clock = SystemClock()
    """

    def monotonic(self) -> float: ...
    def wall(self) -> float: ...
    def sleep(self, seconds: float, cancel: threading.Event | None = None) -> bool: ...


class Sink(Protocol):
    """Anything that listens: a callable that takes an event. The only shape there is.

    It may have more: `flush()`, called when an engine closes; `hears_successes`, which says, when
    an operation is first used, whether calls that never failed are to be told of (where nobody
    wants to hear of them, they cost nothing); `follow(plan)`, which gives a Follower for a call
    that begins; `store_step(store, step, seconds, failed=)`, told what the steps of the store took.
    With `wants_evidence` events carry their proof; and who can wait has `take(facts)`, of which
    `facts.events()` makes the events later (mainstay/facts.py).

    Example:
        >>> heard = []
        >>> sink: Sink = heard.append
    """

    def __call__(self, event: Event, /) -> object: ...


class Follower(Protocol):
    """Follows one call: a listener of that call's events, told of each attempt as it begins.

    A Sink that has `follow(plan)` makes one for every call. All its methods are called in the
    thread or task of the call, around the attempt: what one sets in a context variable when an
    attempt begins, the attempt sees.
    """

    def __call__(self, event: Event, /) -> object: ...
    def attempt_began(self, number: int, /) -> object: ...
    def attempt_ended(self, outcome: object, /) -> object: ...
    def call_ended(self) -> object: ...


class Store(Protocol):
    """Keeps records and changes them in one step.

    `transact` is the heart of it: the store reads the record, lets the pure `decide(value, now)`
    choose what to write and what to answer, and writes, as one step and on the store's own clock.
    `decide` may be called more than once, where a store finds that somebody was faster. Whoever
    writes a store of their own can run `mainstay.testing.StoreContract` against it.

    Attributes:
        url: where it is, without secrets.
        abilities: what it can do, of ABILITIES.
        locks: whether a step takes a lock from the start, so that a plain reading is cheaper than
            a step that writes nothing; False where a step begins with that reading anyway.

    A store may have `takes_hints = True`: its `transact` takes a fourth argument, what the caller
    thinks the record is (None for nothing). A hint may be wrong; it changes what a step costs, and
    never what comes of it. Who derives from such a store or wraps it need not know of hints: a
    `transact` without room for one is given none.

    Example:
        >>> from mainstay.core.base.change import Change
        >>> from mainstay.stores.memory import MemoryStore
        >>> store: Store = MemoryStore()
        >>> store.transact("seen", "a", lambda value, now: (Change(b"1"), value is None))
        True
    """

    url: str
    abilities: frozenset[str]
    locks: bool

    def transact(self, space: str, key: str, decide: Decide[Reply]) -> Reply: ...
    async def atransact(self, space: str, key: str, decide: Decide[Reply]) -> Reply: ...
    def read(self, space: str, key: str) -> tuple[bytes | None, float]: ...
    async def aread(self, space: str, key: str) -> tuple[bytes | None, float]: ...
    def scan(self, space: str, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]: ...
    def purge(self, limit: int = 1000) -> int: ...
    def describe(self) -> dict[str, Any]: ...
    def close(self) -> None: ...


class Journal(Protocol):
    """Keeps the blocks of an audit log, in order, for several processes at once.

    `append` is the heart of it: under a lock that all writers share, the journal reads where the
    log ends, lets `make(tail, carried)` seal what comes next, and keeps it, as one step. `carried`
    are records of a part that was closed just now, and that the new part needs at its start.
    `prune` drops the blocks that were written before a time, and keeps an anchor in their place.

    Attributes:
        url: where it is, without secrets.

    Example:
        >>> from mainstay.core.audit.chain import Entry, seal
        >>> from mainstay.stores.jsonl.journal import JsonlJournal
        >>> import tempfile
        >>> journal: Journal = JsonlJournal(tempfile.mkdtemp() + "/audit.jsonl")
        >>> def make(tail, carried):
        ...     return Entry(seal(tail, [b"{}"], writer="me", time="now", log="a1"))
        >>> journal.append(make).number
        1
    """

    url: str

    def tail(self) -> Tail: ...
    def append(self, make: Callable[[Tail, Sequence[bytes]], Entry]) -> Tail: ...
    def blocks(self, after: int = 0) -> Iterator[Block]: ...
    def heads(self) -> list[Head]: ...
    def anchor(self) -> Anchor | None: ...
    def prune(self, before: str, make: Callable[[Tail, Anchor], Entry]) -> int: ...
    def close(self) -> None: ...


ABILITIES = {
    "records": "idempotency records with fencing",
    "circuits": "circuits shared by processes",
    "budgets": "budgets shared by processes",
    "inbox": "matters for a person",
    "durable": "outlives the process",
    "transactions": "takes part in a transaction of the caller's own",
    "audit": "an audit log",
}
"""What a store may be able to do."""


def takes_hints(store: Any) -> bool:
    """Whether a step of the store may be given a hint: it says so, and has room for one.

    What is said may be inherited, or passed on by a wrapper, by one whose own `transact` has none.

    >>> from mainstay.stores.memory import MemoryStore
    >>> takes_hints(MemoryStore())
    False
    """
    if not getattr(store, "takes_hints", False):
        return False
    import inspect

    try:
        inspect.signature(store.transact).bind("space", "key", "decide", "hint")
    except (TypeError, ValueError):
        return False
    return True
