"""The seams, as Protocols: Clock, Sink, Follower, Store, Journal, Publisher."""

from __future__ import annotations

from contextvars import copy_context
from functools import cache, partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Protocol

from mainstay.core.base.value import Value
from mainstay.errors import UsageError

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import TypeAlias

    from mainstay.core.audit.chain import Anchor, Block, Entry, Head, Tail
    from mainstay.core.base.change import Decide, Reply
    from mainstay.core.base.event import Event
    from mainstay.core.outbox.message import Message

    Step: TypeAlias = tuple[str, str, Decide[Any]]
    """Space, key and decision of a step."""
    Statement: TypeAlias = tuple[str, dict[str, Any]]
    """A statement of SQL and its values."""


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
    """A callable that receives events. The only shape there is.

    A sink that wants more than events, or fewer of them, declares it with an attribute or a
    property `wants`: SinkWants. It may also have the methods of SinkMethods, and
    `is_enabled(level)`: whether it wants the events of a failing call that are logged at that
    level, such as "WARNING". It is asked for each event; what no sink wants is not made.

    Example:
        >>> events = []
        >>> sink: Sink = events.append
    """

    def __call__(self, event: Event, /) -> object: ...


class SinkWants(Value):
    """What a sink wants, read when an operation is first used.

    Args:
        successes: events of calls that succeed at the first attempt. If no sink wants them, such
            a call emits nothing.
        evidence: events carry their `proof`, which replay needs.
        facts: the facts of a call in place of its events, by `take(facts)`; `facts.events()`
            builds the events later. None: if the sink has `take`. Events still arrive of calls
            that need more than attempts and waits, such as those with a key or a guard.
        attempts: the beginning and end of each attempt, by the Follower that `follow(plan)`
            returns for a call. None: if the sink has `follow`.
        store_steps: the seconds of each step of the store, by
            `store_step(store, step, seconds, failed=)`. None: if the sink has `store_step`.
        escalates: the keyed call that was given up, to bring it to an operator.

    Example:
        >>> class Failures:
        ...     wants = SinkWants(successes=False)
        ...     def __call__(self, event): ...
        >>> wants_of(Failures()).successes, wants_of(print).successes
        (False, True)
    """

    __slots__ = ("attempts", "escalates", "evidence", "facts", "store_steps", "successes")
    successes: bool
    evidence: bool
    facts: bool | None
    attempts: bool | None
    store_steps: bool | None
    escalates: bool

    def __init__(
        self,
        *,
        successes: bool = True,
        evidence: bool = False,
        facts: bool | None = None,
        attempts: bool | None = None,
        store_steps: bool | None = None,
        escalates: bool = False,
    ) -> None:
        self._fill(
            successes=successes,
            evidence=evidence,
            facts=facts,
            attempts=attempts,
            store_steps=store_steps,
            escalates=escalates,
        )


class Pressure(Protocol):
    """How a sink that cannot keep up lets calls wait.

    A call reads `is_high` after an attempt has failed, and before its first attempt if its success
    is an event. If it is True, the call waits for the seconds that `turn()` returns: an async call
    awaits, a sync call sleeps unless its thread runs an event loop. A call that has succeeded never
    waits.
    """

    is_high: bool

    def turn(self) -> float: ...


class SinkMethods(Value):
    """The methods that a sink may have, each None if it has not.

    Attributes:
        flush: writes what the sink still holds; an engine that closes calls it.
        close: releases what is open.
        stats: counts of events: `waiting`, `delivered`, `spilled`, `lost`.
        watch: receives the engine that a configuration builds with this sink.
        pressure: an attribute: by it the sink lets calls wait if it cannot keep up.
    """

    __slots__ = ("close", "flush", "pressure", "stats", "watch")
    flush: Callable[[], object] | None
    close: Callable[[], object] | None
    stats: Callable[[], dict[str, int]] | None
    watch: Callable[..., object] | None
    pressure: Pressure | None

    def __init__(
        self,
        *,
        flush: Callable[[], object] | None = None,
        close: Callable[[], object] | None = None,
        stats: Callable[[], dict[str, int]] | None = None,
        watch: Callable[..., object] | None = None,
        pressure: Pressure | None = None,
    ) -> None:
        self._fill(flush=flush, close=close, stats=stats, watch=watch, pressure=pressure)


_UNDECLARED = SinkWants()


