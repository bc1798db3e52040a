"""The sync driver: performs what core/retry/call.py asks, in the caller's own thread."""

from __future__ import annotations

import sys
import time

import mainstay.runtime.clock as clock
from mainstay.core.base.functions import discard, is_awaitable
from mainstay.core.retry.effects import TOO_LATE, Returned, Warn
from mainstay.core.retry.hooks import CallHook
from mainstay.core.retry.plan import fast_decision
from mainstay.drivers.call.call import Call, rest_of, result_of, site_of
from mainstay.drivers.call.callables import SYNC_HINT, check_callable
from mainstay.drivers.call.deferred import notes_of
from mainstay.drivers.call.site import LONG, getrandbits
from mainstay.errors import MainstayWarning, Refused, WrapError
from mainstay.runtime.clock import SYSTEM
from mainstay.runtime.context import BOUND, UNBOUND
from mainstay.runtime.enclosing import (
    ALONE,
    COUNTING,
    FRAMES,
    OLDER,
    OPEN,
    Enclosure,
    aside,
    attempting,
    enclosures,
    is_bound,
    references,
)
from mainstay.runtime.reports.logs import LOGS, QUIET
from mainstay.runtime.reports.tracebacks import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    import threading
    from typing import Any

    from mainstay.core.base.types import Answer, UserValue
    from mainstay.core.retry.call import Effect
    from mainstay.core.retry.effects import Stop
    from mainstay.drivers.call.callables import Args, Function, Kwargs
    from mainstay.drivers.call.result import RetryResult
    from mainstay.drivers.call.site import Site


def recover(
    site: Site, function: Function, args: Args, kwargs: Kwargs, box: list[Any], since: int,
    started: float | None = None,
) -> UserValue:  # fmt: skip
    """The rest of a call whose first attempt, by a generated wrapper, began `since` and failed.

    Most calls need only attempts and waits: those are made here. The failure comes in a box, so
    that no frame keeps it alive while the call waits.
    """
    site = site if site.operation else site_of(site, function)
    if (site.overrides.is_active or not site.is_quick or BOUND.get() is not UNBOUND) or (
        (OPEN or OLDER or references(FRAMES["ms_active"]) > ALONE) and is_bound()
    ):
        call = Call(site, function, enclosures(3, own=1), started, box, since=since)
        return drive(call, function, args, kwargs)
    key = getrandbits(52) | 1 if site.entropy.seed is None else site.entropy.draw()
    attempt, before, failure = 1, 0.0, box.pop()
    is_observed = site.listeners or LOGS.root.handlers or LOGS.own.handlers != QUIET
    notes = notes_of(site, key, started) if is_observed else None
    try:
        while (delay := fast_decision(site, failure, attempt, key, before, notes)) is not None:
            if notes is not None:
                notes.failed(failure, delay)
                if attempt == 1 and site.pressures:
                    _wait_turns(site)
                if delay < 0.0:
                    notes.end_here(failure)
            if delay < 0.0:
                break
            failure = None
            if delay:  # as the function is now: tests replace it
                time.sleep(delay) if clock.current is SYSTEM else clock.current.sleep(delay)
            since = FRAMES["ms_active"].moment
            try:
                if notes is None:
                    return function(*args, **kwargs) if kwargs else function(*args)
                notes.waited()
                value = notes.returned(function(*args, **kwargs))
            except Exception as error:
                failure = error
            else:
                notes.close()
                return value
            attempt, before = attempt + 1, delay
        box.append(failure)
        failure = None  # its traceback holds this frame: only the collector could free both
        if delay is None:
            call = rest_of(site, function, started, box, (attempt, key, before, since), notes)
            return drive(call, function, args, kwargs)
    except BaseException as stop:
        failure = None
        if notes is not None:
            notes.close(stop)
        raise
    raise box[0].with_traceback(box.pop().__traceback__.tb_next)  # without this frame


def _wait_turns(site: Site) -> None:
    """Waits for listeners that cannot keep up."""
    for pressure in site.pressures:
        if pressure.is_high:
            hold(pressure.turn())


def run(site: Site, function: Function, args: Args, kwargs: Kwargs) -> UserValue:
    """A whole call."""
    call = Call(site, function, enclosures(3, own=1), since=FRAMES["ms_active"].moment)
    return drive(call, function, args, kwargs)


def run_guarded(site: Site, function: Function, args: Args, kwargs: Kwargs) -> UserValue:
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


