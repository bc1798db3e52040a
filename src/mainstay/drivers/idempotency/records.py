"""The idempotency records of an engine: what a keyed call is, and what is reported of it."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER
from mainstay.core.base.functions import is_async
from mainstay.core.idempotency.call import SMALL, Keyed
from mainstay.core.idempotency.events import Idempotency, LeaseExpired
from mainstay.drivers.call.callables import (
    SYNC_HINT,
    check_decoratable,
    coroutine_function,
    first_checked,
    refuse_async_functions,
)
from mainstay.drivers.call.emit import emit
from mainstay.drivers.call.guard import Tally
from mainstay.drivers.idempotency import driver
from mainstay.drivers.idempotency.keyed_call import SPACE, KeyedCall
from mainstay.drivers.idempotency.keys import Keying, after_crash
from mainstay.drivers.idempotency.late_steps import LateSteps
from mainstay.drivers.idempotency.limits import MAX_RESULT
from mainstay.drivers.inbox.inbox import Inbox
from mainstay.drivers.inbox.resolution import unknown_outcomes
from mainstay.errors import StoreError, WrapError
from mainstay.ports import max_value_of, takes_hints
from mainstay.runtime.context import CONTEXT
from mainstay.runtime.store_clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Self

    from mainstay.core.base.change import Decide
    from mainstay.core.base.types import UserValue
    from mainstay.core.idempotency.record import Answer
    from mainstay.core.redact.redactor import Redactor
    from mainstay.drivers.call.callables import Args, AsyncFunction, Function, Kwargs
    from mainstay.drivers.call.result import RetryResult
    from mainstay.drivers.call.site import Site
    from mainstay.drivers.idempotency.keys import KeyOptions
    from mainstay.drivers.idempotency.purging import Purging
    from mainstay.ports import Sink, Store
    from mainstay.runtime.context import Context

_COUNTED = ("hit", "record", "conflict", "lost", "unknown", "expired", "not_kept")
_USUAL = ("hit", "record", "conflict")
_WRITTEN = ("record", "not_kept")
_EMITTED = ("hit", "record", "not_kept")
_RESERVE = 1024
"""Bytes of a record besides its outcome, its metadata and its key."""


class Records:
    """The records in one store: makes keyed calls, counts what became of them.

    >>> from mainstay.stores.memory import MemoryStore
    >>> Records(MemoryStore()).counts()["hit"]
    0
    """

    def __init__(
        self,
        store: Store,
        counts: dict[str, Tally] | None = None,
        *,
        is_bound: bool = False,
        store_wait: float = 0.0,
        redact: Redactor | None = None,
        listeners: tuple[Sink, ...] = (),
        max_result: int | None = MAX_RESULT,
    ) -> None:
        self.store = store
        self.max_result = max_result
        """Bytes of a result that are kept at most, unless an operation has its own."""
        self._redact = redact
        self.store_wait = store_wait
        """Seconds to wait for an unavailable store, unless an operation has its own."""
        self.reads_first: bool = getattr(store, "locks", True)
        """Whether a plain reading comes before the claim: where that takes a lock."""
        self.takes_hints = takes_hints(store)
        """Whether the store takes a hint of what the record is thought to be."""
        self.fences = not self.reads_first
        """Whether a claim may be written after its release: where it is decided on before."""
        self._late = LateSteps(store)
        self.is_bound = is_bound
        """Whether the records are on a connection of the caller's, which is the caller's alone."""
        self.inbox = Inbox(store, redact, listeners)
        self.inbox.settle("unknown_outcome", unknown_outcomes(store))
        self._counts = {name: Tally() for name in _COUNTED} if counts is None else counts
        self._count_hit = self._counts["hit"].count
        self.clock = clock_of(store.url)
        """What is known of the store's clock, which may be set."""

    def counts(self) -> dict[str, int]:
        """How often: "hit", "record", "conflict", "lost", "unknown", "expired" and "not_kept".

        "lost" is an outcome that was not recorded because another call had taken over; "expired"
        a lease that ran out, or was taken, while the function ran.

        >>> from mainstay.stores.memory import MemoryStore
        >>> sorted(Records(MemoryStore()).counts())
        ['conflict', 'expired', 'hit', 'lost', 'not_kept', 'record', 'unknown']
        """
        return {name: tally.total() for name, tally in self._counts.items()}

    def incidents(self) -> dict[str, int]:
        """What an operator wants to know of: all counts but those of calls as usual, and no zeros.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Records(MemoryStore()).incidents()
        {}
        """
        found = {name: count for name, count in self.counts().items() if name not in _USUAL}
        found |= {"leases_lost": found.pop("expired"), "purged": self.purged}
        return {name: count for name, count in found.items() if count}

    @property
    def purged(self) -> int:
        """Expired records that this process has purged from the store.

        >>> from mainstay.stores.memory import MemoryStore
        >>> Records(MemoryStore()).purged
        0
        """
        by_itself: int = getattr(self.store, "purged", 0)
        return by_itself + (0 if self.purging is None else self.purging.purged)

    def within(self, connection: Any) -> Self:
        """The same records on a connection of the caller's own, in the caller's transaction."""
        within = getattr(self.store, "within", None)
        if within is None:
            raise StoreError(
                f"{self.store.url} cannot take part in a transaction of yours",
                hint="sqlite and postgresql stores can",
            )
        store, listeners = within(connection), self.inbox.listeners
        bound = type(self)(
            store, self._counts, is_bound=True, redact=self._redact, listeners=listeners,
            max_result=self.max_result,
        )  # fmt: skip
        bound.purging = self.purging
        return bound

    purging: Purging | None = None
    """What purges expired records, if something does."""
    place: Callable[[str], str] | None = None
    """Where the record of a key is, where that is not by tenant and operation."""

    def _keying(
        self, site: Site, options: KeyOptions, function: Function, *, is_kept: bool = False
    ) -> Keying:
        return Keying(site, options, function, is_kept=is_kept, place=self.place)

    def draft_of(self, keying: Keying) -> Keyed:
        """What the core gets for every call of a function that is not replayed.

        Its key, its payload, and a unique owner come with the call.
        """
        site, options = keying.site, keying.options
        keying.draft = Keyed(
            operation=site.operation,
            key="",
            fingerprint="",
            owner="",
            lease=options.lease,
            ttl=options.ttl,
            on_conflict="raise" if self.is_bound else options.on_conflict,
            on_crash=after_crash(options, site.idempotency),
            wait=min(options.wait, site.policy.deadline or NEVER),
            metadata=options.metadata,
            redact=site.redact,
            small=min(SMALL, self._chosen(options) or SMALL),
        )
        return keying.draft

    def size_limit(self, options: KeyOptions, address: str) -> int | None:
        """Bytes of an outcome that are kept at most: as chosen, or what the store takes.

        A store that connects when it is first used knows its limit from then on.
        """
        chosen, of_store = self._chosen(options), max_value_of(self.store)
        if of_store is None:
            return chosen
        room = of_store - _RESERVE - 2 * len(options.metadata) - len(address.encode(*_ANY_TEXT))
        return max(0, room if chosen is None else min(room, chosen))

    def _chosen(self, options: KeyOptions) -> int | None:
        chosen: int | None = options.max_result
        return self.max_result if chosen is None else chosen

    def decorate(self, function: UserValue, site: Site, options: KeyOptions) -> UserValue:
        """The function, every call of it keyed."""
        if isinstance(function, classmethod | staticmethod):
            return type(function)(self.decorate(function.__func__, site, options))
        if isinstance(function, property):
            raise WrapError("a property is not called", hint="put the decorator below @property")
        check_decoratable(function)
        if not is_async(function):
            refuse_async_functions(site.policy, SYNC_HINT)
        keying = self._keying(site, options, function, is_kept=True)
        run, arun = _drivers_of(site)
        identify = keying.identify
        decorated: Function
        if is_async(function):

            @coroutine_function
            def decorated(*args: UserValue, **kwargs: UserValue) -> UserValue:
                return arun(self, keying, None, args, kwargs)
        else:
            _check_first_result(keying)

            def decorated(*args: UserValue, **kwargs: UserValue) -> UserValue:
                return run(self, keying, identify(args, kwargs), args, kwargs)

        return wraps(function)(decorated)

    def run(
        self, site: Site, options: KeyOptions, function: Function, args: Args, kwargs: Kwargs
    ) -> UserValue:
        """A keyed call of a plain function."""
        refuse_async_functions(site.policy, SYNC_HINT)
        keying = self._keying(site, options, function)
        _check_first_result(keying)
        run, _ = _drivers_of(site)
        try:
            return run(self, keying, keying.identify(args, kwargs), args, kwargs)
        except Exception as error:
            error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            raise

    async def arun(
        self, site: Site, options: KeyOptions, function: AsyncFunction, args: Args, kwargs: Kwargs
    ) -> UserValue:
        """A keyed call of an async function."""
        keying = self._keying(site, options, function)
        _, arun = _drivers_of(site)
        try:
            return await arun(self, keying, keying.identify(args, kwargs), args, kwargs)
        except Exception as error:
            error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)
            raise

    def result(
        self, site: Site, options: KeyOptions, function: Function, args: Args, kwargs: Kwargs
    ) -> RetryResult[UserValue]:
        """The same as a RetryResult."""
        refuse_async_functions(site.policy, SYNC_HINT)
        keying, made = self._keying(site, options, function), list[KeyedCall]()
        _check_first_result(keying)
        named, started = keying.identify(args, kwargs), monotonic()
        try:
            value = _drivers_of(site)[0](self, keying, named, args, kwargs, made)
        except Exception as error:
            return _result(made, started, error, None)
        return _result(made, started, None, value)

    async def aresult(
        self, site: Site, options: KeyOptions, function: Function, args: Args, kwargs: Kwargs
    ) -> RetryResult[UserValue]:
        """The same for an async function."""
        keying, made = self._keying(site, options, function), list[KeyedCall]()
        named, started = keying.identify(args, kwargs), monotonic()
        try:
            value = await _drivers_of(site)[1](self, keying, named, args, kwargs, made)
        except Exception as error:
            return _result(made, started, error, None)
        return _result(made, started, None, value)

    def report(self, site: Site, call: Keyed | KeyedCall, what: str) -> None:
        """Counts it, and emits hits and records."""
        self._counts[what].count()
        purging = self.purging
        if purging is not None and purging.is_idle and what in _WRITTEN:
            purging.start()
        if site.listeners and what in _EMITTED:
            emit(_event(site, call.operation, call.key, what), site.listeners, site.redact)

    def count(self, what: str) -> None:
        """Counts what is of no operation; a process that writes records also purges."""
        self._counts[what].count()
        if self.purging is not None and what in _WRITTEN:
            self.purging.start()

    def report_hit(self, site: Site, key: str) -> None:
        """The same for a replay."""
        self._count_hit()
        if site.listeners:
            emit(_event(site, site.operation, key, "hit"), site.listeners, site.redact)

    def report_expired(self, site: Site, call: Keyed, here: Context, *, is_taken: bool) -> None:
        """A lease ran out while its function runs, or `is_taken` by another call.

        It is reported in another thread, so the context of the call is passed along.
        """
        self._counts["expired"].count()
        if site.listeners:
            event = LeaseExpired(
                operation=call.operation,
                policy=site.policy.name,
                idempotency_key=site.shown(call.key),
                lease=call.lease,
                taken=is_taken,
                retry_category=here.category,
                tenant_id=here.tenant_id,
                correlation_id=here.correlation_id,
                trace_id=here.trace_id,
            )
            emit(event, site.listeners, site.redact)

    def later(self, address: str, decide: Decide[Answer], seconds: float) -> None:
        """A step of a call that was cut off and cannot wait for it; its lease ends it otherwise.

        A transaction of the caller's is theirs to roll back.
        """
        if not self.is_bound:
            self._late.add((SPACE, address, decide), seconds)

    def close(self) -> None:
        """Closes the store; steps of calls that were cut off have a second at most before that."""
        self._late.close()
        self.store.close()