def wants_of(sink: Any) -> SinkWants:
    """What a sink declares, complete: no field is None. All other code asks this function.

    Two attributes from before the declaration, `hears_successes` and `wants_evidence`, override
    it: a sink that has them, or derives from one of ours and sets them, works as it did.

    >>> wants_of(print)
    SinkWants(attempts=False, escalates=False, evidence=False, facts=False, ..., successes=True)
    """
    declared = getattr(sink, "wants", _UNDECLARED)
    if type(declared) is not SinkWants:
        declared = _UNDECLARED
    return _complete(
        bool(getattr(sink, "hears_successes", declared.successes)),
        bool(getattr(sink, "wants_evidence", declared.evidence)),
        _has(sink, "take", declared.facts),
        _has(sink, "follow", declared.attempts),
        _has(sink, "store_step", declared.store_steps),
        declared.escalates,
    )


def wants_evidence_now(sinks: Iterable[Any], ways: Iterable[tuple[Any, Any, Any]] = ()) -> bool:
    """Whether one of these has `wants_evidence`, the attribute from before the declaration.

    It is read for each call: a sink may set it at any time, and a Follower may have it. Of a way
    to a log it is the log that has it, and not what takes the events.

    >>> wants_evidence_now([print])
    False
    """
    for sink in sinks:
        if getattr(sink, "wants_evidence", False):
            return True
    for _, _, log in ways:  # noqa: SIM110 -- a generator is one more frame for each call
        if getattr(log, "wants_evidence", False):
            return True
    return False


def _has(sink: Any, method: str, declared: bool | None) -> bool:
    """Whether the method is to be called; raises UsageError if it is declared and not there."""
    if declared is False:
        return False
    is_there = hasattr(sink, method)
    if declared and not is_there:
        raise UsageError(
            f"the sink {type(sink).__qualname__} declares what {method}() receives,"
            f" and has no {method}()",
            hint=f"define {method}(), or leave the field of SinkWants out",
        )
    return is_there


@cache  # an engine asks for each call that has a key
def _complete(
    successes: bool,
    evidence: bool,
    facts: bool,
    attempts: bool,
    store_steps: bool,
    escalates: bool,
) -> SinkWants:
    return SinkWants(
        successes=successes,
        evidence=evidence,
        facts=facts,
        attempts=attempts,
        store_steps=store_steps,
        escalates=escalates,
    )


def methods_of(sink: Any) -> SinkMethods:
    """The optional methods of a sink; `stats` may also be those of its `buffer`.

    >>> methods_of(print).flush is None
    True
    """
    stats = getattr(sink, "stats", None) or getattr(getattr(sink, "buffer", None), "stats", None)
    return SinkMethods(
        flush=getattr(sink, "flush", None),
        close=getattr(sink, "close", None),
        stats=stats if callable(stats) else None,
        watch=getattr(sink, "watch", None),
        pressure=getattr(sink, "pressure", None),
    )


class Follower(Protocol):
    """Follows one call: receives its events, and each attempt as it begins and ends.

    A sink that wants `attempts` makes one for every call. All its methods are called in the
    thread or task of the call, around the attempt: an attempt sees the context variables that
    `attempt_began` sets.
    """

    def __call__(self, event: Event, /) -> object: ...
    def attempt_began(self, number: int, /) -> object: ...
    def attempt_ended(self, outcome: object, /) -> object: ...
    def call_ended(self) -> object: ...


