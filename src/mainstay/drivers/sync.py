"""The sync driver: performs what core/call.py asks, in the caller's own thread."""

from __future__ import annotations

from types import CoroutineType

from mainstay import clock
from mainstay.core.call import Returned
from mainstay.core.hooks import CallHook
from mainstay.drivers.answers import Call
from mainstay.errors import WrapError
from mainstay.frames import Enclosure, enclosures, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mainstay.core.call import Life
    from mainstay.drivers.site import Site


def run(
    site: Site, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A whole call."""
    return drive(Call(site, function, enclosures(3)), site, function, args, kwargs)


def drive(
    rest: Call | Life,
    site: Site,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Obeys the story until it says what to return or raise."""
    call: Call | None = rest if type(rest) is Call else None
    story: Life = rest if call is None else call.story  # type: ignore[assignment]
    send, answer, failure = story.send, None, None
    try:
        while True:
            effect = send(answer)
            if type(effect) is float:
                answer = failure = None  # nothing holds a failure's frames while we wait
                if call is None:
                    if effect > 0.0:
                        clock.current.sleep(effect)
                    try:
                        return function(*args, **kwargs)
                    except Exception as error:
                        answer = failure = error
                else:
                    answer = _attempt(call, effect, function, args, kwargs)
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
                    call_hook(call, effect)
                    answer = None
                else:
                    answer = call.answer(effect)
    finally:
        # The traceback of what is raised holds this frame, and this frame held what is raised:
        # only the garbage collector could free them.
        if call is not None:
            call.close()
        del rest, story, send
        effect = answer = failure = None  # type: ignore[assignment]


def _attempt(
    call: Call,
    delay: float,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Waits and invokes where a deadline, a listener or a cancel event has a say."""
    wait(call, delay)
    call.attempts += 1
    if not call.is_bounded:
        try:
            return Returned(function(*args, **kwargs))
        except Exception as error:
            call.failure = error
            return error
    end, limit = call.bounds()
    try:
        with opened(call.site, end, is_repeat=True):
            if call.site.policy.timeout_by == "thread":
                from mainstay.drivers.threads import run_in_thread

                enclosure = Enclosure(call.site, end)
                return Returned(run_in_thread(enclosure, limit, function, args, kwargs))
            return Returned(function(*args, **kwargs))
    except Exception as error:
        call.failure = error
        return error


def wait(call: Call, delay: float) -> None:
    """Waits before an attempt; a set cancel event ends it at once."""
    cancel = call.cancel
    if cancel is None:
        call.failure = None
        if delay > 0.0:
            clock.current.sleep(delay)
    elif cancel.is_set() or (delay > 0.0 and clock.current.sleep(delay, cancel)):
        raise call.cancelled()
    else:
        call.failure = None


def call_hook(call: Call, effect: CallHook) -> None:
    """Calls a hook; whatever it raises is reported and changes nothing."""
    try:
        answer = effect.hook(effect.info)
        if isinstance(answer, CoroutineType):
            answer.close()
            raise WrapError(
                f"{effect.name} is async, and a sync call cannot await it",
                hint="give it a plain function, or retry an async one",
            )
    except Exception as trouble:
        call.hook_failed(effect, trouble)