def report(
    site: Site,
    function: Function,
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
        value = drive(call, function, args, kwargs)
    except Exception as error:
        return result_of(call, began, error)
    return result_of(call, began, None, value)


def drive(
    call: Call,
    function: Function,
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
                confirm(call)
            effect = send(answer)
            if type(effect) is float:
                answer = wait(call, effect) if call.attempts or call.holds else None
                answer = answer or call.admit()
                if call.pending is not None:
                    answer = answer or confirm(call)
                answer = answer or call.ended(_attempt(call, function, args, kwargs))
                if call.is_quiet and type(answer) is Returned and call.pending is None:
                    return call.returned(answer)
            elif isinstance(effect, BaseException):
                raise effect
            elif type(effect) is Returned:
                return call.returned(effect)
            elif type(effect) is CallHook:
                call_hook(call, effect)
                answer = None
            else:
                answer = call.answer(effect)
                if call.holds is not None:
                    hold(call.turn(), call.cancel)
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


def _attempt(
    call: Call,
    function: Function,
    args: Args,
    kwargs: Kwargs,
) -> UserValue:
    """Invokes the function, within its bounds if it has any."""
    call.attempts += 1
    call.since = FRAMES["ms_active"].moment
    if call.followers:
        call.began()
    if not (call.is_bounded or call.site.policy.nested == "refuse"):
        try:
            return Returned(function(*args, **kwargs))
        except Exception as error:
            call.failure = error
            return error
    end, limit = call.bounds()
    try:
        with attempting(call.site, end, is_repeat=True):
            if call.is_bounded and call.site.policy.timeout_by == "thread":
                from mainstay.drivers.call.threads import run_in_thread

                enclosure = Enclosure(call.site, end)
                return Returned(run_in_thread(enclosure, limit, function, args, kwargs))
            return Returned(function(*args, **kwargs))
    except Exception as error:
        call.failure = error
        return error


COUNTING[recover.__code__] = lambda frame: int(frame.f_locals["attempt"]) + 1
COUNTING[_attempt.__code__] = lambda frame: int(frame.f_locals["call"].attempts)


def confirm(call: Call) -> Stop | None:
    """Waits for what guards have begun in a store: permits for a probe, a circuit that opened."""
    for job in call.pending or ():
        job.wait(call.patience(job))
    return call.confirm()


def wait(call: Call, delay: float) -> Stop | None:
    """Waits before an attempt; a set cancel event ends it at once. TOO_LATE if no time is left.

    A hook may have taken its time, or the wait itself: the machine may have slept.
    """
    if call.holds is not None:
        hold(call.turn(), call.cancel)
        if not call.attempts:
            return None
    if call.is_late(delay):
        return call.not_made(TOO_LATE)
    if call.failure is not None:
        call.free()
    number = call.show_wait(delay) if delay >= LONG else 0
    cancel = call.cancel
    try:
        if cancel is None:
            call.failure = None
            if delay > 0.0:
                clock.current.sleep(delay)
        elif cancel.is_set() or (delay > 0.0 and clock.current.sleep(delay, cancel)):
            raise call.cancelled()
        else:
            call.failure = None
    finally:
        if number:
            call.end_wait(number)
    return call.not_made(TOO_LATE) if call.is_late(0.0) else None


def hold(seconds: float, cancel: threading.Event | None = None) -> None:
    """Waits for a listener that cannot keep up, but never in the thread of an event loop."""
    if not seconds:
        return
    asyncio, trio = sys.modules.get("asyncio"), sys.modules.get("trio")
    is_in_loop = asyncio is not None and asyncio._get_running_loop() is not None  # noqa: SLF001 -- raises not
    if is_in_loop or (trio is not None and trio.lowlevel.in_trio_run()):
        return
    clock.current.sleep(seconds, cancel)


def call_hook(call: Call, effect: CallHook) -> None:
    """Calls a hook; whatever it raises is reported and changes nothing."""
    try:
        with aside(call.site, call.until):
            answer = effect.hook(effect.info)
        if is_awaitable(answer):  # one that is declared as async was refused
            discard(answer)
            name = call.site.policy.name
            text = f"{effect.name} of policy {name!r} is async, and this call cannot await it"
            call.answer(Warn(MainstayWarning, text, (name, effect.name)))
            raise WrapError(text, hint=SYNC_HINT)
    except Exception as error:
        call.hook_failed(effect, error)
