"""The async driver: performs what core/call.py asks, under asyncio or trio."""

from __future__ import annotations

import sys

from mainstay import clock
from mainstay.core.call import Returned
from mainstay.core.hooks import CallHook
from mainstay.drivers.answers import Call
from mainstay.drivers.callables import name_of
from mainstay.errors import WrapError
from mainstay.frames import enclosures, opened

_GLANCE = 0.02
"""Seconds between two looks at a cancel event while an async call waits."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from typing import Any, Protocol

    from mainstay.core.call import Life
    from mainstay.drivers.site import Site

    class Scope(Protocol):
        """An attempt with an end: exactly one of the two is called."""

        def failed(self, caught: BaseException) -> Exception: ...
        def ended(self) -> None: ...

    class Backend(Protocol):
        """What differs between event loops."""

        async def sleep(self, seconds: float, /) -> object: ...
        def open_scope(self, end: float, limit: float, /) -> Scope: ...


def run(
    site: Site,
    function: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Coroutine[Any, Any, Any]:
    """A whole call."""
    return drive(Call(site, function, enclosures(3)), site, function, args, kwargs)


async def drive(
    rest: Call | Life,
    site: Site,
    function: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Obeys the story until it says what to return or raise."""
    call: Call | None = rest if type(rest) is Call else None
    story: Life = rest if call is None else call.story  # type: ignore[assignment]
    send, answer, failure = story.send, None, None
    backend = current_backend()
    try:
        while True:
            effect = send(answer)
            if type(effect) is float:
                answer = failure = None  # nothing holds a failure's frames while we wait
                if call is None:
                    await backend.sleep(effect)
                    try:
                        return await awaitable(function, function(*args, **kwargs))
                    except Exception as error:
                        answer = failure = error
                else:
                    answer = await _attempt(call, backend, effect, function, args, kwargs)
                    if call.is_quiet and type(answer) is Returned:
                        return answer.value
            elif isinstance(effect, BaseException):
                raise effect
            else:
                if call is None:
                    call = Call(site, function, story=story)
                    call.failure = failure
                if type(effect) is Returned:
                    call.is_accepted = effect.is_accepted
                    return effect.value
                if type(effect) is CallHook:
                    await call_hook(call, effect)
                    answer = None
                else:
                    answer = call.answer(effect)
    finally:
        # As in sync.drive: only the garbage collector could free what is raised and this frame.
        if call is not None:
            call.close()
        del rest, story, send
        effect = answer = failure = None  # type: ignore[assignment]


async def _attempt(
    call: Call,
    backend: Backend,
    delay: float,
    function: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Waits and invokes where a deadline, a listener or a cancel event has a say."""
    if call.attempts:
        await wait(call, backend, delay)
    call.attempts += 1
    if call.is_bounded:
        return await _bounded(call, backend, function, args, kwargs)
    try:
        return Returned(await awaitable(function, function(*args, **kwargs)))
    except Exception as error:
        call.failure = error
        return error


async def _bounded(
    call: Call,
    backend: Backend,
    function: Callable[..., Awaitable[Any]],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """An attempt that is cancelled when its end comes."""
    end, limit = call.bounds()
    scope = backend.open_scope(end, limit)
    try:
        with opened(call.site, end, is_repeat=True):
            value = await awaitable(function, function(*args, **kwargs))
    except BaseException as caught:
        call.failure = scope.failed(caught)
        return call.failure
    scope.ended()
    return Returned(value)


async def wait(call: Call, backend: Backend, delay: float) -> None:
    """Waits before an attempt; even no delay lets other tasks run and a cancellation through."""
    cancel = call.cancel
    if cancel is None:
        call.failure = None
        await backend.sleep(delay)
        return
    end = clock.current.monotonic() + delay
    left = delay
    while not cancel.is_set():
        # A threading.Event wakes no event loop: it is looked at now and then.
        await backend.sleep(min(left, _GLANCE))
        left = end - clock.current.monotonic()
        if left <= 0.0:
            call.failure = None
            return
    raise call.cancelled()


async def call_hook(call: Call, effect: CallHook) -> None:
    """Calls a hook and awaits it where it is async; what it raises is reported."""
    try:
        made = effect.hook(effect.info)
    except Exception as trouble:
        call.hook_failed(effect, trouble)
    else:
        await await_hook(call, effect, made)


async def await_hook(call: Call, effect: CallHook, made: Any) -> None:
    """Awaits what a hook gave, where there is something to await."""
    if not hasattr(made, "__await__"):
        return
    try:
        await made
    except Exception as trouble:
        call.hook_failed(effect, trouble)


def awaitable(function: Any, made: Any) -> Any:
    """What the function gave, if it can be awaited."""
    if not hasattr(made, "__await__"):
        raise WrapError(
            f"{name_of(function)} returned {type(made).__name__}, which cannot be awaited",
            hint="call a plain function with call(), not acall()",
        )
    return made


def begin(limit: float) -> Scope:
    """Starts a first attempt that is cancelled after the limit, in any event loop."""
    return current_backend().open_scope(clock.current.monotonic() + limit, limit)


def current_backend() -> Backend:
    """The event loop this is running in; each is loaded when it is first seen."""
    trio = sys.modules.get("trio")
    if trio is not None and trio.lowlevel.in_trio_task():
        if _backends.get("trio") is None:
            from mainstay.drivers import on_trio

            _backends["trio"] = on_trio
        return _backends["trio"]
    if _backends.get("asyncio") is None:
        from mainstay.drivers import on_asyncio

        _backends["asyncio"] = on_asyncio
    return _backends["asyncio"]


_backends: dict[str, Backend] = {}
