"""The async driver: performs what core/retry/call.py asks, under asyncio or trio."""

from __future__ import annotations

import sys

import mainstay.runtime.clock as clock
from mainstay.core.base.functions import is_awaitable
from mainstay.core.retry.effects import TOO_LATE, Returned
from mainstay.core.retry.hooks import CallHook
from mainstay.core.retry.plan import fast_decision
from mainstay.core.retry.predicates import AwaitAnswer
from mainstay.drivers.call.call import Call, mark_cut, rest_of, result_of, site_of
from mainstay.drivers.call.callables import check_callable, refuse_unawaitable
from mainstay.drivers.call.deferred import notes_of
from mainstay.drivers.call.site import LONG, getrandbits
from mainstay.errors import Refused
from mainstay.runtime.context import BOUND, UNBOUND
from mainstay.runtime.enclosing import (
    ALONE,
    COUNTING,
    FRAMES,
    OLDER,
    OPEN,
    aside,
    attempting,
    enclosures,
    is_bound,
    references,
)
from mainstay.runtime.loops import RUNNING, is_trio
from mainstay.runtime.reports.logs import LOGS, QUIET
from mainstay.runtime.reports.tracebacks import shorten

_modules = sys.modules
_POLL = 0.02
"""Seconds between two looks at a cancel event while an async call waits."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, Protocol

    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.retry.call import Effect
    from mainstay.core.retry.effects import Stop
    from mainstay.drivers.call.callables import Args, AsyncFunction, Kwargs
    from mainstay.drivers.call.emit import Notes
    from mainstay.drivers.call.result import RetryResult
    from mainstay.drivers.call.site import Site

    class Scope(Protocol):
        """An attempt with an end: exactly one of the two is called."""

        def failed(self, caught: BaseException) -> Exception: ...
        def ended(self) -> None: ...

    class Backend(Protocol):
        """What differs between event loops."""

        def open_scope(self, end: float, limit: float, /) -> Scope: ...


async def recover(
    site: Site, function: AsyncFunction, args: Args, kwargs: Kwargs, box: list[Any], since: int,
    started: float | None = None,
) -> UserValue:  # fmt: skip
    """The rest of a call whose first attempt has failed, as in sync.recover.

    Its frame waits, ten thousand times over, and has room for every variable and for its longest
    line: there are few variables, and no line holds more than eight values at once.
    """
    site = site if site.operation else site_of(site, function)
    if (site.overrides.is_active or not site.is_quick or BOUND.get() is not UNBOUND) or (
        (OPEN or OLDER or references(FRAMES["ms_active"]) > ALONE) and is_bound()
    ):
        value: Any = Call(site, function, enclosures(3, own=1), started, box, since=since)
        return await drive(value, function, args, kwargs)
    failure: Any = box.pop()
    key = getrandbits(52) | 1 if site.entropy.seed is None else site.entropy.draw()
    attempt, last, notes = 1, 0.0, None
    if site.listeners or LOGS.root.handlers or LOGS.own.handlers != QUIET:
        notes = notes_of(site, key, started)
    try:
        while (delay := fast_decision(site, failure, attempt, key, last, notes)) is not None:
            if notes is not None:
                notes.failed(failure, delay)
                if attempt == 1 and site.pressures:
                    await _wait_turns(site)
            if delay < 0.0:
                raise failure.with_traceback(failure.__traceback__.tb_next)  # without this frame
            failure = None
            await (current_sleep() if "trio" in _modules else _modules["asyncio"].sleep)(delay)
            since = FRAMES["ms_active"].moment
            attempt, last = attempt + 1, delay
            try:
                if notes is None:
                    return await (function(*args, **kwargs) if kwargs else function(*args))
                notes.waited()
                value = await function(*args, **kwargs)
                attempt = 0
                value = notes.returned(value)
            except Exception:
                failure = sys.exception()
            else:
                notes.close()
                return value
        box[:], failure = [failure], None
        value = _rest((attempt, key, last, since), site, function, started, box, notes)
        attempt = 0  # what cuts it off from here on is marked there
        return await drive(value, function, args, kwargs)
    except BaseException:
        if failure is None and attempt > 1:
            _mark_cut(site, attempt)
        failure = None
        if notes is not None:
            notes.close(sys.exception())
        raise


async def _wait_turns(site: Site) -> None:
    """Waits for listeners that cannot keep up."""
    for pressure in site.pressures:
        if pressure.is_high and (turn := pressure.turn()):
            await current_sleep()(turn)


def _rest(
    made: tuple[int, int, float, int],
    site: Site,
    function: AsyncFunction,
    started: float | None,
    box: list[Any],
    notes: Notes | None,
) -> Call:
    return rest_of(site, function, started, box, made, notes)


def _mark_cut(site: Site, attempt: int) -> None:
    mark_cut(site, sys.exception(), attempt, 1)


def run(
    site: Site,
    function: AsyncFunction,
    args: Args,
    kwargs: Kwargs,
) -> Coroutine[object, object, UserValue]:
    """A whole call."""
    call = Call(site, function, enclosures(3, own=1), since=FRAMES["ms_active"].moment)
    return drive(call, function, args, kwargs)


def run_guarded(
    site: Site,
    function: AsyncFunction,
    args: Args,
    kwargs: Kwargs,
) -> Coroutine[object, object, UserValue]:
    """A whole call while a guard is failing; what is certainly refused is refused at once."""
    assert site.gate is not None
    shut, has_handlers = site.gate.shut, LOGS.root.handlers or LOGS.own.handlers != QUIET
    is_logged = has_handlers and site.logs.takes("WARNING")
    if not (shut is None or site.listeners or is_logged or site.overrides.is_active):
        refusal = shut()
        if refusal is not None:
            raise refusal
    call = Call(site, function, enclosures(3, own=1), since=FRAMES["ms_active"].moment)
    return drive(call, function, args, kwargs)


async def report(
    site: Site,
    function: AsyncFunction,
    args: Args,
    kwargs: Kwargs,
    box: list[Any] | None = None,
    since: int | None = None,
    started: float | None = None,
) -> RetryResult[UserValue]:
    """A whole call, or the rest of one, that answers with what became of it."""
    if box is None or isinstance(box[-1], TypeError):
        check_callable(function)
    began = clock.current.monotonic() if started is None else started
    now = FRAMES["ms_active"].moment if since is None else since
    call = Call(site, function, enclosures(3, own=1), began, box, since=now)
    try:
        value = await drive(call, function, args, kwargs)
    except Exception as error:
        if type(error) is TypeError:
            refuse_unawaitable(function, error)
        return result_of(call, began, error)
    return result_of(call, began, None, value)


async def drive(
    call: Call,
    function: AsyncFunction,
    args: Args,
    kwargs: Kwargs,
) -> UserValue:
    """Performs what the flow yields until it ends with what to return or raise."""
    effect: Effect | None = None
    answer: Answer = None
    send = call.flow.send
    try:
        while True:
            if call.pending is not None:
                await confirm(call)
            effect = send(answer)
            if type(effect) is float:
                answer = await wait(call, effect) if call.attempts or call.holds else None
                answer = answer or call.admit()
                if call.pending is not None:
                    answer = answer or await confirm(call)
                answer = answer or call.ended(await _attempt(call, function, args, kwargs))
                if call.is_quiet and type(answer) is Returned and call.pending is None:
                    return call.returned(answer)
            elif isinstance(effect, BaseException):
                raise effect
            elif type(effect) is Returned:
                return call.returned(effect)
            elif type(effect) is CallHook:
                await call_hook(call, effect)
                answer = None
            elif type(effect) is AwaitAnswer:
                answer = await await_answer(call.site, call.until, effect)
            else:
                answer = call.answer(effect)
                if call.holds is not None:
                    await hold(call)
    except BaseException as error:
        if error is effect or isinstance(error, Refused):
            shorten(error)
        elif not isinstance(error, Exception):
            call.interrupted(error)
        raise
    finally:
        call.release()
        del send
        effect = answer = None


async def _attempt(
    call: Call,
    function: AsyncFunction,
    args: Args,
    kwargs: Kwargs,
) -> UserValue:
    """Invokes the function, within its bounds if it has any."""
    call.attempts += 1
    call.since = FRAMES["ms_active"].moment
    if call.followers:
        call.began()
    if call.is_bounded:
        return await _bounded(call, function, args, kwargs)
    if call.site.policy.nested == "refuse":
        return await _refusing(call, function, args, kwargs)
    try:
        return Returned(await function(*args, **kwargs))
    except Exception as error:
        call.failure = error
        return error


async def _bounded(
    call: Call,
    function: AsyncFunction,
    args: Args,
    kwargs: Kwargs,
) -> UserValue:
    """An attempt that is cancelled when its end comes."""
    end, limit = call.bounds()
    scope = current_backend().open_scope(end, limit)
    try:
        with attempting(call.site, end, is_repeat=True):
            value = await function(*args, **kwargs)
    except BaseException as caught:
        call.failure = scope.failed(caught)
        return call.failure
    scope.ended()
    return Returned(value)


async def _refusing(
    call: Call,
    function: AsyncFunction,
    args: Args,
    kwargs: Kwargs,
) -> UserValue:
    """An attempt without an end, of which tasks that it starts are to know."""
    try:
        with attempting(call.site, is_repeat=True):
            return Returned(await function(*args, **kwargs))
    except Exception as error:
        call.failure = error
        return error


COUNTING[recover.__code__] = lambda frame: int(frame.f_locals["attempt"])
COUNTING[_attempt.__code__] = lambda frame: int(frame.f_locals["call"].attempts)


async def confirm(call: Call) -> Stop | None:
    """Awaits what guards have begun in a store, as sync.confirm waits for it."""
    for job in call.pending or ():
        await job.awaited(call.patience(job))
    return call.confirm()


async def wait(call: Call, delay: float) -> Stop | None:
    """Waits before an attempt; TOO_LATE if no time is left for it.

    Even no delay lets other tasks run and a cancellation through.
    """
    if call.holds is not None:
        await hold(call)
        if not call.attempts:
            return None
    if call.is_late(delay):
        return call.not_made(TOO_LATE)
    freed = None if call.failure is None else call.free()
    if freed is not None:
        await freed
    number = call.show_wait(delay) if delay >= LONG else 0
    try:
        if call.cancel is None:
            call.failure = None
            await current_sleep()(delay)
        else:
            await _wait_watching(call, call.cancel, delay)
    finally:
        if number:
            call.end_wait(number)
    return call.not_made(TOO_LATE) if call.is_late(0.0) else None


async def hold(call: Call) -> None:
    """Awaits the turn of a call if a listener cannot keep up; a set cancel event ends that."""
    end = clock.current.monotonic() + call.turn()
    while (left := end - clock.current.monotonic()) > 0.0:
        if call.cancel is None:
            await current_sleep()(left)
            return
        if call.cancel.is_set():
            return
        await current_sleep()(min(left, _POLL))


async def _wait_watching(call: Call, cancel: threading.Event, delay: float) -> None:
    """Waits with an eye on a cancel event: a threading.Event wakes no event loop."""
    end, left = clock.current.monotonic() + delay, delay
    while not cancel.is_set():
        await current_sleep()(min(left, _POLL))
        left = end - clock.current.monotonic()
        if left <= 0.0:
            call.failure = None
            return
    raise call.cancelled()


async def call_hook(call: Call, effect: CallHook) -> None:
    """Calls a hook and awaits it if it is async; what it raises is reported."""
    with aside(call.site, call.until):
        try:
            made = effect.hook(effect.info)
        except Exception as error:
            call.hook_failed(effect, error)
        else:
            await await_hook(call, effect, made)


async def await_answer(site: Site, until: float, effect: AwaitAnswer) -> bool | Exception:
    """Awaits what a predicate returned: its answer, or what it raised."""
    with aside(site, until):
        try:
            return bool(await effect.awaitable)
        except Exception as error:
            return error


async def await_hook(call: Call, effect: CallHook, made: UserValue) -> None:
    """Awaits what a hook gave, if there is something to await."""
    if not is_awaitable(made):
        return
    try:
        await made
    except Exception as error:
        call.hook_failed(effect, error)


def current_sleep() -> Callable[[float], Awaitable[object]]:
    """The sleep of the event loop this runs in, as it is now: tests replace it."""
    trio = _modules.get("trio")
    if trio is not None:
        running = RUNNING[trio]  # as `is_trio` reads it, without a call
        if (running is None or running.name == "trio") and is_trio():
            return trio.sleep  # type: ignore[no-any-return]
    return _modules["asyncio"].sleep  # type: ignore[no-any-return]


def begin(limit: float) -> Scope:
    """Starts a first attempt that is cancelled after the limit, in any event loop."""
    return current_backend().open_scope(clock.current.monotonic() + limit, limit)


def current_backend() -> Backend:
    """The event loop this is running in; each is loaded when it is first seen."""
    if is_trio():
        if _backends.get("trio") is None:
            from mainstay.drivers.call import on_trio

            _backends["trio"] = on_trio
        return _backends["trio"]
    if _backends.get("asyncio") is None:
        from mainstay.drivers.call import on_asyncio

        _backends["asyncio"] = on_asyncio
    return _backends["asyncio"]


_backends: dict[str, Backend] = {}
