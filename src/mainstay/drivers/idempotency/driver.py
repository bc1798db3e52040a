"""Drives keyed calls: core/idempotency/call.py with a store, the retry of the site, and a heart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import mainstay.runtime.clock as clock
from mainstay.core.idempotency.call import EmitEvent, Escalate, Invoke, Pause, StoreCommand
from mainstay.core.idempotency.fast_replay import MISS, hit
from mainstay.core.idempotency.record import Release, Replay
from mainstay.core.retry.effects import Returned
from mainstay.drivers.call import aio, sync
from mainstay.drivers.idempotency import store_retry as away
from mainstay.drivers.idempotency.keyed_call import SPACE, KeyedCall
from mainstay.drivers.idempotency.keys import ENOUGH
from mainstay.drivers.inbox.escalation import about
from mainstay.errors import StoreUnavailable
from mainstay.runtime.enclosing import enclosures

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from mainstay.drivers.idempotency.keys import Keying

_LAST = (Returned, Replay, BaseException)
"""What a story may end with."""


# --- sync -----------------------------------------------------------------------------------------


def run(
    records: Any,
    keying: Keying,
    named: tuple[str, str, str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: list[KeyedCall] | None = None,
) -> Any:
    """A whole keyed call, in the caller's thread; `named` is what `identify` says of it.

    Replays are many, and quick: for most of them no KeyedCall is made. Where one is, `made` holds
    it afterwards.
    """
    started, record, now = clock.current.monotonic(), None, 0.0
    is_read = records.reads_first and keying.news < ENOUGH
    if is_read:
        try:
            record, now = records.store.read(SPACE, named[2])
        except StoreUnavailable:
            _unless_it_waits(records, keying)
        if record is not None and (value := hit(record, named[1], now)) is not MISS:
            keying.news = 0
            records.tell_hit(keying.site, named[0])
            return value
    this = KeyedCall(records, keying, named, started)
    if made is not None:
        made.append(this)
    if record is not None and (replay := this.replayed(record, now)) is not None:
        keying.news = 0
        records.tell_hit(keying.site, named[0])
        return this.end(replay)
    this.kept, this.is_unread = record, records.reads_first and not is_read
    this.begin()
    answer: Any = None
    try:
        while True:
            effect = this.flow.send(answer)
            if type(effect) is StoreCommand:
                answer = away.step(this, effect.command)
            elif type(effect) is Invoke:
                answer = _invoke(this, effect, args, kwargs)
            elif type(effect) is EmitEvent:
                answer = records.tell(keying.site, this.call, effect.what)
            elif isinstance(effect, _LAST):
                return this.end(effect)
            elif type(effect) in (Pause, Escalate):
                answer = _waited(this, effect)
            else:
                answer = this.answer(effect)
    finally:
        this.leave()
        answer = None


def _waited(this: KeyedCall, effect: Pause | Escalate) -> Any:
    if isinstance(effect, Pause):
        return away.pause(this, effect.seconds)
    return this.records.inbox.put(this.item(effect), is_new=effect.is_new).id


def _unless_it_waits(records: Any, keying: Keying) -> None:
    """A reading that fails is no matter to one who will wait for the store: the claim tells all."""
    chosen: float | None = keying.options.store_wait
    if not (records.store_wait if chosen is None else chosen):
        raise  # noqa: PLE0704 -- the StoreUnavailable that is being handled


def _invoke(this: KeyedCall, effect: Invoke, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    this.start_renewing(effect.epoch)
    around = enclosures(3)
    box: list[Any] = []
    try:
        if this.is_plain(around):
            this.attempts = 1
            try:
                return Returned(this.function(*args, **kwargs))
            except Exception as error:
                box.append(error)
        call = this.under_way(effect, around, box)
        with about(this):
            value = sync.drive(call, _attempt(this, effect.epoch), args, kwargs)
        return Returned(value, call.is_accepted)
    except BaseException as error:
        return error


def _attempt(this: KeyedCall, epoch: int) -> Callable[..., Any]:
    """The function, each further attempt counted in the record before it is made."""

    def attempt(*args: Any, **kwargs: Any) -> Any:
        command = this.next_attempt(epoch)
        if command is not None:
            this.check_attempt(away.offer(this, command))
        return this.function(*args, **kwargs)

    return attempt


# --- async ----------------------------------------------------------------------------------------


async def arun(
    records: Any,
    keying: Keying,
    named: tuple[str, str, str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    made: list[KeyedCall] | None = None,
) -> Any:
    """A whole keyed call, in an event loop."""
    started, record, now = clock.current.monotonic(), None, 0.0
    is_read = records.reads_first and keying.news < ENOUGH
    if is_read:
        try:
            record, now = await records.store.aread(SPACE, named[2])
        except StoreUnavailable:
            _unless_it_waits(records, keying)
        if record is not None and (value := hit(record, named[1], now)) is not MISS:
            keying.news = 0
            records.tell_hit(keying.site, named[0])
            return value
    this = KeyedCall(records, keying, named, started)
    if made is not None:
        made.append(this)
    if record is not None and (replay := this.replayed(record, now)) is not None:
        keying.news = 0
        records.tell_hit(keying.site, named[0])
        return this.end(replay)
    this.kept, this.is_unread = record, records.reads_first and not is_read
    this.begin()
    answer: Any = None
    try:
        while True:
            effect = this.flow.send(answer)
            if type(effect) is StoreCommand:
                answer = await away.astep(this, effect.command)
            elif type(effect) is Invoke:
                answer = await _ainvoke(this, effect, args, kwargs)
            elif type(effect) is EmitEvent:
                answer = records.tell(keying.site, this.call, effect.what)
            elif isinstance(effect, _LAST):
                return this.end(effect)
            elif type(effect) in (Pause, Escalate):
                answer = await _awaited(this, effect)
            else:
                answer = this.answer(effect)
    finally:
        this.leave()
        answer = None


async def _awaited(this: KeyedCall, effect: Pause | Escalate) -> Any:
    if isinstance(effect, Pause):
        return await away.apause(this, effect.seconds)
    raised = await this.records.inbox.aput(this.item(effect), is_new=effect.is_new)
    return raised.id


async def _ainvoke(
    this: KeyedCall, effect: Invoke, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    this.start_renewing(effect.epoch)
    around = enclosures(3)
    box: list[Any] = []
    try:
        if this.is_plain(around):
            this.attempts = 1
            try:
                return Returned(await this.function(*args, **kwargs))
            except Exception as error:
                box.append(error)
        call = this.under_way(effect, around, box)
        with about(this):
            value = await aio.drive(call, _aattempt(this, effect.epoch), args, kwargs)
        return Returned(value, call.is_accepted)
    except GeneratorExit:  # its event loop is gone: there is no more waiting
        this.cut_off(Release(this.call.owner, effect.epoch))
        raise
    except BaseException as error:
        return error


def _aattempt(this: KeyedCall, epoch: int) -> Callable[..., Awaitable[Any]]:
    """The same, awaited."""

    async def attempt(*args: Any, **kwargs: Any) -> Any:
        command = this.next_attempt(epoch)
        if command is not None:
            this.check_attempt(await away.aoffer(this, command))
        return await this.function(*args, **kwargs)

    return attempt