_ANY_TEXT = ("utf-8", "surrogatepass")


def _check_first_result(keying: Keying) -> None:
    """Refuses a coroutine as the result of a sync function, before it is recorded."""

    def settle(own: Function) -> None:
        keying.invoked = own

    keying.invoked = first_checked(keying.function, settle)


def _drivers_of(site: Site) -> tuple[Function, AsyncFunction]:
    """The two drivers of a call: only a policy with a deadline pays for binding it."""
    if site.policy.deadline is None:
        return driver.run, driver.arun
    return driver.run_until, driver.arun_until


def monotonic() -> float:
    """The time, of the clock that is installed."""
    return clock.current.monotonic()


def _event(site: Site, operation: str, key: str, action: str) -> Idempotency:
    here = CONTEXT.get()
    return Idempotency(
        operation=operation,
        policy=site.policy.name,
        idempotency_key=site.shown(key),
        action=action,
        retry_category=here.category,
        tenant_id=here.tenant_id,
        correlation_id=here.correlation_id,
        trace_id=here.trace_id,
    )


def _result(
    made: list[KeyedCall], started: float, error: Exception | None, value: UserValue
) -> RetryResult[UserValue]:
    """What became of the call that was made; none was, where it was replayed."""
    from mainstay.drivers.call.result import RetryResult

    elapsed = max(0.0, monotonic() - started)
    success = error is None and all(call.is_accepted for call in made)
    attempts = sum(call.attempts for call in made)
    return RetryResult(success, attempts, error, elapsed * 1000.0, value)