class Store(Protocol):
    """Keeps records and changes them in one step.

    `transact` is its main operation: the store reads the record, lets the pure
    `decide(value, now)` choose what to write and what to answer, and writes, as one step and on
    the store's own clock. If a store has lost the race for a record, it calls `decide` again. Run
    `mainstay.testing.StoreContract` against a store of your own.

    Attributes:
        url: where it is, without secrets.
        abilities: what it can do, of ABILITIES.
        locks: whether a step takes a lock from the start, so that a plain reading is cheaper than
            a step that writes nothing; False if a step begins with that reading anyway.

    A store may have `takes_hints = True`: its `transact` takes a fourth argument, what the caller
    expects the record to be (None for nothing). A hint may be wrong; it changes the cost of a step,
    and never its result. A store that derives from such a one or wraps it may ignore hints: a
    `transact` without room for one is given none.

    A store may have `max_value`: the bytes of a value that it takes at most; None if it has no
    limit, or does not know it before it is first used. A step with a larger value raises
    ValueTooLarge and writes nothing.

    A store may have `transact_many(steps)`: many steps in fewer round trips, each a tuple of space,
    key and decide. It returns what each step would have returned alone, in their order, or the
    exception that it would have raised; it may also raise StoreUnavailable, as if each had. Each
    step is atomic by itself. A store without it is asked for one step after the other.

    A store may have `transact_together(steps)`: the same for a few steps of one caller, which share
    one commit.

    A store may have `transact_new(steps)`: the same for steps on records that are expected to be
    absent. It returns None, and has written nothing, if one is there or a step does not write.

    A store in a database with SQL may have `transact_also(space, key, decide, also)`: a step with
    other statements in its transaction, which are executed if the decision changes the record.

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

    `append` is its main operation: under a lock that all writers share, the journal reads where the
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


class Publisher(Protocol):
    """Sends messages of the outbox to a broker.

    `publish` returns when the broker has acknowledged the message, and raises the client library's
    own exception if it has not: what that means is decided by the tables of known errors. The relay
    calls it for many messages at once, for those of one aggregate one after the other. It sends
    `message.id`, so that the broker or the consumer can drop what it has seen. `close` is called in
    the event loop of `publish`; after it `publish` may be called again, and opens what it needs.

    Attributes:
        url: where it is, without secrets; also the name of its circuit.

    Example:
        >>> class Printer:
        ...     url = "print:"
        ...     async def publish(self, message): print(message.topic)
        ...     async def close(self): ...
        >>> publisher: Publisher = Printer()
    """

    url: str

    async def publish(self, message: Message, /) -> object: ...
    async def close(self) -> None: ...


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


def max_value_of(store: Any) -> int | None:
    """The bytes of a value that a store takes at most; None if it declares no limit.

    >>> from mainstay.stores.memory import MemoryStore
    >>> max_value_of(MemoryStore()) is None
    True
    """
    limit: int | None = getattr(store, "max_value", None)
    return limit


def many_of(store: Any) -> Callable[[Sequence[Step]], list[Any]]:
    """How many steps are made with a store at once: its `transact_many`, or `transact` for each.

    A store that derives from ours and has a `transact` of its own, or wraps one, is asked for its
    own step each time: a `transact_many` that it has inherited would pass by it.

    >>> from mainstay.core.base.change import Change
    >>> from mainstay.stores.memory import MemoryStore
    >>> many_of(MemoryStore())([("seen", "a", lambda value, now: (Change(b"1"), value))])
    [None]
    """
    return steps_of(store, "transact_many") or partial(_one_by_one, store)


def steps_of(store: Any, name: str) -> Callable[[Sequence[Step]], Any] | None:
    """What makes several steps of a store, by its name, unless it would pass by its own step.

    >>> from mainstay.stores.memory import MemoryStore
    >>> steps_of(MemoryStore(), "transact_new") is None
    True
    """
    for kind in type(store).__mro__:
        if name in vars(kind):
            return getattr(store, name)  # type: ignore[no-any-return]
        if "transact" in vars(kind):
            break
    return None


def _one_by_one(store: Any, steps: Sequence[Step]) -> list[Any]:
    """The steps in a few threads; those of one record in their order."""
    records: dict[tuple[str, str], list[int]] = {}
    for number, (space, key, _) in enumerate(steps):
        records.setdefault((space, key), []).append(number)
    waiting, answers = list(records.values()), list[Any]([None] * len(steps))

    def work() -> None:
        while True:
            try:
                numbers = waiting.pop()
            except IndexError:
                return
            for number in numbers:
                answers[number] = _one(store, steps[number])

    others = [
        Thread(target=copy_context().run, args=(work,), name="mainstay-steps", daemon=True)
        for _ in range(min(_AT_ONCE, len(waiting)) - 1)
    ]
    for thread in others:
        thread.start()
    work()
    for thread in others:
        thread.join()
    return answers


def _one(store: Any, step: Step) -> Any:
    try:
        return store.transact(*step)
    except Exception as error:
        return error


_AT_ONCE = 8
"""Steps under way at once with a store that has no `transact_many`."""


def takes_hints(store: Any) -> bool:
    """Whether a step of the store may be given a hint: it declares so, and has room for one.

    The declaration may be inherited, or passed on by a wrapper, whose own `transact` has no room.

    >>> from mainstay.stores.memory import MemoryStore
    >>> takes_hints(MemoryStore())
    False
    """
    if not getattr(store, "takes_hints", False):
        return False
    from mainstay.core.base.functions import signature_of

    try:
        signature_of(store.transact).bind("space", "key", "decide", "hint")
    except (TypeError, ValueError):
        return False
    return True
