"""Drives keyed calls: core/idempotency/call.py with a store, the site's retry and its lease.

`core.keyed` is the one generator; `run` and `arun` are its two drivers. What follows a failure of
the store is one generator too, in store_retry.py. The read before the claim and a step that the
store takes at once stay in the drivers: with one more generator around both, a replay took 8.5 µs
in place of 7.8 and 37 frames in place of 33, a new key 109 in place of 103 (CPython 3.11, SQLite).
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.base.deadline import NEVER, until
from mainstay.core.idempotency.call import (
    OVERDUE,
    EmitEvent,
    Escalate,
    Invoke,
    Pause,
    Recorded,
    StoreCommand,
)
from mainstay.core.idempotency.fast_replay import MISS, hit
from mainstay.core.idempotency.record import Release, Replay
from mainstay.core.retry.effects import Returned
from mainstay.core.retry.predicates import AwaitAnswer
from mainstay.deadline import moment
from mainstay.drivers.call import aio, sync
from mainstay.drivers.idempotency import store_retry
from mainstay.drivers.idempotency.keyed_call import SPACE, KeyedCall
from mainstay.drivers.idempotency.keys import ENOUGH
from mainstay.drivers.idempotency.lease_cancel import stopping
from mainstay.drivers.inbox.escalation import about
from mainstay.errors import StoredValueError, StoreUnavailable
from mainstay.runtime.context import BOUND, LEASE, Bound, current_bound
from mainstay.runtime.enclosing import FRAMES, enclosures, opened
from mainstay.runtime.reports.tracebacks import shorten

if TYPE_CHECKING:
    from typing import Any

    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.idempotency.call import Overdue
    from mainstay.core.retry.effects import Outcome
    from mainstay.drivers.call.callables import Args, AsyncFunction, Function, Kwargs
    from mainstay.drivers.idempotency.keyed_call import KeyedRecords
    from mainstay.drivers.idempotency.keys import Keying, Named

_LAST = (Returned, Replay, BaseException)
"""What a flow may end with."""


# --- sync -----------------------------------------------------------------------------------------


def run_until(
    records: KeyedRecords,
    keying: Keying,
    named: Named,
    args: Args,
    kwargs: Kwargs,
    made: list[KeyedCall] | None = None,
) -> UserValue:
    """The same as `run`, for a policy with a deadline: it bounds the steps of the store too."""
    with _until_deadline(keying):
        return run(records, keying, named, args, kwargs, made)


def run(
    records: KeyedRecords, keying: Keying, named: Named, args: Args, kwargs: Kwargs,
    made: list[KeyedCall] | None = None,
) -> UserValue:  # fmt: skip
    """A whole keyed call, in the caller's thread; `named` is the result of `identify`.

    Most replays need no KeyedCall. If one is created, `made` holds it afterwards.
    """
    started, found = clock.current.monotonic(), None
    is_read = records.reads_first and keying.news < ENOUGH
    if is_read:
        try:
            found = records.store.read(SPACE, named[2])
        except StoreUnavailable as error:
            _unless_it_waits(records, keying, error, started)
        else:
            value = _replayed(records, keying, named, found)
            if value is not MISS:
                return value
    this = _prepared(records, keying, named, started, is_read, found, made)
    answer: Answer = None
    effect: Any = None
    try:
        while True:
            effect = this.flow.send(answer)
            kind, answer = type(effect), None
            if kind is StoreCommand:
                try:  # nearly always at once: without a frame of ours
                    answer = this.ask(effect.command)
                except Exception as error:
                    answer = store_retry.after(this, effect.command, error)
            elif kind is Invoke:
                answer = _invoke(this, effect, args, kwargs)
            elif kind is Recorded or isinstance(effect, _LAST):
                return this.end(effect)
            elif kind is EmitEvent:
                records.report(keying.site, this.call, effect.what)
            elif kind is Pause:
                store_retry.pause(this, effect.seconds)
            elif kind is Escalate:
                answer = records.inbox.put(this.item(effect), is_new=effect.is_new).id
            else:
                answer = this.answer(effect)
    except BaseException as error:
        _end(this, error, effect)
        if isinstance(error, StoredValueError):
            records.inbox.put_damage(error, this.damaged())
        raise
    finally:
        this.leave()
        answer = effect = None


def _end(this: KeyedCall, error: BaseException, effect: object) -> None:
    """Leaves frames of ours out of the traceback of what the flow ends with.

    If the call is interrupted while a step is on its way, the store may have taken it.
    """
    if error is effect:
        shorten(error)
    elif type(effect) is StoreCommand and not isinstance(error, Exception):
        this.cut_off(effect.command)


def _replayed(
    records: KeyedRecords,
    keying: Keying,
    named: Named,
    found: tuple[bytes | None, float],
) -> UserValue:
    """The value of a call that has succeeded before, or MISS."""
    record, now = found
    value = MISS if record is None else hit(record, named[1], now)
    if value is not MISS:
        keying.news = 0
        records.report_hit(keying.site, named[0])
    return value


def _prepared(
    records: KeyedRecords,
    keying: Keying,
    named: Named,
    started: float,
    is_read: bool,
    found: tuple[bytes | None, float] | None,
    made: list[KeyedCall] | None,
) -> KeyedCall:
    """The call, at its beginning; or at its end, if the record that was found has its outcome."""
    this = KeyedCall(records, keying, named, started)
    if made is not None:
        made.append(this)
    if found is None:
        this.is_unread = records.reads_first and not is_read
        this.begin()
        return this
    this.kept = found[0]
    replay = this.replayed(*found)
    if replay is None:
        this.begin()
    else:
        this.flow = (each for each in (replay,))
        records.report_hit(keying.site, named[0])
    return this


def _unless_it_waits(
    records: KeyedRecords, keying: Keying, error: StoreUnavailable, started: float
) -> None:
    """A read that fails does not matter to a call that waits for the store: the claim reads too."""
    chosen: float | None = keying.options.store_wait
    is_late = store_retry.note_deadline(error, started)
    if is_late or not (records.store_wait if chosen is None else chosen):
        raise error


class _until_deadline:  # noqa: N801 -- a context manager is used like a function
    """Binds the deadline of a policy, so that whatever reads the time left has it."""

    __slots__ = ("_bound", "_token")

    def __init__(self, keying: Keying) -> None:
        now, limit = clock.current.monotonic(), keying.site.policy.deadline
        self._bound = Bound(until(now, limit, moment()), current_bound())

    def __enter__(self) -> None:
        self._token = BOUND.set(self._bound)

    def __exit__(self, *_: object) -> None:
        self._bound.is_over = True
        with suppress(ValueError):  # a coroutine that is closed from elsewhere is in no context
            BOUND.reset(self._token)


def _invoke(this: KeyedCall, effect: Invoke, args: Args, kwargs: Kwargs) -> Outcome | Overdue:
    if not this.hold(effect):
        return OVERDUE
    around = enclosures(3)
    box: list[Any] = []
    here = FRAMES["ms_active"]  # so this is counted as under way, as a wrapper is
    try:
        if this.is_plain(around):
            lease = this.lease
            if lease is not None and clock.steady() >= lease.until:
                return this.give_up_lease()  # looked at last: a process may stand still anywhere
            this.attempts = 1
            try:
                return Returned(this.function(*args, **kwargs))
            except Exception as error:
                box.append(error)
        call = this.under_way(effect, around, box, here.moment)
        this.check_time(call)
        refuses = this.site.policy.nested == "refuse"
        with about(this), stopping(this, call), opened(this.site) if refuses else nullcontext():
            value = sync.drive(call, _attempt(this), args, kwargs)
        return Returned(value, call.is_accepted)
    except BaseException as error:
        return error
    finally:
        del here
        if this.lease is not None:
            this.lease.is_over = True
            LEASE.reset(this.token)


def _attempt(this: KeyedCall) -> Function:
    """The function, each further attempt counted in the record before it is made."""

    def attempt(*args: UserValue, **kwargs: UserValue) -> UserValue:
        command = this.next_attempt()
        while command is not None:
            if this.is_counted(store_retry.offer(this, command)):
                break
        return this.function(*args, **kwargs)

    return attempt


# --- async ----------------------------------------------------------------------------------------


async def arun_until(
    records: KeyedRecords,
    keying: Keying,
    named: Named | None,
    args: Args,
    kwargs: Kwargs,
    made: list[KeyedCall] | None = None,
) -> UserValue:
    """The same as `arun`, for a policy with a deadline."""
    with _until_deadline(keying):
        return await arun(records, keying, named, args, kwargs, made)


async def arun(
    records: KeyedRecords, keying: Keying, named: Named | None, args: Args, kwargs: Kwargs,
    made: list[KeyedCall] | None = None,
) -> UserValue:  # fmt: skip
    """A whole keyed call, in an event loop; `named` may be found out here, when it is awaited."""
    started, found = clock.current.monotonic(), None
    named = named or keying.identify(args, kwargs)
    is_read = records.reads_first and keying.news < ENOUGH
    if is_read:
        try:
            found = await records.store.aread(SPACE, named[2])
        except StoreUnavailable as error:
            _unless_it_waits(records, keying, error, started)
        else:
            value = _replayed(records, keying, named, found)
            if value is not MISS:
                return value
    this = _prepared(records, keying, named, started, is_read, found, made)
    answer: Answer = None
    effect: Any = None
    try:
        while True:
            effect = this.flow.send(answer)
            kind, answer = type(effect), None
            if kind is StoreCommand:
                try:  # nearly always at once: without a frame of ours
                    answer = await this.aask(effect.command)
                except Exception as error:
                    answer = await store_retry.aafter(this, effect.command, error)
            elif kind is Invoke:
                answer = await _ainvoke(this, effect, args, kwargs)
            elif kind is Recorded or isinstance(effect, _LAST):
                return this.end(effect)
            elif kind is EmitEvent:
                records.report(keying.site, this.call, effect.what)
            elif kind is Pause:
                await store_retry.apause(this, effect.seconds)
            elif kind is Escalate:
                answer = (await records.inbox.aput(this.item(effect), is_new=effect.is_new)).id
            elif kind is AwaitAnswer:
                answer = await aio.await_answer(keying.site, NEVER, effect)
            else:
                answer = this.answer(effect)
    except BaseException as error:
        _end(this, error, effect)
        if isinstance(error, StoredValueError):
            await records.inbox.aput_damage(error, this.damaged())
        raise
    finally:
        this.leave()
        answer = effect = None


async def _ainvoke(
    this: KeyedCall, effect: Invoke, args: Args, kwargs: Kwargs
) -> Outcome | Overdue:
    if not this.hold(effect):
        return OVERDUE
    around = enclosures(3)
    box: list[Any] = []
    here = FRAMES["ms_active"]  # so this is counted as under way, as a wrapper is
    try:
        if this.is_plain(around):
            lease = this.lease
            if lease is not None and clock.steady() >= lease.until:
                return this.give_up_lease()
            this.attempts = 1
            try:
                return Returned(await this.function(*args, **kwargs))
            except Exception as error:
                box.append(error)
        call = this.under_way(effect, around, box, here.moment)
        this.check_time(call)
        refuses = this.site.policy.nested == "refuse"
        with about(this), stopping(this, call), opened(this.site) if refuses else nullcontext():
            value = await aio.drive(call, _aattempt(this), args, kwargs)
        return Returned(value, call.is_accepted)
    except GeneratorExit:  # its event loop is gone: there is no more waiting
        if this.call.on_crash == "retry":  # or how far it came is unknown, and left to its lease
            this.cut_off(Release(this.call.owner, effect.epoch))
        raise
    except BaseException as error:
        return error
    finally:
        del here
        this.let_go()


def _aattempt(this: KeyedCall) -> AsyncFunction:
    """The same, awaited."""

    async def attempt(*args: UserValue, **kwargs: UserValue) -> UserValue:
        command = this.next_attempt()
        while command is not None:
            if this.is_counted(await store_retry.aoffer(this, command)):
                break
        return await this.function(*args, **kwargs)

    return attempt
