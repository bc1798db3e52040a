"""What encloses the current call, read off the stack when that is needed.

Every frame that makes first attempts runs in one namespace, FRAMES; walking up the stack and
comparing `f_globals` finds them. The happy path pays a local variable: the references to what it
holds count the wrappers under way, and if there is no other there is no walk. The walk is exact for
direct calls, generators and await chains. Retried attempts, blocks of `policy.attempts()` and
worker threads run in frames of other modules: those are entered in OPEN while they last.

A wrapper frame holds `ms_site`; one with a limit also `ms_started`, from which the end of its
first attempt follows. Context variables would cost the happy path 9 × a bare call.
"""

from __future__ import annotations

import builtins
import sys

from mainstay.core.retry.call import call_flow
from mainstay.core.retry.deadline import NEVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import FrameType
    from typing import Any

    from mainstay.core.retry.plan import Plan

FRAMES: dict[str, Any] = {
    "__name__": "mainstay.drivers.call.wrap",
    "__builtins__": builtins,
    "__tracebackhide__": True,  # pytest then leaves our frames out of its reports
}
OPEN: dict[FrameType, Enclosure] = {}


class _Active:
    """Held by every wrapper frame while it runs, so that references to it count them."""


_ACTIVE = _Active()
FRAMES["ms_active"] = _ACTIVE


def _count_active() -> int:
    """How many wrapper frames there are, running or suspended; perhaps a few that are over.

    A wrapper pays nothing for being counted but a local variable. If references cannot be
    counted, there are always too many.
    """
    return _references(_ACTIVE) - _AT_REST


_references: Callable[[object], int] = getattr(sys, "getrefcount", lambda _: sys.maxsize)
_AT_REST = 0
_AT_REST = _count_active()


class Enclosure:
    """A retry under way, seen from inside: whose, and until when what runs may last.

    `is_repeat` if it is not the first attempt: the next one up is then the same call, whose
    first attempt is over. `retries` is False for what runs beside the attempts, such as a hook:
    that is not repeated.
    """

    __slots__ = ("end", "frame", "is_repeat", "plan", "retries")

    def __init__(
        self,
        plan: Plan,
        end: float,
        *,
        is_repeat: bool = False,
        retries: bool = True,
        frame: FrameType | None = None,
    ) -> None:
        self.plan = plan
        self.end = end
        self.is_repeat = is_repeat
        self.retries = retries
        self.frame = frame

    @property
    def name(self) -> str:
        """What the enclosing retry is called."""
        if self.plan.operation or self.frame is None:
            return self.plan.operation
        function = self.frame.f_locals.get("ms_function")
        return str(getattr(function, "__qualname__", "a call"))


def enclosures(depth: int = 1, own: int = 0) -> Sequence[Enclosure]:
    """The retries that enclose the frame `depth` levels up, innermost first.

    `own` is how many wrapper frames below that one are the caller's own.
    """
    if not OPEN and _count_active() <= own:
        return ()  # nothing else is under way, in any thread or task
    start = frame = sys._getframe(depth)
    if OPEN:
        return _survey(start)
    namespace = FRAMES
    while frame is not None:
        if frame.f_globals is namespace:
            return _survey(start)
        frame = frame.f_back  # type: ignore[assignment]
    return ()


def _survey(frame: FrameType | None) -> list[Enclosure]:
    found: list[Enclosure] = []
    is_own = False
    while frame is not None:
        here = _read(frame) if frame.f_globals is FRAMES else OPEN.get(frame)
        if here is not None:
            if not is_own:
                found.append(here)
            is_own = here.is_repeat  # then the next one up is the same call
        elif frame.f_code is _DECIDING:
            is_own = True  # a predicate runs while its call decides, not in an attempt of it
        elif _starts_task(frame):
            break  # an eager task's first step runs on the stack of the code that starts it
        frame = frame.f_back
    return found


def _starts_task(frame: FrameType) -> bool:
    if frame.f_code.co_name != "create_task":
        return False
    return str(frame.f_globals.get("__name__", "")).startswith("asyncio.")


_DECIDING = call_flow.__code__


class opened:  # noqa: N801 -- a context manager is used like a function
    """Enters the caller's own frame as one that makes an attempt."""

    __slots__ = ("_before", "_enclosure", "_frame")

    def __init__(self, plan: Plan, end: float = NEVER, *, is_repeat: bool = False) -> None:
        self._enclosure = Enclosure(plan, end, is_repeat=is_repeat)
        self._frame = sys._getframe(1)

    def __enter__(self) -> None:
        self._before = OPEN.get(self._frame)
        OPEN[self._frame] = self._enclosure

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del OPEN[self._frame]
        else:
            OPEN[self._frame] = self._before
        del self._frame


class aside(opened):  # noqa: N801 -- a context manager is used like a function
    """Enters the caller's own frame as one that runs something beside the attempts."""

    __slots__ = ()

    def __init__(self, plan: Plan, end: float) -> None:
        self._enclosure = Enclosure(plan, end, is_repeat=True, retries=False)
        self._frame = sys._getframe(1)


def _read(frame: FrameType) -> Enclosure:
    variables = frame.f_locals
    plan: Plan = variables["ms_site"]
    started, limit = variables.get("ms_started"), plan.policy.first_limit
    end = NEVER if started is None or limit is None else started + limit
    return Enclosure(plan, end, frame=frame)


def enclosing_end() -> float:
    """The earliest end of the attempts that enclose the caller."""
    return min((each.end for each in enclosures()), default=NEVER)
